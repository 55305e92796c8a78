//! Errors: one enum per operation, each with a stable code.

use std::sync::Arc;

use greenroom_session::{
    descriptor::DescriptorError,
    id::{MessageId, SessionId},
    message::MessageError,
    store::{CommitError, LoadError, Refused, StoreError},
};
use thiserror::Error;

/// Why a write did not become durable, or is not known to have.
///
/// ```
/// use greenroom_actors::error::WriteError;
/// use greenroom_session::store::Refused;
/// let error = WriteError::from(Refused::Busy { pending: 9, limit: 9 });
/// assert_eq!(error.code(), "BUSY");
/// assert_eq!(WriteError::Ended.code(), "INDETERMINATE"); // the same ids again are safe
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The store refused it.
    #[error(transparent)]
    Refused(Refused),
    /// The whole batch failed; nothing of it is in the store.
    #[error("not written: {}", .0.cause())]
    NotCommitted(Arc<CommitError>),
    /// It may or may not be in the store; the same ids again are safe.
    #[error("the outcome is unknown: {}", .0.cause())]
    Indeterminate(Arc<CommitError>),
    /// No answer came in time; the same ids again are safe.
    #[error("the outcome is unknown: no answer in time")]
    TimedOut,
    /// The journal ended before it answered; the same ids again are safe.
    #[error("the outcome is unknown: the journal has ended")]
    Ended,
}

impl From<Refused> for WriteError {
    /// What a store could not write of one session alone is nothing that it refused: to whoever waits it is as if the whole batch had failed.
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotWritten { full, reason } => {
                let cause = if full { StoreError::Full(reason.into()) } else { StoreError::Io(reason.into()) };
                Self::NotCommitted(Arc::new(CommitError::NotCommitted(cause)))
            }
            other => Self::Refused(other),
        }
    }
}

impl WriteError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refused) => refused.code(),
            // Nothing was written for a reason that has a remedy of its own.
            Self::NotCommitted(error)
                if matches!(error.cause(), StoreError::Full(_) | StoreError::Locked { .. } | StoreError::OneWriter { .. } | StoreError::Damaged(_)) =>
            {
                error.cause().code()
            }
            Self::NotCommitted(_) => "NOT_DELIVERED",
            Self::Indeterminate(_) | Self::TimedOut | Self::Ended => "INDETERMINATE",
        }
    }
}

/// Why a message was not delivered.
///
/// ```
/// use greenroom_actors::{error::DeliverError, host::NewRoot};
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
/// let error = root.agent().report("all is well", false).await.unwrap_err(); // a root has nobody to report to
/// assert!(matches!(error, DeliverError::Unauthorized { .. }));
/// assert_eq!(error.code(), "UNAUTHORIZED");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum DeliverError {
    /// The sender is not the exact live parent.
    #[error("only the exact live parent may send to {child}: {reason}")]
    Unauthorized {
        /// The receiver.
        child: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The receiver is unknown, unreadable, or takes no further messages.
    #[error("subagent \"{child}\" is unavailable: {reason}")]
    NotResumable {
        /// The receiver.
        child: String,
        /// Why.
        reason: String,
    },
    /// The inbox is full.
    #[error("not delivered: the inbox is full, {pending} of {limit} messages are pending")]
    Busy {
        /// Messages pending.
        pending: u64,
        /// The limit.
        limit: u64,
    },
    /// The message cannot be.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A message of this id was accepted with another body.
    #[error("message {0} was accepted before with another body")]
    Conflict(MessageId),
    /// The runtime is shutting down.
    #[error("draining: no new work is accepted")]
    Draining,
    /// The store failed.
    #[error("not delivered: {0}")]
    Write(WriteError),
}

impl DeliverError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unauthorized { .. } => "UNAUTHORIZED",
            Self::NotResumable { .. } => "NOT_RESUMABLE",
            Self::Busy { .. } => "BUSY",
            Self::Message(error) => error.code(),
            Self::Conflict(_) => "MESSAGE_ID_CONFLICT",
            Self::Draining => "DRAINING",
            Self::Write(error) => error.code(),
        }
    }

    /// Says of a refused acceptance what it means for the sender.
    pub(crate) fn from_write(child: &SessionId, error: WriteError) -> Self {
        match error {
            WriteError::Refused(Refused::NotFound(_)) => Self::NotResumable { child: child.to_string(), reason: "there is no such session".into() },
            WriteError::Refused(Refused::Busy { pending, limit }) => Self::Busy { pending, limit },
            WriteError::Refused(Refused::MessageIdConflict(id)) => Self::Conflict(id),
            WriteError::Refused(Refused::Invalid { code: "EVENT_TOO_LARGE", .. }) => {
                Self::Message(MessageError::TooLarge(greenroom_session::limits::MAX_MESSAGE_BYTES))
            }
            other => Self::Write(other),
        }
    }
}

/// Why a child was not started. Nothing of it exists.
///
/// ```
/// use greenroom_actors::{Delegate, error::StartError, host::NewRoot};
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
/// let error = root.agent().start_continuable(Delegate::new("nobody", "an echo", "one")).await.unwrap_err();
/// assert!(matches!(&error, StartError::AgentUnknown(name) if name == "nobody"));
/// assert_eq!(error.code(), "AGENT_UNKNOWN");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The caller is not a live agent any more.
    #[error("only an exact live parent may delegate: {0}")]
    Unauthorized(&'static str),
    /// The child would be too deep.
    #[error("subagent depth {depth} exceeds maxDepth {max_depth}")]
    Depth {
        /// The child's depth.
        depth: u32,
        /// The limit.
        max_depth: u32,
    },
    /// No behaviour of this name is registered.
    #[error("no agent is called {0:?}")]
    AgentUnknown(String),
    /// No provider of this name is known.
    #[error("no provider is called {0:?}")]
    NoProvider(String),
    /// The descriptor breaks a rule.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// A sibling has this alias.
    #[error("alias {0:?} is taken")]
    AliasTaken(String),
    /// The first message cannot be.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// Another session has this id.
    #[error("session {0} already exists")]
    Exists(SessionId),
    /// The runtime is shutting down.
    #[error("draining: no new work is accepted")]
    Draining,
    /// The parent's log could not be read.
    #[error("the parent's log cannot be read: {0}")]
    Read(String),
    /// The store failed.
    #[error("not started: {0}")]
    Write(WriteError),
}

impl StartError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unauthorized(_) => "UNAUTHORIZED",
            Self::Depth { .. } => "DEPTH_EXCEEDED",
            Self::AgentUnknown(_) => "AGENT_UNKNOWN",
            Self::NoProvider(_) => "NO_PROVIDER",
            Self::Descriptor(DescriptorError::Label(error)) => error.code(),
            Self::Descriptor(error) => error.code(),
            Self::AliasTaken(_) => "ALIAS_TAKEN",
            Self::Message(error) => error.code(),
            Self::Exists(_) => "DUPLICATE_CHILD",
            Self::Draining => "DRAINING",
            Self::Read(_) => "SESSION_CORRUPT",
            Self::Write(error) => error.code(),
        }
    }
}

impl From<WriteError> for StartError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Refused(Refused::Exists(id)) => Self::Exists(id),
            WriteError::Refused(Refused::AliasTaken(alias)) => Self::AliasTaken(alias),
            other => Self::Write(other),
        }
    }
}

/// Why a session could not be activated. Its messages stay pending.
///
/// ```
/// use greenroom_actors::{error::ActivateError, host::RootError};
/// use greenroom_session::id::SessionId;
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let Err(RootError::Activate(error)) = host.resume(&SessionId::new("nobody")?).await else { panic!("there is no such root") };
/// assert!(matches!(error, ActivateError::NotFound(_)));
/// assert_eq!(error.code(), "SESSION_NOT_FOUND");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ActivateError {
    /// There is no such session.
    #[error("session {0} does not exist")]
    NotFound(SessionId),
    /// Its log names a behaviour that is not registered; no attempt is used.
    #[error("session {session} is played by {agent:?}, which is not registered")]
    AgentUnknown {
        /// The session.
        session: SessionId,
        /// The behaviour's name.
        agent: String,
    },
    /// Its log cannot be continued.
    #[error("session {session} cannot be resumed: {reason}")]
    NotResumable {
        /// The session.
        session: SessionId,
        /// Why.
        reason: String,
        /// Stable code.
        code: &'static str,
    },
    /// Another live process holds it.
    #[error("session {session} is held by another process ({owner})")]
    Held {
        /// The session.
        session: SessionId,
        /// Who holds it.
        owner: String,
    },
    /// The start took too long.
    #[error("session {0} did not start in time")]
    Deadline(SessionId),
    /// The runtime is shutting down.
    #[error("draining: no new work is accepted")]
    Draining,
    /// The store failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The store failed.
    #[error("the store cannot be read: {0}")]
    Read(Arc<StoreError>),
}

impl ActivateError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "SESSION_NOT_FOUND",
            Self::AgentUnknown { .. } => "AGENT_UNKNOWN",
            Self::NotResumable { code, .. } => code,
            Self::Held { .. } => "SESSION_HELD",
            Self::Deadline(_) => "START_DEADLINE",
            Self::Draining => "DRAINING",
            Self::Write(error) => error.code(),
            Self::Read(error) => error.code(),
        }
    }

    pub(crate) fn from_load(session: &SessionId, error: LoadError) -> Self {
        match error {
            LoadError::NotFound(id) => Self::NotFound(id),
            LoadError::Store(error) => Self::Read(Arc::new(error)),
            other => Self::NotResumable { session: session.clone(), code: other.code(), reason: other.to_string() },
        }
    }
}

/// Why a query failed. The names are those of the query contract.
///
/// ```
/// use greenroom_actors::{error::QueryError, host::NewRoot};
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
/// let error = host.read_event(root.id(), 1_000, 0, 0).await.unwrap_err();
/// assert!(matches!(error, QueryError::EventNotFound { seq: 1_000, .. }));
/// assert_eq!(error.code(), "SESSION_QUERY_EVENT_NOT_FOUND");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum QueryError {
    /// There is no such session.
    #[error("session {0} does not exist")]
    SessionNotFound(SessionId),
    /// There is no such event.
    #[error("session {session} has no event {seq}")]
    EventNotFound {
        /// The session.
        session: SessionId,
        /// The event.
        seq: u64,
    },
    /// The chain of parents runs in a circle.
    #[error("the lineage of session {0} runs in a circle")]
    InvalidLineage(SessionId),
    /// The log's surface breaks a rule.
    #[error("session {session} is damaged: {reason}")]
    InvalidSurface {
        /// The session.
        session: SessionId,
        /// What is wrong.
        reason: String,
    },
    /// The window is too large.
    #[error("a window has at most {max} events on either side, {asked} were asked for")]
    InvalidWindow {
        /// Asked for.
        asked: u64,
        /// The limit.
        max: u64,
    },
    /// A record of the session is damaged.
    #[error("session {session} is damaged: {reason}")]
    Corrupt {
        /// The session.
        session: SessionId,
        /// What is wrong.
        reason: String,
    },
    /// A header differs from the one that a live session was published with.
    #[error("session {0} is stored with another header than its live one")]
    SourceConflict(SessionId),
    /// The store failed.
    #[error("the store cannot be read: {0}")]
    PersistenceFailed(Arc<StoreError>),
    /// The caller gave up.
    #[error("cancelled")]
    Cancelled,
    /// The query actor has ended.
    #[error("the query actor has ended")]
    Ended,
    /// No answer came in time.
    #[error("no answer in time")]
    TimedOut,
    /// The runtime was built without a query service.
    #[error("this runtime has no session query service")]
    Unavailable,
}

impl QueryError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::SessionNotFound(_) => "SESSION_QUERY_SESSION_NOT_FOUND",
            Self::EventNotFound { .. } => "SESSION_QUERY_EVENT_NOT_FOUND",
            Self::InvalidLineage(_) => "SESSION_QUERY_INVALID_LINEAGE",
            Self::InvalidSurface { .. } => "SESSION_QUERY_INVALID_SURFACE",
            Self::InvalidWindow { .. } => "SESSION_QUERY_INVALID_WINDOW",
            Self::Corrupt { .. } => "SESSION_QUERY_CORRUPT_SESSION",
            Self::SourceConflict(_) => "SESSION_QUERY_SOURCE_CONFLICT",
            Self::PersistenceFailed(_) | Self::TimedOut | Self::Ended => "SESSION_QUERY_PERSISTENCE_FAILED",
            Self::Unavailable => "SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE",
            Self::Cancelled => "SESSION_QUERY_ABORTED",
        }
    }

    pub(crate) fn from_load(error: LoadError) -> Self {
        match error {
            LoadError::NotFound(id) | LoadError::Removed(id) => Self::SessionNotFound(id),
            LoadError::Store(error) => Self::PersistenceFailed(Arc::new(error)),
            LoadError::Corrupt { session, place, source } => Self::Corrupt { session, reason: format!("{place}: {source}") },
            LoadError::Fold { session, source } => Self::InvalidSurface { session, reason: source.to_string() },
            other => Self::PersistenceFailed(Arc::new(StoreError::Damaged(other.to_string()))),
        }
    }
}

impl From<StoreError> for QueryError {
    fn from(error: StoreError) -> Self {
        Self::PersistenceFailed(Arc::new(error))
    }
}

/// Why a listing failed as a whole. A broken child is no failure but an entry.
///
/// ```
/// use greenroom_actors::{host::NewRoot, query::Page};
/// use tokio_util::sync::CancellationToken;
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let cancel = CancellationToken::new();
/// cancel.cancel();
/// let error = host.list(None, Page::default(), false, cancel).await.unwrap_err();
/// assert_eq!(error.code(), "CANCELLED");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ListError {
    /// The runtime was built without a query service.
    #[error("listing needs the session query service")]
    QueryUnavailable,
    /// The caller gave up.
    #[error("the listing was cancelled")]
    Cancelled,
    /// The caller is not a live agent any more.
    #[error("only a live agent may list its children: {0}")]
    Unauthorized(&'static str),
    /// The trace failed, or a child failed in a way that says nothing about the child.
    #[error(transparent)]
    Query(#[from] QueryError),
}

impl ListError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::QueryUnavailable => "SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE",
            Self::Cancelled => "CANCELLED",
            Self::Unauthorized(_) => "UNAUTHORIZED",
            Self::Query(error) => error.code(),
        }
    }
}

macro_rules! into_turn_error {
    ($($error:ty),*) => { $(
        impl From<$error> for crate::behavior::TurnError {
            fn from(error: $error) -> Self {
                Self::new(error.code(), error.to_string())
            }
        }
    )* };
}
into_turn_error!(WriteError, DeliverError, StartError, QueryError, ListError);
