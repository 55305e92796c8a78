//! Out: each session into a file of its own, whole or not at all.
//!
//! A file is written under a name of its own, locked, synced and renamed. What a killed export has left is swept away by the next one into the same folder. A file
//! that is there stays if it is the same; it is replaced if it is an earlier state of the session, so that the same export again is a backup that grows; any other
//! is left alone and told of, since it may hold what the store has not.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufReader, BufWriter, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{
    Progress, TransferError,
    file::FileError,
    import::STORE_MARKER,
    lines::{self, Lines},
};
use crate::{
    id::SessionId,
    line::{Line, read_line},
    message::Tombstone,
    place::{folder_of, path_of},
    store::{ExportError, LoadError, Reader},
};

/// What the name of a file ends with that is being written.
const PART: &str = ".part";

/// What an export did.
///
/// ```
/// use greenroom_session::{store::{Store, memory::MemoryStore}, transfer::{ExportReport, export_folder}};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let folder = tempfile::tempdir()?;
/// let mut reader = store.reader()?;
/// let mut export = || export_folder(&mut *reader, &[root.clone()], folder.path(), &mut |_| ());
/// let (first, second): (ExportReport, ExportReport) = (export()?, export()?);
/// assert_eq!((first.written, second.unchanged), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct ExportReport {
    /// Files that were not there before.
    pub written: u64,
    /// Files that held an earlier state of their session.
    pub replaced: u64,
    /// Files that were there, the same.
    pub unchanged: u64,
    /// What was not exported, and why.
    pub troubles: Vec<ExportTrouble>,
}

/// Why a session was not exported.
///
/// ```
/// use greenroom_session::{id::SessionId, store::{LoadError, Store, memory::MemoryStore}, transfer::{ExportTrouble, export_folder}};
/// let folder = tempfile::tempdir()?;
/// let nobody = SessionId::new("nobody")?;
/// let report = export_folder(&mut *MemoryStore::new().reader()?, &[nobody], folder.path(), &mut |_| ())?;
/// assert!(matches!(&report.troubles[..], [ExportTrouble::Session { error: LoadError::NotFound(_), .. }]));
/// assert_eq!(report.troubles[0].code(), "SESSION_NOT_FOUND");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportTrouble {
    /// The session cannot be read.
    #[error("{error}")]
    Session {
        /// The session.
        session: SessionId,
        /// Why.
        #[source]
        error: LoadError,
    },
    /// The file that is there is no earlier state of the session.
    #[error("{}: the file that is there is no earlier state of session {session}", path.display())]
    Differs {
        /// The session.
        session: SessionId,
        /// The file.
        path: PathBuf,
    },
    /// Something else has the place of the file or of its folder.
    #[error("{}: a link, or no regular file, has the place of session {session}", path.display())]
    Foreign {
        /// The session.
        session: SessionId,
        /// What is in the way.
        path: PathBuf,
    },
}

impl ExportTrouble {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Session { error, .. } => error.code(),
            Self::Differs { .. } => "FILE_DIFFERS",
            Self::Foreign { .. } => "FILE_FOREIGN",
        }
    }

    /// Returns the session.
    pub fn session(&self) -> &SessionId {
        match self {
            Self::Session { session, .. } | Self::Differs { session, .. } | Self::Foreign { session, .. } => session,
        }
    }
}

/// Exports sessions into a folder, which is made if it is not there. On return every file that was written is durable.
///
/// Each session is read at one moment of its own. Memory is one record.
///
/// # Errors
/// [`TransferError`] if the folder or the store cannot be used. Trouble with one session is in the report.
pub fn export_folder(reader: &mut dyn Reader, ids: &[SessionId], to: &Path, watch: &mut dyn FnMut(Progress)) -> Result<ExportReport, TransferError> {
    if fs::symlink_metadata(to.join(STORE_MARKER)).is_ok() {
        return Err(TransferError::IsStore(to.to_owned()));
    }
    make_folders(to)?;
    let mut report = ExportReport::default();
    let mut progress = Progress { of_sessions: ids.len() as u64, ..Progress::default() };
    watch(progress);
    let mut folders = BTreeSet::new();
    for id in ids {
        match export(reader, id, to, &mut folders, &mut progress.bytes) {
            Ok(Outcome::Written) => report.written += 1,
            Ok(Outcome::Replaced) => report.replaced += 1,
            Ok(Outcome::Unchanged) => report.unchanged += 1,
            Ok(Outcome::Trouble(trouble)) => report.troubles.push(trouble),
            Err(error) => return Err(error),
        }
        progress.sessions += 1;
        watch(progress);
    }
    for folder in folders.iter().map(PathBuf::as_path).chain([to]) {
        sync_folder(folder)?;
    }
    Ok(report)
}

enum Outcome {
    Written,
    Replaced,
    Unchanged,
    Trouble(ExportTrouble),
}

fn export(reader: &mut dyn Reader, id: &SessionId, to: &Path, folders: &mut BTreeSet<PathBuf>, bytes: &mut u64) -> Result<Outcome, TransferError> {
    let unreadable = |error| match error {
        LoadError::Store(error) => Err(error.into()),
        error => Ok(Outcome::Trouble(ExportTrouble::Session { session: id.clone(), error })),
    };
    let parent = match reader.header(id) {
        Ok(Some(header)) => header.parent.clone(),
        Ok(None) if reader.is_removed(id)? => return unreadable(LoadError::Removed(id.clone())),
        Ok(None) => return unreadable(LoadError::NotFound(id.clone())),
        Err(error) => return unreadable(error),
    };
    let foreign = |path: &Path| Ok(Outcome::Trouble(ExportTrouble::Foreign { session: id.clone(), path: path.to_owned() }));
    let folder = to.join(folder_of(parent.as_ref()));
    let path = to.join(path_of(parent.as_ref(), id));
    if !folders.contains(&folder) {
        if !is_own_folder(&folder)? {
            return foreign(&folder);
        }
        sweep(&folder)?;
        folders.insert(folder.clone());
    }
    let there = match fs::symlink_metadata(&path) {
        Ok(found) if found.is_file() => true,
        Ok(_) => return foreign(&path),
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(TransferError::at(&path)(error)),
    };
    let part = Part::new(&folder, &path)?;
    match part.fill(reader, id) {
        Ok(written) => *bytes += written,
        Err(ExportError::Load(error)) => return unreadable(error),
        Err(ExportError::Sink(error)) => return Err(TransferError::at(&part.path)(error)),
    }
    let outcome = if !there {
        Outcome::Written
    } else if same_bytes(&part.path, &path)? {
        return Ok(Outcome::Unchanged);
    } else if is_earlier(id, &path, &part.path) {
        Outcome::Replaced
    } else {
        return Ok(Outcome::Trouble(ExportTrouble::Differs { session: id.clone(), path }));
    };
    part.rename(&path)?;
    Ok(outcome)
}

/// A file that is being written. It goes away with this value, unless it was renamed.
struct Part {
    path: PathBuf,
    file: File,
    renamed: bool,
}

impl Part {
    fn new(folder: &Path, target: &Path) -> Result<Self, TransferError> {
        let mut name = OsString::from(".");
        name.push(target.file_stem().unwrap_or_default());
        name.push(format!(".{}{PART}", uuid::Uuid::new_v4().simple()));
        let path = folder.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(TransferError::at(&path))?;
        // By the lock another export tells it from what was left behind.
        file.lock().map_err(TransferError::at(&path))?;
        Ok(Self { path, file, renamed: false })
    }

    /// Writes the session and waits until it is on the disk.
    fn fill(&self, reader: &mut dyn Reader, id: &SessionId) -> Result<u64, ExportError> {
        let mut out = BufWriter::with_capacity(1 << 18, &self.file);
        let mut bytes = 0;
        reader.export(id, &mut |line| {
            bytes += line.len() as u64 + 1;
            out.write_all(line)?;
            out.write_all(b"\n")
        })?;
        out.flush().and_then(|()| self.file.sync_all()).map_err(ExportError::Sink)?;
        Ok(bytes)
    }

    fn rename(mut self, target: &Path) -> Result<(), TransferError> {
        fs::rename(&self.path, target).map_err(TransferError::at(target))?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.renamed {
            // The next export sweeps it away.
            drop(fs::remove_file(&self.path));
        }
    }
}

fn same_bytes(one: &Path, other: &Path) -> Result<bool, TransferError> {
    let length = |path: &Path| fs::symlink_metadata(path).map(|found| found.len()).map_err(TransferError::at(path));
    if length(one)? != length(other)? {
        return Ok(false);
    }
    let open = |path: &Path| lines::open(path).map(BufReader::new);
    let (Ok(mut one_file), Ok(mut other_file)) = (open(one), open(other)) else { return Ok(false) };
    let (mut ours, mut theirs) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let read = one_file.read(&mut ours).map_err(TransferError::at(one))?;
        if read == 0 {
            return Ok(true);
        }
        let (Some(ours), Some(theirs)) = (ours.get(..read), theirs.get_mut(..read)) else { return Ok(false) };
        match other_file.read_exact(theirs) {
            Ok(()) if ours == theirs => {}
            Ok(()) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(TransferError::at(other)(error)),
        }
    }
}

/// Tells whether a file holds a session from which the one in another file has come: the same header, no event that the other has not, no message either.
fn is_earlier(id: &SessionId, old: &Path, new: &Path) -> bool {
    let grown = || -> Result<bool, FileError> {
        let (mut old, mut new) = (Records::open(old)?, Records::open(new)?);
        // Header and events, line by line; the inbox comes after them.
        let mut ours = new.next(id)?;
        let mut theirs = old.next(id)?;
        if !matches!(theirs, Some(Line::Header(_))) {
            return Ok(false);
        }
        while let Some(Line::Header(_) | Line::Event(_)) = theirs {
            if theirs != ours {
                return Ok(false);
            }
            (ours, theirs) = (new.next(id)?, old.next(id)?);
        }
        while let Some(Line::Event(_)) = ours {
            ours = new.next(id)?;
        }
        loop {
            match (&theirs, &ours) {
                (None, _) => return Ok(true),
                (Some(theirs), Some(ours)) if remains(theirs) == remains(ours) => {}
                (Some(_), _) => return Ok(false),
            }
            (ours, theirs) = (new.next(id)?, old.next(id)?);
        }
    };
    // What cannot be read is no earlier state of anything.
    grown().unwrap_or(false)
}

/// Returns what would remain of a message of the inbox when it leaves.
fn remains(line: &Line) -> Option<Tombstone> {
    match line {
        Line::Message(record) => Some(Tombstone::of(record)),
        Line::Taken(tombstone) => Some(Tombstone { held: false, ..tombstone.clone() }),
        Line::Header(_) | Line::Event(_) => None,
    }
}

/// The records of an export.
struct Records {
    lines: Lines,
    text: Vec<u8>,
    seq: u64,
}

impl Records {
    fn open(path: &Path) -> Result<Self, FileError> {
        Ok(Self { lines: Lines::open(path)?, text: Vec::new(), seq: 0 })
    }

    fn next(&mut self, id: &SessionId) -> Result<Option<Line>, FileError> {
        if self.lines.next(&mut self.text)?.is_none() {
            return Ok(None);
        }
        let line = read_line(id, self.seq, &self.text).map_err(|error| self.lines.flaw(super::FileFlaw::Line(error)))?;
        self.seq += u64::from(matches!(line, Line::Event(_)));
        Ok(Some(line))
    }
}

/// Makes a folder and those above it, for the owner only, and waits until their names are on the disk.
fn make_folders(folder: &Path) -> Result<(), TransferError> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
    for folder in missing.into_iter().rev() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(TransferError::at(folder))?;
        let above = folder.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync_folder(above)?;
    }
    Ok(())
}

/// Makes a folder of an export; tells whether it is one, and no link to one.
fn is_own_folder(folder: &Path) -> Result<bool, TransferError> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(fs::symlink_metadata(folder).map_err(TransferError::at(folder))?.is_dir()),
        Err(error) => Err(TransferError::at(folder)(error)),
    }
}

/// Removes what exports have left that were killed.
fn sweep(folder: &Path) -> Result<(), TransferError> {
    let left = || -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let bytes = name.as_encoded_bytes();
            if !bytes.starts_with(b".") || !bytes.ends_with(PART.as_bytes()) {
                continue;
            }
            let Ok(file) = lines::open(&entry.path()) else { continue };
            if file.try_lock().is_ok() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    };
    left().map_err(TransferError::at(folder))
}

fn sync_folder(folder: &Path) -> Result<(), TransferError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(TransferError::at(folder))
}
