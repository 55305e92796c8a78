//! What the actors of one generation share.

use std::{
    borrow::Cow,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use greenroom_session::{
    id::{MessageId, SessionId},
    message::Message,
    store::{Accept, Done, Op, Store},
};
use ractor::ActorRef;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;

use crate::{
    catalog::CatalogMessage,
    closed::Closed,
    config::Config,
    error::WriteError,
    journal::{JournalHandle, Pending},
    live::{LiveTable, LiveView},
    occurrence::Occurrence,
    pins::{Pins, Played},
    provider::Providers,
    query::QueryMessage,
    race::race_point,
    readers::Readers,
    registry::RegistryMessage,
    setup::Setups,
    waking::Waking,
};

/// What the actors of one generation share. A generation ends when one of its actors dies unasked.
pub(crate) struct Services {
    pub(crate) config: Arc<Config>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) journal: JournalHandle,
    pub(crate) registry: ActorRef<RegistryMessage>,
    pub(crate) query: Option<ActorRef<QueryMessage>>,
    pub(crate) catalog: Option<ActorRef<CatalogMessage>>,
    pub(crate) readers: Readers,
    pub(crate) live: LiveTable,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) starting: Arc<Semaphore>,
    pub(crate) occurrences: broadcast::Sender<Occurrence>,
    pub(crate) draining: AtomicBool,
    /// The whole system is shutting down: no generation follows.
    pub(crate) ending: AtomicBool,
    pub(crate) pins: Pins,
    pub(crate) played: Played,
    pub(crate) setups: Setups,
    pub(crate) providers: Providers,
    /// Below which sessions nothing new begins.
    pub(crate) closed: Closed,
    /// Cancelled when this generation takes no new work, for starts that wait for others.
    pub(crate) closing: CancellationToken,
    /// The generation after this one, and who was to be woken before it began.
    pub(crate) successor: OnceLock<Arc<Services>>,
    pub(crate) missed: Mutex<Vec<(SessionId, Option<SessionId>)>>,
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Services {
    /// Returns the time.
    pub(crate) fn now(&self) -> u64 {
        self.config.clock.now_ms()
    }

    /// Makes a message id.
    pub(crate) fn message_id(&self) -> MessageId {
        MessageId::from_uuid(self.config.ids.uuid())
    }

    /// Tells subscribers, if there are any.
    pub(crate) fn tell(&self, occurrence: impl FnOnce() -> Occurrence) {
        if self.occurrences.receiver_count() > 0 {
            drop(self.occurrences.send(occurrence()));
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Takes no new work from here on.
    pub(crate) fn begin_draining(&self) {
        self.draining.store(true, Ordering::Release);
        self.closing.cancel();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Returns the newest generation that has begun.
    pub(crate) fn newest(self: &Arc<Self>) -> Arc<Self> {
        let mut services = self;
        while let Some(next) = services.successor.get() {
            services = next;
        }
        services.clone()
    }

    /// Accepts a message: durable on return, and its receiver woken if the message wakes. `live` is the receiver as the sender has just seen it.
    ///
    /// # Cancel safety
    /// The acceptance goes on and the receiver is woken all the same.
    pub(crate) async fn accept(
        self: &Arc<Self>,
        session: &SessionId,
        live: Option<&LiveView>,
        parent: Option<&SessionId>,
        message: Arc<Message>,
    ) -> Result<Done, WriteError> {
        self.accept_and(session, live, parent, message, || ()).await
    }

    /// Accepts a message as [`Services::accept`] does, and does something between its acceptance and the wake.
    ///
    /// # Cancel safety
    /// As [`Services::accept`]; what was to be done is not done then.
    pub(crate) async fn accept_and(
        self: &Arc<Self>,
        session: &SessionId,
        live: Option<&LiveView>,
        parent: Option<&SessionId>,
        message: Arc<Message>,
        accepted: impl FnOnce(),
    ) -> Result<Done, WriteError> {
        let wakes = message.wake;
        let pending = self.offer(session, message);
        let mut waking = Waking::new(self, Cow::Borrowed(session), parent, pending).live(live).only_if(wakes);
        let done = waking.done_within(self.config.ask_deadline).await;
        race_point!("accepted-before-wake");
        if done.is_ok() {
            accepted();
        }
        drop(waking);
        done
    }

    /// Accepts a message as [`Services::accept`] does, and wakes nobody.
    ///
    /// # Cancel safety
    /// The acceptance goes on.
    pub(crate) async fn leave_message(&self, session: &SessionId, message: Arc<Message>) -> Result<Done, WriteError> {
        self.offer(session, message).done_within(self.config.ask_deadline).await
    }

    fn offer(&self, session: &SessionId, message: Arc<Message>) -> Pending {
        // A notice is never refused: it is the last word of a session, and there is one for a turn.
        let note_limit = if message.source.kind() == "subagent-settled" { u64::MAX } else { self.config.note_limit };
        let accept = Accept { session: session.clone(), message, inbox_limit: self.config.inbox_limit, note_limit };
        let [pending] = self.journal.submit([Op::Accept(accept)]);
        pending
    }

    /// Has a session look into its inbox, starting it if need be.
    pub(crate) fn wake(&self, session: &SessionId, parent: Option<&SessionId>) {
        if self.live.get(session).is_some_and(|view| view.wake()) {
            return;
        }
        if self.registry.send_message(RegistryMessage::Wake { session: session.clone(), parent: parent.cloned() }).is_err() {
            // The generation is over. The next one wakes whom this one missed.
            self.missed.lock().unwrap_or_else(PoisonError::into_inner).push((session.clone(), parent.cloned()));
            self.pass_on();
        }
    }

    /// Has the next generation, if it has begun, wake whom this one missed.
    pub(crate) fn pass_on(&self) {
        let Some(next) = self.successor.get() else { return };
        let missed = std::mem::take(&mut *self.missed.lock().unwrap_or_else(PoisonError::into_inner));
        for (session, parent) in missed {
            next.wake(&session, parent.as_ref());
        }
    }
}
