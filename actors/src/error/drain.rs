//! Why a drain did not go well.

use std::{fmt, sync::Arc};

use greenroom_session::{
    id::SessionId,
    store::{LoadError, StoreError},
};
use thiserror::Error;

/// Why a drain did not go well.
///
/// ```
/// use greenroom_actors::{Delegate, error::DrainError, host::NewRoot};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |_: greenroom_actors::Turn| async { Ok(greenroom_actors::TurnEnd::Completed) });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let desk = host.root(NewRoot::new("echo", "a desk")).await?;
/// let other = host.root(NewRoot::new("echo", "another desk")).await?;
/// let child = desk.agent().start_continuable(Delegate::new("echo", "an echo", "one")).await?.child;
/// let error = other.agent().drain_children(&[child]).await.unwrap_err(); // it belongs to the first desk
/// assert!(matches!(error, DrainError::Unauthorized { .. }));
/// assert_eq!(error.code(), "UNAUTHORIZED");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum DrainError {
    /// Somebody did not end in order. Everybody has ended all the same, or was given up.
    #[error("teardown failed: {}", Listed(failures))]
    TeardownFailed {
        /// What went wrong, in the order in which it did.
        failures: Arc<[TeardownFailure]>,
    },
    /// Only the exact live parent may drain a child. Nothing was drained.
    #[error("only the exact live parent may drain {child}: {reason}")]
    Unauthorized {
        /// The child.
        child: SessionId,
        /// What is wrong.
        reason: &'static str,
    },
    /// The actors of the runtime ended meanwhile: everybody has ended without order, and what was under way is taken up again.
    #[error("the runtime's actors have ended in the middle of the drain")]
    Ended,
    /// It could not be read whose children they are. Nothing was drained.
    #[error("a child cannot be read: {0}")]
    Read(Arc<LoadError>),
}

impl DrainError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TeardownFailed { .. } => "ACTIVATION_TEARDOWN_FAILED",
            Self::Unauthorized { .. } => "UNAUTHORIZED",
            Self::Ended => "ACTIVATION_FAILED",
            Self::Read(error) => error.code(),
        }
    }
}

impl From<LoadError> for DrainError {
    fn from(error: LoadError) -> Self {
        Self::Read(Arc::new(error))
    }
}

impl From<StoreError> for DrainError {
    fn from(error: StoreError) -> Self {
        LoadError::Store(error).into()
    }
}

/// What went wrong at the end of one session.
///
/// ```
/// use greenroom_actors::error::TeardownFailure;
/// use greenroom_session::id::SessionId;
/// let failure = TeardownFailure { session: SessionId::new("desk")?, code: "ACTIVATION_OVERDUE", reason: "it did not end in time".into() };
/// assert_eq!(failure.to_string(), "desk: it did not end in time (ACTIVATION_OVERDUE)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeardownFailure {
    /// The session.
    pub session: SessionId,
    /// Stable code: of the write that failed, `ACTIVATION_SETUP_RELEASE_FAILED`, `PANIC`, `ACTIVATION_FAILED`, or `ACTIVATION_OVERDUE` for an end that was given up.
    pub code: &'static str,
    /// What it was.
    pub reason: String,
}

impl fmt::Display for TeardownFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.session, self.reason, self.code)
    }
}

struct Listed<'a>(&'a [TeardownFailure]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, failure) in self.0.iter().enumerate() {
            write!(f, "{}{failure}", if number == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
