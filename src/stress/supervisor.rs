//! The supervisor: workers one after the other over the same store, each killed after a while, until one is done.
//!
//! It owns the records: a message counts as acknowledged once it has read so. It never opens the store while a worker lives; after each kill it audits what that has left. A worker dies with it: its handle
//! kills it, and where not even that happens the end of the pipe does.

use std::{
    io::{self, ErrorKind},
    process::Stdio,
    time::Duration,
};

use greenroom_session::store::StoreError;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::{
    Kills, Progress, StressError,
    audit::{Audit, audit},
    peak::peak_rss,
    pipe,
    records::{Heard, Records},
    work::Assignment,
};
use crate::store_url::StoreUrl;

/// Workers in a row that may come to nothing before the next ones live longer.
const FRUITLESS: u32 = 5;
/// The least that a worker lives.
const SHORTEST: Duration = Duration::from_millis(1);
/// How often the time to live may be doubled.
const MAX_DOUBLINGS: u32 = 10;
/// How long a worker that is done may take to end.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// A worker and its pipes. Whoever drops it kills first: a worker that finds a pipe closed would say so to a person who has asked for nothing of it.
struct Worker {
    process: Child,
    /// Absent once it may end.
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

/// Keeps one worker at a time.
pub(super) struct Supervisor<'a> {
    kills: &'a Kills,
    assignment: Assignment,
    random: ChaCha8Rng,
    worker: Option<Worker>,
    peak: Option<u64>,
    /// Workers in a row that came to nothing.
    fruitless: u32,
    /// Audits of what kills have left.
    audits: u64,
}

/// How a supervised run has ended.
#[derive(Debug)]
pub(super) enum Supervised {
    /// A worker was done.
    Done,
    /// An audit after a kill has found something.
    Unclean(Audit),
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(kills: &'a Kills, assignment: Assignment) -> Self {
        let random = assignment.plan.kills();
        Self { kills, assignment, random, worker: None, peak: None, fruitless: 0, audits: 0 }
    }

    /// Goes on until a worker is done, or an audit after a kill has found something.
    ///
    /// # Cancel safety
    /// [`Supervisor::end`] ends what is under way.
    pub(super) async fn supervise(&mut self, records: &mut Records, observe: &(dyn Fn(Progress) + Sync)) -> Result<Supervised, StressError> {
        while !records.is_done() {
            let before = records.progress();
            if self.kills.until.is_some_and(|until| before.kills >= until) {
                self.come_to_an_end(records);
            }
            self.assignment.senders = records.heard.places(&self.assignment.plan);
            self.live(records, observe).await?;
            let after = records.progress();
            let came_to_nothing = (before.accepted, before.turns) == (after.accepted, after.turns);
            self.fruitless = if came_to_nothing { self.fruitless + 1 } else { 0 };
            if after.kills > before.kills
                && let Some(audit) = self.audit(&records.heard).await?
            {
                return Ok(Supervised::Unclean(audit));
            }
        }
        Ok(Supervised::Done)
    }

    /// Returns what the workers are told, as it is by now.
    pub(super) fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// Returns how often what a kill had left was audited.
    pub(super) fn audits(&self) -> u64 {
        self.audits
    }

    /// Has the senders send no more than one message each beyond those that were acknowledged, which are those that were under way.
    fn come_to_an_end(&mut self, records: &mut Records) {
        let most = records.heard.acknowledged.iter().max().map_or(0, |most| most + 1);
        if most < self.assignment.plan.messages {
            self.assignment.plan.messages = most;
            records.plans(&self.assignment.plan);
        }
    }

    /// Audits what a killed worker has left, before the next one begins. Returns the audit if it has found anything.
    async fn audit(&mut self, heard: &Heard) -> Result<Option<Audit>, StressError> {
        self.audits += 1;
        let (Assignment { plan, root, store, .. }, heard) = (self.assignment.clone(), heard.clone());
        let audited = move || {
            let url: StoreUrl = store.parse().map_err(|_| StressError::Options("the store has no URL"))?;
            match url.reader() {
                Ok(mut reader) => Ok(Some(audit(&mut *reader, &root, &plan, &heard, true)?)),
                // Killed before it was born.
                Err(StoreError::Missing { .. }) if heard.acknowledged.iter().all(|count| *count == 0) => Ok(None),
                Err(error) => Err(StressError::from(error)),
            }
        };
        let audit = tokio::task::spawn_blocking(audited).await.map_err(|error| StoreError::Io(Box::new(error)))??;
        Ok(audit.filter(|audit| !audit.findings.is_empty()))
    }

    /// Kills the worker, if there is one, and returns the most memory that any of them had.
    pub(super) async fn end(&mut self) -> Option<u64> {
        self.look();
        if let Some(mut worker) = self.worker.take()
            && let Err(error) = worker.process.kill().await
        {
            tracing::warn!(%error, "the worker cannot be killed");
        }
        self.peak
    }

    /// Has one worker live until it is done or killed.
    async fn live(&mut self, records: &mut Records, observe: &(dyn Fn(Progress) + Sync)) -> Result<(), StressError> {
        let time = self.time_to_live();
        self.start().await?;
        let kill = tokio::time::sleep(time);
        tokio::pin!(kill);
        let mut killed = false;
        // It stays in its place throughout: who drops this future kills it before its pipes close.
        while let Some(worker) = &mut self.worker {
            tokio::select! {
                line = worker.output.next_line() => match line? {
                    Some(line) => {
                        // What a kill has cut is no line.
                        let Some(told) = pipe::read(&line) else { continue };
                        records.take(&told);
                        observe(records.progress());
                        if records.is_done() {
                            self.peak = self.peak.max(peak_of(worker));
                            worker.input = None;
                        }
                    }
                    None => break,
                },
                () = &mut kill, if !killed && !records.is_done() => {
                    killed = true;
                    self.peak = self.peak.max(peak_of(worker));
                    worker.process.start_kill()?;
                }
            }
        }
        let Some(worker) = &mut self.worker else { return Ok(()) };
        worker.input = None;
        let Ok(status) = tokio::time::timeout(END_PATIENCE, worker.process.wait()).await else {
            worker.process.kill().await?;
            self.worker = None;
            return Ok(());
        };
        let status = status?;
        self.worker = None;
        if killed && !status.success() {
            // A worker that was done just before has ended by itself.
            records.killed();
        } else if !records.is_done() {
            return Err(StressError::Worker(status.to_string()));
        }
        observe(records.progress());
        Ok(())
    }

    /// Looks at the worker's memory.
    fn look(&mut self) {
        self.peak = self.peak.max(self.worker.as_ref().and_then(peak_of));
    }

    fn time_to_live(&mut self) -> Duration {
        // No time at all would stay none.
        let time = self.random.random_range(self.kills.every.clone()).max(SHORTEST);
        time * 2_u32.pow((self.fruitless / FRUITLESS).min(MAX_DOUBLINGS))
    }

    /// Starts a worker and gives it its assignment.
    async fn start(&mut self) -> Result<(), StressError> {
        let Some((program, arguments)) = self.kills.worker.split_first() else { return Err(StressError::Options("kills need a worker's command")) };
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A signal of the terminal is the supervisor's to heed.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(StressError::Worker("it has no pipes".into()));
        };
        let worker = self.worker.insert(Worker { process, input: Some(input), output: BufReader::new(output).lines() });
        let mut line = serde_json::to_vec(&self.assignment).map_err(io::Error::other)?;
        line.push(b'\n');
        let Some(input) = &mut worker.input else { return Ok(()) };
        match input.write_all(&line).await {
            // How it ended says more than that it does not listen.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Returns the most memory that a worker has had.
fn peak_of(worker: &Worker) -> Option<u64> {
    worker.process.id().and_then(|id| peak_rss(Some(id)))
}

#[cfg(test)]
mod tests {
    use std::{
        path::PathBuf,
        sync::atomic::{AtomicBool, Ordering},
    };

    use greenroom_session::id::SessionId;

    use super::{
        super::{plan::Plan, records::Heard},
        *,
    };

    /// Returns what the descriptors of a process are.
    fn descriptors(process: &str) -> Vec<PathBuf> {
        let folder = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        folder.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok()).collect()
    }

    #[tokio::test]
    async fn a_worker_that_is_cut_off_has_its_pipes_until_it_is_dead() {
        let worker = ["sh", "-c", "read line; echo 'laid-out .'; read rest"].map(Into::into).to_vec();
        let kills = Kills { every: Duration::from_secs(600)..=Duration::from_secs(600), until: None, worker };
        let plan = Plan { seed: 1, agents: 2, senders: 2, messages: 2, min_size: 1, max_size: 1 };
        let senders = Heard::new(&plan).places(&plan);
        let assignment = Assignment { store: "memory:".into(), plan: plan.clone(), root: SessionId::new("root").unwrap(), inbox_limit: 8, senders };
        let (mut records, mut supervisor) = (Records::new(&plan).unwrap(), Supervisor::new(&kills, assignment));
        let told = AtomicBool::new(false);
        let observe = |_: Progress| told.store(true, Ordering::Relaxed);
        tokio::select! {
            done = supervisor.supervise(&mut records, &observe) => panic!("it goes on for ever: {done:?}"),
            () = async { while !told.load(Ordering::Relaxed) { tokio::task::yield_now().await; } } => {}
        }
        let id = supervisor.worker.as_ref().unwrap().process.id().unwrap();
        let theirs = ["0", "1"].map(|number| std::fs::read_link(format!("/proc/{id}/fd/{number}")).unwrap());
        let ours = descriptors("self");
        assert!(theirs.iter().all(|pipe| ours.contains(pipe)), "{theirs:?} {ours:?}");
        supervisor.end().await;
        assert!(!std::fs::exists(format!("/proc/{id}")).unwrap());
        let ours = descriptors("self");
        assert!(!theirs.iter().any(|pipe| ours.contains(pipe)), "{theirs:?} {ours:?}");
    }
}
