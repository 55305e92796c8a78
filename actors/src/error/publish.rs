//! Why a session was not published.

use std::sync::Arc;

use greenroom_session::{
    id::SessionId,
    store::{LoadError, StoreError},
};
use thiserror::Error;

use super::write::WriteError;

/// Why a session was not published. What is stored of it is as it was, unless the error is `INDETERMINATE`.
///
/// ```
/// use greenroom_actors::{Publication, error::PublishError};
/// use greenroom_session::id::SessionId;
/// # tokio_test::block_on(async {
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(greenroom_actors::Config::default(), store, true).await?;
/// # let host = system.host();
/// let error = host.publish_session(Publication::stored(SessionId::new("nobody")?)).await.unwrap_err();
/// assert!(matches!(error, PublishError::NotFound(_)));
/// assert_eq!(error.code(), "SESSION_NOT_FOUND");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum PublishError {
    /// It is live in this process already, whoever plays it.
    #[error("session {0} is live here already")]
    Live(SessionId),
    /// Another live process holds it.
    #[error("session {session} is held by another process ({owner})")]
    Held {
        /// The session.
        session: SessionId,
        /// Who holds it.
        owner: String,
    },
    /// A session of this id is stored with another header or another beginning.
    #[error("session {0} already exists, with another header or another beginning")]
    Exists(SessionId),
    /// There is no such session.
    #[error("session {0} does not exist")]
    NotFound(SessionId),
    /// Its log cannot be continued.
    #[error("session {session} cannot be published: {reason}")]
    NotResumable {
        /// The session.
        session: SessionId,
        /// Why.
        reason: String,
        /// Stable code.
        code: &'static str,
    },
    /// It cannot begin like this.
    #[error("{message}")]
    Invalid {
        /// Stable code.
        code: &'static str,
        /// What is wrong.
        message: String,
    },
    /// It took too long.
    #[error("session {0} was not published in time")]
    Deadline(SessionId),
    /// The runtime is shutting down.
    #[error("draining: no new work is accepted")]
    Draining,
    /// The store failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The store failed.
    #[error("the store cannot be read: {0}")]
    Read(Arc<StoreError>),
}

impl PublishError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Live(_) => "SESSION_LIVE",
            Self::Held { .. } => "SESSION_HELD",
            Self::Exists(_) => "SESSION_EXISTS",
            Self::NotFound(_) => "SESSION_NOT_FOUND",
            Self::NotResumable { code, .. } | Self::Invalid { code, .. } => code,
            Self::Deadline(_) => "START_DEADLINE",
            Self::Draining => "DRAINING",
            Self::Write(error) => error.code(),
            Self::Read(error) => error.code(),
        }
    }

    pub(crate) fn from_load(session: &SessionId, error: LoadError) -> Self {
        match error {
            LoadError::NotFound(id) => Self::NotFound(id),
            LoadError::Store(error) => Self::Read(Arc::new(error)),
            other => Self::NotResumable { session: session.clone(), code: other.code(), reason: other.to_string() },
        }
    }
}
