//! What a session begins with and what is added to it must be right by itself and follow from what came before, on every store.

use std::sync::Arc;

use greenroom_session::{
    event::{Body, Event, Opaque, Role, SurfaceMessage, SurfaceOp},
    message::{Block, Source},
    store::{Create, Done, Op},
};
use serde_json::{Value, json};

use crate::support::{Fixture, append, mid, root, sid};

crate::on_every_store!(
    a_seed_that_breaks_a_rule_is_refused_and_its_id_is_free,
    an_event_that_breaks_a_rule_is_refused_and_the_log_goes_on,
    a_seed_is_kept_as_it_was_given,
);

fn said(role: Role, source: Source) -> Body {
    Body::UserMessage(SurfaceMessage { id: mid("x"), role, content: vec![Block::text("x")], source })
}

fn odd(data: Value) -> Body {
    Body::Opaque(Opaque { name: "odd/one".into(), data })
}

/// Events that nothing may hold at `seq`, whatever came before.
fn wrong(seq: u64) -> Vec<(&'static str, Event)> {
    let user = || said(Role::User, Source::User).at(seq, 1);
    vec![
        ("a gap", user_at(seq + 1)),
        ("a message without an operation", Event { surface_op: None, ..user() }),
        ("an operation on what is not on the surface", Event { surface_op: Some(SurfaceOp::Append), ..Body::EndSeed {}.at(seq, 1) }),
        ("sources of what is not on the surface", Event { source_event_seqs: Some(vec![0]), ..Body::EndSeed {}.at(seq, 1) }),
        ("a source that is not earlier", Event { source_event_seqs: Some(vec![seq]), ..user() }),
        ("no source", Event { source_event_seqs: Some(vec![]), ..user() }),
        ("a user in the role of the agent", said(Role::Assistant, Source::User).at(seq, 1)),
        ("data that would come back as something else", odd(json!({"x": [-0.0]})).at(seq, 1)),
        ("a known type without its shape", Body::Opaque(Opaque { name: "turn/start".into(), data: json!({}) }).at(seq, 1)),
        ("a step outside of a turn", Body::StepStart { turn: 1, step: 1 }.at(seq, 1)),
    ]
}

fn user_at(seq: u64) -> Event {
    said(Role::User, Source::User).at(seq, 1)
}

fn a_seed_that_breaks_a_rule_is_refused_and_its_id_is_free(f: &Fixture) {
    f.root("r");
    let seeded = |name: &str, events: Vec<Event>| Op::Create(Create { events: events.into(), ..root(name, 1) });
    // A seed is there as a whole, so that a message in the place of others is looked at, too.
    let replaces =
        |start, end, sources: &[u64]| Event { surface_op: Some(SurfaceOp::Replace { start, end }), source_event_seqs: Some(sources.to_vec()), ..user_at(1) };
    let replacements = [("in the place of what is not there", replaces(7, 7, &[0])), ("in the place of more than it names", replaces(0, 0, &[]))];
    for (what, event) in wrong(1).into_iter().chain(replacements) {
        for events in [vec![user_at(0), event.clone()], vec![user_at(0), event, Body::EndSeed {}.at(2, 1)]] {
            assert_eq!(f.one(seeded("s", events)).unwrap_err().code(), "EVENT_INVALID", "{what}");
            assert_eq!(f.reader().header(&sid("s")).unwrap(), None, "{what}");
        }
    }
    assert!(matches!(f.one(seeded("s", vec![user_at(0), Body::EndSeed {}.at(1, 1)])), Ok(Done::Created { existing: false, .. })));
}

fn an_event_that_breaks_a_rule_is_refused_and_the_log_goes_on(f: &Fixture) {
    f.root("r");
    let (fence, _) = f.open("r", None);
    let seq = f.next_seq("r");
    for (what, event) in wrong(seq + 1) {
        let error = f.one(append(&fence, vec![user_at(seq), event], vec![])).unwrap_err();
        assert_eq!(error.code(), "EVENT_INVALID", "{what}");
        assert_eq!(f.next_seq("r"), seq, "{what}: nothing of it was written");
    }
    let lossy = f.one(append(&fence, vec![odd(json!(-0.0)).at(seq, 1)], vec![])).unwrap_err().to_string();
    assert!(lossy.contains("odd/one") && lossy.contains("/data"), "it names the type and the place: {lossy}");
    assert_eq!(f.one(append(&fence, vec![user_at(seq)], vec![])), Ok(Done::Appended));
}

fn a_seed_is_kept_as_it_was_given(f: &Fixture) {
    let data = json!({"wind": [0.1, 1e300, u64::MAX, i64::MIN, 9_007_199_254_740_993_u64, null, {"": "\u{0}\u{2028}\u{1F3AD}"}]});
    let mut given = vec![user_at(0), odd(data).at(1, 2), Body::EndSeed {}.at(2, 3)];
    given[1].ignorable = true;
    let mut events: Arc<[Event]> = given.clone().into();
    f.one(Op::Create(Create { events: events.clone(), ..root("s", 1) })).unwrap();
    // What becomes of the giver's own afterwards does not matter.
    if let Some(event) = Arc::make_mut(&mut events).first_mut() {
        event.time = 99;
    }
    let before = f.load("s").events;
    assert_eq!(before, given);
    assert_eq!(format!("{before:?}"), format!("{given:?}"), "to the last bit");
    // What was read does not grow.
    let (fence, _) = f.open("s", None);
    f.one(append(&fence, vec![user_at(4)], vec![])).unwrap();
    assert_eq!((before.len(), f.load("s").events.len()), (3, 5));
}
