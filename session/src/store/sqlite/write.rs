//! The operations of a batch, within its transaction.
//!
//! Every operation is checked whole before its first row is written, so that a refused one leaves nothing and needs no savepoint; any error
//! of SQLite itself ends the batch. A head is written once per batch, however many operations moved it.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use super::{
    claim::{pending, take_next},
    error::Stop,
    kept::{Known, Memory, fenced, follow, known},
    log::{self, Found, kind_column, signed, unsigned},
    node::Node,
    summary::{self, Summary},
    tally::{self, id_hash, sid_hash},
};
use crate::{
    codec::{Encoded, encode_event, encode_header, encode_message, message_crc},
    event::Event,
    fold::Fold,
    head::Head,
    header::Header,
    id::{MessageId, Order, SessionId},
    limits::MAX_INTEGER,
    listing::{Verdict, verdict},
    message::{BodyHash, InboxRecord, Message, MessageKind},
    store::{Accept, Append, Claim, ClaimKind, Close, Create, Done, Op, Open, Refused, StoreError, check_begun, check_ended},
};

/// A batch under way.
pub(super) struct Batch<'a> {
    conn: &'a Connection,
    node: &'a Node,
    memory: &'a mut Memory,
    moved: Vec<SessionId>,
    /// Whether anything was written.
    pub(super) changed: bool,
    /// The first and the last inbox row that this batch wrote.
    pub(super) rows: Option<(i64, i64)>,
}

impl<'a> Batch<'a> {
    /// Begins, in an open write transaction.
    pub(super) fn new(conn: &'a Connection, node: &'a Node, memory: &'a mut Memory) -> Self {
        Self { conn, node, memory, moved: Vec::new(), changed: false, rows: None }
    }

    /// Does one operation, or refuses it.
    pub(super) fn apply(&mut self, op: &Op) -> Result<Result<Done, Refused>, StoreError> {
        let done = match op {
            Op::Create(op) => self.create(op),
            Op::Accept(op) => self.accept(op),
            Op::Open(op) => self.open(op),
            Op::Append(op) => self.append(op),
            Op::Claim(op) => self.claim(op),
            Op::Close(op) => self.close(op),
        };
        match done {
            Ok(done) => Ok(Ok(done)),
            Err(Stop::Refused(refused)) => Ok(Err(refused)),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Writes the heads that moved, and the tally.
    pub(super) fn finish(&mut self) -> Result<(), StoreError> {
        if !self.changed {
            return Ok(());
        }
        for id in &self.moved {
            let Some(known) = self.memory.sessions.get_mut(id) else { continue };
            summary::put_head(self.conn, id, known.found.sid, &known.head)?;
            let work = known.head.wants_holder();
            match (known.tallied, work) {
                (false, true) => self.memory.tally.work.add(sid_hash(known.found.sid)),
                (true, false) => self.memory.tally.work.remove(sid_hash(known.found.sid)),
                (true, true) | (false, false) => {}
            }
            known.tallied = work;
            known.dirty = false;
        }
        tally::write(self.conn, &self.memory.tally)?;
        Ok(())
    }

    fn create(&mut self, op: &Create) -> Result<Done, Stop> {
        let id = &op.session.id;
        let events = op.events.iter().map(|event| encode_event(id, event)).collect::<Result<Vec<_>, _>>()?;
        let creation = creation_hash(op);
        if let Some(found) = log::find(self.conn, id)? {
            let stored: Vec<u8> = self.conn.prepare_cached("SELECT creation FROM session WHERE sid = ?1")?.query_row([found.sid], |row| row.get(0))?;
            return if stored == creation && op.session.matches(&found.header) {
                Ok(Done::Created { header: found.header, existing: true })
            } else {
                Err(Refused::Exists(id.clone()).into())
            };
        }
        let message = op.message.as_ref().map(|message| encode_message(message).map(|body| (message, body))).transpose()?;
        let mut parent_here = true;
        let mut earliest = op.time;
        let mut siblings = false;
        if let Some(parent) = &op.session.parent {
            let time: Option<i64> = self.created_at("SELECT created_at FROM session WHERE id = ?1", parent)?;
            let youngest = self.created_at("SELECT created_at FROM session WHERE parent_id = ?1 ORDER BY created_at DESC, id DESC LIMIT 1", parent)?;
            parent_here = time.is_some();
            siblings = youngest.is_some();
            earliest = earliest.max(time.map_or(0, unsigned)).max(youngest.map_or(0, unsigned));
        }
        let header = Arc::new(op.session.at(earliest.min(MAX_INTEGER)));
        let encoded = encode_header(&header)?;
        let mut fold = Fold::new(header.clone());
        for event in &*op.events {
            fold.apply_event(event)?;
        }
        let verdict = verdict(&fold);
        self.take_alias(header.parent.as_ref(), id, &verdict)?;
        self.conn.prepare_cached("INSERT INTO session(id, parent_id, created_at, header, crc, creation) VALUES(?1, ?2, ?3, ?4, ?5, ?6)")?.execute(params![
            id.as_str(),
            header.parent.as_ref().map(SessionId::as_str),
            signed(header.created_at),
            text(&encoded.body)?,
            encoded.crc,
            creation
        ])?;
        let found = Found { sid: self.conn.last_insert_rowid(), header: header.clone(), crc: encoded.crc };
        self.count_orphans(&header, parent_here, siblings)?;
        self.insert_events(found.sid, &op.events, &events)?;
        let mut head = fold.head().clone();
        if let Some((message, body)) = message {
            self.insert_message(id, found.sid, head.next_order, message, &body)?;
            head.accept(message, false);
        }
        let summary = Summary { head, verdict };
        summary::put(self.conn, id, &found, &summary)?;
        let work = summary.head.wants_holder();
        if work {
            self.memory.tally.work.add(sid_hash(found.sid));
        }
        self.memory.sessions.insert(id.clone(), Known { found, head: summary.head, tallied: work, dirty: false });
        self.changed = true;
        Ok(Done::Created { header, existing: false })
    }

    fn created_at(&self, sql: &str, parent: &SessionId) -> rusqlite::Result<Option<i64>> {
        self.conn.prepare_cached(sql)?.query_row([parent.as_str()], |row| row.get(0)).optional()
    }

    /// Refuses an alias that a sibling has, and remembers it otherwise.
    fn take_alias(&mut self, parent: Option<&SessionId>, id: &SessionId, verdict: &Verdict) -> Result<(), Stop> {
        let (Some(parent), Verdict::Child { alias: Some(alias), .. }) = (parent, verdict) else { return Ok(()) };
        if !self.memory.aliases.contains_key(parent) {
            let aliases = super::family::aliases(self.conn, parent)?;
            self.memory.aliases.insert(parent.clone(), aliases);
        }
        if let Some(aliases) = self.memory.aliases.get_mut(parent) {
            if aliases.contains_key(alias) {
                return Err(Refused::AliasTaken(alias.clone()).into());
            }
            aliases.insert(alias.clone(), id.clone());
        }
        Ok(())
    }

    /// Keeps the set of parents that are named but not here.
    fn count_orphans(&mut self, header: &Header, parent_here: bool, siblings: bool) -> rusqlite::Result<()> {
        if let Some(parent) = header.parent.as_ref().filter(|parent| !parent_here && !siblings && **parent != header.id) {
            self.conn.prepare_cached("INSERT OR IGNORE INTO orphan(parent_id) VALUES(?1)")?.execute([parent.as_str()])?;
            self.memory.tally.orphans.add(id_hash(parent.as_str()));
        }
        // It may itself be a parent that was missed.
        let missed = self.conn.prepare_cached("SELECT 1 FROM session WHERE parent_id = ?1 AND id != ?1 LIMIT 1")?.exists([header.id.as_str()])?;
        if missed {
            self.conn.prepare_cached("DELETE FROM orphan WHERE parent_id = ?1")?.execute([header.id.as_str()])?;
            self.memory.tally.orphans.remove(id_hash(header.id.as_str()));
        }
        Ok(())
    }

    fn accept(&mut self, op: &Accept) -> Result<Done, Stop> {
        let known = known(self.conn, &mut self.memory.sessions, &op.session)?;
        let (sid, head, message) = (known.found.sid, &known.head, &op.message);
        let (pending, limit) = match message.kind {
            MessageKind::Turn => (head.pending_turns, op.inbox_limit),
            MessageKind::Note => (head.pending_wakes + head.pending_quiet, op.note_limit),
            MessageKind::Control => (head.pending_controls, op.inbox_limit),
        };
        let order = head.next_order;
        let refusal = if pending >= limit {
            Refused::Busy { pending, limit }
        } else {
            match encode_message(message) {
                Ok(body) => {
                    if self.insert_message(&op.session, sid, order, message, &body)? {
                        let mut head = self::known(self.conn, &mut self.memory.sessions, &op.session)?.head.clone();
                        head.accept(message, false);
                        self.moved(&op.session, head)?;
                        return Ok(Done::Accepted { order, duplicate: false });
                    }
                    Refused::MessageIdConflict(message.id.clone())
                }
                Err(error) => error.into(),
            }
        };
        // A message that was accepted before stays accepted, whatever speaks against a new one.
        match self.earlier(&op.session, sid, &message.id)? {
            Some((order, hash)) if hash == message.hash().0 => Ok(Done::Accepted { order, duplicate: true }),
            Some(_) => Err(Refused::MessageIdConflict(message.id.clone()).into()),
            None => Err(refusal.into()),
        }
    }

    fn earlier(&self, id: &SessionId, sid: i64, message: &MessageId) -> Result<Option<(Order, Vec<u8>)>, Stop> {
        let row: Option<(i64, Vec<u8>, i64, i64)> = self
            .conn
            .prepare_cached("SELECT ord, hash, state, crc FROM inbox WHERE sid = ?1 AND message_id = ?2")?
            .query_row(params![sid, message.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
            .optional()?;
        let Some((order, hash, state, crc)) = row else { return Ok(None) };
        let order = unsigned(order);
        if state == 1 && crc != i64::from(tombstone_crc(id, order, message.as_str().as_bytes(), &hash)) {
            return Err(Refused::Corrupt { session: id.clone(), reason: format!("message {order}: checksum mismatch") }.into());
        }
        Ok(Some((order, hash)))
    }

    /// Writes a message unless its id is known; tells whether it did.
    fn insert_message(&mut self, id: &SessionId, sid: i64, order: Order, message: &Message, body: &[u8]) -> Result<bool, Stop> {
        let BodyHash(hash) = message.hash();
        let crc = message_crc(id, order, false, body);
        let written = self
            .conn
            .prepare_cached(
                "INSERT INTO inbox(sid, ord, message_id, hash, kind, wake, held, state, body, crc) VALUES(?1, ?2, ?3, ?4, ?5, ?6, 0, 0, ?7, ?8)
                 ON CONFLICT(sid, message_id) DO NOTHING",
            )?
            .execute(params![sid, signed(order), message.id.as_str(), hash, kind_column(message.kind), message.wake, text(body)?, crc])?;
        if written == 1 {
            let row = self.conn.last_insert_rowid();
            self.rows = Some(self.rows.map_or((row, row), |(first, _)| (first, row)));
        }
        Ok(written == 1)
    }

    fn insert_events(&self, sid: i64, events: &[Event], encoded: &[Encoded]) -> Result<(), Stop> {
        let mut insert = self.conn.prepare_cached("INSERT INTO event(sid, seq, body, crc) VALUES(?1, ?2, ?3, ?4)")?;
        for (event, encoded) in events.iter().zip(encoded) {
            insert.execute(params![sid, signed(event.seq), text(&encoded.body)?, encoded.crc])?;
        }
        Ok(())
    }

    fn open(&mut self, op: &Open) -> Result<Done, Stop> {
        let known = known(self.conn, &mut self.memory.sessions, &op.session)?;
        let sid = known.found.sid;
        let holder: Option<String> = self.conn.prepare_cached("SELECT owner FROM lease WHERE sid = ?1")?.query_row([sid], |row| row.get(0)).optional()?;
        let dead = match holder.filter(|holder| holder != self.node.owner().as_str()) {
            Some(holder) if self.node.liveness().alive(self.conn, &holder)? => {
                let holder = holder.parse().map_err(|error: crate::id::IdError| StoreError::Damaged(error.to_string()))?;
                return Err(Refused::Held(holder).into());
            }
            other => other.is_some(),
        };
        if known.head.epoch + 1 != op.epoch {
            return Err(Refused::Fenced { stored: known.head.epoch }.into());
        }
        let (mut head, encoded) = follow(known, &op.session, &op.events)?;
        check_begun(&head, op.epoch)?;
        let claim = match op.claim {
            Some(time) => take_next(self.conn, &op.session, known, &head, ClaimKind::Turn, time)?,
            None => None,
        };
        self.insert_events(sid, &op.events, &encoded)?;
        let claimed = match claim {
            Some(claim) => {
                head = claim.head;
                self.insert_events(sid, &claim.claimed.events, &claim.encoded)?;
                self.leave(&op.session, sid, &claim.leaving)?;
                Some(claim.claimed)
            }
            None => None,
        };
        self.conn.prepare_cached("INSERT OR REPLACE INTO lease(sid, owner, epoch) VALUES(?1, ?2, ?3)")?.execute(params![
            sid,
            self.node.owner().as_str(),
            signed(op.epoch)
        ])?;
        if dead {
            self.node.liveness().bury(self.conn)?;
        }
        self.moved(&op.session, head)?;
        Ok(Done::Opened { claimed })
    }

    fn append(&mut self, op: &Append) -> Result<Done, Stop> {
        let known = fenced(self.conn, &mut self.memory.sessions, &op.fence)?;
        let sid = known.found.sid;
        let leaving = pending(self.conn, &op.fence.session, sid, &op.take)?;
        if op.events.is_empty() && !leaving.is_empty() {
            return Err(Refused::Invalid { code: "EVENT_INVALID", message: "a message leaves the inbox with the events that name it".into() }.into());
        }
        let (mut head, encoded) = follow(known, &op.fence.session, &op.events)?;
        self.insert_events(sid, &op.events, &encoded)?;
        for record in &leaving {
            head.take(&record.message, record.held);
        }
        self.leave(&op.fence.session, sid, &leaving)?;
        self.moved(&op.fence.session, head)?;
        Ok(Done::Appended)
    }

    fn claim(&mut self, op: &Claim) -> Result<Done, Stop> {
        let id = &op.fence.session;
        let known = fenced(self.conn, &mut self.memory.sessions, &op.fence)?;
        if op.first_seq != known.head.next_seq {
            return Err(Refused::Moved { stored: known.head.next_seq }.into());
        }
        let sid = known.found.sid;
        let Some(claim) = take_next(self.conn, id, known, &known.head, op.kind, op.time)? else { return Ok(Done::Claimed(None)) };
        self.insert_events(sid, &claim.claimed.events, &claim.encoded)?;
        self.leave(id, sid, &claim.leaving)?;
        self.moved(id, claim.head)?;
        Ok(Done::Claimed(Some(claim.claimed)))
    }

    fn close(&mut self, op: &Close) -> Result<Done, Stop> {
        let known = fenced(self.conn, &mut self.memory.sessions, &op.fence)?;
        if op.unless_pending && known.head.has_work() {
            return Err(Refused::Pending(known.head.pending()).into());
        }
        let sid = known.found.sid;
        let (head, encoded) = follow(known, &op.fence.session, &op.events)?;
        check_ended(&head)?;
        self.insert_events(sid, &op.events, &encoded)?;
        self.conn.prepare_cached("DELETE FROM lease WHERE sid = ?1")?.execute([sid])?;
        self.moved(&op.fence.session, head)?;
        Ok(Done::Closed)
    }

    /// Takes messages out of the inbox; what remains of each tells a later copy of it.
    fn leave(&self, id: &SessionId, sid: i64, records: &[InboxRecord]) -> Result<(), Stop> {
        let mut update = self.conn.prepare_cached("UPDATE inbox SET state = 1, body = NULL, crc = ?3 WHERE sid = ?1 AND state = 0 AND ord = ?2")?;
        for record in records {
            let crc = tombstone_crc(id, record.order, record.message.id.as_str().as_bytes(), &record.message.hash().0);
            update.execute(params![sid, signed(record.order), crc])?;
        }
        Ok(())
    }

    fn moved(&mut self, id: &SessionId, head: Head) -> Result<(), Stop> {
        let known = known(self.conn, &mut self.memory.sessions, id)?;
        known.head = head;
        if !known.dirty {
            known.dirty = true;
            self.moved.push(id.clone());
        }
        self.changed = true;
        Ok(())
    }
}

/// The checksum of what remains of a message that has left the inbox.
pub(super) fn tombstone_crc(id: &SessionId, order: Order, message: &[u8], hash: &[u8]) -> u32 {
    let mut crc = crc32c::crc32c_append(crc32c::crc32c(b"g\0"), id.as_str().as_bytes());
    for part in [b"\0".as_slice(), &order.to_be_bytes(), message, b"\0", hash] {
        crc = crc32c::crc32c_append(crc, part);
    }
    crc
}

/// Hashes what a session is created with, times aside.
fn creation_hash(op: &Create) -> Vec<u8> {
    let mut hasher = Sha256::new();
    for event in &*op.events {
        hasher.update(event.body.type_name());
        hasher.update([0]);
        let data = match &event.body {
            crate::event::Body::Opaque(opaque) => serde_json::to_vec(&opaque.data),
            body => serde_json::to_vec(body),
        };
        hasher.update(data.unwrap_or_default());
        hasher.update([0]);
    }
    if let Some(message) = &op.message {
        hasher.update([1]);
        hasher.update(message.id.as_str());
        hasher.update([0]);
        hasher.update(message.hash().0);
    }
    hasher.finalize().iter().take(16).copied().collect()
}

/// Our own JSON is UTF-8; the check keeps anything else from becoming a text column.
fn text(body: &[u8]) -> Result<&str, StoreError> {
    std::str::from_utf8(body).map_err(|error| StoreError::Io(Box::new(error)))
}
