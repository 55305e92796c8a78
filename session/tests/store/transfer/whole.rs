//! A whole session as lines: one that has lived, its export, and its export read back.

use std::sync::Arc;

use greenroom_session::{
    codec::encode_header,
    event::{Body, TurnEnd},
    header::NewSession,
    id::SessionId,
    line::{Line, read_verbatim},
    message::{Control, Message},
    store::{ClaimKind, Create, Import, InboxLine, Op, Reader, Remove, Verbatim},
};

use crate::support::{Fixture, append, mid, note, root, sid, turn};

/// Writes a session out.
pub(crate) fn lines(reader: &mut dyn Reader, id: &str) -> Vec<String> {
    let mut lines = Vec::new();
    reader
        .export(&sid(id), &mut |line| {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
            Ok(())
        })
        .unwrap();
    lines
}

/// Reads an export back.
pub(crate) fn import(lines: &[String]) -> Import {
    let id = SessionId::new(serde_json::from_str::<serde_json::Value>(&lines[0]).unwrap()["id"].as_str().unwrap()).unwrap();
    let (mut header, mut events, mut inbox) = (None, Vec::new(), Vec::new());
    let mut bytes = Verbatim { header: encode_header(&NewSession::root(id.clone()).at(0)).unwrap(), events: vec![], messages: vec![] };
    for line in lines {
        let (line, encoded) = read_verbatim(&id, events.len() as u64, line.as_bytes()).unwrap();
        match line {
            Line::Header(found) => (header, bytes.header) = (Some(found), encoded),
            Line::Event(event) => {
                events.push(event);
                bytes.events.push(encoded);
            }
            Line::Message(record) => {
                inbox.push(InboxLine::Waiting(record));
                bytes.messages.push(encoded.body);
            }
            Line::Taken(tombstone) => {
                inbox.push(InboxLine::Taken(tombstone));
                bytes.messages.push(vec![]);
            }
        }
    }
    Import::verbatim(Arc::new(header.unwrap()), events.into(), inbox.into(), bytes)
}

pub(super) fn unheld(lines: &[String]) -> Vec<String> {
    // Who is held changes the checksum, too.
    let cut = |line: &String| line.rfind(",\"crc\"").map(|at| line[..at].replace("\"held\":true,", "")).unwrap();
    lines.iter().map(cut).collect()
}

/// A session in a store of its own, as lines.
pub(super) fn lived(make: impl FnOnce(&Fixture)) -> Vec<String> {
    let elsewhere = Fixture::memory();
    make(&elsewhere);
    lines(&mut *elsewhere.reader(), "r")
}

pub(super) fn with_messages(f: &Fixture) {
    f.create(Create { message: Some(Arc::new(turn("m0"))), ..root("r", 1_000) });
    let (fence, _) = f.open("r", Some(3));
    f.accept("r", note("n1", true)).unwrap();
    f.accept("r", note("n2", false)).unwrap();
    f.claim(&fence, ClaimKind::Notes);
    f.end_turn(&fence, 1, TurnEnd::Completed);
    f.accept("r", turn("m3")).unwrap();
    f.accept("r", Message::control(mid("c4"), Control::Interrupt { turn: Some(1) }, 9)).unwrap();
    f.accept("r", Message::control(mid("c5"), Control::Withdraw { target: mid("m3") }, 9)).unwrap();
    let seq = f.next_seq("r");
    let answered = Body::ControlAnswered { control: mid("c5"), op: "withdraw".into(), outcome: "done".into() }.at(seq, 4);
    let withdrawn = Body::MessageWithdrawn { message: mid("m3"), by: "user".into() }.at(seq + 1, 4);
    f.one(append(&fence, vec![answered, withdrawn], vec![5, 3])).unwrap();
    f.accept("r", note("n6", true)).unwrap();
    f.accept("r", turn("m7")).unwrap();
    f.close(&fence, false).unwrap();
}

pub(super) fn remove(id: &str, discard: bool) -> Op {
    Op::Remove(Remove { session: sid(id), discard })
}
