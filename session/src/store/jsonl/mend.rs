//! What a repair does to files: a torn end is cut off, a session is quarantined, and what will be touched is copied first.
//!
//! A session is quarantined by a file `NAME.jsonl.quarantine` beside its own, which says when and for what. Whoever describes the session, or would write to it, looks
//! there; whoever reads its records does not.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    birth::new_name,
    disk::{Disk, open_regular},
    job::{self, Job, Kind, Outcome},
    place::{Place, QUARANTINE},
    view::View,
    writer::Writer,
};
use crate::{
    codec::DecodeError,
    id::SessionId,
    place::EXTENSION,
    repair::Quarantine,
    store::{StoreError, partial},
};

/// Longest mark that is read. One names some classes.
const MAX_MARK: u64 = 64 * 1024;

fn mark(dir: &Path, place: &Place) -> PathBuf {
    dir.join(&*place.folder).join(format!("{}{EXTENSION}{QUARANTINE}", place.stem))
}

/// Tells whether a session is quarantined. A mark that cannot be read is one all the same.
pub(super) fn quarantine(dir: &Path, place: &Place) -> io::Result<Option<Quarantine>> {
    let path = mark(dir, place);
    let read = || {
        let file = open_regular(&path).ok().filter(|file| file.metadata().is_ok_and(|found| found.len() <= MAX_MARK))?;
        serde_json::from_reader(file).ok()
    };
    match fs::symlink_metadata(&path) {
        Ok(_) => Ok(Some(read().unwrap_or_else(|| Quarantine { at: 0, found: vec!["something".to_owned()] }))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidFilename) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Says of a quarantined session what is wrong with it.
pub(super) fn disowned(quarantine: &Quarantine) -> DecodeError {
    DecodeError::Quarantined(quarantine.to_string())
}

/// Copies the files of sessions into a folder that is not there yet, each under its own name in its own folder. The folder gets its name when it is whole.
pub(super) fn backup(view: &View, to: &Path, sessions: &[SessionId]) -> Result<(), StoreError> {
    let unfinished = partial::name(to)?;
    DirBuilder::new().mode(0o700).create(&unfinished)?;
    let copied = fill(view, &unfinished, sessions).and_then(|()| partial::finish(&unfinished, to));
    if copied.is_err() {
        drop(fs::remove_dir_all(&unfinished));
    }
    Ok(copied?)
}

fn fill(view: &View, to: &Path, sessions: &[SessionId]) -> io::Result<()> {
    for id in sessions {
        for place in view.places(&crate::place::name_of(id))? {
            let (from, copy) = (place.path(&view.dir), place.path(to));
            let parent = to.join(&*place.folder);
            match DirBuilder::new().mode(0o700).create(&parent) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(copy)?;
            io::copy(&mut open_regular(&from)?, &mut target)?;
            target.sync_all()?;
            File::open(parent)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()
}

impl Writer {
    /// Cuts off what lies behind the last whole batch of a session's file.
    pub(super) fn cut_tail(&mut self, id: &SessionId) -> Result<bool, StoreError> {
        let slot = match self.slot(id) {
            Ok(slot) => slot,
            Err(refused) => return Err(StoreError::Io(Box::new(refused))),
        };
        if slot.size <= slot.length || !slot.again.is_empty() {
            return Ok(false);
        }
        let kind = Kind::Append { file: None, at: slot.length, size: slot.size };
        let job = Job { id: id.clone(), place: slot.place.clone(), kind, bytes: Vec::new(), spoiled: None, ops: Vec::new() };
        self.shelf.drop(id);
        let (disk, dir) = (self.disk.clone(), self.view.dir.clone());
        let outcome = job::run(&disk, &mut self.pool, &dir, &[Arc::new(job)], &mut self.folders).pop();
        match outcome {
            Some(Outcome::Written(_)) => Ok(true),
            Some(Outcome::Undone(error) | Outcome::Unknown(error)) => Err(error.into()),
            None => Ok(false),
        }
    }

    /// Tells whether a session that has one file is quarantined.
    pub(super) fn is_quarantined(&self, id: &SessionId) -> io::Result<bool> {
        match &*self.view.places(&crate::place::name_of(id))? {
            [place] => Ok(quarantine(&self.view.dir, place)?.is_some()),
            _ => Ok(false),
        }
    }

    /// Puts these bytes in the place of the file of a quarantined session, and takes the mark away. Cut off in between, the session is quarantined
    /// still, and the same again finishes.
    pub(super) fn replace(&mut self, id: &SessionId, place: &Place, bytes: &[u8]) -> io::Result<()> {
        let (disk, folder) = (self.disk.clone(), self.view.dir.join(&*place.folder));
        let temporary = new_name(&self.view.dir);
        let written = disk.create(&temporary).and_then(|file| disk.write(&file, 0, bytes).and_then(|()| disk.sync(&file)));
        let placed = written.and_then(|()| disk.rename(&temporary, &place.path(&self.view.dir))).and_then(|()| disk.sync_folder(&folder));
        if let Err(error) = placed {
            drop(disk.unlink(&temporary));
            return Err(error);
        }
        disk.unlink(&mark(&self.view.dir, place))?;
        disk.sync_folder(&folder)?;
        self.shelf.drop(id);
        self.families.remove(&place.folder);
        self.view.taken_back(place, id);
        Ok(())
    }

    /// Quarantines a session.
    pub(super) fn quarantine(&mut self, id: &SessionId, quarantine: &Quarantine) -> Result<bool, StoreError> {
        let places = self.view.places(&crate::place::name_of(id))?;
        let [place] = &*places else { return Ok(false) };
        let mut text = serde_json::to_vec(quarantine).map_err(|error| StoreError::Io(Box::new(error)))?;
        text.push(b'\n');
        let (temporary, mark) = (new_name(&self.view.dir), mark(&self.view.dir, place));
        let disk: &dyn Disk = &*self.disk;
        let written = disk.create(&temporary).and_then(|file| disk.write(&file, 0, &text).and_then(|()| disk.sync(&file)));
        let named = written.and_then(|()| match disk.link(&temporary, &mark) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            other => other,
        });
        if let Err(error) = disk.unlink(&temporary) {
            tracing::debug!(%error, "a second name of a file stays; the next opening removes it");
        }
        named?;
        disk.sync_folder(&self.view.dir.join(&*place.folder))?;
        self.shelf.drop(id);
        // Its alias is free, as it is to whoever opens the store next.
        self.families.remove(&place.folder);
        self.view.taken_back(place, id);
        // Whoever has read the file before looks again: to them it has changed. It is quarantined all the same where the file is another's and takes no time from us.
        let path = place.path(&self.view.dir);
        if let Err(error) = open_regular(&path).and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(quarantine.at))) {
            tracing::warn!(path = %path.display(), %error, "a quarantine may show to readers that are open already only when they are opened again");
        }
        Ok(true)
    }
}
