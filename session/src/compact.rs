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
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        descriptor::Descriptor,
        event::TurnEnd,
        header::NewSession,
        id::SessionId,
        listing::verdict,
        message::Message,
        recover::{begin_epoch, closers},
    };

    fn id(text: &str) -> MessageId {
        MessageId::new(text).unwrap()
    }

    fn asked(name: &str) -> Body {
        Body::user_message(&Message::turn(name, "a question of some length", Source::User, 0).unwrap())
    }

    fn said(turn: u64, step: u32, content: Vec<Block>) -> Body {
        let source = Source::Model { provider: "p".into(), name: "m".into() };
        Body::AssistantMessage { turn, step, message: SurfaceMessage { id: id("a"), role: Role::Assistant, content, source }, usage: None }
    }

    fn call(name: &str) -> Block {
        Block::ToolCall { id: name.into(), name: "look".into(), arguments: "{}".into() }
    }

    fn result(turn: u64, step: u32, call_id: &str) -> Body {
        let content = vec![Block::ToolResult { call_id: call_id.into(), text: "much was seen".into(), is_error: false }];
        let message = SurfaceMessage { id: id("t"), role: Role::Tool, content, source: Source::Tool { call_id: call_id.into() } };
        Body::ToolResult { turn, step, message, error: None }
    }

    fn start(turn: u64, message: &str) -> Body {
        Body::TurnStart { turn, message: id(message), attempt: 1 }
    }

    fn step(turn: u64, step: u32, ends: bool) -> Body {
        if ends { Body::StepEnd { turn, step, cut: None } } else { Body::StepStart { turn, step } }
    }

    fn folded(header: &NewSession, bodies: Vec<Body>) -> Fold {
        let mut fold = Fold::new(Arc::new(header.at(0)));
        go_on(&mut fold, bodies);
        fold
    }

    fn go_on(fold: &mut Fold, bodies: Vec<Body>) {
        for body in bodies {
            let event = body.at(fold.head().next_seq, 7);
            fold.apply_event(&event).unwrap();
        }
    }

    fn root() -> NewSession {
        NewSession::root(SessionId::new("s").unwrap())
    }

    /// A turn with two steps, the calls of which have the same id, and the beginning of another.
    fn turns() -> Vec<Body> {
        vec![
            start(1, "m1"),                                        // 0
            asked("m1"),                                           // 1
            step(1, 1, false),                                     // 2
            said(1, 1, vec![call("c"), call("d")]),                // 3
            result(1, 1, "d"),                                     // 4
            result(1, 1, "c"),                                     // 5
            step(1, 1, true),                                      // 6
            step(1, 2, false),                                     // 7
            said(1, 2, vec![call("c")]),                           // 8
            result(1, 2, "c"),                                     // 9
            step(1, 2, true),                                      // 10
            said(1, 0, vec![Block::text("that is what it is")]),   // 11
            Body::TurnEnd { turn: 1, reason: TurnEnd::Completed }, // 12
            start(2, "m2"),                                        // 13
            asked("m2"),                                           // 14
            step(2, 1, false),                                     // 15
            said(2, 1, vec![call("e")]),                           // 16
        ]
    }

    #[test]
    fn only_a_run_of_current_messages_that_tears_nothing_apart_can_be_compacted() {
        let fold = folded(&root(), turns());
        let splits = |call_id: &str| Err(CompactError::SplitsToolCall(call_id.into()));
        let range = |start, end| Err(CompactError::Range { start, end });
        for (what, start, end, expected) in [
            ("one message", 1, 1, Ok(vec![1])),
            ("a whole step", 1, 5, Ok(vec![1, 3, 4, 5])),
            ("calls without their results", 1, 3, splits("d")),
            ("one result of two", 1, 4, splits("c")),
            ("results without their calls", 5, 9, splits("c")),
            ("the second of two calls of one id", 8, 9, Ok(vec![8, 9])),
            ("both steps", 3, 9, Ok(vec![3, 4, 5, 8, 9])),
            ("everything of the first turn", 1, 11, Ok(vec![1, 3, 4, 5, 8, 9, 11])),
            ("the message of the open turn", 11, 14, Err(CompactError::UnfinishedTurn(14))),
            ("a call that waits for its result", 16, 16, splits("e")),
            ("backwards", 5, 1, range(5, 1)),
            ("from what is not on the surface", 2, 5, range(2, 5)),
            ("to what does not exist", 1, 99, range(1, 99)),
        ] {
            assert_eq!(Plan::new(&fold, start, end).map(|plan| plan.shadowed().to_vec()), expected, "{what}");
        }
    }

    #[test]
    fn every_refusal_has_a_code_of_its_own() {
        for (error, code) in [
            (CompactError::Busy(1), "COMPACTION_BUSY"),
            (CompactError::NotBegun, "COMPACTION_NOT_BEGUN"),
            (CompactError::Range { start: 1, end: 2 }, "COMPACTION_RANGE"),
            (CompactError::SplitsToolCall("c".into()), "COMPACTION_SPLITS_CALL"),
            (CompactError::UnfinishedTurn(1), "COMPACTION_UNFINISHED_TURN"),
            (CompactError::NotSmaller { summary: 2, shadowed: 1 }, "COMPACTION_NOT_SMALLER"),
            (CompactError::SurfaceChanged, "COMPACTION_SURFACE_CHANGED"),
        ] {
            assert_eq!(error.code(), code, "{error}");
        }
    }

    #[test]
    fn a_compaction_shortens_what_is_seen_and_nothing_else() {
        let described = || Body::Descriptor(serde_json::to_value(Descriptor::continuable("spawn", "l", "a")).unwrap());
        let child = || NewSession::child(SessionId::new("c").unwrap(), SessionId::new("r").unwrap(), 0);
        let bodies = || vec![described(), Body::EndSeed {}, Body::ActivationStart { epoch: 1 }, start(1, "m1"), asked("m1"), asked("n1"), asked("n2")];
        let mut fold = folded(&child(), bodies());
        let plan = Plan::new(&fold, 5, 6).unwrap();
        let begin = plan.start(&fold, 9).unwrap();
        assert_eq!(begin.body, Body::CompactStart { turn: Some(1) });
        fold.apply_event(&begin).unwrap();
        assert_eq!(plan.start(&fold, 9), Err(CompactError::Busy(7)), "one at a time");
        assert_eq!(Plan::new(&fold, 5, 5), Err(CompactError::Busy(7)), "one at a time");
        // What is appended meanwhile and is not on the surface does not matter.
        go_on(&mut fold, vec![Body::Memo { turn: 1, message: id("m1"), key: None, text: "meanwhile".into() }]);
        assert_eq!(plan.bytes(), 50);
        let long = plan.commit(&fold, Summary::new(id("s"), "x".repeat(50)), 9);
        assert_eq!(long, Err(CompactError::NotSmaller { summary: 50, shadowed: 50 }));
        let before = (fold.serving().clone(), fold.head().clone());
        for event in plan.commit(&fold, Summary { tokens: Some(3), ..Summary::new(id("s"), "x".repeat(49)) }, 9).unwrap() {
            assert_eq!(event.body.type_name().starts_with("compact/"), event.surface_op.is_none(), "only its message is on the surface");
            fold.apply_event(&event).unwrap();
        }
        assert_eq!(fold.surface().nodes().iter().map(|node| node.seq).collect::<Vec<_>>(), [4, 10]);
        assert_eq!((fold.serving(), fold.head().compacting), (&before.0, None), "its message is no note");
        // It is listed as it was.
        let as_it_was = folded(&child(), bodies());
        assert_eq!((verdict(&fold), fold.descriptor()), (verdict(&as_it_was), as_it_was.descriptor()));
        assert_eq!((fold.head().turns, &fold.head().open), (as_it_was.head().turns, &as_it_was.head().open));
        // What a compaction has left can be compacted, too.
        assert_eq!(Plan::new(&fold, 10, 10).map(|plan| plan.bytes()), Ok(49));
    }

    #[test]
    fn a_surface_that_changed_since_refuses_the_plan() {
        let changes: [fn(&mut Fold); 2] = [
            |fold| go_on(fold, vec![asked("late")]),
            |fold| {
                let mut event = asked("other").at(fold.head().next_seq, 7);
                event.surface_op = Some(SurfaceOp::Replace { start: 0, end: 0 });
                event.source_event_seqs = Some(vec![0]);
                fold.apply_event(&event).unwrap();
            },
        ];
        for change in changes {
            let mut fold = folded(&root(), vec![asked("n1"), asked("n2"), asked("n3")]);
            let plan = Plan::new(&fold, 1, 2).unwrap();
            let mut early = fold.clone();
            change(&mut early);
            assert_eq!(plan.start(&early, 9), Err(CompactError::SurfaceChanged));
            assert_eq!(plan.commit(&fold, Summary::new(id("s"), "x"), 9), Err(CompactError::NotBegun));
            let begin = plan.start(&fold, 9).unwrap();
            fold.apply_event(&begin).unwrap();
            change(&mut fold);
            assert_eq!(plan.commit(&fold, Summary::new(id("s"), "x"), 9), Err(CompactError::SurfaceChanged));
            // It is given up, and another plan may be made.
            let end = give_up(&fold, "COMPACTION_SURFACE_CHANGED", 9).unwrap();
            fold.apply_event(&end).unwrap();
            assert_eq!(give_up(&fold, "X", 9), None);
            assert!(Plan::new(&fold, 1, 2).is_ok());
        }
    }

    #[test]
    fn a_compaction_that_was_inherited_unfinished_is_nobodys() {
        let header = NewSession { seed_length: 2, ..root() };
        let fold = folded(&header, vec![asked("n1"), Body::CompactStart { turn: None }, Body::EndSeed {}]);
        let plan = Plan::new(&fold, 0, 0).unwrap();
        assert!(plan.start(&fold, 9).is_ok());
        // In the life of a session itself it is in the way.
        let fold = folded(&root(), vec![Body::EndSeed {}, asked("n1"), Body::CompactStart { turn: None }]);
        assert_eq!(Plan::new(&fold, 1, 1), Err(CompactError::Busy(2)));
    }

    #[test]
    fn a_crash_ends_a_compaction_before_its_turn() {
        let interrupted = |turn| Body::CompactEnd { turn, error: Some(COMPACTION_INTERRUPTED.into()) };
        let lived = |bodies: Vec<Body>| folded(&root(), [vec![Body::ActivationStart { epoch: 1 }], bodies].concat());
        let between = lived(vec![Body::CompactStart { turn: None }]);
        assert_eq!(closers(&between, 3), [interrupted(None).at(2, 7)]);
        let within = lived(vec![start(1, "m1"), step(1, 1, false), said(1, 1, vec![call("c")]), Body::CompactStart { turn: Some(1) }]);
        let types = |events: &[Event]| events.iter().map(|event| event.body.type_name().to_owned()).collect::<Vec<_>>();
        assert_eq!(types(&closers(&within, 3)), ["compact/end", "tool/result", "step/end", "turn/end"]);
        for mut fold in [between, within] {
            let (_, events) = begin_epoch(&fold, 9, 3);
            for event in events {
                fold.apply_event(&event).unwrap();
            }
            assert_eq!((fold.head().compacting, fold.head().epoch, closers(&fold, 3)), (None, 2, vec![]));
        }
    }

    #[test]
    fn a_log_that_breaks_the_bracket_is_refused() {
        let replace = |name: &str, source: Source, start, end| {
            let message = SurfaceMessage { id: id(name), role: Role::User, content: vec![], source };
            let mut event = Body::UserMessage(message).at(0, 7);
            event.surface_op = Some(SurfaceOp::Replace { start, end });
            event.source_event_seqs = Some(vec![1, 2, 3]);
            event
        };
        let compact = || Source::Plugin { name: COMPACT_SOURCE.into() };
        let plain = |body: Body| body.at(0, 7);
        let begin = |turn| plain(Body::CompactStart { turn });
        let summary = |start, end, seqs: &[Seq]| {
            plain(Body::CompactSummary { start, end, shadowed_seqs: seqs.to_vec(), text: None, provider: None, model: None, tokens: None })
        };
        let end = |turn, error: Option<&str>| plain(Body::CompactEnd { turn, error: error.map(str::to_owned) });
        let epoch_ends = plain(Body::ActivationEnd { epoch: 1, reason: crate::event::EpochEnd::Settled });
        let turn_ends = plain(Body::TurnEnd { turn: 1, reason: TurnEnd::Completed });
        let whole = [begin(None), summary(1, 2, &[1, 2]), replace("s", compact(), 1, 2), end(None, None)];
        let open = || plain(start(1, "m1"));
        // Each with what comes before it, the last of which is refused.
        for (what, events) in [
            ("two at a time", vec![begin(None), begin(None)]),
            ("of a turn that is not open", vec![begin(Some(1))]),
            ("of no turn while one is open", vec![open(), begin(None)]),
            ("a turn begins within", vec![begin(None), open()]),
            ("its turn ends within", vec![open(), begin(Some(1)), turn_ends]),
            ("its epoch ends within", vec![begin(None), epoch_ends]),
            ("a summary outside", vec![summary(1, 2, &[1, 2])]),
            ("two summaries", vec![begin(None), summary(1, 2, &[1, 2]), summary(1, 1, &[1])]),
            ("a summary of no run", vec![begin(None), summary(2, 1, &[1, 2])]),
            ("a summary that leaves one out", vec![begin(None), summary(1, 3, &[1, 3])]),
            ("a summary that names one more", vec![begin(None), summary(1, 2, &[1, 2, 3])]),
            ("a summary out of order", vec![begin(None), summary(1, 2, &[2, 1])]),
            ("a summary of the open turn's message", vec![open(), begin(Some(1)), summary(1, 2, &[1, 2])]),
            ("a message outside", vec![replace("s", compact(), 1, 2)]),
            ("a message before the summary", vec![begin(None), replace("s", compact(), 1, 2)]),
            ("a message in another place", vec![begin(None), summary(1, 2, &[1, 2]), replace("s", compact(), 1, 1)]),
            ("two messages", vec![whole[0].clone(), whole[1].clone(), whole[2].clone(), replace("s", compact(), 3, 3)]),
            ("an end outside", vec![end(None, Some("X"))]),
            ("an end of another turn", vec![begin(None), end(Some(1), Some("X"))]),
            ("an end without a change", vec![begin(None), summary(1, 2, &[1, 2]), end(None, None)]),
            ("any message in the place of the open turn's", vec![open(), replace("s", Source::Host, 1, 2)]),
        ] {
            let mut fold = folded(&root(), vec![Body::ActivationStart { epoch: 1 }, asked("m1"), asked("n1"), asked("n2")]);
            let last = events.len() - 1;
            for (at, mut event) in events.into_iter().enumerate() {
                event.seq = fold.head().next_seq;
                let before = fold.clone();
                assert_eq!(fold.apply_event(&event).is_err(), at == last, "{what}: event {at}");
                assert!(at < last || fold == before, "{what}: a refusal changes nothing");
            }
        }
        // A message that is to be repeated is no less needed while its turn is not open.
        let cut_off = || folded(&root(), vec![start(1, "m1"), asked("m1"), asked("n1"), Body::TurnEnd { turn: 1, reason: TurnEnd::Disposed }]);
        assert_eq!(Plan::new(&cut_off(), 1, 2), Err(CompactError::UnfinishedTurn(1)));
        assert!(Plan::new(&cut_off(), 2, 2).is_ok());
        let mut event = replace("s", Source::Host, 1, 2);
        event.seq = 4;
        assert!(cut_off().apply_event(&event).is_err());
        let mut fold = cut_off();
        go_on(&mut fold, vec![Body::CompactStart { turn: None }]);
        let mut event = summary(1, 2, &[1, 2]);
        event.seq = 5;
        assert!(fold.apply_event(&event).is_err());
        // The same events in order are taken.
        let mut fold = folded(&root(), vec![Body::ActivationStart { epoch: 1 }, asked("m1"), asked("n1"), asked("n2")]);
        for mut event in whole {
            event.seq = fold.head().next_seq;
            fold.apply_event(&event).unwrap();
        }
    }
}
