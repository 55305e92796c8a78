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

    pub(super) fn stays(&mut self, services: &Services, session: &SessionId, incarnation: Incarnation) {
        let is_due = services.is_draining() && !self.owned.contains_key(session);
        if let Some(entry) = self.entry(session, incarnation)
            && let State::Closing(view) = &entry.state
        {
            if is_due {
                view.shut_down();
            }
            entry.state = State::Live(view.clone());
        }
    }

    pub(super) fn ended(
        &mut self,
        myself: &ActorRef<RegistryMessage>,
        services: &Arc<Services>,
        session: &SessionId,
        incarnation: Incarnation,
        reason: EpochEnd,
        knocked: bool,
    ) {
        let pinned = self.pins.has(session);
        let Some(entry) = self.entry(session, incarnation) else { return };
        let awaited = !entry.waiting.is_empty();
        let wanted = entry.rewake || knocked || pinned || awaited;
        match reason {
            // Its guard looks after what it has left.
            EpochEnd::Failed | EpochEnd::Fenced if entry.is_published() => {
                let parent = entry.parent.clone();
                let knocked = knocked || entry.rewake;
                self.leave(myself, services, session, false);
                if knocked {
                    self.wake(myself, services, session.clone(), parent);
                }
            }
            EpochEnd::Failed | EpochEnd::Fenced if !awaited => {
                // What made it fail may still be there: look again, but not at once. Whoever fenced it may be gone by then; if not, looking costs little.
                let parent = entry.parent.clone();
                self.leave(myself, services, session, false);
                look_again(myself, session.clone(), parent);
            }
            _ => self.leave(myself, services, session, wanted),
        }
    }

    /// Removes an entry, and starts the session again if somebody waits for it.
    pub(super) fn leave(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, session: &SessionId, again: bool) {
        let Some(mut entry) = self.entries.remove(session) else { return };
        services.live.remove(session);
        if self.waits.gone.contains_key(session) {
            self.waits.changed.insert(session.clone());
        }
        if let Some(parent) = &entry.parent
            && let Some(children) = self.owned.get_mut(parent)
        {
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
                if was_last && services.is_draining() {
                    view.shut_down();
                }
            }
        }
        match entry.take_host() {
            // A host that asked while somebody looked for work comes before what that look would be repeated for.
            Some(publishing) if entry.waiting.is_empty() && !services.is_draining() => self.begin_publication(myself, services, publishing, again),
            publish => {
                if again {
                    self.start(myself, services, session.clone(), entry.parent, entry.waiting);
                } else {
                    refuse(entry.waiting, &ActivateError::Write(WriteError::Ended));
                }
                if let Some(publishing) = publish {
                    self.publish(myself, services, publishing);
                }
            }
        }
    }

    /// Ends every live session that owns no other. The end of the last that a parent owns ends the parent.
    pub(super) fn drain(&mut self) {
        let mut free: Vec<_> = self
            .entries
            .iter()
            .filter_map(|(session, entry)| match &entry.state {
                State::Live(view) if !self.owned.contains_key(session) => Some(view),
                _ => None,
            })
            .collect();
        // In an order that a seed repeats.
        free.sort_by(|a, b| a.id().cmp(b.id()));
        for view in free {
            view.shut_down();
        }
    }
}
