//! The children of one parent, as far as the verdict of each matters.
//!
//! A verdict is decided at creation, so a whole row is a right one; where it is damaged or lost the child's log is read. A child whose log
//! is damaged too is a subagent, since it must not be hidden, and has no alias.

use std::collections::HashMap;

use rusqlite::Connection;

use super::{
    log::{Found, crc_of, header_of},
    summary,
};
use crate::{
    id::SessionId,
    listing::{Reason, Verdict},
    store::LoadError,
};

/// Hands the children's verdicts to `see`, in the order of siblings, until it returns `false`.
fn each(conn: &Connection, parent: &SessionId, mut see: impl FnMut(SessionId, Verdict) -> bool) -> Result<(), LoadError> {
    let mut query = conn.prepare_cached(
        "SELECT s.sid, s.id, s.parent_id, s.created_at, s.header, s.crc, m.verdict, m.verdict_crc
         FROM session s LEFT JOIN summary m ON m.sid = s.sid WHERE s.parent_id = ?1 ORDER BY s.created_at, s.id",
    )?;
    let mut rows = query.query([parent.as_str()])?;
    while let Some(row) = rows.next()? {
        let Ok(id) = SessionId::new(row.get::<_, String>(1)?) else { continue };
        let crc = crc_of(row, 5)?.unwrap_or_default();
        let kept = match row.get_ref(6)? {
            rusqlite::types::ValueRef::Null => None,
            _ => summary::whole_verdict(&id, crc, row, 6)?,
        };
        let verdict = match kept {
            Some(verdict) => verdict,
            None => match header_of(row, &id)? {
                Ok(header) => match summary::derive(conn, &id, &Found { sid: row.get(0)?, header, crc }) {
                    Ok(summary) => summary.verdict,
                    Err(LoadError::Store(error)) => return Err(error.into()),
                    Err(_) => Verdict::Broken { reason: Reason::Corrupt },
                },
                Err(_) => Verdict::Broken { reason: Reason::Corrupt },
            },
        };
        if !see(id, verdict) {
            break;
        }
    }
    Ok(())
}

/// Returns the aliases that are taken among the children of `parent`.
pub(super) fn aliases(conn: &Connection, parent: &SessionId) -> Result<HashMap<String, SessionId>, LoadError> {
    let mut aliases = HashMap::new();
    each(conn, parent, |id, verdict| {
        if let Verdict::Child { alias: Some(alias), .. } = verdict {
            aliases.entry(alias).or_insert(id);
        }
        true
    })?;
    Ok(aliases)
}

/// Tells whether any child of `parent` is a subagent. Costs one child where the first one is.
pub(super) fn has_subagent(conn: &Connection, parent: &SessionId) -> Result<bool, LoadError> {
    let mut found = false;
    each(conn, parent, |_, verdict| {
        found = !matches!(verdict, Verdict::Plain);
        !found
    })?;
    Ok(found)
}

/// Finds a child by its alias: by the index where it leads to one, else by looking at every child.
pub(super) fn find(conn: &Connection, parent: &SessionId, alias: &str) -> Result<Option<SessionId>, LoadError> {
    let mut query = conn.prepare_cached(
        "SELECT s.id, s.crc, m.verdict, m.verdict_crc FROM summary m JOIN session s ON s.sid = m.sid AND s.parent_id = m.alias_of
         WHERE m.alias_of = ?1 AND m.alias = ?2 AND m.alias IS NOT NULL",
    )?;
    let mut rows = query.query([parent.as_str(), alias])?;
    while let Some(row) = rows.next()? {
        let Ok(id) = SessionId::new(row.get::<_, String>(0)?) else { continue };
        let verdict = summary::whole_verdict(&id, crc_of(row, 1)?.unwrap_or_default(), row, 2)?;
        if matches!(verdict, Some(Verdict::Child { alias: Some(named), .. }) if named == alias) {
            return Ok(Some(id));
        }
    }
    Ok(aliases(conn, parent)?.remove(alias))
}
