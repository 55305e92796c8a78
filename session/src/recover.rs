//! Recovery: the events that close what a crash left open, and begin a new epoch.
//!
//! Pure and deterministic: every synthetic event carries the time of the last real one.

use serde_json::json;

use crate::{
    compact::COMPACTION_INTERRUPTED,
    event::{Body, EpochEnd, Event, Role, SurfaceMessage, TurnEnd},
    fold::{Fold, UnansweredCall},
    head::OpenTurn,
    id::{Epoch, MessageId, Seq},
    message::{Block, Source},
};

/// Code of a message that used up its attempts.
pub const ATTEMPTS_EXHAUSTED: &str = "ATTEMPTS_EXHAUSTED";

/// Code of the result that stands in for one of a tool call that a crash kept from starting.
pub const TOOL_NOT_STARTED: &str = "TOOL_NOT_STARTED";

/// Code of the result that stands in for one of a tool call that was under way at a crash.
pub const TOOL_OUTCOME_UNKNOWN: &str = "TOOL_OUTCOME_UNKNOWN";

/// Returns the events that close what a log leaves open of a compaction and of a turn; none if neither is open.
///
/// A turn that was the last of `max_attempts` attempts without progress is closed as failed, any other as interrupted.
pub fn closers(fold: &Fold, max_attempts: u32) -> Vec<Event> {
    let head = fold.head();
    let mut closers = Closers { events: Vec::new(), next_seq: head.next_seq, time: fold.last_time() };
    if let Some(compacting) = head.compacting {
        closers.push(Body::CompactEnd { turn: compacting.turn, error: Some(COMPACTION_INTERRUPTED.to_owned()) });
    }
    let Some(open) = &head.open else { return closers.events };
    if let Some(step) = open.step {
        for call in fold.unanswered_calls() {
            closers.answer(open, step, call);
        }
        closers.push(Body::StepEnd { turn: open.turn, step, cut: Some(true) });
    }
    let exhausted = !open.progress && open.wasted + 1 >= max_attempts;
    let reason = if exhausted {
        TurnEnd::error(ATTEMPTS_EXHAUSTED, format!("the process ended during each of {} attempts without durable progress", open.wasted + 1))
    } else {
        TurnEnd::Interrupted
    };
    closers.push(Body::TurnEnd { turn: open.turn, reason });
    closers.events
}

/// Closing events that are being put together, all at the time of the last real one.
struct Closers {
    events: Vec<Event>,
    next_seq: Seq,
    time: u64,
}

impl Closers {
    fn push(&mut self, body: Body) {
        self.events.push(body.at(self.seq(), self.time));
    }

    fn seq(&self) -> Seq {
        self.next_seq + self.events.len() as u64
    }

    /// Answers a call that nothing answers any more.
    fn answer(&mut self, open: &OpenTurn, step: u32, call: &UnansweredCall) {
        let seq = self.seq();
        let mut event = stand_in(open, step, call, seq).at(seq, self.time);
        event.source_event_seqs = call.started.map(|seq| vec![seq]);
        self.events.push(event);
    }
}

/// Returns what stands in for the results of calls that the end of a turn leaves open, in their order: whatever ends a turn, whoever reads on finds an answer to each call.
pub fn stand_ins(fold: &Fold) -> Vec<Body> {
    let head = fold.head();
    let Some((open, step)) = head.open.as_ref().and_then(|open| Some((open, open.step?))) else { return Vec::new() };
    (head.next_seq..).zip(fold.unanswered_calls()).map(|(seq, call)| stand_in(open, step, call, seq)).collect()
}

/// Returns what is said of a call that was cut off, before or after it started: the kind of error, its code, and what the model sees.
///
/// ```
/// use greenroom_session::recover::{TOOL_OUTCOME_UNKNOWN, said_of_cut_call};
/// let (_, code, text) = said_of_cut_call(true);
/// assert_eq!(code, TOOL_OUTCOME_UNKNOWN);
/// assert!(text.contains("whether it took effect is unknown"));
/// ```
pub fn said_of_cut_call(started: bool) -> (&'static str, &'static str, &'static str) {
    if started {
        let text = "The call was cut off after it started; whether it took effect is unknown. Repeat it only if it only reads or may safely run twice; otherwise look at the \
                    state first, or ask.";
        ("ToolOutcomeUnknownError", TOOL_OUTCOME_UNKNOWN, text)
    } else {
        ("ToolNotStartedError", TOOL_NOT_STARTED, "The call was cut off before it started. Call again if it is still needed.")
    }
}

fn stand_in(open: &OpenTurn, step: u32, call: &UnansweredCall, seq: Seq) -> Body {
    let (name, code, text) = said_of_cut_call(call.started.is_some());
    let call_id = &call.call_id;
    // A model may choose an id that is too long for ours.
    let id = MessageId::new(format!("interrupted-tool-result-{}-{seq}", call_id.replace('\0', "")))
        .or_else(|_| MessageId::new(format!("interrupted-tool-result-{seq}")))
        .unwrap_or_else(|_| open.message.clone());
    let content = vec![Block::ToolResult { call_id: call_id.clone(), text: text.to_owned(), is_error: true }];
    let message = SurfaceMessage { id, role: Role::Tool, content, source: Source::Tool { call_id: call_id.clone() } };
    Body::ToolResult { turn: open.turn, step, message, error: Some(json!({"name": name, "code": code})) }
}

/// Returns the events that begin the next epoch: closers of an open turn, the end of a lost epoch, the start of the new one.
pub fn begin_epoch(fold: &Fold, time: u64, max_attempts: u32) -> (Epoch, Vec<Event>) {
    let mut events = closers(fold, max_attempts);
    let head = fold.head();
    let mut seq = head.next_seq + events.len() as u64;
    let epoch = head.epoch + 1;
    if head.live {
        events.push(Body::ActivationEnd { epoch: head.epoch, reason: EpochEnd::Lost }.at(seq, fold.last_time()));
        seq += 1;
    }
    events.push(Body::ActivationStart { epoch }.at(seq, time));
    (epoch, events)
}

#[cfg(test)]
mod tests;
