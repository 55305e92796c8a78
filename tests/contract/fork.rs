//! Forks: where a session may be cut, what its fork is, and what it has nothing to do with.

use greenroom::{Publication, actors::query::Page};
use greenroom_session::{
    event::{Body, Event, Opaque, TurnEnd},
    header::NewSession,
    message::{Message, Source},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    author::{Author, descriptor},
    publish::{play, published, sound, types},
    watched::{Call, Fault},
    world::{World, mid, sid},
};

crate::on_every_store!(
    async a_fork_goes_its_own_way_from_where_it_was_cut,
    a_cut_leaves_no_turn_open,
    what_is_wrong_first_is_told_first,
    a_fork_is_listed_nowhere_and_can_be_played,
    a_fork_of_what_somebody_is_playing_has_what_is_durable,
);

fn events(world: &World, id: &str) -> Vec<Event> {
    world.reader().events(&sid(id), 0, usize::MAX).unwrap()
}

async fn a_fork_goes_its_own_way_from_where_it_was_cut(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let child = Publication::child(NewSession::child(sid("c"), sid("r"), 0), descriptor("a child")).cwd("/srv/desk");
    let session = published(&runtime, child).await;
    play(&session, "one").await;
    let turn = play(&session, "two").await;
    session.append(Body::Opaque(Opaque { name: "desk/tidied".into(), data: json!({}) })).unwrap();
    session.flush().await.unwrap();
    world.accept("c", "waits");
    let (source, before) = (events(world, "c"), world.reader().header(&sid("c")).unwrap());
    let earlier = turn[0].seq - 1;
    let last = source.len() as u64;
    for (boundary, length, name) in
        [(Some(earlier), earlier + 1, "earlier"), (Some(turn[4].seq), turn[4].seq + 1, "later"), (None, last, "whole"), (Some(0), 1, "born")]
    {
        let header = runtime.fork(&sid("c"), boundary, Some(sid(name))).await.unwrap();
        assert_eq!(world.reader().header(&sid(name)).unwrap(), Some(header.clone()));
        assert_eq!((header.parent.clone(), header.depth, header.seed_length, header.cwd.as_deref()), (Some(sid("c")), 0, length, Some("/srv/desk")));
        assert!(header.created_at >= session.header().created_at);
        let fork = events(world, name);
        let inherited = usize::try_from(length).unwrap();
        assert_eq!(fork[..inherited], source[..inherited], "{name}: byte for byte what the source has");
        assert_eq!(types(&fork[inherited..]), ["session/end-seed"]);
        let fold = world.reader().load(&sid(name)).unwrap().fold;
        assert_eq!(fold.surface().nodes().len(), source[..inherited].iter().filter(|event| event.body.is_surface()).count());
        assert!(!fold.head().has_work() && fold.head().epoch == 0 && fold.pending().count() == 0, "no inbox and no epoch comes along");
    }
    // After a mark that was there already, no second one.
    let marked = runtime.fork(&sid("c"), Some(1), Some(sid("marked"))).await.unwrap();
    assert_eq!((marked.seed_length, types(&events(world, "marked"))), (1, vec!["subagent/descriptor".to_owned(), "session/end-seed".to_owned()]));
    assert!(
        runtime.fork(&sid("c"), None, None).await.unwrap().id != runtime.fork(&sid("c"), None, None).await.unwrap().id,
        "an id is made where none is given"
    );
    assert_eq!((events(world, "c"), world.reader().header(&sid("c")).unwrap()), (source, before), "the source knows nothing of it");
    runtime.shutdown().await;
    sound(world);
}

async fn a_cut_leaves_no_turn_open(world: &World) {
    let runtime = world.runtime().await;
    let ends = [
        TurnEnd::Completed,
        TurnEnd::MaxTokens,
        TurnEnd::Aborted { cause: "user".into() },
        TurnEnd::error("NO_PAPER", "out of paper"),
        TurnEnd::Disposed,
        TurnEnd::Interrupted,
    ];
    for (number, reason) in ends.into_iter().enumerate() {
        let session = published(&runtime, Publication::seeded(NewSession::root(sid(&format!("s{number}"))), Vec::new())).await;
        let start = session.begin_turn("begin", None).await.unwrap().seq;
        for boundary in [None, Some(start), Some(start + 1)] {
            assert_eq!(session.fork(boundary, None).await.unwrap_err().code(), "OPEN_TURN", "{reason:?}");
        }
        // Before the open tail it may be cut.
        assert_eq!(session.fork(Some(start - 1), None).await.unwrap().seed_length, start);
        let end = session.append(Body::TurnEnd { turn: 1, reason: reason.clone() }).unwrap().seq;
        let note = session.append(Body::Opaque(Opaque { name: "desk/tidied".into(), data: json!({}) })).unwrap().seq;
        for boundary in [None, Some(end), Some(note)] {
            let fork = session.fork(boundary, None).await.unwrap();
            let fold = world.reader().load(&fork.id).unwrap().fold;
            assert_eq!((fold.head().turns, fold.head().has_work()), (1, false), "{reason:?}: nothing is repeated in a fork");
        }
        assert_eq!(session.fork(Some(start), None).await.unwrap_err().code(), "OPEN_TURN");
        session.end().await.unwrap();
    }
    runtime.shutdown().await;
}

async fn what_is_wrong_first_is_told_first(world: &World) {
    world.root("r");
    world.root("taken");
    let runtime = world.runtime().await;
    let host = runtime.host();
    let stale = published(&runtime, Publication::stored(sid("r"))).await;
    stale.begin_turn("cut off", None).await.unwrap();
    stale.end().await.unwrap();
    let stored = events(world, "r").len() as u64;
    let (open, beyond) = (Some(3), Some(stored));
    for (source, boundary, child, code) in [
        ("nobody", beyond, Some("taken"), "SESSION_ALREADY_EXISTS"),
        ("nobody", beyond, Some("new"), "SESSION_NOT_FOUND"),
        ("r", open, Some("r"), "SESSION_ALREADY_EXISTS"),
        ("r", beyond, Some("new"), "INVALID_BOUNDARY"),
        ("r", Some(u64::MAX), Some("new"), "INVALID_BOUNDARY"),
        ("r", open, Some("new"), "OPEN_TURN"),
    ] {
        let error = host.fork(&sid(source), boundary, child.map(sid)).await.unwrap_err();
        assert_eq!(error.code(), code, "{source} {boundary:?} {child:?}: {error}");
    }
    assert_eq!(stale.fork(beyond, Some(sid("taken"))).await.unwrap_err().code(), "SESSION_ALREADY_EXISTS");
    assert_eq!(stale.fork(beyond, Some(sid("new"))).await.unwrap_err().code(), "SESSION_NOT_LIVE");
    world.watch.fail("r", Call::Events, 1, Fault::Corrupt);
    assert_eq!(host.fork(&sid("r"), None, Some(sid("new"))).await.unwrap_err().code(), "SESSION_CORRUPT");
    world.watch.fail("r", Call::Events, 1, Fault::Outage);
    assert_eq!(host.fork(&sid("r"), None, Some(sid("new"))).await.unwrap_err().code(), "STORE_FAILED");
    world.watch.fail("new", Call::Commit, 1, Fault::Outage);
    assert_eq!(host.fork(&sid("r"), None, Some(sid("new"))).await.unwrap_err().code(), "NOT_DELIVERED");
    assert_eq!(world.reader().header(&sid("new")).unwrap(), None, "nothing of it was created");
    // Two at once under one id: one of them is.
    let source = sid("r");
    let (one, two) = tokio::join!(host.fork(&source, None, Some(sid("new"))), host.fork(&source, None, Some(sid("new"))));
    let codes: Vec<_> = [one, two].into_iter().filter_map(Result::err).map(|error| error.code()).collect();
    assert_eq!(codes, ["SESSION_ALREADY_EXISTS"]);
    runtime.shutdown().await;
    assert_eq!(host.fork(&sid("r"), None, None).await.unwrap_err().code(), "DRAINING");
}

async fn a_fork_is_listed_nowhere_and_can_be_played(world: &World) {
    world.root("r");
    world.create(&Author::listed("told", "r"));
    let runtime = world.runtime().await;
    let desk = runtime.root("worker", "desk").await.unwrap();
    desk.send("hello").await.unwrap();
    desk.quiescent().await.unwrap();
    let fork = runtime.fork(desk.id(), None, Some(sid("fork"))).await.unwrap();
    let deep = runtime.fork(&fork.id, None, Some(sid("deep"))).await.unwrap();
    let other = runtime.fork(&sid("told"), None, Some(sid("other"))).await.unwrap();
    let listed = async |parent: Option<&greenroom::SessionId>| {
        let listing = runtime.host().list(parent, Page::default(), false, CancellationToken::new()).await.unwrap();
        listing.entries.into_iter().map(|entry| entry.listed().map(|listed| (listed.id.clone(), listed.has_children)).unwrap()).collect::<Vec<_>>()
    };
    let playing = [fork.id.clone(), deep.id.clone(), other.id.clone()].map(Publication::stored);
    let mut sessions = Vec::new();
    for publication in playing {
        sessions.push(published(&runtime, publication).await);
        // Live or not: nobody's child.
        assert_eq!(listed(Some(desk.id())).await, []);
        assert_eq!(listed(Some(&fork.id)).await, []);
        assert_eq!(listed(Some(&sid("r"))).await, [(sid("told"), false)]);
    }
    // It goes on where the source was cut: the model sees what came before, and the turns are counted on.
    let turn = play(&sessions[0], "and now").await;
    assert_eq!(turn[0].body, Body::TurnStart { turn: 2, message: mid("and now"), attempt: 1 });
    assert_eq!(sessions[0].messages().unwrap().len(), 4);
    sessions[0].flush().await.unwrap();
    assert_eq!(runtime.host().load(&fork.id).await.unwrap().events.len() as u64, sessions[0].head().unwrap().next_seq);
    for session in &sessions {
        session.end().await.unwrap();
    }
    // Nobody would know how to run it.
    assert_eq!(runtime.resume(&fork.id).await.unwrap_err().code(), "NOT_A_ROOT");
    drop(desk);
    runtime.shutdown().await;
    sound(world);
}

async fn a_fork_of_what_somebody_is_playing_has_what_is_durable(world: &World) {
    let runtime = world.runtime().await;
    let session = published(&runtime, Publication::seeded(NewSession::root(sid("s")), Vec::new())).await;
    let heard = |text: &str| Body::user_message(&Message::turn(text, text, Source::Host, 0).unwrap());
    session.append(heard("a")).unwrap();
    session.flush().await.unwrap();
    let durable = events(world, "s");
    // A write stands still: the host sees what is on disk, the handle waits for what it was told to put.
    let pause = world.watch.pause("s", Call::Commit, 1);
    let put = session.append(heard("b")).unwrap();
    pause.reached().await;
    let source = sid("s");
    let early = runtime.fork(&source, None, Some(sid("early")));
    let open = async {
        // The fork's creation is written after what stands still.
        while world.watch.count("s", Call::Events) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(runtime.fork(&sid("s"), Some(put.seq), None).await.unwrap_err().code(), "INVALID_BOUNDARY");
        pause.open();
    };
    let (early, ()) = tokio::join!(early, open);
    assert_eq!(early.unwrap().seed_length, durable.len() as u64);
    let own = session.fork(Some(put.seq), Some(sid("own"))).await.unwrap();
    assert_eq!((own.seed_length, &events(world, "own")[durable.len()]), (put.seq + 1, &put));
    runtime.shutdown().await;
}
