//! Why a listing failed.

use thiserror::Error;

use super::query::QueryError;

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
    Query(QueryError),
}

impl From<QueryError> for ListError {
    fn from(error: QueryError) -> Self {
        match error {
            // Wherever it was seen, it is one answer.
            QueryError::Cancelled => Self::Cancelled,
            QueryError::Unavailable => Self::QueryUnavailable,
            other => Self::Query(other),
        }
    }
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
