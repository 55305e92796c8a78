//! The lock file: one run at a time, and the request of that run.
//!
//! The lock is an `flock`. It belongs to the open file, so it stays taken for as long as any
//! process holds a copy of the descriptor, whoever took it. Waiting is bounded and never blocks
//! a thread of the runtime.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::CommandError;
use super::run::blocking;

/// The first pause between two tries. A dying group is usually gone within it.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A lock that is held.
#[derive(Debug)]
pub(super) struct RunLock {
    file: File,
}

impl RunLock {
    /// Takes the lock, waiting up to `wait` for the run that holds it.
    ///
    /// Creates the file (mode 0600) and its folder (mode 0700).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the wait and takes nothing.
    pub(super) async fn acquire(path: &Path, wait: Duration, cancel: &CancellationToken) -> Result<Self, CommandError> {
        let action = format!("lock {}", path.display());
        let owned = path.to_owned();
        let opened = blocking(move || {
            let file = open(&owned)?;
            let taken = try_take(&file)?;
            Ok((file, taken))
        });
        let (file, mut taken) = opened.await?.map_err(CommandError::io(&action))?;
        let started = Instant::now();
        let mut pause = FIRST_PAUSE;
        while !taken {
            let waited = started.elapsed();
            if waited >= wait {
                return Err(CommandError::StillRunning { lock: path.to_owned(), waited: wait });
            }
            tokio::select! {
                () = cancel.cancelled() => return Err(CommandError::Cancelled),
                () = sleep(pause.min(wait.saturating_sub(waited))) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            taken = try_take(&file).map_err(CommandError::io(&action))?;
        }
        Ok(Self { file })
    }

    /// Replaces what the file holds and goes back to its start.
    pub(super) fn fill(&mut self, request: &[u8]) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(request)?;
        self.file.rewind()
    }

    /// Returns another descriptor of the same open file: who holds it holds the lock.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Empties the file; a request should not lie about longer than its run.
    pub(super) fn clear(&self) {
        // What stays behind is overwritten by the next run, so a failure costs nothing.
        self.file.set_len(0).ok();
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // Not truncated: an earlier run may be reading it. Opened for writing even though only the
    // runtime writes, because an exclusive lock on NFS needs it: flock(2).
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn try_take(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
