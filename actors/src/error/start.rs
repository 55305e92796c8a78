//! Why a start of a child failed.

use std::sync::Arc;

use greenroom_session::{
    descriptor::DescriptorError,
    id::SessionId,
    message::MessageError,
    store::{LoadError, Refused},
};
use thiserror::Error;

use super::write::WriteError;

/// Why a child was not started. Nothing of it exists.
///
/// ```
/// use greenroom_actors::{Delegate, error::StartError, host::NewRoot};
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
/// let error = root.agent().start_continuable(Delegate::new("nobody", "an echo", "one")).await.unwrap_err();
/// assert!(matches!(&error, StartError::AgentUnknown(name) if name == "nobody"));
/// assert_eq!(error.code(), "AGENT_UNKNOWN");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The caller is not a live agent any more.
    #[error("only an exact live parent may delegate: {0}")]
    Unauthorized(&'static str),
    /// The child would be too deep.
    #[error("subagent depth {depth} exceeds maxDepth {max_depth}")]
    Depth {
        /// The child's depth.
        depth: u32,
        /// The limit.
        max_depth: u32,
    },
    /// No behaviour of this name is registered.
    #[error("no agent is called {0:?}")]
    AgentUnknown(String),
    /// No provider of this name is registered, or it was removed while it prepared the child.
    #[error("no provider is called {0:?}")]
    NoProvider(String),
    /// The provider cannot do what was asked for. It was not asked.
    #[error("provider {provider:?} does not support {capability}")]
    UnsupportedCapability {
        /// The provider.
        provider: String,
        /// What it cannot do.
        capability: &'static str,
    },
    /// The provider failed, panicked, took too long, or handed over what no child can begin with.
    #[error("provider {provider:?} failed: {reason}")]
    Provider {
        /// The provider.
        provider: String,
        /// Its code.
        code: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The descriptor breaks a rule.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// A sibling has this alias.
    #[error("alias {0:?} is taken")]
    AliasTaken(String),
    /// The first message cannot be.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// Another session has the id that was reserved for the child, or it was created by another delegation.
    #[error("session {0} already exists")]
    Exists(SessionId),
    /// The runtime is shutting down, or what is below the parent, or a session above it, is drained.
    #[error("draining: no new work is accepted")]
    Draining,
    /// The end of the parent's epoch is under way. Its next epoch may start children.
    #[error("the parent is being disposed")]
    Closing,
    /// Whoever asked has given up before anything was accepted.
    #[error("cancelled")]
    Cancelled,
    /// What is stored under the child's id could not be read.
    #[error("it cannot be read whether the child exists: {0}")]
    Read(Arc<LoadError>),
    /// The store failed.
    #[error("not started: {0}")]
    Write(WriteError),
}

impl StartError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unauthorized(_) => "UNAUTHORIZED",
            Self::Depth { .. } => "DEPTH_EXCEEDED",
            Self::AgentUnknown(_) => "AGENT_UNKNOWN",
            Self::NoProvider(_) => "NO_PROVIDER",
            Self::UnsupportedCapability { .. } => "UNSUPPORTED_CAPABILITY",
            Self::Provider { code, .. } => code,
            Self::Descriptor(DescriptorError::Label(error)) => error.code(),
            Self::Descriptor(error) => error.code(),
            Self::AliasTaken(_) => "ALIAS_TAKEN",
            Self::Message(error) => error.code(),
            Self::Exists(_) => "DUPLICATE_CHILD",
            Self::Draining => "DRAINING",
            Self::Closing => "ACTIVATION_CLOSING",
            Self::Cancelled => "CANCELLED",
            Self::Read(error) => error.code(),
            Self::Write(error) => error.code(),
        }
    }
}

impl From<WriteError> for StartError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Refused(Refused::Exists(id)) => Self::Exists(id),
            WriteError::Refused(Refused::AliasTaken(alias)) => Self::AliasTaken(alias),
            other => Self::Write(other),
        }
    }
}
