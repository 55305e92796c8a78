//! Settling: how an idle Activation ends without losing a message.
//!
//! The Registry is asked first, so that a parent outlives its live children. Then the parent is told, and last the epoch is closed by a
//! transaction that the store refuses if anything is pending, whoever put it there. A refusal at any step means: go on.

use std::sync::Arc;

use greenroom_session::{
    descriptor::Mode,
    event::{Body, EpochEnd},
    fold::{DescriptorState, Fold},
    head,
    id::{Epoch, SessionId, notice_id},
    message::{Message, Source, text_of},
    store::{Done, Refused},
};
use tokio::sync::oneshot;

use super::{ActivationState, Next};
use crate::{error::WriteError, race::race_point, registry::RegistryMessage};

/// How often an Activation without work lets others run before it settles.
const PATIENCE: usize = 8;

impl ActivationState {
    /// Settles if nothing keeps the epoch; to be called when the store had nothing to serve.
    pub(super) async fn settle(&mut self) -> Result<Next, WriteError> {
        // Ending an epoch and beginning the next costs many times a turn: whoever is about to deliver goes first.
        for _ in 0..PATIENCE {
            tokio::task::yield_now().await;
            if self.view.gate.is_knocked() {
                // That knock's wake is in the mailbox.
                return Ok(Next::Stay);
            }
        }
        race_point!("before-settle");
        let incarnation = self.incarnation;
        let session = self.view.id().clone();
        let (reply, granted) = oneshot::channel();
        if self.registry.send_message(RegistryMessage::Settle { session: session.clone(), incarnation, reply }).is_err() {
            return Ok(Next::Leave(EpochEnd::Failed));
        }
        // Refused: the Registry wakes this Activation when its last child has ended or its last handle is gone.
        if !granted.await.unwrap_or(false) {
            return Ok(Next::Stay);
        }
        self.view.set_ending(true);
        race_point!("settle-granted");
        self.send_notice().await?;
        race_point!("before-close");
        match self.close_settled().await {
            Ok(()) => {
                race_point!("closed");
                Ok(Next::Leave(EpochEnd::Settled))
            }
            Err(WriteError::Refused(Refused::Pending(_))) => {
                self.view.set_ending(false);
                drop(self.registry.send_message(RegistryMessage::Stays { session, incarnation }));
                // Whoever made it pending knocks after that; if it was another process, nobody here does.
                self.view.wake();
                Ok(Next::Stay)
            }
            Err(error) => Err(error),
        }
    }

    async fn close_settled(&mut self) -> Result<(), WriteError> {
        let guarded = !planted_bug();
        self.view.log.close(vec![Body::ActivationEnd { epoch: self.view.epoch, reason: EpochEnd::Settled }], guarded).await
    }

    /// Tells the parent how the newest turn ended. Durable before the epoch ends; one turn is told of once, also when the epoch that ran it was lost.
    async fn send_notice(&mut self) -> Result<(), WriteError> {
        let (epoch, now) = (self.view.epoch, self.services.now());
        let Some(notice) = self.view.log.look(|fold| notice(fold, epoch, now)) else { return Ok(()) };
        let Some(parent) = self.view.header.parent.clone() else { return Ok(()) };
        let grandparent = self.services.live.get(&parent).and_then(|view| view.header.parent.clone());
        told(self.view.id(), self.services.accept(&parent, None, grandparent.as_ref(), Arc::new(notice)).await)
    }
}

/// Judges what became of a notice.
pub(crate) fn told(session: &SessionId, accepted: Result<Done, WriteError>) -> Result<(), WriteError> {
    match accepted {
        // An earlier epoch has told of this turn.
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
    header.parent.as_ref()?;
    let last = fold.head().last.clone()?;
    let descriptor = match fold.descriptor() {
        DescriptorState::One { parsed: Ok(descriptor), .. } => Some(descriptor),
        _ => None,
    };
    // Whoever started a one-shot child waits for its answer and is not told twice.
    if descriptor.is_some_and(|descriptor| descriptor.mode == Mode::OneShot) {
        return None;
    }
    let label = descriptor.and_then(|descriptor| descriptor.label.as_deref()).unwrap_or("no label");
    let mut text = format!("Subagent {} ({label}) has settled: its last turn {}.", header.id, outcome_words(&last));
    match fold.last_said().map(|message| text_of(&message.content)).filter(|answer| !answer.is_empty()) {
        Some(answer) => {
            text.push_str(" Its last message:\n");
            text.push_str(excerpt(&answer));
            if answer.len() > QUOTED_BYTES {
                text.push_str("… (the rest is in its log)");
            }
        }
        None => text.push_str(" It left no message."),
    }
    let id = notice_id(&header.id, last.turn);
    let source = Source::SubagentSettled { session: header.id.clone(), epoch, outcome: last.kind.into_owned(), code: last.code };
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

fn outcome_words(last: &head::Outcome) -> String {
    match (&*last.kind, &last.code) {
        ("error", Some(code)) => format!("failed with {code}"),
        ("max_tokens", _) => "ran out of output tokens".to_owned(),
        ("aborted", _) => "was stopped".to_owned(),
        ("disposed" | "interrupted", _) => "was cut off".to_owned(),
        (kind, _) => kind.to_owned(),
    }
}

#[cfg(test)]
fn planted_bug() -> bool {
    plant::UNGUARDED.get()
}

#[cfg(not(test))]
const fn planted_bug() -> bool {
    false
}

/// Lets a test take the guard out of settling, to show that the sweep finds it.
#[cfg(test)]
pub(crate) mod plant {
    use std::cell::Cell;
    thread_local! {
        pub(crate) static UNGUARDED: Cell<bool> = const { Cell::new(false) };
    }
}
