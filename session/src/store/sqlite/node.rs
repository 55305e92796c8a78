//! Who is alive: the owners of leases.
//!
//! An owner is alive while its process holds a lock on a file of its own and its row in `node` has not run out. The kernel drops the lock
//! when the process dies, so that its leases are free at once; the time limit is for a process that is stopped. Both serve liveness only:
//! whoever is wrongly thought dead is kept from writing by the epoch.

use std::{
    collections::HashMap,
    fs::{self, DirBuilder},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Mutex,
};

use rusqlite::{Connection, OptionalExtension, params};
use rustix::{
    io::Errno,
    time::{ClockId, clock_gettime},
};
use uuid::Uuid;

use super::{birth::beside, log::name};
use crate::{
    id::OwnerId,
    store::{
        StoreError,
        gate::Gate,
        plain::{open_lock, open_plain},
    },
};

/// How long an owner is taken for alive after its last sign of life, in milliseconds.
pub(super) const TTL_MS: i64 = 10_000;

/// Judges who is alive. Writes nothing.
#[derive(Debug, Clone)]
pub(super) struct Liveness {
    folder: PathBuf,
    boot_id: String,
    own: Option<OwnerId>,
}

/// Returns milliseconds of the clock that goes on while the machine sleeps and never goes back.
pub(super) fn boot_time_ms() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.saturating_mul(1_000).saturating_add(now.tv_nsec / 1_000_000)
}

impl Liveness {
    /// Judges for the store at `path`, on behalf of `own` if there is one.
    pub(super) fn new(path: &Path, own: Option<OwnerId>) -> Self {
        // Without a boot id, rows of an earlier boot are told apart by their time alone.
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
        Self { folder: beside(path, "-nodes"), boot_id, own }
    }

    /// Returns the name of this boot.
    pub(super) fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Tells whether `owner` is alive.
    pub(super) fn alive(&self, conn: &Connection, owner: &str) -> rusqlite::Result<bool> {
        if self.own.as_ref().is_some_and(|own| own.as_str() == owner) {
            return Ok(true);
        }
        Ok(self.locked(owner) && self.in_time(conn, owner)?)
    }

    /// Tells which of many owners are alive, asking once for each.
    pub(super) fn alive_cached(&self, conn: &Connection, owner: &str, known: &mut HashMap<String, bool>) -> rusqlite::Result<bool> {
        if let Some(alive) = known.get(owner) {
            return Ok(*alive);
        }
        let alive = self.alive(conn, owner)?;
        known.insert(owner.to_owned(), alive);
        Ok(alive)
    }

    fn file(&self, owner: &str) -> Option<PathBuf> {
        // A name from the database becomes part of a path only if it is one of ours.
        Uuid::parse_str(owner).ok().map(|uuid| self.folder.join(format!("{}.lock", uuid.hyphenated())))
    }

    /// Tells whether an owner's process holds its lock file. Where that cannot be told, as without a descriptor to spare, it may: then time decides.
    fn locked(&self, owner: &str) -> bool {
        let Some(path) = self.file(owner) else { return false };
        match open_plain(&path) {
            Ok(file) => file.try_lock_shared().is_err(),
            Err(error) => !is_nobodys(&error),
        }
    }

    fn in_time(&self, conn: &Connection, owner: &str) -> rusqlite::Result<bool> {
        let row: Option<(String, i64)> = conn
            .prepare_cached("SELECT boot_id, expires_at FROM node WHERE owner = ?1")?
            .query_row([owner], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let now = boot_time_ms();
        Ok(row.is_some_and(|(boot_id, expires_at)| boot_id == self.boot_id && expires_at > now && expires_at <= now + TTL_MS))
    }

    /// Removes the rows and lock files of owners whose processes are gone. Called within a write transaction.
    pub(super) fn bury(&self, conn: &Connection) -> rusqlite::Result<()> {
        if let Err(error) = self.sweep() {
            tracing::debug!(%error, "the lock files of dead processes could not be swept");
        }
        let owners: Vec<String> = conn.prepare_cached("SELECT owner FROM node")?.query_map([], |row| name(row, 0))?.collect::<rusqlite::Result<_>>()?;
        for owner in owners {
            if self.own.as_ref().is_none_or(|own| own.as_str() != owner) && !self.locked(&owner) {
                conn.prepare_cached("DELETE FROM node WHERE owner = ?1")?.execute([owner])?;
            }
        }
        Ok(())
    }

    fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let Some(owner) = path.file_stem().and_then(|stem| stem.to_str()).filter(|stem| Uuid::parse_str(stem).is_ok()) else { continue };
            if self.own.as_ref().is_some_and(|own| own.as_str() == owner) {
                continue;
            }
            // Removed while locked: an owner that is just being born sees that its file is gone and makes another.
            let Ok(file) = open_plain(&path) else { continue };
            if file.try_lock().is_ok() {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

/// Tells whether a lock file could not be opened because there is none, or something that is no file in its place.
fn is_nobodys(error: &io::Error) -> bool {
    // A link, and a socket: open(2).
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO))
}

/// This opening's own sign of life.
#[derive(Debug)]
pub(super) struct Node {
    owner: OwnerId,
    liveness: Liveness,
    path: PathBuf,
    held: Mutex<Option<Gate>>,
}

impl Node {
    /// Takes a new name and locks its file.
    pub(super) fn new(path: &Path) -> Result<Self, StoreError> {
        let owner = OwnerId::from_uuid(Uuid::new_v4());
        let node = Self { liveness: Liveness::new(path, Some(owner.clone())), owner, path: path.to_owned(), held: Mutex::new(None) };
        node.hold()?;
        Ok(node)
    }

    /// Returns the name.
    pub(super) fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// Returns the judge that knows this name.
    pub(super) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// Makes sure that the lock file is there and locked, whatever has become of the folder.
    pub(super) fn hold(&self) -> Result<(), StoreError> {
        let Some(path) = self.liveness.file(self.owner.as_str()) else { return Ok(()) };
        let mut held = self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        loop {
            if let Some(gate) = &*held
                && let Ok(there) = fs::metadata(&path)
                && there.ino() == gate.file().metadata()?.ino()
            {
                return Ok(());
            }
            DirBuilder::new().recursive(true).mode(0o700).create(&self.liveness.folder)?;
            let file = open_lock(&path)?;
            // Others lock it for an instant, to see whether it is free.
            let gate = Gate::new(file, &self.path);
            gate.lock()?;
            *held = Some(gate);
        }
    }

    /// Gives the lock up and removes its file.
    pub(super) fn release(&self) -> io::Result<()> {
        let mut held = self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if held.take().is_some()
            && let Some(path) = self.liveness.file(self.owner.as_str())
        {
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the sign of life. Called within a write transaction.
    pub(super) fn renew(&self, conn: &Connection, batch: i64) -> rusqlite::Result<()> {
        conn.prepare_cached(
            "INSERT INTO node(owner, boot_id, expires_at, batch) VALUES(?1, ?2, ?3, ?4)
             ON CONFLICT(owner) DO UPDATE SET boot_id = ?2, expires_at = ?3, batch = ?4",
        )?
        .execute(params![self.owner.as_str(), self.liveness.boot_id(), boot_time_ms() + TTL_MS, batch])?;
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            tracing::debug!(%error, "the lock file could not be removed; the next process that takes a lease over removes it");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    #[test]
    fn only_who_has_no_lock_file_is_taken_for_dead_where_it_cannot_be_opened() {
        let folder = tempfile::tempdir().unwrap();
        let liveness = Liveness::new(&folder.path().join("desk.db"), None);
        let owner = Uuid::new_v4().to_string();
        let path = liveness.file(&owner).unwrap();
        assert!(!liveness.locked(&owner), "no folder");
        fs::write(&liveness.folder, "").unwrap();
        assert!(!liveness.locked(&owner), "no folder, but a file");
        fs::remove_file(&liveness.folder).unwrap();
        fs::create_dir(&liveness.folder).unwrap();
        assert!(!liveness.locked(&owner), "no file");
        symlink("elsewhere", &path).unwrap();
        assert!(!liveness.locked(&owner), "a link");
        fs::remove_file(&path).unwrap();
        let socket = UnixListener::bind(&path).unwrap();
        assert!(!liveness.locked(&owner), "a socket");
        drop(socket);
        fs::remove_file(&path).unwrap();
        let file = open_lock(&path).unwrap();
        assert!(!liveness.locked(&owner), "a file that nobody has locked");
        file.lock().unwrap();
        assert!(liveness.locked(&owner));
        for unknown in [Errno::MFILE, Errno::NFILE, Errno::ACCESS, Errno::IO, Errno::NOMEM] {
            assert!(!is_nobodys(&unknown.into()), "{unknown}");
        }
    }
}
