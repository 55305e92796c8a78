//! The derived row of a session: its head and what a listing says of it, so that neither needs the log.
//!
//! Both halves carry a checksum that binds them to their session. The head is good while the log and the inbox end where it says; the
//! verdict is decided at creation and bound to the header. Whatever is missing, damaged or stale is derived from the log again.

use rusqlite::{Connection, Row, params};

use super::{
    log::{Found, bytes, crc_of, fold_found, held, next_order, next_seq},
    scan,
};
use crate::{
    codec::DecodeError,
    head::Head,
    id::SessionId,
    listing::{Summary, Verdict},
    repair::Quarantine,
    store::LoadError,
};

fn bound(kind: &[u8], id: &SessionId) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(kind), id.as_str().as_bytes());
    crc32c::crc32c_append(crc, b"\0")
}

fn head_crc(id: &SessionId, text: &[u8]) -> u32 {
    crc32c::crc32c_append(bound(b"s\0", id), text)
}

fn verdict_crc(id: &SessionId, header: u32, text: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(bound(b"v\0", id), &header.to_be_bytes()), text)
}

/// Returns the head in two columns if they are whole; whether it is stale is another question.
pub(super) fn whole_head(id: &SessionId, row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Head>> {
    let text = bytes(row, column)?;
    if text.is_empty() || crc_of(row, column + 1)? != Some(head_crc(id, text)) {
        return Ok(None);
    }
    Ok(scan::head(text).or_else(|| serde_json::from_slice(text).ok()))
}

/// What three columns say of a verdict.
#[derive(Debug)]
pub(super) enum KeptVerdict {
    /// They are damaged or lost.
    NoGood,
    /// They say that the session is not to be believed.
    Disowned(Disowned),
    /// They are whole.
    Good(Verdict),
}

/// Why a session is not to be believed, by its derived row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Disowned {
    /// The row was made for another header: a header never changes, so the one that is there is not the one that was written.
    OfAnotherHeader,
    /// A repair has quarantined it.
    Quarantined(Quarantine),
}

impl Disowned {
    /// Says so of a session.
    pub(super) fn of(&self, id: &SessionId) -> LoadError {
        let (place, source) = match self {
            Self::OfAnotherHeader => ("header", DecodeError::Misplaced(ANOTHER_HEADER.into())),
            Self::Quarantined(quarantine) => ("log", DecodeError::Quarantined(quarantine.to_string())),
        };
        LoadError::Corrupt { session: id.clone(), place: place.into(), source }
    }
}

/// What stands for the header's checksum in the row of a session that is quarantined; no checksum is negative.
const QUARANTINED: i64 = -1;

fn quarantine_crc(id: &SessionId, text: &[u8]) -> u32 {
    crc32c::crc32c_append(bound(b"q\0", id), text)
}

/// Writes into the derived row of a session that it is quarantined: it has no work, and nothing more is derived of it.
pub(super) fn quarantine(conn: &Connection, id: &SessionId, sid: i64, quarantine: &Quarantine) -> rusqlite::Result<()> {
    let text = text(quarantine)?;
    let crc = quarantine_crc(id, text.as_bytes());
    conn.prepare_cached("INSERT OR IGNORE INTO summary(sid, head, head_crc, work, verdict, verdict_crc, header_crc) VALUES(?1, '', 0, 0, '', 0, 0)")?
        .execute([sid])?;
    conn.prepare_cached("UPDATE summary SET work = 0, verdict = ?2, verdict_crc = ?3, header_crc = ?4, alias_of = NULL, alias = NULL WHERE sid = ?1")?
        .execute(params![sid, text, crc, QUARANTINED])?;
    Ok(())
}

/// Tells whether a session is quarantined.
pub(super) fn quarantined(conn: &Connection, id: &SessionId) -> rusqlite::Result<Option<Quarantine>> {
    let mut query = conn
        .prepare_cached("SELECT m.verdict, m.verdict_crc, m.header_crc FROM session s JOIN summary m ON m.sid = s.sid WHERE s.id = ?1 AND m.header_crc = ?2")?;
    let mut rows = query.query(params![id.as_str(), QUARANTINED])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(match kept_verdict(id, 0, row, 0)? {
        KeptVerdict::Disowned(Disowned::Quarantined(quarantine)) => Some(quarantine),
        _ => None,
    })
}

/// Refuses a session that is quarantined.
pub(super) fn refuse_quarantined(conn: &Connection, id: &SessionId) -> Result<(), LoadError> {
    quarantined(conn, id)?.map_or(Ok(()), |quarantine| Err(Disowned::Quarantined(quarantine).of(id)))
}

/// Returns the verdict in three columns, which must belong to the header of checksum `header`.
pub(super) fn kept_verdict(id: &SessionId, header: u32, row: &Row<'_>, column: usize) -> rusqlite::Result<KeptVerdict> {
    let text = bytes(row, column)?;
    if text.is_empty() {
        return Ok(KeptVerdict::NoGood);
    }
    if row.get::<_, i64>(column + 2)? == QUARANTINED {
        let whole = crc_of(row, column + 1)? == Some(quarantine_crc(id, text));
        let said = if whole { serde_json::from_slice(text).ok() } else { None };
        return Ok(said.map_or(KeptVerdict::NoGood, |quarantine| KeptVerdict::Disowned(Disowned::Quarantined(quarantine))));
    }
    let Some(made_for) = crc_of(row, column + 2)? else { return Ok(KeptVerdict::NoGood) };
    if crc_of(row, column + 1)? != Some(verdict_crc(id, made_for, text)) {
        return Ok(KeptVerdict::NoGood);
    }
    if made_for != header {
        return Ok(KeptVerdict::Disowned(Disowned::OfAnotherHeader));
    }
    let verdict = scan::verdict(text).or_else(|| serde_json::from_slice(text).ok());
    Ok(verdict.map_or(KeptVerdict::NoGood, KeptVerdict::Good))
}

/// What is wrong with a header for which the derived row was not made.
pub(super) const ANOTHER_HEADER: &str = "it is not the header that the session's derived row was made for";

/// Reads the derived row; `None` unless all of it is good.
///
/// # Errors
/// [`LoadError::Corrupt`] if the row says that the session is not to be believed.
pub(super) fn read(conn: &Connection, id: &SessionId, found: &Found) -> Result<Option<Summary>, LoadError> {
    let mut query = conn.prepare_cached("SELECT head, head_crc, verdict, verdict_crc, header_crc, work FROM summary WHERE sid = ?1")?;
    let mut rows = query.query([found.sid])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let verdict = match kept_verdict(id, found.crc, row, 2)? {
        KeptVerdict::Good(verdict) => verdict,
        KeptVerdict::NoGood => return Ok(None),
        KeptVerdict::Disowned(disowned) => return Err(disowned.of(id)),
    };
    let Some(head) = whole_head(id, row, 0)? else { return Ok(None) };
    if found.header.is_fork() && verdict != Verdict::Plain {
        return Ok(None);
    }
    // A release adds nothing to either end.
    let fresh = head.next_seq == next_seq(conn, found.sid)? && head.next_order == next_order(conn, found.sid)? && head.held == held(conn, found.sid)?;
    let indexed = head.wants_holder() == (row.get::<_, i64>(5)? != 0);
    Ok((fresh && indexed).then_some(Summary { head, verdict }))
}

/// Derives what the row must say from the log, of a session whose row has been looked at: one that was made for another header says that nobody knows whose
/// log it is.
pub(super) fn derive(conn: &Connection, id: &SessionId, found: &Found) -> Result<Summary, LoadError> {
    Ok(Summary::of(&fold_found(conn, id, found)?))
}

/// Reads the derived row, or the log where the row is no good.
pub(super) fn read_or_derive(conn: &Connection, id: &SessionId, found: &Found) -> Result<Summary, LoadError> {
    match read(conn, id, found)? {
        Some(summary) => Ok(summary),
        None => derive(conn, id, found),
    }
}

/// Writes the whole row.
pub(super) fn put(conn: &Connection, id: &SessionId, found: &Found, summary: &Summary) -> rusqlite::Result<()> {
    let head = text(&summary.head)?;
    let verdict = text(&summary.verdict)?;
    let alias = match &summary.verdict {
        Verdict::Child { alias, .. } => alias.as_deref(),
        Verdict::Root { .. } | Verdict::Plain | Verdict::Broken { .. } => None,
    };
    conn.prepare_cached(
        "INSERT OR REPLACE INTO summary(sid, head, head_crc, work, verdict, verdict_crc, header_crc, alias_of, alias) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        found.sid,
        head,
        head_crc(id, head.as_bytes()),
        summary.head.wants_holder(),
        verdict,
        verdict_crc(id, found.crc, verdict.as_bytes()),
        found.crc,
        found.header.parent.as_ref().filter(|_| alias.is_some()).map(SessionId::as_str),
        alias,
    ])?;
    Ok(())
}

/// Writes the head into a row that is there.
pub(super) fn put_head(conn: &Connection, id: &SessionId, sid: i64, head: &Head) -> rusqlite::Result<()> {
    let text = text(head)?;
    let crc = head_crc(id, text.as_bytes());
    conn.prepare_cached("UPDATE summary SET head = ?2, head_crc = ?3, work = ?4 WHERE sid = ?1")?.execute(params![sid, text, crc, head.wants_holder()])?;
    Ok(())
}

fn text(value: &impl serde::Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}
