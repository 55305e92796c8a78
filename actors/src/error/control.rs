//! Why an interrupt or a withdrawal failed.

use std::sync::Arc;

use greenroom_session::{
    id::{MessageId, SessionId},
    store::{LoadError, StoreError},
};
use thiserror::Error;

use super::write::WriteError;

/// Why a turn was not ended, or a message not taken back.
///
/// ```
/// use greenroom_actors::{error::ControlError, host::NewRoot};
/// use std::time::Duration;
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let root = host.root(NewRoot::new("echo", "a desk")).await?;
/// let message = root.send("hello").await?;
/// root.quiescent().await?;
/// let error = host.withdraw(root.id(), &message, Duration::from_secs(10)).await.unwrap_err();
/// assert!(matches!(error, ControlError::AlreadyStarted(_)));
/// assert_eq!(error.code(), "ALREADY_STARTED");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no such session.
    #[error("session {0} does not exist")]
    NotFound(SessionId),
    /// No turn is under way, or the turn that was seen came to its end before it could be ended.
    #[error("session {0} is in no turn")]
    NotRunning(SessionId),
    /// The message has a turn, whatever became of it.
    #[error("message {0} has a turn already")]
    AlreadyStarted(MessageId),
    /// No message of this id waits for a turn of its own.
    #[error("no message {0} waits for a turn of its own")]
    NotPending(MessageId),
    /// Only the exact live parent may ask this of a child, and only of what it sent itself.
    #[error("only the exact live parent may ask this of {child}: {reason}")]
    Unauthorized {
        /// The child.
        child: SessionId,
        /// What is wrong.
        reason: &'static str,
    },
    /// The session's log cannot be written to by this program.
    #[error("session {session} cannot be asked: {reason}")]
    NotResumable {
        /// The session.
        session: SessionId,
        /// Why.
        reason: String,
        /// Stable code.
        code: &'static str,
    },
    /// No answer came in time. What was asked of another process stays asked, and the same again waits for its answer.
    #[error("session {0} has not answered in time")]
    TimedOut(SessionId),
    /// The runtime is shutting down.
    #[error("draining: nothing more is asked")]
    Draining,
    /// The store failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The store failed.
    #[error("the store cannot be read: {0}")]
    Read(Arc<StoreError>),
}

impl ControlError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "SESSION_NOT_FOUND",
            Self::NotRunning(_) => "NOT_RUNNING",
            Self::AlreadyStarted(_) => "ALREADY_STARTED",
            Self::NotPending(_) => "NOT_PENDING",
            Self::Unauthorized { .. } => "UNAUTHORIZED",
            Self::NotResumable { code, .. } => code,
            Self::TimedOut(_) => "TIMED_OUT",
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
