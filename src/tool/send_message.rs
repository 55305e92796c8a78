//! Sending a child its next message.

use futures::future::BoxFuture;
use greenroom_actors::error::DeliverError;
use greenroom_session::id::{IdError, SessionId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Tool, ToolCall, ToolError, ToolOutput, schema_of};
use crate::model::ToolSpec;

/// `send_message`: sends a continuable child the message of its next turn.
///
/// Any number of delegation tools share it. It needs nothing but the runtime.
///
/// ```
/// use greenroom::{Delegate, Runtime, Turn, TurnEnd, tool::{SendMessageTool, Tools, run_call}};
/// # tokio_test::block_on(async {
/// let tools = Tools::default();
/// let own = tools.clone();
/// let runtime = Runtime::builder()
///     .closure("editor", move |turn: Turn| {
///         let tools = own.clone();
///         async move {
///             // The notice that the clerk has settled opens a turn of its own.
///             if turn.text() != "Go." {
///                 return Ok(TurnEnd::Completed);
///             }
///             let child = turn.delegate(Delegate::new("clerk", "a clerk", "one")).await?.child;
///             let arguments = serde_json::json!({"subagent_id": child, "message": "two"}).to_string();
///             let told = run_call(&tools, Some(&turn), "call-1", "send_message", &arguments).await.map_err(|error| greenroom::TurnError::new(error.code(), error.text()))?;
///             assert_eq!(told.text, format!("message queued as the next turn for subagent {child}"));
///             turn.say("sent")?;
///             Ok(TurnEnd::Completed)
///         }
///     })
///     .closure("clerk", |_: Turn| async { Ok(TurnEnd::Completed) })
///     .open("memory:")
///     .await?;
/// tools.add(&runtime.host(), SendMessageTool::new())?;
/// let root = runtime.root("editor", "a desk").await?;
/// root.send("Go.").await?;
/// root.quiescent().await?;
/// assert_eq!(runtime.last_answer(root.id()).await?.as_deref(), Some("sent"));
/// # runtime.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct SendMessageTool;

const NAME: &str = "send_message";
/// How a failure ends.
pub(crate) const NOT_DELIVERED: &str = "; the message was not delivered";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// What the subagent is to do next.
    message: String,
    /// The id of the subagent, as it was given when it was started or by a list.
    subagent_id: String,
}

impl SendMessageTool {
    /// Makes the tool.
    pub fn new() -> Self {
        Self
    }
}

impl Tool for SendMessageTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: NAME.into(),
            description: "Sends a message to a subagent that you have started and that takes further messages. The message becomes the next turn of the subagent: it waits for the \
                          turn that is under way, which it does not change, and brings a subagent back that has settled. No answer is returned here. If the call fails, the message \
                          was not delivered."
                .into(),
            schema: schema_of::<Arguments>(),
        }
    }

    fn is_repeatable(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let turn = call.turn(NAME)?;
            let Arguments { message, subagent_id } = call.parse()?;
            let child = SessionId::new(subagent_id.as_str()).map_err(|error| no_id(&subagent_id, &error, NOT_DELIVERED))?;
            let id = turn.send_message_as(&child, message, call.id).await.map_err(|error| not_delivered(&error, &child))?;
            Ok(ToolOutput::text(queued(&child)).value(json!({ "messageId": id })))
        })
    }
}

/// Says that a message has been accepted.
pub(crate) fn queued(child: &SessionId) -> String {
    format!("message queued as the next turn for subagent {child}")
}

/// Says that nobody can have what was given as an id, and what that means for what was asked.
pub(crate) fn no_id(given: &str, error: &IdError, then: &str) -> ToolError {
    let shown: String = given.chars().take(100).collect();
    ToolError::named("DeliverError", "NOT_RESUMABLE", format!("subagent {shown:?} is unavailable: {error}{then}"))
}

/// Says what a failure means for the message.
pub(crate) fn not_delivered(error: &DeliverError, child: &SessionId) -> ToolError {
    let message = match error {
        DeliverError::Write(error) if error.code() == "INDETERMINATE" => {
            return ToolError::named("DeliverError", error.code(), format!("it is not known whether the message was delivered: {error}"));
        }
        DeliverError::Busy { pending, limit } => format!("the inbox of subagent \"{child}\" is full, {pending} of {limit} messages are pending"),
        DeliverError::Write(error) => error.to_string(),
        other => other.to_string(),
    };
    ToolError::named("DeliverError", error.code(), format!("{message}{NOT_DELIVERED}"))
}
