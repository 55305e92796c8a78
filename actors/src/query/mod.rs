//! The Query actor: reads of everything that is stored or live.
//!
//! **Messages.** `Family` and `Walk` from the Catalog; `Trace`, `Sessions`, `Lines`, `Events`, `Window`, `Load` and `Fold` from the host.
//! **State.** How many reads are under way: the store and the published live sessions are what it knows.
//! **Order.** Reads run beside one another, as many as the configuration lets; the others wait for their turn in the order in which they came.
//! **End.** A query that is under way is answered; later ones fail as `SESSION_QUERY_PERSISTENCE_FAILED`.
//!
//! It never sends anything to an Activation, so a hung one cannot stall it, and it writes nothing.

mod corpus;
mod events;
mod family;
mod page;
mod sessions;
mod trace;
mod walk;

use std::sync::Arc;

use greenroom_session::{
    event::Event,
    fold::Fold,
    id::{Seq, SessionId},
    store::Log,
};
use ractor::{Actor, ActorProcessingErr, ActorRef, Message};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{agent::answered, config::Config, error::QueryError, live::LiveTable, readers::Readers, services::Services};

pub use events::{EventLine, EventWindow, Place};
pub use page::Page;
pub use sessions::{SessionPage, SessionRecord};
pub use trace::{Descent, Lineage, Trace, read_lineage};

pub(crate) use corpus::Corpus;
pub(crate) use events::Window;
pub(crate) use family::{Family, Then};
pub(crate) use walk::{Step, Walker};

pub(crate) type Reply<T> = oneshot::Sender<Result<T, QueryError>>;

/// What the query actor is asked.
#[derive(Debug)]
pub(crate) enum QueryMessage {
    /// Where a session comes from and what comes from it.
    Trace {
        /// The session.
        session: SessionId,
        /// Cancels the query.
        cancel: CancellationToken,
        /// Gets the answer.
        reply: Reply<Trace>,
    },
    /// A session's lineage, then what each of its children is, in one read. Fails as a trace does; trouble with one child is a value.
    Family {
        /// The parent; the roots and the sessions whose parent is not in the store if `None`.
        parent: Option<SessionId>,
        /// Which of the children.
        page: Page,
        /// Read the logs instead of the derived rows.
        verify: bool,
        /// Cancels the query.
        cancel: CancellationToken,
        /// Gets the answer.
        then: Then,
    },
    /// A session's lineage, then everything below it and what each of that is, in one read. Trouble with one session is a value.
    Walk {
        /// The session.
        top: SessionId,
        /// After which session the walk begins.
        after: Option<SessionId>,
        /// How many are wanted at the least; all if `None`.
        enough: Option<usize>,
        /// Cancels the query.
        cancel: CancellationToken,
        /// Who walks, and gets the answer.
        walker: Box<dyn Walker>,
    },
    /// Every session that is stored or live.
    Sessions {
        /// Which of them.
        page: Page,
        /// Cancels the query.
        cancel: CancellationToken,
        /// Gets the answer.
        reply: Reply<SessionPage>,
    },
    /// What the events of a session are, and which of them a model sees.
    Lines {
        /// The session.
        session: SessionId,
        /// Cancels the query.
        cancel: CancellationToken,
        /// Gets the answer.
        reply: Reply<Vec<EventLine>>,
    },
    /// Events of a session, in order.
    Events {
        /// The session.
        session: SessionId,
        /// The first seq.
        from: Seq,
        /// At most this many.
        limit: usize,
        /// Cancels the query.
        cancel: CancellationToken,
        /// Gets the answer.
        reply: Reply<Vec<Event>>,
    },
    /// One event with a window around it.
    Window {
        /// The session.
        session: SessionId,
        /// Which events.
        window: Window,
        /// Cancels the query.
        cancel: CancellationToken,
        /// Gets the answer.
        reply: Reply<EventWindow>,
    },
    /// A whole session.
    Load {
        /// The session.
        session: SessionId,
        /// Cancels the query.
        cancel: CancellationToken,
        /// Gets the answer.
        reply: Reply<Log>,
    },
    /// What follows from a whole session.
    Fold {
        /// The session.
        session: SessionId,
        /// Cancels the query.
        cancel: CancellationToken,
        /// Gets the answer.
        reply: Reply<Fold>,
    },
}

/// The actor.
#[derive(Debug)]
pub(crate) struct Query;

#[derive(Debug)]
pub(crate) struct QueryState {
    readers: Readers,
    live: LiveTable,
    /// One for each read that may be under way.
    permits: Arc<Semaphore>,
}

impl QueryState {
    pub(crate) fn new(config: &Config, readers: Readers, live: LiveTable) -> Self {
        Self { readers, live, permits: Arc::new(Semaphore::new(config.read_concurrency.clamp(1, Semaphore::MAX_PERMITS))) }
    }
}

impl Actor for Query {
    type Msg = QueryMessage;
    type State = QueryState;
    type Arguments = QueryState;

    async fn pre_start(&self, _myself: ActorRef<QueryMessage>, state: QueryState) -> Result<QueryState, ActorProcessingErr> {
        Ok(state)
    }

    async fn handle(&self, _myself: ActorRef<QueryMessage>, message: QueryMessage, state: &mut QueryState) -> Result<(), ActorProcessingErr> {
        match message {
            QueryMessage::Trace { session, cancel, reply } => state.answer(cancel, reply, move |corpus| corpus.trace(&session)),
            // Handed on from where it was read: a listing waits for one other thread and for no task in between.
            QueryMessage::Family { parent, page, verify, cancel, then } => {
                state.read(cancel, move |corpus| then.take(corpus.and_then(|mut corpus| corpus.family(parent.as_ref(), &page, verify))));
            }
            QueryMessage::Walk { top, after, enough, cancel, mut walker } => state.read(cancel, move |corpus| {
                let end = corpus.and_then(|mut corpus| corpus.walk(&top, after.as_ref(), enough, &mut *walker));
                walker.end(end);
            }),
            QueryMessage::Sessions { page, cancel, reply } => state.answer(cancel, reply, move |corpus| corpus.sessions(&page)),
            QueryMessage::Lines { session, cancel, reply } => state.answer(cancel, reply, move |corpus| corpus.event_lines(&session)),
            QueryMessage::Events { session, from, limit, cancel, reply } => {
                state.answer(cancel, reply, move |corpus| corpus.events(&session, from, limit));
            }
            QueryMessage::Window { session, window, cancel, reply } => state.answer(cancel, reply, move |corpus| corpus.window(&session, window)),
            QueryMessage::Load { session, cancel, reply } => state.answer(cancel, reply, move |corpus| corpus.load(&session)),
            QueryMessage::Fold { session, cancel, reply } => state.answer(cancel, reply, move |corpus| corpus.fold(&session, |_| {})),
        }
        Ok(())
    }
}

impl QueryState {
    fn answer<T: Send + 'static>(
        &self,
        cancel: CancellationToken,
        reply: Reply<T>,
        query: impl FnOnce(&mut Corpus<'_>) -> Result<T, QueryError> + Send + 'static,
    ) {
        self.read(cancel, move |corpus| {
            // Whoever asked may be gone.
            drop(reply.send(corpus.and_then(|mut corpus| query(&mut corpus))));
        });
    }

    /// Runs a read beside the others, when it is its turn. What is cancelled before that reads nothing.
    fn read(&self, cancel: CancellationToken, read: impl FnOnce(Result<Corpus<'_>, QueryError>) + Send + 'static) {
        let (readers, live) = (self.readers.clone(), self.live.clone());
        let run = move |permit: OwnedSemaphorePermit, cancel: CancellationToken| {
            readers.run(move |reader| {
                read(reader.map(|reader| Corpus::new(reader, live, cancel)).map_err(QueryError::from));
                drop(permit);
            });
        };
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return run(permit, cancel);
        }
        let permits = self.permits.clone();
        // Whoever has given up knows it, so its read may be dropped unheard.
        drop(tokio::spawn(async move {
            if let Some(Ok(permit)) = cancel.clone().run_until_cancelled(permits.acquire_owned()).await {
                run(permit, cancel);
            }
        }));
    }
}

/// Asks the Query actor and waits, as [`ask_actor`] does.
pub(crate) async fn ask<T>(
    services: &Services,
    cancel: &CancellationToken,
    message: impl FnOnce(CancellationToken, Reply<T>) -> QueryMessage,
) -> Result<T, QueryError> {
    ask_actor(services.query.as_ref(), services, cancel, message).await
}

/// Asks an actor that reads, which may not be there, and waits. A cancellation that is seen at any point is the answer, whatever else there is, and is seen
/// at once; the read stops at its next step, also if the call itself is given up.
pub(crate) async fn ask_actor<M: Message, T, E: From<QueryError>>(
    actor: Option<&ActorRef<M>>,
    services: &Services,
    cancel: &CancellationToken,
    message: impl FnOnce(CancellationToken, oneshot::Sender<Result<T, E>>) -> M,
) -> Result<T, E> {
    let actor = actor.ok_or(QueryError::Unavailable)?;
    if cancel.is_cancelled() {
        return Err(QueryError::Cancelled.into());
    }
    let token = cancel.child_token();
    let _stops = token.clone().drop_guard();
    let (reply, answer) = oneshot::channel();
    if actor.send_message(message(token, reply)).is_err() {
        return Err(QueryError::Ended.into());
    }
    match cancel.run_until_cancelled(answered(answer, services.config.ask_deadline)).await {
        Some(answer) if !cancel.is_cancelled() => answer,
        _ => Err(QueryError::Cancelled.into()),
    }
}
