//! What a listing costs does not depend on how many sessions there are elsewhere: counted in steps of SQLite's machine, for which a seek is one at any depth.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{SqliteReader, SqliteStore, open_reader};
use crate::{
    descriptor::Descriptor,
    header::NewSession,
    id::SessionId,
    listing::Cursor,
    store::{Create, Op, Reader, Store},
};

fn sid(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

fn child(id: &str, parent: &str) -> Op {
    let mut descriptor = Descriptor::continuable("spawn", format!("child {id}"), "reporter");
    descriptor.alias = Some(format!("alias of {id}"));
    Op::Create(Create::child(NewSession::child(sid(id), sid(parent), 0), vec![], &descriptor, None, 1_000).unwrap())
}

fn root(id: &str) -> Op {
    Op::Create(Create::root(NewSession::root(sid(id)), "editor", format!("root {id}")))
}

/// A parent of ten children, one of which has one, among as many other sessions as are wanted: roots, their children, and a few children of nobody, whose
/// number is what a page of roots costs.
fn corpus(path: &Path, sessions: usize) {
    let store = SqliteStore::open(path).unwrap();
    let mut ops = vec![root("desk")];
    ops.extend((0..10).map(|n| child(&format!("child-{n}"), "desk")));
    ops.push(child("grandchild", "child-3"));
    for n in 0..sessions.saturating_sub(ops.len()) {
        ops.push(match n % 10 {
            0 => root(&format!("other-{n}")),
            9 if n < 30 => child(&format!("orphan-{n}"), &format!("nobody-{n}")),
            _ => child(&format!("other-{n}"), &format!("other-{}", n - n % 10)),
        });
    }
    for batch in ops.chunks(2_000) {
        assert!(store.commit(batch).unwrap().iter().all(Result::is_ok));
    }
    store.close().unwrap();
}

/// What one way of looking takes.
type Look = (&'static str, fn(&mut SqliteReader));

const LOOKS: &[Look] = &[
    ("children", |reader| assert_eq!(reader.children(Some(&sid("desk")), None, 100).unwrap().len(), 10)),
    ("family", |reader| {
        let family = reader.family(Some(&sid("desk")), None, 100, false).unwrap();
        let described: Vec<bool> = family.iter().map(|(_, described)| described.as_ref().unwrap().has_children).collect();
        assert_eq!(described, (0..10).map(|n| n == 3).collect::<Vec<_>>());
    }),
    ("family with its logs", |reader| assert_eq!(reader.family(Some(&sid("desk")), None, 100, true).unwrap().len(), 10)),
    ("a page", |reader| {
        let after = Cursor { created_at: 1_000, id: sid("child-4") };
        assert_eq!(reader.family(Some(&sid("desk")), Some(&after), 3, false).unwrap().len(), 3);
    }),
    ("header", |reader| assert!(reader.header(&sid("child-7")).unwrap().is_some())),
    ("alias", |reader| assert_eq!(reader.alias(&sid("desk"), "alias of child-5").unwrap(), Some(sid("child-5")))),
    ("a beginning", |reader| assert_eq!(reader.find("child-", 100).unwrap().len(), 10)),
    ("a page of roots", |reader| assert_eq!(reader.family(None, None, 3, false).unwrap().len(), 3)),
    ("load", |reader| assert_eq!(reader.load(&sid("child-7")).unwrap().events.len(), 2)),
];

fn steps(path: &Path) -> Vec<(&'static str, u64)> {
    let mut reader = open_reader(path).unwrap();
    let steps = Arc::new(AtomicU64::new(0));
    let counter = steps.clone();
    let count = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        false
    };
    reader.watched().progress_handler(1, Some(count)).unwrap();
    let mut found = Vec::new();
    for (name, look) in LOOKS {
        let before = steps.load(Ordering::Relaxed);
        look(&mut reader);
        found.push((*name, steps.load(Ordering::Relaxed) - before));
    }
    found
}

#[test]
fn a_family_of_ten_costs_the_same_among_fifty_thousand_sessions_as_among_fifty() {
    let folder = tempfile::tempdir().unwrap();
    let [few, many] = [50, 50_000].map(|sessions| {
        let path = folder.path().join(format!("{sessions}.db"));
        corpus(&path, sessions);
        (path.clone(), fs::read(&path).unwrap())
    });
    let (in_few, in_many) = (steps(&few.0), steps(&many.0));
    assert!(in_few.iter().all(|(_, steps)| (5..5_000).contains(steps)), "{in_few:?}");
    assert_eq!(in_few, in_many);
    for (path, before) in [few, many] {
        assert!(fs::read(&path).unwrap() == before, "looking has written");
        let wal = path.with_extension("db-wal");
        assert_eq!(fs::metadata(wal).map_or(0, |found| found.len()), 0);
    }
}
