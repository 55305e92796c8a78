//! Pins: which sessions are kept live by handles, and which are played by hosts.
//!
//! Pins belong to the handles and not to the Registry, so that they outlast a generation of actors and so that no lost message can leave one behind.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use greenroom_session::id::{Epoch, SessionId};

/// The pins of one system, counted per session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pins(Arc<Mutex<BTreeMap<SessionId, usize>>>);

impl Pins {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, session: &SessionId) {
        *self.lock().entry(session.clone()).or_default() += 1;
    }

    pub(crate) fn remove(&self, session: &SessionId) {
        let mut pins = self.lock();
        if let Some(count) = pins.get_mut(session) {
            *count -= 1;
            if *count == 0 {
                pins.remove(session);
            }
        }
    }

    pub(crate) fn has(&self, session: &SessionId) -> bool {
        self.lock().contains_key(session)
    }

    pub(crate) fn all(&self) -> Vec<SessionId> {
        self.lock().keys().cloned().collect()
    }
}

/// The epochs that were begun for hosts and have not been ended, one per session. What is left of a publication that failed stands here until somebody has ended its epoch,
/// so that no generation takes it for an agent's.
#[derive(Debug, Clone, Default)]
pub(crate) struct Played(Arc<Mutex<BTreeMap<SessionId, Mark>>>);

#[derive(Debug)]
struct Mark {
    epoch: Epoch,
    knocked: bool,
}

impl Played {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an epoch that is about to begin. It ends whatever came before it.
    pub(crate) fn begin(&self, session: &SessionId, epoch: Epoch) {
        let mut played = self.lock();
        let knocked = played.get(session).is_some_and(|mark| mark.knocked);
        played.insert(session.clone(), Mark { epoch, knocked });
    }

    /// Forgets an epoch, unless a later one has begun. Tells whether somebody has knocked meanwhile.
    pub(crate) fn end(&self, session: &SessionId, epoch: Epoch) -> bool {
        let mut played = self.lock();
        if played.get(session).is_some_and(|mark| mark.epoch == epoch) { played.remove(session).is_some_and(|mark| mark.knocked) } else { false }
    }

    /// Remembers that a session is to be woken when its epoch has been ended. Returns false if there is none.
    pub(crate) fn knock(&self, session: &SessionId) -> bool {
        self.lock().get_mut(session).map(|mark| mark.knocked = true).is_some()
    }

    /// Returns the newest epoch that has not been ended.
    pub(crate) fn of(&self, session: &SessionId) -> Option<Epoch> {
        self.lock().get(session).map(|mark| mark.epoch)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}
