//! Why a query failed.

use std::sync::Arc;

use greenroom_session::{
    codec::DecodeError,
    id::SessionId,
    store::{LoadError, StoreError},
};
use thiserror::Error;

/// Why a query failed. The names are those of the query contract.
///
/// ```
/// use greenroom_actors::{error::QueryError, host::NewRoot};
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
/// let root = host.root(NewRoot::new("echo", "a desk")).await?;
/// let error = host.read_event(root.id(), 1_000, 0, 0, CancellationToken::new()).await.unwrap_err();
/// assert!(matches!(error, QueryError::EventNotFound { seq: 1_000, .. }));
/// assert_eq!(error.code(), "SESSION_QUERY_EVENT_NOT_FOUND");
/// assert_eq!(QueryError::InvalidCursor(root.id().clone()).code(), "SESSION_QUERY_INVALID_CURSOR");
/// assert_eq!(QueryError::StaleCursor(root.id().clone()).code(), "SESSION_QUERY_STALE_CURSOR");
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
    /// A page of nothing was asked for.
    #[error("a page has at least one entry, 0 were asked for")]
    InvalidLimit,
    /// The place after which a page was to begin is none of this list.
    #[error("session {0} is not in this list")]
    InvalidCursor(SessionId),
    /// The session after which a page was to begin is gone.
    #[error("session {0}, after which the page was to begin, is gone")]
    StaleCursor(SessionId),
    /// The configuration of the query service makes no sense.
    #[error("{name} must be between {min} and {max}, not {given}")]
    InvalidConfig {
        /// Which bound.
        name: &'static str,
        /// Its value.
        given: u64,
        /// The least that it may be.
        min: u64,
        /// The most that it may be.
        max: u64,
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
    /// A header differs from the one that a live session was published with, or from what it was a moment ago.
    #[error("session {0} is stored with another header than the one that it is known by")]
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
            Self::InvalidLimit => "SESSION_QUERY_INVALID_LIMIT",
            Self::InvalidCursor(_) => "SESSION_QUERY_INVALID_CURSOR",
            Self::StaleCursor(_) => "SESSION_QUERY_STALE_CURSOR",
            Self::InvalidConfig { .. } => "SESSION_QUERY_INVALID_CONFIG",
            Self::InvalidWindow { .. } => "SESSION_QUERY_INVALID_WINDOW",
            Self::Corrupt { .. } => "SESSION_QUERY_CORRUPT_SESSION",
            Self::SourceConflict(_) => "SESSION_QUERY_SOURCE_CONFLICT",
            Self::PersistenceFailed(_) | Self::TimedOut | Self::Ended => "SESSION_QUERY_PERSISTENCE_FAILED",
            Self::Unavailable => "SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE",
            Self::Cancelled => "SESSION_QUERY_ABORTED",
        }
    }

    /// A record at some place is damaged.
    pub(crate) fn corrupt(session: &SessionId, place: &str, source: &DecodeError) -> Self {
        Self::Corrupt { session: session.clone(), reason: format!("{place}: {source}") }
    }

    pub(crate) fn from_load(error: LoadError) -> Self {
        match error {
            LoadError::NotFound(id) | LoadError::Removed(id) => Self::SessionNotFound(id),
            LoadError::Store(error) => Self::PersistenceFailed(Arc::new(error)),
            LoadError::Corrupt { session, place, source } => Self::corrupt(&session, &place, &source),
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
