//! What a stress run came to.

use std::fmt;

use greenroom_session::id::SessionId;
use serde::Serialize;

use super::{audit::Audit, records::Records};

/// What a stress run came to. As JSON it has the fields down to the seed, in this order.
///
/// `accepted` is the sum of `served`, `failed`, `withdrawn`, `pending` and `lost`.
///
/// ```
/// use greenroom::stress::{Progress, StressOptions, StressReport, stress};
/// # tokio_test::block_on(async {
/// let mut options = StressOptions::new("memory:".parse()?);
/// (options.agents, options.messages) = (4, 10);
/// let report: StressReport = stress(&options, &|_: Progress| {}).await?;
/// assert_eq!((report.accepted, report.pending, report.kills), (80, 0, 0));
/// assert!(report.is_clean());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StressReport {
    /// Messages that were acknowledged to their senders.
    pub accepted: u64,
    /// Of these, those whose turn completed.
    pub served: u64,
    /// Of these, those whose turn ended otherwise: as planned, or because a sender interrupted it, or there is a finding.
    pub failed: u64,
    /// Of these, those that their sender took back.
    pub withdrawn: u64,
    /// Of these, those that wait or whose turn has no final end.
    pub pending: u64,
    /// Of these, those that left no trace of their end.
    pub lost: u64,
    /// Messages, acknowledged or not, that were served or shown more than once, and reports that were.
    pub duplicated: u64,
    /// Messages that had their first turn before an earlier one of the same sender to the same agent.
    pub order_violations: u64,
    /// Workers killed.
    pub kills: u64,
    /// From when every agent was there to when nothing was left to do, in milliseconds.
    pub wall_ms: u64,
    /// Messages accepted per second, from when every agent was there to the last acknowledgement.
    pub accepted_per_s: u64,
    /// Messages served or failed per second of `wall_ms`.
    pub turns_per_s: u64,
    /// From a sender's call to its acknowledgement.
    pub latency_us: Latency,
    /// Most resident memory of the process that ran the sessions, the greatest of all workers. `None` where the system does not tell.
    pub peak_rss_bytes: Option<u64>,
    /// The plan's seed.
    pub seed: u64,
    /// Sessions below the root, helpers included.
    #[serde(skip)]
    pub sessions: u64,
    /// Epochs begun in all sessions.
    #[serde(skip)]
    pub epochs: u64,
    /// Turns begun in all sessions, those that reports and notices opened included.
    #[serde(skip)]
    pub turns: u64,
    /// Turns that served a message again.
    #[serde(skip)]
    pub retries: u64,
    /// Those of `failed` whose turn was interrupted by a sender.
    #[serde(skip)]
    pub interrupted: u64,
    /// How often a sender met a full inbox. Under kills, some may be left out.
    #[serde(skip)]
    pub busy: u64,
    /// Audits of what kills had left, each of every message that had been acknowledged until then.
    #[serde(skip)]
    pub audits: u64,
    /// Whether the run was cut off by its timeout.
    #[serde(skip)]
    pub timed_out: bool,
    /// The first things that the audit found wrong, at most [`StressReport::MAX_FINDINGS`].
    #[serde(skip)]
    pub findings: Vec<Finding>,
}

/// Latencies in microseconds at three quantiles, to three digits.
///
/// ```
/// use greenroom::stress::Latency;
/// let latency = Latency { p50: 210, p99: 900, p999: 4_300 };
/// assert_eq!(serde_json::to_string(&latency)?, r#"{"p50":210,"p99":900,"p999":4300}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Half of all were at most this.
    pub p50: u64,
    /// 99 of 100 were at most this.
    pub p99: u64,
    /// 999 of 1,000 were at most this.
    pub p999: u64,
}

/// What the audit found wrong with one message or session.
///
/// ```
/// use greenroom::{SessionId, stress::{Fault, Finding}};
/// let finding = Finding { fault: Fault::Lost, session: SessionId::new("a1")?, message: Some("s3-17".into()) };
/// assert_eq!(finding.to_string(), "message s3-17 to a1: acknowledged, and neither ended nor waiting");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub fault: Fault,
    /// The session whose log says so, or should.
    pub session: SessionId,
    /// The message, unless the session itself is meant.
    pub message: Option<String>,
}

/// What can be wrong.
///
/// ```
/// use greenroom::stress::Fault;
/// assert_eq!(Fault::Stranger.to_string(), "sent by nobody");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// It was acknowledged and neither ended nor waits.
    Lost,
    /// It was served, shown or joined more than once.
    Duplicated,
    /// It had its first turn before an earlier one of its sender.
    Overtook,
    /// Nobody sent it to this session.
    Stranger,
    /// It failed and was not planned to, or the other way round; or it was taken back, or its turn interrupted, and nobody had asked for that.
    Unplanned,
    /// It was taken back, or a turn interrupted, otherwise than its sender was told.
    Contradicted,
    /// It still wakes its receiver, although the run has come to its end.
    LeftOver,
    /// An agent of the plan is not there, or is there twice.
    Miscast,
    /// The session cannot be read.
    Unreadable,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "acknowledged, and neither ended nor waiting",
            Self::Duplicated => "served or shown more than once",
            Self::Overtook => "served before an earlier one of the same sender",
            Self::Stranger => "sent by nobody",
            Self::Unplanned => "ended otherwise than planned",
            Self::Contradicted => "not what its sender was told",
            Self::LeftOver => "still waiting at the end",
            Self::Miscast => "an agent of the plan is not there, or is there twice",
            Self::Unreadable => "the session cannot be read",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => write!(f, "message {message} to {}: {}", self.session, self.fault),
            None => write!(f, "session {}: {}", self.session, self.fault),
        }
    }
}

impl StressReport {
    /// Most findings that a report names.
    pub const MAX_FINDINGS: usize = 20;

    pub(super) fn new(audit: Audit, records: &Records, peak_rss_bytes: Option<u64>, seed: u64, timed_out: bool) -> Self {
        let (sending_ms, wall_ms) = records.spans_ms();
        let quantile = |quantile| records.latencies.value_at_quantile(quantile);
        Self {
            accepted: audit.accepted,
            served: audit.served,
            failed: audit.failed,
            withdrawn: audit.withdrawn,
            pending: audit.pending,
            lost: audit.lost,
            duplicated: audit.duplicated,
            order_violations: audit.order_violations,
            kills: records.kills,
            wall_ms,
            accepted_per_s: per_second(audit.accepted, sending_ms),
            turns_per_s: per_second(audit.served + audit.failed, wall_ms),
            latency_us: Latency { p50: quantile(0.5), p99: quantile(0.99), p999: quantile(0.999) },
            peak_rss_bytes,
            seed,
            sessions: audit.sessions,
            epochs: audit.epochs,
            turns: audit.turns,
            retries: audit.retries,
            interrupted: audit.interrupted,
            busy: records.busy,
            audits: records.audits,
            timed_out,
            findings: audit.findings,
        }
    }

    /// Tells whether the run came to its end, the audit found nothing wrong, and nothing is pending.
    pub fn is_clean(&self) -> bool {
        !self.timed_out && self.findings.is_empty() && (self.lost, self.duplicated, self.order_violations, self.pending) == (0, 0, 0, 0)
    }
}

fn per_second(count: u64, ms: u64) -> u64 {
    count.saturating_mul(1_000) / ms.max(1)
}
