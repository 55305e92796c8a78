//! What a listing says of a page of children: from the derived rows where they are good, else from the logs.

use std::collections::HashMap;

use rusqlite::{Connection, Row, params};

use super::{
    family,
    log::{self, Found},
    node::Liveness,
    summary::{self, KeptVerdict, kept_verdict, whole_head},
};
use crate::{
    id::SessionId,
    listing::{Cursor, Described, Description, Summary, Verdict},
    store::{LoadError, Member, StoreError, Traced, reader::apart},
};

/// What rows can say of a session `s`, in the forms that cost SQLite least: what it was found by, its derived row, where its log and its inbox end, who holds it, whether it may have children, how much of
/// it is held.
macro_rules! said {
    () => {
        "s.sid, s.crc, m.head, m.head_crc, m.verdict, m.verdict_crc, m.header_crc,
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

/// What is asked of children.
pub(super) struct Ask<'a> {
    pub(super) conn: &'a Connection,
    pub(super) liveness: &'a Liveness,
    /// Whether rows are wanted at all.
    pub(super) rows: bool,
}

/// What the rows say of children in the order given; trouble with one is a value.
pub(super) fn rows(ask: &Ask<'_>, children: &[Traced]) -> Result<Vec<Result<Described, LoadError>>, StoreError> {
    page(ask, children, |_, _, described| Ok(described))
}

/// Describes children in the order given, from their logs where there is no row; trouble with one is a value.
pub(super) fn describe(ask: &Ask<'_>, children: &[Traced]) -> Result<Vec<Result<Description, LoadError>>, StoreError> {
    page(ask, children, |id, found, described| complete(ask.conn, id, found, described))
}

/// Finds the children of one parent in order, after a place, with what their rows say; trouble with one is a value.
pub(super) fn family_rows(ask: &Ask<'_>, parent: &SessionId, after: Option<&Cursor>, limit: usize) -> Result<Vec<Member<Described>>, StoreError> {
    members(ask, parent, after, limit, |_, _, described| Ok(described))
}

/// Finds and describes the children of one parent in order, after a place; trouble with one is a value.
pub(super) fn family(ask: &Ask<'_>, parent: &SessionId, after: Option<&Cursor>, limit: usize) -> Result<Vec<Member>, StoreError> {
    members(ask, parent, after, limit, |id, found, described| complete(ask.conn, id, found, described))
}

fn page<T>(
    ask: &Ask<'_>,
    children: &[Traced],
    finish: impl Fn(&SessionId, &Found, Described) -> Result<T, LoadError>,
) -> Result<Vec<Result<T, LoadError>>, StoreError> {
    let ids: Vec<&str> = children.iter().map(|child| child.id.as_str()).collect();
    let ids = serde_json::to_string(&ids).map_err(|error| StoreError::Io(Box::new(error)))?;
    let mut described: Vec<Result<T, LoadError>> = children.iter().map(|child| Err(LoadError::NotFound(child.id.clone()))).collect();
    let mut alive = HashMap::new();
    let mut query = ask.conn.prepare_cached(PAGE)?;
    let mut rows = query.query([ids])?;
    while let Some(row) = rows.next()? {
        let place = usize::try_from(row.get::<_, i64>(0)?).unwrap_or(usize::MAX);
        let (Some(child), Some(slot)) = (children.get(place), described.get_mut(place)) else { continue };
        *slot = apart(one(ask, child, row, 1, &mut alive, &finish))?;
    }
    Ok(described)
}

fn members<T>(
    ask: &Ask<'_>,
    parent: &SessionId,
    after: Option<&Cursor>,
    limit: usize,
    finish: impl Fn(&SessionId, &Found, Described) -> Result<T, LoadError>,
) -> Result<Vec<Member<T>>, StoreError> {
    let mut members = Vec::new();
    let mut alive = HashMap::new();
    let mut query = ask.conn.prepare_cached(FAMILY)?;
    let (time, id) = log::place_columns(after);
    let mut rows = query.query(params![parent.as_str(), time, id, log::limit_column(limit)])?;
    let mut order = log::siblings_after(after);
    while let Some(row) = rows.next()? {
        let Some(child) = log::traced(row)? else { continue };
        order.next((child.created_at, child.id.clone()))?;
        let described = apart(one(ask, &child, row, 6, &mut alive, &finish))?;
        members.push((child, described));
    }
    Ok(members)
}

/// Describes the child whose row says what [`said`] lists, from column `first`.
fn one<T>(
    ask: &Ask<'_>,
    child: &Traced,
    row: &Row<'_>,
    first: usize,
    alive: &mut HashMap<String, bool>,
    finish: impl Fn(&SessionId, &Found, Described) -> Result<T, LoadError>,
) -> Result<T, LoadError> {
    let header = match &child.header {
        Ok(header) => header.clone(),
        Err(source) => return Err(LoadError::Corrupt { session: child.id.clone(), place: "header".into(), source: source.clone() }),
    };
    let found = Found { sid: row.get(first)?, header, crc: log::crc_of(row, first + 1)?.unwrap_or_default() };
    let kept = from_row(child, &found, row, first + 2)?.filter(|_| ask.rows);
    let holder = log::maybe_name(row, first + 10)?;
    let holder = match holder {
        Some(owner) if ask.liveness.alive_cached(ask.conn, &owner, alive)? => owner.parse().ok(),
        _ => None,
    };
    let has_children = row.get(first + 11)? && family::has_subagent(ask.conn, &child.id)?;
    finish(&child.id, &found, Described { row: kept, has_children, holder })
}

fn complete(conn: &Connection, id: &SessionId, found: &Found, described: Described) -> Result<Description, LoadError> {
    let Described { row, has_children, holder } = described;
    let Summary { head, verdict } = match row {
        Some(summary) => summary,
        None => summary::derive(conn, id, found)?,
    };
    Ok(Description { verdict, head, has_children, holder })
}

fn from_row(child: &Traced, found: &Found, row: &Row<'_>, first: usize) -> Result<Option<Summary>, LoadError> {
    let verdict = match kept_verdict(&child.id, found.crc, row, first + 2)? {
        KeptVerdict::Good(verdict) => verdict,
        KeptVerdict::NoGood => return Ok(None),
        KeptVerdict::Disowned(disowned) => return Err(disowned.of(&child.id)),
    };
    let Some(head) = whole_head(&child.id, row, first)? else { return Ok(None) };
    if found.header.is_fork() && verdict != Verdict::Plain {
        return Ok(None);
    }
    let next = |last: Option<i64>| last.map_or(0, |last| log::unsigned(last).saturating_add(1));
    let ends = head.next_seq == next(row.get(first + 5)?) && head.next_order == next(row.get::<_, Option<i64>>(first + 6)?.max(row.get(first + 7)?));
    // A release adds nothing to either end.
    let fresh = ends && head.held == log::unsigned(row.get(first + 10)?);
    Ok(fresh.then_some(Summary { head, verdict }))
}
