//! What the store does when the disk fails, when a file was cut anywhere, and what it keeps in memory.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    ops::ControlFlow,
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{
    JsonlStore,
    batches::whole_batches,
    disk::{Device, Disk},
    lock::Lock,
    open_reader,
    place::Place,
    scan::{self, Unread},
};
use crate::{
    check::{Seen, check},
    descriptor::Descriptor,
    event::{Body, EpochEnd, TurnEnd},
    header::NewSession,
    id::SessionId,
    message::{Message, Source},
    recover::begin_epoch,
    store::{Accept, Append, Close, CommitError, Create, Done, Fence, LoadError, Op, Open, Reader, Refused, Remove, Store, StoreError},
};

mod reads;

fn sid(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

fn accept(session: &str, message: &str) -> Op {
    Op::Accept(Accept::new(sid(session), Message::turn(message, format!("text of {message}"), Source::User, 1).unwrap()))
}

fn root(id: &str) -> Op {
    Op::Create(Create::root(NewSession::root(sid(id)), "editor", format!("root {id}")))
}

fn child(id: &str, parent: &str) -> Op {
    let mut descriptor = Descriptor::continuable("spawn", format!("child {id}"), "reporter");
    descriptor.alias = Some(format!("alias of {id}"));
    let message = Message::turn("first", "Begin.", Source::User, 1).unwrap();
    Op::Create(Create::child(NewSession::child(sid(id), sid(parent), 0), vec![], &descriptor, Some(Arc::new(message)), 1).unwrap())
}

fn open(store: &dyn Store, id: &str) -> Op {
    let log = store.reader().unwrap().load(&sid(id)).unwrap();
    let (epoch, events) = begin_epoch(&log.fold, 9, 3);
    Op::Open(Open { session: sid(id), epoch, events: events.into(), claim: Some(10) })
}

fn done(store: &dyn Store, op: Op) -> Done {
    store.commit(&[op]).unwrap().remove(0).unwrap()
}

/// Everything that there is, as lines.
fn everything(reader: &mut dyn Reader) -> BTreeMap<String, Vec<String>> {
    let ids = reader.find("", usize::MAX).unwrap();
    ids.into_iter()
        .map(|id| {
            let mut lines = Vec::new();
            let mut note = |line: &[u8]| {
                lines.push(String::from_utf8(line.to_vec()).unwrap());
                Ok(())
            };
            reader.export(&id, &mut note).unwrap();
            (id.to_string(), lines)
        })
        .collect()
}

/// How a call to the disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing of it happens.
    Before,
    /// It happens, a write by half, and an error is told all the same.
    After,
    /// Nothing of it happens, nor of anything that is tried next.
    Dead,
}

/// A disk that fails once, at a given call, and perhaps from then on for a while.
#[derive(Debug)]
struct Faulty {
    calls: AtomicUsize,
    at: usize,
    fault: Fault,
    kind: io::ErrorKind,
    /// How many calls more fail.
    dead: Mutex<usize>,
}

impl Faulty {
    fn new(at: usize, fault: Fault) -> Arc<Self> {
        Arc::new(Self { calls: AtomicUsize::new(0), at, fault, kind: io::ErrorKind::Other, dead: Mutex::new(0) })
    }

    fn call<T>(&self, whole: impl FnOnce() -> io::Result<T>, half: impl FnOnce() -> io::Result<()>) -> io::Result<T> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let mut dead = self.dead.lock().unwrap();
        if *dead > 0 {
            *dead -= 1;
            return Err(self.kind.into());
        }
        if call != self.at {
            drop(dead);
            return whole();
        }
        match self.fault {
            Fault::Before => {}
            Fault::After => half()?,
            Fault::Dead => *dead = 3,
        }
        Err(self.kind.into())
    }
}

impl Disk for Faulty {
    fn write(&self, file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.call(|| Device.write(file, at, bytes), || file.write_all_at(&bytes[..bytes.len() / 2], at))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.call(|| Device.sync(file), || Device.sync(file))
    }

    fn cut(&self, file: &File, length: u64) -> io::Result<()> {
        self.call(|| Device.cut(file, length), || Device.cut(file, length))
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        self.call(|| Device.create(path), || Device.create(path).map(drop))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|| Device.link(from, to), || Device.link(from, to))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.call(|| Device.unlink(path), || Device.unlink(path))
    }

    fn make_folder(&self, path: &Path) -> io::Result<bool> {
        self.call(|| Device.make_folder(path), || Device.make_folder(path).map(drop))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.call(|| Device.sync_folder(path), || Device.sync_folder(path))
    }
}

/// What is still to be done of a small history, by what the store says of it; empty at its end.
fn next_batch(store: &dyn Store) -> Vec<Op> {
    let mut reader = store.reader().unwrap();
    let mut head = |id: &str| reader.load(&sid(id)).map(|log| log.fold.head().clone());
    let Ok(r) = head("r") else { return vec![root("r"), root("q")] };
    let Ok(q) = head("q") else { return vec![root("q")] };
    if q.next_order == 0 || r.next_order < 2 || head("c").is_err() {
        return vec![child("c", "r"), accept("r", "m0"), accept("q", "m0"), accept("r", "m1"), accept("r", "m1")];
    }
    let fence = Fence { session: sid("r"), epoch: 1 };
    match (r.epoch, r.live, r.turns, &r.open) {
        (0, ..) => vec![open(store, "r"), accept("q", "m2"), accept("c", "m1")],
        (_, true, 1, Some(_)) => {
            let end = Body::TurnEnd { turn: 1, reason: TurnEnd::Completed }.at(r.next_seq, 11);
            vec![Op::Append(Append { fence, events: [end].into(), take: vec![] }), child("d", "c"), accept("r", "m3")]
        }
        (_, true, ..) => {
            let end = Body::ActivationEnd { epoch: 1, reason: EpochEnd::Disposed }.at(r.next_seq, 12);
            vec![Op::Close(Close { fence, events: [end].into(), unless_pending: false }), child("e", "r"), child("f", "r")]
        }
        _ if ["c", "d", "e", "f"].iter().all(|id| reader.header(&sid(id)).unwrap().is_some()) => vec![],
        _ => vec![child("c", "r"), child("d", "c"), child("e", "r"), child("f", "r")],
    }
}

/// Plays the history to its end, and checks after each batch that what was said of it is so. Returns what there is, and how many batches failed.
fn play(dir: &Path, disk: Arc<dyn Disk>) -> Result<(BTreeMap<String, Vec<String>>, usize), StoreError> {
    let store = JsonlStore::open_with(dir, disk)?;
    let mut failed = 0;
    for _ in 0..40 {
        let ops = next_batch(&store);
        if ops.is_empty() {
            // Whatever was not answered is asked for once more; then all of it is there.
            for op in [accept("r", "m0"), accept("r", "m1"), accept("q", "m0"), accept("q", "m2"), accept("c", "m1"), accept("r", "m3")] {
                let again = store.commit(&[op]).unwrap().remove(0);
                assert!(matches!(again, Ok(Done::Accepted { .. })), "{again:?}");
            }
            let own = everything(&mut *store.reader().unwrap());
            let remove = [Op::Remove(Remove { session: sid("q"), discard: true })];
            let mut beside = open_reader(dir).unwrap();
            while !matches!(store.commit(&remove), Ok(results) if results == [Ok(Done::Removed)]) {
                failed += 1;
                assert!(failed < 40);
                assert_eq!(store.reader().unwrap().is_removed(&sid("q")).unwrap(), beside.is_removed(&sid("q")).unwrap());
            }
            assert!(beside.is_removed(&sid("q")).unwrap());
            assert_eq!(everything(&mut *store.reader().unwrap()), everything(&mut beside), "the writer's own readers see what others see");
            return Ok((own, failed));
        }
        let before = everything(&mut open_reader(dir).unwrap());
        match store.commit(&ops) {
            Ok(results) => {
                let beside = everything(&mut open_reader(dir).unwrap());
                for (op, result) in ops.iter().zip(&results) {
                    judge(op, result, &before, &beside);
                }
                failed += usize::from(results.iter().any(|result| matches!(result, Err(Refused::NotWritten { .. }))));
            }
            Err(CommitError::NotCommitted(_)) => {
                assert_eq!(everything(&mut open_reader(dir).unwrap()), before, "nothing of it is there");
                failed += 1;
            }
            Err(CommitError::Indeterminate(_)) => failed += 1,
        }
        let own = everything(&mut *store.reader().unwrap());
        assert_eq!(own, everything(&mut open_reader(dir).unwrap()), "the writer's own readers see what others see");
    }
    panic!("the history does not come to its end");
}

fn judge(op: &Op, result: &Result<Done, Refused>, before: &BTreeMap<String, Vec<String>>, now: &BTreeMap<String, Vec<String>>) {
    let id = op.session().to_string();
    match (op, result) {
        (_, Err(Refused::NotWritten { .. })) => assert_eq!(before.get(&id), now.get(&id), "nothing of {op:?} is there"),
        (Op::Create(_), Ok(_)) => assert!(now.contains_key(&id), "{op:?} is there"),
        (Op::Accept(op), Ok(_)) => {
            let name = format!("\"id\":\"{}\"", op.message.id);
            assert!(now[&id].iter().any(|line| line.contains(&name)), "{op:?} is there: {now:#?}");
        }
        (Op::Open(_) | Op::Append(_) | Op::Close(_), Ok(_)) => assert!(now[&id].len() > before[&id].len(), "{op:?} is there"),
        _ => {}
    }
}

#[test]
fn whichever_call_to_the_disk_fails_and_however_what_was_said_is_so() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: String| {
        let dir = folder.path().join(name);
        drop(JsonlStore::open(&dir).unwrap());
        dir
    };
    let clean = Faulty::new(usize::MAX, Fault::Before);
    let (expected, failed) = play(&make("clean".into()), clean.clone()).unwrap();
    assert_eq!(failed, 0);
    let calls = clean.calls.load(Ordering::SeqCst);
    assert!(calls > 40, "{calls}");
    let mut failures = 0;
    for fault in [Fault::Before, Fault::After, Fault::Dead] {
        for at in 0..calls {
            let dir = make(format!("{fault:?}-{at}"));
            let (found, failed) = play(&dir, Faulty::new(at, fault)).unwrap_or_else(|error| panic!("{fault:?} at {at}: {error}"));
            assert_eq!(names(&found), names(&expected), "{fault:?} at {at}");
            failures += failed;
            fs::remove_dir_all(dir).unwrap();
        }
    }
    assert!(failures > calls, "the faults were met: {failures}");
}

/// The records of each session, their order aside: a retry may come in another one.
fn names(found: &BTreeMap<String, Vec<String>>) -> BTreeMap<String, usize> {
    found.iter().map(|(id, lines)| (id.clone(), lines.len())).collect()
}

#[test]
fn a_full_disk_is_told_of_and_the_neighbours_are_unhurt() {
    let folder = tempfile::tempdir().unwrap();
    drop(JsonlStore::open(folder.path()).unwrap());
    let probe = Faulty::new(usize::MAX, Fault::Before);
    let store = JsonlStore::open_with(folder.path(), probe.clone()).unwrap();
    store.commit(&[root("r"), root("q")]).unwrap();
    store.close().unwrap();
    // The first write of the next batch.
    let disk = Arc::new(Faulty { calls: AtomicUsize::new(0), at: 0, fault: Fault::After, kind: io::ErrorKind::StorageFull, dead: Mutex::new(0) });
    let store = JsonlStore::open_with(folder.path(), disk).unwrap();
    let results = store.commit(&[accept("r", "m0"), accept("r", "m0"), accept("q", "m0"), accept("nobody", "m0")]).unwrap();
    let hurt = if results[0].is_err() { [0, 1] } else { [2, 2] };
    for (number, result) in results.iter().enumerate() {
        match number {
            3 => assert_eq!(*result, Err(Refused::NotFound(sid("nobody")))),
            _ if hurt.contains(&number) => assert_eq!(result.as_ref().unwrap_err().code(), "STORE_FULL"),
            _ => assert!(result.is_ok()),
        }
    }
    // All of a batch for one cause is a batch that failed.
    let disk = Arc::new(Faulty { calls: AtomicUsize::new(0), at: 0, fault: Fault::Before, kind: io::ErrorKind::StorageFull, dead: Mutex::new(0) });
    drop(store);
    let store = JsonlStore::open_with(folder.path(), disk).unwrap();
    let error = store.commit(&[accept("r", "m1"), accept("r", "m2")]).unwrap_err();
    assert!(matches!(error, CommitError::NotCommitted(StoreError::Full(_))), "{error:?}");
    assert!(store.commit(&[accept("r", "m1")]).unwrap()[0].is_ok());
}

/// A file that grows batch by batch: what it says after each.
fn history(dir: &Path) -> (Place, Vec<(usize, Vec<String>)>) {
    let store = JsonlStore::open(dir).unwrap();
    let place = Place::of(None, &sid("r"));
    let mut states = Vec::new();
    let mut note = |store: &JsonlStore| {
        let length = usize::try_from(fs::metadata(place.path(dir)).unwrap().len()).unwrap();
        states.push((length, everything(&mut *store.reader().unwrap())["r"].clone()));
    };
    let mut create = Create::root(NewSession::root(sid("r")), "editor", "grüße");
    create.message = Some(Arc::new(Message::turn("m0", "Begin.", Source::User, 1).unwrap()));
    done(&store, Op::Create(create));
    note(&store);
    done(&store, accept("r", "m1"));
    note(&store);
    let ops = open(&store, "r");
    done(&store, ops);
    note(&store);
    let head = store.reader().unwrap().load(&sid("r")).unwrap().fold.head().clone();
    let fence = Fence { session: sid("r"), epoch: 1 };
    let bodies = [Body::StepStart { turn: 1, step: 1 }, Body::StepEnd { turn: 1, step: 1, cut: None }, Body::TurnEnd { turn: 1, reason: TurnEnd::Completed }];
    let events: Vec<_> = bodies.into_iter().zip(head.next_seq..).map(|(body, seq)| body.at(seq, 3)).collect();
    done(&store, Op::Append(Append { fence, events: events.into(), take: vec![] }));
    note(&store);
    done(&store, accept("r", "m2"));
    note(&store);
    (place, states)
}

/// What a file of these bytes says: its lines as an export has them.
fn read(place: &Place, bytes: &[u8]) -> Result<usize, String> {
    let (_, header) = scan::header(place, bytes);
    let header = header.map_err(|error| error.to_string())?;
    let mut events = 0;
    let mut count = |_| {
        events += 1;
        ControlFlow::Continue(())
    };
    let read = whole_batches(&header.id, bytes).and_then(|end| scan::scan(&header, bytes, end, &mut count));
    let scanned = match read {
        Ok(scanned) => scanned.unwrap(),
        Err(Unread::Flaw(flaw)) => return Err(flaw.load_error(&header.id).to_string()),
        Err(Unread::Io(error)) => panic!("{error}"),
    };
    // A scan that says so much has read so much.
    assert_eq!(events, scanned.fold.head().next_seq);
    assert_eq!(scanned.taken.len() as u64, scanned.fold.head().next_order);
    Ok(usize::try_from(scanned.length).unwrap())
}

#[test]
fn a_file_cut_anywhere_says_what_its_whole_batches_say_and_goes_on_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    let (place, states) = history(&dir);
    let whole = fs::read(place.path(&dir)).unwrap();
    for cut in 0..=whole.len() {
        let expected = states.iter().rev().map(|(length, _)| *length).find(|length| *length <= cut);
        assert_eq!(read(&place, &whole[..cut]).ok(), expected, "cut at {cut}");
    }
    // The writer goes on, and keeps what it cuts off.
    for cut in (states[0].0..whole.len()).step_by(7).chain(states.iter().map(|(length, _)| *length)) {
        let (length, lines) = states.iter().rev().find(|(length, _)| *length <= cut).unwrap();
        fs::write(place.path(&dir), &whole[..cut]).unwrap();
        assert_eq!(everything(&mut open_reader(&dir).unwrap())["r"], *lines, "cut at {cut}");
        assert_eq!(fs::read(place.path(&dir)).unwrap(), whole[..cut], "a reader changes nothing");
        let store = JsonlStore::open(&dir).unwrap();
        done(&store, accept("r", "after"));
        assert_eq!(fs::read(place.path(&dir)).unwrap()[..*length], whole[..*length]);
        assert_eq!(everything(&mut *store.reader().unwrap())["r"].len(), lines.len() + 1);
        let torn = dir.join("_root").join(format!("r.jsonl.torn-{length}"));
        assert_eq!(fs::read(&torn).ok(), (cut > *length).then(|| whole[*length..cut].to_vec()), "cut at {cut}");
        drop(fs::remove_file(torn));
    }
}

#[test]
fn no_flipped_bit_goes_unnoticed_but_in_a_last_batch_which_is_dropped_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (place, states) = history(folder.path());
    let whole = fs::read(place.path(folder.path())).unwrap();
    let before_last = states[states.len() - 2].0;
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            match read(&place, &flipped) {
                Ok(length) => assert!(at >= before_last && length == before_last, "bit {bit} of byte {at} leaves {length}"),
                Err(error) => assert!(error.contains("line ") || at < states[0].0, "bit {bit} of byte {at}: {error}"),
            }
        }
    }
}

#[test]
fn two_records_on_the_last_line_are_damage_whether_or_not_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (place, _) = history(folder.path());
    let whole = fs::read(place.path(folder.path())).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|&byte| byte == b'\n').unwrap();
    let mut spliced = whole.clone();
    spliced[last] = b' ';
    let start = whole[..last].iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
    let line = whole[..start].split_inclusive(|&byte| byte == b'\n').count() + 1;
    for end in [spliced.len(), spliced.len() - 1, last + 40] {
        let error = read(&place, &spliced[..end]).unwrap_err();
        assert!(error.contains(&format!("line {line} (byte {start})")) && error.contains("two records stand on one line"), "{end}: {error}");
    }
}

#[test]
fn settled_sessions_hold_no_file_and_live_ones_not_more_than_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let store = JsonlStore::open(folder.path()).unwrap();
    let ids: Vec<String> = (0..200).map(|n| format!("s{n}")).collect();
    let creations: Vec<Op> = ids.iter().map(|id| root(id)).collect();
    store.commit(&creations).unwrap();
    assert_eq!(store.writer().shelf.open_files(), 0);
    let openings: Vec<Op> = ids.iter().map(|id| open(&store, id)).collect();
    assert!(store.commit(&openings).unwrap().iter().all(Result::is_ok));
    let held = store.writer().shelf.open_files();
    assert!((1..=128).contains(&held), "{held}");
    for id in &ids {
        let seq = store.reader().unwrap().load(&sid(id)).unwrap().fold.head().next_seq;
        let end = Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled }.at(seq, 9);
        done(&store, Op::Close(Close { fence: Fence { session: sid(id), epoch: 1 }, events: [end].into(), unless_pending: true }));
    }
    assert_eq!(store.writer().shelf.open_files(), 0);
}

#[test]
fn what_idle_sessions_take_of_memory_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let store = JsonlStore::open(folder.path()).unwrap();
    let text = "x".repeat(8 * 1024 * 1024);
    for n in 0..12 {
        let id = format!("s{n}");
        let message = Message::turn("m0", text.clone(), Source::User, 1).unwrap();
        let results = store.commit(&[root(&id), Op::Accept(Accept::new(sid(&id), message))]).unwrap();
        assert!(results.iter().all(Result::is_ok));
    }
    let known = store.writer().shelf.len();
    assert!((1..=8).contains(&known), "{known}");
    // Whoever was forgotten is read again.
    let again = Message::turn("m0", text, Source::User, 2).unwrap();
    assert_eq!(done(&store, Op::Accept(Accept::new(sid("s0"), again))), Done::Accepted { order: 0, duplicate: true });
}

#[test]
fn the_writers_own_process_reads_no_file_again_for_a_listing() {
    let folder = tempfile::tempdir().unwrap();
    let store = JsonlStore::open(folder.path()).unwrap();
    store.commit(&[root("r"), child("a", "r"), child("b", "r")]).unwrap();
    let mut reader = store.reader().unwrap();
    let reads = || store.view.reads.load(Ordering::SeqCst);
    for n in 0..20 {
        done(&store, accept("a", &format!("m{n}")));
        let before = reads();
        let family = reader.family(Some(&sid("r")), None, 9, false).unwrap();
        assert_eq!(family[0].1.as_ref().unwrap().head.pending_turns, n + 2);
        assert_eq!(reader.runnable(None, 9).unwrap(), [sid("a"), sid("b")]);
        assert_eq!(reads(), before, "listing {n}");
    }
}

#[test]
fn a_second_writer_is_told_who_has_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = JsonlStore::open(folder.path()).unwrap();
    let error = Lock::take_within(folder.path(), Duration::from_millis(20)).unwrap_err();
    assert_eq!(error.code(), "STORE_LOCKED");
    assert!(error.to_string().contains(&format!("process {} writes", std::process::id())), "{error}");
    store.close().unwrap();
    drop(Lock::take_within(folder.path(), Duration::from_millis(20)).unwrap());
    // Whoever was closed may go on, with what is there by then.
    let other = JsonlStore::open(folder.path()).unwrap();
    done(&other, root("r"));
    drop(other);
    assert_eq!(done(&store, root("r")), done(&store, root("r")));
    assert!(matches!(done(&store, root("r")), Done::Created { existing: true, .. }));
}

#[test]
fn a_session_is_held_only_while_the_process_lives_that_began_its_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let store = JsonlStore::open(folder.path()).unwrap();
    store.commit(&[root("r"), root("q")]).unwrap();
    let ops = [open(&store, "r"), open(&store, "q")];
    store.commit(&ops).unwrap();
    let held = |reader: &mut dyn Reader| -> Vec<String> { reader.leases(None).unwrap().iter().map(|lease| lease.session.to_string()).collect() };
    let mut beside = open_reader(folder.path()).unwrap();
    assert_eq!(held(&mut beside), ["q", "r"]);
    // As a killed process leaves it: the file is there and nobody has locked it.
    let file = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.to_str().unwrap().contains("_held-")).unwrap();
    let left_over = fs::read(&file).unwrap();
    drop(store);
    assert!(!file.exists());
    fs::write(&file, left_over).unwrap();
    assert!(held(&mut beside).is_empty());
    // Another opening holds what it has opened itself, and nothing else.
    let next = JsonlStore::open(folder.path()).unwrap();
    assert!(held(&mut beside).is_empty() && held(&mut *next.reader().unwrap()).is_empty());
    assert_eq!(beside.runnable(None, 9).unwrap(), [sid("q"), sid("r")]);
    let op = open(&next, "q");
    done(&next, op);
    assert_eq!(held(&mut beside), ["q"]);
    assert_eq!(held(&mut *next.reader().unwrap()), ["q"]);
    assert_eq!(beside.runnable(None, 9).unwrap(), [sid("r")]);
    assert!(!file.exists());
}

#[test]
fn a_removal_that_was_cut_off_is_finished_by_the_next_writer() {
    let folder = tempfile::tempdir().unwrap();
    let store = JsonlStore::open(folder.path()).unwrap();
    store.commit(&[root("r"), root("q")]).unwrap();
    let file = folder.path().join("_root/r.jsonl");
    let kept = fs::read(&file).unwrap();
    assert_eq!(done(&store, Op::Remove(Remove { session: sid("r"), discard: false })), Done::Removed);
    assert!(!file.exists() && folder.path().join("_root/r.removed").exists());
    drop(store);
    fs::write(&file, kept).unwrap();
    let mut reader = open_reader(folder.path()).unwrap();
    assert!(matches!(reader.load(&sid("r")), Err(LoadError::Removed(_))));
    assert_eq!(reader.find("", 9).unwrap(), [sid("q")]);
    let store = JsonlStore::open(folder.path()).unwrap();
    assert!(!file.exists());
    assert_eq!(store.commit(&[root("r")]).unwrap()[0], Err(Refused::Removed(sid("r"))));
}

/// What a check finds, as class and place.
fn found(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut see = |seen: Seen| {
        if let Seen::Finding(finding) = seen {
            found.push(format!("{}: {}", finding.place, finding.class));
        }
    };
    check(&mut open_reader(dir).unwrap(), None, &mut see).unwrap();
    found
}

#[test]
fn a_last_record_that_has_rotted_is_damage_before_it_is_cut_off_and_after() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    let (place, states) = history(&dir);
    let whole = fs::read(place.path(&dir)).unwrap();
    let (length, lines) = &states[states.len() - 2];
    let line = whole[..*length].split_inclusive(|&byte| byte == b'\n').count() + 1;
    // The last byte is the line feed.
    for at in (*length..whole.len()).step_by(11).chain([whole.len() - 1]) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        fs::write(place.path(&dir), &flipped).unwrap();
        assert_eq!(found(&dir), [format!("line {line}: checksum")], "byte {at}");
        let store = JsonlStore::open(&dir).unwrap();
        assert_eq!(everything(&mut *store.reader().unwrap())["r"], *lines, "byte {at}");
        done(&store, accept("r", "after"));
        drop(store);
        let copy = format!("_root/r.jsonl.damaged-{length}");
        assert_eq!(found(&dir), [format!("{copy}: damaged_tail")], "byte {at}");
        assert_eq!(fs::read(dir.join(&copy)).unwrap(), flipped[*length..], "byte {at}");
        fs::remove_file(dir.join(&copy)).unwrap();
        assert_eq!(found(&dir), Vec::<String>::new(), "byte {at}");
    }
}

#[test]
fn an_end_that_a_cut_off_write_leaves_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    let (place, states) = history(&dir);
    let whole = fs::read(place.path(&dir)).unwrap();
    let ends: Vec<usize> = states.iter().map(|(length, _)| *length).collect();
    let mut torn: Vec<Vec<u8>> = (ends[0] + 1..whole.len()).filter(|cut| !ends.contains(cut)).step_by(13).map(|cut| whole[..cut].to_vec()).collect();
    // Between two lines of a batch.
    torn.extend((ends[0] + 1..whole.len()).filter(|cut| !ends.contains(cut) && whole[cut - 1] == b'\n').map(|cut| whole[..cut].to_vec()));
    // A page that was never written: its beginning, and the line feed alone.
    let last = ends[ends.len() - 2];
    torn.push([&whole[..last], &[0; 64], &whole[last + 64..]].concat());
    torn.push([&whole[..whole.len() - 1], &[0]].concat());
    for bytes in torn {
        fs::write(place.path(&dir), &bytes).unwrap();
        let length = ends.iter().rev().find(|end| **end < bytes.len()).unwrap();
        assert!(matches!(&*found(&dir), [only] if only.ends_with(": torn_tail")), "{} bytes: {:?}", bytes.len(), found(&dir));
        done(&JsonlStore::open(&dir).unwrap(), accept("r", "after"));
        let copy = format!("_root/r.jsonl.torn-{length}");
        assert_eq!(found(&dir), [format!("{copy}: leftover")], "{} bytes", bytes.len());
        fs::remove_file(dir.join(copy)).unwrap();
    }
}

#[test]
fn copies_of_ends_go_with_their_session_and_are_no_other_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let store = JsonlStore::open(folder.path()).unwrap();
    let others = ["r.jsonl.damaged-1", "r.jsonl.torn-1"];
    store.commit(&[root("r"), root(others[0]), root(others[1])]).unwrap();
    for name in others {
        fs::write(folder.path().join("_root").join(name), "x\n").unwrap();
    }
    assert_eq!(found(folder.path()), ["_root/r.jsonl.damaged-1: damaged_tail", "_root/r.jsonl.torn-1: leftover"]);
    done(&store, Op::Remove(Remove { session: sid("r"), discard: true }));
    assert_eq!(found(folder.path()), Vec::<String>::new());
    assert_eq!(open_reader(folder.path()).unwrap().sessions(None, 9).unwrap(), others.map(sid));
}

#[test]
fn a_session_that_cannot_be_read_may_have_work() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let store = JsonlStore::open(dir).unwrap();
    let long = "long ".repeat(60);
    store.commit(&[root("r"), child("a", "r"), child("b", "r"), root("other"), root(&long)]).unwrap();
    drop(store);
    let change = |id: &str, parent: Option<&str>, at: usize| {
        let path = Place::of(parent.map(sid).as_ref(), &sid(id)).path(dir);
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    let runnable = |root: Option<&str>| {
        let beside = open_reader(dir).unwrap().runnable(root.map(sid).as_ref(), 9).unwrap();
        let own = JsonlStore::open(dir).unwrap().reader().unwrap().runnable(root.map(sid).as_ref(), 9).unwrap();
        assert_eq!(beside, own);
        own
    };
    let before = runnable(None);
    assert_eq!(runnable(Some("r")), [sid("a"), sid("b")]);
    // The header, a line in the middle, and the header of one whose name does not say its id.
    let header = fs::read(Place::of(Some(&sid("r")), &sid("b")).path(dir)).unwrap().iter().position(|&byte| byte == b'\n').unwrap();
    change("b", Some("r"), header + 30);
    change("other", None, 30);
    change(&long, None, 30);
    assert_eq!(runnable(Some("r")), [sid("a"), sid("b")]);
    assert_eq!(runnable(None).into_iter().filter(|id| !before.contains(id)).collect::<Vec<_>>(), [sid("other")]);
}
