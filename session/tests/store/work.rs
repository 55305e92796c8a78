//! Epochs, leases, appends, and which sessions have work.

use greenroom_session::{
    event::{Body, Event, TurnEnd},
    store::{ClaimKind, Done, Lease, Op, Open, Refused},
};

use crate::support::{Fixture, accept, append, child, close, fence, open, root, sid, turn};

crate::on_every_store!(
    an_epoch_begins_once_and_only_in_its_turn,
    an_epoch_begins_and_ends_by_its_events,
    an_append_of_another_epoch_is_fenced,
    an_append_goes_to_the_next_place_only,
    an_append_that_does_not_follow_is_refused_whole,
    what_a_session_is_cannot_be_changed_later,
    a_closed_epoch_writes_no_more,
    a_session_with_work_does_not_settle,
    a_session_disposed_with_work_closes,
    opening_again_takes_over_from_oneself,
    leases_are_told_by_tree,
    sessions_with_work_and_no_holder_are_runnable,
    a_session_whose_turn_was_cut_off_is_runnable,
    a_tree_of_three_thousand_levels_is_walked,
    parents_that_name_each_other_end_the_walk,
);

fn an_epoch_begins_once_and_only_in_its_turn(f: &Fixture) {
    f.root("r");
    let start = |epoch, seq| {
        let events = std::sync::Arc::new([Body::ActivationStart { epoch }.at(seq, 1)]);
        Op::Open(Open { session: sid("r"), epoch, events, claim: None })
    };
    assert_eq!(f.one(start(2, 2)), Err(Refused::Fenced { stored: 0 }));
    assert_eq!(f.one(start(1, 1)), Err(Refused::Moved { stored: 2 }));
    assert_eq!(f.one(start(1, 2)), Ok(Done::Opened { claimed: None }));
    assert_eq!(f.one(start(1, 3)), Err(Refused::Fenced { stored: 1 }));
    let head = f.load("r").fold.head().clone();
    assert_eq!((head.epoch, head.live, head.next_seq), (1, true, 3));
}

fn an_epoch_begins_and_ends_by_its_events(f: &Fixture) {
    f.root("r");
    let silent = Op::Open(Open { session: sid("r"), epoch: 1, events: std::sync::Arc::new([]), claim: None });
    assert_eq!(f.one(silent).unwrap_err().code(), "EVENT_INVALID");
    assert_eq!(f.reader().leases(None).unwrap(), []);
    let (fence, _) = f.open("r", None);
    let silent = Op::Close(greenroom_session::store::Close { fence, events: std::sync::Arc::new([]), unless_pending: false });
    assert_eq!(f.one(silent).unwrap_err().code(), "EVENT_INVALID");
    assert_eq!(f.reader().leases(None).unwrap().len(), 1);
}

fn an_append_of_another_epoch_is_fenced(f: &Fixture) {
    f.root("r");
    assert_eq!(f.one(append(&fence("r", 0), vec![], vec![])), Err(Refused::Fenced { stored: 0 }));
    let (first, _) = f.open("r", None);
    let (second, _) = f.open("r", None);
    let seq = f.next_seq("r");
    let memo = |seq| vec![Body::MessageWithdrawn { message: crate::support::mid("x"), by: "user".into() }.at(seq, 1)];
    assert_eq!(f.one(append(&first, memo(seq), vec![])), Err(Refused::Fenced { stored: 2 }));
    assert_eq!(f.one(append(&second, memo(seq), vec![])), Ok(Done::Appended));
}

fn an_append_goes_to_the_next_place_only(f: &Fixture) {
    f.root("r");
    let (fence, _) = f.open("r", None);
    let event = |seq| Body::MessageWithdrawn { message: crate::support::mid("x"), by: "user".into() }.at(seq, 1);
    assert_eq!(f.one(append(&fence, vec![event(2)], vec![])), Err(Refused::Moved { stored: 3 }));
    assert_eq!(f.one(append(&fence, vec![event(4)], vec![])), Err(Refused::Moved { stored: 3 }));
    assert_eq!(f.one(append(&fence, vec![event(3), event(4)], vec![])), Ok(Done::Appended));
    assert_eq!(f.one(append(&fence, vec![event(5), event(7)], vec![])).unwrap_err().code(), "EVENT_INVALID");
    assert_eq!(f.next_seq("r"), 5);
    let log = f.reader().events(&sid("r"), 2, 2).unwrap();
    assert_eq!(log.iter().map(|event| event.seq).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(f.reader().events(&sid("r"), 5, 2).unwrap(), Vec::<Event>::new());
}

fn an_append_that_does_not_follow_is_refused_whole(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    let (fence, _) = f.open("r", None);
    let bad = vec![Body::TurnStart { turn: 1, message: crate::support::mid("m0"), attempt: 1 }.at(3, 1), Body::StepStart { turn: 2, step: 1 }.at(4, 1)];
    assert_eq!(f.one(append(&fence, bad, vec![0])).unwrap_err().code(), "EVENT_INVALID");
    let head = f.load("r").fold.head().clone();
    assert_eq!((head.next_seq, head.pending_turns, head.open), (3, 1, None));
}

fn what_a_session_is_cannot_be_changed_later(f: &Fixture) {
    f.root("r");
    f.child("c", "r");
    let before = f.describe("c").unwrap();
    let (fence, _) = f.open("c", None);
    let second = f.load("c").events[0].body.clone();
    assert_eq!(f.one(append(&fence, vec![second.at(3, 1)], vec![])).unwrap_err().code(), "EVENT_INVALID");
    let opened = f.load("r").events[0].body.clone();
    assert_eq!(f.one(append(&fence, vec![opened.at(3, 1)], vec![])).unwrap_err().code(), "EVENT_INVALID");
    assert_eq!(f.describe("c").unwrap().verdict, before.verdict);
}

fn a_closed_epoch_writes_no_more(f: &Fixture) {
    f.root("r");
    let (fence, _) = f.open("r", None);
    assert_eq!(f.close(&fence, true), Ok(Done::Closed));
    assert_eq!(f.one(append(&fence, vec![], vec![])), Err(Refused::Fenced { stored: 1 }));
    assert_eq!(f.one(close(&fence, 4, false)), Err(Refused::Fenced { stored: 1 }));
    assert_eq!(f.reader().leases(None).unwrap(), []);
    assert!(!f.load("r").fold.head().live);
}

fn a_session_with_work_does_not_settle(f: &Fixture) {
    f.root("r");
    let (fence, _) = f.open("r", None);
    f.accept("r", turn("m0")).unwrap();
    assert_eq!(f.close(&fence, true), Err(Refused::Pending(1)));
    f.claim(&fence, ClaimKind::Turn).unwrap();
    assert_eq!(f.close(&fence, true), Err(Refused::Pending(0)));
    f.end_turn(&fence, 1, TurnEnd::Disposed);
    assert_eq!(f.close(&fence, true), Err(Refused::Pending(0)));
    f.claim(&fence, ClaimKind::Turn).unwrap();
    f.end_turn(&fence, 2, TurnEnd::Completed);
    assert_eq!(f.close(&fence, true), Ok(Done::Closed));
}

fn a_session_disposed_with_work_closes(f: &Fixture) {
    f.root("r");
    let (fence, _) = f.open("r", None);
    f.accept("r", turn("m0")).unwrap();
    assert_eq!(f.close(&fence, false), Ok(Done::Closed));
    assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("r")]);
}

fn opening_again_takes_over_from_oneself(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    f.open("r", Some(1));
    let (fence, claimed) = f.open("r", Some(2));
    assert_eq!((fence.epoch, claimed.unwrap().taken.len()), (2, 0));
    let open = f.load("r").fold.head().open.clone().unwrap();
    assert_eq!((open.attempt, open.wasted), (2, 1));
}

fn leases_are_told_by_tree(f: &Fixture) {
    f.root("r");
    f.root("q");
    f.child("a", "r");
    f.child("b", "a");
    f.child("c", "q");
    for id in ["b", "c", "q"] {
        f.open(id, None);
    }
    let lease = |id: &str| Lease { session: sid(id), owner: f.store.owner().clone(), alive: true };
    let mut reader = f.reader();
    assert_eq!(reader.leases(None).unwrap(), [lease("b"), lease("c"), lease("q")]);
    assert_eq!(reader.leases(Some(&sid("r"))).unwrap(), [lease("b")]);
    assert_eq!(reader.leases(Some(&sid("q"))).unwrap(), [lease("c"), lease("q")]);
    assert_eq!(reader.leases(Some(&sid("nobody"))).unwrap(), []);
    assert_eq!(f.describe("b").unwrap().holder, Some(f.store.owner().clone()));
    assert_eq!(f.describe("a").unwrap().holder, None);
}

fn sessions_with_work_and_no_holder_are_runnable(f: &Fixture) {
    f.root("r");
    f.root("q");
    for id in ["c", "b", "a"] {
        f.child(id, "r");
    }
    for id in ["c", "a", "q"] {
        f.accept(id, turn("m")).unwrap();
    }
    f.accept("b", crate::support::note("n", true)).unwrap();
    let mut reader = f.reader();
    assert_eq!(reader.runnable(None, 9).unwrap(), [sid("a"), sid("c"), sid("q")]);
    assert_eq!(reader.runnable(None, 2).unwrap(), [sid("a"), sid("c")]);
    assert_eq!(reader.runnable(Some(&sid("r")), 9).unwrap(), [sid("a"), sid("c")]);
    assert_eq!(reader.runnable(Some(&sid("q")), 9).unwrap(), [sid("q")]);
    let (fence, _) = f.open("a", Some(1));
    assert_eq!(f.reader().runnable(Some(&sid("r")), 9).unwrap(), [sid("c")]);
    f.end_turn(&fence, 1, TurnEnd::Completed);
    f.close(&fence, true).unwrap();
    assert_eq!(f.reader().runnable(Some(&sid("r")), 9).unwrap(), [sid("c")]);
}

fn a_session_whose_turn_was_cut_off_is_runnable(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m")).unwrap();
    let (fence, _) = f.open("r", Some(1));
    f.end_turn(&fence, 1, TurnEnd::Interrupted);
    f.close(&fence, false).unwrap();
    assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("r")]);
}

fn a_tree_of_three_thousand_levels_is_walked(f: &Fixture) {
    let mut ops = vec![Op::Create(root("s0", 1))];
    ops.extend((1..3_000).map(|n| Op::Create(child(&format!("s{n}"), &format!("s{}", n - 1), None, 1))));
    ops.push(accept("s2999", turn("m")));
    assert!(f.store.commit(&ops).unwrap().iter().all(Result::is_ok));
    assert_eq!(f.reader().runnable(Some(&sid("s0")), 9).unwrap(), [sid("s2999")]);
    assert_eq!(f.reader().runnable(Some(&sid("s2000")), 9).unwrap(), [sid("s2999")]);
    open(&*f.store, "s2999", Some(1)).unwrap();
    assert_eq!(f.reader().leases(Some(&sid("s0"))).unwrap().len(), 1);
    assert_eq!(f.reader().runnable(Some(&sid("s0")), 9).unwrap(), []);
}

fn parents_that_name_each_other_end_the_walk(f: &Fixture) {
    f.child("a", "b");
    f.child("b", "a");
    f.root("r");
    f.accept("a", turn("m")).unwrap();
    assert_eq!(f.reader().runnable(Some(&sid("r")), 9).unwrap(), []);
    assert_eq!(f.reader().runnable(Some(&sid("b")), 9).unwrap(), [sid("a")]);
}
