//! What contributions have installed for one Activation, from its start to its end.

use std::{
    any::Any,
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::FutureExt;
use greenroom_session::id::{Epoch, SessionId};
use tokio::sync::broadcast;

use super::{
    Installation, Setup, SetupError,
    registry::{Registered, Setups},
};
use crate::{error::ActivateError, occurrence::Occurrence, race::race_point};

/// Code of installations that were not released well.
pub(crate) const RELEASE_FAILED: &str = "ACTIVATION_SETUP_RELEASE_FAILED";

/// A thing that turns find by its type.
type Thing = Arc<dyn Any + Send + Sync>;

/// What is installed for one Activation; nothing in most. What is left is released when the last copy is dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Installed(Option<Arc<All>>);

#[derive(Debug)]
struct All {
    slots: Vec<Arc<Slot>>,
    whose: Arc<Whose>,
}

/// Whom an installation belongs to, and who hears if it cannot be released.
#[derive(Debug)]
struct Whose {
    session: SessionId,
    epoch: Epoch,
    occurrences: broadcast::Sender<Occurrence>,
}

impl Whose {
    fn tell(&self, failures: Vec<String>) {
        if failures.is_empty() {
            return;
        }
        tracing::warn!(session = %self.session, code = RELEASE_FAILED, ?failures, "what was set up was not released well");
        let (session, epoch) = (self.session.clone(), self.epoch);
        // Nobody may listen.
        drop(self.occurrences.send(Occurrence::ReleaseFailed { session, epoch, code: RELEASE_FAILED, failures: failures.into() }));
    }
}

impl Installed {
    /// Applies every contribution, in the order of their registration. What was applied before one that fails is released.
    ///
    /// # Cancel safety
    /// What was applied is released.
    pub(crate) async fn apply(setups: &Setups, setup: &Setup, occurrences: &broadcast::Sender<Occurrence>) -> Result<Self, ActivateError> {
        let contributions = setups.all();
        let whose = Arc::new(Whose { session: setup.session.clone(), epoch: setup.epoch, occurrences: occurrences.clone() });
        let mut all = All { slots: Vec::with_capacity(contributions.len()), whose };
        for registered in contributions {
            if registered.is_revoked() {
                continue;
            }
            let applied = AssertUnwindSafe(async { registered.contribution.apply(setup).await }).catch_unwind().await;
            let installation = applied.unwrap_or_else(|panic| Err(SetupError::of_panic(&*panic))).map_err(|error| refused(setup, &error))?;
            all.slots.push(Slot::new(&registered, installation, &all.whose));
            race_point!("setup-applied");
        }
        Ok(Self(Some(Arc::new(all))))
    }

    /// Commits everything that was applied, in the same order. Whoever gets an error drops this, which releases everything.
    pub(crate) fn commit(&self, setup: &Setup) -> Result<(), ActivateError> {
        let slots = self.slots();
        for slot in slots {
            slot.commit().map_err(|error| error.map_or_else(|| ActivateError::SetupRevoked(setup.session.clone()), |error| refused(setup, &error)))?;
        }
        // One that was committed may have been removed by another's commit.
        if slots.iter().any(|slot| slot.lock().revoked) {
            return Err(ActivateError::SetupRevoked(setup.session.clone()));
        }
        Ok(())
    }

    /// Releases what is left, the last one first. Returns what could not be released well, which has been told.
    pub(crate) fn release(&self) -> Vec<String> {
        self.0.as_ref().map_or_else(Vec::new, |all| all.release())
    }

    /// Returns the first thing of a type that is installed.
    pub(crate) fn find<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.slots().iter().find_map(|slot| slot.lock().things.iter().find_map(|thing| thing.clone().downcast().ok()))
    }

    fn slots(&self) -> &[Arc<Slot>] {
        self.0.as_ref().map_or(&[], |all| &all.slots)
    }
}

impl All {
    fn release(&self) -> Vec<String> {
        let failures: Vec<String> = self.slots.iter().rev().filter_map(|slot| slot.release().err()).map(|error| error.to_string()).collect();
        self.whose.tell(failures.clone());
        failures
    }
}

impl Drop for All {
    fn drop(&mut self) {
        self.release();
    }
}

fn refused(setup: &Setup, error: &SetupError) -> ActivateError {
    ActivateError::Setup { session: setup.session.clone(), code: error.code(), reason: error.message.clone() }
}

/// One installation, which is released once, whoever comes first.
pub(super) struct Slot {
    registered: Arc<Registered>,
    whose: Arc<Whose>,
    cell: Mutex<Cell>,
}

#[derive(Default)]
struct Cell {
    /// Gone while it is committed, and when it has been released.
    installation: Option<Box<dyn Installation>>,
    things: Vec<Thing>,
    /// Its number among those of its contribution.
    number: Option<u64>,
    revoked: bool,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl Slot {
    fn new(registered: &Arc<Registered>, installation: Box<dyn Installation>, whose: &Arc<Whose>) -> Arc<Self> {
        let cell = Cell { installation: Some(installation), ..Cell::default() };
        let slot = Arc::new(Self { registered: registered.clone(), whose: whose.clone(), cell: Mutex::new(cell) });
        let number = registered.enter(&Arc::downgrade(&slot));
        let mut cell = slot.lock();
        cell.number = number;
        cell.revoked |= number.is_none();
        drop(cell);
        slot
    }

    fn lock(&self) -> MutexGuard<'_, Cell> {
        self.cell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits the installation; `Err(None)` if its contribution has been removed.
    fn commit(&self) -> Result<(), Option<SetupError>> {
        let installation = {
            let mut cell = self.lock();
            if cell.revoked { None } else { cell.installation.take() }
        };
        // Outside of the lock: a commit may remove its own contribution.
        let Some(mut installation) = installation else { return Err(None) };
        let committed = std::panic::catch_unwind(AssertUnwindSafe(|| installation.commit().map(|()| installation.gives())));
        let committed = committed.unwrap_or_else(|panic| Err(SetupError::of_panic(&*panic)));
        let mut cell = self.lock();
        // Back into its place, from where it is released in any case.
        cell.installation = Some(installation);
        cell.things = committed.map_err(Some)?;
        Ok(())
    }

    fn release(&self) -> Result<(), SetupError> {
        let (installation, things, number) = {
            let mut cell = self.lock();
            (cell.installation.take(), std::mem::take(&mut cell.things), cell.number.take())
        };
        if let Some(number) = number {
            self.registered.leave(number);
        }
        let Some(mut installation) = installation else { return Ok(()) };
        // Its drop is a part of the release.
        let released = std::panic::catch_unwind(AssertUnwindSafe(move || {
            let released = installation.release();
            drop((installation, things));
            released
        }));
        released.unwrap_or_else(|panic| Err(SetupError::of_panic(&*panic)))
    }

    /// Takes the installation away because its contribution is removed.
    pub(super) fn revoke(&self) {
        self.lock().revoked = true;
        self.whose.tell(self.release().err().map(|error| error.to_string()).into_iter().collect());
    }
}
