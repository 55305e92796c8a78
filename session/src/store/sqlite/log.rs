//! The ground truth of one session: its header, its events and its inbox, each record checked as it is read.

use std::{ops::ControlFlow, sync::Arc};

use rusqlite::{Connection, OptionalExtension, Row, params, types::ValueRef};

use super::{order::Ascending, transfer::is_removed};
use crate::{
    codec::{DecodeError, decode_event, decode_header, decode_message, encode_tombstone},
    event::Event,
    fold::Fold,
    header::Header,
    id::{MessageId, Order, Seq, SessionId},
    listing::Cursor,
    message::{BodyHash, InboxRecord, MessageKind, Tombstone},
    store::{LoadError, Log, Traced},
};

/// A session's row: where the rest of it is found.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Its number in this store.
    pub(super) sid: i64,
    /// Its header.
    pub(super) header: Arc<Header>,
    /// The header's checksum, which binds derived rows to it.
    pub(super) crc: u32,
}

/// The columns that [`header_of`] reads, from the session table.
pub(super) const SESSION_COLUMNS: &str = "sid, id, parent_id, created_at, header, crc";

/// Turns a non-negative column into what it is in memory; anything else cannot have been written by us and matches nothing.
pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Turns a number into a column. Nothing that the log format allows is out of range.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Reads a checksum column.
pub(super) fn crc_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u32>> {
    Ok(u32::try_from(row.get::<_, i64>(column)?).ok())
}

/// Reads the bytes of a text column, whatever they are.
pub(super) fn bytes<'a>(row: &'a Row<'_>, column: usize) -> rusqlite::Result<&'a [u8]> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => &[],
    })
}

/// Reads a name out of a column that nothing vouches for. What is no text is nobody's name, and no reason to read nothing else.
pub(super) fn name(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(String::from_utf8_lossy(bytes(row, column)?).into_owned())
}

/// Reads a name as [`name`] does out of a column that may have none.
pub(super) fn maybe_name(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(if row.get_ref(column)? == ValueRef::Null { None } else { Some(name(row, column)?) })
}

/// Decodes the header of a row of [`SESSION_COLUMNS`], and checks that the columns say the same.
pub(super) fn header_of(row: &Row<'_>, id: &SessionId) -> rusqlite::Result<Result<Arc<Header>, DecodeError>> {
    let Some(crc) = crc_of(row, 5)? else { return Ok(Err(DecodeError::Checksum)) };
    let header = match decode_header(id, bytes(row, 4)?, crc) {
        Ok(header) => header,
        Err(error) => return Ok(Err(error)),
    };
    let parent_fits = match (&header.parent, row.get_ref(2)?) {
        (Some(parent), ValueRef::Text(column)) => parent.as_str().as_bytes() == column,
        (None, ValueRef::Null) => true,
        _ => false,
    };
    if parent_fits && unsigned(row.get(3)?) == header.created_at {
        Ok(Ok(Arc::new(header)))
    } else {
        Ok(Err(DecodeError::Misplaced("the header is of another parent or time than its row".into())))
    }
}

/// The order of the children of one parent, after a place.
pub(super) fn siblings_after(after: Option<&Cursor>) -> Ascending<(u64, SessionId)> {
    Ascending::new("siblings", after.map(|cursor| (cursor.created_at, cursor.id.clone())))
}

/// Reads a row of [`SESSION_COLUMNS`] as a trace shows it; `None` if its id is none.
pub(super) fn traced(row: &Row<'_>) -> rusqlite::Result<Option<Traced>> {
    let id = match row.get_ref(1)? {
        ValueRef::Text(text) => std::str::from_utf8(text).ok().and_then(|text| SessionId::new(text).ok()),
        _ => None,
    };
    let Some(id) = id else { return Ok(None) };
    let header = header_of(row, &id)?;
    Ok(Some(Traced { id, created_at: unsigned(row.get(3)?), header }))
}

/// Turns a limit into a column.
pub(super) fn limit_column(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Turns the place after which siblings are wanted into two columns.
pub(super) fn place_columns(after: Option<&Cursor>) -> (i64, &str) {
    after.map_or((-1, ""), |cursor| (signed(cursor.created_at), cursor.id.as_str()))
}

fn corrupt(id: &SessionId, place: impl Into<String>, source: DecodeError) -> LoadError {
    LoadError::Corrupt { session: id.clone(), place: place.into(), source }
}

/// Finds a session by its id; `None` if there is none.
pub(super) fn find(conn: &Connection, id: &SessionId) -> Result<Option<Found>, LoadError> {
    let mut query = conn.prepare_cached("SELECT sid, id, parent_id, created_at, header, crc FROM session WHERE id = ?1")?;
    let mut rows = query.query([id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let header = header_of(row, id)?.map_err(|error| corrupt(id, "header", error))?;
    Ok(Some(Found { sid: row.get(0)?, header, crc: crc_of(row, 5)?.unwrap_or_default() }))
}

/// Finds a session that must be there.
pub(super) fn require(conn: &Connection, id: &SessionId) -> Result<Found, LoadError> {
    match find(conn, id)? {
        Some(found) => Ok(found),
        None if is_removed(conn, id)? => Err(LoadError::Removed(id.clone())),
        None => Err(LoadError::NotFound(id.clone())),
    }
}

/// Hands the events from `from`, at most `limit`, to `see`, in order and without a gap, and tells whether it took them all.
pub(super) fn each_event(
    conn: &Connection,
    id: &SessionId,
    sid: i64,
    from: Seq,
    limit: usize,
    mut see: impl FnMut(Event) -> Result<ControlFlow<()>, LoadError>,
) -> Result<ControlFlow<()>, LoadError> {
    let mut query = conn.prepare_cached("SELECT seq, body, crc FROM event WHERE sid = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?3")?;
    let mut rows = query.query(params![sid, signed(from), limit_column(limit)])?;
    let mut expected = from;
    while let Some(row) = rows.next()? {
        let place = || format!("event {expected}");
        if unsigned(row.get(0)?) != expected {
            return Err(corrupt(id, place(), DecodeError::Misplaced("the event is missing".into())));
        }
        let Some(crc) = crc_of(row, 2)? else { return Err(corrupt(id, place(), DecodeError::Checksum)) };
        let event = decode_event(id, expected, bytes(row, 1)?, crc).map_err(|error| corrupt(id, place(), error))?;
        if see(event)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        expected += 1;
    }
    Ok(ControlFlow::Continue(()))
}

/// Reads the events from `from`, at most `limit`, in order and without a gap.
pub(super) fn events(conn: &Connection, id: &SessionId, sid: i64, from: Seq, limit: usize) -> Result<Vec<Event>, LoadError> {
    let mut events = Vec::new();
    let _ = each_event(conn, id, sid, from, limit, |event| {
        events.push(event);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(events)
}

/// The number of a message kind in its column.
pub(super) fn kind_column(kind: MessageKind) -> i64 {
    match kind {
        MessageKind::Turn => 0,
        MessageKind::Note => 1,
        MessageKind::Control => 2,
    }
}

/// Reads what remains of a message from the columns of its order, its id, its hash, its kind, `wake`, `held` and the checksum.
pub(super) fn tombstone(id: &SessionId, row: &Row<'_>, columns: [usize; 7]) -> rusqlite::Result<Result<Tombstone, DecodeError>> {
    let [order, message, hash, kind, wake, held, crc] = columns;
    let kind = match row.get::<_, i64>(kind)? {
        0 => MessageKind::Turn,
        1 => MessageKind::Note,
        2 => MessageKind::Control,
        _ => return Ok(Err(DecodeError::Checksum)),
    };
    let message = std::str::from_utf8(bytes(row, message)?).ok().and_then(|text| MessageId::new(text).ok());
    let (Some(message), Ok(hash)) = (message, bytes(row, hash)?.try_into()) else { return Ok(Err(DecodeError::Checksum)) };
    let (wake, held) = (row.get::<_, i64>(wake)? != 0, row.get::<_, i64>(held)? != 0);
    let tombstone = Tombstone { order: unsigned(row.get(order)?), id: message, kind, wake, hash: BodyHash(hash), held };
    let whole = match encode_tombstone(id, &tombstone) {
        Ok(encoded) => crc_of(row, crc)? == Some(encoded.crc),
        Err(_) => false,
    };
    Ok(if whole { Ok(tombstone) } else { Err(DecodeError::Checksum) })
}

/// Reads what remains of the messages that have left and are held, in order.
pub(super) fn held_taken(conn: &Connection, id: &SessionId, sid: i64) -> Result<Vec<Tombstone>, LoadError> {
    let mut held = Vec::new();
    let mut query =
        conn.prepare_cached("SELECT ord, message_id, hash, kind, wake, held, crc FROM inbox WHERE sid = ?1 AND held != 0 AND state = 1 ORDER BY ord")?;
    let mut rows = query.query([sid])?;
    while let Some(row) = rows.next()? {
        let order = unsigned(row.get(0)?);
        held.push(tombstone(id, row, [0, 1, 2, 3, 4, 5, 6])?.map_err(|error| corrupt(id, format!("message {order}"), error))?);
    }
    Ok(held)
}

/// Which pending messages are read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// All, at most so many.
    All(usize),
    /// The first of a kind that stands before an order.
    First(MessageKind, Order),
    /// All of a kind that stand before an order.
    Every(MessageKind, Order),
    /// The one at an order.
    At(Order),
}

/// Reads pending messages in order.
pub(super) fn inbox(conn: &Connection, id: &SessionId, sid: i64, wanted: Wanted) -> Result<Vec<InboxRecord>, LoadError> {
    const ALL: &str = "SELECT ord, held, body, crc, message_id, kind, wake FROM inbox WHERE sid = ?1 AND state = 0 ORDER BY ord LIMIT ?2";
    const SOME: &str =
        "SELECT ord, held, body, crc, message_id, kind, wake FROM inbox WHERE sid = ?1 AND state = 0 AND ord < ?2 AND kind = ?3 ORDER BY ord LIMIT ?4";
    const ONE: &str = "SELECT ord, held, body, crc, message_id, kind, wake FROM inbox WHERE sid = ?1 AND state = 0 AND ord = ?2";
    let mut records = Vec::new();
    let mut query;
    let mut rows = match wanted {
        Wanted::All(limit) => {
            query = conn.prepare_cached(ALL)?;
            query.query(params![sid, i64::try_from(limit).unwrap_or(i64::MAX)])?
        }
        Wanted::First(kind, before) => {
            query = conn.prepare_cached(SOME)?;
            query.query(params![sid, signed(before), kind_column(kind), 1])?
        }
        Wanted::Every(kind, before) => {
            query = conn.prepare_cached(SOME)?;
            query.query(params![sid, signed(before), kind_column(kind), -1])?
        }
        Wanted::At(order) => {
            query = conn.prepare_cached(ONE)?;
            query.query(params![sid, signed(order)])?
        }
    };
    while let Some(row) = rows.next()? {
        let order = unsigned(row.get(0)?);
        let held = row.get::<_, i64>(1)? != 0;
        let place = || format!("message {order}");
        let Some(crc) = crc_of(row, 3)? else { return Err(corrupt(id, place(), DecodeError::Checksum)) };
        let message = decode_message(id, order, held, bytes(row, 2)?, crc).map_err(|error| corrupt(id, place(), error))?;
        let columns_fit = bytes(row, 4)? == message.id.as_str().as_bytes()
            && row.get::<_, i64>(5)? == kind_column(message.kind)
            && (row.get::<_, i64>(6)? != 0) == message.wake;
        if !columns_fit {
            return Err(corrupt(id, place(), DecodeError::Misplaced("the message's columns say something else than its body".into())));
        }
        records.push(InboxRecord { order, held, message: Arc::new(message) });
    }
    Ok(records)
}

/// Returns the seq that the next event gets, by the log's last row.
pub(super) fn next_seq(conn: &Connection, sid: i64) -> rusqlite::Result<Seq> {
    let last: Option<i64> = conn.prepare_cached("SELECT max(seq) FROM event WHERE sid = ?1")?.query_row([sid], |row| row.get(0))?;
    Ok(last.map_or(0, |last| unsigned(last).saturating_add(1)))
}

/// Returns the order that the next message gets, by the inbox's last row.
pub(super) fn next_order(conn: &Connection, sid: i64) -> rusqlite::Result<Order> {
    let last: Option<i64> = conn
        .prepare_cached(
            "SELECT max(coalesce((SELECT max(ord) FROM inbox WHERE sid = ?1 AND state = 0), -1),
                        coalesce((SELECT max(ord) FROM inbox WHERE sid = ?1 AND state = 1), -1))",
        )?
        .query_row([sid], |row| row.get(0))?;
    Ok(last.map_or(0, |last| unsigned(last.saturating_add(1))))
}

/// Returns how many records of a session are held.
pub(super) fn held(conn: &Connection, sid: i64) -> rusqlite::Result<u64> {
    let held: i64 = conn.prepare_cached("SELECT count(*) FROM inbox WHERE sid = ?1 AND held != 0")?.query_row([sid], |row| row.get(0))?;
    Ok(unsigned(held))
}

/// Reads a whole session.
pub(super) fn load(conn: &Connection, id: &SessionId) -> Result<Log, LoadError> {
    let found = require(conn, id)?;
    let mut events = Vec::new();
    let fold = fold(conn, id, &found, &mut |event| {
        events.push(event);
        ControlFlow::Continue(())
    })?;
    // Nothing stops it.
    let fold = fold.ok_or_else(|| LoadError::NotFound(id.clone()))?;
    Ok(Log { events, fold })
}

/// Folds a whole session that was found, and keeps no event.
pub(super) fn fold_found(conn: &Connection, id: &SessionId, found: &Found) -> Result<Fold, LoadError> {
    fold(conn, id, found, &mut |_| ControlFlow::Continue(()))?.ok_or_else(|| LoadError::NotFound(id.clone()))
}

/// Folds a whole session that was found, and hands each event on; `None` if that was stopped.
pub(super) fn fold(conn: &Connection, id: &SessionId, found: &Found, see: &mut dyn FnMut(Event) -> ControlFlow<()>) -> Result<Option<Fold>, LoadError> {
    let mut fold = Fold::new(found.header.clone());
    let seen = each_event(conn, id, found.sid, 0, usize::MAX, |event| {
        fold.apply_event(&event).map_err(|source| LoadError::Fold { session: id.clone(), source })?;
        Ok(see(event))
    })?;
    if seen.is_break() {
        return Ok(None);
    }
    for record in inbox(conn, id, found.sid, Wanted::All(usize::MAX))? {
        fold.apply_message(record);
    }
    for tombstone in held_taken(conn, id, found.sid)? {
        fold.apply_taken(&tombstone);
    }
    let next = next_order(conn, found.sid)?;
    let held: i64 = conn.prepare_cached("SELECT count(*) FROM inbox WHERE sid = ?1")?.query_row([found.sid], |row| row.get(0))?;
    if unsigned(held) != next {
        return Err(corrupt(id, "inbox", DecodeError::Misplaced(format!("{held} of {next} messages are there"))));
    }
    fold.set_next_order(next);
    Ok(Some(fold))
}

/// Returns the id of a session by its number.
pub(super) fn id_of(conn: &Connection, sid: i64) -> rusqlite::Result<Option<SessionId>> {
    let id: Option<String> = conn.prepare_cached("SELECT id FROM session WHERE sid = ?1")?.query_row([sid], |row| name(row, 0)).optional()?;
    Ok(id.and_then(|id| SessionId::new(id).ok()))
}
