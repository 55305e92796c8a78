//! The one writer of a folder: whoever holds the lock of its lock file.

use std::{fs, io::Write, os::unix::fs::FileExt, path::Path, time::Duration};

use super::birth::LOCK;
use crate::store::{StoreError, gate::Gate};

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
    /// [`StoreError::OneWriter`] if another process does not let go of it.
    pub(super) fn take(dir: &Path) -> Result<Self, StoreError> {
        Self::take_within(dir, PATIENCE)
    }

    pub(super) fn take_within(dir: &Path, patience: Duration) -> Result<Self, StoreError> {
        let path = dir.join(LOCK);
        let mut gate = Gate::open(&path, dir)?;
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
    let said = fs::read_to_string(path).unwrap_or_default();
    said.trim().parse::<u32>().map_or_else(|_| "(unknown)".to_owned(), |pid| pid.to_string())
}
