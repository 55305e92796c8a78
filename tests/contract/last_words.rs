//! What an agent may still say and begin when its end is on the way, and what a handle that is over is told of what it has done before.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use greenroom::{Delegate, Runtime, RuntimeBuilder, Turn, TurnEnd as Ended, actors::error::DeliverError};
use greenroom_session::{
    descriptor::Descriptor,
    event::Body,
    id::SessionId,
    store::{Op, Remove},
};

use crate::{
    author::{Author, descriptor},
    mechanics::{Gate, story},
    publish::{events, sound},
    watched::Call,
    world::{World, sid},
};

crate::on_every_store!(async
    whoever_is_drained_says_nothing_more_and_whoever_is_shut_down_has_a_last_word,
    named_children_stay_closed_to_their_parent_until_they_have_ended,
    a_child_whose_creation_is_on_its_way_is_waited_for,
    what_was_accepted_before_is_told_to_nobody_whose_turn_is_over,
    what_was_accepted_before_and_removed_since_is_no_longer_there,
);

type Codes = Arc<Mutex<BTreeMap<&'static str, String>>>;

/// Reports, sends and delegates, and notes what came of each.
async fn everything(turn: &Turn, to: &SessionId, codes: &Codes) {
    let code = |error: &'static str| error.to_owned();
    let report = turn.report("a last word", false).await.map_or_else(|error| code(error.code()), |_| "accepted".into());
    let send = turn.send_message(to, "a last word").await.map_or_else(|error| code(error.code()), |_| "accepted".into());
    let start = turn.delegate(Delegate::new("worker", "a last child", "begin")).await.map_or_else(|error| code(error.code()), |_| "accepted".into());
    let all = [("report", report), ("send", send), ("start", start)];
    codes.lock().unwrap_or_else(PoisonError::into_inner).extend(all);
}

fn told(codes: &Codes) -> Vec<String> {
    codes.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(what, code)| format!("{what} {code}")).collect()
}

/// `worker` waits to be cancelled if it is told to `hold`, and then does everything that it can.
fn last(gate: &Gate, codes: &Codes) -> RuntimeBuilder {
    let (at, codes) = (gate.clone(), codes.clone());
    Runtime::builder().closure("worker", move |turn: Turn| {
        let (at, codes) = (at.clone(), codes.clone());
        async move {
            if turn.text() == "hold" && at.pass(&turn).await.is_err() {
                everything(&turn, &sid("g"), &codes).await;
            }
            Ok(Ended::Completed)
        }
    })
}

async fn whoever_is_drained_says_nothing_more_and_whoever_is_shut_down_has_a_last_word(world: &World) {
    world.root("r");
    world.child("c", "r");
    world.child("g", "c");
    let inboxes =
        |world: &World| ["r", "g"].map(|id| world.reader().inbox(&sid(id), 9).unwrap().iter().map(|record| record.message.text()).collect::<Vec<_>>());
    let (gate, codes) = (Gate::new(), Codes::default());
    let runtime = world.start(last(&gate, &codes)).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    runtime.host().send(&sid("c"), "hold", None).await.unwrap();
    gate.reached().await;
    runtime.drain(&[root.agent()]).await.unwrap();
    assert_eq!(told(&codes), ["report DRAINING", "send DRAINING", "start DRAINING"]);
    assert_eq!(inboxes(world), [[""; 0]; 2]);
    drop(root);
    world.close_after(runtime).await;
    // The next runtime serves it again, and ends in order: what is said then is found by the one after that.
    let runtime = world.start(last(&gate, &codes)).await;
    runtime.recover(None).await.unwrap();
    gate.reached().await;
    world.close_after(runtime).await;
    assert_eq!(told(&codes), ["report accepted", "send accepted", "start DRAINING"]);
    assert_eq!(inboxes(world), [["a last word"]; 2]);
    assert_eq!(world.reader().children(Some(&sid("c")), None, 9).unwrap().len(), 1);
    let runtime = world.start(last(&gate, &codes)).await;
    gate.open(1);
    runtime.recover(None).await.unwrap();
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    assert_eq!(story(&events(world, "g")), ["turn 1", "a last word", "completed"]);
    assert!(story(&events(world, "r")).contains(&"a last word".to_owned()));
    runtime.shutdown().await;
    sound(world);
}

async fn named_children_stay_closed_to_their_parent_until_they_have_ended(world: &World) {
    world.root("r");
    world.child("c", "r");
    let gate = Gate::new();
    let at = gate.clone();
    // Deaf to its cancellation for as long as the test likes.
    let cast = Runtime::builder().interrupt_grace(Duration::from_secs(600)).closure("worker", move |turn: Turn| {
        let at = at.clone();
        async move {
            if turn.text() == "hold" && turn.attempt() == 1 {
                at.hold().await;
            }
            Ok(Ended::Completed)
        }
    });
    let runtime = world.start(cast).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let agent = root.agent();
    agent.followup(&sid("c"), "hold").await.unwrap();
    gate.reached().await;
    let named = [sid("c")];
    let mut drain = Box::pin(agent.drain_children(&named));
    for _ in 0..100 {
        assert!(futures::poll!(&mut drain).is_pending(), "its turn goes on");
        let sent = agent.followup(&sid("c"), "too early").await;
        assert!(matches!(sent, Err(DeliverError::Draining)), "{sent:?}");
    }
    gate.open(1);
    drain.await.unwrap();
    agent.followup(&sid("c"), "now").await.unwrap();
    root.quiescent().await.unwrap();
    assert_eq!(story(&events(world, "c")), ["turn 1", "hold", "disposed", "turn 2", "completed", "turn 3", "now", "completed"]);
    runtime.shutdown().await;
    sound(world);
}

async fn a_child_whose_creation_is_on_its_way_is_waited_for(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    root.quiescent().await.unwrap();
    let agent = root.agent();
    let write = world.watch.pause("c", Call::Commit, 1);
    let start = tokio::spawn({
        let agent = agent.clone();
        async move { agent.start_continuable(Delegate::new("worker", "a child", "begin").child(sid("c"))).await }
    });
    write.reached().await;
    let roots = [agent];
    let mut drain = Box::pin(runtime.drain(&roots));
    for _ in 0..100 {
        assert!(futures::poll!(&mut drain).is_pending(), "nobody knows yet whether there is a child");
        tokio::task::yield_now().await;
    }
    write.open();
    drain.await.unwrap();
    start.await.unwrap().unwrap();
    assert_eq!(world.reader().inbox(&sid("c"), 9).unwrap().len(), 1, "it is there, and nobody is started for it");
    assert_eq!(runtime.host().live_count(), 1);
    runtime.shutdown().await;
    sound(world);
}

/// `boss` has one child begin and tells it more, unless it has been noted what came of that; it gives its turn away and waits to be cancelled.
fn bosses(turns: &Arc<Mutex<Vec<Turn>>>, codes: &Codes, gate: &Gate) -> RuntimeBuilder {
    let (turns, codes, at) = (turns.clone(), codes.clone(), gate.clone());
    World::builder().closure("boss", move |turn: Turn| {
        let (turns, codes, at) = (turns.clone(), codes.clone(), at.clone());
        async move {
            if turn.message().is_some() {
                if told(&codes).is_empty() {
                    begin(&turn, &codes).await;
                }
                turns.lock().unwrap_or_else(PoisonError::into_inner).push(turn.clone());
                at.pass(&turn).await?;
            }
            Ok(Ended::Completed)
        }
    })
}

/// Creates a boss with somebody to report to.
fn boss(world: &World) {
    world.root("r");
    world.create(&Author::child("c", "r").described(&Descriptor { agent: "boss".into(), ..descriptor("a boss") }).sealed());
}

async fn begin(turn: &Turn, codes: &Codes) {
    let start = turn.delegate(Delegate::new("worker", "a child", "begin")).await;
    let mut codes_now = vec![("start", start.as_ref().map_or_else(|error| error.code().to_owned(), |start| format!("existing: {}", start.existing)))];
    if let Ok(start) = &start {
        let send = turn.send_message(&start.child, "more").await;
        codes_now.push(("send", send.map_or_else(|error| error.code().to_owned(), |_| "accepted".into())));
    }
    let report = turn.report("so far", true).await;
    codes_now.push(("report", report.map_or_else(|error| error.code().to_owned(), |_| "accepted".into())));
    codes.lock().unwrap_or_else(PoisonError::into_inner).extend(codes_now);
}

async fn what_was_accepted_before_is_told_to_nobody_whose_turn_is_over(world: &World) {
    boss(world);
    let (turns, codes, gate): (Arc<Mutex<Vec<Turn>>>, _, _) = (Arc::default(), Codes::default(), Gate::new());
    let runtime = world.start(bosses(&turns, &codes, &gate)).await;
    runtime.host().send(&sid("c"), "go", None).await.unwrap();
    gate.reached().await;
    assert_eq!(told(&codes), ["report accepted", "send accepted", "start existing: false"]);
    turns.lock().unwrap_or_else(PoisonError::into_inner).clear();
    world.close_after(runtime).await;
    // The second attempt asks for nothing until it is cut off, too.
    let runtime = world.start(bosses(&turns, &codes, &gate)).await;
    runtime.recover(None).await.unwrap();
    gate.reached().await;
    runtime.shutdown().await;
    let turn = turns.lock().unwrap_or_else(PoisonError::into_inner).remove(0);
    let child = world.reader().children(Some(&sid("c")), None, 9).unwrap().remove(0).id;
    // Its log says that all of this was accepted; it has no right to be told any more.
    assert_eq!(events(world, "c").iter().filter(|event| matches!(event.body, Body::EffectAccepted { .. })).count(), 3);
    assert_eq!(turn.attempt(), 2);
    assert_eq!(turn.delegate(Delegate::new("worker", "a child", "begin")).await.unwrap_err().code(), "UNAUTHORIZED");
    assert_eq!(turn.send_message(&child, "more").await.unwrap_err().code(), "UNAUTHORIZED");
    assert_eq!(turn.report("so far", true).await.unwrap_err().code(), "UNAUTHORIZED");
    drop((turn, runtime));
    sound(world);
}

async fn what_was_accepted_before_and_removed_since_is_no_longer_there(world: &World) {
    boss(world);
    let (turns, codes, gate) = (Arc::default(), Codes::default(), Gate::new());
    let runtime = world.start(bosses(&turns, &codes, &gate)).await;
    let host = runtime.host();
    host.send(&sid("c"), "go", None).await.unwrap();
    gate.reached().await;
    let child = world.reader().children(Some(&sid("c")), None, 9).unwrap().remove(0).id;
    host.when_idle(&child).await.unwrap();
    turns.lock().unwrap_or_else(PoisonError::into_inner).clear();
    drop(host);
    world.close_after(runtime).await;
    world.one(Op::Remove(Remove { session: child, discard: true })).unwrap();
    codes.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let runtime = world.start(bosses(&turns, &codes, &gate)).await;
    gate.open(1);
    runtime.recover(None).await.unwrap();
    runtime.when_idle(&sid("c")).await.unwrap();
    assert_eq!(told(&codes), ["report accepted", "start SESSION_REMOVED"], "an id is used once");
    assert_eq!(world.reader().children(Some(&sid("c")), None, 9).unwrap(), []);
    turns.lock().unwrap_or_else(PoisonError::into_inner).clear();
    runtime.shutdown().await;
    sound(world);
}
