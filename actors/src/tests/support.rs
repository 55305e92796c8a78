//! What the tests share: a store that watches, a ledger of what was promised, and an audit of the logs that knows nothing of the fold.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use greenroom_session::{
    descriptor::{DESCRIPTOR_VERSION, Descriptor, Mode},
    event::{Body, EpochEnd, Event, TurnEnd as Reason},
    header::NewSession,
    id::{EffectKind, MessageId, Order, OwnerId, SessionId, notice_id},
    message::{InboxRecord, MessageKind},
    store::{CommitError, Create, Done, MessageState, Op, Reader, Refused, Store, StoreError, memory::MemoryStore},
};
use tokio::sync::{Semaphore, broadcast, oneshot};

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
        async move { System::start(config, store, true).await.unwrap() }
    }

    fn judge(&self, op: &Op, done: &Result<Done, Refused>) {
        if done.is_err() {
            return;
        }
        *lock(&self.seen.commits) += 1;
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
        ext: serde_json::Map::new(),
    }
}

/// What was promised to senders, and what behaviours saw.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    accepted: Mutex<Vec<(String, SessionId, MessageId)>>,
    runs: Mutex<Vec<(SessionId, u64, MessageId, u32)>>,
    told: Mutex<Vec<(SessionId, Told)>>,
    complaints: Mutex<Vec<String>>,
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

    /// Returns what was accepted for a session.
    pub(super) fn messages_of(&self, session: &SessionId) -> Vec<MessageId> {
        lock(&self.accepted).iter().filter(|(_, receiver, _)| receiver == session).map(|(.., message)| message.clone()).collect()
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

/// Reads every log by rules of its own and returns what is wrong. With `served` nothing that can run may still wait.
pub(super) fn audit(store: &Witness, ledger: &Ledger, served: bool) -> Vec<String> {
    let mut wrong = store.complaints();
    wrong.extend(lock(&ledger.complaints).iter().cloned());
    let mut reader = store.store.reader().unwrap();
    let mut logs = HashMap::new();
    for session in reader.find("", usize::MAX).unwrap() {
        let mut log = AuditedLog::default();
        for event in reader.events(&session, 0, usize::MAX).unwrap() {
            log.read(&event, &mut |id| match reader.message(&session, id).unwrap() {
                Some(MessageState::Taken(order)) => Some(order),
                _ => None,
            });
        }
        let inbox = reader.inbox(&session, usize::MAX).unwrap();
        log.pending = inbox.iter().map(|record| record.message.id.clone()).collect();
        log.requests = inbox.iter().filter(|record| record.message.control.is_some()).map(|record| record.message.id.clone()).collect();
        log.parent = reader.header(&session).unwrap().and_then(|header| header.parent.clone());
        log.finish(served);
        wrong.extend(log.wrong.drain(..).map(|complaint| format!("{session}: {complaint}")));
        logs.insert(session, log);
    }
    judge_promises(&logs, ledger, served, &mut wrong);
    judge_runs(&logs, ledger, &mut wrong);
    judge_notices(&logs, &mut wrong);
    judge_answers(&logs, ledger, &mut wrong);
    wrong
}

/// What those who asked were told is what the logs say.
fn judge_answers(logs: &HashMap<SessionId, AuditedLog>, ledger: &Ledger, wrong: &mut Vec<String>) {
    for (session, told) in lock(&ledger.told).iter() {
        let Some(log) = logs.get(session) else { continue };
        let right = match told {
            Told::Withdrawn(message) => log.withdrawn.contains(message),
            Told::Started(message) => log.attempts.contains_key(message),
            // A turn that was cut off before it could be ended is made good by a last one of the same message.
            Told::Ended(turn) => log.starts.get(turn).is_some_and(|(message, _)| {
                let last = log.starts.iter().rev().find(|(_, (served, _))| served == message);
                last.is_some_and(|(last, _)| log.aborted.contains(last))
            }),
        };
        if !right {
            wrong.push(format!("{session}: somebody was told {told:?}, which the log does not bear out"));
        }
    }
}

/// A notice that a child has settled after a turn comes after everything that the child reported up to that turn.
fn judge_notices(logs: &HashMap<SessionId, AuditedLog>, wrong: &mut Vec<String>) {
    for (child, log) in logs {
        let Some(parent) = log.parent.as_ref().and_then(|parent| logs.get(parent)) else { continue };
        for &turn in log.epoch_of_turn.keys() {
            let Some(notice) = parent.places.get(&notice_id(child, turn)) else { continue };
            for (reported_in, report) in &log.reports {
                if *reported_in <= turn && parent.places.get(report).is_some_and(|place| place > notice) {
                    wrong.push(format!("{child}: the notice of turn {turn} overtook report {report} of turn {reported_in}"));
                }
            }
        }
    }
}

fn judge_promises(logs: &HashMap<SessionId, AuditedLog>, ledger: &Ledger, served: bool, wrong: &mut Vec<String>) {
    let mut latest: HashMap<_, (Place, MessageId)> = HashMap::new();
    for (sender, receiver, message) in lock(&ledger.accepted).iter() {
        let Some(log) = logs.get(receiver) else {
            wrong.push(format!("{message} was accepted for {receiver}, which does not exist"));
            continue;
        };
        let place = log.places.get(message).copied();
        let taken_back = log.withdrawn.contains(message);
        let ends = log.finals.get(message).copied().unwrap_or(0) + u32::from(log.joined.contains(message)) + u32::from(taken_back);
        // A note that opened a turn has joined it, however often that turn is begun again.
        let unfinished = log.unfinished.as_ref() == Some(message) && !log.joined.contains(message);
        let waits = log.pending.contains(message) || unfinished;
        match (ends, waits) {
            (1, false) => {}
            (0, true) if !served => {}
            (0, true) => wrong.push(format!("{receiver}: {message} of {sender} still waits")),
            _ => wrong.push(format!("{receiver}: {message} of {sender} has {ends} ends, waits: {waits}")),
        }
        if taken_back {
            continue;
        }
        // A message that waits comes after everything that does not.
        let place = place.unwrap_or((u64::MAX, 0));
        let key = (sender.clone(), receiver.clone(), log.joined.contains(message));
        if let Some((before, other)) = latest.insert(key, (place, message.clone()))
            && before > place
        {
            wrong.push(format!("{receiver}: {message} of {sender} was served before the earlier {other}"));
        }
    }
}

fn judge_runs(logs: &HashMap<SessionId, AuditedLog>, ledger: &Ledger, wrong: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (session, turn, message, attempt) in lock(&ledger.runs).iter() {
        if !seen.insert((session.clone(), *turn)) {
            wrong.push(format!("{session}: the body of turn {turn} ran twice"));
        }
        let logged = logs.get(session).and_then(|log| log.starts.get(turn));
        if logged != Some(&(message.clone(), *attempt)) {
            wrong.push(format!("{session}: the body of turn {turn} ran for {message} as attempt {attempt}, the log says {logged:?}"));
        }
    }
    for (session, log) in logs {
        for turn in &log.completed {
            if !lock(&ledger.runs).is_empty() && !seen.contains(&(session.clone(), *turn)) {
                wrong.push(format!("{session}: turn {turn} is completed and its body never ran"));
            }
        }
    }
}

/// A seq, and where in the list of that event.
type Place = (u64, usize);

/// A second reading of a log, written without a look at the first.
#[derive(Debug, Default)]
struct AuditedLog {
    events: u64,
    epoch: u64,
    live: bool,
    turn: Option<(u64, MessageId)>,
    step: Option<u32>,
    turns: u64,
    attempts: BTreeMap<MessageId, u32>,
    finals: BTreeMap<MessageId, u32>,
    completed: BTreeSet<u64>,
    starts: BTreeMap<u64, (MessageId, u32)>,
    /// Where in the log a message was first served, or joined.
    places: BTreeMap<MessageId, Place>,
    unfinished: Option<MessageId>,
    joined: BTreeSet<MessageId>,
    heard: BTreeSet<MessageId>,
    expected: VecDeque<MessageId>,
    last_turn_order: Option<Order>,
    last_note_order: Option<Order>,
    epoch_of_turn: BTreeMap<u64, u64>,
    /// Reports by the turn in which they were recorded.
    reports: Vec<(u64, MessageId)>,
    parent: Option<SessionId>,
    effects: BTreeSet<String>,
    pending: BTreeSet<MessageId>,
    /// Requests among what waits.
    requests: BTreeSet<MessageId>,
    withdrawn: BTreeSet<MessageId>,
    answered: BTreeSet<MessageId>,
    aborted: BTreeSet<u64>,
    wrong: Vec<String>,
}

impl AuditedLog {
    fn say(&mut self, seq: u64, what: impl std::fmt::Display) {
        self.wrong.push(format!("event {seq}: {what}"));
    }

    fn read(&mut self, event: &Event, order_of: &mut dyn FnMut(&MessageId) -> Option<Order>) {
        let seq = event.seq;
        if seq != self.events {
            self.say(seq, format!("stands at place {}", self.events));
        }
        self.events += 1;
        if !self.expected.is_empty() && !matches!(event.body, Body::UserMessage(_)) {
            let expected = std::mem::take(&mut self.expected);
            self.say(seq, format!("{expected:?} should have been heard first"));
        }
        match &event.body {
            Body::ActivationStart { epoch } => {
                if self.live || *epoch != self.epoch + 1 || self.turn.is_some() {
                    self.say(seq, format!("epoch {epoch} starts after {} (live: {}, turn: {:?})", self.epoch, self.live, self.turn));
                }
                (self.epoch, self.live) = (*epoch, true);
            }
            Body::ActivationEnd { epoch, .. } => {
                if !self.live || *epoch != self.epoch || self.turn.is_some() {
                    self.say(seq, format!("epoch {epoch} ends (live: {}, turn: {:?})", self.live, self.turn));
                }
                self.live = false;
            }
            Body::TurnStart { turn, message, attempt } => self.start(seq, *turn, message, *attempt, order_of),
            Body::TurnEnd { turn, reason } => self.end(seq, *turn, reason),
            Body::NoteJoined { turn, notes } => {
                self.within(seq, *turn);
                for (at, note) in notes.iter().enumerate() {
                    if !self.joined.insert(note.clone()) {
                        self.say(seq, format!("note {note} joins twice"));
                    }
                    let order = order_of(note);
                    if order.is_none() || order <= self.last_note_order {
                        self.say(seq, format!("note {note} of order {order:?} after {:?}", self.last_note_order));
                    }
                    self.last_note_order = order;
                    self.places.insert(note.clone(), (seq, at));
                }
                // The turn's own message comes after the notes that join at its start.
                self.expected = notes.iter().cloned().collect();
            }
            Body::UserMessage(message) => {
                if !self.heard.insert(message.id.clone()) {
                    self.say(seq, format!("{} is heard twice", message.id));
                }
                if let Some(expected) = self.expected.pop_front()
                    && expected != message.id
                {
                    self.say(seq, format!("{} is heard where {expected} should be", message.id));
                }
            }
            Body::StepStart { turn, step } => {
                self.within(seq, *turn);
                if self.step.is_some() {
                    self.say(seq, "a step within a step");
                }
                self.step = Some(*step);
            }
            Body::StepEnd { turn, step, .. } => {
                self.within(seq, *turn);
                if self.step.take() != Some(*step) {
                    self.say(seq, format!("step {step} ends and was not open"));
                }
            }
            Body::EffectAccepted { turn, key, kind, id, .. } => {
                self.within(seq, *turn);
                if *kind == EffectKind::Report {
                    self.reports.push((*turn, MessageId::new(id).unwrap()));
                }
                if !self.effects.insert(key.clone()) {
                    self.say(seq, format!("effect {key} twice"));
                }
            }
            Body::Memo { turn, .. } | Body::AssistantMessage { turn, .. } => self.within(seq, *turn),
            Body::MessageWithdrawn { message, .. } => self.take_back(seq, message, order_of(message)),
            Body::ControlAnswered { control, .. } => self.answer(seq, control, order_of(control)),
            Body::AnswerRecorded { message, .. } if self.turn.as_ref().is_none_or(|(_, open)| open != message) => {
                self.say(seq, "an answer to another message");
            }
            _ => {}
        }
    }

    fn within(&mut self, seq: u64, turn: u64) {
        if self.turn.as_ref().is_none_or(|(open, _)| *open != turn) || !self.live {
            self.say(seq, format!("is of turn {turn} while {:?} is open (live: {})", self.turn, self.live));
        }
    }

    fn take_back(&mut self, seq: u64, message: &MessageId, order: Option<Order>) {
        if order.is_none() || self.attempts.contains_key(message) || !self.withdrawn.insert(message.clone()) {
            self.say(seq, format!("{message} is taken back and waits still, has a turn, or was taken back before"));
        }
    }

    fn answer(&mut self, seq: u64, control: &MessageId, order: Option<Order>) {
        if order.is_none() || !self.answered.insert(control.clone()) {
            self.say(seq, format!("request {control} is answered and waits still, or was answered before"));
        }
    }

    fn start(&mut self, seq: u64, turn: u64, message: &MessageId, attempt: u32, order_of: &mut dyn FnMut(&MessageId) -> Option<Order>) {
        if !self.live || self.turn.is_some() || turn != self.turns + 1 {
            self.say(seq, format!("turn {turn} starts after {} (live: {}, open: {:?})", self.turns, self.live, self.turn));
        }
        if let Some(unfinished) = self.unfinished.take()
            && unfinished != *message
        {
            self.say(seq, format!("{message} is served before the unfinished {unfinished}"));
        }
        let attempts = self.attempts.entry(message.clone()).or_default();
        *attempts += 1;
        let expected = *attempts;
        if attempt != expected {
            self.say(seq, format!("attempt {attempt} at {message} is the {expected}th"));
        }
        if self.withdrawn.contains(message) {
            self.say(seq, format!("{message} is served after it was taken back"));
        }
        if self.finals.contains_key(message) {
            self.say(seq, format!("{message} is served again after its end"));
        }
        if attempt == 1 && !self.joined.contains(message) {
            let order = order_of(message);
            if order.is_none() {
                self.say(seq, format!("{message} was never accepted or still waits"));
            }
            if order <= self.last_turn_order {
                self.say(seq, format!("{message} of order {order:?} is served after {:?}", self.last_turn_order));
            }
            self.last_turn_order = order.max(self.last_turn_order);
        }
        self.turns = turn;
        self.epoch_of_turn.insert(turn, self.epoch);
        self.turn = Some((turn, message.clone()));
        self.starts.insert(turn, (message.clone(), attempt));
        self.places.entry(message.clone()).or_insert((seq, 0));
    }

    fn end(&mut self, seq: u64, turn: u64, reason: &Reason) {
        let Some((open, message)) = self.turn.take() else { return self.say(seq, format!("turn {turn} ends and none is open")) };
        if open != turn || self.step.is_some() {
            self.say(seq, format!("turn {turn} ends while {open} is open, step {:?}", self.step));
        }
        self.step = None;
        if matches!(reason, Reason::Disposed | Reason::Interrupted) {
            self.unfinished = Some(message);
            return;
        }
        if *reason == Reason::Completed {
            self.completed.insert(turn);
        }
        if matches!(reason, Reason::Aborted { .. }) {
            self.aborted.insert(turn);
        }
        // A note that opened a turn has joined it, and that is its end.
        if self.joined.contains(&message) {
            return;
        }
        let finals = self.finals.entry(message.clone()).or_default();
        *finals += 1;
        if *finals > 1 {
            self.say(seq, format!("{message} ends a second time"));
        }
    }

    fn finish(&mut self, served: bool) {
        if let Some((_, message)) = &self.turn {
            self.unfinished = Some(message.clone());
        }
        let heard: Vec<_> = self.pending.intersection(&self.heard).cloned().collect();
        if !heard.is_empty() {
            self.wrong.push(format!("{heard:?} were heard and wait still"));
        }
        if served && !self.requests.is_empty() {
            self.wrong.push(format!("requests {:?} were never answered", self.requests));
        }
        if served && (self.turn.is_some() || self.unfinished.is_some()) {
            self.wrong.push(format!("turn {:?} is open or {:?} unfinished at the end", self.turn, self.unfinished));
        }
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
