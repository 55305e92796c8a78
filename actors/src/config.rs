//! The bounds of a running system, and what is injected into it.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use greenroom_session::{
    clock::{Clock, IdSource, RandomIds, SystemClock},
    limits::{DEFAULT_INBOX_LIMIT, DEFAULT_MAX_ATTEMPTS, DEFAULT_NOTE_LIMIT, MAX_INTEGER},
};

use crate::{
    behavior::{Behavior, Factory},
    error::QueryError,
};

const DEFAULT_READ_WINDOW_MAX: u64 = 50;
const DEFAULT_READ_CONCURRENCY: usize = 4;

/// What a system is made of.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use greenroom_actors::{Config, Turn, TurnEnd};
/// use greenroom_session::clock::SeededIds;
/// let mut config = Config { max_live: 4, ids: Arc::new(SeededIds::new(7)), ..Config::default() };
/// config.behavior("idler", || |_turn: Turn| async { Ok(TurnEnd::Completed) });
/// assert!(config.behaviors.contains_key("idler"));
/// assert_eq!(config.interrupt_grace, Duration::from_secs(2));
/// ```
#[derive(Clone)]
pub struct Config {
    /// Behaviours by the name that logs use.
    pub behaviors: HashMap<String, Factory>,
    /// Most turns that run at once. A turn that waits for children does not count.
    pub max_live: usize,
    /// Most sessions that are loaded at once.
    pub max_starting: usize,
    /// Deepest child; a root has depth 0.
    pub max_depth: u32,
    /// Most pending `turn` messages of one session.
    pub inbox_limit: u64,
    /// Most pending notes of one session.
    pub note_limit: u64,
    /// Attempts without durable progress that a message gets.
    pub max_attempts: u32,
    /// How long a send within a turn waits for a full inbox before it is `BUSY`.
    pub send_patience: Duration,
    /// How long a cold start may take, its wait for a turn slot aside.
    pub start_deadline: Duration,
    /// How long a caller waits for an answer; a write that is not answered by then is `INDETERMINATE`, and the same ids again are safe.
    pub ask_deadline: Duration,
    /// How long an interrupted turn may go on before it is dropped.
    pub interrupt_grace: Duration,
    /// How often the store is asked for what other processes did.
    pub poll_interval: Duration,
    /// How long a shutdown or a drain waits for an end, beyond what an interrupted turn may take, before it is given up.
    pub shutdown_grace: Duration,
    /// Most events on either side of the one that a read of an event asks for; from 0 to 2^53 - 1.
    pub read_window_max: u64,
    /// Most queries that read the store at once, listings among them; from 1 to 2^53 - 1. The others wait.
    pub read_concurrency: usize,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Where new ids come from.
    pub ids: Arc<dyn IdSource>,
    /// What the chance of turns begins with: [`Turn::random_seed`](crate::Turn::random_seed).
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            behaviors: HashMap::new(),
            max_live: 64,
            max_starting: 64,
            max_depth: 8,
            inbox_limit: DEFAULT_INBOX_LIMIT,
            note_limit: DEFAULT_NOTE_LIMIT,
            max_attempts: DEFAULT_MAX_ATTEMPTS,
            send_patience: Duration::from_secs(30),
            start_deadline: Duration::from_secs(60),
            ask_deadline: Duration::from_secs(60),
            interrupt_grace: Duration::from_secs(2),
            poll_interval: Duration::from_millis(50),
            shutdown_grace: Duration::from_secs(10),
            read_window_max: DEFAULT_READ_WINDOW_MAX,
            read_concurrency: DEFAULT_READ_CONCURRENCY,
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            seed: 0,
        }
    }
}

impl Config {
    /// Registers a behaviour under the name that logs use; a later one of the same name replaces it.
    pub fn behavior<B: Behavior>(&mut self, name: impl Into<String>, factory: impl Fn() -> B + Send + Sync + 'static) {
        self.behaviors.insert(name.into(), Arc::new(move || Box::new(factory()) as Box<dyn Behavior>));
    }

    /// Looks at the bounds of queries.
    ///
    /// # Errors
    /// [`QueryError::InvalidConfig`] for the first one that makes no sense.
    pub(crate) fn check_queries(&self) -> Result<(), QueryError> {
        let concurrency = u64::try_from(self.read_concurrency).unwrap_or(u64::MAX);
        for (name, given, min) in [("read_window_max", self.read_window_max, 0), ("read_concurrency", concurrency, 1)] {
            if !(min..=MAX_INTEGER).contains(&given) {
                return Err(QueryError::InvalidConfig { name, given, min, max: MAX_INTEGER });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.behaviors.keys().collect();
        names.sort();
        f.debug_struct("Config").field("behaviors", &names).field("max_live", &self.max_live).field("max_depth", &self.max_depth).finish_non_exhaustive()
    }
}
