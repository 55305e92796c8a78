//! A one-shot run: a child that has one message to serve, its result, and its end before its time.
//!
//! The handle is no authority and keeps nobody live: the child runs as any session does, whoever holds its run. What the run is asked is answered by the
//! child's log, so that it may be asked again, by clones, and found again by another process.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{Arc, Weak},
};

use greenroom_session::{
    descriptor::Mode,
    event::{Body, EpochEnd, Event, TurnEnd},
    fold::Fold,
    head::Head,
    id::{MessageId, OwnerId, Seq, SessionId},
    listing::{Verdict, verdict},
    message::{MessageKind, text_of},
    store::{LoadError, Reader},
};
use tokio::{
    sync::{broadcast, oneshot},
    time::{Instant, sleep},
};

use crate::{
    behavior::TurnError,
    delegate::Delegated,
    error::{ControlError, DisposeError, RunError},
    host::{Cancel, Cause, cancel},
    occurrence::Occurrence,
    race::race_point,
    registry::RegistryMessage,
    services::Services,
    turn_core::{Aside, TurnCore},
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
        let read = services.readers.read(move |reader| prompt_of(reader, &id)).await;
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
    /// A child that waits for children of its own has not ended. In the turn that started the run the turn slot is given back meanwhile.
    ///
    /// # Errors
    /// [`RunError::NotFound`] or [`RunError::NotResumable`] if the child is gone, has work and cannot run, or its log is damaged, [`RunError::Draining`] if a shutdown
    /// has left it with work (in the turn that started the run only once that is cancelled, too), and [`RunError::Read`] if the store failed. The run goes on as far as it
    /// can, and may be asked again.
    ///
    /// # Cancel safety
    /// The run goes on.
    pub async fn result(&self) -> Result<OneShotResult, RunError> {
        let turn = self.own_turn();
        let aside = turn.as_deref().map(TurnCore::step_aside);
        let told = self.told().await;
        if let (Some(turn), Err(RunError::Draining)) = (&turn, &told) {
            // What cut the child off is about to cut this turn off, which is served again then; an error that it ended with first would be final.
            self.cut_off(turn).await;
        }
        go_on(aside).await;
        told
    }

    /// Ends the run: cancels the child and everything that is live below it, and waits until it has ended. Where it has ended already nothing is done.
    ///
    /// The child goes first, then what it has started, each from above: its turn ends as aborted, and what waits for a turn in it is taken back. A child that has
    /// completed its message stays completed. In the turn that started the run the turn slot is given back meanwhile; a child that waits for its first slot has
    /// that to wait for before its end.
    ///
    /// # Errors
    /// [`DisposeError::Cancel`] if a session could not be cancelled (the others are, as far as they can be), [`DisposeError::TimedOut`] if the child has not ended within
    /// [`Config::ask_deadline`](crate::Config::ask_deadline), [`DisposeError::Draining`] during a shutdown, and [`DisposeError::Read`] if the store failed.
    /// The result has errors of its own and is none the worse.
    ///
    /// # Cancel safety
    /// What was cancelled stays so; the same call again goes on.
    pub async fn dispose(&self) -> Result<(), DisposeError> {
        let turn = self.own_turn();
        let aside = turn.as_deref().map(TurnCore::step_aside);
        let done = self.end().await;
        go_on(aside).await;
        done
    }

    /// Returns the turn that started it, while that goes on.
    fn own_turn(&self) -> Option<Arc<TurnCore>> {
        self.turn.as_ref().and_then(Weak::upgrade).filter(|turn| !turn.has_ended())
    }

    /// Waits until a turn is cancelled or has ended.
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
            let waits_for_a_slot = services.live.get(&self.child).is_none() && services.live.is_resident(&self.child);
            if waits_for_a_slot {
                // However long that takes: it is somebody else's turn until then.
                until = Instant::now() + services.config.ask_deadline;
            } else {
                self.cancel_all(&services, until).await?;
                race_point!("run-cancelled");
                if self.is_over(&services).await? {
                    return Ok(());
                }
            }
            if Instant::now() >= until {
                return Err(DisposeError::TimedOut(self.child.clone()));
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

    /// Cancels the child and what is live below it, from above. All are tried; the first failure is told.
    async fn cancel_all(&self, services: &Arc<Services>, until: Instant) -> Result<(), DisposeError> {
        let mut told = Ok(());
        for session in std::iter::once(self.child.clone()).chain(live_below(services, &self.child)) {
            let how = Cancel { keep_inbox: false, cause: self.by, patience: until.saturating_duration_since(Instant::now()) };
            match cancel(|| self.services.newest(), &session, how).await {
                Ok(_) => {}
                // Looked at in the next round: a generation has ended, or somebody below was on the way in or out.
                Err(ControlError::Draining) => {}
                Err(ControlError::TimedOut(_) | ControlError::NotFound(_) | ControlError::NotResumable { .. }) if session != self.child => {}
                Err(cause) => told = told.and(Err(DisposeError::Cancel { session, cause })),
            }
        }
        told
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

/// Has a part of a turn that waited go on.
async fn go_on(aside: Option<Aside<'_>>) {
    if let Some(aside) = aside {
        aside.end().await;
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

/// Returns who is live below a session, each before its own children. Whoever is owned has a live parent, so that live ones alone lead there.
fn live_below(services: &Services, top: &SessionId) -> Vec<SessionId> {
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
    below.into_iter().map(|(_, session)| session).collect()
}

/// What a one-shot child was asked.
struct Asked {
    is_one_shot: bool,
    message: Option<MessageId>,
}

/// Finds the message that a one-shot child serves. It is the first that was accepted, so that the first turn serves it, unless it was taken back.
fn prompt_of(reader: &mut dyn Reader, child: &SessionId) -> Result<Asked, LoadError> {
    let inherited = reader.header(child)?.map_or(0, |header| header.seed_length);
    let mut served = None;
    let folded = reader.fold(child, &mut |event| {
        if let Body::TurnStart { message, .. } | Body::MessageWithdrawn { message, .. } = &event.body
            && event.seq >= inherited
            && served.is_none()
        {
            served = Some(message.clone());
        }
        ControlFlow::Continue(())
    })?;
    let fold = folded.ok_or_else(|| LoadError::NotFound(child.clone()))?;
    let message = served.or_else(|| fold.pending().find(|record| record.message.kind == MessageKind::Turn).map(|record| record.message.id.clone()));
    Ok(Asked { is_one_shot: is_one_shot(&fold), message })
}

fn is_one_shot(fold: &Fold) -> bool {
    matches!(verdict(fold), Verdict::Child { mode: Mode::OneShot, .. })
}

/// What the log of a one-shot child says of its run.
struct Look {
    head: Head,
    parent: Option<SessionId>,
    holder: Option<OwnerId>,
    outcome: Option<TurnEnd>,
    text: String,
}

impl Look {
    fn read(reader: &mut dyn Reader, child: &SessionId, message: &MessageId) -> Result<Self, LoadError> {
        let mut course = Course::default();
        let folded = reader.fold(child, &mut |event| {
            course.see(event, message);
            ControlFlow::Continue(())
        })?;
        let fold = folded.ok_or_else(|| LoadError::NotFound(child.clone()))?;
        let holder = reader.holder(child, fold.head())?;
        let said = match course.settled {
            // What it said when it lived again is no part of the run.
            Some(seq) if seq + 1 < fold.head().next_seq => {
                let mut then = Fold::new(fold.header().clone());
                for event in reader.events(child, 0, usize::try_from(seq).unwrap_or(usize::MAX))? {
                    then.apply_event(&event).map_err(|source| LoadError::Fold { session: child.clone(), source })?;
                }
                then.last_said().cloned()
            }
            _ => fold.last_said().cloned(),
        };
        let text = said.map(|message| text_of(&message.content)).unwrap_or_default();
        Ok(Self { head: fold.head().clone(), parent: fold.header().parent.clone(), holder, outcome: course.outcome, text })
    }

    /// Returns the result; `None` if it is not there yet.
    fn result(&self, child: &SessionId) -> Result<Option<OneShotResult>, RunError> {
        if self.head.has_work() {
            return Ok(None);
        }
        match &self.outcome {
            Some(outcome) => Ok(Some(OneShotResult { outcome: outcome.clone(), text: self.text.clone() })),
            None if self.head.held > 0 => {
                Err(RunError::NotResumable { child: child.clone(), reason: "it was imported and not yet activated".into(), code: "NOT_ACTIVATED" })
            }
            None => Err(RunError::NotStarted(child.clone())),
        }
    }
}

/// How the work on one message went.
#[derive(Default)]
struct Course {
    turn: Option<u64>,
    outcome: Option<TurnEnd>,
    /// Where the child settled for the first time after that.
    settled: Option<Seq>,
}

impl Course {
    fn see(&mut self, event: &Event, prompt: &MessageId) {
        match &event.body {
            Body::TurnStart { turn, message, .. } if message == prompt => self.turn = Some(*turn),
            Body::TurnEnd { turn, reason } if self.turn == Some(*turn) && reason.is_final() => self.outcome = Some(reason.clone()),
            Body::MessageWithdrawn { message, by } if message == prompt => self.outcome = Some(TurnEnd::Aborted { cause: by.clone() }),
            Body::ActivationEnd { reason: EpochEnd::Settled, .. } if self.outcome.is_some() && self.settled.is_none() => self.settled = Some(event.seq),
            _ => {}
        }
    }
}
