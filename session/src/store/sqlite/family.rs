//! The children of one parent, as far as the verdict of each matters.
//!
//! Whether a child is a subagent stands in its header, so that no log and no derived row is needed for that; a child whose header cannot be read is taken
//! for one, since it must not be hidden. Its alias stands in its verdict. That is decided at creation, so a whole row is a right one; where it is damaged
//! or lost the child's log is read.

use std::collections::HashMap;

use rusqlite::Connection;

use super::{
    check::session_id,
    log::{self, Found, SESSION_COLUMNS, bytes, crc_of, header_of},
    summary::{self, KeptVerdict, kept_verdict},
};
use crate::{id::SessionId, listing::Verdict, store::LoadError};

/// Returns the aliases that are taken among the children of `parent`, each by the oldest that has it.
pub(super) fn aliases(conn: &Connection, parent: &SessionId) -> Result<HashMap<String, SessionId>, LoadError> {
    let mut aliases = HashMap::new();
    let mut query = conn.prepare_cached(
        "SELECT s.sid, s.id, s.parent_id, s.created_at, s.header, s.crc, m.verdict, m.verdict_crc, m.header_crc
         FROM session s LEFT JOIN summary m ON m.sid = s.sid WHERE s.parent_id = ?1 ORDER BY s.created_at, s.id",
    )?;
    let mut rows = query.query([parent.as_str()])?;
    while let Some(row) = rows.next()? {
        let Some(id) = session_id(bytes(row, 1)?) else { continue };
        let Ok(header) = header_of(row, &id)? else { continue };
        if header.is_fork() {
            continue;
        }
        let crc = crc_of(row, 5)?.unwrap_or_default();
        let kept = match row.get_ref(6)? {
            rusqlite::types::ValueRef::Null => KeptVerdict::NoGood,
            _ => kept_verdict(&id, crc, row, 6)?,
        };
        let verdict = match kept {
            KeptVerdict::Good(verdict) => verdict,
            KeptVerdict::Disowned(_) => continue,
            KeptVerdict::NoGood => match summary::derive(conn, &id, &Found { sid: row.get(0)?, header, crc }) {
                Ok(summary) => summary.verdict,
                Err(LoadError::Store(error)) => return Err(error.into()),
                Err(_) => continue,
            },
        };
        if let Verdict::Child { alias: Some(alias), .. } = verdict {
            aliases.entry(alias).or_insert(id);
        }
    }
    Ok(aliases)
}

/// Tells whether any session names `parent` as its parent and is a subagent by its header. Costs one header where the first one is.
pub(super) fn has_subagent(conn: &Connection, parent: &SessionId) -> rusqlite::Result<bool> {
    let mut query = conn.prepare_cached(&format!("SELECT {SESSION_COLUMNS} FROM session WHERE parent_id = ?1 ORDER BY created_at, id"))?;
    let mut rows = query.query([parent.as_str()])?;
    while let Some(row) = rows.next()? {
        if log::traced(row)?.is_some_and(|child| child.header.map_or(true, |header| header.is_subagent())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Finds a child by its alias: by the index where it leads to one, else by looking at every child.
pub(super) fn find(conn: &Connection, parent: &SessionId, alias: &str) -> Result<Option<SessionId>, LoadError> {
    let mut query = conn.prepare_cached(
        "SELECT s.sid, s.id, s.parent_id, s.created_at, s.header, s.crc, m.verdict, m.verdict_crc, m.header_crc FROM summary m JOIN session s ON s.sid = m.sid AND s.parent_id = m.alias_of
         WHERE m.alias_of = ?1 AND m.alias = ?2 AND m.alias IS NOT NULL",
    )?;
    let mut rows = query.query([parent.as_str(), alias])?;
    while let Some(row) = rows.next()? {
        let Some(id) = session_id(bytes(row, 1)?) else { continue };
        if header_of(row, &id)?.is_ok_and(|header| header.is_fork()) {
            continue;
        }
        let verdict = kept_verdict(&id, crc_of(row, 5)?.unwrap_or_default(), row, 6)?;
        if matches!(verdict, KeptVerdict::Good(Verdict::Child { alias: Some(named), .. }) if named == alias) {
            return Ok(Some(id));
        }
    }
    Ok(aliases(conn, parent)?.remove(alias))
}
