//! What a listing says of a page of children: from the derived rows where they are good, else from the logs.

use std::collections::HashMap;

use rusqlite::{Connection, Row, params};

use super::{
    family,
    log::{self, Found},
    node::Liveness,
    summary::{self, Summary, whole_head, whole_verdict},
};
use crate::{
    id::SessionId,
    listing::{Cursor, Description},
    store::{LoadError, Member, StoreError, Traced},
};

/// What rows can say of a session `s`, in the forms that cost SQLite least: what it was found by, its derived row, where its log and its inbox end, who holds it, whether it may have children, how much of
/// it is held.
macro_rules! said {
    () => {
        "s.sid, s.crc, m.head, m.head_crc, m.verdict, m.verdict_crc,
         (SELECT seq FROM event WHERE sid = s.sid ORDER BY seq DESC LIMIT 1),
         (SELECT ord FROM inbox WHERE sid = s.sid AND state = 0 ORDER BY ord DESC LIMIT 1),
         (SELECT ord FROM inbox WHERE sid = s.sid AND state = 1 ORDER BY ord DESC LIMIT 1),
         l.owner,
         CASE WHEN s.id IN (SELECT parent_id FROM session) THEN 1 ELSE 0 END,
         (SELECT count(*) FROM inbox WHERE sid = s.sid AND held != 0)"
    };
}

/// Describes the sessions that are named, in one statement.
const PAGE: &str = concat!(
    "SELECT j.key, ",
    said!(),
    " FROM json_each(?1) j CROSS JOIN session s ON s.id = j.value LEFT JOIN summary m ON m.sid = s.sid LEFT JOIN lease l ON l.sid = s.sid"
);

/// Finds and describes the children of one parent, in one statement.
const FAMILY: &str = concat!(
    "SELECT s.sid, s.id, s.parent_id, s.created_at, s.header, s.crc, ",
    said!(),
    " FROM session s LEFT JOIN summary m ON m.sid = s.sid LEFT JOIN lease l ON l.sid = s.sid
     WHERE s.parent_id = ?1 AND (s.created_at, s.id) > (?2, ?3) ORDER BY s.created_at, s.id LIMIT ?4"
);

/// Describes children in the order given; trouble with one is a value.
pub(super) fn describe(conn: &Connection, liveness: &Liveness, children: &[Traced], verify: bool) -> Result<Vec<Result<Description, LoadError>>, StoreError> {
    let ids: Vec<&str> = children.iter().map(|child| child.id.as_str()).collect();
    let ids = serde_json::to_string(&ids).map_err(|error| StoreError::Io(Box::new(error)))?;
    let mut described: Vec<Result<Description, LoadError>> = children.iter().map(|child| Err(LoadError::NotFound(child.id.clone()))).collect();
    let mut alive = HashMap::new();
    let mut query = conn.prepare_cached(PAGE)?;
    let mut rows = query.query([ids])?;
    while let Some(row) = rows.next()? {
        let place = usize::try_from(row.get::<_, i64>(0)?).unwrap_or(usize::MAX);
        let (Some(child), Some(slot)) = (children.get(place), described.get_mut(place)) else { continue };
        *slot = match one(conn, liveness, child, verify, row, 1, &mut alive) {
            Err(LoadError::Store(error)) => return Err(error),
            other => other,
        };
    }
    Ok(described)
}

/// Finds and describes the children of one parent in order, after a place; trouble with one is a value.
pub(super) fn family(
    conn: &Connection,
    liveness: &Liveness,
    parent: &SessionId,
    after: Option<&Cursor>,
    limit: usize,
    verify: bool,
) -> Result<Vec<Member>, StoreError> {
    let mut members = Vec::new();
    let mut alive = HashMap::new();
    let mut query = conn.prepare_cached(FAMILY)?;
    let (time, id) = log::place_columns(after);
    let mut rows = query.query(params![parent.as_str(), time, id, log::limit_column(limit)])?;
    while let Some(row) = rows.next()? {
        let Some(child) = log::traced(row)? else { continue };
        let described = match one(conn, liveness, &child, verify, row, 6, &mut alive) {
            Err(LoadError::Store(error)) => return Err(error),
            other => other,
        };
        members.push((child, described));
    }
    Ok(members)
}

/// Describes the child whose row says what [`said`] lists, from column `first`.
fn one(
    conn: &Connection,
    liveness: &Liveness,
    child: &Traced,
    verify: bool,
    row: &Row<'_>,
    first: usize,
    alive: &mut HashMap<String, bool>,
) -> Result<Description, LoadError> {
    let header = match &child.header {
        Ok(header) => header.clone(),
        Err(source) => return Err(LoadError::Corrupt { session: child.id.clone(), place: "header".into(), source: source.clone() }),
    };
    let found = Found { sid: row.get(first)?, header, crc: log::crc_of(row, first + 1)?.unwrap_or_default() };
    let kept = if verify { None } else { from_row(child, &found, row, first + 2)? };
    let Summary { head, verdict } = match kept {
        Some(summary) => summary,
        None => summary::derive(conn, &child.id, &found)?,
    };
    let holder: Option<String> = row.get(first + 9)?;
    let holder = match holder {
        Some(owner) if liveness.alive_cached(conn, &owner, alive)? => owner.parse().ok(),
        _ => None,
    };
    let has_children = row.get(first + 10)? && family::has_subagent(conn, &child.id)?;
    Ok(Description { verdict, head, has_children, holder })
}

fn from_row(child: &Traced, found: &Found, row: &Row<'_>, first: usize) -> Result<Option<Summary>, LoadError> {
    let Some(head) = whole_head(&child.id, row, first)? else { return Ok(None) };
    let Some(verdict) = whole_verdict(&child.id, found.crc, row, first + 2)? else { return Ok(None) };
    let next = |last: Option<i64>| last.map_or(0, |last| log::unsigned(last).saturating_add(1));
    let ends = head.next_seq == next(row.get(first + 4)?) && head.next_order == next(row.get::<_, Option<i64>>(first + 5)?.max(row.get(first + 6)?));
    // A release adds nothing to either end.
    let fresh = ends && head.held == log::unsigned(row.get(first + 9)?);
    Ok(fresh.then_some(Summary { head, verdict }))
}
