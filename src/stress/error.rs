//! Why a stress run came to no report.

use std::io;

use greenroom_actors::{
    error::{ControlError, DeliverError},
    host::RootError,
};
use greenroom_session::store::StoreError;
use thiserror::Error;

use crate::runtime::OpenError;

/// Why a stress run came to no report. What the audit finds is no error but in the report.
///
/// ```
/// use std::time::Duration;
/// use greenroom::stress::{Kills, Progress, StressError, StressOptions, stress};
/// # tokio_test::block_on(async {
/// let mut options = StressOptions::new("memory:".parse()?);
/// options.kills = Some(Kills { every: Duration::from_millis(50)..=Duration::from_millis(200), until: None, worker: vec!["my-harness".into()] });
/// let error = stress(&options, &|_: Progress| {}).await.unwrap_err();
/// assert!(matches!(error, StressError::NotDurable)); // it would end with its first worker
/// assert_eq!(error.code(), "STORE_UNSUPPORTED");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StressError {
    /// The numbers make no run.
    #[error("{0}")]
    Options(&'static str),
    /// Workers are to be killed, and the store would end with them.
    #[error("a `memory:` store ends with the process that is killed")]
    NotDurable,
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The root could not be opened.
    #[error(transparent)]
    Root(#[from] RootError),
    /// A message was refused, and not because the inbox was full.
    #[error("message {message} was not accepted: {error}")]
    Send {
        /// The message.
        message: String,
        /// Why.
        #[source]
        error: DeliverError,
    },
    /// What a sender asked after a message was not answered.
    #[error("what was asked after message {message} was not answered: {error}")]
    Ask {
        /// The message.
        message: String,
        /// Why.
        #[source]
        error: ControlError,
    },
    /// The agents that are to be sent to were not all started.
    #[error("agent {0} of the plan was not started")]
    NotLaidOut(u32),
    /// A worker and its supervisor could not speak to each other.
    #[error("the worker's pipe failed: {0}")]
    Pipe(#[from] io::Error),
    /// A worker ended by itself before it was done.
    #[error("the worker ended by itself: {0}")]
    Worker(String),
    /// The supervisor of this worker is gone.
    #[error("the supervisor of this worker is gone")]
    Orphaned,
    /// A signal ended the run.
    #[error("ended by signal {0}")]
    Signalled(u8),
}

impl StressError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Options(_) => "USAGE",
            Self::NotDurable => "STORE_UNSUPPORTED",
            Self::Open(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Root(error) => error.code(),
            Self::Send { error, .. } => error.code(),
            Self::Ask { error, .. } => error.code(),
            Self::NotLaidOut(_) | Self::Pipe(_) | Self::Worker(_) | Self::Orphaned => "STRESS_FAILED",
            Self::Signalled(_) => "SIGNALLED",
        }
    }
}
