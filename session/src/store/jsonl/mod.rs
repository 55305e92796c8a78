//! The store in a folder of JSON Lines: one readable file per session, written by one process at a time.
//!
//! A session's file is `DIR/PARENT/ID.jsonl`, `_root` standing for the parent of roots. Beside the folders lie `_greenroom.json` (the marker), `_lock`
//! (whoever writes holds it) and, while a writer has sessions live, `_held-OWNER`. `docs/log-format.md` has the lines; this is how they get there:
//!
//! - `birth`: how a folder becomes a store, and how another one is refused. `lock`: the one writer. `held`: which sessions it has live.
//! - `scan`: what a file says; `text`, `batches`: its bytes, and where its whole batches end. `stamp`, `view`, `bounded`: what is remembered of files. `index`, `place`, `siblings`: which files there are, and in which order.
//! - `writer`, `write`: batches. `whole`: imports, releases, removals and exports. `shelf`: the sessions that the writer knows. `job`, `pool`, `disk`: how bytes come to the disk.
//! - `read`: the reader. `check`: verifying files.

use std::{
    fmt, fs,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};

use super::{CommitError, Done, Op, Reader, Refused, Store, StoreError, check_filesystem};
use crate::{
    id::{OwnerId, SessionId},
    repair::Quarantine,
};

mod batches;
mod birth;
mod bounded;
mod check;
mod disk;
mod held;
mod index;
mod job;
mod lock;
mod mend;
mod place;
mod pool;
mod read;
mod scan;
mod shelf;
mod siblings;
#[cfg(test)]
mod size;
mod stamp;
#[cfg(test)]
mod tests;
mod text;
mod view;
mod whole;
mod write;
mod writer;

pub(crate) use birth::MARKER;
pub(crate) use index::REMOVED;
pub use read::JsonlReader;

use birth::Found;
use disk::{Device, Disk};
use held::Held;
use lock::Lock;
use view::View;
use writer::Writer;

/// A store in a folder of JSON Lines. Clones share one opening.
///
/// ```
/// use greenroom_session::{header::NewSession, id::SessionId, store::{Create, Op, Store, jsonl::JsonlStore}};
/// let folder = tempfile::tempdir()?;
/// let store = JsonlStore::open(folder.path())?;
/// let create = Create::root(NewSession::root(SessionId::new("root")?), "editor", "launch story");
/// store.commit(&[Op::Create(create)])?.remove(0)?;
/// let text = std::fs::read_to_string(folder.path().join("_root/root.jsonl"))?;
/// assert_eq!(text.lines().count(), 3); // the header, root/opened, session/end-seed
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct JsonlStore {
    view: Arc<View>,
    writer: Arc<Mutex<Writer>>,
    owner: OwnerId,
}

impl fmt::Debug for JsonlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonlStore").field("dir", &self.view.dir).finish_non_exhaustive()
    }
}

impl JsonlStore {
    /// Opens the store in the folder `dir`, making it and the folders above it if absent. Waits up to two seconds for another writer to end.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] or [`StoreError::Version`] if something else lies there, which stays as it was; [`StoreError::OneWriter`] if another
    /// process writes to it; other [`StoreError`]s if the folder cannot be used.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, StoreError> {
        if birth::probe(dir.as_ref())? == Found::Nothing {
            birth::make_folders(dir.as_ref())?;
        }
        Self::open_with(dir.as_ref(), Arc::new(Device))
    }

    /// Opens the store in the folder `dir`.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none, and as [`JsonlStore::open`].
    pub fn open_existing(dir: impl AsRef<Path>) -> Result<Self, StoreError> {
        require(dir.as_ref())?;
        Self::open_with(dir.as_ref(), Arc::new(Device))
    }

    fn open_with(dir: &Path, disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        // One name, whichever link leads to it.
        let dir = fs::canonicalize(dir)?;
        check_filesystem(&dir)?;
        birth::probe(&dir)?;
        let lock = Lock::take(&dir)?;
        if birth::probe(&dir)? != Found::Store {
            birth::create(&dir)?;
        }
        let owner = OwnerId::from_uuid(uuid::Uuid::new_v4());
        let held = Arc::new(Held::new(&dir, &owner));
        let view = Arc::new(View::new(dir, Some((owner.clone(), held.clone()))));
        let writer = Writer::new(view.clone(), held, owner.clone(), disk, lock)?;
        Ok(Self { view, writer: Arc::new(Mutex::new(writer)), owner })
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        match self.writer.lock() {
            Ok(writer) => writer,
            Err(poisoned) => {
                // A panic has cut a batch off. What it has changed in memory only is not to be built upon.
                let mut writer = poisoned.into_inner();
                writer.forget();
                self.view.forget_writing();
                self.writer.clear_poison();
                writer
            }
        }
    }
}

/// Opens the store in the folder `dir` for reading only: nothing in it is changed, whoever writes to it.
///
/// # Errors
/// [`StoreError::Missing`] if there is none; [`StoreError::Foreign`] or [`StoreError::Version`] for something else.
pub fn open_reader(dir: impl AsRef<Path>) -> Result<JsonlReader, StoreError> {
    require(dir.as_ref())?;
    Ok(JsonlReader::new(Arc::new(View::new(fs::canonicalize(dir)?, None))))
}

fn require(dir: &Path) -> Result<(), StoreError> {
    match birth::probe(dir)? {
        Found::Store => Ok(()),
        Found::Nothing | Found::Empty => Err(StoreError::Missing { path: dir.display().to_string() }),
    }
}

impl Store for JsonlStore {
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        self.writer().commit(ops)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(JsonlReader::new(self.view.clone())))
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn owner(&self) -> &OwnerId {
        &self.owner
    }

    fn backup(&self, to: &Path, sessions: &[SessionId]) -> Result<(), StoreError> {
        mend::backup(&self.view, to, sessions)
    }

    fn cut_tail(&self, id: &SessionId) -> Result<bool, StoreError> {
        self.writer().cut_tail(id)
    }

    fn quarantine(&self, id: &SessionId, quarantine: &Quarantine) -> Result<bool, StoreError> {
        self.writer().quarantine(id, quarantine)
    }

    fn close(&self) -> Result<(), StoreError> {
        self.writer().close()
    }
}
