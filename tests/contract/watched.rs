//! A store that counts what is read of each session, fails or answers otherwise where a test says so, and waits until it is let go on.

use std::{
    collections::BTreeMap,
    fmt, io,
    ops::ControlFlow,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use greenroom_session::{
    check::{Checked, Finding, Rebuilt},
    codec::DecodeError,
    event::Event,
    fold::Fold,
    head::Head,
    header::Header,
    id::{MessageId, OwnerId, Seq, SessionId},
    listing::{Cursor, Described, Description},
    message::InboxRecord,
    store::{CommitError, Done, ExportError, Lease, LoadError, Log, Member, MessageState, Op, Reader, Refused, Store, StoreError, Traced},
};
use tokio::sync::Semaphore;

/// What a reader or a store is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    /// A header.
    Header,
    /// The children of the session; of `""` the roots.
    Children,
    /// What its row says.
    Rows,
    /// Events.
    Events,
    /// The whole session.
    Load,
    /// Its inbox, or a message of it.
    Inbox,
    /// A committed operation.
    Commit,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The store cannot be read now.
    Outage,
    /// There is no such session.
    Gone,
    /// A record is damaged.
    Corrupt,
}

impl Fault {
    fn of_store() -> StoreError {
        StoreError::Io("a planted outage".into())
    }

    fn of_session(self, id: &SessionId) -> LoadError {
        match self {
            Self::Outage => Self::of_store().into(),
            Self::Gone => LoadError::NotFound(id.clone()),
            Self::Corrupt => LoadError::Corrupt { session: id.clone(), place: "event 0".into(), source: DecodeError::Checksum },
        }
    }
}

type Hook = Arc<dyn Fn() + Send + Sync>;

#[derive(Clone)]
enum Action {
    Fail(Fault),
    Header(Arc<Header>),
    Events(Vec<Event>),
    Wait(Arc<Gate>),
    Before(Hook),
    After(Hook),
}

struct Rule {
    session: String,
    call: Call,
    /// Which of the calls from now on, from 1; every one if `None`.
    nth: Option<u64>,
    seen: u64,
    action: Action,
}

/// What is known of all readers of a world, and what they are told to do.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Mutex<Watched>>);

#[derive(Default)]
struct Watched {
    calls: Vec<(String, Call)>,
    rules: Vec<Rule>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets which calls there were and what they were to do.
    pub(crate) fn clear(&self) {
        *self.lock() = Watched::default();
    }

    /// Returns the calls of one kind about one session.
    pub(crate) fn count(&self, session: &str, call: Call) -> usize {
        self.lock().calls.iter().filter(|(of, kind)| of == session && *kind == call).count()
    }

    /// Returns how often the log of a session was read, or some of it.
    pub(crate) fn log_reads(&self, session: &str) -> usize {
        [Call::Events, Call::Load].into_iter().map(|call| self.count(session, call)).sum()
    }

    /// Returns every call, counted by session and kind.
    pub(crate) fn calls(&self) -> BTreeMap<(String, Call), usize> {
        let mut counts = BTreeMap::new();
        for call in &self.lock().calls {
            *counts.entry(call.clone()).or_default() += 1;
        }
        counts
    }

    /// Lets calls fail: the `nth` from now on, or every one.
    pub(crate) fn fail(&self, session: &str, call: Call, nth: impl Into<Option<u64>>, fault: Fault) {
        self.rule(session, call, nth.into(), Action::Fail(fault));
    }

    /// Lets a header be another one.
    pub(crate) fn answer_header(&self, session: &str, nth: impl Into<Option<u64>>, header: Header) {
        self.rule(session, Call::Header, nth.into(), Action::Header(Arc::new(header)));
    }

    /// Lets events be other ones.
    pub(crate) fn answer_events(&self, session: &str, nth: impl Into<Option<u64>>, events: Vec<Event>) {
        self.rule(session, Call::Events, nth.into(), Action::Events(events));
    }

    /// Stops the `nth` call from now on before it begins.
    pub(crate) fn pause(&self, session: &str, call: Call, nth: u64) -> Pause {
        let gate = Arc::new(Gate { reached: Semaphore::new(0), open: Mutex::new(false), opened: Condvar::new() });
        self.rule(session, call, Some(nth), Action::Wait(gate.clone()));
        Pause(gate)
    }

    /// Does something before calls.
    pub(crate) fn before(&self, session: &str, call: Call, nth: impl Into<Option<u64>>, hook: impl Fn() + Send + Sync + 'static) {
        self.rule(session, call, nth.into(), Action::Before(Arc::new(hook)));
    }

    /// Does something when calls have their answer and whoever asked has not.
    pub(crate) fn after(&self, session: &str, call: Call, nth: impl Into<Option<u64>>, hook: impl Fn() + Send + Sync + 'static) {
        self.rule(session, call, nth.into(), Action::After(Arc::new(hook)));
    }

    fn rule(&self, session: &str, call: Call, nth: Option<u64>, action: Action) {
        self.lock().rules.push(Rule { session: session.into(), call, nth, seen: 0, action });
    }

    /// Notes a call and does what is to be done before it. Returns what is to be done with it.
    fn begin(&self, session: &str, call: Call) -> Plan {
        let actions: Vec<Action> = {
            let mut watched = self.lock();
            watched.calls.push((session.to_owned(), call));
            let mut due = Vec::new();
            for rule in watched.rules.iter_mut().filter(|rule| rule.session == session && rule.call == call) {
                rule.seen += 1;
                if rule.nth.is_none_or(|nth| nth == rule.seen) {
                    due.push(rule.action.clone());
                }
            }
            due
        };
        let mut plan = Plan::default();
        for action in actions {
            match action {
                Action::Fail(fault) => plan.fault = Some(fault),
                Action::Header(header) => plan.header = Some(header),
                Action::Events(events) => plan.events = Some(events),
                Action::Wait(gate) => gate.pass(),
                Action::Before(hook) => hook(),
                Action::After(hook) => plan.after.push(hook),
            }
        }
        plan
    }
}

#[derive(Default)]
struct Plan {
    fault: Option<Fault>,
    header: Option<Arc<Header>>,
    events: Option<Vec<Event>>,
    after: Vec<Hook>,
}

impl Plan {
    fn end<T>(self, answer: T) -> T {
        for hook in self.after {
            hook();
        }
        answer
    }
}

struct Gate {
    reached: Semaphore,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        self.reached.add_permits(1);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(open, |open| !*open).unwrap_or_else(PoisonError::into_inner));
    }

    fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }
}

/// A call that stands still until it is let go on, or this is dropped.
pub(crate) struct Pause(Arc<Gate>);

impl Pause {
    /// Waits until the call is there.
    pub(crate) async fn reached(&self) {
        let reached = tokio::time::timeout(Duration::from_secs(60), self.0.reached.acquire()).await;
        reached.expect("nobody makes the call that was to stand still").unwrap().forget();
    }

    /// Lets it go on.
    pub(crate) fn open(&self) {
        self.0.open();
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A store under watch. What it does is done on threads that may block, so that a call can stand still.
#[derive(Debug)]
pub(crate) struct WatchedStore {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) watch: Watch,
}

impl Store for WatchedStore {
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        let plans: Vec<Plan> = ops.iter().map(|op| self.watch.begin(op.session().as_str(), Call::Commit)).collect();
        if plans.iter().any(|plan| plan.fault.is_some()) {
            return Err(CommitError::NotCommitted(Fault::of_store()));
        }
        let done = self.store.commit(ops);
        plans.into_iter().fold(done, |done, plan| plan.end(done))
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(WatchedReader { reader: self.store.reader()?, watch: self.watch.clone() }))
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn owner(&self) -> &OwnerId {
        self.store.owner()
    }

    fn heartbeat(&self) -> Result<(), StoreError> {
        self.store.heartbeat()
    }

    fn poll(&self) -> Result<Vec<SessionId>, StoreError> {
        self.store.poll()
    }

    fn rebuild_index(&self, only: Option<&SessionId>, see: &mut dyn FnMut(Rebuilt)) -> Result<(), StoreError> {
        self.store.rebuild_index(only, see)
    }

    fn close(&self) -> Result<(), StoreError> {
        self.store.close()
    }
}

#[derive(Debug)]
struct WatchedReader {
    reader: Box<dyn Reader>,
    watch: Watch,
}

impl WatchedReader {
    fn of_session<T>(&mut self, id: &SessionId, call: Call, ask: impl FnOnce(&mut dyn Reader) -> Result<T, LoadError>) -> Result<T, LoadError> {
        let plan = self.watch.begin(id.as_str(), call);
        let answer = match plan.fault {
            Some(fault) => Err(fault.of_session(id)),
            None => ask(&mut *self.reader),
        };
        plan.end(answer)
    }

    /// A call about the children of one session: what is said of each child may be a fault of its own.
    fn of_children<T>(
        &mut self,
        call: Call,
        ids: &[SessionId],
        ask: impl FnOnce(&mut dyn Reader) -> Result<Vec<Result<T, LoadError>>, StoreError>,
    ) -> Result<Vec<Result<T, LoadError>>, StoreError> {
        let plans: Vec<Plan> = ids.iter().map(|id| self.watch.begin(id.as_str(), call)).collect();
        let mut said = ask(&mut *self.reader)?;
        for ((id, plan), said) in ids.iter().zip(plans).zip(&mut said) {
            if let Some(fault) = plan.fault {
                *said = Err(fault.of_session(id));
            }
            plan.end(());
        }
        Ok(said)
    }
}

fn key(parent: Option<&SessionId>) -> &str {
    parent.map_or("", SessionId::as_str)
}

impl Reader for WatchedReader {
    fn header(&mut self, id: &SessionId) -> Result<Option<Arc<Header>>, LoadError> {
        let plan = self.watch.begin(id.as_str(), Call::Header);
        let answer = match (&plan.header, plan.fault) {
            (Some(header), _) => Ok(Some(header.clone())),
            (None, Some(fault)) => Err(fault.of_session(id)),
            (None, None) => self.reader.header(id),
        };
        plan.end(answer)
    }

    fn is_removed(&mut self, id: &SessionId) -> Result<bool, StoreError> {
        self.reader.is_removed(id)
    }

    fn export(&mut self, id: &SessionId, line: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), ExportError> {
        self.reader.export(id, line)
    }

    fn load(&mut self, id: &SessionId) -> Result<Log, LoadError> {
        self.of_session(id, Call::Load, |reader| reader.load(id))
    }

    fn fold(&mut self, id: &SessionId, see: &mut dyn FnMut(&Event) -> ControlFlow<()>) -> Result<Option<Fold>, LoadError> {
        self.of_session(id, Call::Load, |reader| reader.fold(id, see))
    }

    fn events(&mut self, id: &SessionId, from: Seq, limit: usize) -> Result<Vec<Event>, LoadError> {
        let plan = self.watch.begin(id.as_str(), Call::Events);
        let answer = match (&plan.events, plan.fault) {
            (Some(events), _) => Ok(events.clone()),
            (None, Some(fault)) => Err(fault.of_session(id)),
            (None, None) => self.reader.events(id, from, limit),
        };
        plan.end(answer)
    }

    fn inbox(&mut self, id: &SessionId, limit: usize) -> Result<Vec<InboxRecord>, LoadError> {
        self.of_session(id, Call::Inbox, |reader| reader.inbox(id, limit))
    }

    fn message(&mut self, id: &SessionId, message: &MessageId) -> Result<Option<MessageState>, LoadError> {
        self.of_session(id, Call::Inbox, |reader| reader.message(id, message))
    }

    fn children(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Traced>, StoreError> {
        let plan = self.watch.begin(key(parent), Call::Children);
        let answer = if plan.fault.is_some() { Err(Fault::of_store()) } else { self.reader.children(parent, after, limit) };
        plan.end(answer)
    }

    fn rows(&mut self, children: &[Traced]) -> Result<Vec<Result<Described, LoadError>>, StoreError> {
        let ids: Vec<SessionId> = children.iter().map(|child| child.id.clone()).collect();
        self.of_children(Call::Rows, &ids, |reader| reader.rows(children))
    }

    fn family_rows(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Member<Described>>, StoreError> {
        let plan = self.watch.begin(key(parent), Call::Children);
        let (children, rows): (Vec<Traced>, Vec<_>) = match plan.fault {
            Some(_) => return Err(Fault::of_store()),
            None => self.reader.family_rows(parent, after, limit)?.into_iter().unzip(),
        };
        let ids: Vec<SessionId> = children.iter().map(|child| child.id.clone()).collect();
        let rows = plan.end(self.of_children(Call::Rows, &ids, |_| Ok(rows))?);
        Ok(children.into_iter().zip(rows).collect())
    }

    fn holder(&mut self, id: &SessionId, head: &Head) -> Result<Option<OwnerId>, StoreError> {
        self.reader.holder(id, head)
    }

    fn describe(&mut self, children: &[Traced], verify: bool) -> Result<Vec<Result<Description, LoadError>>, StoreError> {
        let ids: Vec<SessionId> = children.iter().map(|child| child.id.clone()).collect();
        self.of_children(Call::Rows, &ids, |reader| reader.describe(children, verify))
    }

    fn family(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize, verify: bool) -> Result<Vec<Member>, StoreError> {
        let plan = self.watch.begin(key(parent), Call::Children);
        let (children, described): (Vec<Traced>, Vec<_>) = match plan.fault {
            Some(_) => return Err(Fault::of_store()),
            None => self.reader.family(parent, after, limit, verify)?.into_iter().unzip(),
        };
        let ids: Vec<SessionId> = children.iter().map(|child| child.id.clone()).collect();
        let described = plan.end(self.of_children(Call::Rows, &ids, |_| Ok(described))?);
        Ok(children.into_iter().zip(described).collect())
    }

    fn find(&mut self, prefix: &str, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.reader.find(prefix, limit)
    }

    fn alias(&mut self, parent: &SessionId, alias: &str) -> Result<Option<SessionId>, StoreError> {
        self.reader.alias(parent, alias)
    }

    fn runnable(&mut self, root: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.reader.runnable(root, limit)
    }

    fn leases(&mut self, root: Option<&SessionId>) -> Result<Vec<Lease>, StoreError> {
        self.reader.leases(root)
    }

    fn sessions(&mut self, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.reader.sessions(after, limit)
    }

    fn count(&mut self) -> Result<u64, StoreError> {
        self.reader.count()
    }

    fn check(&mut self, id: &SessionId, see: &mut dyn FnMut(Finding)) -> Result<Option<Checked>, StoreError> {
        self.reader.check(id, see)
    }

    fn check_store(&mut self, see: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        self.reader.check_store(see)
    }
}
