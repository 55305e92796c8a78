//! The reader: a connection that cannot write, one snapshot per question.

use std::{
    collections::{HashMap, HashSet},
    io,
    ops::ControlFlow,
    path::Path,
    sync::Arc,
};

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    audit, check,
    describe::{self, Ask},
    error::at,
    export, family,
    log::{self, SESSION_COLUMNS, Wanted, limit_column, unsigned},
    node::Liveness,
    order::Ascending,
    schema::{Access, connect},
    summary, tally, transfer,
};
use crate::{
    check::{Checked, Finding},
    event::Event,
    fold::Fold,
    head::Head,
    header::Header,
    id::{MessageId, OwnerId, Seq, SessionId},
    listing::{Cursor, Described, Description},
    message::InboxRecord,
    repair::Quarantine,
    store::{ExportError, Lease, LoadError, Log, Member, MessageState, Reader, StoreError, Traced},
};

/// Reads a SQLite store. Writes neither the file nor its WAL, whoever else has it open.
///
/// ```
/// use greenroom_session::store::{Reader, Store, sqlite::{SqliteReader, SqliteStore, open_reader}};
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("store.db");
/// SqliteStore::open(&path)?.close()?;
/// let mut reader: SqliteReader = open_reader(&path)?;
/// assert!(reader.children(None, None, 10)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SqliteReader {
    conn: Connection,
    liveness: Liveness,
}

impl SqliteReader {
    /// Opens the file, judging who is alive by `liveness`.
    pub(super) fn open(path: &Path, liveness: Liveness) -> Result<Self, StoreError> {
        Ok(Self { conn: connect(path, Access::Read).map_err(at(path))?, liveness })
    }

    /// Returns the connection.
    pub(super) fn conn(&self) -> &Connection {
        &self.conn
    }

    /// Returns the connection, to be watched.
    #[cfg(test)]
    pub(super) fn watched(&mut self) -> &mut Connection {
        &mut self.conn
    }

    /// Tells whether a session lies in the tree of `root`, remembering what the way up has shown.
    fn in_tree(conn: &Connection, id: &SessionId, root: &SessionId, known: &mut HashMap<String, bool>) -> rusqlite::Result<bool> {
        let mut way = Vec::new();
        let mut seen = HashSet::new();
        let mut at = id.as_str().to_owned();
        let answer = loop {
            if at == root.as_str() {
                break true;
            }
            if let Some(known) = known.get(&at) {
                break *known;
            }
            // Nothing keeps two sessions from naming each other as parents.
            if !seen.insert(at.clone()) {
                break false;
            }
            way.push(at.clone());
            let parent: Option<Option<String>> =
                conn.prepare_cached("SELECT parent_id FROM session WHERE id = ?1")?.query_row([&at], |row| log::maybe_name(row, 0)).optional()?;
            match parent.flatten() {
                Some(parent) => at = parent,
                None => break false,
            }
        };
        known.extend(way.into_iter().map(|id| (id, answer)));
        Ok(answer)
    }
}

/// Reads one family in order, after a cursor.
fn siblings(conn: &Connection, parent: Option<&str>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Traced>, StoreError> {
    let sql = format!("SELECT {SESSION_COLUMNS} FROM session WHERE parent_id IS ?1 AND (created_at, id) > (?2, ?3) ORDER BY created_at, id LIMIT ?4");
    let mut query = conn.prepare_cached(&sql)?;
    let (time, id) = log::place_columns(after);
    let mut rows = query.query(params![parent, time, id, limit_column(limit)])?;
    let mut order = log::siblings_after(after);
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(child) = log::traced(row)? else { continue };
        order.next((child.created_at, child.id.clone()))?;
        found.push(child);
    }
    Ok(found)
}

/// Reads one family; the roots and the orphans if `None`.
fn children(conn: &Connection, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Traced>, StoreError> {
    let mut found = siblings(conn, parent.map(SessionId::as_str), after, limit)?;
    if parent.is_none() {
        let orphans = tally::orphans(conn)?;
        if !orphans.is_empty() {
            for parent in orphans {
                found.extend(siblings(conn, Some(&parent), after, limit)?);
            }
            found.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
            found.truncate(limit);
        }
    }
    Ok(found)
}

fn sessions(conn: &Connection, sql: &str, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError> {
    let mut query = conn.prepare_cached(sql)?;
    let mut rows = query.query([after.map_or("", SessionId::as_str)])?;
    let mut order = Ascending::new("sessions", after.cloned());
    let mut found = Vec::new();
    while found.len() < limit
        && let Some(row) = rows.next()?
    {
        // What is no id is told by the check of the store.
        if let Some(id) = check::session_id(log::bytes(row, 0)?) {
            order.next(id.clone())?;
            found.push(id);
        }
    }
    Ok(found)
}

impl Reader for SqliteReader {
    fn header(&mut self, id: &SessionId) -> Result<Option<Arc<Header>>, LoadError> {
        Ok(log::find(&self.conn, id)?.map(|found| found.header))
    }

    fn is_removed(&mut self, id: &SessionId) -> Result<bool, StoreError> {
        Ok(transfer::is_removed(&self.conn, id)?)
    }

    fn export(&mut self, id: &SessionId, line: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), ExportError> {
        let snapshot = self.conn.unchecked_transaction()?;
        summary::refuse_quarantined(&snapshot, id)?;
        export::export(&snapshot, id, line)
    }

    fn load(&mut self, id: &SessionId) -> Result<Log, LoadError> {
        let snapshot = self.conn.unchecked_transaction()?;
        summary::refuse_quarantined(&snapshot, id)?;
        log::load(&snapshot, id)
    }

    fn fold(&mut self, id: &SessionId, see: &mut dyn FnMut(&Event) -> ControlFlow<()>) -> Result<Option<Fold>, LoadError> {
        let snapshot = self.conn.unchecked_transaction()?;
        summary::refuse_quarantined(&snapshot, id)?;
        let found = log::require(&snapshot, id)?;
        log::fold(&snapshot, id, &found, &mut |event| see(&event))
    }

    fn events(&mut self, id: &SessionId, from: Seq, limit: usize) -> Result<Vec<Event>, LoadError> {
        let snapshot = self.conn.unchecked_transaction()?;
        let found = log::require(&snapshot, id)?;
        log::events(&snapshot, id, found.sid, from, limit)
    }

    fn inbox(&mut self, id: &SessionId, limit: usize) -> Result<Vec<InboxRecord>, LoadError> {
        let snapshot = self.conn.unchecked_transaction()?;
        let found = log::require(&snapshot, id)?;
        log::inbox(&snapshot, id, found.sid, Wanted::All(limit))
    }

    fn message(&mut self, id: &SessionId, message: &MessageId) -> Result<Option<MessageState>, LoadError> {
        let snapshot = self.conn.unchecked_transaction()?;
        let found = log::require(&snapshot, id)?;
        let row: Option<(i64, i64)> = snapshot
            .prepare_cached("SELECT ord, state FROM inbox WHERE sid = ?1 AND message_id = ?2")?
            .query_row(params![found.sid, message.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        Ok(row.map(|(order, state)| if state == 0 { MessageState::Pending(unsigned(order)) } else { MessageState::Taken(unsigned(order)) }))
    }

    fn children(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Traced>, StoreError> {
        let snapshot = self.conn.unchecked_transaction()?;
        children(&snapshot, parent, after, limit)
    }

    fn rows(&mut self, children: &[Traced]) -> Result<Vec<Result<Described, LoadError>>, StoreError> {
        let snapshot = self.conn.unchecked_transaction()?;
        describe::rows(&Ask { conn: &snapshot, liveness: &self.liveness, rows: true }, children)
    }

    fn family_rows(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Member<Described>>, StoreError> {
        let snapshot = self.conn.unchecked_transaction()?;
        let ask = Ask { conn: &snapshot, liveness: &self.liveness, rows: true };
        if let Some(parent) = parent {
            return describe::family_rows(&ask, parent, after, limit);
        }
        let children = children(&snapshot, None, after, limit)?;
        let rows = describe::rows(&ask, &children)?;
        Ok(children.into_iter().zip(rows).collect())
    }

    fn holder(&mut self, id: &SessionId, _: &Head) -> Result<Option<OwnerId>, StoreError> {
        let snapshot = self.conn.unchecked_transaction()?;
        let owner: Option<String> = snapshot
            .prepare_cached("SELECT l.owner FROM session s JOIN lease l ON l.sid = s.sid WHERE s.id = ?1")?
            .query_row([id.as_str()], |row| log::name(row, 0))
            .optional()?;
        Ok(match owner {
            Some(owner) if self.liveness.alive(&snapshot, &owner)? => owner.parse().ok(),
            _ => None,
        })
    }

    fn describe(&mut self, children: &[Traced], verify: bool) -> Result<Vec<Result<Description, LoadError>>, StoreError> {
        let snapshot = self.conn.unchecked_transaction()?;
        describe::describe(&Ask { conn: &snapshot, liveness: &self.liveness, rows: !verify }, children)
    }

    fn family(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize, verify: bool) -> Result<Vec<Member>, StoreError> {
        let snapshot = self.conn.unchecked_transaction()?;
        let ask = Ask { conn: &snapshot, liveness: &self.liveness, rows: !verify };
        if let Some(parent) = parent {
            return describe::family(&ask, parent, after, limit);
        }
        let children = children(&snapshot, None, after, limit)?;
        let described = describe::describe(&ask, &children)?;
        Ok(children.into_iter().zip(described).collect())
    }

    fn find(&mut self, prefix: &str, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let mut query = self.conn.prepare_cached("SELECT id FROM session WHERE id >= ?1 ORDER BY id LIMIT ?2")?;
        let mut rows = query.query(params![prefix, limit_column(limit)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let id: String = row.get(0)?;
            if !id.starts_with(prefix) {
                break;
            }
            found.extend(SessionId::new(id));
        }
        Ok(found)
    }

    fn alias(&mut self, parent: &SessionId, alias: &str) -> Result<Option<SessionId>, StoreError> {
        let snapshot = self.conn.unchecked_transaction()?;
        match family::find(&snapshot, parent, alias) {
            Err(LoadError::Store(error)) => Err(error),
            // A damaged child is passed over while looking; no other error comes out.
            other => Ok(other.unwrap_or_default()),
        }
    }

    fn runnable(&mut self, root: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let snapshot = self.conn.unchecked_transaction()?;
        let mut candidates: Vec<(SessionId, i64)> = Vec::new();
        if let Some(sids) = tally::proved_work(&snapshot)? {
            for sid in sids {
                candidates.extend(log::id_of(&snapshot, sid)?.map(|id| (id, sid)));
            }
            candidates.sort_unstable();
        } else {
            tally::each(&snapshot, |id, known| {
                candidates.extend(known.filter(|(_, summary)| summary.head.wants_holder()).map(|(found, _)| (id, found.sid)));
                Ok(())
            })?;
        }
        let mut alive = HashMap::new();
        let mut known = HashMap::new();
        let mut found = Vec::new();
        for (id, sid) in candidates {
            if found.len() == limit {
                break;
            }
            let holder: Option<String> =
                snapshot.prepare_cached("SELECT owner FROM lease WHERE sid = ?1")?.query_row([sid], |row| log::name(row, 0)).optional()?;
            let held = match holder {
                Some(holder) => self.liveness.alive_cached(&snapshot, &holder, &mut alive)?,
                None => false,
            };
            let inside = match root {
                Some(root) => Self::in_tree(&snapshot, &id, root, &mut known)?,
                None => true,
            };
            if !held && inside {
                found.push(id);
            }
        }
        Ok(found)
    }

    fn leases(&mut self, root: Option<&SessionId>) -> Result<Vec<Lease>, StoreError> {
        let snapshot = self.conn.unchecked_transaction()?;
        let mut query = snapshot.prepare_cached("SELECT s.id, l.owner FROM lease l JOIN session s ON s.sid = l.sid ORDER BY +s.id")?;
        let rows: Vec<(String, String)> = query.query_map([], |row| Ok((log::name(row, 0)?, log::name(row, 1)?)))?.collect::<rusqlite::Result<_>>()?;
        let mut alive = HashMap::new();
        let mut known = HashMap::new();
        let mut leases = Vec::new();
        for (session, owner) in rows {
            let (Ok(session), Ok(name)) = (SessionId::new(session), OwnerId::new(&owner)) else { continue };
            let inside = match root {
                Some(root) => Self::in_tree(&snapshot, &session, root, &mut known)?,
                None => true,
            };
            if inside {
                leases.push(Lease { session, owner: name, alive: self.liveness.alive_cached(&snapshot, &owner, &mut alive)? });
            }
        }
        Ok(leases)
    }

    fn sessions(&mut self, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        match sessions(&self.conn, "SELECT id FROM session WHERE id > ?1 ORDER BY id", after, limit) {
            // The rows themselves, which are sorted then, go by no index.
            Err(StoreError::Damaged(_)) => sessions(&self.conn, "SELECT DISTINCT id FROM session NOT INDEXED WHERE id > ?1 ORDER BY +id", after, limit),
            found => found,
        }
    }

    fn count(&mut self) -> Result<u64, StoreError> {
        Ok(unsigned(self.conn.query_row("SELECT count(*) FROM session", [], |row| row.get(0))?))
    }

    fn check(&mut self, id: &SessionId, see: &mut dyn FnMut(Finding)) -> Result<Option<Checked>, StoreError> {
        let Some(examined) = check::check(&self.conn, id)? else { return Ok(None) };
        examined.findings.into_iter().for_each(see);
        Ok(Some(examined.checked))
    }

    fn quarantine(&mut self, id: &SessionId) -> Result<Option<Quarantine>, StoreError> {
        Ok(summary::quarantined(&self.conn, id)?)
    }

    fn check_store(&mut self, see: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        audit::audit(&self.conn, &self.liveness, see)
    }
}
