//! Every bit of a small store flipped in turn: each flip is harmless, an error or a diagnostic, and what it has changed is named by a check.
//!
//! `GREENROOM_STRIDE=1` flips every bit; without it every so-manieth is flipped, by a stride that meets every bit of a byte and every place of a page.
//! `GREENROOM_FROM=N` begins at the Nth bit of a file, to go on after one that was found.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use greenroom_session::{
    check::{Finding, Seen, check},
    descriptor::Descriptor,
    event::{Event, TurnEnd},
    header::NewSession,
    id::SessionId,
    listing::Cursor,
    message::InboxRecord,
    store::{ClaimKind, Create, Reader, Store, StoreError, jsonl, jsonl::JsonlStore, sqlite, sqlite::SqliteStore},
};
use tempfile::TempDir;

use crate::support::{Fixture, accept, child, close, fence, mid, note, sid, turn};

/// What there is: a root with a turn behind it and messages that wait, a child with an alias, a child of that, an orphan.
const SESSIONS: [&str; 4] = ["r", "c1", "d", "orphan"];

/// A small store at rest.
fn small(store: Box<dyn Store>) -> Fixture {
    let f = Fixture { store, folder: None };
    f.root("r");
    f.create(child("c1", "r", Some("a"), 1_000));
    let below = Descriptor::continuable("spawn", "below", "reporter");
    f.create(Create::child(NewSession::child(sid("d"), sid("c1"), 1), vec![], &below, None, 1_000).unwrap());
    f.create(child("orphan", "nobody", None, 1_000));
    f.accept("r", turn("m0")).unwrap();
    let (fence, _) = f.open("r", Some(1));
    f.accept("r", note("n0", false)).unwrap();
    f.claim(&fence, ClaimKind::Notes).unwrap();
    f.end_turn(&fence, 1, TurnEnd::Completed);
    f.one(close(&fence, f.next_seq("r"), true)).unwrap();
    for message in [turn("m1"), note("n1", true)] {
        f.accept("r", message).unwrap();
    }
    f.store.close().unwrap();
    f
}

/// An answer: what it says, or that there is none, which is a word.
type Answer = Result<String, String>;

fn answer<T: Debug, E: Debug>(said: Result<T, E>) -> Answer {
    said.map(|said| format!("{said:?}")).map_err(|error| format!("{error:?}"))
}

/// Asks everything that a reader can be asked. `Records` are those that must never be wrong without an error of their own.
fn ask(reader: &mut dyn Reader) -> BTreeMap<String, Answer> {
    let mut said = BTreeMap::new();
    let mut put = |what: String, answer: Answer| drop(said.insert(what, answer));
    for id in SESSIONS {
        put(format!("records of {id}"), answer(reader.load(&sid(id))));
        put(format!("records waiting for {id}"), answer(reader.inbox(&sid(id), 10)));
        put(format!("header of {id}"), answer(reader.header(&sid(id))));
        put(format!("records from 0 of {id}"), answer(reader.events(&sid(id), 0, 100)));
        put(format!("records from 1 of {id}"), answer(reader.events(&sid(id), 1, 3)));
        for verify in [false, true] {
            put(format!("family of {id}, {verify}"), answer(reader.family(Some(&sid(id)), None, 10, verify)));
        }
        for message in ["m0", "n1"] {
            put(format!("message {message} of {id}"), answer(reader.message(&sid(id), &mid(message))));
        }
    }
    put("roots".into(), answer(reader.family(None, None, 10, false)));
    for parent in [None, Some(sid("r")), Some(sid("nobody"))] {
        put(format!("children of {parent:?} one by one"), answer(one_by_one(reader, parent.as_ref())));
    }
    put("sessions one by one".into(), answer(sessions_one_by_one(reader)));
    put("runnable".into(), answer(reader.runnable(None, 10)));
    put("leases".into(), answer(reader.leases(None)));
    put("alias".into(), answer(reader.alias(&sid("r"), "a")));
    put("found".into(), answer(reader.find("", 10)));
    put("counted".into(), answer(reader.count()));
    said
}

/// More pages than there are sessions: who pages through a store comes to an end, whatever it is like.
const MOST_PAGES: usize = 100;

fn one_by_one(reader: &mut dyn Reader, parent: Option<&SessionId>) -> Result<Vec<SessionId>, StoreError> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..MOST_PAGES {
        let Some(next) = reader.children(parent, after.as_ref(), 1)?.pop() else { return Ok(found) };
        after = Some(Cursor { created_at: next.created_at, id: next.id.clone() });
        found.push(next.id);
    }
    panic!("no end: {found:?}");
}

fn sessions_one_by_one(reader: &mut dyn Reader) -> Result<Vec<SessionId>, StoreError> {
    let mut found: Vec<SessionId> = Vec::new();
    for _ in 0..MOST_PAGES {
        let Some(next) = reader.sessions(found.last(), 1)?.pop() else { return Ok(found) };
        found.push(next);
    }
    panic!("no end: {found:?}");
}

/// What a check says: nothing, something, or that it cannot be done.
fn named(reader: &mut dyn Reader) -> Result<Vec<Finding>, String> {
    let mut found = Vec::new();
    let mut see = |seen| {
        if let Seen::Finding(finding) = seen {
            found.push(finding);
        }
    };
    check(reader, None, &mut see).map(|()| found).map_err(|error| format!("{error:?}"))
}

/// How the flips of a store went.
#[derive(Debug, Default)]
struct Flips {
    harmless: u64,
    refused: u64,
    named: u64,
}

/// Judges a store one bit of which is another. `truth` is what was said before, with the findings.
fn judge(
    flips: &mut Flips,
    reader: Result<Box<dyn Reader>, StoreError>,
    (truth, records, before): (&BTreeMap<String, Answer>, &Records, &[Finding]),
    what: &dyn Fn() -> String,
) {
    let Ok(mut reader) = reader else {
        flips.refused += 1;
        return;
    };
    let said = ask(&mut *reader);
    let other: Vec<&String> = truth.iter().filter(|(what, answer)| said[*what] != **answer).map(|(what, _)| what).collect();
    // Records carry checksums that are looked at by every read: there is no wrong record.
    let wrong: Vec<_> = other.iter().filter(|what| what.starts_with("records") && said[**what].is_ok()).collect();
    let found = named(&mut *reader);
    let is_named = found.as_ref().map_or(true, |found| found.iter().any(|finding| finding.class.severity().is_fault() && !before.contains(finding)));
    if other.is_empty() {
        flips.harmless += 1;
    } else if is_named {
        flips.named += 1;
    } else {
        panic!("{}: other answers and no word: {:?}", what(), other.iter().map(|what| (what, &said[*what], &truth[*what])).collect::<Vec<_>>());
    }
    assert!(wrong.is_empty() || is_named, "{}: wrong records: {wrong:?}", what());
    // A record that is missing may be named by a check alone, as one that SQLite's own index does not lead to; one that says something else is never told.
    for (id, (events, waiting)) in records {
        if let Ok(log) = reader.load(&sid(id)) {
            assert!(log.events.iter().all(|event| events.contains(event)), "{}: {id} has an event that nobody wrote", what());
        }
        if let Ok(inbox) = reader.inbox(&sid(id), 10) {
            assert!(inbox.iter().all(|record| waiting.contains(record)), "{}: {id} has a message that nobody sent", what());
        }
    }
}

/// The records of each session.
type Records = BTreeMap<&'static str, (Vec<Event>, Vec<InboxRecord>)>;

fn records(reader: &mut dyn Reader) -> Records {
    SESSIONS.into_iter().map(|id| (id, (reader.load(&sid(id)).unwrap().events, reader.inbox(&sid(id), 10).unwrap()))).collect()
}

/// Writes to a store one bit of which is another, and looks that no committed record is lost or fused: each session's are as they were, or an error says why not.
fn write_on(store: Result<Box<dyn Store>, StoreError>, records: &Records, what: &dyn Fn() -> String) {
    let Ok(store) = store else { return };
    let mut accepted = Vec::new();
    for id in SESSIONS {
        if matches!(store.commit(&[accept(id, turn("late"))]), Ok(results) if results[0].is_ok()) {
            accepted.push(id);
        }
    }
    drop(store.close());
    let Ok(mut reader) = store.reader() else { return };
    for id in SESSIONS {
        if let Ok(events) = reader.events(&sid(id), 0, 100) {
            let before = &records[id].0;
            // The end of a file may have been set aside, which a check tells of.
            let is_named =
                events.len() == before.len() || named(&mut *reader).is_ok_and(|found| found.iter().any(|finding| finding.class.severity().is_fault()));
            assert!(before.starts_with(&events) && is_named, "{}: {id} has other events after a write", what());
        }
        if let (true, Ok(waiting)) = (accepted.contains(&id), reader.inbox(&sid(id), 10)) {
            let ids: Vec<String> = waiting.iter().map(|record| record.message.id.to_string()).collect();
            // A write may go over what a page's own bookkeeping no longer knows of, as the entries of an index: SQLite sees that afterwards.
            let mut is_named = || named(&mut *reader).map_or(true, |found| found.iter().any(|finding| finding.class.severity().is_fault()));
            let is_last = ids.last().is_some_and(|last| last == "late");
            assert!(is_last || is_named(), "{}: {id} has accepted a message that is not there, and no word of it: {ids:?}", what());
        }
    }
}

fn stride(default: usize) -> usize {
    std::env::var("GREENROOM_STRIDE").map_or(default, |text| text.parse().unwrap())
}

/// Flips bits of a file in turn, each for one judgement.
fn flip(path: &Path, stride: usize, mut judge: impl FnMut(usize)) {
    let whole = fs::read(path).unwrap();
    let mut bytes = whole.clone();
    let from = std::env::var("GREENROOM_FROM").map_or(0, |text| text.parse().unwrap());
    for bit in (from..whole.len() * 8).step_by(stride) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(path, &bytes).unwrap();
        judge(bit);
        bytes[bit / 8] = whole[bit / 8];
    }
    fs::write(path, whole).unwrap();
}

/// Makes the pages of a database as small as SQLite allows: fewer unused bits between the ones that mean something, more pages and more pointers.
fn small_pages(path: &Path) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM; PRAGMA journal_mode = WAL;").unwrap();
    assert_eq!(db.query_row("PRAGMA page_size", [], |row| row.get::<_, u32>(0)).unwrap(), 512);
    db.close().unwrap();
}

#[test]
fn no_flipped_bit_of_a_database_is_a_wrong_answer_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    drop(small(Box::new(SqliteStore::open(&path).unwrap())));
    small_pages(&path);
    let mut reader = sqlite::open_reader(&path).unwrap();
    let (truth, records, before) = (ask(&mut reader), records(&mut reader), named(&mut reader).unwrap());
    assert!(before.iter().all(|finding| !finding.class.severity().is_fault()), "{before:?}");
    drop(reader);
    let mut flips = Flips::default();
    flip(&path, stride(211), |bit| {
        let reader = sqlite::open_reader(&path).map(|reader| Box::new(reader) as Box<dyn Reader>);
        let what = || format!("bit {} of byte {}", bit % 8, bit / 8);
        judge(&mut flips, reader, (&truth, &records, &before), &what);
        write_on(SqliteStore::open_existing(&path).map(|store| Box::new(store) as Box<dyn Store>), &records, &what);
        for left in ["-wal", "-shm"] {
            drop(fs::remove_file(folder.path().join(format!("store.db{left}"))));
        }
    });
    eprintln!("{flips:?}");
    assert!(flips.harmless > 0 && flips.named + flips.refused > 0, "{flips:?}");
}

/// A database that is written: each commit stands in its write-ahead log, and none in the file itself. Returns how long the log was after each.
fn in_use(path: &Path) -> (Fixture, Vec<usize>) {
    drop(small(Box::new(SqliteStore::open(path).unwrap())));
    small_pages(path);
    let f = Fixture { store: Box::new(SqliteStore::open(path).unwrap()), folder: None };
    let length = || usize::try_from(fs::metadata(wal_of(path)).unwrap().len()).unwrap();
    let mut lengths = vec![length()];
    let mut done = |what: &dyn Fn(&Fixture)| {
        what(&f);
        lengths.push(length());
    };
    done(&|f| drop(f.accept("r", turn("m2")).unwrap()));
    done(&|f| drop(f.accept("c1", turn("m0")).unwrap()));
    done(&|f| drop(f.create(child("c2", "r", Some("b"), 2_000))));
    done(&|f| drop(f.open("c1", Some(1))));
    done(&|f| f.end_turn(&fence("c1", 1), 1, TurnEnd::Completed));
    done(&|f| drop(f.close(&fence("c1", 1), true).unwrap()));
    done(&|f| drop(f.accept("d", note("n0", true)).unwrap()));
    (f, lengths)
}

fn wal_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// The file and a beginning of its write-ahead log, as a process that is killed leaves them.
fn left_behind(db: &[u8], wal: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    fs::write(&path, db).unwrap();
    fs::write(wal_of(&path), wal).unwrap();
    (folder, path)
}

#[test]
fn a_flipped_bit_of_a_log_that_was_left_behind_ends_it_at_that_commit_and_at_no_other_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (_store, lengths) = in_use(&path);
    let (db, wal) = (fs::read(&path).unwrap(), fs::read(wal_of(&path)).unwrap());
    assert!(lengths.is_sorted_by(|a, b| a < b) && lengths[0] == 0 && wal.len() >= lengths[lengths.len() - 1], "{lengths:?} of {}", wal.len());
    // What was true after each commit.
    let asked = |length: usize| {
        let (_folder, path) = left_behind(&db, &wal[..length]);
        ask(&mut sqlite::open_reader(&path).unwrap())
    };
    let moments: Vec<_> = lengths.iter().map(|length| asked(*length)).collect();
    assert!(moments.windows(2).all(|pair| pair[0] != pair[1]), "a commit that nobody can see");
    let whole = &wal[..lengths[lengths.len() - 1]];
    let mut bytes = whole.to_vec();
    let mut lost = 0;
    for bit in (0..whole.len() * 8).step_by(stride(97)) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (_folder, path) = left_behind(&db, &bytes);
        bytes[bit / 8] = whole[bit / 8];
        let before = lengths.iter().rposition(|length| *length <= bit / 8).unwrap();
        let what = || format!("bit {} of byte {} of the log, after commit {before}", bit % 8, bit / 8);
        let said = ask(&mut sqlite::open_reader(&path).unwrap_or_else(|error| panic!("{}: {error}", what())));
        let moment = moments.iter().position(|moment| *moment == said).unwrap_or_else(|| panic!("{}: no moment that ever was", what()));
        // What was committed before is all there; a bit that means nothing costs nothing.
        assert!(moment == before || moment + 1 == moments.len(), "{}: moment {moment}", what());
        lost += usize::from(moment + 1 < moments.len());
    }
    assert!(lost > 0);
}

#[test]
fn no_flipped_bit_of_a_log_in_use_is_a_wrong_answer_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    // Whoever has it open knows where in the log each page stands, and looks at no checksum of the log again.
    let (_store, lengths) = in_use(&path);
    let mut reader = sqlite::open_reader(&path).unwrap();
    let (truth, records, before) = (ask(&mut reader), records(&mut reader), named(&mut reader).unwrap());
    drop(reader);
    let log = fs::OpenOptions::new().read(true).write(true).open(wal_of(&path)).unwrap();
    let mut flips = Flips::default();
    for bit in (0..lengths[lengths.len() - 1] * 8).step_by(stride(211)) {
        let (at, mut byte) = (bit as u64 / 8, [0]);
        log.read_exact_at(&mut byte, at).unwrap();
        log.write_all_at(&[byte[0] ^ (1 << (bit % 8))], at).unwrap();
        let reader = sqlite::open_reader(&path).map(|reader| Box::new(reader) as Box<dyn Reader>);
        judge(&mut flips, reader, (&truth, &records, &before), &|| format!("bit {} of byte {} of the log", bit % 8, bit / 8));
        log.write_all_at(&byte, at).unwrap();
    }
    eprintln!("{flips:?}");
    assert!(flips.harmless > 0 && flips.named + flips.refused > 0, "{flips:?}");
    let mut reader = sqlite::open_reader(&path).unwrap();
    assert_eq!(ask(&mut reader), truth, "nobody has written what it has read");
}

/// The files of a folder of JSON Lines that are read.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.retain(|file| !file.ends_with("_lock"));
    files.sort();
    files
}

/// Puts every file back as it was, and takes those away that have come.
fn undo(dir: &Path, whole: &BTreeMap<PathBuf, Vec<u8>>) {
    for file in files(dir) {
        if !whole.contains_key(&file) {
            fs::remove_file(file).unwrap();
        }
    }
    for (file, bytes) in whole {
        fs::write(file, bytes).unwrap();
    }
}

fn lines() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    drop(small(Box::new(JsonlStore::open(&dir).unwrap())));
    (folder, dir)
}

#[test]
fn no_flipped_bit_of_a_folder_is_a_wrong_answer_without_a_word() {
    let (_folder, dir) = lines();
    let mut reader = jsonl::open_reader(&dir).unwrap();
    let (truth, records, before) = (ask(&mut reader), records(&mut reader), named(&mut reader).unwrap());
    let mut flips = Flips::default();
    let whole: BTreeMap<PathBuf, Vec<u8>> = files(&dir).into_iter().map(|file| (file.clone(), fs::read(file).unwrap())).collect();
    for file in files(&dir) {
        flip(&file, stride(37), |bit| {
            let reader = jsonl::open_reader(&dir).map(|reader| Box::new(reader) as Box<dyn Reader>);
            let what = || format!("bit {} of byte {} of {}", bit % 8, bit / 8, file.display());
            judge(&mut flips, reader, (&truth, &records, &before), &what);
            write_on(JsonlStore::open_existing(&dir).map(|store| Box::new(store) as Box<dyn Store>), &records, &what);
            undo(&dir, &whole);
        });
    }
    eprintln!("{flips:?}");
    assert!(flips.named + flips.refused > 0, "{flips:?}");
}
