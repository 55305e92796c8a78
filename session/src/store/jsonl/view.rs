//! What the readers of one opening share: which files there are, and what those that were read said.
//!
//! What a file said is believed while its stamp is the same and was no younger than its clock's grain when the file was read. The writer puts in what
//! it has written itself, so that its own process reads no file again; what it is just writing shows to its own process when it is on the disk.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    io::{self, ErrorKind},
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::{
    bounded::Bounded,
    disk::is_of_one_file,
    held::{self, Epochs, Held},
    index::Index,
    mend,
    place::Place,
    scan::{self, Flaw},
    siblings::Orders,
    stamp::Stamp,
    text::Front,
};
use crate::{
    codec::DecodeError,
    header::Header,
    id::{OwnerId, SessionId},
    listing::Summary,
    place::name_of,
    store::{LoadError, StoreError},
};

mod file;

use file::{HEADER, unread};
pub(super) use file::{MAX_HEADER, Scan, TRIES, Whole};

/// Most files of which it is remembered what they said.
const MOST_KEPT: usize = 32_768;
/// What a listing needs of a file.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    /// None of a file that could not be read.
    stamp: Option<Stamp>,
    /// The id by which it is listed.
    pub(super) id: SessionId,
    pub(super) header: Result<Arc<Header>, DecodeError>,
    /// None where only the header was read.
    said: Option<Result<Summary, Flaw>>,
}

/// What is remembered of a file.
#[derive(Debug)]
pub(super) enum Remembered {
    /// It is not there.
    Gone,
    /// Nothing, or what it said before it changed.
    Nothing,
    /// What it says.
    Kept(Arc<Kept>),
}

impl Kept {
    /// Returns its time, by which siblings are ordered; what has no readable header comes first.
    pub(super) fn created_at(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.created_at)
    }

    /// Returns what follows from its log.
    pub(super) fn summary(&self) -> Result<&Summary, LoadError> {
        match (&self.header, &self.said) {
            (Err(source), _) => Err(LoadError::Corrupt { session: self.id.clone(), place: HEADER.into(), source: source.clone() }),
            (Ok(_), Some(Ok(summary))) => Ok(summary),
            (Ok(_), Some(Err(flaw))) => Err(flaw.load_error(&self.id)),
            (Ok(_), None) => Err(LoadError::NotFound(self.id.clone())),
        }
    }

    /// Tells whether there is nothing more to be read.
    pub(super) fn tells_all(&self) -> bool {
        self.said.is_some() || self.header.is_err()
    }

    /// Tells whether its id is known to be its own: the name of a long id does not say it, and a header that cannot be read does not either.
    fn is_named(&self, place: &Place) -> bool {
        self.header.is_ok() || place.id().is_some()
    }

    /// Tells whether it is a subagent by its header, or might be one that is damaged.
    pub(super) fn is_subagent(&self) -> bool {
        self.header.as_ref().map_or(true, |header| header.is_subagent())
    }
}

/// Sessions that want a holder, or that may want one; for the writer's own process.
#[derive(Debug, Default)]
struct Work {
    known: Option<BTreeSet<SessionId>>,
    /// What has changed while somebody was looking at every file.
    meanwhile: HashMap<SessionId, bool>,
    lookers: usize,
}

/// What the readers of one opening share.
#[derive(Debug)]
pub(super) struct View {
    pub(super) dir: PathBuf,
    index: Mutex<Index>,
    kept: Mutex<Bounded<Place, Arc<Kept>>>,
    pub(super) orders: Orders,
    writing: Mutex<HashMap<Place, u64>>,
    /// How often something that was written was taken back.
    undone: AtomicU64,
    work: Mutex<Work>,
    /// Whether this process is the folder's writer, so that no name and no file changes but by itself.
    owned: AtomicBool,
    own: Option<(OwnerId, Arc<Held>)>,
    /// How many files were opened.
    #[cfg(test)]
    pub(super) reads: AtomicU64,
    /// How often somebody looked whether a file is as it was.
    #[cfg(test)]
    pub(super) looks: AtomicU64,
    /// How many logs were read, or some of them.
    #[cfg(test)]
    pub(super) logs: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl View {
    /// Looks at a store for its writer, or for a reader alone if there is no `own`.
    pub(super) fn new(dir: PathBuf, own: Option<(OwnerId, Arc<Held>)>) -> Self {
        Self {
            dir,
            index: Mutex::default(),
            kept: Mutex::new(Bounded::new(MOST_KEPT)),
            orders: Orders::new(),
            writing: Mutex::default(),
            undone: AtomicU64::new(0),
            work: Mutex::default(),
            owned: AtomicBool::new(false),
            own,
            #[cfg(test)]
            reads: AtomicU64::new(0),
            #[cfg(test)]
            looks: AtomicU64::new(0),
            #[cfg(test)]
            logs: AtomicU64::new(0),
        }
    }

    /// Lists the store for its writer, which has just taken the lock.
    pub(super) fn take_over(&self) -> io::Result<()> {
        let mut index = Index::default();
        index.refresh(&self.dir)?;
        *lock(&self.index) = index;
        lock(&self.kept).clear();
        *lock(&self.work) = Work::default();
        self.owned.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Forgets that anything is being written; for the writer, when a batch was cut off.
    pub(super) fn forget_writing(&self) {
        self.undone.fetch_add(1, Ordering::SeqCst);
        lock(&self.writing).clear();
        lock(&self.kept).clear();
        lock(&self.work).known = None;
    }

    /// Tells that the lock has been given up.
    pub(super) fn give_up(&self) {
        self.owned.store(false, Ordering::SeqCst);
        *lock(&self.index) = Index::default();
        lock(&self.kept).clear();
    }

    fn is_owned(&self) -> bool {
        self.owned.load(Ordering::SeqCst)
    }

    /// Asks the index about all names.
    pub(super) fn names<T>(&self, ask: impl FnOnce(&Index) -> T) -> io::Result<T> {
        let mut index = lock(&self.index);
        if !self.is_owned() {
            index.refresh(&self.dir)?;
        }
        Ok(ask(&index))
    }

    /// Asks the index about the names in some folders.
    pub(super) fn folders<T>(&self, folders: &[&str], ask: impl FnOnce(&Index) -> T) -> io::Result<T> {
        let mut index = lock(&self.index);
        if !self.is_owned() {
            for folder in folders {
                index.refresh_folder(&self.dir, folder)?;
            }
        }
        Ok(ask(&index))
    }

    /// Changes the index; for the writer.
    pub(super) fn rename<T>(&self, change: impl FnOnce(&mut Index) -> T) -> T {
        change(&mut lock(&self.index))
    }

    /// Lists a folder again of which the writer no longer knows what is in it.
    pub(super) fn relist(&self, folder: &str) -> io::Result<()> {
        let mut index = lock(&self.index);
        index.doubt(folder);
        index.refresh_folder(&self.dir, folder)
    }

    /// Finds the file of a session.
    ///
    /// # Errors
    /// [`LoadError::Corrupt`] if there are two.
    pub(super) fn locate(&self, id: &SessionId) -> Result<Option<Place>, LoadError> {
        let stem = name_of(id);
        if let Some(place) = self.still_there(&stem).map_err(StoreError::from)? {
            return Ok(Some(place));
        }
        let mut places = self.names(|index| index.places(&stem)).map_err(StoreError::from)?;
        if places.len() > 1 {
            let source = DecodeError::Misplaced("the session has files in several folders".into());
            return Err(LoadError::Corrupt { session: id.clone(), place: "file".into(), source });
        }
        Ok(places.pop())
    }

    /// Finds the files of a session: where they were before, by a look at those folders alone; anywhere if there is none.
    pub(super) fn places(&self, stem: &str) -> io::Result<Vec<Place>> {
        {
            let mut index = lock(&self.index);
            if !self.is_owned() {
                for place in index.places(stem) {
                    index.refresh_folder(&self.dir, &place.folder)?;
                }
            }
            let known = index.places(stem);
            if !known.is_empty() {
                return Ok(known);
            }
        }
        self.names(|index| index.places(stem))
    }

    /// Finds the file of a session where it was before, by a look at that folder alone. Sessions are looked up one by one, and folders are many.
    fn still_there(&self, stem: &str) -> io::Result<Option<Place>> {
        let mut index = lock(&self.index);
        let mut known = index.places(stem);
        if !self.is_owned()
            && let [place] = &*known
        {
            index.refresh_folder(&self.dir, &place.folder.clone())?;
            known = index.places(stem);
        }
        Ok(known.pop().filter(|_| known.is_empty()))
    }

    /// Tells whether a session was removed.
    pub(super) fn is_removed(&self, id: &SessionId) -> io::Result<bool> {
        let stem = name_of(id);
        self.names(|index| index.is_removed(&stem))
    }

    fn remember(&self, place: &Place, still: bool, kept: Kept) -> Arc<Kept> {
        let kept = Arc::new(kept);
        if still && kept.stamp.as_ref().is_some_and(Stamp::is_settled) {
            lock(&self.kept).put(place.clone(), kept.clone());
        }
        kept
    }

    /// Returns what is remembered of a file as it is now. Opens nothing.
    pub(super) fn remembered(&self, place: &Place) -> io::Result<Remembered> {
        #[cfg(test)]
        self.looks.fetch_add(1, Ordering::SeqCst);
        // What the writer is writing shows when it is on the disk.
        if lock(&self.writing).contains_key(place)
            && let Some(kept) = lock(&self.kept).get(place)
        {
            return Ok(Remembered::Kept(kept.clone()));
        }
        let stamp = match fs::symlink_metadata(place.path(&self.dir)) {
            Ok(found) => Stamp::of(&found),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Remembered::Gone),
            Err(error) => return Err(error),
        };
        Ok(match lock(&self.kept).get(place) {
            Some(kept) if kept.stamp == Some(stamp) => Remembered::Kept(kept.clone()),
            _ => Remembered::Nothing,
        })
    }

    /// Returns what a file says, with what follows from its log if that is wanted; `None` if it is not there.
    pub(super) fn kept(&self, place: &Place, with_log: bool) -> io::Result<Option<Arc<Kept>>> {
        match self.remembered(place)? {
            Remembered::Gone => return Ok(None),
            Remembered::Kept(kept) if !with_log || kept.tells_all() => return Ok(Some(kept)),
            Remembered::Kept(_) | Remembered::Nothing => {}
        }
        let mut fold = |header: &Arc<Header>, text: &Front<'_>, end| scan::scan(header, text, end, &mut |_| ControlFlow::Continue(()));
        let reading = match self.read(place, with_log.then_some(&mut fold)) {
            Ok(Some(reading)) => reading,
            Ok(None) => return Ok(None),
            Err(error) if is_of_one_file(&error) => {
                let (id, source) = unread(place, &error);
                return Ok(Some(Arc::new(Kept { stamp: None, id, header: Err(source), said: None })));
            }
            Err(error) => return Err(error),
        };
        // Nothing stops it.
        let said = reading.said.and_then(|said| said.map(|scanned| scanned.map(|scanned| Summary::of(&scanned.fold))).transpose());
        let said = match (said, mend::quarantine(&self.dir, place)?) {
            (Some(_), Some(quarantine)) => Some(Err(Flaw::Line { place: "log".into(), source: mend::disowned(&quarantine) })),
            (said, _) => said,
        };
        Ok(Some(self.remember(place, reading.still, Kept { stamp: Some(reading.stamp), id: reading.id, header: reading.header, said })))
    }

    /// Tells that a file is about to grow beyond what is committed of it; for the writer.
    pub(super) fn begin(&self, place: &Place, committed: u64) {
        lock(&self.writing).insert(place.clone(), committed);
    }

    /// Puts in what the writer has written.
    pub(super) fn written(&self, place: &Place, found: &fs::Metadata, header: Arc<Header>, summary: Summary) {
        let wants = summary.head.wants_holder();
        let id = header.id.clone();
        let kept = Kept { stamp: Some(Stamp::of(found)), id: id.clone(), header: Ok(header), said: Some(Ok(summary)) };
        lock(&self.kept).put(place.clone(), Arc::new(kept));
        self.note_work(id, wants);
        lock(&self.writing).remove(place);
    }

    /// Tells that what was written is no longer there, or that nothing is known of it.
    pub(super) fn taken_back(&self, place: &Place, id: &SessionId) {
        self.undone.fetch_add(1, Ordering::SeqCst);
        lock(&self.kept).remove(place);
        lock(&self.writing).remove(place);
        // What is there is looked at anew.
        let mut work = lock(&self.work);
        work.known = None;
        work.meanwhile.remove(id);
    }

    /// Tells that a session was removed.
    pub(super) fn removed(&self, place: &Place, id: SessionId) {
        lock(&self.index).remove(place);
        lock(&self.kept).remove(place);
        self.note_work(id, false);
    }

    fn note_work(&self, id: SessionId, wants: bool) {
        let mut work = lock(&self.work);
        if work.lookers > 0 {
            work.meanwhile.insert(id.clone(), wants);
        }
        if let Some(known) = &mut work.known {
            if wants {
                known.insert(id);
            } else {
                known.remove(&id);
            }
        }
    }

    /// Returns the sessions that want a holder, or that cannot be read and so may want one, in order of their ids.
    pub(super) fn work(&self) -> io::Result<BTreeSet<SessionId>> {
        let owned = self.is_owned();
        if owned {
            let mut work = lock(&self.work);
            if let Some(known) = &work.known {
                return Ok(known.clone());
            }
            work.lookers += 1;
        }
        let found = self.look_for_work();
        if !owned {
            return found;
        }
        let mut work = lock(&self.work);
        work.lookers -= 1;
        let mut found = found?;
        for (id, wants) in &work.meanwhile {
            if *wants {
                found.insert(id.clone());
            } else {
                found.remove(id);
            }
        }
        if work.lookers == 0 {
            work.meanwhile.clear();
        }
        work.known = Some(found.clone());
        Ok(found)
    }

    fn look_for_work(&self) -> io::Result<BTreeSet<SessionId>> {
        let mut found = BTreeSet::new();
        for place in self.names(Index::all)? {
            if let Some(kept) = self.kept(&place, true)?
                && kept.summary().map_or_else(|_| kept.is_named(&place), |summary| summary.head.wants_holder())
            {
                found.insert(kept.id.clone());
            }
        }
        Ok(found)
    }

    /// Returns who is alive, and the epochs that it has begun.
    pub(super) fn holder(&self) -> io::Result<Option<(OwnerId, Epochs)>> {
        match &self.own {
            Some((owner, held)) if self.is_owned() => Ok(Some((owner.clone(), held.all()))),
            _ => held::of_others(&self.dir),
        }
    }
}
