//! Command agents: any program, run once per turn.

use std::{borrow::Cow, sync::Arc};

use futures::future::BoxFuture;
use greenroom_actors::{Behavior, Delegate, Turn, TurnEnd, TurnError};
use greenroom_session::{id::SessionId, limits::MAX_MESSAGE_BYTES, text::label_from};
use serde_json::Value;

use super::{Stage, request, voice::Voice};
use crate::{
    command::{self, Answer, AnswerMode, CommandSpec, End},
    program::{self, AnswerFormat, Template},
};

/// Runs a program per turn: one JSON object in, one answer out.
///
/// A turn has one step. The answer is recorded before its effects; a turn that runs again after a crash replays a recorded answer and does not run
/// the command. The effects come in this order: memo, delegates, messages, report, what is said.
///
/// A turn that notes opened runs the command too, with `message` null, so that a command can go on when its children have reported. With
/// `answer = "text"` it does not: such a command starts no children, and its output would pass for an answer to nobody's question.
///
/// `{params.NAME}` in its words and its environment is what the session was given, and empty if it was not given that.
///
/// ```
/// use std::path::Path;
/// use greenroom::{program::Program, run::{News, RunOptions, run}};
/// # tokio_test::block_on(async {
/// let text = r#"
/// run = { root = "clerk", prompt = "Begin." }
/// agents.clerk = { behavior = "command", command = ["sh", "-c", "echo all is well"], answer = "text" }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/"))?;
/// let report = run(&program, &RunOptions::new("memory:".parse()?, "/"), &|_: News<'_>| {}).await?;
/// assert_eq!(report.answer.as_deref(), Some("all is well"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct CommandAgent {
    spec: Arc<program::CommandAgent>,
    stage: Arc<Stage>,
}

impl CommandAgent {
    /// Makes one from its part of a program.
    pub fn new(spec: Arc<program::CommandAgent>, stage: Arc<Stage>) -> Self {
        Self { spec, stage }
    }

    fn mode(&self) -> AnswerMode {
        match self.spec.answer {
            AnswerFormat::Text => AnswerMode::Text,
            AnswerFormat::Json => AnswerMode::Json,
        }
    }

    async fn serve(&self, turn: &Turn) -> Result<TurnEnd, TurnError> {
        if turn.message().is_none() && self.mode() == AnswerMode::Text {
            return Ok(TurnEnd::Completed);
        }
        let mut voice = Voice::new(turn);
        turn.step().await?;
        let answer = match turn.answer() {
            Some(recorded) => Answer::parse(recorded.as_bytes(), self.mode())?,
            None => self.run(turn).await?,
        };
        self.carry_out(turn, &mut voice, answer).await
    }

    /// Runs the command and records what it answered.
    async fn run(&self, turn: &Turn) -> Result<Answer, TurnError> {
        let input = request::request(turn, &self.stage.bindings.values).await?;
        let spec = self.command(turn);
        let cancel = turn.cancelled();
        let lock = self.stage.guards.lock_of(turn.session(), turn.epoch());
        // Who was overtaken while it waited leaves the message to whoever serves it now.
        let held = command::take_turn(&lock, spec.timeout, &cancel, || turn.flush()).await?;
        let output = command::run_held(&spec, &input, held, cancel).await?;
        let answer = Answer::parse(&output.stdout, self.mode())?;
        let text = String::from_utf8(output.stdout).map_err(|error| TurnError::new("COMMAND_OUTPUT", error.to_string()))?;
        // A text of control characters takes six times its size in a log.
        let size = serde_json::to_string(&text).map_or(usize::MAX, |json| json.len());
        if size > MAX_MESSAGE_BYTES {
            return Err(TurnError::new("COMMAND_OUTPUT", format!("the answer takes {size} bytes in the log, the most is {MAX_MESSAGE_BYTES}")));
        }
        turn.record_answer(text).await?;
        Ok(answer)
    }

    fn command(&self, turn: &Turn) -> CommandSpec {
        let params = turn.params();
        let lookup = |name: &str| match name.strip_prefix("params.") {
            Some(path) => Some(Cow::Owned(param(params.as_ref(), path).unwrap_or_default())),
            None => self.stage.bindings.get(name).map(Cow::Borrowed),
        };
        let render = |template: &Template| template.render(&lookup);
        let mut spec = CommandSpec::new(self.spec.command.iter().map(render), &self.stage.base_dir, self.spec.timeout);
        spec.env = self.spec.env.iter().map(|(name, value)| (name.clone(), render(value))).collect();
        spec.env.extend(request::variables(turn));
        spec.env_pass.clone_from(&self.spec.env_pass);
        spec
    }

    async fn carry_out(&self, turn: &Turn, voice: &mut Voice, answer: Answer) -> Result<TurnEnd, TurnError> {
        if let Some(memo) = answer.memo {
            turn.memo(memo)?;
        }
        for wanted in answer.delegate {
            let mut delegate = Delegate::new(wanted.agent, label_from(&wanted.description), wanted.prompt);
            delegate.alias = wanted.alias;
            if !wanted.params.is_empty() {
                delegate.params = Some(Value::Object(wanted.params));
            }
            if let Some(provider) = wanted.provider {
                delegate.provider = provider;
            }
            turn.delegate(delegate).await?;
        }
        for outgoing in answer.send {
            let child = child(turn, &outgoing.to).await?;
            turn.send_message(&child, outgoing.message).await?;
        }
        // In text mode every answer is a report too, but a root has nobody to report to.
        if let Some(report) = answer.report
            && (self.mode() == AnswerMode::Json || turn.parent().is_some())
        {
            turn.report(report, false).await?;
        }
        if let Some(text) = answer.say {
            voice.say(turn, text)?;
        }
        match answer.end {
            Some(End::Failed) => Err(TurnError::new("COMMAND_FAILED", "the command said that its turn failed")),
            Some(End::Completed) | None => Ok(TurnEnd::Completed),
        }
    }
}

impl Behavior for CommandAgent {
    fn turn(&mut self, turn: Turn) -> BoxFuture<'_, Result<TurnEnd, TurnError>> {
        Box::pin(async move { self.serve(&turn).await })
    }
}

/// Finds a child by its alias, else takes the name for an id.
pub(super) async fn child(turn: &Turn, name: &str) -> Result<SessionId, TurnError> {
    if let Some(child) = turn.child_by_alias(name).await? {
        return Ok(child);
    }
    SessionId::new(name).map_err(|error| TurnError::new("NOT_RESUMABLE", format!("{name:?} names no child: {error}")))
}

/// Returns a value in nested params, a string as it is and everything else as JSON.
pub(super) fn param(params: Option<&Value>, path: &str) -> Option<String> {
    let value = path.split('.').try_fold(params?, |value, key| value.get(key))?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}
