//! Why a run came to no report.

use std::time::Duration;

use greenroom_actors::{
    error::{DeliverError, QueryError},
    host::RootError,
};
use greenroom_session::{
    id::SessionId,
    store::{LoadError, StoreError},
};
use thiserror::Error;

use crate::{agent::CastError, program::BindError, runtime::OpenError};

/// Why a run came to no report.
///
/// ```
/// use std::path::Path;
/// use greenroom::{program::Program, run::{News, RunError, RunOptions, run}};
/// # tokio_test::block_on(async {
/// let text = r#"
/// run = { root = "editor" }
/// agents.editor = { behavior = "script", turns = [] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let error = run(&program, &RunOptions::new("memory:".parse()?, "/"), &|_: News<'_>| {}).await.unwrap_err();
/// assert!(matches!(error, RunError::NoPrompt));
/// assert_eq!(error.code(), "PROMPT_MISSING");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// A `--set` is refused.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A variable is to have another value than the root was opened with.
    #[error("the root was opened with {name} = {stored:?}, which cannot become {asked:?}")]
    VarFixed {
        /// The variable.
        name: String,
        /// Its value.
        stored: String,
        /// The value that was asked for.
        asked: String,
    },
    /// The program cannot be played.
    #[error(transparent)]
    Cast(#[from] CastError),
    /// The program does not have the agent that plays the root.
    #[error("root {root} is played by {agent:?}, which {file} does not have")]
    AgentUnknown {
        /// The root.
        root: SessionId,
        /// Its agent.
        agent: String,
        /// The program file.
        file: String,
    },
    /// A seed was given to a program whose agents are not deterministic.
    #[error("a seed needs scripted agents alone, and {agent:?} is none")]
    SeedRefused {
        /// The first agent that is no script.
        agent: String,
    },
    /// A seed was given outside of the runtime that can keep its promise.
    #[error("a seed needs the single-threaded runtime of `run::seeded_runtime`")]
    SeedUnavailable,
    /// The root was opened with another seed, or without one.
    #[error("the root was opened with seed {stored:?}, not with {asked}")]
    SeedFixed {
        /// Its seed.
        stored: Option<u64>,
        /// What was asked for.
        asked: u64,
    },
    /// There is nothing to ask the root.
    #[error("there is no prompt: neither the program nor the call has one")]
    NoPrompt,
    /// There is no such root.
    #[error("session {0} does not exist")]
    NotFound(SessionId),
    /// The session is a child.
    #[error("session {0} is no root: it has a parent")]
    NotARoot(SessionId),
    /// The root was imported and has not been activated.
    #[error("session {0} was imported and waits to be activated")]
    NotActivated(SessionId),
    /// The root could not be opened.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The prompt was not accepted.
    #[error("the prompt was not accepted: {0}")]
    Prompt(#[source] DeliverError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The root's log cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The root's log cannot be read.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The run took too long. What is pending stays pending.
    #[error("not done after {0:?}; what is pending stays pending")]
    TimedOut(Duration),
    /// A signal ended the run. What is pending stays pending.
    #[error("ended by signal {0}; what is pending stays pending")]
    Signalled(u8),
}

impl RunError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Bind(error) => error.code(),
            Self::VarFixed { .. } | Self::SeedFixed { .. } => "VARIABLE_FIXED",
            Self::Cast(error) => error.code(),
            Self::AgentUnknown { .. } => "AGENT_UNKNOWN",
            Self::SeedRefused { .. } | Self::SeedUnavailable => "SEED_UNAVAILABLE",
            Self::NoPrompt => "PROMPT_MISSING",
            Self::NotFound(_) => "SESSION_NOT_FOUND",
            Self::NotARoot(_) => "NOT_A_ROOT",
            Self::NotActivated(_) => "NOT_ACTIVATED",
            Self::Root(error) => error.code(),
            Self::Prompt(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Open(error) => error.code(),
            Self::Load(error) => error.code(),
            Self::Query(error) => error.code(),
            Self::TimedOut(_) => "TIMED_OUT",
            Self::Signalled(_) => "SIGNALLED",
        }
    }
}
