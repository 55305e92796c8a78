//! What becomes of a batch whose commit fails, by faults put into the writer, or whose turn does not come.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::{SqliteStore, birth, writer::Fault};
use crate::{
    check::{Seen, Severity, check},
    header::NewSession,
    id::SessionId,
    message::{Message, Source},
    store::{Accept, CommitError, Create, Done, Op, Store, StoreError},
};

fn store() -> (tempfile::TempDir, SqliteStore, SessionId) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("store.db")).unwrap();
    let id = SessionId::new("r").unwrap();
    store.commit(&[Op::Create(Create::root(NewSession::root(id.clone()), "agent", "label"))]).unwrap();
    (folder, store, id)
}

fn accept(id: &SessionId, message: &str) -> Op {
    let message = Arc::new(Message::turn(message, "text", Source::User, 1).unwrap());
    Op::Accept(Accept { session: id.clone(), message, inbox_limit: 99, note_limit: 99 })
}

fn fail(store: &SqliteStore, faults: &[Fault]) {
    store.writer().faults.extend(faults);
}

fn pending(store: &SqliteStore, id: &SessionId) -> u64 {
    store.reader().unwrap().load(id).unwrap().fold.head().pending_turns
}

const FIRST: Done = Done::Accepted { order: 0, duplicate: false };

#[test]
fn a_commit_that_failed_and_happened_is_answered_as_done() {
    let (_folder, store, id) = store();
    fail(&store, &[Fault::Done]);
    assert_eq!(store.commit(&[accept(&id, "m0")]).unwrap(), [Ok(FIRST)]);
    assert_eq!(pending(&store, &id), 1);
    assert_eq!(store.commit(&[accept(&id, "m1")]).unwrap(), [Ok(Done::Accepted { order: 1, duplicate: false })]);
}

#[test]
fn a_commit_that_failed_and_did_not_happen_is_answered_as_not_committed() {
    let (_folder, store, id) = store();
    fail(&store, &[Fault::Lost]);
    assert!(matches!(store.commit(&[accept(&id, "m0")]), Err(CommitError::NotCommitted(StoreError::Io(_)))));
    assert_eq!(pending(&store, &id), 0);
    assert_eq!(store.commit(&[accept(&id, "m0")]).unwrap(), [Ok(FIRST)]);
}

#[test]
fn a_failure_after_a_failure_is_told_apart_from_it() {
    let (_folder, store, id) = store();
    fail(&store, &[Fault::Done, Fault::Lost, Fault::Done]);
    assert!(store.commit(&[accept(&id, "m0")]).is_ok());
    assert!(matches!(store.commit(&[accept(&id, "m1")]), Err(CommitError::NotCommitted(_))));
    assert!(store.commit(&[accept(&id, "m2")]).is_ok());
    assert_eq!(pending(&store, &id), 2);
}

#[test]
fn a_failure_that_cannot_be_looked_into_is_indeterminate_and_a_retry_is_safe() {
    for (fault, duplicate) in [(Fault::Done, true), (Fault::Lost, false)] {
        let (_folder, store, id) = store();
        fail(&store, &[fault, Fault::Barrier]);
        assert!(matches!(store.commit(&[accept(&id, "m0")]), Err(CommitError::Indeterminate(_))));
        assert_eq!(store.commit(&[accept(&id, "m0")]).unwrap(), [Ok(Done::Accepted { order: 0, duplicate })]);
        assert_eq!(pending(&store, &id), 1);
    }
}

#[test]
fn a_number_that_may_be_in_the_file_is_not_used_again() {
    let (_folder, store, id) = store();
    fail(&store, &[Fault::Done, Fault::Barrier, Fault::Lost]);
    assert!(matches!(store.commit(&[accept(&id, "m0")]), Err(CommitError::Indeterminate(_))));
    assert!(matches!(store.commit(&[accept(&id, "m1")]), Err(CommitError::NotCommitted(_))));
    assert_eq!(pending(&store, &id), 1);
}

#[test]
fn a_number_that_somebody_removed_proves_nothing() {
    let (_folder, store, id) = store();
    fail(&store, &[Fault::Forgotten]);
    assert!(matches!(store.commit(&[accept(&id, "m0")]), Err(CommitError::Indeterminate(_))));
    assert_eq!(store.commit(&[accept(&id, "m0")]).unwrap(), [Ok(Done::Accepted { order: 0, duplicate: true })]);
}

#[test]
fn a_full_disk_commits_nothing_and_says_so() {
    let (_folder, store, id) = store();
    fail(&store, &[Fault::Full]);
    assert!(matches!(store.commit(&[accept(&id, "m0")]), Err(CommitError::NotCommitted(StoreError::Full(_)))));
    assert_eq!(pending(&store, &id), 0);
    assert_eq!(store.commit(&[accept(&id, "m0")]).unwrap(), [Ok(FIRST)]);
}

#[test]
fn the_readers_of_a_store_that_was_opened_again_go_on() {
    let (_folder, store, id) = store();
    let mut reader = store.reader().unwrap();
    assert_eq!(reader.load(&id).unwrap().fold.head().pending_turns, 0);
    fail(&store, &[Fault::Done]);
    store.commit(&[accept(&id, "m0")]).unwrap();
    assert_eq!(reader.load(&id).unwrap().fold.head().pending_turns, 1);
}

#[test]
fn a_written_row_is_a_good_one() {
    use super::{log, summary};
    let (_folder, store, id) = store();
    store.commit(&[accept(&id, "m0")]).unwrap();
    let conn = super::schema::connect(&store.path, super::schema::Access::Read).unwrap();
    let found = log::require(&conn, &id).unwrap();
    let kept = summary::read(&conn, &id, &found).unwrap().unwrap();
    let derived = summary::derive(&conn, &id, &found).unwrap();
    assert_eq!((kept.head, kept.verdict), (derived.head, derived.verdict));
}

/// As a program wrote it that told forks by their descriptors.
#[test]
fn a_row_that_describes_a_fork_is_no_good() {
    use super::{log, summary};
    use crate::{descriptor::Descriptor, listing::Verdict};
    let (_folder, store, root) = store();
    let id = SessionId::new("fork").unwrap();
    let mut descriptor = Descriptor::continuable("spawn", "a label", "reporter");
    descriptor.alias = Some("anna".into());
    let create = Create::child(NewSession::fork(id.clone(), root.clone()), vec![], &descriptor, None, 1).unwrap();
    store.commit(&[Op::Create(create)]).unwrap().remove(0).unwrap();
    let conn = super::schema::connect(&store.path, super::schema::Access::Write).unwrap();
    let found = log::require(&conn, &id).unwrap();
    let good = summary::read(&conn, &id, &found).unwrap().unwrap();
    assert_eq!(good.verdict, Verdict::Plain);
    let verdict = Verdict::Child { mode: descriptor.mode, label: descriptor.label, agent: descriptor.agent, alias: descriptor.alias, descriptor: 0 };
    summary::put(&conn, &id, &found, &crate::listing::Summary { verdict, ..good.clone() }).unwrap();
    assert!(summary::read(&conn, &id, &found).unwrap().is_none());
    let mut reader = store.reader().unwrap();
    let children = reader.children(Some(&root), None, 9).unwrap();
    assert!(reader.rows(&children).unwrap()[0].as_ref().unwrap().row.is_none());
    assert_eq!(reader.describe(&children, false).unwrap()[0].as_ref().unwrap().verdict, Verdict::Plain);
    assert_eq!(reader.alias(&root, "anna").unwrap(), None);
}

const GATE: &str = "GREENROOM_TEST_GATE";

/// Another process that holds the gate of a store and is stopped.
///
/// What it says is kept open, or its test harness could not write to the end.
struct Holder(Child, BufReader<ChildStdout>);

impl Holder {
    fn stopped(path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::sqlite::tests::another_process_at_the_gate", "--ignored", "--nocapture", "--test-threads=1"])
            .env(GATE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let said = output.by_ref().lines().map(Result::unwrap).find(|line| line.ends_with("within"));
        assert!(said.is_some(), "the other process ended");
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped());
        Self(child, output)
    }

    /// Lets the process go on, and so end.
    fn go_on(mut self) {
        drop(self.0.stdin.take());
        kill_process(Pid::from_child(&self.0), Signal::CONT).unwrap();
        self.1.read_to_end(&mut Vec::new()).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

/// The other process: holds the gate until its input ends.
#[test]
#[ignore = "started by the tests of this module"]
fn another_process_at_the_gate() {
    let Some(path) = std::env::var_os(GATE) else { return };
    let turn = birth::gate(Path::new(&path)).unwrap().enter().unwrap();
    println!("within");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(turn);
}

fn is_locked(error: &StoreError, store: &SqliteStore) -> bool {
    matches!(error, StoreError::Locked { path } if Path::new(path) == &*store.path)
}

const SHORT: Duration = Duration::from_millis(20);
/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn a_process_stopped_within_its_turn_does_not_hang_the_others() {
    let (_folder, store, id) = store();
    let holder = Holder::stopped(&store.path);
    store.writer().gate.patience = SHORT;
    for _ in 0..2 {
        let error = store.commit(&[accept(&id, "m0")]).unwrap_err();
        assert!(matches!(&error, CommitError::NotCommitted(error) if is_locked(error, &store)), "{error:?}");
        assert_eq!(error.code(), "STORE_LOCKED");
    }
    store.writer().renewed_at = None;
    assert!(is_locked(&store.heartbeat().unwrap_err(), &store));
    assert!(is_locked(&store.close().unwrap_err(), &store));
    assert_eq!(pending(&store, &id), 0);
    holder.go_on();
    store.writer().gate.patience = LONG;
    assert_eq!(store.commit(&[accept(&id, "m0")]).unwrap(), [Ok(FIRST)]);
}

#[test]
fn a_writer_that_gave_up_does_not_keep_the_turn_that_comes_to_it_later() {
    let (_folder, store, id) = store();
    let holder = Holder::stopped(&store.path);
    store.writer().gate.patience = SHORT;
    assert!(store.commit(&[accept(&id, "m0")]).is_err());
    holder.go_on();
    let mut other = birth::gate(&store.path).unwrap();
    other.patience = LONG;
    drop(other.enter().unwrap());
    let error = SqliteStore::open(&*store.path).unwrap().commit(&[accept(&id, "m0")]);
    assert_eq!(error.unwrap(), [Ok(FIRST)]);
}

#[test]
fn a_store_that_another_process_is_making_is_not_waited_for_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let holder = Holder::stopped(&path);
    let mut gate = birth::gate(&path).unwrap();
    gate.patience = SHORT;
    let error = birth::create(&path, &gate).unwrap_err();
    assert_eq!(error.code(), "STORE_LOCKED");
    assert!(!path.exists());
    holder.go_on();
    SqliteStore::open(&path).unwrap();
}

#[test]
fn a_program_that_holds_the_lock_of_sqlite_itself_is_told_of_in_the_same_way() {
    let (_folder, store, id) = store();
    let shell = rusqlite::Connection::open(&store.path).unwrap();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.writer().conn.as_ref().unwrap().busy_timeout(SHORT).unwrap();
    let error = store.commit(&[accept(&id, "m0")]).unwrap_err();
    assert!(matches!(&error, CommitError::NotCommitted(error) if is_locked(error, &store)), "{error:?}");
    shell.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.commit(&[accept(&id, "m0")]).unwrap(), [Ok(FIRST)]);
}

#[test]
fn the_writer_syncs_every_commit_and_maps_no_memory() {
    let (_folder, store, id) = store();
    // The second time on a connection that was opened again after a failed commit.
    for faults in [&[] as &[Fault], &[Fault::Lost]] {
        fail(&store, faults);
        drop(store.commit(&[accept(&id, "m0")]));
        store.commit(&[accept(&id, "m1")]).unwrap();
        let writer = store.writer();
        let conn = writer.conn.as_ref().unwrap();
        let number = |pragma: &str| conn.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).unwrap();
        let mode: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        // 2 is FULL: sqlite.org, "PRAGMA synchronous".
        assert_eq!((number("synchronous"), mode.as_str(), number("mmap_size")), (2, "wal", 0));
    }
}

/// What a check finds in the index.
fn index_faults(store: &SqliteStore) -> usize {
    let mut faults = 0;
    check(&mut *store.reader().unwrap(), None, &mut |seen| {
        faults += usize::from(matches!(seen, Seen::Finding(found) if found.class.severity() == Severity::Index));
    })
    .unwrap();
    faults
}

/// What listings say.
fn listed(store: &SqliteStore) -> String {
    let mut reader = store.reader().unwrap();
    format!("{:?} {:?}", reader.family(None, None, 999, false).unwrap(), reader.runnable(None, 999).unwrap())
}

#[test]
fn a_rebuild_that_is_ended_anywhere_leaves_an_index_that_is_right_or_noticed() {
    // Two transactions of rows and the last one.
    const TRANSACTIONS: usize = 3;
    let mut left = Vec::new();
    for lost in 0..=TRANSACTIONS {
        let (_folder, store, _) = store();
        let sessions: Vec<Op> = (0..99)
            .flat_map(|n| {
                let id = SessionId::new(format!("s{n}")).unwrap();
                [Op::Create(Create::root(NewSession::root(id.clone()), "agent", "label")), accept(&id, "m")]
            })
            .collect();
        store.commit(&sessions).unwrap();
        let before = listed(&store);
        // A set that is wrong, and its tally with it.
        let raw = rusqlite::Connection::open(&store.path).unwrap();
        raw.execute_batch("UPDATE summary SET work = 1 - work, head = '{}'; INSERT INTO orphan VALUES('nobody')").unwrap();
        let damaged = index_faults(&store);
        if lost < TRANSACTIONS {
            // The process ends at this commit.
            fail(&store, &vec![Fault::None; lost]);
            fail(&store, &[Fault::Lost]);
            assert!(store.rebuild_index(None, &mut |_| {}).is_err());
        } else {
            store.rebuild_index(None, &mut |_| {}).unwrap();
        }
        assert_eq!(listed(&store), before, "ended at {lost}");
        let faults = index_faults(&store);
        assert!(faults < damaged || lost == 0, "ended at {lost}: {faults}");
        left.push(faults > 0);
        // Others go on as if nothing had been.
        store.commit(&[accept(&SessionId::new("s7").unwrap(), "m1")]).unwrap();
        store.rebuild_index(None, &mut |_| {}).unwrap();
        assert_eq!(index_faults(&store), 0, "ended at {lost}");
    }
    assert_eq!(left, [true, true, true, false]);
}

#[test]
fn a_rebuild_waits_for_its_turn_and_says_so_when_it_does_not_come() {
    let (_folder, store, _) = store();
    rusqlite::Connection::open(&store.path).unwrap().execute_batch("DELETE FROM tally").unwrap();
    let holder = Holder::stopped(&store.path);
    store.writer().gate.patience = SHORT;
    assert!(is_locked(&store.rebuild_index(None, &mut |_| {}).unwrap_err(), &store));
    holder.go_on();
    store.writer().gate.patience = LONG;
    store.rebuild_index(None, &mut |_| {}).unwrap();
    assert_eq!(index_faults(&store), 0);
}
