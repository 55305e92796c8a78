//! The store in one SQLite file, shared by the processes of one machine.
//!
//! A batch is one transaction with one sync (`WAL`, `synchronous=FULL`). Beside the file `FILE` lie SQLite's own `FILE-wal` and `FILE-shm`,
//! `FILE-lock` (writers stand in a row there) and `FILE-nodes/` (one locked file per live owner); `FILE-guards/`, with a locked file per command that
//! runs, belongs to whoever runs commands and not to the store.
//!
//! - `birth`: how the file comes to be, and how another one is refused. `schema`: the tables.
//! - `writer`: transactions, one process after the other. `write`, `claim`: the operations in them. `kept`: what is remembered between them. `node`: who is alive.
//! - `log`: the ground truth of a session. `summary`, `family`, `tally`: what is derived from it and may be lost at any time.
//! - `read`, `describe`, `export`: the reader. `transfer`: whole sessions, in and away. `check`, `audit`: verifying a session, and what belongs to none.
//!   `rebuild`: deriving again what is derived.

use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{CommitError, Done, Op, Reader, Refused, Store, StoreError};
use crate::{
    check::Rebuilt,
    id::{OwnerId, SessionId},
    repair::Quarantine,
};

mod audit;
mod backup;
mod birth;
mod check;
mod claim;
mod describe;
mod error;
mod export;
mod family;
mod kept;
mod log;
mod node;
mod order;
mod read;
mod rebuild;
mod scan;
mod schema;
#[cfg(test)]
mod size;
mod summary;
mod tally;
#[cfg(test)]
mod tests;
mod transfer;
mod write;
mod writer;

pub use read::SqliteReader;

use node::{Liveness, Node};
use writer::Writer;

/// A store in a SQLite file. Clones share one opening.
///
/// ```
/// use greenroom_session::store::{Store, sqlite::SqliteStore};
/// let folder = tempfile::tempdir()?;
/// let store = SqliteStore::open(folder.path().join("store.db"))?;
/// assert!(store.reader()?.find("", 10)?.is_empty());
/// store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SqliteStore {
    path: Arc<Path>,
    writer: Arc<Mutex<Writer>>,
    node: Arc<Node>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store at `path`, creating it and the folders above it if absent.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] or [`StoreError::Version`] if something else lies there, which stays as it was; [`StoreError::Locked`] if another
    /// process does not let go of it; other [`StoreError`]s if the file cannot be used.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        schema::check_library()?;
        birth::make_folders(path.as_ref())?;
        let path = birth::resolve(path.as_ref())?;
        birth::check_place(&path)?;
        if !birth::probe(&path)? {
            birth::create(&path, &birth::gate(&path)?)?;
        }
        Self::open_resolved(&path)
    }

    /// Opens the store at `path`.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none, and as [`SqliteStore::open`].
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        schema::check_library()?;
        let path = existing(path.as_ref())?;
        birth::check_place(&path)?;
        Self::open_resolved(&path)
    }

    fn open_resolved(path: &Path) -> Result<Self, StoreError> {
        if !birth::probe(path)? {
            return Err(missing(path));
        }
        let node = Arc::new(Node::new(path)?);
        let writer = Writer::new(path.to_owned(), birth::gate(path)?, node.clone())?;
        Ok(Self { path: path.into(), writer: Arc::new(Mutex::new(writer)), node })
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A batch that a panic cut off is rolled back by the next.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the store at `path` for reading only: no lease can be taken, and nothing is written to the store.
///
/// # Errors
/// [`StoreError::Missing`] if there is none, and as [`SqliteStore::open`].
pub fn open_reader(path: impl AsRef<Path>) -> Result<SqliteReader, StoreError> {
    schema::check_library()?;
    let path = existing(path.as_ref())?;
    if !birth::probe(&path)? {
        return Err(missing(&path));
    }
    let liveness = Liveness::new(&path, None);
    SqliteReader::open(&path, liveness)
}

fn existing(path: &Path) -> Result<std::path::PathBuf, StoreError> {
    match birth::resolve(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(missing(path)),
        other => Ok(other?),
    }
}

fn missing(path: &Path) -> StoreError {
    StoreError::Missing { path: path.display().to_string() }
}

impl Store for SqliteStore {
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        self.writer().commit(ops)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(SqliteReader::open(&self.path, self.node.liveness().clone())?))
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn owner(&self) -> &OwnerId {
        self.node.owner()
    }

    fn heartbeat(&self) -> Result<(), StoreError> {
        self.writer().heartbeat()
    }

    fn poll(&self) -> Result<Vec<SessionId>, StoreError> {
        self.writer().poll()
    }

    fn rebuild_index(&self, only: Option<&SessionId>, see: &mut dyn FnMut(Rebuilt)) -> Result<(), StoreError> {
        let mut reader = SqliteReader::open(&self.path, self.node.liveness().clone())?;
        rebuild::rebuild(&mut reader, only, &mut |work| self.writer().derive(work), see)
    }

    fn backup(&self, to: &Path, _: &[SessionId]) -> Result<(), StoreError> {
        backup::copy(&self.path, to)
    }

    fn quarantine(&self, id: &SessionId, quarantine: &Quarantine) -> Result<bool, StoreError> {
        let mut done = false;
        self.writer().derive(&mut |conn| {
            done = rebuild::quarantine(conn, self.node.liveness(), id, quarantine)?;
            Ok(())
        })?;
        Ok(done)
    }

    fn close(&self) -> Result<(), StoreError> {
        self.writer().close()
    }
}
