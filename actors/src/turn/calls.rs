//! What a model says in a turn, and the tool calls that it asks for.
//!
//! The order is: the answer is durable, then its calls are, each before its body runs; results come in the order of the calls, and are durable with the next step.

use greenroom_session::{
    codec::check_event,
    event::{Body, Role, SurfaceMessage, SurfaceOp},
    id::{MessageId, Seq},
    message::{Block, Source},
    surface::StandIn,
};
use serde_json::{Value, json};

use super::Turn;
use crate::{
    behavior::TurnError,
    log::{EVENT_REFUSED, NotPut},
    occurrence::{Chunk, Occurrence},
};

/// A whole answer of a model.
///
/// ```
/// use greenroom_actors::turn::Spoken;
/// use greenroom_session::message::Block;
/// let spoken = Spoken::new("local", "small", vec![Block::text("Good morning.")]).stop("end");
/// assert_eq!((spoken.provider.as_str(), spoken.stop.as_deref()), ("local", Some("end")));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Spoken {
    /// The provider of the model.
    pub provider: String,
    /// The model.
    pub model: String,
    /// What it said, thought and asked for, in order. May be empty.
    pub content: Vec<Block>,
    /// What it cost in tokens.
    pub usage: Option<Value>,
    /// Why it stopped.
    pub stop: Option<String>,
}

impl Spoken {
    /// Makes an answer.
    pub fn new(provider: impl Into<String>, model: impl Into<String>, content: Vec<Block>) -> Self {
        Self { provider: provider.into(), model: model.into(), content, usage: None, stop: None }
    }

    /// Says what it cost.
    #[must_use]
    pub fn usage(mut self, usage: Value) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Says why it ended.
    #[must_use]
    pub fn stop(mut self, stop: impl Into<String>) -> Self {
        self.stop = Some(stop.into());
        self
    }
}

/// What a tool call came to.
///
/// ```
/// use greenroom_actors::turn::CallResult;
/// let failed = CallResult::failed("Error: no such city", "ToolError", "INVALID_ARGS");
/// assert!(failed.is_error && !CallResult::done("sunny").is_error);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResult {
    /// What the model sees.
    pub text: String,
    /// Whether it failed.
    pub is_error: bool,
    /// Name and code of a failure.
    pub error: Option<(String, String)>,
}

impl CallResult {
    /// It gave something.
    pub fn done(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: false, error: None }
    }

    /// It failed.
    pub fn failed(text: impl Into<String>, name: impl Into<String>, code: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, error: Some((name.into(), code.into())) }
    }

    fn error(&self) -> Option<Value> {
        self.error.as_ref().map(|(name, code)| json!({"name": name, "code": code}))
    }
}

/// A tool call of an earlier attempt at the same message that a crash cut off.
///
/// ```
/// use greenroom_actors::turn::CutCall;
/// // A call that had not begun can be made as if nothing had happened.
/// let may_be_made = |call: &CutCall| !call.started;
/// # let _ = may_be_made;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CutCall {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The raw text of the arguments.
    pub arguments: String,
    /// Whether its body had begun, so that what it has done is unknown.
    pub started: bool,
    /// Where what stands in for its result stands.
    seq: Seq,
    turn: u64,
    step: u32,
    message: MessageId,
}

impl Turn {
    /// Tells subscribers that a model has said a little more. Nothing is written.
    pub fn chunk(&self, chunk: Chunk) {
        if !self.core.has_ended() {
            let step = self.open_step().unwrap_or_default();
            self.core.services.tell(|| Occurrence::Chunk { session: self.session().clone(), turn: self.core.turn, step, chunk });
        }
    }

    /// Appends a model's answer to the step that is open, durably. What it asks for may be done from here on.
    ///
    /// # Errors
    /// `TURN_ENDED`, the code of what no log takes, or the write error.
    ///
    /// # Cancel safety
    /// The answer is written or not; the turn is not to go on after a drop.
    pub async fn answered(&self, spoken: Spoken) -> Result<(), TurnError> {
        self.check()?;
        let Spoken { provider, model, content, usage, stop } = spoken;
        let id = MessageId::from_uuid(self.core.services.config.ids.uuid());
        let message = SurfaceMessage { id, role: Role::Assistant, content, source: Source::Model { provider, name: model } };
        // The step is the one that is open where it gets its place.
        self.put_durably(Body::AssistantMessage { turn: self.core.turn, step: 0, message, usage, stop }).await
    }

    /// Notes that a tool's body is about to run, durably.
    ///
    /// # Errors
    /// `TURN_ENDED`, `EVENT_REFUSED` if no step is open, or the write error.
    ///
    /// # Cancel safety
    /// The call counts as begun or not; the turn is not to go on after a drop.
    pub async fn start_call(&self, id: &str, name: &str, arguments: &str) -> Result<(), TurnError> {
        self.check()?;
        let (turn, step) = (self.core.turn, self.open_step()?);
        self.put_durably(Body::ToolCall { turn, step, call_id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }).await?;
        self.core.services.tell(|| Occurrence::ToolStarted {
            session: self.session().clone(),
            turn,
            call_id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        });
        Ok(())
    }

    /// Answers a tool call of the step that is open. Durable with the next durable step, at the latest with the turn's end.
    ///
    /// # Errors
    /// `TURN_ENDED`, `EVENT_REFUSED` if no step is open or no such call waits for a result, or an earlier write error.
    pub fn end_call(&self, id: &str, result: CallResult) -> Result<(), TurnError> {
        self.check()?;
        let (turn, step) = (self.core.turn, self.open_step()?);
        let waits = self.core.view.log.look(|fold| fold.unanswered_calls().iter().any(|call| call.call_id == id));
        if !waits {
            return Err(TurnError::new(EVENT_REFUSED, format!("no call {id:?} waits for a result")));
        }
        let (error, ended) = (result.error(), (result.text.clone(), result.is_error));
        let content = vec![Block::ToolResult { call_id: id.to_owned(), text: result.text, is_error: result.is_error }];
        let message = SurfaceMessage {
            id: MessageId::from_uuid(self.core.services.config.ids.uuid()),
            role: Role::Tool,
            content,
            source: Source::Tool { call_id: id.to_owned() },
        };
        self.core.append(vec![Body::ToolResult { turn, step, message, error }])?;
        self.broken()?;
        self.tell_ended(id, ended);
        Ok(())
    }

    /// Returns why the newest answer of a model to this message ended, on whichever attempt; `None` if there is none.
    pub fn stop(&self) -> Option<String> {
        self.look(|fold| fold.serving().stop.clone())?
    }

    /// Tells whether an answer to this message ran out of output tokens, on whichever attempt.
    pub fn ran_out(&self) -> bool {
        self.look(|fold| fold.serving().ran_out).unwrap_or(false)
    }

    /// Returns the tool calls of earlier attempts at this message that a crash cut off and nobody has answered since, in the order in which they were asked for.
    pub fn cut_calls(&self) -> Vec<CutCall> {
        self.look(|fold| {
            let nodes = fold.surface().nodes();
            // A turn that notes opened has its first note in the place of the message.
            let from = nodes.iter().rposition(|node| node.message.id == self.core.message).unwrap_or(nodes.len());
            let mut asked = std::collections::HashMap::new();
            let mut cut = Vec::new();
            for node in nodes.iter().skip(from) {
                for block in &node.message.content {
                    match block {
                        Block::ToolCall { id, name, arguments } => drop(asked.insert(id.as_str(), (name, arguments))),
                        Block::ToolResult { call_id, .. } => {
                            if let (Some((stand_in, turn, step)), Some((name, arguments))) = (node.stand_in(), asked.get(call_id.as_str())) {
                                cut.push(CutCall {
                                    id: call_id.clone(),
                                    name: (*name).clone(),
                                    arguments: (*arguments).clone(),
                                    started: stand_in == StandIn::OutcomeUnknown,
                                    seq: node.seq,
                                    turn,
                                    step,
                                    message: node.message.id.clone(),
                                });
                            }
                        }
                        Block::Text { .. } | Block::Reasoning { .. } => {}
                    }
                }
            }
            cut
        })
        .unwrap_or_default()
    }

    /// Puts the result of a call that a crash cut off into the place of what stands in for it, durably.
    ///
    /// # Errors
    /// `TURN_ENDED`, `EVENT_REFUSED` if something else stands there by now, or the write error.
    ///
    /// # Cancel safety
    /// Written or not: [`Turn::cut_calls`] tells.
    pub async fn mend_call(&self, cut: &CutCall, result: CallResult) -> Result<(), TurnError> {
        self.check()?;
        let (error, ended) = (result.error(), (result.text.clone(), result.is_error));
        let content = vec![Block::ToolResult { call_id: cut.id.clone(), text: result.text, is_error: result.is_error }];
        let message = SurfaceMessage { id: cut.message.clone(), role: Role::Tool, content, source: Source::Tool { call_id: cut.id.clone() } };
        let body = Body::ToolResult { turn: cut.turn, step: cut.step, message, error };
        let put = self.core.view.log.put(
            |fold, time| {
                let mut event = body.at(fold.head().next_seq, time);
                event.surface_op = Some(SurfaceOp::Replace { start: cut.seq, end: cut.seq });
                event.source_event_seqs = Some(vec![cut.seq]);
                Ok(vec![event])
            },
            Vec::new(),
        );
        let (_, pending) = put.map_err(not_put)?;
        self.core.view.log.settled(pending.done().await)?;
        self.tell_ended(&cut.id, ended);
        Ok(())
    }

    fn tell_ended(&self, id: &str, (text, is_error): (String, bool)) {
        let (session, turn) = (self.session(), self.core.turn);
        self.core.services.tell(|| Occurrence::ToolEnded { session: session.clone(), turn, call_id: id.into(), text: text.into(), is_error });
    }

    fn open_step(&self) -> Result<u32, TurnError> {
        let step = self.look(|fold| fold.head().open.as_ref().and_then(|open| open.step)).flatten();
        step.ok_or_else(|| TurnError::new(EVENT_REFUSED, "no step is open"))
    }

    /// What no log takes is refused before it has a place: the turn may go on.
    async fn put_durably(&self, body: Body) -> Result<(), TurnError> {
        check_event(&body.clone().at(0, 0)).map_err(|error| TurnError::new(error.code(), error.to_string()))?;
        Ok(self.core.append_durably(vec![body]).await?)
    }
}

pub(super) fn not_put(error: NotPut) -> TurnError {
    match error {
        NotPut::Closed => TurnError::new("TURN_ENDED", "the turn has ended"),
        NotPut::Broken(error) => error.into(),
        NotPut::Refused { code, message } => TurnError::new(code, message),
        NotPut::Compact(error) => TurnError::new(error.code(), error.to_string()),
    }
}
