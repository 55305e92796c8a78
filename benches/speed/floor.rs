//! The floors: the same work with nothing of greenroom around it.

use std::{collections::HashMap, path::Path, time::Duration};

use greenroom_session::{
    codec::{encode_message, message_crc},
    head::Head,
    id::SessionId,
    message::MessageKind,
    store::Op,
};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use rusqlite::{Connection, config::DbConfig, params};

use crate::measure::{Outcome, Spent, Stopwatch};

/// An actor that counts what it is told.
#[derive(Debug)]
pub(crate) struct Counter;

/// What a counter is told.
#[derive(Debug)]
pub(crate) enum Count {
    /// Count one.
    Tell,
    /// Count one and say how many there are.
    Call(RpcReplyPort<u64>),
}

impl Actor for Counter {
    type Msg = Count;
    type State = u64;
    type Arguments = ();

    async fn pre_start(&self, _myself: ActorRef<Count>, (): ()) -> Result<u64, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(&self, _myself: ActorRef<Count>, message: Count, state: &mut u64) -> Result<(), ActorProcessingErr> {
        *state += 1;
        if let Count::Call(reply) = message {
            reply.send(*state)?;
        }
        Ok(())
    }
}

/// Calls one bare actor `count` times from each of `senders` tasks.
pub(crate) async fn calls(senders: usize, count: usize) -> Outcome<Spent> {
    let (actor, _task) = Actor::spawn(None, Counter, ()).await?;
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..senders)
        .map(|_| {
            let actor = actor.clone();
            tokio::spawn(async move {
                for _ in 0..count {
                    actor.call(Count::Call, None).await?;
                }
                Outcome::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let spent = watch.stop();
    actor.stop(None);
    Ok(spent)
}

/// Tells one bare actor something `count` times from each of `senders` tasks, and waits until it has heard all of it.
pub(crate) async fn tells(senders: usize, count: usize) -> Outcome<Spent> {
    let (actor, _task) = Actor::spawn(None, Counter, ()).await?;
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..senders)
        .map(|_| {
            let actor = actor.clone();
            tokio::spawn(async move {
                for _ in 0..count {
                    actor.send_message(Count::Tell)?;
                }
                Outcome::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    actor.call(Count::Call, None).await?;
    let spent = watch.stop();
    actor.stop(None);
    Ok(spent)
}

/// A bare connection to a store's file that writes the rows of acceptances.
#[derive(Debug)]
pub(crate) struct BareStore {
    conn: Connection,
    owner: String,
    boot_id: String,
    sessions: HashMap<SessionId, (i64, Head)>,
}

/// The rows of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    messages: Vec<MessageRow>,
    heads: Vec<HeadRow>,
}

#[derive(Debug)]
struct MessageRow {
    sid: i64,
    order: i64,
    id: String,
    hash: [u8; 16],
    body: String,
    crc: u32,
}

#[derive(Debug)]
struct HeadRow {
    sid: i64,
    head: String,
    crc: u32,
}

impl BareStore {
    /// Opens a store's file that nobody else has open, set up as the store sets up its own connection.
    pub(crate) fn open(path: &Path) -> Outcome<Self> {
        let conn = Connection::open(path)?;
        conn.set_prepared_statement_cache_capacity(64);
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.pragma_update(None, "cell_size_check", true)?;
        conn.pragma_update(None, "mmap_size", 0)?;
        conn.pragma_update(None, "cache_size", -65_536)?;
        conn.pragma_update(None, "wal_autocheckpoint", 1_000)?;
        conn.pragma_update(None, "journal_size_limit", 67_108_864)?;
        let sessions = conn
            .prepare("SELECT s.id, s.sid, m.head FROM session s JOIN summary m ON m.sid = s.sid")?
            .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get::<_, String>(2)?)))?
            .map(|row| {
                let (id, sid, head) = row?;
                Outcome::Ok((SessionId::new(id)?, (sid, serde_json::from_str(&head)?)))
            })
            .collect::<Outcome<_>>()?;
        Ok(Self { conn, owner: uuid::Uuid::new_v4().to_string(), boot_id: uuid::Uuid::new_v4().to_string(), sessions })
    }

    /// Makes the rows of recorded batches. This is not part of the floor.
    pub(crate) fn rows(&mut self, batches: &[Vec<Op>]) -> Outcome<Vec<Rows>> {
        batches.iter().map(|batch| self.rows_of(batch)).collect()
    }

    fn rows_of(&mut self, batch: &[Op]) -> Outcome<Rows> {
        let mut rows = Rows::default();
        let mut moved = Vec::new();
        for op in batch {
            let Op::Accept(accept) = op else { return Err("only acceptances can be replayed".into()) };
            let (sid, head) = self.sessions.get_mut(&accept.session).ok_or("a session is missing")?;
            let message = &accept.message;
            if message.kind != MessageKind::Turn {
                return Err("only turn messages can be replayed".into());
            }
            let body = encode_message(message)?;
            let crc = message_crc(&accept.session, head.next_order, false, &body);
            let order = i64::try_from(head.next_order)?;
            rows.messages.push(MessageRow { sid: *sid, order, id: message.id.to_string(), hash: message.hash().0, body: String::from_utf8(body)?, crc });
            head.accept(message, false);
            if !moved.contains(&&accept.session) {
                moved.push(&accept.session);
            }
        }
        for id in moved {
            let (sid, head) = self.sessions.get(id).ok_or("a session is missing")?;
            let head = serde_json::to_string(head)?;
            // Any number of its size will do: nobody reads this file.
            let crc = message_crc(id, 0, false, head.as_bytes());
            rows.heads.push(HeadRow { sid: *sid, head, crc });
        }
        Ok(rows)
    }

    /// Writes batches, a transaction each, with cached statements; returns the time of each.
    pub(crate) fn replay(&self, batches: &[Rows]) -> Outcome<Vec<Duration>> {
        let mut times = Vec::with_capacity(batches.len());
        let mut last: (i64, i64, i64) = self.conn.query_row(
            "SELECT coalesce((SELECT max(sid) FROM session), 0), coalesce((SELECT max(rowid) FROM event), 0), coalesce((SELECT max(id) FROM inbox), 0)",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )?;
        for (number, batch) in (1_i64..).zip(batches) {
            let watch = Stopwatch::start();
            self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            {
                let mut insert = self.conn.prepare_cached(
                    "INSERT INTO inbox(sid, ord, message_id, hash, kind, wake, held, state, body, crc) VALUES(?1, ?2, ?3, ?4, 0, 1, 0, 0, ?5, ?6)",
                )?;
                for row in &batch.messages {
                    insert.execute(params![row.sid, row.order, row.id, row.hash, row.body, row.crc])?;
                    last.2 = self.conn.last_insert_rowid();
                }
                let mut update = self.conn.prepare_cached("UPDATE summary SET head = ?2, head_crc = ?3, work = 1 WHERE sid = ?1")?;
                for row in &batch.heads {
                    update.execute(params![row.sid, row.head, row.crc])?;
                }
            }
            self.conn
                .prepare_cached(
                    "INSERT OR REPLACE INTO tally(one, sessions, events, messages, removals, held, work, work_sum, orphans, orphan_sum, crc)
                     VALUES(1, ?1, ?2, ?3, 0, 0, ?4, ?5, 0, 0, ?6)",
                )?
                .execute(params![last.0, last.1, last.2, i64::try_from(self.sessions.len())?, i64::MAX / 3, u32::MAX / 3])?;
            self.conn
                .prepare_cached(
                    "INSERT INTO node(owner, boot_id, expires_at, batch) VALUES(?1, ?2, ?3, ?4)
                     ON CONFLICT(owner) DO UPDATE SET boot_id = ?2, expires_at = ?3, batch = ?4",
                )?
                .execute(params![self.owner, self.boot_id, 1_000_000 + number, number])?;
            self.conn.prepare_cached("COMMIT")?.execute([])?;
            times.push(watch.stop().wall);
        }
        Ok(times)
    }
}

/// A row of the bare query: id, time, header, head, verdict, lease.
type Covered = (String, i64, String, String, String, Option<String>);

/// The bare query that covers what a listing shows of the children of one parent, its rows as values that outlive it. Returns how many there are.
pub(crate) fn covering_query(conn: &Connection, parent: &SessionId) -> Outcome<usize> {
    let mut query = conn.prepare_cached(
        "SELECT s.id, s.created_at, s.header, m.head, m.verdict, l.owner
         FROM session s LEFT JOIN summary m ON m.sid = s.sid LEFT JOIN lease l ON l.sid = s.sid
         WHERE s.parent_id = ?1 ORDER BY s.created_at, s.id",
    )?;
    let rows = query.query_map([parent.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?)))?;
    let rows: Vec<Covered> = rows.collect::<Result<_, _>>()?;
    Ok(std::hint::black_box(rows).len())
}
