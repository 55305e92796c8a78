//! A release: until then what was imported waits, and whatever comes after it.

use std::sync::Arc;

use greenroom_session::{
    event::{Body, TurnEnd},
    store::{ClaimKind, Create, Done, Op, Refused, Release},
};

use super::whole::{import, lines, lived, with_messages};
use crate::support::{Fixture, append, describe, heard, mid, root, sid, turn};

crate::on_every_store!(
    an_import_waits_until_it_is_released,
    an_unfinished_turn_waits_until_it_is_released,
    an_epoch_without_an_end_waits_until_it_is_released,
    what_comes_after_an_import_waits_behind_it,
    a_held_message_that_is_withdrawn_holds_nothing_more,
    a_release_is_repeated_safely_and_needs_a_session,
);

fn an_import_waits_until_it_is_released(f: &Fixture) {
    f.one(Op::Import(import(&lived(with_messages)))).unwrap();
    let head = f.load("r").fold.head().clone();
    assert_eq!((head.pending_turns, head.pending_quiet, head.pending_controls, head.held), (1, 1, 1, 3));
    for verify in [false, true] {
        assert_eq!(describe(&mut *f.reader(), "r", verify).unwrap().head, head);
    }
    assert!(f.reader().runnable(None, 9).unwrap().is_empty());
    assert!(f.reader().inbox(&sid("r"), 9).unwrap().iter().all(|record| record.held));
    // Whoever begins an epoch all the same gets nothing.
    let (fence, claimed) = f.open("r", Some(7));
    assert_eq!(claimed, None);
    assert_eq!(f.claim(&fence, ClaimKind::Turn), None);
    f.one(Op::Release(Release { session: sid("r") })).unwrap();
    assert_eq!(heard(&f.claim(&fence, ClaimKind::Turn).unwrap()), ["n6", "m7"]);
}

fn an_unfinished_turn_waits_until_it_is_released(f: &Fixture) {
    type Life = fn(&Fixture, &greenroom_session::store::Fence);
    let cut_off: Life = |_, _| {};
    let interrupted: Life = |f, fence| f.end_turn(fence, 1, TurnEnd::Interrupted);
    for life in [cut_off, interrupted] {
        let id = if life as usize == cut_off as usize { "open" } else { "retry" };
        let before = {
            let elsewhere = Fixture::memory();
            elsewhere.create(Create { message: Some(Arc::new(turn("m0"))), ..root(id, 1_000) });
            let (fence, _) = elsewhere.open(id, Some(3));
            elsewhere.accept(id, turn("m1")).unwrap();
            life(&elsewhere, &fence);
            lines(&mut *elsewhere.reader(), id)
        };
        f.one(Op::Import(import(&before))).unwrap();
        let head = f.load(id).fold.head().clone();
        assert!(head.is_unfinished() && head.held == 2 && !head.has_work() && !head.wants_holder(), "{head:?}");
        assert_eq!(f.describe(id).unwrap().head, head);
        assert!(f.reader().runnable(None, 9).unwrap().is_empty());
        let (fence, claimed) = f.open(id, Some(7));
        assert_eq!((claimed, f.claim(&fence, ClaimKind::Turn)), (None, None));
        assert_eq!(f.one(Op::Release(Release { session: sid(id) })), Ok(Done::Released { records: 2 }));
        let claimed = f.claim(&fence, ClaimKind::Turn).unwrap();
        assert!(matches!(&claimed.events[0].body, Body::TurnStart { message, attempt: 2, .. } if *message == mid("m0")), "{claimed:?}");
        f.end_turn(&fence, 2, TurnEnd::Completed);
        assert_eq!(heard(&f.claim(&fence, ClaimKind::Turn).unwrap()), ["m1"]);
        f.end_turn(&fence, 3, TurnEnd::Completed);
        f.close(&fence, true).unwrap();
    }
}

fn an_epoch_without_an_end_waits_until_it_is_released(f: &Fixture) {
    let before = lived(|f| {
        f.create(Create { message: Some(Arc::new(turn("m0"))), ..root("r", 1_000) });
        let (fence, _) = f.open("r", Some(3));
        f.end_turn(&fence, 1, TurnEnd::Completed);
    });
    f.one(Op::Import(import(&before))).unwrap();
    assert!(f.reader().runnable(None, 9).unwrap().is_empty());
    assert_eq!(f.one(Op::Release(Release { session: sid("r") })), Ok(Done::Released { records: 1 }));
    assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("r")]);
    assert_eq!(lines(&mut *f.reader(), "r"), before);
}

fn what_comes_after_an_import_waits_behind_it(f: &Fixture) {
    f.one(Op::Import(import(&lived(with_messages)))).unwrap();
    assert_eq!(f.accept("r", turn("m8")), Ok(Done::Accepted { order: 8, duplicate: false }));
    assert!(!f.reader().inbox(&sid("r"), 9).unwrap().last().unwrap().held);
    assert!(f.reader().runnable(None, 9).unwrap().is_empty());
    let (fence, claimed) = f.open("r", Some(7));
    assert_eq!(claimed, None);
    f.one(Op::Release(Release { session: sid("r") })).unwrap();
    assert_eq!(heard(&f.claim(&fence, ClaimKind::Turn).unwrap()), ["n6", "m7"]);
    f.end_turn(&fence, 2, TurnEnd::Completed);
    assert_eq!(heard(&f.claim(&fence, ClaimKind::Turn).unwrap()), ["m8"]);
}

fn a_held_message_that_is_withdrawn_holds_nothing_more(f: &Fixture) {
    f.one(Op::Import(import(&lived(|f| {
        f.root("r");
        f.accept("r", turn("m0")).unwrap();
    }))))
    .unwrap();
    f.accept("r", turn("m1")).unwrap();
    let (fence, _) = f.open("r", None);
    let seq = f.next_seq("r");
    f.one(append(&fence, vec![Body::MessageWithdrawn { message: mid("m0"), by: "user".into() }.at(seq, 4)], vec![0])).unwrap();
    assert_eq!(f.load("r").fold.head().held, 0);
    assert_eq!(f.describe("r").unwrap().head, *f.load("r").fold.head());
    assert_eq!(heard(&f.claim(&fence, ClaimKind::Turn).unwrap()), ["m1"]);
    assert!(!lines(&mut *f.reader(), "r").iter().any(|line| line.contains("held")));
}

fn a_release_is_repeated_safely_and_needs_a_session(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    let release = |id: &str| Op::Release(Release { session: sid(id) });
    assert_eq!(f.one(release("r")), Ok(Done::Released { records: 0 }));
    assert_eq!(f.one(release("q")), Err(Refused::NotFound(sid("q"))));
    assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("r")]);
}
