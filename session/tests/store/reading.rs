//! What a reader says without a log, and what it does with one.

use std::{ops::ControlFlow, sync::Arc};

use greenroom_session::{
    check::{Seen, check},
    descriptor::Descriptor,
    event::{Body, Event, TurnEnd},
    header::NewSession,
    listing::{Cursor, Described, Verdict},
    store::{Append, ClaimKind, Create, Fence, Import, Member, Op, Remove, Traced},
};
use serde_json::json;

use crate::{
    support::{Fixture, append, child, describe, fork, mid, note, sid, turn},
    transfer::{import, lines},
};

crate::on_every_store!(
    a_fold_is_that_of_a_load_and_stops_where_it_is_told,
    what_is_known_without_a_log_is_what_the_log_says,
    of_what_is_not_there_nothing_is_known,
    a_page_of_a_family_comes_with_its_rows,
    a_child_is_told_by_its_header_and_described_by_its_log,
    a_forks_own_descriptor_describes_nobody,
    a_descriptor_is_found_however_far_behind_it_stands,
);

/// Sessions of every kind: with turns behind them, with a prefix, imported and held, forked.
fn busy(f: &Fixture) -> [&'static str; 6] {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    f.accept("r", turn("m1")).unwrap();
    let (fence, _) = f.open("r", Some(1));
    f.accept("r", note("n0", false)).unwrap();
    f.claim(&fence, ClaimKind::Notes).unwrap();
    f.end_turn(&fence, 1, TurnEnd::Completed);
    f.close(&fence, false).unwrap();
    f.create(child("c", "r", Some("anna"), 1_000));
    let inherited = f.load("r").events;
    let descriptor = Descriptor::continuable("fork", "a copy", "reporter");
    f.create(Create::child(NewSession::child(sid("p"), sid("r"), 0), inherited, &descriptor, Some(Arc::new(turn("m0"))), 5).unwrap());
    f.create(fork("x", "c", 1));
    f.child("g", "c");
    f.open("p", None);
    let import = import(&lines(&mut *f.reader(), "r"));
    let header = Arc::new(NewSession::root(sid("i")).at(7));
    let import = Import::new(header, import.events().clone(), import.inbox().into()).unwrap();
    f.one(Op::Import(import)).unwrap();
    ["r", "c", "p", "x", "g", "i"]
}

fn a_fold_is_that_of_a_load_and_stops_where_it_is_told(f: &Fixture) {
    let sessions = busy(f);
    let mut reader = f.reader();
    for id in sessions.map(sid) {
        let log = reader.load(&id).unwrap();
        assert_eq!(reader.folded(&id).unwrap(), log.fold, "{id}");
        for stop in 0..=log.events.len() {
            let mut seen: Vec<Event> = Vec::new();
            let fold = reader.fold(&id, &mut |event| {
                seen.push(event.clone());
                if seen.len() > stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            // To stop at the last one is to stop, too.
            assert_eq!(fold.unwrap(), (stop == log.events.len()).then(|| log.fold.clone()), "{id} at {stop}");
            assert_eq!(seen, log.events[..log.events.len().min(stop + 1)], "{id} at {stop}");
        }
        for from in 0..=log.events.len() + 1 {
            for limit in [0, 1, 2, usize::MAX] {
                let expected: Vec<Event> = log.events.iter().skip(from).take(limit).cloned().collect();
                assert_eq!(reader.events(&id, from as u64, limit).unwrap(), expected, "{id} from {from}, at most {limit}");
            }
        }
    }
    for result in [reader.fold(&sid("nobody"), &mut |_| unreachable!()).map(drop), reader.folded(&sid("nobody")).map(drop)] {
        assert_eq!(result.unwrap_err().code(), "SESSION_NOT_FOUND");
    }
}

fn what_is_known_without_a_log_is_what_the_log_says(f: &Fixture) {
    busy(f);
    let mut reader = f.reader();
    for parent in [None, Some(sid("r")), Some(sid("c"))] {
        let children = reader.children(parent.as_ref(), None, 9).unwrap();
        let described = reader.describe(&children, true).unwrap();
        for (row, described) in reader.rows(&children).unwrap().into_iter().zip(described) {
            let (row, described) = (row.unwrap(), described.unwrap());
            let summary = row.row.unwrap();
            assert_eq!((summary.head, summary.verdict), (described.head.clone(), described.verdict));
            assert_eq!((row.has_children, &row.holder), (described.has_children, &described.holder));
        }
        for child in &children {
            let fold = reader.folded(&child.id).unwrap();
            let holder = reader.holder(&child.id, fold.head()).unwrap();
            assert_eq!(holder.is_some(), child.id == sid("p"), "{}", child.id);
            assert_eq!(holder, describe(&mut *reader, child.id.as_str(), false).unwrap().holder);
        }
    }
}

fn of_what_is_not_there_nothing_is_known(f: &Fixture) {
    f.root("r");
    let nobody = Traced { id: sid("nobody"), created_at: 1, header: Ok(Arc::new(NewSession::child(sid("nobody"), sid("r"), 0).at(1))) };
    let mut reader = f.reader();
    let known = reader.children(None, None, 1).unwrap().remove(0);
    let rows = reader.rows(&[nobody.clone(), known]).unwrap();
    assert_eq!(rows[0].as_ref().unwrap_err().code(), "SESSION_NOT_FOUND");
    assert!(rows[1].as_ref().is_ok_and(|row| row.row.is_some()));
    assert!(reader.family_rows(Some(&nobody.id), None, 9).unwrap().is_empty());
    assert_eq!(reader.holder(&nobody.id, &greenroom_session::head::Head::default()).unwrap(), None);
}

fn a_page_of_a_family_comes_with_its_rows(f: &Fixture) {
    f.root("r");
    for (id, time) in [("a", 2_000), ("b", 2_000), ("c", 3_000), ("d", 4_000)] {
        f.create(child(id, "r", None, time));
    }
    f.child("g", "b");
    let mut reader = f.reader();
    let all = reader.family_rows(Some(&sid("r")), None, usize::MAX).unwrap();
    let shown = |members: &[Member<Described>]| -> Vec<(String, bool)> {
        members.iter().map(|(child, row)| (child.id.to_string(), row.as_ref().unwrap().has_children)).collect()
    };
    assert_eq!(shown(&all), [("a".into(), false), ("b".into(), true), ("c".into(), false), ("d".into(), false)]);
    let after = Cursor { created_at: 2_000, id: sid("a") };
    for (parent, expected) in [(Some(sid("r")), &all[1..3]), (None, &[])] {
        let page = reader.family_rows(parent.as_ref(), Some(&after), 2).unwrap();
        assert_eq!(format!("{page:?}"), format!("{expected:?}"));
    }
    assert_eq!(shown(&reader.family_rows(None, None, 9).unwrap()), [("r".into(), true)]);
}

fn seeded(session: NewSession, bodies: Vec<Body>) -> Create {
    let events = bodies.into_iter().zip(0..).map(|(body, seq)| body.at(seq, 1)).collect();
    Create { session, time: 1, events, message: None }
}

fn a_child_is_told_by_its_header_and_described_by_its_log(f: &Fixture) {
    f.root("r");
    f.create(fork("x", "r", 1));
    assert!(!f.describe("r").unwrap().has_children, "a fork is nobody's child");
    f.child("xc", "x");
    assert!(f.describe("x").unwrap().has_children, "a fork may have children");
    assert!(!f.describe("r").unwrap().has_children);
    // A child that nothing describes is one, and is shown nowhere.
    f.create(seeded(NewSession::child(sid("n"), sid("r"), 0), vec![Body::EndSeed {}]));
    assert!(f.describe("r").unwrap().has_children);
    assert_eq!(f.describe("n").unwrap().verdict, Verdict::Plain);
    f.one(Op::Remove(Remove { session: sid("n"), discard: false })).unwrap();
    assert!(!f.describe("r").unwrap().has_children);
}

fn a_forks_own_descriptor_describes_nobody(f: &Fixture) {
    f.root("r");
    let descriptor = |label: &str, alias: &str| {
        let mut descriptor = Descriptor::continuable("spawn", label, "reporter");
        descriptor.alias = Some(alias.into());
        Body::Descriptor(serde_json::to_value(descriptor).unwrap())
    };
    let newer = || Body::Descriptor(json!({"version": 9}));
    for (id, bodies) in [("a", vec![descriptor("a", "anna")]), ("b", vec![descriptor("b", "anna"), descriptor("b", "bob")]), ("c", vec![newer()])] {
        f.create(seeded(NewSession::fork(sid(id), sid("r")), bodies.into_iter().chain([Body::EndSeed {}]).collect()));
        assert_eq!(f.describe(id).unwrap().verdict, Verdict::Plain, "{id}");
        assert_eq!(describe(&mut *f.reader(), id, true).unwrap().verdict, Verdict::Plain, "{id}");
    }
    assert!(!f.describe("r").unwrap().has_children);
    assert_eq!(f.reader().alias(&sid("r"), "anna").unwrap(), None);
    // So its alias is free.
    f.create(child("d", "r", Some("anna"), 1_000));
    assert_eq!(f.reader().alias(&sid("r"), "anna").unwrap(), Some(sid("d")));
    let mut found = Vec::new();
    check(&mut *f.reader(), None, &mut |seen| found.extend(if let Seen::Finding(finding) = seen { Some(finding) } else { None })).unwrap();
    assert_eq!(found, []);
}

/// The right to append, in an open turn.
fn in_turn(f: &Fixture, id: &str) -> Fence {
    f.accept(id, turn("m0")).unwrap();
    f.open(id, Some(1)).0
}

fn memo(text: String) -> Body {
    Body::Memo { turn: 1, message: mid("m0"), key: None, text }
}

fn a_descriptor_is_found_however_far_behind_it_stands(f: &Fixture) {
    let label = |id: &str| match f.describe(id).unwrap().verdict {
        Verdict::Child { label, descriptor, .. } => (label.unwrap(), descriptor),
        other => panic!("{other:?}"),
    };
    f.root("r");
    let fence = in_turn(f, "r");
    let first = f.next_seq("r");
    let many: Vec<Event> = (0..10_000).map(|n| memo(format!("{n}")).at(first + n, 1)).collect();
    f.one(append(&fence, many, vec![])).unwrap();
    f.end_turn(&fence, 1, TurnEnd::Completed);
    let copy = |id: &str, of: &str, label: &str| {
        let descriptor = Descriptor::continuable("fork", label, "reporter");
        f.create(Create::child(NewSession::child(sid(id), sid("r"), 0), f.load(of).events, &descriptor, None, 5).unwrap());
    };
    copy("events", "r", "after many events");
    f.root("q");
    let fence = in_turn(f, "q");
    for n in 0..9 {
        let event = memo("x".repeat(1 << 20)).at(f.next_seq("q"), n);
        f.one(Op::Append(Append { fence: fence.clone(), events: [event].into(), take: vec![] })).unwrap();
    }
    f.end_turn(&fence, 1, TurnEnd::Completed);
    copy("bytes", "q", "after many bytes");
    assert_eq!(label("events"), ("after many events".into(), f.next_seq("r")));
    assert_eq!(label("bytes"), ("after many bytes".into(), f.next_seq("q")));
    for id in ["events", "bytes"] {
        let verdict = f.describe(id).unwrap().verdict;
        assert_eq!(describe(&mut *f.reader(), id, true).unwrap().verdict, verdict);
        let Verdict::Child { descriptor, .. } = verdict else { unreachable!() };
        assert!(matches!(f.reader().events(&sid(id), descriptor, 1).unwrap()[0].body, Body::Descriptor(_)));
    }
}
