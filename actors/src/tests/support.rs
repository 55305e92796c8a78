//! What the tests share: a store that watches, a ledger of what was promised, and short ways to make and watch a world.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use greenroom_session::{
    descriptor::{DESCRIPTOR_VERSION, Descriptor, Mode},
    event::{Body, EpochEnd, Event},
    header::NewSession,
    id::{MessageId, OwnerId, SessionId},
    message::{InboxRecord, MessageKind},
    store::{CommitError, Create, Done, Op, Reader, Refused, Store, StoreError, memory::MemoryStore},
};
use tokio::sync::{Semaphore, broadcast, oneshot};

use super::pairs::Pairs;
use crate::{Config, Host, Occurrence, System, Turn, TurnEnd, TurnError, registry::RegistryMessage};

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

/// How long tests wait for the answer to a request; longer than any of them takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test on a runtime of its own whose clock moves only when nothing else can.
pub(super) fn on_paused_time<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let done = tokio::time::timeout(Duration::from_secs(3_600), test).await;
        done.expect("the world hangs: nothing can go on and somebody still waits")
    })
}

/// A memory store that looks over the shoulder of whoever writes, and fails when told to.
#[derive(Debug, Clone)]
pub(super) struct Witness {
    pub(super) store: MemoryStore,
    inline: bool,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    complaints: Mutex<Vec<String>>,
    faults: Mutex<VecDeque<Fault>>,
    opened: Mutex<HashMap<SessionId, u64>>,
    commits: Mutex<u64>,
    /// Which epochs go on, where families are watched.
    families: Mutex<Option<Families>>,
    /// Which of the commits brought a message.
    brought: Mutex<HashMap<MessageId, u64>>,
    /// What every system that was started over the store has told.
    told: Mutex<Vec<broadcast::Receiver<Occurrence>>>,
}

/// When the epochs that go on began, and when their holders wrote last, counted in commits.
#[derive(Debug, Default)]
struct Families {
    now: u64,
    began: HashMap<SessionId, u64>,
    wrote: HashMap<SessionId, u64>,
}

impl Families {
    /// Follows what a holder has written. Complains of one that settles over a child whose epoch had begun before it looked for work for the last time.
    fn follow(&mut self, op: &Op, parent_of: impl Fn(&SessionId) -> Option<SessionId>) -> Option<String> {
        self.now += 1;
        let session = op.session();
        match op {
            Op::Open(_) => drop(self.began.insert(session.clone(), self.now)),
            Op::Close(_) => {
                self.began.remove(session);
                let looked = self.wrote.get(session).copied().unwrap_or(0);
                let mut over = self.began.iter().filter(|(child, began)| **began < looked && parent_of(child).as_ref() == Some(session));
                return over.next().map(|(child, _)| format!("{session} settled over {child}, which was live"));
            }
            Op::Append(_) | Op::Claim(_) => {}
            _ => return None,
        }
        self.wrote.insert(session.clone(), self.now);
        None
    }
}

/// A commit that fails.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    /// Which operation it hits.
    pub(super) hits: fn(&Op) -> bool,
    /// Whether what was asked for is in the store all the same.
    pub(super) written: bool,
    /// Whether the caller is told that nothing is known.
    pub(super) indeterminate: bool,
}

impl Witness {
    pub(super) fn new() -> Self {
        Self { store: MemoryStore::new(), inline: true, seen: Arc::default() }
    }

    /// Watches a store that is written through the journal's thread.
    pub(super) fn threaded() -> Self {
        Self { inline: false, ..Self::new() }
    }

    pub(super) fn peer(&self) -> Self {
        Self { store: self.store.peer(), ..self.clone() }
    }

    pub(super) fn reopen(&self) -> Self {
        Self { store: self.store.reopen(), ..self.clone() }
    }

    pub(super) fn fail(&self, fault: Fault) {
        lock(&self.seen.faults).push_back(fault);
    }

    /// Looks from now on whether a parent outlives its live children. Of one process in order: whoever dies or is put aside breaks this.
    pub(super) fn watch_families(&self) {
        *lock(&self.seen.families) = Some(Families::default());
    }

    pub(super) fn complaints(&self) -> Vec<String> {
        lock(&self.seen.complaints).clone()
    }

    /// Returns how many epochs of a session were opened.
    pub(super) fn opened(&self, session: &SessionId) -> u64 {
        lock(&self.seen.opened).get(session).copied().unwrap_or(0)
    }

    /// Returns how many operations changed anything.
    pub(super) fn commits(&self) -> u64 {
        *lock(&self.seen.commits)
    }

    /// Returns which of the commits brought a message; 0 if none did.
    pub(super) fn brought(&self, message: &MessageId) -> u64 {
        lock(&self.seen.brought).get(message).copied().unwrap_or(0)
    }

    pub(super) fn events(&self, session: &SessionId) -> Vec<Event> {
        self.store.reader().unwrap().events(session, 0, usize::MAX).unwrap()
    }

    /// Creates a child without a message, as an earlier process would have left it.
    pub(super) fn child(&self, parent: &SessionId, name: &str, agent: &str) -> SessionId {
        let depth = self.store.reader().unwrap().header(parent).unwrap().map_or(0, |header| header.depth);
        let session = NewSession::child(id(name), parent.clone(), depth);
        let create = Create::child(session, Vec::new(), &descriptor(name, agent), None, 0).unwrap();
        self.store.commit(&[Op::Create(create)]).unwrap().pop().unwrap().unwrap();
        id(name)
    }

    /// Creates a root.
    pub(super) fn root(&self, name: &str, agent: &str) -> SessionId {
        let create = Create::root(NewSession::root(id(name)), agent, name);
        self.store.commit(&[Op::Create(create)]).unwrap().pop().unwrap().unwrap();
        id(name)
    }

    pub(super) fn system(&self, config: Config) -> impl Future<Output = System> {
        let store = Arc::new(self.clone());
        async move {
            let seen = store.seen.clone();
            let system = System::start(config, store, true).await.unwrap();
            lock(&seen.told).push(system.host().subscribe());
            system
        }
    }

    /// Returns what is wrong with what was told of epochs, when nobody is left to tell more.
    pub(super) fn judge_pairs(&self) -> Vec<String> {
        let mut pairs = Pairs::default();
        let mut told = lock(&self.seen.told);
        // All of them, or an end might be missed.
        if !told.iter_mut().all(|occurrences| pairs.hear(occurrences)) {
            return vec!["too much was told".into()];
        }
        let sessions = pairs.sessions();
        pairs.wrong().into_iter().chain(sessions.iter().flat_map(|session| pairs.against(session, &self.events(session)))).collect()
    }

    fn judge(&self, op: &Op, done: &Result<Done, Refused>) {
        if done.is_err() {
            return;
        }
        let commit = {
            let mut commits = lock(&self.seen.commits);
            *commits += 1;
            *commits
        };
        let brought = match op {
            Op::Accept(accept) => Some(&accept.message),
            Op::Create(create) => create.message.as_ref(),
            _ => None,
        };
        if let Some(message) = brought {
            lock(&self.seen.brought).entry(message.id.clone()).or_insert(commit);
        }
        if let Some(families) = &mut *lock(&self.seen.families) {
            let parent_of = |session: &SessionId| self.store.reader().ok()?.header(session).ok()??.parent.clone();
            lock(&self.seen.complaints).extend(families.follow(op, parent_of));
        }
        match op {
            Op::Open(open) => *lock(&self.seen.opened).entry(open.session.clone()).or_default() += 1,
            Op::Close(close) if close.events.iter().any(|event| matches!(event.body, Body::ActivationEnd { reason: EpochEnd::Settled, .. })) => {
                let inbox = self.store.reader().unwrap().inbox(&close.fence.session, usize::MAX).unwrap();
                // A request is no work: whoever waits for its answer visits what nobody holds.
                let is_work = |record: &&InboxRecord| record.message.control.is_none() && (record.message.kind == MessageKind::Turn || record.message.wake);
                let waiting = inbox.iter().filter(is_work).count();
                if waiting > 0 {
                    let session = &close.fence.session;
                    lock(&self.seen.complaints).push(format!("{session} settled in epoch {} while {waiting} messages waited", close.fence.epoch));
                }
            }
            _ => {}
        }
    }
}

impl Store for Witness {
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        let fault = {
            let mut faults = lock(&self.seen.faults);
            match faults.front() {
                Some(fault) if ops.iter().any(fault.hits) => faults.pop_front(),
                _ => None,
            }
        };
        let mut results = Vec::with_capacity(ops.len());
        if fault.is_none_or(|fault| fault.written) {
            for op in ops {
                let done = self.store.commit(std::slice::from_ref(op))?.remove(0);
                self.judge(op, &done);
                results.push(done);
            }
        }
        match fault {
            None => Ok(results),
            Some(Fault { indeterminate: true, .. }) => Err(CommitError::Indeterminate(StoreError::Unsupported("a planted fault".into()))),
            Some(_) => Err(CommitError::NotCommitted(StoreError::Unsupported("a planted fault".into()))),
        }
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.store.reader()
    }

    fn is_inline(&self) -> bool {
        self.inline
    }

    fn owner(&self) -> &OwnerId {
        self.store.owner()
    }
}

pub(super) fn descriptor(label: &str, agent: &str) -> Descriptor {
    Descriptor {
        version: DESCRIPTOR_VERSION,
        mode: Mode::Continuable,
        provider: "spawn".into(),
        label: Some(label.into()),
        agent: agent.into(),
        alias: None,
        params: None,
        model: None,
        persona: None,
        tool_filter: None,
        notice: false,
        ext: serde_json::Map::new(),
    }
}

/// What was promised to senders, and what behaviours saw.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) accepted: Mutex<Vec<(String, SessionId, MessageId)>>,
    pub(super) runs: Mutex<Vec<(SessionId, u64, MessageId, u32)>>,
    pub(super) told: Mutex<Vec<(SessionId, Told)>>,
    /// What was accepted and has no turn of its own, so that nobody can take it back.
    pub(super) notes: Mutex<Vec<MessageId>>,
    pub(super) complaints: Mutex<Vec<String>>,
    /// Whether hosts play sessions in this world: they serve what they say themselves before what waits.
    pub(super) played: AtomicBool,
    /// Whether epochs may be lost in this world, and settlement notices with them.
    pub(super) lossy: AtomicBool,
}

/// What somebody who asked was told.
#[derive(Debug, Clone)]
pub(super) enum Told {
    /// The message was taken back.
    Withdrawn(MessageId),
    /// The message has a turn already.
    Started(MessageId),
    /// The turn was ended.
    Ended(u64),
}

impl Ledger {
    /// Notes the answer to a request.
    pub(super) fn told(&self, session: &SessionId, told: Told) {
        lock(&self.told).push((session.clone(), told));
    }

    /// Returns what was accepted for a session and is no note.
    pub(super) fn messages_of(&self, session: &SessionId) -> Vec<MessageId> {
        let notes = lock(&self.notes);
        lock(&self.accepted)
            .iter()
            .filter(|(_, receiver, message)| receiver == session && !notes.contains(message))
            .map(|(.., message)| message.clone())
            .collect()
    }

    /// Notes an acceptance; each sender's in the order in which it was told. The same acceptance again is one.
    pub(super) fn accepted(&self, sender: &str, receiver: &SessionId, message: MessageId) {
        let entry = (sender.to_owned(), receiver.clone(), message);
        let mut accepted = lock(&self.accepted);
        if !accepted.contains(&entry) {
            accepted.push(entry);
        }
    }

    /// Notes what a turn was told. Where lives of one session may overlap, each of them is a sender of its own: who is told first says nothing of the other.
    pub(super) fn accepted_from(&self, turn: &Turn, receiver: &SessionId, message: MessageId) {
        let life = if self.lossy.load(Ordering::Relaxed) { format!("{} in epoch {}", turn.session(), turn.epoch()) } else { turn.session().to_string() };
        self.accepted(&life, receiver, message);
    }

    /// Notes that the body of a turn has begun.
    pub(super) fn ran(&self, turn: &Turn) {
        lock(&self.runs).push((turn.session().clone(), turn.number(), turn.message_id().clone(), turn.attempt()));
    }

    pub(super) fn complain(&self, complaint: impl Into<String>) {
        lock(&self.complaints).push(complaint.into());
    }

    pub(super) fn promises(&self) -> usize {
        lock(&self.accepted).len()
    }
}

/// Waits until no session is starting, live or closing but kept ones without work.
pub(super) async fn quiet(host: &Host) {
    let (reply, quiet) = oneshot::channel();
    if host.services().registry.send_message(RegistryMessage::WhenQuiet { reply }).is_ok() {
        drop(quiet.await);
    }
}

/// Returns the ends of a session's turns, in order: the message's text by its id, the attempt, and how it ended.
pub(super) fn ends(store: &Witness, session: &SessionId) -> Vec<(String, u32, String)> {
    let mut texts = HashMap::new();
    let mut open = None;
    let mut ends = Vec::new();
    for event in store.events(session) {
        match event.body {
            Body::TurnStart { message, attempt, .. } => open = Some((message, attempt)),
            Body::UserMessage(message) => {
                texts.insert(message.id, greenroom_session::message::text_of(&message.content));
            }
            Body::TurnEnd { reason, .. } => {
                let (message, attempt) = open.take().unwrap();
                let how = reason.error_code().map_or_else(|| reason.as_str().to_owned(), str::to_owned);
                ends.push((texts.get(&message).cloned().unwrap_or_else(|| message.to_string()), attempt, how));
            }
            _ => {}
        }
    }
    ends
}

/// Returns every text that was heard, in order.
pub(super) fn heard(store: &Witness, session: &SessionId) -> Vec<String> {
    store
        .events(session)
        .into_iter()
        .filter_map(|event| match event.body {
            Body::UserMessage(message) => Some(greenroom_session::message::text_of(&message.content)),
            _ => None,
        })
        .collect()
}

/// Returns the ends of a session's epochs, in order.
pub(super) fn epochs(store: &Witness, session: &SessionId) -> Vec<EpochEnd> {
    store
        .events(session)
        .into_iter()
        .filter_map(|event| match event.body {
            Body::ActivationEnd { reason, .. } => Some(reason),
            _ => None,
        })
        .collect()
}

/// Waits for an occurrence. Subscribe before what causes it.
pub(super) async fn until(occurrences: &mut broadcast::Receiver<Occurrence>, mut wanted: impl FnMut(&Occurrence) -> bool) -> Occurrence {
    loop {
        match occurrences.recv().await {
            Ok(occurrence) if wanted(&occurrence) => return occurrence,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => panic!("the system ended before what the test waits for"),
        }
    }
}

/// A gate in a behaviour's way: the test sees who stands there and lets one pass at a time.
#[derive(Debug, Clone)]
pub(super) struct Barrier {
    arrived: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Barrier {
    pub(super) fn new() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    /// Waits in front of the gate.
    pub(super) async fn pass(&self) {
        self.arrived.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }

    /// Waits until somebody stands in front of the gate.
    pub(super) async fn reached(&self) {
        self.arrived.acquire().await.unwrap().forget();
    }

    /// Lets `count` pass, now or later.
    pub(super) fn open(&self, count: usize) {
        self.open.add_permits(count);
    }
}

/// Registers a closure as a behaviour; each Activation gets a copy of it.
pub(super) fn play<F, Fut>(config: &mut Config, name: &str, act: F)
where
    F: Fn(Turn) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<TurnEnd, TurnError>> + Send + 'static,
{
    config.behavior(name, move || {
        let act = act.clone();
        move |turn: Turn| act(turn)
    });
}

/// A configuration in which `name` completes every turn at once.
pub(super) fn simple(name: &str) -> Config {
    let mut config = Config::default();
    play(&mut config, name, |_| async { Ok(TurnEnd::Completed) });
    config
}

/// Runs one life of a system that is cut off, runtime and all, when `life` returns; the store is free for the next one.
pub(super) fn cut_off<Fut: Future<Output = ()>>(store: &mut Witness, config: Config, life: impl FnOnce(Host) -> Fut) {
    on_paused_time(async {
        let system = store.system(config).await;
        life(system.host()).await;
    });
    *store = store.reopen();
}
