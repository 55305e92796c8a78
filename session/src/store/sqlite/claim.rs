//! What a turn takes out of the inbox: decided and checked here, written by the batch.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    error::Stop,
    kept::{Known, follow_head},
    log::{self, Wanted, unsigned},
};
use crate::{
    codec::Encoded,
    departed::leaving,
    event::Event,
    head::Head,
    id::{Order, Seq, SessionId},
    message::{InboxRecord, MessageKind},
    store::{ClaimKind, Refused, check_taken},
    turns::{Claimed, join_notes, open_turn},
};

/// Reads messages that are to be taken; each must be pending.
pub(super) fn pending(conn: &Connection, id: &SessionId, sid: i64, orders: &[Order]) -> Result<Vec<InboxRecord>, Stop> {
    let mut records = Vec::with_capacity(orders.len());
    let mut seen = HashSet::new();
    for &order in orders {
        if !seen.insert(order) {
            continue;
        }
        let record = log::inbox(conn, id, sid, Wanted::At(order))?.pop();
        records.push(record.ok_or(Refused::NotPending(order))?);
    }
    Ok(records)
}

/// Refuses events that name other waiting messages than those that leave with them.
pub(super) fn check_named(conn: &Connection, sid: i64, seed_length: Seq, events: &[Event], take: &[Order]) -> Result<(), Stop> {
    let mut named = HashSet::new();
    for (ids, kind) in events.iter().map(|event| leaving(event, seed_length)) {
        for id in ids {
            let mut query = conn.prepare_cached("SELECT ord, kind FROM inbox WHERE sid = ?1 AND message_id = ?2 AND state = 0")?;
            let found: Option<(i64, i64)> = query.query_row(params![sid, id.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            named.extend(found.filter(|(_, found)| kind.is_none_or(|kind| log::kind_column(kind) == *found)).map(|(order, _)| unsigned(order)));
        }
    }
    Ok(check_taken(&named, take)?)
}

/// A claim that has been checked and not yet written.
pub(super) struct Prepared {
    /// The events and what they take.
    pub(super) claimed: Claimed,
    /// The messages that leave.
    pub(super) leaving: Vec<InboxRecord>,
    /// The head after it.
    pub(super) head: Head,
    /// The events' bytes.
    pub(super) encoded: Vec<Encoded>,
}

/// Decides what is taken next, on the inbox as it is in this transaction.
pub(super) fn take_next(conn: &Connection, id: &SessionId, known: &Known, head: &Head, kind: ClaimKind, time: u64) -> Result<Option<Prepared>, Stop> {
    let sid = known.found.sid;
    // A held record and everything behind it waits, and so does a message whose turn was not finished.
    let end = if head.held > 0 {
        let first: Option<i64> = conn.prepare_cached("SELECT min(ord) FROM inbox WHERE sid = ?1 AND held != 0")?.query_row([sid], |row| row.get(0))?;
        first.map_or(head.next_order, unsigned)
    } else {
        head.next_order
    };
    let waits = head.held > 0 && head.retry.is_some();
    if kind == ClaimKind::Turn && (head.open.is_some() || waits) {
        return Ok(None);
    }
    let notes = if head.pending_wakes + head.pending_quiet > 0 { log::inbox(conn, id, sid, Wanted::Every(MessageKind::Note, end))? } else { Vec::new() };
    let (claimed, turn) = match kind {
        ClaimKind::Turn => {
            let turn =
                if head.retry.is_none() && head.pending_turns > 0 { log::inbox(conn, id, sid, Wanted::First(MessageKind::Turn, end))?.pop() } else { None };
            (open_turn(head, time, turn.as_ref(), &notes), turn)
        }
        ClaimKind::Notes => (join_notes(head, time, &notes), None),
    };
    let Some(claimed) = claimed else { return Ok(None) };
    let Ok((mut head, encoded)) = follow_head(head, known.found.header.seed_length, id, &claimed.events) else { return Ok(None) };
    let leaving: Vec<InboxRecord> = turn.into_iter().chain(notes).collect();
    for record in &leaving {
        head.take(&record.message, record.held);
    }
    Ok(Some(Prepared { claimed, leaving, head, encoded }))
}
