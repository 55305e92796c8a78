//! Which sessions the writer has live, for readers in other processes.
//!
//! Each opening has a file `_held-OWNER`, locked for as long as its process lives, with a line per epoch that it has begun. A session is held if its log
//! says that an epoch goes on, and this file, whose lock somebody holds, says that the opening began that epoch. So neither a line that is left over nor
//! one that came too early is ever believed, and a crash leaves nothing that is.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::disk::{is_irregular, open_regular};
use crate::id::{Epoch, OwnerId, SessionId};

/// What the name of such a file begins with.
pub(super) const HELD: &str = "_held-";

/// As many lines may be left over before the file is written anew.
const SLACK: usize = 4096;

/// Epochs by session. Which of them goes on, if any does, its log says.
pub(super) type Epochs = HashMap<SessionId, BTreeSet<Epoch>>;

#[derive(Serialize, Deserialize)]
struct Begun {
    session: SessionId,
    epoch: Epoch,
}

/// This opening's file.
#[derive(Debug)]
pub(super) struct Held {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// None before the first epoch, and once the opening has ended.
    file: Option<File>,
    length: u64,
    lines: usize,
    /// What logs say, or may say at any moment.
    epochs: Epochs,
}

impl Held {
    /// Names the file of an opening; it is made when the first epoch begins.
    pub(super) fn new(dir: &Path, owner: &OwnerId) -> Self {
        Self { path: dir.join(format!("{HELD}{owner}")), state: Mutex::new(State { file: None, length: 0, lines: 0, epochs: Epochs::new() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that an epoch is about to begin. Counts for nothing until the log says the same.
    pub(super) fn announce(&self, session: &SessionId, epoch: Epoch) -> io::Result<()> {
        let mut state = self.state();
        let line = line(session, epoch)?;
        if state.file.is_none() || state.lines > 2 * state.epochs.len() + SLACK {
            self.renew(&mut state)?;
        }
        let State { file: Some(file), length, lines, .. } = &mut *state else { return Ok(()) };
        file.write_all_at(&line, *length)?;
        *length += line.len() as u64;
        *lines += 1;
        state.epochs.entry(session.clone()).or_default().insert(epoch);
        Ok(())
    }

    /// Writes the file anew with what is live now.
    fn renew(&self, state: &mut State) -> io::Result<()> {
        let mut text = Vec::new();
        for (session, epochs) in &state.epochs {
            for epoch in epochs {
                text.extend(line(session, *epoch)?);
            }
        }
        let temporary = super::birth::new_name(self.path.parent().unwrap_or(Path::new(".")));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&temporary)?;
        // Nobody else knows the file yet, so this does not wait.
        file.lock()?;
        file.write_all_at(&text, 0)?;
        fs::rename(&temporary, &self.path)?;
        (state.length, state.lines) = (text.len() as u64, state.epochs.len());
        state.file = Some(file);
        Ok(())
    }

    /// Notes that the log of a session says that its epoch has ended.
    pub(super) fn end(&self, session: &SessionId) {
        self.state().epochs.remove(session);
    }

    /// Returns the epochs that this opening has begun, or is about to begin, of sessions that it has not closed.
    pub(super) fn all(&self) -> Epochs {
        self.state().epochs.clone()
    }

    /// Ends the opening: nothing is held by it from here on.
    pub(super) fn release(&self) -> io::Result<()> {
        let mut state = self.state();
        state.epochs.clear();
        (state.length, state.lines) = (0, 0);
        if state.file.take().is_none() {
            return Ok(());
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            tracing::debug!(%error, "the file of live sessions could not be removed; the next writer removes it");
        }
    }
}

fn line(session: &SessionId, epoch: Epoch) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Begun { session: session.clone(), epoch })?;
    line.push(b'\n');
    Ok(line)
}

/// Returns who is alive and the epochs that it has begun, by the files in the folder of a store.
pub(super) fn of_others(dir: &Path) -> io::Result<Option<(OwnerId, Epochs)>> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(owner) = name.to_str().and_then(|name| name.strip_prefix(HELD)).and_then(|owner| OwnerId::new(owner).ok()) else { continue };
        let mut file = match open_regular(&entry.path()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound || is_irregular(&error) => continue,
            Err(error) => return Err(error),
        };
        // Free: whoever made it is gone, or is just making it.
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {}
            Ok(()) => continue,
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let begun = whole.lines().filter_map(|line| serde_json::from_str::<Begun>(line).ok());
        let mut epochs = Epochs::new();
        for Begun { session, epoch } in begun {
            epochs.entry(session).or_default().insert(epoch);
        }
        return Ok(Some((owner, epochs)));
    }
    Ok(None)
}
