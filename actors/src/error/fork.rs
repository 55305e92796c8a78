//! Why a session was not forked.

use std::sync::Arc;

use greenroom_session::{
    fork::ForkError as CutError,
    id::SessionId,
    store::{LoadError, StoreError},
};
use thiserror::Error;

use super::{PublishedError, write::WriteError};

/// Why a session was not forked. Nothing of the fork exists, unless the error is `INDETERMINATE`. Where more than one holds, the first of this list is told.
///
/// ```
/// use greenroom_actors::error::ForkError;
/// use greenroom_session::id::SessionId;
/// # tokio_test::block_on(async {
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(greenroom_actors::Config::default(), store, true).await?;
/// # let host = system.host();
/// let error = host.fork(&SessionId::new("nobody")?, None, None).await.unwrap_err();
/// assert!(matches!(error, ForkError::NotFound(_)));
/// assert_eq!(error.code(), "SESSION_NOT_FOUND");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ForkError {
    /// The runtime is shutting down.
    #[error("draining: no new work is accepted")]
    Draining,
    /// A session of the fork's id is there, or on its way.
    #[error("session {0} already exists")]
    AlreadyExists(SessionId),
    /// There is no such source.
    #[error("session {0} does not exist")]
    NotFound(SessionId),
    /// The handle's publication has ended.
    #[error("session {0} is not published any more")]
    NotLive(SessionId),
    /// The source cannot be read.
    #[error("session {session} cannot be read: {reason}")]
    Damaged {
        /// The source.
        session: SessionId,
        /// What is wrong.
        reason: String,
        /// Stable code.
        code: &'static str,
    },
    /// The source cannot be cut there.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// The store failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The store failed.
    #[error("the store cannot be read: {0}")]
    Read(Arc<StoreError>),
}

impl ForkError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Draining => "DRAINING",
            Self::AlreadyExists(_) => "SESSION_ALREADY_EXISTS",
            Self::NotFound(_) => "SESSION_NOT_FOUND",
            Self::NotLive(_) => "SESSION_NOT_LIVE",
            Self::Damaged { code, .. } => code,
            Self::Cut(error) => error.code(),
            Self::Write(error) => error.code(),
            Self::Read(error) => error.code(),
        }
    }

    pub(crate) fn from_load(source: &SessionId, error: LoadError) -> Self {
        match error {
            LoadError::NotFound(id) => Self::NotFound(id),
            LoadError::Store(error) => Self::Read(Arc::new(error)),
            other => Self::Damaged { session: source.clone(), code: other.code(), reason: other.to_string() },
        }
    }
}

impl From<PublishedError> for ForkError {
    /// What a flush fails with.
    fn from(error: PublishedError) -> Self {
        match error {
            PublishedError::NotLive(session) => Self::NotLive(session),
            PublishedError::Write(error) => Self::Write(error),
            _ => Self::Write(WriteError::Ended),
        }
    }
}
