//! The actor behind a published session: what waits for the disk, and the end.
//!
//! **Messages.** `Go` and `Shutdown` from the Registry; `Appended`, `Begin`, `Flush` and `End` from the handle.
//! **State.** The session's live view. Which events stand in the log is decided in the view's log, under its lock, before this actor hears of them.
//! **Order.** Its mailbox: what was handed over before a flush, a turn or the end has come to its end when their time comes.
//! **End.** In order by `End` or `Shutdown`, which end the epoch; without order by a failed write or with its generation, which leave an open epoch on disk.
//! The guard in the state reports every end.

use std::sync::{Arc, Weak};

use greenroom_session::{
    compact::{COMPACTION_INTERRUPTED, CompactError},
    event::{Body, EpochEnd, Event, TurnEnd},
    fold::Fold,
    message::{Message, Source},
    recover::stand_ins,
    store::{Accept, Done, MessageState, Op, Refused},
};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{Semaphore, oneshot};

use super::{PublishedSession, Started, let_go};
use crate::{
    error::{PublishedError, WriteError},
    journal::Pending,
    live::{LiveView, Player},
    log::NotPut,
    occurrence::Occurrence,
    race::race_point,
    registry::{Incarnation, RegistryMessage},
    services::Services,
};

/// What the actor is told.
#[derive(Debug)]
pub(crate) enum PublishedMessage {
    /// The session stands in the table.
    Go,
    /// An event was handed over.
    Appended {
        /// Its way to the disk.
        pending: Pending,
        /// What subscribers hear when it is there.
        told: Option<Occurrence>,
    },
    /// Begin a turn.
    Begin {
        /// Its message.
        message: Arc<Message>,
        /// Gets its first event, which is durable.
        reply: oneshot::Sender<Result<Event, PublishedError>>,
    },
    /// Answer when everything that was handed over before is durable.
    Flush {
        /// Gets told.
        reply: oneshot::Sender<()>,
    },
    /// End the epoch: the host has said so, or has let go of its handle.
    End {
        /// Gets told how that went, after the Registry.
        reply: Option<Ender>,
    },
    /// End the epoch: the runtime shuts down.
    Shutdown,
}

/// Who ends a publication.
type Ender = oneshot::Sender<Result<(), WriteError>>;

/// The actor.
#[derive(Debug)]
pub(crate) struct Published;

pub(crate) struct PublishedState {
    // First, so that it goes while its generation is still there.
    guard: EndGuard,
    services: Arc<Services>,
    view: Arc<LiveView>,
    /// Gets the handle when the session stands in the table.
    started: Option<Started>,
}

/// Reports the end of a publication however it comes.
struct EndGuard {
    registry: ActorRef<RegistryMessage>,
    services: Weak<Services>,
    view: Arc<LiveView>,
    incarnation: Incarnation,
    reason: EpochEnd,
    /// How a turn ended that was open at the end.
    cut: TurnEnd,
    /// Whom to tell how the end went.
    ended: Option<(Ender, Result<(), WriteError>)>,
    /// Closed when everything else is done.
    over: Arc<Semaphore>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.view.log.shut();
        let mut knocked = self.view.gate.close().unwrap_or(true);
        let session = self.view.id().clone();
        if let Some(services) = self.services.upgrade() {
            if self.reason == EpochEnd::Disposed {
                knocked |= services.played.end(&session, self.view.epoch);
            } else {
                let_go(&services, &session, self.view.epoch);
            }
            self.view.pair.end(&services, &self.view, self.reason, &self.cut);
        }
        let (incarnation, reason) = (self.incarnation, self.reason);
        drop(self.registry.send_message(RegistryMessage::Ended { session, incarnation, reason, knocked, failures: Vec::new() }));
        // After the Registry, so that whoever hears it may publish the session again.
        if let Some((reply, result)) = self.ended.take() {
            drop(reply.send(result));
        }
        self.over.close();
    }
}

pub(crate) struct PublishedArgs {
    pub(crate) services: Arc<Services>,
    pub(crate) registry: ActorRef<RegistryMessage>,
    pub(crate) incarnation: Incarnation,
    /// Makes the view, which holds the actor.
    pub(crate) view: Box<dyn FnOnce(Player) -> LiveView + Send>,
    pub(crate) give: oneshot::Sender<Arc<LiveView>>,
    pub(crate) started: Started,
}

impl Actor for Published {
    type Msg = PublishedMessage;
    type State = PublishedState;
    type Arguments = PublishedArgs;

    async fn pre_start(&self, myself: ActorRef<PublishedMessage>, args: PublishedArgs) -> Result<PublishedState, ActorProcessingErr> {
        let PublishedArgs { services, registry, incarnation, view, give, started } = args;
        let view = Arc::new(view(Player::Host(myself)));
        let guard = EndGuard {
            registry,
            services: Arc::downgrade(&services),
            view: view.clone(),
            incarnation,
            reason: EpochEnd::Failed,
            cut: TurnEnd::Disposed,
            ended: None,
            over: Arc::new(Semaphore::new(0)),
        };
        give.send(view.clone()).map_err(|_| "nobody waits for this publication")?;
        Ok(PublishedState { services, view, started: Some(started), guard })
    }

    async fn handle(&self, myself: ActorRef<PublishedMessage>, message: PublishedMessage, state: &mut PublishedState) -> Result<(), ActorProcessingErr> {
        race_point!("published-message");
        match state.act(&myself, message).await {
            Ok(Next::Stay) => {}
            Ok(Next::Leave) => {
                state.guard.reason = EpochEnd::Disposed;
                myself.stop(None);
            }
            Err(error) => {
                // What is on disk is what happened; the handle tells its host.
                let fenced = matches!(error, WriteError::Refused(Refused::Fenced { .. } | Refused::Removed(_)));
                tracing::warn!(session = %state.view.id(), code = error.code(), %error, "a publication ended by a failed write");
                state.guard.reason = if fenced { EpochEnd::Fenced } else { EpochEnd::Failed };
                myself.stop(None);
            }
        }
        Ok(())
    }
}

enum Next {
    Stay,
    Leave,
}

type Outcome = Result<Next, WriteError>;

impl PublishedState {
    async fn act(&mut self, myself: &ActorRef<PublishedMessage>, message: PublishedMessage) -> Outcome {
        match message {
            PublishedMessage::Go => self.go(myself),
            PublishedMessage::Appended { pending, told } => {
                self.view.log.settled(pending.done().await)?;
                if let Some(told) = told {
                    self.services.tell(|| told);
                }
            }
            PublishedMessage::Begin { message, reply } => {
                let begun = self.begin(&message).await;
                let failed = self.view.log.broken();
                drop(reply.send(begun));
                if let Some(error) = failed {
                    return Err(error);
                }
            }
            PublishedMessage::Flush { reply } => drop(reply.send(())),
            PublishedMessage::End { reply } => return self.end(reply, TurnEnd::Aborted { cause: "host".into() }).await,
            // Like a turn that a shutdown cuts off: its message is served again.
            PublishedMessage::Shutdown => return self.end(None, TurnEnd::Disposed).await,
        }
        Ok(Next::Stay)
    }

    fn go(&mut self, myself: &ActorRef<PublishedMessage>) {
        let (services, view) = (&self.services, &self.view);
        view.pair.begin(services, view);
        if let Some(started) = self.started.take() {
            // Nobody there: the handle is dropped, which ends the publication.
            drop(started.send(Ok(PublishedSession::new(services.clone(), view.clone(), myself.clone(), self.guard.over.clone()))));
        }
    }

    /// Has a message accepted and begins its turn with it, or serves it again if its turn was cut off.
    async fn begin(&self, message: &Arc<Message>) -> Result<Event, PublishedError> {
        let (session, log) = (self.view.id(), &self.view.log);
        log.writable().map_err(|error| PublishedError::of(session, error))?;
        let attempt = log.look(|fold| next_attempt(fold, message)).map_err(|error| PublishedError::of(session, error))?;
        let take = if attempt == 1 { vec![self.accept(message).await?] } else { Vec::new() };
        race_point!("published-accepted");
        let put = log.put(
            |fold, now| {
                let (turn, next) = (fold.head().turns + 1, fold.head().next_seq);
                let start = Body::TurnStart { turn, message: message.id.clone(), attempt }.at(next, now);
                let shown = (attempt == 1).then(|| Body::user_message(message).at(next + 1, now));
                Ok([start].into_iter().chain(shown).collect())
            },
            take.clone(),
        );
        let (events, pending) = match put {
            Ok(put) => put,
            Err(error) => {
                // What has no turn now must not wait for somebody else to give it one.
                if attempt == 1 {
                    drop(log.append(vec![Body::MessageWithdrawn { message: message.id.clone(), by: Source::Host.kind().into() }], take));
                }
                return Err(PublishedError::of(session, error));
            }
        };
        log.settled(pending.done().await).map_err(PublishedError::Write)?;
        let start = events.first().cloned().ok_or_else(|| PublishedError::NotLive(session.clone()))?;
        if let Body::TurnStart { turn, message, attempt } = &start.body {
            let (turn, message, attempt) = (*turn, message.clone(), *attempt);
            self.services.tell(|| Occurrence::TurnStarted { session: session.clone(), turn, message, attempt });
        }
        Ok(start)
    }

    /// Has a message accepted; what fills the inbox meanwhile is no reason to refuse the host. Returns its place.
    async fn accept(&self, message: &Arc<Message>) -> Result<u64, PublishedError> {
        let session = self.view.id();
        let accept = Accept { session: session.clone(), message: message.clone(), inbox_limit: u64::MAX, note_limit: u64::MAX };
        let order = match self.services.journal.commit(Op::Accept(accept)).await.map_err(PublishedError::Write)? {
            Done::Accepted { order, duplicate: false } => return Ok(order),
            Done::Accepted { order, .. } => order,
            _ => return Err(PublishedError::Write(WriteError::Ended)),
        };
        let (id, known) = (session.clone(), message.id.clone());
        match self.services.readers.read(move |reader| reader.message(&id, &known)).await {
            Ok(Some(MessageState::Pending(_))) => Ok(order),
            Ok(_) => Err(PublishedError::refused(format!("message {} has had its turn", message.id))),
            Err(error) => Err(PublishedError::Read(error.to_string())),
        }
    }

    async fn end(&mut self, reply: Option<Ender>, reason: TurnEnd) -> Outcome {
        race_point!("published-end");
        let epoch = self.view.epoch;
        self.guard.cut.clone_from(&reason);
        let done = match self.view.log.end(|fold| last_words(fold, epoch, reason)) {
            Ok(pending) => self.view.log.settled(pending.done().await).map(drop),
            Err(NotPut::Broken(error)) => Err(error),
            Err(NotPut::Closed | NotPut::Refused { .. } | NotPut::Compact(_)) => Err(WriteError::Ended),
        };
        race_point!("published-ended");
        self.guard.ended = reply.map(|reply| (reply, done.clone()));
        done.map(|()| Next::Leave)
    }
}

/// Returns which attempt at a message may begin now.
fn next_attempt(fold: &Fold, message: &Message) -> Result<u32, NotPut> {
    let head = fold.head();
    let refused = |message: String| Err(NotPut::Refused { code: crate::log::EVENT_REFUSED, message });
    if let Some(compacting) = head.compacting {
        return Err(CompactError::Busy(compacting.since).into());
    }
    match (&head.open, &head.retry) {
        (Some(open), _) => refused(format!("turn {} is open", open.turn)),
        (None, Some(retry)) if retry.message == message.id => Ok(retry.attempts + 1),
        (None, Some(retry)) => refused(format!("message {} is to be served first", retry.message)),
        (None, None) => Ok(1),
    }
}

/// Returns the events that end an epoch, an open turn before it.
fn last_words(fold: &Fold, epoch: u64, reason: TurnEnd) -> Vec<Body> {
    let mut bodies = Vec::new();
    bodies.extend(fold.head().compacting.map(|compacting| Body::CompactEnd { turn: compacting.turn, error: Some(COMPACTION_INTERRUPTED.to_owned()) }));
    if let Some(open) = &fold.head().open {
        bodies.extend(stand_ins(fold));
        bodies.extend(open.step.map(|step| Body::StepEnd { turn: open.turn, step, cut: Some(true) }));
        bodies.push(Body::TurnEnd { turn: open.turn, reason });
    }
    bodies.push(Body::ActivationEnd { epoch, reason: EpochEnd::Disposed });
    bodies
}
