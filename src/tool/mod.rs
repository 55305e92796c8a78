//! Tools: what a model may call while it works on a message.
//!
//! A [`Tool`] says what the model is told of it ([`Tool::spec`]) and does what is asked ([`Tool::call`]). [`Tools`] holds those of one kind of agent: it is shared and live, so
//! that what is added or removed counts from the next look on. [`run_call`] is one call from the model's text to its result, whatever the tool does.
//!
//! Four tools belong to the runtime, each loaded on its own: [`SubagentTool`] delegates, [`SendMessageTool`] sends a child its next message, [`ListAgentsTool`] lists the
//! children, and [`ReportTool`] reports to the parent. Tools of one's own are functions ([`function`]) or commands (`CommandTool`, with the feature `program`).
//!
//! # What happens once
//!
//! What a tool of the runtime does to another session is named by the call's id: the same call again, by a turn that a crash has cut off, is the same acceptance. So these
//! four may be repeated. A tool of one's own says so by [`Tool::is_repeatable`]; one that does not is not called again where it is unknown what it has done.

mod check;
#[cfg(feature = "program")]
mod command;
mod error;
mod function;
mod list_agents;
mod load_error;
mod output;
mod registry;
mod report;
mod run;
mod schema;
mod send_message;
mod subagent;

use futures::future::BoxFuture;
use greenroom_actors::{Host, Turn};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::model::ToolSpec;

#[cfg(feature = "program")]
pub use command::CommandTool;
pub use error::ToolError;
pub use function::{Caller, FunctionTool, function};
pub use list_agents::ListAgentsTool;
pub use load_error::ToolLoadError;
pub use output::ToolOutput;
pub use registry::Tools;
pub use report::ReportTool;
pub use run::run_call;
pub use schema::schema_of;
pub use send_message::SendMessageTool;
pub use subagent::{SubagentConfig, SubagentTool};
#[cfg(feature = "mcp")]
pub(crate) use {
    check::check,
    list_agents::render,
    send_message::{NOT_DELIVERED, no_id, not_delivered, queued},
    subagent::judge,
};

/// What a model may call.
///
/// Most tools need not be written as this: see [`function`].
///
/// ```
/// use futures::future::BoxFuture;
/// use greenroom::{model::ToolSpec, tool::{Tool, ToolCall, ToolError, ToolOutput, Tools, run_call}};
/// use serde_json::json;
/// struct Echo;
/// impl Tool for Echo {
///     fn spec(&self) -> ToolSpec {
///         let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": false});
///         ToolSpec { name: "echo".into(), description: "Repeats a text.".into(), schema }
///     }
///     fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
///         Box::pin(async move { Ok(ToolOutput::text(call.arguments["text"].as_str().unwrap_or_default())) })
///     }
/// }
/// # tokio_test::block_on(async {
/// # let runtime = greenroom::Runtime::builder().open("memory:").await?;
/// let tools = Tools::default();
/// tools.add(&runtime.host(), Echo)?;
/// assert_eq!(run_call(&tools, None, "call-1", "echo", r#"{"text": "hello"}"#).await?.text, "hello");
/// # runtime.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub trait Tool: Send + Sync + 'static {
    /// Returns what the model is told of it. The name stays the same for as long as the tool is loaded.
    fn spec(&self) -> ToolSpec;

    /// Returns whether a call may run beside others. Asked right before the call.
    fn mode(&self, _arguments: &Value) -> ToolMode {
        ToolMode::Parallel
    }

    /// Tells whether a call may be made again when a crash has left it unknown what it has done.
    fn is_repeatable(&self) -> bool {
        false
    }

    /// Tells whether it is there for this turn, or for a caller that is no agent (`None`). Where it is not, it is as if it were not loaded.
    fn is_for(&self, _turn: Option<&Turn>) -> bool {
        true
    }

    /// Tells whether it stays when a child is allowed certain tools only and this is none of them.
    fn outlives_allow_list(&self) -> bool {
        false
    }

    /// Looks for what it needs, once, when it is added.
    ///
    /// # Errors
    /// [`ToolLoadError`] keeps it out.
    fn load(&mut self, _host: &Host) -> Result<(), ToolLoadError> {
        Ok(())
    }

    /// Does what is asked. The arguments fit the schema as far as that was checked: see [`run_call`].
    ///
    /// # Errors
    /// [`ToolError`] is what the model is told.
    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}

/// Whether a call may run beside others.
///
/// ```
/// use greenroom::tool::{Tool, ToolMode, ToolOutput, function};
/// let stamp = function("stamp", "Stamps the form on the desk.", |_: serde_json::Map<String, serde_json::Value>, _| async { Ok(ToolOutput::text("stamped")) });
/// assert_eq!(stamp.mode(&serde_json::json!({})), ToolMode::Parallel);
/// assert_eq!(stamp.exclusive().mode(&serde_json::json!({})), ToolMode::Exclusive);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolMode {
    /// It may.
    #[default]
    Parallel,
    /// It runs alone: whatever was asked for before it ends first, and whatever comes after it begins later.
    Exclusive,
}

/// One call of a tool.
///
/// ```
/// use greenroom::tool::ToolCall;
/// use serde_json::json;
/// #[derive(serde::Deserialize)]
/// struct Arguments {
///     text: String,
/// }
/// let call = ToolCall { turn: None, id: "call-1", arguments: json!({"text": "hello"}) };
/// assert_eq!(call.parse::<Arguments>()?.text, "hello");
/// assert_eq!(call.turn("echo").unwrap_err().code(), "UNAUTHORIZED"); // nobody's turn
/// # Ok::<(), greenroom::tool::ToolError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ToolCall<'a> {
    /// The turn that calls; `None` for a caller that is no agent.
    pub turn: Option<&'a Turn>,
    /// The call's id: unique in the session, and the same when the call is repeated.
    pub id: &'a str,
    /// What was asked for.
    pub arguments: Value,
}

impl<'a> ToolCall<'a> {
    /// Returns the turn that calls.
    ///
    /// # Errors
    /// `UNAUTHORIZED` if no agent calls.
    pub fn turn(&self, tool: &str) -> Result<&'a Turn, ToolError> {
        self.turn.ok_or_else(|| ToolError::new("UNAUTHORIZED", format!("`{tool}` requires a calling agent")))
    }

    /// Reads the arguments.
    ///
    /// # Errors
    /// `INVALID_ARGS` if they are not of this type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        T::deserialize(&self.arguments).map_err(|error| ToolError::invalid_args(error.to_string()))
    }

    /// Returns a token that is cancelled with the turn; never, if no agent calls.
    pub fn cancelled(&self) -> CancellationToken {
        self.turn.map_or_else(CancellationToken::new, Turn::cancelled)
    }
}
