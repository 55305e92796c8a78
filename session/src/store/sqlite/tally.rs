//! The proof that the sets of runnable sessions and of missing parents are complete, in one row for the whole store.
//!
//! An index can be asked who is in it, but not who has been lost from it. The tally counts the members, sums their hashes, and says up to
//! which rows of the ground tables it goes. A set that fits a whole and current tally is the set; otherwise every session is looked at.

use rusqlite::{Connection, OptionalExtension, Row, params, types::ValueRef};

use super::{
    check::session_id,
    log::{Found, SESSION_COLUMNS, bytes, crc_of, header_of, name},
    order::Ascending,
    summary,
};
use crate::{
    id::SessionId,
    listing::Summary,
    store::{LoadError, StoreError},
};

/// Members of a set, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Count {
    number: i64,
    sum: i64,
}

impl Count {
    /// Adds a member of this hash.
    pub(super) fn add(&mut self, hash: i64) {
        self.number += 1;
        self.sum = self.sum.wrapping_add(hash);
    }

    /// Removes a member of this hash.
    pub(super) fn remove(&mut self, hash: i64) {
        self.number -= 1;
        self.sum = self.sum.wrapping_sub(hash);
    }
}

/// Up to which rows the ground tables go. Only removals delete rows, and each adds one of its own; a release adds none and changes how
/// many are held. So something moves with every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Extent {
    pub(super) sessions: i64,
    events: i64,
    messages: i64,
    pub(super) removals: i64,
    held: i64,
}

/// What is known of the whole store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    /// Sessions with work, by [`sid_hash`].
    pub(super) work: Count,
    /// Parents that are not in the store, by [`id_hash`].
    pub(super) orphans: Count,
}

/// Spreads a session's number (splitmix64).
pub(super) fn sid_hash(sid: i64) -> i64 {
    let mut z = sid.cast_unsigned().wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).cast_signed()
}

/// Spreads an id.
pub(super) fn id_hash(id: &str) -> i64 {
    sid_hash(i64::from(crc32c::crc32c(id.as_bytes())) << 31 ^ i64::from(crc32c::crc32c_append(0x5bd1_e995, id.as_bytes())))
}

fn extent(conn: &Connection) -> rusqlite::Result<Extent> {
    conn.prepare_cached(
        "SELECT coalesce((SELECT max(sid) FROM session), 0), coalesce((SELECT max(rowid) FROM event), 0), coalesce((SELECT max(id) FROM inbox), 0),
                coalesce((SELECT max(number) FROM removed), 0), (SELECT count(*) FROM inbox WHERE held != 0)",
    )?
    .query_row([], extent_of)
}

fn extent_of(row: &Row<'_>) -> rusqlite::Result<Extent> {
    Ok(Extent { sessions: row.get(0)?, events: row.get(1)?, messages: row.get(2)?, removals: row.get(3)?, held: row.get(4)? })
}

fn crc(tally: &Tally, extent: Extent) -> u32 {
    let Tally { work, orphans } = tally;
    let fields = [extent.sessions, extent.events, extent.messages, extent.removals, extent.held, work.number, work.sum, orphans.number, orphans.sum];
    fields.iter().fold(crc32c::crc32c(b"t\0"), |crc, field| crc32c::crc32c_append(crc, &field.to_be_bytes()))
}

/// What the row of the tally is found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// It is whole and goes as far as the ground tables do.
    Good(Tally),
    /// There is none, and there should be.
    Missing,
    /// It does not fit its checksum.
    Damaged,
    /// It is whole and goes up to other rows than there are now.
    Stale { to: Extent, now: Extent },
}

/// Looks at the row.
pub(super) fn look(conn: &Connection) -> rusqlite::Result<Kept> {
    let row = conn
        .prepare_cached("SELECT sessions, events, messages, removals, held, work, work_sum, orphans, orphan_sum, crc FROM tally")?
        .query_row([], |row| {
            let tally = Tally { work: Count { number: row.get(5)?, sum: row.get(6)? }, orphans: Count { number: row.get(7)?, sum: row.get(8)? } };
            Ok((extent_of(row)?, tally, crc_of(row, 9)?))
        })
        .optional()?;
    let now = extent(conn)?;
    Ok(match row {
        Some((extent, tally, stored)) if stored != Some(crc(&tally, extent)) => Kept::Damaged,
        Some((extent, tally, _)) if extent == now => Kept::Good(tally),
        Some((extent, ..)) => Kept::Stale { to: extent, now },
        // A store that never had a session needs no row.
        None if now == Extent::default() => Kept::Good(Tally::default()),
        None => Kept::Missing,
    })
}

/// Reads the tally; `None` unless it is whole and current.
pub(super) fn read(conn: &Connection) -> rusqlite::Result<Option<Tally>> {
    Ok(match look(conn)? {
        Kept::Good(tally) => Some(tally),
        Kept::Missing | Kept::Damaged | Kept::Stale { .. } => None,
    })
}

/// Writes the tally, current as of now.
pub(super) fn write(conn: &Connection, tally: &Tally) -> rusqlite::Result<()> {
    let now = extent(conn)?;
    conn.prepare_cached(
        "INSERT OR REPLACE INTO tally(one, sessions, events, messages, removals, held, work, work_sum, orphans, orphan_sum, crc)
         VALUES(1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        now.sessions,
        now.events,
        now.messages,
        now.removals,
        now.held,
        tally.work.number,
        tally.work.sum,
        tally.orphans.number,
        tally.orphans.sum,
        crc(tally, now)
    ])?;
    Ok(())
}

/// Returns the sessions with work if the index is proved complete.
pub(super) fn proved_work(conn: &Connection) -> rusqlite::Result<Option<Vec<i64>>> {
    let Some(tally) = read(conn)? else { return Ok(None) };
    let sids: Vec<i64> = conn.prepare_cached("SELECT sid FROM summary WHERE work = 1")?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut count = Count::default();
    for sid in &sids {
        count.add(sid_hash(*sid));
    }
    Ok((count == tally.work).then_some(sids))
}

/// Counts the sessions that the index has as working.
pub(super) fn count_work(conn: &Connection) -> rusqlite::Result<Count> {
    let mut count = Count::default();
    let mut query = conn.prepare_cached("SELECT sid FROM summary WHERE work = 1")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        count.add(sid_hash(row.get(0)?));
    }
    Ok(count)
}

/// Counts parents.
pub(super) fn count_parents(parents: &[String]) -> Count {
    let mut count = Count::default();
    for parent in parents {
        count.add(id_hash(parent));
    }
    count
}

/// Returns the parents that are not in the store, by the derived rows if they are proved complete, else by every family.
pub(super) fn orphans(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    if let Some(tally) = read(conn)? {
        let parents = kept_orphans(conn)?;
        if count_parents(&parents) == tally.orphans {
            return Ok(parents);
        }
    }
    missing_parents(conn)
}

/// Returns the parents that the derived rows have as missing.
pub(super) fn kept_orphans(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    conn.prepare_cached("SELECT parent_id FROM orphan")?.query_map([], |row| name(row, 0))?.collect()
}

/// Returns the parents that are not in the store, by every family.
pub(super) fn missing_parents(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut missing = Vec::new();
    let mut next = conn.prepare_cached("SELECT min(parent_id) FROM session WHERE parent_id > CAST(?1 AS TEXT)")?;
    let mut known = conn.prepare_cached("SELECT 1 FROM session WHERE id = ?1")?;
    let mut order = Ascending::new("parents", None);
    let mut at = Vec::new();
    let next_parent = |row: &Row<'_>| Ok((row.get_ref(0)? != ValueRef::Null).then_some(bytes(row, 0)?.to_vec()));
    while let Some(parent) = next.query_row([&at], next_parent)? {
        order.next(parent.clone())?;
        // What is no text is the id of nobody.
        if let Ok(parent) = std::str::from_utf8(&parent)
            && !known.exists([parent])?
        {
            missing.push(parent.to_owned());
        }
        at = parent;
    }
    Ok(missing)
}

/// Looks at every session in the order of ids, by its derived row where that is good, else by its log.
pub(super) fn each(conn: &Connection, mut see: impl FnMut(SessionId, Option<(Found, Summary)>) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let mut query = conn.prepare(&format!("SELECT {SESSION_COLUMNS} FROM session ORDER BY id"))?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let Some(id) = session_id(bytes(row, 1)?) else { continue };
        let Ok(header) = header_of(row, &id)? else {
            see(id, None)?;
            continue;
        };
        let found = Found { sid: row.get(0)?, header, crc: crc_of(row, 5)?.unwrap_or_default() };
        match summary::read_or_derive(conn, &id, &found) {
            Ok(summary) => see(id, Some((found, summary)))?,
            Err(LoadError::Store(error)) => return Err(error),
            Err(_) => see(id, None)?,
        }
    }
    Ok(())
}

/// Derives every row again that is no good, and the tally with them. Costs every session's row; called when the tally is found damaged.
pub(super) fn rebuild(conn: &Connection) -> Result<Tally, StoreError> {
    let mut tally = Tally::default();
    let mut working = Vec::new();
    let mut bad = Vec::new();
    each(conn, |id, known| {
        if let Some((found, summary)) = known {
            if summary.head.wants_holder() {
                working.push(found.sid);
            }
            match summary::read(conn, &id, &found) {
                Ok(None) => bad.push((id, found)),
                Err(LoadError::Store(error)) => return Err(error),
                Ok(Some(_)) | Err(_) => {}
            }
        }
        Ok(())
    })?;
    for (id, found) in &bad {
        if let Ok(summary) = summary::derive(conn, id, found) {
            summary::put(conn, id, found, &summary)?;
        }
    }
    // A session whose log is damaged has no work that could be done.
    conn.execute("UPDATE summary SET work = 0 WHERE work != 0", [])?;
    for sid in working {
        conn.prepare_cached("UPDATE summary SET work = 1 WHERE sid = ?1")?.execute([sid])?;
        tally.work.add(sid_hash(sid));
    }
    conn.execute("DELETE FROM orphan", [])?;
    for parent in missing_parents(conn)? {
        conn.execute("INSERT INTO orphan(parent_id) VALUES(?1)", [&parent])?;
        tally.orphans.add(id_hash(&parent));
    }
    Ok(tally)
}
