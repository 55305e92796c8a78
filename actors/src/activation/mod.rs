//! An Activation: one session, live.
//!
//! Serves the messages of its durable inbox one turn at a time. Everything it knows is in the session's log; dropping it loses
//! nothing but warmth.
//!
//! **Messages.** `Go`, `Requests`, `PutAside` and `Shutdown` from the Registry, `Wake` from whoever delivered, `Slot` and `TurnDone` from its own tasks, `Ask` from the
//! parent or the host, `Cancel` from the host.
//! **State.** The log's fold and the behaviour; rebuilt from the log by `start`. Which messages wait is known to the store alone.
//! **Order.** The next turn is the pending message of the smallest order, taken in the transaction that writes `turn/start`.
//! **End.** Settles when the store says that nothing is pending and the Registry that no child is owned. A crash mid-turn leaves an open turn, closed by the
//! next epoch and served again. The guard in the state reports every end, also after a panic.

mod cancel;
mod notice;
mod requests;
mod settle;
mod start;

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    task::Poll,
};

use futures::{FutureExt, future::BoxFuture};
use greenroom_session::{
    compact::COMPACTION_INTERRUPTED,
    event::{Body, EpochEnd, Event, TurnEnd as TurnReason},
    message::Control,
    recover::stand_ins,
    store::{ClaimKind, Refused},
    turns::Claimed,
};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::{
    sync::{OwnedSemaphorePermit, TryAcquireError, oneshot},
    task::AbortHandle,
};

use requests::Asker;

use crate::{
    behavior::{Behavior, TurnEnd, TurnError},
    behind::go_behind,
    control::Answered,
    error::WriteError,
    lifecycle::ACTIVATION_FAILED,
    live::{LiveView, NewView, Player},
    occurrence::Occurrence,
    race::race_point,
    registry::{Incarnation, RegistryMessage},
    services::Services,
    setup::RELEASE_FAILED,
    turn::Turn,
    turn_core::TurnCore,
};

pub(crate) use cancel::Call;
pub(crate) use notice::{notice, told};
#[cfg(test)]
pub(crate) use settle::plant;
pub(crate) use start::{StartRequest, start};

/// What an Activation is told.
#[derive(Debug)]
pub(crate) enum ActivationMessage {
    /// It is published and may act.
    Go,
    /// Its inbox may have changed, or it may be free to settle.
    Wake,
    /// It may run a turn.
    Slot(OwnedSemaphorePermit),
    /// The turn under way has come to its end.
    TurnDone(Box<TurnDone>),
    /// End the turn under way, or give a message back; the queue goes on.
    Ask {
        /// What is asked.
        control: Control,
        /// Recorded with what is done.
        by: &'static str,
        /// Gets the answer when it is durable.
        reply: oneshot::Sender<Answered>,
    },
    /// End what goes on, and take back what waits for a turn of its own.
    Cancel(Call),
    /// Another process may have left a request in the inbox.
    Requests,
    /// The interrupted turn did not heed its cancellation.
    Overdue {
        /// The turn.
        turn: u64,
    },
    /// End the turn under way, begin no other, and wait for `Shutdown`: what is below goes first.
    PutAside,
    /// End the epoch without waiting for the queue.
    Shutdown {
        /// Recorded with the end.
        reason: EpochEnd,
    },
}

/// The end of a turn.
pub(crate) struct TurnDone {
    turn: u64,
    behavior: Option<Box<dyn Behavior>>,
    result: TurnResult,
}

impl std::fmt::Debug for TurnDone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TurnDone").field("turn", &self.turn).field("result", &self.result).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum TurnResult {
    Ended(Result<TurnEnd, TurnError>),
    Panicked(String),
}

/// The actor.
#[derive(Debug)]
pub(crate) struct Activation;

pub(crate) struct ActivationArgs {
    pub(crate) services: Arc<Services>,
    /// What is to be published.
    pub(crate) new: NewView,
    /// Gets what is to be published.
    pub(crate) give: oneshot::Sender<Arc<LiveView>>,
    pub(crate) behavior: Box<dyn Behavior>,
    pub(crate) opened: Option<Claimed>,
    /// Whether requests wait in the inbox; they are answered before the first claim.
    pub(crate) asked: bool,
    pub(crate) slot: Option<OwnedSemaphorePermit>,
    pub(crate) incarnation: Incarnation,
    pub(crate) registry: ActorRef<RegistryMessage>,
}

pub(crate) struct ActivationState {
    // First, so that it is free for others whatever the rest does when it is dropped.
    slot: Slot,
    view: Arc<LiveView>,
    behavior: Option<Box<dyn Behavior>>,
    next: Claim,
    running: Option<Running>,
    asked: bool,
    /// No further turn begins.
    aside: bool,
    shutdown: Option<EpochEnd>,
    registry: ActorRef<RegistryMessage>,
    incarnation: Incarnation,
    // After the behaviour, so that nothing of this epoch is left when the next may begin; before the services, so that there is somebody to tell.
    guard: Option<EndGuard>,
    services: Arc<Services>,
}

/// What the last look into the inbox gave.
#[derive(Default)]
enum Claim {
    /// Nobody has looked since the last turn.
    #[default]
    NotAsked,
    /// There was nothing to serve.
    Nothing,
    /// A turn is open in the log and not yet begun.
    Turn(Claimed),
}

impl From<Option<Claimed>> for Claim {
    fn from(claimed: Option<Claimed>) -> Self {
        claimed.map_or(Self::Nothing, Self::Turn)
    }
}

enum Slot {
    None,
    Asked,
    Held(OwnedSemaphorePermit),
}

struct Running {
    turn: u64,
    core: Arc<TurnCore>,
    task: Option<AbortHandle>,
    /// The first cause wins.
    ended_by: Option<TurnReason>,
    /// Who asked for that; they are answered by the end.
    askers: Vec<Asker>,
}

/// Reports the end of an Activation however it comes.
struct EndGuard {
    registry: ActorRef<RegistryMessage>,
    services: Weak<Services>,
    view: Arc<LiveView>,
    incarnation: Incarnation,
    reason: EpochEnd,
    /// What went wrong on the way to the end: a code, and what it was.
    failures: Vec<Failure>,
}

/// What went wrong at an end: a stable code, and what it was.
pub(crate) type Failure = (&'static str, String);

impl Drop for EndGuard {
    fn drop(&mut self) {
        let knocked = self.view.gate.close().unwrap_or(true);
        let session = self.view.id().clone();
        let mut failures = std::mem::take(&mut self.failures);
        failures.extend(self.view.installed.release().into_iter().map(|failure| (RELEASE_FAILED, failure)));
        if !matches!(self.reason, EpochEnd::Settled | EpochEnd::Disposed) {
            failures
                .push(self.view.log.broken().map_or((ACTIVATION_FAILED, "its actor ended without order".into()), |error| (error.code(), error.to_string())));
        }
        if let Some(services) = self.services.upgrade() {
            self.view.pair.end(&services, &self.view, self.reason, &TurnReason::Disposed);
            services.closed.open(&session, self.view.epoch);
        }
        let (incarnation, reason) = (self.incarnation, self.reason);
        drop(self.registry.send_message(RegistryMessage::Ended { session, incarnation, reason, knocked, failures }));
    }
}

/// Code of what is refused where nothing new is accepted.
const DRAINING: &str = "DRAINING";

/// Turns that may be run to their end in one handler call, so that one busy session cannot keep a worker from the others.
const TURNS_PER_CALL: usize = 32;

impl Actor for Activation {
    type Msg = ActivationMessage;
    type State = ActivationState;
    type Arguments = ActivationArgs;

    async fn pre_start(&self, myself: ActorRef<ActivationMessage>, args: ActivationArgs) -> Result<ActivationState, ActorProcessingErr> {
        let view = Arc::new(LiveView::new(args.new, Player::Agent(myself)));
        let guard = EndGuard {
            registry: args.registry.clone(),
            services: Arc::downgrade(&args.services),
            view: view.clone(),
            incarnation: args.incarnation,
            reason: EpochEnd::Failed,
            failures: Vec::new(),
        };
        args.give.send(view.clone()).map_err(|_| "nobody waits for this start")?;
        Ok(ActivationState {
            view,
            behavior: Some(args.behavior),
            next: args.opened.map_or(Claim::NotAsked, Claim::Turn),
            slot: args.slot.map_or(Slot::None, Slot::Held),
            running: None,
            asked: args.asked,
            aside: false,
            shutdown: None,
            registry: args.registry,
            incarnation: args.incarnation,
            guard: Some(guard),
            services: args.services,
        })
    }

    async fn handle(&self, myself: ActorRef<ActivationMessage>, message: ActivationMessage, state: &mut ActivationState) -> Result<(), ActorProcessingErr> {
        race_point!("activation-message");
        // Boxed, so that an idle Activation does not keep the room that acting takes.
        let outcome = Box::pin(state.act(&myself, message)).await;
        match outcome {
            Ok(Next::Stay) => Ok(()),
            Ok(Next::Leave(reason)) => {
                state.leave(&myself, reason);
                Ok(())
            }
            Err(error) => {
                // What is on disk is what happened; the next epoch starts from there.
                let fenced = matches!(error, WriteError::Refused(Refused::Fenced { .. } | Refused::Removed(_)));
                tracing::warn!(session = %state.view.id(), code = error.code(), %error, "an epoch ended by a failed write");
                state.drop_turn();
                state.leave(&myself, if fenced { EpochEnd::Fenced } else { EpochEnd::Failed });
                Ok(())
            }
        }
    }

    async fn post_stop(&self, _myself: ActorRef<ActivationMessage>, state: &mut ActivationState) -> Result<(), ActorProcessingErr> {
        // Here and not by whoever hears of the end: what is dropped may take its time. Whoever has just been told something goes first.
        go_behind().await;
        let behavior = state.behavior.take();
        let dropped = std::panic::catch_unwind(AssertUnwindSafe(|| drop(behavior)));
        if let (Err(panic), Some(guard)) = (dropped, &mut state.guard) {
            guard.failures.push(("PANIC", panic_text(&*panic)));
        }
        drop(state.guard.take());
        Ok(())
    }
}

/// What becomes of an Activation after a message.
enum Next {
    Stay,
    Leave(EpochEnd),
}

type Outcome = Result<Next, WriteError>;

impl ActivationState {
    async fn act(&mut self, myself: &ActorRef<ActivationMessage>, message: ActivationMessage) -> Outcome {
        match message {
            ActivationMessage::Go => self.go(myself).await,
            // The turn under way looks into the inbox when it ends. Until then the knock stays up, so that nobody knocks again.
            ActivationMessage::Wake if self.running.is_some() => Ok(Next::Stay),
            ActivationMessage::Wake => {
                // Whoever knocked may have come after the last look.
                if matches!(self.next, Claim::Nothing) {
                    self.next = Claim::NotAsked;
                }
                self.proceed(myself).await
            }
            ActivationMessage::Slot(permit) => {
                self.slot = Slot::Held(permit);
                self.proceed(myself).await
            }
            ActivationMessage::TurnDone(done) => self.turn_done(myself, *done).await,
            ActivationMessage::Ask { control, by, reply } => self.asked(myself, control, by, reply).await,
            ActivationMessage::Cancel(call) => self.cancel(myself, call).await,
            ActivationMessage::Requests => self.look_for_requests(myself).await,
            ActivationMessage::Overdue { turn } => self.overdue(myself, turn).await,
            ActivationMessage::PutAside => self.put_aside(myself).await,
            ActivationMessage::Shutdown { reason } => self.begin_shutdown(myself, reason).await,
        }
    }

    /// Is about to end, for this reason.
    fn leave(&mut self, myself: &ActorRef<ActivationMessage>, reason: EpochEnd) {
        self.slot = Slot::None;
        if let Some(guard) = &mut self.guard {
            guard.reason = reason;
        }
        myself.stop(None);
    }

    /// Tells whether no further turn may begin: then the Registry ends the epoch, now or when what is below has ended.
    fn is_aside(&self) -> bool {
        self.aside || self.shutdown.is_some() || self.services.is_draining() || self.services.closed.covers(self.view.id(), &self.view.lineage)
    }

    async fn go(&mut self, myself: &ActorRef<ActivationMessage>) -> Outcome {
        // The Registry has just been told that this actor runs, and may be next on this thread: a behaviour that blocks must not take it along.
        go_behind().await;
        self.view.pair.begin(&self.services, &self.view);
        if std::mem::take(&mut self.asked) {
            self.answer_requests(myself).await?;
        }
        self.proceed(myself).await
    }

    /// Does what is next: the turn that is open, the next message, or settling.
    async fn proceed(&mut self, myself: &ActorRef<ActivationMessage>) -> Outcome {
        if self.running.is_some() {
            return Ok(Next::Stay);
        }
        if let Some(reason) = self.shutdown {
            return self.finish(reason).await;
        }
        if self.is_aside() {
            self.slot = Slot::None;
            return Ok(Next::Stay);
        }
        for left in (0..TURNS_PER_CALL).rev() {
            let next = match std::mem::take(&mut self.next) {
                Claim::NotAsked if self.take_slot(myself) => self.claim().await?,
                Claim::NotAsked => return Ok(Next::Stay),
                next => next,
            };
            let Claim::Turn(claimed) = next else {
                // With its slot, which no other gets before this one has come to rest: else more sessions come up than come to rest, and all of them are live.
                let next = self.settle().await;
                self.slot = Slot::None;
                return next;
            };
            let Some(done) = self.run(myself, &claimed).await else { return Ok(Next::Stay) };
            // A turn that ended at its first poll was too short to keep anybody waiting; a call full of them was not.
            self.end_turn(done, left == 0).await?;
        }
        // More may be there; others go first.
        drop(myself.send_message(ActivationMessage::Wake));
        Ok(Next::Stay)
    }

    /// Makes sure of a turn slot; if none is free, has one sent.
    fn take_slot(&mut self, myself: &ActorRef<ActivationMessage>) -> bool {
        match &self.slot {
            Slot::Held(_) => true,
            Slot::Asked => false,
            Slot::None => match self.services.slots.clone().try_acquire_owned() {
                Ok(permit) => {
                    self.slot = Slot::Held(permit);
                    true
                }
                Err(TryAcquireError::Closed) => false,
                Err(TryAcquireError::NoPermits) => {
                    self.slot = Slot::Asked;
                    let (slots, myself) = (self.services.slots.clone(), myself.clone());
                    tokio::spawn(async move {
                        if let Ok(permit) = slots.acquire_owned().await {
                            drop(myself.send_message(ActivationMessage::Slot(permit)));
                        }
                    });
                    false
                }
            },
        }
    }

    async fn claim(&mut self) -> Result<Claim, WriteError> {
        self.view.gate.answer();
        race_point!("before-claim");
        let claimed = self.view.log.claim(ClaimKind::Turn).await?;
        race_point!("after-claim");
        Ok(Claim::from(claimed))
    }

    /// Begins a turn whose `turn/start` is durable. Returns its end if it came to it at once.
    async fn run(&mut self, myself: &ActorRef<ActivationMessage>, claimed: &Claimed) -> Option<TurnDone> {
        let Some(Event { body: Body::TurnStart { turn, message, attempt }, .. }) = claimed.events.first() else {
            return None;
        };
        let turn = *turn;
        self.services.tell(|| Occurrence::TurnStarted { session: self.view.id().clone(), turn, message: message.clone(), attempt: *attempt });
        let permit = match std::mem::replace(&mut self.slot, Slot::None) {
            Slot::Held(permit) => Some(permit),
            _ => None,
        };
        let core = TurnCore::new(self.services.clone(), self.view.clone(), turn, message.clone(), *attempt, permit);
        self.view.runs(&core);
        let mut behavior = self.behavior.take()?;
        let turn_handle = Turn::new(core.clone());
        let mut body: BoxFuture<'static, TurnDone> = Box::pin(async move {
            // Within a future of its own, so that a panic before there is one is caught as well.
            let result = AssertUnwindSafe(async { behavior.turn(turn_handle).await }).catch_unwind().await;
            match result {
                Ok(result) => TurnDone { turn, behavior: Some(behavior), result: TurnResult::Ended(result) },
                // What a panic left of the behaviour is not to be trusted: the next turn gets a new one.
                Err(panic) => TurnDone { turn, behavior: None, result: TurnResult::Panicked(panic_text(&*panic)) },
            }
        });
        self.running = Some(Running { turn, core, task: None, ended_by: None, askers: Vec::new() });
        race_point!("before-body");
        // Most turns of a simulation end at their first poll; a task for each would cost more than the turn.
        let first = std::future::poll_fn(|cx| Poll::Ready(body.as_mut().poll(cx))).await;
        if let Poll::Ready(done) = first {
            return Some(done);
        }
        let myself = myself.clone();
        let task = tokio::spawn(async move {
            let done = body.await;
            drop(myself.send_message(ActivationMessage::TurnDone(Box::new(done))));
        });
        if let Some(running) = &mut self.running {
            running.task = Some(task.abort_handle());
        }
        None
    }

    async fn turn_done(&mut self, myself: &ActorRef<ActivationMessage>, done: TurnDone) -> Outcome {
        race_point!("turn-done");
        self.end_turn(done, true).await?;
        self.proceed(myself).await
    }

    /// Records the end of a turn and, where it can, takes the next message in the same batch. The end of a turn that is over does nothing.
    /// With `share`, whoever waits for a turn slot goes first.
    async fn end_turn(&mut self, done: TurnDone, share: bool) -> Result<(), WriteError> {
        let Some(mut running) = self.running.take_if(|running| running.turn == done.turn) else { return Ok(()) };
        self.behavior = Some(match done.behavior {
            Some(behavior) => behavior,
            None => self.new_behavior(),
        });
        let mut outage = None;
        let reason = running.ended_by.clone().unwrap_or_else(|| match done.result {
            TurnResult::Ended(Ok(TurnEnd::Completed)) => TurnReason::Completed,
            TurnResult::Ended(Ok(TurnEnd::MaxTokens)) => TurnReason::MaxTokens,
            // What it was refused since it is put aside is no failure of its own: it is served again.
            TurnResult::Ended(Err(error)) if error.code == DRAINING && self.is_aside() => TurnReason::Disposed,
            TurnResult::Ended(Err(error)) => {
                outage = running.core.outage(&error.code);
                self.failed(error, outage.as_ref())
            }
            TurnResult::Panicked(message) => TurnReason::error("PANIC", message),
        });
        let again = outage.filter(|_| !reason.is_final());
        self.next = self.close_turn(&running, reason, share).await?;
        running.tell_callers();
        // Not at once: the disk may need a moment. The next epoch serves it again.
        again.map_or(Ok(()), Err)
    }

    /// Says how a turn has ended that failed. What the disk did not take is no failure of its own: it is served again, after a disk without room however often,
    /// else as often as if the process had ended.
    fn failed(&self, error: TurnError, outage: Option<&WriteError>) -> TurnReason {
        let may_go_on = || {
            let most = self.services.config.max_attempts;
            self.view.log.look(|fold| fold.head().open.as_ref().is_some_and(|open| open.progress || open.wasted + 1 < most))
        };
        match outage {
            Some(outage) if outage.is_full() => TurnReason::Disposed,
            Some(_) if may_go_on() => TurnReason::Interrupted,
            _ => TurnReason::Error { code: error.code, message: error.message },
        }
    }

    async fn close_turn(&mut self, running: &Running, reason: TurnReason, share: bool) -> Result<Claim, WriteError> {
        self.slot = running.core.end().map_or(Slot::None, Slot::Held);
        let log = self.view.log.clone();
        if let Some(error) = log.broken() {
            return Err(error);
        }
        let cut = reason != TurnReason::Completed && reason != TurnReason::MaxTokens;
        let mut bodies = Vec::with_capacity(2);
        let (compacting, step, open_calls) = log.look(|fold| (fold.head().compacting, fold.head().open.as_ref().and_then(|open| open.step), stand_ins(fold)));
        // A compaction does not outlive the turn within which it began.
        bodies.extend(compacting.map(|compacting| Body::CompactEnd { turn: compacting.turn, error: Some(COMPACTION_INTERRUPTED.to_owned()) }));
        // A call without an answer is nothing that a model takes.
        bodies.extend(open_calls);
        if let Some(step) = step {
            bodies.push(Body::StepEnd { turn: running.turn, step, cut: cut.then_some(true) });
        }
        bodies.push(Body::TurnEnd { turn: running.turn, reason: reason.clone() });
        let (answers, take) = running.answers();
        bodies.extend(answers);
        race_point!("before-turn-end");
        // Somebody may wait for a slot: give this one up and queue for the next, or a long inbox would starve the others. But not to find in the end that there is
        // nothing more: whoever has nothing to do comes to rest at once, and not behind all who wait to begin.
        if share && self.services.slots.available_permits() == 0 && self.has_more().await {
            self.slot = Slot::None;
        }
        // A turn that waited when it was cut off has given its slot away: the next one has to ask for one first.
        let may_claim = reason.is_final() && !self.is_aside() && matches!(self.slot, Slot::Held(_));
        let claimed = if may_claim {
            self.view.gate.answer();
            Claim::from(log.append_and_claim(bodies, take, ClaimKind::Turn).await?)
        } else {
            log.settled(log.append(bodies, take).done().await)?;
            Claim::NotAsked
        };
        race_point!("after-turn-end");
        self.services.tell(|| Occurrence::TurnEnded { session: self.view.id().clone(), turn: running.turn, reason });
        Ok(claimed)
    }

    fn new_behavior(&self) -> Box<dyn Behavior> {
        let agent = self.view.log.look(|fold| fold.agent().map(str::to_owned)).unwrap_or_default();
        match self.services.config.behaviors.get(&agent) {
            Some(factory) => factory(),
            None => Box::new(move |_turn: Turn| {
                let agent = agent.clone();
                async move { Err(TurnError::new("AGENT_UNKNOWN", format!("no agent is called {agent:?}"))) }
            }),
        }
    }

    /// Cancels the turn under way and makes sure that it ends, for the first reason that it is given.
    fn cut(&mut self, myself: &ActorRef<ActivationMessage>, reason: TurnReason) {
        let Some(running) = self.running.as_mut().filter(|running| running.ended_by.is_none()) else { return };
        running.ended_by = Some(reason);
        running.core.cancel();
        let (myself, turn, grace) = (myself.clone(), running.turn, self.services.config.interrupt_grace);
        tokio::spawn(async move {
            tokio::time::sleep(grace).await;
            drop(myself.send_message(ActivationMessage::Overdue { turn }));
        });
    }

    async fn overdue(&mut self, myself: &ActorRef<ActivationMessage>, turn: u64) -> Outcome {
        if self.running.as_ref().is_none_or(|running| running.turn != turn || running.ended_by.is_none()) {
            return Ok(Next::Stay);
        }
        self.drop_task();
        // The behaviour is inside of the dropped task.
        self.turn_done(myself, TurnDone { turn, behavior: None, result: TurnResult::Panicked("dropped".into()) }).await
    }

    fn drop_task(&mut self) {
        if let Some(task) = self.running.as_mut().and_then(|running| running.task.take()) {
            task.abort();
        }
    }

    fn drop_turn(&mut self) {
        self.drop_task();
        if let Some(running) = self.running.take() {
            running.core.cancel();
            drop(running.core.end());
        }
    }

    async fn put_aside(&mut self, myself: &ActorRef<ActivationMessage>) -> Outcome {
        self.aside = true;
        self.cut(myself, TurnReason::Disposed);
        self.proceed(myself).await
    }

    async fn begin_shutdown(&mut self, myself: &ActorRef<ActivationMessage>, reason: EpochEnd) -> Outcome {
        if self.shutdown.is_none() {
            self.shutdown = Some(reason);
        }
        if self.running.is_some() {
            self.cut(myself, TurnReason::Disposed);
            return Ok(Next::Stay);
        }
        self.finish(reason).await
    }

    /// Ends the epoch, without settling unless the parent is owed a notice. Whatever is pending stays pending.
    async fn finish(&mut self, reason: EpochEnd) -> Outcome {
        if self.settle_aside().await? {
            return Ok(Next::Leave(EpochEnd::Settled));
        }
        // A turn that was claimed and not begun was given its `turn/start`; it ends as disposed and is served again.
        let mut bodies = Vec::new();
        if let Some(turn) = self.view.log.look(|fold| fold.head().open.as_ref().map(|open| open.turn)) {
            bodies.push(Body::TurnEnd { turn, reason: TurnReason::Disposed });
        }
        bodies.push(Body::ActivationEnd { epoch: self.view.epoch, reason });
        self.next = Claim::NotAsked;
        self.view.set_ending(true);
        #[cfg(test)]
        crate::race::plan::may_stick().await;
        self.view.log.close(bodies, false).await?;
        Ok(Next::Leave(reason))
    }
}

impl Drop for ActivationState {
    fn drop(&mut self) {
        // However it ends: a turn does not outlive its Activation.
        self.drop_turn();
    }
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the behaviour panicked".to_owned())
}
