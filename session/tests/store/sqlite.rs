//! The SQLite file: birth, what is not ours, reading without a trace, damage, several openings.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Barrier,
    thread,
};

use greenroom_session::store::{
    Op, Reader, Refused, Store, StoreError,
    sqlite::{SqliteStore, open_reader},
};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::{Fixture, accept, append, describe, note, one, open, root, sid, turn};

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    (folder, path)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_store_is_born_private_in_folders_made_for_it() {
    let (folder, _) = folder();
    let path = folder.path().join("a/b/store.db");
    let store = SqliteStore::open(&path).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    store.close().unwrap();
    drop(store);
    assert_eq!(names(path.parent().unwrap()), ["store.db", "store.db-lock", "store.db-nodes"]);
    assert_eq!(names(&path.parent().unwrap().join("store.db-nodes")), Vec::<String>::new());
}

#[test]
fn what_a_killed_birth_left_is_removed_by_the_next() {
    let (folder, path) = folder();
    // Killed while the file was being built, and after it was whole but before it had its name.
    for (name, bytes) in
        [(".store.db.birth.1", b"half".as_slice()), (".store.db.birth.1-wal", b""), (".store.db.birth.1-journal", b"x"), (".other.birth.1", b"y")]
    {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let (_elsewhere, whole) = self::folder();
    drop(SqliteStore::open(&whole).unwrap());
    fs::copy(&whole, folder.path().join(".store.db.birth.2")).unwrap();
    drop(SqliteStore::open(&path).unwrap());
    assert_eq!(names(folder.path()), [".other.birth.1", "store.db", "store.db-lock", "store.db-nodes"]);
}

#[test]
fn a_birth_killed_after_the_link_leaves_a_whole_store() {
    let (folder, path) = folder();
    drop(SqliteStore::open(&path).unwrap());
    fs::hard_link(&path, folder.path().join(".store.db.birth.3")).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    one(&store, Op::Create(root("r", 1))).unwrap();
    assert!(open_reader(&path).unwrap().header(&sid("r")).unwrap().is_some());
}

#[test]
fn what_is_not_a_store_is_left_as_it_was() {
    let (_elsewhere, whole) = folder();
    drop(SqliteStore::open(&whole).unwrap());
    let whole = fs::read(&whole).unwrap();
    let foreign = {
        let (_elsewhere, path) = folder();
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t(x); INSERT INTO t VALUES(1)").unwrap();
        conn.close().unwrap();
        fs::read(&path).unwrap()
    };
    for (what, bytes) in [
        ("empty", Vec::new()),
        ("text", b"not a database at all".to_vec()),
        ("long text", b"not a database at all ".repeat(1_000)),
        ("another program's", foreign),
        ("cut in its header", whole[..50].to_vec()),
        ("cut in its first page", whole[..3_000].to_vec()),
        ("cut after its first page", whole[..4_096].to_vec()),
    ] {
        let (folder, path) = folder();
        fs::write(&path, &bytes).unwrap();
        for error in [SqliteStore::open(&path).unwrap_err(), SqliteStore::open_existing(&path).unwrap_err(), open_reader(&path).unwrap_err()] {
            assert_eq!(error.code(), "STORE_FOREIGN", "{what}: {error}");
        }
        assert_eq!(fs::read(&path).unwrap(), bytes, "{what}");
        assert_eq!(names(folder.path()), ["store.db"], "{what}");
    }
    let (folder, path) = folder();
    fs::create_dir(&path).unwrap();
    assert_eq!(SqliteStore::open(&path).unwrap_err().code(), "STORE_FOREIGN");
    assert_eq!(names(folder.path()), ["store.db"]);
}

#[test]
fn a_newer_store_is_named_and_left_as_it_was() {
    let (folder, path) = folder();
    drop(SqliteStore::open(&path).unwrap());
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 2").unwrap();
    let (bytes, before) = (fs::read(&path).unwrap(), names(folder.path()));
    assert!(matches!(SqliteStore::open(&path), Err(StoreError::Version { found: 2, known: 1, .. })));
    assert!(matches!(open_reader(&path), Err(StoreError::Version { found: 2, .. })));
    assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (bytes, before));
}

#[test]
fn an_absent_store_is_not_made_by_looking() {
    let (folder, path) = folder();
    assert_eq!(SqliteStore::open_existing(&path).unwrap_err().code(), "STORE_NOT_FOUND");
    assert_eq!(open_reader(&path).unwrap_err().code(), "STORE_NOT_FOUND");
    assert_eq!(open_reader(folder.path().join("no/where.db")).unwrap_err().code(), "STORE_NOT_FOUND");
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn racing_births_end_in_one_store() {
    let (folder, path) = folder();
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        for n in 0..8 {
            let (barrier, path) = (&barrier, &path);
            scope.spawn(move || {
                barrier.wait();
                let store = SqliteStore::open(path).unwrap();
                one(&store, Op::Create(root(&format!("r{n}"), 1))).unwrap();
            });
        }
    });
    assert_eq!(open_reader(&path).unwrap().find("", 99).unwrap().len(), 8);
    assert!(names(folder.path()).iter().all(|name| !name.contains("birth")));
}

/// The bytes of the database and of its WAL, as far as they are there.
fn bytes(path: &Path) -> (Vec<u8>, Vec<u8>) {
    let wal = path.with_file_name("store.db-wal");
    (fs::read(path).unwrap(), fs::read(wal).unwrap_or_default())
}

fn read_everything(reader: &mut dyn Reader) {
    for child in reader.children(None, None, 99).unwrap() {
        reader.load(&child.id).unwrap();
        reader.describe(&[child], true).unwrap().pop().unwrap().unwrap();
    }
    assert_eq!(reader.find("", 99).unwrap().len(), 2);
    reader.runnable(None, 99).unwrap();
    reader.leases(None).unwrap();
    reader.alias(&sid("r"), "none").unwrap();
}

#[test]
fn a_reader_changes_nothing() {
    let (_folder, path) = folder();
    let store = SqliteStore::open(&path).unwrap();
    one(&store, Op::Create(root("r", 1))).unwrap();
    one(&store, Op::Create(root("q", 1))).unwrap();
    one(&store, accept("r", turn("m"))).unwrap();
    open(&store, "q", None).unwrap();
    let look = |path: &Path| {
        let before = bytes(path);
        let mut reader = open_reader(path).unwrap();
        read_everything(&mut reader);
        drop(reader);
        assert!(bytes(path) == before, "a reader wrote");
    };
    // Beside a live writer, with a WAL.
    assert!(!bytes(&path).1.is_empty());
    look(&path);
    // After a writer that was killed: its files without its process, with and without the shared memory.
    let (_other, killed) = folder();
    for suffix in ["", "-wal", "-shm"] {
        fs::copy(path.with_file_name(format!("store.db{suffix}")), killed.with_file_name(format!("store.db{suffix}"))).unwrap();
    }
    look(&killed);
    fs::remove_file(killed.with_file_name("store.db-shm")).unwrap();
    look(&killed);
    // After a writer that has closed: no WAL is left.
    store.close().unwrap();
    drop(store);
    assert!(!path.with_file_name("store.db-wal").exists());
    look(&path);
}

#[test]
fn damage_to_a_record_is_found_and_named() {
    for (what, sql, place) in [
        ("an event's text", "UPDATE event SET body = replace(body, 'editor', 'victor') WHERE seq = 0", "event 0"),
        ("an event's checksum", "UPDATE event SET crc = crc + 1 WHERE seq = 1", "event 1"),
        ("a lost event", "DELETE FROM event WHERE seq = 0", "event 0"),
        ("an event in another's place", "UPDATE event SET seq = 5 - seq", "event 0"),
        ("a message's text", "UPDATE inbox SET body = replace(body, 'text of', 'lies of') WHERE ord = 0", "message 0"),
        ("a message made held", "UPDATE inbox SET held = 1 WHERE ord = 1", "message 1"),
        ("a message's kind", "UPDATE inbox SET kind = 1 WHERE ord = 1", "message 1"),
        ("a message's name", "UPDATE inbox SET message_id = 'other' WHERE ord = 1", "message 1"),
        ("a lost message", "DELETE FROM inbox WHERE ord = 0", "inbox"),
        ("the header", "UPDATE session SET header = replace(header, '1000', '1001')", "header"),
        ("the header's row", "UPDATE session SET created_at = 7", "header"),
    ] {
        let f = Fixture::sqlite();
        f.root("r");
        f.accept("r", turn("m0")).unwrap();
        f.accept("r", turn("m1")).unwrap();
        Connection::open(f.path()).unwrap().execute_batch(sql).unwrap();
        let error = f.reader().load(&sid("r")).unwrap_err();
        assert_eq!(error.code(), "SESSION_CORRUPT", "{what}");
        assert!(error.to_string().contains(&format!(" at {place}:")), "{what}: {error}");
        assert_eq!(f.reader().children(None, None, 9).unwrap().len(), 1, "{what}");
    }
}

#[test]
fn a_damaged_session_stands_beside_healthy_ones() {
    let f = Fixture::sqlite();
    f.root("r");
    f.root("q");
    let raw = Connection::open(f.path()).unwrap();
    raw.execute_batch("UPDATE event SET crc = 0 WHERE sid = 1; DELETE FROM summary WHERE sid = 1; DELETE FROM tally").unwrap();
    let done = f.store.commit(&[accept("r", turn("m")), accept("q", turn("m"))]).unwrap();
    assert_eq!(done[0].as_ref().unwrap_err().code(), "SESSION_CORRUPT");
    assert!(done[1].is_ok());
    let mut reader = f.reader();
    let all = reader.children(None, None, 9).unwrap();
    for verify in [false, true] {
        let described = reader.describe(&all, verify).unwrap();
        assert_eq!(described.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
    }
    assert_eq!(reader.runnable(None, 9).unwrap(), [sid("q")]);
}

#[test]
fn a_tombstone_that_was_changed_is_damage_not_another_message() {
    let f = Fixture::sqlite();
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    f.open("r", Some(1));
    Connection::open(f.path()).unwrap().execute_batch("UPDATE inbox SET hash = zeroblob(16)").unwrap();
    assert_eq!(f.accept("r", turn("m0")).unwrap_err().code(), "SESSION_CORRUPT");
}

#[test]
fn the_text_of_a_record_is_read_by_plain_sql() {
    let f = Fixture::sqlite();
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    f.open("r", Some(1));
    f.accept("r", note("n0", true)).unwrap();
    let raw = Connection::open(f.path()).unwrap();
    let one = |sql: &str| raw.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(one("SELECT json_extract(body, '$.data.message') FROM event WHERE json_extract(body, '$.type') = 'turn/start'"), "m0");
    assert_eq!(one("SELECT json_extract(body, '$.content[0].text') FROM inbox WHERE state = 0"), "note n0");
    assert_eq!(one("SELECT json_extract(header, '$.id') FROM session"), "r");
}

#[test]
fn a_lease_keeps_others_out_until_its_opening_goes() {
    let f = Fixture::sqlite();
    f.root("r");
    let (fence, _) = f.open("r", None);
    let other = SqliteStore::open(f.path()).unwrap();
    assert_eq!(open(&other, "r", None), Err(Refused::Held(f.store.owner().clone())));
    assert!(other.reader().unwrap().leases(None).unwrap()[0].alive);
    assert_eq!(describe(&mut open_reader(f.path()).unwrap(), "r", false).unwrap().holder.as_ref(), Some(f.store.owner()));
    f.store.close().unwrap();
    assert!(!open_reader(f.path()).unwrap().leases(None).unwrap()[0].alive);
    let (taken, _) = open(&other, "r", None).unwrap();
    assert_eq!(taken.epoch, 2);
    assert_eq!(f.one(append(&fence, vec![], vec![])), Err(Refused::Fenced { stored: 2 }));
    assert_eq!(open(&*f.store, "r", None), Err(Refused::Held(other.owner().clone())));
}

#[test]
fn an_opening_that_stops_loses_its_leases_when_its_time_is_over() {
    let f = Fixture::sqlite();
    f.root("r");
    f.accept("r", turn("m")).unwrap();
    let (fence, _) = f.open("r", None);
    let other = SqliteStore::open(f.path()).unwrap();
    let mut reader = open_reader(f.path()).unwrap();
    assert_eq!(reader.runnable(None, 9).unwrap(), []);
    let raw = Connection::open(f.path()).unwrap();
    for over in ["expires_at = expires_at - 10001", "boot_id = 'another boot'", "expires_at = expires_at + 1000000"] {
        raw.execute(&format!("UPDATE node SET {over} WHERE owner = ?1"), [f.store.owner().as_str()]).unwrap();
        assert!(!reader.leases(None).unwrap()[0].alive, "{over}");
        assert_eq!(reader.runnable(None, 9).unwrap(), [sid("r")], "{over}");
        // Back in time: any batch is a sign of life.
        f.accept("r", note(&format!("n{}", over.len()), true)).unwrap();
        assert!(reader.leases(None).unwrap()[0].alive, "{over}");
    }
    raw.execute("UPDATE node SET expires_at = 0 WHERE owner = ?1", [f.store.owner().as_str()]).unwrap();
    open(&other, "r", None).unwrap();
    assert_eq!(f.one(append(&fence, vec![], vec![])), Err(Refused::Fenced { stored: 2 }));
    // It is alive again, and so are those of its leases that nobody took.
    f.accept("r", note("back", true)).unwrap();
    f.root("q");
    f.open("q", None);
    assert_eq!(open(&other, "q", None), Err(Refused::Held(f.store.owner().clone())));
}

#[test]
fn a_heartbeat_brings_back_a_lost_sign_of_life() {
    let f = Fixture::sqlite();
    f.root("r");
    f.open("r", None);
    let raw = Connection::open(f.path()).unwrap();
    fs::remove_dir_all(f.path().with_file_name("store.db-nodes")).unwrap();
    let mut reader = open_reader(f.path()).unwrap();
    assert!(!reader.leases(None).unwrap()[0].alive);
    f.store.heartbeat().unwrap();
    assert!(reader.leases(None).unwrap()[0].alive);
    drop(raw);
}

#[test]
fn messages_of_others_are_noticed_once_and_own_ones_never() {
    let f = Fixture::sqlite();
    f.root("r");
    f.root("q");
    let other = SqliteStore::open(f.path()).unwrap();
    f.accept("r", turn("m0")).unwrap();
    assert_eq!(f.store.poll().unwrap(), []);
    assert_eq!(other.poll().unwrap(), [sid("r")]);
    one(&other, accept("q", turn("m0"))).unwrap();
    f.accept("r", turn("m1")).unwrap();
    one(&other, accept("q", turn("m1"))).unwrap();
    assert_eq!(f.store.poll().unwrap(), [sid("q")]);
    assert_eq!(f.store.poll().unwrap(), []);
    assert_eq!(other.poll().unwrap(), [sid("r")]);
    f.accept("r", turn("m2")).unwrap();
    assert_eq!(f.store.poll().unwrap(), []);
    one(&other, accept("r", turn("m3"))).unwrap();
    assert_eq!(f.store.poll().unwrap(), [sid("r")]);
}

#[test]
fn two_openings_see_each_other_s_changes_at_once() {
    let f = Fixture::sqlite();
    f.root("r");
    let other = SqliteStore::open(f.path()).unwrap();
    for n in 0..10 {
        let store: &dyn Store = if n % 2 == 0 { &*f.store } else { &other };
        let done = one(store, accept("r", turn(&format!("m{n}")))).unwrap();
        assert_eq!(done, greenroom_session::store::Done::Accepted { order: n, duplicate: false });
    }
}

#[test]
fn a_link_to_a_store_is_the_same_store() {
    let f = Fixture::sqlite();
    f.root("r");
    f.open("r", None);
    let link = f.path().with_file_name("link.db");
    std::os::unix::fs::symlink(f.path(), &link).unwrap();
    let other = SqliteStore::open(&link).unwrap();
    assert_eq!(open(&other, "r", None), Err(Refused::Held(f.store.owner().clone())));
}

#[test]
fn a_held_message_and_what_stands_behind_it_wait() {
    use greenroom_session::{codec::message_crc, store::ClaimKind};
    let f = Fixture::sqlite();
    f.root("r");
    for message in [note("n0", false), turn("m0"), note("n1", false), turn("m1")] {
        f.accept("r", message).unwrap();
    }
    // As an import leaves it.
    let raw = Connection::open(f.path()).unwrap();
    let body: String = raw.query_row("SELECT body FROM inbox WHERE ord = 1", [], |row| row.get(0)).unwrap();
    let crc = message_crc(&sid("r"), 1, true, body.as_bytes());
    raw.execute("UPDATE inbox SET held = 1, crc = ?1 WHERE ord = 1", [crc]).unwrap();
    raw.execute_batch("DELETE FROM summary; DELETE FROM tally").unwrap();
    assert_eq!(f.reader().runnable(None, 9).unwrap(), []);
    let (fence, claimed) = f.open("r", Some(1));
    assert_eq!(crate::support::heard(&claimed.unwrap()), ["n0"]);
    assert_eq!(f.claim(&fence, ClaimKind::Notes), None);
    let head = f.load("r").fold.head().clone();
    assert_eq!((head.held, head.pending_turns, head.pending_wakes), (1, 2, 1));
}

#[test]
fn what_a_database_that_is_gone_had_in_its_log_is_not_brought_into_a_new_one() {
    let (folder, path) = folder();
    let wal = folder.path().join("store.db-wal");
    let old = SqliteStore::open(&path).unwrap();
    one(&old, Op::Create(root("old", 1))).unwrap();
    let log = fs::read(&wal).unwrap();
    assert!(!log.is_empty());
    drop(old);
    // As after a kill, when somebody takes the database away and leaves what lies beside it.
    fs::remove_file(&path).unwrap();
    fs::write(&wal, &log).unwrap();
    let error = SqliteStore::open(&path).unwrap_err();
    assert!(error.code() == "STORE_FOREIGN" && error.to_string().contains("store.db-wal"), "{error}");
    assert_eq!((path.exists(), fs::read(&wal).unwrap()), (false, log));
    fs::remove_file(&wal).unwrap();
    let new = SqliteStore::open(&path).unwrap();
    assert!(new.reader().unwrap().find("", 9).unwrap().is_empty());
}

#[test]
fn a_trigger_of_another_program_changes_nothing_of_what_is_written() {
    let f = Fixture::sqlite();
    f.root("r");
    let raw = Connection::open(f.path()).unwrap();
    raw.execute_batch(
        "CREATE TRIGGER t AFTER INSERT ON inbox BEGIN DELETE FROM inbox; END; CREATE TRIGGER u BEFORE INSERT ON event BEGIN SELECT RAISE(IGNORE); END",
    )
    .unwrap();
    f.accept("r", turn("m0")).unwrap();
    f.open("r", Some(1));
    f.accept("r", turn("m1")).unwrap();
    let head = f.describe("r").unwrap().head;
    assert_eq!((head.pending_turns, head.open.is_some(), head.next_order), (1, true, 2), "one was claimed, and the other waits: {head:?}");
    assert_eq!(f.load("r").events.len(), usize::try_from(head.next_seq).unwrap());
}

#[test]
fn a_backup_comes_to_its_end_while_somebody_writes_all_the_time() {
    let f = Fixture::sqlite();
    f.root("r");
    let raw = Connection::open(f.path()).unwrap();
    raw.execute_batch("PRAGMA synchronous = OFF; CREATE TABLE shopping(list BLOB)").unwrap();
    // More than is copied at a time.
    for _ in 0..20 {
        raw.execute("INSERT INTO shopping VALUES(zeroblob(1048576))", []).unwrap();
    }
    let to = f.path().with_extension("copy");
    let done = &std::sync::atomic::AtomicBool::new(false);
    let writes = std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            // A copy that begins anew with every write ends when nobody writes any more.
            (0..100_000)
                .take_while(|_| !done.load(std::sync::atomic::Ordering::SeqCst))
                .filter(|_| raw.execute("UPDATE tally SET crc = crc + 1", []).unwrap() == 1)
                .count()
        });
        f.store.backup(&to, &[]).unwrap();
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        writer.join().unwrap()
    });
    assert!(writes < 100_000);
    assert_eq!(Connection::open(&to).unwrap().query_row("SELECT count(*) FROM shopping", [], |row| row.get::<_, i64>(0)).unwrap(), 20);
}
