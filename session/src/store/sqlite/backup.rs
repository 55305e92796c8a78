//! A copy of the whole database as it is at one moment, damage included, beside whoever uses it.
//!
//! By SQLite's own backup, never by reading the file: a process that opens and closes it by itself gives up the locks of all its connections.

use std::{fs::OpenOptions, os::unix::fs::OpenOptionsExt, path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags, backup::Backup};

use super::{
    error::at,
    schema::{Access, connect},
};
use crate::store::StoreError;

/// Pages that are copied at a time, so that writers get their turn.
const PAGES: i32 = 4_096;

/// How long they get.
const PAUSE: Duration = Duration::from_millis(2);

/// Copies the database to a file that is not there yet, for its owner only, and waits until that is on the disk.
pub(super) fn copy(path: &Path, to: &Path) -> Result<(), StoreError> {
    drop(OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?);
    let from = connect(path, Access::Read).map_err(at(path))?;
    let mut copy = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(at(to))?;
    copy.pragma_update(None, "synchronous", "FULL").map_err(at(to))?;
    let backup = Backup::new(&from, &mut copy).map_err(at(to))?;
    // Between two steps, and while somebody holds the file, others get their turn.
    backup.run_to_completion(PAGES, PAUSE, None).map_err(at(to))?;
    drop(backup);
    copy.close().map_err(|(_, error)| at(to)(error))?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(std::fs::File::open(folder)?.sync_all()?)
}
