//! What the writer remembers of sessions between batches.
//!
//! True while no other connection has written, which SQLite's `data_version` tells; forgotten after any batch that failed.

use std::collections::{HashMap, hash_map::Entry};

use rusqlite::Connection;

use super::{
    error::Stop,
    log::{self, Found},
    summary,
    tally::{self, Tally},
};
use crate::{
    codec::{Encoded, encode_event},
    event::Event,
    head::Head,
    id::{Seq, SessionId},
    store::{Fence, Refused, StoreError, check_lived},
};

/// How many heads are kept between batches.
const KEPT_HEADS: usize = 8_192;

/// What the writer knows of a session.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) found: Found,
    pub(super) head: Head,
    /// What the tally counts.
    pub(super) tallied: bool,
    /// Whether the head is newer than its row.
    pub(super) dirty: bool,
}

/// What the writer knows between batches. True while no other connection has written.
#[derive(Debug, Default)]
pub(super) struct Memory {
    version: Option<i64>,
    pub(super) sessions: HashMap<SessionId, Known>,
    /// The aliases that are taken, by parent.
    pub(super) aliases: HashMap<SessionId, HashMap<String, SessionId>>,
    pub(super) tally: Tally,
}

impl Memory {
    /// Forgets everything: after a batch that was rolled back, nothing is known to be so.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Makes what is known true again. Called first in a write transaction.
    pub(super) fn refresh(&mut self, conn: &Connection) -> Result<(), StoreError> {
        let version: i64 = conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if self.version != Some(version) {
            self.forget();
            self.tally = if let Some(tally) = tally::read(conn)? {
                tally
            } else {
                tracing::warn!("the derived rows of the store are damaged or stale; they are derived again");
                let tally = tally::rebuild(conn)?;
                tally::write(conn, &tally)?;
                tally
            };
            self.version = Some(version);
        }
        if self.sessions.len() > KEPT_HEADS {
            self.sessions.clear();
        }
        if self.aliases.values().map(HashMap::len).sum::<usize>() > KEPT_HEADS {
            self.aliases.clear();
        }
        Ok(())
    }
}

/// Returns what is known of a session, read once. A derived row that is no good is written again.
pub(super) fn known<'m>(conn: &Connection, sessions: &'m mut HashMap<SessionId, Known>, id: &SessionId) -> Result<&'m mut Known, Stop> {
    match sessions.entry(id.clone()) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(place) => {
            let found = log::require(conn, id)?;
            let summary = if let Some(summary) = summary::read(conn, id, &found)? {
                summary
            } else {
                let summary = summary::derive(conn, id, &found)?;
                summary::put(conn, id, &found, &summary)?;
                summary
            };
            let tallied = summary.head.wants_holder();
            Ok(place.insert(Known { found, head: summary.head, tallied, dirty: false }))
        }
    }
}

/// Returns what is known of a session if the epoch may write.
pub(super) fn fenced<'m>(conn: &Connection, sessions: &'m mut HashMap<SessionId, Known>, fence: &Fence) -> Result<&'m mut Known, Stop> {
    let known = known(conn, sessions, &fence.session)?;
    if known.head.epoch == fence.epoch && known.head.live { Ok(known) } else { Err(Refused::Fenced { stored: known.head.epoch }.into()) }
}

/// Returns the head after events, and the events' bytes.
pub(super) fn follow(known: &Known, id: &SessionId, events: &[Event]) -> Result<(Head, Vec<Encoded>), Refused> {
    if let Some(first) = events.first()
        && first.seq != known.head.next_seq
    {
        return Err(Refused::Moved { stored: known.head.next_seq });
    }
    follow_head(&known.head, known.found.header.seed_length, id, events)
}

pub(super) fn follow_head(head: &Head, seed_length: Seq, id: &SessionId, events: &[Event]) -> Result<(Head, Vec<Encoded>), Refused> {
    let mut head = head.clone();
    let mut encoded = Vec::with_capacity(events.len());
    for event in events {
        encoded.push(encode_event(id, event)?);
        check_lived(event)?;
        head.apply(event, seed_length)?;
    }
    Ok((head, encoded))
}
