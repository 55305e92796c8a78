//! Why a one-shot run was not disposed of.

use std::sync::Arc;

use greenroom_session::{
    id::SessionId,
    store::{LoadError, StoreError},
};
use thiserror::Error;

use super::control::ControlError;

/// Why a one-shot run was not brought to its end. It says nothing of the run's result, and the same call again goes on with what is left.
///
/// ```
/// use greenroom_actors::{Delegate, error::DisposeError, host::NewRoot};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |_: greenroom_actors::Turn| async { Ok(greenroom_actors::TurnEnd::Completed) });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// let root = system.host().root(NewRoot::new("echo", "a desk")).await?;
/// let run = root.agent().start(Delegate::new("echo", "an echo", "one")).await?;
/// system.shutdown().await;
/// let error = run.dispose().await.unwrap_err();
/// assert!(matches!(error, DisposeError::Draining));
/// assert_eq!(error.code(), "DRAINING");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum DisposeError {
    /// A session, the child or one below it, could not be cancelled.
    #[error("session {session} was not cancelled: {cause}")]
    Cancel {
        /// The session.
        session: SessionId,
        /// Why.
        cause: ControlError,
    },
    /// The child has not come to its end in time.
    #[error("run {0} has not ended in time")]
    TimedOut(SessionId),
    /// The runtime is shutting down; what is left of the child's work is done by the next one.
    #[error("draining: the run goes on with the next runtime")]
    Draining,
    /// The store failed.
    #[error("the store cannot be read: {0}")]
    Read(Arc<StoreError>),
}

impl DisposeError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Cancel { cause, .. } => cause.code(),
            Self::TimedOut(_) => "TIMED_OUT",
            Self::Draining => "DRAINING",
            Self::Read(error) => error.code(),
        }
    }

    pub(crate) fn from_load(session: &SessionId, error: LoadError) -> Self {
        match error {
            LoadError::Store(error) => Self::Read(Arc::new(error)),
            other => Self::Cancel { session: session.clone(), cause: ControlError::from_load(session, other) },
        }
    }
}
