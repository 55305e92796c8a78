//! What a test knows of the calls of a store, and what it lets become of them: to fail, to say something else, to stand still.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use greenroom_session::{
    codec::DecodeError,
    event::Event,
    header::Header,
    id::SessionId,
    store::{LoadError, StoreError},
};
use tokio::sync::Semaphore;

/// What a reader or a store is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    /// A header.
    Header,
    /// The children of the session; of `""` the roots.
    Children,
    /// Which sessions there are; of `""`.
    Sessions,
    /// What a trace of its parent's children finds of it.
    Found,
    /// What its row says.
    Rows,
    /// Some of its events.
    Events,
    /// Its whole log, folded.
    Load,
    /// Its inbox, or a message of it.
    Inbox,
    /// A committed operation; of `""` all that are committed together.
    Commit,
    /// A sign of life; of `""`.
    Heartbeat,
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
    pub(crate) fn of_store() -> StoreError {
        StoreError::Io("a planted outage".into())
    }

    pub(crate) fn of_session(self, id: &SessionId) -> LoadError {
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
    NoRow,
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
    /// How many logs are being read as a whole, and how many were at most.
    loading: (usize, usize),
    rules: Vec<Rule>,
    around: Option<Hook>,
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

    /// Returns every call, counted by session and kind. The heartbeats come when they come, and belong to no test.
    pub(crate) fn calls(&self) -> BTreeMap<(String, Call), usize> {
        let mut counts = BTreeMap::new();
        for call in self.lock().calls.iter().filter(|(_, call)| *call != Call::Heartbeat) {
            *counts.entry(call.clone()).or_default() += 1;
        }
        counts
    }

    /// Returns how many logs were read as a whole at the same time, at most.
    pub(crate) fn most_loads_at_once(&self) -> usize {
        self.lock().loading.1
    }

    /// Counts one who reads a whole log, as long as this is there.
    pub(crate) fn loading(&self) -> Loading {
        let (now, most) = &mut self.lock().loading;
        *now += 1;
        *most = (*most).max(*now);
        Loading(self.clone())
    }

    /// Lets calls fail: the `nth` from now on, or every one.
    pub(crate) fn fail(&self, session: &str, call: Call, nth: impl Into<Option<u64>>, fault: Fault) {
        self.rule(session, call, nth.into(), Action::Fail(fault));
    }

    /// Lets a header be another one where it is read by itself.
    pub(crate) fn answer_header(&self, session: &str, nth: impl Into<Option<u64>>, header: Header) {
        self.rule(session, Call::Header, nth.into(), Action::Header(Arc::new(header)));
    }

    /// Lets a header be another one where it is found with those of its siblings.
    pub(crate) fn find_header(&self, session: &str, nth: impl Into<Option<u64>>, header: Header) {
        self.rule(session, Call::Found, nth.into(), Action::Header(Arc::new(header)));
    }

    /// Lets a row be missing, so that the log must tell.
    pub(crate) fn lose_row(&self, session: &str, nth: impl Into<Option<u64>>) {
        self.rule(session, Call::Rows, nth.into(), Action::NoRow);
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

    /// Does something before and after each operation that is committed, and before and after all that are committed together.
    pub(crate) fn around_commits(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.lock().around = Some(Arc::new(hook));
    }

    fn rule(&self, session: &str, call: Call, nth: Option<u64>, action: Action) {
        self.lock().rules.push(Rule { session: session.into(), call, nth, seen: 0, action });
    }

    /// Notes a call and does what is to be done before it. Returns what is to be done with it.
    pub(crate) fn begin(&self, session: &str, call: Call) -> Plan {
        let mut actions: Vec<Action> = {
            let mut watched = self.lock();
            // To be found is a part of a call.
            if call != Call::Found {
                watched.calls.push((session.to_owned(), call));
            }
            let mut due = Vec::new();
            for rule in watched.rules.iter_mut().filter(|rule| rule.session == session && rule.call == call) {
                rule.seen += 1;
                if rule.nth.is_none_or(|nth| nth == rule.seen) {
                    due.push(rule.action.clone());
                }
            }
            due
        };
        if call == Call::Commit {
            actions.extend(self.lock().around.clone().into_iter().flat_map(|hook| [Action::Before(hook.clone()), Action::After(hook)]));
        }
        let mut plan = Plan::default();
        for action in actions {
            match action {
                Action::Fail(fault) => plan.fault = Some(fault),
                Action::Header(header) => plan.header = Some(header),
                Action::Events(events) => plan.events = Some(events),
                Action::NoRow => plan.no_row = true,
                Action::Wait(gate) => gate.pass(),
                Action::Before(hook) => hook(),
                Action::After(hook) => plan.after.push(hook),
            }
        }
        plan
    }
}

/// Somebody who reads a whole log.
pub(crate) struct Loading(Watch);

impl Drop for Loading {
    fn drop(&mut self) {
        let now = &mut self.0.lock().loading.0;
        *now = now.saturating_sub(1);
    }
}

/// What is to become of one call.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) fault: Option<Fault>,
    pub(crate) header: Option<Arc<Header>>,
    pub(crate) events: Option<Vec<Event>>,
    pub(crate) no_row: bool,
    after: Vec<Hook>,
}

impl Plan {
    /// Does what is to be done once the call has its answer.
    pub(crate) fn end<T>(self, answer: T) -> T {
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
