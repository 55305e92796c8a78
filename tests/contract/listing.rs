//! How a list of children is made: what it reads, what fails it, what gives it up, and that it changes nothing.

use greenroom::{
    Delegate, Entry, Runtime, Turn, TurnEnd,
    actors::{catalog::read_listing, error::ListError, host::NewRoot, query::Page},
};
use greenroom_session::{event::Body, id::SessionId};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    author::{Author, descriptor},
    catalog::{list, show, shown},
    watched::{Call, Fault},
    world::{Kind, World, sid},
};

crate::on_every_store!(async
    a_good_row_costs_no_log_and_a_missing_one_is_made_up_for_by_one_read_or_two,
    what_was_never_described_is_described_from_its_log_and_written_nowhere,
    what_fails_with_one_child_is_its_entry_and_hides_no_sibling,
    an_outage_after_the_trace_is_told_of_every_child_that_it_hits,
    an_exact_read_that_says_something_else_is_damage,
    what_fails_in_the_trace_fails_the_list_under_its_own_code,
    a_live_session_that_is_stored_with_another_header_fails_the_list,
    a_list_that_is_given_up_says_so_whatever_else_there_is_and_reads_on_nowhere,
    a_list_wakes_nobody_and_changes_no_byte,
    without_a_query_service_nothing_is_read_and_all_else_works,
);

async fn try_list(runtime: &Runtime, parent: &str, cancel: CancellationToken) -> Result<Vec<String>, ListError> {
    let listing = runtime.host().list(Some(&sid(parent)), Page::default(), false, cancel).await?;
    Ok(listing.entries.iter().map(show).collect())
}

fn log_reads(world: &World, sessions: &[&str]) -> Vec<usize> {
    sessions.iter().map(|session| world.watch.log_reads(session)).collect()
}

async fn a_good_row_costs_no_log_and_a_missing_one_is_made_up_for_by_one_read_or_two(world: &World) {
    let newer = json!({"version": 2});
    world.root("r");
    world.create_all(&[
        Author::child("none", "r").sealed(),
        Author::child("two", "r").described(&descriptor("a")).described(&descriptor("b")).sealed(),
        Author::listed("one", "r"),
        Author::child("newer", "r").described_as(&newer).sealed(),
        Author::child("inherited and own", "r").described_as(&newer).inherited().described(&descriptor("own")).sealed(),
        Author::fork("fork", "r").described(&descriptor("not a child")).sealed(),
    ]);
    let sessions = ["none", "two", "one", "newer", "inherited and own", "fork"];
    let lines = ["inherited and own complete", "newer unsupported", "one complete", "two corrupt"];
    let runtime = world.runtime().await;
    world.watch.clear();
    let rows = list(&runtime, "r", false).await;
    assert_eq!(rows.iter().map(show).collect::<Vec<_>>(), lines);
    assert_eq!(log_reads(world, &sessions), [0; 6]);
    for session in sessions {
        world.watch.lose_row(session, None);
    }
    // The whole log to see whether it holds one descriptor, then that one.
    assert_eq!(list(&runtime, "r", false).await, rows, "the log says what the row says");
    assert_eq!(log_reads(world, &sessions), [1, 1, 2, 2, 2, 0]);
    runtime.shutdown().await;
}

async fn what_was_never_described_is_described_from_its_log_and_written_nowhere(world: &World) {
    world.root("r");
    world.child("made", "r");
    assert!(world.plant_all(&[Author::listed("planted", "r").at(2_000), Author::fork("fork", "r").at(2_000).described(&descriptor("x")).sealed()]));
    if world.kind == Kind::Sqlite {
        world.close();
        let conn = rusqlite::Connection::open(world.path()).unwrap();
        // A row of nobody is nobody's; a damaged one is none.
        conn.execute("INSERT INTO summary SELECT 99, head, head_crc, work, verdict, verdict_crc, header_crc, NULL, NULL FROM summary LIMIT 1", []).unwrap();
        conn.execute("UPDATE summary SET head = replace(head, '2', '3') WHERE sid = (SELECT sid FROM session WHERE id = 'made')", []).unwrap();
    }
    let runtime = world.runtime().await;
    let sessions = ["made", "planted", "fork"];
    let in_memory = world.kind == Kind::Memory;
    for _ in 0..2 {
        world.watch.clear();
        assert_eq!(shown(&runtime, "r").await, ["made complete", "planted complete"]);
        let reads = log_reads(world, &sessions);
        assert_eq!(reads, if in_memory { [0; 3] } else { [2, 2, 0] });
        if world.kind == Kind::Jsonl {
            break;
        }
    }
    // What a file said is remembered, once the file is so old that a change of it would show.
    let asked = std::time::Instant::now();
    while world.kind == Kind::Jsonl && log_reads(world, &sessions) != [0; 3] {
        world.watch.clear();
        assert_eq!(shown(&runtime, "r").await, ["made complete", "planted complete"]);
        assert!(asked.elapsed().as_secs() < 60, "files are read for every list");
    }
    runtime.shutdown().await;
}

async fn what_fails_with_one_child_is_its_entry_and_hides_no_sibling(world: &World) {
    world.root("r");
    for child in ["a", "b", "c"] {
        world.child(child, "r");
    }
    world.create(&Author::fork("fork", "r").described(&descriptor("not a child")).sealed());
    let runtime = world.runtime().await;
    for (fault, reason) in [(Fault::Outage, "unavailable"), (Fault::Gone, "unavailable"), (Fault::Corrupt, "corrupt")] {
        for call in [Call::Rows, Call::Header, Call::Load, Call::Events] {
            world.watch.clear();
            if call != Call::Rows {
                world.watch.lose_row("b", None);
            }
            world.watch.fail("b", call, 1, fault);
            assert_eq!(shown(&runtime, "r").await, ["a complete".to_owned(), format!("b {reason}"), "c complete".to_owned()], "{call:?}, {fault:?}");
            // It was so for a moment, and nobody remembers it.
            assert_eq!(shown(&runtime, "r").await, ["a complete", "b complete", "c complete"], "{call:?}, {fault:?}");
            // A fork is nobody's child, whatever is wrong with it.
            world.watch.clear();
            world.watch.fail("fork", call, None, fault);
            assert_eq!(shown(&runtime, "r").await, ["a complete", "b complete", "c complete"], "a fork: {call:?}, {fault:?}");
        }
    }
    runtime.shutdown().await;
}

async fn an_outage_after_the_trace_is_told_of_every_child_that_it_hits(world: &World) {
    world.root("r");
    let children = ["a", "b", "c", "d"];
    for child in children {
        world.child(child, "r");
    }
    let runtime = world.runtime().await;
    world.watch.clear();
    for child in &children[1..] {
        world.watch.lose_row(child, None);
        world.watch.fail(child, Call::Load, None, Fault::Outage);
    }
    assert_eq!(shown(&runtime, "r").await, ["a complete", "b unavailable", "c unavailable", "d unavailable"]);
    let lines: Vec<_> = runtime.list_descendants(&sid("r")).await.unwrap().entries.into_iter().map(|line| show(&line.entry)).collect();
    assert_eq!(lines, ["a complete", "b unavailable", "c unavailable", "d unavailable"]);
    runtime.shutdown().await;
}

async fn an_exact_read_that_says_something_else_is_damage(world: &World) {
    world.root("r");
    world.root("q");
    for child in ["a", "b"] {
        world.child(child, "r");
    }
    let header = (*world.reader().header(&sid("b")).unwrap().unwrap()).clone();
    let events = world.reader().events(&sid("b"), 0, 9).unwrap();
    let runtime = world.runtime().await;
    let plant = |how: &dyn Fn()| {
        world.watch.clear();
        world.watch.lose_row("b", None);
        how();
    };
    let of_another_parent = greenroom_session::header::Header { parent: Some(sid("q")), ..header.clone() };
    // From before the first read, and once the exact one is done.
    for nth in [None, Some(1), Some(2)] {
        plant(&|| world.watch.answer_header("b", nth, of_another_parent.clone()));
        assert_eq!(shown(&runtime, "r").await, ["a complete", "b corrupt"], "header {nth:?}");
    }
    // Found among the children of one parent, whatever its row says.
    world.watch.clear();
    world.watch.find_header("b", None, of_another_parent);
    assert_eq!(shown(&runtime, "r").await, ["a complete", "b corrupt"]);
    let mut of_another_type = events[0].clone();
    of_another_type.body = Body::EndSeed {};
    plant(&|| world.watch.answer_events("b", 1, vec![of_another_type.clone()]));
    assert_eq!(shown(&runtime, "r").await, ["a complete", "b corrupt"]);
    assert_eq!(world.watch.log_reads("b"), 2);
    plant(&|| world.watch.answer_events("b", 1, Vec::new()));
    assert_eq!(shown(&runtime, "r").await, ["a complete", "b unavailable"]);
    runtime.shutdown().await;
}

async fn what_fails_in_the_trace_fails_the_list_under_its_own_code(world: &World) {
    world.root("top");
    world.child("r", "top");
    world.child("a", "r");
    let runtime = world.runtime().await;
    let cases = [
        ("r", Call::Header, Fault::Outage, "SESSION_QUERY_PERSISTENCE_FAILED"),
        ("r", Call::Header, Fault::Gone, "SESSION_QUERY_SESSION_NOT_FOUND"),
        ("r", Call::Header, Fault::Corrupt, "SESSION_QUERY_CORRUPT_SESSION"),
        ("top", Call::Header, Fault::Outage, "SESSION_QUERY_PERSISTENCE_FAILED"),
        ("top", Call::Header, Fault::Corrupt, "SESSION_QUERY_CORRUPT_SESSION"),
        ("r", Call::Children, Fault::Outage, "SESSION_QUERY_PERSISTENCE_FAILED"),
    ];
    for (session, call, fault, code) in cases {
        world.watch.clear();
        world.watch.fail(session, call, 1, fault);
        assert_eq!(try_list(&runtime, "r", CancellationToken::new()).await.unwrap_err().code(), code, "{session}, {call:?}, {fault:?}");
        world.watch.clear();
        world.watch.fail(session, call, 1, fault);
        assert_eq!(runtime.list_descendants(&sid("r")).await.unwrap_err().code(), code, "{session}, {call:?}, {fault:?}");
    }
    // An ancestor that is not there is no failure.
    world.watch.clear();
    world.watch.fail("top", Call::Header, None, Fault::Gone);
    assert_eq!(shown(&runtime, "r").await, ["a complete"]);
    runtime.shutdown().await;
}

async fn a_live_session_that_is_stored_with_another_header_fails_the_list(world: &World) {
    let stayer = |turn: Turn| async move {
        turn.cancelled().cancelled().await;
        Ok(TurnEnd::Completed)
    };
    let runtime = world.start(World::builder().closure("stayer", stayer)).await;
    let root = runtime.host().root(NewRoot::new("worker", "a desk")).await.unwrap();
    let mut occurrences = runtime.subscribe();
    let child = root.agent().start_continuable(Delegate::new("stayer", "stay", "one")).await.unwrap().child;
    while !matches!(occurrences.recv().await.unwrap(), greenroom::Occurrence::TurnStarted { session, .. } if session == child) {}
    let root = root.id().clone();
    let header = |id: &SessionId| (*world.reader().header(id).unwrap().unwrap()).clone();
    let moved = |id: &SessionId| greenroom_session::header::Header { cwd: Some("/elsewhere".into()), ..header(id) };
    let code = |of: SessionId| {
        let runtime = &runtime;
        async move { runtime.list(Some(&of)).await.err().map(|error| error.code()) }
    };
    assert_eq!([code(root.clone()).await, code(child.clone()).await], [None, None]);
    // The target, an ancestor, a direct child.
    world.watch.answer_header(root.as_str(), None, moved(&root));
    assert_eq!([code(root.clone()).await, code(child.clone()).await], [Some("SESSION_QUERY_SOURCE_CONFLICT"); 2]);
    world.watch.clear();
    world.watch.find_header(child.as_str(), None, moved(&child));
    assert_eq!([code(root.clone()).await, code(child.clone()).await], [Some("SESSION_QUERY_SOURCE_CONFLICT"), None]);
    assert_eq!(runtime.list_descendants(&root).await.unwrap_err().code(), "SESSION_QUERY_SOURCE_CONFLICT");
    runtime.shutdown().await;
}

/// When a list is given up: by a token that is cancelled before a call or after it, and whether that call fails as well.
#[derive(Debug, Clone, Copy)]
enum GivenUp {
    Before(&'static str, Call),
    After(&'static str, Call),
    Failing(&'static str, Call),
}

async fn a_list_that_is_given_up_says_so_whatever_else_there_is_and_reads_on_nowhere(world: &World) {
    use GivenUp::{After, Before, Failing};
    world.root("r");
    for child in ["a", "b"] {
        world.child(child, "r");
    }
    // One read after the other, so that the next one is answered when the one before has come to its end.
    let runtime = world.start(World::builder().read_concurrency(1)).await;
    let lost = || {
        world.watch.clear();
        for child in ["a", "b"] {
            world.watch.lose_row(child, None);
        }
    };
    lost();
    let before = CancellationToken::new();
    before.cancel();
    assert_eq!(try_list(&runtime, "r", before).await.unwrap_err().code(), "CANCELLED");
    assert!(world.watch.calls().is_empty(), "{:?}", world.watch.calls());

    // Each with what must not be read any more.
    let cases = [
        (Before("r", Call::Header), &["r", "a", "b"][..]),
        (After("r", Call::Header), &["a", "b"]),
        (Failing("r", Call::Header), &["a", "b"]),
        (Before("r", Call::Children), &["b"]),
        (After("r", Call::Children), &["a", "b"]),
        (Failing("r", Call::Children), &["a", "b"]),
        (Before("a", Call::Load), &["b"]),
        (After("a", Call::Load), &["b"]),
        (Failing("a", Call::Load), &["b"]),
        (Before("a", Call::Events), &["b"]),
        (After("a", Call::Events), &["b"]),
        (Failing("a", Call::Events), &["b"]),
        (Before("b", Call::Events), &[]),
        (After("b", Call::Events), &[]),
        (Failing("b", Call::Events), &[]),
    ];
    for (when, unread) in cases {
        lost();
        let cancel = CancellationToken::new();
        let token = cancel.clone();
        match when {
            Before(session, call) => world.watch.before(session, call, 1, move || token.cancel()),
            After(session, call) => world.watch.after(session, call, 1, move || token.cancel()),
            Failing(session, call) => {
                world.watch.fail(session, call, 1, Fault::Outage);
                world.watch.before(session, call, 1, move || token.cancel());
            }
        }
        assert_eq!(try_list(&runtime, "r", cancel).await.map_err(|error| error.code()), Err("CANCELLED"), "{when:?}");
        runtime.host().list_sessions(Page { after: None, limit: Some(1) }, CancellationToken::new()).await.unwrap();
        assert_eq!(log_reads(world, unread), vec![0; unread.len()], "{when:?}");
        if let After("a", Call::Events) = when {
            assert_eq!(world.watch.count("a", Call::Events), 1);
        }
    }
    // Whoever gives up is told at once, also while the store stands still.
    for (session, call) in [("r", Call::Header), ("r", Call::Children), ("a", Call::Load), ("a", Call::Events)] {
        lost();
        let (cancel, pause) = (CancellationToken::new(), world.watch.pause(session, call, 1));
        let (listed, ()) = tokio::join!(try_list(&runtime, "r", cancel.clone()), async {
            pause.reached().await;
            cancel.cancel();
        });
        assert_eq!(listed.map_err(|error| error.code()), Err("CANCELLED"));
        pause.open();
    }
    // A parent that lists its own children gives up in the same way.
    lost();
    let root = runtime.resume(&sid("r")).await.unwrap();
    let cancel = CancellationToken::new();
    let token = cancel.clone();
    world.watch.after("b", Call::Events, 1, move || token.cancel());
    assert_eq!(root.agent().list_children(cancel).await.unwrap_err().code(), "CANCELLED");
    runtime.shutdown().await;
}

async fn a_list_wakes_nobody_and_changes_no_byte(world: &World) {
    world.root("r");
    world.child("idle", "r");
    world.child("with work", "r");
    world.accept("with work", "m");
    world.child("cut off", "r");
    world.accept("cut off", "m");
    World::activate(&*world.plain(), "cut off", true);
    world.crash();
    let planted = [
        Author::listed("planted", "r").at(2_000),
        Author::child("two", "r").at(2_000).described(&descriptor("a")).described(&descriptor("b")).sealed(),
        Author::child("broken", "r").at(2_000).described(&descriptor("a")).spoilt().sealed(),
    ];
    for author in &planted {
        world.plant(author);
    }
    if world.kind == Kind::Jsonl {
        world.close();
        world.tear("planted", Some("r"));
    }
    let runtime = world.runtime().await;
    // A sign of life is no part of a list, and may come at any time.
    world.watch.clear();
    world.watch.fail("", Call::Heartbeat, None, Fault::Outage);
    let bytes = world.bytes();
    assert_eq!(bytes.is_empty(), world.kind == Kind::Memory);
    for verify in [false, true] {
        let lines: Vec<String> = list(&runtime, "r", verify).await.iter().map(show).collect();
        for line in ["cut off complete", "idle complete", "planted complete", "two corrupt", "with work complete"] {
            assert!(lines.contains(&line.to_owned()), "{line}: {lines:?}");
        }
        runtime.host().list(None, Page::default(), verify, CancellationToken::new()).await.unwrap();
    }
    runtime.list_descendants(&sid("r")).await.unwrap();
    runtime.host().trace(&sid("r"), CancellationToken::new()).await.unwrap();
    read_listing(&mut *world.reader(), Some(&sid("r")), &Page::default(), false).unwrap();
    for (name, before) in &bytes {
        assert!(world.bytes().get(name) == Some(before), "{} has changed", name.display());
    }
    assert_eq!(world.bytes().len(), bytes.len());
    let commits: Vec<_> = world.watch.calls().into_keys().filter(|(_, call)| *call == Call::Commit).collect();
    assert_eq!((runtime.host().live_count(), commits), (0, Vec::new()));
    runtime.shutdown().await;
}

async fn without_a_query_service_nothing_is_read_and_all_else_works(world: &World) {
    world.root("r");
    world.child("a", "r");
    let runtime = world.start(World::builder().without_query()).await;
    let given_up = CancellationToken::new();
    given_up.cancel();
    world.watch.clear();
    for cancel in [CancellationToken::new(), given_up] {
        let error = try_list(&runtime, "r", cancel).await.unwrap_err();
        assert!(matches!(error, ListError::QueryUnavailable));
        assert_eq!(error.code(), "SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE");
    }
    assert_eq!(runtime.list_descendants(&sid("r")).await.unwrap_err().code(), "SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE");
    assert!(world.watch.calls().is_empty());
    let root = runtime.resume(&sid("r")).await.unwrap();
    assert_eq!(root.agent().list_children(CancellationToken::new()).await.unwrap_err().code(), "SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE");
    let child = root.agent().start_continuable(Delegate::new("worker", "collect facts", "one")).await.unwrap().child;
    root.agent().followup(&child, "two").await.unwrap();
    root.quiescent().await.unwrap();
    runtime.shutdown().await;
    let entries = read_listing(&mut *world.reader(), Some(&sid("r")), &Page::default(), false).unwrap().entries;
    let turns: Vec<u64> = entries.iter().filter_map(Entry::listed).filter(|listed| listed.id == child).map(|listed| listed.turns).collect();
    assert_eq!(turns, [2]);
}
