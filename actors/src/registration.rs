//! What is registered for as long as somebody holds on to it.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

/// Something that a host has registered. Dropped, it is removed; [`Registration::remove`] does so earlier.
///
/// ```
/// use greenroom_actors::{Registration, setup::{Installation, Setup, SetupError}};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("idler", || |_turn: greenroom_actors::Turn| async { Ok(greenroom_actors::TurnEnd::Completed) });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let refusal: Registration = host.register_setup(|_: &Setup| Err::<Box<dyn Installation>, _>(SetupError::new("NO_DESK", "all desks are taken")));
/// let root = || host.root(greenroom_actors::host::NewRoot::new("idler", "a desk"));
/// assert_eq!(root().await.unwrap_err().code(), "NO_DESK");
/// refusal.remove();
/// assert!(root().await.is_ok());
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[must_use = "what is registered is removed when this is dropped"]
pub struct Registration(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").finish_non_exhaustive()
    }
}

impl Registration {
    /// Makes a registration that is undone by `remove`.
    pub(crate) fn new(remove: impl FnOnce() + Send + 'static) -> Self {
        Self(Mutex::new(Some(Box::new(remove))))
    }

    /// Removes what was registered, once: a second time does nothing.
    pub fn remove(&self) {
        let remove = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(remove) = remove {
            remove();
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.remove();
    }
}
