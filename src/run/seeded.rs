//! Deterministic runs: one thread, a clock that moves only when nobody can go on, ids from a seed, and a store that is written in place.
//!
//! The same program with the same seed on an empty store leaves the same logs. That is promised for a runtime of [`seeded_runtime`] and nowhere else.

use std::sync::Arc;

use greenroom_session::{
    clock::{Clock, SeededIds},
    id::{OwnerId, SessionId},
    store::{CommitError, Done, Op, Reader, Refused, Store, StoreError},
};
use tokio::{
    runtime::{Builder, Handle, Runtime, RuntimeFlavor},
    time::Instant,
};

/// When virtual time begins: 2025-01-01T00:00:00Z in milliseconds since the Unix epoch.
const BEGINNING_MS: u64 = 1_735_689_600_000;

/// Makes the async runtime that a run with a seed needs: one thread, and time that stands still while anybody can go on.
///
/// # Errors
/// The system's error if it gives no runtime.
pub fn seeded_runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().start_paused(true).build()
}

/// Tells whether the runtime that is entered could keep the promise of a seed.
pub(super) fn is_possible() -> bool {
    Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread)
}

/// Returns the ids of a run that begins where the root's log has this length: a run that goes on must not use an id again.
pub(super) fn ids(seed: u64, log_length: u64) -> Arc<SeededIds> {
    Arc::new(SeededIds::new(seed ^ log_length.rotate_left(32)))
}

/// The clock of virtual time.
#[derive(Debug)]
pub(super) struct VirtualClock(Instant);

impl VirtualClock {
    pub(super) fn begin() -> Arc<Self> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for VirtualClock {
    fn now_ms(&self) -> u64 {
        BEGINNING_MS + u64::try_from(self.0.elapsed().as_millis()).unwrap_or(0)
    }
}

/// A store that is written and read in place, so that no other thread has a say in the order of things.
#[derive(Debug)]
pub(super) struct InPlace(pub(super) Arc<dyn Store>);

impl Store for InPlace {
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        self.0.commit(ops)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.0.reader()
    }

    fn is_inline(&self) -> bool {
        true
    }

    fn owner(&self) -> &OwnerId {
        self.0.owner()
    }

    fn heartbeat(&self) -> Result<(), StoreError> {
        self.0.heartbeat()
    }

    fn poll(&self) -> Result<Vec<SessionId>, StoreError> {
        self.0.poll()
    }

    fn close(&self) -> Result<(), StoreError> {
        self.0.close()
    }
}
