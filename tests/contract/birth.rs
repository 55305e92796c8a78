//! A process is killed at every write of a child's life, from its creation on: the child is there, whole and usable, or it is not there.

use std::{
    os::unix::process::ExitStatusExt,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use greenroom::{Delegate, Runtime, actors::catalog::Entry};
use greenroom_session::{
    event::{Body, Event},
    fold::DescriptorState,
    id::SessionId,
    message::text_of,
    store::{Store, jsonl::JsonlStore, sqlite::SqliteStore},
};
use rustix::process::{Signal, getpid, kill_process};
use tokio_util::sync::CancellationToken;

use crate::{
    publish::{events, sound},
    watched::Watch,
    watched_store::WatchedStore,
    world::{Kind, World, sid},
};

const STORE: &str = "GREENROOM_TEST_STORE";
const MOMENT: &str = "GREENROOM_TEST_MOMENT";

fn child() -> Delegate {
    Delegate::new("worker", "a child", "begin").alias("one")
}

/// The process that is killed: run by the tests below, and by nobody else.
#[tokio::test]
#[ignore = "the other process of other tests"]
async fn a_process_that_starts_a_child_and_may_be_killed() {
    let (Ok(path), Ok(moment)) = (std::env::var(STORE), std::env::var(MOMENT)) else { return };
    let path = Path::new(&path);
    let store: Arc<dyn Store> = if path.is_dir() { Arc::new(JsonlStore::open(path).unwrap()) } else { Arc::new(SqliteStore::open_existing(path).unwrap()) };
    let watch = Watch::default();
    let (moment, late) = moment.split_once(' ').unwrap();
    let (left, late) = (AtomicUsize::new(moment.parse().unwrap()), Duration::from_micros(late.parse().unwrap()));
    let runtime = World::builder().start(Arc::new(WatchedStore { store, watch: watch.clone() })).await.unwrap();
    let root = runtime.resume(&sid("r")).await.unwrap();
    root.quiescent().await.unwrap();
    watch.around_commits(move || {
        if left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let at = Instant::now() + late;
            let kill = move || {
                while Instant::now() < at {
                    std::hint::spin_loop();
                }
                kill_process(getpid(), Signal::KILL).unwrap();
            };
            // Late is in the middle of the write, or a little after it.
            if late.is_zero() { kill() } else { drop(std::thread::spawn(kill)) }
        }
    });
    let child = root.agent().start_continuable(child()).await.unwrap().child;
    root.agent().followup(&child, "more").await.unwrap();
    root.quiescent().await.unwrap();
    drop(root);
    runtime.shutdown().await;
}

/// Runs the process until it is killed so many microseconds after this moment; false if it came to its end.
fn is_killed_at(world: &World, moment: usize, late: u64) -> bool {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "birth::a_process_that_starts_a_child_and_may_be_killed", "--ignored", "--nocapture"]);
    let output = process.env(STORE, world.path()).env(MOMENT, format!("{moment} {late}")).output().unwrap();
    assert!(output.status.success() || output.status.signal() == Some(9), "{output:?}");
    output.status.signal().is_some()
}

/// Returns what was heard by a session that a person or its parent had to say, each text once for every turn that began with it.
fn heard(events: &[Event]) -> Vec<String> {
    let text = |event: &Event| if let Body::UserMessage(message) = &event.body { Some(text_of(&message.content)) } else { None };
    events.iter().filter_map(text).collect()
}

/// Kills a process, looks at what it has left, and goes on with that. Returns whether it was killed and whether the child is there.
async fn kill(kind: fn() -> World, moment: usize, late: u64) -> (bool, bool) {
    let world = kind();
    world.root("r");
    world.close();
    let killed = is_killed_at(&world, moment, late);
    let found: Vec<SessionId> = world.reader().children(Some(&sid("r")), None, 9).unwrap().into_iter().map(|child| child.id).collect();
    assert!(found.len() < 2, "moment {moment}: {found:?}");
    for child in &found {
        let log = world.reader().load(child).unwrap();
        assert!(matches!(log.fold.descriptor(), DescriptorState::One { parsed: Ok(_), .. }), "moment {moment}: half a child");
        let told = world.reader().inbox(child, 9).unwrap().len() + heard(&log.events).len();
        assert!((1..=2).contains(&told), "moment {moment}: its first message is not there");
    }
    go_on(&world, found.first(), moment).await;
    (killed, !found.is_empty())
}

async fn a_child_is_there_whole_or_not_at_all(kind: fn() -> World) {
    let (mut absent, mut there) = (0, 0);
    for moment in 1.. {
        let (killed, born) = kill(kind, moment, 0).await;
        *(if born { &mut there } else { &mut absent }) += 1;
        if !killed {
            break;
        }
    }
    assert!(absent > 0 && there > 5, "{absent} {there}");
    // In the middle of the write that creates it, wherever that is by now.
    for late in 1..=12 {
        kill(kind, 1, late * 200).await;
    }
}

/// The next process finds the child and talks to it, or begins it.
async fn go_on(world: &World, found: Option<&SessionId>, moment: usize) {
    let runtime: Runtime = world.runtime().await;
    runtime.recover(None).await.unwrap();
    let root = runtime.resume(&sid("r")).await.unwrap();
    root.quiescent().await.unwrap();
    let agent = root.agent();
    let listed: Vec<String> = runtime.list(Some(&sid("r"))).await.unwrap().entries.iter().map(Entry::id).map(ToString::to_string).collect();
    assert_eq!(listed, found.iter().map(ToString::to_string).collect::<Vec<_>>(), "moment {moment}");
    let again = agent.start_continuable(child()).await;
    let child = match found {
        // Its alias is taken, which a child of which only a half is there would not have done.
        Some(child) => {
            assert_eq!(again.unwrap_err().code(), "ALIAS_TAKEN", "moment {moment}");
            child.clone()
        }
        None => again.unwrap().child,
    };
    agent.followup(&child, "at last").await.unwrap();
    root.quiescent().await.unwrap();
    let texts = heard(&events(world, child.as_str()));
    assert!(texts == ["begin", "at last"] || texts == ["begin", "more", "at last"], "moment {moment}: {texts:?}");
    drop((agent, root));
    world.close_after(runtime).await;
    sound(world);
}

#[tokio::test]
async fn a_child_whose_process_is_killed_is_there_whole_or_not_at_all_in_a_database() {
    a_child_is_there_whole_or_not_at_all(World::sqlite).await;
}

#[tokio::test]
async fn a_child_whose_process_is_killed_is_there_whole_or_not_at_all_in_a_folder() {
    a_child_is_there_whole_or_not_at_all(World::jsonl).await;
}

crate::on_every_store!(async every_id_that_a_child_ever_had_reaches_it_after_a_restart);

async fn every_id_that_a_child_ever_had_reaches_it_after_a_restart(world: &World) {
    world.root("r");
    let mut ids = Vec::new();
    let runtime = world.runtime().await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    for n in 0..6 {
        let born = root.agent().start_continuable(Delegate::new("worker", format!("child {n}"), "begin").alias(format!("alias {n}"))).await.unwrap();
        ids.push(born.child);
    }
    root.quiescent().await.unwrap();
    drop(root);
    world.close_after(runtime).await;
    for round in 0..3 {
        let runtime = world.runtime().await;
        let root = runtime.resume(&sid("r")).await.unwrap();
        let listed: Vec<SessionId> = root.agent().list_children(CancellationToken::new()).await.unwrap().iter().map(|entry| entry.id().clone()).collect();
        assert_eq!(listed.iter().collect::<std::collections::BTreeSet<_>>(), ids.iter().collect(), "round {round}");
        for (n, id) in ids.iter().enumerate() {
            let aliased = world.reader().alias(&sid("r"), &format!("alias {n}")).unwrap();
            assert_eq!(aliased.as_ref(), Some(id));
            root.agent().followup(id, format!("round {round}")).await.unwrap();
        }
        root.quiescent().await.unwrap();
        for id in &ids {
            assert_eq!(heard(&events(world, id.as_str())).len(), round + 2, "{id} in round {round}");
        }
        drop(root);
        // Once in order, once killed, once more in order.
        if round == 1 && world.kind == Kind::Memory {
            runtime.shutdown().await;
            drop(runtime);
            world.crash();
        } else {
            world.close_after(runtime).await;
        }
    }
    sound(world);
}
