//! What becomes of a batch whose commit fails, by faults put into the writer.

use std::sync::Arc;

use super::{SqliteStore, writer::Fault};
use crate::{
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
