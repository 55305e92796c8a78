//! A file's share of a batch, and how it comes to the disk: whole, or not at all, or nobody knows.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    batches::is_damaged,
    birth::new_name,
    disk::{Disk, PLAIN, regular},
    place::{DAMAGED, Place, TORN},
    pool::Pool,
};
use crate::id::SessionId;

/// What is to be written of one session.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: SessionId,
    pub(super) place: Place,
    pub(super) kind: Kind,
    pub(super) bytes: Vec<u8>,
    /// Why it must not be written, if it must not.
    pub(super) spoiled: Option<String>,
    /// The operations of the batch that stand or fall with it.
    pub(super) ops: Vec<usize>,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// The file comes into being.
    Create,
    /// The file, open or not, is `size` bytes long and goes on at `at`. What lies between is torn.
    Append { file: Option<Arc<File>>, at: u64, size: u64 },
}

/// What has become of it.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is on the disk.
    Written(Arc<File>),
    /// Nothing of it is.
    Undone(io::Error),
    /// Nobody knows.
    Unknown(io::Error),
}

/// A file whose bytes are on the disk, perhaps under a name that is not its own yet.
type Staged = (Arc<File>, Option<PathBuf>);

/// Writes the jobs of a batch side by side. The names in a folder are put on the disk too where this opening has not yet seen to that.
pub(super) fn run(disk: &Arc<dyn Disk>, pool: &mut Pool, dir: &Path, jobs: &[Arc<Job>], folders: &mut Folders) -> Vec<Outcome> {
    let tasks = jobs.iter().map(|job| {
        let (disk, job, dir) = (disk.clone(), job.clone(), dir.to_owned());
        Box::new(move || job.stage(&*disk, &dir)) as Box<dyn FnOnce() -> Result<Staged, Outcome> + Send>
    });
    let staged = pool.run(tasks.collect());
    let lost = || Outcome::Unknown(io::Error::other("a thread that waits for the disk has ended"));
    let mut outcomes: Vec<Outcome> = Vec::with_capacity(jobs.len());
    let mut temporaries = Vec::new();
    let mut wanted = BTreeSet::new();
    let mut made = BTreeSet::new();
    for (job, staged) in jobs.iter().zip(staged) {
        let outcome = match staged {
            None => lost(),
            Some(Err(outcome)) => outcome,
            Some(Ok((file, temporary))) => {
                let named = match &temporary {
                    Some(temporary) => job.name(&**disk, dir, temporary, folders, &mut made),
                    None => Ok(()),
                };
                temporaries.extend(temporary);
                match named {
                    Ok(()) => {
                        if matches!(job.kind, Kind::Create) || !folders.safe.contains(&*job.place.folder) {
                            wanted.insert(job.place.folder.clone());
                        }
                        Outcome::Written(file)
                    }
                    // Whatever failed may have happened.
                    Err(error) => match is_named(&file, &job.place.path(dir)) {
                        Ok(false) => Outcome::Undone(error),
                        Ok(true) => job.take_back(&**disk, dir, &file, error),
                        Err(again) => Outcome::Unknown(again),
                    },
                }
            }
        };
        outcomes.push(outcome);
    }
    let own = !made.is_empty() || (folders.own_in_doubt && !wanted.is_empty());
    let failed = sync_names(disk, pool, dir, &wanted, own);
    if own {
        folders.own_in_doubt = failed.contains_key("");
    }
    if !wanted.is_empty() {
        for (job, outcome) in jobs.iter().zip(&mut outcomes) {
            let error = failed.get(&*job.place.folder).or_else(|| failed.get(""));
            if let (Outcome::Written(file), Some(error)) = (&*outcome, error) {
                let error = io::Error::new(error.kind(), error.to_string());
                *outcome = job.take_back(&**disk, dir, &file.clone(), error);
                folders.safe.remove(&job.place.folder);
            }
        }
        folders.safe.extend(wanted.into_iter().filter(|folder| !failed.contains_key(&**folder)));
    }
    for temporary in temporaries {
        if let Err(error) = disk.unlink(&temporary) {
            tracing::debug!(%error, "a second name of a file stays; the next opening removes it");
        }
    }
    outcomes
}

/// Tells whether a file has a name.
pub(super) fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What this opening knows of its folders.
#[derive(Debug, Default)]
pub(super) struct Folders {
    /// Those that are there.
    pub(super) there: BTreeSet<Arc<str>>,
    /// Those whose names this opening has seen safe on the disk.
    pub(super) safe: BTreeSet<Arc<str>>,
    /// Whether the names in the store's own folder may not be safe.
    pub(super) own_in_doubt: bool,
}

/// Puts the names in folders on the disk, and those of new folders; returns what failed by folder, the store's own being `""`.
fn sync_names(disk: &Arc<dyn Disk>, pool: &mut Pool, dir: &Path, folders: &BTreeSet<Arc<str>>, own: bool) -> HashMap<Arc<str>, io::Error> {
    let names: Vec<Arc<str>> = folders.iter().cloned().chain(own.then(|| Arc::from(""))).collect();
    let tasks = names.iter().map(|folder| {
        let (disk, path) = (disk.clone(), if folder.is_empty() { dir.to_owned() } else { dir.join(&**folder) });
        Box::new(move || disk.sync_folder(&path)) as Box<dyn FnOnce() -> io::Result<()> + Send>
    });
    let results = pool.run(tasks.collect());
    let failed = names.into_iter().zip(results).filter_map(|(folder, result)| match result {
        Some(Ok(())) => None,
        Some(Err(error)) => Some((folder, error)),
        None => Some((folder, io::Error::other("a thread that waits for the disk has ended"))),
    });
    failed.collect()
}

impl Job {
    /// Puts the bytes on the disk.
    fn stage(&self, disk: &dyn Disk, dir: &Path) -> Result<Staged, Outcome> {
        if let Some(reason) = &self.spoiled {
            return Err(Outcome::Undone(io::Error::other(reason.clone())));
        }
        match &self.kind {
            Kind::Create => {
                let temporary = new_name(dir);
                let file = disk.create(&temporary).map_err(Outcome::Undone)?;
                match disk.write(&file, 0, &self.bytes).and_then(|()| disk.sync(&file)) {
                    Ok(()) => Ok((Arc::new(file), Some(temporary))),
                    Err(error) => {
                        drop(disk.unlink(&temporary));
                        Err(Outcome::Undone(error))
                    }
                }
            }
            Kind::Append { file, at, size } => {
                let file = match file {
                    Some(file) => file.clone(),
                    None => Arc::new(
                        OpenOptions::new().read(true).write(true).custom_flags(PLAIN).open(self.place.path(dir)).and_then(regular).map_err(Outcome::Undone)?,
                    ),
                };
                if file.metadata().map_err(Outcome::Undone)?.len() != *size {
                    return Err(Outcome::Undone(io::Error::other("somebody else has changed the file")));
                }
                if size > at {
                    self.keep_copy(disk, dir, &file, *at, *size)
                        .and_then(|()| disk.cut(&file, *at))
                        .and_then(|()| disk.sync(&file))
                        .map_err(Outcome::Undone)?;
                }
                let written = if self.bytes.is_empty() { Ok(()) } else { disk.write(&file, *at, &self.bytes) };
                match written.and_then(|()| disk.sync(&file)) {
                    Ok(()) => Ok((file, None)),
                    // What was there before is there still, and nobody knows whether the disk has it.
                    Err(error) if self.bytes.is_empty() => Err(Outcome::Unknown(error)),
                    Err(error) => Err(self.take_back(disk, dir, &file, error)),
                }
            }
        }
    }

    /// Keeps what is about to be cut off in a file beside it: `NAME.torn-OFFSET`, or `NAME.damaged-OFFSET` if it had been written whole.
    fn keep_copy(&self, disk: &dyn Disk, dir: &Path, file: &File, at: u64, size: u64) -> io::Result<()> {
        let mut rest = vec![0; usize::try_from(size - at).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut rest, at)?;
        let damaged = is_damaged(&self.id, &rest);
        let mark = if damaged { DAMAGED } else { TORN };
        let path = self.place.path(dir);
        for number in 1_u32.. {
            let mut name = path.as_os_str().to_owned();
            name.push(if number == 1 { format!("{mark}{at}") } else { format!("{mark}{at}-{number}") });
            match disk.create(Path::new(&name)) {
                Ok(copy) => {
                    disk.write(&copy, 0, &rest)?;
                    disk.sync(&copy)?;
                    disk.sync_folder(path.parent().unwrap_or(Path::new(".")))?;
                    if damaged {
                        tracing::warn!(session = %self.id, kept = ?name, "the last record of a session's file does not fit its checksum and is cut off");
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives a new file its name.
    fn name(&self, disk: &dyn Disk, dir: &Path, temporary: &Path, folders: &mut Folders, made: &mut BTreeSet<Arc<str>>) -> io::Result<()> {
        let folder = &self.place.folder;
        if !folders.there.contains(folder) {
            // Until it is told that it was there, or has come.
            let in_doubt = std::mem::replace(&mut folders.own_in_doubt, true);
            if disk.make_folder(&dir.join(&**folder))? {
                made.insert(folder.clone());
            }
            folders.own_in_doubt = in_doubt;
            folders.there.insert(folder.clone());
        }
        disk.link(temporary, &self.place.path(dir))
    }

    /// Makes as if nothing had been written.
    fn take_back(&self, disk: &dyn Disk, dir: &Path, file: &File, error: io::Error) -> Outcome {
        let taken_back = match &self.kind {
            Kind::Create => disk.unlink(&self.place.path(dir)).and_then(|()| disk.sync_folder(&dir.join(&*self.place.folder))),
            Kind::Append { .. } if self.bytes.is_empty() => return Outcome::Unknown(error),
            Kind::Append { at, .. } => disk.cut(file, *at).and_then(|()| disk.sync(file)),
        };
        match taken_back {
            Ok(()) => Outcome::Undone(error),
            Err(again) => {
                tracing::error!(%error, %again, session = %self.id, "a write failed and could not be taken back");
                Outcome::Unknown(error)
            }
        }
    }
}
