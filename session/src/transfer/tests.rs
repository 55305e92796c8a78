//! Files of a JSON Lines store, as they are imported: what was accepted, taken, released, and cut off.

use std::{fs, sync::Arc};

use tempfile::TempDir;

use super::{FileError, FileFlaw, ImportReport, ImportTrouble, import_folder};
use crate::{
    event::{Body, Event},
    header::NewSession,
    id::SessionId,
    line::{Line, read_line, write_batch_line},
    message::{InboxRecord, Message, Source, Tombstone},
    store::{Store, jsonl::MARKER, memory::MemoryStore},
};

fn id() -> SessionId {
    SessionId::new("r").unwrap()
}

fn record(order: u64, held: bool) -> InboxRecord {
    InboxRecord { order, held, message: Arc::new(Message::turn(format!("m{order}"), "text", Source::User, 7).unwrap()) }
}

fn event(seq: u64, body: Body) -> Line {
    Line::Event(body.at(seq, 5))
}

/// The lines of a session that has served its first message and got a second one; each with whether its batch goes on.
fn life() -> Vec<(Line, bool)> {
    let message = record(0, false).message;
    vec![
        (Line::Header(NewSession::root(id()).at(5)), true),
        (event(0, Body::EndSeed {}), true),
        (Line::Message(record(0, false)), false),
        (event(1, Body::ActivationStart { epoch: 1 }), true),
        (event(2, Body::TurnStart { turn: 1, message: message.id.clone(), attempt: 1 }), true),
        (event(3, Body::user_message(&message)), false),
        (Line::Message(record(1, false)), false),
    ]
}

fn text(lines: &[(Line, bool)]) -> String {
    lines.iter().flat_map(|(line, more)| [String::from_utf8(write_batch_line(&id(), line, *more).unwrap()).unwrap(), "\n".to_owned()]).collect()
}

/// Imports a file of this text, of a store's folder or of another one.
fn imported(text: &str, of_store: bool) -> (MemoryStore, ImportReport, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("_root")).unwrap();
    fs::write(folder.path().join("_root/r.jsonl"), text).unwrap();
    if of_store {
        fs::write(folder.path().join(MARKER), "{}").unwrap();
    }
    let store = MemoryStore::new();
    let report = import_folder(&store, folder.path(), true, &mut |_| ()).unwrap();
    (store, report, folder)
}

/// Imports, and reads the session back as lines.
fn lines(text: &str) -> Vec<Line> {
    let (store, report, _folder) = imported(text, true);
    assert_eq!(report.imported, 1, "{report:?}");
    let (mut lines, mut seq) = (Vec::new(), 0);
    let mut take = |line: &[u8]| {
        let line = read_line(&id(), seq, line).unwrap();
        seq += u64::from(matches!(line, Line::Event(_)));
        lines.push(line);
        Ok(())
    };
    store.reader().unwrap().export(&id(), &mut take).unwrap();
    lines
}

/// What a whole life comes to: the header, the events, what remains of the first message, the second.
fn canonical() -> Vec<Line> {
    let (mut inbox, mut lines): (Vec<Line>, Vec<Line>) = (Vec::new(), Vec::new());
    for (line, _) in life() {
        match line {
            Line::Message(record) => inbox.push(if record.order == 0 { Line::Taken(Tombstone::of(&record)) } else { Line::Message(record) }),
            other => lines.push(other),
        }
    }
    lines.extend(inbox);
    lines
}

fn flaw(text: &str, of_store: bool) -> (FileFlaw, Option<(u64, u64)>) {
    let (store, mut report, _folder) = imported(text, of_store);
    assert!(store.reader().unwrap().find("", 9).unwrap().is_empty(), "{text}");
    match report.troubles.pop() {
        Some(ImportTrouble::File(FileError { flaw, place, .. })) => (flaw, place),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_stays_where_it_was_accepted_and_is_taken_by_the_event_that_names_it() {
    assert_eq!(lines(&text(&life())), canonical());
}

#[test]
fn a_line_that_comes_again_without_held_has_been_released() {
    let mut held = life();
    held.pop();
    let taken = Tombstone { order: 1, held: true, ..Tombstone::of(&record(1, false)) };
    held.insert(3, (Line::Taken(taken.clone()), false));
    held.insert(4, (event(1, Body::MessageWithdrawn { message: taken.id.clone(), by: "user".into() }), false));
    // The events after it move on by one.
    for (line, _) in held.iter_mut().skip(5) {
        if let Line::Event(event) = line {
            *line = Line::Event(Event { seq: event.seq + 1, ..event.clone() });
        }
    }
    held.push((Line::Message(record(2, true)), false));
    held.push((Line::Message(record(2, false)), true));
    held.push((Line::Taken(Tombstone { held: false, ..taken.clone() }), false));
    let found = lines(&text(&held));
    assert_eq!(found[found.len() - 2..], [Line::Taken(Tombstone { held: false, ..taken }), Line::Message(record(2, false))]);
    // Only that.
    for again in [record(2, true), InboxRecord { message: record(1, false).message, ..record(2, false) }] {
        let mut twice = life();
        twice.push((Line::Message(record(2, false)), false));
        twice.push((Line::Message(again), false));
        assert!(matches!(flaw(&text(&twice), true), (FileFlaw::Order("a message of this order was there before"), Some((9, _)))));
    }
}

#[test]
fn what_a_write_has_left_that_was_cut_off_is_passed_over_in_a_store_and_damage_in_an_export() {
    let whole = text(&life());
    let more = write_batch_line(&id(), &event(4, Body::StepStart { turn: 1, step: 1 }), true).unwrap();
    let more = String::from_utf8(more).unwrap();
    let flipped = more.replace("\"step\":1", "\"step\":2");
    for torn in [&more[..1], &more[..more.len() / 2], &more, &format!("{more}\n"), &format!("{more}\n{}", &more[..9]), &format!("{flipped}\n")] {
        assert_eq!(lines(&format!("{whole}{torn}")), canonical(), "{torn}");
        assert!(matches!(flaw(&format!("{whole}{torn}"), false), (FileFlaw::Cut | FileFlaw::Line(_), Some((8 | 9, _)))), "{torn}");
    }
    // In the middle nothing is cut off.
    let (flaw_there, place) = flaw(&format!("{flipped}\n{whole}"), true);
    assert!(matches!(flaw_there, FileFlaw::NoHeader | FileFlaw::Line(_)) && place == Some((1, 0)), "{flaw_there:?}");
    let with_a_flip = whole.replace("\"seq\":1,\"time\":5", "\"seq\":1,\"time\":6");
    assert!(matches!(flaw(&with_a_flip, true), (FileFlaw::Line(_), Some((4, _)))));
    // Nor does a cut join two records, nor leave less than the first batch.
    let whole_record = String::from_utf8(write_batch_line(&id(), &event(4, Body::StepStart { turn: 1, step: 1 }), false).unwrap()).unwrap();
    let joined = format!("{whole}{whole_record}\u{b}{more}\n");
    assert!(matches!(flaw(&joined, true), (FileFlaw::Line(_), Some((8, _)))));
    assert!(matches!(flaw(&text(&life()[..2]), true), (FileFlaw::Cut, _)));
}

#[test]
fn a_last_line_that_is_whole_and_says_nothing_that_can_be_is_damage_in_a_store_too() {
    let whole = text(&life());
    for body in
        [r#"{"seq":4,"time":5,"type":"step/start","data":{"turn":-1,"step":1}}"#, r#"{"seq":9,"time":5,"type":"step/start","data":{"turn":1,"step":1}}"#]
    {
        let crc = crate::codec::event_crc(&id(), body.as_bytes());
        let line = format!("{},\"crc\":\"{crc:08x}\"}}\n", body.strip_suffix('}').unwrap());
        let (found, place) = flaw(&format!("{whole}{line}"), true);
        assert!(matches!(found, FileFlaw::Line(_)) && matches!(place, Some((8, _))), "{found:?} {place:?}");
    }
}
