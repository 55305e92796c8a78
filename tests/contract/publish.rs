//! Sessions that a host plays itself: their birth, whom they collide with, who else may touch them, and their end.

use std::time::Duration;

use greenroom::{
    Occurrence, Publication, PublishedSession, Runtime,
    actors::{catalog::Entry, host::NewRoot, query::Page},
};
use greenroom_session::{
    check::{Seen, Severity, check},
    event::{Body, EpochEnd, Event, Role, SurfaceMessage, TurnEnd},
    header::NewSession,
    message::{Block, Message, Source},
    store::{Accept, Close, Op, Remove},
};
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio_util::sync::CancellationToken;

use crate::{
    author::{Author, descriptor},
    watched::Call,
    world::{World, mid, one, sid},
};

crate::on_every_store!(
    async it_is_durable_from_its_birth_and_running_until_its_end,
    whoever_has_it_already_keeps_it,
    what_is_stored_is_gone_on_with_if_it_begins_the_same,
    nobody_else_plays_it,
    a_handle_that_is_let_go_of_ends_it,
    a_shutdown_ends_children_first,
    after_its_end_everything_is_refused_and_a_stale_handle_ends_nothing,
    subscribers_hear_of_it_as_of_any_live_session,
    a_seed_is_marked_once,
);

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn root(id: &str) -> Publication {
    Publication::root(sid(id), NewRoot::new("worker", format!("root {id}")).opened)
}

pub(crate) fn child(id: &str, parent: &str) -> Publication {
    Publication::child(NewSession::child(sid(id), sid(parent), 0), descriptor(&format!("child {id}")))
}

pub(crate) async fn published(runtime: &Runtime, publication: Publication) -> PublishedSession {
    runtime.publish_session(publication).await.unwrap()
}

pub(crate) fn events(world: &World, id: &str) -> Vec<Event> {
    world.reader().events(&sid(id), 0, usize::MAX).unwrap()
}

pub(crate) fn types(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| event.body.type_name().to_owned()).collect()
}

pub(crate) fn said(turn: u64, step: u32, text: &str) -> Body {
    let source = Source::Agent { name: "host".into() };
    let message = SurfaceMessage { id: mid(text), role: Role::Assistant, content: vec![Block::text(text)], source };
    Body::AssistantMessage { turn, step, message, usage: None, stop: None }
}

pub(crate) fn heard(text: &str) -> Body {
    Body::user_message(&Message::turn(text, text, Source::Host, 0).unwrap())
}

pub(crate) fn completed(turn: u64) -> Body {
    Body::TurnEnd { turn, reason: TurnEnd::Completed }
}

/// Plays a whole turn and returns its events.
pub(crate) async fn play(session: &PublishedSession, text: &str) -> Vec<Event> {
    let begun = session.begin_turn(text, Some(mid(text))).await.unwrap();
    let Body::TurnStart { turn, .. } = begun.body else { panic!("a turn begins with its start") };
    let step = [Body::StepStart { turn, step: 1 }, said(turn, 1, &format!("re: {text}")), Body::StepEnd { turn, step: 1, cut: None }, completed(turn)];
    [begun].into_iter().chain(step.map(|body| session.append(body).unwrap())).collect()
}

/// Lists a parent's children, each as `id status` or `id reason`.
pub(crate) async fn listed(runtime: &Runtime, parent: &str) -> Vec<String> {
    let listing = runtime.host().list(Some(&sid(parent)), Page::default(), false, CancellationToken::new()).await.unwrap();
    let show = |entry: &Entry| match entry {
        Entry::Diagnostic { id, reason } => format!("{id} {}", reason.as_str()),
        Entry::Root(listed) | Entry::Child(listed) => format!("{} {}", listed.id, listed.status.as_str()),
    };
    listing.entries.iter().map(show).collect()
}

/// Looks for damage in the whole store.
pub(crate) fn sound(world: &World) {
    let mut found = Vec::new();
    check(&mut *world.reader(), None, &mut |seen| match seen {
        Seen::Finding(finding) if finding.class.severity() == Severity::Damage => found.push(finding),
        _ => {}
    })
    .unwrap();
    assert!(found.is_empty(), "{found:?}");
}

pub(crate) async fn until(occurrences: &mut Receiver<Occurrence>, wanted: impl Fn(&Occurrence) -> bool) {
    let wait = async { while !wanted(&occurrences.recv().await.unwrap()) {} };
    tokio::time::timeout(PATIENCE, wait).await.expect("what the test waits for does not happen");
}

async fn it_is_durable_from_its_birth_and_running_until_its_end(world: &World) {
    world.root("r");
    world.child("settled", "r");
    let runtime = world.runtime().await;
    let session = published(&runtime, child("played", "r").cwd("/srv/desk")).await;
    // Nothing was flushed, and it is there, for everybody.
    assert_eq!(types(&events(world, "played")), ["subagent/descriptor", "session/end-seed", "activation/start"]);
    let header = world.reader().header(&sid("played")).unwrap().unwrap();
    assert_eq!(*session.header(), header);
    assert_eq!((header.parent.clone(), header.depth, header.cwd.as_deref()), (Some(sid("r")), 1, Some("/srv/desk")));
    assert_eq!(listed(&runtime, "r").await, ["settled complete", "played running"]);
    if let Some(peer) = world.peer() {
        let leases = peer.reader().unwrap().leases(None).unwrap();
        assert_eq!(leases.iter().map(|lease| (lease.session.as_str(), lease.alive)).collect::<Vec<_>>(), [("played", true)]);
    }
    session.end().await.unwrap();
    assert_eq!(listed(&runtime, "r").await, ["settled complete", "played complete"]);
    assert!(world.reader().leases(None).unwrap().is_empty());
    assert_eq!(types(&events(world, "played"))[2..], ["activation/start", "activation/end"]);
    runtime.shutdown().await;
    sound(world);
}

async fn whoever_has_it_already_keeps_it(world: &World) {
    world.root("r");
    world.child("stored", "r");
    let strange = Author::root("strange").raw("weather/changed", &json!({"to": "rain"}));
    world.create(&strange);
    world.root("gone");
    world.one(Op::Remove(Remove { session: sid("gone"), discard: false })).unwrap();
    let before: Vec<_> = ["r", "stored", "strange"].map(|id| events(world, id)).into();
    let runtime = world.runtime().await;
    let same = |id: &str| Publication::root(sid(id), NewRoot::new("worker", format!("root {id}")).opened);
    let kept = runtime.root("worker", "kept").await.unwrap();
    let mine = published(&runtime, root("mine")).await;
    let label = NewRoot::new("worker", "two\nlines").opened;
    let gap = vec![Body::EndSeed {}.at(1, 0)];
    let long = NewSession { seed_length: 2, ..NewSession::root(sid("new")) };
    for (publication, code) in [
        (Publication::stored(kept.id().clone()), "SESSION_LIVE"),
        (Publication::stored(sid("mine")), "SESSION_LIVE"),
        (root("mine"), "SESSION_LIVE"),
        (Publication::stored(sid("nobody")), "SESSION_NOT_FOUND"),
        (same("r").cwd("/elsewhere"), "SESSION_EXISTS"),
        (Publication::root(sid("r"), NewRoot::new("other", "root r").opened), "SESSION_EXISTS"),
        (Publication::seeded(NewSession::root(sid("r")), Vec::new()), "SESSION_EXISTS"),
        (child("stored", "other"), "SESSION_EXISTS"),
        (Publication::child(NewSession::child(sid("stored"), sid("r"), 0), descriptor("another label")), "SESSION_EXISTS"),
        (same("gone"), "SESSION_REMOVED"),
        (same("strange"), "EVENT_UNKNOWN"),
        (Publication::root(sid("new"), label), "INVALID_LABEL"),
        (Publication::seeded(NewSession::root(sid("new")), gap), "EVENT_INVALID"),
        (Publication::seeded(long, vec![heard("a").at(0, 0)]), "EVENT_INVALID"),
        (Publication::seeded(NewSession::root(sid("new")), vec![completed(1).at(0, 0)]), "EVENT_INVALID"),
        (root("new").cwd("here"), "EVENT_INVALID"),
    ] {
        let error = runtime.publish_session(publication.clone()).await.unwrap_err();
        assert_eq!(error.code(), code, "{publication:?}: {error}");
    }
    if let Some(peer) = world.peer() {
        let fence = World::activate(&*peer, "stored", false);
        assert_eq!(runtime.publish_session(child("stored", "r")).await.unwrap_err().code(), "SESSION_HELD");
        let end = Body::ActivationEnd { epoch: 1, reason: EpochEnd::Disposed }.at(3, 0);
        one(&*peer, Op::Close(Close { fence, events: [end].into(), unless_pending: false })).unwrap();
    }
    mine.append(heard("still here")).unwrap();
    mine.flush().await.unwrap();
    // Two at once: one of them has it.
    let (one, two) = tokio::join!(runtime.publish_session(root("new")), runtime.publish_session(root("new")));
    let codes: Vec<_> = [&one, &two].into_iter().filter_map(|result| result.as_ref().err()).map(greenroom::actors::error::PublishError::code).collect();
    assert_eq!(codes, ["SESSION_LIVE"]);
    assert_eq!(types(&events(world, "new")), ["root/opened", "session/end-seed", "activation/start"]);
    let host = runtime.host();
    runtime.shutdown().await;
    assert_eq!(host.publish_session(same("r")).await.unwrap_err().code(), "DRAINING");
    assert_eq!(events(world, "r"), before[0]);
    assert_eq!(events(world, "strange"), before[2]);
    sound(world);
}

async fn what_is_stored_is_gone_on_with_if_it_begins_the_same(world: &World) {
    // Left by somebody who died in a turn; the child was created with its first message.
    world.root("r");
    let message = std::sync::Arc::new(Message::turn("m0", "begin", Source::User, 0).unwrap());
    let create =
        greenroom_session::store::Create::child(NewSession::child(sid("c"), sid("r"), 0), Vec::new(), &descriptor("child c"), Some(message), 1).unwrap();
    world.one(Op::Create(create)).unwrap();
    World::activate(&*world.plain(), "c", true);
    let before = events(world, "c");
    world.close();
    let runtime = world.runtime().await;
    let session = published(&runtime, child("c", "r")).await;
    let stored = events(world, "c");
    assert_eq!(stored[..before.len()], before, "nothing of it is written anew");
    assert_eq!(types(&stored[before.len()..]), ["turn/end", "activation/end", "activation/start"]);
    assert_eq!(stored[before.len()].body, Body::TurnEnd { turn: 1, reason: TurnEnd::Interrupted });
    assert_eq!((session.epoch(), session.head().unwrap().retry.map(|retry| retry.message)), (2, Some(mid("m0"))));
    // What was cut off comes first, under its id.
    assert_eq!(session.begin_turn("another", None).await.unwrap_err().code(), "EVENT_REFUSED");
    let again = session.begin_turn("begin", Some(mid("m0"))).await.unwrap();
    assert_eq!(again.body, Body::TurnStart { turn: 2, message: mid("m0"), attempt: 2 });
    session.append(completed(2)).unwrap();
    let next = play(&session, "next").await;
    assert_eq!(next[0].body, Body::TurnStart { turn: 3, message: mid("next"), attempt: 1 });
    session.end().await.unwrap();
    // Once more, now that all is closed: nothing to close, and the numbers go on.
    let session = published(&runtime, Publication::stored(sid("c"))).await;
    let head = session.head().unwrap();
    assert_eq!((head.epoch, head.turns, session.messages().unwrap().len()), (3, 3, 3));
    runtime.shutdown().await;
    assert_eq!(world.reader().load(&sid("c")).unwrap().events.iter().filter(|event| event.body == Body::EndSeed {}).count(), 1);
    sound(world);
}

async fn nobody_else_plays_it(world: &World) {
    let runtime = world.runtime().await;
    let host = runtime.host();
    let parent = runtime.root("worker", "parent").await.unwrap();
    let session = published(&runtime, child("c", parent.id().as_str())).await;
    session.begin_turn("mine", Some(mid("mine"))).await.unwrap();
    let open = events(world, "c");
    let code = |error: Option<&'static str>| assert_eq!(error, Some("NOT_RESUMABLE"));
    code(host.send(&sid("c"), "hello", None).await.err().map(|error| error.code()));
    code(parent.agent().followup(&sid("c"), "hello").await.err().map(|error| error.code()));
    code(host.interrupt(&sid("c"), PATIENCE).await.err().map(|error| error.code()));
    code(parent.agent().interrupt(&sid("c"), PATIENCE).await.err().map(|error| error.code()));
    code(host.withdraw(&sid("c"), &mid("mine"), PATIENCE).await.err().map(|error| error.code()));
    let desk = published(&runtime, root("desk")).await;
    code(host.resume(&sid("desk")).await.err().map(|error| error.code()));
    // Another process leaves a message and a request: both stay where they are.
    let left = Message::turn("left", "from elsewhere", Source::User, 0).unwrap();
    let asked = greenroom_session::message::Control::Interrupt { turn: None };
    let asked = Message::control(asked.id(), asked, 0);
    for message in [left, asked] {
        world.one(Op::Accept(Accept::new(sid("c"), message))).unwrap();
    }
    assert!(!host.recover(None).await.unwrap().contains(&sid("c")));
    assert_eq!(host.quiescent(parent.id()).await.unwrap(), [sid("c")], "what waits there cannot run");
    assert_eq!(events(world, "c"), open, "its turn is still open and nobody has written to it");
    assert_eq!(listed(&runtime, parent.id().as_str()).await, ["c running"]);
    session.append(completed(1)).unwrap();
    // A published session keeps nobody: its parent settles over it.
    let mut occurrences = host.subscribe();
    let id = parent.id().clone();
    drop(parent);
    until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::Ended { session, reason: EpochEnd::Settled, .. } if *session == id)).await;
    assert_eq!(world.reader().inbox(&sid("c"), 9).unwrap().len(), 2);
    session.end().await.unwrap();
    desk.end().await.unwrap();
    // Now it is anybody's, with what waits for it.
    assert!(matches!(events(world, "c")[4].body, Body::UserMessage(ref shown) if shown.id == mid("mine")));
    runtime.recover(None).await.unwrap();
    assert!(host.quiescent(&id).await.unwrap().is_empty());
    assert_eq!(runtime.last_answer(&sid("c")).await.unwrap().as_deref(), Some("from elsewhere"));
    let all = events(world, "c");
    assert!(!all.iter().any(|event| matches!(event.body, Body::TurnEnd { reason: TurnEnd::Interrupted, .. })), "nothing was cut off");
    runtime.shutdown().await;
    sound(world);
}

async fn a_handle_that_is_let_go_of_ends_it(world: &World) {
    let runtime = world.runtime().await;
    let mut occurrences = runtime.subscribe();
    let session = published(&runtime, root("r")).await;
    session.begin_turn("one", None).await.unwrap();
    session.append(Body::StepStart { turn: 1, step: 1 }).unwrap();
    session.append(said(1, 1, "the last word")).unwrap();
    drop(session);
    until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::Ended { .. })).await;
    let stored = events(world, "r");
    assert_eq!(types(&stored[6..]), ["assistant/message", "step/end", "turn/end", "activation/end"]);
    assert_eq!(stored[8].body, Body::TurnEnd { turn: 1, reason: TurnEnd::Aborted { cause: "host".into() } });
    assert!(!world.reader().load(&sid("r")).unwrap().fold.head().has_work(), "an aborted turn is final");
    runtime.shutdown().await;
    sound(world);
}

async fn a_shutdown_ends_children_first(world: &World) {
    let runtime = world.runtime().await;
    let mut occurrences = runtime.subscribe();
    let parent = runtime.root("worker", "parent").await.unwrap();
    let upper = published(&runtime, child("upper", parent.id().as_str())).await;
    let below = Publication::child(NewSession::child(sid("lower"), sid("upper"), 1), descriptor("lower"));
    let lower = published(&runtime, below).await;
    lower.begin_turn("cut off", Some(mid("m"))).await.unwrap();
    runtime.shutdown().await;
    let mut ended = Vec::new();
    while let Ok(occurrence) = occurrences.try_recv() {
        if let Occurrence::Ended { session, reason, .. } = occurrence {
            ended.push((session, reason));
        }
    }
    let expected = [sid("lower"), sid("upper"), parent.id().clone()].map(|id| (id, EpochEnd::Disposed));
    assert_eq!(ended, expected);
    assert_eq!(events(world, "lower")[5].body, Body::TurnEnd { turn: 1, reason: TurnEnd::Disposed }, "its message is served again");
    for (session, code) in [(&upper, "SESSION_NOT_LIVE"), (&lower, "SESSION_NOT_LIVE")] {
        assert_eq!(session.append(heard("late")).unwrap_err().code(), code);
        assert_eq!(session.flush().await.unwrap_err().code(), code);
        assert_eq!(session.end().await.unwrap_err().code(), code);
    }
    assert!(world.reader().leases(None).unwrap().is_empty());
    sound(world);
}

async fn after_its_end_everything_is_refused_and_a_stale_handle_ends_nothing(world: &World) {
    let runtime = world.runtime().await;
    let stale = published(&runtime, root("r")).await;
    stale.end().await.unwrap();
    let later = published(&runtime, root("r")).await;
    let before = events(world, "r");
    let codes = [
        stale.append(heard("late")).unwrap_err().code(),
        stale.replace(heard("late"), 0, 0).unwrap_err().code(),
        stale.begin_turn("late", None).await.unwrap_err().code(),
        stale.messages().unwrap_err().code(),
        stale.head().unwrap_err().code(),
        stale.flush().await.unwrap_err().code(),
        stale.end().await.unwrap_err().code(),
    ];
    assert_eq!(codes, ["SESSION_NOT_LIVE"; 7]);
    assert_eq!(stale.header(), later.header());
    drop(stale);
    later.flush().await.unwrap();
    assert_eq!(events(world, "r"), before);
    assert_eq!(later.append(heard("in time")).unwrap().seq, 5);
    // While the end is on its way to the disk nothing comes after it.
    let pause = world.watch.pause("r", Call::Commit, 2);
    let late = async {
        pause.reached().await;
        let code = later.append(heard("too late")).unwrap_err().code();
        pause.open();
        code
    };
    let (one, two, late) = tokio::join!(later.end(), later.end(), late);
    assert_eq!(late, "SESSION_NOT_LIVE");
    assert!(one.is_ok() != two.is_ok(), "it ends once");
    assert_eq!(types(&events(world, "r"))[5..], ["user/message", "activation/end"]);
    runtime.shutdown().await;
    sound(world);
}

async fn subscribers_hear_of_it_as_of_any_live_session(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let mut occurrences = runtime.subscribe();
    let session = published(&runtime, child("c", "r")).await;
    play(&session, "one").await;
    session.end().await.unwrap();
    let mut heard = Vec::new();
    while let Ok(occurrence) = occurrences.try_recv() {
        heard.push(match occurrence {
            Occurrence::Created { parent, label, .. } => format!("created below {parent}: {}", label.unwrap_or_default()),
            Occurrence::Activated { epoch, .. } => format!("activated {epoch}"),
            Occurrence::TurnStarted { turn, message, attempt, .. } => format!("turn {turn} of {message}, attempt {attempt}"),
            Occurrence::TurnEnded { turn, reason, .. } => format!("turn {turn} {}", reason.as_str()),
            Occurrence::Ended { epoch, reason, .. } => format!("ended {epoch} {reason:?}"),
            other => format!("{other:?}"),
        });
    }
    assert_eq!(heard, ["created below r: child c", "activated 1", "turn 1 of one, attempt 1", "turn 1 completed", "ended 1 Disposed"]);
    runtime.shutdown().await;
}

async fn a_seed_is_marked_once(world: &World) {
    let runtime = world.runtime().await;
    let inherited = NewSession { seed_length: 1, ..NewSession::root(sid("inherited")) };
    for (session, seed, expected) in [
        (NewSession::root(sid("empty")), vec![], vec!["session/end-seed"]),
        (NewSession::root(sid("marked")), vec![Body::EndSeed {}.at(0, 5)], vec!["session/end-seed"]),
        (inherited, vec![heard("a").at(0, 5), heard("b").at(1, 5)], vec!["user/message", "user/message", "session/end-seed"]),
    ] {
        let publication = Publication::seeded(session.clone(), seed);
        for epoch in [1, 2] {
            let published = published(&runtime, publication.clone()).await;
            assert_eq!((published.epoch(), published.header().seed_length), (epoch, session.seed_length));
            published.end().await.unwrap();
        }
        assert_eq!(types(&events(world, session.id.as_str()))[..expected.len()], expected);
        assert_eq!(types(&events(world, session.id.as_str()))[expected.len()..], ["activation/start", "activation/end", "activation/start", "activation/end"]);
    }
    runtime.shutdown().await;
}
