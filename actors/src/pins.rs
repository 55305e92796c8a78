//! Pins: which sessions are kept live by handles.
//!
//! They belong to the handles and not to the Registry, so that they outlast a generation of actors and so that no lost message can leave one behind.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use greenroom_session::id::SessionId;

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
