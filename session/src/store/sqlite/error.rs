//! What SQLite's errors mean here.

use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use crate::{
    codec::EncodeError,
    head::FoldError,
    store::{ExportError, LoadError, Refused, StoreError},
};

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        // The index of the log, a file in memory that others share, finds no room on its disk.
        let no_index = error.sqlite_error().is_some_and(|cause| cause.extended_code == ffi::SQLITE_IOERR_SHMSIZE);
        match error.sqlite_error_code() {
            _ if no_index => Self::Full(Box::new(error)),
            Some(ErrorCode::DiskFull) => Self::Full(Box::new(error)),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged(error.to_string()),
            _ => Self::Io(Box::new(error)),
        }
    }
}

/// Says of an error of SQLite what it means for the store at `path`, also that somebody holds a lock of it.
pub(super) fn at(path: &Path) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy) => StoreError::Locked { path: path.display().to_string() },
        _ => error.into(),
    }
}

impl From<rusqlite::Error> for LoadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<rusqlite::Error> for ExportError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Load(error.into())
    }
}

/// Why an operation stops: it is refused, or the whole batch has failed.
#[derive(Debug)]
pub(super) enum Stop {
    /// Nothing of the operation was written; the batch goes on.
    Refused(Refused),
    /// The storage failed; the batch is rolled back.
    Failed(StoreError),
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<FoldError> for Stop {
    fn from(error: FoldError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<EncodeError> for Stop {
    fn from(error: EncodeError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<LoadError> for Stop {
    /// A session that cannot be read is refused alone; its neighbours go on.
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::NotFound(session) => Self::Refused(Refused::NotFound(session)),
            LoadError::Removed(session) => Self::Refused(Refused::Removed(session)),
            LoadError::Corrupt { session, place, source } => Self::Refused(Refused::Corrupt { session, reason: format!("{place}: {source}") }),
            LoadError::Fold { session, source } => Self::Refused(Refused::Corrupt { session, reason: source.to_string() }),
            LoadError::Store(error) => Self::Failed(error),
        }
    }
}
