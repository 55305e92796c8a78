//! In: every session of a folder, parents before their children.

use std::{
    fs::{self, DirEntry},
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{
    Progress, TransferError,
    file::{self, FileError, FileFlaw},
    lines::Lines,
};
use crate::{
    id::SessionId,
    place::EXTENSION,
    store::{
        Done, Import, Op, Refused, Release, Store,
        jsonl::{MARKER, REMOVED},
    },
};

/// How many bytes of sessions go into one transaction. A session that is larger has one of its own.
const BATCH_BYTES: u64 = 4 << 20;

/// How many sessions are released in one transaction.
const BATCH_RELEASES: usize = 256;

/// What an import did.
///
/// ```
/// use greenroom_session::{store::memory::MemoryStore, transfer::{ImportReport, import_folder}};
/// let folder = tempfile::tempdir()?;
/// let report: ImportReport = import_folder(&MemoryStore::new(), folder.path(), false, &mut |_| ())?;
/// assert_eq!((report.imported, report.existing, report.troubles.len()), (0, 0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct ImportReport {
    /// Sessions that were not there before.
    pub imported: u64,
    /// How many of those had something to do, which is held. Those that were let go since are counted, too.
    pub held: u64,
    /// Sessions that were there, the same.
    pub existing: u64,
    /// Sessions of which something was let go.
    pub released: u64,
    /// What was not imported, and why.
    pub troubles: Vec<ImportTrouble>,
}

/// Why a file's session is not in the store, or not as the file has it.
///
/// ```
/// use std::path::PathBuf;
/// use greenroom_session::{id::SessionId, store::Refused, transfer::ImportTrouble};
/// let session = SessionId::new("a")?;
/// let trouble = ImportTrouble::Refused { path: PathBuf::from("_root/a.jsonl"), session: session.clone(), refused: Refused::Exists(session) };
/// assert_eq!((trouble.code(), trouble.is_damage()), ("SESSION_EXISTS", false));
/// # Ok::<(), greenroom_session::id::IdError>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportTrouble {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The store does not take the session.
    #[error("{}: {}", path.display(), because(refused))]
    Refused {
        /// The file.
        path: PathBuf,
        /// The session.
        session: SessionId,
        /// Why.
        refused: Refused,
    },
}

fn because(refused: &Refused) -> String {
    match refused {
        Refused::Exists(id) => format!("session {id} is in the store and is another one"),
        other => other.to_string(),
    }
}

impl ImportTrouble {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File(error) => error.code(),
            Self::Refused { refused, .. } => refused.code(),
        }
    }

    /// Tells whether something is damaged, in contrast to a session or a file that is whole and not wanted.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::File(error) => !matches!(error.flaw, FileFlaw::NoFile | FileFlaw::Misplaced { .. }),
            Self::Refused { refused, .. } => matches!(refused, Refused::Corrupt { .. } | Refused::Invalid { .. }),
        }
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(error) => &error.path,
            Self::Refused { path, .. } => path,
        }
    }
}

/// Imports every session of a folder: of an export, or of a JSON Lines store. With `activate` everything that the folder names is let go afterwards, also what had
/// been imported before.
///
/// Reads `*/*.jsonl` and follows no links. Memory is one session at a time. On return everything that was imported is durable.
///
/// ```
/// use greenroom_session::{store::{Store, memory::MemoryStore}, transfer::{everything, export_folder, import_folder}};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let accept = gs::store::Accept::new(root.clone(), gs::message::Message::turn("m0", "Begin.", gs::message::Source::User, 1_000)?);
/// # gs::store::Store::commit(&store, &[gs::store::Op::Accept(accept)])?;
/// let folder = tempfile::tempdir()?;
/// let mut reader = store.reader()?;
/// let all = everything(&mut *reader)?;
/// export_folder(&mut *reader, &all, folder.path(), &mut |_| ())?;
/// let other = MemoryStore::new();
/// let report = import_folder(&other, folder.path(), true, &mut |_| ())?;
/// assert_eq!((report.imported, report.held, report.released), (1, 1, 1));
/// assert_eq!(other.reader()?.runnable(None, 9)?, [root]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`TransferError`] if the folder or the store cannot be used. Trouble with one session is in the report.
pub fn import_folder(store: &dyn Store, from: &Path, activate: bool, watch: &mut dyn FnMut(Progress)) -> Result<ImportReport, TransferError> {
    let mut report = ImportReport::default();
    let of_store = fs::symlink_metadata(from.join(MARKER)).is_ok();
    let files = plan(from, of_store, &mut report)?;
    let mut progress = Progress { of_sessions: files.len() as u64, of_bytes: files.iter().map(|file| file.bytes).sum(), ..Progress::default() };
    watch(progress);
    let mut batch = Batch { store, ops: Vec::new(), paths: Vec::new(), bytes: 0 };
    for file in &files {
        let before = progress.bytes;
        let mut reading = progress;
        let read = file::read(&file.path, &file.relative, of_store, &mut |bytes| {
            reading.bytes = before + bytes;
            watch(reading);
        });
        match read {
            Ok(import) => batch.add(&file.path, file.bytes, import, &mut report)?,
            Err(error) => report.troubles.push(error.into()),
        }
        progress.sessions += 1;
        progress.bytes = before + file.bytes;
        watch(progress);
    }
    batch.flush(&mut report)?;
    if activate {
        release(store, &files, &mut report)?;
    }
    Ok(report)
}

/// A file that begins as a session's.
#[derive(Debug)]
struct Planned {
    path: PathBuf,
    relative: PathBuf,
    session: SessionId,
    depth: u32,
    bytes: u64,
}

/// Finds the files and reads their headers; parents come first.
fn plan(from: &Path, of_store: bool, report: &mut ImportReport) -> Result<Vec<Planned>, TransferError> {
    let mut files = Vec::new();
    for folder in entries(from)? {
        let kind = folder.file_type().map_err(TransferError::at(folder.path()))?;
        if kind.is_symlink() && fs::metadata(folder.path()).is_ok_and(|target| target.is_dir()) {
            report.troubles.push(FileError { path: folder.path(), place: None, flaw: FileFlaw::NoFile }.into());
        }
        if !kind.is_dir() {
            continue;
        }
        for entry in entries(&folder.path())? {
            let relative = PathBuf::from(folder.file_name()).join(entry.file_name());
            // What begins with a dot or an underscore is being written.
            let name = entry.file_name();
            if !name.as_encoded_bytes().ends_with(EXTENSION.as_bytes()) || matches!(name.as_encoded_bytes().first(), Some(b'.' | b'_')) {
                continue;
            }
            // A file beside its tombstone is one that a removal had no time for.
            if of_store && fs::symlink_metadata(entry.path().with_extension(REMOVED.trim_start_matches('.'))).is_ok() {
                continue;
            }
            match begin(entry.path(), relative) {
                Ok(file) => files.push(file),
                Err(error) => report.troubles.push(error.into()),
            }
        }
    }
    files.sort_by(|a, b| (a.depth, &a.relative).cmp(&(b.depth, &b.relative)));
    Ok(files)
}

fn entries(folder: &Path) -> Result<Vec<DirEntry>, TransferError> {
    let read = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    match read {
        Ok(mut entries) => {
            entries.sort_by_key(DirEntry::file_name);
            Ok(entries)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(TransferError::Missing(folder.to_owned())),
        Err(error) => Err(TransferError::at(folder)(error)),
    }
}

fn begin(path: PathBuf, relative: PathBuf) -> Result<Planned, FileError> {
    let mut lines = Lines::open(&path)?;
    let (header, ..) = file::read_header(&mut lines, &mut Vec::new(), &relative)?;
    let bytes = fs::symlink_metadata(&path).map_or(0, |found| found.len());
    Ok(Planned { path, relative, session: header.id, depth: header.depth, bytes })
}

/// Sessions that go into one transaction.
struct Batch<'a> {
    store: &'a dyn Store,
    ops: Vec<Op>,
    paths: Vec<PathBuf>,
    bytes: u64,
}

impl Batch<'_> {
    fn add(&mut self, path: &Path, bytes: u64, import: Import, report: &mut ImportReport) -> Result<(), TransferError> {
        if self.bytes + bytes > BATCH_BYTES {
            self.flush(report)?;
        }
        self.ops.push(Op::Import(import));
        self.paths.push(path.to_owned());
        self.bytes += bytes;
        // A large one is not kept while the next is read.
        if self.bytes > BATCH_BYTES { self.flush(report) } else { Ok(()) }
    }

    fn flush(&mut self, report: &mut ImportReport) -> Result<(), TransferError> {
        if self.ops.is_empty() {
            return Ok(());
        }
        let results = self.store.commit(&self.ops)?;
        for ((op, path), result) in self.ops.drain(..).zip(self.paths.drain(..)).zip(results) {
            match result {
                Ok(Done::Imported { existing: true }) => report.existing += 1,
                Ok(_) => {
                    report.imported += 1;
                    report.held += u64::from(matches!(&op, Op::Import(import) if import.holds()));
                }
                Err(refused) => report.troubles.push(ImportTrouble::Refused { path, session: op.session().clone(), refused }),
            }
        }
        self.bytes = 0;
        Ok(())
    }
}

fn release(store: &dyn Store, files: &[Planned], report: &mut ImportReport) -> Result<(), TransferError> {
    for chunk in files.chunks(BATCH_RELEASES) {
        let ops: Vec<Op> = chunk.iter().map(|file| Op::Release(Release { session: file.session.clone() })).collect();
        for (result, file) in store.commit(&ops)?.into_iter().zip(chunk) {
            match result {
                Ok(Done::Released { records }) => report.released += u64::from(records > 0),
                // Why it is not there has been told.
                Ok(_) | Err(Refused::NotFound(_) | Refused::Removed(_)) => {}
                Err(refused) => report.troubles.push(ImportTrouble::Refused { path: file.path.clone(), session: file.session.clone(), refused }),
            }
        }
    }
    Ok(())
}
