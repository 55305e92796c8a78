//! A visit: a short epoch of a session that nobody holds, in which it is answered and nothing else.
//!
//! Whoever asks something of a session that no live process holds takes the lease, writes the answer, and lets go. No behaviour is made, no turn begins, and
//! an agent that nobody here knows is no hindrance. In the log a visit is an epoch as any other: closers of what a crash left open, the answers, its
//! end. That end is `settled` if no work is left, and then the parent is told of the last turn first, as it is by every settlement; else it is
//! `disposed`, and whoever runs the session next goes on with its work.

use std::sync::Arc;

use greenroom_session::{
    event::{Body, EpochEnd, Event},
    fold::Fold,
    id::{Epoch, Order, SessionId},
    message::InboxRecord,
    recover::begin_epoch,
    requests::{Answer, Outcome, answer},
    store::{Append, Close, Fence, Log, Op, Open, Refused},
};

use crate::{
    activation::{notice, told},
    error::{ControlError, WriteError},
    race::race_point,
    services::Services,
};

/// What a visitor asks: answered by the log as it is in the epoch of the visit.
pub(crate) type Asked<'a> = &'a mut (dyn FnMut(&Log) -> Answer + Send);

/// Answers a session's pending requests and this one, if there is one. Returns `None` if somebody else came first: then nothing of it was done.
///
/// # Errors
/// [`ControlError`] if the session cannot be read or written; after a failed write whoever looks next goes on from what is on disk.
///
/// # Cancel safety
/// What has been written stays; an epoch that is left open is closed by the next.
pub(crate) async fn visit(services: &Arc<Services>, session: &SessionId, wish: Option<Asked<'_>>) -> Result<Option<Vec<Outcome>>, ControlError> {
    let id = session.clone();
    let mut log = services.readers.read(move |reader| reader.load(&id)).await.map_err(|error| ControlError::from_load(session, error))?;
    if let Some((seq, name)) = log.fold.unknown() {
        let reason = format!("event {seq} is of the unknown type {name:?}");
        return Err(ControlError::NotResumable { session: session.clone(), reason, code: "EVENT_UNKNOWN" });
    }
    race_point!("before-visit");
    // Looked at after the load: whoever begins to start it here from now on loads later, and one of the two openings is refused.
    if services.is_draining() || services.live.is_resident(session) {
        return Ok(None);
    }
    let (epoch, begin) = begin_epoch(&log.fold, services.now(), services.config.max_attempts);
    let open = Open { session: session.clone(), epoch, events: begin.clone().into(), claim: None };
    match services.journal.commit(Op::Open(open)).await {
        Ok(_) => {}
        Err(WriteError::Refused(Refused::Held(_) | Refused::Moved { .. } | Refused::Fenced { .. })) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    race_point!("visit-opened");
    let mut guest = Guest { services, fence: Fence { session: session.clone(), epoch }, left: false };
    for event in begin {
        follow(&mut log, event)?;
    }
    let outcomes = guest.answer(&mut log, wish).await?;
    if let Some(outcomes) = &outcomes {
        race_point!("visit-answered");
        // What was asked is done, whatever becomes of the epoch: the next one closes it.
        if let Err(error) = guest.leave(&log.fold).await {
            tracing::debug!(%session, code = error.code(), %error, "a visit was not ended");
            return Ok(Some(outcomes.clone()));
        }
        guest.left = true;
    }
    Ok(outcomes)
}

/// Who has taken a lease for a moment. Left behind in an open epoch, the session is looked at as any that lost its holder.
struct Guest<'a> {
    services: &'a Arc<Services>,
    fence: Fence,
    left: bool,
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        if !self.left {
            self.services.wake(&self.fence.session, None);
        }
    }
}

impl Guest<'_> {
    fn epoch(&self) -> Epoch {
        self.fence.epoch
    }

    /// Writes all answers in one transaction. Returns those to the wish and to the requests, in this order; `None` if another epoch has begun.
    async fn answer(&self, log: &mut Log, wish: Option<Asked<'_>>) -> Result<Option<Vec<Outcome>>, ControlError> {
        let requests: Vec<InboxRecord> = log.fold.pending().filter(|record| record.message.control.is_some()).cloned().collect();
        let (mut events, mut take, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
        let now = self.services.now();
        let mut give = |answer: Answer, log: &mut Log| {
            for body in answer.bodies {
                let event = body.at(log.fold.head().next_seq, now);
                follow(log, event.clone())?;
                events.push(event);
            }
            take.extend(answer.taken);
            outcomes.push(answer.outcome);
            Ok::<_, ControlError>(())
        };
        if let Some(ask) = wish {
            let answer = ask(log);
            give(answer, log)?;
        }
        // What was taken back for the wish does not wait any more.
        for request in &requests {
            let Some(control) = &request.message.control else { continue };
            let answer = answer(log, control, request.message.source.kind()).to(request);
            give(answer, log)?;
        }
        if events.is_empty() {
            return Ok(Some(outcomes));
        }
        match self.append(events, take).await {
            Ok(()) => Ok(Some(outcomes)),
            Err(WriteError::Refused(Refused::Fenced { .. } | Refused::Moved { .. })) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn append(&self, events: Vec<Event>, take: Vec<Order>) -> Result<(), WriteError> {
        let append = Append { fence: self.fence.clone(), events: events.into(), take };
        self.services.journal.commit(Op::Append(append)).await.map(|_| ())
    }

    /// Ends the epoch: settled if no work is left.
    async fn leave(&self, fold: &Fold) -> Result<(), WriteError> {
        if !fold.head().has_work() {
            self.tell_parent(fold).await?;
            race_point!("visit-told");
            match self.close(fold, EpochEnd::Settled).await {
                // Something came meanwhile.
                Err(WriteError::Refused(Refused::Pending(_))) => {}
                other => return other,
            }
        }
        self.close(fold, EpochEnd::Disposed).await
    }

    async fn tell_parent(&self, fold: &Fold) -> Result<(), WriteError> {
        let services = self.services;
        let (Some(parent), Some(notice)) = (&fold.header().parent, notice(fold, self.epoch(), services.now())) else { return Ok(()) };
        // Where nobody is played nobody is started; the notice lies there for whoever runs the parent.
        let accepted = if services.config.behaviors.is_empty() {
            services.leave_message(parent, Arc::new(notice)).await
        } else {
            services.accept(parent, None, None, Arc::new(notice)).await
        };
        told(&fold.header().id, accepted)
    }

    async fn close(&self, fold: &Fold, reason: EpochEnd) -> Result<(), WriteError> {
        let end = Body::ActivationEnd { epoch: self.epoch(), reason }.at(fold.head().next_seq, self.services.now());
        let close = Close { fence: self.fence.clone(), events: [end].into(), unless_pending: reason == EpochEnd::Settled };
        self.services.journal.commit(Op::Close(close)).await.map(|_| ())
    }
}

fn follow(log: &mut Log, event: Event) -> Result<(), ControlError> {
    let session = log.fold.header().id.clone();
    log.fold.apply_event(&event).map_err(|error| ControlError::NotResumable { session, reason: error.to_string(), code: error.code() })?;
    log.events.push(event);
    Ok(())
}
