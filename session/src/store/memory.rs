//! The store in memory: what the process knows, for as long as it lives.
//!
//! It keeps the same records as the stores on disk without encoding them, and obeys the same rules; it is the reference that the
//! others are tested against. Sessions are locked one by one, so that senders to different sessions do not meet.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
};

use super::{
    CommitError, Create, Done, Op, Reader, Refused, Store, StoreError, Verbatim, born,
    entry::{Creation, Entry, First, Trail},
};
use crate::{
    codec::{check_event, check_message, encode_header},
    event::Event,
    id::{OwnerId, Seq, SessionId},
    limits::MAX_INTEGER,
    listing::{Verdict, verdict},
};

mod read;
mod transfer;

use read::MemoryReader;

/// A store in memory. Clones share one store.
///
/// ```
/// use greenroom_session::{header::NewSession, id::SessionId, store::{Create, Op, Store, memory::MemoryStore}};
/// let store = MemoryStore::new();
/// let root = SessionId::new("root")?;
/// let create = Create::root(NewSession::root(root.clone()), "editor", "launch story");
/// store.clone().commit(&[Op::Create(create)])?.remove(0)?;
/// assert!(store.reader()?.header(&root)?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    owner: OwnerId,
}

impl fmt::Debug for MemoryStore {
    /// Says how many sessions there are, and nothing of what is in them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sessions = self.shared.sessions.try_read().ok().map(|sessions| sessions.entries.len());
        f.debug_struct("MemoryStore").field("sessions", &sessions).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Shared {
    sessions: RwLock<Sessions>,
    families: Mutex<HashMap<Option<SessionId>, Family>>,
    dead: RwLock<HashSet<OwnerId>>,
}

/// Every session, and their names in order. Every operation looks here, so the keys are hashed fast, under a seed of this process.
#[derive(Debug, Default)]
struct Sessions {
    entries: foldhash::HashMap<SessionId, Arc<Mutex<MemoryEntry>>>,
    names: BTreeSet<SessionId>,
    removed: HashSet<SessionId>,
}

/// The children of one parent, known or not; `None` is the parent of roots.
#[derive(Debug, Default)]
struct Family {
    children: BTreeSet<(u64, SessionId)>,
    aliases: HashMap<String, SessionId>,
    subagents: u64,
}

/// A session and its log.
type MemoryEntry = Entry<EventLog>;

/// A log as it was written: it shares its events with whoever wrote them.
#[derive(Debug, Clone, Default)]
struct EventLog {
    written: Vec<Arc<[Event]>>,
    /// Of an imported session, what its first records were read from.
    read_from: Option<Arc<Verbatim>>,
}

impl EventLog {
    fn iter(&self) -> impl Iterator<Item = &Event> {
        self.written.iter().flat_map(|written| written.iter())
    }

    /// Returns the events from a seq on.
    fn from(&self, seq: Seq) -> impl Iterator<Item = &Event> {
        let later = self.written.partition_point(|written| written.last().is_some_and(|last| last.seq < seq));
        self.written.iter().skip(later).flat_map(|written| written.iter()).skip_while(move |event| event.seq < seq)
    }
}

impl Trail for EventLog {
    fn push(&mut self, events: &Arc<[Event]>) {
        if !events.is_empty() {
            self.written.push(events.clone());
        }
    }

    fn begins_with(&self, events: &[Event]) -> bool {
        self.iter().zip(events).all(|(a, b)| a.body == b.body)
    }

    fn at(&self, seq: Seq) -> Option<&Event> {
        self.from(seq).next()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change below is made after its checks, so a panic leaves no half of one.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryStore {
    /// Opens an empty store.
    pub fn new() -> Self {
        Self { shared: Arc::default(), owner: OwnerId::from_uuid(uuid::Uuid::new_v4()) }
    }

    /// Opens the same store as another owner, as another process would; neither may take the other's leases.
    #[must_use]
    pub fn peer(&self) -> Self {
        Self { shared: self.shared.clone(), owner: OwnerId::from_uuid(uuid::Uuid::new_v4()) }
    }

    /// Opens the same store as another owner and declares this one dead, as if its process had been killed: its leases may be taken.
    ///
    /// What still runs under the dead owner is fenced by the first epoch that somebody else begins.
    #[must_use]
    pub fn reopen(&self) -> Self {
        self.shared.dead.write().unwrap_or_else(PoisonError::into_inner).insert(self.owner.clone());
        self.peer()
    }

    fn apply(&self, op: &Op) -> Result<Done, Refused> {
        match op {
            Op::Create(op) => self.create(op),
            Op::Accept(op) => self.change(&op.session, |entry| entry.accept(op)),
            Op::Open(op) => self.change(&op.session, |entry| entry.open(op, &self.owner, |holder| self.shared.is_alive(holder))),
            Op::Append(op) => self.change(&op.fence.session, |entry| entry.append(op)),
            Op::Claim(op) => self.change(&op.fence.session, |entry| entry.claim(op)),
            Op::Close(op) => self.change(&op.fence.session, |entry| entry.close(op)),
            Op::Import(op) => self.import(op),
            Op::Release(op) => self.change(&op.session, |entry| Ok(entry.release())),
            Op::Remove(op) => self.remove(op),
        }
    }

    /// Changes a session under its lock. Creations wait meanwhile, and no change waits for one.
    fn change(&self, id: &SessionId, change: impl FnOnce(&mut MemoryEntry) -> Result<Done, Refused>) -> Result<Done, Refused> {
        let sessions = self.shared.sessions();
        // In place: what all senders count up and down is what they wait for.
        let entry = sessions.entries.get(id).ok_or_else(|| sessions.missing(id))?;
        change(&mut lock(entry))
    }

    fn create(&self, op: &Create) -> Result<Done, Refused> {
        for event in &*op.events {
            check_event(event)?;
        }
        // The families lock makes creations one after another, so that siblings' times and aliases are decided once.
        let mut families = lock(&self.shared.families);
        self.shared.refuse_removed(&op.session.id)?;
        if let Some(existing) = self.shared.entry(&op.session.id) {
            return lock(&existing).same_creation(op);
        }
        if let Some(message) = &op.message {
            check_message(message)?;
        }
        let parent_time = op.session.parent.as_ref().and_then(|parent| self.shared.entry(parent)).map_or(0, |parent| lock(&parent).header.created_at);
        let family = families.entry(op.session.parent.clone()).or_default();
        let sibling_time = if op.session.parent.is_some() { family.children.last().map_or(0, |(time, _)| *time) } else { 0 };
        let header = Arc::new(op.session.at(op.time.max(parent_time).max(sibling_time).min(MAX_INTEGER)));
        encode_header(&header)?;
        let fold = born(&header, &op.events)?;
        let verdict = verdict(&fold);
        if let Verdict::Child { alias: Some(alias), .. } = &verdict {
            if family.aliases.contains_key(alias) {
                return Err(Refused::AliasTaken(alias.clone()));
            }
            family.aliases.insert(alias.clone(), header.id.clone());
        }
        let mut log = EventLog::default();
        log.push(&op.events);
        let creation = Creation { events: op.events.len(), first: First::Message(op.message.as_ref().map(|message| message.id.clone())) };
        let mut entry = Entry::new(header.clone(), creation, log, fold.head().clone(), verdict);
        if let Some(message) = &op.message {
            entry.enter(message);
        }
        family.subagents += u64::from(header.is_subagent());
        family.children.insert((header.created_at, header.id.clone()));
        self.shared.insert(entry);
        Ok(Done::Created { header, existing: false })
    }
}

impl Store for MemoryStore {
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        Ok(ops.iter().map(|op| self.apply(op)).collect())
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(MemoryReader { shared: self.shared.clone() }))
    }

    fn is_inline(&self) -> bool {
        true
    }

    fn owner(&self) -> &OwnerId {
        &self.owner
    }
}

impl Sessions {
    /// Says why a session is not there.
    fn missing(&self, id: &SessionId) -> Refused {
        if self.removed.contains(id) { Refused::Removed(id.clone()) } else { Refused::NotFound(id.clone()) }
    }
}

impl Shared {
    fn refuse_removed(&self, id: &SessionId) -> Result<(), Refused> {
        if self.sessions().removed.contains(id) { Err(Refused::Removed(id.clone())) } else { Ok(()) }
    }

    fn insert(&self, entry: MemoryEntry) {
        let id = entry.header.id.clone();
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        sessions.names.insert(id.clone());
        sessions.entries.insert(id, Arc::new(Mutex::new(entry)));
    }

    fn sessions(&self) -> RwLockReadGuard<'_, Sessions> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, id: &SessionId) -> Option<Arc<Mutex<MemoryEntry>>> {
        self.sessions().entries.get(id).cloned()
    }

    fn is_alive(&self, owner: &OwnerId) -> bool {
        !self.dead.read().unwrap_or_else(PoisonError::into_inner).contains(owner)
    }

    fn holder(&self, entry: &MemoryEntry) -> Option<OwnerId> {
        entry.owner.clone().filter(|owner| self.is_alive(owner))
    }

    fn in_tree(&self, id: &SessionId, root: Option<&SessionId>) -> bool {
        let Some(root) = root else { return true };
        let mut at = id.clone();
        // Nothing keeps two sessions from naming each other as parents.
        let mut seen = HashSet::new();
        loop {
            if at == *root {
                return true;
            }
            let parent = self.entry(&at).and_then(|entry| lock(&entry).header.parent.clone());
            match parent {
                Some(parent) if seen.insert(at.clone()) => at = parent,
                _ => return false,
            }
        }
    }

    fn all(&self) -> Vec<(SessionId, Arc<Mutex<MemoryEntry>>)> {
        let sessions = self.sessions();
        sessions.names.iter().filter_map(|id| sessions.entries.get(id).map(|entry| (id.clone(), entry.clone()))).collect()
    }
}
