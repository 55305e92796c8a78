//! What a call gives.

use greenroom_session::limits::MAX_MESSAGE_BYTES;
use serde::Serialize;
use serde_json::Value;

use super::ToolError;

/// What a call gives.
///
/// ```
/// use greenroom::tool::ToolOutput;
/// assert_eq!(ToolOutput::text("sunny").text, "sunny");
/// let output = ToolOutput::json(&vec![1, 2])?;
/// assert_eq!((output.text.as_str(), output.value), ("[1,2]", Some(serde_json::json!([1, 2]))));
/// assert!(ToolOutput::text("done").concluding().concludes_turn); // the model is asked for nothing more
/// # Ok::<(), greenroom::tool::ToolError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolOutput {
    /// What the model sees.
    pub text: String,
    /// The same for programs, where there is more to it than a text.
    pub value: Option<Value>,
    /// Whether the turn is over with this step, whatever else waits.
    pub concludes_turn: bool,
}

impl ToolOutput {
    /// Gives a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), value: None, concludes_turn: false }
    }

    /// Gives a value, to the model as compact JSON.
    ///
    /// # Errors
    /// `INVALID_TOOL_OUTPUT` if it is nothing that JSON can hold.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, ToolError> {
        let value = serde_json::to_value(value).map_err(|error| invalid(error.to_string()))?;
        Ok(Self { text: value.to_string(), value: Some(value), concludes_turn: false })
    }

    /// Gives a value beside the text.
    #[must_use]
    pub fn value(mut self, value: Value) -> Self {
        self.value = Some(value);
        self
    }

    /// Ends the turn with this step.
    #[must_use]
    pub fn concluding(mut self) -> Self {
        self.concludes_turn = true;
        self
    }

    /// Checks that a log takes it.
    pub(super) fn checked(self) -> Result<Self, ToolError> {
        // A text of control characters takes six times its size in a log.
        let size = if self.text.len() * 6 < MAX_MESSAGE_BYTES { 0 } else { serde_json::to_string(&self.text).map_or(usize::MAX, |json| json.len()) };
        if size > MAX_MESSAGE_BYTES {
            return Err(invalid(format!("it takes {size} bytes in the log, the most is {MAX_MESSAGE_BYTES}")));
        }
        Ok(self)
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

/// Says that what a tool gave is no result.
pub(super) fn invalid(problem: impl std::fmt::Display) -> ToolError {
    ToolError::new("INVALID_TOOL_OUTPUT", format!("the tool gave no valid result: {problem}"))
}
