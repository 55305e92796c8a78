//! What a family costs, and what becomes of it where rows or logs cannot be had.

use greenroom::{
    Entry, Runtime,
    actors::{error::ListError, query::Page},
};
use greenroom_session::{
    event::Body,
    header::{Header, NewSession},
    store::{Create, Op},
};
use tokio_util::sync::CancellationToken;

use super::sources::rewrite;
use crate::{
    author::{Author, descriptor},
    watched::{Call, Fault},
    world::{Kind, World, sid},
};

crate::on_every_store!(async
    a_log_is_read_where_no_row_tells_and_only_there,
    a_child_that_changes_under_the_read_is_damaged_and_its_siblings_are_not,
    a_family_of_thousands_is_read_in_pieces_and_is_the_same_family,
    a_family_that_is_given_up_is_read_no_further,
    rows_that_fail_when_the_children_are_known_fail_for_these_children,
);

async fn list(runtime: &Runtime, verify: bool, cancel: CancellationToken) -> Result<Vec<Entry>, ListError> {
    Ok(runtime.host().list(Some(&sid("r")), Page::default(), verify, cancel).await?.entries)
}

async fn shown(runtime: &Runtime, verify: bool) -> Vec<String> {
    let show = |entry: &Entry| match entry {
        Entry::Diagnostic { id, reason } => format!("{id} {}", reason.as_str()),
        Entry::Root(listed) | Entry::Child(listed) => format!("{} {}", listed.id, listed.status.as_str()),
    };
    list(runtime, verify, CancellationToken::new()).await.unwrap().iter().map(show).collect()
}

/// Children of every sort below `r`, with good rows where the store has rows.
fn sorts() -> [Author; 6] {
    [
        Author::listed("a", "r"),
        Author::child("none", "r").sealed(),
        Author::child("two", "r").described(&descriptor("a")).described(&descriptor("b")).sealed(),
        Author::fork("fork", "r").described(&descriptor("of another's making")).sealed(),
        // What was inherited is not its own.
        Author::child("heir", "r").described(&descriptor("the parent's")).inherited().described(&descriptor("its own")).sealed(),
        Author::listed("z", "r"),
    ]
}

async fn a_log_is_read_where_no_row_tells_and_only_there(world: &World) {
    world.root("r");
    for author in sorts() {
        world.create(&author);
    }
    let expected = ["a complete", "heir complete", "two corrupt", "z complete"];
    let reads = [("a", 2), ("none", 1), ("two", 1), ("fork", 0), ("heir", 2), ("z", 2), ("r", 0)];
    let runtime = world.runtime().await;
    world.watch.clear();
    assert_eq!(shown(&runtime, false).await, expected);
    if world.kind != Kind::Jsonl {
        assert_eq!(reads.map(|(id, _)| world.watch.log_reads(id)), [0; 7], "rows tell it all");
    }
    world.watch.clear();
    assert_eq!(shown(&runtime, true).await, expected);
    for (id, expected) in reads {
        assert_eq!(world.watch.log_reads(id), expected, "{id}");
    }
    assert_eq!(world.watch.count("r", Call::Children), 1);
    runtime.shutdown().await;
}

async fn a_child_that_changes_under_the_read_is_damaged_and_its_siblings_are_not(world: &World) {
    world.root("r");
    for author in sorts() {
        world.create(&author);
    }
    let runtime = world.runtime().await;
    let listed = |of_a: &str| [of_a, "heir complete", "two corrupt", "z complete"].map(str::to_owned);
    let header = Author::listed("a", "r").header;
    let mut elsewhere = header.clone();
    elsewhere.parent = Some(sid("another"));
    for nth in [1, 2] {
        world.watch.clear();
        world.watch.answer_header("a", nth, elsewhere.clone());
        assert_eq!(shown(&runtime, true).await, listed("a corrupt"), "look {nth} at its header");
        world.watch.clear();
        world.watch.fail("a", Call::Header, nth, Fault::Gone);
        assert_eq!(shown(&runtime, true).await, listed("a unavailable"), "look {nth} at its header");
    }
    if world.kind != Kind::Memory {
        // Another header on the disk, after the trace has seen the first one.
        world.watch.clear();
        let (kind, path) = (world.kind, world.path());
        let other = Header { cwd: Some("/elsewhere".into()), ..header.clone() };
        let (before, after) = (header.clone(), other.clone());
        world.watch.after("a", Call::Rows, 1, move || rewrite(kind, &path, &before, &after));
        assert_eq!(shown(&runtime, true).await, listed("a corrupt"));
        rewrite(kind, &world.path(), &other, &header);
    }
    world.watch.clear();
    world.watch.answer_events("a", None, vec![Body::EndSeed {}.at(0, 1_000)]);
    assert_eq!(shown(&runtime, true).await, listed("a corrupt"), "its descriptor is none any more");
    world.watch.clear();
    world.watch.answer_events("a", None, Vec::new());
    assert_eq!(shown(&runtime, true).await, listed("a unavailable"), "its descriptor is not there any more");
    for call in [Call::Load, Call::Events] {
        for (fault, said) in [(Fault::Outage, "a unavailable"), (Fault::Gone, "a unavailable"), (Fault::Corrupt, "a corrupt")] {
            world.watch.clear();
            world.watch.fail("a", call, None, fault);
            assert_eq!(shown(&runtime, true).await, listed(said), "{call:?} {fault:?}");
        }
    }
    // A fork is none of the family, whatever is wrong with it.
    world.watch.clear();
    for call in [Call::Rows, Call::Header, Call::Load, Call::Events] {
        world.watch.fail("fork", call, None, Fault::Corrupt);
    }
    for verify in [false, true] {
        assert_eq!(shown(&runtime, verify).await, listed("a complete"));
    }
    runtime.shutdown().await;
}

/// A folder of files has no rows but what this process has read of them.
#[tokio::test]
async fn a_file_is_read_for_a_listing_once() {
    let world = World::jsonl();
    for author in [Author::root("r")].into_iter().chain(sorts()) {
        assert!(world.plant(&author));
    }
    let runtime = world.runtime().await;
    let ids = ["a", "none", "two", "fork", "heir", "z"];
    let reads = async || {
        world.watch.clear();
        assert_eq!(shown(&runtime, false).await, ["a complete", "heir complete", "two corrupt", "z complete"]);
        ids.map(|id| world.watch.log_reads(id))
    };
    assert_eq!(reads().await, [2, 1, 1, 0, 2, 2]);
    // A file that is as young as the grain of its clock is not believed to be the same again.
    let mut tries = 0;
    while reads().await != [0; 6] {
        tries += 1;
        assert!(tries < 10_000, "they are read again and again");
    }
    runtime.shutdown().await;
}

/// More children than are read at once, by several pieces and a bit.
const MANY: usize = 600;

fn name(n: usize) -> String {
    format!("c{n:04}")
}

fn many(world: &World) {
    world.root("r");
    let children = (0..MANY).map(|n| {
        let session = NewSession::child(sid(&name(n)), sid("r"), 0);
        Op::Create(Create::child(session, Vec::new(), &descriptor("one of many"), None, 1_000).unwrap())
    });
    for done in world.plain().commit(&children.collect::<Vec<_>>()).unwrap() {
        done.unwrap();
    }
}

async fn a_family_of_thousands_is_read_in_pieces_and_is_the_same_family(world: &World) {
    many(world);
    let runtime = world.runtime().await;
    let complete: Vec<String> = (0..MANY).map(|n| format!("{} complete", name(n))).collect();
    assert_eq!(shown(&runtime, false).await, complete);
    assert_eq!(world.watch.count("r", Call::Children), 2, "once for what is read at once, and once for the rest");
    assert!((0..MANY).all(|n| world.watch.count(&name(n), Call::Rows) == 1));
    for limit in [1, 255, 256, 257, 599, 600, 601] {
        let (mut seen, mut after) = (0, None);
        loop {
            let page = runtime.host().list(Some(&sid("r")), Page { after, limit: Some(limit) }, false, CancellationToken::new()).await.unwrap();
            for entry in &page.entries {
                assert_eq!(entry.id().as_str(), name(seen));
                seen += 1;
            }
            after = page.next_cursor;
            if after.is_none() || seen < MANY && limit == 1 && seen > 3 {
                break;
            }
            assert_eq!(page.entries.len(), limit);
        }
        assert!(seen == MANY || limit == 1, "{seen} of pages of {limit}");
    }
    runtime.shutdown().await;
}

async fn a_family_that_is_given_up_is_read_no_further(world: &World) {
    many(world);
    let runtime = world.start(World::builder().read_concurrency(1)).await;
    // At the first piece, in the middle of the rest, and among the logs.
    for (at, call, verify, read) in [(3, Call::Rows, false, 256), (400, Call::Rows, false, 256 + 3 * 64), (20, Call::Load, true, MANY)] {
        world.watch.clear();
        let cancel = CancellationToken::new();
        let now = cancel.clone();
        world.watch.after(&name(at), call, 1, move || now.cancel());
        assert_eq!(list(&runtime, verify, cancel).await.unwrap_err().code(), "CANCELLED");
        // The next one comes when this one has come to its end.
        assert!(runtime.read_events(&sid("r")).await.is_ok());
        assert_eq!((0..MANY).filter(|n| world.watch.count(&name(*n), Call::Rows) > 0).count(), read, "{call:?} of child {at}");
        let logs = (0..MANY).filter(|n| world.watch.log_reads(&name(*n)) > 0).count();
        assert_eq!(logs, if verify { at + 1 } else { 0 });
        assert_eq!(world.watch.count(&name(at), Call::Events), 0);
    }
    runtime.shutdown().await;
}

async fn rows_that_fail_when_the_children_are_known_fail_for_these_children(world: &World) {
    world.root("r");
    world.child("a", "r");
    world.child("b", "r");
    let runtime = world.runtime().await;
    world.watch.fail("b", Call::Rows, None, Fault::Outage);
    assert_eq!(shown(&runtime, false).await, ["a complete", "b unavailable"]);
    world.watch.clear();
    // Nobody knows who the children are.
    world.watch.fail("r", Call::Children, None, Fault::Outage);
    assert_eq!(list(&runtime, false, CancellationToken::new()).await.unwrap_err().code(), "SESSION_QUERY_PERSISTENCE_FAILED");
    runtime.shutdown().await;
}
