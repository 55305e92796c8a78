//! Listing: families in order, orphans, descriptions, names.

use std::sync::Arc;

use greenroom_session::{
    event::Body,
    head::TurnState,
    header::NewSession,
    listing::{Cursor, Reason, Verdict},
    store::{Create, Op, Traced},
};
use serde_json::json;

use crate::support::{Fixture, child, describe, fork, root, sid, turn};

crate::on_every_store!(
    children_come_page_by_page_in_order,
    roots_and_orphans_stand_together,
    an_orphan_is_one_only_until_its_parent_comes,
    a_session_that_is_its_own_parent_is_nobodys_orphan,
    a_description_says_what_a_child_is_and_does,
    a_plain_fork_is_no_child,
    two_descriptors_are_damage_and_a_newer_one_is_unsupported,
    a_description_of_an_unknown_session_is_a_value,
    ids_are_found_by_their_beginning,
    an_empty_store_answers,
);

fn ids(traced: &[Traced]) -> Vec<&str> {
    traced.iter().map(|child| child.id.as_str()).collect()
}

fn children_come_page_by_page_in_order(f: &Fixture) {
    f.root("r");
    for (id, time) in [("d", 30), ("b", 30), ("a", 2_000), ("c", 2_000), ("e", 3_000)] {
        f.create(child(id, "r", None, time));
    }
    let mut reader = f.reader();
    let all = reader.children(Some(&sid("r")), None, 99).unwrap();
    assert_eq!(ids(&all), ["b", "d", "a", "c", "e"]);
    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let page = reader.children(Some(&sid("r")), after.as_ref(), 2).unwrap();
        let Some(last) = page.last() else { break };
        after = Some(Cursor { created_at: last.created_at, id: last.id.clone() });
        paged.extend(page);
    }
    assert_eq!(paged, all);
    assert_eq!(reader.children(Some(&sid("r")), Some(&Cursor { created_at: u64::MAX, id: sid("a") }), 9).unwrap(), []);
    assert_eq!(reader.children(Some(&sid("r")), None, 0).unwrap(), []);
    assert_eq!(reader.children(Some(&sid("b")), None, 9).unwrap(), []);
}

fn roots_and_orphans_stand_together(f: &Fixture) {
    f.create(root("r", 50));
    f.create(root("q", 10));
    f.create(child("lost", "away", None, 20));
    f.create(child("also", "away", None, 60));
    f.create(child("gone", "far", None, 50));
    f.create(child("c", "r", None, 55));
    let mut reader = f.reader();
    let all = reader.children(None, None, 99).unwrap();
    assert_eq!(ids(&all), ["q", "lost", "gone", "r", "also"]);
    let first = reader.children(None, None, 3).unwrap();
    let last = first.last().unwrap();
    let rest = reader.children(None, Some(&Cursor { created_at: last.created_at, id: last.id.clone() }), 99).unwrap();
    assert_eq!((ids(&first), ids(&rest)), (vec!["q", "lost", "gone"], vec!["r", "also"]));
}

fn an_orphan_is_one_only_until_its_parent_comes(f: &Fixture) {
    f.create(child("c", "p", None, 20));
    f.create(child("d", "p", None, 20));
    assert_eq!(ids(&f.reader().children(None, None, 9).unwrap()), ["c", "d"]);
    f.create(root("p", 30));
    assert_eq!(ids(&f.reader().children(None, None, 9).unwrap()), ["p"]);
    assert_eq!(ids(&f.reader().children(Some(&sid("p")), None, 9).unwrap()), ["c", "d"]);
}

fn a_session_that_is_its_own_parent_is_nobodys_orphan(f: &Fixture) {
    f.create(child("c", "c", None, 20));
    assert_eq!(f.reader().children(None, None, 9).unwrap(), []);
    assert_eq!(ids(&f.reader().children(Some(&sid("c")), None, 9).unwrap()), ["c"]);
}

fn a_description_says_what_a_child_is_and_does(f: &Fixture) {
    f.root("r");
    f.create(child("c", "r", Some("anna"), 1));
    f.child("g", "c");
    f.accept("c", turn("m0")).unwrap();
    f.accept("c", turn("m1")).unwrap();
    let before = f.describe("c").unwrap();
    assert!(matches!(&before.verdict, Verdict::Child { label: Some(label), agent, alias: Some(alias), descriptor: 0, .. }
        if label == "child c" && agent == "reporter" && alias == "anna"));
    assert_eq!((before.head.pending_turns, before.has_children, before.holder), (2, true, None));
    f.open("c", Some(1));
    let after = f.describe("c").unwrap();
    assert_eq!((after.head.pending_turns, after.head.turn_state(after.holder.is_some())), (1, TurnState::Open));
    assert_eq!(describe(&mut *f.reader(), "c", true).unwrap(), after);
    assert!(matches!(f.describe("r").unwrap().verdict, Verdict::Root { label, .. } if label == "root r"));
    assert!(!f.describe("g").unwrap().has_children);
}

fn a_plain_fork_is_no_child(f: &Fixture) {
    f.root("r");
    f.create(fork("x", "r", 1));
    assert_eq!(f.describe("x").unwrap().verdict, Verdict::Plain);
    assert!(!f.describe("r").unwrap().has_children);
    f.create(fork("y", "r", 1));
    f.child("c", "r");
    assert!(f.describe("r").unwrap().has_children);
    assert_eq!(ids(&f.reader().children(Some(&sid("r")), None, 9).unwrap()), ["c", "x", "y"]);
}

fn two_descriptors_are_damage_and_a_newer_one_is_unsupported(f: &Fixture) {
    f.root("r");
    let good = child("x", "r", None, 1).events[0].body.clone();
    let create = |id: &str, events: Vec<Body>| Create {
        session: NewSession::child(sid(id), sid("r"), 0),
        time: 1,
        events: events.into_iter().enumerate().map(|(seq, body)| body.at(seq as u64, 1)).collect::<Vec<_>>().into(),
        message: None,
    };
    f.create(create("two", vec![good.clone(), good]));
    f.create(create("newer", vec![Body::Descriptor(json!({"version": 2}))]));
    f.create(create("bad", vec![Body::Descriptor(json!({"version": "one"}))]));
    f.create(create("none", vec![]));
    for (id, verdict) in [
        ("two", Verdict::Broken { reason: Reason::Corrupt }),
        ("newer", Verdict::Broken { reason: Reason::Unsupported }),
        ("bad", Verdict::Broken { reason: Reason::Corrupt }),
        ("none", Verdict::Plain),
    ] {
        assert_eq!(f.describe(id).unwrap().verdict, verdict, "{id}");
        assert_eq!(describe(&mut *f.reader(), id, true).unwrap(), f.describe(id).unwrap());
    }
    assert!(f.describe("r").unwrap().has_children);
}

fn a_description_of_an_unknown_session_is_a_value(f: &Fixture) {
    f.root("r");
    let header = Arc::new(NewSession::root(sid("nobody")).at(1));
    let nobody = Traced { id: sid("nobody"), created_at: 1, header: Ok(header) };
    let mut reader = f.reader();
    let known = reader.children(None, None, 1).unwrap().remove(0);
    let described = reader.describe(&[nobody, known], false).unwrap();
    assert_eq!(described[0].as_ref().unwrap_err().code(), "SESSION_NOT_FOUND");
    assert!(described[1].is_ok());
}

fn ids_are_found_by_their_beginning(f: &Fixture) {
    for id in ["abc", "abd", "ab", "b", "ä", "äb"] {
        f.root(id);
    }
    let find = |prefix: &str, limit| -> Vec<String> { f.reader().find(prefix, limit).unwrap().iter().map(ToString::to_string).collect() };
    assert_eq!(find("ab", 9), ["ab", "abc", "abd"]);
    assert_eq!(find("ab", 2), ["ab", "abc"]);
    assert_eq!(find("ä", 9), ["ä", "äb"]);
    assert_eq!(find("", 9), ["ab", "abc", "abd", "b", "ä", "äb"]);
    assert_eq!(find("c", 9), Vec::<String>::new());
    assert_eq!(find("%", 9), Vec::<String>::new());
}

fn an_empty_store_answers(f: &Fixture) {
    let mut reader = f.reader();
    assert_eq!(reader.children(None, None, 9).unwrap(), []);
    assert_eq!(reader.runnable(None, 9).unwrap(), []);
    assert_eq!(reader.leases(None).unwrap(), []);
    assert_eq!(reader.find("", 9).unwrap(), []);
    assert_eq!(reader.header(&sid("r")).unwrap(), None);
    assert_eq!(reader.load(&sid("r")).unwrap_err().code(), "SESSION_NOT_FOUND");
    assert_eq!(f.store.commit(&[] as &[Op]).unwrap(), []);
    assert_eq!(f.store.poll().unwrap(), []);
    f.store.heartbeat().unwrap();
    f.store.close().unwrap();
}
