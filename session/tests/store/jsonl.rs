//! What a folder of JSON Lines is on the disk: its place, its bytes, and what becomes of them under damage.

use std::{
    fs,
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
};

use greenroom_session::{
    event::{Body, TurnEnd},
    id::SessionId,
    line::{Line, write_line},
    store::{
        Done, LoadError, Op, Reader, Refused, Store, StoreError,
        jsonl::{JsonlStore, open_reader},
    },
};
use tempfile::TempDir;

use crate::support::{Fixture, accept, child, describe, fork, one, open, root, sid, turn};

/// Every file and folder below a folder, with its mode, its name and its bytes.
fn everything(folder: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let mode = fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777;
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push((path.clone(), mode, if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() }));
        }
    }
    found.sort();
    found
}

fn file(f: &Fixture, name: &str) -> PathBuf {
    f.path().join(name)
}

/// A store with one session of a few batches, closed, and its lines.
fn written() -> (TempDir, PathBuf, Vec<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    let store = JsonlStore::open(&dir).unwrap();
    one(&store, Op::Create(root("r", 1))).unwrap();
    one(&store, Op::Create(root("q", 1))).unwrap();
    for message in ["m0", "m1", "m2"] {
        one(&store, accept("r", turn(message))).unwrap();
    }
    open(&store, "r", Some(2)).unwrap();
    drop(store);
    let path = dir.join("_root/r.jsonl");
    let lines = fs::read(&path).unwrap().split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    (folder, path, lines)
}

fn corrupt_place(reader: &mut dyn Reader, id: &str) -> String {
    match reader.load(&sid(id)).unwrap_err() {
        LoadError::Corrupt { place, .. } => place,
        LoadError::Fold { source, .. } => source.reason,
        other => panic!("{other}"),
    }
}

#[test]
fn files_and_folders_are_for_their_owner_only() {
    let f = Fixture::jsonl();
    f.root("r");
    f.child("c", "r");
    f.open("r", None);
    let found = everything(&f.path());
    assert!(found.len() >= 7, "{found:?}");
    for (path, mode, _) in found {
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
    assert_eq!(fs::metadata(f.path()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_session_is_a_file_in_the_folder_of_its_parent_and_reads_as_the_format_says() {
    let f = Fixture::jsonl();
    f.root("r");
    f.create(child("c", "r", None, 1_000));
    f.accept("c", turn("m0")).unwrap();
    let text = fs::read_to_string(file(&f, "r/c.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with(r#"{"version":1,"id":"c","parent":"r","created_at":1000,"depth":1,"more":true,"crc":""#), "{text}");
    assert!(lines[1].starts_with(r#"{"seq":0,"time":1000,"type":"subagent/descriptor","#) && lines[1].contains(r#","more":true,"crc":""#));
    assert!(lines[2].starts_with(r#"{"seq":1,"time":1000,"type":"session/end-seed","data":{},"crc":""#));
    assert!(lines[3].starts_with(r#"{"order":0,"id":"m0","kind":"turn","#) && !lines[3].contains("more"));
    assert_eq!(lines.len(), 4);
    assert_eq!(fs::read_to_string(file(&f, "_greenroom.json")).unwrap(), "{\"kind\":\"greenroom-sessions\",\"version\":1}\n");
}

#[test]
fn no_id_leads_out_of_the_folder_and_no_two_meet() {
    let f = Fixture::jsonl();
    let long = "x".repeat(500);
    let longer = format!("{}y", "x".repeat(499));
    let ids = [".", "..", "../../escaped", "/etc/passwd", "a/b", "_root", "_lock", "_greenroom.json", "A", "a", "\u{1}\n", "~", "grüße", &long, &longer];
    for id in ids {
        f.create(root(id, 1));
        f.create(fork(&format!("{id}'s child"), id, 1));
        f.accept(id, turn("m0")).unwrap();
    }
    for (path, ..) in everything(f.folder.as_ref().unwrap().path()) {
        assert!(path.starts_with(f.path()), "{}", path.display());
    }
    let mut beside = open_reader(f.path()).unwrap();
    for reader in [&mut *f.reader(), &mut beside as &mut dyn Reader] {
        assert_eq!(reader.find("", 99).unwrap().len(), 2 * ids.len());
        for id in ids {
            assert_eq!(reader.load(&sid(id)).unwrap().fold.head().pending_turns, 1, "{id:?}");
            assert_eq!(reader.children(Some(&sid(id)), None, 9).unwrap().len(), 1, "{id:?}");
        }
        let mut roots: Vec<SessionId> = reader.children(None, None, 99).unwrap().into_iter().map(|child| child.id).collect();
        roots.sort();
        let mut expected: Vec<SessionId> = ids.iter().map(|id| sid(id)).collect();
        expected.sort();
        assert_eq!(roots, expected);
    }
}

#[test]
fn what_is_not_a_store_is_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, file: &str, text: &str| {
        let dir = folder.path().join(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join(file), text).unwrap();
        dir
    };
    let a_file = folder.path().join("file");
    fs::write(&a_file, "x").unwrap();
    let cases = [
        (make("letters", "letter.txt", "Dear"), "STORE_FOREIGN"),
        (make("sessions", "a.jsonl", ""), "STORE_FOREIGN"),
        (make("empty-marker", "_greenroom.json", ""), "STORE_FOREIGN"),
        (make("other-marker", "_greenroom.json", r#"{"kind":"something else","version":1}"#), "STORE_FOREIGN"),
        (make("newer", "_greenroom.json", r#"{"kind":"greenroom-sessions","version":2,"more":[]}"#), "STORE_VERSION"),
        (a_file, "STORE_FOREIGN"),
    ];
    let before = everything(folder.path());
    for (path, code) in &cases {
        for error in [JsonlStore::open(path).unwrap_err(), JsonlStore::open_existing(path).unwrap_err(), open_reader(path).unwrap_err()] {
            assert_eq!(error.code(), *code, "{}: {error}", path.display());
        }
    }
    assert_eq!(everything(folder.path()), before);
    let nothing = folder.path().join("deep/nothing");
    assert!(matches!(JsonlStore::open_existing(&nothing), Err(StoreError::Missing { .. })));
    assert!(matches!(open_reader(&nothing), Err(StoreError::Missing { .. })));
    assert!(!nothing.exists());
    drop(JsonlStore::open(&nothing).unwrap());
    assert!(open_reader(&nothing).unwrap().find("", 9).unwrap().is_empty());
}

#[test]
fn what_a_killed_birth_left_is_no_foreign_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("_lock"), "4711\n").unwrap();
    fs::write(folder.path().join("_new-4711"), "{\"kind\":").unwrap();
    assert!(matches!(JsonlStore::open_existing(folder.path()), Err(StoreError::Missing { .. })));
    let store = JsonlStore::open(folder.path()).unwrap();
    one(&store, Op::Create(root("r", 1))).unwrap();
    assert!(!folder.path().join("_new-4711").exists());
}

#[test]
fn a_bad_line_with_good_ones_after_it_is_damage_with_its_place_and_is_never_cut() {
    let (_folder, path, lines) = written();
    let dir = path.parent().unwrap().parent().unwrap().to_owned();
    let other = fs::read(dir.join("_root/q.jsonl")).unwrap().split_inclusive(|byte| *byte == b'\n').nth(2).unwrap().to_vec();
    let whole = lines.concat();
    let third = lines[..3].concat().len();
    let with = |line: usize, text: Vec<u8>| [lines[..line].concat(), text, lines[line + 1..].concat()].concat();
    let surrogate = {
        // A lone surrogate under a checksum that is right.
        let text = String::from_utf8(lines[3].clone()).unwrap().replace("text of m0", "\\ud800");
        let (body, _) = text.split_once(r#","crc":""#).unwrap();
        let message = body.replacen(r#"{"order":0,"#, "{", 1) + "}";
        let crc = greenroom_session::codec::message_crc(&sid("r"), 0, false, message.as_bytes());
        format!("{body},\"crc\":\"{crc:08x}\"}}\n").into_bytes()
    };
    let duplicate = {
        let mut line = write_line(&sid("r"), &Line::Event(Body::EndSeed {}.at(1, 1))).unwrap();
        line.push(b'\n');
        line
    };
    let cases: Vec<(&str, Vec<u8>, String)> = vec![
        ("NUL run", with(3, vec![0; lines[3].len()]), format!("line 4 (byte {third})")),
        ("NULs before a line", with(3, [vec![0; 40], lines[3].clone()].concat()), format!("line 4 (byte {third})")),
        ("byte order mark", [b"\xef\xbb\xbf".to_vec(), whole.clone()].concat(), "line 1 (byte 0)".into()),
        ("CR LF", whole.iter().flat_map(|byte| if *byte == b'\n' { b"\r\n".to_vec() } else { vec![*byte] }).collect(), "line 1 (byte 0)".into()),
        ("CR LF in one line", with(3, [&lines[3][..lines[3].len() - 1], b"\r\n"].concat()), format!("line 4 (byte {third})")),
        ("lone surrogate", with(3, surrogate), format!("line 4 (byte {third})")),
        ("an empty line", with(3, [b"\n".to_vec(), lines[3].clone()].concat()), format!("line 4 (byte {third})")),
        ("a line of another session", with(3, [other.clone(), lines[3].clone()].concat()), format!("line 4 (byte {third})")),
        ("a seq twice", with(3, [duplicate.clone(), lines[3].clone()].concat()), format!("line 4 (byte {third})")),
        ("a seq twice at the end", [whole.clone(), duplicate].concat(), format!("line {} (byte {})", lines.len() + 1, whole.len())),
        ("a message twice", with(3, [lines[3].clone(), lines[3].clone()].concat()), format!("line 5 (byte {})", third + lines[3].len())),
        ("a message missing", with(3, Vec::new()), format!("line 4 (byte {third})")),
        ("a second header", with(3, [lines[0].clone(), lines[3].clone()].concat()), format!("line 4 (byte {third})")),
        ("two lines joined", with(3, lines[3][..lines[3].len() - 1].to_vec()), format!("line 4 (byte {third})")),
        (
            "the last two joined",
            [lines[..lines.len() - 2].concat(), lines[lines.len() - 2].trim_ascii_end().to_vec(), b"X".to_vec(), lines[lines.len() - 1].clone()].concat(),
            format!("line {} (byte {})", lines.len() - 1, lines[..lines.len() - 2].concat().len()),
        ),
    ];
    for (name, bytes, place) in cases {
        fs::write(&path, &bytes).unwrap();
        let mut beside = open_reader(&dir).unwrap();
        let found = corrupt_place(&mut beside, "r");
        assert!(found.contains(&place), "{name}: {found}, not {place}");
        let store = JsonlStore::open(&dir).unwrap();
        assert_eq!(one(&store, accept("r", turn("m9"))).unwrap_err().code(), "SESSION_CORRUPT", "{name}");
        assert!(one(&store, accept("q", turn("m9"))).is_ok(), "{name}: its neighbours are unhurt");
        assert!(describe_all(&mut *store.reader().unwrap()).iter().any(|(id, code)| id == "r" && *code == "SESSION_CORRUPT"), "{name}");
        drop(store);
        assert_eq!(fs::read(&path).unwrap(), bytes, "{name}: nothing was cut");
    }
    fs::write(&path, whole).unwrap();
    assert!(open_reader(&dir).unwrap().load(&sid("r")).is_ok());
}

fn describe_all(reader: &mut dyn Reader) -> Vec<(String, &'static str)> {
    let family = reader.family(None, None, 99, false).unwrap();
    family.into_iter().map(|(child, described)| (child.id.to_string(), described.map_or_else(|error| error.code(), |_| "fine"))).collect()
}

#[test]
fn a_damaged_header_is_a_value_beside_healthy_siblings() {
    let f = Fixture::jsonl();
    f.root("r");
    for id in ["a", "b", "c"] {
        f.child(id, "r");
    }
    let path = file(&f, "r/b.jsonl");
    let good = fs::read(&path).unwrap();
    for bytes in [good[..20].to_vec(), Vec::new(), fs::read(file(&f, "r/a.jsonl")).unwrap(), fs::read(file(&f, "_root/r.jsonl")).unwrap()] {
        fs::write(&path, bytes).unwrap();
        let mut beside = open_reader(f.path()).unwrap();
        for reader in [&mut *f.reader(), &mut beside as &mut dyn Reader] {
            let family = reader.family(Some(&sid("r")), None, 9, false).unwrap();
            let said: Vec<_> = family.iter().map(|(child, described)| (child.id.as_str(), described.as_ref().map_err(LoadError::code).is_ok())).collect();
            assert_eq!(said, [("b", false), ("a", true), ("c", true)]);
            assert_eq!(reader.load(&sid("b")).unwrap_err().code(), "SESSION_CORRUPT");
            assert_eq!(reader.header(&sid("b")).unwrap_err().code(), "SESSION_CORRUPT");
        }
    }
    // A session in two places is neither.
    fs::write(&path, &good).unwrap();
    fs::write(file(&f, "_root/b.jsonl"), &good).unwrap();
    assert_eq!(open_reader(f.path()).unwrap().load(&sid("b")).unwrap_err().code(), "SESSION_CORRUPT");
}

#[test]
fn a_file_that_changes_twice_within_a_tick_is_read_as_it_is() {
    let (_folder, path, lines) = written();
    let dir = path.parent().unwrap().parent().unwrap().to_owned();
    let whole = lines.concat();
    // The same length, another text: the last message under a checksum that is wrong is a torn end.
    let mut torn = whole.clone();
    let at = whole.len() - 5;
    torn[at] = if torn[at] == b'0' { b'1' } else { b'0' };
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let mut reader = open_reader(&dir).unwrap();
    let seqs: Vec<u64> = (0..200)
        .map(|n| {
            let bytes = if n % 2 == 0 { &whole } else { &torn };
            file.write_all_at(bytes, 0).unwrap();
            describe(&mut reader, "r", false).unwrap().head.next_seq
        })
        .collect();
    let (first, second) = (seqs[0], seqs[1]);
    assert_ne!(first, second);
    assert!(seqs.chunks(2).all(|pair| pair == [first, second]), "{seqs:?}");
}

#[test]
fn a_reader_beside_the_writer_sees_what_is_committed_and_changes_nothing() {
    let f = Fixture::jsonl();
    f.root("r");
    let mut beside = open_reader(f.path()).unwrap();
    for n in 0..20 {
        f.accept("r", turn(&format!("m{n}"))).unwrap();
        assert_eq!(beside.load(&sid("r")).unwrap().fold.head().next_order, n + 1);
        assert_eq!(describe(&mut beside, "r", false).unwrap(), f.describe("r").unwrap());
    }
    let (fence, _) = f.open("r", Some(1));
    assert!(describe(&mut beside, "r", false).unwrap().holder.is_some());
    f.end_turn(&fence, 1, TurnEnd::Disposed);
    f.close(&fence, false).unwrap();
    assert!(describe(&mut beside, "r", false).unwrap().holder.is_none());
    f.child("c", "r");
    assert_eq!(beside.children(Some(&sid("r")), None, 9).unwrap().len(), 1);
    let before = everything(&f.path());
    for verify in [false, true] {
        beside.family(None, None, 9, verify).unwrap();
        beside.family(Some(&sid("r")), None, 9, verify).unwrap();
    }
    beside.runnable(None, 9).unwrap();
    beside.leases(None).unwrap();
    beside.find("", 9).unwrap();
    beside.export(&sid("r"), &mut |_| Ok(())).unwrap();
    assert_eq!(everything(&f.path()), before);
}

#[test]
fn a_file_that_somebody_else_has_changed_is_read_again_before_it_is_written() {
    let f = Fixture::jsonl();
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    let path = file(&f, "_root/r.jsonl");
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"torn");
    fs::write(&path, &bytes).unwrap();
    assert!(f.store.commit(&[accept("r", turn("m1"))]).is_err());
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert_eq!(f.accept("r", turn("m1")), Ok(Done::Accepted { order: 1, duplicate: false }));
    assert_eq!(f.load("r").fold.head().next_order, 2);
    assert_eq!(f.accept("r", turn("m1")), Ok(Done::Accepted { order: 1, duplicate: true }));
    assert_eq!(f.accept("x", turn("m1")), Err(Refused::NotFound(sid("x"))));
}

/// Something that is no regular file and has a file's name.
type Odd = (&'static str, fn(&Path));

const ODD: [Odd; 4] = [
    ("a pipe", |path| assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success())),
    ("a folder", |path| fs::create_dir(path).unwrap()),
    ("a link to a file", |path| {
        let other = path.ancestors().nth(2).unwrap().join("somebody-elses");
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(other, path).unwrap();
    }),
    ("a link to nothing", |path| std::os::unix::fs::symlink("/nowhere/at/all", path).unwrap()),
];

#[test]
fn what_is_no_file_and_has_the_name_of_one_of_the_stores_is_neither_waited_for_nor_written_through() {
    for (what, plant) in ODD {
        for name in ["_greenroom.json", "_lock"] {
            let (folder, path, _) = written();
            let dir = folder.path().join("store");
            fs::remove_file(dir.join(name)).unwrap();
            plant(&dir.join(name));
            let bytes = fs::read(&path).unwrap();
            let error = JsonlStore::open(&dir).unwrap_err();
            assert_eq!(error.code(), "STORE_FOREIGN", "{name} is {what}: {error}");
            let listed = open_reader(&dir).map(|mut reader| reader.find("", 9).unwrap().len()).map_err(|error| error.code());
            assert_eq!(listed, if name == "_lock" { Ok(2) } else { Err("STORE_FOREIGN") }, "{name} is {what}");
            if let Ok(mut reader) = open_reader(&dir) {
                reader.check_store(&mut |finding| assert_eq!(finding.class.as_str(), "foreign_object", "{what}")).unwrap();
            }
            assert_eq!(fs::read(&path).unwrap(), bytes);
            let other = folder.path().join("somebody-elses");
            assert!(!other.exists() || fs::read_to_string(other).unwrap() == "precious", "{name} is {what}");
        }
        for name in ["_held-f4b1c0de-0000-4000-8000-000000000000", "_new-1"] {
            let (folder, ..) = written();
            let dir = folder.path().join("store");
            plant(&dir.join(name));
            let mut reader = open_reader(&dir).unwrap();
            assert_eq!(describe_all(&mut reader).len(), 2, "{name} is {what}");
            let mut told = Vec::new();
            reader.check_store(&mut |finding| told.push(finding.class.as_str())).unwrap();
            assert_eq!(told, ["foreign_object"], "{name} is {what}");
            one(&JsonlStore::open(&dir).unwrap(), accept("r", turn("m9"))).unwrap();
        }
    }
}

#[test]
fn nothing_is_written_behind_what_has_the_place_of_a_folder_and_is_none() {
    let (folder, ..) = written();
    let (dir, elsewhere) = (folder.path().join("store"), folder.path().join("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, dir.join("r")).unwrap();
    fs::write(dir.join("q"), "a letter").unwrap();
    let store = JsonlStore::open(&dir).unwrap();
    for parent in ["r", "q"] {
        let id = format!("child of {parent}");
        let error = store.commit(&[Op::Create(child(&id, parent, None, 1_000))]).unwrap_err();
        assert!(matches!(error, greenroom_session::store::CommitError::NotCommitted(_)), "{error}");
        assert!(store.reader().unwrap().header(&sid(&id)).unwrap().is_none());
    }
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(dir.join("q")).unwrap(), "a letter");
}

#[test]
fn what_is_no_file_removes_no_session() {
    for (what, plant) in ODD {
        let (folder, path, _) = written();
        let dir = folder.path().join("store");
        plant(&dir.join("_root/r.removed"));
        one(&JsonlStore::open(&dir).unwrap(), accept("r", turn("m9"))).unwrap();
        assert!(path.exists(), "{what}");
        assert!(!open_reader(&dir).unwrap().is_removed(&sid("r")).unwrap(), "{what}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_a_value_beside_healthy_siblings() {
    for (what, plant) in ODD {
        let (folder, path, _) = written();
        let store = JsonlStore::open(folder.path().join("store")).unwrap();
        let mut reader = store.reader().unwrap();
        // The names are known by now; what is behind one changes.
        fs::remove_file(&path).unwrap();
        plant(&path);
        if what == "a link to nothing" {
            // As good as any that cannot be read.
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink(&path, &path).unwrap();
        }
        let corrupt = |error: LoadError| matches!(error, LoadError::Corrupt { .. });
        let family: Vec<_> = reader.family(None, None, 9, false).unwrap().into_iter().map(|(child, said)| (child.id, said.is_ok())).collect();
        assert_eq!(family, [(sid("r"), false), (sid("q"), true)], "{what}");
        assert!(corrupt(reader.load(&sid("r")).unwrap_err()) && reader.load(&sid("q")).is_ok(), "{what}");
        assert!(matches!(one(&store, accept("r", turn("m9"))), Err(Refused::Corrupt { .. })), "{what}");
        one(&store, accept("q", turn("m9"))).unwrap();
        let mut told = Vec::new();
        reader.check(&sid("r"), &mut |finding| told.push(finding.class.as_str())).unwrap();
        assert_eq!(told, ["unreadable_file"], "{what}");
    }
}

#[test]
fn a_reader_that_knows_where_a_session_is_sees_it_go() {
    let f = Fixture::jsonl();
    f.root("r");
    f.child("c", "r");
    let mut beside = open_reader(f.path()).unwrap();
    for gone in [false, false, true] {
        if gone {
            one(&*f.store, Op::Remove(greenroom_session::store::Remove { session: sid("c"), discard: true })).unwrap();
        }
        assert_eq!(beside.header(&sid("c")).unwrap().is_none(), gone);
        assert_eq!(matches!(beside.load(&sid("c")), Err(LoadError::Removed(_))), gone);
    }
    f.child("d", "r");
    assert!(beside.load(&sid("d")).is_ok());
}

#[test]
fn a_session_keeps_its_file_and_every_byte_that_was_committed() {
    let f = Fixture::jsonl();
    f.root("r");
    f.child("c", "r");
    let inherited = f.load("c").events;
    let forked = greenroom_session::store::Create::child(
        greenroom_session::header::NewSession::child(sid("d"), sid("r"), 0),
        inherited,
        &greenroom_session::descriptor::Descriptor::continuable("fork", "a copy", "reporter"),
        None,
        1_000,
    );
    f.create(forked.unwrap());
    let path = file(&f, "r/c.jsonl");
    let mut committed = fs::read(&path).unwrap();
    let mut grown = |what: &str| {
        let now = fs::read(&path).unwrap();
        assert!(now.len() > committed.len() && now.starts_with(&committed), "{what}");
        committed = now;
    };
    for round in 1..=3 {
        f.accept("c", turn(&format!("m{round}"))).unwrap();
        grown("a message");
        let (fence, _) = f.open("c", Some(round));
        grown("an epoch");
        f.end_turn(&fence, round, TurnEnd::Completed);
        grown("the end of a turn");
        f.close(&fence, true).unwrap();
        grown("the end of an epoch");
    }
    let names: Vec<String> = fs::read_dir(f.path().join("r")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.len() == 2 && names.contains(&"c.jsonl".to_owned()) && names.contains(&"d.jsonl".to_owned()), "{names:?}");
}

#[test]
fn a_header_of_any_length_is_listed() {
    let f = Fixture::jsonl();
    f.root("r");
    for (id, length) in [("a", 10), ("b", 8_192), ("c", 1_000_000)] {
        let mut create = child(id, "r", None, 1_000);
        create.session.cwd = Some(format!("/{}", "x".repeat(length)));
        f.create(create);
    }
    let mut beside = open_reader(f.path()).unwrap();
    for reader in [&mut *f.reader(), &mut beside as &mut dyn Reader] {
        let lengths: Vec<usize> = reader
            .family(Some(&sid("r")), None, 9, false)
            .unwrap()
            .into_iter()
            .map(|(child, described)| described.map(|_| child.header.unwrap().cwd.as_ref().unwrap().len()).unwrap())
            .collect();
        assert_eq!(lengths, [11, 8_193, 1_000_001]);
    }
}

#[test]
fn a_folder_that_cannot_be_read_any_more_fails_the_whole_listing() {
    for (what, spoil) in [
        ("it is gone", (|dir| fs::remove_dir_all(dir).unwrap()) as fn(&Path)),
        ("it is a file", |dir| {
            fs::remove_dir_all(dir).unwrap();
            fs::write(dir, "a letter").unwrap();
        }),
    ] {
        let (folder, ..) = written();
        let dir = folder.path().join("store");
        let mut reader = open_reader(&dir).unwrap();
        assert_eq!(reader.family(None, None, 9, false).unwrap().len(), 2);
        spoil(&dir);
        let told = reader.family(None, None, 9, false).map(|family| family.len()).map_err(|error| error.code());
        assert!(told.is_err(), "{what}: {told:?}");
        let told = reader.load(&sid("r")).map(|log| log.events.len()).map_err(|error| error.code());
        assert_eq!(told, Err("STORE_FAILED"), "{what}");
    }
}

#[test]
fn a_session_whose_epoch_has_ended_is_held_by_nobody_in_the_eyes_of_others() {
    let f = Fixture::jsonl();
    f.root("r");
    f.root("q");
    let (fence, _) = f.open("r", None);
    f.open("q", None);
    let held = || -> Vec<bool> {
        let mut beside = open_reader(f.path()).unwrap();
        let roots = beside.children(None, None, 9).unwrap();
        let described = beside.describe(&roots, false).unwrap().into_iter().map(|described| described.unwrap().holder);
        let described: Vec<_> = described.collect();
        for (root, holder) in roots.iter().zip(&described) {
            let head = beside.folded(&root.id).unwrap().head().clone();
            assert_eq!(beside.holder(&root.id, &head).unwrap(), *holder);
        }
        described.iter().map(Option::is_some).collect()
    };
    assert_eq!(held(), [true, true]);
    // What was said of its epoch before it ended is still there to be read.
    f.close(&fence, false).unwrap();
    assert_eq!(held(), [true, false]);
}
