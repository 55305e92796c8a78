//! Why a provider was not registered.

use greenroom_session::text::LabelError;
use thiserror::Error;

/// Why a provider was not registered.
///
/// ```
/// use greenroom_actors::{error::ProviderError, provider::{Capabilities, Prepare, PrepareError, Prepared, Provider, SPAWN}};
/// # use futures::future::{BoxFuture, ready};
/// # struct Copier;
/// # impl Provider for Copier {
/// #     fn capabilities(&self) -> Capabilities {
/// #         Capabilities::all()
/// #     }
/// #     fn prepare(&self, _: Prepare) -> BoxFuture<'_, Result<Prepared, PrepareError>> {
/// #         Box::pin(ready(Ok(Prepared::default())))
/// #     }
/// # }
/// # tokio_test::block_on(async {
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(greenroom_actors::Config::default(), store, true).await?;
/// # let host = system.host();
/// let error = host.register_provider(SPAWN, Copier).unwrap_err();
/// assert!(matches!(error, ProviderError::Duplicate(_)));
/// assert_eq!(error.code(), "DUPLICATE_PROVIDER");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProviderError {
    /// One of this name is registered.
    #[error("a provider is called {0:?} already")]
    Duplicate(String),
    /// The name breaks the rule for labels: descriptors carry it.
    #[error("no provider can be called so: {0}")]
    Name(#[from] LabelError),
}

impl ProviderError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Duplicate(_) => "DUPLICATE_PROVIDER",
            Self::Name(error) => error.code(),
        }
    }
}
