//! Settling: how an idle Activation ends without losing a message.
//!
//! The Registry is asked first, so that a parent outlives its live children. Then the parent is told, and last the epoch is closed by a
//! transaction that the store refuses if anything is pending, whoever put it there. A refusal at any step means: go on.

use std::sync::Arc;

use greenroom_session::{
    event::{Body, EpochEnd, TurnEnd as TurnReason},
    id::notice_id,
    message::{Message, Source, text_of},
    store::Refused,
};
use tokio::sync::oneshot;

use super::{ActivationState, Next, Outcome};
use crate::{error::WriteError, race::race_point, registry::RegistryMessage};

impl ActivationState {
    /// Settles if nothing keeps the epoch; to be called when the store had nothing to serve.
    pub(super) async fn settle(&mut self) -> Outcome {
        race_point!("before-settle");
        let incarnation = self.guard.incarnation;
        let session = self.view.id().clone();
        let (reply, granted) = oneshot::channel();
        if self.guard.registry.send_message(RegistryMessage::Settle { session: session.clone(), incarnation, reply }).is_err() {
            return Ok(Next::Leave(EpochEnd::Failed));
        }
        // Refused: the Registry wakes this Activation when its last child has ended or its last handle is gone.
        if !granted.await.unwrap_or(false) {
            return Ok(Next::Stay);
        }
        race_point!("settle-granted");
        self.send_notice().await?;
        race_point!("before-close");
        match self.close_settled().await {
            Ok(()) => {
                race_point!("closed");
                Ok(Next::Leave(EpochEnd::Settled))
            }
            Err(WriteError::Refused(Refused::Pending(_))) => {
                drop(self.guard.registry.send_message(RegistryMessage::Stays { session, incarnation }));
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

    /// Tells the parent. The notice is durable before the epoch ends; the same notice twice is one.
    async fn send_notice(&mut self) -> Result<(), WriteError> {
        let (Some(parent), Some((turn, reason))) = (self.view.header.parent.clone(), &self.last) else { return Ok(()) };
        if self.served == 0 {
            return Ok(());
        }
        let (label, answer) = self.view.log.look(|fold| {
            let label = match fold.descriptor() {
                greenroom_session::fold::DescriptorState::One { parsed: Ok(descriptor), .. } => descriptor.label.clone(),
                _ => None,
            };
            let answer = fold
                .surface()
                .messages()
                .rev()
                .find(|message| message.role == greenroom_session::event::Role::Assistant)
                .map(|message| text_of(&message.content));
            (label, answer)
        });
        let mut text =
            format!("Subagent {} ({}) has settled: its last turn {}.", self.view.id(), label.as_deref().unwrap_or("no label"), outcome_words(reason));
        match answer.filter(|answer| !answer.is_empty()) {
            Some(answer) => {
                text.push_str(" Its last message:\n");
                text.push_str(&answer);
            }
            None => text.push_str(" It left no message."),
        }
        let source = Source::SubagentSettled {
            session: self.view.id().clone(),
            epoch: self.view.epoch,
            outcome: reason.as_str().to_owned(),
            code: reason.error_code().map(str::to_owned),
        };
        let id = notice_id(self.view.id(), self.view.epoch, *turn);
        let message = Message {
            id,
            kind: greenroom_session::message::MessageKind::Note,
            content: vec![greenroom_session::message::Block::text(text)],
            source,
            sent_at: self.services.now(),
            wake: true,
            control: None,
        };
        let grandparent = self.services.live.get(&parent).and_then(|view| view.header.parent.clone());
        match self.services.accept(&parent, grandparent.as_ref(), Arc::new(message)).await {
            Ok(_) => Ok(()),
            // A parent that is gone, damaged or flooded must not keep its child from settling; its log still tells the outcome.
            Err(WriteError::Refused(refused)) => {
                tracing::warn!(session = %self.view.id(), code = refused.code(), %refused, "the parent could not be told of a settlement");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

fn outcome_words(reason: &TurnReason) -> String {
    match reason {
        TurnReason::Completed => "completed".to_owned(),
        TurnReason::MaxTokens => "ran out of output tokens".to_owned(),
        TurnReason::Aborted { cause } => format!("was stopped ({cause})"),
        TurnReason::Error { code, message } => format!("failed with {code}: {message}"),
        TurnReason::Disposed | TurnReason::Interrupted => "was cut off".to_owned(),
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
