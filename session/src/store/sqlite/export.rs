//! A whole session as lines, from the rows as they lie there: what is stored of a record is what stands on its line.

use std::io;

use rusqlite::{Connection, Row};

use super::log::{self, bytes, crc_of, unsigned};
use crate::{
    codec::{DecodeError, decode_event, encode_tombstone, event_crc, message_crc},
    id::{Order, Seq, SessionId},
    line::{seal, seal_body, seal_message},
    store::{ExportError, LoadError},
};

/// Where the lines go.
type Sink<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

/// Writes the canonical lines, each checked by its checksum and by its place.
pub(super) fn export(conn: &Connection, id: &SessionId, line: &mut Sink<'_>) -> Result<(), ExportError> {
    let found = log::require(conn, id)?;
    let header: String = conn.prepare_cached("SELECT header FROM session WHERE sid = ?1")?.query_row([found.sid], |row| row.get(0))?;
    let mut text = Vec::new();
    seal_body(&mut text, header.as_bytes(), found.crc);
    line(&text).map_err(ExportError::Sink)?;

    let mut query = conn.prepare_cached("SELECT seq, body, crc FROM event WHERE sid = ?1 ORDER BY seq")?;
    let mut rows = query.query([found.sid])?;
    let mut next = 0;
    while let Some(row) = rows.next()? {
        text.clear();
        event(id, next, row, &mut text)?.map_err(|source| corrupt(id, format!("event {next}"), source))?;
        line(&text).map_err(ExportError::Sink)?;
        next += 1;
    }

    let mut query = conn.prepare_cached("SELECT ord, state, held, body, crc, message_id, hash, kind, wake FROM inbox WHERE sid = ?1 ORDER BY ord")?;
    let mut rows = query.query([found.sid])?;
    let mut next = 0;
    while let Some(row) = rows.next()? {
        text.clear();
        place(id, next, row, &mut text)?.map_err(|source| corrupt(id, format!("message {next}"), source))?;
        line(&text).map_err(ExportError::Sink)?;
        next += 1;
    }
    Ok(())
}

fn corrupt(id: &SessionId, place: String, source: DecodeError) -> LoadError {
    LoadError::Corrupt { session: id.clone(), place, source }
}

/// Appends the line of an event.
fn event(id: &SessionId, expected: Seq, row: &Row<'_>, text: &mut Vec<u8>) -> rusqlite::Result<Result<(), DecodeError>> {
    if unsigned(row.get(0)?) != expected {
        return Ok(Err(DecodeError::Misplaced("the event is missing".into())));
    }
    let body = bytes(row, 1)?;
    let Some(crc) = crc_of(row, 2)?.filter(|crc| event_crc(id, body) == *crc) else { return Ok(Err(DecodeError::Checksum)) };
    if said_seq(body) != Some(expected) {
        // Not as this program writes it: looked at closely.
        if let Err(error) = decode_event(id, expected, body, crc) {
            return Ok(Err(error));
        }
    }
    seal_body(text, body, crc);
    Ok(Ok(()))
}

/// Reads the seq off an event's text, where it stands first.
fn said_seq(body: &[u8]) -> Option<Seq> {
    let rest = body.strip_prefix(br#"{"seq":"#)?;
    let end = rest.iter().position(|&byte| byte == b',')?;
    std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()
}

/// Appends the line of a message, or of what remains of it.
fn place(id: &SessionId, expected: Order, row: &Row<'_>, text: &mut Vec<u8>) -> rusqlite::Result<Result<(), DecodeError>> {
    let order = unsigned(row.get(0)?);
    if order != expected {
        return Ok(Err(DecodeError::Misplaced("the message is missing".into())));
    }
    if row.get::<_, i64>(1)? == 0 {
        let (held, body) = (row.get::<_, i64>(2)? != 0, bytes(row, 3)?);
        let Some(crc) = crc_of(row, 4)?.filter(|crc| message_crc(id, order, held, body) == *crc) else { return Ok(Err(DecodeError::Checksum)) };
        seal_message(text, order, held, body, crc);
        return Ok(Ok(()));
    }
    Ok(log::tombstone(id, row, [0, 5, 6, 7, 8, 2, 4])?.and_then(|tombstone| {
        seal(text, &encode_tombstone(id, &tombstone).map_err(|_| DecodeError::Checksum)?);
        Ok(())
    }))
}
