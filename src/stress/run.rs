//! A run in this process, and what every run begins and ends with.

use std::{future::pending, sync::Arc, time::Duration};

use greenroom_session::{
    id::SessionId,
    limits::MAX_MESSAGE_BYTES,
    store::{Store, StoreError},
};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{
    Progress, StressError, StressOptions, StressReport,
    audit::{Audit, audit},
    peak::peak_rss,
    plan::Plan,
    records::{Heard, Records},
    supervisor::{Supervised, Supervisor},
    work::{Assignment, work},
};
use crate::{signals::Signals, store_url::StoreUrl};

/// Messages of a sender that is to go on until there were enough kills.
const ENDLESS: u32 = 1 << 30;

/// Plays a stress run to its end and audits what it has left. `observe` is told now and then how far it is, and must not block.
///
/// With [`StressOptions::kills`] the sessions run in workers, processes that are killed; otherwise in this one.
///
/// # Errors
/// [`StressError`]. Whatever the audit finds is no error but in the report.
///
/// # Cancel safety
/// What was accepted stays accepted. A worker is killed.
pub async fn stress(options: &StressOptions, observe: &(dyn Fn(Progress) + Sync)) -> Result<StressReport, StressError> {
    check(options)?;
    let Some(kills) = &options.kills else {
        let store = open(&options.store).await?;
        return stress_over(options, store, observe).await;
    };
    if options.store == StoreUrl::Memory {
        return Err(StressError::NotDurable);
    }
    let mut plan = plan(options);
    if kills.until.is_some() {
        plan.messages = ENDLESS;
    }
    let mut records = Records::new(&plan)?;
    let mut supervisor = Supervisor::new(kills, assignment(options, &plan));
    let mut signals = Signals::new(options.heed_signals);
    let (cut, unclean) = tokio::select! {
        done = Box::pin(supervisor.supervise(&mut records, observe)) => match done? {
            Supervised::Done => (None, None),
            Supervised::Unclean(audit) => (None, Some(audit)),
        },
        cut = cut(options.timeout, &mut signals) => (Some(cut), None),
    };
    let peak = supervisor.end().await;
    let timed_out = heed(cut.as_ref())?;
    let assignment = supervisor.assignment().clone();
    records.audits = supervisor.audits();
    if let Some(audit) = unclean {
        // The store stays as the kill has left it.
        return Ok(StressReport::new(audit, &records, peak, assignment.plan.seed, timed_out));
    }
    let store = open(&options.store).await?;
    let report = tokio::select! {
        report = report(store.clone(), assignment, records, peak, timed_out) => report,
        signal = signals.next() => return Err(StressError::Signalled(signal)),
    };
    tokio::task::spawn_blocking(move || store.close()).await.map_err(|error| StoreError::Io(Box::new(error)))??;
    report
}

/// Plays a stress run in this process as [`stress`] does, over a store that is open. It is closed at the end.
///
/// # Errors
/// [`StressError`], as [`stress`].
///
/// # Cancel safety
/// What was accepted stays accepted.
pub async fn stress_over(options: &StressOptions, store: Arc<dyn Store>, observe: &(dyn Fn(Progress) + Sync)) -> Result<StressReport, StressError> {
    check(options)?;
    let plan = plan(options);
    let assignment = assignment(options, &plan);
    let mut records = Records::new(&plan)?;
    let (mut signals, mut again) = (Signals::new(options.heed_signals), Signals::new(options.heed_signals));
    let (tell, mut news) = mpsc::unbounded_channel();
    let worked = async {
        let worked = Box::pin(work(store.clone(), &assignment, &tell, cut(options.timeout, &mut signals))).await;
        // The last to tell: what was told before is taken up still.
        drop(tell);
        worked
    };
    let (worked, ()) = tokio::select! {
        done = async { tokio::join!(worked, records.take_all(&mut news, observe)) } => done,
        signal = second(&mut again) => return Err(StressError::Signalled(signal)),
    };
    let timed_out = heed(worked?.as_ref())?;
    let peak = peak_rss(None);
    tokio::select! {
        report = report(store, assignment, records, peak, timed_out) => report,
        signal = again.next() => Err(StressError::Signalled(signal)),
    }
}

/// Waits for whoever asks a second time: that ends at once what the first time was to end in good order.
async fn second(signals: &mut Signals) -> u8 {
    signals.next().await;
    signals.next().await
}

/// Why a run was cut off.
enum Cut {
    Timeout,
    Signal(u8),
}

async fn cut(timeout: Option<Duration>, signals: &mut Signals) -> Cut {
    let timeout = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => pending().await,
        }
    };
    tokio::select! {
        () = timeout => Cut::Timeout,
        signal = signals.next() => {
            tracing::info!(signal, "ending in good order; a second signal ends at once");
            Cut::Signal(signal)
        }
    }
}

/// Tells whether the time was up; a signal is an error.
fn heed(cut: Option<&Cut>) -> Result<bool, StressError> {
    match cut {
        None => Ok(false),
        Some(Cut::Timeout) => Ok(true),
        Some(Cut::Signal(signal)) => Err(StressError::Signalled(*signal)),
    }
}

fn check(options: &StressOptions) -> Result<(), StressError> {
    let most = u32::try_from(MAX_MESSAGE_BYTES).unwrap_or(u32::MAX);
    match () {
        () if options.agents == 0 || options.senders == 0 => Err(StressError::Options("a stress run needs an agent and a sender")),
        () if options.size.is_empty() || *options.size.end() > most => {
            Err(StressError::Options("a message has at most 16 MiB, and no size is below the smallest"))
        }
        () if options.inbox_limit == 0 => Err(StressError::Options("an inbox takes at least one message")),
        () if options.kills.as_ref().is_some_and(|kills| kills.every.is_empty() || kills.worker.is_empty()) => {
            Err(StressError::Options("kills need a time to live and a worker's command"))
        }
        () => Ok(()),
    }
}

fn plan(options: &StressOptions) -> Plan {
    let StressOptions { seed, agents, senders, messages, ref size, .. } = *options;
    Plan { seed, agents, senders, messages, min_size: *size.start(), max_size: *size.end() }
}

fn assignment(options: &StressOptions, plan: &Plan) -> Assignment {
    Assignment {
        store: options.store.to_string(),
        plan: plan.clone(),
        // The interleaving is not the seed's, so neither is the name: a second run with the same seed is another one.
        root: SessionId::from_uuid(Uuid::new_v4()),
        inbox_limit: options.inbox_limit,
        senders: Heard::new(plan).places(plan),
    }
}

async fn open(url: &StoreUrl) -> Result<Arc<dyn Store>, StoreError> {
    let url = url.clone();
    tokio::task::spawn_blocking(move || url.open()).await.map_err(|error| StoreError::Io(Box::new(error)))?
}

async fn report(store: Arc<dyn Store>, assignment: Assignment, records: Records, peak: Option<u64>, timed_out: bool) -> Result<StressReport, StressError> {
    let Assignment { plan, root, .. } = assignment;
    let (seed, heard) = (plan.seed, records.heard.clone());
    let audited = move || audit(&mut *store.reader()?, &root, &plan, &heard, timed_out);
    let audited: Audit = tokio::task::spawn_blocking(audited).await.map_err(|error| StoreError::Io(Box::new(error)))??;
    Ok(StressReport::new(audited, &records, peak, seed, timed_out))
}
