//! Which contributions are registered, and what each has installed.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::{SetupContribution, installed::Slot};

/// The contributions of one system, in the order of their registration. They outlast a generation of actors.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setups(Arc<Mutex<Vec<Arc<Registered>>>>);

impl Setups {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Registered>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, contribution: impl SetupContribution) -> Arc<Registered> {
        let registered = Arc::new(Registered { contribution: Box::new(contribution), installed: Mutex::default() });
        self.lock().push(registered.clone());
        registered
    }

    /// Takes a contribution out: no start applies it any more, and what it has installed is released.
    pub(crate) fn remove(&self, registered: &Arc<Registered>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, registered));
        registered.revoke();
    }

    /// Tells whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns those that are registered now.
    pub(super) fn all(&self) -> Vec<Arc<Registered>> {
        self.lock().clone()
    }
}

/// A contribution that was registered.
pub(crate) struct Registered {
    pub(super) contribution: Box<dyn SetupContribution>,
    installed: Mutex<Installations>,
}

#[derive(Default)]
struct Installations {
    revoked: bool,
    next: u64,
    /// In order, so that a removal releases in the order of the installations.
    slots: BTreeMap<u64, Weak<Slot>>,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").finish_non_exhaustive()
    }
}

impl Registered {
    fn lock(&self) -> MutexGuard<'_, Installations> {
        self.installed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.lock().revoked
    }

    /// Notes an installation, which a removal releases from here on. Returns its number; `None` if the contribution was removed while it was applied.
    pub(super) fn enter(&self, slot: &Weak<Slot>) -> Option<u64> {
        let mut installed = self.lock();
        if installed.revoked {
            return None;
        }
        installed.next += 1;
        let number = installed.next;
        installed.slots.insert(number, slot.clone());
        Some(number)
    }

    pub(super) fn leave(&self, number: u64) {
        self.lock().slots.remove(&number);
    }

    fn revoke(&self) {
        let slots = {
            let mut installed = self.lock();
            installed.revoked = true;
            std::mem::take(&mut installed.slots)
        };
        // What a contribution does must not meet a lock of ours.
        for slot in slots.into_values().filter_map(|slot| slot.upgrade()) {
            slot.revoke();
        }
    }
}
