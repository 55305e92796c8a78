//! The gate: writers of all processes stand in one row at a lock file.
//!
//! A turn at writing is an `flock`. The kernel puts those who wait for it into a row, but a process that was stopped within its turn never gives
//! it back, and a wait in the kernel has no end of its own. So a thread does the waiting, and who sent it gives up after a time. The thread keeps
//! its place: the next attempt waits with it, or, if there is none by then, it gives the turn back at once.

use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use super::StoreError;

/// How long a turn is waited for. A batch takes milliseconds, so whoever has it for so long is stopped or hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// One opening of a lock file that others want too.
#[derive(Debug)]
pub(super) struct Gate {
    /// What is told of an attempt that failed.
    path: PathBuf,
    row: Arc<Row>,
    pub(super) patience: Duration,
}

#[derive(Debug)]
struct Row {
    file: File,
    place: Mutex<Place>,
    moved: Condvar,
}

/// Where the thread that waits has got to.
#[derive(Debug)]
enum Place {
    /// There is no such thread.
    None,
    /// It waits, and somebody waits for it.
    Wanted,
    /// It waits, and whoever sent it has given up.
    Left,
    /// It has the lock, or has failed to get it.
    Arrived(io::Result<()>),
}

impl Gate {
    /// Makes a gate of an open lock file that belongs to the store at `path`.
    pub(super) fn new(file: File, path: &Path) -> Self {
        let row = Row { file, place: Mutex::new(Place::None), moved: Condvar::new() };
        Self { path: path.to_owned(), row: Arc::new(row), patience: PATIENCE }
    }

    /// Returns the lock file.
    pub(super) fn file(&self) -> &File {
        &self.row.file
    }

    /// Takes a turn, which ends when it is dropped. Not to be called within a turn.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if somebody else has it for too long.
    #[cfg(feature = "sqlite")]
    pub(super) fn enter(&self) -> Result<Turn, StoreError> {
        self.lock()?;
        Ok(Turn(self.row.clone()))
    }

    /// Takes the lock for as long as the file is open.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if somebody else has it for too long.
    pub(super) fn lock(&self) -> Result<(), StoreError> {
        let mut place = self.row.place();
        match *place {
            Place::None => match self.row.file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(error)) => return Err(error.into()),
                Err(TryLockError::WouldBlock) => {
                    let row = self.row.clone();
                    thread::Builder::new().name("greenroom-gate".into()).spawn(move || row.wait())?;
                }
            },
            Place::Wanted | Place::Left | Place::Arrived(_) => {}
        }
        *place = Place::Wanted;
        let (mut place, _) =
            self.row.moved.wait_timeout_while(place, self.patience, |place| matches!(place, Place::Wanted)).unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *place, Place::None) {
            Place::Arrived(result) => Ok(result?),
            Place::None | Place::Wanted | Place::Left => {
                *place = Place::Left;
                Err(StoreError::Locked { path: self.path.display().to_string() })
            }
        }
    }
}

impl Row {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the lock, and hands it to whoever wants it then.
    fn wait(&self) {
        let result = self.file.lock();
        let mut place = self.place();
        if matches!(*place, Place::Wanted) {
            *place = Place::Arrived(result);
            self.moved.notify_all();
        } else {
            *place = Place::None;
            if result.is_ok() {
                self.leave();
            }
        }
    }

    fn leave(&self) {
        if let Err(error) = self.file.unlock() {
            tracing::error!(%error, "the write lock could not be given back");
        }
    }
}

/// A turn at writing.
#[cfg(feature = "sqlite")]
#[derive(Debug)]
pub(super) struct Turn(Arc<Row>);

#[cfg(feature = "sqlite")]
impl Drop for Turn {
    fn drop(&mut self) {
        self.0.leave();
    }
}
