//! Readers of the store, lent out so that no handler blocks on a disk.

use std::sync::{Arc, Mutex, PoisonError};

use greenroom_session::store::{Reader, Store, StoreError};

/// A pool of readers of one opening of the store.
#[derive(Debug, Clone)]
pub(crate) struct Readers {
    store: Arc<dyn Store>,
    idle: Arc<Mutex<Vec<Box<dyn Reader>>>>,
}

/// Readers kept for the next use; more are opened when needed and closed after it.
const KEEP: usize = 4;

impl Readers {
    /// Makes an empty pool.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, idle: Arc::default() }
    }

    /// Runs a read, on a thread that may block unless the store never does.
    ///
    /// # Errors
    /// [`StoreError`] if no reader can be opened; otherwise whatever the read gives.
    ///
    /// # Cancel safety
    /// A read that has begun runs to its end; its result is lost.
    pub(crate) async fn read<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn Reader) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let pool = self.clone();
        if self.store.is_inline() {
            return pool.read_here(read);
        }
        match tokio::task::spawn_blocking(move || pool.read_here(read)).await {
            Ok(result) => result,
            Err(error) => Err(StoreError::Io(Box::new(error)).into()),
        }
    }

    /// Runs a read as [`Readers::read`] does, beside whatever else there is; it hands its result on itself.
    pub(crate) fn run(&self, read: impl FnOnce(Result<&mut dyn Reader, StoreError>) + Send + 'static) {
        let pool = self.clone();
        let run = move || pool.lend(read);
        if self.store.is_inline() {
            drop(tokio::spawn(async move { run() }));
        } else {
            drop(tokio::task::spawn_blocking(run));
        }
    }

    fn read_here<T, E: From<StoreError>>(&self, read: impl FnOnce(&mut dyn Reader) -> Result<T, E>) -> Result<T, E> {
        self.lend(|reader| read(reader?))
    }

    fn lend<T>(&self, read: impl FnOnce(Result<&mut dyn Reader, StoreError>) -> T) -> T {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut reader = match idle.map_or_else(|| self.store.reader(), Ok) {
            Ok(reader) => reader,
            Err(error) => return read(Err(error)),
        };
        let result = read(Ok(&mut *reader));
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEEP {
            idle.push(reader);
        }
        result
    }
}
