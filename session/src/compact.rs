//! Compaction: one message takes the place of a run of messages, so that a model sees less.
//!
//! The log keeps everything; only the surface changes. A compaction is a bracket of events, `compact/start` to `compact/end`, because what is to be
//! summarized is read before the summary is there, and a model needs its time. [`Plan::new`] looks at the surface once, and [`Plan::commit`] makes sure
//! that it is the same when the summary has come. Both are pure: whoever holds the session appends what they return.

use std::collections::HashMap;

use thiserror::Error;

use crate::{
    event::{Body, Event, Role, SurfaceMessage, SurfaceOp},
    fold::Fold,
    id::{MessageId, Seq},
    message::{Block, Source},
    surface::Node,
};

/// The plugin that a compaction's message comes from.
pub const COMPACT_SOURCE: &str = "compact";

/// Code of a compaction that a crash cut off.
pub const COMPACTION_INTERRUPTED: &str = "COMPACTION_INTERRUPTED";

/// A compaction that has been checked and not yet made.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{compact::{Plan, Summary}, event::Body, fold::Fold, header::NewSession, id::{MessageId, SessionId}, message::{Message, Source}};
/// let mut fold = Fold::new(Arc::new(NewSession::root(SessionId::new("root")?).at(1_000)));
/// for seq in 0..3 {
///     fold.apply_event(&Body::user_message(&Message::turn(format!("m{seq}"), "a long story", Source::User, 1_000)?).at(seq, 1_000))?;
/// }
/// let plan = Plan::new(&fold, 0, 1)?;
/// fold.apply_event(&plan.start(&fold, 2_000)?)?;
/// // Meanwhile somebody writes the summary.
/// for event in plan.commit(&fold, Summary::new(MessageId::new("s0")?, "short"), 3_000)? {
///     fold.apply_event(&event)?;
/// }
/// let seen: Vec<_> = fold.surface().messages().map(|message| message.id.as_str()).collect();
/// assert_eq!(seen, ["s0", "m2"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    start: Seq,
    end: Seq,
    shadowed: Vec<Seq>,
    bytes: usize,
    /// What the surface was like: it changes with neither of these only if it does not change.
    surface: (u64, usize),
}

/// What takes the place of a run of messages.
///
/// ```
/// use greenroom_session::{compact::Summary, id::MessageId};
/// let summary = Summary { model: Some("small".into()), tokens: Some(812), ..Summary::new(MessageId::new("s0")?, "short") };
/// assert_eq!((summary.text.as_str(), summary.provider), ("short", None));
/// # Ok::<(), greenroom_session::id::IdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Id of the message.
    pub id: MessageId,
    /// What it says.
    pub text: String,
    /// The provider of the model that wrote it.
    pub provider: Option<String>,
    /// The model that wrote it.
    pub model: Option<String>,
    /// How many tokens the run had for that model.
    pub tokens: Option<u64>,
}

impl Summary {
    /// Makes a summary that says nothing of who wrote it.
    pub fn new(id: MessageId, text: impl Into<String>) -> Self {
        Self { id, text: text.into(), provider: None, model: None, tokens: None }
    }
}

/// Why messages are not compacted.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{compact::{CompactError, Plan}, fold::Fold, header::NewSession, id::SessionId};
/// let fold = Fold::new(Arc::new(NewSession::root(SessionId::new("root")?).at(1_000)));
/// let error = Plan::new(&fold, 0, 1).unwrap_err();
/// assert_eq!((error.code(), error), ("COMPACTION_RANGE", CompactError::Range { start: 0, end: 1 }));
/// # Ok::<(), greenroom_session::id::IdError>(())
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompactError {
    /// Another compaction is under way.
    #[error("the compaction that began at event {0} is under way")]
    Busy(Seq),
    /// No compaction is under way that could be brought to its end.
    #[error("no compaction is under way")]
    NotBegun,
    /// The ends name no run of current messages.
    #[error("events {start} to {end} are no run of messages that the agent sees")]
    Range {
        /// The first that was to be replaced.
        start: Seq,
        /// The last.
        end: Seq,
    },
    /// A tool call and its result would be torn apart.
    #[error("tool call {0:?} and its result must be compacted together or not at all")]
    SplitsToolCall(String),
    /// The message of a turn that is under way or to be repeated would be replaced.
    #[error("the message of an unfinished turn (event {0}) must not be compacted")]
    UnfinishedTurn(Seq),
    /// The summary is no smaller than what it replaces.
    #[error("a summary of {summary} bytes does not shorten {shadowed} bytes")]
    NotSmaller {
        /// Bytes of the summary.
        summary: usize,
        /// Bytes of what it would replace.
        shadowed: usize,
    },
    /// What the agent sees has changed since the plan was made.
    #[error("what the agent sees has changed since the compaction was planned")]
    SurfaceChanged,
}

impl CompactError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Busy(_) => "COMPACTION_BUSY",
            Self::NotBegun => "COMPACTION_NOT_BEGUN",
            Self::Range { .. } => "COMPACTION_RANGE",
            Self::SplitsToolCall(_) => "COMPACTION_SPLITS_CALL",
            Self::UnfinishedTurn(_) => "COMPACTION_UNFINISHED_TURN",
            Self::NotSmaller { .. } => "COMPACTION_NOT_SMALLER",
            Self::SurfaceChanged => "COMPACTION_SURFACE_CHANGED",
        }
    }
}

impl Plan {
    /// Plans to replace the current messages from `start` to `end`, both named by their events and both inclusive, in the order in which the agent sees them.
    ///
    /// # Errors
    /// [`CompactError::Busy`] while another compaction is under way, then [`CompactError::Range`], [`CompactError::UnfinishedTurn`] and
    /// [`CompactError::SplitsToolCall`].
    pub fn new(fold: &Fold, start: Seq, end: Seq) -> Result<Self, CompactError> {
        if let Some(compacting) = fold.head().compacting {
            return Err(CompactError::Busy(compacting.since));
        }
        let run = fold.surface().run(start, end).ok_or(CompactError::Range { start, end })?;
        let head = fold.head();
        let unfinished = head.open.as_ref().map(|open| &open.message).or(head.retry.as_ref().map(|retry| &retry.message));
        if let Some(node) = run.iter().find(|node| Some(&node.message.id) == unfinished) {
            return Err(CompactError::UnfinishedTurn(node.seq));
        }
        let mut shadowed: Vec<Seq> = run.iter().map(|node| node.seq).collect();
        shadowed.sort_unstable();
        if let Some(call_id) = split_call(fold, &shadowed) {
            return Err(CompactError::SplitsToolCall(call_id.to_owned()));
        }
        let bytes = run.iter().flat_map(|node| &node.message.content).map(Block::len).sum();
        Ok(Self { start, end, shadowed, bytes, surface: mark(fold) })
    }

    /// Returns the events that are to be replaced, in ascending order.
    pub fn shadowed(&self) -> &[Seq] {
        &self.shadowed
    }

    /// Returns how many bytes are to be replaced.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the event that begins the compaction, in its place.
    ///
    /// # Errors
    /// [`CompactError::Busy`] if another one has begun, [`CompactError::SurfaceChanged`] if the plan is out of date.
    pub fn start(&self, fold: &Fold, time: u64) -> Result<Event, CompactError> {
        if let Some(compacting) = fold.head().compacting {
            return Err(CompactError::Busy(compacting.since));
        }
        self.check(fold)?;
        Ok(Body::CompactStart { turn: fold.head().open.as_ref().map(|open| open.turn) }.at(fold.head().next_seq, time))
    }

    /// Returns the events that make the change and end the compaction, in their places. They belong into one append. What was appended meanwhile and is not on
    /// the surface does not matter.
    ///
    /// # Errors
    /// [`CompactError::NotBegun`], [`CompactError::SurfaceChanged`] or [`CompactError::NotSmaller`]; the compaction is then still under way: see [`give_up`].
    pub fn commit(&self, fold: &Fold, summary: Summary, time: u64) -> Result<Vec<Event>, CompactError> {
        let turn = fold.head().compacting.ok_or(CompactError::NotBegun)?.turn;
        self.check(fold)?;
        let Summary { id, text, provider, model, tokens } = summary;
        if text.len() >= self.bytes {
            return Err(CompactError::NotSmaller { summary: text.len(), shadowed: self.bytes });
        }
        let source = Source::Plugin { name: COMPACT_SOURCE.to_owned() };
        let message = SurfaceMessage { id, role: Role::User, content: vec![Block::text(text)], source };
        let (start, end, shadowed_seqs) = (self.start, self.end, self.shadowed.clone());
        let bodies = [
            Body::CompactSummary { start, end, shadowed_seqs, text: None, provider, model, tokens },
            Body::UserMessage(message),
            Body::CompactEnd { turn, error: None },
        ];
        let mut events: Vec<Event> = bodies.into_iter().zip(fold.head().next_seq..).map(|(body, seq)| body.at(seq, time)).collect();
        for event in events.iter_mut().filter(|event| event.body.is_surface()) {
            event.surface_op = Some(SurfaceOp::Replace { start, end });
            event.source_event_seqs = Some(self.shadowed.clone());
        }
        Ok(events)
    }

    fn check(&self, fold: &Fold) -> Result<(), CompactError> {
        if self.surface == mark(fold) { Ok(()) } else { Err(CompactError::SurfaceChanged) }
    }
}

/// Returns the event that ends the compaction under way without a change, in its place; none if none is under way.
pub fn give_up(fold: &Fold, code: impl Into<String>, time: u64) -> Option<Event> {
    let compacting = fold.head().compacting?;
    Some(Body::CompactEnd { turn: compacting.turn, error: Some(code.into()) }.at(fold.head().next_seq, time))
}

fn mark(fold: &Fold) -> (u64, usize) {
    (fold.surface().replacements(), fold.surface().nodes().len())
}

/// Finds a tool call that stands among these events while its result does not, or the other way round.
///
/// Ids of calls are a model's choice and may come again: a result belongs to the last call of its id before it.
fn split_call<'a>(fold: &'a Fold, shadowed: &[Seq]) -> Option<&'a str> {
    let is_shadowed = |node: &Node| shadowed.binary_search(&node.seq).is_ok();
    let mut called: HashMap<&str, bool> = HashMap::new();
    for node in fold.surface().nodes() {
        for block in &node.message.content {
            match block {
                Block::ToolCall { id, .. } => drop(called.insert(id, is_shadowed(node))),
                Block::ToolResult { call_id, .. } => {
                    if called.get(call_id.as_str()).is_some_and(|&call| call != is_shadowed(node)) {
                        return Some(call_id);
                    }
                }
                Block::Text { .. } | Block::Reasoning { .. } => {}
            }
        }
    }
    // The result of a call that waits for one will stand at the end.
    fold.unanswered_calls().iter().map(|call| call.call_id.as_str()).find(|call_id| called.get(call_id) == Some(&true))
}

#[cfg(test)]
mod tests;
