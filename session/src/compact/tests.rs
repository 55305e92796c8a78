use std::sync::Arc;

use super::*;
use crate::{
    descriptor::Descriptor,
    event::TurnEnd,
    header::NewSession,
    id::SessionId,
    listing::verdict,
    message::Message,
    recover::{begin_epoch, closers},
};

fn id(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

fn asked(name: &str) -> Body {
    Body::user_message(&Message::turn(name, "a question of some length", Source::User, 0).unwrap())
}

fn said(turn: u64, step: u32, content: Vec<Block>) -> Body {
    let source = Source::Model { provider: "p".into(), name: "m".into() };
    Body::AssistantMessage { turn, step, message: SurfaceMessage { id: id("a"), role: Role::Assistant, content, source }, usage: None, stop: None }
}

fn call(name: &str) -> Block {
    Block::ToolCall { id: name.into(), name: "look".into(), arguments: "{}".into() }
}

fn result(turn: u64, step: u32, call_id: &str) -> Body {
    let content = vec![Block::ToolResult { call_id: call_id.into(), text: "much was seen".into(), is_error: false }];
    let message = SurfaceMessage { id: id("t"), role: Role::Tool, content, source: Source::Tool { call_id: call_id.into() } };
    Body::ToolResult { turn, step, message, error: None }
}

fn start(turn: u64, message: &str) -> Body {
    Body::TurnStart { turn, message: id(message), attempt: 1 }
}

fn step(turn: u64, step: u32, ends: bool) -> Body {
    if ends { Body::StepEnd { turn, step, cut: None } } else { Body::StepStart { turn, step } }
}

fn folded(header: &NewSession, bodies: Vec<Body>) -> Fold {
    let mut fold = Fold::new(Arc::new(header.at(0)));
    go_on(&mut fold, bodies);
    fold
}

fn go_on(fold: &mut Fold, bodies: Vec<Body>) {
    for body in bodies {
        let event = body.at(fold.head().next_seq, 7);
        fold.apply_event(&event).unwrap();
    }
}

fn root() -> NewSession {
    NewSession::root(SessionId::new("s").unwrap())
}

/// A turn with two steps, the calls of which have the same id, and the beginning of another.
fn turns() -> Vec<Body> {
    vec![
        start(1, "m1"),                                        // 0
        asked("m1"),                                           // 1
        step(1, 1, false),                                     // 2
        said(1, 1, vec![call("c"), call("d")]),                // 3
        result(1, 1, "d"),                                     // 4
        result(1, 1, "c"),                                     // 5
        step(1, 1, true),                                      // 6
        step(1, 2, false),                                     // 7
        said(1, 2, vec![call("c")]),                           // 8
        result(1, 2, "c"),                                     // 9
        step(1, 2, true),                                      // 10
        said(1, 0, vec![Block::text("that is what it is")]),   // 11
        Body::TurnEnd { turn: 1, reason: TurnEnd::Completed }, // 12
        start(2, "m2"),                                        // 13
        asked("m2"),                                           // 14
        step(2, 1, false),                                     // 15
        said(2, 1, vec![call("e")]),                           // 16
    ]
}

#[test]
fn only_a_run_of_current_messages_that_tears_nothing_apart_can_be_compacted() {
    let fold = folded(&root(), turns());
    let splits = |call_id: &str| Err(CompactError::SplitsToolCall(call_id.into()));
    let range = |start, end| Err(CompactError::Range { start, end });
    for (what, start, end, expected) in [
        ("one message", 1, 1, Ok(vec![1])),
        ("a whole step", 1, 5, Ok(vec![1, 3, 4, 5])),
        ("calls without their results", 1, 3, splits("d")),
        ("one result of two", 1, 4, splits("c")),
        ("results without their calls", 5, 9, splits("c")),
        ("the second of two calls of one id", 8, 9, Ok(vec![8, 9])),
        ("both steps", 3, 9, Ok(vec![3, 4, 5, 8, 9])),
        ("everything of the first turn", 1, 11, Ok(vec![1, 3, 4, 5, 8, 9, 11])),
        ("the message of the open turn", 11, 14, Err(CompactError::UnfinishedTurn(14))),
        ("a call that waits for its result", 16, 16, splits("e")),
        ("backwards", 5, 1, range(5, 1)),
        ("from what is not on the surface", 2, 5, range(2, 5)),
        ("to what does not exist", 1, 99, range(1, 99)),
    ] {
        assert_eq!(Plan::new(&fold, start, end).map(|plan| plan.shadowed().to_vec()), expected, "{what}");
    }
}

#[test]
fn every_refusal_has_a_code_of_its_own() {
    for (error, code) in [
        (CompactError::Busy(1), "COMPACTION_BUSY"),
        (CompactError::NotBegun, "COMPACTION_NOT_BEGUN"),
        (CompactError::Range { start: 1, end: 2 }, "COMPACTION_RANGE"),
        (CompactError::SplitsToolCall("c".into()), "COMPACTION_SPLITS_CALL"),
        (CompactError::UnfinishedTurn(1), "COMPACTION_UNFINISHED_TURN"),
        (CompactError::NotSmaller { summary: 2, shadowed: 1 }, "COMPACTION_NOT_SMALLER"),
        (CompactError::SurfaceChanged, "COMPACTION_SURFACE_CHANGED"),
    ] {
        assert_eq!(error.code(), code, "{error}");
    }
}

#[test]
fn a_compaction_shortens_what_is_seen_and_nothing_else() {
    let described = || Body::Descriptor(serde_json::to_value(Descriptor::continuable("spawn", "l", "a")).unwrap());
    let child = || NewSession::child(SessionId::new("c").unwrap(), SessionId::new("r").unwrap(), 0);
    let bodies = || vec![described(), Body::EndSeed {}, Body::ActivationStart { epoch: 1 }, start(1, "m1"), asked("m1"), asked("n1"), asked("n2")];
    let mut fold = folded(&child(), bodies());
    let plan = Plan::new(&fold, 5, 6).unwrap();
    let begin = plan.start(&fold, 9).unwrap();
    assert_eq!(begin.body, Body::CompactStart { turn: Some(1) });
    fold.apply_event(&begin).unwrap();
    assert_eq!(plan.start(&fold, 9), Err(CompactError::Busy(7)), "one at a time");
    assert_eq!(Plan::new(&fold, 5, 5), Err(CompactError::Busy(7)), "one at a time");
    // What is appended meanwhile and is not on the surface does not matter.
    go_on(&mut fold, vec![Body::Memo { turn: 1, message: id("m1"), key: None, text: "meanwhile".into() }]);
    assert_eq!(plan.bytes(), 50);
    let long = plan.commit(&fold, Summary::new(id("s"), "x".repeat(50)), 9);
    assert_eq!(long, Err(CompactError::NotSmaller { summary: 50, shadowed: 50 }));
    let before = (fold.serving().clone(), fold.head().clone());
    for event in plan.commit(&fold, Summary { tokens: Some(3), ..Summary::new(id("s"), "x".repeat(49)) }, 9).unwrap() {
        assert_eq!(event.body.type_name().starts_with("compact/"), event.surface_op.is_none(), "only its message is on the surface");
        fold.apply_event(&event).unwrap();
    }
    assert_eq!(fold.surface().nodes().iter().map(|node| node.seq).collect::<Vec<_>>(), [4, 10]);
    assert_eq!((fold.serving(), fold.head().compacting), (&before.0, None), "its message is no note");
    // It is listed as it was.
    let as_it_was = folded(&child(), bodies());
    assert_eq!((verdict(&fold), fold.descriptor()), (verdict(&as_it_was), as_it_was.descriptor()));
    assert_eq!((fold.head().turns, &fold.head().open), (as_it_was.head().turns, &as_it_was.head().open));
    // What a compaction has left can be compacted, too.
    assert_eq!(Plan::new(&fold, 10, 10).map(|plan| plan.bytes()), Ok(49));
}

#[test]
fn a_surface_that_changed_since_refuses_the_plan() {
    let changes: [fn(&mut Fold); 2] = [
        |fold| go_on(fold, vec![asked("late")]),
        |fold| {
            let mut event = asked("other").at(fold.head().next_seq, 7);
            event.surface_op = Some(SurfaceOp::Replace { start: 0, end: 0 });
            event.source_event_seqs = Some(vec![0]);
            fold.apply_event(&event).unwrap();
        },
    ];
    for change in changes {
        let mut fold = folded(&root(), vec![asked("n1"), asked("n2"), asked("n3")]);
        let plan = Plan::new(&fold, 1, 2).unwrap();
        let mut early = fold.clone();
        change(&mut early);
        assert_eq!(plan.start(&early, 9), Err(CompactError::SurfaceChanged));
        assert_eq!(plan.commit(&fold, Summary::new(id("s"), "x"), 9), Err(CompactError::NotBegun));
        let begin = plan.start(&fold, 9).unwrap();
        fold.apply_event(&begin).unwrap();
        change(&mut fold);
        assert_eq!(plan.commit(&fold, Summary::new(id("s"), "x"), 9), Err(CompactError::SurfaceChanged));
        // It is given up, and another plan may be made.
        let end = give_up(&fold, "COMPACTION_SURFACE_CHANGED", 9).unwrap();
        fold.apply_event(&end).unwrap();
        assert_eq!(give_up(&fold, "X", 9), None);
        assert!(Plan::new(&fold, 1, 2).is_ok());
    }
}

#[test]
fn a_compaction_that_was_inherited_unfinished_is_nobodys() {
    let header = NewSession { seed_length: 2, ..root() };
    let fold = folded(&header, vec![asked("n1"), Body::CompactStart { turn: None }, Body::EndSeed {}]);
    let plan = Plan::new(&fold, 0, 0).unwrap();
    assert!(plan.start(&fold, 9).is_ok());
    // In the life of a session itself it is in the way.
    let fold = folded(&root(), vec![Body::EndSeed {}, asked("n1"), Body::CompactStart { turn: None }]);
    assert_eq!(Plan::new(&fold, 1, 1), Err(CompactError::Busy(2)));
}

#[test]
fn a_crash_ends_a_compaction_before_its_turn() {
    let interrupted = |turn| Body::CompactEnd { turn, error: Some(COMPACTION_INTERRUPTED.into()) };
    let lived = |bodies: Vec<Body>| folded(&root(), [vec![Body::ActivationStart { epoch: 1 }], bodies].concat());
    let between = lived(vec![Body::CompactStart { turn: None }]);
    assert_eq!(closers(&between, 3), [interrupted(None).at(2, 7)]);
    let within = lived(vec![start(1, "m1"), step(1, 1, false), said(1, 1, vec![call("c")]), Body::CompactStart { turn: Some(1) }]);
    let types = |events: &[Event]| events.iter().map(|event| event.body.type_name().to_owned()).collect::<Vec<_>>();
    assert_eq!(types(&closers(&within, 3)), ["compact/end", "tool/result", "step/end", "turn/end"]);
    for mut fold in [between, within] {
        let (_, events) = begin_epoch(&fold, 9, 3);
        for event in events {
            fold.apply_event(&event).unwrap();
        }
        assert_eq!((fold.head().compacting, fold.head().epoch, closers(&fold, 3)), (None, 2, vec![]));
    }
}

#[test]
fn a_log_that_breaks_the_bracket_is_refused() {
    let replace = |name: &str, source: Source, start, end| {
        let message = SurfaceMessage { id: id(name), role: Role::User, content: vec![], source };
        let mut event = Body::UserMessage(message).at(0, 7);
        event.surface_op = Some(SurfaceOp::Replace { start, end });
        event.source_event_seqs = Some(vec![1, 2, 3]);
        event
    };
    let compact = || Source::Plugin { name: COMPACT_SOURCE.into() };
    let plain = |body: Body| body.at(0, 7);
    let begin = |turn| plain(Body::CompactStart { turn });
    let summary = |start, end, seqs: &[Seq]| {
        plain(Body::CompactSummary { start, end, shadowed_seqs: seqs.to_vec(), text: None, provider: None, model: None, tokens: None })
    };
    let end = |turn, error: Option<&str>| plain(Body::CompactEnd { turn, error: error.map(str::to_owned) });
    let epoch_ends = plain(Body::ActivationEnd { epoch: 1, reason: crate::event::EpochEnd::Settled });
    let turn_ends = plain(Body::TurnEnd { turn: 1, reason: TurnEnd::Completed });
    let whole = [begin(None), summary(1, 2, &[1, 2]), replace("s", compact(), 1, 2), end(None, None)];
    let open = || plain(start(1, "m1"));
    // Each with what comes before it, the last of which is refused.
    for (what, events) in [
        ("two at a time", vec![begin(None), begin(None)]),
        ("of a turn that is not open", vec![begin(Some(1))]),
        ("of no turn while one is open", vec![open(), begin(None)]),
        ("a turn begins within", vec![begin(None), open()]),
        ("its turn ends within", vec![open(), begin(Some(1)), turn_ends]),
        ("its epoch ends within", vec![begin(None), epoch_ends]),
        ("a summary outside", vec![summary(1, 2, &[1, 2])]),
        ("two summaries", vec![begin(None), summary(1, 2, &[1, 2]), summary(1, 1, &[1])]),
        ("a summary of no run", vec![begin(None), summary(2, 1, &[1, 2])]),
        ("a summary that leaves one out", vec![begin(None), summary(1, 3, &[1, 3])]),
        ("a summary that names one more", vec![begin(None), summary(1, 2, &[1, 2, 3])]),
        ("a summary out of order", vec![begin(None), summary(1, 2, &[2, 1])]),
        ("a summary of the open turn's message", vec![open(), begin(Some(1)), summary(1, 2, &[1, 2])]),
        ("a message outside", vec![replace("s", compact(), 1, 2)]),
        ("a message before the summary", vec![begin(None), replace("s", compact(), 1, 2)]),
        ("a message in another place", vec![begin(None), summary(1, 2, &[1, 2]), replace("s", compact(), 1, 1)]),
        ("two messages", vec![whole[0].clone(), whole[1].clone(), whole[2].clone(), replace("s", compact(), 3, 3)]),
        ("an end outside", vec![end(None, Some("X"))]),
        ("an end of another turn", vec![begin(None), end(Some(1), Some("X"))]),
        ("an end without a change", vec![begin(None), summary(1, 2, &[1, 2]), end(None, None)]),
        ("any message in the place of the open turn's", vec![open(), replace("s", Source::Host, 1, 2)]),
    ] {
        let mut fold = folded(&root(), vec![Body::ActivationStart { epoch: 1 }, asked("m1"), asked("n1"), asked("n2")]);
        let last = events.len() - 1;
        for (at, mut event) in events.into_iter().enumerate() {
            event.seq = fold.head().next_seq;
            let before = fold.clone();
            assert_eq!(fold.apply_event(&event).is_err(), at == last, "{what}: event {at}");
            assert!(at < last || fold == before, "{what}: a refusal changes nothing");
        }
    }
    // A message that is to be repeated is no less needed while its turn is not open.
    let cut_off = || folded(&root(), vec![start(1, "m1"), asked("m1"), asked("n1"), Body::TurnEnd { turn: 1, reason: TurnEnd::Disposed }]);
    assert_eq!(Plan::new(&cut_off(), 1, 2), Err(CompactError::UnfinishedTurn(1)));
    assert!(Plan::new(&cut_off(), 2, 2).is_ok());
    let mut event = replace("s", Source::Host, 1, 2);
    event.seq = 4;
    assert!(cut_off().apply_event(&event).is_err());
    let mut fold = cut_off();
    go_on(&mut fold, vec![Body::CompactStart { turn: None }]);
    let mut event = summary(1, 2, &[1, 2]);
    event.seq = 5;
    assert!(fold.apply_event(&event).is_err());
    // The same events in order are taken.
    let mut fold = folded(&root(), vec![Body::ActivationStart { epoch: 1 }, asked("m1"), asked("n1"), asked("n2")]);
    for mut event in whole {
        event.seq = fold.head().next_seq;
        fold.apply_event(&event).unwrap();
    }
}
