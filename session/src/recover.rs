//! Recovery: the events that close what a crash left open, and begin a new epoch.
//!
//! Pure and deterministic: every synthetic event carries the time of the last real one.

use serde_json::json;

use crate::{
    event::{Body, EpochEnd, Event, Role, SurfaceMessage, TurnEnd},
    fold::Fold,
    id::{Epoch, MessageId},
    message::{Block, Source},
};

/// Code of a message that used up its attempts.
pub const ATTEMPTS_EXHAUSTED: &str = "ATTEMPTS_EXHAUSTED";

/// Returns the events that close an open turn; none if no turn is open.
///
/// A turn that was the last of `max_attempts` attempts without progress is closed as failed, any other as interrupted.
pub fn closers(fold: &Fold, max_attempts: u32) -> Vec<Event> {
    let Some(open) = &fold.head().open else { return Vec::new() };
    let time = fold.last_time();
    let mut seq = fold.head().next_seq;
    let mut events = Vec::new();
    let mut push = |body: Body, sources: Option<Vec<u64>>| {
        let mut event = body.at(seq, time);
        event.source_event_seqs = sources;
        events.push(event);
        seq += 1;
    };
    if let Some(step) = open.step {
        for call in fold.unanswered_calls() {
            let (name, code, text) = match call.started {
                None => ("ToolNotStartedError", "TOOL_NOT_STARTED", "The call was cut off before it started. Call again if it is still needed."),
                Some(_) => (
                    "ToolOutcomeUnknownError",
                    "TOOL_OUTCOME_UNKNOWN",
                    "The call was cut off after it started; whether it took effect is unknown. Repeat it only if it only reads or may safely run twice; otherwise look at the state first, or ask.",
                ),
            };
            let id = MessageId::new(format!("interrupted-{}-{}", call.call_id.replace('\0', ""), open.turn)).unwrap_or_else(|_| open.message.clone());
            let message = SurfaceMessage {
                id,
                role: Role::Tool,
                content: vec![Block::ToolResult { call_id: call.call_id.clone(), text: text.to_owned(), is_error: true }],
                source: Source::Tool { call_id: call.call_id.clone() },
            };
            push(Body::ToolResult { turn: open.turn, step, message, error: Some(json!({"name": name, "code": code})) }, call.started.map(|seq| vec![seq]));
        }
        push(Body::StepEnd { turn: open.turn, step, cut: Some(true) }, None);
    }
    let exhausted = !open.progress && open.wasted + 1 >= max_attempts;
    let reason = if exhausted {
        TurnEnd::error(ATTEMPTS_EXHAUSTED, format!("the process ended during each of {} attempts without durable progress", open.wasted + 1))
    } else {
        TurnEnd::Interrupted
    };
    push(Body::TurnEnd { turn: open.turn, reason }, None);
    events
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
