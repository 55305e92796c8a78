//! Where a session comes from and what comes from it.

use std::collections::BTreeMap;

use greenroom::actors::query::Trace;
use greenroom_session::{
    header::NewSession,
    store::{Create, Op},
};

use super::code;
use crate::{
    author::{Author, descriptor},
    watched::{Call, Fault},
    world::{Kind, World, sid},
};

crate::on_every_store!(async
    a_trace_tells_where_a_session_comes_from_and_what_comes_from_it,
    a_lineage_that_runs_in_a_circle_is_told,
    a_trace_is_one_walk_over_headers,
    a_trace_fails_where_a_header_or_a_family_cannot_be_read,
    three_thousand_levels_are_ordinary,
);

/// Says of a trace which ancestors there are, which root, which parent is missing, and who is below, each as `PARENT>ID@DEPTH`.
fn shown(trace: &Trace) -> (String, Option<&str>, Option<&str>, String) {
    let ancestors: Vec<_> = trace.ancestors.iter().map(|header| header.id.as_str()).collect();
    let below: Vec<_> = trace.descendants.iter().map(|below| format!("{}>{}@{}", below.parent, below.session.id, below.depth)).collect();
    let (root, unresolved) = (trace.root().map(|header| header.id.as_str()), trace.unresolved_parent.as_ref().map(greenroom::SessionId::as_str));
    (ancestors.join(" "), root, unresolved, below.join(" "))
}

async fn a_trace_tells_where_a_session_comes_from_and_what_comes_from_it(world: &World) {
    let sessions = [
        Author::root("r"),
        // Siblings: by time, then by the bytes of their ids, of which capitals come first.
        Author::listed("b", "r").at(2_000),
        Author::listed("a", "r").at(3_000),
        Author::listed("Z", "r").at(2_000),
        Author::fork("f", "r").at(4_000),
        Author::listed("a2", "a").at(5_000).depth(2),
        Author::listed("a1", "a").at(5_000).depth(2),
        Author::listed("below a fork", "f").at(6_000),
        Author::listed("deep", "a1").at(7_000).depth(3),
        Author::root("alone"),
        Author::listed("orphan", "gone"),
        Author::listed("its child", "orphan").depth(2),
    ];
    for author in &sessions {
        world.create(author);
    }
    let forest = "r>Z@1 r>b@1 r>a@1 a>a1@2 a1>deep@3 a>a2@2 r>f@1 f>below a fork@2";
    let cases = [
        ("r", "", Some("r"), None, forest),
        ("a", "r", Some("r"), None, "a>a1@1 a1>deep@2 a>a2@1"),
        ("deep", "a1 a r", Some("r"), None, ""),
        ("below a fork", "f r", Some("r"), None, ""),
        ("alone", "", Some("alone"), None, ""),
        ("orphan", "", None, Some("gone"), "orphan>its child@1"),
        ("its child", "orphan", None, Some("gone"), ""),
    ];
    let runtime = world.runtime().await;
    for (id, ancestors, root, unresolved, below) in cases {
        let trace = runtime.trace(&sid(id)).await.unwrap();
        assert_eq!(shown(&trace), (ancestors.to_owned(), root, unresolved, below.to_owned()), "{id}");
        assert_eq!(trace.target.id, sid(id));
        let direct: Vec<_> = trace.children().map(|child| child.id.as_str().to_owned()).collect();
        let first: Vec<_> = trace.descendants.iter().filter(|below| below.parent == sid(id)).map(|below| below.session.id.as_str().to_owned()).collect();
        assert_eq!(direct, first, "{id}");
    }
    for id in ["gone", "nobody"] {
        assert_eq!(code(&runtime.host(), "trace", id).await, "SESSION_QUERY_SESSION_NOT_FOUND");
    }
    runtime.shutdown().await;
}

async fn a_lineage_that_runs_in_a_circle_is_told(world: &World) {
    let (a, b) = (Author::listed("a", "b").at(1_000), Author::listed("b", "a").at(1_000).depth(2));
    let (itself, below) = (Author::listed("itself", "itself"), Author::listed("below", "a").depth(2));
    for author in [&a, &b, &itself, &below] {
        world.create(author);
    }
    let runtime = world.runtime().await;
    for id in ["a", "b", "itself", "below"] {
        assert_eq!(code(&runtime.host(), "trace", id).await, "SESSION_QUERY_INVALID_LINEAGE", "{id}");
    }
    runtime.shutdown().await;
}

async fn a_trace_is_one_walk_over_headers(world: &World) {
    world.root("r");
    world.child("a", "r");
    for (id, parent) in [("b", "a"), ("c", "a"), ("d", "c")] {
        world.child(id, parent);
    }
    let runtime = world.runtime().await;
    for (target, headers, families) in [("r", vec!["r"], "r a b c d"), ("c", vec!["c", "a", "r"], "c d"), ("b", vec!["b", "a", "r"], "b")] {
        world.watch.clear();
        runtime.trace(&sid(target)).await.unwrap();
        let mut expected: BTreeMap<_, _> = headers.into_iter().map(|id| ((id.to_owned(), Call::Header), 1)).collect();
        expected.extend(families.split(' ').map(|id| ((id.to_owned(), Call::Children), 1)));
        assert_eq!(world.watch.calls(), expected, "each header and each family once, and no log");
    }
    runtime.shutdown().await;
}

async fn a_trace_fails_where_a_header_or_a_family_cannot_be_read(world: &World) {
    world.root("r");
    world.child("a", "r");
    world.child("b", "a");
    world.child("c", "b");
    let runtime = world.runtime().await;
    for (session, call, fault, expected) in [
        ("a", Call::Children, Fault::Outage, "SESSION_QUERY_PERSISTENCE_FAILED"),
        ("c", Call::Children, Fault::Outage, "SESSION_QUERY_PERSISTENCE_FAILED"),
        ("a", Call::Header, Fault::Outage, "SESSION_QUERY_PERSISTENCE_FAILED"),
        ("r", Call::Header, Fault::Outage, "SESSION_QUERY_PERSISTENCE_FAILED"),
        ("a", Call::Header, Fault::Corrupt, "SESSION_QUERY_CORRUPT_SESSION"),
        ("r", Call::Header, Fault::Corrupt, "SESSION_QUERY_CORRUPT_SESSION"),
        ("a", Call::Header, Fault::Gone, "SESSION_QUERY_SESSION_NOT_FOUND"),
        // An ancestor that is not there is no failure.
        ("r", Call::Header, Fault::Gone, "ok"),
        // What is not read cannot fail.
        ("r", Call::Children, Fault::Outage, "ok"),
        ("b", Call::Header, Fault::Outage, "ok"),
    ] {
        world.watch.clear();
        world.watch.fail(session, call, None, fault);
        assert_eq!(code(&runtime.host(), "trace", "a").await, expected, "{session} {call:?} {fault:?}");
    }
    runtime.shutdown().await;
}

async fn three_thousand_levels_are_ordinary(world: &World) {
    // A folder of files has a folder for each level, and making those takes most of the time.
    let levels = if world.kind == Kind::Jsonl { 300 } else { 3_000 };
    let name = |level: usize| format!("s{level}");
    let mut ops = vec![Op::Create(Create::root(NewSession::root(sid("s0")), "worker", "the top"))];
    for level in 1..=levels {
        let session = NewSession::child(sid(&name(level)), sid(&name(level - 1)), u32::try_from(level - 1).unwrap());
        ops.push(Op::Create(Create::child(session, Vec::new(), &descriptor("deeper"), None, 1_000).unwrap()));
    }
    for done in world.plain().commit(&ops).unwrap() {
        done.unwrap();
    }
    let runtime = world.runtime().await;
    for level in [0, levels / 2, levels] {
        let trace = runtime.trace(&sid(&name(level))).await.unwrap();
        assert_eq!((trace.ancestors.len(), trace.descendants.len()), (level, levels - level));
        assert_eq!(trace.root().unwrap().id, sid("s0"));
        assert!(trace.descendants.iter().enumerate().all(|(at, below)| below.depth == at + 1 && below.session.id == sid(&name(level + at + 1))));
    }
    runtime.shutdown().await;
}

/// A folder of files may hold a session twice, below two parents, so that those below a session run in a circle.
#[tokio::test]
async fn a_circle_below_a_session_comes_to_an_end() {
    let world = World::jsonl();
    for author in [Author::root("r"), Author::listed("a", "r"), Author::listed("b", "a").depth(2), Author::listed("a", "b").depth(3)] {
        assert!(world.plant(&author));
    }
    let runtime = world.runtime().await;
    let trace = runtime.trace(&sid("r")).await.unwrap();
    assert_eq!(shown(&trace).3, "r>a@1 a>b@2");
    assert_eq!(code(&runtime.host(), "trace", "a").await, "SESSION_QUERY_CORRUPT_SESSION", "there are two of it");
    runtime.shutdown().await;
}

/// The row of a session may lie about its parent.
#[tokio::test]
async fn a_row_that_puts_a_session_below_its_own_child_makes_no_circle() {
    let world = World::sqlite();
    for author in [Author::root("r"), Author::root("top"), Author::listed("a", "top"), Author::listed("b", "a").depth(2)] {
        world.create(&author);
    }
    world.close();
    let conn = rusqlite::Connection::open(world.path()).unwrap();
    assert_eq!(conn.execute("UPDATE session SET parent_id = 'b' WHERE id = 'a'", []).unwrap(), 1);
    drop(conn);
    let runtime = world.runtime().await;
    assert_eq!(code(&runtime.host(), "trace", "a").await, "SESSION_QUERY_CORRUPT_SESSION", "its header is none of its row");
    assert_eq!(code(&runtime.host(), "trace", "b").await, "SESSION_QUERY_CORRUPT_SESSION", "nor is its parent's");
    assert_eq!(code(&runtime.host(), "trace", "top").await, "ok");
    runtime.shutdown().await;
}
