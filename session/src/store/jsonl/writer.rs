//! The write side: what a batch does to the sessions that are known here, and how that comes to their files.
//!
//! An operation changes its session in memory and leaves lines to be written; the lines of all operations of a batch on one session are one write and one
//! sync, and the files of a batch are written side by side. What could not be written is forgotten and read from the disk again, so that memory never says
//! more than the files.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    sync::Arc,
};

use super::{
    birth,
    bounded::Bounded,
    disk::Disk,
    held::Held,
    index::Index,
    job::{self, Folders, Job, Kind, Outcome},
    lock::Lock,
    pool::Pool,
    shelf::{Shelf, Slot},
    view::View,
};
use crate::{
    id::{OwnerId, SessionId},
    listing::Summary,
    store::{CommitError, Done, Op, Refused, StoreError},
};

/// Most families of which the aliases are known.
const MOST_FAMILIES: usize = 1024;

/// The write side of one opening.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) view: Arc<View>,
    pub(super) held: Arc<Held>,
    pub(super) owner: OwnerId,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) shelf: Shelf,
    pub(super) families: Bounded<Arc<str>, Family>,
    /// Where the files go on of which nobody knows whether the disk has their last bytes.
    doubts: HashMap<SessionId, u64>,
    pub(super) pool: Pool,
    pub(super) folders: Folders,
    lock: Option<Lock>,
    /// A failure of which nothing is known, until the batch tells of it.
    lost: Option<io::Error>,
}

/// What the children of one parent have taken.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// The time of the youngest.
    pub(super) youngest: u64,
    /// Names, and whose they are.
    pub(super) aliases: BTreeMap<String, SessionId>,
}

/// What a batch leaves to be written.
#[derive(Debug, Default)]
pub(super) struct Batch {
    jobs: Vec<Job>,
    by_session: HashMap<SessionId, usize>,
}

impl Batch {
    /// Tells whether an operation needs the files as they are after the operations before it.
    fn must_be_written_before(&self, op: &Op) -> bool {
        match op {
            Op::Remove(_) => true,
            Op::Import(_) | Op::Release(_) => self.by_session.contains_key(op.session()),
            _ => false,
        }
    }

    /// Adds the lines of an operation; without lines, makes it wait for those that are written of its session already.
    pub(super) fn add(&mut self, op: usize, id: &SessionId, slot: &Slot, lines: Result<Vec<u8>, String>, is_new: bool) {
        let empty = lines.as_ref().is_ok_and(Vec::is_empty);
        let known = self.by_session.get(id).copied();
        if empty && known.is_none() && slot.synced && slot.again.is_empty() {
            return;
        }
        let number = known.unwrap_or_else(|| {
            let kind = if is_new { Kind::Create } else { Kind::Append { file: slot.file.clone(), at: slot.length, size: slot.size } };
            // Bytes of which nobody knows whether the disk has them are written once more.
            let bytes = slot.again.clone();
            self.jobs.push(Job { id: id.clone(), place: slot.place.clone(), kind, bytes, spoiled: None, ops: Vec::new() });
            self.by_session.insert(id.clone(), self.jobs.len() - 1);
            self.jobs.len() - 1
        });
        if let Some(job) = self.jobs.get_mut(number) {
            match lines {
                Ok(lines) => job.bytes.extend(lines),
                Err(reason) => job.spoiled = Some(reason),
            }
            job.ops.push(op);
        }
    }
}

/// What one batch has come to, beyond its results.
#[derive(Debug, Default)]
struct Trouble {
    /// The first failure of which nothing is left.
    undone: Option<io::Error>,
    /// The first of which nothing is known.
    unknown: Option<io::Error>,
}

impl Writer {
    /// Makes the write side of a store whose lock is held.
    pub(super) fn new(view: Arc<View>, held: Arc<Held>, owner: OwnerId, disk: Arc<dyn Disk>, lock: Lock) -> Result<Self, StoreError> {
        let mut writer = Self {
            view,
            held,
            owner,
            disk,
            shelf: Shelf::default(),
            families: Bounded::new(MOST_FAMILIES),
            doubts: HashMap::new(),
            pool: Pool::default(),
            folders: Folders::default(),
            lock: None,
            lost: None,
        };
        writer.take_over(lock)?;
        Ok(writer)
    }

    /// Begins with what is on the disk.
    fn take_over(&mut self, lock: Lock) -> Result<(), StoreError> {
        birth::sweep(&self.view.dir)?;
        self.forget();
        self.folders = Folders { own_in_doubt: true, ..Folders::default() };
        self.view.take_over()?;
        for place in self.view.rename(Index::take_leftovers) {
            self.clear_away(&place);
        }
        self.lock = Some(lock);
        Ok(())
    }

    /// Forgets every session; the files know them.
    pub(super) fn forget(&mut self) {
        self.shelf.clear();
        self.families.clear();
    }

    /// Commits a batch; see [`Store::commit`](crate::store::Store::commit).
    pub(super) fn commit(&mut self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        if ops.is_empty() {
            return Ok(Vec::new());
        }
        if self.lock.is_none() {
            // Closed before: somebody else may have written since.
            let lock = Lock::take(&self.view.dir).map_err(CommitError::NotCommitted)?;
            self.take_over(lock).map_err(CommitError::NotCommitted)?;
        }
        let mut batch = Batch::default();
        let mut results: Vec<Result<Done, Refused>> = Vec::with_capacity(ops.len());
        let mut trouble = Trouble::default();
        for (number, op) in ops.iter().enumerate() {
            if batch.must_be_written_before(op) {
                self.write(std::mem::take(&mut batch).jobs, &mut results, &mut trouble);
            }
            let result = self.apply(number, op, &mut batch);
            results.push(result);
            trouble.unknown = trouble.unknown.or(self.lost.take());
        }
        self.write(batch.jobs, &mut results, &mut trouble);
        self.shelf.tidy(ops.iter().map(Op::session));
        if let Some(unknown) = trouble.unknown {
            return Err(CommitError::Indeterminate(unknown.into()));
        }
        match trouble.undone {
            Some(cause) if results.iter().all(|result| matches!(result, Err(Refused::NotWritten { .. }))) => Err(CommitError::NotCommitted(cause.into())),
            _ => Ok(results),
        }
    }

    /// Writes what a batch has left to be written, and lets fail what could not be.
    fn write(&mut self, jobs: Vec<Job>, results: &mut [Result<Done, Refused>], trouble: &mut Trouble) {
        if jobs.is_empty() {
            return;
        }
        let jobs: Vec<Arc<Job>> = jobs.into_iter().map(Arc::new).collect();
        for job in &jobs {
            if let Kind::Append { at, .. } = job.kind {
                self.view.begin(&job.place, at);
            }
        }
        let outcomes = job::run(&self.disk, &mut self.pool, &self.view.dir, &jobs, &mut self.folders);
        for (job, outcome) in jobs.iter().zip(outcomes) {
            let failure = match outcome {
                Outcome::Written(file) => match self.written(job, file, results) {
                    Ok(()) => continue,
                    // It is there, but what there is to be known of the file is not.
                    Err(error) => (error, true),
                },
                Outcome::Undone(error) => (error, false),
                Outcome::Unknown(error) => (error, true),
            };
            let (error, unknown) = failure;
            self.failed(job, &error, unknown, results);
            let place = if unknown { &mut trouble.unknown } else { &mut trouble.undone };
            place.get_or_insert(error);
        }
    }

    /// Notes that nobody knows what has become of something.
    pub(super) fn lose(&mut self, error: io::Error) {
        self.lost.get_or_insert(error);
    }

    /// Makes known what has been written.
    fn written(&mut self, job: &Job, file: Arc<fs::File>, results: &[Result<Done, Refused>]) -> io::Result<()> {
        let found = file.metadata()?;
        let Some(slot) = self.shelf.get(&job.id) else { return Ok(()) };
        let at = match job.kind {
            Kind::Create => 0,
            Kind::Append { at, .. } => at,
        };
        slot.length = at + job.bytes.len() as u64;
        slot.size = found.len();
        slot.synced = true;
        slot.again = Vec::new();
        slot.file = Some(file);
        self.doubts.remove(&job.id);
        if matches!(job.kind, Kind::Create) {
            self.view.rename(|index| index.add(&job.place));
        }
        let summary = Summary { head: slot.entry.head.clone(), verdict: slot.entry.verdict.clone() };
        let live = summary.head.live;
        self.view.written(&job.place, &found, slot.entry.header.clone(), summary);
        if !live && job.ops.iter().any(|op| matches!(results.get(*op), Some(Ok(Done::Closed)))) {
            self.held.end(&job.id);
        }
        Ok(())
    }

    /// Forgets what has not been written, or may not have been.
    fn failed(&mut self, job: &Job, error: &io::Error, unknown: bool, results: &mut [Result<Done, Refused>]) {
        tracing::error!(%error, unknown, session = %job.id, "a session's file could not be written");
        self.shelf.drop(&job.id);
        self.families.remove(&job.place.folder);
        self.view.taken_back(&job.place, &job.id);
        match job.kind {
            Kind::Append { at, .. } if unknown => {
                self.doubts.entry(job.id.clone()).or_insert(at);
            }
            Kind::Append { .. } => {}
            Kind::Create => {
                if let Err(error) = self.view.relist(&job.place.folder) {
                    tracing::error!(%error, "a folder could not be listed");
                }
            }
        }
        let full = StoreError::from(io::Error::from(error.kind())).code() == "STORE_FULL";
        for op in &job.ops {
            if let Some(result) = results.get_mut(*op)
                && result.is_ok()
            {
                *result = Err(Refused::NotWritten { full, reason: error.to_string() });
            }
        }
    }

    /// Returns where the bytes of a session begin of which nobody knows whether the disk has them.
    pub(super) fn doubt(&self, id: &SessionId) -> Option<u64> {
        self.doubts.get(id).copied()
    }

    /// Ends the opening: the lock is free for others.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        let released = self.held.release();
        self.view.give_up();
        self.forget();
        self.lock = None;
        Ok(released?)
    }

    /// Asks the index, which is right while the lock is held.
    pub(super) fn names<T>(&self, ask: impl FnOnce(&Index) -> T) -> io::Result<T> {
        self.view.names(ask)
    }
}
