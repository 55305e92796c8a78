//! The list of a parent's children.

use greenroom::{
    Runtime,
    actors::{
        catalog::{Entry, Status},
        query::Page,
    },
};
use tokio_util::sync::CancellationToken;

use crate::{
    author::{Author, descriptor},
    watched::{Call, Fault},
    world::{World, sid},
};

crate::on_every_store!(async what_a_world_makes_is_listed, a_world_fails_and_stands_still_where_it_is_told);

/// Lists a parent's children, each as `id status` or `id reason`.
async fn shown(runtime: &Runtime, parent: &str) -> Vec<String> {
    let listing = runtime.host().list(Some(&sid(parent)), Page::default(), false, CancellationToken::new()).await.unwrap();
    listing.entries.iter().map(show).collect()
}

fn show(entry: &Entry) -> String {
    match entry {
        Entry::Diagnostic { id, reason } => format!("{id} {}", reason.as_str()),
        Entry::Root(listed) | Entry::Child(listed) => format!("{} {}", listed.id, listed.status.as_str()),
    }
}

async fn what_a_world_makes_is_listed(world: &World) {
    world.root("r");
    world.child("made", "r");
    world.create(&Author::listed("late", "r").at(9_000));
    assert!(world.plant(&Author::listed("planted", "r").at(8_000)));
    assert!(world.plant(&Author::child("two", "r").at(9_500).described(&descriptor("a")).described(&descriptor("b")).sealed()));
    let bytes = world.bytes();
    let runtime = world.runtime().await;
    assert_eq!(shown(&runtime, "r").await, ["made complete", "planted complete", "late complete", "two corrupt"]);
    assert_eq!(world.watch.count("r", Call::Children), 1);
    assert_eq!(Status::Complete.as_str(), "complete");
    runtime.shutdown().await;
    assert_eq!(bytes.is_empty(), world.kind == crate::world::Kind::Memory);
}

async fn a_world_fails_and_stands_still_where_it_is_told(world: &World) {
    world.root("r");
    world.child("a", "r");
    world.child("b", "r");
    let runtime = world.runtime().await;
    world.watch.fail("a", Call::Rows, 1, Fault::Outage);
    assert_eq!(shown(&runtime, "r").await, ["a unavailable", "b complete"]);
    assert_eq!(shown(&runtime, "r").await, ["a complete", "b complete"]);
    let pause = world.watch.pause("r", Call::Children, 1);
    let (listed, ()) = tokio::join!(shown(&runtime, "r"), async {
        pause.reached().await;
        pause.open();
    });
    assert_eq!(listed.len(), 2);
    runtime.shutdown().await;
}
