//! The one writer of a folder: whoever holds the lock of its lock file.

use std::{
    io::{Read, Write},
    os::unix::fs::FileExt,
    path::Path,
    time::Duration,
};

use super::{
    birth::LOCK,
    disk::{at, is_irregular, open_regular},
};
use crate::store::{StoreError, gate::Gate, plain::open_lock};

/// How long another writer is waited for: a short command is done by then, and a long one is told of.
const PATIENCE: Duration = Duration::from_secs(2);

/// The lock, held until it is dropped or its process ends.
#[derive(Debug)]
pub(super) struct Lock {
    _gate: Gate,
}

impl Lock {
    /// Takes the lock of the store at `dir`.
    ///
    /// # Errors
    /// [`StoreError::OneWriter`] if another process does not let go of it; [`StoreError::Foreign`] if something else has its place.
    pub(super) fn take(dir: &Path) -> Result<Self, StoreError> {
        Self::take_within(dir, PATIENCE)
    }

    pub(super) fn take_within(dir: &Path, patience: Duration) -> Result<Self, StoreError> {
        let path = dir.join(LOCK);
        let file = match open_lock(&path) {
            Ok(file) => file,
            // It is written to, so whatever a link leads to would lose what it says.
            Err(error) if is_irregular(&error) => {
                return Err(StoreError::Foreign { path: dir.display().to_string(), reason: format!("its {LOCK} is no regular file") });
            }
            Err(error) => return Err(at(&path)(error).into()),
        };
        let mut gate = Gate::new(file, dir);
        gate.patience = patience;
        match gate.lock() {
            Ok(()) => {}
            Err(StoreError::Locked { .. }) => return Err(StoreError::OneWriter { path: dir.display().to_string(), holder: holder(&path) }),
            Err(error) => return Err(error),
        }
        // Told to whoever waits in vain; nothing else reads it.
        let text = format!("{}\n", std::process::id());
        gate.file().set_len(0)?;
        gate.file().write_all_at(text.as_bytes(), 0)?;
        gate.file().flush()?;
        Ok(Self { _gate: gate })
    }
}

/// Returns the process that has written its number into the lock file.
fn holder(path: &Path) -> String {
    let mut said = String::new();
    let read = open_regular(path).and_then(|file| file.take(32).read_to_string(&mut said));
    if let Err(error) = read {
        tracing::debug!(%error, "the number of the writer's process cannot be read");
    }
    said.trim().parse::<u32>().map_or_else(|_| "(unknown)".to_owned(), |pid| pid.to_string())
}
