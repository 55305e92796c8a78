//! Time and identity, injected: nothing else in greenroom asks the machine for either.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uuid::Uuid;

/// Tells the wall-clock time.
///
/// ```
/// use greenroom_session::clock::Clock;
///
/// /// Counts how often it was asked.
/// #[derive(Debug, Default)]
/// struct Ticks(std::sync::atomic::AtomicU64);
/// impl Clock for Ticks {
///     fn now_ms(&self) -> u64 {
///         self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
///     }
/// }
/// let clock = Ticks::default();
/// assert_eq!((clock.now_ms(), clock.now_ms()), (0, 1));
/// ```
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Returns milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;
}

/// The machine's clock.
///
/// ```
/// use greenroom_session::clock::{Clock, SystemClock};
/// assert!(SystemClock.now_ms() > 1_700_000_000_000); // later than November 2023
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now_ms(&self) -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock that moves only when told to. Clones share one time.
///
/// ```
/// use greenroom_session::clock::{Clock, ManualClock};
/// let clock = ManualClock::at(1_000);
/// let seen_elsewhere = clock.clone();
/// clock.advance(500);
/// assert_eq!(seen_elsewhere.now_ms(), 1_500);
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Starts a clock at `ms` since the Unix epoch.
    pub fn at(ms: u64) -> Self {
        Self(Arc::new(AtomicU64::new(ms)))
    }

    /// Moves the clock on by `ms`.
    pub fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets the clock, back if need be.
    pub fn set(&self, ms: u64) {
        self.0.store(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Makes new UUIDs.
///
/// ```
/// use greenroom_session::{clock::{IdSource, SeededIds}, id::SessionId};
/// let source: Box<dyn IdSource> = Box::new(SeededIds::new(7));
/// let id = SessionId::from_uuid(source.uuid());
/// assert_eq!(id.as_str().len(), 36);
/// assert_ne!(id, SessionId::from_uuid(source.uuid()));
/// ```
pub trait IdSource: Send + Sync + fmt::Debug + 'static {
    /// Returns a UUID that was not returned before.
    fn uuid(&self) -> Uuid;
}

/// UUIDs of version 4 from a generator that is seeded once per thread by the operating system.
///
/// ```
/// use greenroom_session::clock::{IdSource, RandomIds};
/// assert_ne!(RandomIds.uuid(), RandomIds.uuid());
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl IdSource for RandomIds {
    fn uuid(&self) -> Uuid {
        thread_local! {
            // A system call per id would cost more than the rest of an acceptance in memory.
            static RNG: std::cell::RefCell<ChaCha8Rng> = std::cell::RefCell::new({
                let mut seed = [0u8; 32];
                for half in seed.chunks_mut(16) {
                    half.copy_from_slice(Uuid::new_v4().as_bytes());
                }
                ChaCha8Rng::from_seed(seed)
            });
        }
        RNG.with_borrow_mut(|rng| uuid::Builder::from_random_bytes(rng.random()).into_uuid())
    }
}

/// UUIDs from a seed: the same seed gives the same ids in the same order.
///
/// ```
/// use greenroom_session::clock::{IdSource, SeededIds};
/// let (one, other) = (SeededIds::new(7), SeededIds::new(7));
/// assert_eq!([one.uuid(), one.uuid()], [other.uuid(), other.uuid()]);
/// ```
#[derive(Debug)]
pub struct SeededIds(std::sync::Mutex<ChaCha8Rng>);

impl SeededIds {
    /// Starts the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(std::sync::Mutex::new(ChaCha8Rng::seed_from_u64(seed)))
    }
}

impl IdSource for SeededIds {
    fn uuid(&self) -> Uuid {
        let mut rng = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        uuid::Builder::from_random_bytes(rng.random()).into_uuid()
    }
}
