//! The notice of a settlement: what a parent is told when a child of its comes to rest.
//!
//! It tells of everything since the child has settled last, and of nothing before: how the work on the newest message ended, what was said last, what was taken
//! back before it had a turn. What the parent was told once it is not told again, in whichever epoch the child settles.

use std::fmt::Write as _;

use greenroom_session::{
    descriptor::Mode,
    event::TurnEnd,
    fold::Fold,
    id::{Epoch, SessionId, notice_id, taken_back_notice_id},
    message::{Message, Source, text_of},
    store::{Done, Refused},
};

use crate::error::WriteError;

/// Judges what became of a notice.
pub(crate) fn told(session: &SessionId, accepted: Result<Done, WriteError>) -> Result<(), WriteError> {
    match accepted {
        // An earlier epoch has told of this.
        Ok(_) | Err(WriteError::Refused(Refused::MessageIdConflict(_))) => Ok(()),
        // A parent that is gone, damaged or flooded must not keep its child from settling; its log still tells the outcome.
        Err(WriteError::Refused(refused)) => {
            tracing::warn!(%session, code = refused.code(), %refused, "the parent could not be told of a settlement");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Returns what a session's parent is told when the session settles; `None` if there is nobody or nothing to tell.
pub(crate) fn notice(fold: &Fold, epoch: Epoch, now: u64) -> Option<Message> {
    let header = fold.header();
    // The session that a fork was taken from has nothing to do with it.
    if !header.is_subagent() {
        return None;
    }
    let descriptor = fold.described();
    // Whoever started a one-shot child waits for its answer and is not told twice, unless it said otherwise.
    if descriptor.is_some_and(|descriptor| descriptor.mode == Mode::OneShot && !descriptor.notice) {
        return None;
    }
    let (settled, taken_back) = (fold.settled(), fold.taken_back());
    let turn = fold.head().last.as_ref().map(|last| last.turn).filter(|turn| *turn > settled.turns);
    let id = match (&taken_back.newest, turn) {
        (Some(newest), _) => taken_back_notice_id(&header.id, newest),
        (None, Some(turn)) => notice_id(&header.id, turn),
        (None, None) => return None,
    };
    let label = descriptor.and_then(|descriptor| descriptor.label.as_deref()).unwrap_or("no label");
    let mut text = format!("Subagent {} ({label}) has settled", header.id);
    let end = if turn.is_some() {
        // A turn that only took notes makes no failure good.
        let end = fold.outcome_after(settled.turns).cloned().unwrap_or(TurnEnd::Completed);
        write!(text, ": its last turn {}.", words(&end)).ok()?;
        end
    } else {
        text.push_str(" without a turn.");
        TurnEnd::Aborted { cause: String::new() }
    };
    match taken_back.count {
        0 => {}
        1 => text.push_str(" One message was taken back before its turn."),
        count => write!(text, " {count} messages were taken back before their turns.").ok()?,
    }
    match fold.last_said_since(settled.since).map(|message| text_of(&message.content)).filter(|answer| !answer.is_empty()) {
        Some(answer) => {
            text.push_str(" Its last message:\n");
            text.push_str(excerpt(&answer));
            if answer.len() > QUOTED_BYTES {
                text.push_str("… (the rest is in its log)");
            }
        }
        None => text.push_str(" It left no message."),
    }
    let code = end.error_code().map(str::to_owned);
    let source = Source::SubagentSettled { session: header.id.clone(), epoch, outcome: end.as_str().to_owned(), code };
    match Message::note(id, text, source, now, false) {
        Ok(notice) => Some(notice),
        Err(error) => {
            // A quote of this length always fits.
            tracing::error!(session = %header.id, %error, "a notice could not be made");
            None
        }
    }
}

/// Most of a session's last message that the notice of its settlement quotes, in bytes.
const QUOTED_BYTES: usize = 64 * 1024;

/// Returns as much of a text as a notice quotes, cut between two characters.
fn excerpt(text: &str) -> &str {
    let mut end = QUOTED_BYTES.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or(text)
}

fn words(end: &TurnEnd) -> String {
    match (end.as_str(), end.error_code()) {
        ("error", Some(code)) => format!("failed with {code}"),
        ("max_tokens", _) => "ran out of output tokens".to_owned(),
        ("aborted", _) => "was stopped".to_owned(),
        ("disposed" | "interrupted", _) => "was cut off".to_owned(),
        (kind, _) => kind.to_owned(),
    }
}
