//! What is in a log.

use greenroom::actors::query::Place;
use greenroom_session::{
    event::{Body, Role, SurfaceMessage},
    message::{Block, Source},
    store::Op,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{OF_A_LOG, another, code};
use crate::{
    author::{Author, descriptor},
    world::{Kind, World, mid, sid},
};

crate::on_every_store!(async
    the_list_of_a_log_says_what_a_model_sees,
    a_surface_that_breaks_a_rule_is_told_by_what_folds_and_read_by_what_does_not,
    a_window_is_cut_at_the_ends_of_the_log,
    a_window_that_is_too_wide_is_refused_before_anything_is_read,
    a_log_is_read_from_anywhere_in_pieces_of_any_size,
);

fn said(id: &str) -> Body {
    Body::UserMessage(SurfaceMessage { id: mid(id), role: Role::User, content: vec![Block::text("x")], source: Source::User })
}

async fn the_list_of_a_log_says_what_a_model_sees(world: &World) {
    use Place::{Current, LogOnly, Shadowed};
    // Two messages are replaced by one, which is replaced itself.
    let author = Author::root("r")
        .event(said("m2"))
        .event(said("m3"))
        .event(said("m4"))
        .replacing(said("m5"), 2, 3, vec![2, 3])
        .raw("some/extension", &json!({}))
        .replacing(said("m7"), 5, 5, vec![5]);
    // An unknown type would keep a session from going on, not from being read.
    world.create(&author);
    world.create(&Author::child("empty", "r"));
    // What is inherited is seen as well as what is the child's own.
    world.create(&Author::child("heir", "r").event(said("m0")).event(said("m1")).inherited().described(&descriptor("heir")).replacing(
        said("m3"),
        0,
        0,
        vec![0],
    ));
    let runtime = world.runtime().await;
    let cases: [(&str, &[(&str, Place)]); 3] = [
        (
            "r",
            &[
                ("root/opened", LogOnly),
                ("session/end-seed", LogOnly),
                ("user/message", Shadowed),
                ("user/message", Shadowed),
                ("user/message", Current),
                ("user/message", Shadowed),
                ("some/extension", LogOnly),
                ("user/message", Current),
            ],
        ),
        ("empty", &[]),
        ("heir", &[("user/message", Shadowed), ("user/message", Current), ("subagent/descriptor", LogOnly), ("user/message", Current)]),
    ];
    for (id, expected) in cases {
        let lines = runtime.list_events(&sid(id)).await.unwrap();
        let shown: Vec<_> = lines.iter().map(|line| (line.type_name.as_str(), line.place)).collect();
        assert_eq!(shown, expected, "{id}");
        assert!(lines.iter().enumerate().all(|(at, line)| line.seq == at as u64 && line.time == 1_000), "{id}: {lines:?}");
    }
    let names = [Current, Shadowed, LogOnly].map(Place::as_str);
    assert_eq!(names, ["current", "shadowed", "log-only"]);
    runtime.shutdown().await;
}

async fn a_surface_that_breaks_a_rule_is_told_by_what_folds_and_read_by_what_does_not(world: &World) {
    let message = json!({"id": "m", "role": "user", "content": [{"type": "text", "text": "x"}], "source": {"kind": "user"}});
    let end = Body::TurnEnd { turn: 1, reason: greenroom_session::event::TurnEnd::Completed };
    let broken = [
        Author::root("a surface event without its marker").raw("user/message", &message),
        Author::root("a marker on an event that no model sees").event(said("m2")).replacing(Body::EndSeed {}, 2, 2, vec![2]),
        Author::root("a replacement of what is not there").replacing(said("m2"), 1, 1, vec![1]),
        Author::root("a replacement that hides what it hides").event(said("m2")).replacing(said("m3"), 2, 2, vec![1]),
        Author::root("a turn that ends and never began").event(end),
        Author::child("a broken history that was inherited", "nobody").raw("user/message", &message).inherited().described(&descriptor("heir")),
    ];
    let events: Vec<usize> = broken.iter().map(|author| author.event_records().len()).collect();
    let planted: Vec<bool> = broken.iter().map(|author| world.plant(author)).collect();
    // Memory holds what was written under the rules and nothing else.
    assert!(planted.iter().all(|planted| *planted == (world.kind != Kind::Memory)), "{planted:?}");
    let runtime = world.runtime().await;
    let host = runtime.host();
    for (author, events) in broken.iter().zip(events).filter(|_| world.kind != Kind::Memory) {
        let id = author.id().as_str();
        for read in OF_A_LOG {
            let expected = if ["read_events", "read_event"].contains(&read) { "ok" } else { "SESSION_QUERY_INVALID_SURFACE" };
            assert_eq!(code(&host, read, id).await, expected, "{read} of {id}");
        }
        assert_eq!(runtime.last_answer(author.id()).await.unwrap_err().code(), "SESSION_QUERY_INVALID_SURFACE");
        assert_eq!(runtime.read_events(author.id()).await.unwrap().len(), events, "{id}");
        assert_eq!(code(&host, "trace", id).await, "ok", "no log is read for a trace");
    }
    runtime.shutdown().await;
}

fn memos(id: &str, count: u64) -> Author {
    (0..count).fold(Author::root(id), |author, n| author.raw("x/memo", &json!(n)))
}

async fn a_window_is_cut_at_the_ends_of_the_log(world: &World) {
    world.create(&memos("r", 8));
    world.create(&Author::child("empty", "r"));
    let widest = (1 << 53) - 1;
    let runtime = world.start(World::builder().read_window_max(widest)).await;
    for (seq, before, after, expected) in [
        (4, 0, 0, Some(4..=4)),
        (4, 1, 2, Some(3..=6)),
        (0, 50, 0, Some(0..=0)),
        (1, 50, 1, Some(0..=2)),
        (9, 0, 50, Some(9..=9)),
        (8, 2, 50, Some(6..=9)),
        (4, widest, widest, Some(0..=9)),
        (10, 0, 0, None),
        (10, 50, 50, None),
        (u64::MAX, widest, widest, None),
        (u64::MAX, 0, widest, None),
    ] {
        let window = runtime.read_event(&sid("r"), seq, before, after).await;
        match (window, expected) {
            (Ok(window), Some(expected)) => {
                assert_eq!(window.events.iter().map(|event| event.seq).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
                assert_eq!((window.seq, window.event().unwrap().seq, &window.header.id), (seq, seq, &sid("r")));
            }
            (Err(error), None) => assert_eq!(error.code(), "SESSION_QUERY_EVENT_NOT_FOUND"),
            (got, expected) => panic!("{seq} {before} {after}: {got:?} where {expected:?} was expected"),
        }
    }
    assert_eq!(runtime.read_event(&sid("empty"), 0, 0, 0).await.unwrap_err().code(), "SESSION_QUERY_EVENT_NOT_FOUND");
    runtime.shutdown().await;
}

async fn a_window_that_is_too_wide_is_refused_before_anything_is_read(world: &World) {
    for (max, builder) in [(50, World::builder()), (3, World::builder().read_window_max(3)), (0, World::builder().read_window_max(0))] {
        let world = another(world);
        world.create(&memos("r", 60));
        let runtime = world.start(builder).await;
        assert_eq!(runtime.read_event(&sid("r"), 55, max, 0).await.unwrap().events.len() as u64, max + 1);
        assert_eq!(runtime.read_event(&sid("r"), 2, 0, max).await.unwrap().events.len() as u64, max + 1);
        world.watch.clear();
        for (session, before, after) in [("r", max + 1, 0), ("r", 0, max + 1), ("r", u64::MAX, u64::MAX), ("nobody", max + 1, 0)] {
            let refused = runtime.read_event(&sid(session), 0, before, after).await.unwrap_err();
            assert_eq!(refused.code(), "SESSION_QUERY_INVALID_WINDOW");
            assert!(refused.to_string().contains(&format!("at most {max} ")), "{refused}");
        }
        assert!(world.watch.calls().is_empty(), "{:?}", world.watch.calls());
        runtime.shutdown().await;
    }
}

async fn a_log_is_read_from_anywhere_in_pieces_of_any_size(world: &World) {
    const LENGTH: u64 = 3_500;
    world.create(&memos("r", LENGTH - 2));
    let runtime = world.runtime().await;
    let host = runtime.host();
    for (from, limit, expected) in [
        (0, usize::MAX, 0..LENGTH),
        (0, 1, 0..1),
        (0, 1_000, 0..1_000),
        (999, 1_001, 999..2_000),
        (1, 2_999, 1..3_000),
        (3_499, 7, 3_499..LENGTH),
        (3_500, 7, 0..0),
        (u64::MAX, usize::MAX, 0..0),
    ] {
        let events = host.read_events(&sid("r"), from, limit, CancellationToken::new()).await.unwrap();
        assert!(events.iter().map(|event| event.seq).eq(expected), "from {from}, at most {limit}");
    }
    let nothing = host.read_events(&sid("r"), 0, 0, CancellationToken::new()).await;
    assert_eq!(nothing.unwrap_err().code(), "SESSION_QUERY_INVALID_LIMIT");
    assert_eq!(host.load(&sid("r")).await.unwrap().events.len() as u64, LENGTH);
    assert_eq!(host.fold(&sid("r")).await.unwrap().head().next_seq, LENGTH);
    runtime.shutdown().await;
}

/// What was removed is told as what never was.
#[tokio::test]
async fn a_session_that_was_removed_is_found_by_no_read() {
    for world in [World::memory(), World::sqlite(), World::jsonl()] {
        world.root("r");
        world.one(Op::Remove(greenroom_session::store::Remove { session: sid("r"), discard: false })).unwrap();
        let runtime = world.runtime().await;
        for read in OF_A_LOG.into_iter().chain(["trace"]) {
            assert_eq!(code(&runtime.host(), read, "r").await, "SESSION_QUERY_SESSION_NOT_FOUND", "{read}");
        }
        assert_eq!(runtime.list_sessions().await.unwrap(), []);
        runtime.shutdown().await;
    }
}
