use proptest::prelude::*;

use super::*;
use crate::{
    event::Role,
    fold::Fold,
    header::NewSession,
    id::{MessageId, SessionId},
    message::{Block, Source},
};

fn said(seq: Seq, op: Option<SurfaceOp>, sources: Option<Vec<Seq>>) -> Event {
    let message = SurfaceMessage { id: MessageId::new(format!("m{seq}")).unwrap(), role: Role::User, content: vec![Block::text("x")], source: Source::User };
    Event { seq, time: 0, body: Body::UserMessage(message), surface_op: op, source_event_seqs: sources, ignorable: false }
}

fn replace(start: Seq, end: Seq) -> SurfaceOp {
    SurfaceOp::Replace { start, end }
}

/// A tool's result. Whatever is not the call's own is told apart by `id`.
fn result(seq: Seq, turn: u64, id: &str, call_id: &str, text: &str) -> Event {
    let content = vec![Block::ToolResult { call_id: call_id.into(), text: text.into(), is_error: false }];
    let message = SurfaceMessage { id: MessageId::new(id).unwrap(), role: Role::Tool, content, source: Source::Tool { call_id: call_id.into() } };
    Body::ToolResult { turn, step: 1, message, error: None }.at(seq, 0)
}

fn three() -> Surface {
    let mut surface = Surface::default();
    for seq in 0..3 {
        surface.apply(&said(seq, Some(SurfaceOp::Append), None)).unwrap();
    }
    surface
}

fn seqs(surface: &Surface) -> Vec<Seq> {
    surface.nodes().iter().map(|node| node.seq).collect()
}

#[test]
fn a_replacement_takes_the_place_of_a_run() {
    for (what, start, end, expected) in [
        ("the head", 0, 0, vec![3, 1, 2]),
        ("the middle", 1, 1, vec![0, 3, 2]),
        ("the tail", 2, 2, vec![0, 1, 3]),
        ("a run at the tail", 1, 2, vec![0, 3]),
        ("everything", 0, 2, vec![3]),
    ] {
        let mut surface = three();
        let replaced = surface.apply(&said(3, Some(replace(start, end)), Some((start..=end).collect()))).unwrap();
        assert_eq!(replaced, Some(Replacement { seq: 3, start, end, shadowed: (start..=end).collect() }), "{what}");
        assert_eq!((seqs(&surface), surface.replacements()), (expected, 1), "{what}");
    }
}

#[test]
fn the_order_of_a_run_is_that_of_the_surface_and_not_of_the_numbers() {
    let mut surface = three();
    surface.apply(&said(3, Some(replace(0, 0)), Some(vec![0]))).unwrap();
    assert_eq!(seqs(&surface), [3, 1, 2]);
    assert!(surface.apply(&said(4, Some(replace(1, 3)), Some(vec![1, 3]))).is_err(), "1 stands after 3");
    let replaced = surface.apply(&said(4, Some(replace(3, 1)), Some(vec![1, 3]))).unwrap();
    assert_eq!(replaced.map(|replaced| replaced.shadowed), Some(vec![3, 1]));
    assert_eq!(seqs(&surface), [4, 2]);
    assert!(surface.apply(&said(5, Some(replace(3, 3)), Some(vec![3]))).is_err(), "what was replaced is not current");
}

#[test]
fn a_refused_event_changes_nothing() {
    for (what, op, sources) in [
        ("no operation", None, None),
        ("reversed ends", Some(replace(1, 0)), Some(vec![0, 1])),
        ("no such end", Some(replace(0, 7)), Some(vec![0, 1, 2])),
        ("no such start", Some(replace(7, 2)), Some(vec![0, 1, 2])),
        ("one left out", Some(replace(0, 1)), Some(vec![0])),
        ("the one in the middle left out", Some(replace(0, 2)), Some(vec![0, 2])),
        ("none named", Some(replace(0, 1)), None),
        ("nothing it stands for", Some(SurfaceOp::Append), Some(vec![])),
        ("one named twice", Some(SurfaceOp::Append), Some(vec![1, 1])),
        ("out of order", Some(SurfaceOp::Append), Some(vec![1, 0])),
        ("itself", Some(SurfaceOp::Append), Some(vec![3])),
        ("a later one", Some(SurfaceOp::Append), Some(vec![9])),
    ] {
        let mut surface = three();
        assert!(surface.apply(&said(3, op, sources)).is_err(), "{what}");
        assert_eq!(surface, three(), "{what}");
    }
    for (op, sources) in [(Some(SurfaceOp::Append), None), (Some(replace(0, 0)), Some(vec![0])), (None, Some(vec![0]))] {
        let event = Event { surface_op: op, source_event_seqs: sources, ..Body::EndSeed {}.at(3, 0) };
        assert!(three().apply(&event).is_err(), "{event:?}");
    }
}

#[test]
fn a_message_on_the_surface_is_whose_its_event_says() {
    let message = |role, content, source| SurfaceMessage { id: MessageId::new("m").unwrap(), role, content, source };
    let text = || vec![Block::text("x")];
    let agent = || Source::Agent { name: "a".into() };
    let model = || Source::Model { provider: "p".into(), name: "m".into() };
    let tool = || Source::Tool { call_id: "c".into() };
    let answer = |call_id: &str| Block::ToolResult { call_id: call_id.into(), text: "x".into(), is_error: false };
    let strange: Source = serde_json::from_str(r#"{"kind":"oracle"}"#).unwrap();
    let assistant = |message| Body::AssistantMessage { turn: 1, step: 0, message, usage: None, stop: None };
    let result = |message| Body::ToolResult { turn: 1, step: 1, message, error: None };
    for (what, body, taken) in [
        ("a user", Body::UserMessage(message(Role::User, text(), Source::User)), true),
        ("a user of a kind that is not known", Body::UserMessage(message(Role::User, text(), strange.clone())), true),
        ("a user without a word", Body::UserMessage(message(Role::User, vec![], Source::User)), true),
        ("a user in the role of the agent", Body::UserMessage(message(Role::Assistant, text(), Source::User)), false),
        ("a user in the role of a tool", Body::UserMessage(message(Role::Tool, text(), Source::User)), false),
        ("an agent", assistant(message(Role::Assistant, text(), agent())), true),
        ("a model", assistant(message(Role::Assistant, text(), model())), true),
        ("a model without a word", assistant(message(Role::Assistant, vec![], model())), true),
        ("an agent in the role of a user", assistant(message(Role::User, text(), agent())), false),
        ("a user as the agent", assistant(message(Role::Assistant, text(), Source::User)), false),
        ("somebody who is not known as the agent", assistant(message(Role::Assistant, text(), strange)), false),
        ("a tool", result(message(Role::Tool, vec![answer("c")], tool())), true),
        ("a tool in the role of a user", result(message(Role::User, vec![answer("c")], tool())), false),
        ("a tool that answers another call", result(message(Role::Tool, vec![answer("d")], tool())), false),
        ("a tool that answers twice", result(message(Role::Tool, vec![answer("c"), answer("c")], tool())), false),
        ("a tool that answers and says more", result(message(Role::Tool, vec![answer("c"), Block::text("x")], tool())), false),
        ("a tool that says something", result(message(Role::Tool, text(), tool())), false),
        ("a tool without a word", result(message(Role::Tool, vec![], tool())), false),
        ("an agent as a tool", result(message(Role::Tool, vec![answer("c")], agent())), false),
    ] {
        let mut surface = three();
        assert_eq!(surface.apply(&body.at(3, 0)).is_ok(), taken, "{what}");
        assert_eq!(surface == three(), !taken, "{what}");
    }
}

#[test]
fn a_tools_result_may_be_written_anew_and_nothing_of_it_changes_but_its_text() {
    let base = || {
        let mut surface = three();
        surface.apply(&result(3, 1, "t", "c", "long")).unwrap();
        surface.apply(&result(4, 1, "u", "d", "long")).unwrap();
        surface
    };
    let with = |mut event: Event, start, end, change: fn(&mut Body)| {
        event.surface_op = Some(replace(start, end));
        event.source_event_seqs = Some((start..=end).collect());
        change(&mut event.body);
        event
    };
    let failed = |body: &mut Body| {
        let Body::ToolResult { message, .. } = body else { return };
        message.content = vec![Block::ToolResult { call_id: "c".into(), text: "short".into(), is_error: true }];
    };
    let later = |body: &mut Body| {
        if let Body::ToolResult { step, .. } = body {
            *step = 2;
        }
    };
    for (what, event, taken) in [
        ("its text", with(result(5, 1, "t", "c", "short"), 3, 3, |_| ()), true),
        ("nothing at all", with(result(5, 1, "t", "c", "long"), 3, 3, |_| ()), true),
        ("its id", with(result(5, 1, "v", "c", "short"), 3, 3, |_| ()), false),
        ("its call", with(result(5, 1, "t", "e", "short"), 3, 3, |_| ()), false),
        ("whether it failed", with(result(5, 1, "t", "c", "short"), 3, 3, failed), false),
        ("its turn", with(result(5, 2, "t", "c", "short"), 3, 3, |_| ()), false),
        ("its step", with(result(5, 1, "t", "c", "short"), 3, 3, later), false),
        ("two at once", with(result(5, 1, "t", "c", "short"), 3, 4, |_| ()), false),
        ("what is no result", with(result(5, 1, "m2", "c", "short"), 2, 2, |_| ()), false),
    ] {
        let mut surface = base();
        assert_eq!(surface.apply(&event).is_ok(), taken, "{what}");
        assert_eq!(surface == base(), !taken, "{what}");
    }
    // Once more, and by another message with the rest of the run.
    let mut surface = base();
    surface.apply(&with(result(5, 1, "t", "c", "short"), 3, 3, |_| ())).unwrap();
    surface.apply(&with(result(6, 1, "t", "c", ""), 5, 5, |_| ())).unwrap();
    surface.apply(&said(7, Some(replace(6, 4)), Some(vec![4, 6]))).unwrap();
    assert_eq!(seqs(&surface), [0, 1, 2, 7]);
}

#[test]
fn what_stands_in_for_a_tools_result_gives_way_to_one_that_did_not_fail() {
    for (code, taken) in [(Some("TOOL_NOT_STARTED"), true), (Some("TOOL_OUTCOME_UNKNOWN"), true), (Some("TIMEOUT"), false), (None, false)] {
        let mut surface = three();
        let with = |seq, text: &str, is_error, error: Option<serde_json::Value>| {
            let mut event = result(seq, 1, "t", "c", text);
            let Body::ToolResult { message, error: slot, .. } = &mut event.body else { unreachable!() };
            message.content = vec![Block::ToolResult { call_id: "c".into(), text: text.into(), is_error }];
            *slot = error;
            event
        };
        surface.apply(&with(3, "cut off", true, code.map(|code| serde_json::json!({"name": "ToolError", "code": code})))).unwrap();
        let mut real = with(4, "sunny", false, None);
        real.surface_op = Some(replace(3, 3));
        real.source_event_seqs = Some(vec![3]);
        assert_eq!(surface.apply(&real).is_ok(), taken, "{code:?}");
    }
}

#[test]
fn only_an_agent_that_says_nothing_is_left_out_of_what_a_model_sees() {
    let mut surface = Surface::default();
    let silent = |id: &str, role, source| SurfaceMessage { id: MessageId::new(id).unwrap(), role, content: vec![], source };
    let agent = silent("a", Role::Assistant, Source::Agent { name: "a".into() });
    surface.apply(&Body::UserMessage(silent("u", Role::User, Source::User)).at(0, 0)).unwrap();
    surface.apply(&Body::AssistantMessage { turn: 1, step: 0, message: agent, usage: None, stop: None }.at(1, 0)).unwrap();
    assert_eq!(surface.nodes().len(), 2);
    assert_eq!(surface.messages().map(|message| message.id.as_str()).collect::<Vec<_>>(), ["u"]);
}

/// Something that somebody tries to append.
#[derive(Debug, Clone)]
enum Try {
    Say,
    Memo,
    Result { call: u8 },
    Replace { from: usize, to: usize, sources: Sources, other: Option<usize> },
    Rewrite { of: usize, keep: bool },
}

/// What a replacement says that it stands for.
#[derive(Debug, Clone, Copy)]
enum Sources {
    Complete,
    AndEarlier,
    Without(usize),
    Unsorted,
    AndItself,
    Absent,
}

fn tries() -> impl Strategy<Value = Vec<Try>> {
    let sources = prop_oneof![
        6 => Just(Sources::Complete),
        2 => Just(Sources::AndEarlier),
        1 => (0..4_usize).prop_map(Sources::Without),
        1 => Just(Sources::Unsorted),
        1 => Just(Sources::AndItself),
        1 => Just(Sources::Absent),
    ];
    let other = prop_oneof![4 => Just(None), 1 => (0..40_usize).prop_map(Some)];
    let one = prop_oneof![
        4 => Just(Try::Say),
        2 => Just(Try::Memo),
        2 => (0..3_u8).prop_map(|call| Try::Result { call }),
        6 => (0..8_usize, 0..8_usize, sources, other).prop_map(|(from, to, sources, other)| Try::Replace { from, to, sources, other }),
        2 => (0..8_usize, any::<bool>()).prop_map(|(of, keep)| Try::Rewrite { of, keep }),
    ];
    prop::collection::vec(one, 0..40)
}

/// A node as the rules are told in words: where it stands, and the call that it answers.
type Told = (Seq, Option<u8>);

/// Makes a try concrete, and says what must become of the surface; `None`: it must be refused.
fn concrete(attempt: &Try, seq: Seq, told: &[Told]) -> (Event, Option<Vec<Told>>) {
    let results = |call: u8| result(seq, 1, &format!("t{call}"), &format!("c{call}"), &seq.to_string());
    let appended = |call| told.iter().copied().chain([(seq, call)]).collect();
    match *attempt {
        Try::Say => (said(seq, Some(SurfaceOp::Append), None), Some(appended(None))),
        Try::Memo => (Body::EndSeed {}.at(seq, 0), Some(told.to_vec())),
        Try::Result { call } => (results(call), Some(appended(Some(call)))),
        Try::Rewrite { of, keep } => {
            let Some(&(at, call)) = told.get(of) else { return concrete(&Try::Say, seq, told) };
            let mut event = results(if keep { call.unwrap_or(9) } else { 9 });
            event.surface_op = Some(replace(at, at));
            event.source_event_seqs = Some(vec![at]);
            let mut after = told.to_vec();
            after[of] = (seq, call);
            (event, (keep && call.is_some()).then_some(after))
        }
        Try::Replace { from, to, sources, other } => {
            let (Some(&(start, _)), Some(&(end, _))) = (told.get(from), told.get(to)) else { return concrete(&Try::Say, seq, told) };
            // Now and then an end that need not be current.
            let start = other.map_or(start, |other| other as Seq);
            let mut named: Vec<Seq> = told[from.min(to)..=from.max(to)].iter().map(|(seq, _)| *seq).collect();
            named.sort_unstable();
            match sources {
                Sources::Complete => {}
                Sources::AndEarlier => named = (0..seq).collect(),
                Sources::Without(at) => drop(named.remove(at % named.len())),
                Sources::Unsorted => named.reverse(),
                Sources::AndItself => named.push(seq),
                Sources::Absent => named.clear(),
            }
            let stands = |wanted: Seq| told.iter().position(|(seq, _)| *seq == wanted);
            let in_order = named.iter().zip(named.iter().skip(1)).all(|(a, b)| a < b) && !named.contains(&seq);
            let after = match (stands(start), stands(end)) {
                (Some(from), Some(to)) if from <= to && in_order && told[from..=to].iter().all(|(seq, _)| named.contains(seq)) => {
                    Some([&told[..from], &[(seq, None)], &told[to + 1..]].concat())
                }
                _ => None,
            };
            (said(seq, Some(replace(start, end)), (!named.is_empty()).then_some(named)), after)
        }
    }
}

proptest! {
    #[test]
    fn any_log_folds_step_by_step_to_what_it_folds_to_as_a_whole(tries in tries()) {
        let (mut surface, mut told, mut log) = (Surface::default(), Vec::<Told>::new(), Vec::<Event>::new());
        let mut shadowed = 0;
        for attempt in &tries {
            let (event, expected) = concrete(attempt, log.len() as Seq, &told);
            let before = surface.clone();
            match (surface.apply(&event), expected) {
                (Ok(replaced), Some(after)) => {
                    let gone: Vec<Seq> = told.iter().map(|(seq, _)| *seq).filter(|seq| !after.iter().any(|(left, _)| left == seq)).collect();
                    prop_assert_eq!(replaced.map(|replaced| replaced.shadowed).unwrap_or_default(), gone.clone());
                    shadowed += gone.len();
                    if !event.body.is_surface() {
                        prop_assert_eq!(&before, &surface, "what is not on the surface does not change it");
                    }
                    told = after;
                    log.push(event);
                }
                (Err(error), None) => {
                    prop_assert_eq!(error.seq, event.seq);
                    prop_assert_eq!(&before, &surface, "a refusal changes nothing");
                }
                (found, expected) => prop_assert!(false, "{event:?} on {told:?}: {found:?} where {expected:?} is right"),
            }
            prop_assert_eq!(seqs(&surface), told.iter().map(|(seq, _)| *seq).collect::<Vec<_>>());
        }
        let mut again = Surface::default();
        for event in &log {
            again.apply(event).unwrap();
        }
        prop_assert_eq!(&again, &surface);
        // Every event of the surface is current or was replaced, and by one replacement only.
        prop_assert_eq!(log.iter().filter(|event| event.body.is_surface()).count(), surface.nodes().len() + shadowed);
        // What was lived here is given to a fork, which sees the same.
        let mut fork = Fold::new(Arc::new(NewSession { seed_length: log.len() as Seq, ..NewSession::root(SessionId::new("f").unwrap()) }.at(0)));
        for event in log.iter().chain([&Body::EndSeed {}.at(log.len() as Seq, 0)]) {
            fork.apply_event(event).unwrap();
        }
        prop_assert_eq!(fork.surface(), &surface);
        let seen: Vec<_> = fork.surface().messages().collect();
        prop_assert_eq!(seen, surface.messages().collect::<Vec<_>>());
    }
}
