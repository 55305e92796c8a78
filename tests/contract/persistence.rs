//! What every store keeps of a session, as it was given, and what it makes of what a crash has left.

use std::sync::Arc;

use greenroom_session::{
    descriptor::Descriptor,
    digest::StoreDigest,
    event::{Body, Event, Role, SurfaceMessage, TurnEnd},
    header::NewSession,
    limits::MAX_INTEGER,
    line::{Line, write_line},
    message::{Block, InboxRecord, Message, Source, Tombstone},
    recover::begin_epoch,
    store::{Append, Close, Create, Done, Fence, Op, Open, Refused, Store},
    transfer::{export_folder, import_folder},
};
use serde_json::json;

use crate::{
    author::descriptor,
    world::{Kind, World, mid, one, sid},
};

crate::on_every_store!(
    what_was_created_and_appended_is_there_byte_for_byte,
    a_creation_that_is_refused_leaves_its_id_free,
    a_creation_again_is_the_same_one_only_with_the_same_folder_seed_and_message,
    what_a_crash_left_open_is_closed_by_the_next_epoch_and_by_no_reading,
    a_suffix_of_a_log_is_exactly_that,
    a_digest_changes_with_what_is_true_and_with_nothing_else,
    an_append_without_events_changes_nothing_and_one_without_an_epoch_is_refused,
    an_inherited_prefix_is_written_once_and_a_resumed_session_goes_on_behind_it,
);

/// Appends events as they come next, and takes these messages.
fn append(store: &dyn Store, fence: &Fence, bodies: Vec<Body>) -> Result<Done, Refused> {
    let seq = next_seq(store, fence.session.as_str());
    let events: Vec<Event> = bodies.into_iter().zip(seq..).map(|(body, seq)| body.at(seq, 3_000)).collect();
    one(store, Op::Append(Append { fence: fence.clone(), events: events.into(), take: vec![] }))
}

fn close(store: &dyn Store, fence: &Fence) {
    let end = Body::ActivationEnd { epoch: fence.epoch, reason: greenroom_session::event::EpochEnd::Disposed };
    let events = [end.at(next_seq(store, fence.session.as_str()), 4_000)].into();
    one(store, Op::Close(Close { fence: fence.clone(), events, unless_pending: false })).unwrap();
}

fn next_seq(store: &dyn Store, id: &str) -> u64 {
    store.reader().unwrap().load(&sid(id)).unwrap().fold.head().next_seq
}

pub(crate) fn types(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.body.type_name()).collect()
}

fn exported(world: &World, id: &str) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut keep = |line: &[u8]| {
        lines.push(line.to_vec());
        Ok(())
    };
    world.reader().export(&sid(id), &mut keep).unwrap();
    lines
}

/// A child with everything that a header can say, and a prefix from its parent.
fn full_child(world: &World) -> Create {
    world.root("r");
    let inherited = world.reader().load(&sid("r")).unwrap().events;
    let mut about = Descriptor::continuable("fork", "grüße \u{1f600}", "worker");
    about.params = Some(json!({"deep": [1, 2.5, {"a": null}], "text": "\u{0}\"\\\u{2028}"}));
    let mut session = NewSession::child(sid("c"), sid("r"), 0);
    session.cwd = Some("/srv/Füße".into());
    Create::child(session, inherited, &about, None, 1_500).unwrap()
}

fn what_was_created_and_appended_is_there_byte_for_byte(world: &World) {
    let create = full_child(world);
    let mut events = create.events.to_vec();
    let session = create.session.clone();
    world.one(Op::Create(create)).unwrap();
    world.accept("c", "m0");
    let fence = World::activate(&*world.plain(), "c", true);
    let stranger = Body::decode("weather/changed", r#"{"wind":"north","deep":[1,2.5,{"a":null}],"none":""}"#).unwrap();
    let seq = next_seq(&*world.plain(), "c");
    let odd = Event { ignorable: true, ..stranger.at(seq, MAX_INTEGER) };
    world.one(Op::Append(Append { fence: fence.clone(), events: [odd.clone()].into(), take: vec![] })).unwrap();
    append(&*world.plain(), &fence, vec![Body::TurnEnd { turn: 1, reason: TurnEnd::Completed }]).unwrap();
    world.accept("c", "m1");
    world.close();

    let log = world.reader().load(&sid("c")).unwrap();
    assert_eq!(**log.fold.header(), session.at(log.fold.header().created_at));
    assert_eq!((log.fold.header().seed_length, log.fold.header().depth, log.fold.header().cwd.as_deref()), (2, 1, Some("/srv/Füße")));
    assert_eq!(log.events[..events.len()], events[..]);
    assert_eq!(log.events[usize::try_from(seq).unwrap()], odd);
    events = log.events;
    let waits = world.reader().inbox(&sid("c"), 9).unwrap();
    let gone = Message::turn("m0", "text of m0", Source::User, 1_000).unwrap();
    let mut expected = vec![Line::Header((**log.fold.header()).clone())];
    expected.extend(events.into_iter().map(Line::Event));
    expected.push(Line::Taken(Tombstone::of(&InboxRecord { order: 0, held: false, message: Arc::new(gone) })));
    expected.extend(waits.into_iter().map(Line::Message));
    let expected: Vec<Vec<u8>> = expected.iter().map(|line| write_line(&sid("c"), line).unwrap()).collect();
    assert_eq!(exported(world, "c"), expected);

    // And so it goes from here into every other kind of store.
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    export_folder(&mut *world.reader(), &[sid("r"), sid("c")], &out, &mut |_| {}).unwrap();
    for other in [World::memory(), World::sqlite(), World::jsonl()] {
        assert_eq!(import_folder(&*other.plain(), &out, true, &mut |_| {}).unwrap().imported, 2);
        other.close();
        assert_eq!(exported(&other, "c"), expected, "{:?}", other.kind);
    }
}

fn a_creation_that_is_refused_leaves_its_id_free(world: &World) {
    let good = full_child(world);
    let with = |change: fn(&mut Create)| {
        let mut create = good.clone();
        change(&mut create);
        create
    };
    let cases = [
        ("a time that JSON does not keep", with(|create| create.events = [Body::EndSeed {}.at(0, MAX_INTEGER + 1)].into())),
        ("a gap in its seed", with(|create| create.events = [Body::EndSeed {}.at(1, 1)].into())),
        ("more inherited than there is", with(|create| create.session.seed_length = 99)),
        ("a relative folder", with(|create| create.session.cwd = Some("somewhere".into()))),
        ("a message that is too large", with(|create| create.message = Some(Arc::new(too_large())))),
    ];
    for (what, create) in cases {
        let refused = world.one(Op::Create(create)).unwrap_err();
        assert!(["EVENT_INVALID", "MESSAGE_TOO_LARGE"].contains(&refused.code()), "{what}: {refused:?}");
        assert_eq!(world.reader().header(&sid("c")).unwrap(), None, "{what}");
        assert_eq!(world.reader().find("", 9).unwrap(), [sid("r")], "{what}");
    }
    assert!(matches!(world.one(Op::Create(good)), Ok(Done::Created { existing: false, .. })));
}

fn too_large() -> Message {
    let small = Message::turn("m", "small", Source::User, 1).unwrap();
    Message { content: vec![Block::text("x".repeat(greenroom_session::limits::MAX_MESSAGE_BYTES)), Block::text("y")], ..small }
}

fn a_creation_again_is_the_same_one_only_with_the_same_folder_seed_and_message(world: &World) {
    let mut create = full_child(world);
    create.message = Some(Arc::new(Message::turn("m0", "Begin.", Source::User, 1).unwrap()));
    world.one(Op::Create(create.clone())).unwrap();
    let before = exported(world, "c");
    let with = |change: fn(&mut Create)| {
        let mut other = create.clone();
        change(&mut other);
        world.one(Op::Create(other))
    };
    world.close();
    for again in [with(|_| {}), with(|other| other.time = 9_999)] {
        assert!(matches!(again, Ok(Done::Created { existing: true, .. })), "{again:?}");
    }
    let others = [
        ("another folder", with(|other| other.session.cwd = Some("/elsewhere".into()))),
        ("no folder", with(|other| other.session.cwd = None)),
        ("another parent", with(|other| other.session.parent = Some(sid("q")))),
        ("another prefix", with(|other| other.session.seed_length = 1)),
        ("a shorter seed", with(|other| other.events = other.events[..other.events.len() - 1].into())),
        // The same place, type and time, and another text.
        (
            "another descriptor",
            with(|other| {
                let mut events = other.events.to_vec();
                let at = events.iter().position(|event| matches!(event.body, Body::Descriptor(_))).unwrap();
                events[at].body = Body::Descriptor(serde_json::to_value(descriptor("another")).unwrap());
                other.events = events.into();
            }),
        ),
        ("another message", with(|other| other.message = Some(Arc::new(Message::turn("m0", "End.", Source::User, 1).unwrap())))),
        ("no message", with(|other| other.message = None)),
    ];
    for (what, refused) in others {
        assert_eq!(refused, Err(Refused::Exists(sid("c"))), "{what}");
    }
    assert_eq!(exported(world, "c"), before);
}

fn said(name: &str, role: Role, content: Vec<Block>) -> SurfaceMessage {
    SurfaceMessage { id: mid(name), role, content, source: Source::Model { provider: "openai".into(), name: "gpt".into() } }
}

fn what_a_crash_left_open_is_closed_by_the_next_epoch_and_by_no_reading(world: &World) {
    world.root("r");
    world.child("c", "r");
    world.accept("c", "m0");
    let fence = World::activate(&*world.plain(), "c", true);
    let call = |id: &str| Block::ToolCall { id: id.into(), name: "look".into(), arguments: "{}".into() };
    let asks = Body::AssistantMessage { turn: 1, step: 1, message: said("a0", Role::Assistant, vec![call("never"), call("begun")]), usage: None, stop: None };
    let begun = Body::ToolCall { turn: 1, step: 1, call_id: "begun".into(), name: "look".into(), arguments: "{}".into() };
    append(&*world.plain(), &fence, vec![Body::StepStart { turn: 1, step: 1 }, asks, begun]).unwrap();
    world.close();
    if world.kind == Kind::Jsonl {
        // The crash cut a write off, too.
        world.tear("c", Some("r"));
    }
    let bytes = world.bytes();
    let left = world.reader().load(&sid("c")).unwrap();
    for _ in 0..2 {
        let read = world.reader().load(&sid("c")).unwrap();
        assert_eq!((read.events, read.fold.head().open.is_some()), (left.events.clone(), true));
    }
    world.close();
    assert!(world.bytes().iter().filter(|(path, _)| !path.ends_with("store.db-wal")).eq(bytes.iter().filter(|(path, _)| !path.ends_with("store.db-wal"))));

    // The second time there is nothing left to close.
    let mut added = Vec::new();
    for _ in 0..2 {
        let store = world.plain();
        let before = next_seq(&*store, "c");
        let fence = World::activate(&*store, "c", false);
        added.push(store.reader().unwrap().events(&sid("c"), before, 99).unwrap());
        close(&*store, &fence);
        drop(store);
        world.close();
    }
    let closers = ["tool/result", "tool/result", "step/end", "turn/end", "activation/end", "activation/start"];
    assert_eq!((types(&added[0]), types(&added[1])), (closers.to_vec(), vec!["activation/start"]));
    let code = |event: &Event| match &event.body {
        Body::ToolResult { error: Some(error), .. } => error["code"].as_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!((code(&added[0][0]), &added[0][0].source_event_seqs), ("TOOL_NOT_STARTED".into(), &None));
    let call = left.events.last().unwrap().seq;
    assert_eq!((code(&added[0][1]), added[0][1].source_event_seqs.as_deref()), ("TOOL_OUTCOME_UNKNOWN".into(), Some(&[call][..])));
    assert!(matches!(added[0][3].body, Body::TurnEnd { turn: 1, reason: TurnEnd::Interrupted }));
    let after = world.reader().load(&sid("c")).unwrap();
    assert_eq!(after.events[..left.events.len()], left.events[..]);
    assert!(after.fold.head().has_work(), "the message is served again");
}

fn a_suffix_of_a_log_is_exactly_that(world: &World) {
    world.one(Op::Create(full_child(world))).unwrap();
    world.accept("c", "m0");
    World::activate(&*world.plain(), "c", true);
    let whole = world.reader().load(&sid("c")).unwrap().events;
    let bytes = world.bytes();
    let mut reader = world.reader();
    for from in 0..whole.len() + 2 {
        for limit in [0, 1, 3, usize::MAX] {
            let expected: Vec<Event> = whole.iter().skip(from).take(limit).cloned().collect();
            assert_eq!(reader.events(&sid("c"), from as u64, limit).unwrap(), expected, "{limit} from {from}");
        }
    }
    assert_eq!(reader.events(&sid("c"), u64::MAX, 9).unwrap(), []);
    assert_eq!(reader.events(&sid("nobody"), 0, 9).unwrap_err().code(), "SESSION_NOT_FOUND");
    assert_eq!(world.bytes(), bytes);
}

fn a_digest_changes_with_what_is_true_and_with_nothing_else(world: &World) {
    world.one(Op::Create(full_child(world))).unwrap();
    let digest = || StoreDigest::of(&mut *world.reader()).unwrap();
    let mut seen = vec![digest()];
    world.reader().load(&sid("c")).unwrap();
    world.reader().family(None, None, 9, true).unwrap();
    assert_eq!(digest(), seen[0]);
    world.close();
    assert_eq!(digest(), seen[0]);
    let mut differs = |what: &str| {
        let now = digest();
        assert!(!seen.contains(&now), "{what}");
        seen.push(now);
    };
    world.accept("c", "m0");
    differs("a message");
    let fence = World::activate(&*world.plain(), "c", true);
    differs("an epoch");
    append(&*world.plain(), &fence, vec![Body::TurnEnd { turn: 1, reason: TurnEnd::Completed }]).unwrap();
    differs("an event");
    close(&*world.plain(), &fence);
    differs("an end");
    world.root("q");
    differs("a session");
}

fn an_append_without_events_changes_nothing_and_one_without_an_epoch_is_refused(world: &World) {
    world.root("r");
    let store = world.plain();
    let fence = Fence { session: sid("r"), epoch: 1 };
    assert_eq!(append(&*store, &fence, vec![]), Err(Refused::Fenced { stored: 0 }));
    let fence = World::activate(&*store, "r", false);
    let before = exported(world, "r");
    assert_eq!(append(&*store, &fence, vec![]), Ok(Done::Appended));
    assert_eq!(exported(world, "r"), before);
    drop(store);
    world.close();
    // A process that has only just opened the store adopts what is there, with an epoch of its own.
    let store = world.plain();
    let log = store.reader().unwrap().load(&sid("r")).unwrap();
    let (epoch, events) = begin_epoch(&log.fold, 9, 3);
    assert!(matches!(one(&*store, Op::Open(Open { session: sid("r"), epoch, events: events.into(), claim: None })), Ok(Done::Opened { .. })));
    assert_eq!(append(&*store, &fence, vec![]), Err(Refused::Fenced { stored: 2 }));
    assert_eq!(append(&*store, &Fence { session: sid("r"), epoch }, vec![]), Ok(Done::Appended));
    let missing = Fence { session: sid("nobody"), epoch: 1 };
    let op = Append { fence: missing, events: [].into(), take: vec![] };
    assert_eq!(one(&*store, Op::Append(op)), Err(Refused::NotFound(sid("nobody"))));
}

fn an_inherited_prefix_is_written_once_and_a_resumed_session_goes_on_behind_it(world: &World) {
    let create = full_child(world);
    let parents = world.reader().load(&sid("r")).unwrap().events;
    world.one(Op::Create(create)).unwrap();
    for _ in 0..3 {
        let store = world.plain();
        let fence = World::activate(&*store, "c", false);
        close(&*store, &fence);
        drop(store);
        world.close();
    }
    let log = world.reader().load(&sid("c")).unwrap();
    assert_eq!(log.events[..2], parents[..]);
    let own = ["subagent/descriptor", "session/end-seed"];
    let epochs = ["activation/start", "activation/end"].repeat(3);
    assert_eq!(types(&log.events[2..]), [&own[..], &epochs].concat());
    assert!(log.events.iter().map(|event| event.seq).eq(0..log.events.len() as u64));
    assert_eq!(world.reader().load(&sid("r")).unwrap().events, parents);
}
