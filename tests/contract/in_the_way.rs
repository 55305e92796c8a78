//! What stands in the way of a drain: starts that wait, starts that fail, and turns that hear of it before they are told to end.

use futures::FutureExt as _;
use greenroom::{Delegate, Runtime, RuntimeBuilder, Turn, TurnEnd as Ended, actors::error::DrainError};

use crate::{
    mechanics::{Gate, story},
    publish::{events, sound},
    watched::{Call, Fault},
    world::{World, sid},
};

crate::on_every_store!(async
    a_start_that_waits_for_a_slot_holds_no_drain_up,
    a_start_that_fails_is_named_and_its_session_is_free,
    what_a_turn_is_refused_before_it_is_cut_off_is_no_failure_of_its_own,
);

/// `worker` holds if it is told to, and delegates when it is let on if it is told to, with whatever comes of it; to `await` is to wait for the child, too.
fn cast(gate: &Gate) -> RuntimeBuilder {
    let at = gate.clone();
    Runtime::builder().closure("worker", move |turn: Turn| {
        let at = at.clone();
        async move {
            match turn.text().as_str() {
                "hold" => at.pass(&turn).await?,
                "await" => {
                    at.hold().await;
                    turn.delegate(Delegate::new("worker", "below", "never")).await?;
                    turn.await_children().await?;
                }
                "delegate" => {
                    at.hold().await;
                    turn.delegate(Delegate::new("worker", "below", "never")).await?;
                }
                _ => {}
            }
            Ok(Ended::Completed)
        }
    })
}

fn tree(world: &World) {
    for root in ["r", "s"] {
        world.root(root);
    }
    world.child("c", "r");
}

async fn a_start_that_waits_for_a_slot_holds_no_drain_up(world: &World) {
    tree(world);
    let gate = Gate::new();
    let runtime = world.start(cast(&gate).max_live(1)).await;
    let host = runtime.host();
    let root = runtime.resume(&sid("r")).await.unwrap();
    host.send(&sid("c"), "await", None).await.unwrap();
    gate.reached().await;
    // A stranger asks for the only slot before the child below does, gets it when the turn above waits, and keeps it.
    host.send(&sid("s"), "hold", None).await.unwrap();
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
    gate.open(1);
    gate.reached().await;
    let child = loop {
        if let Some(child) = world.reader().children(Some(&sid("c")), None, 9).unwrap().pop() {
            break child.id;
        }
        tokio::task::yield_now().await;
    };
    runtime.drain(&[root.agent()]).await.unwrap();
    assert_eq!(host.live_count(), 2, "the root and the stranger");
    assert_eq!(story(&events(world, "c")), ["turn 1", "await", "disposed"]);
    assert_eq!((story(&events(world, child.as_str())), world.reader().inbox(&child, 9).unwrap().len()), (vec![], 1));
    gate.open(1);
    runtime.when_idle(&sid("s")).await.unwrap();
    runtime.shutdown().await;
    sound(world);
}

async fn a_start_that_fails_is_named_and_its_session_is_free(world: &World) {
    tree(world);
    let runtime = world.start(cast(&Gate::new())).await;
    let host = runtime.host();
    let root = runtime.resume(&sid("r")).await.unwrap();
    root.quiescent().await.unwrap();
    world.watch.clear();
    // Its first own write, which would begin its epoch.
    let open = world.watch.pause("c", Call::Commit, 2);
    world.watch.fail("c", Call::Commit, 2, Fault::Outage);
    host.send(&sid("c"), "hello", None).await.unwrap();
    open.reached().await;
    let roots = [root.agent()];
    let mut drain = Box::pin(runtime.drain(&roots));
    for _ in 0..100 {
        assert!(futures::poll!(&mut drain).is_pending(), "it is on its way");
        tokio::task::yield_now().await;
    }
    open.open();
    let error = drain.await.unwrap_err();
    let DrainError::TeardownFailed { failures } = &error else { panic!("{error:?}") };
    assert_eq!(failures.iter().map(|failure| failure.session.clone()).collect::<Vec<_>>(), [sid("c")], "{error}");
    assert!(!world.reader().leases(None).unwrap().iter().any(|lease| lease.session == sid("c")));
    drop(roots);
    drop((root, host));
    world.close_after(runtime).await;
    let runtime = world.start(cast(&Gate::new())).await;
    runtime.recover(None).await.unwrap();
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    assert_eq!(story(&events(world, "c")), ["turn 1", "hello", "completed"]);
    runtime.shutdown().await;
    sound(world);
}

async fn what_a_turn_is_refused_before_it_is_cut_off_is_no_failure_of_its_own(world: &World) {
    tree(world);
    let gate = Gate::new();
    let runtime = world.start(cast(&gate)).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    runtime.host().send(&sid("c"), "delegate", None).await.unwrap();
    gate.reached().await;
    // Closed by the first poll; the turn runs before anybody can tell its Activation.
    gate.open(1);
    let roots = [root.agent()];
    let mut drain = Box::pin(runtime.drain(&roots));
    assert!(drain.as_mut().now_or_never().is_none());
    drain.await.unwrap();
    assert_eq!(story(&events(world, "c")), ["turn 1", "delegate", "disposed"], "it is served again");
    runtime.shutdown().await;
    sound(world);
}
