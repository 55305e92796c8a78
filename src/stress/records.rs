//! What the senders were told: the one side of the audit, and what the numbers of a report are made of.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::{
    StressError,
    plan::{Name, Plan, Request},
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
    /// The receiver of a message is about to be asked to end its turn.
    Interrupting { name: Name },
    /// The receiver of a message was asked what the plan says, and has answered.
    Answered { name: Name, answer: Answer },
    /// A message met a full inbox so many times.
    Busy { times: u64 },
    /// So many turns have ended since the worker began.
    Turns { ended: u64 },
    /// Nothing is left to do.
    Drained,
    /// The runtime has been shut down.
    Done,
}

/// How a sender's request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The message was taken back.
    Withdrawn,
    /// It has a turn already.
    AlreadyStarted,
    /// It does not wait and never did.
    NotPending,
    /// This turn was ended.
    Interrupted { turn: u64 },
    /// No turn was under way.
    NotRunning,
}

/// What is told, and whoever waits until it has been heard, which is when this is dropped.
#[derive(Debug)]
pub(super) struct News {
    pub(super) told: Told,
    _waiting: Option<oneshot::Sender<Never>>,
}

/// What nobody sends.
#[derive(Debug)]
pub(super) enum Never {}

impl News {
    /// Makes news whose end can be waited for.
    pub(super) fn awaited(told: Told) -> (Self, oneshot::Receiver<Never>) {
        let (waiting, heard) = oneshot::channel();
        (Self { told, _waiting: Some(waiting) }, heard)
    }
}

impl From<Told> for News {
    fn from(told: Told) -> Self {
        Self { told, _waiting: None }
    }
}

/// What was heard of the senders' messages.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard {
    /// By sender, how many of its messages, from the first on, were acknowledged: the next one's number.
    pub(super) acknowledged: Vec<u32>,
    /// What was answered to senders that asked for more.
    pub(super) answers: HashMap<Name, Answer>,
    /// Messages after which a turn may have been interrupted. A sender does so once at most, and not before it is heard here.
    pub(super) interrupting: HashSet<Name>,
}

/// Where a sender goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Place {
    /// The number of its first message that was not acknowledged.
    pub(super) next: u32,
    /// Whether the message before that is to be taken back and it is not known whether it was.
    pub(super) withdraws: bool,
}

impl Heard {
    /// Knows of nothing yet.
    pub(super) fn new(plan: &Plan) -> Self {
        Self { acknowledged: (0..plan.senders).map(|_| 0).collect(), ..Self::default() }
    }

    /// Returns by sender where it goes on.
    pub(super) fn places(&self, plan: &Plan) -> Vec<Place> {
        let place = |(sender, next): (u32, &u32)| {
            let last = next.checked_sub(1).map(|number| Name { sender, number });
            let withdraws = last.is_some_and(|last| plan.post(last).next == Some(Request::Withdraw) && !self.answers.contains_key(&last));
            Place { next: *next, withdraws }
        };
        (0..).zip(&self.acknowledged).map(place).collect()
    }

    fn take(&mut self, told: &Told) {
        match told {
            Told::Accepted { name, .. } => {
                if let Some(next) = usize::try_from(name.sender).ok().and_then(|sender| self.acknowledged.get_mut(sender)) {
                    *next = (*next).max(name.number + 1);
                }
            }
            Told::Interrupting { name } => drop(self.interrupting.insert(*name)),
            Told::Answered { name, answer } => drop(self.answers.insert(*name, *answer)),
            _ => {}
        }
    }
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
    pub(super) heard: Heard,
    pub(super) latencies: Histogram<u64>,
    pub(super) busy: u64,
    pub(super) kills: u64,
    /// Audits of what kills have left.
    pub(super) audits: u64,
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
            heard: Heard::new(plan),
            latencies,
            busy: 0,
            kills: 0,
            audits: 0,
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
        self.heard.take(told);
        match told {
            Told::LaidOut => drop(self.laid_out.get_or_insert_with(Instant::now)),
            Told::Accepted { latency_us, .. } => {
                self.latencies.saturating_record((*latency_us).max(1));
                self.last_accepted = Some(Instant::now());
            }
            Told::Interrupting { .. } | Told::Answered { .. } => {}
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
    pub(super) async fn take_all(&mut self, news: &mut mpsc::UnboundedReceiver<News>, observe: &(dyn Fn(Progress) + Sync)) {
        let mut batch = Vec::with_capacity(BATCH);
        while news.recv_many(&mut batch, BATCH).await > 0 {
            for news in batch.drain(..) {
                self.take(&news.told);
            }
            observe(self.progress());
        }
    }

    /// Is told that the plan has become another.
    pub(super) fn plans(&mut self, plan: &Plan) {
        self.planned = plan.total();
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
        self.heard.acknowledged.iter().map(|count| u64::from(*count)).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_asks_again_for_a_withdrawal_of_which_nothing_was_heard_and_for_nothing_else() {
        let plan = Plan { seed: 3, agents: 5, senders: 1, messages: 200, min_size: 1, max_size: 1 };
        let mut records = Records::new(&plan).unwrap();
        assert_eq!(records.heard.places(&plan), [Place { next: 0, withdraws: false }]);
        let mut seen = 0;
        for number in 0..plan.messages {
            let name = Name { sender: 0, number };
            records.take(&Told::Accepted { name, latency_us: 1 });
            let withdraws = plan.post(name).next == Some(Request::Withdraw);
            assert_eq!(records.heard.places(&plan), [Place { next: number + 1, withdraws }]);
            records.take(&Told::Answered { name, answer: Answer::AlreadyStarted });
            assert_eq!(records.heard.places(&plan), [Place { next: number + 1, withdraws: false }]);
            seen += u32::from(withdraws);
        }
        assert!(seen > 0 && seen < plan.messages / 4, "{seen}");
    }
}
