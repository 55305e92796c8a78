//! Sessions that a host plays itself: their birth, whom they collide with, what they write, who else may touch them, and their end.

use std::time::Duration;

use greenroom::{
    Occurrence, Publication, PublishedSession, Runtime,
    actors::{catalog::Entry, error::PublishedError, host::NewRoot, query::Page},
};
use greenroom_session::{
    check::{Seen, Severity, check},
    compact::{COMPACTION_INTERRUPTED, Summary},
    event::{Body, EpochEnd, Event, Opaque, Role, SurfaceMessage, TurnEnd},
    header::NewSession,
    id::MessageId,
    message::{Block, Message, Source, text_of},
    store::{Accept, Close, Op, Remove},
};
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio_util::sync::CancellationToken;

use crate::{
    author::{Author, descriptor},
    watched::{Call, Fault},
    world::{World, mid, one, sid},
};

crate::on_every_store!(
    async it_is_durable_from_its_birth_and_running_until_its_end,
    what_is_put_has_its_place_at_once_and_is_durable_after_a_flush,
    what_cannot_follow_is_refused_and_changes_nothing,
    whoever_has_it_already_keeps_it,
    what_is_stored_is_gone_on_with_if_it_begins_the_same,
    nobody_else_plays_it,
    a_handle_that_is_let_go_of_ends_it,
    a_shutdown_ends_children_first,
    after_its_end_everything_is_refused_and_a_stale_handle_ends_nothing,
    a_flush_tells_the_first_failure_and_what_is_on_disk_is_published_again,
    a_turn_begins_with_a_message_that_has_had_none,
    subscribers_hear_of_it_as_of_any_live_session,
    a_seed_is_marked_once,
    a_compaction_takes_the_place_of_messages,
);

const PATIENCE: Duration = Duration::from_secs(30);

fn root(id: &str) -> Publication {
    Publication::root(sid(id), NewRoot::new("worker", format!("root {id}")).opened)
}

fn child(id: &str, parent: &str) -> Publication {
    Publication::child(NewSession::child(sid(id), sid(parent), 0), descriptor(&format!("child {id}")))
}

pub(crate) async fn published(runtime: &Runtime, publication: Publication) -> PublishedSession {
    runtime.publish_session(publication).await.unwrap()
}

fn events(world: &World, id: &str) -> Vec<Event> {
    world.reader().events(&sid(id), 0, usize::MAX).unwrap()
}

pub(crate) fn types(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| event.body.type_name().to_owned()).collect()
}

fn said(turn: u64, step: u32, text: &str) -> Body {
    let source = Source::Agent { name: "host".into() };
    let message = SurfaceMessage { id: mid(text), role: Role::Assistant, content: vec![Block::text(text)], source };
    Body::AssistantMessage { turn, step, message, usage: None }
}

fn heard(text: &str) -> Body {
    Body::user_message(&Message::turn(text, text, Source::Host, 0).unwrap())
}

fn completed(turn: u64) -> Body {
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
async fn listed(runtime: &Runtime, parent: &str) -> Vec<String> {
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

async fn until(occurrences: &mut Receiver<Occurrence>, wanted: impl Fn(&Occurrence) -> bool) {
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

async fn what_is_put_has_its_place_at_once_and_is_durable_after_a_flush(world: &World) {
    let runtime = world.runtime().await;
    let session = published(&runtime, root("r")).await;
    let mut put = play(&session, "one").await;
    put.push(session.append(heard("between turns")).unwrap());
    put.push(session.append(Body::Opaque(Opaque { name: "desk/tidied".into(), data: json!({"by": "host"}) })).unwrap());
    let replaced = session.replace(heard("short"), 4, 9).unwrap();
    assert_eq!(replaced.source_event_seqs, Some(vec![4, 6, 9]));
    put.push(replaced);
    let seen: Vec<_> = session.messages().unwrap().iter().map(|message| text_of(&message.content)).collect();
    assert_eq!(seen, ["short"]);
    // Theirs to change: the log is not hurt.
    let last = put.len() - 1;
    let mut mine = put[last].clone();
    mine.body = completed(7);
    session.flush().await.unwrap();
    let stored = events(world, "r");
    let kept: Vec<_> = stored[3..].iter().filter(|event| event.seq != 4).cloned().collect();
    assert_eq!(kept, put, "but for the message of the turn, which the host did not write itself");
    assert_eq!(stored.iter().map(|event| event.seq).collect::<Vec<_>>(), (0..stored.len() as u64).collect::<Vec<_>>());
    assert!(stored.iter().all(|event| event.ignorable == (event.body.type_name() == "desk/tidied")));
    session.end().await.unwrap();
    runtime.shutdown().await;
    let log = world.reader().load(&sid("r")).unwrap();
    assert_eq!(log.events[..stored.len()], stored, "whoever loads it finds what was flushed");
    assert_eq!(log.fold.unknown(), None, "what only its host knows keeps nobody from going on");
    sound(world);
}

async fn what_cannot_follow_is_refused_and_changes_nothing(world: &World) {
    let runtime = world.runtime().await;
    let session = published(&runtime, root("r")).await;
    session.append(heard("a")).unwrap();
    session.append(heard("b")).unwrap();
    session.flush().await.unwrap();
    let before = (session.head().unwrap(), session.messages().unwrap(), events(world, "r"));
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let opaque = |name: &str, data| Body::Opaque(Opaque { name: name.into(), data });
    let message = || mid("m");
    for (body, code) in [
        // What is not the host's to write.
        (Body::EndSeed {}, "EVENT_REFUSED"),
        (Body::RootOpened(NewRoot::new("worker", "again").opened), "EVENT_REFUSED"),
        (Body::Descriptor(json!({"version": 1})), "EVENT_REFUSED"),
        (Body::ActivationStart { epoch: 2 }, "EVENT_REFUSED"),
        (Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled }, "EVENT_REFUSED"),
        (Body::TurnStart { turn: 1, message: message(), attempt: 1 }, "EVENT_REFUSED"),
        (Body::MessageWithdrawn { message: message(), by: "host".into() }, "EVENT_REFUSED"),
        (Body::ControlAnswered { control: message(), op: "interrupt".into(), outcome: "done".into() }, "EVENT_REFUSED"),
        (Body::NoteJoined { turn: 1, notes: vec![message()] }, "EVENT_REFUSED"),
        (Body::CompactStart { turn: None }, "EVENT_REFUSED"),
        (Body::CompactEnd { turn: None, error: None }, "EVENT_REFUSED"),
        (opaque("turn/start", json!({"turn": 1, "message": "m", "attempt": 1})), "EVENT_REFUSED"),
        (opaque("session/end-seed", json!({})), "EVENT_REFUSED"),
        // What does not follow.
        (Body::StepStart { turn: 1, step: 1 }, "EVENT_REFUSED"),
        (said(1, 1, "too early"), "EVENT_REFUSED"),
        (completed(1), "EVENT_REFUSED"),
        // What no log takes.
        (opaque("desk/deep", deep), "EVENT_TOO_DEEP"),
        (opaque("desk/large", json!("x".repeat(18 * 1024 * 1024))), "EVENT_TOO_LARGE"),
    ] {
        let error = session.append(body.clone()).unwrap_err();
        assert_eq!(error.code(), code, "{} {error}", body.type_name());
        assert!(matches!(error, PublishedError::Refused { .. }));
    }
    for (body, start, end) in [(heard("x"), 2, 3), (heard("x"), 4, 3), (heard("x"), 3, 9), (completed(1), 3, 4)] {
        assert_eq!(session.replace(body, start, end).unwrap_err().code(), "EVENT_REFUSED", "{start} {end}");
    }
    session.flush().await.unwrap();
    assert_eq!((session.head().unwrap(), session.messages().unwrap(), events(world, "r")), before);
    session.append(heard("c")).unwrap();
    session.end().await.unwrap();
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

async fn a_flush_tells_the_first_failure_and_what_is_on_disk_is_published_again(world: &World) {
    let runtime = world.runtime().await;
    let session = published(&runtime, root("r")).await;
    let neighbour = published(&runtime, root("n")).await;
    session.append(heard("kept")).unwrap();
    session.flush().await.unwrap();
    let before = events(world, "r");
    world.watch.fail("r", Call::Commit, 1, Fault::Outage);
    session.append(heard("lost")).unwrap();
    let error = session.flush().await.unwrap_err();
    assert_eq!(error.code(), "NOT_DELIVERED", "{error}");
    // The first failure, whatever comes after it.
    assert_eq!(session.append(heard("later")).unwrap_err().code(), "NOT_DELIVERED");
    assert_eq!(session.flush().await.unwrap_err().code(), "NOT_DELIVERED");
    assert_eq!(session.end().await.unwrap_err().code(), "NOT_DELIVERED");
    neighbour.append(heard("unhurt")).unwrap();
    neighbour.flush().await.unwrap();
    assert_eq!(events(world, "r"), before);
    let again = published(&runtime, root("r")).await;
    assert_eq!(again.messages().unwrap().len(), 1, "what was flushed");
    drop(session);
    again.append(heard("more")).unwrap();
    again.end().await.unwrap();
    assert_eq!(types(&events(world, "r"))[2..], ["activation/start", "user/message", "activation/end", "activation/start", "user/message", "activation/end"]);
    // One that nobody publishes again does not seem to run for ever.
    world.watch.fail("n", Call::Commit, 1, Fault::Outage);
    neighbour.append(heard("lost")).unwrap();
    neighbour.flush().await.unwrap_err();
    let wait = async {
        while !world.reader().leases(None).unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("somebody lets go of it");
    runtime.shutdown().await;
    sound(world);
}

async fn a_turn_begins_with_a_message_that_has_had_none(world: &World) {
    let runtime = world.runtime().await;
    let session = published(&runtime, root("r")).await;
    world.accept("r", "another");
    session.begin_turn("one", Some(mid("one"))).await.unwrap();
    for (text, id, code) in [("two", None, "EVENT_REFUSED"), ("one", Some(mid("one")), "EVENT_REFUSED")] {
        assert_eq!(session.begin_turn(text, id).await.unwrap_err().code(), code, "a turn is open");
    }
    session.append(completed(1)).unwrap();
    let cases: [(&str, MessageId, &str); 3] =
        [("one", mid("one"), "EVENT_REFUSED"), ("other words", mid("one"), "MESSAGE_ID_CONFLICT"), (&"x".repeat(17 << 20), mid("large"), "MESSAGE_TOO_LARGE")];
    for (text, id, code) in cases {
        assert_eq!(session.begin_turn(text, Some(id)).await.unwrap_err().code(), code);
    }
    // A refusal spoils nothing, and leaves nothing behind for somebody else to serve.
    play(&session, "two").await;
    session.end().await.unwrap();
    let waiting: Vec<_> = world.reader().inbox(&sid("r"), 9).unwrap().into_iter().map(|record| record.message.id.clone()).collect();
    assert_eq!(waiting, [mid("another")]);
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

async fn a_compaction_takes_the_place_of_messages(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let session = published(&runtime, child("c", "r")).await;
    play(&session, "a question of some length").await;
    play(&session, "another question").await;
    let seen = || session.messages().unwrap().iter().map(|message| text_of(&message.content)).collect::<Vec<_>>();
    let all = seen();
    let plan = session.plan_compaction(4, 6).unwrap();
    // One at a time, and no turn meanwhile; what no model sees may come.
    assert_eq!(session.plan_compaction(4, 6).unwrap_err().code(), "COMPACTION_BUSY");
    assert_eq!(session.begin_turn("too early", None).await.unwrap_err().code(), "COMPACTION_BUSY");
    session.append(Body::Opaque(Opaque { name: "desk/tidied".into(), data: json!({}) })).unwrap();
    assert_eq!(session.compact(&plan, Summary::new(mid("s"), "x".repeat(100))).unwrap_err().code(), "COMPACTION_NOT_SMALLER");
    let summary = session.compact(&plan, Summary::new(mid("s"), "short")).unwrap();
    assert_eq!(summary.source_event_seqs, Some(vec![4, 6]));
    assert_eq!(seen(), ["short", &all[2], &all[3]]);
    // One whose messages are not what they were is refused, and given up.
    let plan = session.plan_compaction(10, 12).unwrap();
    session.append(heard("more")).unwrap();
    assert_eq!(session.compact(&plan, Summary::new(mid("t"), "short")).unwrap_err().code(), "COMPACTION_SURFACE_CHANGED");
    session.give_up_compaction("TOO_LATE").unwrap();
    assert_eq!(session.give_up_compaction("TOO_LATE").unwrap_err().code(), "COMPACTION_NOT_BEGUN");
    assert_eq!(session.plan_compaction(0, 1).unwrap_err().code(), "COMPACTION_RANGE");
    let turn = session.begin_turn("a last one", Some(mid("last"))).await.unwrap();
    assert_eq!(session.plan_compaction(turn.seq + 1, turn.seq + 1).unwrap_err().code(), "COMPACTION_UNFINISHED_TURN");
    // What its end finds open is closed.
    session.plan_compaction(10, 12).unwrap();
    session.end().await.unwrap();
    let stored = events(world, "c");
    let end = &stored[stored.len() - 3..];
    assert_eq!(types(end), ["compact/end", "turn/end", "activation/end"]);
    assert_eq!(end[0].body, Body::CompactEnd { turn: Some(3), error: Some(COMPACTION_INTERRUPTED.into()) });
    assert_eq!(listed(&runtime, "r").await, ["c complete"], "its descriptor is where it was");
    runtime.shutdown().await;
    assert!(!world.reader().load(&sid("c")).unwrap().fold.head().has_work());
    sound(world);
}
