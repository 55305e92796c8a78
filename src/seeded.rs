//! Deterministic runs: one thread, a clock that moves only when nobody can go on, ids and chance from a seed, and a store that is written in place.
//!
//! The same seed over the same logs leaves the same logs. That is promised for a runtime that [`RuntimeBuilder::seed`](crate::RuntimeBuilder::seed) was given to
//! within [`block_on`] or [`runtime`], for behaviours that take their time from [`Turn::now_ms`](crate::Turn::now_ms) or tokio's clock and their chance from
//! [`Turn::rng`](crate::Turn::rng), and nowhere else: a behaviour that asks the machine, another process, or the order of a `HashMap` is not held to it.
//!
//! ```
//! use greenroom::{Delegate, Runtime, Turn, TurnEnd, rand::RngExt, seeded, session::digest::StoreDigest};
//!
//! fn play(seed: u64) -> Result<StoreDigest, Box<dyn std::error::Error>> {
//!     seeded::block_on(async {
//!         let runtime = Runtime::builder()
//!             .closure("dice", |turn: Turn| async move {
//!                 tokio::time::sleep(std::time::Duration::from_secs(3_600)).await; // takes no time
//!                 turn.say(format!("a {}", turn.rng().random_range(1..=6)))?;
//!                 Ok(TurnEnd::Completed)
//!             })
//!             .seed(seed)
//!             .open("memory:")
//!             .await?;
//!         let root = runtime.root("dice", "a game").await?;
//!         root.send("Throw.").await?;
//!         root.quiescent().await?;
//!         let digest = runtime.digest().await?;
//!         runtime.shutdown().await;
//!         Ok(digest)
//!     })?
//! }
//! assert_eq!(play(7)?, play(7)?);
//! assert_ne!(play(7)?, play(8)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use greenroom_session::{
    clock::{Clock, SeededIds},
    digest::{DigestError, StoreDigest},
    id::{OwnerId, SessionId},
    store::{CommitError, Done, Op, Reader, Refused, Store, StoreError},
};
use tokio::{
    runtime::{Builder, Handle, Runtime, RuntimeFlavor},
    time::Instant,
};

/// When virtual time begins: 2025-01-01T00:00:00Z in milliseconds since the Unix epoch.
const BEGINNING_MS: u64 = 1_735_689_600_000;

/// Runs a future on a [`runtime`] of its own, which ends with it.
///
/// What waits for something outside of it (a file's store without a seed, a socket) waits while time flies, and may find its deadline passed.
///
/// # Errors
/// The system's error if it gives no runtime.
pub fn block_on<F: Future>(future: F) -> std::io::Result<F::Output> {
    let runtime = runtime()?;
    let output = runtime.block_on(future);
    // A thread that a behaviour holds up must not hold up the end.
    runtime.shutdown_background();
    Ok(output)
}

/// Makes the async runtime that a seed needs: one thread, and time that stands still while anybody can go on.
///
/// Not to be made within another runtime.
///
/// # Errors
/// The system's error if it gives no runtime.
pub fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().start_paused(true).build()
}

/// Tells whether the runtime that is entered can keep the promise of a seed: it has one thread, and its time stands still.
pub(crate) fn is_possible() -> bool {
    Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread) && is_paused()
}

/// Tells whether time stands still: it does if the machine's clock moves and this one does not.
fn is_paused() -> bool {
    let here = Instant::now();
    let there = std::time::Instant::now();
    while std::time::Instant::now() == there {
        std::hint::spin_loop();
    }
    Instant::now() == here
}

/// Returns the ids of a run over a store that holds these logs already: a run that goes on must not use an id again.
pub(crate) fn ids(seed: u64, store: &dyn Store) -> Result<Arc<SeededIds>, DigestError> {
    let mut reader = store.reader()?;
    let taken = !reader.find("", 1)?.is_empty();
    let before = if taken { first_bytes(&StoreDigest::of(&mut *reader)?) } else { 0 };
    Ok(Arc::new(SeededIds::new(seed ^ before)))
}

fn first_bytes(digest: &StoreDigest) -> u64 {
    digest.0.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The clock of virtual time.
#[derive(Debug)]
pub(crate) struct VirtualClock(Instant);

impl VirtualClock {
    pub(crate) fn begin() -> Arc<Self> {
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
pub(crate) struct InPlace(pub(crate) Arc<dyn Store>);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_possible_on_one_thread_whose_time_stands_still_and_nowhere_else() {
        assert!(!is_possible(), "no runtime at all");
        assert!(runtime().unwrap().block_on(async { is_possible() }));
        let later = async {
            tokio::time::sleep(std::time::Duration::from_secs(1_000_000)).await;
            is_possible()
        };
        assert!(block_on(later).unwrap(), "also far from the machine's time");
        assert!(!Builder::new_current_thread().enable_all().build().unwrap().block_on(async { is_possible() }));
        assert!(!Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(async { is_possible() }));
    }
}
