//! The supervisor: workers one after the other over the same store, each killed after a while, until one is done.
//!
//! It owns the records: a message counts as acknowledged once it has read so. It never opens the store while a worker lives. A worker dies with it: its handle
//! kills it, and where not even that happens the end of the pipe does.

use std::{
    io::{self, ErrorKind},
    process::Stdio,
    time::Duration,
};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::{Kills, Progress, StressError, peak::peak_rss, pipe, records::Records, work::Assignment};

/// Workers in a row that may come to nothing before the next ones live longer.
const FRUITLESS: u32 = 5;
/// The least that a worker lives.
const SHORTEST: Duration = Duration::from_millis(1);
/// How often the time to live may be doubled.
const MAX_DOUBLINGS: u32 = 10;
/// How long a worker that is done may take to end.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Keeps one worker at a time.
pub(super) struct Supervisor<'a> {
    kills: &'a Kills,
    assignment: Assignment,
    random: ChaCha8Rng,
    worker: Option<Child>,
    peak: Option<u64>,
    /// Workers in a row that came to nothing.
    fruitless: u32,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(kills: &'a Kills, assignment: Assignment) -> Self {
        let random = assignment.plan.kills();
        Self { kills, assignment, random, worker: None, peak: None, fruitless: 0 }
    }

    /// Goes on until a worker is done.
    ///
    /// # Cancel safety
    /// [`Supervisor::end`] ends what is under way.
    pub(super) async fn supervise(&mut self, records: &mut Records, observe: &(dyn Fn(Progress) + Sync)) -> Result<(), StressError> {
        while !records.is_done() {
            let before = records.progress();
            self.assignment.senders = records.heard.places(&self.assignment.plan);
            self.live(records, observe).await?;
            let after = records.progress();
            let came_to_nothing = (before.accepted, before.turns) == (after.accepted, after.turns);
            self.fruitless = if came_to_nothing { self.fruitless + 1 } else { 0 };
        }
        Ok(())
    }

    /// Kills the worker, if there is one, and returns the most memory that any of them had.
    pub(super) async fn end(&mut self) -> Option<u64> {
        self.look();
        if let Some(mut worker) = self.worker.take()
            && let Err(error) = worker.kill().await
        {
            tracing::warn!(%error, "the worker cannot be killed");
        }
        self.peak
    }

    /// Has one worker live until it is done or killed.
    async fn live(&mut self, records: &mut Records, observe: &(dyn Fn(Progress) + Sync)) -> Result<(), StressError> {
        let time = self.time_to_live();
        let (stdin, stdout) = self.start().await?;
        let mut stdin = Some(stdin);
        let mut lines = BufReader::new(stdout).lines();
        let kill = tokio::time::sleep(time);
        tokio::pin!(kill);
        let mut killed = false;
        loop {
            tokio::select! {
                line = lines.next_line() => match line? {
                    Some(line) => {
                        // What a kill has cut is no line.
                        let Some(told) = pipe::read(&line) else { continue };
                        records.take(&told);
                        observe(records.progress());
                        if records.is_done() {
                            self.look();
                            stdin = None;
                        }
                    }
                    None => break,
                },
                () = &mut kill, if !killed && !records.is_done() => {
                    killed = true;
                    self.look();
                    if let Some(worker) = &mut self.worker {
                        worker.start_kill()?;
                    }
                }
            }
        }
        drop(stdin);
        let Some(mut worker) = self.worker.take() else { return Ok(()) };
        let Ok(status) = tokio::time::timeout(END_PATIENCE, worker.wait()).await else {
            worker.kill().await?;
            return Ok(());
        };
        let status = status?;
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
        let now = self.worker.as_ref().and_then(Child::id).and_then(|id| peak_rss(Some(id)));
        self.peak = self.peak.max(now);
    }

    fn time_to_live(&mut self) -> Duration {
        // No time at all would stay none.
        let time = self.random.random_range(self.kills.every.clone()).max(SHORTEST);
        time * 2_u32.pow((self.fruitless / FRUITLESS).min(MAX_DOUBLINGS))
    }

    /// Starts a worker and gives it its assignment.
    async fn start(&mut self) -> Result<(ChildStdin, ChildStdout), StressError> {
        let Some((program, arguments)) = self.kills.worker.split_first() else { return Err(StressError::Options("kills need a worker's command")) };
        let mut worker = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A signal of the terminal is the supervisor's to heed.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let (Some(mut stdin), Some(stdout)) = (worker.stdin.take(), worker.stdout.take()) else {
            return Err(StressError::Worker("it has no pipes".into()));
        };
        self.worker = Some(worker);
        let mut line = serde_json::to_vec(&self.assignment).map_err(io::Error::other)?;
        line.push(b'\n');
        match stdin.write_all(&line).await {
            // How it ended says more than that it does not listen.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok((stdin, stdout)),
        }
    }
}
