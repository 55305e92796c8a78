//! Delegating to a child.

use std::fmt;

use futures::future::BoxFuture;
use greenroom_actors::{
    Delegate, Host, OneShotResult, OneShotRun, Turn,
    error::{RunError, StartError},
    provider::{Capabilities, FORK, SPAWN},
};
use greenroom_session::{
    descriptor::{Descriptor, Mode, ModelRoute, ToolFilter},
    event::TurnEnd,
    id::SessionId,
    text::label_from,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Tool, ToolCall, ToolError, ToolLoadError, ToolOutput, schema_of};
use crate::model::{MODEL_REFUSED, ToolSpec};

/// How a delegation tool delegates.
///
/// ```
/// use greenroom::{session::descriptor::Mode, tool::SubagentConfig};
/// let config = SubagentConfig { mode: Mode::Continuable, persona: Some("You doubt everything.".into()), ..SubagentConfig::default() };
/// assert_eq!((config.name.as_str(), config.provider.as_str(), config.max_depth, config.background), ("subagent", "spawn", Some(3), true));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SubagentConfig {
    /// The name of the tool. Each delegation tool has its own.
    pub name: String,
    /// Who prepares its children. While no provider of this name is registered the tool is not there.
    pub provider: String,
    /// The behaviour that plays its children; that of whoever calls if `None`.
    pub agent: Option<String>,
    /// What the behaviour of its children is given.
    pub params: Option<Value>,
    /// Whether a call may have its child run in the background.
    pub background: bool,
    /// How a child in the background lives. One that is waited for is always one-shot.
    pub mode: Mode,
    /// Who its children are to be.
    pub persona: Option<String>,
    /// Which tools they may use.
    pub tool_filter: Option<ToolFilter>,
    /// The deepest that they may be, below their root: 0 forbids every child, and `None` leaves it to the runtime.
    pub max_depth: Option<u32>,
    /// Their model route; that of whoever calls if `None`.
    pub model: Option<ModelRoute>,
}

impl Default for SubagentConfig {
    fn default() -> Self {
        Self {
            name: "subagent".into(),
            provider: SPAWN.into(),
            agent: None,
            params: None,
            background: true,
            mode: Mode::OneShot,
            persona: None,
            tool_filter: None,
            max_depth: Some(3),
            model: None,
        }
    }
}

/// `subagent`: delegates to a child and waits for its answer, or has it run in the background.
///
/// A child that is waited for is one-shot, and its last message is the result. Ending the turn by an interrupt or a cancel ends it, too; a turn that a crash or a shutdown cuts off
/// finds the same child again. A child in the background is one-shot, with its last message coming as a note when it settles, or continuable.
///
/// ```
/// use greenroom::{Runtime, Turn, TurnEnd, tool::{SubagentConfig, SubagentTool, Tools, run_call}};
/// # tokio_test::block_on(async {
/// let tools = Tools::default();
/// let own = tools.clone();
/// let runtime = Runtime::builder()
///     .closure("editor", move |turn: Turn| {
///         let tools = own.clone();
///         async move {
///             let arguments = r#"{"description": "echo a word", "prompt": "hello"}"#;
///             let answer = run_call(&tools, Some(&turn), "call-1", "subagent", arguments).await.map_err(|error| greenroom::TurnError::new(error.code(), error.text()))?;
///             turn.say(answer.text)?;
///             Ok(TurnEnd::Completed)
///         }
///     })
///     .closure("echo", |turn: Turn| async move {
///         turn.say(turn.text())?;
///         Ok(TurnEnd::Completed)
///     })
///     .open("memory:")
///     .await?;
/// tools.add(&runtime.host(), SubagentTool::new(SubagentConfig { agent: Some("echo".into()), ..SubagentConfig::default() }))?;
/// let root = runtime.root("editor", "a desk").await?;
/// root.send("Go.").await?;
/// root.quiescent().await?;
/// assert_eq!(runtime.last_answer(root.id()).await?.as_deref(), Some("hello"));
/// # runtime.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Default)]
pub struct SubagentTool {
    config: SubagentConfig,
    /// What its provider can do now. No host: that would keep the runtime whose behaviours have this tool.
    provider: Option<Box<dyn Fn() -> Option<Capabilities> + Send + Sync>>,
}

impl fmt::Debug for SubagentTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubagentTool").field("config", &self.config).finish_non_exhaustive()
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// What the subagent is for, in 3 to 5 words. It becomes the durable label of the subagent.
    description: String,
    /// The whole task. It is the first message of the subagent.
    prompt: String,
    /// Whether to go on at once instead of waiting until the subagent is done.
    #[serde(default)]
    #[schemars(with = "bool")]
    run_in_background: Option<bool>,
}

impl SubagentTool {
    /// Makes the tool.
    pub fn new(config: SubagentConfig) -> Self {
        Self { config, provider: None }
    }

    /// Returns what its provider can do; `None` while there is none of this name.
    fn capabilities(&self) -> Option<Capabilities> {
        match &self.provider {
            Some(now) => now(),
            None => Some(Capabilities { inherits: self.config.provider == FORK, ..Capabilities::all() }),
        }
    }

    /// Returns what this tool asks for and the provider cannot do.
    fn lacking(&self, can: Capabilities) -> Option<&'static str> {
        let SubagentConfig { background, mode, persona, tool_filter, max_depth, model, .. } = &self.config;
        let asked = [
            (true, can.one_shot, "one-shot children"),
            (*background && *mode == Mode::Continuable, can.continuable, "continuable children"),
            (persona.is_some(), can.persona, "a persona"),
            (tool_filter.is_some(), can.tool_filter, "a tool filter"),
            (max_depth.is_some(), can.depth_limit, "a depth limit"),
            (model.is_some(), can.model, "a model route"),
        ];
        asked.into_iter().find(|(asked, can, _)| *asked && !can).map(|(_, _, what)| what)
    }

    fn description(&self) -> String {
        let begins = match self.capabilities() {
            Some(Capabilities { inherits: true, .. }) => {
                "Starts a subagent, another agent that works on a task of its own. It begins with what was said here up to the last turn that has ended, and with your prompt."
            }
            _ => "Starts a subagent, another agent that works on a task of its own. It knows nothing of what was said here: your prompt is all that it has.",
        };
        let waits = "The call waits until the subagent is done and returns its final message.";
        let background = match (self.config.background, self.config.mode) {
            (false, _) => "",
            (true, Mode::OneShot) => {
                " With `run_in_background` it returns an id at once and you go on: the final message comes to you as a note when the subagent is done. It takes no further messages."
            }
            (true, Mode::Continuable) => {
                " With `run_in_background` it returns the id of the subagent at once and you go on: a note tells you when the subagent has nothing left to do. It keeps its history and takes \
                 further messages under its id."
            }
        };
        format!("{begins} {waits}{background}")
    }

    /// Describes the child of a call.
    fn delegate(&self, turn: &Turn, id: &str, description: &str, prompt: String) -> Delegate {
        let SubagentConfig { provider, agent, params, persona, tool_filter, max_depth, model, .. } = &self.config;
        let agent = agent.clone().unwrap_or_else(|| turn.agent_name());
        let mut delegate = Delegate::new(agent, label_from(description.trim()), prompt).provider(provider.as_str()).key(id);
        delegate.params.clone_from(params);
        delegate.persona.clone_from(persona);
        delegate.tool_filter.clone_from(tool_filter);
        delegate.max_depth = *max_depth;
        delegate.model.clone_from(model);
        delegate
    }

    async fn delegated(&self, call: ToolCall<'_>) -> Result<ToolOutput, ToolError> {
        let turn = call.turn(&self.config.name)?;
        let Arguments { description, prompt, run_in_background } = call.parse()?;
        let in_background = run_in_background.unwrap_or(false);
        if in_background && !self.config.background {
            return Err(ToolError::invalid_args("`/run_in_background` is not known"));
        }
        if description.trim().is_empty() {
            return Err(ToolError::invalid_args("`/description` must not be empty"));
        }
        // What is not accepted yet is given up with the turn; what is accepted is not.
        let agent = turn.agent().cancellable(turn.cancelled());
        let delegate = self.delegate(turn, call.id, &description, prompt);
        match (in_background, self.config.mode) {
            (false, _) => wait_for(turn, &agent.start(delegate).await.map_err(not_started)?).await,
            (true, Mode::OneShot) => {
                let run = agent.start(delegate.notice()).await.map_err(not_started)?;
                let text = format!("started background subagent task {}", run.id());
                Ok(ToolOutput::text(text).value(json!({"kind": "background", "taskId": run.id()})))
            }
            (true, Mode::Continuable) => {
                let child = agent.start_continuable(delegate).await.map_err(not_started)?.child;
                Ok(ToolOutput::text(format!("started subagent {child}")).value(json!({"kind": "continuable", "subagentId": child})))
            }
        }
    }
}

impl Tool for SubagentTool {
    fn spec(&self) -> ToolSpec {
        let mut schema = schema_of::<Arguments>();
        if let Some(flag) = schema.pointer_mut("/properties/run_in_background").and_then(Value::as_object_mut) {
            // What serde would put there is no value that the model may give.
            flag.remove("default");
        }
        if !self.config.background
            && let Some(properties) = schema.pointer_mut("/properties").and_then(Value::as_object_mut)
        {
            properties.remove("run_in_background");
        }
        ToolSpec { name: self.config.name.clone(), description: self.description(), schema }
    }

    fn is_repeatable(&self) -> bool {
        true
    }

    fn is_for(&self, _turn: Option<&Turn>) -> bool {
        self.capabilities().is_some_and(|can| self.lacking(can).is_none())
    }

    fn load(&mut self, host: &Host) -> Result<(), ToolLoadError> {
        let refused = |reason: String| ToolLoadError::Config { tool: self.config.name.clone(), reason };
        // Refused here what every call would be refused for.
        let mut child = Descriptor::continuable(self.config.provider.as_str(), "a child", self.config.agent.as_deref().unwrap_or("its caller's"));
        child.model.clone_from(&self.config.model);
        child.persona.clone_from(&self.config.persona);
        child.tool_filter.clone_from(&self.config.tool_filter);
        child.check_new().map_err(|error| refused(error.to_string()))?;
        if let Some(lacking) = host.provider(&self.config.provider).and_then(|can| self.lacking(can)) {
            let need = format!("a provider that does more: {:?} does not support {lacking}", self.config.provider);
            return Err(ToolLoadError::Needs { tool: self.config.name.clone(), need });
        }
        self.provider = Some(host.watch_provider(&self.config.provider));
        Ok(())
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(self.delegated(call))
    }
}

fn not_started(error: StartError) -> ToolError {
    match error {
        StartError::Cancelled => ToolError::aborted(),
        error => error.into(),
    }
}

/// Waits for a child, and sees to it that none goes on for which nobody waits any more.
async fn wait_for(turn: &Turn, run: &OneShotRun) -> Result<ToolOutput, ToolError> {
    let error = match run.result().await {
        Ok(result) => return judge(run.id(), result),
        // The turn is served again, and asks this child again.
        Err(RunError::Cancelled | RunError::Draining) if turn.is_cut_off() => return Err(ToolError::aborted()),
        Err(RunError::Cancelled) => ToolError::aborted(),
        Err(error) => error.into(),
    };
    match run.dispose().await {
        Ok(()) => Err(error),
        Err(left) => Err(ToolError::named(error.name(), error.code(), format!("{error}; subagent {} was not stopped: {left}", run.id()))),
    }
}

/// Says what a child has come to.
pub(crate) fn judge(child: &SessionId, result: OneShotResult) -> Result<ToolOutput, ToolError> {
    let OneShotResult { outcome, text } = result;
    let (code, became) = match outcome {
        TurnEnd::Completed => {
            let value = json!({"kind": "foreground", "runId": child, "output": [{"type": "text", "text": text}]});
            return Ok(ToolOutput::text(text).value(value));
        }
        TurnEnd::MaxTokens => ("SUBAGENT_TOKEN_LIMIT", "ran out of output tokens".to_owned()),
        TurnEnd::Aborted { .. } => ("SUBAGENT_CANCELLED", "was cancelled".to_owned()),
        TurnEnd::Error { code, message } if code == MODEL_REFUSED => ("SUBAGENT_DECLINED", format!("declined: {message}")),
        TurnEnd::Error { code, message } => ("SUBAGENT_FAILED", format!("failed with {code}: {message}")),
        other => ("SUBAGENT_ABNORMAL", format!("ended abnormally: {}", other.as_str())),
    };
    let said = if text.is_empty() { String::new() } else { format!("; it had said: {}", excerpt(&text)) };
    Err(ToolError::named("SubagentError", code, format!("subagent {child} {became}{said}")))
}

/// Most of a child's words that stand in an error, in characters.
const QUOTED_CHARS: usize = 2_000;

fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let mut quoted: String = chars.by_ref().take(QUOTED_CHARS).collect();
    if chars.next().is_some() {
        quoted.push('…');
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_end_is_told_from_the_others() {
        let child = SessionId::new("c").unwrap();
        let judged = |outcome: TurnEnd, text: &str| judge(&child, OneShotResult { outcome, text: text.into() });
        let done = judged(TurnEnd::Completed, "It rains.").unwrap();
        assert_eq!(done.text, "It rains.");
        assert_eq!(done.value.unwrap(), json!({"kind": "foreground", "runId": "c", "output": [{"type": "text", "text": "It rains."}]}));
        for (outcome, said, code, text) in [
            (TurnEnd::MaxTokens, "It", "SUBAGENT_TOKEN_LIMIT", "Error: subagent c ran out of output tokens; it had said: It"),
            (TurnEnd::Aborted { cause: "user".into() }, "", "SUBAGENT_CANCELLED", "Error: subagent c was cancelled"),
            (TurnEnd::error("NO_PAPER", "none"), "", "SUBAGENT_FAILED", "Error: subagent c failed with NO_PAPER: none"),
            (TurnEnd::error(MODEL_REFUSED, "not this"), "", "SUBAGENT_DECLINED", "Error: subagent c declined: not this"),
            (TurnEnd::Interrupted, "", "SUBAGENT_ABNORMAL", "Error: subagent c ended abnormally: interrupted"),
        ] {
            let error = judged(outcome, said).unwrap_err();
            assert_eq!((error.name(), error.code(), error.text().as_str()), ("SubagentError", code, text));
        }
        let long = judged(TurnEnd::MaxTokens, &"é".repeat(QUOTED_CHARS + 1)).unwrap_err();
        assert!(long.text().ends_with(&format!("{}…", "é".repeat(QUOTED_CHARS))));
    }
}
