//! Why a published session did not do what its host asked.

use greenroom_session::{compact::CompactError, id::SessionId, message::MessageError};
use thiserror::Error;

use super::write::WriteError;
use crate::log::{EVENT_REFUSED, NotPut};

/// Why a published session did not do what its host asked.
///
/// ```
/// use greenroom_actors::{Publication, error::PublishedError, host::NewRoot};
/// use greenroom_session::{event::Body, id::SessionId};
/// # tokio_test::block_on(async {
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(greenroom_actors::Config::default(), store, true).await?;
/// # let host = system.host();
/// let desk = Publication::root(SessionId::new("desk")?, NewRoot::new("host", "a desk").opened);
/// let session = host.publish_session(desk).await?;
/// let error = session.append(Body::StepStart { turn: 1, step: 1 }).unwrap_err(); // no turn is open
/// assert!(matches!(error, PublishedError::Refused { .. }));
/// assert_eq!(error.code(), "EVENT_REFUSED");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum PublishedError {
    /// The publication has ended.
    #[error("session {0} is not published any more")]
    NotLive(SessionId),
    /// The event cannot be written, or cannot follow what the log holds. Nothing has changed.
    #[error("{message}")]
    Refused {
        /// Stable code.
        code: &'static str,
        /// What is wrong.
        message: String,
    },
    /// The compaction cannot be. Nothing has changed.
    #[error(transparent)]
    Compact(#[from] CompactError),
    /// The message cannot be.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A write failed: of this event, or of an earlier one.
    #[error(transparent)]
    Write(WriteError),
    /// The store failed.
    #[error("the store cannot be read: {0}")]
    Read(String),
}

impl PublishedError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotLive(_) => "SESSION_NOT_LIVE",
            Self::Refused { code, .. } => code,
            Self::Compact(error) => error.code(),
            Self::Message(error) => error.code(),
            Self::Write(error) => error.code(),
            Self::Read(_) => "STORE_FAILED",
        }
    }

    pub(crate) fn refused(message: String) -> Self {
        Self::Refused { code: EVENT_REFUSED, message }
    }

    pub(crate) fn of(session: &SessionId, error: NotPut) -> Self {
        match error {
            NotPut::Closed => Self::NotLive(session.clone()),
            NotPut::Broken(error) => Self::Write(error),
            NotPut::Refused { code, message } => Self::Refused { code, message },
            NotPut::Compact(error) => Self::Compact(error),
        }
    }
}
