//! The host: the authority of whoever owns the store, and the handles that keep roots.

mod cancel;
mod deliver;
mod drain;
mod idle;
mod one_shot;
mod provider;
mod publish;
mod read;
mod root;
mod setup;
mod work;

use std::{fmt, sync::Arc, time::Duration};

use greenroom_session::{
    header::NewSession,
    id::{MessageId, SessionId},
    message::{Message, Source},
    store::{Create, Op, Refused},
};
use tokio::sync::{broadcast, oneshot, watch};

use root::Pin;

use crate::{
    control,
    error::{ActivateError, ControlError, DeliverError, StartError, WriteError},
    live::LiveView,
    occurrence::Occurrence,
    registry::RegistryMessage,
    services::Services,
};

pub(crate) use cancel::cancel;
pub use cancel::{Cancel, Cancelled, Cause};
pub(crate) use drain::drain;
pub use root::{NewRoot, RootError, RootHandle};

/// The authority of whoever owns the store.
///
/// A behaviour gets no way to it from its turn; whoever hands it one has made that behaviour the host.
///
/// ```
/// use greenroom_actors::{Host, host::NewRoot};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let owner: Host = system.host();
/// let root = owner.root(NewRoot::new("echo", "a desk")).await?;
/// // Durable on return, whether the session is live or not.
/// owner.send(root.id(), "hello", None).await?;
/// assert!(owner.quiescent(root.id()).await?.is_empty()); // nothing is stuck
/// assert_eq!(owner.load(root.id()).await?.fold.head().turns, 1);
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Host {
    current: watch::Receiver<Arc<Services>>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl Host {
    pub(crate) fn new(current: watch::Receiver<Arc<Services>>) -> Self {
        Self { current }
    }

    pub(crate) fn services(&self) -> Arc<Services> {
        self.current.borrow().clone()
    }

    /// Creates a root if it does not exist, and keeps it live until the handle is dropped. The root is durable on return.
    ///
    /// # Errors
    /// [`RootError::Start`] if its behaviour is not registered, its label breaks the rule for labels, its model route names nothing, a session of its id was created differently, or the
    /// store failed; [`RootError::Activate`] if it exists and could not be brought up.
    ///
    /// # Cancel safety
    /// The root may exist.
    pub async fn root(&self, new: NewRoot) -> Result<RootHandle, RootError> {
        let services = self.services();
        if !services.config.behaviors.contains_key(&new.opened.agent) {
            return Err(RootError::Start(StartError::AgentUnknown(new.opened.agent)));
        }
        greenroom_session::text::check_label(&new.opened.label).map_err(|error| StartError::Descriptor(error.into()))?;
        if let Some(model) = &new.opened.model {
            model.check().map_err(StartError::Descriptor)?;
        }
        let id = new.id.unwrap_or_else(|| SessionId::from_uuid(services.config.ids.uuid()));
        let mut session = NewSession::root(id.clone());
        session.cwd = new.cwd;
        let create = Create::opened(session, new.opened, services.now());
        let [pending] = services.journal.submit([Op::Create(create)]);
        match pending.done_within(services.config.ask_deadline).await {
            Ok(_) => self.keep(&id).await,
            Err(WriteError::Refused(Refused::Exists(id))) => Err(RootError::Exists(id)),
            Err(error) => Err(StartError::from(error).into()),
        }
    }

    /// Brings a root up and keeps it live until the handle is dropped.
    ///
    /// # Errors
    /// [`RootError::NotARoot`] if it has a parent, [`RootError::Activate`] if there is no such session, its behaviour is not registered, another live process holds it, or its log cannot be
    /// continued.
    ///
    /// # Cancel safety
    /// The root may have been brought up; nothing keeps it then.
    pub async fn resume(&self, id: &SessionId) -> Result<RootHandle, RootError> {
        let wanted = id.clone();
        let header = self.services().readers.read(move |reader| reader.header(&wanted)).await.map_err(|error| ActivateError::from_load(id, error))?;
        if header.is_some_and(|header| header.parent.is_some()) {
            return Err(RootError::NotARoot(id.clone()));
        }
        self.keep(id).await
    }

    pub(crate) async fn keep(&self, id: &SessionId) -> Result<RootHandle, RootError> {
        let pin = Pin::new(self, id);
        let view = ensure(&self.services(), id).await?;
        Ok(RootHandle { pin, view: std::sync::Mutex::new(view) })
    }

    /// Sends any session the message of its next turn, as the user. Durable on return; served by whoever runs the session, now or later.
    ///
    /// With an id of the caller's choice the same call again is the same acceptance. A runtime actor that dies meanwhile is survived.
    ///
    /// # Errors
    /// [`DeliverError::NotResumable`] if there is no such session, it takes no messages (a one-shot child, a fork, what cannot be read or continued), or its host has
    /// published it here, [`DeliverError::Busy`] if its inbox is full, [`DeliverError::Message`] for a text over
    /// the limit, [`DeliverError::Conflict`] if the id was used with another text, [`DeliverError::Draining`] during a shutdown, and
    /// [`DeliverError::Write`] if the store failed: only with the code `INDETERMINATE` may the message have been accepted all the same.
    ///
    /// # Cancel safety
    /// The message may have been accepted.
    pub async fn send(&self, session: &SessionId, text: impl Into<String>, id: Option<MessageId>) -> Result<MessageId, DeliverError> {
        self.deliver(session, id, |id, now| Message::turn(id, text, Source::User, now)).await
    }

    /// Ends the turn that is under way in a session, as `aborted`, which is final; its queue goes on. Returns the number of the turn.
    ///
    /// A session that another live process holds is asked by a durable request, and its answer awaited for as long as `patience`. One that nobody holds, whose
    /// turn a crash or a shutdown cut off, is answered here: the message of that turn is not served again. Only the turn that was under way is
    /// ended, never a later one. Durable on return.
    ///
    /// # Errors
    /// [`ControlError::NotFound`] if there is no such session, [`ControlError::NotRunning`] if no turn is under way or it came to its end by
    /// itself, [`ControlError::TimedOut`] if there was no answer in time (what was asked of another process stays asked; the same call again waits for the answer),
    /// [`ControlError::NotResumable`] if its log is damaged or of a later version, [`ControlError::Draining`] during a shutdown, and [`ControlError::Write`] or
    /// [`ControlError::Read`] if the store failed.
    ///
    /// # Cancel safety
    /// What was asked may be done all the same.
    pub async fn interrupt(&self, session: &SessionId, patience: Duration) -> Result<u64, ControlError> {
        control::interrupt(&self.services(), session, "user", patience).await
    }

    /// Takes a message back that has no turn yet: it leaves the inbox with an event that says so. What was taken back before stays so. Durable on return.
    ///
    /// Whoever holds the session answers, as for [`Host::interrupt`]. Only messages that become a turn of their own can be taken back, notes cannot.
    ///
    /// # Errors
    /// [`ControlError::AlreadyStarted`] if the message has a turn, whatever became of it, [`ControlError::NotPending`] if no such message
    /// waits for a turn of its own, and as [`Host::interrupt`].
    ///
    /// # Cancel safety
    /// What was asked may be done all the same.
    pub async fn withdraw(&self, session: &SessionId, message: &MessageId, patience: Duration) -> Result<(), ControlError> {
        control::withdraw(&self.services(), session, message, "user", patience).await
    }

    /// Subscribes to what happens in live sessions. A slow subscriber loses the oldest.
    pub fn subscribe(&self) -> broadcast::Receiver<Occurrence> {
        self.services().occurrences.subscribe()
    }

    /// Returns how many sessions are live here.
    pub fn live_count(&self) -> usize {
        self.services().live.len()
    }
}

async fn ensure(services: &Services, id: &SessionId) -> Result<Arc<LiveView>, ActivateError> {
    let (reply, view) = oneshot::channel();
    let ended = || ActivateError::Write(WriteError::Ended);
    services.registry.send_message(RegistryMessage::Ensure { session: id.clone(), reply }).map_err(|_| ended())?;
    // Longer than the start that it waits for.
    let time = services.config.start_deadline + services.config.ask_deadline;
    match tokio::time::timeout(time, view).await {
        Ok(view) => view.unwrap_or_else(|_| Err(ended())),
        Err(_) => Err(ActivateError::Deadline(id.clone())),
    }
}
