//! The write side: one connection, one transaction per batch, and what to do when a commit fails.
//!
//! A commit that fails may have happened. Every batch therefore leaves its number in the row of its owner; after a failure the file is
//! opened again and that number is read in a transaction that writes a new one. Once that second commit is in, nothing of the first can
//! appear later, and the number read says whether it was there.

use std::{ops::RangeInclusive, path::PathBuf, sync::Arc};

use rusqlite::{Connection, ErrorCode, OptionalExtension};

use super::{
    error::at,
    kept::Memory,
    node::{Node, boot_time_ms},
    schema::{Access, connect},
    write::Batch,
};
use crate::{
    id::SessionId,
    store::{CommitError, Done, Op, Refused, StoreError, gate::Gate},
};

/// A row of `node` that is younger than this needs no renewal.
const FRESH_MS: i64 = 2_000;

/// The write side of one opening.
#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    pub(super) conn: Option<Connection>,
    pub(super) gate: Gate,
    node: Arc<Node>,
    memory: Memory,
    batch: i64,
    pub(super) renewed_at: Option<i64>,
    /// Inbox rows of this opening beyond `polled`, in ascending order.
    own: Vec<RangeInclusive<i64>>,
    polled: i64,
    polled_version: Option<i64>,
    #[cfg(test)]
    pub(super) faults: std::collections::VecDeque<Fault>,
}

/// What goes wrong in a test.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing.
    None,
    /// The commit fails and nothing of it is in the file.
    Lost,
    /// The commit fails and all of it is in the file.
    Done,
    /// The same, and the owner's row is gone before anybody looks.
    Forgotten,
    /// The disk is full at the commit.
    Full,
    /// The file cannot be opened again.
    Barrier,
}

impl Writer {
    /// Takes the write side of the store at `path`.
    pub(super) fn new(path: PathBuf, gate: Gate, node: Arc<Node>) -> Result<Self, StoreError> {
        let conn = connect(&path, Access::Write).map_err(at(&path))?;
        let polled = conn.query_row("SELECT coalesce(max(id), 0) FROM inbox", [], |row| row.get(0)).map_err(at(&path))?;
        Ok(Self {
            path,
            conn: Some(conn),
            gate,
            node,
            memory: Memory::default(),
            batch: 0,
            renewed_at: None,
            own: Vec::new(),
            polled,
            polled_version: None,
            #[cfg(test)]
            faults: std::collections::VecDeque::new(),
        })
    }

    /// Commits a batch; see [`Store::commit`](crate::store::Store::commit).
    pub(super) fn commit(&mut self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        if ops.is_empty() {
            return Ok(Vec::new());
        }
        let turn = self.gate.enter().map_err(CommitError::NotCommitted)?;
        let batch = self.batch + 1;
        let prepared = self.prepare(ops, batch);
        let (results, rows, changed) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                self.abandon(&error);
                return Err(CommitError::NotCommitted(error));
            }
        };
        match self.end() {
            Ok(()) => {}
            Err(error) => self.settle(error, batch, changed)?,
        }
        drop(turn);
        if changed {
            self.batch = self.batch.max(batch);
            self.renewed_at = Some(boot_time_ms());
        }
        if let Some((first, last)) = rows {
            match self.own.last_mut() {
                Some(range) if *range.end() + 1 == first => *range = *range.start()..=last,
                _ => self.own.push(first..=last),
            }
        }
        Ok(results)
    }

    fn conn(&mut self) -> Result<&Connection, StoreError> {
        if self.conn.is_none() {
            self.conn = Some(connect(&self.path, Access::Write).map_err(at(&self.path))?);
            // Another connection counts the writes of others from another number.
            self.polled_version = None;
            self.memory.forget();
        }
        self.conn.as_ref().ok_or_else(|| StoreError::Unsupported("the store is closed".into()))
    }

    /// Does everything of a batch but its commit.
    #[expect(clippy::type_complexity, reason = "three things that belong together for one call")]
    fn prepare(&mut self, ops: &[Op], batch: i64) -> Result<(Vec<Result<Done, Refused>>, Option<(i64, i64)>, bool), StoreError> {
        self.begin()?;
        let conn = self.conn.as_ref().ok_or_else(|| StoreError::Unsupported("the store is closed".into()))?;
        self.memory.refresh(conn)?;
        let mut work = Batch::new(conn, &self.node, &mut self.memory);
        let results = ops.iter().map(|op| work.apply(op)).collect::<Result<Vec<_>, _>>()?;
        work.finish()?;
        let (rows, changed) = (work.rows, work.changed);
        if changed {
            self.node.renew(conn, batch)?;
        }
        Ok((results, rows, changed))
    }

    /// Does something in a write transaction that changes derived rows only, so that it does no harm if it is lost.
    pub(super) fn derive(&mut self, work: &mut super::rebuild::Work<'_>) -> Result<(), StoreError> {
        let turn = self.gate.enter()?;
        let done = self.begin().and_then(|()| work(self.conn()?)).and_then(|()| Ok(self.end()?));
        self.memory.forget();
        if let Err(error) = &done {
            self.abandon(error);
        }
        drop(turn);
        done
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        let conn = self.conn()?;
        if !conn.is_autocommit() {
            // A panic in an earlier batch left its transaction behind.
            conn.execute_batch("ROLLBACK")?;
            self.memory.forget();
        }
        let path = self.path.clone();
        self.conn()?.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.execute([])).map_err(at(&path))?;
        Ok(())
    }

    fn end(&mut self) -> Result<(), rusqlite::Error> {
        #[cfg(test)]
        if let Some(fault) = self.faults.pop_front().filter(|fault| *fault != Fault::None) {
            return self.fail(fault);
        }
        match &self.conn {
            Some(conn) => conn.prepare_cached("COMMIT")?.execute([]).map(|_| ()),
            None => Ok(()),
        }
    }

    #[cfg(test)]
    fn fail(&mut self, fault: Fault) -> Result<(), rusqlite::Error> {
        use rusqlite::ffi;
        let conn = self.conn.as_ref().unwrap();
        conn.execute_batch(match fault {
            Fault::Done => "COMMIT",
            Fault::Forgotten => "COMMIT; DELETE FROM node",
            Fault::None | Fault::Lost | Fault::Full | Fault::Barrier => "ROLLBACK; BEGIN",
        })?;
        let code = if fault == Fault::Full { ffi::SQLITE_FULL } else { ffi::SQLITE_IOERR_FSYNC };
        Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
    }

    /// Rolls back a batch whose commit was never asked for.
    fn abandon(&mut self, error: &StoreError) {
        self.memory.forget();
        let rolled_back = match &self.conn {
            Some(conn) if !conn.is_autocommit() => conn.execute_batch("ROLLBACK").is_ok(),
            _ => true,
        };
        // After a failure of the device a connection is not to be trusted further.
        if !rolled_back || matches!(error, StoreError::Io(_) | StoreError::Damaged(_)) {
            self.conn = None;
        }
    }

    /// Finds out what became of a commit that failed.
    fn settle(&mut self, error: rusqlite::Error, batch: i64, changed: bool) -> Result<(), CommitError> {
        let code = error.sqlite_error_code();
        let error = at(&self.path)(error);
        let untouched = match code {
            // A write to the log had no room, so its last frame is not there, and nothing before that counts. SQLite may have rolled back by itself.
            Some(ErrorCode::DiskFull) => true,
            Some(ErrorCode::DatabaseBusy) => self.conn.as_ref().is_some_and(|conn| !conn.is_autocommit()),
            _ => false,
        };
        if untouched {
            self.abandon(&error);
            return Err(CommitError::NotCommitted(error));
        }
        self.memory.forget();
        self.conn = None;
        if !changed {
            return Err(CommitError::NotCommitted(error));
        }
        tracing::error!(%error, "a commit failed; the store is opened again to see what became of it");
        match self.barrier(batch + 1) {
            Ok(found) => {
                self.batch = batch + 1;
                match found {
                    Some(found) if found == batch => Ok(()),
                    // Somebody has removed a row that was there, and with it the answer.
                    None if self.renewed_at.is_some() => Err(CommitError::Indeterminate(error)),
                    _ => Err(CommitError::NotCommitted(error)),
                }
            }
            Err(barrier) => {
                tracing::error!(error = %barrier, "what became of the commit is unknown");
                self.conn = None;
                // Numbers are not used twice, whatever is in the file.
                self.batch = batch + 1;
                Err(CommitError::Indeterminate(error))
            }
        }
    }

    /// Writes a new number in a transaction and returns the one that was there.
    fn barrier(&mut self, number: i64) -> Result<Option<i64>, StoreError> {
        self.begin()?;
        #[cfg(test)]
        if self.faults.front() == Some(&Fault::Barrier) {
            self.faults.pop_front();
            return Err(StoreError::Unsupported("injected".into()));
        }
        let node = self.node.clone();
        let conn = self.conn()?;
        let found = conn.query_row("SELECT batch FROM node WHERE owner = ?1", [node.owner().as_str()], |row| row.get(0)).optional()?;
        node.renew(conn, number)?;
        conn.execute_batch("COMMIT")?;
        Ok(found)
    }

    /// Renews the sign of life if it is not fresh.
    pub(super) fn heartbeat(&mut self) -> Result<(), StoreError> {
        self.node.hold()?;
        let now = boot_time_ms();
        if self.renewed_at.is_some_and(|at| now - at < FRESH_MS) {
            return Ok(());
        }
        let turn = self.gate.enter()?;
        let number = self.batch + 1;
        let written = self.barrier(number);
        drop(turn);
        match written {
            Ok(_) => {
                self.batch = number;
                self.renewed_at = Some(now);
                Ok(())
            }
            Err(error) => {
                // The number may be in the file all the same.
                self.batch = number;
                self.abandon(&error);
                Err(error)
            }
        }
    }

    /// Returns the sessions of inbox rows that came since the last call and are not this opening's own.
    pub(super) fn poll(&mut self) -> Result<Vec<SessionId>, StoreError> {
        let polled = self.polled;
        let own_rows = self.own.clone();
        let seen = self.polled_version;
        let conn = self.conn()?;
        let version: i64 = conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if seen == Some(version) {
            // Nobody else has written, so every new row is our own.
            self.polled = self.own.last().map_or(polled, |range| polled.max(*range.end()));
            self.own.clear();
            return Ok(Vec::new());
        }
        let mut rows: Vec<(i64, i64)> = Vec::new();
        let mut query = conn.prepare_cached("SELECT id, sid FROM inbox WHERE id > ?1 ORDER BY id")?;
        let mut found = query.query([polled])?;
        while let Some(row) = found.next()? {
            rows.push((row.get(0)?, row.get(1)?));
        }
        drop(found);
        let mut own = own_rows.iter().peekable();
        let mut sids = Vec::new();
        for (id, sid) in &rows {
            while own.next_if(|range| range.end() < id).is_some() {}
            if own.peek().is_none_or(|range| !range.contains(id)) {
                sids.push(*sid);
            }
        }
        sids.sort_unstable();
        sids.dedup();
        drop(query);
        let sessions = sids.into_iter().filter_map(|sid| super::log::id_of(conn, sid).transpose()).collect::<Result<Vec<_>, _>>()?;
        if let Some((last, _)) = rows.last() {
            self.polled = *last;
        }
        self.own.clear();
        self.polled_version = Some(version);
        Ok(sessions)
    }

    /// Removes the sign of life and empties the WAL if nobody else needs it.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        let turn = self.gate.enter()?;
        self.begin()?;
        let node = self.node.clone();
        let conn = self.conn()?;
        conn.execute("DELETE FROM node WHERE owner = ?1", [node.owner().as_str()])?;
        conn.execute_batch("COMMIT")?;
        drop(turn);
        self.renewed_at = None;
        self.node.release()?;
        let conn = self.conn()?;
        conn.busy_timeout(std::time::Duration::ZERO)?;
        let emptied = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        conn.busy_timeout(std::time::Duration::from_secs(5))?;
        if let Err(error) = emptied {
            tracing::debug!(%error, "the WAL could not be emptied; the next opening does it");
        }
        Ok(())
    }
}
