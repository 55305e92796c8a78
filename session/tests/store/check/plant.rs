//! How a fault is planted by plain SQL.

use greenroom_session::{
    codec::{encode_event, encode_header, event_crc, message_crc},
    descriptor::Descriptor,
    event::{Body, Event},
    header::{Header, NewSession},
    id::SessionId,
    message::Message,
    store::{Create, Op},
};
use rusqlite::{Connection, params};
use serde_json::Value;

use crate::support::{Fixture, sid};

pub(super) fn sid_of(raw: &Connection, id: &str) -> i64 {
    raw.query_row("SELECT sid FROM session WHERE id = ?1", [id], |row| row.get(0)).unwrap()
}

/// Changes an event and gives it the checksum of what it has become.
pub(super) fn rewrite(raw: &Connection, id: &str, seq: u64, change: impl Fn(&mut Value)) {
    let number = sid_of(raw, id);
    let body: String = raw.query_row("SELECT body FROM event WHERE sid = ?1 AND seq = ?2", params![number, seq.cast_signed()], |row| row.get(0)).unwrap();
    let mut event: Value = serde_json::from_str(&body).unwrap();
    change(&mut event);
    put_event(raw, id, seq, &event.to_string());
}

pub(super) fn put_event(raw: &Connection, id: &str, seq: u64, body: &str) {
    let crc = event_crc(&sid(id), body.as_bytes());
    let (number, seq) = (sid_of(raw, id), seq.cast_signed());
    // A row that is there keeps its place.
    if raw.execute("UPDATE event SET body = ?3, crc = ?4 WHERE sid = ?1 AND seq = ?2", params![number, seq, body, crc]).unwrap() == 0 {
        raw.execute("INSERT INTO event(sid, seq, body, crc) VALUES(?1, ?2, ?3, ?4)", params![number, seq, body, crc]).unwrap();
    }
}

pub(super) fn add_event(raw: &Connection, id: &str, event: &Event) {
    let encoded = encode_event(&sid(id), event).unwrap();
    put_event(raw, id, event.seq, std::str::from_utf8(&encoded.body).unwrap());
}

/// Changes a header, its columns and its checksum; its derived row follows, since it is bound to the header.
pub(super) fn rewrite_header(f: &Fixture, raw: &Connection, id: &str, change: impl Fn(&mut Header)) {
    let mut header = (*f.reader().header(&sid(id)).unwrap().unwrap()).clone();
    change(&mut header);
    let encoded = encode_header(&header).unwrap();
    let text = std::str::from_utf8(&encoded.body).unwrap();
    raw.execute(
        "UPDATE session SET header = ?2, crc = ?3, created_at = ?4, parent_id = ?5 WHERE id = ?1",
        params![id, text, encoded.crc, header.created_at.cast_signed(), header.parent.as_ref().map(SessionId::as_str)],
    )
    .unwrap();
    f.store.rebuild_index(Some(&sid(id)), &mut |_| {}).unwrap();
}

/// Puts a message that has left back into the inbox, as it was.
pub(super) fn put_back(raw: &Connection, id: &str, order: u64, message: &Message) {
    let body = serde_json::to_string(message).unwrap();
    let crc = message_crc(&sid(id), order, false, body.as_bytes());
    raw.execute("UPDATE inbox SET state = 0, body = ?3, crc = ?4 WHERE sid = ?1 AND ord = ?2", params![sid_of(raw, id), order.cast_signed(), body, crc])
        .unwrap();
}

pub(super) fn sql(text: &'static str) -> impl Fn(&Fixture, &Connection) {
    move |_, raw| raw.execute_batch(text).unwrap()
}

pub(super) type Plant = Box<dyn Fn(&Fixture, &Connection)>;

/// A child whose creation seed is these events.
pub(super) fn seeded(id: &str, bodies: Vec<Body>) -> Op {
    let events = bodies.into_iter().zip(0..).map(|(body, seq)| body.at(seq, 1_000)).collect();
    Op::Create(Create { session: NewSession::child(sid(id), sid("r"), 0), time: 1_000, events, message: None })
}

pub(super) fn descriptor() -> Body {
    Body::Descriptor(serde_json::to_value(Descriptor::continuable("spawn", "a label", "reporter")).unwrap())
}

/// What a fault is, how it is planted, and all that is to be found of it.
pub(super) type Fault = (&'static str, Plant, Vec<&'static str>);

/// The checksum of a header, by its definition.
pub(super) fn header_crc(body: &[u8]) -> u32 {
    crc32c::crc32c(&[b"h\0", body].concat())
}
