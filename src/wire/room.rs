//! Room for what the library sends unasked.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Room for notifications on their way out: the library's own queue has no end, and a client that does not read would fill the memory.
///
/// ```
/// use greenroom::wire::{Ends, Limits, Protocol, serve};
/// use tokio::io::AsyncWriteExt;
/// # tokio_test::block_on(async {
/// let (client, output) = tokio::io::duplex(4096);
/// let library = |Ends { room, mut writer, .. }: Ends| async move {
///     for _ in 0..10 {
///         assert!(room.take().await); // there is room again once the one before has gone out
///         writer.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"update\"}\n").await.unwrap();
///     }
/// };
/// serve(&b""[..], output, Protocol::Acp, Limits { notifications: 1, ..Limits::default() }, library).await.1?;
/// # drop(client);
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Room {
    free: Arc<Semaphore>,
    most: usize,
}

impl Room {
    pub(super) fn new(most: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(most)), most }
    }

    /// Waits until one more notification may be sent, and takes its place, which is free again when a notification has been written. `false`: nobody reads any more.
    ///
    /// # Cancel safety
    /// Takes no place.
    pub async fn take(&self) -> bool {
        match self.free.acquire().await {
            Ok(place) => {
                place.forget();
                true
            }
            Err(_) => false,
        }
    }

    /// Takes a place if there is one, for a notification that may as well not be sent.
    pub fn try_take(&self) -> bool {
        self.free.try_acquire().map(tokio::sync::SemaphorePermit::forget).is_ok()
    }

    /// A notification has gone out. The library may send some for which nobody has taken a place.
    pub(super) fn give_back(&self) {
        // Only the output gives back, so this cannot become more than there was.
        if self.free.available_permits() < self.most {
            self.free.add_permits(1);
        }
    }

    pub(super) fn close(&self) {
        self.free.close();
    }
}
