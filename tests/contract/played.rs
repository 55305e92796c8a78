//! What a host writes into a session that it plays itself: its place, its way to the disk, and what is refused.

use std::time::Duration;

use greenroom::actors::{error::PublishedError, host::NewRoot};
use greenroom_session::{
    compact::{COMPACTION_INTERRUPTED, Summary},
    event::{Body, EpochEnd, Opaque, Role, SurfaceMessage},
    id::MessageId,
    message::{Block, Source, text_of},
};
use serde_json::json;

use crate::{
    publish::{PATIENCE, child, completed, events, heard, listed, play, published, root, said, sound, types},
    watched::{Call, Fault},
    world::{World, mid, sid},
};

crate::on_every_store!(
    async what_is_put_has_its_place_at_once_and_is_durable_after_a_flush,
    what_cannot_follow_is_refused_and_changes_nothing,
    a_flush_tells_the_first_failure_and_what_is_on_disk_is_published_again,
    a_turn_begins_with_a_message_that_has_had_none,
    a_compaction_takes_the_place_of_messages,
    a_turn_that_its_end_cuts_off_leaves_no_call_without_an_answer,
);

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

async fn a_turn_that_its_end_cuts_off_leaves_no_call_without_an_answer(world: &World) {
    let runtime = world.runtime().await;
    let session = published(&runtime, root("r")).await;
    let begun = session.begin_turn("look", Some(mid("look"))).await.unwrap();
    let Body::TurnStart { turn, .. } = begun.body else { panic!("a turn begins with its start") };
    session.append(Body::StepStart { turn, step: 1 }).unwrap();
    for call_id in ["one", "two"] {
        let call = Body::ToolCall { turn, step: 1, call_id: call_id.into(), name: "look".into(), arguments: "{}".into() };
        session.append(call).unwrap();
    }
    let of = |call_id: &str| Source::Tool { call_id: call_id.into() };
    let content = vec![Block::ToolResult { call_id: "two".into(), text: "seen".into(), is_error: false }];
    let message = SurfaceMessage { id: mid("seen"), role: Role::Tool, content, source: of("two") };
    session.append(Body::ToolResult { turn, step: 1, message, error: None }).unwrap();
    session.end().await.unwrap();
    runtime.shutdown().await;
    let results: Vec<_> = events(world, "r")
        .into_iter()
        .filter_map(|event| match event.body {
            Body::ToolResult { message, error, .. } => Some((message.source, error.map(|error| error["code"].clone()))),
            _ => None,
        })
        .collect();
    assert_eq!(results, [(of("two"), None), (of("one"), Some("TOOL_OUTCOME_UNKNOWN".into()))]);
    sound(world);
}
