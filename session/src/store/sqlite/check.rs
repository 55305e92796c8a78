//! The check of one session: its rows, and the derived row that belongs to them, in one snapshot.
//!
//! Whatever a column holds is judged, not trusted: a value of another type and a page that SQLite refuses are findings, and only a store that cannot
//! be read at all is an error.

use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params, types::ValueRef};

use super::{
    log::{self, Found, bytes, crc_of, header_of, kind_column, unsigned},
    summary::{self, Disowned, KeptVerdict, kept_verdict, whole_head},
};
use crate::{
    check::{Checked, Class, Finding, Kept, Place, SessionCheck, lineage},
    codec::{DecodeError, decode_event, decode_message},
    header::Header,
    id::{Order, SessionId},
    listing::{Summary, Verdict},
    store::{LoadError, StoreError},
};

/// What a session's rows are found to be.
#[derive(Debug)]
pub(super) struct Examined {
    pub(super) checked: Checked,
    pub(super) findings: Vec<Finding>,
}

/// Checks a session in one snapshot; `None` if there is none.
pub(super) fn check(conn: &Connection, id: &SessionId) -> Result<Option<Examined>, StoreError> {
    let snapshot = conn.unchecked_transaction()?;
    let Some((sid, mut examined)) = examine(&snapshot, id)? else { return Ok(None) };
    if let (Some(epoch), Some((head, _))) = (lease(&snapshot, sid)?, &examined.checked.derived)
        && (!head.live || log::signed(head.epoch) != epoch)
    {
        examined.findings.push(Finding::of(id, Place::Lease, Class::LeaseOfNobody, format!("it is of epoch {epoch}, which does not go on")));
    }
    Ok(Some(examined))
}

fn lease(conn: &Connection, sid: i64) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached("SELECT epoch FROM lease WHERE sid = ?1")?.query_row([sid], |row| row.get(0)).optional()
}

/// Checks a session within a snapshot, leases aside.
fn examine(conn: &Connection, id: &SessionId) -> Result<Option<(i64, Examined)>, StoreError> {
    let found = match session_row(conn, id) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(None),
        Err(error) => {
            let findings = vec![Finding::of(id, Place::Header, Class::DamagedFile, broken(error)?)];
            let checked = Checked { events: 0, messages: 0, next_seq: 0, next_order: 0, derived: None };
            return Ok(Some((-1, Examined { checked, findings })));
        }
    };
    let (sid, crc, header) = found;
    let kin = match &header {
        Ok(header) => lineage(header, |id| header_at(conn, id))?,
        Err(_) => Vec::new(),
    };
    let mut session = SessionCheck::new(id, header.clone());
    // Where rows were told that cannot be read or stand nowhere, it is not known where the session ends.
    let mut cut = false;
    match messages(conn, id, sid, &mut session) {
        Ok(placed) => cut |= !placed,
        Err(error) => {
            session.find(Place::Inbox, Class::DamagedFile, broken(error)?);
            session.lose_messages();
            cut = true;
        }
    }
    match events(conn, id, sid, &mut session) {
        Ok(placed) => cut |= !placed,
        Err(error) => {
            session.find(Place::Event(session.next_seq()), Class::DamagedFile, broken(error)?);
            session.lose_events();
            cut = true;
        }
    }
    let (checked, mut findings) = session.end();
    if let (Ok(header), false) = (&header, cut) {
        let found = derived_row(conn, id, sid, header, crc, &checked).and_then(|found| {
            let row_good = found.is_empty();
            findings.extend(found);
            alias(conn, id, sid, header, &checked, row_good)
        });
        match found {
            Ok(found) => findings.extend(found),
            Err(error) => findings.push(Finding::of(id, Place::Index("summary"), Class::DamagedFile, broken(error)?)),
        }
    }
    findings.extend(kin);
    // A header that was changed is told once, by what is wrong in it where that can be said.
    let told = findings.iter().filter(|finding| matches!(finding.class, Class::HeaderConflict | Class::LineageCycle)).count();
    if told > 1 {
        findings.retain(|finding| finding.what != summary::ANOTHER_HEADER);
    }
    findings.sort_by(|a, b| a.place.cmp(&b.place));
    Ok(Some((sid, Examined { checked, findings })))
}

/// Says what is wrong with a page or a column that cannot be read; any other failure is one of the store.
pub(super) fn broken(error: rusqlite::Error) -> Result<String, StoreError> {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => Ok(error.to_string()),
        _ => Ok(odd(error)?.to_string()),
    }
}

fn header_at(conn: &Connection, id: &SessionId) -> Result<Option<Arc<Header>>, LoadError> {
    let source = match session_row(conn, id) {
        Ok(Some((_, _, Ok(header)))) => return Ok(Some(header)),
        Ok(Some((_, _, Err(error)))) => error,
        Ok(None) => return Ok(None),
        Err(error) => DecodeError::Malformed(broken(error)?),
    };
    Err(LoadError::Corrupt { session: id.clone(), place: "header".into(), source })
}

/// Turns the error of a column of another type into that of the record.
fn odd(error: rusqlite::Error) -> rusqlite::Result<DecodeError> {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    match error {
        InvalidColumnType(..) | FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) => {
            Ok(DecodeError::Malformed("a column holds a value of another type".into()))
        }
        error => Err(error),
    }
}

type Headed = (i64, u32, Result<Arc<Header>, DecodeError>);

fn session_row(conn: &Connection, id: &SessionId) -> rusqlite::Result<Option<Headed>> {
    let mut query = conn.prepare_cached("SELECT sid, id, parent_id, created_at, header, crc, length(creation) FROM session WHERE id = ?1")?;
    let mut rows = query.query([id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let mut header = header_of(row, id).or_else(|error| odd(error).map(Err))?;
    // A mark stands behind the hash of one that was imported.
    if header.is_ok() && !matches!(integer(row, 6)?, Some(16 | 17)) {
        header = Err(DecodeError::Malformed("what tells its creation from another is not a hash".into()));
    }
    Ok(Some((row.get(0)?, crc_of(row, 5).ok().flatten().unwrap_or_default(), header)))
}

/// Reads an id out of a column, if it is one.
pub(super) fn session_id(column: &[u8]) -> Option<SessionId> {
    std::str::from_utf8(column).ok().and_then(|text| SessionId::new(text).ok())
}

fn integer(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<i64>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(value) => Some(value),
        _ => None,
    })
}

/// Hands the events over; tells whether each stands at a seq.
fn events(conn: &Connection, id: &SessionId, sid: i64, session: &mut SessionCheck) -> rusqlite::Result<bool> {
    let mut placed = true;
    let mut query = conn.prepare_cached("SELECT seq, body, crc FROM event WHERE sid = ?1 ORDER BY seq")?;
    let mut rows = query.query([sid])?;
    while let Some(row) = rows.next()? {
        let Some(seq) = integer(row, 0)?.and_then(|seq| u64::try_from(seq).ok()) else {
            session.find(Place::Log, Class::MisplacedRecord, "an event whose seq is none");
            session.lose_events();
            placed = false;
            continue;
        };
        let event = match crc_of(row, 2) {
            Ok(Some(crc)) => decode_event(id, seq, bytes(row, 1)?, crc),
            Ok(None) => Err(DecodeError::Checksum),
            Err(error) => Err(odd(error)?),
        };
        session.event(seq, event);
    }
    Ok(placed)
}

/// Hands the messages over; tells whether each stands at an order.
fn messages(conn: &Connection, id: &SessionId, sid: i64, session: &mut SessionCheck) -> rusqlite::Result<bool> {
    let mut placed = true;
    // In the order of the index, so that nothing is sorted.
    let mut query =
        conn.prepare_cached("SELECT ord, state, message_id, hash, kind, wake, held, body, crc FROM inbox WHERE sid = ?1 ORDER BY state, ord, kind")?;
    let mut rows = query.query([sid])?;
    while let Some(row) = rows.next()? {
        let Some(order) = integer(row, 0)?.and_then(|order| u64::try_from(order).ok()) else {
            session.find(Place::Inbox, Class::MisplacedRecord, "a message whose order is none");
            session.lose_messages();
            placed = false;
            continue;
        };
        match message(id, order, row) {
            Ok(Ok((kept, conflict))) => {
                session.message(order, Ok(kept));
                if let Some(what) = conflict {
                    session.find(Place::Message(order), Class::TombstoneConflict, what);
                }
            }
            Ok(Err(error)) => session.message(order, Err(error)),
            Err(error) => session.message(order, Err(odd(error)?)),
        }
    }
    Ok(placed)
}

type Kind = (Kept, Option<&'static str>);

/// Reads a row of the inbox, and says what is wrong with what will tell later copies of its message.
fn message(id: &SessionId, order: Order, row: &Row<'_>) -> rusqlite::Result<Result<Kind, DecodeError>> {
    let Some(crc) = crc_of(row, 8)? else { return Ok(Err(DecodeError::Checksum)) };
    let (name, hash) = (bytes(row, 2)?, bytes(row, 3)?);
    match row.get::<_, i64>(1)? {
        0 => {
            let held = row.get::<_, i64>(6)? != 0;
            let message = match decode_message(id, order, held, bytes(row, 7)?, crc) {
                Ok(message) => message,
                Err(error) => return Ok(Err(error)),
            };
            let fits =
                name == message.id.as_str().as_bytes() && row.get::<_, i64>(4)? == kind_column(message.kind) && (row.get::<_, i64>(5)? != 0) == message.wake;
            if !fits {
                return Ok(Err(DecodeError::Misplaced("its columns say something else than its body".into())));
            }
            let conflict = (hash != message.hash().0).then_some("its hash is of another body");
            Ok(Ok((Kept::Waiting { message, held }, conflict)))
        }
        1 => {
            let tombstone = match log::tombstone(id, row, [0, 2, 3, 4, 5, 6, 8])? {
                Ok(tombstone) => tombstone,
                Err(error) => return Ok(Err(error)),
            };
            let conflict = (row.get_ref(7)? != ValueRef::Null).then_some("it has left the inbox and its text is still there");
            Ok(Ok((Kept::Taken(tombstone), conflict)))
        }
        state => Ok(Err(DecodeError::Malformed(format!("state {state} is neither waiting nor gone")))),
    }
}

/// Compares the derived row with what follows from the records.
fn derived_row(conn: &Connection, id: &SessionId, sid: i64, header: &Header, crc: u32, checked: &Checked) -> rusqlite::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut tell = |place: Place, class: Class, what: String| findings.push(Finding::of(id, place, class, what));
    let mut query = conn.prepare_cached("SELECT head, head_crc, work, verdict, verdict_crc, header_crc, alias_of, alias FROM summary WHERE sid = ?1")?;
    let mut rows = query.query([sid])?;
    let Some(row) = rows.next()? else {
        // Of a damaged log no row can be derived.
        if checked.derived.is_some() {
            tell(Place::Index("summary"), Class::IndexMissing, "the session has no derived row".into());
        }
        return Ok(findings);
    };
    let (mut derived_head, mut derived_verdict) = checked.derived.as_ref().map(|(head, verdict)| (head, verdict)).unzip();
    match kept_verdict(id, crc, row, 3).or_else(|error| odd(error).map(|_| KeptVerdict::NoGood))? {
        KeptVerdict::Disowned(disowned) => {
            if disowned == Disowned::OfAnotherHeader {
                tell(Place::Header, Class::HeaderConflict, summary::ANOTHER_HEADER.into());
            }
            // Nothing is derived of a log of which nobody knows whose it is.
            (derived_head, derived_verdict) = (None, None);
        }
        KeptVerdict::NoGood => tell(Place::Index("summary.verdict"), Class::IndexDamaged, "it does not fit its checksum".into()),
        KeptVerdict::Good(verdict) if derived_verdict.is_some_and(|derived| *derived != verdict) => {
            tell(Place::Index("summary.verdict"), Class::IndexStale, "it says something else than the log".into());
        }
        KeptVerdict::Good(_) => {}
    }
    match whole_head(id, row, 0).or_else(|error| odd(error).map(|_| None))? {
        None => tell(Place::Index("summary.head"), Class::IndexDamaged, "it does not fit its checksum".into()),
        // It was written with the records, so where it goes further, records were lost.
        Some(head) if head.next_seq > checked.next_seq => {
            let what = format!("it ends before event {}, and its derived row knows of event {}", checked.next_seq, head.next_seq - 1);
            tell(Place::Log, Class::Truncated, what);
            derived_head = None;
        }
        Some(head) if head.next_order > checked.next_order => {
            let what = format!("it ends before message {}, and its derived row knows of message {}", checked.next_order, head.next_order - 1);
            tell(Place::Inbox, Class::Truncated, what);
            derived_head = None;
        }
        Some(head) if derived_head.is_some_and(|derived| *derived != head) => {
            tell(Place::Index("summary.head"), Class::IndexStale, "it says something else than the log and the inbox".into());
        }
        Some(_) => {}
    }
    if derived_head.is_some_and(|head| !matches!(row.get_ref(2), Ok(ValueRef::Integer(work)) if work == i64::from(head.wants_holder()))) {
        tell(Place::Index("summary.work"), Class::IndexStale, "whether the session has work is not what its log says".into());
    }
    if let Some(verdict) = derived_verdict {
        let alias = alias_in(verdict);
        let parent = header.parent.as_ref().filter(|_| alias.is_some()).map(SessionId::as_str);
        let is = |column: usize, expected: Option<&str>| {
            Ok::<_, rusqlite::Error>(match row.get_ref(column)? {
                ValueRef::Null => expected.is_none(),
                ValueRef::Text(text) => expected.is_some_and(|expected| expected.as_bytes() == text),
                _ => false,
            })
        };
        if !is(6, parent)? || !is(7, alias)? {
            tell(Place::Index("summary.alias"), Class::IndexStale, "it is not the alias in the descriptor".into());
        }
    }
    Ok(findings)
}

fn alias_in(verdict: &Verdict) -> Option<&str> {
    match verdict {
        Verdict::Child { alias, .. } => alias.as_deref(),
        Verdict::Root { .. } | Verdict::Plain | Verdict::Broken { .. } => None,
    }
}

/// Looks for a sibling with the same alias by the siblings' derived rows; the younger of two tells it, or the one whose own row is no good. Two that
/// have no good row find each other when the index has been derived again.
fn alias(conn: &Connection, id: &SessionId, sid: i64, header: &Header, checked: &Checked, row_good: bool) -> rusqlite::Result<Option<Finding>> {
    let (Some(parent), Some((_, verdict))) = (&header.parent, &checked.derived) else { return Ok(None) };
    let Some(alias) = alias_in(verdict) else { return Ok(None) };
    let mut query = conn.prepare_cached(
        "SELECT s.id, s.created_at, s.crc, m.verdict, m.verdict_crc, m.header_crc FROM summary m JOIN session s ON s.sid = m.sid AND s.parent_id = m.alias_of
         WHERE m.alias_of = ?1 AND m.alias = ?2 AND m.alias IS NOT NULL AND m.sid != ?3",
    )?;
    let mut rows = query.query(params![parent.as_str(), alias, sid])?;
    while let Some(row) = rows.next()? {
        let Some(other) = session_id(bytes(row, 0)?) else { continue };
        let KeptVerdict::Good(named) = kept_verdict(&other, crc_of(row, 2)?.unwrap_or_default(), row, 3)? else { continue };
        let younger = (header.created_at, id) > (unsigned(row.get(1)?), &other);
        if alias_in(&named) == Some(alias) && (younger || !row_good) {
            let what = format!("{other} has the alias {alias:?}, too");
            return Ok(Some(Finding::of(id, Place::Header, Class::DuplicateAlias, what)));
        }
    }
    Ok(None)
}

/// Tells whether a session's row is the one that [`derive_row`] would write, and how long its log is; `None` if there is no session.
///
/// A session can be damaged and yet have a row that follows from it. Of one that cannot be read nothing follows, and its row is left if it is whole.
pub(super) fn is_derived(conn: &Connection, id: &SessionId) -> Result<Option<(bool, u64)>, StoreError> {
    let derived = log::find(conn, id).and_then(|found| match found {
        Some(found) => match derive_anew(conn, id, &found) {
            Ok(summary) => Ok(Some((found, Some(summary)))),
            Err(LoadError::Store(error)) => Err(error.into()),
            Err(_) => Ok(Some((found, None))),
        },
        None => Ok(None),
    });
    let (found, summary) = match derived {
        Ok(Some(both)) => both,
        Ok(None) => return Ok(None),
        Err(LoadError::Store(error)) => return Err(error),
        // Its row is bound to a header that cannot be read; it must not pass for one with work.
        Err(_) => return Ok(Some((!has_work(conn, id)?, 0))),
    };
    let Some(Summary { head, verdict }) = summary else {
        let there = conn.prepare_cached("SELECT 1 FROM summary WHERE sid = ?1")?.exists([found.sid])?;
        let good = match summary::read(conn, id, &found) {
            Ok(row) => !there || row.is_some(),
            Err(LoadError::Store(error)) => return Err(error),
            // It is the row that tells that the header is not the one that was written.
            Err(_) => !has_work(conn, id)?,
        };
        return Ok(Some((good, 0)));
    };
    let length = head.next_seq;
    let checked = Checked { events: length, messages: 0, next_seq: length, next_order: head.next_order, derived: Some((head, verdict)) };
    let good = derived_row(conn, id, found.sid, &found.header, found.crc, &checked)?.is_empty();
    Ok(Some((good, length)))
}

/// Derives what a session's row must say from the log, whether or not the row is good, unless it tells that the header is another one.
fn derive_anew(conn: &Connection, id: &SessionId, found: &Found) -> Result<Summary, LoadError> {
    summary::read(conn, id, found)?;
    summary::derive(conn, id, found)
}

/// Tells whether a session's row says that it has work.
fn has_work(conn: &Connection, id: &SessionId) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM summary WHERE work != 0 AND sid = (SELECT sid FROM session WHERE id = ?1)")?.exists([id.as_str()])
}

/// Derives a session's row again and writes it, in a write transaction; tells whether the log could be read. Of a damaged log nothing is derived, and it
/// has no work that could be done.
pub(super) fn derive_row(conn: &Connection, id: &SessionId) -> Result<bool, StoreError> {
    let derived = log::find(conn, id).and_then(|found| match found {
        Some(found) => derive_anew(conn, id, &found).map(|summary| Some((found, summary))),
        None => Ok(None),
    });
    match derived {
        Ok(Some((found, summary))) => {
            summary::put(conn, id, &found, &summary)?;
            Ok(true)
        }
        // It was removed meanwhile, and its row with it.
        Ok(None) => Ok(true),
        Err(LoadError::Store(error)) => Err(error),
        Err(_) => {
            conn.prepare_cached("UPDATE summary SET work = 0 WHERE sid = (SELECT sid FROM session WHERE id = ?1)")?.execute([id.as_str()])?;
            Ok(false)
        }
    }
}
