//! Why a system was not started.

use greenroom_session::store::StoreError;
use thiserror::Error;

use super::query::QueryError;

/// Why a system was not started. Nothing of it runs.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_actors::{Config, System, error::SystemError};
/// use greenroom_session::store::memory::MemoryStore;
/// # tokio_test::block_on(async {
/// let config = Config { read_concurrency: 0, ..Config::default() };
/// let error: SystemError = System::start(config, Arc::new(MemoryStore::new()), true).await.unwrap_err();
/// assert_eq!(error.code(), "SESSION_QUERY_INVALID_CONFIG");
/// assert_eq!(error.to_string(), "read_concurrency must be between 1 and 9007199254740991, not 0");
/// # });
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SystemError {
    /// A bound of the configuration makes no sense.
    #[error(transparent)]
    Config(QueryError),
    /// The store cannot be read, or an actor cannot start.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SystemError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Config(error) => error.code(),
            Self::Store(error) => error.code(),
        }
    }
}
