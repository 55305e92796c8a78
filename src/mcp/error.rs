//! Why a server does not serve.

use greenroom_actors::host::RootError;
use greenroom_session::{id::SessionId, store::StoreError};
use thiserror::Error;

use crate::{agent::CastError, program::BindError, runtime::OpenError};

/// Why a server does not serve, or has ended otherwise than by its client's end.
///
/// ```
/// use greenroom::mcp::McpError;
/// let error = McpError::Signalled(15);
/// assert_eq!((error.code(), error.to_string().as_str()), ("SIGNALLED", "ended by signal 15; what is pending stays pending"));
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum McpError {
    /// A value of a variable is refused.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The program cannot be played.
    #[error(transparent)]
    Cast(#[from] CastError),
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The root could not be had.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The root exists and is played by an agent that is not there.
    #[error("root {root} is played by {agent:?}, which is no agent here")]
    AgentUnknown {
        /// The root.
        root: SessionId,
        /// Its agent.
        agent: String,
    },
    /// A signal ended the server. What is pending stays pending.
    #[error("ended by signal {0}; what is pending stays pending")]
    Signalled(u8),
}

impl McpError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Bind(error) => error.code(),
            Self::Cast(error) => error.code(),
            Self::Open(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Root(error) => error.code(),
            Self::AgentUnknown { .. } => "AGENT_UNKNOWN",
            Self::Signalled(_) => "SIGNALLED",
        }
    }
}
