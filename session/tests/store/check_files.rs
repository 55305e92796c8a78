//! Verifying a store of files: every fault with its line and its byte.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use greenroom_session::{
    check::{Finding, Seen, Severity, check},
    codec::event_crc,
    event::{Body, TurnEnd},
    line::{Line, write_line},
    message::{InboxRecord, Message, Source},
    place::path_of,
    store::{ClaimKind, Store, jsonl, jsonl::JsonlStore},
};
use tempfile::TempDir;

use crate::support::{Fixture, append, child, close, mid, note, sid, turn};

/// A folder with a root that has turns behind it, messages that wait, and two children with aliases. Nobody writes to it.
fn busy() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let f = Fixture { store: Box::new(JsonlStore::open(folder.path()).unwrap()), folder: None };
    f.root("r");
    f.create(child("c1", "r", Some("a"), 1_000));
    f.create(child("c2", "r", Some("b"), 1_000));
    f.accept("r", turn("m0")).unwrap();
    let (fence, _) = f.open("r", Some(1));
    f.accept("r", note("n0", false)).unwrap();
    f.claim(&fence, ClaimKind::Notes).unwrap();
    f.end_turn(&fence, 1, TurnEnd::Completed);
    for message in [turn("m1"), note("n1", true)] {
        f.accept("r", message).unwrap();
    }
    let withdrawn = Body::MessageWithdrawn { message: mid("m1"), by: "user".into() };
    f.one(append(&fence, vec![withdrawn.at(f.next_seq("r"), 5)], vec![2])).unwrap();
    f.one(close(&fence, f.next_seq("r"), true)).unwrap();
    f.store.close().unwrap();
    folder
}

fn findings(dir: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    check(&mut jsonl::open_reader(dir).unwrap(), None, &mut |seen| {
        if let Seen::Finding(finding) = seen {
            found.push(finding);
        }
    })
    .unwrap();
    found
}

/// What a check finds, as `session place: class @line`; offsets are compared with the file.
fn found(dir: &Path) -> Vec<String> {
    let show = |finding: Finding| {
        let session = finding.session.map_or_else(String::new, |id| format!("{id} "));
        let spot = finding.spot.map_or_else(String::new, |spot| {
            let bytes = fs::read(dir.join(&spot.path)).unwrap();
            let start: usize = bytes.split_inclusive(|&byte| byte == b'\n').take(usize::try_from(spot.line).unwrap() - 1).map(<[u8]>::len).sum();
            assert_eq!(spot.offset, start as u64, "line {} of {}", spot.line, spot.path.display());
            format!(" @{}", spot.line)
        });
        format!("{session}{}: {}{spot}", finding.place, finding.class)
    };
    findings(dir).into_iter().map(show).collect()
}

fn file(dir: &Path, parent: Option<&str>, id: &str) -> PathBuf {
    dir.join(path_of(parent.map(sid).as_ref(), &sid(id)))
}

fn lines(path: &Path) -> Vec<Vec<u8>> {
    fs::read(path).unwrap().split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// Changes the lines of the root's file; the last of them is what stands after the last line feed.
fn change(dir: &Path, change: impl Fn(&mut Vec<Vec<u8>>)) {
    let path = file(dir, None, "r");
    let mut text = lines(&path);
    change(&mut text);
    fs::write(&path, text.join(&b'\n')).unwrap();
}

/// An event's line of any text with the checksum that fits it.
fn sealed(id: &str, body: &str) -> Vec<u8> {
    let crc = event_crc(&sid(id), body.as_bytes());
    format!("{},\"crc\":\"{crc:08x}\"}}", &body[..body.len() - 1]).into_bytes()
}

/// The root's file: 1 the header, 2 and 3 its seed, 4 m0, 5 to 7 the epoch and the turn, 8 n0, 9 and 10 the note that joins, 11 the turn's end,
/// 12 m1, 13 n1, 14 m1 withdrawn, 15 the epoch's end.
const LINES: usize = 15;

type Plant = fn(&Path);

const FAULTS: &[(&str, Plant, &[&str])] = &[
    ("a flipped bit", |dir| change(dir, |lines| lines[6][40] ^= 1), &["r event 4: checksum @7"]),
    ("a flipped bit in a message", |dir| change(dir, |lines| lines[7][40] ^= 1), &["r message 1: checksum @8"]),
    ("a flipped bit in the header", |dir| change(dir, |lines| lines[0][20] ^= 1), &["r header: checksum @1"]),
    (
        "two flipped bits",
        |dir| change(dir, |lines| [4, 10].into_iter().for_each(|line| lines[line][40] ^= 1)),
        &["r event 2: checksum @5", "r event 7: checksum @11"],
    ),
    ("a flipped bit in the last record", |dir| change(dir, |lines| lines[LINES - 1][40] ^= 1), &["r line 15: checksum @15"]),
    ("a line that is lost", |dir| change(dir, |lines| drop(lines.remove(5))), &["r event 3: seq_gap @6"]),
    ("lines that are lost", |dir| change(dir, |lines| drop(lines.drain(1..3))), &["r event 0: seq_gap @3"]),
    ("a message that is lost", |dir| change(dir, |lines| drop(lines.remove(3))), &["r message 0: order_gap @7"]),
    ("the last message, of which events know", |dir| change(dir, |lines| drop(lines.drain(11..13))), &["r event 8: never_accepted @12"]),
    ("a line that is there twice", |dir| change(dir, |lines| lines.insert(6, lines[5].clone())), &["r event 3: seq_gap @7"]),
    ("a NUL run in a line", |dir| change(dir, |lines| lines[6][20..60].fill(0)), &["r event 4: malformed_record @7"]),
    (
        "a NUL run over the middle of the file",
        |dir| {
            let path = file(dir, None, "r");
            let mut bytes = fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle - 300..middle + 300].fill(0);
            fs::write(path, bytes).unwrap();
        },
        &["r event 3: malformed_record @6"],
    ),
    ("a byte order mark", |dir| change(dir, |lines| drop(lines[0].splice(0..0, *b"\xef\xbb\xbf"))), &["r header: malformed_record @1"]),
    ("CR LF", |dir| change(dir, |lines| lines[6].push(b'\r')), &["r event 4: malformed_record @7"]),
    (
        "two records on a line",
        |dir| {
            change(dir, |lines| {
                let next = lines.remove(6);
                lines[5].push(b'x');
                lines[5].extend(next);
            });
        },
        &["r line 6: malformed_record @6"],
    ),
    (
        "a lone surrogate",
        |dir| change(dir, |lines| lines[6] = sealed("r", r#"{"seq":4,"time":1,"type":"memo","data":{"turn":1,"message":"m0","text":"\ud800"}}"#)),
        &["r event 4: malformed_record @7"],
    ),
    (
        "no UTF-8",
        |dir| {
            change(dir, |lines| {
                let mut body = br#"{"seq":4,"time":1,"type":"memo","data":{"turn":1,"message":"m0","text":"x"}"#.to_vec();
                let at = body.len() - 3;
                body[at] = 0xff;
                let crc = event_crc(&sid("r"), &[&body[..], b"}"].concat());
                body.extend(format!(",\"crc\":\"{crc:08x}\"}}").into_bytes());
                lines[6] = body;
            });
        },
        &["r event 4: malformed_record @7"],
    ),
    ("an empty line", |dir| change(dir, |lines| lines.insert(6, Vec::new())), &["r line 7: malformed_record @7"]),
    (
        "a line of another session",
        |dir| {
            let other = lines(&file(dir, Some("r"), "c1"))[2].clone();
            change(dir, |lines| lines[2].clone_from(&other));
        },
        &["r event 1: checksum @3"],
    ),
    ("a second header", |dir| change(dir, |lines| lines.insert(4, lines[0].clone())), &["r line 5: misplaced_record @5"]),
    (
        "a turn that does not nest",
        |dir| change(dir, |lines| lines[5] = sealed("r", r#"{"seq":3,"time":1,"type":"turn/start","data":{"turn":7,"message":"m0","attempt":1}}"#)),
        &["r event 3: fold_breach @6"],
    ),
    (
        "a message under the id of another",
        |dir| {
            change(dir, |lines| {
                let record = InboxRecord { order: 3, held: false, message: turn("m0").into() };
                lines[12] = write_line(&sid("r"), &Line::Message(record)).unwrap();
            });
        },
        &["r message 3: duplicate_message @13"],
    ),
    (
        "a message that was released",
        |dir| {
            change(dir, |lines| {
                let line = |held| write_line(&sid("r"), &Line::Message(InboxRecord { order: 3, held, message: turn("m2").into() })).unwrap();
                lines[12] = line(true);
                lines.insert(LINES, line(false));
            });
        },
        &[],
    ),
    ("a tail without its line feed", |dir| change(dir, |lines| lines[LINES] = b"{\"seq\":10,\"ti".to_vec()), &["r line 16: torn_tail @16"]),
    (
        "a hole at the end",
        |dir| {
            change(dir, |lines| {
                lines[LINES] = vec![0; 80];
                lines.push(Vec::new());
            });
        },
        &["r line 16: torn_tail @16"],
    ),
    (
        "a batch without its end",
        |dir| {
            change(dir, |lines| {
                lines[LINES] = greenroom_session::line::write_batch_line(&sid("r"), &Line::Event(Body::ActivationStart { epoch: 2 }.at(10, 5)), true).unwrap();
                lines.push(b"{\"se".to_vec());
            });
        },
        &["r line 16: torn_tail @16"],
    ),
    ("a first batch that is cut off", |dir| change(dir, |lines| lines.truncate(2)), &["r log: truncated"]),
    (
        "a newer header",
        |dir| {
            change(dir, |lines| {
                let body = br#"{"version":2,"id":"r","shape":"another"}"#;
                let crc = crc32c::crc32c(&[b"h\0", &body[..]].concat());
                lines[0] = [&body[..body.len() - 1], format!(",\"crc\":\"{crc:08x}\"}}").as_bytes()].concat();
            });
        },
        &["r header: unknown_version @1"],
    ),
    ("another name", |dir| fs::rename(file(dir, Some("r"), "c2"), file(dir, Some("r"), "other")).unwrap(), &["c2 header: misnamed_file @1"]),
    (
        "another folder",
        |dir| {
            fs::create_dir(dir.join("c1")).unwrap();
            fs::rename(file(dir, Some("r"), "c2"), file(dir, Some("c1"), "c2")).unwrap();
        },
        &["c2 header: header_conflict @1"],
    ),
    (
        "two folders",
        |dir| {
            fs::create_dir(dir.join("c1")).unwrap();
            fs::copy(file(dir, Some("r"), "c2"), file(dir, Some("c1"), "c2")).unwrap();
        },
        &["c2 header: header_conflict @1", "c2 header: duplicate_session @1"],
    ),
    ("a parent that is gone", |dir| fs::remove_file(file(dir, None, "r")).unwrap(), &["c1 header: orphan", "c2 header: orphan"]),
    (
        "an alias of two",
        |dir| {
            let path = file(dir, Some("r"), "c2");
            let mut text = lines(&path);
            let descriptor = String::from_utf8(text[1].clone()).unwrap();
            let body = format!("{}}}", descriptor.rsplit_once(",\"crc\"").unwrap().0).replace("\"as\":\"b\"", "\"as\":\"a\"");
            text[1] = sealed("c2", &body);
            fs::write(path, text.join(&b'\n')).unwrap();
        },
        &["c2 header: duplicate_alias"],
    ),
    ("what a writer left", |dir| fs::write(dir.join("_new-1"), "x").unwrap(), &["_new-1: leftover"]),
    (
        "what a holder left",
        |dir| fs::write(dir.join("_held-f4b1c0de-0000-4000-8000-000000000000"), "").unwrap(),
        &["_held-f4b1c0de-0000-4000-8000-000000000000: leftover"],
    ),
    ("a tail that was set aside", |dir| fs::write(dir.join("_root/r.jsonl.torn-7"), "x").unwrap(), &["_root/r.jsonl.torn-7: leftover"]),
    ("a last record that was set aside", |dir| fs::write(dir.join("_root/r.jsonl.damaged-7"), "x\n").unwrap(), &["_root/r.jsonl.damaged-7: damaged_tail"]),
    ("a removed session that is still there", |dir| fs::write(dir.join("r/c2.removed"), "").unwrap(), &["r/c2.removed: leftover"]),
    (
        "something else",
        |dir| {
            fs::write(dir.join("r/notes.txt"), "").unwrap();
            fs::write(dir.join("README"), "").unwrap();
        },
        &["README: foreign_object", "r/notes.txt: foreign_object"],
    ),
    (
        "links to files, a folder with the name of a file",
        |dir| {
            std::os::unix::fs::symlink("r.jsonl", dir.join("_root/s.jsonl")).unwrap();
            std::os::unix::fs::symlink("/nowhere", dir.join("r/c1.removed")).unwrap();
            fs::create_dir(dir.join("r/d.jsonl")).unwrap();
        },
        &["_root/s.jsonl: foreign_object", "r/c1.removed: foreign_object", "r/d.jsonl: foreign_object"],
    ),
    ("a folder that is nobody's", |dir| fs::create_dir(dir.join("Not A Name")).unwrap(), &["Not A Name: misnamed_file"]),
];

/// The names of the classes that are planted here.
pub(crate) fn planted() -> impl Iterator<Item = String> {
    FAULTS.iter().flat_map(|(_, _, found)| found.iter()).filter_map(|line| line.split(" @").next()?.rsplit(' ').next().map(str::to_owned))
}

#[test]
fn a_folder_that_is_written_meanwhile_has_no_fault() {
    let dir = busy();
    let f = Fixture { store: Box::new(JsonlStore::open(dir.path()).unwrap()), folder: None };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut checks = 0;
            while !done.load(Ordering::Relaxed) || checks == 0 {
                assert_eq!(found(dir.path()), Vec::<String>::new(), "check {checks}");
                checks += 1;
            }
        });
        for n in 0..40 {
            let id = format!("s{n}");
            f.create(child(&id, "r", Some(&id), 1_000));
            f.accept(&id, Message::turn("m0", "x".repeat(100_000), Source::User, 1).unwrap()).unwrap();
            let (fence, _) = f.open(&id, Some(1));
            f.accept(&id, note("n0", false)).unwrap();
            f.claim(&fence, ClaimKind::Notes).unwrap();
            f.end_turn(&fence, 1, TurnEnd::Completed);
            f.one(close(&fence, f.next_seq(&id), true)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_healthy_folder_has_no_fault() {
    let dir = busy();
    assert_eq!(lines(&file(dir.path(), None, "r")).len(), LINES + 1);
    assert_eq!(found(dir.path()), Vec::<String>::new());
}

#[test]
fn every_fault_of_a_file_is_found_at_its_line_and_byte() {
    let mut wrong = Vec::new();
    for (what, plant, expected) in FAULTS {
        let dir = busy();
        plant(dir.path());
        let found = found(dir.path());
        if found != *expected {
            wrong.push(format!("{what}: {found:?} where {expected:?} is to be found"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_flipped_bit_of_a_file_goes_unnoticed() {
    let dir = busy();
    let path = file(dir.path(), None, "r");
    let bytes = fs::read(&path).unwrap();
    // One bit of every byte, and all of those that stand between records.
    let bits = bytes.iter().enumerate().flat_map(|(at, byte)| if *byte == b'\n' { at * 8..at * 8 + 8 } else { at * 8 + at % 8..at * 8 + at % 8 + 1 });
    for bit in bits {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &flipped).unwrap();
        let line = bytes[..bit / 8].split(|&byte| byte == b'\n').count() as u64;
        let found = findings(dir.path());
        assert!(!found.is_empty(), "bit {} of byte {}", bit % 8, bit / 8);
        let here = found.iter().any(|finding| finding.spot.as_ref().is_some_and(|spot| spot.line == line));
        assert!(here, "bit {} of byte {} in line {line}: {found:?}", bit % 8, bit / 8);
        assert!(found.iter().any(|finding| finding.class.severity() == Severity::Damage), "bit {} of byte {}: {found:?}", bit % 8, bit / 8);
    }
}

#[test]
fn every_cut_of_a_file_is_healthy_torn_or_told() {
    let dir = busy();
    let path = file(dir.path(), None, "r");
    let bytes = fs::read(&path).unwrap();
    for length in (1..bytes.len()).filter(|length| length % 5 == 0 || *length > bytes.len() - 250) {
        fs::write(&path, &bytes[..length]).unwrap();
        let found = findings(dir.path());
        let at_a_line = bytes[length - 1] == b'\n';
        assert!(at_a_line || !found.is_empty(), "cut at {length}");
    }
}

#[test]
fn a_long_id_is_checked_by_its_header_and_missed_without_it() {
    let dir = busy();
    let store = JsonlStore::open(dir.path()).unwrap();
    let long = "long ".repeat(60);
    store.commit(&[greenroom_session::store::Op::Create(crate::support::root(&long, 1_000))]).unwrap().remove(0).unwrap();
    store.close().unwrap();
    drop(store);
    let path = file(dir.path(), None, &long);
    assert_eq!(found(dir.path()), Vec::<String>::new());
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() - 60] ^= 1;
    damaged[whole.len() - 400] ^= 1;
    fs::write(&path, &damaged).unwrap();
    assert!(found(dir.path()).iter().any(|line| line.contains(": checksum @")), "{:?}", found(dir.path()));
    damaged[20] ^= 1;
    fs::write(&path, &damaged).unwrap();
    assert!(found(dir.path()).iter().any(|line| line.contains("header: ")), "{:?}", found(dir.path()));
}
