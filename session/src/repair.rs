//! Repair: what of a damaged store has one right answer is put right, and the rest is quarantined.
//!
//! [`plan`] looks at the whole store and writes nothing; [`Repair::apply`] does one thing that was planned. Whatever is whole stays as it is to the byte, and so does
//! a session that somebody holds. Each thing is done in one step of the store, so a repair that is cut off anywhere has done some of it, and the same again does the rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use crate::{
    check::{Class, Finding, Rebuilt, Seen, Severity, check},
    event::{Body, EpochEnd},
    fold::Fold,
    id::SessionId,
    recover::begin_epoch,
    store::{Close, CommitError, Done, Fence, LoadError, Op, Open, Reader, Refused, Store, StoreError},
};

mod kin;

/// That a session was quarantined, when, and for what.
///
/// ```
/// use greenroom_session::repair::Quarantine;
/// let quarantine = Quarantine { at: 1_764_547_200_000, found: vec!["checksum".into(), "seq_gap".into()] };
/// assert_eq!(quarantine.to_string(), "a repair has found checksum, seq_gap");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// Milliseconds since the Unix epoch.
    pub at: u64,
    /// The classes of what was found.
    pub found: Vec<String>,
}

impl fmt::Display for Quarantine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a repair has found {}", self.found.join(", "))
    }
}

/// What is done about a fault.
///
/// ```
/// use greenroom_session::repair::Action;
/// assert_eq!(Action::CutTail.as_str(), "cut_tail");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Action {
    /// What lies behind the last whole batch is cut off and kept beside the file. It was never acknowledged.
    CutTail,
    /// A turn and an epoch whose holder is gone are ended, as whoever runs the session next would. The message of the turn is served again then.
    EndEpoch,
    /// What is derived is derived again.
    DeriveIndex,
    /// The session is quarantined, for there is no right answer: it stays as it is, listed as corrupt.
    Quarantine,
    /// Nothing: only a person can tell what is right, or somebody holds the session.
    Leave,
}

impl Action {
    /// Returns the stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CutTail => "cut_tail",
            Self::EndEpoch => "end_epoch",
            Self::DeriveIndex => "derive_index",
            Self::Quarantine => "quarantine",
            Self::Leave => "leave",
        }
    }
}

/// One thing that a repair does.
///
/// ```
/// use greenroom_session::{repair::{Repair, plan}, store::Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let repairs: Vec<Repair> = plan(&mut *store.reader()?, None)?;
/// assert!(repairs.is_empty()); // nothing is wrong with it
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The session; absent for what belongs to none.
    pub session: Option<SessionId>,
    /// What is done.
    pub action: Action,
    /// The classes of what is wrong, in order, each once.
    pub found: Vec<Class>,
    /// What is wrong, for a person. Not escaped: it may hold text of the store.
    pub what: String,
}

/// Why a repair was not made.
///
/// ```
/// use greenroom_session::{repair::RepairError, store::StoreError};
/// let error = RepairError::from(StoreError::Damaged("page 7".into()));
/// assert_eq!(error.code(), "STORE_DAMAGED");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It could not be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The store has refused it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl RepairError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Load(error) => error.code(),
            Self::Commit(error) => error.code(),
            Self::Refused(error) => error.code(),
        }
    }
}

/// Says what a repair would do with a whole store, or with one session, in the order of sessions; what belongs to none comes last. Writes nothing. Costs a check.
///
/// # Errors
/// As [`check`].
pub fn plan(reader: &mut dyn Reader, only: Option<&SessionId>) -> Result<Vec<Repair>, LoadError> {
    let held: BTreeSet<SessionId> = reader.leases(None)?.into_iter().filter(|lease| lease.alive).map(|lease| lease.session).collect();
    let mut found: BTreeMap<Option<SessionId>, Vec<Finding>> = BTreeMap::new();
    check(reader, only, &mut |seen| {
        if let Seen::Finding(finding) = seen {
            found.entry(finding.session.clone()).or_default().push(finding);
        }
    })?;
    // Whose holder is gone is no fault: a kill leaves that.
    let left: BTreeSet<SessionId> = reader.runnable(None, usize::MAX)?.into_iter().filter(|id| only.is_none_or(|only| only == id)).collect();
    for id in left {
        if matches!(reader.folded(&id), Ok(fold) if may_be_ended(&fold)) {
            found.entry(Some(id)).or_default();
        }
    }
    let mut kin = kin::Kin::default();
    let mut repairs = Vec::new();
    // What belongs to no session comes last.
    let of_none = found.remove_entry(&None);
    for (session, findings) in found.into_iter().chain(of_none) {
        let mut known = Known { is_held: false, may_be_ended: false, blames_parent: false };
        if let Some(id) = &session {
            known.is_held = held.contains(id);
            known.may_be_ended = matches!(reader.folded(id), Ok(fold) if may_be_ended(&fold));
            known.blames_parent = kin.blames_parent(reader, id, &findings)?;
        }
        repairs.extend(of(session.as_ref(), &findings, &known));
    }
    Ok(repairs)
}

/// What is known of a session besides what was found.
#[derive(Debug)]
struct Known {
    /// Somebody holds it.
    is_held: bool,
    /// Its holder is gone, and its epoch can be ended.
    may_be_ended: bool,
    /// It is whole, and its parent's header is not.
    blames_parent: bool,
}

/// Says what is done about what was found of one session, or of none.
fn of(session: Option<&SessionId>, findings: &[Finding], known: &Known) -> Vec<Repair> {
    let repair = |action, which: &dyn Fn(&Finding) -> bool, what: &str| {
        let mut found: Vec<Class> = findings.iter().filter(|finding| which(finding)).map(|finding| finding.class).collect();
        found.sort_unstable();
        found.dedup();
        Repair { session: session.cloned(), action, found, what: what.to_owned() }
    };
    let first = |which: &dyn Fn(&Finding) -> bool| findings.iter().find(|finding| which(finding)).map(ToString::to_string);
    let is_damage = |finding: &Finding| finding.class.severity() == Severity::Damage;
    let is_index = |finding: &Finding| finding.class.severity() == Severity::Index;
    let is_torn = |finding: &Finding| finding.class == Class::TornTail;
    let mut repairs = Vec::new();
    if let Some(what) = first(&is_damage) {
        // What names no session, or not which of its files, is not to be guessed.
        let is_clear =
            session.is_some() && !findings.iter().any(|finding| matches!(finding.class, Class::DuplicateSession | Class::MisnamedFile | Class::UnreadableFile));
        let action = if is_clear && !known.is_held && !known.blames_parent { Action::Quarantine } else { Action::Leave };
        repairs.push(repair(action, &is_damage, &what));
        return repairs;
    }
    if known.is_held {
        // Whoever holds it sees to its end, and its row is written with the next record.
        return repairs;
    }
    if let Some(what) = first(&is_torn) {
        // Where a batch of a newer format ends is not known.
        let is_newer = findings.iter().any(|finding| finding.class == Class::UnknownVersion);
        repairs.push(repair(if is_newer { Action::Leave } else { Action::CutTail }, &is_torn, &what));
    }
    if known.may_be_ended {
        repairs.push(repair(Action::EndEpoch, &|finding| finding.class == Class::LeaseOfNobody, "it was cut off"));
    }
    if let Some(what) = first(&is_index) {
        repairs.push(repair(Action::DeriveIndex, &is_index, &what));
    }
    repairs
}

impl Repair {
    /// Does it, at this time. Tells whether anything was done: what nobody can tell is left, and so is what somebody has begun to hold meanwhile.
    ///
    /// # Errors
    /// [`RepairError`]; then the session is as it was.
    pub fn apply(&self, store: &dyn Store, now: u64) -> Result<bool, RepairError> {
        match (self.action, &self.session) {
            (Action::CutTail, Some(id)) => Ok(store.cut_tail(id)?),
            (Action::EndEpoch, Some(id)) => end_epoch(store, id, now),
            (Action::Quarantine, Some(id)) => {
                let found = self.found.iter().map(|class| class.as_str().to_owned()).collect();
                Ok(store.quarantine(id, &Quarantine { at: now, found })?)
            }
            (Action::DeriveIndex, session) => {
                let mut changed = false;
                store.rebuild_index(session.as_ref(), &mut |rebuilt| changed |= !matches!(rebuilt, Rebuilt::Left(_)))?;
                Ok(changed)
            }
            _ => Ok(false),
        }
    }
}

/// Tells whether the epoch of a holder that is gone can be ended: it goes on, and nobody is told of a settlement who would not be told otherwise. Whoever runs the session
/// next tells the parent of what is done, and does not run it again if its epoch has ended and nothing is left to do.
fn may_be_ended(fold: &Fold) -> bool {
    let (head, settled) = (fold.head(), fold.settled());
    let has_word = head.last.as_ref().is_some_and(|last| last.turn > settled.turns) || fold.taken_back().newest.is_some();
    head.live && (head.has_work() || !fold.header().is_subagent() || !has_word)
}

/// Ends the epoch of a holder that is gone by a short one of its own. A repair is no attempt at the message, so it ends none.
fn end_epoch(store: &dyn Store, id: &SessionId, now: u64) -> Result<bool, RepairError> {
    let fold = store.reader()?.folded(id)?;
    if !may_be_ended(&fold) {
        return Ok(false);
    }
    let (epoch, events) = begin_epoch(&fold, now, u32::MAX);
    let end = Body::ActivationEnd { epoch, reason: EpochEnd::Disposed }.at(events.last().map_or(0, |event| event.seq + 1), now);
    let fence = Fence { session: id.clone(), epoch };
    let open = Op::Open(Open { session: id.clone(), epoch, events: events.into(), claim: None });
    let close = Op::Close(Close { fence, events: [end].into(), unless_pending: false });
    for result in store.commit(&[open, close])? {
        match result {
            Err(Refused::Held(_) | Refused::Fenced { .. }) => return Ok(false),
            result => drop::<Done>(result?),
        }
    }
    Ok(true)
}
