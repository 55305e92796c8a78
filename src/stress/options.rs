//! What a stress run is asked for.

use std::{ffi::OsString, ops::RangeInclusive, time::Duration};

use crate::store_url::StoreUrl;

/// What a stress run is asked for.
///
/// ```
/// use greenroom::stress::StressOptions;
/// let mut options = StressOptions::new("memory:".parse()?);
/// options.size = 0..=4_096;
/// assert_eq!(options.senders as u64 * u64::from(options.messages), 4_000);
/// assert!(options.kills.is_none() && !options.heed_signals);
/// # Ok::<(), greenroom::store_url::StoreUrlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct StressOptions {
    /// Where the sessions are kept. Every run has a root of its own, so the store may hold others.
    pub store: StoreUrl,
    /// Sessions that are sent to, at least 1: a forest below one root, at most four levels deep.
    pub agents: u32,
    /// Senders at once, at least 1. Each sends its messages one after the other.
    pub senders: u32,
    /// Messages of each sender.
    pub messages: u32,
    /// Bytes of a message's text.
    pub size: RangeInclusive<u32>,
    /// Decides the plan: agents, receivers, sizes and what is done with each message. It does not decide in which order things happen.
    pub seed: u64,
    /// Most messages that wait for one agent; a sender that meets a full inbox tries again.
    pub inbox_limit: u64,
    /// How long the run may take until everything is served. What is there by then is audited.
    pub timeout: Option<Duration>,
    /// Whether the process that runs the sessions is killed again and again.
    pub kills: Option<Kills>,
    /// Whether SIGINT and SIGTERM end the run in good order. They are then taken from the whole process until it ends.
    pub heed_signals: bool,
}

/// How a run is killed again and again.
///
/// ```
/// use std::time::Duration;
/// use greenroom::stress::Kills;
/// let every = Duration::from_millis(50)..=Duration::from_millis(200);
/// let kills = Kills { every, until: None, worker: vec!["my-harness".into(), "stress-worker".into()] };
/// assert!(kills.every.contains(&Duration::from_millis(120)));
/// ```
#[derive(Debug, Clone)]
pub struct Kills {
    /// How long a worker may live before it is killed with SIGKILL. Where workers come to nothing in this time, they get longer.
    pub every: RangeInclusive<Duration>,
    /// How many kills there are to be, each followed by an audit: the senders send as many messages as that takes, and [`StressOptions::messages`] does not count.
    /// Without it the run is over when all messages are served, however many kills that were.
    pub until: Option<u64>,
    /// The command that runs [`worker`](super::worker) over its standard input and output: program and arguments.
    pub worker: Vec<OsString>,
}

impl StressOptions {
    /// Asks for 64 agents, 8 senders with 500 messages each of 64 to 512 bytes, seed 0, no kills.
    pub fn new(store: StoreUrl) -> Self {
        Self { store, agents: 64, senders: 8, messages: 500, size: 64..=512, seed: 0, inbox_limit: 64, timeout: None, kills: None, heed_signals: false }
    }
}
