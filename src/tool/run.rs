//! One call, from the text that a model gave to its result.

use std::{any::Any, panic::AssertUnwindSafe};

use futures::FutureExt as _;
use greenroom_actors::Turn;
use serde_json::{Map, Value};

use super::{ToolCall, ToolError, ToolOutput, Tools, check::check};

/// Runs one call: finds the tool, reads and checks the arguments, and contains whatever the tool does.
///
/// `arguments` is what the model wrote; nothing at all counts as `{}`, and what is not JSON is checked as the text that it is. A tool that is not there for the caller, or that
/// its session may not use, is unknown. The arguments are checked against the tool's schema as far as types, `required`, `properties`, `additionalProperties`, `items`, `enum`,
/// `const` and the bounds of numbers, texts and lists say something; what else a schema may ask for is left to the tool.
///
/// ```
/// use greenroom::tool::{Tools, run_call};
/// # tokio_test::block_on(async {
/// let error = run_call(&Tools::default(), None, "call-1", "fly", "{}").await.unwrap_err();
/// assert_eq!((error.code(), error.text().as_str()), ("UNKNOWN_TOOL", "Error: there is no tool named \"fly\"; there is none at all"));
/// # });
/// ```
///
/// # Errors
/// `UNKNOWN_TOOL`; `INVALID_ARGS`, naming the places; `TOOL_PANICKED`; `INVALID_TOOL_OUTPUT` for a result that no log takes; and what the tool fails with.
///
/// # Cancel safety
/// Whatever the tool has begun may be done all the same.
pub async fn run_call(tools: &Tools, turn: Option<&Turn>, id: &str, name: &str, arguments: &str) -> Result<ToolOutput, ToolError> {
    let Some(tool) = tools.find(turn, name) else { return Err(unknown(name, &tools.offered(turn))) };
    let arguments = parse(arguments);
    let body = async {
        check(&tool.spec().schema, &arguments).map_err(ToolError::invalid_args)?;
        tool.call(ToolCall { turn, id, arguments }).await
    };
    match AssertUnwindSafe(body).catch_unwind().await {
        Ok(result) => result?.checked(),
        Err(panic) => Err(panicked(name, &*panic)),
    }
}

/// Reads what a model gave as arguments.
pub(super) fn parse(arguments: &str) -> Value {
    if arguments.trim().is_empty() {
        return Value::Object(Map::new());
    }
    serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.to_owned()))
}

fn unknown(name: &str, offered: &[String]) -> ToolError {
    let offered = if offered.is_empty() { "there is none at all".to_owned() } else { format!("there are: {}", offered.join(", ")) };
    ToolError::new("UNKNOWN_TOOL", format!("there is no tool named {name:?}; {offered}"))
}

fn panicked(name: &str, panic: &(dyn Any + Send)) -> ToolError {
    let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(tool = name, panic = said, "a tool panicked");
    ToolError::new("TOOL_PANICKED", format!("the tool panicked: {}", said.unwrap_or("no reason was given")))
}
