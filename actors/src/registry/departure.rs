//! How a session leaves: who may settle, who stays after all, and what follows an end.

use std::sync::Arc;

use greenroom_session::{event::EpochEnd, id::SessionId};
use ractor::ActorRef;

use super::{
    arrival::look_again,
    entry::{Entry, State, refuse},
    message::{Incarnation, RegistryMessage},
    state::{RegistryState, is_kept},
};
use crate::{
    activation::Failure,
    error::{ActivateError, WriteError},
    services::Services,
};

impl RegistryState {
    pub(super) fn may_settle(&mut self, session: &SessionId, incarnation: Incarnation) -> bool {
        let (owns, pinned) = (is_kept(&self.owned, &self.entries, session), self.pins.has(session));
        let Some(entry) = self.entry(session, incarnation) else { return false };
        let State::Live(view) = &entry.state else { return false };
        if pinned {
            entry.idle = true;
            return false;
        }
        if owns {
            entry.wants_settle = true;
            return false;
        }
        entry.state = State::Closing(view.clone());
        true
    }

    pub(super) fn stays(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, session: &SessionId, incarnation: Incarnation) {
        if let Some(entry) = self.entry(session, incarnation)
            && let State::Closing(view) = &entry.state
        {
            let view = view.clone();
            entry.state = State::Live(view.clone());
            // Whoever asked for it while it was on its way out has it now.
            for reply in std::mem::take(&mut entry.waiting) {
                drop(reply.send(Ok(view.clone())));
            }
            if std::mem::take(&mut entry.rewake) {
                view.wake();
            }
            self.end_if_due(myself, services, &view);
        }
    }

    pub(super) fn ended(
        &mut self,
        myself: &ActorRef<RegistryMessage>,
        services: &Arc<Services>,
        session: &SessionId,
        incarnation: Incarnation,
        (reason, failures): (EpochEnd, Vec<Failure>),
        knocked: bool,
    ) {
        let pinned = self.pins.has(session);
        let Some(entry) = self.entry(session, incarnation) else { return };
        let view = entry.view().cloned();
        let is_closed = view.as_ref().is_some_and(|view| !view.is_published() && services.closed.covers(session, &view.lineage));
        if is_closed {
            // What waits stays where it is.
            refuse(std::mem::take(&mut entry.waiting), &ActivateError::Draining);
        }
        let awaited = !entry.waiting.is_empty();
        let wanted = entry.rewake || knocked || pinned || awaited;
        let (is_published, parent, rewake) = (entry.is_published(), entry.parent.clone(), entry.rewake);
        if reason != EpochEnd::Settled {
            self.note_cut_off(services, session, parent.as_ref());
        }
        self.fail(session, failures);
        self.gone(session);
        match reason {
            _ if is_closed => self.leave(myself, services, session, false),
            // Its guard looks after what it has left.
            EpochEnd::Failed | EpochEnd::Fenced if is_published => {
                let knocked = knocked || rewake;
                self.leave(myself, services, session, false);
                if knocked {
                    self.wake(myself, services, session.clone(), parent);
                }
            }
            EpochEnd::Failed | EpochEnd::Fenced if !awaited => {
                // What made it fail may still be there: look again, but not at once. Whoever fenced it may be gone by then; if not, looking costs little.
                self.leave(myself, services, session, false);
                look_again(myself, session.clone(), parent);
            }
            _ => self.leave(myself, services, session, wanted),
        }
    }

    /// Notes that a session keeps its parent no longer.
    pub(super) fn disown(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, session: &SessionId, parent: &SessionId) {
        let Some(children) = self.owned.get_mut(parent) else { return };
        children.remove(session);
        let was_last = children.is_empty();
        if was_last {
            self.owned.remove(parent);
        }
        let is_free = !is_kept(&self.owned, &self.entries, parent);
        if is_free && self.waits.childless.contains_key(parent) {
            self.waits.changed.insert(parent.clone());
        }
        if let Some(Entry { state: State::Live(view), wants_settle, .. }) = self.entries.get_mut(parent) {
            if is_free && std::mem::take(wants_settle) {
                view.wake();
            }
            let view = view.clone();
            self.end_if_due(myself, services, &view);
        }
    }

    /// Removes an entry, and starts the session again if somebody waits for it.
    pub(super) fn leave(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, session: &SessionId, again: bool) {
        let Some(mut entry) = self.entries.remove(session) else { return };
        services.live.remove(session);
        if self.waits.gone.contains_key(session) {
            self.waits.changed.insert(session.clone());
        }
        if let Some(parent) = &entry.parent {
            self.disown(myself, services, session, parent);
        }
        let waiting = std::mem::take(&mut entry.waiting);
        match entry.take_host() {
            // A host that asked while somebody looked for work comes before what that look would be repeated for.
            Some(publishing) if waiting.is_empty() && !services.is_draining() => self.begin_publication(myself, services, publishing, again),
            publish => {
                if again {
                    self.start(myself, services, session.clone(), entry.parent.take(), waiting);
                } else {
                    refuse(waiting, &ActivateError::Write(WriteError::Ended));
                }
                if let Some(publishing) = publish {
                    self.publish(myself, services, publishing);
                }
            }
        }
    }
}
