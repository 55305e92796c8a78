//! Why an activation failed.

use std::sync::Arc;

use greenroom_session::{
    id::SessionId,
    store::{LoadError, StoreError},
};
use thiserror::Error;

use super::write::WriteError;

/// Why a session could not be activated. Its messages stay pending.
///
/// ```
/// use greenroom_actors::{error::ActivateError, host::RootError};
/// use greenroom_session::id::SessionId;
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let Err(RootError::Activate(error)) = host.resume(&SessionId::new("nobody")?).await else { panic!("there is no such root") };
/// assert!(matches!(error, ActivateError::NotFound(_)));
/// assert_eq!(error.code(), "SESSION_NOT_FOUND");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ActivateError {
    /// There is no such session.
    #[error("session {0} does not exist")]
    NotFound(SessionId),
    /// Its log names a behaviour that is not registered; no attempt is used.
    #[error("session {session} is played by {agent:?}, which is not registered")]
    AgentUnknown {
        /// The session.
        session: SessionId,
        /// The behaviour's name.
        agent: String,
    },
    /// Its log cannot be continued.
    #[error("session {session} cannot be resumed: {reason}")]
    NotResumable {
        /// The session.
        session: SessionId,
        /// Why.
        reason: String,
        /// Stable code.
        code: &'static str,
    },
    /// Another live process holds it.
    #[error("session {session} is held by another process ({owner})")]
    Held {
        /// The session.
        session: SessionId,
        /// Who holds it.
        owner: String,
    },
    /// A set-up contribution refused it; no attempt is used.
    #[error("session {session} could not be set up: {reason}")]
    Setup {
        /// The session.
        session: SessionId,
        /// Why.
        reason: String,
        /// The contribution's code.
        code: &'static str,
    },
    /// A set-up contribution was removed while the session was set up; it is started again without it.
    #[error("session {0} was being set up by a contribution that was removed")]
    SetupRevoked(SessionId),
    /// The start took too long.
    #[error("session {0} did not start in time")]
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

impl ActivateError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "SESSION_NOT_FOUND",
            Self::AgentUnknown { .. } => "AGENT_UNKNOWN",
            Self::NotResumable { code, .. } | Self::Setup { code, .. } => code,
            Self::SetupRevoked(_) => "ACTIVATION_SETUP_REVOKED",
            Self::Held { .. } => "SESSION_HELD",
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
