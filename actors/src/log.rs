//! The write side of one live session's log.
//!
//! Owned by an Activation and lent to the turn under way. Events get their place here, are folded, and are handed to the journal in
//! one step under a short lock, so that the order of places is the order of the journal. The fold runs ahead of the disk by what is
//! under way; if a write fails, the log is of no further use and its Activation ends: the next epoch loads what is on disk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use greenroom_session::{
    clock::Clock,
    event::{Body, Event},
    fold::Fold,
    id::Order,
    store::{Append, Claim, ClaimKind, Close, Done, Fence, Op, Refused},
    turns::Claimed,
};

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
}

impl SessionLog {
    pub(crate) fn new(fold: Fold, fence: Fence, journal: JournalHandle, clock: Arc<dyn Clock>) -> Self {
        Self { fence, journal, clock, inner: Mutex::new(Inner { fold, broken: None }) }
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
        match inner.place(bodies, &*self.clock) {
            Err(error) => Pending::ready(Err(error)),
            Ok(events) => {
                let [pending] = self.journal.submit([Op::Append(Append { fence: self.fence.clone(), events, take })]);
                pending
            }
        }
    }

    /// Appends events, and in the same batch opens the next turn or joins notes.
    ///
    /// As with [`SessionLog::claim`], the caller must not append while this is under way.
    pub(crate) async fn append_and_claim(&self, bodies: Vec<Body>, kind: ClaimKind) -> Result<Option<Claimed>, WriteError> {
        let [appended, claimed] = {
            let mut inner = self.lock();
            let events = inner.place(bodies, &*self.clock)?;
            let claim = self.claim_op(&inner, kind);
            self.journal.submit([Op::Append(Append { fence: self.fence.clone(), events, take: Vec::new() }), claim])
        };
        self.settled(appended.done().await)?;
        self.take(claimed.done().await)
    }

    /// Opens the next turn, or joins notes to the open one.
    ///
    /// The caller must not append while this is under way: the store decides how many events it takes.
    pub(crate) async fn claim(&self, kind: ClaimKind) -> Result<Option<Claimed>, WriteError> {
        let [pending] = {
            let inner = self.lock();
            if let Some(error) = &inner.broken {
                return Err(error.clone());
            }
            self.journal.submit([self.claim_op(&inner, kind)])
        };
        self.take(pending.done().await)
    }

    fn claim_op(&self, inner: &Inner, kind: ClaimKind) -> Op {
        Op::Claim(Claim { fence: self.fence.clone(), first_seq: inner.fold.head().next_seq, kind, time: self.clock.now_ms() })
    }

    fn take(&self, done: Result<Done, WriteError>) -> Result<Option<Claimed>, WriteError> {
        match self.settled(done)? {
            Done::Claimed(Some(claimed)) => {
                let mut inner = self.lock();
                for event in &claimed.events {
                    inner.fold(event)?;
                }
                Ok(Some(claimed))
            }
            _ => Ok(None),
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
            self.lock().broken.get_or_insert_with(|| error.clone());
        }
        done
    }

    /// Returns the failure that ended this log, if one did.
    pub(crate) fn broken(&self) -> Option<WriteError> {
        self.lock().broken.clone()
    }
}

impl Inner {
    fn place(&mut self, bodies: Vec<Body>, clock: &dyn Clock) -> Result<Arc<[Event]>, WriteError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let events = at(bodies, self.fold.head().next_seq, clock.now_ms());
        // What the store would refuse must not reach the fold, since a refusal ends the epoch.
        for event in &*events {
            greenroom_session::codec::check_event(event).map_err(Refused::from)?;
        }
        for event in &*events {
            self.fold(event)?;
        }
        Ok(events)
    }

    fn fold(&mut self, event: &Event) -> Result<(), WriteError> {
        self.fold.apply_event(event).map_err(|error| {
            let error = WriteError::from(Refused::from(error));
            self.broken.get_or_insert_with(|| error.clone());
            error
        })
    }
}

fn at(bodies: Vec<Body>, first: u64, time: u64) -> Arc<[Event]> {
    bodies.into_iter().zip(first..).map(|(body, seq)| body.at(seq, time)).collect()
}
