//! Ends that do not come: what blocks is given up within bounds, its session is free in a new epoch, and what comes of it late touches nothing new.
//!
//! Each blocks a thread of its own, so these tests need more than one. Nobody waits by the clock: the bounds are short, and the drain is what is waited for.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use greenroom::{
    Behavior, Occurrence, Runtime, RuntimeBuilder, Turn, TurnEnd as Ended, TurnError,
    actors::error::{DeliverError, DrainError},
    setup::{Installation, Setup, SetupError},
};
use tokio::sync::Semaphore;

use crate::{
    mechanics::{Gate, story},
    pairs::Pairs,
    publish::{events, sound},
    world::{World, bounded, sid},
};

/// What blocks whoever comes first, until it is opened.
#[derive(Clone)]
struct Block(Arc<Inner>);

struct Inner {
    armed: AtomicBool,
    open: Mutex<bool>,
    opened: Condvar,
    /// A permit for each who stands there, and for each who has gone on.
    within: Semaphore,
    through: Semaphore,
}

impl Block {
    fn new() -> Self {
        let (within, through) = (Semaphore::new(0), Semaphore::new(0));
        Self(Arc::new(Inner { armed: AtomicBool::new(true), open: Mutex::default(), opened: Condvar::new(), within, through }))
    }

    fn pass(&self) {
        if !self.0.armed.swap(false, Ordering::SeqCst) {
            return;
        }
        self.0.within.add_permits(1);
        let open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.opened.wait_while(open, |open| !*open).unwrap_or_else(PoisonError::into_inner));
        self.0.through.add_permits(1);
    }

    fn open(&self) {
        *self.0.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.opened.notify_all();
    }
}

/// A test that fails leaves no thread behind, or its runtime would never end.
struct Opens(Block);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Where the first child blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Its behaviour never comes back and heeds nothing.
    Ignores,
    /// Its behaviour keeps its thread.
    Turn,
    /// What is dropped when its turn is given up keeps its thread.
    TurnDrop,
    /// Its behaviour's own drop does.
    Drop,
    /// The release of what was set up does.
    Release,
    /// Its set-up does.
    SetUp,
}

const PLACES: [Place; 6] = [Place::Ignores, Place::Turn, Place::TurnDrop, Place::Drop, Place::Release, Place::SetUp];

struct Blocked {
    at: Place,
    block: Block,
    gate: Gate,
    /// Whether it is the behaviour of the child.
    is_child: bool,
}

struct DropsLate(Block);

impl Drop for DropsLate {
    fn drop(&mut self) {
        self.0.pass();
    }
}

impl Behavior for Blocked {
    fn turn(&mut self, turn: Turn) -> BoxFuture<'_, Result<Ended, TurnError>> {
        Box::pin(async move {
            if turn.text() != "hang" {
                turn.say(turn.text())?;
                return Ok(Ended::Completed);
            }
            self.is_child = true;
            // One whose set-up blocked has seen nothing of it yet.
            if turn.attempt() > 1 || self.at == Place::SetUp {
                self.gate.pass(&turn).await?;
                return Ok(Ended::Completed);
            }
            let late = (self.at == Place::TurnDrop).then(|| DropsLate(self.block.clone()));
            match self.at {
                Place::Turn => self.block.pass(),
                Place::Ignores | Place::TurnDrop => {
                    self.gate.hold().await;
                    std::future::pending::<()>().await;
                }
                _ => self.gate.pass(&turn).await?,
            }
            drop(late);
            // Nothing of this may be in the log.
            turn.say("late")?;
            Ok(Ended::Completed)
        })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if self.at == Place::Drop && self.is_child {
            self.block.pass();
        }
    }
}

struct Part(Option<Block>);

impl Installation for Part {
    fn release(&mut self) -> Result<(), SetupError> {
        if let Some(block) = &self.0 {
            block.pass();
        }
        Ok(())
    }
}

fn builder(at: Place, block: &Block, gate: &Gate) -> RuntimeBuilder {
    let (block, gate) = (block.clone(), gate.clone());
    // A start that blocks keeps the slot that it was given.
    let slots = if at == Place::SetUp { 2 } else { 1 };
    let make = move || Blocked { at, block: block.clone(), gate: gate.clone(), is_child: false };
    Runtime::builder().behavior("worker", make).max_live(slots).interrupt_grace(Duration::from_millis(20)).shutdown_grace(Duration::from_millis(1_500))
}

/// Has the child of a root hang, and returns when it does.
async fn hang(runtime: &Runtime, at: Place, block: &Block, gate: &Gate) {
    let blocks = block.clone();
    let registered = runtime.host().register_setup(move |setup: &Setup| {
        let block = (setup.session == sid("c")).then(|| blocks.clone());
        if let (Place::SetUp, Some(block)) = (at, &block) {
            block.pass();
        }
        Ok(Box::new(Part(block.filter(|_| at == Place::Release))) as Box<dyn Installation>)
    });
    // For as long as the runtime.
    std::mem::forget(registered);
    runtime.host().send(&sid("c"), "hang", None).await.unwrap();
    match at {
        Place::Turn | Place::SetUp => block.0.within.acquire().await.unwrap().forget(),
        _ => gate.reached().await,
    }
}

async fn a_drain_gives_up(world: &World, at: Place) {
    world.root("r");
    world.child("c", "r");
    world.root("s");
    let (block, gate) = (Block::new(), Gate::new());
    let _opens = Opens(block.clone());
    let runtime = world.start(builder(at, &block, &gate)).await;
    let mut told = runtime.subscribe();
    let root = runtime.resume(&sid("r")).await.unwrap();
    hang(&runtime, at, &block, &gate).await;
    let drained = runtime.drain(&[root.agent()]).await;
    let named = match drained {
        Ok(()) => Vec::new(),
        Err(DrainError::TeardownFailed { failures }) => failures.iter().map(|failure| format!("{} {}", failure.session, failure.code)).collect(),
        Err(error) => panic!("{at:?}: {error}"),
    };
    // A turn is dropped by somebody else than its Activation: that waits for no drop.
    let expected: &[&str] = if matches!(at, Place::Ignores | Place::TurnDrop) { &[] } else { &["c ACTIVATION_OVERDUE"] };
    assert_eq!(named, expected, "{at:?}");
    let held = || world.reader().leases(None).unwrap().into_iter().map(|lease| lease.session.to_string()).collect::<Vec<_>>();
    assert_eq!(held(), ["r"], "{at:?}: another process might take it over");
    let sent = runtime.host().send(&sid("c"), "more", None).await;
    assert!(matches!(sent, Err(DeliverError::Draining)), "{at:?}: {sent:?}");
    // Its turn slot is free.
    runtime.host().send(&sid("s"), "hello", None).await.unwrap();
    runtime.when_idle(&sid("s")).await.unwrap();
    let mut ends = runtime.subscribe();
    drop(root);
    let of_root = |occurrence: &Occurrence| matches!(occurrence, Occurrence::Ended { session, .. } if *session == sid("r"));
    while !of_root(&ends.recv().await.unwrap()) {}
    // In a later epoch it is played while the one that was given up still hangs.
    let root = runtime.resume(&sid("r")).await.unwrap();
    runtime.host().send(&sid("c"), "again", None).await.unwrap();
    gate.reached().await;
    let before = events(world, "c");
    if at != Place::Ignores {
        block.open();
        block.0.through.acquire().await.unwrap().forget();
        // Whatever it does late, it does within its next steps.
        runtime.host().send(&sid("s"), "once more", None).await.unwrap();
    }
    assert_eq!(events(world, "c"), before, "{at:?}: what comes late changes nothing");
    assert!(held().contains(&"c".to_owned()), "{at:?}: and ends nobody");
    gate.open(1);
    assert_eq!(root.quiescent().await.unwrap(), [], "{at:?}");
    let story = story(&events(world, "c"));
    assert_eq!(story[story.len() - 2..], ["again", "completed"], "{at:?}: {story:?}");
    assert!(!story.contains(&"late".to_owned()), "{at:?}: {story:?}");
    assert_eq!(runtime.last_answer(&sid("c")).await.unwrap().as_deref(), Some("again"), "{at:?}");
    drop(root);
    runtime.shutdown().await;
    let mut pairs = Pairs::default();
    assert!(pairs.hear(&mut told));
    assert_eq!(pairs.wrong(), Vec::<String>::new(), "{at:?}");
    for session in pairs.sessions() {
        assert_eq!(pairs.against(&session, &events(world, session.as_str())), Vec::<String>::new(), "{at:?}");
    }
    sound(world);
}

async fn a_shutdown_gives_up(world: &World, at: Place) {
    world.root("r");
    world.child("c", "r");
    let (block, gate) = (Block::new(), Gate::new());
    let _opens = Opens(block.clone());
    let runtime = world.start(builder(at, &block, &gate)).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    hang(&runtime, at, &block, &gate).await;
    let mut told = runtime.subscribe();
    runtime.shutdown().await;
    let mut ends = Vec::new();
    while let Ok(occurrence) = told.try_recv() {
        if let Occurrence::Ended { session, reason, .. } = occurrence {
            ends.push(format!("{session} {reason:?}"));
        }
    }
    // The parent ends in order when its child has been given up, or never came up.
    let of_child: &[&str] = match at {
        Place::Ignores | Place::TurnDrop => &["c Disposed"],
        Place::SetUp => &[],
        Place::Turn | Place::Drop | Place::Release => &["c Failed"],
    };
    assert_eq!(ends, [of_child, &["r Disposed"]].concat(), "{at:?}");
    drop(root);
}

mod memory {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn what_blocks_is_given_up_by_a_drain_and_comes_too_late_to_touch_anything() {
        let worlds = PLACES.map(|at| (World::memory(), at));
        bounded(join_all(worlds.iter().map(|(world, at)| a_drain_gives_up(world, *at))).map(drop)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn what_blocks_is_given_up_by_a_shutdown_and_its_parent_ends_in_order() {
        let worlds = PLACES.map(|at| (World::memory(), at));
        bounded(join_all(worlds.iter().map(|(world, at)| a_shutdown_gives_up(world, *at))).map(drop)).await;
    }
}

mod sqlite {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn what_blocks_is_given_up_by_a_drain_and_comes_too_late_to_touch_anything() {
        let worlds = PLACES.map(|at| (World::sqlite(), at));
        bounded(join_all(worlds.iter().map(|(world, at)| a_drain_gives_up(world, *at))).map(drop)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn what_blocks_is_given_up_by_a_shutdown_and_its_parent_ends_in_order() {
        let worlds = PLACES.map(|at| (World::sqlite(), at));
        bounded(join_all(worlds.iter().map(|(world, at)| a_shutdown_gives_up(world, *at))).map(drop)).await;
    }
}

mod jsonl {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn what_blocks_is_given_up_by_a_drain_and_comes_too_late_to_touch_anything() {
        let worlds = PLACES.map(|at| (World::jsonl(), at));
        bounded(join_all(worlds.iter().map(|(world, at)| a_drain_gives_up(world, *at))).map(drop)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn what_blocks_is_given_up_by_a_shutdown_and_its_parent_ends_in_order() {
        let worlds = PLACES.map(|at| (World::jsonl(), at));
        bounded(join_all(worlds.iter().map(|(world, at)| a_shutdown_gives_up(world, *at))).map(drop)).await;
    }
}
