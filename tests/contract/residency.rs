//! What is on disk while a runtime is there and after it, what a failed write keeps from happening, and that looking on costs and adds nothing.

use std::sync::{Arc, Mutex};

use greenroom::{Occurrence, Runtime, Turn, TurnEnd as Ended};
use greenroom_session::event::{Body, Event, TurnEnd};
use tokio::sync::{Semaphore, broadcast::error::TryRecvError};

use crate::{
    persistence::types,
    publish::{heard, play, published, root, sound},
    watched::{Call, Fault},
    world::{World, sid},
};

crate::on_every_store!(async
    a_session_in_a_turn_is_read_as_it_is_and_its_real_end_is_what_stays,
    what_a_runtime_has_written_is_there_after_it,
    a_list_asks_no_more_of_a_store_that_has_more,
    resuming_a_parent_five_times_adds_nothing_that_listing_caused,
    no_turn_runs_whose_start_could_not_be_written,
    what_comes_while_a_write_is_under_way_is_written_together_and_in_order,
);

async fn a_session_in_a_turn_is_read_as_it_is_and_its_real_end_is_what_stays(world: &World) {
    let (within, may_end) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let gates = (within.clone(), may_end.clone());
    let cast = Runtime::builder().closure("worker", move |turn: Turn| {
        let (within, may_end) = gates.clone();
        async move {
            turn.say("under way")?;
            within.add_permits(1);
            may_end.acquire().await.unwrap().forget();
            Ok(Ended::Completed)
        }
    });
    world.root("r");
    world.child("c", "r");
    let runtime = world.start(cast).await;
    let host = runtime.host();
    host.send(&sid("c"), "Begin.", None).await.unwrap();
    within.acquire().await.unwrap().forget();
    for _ in 0..2 {
        let log = host.load(&sid("c")).await.unwrap();
        assert!(log.fold.head().open.is_some());
        assert!(!types(&log.events).contains(&"turn/end"), "{:?}", types(&log.events));
    }
    // Its parent hears that it has settled, in a turn of its own.
    may_end.add_permits(9);
    assert_eq!(host.quiescent(&sid("c")).await.unwrap(), []);
    drop(host);
    world.close_after(runtime).await;
    let log = world.reader().load(&sid("c")).unwrap();
    let ends: Vec<_> = log.events.iter().filter_map(|event| if let Body::TurnEnd { reason, .. } = &event.body { Some(reason) } else { None }).collect();
    assert_eq!(ends, [&TurnEnd::Completed]);
}

async fn what_a_runtime_has_written_is_there_after_it(world: &World) {
    let runtime = world.runtime().await;
    let root = runtime.root("worker", "a root").await.unwrap();
    let child = root.agent().start_continuable(greenroom::Delegate::new("worker", "a child", "begin")).await.unwrap().child;
    for n in 0..5 {
        root.agent().followup(&child, format!("more {n}")).await.unwrap();
    }
    root.quiescent().await.unwrap();
    let host = runtime.host();
    let live = host.load(root.id()).await.unwrap();
    let settled = host.load(&child).await.unwrap();
    assert_eq!((settled.fold.head().turns, settled.fold.head().live), (6, false));
    let root_id = root.id().clone();
    drop((host, root));
    world.close_after(runtime).await;
    assert_eq!(world.reader().load(&child).unwrap().events, settled.events);
    // The end of the root's epoch came with the shutdown.
    let after = world.reader().load(&root_id).unwrap().events;
    assert_eq!(after[..live.events.len()], live.events[..]);
    assert_eq!(types(&after[live.events.len()..]), ["activation/end"]);
}

async fn a_list_asks_no_more_of_a_store_that_has_more(world: &World) {
    world.root("r");
    for n in 0..10 {
        world.child(&format!("c{n}"), "r");
    }
    let runtime = world.runtime().await;
    let mut asked = Vec::new();
    for others in [0, 40] {
        for n in 0..others {
            let id = format!("other-{n}");
            world.root(&id);
            world.child(&format!("x-{id}"), &id);
        }
        // What a list has read is known in a folder of JSON Lines, whose writer is this very process.
        runtime.list(Some(&sid("r"))).await.unwrap();
        world.watch.clear();
        assert_eq!(runtime.list(Some(&sid("r"))).await.unwrap().entries.len(), 10);
        let calls = world.watch.calls();
        assert!(calls.keys().all(|(of, call)| of == "r" || (of.starts_with('c') && !matches!(call, Call::Load | Call::Events))), "{calls:?}");
        asked.push(calls);
    }
    assert_eq!(asked[0], asked[1]);
    runtime.shutdown().await;
}

async fn resuming_a_parent_five_times_adds_nothing_that_listing_caused(world: &World) {
    let mut grown = Vec::new();
    for (name, lists) in [("quiet", false), ("listed", true)] {
        world.root(name);
        world.child(&format!("{name}-child"), name);
        for _ in 0..5 {
            let runtime = world.runtime().await;
            let root = runtime.resume(&sid(name)).await.unwrap();
            if lists {
                for parent in [None, Some(root.id())] {
                    runtime.list(parent).await.unwrap();
                }
                root.agent().list_children(tokio_util::sync::CancellationToken::new()).await.unwrap();
            }
            drop(root);
            world.close_after(runtime).await;
        }
        let log = world.reader().load(&sid(name)).unwrap().events;
        let child = world.reader().load(&sid(&format!("{name}-child"))).unwrap().events;
        grown.push((types(&log).join(" "), types(&child).join(" ")));
    }
    assert_eq!(grown[0], grown[1]);
    assert!(grown[0].0.matches("activation/start").count() == 5, "{grown:?}");
}

async fn no_turn_runs_whose_start_could_not_be_written(world: &World) {
    // Which turns there were, and whether their start was on disk when they began.
    let ran = Arc::new(Mutex::new(Vec::new()));
    let (seen, store) = (ran.clone(), world.plain());
    let runtime = world.start(Runtime::builder().closure("worker", move |turn: Turn| {
        let log = store.reader().unwrap().load(turn.session()).unwrap().events;
        let is_start = |event: &Event| matches!(&event.body, Body::TurnStart { turn: number, .. } if *number == turn.number());
        seen.lock().unwrap().push((turn.text(), log.iter().any(is_start)));
        async { Ok(Ended::Completed) }
    }));
    let runtime = runtime.await;
    let host = runtime.host();
    for (name, failing) in (2..=5).map(|nth| (format!("s{nth}"), nth)) {
        world.root(&name);
        let session = sid(&name);
        let mut occurrences = runtime.subscribe();
        // The first write is that of the message itself.
        world.watch.clear();
        world.watch.fail(&name, Call::Commit, failing, Fault::Outage);
        host.send(&session, "one", None).await.unwrap();
        if failing == 2 {
            while !matches!(occurrences.recv().await.unwrap(), Occurrence::NotActivated { .. }) {}
            assert_eq!(*ran.lock().unwrap(), [], "its start is not on disk");
        }
        assert_eq!(host.quiescent(&session).await.unwrap(), []);
        host.send(&session, "two", None).await.unwrap();
        assert_eq!(host.quiescent(&session).await.unwrap(), []);
        let ran = std::mem::take(&mut *ran.lock().unwrap());
        assert!(ran.iter().all(|(_, written)| *written), "write {failing} fails: {ran:?}");
        let texts: Vec<_> = ran.iter().map(|(text, _)| text.as_str()).collect();
        assert!(texts.first() == Some(&"one") && texts.last() == Some(&"two"), "write {failing} fails: {texts:?}");
    }
    runtime.shutdown().await;
    sound(world);
}

async fn what_comes_while_a_write_is_under_way_is_written_together_and_in_order(world: &World) {
    let runtime = world.runtime().await;
    let mut sessions = Vec::new();
    for n in 0..5 {
        sessions.push(published(&runtime, root(&format!("s{n}"))).await);
    }
    world.watch.clear();
    let pause = world.watch.pause("s0", Call::Commit, 1);
    sessions[0].append(heard("first")).unwrap();
    pause.reached().await;
    let put: Vec<_> = (0..15).map(|n| sessions[n % 5].append(heard(&format!("text {n}"))).unwrap()).collect();
    pause.open();
    for session in &sessions {
        session.flush().await.unwrap();
    }
    assert_eq!(world.watch.count("", Call::Commit), 2, "{:?}", world.watch.calls());
    for (n, session) in sessions.iter().enumerate() {
        let events = world.reader().load(&session.header().id).unwrap().events;
        let mine: Vec<_> = put.iter().skip(n).step_by(5).cloned().collect();
        assert_eq!(events[events.len() - 3..], mine[..]);
    }
    runtime.shutdown().await;
    sound(world);
}

/// What is heard of a store is no matter of which store it is.
#[tokio::test]
async fn a_subscriber_who_never_looks_holds_nothing_up() {
    let world = World::memory();
    let runtime = world.runtime().await;
    let mut never = runtime.subscribe();
    let session = published(&runtime, root("r")).await;
    // More than is kept for anybody.
    let turns = 2_100;
    for turn in 1..=turns {
        play(&session, &format!("turn {turn}")).await;
    }
    assert!(matches!(never.try_recv(), Err(TryRecvError::Lagged(_))));
    session.flush().await.unwrap();
    assert_eq!(runtime.host().fold(&sid("r")).await.unwrap().head().turns, turns);
    session.end().await.unwrap();
    runtime.shutdown().await;
    sound(&world);
}
