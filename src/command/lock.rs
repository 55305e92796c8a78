//! The lock file: one run at a time, and the request of that run.
//!
//! The lock is an `flock`. It belongs to the open file, so it stays taken for as long as any
//! process holds a copy of the descriptor, whoever took it. Waiting is bounded and never blocks
//! a thread of the runtime.
//!
//! The file goes with the run. Who holds its lock through a descriptor of its own, not a copy,
//! may remove it: then nobody else does. Besides, whoever may end what holds it may take it away, see
//! [`super::ranked`]. Who took the lock of a file that has been removed meanwhile holds nothing, and begins again.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::CommandError;
use super::run::blocking;

/// How long a run waits at least for the one before it to let go of the lock.
pub(super) const WAIT: Duration = Duration::from_secs(10);

/// The first pause between two tries. A dying group is usually gone within it.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The pauses between tries to remove the file. What still holds it then is a process that left the
/// group and is killed for it; or one that is just being started and has not closed its
/// copies of all descriptors yet, or one that is just dying, which take milliseconds.
const REMOVE_PAUSES_MS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// How long somebody waits, in pauses that grow.
pub(super) struct Patience<'a> {
    started: Instant,
    wait: Duration,
    pause: Duration,
    cancel: &'a CancellationToken,
}

impl<'a> Patience<'a> {
    /// Begins to wait, for `wait` at most.
    pub(super) fn new(wait: Duration, cancel: &'a CancellationToken) -> Self {
        Self { started: Instant::now(), wait, pause: FIRST_PAUSE, cancel }
    }

    /// Returns how long it has been.
    pub(super) fn waited(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits a little for whoever holds `lock`.
    ///
    /// # Errors
    /// `StillRunning` when the time is over, `Cancelled`.
    pub(super) async fn pause(&mut self, lock: &Path) -> Result<(), CommandError> {
        let waited = self.waited();
        if waited >= self.wait {
            return Err(CommandError::StillRunning { lock: lock.to_owned(), waited: self.wait });
        }
        tokio::select! {
            () = self.cancel.cancelled() => return Err(CommandError::Cancelled),
            () = sleep(self.pause.min(self.wait.saturating_sub(waited))) => {}
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct RunLock {
    path: PathBuf,
    file: File,
}

impl RunLock {
    /// Takes the lock, waiting for the run that holds it.
    ///
    /// Creates the file (mode 0600) and its folder (mode 0700).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the wait and takes nothing.
    pub(super) async fn acquire(path: &Path, patience: &mut Patience<'_>) -> Result<Self, CommandError> {
        let mut opened = None;
        loop {
            match Self::attempt(path, opened).await? {
                Attempt::Taken(lock) => return Ok(lock),
                Attempt::Held(file) => opened = Some(file),
            }
            patience.pause(path).await?;
        }
    }

    /// Tries once to take the lock, of the file that was opened before if there is one.
    pub(super) async fn attempt(path: &Path, opened: Option<File>) -> Result<Attempt, CommandError> {
        let owned = path.to_owned();
        blocking(move || try_acquire(&owned, opened)).await?.map_err(CommandError::io(format!("lock {}", path.display())))
    }

    /// Returns where the file is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Tells whether the file is still there: nobody has taken it away.
    pub(super) fn is_there(&self) -> io::Result<bool> {
        is_at(&self.path, &self.file)
    }

    /// Gives the lock back and removes its file, unless something else still holds it: what is left
    /// of the run, or the next run.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the file, which is as good as none.
    pub(crate) async fn remove(mut self) {
        let mark = Uuid::new_v4().into_bytes();
        let marked = self.fill(&mark).is_ok();
        let Self { path, file } = self;
        drop(file);
        remove(&path, marked.then_some(mark)).await;
    }

    /// Replaces what the file holds and goes back to its start.
    pub(super) fn fill(&mut self, request: &[u8]) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(request)?;
        self.file.rewind()
    }

    /// Returns another descriptor of the same open file: who holds it holds the lock.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Empties the file; a request should not lie about longer than its run.
    pub(super) fn clear(&self) {
        // What stays behind is overwritten by the next run, so a failure costs nothing.
        self.file.set_len(0).ok();
    }
}

/// Removes a lock file that nobody holds, or soon nobody will.
///
/// With the mark that its run has left in it, whoever holds it still is killed: a process that left the run's group and kept its
/// standard input. It would keep the next run waiting.
///
/// # Cancel safety
///
/// Dropping the future leaves the file, which is as good as none.
pub(super) async fn remove(path: &Path, mark: Option<[u8; 16]>) {
    for pause_ms in REMOVE_PAUSES_MS {
        let owned = path.to_owned();
        let removed = blocking(move || {
            let removed = try_remove(&owned)?;
            if let (false, Some(mark)) = (removed, mark) {
                kill_left(&owned, mark)?;
            }
            io::Result::Ok(removed)
        });
        // A file that cannot be removed costs an inode and nothing else.
        if !matches!(removed.await, Ok(Ok(false))) {
            return;
        }
        sleep(Duration::from_millis(pause_ms)).await;
    }
}

/// Removes the file at `path` if there is one and its lock is free; false if it is held.
pub(super) fn try_remove(path: &Path) -> io::Result<bool> {
    // By a descriptor of its own: the lock of a copy is held by whoever has another copy, too.
    let Some(file) = open_existing(path)? else { return Ok(true) };
    if !try_take(&file)? {
        return Ok(false);
    }
    if is_at(path, &file)? {
        fs::remove_file(path)?;
    }
    Ok(true)
}

/// Kills the processes whose standard input is this file, if it bears the mark of a run that is over.
fn kill_left(path: &Path, mark: [u8; 16]) -> io::Result<()> {
    let there = fs::metadata(path)?;
    let mut holders = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else { continue };
        // A process that has gone meanwhile, or is not ours to look at, holds nothing of ours.
        let Ok(input) = fs::metadata(entry.path().join("fd/0")) else { continue };
        if (input.dev(), input.ino()) == (there.dev(), there.ino()) {
            holders.push(pid);
        }
    }
    // The next run writes its request before it starts anything: with the mark still there, none of these is of it.
    if fs::read(path)? == mark {
        for pid in holders {
            kill_process(pid, Signal::KILL).ok();
        }
    }
    Ok(())
}

/// Tells whether there is a file at `path` whose lock is held.
pub(super) fn is_held(path: &Path) -> io::Result<bool> {
    open_existing(path)?.map_or(Ok(false), |file| Ok(!try_take(&file)?))
}

/// Ends whatever has this lock: the processes whose standard input it is, which are a command and its children, and those whose standard output it is, which are
/// guards. Then it removes the file, so that whoever has it open besides, as a runtime that was stopped, holds nothing.
pub(super) fn evict_from(path: &Path) -> io::Result<()> {
    let Some(file) = open_existing(path)? else { return Ok(()) };
    let there = file.metadata()?;
    let mut seen = BTreeSet::new();
    loop {
        let mut more = false;
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let has =
                |number: &str| fs::metadata(entry.path().join("fd").join(number)).is_ok_and(|found| (found.dev(), found.ino()) == (there.dev(), there.ino()));
            if let (true, Some(pid)) = (has("0") || has("1"), Pid::from_raw(id)) {
                // The group that it may lead first: by itself it might leave others behind.
                kill_process_group(pid, Signal::KILL).ok();
                kill_process(pid, Signal::KILL).ok();
                more |= seen.insert(id);
            }
        }
        if !more {
            break;
        }
    }
    if is_at(path, &file)? {
        match fs::remove_file(path) {
            // Whoever ran it has seen its end and taken the file along.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// What came of a try to take a lock.
pub(super) enum Attempt {
    /// It is taken.
    Taken(RunLock),
    /// Somebody else holds this file.
    Held(File),
}

/// Tries to take the lock, of the file that was opened before if there is one.
fn try_acquire(path: &Path, mut opened: Option<File>) -> io::Result<Attempt> {
    loop {
        let file = match opened.take() {
            Some(file) => file,
            None => open(path)?,
        };
        if !try_take(&file)? {
            return Ok(Attempt::Held(file));
        }
        if is_at(path, &file)? {
            return Ok(Attempt::Taken(RunLock { path: path.to_owned(), file }));
        }
    }
}

/// Tells whether `path` still names this file.
fn is_at(path: &Path, file: &File) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // Not truncated: an earlier run may be reading it. Opened for writing even though only the
    // runtime writes, because an exclusive lock on NFS needs it: flock(2).
    plain(OpenOptions::new().create(true).truncate(false).mode(0o600), path)
}

fn open_existing(path: &Path) -> io::Result<Option<File>> {
    match plain(&mut OpenOptions::new(), path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Opens a file: not through a link, which may lead to a file that somebody else needs, and not to wait at a pipe.
fn plain(how: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = how.read(true).write(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::LOOP.into()) }
}

fn try_take(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(30);

    async fn acquire(path: &Path, wait: Duration) -> Result<RunLock, CommandError> {
        RunLock::acquire(path, &mut Patience::new(wait, &CancellationToken::new())).await
    }

    #[tokio::test]
    async fn who_waited_for_a_file_that_is_gone_takes_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks/one");
        let first = acquire(&path, BOUND).await.unwrap();
        let mut second = std::pin::pin!(acquire(&path, BOUND));
        tokio::select! {
            biased;
            taken = &mut second => panic!("two hold one lock: {taken:?}"),
            () = sleep(FIRST_PAUSE * 2) => {}
        }
        // Nobody polls the second meanwhile: it has the old file open. An attempt of its may be under way, and then the file is there again.
        first.remove().await;
        let second = second.await.unwrap();
        assert!(is_at(&path, &second.file).unwrap());
        assert!(matches!(acquire(&path, Duration::ZERO).await, Err(CommandError::StillRunning { .. })));
    }

    #[tokio::test]
    async fn a_copy_that_is_left_keeps_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one");
        let lock = acquire(&path, BOUND).await.unwrap();
        let copy = lock.share().unwrap();
        lock.remove().await;
        assert!(path.exists());
        assert!(matches!(acquire(&path, Duration::ZERO).await, Err(CommandError::StillRunning { .. })));
        drop(copy);
        acquire(&path, BOUND).await.unwrap().remove().await;
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_took_the_place_of_another_is_not_removed_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one");
        let old = open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let new = open(&path).unwrap();
        assert!(!is_at(&path, &old).unwrap() && is_at(&path, &new).unwrap());
        assert!(try_take(&new).unwrap());
        assert!(!try_remove(&path).unwrap());
        drop(new);
        assert!(try_remove(&path).unwrap() && !path.exists());
        assert!(try_remove(&path).unwrap(), "what is not there needs no removal");
    }
}
