//! What can go wrong with a command.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use greenroom_actors::TurnError;
use thiserror::Error;

/// Why a command gave no answer.
///
/// Text that came from the command is escaped by the time it stands here, so that printing an
/// error cannot drive a terminal.
///
/// ```
/// use greenroom::command::{Answer, AnswerMode, CommandError};
/// let error = Answer::parse(br#"{"sya": "hello"}"#, AnswerMode::Json).unwrap_err();
/// assert!(matches!(error, CommandError::BadAnswer { .. }));
/// assert_eq!(error.code(), "COMMAND_OUTPUT");
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is no such program, or it cannot be executed.
    #[error("cannot run `{program}`: {reason}")]
    Missing {
        /// The program as it was named.
        program: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The command was killed because it ran too long.
    #[error("the command was still running after {timeout:?}{}", Quoted(stderr))]
    TimedOut {
        /// How long it was given.
        timeout: Duration,
        /// The end of its standard error.
        stderr: String,
    },
    /// An earlier run holds the lock, so this one was not started.
    #[error("an earlier run still holds {} after {waited:?}", lock.display())]
    StillRunning {
        /// The lock file.
        lock: PathBuf,
        /// How long this run waited for it.
        waited: Duration,
    },
    /// The command was killed because it wrote too much.
    #[error("the command wrote more than {limit_bytes} bytes to its standard output")]
    TooLarge {
        /// How much it may write.
        limit_bytes: usize,
    },
    /// The answer is not text.
    #[error("the answer is not UTF-8: the first bad byte is at offset {offset}")]
    NotUtf8 {
        /// Where the first bad byte stands, counted from 0.
        offset: usize,
    },
    /// The answer is text, but not an answer.
    #[error("the answer is not valid: {reason}")]
    BadAnswer {
        /// What is wrong, with line and column where there is one.
        reason: String,
    },
    /// The command ended by a signal or with a status other than 0.
    #[error("the command failed with {status}{}", Quoted(stderr))]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// The end of its standard error.
        stderr: String,
    },
    /// The caller cancelled the run, or the runtime is shutting down.
    #[error("the command was cancelled")]
    Cancelled,
    /// The operating system refused something.
    #[error("cannot {action}")]
    Io {
        /// What was tried.
        action: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl CommandError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "COMMAND_MISSING",
            Self::TimedOut { .. } | Self::StillRunning { .. } => "COMMAND_TIMEOUT",
            Self::TooLarge { .. } | Self::NotUtf8 { .. } | Self::BadAnswer { .. } => "COMMAND_OUTPUT",
            Self::Failed { .. } => "COMMAND_FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Io { .. } => "COMMAND_IO",
        }
    }

    /// Says what was tried when the system refused.
    pub(super) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}

impl From<CommandError> for TurnError {
    fn from(error: CommandError) -> Self {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::new(error.code(), message)
    }
}

/// The end of an error message: nothing, or a colon and what the command said.
struct Quoted<'a>(&'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let said = self.0.trim_end();
        if said.is_empty() {
            return Ok(());
        }
        write!(f, ": {said}")
    }
}
