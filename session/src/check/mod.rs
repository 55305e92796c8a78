//! Verifying a store: every record, every log by the one fold, every derived row against what the records say. Nothing is written.
//!
//! - `finding`: what is found. `session`: the check of one session's records. `lineage`: a header against its parent's.
//!
//! [`check`] verifies a store. What only a store knows (rows, lines, its index) its [`Reader`] says. Sessions come in the order of their ids, and
//! a session's findings in the order of their places; those of the store itself come last. A session is read in one moment, so that whoever writes
//! meanwhile is never told of. Every class has its meaning and its severity in `docs/check.md`.

use std::fmt;

use crate::{
    id::SessionId,
    store::{LoadError, Reader, StoreError},
};

mod finding;
mod lineage;
mod session;

pub use finding::{Class, Finding, Place, Severity, Spot};
pub use lineage::lineage;
pub use session::{Checked, Kept, SessionCheck};

/// How many sessions are named at a time.
const PAGE: usize = 1_000;

/// How many events are read at a time where a store does not stream them.
const STRETCH: usize = 1_024;

/// What a check says as it goes on.
///
/// ```
/// use greenroom_session::{check::{Seen, check}, store::Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let mut seen = Vec::new();
/// check(&mut *store.reader()?, None, &mut |step| seen.push(format!("{step:?}")))?;
/// assert_eq!(seen, ["Sessions(1)", "Session { events: 2, messages: 0 }", "Store"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// There are about so many sessions.
    Sessions(u64),
    /// Something is wrong.
    Finding(Finding),
    /// A session has been looked at.
    Session {
        /// Its events.
        events: u64,
        /// Its messages.
        messages: u64,
    },
    /// All sessions have been looked at; now what belongs to none of them.
    Store,
}

/// What [`Store::rebuild_index`](crate::store::Store::rebuild_index) has changed.
///
/// ```
/// use greenroom_session::{check::Rebuilt, id::SessionId, store::{Store, memory::MemoryStore}};
/// // A store that keeps nothing derived changes nothing.
/// MemoryStore::new().rebuild_index(None, &mut |change: Rebuilt| panic!("{change}"))?;
/// assert_eq!(Rebuilt::Session(SessionId::new("r")?).to_string(), "r: derived again");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rebuilt {
    /// The derived row of a session was derived again.
    Session(SessionId),
    /// The derived row of a session is no good and was left, since the session itself is damaged.
    Left(SessionId),
    /// So many rows of no session were removed.
    Foreign(u64),
    /// The set of missing parents was derived again.
    Orphans,
    /// The tally was derived again.
    Tally,
}

impl fmt::Display for Rebuilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(id) => write!(f, "{id}: derived again"),
            Self::Left(id) => write!(f, "{id}: left as it was, since the session is damaged"),
            Self::Foreign(1) => f.write_str("one row of no session was removed"),
            Self::Foreign(rows) => write!(f, "{rows} rows of no session were removed"),
            Self::Orphans => f.write_str("missing parents: derived again"),
            Self::Tally => f.write_str("tally: derived again"),
        }
    }
}

/// Verifies a whole store, or one session with what is derived of it. Memory does not grow with the store.
///
/// # Errors
/// [`LoadError::NotFound`] if the one session is not there, [`StoreError`] if the store cannot be read at all. Damage is a [`Seen::Finding`].
pub fn check(reader: &mut dyn Reader, only: Option<&SessionId>, see: &mut dyn FnMut(Seen)) -> Result<(), LoadError> {
    if let Some(id) = only {
        see(Seen::Sessions(1));
        // As for a whole store: where all sessions are is looked at first, so that one that is in two places is found in both.
        reader.count()?;
        return if one(reader, id, see)? { Ok(()) } else { Err(LoadError::NotFound(id.clone())) };
    }
    see(Seen::Sessions(reader.count()?));
    let mut after: Option<SessionId> = None;
    loop {
        let page = reader.sessions(after.as_ref(), PAGE)?;
        for id in &page {
            one(reader, id, see)?;
        }
        match page.last() {
            Some(last) => after = Some(last.clone()),
            None => break,
        }
    }
    see(Seen::Store);
    reader.check_store(&mut |finding| see(Seen::Finding(finding)))?;
    Ok(())
}

fn one(reader: &mut dyn Reader, id: &SessionId, see: &mut dyn FnMut(Seen)) -> Result<bool, StoreError> {
    if let Some(quarantine) = reader.quarantine(id)? {
        see(Seen::Finding(Finding::of(id, Place::Log, Class::Quarantined, quarantine.to_string())));
        see(Seen::Session { events: 0, messages: 0 });
        return Ok(true);
    }
    let Some(checked) = reader.check(id, &mut |finding| see(Seen::Finding(finding)))? else { return Ok(false) };
    see(Seen::Session { events: checked.events, messages: checked.messages });
    Ok(true)
}

/// Checks a session with nothing but what every reader can be asked: the check of a store without rows of its own.
///
/// Damage that the reader refuses is told as it says it. Messages that have left the inbox are not looked at.
///
/// # Errors
/// [`StoreError`] if the store failed.
pub fn check_by_reading<R: Reader + ?Sized>(reader: &mut R, id: &SessionId, see: &mut dyn FnMut(Finding)) -> Result<Option<Checked>, StoreError> {
    let header = match reader.header(id) {
        Ok(Some(header)) => Ok(header),
        Ok(None) | Err(LoadError::NotFound(_) | LoadError::Removed(_)) => return Ok(None),
        Err(LoadError::Store(error)) => return Err(error),
        Err(LoadError::Corrupt { source, .. }) => Err(source),
        Err(LoadError::Fold { source, .. }) => Err(crate::codec::DecodeError::Malformed(source.to_string())),
    };
    let mut findings = match &header {
        Ok(header) => lineage(header, |id| reader.header(id))?,
        Err(_) => Vec::new(),
    };
    let mut session = SessionCheck::new(id, header);
    // What has left the inbox is known to the store alone.
    session.lose_messages();
    loop {
        let events = match reader.events(id, session.next_seq(), STRETCH) {
            Ok(events) => events,
            Err(LoadError::Store(error)) => return Err(error),
            Err(LoadError::Corrupt { source, .. }) => {
                session.event(session.next_seq(), Err(source));
                break;
            }
            Err(LoadError::NotFound(_) | LoadError::Removed(_) | LoadError::Fold { .. }) => break,
        };
        if events.is_empty() {
            break;
        }
        for event in events {
            session.event(event.seq, Ok(event));
        }
    }
    let (checked, found) = session.end();
    findings.extend(found);
    findings.sort_by(|a, b| a.place.cmp(&b.place));
    findings.into_iter().for_each(see);
    Ok(Some(checked))
}
