//! What a listing says of a page of children: from the derived rows where they are good, else from the logs.

use std::collections::HashMap;

use rusqlite::{Connection, Row};

use super::{
    family,
    log::{self, Found},
    node::Liveness,
    summary::{self, Summary, whole_head, whole_verdict},
};
use crate::{
    listing::Description,
    store::{LoadError, StoreError, Traced},
};

/// Everything about a child that rows can say, in one statement per child.
const CHILD: &str = "SELECT s.sid, s.crc, m.head, m.head_crc, m.verdict, m.verdict_crc,
       (SELECT max(seq) FROM event WHERE sid = s.sid),
       (SELECT max(ord) FROM inbox WHERE sid = s.sid AND state = 0),
       (SELECT max(ord) FROM inbox WHERE sid = s.sid AND state = 1),
       l.owner,
       EXISTS (SELECT 1 FROM session WHERE parent_id = s.id)
FROM session s LEFT JOIN summary m ON m.sid = s.sid LEFT JOIN lease l ON l.sid = s.sid
WHERE s.id = ?1";

/// Describes children in the order given; trouble with one is a value.
pub(super) fn describe(conn: &Connection, liveness: &Liveness, children: &[Traced], verify: bool) -> Result<Vec<Result<Description, LoadError>>, StoreError> {
    let mut alive = HashMap::new();
    let mut described = Vec::with_capacity(children.len());
    for child in children {
        match one(conn, liveness, child, verify, &mut alive) {
            Err(LoadError::Store(error)) => return Err(error),
            other => described.push(other),
        }
    }
    Ok(described)
}

fn one(conn: &Connection, liveness: &Liveness, child: &Traced, verify: bool, alive: &mut HashMap<String, bool>) -> Result<Description, LoadError> {
    let header = match &child.header {
        Ok(header) => header.clone(),
        Err(source) => return Err(LoadError::Corrupt { session: child.id.clone(), place: "header".into(), source: source.clone() }),
    };
    let mut query = conn.prepare_cached(CHILD)?;
    let mut rows = query.query([child.id.as_str()])?;
    let Some(row) = rows.next()? else { return Err(LoadError::NotFound(child.id.clone())) };
    let found = Found { sid: row.get(0)?, header, crc: log::crc_of(row, 1)?.unwrap_or_default() };
    let kept = if verify { None } else { from_row(child, &found, row)? };
    let Summary { head, verdict } = match kept {
        Some(summary) => summary,
        None => summary::derive(conn, &child.id, &found)?,
    };
    let holder: Option<String> = row.get(9)?;
    let holder = match holder {
        Some(owner) if liveness.alive_cached(conn, &owner, alive)? => owner.parse().ok(),
        _ => None,
    };
    let has_children = row.get(10)? && family::has_subagent(conn, &child.id)?;
    Ok(Description { verdict, head, has_children, holder })
}

fn from_row(child: &Traced, found: &Found, row: &Row<'_>) -> Result<Option<Summary>, LoadError> {
    let Some(head) = whole_head(&child.id, row, 2)? else { return Ok(None) };
    let Some(verdict) = whole_verdict(&child.id, found.crc, row, 4)? else { return Ok(None) };
    let next = |last: Option<i64>| last.map_or(0, |last| log::unsigned(last).saturating_add(1));
    let fresh = head.next_seq == next(row.get(6)?) && head.next_order == next(row.get::<_, Option<i64>>(7)?.max(row.get(8)?));
    Ok(fresh.then_some(Summary { head, verdict }))
}
