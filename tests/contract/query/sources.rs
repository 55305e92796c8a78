//! What is stored and what is live, and what happens where they do not agree or one of them cannot be had.

use std::{path::Path, sync::Arc};

use greenroom::{Runtime, Turn, TurnEnd, actors::query::Page};
use greenroom_session::{
    header::{Header, NewSession},
    listing::Cursor,
    place::path_of,
    store::{Create, Op},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{OF_A_LOG, READS, ask, code};
use crate::{
    author::{Author, descriptor},
    watched::{Call, Fault},
    world::{Kind, World, sid},
};

crate::on_every_store!(async
    sessions_are_listed_the_newest_first_page_by_page,
    what_is_live_is_told_and_kept_where_the_store_has_lost_it,
    a_long_list_of_sessions_is_complete,
    a_header_that_cannot_be_read_is_in_the_list_and_a_store_that_cannot_is_no_list,
    a_stored_header_that_is_not_the_live_one_fails_every_read_of_it,
    a_header_that_changes_while_a_log_is_read_fails_the_read,
    a_header_on_the_disk_that_is_not_the_live_one_fails_what_reads_it_and_nothing_else,
    what_is_absent_and_what_fails_has_a_code_in_every_read,
    a_session_that_becomes_live_during_a_read_is_read_as_it_is_then,
);

/// Lists all sessions, each as its id and a mark for live and stored.
async fn listed(runtime: &Runtime) -> Vec<String> {
    let records = runtime.list_sessions().await.unwrap();
    let mark = |is: bool, mark| if is { mark } else { "" };
    records.iter().map(|record| format!("{}{}{}", record.id, mark(record.live, " live"), mark(record.stored, " stored"))).collect()
}

async fn sessions_are_listed_the_newest_first_page_by_page(world: &World) {
    let runtime = world.runtime().await;
    assert_eq!(listed(&runtime).await, [""; 0]);
    for (id, time) in [("b", 1_000), ("a", 3_000), ("d", 2_000), ("C", 2_000), ("e", 2_000)] {
        world.create(&Author::root(id).at(time));
    }
    world.create(&Author::listed("child", "d").at(5_000));
    let expected = ["child", "a", "C", "d", "e", "b"];
    assert_eq!(listed(&runtime).await, expected.map(|id| format!("{id} stored")));
    for limit in 1..=7 {
        let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = runtime.host().list_sessions(Page { after, limit: Some(limit) }, CancellationToken::new()).await.unwrap();
            assert!(page.sessions.len() <= limit);
            seen.extend(page.sessions.into_iter().map(|record| record.id));
            pages += 1;
            after = page.next_cursor;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((seen, pages), (expected.map(sid).to_vec(), expected.len().div_ceil(limit)), "pages of {limit}");
    }
    // A place need not be a session's.
    let after = Some(Cursor { created_at: 2_000, id: sid("cc") });
    let page = runtime.host().list_sessions(Page { after, limit: None }, CancellationToken::new()).await.unwrap();
    assert_eq!(page.sessions.iter().map(|record| record.id.as_str()).collect::<Vec<_>>(), ["d", "e", "b"]);
    runtime.shutdown().await;
}

async fn a_long_list_of_sessions_is_complete(world: &World) {
    // More than are named at a time.
    let count = if world.kind == Kind::Jsonl { 1_020 } else { 2_100 };
    let name = |n: usize| sid(&format!("s{n:04}"));
    world.root("r");
    let children = (0..count).map(|n| {
        let session = NewSession::child(name(n), sid("r"), 0);
        Op::Create(Create::child(session, Vec::new(), &descriptor("one of many"), None, 1_000 + n as u64).unwrap())
    });
    for done in world.plain().commit(&children.collect::<Vec<_>>()).unwrap() {
        done.unwrap();
    }
    let runtime = world.runtime().await;
    let records = runtime.list_sessions().await.unwrap();
    assert_eq!(records.len(), count + 1);
    assert!(records.iter().zip((0..count).rev()).all(|(record, n)| record.id == name(n)));
    runtime.shutdown().await;
}

async fn what_is_live_is_told_and_kept_where_the_store_has_lost_it(world: &World) {
    world.create(&Author::root("r").at(2_000));
    world.create(&Author::root("cold").at(1_000));
    let runtime = world.runtime().await;
    let kept = runtime.resume(&sid("r")).await.unwrap();
    assert_eq!(listed(&runtime).await, ["r live stored", "cold stored"]);
    // The header is read for nothing else, so the session is as good as gone.
    world.watch.fail("r", Call::Header, None, Fault::Gone);
    assert_eq!(listed(&runtime).await, ["r live", "cold stored"]);
    let trace = runtime.trace(&sid("r")).await.unwrap();
    assert_eq!(trace.root().unwrap().id, sid("r"), "what is live is known");
    world.watch.clear();
    drop(kept);
    runtime.shutdown().await;
}

async fn a_header_that_cannot_be_read_is_in_the_list_and_a_store_that_cannot_is_no_list(world: &World) {
    for id in ["a", "b", "c"] {
        world.create(&Author::root(id));
    }
    let runtime = world.runtime().await;
    world.watch.fail("b", Call::Header, None, Fault::Corrupt);
    let records = runtime.list_sessions().await.unwrap();
    let shown: Vec<_> = records.iter().map(|record| (record.id.as_str(), record.header.is_ok(), record.created_at() > 0)).collect();
    assert_eq!(shown, [("a", true, true), ("c", true, true), ("b", false, false)]);
    world.watch.clear();
    world.watch.fail("b", Call::Header, None, Fault::Outage);
    assert_eq!(code(&runtime.host(), "list_sessions", "a").await, "SESSION_QUERY_PERSISTENCE_FAILED");
    world.watch.clear();
    world.watch.fail("b", Call::Header, None, Fault::Gone);
    assert_eq!(listed(&runtime).await, ["a stored", "c stored"], "it was removed while the list was made");
    runtime.shutdown().await;
}

/// Every header that differs from this one in one field.
fn others(header: &Header) -> Vec<(&'static str, Header)> {
    vec![
        ("version", Header { version: 2, ..header.clone() }),
        ("created_at", Header { created_at: header.created_at + 1, ..header.clone() }),
        ("cwd", Header { cwd: Some("/elsewhere".into()), ..header.clone() }),
        ("parent", Header { parent: Some(sid("cold")), ..header.clone() }),
        ("seed_length", Header { seed_length: 1, ..header.clone() }),
        ("depth", Header { depth: header.depth + 1, ..header.clone() }),
    ]
}

async fn a_stored_header_that_is_not_the_live_one_fails_every_read_of_it(world: &World) {
    world.root("r");
    world.root("cold");
    world.child("a", "r");
    let runtime = world.runtime().await;
    let kept = runtime.resume(&sid("r")).await.unwrap();
    let header = runtime.trace(&sid("r")).await.unwrap().target;
    for (field, other) in others(&header) {
        world.watch.clear();
        world.watch.answer_header("r", None, other);
        for read in READS {
            assert_eq!(code(&runtime.host(), read, "r").await, "SESSION_QUERY_SOURCE_CONFLICT", "{read}: another {field}");
        }
        // An ancestor's header is read for a trace, and for the list of a family.
        assert_eq!(code(&runtime.host(), "trace", "a").await, "SESSION_QUERY_SOURCE_CONFLICT", "{field}");
        for parent in ["r", "a"] {
            assert_eq!(runtime.list(Some(&sid(parent))).await.unwrap_err().code(), "SESSION_QUERY_SOURCE_CONFLICT", "{parent}: {field}");
        }
        for read in OF_A_LOG.into_iter().chain(["trace"]) {
            assert_eq!(code(&runtime.host(), read, "cold").await, "ok", "{read}: of another session");
        }
        assert_eq!(code(&runtime.host(), "list_events", "a").await, "ok", "the log of a child says nothing of its parent's header");
    }
    world.watch.clear();
    drop(kept);
    runtime.shutdown().await;
}

async fn a_header_that_changes_while_a_log_is_read_fails_the_read(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let header = runtime.trace(&sid("r")).await.unwrap().target;
    for (field, other) in others(&header) {
        for (nth, read) in [1, 2].into_iter().flat_map(|nth| OF_A_LOG.map(|read| (nth, read))) {
            world.watch.clear();
            world.watch.answer_header("r", nth, other.clone());
            assert_eq!(code(&runtime.host(), read, "r").await, "SESSION_QUERY_SOURCE_CONFLICT", "{read}: {field} of look {nth}");
        }
    }
    // What is folded has a header of its own.
    world.watch.clear();
    world.watch.answer_header("r", None, others(&header).remove(2).1);
    for (read, expected) in [("list_events", "SESSION_QUERY_SOURCE_CONFLICT"), ("load", "SESSION_QUERY_SOURCE_CONFLICT"), ("read_event", "ok")] {
        assert_eq!(code(&runtime.host(), read, "r").await, expected, "{read}");
    }
    for read in OF_A_LOG {
        world.watch.clear();
        world.watch.fail("r", Call::Header, 2, Fault::Gone);
        assert_eq!(code(&runtime.host(), read, "r").await, "SESSION_QUERY_SESSION_NOT_FOUND", "{read}: it was removed meanwhile");
    }
    runtime.shutdown().await;
}

async fn a_header_on_the_disk_that_is_not_the_live_one_fails_what_reads_it_and_nothing_else(world: &World) {
    const CONFLICT: &str = "SESSION_QUERY_SOURCE_CONFLICT";
    world.root("r");
    for (id, parent) in [("a", "r"), ("b", "a"), ("c", "b"), ("d", "r")] {
        world.child(id, parent);
    }
    if world.kind == Kind::Memory {
        // Nobody writes there behind its back.
        return;
    }
    // A child lives for as long as it works.
    let (begun, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let gates = (begun.clone(), go_on.clone());
    let builder = World::builder().closure("worker", move |_turn: Turn| {
        let (begun, go_on) = gates.clone();
        async move {
            begun.add_permits(1);
            go_on.acquire().await.unwrap().forget();
            Ok(TurnEnd::Completed)
        }
    });
    let runtime = world.start(builder).await;
    let host = runtime.host();
    host.send(&sid("b"), "work", None).await.unwrap();
    begun.acquire().await.unwrap().forget();
    let header = world.reader().header(&sid("b")).unwrap().unwrap();
    let other = Header { cwd: Some("/elsewhere".into()), ..(*header).clone() };
    rewrite(world.kind, &world.path(), &header, &other);
    let list = async |parent: &str| runtime.list(Some(&sid(parent))).await.map_or_else(|error| error.code(), |_| "ok");
    for read in READS {
        assert_eq!(code(&host, read, "b").await, CONFLICT, "{read}");
    }
    // Whoever it is above of or below of; a list of a family reads the family and its ancestors.
    for (session, of_trace, of_list) in
        [("r", CONFLICT, "ok"), ("a", CONFLICT, CONFLICT), ("b", CONFLICT, CONFLICT), ("c", CONFLICT, CONFLICT), ("d", "ok", "ok")]
    {
        assert_eq!((code(&host, "trace", session).await, list(session).await), (of_trace, of_list), "{session}");
        if session != "b" {
            assert_eq!(code(&host, "load", session).await, "ok", "{session}");
        }
    }
    rewrite(world.kind, &world.path(), &other, &header);
    for session in ["r", "a", "b", "c", "d"] {
        assert_eq!((code(&host, "trace", session).await, list(session).await), ("ok", "ok"), "{session}");
    }
    // The end of its work is news for those above, who work on that.
    go_on.add_permits(1_000);
    assert_eq!(host.quiescent(&sid("r")).await.unwrap(), []);
    runtime.shutdown().await;
}

/// Writes another header in the place of one, with the checksum that it should have.
pub(super) fn rewrite(kind: Kind, path: &Path, of: &Header, other: &Header) {
    // A header that is a batch of its own says less.
    let record = |header: &Header, alone: bool| {
        let mut author = if alone { Author::child("a", "b") } else { Author::root("a") };
        author.header = header.clone();
        author
    };
    match kind {
        Kind::Memory => {}
        Kind::Sqlite => {
            let (text, crc) = record(other, true).header_record();
            let conn = rusqlite::Connection::open(path).unwrap();
            assert_eq!(conn.execute("UPDATE session SET header = ?2, crc = ?3 WHERE id = ?1", rusqlite::params![of.id.as_str(), text, crc]).unwrap(), 1);
        }
        Kind::Jsonl => {
            let file = path.join(path_of(of.parent.as_ref(), &of.id));
            let text = std::fs::read_to_string(&file).unwrap();
            let alone = !text.lines().next().unwrap().contains(r#""more":true"#);
            let first = |header: &Header| String::from_utf8(record(header, alone).lines()).unwrap().lines().next().unwrap().to_owned();
            assert_eq!(text.lines().next().unwrap(), first(of), "the header is the one that is to be replaced");
            let rest = text.split_once('\n').unwrap().1;
            std::fs::write(&file, format!("{}\n{rest}", first(other))).unwrap();
        }
    }
}

async fn what_is_absent_and_what_fails_has_a_code_in_every_read(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let host = runtime.host();
    let of_one: Vec<&str> = OF_A_LOG.into_iter().chain(["trace"]).collect();
    for &read in &of_one {
        assert_eq!(code(&host, read, "nobody").await, "SESSION_QUERY_SESSION_NOT_FOUND", "{read}");
    }
    assert_eq!(ask(&host, "list_sessions", "nobody", CancellationToken::new()).await.unwrap(), 0);
    for (fault, expected) in [
        (Fault::Outage, "SESSION_QUERY_PERSISTENCE_FAILED"),
        (Fault::Gone, "SESSION_QUERY_SESSION_NOT_FOUND"),
        (Fault::Corrupt, "SESSION_QUERY_CORRUPT_SESSION"),
    ] {
        for &read in &of_one {
            world.watch.clear();
            world.watch.fail("r", Call::Header, None, fault);
            assert_eq!(code(&host, read, "r").await, expected, "{read}: {fault:?}");
        }
        for read in OF_A_LOG {
            world.watch.clear();
            world.watch.fail("r", Call::Events, None, fault);
            world.watch.fail("r", Call::Load, None, fault);
            assert_eq!(code(&host, read, "r").await, expected, "{read}: {fault:?}");
        }
    }
    // More often than reads may be under way: one that panics takes nothing with it.
    for read in READS.into_iter().chain(READS) {
        world.watch.clear();
        world.watch.before("r", Call::Header, 1, || panic!("a store that panics"));
        assert_eq!(code(&host, read, "r").await, "SESSION_QUERY_PERSISTENCE_FAILED", "{read}");
        world.watch.clear();
        assert_eq!(code(&host, read, "r").await, "ok", "{read}");
    }
    runtime.shutdown().await;
}

async fn a_session_that_becomes_live_during_a_read_is_read_as_it_is_then(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    for (at, read) in OF_A_LOG.into_iter().chain(["trace", "list_sessions"]).enumerate() {
        let host = runtime.host();
        let before = ask(&host, "load", "r", CancellationToken::new()).await.unwrap();
        world.watch.clear();
        let pause = world.watch.pause("r", Call::Header, 1);
        let (told, root) = tokio::join!(ask(&host, read, "r", CancellationToken::new()), async {
            pause.reached().await;
            let root = runtime.resume(&sid("r")).await.unwrap();
            root.send("work").await.unwrap();
            assert_eq!(root.quiescent().await.unwrap(), []);
            pause.open();
            root
        });
        let after = ask(&host, "load", "r", CancellationToken::new()).await.unwrap();
        drop(root);
        assert!(after > before, "it has worked");
        let expected = match read {
            "trace" | "list_sessions" => 1,
            // The window ends with the neighbours that were asked for.
            "read_event" => after.min(51),
            _ => after,
        };
        assert_eq!(told.unwrap(), expected, "{read}, round {at}");
    }
    runtime.shutdown().await;
}
