//! Whole sessions in a batch: how one comes in, is let go, and goes.

use rusqlite::{Connection, OptionalExtension, params, types::ValueRef};

use super::{
    error::Stop,
    kept::known,
    log::{self, Found, bytes, crc_of, kind_column, signed, unsigned},
    summary,
    tally::{self, id_hash, sid_hash},
    write::{Batch, creation_hash, text},
};
use crate::{
    codec::{decode_header, decode_message, encode_tombstone, message_crc},
    header::Header,
    id::SessionId,
    listing::Summary,
    message::{BodyHash, MessageKind, Tombstone},
    store::{Done, Import, InboxLine, LoadError, Refused, Release, Remove, StoreError, import::Checked},
};

/// Tells whether there was such a session and it was removed.
pub(super) fn is_removed(conn: &Connection, id: &SessionId) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM removed WHERE id = ?1")?.exists([id.as_str()])
}

/// Tells whether sessions other than itself name a session as their parent.
fn has_children(conn: &Connection, id: &SessionId) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM session WHERE parent_id = ?1 AND id != ?1 LIMIT 1")?.exists([id.as_str()])
}

/// Tells whether a session is, `held` aside, what an import would bring.
fn is_import(conn: &Connection, found: &Found, op: &Import) -> Result<bool, Stop> {
    if *found.header != **op.header() {
        return Ok(false);
    }
    let mut query = conn.prepare_cached("SELECT body, crc FROM event WHERE sid = ?1 ORDER BY seq")?;
    let mut rows = query.query([found.sid])?;
    let mut theirs = op.bytes().events.iter();
    while let Some(row) = rows.next()? {
        match theirs.next() {
            Some(encoded) if encoded.body == bytes(row, 0)? && crc_of(row, 1)? == Some(encoded.crc) => {}
            _ => return Ok(false),
        }
    }
    let mut query = conn.prepare_cached("SELECT ord, state, body, message_id, hash, kind, wake FROM inbox WHERE sid = ?1 ORDER BY ord")?;
    let mut rows = query.query([found.sid])?;
    let mut lines = op.inbox().iter().zip(&op.bytes().messages);
    while let Some(row) = rows.next()? {
        let Some((line, body)) = lines.next() else { return Ok(false) };
        let waits = row.get::<_, i64>(1)? == 0;
        let same = unsigned(row.get(0)?) == line.order()
            && match line {
                InboxLine::Waiting(_) => waits && bytes(row, 2)? == body,
                InboxLine::Taken(tombstone) => {
                    !waits
                        && bytes(row, 3)? == tombstone.id.as_str().as_bytes()
                        && bytes(row, 4)? == tombstone.hash.0
                        && row.get::<_, i64>(5)? == kind_column(tombstone.kind)
                        && (row.get::<_, i64>(6)? != 0) == tombstone.wake
                }
            };
        if !same {
            return Ok(false);
        }
    }
    Ok(theirs.next().is_none() && lines.next().is_none())
}

impl Batch<'_> {
    pub(super) fn import(&mut self, op: &Import) -> Result<Done, Stop> {
        let Checked { head, verdict, inbox, seed } = op.check()?;
        let (header, encoded) = (op.header(), &op.bytes().header);
        let id = &header.id;
        let replaced = self.replaced(header)?;
        if replaced.is_none()
            && let Some(found) = log::find(self.conn, id)?
        {
            return if is_import(self.conn, &found, op)? { Ok(Done::Imported { existing: true }) } else { Err(Refused::Exists(id.clone()).into()) };
        }
        if is_removed(self.conn, id)? {
            return Err(Refused::Removed(id.clone()).into());
        }
        self.take_alias(header.parent.as_ref(), id, &verdict)?;
        // A refusal from here on would leave what was written.
        let was_there = replaced.is_some();
        if let Some((sid, parent)) = replaced {
            self.erase(sid)?;
            self.memory.sessions.remove(id);
            self.forget_orphan(parent.as_deref())?;
        }
        let (parent_here, siblings) = self.neighbours(header)?;
        // A mark behind the hash: which message it was created with is not known.
        let mut creation = creation_hash(op.events().get(..seed).unwrap_or_default(), None);
        creation.push(1);
        let found = self.insert_session(header, encoded, &creation)?;
        self.count_orphans(header, parent_here, siblings)?;
        self.insert_events(found.sid, op.events(), &op.bytes().events)?;
        for (line, body) in inbox.iter().zip(&op.bytes().messages) {
            self.insert_line(id, found.sid, line, body)?;
        }
        self.enter_session(id, found, Summary { head, verdict })?;
        if was_there {
            // What was there may have been counted or not.
            self.memory.tally = tally::rebuild(self.conn)?;
        }
        Ok(Done::Imported { existing: false })
    }

    /// Finds the quarantined session that an import is to take the place of, if there is one, with the parent that its row names. Nobody holds a quarantined session. Its parent is the
    /// import's by its header or by its row, one of which may be what is damaged.
    fn replaced(&self, header: &Header) -> Result<Option<(i64, Option<String>)>, Stop> {
        let id = &header.id;
        if summary::quarantined(self.conn, id)?.is_none() {
            return Ok(None);
        }
        let row = "SELECT sid, parent_id, header, crc FROM session WHERE id = ?1";
        let (sid, by_row, by_header) = self.conn.prepare_cached(row)?.query_row([id.as_str()], |row| {
            let by_row = match row.get_ref(1)? {
                ValueRef::Text(text) => String::from_utf8(text.to_vec()).ok(),
                _ => None,
            };
            let written = decode_header(id, bytes(row, 2)?, crc_of(row, 3)?.unwrap_or_default());
            Ok((row.get(0)?, by_row, written.is_ok_and(|written| written.parent == header.parent)))
        })?;
        if !by_header && by_row.as_deref() != header.parent.as_ref().map(SessionId::as_str) {
            return Err(Refused::Exists(id.clone()).into());
        }
        Ok(Some((sid, by_row)))
    }

    /// Tells whether the parent that a header names is here, and whether a sibling is.
    fn neighbours(&self, header: &Header) -> rusqlite::Result<(bool, bool)> {
        let Some(parent) = &header.parent else { return Ok((true, false)) };
        let here = self.conn.prepare_cached("SELECT 1 FROM session WHERE id = ?1")?.exists([parent.as_str()])?;
        let siblings = self.conn.prepare_cached("SELECT 1 FROM session WHERE parent_id = ?1 LIMIT 1")?.exists([parent.as_str()])?;
        Ok((here, siblings))
    }

    fn insert_line(&mut self, id: &SessionId, sid: i64, line: &InboxLine, body: &[u8]) -> Result<(), Stop> {
        let (hash, kind, wake, held, state, body, crc): (BodyHash, MessageKind, bool, bool, i64, Option<&str>, u32) = match line {
            InboxLine::Waiting(record) => {
                let message = &record.message;
                (message.hash(), message.kind, message.wake, record.held, 0, Some(text(body)?), message_crc(id, record.order, record.held, body))
            }
            InboxLine::Taken(tombstone) => {
                let crc = encode_tombstone(id, tombstone)?.crc;
                (tombstone.hash, tombstone.kind, tombstone.wake, tombstone.held, 1, None, crc)
            }
        };
        self.conn
            .prepare_cached(
                "INSERT INTO inbox(sid, ord, message_id, hash, kind, wake, held, state, body, crc) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute(params![sid, signed(line.order()), line.message().as_str(), hash.0, kind_column(kind), wake, held, state, body, crc])?;
        self.wrote_inbox_row();
        Ok(())
    }

    pub(super) fn release(&mut self, op: &Release) -> Result<Done, Stop> {
        let id = &op.session;
        let known = known(self.conn, &mut self.memory.sessions, id)?;
        if known.head.held == 0 {
            return Ok(Done::Released { records: 0 });
        }
        let (sid, mut head) = (known.found.sid, known.head.clone());
        let mut released = Vec::new();
        let mut query = self.conn.prepare_cached("SELECT ord, state, body, crc FROM inbox WHERE sid = ?1 AND held != 0 AND state = 0")?;
        let mut rows = query.query([sid])?;
        while let Some(row) = rows.next()? {
            let (order, body) = (unsigned(row.get(0)?), bytes(row, 2)?);
            let crc = crc_of(row, 3)?.unwrap_or_default();
            decode_message(id, order, true, body, crc)
                .map_err(|error| Refused::Corrupt { session: id.clone(), reason: format!("message {order}: {error}") })?;
            released.push((order, message_crc(id, order, false, body)));
        }
        for tombstone in log::held_taken(self.conn, id, sid)? {
            let released_one = Tombstone { held: false, ..tombstone };
            released.push((released_one.order, encode_tombstone(id, &released_one)?.crc));
        }
        let mut update = self.conn.prepare_cached("UPDATE inbox SET held = 0, crc = ?3 WHERE sid = ?1 AND ord = ?2")?;
        for (order, crc) in &released {
            update.execute(params![sid, signed(*order), crc])?;
        }
        head.release();
        self.moved(id, head)?;
        Ok(Done::Released { records: released.len() as u64 })
    }

    pub(super) fn remove(&mut self, op: &Remove) -> Result<Done, Stop> {
        let id = &op.session;
        let row: Option<(i64, Option<String>)> = self
            .conn
            .prepare_cached("SELECT sid, parent_id FROM session WHERE id = ?1")?
            .query_row([id.as_str()], |row| Ok((row.get(0)?, log::maybe_name(row, 1)?)))
            .optional()?;
        let Some((sid, parent)) = row else {
            return if is_removed(self.conn, id)? { Ok(Done::Removed) } else { Err(Refused::NotFound(id.clone()).into()) };
        };
        let holder: Option<String> =
            self.conn.prepare_cached("SELECT owner FROM lease WHERE sid = ?1")?.query_row([sid], |row| log::name(row, 0)).optional()?;
        if let Some(holder) = holder
            && self.node.liveness().alive(self.conn, &holder)?
        {
            let holder = holder.parse().map_err(|error: crate::id::IdError| StoreError::Damaged(error.to_string()))?;
            return Err(Refused::Held(holder).into());
        }
        if has_children(self.conn, id)? {
            return Err(Refused::HasChildren(id.clone()).into());
        }
        if !op.discard {
            let outstanding = match log::require(self.conn, id).and_then(|found| log::fold_found(self.conn, id, &found)) {
                Ok(fold) => fold.head().outstanding(),
                Err(LoadError::Store(error)) => return Err(error.into()),
                // What it would still have to do cannot be told.
                Err(_) => return Err(Refused::Pending(0).into()),
            };
            if outstanding > 0 {
                return Err(Refused::Pending(outstanding).into());
            }
        }
        let tallied = match known(self.conn, &mut self.memory.sessions, id) {
            Ok(known) => Some(known.tallied),
            Err(Stop::Refused(_)) => None,
            Err(error @ Stop::Failed(_)) => return Err(error),
        };
        self.delete(id, sid)?;
        self.memory.sessions.remove(id);
        for aliases in self.memory.aliases.values_mut() {
            aliases.retain(|_, child| child != id);
        }
        match tallied {
            Some(tallied) => {
                if tallied {
                    self.memory.tally.work.remove(sid_hash(sid));
                }
                self.forget_orphan(parent.as_deref().filter(|parent| *parent != id.as_str()))?;
            }
            // Neither its row nor its log tells whether it was counted.
            None => self.memory.tally = tally::rebuild(self.conn)?,
        }
        self.changed = true;
        Ok(Done::Removed)
    }

    fn delete(&self, id: &SessionId, sid: i64) -> rusqlite::Result<()> {
        self.conn.prepare_cached("INSERT INTO removed(id) VALUES(?1)")?.execute([id.as_str()])?;
        self.erase(sid)
    }

    /// Deletes the rows of a session, and leaves nothing that keeps its id.
    fn erase(&self, sid: i64) -> rusqlite::Result<()> {
        for table in ["event", "summary", "lease"] {
            self.conn.execute(&format!("DELETE FROM {table} WHERE sid = ?1"), [sid])?;
        }
        // The newest row of all inboxes keeps its number, else the next message would get it and whoever has seen it would miss that message.
        self.conn.execute("DELETE FROM inbox WHERE sid IN (0, ?1) AND id != (SELECT max(id) FROM inbox)", [sid])?;
        self.conn.execute(
            "UPDATE inbox SET sid = 0, ord = id, message_id = CAST(id AS TEXT), hash = x'', kind = 0, wake = 0, held = 0, state = 1, body = NULL, crc = 0
             WHERE sid = ?1",
            [sid],
        )?;
        self.conn.execute("DELETE FROM session WHERE sid = ?1", [sid])?;
        Ok(())
    }

    /// Takes a parent off the set of those that are named but not here, if nobody names it any more.
    fn forget_orphan(&mut self, parent: Option<&str>) -> rusqlite::Result<()> {
        let Some(parent) = parent else { return Ok(()) };
        let needed = self.conn.prepare_cached("SELECT 1 FROM session WHERE id = ?1 OR parent_id = ?1 LIMIT 1")?.exists([parent])?;
        if !needed {
            self.conn.prepare_cached("DELETE FROM orphan WHERE parent_id = ?1")?.execute([parent])?;
            self.memory.tally.orphans.remove(id_hash(parent));
        }
        Ok(())
    }
}
