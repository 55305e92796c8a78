//! The surface: what a model sees, as an ordered list of current events.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    event::{Body, Event, Role, SurfaceMessage, SurfaceOp},
    head::FoldError,
    id::Seq,
    message::{Block, Source},
    recover::{TOOL_NOT_STARTED, TOOL_OUTCOME_UNKNOWN},
};

/// Current nodes in the order in which a model sees them.
///
/// ```
/// use greenroom_session::{event::Body, message::{Message, Source}, surface::Surface};
/// let mut surface = Surface::default();
/// surface.apply(&Body::user_message(&Message::turn("m0", "Begin.", Source::User, 1_000)?).at(0, 1_000))?;
/// surface.apply(&Body::StepStart { turn: 1, step: 1 }.at(1, 1_000))?; // no model sees this
/// assert_eq!(surface.messages().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Surface {
    nodes: Vec<Node>,
    replacements: u64,
}

/// One current node.
///
/// ```
/// use greenroom_session::{event::Body, message::{Message, Source}, surface::{Node, Surface}};
/// let mut surface = Surface::default();
/// surface.apply(&Body::user_message(&Message::turn("m0", "Begin.", Source::User, 1_000)?).at(0, 1_000))?;
/// let node: &Node = &surface.nodes()[0];
/// assert_eq!((node.seq, node.message.id.as_str()), (0, "m0"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The event.
    pub seq: Seq,
    /// What it says.
    pub message: Arc<SurfaceMessage>,
    /// The turn and the step of a tool's result.
    tool_result: Option<(u64, u32)>,
    /// What a result stands in for that a crash kept from coming.
    stand_in: Option<StandIn>,
}

/// What stands in for the result of a tool call that a crash cut off.
///
/// ```
/// use greenroom_session::surface::StandIn;
/// assert_eq!(StandIn::of_code("TOOL_NOT_STARTED"), Some(StandIn::NotStarted));
/// assert_eq!(StandIn::of_code("TIMEOUT"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandIn {
    /// The call had not begun: nothing was done.
    NotStarted,
    /// The call was under way: whether anything was done is unknown.
    OutcomeUnknown,
}

impl StandIn {
    /// Reads the code of a failed result; none if it stands in for nothing.
    pub fn of_code(code: &str) -> Option<Self> {
        match code {
            TOOL_NOT_STARTED => Some(Self::NotStarted),
            TOOL_OUTCOME_UNKNOWN => Some(Self::OutcomeUnknown),
            _ => None,
        }
    }
}

impl Node {
    /// Tells what a tool's result stands in for, with the turn and the step of its call; none if it is a result, or something else.
    pub fn stand_in(&self) -> Option<(StandIn, u64, u32)> {
        let (turn, step) = self.tool_result?;
        self.stand_in.map(|stand_in| (stand_in, turn, step))
    }
}

/// What one event put in the place of others.
///
/// ```
/// use greenroom_session::{event::{Body, SurfaceOp}, message::{Message, Source}, surface::{Replacement, Surface}};
/// let said = |seq| Ok::<_, greenroom_session::message::MessageError>(Body::user_message(&Message::turn(format!("m{seq}"), "x", Source::User, 0)?).at(seq, 0));
/// let mut surface = Surface::default();
/// assert_eq!(surface.apply(&said(0)?)?, None);
/// surface.apply(&said(1)?)?;
/// let mut event = said(2)?;
/// event.surface_op = Some(SurfaceOp::Replace { start: 0, end: 1 });
/// event.source_event_seqs = Some(vec![0, 1]);
/// assert_eq!(surface.apply(&event)?, Some(Replacement { seq: 2, start: 0, end: 1, shadowed: vec![0, 1] }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// The event.
    pub seq: Seq,
    /// First node of the run that it replaced.
    pub start: Seq,
    /// Last node of the run.
    pub end: Seq,
    /// The whole run, in the order in which a model saw it.
    pub shadowed: Vec<Seq>,
}

/// A change that was checked and not yet made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    Append,
    Replace { from: usize, to: usize },
}

impl Surface {
    /// Returns the current nodes, first to last.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns how many replacements were made.
    pub fn replacements(&self) -> u64 {
        self.replacements
    }

    /// Returns the messages that a model sees; an assistant message without content is left out.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &Arc<SurfaceMessage>> {
        self.nodes.iter().map(|node| &node.message).filter(|message| message.role != Role::Assistant || !message.content.is_empty())
    }

    /// Moves on by one event, and returns what it replaced. Nothing changes when the event is refused.
    ///
    /// # Errors
    /// [`FoldError`] if the event breaks a rule of `docs/log-format.md` section 3.3.
    pub fn apply(&mut self, event: &Event) -> Result<Option<Replacement>, FoldError> {
        let change = self.plan(event)?;
        let replacement = match event.surface_op {
            Some(SurfaceOp::Replace { start, end }) => {
                Some(Replacement { seq: event.seq, start, end, shadowed: self.shadowed(change).iter().map(|node| node.seq).collect() })
            }
            _ => None,
        };
        self.commit(change, event);
        Ok(replacement)
    }

    /// Makes a change that was planned for this event and this surface.
    pub(crate) fn commit(&mut self, change: Change, event: &Event) {
        match change {
            Change::None => {}
            Change::Append => self.nodes.extend(node(event)),
            Change::Replace { from, to } => {
                self.nodes.splice(from..=to, node(event));
                self.replacements += 1;
            }
        }
    }

    /// Returns the nodes that a change takes away.
    pub(crate) fn shadowed(&self, change: Change) -> &[Node] {
        match change {
            Change::Replace { from, to } => self.nodes.get(from..=to).unwrap_or_default(),
            Change::None | Change::Append => &[],
        }
    }

    /// Returns the node of an event, if it is current. The newest is found first.
    pub(crate) fn node(&self, seq: Seq) -> Option<&Node> {
        self.nodes.iter().rev().find(|node| node.seq == seq)
    }

    /// Returns the run of current nodes from one to another.
    pub(crate) fn run(&self, start: Seq, end: Seq) -> Option<&[Node]> {
        let position = |seq: Seq| self.nodes.iter().position(|node| node.seq == seq);
        self.nodes.get(position(start)?..=position(end)?).filter(|nodes| !nodes.is_empty())
    }

    /// Checks what an event would change.
    pub(crate) fn plan(&self, event: &Event) -> Result<Change, FoldError> {
        check_envelope(event)?;
        let refuse = |reason: &str| Err(FoldError::new(event.seq, reason));
        let (start, end) = match event.surface_op {
            None => return Ok(Change::None),
            Some(SurfaceOp::Append) => return Ok(Change::Append),
            Some(SurfaceOp::Replace { start, end }) => (start, end),
        };
        let position = |seq: Seq| self.nodes.iter().position(|node| node.seq == seq);
        let (Some(from), Some(to)) = (position(start), position(end)) else {
            return refuse("a replacement must name current events");
        };
        let Some(shadowed) = self.nodes.get(from..=to).filter(|nodes| !nodes.is_empty()) else {
            return refuse("a replacement must not end before it starts");
        };
        let sources = event.source_event_seqs.as_deref().unwrap_or_default();
        if !shadowed.iter().all(|node| sources.binary_search(&node.seq).is_ok()) {
            return refuse("a replacement must list every event that it shadows");
        }
        if let Body::ToolResult { turn, step, message, .. } = &event.body {
            let [only] = shadowed else { return refuse("a tool result replaces exactly one tool result") };
            if only.tool_result != Some((*turn, *step)) || !is_same_result(only, message) {
                return refuse("a tool result replaces one tool result and changes nothing but its text");
            }
        }
        Ok(Change::Replace { from, to })
    }
}

/// Tells whether a tool's result is another one but for what the tool said. What stands in for a result may become one that did not fail.
fn is_same_result(old: &Node, new: &SurfaceMessage) -> bool {
    let failed = |message: &SurfaceMessage| matches!(message.content.as_slice(), [Block::ToolResult { is_error: true, .. }]);
    // The call that it answers is the source's.
    (&old.message.id, &old.message.source) == (&new.id, &new.source) && (old.stand_in.is_some() || failed(&old.message) == failed(new))
}

/// Checks what an event must hold by itself, whatever came before: how it says that it is on the surface, what it stands for, and whose message it is.
pub(crate) fn check_envelope(event: &Event) -> Result<(), FoldError> {
    let refuse = |reason: &str| Err(FoldError::new(event.seq, reason));
    let sources = event.source_event_seqs.as_deref();
    match (event.body.surface_message(), event.surface_op) {
        (Some(_), None) => return refuse("a surface event without `surface_op`"),
        (None, Some(_)) => return refuse("`surface_op` on an event that is not on the surface"),
        (None, None) if sources.is_some() => return refuse("`source_event_seqs` on an event that is not on the surface"),
        (None, None) => return Ok(()),
        (Some(_), Some(_)) => {}
    }
    if let Some(sources) = sources {
        if !sources.is_sorted_by(|a, b| a < b) || sources.last().is_some_and(|&last| last >= event.seq) {
            return refuse("`source_event_seqs` must name earlier events in ascending order");
        }
        if sources.is_empty() && !matches!(event.body, Body::AssistantMessage { .. }) {
            return refuse("`source_event_seqs` must not be empty here");
        }
    }
    match &event.body {
        Body::UserMessage(message) if message.role != Role::User => refuse("a `user/message` has the role `user`"),
        Body::AssistantMessage { message, .. } if message.role != Role::Assistant => refuse("an `assistant/message` has the role `assistant`"),
        Body::AssistantMessage { message, .. } if !matches!(message.source, Source::Agent { .. } | Source::Model { .. }) => {
            refuse("an `assistant/message` comes from an agent or a model")
        }
        Body::ToolResult { message, .. } if message.role != Role::Tool => refuse("a `tool/result` has the role `tool`"),
        Body::ToolResult { message, .. } => match (message.content.as_slice(), &message.source) {
            ([Block::ToolResult { call_id, .. }], Source::Tool { call_id: source }) if call_id == source => Ok(()),
            _ => refuse("a `tool/result` is one block that answers the call of its source"),
        },
        _ => Ok(()),
    }
}

fn node(event: &Event) -> Option<Node> {
    let message = event.body.surface_message()?;
    let (tool_result, stand_in) = match &event.body {
        Body::ToolResult { turn, step, error, .. } => {
            let code = error.as_ref().and_then(|error| error.get("code")).and_then(Value::as_str);
            (Some((*turn, *step)), code.and_then(StandIn::of_code))
        }
        _ => (None, None),
    };
    Some(Node { seq: event.seq, message: Arc::new(message.clone()), tool_result, stand_in })
}

#[cfg(test)]
mod tests;
