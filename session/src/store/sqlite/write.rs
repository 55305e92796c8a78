//! The operations of a batch, within its transaction.
//!
//! Every operation is checked whole before its first row is written, so that a refused one leaves nothing and needs no savepoint; any error
//! of SQLite itself ends the batch. A head is written once per batch, however many operations moved it.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use super::{
    claim::{check_named, pending, take_next},
    error::Stop,
    kept::{Known, Memory, fenced, follow, known},
    log::{self, Found, kind_column, signed, unsigned},
    node::Node,
    summary,
    tally::{self, id_hash, sid_hash},
    transfer::is_removed,
};
use crate::{
    codec::{Encoded, encode_event, encode_header, encode_message, encode_tombstone, message_crc},
    event::Event,
    head::Head,
    header::Header,
    id::{MessageId, Order, SessionId},
    limits::MAX_INTEGER,
    listing::{Summary, Verdict, verdict},
    message::{BodyHash, InboxRecord, Message, MessageKind, Tombstone},
    store::{Accept, Append, Claim, ClaimKind, Close, Create, Done, Op, Open, Refused, StoreError, born, check_begun, check_ended},
};

/// A batch under way.
pub(super) struct Batch<'a> {
    pub(super) conn: &'a Connection,
    pub(super) node: &'a Node,
    pub(super) memory: &'a mut Memory,
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
            Op::Import(op) => self.import(op),
            Op::Release(op) => self.release(op),
            Op::Remove(op) => self.remove(op),
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
        if let Some(found) = log::find(self.conn, id)? {
            return if op.session.matches(&found.header) && self.was_created_by(op, found.sid)? {
                Ok(Done::Created { header: found.header, existing: true })
            } else {
                Err(Refused::Exists(id.clone()).into())
            };
        }
        if is_removed(self.conn, id)? {
            return Err(Refused::Removed(id.clone()).into());
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
        let fold = born(&header, &op.events)?;
        let verdict = verdict(&fold);
        self.take_alias(header.parent.as_ref(), id, &verdict)?;
        let found = self.insert_session(&header, &encoded, &creation_hash(&op.events, op.message.as_deref()))?;
        self.count_orphans(&header, parent_here, siblings)?;
        self.insert_events(found.sid, &op.events, &events)?;
        let mut head = fold.head().clone();
        if let Some((message, body)) = message {
            self.insert_message(id, found.sid, head.next_order, message, &body)?;
            head.accept(message, false);
        }
        self.enter_session(id, found, Summary { head, verdict })?;
        Ok(Done::Created { header, existing: false })
    }

    /// Writes what is derived of a session that has just come, and remembers it.
    pub(super) fn enter_session(&mut self, id: &SessionId, found: Found, summary: Summary) -> Result<(), Stop> {
        summary::put(self.conn, id, &found, &summary)?;
        let work = summary.head.wants_holder();
        if work {
            self.memory.tally.work.add(sid_hash(found.sid));
        }
        self.memory.sessions.insert(id.clone(), Known { found, head: summary.head, tallied: work, dirty: false });
        self.changed = true;
        Ok(())
    }

    /// Tells whether a session that is there was created with the same events and the same message.
    fn was_created_by(&self, op: &Create, sid: i64) -> Result<bool, Stop> {
        let stored: Vec<u8> = self.conn.prepare_cached("SELECT creation FROM session WHERE sid = ?1")?.query_row([sid], |row| row.get(0))?;
        let Some(imported) = stored.strip_suffix(&[1]).filter(|hash| hash.len() == CREATION_BYTES) else {
            return Ok(stored == creation_hash(&op.events, op.message.as_deref()));
        };
        if imported != creation_hash(&op.events, None) {
            return Ok(false);
        }
        // An import does not tell the message that it was created with from the first that was accepted later.
        let Some(message) = &op.message else { return Ok(true) };
        Ok(matches!(self.earlier(&op.session.id, sid, &message.id)?, Some((0, hash)) if hash == message.hash().0))
    }

    pub(super) fn insert_session(&self, header: &Arc<Header>, encoded: &Encoded, creation: &[u8]) -> Result<Found, Stop> {
        self.conn.prepare_cached("INSERT INTO session(id, parent_id, created_at, header, crc, creation) VALUES(?1, ?2, ?3, ?4, ?5, ?6)")?.execute(params![
            header.id.as_str(),
            header.parent.as_ref().map(SessionId::as_str),
            signed(header.created_at),
            text(&encoded.body)?,
            encoded.crc,
            creation
        ])?;
        Ok(Found { sid: self.conn.last_insert_rowid(), header: header.clone(), crc: encoded.crc })
    }

    fn created_at(&self, sql: &str, parent: &SessionId) -> rusqlite::Result<Option<i64>> {
        self.conn.prepare_cached(sql)?.query_row([parent.as_str()], |row| row.get(0)).optional()
    }

    /// Refuses an alias that a sibling has, and remembers it otherwise.
    pub(super) fn take_alias(&mut self, parent: Option<&SessionId>, id: &SessionId, verdict: &Verdict) -> Result<(), Stop> {
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
    pub(super) fn count_orphans(&mut self, header: &Header, parent_here: bool, siblings: bool) -> rusqlite::Result<()> {
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
        let mut query = self.conn.prepare_cached("SELECT ord, message_id, hash, kind, wake, held, crc, state FROM inbox WHERE sid = ?1 AND message_id = ?2")?;
        let mut rows = query.query(params![sid, message.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let order = unsigned(row.get(0)?);
        if row.get::<_, i64>(7)? == 1
            && let Err(error) = log::tombstone(id, row, [0, 1, 2, 3, 4, 5, 6])?
        {
            return Err(Refused::Corrupt { session: id.clone(), reason: format!("message {order}: {error}") }.into());
        }
        Ok(Some((order, row.get(2)?)))
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
            self.wrote_inbox_row();
        }
        Ok(written == 1)
    }

    /// Remembers the inbox row that was written last.
    pub(super) fn wrote_inbox_row(&mut self) {
        let row = self.conn.last_insert_rowid();
        self.rows = Some(self.rows.map_or((row, row), |(first, _)| (first, row)));
    }

    pub(super) fn insert_events(&self, sid: i64, events: &[Event], encoded: &[Encoded]) -> Result<(), Stop> {
        let mut insert = self.conn.prepare_cached("INSERT INTO event(sid, seq, body, crc) VALUES(?1, ?2, ?3, ?4)")?;
        for (event, encoded) in events.iter().zip(encoded) {
            insert.execute(params![sid, signed(event.seq), text(&encoded.body)?, encoded.crc])?;
        }
        Ok(())
    }

    fn open(&mut self, op: &Open) -> Result<Done, Stop> {
        let known = known(self.conn, &mut self.memory.sessions, &op.session)?;
        let (sid, seed_length) = (known.found.sid, known.found.header.seed_length);
        let holder: Option<String> =
            self.conn.prepare_cached("SELECT owner FROM lease WHERE sid = ?1")?.query_row([sid], |row| log::name(row, 0)).optional()?;
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
        check_named(self.conn, sid, seed_length, &op.events, &[])?;
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
        let (sid, seed_length) = (known.found.sid, known.found.header.seed_length);
        let leaving = pending(self.conn, &op.fence.session, sid, &op.take)?;
        if op.events.is_empty() && !leaving.is_empty() {
            return Err(Refused::Invalid { code: "EVENT_INVALID", message: "a message leaves the inbox with the events that name it".into() }.into());
        }
        let (mut head, encoded) = follow(known, &op.fence.session, &op.events)?;
        check_named(self.conn, sid, seed_length, &op.events, &op.take)?;
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
        let (sid, seed_length) = (known.found.sid, known.found.header.seed_length);
        let (head, encoded) = follow(known, &op.fence.session, &op.events)?;
        check_named(self.conn, sid, seed_length, &op.events, &[])?;
        check_ended(&head)?;
        self.insert_events(sid, &op.events, &encoded)?;
        self.conn.prepare_cached("DELETE FROM lease WHERE sid = ?1")?.execute([sid])?;
        self.moved(&op.fence.session, head)?;
        Ok(Done::Closed)
    }

    /// Takes messages out of the inbox; what remains of each tells a later copy of it.
    fn leave(&self, id: &SessionId, sid: i64, records: &[InboxRecord]) -> Result<(), Stop> {
        let mut update = self.conn.prepare_cached("UPDATE inbox SET state = 1, held = 0, body = NULL, crc = ?3 WHERE sid = ?1 AND state = 0 AND ord = ?2")?;
        for record in records {
            let crc = encode_tombstone(id, &Tombstone::of(record))?.crc;
            update.execute(params![sid, signed(record.order), crc])?;
        }
        Ok(())
    }

    pub(super) fn moved(&mut self, id: &SessionId, head: Head) -> Result<(), Stop> {
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

/// How long [`creation_hash`] is.
const CREATION_BYTES: usize = 16;

/// Hashes what a session is created with, times aside.
pub(super) fn creation_hash(events: &[Event], message: Option<&Message>) -> Vec<u8> {
    let mut hasher = Sha256::new();
    for event in events {
        hasher.update(event.body.type_name());
        hasher.update([0]);
        let data = match &event.body {
            crate::event::Body::Opaque(opaque) => serde_json::to_vec(&crate::json::Ordered(&opaque.data)),
            body => serde_json::to_vec(body),
        };
        hasher.update(data.unwrap_or_default());
        hasher.update([0]);
    }
    if let Some(message) = message {
        hasher.update([1]);
        hasher.update(message.id.as_str());
        hasher.update([0]);
        hasher.update(message.hash().0);
    }
    hasher.finalize().iter().take(CREATION_BYTES).copied().collect()
}

/// Our own JSON is UTF-8; the check keeps anything else from becoming a text column.
pub(super) fn text(body: &[u8]) -> Result<&str, StoreError> {
    std::str::from_utf8(body).map_err(|error| StoreError::Io(Box::new(error)))
}
