//! Callers that give up, parents that are replaced, and sessions that somebody else takes, while a message is on its way.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use greenroom::{Delegate, Occurrence, Turn, TurnEnd as Ended};
use greenroom_session::id::SessionId;
use tokio::sync::broadcast::Receiver;
use tokio_util::sync::CancellationToken;

use crate::{
    follow_up::{code, pending},
    mechanics::{Gate, stepper, story},
    publish::{child, events, published, sound, until},
    watched::Call,
    world::{World, sid},
};

crate::on_every_store!(async
    what_was_handed_over_is_served_though_nobody_waits_for_the_answer,
    a_follow_up_that_is_given_up_before_its_acceptance_is_nowhere,
    a_cancellation_that_comes_while_the_commit_is_under_way_waits_for_the_truth,
    what_was_accepted_is_not_given_up_any_more,
    a_parent_that_is_replaced_while_its_child_is_looked_for_sends_nothing,
    what_a_host_begins_to_play_meanwhile_is_sent_nothing,
    a_turn_that_is_cancelled_waits_for_no_full_inbox,
    what_is_refused_wakes_nobody,
);

/// Waits until a turn of another session than this one has ended.
async fn served_but(occurrences: &mut Receiver<Occurrence>, not: &SessionId) {
    until(occurrences, |occurrence| {
        assert!(!matches!(occurrence, Occurrence::NotActivated { .. }), "{occurrence:?}");
        matches!(occurrence, Occurrence::TurnEnded { session, .. } if session != not)
    })
    .await;
}

async fn what_was_handed_over_is_served_though_nobody_waits_for_the_answer(world: &World) {
    for root in ["r", "lone"] {
        world.root(root);
    }
    world.child("c", "r");
    let runtime = Arc::new(world.runtime().await);
    let root = Arc::new(runtime.resume(&sid("r")).await.unwrap());
    for what in ["a message of the host", "a follow-up", "a child"] {
        // Whoever is kept has looked into its inbox by then.
        root.quiescent().await.unwrap();
        world.watch.clear();
        let mut occurrences = runtime.subscribe();
        // Whichever write comes next.
        let pause = world.watch.pause("", Call::Commit, 1);
        let call = tokio::spawn({
            let (runtime, root) = (runtime.clone(), root.clone());
            async move {
                match what {
                    "a message of the host" => drop(runtime.host().send(&sid("lone"), what, None).await),
                    "a follow-up" => drop(root.agent().followup(&sid("c"), what).await),
                    _ => drop(root.agent().start_continuable(Delegate::new("worker", what, what)).await),
                }
            }
        });
        pause.reached().await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        // Whoever was woken too early has looked by now, and has seen nothing.
        runtime.host().quiescent(&sid("r")).await.unwrap();
        pause.open();
        served_but(&mut occurrences, root.id()).await;
        root.quiescent().await.unwrap();
    }
    drop(root);
    Arc::into_inner(runtime).unwrap().shutdown().await;
    sound(world);
}

async fn a_follow_up_that_is_given_up_before_its_acceptance_is_nowhere(world: &World) {
    for id in ["r", "resident", "cold", "colder"] {
        if id == "r" { world.root(id) } else { world.child(id, "r") }
    }
    let gate = Gate::new();
    let runtime = world.start(stepper(&gate)).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    root.agent().followup(&sid("resident"), "busy").await.unwrap();
    gate.reached().await;
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    world.watch.clear();
    for id in ["resident", "cold"] {
        assert_eq!(code(root.agent().cancellable(cancelled.clone()).followup(&sid(id), "x").await), "CANCELLED", "{id}");
        assert_eq!(pending(world, id), [], "{id}");
    }
    let start = root.agent().cancellable(cancelled).start_continuable(Delegate::new("worker", "a child", "begin")).await;
    assert_eq!(start.unwrap_err().code(), "CANCELLED");
    assert_eq!(world.watch.calls(), std::collections::BTreeMap::from([]), "nothing was read or written for it");
    // In the middle of the look at what is on disk: whoever asked does not wait for the end of the look.
    for (id, call) in [("cold", Call::Header), ("colder", Call::Rows)] {
        let token = CancellationToken::new();
        let pause = world.watch.pause(id, call, 1);
        let agent = root.agent().cancellable(token.clone());
        let asks = tokio::spawn(async move { agent.followup(&sid(id), "x").await });
        pause.reached().await;
        token.cancel();
        assert_eq!(code(asks.await.unwrap()), "CANCELLED", "{call:?}");
        pause.open();
    }
    gate.open(9);
    root.quiescent().await.unwrap();
    for id in ["cold", "colder"] {
        assert_eq!((world.watch.count(id, Call::Commit), story(&events(world, id))), (0, vec![]));
    }
    runtime.shutdown().await;
}

async fn a_cancellation_that_comes_while_the_commit_is_under_way_waits_for_the_truth(world: &World) {
    world.root("r");
    world.child("c", "r");
    let runtime = world.runtime().await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    for (fails, expected) in [(false, "accepted"), (true, "NOT_DELIVERED")] {
        root.quiescent().await.unwrap();
        world.watch.clear();
        let token = CancellationToken::new();
        let pause = world.watch.pause("c", Call::Commit, 1);
        if fails {
            world.watch.fail("c", Call::Commit, 1, crate::watched::Fault::Outage);
        }
        let agent = root.agent().cancellable(token.clone());
        let asks = tokio::spawn(async move { agent.followup(&sid("c"), "x").await });
        pause.reached().await;
        token.cancel();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!asks.is_finished(), "nobody knows yet");
        pause.open();
        assert_eq!(code(asks.await.unwrap()), expected);
    }
    root.quiescent().await.unwrap();
    assert_eq!(story(&events(world, "c")), ["turn 1", "x", "completed"]);
    runtime.shutdown().await;
    sound(world);
}

async fn what_was_accepted_is_not_given_up_any_more(world: &World) {
    world.root("r");
    world.child("c", "r");
    let gate = Gate::new();
    let runtime = world.start(stepper(&gate)).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let token = CancellationToken::new();
    let agent = root.agent().cancellable(token.clone());
    agent.followup(&sid("c"), "x").await.unwrap();
    let born = agent.start_continuable(Delegate::new("worker", "a child", "y")).await.unwrap().child;
    token.cancel();
    gate.open(9);
    root.quiescent().await.unwrap();
    for (id, text) in [("c", "x"), (born.as_str(), "y")] {
        assert_eq!(story(&events(world, id)), ["turn 1", text, "step 1", "step 2", "completed"]);
    }
    // What the token does not own is not hurt.
    assert_eq!((code(agent.followup(&sid("c"), "x").await), code(root.agent().followup(&sid("c"), "x").await)), ("CANCELLED", "accepted"));
    root.quiescent().await.unwrap();
    runtime.shutdown().await;
    sound(world);
}

async fn a_parent_that_is_replaced_while_its_child_is_looked_for_sends_nothing(world: &World) {
    world.root("r");
    world.child("c", "r");
    let runtime = world.runtime().await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    root.quiescent().await.unwrap();
    let (agent, mut occurrences) = (root.agent(), runtime.subscribe());
    let pause = world.watch.pause("c", Call::Header, 1);
    let asks = tokio::spawn(async move { agent.followup(&sid("c"), "by the old one").await });
    pause.reached().await;
    drop(root);
    until(&mut occurrences, |told| matches!(told, Occurrence::Ended { session, .. } if *session == sid("r"))).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    pause.open();
    assert_eq!(code(asks.await.unwrap()), "UNAUTHORIZED");
    root.quiescent().await.unwrap();
    assert_eq!((story(&events(world, "c")), pending(world, "c")), (vec![], vec![]));
    root.agent().followup(&sid("c"), "by the new one").await.unwrap();
    root.quiescent().await.unwrap();
    assert_eq!(story(&events(world, "c")), ["turn 1", "by the new one", "completed"]);
    runtime.shutdown().await;
    sound(world);
}

async fn what_a_host_begins_to_play_meanwhile_is_sent_nothing(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    published(&runtime, child("c", "r")).await.end().await.unwrap();
    for by_host in [false, true] {
        world.watch.clear();
        // The last that is asked of the store before acceptance.
        let pause = world.watch.pause("c", Call::Rows, 1);
        let (agent, host) = (root.agent(), runtime.host());
        let asks = tokio::spawn(async move { if by_host { host.send(&sid("c"), "x", None).await } else { agent.followup(&sid("c"), "x").await } });
        pause.reached().await;
        let played = published(&runtime, child("c", "r")).await;
        pause.open();
        assert_eq!(code(asks.await.unwrap()), "NOT_RESUMABLE", "by the host: {by_host}");
        assert_eq!(pending(world, "c"), []);
        played.end().await.unwrap();
    }
    runtime.shutdown().await;
    sound(world);
}

async fn a_turn_that_is_cancelled_waits_for_no_full_inbox(world: &World) {
    let told: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let (gate, full, book) = (Gate::new(), Gate::new(), told.clone());
    let (at, near) = (gate.clone(), full.clone());
    let cast =
        stepper(&gate).inbox_limit(1).interrupt_grace(Duration::from_secs(600)).send_patience(Duration::from_secs(600)).closure("boss", move |turn: Turn| {
            let (at, near, book) = (at.clone(), near.clone(), book.clone());
            async move {
                turn.send_message(&sid("c"), "one").await?;
                at.reached().await;
                turn.send_message(&sid("c"), "two").await?;
                near.open(1);
                let sent = turn.send_message(&sid("c"), "three").await;
                book.lock().unwrap().push(code(sent));
                Ok(Ended::Completed)
            }
        });
    world.root_of("r", "boss");
    world.child("c", "r");
    let runtime = world.start(cast).await;
    runtime.host().send(&sid("r"), "go", None).await.unwrap();
    full.hold().await;
    assert_eq!(runtime.host().interrupt(&sid("r"), Duration::from_secs(60)).await.unwrap(), 1);
    assert_eq!(*told.lock().unwrap(), ["CANCELLED"]);
    assert_eq!(pending(world, "c").len(), 1);
    runtime.shutdown().await;
    sound(world);
}

async fn what_is_refused_wakes_nobody(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let agent = root.agent();
    let mut first = Delegate::new("worker", "the first", "begin");
    first.alias = Some("one".into());
    agent.start_continuable(first.clone()).await.unwrap();
    root.quiescent().await.unwrap();
    let mut occurrences = runtime.subscribe();
    first.label = Some("the second".into());
    assert_eq!(agent.start_continuable(first).await.unwrap_err().code(), "ALIAS_TAKEN");
    root.quiescent().await.unwrap();
    while let Ok(told) = occurrences.try_recv() {
        assert!(!matches!(told, Occurrence::NotActivated { .. }), "{told:?}");
    }
    runtime.shutdown().await;
}
