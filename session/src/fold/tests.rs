use proptest::prelude::*;

use super::*;
use crate::{
    compact::Plan,
    event::{EpochEnd, Role},
    header::NewSession,
    id::{EffectKind, SessionId},
    message::Message,
    recover::{begin_epoch, closers},
};

fn id(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

fn root() -> Fold {
    Fold::new(Arc::new(NewSession::root(SessionId::new("s").unwrap()).at(0)))
}

fn start(turn: u64, message: &str, attempt: u32) -> Body {
    Body::TurnStart { turn, message: id(message), attempt }
}

fn end(turn: u64) -> Body {
    Body::TurnEnd { turn, reason: TurnEnd::Completed }
}

fn step(turn: u64, step: u32) -> Body {
    Body::StepStart { turn, step }
}

fn step_end(turn: u64, step: u32) -> Body {
    Body::StepEnd { turn, step, cut: None }
}

fn asked(name: &str) -> Body {
    Body::user_message(&Message::turn(name, "a question", Source::User, 0).unwrap())
}

fn said(turn: u64, step: u32, calls: &[&str]) -> Body {
    let blocks = calls.iter().map(|call| Block::ToolCall { id: (*call).into(), name: "look".into(), arguments: "{}".into() });
    let content = std::iter::once(Block::text("let me see")).chain(blocks).collect();
    let message = SurfaceMessage { id: id("a"), role: Role::Assistant, content, source: Source::Model { provider: "p".into(), name: "m".into() } };
    Body::AssistantMessage { turn, step, message, usage: None, stop: None }
}

fn call(turn: u64, step: u32, call_id: &str) -> Body {
    Body::ToolCall { turn, step, call_id: call_id.into(), name: "look".into(), arguments: "{}".into() }
}

fn result(turn: u64, step: u32, call_id: &str) -> Body {
    let content = vec![Block::ToolResult { call_id: call_id.into(), text: "seen".into(), is_error: false }];
    let message = SurfaceMessage { id: id("t"), role: Role::Tool, content, source: Source::Tool { call_id: call_id.into() } };
    Body::ToolResult { turn, step, message, error: None }
}

fn memo(turn: u64, message: &str) -> Body {
    Body::Memo { turn, message: id(message), key: None, text: "x".into() }
}

fn answer(message: &str, attempt: u32) -> Body {
    Body::AnswerRecorded { message: id(message), attempt, text: "x".into() }
}

fn effect(turn: u64, message: &str) -> Body {
    Body::EffectAccepted { turn, message: id(message), key: "k".into(), kind: EffectKind::Send, target: "t".into(), id: "i".into() }
}

#[test]
fn what_happens_in_a_turn_nests_and_counts() {
    // Each log is taken but for its last event; an `ok` in front says that the last one is taken, too.
    let within = |bodies: Vec<Body>| [vec![start(1, "m", 1), step(1, 1)], bodies].concat();
    let interrupted = || Body::TurnEnd { turn: 1, reason: TurnEnd::Interrupted };
    for (what, taken, log) in [
        ("the first turn is 1", false, vec![start(2, "m", 1)]),
        ("the next turn is 2", false, vec![start(1, "m", 1), end(1), start(1, "n", 1)]),
        ("no turn is left out", false, vec![start(1, "m", 1), end(1), start(3, "n", 1)]),
        ("turns count on", true, vec![start(1, "m", 1), end(1), start(2, "n", 1)]),
        ("one turn at a time", false, vec![start(1, "m", 1), start(2, "n", 1)]),
        ("an end without a start", false, vec![end(1)]),
        ("an end of another turn", false, vec![start(1, "m", 1), end(2)]),
        ("an end within a step", false, within(vec![end(1)])),
        ("an end after a step", true, within(vec![step_end(1, 1), end(1)])),
        ("a second attempt after a final end", false, vec![start(1, "m", 1), end(1), start(2, "m", 2)]),
        ("another message before the one to be repeated", false, vec![start(1, "m", 1), interrupted(), start(2, "n", 1)]),
        ("the second attempt", true, vec![start(1, "m", 1), interrupted(), start(2, "m", 2)]),
        ("a step outside of a turn", false, vec![step(1, 1)]),
        ("a step of another turn", false, vec![start(1, "m", 1), step(2, 1)]),
        ("the first step is 1", false, vec![start(1, "m", 1), step(1, 0)]),
        ("steps count on", true, within(vec![step_end(1, 1), step(1, 2)])),
        ("no step is left out", false, within(vec![step_end(1, 1), step(1, 3)])),
        ("no step comes again", false, within(vec![step_end(1, 1), step(1, 1)])),
        ("one step at a time", false, within(vec![step(1, 2)])),
        ("an end of another step", false, within(vec![step_end(1, 2)])),
        ("an end of no step", false, within(vec![step_end(1, 1), step_end(1, 1)])),
        ("steps begin again with a turn", true, within(vec![step_end(1, 1), end(1), start(2, "n", 1), step(2, 1)])),
        ("a word outside of a turn", false, vec![said(1, 0, &[])]),
        ("a word of a turn without steps", true, vec![start(1, "m", 1), said(1, 0, &[])]),
        ("a word of a step that is not open", false, vec![start(1, "m", 1), said(1, 1, &[])]),
        ("a word in its step", true, within(vec![said(1, 1, &[])])),
        ("a word beside its step", false, within(vec![said(1, 0, &[])])),
        ("a word after its step", false, within(vec![step_end(1, 1), said(1, 1, &[])])),
        ("a call in its step", true, within(vec![said(1, 1, &["c"]), call(1, 1, "c")])),
        ("a call that nobody asked for", true, within(vec![call(1, 1, "c")])),
        ("a call outside of a step", false, vec![start(1, "m", 1), call(1, 0, "c")]),
        ("a call of another step", false, within(vec![call(1, 2, "c")])),
        ("a call outside of a turn", false, vec![call(1, 1, "c")]),
        ("a result of a call", true, within(vec![said(1, 1, &["c"]), call(1, 1, "c"), result(1, 1, "c")])),
        ("a result of a call that was not begun", true, within(vec![said(1, 1, &["c"]), result(1, 1, "c")])),
        ("a result of no call", false, within(vec![result(1, 1, "c")])),
        ("a result of another call", false, within(vec![call(1, 1, "c"), result(1, 1, "d")])),
        ("a second result", false, within(vec![call(1, 1, "c"), result(1, 1, "c"), result(1, 1, "c")])),
        ("a result in another step", false, within(vec![call(1, 1, "c"), step_end(1, 1), step(1, 2), result(1, 2, "c")])),
        ("a result outside of its step", false, within(vec![call(1, 1, "c"), step_end(1, 1), result(1, 1, "c")])),
        ("a memo outside of a turn", false, vec![memo(1, "m")]),
        ("a memo of another message", false, vec![start(1, "m", 1), memo(1, "n")]),
        ("a memo", true, vec![start(1, "m", 1), memo(1, "m")]),
        ("an effect of another message", false, vec![start(1, "m", 1), effect(1, "n")]),
        ("an effect", true, vec![start(1, "m", 1), effect(1, "m")]),
        ("an answer to another message", false, vec![start(1, "m", 1), answer("n", 1)]),
        ("an answer of another attempt", false, vec![start(1, "m", 1), answer("m", 2)]),
        ("an answer outside of a turn", false, vec![answer("m", 1)]),
        ("an answer", true, vec![start(1, "m", 1), answer("m", 1)]),
        ("notes outside of a turn", false, vec![Body::NoteJoined { turn: 1, notes: vec![id("n")] }]),
        ("a user between two turns", true, vec![start(1, "m", 1), end(1), asked("x"), start(2, "n", 1)]),
        ("a user before the first turn", true, vec![asked("x")]),
        ("an epoch that ends within a turn", false, vec![start(1, "m", 1), Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled }]),
        ("a root that is opened later", false, vec![Body::RootOpened(opened())]),
    ] {
        let mut fold = root();
        let last = log.len();
        for (body, at) in [Body::ActivationStart { epoch: 1 }].into_iter().chain(log).zip(0..) {
            let before = fold.clone();
            let done = fold.apply_event(&body.at(at as Seq, 7));
            assert_eq!(done.is_ok(), at < last || taken, "{what}: event {at}: {done:?}");
            assert!(done.is_ok() || fold == before, "{what}: a refusal changes nothing");
        }
    }
}

fn opened() -> RootOpened {
    RootOpened { label: "l".into(), agent: "a".into(), program_sha256: None, vars: [].into(), seed: None, params: None, model: None }
}

#[test]
fn events_follow_one_another_without_a_gap() {
    for (seq, taken) in [(0, false), (1, true), (2, false), (Seq::MAX, false)] {
        let mut fold = root();
        fold.apply_event(&Body::EndSeed {}.at(0, 0)).unwrap();
        let before = fold.clone();
        // Where the event itself is wrong, too, its place is told.
        let mut event = asked("m").at(seq, 0);
        event.surface_op = if taken { event.surface_op } else { None };
        let done = fold.apply_event(&event);
        assert_eq!(done.is_ok(), taken, "{seq}");
        if let Err(error) = done {
            assert_eq!((error.reason.as_str(), &fold), ("expected seq 1", &before));
        }
    }
}

#[test]
fn what_an_agent_said_last_is_not_unsaid_by_a_compaction() {
    let mut fold = root();
    let mut go = |body: Body, replaces: Option<(Seq, Seq)>| {
        let mut event = body.at(fold.head().next_seq, 0);
        if let Some((start, end)) = replaces {
            event.surface_op = Some(SurfaceOp::Replace { start, end });
            event.source_event_seqs = Some((start..=end).collect());
        }
        fold.apply_event(&event).unwrap();
        fold.last_said().map(|message| message.content.clone())
    };
    let speaks = |text: &str| {
        let content = if text.is_empty() { vec![] } else { vec![Block::text(text)] };
        let message = SurfaceMessage { id: id(&format!("a{text}")), role: Role::Assistant, content, source: Source::Agent { name: "a".into() } };
        Body::AssistantMessage { turn: 1, step: 0, message, usage: None, stop: None }
    };
    let text = |text: &str| Some(vec![Block::text(text)]);
    go(start(1, "m", 1), None);
    assert_eq!(go(asked("m"), None), None);
    assert_eq!(go(speaks("one"), None), text("one"));
    assert_eq!(go(speaks("two"), None), text("two"));
    assert_eq!(go(speaks(""), None), text("two"), "nothing is not said");
    assert_eq!(go(speaks("uno"), Some((2, 2))), text("two"), "an older word that is said anew");
    assert_eq!(go(speaks("due"), Some((3, 3))), text("due"), "the last word said anew");
    let summary = SurfaceMessage { id: id("s"), role: Role::User, content: vec![], source: Source::Host };
    let mut event = Body::UserMessage(summary).at(7, 0);
    event.surface_op = Some(SurfaceOp::Replace { start: 5, end: 4 });
    event.source_event_seqs = Some(vec![4, 5, 6]);
    fold.apply_event(&event).unwrap();
    assert_eq!(fold.last_said().map(|message| message.content.clone()), text("due"));
    assert_eq!(fold.surface().nodes().len(), 2);
}

#[test]
fn what_has_no_text_is_not_what_an_agent_said_last() {
    let mut fold = root();
    let mut go = |body: Body| {
        let event = body.at(fold.head().next_seq, 0);
        fold.apply_event(&event).unwrap();
        (fold.last_said().map(|message| message.content.clone()), fold.last_said_since(event.seq).is_some())
    };
    let speaks = |content: Vec<Block>| {
        let message = SurfaceMessage { id: id(&format!("a{}", content.len())), role: Role::Assistant, content, source: Source::Agent { name: "a".into() } };
        Body::AssistantMessage { turn: 1, step: 0, message, usage: None, stop: None }
    };
    let call = Block::ToolCall { id: "c".into(), name: "look".into(), arguments: "{}".into() };
    go(start(1, "m", 1));
    go(asked("m"));
    let said = Some(vec![Block::text("one"), call.clone()]);
    assert_eq!(go(speaks(vec![Block::text("one"), call.clone()])), (said.clone(), true));
    for content in [vec![], vec![Block::text("")], vec![call]] {
        assert_eq!(go(speaks(content)), (said.clone(), false));
    }
}

#[test]
fn an_outcome_is_of_the_turn_that_decided_it() {
    let mut fold = root();
    let mut turn = |turn: u64, message: Option<&str>, reason: TurnEnd| {
        for body in [Some(start(turn, message.unwrap_or("note"), 1)), message.map(asked), Some(Body::TurnEnd { turn, reason })].into_iter().flatten() {
            fold.apply_event(&body.at(fold.head().next_seq, 0)).unwrap();
        }
        (0..=turn).map(|after| fold.outcome_after(after).is_some()).collect::<Vec<_>>()
    };
    assert_eq!(turn(1, Some("m"), TurnEnd::error("NO_PAPER", "none")), [true, false]);
    // A turn that only took notes decides nothing, unless it fails.
    assert_eq!(turn(2, None, TurnEnd::Completed), [true, false, false]);
    assert_eq!(turn(3, None, TurnEnd::error("NO_PAPER", "none")), [true, true, true, false]);
}

#[test]
fn a_turn_that_was_cut_off_is_decided_by_the_one_that_serves_its_message_again() {
    let mut fold = root();
    let mut turn = |turn: u64, message: Option<&str>, attempt: u32, reason: TurnEnd| {
        let name = message.map_or_else(|| "note".to_owned(), str::to_owned);
        let heard = message.filter(|_| attempt == 1).map(asked);
        for body in [Some(start(turn, &name, attempt)), heard, Some(Body::TurnEnd { turn, reason })].into_iter().flatten() {
            fold.apply_event(&body.at(fold.head().next_seq, 0)).unwrap();
        }
        fold.outcome().cloned()
    };
    let failed = TurnEnd::error("NO_PAPER", "none");
    assert_eq!(turn(1, Some("m"), 1, TurnEnd::Interrupted), Some(TurnEnd::Interrupted));
    assert_eq!(turn(2, Some("m"), 2, failed.clone()), Some(failed.clone()));
    // That of a turn which only takes notes is put off as well, and comes to nothing when it completes.
    assert_eq!(turn(3, None, 1, TurnEnd::Disposed), Some(TurnEnd::Disposed));
    assert_eq!(turn(4, None, 2, TurnEnd::Completed), Some(failed));
    assert_eq!(turn(5, Some("n"), 1, TurnEnd::Completed), Some(TurnEnd::Completed));
}

#[test]
fn what_is_new_is_what_came_after_the_newest_settlement() {
    let mut fold = root();
    let mut go = |body: Body| {
        fold.apply_event(&body.at(fold.head().next_seq, 0)).unwrap();
        (fold.settled(), fold.taken_back().count, fold.taken_back().newest.clone())
    };
    let withdrawn = |message: &str| Body::MessageWithdrawn { message: id(message), by: "user".into() };
    let ends = |epoch, reason| Body::ActivationEnd { epoch, reason };
    let never = Settled::default();
    go(Body::ActivationStart { epoch: 1 });
    assert_eq!(go(withdrawn("m")), (never, 1, Some(id("m"))));
    assert_eq!(go(withdrawn("n")), (never, 2, Some(id("n"))));
    go(start(1, "o", 1));
    assert_eq!(go(end(1)), (never, 2, None), "the turn is what is newest");
    assert_eq!(go(withdrawn("p")), (never, 3, Some(id("p"))));
    assert_eq!(go(ends(1, EpochEnd::Disposed)), (never, 3, Some(id("p"))), "who is put aside has told nobody");
    go(Body::ActivationStart { epoch: 2 });
    assert_eq!(go(ends(2, EpochEnd::Settled)), (Settled { since: 9, turns: 1 }, 0, None));
}

/// Something that somebody tries to append, made concrete by what the log holds: numbers are right unless they are skewed.
#[derive(Debug, Clone)]
struct Try {
    what: u8,
    skew: u8,
    call: u8,
    from: usize,
    to: usize,
}

fn tries() -> impl Strategy<Value = Vec<Try>> {
    let one = (0..20_u8, prop_oneof![12 => Just(0_u8), 1 => Just(1)], 0..3_u8, 0..6_usize, 0..6_usize).prop_map(|(what, skew, call, from, to)| Try {
        what,
        skew,
        call,
        from,
        to,
    });
    prop::collection::vec(one, 0..60)
}

fn concrete(fold: &Fold, attempt: &Try) -> Event {
    let head = fold.head();
    let (seq, skew) = (head.next_seq, attempt.skew);
    let turn = head.turns + u64::from(skew);
    let open = head.open.as_ref();
    let at = open.and_then(|open| open.step).unwrap_or(0) + u32::from(skew);
    let next = open.map_or(0, |open| open.steps) + 1 + u32::from(skew);
    let message = open.map_or_else(|| id("m"), |open| open.message.clone());
    let call_id = format!("c{}", attempt.call);
    let body = match attempt.what {
        0 | 1 => match &head.retry {
            Some(retry) => Body::TurnStart { turn: turn + 1, message: retry.message.clone(), attempt: retry.attempts + 1 },
            None => start(turn + 1, &format!("m{seq}"), 1),
        },
        2 => Body::TurnEnd { turn, reason: [TurnEnd::Completed, TurnEnd::Interrupted, TurnEnd::Disposed][usize::from(attempt.call)].clone() },
        3 | 4 => step(turn, next),
        5 => step_end(turn, at),
        6 => asked(message.as_str()),
        7 => said(turn, at, &[&call_id]),
        8 => said(turn, at, &[]),
        9 => call(turn, at, &call_id),
        10 | 11 => result(turn, at, &call_id),
        12 => memo(turn, message.as_str()),
        13 => answer(message.as_str(), open.map_or(1, |open| open.attempt)),
        14 => Body::CompactStart { turn: open.map(|open| open.turn + u64::from(skew)) },
        15 => Body::CompactEnd { turn: head.compacting.and_then(|compacting| compacting.turn), error: (skew == 0).then(|| "X".to_owned()) },
        16 if head.live => Body::ActivationEnd { epoch: head.epoch, reason: EpochEnd::Disposed },
        16 => Body::ActivationStart { epoch: head.epoch + 1 },
        _ => asked(&format!("x{seq}")),
    };
    let mut event = body.at(seq, seq);
    let nodes = fold.surface().nodes();
    if let (17.., Some(start), Some(end)) = (attempt.what, nodes.get(attempt.from), nodes.get(attempt.to)) {
        event.surface_op = Some(SurfaceOp::Replace { start: start.seq, end: end.seq });
        event.source_event_seqs = Some((0..seq).collect());
    }
    event
}

proptest! {
    #[test]
    fn any_log_that_grows_event_by_event_is_whole_at_every_place(tries in tries()) {
        let (mut fold, mut log) = (root(), Vec::new());
        for attempt in &tries {
            let event = concrete(&fold, attempt);
            let (before, seen) = (fold.clone(), fold.surface().messages().cloned().collect::<Vec<_>>());
            if let Err(error) = fold.apply_event(&event) {
                prop_assert_eq!(error.seq, event.seq);
                prop_assert_eq!(&fold, &before, "a refusal changes nothing");
                continue;
            }
            prop_assert_eq!(fold.head().next_seq, event.seq + 1);
            if !event.body.is_surface() {
                prop_assert_eq!(fold.surface().messages().cloned().collect::<Vec<_>>(), seen, "what is not on the surface changes nothing that is seen");
            }
            if let Some(open) = &fold.head().open {
                let asked = log.iter().any(|event: &Event| event.body.surface_message().is_some_and(|message| message.id == open.message));
                let sees = fold.surface().nodes().iter().any(|node| node.message.id == open.message);
                prop_assert!(sees || !asked || !matches!(event.surface_op, Some(SurfaceOp::Replace { .. })), "an open turn sees what it was asked");
            }
            log.push(event);
        }
        // As a whole it is the same.
        let mut again = root();
        for event in &log {
            again.apply_event(event).unwrap();
        }
        prop_assert_eq!(&again, &fold);
        // Whatever a crash leaves open can be closed, once, and the next epoch can begin.
        let closing = closers(&fold, 3);
        prop_assert_eq!(&closing, &closers(&again, 3));
        prop_assert!(closing.iter().all(|event| event.time == fold.last_time()));
        let (_, events) = begin_epoch(&fold, 99, 3);
        prop_assert!(events.starts_with(&closing));
        for event in events {
            again.apply_event(&event).unwrap();
        }
        prop_assert_eq!(closers(&again, 3), vec![]);
        prop_assert!(again.head().open.is_none() && again.head().compacting.is_none() && again.head().live);
        // A fork of it sees the same, and can be compacted wherever nothing is torn apart.
        let seed = NewSession { seed_length: log.len() as Seq, ..NewSession::root(SessionId::new("f").unwrap()) };
        let mut fork = Fold::new(Arc::new(seed.at(0)));
        for event in log.iter().chain([&Body::EndSeed {}.at(log.len() as Seq, 0)]) {
            fork.apply_event(event).unwrap();
        }
        prop_assert_eq!(fork.surface(), fold.surface());
        if let [first, .., last] = fork.surface().nodes() {
            prop_assert!(Plan::new(&fork, first.seq, last.seq).is_ok(), "everything can be compacted where nothing is under way");
        }
    }
}
