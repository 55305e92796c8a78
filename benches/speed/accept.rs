//! Acceptance: from a sender's call to the answer that the message is durable.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use greenroom::{Delegate, RootHandle, Runtime, Turn, TurnEnd, TurnError};
use greenroom_session::{
    id::{OwnerId, SessionId},
    store::{CommitError, Done, Op, Reader, Refused, Store, StoreError, memory::MemoryStore, sqlite::SqliteStore},
};

use crate::{
    floor::{self, BareStore},
    measure::{Outcome, Spent, Stopwatch, median, quantile, to_f64, two_workers},
    table::{Row, Target},
};

const ROUNDS: usize = 5;

/// A store that remembers what was committed.
#[derive(Debug)]
struct Recording {
    store: SqliteStore,
    batches: Mutex<Vec<Vec<Op>>>,
}

impl Recording {
    fn take(&self) -> Vec<Vec<Op>> {
        std::mem::take(&mut *self.batches.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Store for Recording {
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push(ops.to_vec());
        self.store.commit(ops)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.store.reader()
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn owner(&self) -> &OwnerId {
        self.store.owner()
    }

    fn heartbeat(&self) -> Result<(), StoreError> {
        self.store.heartbeat()
    }

    fn poll(&self) -> Result<Vec<SessionId>, StoreError> {
        self.store.poll()
    }

    fn close(&self) -> Result<(), StoreError> {
        self.store.close()
    }
}

/// Holds its turn open, so that what comes in is accepted and not served.
async fn hold(turn: Turn) -> Result<TurnEnd, TurnError> {
    turn.cancelled().cancelled().await;
    Ok(TurnEnd::Completed)
}

/// Starts a root with children whose first turn stays open.
pub(crate) async fn held_children(store: Arc<dyn Store>, children: usize) -> Outcome<(Runtime, RootHandle, Vec<SessionId>)> {
    let runtime = Runtime::builder()
        .closure("root", |_| async { Ok(TurnEnd::Completed) })
        .closure("hold", hold)
        .inbox_limit(1 << 40)
        .max_live(children + 8)
        .start(store)
        .await?;
    let root = runtime.root("root", "root").await?;
    let agent = root.agent();
    let mut ids = Vec::with_capacity(children);
    for number in 0..children {
        ids.push(agent.start_continuable(Delegate::new("hold", format!("child {number}"), "Hold.")).await?.child);
    }
    while runtime.host().live_count() < children + 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok((runtime, root, ids))
}

pub(crate) const TEXT: &str = "Collect three more facts about the second chapter and report them.";

/// Sends to each child from a sender of its own, one message after the other, for a while. Returns how long each took, in microseconds.
pub(crate) async fn closed_loop(root: &RootHandle, children: &[SessionId], time: Duration) -> Outcome<(Spent, Vec<f64>)> {
    let watch = Stopwatch::start();
    let until = Instant::now() + time;
    let senders: Vec<_> = children
        .iter()
        .map(|child| {
            let (agent, child) = (root.agent(), child.clone());
            tokio::spawn(async move {
                let mut took = Vec::new();
                while Instant::now() < until {
                    let begun = Instant::now();
                    agent.followup(&child, TEXT).await?;
                    took.push(begun.elapsed().as_secs_f64() * 1e6);
                }
                Outcome::Ok(took)
            })
        })
        .collect();
    let mut took = Vec::new();
    for sender in senders {
        took.extend(sender.await??);
    }
    Ok((watch.stop(), took))
}

/// One round: our figure, and the floor on the same batches just after.
struct Round {
    accepted: usize,
    batches: usize,
    ours: Spent,
    p50: f64,
    p99: f64,
    floor: Duration,
    floor_p50: f64,
}

fn rounds(senders: usize, time: Duration) -> Outcome<Vec<Round>> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let store = Arc::new(Recording { store: SqliteStore::open(folder.path().join("ours.db"))?, batches: Mutex::default() });
    let workers = two_workers()?;
    let (runtime, root, children) = workers.block_on(held_children(store.clone(), senders))?;
    let mut bare = bare_copy(&store.take(), &folder.path().join("floor.db"))?;
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS {
        let (ours, took) = workers.block_on(closed_loop(&root, &children, time))?;
        let batches = store.take();
        let rows = bare.rows(&batches)?;
        let times = bare.replay(&rows)?;
        let floor = times.iter().sum();
        // The first round warms both up.
        if round > 0 {
            rounds.push(Round {
                accepted: took.len(),
                batches: batches.len(),
                ours,
                p50: median(took.iter().copied()),
                p99: quantile(took.iter().copied(), 0.99),
                floor,
                floor_p50: median(times.iter().map(|time| time.as_secs_f64() * 1e6)),
            });
        }
    }
    workers.block_on(async {
        drop(root);
        runtime.shutdown().await;
    });
    Ok(rounds)
}

/// Makes a second store of the same sessions, and opens it without greenroom.
fn bare_copy(setup: &[Vec<Op>], path: &Path) -> Outcome<BareStore> {
    let copy = SqliteStore::open(path)?;
    for batch in setup {
        for done in copy.commit(batch)? {
            done?;
        }
    }
    copy.close()?;
    drop(copy);
    BareStore::open(path)
}

fn middle(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    median(rounds.iter().map(of))
}

/// Acceptance on SQLite from 256 senders to 256 sessions.
pub(crate) fn many_senders(scale: f64) -> Outcome<Vec<Row>> {
    let rounds = rounds(256, Duration::from_secs_f64(1.0 * scale))?;
    let rate = middle(&rounds, |round| to_f64(round.accepted) / round.ours.wall.as_secs_f64());
    let floor = middle(&rounds, |round| to_f64(round.accepted) / round.floor.as_secs_f64());
    let ratio = middle(&rounds, |round| round.floor.as_secs_f64() / round.ours.wall.as_secs_f64());
    let batch = middle(&rounds, |round| to_f64(round.accepted) / to_f64(round.batches));
    let note = format!(
        "p50 {:.1} ms, p99 {:.1} ms, {:.0} us CPU each",
        middle(&rounds, |round| round.p50) / 1e3,
        middle(&rounds, |round| round.p99) / 1e3,
        middle(&rounds, |round| round.ours.cpu_ns(round.accepted)) / 1e3,
    );
    Ok(vec![
        Row {
            what: "SQLite, 256 senders to 256 sessions: accepted".into(),
            ours: format!("{rate:.0}/s"),
            floor: format!("{floor:.0}/s"),
            ratio,
            target: Target::AtLeast(0.5),
            note,
        },
        Row {
            what: "the same: mean batch".into(),
            ours: format!("{batch:.0}"),
            floor: "1".into(),
            ratio: batch,
            target: Target::AtLeast(30.0),
            note: String::new(),
        },
    ])
}

/// Acceptance on SQLite from one sender to one session.
pub(crate) fn one_sender(scale: f64) -> Outcome<Vec<Row>> {
    let rounds = rounds(1, Duration::from_secs_f64(1.0 * scale))?;
    Ok(vec![Row {
        what: "SQLite, one sender: p50".into(),
        ours: format!("{:.0} us", middle(&rounds, |round| round.p50)),
        floor: format!("{:.0} us", middle(&rounds, |round| round.floor_p50)),
        ratio: middle(&rounds, |round| round.p50 / round.floor_p50),
        target: Target::AtMost(1.6),
        note: format!("p99 {:.1} ms", middle(&rounds, |round| round.p99) / 1e3),
    }])
}

/// Acceptance in memory: follow-ups into one live child from 4 senders.
pub(crate) fn memory(scale: f64) -> Outcome<Vec<Row>> {
    const SENDERS: usize = 4;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a scaled count")]
    let each = (15_000.0 * scale) as usize;
    let workers = two_workers()?;
    let mut pairs = Vec::new();
    for round in 0..=2 * ROUNDS {
        let (runtime, root, children) = workers.block_on(held_children(Arc::new(MemoryStore::new()), 1))?;
        let ours = workers.block_on(followups(&root, &children, SENDERS, each))?;
        let floor = workers.block_on(floor::calls(SENDERS, each))?;
        if round > 0 {
            pairs.push((ours, floor));
        }
        workers.block_on(async {
            drop(root);
            runtime.shutdown().await;
        });
    }
    let all = SENDERS * each;
    let wall = median(pairs.iter().map(|(ours, floor)| floor.wall_ns(all) / ours.wall_ns(all)));
    Ok(vec![Row {
        what: "memory, 4 senders to one live child: accepted".into(),
        ours: format!("{:.0} ns CPU", median(pairs.iter().map(|(ours, _)| ours.cpu_ns(all)))),
        floor: format!("{:.0} ns CPU", median(pairs.iter().map(|(_, floor)| floor.cpu_ns(all)))),
        ratio: median(pairs.iter().map(|(ours, floor)| floor.cpu_ns(all) / ours.cpu_ns(all))),
        target: Target::AtLeast(0.4),
        note: format!("on the wall {:.0} ns, ratio {wall:.2}", median(pairs.iter().map(|(ours, _)| ours.wall_ns(all)))),
    }])
}

async fn followups(root: &RootHandle, children: &[SessionId], senders: usize, each: usize) -> Outcome<Spent> {
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..senders)
        .zip(children.iter().cycle())
        .map(|(_, child)| {
            let (agent, child) = (root.agent(), child.clone());
            tokio::spawn(async move {
                for _ in 0..each {
                    agent.followup(&child, TEXT).await?;
                }
                Outcome::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(watch.stop())
}
