//! What the actors of one generation share.

use std::{
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
    query::QueryMessage,
    race::race_point,
    readers::Readers,
    registry::RegistryMessage,
    setup::Setups,
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

    /// Accepts a message: durable on return, and its receiver woken if `wake`. `live` is the receiver as the sender has just seen it.
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
        let wake = message.wake;
        let pending = self.offer(session, message);
        let mut waker = Waker { services: self, session, live, parent, armed: wake };
        let done = pending.done_within(self.config.ask_deadline).await;
        race_point!("accepted-before-wake");
        // A duplicate's first acceptance may have been cut off before its wake, and what is not known may be there: one wake too many costs a look.
        waker.armed = wake && !matches!(done, Err(WriteError::Refused(_) | WriteError::NotCommitted(_)));
        drop(waker);
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

/// Wakes on drop, so that a sender that is dropped between its commit and the wake leaves nobody asleep.
struct Waker<'a> {
    services: &'a Arc<Services>,
    session: &'a SessionId,
    live: Option<&'a LiveView>,
    parent: Option<&'a SessionId>,
    armed: bool,
}

impl Drop for Waker<'_> {
    fn drop(&mut self) {
        // What was live may have ended since; then the table or the Registry knows better.
        if self.armed && !self.live.is_some_and(LiveView::wake) {
            self.services.wake(self.session, self.parent);
        }
    }
}
