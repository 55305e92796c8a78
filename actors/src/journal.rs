//! The Journal: the store's write side.
//!
//! **Messages.** `Commit` from everybody who writes, `Committed` from its writer thread, `Tick` from its own timer.
//! **State.** Operations that wait, and whether a commit is under way. Nothing is acknowledged from here before it is durable.
//! **Order.** While one commit is under way the next batch forms, so that one sync serves all who wait. Operations of one kind keep
//! the order in which they were handed over; what holders write goes before what senders deliver, so that a backlog of
//! deliveries does not slow down the turns that work it off.
//! **End.** Whatever waits is answered as unknown: the same ids again are safe.
//!
//! A store without a disk commits in place, in the caller; then the actor only keeps time.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, mpsc},
    thread,
};

use greenroom_session::{
    id::SessionId,
    store::{CommitError, Done, HEARTBEAT_MS, Op, Store},
};
use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr};
use tokio::sync::oneshot;

use crate::behind::go_behind;
use crate::error::WriteError;

/// Most operations in one batch.
const MAX_BATCH: usize = 1024;
/// How often those who were answered together are given a chance to come back together. Whoever is answered first would else go alone, and the others after it:
/// a sync for one, and then one for the rest.
const PATIENCE: u32 = 8;
/// Most bytes of text in one batch, past the first operation.
const MAX_BATCH_BYTES: usize = 1024 * 1024;

/// How often to look for what dead processes left behind.
const SCAN_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// A result that may still be under way.
#[derive(Debug)]
pub(crate) struct Pending(PendingState);

#[derive(Debug)]
enum PendingState {
    Ready(Result<Done, WriteError>),
    Waiting(oneshot::Receiver<Result<Done, WriteError>>),
    /// Not handed over yet: the log waits for a claim that is under way.
    Later(oneshot::Receiver<Pending>),
}

impl Pending {
    /// Makes a result that is known.
    pub(crate) fn ready(result: Result<Done, WriteError>) -> Self {
        Self(PendingState::Ready(result))
    }

    /// Makes a result of an operation that is yet to be handed over.
    pub(crate) fn later(receiver: oneshot::Receiver<Self>) -> Self {
        Self(PendingState::Later(receiver))
    }

    /// Tells whether the result is known.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.0, PendingState::Ready(_))
    }

    /// Returns the result if it is known; what is under way is unknown.
    pub(crate) fn now(self) -> Result<Done, WriteError> {
        match self.0 {
            PendingState::Ready(result) => result,
            _ => Err(WriteError::Ended),
        }
    }

    /// Waits as [`Pending::done`] does, but not longer than this.
    ///
    /// # Errors
    /// [`WriteError::TimedOut`] if there is no answer by then; the operation goes on.
    ///
    /// # Cancel safety
    /// The operation goes on; only its result is lost.
    pub(crate) async fn done_within(mut self, time: std::time::Duration) -> Result<Done, WriteError> {
        if self.known_within(time).await { self.now() } else { Err(WriteError::TimedOut) }
    }

    /// Waits for the result, but not longer than this, and tells whether it is known; if not, it can be waited for as before.
    ///
    /// # Cancel safety
    /// As if it had not been called.
    pub(crate) async fn known_within(&mut self, time: std::time::Duration) -> bool {
        // No timer for what is known.
        self.is_ready() || tokio::time::timeout(time, self.known()).await.is_ok()
    }

    async fn known(&mut self) {
        loop {
            self.0 = match &mut self.0 {
                PendingState::Ready(_) => return,
                PendingState::Waiting(receiver) => PendingState::Ready(receiver.await.unwrap_or(Err(WriteError::Ended))),
                PendingState::Later(receiver) => receiver.await.map_or(PendingState::Ready(Err(WriteError::Ended)), |pending| pending.0),
            };
        }
    }

    /// Gives the result up, unless it is known. Once there is one, the journal has whoever is to serve what was written woken: see [`ForsakenHook`].
    pub(crate) fn forsake(self) -> Option<Result<Done, WriteError>> {
        match self.0 {
            PendingState::Ready(result) => Some(result),
            PendingState::Waiting(mut receiver) => {
                // From here on the writer finds nobody; what it has answered before is here.
                receiver.close();
                receiver.try_recv().ok()
            }
            PendingState::Later(_) => None,
        }
    }

    /// Waits until the operation is durable or has failed.
    ///
    /// # Errors
    /// [`WriteError`].
    ///
    /// # Cancel safety
    /// The operation goes on; only its result is lost.
    pub(crate) async fn done(mut self) -> Result<Done, WriteError> {
        self.known().await;
        self.now()
    }
}

/// Hands operations to the journal.
#[derive(Clone)]
pub(crate) struct JournalHandle {
    store: Arc<dyn Store>,
    actor: ActorRef<JournalMessage>,
}

impl fmt::Debug for JournalHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalHandle").finish_non_exhaustive()
    }
}

impl JournalHandle {
    pub(crate) fn new(store: Arc<dyn Store>, actor: ActorRef<JournalMessage>) -> Self {
        Self { store, actor }
    }

    /// Returns the actor.
    #[cfg(any(test, feature = "chaos"))]
    pub(crate) fn actor(&self) -> &ActorRef<JournalMessage> {
        &self.actor
    }

    /// Hands operations over in this order and returns at once.
    pub(crate) fn submit<const N: usize>(&self, ops: [Op; N]) -> [Pending; N] {
        if self.store.is_inline() {
            return match self.store.commit(&ops) {
                Ok(results) => {
                    let mut results = results.into_iter();
                    std::array::from_fn(|_| Pending::ready(results.next().map_or(Err(WriteError::Ended), |result| result.map_err(WriteError::from))))
                }
                Err(error) => {
                    let error = failed(error);
                    std::array::from_fn(|_| Pending::ready(Err(error.clone())))
                }
            };
        }
        ops.map(|op| {
            let (reply, receiver) = oneshot::channel();
            match self.actor.send_message(JournalMessage::Commit(Box::new(Waiter { op, reply }))) {
                Ok(()) => Pending(PendingState::Waiting(receiver)),
                // The message came back: nothing of it was written.
                Err(MessagingErr::SendErr(_) | MessagingErr::ChannelClosed | MessagingErr::InvalidActorType) => Pending::ready(Err(WriteError::Ended)),
            }
        })
    }

    /// Commits one operation.
    ///
    /// # Errors
    /// [`WriteError`].
    ///
    /// # Cancel safety
    /// The operation goes on; only its result is lost.
    pub(crate) async fn commit(&self, op: Op) -> Result<Done, WriteError> {
        let [pending] = self.submit([op]);
        pending.done().await
    }
}

fn failed(error: CommitError) -> WriteError {
    match error {
        CommitError::Indeterminate(_) => WriteError::Indeterminate(Arc::new(error)),
        _ => WriteError::NotCommitted(Arc::new(error)),
    }
}

/// What the journal is told.
#[derive(Debug)]
pub(crate) enum JournalMessage {
    /// Write this.
    Commit(Box<Waiter>),
    /// The batch that was under way is answered.
    Committed,
    /// Look whether those who were answered have come back.
    Gather,
    /// Renew the lease, ask what other processes did.
    Tick,
    /// Other processes accepted messages for these sessions.
    Foreign(Vec<SessionId>),
}

/// An operation and who waits for it.
#[derive(Debug)]
pub(crate) struct Waiter {
    op: Op,
    reply: oneshot::Sender<Result<Done, WriteError>>,
}

impl Waiter {
    fn is_holders(&self) -> bool {
        matches!(self.op, Op::Open(_) | Op::Append(_) | Op::Claim(_) | Op::Close(_))
    }

    fn bytes(&self) -> usize {
        let events = |events: &[greenroom_session::event::Event]| {
            events
                .iter()
                .map(|event| event.body.surface_message().map_or(0, |message| message.content.iter().map(greenroom_session::message::Block::len).sum()))
                .sum()
        };
        match &self.op {
            Op::Accept(op) => op.message.content.iter().map(greenroom_session::message::Block::len).sum(),
            Op::Create(op) => events(&op.events),
            Op::Append(op) => events(&op.events),
            Op::Import(op) => events(op.events()),
            Op::Open(_) | Op::Claim(_) | Op::Close(_) | Op::Release(_) | Op::Remove(_) => 0,
        }
    }
}

enum Job {
    Commit(Vec<Waiter>),
    Poll { heartbeat: bool },
}

/// Called with what other processes accepted messages for.
pub(crate) type ForeignHook = Box<dyn Fn(Vec<SessionId>) + Send + Sync>;

/// Called with whose inbox, and below whom, has something new for which nobody waited any more when it was written: nobody else wakes it.
pub(crate) type ForsakenHook = Box<dyn Fn(&SessionId, Option<&SessionId>) + Send + Sync>;

pub(crate) struct JournalArgs {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) poll: std::time::Duration,
    pub(crate) foreign: ForeignHook,
    pub(crate) forsaken: ForsakenHook,
}

/// The actor.
#[derive(Debug)]
pub(crate) struct Journal;

pub(crate) struct JournalState {
    jobs: Option<mpsc::Sender<Job>>,
    busy: bool,
    /// How many operations the newest batch had.
    last_batch: usize,
    /// How often the next batch may still wait for as many.
    patience: u32,
    holders: VecDeque<Waiter>,
    senders: VecDeque<Waiter>,
    since_heartbeat: std::time::Duration,
    since_scan: std::time::Duration,
    poll_due: bool,
    poll: std::time::Duration,
    foreign: ForeignHook,
}

impl Actor for Journal {
    type Msg = JournalMessage;
    type State = JournalState;
    type Arguments = JournalArgs;

    async fn pre_start(&self, myself: ActorRef<JournalMessage>, args: JournalArgs) -> Result<JournalState, ActorProcessingErr> {
        let mut jobs = None;
        if !args.store.is_inline() {
            let (sender, receiver) = mpsc::channel();
            let store = args.store.clone();
            let journal = myself.clone();
            let forsaken = args.forsaken;
            thread::Builder::new().name("greenroom-journal".into()).spawn(move || write_loop(&*store, &receiver, &journal, &forsaken))?;
            jobs = Some(sender);
            drop(ractor::time::send_interval(args.poll, myself.get_cell(), || JournalMessage::Tick));
        }
        Ok(JournalState {
            jobs,
            busy: false,
            last_batch: 0,
            patience: 0,
            holders: VecDeque::new(),
            senders: VecDeque::new(),
            since_heartbeat: std::time::Duration::from_millis(HEARTBEAT_MS),
            since_scan: std::time::Duration::ZERO,
            poll_due: false,
            poll: args.poll,
            foreign: args.foreign,
        })
    }

    async fn handle(&self, myself: ActorRef<JournalMessage>, message: JournalMessage, state: &mut JournalState) -> Result<(), ActorProcessingErr> {
        match message {
            JournalMessage::Commit(waiter) => {
                if waiter.is_holders() {
                    state.holders.push_back(*waiter);
                } else {
                    state.senders.push_back(*waiter);
                }
            }
            JournalMessage::Committed => {
                state.busy = false;
                state.patience = if state.last_batch > 1 { PATIENCE } else { 0 };
                state.gather(&myself);
            }
            JournalMessage::Gather => {
                state.patience = state.patience.saturating_sub(1);
                go_behind().await;
                state.gather(&myself);
            }
            JournalMessage::Tick => {
                state.since_heartbeat += state.poll;
                state.since_scan += state.poll;
                if state.since_scan >= SCAN_INTERVAL {
                    state.since_scan = std::time::Duration::ZERO;
                    // Whoever died since the last look may have left something to do.
                    (state.foreign)(Vec::new());
                }
                // Goes before the next batch: a writer that is always busy must hear of others too.
                state.poll_due = true;
            }
            JournalMessage::Foreign(sessions) => (state.foreign)(sessions),
        }
        if !state.busy && std::mem::take(&mut state.poll_due) {
            let heartbeat = state.since_heartbeat.as_millis() >= u128::from(HEARTBEAT_MS);
            if heartbeat {
                state.since_heartbeat = std::time::Duration::ZERO;
            }
            state.hand_over(Job::Poll { heartbeat })?;
        }
        if !state.busy && !state.is_gathering() {
            let batch = state.next_batch();
            if !batch.is_empty() {
                state.last_batch = batch.len();
                state.patience = 0;
                state.hand_over(Job::Commit(batch))?;
            }
        }
        Ok(())
    }
}

impl JournalState {
    /// Tells whether the next batch waits for those who were answered with the last one. One who was alone is not waited for.
    fn is_gathering(&self) -> bool {
        self.patience > 0 && self.holders.len() + self.senders.len() < self.last_batch
    }

    /// Comes back after those who are ready to run now.
    fn gather(&self, myself: &ActorRef<JournalMessage>) {
        if self.is_gathering() {
            drop(myself.send_message(JournalMessage::Gather));
        }
    }

    fn hand_over(&mut self, job: Job) -> Result<(), ActorProcessingErr> {
        self.busy = true;
        // The thread is gone only if it panicked; the journal then ends, and everything that writes with it.
        self.jobs.as_ref().ok_or("no writer thread")?.send(job).map_err(|_| "the writer thread has ended")?;
        Ok(())
    }

    fn next_batch(&mut self) -> Vec<Waiter> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        for queue in [&mut self.holders, &mut self.senders] {
            while batch.len() < MAX_BATCH {
                let Some(waiter) = queue.front() else { break };
                bytes += waiter.bytes();
                if bytes > MAX_BATCH_BYTES && !batch.is_empty() {
                    return batch;
                }
                batch.extend(queue.pop_front());
            }
        }
        batch
    }
}

fn write_loop(store: &dyn Store, jobs: &mpsc::Receiver<Job>, journal: &ActorRef<JournalMessage>, forsaken: &ForsakenHook) {
    for job in jobs {
        match job {
            Job::Commit(waiters) => {
                let (ops, replies): (Vec<Op>, Vec<_>) = waiters.into_iter().map(|waiter| (waiter.op, waiter.reply)).unzip();
                match store.commit(&ops) {
                    Ok(results) => {
                        for ((op, reply), result) in ops.iter().zip(replies).zip(results) {
                            // A caller that went away has only lost its answer.
                            if let Err(Ok(_)) = reply.send(result.map_err(WriteError::from)) {
                                wake_for(op, forsaken);
                            }
                        }
                    }
                    Err(error) => {
                        tracing::error!(code = error.code(), error = %Chain(&error), "commit failed");
                        let error = failed(error);
                        for (op, reply) in ops.iter().zip(replies) {
                            // What is not known may be there.
                            if let Err(Err(WriteError::Indeterminate(_))) = reply.send(Err(error.clone())) {
                                wake_for(op, forsaken);
                            }
                        }
                    }
                }
            }
            Job::Poll { heartbeat } => {
                if heartbeat && let Err(error) = store.heartbeat() {
                    tracing::warn!(error = %Chain(&error), "the lease could not be renewed");
                }
                match store.poll() {
                    Ok(sessions) if sessions.is_empty() => {}
                    Ok(sessions) => drop(journal.send_message(JournalMessage::Foreign(sessions))),
                    Err(error) => tracing::warn!(error = %Chain(&error), "the store could not be asked for news"),
                }
            }
        }
        if journal.send_message(JournalMessage::Committed).is_err() {
            return;
        }
    }
}

/// Has whoever is to serve what an operation brings woken.
fn wake_for(op: &Op, forsaken: &ForsakenHook) {
    match op {
        Op::Accept(op) if op.message.wake => forsaken(&op.session, None),
        Op::Create(op) if op.message.is_some() => forsaken(&op.session.id, op.session.parent.as_ref()),
        _ => {}
    }
}

/// Shows an error with everything that caused it.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
