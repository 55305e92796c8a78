//! What the senders were told: the one side of the audit, and what the numbers of a report are made of.

use std::time::Instant;

use hdrhistogram::Histogram;
use tokio::sync::mpsc;

use super::{
    StressError,
    plan::{Name, Plan},
};

/// Longest latency that is told apart, in microseconds: ten minutes.
const MAX_LATENCY_US: u64 = 600_000_000;
/// News that are taken up at once.
const BATCH: usize = 1_024;

/// What a worker tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// Every agent is there.
    LaidOut,
    /// A message was accepted, so long after the call.
    Accepted { name: Name, latency_us: u64 },
    /// A message met a full inbox so many times.
    Busy { times: u64 },
    /// So many turns have ended since the worker began.
    Turns { ended: u64 },
    /// Nothing is left to do.
    Drained,
    /// The runtime has been shut down.
    Done,
}

/// How far a stress run is.
///
/// ```
/// use greenroom::stress::Progress;
/// let progress = Progress { accepted: 250, planned: 1_000, ..Progress::default() };
/// assert_eq!(format!("{} % accepted", 100 * progress.accepted / progress.planned), "25 % accepted");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Messages accepted, and acknowledged to their senders.
    pub accepted: u64,
    /// Messages of the plan.
    pub planned: u64,
    /// Turns ended. Under load, and with every kill, some may be left out.
    pub turns: u64,
    /// Workers killed.
    pub kills: u64,
}

/// What the senders were told, and when.
#[derive(Debug)]
pub(super) struct Records {
    /// By sender, how many of its messages were acknowledged: the next one's number.
    pub(super) acknowledged: Vec<u32>,
    pub(super) latencies: Histogram<u64>,
    pub(super) busy: u64,
    pub(super) kills: u64,
    turns: u64,
    turns_of_earlier_workers: u64,
    planned: u64,
    laid_out: Option<Instant>,
    last_accepted: Option<Instant>,
    drained: Option<Instant>,
    done: bool,
}

impl Records {
    pub(super) fn new(plan: &Plan) -> Result<Self, StressError> {
        let latencies = Histogram::new_with_bounds(1, MAX_LATENCY_US, 3).map_err(|_| StressError::Options("latencies cannot be counted"))?;
        Ok(Self {
            acknowledged: (0..plan.senders).map(|_| 0).collect(),
            latencies,
            busy: 0,
            kills: 0,
            turns: 0,
            turns_of_earlier_workers: 0,
            planned: plan.total(),
            laid_out: None,
            last_accepted: None,
            drained: None,
            done: false,
        })
    }

    /// Takes up what a worker tells.
    pub(super) fn take(&mut self, told: &Told) {
        match told {
            Told::LaidOut => drop(self.laid_out.get_or_insert_with(Instant::now)),
            Told::Accepted { name, latency_us } => {
                if let Some(next) = usize::try_from(name.sender).ok().and_then(|sender| self.acknowledged.get_mut(sender)) {
                    *next = (*next).max(name.number + 1);
                }
                self.latencies.saturating_record((*latency_us).max(1));
                self.last_accepted = Some(Instant::now());
            }
            Told::Busy { times } => self.busy += times,
            Told::Turns { ended } => self.turns = *ended,
            Told::Drained => drop(self.drained.get_or_insert_with(Instant::now)),
            Told::Done => self.done = true,
        }
    }

    /// Takes up everything that comes until nobody tells any more.
    ///
    /// # Cancel safety
    /// What was received is taken up.
    pub(super) async fn take_all(&mut self, news: &mut mpsc::UnboundedReceiver<Told>, observe: &(dyn Fn(Progress) + Sync)) {
        let mut batch = Vec::with_capacity(BATCH);
        while news.recv_many(&mut batch, BATCH).await > 0 {
            for told in batch.drain(..) {
                self.take(&told);
            }
            observe(self.progress());
        }
    }

    /// Counts a worker that was killed.
    pub(super) fn killed(&mut self) {
        self.kills += 1;
        self.turns_of_earlier_workers += std::mem::take(&mut self.turns);
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    pub(super) fn accepted(&self) -> u64 {
        self.acknowledged.iter().map(|count| u64::from(*count)).sum()
    }

    pub(super) fn progress(&self) -> Progress {
        Progress { accepted: self.accepted(), planned: self.planned, turns: self.turns_of_earlier_workers + self.turns, kills: self.kills }
    }

    /// Returns how long messages were sent and how long they were served, in milliseconds: from when every agent was there to the last acknowledgement, and to
    /// when nothing was left to do. A run that was cut off ends now.
    pub(super) fn spans_ms(&self) -> (u64, u64) {
        let Some(begun) = self.laid_out else { return (0, 0) };
        let ms = |end: Instant| u64::try_from(end.saturating_duration_since(begun).as_millis()).unwrap_or(u64::MAX);
        (self.last_accepted.map_or(0, ms), ms(self.drained.unwrap_or_else(Instant::now)))
    }
}
