//! The store in memory: what the process knows, for as long as it lives.
//!
//! It keeps the same records as the stores on disk without encoding them, and obeys the same rules; it is the reference that the
//! others are tested against. Sessions are locked one by one, so that senders to different sessions do not meet.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt, io,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
};

use super::{
    CommitError, Create, Done, ExportError, Lease, LoadError, Log, MessageState, Op, Reader, Refused, Store, StoreError, Traced, Verbatim,
    entry::{Creation, Entry, First, Trail},
};
use crate::{
    codec::{check_event, check_message, encode_header},
    event::Event,
    fold::Fold,
    header::Header,
    id::{MessageId, OwnerId, Seq, SessionId},
    limits::MAX_INTEGER,
    listing::{Cursor, Description, Verdict, verdict},
    message::InboxRecord,
};

mod transfer;

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

/// Every session, and their names in order.
#[derive(Debug, Default)]
struct Sessions {
    entries: HashMap<SessionId, Arc<Mutex<MemoryEntry>>>,
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
        let mut fold = Fold::new(header.clone());
        for event in &*op.events {
            fold.apply_event(event)?;
        }
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
        family.subagents += u64::from(!matches!(entry.verdict, Verdict::Plain));
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

#[derive(Debug)]
struct MemoryReader {
    shared: Arc<Shared>,
}

impl MemoryReader {
    fn entry(&self, id: &SessionId) -> Result<Arc<Mutex<MemoryEntry>>, LoadError> {
        let sessions = self.shared.sessions();
        sessions.entries.get(id).cloned().ok_or_else(|| match sessions.missing(id) {
            Refused::Removed(id) => LoadError::Removed(id),
            _ => LoadError::NotFound(id.clone()),
        })
    }
}

impl Reader for MemoryReader {
    fn header(&mut self, id: &SessionId) -> Result<Option<Arc<Header>>, LoadError> {
        Ok(self.shared.entry(id).map(|entry| lock(&entry).header.clone()))
    }

    fn is_removed(&mut self, id: &SessionId) -> Result<bool, StoreError> {
        Ok(self.shared.sessions().removed.contains(id))
    }

    fn export(&mut self, id: &SessionId, line: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), ExportError> {
        let whole = lock(&*self.entry(id)?).whole();
        whole.export(line)
    }

    fn load(&mut self, id: &SessionId) -> Result<Log, LoadError> {
        let entry = self.entry(id)?;
        let entry = lock(&entry);
        let mut fold = Fold::new(entry.header.clone());
        for event in entry.log.iter() {
            fold.apply_event(event).map_err(|source| LoadError::Fold { session: id.clone(), source })?;
        }
        for record in entry.inbox.values() {
            fold.apply_message(record.clone());
        }
        for tombstone in entry.held_tombstones() {
            fold.apply_taken(&tombstone);
        }
        fold.set_next_order(entry.head.next_order);
        Ok(Log { events: entry.log.iter().cloned().collect(), fold })
    }

    fn events(&mut self, id: &SessionId, from: Seq, limit: usize) -> Result<Vec<Event>, LoadError> {
        let entry = self.entry(id)?;
        let entry = lock(&entry);
        Ok(entry.log.from(from).take(limit).cloned().collect())
    }

    fn inbox(&mut self, id: &SessionId, limit: usize) -> Result<Vec<InboxRecord>, LoadError> {
        let entry = self.entry(id)?;
        let entry = lock(&entry);
        Ok(entry.inbox.values().take(limit).cloned().collect())
    }

    fn message(&mut self, id: &SessionId, message: &MessageId) -> Result<Option<MessageState>, LoadError> {
        let entry = self.entry(id)?;
        let entry = lock(&entry);
        Ok(entry.orders.get(message).map(|order| if entry.inbox.contains_key(order) { MessageState::Pending(*order) } else { MessageState::Taken(*order) }))
    }

    fn children(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Traced>, StoreError> {
        let mut found: Vec<(u64, SessionId)> = {
            let families = lock(&self.shared.families);
            let later = |key: &&(u64, SessionId)| after.is_none_or(|cursor| (key.0, &key.1) > (cursor.created_at, &cursor.id));
            let of = |parent: Option<&SessionId>| families.get(&parent.cloned()).into_iter().flat_map(|family| family.children.iter().filter(later).cloned());
            match parent {
                Some(parent) => of(Some(parent)).take(limit).collect(),
                // Roots, and the children of parents that are not here.
                None => families
                    .keys()
                    .filter(|parent| parent.as_ref().is_none_or(|id| self.shared.entry(id).is_none()))
                    .flat_map(|parent| of(parent.as_ref()))
                    .collect(),
            }
        };
        found.sort();
        found.truncate(limit);
        Ok(found
            .into_iter()
            .filter_map(|(created_at, id)| self.shared.entry(&id).map(|entry| Traced { id, created_at, header: Ok(lock(&entry).header.clone()) }))
            .collect())
    }

    fn describe(&mut self, children: &[Traced], verify: bool) -> Result<Vec<Result<Description, LoadError>>, StoreError> {
        Ok(children
            .iter()
            .map(|child| {
                let (verdict, head, holder) = if verify {
                    let log = self.load(&child.id)?;
                    (verdict(&log.fold), log.fold.head().clone(), self.shared.holder(&lock(&*self.entry(&child.id)?)))
                } else {
                    let entry = self.entry(&child.id)?;
                    let entry = lock(&entry);
                    (entry.verdict.clone(), entry.head.clone(), self.shared.holder(&entry))
                };
                let has_children = lock(&self.shared.families).get(&Some(child.id.clone())).is_some_and(|family| family.subagents > 0);
                Ok(Description { verdict, head, has_children, holder })
            })
            .collect())
    }

    fn find(&mut self, prefix: &str, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let sessions = self.shared.sessions();
        Ok(sessions
            .names
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|id| id.as_str().starts_with(prefix))
            .take(limit)
            .cloned()
            .collect())
    }

    fn alias(&mut self, parent: &SessionId, alias: &str) -> Result<Option<SessionId>, StoreError> {
        Ok(lock(&self.shared.families).get(&Some(parent.clone())).and_then(|family| family.aliases.get(alias).cloned()))
    }

    fn runnable(&mut self, root: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let mut found = Vec::new();
        for (id, entry) in self.shared.all() {
            let wanted = {
                let entry = lock(&entry);
                entry.head.wants_holder() && self.shared.holder(&entry).is_none()
            };
            if wanted && self.shared.in_tree(&id, root) {
                found.push(id);
                if found.len() == limit {
                    break;
                }
            }
        }
        Ok(found)
    }

    fn leases(&mut self, root: Option<&SessionId>) -> Result<Vec<Lease>, StoreError> {
        let all = self.shared.all();
        Ok(all
            .into_iter()
            .filter_map(|(id, entry)| lock(&entry).owner.clone().map(|owner| Lease { session: id, alive: self.shared.is_alive(&owner), owner }))
            .filter(|lease| self.shared.in_tree(&lease.session, root))
            .collect())
    }
}
