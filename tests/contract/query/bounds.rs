//! The bounds of queries, and systems that have none to give.

use std::pin::pin;

use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use greenroom::actors::query::Page;
use tokio_util::sync::CancellationToken;

use super::{OF_A_LOG, READS, another, ask, code};
use crate::{
    watched::Call,
    world::{World, sid},
};

crate::on_every_store!(async
    no_more_reads_are_under_way_than_were_allowed,
    a_bound_that_makes_no_sense_is_refused_at_the_start,
    a_page_of_nothing_is_refused_before_anything_is_read,
    without_the_query_service_every_read_says_so_and_reads_nothing,
    after_a_shutdown_every_read_fails_with_a_code,
);

async fn no_more_reads_are_under_way_than_were_allowed(world: &World) {
    const READERS: usize = 7;
    let names: Vec<String> = (0..READERS).map(|n| format!("s{n}")).collect();
    // Listings are reads like others.
    let reads: Vec<&str> = OF_A_LOG.into_iter().chain(["trace"]).collect();
    for (allowed, listings) in [(1, false), (3, true), (4, false), (4, true)] {
        let builder = World::builder();
        // Four is what is allowed if nothing is said.
        let builder = if allowed == 4 { builder } else { builder.read_concurrency(allowed) };
        let world = another(world);
        for name in &names {
            world.root(name);
        }
        let runtime = world.start(builder).await;
        let host = runtime.host();
        world.watch.clear();
        let pauses: Vec<_> = names.iter().map(|name| world.watch.pause(name, Call::Header, 1)).collect();
        let mut asked: FuturesUnordered<_> = (0..READERS)
            .map(|at| {
                let (host, name, read) = (host.clone(), &names[at], reads[at % reads.len()]);
                async move {
                    if listings {
                        host.list(Some(&sid(name)), Page::default(), false, CancellationToken::new()).await.map(drop).map_err(|error| error.code())
                    } else {
                        ask(&host, read, name, CancellationToken::new()).await.map(drop).map_err(|error| error.code())
                    }
                }
                .boxed()
            })
            .collect();
        let under_way = || names.iter().filter(|name| world.watch.count(name, Call::Header) > 0).count();
        for (done, pause) in pauses.iter().enumerate() {
            // They come in the order in which they were asked.
            let mut reached = pin!(pause.reached());
            tokio::select! {
                biased;
                answered = asked.next() => panic!("{answered:?} while all stand still"),
                () = &mut reached => {}
            }
            for _ in 0..50 {
                assert!(asked.next().now_or_never().is_none());
                tokio::task::yield_now().await;
            }
            assert!(under_way() <= done + allowed, "{} with {allowed} allowed and {done} done", under_way());
            pause.open();
            assert_eq!(asked.next().await, Some(Ok(())));
        }
        assert_eq!(asked.next().await, None);
        runtime.shutdown().await;
    }
}

async fn a_bound_that_makes_no_sense_is_refused_at_the_start(world: &World) {
    let most: u64 = (1 << 53) - 1;
    let too_many = usize::try_from(most + 1).unwrap();
    for (builder, said) in [
        (World::builder().read_concurrency(0), "read_concurrency must be between 1 and 9007199254740991, not 0"),
        (World::builder().read_concurrency(too_many), "read_concurrency must be between 1 and 9007199254740991, not 9007199254740992"),
        (World::builder().read_window_max(most + 1), "read_window_max must be between 0 and 9007199254740991, not 9007199254740992"),
        (World::builder().read_window_max(u64::MAX).without_query(), "read_window_max must be between 0 and 9007199254740991, not 18446744073709551615"),
    ] {
        let refused = builder.start(world.store()).await.unwrap_err();
        assert_eq!((refused.code(), &*refused.to_string()), ("SESSION_QUERY_INVALID_CONFIG", said));
    }
    for builder in [World::builder().read_concurrency(1), World::builder().read_concurrency(too_many - 1), World::builder().read_window_max(0)] {
        another(world).start(builder.read_window_max(most)).await.shutdown().await;
    }
}

async fn a_page_of_nothing_is_refused_before_anything_is_read(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let host = runtime.host();
    world.watch.clear();
    let nothing = Page { after: None, limit: Some(0) };
    let cancel = CancellationToken::new;
    let refused = [
        host.list_sessions(nothing.clone(), cancel()).await.unwrap_err().code(),
        host.read_events(&sid("r"), 0, 0, cancel()).await.unwrap_err().code(),
        host.list(Some(&sid("r")), nothing.clone(), false, cancel()).await.unwrap_err().code(),
        host.list(None, nothing, true, cancel()).await.unwrap_err().code(),
    ];
    assert_eq!(refused, ["SESSION_QUERY_INVALID_LIMIT"; 4]);
    assert!(world.watch.calls().is_empty(), "{:?}", world.watch.calls());
    runtime.shutdown().await;
}

async fn without_the_query_service_every_read_says_so_and_reads_nothing(world: &World) {
    world.root("r");
    let runtime = world.start(World::builder().without_query()).await;
    world.watch.clear();
    for read in READS {
        assert_eq!(code(&runtime.host(), read, "r").await, "SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE", "{read}");
    }
    assert_eq!(runtime.list(Some(&sid("r"))).await.unwrap_err().code(), "SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE");
    assert!(world.watch.calls().is_empty(), "{:?}", world.watch.calls());
    // Work goes on all the same.
    let root = runtime.resume(&sid("r")).await.unwrap();
    root.send("work").await.unwrap();
    assert_eq!(root.quiescent().await.unwrap(), []);
    drop(root);
    runtime.shutdown().await;
}

async fn after_a_shutdown_every_read_fails_with_a_code(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    runtime.shutdown().await;
    for read in READS {
        assert_eq!(code(&runtime.host(), read, "r").await, "SESSION_QUERY_PERSISTENCE_FAILED", "{read}");
    }
}
