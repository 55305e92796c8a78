//! The log format, version 1, as files: what was written once must be read for ever, byte for byte.
//!
//! `tests/data/v1/every-kind.jsonl` holds a record of every kind, hand-checked against `docs/log-format.md`. Files of a version are never edited, only added to.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use greenroom::session::{
    descriptor::ModelRoute,
    event::{Body, EpochEnd, Event, Role, RootOpened, SurfaceMessage, SurfaceOp, TurnEnd},
    fold::Fold,
    header::NewSession,
    id::{EffectKind, MessageId, SessionId},
    line::{Line, read_line, write_line},
    message::{Block, Control, InboxRecord, Message, MessageKind, Source, Tombstone},
};
use serde_json::json;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/v1").join(name)
}

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn message_id(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

fn said(name: &str, role: Role, content: Vec<Block>, source: Source) -> SurfaceMessage {
    SurfaceMessage { id: message_id(name), role, content, source }
}

/// A root that lived through everything that can happen to one.
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn root_lines() -> Vec<Line> {
    let root = id("root");
    let (m0, m1) = (message_id("m0"), message_id("m1"));
    let opened = RootOpened {
        label: "launch story".into(),
        agent: "editor".into(),
        program_sha256: Some("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".into()),
        vars: [("city".to_owned(), "Lyon".to_owned())].into(),
        seed: Some(7),
        params: Some(json!({"tone": "dry"})),
        model: None,
    };
    let (call, result) = ("call-1", "call-1");
    let note = said("n0", Role::User, vec![Block::text("three facts")], Source::SubagentReport { session: id("child") });
    let settled = Source::SubagentSettled { session: id("child"), epoch: 1, outcome: "error".into(), code: Some("COMMAND_FAILED".into()) };
    let bodies = vec![
        Body::RootOpened(opened),
        Body::EndSeed {},
        Body::ActivationStart { epoch: 1 },
        Body::TurnStart { turn: 1, message: m0.clone(), attempt: 1 },
        Body::UserMessage(said("m0", Role::User, vec![Block::text("Cover the launch in Lyon.")], Source::User)),
        Body::StepStart { turn: 1, step: 1 },
        Body::Memo { turn: 1, message: m0.clone(), key: Some("files".into()), text: "[\"a\",\"b\"]".into() },
        Body::Memo { turn: 1, message: m0.clone(), key: None, text: "two files".into() },
        Body::EffectAccepted { turn: 1, message: m0.clone(), key: "5ef5…".into(), kind: EffectKind::Delegate, target: "reporter".into(), id: "child".into() },
        Body::StepEnd { turn: 1, step: 1, cut: None },
        Body::StepStart { turn: 1, step: 2 },
        Body::NoteJoined { turn: 1, notes: vec![message_id("n0"), message_id("n1")] },
        Body::UserMessage(note),
        Body::UserMessage(said("n1", Role::User, vec![Block::text("settled")], settled)),
        Body::StepEnd { turn: 1, step: 2, cut: Some(true) },
        Body::TurnEnd { turn: 1, reason: TurnEnd::Interrupted },
        Body::ActivationEnd { epoch: 1, reason: EpochEnd::Lost },
        Body::ActivationStart { epoch: 2 },
        Body::TurnStart { turn: 2, message: m0.clone(), attempt: 2 },
        Body::AnswerRecorded { message: m0, attempt: 2, text: "{\"say\":\"done\"}".into() },
        Body::AssistantMessage {
            turn: 2,
            step: 0,
            message: said("a0", Role::Assistant, vec![Block::text("done")], Source::Agent { name: "editor".into() }),
            usage: None,
            stop: None,
        },
        Body::TurnEnd { turn: 2, reason: TurnEnd::Completed },
        Body::TurnStart { turn: 3, message: m1.clone(), attempt: 1 },
        Body::UserMessage(said("m1", Role::User, vec![Block::text("And now?")], Source::Host)),
        Body::StepStart { turn: 3, step: 1 },
        Body::AssistantMessage {
            turn: 3,
            step: 1,
            message: said(
                "a1",
                Role::Assistant,
                vec![Block::reasoning("hm"), Block::ToolCall { id: call.into(), name: "look".into(), arguments: "{\"at\":1}".into() }],
                Source::Model { provider: "openai".into(), name: "gpt".into() },
            ),
            usage: Some(json!({"input_tokens": 12})),
            stop: None,
        },
        Body::ToolCall { turn: 3, step: 1, call_id: call.into(), name: "look".into(), arguments: "{\"at\":1}".into() },
        Body::ToolResult {
            turn: 3,
            step: 1,
            message: said(
                "t1",
                Role::Tool,
                vec![Block::ToolResult { call_id: result.into(), text: "nothing".into(), is_error: true }],
                Source::Tool { call_id: call.into() },
            ),
            error: Some(json!({"name": "NotFound", "code": "NOT_FOUND"})),
        },
        Body::StepEnd { turn: 3, step: 1, cut: None },
        Body::TurnEnd { turn: 3, reason: TurnEnd::error("NOT_FOUND", "nothing there") },
        Body::UserMessage(said("s1", Role::User, vec![Block::text("so far: nothing")], Source::Plugin { name: "compaction".into() })),
        Body::MessageWithdrawn { message: message_id("m2"), by: "user".into() },
        Body::ControlAnswered { control: message_id("c0"), op: "interrupt".into(), outcome: "done".into() },
        Body::ActivationEnd { epoch: 2, reason: EpochEnd::Settled },
    ];
    let mut events: Vec<Event> = bodies.into_iter().zip(0..).map(|(body, seq)| body.at(seq, 1_764_512_345_678 + seq)).collect();
    for event in &mut events {
        // The summary takes the place of the model's last turn.
        if event.body.surface_message().is_some_and(|message| message.id == message_id("s1")) {
            event.surface_op = Some(SurfaceOp::Replace { start: 25, end: 27 });
            event.source_event_seqs = Some(vec![25, 27]);
        }
    }
    let mut stranger = Body::decode("weather/changed", "{\"wind\":\"north\"}").unwrap().at(events.len() as u64, 1_764_512_345_999);
    stranger.ignorable = true;
    events.push(stranger);
    let pending = |order, id: &str, kind, wake, source| {
        let message = Message::with(message_id(id), kind, vec![Block::text("later")], source, 1_764_512_346_000, wake).unwrap();
        Line::Message(InboxRecord { order, held: false, message: Arc::new(message) })
    };
    let mut lines = vec![Line::Header(NewSession { cwd: Some("/srv/desk".into()), ..NewSession::root(root) }.at(1_764_512_345_678))];
    lines.extend(events.into_iter().map(Line::Event));
    lines.push(pending(6, "m3", MessageKind::Turn, true, Source::Coordinator { session: id("parent") }));
    lines.push(pending(7, "n2", MessageKind::Note, false, serde_json::from_value(json!({"kind": "oracle", "voice": "low"})).unwrap()));
    lines.push(Line::Message(InboxRecord {
        order: 8,
        held: false,
        message: Arc::new(Message::control(message_id("c1"), Control::Interrupt { turn: Some(3) }, 1)),
    }));
    lines.push(Line::Message(InboxRecord {
        order: 9,
        held: true,
        message: Arc::new(Message::control(message_id("c2"), Control::Withdraw { target: message_id("m3") }, 2)),
    }));
    lines
}

/// A child with every field of a descriptor, forked after an inherited prefix.
fn child_lines() -> Vec<Line> {
    let child = NewSession { seed_length: 2, ..NewSession::child(id("child"), id("root"), 0) };
    let descriptor = json!({
        "version": 1, "mode": "continuable", "provider": "fork", "label": "collect facts", "agent": "reporter", "as": "r1", "params": {"file": "a"},
        "model": {"provider": "openai", "name": "gpt"}, "persona": "You check facts.", "tool_filter": {"allow": ["report"]}, "ext": {"colour": "red"},
    });
    let bodies = [
        Body::TurnStart { turn: 1, message: message_id("p0"), attempt: 1 },
        Body::TurnEnd { turn: 1, reason: TurnEnd::Aborted { cause: "user".into() } },
        Body::Descriptor(descriptor),
        Body::EndSeed {},
        Body::ActivationStart { epoch: 1 },
        Body::TurnStart { turn: 2, message: message_id("m0"), attempt: 1 },
        Body::TurnEnd { turn: 2, reason: TurnEnd::Disposed },
        Body::ActivationEnd { epoch: 1, reason: EpochEnd::Disposed },
        Body::ActivationStart { epoch: 2 },
        Body::TurnStart { turn: 3, message: message_id("m0"), attempt: 2 },
        Body::TurnEnd { turn: 3, reason: TurnEnd::MaxTokens },
        Body::ActivationEnd { epoch: 2, reason: EpochEnd::Fenced },
        Body::ActivationStart { epoch: 3 },
        Body::ActivationEnd { epoch: 3, reason: EpochEnd::Failed },
    ];
    let mut lines = vec![Line::Header(child.at(1_764_512_345_700))];
    lines.extend(bodies.into_iter().zip(0..).map(|(body, seq)| Line::Event(body.at(seq, 1_764_512_345_701))));
    lines
}

/// An export: a whole inbox, of a root whose first turn was cut off and that waits to be activated.
fn export_lines() -> Vec<Line> {
    let message = |id: &str, kind, wake| Message::with(message_id(id), kind, vec![Block::text("word")], Source::Host, 5, wake).unwrap();
    let record = |order, held, message: Message| InboxRecord { order, held, message: Arc::new(message) };
    let taken = |order, held, message| Line::Taken(Tombstone { held, ..Tombstone::of(&record(order, false, message)) });
    let request = |id: &str| Message::control(message_id(id), Control::Withdraw { target: message_id("m3") }, 7);
    let served = message("m0", MessageKind::Turn, true);
    let opened = RootOpened { label: "export".into(), agent: "editor".into(), program_sha256: None, vars: [].into(), seed: None, params: None, model: None };
    let bodies = [
        Body::RootOpened(opened),
        Body::EndSeed {},
        Body::ActivationStart { epoch: 1 },
        Body::TurnStart { turn: 1, message: message_id("m0"), attempt: 1 },
        Body::user_message(&served),
        Body::NoteJoined { turn: 1, notes: vec![message_id("n1"), message_id("n2")] },
        Body::user_message(&message("n1", MessageKind::Note, false)),
        Body::user_message(&message("n2", MessageKind::Note, true)),
        Body::ControlAnswered { control: message_id("c4"), op: "withdraw".into(), outcome: "done".into() },
        Body::MessageWithdrawn { message: message_id("m3"), by: "user".into() },
    ];
    let mut lines = vec![Line::Header(NewSession::root(id("export")).at(1_764_512_345_678))];
    lines.extend(bodies.into_iter().zip(0..).map(|(body, seq)| Line::Event(body.at(seq, 1_764_512_345_679))));
    lines.extend([
        taken(0, true, served),
        taken(1, false, message("n1", MessageKind::Note, false)),
        taken(2, false, message("n2", MessageKind::Note, true)),
        taken(3, false, message("m3", MessageKind::Turn, true)),
        taken(4, false, request("c4")),
        Line::Message(record(5, true, message("m5", MessageKind::Turn, true))),
        Line::Message(record(6, false, message("n6", MessageKind::Note, false))),
    ]);
    lines
}

fn text(session: &SessionId, lines: &[Line]) -> String {
    lines.iter().map(|line| String::from_utf8(write_line(session, line).unwrap()).unwrap() + "\n").collect()
}

fn read(session: &SessionId, text: &str) -> Vec<Line> {
    let mut seq = 0;
    text.lines()
        .map(|line| {
            let line = read_line(session, seq, line.as_bytes()).unwrap_or_else(|error| panic!("{error}: {line}"));
            seq += u64::from(matches!(line, Line::Event(_)));
            line
        })
        .collect()
}

/// A root that was compacted between two turns, tried it again within one, and was cut off there.
fn compacted_lines() -> Vec<Line> {
    let opened =
        RootOpened { label: "long story".into(), agent: "editor".into(), program_sha256: None, vars: [].into(), seed: None, params: None, model: None };
    let user = |name: &str| Body::UserMessage(said(name, Role::User, vec![Block::text("Tell me more, and more than that.")], Source::User));
    let replies = |turn, name: &str| Body::AssistantMessage {
        turn,
        step: 0,
        message: said(name, Role::Assistant, vec![Block::text("There is more.")], Source::Agent { name: "editor".into() }),
        usage: None,
        stop: None,
    };
    let summary = said("s0", Role::User, vec![Block::text("More was told.")], Source::Plugin { name: "compact".into() });
    let bodies = [
        Body::RootOpened(opened),
        Body::EndSeed {},
        Body::ActivationStart { epoch: 1 },
        Body::TurnStart { turn: 1, message: message_id("m0"), attempt: 1 },
        user("m0"),
        replies(1, "a0"),
        Body::TurnEnd { turn: 1, reason: TurnEnd::Completed },
        Body::CompactStart { turn: None },
        Body::CompactSummary {
            start: 4,
            end: 5,
            shadowed_seqs: vec![4, 5],
            text: Some("More was told; nothing came of it.".into()),
            provider: Some("openai".into()),
            model: Some("gpt".into()),
            tokens: Some(12),
        },
        Body::UserMessage(summary),
        Body::CompactEnd { turn: None, error: None },
        Body::TurnStart { turn: 2, message: message_id("m1"), attempt: 1 },
        user("m1"),
        Body::CompactStart { turn: Some(2) },
        Body::CompactEnd { turn: Some(2), error: Some("COMPACTION_INTERRUPTED".into()) },
        Body::TurnEnd { turn: 2, reason: TurnEnd::Interrupted },
        Body::ActivationEnd { epoch: 1, reason: EpochEnd::Lost },
    ];
    let mut lines = vec![Line::Header(NewSession::root(id("compacted")).at(1_764_512_345_678))];
    for (body, seq) in bodies.into_iter().zip(0..) {
        let mut event = body.at(seq, 1_764_512_345_679);
        if seq == 9 {
            event.surface_op = Some(SurfaceOp::Replace { start: 4, end: 5 });
            event.source_event_seqs = Some(vec![4, 5]);
        }
        lines.push(Line::Event(event));
    }
    lines
}

/// A root whose children speak by its model route, unless another is said.
fn routed_lines() -> Vec<Line> {
    let model = Some(ModelRoute { provider: Some("openai".into()), name: "gpt".into() });
    let opened = RootOpened { label: "routed".into(), agent: "editor".into(), program_sha256: None, vars: [].into(), seed: None, params: None, model };
    let bodies = [Body::RootOpened(opened), Body::EndSeed {}];
    let mut lines = vec![Line::Header(NewSession::root(id("routed")).at(1_764_512_345_678))];
    lines.extend(bodies.into_iter().zip(0..).map(|(body, seq)| Line::Event(body.at(seq, 1_764_512_345_679))));
    lines
}

fn answered_lines() -> Vec<Line> {
    let reasoning = Block::Reasoning { text: "It is noon there.".into(), signature: Some("c2lnbmVk".into()) };
    let bodies = [
        Body::EndSeed {},
        Body::ActivationStart { epoch: 1 },
        Body::TurnStart { turn: 1, message: MessageId::new("m0").unwrap(), attempt: 1 },
        Body::StepStart { turn: 1, step: 1 },
        Body::AssistantMessage {
            turn: 1,
            step: 1,
            message: said("a0", Role::Assistant, vec![reasoning, Block::text("Noon.")], Source::Model { provider: "anthropic".into(), name: "large".into() }),
            usage: Some(json!({"cached_input": 7, "input": 12, "output": 3})),
            stop: Some("end".into()),
        },
    ];
    let mut lines = vec![Line::Header(NewSession::root(id("answered")).at(1_764_512_345_678))];
    lines.extend(bodies.into_iter().zip(0..).map(|(body, seq)| Line::Event(body.at(seq, 1_764_512_345_679))));
    lines
}

fn fixtures() -> [(&'static str, SessionId, Vec<Line>); 6] {
    [
        ("every-kind.jsonl", id("root"), root_lines()),
        ("child.jsonl", id("child"), child_lines()),
        ("export.jsonl", id("export"), export_lines()),
        ("compacted.jsonl", id("compacted"), compacted_lines()),
        ("routed.jsonl", id("routed"), routed_lines()),
        ("answered.jsonl", id("answered"), answered_lines()),
    ]
}

/// Writes the fixtures where they are missing; a file that exists is never written.
#[test]
fn fixtures_of_version_1_are_read_and_written_byte_for_byte() {
    for (name, session, lines) in fixtures() {
        let path = data(name);
        if !path.exists() && std::env::var_os("GREENROOM_WRITE_FIXTURES").is_some() {
            std::fs::write(&path, text(&session, &lines)).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap();
        assert_eq!(read(&session, &stored), lines, "{name}");
        assert_eq!(text(&session, &lines), stored, "{name}");
    }
}

#[test]
fn the_fixture_folds_to_what_its_story_says() {
    let (_, session, lines) = fixtures().into_iter().next().unwrap();
    let mut header = None;
    let mut events = Vec::new();
    let mut records = Vec::new();
    for line in read(&session, &std::fs::read_to_string(data("every-kind.jsonl")).unwrap()) {
        match line {
            Line::Header(found) => header = Some(Arc::new(found)),
            Line::Event(event) => events.push(event),
            Line::Message(record) => records.push(record),
            Line::Taken(tombstone) => panic!("nothing of this fixture has left the inbox: {tombstone:?}"),
        }
    }
    assert_eq!(lines.len(), 1 + events.len() + records.len());
    let mut fold = Fold::new(header.unwrap());
    for event in &events {
        fold.apply_event(event).unwrap();
    }
    for record in records {
        fold.apply_message(record);
    }
    let head = fold.head();
    assert_eq!((head.turns, head.epoch, head.live, head.next_order), (3, 2, false, 10));
    assert_eq!((head.pending_turns, head.pending_quiet, head.pending_controls, head.held), (1, 1, 2, 1));
    assert!(!head.has_work(), "a held record holds what is there");
    assert_eq!(head.last.as_ref().map(|last| (last.turn, &*last.kind, last.code.as_deref())), Some((3, "error", Some("NOT_FOUND"))));
    let surface: Vec<_> = fold.surface().nodes().iter().map(|node| node.message.id.as_str().to_owned()).collect();
    assert_eq!(surface, ["m0", "n0", "n1", "a0", "m1", "s1"]);
    assert_eq!(fold.unknown(), None, "an ignorable stranger does not stand in the way");
}

#[test]
fn every_fixture_folds() {
    for (name, session, _) in fixtures() {
        let mut fold: Option<Fold> = None;
        for line in read(&session, &std::fs::read_to_string(data(name)).unwrap()) {
            match line {
                Line::Header(header) => fold = Some(Fold::new(Arc::new(header))),
                Line::Event(event) => fold.as_mut().unwrap().apply_event(&event).unwrap_or_else(|error| panic!("{name}: {error}")),
                Line::Message(record) => fold.as_mut().unwrap().apply_message(record),
                Line::Taken(tombstone) => fold.as_mut().unwrap().apply_taken(&tombstone),
            }
        }
        let seen: Vec<_> = fold.as_ref().unwrap().surface().messages().map(|message| message.id.as_str()).collect();
        let expected = match name {
            "every-kind.jsonl" => vec!["m0", "n0", "n1", "a0", "m1", "s1"],
            "export.jsonl" => vec!["m0", "n1", "n2"],
            "compacted.jsonl" => vec!["s0", "m1"],
            "answered.jsonl" => vec!["a0"],
            _ => vec![],
        };
        assert_eq!(seen, expected, "{name}");
    }
}

#[test]
fn the_fixtures_hold_every_kind_of_event_and_end() {
    let mut types = BTreeSet::new();
    let mut ends = BTreeSet::new();
    for (name, session, _) in fixtures() {
        for line in read(&session, &std::fs::read_to_string(data(name)).unwrap()) {
            let Line::Event(event) = line else { continue };
            types.insert(event.body.type_name().to_owned());
            match event.body {
                Body::TurnEnd { reason, .. } => drop(ends.insert(reason.as_str())),
                Body::ActivationEnd { reason, .. } => drop(ends.insert(match reason {
                    EpochEnd::Settled => "settled",
                    EpochEnd::Disposed => "epoch disposed",
                    EpochEnd::Fenced => "fenced",
                    EpochEnd::Failed => "failed",
                    EpochEnd::Lost => "lost",
                })),
                _ => {}
            }
        }
    }
    assert_eq!(ends.len(), 11, "{ends:?}");
    let documented: BTreeSet<String> = include_str!("../../docs/log-format.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once(" | ").map(|(names, _)| names.to_owned()))
        .flat_map(|names| names.split('`').filter(|name| name.contains('/') || *name == "memo").map(str::to_owned).collect::<Vec<_>>())
        .collect();
    types.remove("weather/changed");
    assert_eq!(types, documented, "the document and the fixtures name the same events");
}
