//! The facade: a runtime over one store.

use std::{future::Future, sync::Arc, time::Duration};

use greenroom_actors::{
    Agent, Behavior, Config, Host, Occurrence, OneShotRun, Publication, PublishedSession, RootHandle, System, Turn, TurnEnd, TurnError,
    catalog::{Descendants, Listing},
    error::{ControlError, DeliverError, DrainError, ForkError, ListError, PublishError, QueryError, RunError, SystemError},
    host::{Cancel, Cancelled, NewRoot, RootError},
    query::{EventLine, EventWindow, Page, SessionRecord, Trace},
};
use greenroom_session::{
    clock::{Clock, IdSource},
    digest::{DigestError, StoreDigest},
    event::Event,
    header::Header,
    id::{MessageId, Seq, SessionId},
    message::text_of,
    store::{Store, StoreError},
};
use thiserror::Error;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::{
    seeded::{self, InPlace, VirtualClock},
    store_url::{StoreUrl, StoreUrlError},
};

/// Why a runtime could not be opened.
///
/// ```
/// use greenroom::Runtime;
/// # tokio_test::block_on(async {
/// let error = Runtime::builder().open("desk.db").await.unwrap_err();
/// assert_eq!(error.code(), "STORE_URL");
/// assert_eq!(error.to_string(), r#""desk.db" names no store: expected `sqlite:PATH`, `jsonl:DIR` or `memory:`"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL names no store.
    #[error(transparent)]
    Url(#[from] StoreUrlError),
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A bound of the configuration makes no sense.
    #[error(transparent)]
    Config(QueryError),
    /// A seed was given outside of the runtime that can keep its promise.
    #[error("a seed needs one thread and virtual time, as `seeded::block_on` has them")]
    SeedUnavailable,
    /// A seed was given, and what is in the store already cannot be read.
    #[error("a seed needs a store that can be read: {0}")]
    Seed(#[source] DigestError),
}

impl From<SystemError> for OpenError {
    fn from(error: SystemError) -> Self {
        match error {
            SystemError::Store(error) => Self::Store(error),
            SystemError::Config(error) => Self::Config(error),
            other => Self::Store(StoreError::Unsupported(other.to_string())),
        }
    }
}

impl OpenError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Url(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Config(error) => error.code(),
            Self::SeedUnavailable => "SEED_UNAVAILABLE",
            Self::Seed(error) => error.code(),
        }
    }
}

/// Puts a [`Runtime`] together.
///
/// ```
/// use greenroom::{Runtime, RuntimeBuilder, Turn, TurnEnd};
/// # tokio_test::block_on(async {
/// let builder: RuntimeBuilder = Runtime::builder()
///     .closure("idler", |_turn: Turn| async { Ok(TurnEnd::Completed) })
///     .max_live(4)
///     .max_depth(0); // nobody may delegate
/// let runtime = builder.open("memory:").await?;
/// assert!(runtime.root("idler", "a desk").await.is_ok());
/// # runtime.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct RuntimeBuilder {
    config: Config,
    with_query: bool,
    seed: Option<u64>,
}

impl RuntimeBuilder {
    /// Registers a behaviour under the name that logs use. The factory makes one per Activation.
    ///
    /// The name must stay the same for as long as sessions that it plays exist.
    #[must_use]
    pub fn behavior<B: Behavior>(mut self, name: impl Into<String>, factory: impl Fn() -> B + Send + Sync + 'static) -> Self {
        self.config.behavior(name, factory);
        self
    }

    /// Registers a closure as a behaviour. Every Activation gets a clone of it, so what it captures is no memory of the session.
    #[must_use]
    pub fn closure<F, Fut>(self, name: impl Into<String>, closure: F) -> Self
    where
        F: FnMut(Turn) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<TurnEnd, TurnError>> + Send + 'static,
    {
        self.behavior(name, move || closure.clone())
    }

    /// Bounds the turns that run at once. Default 64. A turn that waits for children does not count.
    #[must_use]
    pub fn max_live(mut self, turns: usize) -> Self {
        self.config.max_live = turns;
        self
    }

    /// Bounds the sessions that are loaded at once. Default 64.
    #[must_use]
    pub fn max_starting(mut self, sessions: usize) -> Self {
        self.config.max_starting = sessions;
        self
    }

    /// Bounds the depth of children; a root has depth 0. Default 8.
    #[must_use]
    pub fn max_depth(mut self, depth: u32) -> Self {
        self.config.max_depth = depth;
        self
    }

    /// Bounds the pending `turn` messages of one session. Default 1,024; one more is `BUSY`.
    #[must_use]
    pub fn inbox_limit(mut self, messages: u64) -> Self {
        self.config.inbox_limit = messages;
        self
    }

    /// Sets how many notes (reports and other things that are no turn of their own) may wait in one inbox; one more is refused as `BUSY`. Notices of settlements are
    /// never refused. 65,536 by default.
    #[must_use]
    pub fn note_limit(mut self, notes: u64) -> Self {
        self.config.note_limit = notes;
        self
    }

    /// Bounds the attempts without durable progress that a message gets. Default 3.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.config.max_attempts = attempts;
        self
    }

    /// Bounds how long a send within a turn waits for a full inbox. Default 30 s.
    #[must_use]
    pub fn send_patience(mut self, patience: Duration) -> Self {
        self.config.send_patience = patience;
        self
    }

    /// Bounds how long an interrupted turn may go on before it is dropped. Default 2 s.
    #[must_use]
    pub fn interrupt_grace(mut self, grace: Duration) -> Self {
        self.config.interrupt_grace = grace;
        self
    }

    /// Bounds how long a shutdown or a drain waits for an end beyond that, before it is given up. Default 10 s.
    #[must_use]
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.config.shutdown_grace = grace;
        self
    }

    /// Bounds the neighbours that [`Runtime::read_event`] returns on either side. Default 50; at most 2^53 - 1.
    #[must_use]
    pub fn read_window_max(mut self, events: u64) -> Self {
        self.config.read_window_max = events;
        self
    }

    /// Bounds the queries that read the store at once, listings among them; the others wait. Default 4; at least 1 and at most 2^53 - 1.
    #[must_use]
    pub fn read_concurrency(mut self, queries: usize) -> Self {
        self.config.read_concurrency = queries;
        self
    }

    /// Replaces the clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.config.clock = clock;
        self
    }

    /// Replaces the source of new ids.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.config.ids = ids;
        self
    }

    /// Makes the run deterministic: the same seed over the same logs leaves the same logs. See [`seeded`] for what that asks of behaviours.
    ///
    /// Takes the place of the clock and of the source of ids; time begins at 2025-01-01 and moves only when nobody can go on. What the ids begin with follows
    /// from the seed and from all that is in the store, which is read for it. Works within [`seeded::block_on`] only.
    ///
    /// ```
    /// use greenroom::{OpenError, Runtime, seeded};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = seeded::block_on(Runtime::builder().seed(7).open("memory:"))?;
    /// assert!(runtime.is_ok());
    /// // A runtime whose time is the machine's cannot keep the promise.
    /// let plain = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// let refused = plain.block_on(Runtime::builder().seed(7).open("memory:"));
    /// assert!(matches!(refused, Err(OpenError::SeedUnavailable)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self.config.seed = seed;
        self
    }

    /// Leaves out the query service: starting and sending work, listing fails with `SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE`, and whatever else
    /// reads sessions ([`Runtime::trace`], [`Runtime::list_sessions`], [`Runtime::list_events`], [`Runtime::read_events`], [`Runtime::read_event`],
    /// [`Runtime::last_answer`]) with [`QueryError::Unavailable`].
    #[must_use]
    pub fn without_query(mut self) -> Self {
        self.with_query = false;
        self
    }

    /// Opens a store by its URL (`memory:`, `sqlite:PATH` or `jsonl:DIR`), making it if there is none, and starts the runtime over it.
    ///
    /// Starts no session: those that have work wait for [`Runtime::recover`], [`Runtime::resume`] or a message.
    ///
    /// # Errors
    /// [`OpenError::Url`] if the URL names no store, [`OpenError::Store`] if the store cannot be opened, and as [`RuntimeBuilder::start`].
    ///
    /// # Cancel safety
    /// The store may have been made.
    pub async fn open(self, url: &str) -> Result<Runtime, OpenError> {
        let url: StoreUrl = url.parse()?;
        let store = match &url {
            StoreUrl::Memory => url.open()?,
            StoreUrl::Sqlite(_) | StoreUrl::Jsonl(_) => {
                tokio::task::spawn_blocking(move || url.open()).await.map_err(|error| StoreError::Io(Box::new(error)))??
            }
        };
        self.start(store).await
    }

    /// Starts the runtime over a store that is open. [`Runtime::shutdown`] closes it.
    ///
    /// # Errors
    /// [`OpenError::Config`] if a bound makes no sense, [`OpenError::Store`] if the actors cannot be started; with a seed [`OpenError::SeedUnavailable`] outside of [`seeded::block_on`], and
    /// [`OpenError::Seed`] if a session of the store is damaged.
    ///
    /// # Cancel safety
    /// Actors may be left running until the async runtime ends.
    pub async fn start(mut self, mut store: Arc<dyn Store>) -> Result<Runtime, OpenError> {
        if let Some(seed) = self.seed {
            if !seeded::is_possible() {
                return Err(OpenError::SeedUnavailable);
            }
            self.config.ids = seeded::ids(seed, &*store).map_err(OpenError::Seed)?;
            self.config.clock = VirtualClock::begin();
            store = Arc::new(InPlace(store));
        }
        let system = System::start(self.config, store, self.with_query).await?;
        Ok(Runtime { host: system.host(), system, seed: self.seed })
    }
}

/// A running greenroom over one store.
///
/// ```
/// use greenroom::{Runtime, Turn, TurnEnd};
/// # tokio_test::block_on(async {
/// let runtime = Runtime::builder()
///     .closure("echo", |turn: Turn| async move {
///         turn.say(turn.text())?;
///         Ok(TurnEnd::Completed)
///     })
///     .open("memory:")
///     .await?;
/// let root = runtime.root("echo", "an echo").await?;
/// root.send("hello").await?;
/// root.quiescent().await?;
/// assert_eq!(runtime.last_answer(root.id()).await?.as_deref(), Some("hello"));
/// runtime.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Runtime {
    system: System,
    host: Host,
    seed: Option<u64>,
}

impl Runtime {
    /// Begins to put a runtime together.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder { config: Config::default(), with_query: true, seed: None }
    }

    /// Returns the authority of whoever owns the store.
    pub fn host(&self) -> Host {
        self.host.clone()
    }

    /// Creates a root played by the behaviour `agent` and keeps it live until the handle is dropped. The root is durable on return.
    ///
    /// # Errors
    /// [`RootError::Start`] if no such behaviour is registered, the label breaks the rule for labels, or the store failed;
    /// [`RootError::Activate`] if the root exists and could not be brought up.
    ///
    /// # Cancel safety
    /// The root may exist.
    pub async fn root(&self, agent: impl Into<String>, label: impl Into<String>) -> Result<RootHandle, RootError> {
        let mut new = NewRoot::new(agent, label);
        new.opened.seed = self.seed;
        self.host.root(new).await
    }

    /// Brings an existing root up again and keeps it live until the handle is dropped.
    ///
    /// # Errors
    /// [`RootError::Activate`] if there is no such session, its behaviour is not registered, another live process holds it, or its log cannot be
    /// continued.
    ///
    /// # Cancel safety
    /// The root may have been brought up; nothing keeps it then.
    pub async fn resume(&self, root: &SessionId) -> Result<RootHandle, RootError> {
        self.host.resume(root).await
    }

    /// Has a session live that the host plays itself, outside of any Activation: durable, listed as running, and never served by anybody else. See
    /// [`Host::publish_session`].
    ///
    /// # Errors
    /// [`PublishError`], as [`Host::publish_session`].
    ///
    /// # Cancel safety
    /// The session may have been created; it does not stay live.
    pub async fn publish_session(&self, publication: Publication) -> Result<PublishedSession, PublishError> {
        self.host.publish_session(publication).await
    }

    /// Creates a session that begins with the durable events of another one up to `boundary`, inclusive, and goes its own way. See [`Host::fork`].
    ///
    /// # Errors
    /// [`ForkError`], as [`Host::fork`].
    ///
    /// # Cancel safety
    /// The fork may exist.
    pub async fn fork(&self, source: &SessionId, boundary: Option<Seq>, child: Option<SessionId>) -> Result<Arc<Header>, ForkError> {
        self.host.fork(source, boundary, child).await
    }

    /// Lists the children of a session, or the roots and orphans (sessions whose parent is not in the store) if `None`, waking none. Oldest first.
    ///
    /// Costs the number of children; no log is read where the rows derived from it are good.
    ///
    /// # Errors
    /// [`ListError::Query`] if there is no such session or the store cannot be read. A child that cannot be described is an entry.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list(&self, parent: Option<&SessionId>) -> Result<Listing, ListError> {
        self.host.list(parent, Page::default(), false, CancellationToken::new()).await
    }

    /// Lists everything below a session, waking none: each session before its own children, siblings oldest first. [`Host::list_descendants`] lists it by pages.
    ///
    /// # Errors
    /// [`ListError::Query`] if there is no such session or the store cannot be read. A session that cannot be described is an entry.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_descendants(&self, top: &SessionId) -> Result<Descendants, ListError> {
        self.host.list_descendants(top, Page::default(), CancellationToken::new()).await
    }

    /// Returns where a session comes from and everything that comes from it. Reads the header of each, and no log. See [`Host::trace`].
    ///
    /// # Errors
    /// [`QueryError::SessionNotFound`], [`QueryError::InvalidLineage`] if its parents run in a circle, or that the store or a header cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn trace(&self, session: &SessionId) -> Result<Trace, QueryError> {
        self.host.trace(session, CancellationToken::new()).await
    }

    /// Lists every session that is stored or live, the newest first. Reads the header of each. See [`Host::list_sessions`], which reads a part.
    ///
    /// # Errors
    /// [`QueryError`], as [`Host::list_sessions`].
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_sessions(&self) -> Result<Vec<SessionRecord>, QueryError> {
        Ok(self.host.list_sessions(Page::default(), CancellationToken::new()).await?.sessions)
    }

    /// Lists the events of a session in order, and says of each whether a model sees it. Costs the length of its log.
    ///
    /// # Errors
    /// [`QueryError::InvalidSurface`] if an event cannot follow what came before, [`QueryError::SessionNotFound`], or what is damaged in its log or the store.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_events(&self, session: &SessionId) -> Result<Vec<EventLine>, QueryError> {
        self.host.list_events(session, CancellationToken::new()).await
    }

    /// Returns all events of a session in order. Costs the length of its log; [`Host::read_events`] reads a part.
    ///
    /// # Errors
    /// [`QueryError::SessionNotFound`], or what is damaged in its log or the store.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn read_events(&self, session: &SessionId) -> Result<Vec<Event>, QueryError> {
        self.host.read_events(session, 0, usize::MAX, CancellationToken::new()).await
    }

    /// Returns one event with up to `before` and `after` neighbours, at most [`RuntimeBuilder::read_window_max`] on either side.
    ///
    /// # Errors
    /// [`QueryError::InvalidWindow`] for more than that, [`QueryError::SessionNotFound`], [`QueryError::EventNotFound`], or what is damaged.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn read_event(&self, session: &SessionId, seq: Seq, before: u64, after: u64) -> Result<EventWindow, QueryError> {
        self.host.read_event(session, seq, before, after, CancellationToken::new()).await
    }

    /// Subscribes to what happens in live sessions. A slow subscriber loses the oldest.
    pub fn subscribe(&self) -> broadcast::Receiver<Occurrence> {
        self.host.subscribe()
    }

    /// Wakes the sessions of a tree (of all trees if `None`) that have work and that no live process holds, and returns them.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    ///
    /// # Cancel safety
    /// Some may have been woken.
    pub async fn recover(&self, root: Option<&SessionId>) -> Result<Vec<SessionId>, StoreError> {
        self.host.recover(root).await
    }

    /// Ends the turn that is under way in a session, as `aborted`, which is final, and returns its number; the queue goes on. Waits for another process that
    /// holds the session for as long as `patience`. See [`Host::interrupt`].
    ///
    /// # Errors
    /// [`ControlError`], as [`Host::interrupt`].
    ///
    /// # Cancel safety
    /// What was asked may be done all the same.
    pub async fn interrupt(&self, session: &SessionId, patience: Duration) -> Result<u64, ControlError> {
        self.host.interrupt(session, patience).await
    }

    /// Takes a message back that has no turn yet. Waits for another process that holds the session for as long as `patience`. See [`Host::withdraw`].
    ///
    /// # Errors
    /// [`ControlError`], as [`Host::withdraw`].
    ///
    /// # Cancel safety
    /// What was asked may be done all the same.
    pub async fn withdraw(&self, session: &SessionId, message: &MessageId, patience: Duration) -> Result<(), ControlError> {
        self.host.withdraw(session, message, patience).await
    }

    /// Steers a session: a note of the user that joins the turn under way at its next step, or opens a turn. Durable on return. See [`Host::steer`].
    ///
    /// # Errors
    /// [`DeliverError`], as [`Host::steer`].
    ///
    /// # Cancel safety
    /// The note may have been accepted.
    pub async fn steer(&self, session: &SessionId, text: impl Into<String>, id: Option<MessageId>) -> Result<MessageId, DeliverError> {
        self.host.steer(session, text, id).await
    }

    /// Adds to what a session knows: a note of the user that joins its next step or turn and wakes nobody. Durable on return. See [`Host::inject`].
    ///
    /// # Errors
    /// [`DeliverError`], as [`Host::inject`].
    ///
    /// # Cancel safety
    /// The note may have been accepted.
    pub async fn inject(&self, session: &SessionId, text: impl Into<String>, id: Option<MessageId>) -> Result<MessageId, DeliverError> {
        self.host.inject(session, text, id).await
    }

    /// Ends the turn that is under way in a session and, unless the queue is kept, takes back what waits for a turn. Durable on return. See [`Host::cancel`].
    ///
    /// # Errors
    /// [`ControlError`], as [`Host::cancel`].
    ///
    /// # Cancel safety
    /// What was asked may be done all the same.
    pub async fn cancel(&self, session: &SessionId, cancel: Cancel) -> Result<Cancelled, ControlError> {
        self.host.cancel(session, cancel).await
    }

    /// Ends everything below these agents, children first, and closes it until their epochs have ended. See [`Host::drain`].
    ///
    /// # Errors
    /// [`DrainError`], as [`Host::drain`].
    ///
    /// # Cancel safety
    /// The drain goes on.
    pub async fn drain(&self, roots: &[Agent]) -> Result<(), DrainError> {
        self.host.drain(roots).await
    }

    /// Waits until a session has nothing to do. See [`Host::when_idle`].
    ///
    /// # Errors
    /// [`ControlError`], as [`Host::when_idle`].
    ///
    /// # Cancel safety
    /// Changes nothing that a later call would not change.
    pub async fn when_idle(&self, session: &SessionId) -> Result<(), ControlError> {
        self.host.when_idle(session).await
    }

    /// Finds the run of a one-shot child again, whether it has ended or not. Costs the length of the child's log. See [`Host::run_of`].
    ///
    /// # Errors
    /// [`RunError`], as [`Host::run_of`].
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn run_of(&self, child: &SessionId) -> Result<OneShotRun, RunError> {
        self.host.run_of(child).await
    }

    /// Returns what the session itself said last, if it has said anything. Costs the length of its log.
    ///
    /// # Errors
    /// [`QueryError::SessionNotFound`], or what is damaged in its log or the store.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn last_answer(&self, session: &SessionId) -> Result<Option<String>, QueryError> {
        let fold = self.host.fold(session).await?;
        Ok(fold.last_said().map(|message| text_of(&message.content)))
    }

    /// Hashes everything that is true in the store: see [`StoreDigest`]. Costs the size of the store, and is the state of one moment only while nobody works.
    ///
    /// # Errors
    /// [`DigestError`] if a session is damaged or the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn digest(&self) -> Result<StoreDigest, DigestError> {
        self.host.digest().await
    }

    /// Ends every turn as `disposed` and every Activation child-first. What is pending stays pending and is served by the next runtime.
    ///
    /// # Cancel safety
    /// The shutdown goes on.
    pub async fn shutdown(&self) {
        self.system.shutdown().await;
    }
}
