//! How a folder becomes a store, and how it is told to be one.
//!
//! The marker `_greenroom.json` is written under another name, synced and linked into place, so that a kill at any instant leaves a folder that is empty
//! but for what the next birth sweeps away, or a store. No session's file or folder gets a name that begins with `_`, `_root` excepted.

use std::{
    fs::{self, DirBuilder},
    io::{ErrorKind, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::disk::{Device, Disk, at, is_irregular, open_regular};
use crate::store::StoreError;

/// The marker's name.
pub(crate) const MARKER: &str = "_greenroom.json";
/// The lock file's name.
pub(super) const LOCK: &str = "_lock";
/// What a file that is being written begins with.
pub(super) const NEW: &str = "_new-";

const KIND: &str = "greenroom-sessions";
const VERSION: u64 = 1;
/// A marker is a short line; what is longer is none.
const MAX_MARKER: u64 = 4096;

#[derive(Serialize, Deserialize)]
struct Marker {
    kind: String,
    version: u64,
}

/// What lies at a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// A folder without anything in it that is not a birth's own.
    Empty,
    /// A store.
    Store,
}

/// Makes the folder and those above it, for the owner only, and puts their names on the disk.
pub(super) fn make_folders(dir: &Path) -> Result<(), StoreError> {
    let mut missing: Vec<&Path> = dir.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
    while let Some(folder) = missing.pop() {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
            _ => {}
        }
        let above = folder.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Device.sync_folder(above)?;
    }
    Ok(())
}

/// Tells what lies at a path. Changes nothing.
///
/// # Errors
/// [`StoreError::Foreign`] or [`StoreError::Version`] for something that is no store of ours.
pub(super) fn probe(dir: &Path) -> Result<Found, StoreError> {
    let path = || dir.display().to_string();
    let foreign = |reason: &str| StoreError::Foreign { path: path(), reason: reason.to_owned() };
    match fs::metadata(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error.into()),
        Ok(found) if !found.is_dir() => return Err(foreign("not a folder")),
        Ok(_) => {}
    }
    let marker = match open_regular(&dir.join(MARKER)) {
        Ok(marker) => marker,
        Err(error) if is_irregular(&error) => return Err(foreign("its marker is no regular file")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            for entry in fs::read_dir(dir)? {
                let name = entry?.file_name();
                if name != LOCK && !name.as_encoded_bytes().starts_with(NEW.as_bytes()) {
                    // Somebody else may have made a store of it since the marker was looked for.
                    let born = fs::symlink_metadata(dir.join(MARKER)).is_ok();
                    return if born { probe(dir) } else { Err(foreign("the folder has other things in it")) };
                }
            }
            return Ok(Found::Empty);
        }
        Err(error) => return Err(error.into()),
    };
    let mut text = String::new();
    if marker.take(MAX_MARKER).read_to_string(&mut text).is_err() {
        return Err(foreign("its marker is no text"));
    }
    match serde_json::from_str::<Marker>(&text) {
        Ok(Marker { kind, version: VERSION }) if kind == KIND => Ok(Found::Store),
        Ok(Marker { kind, version }) if kind == KIND => {
            Err(StoreError::Version { path: path(), found: i64::try_from(version).unwrap_or(i64::MAX), known: VERSION.cast_signed() })
        }
        _ => Err(foreign("its marker is not one of ours")),
    }
}

/// Makes a store of an empty folder. The lock is held.
pub(super) fn create(dir: &Path) -> Result<(), StoreError> {
    let marker = Marker { kind: KIND.into(), version: VERSION };
    let mut text = serde_json::to_vec(&marker).map_err(|error| StoreError::Io(Box::new(error)))?;
    text.push(b'\n');
    let temporary = new_name(dir);
    let mut file = Device.create(&temporary)?;
    file.write_all(&text)?;
    file.sync_all()?;
    match Device.link(&temporary, &dir.join(MARKER)) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    Device.unlink(&temporary)?;
    Device.sync_folder(dir)?;
    Ok(())
}

/// Returns a name for a file that is not finished.
pub(super) fn new_name(dir: &Path) -> PathBuf {
    dir.join(format!("{NEW}{}", uuid::Uuid::new_v4()))
}

/// Removes what a writer that was killed has left unfinished. The lock is held. A writer leaves files only; what else has such a name stays.
pub(super) fn sweep(dir: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let ours = |beginning: &str| name.as_encoded_bytes().starts_with(beginning.as_bytes());
        if (ours(NEW) || ours(super::held::HELD)) && !entry.file_type()?.is_dir() {
            fs::remove_file(entry.path()).map_err(at(&entry.path()))?;
        }
    }
    Ok(())
}
