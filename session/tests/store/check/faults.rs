//! Every fault is found where it is and once, and nothing is found where nothing is.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use greenroom_session::{
    check::{Class, Seen, Severity, check},
    event::TurnEnd,
    store::{ClaimKind, Op, Remove, sqlite::open_reader},
};
use rusqlite::Connection;

use super::{
    derived,
    plant::Fault,
    records, relations,
    world::{HEALTHY, busy, found, found_in},
};
use crate::support::{Fixture, accept, child, close, note, one, open, root, sid, turn};

/// Every fault that is planted.
fn faults() -> Vec<Fault> {
    [records::faults(), relations::faults(), derived::faults()].into_iter().flatten().collect()
}

#[test]
fn a_healthy_store_has_no_fault() {
    let f = busy();
    assert_eq!(found(&f.path()), [HEALTHY]);
    assert_eq!(found_in(&f.path(), Some(&sid("r"))), Vec::<String>::new());
}

#[test]
fn every_fault_is_found_where_it_is_and_once() {
    let mut wrong = Vec::new();
    for (what, plant, expected) in faults() {
        let f = busy();
        let raw = Connection::open(f.path()).unwrap();
        plant(&f, &raw);
        let mut found = found(&f.path());
        found.retain(|line| line != HEALTHY);
        if found != expected {
            wrong.push(format!("{what}: {found:?} where {expected:?} is to be found"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Planted among the files of a JSON Lines store, where no permission keeps a privileged user out.
const UNREADABLE: &str = "unreadable_file";

#[test]
fn every_class_is_one_that_is_planted() {
    let rows = faults().into_iter().flat_map(|(_, _, found)| found).filter_map(|line| line.rsplit(' ').next());
    let planted: BTreeSet<String> = rows.map(str::to_owned).chain(crate::check_files::planted()).chain([UNREADABLE.to_owned()]).collect();
    let elsewhere = [Class::Orphan, Class::DamagedFile].map(|class| class.to_string());
    let missing: Vec<_> = Class::ALL.iter().map(ToString::to_string).filter(|name| !planted.contains(name) && !elsewhere.contains(name)).collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn a_damaged_page_hides_no_other_session() {
    let f = Fixture::sqlite();
    for n in 0..20 {
        f.root(&format!("r{n:02}"));
        for m in 0..20 {
            f.accept(&format!("r{n:02}"), turn(&format!("m{m}"))).unwrap();
        }
    }
    f.store.close().unwrap();
    let (pages, size) = {
        let raw = Connection::open(f.path()).unwrap();
        raw.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        let number = |pragma: &str| raw.query_row(pragma, [], |row| row.get::<_, u32>(0)).unwrap() as usize;
        (number("PRAGMA page_count"), number("PRAGMA page_size"))
    };
    let bytes = std::fs::read(f.path()).unwrap();
    let mut unread = 0;
    // Every page but the first, which says what the file is.
    for n in 1..pages {
        let mut damaged = bytes.clone();
        damaged[n * size..(n + 1) * size].fill(0x5a);
        let copy = f.path().with_file_name(format!("copy-{n}.db"));
        std::fs::write(&copy, damaged).unwrap();
        let mut findings = Vec::new();
        let checked = open_reader(&copy).map_err(Into::into).and_then(|mut reader| {
            check(&mut reader, None, &mut |seen| {
                if let Seen::Finding(finding) = seen {
                    findings.push(finding);
                }
            })
        });
        // Without the list of sessions there is nothing to check.
        match checked {
            Ok(()) => assert!(findings.iter().any(|finding| finding.class.severity() == Severity::Damage), "page {n}: {findings:?}"),
            Err(error) => {
                unread += 1;
                assert!(error.code() == "STORE_DAMAGED", "page {n}: {error}");
            }
        }
    }
    assert!(unread < pages / 4, "{unread} of {pages} damaged pages kept the store from being checked");
}

#[test]
fn a_store_that_is_written_meanwhile_has_no_fault() {
    let f = busy();
    let done = AtomicBool::new(false);
    let checks = thread::scope(|scope| {
        let checker = scope.spawn(|| {
            let mut checks = 0;
            while !done.load(Ordering::Relaxed) || checks == 0 {
                assert_eq!(found(&f.path()), [HEALTHY], "check {checks}");
                checks += 1;
            }
            checks
        });
        for n in 0..40 {
            let id = format!("s{n}");
            f.create(child(&id, "r", Some(&id), 1_000));
            f.accept(&id, turn("m0")).unwrap();
            let (fence, _) = open(&*f.store, &id, Some(1)).unwrap();
            one(&*f.store, accept(&id, note("n0", false))).unwrap();
            f.claim(&fence, ClaimKind::Notes).unwrap();
            f.end_turn(&fence, 1, TurnEnd::Completed);
            f.one(close(&fence, f.next_seq(&id), true)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        checker.join().unwrap()
    });
    assert!(checks > 0);
    f.one(Op::Create(root("last", 1))).unwrap();
}

/// The newest row of all inboxes keeps its number when its session goes.
#[test]
fn a_store_from_which_sessions_were_removed_has_no_fault() {
    let f = Fixture::sqlite();
    f.root("q");
    for n in 0..3 {
        let id = format!("r{n}");
        f.root(&id);
        f.accept(&id, turn("m0")).unwrap();
        f.one(Op::Remove(Remove { session: sid(&id), discard: true })).unwrap();
        assert_eq!(found(&f.path()), Vec::<String>::new());
        f.accept("q", turn(&format!("m{n}"))).unwrap();
        assert_eq!(found(&f.path()), Vec::<String>::new());
    }
    // Any other row under no session is a stranger.
    Connection::open(f.path()).unwrap().execute("UPDATE inbox SET sid = 0 WHERE message_id = 'm1'", []).unwrap();
    assert!(found(&f.path()).contains(&"session row 0: unowned_record".to_owned()));
}
