//! The check of what belongs to no session: the file, its tables, rows without a session, and the proof of completeness.

use std::{collections::BTreeMap, path::Path};

use rusqlite::{Connection, params};

use super::{
    birth,
    check::{broken, session_id},
    log::bytes,
    node::Liveness,
    order::Ascending,
    schema,
    tally::{self, Kept},
};
use crate::{
    check::{Class, Finding, Place},
    store::StoreError,
};

/// Most faults of the file that SQLite is asked for. One bad page can make any number.
const MOST_FILE_FAULTS: u32 = 100;

type See<'a> = &'a mut dyn FnMut(Finding);

type Part = fn(&Connection, See<'_>) -> rusqlite::Result<()>;

/// Checks what belongs to no session and tells what it finds.
pub(super) fn audit(conn: &Connection, liveness: &Liveness, see: See<'_>) -> Result<(), StoreError> {
    // Each part is looked at whatever SQLite refuses in another.
    let parts: [(&str, Part); 5] = [("tables", tables), ("file", file), ("ids", ids), ("rows", rows), ("index", index)];
    for (name, part) in parts {
        if let Err(error) = part(conn, see) {
            see(Finding::of_store(Place::Part(name.to_owned()), Class::DamagedFile, broken(error)?));
        }
    }
    if let Err(error) = holders(conn, liveness, see) {
        see(Finding::of_store(Place::Lease, Class::DamagedFile, broken(error)?));
    }
    let leftovers = conn.path().map_or(Ok(Vec::new()), |path| birth::leftovers(Path::new(path)))?;
    for name in leftovers {
        see(Finding::of_store(Place::Part(name), Class::Leftover, "a birth that was killed left it"));
    }
    Ok(())
}

/// Compares tables, indexes, views and triggers with those of a new store.
fn tables(conn: &Connection, see: See<'_>) -> rusqlite::Result<()> {
    let new = Connection::open_in_memory()?;
    new.execute_batch(schema::TABLES)?;
    let mut missing = objects(&new)?;
    for (name, (kind, sql)) in objects(conn)? {
        match missing.remove(&name) {
            Some(expected) if expected == (kind.clone(), sql) => {}
            Some(_) => see(Finding::of_store(Place::Part(format!("{kind} {name}")), Class::SchemaConflict, "it is not as the store made it")),
            // A trigger changes what the store writes.
            None if kind == "trigger" => see(Finding::of_store(Place::Part(format!("{kind} {name}")), Class::SchemaConflict, "the store has no trigger")),
            None => see(Finding::of_store(Place::Part(format!("{kind} {name}")), Class::ForeignObject, "it is not the store's")),
        }
    }
    for (name, (kind, _)) in missing {
        see(Finding::of_store(Place::Part(format!("{kind} {name}")), Class::SchemaConflict, "it is missing"));
    }
    Ok(())
}

/// Reads what there is, but for SQLite's own.
fn objects(conn: &Connection) -> rusqlite::Result<BTreeMap<String, (String, String)>> {
    let mut query = conn.prepare("SELECT name, type, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")?;
    query.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get::<_, Option<String>>(2)?.unwrap_or_default()))))?.collect()
}

/// Lets SQLite check its pages and its indexes.
fn file(conn: &Connection, see: See<'_>) -> rusqlite::Result<()> {
    let mut query = conn.prepare(&format!("PRAGMA integrity_check({MOST_FILE_FAULTS})"))?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let said = String::from_utf8_lossy(bytes(row, 0)?);
        if said != "ok" {
            see(Finding::of_store(Place::Part("file".to_owned()), Class::DamagedFile, said.into_owned()));
        }
    }
    Ok(())
}

/// Looks for sessions whose id is none, which nobody can ask for.
fn ids(conn: &Connection, see: See<'_>) -> rusqlite::Result<()> {
    let mut query = conn.prepare("SELECT id, sid FROM session")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        if session_id(bytes(row, 0)?).is_none() {
            let sid: i64 = row.get(1)?;
            see(Finding::of_store(Place::Part(format!("session row {sid}")), Class::MalformedRecord, "its id is none"));
        }
    }
    Ok(())
}

/// Looks for rows of sessions that are not there.
fn rows(conn: &Connection, see: See<'_>) -> rusqlite::Result<()> {
    let snapshot = conn.unchecked_transaction()?;
    let mut unowned: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
    for (table, what) in [("event", "events"), ("inbox", "messages")] {
        for sid in strangers(&snapshot, table)? {
            if table != "inbox" || sid != 0 || !is_number_alone(&snapshot)? {
                unowned.entry(sid).or_default().push(what);
            }
        }
    }
    for (sid, what) in &unowned {
        let what = format!("{} without a header", what.join(" and "));
        see(Finding::of_store(Place::Part(format!("session row {sid}")), Class::UnownedRecord, what));
    }
    let mut query = snapshot.prepare("SELECT id FROM removed WHERE id IN (SELECT id FROM session) ORDER BY id")?;
    let mut both = query.query([])?;
    while let Some(row) = both.next()? {
        let what = format!("session {} was removed and is still there", String::from_utf8_lossy(bytes(row, 0)?));
        see(Finding::of_store(Place::Part("removed".to_owned()), Class::TombstoneConflict, what));
    }
    for sid in strangers(&snapshot, "summary")? {
        see(Finding::of_store(Place::Index("summary"), Class::IndexForeign, format!("a derived row of session row {sid}, which is not there")));
    }
    for sid in strangers(&snapshot, "lease")? {
        see(Finding::of_store(Place::Lease, Class::LeaseOfNobody, format!("a lease of session row {sid}, which is not there")));
    }
    Ok(())
}

/// Tells whether what the inbox has under no session is the one row that a removal leaves, so that its number is not given twice.
fn is_number_alone(conn: &Connection) -> rusqlite::Result<bool> {
    let mut others =
        conn.prepare("SELECT message_id = CAST(id AS TEXT) AND ord = id AND hash = x'' AND state = 1 AND body IS NULL FROM inbox WHERE sid = 0")?;
    let found: Vec<bool> = others.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(found == [true])
}

/// Looks for holders that are gone and have left leases. One that ends takes its leases with it before it goes, so what is there after it has gone was left.
fn holders(conn: &Connection, liveness: &Liveness, see: See<'_>) -> rusqlite::Result<()> {
    let mut query = conn.prepare("SELECT DISTINCT owner FROM lease ORDER BY owner")?;
    let owners: Vec<Vec<u8>> = query.query_map([], |row| Ok(bytes(row, 0)?.to_vec()))?.collect::<rusqlite::Result<_>>()?;
    for column in owners {
        let owner = String::from_utf8_lossy(&column);
        if liveness.alive(conn, &owner)? {
            continue;
        }
        let left: i64 = conn
            .prepare_cached("SELECT count(*) FROM lease WHERE owner = CAST(?1 AS TEXT) AND sid IN (SELECT sid FROM session)")?
            .query_row([&column], |row| row.get(0))?;
        if left > 0 {
            let sessions = if left == 1 { "one session".to_owned() } else { format!("{left} sessions") };
            see(Finding::of_store(Place::Lease, Class::LeaseOfNobody, format!("{owner} is gone and has left {sessions}")));
        }
    }
    Ok(())
}

/// Returns the session numbers in a table that are none, one step for each number.
pub(super) fn strangers(conn: &Connection, table: &str) -> rusqlite::Result<Vec<i64>> {
    let mut next = conn.prepare_cached(&format!("SELECT min(sid) FROM {table} WHERE sid > ?1"))?;
    let mut first = conn.prepare_cached(&format!("SELECT min(sid) FROM {table}"))?;
    let mut known = conn.prepare_cached("SELECT 1 FROM session WHERE sid = ?1")?;
    let mut found = Vec::new();
    let mut order = Ascending::new("session numbers", None);
    let mut at: Option<i64> = first.query_row([], |row| row.get(0))?;
    while let Some(sid) = at {
        order.next(sid)?;
        if !known.exists([sid])? {
            found.push(sid);
        }
        at = next.query_row(params![sid], |row| row.get(0))?;
    }
    Ok(found)
}

/// Compares the tally and the set of missing parents with the tables. That a session's own row says rightly whether it has work is its own check.
fn index(conn: &Connection, see: See<'_>) -> rusqlite::Result<()> {
    let snapshot = conn.unchecked_transaction()?;
    // Both come in byte order, by their indexes.
    let missing = tally::missing_parents(&snapshot)?;
    let kept = tally::kept_orphans(&snapshot)?;
    for parent in kept.iter().filter(|parent| missing.binary_search(parent).is_err()) {
        see(Finding::of_store(Place::Index("orphan"), Class::IndexStale, format!("{parent} is in the store, or nobody's parent")));
    }
    for parent in missing.iter().filter(|parent| kept.binary_search(parent).is_err()) {
        see(Finding::of_store(Place::Index("orphan"), Class::IndexStale, format!("{parent} is somebody's parent and not in the store")));
    }
    let mut tell = |class, what: String| see(Finding::of_store(Place::Index("tally"), class, what));
    match tally::look(&snapshot)? {
        Kept::Good(tally) => {
            if tally.work != tally::count_work(&snapshot)? {
                tell(Class::IndexStale, "it does not fit the sessions that have work".into());
            }
            if tally.orphans != tally::count_parents(&missing) {
                tell(Class::IndexStale, "it does not fit the parents that are missing".into());
            }
        }
        Kept::Missing => tell(Class::IndexMissing, "the store has no tally".into()),
        Kept::Damaged => tell(Class::IndexDamaged, "it does not fit its checksum".into()),
        Kept::Stale { to, now } if to.sessions > now.sessions => {
            let what = format!("the tally knows of session row {}, and the last one is {}", to.sessions, now.sessions);
            see(Finding::of_store(Place::Store, Class::Truncated, what));
        }
        Kept::Stale { to, now } if to.removals > now.removals => {
            let what = format!("the tally knows of {} removals, and there are {}", to.removals, now.removals);
            see(Finding::of_store(Place::Store, Class::Truncated, what));
        }
        Kept::Stale { .. } => tell(Class::IndexStale, "it goes up to other rows than there are".into()),
    }
    Ok(())
}
