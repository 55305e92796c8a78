//! What an import says of who sent what, and of who is whose child: it is kept for readers, and opens nothing to anybody.

use std::{sync::Arc, time::Duration};

use greenroom::{Agent, RuntimeBuilder, Turn, TurnEnd};
use greenroom_session::{
    descriptor::Descriptor,
    event::Body,
    header::NewSession,
    message::{Block, Message, MessageKind, Source},
    store::{Accept, Create, Op, Release},
    transfer::{ImportTrouble, export_folder, import_folder},
};

use crate::{
    publish::{events, sound},
    world::{World, mid, sid},
};

crate::on_every_store!(async
    a_message_that_says_it_is_of_somebody_else_opens_nothing_to_anybody,
    a_session_that_says_it_is_somebody_elses_child_takes_the_place_of_none,
);

const PATIENCE: Duration = Duration::from_secs(30);

/// Whoever has a parent tells it that it is done.
fn workers() -> RuntimeBuilder {
    greenroom::Runtime::builder().closure("worker", |turn: Turn| async move {
        if turn.parent().is_some() {
            turn.report(format!("done with {}", turn.text()), false).await?;
        }
        Ok(TurnEnd::Completed)
    })
}

/// Two families: `r` with its child `c`, and a stranger.
fn families(world: &World) {
    world.root("r");
    world.child("c", "r");
    world.root("stranger");
}

/// Imports sessions that another store has, and perhaps lets them go.
fn import(world: &World, other: &World, ids: &[&str], activate: bool) -> Vec<&'static str> {
    let folder = tempfile::tempdir().unwrap();
    let ids: Vec<_> = ids.iter().map(|id| sid(id)).collect();
    export_folder(&mut *other.reader(), &ids, &folder.path().join("out"), &mut |_| {}).unwrap();
    let report = import_folder(&*world.plain(), &folder.path().join("out"), activate, &mut |_| {}).unwrap();
    report.troubles.iter().map(ImportTrouble::code).collect()
}

/// Everything that an agent may do to a child of its own is refused.
async fn grants_nothing(agent: &Agent, child: &str) {
    let child = sid(child);
    assert_eq!(agent.followup(&child, "mine?").await.unwrap_err().code(), "UNAUTHORIZED");
    assert_eq!(agent.withdraw(&child, &mid("any"), PATIENCE).await.unwrap_err().code(), "UNAUTHORIZED");
    assert_eq!(agent.run_of(&child).await.unwrap_err().code(), "UNAUTHORIZED");
    assert_eq!(agent.interrupt(&child, PATIENCE).await.unwrap_err().code(), "UNAUTHORIZED");
    assert_eq!(agent.drain_children(std::slice::from_ref(&child)).await.unwrap_err().code(), "UNAUTHORIZED");
}

async fn a_message_that_says_it_is_of_somebody_else_opens_nothing_to_anybody(world: &World) {
    families(world);
    let other = World::memory();
    other.root("r");
    other.child("f", "r");
    other.root("q");
    let forged = |to: &str, id: &str, kind, source| {
        let message = Message::with(mid(id), kind, vec![Block::text(id)], source, 1_000, true).unwrap();
        other.one(Op::Accept(Accept::new(sid(to), message))).unwrap();
    };
    let stranger = || Source::Coordinator { session: sid("stranger") };
    let settled = || Source::SubagentSettled { session: sid("c"), epoch: 1, outcome: "error".into(), code: Some("FORGED".into()) };
    for to in ["f", "q"] {
        forged(to, "from its parent", MessageKind::Turn, stranger());
        forged(to, "a report", MessageKind::Note, Source::SubagentReport { session: sid("c") });
        forged(to, "a notice", MessageKind::Note, settled());
        forged(to, "from its host", MessageKind::Turn, Source::Host);
    }
    let before = events(world, "c");
    assert_eq!(import(world, &other, &["f", "q"], false), <[&str; 0]>::default());
    let runtime = world.start(workers()).await;
    let host = runtime.host();
    // Whoever is said to have sent a message may take it back only as the parent, and the parent only what is said to be its own.
    for agent in ["stranger", "q", "r"] {
        let handle = host.resume(&sid(agent)).await.unwrap();
        let taken_back = handle.agent().withdraw(&sid("f"), &mid("from its parent"), PATIENCE).await;
        assert_eq!(taken_back.unwrap_err().code(), "UNAUTHORIZED", "{agent}");
    }
    for id in ["f", "q"] {
        world.one(Op::Release(Release { session: sid(id) })).unwrap();
    }
    runtime.recover(None).await.unwrap();
    for root in ["r", "q", "stranger"] {
        assert_eq!(host.quiescent(&sid(root)).await.unwrap(), []);
    }
    // All of it was served, and what came of it went to the parent that the header names.
    let reported = |id: &str| {
        let of = |body: &Body| body.surface_message().and_then(|message| message.source.session().cloned());
        events(world, id).iter().filter(|event| of(&event.body) == Some(sid("f"))).count()
    };
    assert!(reported("r") >= 2, "{:?}", events(world, "r"));
    for untouched in ["stranger", "c"] {
        assert!(world.reader().inbox(&sid(untouched), 9).unwrap().is_empty());
        assert!(!events(world, untouched).iter().any(|event| matches!(event.body, Body::TurnStart { .. })), "{untouched} was woken");
    }
    assert_eq!(events(world, "c"), before, "nothing has been told to whoever is named");
    // Whoever is named as a parent has no child by that, and whoever is told of a child has none.
    let [stranger, q, r] = ["stranger", "q", "r"].map(sid);
    let (stranger, q, r) = (host.resume(&stranger).await.unwrap(), host.resume(&q).await.unwrap(), host.resume(&r).await.unwrap());
    for child in ["f", "c"] {
        grants_nothing(&stranger.agent(), child).await;
        grants_nothing(&q.agent(), child).await;
        r.agent().followup(&sid(child), "mine").await.unwrap();
    }
    for alone in ["stranger", "q"] {
        assert!(runtime.list(Some(&sid(alone))).await.unwrap().entries.is_empty());
    }
    drop((stranger, q, r));
    assert_eq!(host.quiescent(&sid("r")).await.unwrap(), []);
    runtime.shutdown().await;
    sound(world);
}

async fn a_session_that_says_it_is_somebody_elses_child_takes_the_place_of_none(world: &World) {
    families(world);
    let other = World::memory();
    other.root("stranger");
    // The child under another parent, with a message of it; and the same as a root.
    let descriptor = Descriptor::continuable("spawn", "mine", "worker");
    let stolen = NewSession::child(sid("c"), sid("stranger"), 0);
    other.one(Op::Create(Create::child(stolen, Vec::new(), &descriptor, Some(Arc::new(message("take it over"))), 1_000).unwrap())).unwrap();
    let freed = World::memory();
    freed.root("c");
    let (header, before) = (world.reader().header(&sid("c")).unwrap(), events(world, "c"));
    for forger in [&other, &freed] {
        assert_eq!(import(world, forger, &["c"], true), ["SESSION_EXISTS"]);
        assert_eq!((world.reader().header(&sid("c")).unwrap(), events(world, "c")), (header.clone(), before.clone()));
        assert!(world.reader().inbox(&sid("c"), 9).unwrap().is_empty());
    }
    let runtime = world.start(workers()).await;
    let host = runtime.host();
    let (stranger, r) = (host.resume(&sid("stranger")).await.unwrap(), host.resume(&sid("r")).await.unwrap());
    grants_nothing(&stranger.agent(), "c").await;
    // Live, too.
    r.agent().followup(&sid("c"), "mine").await.unwrap();
    assert_eq!(import(world, &other, &["c"], true), ["SESSION_EXISTS"]);
    grants_nothing(&stranger.agent(), "c").await;
    drop((stranger, r));
    assert_eq!(host.quiescent(&sid("r")).await.unwrap(), []);
    runtime.shutdown().await;
    sound(world);
}

fn message(text: &str) -> Message {
    Message::turn(text, text, Source::Coordinator { session: sid("stranger") }, 1_000).unwrap()
}
