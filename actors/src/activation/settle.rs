//! Settling: how an idle Activation ends without losing a message.
//!
//! The Registry is asked first, so that a parent outlives its live children. Then the parent is told, and last the epoch is closed by a
//! transaction that the store refuses if anything is pending, whoever put it there. A refusal at any step means: go on.

use std::sync::Arc;

use greenroom_session::{
    descriptor::Mode,
    event::{Body, EpochEnd},
    fold::{DescriptorState, Fold},
    head::Head,
    store::{Reader, Refused, StoreError, Traced},
};
use tokio::sync::oneshot;

use super::{
    ActivationState, Next,
    notice::{notice, told},
};
use crate::{behind::go_behind, error::WriteError, race::race_point, registry::RegistryMessage};

/// How often an Activation without work lets others run before it settles.
const PATIENCE: usize = 8;

impl ActivationState {
    /// Settles if nothing keeps the epoch; to be called when the store had nothing to serve.
    pub(super) async fn settle(&mut self) -> Result<Next, WriteError> {
        // Ending an epoch and beginning the next costs many times a turn: whoever is about to deliver goes first.
        for _ in 0..PATIENCE {
            go_behind().await;
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

    /// Settles an epoch that is put aside, if the parent has something to hear and nothing is left to do: no later epoch would begin by itself and tell it.
    /// Whoever has children that were cut off does not, if it will hear of one of them: it comes back then. Returns false if the epoch is to be disposed of.
    pub(super) async fn settle_aside(&mut self) -> Result<bool, WriteError> {
        if self.view.log.look(|fold| fold.head().open.is_some()) {
            return Ok(false);
        }
        let (epoch, now) = (self.view.epoch, self.services.now());
        let (Some(notice), Some(parent)) = (self.view.log.look(|fold| notice(fold, epoch, now)), self.view.header.parent.clone()) else {
            return Ok(false);
        };
        if self.has_work().await || self.hears_of_children().await {
            return Ok(false);
        }
        // The parent is about to be put aside, too, and not woken: the notice is work that brings it back.
        if told(self.view.id(), self.services.leave_message(&parent, Arc::new(notice)).await).is_err() {
            return Ok(false);
        }
        race_point!("aside-told");
        match self.close_settled().await {
            Ok(()) => Ok(true),
            Err(WriteError::Refused(Refused::Pending(_))) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Tells whether a child that was cut off has something left to do, or to tell, and will be told of when that is done. Nobody is told of a one-shot child.
    async fn hears_of_children(&mut self) -> bool {
        let (children, behaviors) = (self.view.take_cut_off(), self.services.config.clone());
        if children.is_empty() {
            return false;
        }
        let look = move |reader: &mut dyn Reader| {
            let will_tell = |fold: &Fold| {
                let is_played = fold.agent().is_some_and(|agent| behaviors.behaviors.contains_key(agent));
                is_played && is_continuable(fold) && (fold.head().has_work() || notice(fold, fold.head().epoch, 0).is_some())
            };
            // What cannot be read cannot run.
            Ok::<_, StoreError>(children.iter().any(|child| reader.folded(child).is_ok_and(|fold| will_tell(&fold))))
        };
        self.services.readers.read(look).await.unwrap_or(false)
    }

    /// Tells whether a message waits that opens a turn.
    pub(super) async fn has_more(&mut self) -> bool {
        self.view.gate.is_knocked() || self.stored_head().await.is_none_or(|head| head.pending_turns + head.pending_wakes > 0)
    }

    /// Tells whether anything is left to do; what cannot be asked may have something.
    async fn has_work(&mut self) -> bool {
        self.stored_head().await.is_none_or(|head| head.has_work())
    }

    /// Asks the store; what waits is not in the fold of a live session.
    async fn stored_head(&mut self) -> Option<Head> {
        let header = self.view.header.clone();
        let described = self.services.readers.read(move |reader| {
            let traced = Traced { id: header.id.clone(), created_at: header.created_at, header: Ok(header) };
            Ok::<_, StoreError>(reader.describe(std::slice::from_ref(&traced), false)?.pop())
        });
        described.await.ok()??.ok().map(|description| description.head)
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

fn is_continuable(fold: &Fold) -> bool {
    matches!(fold.descriptor(), DescriptorState::One { parsed: Ok(descriptor), .. } if descriptor.mode == Mode::Continuable)
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
