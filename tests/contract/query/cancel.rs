//! Giving a read up.

use std::{future::Future, pin::pin};

use futures::FutureExt as _;
use greenroom::Runtime;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{OF_A_LOG, READS, WITH_A_TOKEN, ask, code};
use crate::{
    author::Author,
    watched::Call,
    world::{World, sid},
};

crate::on_every_store!(async
    what_is_cancelled_before_it_begins_touches_no_store,
    what_is_cancelled_while_it_stands_still_is_told_at_once_and_reads_no_more,
    what_is_cancelled_at_its_last_step_is_cancelled_all_the_same,
    what_is_dropped_reads_no_more,
    what_waits_for_its_turn_can_be_given_up,
    a_long_log_is_left_in_the_middle,
);

async fn what_is_cancelled_before_it_begins_touches_no_store(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    world.watch.clear();
    let cancel = CancellationToken::new();
    cancel.cancel();
    for session in ["r", "nobody"] {
        for read in WITH_A_TOKEN {
            assert_eq!(ask(&runtime.host(), read, session, cancel.clone()).await.unwrap_err().code(), "SESSION_QUERY_ABORTED", "{read}");
        }
    }
    // Any other read is made after these, by one actor.
    code(&runtime.host(), "list_events", "nobody").await;
    assert_eq!(world.watch.calls().into_keys().collect::<Vec<_>>(), [("nobody".to_owned(), Call::Header)]);
    runtime.shutdown().await;
}

/// A family with somebody to read after everybody.
async fn family(world: &World) -> Runtime {
    world.root("r");
    for (id, parent) in [("a", "r"), ("b", "r"), ("c", "b")] {
        world.child(id, parent);
    }
    // One read after the other, so that the next one is answered when the one before has come to its end.
    world.start(World::builder().read_concurrency(1)).await
}

async fn what_is_cancelled_while_it_stands_still_is_told_at_once_and_reads_no_more(world: &World) {
    let runtime = family(world).await;
    for (read, session, call) in [
        ("trace", "c", Call::Header),
        ("trace", "r", Call::Children),
        ("list_sessions", "a", Call::Header),
        ("list_events", "a", Call::Header),
        ("list_events", "a", Call::Load),
        ("read_events", "a", Call::Header),
        ("read_events", "a", Call::Events),
        ("read_event", "a", Call::Header),
        ("read_event", "a", Call::Events),
    ] {
        world.watch.clear();
        let pause = world.watch.pause(session, call, 1);
        let cancel = CancellationToken::new();
        let host = runtime.host();
        let (told, ()) = tokio::join!(ask(&host, read, session, cancel.clone()), async {
            pause.reached().await;
            cancel.cancel();
        });
        // The call still stands there.
        assert_eq!(told.unwrap_err().code(), "SESSION_QUERY_ABORTED", "{read} at {call:?}");
        let until_then = world.watch.calls();
        pause.open();
        assert_eq!(code(&host, "read_event", "b").await, "ok");
        let mut then = world.watch.calls();
        then.remove(&("b".to_owned(), Call::Header));
        then.remove(&("b".to_owned(), Call::Events));
        let mut expected = until_then;
        expected.remove(&("b".to_owned(), Call::Header));
        assert_eq!(then, expected, "{read} at {call:?}: no further call");
    }
    runtime.shutdown().await;
}

async fn what_is_cancelled_at_its_last_step_is_cancelled_all_the_same(world: &World) {
    let runtime = family(world).await;
    for read in WITH_A_TOKEN {
        let host = runtime.host();
        // Every step in turn is the one after which it is too late, until there are no more.
        let mut steps = 0;
        for (session, call) in [("a", Call::Header), ("a", Call::Children), ("a", Call::Load), ("a", Call::Events)] {
            world.watch.clear();
            ask(&host, read, "a", CancellationToken::new()).await.unwrap();
            for nth in 1..=world.watch.count(session, call) {
                world.watch.clear();
                let cancel = CancellationToken::new();
                let now = cancel.clone();
                world.watch.after(session, call, nth as u64, move || now.cancel());
                assert_eq!(ask(&host, read, "a", cancel).await.unwrap_err().code(), "SESSION_QUERY_ABORTED", "{read}: after {call:?} {nth}");
                steps += 1;
            }
        }
        assert!(steps > 0, "{read}");
    }
    runtime.shutdown().await;
}

async fn what_is_dropped_reads_no_more(world: &World) {
    let runtime = family(world).await;
    for read in READS {
        world.watch.clear();
        let pause = world.watch.pause("a", Call::Header, 1);
        {
            let host = runtime.host();
            let mut asked = pin!(ask(&host, read, "a", CancellationToken::new()));
            tokio::select! {
                _ = &mut asked => panic!("{read} is answered while it stands still"),
                () = pause.reached() => {}
            }
        }
        pause.open();
        assert_eq!(code(&runtime.host(), "load", "c").await, "ok");
        assert_eq!((world.watch.count("a", Call::Header), world.watch.log_reads("a")), (1, 0), "{read}");
        assert_eq!(world.watch.count("a", Call::Children), 0, "{read}");
    }
    runtime.shutdown().await;
}

/// Lets a future run as far as it comes.
async fn begun(future: &mut (impl Future + Unpin)) {
    for _ in 0..50 {
        assert!(future.now_or_never().is_none(), "it is over");
        tokio::task::yield_now().await;
    }
}

async fn what_waits_for_its_turn_can_be_given_up(world: &World) {
    let runtime = family(world).await;
    for read in WITH_A_TOKEN {
        world.watch.clear();
        let pause = world.watch.pause("c", Call::Header, 1);
        let host = runtime.host();
        let mut first = pin!(ask(&host, "load", "c", CancellationToken::new()));
        tokio::select! {
            _ = &mut first => panic!("it is answered while it stands still"),
            () = pause.reached() => {}
        }
        let cancel = CancellationToken::new();
        let mut second = pin!(ask(&host, read, "a", cancel.clone()));
        begun(&mut second).await;
        cancel.cancel();
        assert_eq!(second.await.unwrap_err().code(), "SESSION_QUERY_ABORTED", "{read}");
        pause.open();
        first.await.unwrap();
        assert_eq!(code(&host, "load", "b").await, "ok");
        assert_eq!(world.watch.calls().keys().filter(|(session, _)| session == "a").count(), 0, "{read}");
    }
    runtime.shutdown().await;
}

async fn a_long_log_is_left_in_the_middle(world: &World) {
    world.create(&(0..5_000).fold(Author::root("r"), |author, n| author.raw("x/memo", &json!(n))));
    let runtime = world.start(World::builder().read_concurrency(1)).await;
    let host = runtime.host();
    for nth in 1..=2 {
        world.watch.clear();
        let cancel = CancellationToken::new();
        let now = cancel.clone();
        world.watch.after("r", Call::Events, nth, move || now.cancel());
        assert_eq!(ask(&host, "read_events", "r", cancel).await.unwrap_err().code(), "SESSION_QUERY_ABORTED");
        assert_eq!(code(&host, "trace", "r").await, "ok");
        assert_eq!(world.watch.count("r", Call::Events) as u64, nth);
    }
    for read in OF_A_LOG {
        assert_eq!(code(&host, read, "r").await, "ok");
    }
    assert_eq!(host.read_events(&sid("r"), 0, usize::MAX, CancellationToken::new()).await.unwrap().len(), 5_002);
    runtime.shutdown().await;
}
