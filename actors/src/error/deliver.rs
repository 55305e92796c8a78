//! Why a delivery failed.

use greenroom_session::{
    id::{MessageId, SessionId},
    message::MessageError,
    store::Refused,
};
use thiserror::Error;

use super::write::WriteError;
use crate::reach::NO_SUCH_SESSION;

/// Why a message was not delivered.
///
/// ```
/// use greenroom_actors::{error::DeliverError, host::NewRoot};
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
/// let error = root.agent().report("all is well", false).await.unwrap_err(); // a root has nobody to report to
/// assert!(matches!(error, DeliverError::Unauthorized { .. }));
/// assert_eq!(error.code(), "UNAUTHORIZED");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum DeliverError {
    /// The sender is not the exact live parent.
    #[error("only the exact live parent may send to {child}: {reason}")]
    Unauthorized {
        /// The receiver.
        child: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The receiver is unknown, unreadable, or takes no further messages.
    #[error("subagent \"{child}\" is unavailable: {reason}")]
    NotResumable {
        /// The receiver.
        child: String,
        /// Why.
        reason: String,
    },
    /// The parent that was to be reported to is not there, or damaged.
    #[error("parent {parent} is unavailable: {reason}; the report was not delivered")]
    ParentUnavailable {
        /// The parent.
        parent: SessionId,
        /// Why.
        reason: String,
    },
    /// The inbox is full.
    #[error("not delivered: the inbox is full, {pending} of {limit} messages are pending")]
    Busy {
        /// Messages pending.
        pending: u64,
        /// The limit.
        limit: u64,
    },
    /// The message cannot be.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A message of this id was accepted with another body.
    #[error("message {0} was accepted before with another body")]
    Conflict(MessageId),
    /// The runtime is shutting down, or the receiver, or the sender, is below a session that is drained.
    #[error("draining: no new work is accepted")]
    Draining,
    /// The end of the sender's epoch is under way. Its next epoch may send.
    #[error("the sender is being disposed")]
    Closing,
    /// Whoever asked has given up before anything was accepted.
    #[error("cancelled")]
    Cancelled,
    /// The store failed.
    #[error("not delivered: {0}")]
    Write(WriteError),
}

impl DeliverError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unauthorized { .. } => "UNAUTHORIZED",
            Self::NotResumable { .. } => "NOT_RESUMABLE",
            Self::ParentUnavailable { .. } => "PARENT_UNAVAILABLE",
            Self::Busy { .. } => "BUSY",
            Self::Message(error) => error.code(),
            Self::Conflict(_) => "MESSAGE_ID_CONFLICT",
            Self::Draining => "DRAINING",
            Self::Closing => "ACTIVATION_CLOSING",
            Self::Cancelled => "CANCELLED",
            Self::Write(error) => error.code(),
        }
    }

    /// Says of a refused acceptance what it means for the sender.
    pub(crate) fn from_write(child: &SessionId, error: WriteError) -> Self {
        match error {
            WriteError::Refused(Refused::NotFound(_)) => Self::NotResumable { child: child.to_string(), reason: NO_SUCH_SESSION.into() },
            // As whoever looked before would have been told.
            WriteError::Refused(gone @ (Refused::Removed(_) | Refused::Corrupt { .. })) => {
                Self::NotResumable { child: child.to_string(), reason: gone.to_string() }
            }
            WriteError::Refused(Refused::Busy { pending, limit }) => Self::Busy { pending, limit },
            WriteError::Refused(Refused::MessageIdConflict(id)) => Self::Conflict(id),
            other => Self::Write(other),
        }
    }

    /// Says of a refused report what it means for the child.
    pub(crate) fn from_report(parent: &SessionId, error: WriteError) -> Self {
        match Self::from_write(parent, error) {
            Self::NotResumable { reason, .. } => Self::ParentUnavailable { parent: parent.clone(), reason },
            other => other,
        }
    }
}
