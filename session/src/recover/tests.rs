use std::sync::Arc;

use super::*;
use crate::{header::NewSession, id::SessionId};

const OPENED: u64 = 100;

fn start(turn: u64) -> Body {
    Body::TurnStart { turn, message: MessageId::new(format!("m{turn}")).unwrap(), attempt: 1 }
}

fn end(turn: u64) -> Body {
    Body::TurnEnd { turn, reason: TurnEnd::Completed }
}

fn interrupted(turn: u64) -> Body {
    Body::TurnEnd { turn, reason: TurnEnd::Interrupted }
}

fn step(turn: u64, step: u32) -> Body {
    Body::StepStart { turn, step }
}

fn step_end(turn: u64, step: u32) -> Body {
    Body::StepEnd { turn, step, cut: None }
}

fn cut(turn: u64, step: u32) -> Body {
    Body::StepEnd { turn, step, cut: Some(true) }
}

fn said(turn: u64, step: u32, calls: &[&str]) -> Body {
    let content = calls.iter().map(|call| Block::ToolCall { id: (*call).into(), name: "look".into(), arguments: "{}".into() }).collect();
    let source = Source::Model { provider: "p".into(), name: "m".into() };
    Body::AssistantMessage {
        turn,
        step,
        message: SurfaceMessage { id: MessageId::new("a").unwrap(), role: Role::Assistant, content, source },
        usage: None,
        stop: None,
    }
}

fn call(turn: u64, step: u32, call_id: &str) -> Body {
    Body::ToolCall { turn, step, call_id: call_id.into(), name: "look".into(), arguments: "{}".into() }
}

fn result(turn: u64, step: u32, call_id: &str) -> Body {
    let content = vec![Block::ToolResult { call_id: call_id.into(), text: "seen".into(), is_error: false }];
    let source = Source::Tool { call_id: call_id.into() };
    Body::ToolResult { turn, step, message: SurfaceMessage { id: MessageId::new("t").unwrap(), role: Role::Tool, content, source }, error: None }
}

/// Folds what was lived, the last event of which came at `OPENED` and its place.
fn lived(bodies: Vec<Body>) -> Fold {
    let mut fold = Fold::new(Arc::new(NewSession::root(SessionId::new("s").unwrap()).at(0)));
    for (body, seq) in bodies.into_iter().zip(0..) {
        fold.apply_event(&body.at(seq, OPENED + seq)).unwrap();
    }
    fold
}

/// What a closer is, in short: its type, or of a result the call, the code and what it stands for.
fn short(event: &Event) -> String {
    match &event.body {
        Body::ToolResult { message, error: Some(error), .. } => {
            let Source::Tool { call_id } = &message.source else { panic!("{message:?}") };
            let code = error["code"].as_str().unwrap().strip_prefix("TOOL_").unwrap();
            event.source_event_seqs.as_ref().map_or_else(|| format!("{call_id} {code}"), |sources| format!("{call_id} {code} {sources:?}"))
        }
        Body::StepEnd { step, cut: Some(true), .. } => format!("step {step}"),
        Body::TurnEnd { turn, reason } => format!("turn {turn} {}", reason.as_str()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_crash_leaves_open_is_closed_from_within() {
    let within = |bodies: Vec<Body>| [vec![start(1), step(1, 1)], bodies].concat();
    for (what, log, expected) in [
        ("nothing at all", vec![], vec![]),
        ("a log in balance", vec![start(1), step(1, 1), step_end(1, 1), end(1)], vec![]),
        ("a turn without a step", vec![start(1)], vec!["turn 1 interrupted"]),
        ("a step without a call", within(vec![]), vec!["step 1", "turn 1 interrupted"]),
        ("a step that has ended", within(vec![said(1, 1, &["a"]), step_end(1, 1)]), vec!["turn 1 interrupted"]),
        ("a call that was not begun", within(vec![said(1, 1, &["a"])]), vec!["a NOT_STARTED", "step 1", "turn 1 interrupted"]),
        ("a call that was begun", within(vec![said(1, 1, &["a"]), call(1, 1, "a")]), vec!["a OUTCOME_UNKNOWN [3]", "step 1", "turn 1 interrupted"]),
        ("a call that was answered", within(vec![said(1, 1, &["a"]), call(1, 1, "a"), result(1, 1, "a")]), vec!["step 1", "turn 1 interrupted"]),
        ("a call that was answered before it was begun", within(vec![said(1, 1, &["a"]), result(1, 1, "a")]), vec!["step 1", "turn 1 interrupted"]),
        ("a call that no message asks for", within(vec![call(1, 1, "a")]), vec!["a OUTCOME_UNKNOWN [2]", "step 1", "turn 1 interrupted"]),
        (
            "several calls, in the order of the transcript and not in that of their beginning",
            within(vec![said(1, 1, &["c", "a", "b", "d"]), call(1, 1, "b"), call(1, 1, "a"), result(1, 1, "a")]),
            vec!["c NOT_STARTED", "b OUTCOME_UNKNOWN [3]", "d NOT_STARTED", "step 1", "turn 1 interrupted"],
        ),
        ("one id twice, which one result answers", within(vec![said(1, 1, &["a", "a"])]), vec!["a NOT_STARTED", "step 1", "turn 1 interrupted"]),
        ("calls of a step before", within(vec![said(1, 1, &["a"]), step_end(1, 1), step(1, 2)]), vec!["step 2", "turn 1 interrupted"]),
        (
            "calls of a turn before",
            within(vec![
                said(1, 1, &["a"]),
                call(1, 1, "b"),
                cut(1, 1),
                interrupted(1),
                Body::TurnStart { attempt: 2, turn: 2, message: MessageId::new("m1").unwrap() },
                step(2, 1),
            ]),
            vec!["step 1", "turn 2 interrupted"],
        ),
    ] {
        let mut fold = lived(log.clone());
        let events = closers(&fold, 3);
        assert_eq!(events.iter().map(short).collect::<Vec<_>>(), expected, "{what}");
        assert_eq!(events, closers(&lived(log.clone()), 3), "{what}: the same log, the same closers");
        for (event, seq) in events.iter().zip(log.len() as u64..) {
            assert_eq!((event.seq, event.time), (seq, OPENED + log.len() as u64 - 1), "{what}: at the time of the last real event");
            fold.apply_event(event).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        assert_eq!(closers(&fold, 3), [], "{what}: once is enough");
    }
}

#[test]
fn an_answer_that_a_crash_kept_back_says_what_to_do() {
    let fold = lived(vec![start(1), step(1, 1), said(1, 1, &["a", "b"]), call(1, 1, "b")]);
    let events = closers(&fold, 3);
    for (event, name, told) in [(&events[0], "ToolNotStartedError", "Call again"), (&events[1], "ToolOutcomeUnknownError", "look at the state first, or ask")] {
        let Body::ToolResult { turn: 1, step: 1, message, error: Some(error) } = &event.body else { panic!("{event:?}") };
        let [Block::ToolResult { text, is_error: true, call_id }] = message.content.as_slice() else { panic!("{message:?}") };
        assert!(text.contains(told), "{text}");
        assert_eq!((error["name"].as_str(), message.id.as_str()), (Some(name), &*format!("interrupted-tool-result-{call_id}-{}", event.seq)));
    }
}

#[test]
fn an_answer_has_an_id_whatever_the_model_has_called_its_call() {
    for call_id in [String::new(), "x".repeat(600), "a\0b".into(), "é\u{202e}".into()] {
        let fold = lived(vec![start(1), step(1, 1), said(1, 1, &[&call_id])]);
        let events = closers(&fold, 3);
        let Body::ToolResult { message, .. } = &events[0].body else { panic!("{events:?}") };
        assert!(message.id.as_str().starts_with("interrupted-tool-result-") && message.id.as_str().ends_with("-3"), "{call_id:?}: {:?}", message.id);
        // Its call is named as it was.
        assert_eq!(message.source, Source::Tool { call_id });
    }
}

#[test]
fn the_last_attempt_without_progress_ends_as_failed() {
    let attempts = |count: u32, steps: bool| {
        let mut bodies = Vec::new();
        for attempt in 1..=count {
            let turn = u64::from(attempt);
            bodies.push(Body::TurnStart { turn, message: MessageId::new("m").unwrap(), attempt });
            if steps {
                bodies.extend([step(turn, 1), step_end(turn, 1)]);
            }
            if attempt < count {
                bodies.push(interrupted(turn));
            }
        }
        closers(&lived(bodies), 3).iter().map(short).collect::<Vec<_>>()
    };
    assert_eq!(attempts(1, false), ["turn 1 interrupted"]);
    assert_eq!(attempts(2, false), ["turn 2 interrupted"]);
    assert_eq!(attempts(3, false), ["turn 3 error"]);
    // The first attempt came further than any before it.
    assert_eq!(attempts(3, true), ["turn 3 interrupted"]);
    assert_eq!(attempts(4, true), ["turn 4 error"]);
}

#[test]
fn an_epoch_that_was_lost_ends_before_the_next_begins() {
    for (what, log, expected) in [
        ("the first epoch", vec![], vec!["activation/start"]),
        (
            "after one that has ended",
            vec![Body::ActivationStart { epoch: 1 }, Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled }],
            vec!["activation/start"],
        ),
        ("after one that was lost", vec![Body::ActivationStart { epoch: 1 }], vec!["activation/end", "activation/start"]),
        ("after one that was lost in a turn", vec![Body::ActivationStart { epoch: 1 }, start(1)], vec!["turn/end", "activation/end", "activation/start"]),
    ] {
        let mut fold = lived(log.clone());
        let (epoch, events) = begin_epoch(&fold, 999, 3);
        assert_eq!(events.iter().map(|event| event.body.type_name()).collect::<Vec<_>>(), expected, "{what}");
        assert_eq!(epoch, fold.head().epoch + 1, "{what}");
        let (begun, closing) = events.split_last().unwrap();
        assert_eq!((begun.time, &begun.body), (999, &Body::ActivationStart { epoch }), "{what}");
        assert!(closing.iter().all(|event| event.time == OPENED + log.len() as u64 - 1), "{what}");
        for event in &events {
            fold.apply_event(event).unwrap();
        }
    }
}
