//! Why a write failed.

use std::sync::Arc;

use greenroom_session::store::{CommitError, Refused, StoreError};
use thiserror::Error;

/// Why a write did not become durable, or is not known to have.
///
/// ```
/// use greenroom_actors::error::WriteError;
/// use greenroom_session::store::Refused;
/// let error = WriteError::from(Refused::Busy { pending: 9, limit: 9 });
/// assert_eq!(error.code(), "BUSY");
/// assert_eq!(WriteError::Ended.code(), "INDETERMINATE"); // the same ids again are safe
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The store refused it.
    #[error(transparent)]
    Refused(Refused),
    /// The whole batch failed; nothing of it is in the store.
    #[error("not written: {}", .0.cause())]
    NotCommitted(Arc<CommitError>),
    /// It may or may not be in the store; the same ids again are safe.
    #[error("the outcome is unknown: {}", .0.cause())]
    Indeterminate(Arc<CommitError>),
    /// No answer came in time; the same ids again are safe.
    #[error("the outcome is unknown: no answer in time")]
    TimedOut,
    /// The journal ended before it answered; the same ids again are safe.
    #[error("the outcome is unknown: the journal has ended")]
    Ended,
}

impl From<Refused> for WriteError {
    /// What a store could not write of one session alone is nothing that it refused: to whoever waits it is as if the whole batch had failed.
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotWritten { full, reason } => {
                let cause = if full { StoreError::Full(reason.into()) } else { StoreError::Io(reason.into()) };
                Self::NotCommitted(Arc::new(CommitError::NotCommitted(cause)))
            }
            other => Self::Refused(other),
        }
    }
}

impl WriteError {
    /// Tells whether it is the disk, or the way to it, that did not take it: no word on what was to be written.
    pub(crate) fn is_outage(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }

    /// Tells whether there was no room on the disk.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::NotCommitted(error) | Self::Indeterminate(error) if matches!(error.cause(), StoreError::Full(_)))
    }

    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refused) => refused.code(),
            Self::NotCommitted(error) | Self::Indeterminate(error) => error.code(),
            Self::TimedOut | Self::Ended => "INDETERMINATE",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_store_could_not_write_of_one_session_is_as_if_its_batch_had_failed() {
        let error = |full| WriteError::from(Refused::NotWritten { full, reason: "it broke".into() });
        assert!(matches!(error(false), WriteError::NotCommitted(_)));
        assert_eq!((error(false).code(), error(true).code()), ("NOT_DELIVERED", "STORE_FULL"));
        assert!(matches!(WriteError::from(Refused::Pending(1)), WriteError::Refused(Refused::Pending(1))));
    }
}
