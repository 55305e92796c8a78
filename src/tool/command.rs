//! Commands as tools.

use std::{path::PathBuf, sync::Arc};

use futures::future::BoxFuture;
use greenroom_actors::TurnError;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Tool, ToolCall, ToolError, ToolMode, ToolOutput, output::invalid};
use crate::{
    agent::Guards,
    command::{self, AnswerMode, CommandError, CommandOutput, CommandSpec},
    model::ToolSpec,
};

/// A command as a tool: the arguments are its standard input, one JSON object, and its standard output is what the model sees.
///
/// It runs within the bounds of its [`CommandSpec`], with `PATH`, `HOME`, `LANG` and what the spec names as its environment, and with `GREENROOM_SESSION` and `GREENROOM_CALL`,
/// the ids of the session and of the call. Each call has a lock of its own among the guards: a crash ends the command, and where the call is repeated the earlier run is gone before.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use greenroom::{Runtime, agent::Guards, command::CommandSpec, tool::{CommandTool, Tools, run_call}};
/// use serde_json::json;
/// # tokio_test::block_on(async {
/// # let runtime = Runtime::builder().open("memory:").await?;
/// let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": false});
/// let count = CommandSpec::new(["sh", "-c", "tr -dc e | wc -c"], "/", Duration::from_secs(30));
/// let tools = Tools::default();
/// tools.add(&runtime.host(), CommandTool::new("count_e", "Counts the letter e.", schema, count, Arc::new(Guards::temporary())))?;
/// assert_eq!(run_call(&tools, None, "call-1", "count_e", r#"{"text": "here"}"#).await?.text.trim(), "3"); // one is in the name of the argument
/// # runtime.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct CommandTool {
    spec: ToolSpec,
    command: CommandSpec,
    guards: Arc<Guards>,
    output: AnswerMode,
    mode: ToolMode,
    repeatable: bool,
}

impl CommandTool {
    /// Makes a tool of a command whose output is text. `schema` is a JSON schema of its arguments, an object.
    pub fn new(name: impl Into<String>, description: impl Into<String>, schema: Value, command: CommandSpec, guards: Arc<Guards>) -> Self {
        let spec = ToolSpec { name: name.into(), description: description.into(), schema };
        Self { spec, command, guards, output: AnswerMode::Text, mode: ToolMode::Parallel, repeatable: false }
    }

    /// Takes its output for JSON: what is none is an error. A text is given to the model as it is, everything else as compact JSON.
    #[must_use]
    pub fn json(mut self) -> Self {
        self.output = AnswerMode::Json;
        self
    }

    /// Says that a call may be made again when a crash has left it unknown what it has done.
    #[must_use]
    pub fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// Says that a call runs alone.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.mode = ToolMode::Exclusive;
        self
    }

    async fn run(&self, call: ToolCall<'_>) -> Result<CommandOutput, TurnError> {
        let input = call.arguments.to_string();
        let cancel = call.cancelled();
        let mut spec = self.command.clone();
        // An environment takes no NUL.
        spec.env.insert("GREENROOM_CALL".into(), call.id.replace('\0', "\u{fffd}"));
        let Some(turn) = call.turn else {
            return Ok(command::run(&spec, input.as_bytes(), &self.alone(), cancel).await?);
        };
        spec.env.insert("GREENROOM_SESSION".into(), turn.session().to_string());
        let lock = self.guards.lock_of_call(turn.session(), turn.epoch(), call.id);
        // Who was overtaken while it waited leaves the call to whoever serves the message now.
        let held = command::take_turn(&lock, spec.timeout, &cancel, || turn.flush()).await?;
        Ok(command::run_held(&spec, input.as_bytes(), held, cancel).await?)
    }

    /// Returns a lock that nobody else has.
    fn alone(&self) -> PathBuf {
        self.guards.folder().join(format!("+{}.0.lock", Uuid::new_v4()))
    }

    fn read(&self, output: CommandOutput) -> Result<ToolOutput, ToolError> {
        let text = String::from_utf8(output.stdout)
            .map_err(|error| invalid(format!("it is not UTF-8: the first bad byte is at offset {}", error.utf8_error().valid_up_to())))?;
        if self.output == AnswerMode::Text {
            return Ok(ToolOutput::text(text.trim_end_matches(['\n', '\r'])));
        }
        match serde_json::from_str(&text).map_err(|error| invalid(format!("it is not JSON: {error}")))? {
            Value::String(text) => Ok(ToolOutput::text(text.as_str()).value(json!(text))),
            value => ToolOutput::json(&value),
        }
    }
}

impl Tool for CommandTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn mode(&self, _arguments: &Value) -> ToolMode {
        self.mode
    }

    fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let output = self.run(call).await.map_err(failed)?;
            self.read(output)
        })
    }
}

/// Says in the words of tools why a command gave nothing.
fn failed(error: TurnError) -> ToolError {
    let too_large = CommandError::TooLarge { limit_bytes: 0 };
    match error.code.as_str() {
        "CANCELLED" => ToolError::aborted(),
        code if code == too_large.code() => invalid(error.message),
        _ => error.into(),
    }
}
