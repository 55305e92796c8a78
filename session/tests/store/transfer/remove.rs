//! A removal: for ever, only when nothing is lost by it, and seen by whoever else has the store open.

use std::sync::Arc;

use greenroom_session::{
    event::{Body, EpochEnd, TurnEnd},
    header::NewSession,
    store::{ClaimKind, Done, Import, LoadError, Op, Refused, Release, Store},
};

use super::whole::{import, lines, lived, remove, with_messages};
use crate::support::{Fixture, accept, append, child, fence, fork, mid, note, one, open, root, sid, turn};

crate::on_every_store!(
    a_removed_session_is_gone_for_ever,
    a_late_writer_is_fenced_by_a_removal,
    a_session_with_children_is_not_removed,
    a_session_with_work_is_removed_only_when_it_is_discarded,
    a_live_session_is_not_removed,
    what_is_removed_leaves_its_neighbours_as_they_were,
    the_last_child_of_a_missing_parent_takes_the_orphans_with_it,
);

fn a_removed_session_is_gone_for_ever(f: &Fixture) {
    f.root("q");
    with_messages(f);
    let before = lines(&mut *f.reader(), "r");
    assert_eq!(f.one(remove("nobody", true)), Err(Refused::NotFound(sid("nobody"))));
    let mut reader = f.reader();
    assert!(!reader.is_removed(&sid("r")).unwrap());
    assert_eq!(f.one(remove("r", true)), Ok(Done::Removed));
    assert_eq!(f.one(remove("r", false)), Ok(Done::Removed));
    assert!(reader.is_removed(&sid("r")).unwrap() && !reader.is_removed(&sid("q")).unwrap() && !reader.is_removed(&sid("nobody")).unwrap());
    let gone = Refused::Removed(sid("r"));
    assert_eq!(gone.code(), "SESSION_REMOVED");
    assert_eq!(f.one(Op::Create(root("r", 1_000))), Err(gone.clone()));
    assert_eq!(f.one(Op::Import(import(&before))), Err(gone.clone()));
    assert_eq!(f.accept("r", turn("m0")), Err(gone.clone()));
    assert_eq!(f.one(Op::Release(Release { session: sid("r") })), Err(gone.clone()));
    assert_eq!(f.one(append(&fence("r", 1), vec![], vec![])), Err(gone));
    assert_eq!(reader.header(&sid("r")).unwrap(), None);
    for error in [
        reader.load(&sid("r")).unwrap_err(),
        reader.events(&sid("r"), 0, 9).unwrap_err(),
        reader.inbox(&sid("r"), 9).unwrap_err(),
        reader.message(&sid("r"), &mid("m0")).unwrap_err(),
    ] {
        assert!(matches!(&error, LoadError::Removed(id) if *id == sid("r")), "{error:?}");
        assert_eq!(error.code(), "SESSION_REMOVED");
    }
    assert_eq!(reader.export(&sid("r"), &mut |_| Ok(())).unwrap_err().code(), "SESSION_REMOVED");
    assert_eq!(reader.find("", 9).unwrap(), [sid("q")]);
    assert_eq!(reader.children(None, None, 9).unwrap().len(), 1);
    assert!(reader.runnable(None, 9).unwrap().is_empty() && reader.leases(None).unwrap().is_empty());
}

fn a_late_writer_is_fenced_by_a_removal(f: &Fixture) {
    f.root("r");
    f.child("a", "r");
    let (fence, _) = f.open("a", None);
    f.close(&fence, true).unwrap();
    f.one(remove("a", false)).unwrap();
    let gone = Err(Refused::Removed(sid("a")));
    let late = append(&fence, vec![Body::ActivationStart { epoch: 2 }.at(3, 1)], vec![]);
    assert_eq!(f.one(late), gone);
    let end = Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled }.at(3, 1);
    assert_eq!(f.one(Op::Close(greenroom_session::store::Close { fence: fence.clone(), events: Arc::new([end]), unless_pending: true })), gone);
    let claim = greenroom_session::store::Claim { fence, first_seq: 4, kind: ClaimKind::Turn, time: 1 };
    assert_eq!(f.one(Op::Claim(claim)), gone);
    let epoch = greenroom_session::store::Open { session: sid("a"), epoch: 2, events: Arc::new([Body::ActivationStart { epoch: 2 }.at(4, 1)]), claim: None };
    assert_eq!(f.one(Op::Open(epoch)), gone);
    // The retry of the turn that made it does not make it anew.
    assert_eq!(f.one(Op::Create(child("a", "r", None, 1_000))), gone);
    assert!(f.reader().children(Some(&sid("r")), None, 9).unwrap().is_empty());
}

fn a_session_with_children_is_not_removed(f: &Fixture) {
    f.root("r");
    f.child("a", "r");
    f.create(fork("b", "a", 1));
    for parent in ["r", "a"] {
        let refused = f.one(remove(parent, true)).unwrap_err();
        assert_eq!((refused.code(), &refused), ("HAS_CHILDREN", &Refused::HasChildren(sid(parent))));
    }
    for leaf_first in ["b", "a", "r"] {
        assert_eq!(f.one(remove(leaf_first, false)), Ok(Done::Removed));
    }
    // A session that names itself is nobody's parent.
    f.create(fork("self", "self", 1));
    assert_eq!(f.one(remove("self", false)), Ok(Done::Removed));
}

fn a_session_with_work_is_removed_only_when_it_is_discarded(f: &Fixture) {
    type Life = fn(&Fixture);
    let lives: [(&str, Life, u64); 4] = [
        ("a turn", |f| drop(f.accept("r", turn("m0")).unwrap()), 1),
        ("a waking note", |f| drop(f.accept("r", note("n0", false)).unwrap()), 1),
        (
            "an open turn and one that waits",
            |f| {
                f.accept("r", turn("m0")).unwrap();
                let (fence, _) = f.open("r", Some(1));
                f.end_turn(&fence, 1, TurnEnd::Interrupted);
                f.accept("r", turn("m1")).unwrap();
                f.close(&fence, false).unwrap();
            },
            2,
        ),
        ("a quiet note", |f| drop(f.accept("r", note("n0", true)).unwrap()), 0),
    ];
    for (n, (what, life, pending)) in lives.into_iter().enumerate() {
        let before = import(&lived(|f| {
            f.root("r");
            life(f);
        }));
        // Under another id each time, since the last is used up; held the first time, released the second.
        for released in [false, true] {
            let id = format!("r{n}{released}");
            let header = NewSession::root(sid(&id)).at(1_000);
            f.one(Op::Import(Import::new(Arc::new(header), before.events().clone(), before.inbox().into()).unwrap())).unwrap();
            if released {
                f.one(Op::Release(Release { session: sid(&id) })).unwrap();
            }
            if pending > 0 {
                assert_eq!(f.one(remove(&id, false)), Err(Refused::Pending(pending)), "{what}");
            }
            assert_eq!(f.one(remove(&id, pending > 0)), Ok(Done::Removed), "{what}");
        }
    }
    assert!(f.reader().runnable(None, 9).unwrap().is_empty());
}

fn a_live_session_is_not_removed(f: &Fixture) {
    f.root("r");
    let (fence, _) = f.open("r", None);
    for discard in [false, true] {
        assert_eq!(f.one(remove("r", discard)), Err(Refused::Held(f.store.owner().clone())));
    }
    f.close(&fence, true).unwrap();
    assert_eq!(f.one(remove("r", false)), Ok(Done::Removed));
}

fn what_is_removed_leaves_its_neighbours_as_they_were(f: &Fixture) {
    f.root("r");
    for (id, alias) in [("a", "anna"), ("b", "bert"), ("c", "carl")] {
        f.create(child(id, "r", Some(alias), 1));
        f.accept(id, turn("m0")).unwrap();
    }
    let before: Vec<_> = ["r", "a", "c"].map(|id| lines(&mut *f.reader(), id)).into();
    f.one(remove("b", true)).unwrap();
    let after: Vec<_> = ["r", "a", "c"].map(|id| lines(&mut *f.reader(), id)).into();
    assert_eq!(after, before);
    assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("a"), sid("c")]);
    assert_eq!(f.reader().runnable(Some(&sid("r")), 9).unwrap(), [sid("a"), sid("c")]);
    assert_eq!(f.reader().alias(&sid("r"), "bert").unwrap(), None);
    // Its alias is free for another child.
    f.create(child("d", "r", Some("bert"), 1));
    f.accept("d", turn("m0")).unwrap();
    assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("a"), sid("c"), sid("d")]);
    let names: Vec<_> = f.reader().children(Some(&sid("r")), None, 9).unwrap().into_iter().map(|child| child.id.to_string()).collect();
    assert_eq!(names, ["a", "c", "d"]);
    for id in ["a", "c", "d"] {
        f.one(remove(id, true)).unwrap();
    }
    assert!(!f.describe("r").unwrap().has_children);
    // A batch that removes and goes on.
    let results = f
        .store
        .commit(&[Op::Create(child("e", "r", None, 1)), accept("e", turn("m0")), remove("e", true), accept("e", turn("m1")), accept("r", turn("m"))])
        .unwrap();
    assert_eq!(results[2..4], [Ok(Done::Removed), Err(Refused::Removed(sid("e")))]);
    assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("r")]);
}

fn the_last_child_of_a_missing_parent_takes_the_orphans_with_it(f: &Fixture) {
    f.root("r");
    for id in ["a", "b"] {
        f.create(child(id, "nobody", None, 1));
    }
    let roots = |f: &Fixture| f.reader().children(None, None, 9).unwrap().into_iter().map(|child| child.id.to_string()).collect::<Vec<_>>();
    assert_eq!(roots(f), ["a", "b", "r"]);
    f.one(remove("a", false)).unwrap();
    assert_eq!(roots(f), ["b", "r"]);
    f.one(remove("b", false)).unwrap();
    assert_eq!(roots(f), ["r"]);
    // A parent that is removed leaves nobody behind, so nobody becomes an orphan; a child that names it later is one.
    f.one(remove("r", false)).unwrap();
    f.create(child("c", "r", None, 1));
    assert_eq!(roots(f), ["c"]);
}

/// A removal is seen by whoever else has the file open, also by one who held the session before.
#[test]
fn a_second_opening_is_fenced_by_a_removal() {
    let f = Fixture::sqlite();
    f.root("r");
    let second = greenroom_session::store::sqlite::SqliteStore::open(f.path()).unwrap();
    let (fence, _) = open(&second, "r", None).unwrap();
    one(&second, crate::support::close(&fence, 3, true)).unwrap();
    f.one(remove("r", false)).unwrap();
    assert_eq!(one(&second, append(&fence, vec![], vec![])), Err(Refused::Removed(sid("r"))));
    assert_eq!(one(&second, Op::Create(root("r", 1_000))), Err(Refused::Removed(sid("r"))));
}

/// The numbers of inbox rows go on after a removal, so that nobody who has seen the newest misses the next.
#[test]
fn a_message_after_a_removal_is_noticed_by_other_openings() {
    let f = Fixture::sqlite();
    f.root("q");
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    let second = greenroom_session::store::sqlite::SqliteStore::open(f.path()).unwrap();
    for n in 0..3 {
        let id = format!("r{n}");
        f.root(&id);
        f.accept(&id, turn("m0")).unwrap();
        assert_eq!(second.poll().unwrap(), [sid(&id)]);
        f.one(remove(&id, true)).unwrap();
        assert!(second.poll().unwrap().is_empty());
        f.accept("q", turn(&format!("m{n}"))).unwrap();
        assert_eq!(second.poll().unwrap(), [sid("q")]);
    }
}

/// What cannot be read may hold work, so it goes only when that is said.
#[test]
fn a_damaged_session_is_removed_only_when_it_is_discarded() {
    for damage in ["UPDATE event SET body = replace(body, 'root r', 'toor r')", "UPDATE session SET header = '{}'", "DELETE FROM event WHERE seq = 0"] {
        for summary_too in [false, true] {
            let f = Fixture::sqlite();
            f.root("q");
            f.root("r");
            f.accept("r", turn("m0")).unwrap();
            f.accept("q", turn("m0")).unwrap();
            let raw = rusqlite::Connection::open(f.path()).unwrap();
            let target = if damage.contains("WHERE") { " AND " } else { " WHERE " };
            raw.execute_batch(&format!("{damage}{target} sid = (SELECT sid FROM session WHERE id = 'r')")).unwrap();
            if summary_too {
                raw.execute_batch("DELETE FROM summary WHERE sid = (SELECT sid FROM session WHERE id = 'r')").unwrap();
            }
            assert_eq!(f.one(remove("r", false)), Err(Refused::Pending(0)), "{damage}");
            assert!(f.reader().export(&sid("r"), &mut |_| Ok(())).is_err(), "{damage}");
            assert_eq!(f.one(remove("r", true)), Ok(Done::Removed), "{damage}");
            assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("q")], "{damage}");
            let left: i64 = raw
                .query_row("SELECT (SELECT count(*) FROM event) + (SELECT count(*) FROM summary) + (SELECT count(*) FROM session)", [], |row| row.get(0))
                .unwrap();
            assert_eq!(left, 2 + 1 + 1, "{damage}");
        }
    }
}

/// What is derived stays complete, so that nobody has to look at every session after a removal, an import or a release.
#[test]
fn the_tally_follows_whole_sessions() {
    let f = Fixture::sqlite();
    let raw = rusqlite::Connection::open(f.path()).unwrap();
    let counted = || -> (i64, i64, i64, i64) {
        let sql = "SELECT work, (SELECT count(*) FROM summary WHERE work = 1), orphans, (SELECT count(*) FROM orphan) FROM tally";
        raw.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))).unwrap()
    };
    f.root("r");
    f.create(child("a", "r", None, 1));
    f.create(child("b", "nobody", None, 1));
    for id in ["r", "a", "b"] {
        f.accept(id, turn("m0")).unwrap();
    }
    assert_eq!(counted(), (3, 3, 1, 1));
    for (id, expected) in [("a", (2, 2, 1, 1)), ("b", (1, 1, 0, 0))] {
        f.one(remove(id, true)).unwrap();
        assert_eq!(counted(), expected, "{id}");
    }
    let elsewhere = Fixture::memory();
    elsewhere.create(child("c", "nobody", None, 1));
    elsewhere.accept("c", turn("m0")).unwrap();
    f.one(Op::Import(import(&lines(&mut *elsewhere.reader(), "c")))).unwrap();
    assert_eq!(counted(), (1, 1, 1, 1));
    f.one(Op::Release(Release { session: sid("c") })).unwrap();
    assert_eq!(counted(), (2, 2, 1, 1));
}
