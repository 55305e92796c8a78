//! How a store comes to be, and how a file is told to be one.
//!
//! A store is built under another name, synced and closed, then linked into place, so that a kill at any instant leaves either nothing
//! under the store's name or a whole store. The file is only ever opened through SQLite: closing a plain descriptor of it would drop the
//! locks that other connections of this process hold, and with them committed data.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rusqlite::ErrorCode;

use super::{
    error::at,
    schema::{self, APPLICATION_ID, Access, STORE_VERSION, connect},
};
use crate::store::{StoreError, check_filesystem, gate::Gate, plain::open_lock};

/// Returns the path of a file beside the store: its name with a suffix.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Returns the one name of a store, whichever link leads to it, so that everybody finds the same files beside it.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let (folder, name) = split(path)?;
            Ok(fs::canonicalize(folder)?.join(name))
        }
        other => other,
    }
}

/// Creates missing folders above the store, for the owner only.
pub(super) fn make_folders(path: &Path) -> io::Result<()> {
    let (folder, _) = split(path)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let name = path.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "a store needs a file name"))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((folder, name))
}

/// Tells whether a store lies at `path`: `false` if nothing does.
///
/// # Errors
/// [`StoreError::Foreign`] or [`StoreError::Version`] for something else, which is left as it was, with no file beside it.
pub(super) fn probe(path: &Path) -> Result<bool, StoreError> {
    let foreign = |reason: &str| Err(StoreError::Foreign { path: path.display().to_string(), reason: reason.to_owned() });
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if !found.is_file() {
        return foreign("not a regular file");
    }
    if found.len() == 0 {
        return foreign("the file is empty");
    }
    // SQLite refuses a link there without a word of which; our lock would be followed, or waited for.
    for suffix in ["-wal", "-shm", "-lock"] {
        if fs::symlink_metadata(beside(path, suffix)).is_ok_and(|beside| !beside.is_file()) {
            return foreign(&format!("its {suffix} is no regular file"));
        }
    }
    // Our mark is in the first page since birth, so the file alone tells; looking at it as it lies there leaves nothing beside a file that is
    // not ours. Only while a WAL is in use may the file be in the middle of a checkpoint; then it is read with its WAL.
    let mut read = mark(path, if has_wal(path) { Access::Read } else { Access::Still });
    if matches!(&read, Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt)) && has_wal(path) {
        read = mark(path, Access::Read);
    }
    match read {
        Ok((APPLICATION_ID, STORE_VERSION)) => Ok(true),
        Ok((APPLICATION_ID, found)) => Err(StoreError::Version { path: path.display().to_string(), found, known: STORE_VERSION }),
        Ok(_) => foreign("a database of another program"),
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => foreign("not a database"),
            Some(ErrorCode::DatabaseCorrupt) => foreign("the database is cut off or damaged in its first page"),
            _ => Err(at(path)(error)),
        },
    }
}

fn has_wal(path: &Path) -> bool {
    fs::metadata(beside(path, "-wal")).is_ok_and(|wal| wal.len() > 0)
}

fn mark(path: &Path, access: Access) -> rusqlite::Result<(i64, i64)> {
    let conn = connect(path, access)?;
    let id = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok((id, version))
}

/// Creates the store at `path` unless one appears there first.
///
/// The gate is held, so that whatever lies under a temporary name was left by a birth that was killed.
pub(super) fn create(path: &Path, gate: &Gate) -> Result<(), StoreError> {
    let turn = gate.enter()?;
    let made = create_alone(path);
    drop(turn);
    made
}

fn create_alone(path: &Path) -> Result<(), StoreError> {
    let (folder, name) = split(path)?;
    sweep(folder, name)?;
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    // SQLite would take it for the new file's own, and fill that with what the old one had.
    if has_wal(path) {
        let mut wal = name.to_owned();
        wal.push("-wal");
        let reason = format!("the database is gone and its {} is still there; remove that, too, or put the database back", Path::new(&wal).display());
        return Err(StoreError::Foreign { path: path.display().to_string(), reason });
    }
    let mut temporary = prefix(name);
    temporary.push(uuid::Uuid::new_v4().to_string());
    let temporary = folder.join(temporary);
    // SQLite gives the WAL the mode of its database.
    drop(OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?);
    let conn = connect(&temporary, Access::Write)?;
    schema::create(&conn)?;
    conn.close().map_err(|(_, error)| error)?;
    File::open(&temporary)?.sync_all()?;
    match fs::hard_link(&temporary, path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    fs::remove_file(&temporary)?;
    File::open(folder)?.sync_all()?;
    Ok(())
}

fn prefix(name: &OsStr) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".birth.");
    prefix
}

fn sweep(folder: &Path, name: &OsStr) -> io::Result<()> {
    for left in left_in(folder, name)? {
        fs::remove_file(folder.join(left))?;
    }
    Ok(())
}

fn left_in(folder: &Path, name: &OsStr) -> io::Result<Vec<OsString>> {
    let prefix = prefix(name);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes()) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Returns the names of files that births of the store at `path` have left beside it, in order.
pub(super) fn leftovers(path: &Path) -> io::Result<Vec<String>> {
    let (folder, name) = split(path)?;
    let mut found: Vec<String> = left_in(folder, name)?.into_iter().map(|name| name.to_string_lossy().into_owned()).collect();
    found.sort();
    Ok(found)
}

/// Opens the gate of the store at `path`, creating its file if absent.
///
/// SQLite's own waiting is not fair: of eight writers three would never get to write.
pub(super) fn gate(path: &Path) -> io::Result<Gate> {
    Ok(Gate::new(open_lock(&beside(path, "-lock"))?, path))
}

/// Refuses a place where the shared memory of a WAL, or a lock, is not shared by everybody.
pub(super) fn check_place(path: &Path) -> Result<(), StoreError> {
    let (folder, _) = split(path)?;
    check_filesystem(folder)
}
