//! Why a one-shot run has no result.

use std::sync::Arc;

use greenroom_session::{
    id::SessionId,
    store::{LoadError, StoreError},
};
use thiserror::Error;

/// Why a one-shot run could not be found again, or has no result. How the child's work ended is no error: that is the result.
///
/// ```
/// use greenroom_actors::{error::RunError, host::NewRoot};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |_: greenroom_actors::Turn| async { Ok(greenroom_actors::TurnEnd::Completed) });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let root = host.root(NewRoot::new("echo", "a desk")).await?;
/// let error = host.run_of(root.id()).await.unwrap_err();
/// assert!(matches!(error, RunError::NotResumable { .. }));
/// assert_eq!(error.code(), "NOT_RESUMABLE"); // a root is no one-shot child
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum RunError {
    /// There is no such session.
    #[error("session {0} does not exist")]
    NotFound(SessionId),
    /// Whoever asks is not the exact live parent.
    #[error("only the exact live parent may ask this of {child}: {reason}")]
    Unauthorized {
        /// The child.
        child: SessionId,
        /// What is wrong.
        reason: &'static str,
    },
    /// It is no one-shot child, or its work cannot be done here: nobody plays it, it does not get on, it is held, or its log is damaged.
    #[error("run {child} has no result: {reason}")]
    NotResumable {
        /// The child.
        child: SessionId,
        /// Why.
        reason: String,
        /// Stable code.
        code: &'static str,
    },
    /// It was never asked anything.
    #[error("child {0} has not run")]
    NotStarted(SessionId),
    /// The turn that waited for it was cancelled.
    #[error("the turn was cancelled")]
    Cancelled,
    /// The runtime is shutting down; what is left of the child's work is done by the next one.
    #[error("draining: the run goes on with the next runtime")]
    Draining,
    /// It was drained: it is not brought up while that lasts. See [`Host::drain`](crate::Host::drain).
    #[error("draining: child {0} is closed with work left")]
    Closed(SessionId),
    /// The store failed.
    #[error("the store cannot be read: {0}")]
    Read(Arc<StoreError>),
}

impl RunError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "SESSION_NOT_FOUND",
            Self::Unauthorized { .. } => "UNAUTHORIZED",
            Self::NotResumable { code, .. } => code,
            Self::NotStarted(_) => "NOT_STARTED",
            Self::Cancelled => "CANCELLED",
            Self::Draining | Self::Closed(_) => "DRAINING",
            Self::Read(error) => error.code(),
        }
    }

    pub(crate) fn not_resumable(child: &SessionId, reason: impl Into<String>) -> Self {
        Self::NotResumable { child: child.clone(), reason: reason.into(), code: "NOT_RESUMABLE" }
    }

    pub(crate) fn from_load(child: &SessionId, error: LoadError) -> Self {
        match error {
            LoadError::NotFound(id) => Self::NotFound(id),
            LoadError::Store(error) => Self::Read(Arc::new(error)),
            other => Self::NotResumable { child: child.clone(), code: other.code(), reason: other.to_string() },
        }
    }
}
