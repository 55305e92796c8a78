//! The write side of one live session's log.
//!
//! Owned by an Activation and lent to the turn under way. Events get their place here, are folded, and are handed to the journal in
//! one step under a short lock, so that the order of places is the order of the journal. The fold runs ahead of the disk by what is
//! under way; if a write fails, the log is of no further use and its Activation ends: the next epoch loads what is on disk.
//!
//! How many events a claim takes is decided by the store. So what is appended while one is under way waits for it, and a claim is brought
//! to its end even if whoever asked for it is gone.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use greenroom_session::{
    clock::Clock,
    compact::CompactError,
    event::{Body, Event},
    fold::Fold,
    head::{FoldError, OpenTurn},
    id::Order,
    store::{Append, Claim, ClaimKind, Close, Done, Fence, Op, Refused},
    turns::Claimed,
};
use tokio::sync::oneshot;

use crate::{
    error::WriteError,
    journal::{JournalHandle, Pending},
};

/// The write side of one live session's log.
#[derive(Debug)]
pub(crate) struct SessionLog {
    fence: Fence,
    journal: JournalHandle,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    fold: Fold,
    broken: Option<WriteError>,
    /// Nothing more may be put: the epoch has ended, or whoever wrote is gone.
    closed: bool,
    /// A claim is under way.
    claiming: bool,
    /// What came since, in order.
    deferred: VecDeque<Deferred>,
}

type ClaimResult = Result<Option<Claimed>, WriteError>;

#[derive(Debug)]
enum Deferred {
    Append { bodies: Vec<Body>, take: Vec<Order>, reply: oneshot::Sender<Pending> },
    Claim { bodies: Vec<Body>, take: Vec<Order>, kind: ClaimKind, reply: oneshot::Sender<ClaimResult> },
}

/// A claim that has been handed over.
enum Claiming {
    Done(ClaimResult),
    UnderWay(oneshot::Receiver<ClaimResult>),
}

/// Why an event was not put into its place. Nothing has changed.
#[derive(Debug)]
pub(crate) enum NotPut {
    /// The log was closed.
    Closed,
    /// An earlier write failed.
    Broken(WriteError),
    /// The event cannot be written, or cannot follow.
    Refused {
        /// Stable code.
        code: &'static str,
        /// What is wrong.
        message: String,
    },
    /// The compaction cannot be.
    Compact(CompactError),
}

impl From<CompactError> for NotPut {
    fn from(error: CompactError) -> Self {
        Self::Compact(error)
    }
}

/// Code of an event that cannot follow what its log holds.
pub(crate) const EVENT_REFUSED: &str = "EVENT_REFUSED";

impl From<FoldError> for NotPut {
    fn from(error: FoldError) -> Self {
        Self::Refused { code: EVENT_REFUSED, message: error.to_string() }
    }
}

/// Code of a write that came after its turn had ended.
pub(crate) const TURN_ENDED: &str = "TURN_ENDED";

impl SessionLog {
    pub(crate) fn new(fold: Fold, fence: Fence, journal: JournalHandle, clock: Arc<dyn Clock>) -> Self {
        Self { fence, journal, clock, inner: Mutex::new(Inner { fold, broken: None, closed: false, claiming: false, deferred: VecDeque::new() }) }
    }

    /// Looks at the fold. The look must be short: appends wait for it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Fold) -> T) -> T {
        look(&self.lock().fold)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts events in their places and hands them to the journal.
    ///
    /// # Errors
    /// The result of the returned [`Pending`]; a refusal by the fold or an earlier failure is known at once.
    pub(crate) fn append(&self, bodies: Vec<Body>, take: Vec<Order>) -> Pending {
        let mut inner = self.lock();
        if inner.claiming {
            let (reply, pending) = oneshot::channel();
            inner.deferred.push_back(Deferred::Append { bodies, take, reply });
            return Pending::later(pending);
        }
        self.append_now(&mut inner, bodies, take)
    }

    fn append_now(&self, inner: &mut Inner, bodies: Vec<Body>, take: Vec<Order>) -> Pending {
        let time = self.clock.now_ms();
        match inner.place(bodies, time) {
            Err(error) => Pending::ready(Err(error)),
            Ok(events) => {
                let [pending] = self.journal.submit([Op::Append(Append { fence: self.fence.clone(), events, take })]);
                pending
            }
        }
    }

    /// Puts events that are made for their places, taking messages out of the inbox, and hands them over in one step. Where one of them cannot follow nothing
    /// changes: other than with [`SessionLog::append`] the log is as good as before.
    pub(crate) fn put(&self, make: impl FnOnce(&Fold, u64) -> Result<Vec<Event>, NotPut>, take: Vec<Order>) -> Result<(Arc<[Event]>, Pending), NotPut> {
        let time = self.clock.now_ms();
        let mut inner = self.lock();
        inner.is_writable()?;
        if inner.claiming {
            return Err(NotPut::Refused { code: EVENT_REFUSED, message: "a step of the turn is about to begin".into() });
        }
        let events = make(&inner.fold, time)?;
        for event in &events {
            greenroom_session::codec::check_event(event).map_err(|error| NotPut::Refused { code: error.code(), message: error.to_string() })?;
        }
        match &*events {
            // The common case costs no copy of what a model sees.
            [event] => inner.fold.apply_event(event)?,
            events => {
                let mut fold = inner.fold.clone();
                for event in events {
                    fold.apply_event(event)?;
                }
                inner.fold = fold;
            }
        }
        let events: Arc<[Event]> = events.into();
        let [pending] = self.journal.submit([Op::Append(Append { fence: self.fence.clone(), events: events.clone(), take })]);
        Ok((events, pending))
    }

    /// Ends the epoch after everything that was put, whatever is pending: nothing can be put from here on.
    pub(crate) fn end(&self, last: impl FnOnce(&Fold) -> Vec<Body>) -> Result<Pending, NotPut> {
        let time = self.clock.now_ms();
        let mut inner = self.lock();
        inner.is_writable()?;
        inner.closed = true;
        let events = at(last(&inner.fold), inner.fold.head().next_seq, time);
        let [pending] = self.journal.submit([Op::Close(Close { fence: self.fence.clone(), events, unless_pending: false })]);
        Ok(pending)
    }

    /// Lets nothing more be put. What was put goes on.
    pub(crate) fn shut(&self) {
        self.lock().closed = true;
    }

    /// Tells why nothing can be put, if so.
    pub(crate) fn writable(&self) -> Result<(), NotPut> {
        self.lock().is_writable()
    }

    /// Opens the next turn, or joins notes to the open one.
    ///
    /// # Cancel safety
    /// The claim goes on and is folded; only its result is lost.
    pub(crate) async fn claim(self: &Arc<Self>, kind: ClaimKind) -> ClaimResult {
        self.append_and_claim(Vec::new(), Vec::new(), kind).await
    }

    /// Appends events, taking messages out of the inbox, and in the same batch opens the next turn or joins notes.
    ///
    /// # Cancel safety
    /// As with [`SessionLog::claim`].
    pub(crate) async fn append_and_claim(self: &Arc<Self>, bodies: Vec<Body>, take: Vec<Order>, kind: ClaimKind) -> ClaimResult {
        let claiming = {
            let mut inner = self.lock();
            if inner.claiming {
                let (reply, result) = oneshot::channel();
                inner.deferred.push_back(Deferred::Claim { bodies, take, kind, reply });
                Claiming::UnderWay(result)
            } else {
                self.claim_now(&mut inner, bodies, take, kind)
            }
        };
        match claiming {
            Claiming::Done(result) => result,
            Claiming::UnderWay(result) => result.await.unwrap_or(Err(WriteError::Ended)),
        }
    }

    fn claim_now(self: &Arc<Self>, inner: &mut Inner, bodies: Vec<Body>, take: Vec<Order>, kind: ClaimKind) -> Claiming {
        let (appends, time) = (!bodies.is_empty(), self.clock.now_ms());
        let events = match inner.place(bodies, time) {
            Ok(events) => events,
            Err(error) => return Claiming::Done(Err(error)),
        };
        let first_seq = inner.fold.head().next_seq;
        let claim = Op::Claim(Claim { fence: self.fence.clone(), first_seq, kind, time });
        let (appended, claimed) = if appends {
            let append = Op::Append(Append { fence: self.fence.clone(), events, take });
            let [appended, claimed] = self.journal.submit([append, claim]);
            (appended, claimed)
        } else {
            let [claimed] = self.journal.submit([claim]);
            (Pending::ready(Ok(Done::Appended)), claimed)
        };
        if appended.is_ready() && claimed.is_ready() {
            // Nobody else may append between a claim and its fold, so both happen under one lock.
            return Claiming::Done(inner.taken(appended.now(), claimed.now()));
        }
        inner.claiming = true;
        let (reply, result) = oneshot::channel();
        let log = self.clone();
        tokio::spawn(async move {
            let (appended, claimed) = (appended.done().await, claimed.done().await);
            let mut inner = log.lock();
            let taken = inner.taken(appended, claimed);
            inner.claiming = false;
            log.go_on(&mut inner);
            drop(inner);
            // Whoever asked may be gone.
            drop(reply.send(taken));
        });
        Claiming::UnderWay(result)
    }

    /// Hands over what came while a claim was under way.
    fn go_on(self: &Arc<Self>, inner: &mut Inner) {
        while !inner.claiming {
            match inner.deferred.pop_front() {
                None => return,
                Some(Deferred::Append { bodies, take, reply }) => drop(reply.send(self.append_now(inner, bodies, take))),
                Some(Deferred::Claim { bodies, take, kind, reply }) => match self.claim_now(inner, bodies, take, kind) {
                    Claiming::Done(result) => drop(reply.send(result)),
                    Claiming::UnderWay(result) => {
                        tokio::spawn(async move { drop(reply.send(result.await.unwrap_or(Err(WriteError::Ended)))) });
                    }
                },
            }
        }
    }

    /// Ends the epoch. On [`Refused::Pending`] it goes on as if nothing had been tried.
    pub(crate) async fn close(&self, bodies: Vec<Body>, unless_pending: bool) -> Result<(), WriteError> {
        let [pending] = {
            let inner = self.lock();
            if let Some(error) = &inner.broken {
                return Err(error.clone());
            }
            let events = at(bodies, inner.fold.head().next_seq, self.clock.now_ms());
            self.journal.submit([Op::Close(Close { fence: self.fence.clone(), events, unless_pending })])
        };
        match pending.done().await {
            Ok(_) => Ok(()),
            Err(error @ WriteError::Refused(Refused::Pending(_))) => Err(error),
            Err(error) => self.settled(Err(error)).map(|_| ()),
        }
    }

    /// Remembers a failed write: what was folded is not what is stored.
    pub(crate) fn settled(&self, done: Result<Done, WriteError>) -> Result<Done, WriteError> {
        if let Err(error) = &done {
            self.lock().fail(error);
        }
        done
    }

    /// Returns the failure that ended this log, if one did.
    pub(crate) fn broken(&self) -> Option<WriteError> {
        self.lock().broken.clone()
    }
}

impl Inner {
    fn is_writable(&self) -> Result<(), NotPut> {
        match &self.broken {
            Some(error) => Err(NotPut::Broken(error.clone())),
            None if self.closed => Err(NotPut::Closed),
            None => Ok(()),
        }
    }

    fn place(&mut self, mut bodies: Vec<Body>, time: u64) -> Result<Arc<[Event]>, WriteError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let open = self.fold.head().open.as_ref();
        // A turn that is begun and ended at once is nobody's who could be late.
        let begins = matches!(bodies.first(), Some(Body::TurnStart { .. }));
        if !begins && bodies.iter().any(|body| is_late(body, open)) {
            // Its handle was used on another thread while it ended.
            return Err(Refused::Invalid { code: TURN_ENDED, message: "the turn has ended".into() }.into());
        }
        say_in_step(&mut bodies, open.and_then(|open| open.step));
        let events = at(bodies, self.fold.head().next_seq, time);
        // What the store would refuse must not reach the fold, since a refusal ends the epoch.
        for event in &*events {
            greenroom_session::codec::check_event(event).map_err(Refused::from)?;
        }
        for event in &*events {
            self.fold(event)?;
        }
        Ok(events)
    }

    /// Folds what a claim took, after what was appended with it.
    fn taken(&mut self, appended: Result<Done, WriteError>, claimed: Result<Done, WriteError>) -> ClaimResult {
        match appended.and(claimed) {
            Ok(Done::Claimed(Some(claimed))) => {
                for event in claimed.events.iter() {
                    self.fold(event)?;
                }
                Ok(Some(claimed))
            }
            Ok(_) => Ok(None),
            Err(error) => {
                self.fail(&error);
                Err(error)
            }
        }
    }

    /// Remembers a failure, but for what was refused before it was folded.
    fn fail(&mut self, error: &WriteError) {
        if !matches!(error, WriteError::Refused(Refused::Invalid { code: TURN_ENDED, .. })) {
            self.broken.get_or_insert_with(|| error.clone());
        }
    }

    fn fold(&mut self, event: &Event) -> Result<(), WriteError> {
        self.fold.apply_event(event).map_err(|error| {
            let error = WriteError::from(Refused::from(error));
            self.broken.get_or_insert_with(|| error.clone());
            error
        })
    }
}

/// Tells whether an event belongs to another turn than the one that is open.
fn is_late(body: &Body, open: Option<&OpenTurn>) -> bool {
    match body {
        Body::StepStart { turn, .. }
        | Body::StepEnd { turn, .. }
        | Body::Memo { turn, .. }
        | Body::EffectAccepted { turn, .. }
        | Body::AssistantMessage { turn, .. }
        | Body::ToolCall { turn, .. }
        | Body::ToolResult { turn, .. }
        | Body::TurnEnd { turn, .. } => open.is_none_or(|open| open.turn != *turn),
        Body::AnswerRecorded { message, attempt, .. } => open.is_none_or(|open| open.message != *message || open.attempt != *attempt),
        _ => false,
    }
}

/// Puts what is said into the step that is open where it gets its place: a turn that is used by several tasks may have gone on since somebody spoke.
fn say_in_step(bodies: &mut [Body], mut open: Option<u32>) {
    for body in bodies {
        match body {
            Body::StepStart { step, .. } => open = Some(*step),
            Body::StepEnd { .. } => open = None,
            Body::AssistantMessage { step, .. } => *step = open.unwrap_or(0),
            _ => {}
        }
    }
}

fn at(bodies: Vec<Body>, first: u64, time: u64) -> Arc<[Event]> {
    // Counted this way the length is known, and everything goes into one allocation.
    bodies.into_iter().enumerate().map(|(at, body)| body.at(first + at as u64, time)).collect()
}

#[cfg(test)]
mod tests {
    use greenroom_session::{
        event::{Role, SurfaceMessage},
        id::MessageId,
        message::Source,
    };

    use super::*;

    #[test]
    fn what_is_said_is_said_in_the_step_that_is_open_where_it_gets_its_place() {
        let said = || {
            let message =
                SurfaceMessage { id: MessageId::new("a").unwrap(), role: Role::Assistant, content: vec![], source: Source::Agent { name: "a".into() } };
            Body::AssistantMessage { turn: 1, step: 7, message, usage: None, stop: None }
        };
        let end = || Body::StepEnd { turn: 1, step: 1, cut: None };
        let start = || Body::StepStart { turn: 1, step: 2 };
        for (open, bodies, expected) in
            [(None, vec![said()], vec![0]), (Some(1), vec![said()], vec![1]), (Some(1), vec![said(), end(), said(), start(), said()], vec![1, 0, 2])]
        {
            let mut bodies = bodies;
            say_in_step(&mut bodies, open);
            let steps: Vec<u32> = bodies.iter().filter_map(|body| if let Body::AssistantMessage { step, .. } = body { Some(*step) } else { None }).collect();
            assert_eq!(steps, expected);
        }
    }
}
