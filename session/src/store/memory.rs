//! The store in memory: what the process knows, for as long as it lives.
//!
//! It keeps the same records as the stores on disk without encoding them, and obeys the same rules; it is the reference that the
//! others are tested against. Sessions are locked one by one, so that senders to different sessions do not meet.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map},
    io,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
};

use super::{
    Accept, Append, Claim, ClaimKind, Close, CommitError, Create, Done, ExportError, Fence, Lease, LoadError, Log, MessageState, Op, Open, Reader, Refused,
    Store, StoreError, Traced, Verbatim, check_begun, check_ended, check_lived,
};
use crate::{
    codec::{check_event, check_message, encode_header},
    event::{Body, Event},
    fold::Fold,
    head::Head,
    header::Header,
    id::{MessageId, Order, OwnerId, Seq, SessionId},
    limits::MAX_INTEGER,
    listing::{Cursor, Description, Verdict, verdict},
    message::{BodyHash, InboxRecord, Message, MessageKind},
    turns::{Claimed, join_notes, open_turn},
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
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    owner: OwnerId,
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
    entries: HashMap<SessionId, Arc<Mutex<Entry>>>,
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

#[derive(Debug)]
struct Entry {
    header: Arc<Header>,
    creation: Creation,
    log: EventLog,
    head: Head,
    inbox: BTreeMap<Order, InboxRecord>,
    /// Where each message that was ever accepted stands or stood.
    orders: HashMap<MessageId, Order>,
    /// By order, what remains of a message that has left the inbox.
    taken: Vec<Option<Remains>>,
    /// Messages that have left the inbox and are held.
    held_taken: Vec<Order>,
    /// Of an imported session, what its first records were read from.
    bytes: Option<Arc<Verbatim>>,
    verdict: Verdict,
    owner: Option<OwnerId>,
}

/// What a session was created with.
#[derive(Debug)]
struct Creation {
    events: usize,
    first: First,
}

/// The message that a session was created with.
#[derive(Debug)]
enum First {
    Message(Option<MessageId>),
    /// An import does not tell it from the first that was accepted later.
    Unknown,
}

/// A log as it was written: it shares its events with whoever wrote them.
#[derive(Debug, Clone, Default)]
struct EventLog(Vec<Arc<[Event]>>);

impl EventLog {
    fn push(&mut self, events: &Arc<[Event]>) {
        if !events.is_empty() {
            self.0.push(events.clone());
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Event> {
        self.0.iter().flat_map(|written| written.iter())
    }

    /// Returns the events from a seq on.
    fn from(&self, seq: Seq) -> impl Iterator<Item = &Event> {
        let later = self.0.partition_point(|written| written.last().is_some_and(|last| last.seq < seq));
        self.0.iter().skip(later).flat_map(|written| written.iter()).skip_while(move |event| event.seq < seq)
    }
}

/// What remains of a message that has left the inbox: enough to tell it from another one under its id.
#[derive(Debug)]
enum Remains {
    /// All of it: its content and its source stand in the log, where its turn or a joined note begins.
    Event { seq: Seq, kind: MessageKind, wake: bool },
    /// A hash.
    Hash { hash: BodyHash, kind: MessageKind, wake: bool },
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
    fn change(&self, id: &SessionId, change: impl FnOnce(&mut Entry) -> Result<Done, Refused>) -> Result<Done, Refused> {
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
        let mut entry = Entry {
            header: header.clone(),
            creation: Creation { events: op.events.len(), first: First::Message(op.message.as_ref().map(|message| message.id.clone())) },
            log: EventLog::default(),
            head: fold.head().clone(),
            inbox: BTreeMap::new(),
            orders: HashMap::new(),
            taken: Vec::new(),
            held_taken: Vec::new(),
            bytes: None,
            verdict,
            owner: None,
        };
        entry.log.push(&op.events);
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

impl Entry {
    fn same_creation(&self, op: &Create) -> Result<Done, Refused> {
        let first = op.message.as_ref().map(|message| &message.id);
        let same = op.session.matches(&self.header)
            && self.creation.events == op.events.len()
            && self.log.iter().zip(&*op.events).all(|(a, b)| a.body == b.body)
            && match &self.creation.first {
                First::Message(message) => message.as_ref() == first,
                First::Unknown => first.is_none_or(|first| self.orders.get(first) == Some(&0)),
            }
            && op.message.as_ref().is_none_or(|message| self.is_same(message));
        if same { Ok(Done::Created { header: self.header.clone(), existing: true }) } else { Err(Refused::Exists(self.header.id.clone())) }
    }

    /// Tells whether this very message was accepted before.
    fn is_same(&self, message: &Message) -> bool {
        let Some(order) = self.orders.get(&message.id) else { return false };
        match self.inbox.get(order) {
            Some(waiting) => waiting.message.hash() == message.hash(),
            None => match usize::try_from(*order).ok().and_then(|at| self.taken.get(at)?.as_ref()) {
                Some(Remains::Hash { hash, .. }) => *hash == message.hash(),
                Some(Remains::Event { seq, kind, wake }) => {
                    (*kind, *wake) == (message.kind, message.wake)
                        && message.control.is_none()
                        && self.log.from(*seq).next().is_some_and(|event| shows(event, message))
                }
                None => false,
            },
        }
    }

    fn enter(&mut self, message: &Arc<Message>) {
        self.orders.insert(message.id.clone(), self.head.next_order);
        self.wait(message);
    }

    /// Puts a message whose order is noted into the inbox.
    fn wait(&mut self, message: &Arc<Message>) -> Order {
        let order = self.head.next_order;
        self.head.accept(message, false);
        self.taken.push(None);
        self.inbox.insert(order, InboxRecord { order, held: false, message: message.clone() });
        order
    }

    fn accept(&mut self, op: &Accept) -> Result<Done, Refused> {
        let message = &op.message;
        let place = match self.orders.entry(message.id.clone()) {
            hash_map::Entry::Vacant(place) => place,
            hash_map::Entry::Occupied(known) => {
                let order = *known.get();
                return if self.is_same(message) { Ok(Done::Accepted { order, duplicate: true }) } else { Err(Refused::MessageIdConflict(message.id.clone())) };
            }
        };
        let (pending, limit) = match message.kind {
            MessageKind::Turn => (self.head.pending_turns, op.inbox_limit),
            MessageKind::Note => (self.head.pending_wakes + self.head.pending_quiet, op.note_limit),
            MessageKind::Control => (self.head.pending_controls, op.inbox_limit),
        };
        if pending >= limit {
            return Err(Refused::Busy { pending, limit });
        }
        check_message(message)?;
        place.insert(self.head.next_order);
        Ok(Done::Accepted { order: self.wait(message), duplicate: false })
    }

    fn fence(&self, fence: &Fence) -> Result<(), Refused> {
        if self.head.epoch == fence.epoch && self.head.live { Ok(()) } else { Err(Refused::Fenced { stored: self.head.epoch }) }
    }

    /// Folds events into a copy of the head; nothing changes unless all of them follow.
    fn follow(&self, events: &[Event]) -> Result<Head, Refused> {
        if let Some(first) = events.first()
            && first.seq != self.head.next_seq
        {
            return Err(Refused::Moved { stored: self.head.next_seq });
        }
        let mut head = self.head.clone();
        for event in events {
            check_event(event)?;
            check_lived(event)?;
            head.apply(event, self.header.seed_length)?;
        }
        Ok(head)
    }

    /// Takes messages out of the inbox, after the events that say so.
    fn leave(&mut self, orders: &[Order], events: &[Event]) {
        for order in orders {
            if let Some(record) = self.inbox.remove(order) {
                let message = &record.message;
                let remains = match events.iter().find(|event| message.control.is_none() && shows(event, message)) {
                    Some(event) => Remains::Event { seq: event.seq, kind: message.kind, wake: message.wake },
                    None => Remains::Hash { hash: message.hash(), kind: message.kind, wake: message.wake },
                };
                if let Some(place) = usize::try_from(*order).ok().and_then(|at| self.taken.get_mut(at)) {
                    *place = Some(remains);
                }
                self.head.take(message, record.held);
            }
        }
    }

    fn open(&mut self, op: &Open, owner: &OwnerId, is_alive: impl Fn(&OwnerId) -> bool) -> Result<Done, Refused> {
        if let Some(holder) = &self.owner
            && holder != owner
            && is_alive(holder)
        {
            return Err(Refused::Held(holder.clone()));
        }
        if self.head.epoch + 1 != op.epoch {
            return Err(Refused::Fenced { stored: self.head.epoch });
        }
        let head = self.follow(&op.events)?;
        check_begun(&head, op.epoch)?;
        self.head = head;
        self.log.push(&op.events);
        self.owner = Some(owner.clone());
        let claimed = op.claim.and_then(|time| self.take_next(ClaimKind::Turn, time));
        Ok(Done::Opened { claimed })
    }

    fn append(&mut self, op: &Append) -> Result<Done, Refused> {
        self.fence(&op.fence)?;
        if let Some(order) = op.take.iter().find(|order| !self.inbox.contains_key(order)) {
            return Err(Refused::NotPending(*order));
        }
        if op.events.is_empty() && !op.take.is_empty() {
            return Err(Refused::Invalid { code: "EVENT_INVALID", message: "a message leaves the inbox with the events that name it".into() });
        }
        self.head = self.follow(&op.events)?;
        self.log.push(&op.events);
        self.leave(&op.take, &op.events);
        Ok(Done::Appended)
    }

    fn claim(&mut self, op: &Claim) -> Result<Done, Refused> {
        self.fence(&op.fence)?;
        if op.first_seq != self.head.next_seq {
            return Err(Refused::Moved { stored: self.head.next_seq });
        }
        Ok(Done::Claimed(self.take_next(op.kind, op.time)))
    }

    fn take_next(&mut self, kind: ClaimKind, time: u64) -> Option<Claimed> {
        // A held record and everything behind it waits, and so does a message whose turn was not finished.
        if kind == ClaimKind::Turn && self.head.held > 0 && self.head.retry.is_some() {
            return None;
        }
        let end = self.held_taken.iter().min().copied().unwrap_or(Order::MAX);
        let ready = || self.inbox.values().take_while(|record| !record.held && record.order < end);
        // Without this, each turn would cost a look at everything that waits.
        let any_note = self.head.pending_wakes + self.head.pending_quiet > 0;
        let notes: Vec<InboxRecord> = if any_note { ready().filter(|record| record.message.kind == MessageKind::Note).cloned().collect() } else { Vec::new() };
        let claimed = match kind {
            ClaimKind::Turn if self.head.open.is_some() => None,
            ClaimKind::Turn => open_turn(&self.head, time, ready().find(|record| record.message.kind == MessageKind::Turn), &notes),
            ClaimKind::Notes => join_notes(&self.head, time, &notes),
        }?;
        self.head = self.follow(&claimed.events).ok()?;
        self.log.push(&claimed.events);
        self.leave(&claimed.taken, &claimed.events);
        Some(claimed)
    }

    fn close(&mut self, op: &Close) -> Result<Done, Refused> {
        self.fence(&op.fence)?;
        if op.unless_pending && self.head.has_work() {
            return Err(Refused::Pending(self.head.pending()));
        }
        let head = self.follow(&op.events)?;
        check_ended(&head)?;
        self.head = head;
        self.log.push(&op.events);
        self.owner = None;
        Ok(Done::Closed)
    }
}

/// Tells whether an event shows a message with all that it says and whoever says it.
fn shows(event: &Event, message: &Message) -> bool {
    matches!(&event.body, Body::UserMessage(shown) if shown.id == message.id && shown.content == message.content && shown.source == message.source)
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

    fn insert(&self, entry: Entry) {
        let id = entry.header.id.clone();
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        sessions.names.insert(id.clone());
        sessions.entries.insert(id, Arc::new(Mutex::new(entry)));
    }

    fn sessions(&self) -> RwLockReadGuard<'_, Sessions> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, id: &SessionId) -> Option<Arc<Mutex<Entry>>> {
        self.sessions().entries.get(id).cloned()
    }

    fn is_alive(&self, owner: &OwnerId) -> bool {
        !self.dead.read().unwrap_or_else(PoisonError::into_inner).contains(owner)
    }

    fn holder(&self, entry: &Entry) -> Option<OwnerId> {
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

    fn all(&self) -> Vec<(SessionId, Arc<Mutex<Entry>>)> {
        let sessions = self.sessions();
        sessions.names.iter().filter_map(|id| sessions.entries.get(id).map(|entry| (id.clone(), entry.clone()))).collect()
    }
}

#[derive(Debug)]
struct MemoryReader {
    shared: Arc<Shared>,
}

impl MemoryReader {
    fn entry(&self, id: &SessionId) -> Result<Arc<Mutex<Entry>>, LoadError> {
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
        for tombstone in entry.held_taken() {
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
