//! Why a call failed.

use greenroom_actors::{
    TurnError,
    error::{DeliverError, DisposeError, ListError, RunError, StartError},
};

/// Why a call failed: what the model is told, and what the log says of it.
///
/// The errors of a turn's own operations become one by `?`, under their own code.
///
/// ```
/// use greenroom::tool::ToolError;
/// let error = ToolError::new("NO_CITY", "there is no city of this name");
/// assert_eq!((error.code(), error.name()), ("NO_CITY", "ToolError"));
/// assert_eq!(error.text(), "Error: there is no city of this name"); // what the model sees
/// assert_eq!(error.to_string(), "there is no city of this name");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    name: &'static str,
    code: String,
    message: String,
}

impl ToolError {
    /// Makes an error; the code is stable and `UPPER_SNAKE`.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { name: "ToolError", code: code.into(), message: message.into() }
    }

    pub(crate) fn named(name: &'static str, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { name, ..Self::new(code, message) }
    }

    pub(crate) fn invalid_args(problem: impl std::fmt::Display) -> Self {
        Self::new("INVALID_ARGS", format!("invalid arguments: {problem}"))
    }

    /// Says that a call was given up because its turn was cancelled: `ABORTED`.
    ///
    /// Where the message is served again, as after a shutdown, this is no result: a call that may be repeated is made again, and of any other the model is told that nobody
    /// knows what it has done.
    pub fn aborted() -> Self {
        Self::new(ABORTED, "the turn was cancelled")
    }

    /// Tells whether the call was given up because its turn was cancelled.
    pub fn is_aborted(&self) -> bool {
        self.code == ABORTED
    }

    /// Returns the kind of error, as the log has it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the stable code.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Returns what the model sees.
    pub fn text(&self) -> String {
        format!("Error: {}", self.message)
    }
}

/// The code of a call that was given up because its turn was cancelled.
const ABORTED: &str = "ABORTED";

macro_rules! into_tool_error {
    ($($error:ident),*) => { $(
        impl From<$error> for ToolError {
            fn from(error: $error) -> Self {
                Self::named(stringify!($error), error.code(), error.to_string())
            }
        }
    )* };
}

into_tool_error!(StartError, DeliverError, ListError, RunError, DisposeError);

impl From<TurnError> for ToolError {
    fn from(error: TurnError) -> Self {
        Self::named("TurnError", error.code, error.message)
    }
}
