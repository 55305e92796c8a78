//! The small half of the fold: what a listing and the store's guards need to know, a few hundred bytes per session.
//!
//! [`Head`] is derived. A store keeps it beside the log, checksummed, so that it need not read the log; when it is missing,
//! stale or damaged the store folds the log again. The events half is moved by [`Head::apply`], the inbox half by
//! [`Head::accept`] and [`Head::take`].

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    event::{Body, Event, SurfaceOp, TurnEnd},
    id::{Epoch, MessageId, Order, Seq},
    message::{Message, MessageKind},
    surface::check_envelope,
};

/// Derived facts of one session.
///
/// ```
/// use greenroom_session::store::Store;
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let accept = gs::store::Accept::new(root.clone(), gs::message::Message::turn("m0", "Begin.", gs::message::Source::User, 1_000)?);
/// # gs::store::Store::commit(&store, &[gs::store::Op::Accept(accept)])?;
/// let log = store.reader()?.load(&root)?;
/// let head = log.fold.head();
/// assert_eq!((head.next_seq, head.next_order, head.pending()), (2, 1, 1));
/// assert!(head.has_work() && !head.live);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Head {
    /// The seq that the next event gets.
    pub next_seq: Seq,
    /// The order that the next message gets.
    pub next_order: Order,
    /// The newest epoch; 0 before the first.
    pub epoch: Epoch,
    /// Whether the newest epoch has no end in the log.
    pub live: bool,
    /// The newest turn number; 0 before the first.
    pub turns: u64,
    /// The turn that has no end in the log.
    pub open: Option<OpenTurn>,
    /// The message that is served again before the queue.
    pub retry: Option<Retry>,
    /// How the newest ended turn ended.
    pub last: Option<Outcome>,
    /// The compaction that has no end in the log.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub compacting: Option<OpenCompaction>,
    /// Pending `turn` records.
    pub pending_turns: u64,
    /// Pending waking notes.
    pub pending_wakes: u64,
    /// Pending quiet notes.
    pub pending_quiet: u64,
    /// Pending requests of other processes.
    pub pending_controls: u64,
    /// Records of the inbox that are held: of messages that wait, and of messages that have left it while their turn is not finished.
    pub held: u64,
}

/// A turn under way.
///
/// ```
/// use greenroom_session::{event::Body, head::Head, id::MessageId};
/// let mut head = Head::default();
/// head.apply(&Body::TurnStart { turn: 1, message: MessageId::new("m0")?, attempt: 1 }.at(0, 1_000), 0)?;
/// head.apply(&Body::StepStart { turn: 1, step: 1 }.at(1, 1_000), 0)?;
/// let open = head.open.expect("a turn is open");
/// assert_eq!((open.turn, open.attempt, open.step), (1, 1, Some(1)));
/// assert!(!open.progress); // no step has come to its end
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTurn {
    /// Its number.
    pub turn: u64,
    /// The message that it serves.
    pub message: MessageId,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Attempts in a row before this one that ended without progress.
    pub wasted: u32,
    /// The furthest step that any attempt has brought to its end.
    pub reached: u32,
    /// Where its `turn/start` stands.
    pub since: Seq,
    /// The open step, if one is.
    pub step: Option<u32>,
    /// Steps begun so far.
    pub steps: u32,
    /// Whether this attempt has made durable progress.
    pub progress: bool,
}

/// A compaction under way.
///
/// ```
/// use greenroom_session::{event::Body, head::{Head, OpenCompaction}, id::MessageId};
/// let mut head = Head::default();
/// head.apply(&Body::CompactStart { turn: None }.at(0, 1_000), 0)?;
/// assert_eq!(head.compacting, Some(OpenCompaction { since: 0, turn: None }));
/// // A turn cannot begin before it has ended.
/// assert!(head.apply(&Body::TurnStart { turn: 1, message: MessageId::new("m0")?, attempt: 1 }.at(1, 1_000), 0).is_err());
/// head.apply(&Body::CompactEnd { turn: None, error: Some("COMPACTION_INTERRUPTED".into()) }.at(1, 1_000), 0)?;
/// assert_eq!(head.compacting, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCompaction {
    /// Where its `compact/start` stands.
    pub since: Seq,
    /// The turn within which it began, if one was open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub turn: Option<u64>,
}

/// A message whose latest turn ended without being final.
///
/// ```
/// use greenroom_session::{event::{Body, TurnEnd}, head::Head, id::MessageId};
/// let mut head = Head::default();
/// head.apply(&Body::TurnStart { turn: 1, message: MessageId::new("m0")?, attempt: 1 }.at(0, 1_000), 0)?;
/// head.apply(&Body::TurnEnd { turn: 1, reason: TurnEnd::Interrupted }.at(1, 1_000), 0)?;
/// let retry = head.retry.expect("the message is served again");
/// assert_eq!((retry.message.as_str(), retry.attempts, retry.wasted), ("m0", 1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The message.
    pub message: MessageId,
    /// Attempts so far.
    pub attempts: u32,
    /// Newest attempts in a row that ended `interrupted` without progress.
    pub wasted: u32,
    /// The furthest step that any attempt has brought to its end.
    pub reached: u32,
}

/// How a turn ended.
///
/// ```
/// use greenroom_session::{event::{Body, TurnEnd}, head::{Head, Outcome}, id::MessageId};
/// let mut head = Head::default();
/// head.apply(&Body::TurnStart { turn: 1, message: MessageId::new("m0")?, attempt: 1 }.at(0, 1_000), 0)?;
/// head.apply(&Body::TurnEnd { turn: 1, reason: TurnEnd::error("NO_PAPER", "out of paper") }.at(1, 1_000), 0)?;
/// assert_eq!(head.last, Some(Outcome { turn: 1, kind: "error".into(), code: Some("NO_PAPER".into()) }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The turn.
    pub turn: u64,
    /// The name of a [`TurnEnd`].
    pub kind: Cow<'static, str>,
    /// The code of a failure.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
}

/// What a session is doing, by its log.
///
/// ```
/// use greenroom_session::{event::Body, head::{Head, TurnState}, id::MessageId};
/// let mut head = Head::default();
/// assert_eq!(head.turn_state(true), TurnState::Idle);
/// head.apply(&Body::TurnStart { turn: 1, message: MessageId::new("m0")?, attempt: 1 }.at(0, 1_000), 0)?;
/// assert_eq!(head.turn_state(true), TurnState::Open);
/// assert_eq!(head.turn_state(false), TurnState::Interrupted); // nobody holds the session any more
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnState {
    /// No turn is open, and none waits to be repeated.
    Idle,
    /// A turn is open.
    Open,
    /// The latest turn was cut off and its message waits to be served again.
    Interrupted,
}

impl TurnState {
    /// Returns the name used on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Open => "open",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Why an event cannot follow what the log holds.
///
/// ```
/// use greenroom_session::{event::Body, head::Head};
/// let error = Head::default().apply(&Body::EndSeed {}.at(5, 1_000), 0).unwrap_err();
/// assert_eq!(error.to_string(), "event 5: expected seq 0");
/// assert_eq!(error.code(), "SESSION_CORRUPT");
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("event {seq}: {reason}")]
pub struct FoldError {
    /// The event's seq.
    pub seq: Seq,
    /// What is wrong with it.
    pub reason: String,
}

impl FoldError {
    /// Makes an error about the event at `seq`.
    pub fn new(seq: Seq, reason: impl Into<String>) -> Self {
        Self { seq, reason: reason.into() }
    }

    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        "SESSION_CORRUPT"
    }
}

impl Head {
    /// Tells whether the session has work that a turn must do: see `docs/log-format.md` section 6.
    pub fn has_work(&self) -> bool {
        self.held == 0 && (self.pending_turns > 0 || self.pending_wakes > 0 || self.retry.is_some() || self.open.is_some())
    }

    /// Tells whether somebody should hold the session: it has work, or an epoch that has not ended and may have to be settled for a holder that died.
    pub fn wants_holder(&self) -> bool {
        self.has_work() || (self.live && self.held == 0)
    }

    /// Tells whether the latest turn was not brought to a final end, or is under way.
    pub fn is_unfinished(&self) -> bool {
        self.open.is_some() || self.retry.is_some()
    }

    /// Returns the number of messages that wait in the inbox.
    pub fn pending(&self) -> u64 {
        self.pending_turns + self.pending_wakes + self.pending_quiet
    }

    /// Returns the number of messages that wait: in the inbox, and one more if the newest turn was cut off, whose message is served again. `held` as for
    /// [`Head::turn_state`]: what a live process is about to finish does not wait.
    pub fn waiting(&self, held: bool) -> u64 {
        self.pending() + u64::from(self.turn_state(held) == TurnState::Interrupted)
    }

    /// Returns the message and the number of the newest turn if that was cut off, so that it is served again. `held` as for [`Head::turn_state`].
    pub fn cut_off(&self, held: bool) -> Option<(&MessageId, u64)> {
        match (&self.open, &self.retry) {
            (Some(open), _) => (!held).then_some((&open.message, open.turn)),
            (None, Some(retry)) => Some((&retry.message, self.turns)),
            (None, None) => None,
        }
    }

    /// Returns what the session is doing; `held` tells whether a live process holds it.
    pub fn turn_state(&self, held: bool) -> TurnState {
        match (&self.open, &self.retry) {
            (Some(_), _) if held => TurnState::Open,
            (Some(_), _) | (None, Some(_)) => TurnState::Interrupted,
            (None, None) => TurnState::Idle,
        }
    }

    /// Moves on by one event. Nothing changes when the event is refused.
    ///
    /// # Errors
    /// [`FoldError`] if the event cannot follow: a gap in `seq`, an envelope or a message that breaks a rule by itself, a turn or a step that does not nest,
    /// an epoch that does not count, a compaction that crosses the bounds of its turn.
    pub fn apply(&mut self, event: &Event, seed_length: Seq) -> Result<(), FoldError> {
        let seq = event.seq;
        let refuse = |reason: String| Err(FoldError::new(seq, reason));
        if seq != self.next_seq {
            return refuse(format!("expected seq {}", self.next_seq));
        }
        check_envelope(event)?;
        if seq < seed_length {
            // An inherited prefix brings its surface and its turn numbers along, nothing else.
            if let Body::TurnStart { turn, .. } = event.body {
                self.turns = self.turns.max(turn);
            }
            self.next_seq += 1;
            return Ok(());
        }
        if matches!(event.body, Body::TurnStart { .. } | Body::TurnEnd { .. } | Body::ActivationStart { .. } | Body::ActivationEnd { .. }) {
            self.no_compaction(seq)?;
        }
        match &event.body {
            Body::ActivationStart { epoch } => {
                if self.live || *epoch != self.epoch + 1 {
                    return refuse(format!("epoch {epoch} cannot start after epoch {}", self.epoch));
                }
                self.epoch = *epoch;
                self.live = true;
            }
            Body::ActivationEnd { epoch, .. } => {
                if !self.live || *epoch != self.epoch || self.open.is_some() {
                    return refuse(format!("epoch {epoch} cannot end here"));
                }
                self.live = false;
            }
            Body::TurnStart { turn, message, attempt } => self.start_turn(seq, *turn, message, *attempt)?,
            Body::TurnEnd { turn, reason } => self.end_turn(seq, *turn, reason)?,
            Body::StepStart { turn, step } => {
                let open = self.open_turn(seq, *turn)?;
                if open.step.is_some() || *step != open.steps + 1 {
                    return refuse(format!("step {step} cannot start here"));
                }
                open.step = Some(*step);
                open.steps = *step;
            }
            Body::StepEnd { turn, step, cut } => {
                let open = self.open_turn(seq, *turn)?;
                if open.step != Some(*step) {
                    return refuse(format!("step {step} is not open"));
                }
                open.step = None;
                // A retry repeats the steps of the attempts before it; only what goes further is progress.
                if *cut != Some(true) && *step > open.reached {
                    open.reached = *step;
                    open.progress = true;
                }
            }
            Body::AnswerRecorded { message, attempt, .. } => match &mut self.open {
                Some(open) if open.message == *message && open.attempt == *attempt => open.progress = true,
                _ => return refuse("an answer outside of its attempt at its message".into()),
            },
            Body::EffectAccepted { turn, message, .. } => self.open_turn_of(seq, *turn, message)?.progress = true,
            Body::Memo { turn, message, .. } => drop(self.open_turn_of(seq, *turn, message)?),
            Body::NoteJoined { turn, .. } => {
                let open = self.open_turn(seq, *turn)?;
                // What joins with the start is no work of the attempt: else a turn that notes kill would get an attempt for each.
                open.progress |= seq > open.since + 1;
            }
            // A result that is written anew stays a result of the step in which its call was made, whatever is open now.
            Body::ToolResult { turn, .. } if matches!(event.surface_op, Some(SurfaceOp::Replace { .. })) => {
                if *turn > self.turns {
                    return refuse(format!("turn {turn} has not begun"));
                }
            }
            Body::AssistantMessage { turn, step, .. } => {
                // A behaviour that takes no steps speaks at step 0.
                let open = self.open_turn(seq, *turn)?.step.unwrap_or(0);
                if *step != open {
                    return refuse(format!("it says step {step} while step {open} is open"));
                }
            }
            Body::ToolCall { turn, step, .. } | Body::ToolResult { turn, step, .. } => {
                if self.open_turn(seq, *turn)?.step != Some(*step) {
                    return refuse(format!("step {step} is not open"));
                }
            }
            Body::CompactStart { turn } => self.start_compaction(seq, *turn)?,
            Body::CompactSummary { .. } if self.compacting.is_none() => return refuse("a summary outside of a compaction".into()),
            Body::CompactEnd { turn, .. } => {
                if self.compacting.is_none_or(|compacting| compacting.turn != *turn) {
                    return refuse("no such compaction is under way".into());
                }
                self.compacting = None;
            }
            Body::RootOpened(_)
            | Body::Descriptor(_)
            | Body::EndSeed {}
            | Body::UserMessage(_)
            | Body::CompactSummary { .. }
            | Body::MessageWithdrawn { .. }
            | Body::ControlAnswered { .. }
            | Body::Opaque(_) => {}
        }
        self.next_seq += 1;
        Ok(())
    }

    fn open_turn(&mut self, seq: Seq, turn: u64) -> Result<&mut OpenTurn, FoldError> {
        match &mut self.open {
            Some(open) if open.turn == turn => Ok(open),
            _ => Err(FoldError::new(seq, format!("turn {turn} is not open"))),
        }
    }

    fn open_turn_of(&mut self, seq: Seq, turn: u64, message: &MessageId) -> Result<&mut OpenTurn, FoldError> {
        let open = self.open_turn(seq, turn)?;
        if open.message == *message { Ok(open) } else { Err(FoldError::new(seq, format!("turn {turn} serves another message than {message}"))) }
    }

    fn no_compaction(&self, seq: Seq) -> Result<(), FoldError> {
        let no_end = |compacting: &OpenCompaction| FoldError::new(seq, format!("the compaction of event {} has no end", compacting.since));
        self.compacting.as_ref().map_or(Ok(()), |compacting| Err(no_end(compacting)))
    }

    fn start_compaction(&mut self, seq: Seq, turn: Option<u64>) -> Result<(), FoldError> {
        self.no_compaction(seq)?;
        if turn != self.open.as_ref().map(|open| open.turn) {
            return Err(FoldError::new(seq, "a compaction names the turn that is open, if one is"));
        }
        self.compacting = Some(OpenCompaction { since: seq, turn });
        Ok(())
    }

    fn start_turn(&mut self, seq: Seq, turn: u64, message: &MessageId, attempt: u32) -> Result<(), FoldError> {
        if self.open.is_some() || turn != self.turns + 1 {
            return Err(FoldError::new(seq, format!("turn {turn} cannot start here")));
        }
        let (expected, wasted, reached) = match &self.retry {
            Some(retry) if retry.message == *message => (retry.attempts + 1, retry.wasted, retry.reached),
            Some(retry) => return Err(FoldError::new(seq, format!("message {} is to be served first", retry.message))),
            None => (1, 0, 0),
        };
        if attempt != expected {
            return Err(FoldError::new(seq, format!("attempt {attempt} where {expected} is next")));
        }
        self.turns = turn;
        self.retry = None;
        self.open = Some(OpenTurn { turn, message: message.clone(), attempt, wasted, reached, since: seq, step: None, steps: 0, progress: false });
        Ok(())
    }

    fn end_turn(&mut self, seq: Seq, turn: u64, reason: &TurnEnd) -> Result<(), FoldError> {
        if let Some(step) = self.open_turn(seq, turn)?.step {
            return Err(FoldError::new(seq, format!("step {step} is open")));
        }
        let Some(open) = self.open.take() else { return Ok(()) };
        if !reason.is_final() {
            let wasted = match reason {
                _ if open.progress => 0,
                TurnEnd::Interrupted => open.wasted + 1,
                _ => open.wasted,
            };
            self.retry = Some(Retry { message: open.message, attempts: open.attempt, wasted, reached: open.reached });
        }
        self.last = Some(Outcome { turn, kind: reason.as_str().into(), code: reason.error_code().map(str::to_owned) });
        Ok(())
    }

    /// Counts a message that entered the inbox.
    pub fn accept(&mut self, message: &Message, held: bool) {
        self.next_order += 1;
        self.count(message, held, 1);
    }

    /// Counts a message that is pending, in a head that is being derived again from the rows.
    pub fn pend(&mut self, message: &Message, held: bool) {
        self.count(message, held, 1);
    }

    /// Counts a message that left the inbox.
    pub fn take(&mut self, message: &Message, held: bool) {
        self.count(message, held, -1);
    }

    /// Counts a held record of a message that has left the inbox.
    pub fn hold(&mut self) {
        self.held += 1;
    }

    /// Lets go of every held record.
    pub fn release(&mut self) {
        self.held = 0;
    }

    /// Returns the number of messages that a turn is still to serve or to finish, held or not. Quiet notes are none.
    pub fn outstanding(&self) -> u64 {
        self.pending_turns + self.pending_wakes + u64::from(self.is_unfinished())
    }

    fn count(&mut self, message: &Message, held: bool, by: i64) {
        let counter = match (message.kind, message.wake) {
            (MessageKind::Turn, _) => &mut self.pending_turns,
            (MessageKind::Note, true) => &mut self.pending_wakes,
            (MessageKind::Note, false) => &mut self.pending_quiet,
            (MessageKind::Control, _) => &mut self.pending_controls,
        };
        *counter = counter.saturating_add_signed(by);
        if held {
            self.held = self.held.saturating_add_signed(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::EffectKind;

    fn message() -> MessageId {
        MessageId::new("m").unwrap()
    }

    type Step = fn(u64) -> Body;

    /// Folds attempts at one message, each cut off after these bodies, and returns what is known of them.
    fn cut_off(attempts: &[&[Step]]) -> Retry {
        let mut head = Head::default();
        let apply = |head: &mut Head, body: Body| head.apply(&body.at(head.next_seq, 0), 0).unwrap();
        apply(&mut head, Body::ActivationStart { epoch: 1 });
        for (attempt, bodies) in (1..).zip(attempts) {
            let turn = u64::from(attempt);
            apply(&mut head, Body::TurnStart { turn, message: message(), attempt });
            for body in *bodies {
                apply(&mut head, body(turn));
            }
            apply(&mut head, Body::TurnEnd { turn, reason: TurnEnd::Interrupted });
        }
        head.retry.unwrap()
    }

    const START: Step = |turn| Body::StepStart { turn, step: 1 };
    const END: Step = |turn| Body::StepEnd { turn, step: 1, cut: None };
    const SECOND: Step = |turn| Body::StepStart { turn, step: 2 };
    const SECOND_END: Step = |turn| Body::StepEnd { turn, step: 2, cut: None };
    const SECOND_CUT: Step = |turn| Body::StepEnd { turn, step: 2, cut: Some(true) };
    const CUT: Step = |turn| Body::StepEnd { turn, step: 1, cut: Some(true) };

    #[test]
    fn attempts_without_progress_are_counted_in_a_row() {
        let note: Step = |turn| Body::NoteJoined { turn, notes: vec![message()] };
        // Every attempt here is a turn of its own, from 1.
        let answer: Step = |turn| Body::AnswerRecorded { message: message(), attempt: u32::try_from(turn).unwrap(), text: String::new() };
        let effect: Step =
            |turn| Body::EffectAccepted { turn, message: message(), key: "k".into(), kind: EffectKind::Send, target: "t".into(), id: "i".into() };
        let memo: Step = |turn| Body::Memo { turn, message: message(), key: None, text: String::new() };
        for (attempts, wasted) in [
            (vec![&[][..], &[]], 2),
            (vec![&[START, CUT], &[memo]], 2),
            (vec![&[], &[note]], 2),
            (vec![&[], &[memo, note]], 0),
            (vec![&[], &[answer]], 0),
            (vec![&[], &[effect]], 0),
            (vec![&[], &[START, END]], 0),
            (vec![&[memo, note], &[]], 1),
            (vec![&[START, END], &[START, END]], 1),
            (vec![&[START, END], &[START, END, SECOND, SECOND_END]], 0),
            (vec![&[START, END], &[], &[START, END], &[START, END, SECOND, SECOND_CUT]], 3),
        ] {
            let retry = cut_off(&attempts);
            assert_eq!((retry.wasted, retry.attempts as usize), (wasted, attempts.len()), "{attempts:?}");
        }
    }
}
