//! The three ways to say something to a session, what becomes of each, and waiting until nothing is left of it.

use std::{future::Future, sync::Arc};

use futures::future::join_all;
use greenroom::{Host, Occurrence, Runtime, RuntimeBuilder, Turn, TurnEnd as Ended, TurnError};
use greenroom_session::{
    event::{Body, Event, TurnEnd},
    id::MessageId,
    message::text_of,
};
use tokio::sync::Semaphore;

use crate::{
    publish::{events, sound, types},
    world::{World, mid, sid},
};

crate::on_every_store!(async
    a_burst_is_one_turn_each_in_the_order_of_acceptance,
    a_message_waits_for_its_turn_a_steer_for_a_step_and_an_inject_for_either,
    an_idle_session_is_started_by_a_steer_and_not_by_an_inject,
    what_is_steered_or_injected_twice_under_one_id_is_one_note,
    a_session_is_idle_when_the_end_of_its_last_turn_is_durable,
    whoever_waits_for_idle_is_told_why_it_does_not_come,
    what_a_watcher_sends_at_the_end_of_a_turn_is_served,
    a_shutdown_in_a_turn_disposes_of_it_and_the_queue_begins_with_the_next_runtime,
);

/// Where a behaviour waits to be let on.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    within: Arc<Semaphore>,
    on: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { within: Arc::new(Semaphore::new(0)), on: Arc::new(Semaphore::new(0)) }
    }

    /// Waits until somebody stands there.
    pub(crate) async fn reached(&self) {
        self.within.acquire().await.unwrap().forget();
    }

    /// Lets this many on, now or later.
    pub(crate) fn open(&self, count: usize) {
        self.on.add_permits(count);
    }

    /// Waits to be let on, whatever becomes of the turn.
    pub(crate) async fn hold(&self) {
        self.within.add_permits(1);
        self.on.acquire().await.unwrap().forget();
    }

    /// Waits to be let on, or for the turn to be cancelled.
    pub(crate) async fn pass(&self, turn: &Turn) -> Result<(), TurnError> {
        self.within.add_permits(1);
        tokio::select! {
            biased;
            () = turn.cancelled().cancelled_owned() => Err(TurnError::new("CANCELLED", "as asked")),
            on = self.on.acquire() => {
                on.unwrap().forget();
                Ok(())
            }
        }
    }
}

/// `worker` takes a step, waits at the gate, takes another, and says what it was told.
pub(crate) fn stepper(gate: &Gate) -> RuntimeBuilder {
    let at = gate.clone();
    Runtime::builder().closure("worker", move |turn: Turn| {
        let at = at.clone();
        async move {
            turn.step().await?;
            // So that what stands in the log up to here is durable.
            turn.record("place", "at the gate").await?;
            at.pass(&turn).await?;
            turn.step().await?;
            turn.say(turn.text())?;
            Ok(Ended::Completed)
        }
    })
}

/// Returns what was heard and how turns began and ended, in order.
pub(crate) fn story(events: &[Event]) -> Vec<String> {
    let tell = |event: &Event| match &event.body {
        Body::TurnStart { turn, .. } => Some(format!("turn {turn}")),
        Body::StepStart { step, .. } => Some(format!("step {step}")),
        Body::UserMessage(message) => Some(text_of(&message.content)),
        Body::TurnEnd { reason: TurnEnd::Aborted { cause }, .. } => Some(format!("aborted by {cause}")),
        Body::TurnEnd { reason, .. } => Some(reason.as_str().to_owned()),
        Body::MessageWithdrawn { message, by } => Some(format!("{message} taken back by {by}")),
        _ => None,
    };
    events.iter().filter_map(tell).collect()
}

async fn a_burst_is_one_turn_each_in_the_order_of_acceptance(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let host = runtime.host();
    let session = sid("r");
    let sent: Vec<MessageId> = join_all((0..40).map(|n| host.send(&session, format!("m{n}"), None))).await.into_iter().map(Result::unwrap).collect();
    let mut more = Vec::new();
    for n in 0..10 {
        more.push(host.send(&sid("r"), format!("n{n}"), None).await.unwrap());
    }
    runtime.when_idle(&sid("r")).await.unwrap();
    let (mut turns, mut served) = (Vec::new(), Vec::new());
    for event in events(world, "r") {
        if let Body::TurnStart { turn, message, attempt } = event.body {
            assert_eq!(attempt, 1);
            turns.push(turn);
            served.push(message);
        }
    }
    assert_eq!(turns, (1..=50).collect::<Vec<_>>());
    let mut by_order: Vec<_> = Vec::new();
    for message in sent.iter().chain(&more) {
        let Some(greenroom_session::store::MessageState::Taken(order)) = world.reader().message(&sid("r"), message).unwrap() else {
            panic!("{message} has had its turn")
        };
        by_order.push((order, message.clone()));
    }
    by_order.sort();
    assert_eq!(served, by_order.into_iter().map(|(_, message)| message).collect::<Vec<_>>());
    assert_eq!(served[40..], more, "one after the other is in that order");
    runtime.shutdown().await;
    sound(world);
}

async fn a_message_waits_for_its_turn_a_steer_for_a_step_and_an_inject_for_either(world: &World) {
    world.root("r");
    let gate = Gate::new();
    let runtime = world.start(stepper(&gate)).await;
    let host = runtime.host();
    host.send(&sid("r"), "one", None).await.unwrap();
    gate.reached().await;
    host.send(&sid("r"), "two", None).await.unwrap();
    runtime.steer(&sid("r"), "steered", None).await.unwrap();
    runtime.inject(&sid("r"), "injected", None).await.unwrap();
    gate.open(1);
    gate.reached().await;
    runtime.inject(&sid("r"), "later", None).await.unwrap();
    gate.open(1);
    runtime.when_idle(&sid("r")).await.unwrap();
    let expected = ["turn 1", "one", "step 1", "steered", "injected", "step 2", "completed", "turn 2", "two", "step 1", "later", "step 2", "completed"];
    // Notes join at the boundary, whichever side of it the mark of the step stands on.
    let mut told = story(&events(world, "r"));
    for window in [3..6, 10..12] {
        told[window].sort();
    }
    let mut expected: Vec<_> = expected.into_iter().map(str::to_owned).collect();
    for window in [3..6, 10..12] {
        expected[window].sort();
    }
    assert_eq!(told, expected);
    runtime.shutdown().await;
    sound(world);
}

async fn an_idle_session_is_started_by_a_steer_and_not_by_an_inject(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let before = events(world, "r");
    let note = runtime.inject(&sid("r"), "by the way", None).await.unwrap();
    runtime.when_idle(&sid("r")).await.unwrap();
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    assert_eq!((events(world, "r"), runtime.host().live_count()), (before, 0), "nobody has looked");
    let waits: Vec<_> = world.reader().inbox(&sid("r"), 9).unwrap().iter().map(|record| record.message.id.clone()).collect();
    assert_eq!(waits, [note], "and it is durable");
    // It is there for the next process, too.
    world.close_after(runtime).await;
    let runtime = world.runtime().await;
    assert_eq!(runtime.recover(None).await.unwrap(), []);
    runtime.steer(&sid("r"), "look up", None).await.unwrap();
    runtime.when_idle(&sid("r")).await.unwrap();
    assert_eq!(story(&events(world, "r")), ["turn 1", "by the way", "look up", "completed"]);
    assert_eq!(runtime.last_answer(&sid("r")).await.unwrap().as_deref(), Some("look up"), "the turn is the steer's own");
    runtime.shutdown().await;
    sound(world);
}

async fn what_is_steered_or_injected_twice_under_one_id_is_one_note(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    for _ in 0..2 {
        assert_eq!(runtime.inject(&sid("r"), "quiet", Some(mid("q"))).await.unwrap(), mid("q"));
    }
    let conflict = runtime.steer(&sid("r"), "quiet", Some(mid("q"))).await.unwrap_err();
    assert_eq!(conflict.code(), "MESSAGE_ID_CONFLICT", "one that wakes is another");
    for (code, said) in [("NOT_RESUMABLE", runtime.steer(&sid("nobody"), "x", None).await), ("NOT_RESUMABLE", runtime.inject(&sid("nobody"), "x", None).await)]
    {
        assert_eq!(said.unwrap_err().code(), code);
    }
    for _ in 0..2 {
        runtime.steer(&sid("r"), "now", Some(mid("s"))).await.unwrap();
        runtime.when_idle(&sid("r")).await.unwrap();
    }
    assert_eq!(story(&events(world, "r")), ["turn 1", "quiet", "now", "completed"]);
    runtime.shutdown().await;
    let late = runtime.inject(&sid("r"), "late", None).await.unwrap_err();
    assert_eq!(late.code(), "DRAINING");
}

/// Tells whether something is still waited for after everybody else had their turn.
pub(crate) async fn still_waits(waiting: &mut (impl Future + Unpin)) -> bool {
    for _ in 0..200 {
        tokio::select! {
            biased;
            _ = &mut *waiting => return false,
            () = tokio::task::yield_now() => {}
        }
    }
    true
}

async fn a_session_is_idle_when_the_end_of_its_last_turn_is_durable(world: &World) {
    world.root("r");
    let gate = Gate::new();
    let runtime = world.start(stepper(&gate)).await;
    let host = runtime.host();
    let session = sid("r");
    runtime.when_idle(&session).await.unwrap();
    for text in ["one", "two"] {
        host.send(&session, text, None).await.unwrap();
    }
    let mut waits = [Box::pin(host.when_idle(&session)), Box::pin(host.when_idle(&session))];
    for _ in 0..2 {
        gate.reached().await;
        for wait in &mut waits {
            assert!(still_waits(wait).await, "a turn is open");
        }
        gate.open(1);
    }
    for wait in waits {
        wait.await.unwrap();
        assert_eq!(story(&events(world, "r")).last().map(String::as_str), Some("completed"), "it is on disk");
    }
    assert_eq!(types(&events(world, "r")).iter().filter(|name| *name == "turn/end").count(), 2);
    // A kept root is idle and live.
    let kept = runtime.resume(&session).await.unwrap();
    kept.send("three").await.unwrap();
    gate.open(1);
    runtime.when_idle(&session).await.unwrap();
    assert_eq!(host.live_count(), 1);
    runtime.shutdown().await;
}

async fn whoever_waits_for_idle_is_told_why_it_does_not_come(world: &World) {
    for id in ["r", "lost"] {
        world.root(id);
        world.accept(id, "m");
    }
    let gate = Gate::new();
    let runtime = world.start(stepper(&gate)).await;
    let host = runtime.host();
    assert_eq!(host.when_idle(&sid("nobody")).await.unwrap_err().code(), "SESSION_NOT_FOUND");
    let session = sid("r");
    let waiting = host.when_idle(&session);
    let shutdown = async {
        // Nobody had woken it: whoever waits has.
        gate.reached().await;
        runtime.shutdown().await;
    };
    let (told, ()) = tokio::join!(waiting, shutdown);
    assert_eq!(told.unwrap_err().code(), "DRAINING", "its message is served again");
    assert_eq!(host.when_idle(&session).await.unwrap_err().code(), "DRAINING");
    drop(host);
    world.close_after(runtime).await;
    let other = world.start(Runtime::builder().closure("somebody else", |_: Turn| async { Ok(Ended::Completed) })).await;
    assert_eq!(other.when_idle(&sid("lost")).await.unwrap_err().code(), "NOT_RESUMABLE", "nobody here plays it");
    other.shutdown().await;
}

/// Sends one more at the end of each of the first turns.
async fn follow(host: Host, count: usize) {
    let mut occurrences = host.subscribe();
    host.send(&sid("r"), "0", None).await.unwrap();
    for n in 1..=count {
        loop {
            if let Occurrence::TurnEnded { .. } = occurrences.recv().await.unwrap() {
                break;
            }
        }
        host.send(&sid("r"), n.to_string(), None).await.unwrap();
    }
}

async fn what_a_watcher_sends_at_the_end_of_a_turn_is_served(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    follow(runtime.host(), 20).await;
    runtime.when_idle(&sid("r")).await.unwrap();
    let heard: Vec<_> = story(&events(world, "r")).into_iter().filter(|line| line.parse::<u32>().is_ok()).collect();
    assert_eq!(heard, (0..=20).map(|n| n.to_string()).collect::<Vec<_>>());
    runtime.shutdown().await;
    sound(world);
}

async fn a_shutdown_in_a_turn_disposes_of_it_and_the_queue_begins_with_the_next_runtime(world: &World) {
    world.root("r");
    let gate = Gate::new();
    let runtime = world.start(stepper(&gate)).await;
    for text in ["one", "two"] {
        runtime.host().send(&sid("r"), text, None).await.unwrap();
    }
    gate.reached().await;
    world.close_after(runtime).await;
    let first = ["turn 1", "one", "step 1", "disposed"];
    assert_eq!(story(&events(world, "r")), first);
    assert_eq!(types(&events(world, "r")).last().map(String::as_str), Some("activation/end"));
    let runtime = world.runtime().await;
    runtime.when_idle(&sid("r")).await.unwrap();
    let then = ["turn 2", "completed", "turn 3", "two", "completed"];
    assert_eq!(story(&events(world, "r")), [&first[..], &then[..]].concat());
    runtime.shutdown().await;
    sound(world);
}
