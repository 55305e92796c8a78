//! Sessions to a folder of files and back: backups, moves to another store, sessions to show to somebody.
//!
//! An export has one file per session, laid out as [`place`](crate::place) says and written as `docs/log-format.md` section 7 says. Nothing is exported by halves:
//! a file has its name when all of it is on the disk. Nothing is imported by halves: a session is one transaction. A run that was killed is run again.
//!
//! - `export`: out. `import`: in. `file`: how a session's file is read. `lines`: a file, line by line. `tree`: who stands below whom.
//!
//! Trouble with one session is a value, and the others go on; trouble with the store or the folder is an error.

use std::path::PathBuf;

mod export;
mod file;
mod import;
mod lines;
mod tree;

pub use export::{ExportReport, ExportTrouble, export_folder};
pub use file::{FileError, FileFlaw};
pub use import::{ImportReport, ImportTrouble, import_folder};
pub use tree::{below, everything};

use crate::store::{CommitError, StoreError};

/// How far a transfer has come.
///
/// ```
/// use greenroom_session::{store::{Store, memory::MemoryStore}, transfer::{Progress, export_folder}};
/// let folder = tempfile::tempdir()?;
/// let mut seen = Vec::new();
/// let mut reader = MemoryStore::new().reader()?;
/// export_folder(&mut *reader, &[], &folder.path().join("backup"), &mut |progress| seen.push(progress))?;
/// assert_eq!(seen, [Progress { sessions: 0, of_sessions: 0, bytes: 0, of_bytes: 0 }]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Sessions that are done, well or not.
    pub sessions: u64,
    /// How many there are.
    pub of_sessions: u64,
    /// Bytes that were read or written.
    pub bytes: u64,
    /// How many there are, as far as is known; 0 for an export.
    pub of_bytes: u64,
}

/// Why a transfer as a whole did not come to its end. What was done is done; the same again goes on.
///
/// ```
/// use greenroom_session::{store::memory::MemoryStore, transfer::{TransferError, import_folder}};
/// let folder = tempfile::tempdir()?;
/// let error = import_folder(&MemoryStore::new(), &folder.path().join("nothing"), false, &mut |_| ()).unwrap_err();
/// assert!(matches!(error, TransferError::Missing(_)));
/// assert_eq!(error.code(), "FOLDER_NOT_FOUND");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// There is no such folder.
    #[error("there is no folder {}", .0.display())]
    Missing(PathBuf),
    /// The folder is a store of JSON Lines, which only that store writes.
    #[error("{} is a store; import into it instead", .0.display())]
    IsStore(PathBuf),
    /// The folder, or a file in it, cannot be used.
    #[error("{} cannot be used", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store cannot be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl TransferError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing(_) => "FOLDER_NOT_FOUND",
            Self::IsStore(_) => "FOLDER_IS_STORE",
            Self::Folder { .. } => "FOLDER_FAILED",
            Self::Store(error) => error.code(),
            Self::Commit(error) => error.code(),
        }
    }

    /// Says of an error of the file system where it came from.
    fn at(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        |source| Self::Folder { path, source }
    }
}
