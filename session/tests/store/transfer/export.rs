//! An export: the header, the events and the inbox in their order, and nothing that is damaged.

use std::sync::Arc;

use greenroom_session::{
    line::{Line, read_line, write_line},
    message::{Control, InboxRecord, Message, Tombstone},
    store::{ExportError, LoadError, Op, Store, memory::MemoryStore},
};

use super::whole::{lines, lived, with_messages};
use crate::support::{Fixture, mid, note, one, root, sid, turn};

crate::on_every_store!(an_export_is_the_header_the_events_and_the_inbox_in_their_order);

fn an_export_is_the_header_the_events_and_the_inbox_in_their_order(f: &Fixture) {
    with_messages(f);
    let found = lines(&mut *f.reader(), "r");
    let log = f.load("r");
    let mut expected = vec![Line::Header((**log.fold.header()).clone())];
    expected.extend(log.events.iter().cloned().map(Line::Event));
    let record = |order, message: Message| InboxRecord { order, held: false, message: Arc::new(message) };
    let taken = |order, message: Message| Line::Taken(Tombstone::of(&record(order, message)));
    expected.extend([
        taken(0, turn("m0")),
        taken(1, note("n1", true)),
        taken(2, note("n2", false)),
        taken(3, turn("m3")),
        Line::Message(record(4, Message::control(mid("c4"), Control::Interrupt { turn: Some(1) }, 9))),
        taken(5, Message::control(mid("c5"), Control::Withdraw { target: mid("m3") }, 9)),
        Line::Message(record(6, note("n6", true))),
        Line::Message(record(7, turn("m7"))),
    ]);
    let expected: Vec<_> = expected.iter().map(|line| String::from_utf8(write_line(&sid("r"), line).unwrap()).unwrap()).collect();
    assert_eq!(found, expected);
    // And it is what the other store says.
    assert_eq!(found, lived(with_messages));

    let error = f.reader().export(&sid("nobody"), &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, ExportError::Load(LoadError::NotFound(_))), "{error:?}");
    let error = f.reader().export(&sid("r"), &mut |_| Err(std::io::ErrorKind::StorageFull.into())).unwrap_err();
    assert_eq!(error.code(), "EXPORT_FAILED");
}

/// A flipped byte of any row of a session is noticed by its export.
#[test]
fn no_damage_of_a_row_is_exported() {
    for damage in [
        "UPDATE session SET header = replace(header, '1000', '1001')",
        "UPDATE event SET body = replace(body, 'editor', 'edit0r')",
        "UPDATE event SET seq = seq + 100 WHERE seq = (SELECT max(seq) FROM event) - 1",
        "UPDATE inbox SET body = replace(body, 'text', 'test')",
        "UPDATE inbox SET held = 1 WHERE ord = 0",
        "UPDATE inbox SET held = 1 WHERE ord = 7",
        "UPDATE inbox SET wake = 1 - wake WHERE ord = 1",
        "UPDATE inbox SET kind = 1 WHERE ord = 0",
        "UPDATE inbox SET hash = zeroblob(16) WHERE ord = 0",
        "UPDATE inbox SET message_id = 'x' WHERE ord = 0",
        "DELETE FROM inbox WHERE ord = 1",
        "UPDATE event SET sid = 0 WHERE seq = 1",
    ] {
        let f = Fixture::sqlite();
        with_messages(&f);
        assert!(f.reader().export(&sid("r"), &mut |_| Ok(())).is_ok());
        let raw = rusqlite::Connection::open(f.path()).unwrap();
        raw.execute_batch(damage).unwrap();
        assert!(raw.changes() > 0, "{damage}");
        let error = f.reader().export(&sid("r"), &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.code(), "SESSION_CORRUPT", "{damage}");
    }
}

/// A line survives its way through every store.
#[test]
fn an_export_of_a_memory_store_reads_back() {
    let store = MemoryStore::new();
    one(&store, Op::Create(root("r", 1))).unwrap();
    for (line, seq) in lines(&mut *store.reader().unwrap(), "r").iter().skip(1).zip(0..) {
        assert!(matches!(read_line(&sid("r"), seq, line.as_bytes()), Ok(Line::Event(_))));
    }
}
