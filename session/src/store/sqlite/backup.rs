//! A copy of the whole database as it is at one moment, damage included, beside whoever uses it.
//!
//! By SQLite's own backup, never by reading the file: a process that opens and closes it by itself gives up the locks of all its connections.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    thread,
    time::Duration,
};

use rusqlite::{
    Connection, OpenFlags,
    backup::{Backup, StepResult},
};

use super::{
    error::at,
    schema::{Access, connect},
};
use crate::store::{StoreError, partial};

/// How long whoever holds the file gets before it is asked for again.
const PAUSE: Duration = Duration::from_millis(2);

/// Copies the database to a file that is not there yet, for its owner only, and waits until that is on the disk. It gets its name when it is whole.
pub(super) fn copy(path: &Path, to: &Path) -> Result<(), StoreError> {
    let unfinished = partial::name(to)?;
    drop(OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?);
    let copied = fill(path, &unfinished).and_then(|()| {
        File::open(&unfinished)?.sync_all()?;
        Ok(partial::finish(&unfinished, to)?)
    });
    if copied.is_err() {
        drop(fs::remove_file(&unfinished));
    }
    copied
}

#[expect(clippy::disallowed_methods, reason = "a lock that SQLite does not wait for by itself")]
fn fill(path: &Path, to: &Path) -> Result<(), StoreError> {
    let from = connect(path, Access::Read).map_err(at(path))?;
    let mut copy = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(at(to))?;
    copy.pragma_update(None, "synchronous", "FULL").map_err(at(to))?;
    let backup = Backup::new(&from, &mut copy).map_err(at(to))?;
    // All pages in one step, which is one snapshot and keeps nobody from writing. Between two steps somebody may write, and the copy would begin anew, for ever where
    // somebody writes all the time.
    while backup.step(-1).map_err(at(to))? != StepResult::Done {
        thread::sleep(PAUSE);
    }
    drop(backup);
    copy.close().map_err(|(_, error)| at(to)(error))
}
