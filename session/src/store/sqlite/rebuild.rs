//! Deriving again what is derived, beside whoever else uses the store.
//!
//! What is no good is looked for without a lock; only then a short write transaction derives a few rows again and writes them. The last one sets the
//! tally and the set of missing parents. Ended anywhere, it leaves rows that are right beside rows that are noticed: a row that is no good is not
//! believed, and a tally that does not fit its set proves nothing. Ground truth is only read.

use rusqlite::{Connection, OptionalExtension};

use super::{
    SqliteReader, audit,
    check::{self, derive_row},
    log::name,
    node::Liveness,
    summary,
    tally::{self, Tally},
};
use crate::{
    check::Rebuilt,
    id::SessionId,
    repair::Quarantine,
    store::{Reader, StoreError},
};

/// Most rows that one transaction derives again.
const MOST_ROWS: usize = 64;

/// Most events that one transaction reads for them, unless one session has more.
const MOST_EVENTS: u64 = 50_000;

/// How many sessions are named at a time.
const PAGE: usize = 1_000;

/// Derives again what is no good, of one session or of all. `write` does its work within a write transaction.
pub(super) fn rebuild(
    reader: &mut SqliteReader,
    only: Option<&SessionId>,
    write: &mut dyn FnMut(&mut Work<'_>) -> Result<(), StoreError>,
    see: &mut dyn FnMut(Rebuilt),
) -> Result<(), StoreError> {
    let mut bad: Vec<SessionId> = Vec::new();
    let mut events = 0;
    let mut after: Option<SessionId> = None;
    loop {
        let page = match only {
            Some(id) => vec![id.clone()],
            None => reader.sessions(after.as_ref(), PAGE)?,
        };
        for id in &page {
            let Some(length) = reader.needs_row(id)? else { continue };
            if !bad.is_empty() && (bad.len() >= MOST_ROWS || events + length > MOST_EVENTS) {
                rows(&std::mem::take(&mut bad), write, see)?;
                events = 0;
            }
            bad.push(id.clone());
            events += length;
        }
        match page.last() {
            Some(last) if only.is_none() => after = Some(last.clone()),
            _ => break,
        }
    }
    rows(&bad, write, see)?;
    let mut done = Vec::new();
    write(&mut |conn| {
        done = sets(conn)?;
        Ok(())
    })?;
    done.into_iter().for_each(see);
    Ok(())
}

/// What is done within a write transaction.
pub(super) type Work<'a> = dyn FnMut(&Connection) -> Result<(), StoreError> + 'a;

fn rows(ids: &[SessionId], write: &mut dyn FnMut(&mut Work<'_>) -> Result<(), StoreError>, see: &mut dyn FnMut(Rebuilt)) -> Result<(), StoreError> {
    if ids.is_empty() {
        return Ok(());
    }
    let mut done = Vec::new();
    write(&mut |conn| {
        done.clear();
        for id in ids {
            done.push(if derive_row(conn, id)? { Rebuilt::Session(id.clone()) } else { Rebuilt::Left(id.clone()) });
        }
        Ok(())
    })?;
    done.into_iter().for_each(see);
    Ok(())
}

/// Sets what belongs to the store as a whole, where it is not what it must be.
fn sets(conn: &Connection) -> Result<Vec<Rebuilt>, StoreError> {
    let mut done = Vec::new();
    let foreign = audit::strangers(conn, "summary")?;
    for sid in &foreign {
        conn.execute("DELETE FROM summary WHERE sid = ?1", [sid])?;
    }
    if !foreign.is_empty() {
        done.push(Rebuilt::Foreign(foreign.len() as u64));
    }
    let missing = tally::missing_parents(conn)?;
    let mut kept = tally::kept_orphans(conn)?;
    kept.sort_unstable();
    if kept != missing {
        conn.execute("DELETE FROM orphan", [])?;
        for parent in &missing {
            conn.execute("INSERT INTO orphan(parent_id) VALUES(?1)", [parent])?;
        }
        done.push(Rebuilt::Orphans);
    }
    let tally = Tally { work: tally::count_work(conn)?, orphans: tally::count_parents(&missing) };
    if tally::read(conn)? != Some(tally) {
        tally::write(conn, &tally)?;
        done.push(Rebuilt::Tally);
    }
    Ok(done)
}

/// Quarantines a session unless somebody alive holds it, and keeps what belongs to the store as a whole right. Tells whether it was done.
pub(super) fn quarantine(conn: &Connection, liveness: &Liveness, id: &SessionId, quarantine: &Quarantine) -> Result<bool, StoreError> {
    let found: Option<i64> = conn.prepare_cached("SELECT sid FROM session WHERE id = ?1")?.query_row([id.as_str()], |row| row.get(0)).optional()?;
    let Some(sid) = found else { return Ok(false) };
    let holder = conn.prepare_cached("SELECT owner FROM lease WHERE sid = ?1")?.query_row([sid], |row| name(row, 0)).optional()?;
    if let Some(holder) = holder
        && liveness.alive(conn, &holder)?
    {
        return Ok(false);
    }
    summary::quarantine(conn, id, sid, quarantine)?;
    sets(conn)?;
    Ok(true)
}

impl SqliteReader {
    /// Returns the length of a session's log if its derived row is not the one that [`derive_row`] would write.
    fn needs_row(&mut self, id: &SessionId) -> Result<Option<u64>, StoreError> {
        let snapshot = self.conn().unchecked_transaction()?;
        Ok(check::is_derived(&snapshot, id)?.filter(|(good, _)| !good).map(|(_, length)| length))
    }
}
