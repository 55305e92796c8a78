//! What an Activation is asked: to end its turn, or to give a message back.
//!
//! By callers of its own process, with a reply, and by other processes, with a record in the inbox. Records are looked for when an epoch begins with some, and when
//! the Registry says that another process has written: never for a turn by itself. A turn that runs is cancelled and answers with its end, in the same
//! transaction; everything else is answered at once.

use greenroom_session::{
    event::{Body, TurnEnd as TurnReason},
    id::MessageId,
    message::{Control, InboxRecord},
    requests::{Answer, Outcome as Verdict, Standing, answered, interrupt, withdraw},
    store::{LoadError, Traced},
};
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::{ActivationMessage, ActivationState, Claim, Next, Outcome, Running};
use crate::{
    control::Answered,
    error::{ControlError, WriteError},
    occurrence::Occurrence,
    race::race_point,
};

/// Somebody who asked for the end of the turn that runs.
#[derive(Debug)]
pub(super) enum Asker {
    /// A caller here.
    Caller(oneshot::Sender<Answered>),
    /// A record in the inbox.
    Record(Box<InboxRecord>),
}

impl Running {
    /// Notes that somebody asked for its end, and tells whether the turn is ended for that: one that a shutdown ends is served again.
    pub(super) fn note(&mut self, asker: Asker) -> bool {
        if matches!(self.ended_by, Some(TurnReason::Disposed)) {
            return false;
        }
        self.askers.push(asker);
        true
    }

    fn knows(&self, request: &InboxRecord) -> bool {
        self.askers.iter().any(|asker| matches!(asker, Asker::Record(known) if known.order == request.order))
    }

    /// Returns the events that answer those who asked for this end by a record, and the records.
    pub(super) fn answers(&self) -> (Vec<Body>, Vec<u64>) {
        let records = self.askers.iter().filter_map(|asker| match asker {
            Asker::Record(record) => Some((answered(record, Verdict::Done)?, record.order)),
            Asker::Caller(_) => None,
        });
        records.unzip()
    }

    /// Tells those who asked here; to be called when the end is durable.
    pub(super) fn tell_callers(&mut self) {
        for asker in self.askers.drain(..) {
            if let Asker::Caller(reply) = asker {
                // Whoever asked may have given up.
                drop(reply.send(Ok(Verdict::Done)));
            }
        }
    }
}

impl ActivationState {
    /// Answers a caller of this process.
    pub(super) async fn asked(
        &mut self,
        myself: &ActorRef<ActivationMessage>,
        control: Control,
        by: &'static str,
        reply: oneshot::Sender<Answered>,
    ) -> Outcome {
        let answer = match control {
            Control::Interrupt { turn } => {
                if let Some(running) = self.runs(turn) {
                    if running.note(Asker::Caller(reply)) {
                        self.cut(myself, TurnReason::Aborted { cause: by.to_owned() });
                    }
                    return Ok(Next::Stay);
                }
                self.view.log.look(|fold| interrupt(fold.head(), turn, by))
            }
            Control::Withdraw { target } => match self.standing(&target).await {
                Ok(standing) => withdraw(&target, &standing, by),
                Err(error) => {
                    drop(reply.send(Err(ControlError::from_load(self.view.id(), error))));
                    return Ok(Next::Stay);
                }
            },
        };
        let outcome = answer.outcome;
        self.give(answer).await?;
        drop(reply.send(Ok(outcome)));
        self.go_on(myself).await
    }

    /// Answers what other processes left in the inbox, and goes on with what is left then.
    pub(super) async fn look_for_requests(&mut self, myself: &ActorRef<ActivationMessage>) -> Outcome {
        if self.answer_requests(myself).await? { self.go_on(myself).await } else { Ok(Next::Stay) }
    }

    /// Answers what other processes left in the inbox. Tells whether anything was there.
    pub(super) async fn answer_requests(&mut self, myself: &ActorRef<ActivationMessage>) -> Result<bool, WriteError> {
        race_point!("before-requests");
        let requests = match self.requests().await {
            Ok(requests) => requests,
            Err(error) => {
                tracing::warn!(session = %self.view.id(), code = error.code(), %error, "the inbox could not be asked for requests");
                self.look_again(myself);
                return Ok(false);
            }
        };
        let any = !requests.is_empty();
        for request in requests {
            let Some(control) = &request.message.control else { continue };
            let by = request.message.source.kind().to_owned();
            let answer = match control {
                Control::Interrupt { turn } => {
                    if let Some(running) = self.runs(*turn) {
                        if !running.knows(&request) && running.note(Asker::Record(Box::new(request))) {
                            self.cut(myself, TurnReason::Aborted { cause: by });
                        }
                        continue;
                    }
                    self.view.log.look(|fold| interrupt(fold.head(), *turn, &by))
                }
                Control::Withdraw { target } => match self.standing(target).await {
                    Ok(standing) => withdraw(target, &standing, &by),
                    Err(error) => {
                        tracing::warn!(session = %self.view.id(), code = error.code(), %error, "a request could not be answered");
                        continue;
                    }
                },
            };
            race_point!("before-answer");
            self.give(answer.to(&request)).await?;
        }
        Ok(any)
    }

    /// Returns the turn that runs, if it is the one that is meant.
    pub(super) fn runs(&mut self, turn: Option<u64>) -> Option<&mut Running> {
        self.running.as_mut().filter(|running| turn.is_none_or(|turn| turn == running.turn))
    }

    /// Goes on with what is left, where no turn runs that does so at its end.
    pub(super) async fn go_on(&mut self, myself: &ActorRef<ActivationMessage>) -> Outcome {
        if self.running.is_some() { Ok(Next::Stay) } else { self.proceed(myself).await }
    }

    /// Writes an answer in one transaction.
    pub(super) async fn give(&mut self, answer: Answer) -> Result<(), WriteError> {
        if answer.bodies.is_empty() {
            return Ok(());
        }
        let turns: Vec<Occurrence> = answer.bodies.iter().filter_map(|body| self.occurrence(body)).collect();
        let log = &self.view.log;
        log.settled(log.append(answer.bodies, answer.taken).done().await)?;
        race_point!("answered");
        if !turns.is_empty() {
            // The turn that was claimed and not begun is over.
            self.next = Claim::NotAsked;
        }
        for turn in turns {
            self.services.tell(|| turn);
        }
        Ok(())
    }

    fn occurrence(&self, body: &Body) -> Option<Occurrence> {
        let session = self.view.id().clone();
        match body {
            Body::TurnStart { turn, message, attempt } => Some(Occurrence::TurnStarted { session, turn: *turn, message: message.clone(), attempt: *attempt }),
            Body::TurnEnd { turn, reason } => Some(Occurrence::TurnEnded { session, turn: *turn, reason: reason.clone() }),
            _ => None,
        }
    }

    /// Reads the requests that wait; of a session that has none, its head row only.
    async fn requests(&mut self) -> Result<Vec<InboxRecord>, LoadError> {
        let header = self.view.header.clone();
        let read = self.services.readers.read(move |reader| {
            let id = header.id.clone();
            let traced = Traced { id: id.clone(), created_at: header.created_at, header: Ok(header) };
            let described = reader.describe(std::slice::from_ref(&traced), false)?.pop();
            // What cannot be described is looked into.
            if matches!(described, Some(Ok(description)) if description.head.pending_controls == 0) {
                return Ok(Vec::new());
            }
            let mut waiting = reader.inbox(&id, usize::MAX)?;
            waiting.retain(|record| record.message.control.is_some());
            Ok(waiting)
        });
        read.await
    }

    async fn standing(&mut self, message: &MessageId) -> Result<Standing, LoadError> {
        let (session, message) = (self.view.id().clone(), message.clone());
        self.services.readers.read(move |reader| Standing::read(reader, &session, &message)).await
    }

    fn look_again(&self, myself: &ActorRef<ActivationMessage>) {
        let (myself, pause) = (myself.clone(), self.services.config.poll_interval);
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            drop(myself.send_message(ActivationMessage::Requests));
        });
    }
}
