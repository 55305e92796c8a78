//! A one-shot run: a child that has one message to serve, its result, and its end before its time.
//!
//! The handle is no authority and keeps nobody live: the child runs as any session does, whoever holds its run. What the run is asked is answered by the
//! child's log, so that it may be asked again, by clones, and found again by another process.

mod look;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use futures::future::join_all;
use greenroom_session::{
    event::TurnEnd,
    id::{MessageId, SessionId},
};
use tokio::{
    sync::{broadcast, oneshot},
    time::{Instant, sleep},
};

use look::{Asked, Look};

use crate::{
    behavior::TurnError,
    closed::is_closed,
    delegate::Delegated,
    error::{ControlError, DisposeError, RunError},
    host::{Cancel, Cause, cancel},
    occurrence::Occurrence,
    race::race_point,
    registry::RegistryMessage,
    services::Services,
    turn_core::TurnCore,
    wait::Patience,
};

/// A one-shot child that was started: it serves one message, and nobody can tell it more.
///
/// Clones are the same run. Dropped, the run goes on. It outlives the turn and the epoch of whoever has started it; [`Agent::run_of`](crate::Agent::run_of) and
/// [`Host::run_of`](crate::Host::run_of) find it again, also in another process.
///
/// ```
/// use greenroom_actors::{Delegate, OneShotRun, host::NewRoot};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let root = host.root(NewRoot::new("echo", "a desk")).await?;
/// let run: OneShotRun = root.agent().start(Delegate::new("echo", "an echo", "one")).await?;
/// assert_eq!(run.result().await?.text, "one");
/// run.dispose().await?; // it has ended already: nothing is left to do
/// assert_eq!(host.run_of(run.id()).await?.result().await?, run.result().await?);
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct OneShotRun {
    /// Of the generation that it was started in.
    services: Arc<Services>,
    /// The turn that started it. Its slot is free while it waits.
    turn: Option<Weak<TurnCore>>,
    child: SessionId,
    message: MessageId,
    /// On whose behalf it is disposed of.
    by: Cause,
}

/// How a one-shot run ended, and what came of it.
///
/// ```
/// use greenroom_actors::{Delegate, OneShotResult, host::NewRoot};
/// use greenroom_session::event::TurnEnd;
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("mute", || |_: greenroom_actors::Turn| async { Ok(greenroom_actors::TurnEnd::MaxTokens) });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// let root = system.host().root(NewRoot::new("mute", "a desk")).await?;
/// let run = root.agent().start(Delegate::new("mute", "a mute", "one")).await?;
/// assert_eq!(run.result().await?, OneShotResult { outcome: TurnEnd::MaxTokens, text: String::new() });
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct OneShotResult {
    /// How the work on its message ended: completed, at the limit of tokens, aborted, or with an error. A message that was taken back before its turn was aborted.
    /// What the child did after that, on what its own children said, does not change it.
    pub outcome: TurnEnd,
    /// What the child said last until it settled; empty if it said nothing, whatever it has inherited.
    pub text: String,
}

impl OneShotRun {
    pub(crate) fn new(services: &Arc<Services>, turn: Option<&Arc<TurnCore>>, delegated: Delegated, by: Cause) -> Self {
        Self { services: services.clone(), turn: turn.map(Arc::downgrade), child: delegated.child, message: delegated.message, by }
    }

    /// Finds the run of a one-shot child. Costs the length of its log.
    pub(crate) async fn find(services: &Arc<Services>, child: &SessionId, by: Cause) -> Result<Self, RunError> {
        let id = child.clone();
        let read = services.readers.read(move |reader| Asked::read(reader, &id)).await;
        let Asked { is_one_shot, message } = read.map_err(|error| RunError::from_load(child, error))?;
        if !is_one_shot {
            return Err(RunError::not_resumable(child, "it is no one-shot child"));
        }
        let Some(message) = message else { return Err(RunError::NotStarted(child.clone())) };
        Ok(Self::new(services, None, Delegated { child: child.clone(), message, existing: true }, by))
    }

    /// Makes it one that a turn waits for.
    pub(crate) fn waited_for_by(mut self, turn: Option<&Arc<TurnCore>>) -> Self {
        self.turn = turn.map(Arc::downgrade);
        self
    }

    /// Returns the child.
    pub fn id(&self) -> &SessionId {
        &self.child
    }

    /// Returns the message that the child serves.
    pub fn message(&self) -> &MessageId {
        &self.message
    }

    /// Waits until the child has ended with nothing left to do, and returns how its work went. What it returns is durable, and the same whenever it is asked.
    ///
    /// A child that waits for children of its own has not ended. While the turn goes on that started the run, its slot is given back meanwhile, and the wait is over when it is
    /// cancelled.
    ///
    /// # Errors
    /// [`RunError::NotFound`] or [`RunError::NotResumable`] if the child is gone, has work and cannot run, or its log is damaged, [`RunError::Cancelled`] if the turn
    /// that started the run is cancelled, [`RunError::Draining`] if a shutdown has left the child with work, and [`RunError::Read`] if the store failed. The run goes
    /// on as far as it can, and may be asked again.
    ///
    /// # Cancel safety
    /// The run goes on.
    pub async fn result(&self) -> Result<OneShotResult, RunError> {
        let Some(turn) = self.own_turn() else { return self.told().await };
        let aside = turn.step_aside();
        let told = tokio::select! {
            told = self.told() => told,
            () = turn.token().cancelled() => Err(RunError::Cancelled),
        };
        if let Err(RunError::Draining) = told {
            self.cut_off(&turn).await;
        }
        aside.end().await;
        told
    }

    /// Ends the run: cancels the child and everything that is live below it here, and waits until it has ended. Where it has ended already nothing is done.
    ///
    /// The child goes first, then what it has started, each from above: its turn ends as aborted, and what waits for a turn in it is taken back. A child that has
    /// completed its message stays completed. In the turn that started the run the turn slot is given back meanwhile. A child that waits for its first slot gets it, and may
    /// begin, before it is ended. A child that another process has live is asked as [`Host::cancel`](crate::Host::cancel) asks; what is live below it there is waited for.
    ///
    /// # Errors
    /// [`DisposeError::Cancel`] if a session could not be cancelled (the others are, as far as they can be), [`DisposeError::TimedOut`] if the child has not ended within
    /// [`Config::ask_deadline`](crate::Config::ask_deadline), [`DisposeError::Draining`] during a shutdown, and [`DisposeError::Read`] if the store failed.
    /// The result has errors of its own and is none the worse.
    ///
    /// # Cancel safety
    /// What was cancelled stays so; the same call again goes on.
    pub async fn dispose(&self) -> Result<(), DisposeError> {
        let Some(turn) = self.own_turn() else { return self.end().await };
        let aside = turn.step_aside();
        let done = self.end().await;
        if let Err(DisposeError::Draining) = done {
            self.cut_off(&turn).await;
        }
        aside.end().await;
        done
    }

    /// Returns the turn that started it, while that goes on.
    fn own_turn(&self) -> Option<Arc<TurnCore>> {
        self.turn.as_ref().and_then(Weak::upgrade).filter(|turn| !turn.has_ended())
    }

    /// Waits until a turn is cancelled or has ended: the shutdown that cut the child off is about to cut off the turn, too, which is served again then. An error
    /// that it ended with before would be final.
    async fn cut_off(&self, turn: &TurnCore) {
        while !turn.has_ended() && !turn.token().is_cancelled() {
            tokio::select! {
                () = turn.token().cancelled() => {}
                // The end of a turn tells nobody.
                () = sleep(self.services.config.poll_interval) => {}
            }
        }
    }

    /// Waits for the child and judges what it has left.
    pub(crate) async fn told(&self) -> Result<OneShotResult, RunError> {
        let mut patience = Patience::default();
        loop {
            let services = self.services.newest();
            gone(&services, &self.child).await;
            race_point!("run-gone");
            let (child, message) = (self.child.clone(), self.message.clone());
            let look = services.readers.read(move |reader| Look::read(reader, &child, &message)).await;
            let look = look.map_err(|error| RunError::from_load(&self.child, error))?;
            if let Some(result) = look.result(&self.child)? {
                return Ok(result);
            }
            if services.is_draining() {
                if !succeeded(&services).await {
                    return Err(RunError::Draining);
                }
            } else if look.holder.is_some_and(|holder| holder != *services.store.owner()) {
                // Nothing here is told when another process is done with it.
                sleep(services.config.poll_interval).await;
            } else if is_closed(&services, &self.child).await {
                return Err(RunError::Closed(self.child.clone()));
            } else if patience.tries(&self.child, &look.head) {
                services.wake(&self.child, look.parent.as_ref());
            } else {
                return Err(RunError::not_resumable(&self.child, "it has work and does not get on"));
            }
        }
    }

    /// Waits for the answer that a turn goes on with.
    pub(crate) async fn answer(&self) -> Result<String, TurnError> {
        match self.told().await {
            // The child was cut off; whoever waits for it is about to be, too.
            Err(RunError::Draining) => std::future::pending().await,
            told => told?.into_answer(&self.child),
        }
    }

    /// Cancels until the child is gone.
    async fn end(&self) -> Result<(), DisposeError> {
        // Heard from before the first cancel on, so that nothing begins in between.
        let mut news = self.services.occurrences.subscribe();
        let mut until = Instant::now() + self.services.config.ask_deadline;
        loop {
            race_point!("before-dispose");
            let services = self.services.newest();
            if services.is_draining() {
                if !succeeded(&services).await {
                    return Err(DisposeError::Draining);
                }
                continue;
            }
            if self.is_starting(&services) {
                // However long it waits for a slot: others have it until then.
                until = Instant::now() + services.config.ask_deadline;
            } else {
                self.cancel_all(&services, until).await?;
                race_point!("run-cancelled");
                if self.is_over(&services).await? {
                    return Ok(());
                }
                if Instant::now() >= until && !self.is_starting(&services) {
                    return Err(DisposeError::TimedOut(self.child.clone()));
                }
            }
            let resident = services.live.is_resident(&self.child);
            tokio::select! {
                biased;
                () = begins(&mut news, &self.child) => {}
                () = gone(&services, &self.child), if resident => {}
                () = sleep(services.config.poll_interval) => {}
            }
        }
    }

    /// Cancels the child, and then what is live below it, one level after the other. All are tried; the first failure is told.
    async fn cancel_all(&self, services: &Arc<Services>, until: Instant) -> Result<(), DisposeError> {
        let mut told = self.cancel_one(services, &self.child, until).await;
        for level in live_below(services, &self.child).chunk_by(|(one, _), (next, _)| one == next) {
            let done = join_all(level.iter().map(|(_, session)| self.cancel_one(services, session, until))).await;
            told = done.into_iter().fold(told, Result::and);
        }
        told
    }

    async fn cancel_one(&self, services: &Services, session: &SessionId, until: Instant) -> Result<(), DisposeError> {
        let how = Cancel { keep_inbox: false, cause: self.by, patience: until.saturating_duration_since(Instant::now()) };
        match cancel(|| self.services.newest(), session, how).await {
            // Where a generation is over the next round asks the next one.
            Ok(_) | Err(ControlError::Draining) => Ok(()),
            Err(ControlError::TimedOut(_)) if *session == self.child && self.is_starting(services) => Ok(()),
            // Whoever stands below counts only as long as it keeps the child from its end.
            Err(ControlError::TimedOut(_) | ControlError::NotFound(_) | ControlError::NotResumable { .. }) if *session != self.child => Ok(()),
            Err(cause) => Err(DisposeError::Cancel { session: session.clone(), cause }),
        }
    }

    /// Tells whether the child is on its way to be live, perhaps for as long as it takes to get a turn slot.
    fn is_starting(&self, services: &Services) -> bool {
        services.live.get(&self.child).is_none() && services.live.is_resident(&self.child)
    }

    /// Tells whether nobody has the child live and its message has come to its end.
    async fn is_over(&self, services: &Services) -> Result<bool, DisposeError> {
        if services.live.is_resident(&self.child) {
            return Ok(false);
        }
        let (child, message) = (self.child.clone(), self.message.clone());
        let look = services.readers.read(move |reader| Look::read(reader, &child, &message)).await;
        let look = look.map_err(|error| DisposeError::from_load(&self.child, error))?;
        Ok(look.holder.is_none() && !look.head.is_unfinished() && look.head.pending_turns == 0)
    }
}

impl OneShotResult {
    fn into_answer(self, child: &SessionId) -> Result<String, TurnError> {
        match self.outcome {
            TurnEnd::Completed | TurnEnd::MaxTokens => Ok(self.text),
            TurnEnd::Error { code, message } => Err(TurnError::new(code, format!("child {child} ended error: {message}"))),
            other => Err(TurnError::new(other.as_str().to_uppercase(), format!("child {child} ended {}", other.as_str()))),
        }
    }
}

/// Waits until a session is neither starting nor live nor closing here.
async fn gone(services: &Services, session: &SessionId) {
    let (reply, gone) = oneshot::channel();
    if services.registry.send_message(RegistryMessage::WhenGone { session: session.clone(), reply }).is_ok() {
        drop(gone.await);
    }
}

/// Waits until a turn of a session begins.
async fn begins(news: &mut broadcast::Receiver<Occurrence>, session: &SessionId) {
    loop {
        match news.recv().await {
            Ok(Occurrence::TurnStarted { session: of, .. }) if of == *session => return,
            Ok(_) => {}
            // It may have been among what was missed.
            Err(broadcast::error::RecvError::Lagged(_)) => return,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Waits for the generation after one that takes no new work. Returns false if there is none.
async fn succeeded(services: &Services) -> bool {
    let until = Instant::now() + services.config.start_deadline;
    while services.successor.get().is_none() {
        if services.is_ending() || Instant::now() >= until {
            return false;
        }
        sleep(services.config.poll_interval).await;
    }
    true
}

/// Returns who is live below a session, by depth. Whoever is owned has a live parent, so that live ones alone lead there.
fn live_below(services: &Services, top: &SessionId) -> Vec<(u32, SessionId)> {
    let live = services.live.all();
    let parents: HashMap<&SessionId, &SessionId> =
        live.iter().filter(|view| view.header.is_subagent()).filter_map(|view| Some((view.id(), view.header.parent.as_ref()?))).collect();
    let is_below = |session: &SessionId| {
        let climb = std::iter::successors(parents.get(session).copied(), |above| parents.get(*above).copied());
        // No deeper than there are, should their parents run in a circle.
        climb.take(live.len()).any(|above| above == top)
    };
    let mut below: Vec<_> = live.iter().filter(|view| is_below(view.id())).map(|view| (view.header.depth, view.id().clone())).collect();
    below.sort();
    below
}
