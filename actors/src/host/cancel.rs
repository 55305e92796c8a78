//! Cancelling a session, wherever it is.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use greenroom_session::{
    event::Body,
    head::Head,
    id::{MessageId, OwnerId, SessionId},
    message::MessageKind,
    requests::{self, under_way},
    store::{LoadError, Log, Reader, Traced},
};
use tokio::{sync::oneshot, time::Instant};

use super::Host;
use crate::{
    activation::{ActivationMessage, Call},
    control,
    error::ControlError,
    live::{LiveView, Player},
    published::PLAYED_BY_HOST,
    race::race_point,
    services::Services,
    visit::visit,
};

/// How a session is cancelled: see [`Host::cancel`].
///
/// ```
/// use greenroom_actors::host::{Cancel, Cause};
/// let stop = Cancel { keep_inbox: true, ..Cancel::default() };
/// assert_eq!((stop.cause, Cancel::default().keep_inbox), (Cause::User, false));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancel {
    /// Ends the turn under way only, and leaves what waits where it is.
    pub keep_inbox: bool,
    /// Recorded with what is done.
    pub cause: Cause,
    /// How long the answer is waited for.
    pub patience: Duration,
}

impl Default for Cancel {
    fn default() -> Self {
        Self { keep_inbox: false, cause: Cause::User, patience: Duration::from_secs(60) }
    }
}

/// On whose behalf a session is cancelled.
///
/// ```
/// use greenroom_actors::host::Cause;
/// assert_eq!(Cause::Host.as_str(), "host");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The owner of the store.
    User,
    /// The session's parent.
    Parent,
    /// The program that embeds the runtime.
    Host,
}

impl Cause {
    /// Returns the word that is recorded.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Parent => "parent",
            Self::Host => "host",
        }
    }
}

/// What a cancel has hit. All of it is durable.
///
/// ```
/// use greenroom_actors::host::{Cancel, Cancelled, NewRoot};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |_: greenroom_actors::Turn| async { Ok(greenroom_actors::TurnEnd::Completed) });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let root = host.root(NewRoot::new("echo", "a desk")).await?;
/// // Nothing goes on and nothing waits.
/// assert_eq!(host.cancel(root.id(), Cancel::default()).await?, Cancelled::default());
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Cancelled {
    /// The turn that was ended.
    pub turn: Option<u64>,
    /// The messages that were taken back, in the order of the inbox.
    pub withdrawn: Vec<MessageId>,
}

impl Host {
    /// Cancels what a session does: takes back every message that waits for a turn of its own, unless [`Cancel::keep_inbox`], and ends the turn that is under
    /// way, as `aborted`, which is final. Notes stay. What is sent afterwards is served as ever. Durable on return.
    ///
    /// Where nothing goes on and nothing waits nothing is written. The first cause of a turn's end is the one that is recorded, and a turn that is being
    /// cancelled is not made one that is served again by a shutdown. With `keep_inbox` only the turn is ended that was under way at the call, never a later one.
    ///
    /// Here, and where nobody holds the session, all this is one step: no message that waits gets a turn in between. A session that another live process
    /// holds is asked for each message and for the turn by requests of the user, in this order; what has its turn before it is asked for is ended with it.
    /// Costs the length of the inbox, unless the queue is kept.
    ///
    /// # Errors
    /// As [`Host::interrupt`], except that it is no error if no turn is under way. What was asked may be done all the same.
    ///
    /// # Cancel safety
    /// What was asked may be done all the same.
    pub async fn cancel(&self, session: &SessionId, how: Cancel) -> Result<Cancelled, ControlError> {
        cancel(|| self.services(), session, how).await
    }
}

/// Cancels a session for whoever may; `services` are those of the newest generation.
pub(crate) async fn cancel(services: impl Fn() -> Arc<Services>, session: &SessionId, cancel: Cancel) -> Result<Cancelled, ControlError> {
    let mut calling = Calling { session, cancel, until: Instant::now() + cancel.patience, done: Cancelled::default() };
    loop {
        race_point!("before-call");
        let services = services();
        if services.is_draining() {
            return Err(ControlError::Draining);
        }
        let answered = match services.live.get(session) {
            Some(view) => calling.live(&view).await?,
            None if services.live.is_resident(session) => false,
            None => calling.stored(&services).await?,
        };
        if answered {
            return Ok(calling.done);
        }
        let now = Instant::now();
        if now >= calling.until {
            return Err(ControlError::TimedOut(session.clone()));
        }
        tokio::time::sleep(services.config.poll_interval.min(calling.until - now)).await;
    }
}

/// A cancel on its way.
struct Calling<'a> {
    session: &'a SessionId,
    cancel: Cancel,
    until: Instant,
    /// What has been done so far: an epoch may end in the middle of its answer.
    done: Cancelled,
}

impl Calling<'_> {
    fn by(&self) -> &'static str {
        self.cancel.cause.as_str()
    }

    /// Asks the Activation. Returns false if it ended before it had answered.
    async fn live(&mut self, view: &LiveView) -> Result<bool, ControlError> {
        let Player::Agent(actor) = &view.player else {
            return Err(ControlError::NotResumable { session: self.session.clone(), reason: PLAYED_BY_HOST.into(), code: "NOT_RESUMABLE" });
        };
        // With the queue kept the turn is named here and now: by the time that this is heard another one may run.
        let turn = if self.cancel.keep_inbox { view.log.look(|fold| under_way(fold.head())) } else { None };
        if self.cancel.keep_inbox && turn.is_none() {
            return Ok(true);
        }
        race_point!("call-live");
        let (reply, struck) = oneshot::channel();
        let call = Call { turn, keep_inbox: self.cancel.keep_inbox, by: self.by(), reply };
        if actor.send_message(ActivationMessage::Cancel(call)).is_err() {
            return Ok(false);
        }
        let Some(struck) = self.in_time(struck).await? else { return Ok(false) };
        let struck = struck?;
        self.done.withdrawn.extend(struck.withdrawn);
        let Some((turn, end)) = struck.turn else { return Ok(true) };
        if let Some(end) = end
            && !matches!(self.in_time(end).await?, Some(Ok(_)))
        {
            return Ok(false);
        }
        self.done.turn = Some(turn);
        Ok(true)
    }

    /// Waits for an answer; `None` if whoever should give it has ended.
    async fn in_time<T>(&self, answer: oneshot::Receiver<T>) -> Result<Option<T>, ControlError> {
        let answer = tokio::time::timeout_at(self.until, answer).await;
        answer.map(Result::ok).map_err(|_| ControlError::TimedOut(self.session.clone()))
    }

    /// Cancels a session that is not live here. Returns false if it has to be looked at again.
    async fn stored(&mut self, services: &Arc<Services>) -> Result<bool, ControlError> {
        let look = self.look(services).await?;
        let turn = under_way(&look.head);
        if turn.is_none() && look.waiting.is_empty() {
            return Ok(true);
        }
        race_point!("call-stored");
        match &look.holder {
            None => self.visit(services, turn).await,
            // A visit by somebody else here, or an epoch that failed and is looked at again.
            Some(holder) if holder == services.store.owner() => Ok(false),
            Some(_) => self.elsewhere(services, look.waiting, turn).await,
        }
    }

    async fn look(&self, services: &Services) -> Result<Look, ControlError> {
        let (id, keep_inbox) = (self.session.clone(), self.cancel.keep_inbox);
        let look = services.readers.read(move |reader| Look::read(reader, &id, keep_inbox)).await;
        look.map_err(|error| ControlError::from_load(self.session, error))
    }

    async fn visit(&mut self, services: &Arc<Services>, turn: Option<u64>) -> Result<bool, ControlError> {
        let (keep_inbox, by) = (self.cancel.keep_inbox, self.by());
        let mut hit = Cancelled::default();
        let mut ask = |log: &Log| {
            // With the queue kept another turn than the one that was seen is not meant.
            let named = turn.filter(|_| keep_inbox);
            let answer = requests::cancel(log.fold.head(), named, log.fold.pending().filter(|_| !keep_inbox), by);
            hit.turn = under_way(log.fold.head()).filter(|found| named.is_none_or(|named| named == *found));
            let withdrawn =
                answer.bodies.iter().filter_map(|body| if let Body::MessageWithdrawn { message, .. } = body { Some(message.clone()) } else { None });
            hit.withdrawn = withdrawn.collect();
            answer
        };
        let answered = visit(services, self.session, Some(&mut ask)).await?.is_some();
        if answered {
            self.done.turn = hit.turn.or(self.done.turn);
            self.done.withdrawn.extend(hit.withdrawn);
        }
        Ok(answered)
    }

    /// Asks another live process, one by one.
    async fn elsewhere(&mut self, services: &Arc<Services>, waiting: Vec<MessageId>, turn: Option<u64>) -> Result<bool, ControlError> {
        let (session, by, left) = (self.session, self.by(), self.until.saturating_duration_since(Instant::now()));
        let taken = join_all(waiting.iter().map(|message| control::withdraw(services, session, message, by, left))).await;
        for (message, taken) in waiting.iter().zip(taken) {
            match taken {
                Ok(()) => self.done.withdrawn.push(message.clone()),
                // Its turn is the one that is ended now, or is over.
                Err(ControlError::AlreadyStarted(_) | ControlError::NotPending(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if turn.is_some() || !self.cancel.keep_inbox {
            let left = self.until.saturating_duration_since(Instant::now());
            match control::interrupt(services, session, by, left).await {
                Ok(turn) => self.done.turn = Some(turn),
                Err(ControlError::NotRunning(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// A look at a session that is not live here.
struct Look {
    head: Head,
    holder: Option<OwnerId>,
    /// What waits for a turn of its own, in order; nothing where the queue is kept.
    waiting: Vec<MessageId>,
}

impl Look {
    fn read(reader: &mut dyn Reader, session: &SessionId, keep_inbox: bool) -> Result<Self, LoadError> {
        let header = reader.header(session)?.ok_or_else(|| LoadError::NotFound(session.clone()))?;
        let traced = Traced { id: session.clone(), created_at: header.created_at, header: Ok(header) };
        let described = reader.describe(std::slice::from_ref(&traced), false)?.pop();
        let description = described.unwrap_or_else(|| Err(LoadError::NotFound(session.clone())))?;
        let mut waiting = if keep_inbox { Vec::new() } else { reader.inbox(session, usize::MAX)? };
        waiting.retain(|record| record.message.kind == MessageKind::Turn);
        let waiting = waiting.into_iter().map(|record| record.message.id.clone()).collect();
        Ok(Self { head: description.head, holder: description.holder, waiting })
    }
}
