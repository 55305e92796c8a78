//! Turns that do nothing, from the sender's call to the durable end, in memory.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use greenroom::{Delegate, Runtime, TurnEnd};
use greenroom_session::store::memory::MemoryStore;
use tokio::sync::Notify;

use crate::{
    floor,
    measure::{Outcome, Spent, Stopwatch, median, two_workers},
    table::{Row, Target},
};

const ROUNDS: usize = 5;
const SENDERS: usize = 32;
/// Runs of the floor in each round, of which the middle counts.
const FLOORS: usize = 9;

/// Turns of one child and of a thousand.
pub(crate) fn turns(scale: f64) -> Outcome<Vec<Row>> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a scaled count")]
    let each = (1_500.0 * scale) as usize;
    [1, 1_000].into_iter().map(|children| one(children, each)).collect()
}

fn one(children: usize, each: usize) -> Outcome<Row> {
    let workers = two_workers()?;
    let mut pairs = Vec::new();
    for round in 0..=ROUNDS {
        let ours = workers.block_on(no_op_turns(children, each))?;
        // Short work, whose time depends on whether the actor and who tells it happen to share a worker.
        let floors: Vec<Spent> = (0..FLOORS).map(|_| workers.block_on(floor::tells(SENDERS, each))).collect::<Outcome<_>>()?;
        let floor = Spent::middle(&floors);
        if round > 0 {
            pairs.push((ours, floor));
        }
    }
    let all = SENDERS * each;
    let wall = median(pairs.iter().map(|(ours, floor)| floor.wall_ns(all) / ours.wall_ns(all)));
    Ok(Row {
        what: format!("memory, no-op turns end to end, {children} {}", if children == 1 { "child" } else { "children" }),
        ours: format!("{:.0} ns CPU", median(pairs.iter().map(|(ours, _)| ours.cpu_ns(all)))),
        floor: format!("{:.0} ns CPU", median(pairs.iter().map(|(_, floor)| floor.cpu_ns(all)))),
        ratio: median(pairs.iter().map(|(ours, floor)| floor.cpu_ns(all) / ours.cpu_ns(all))),
        target: Target::AtLeast(0.08),
        note: format!("on the wall {:.0} ns, ratio {wall:.2}", median(pairs.iter().map(|(ours, _)| ours.wall_ns(all)))),
    })
}

/// Sends from a closed loop of senders and waits until the last turn has ended.
async fn no_op_turns(children: usize, each: usize) -> Outcome<Spent> {
    let served = Arc::new((AtomicUsize::new(0), Notify::new()));
    let all = SENDERS * each + children;
    let behavior = {
        let served = served.clone();
        move |_turn| {
            let served = served.clone();
            async move {
                if served.0.fetch_add(1, Ordering::Relaxed) + 1 == all {
                    served.1.notify_one();
                }
                Ok(TurnEnd::Completed)
            }
        }
    };
    let runtime = Runtime::builder()
        .closure("root", |_| async { Ok(TurnEnd::Completed) })
        .closure("child", behavior)
        .inbox_limit(1 << 40)
        .start(Arc::new(MemoryStore::new()))
        .await?;
    let root = runtime.root("root", "root").await?;
    let mut ids = Vec::with_capacity(children);
    for number in 0..children {
        ids.push(root.agent().start_continuable(Delegate::new("child", format!("child {number}"), "Begin.")).await?.child);
    }
    root.quiescent().await?;
    let ids: Arc<[_]> = ids.into();
    let watch = Stopwatch::start();
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let (agent, ids) = (root.agent(), ids.clone());
            tokio::spawn(async move {
                // Each sender goes round all children from a place of its own.
                for id in ids.iter().cycle().skip(sender * ids.len() / SENDERS).take(each) {
                    agent.followup(id, "Go on.").await?;
                }
                Outcome::Ok(())
            })
        })
        .collect();
    for sender in senders {
        sender.await??;
    }
    served.1.notified().await;
    let spent = watch.stop();
    drop(root);
    runtime.shutdown().await;
    Ok(spent)
}
