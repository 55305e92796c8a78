//! Which files there are, by name: where a session lies without a look at any file.
//!
//! The writer of a folder keeps this right as it goes. Anybody else lists a folder again when its stamp says that names have changed.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    io::{self, ErrorKind},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{disk::at, place::Place, stamp::Stamp};
use crate::place::{EXTENSION, ROOTS};

/// What the name of a removed session's tombstone ends with.
pub(crate) const REMOVED: &str = ".removed";

/// The newest version of any folder's names. Counted for the process, so that no two lists of names have the same one.
static VERSIONS: AtomicU64 = AtomicU64::new(0);

/// The names in one folder.
#[derive(Debug)]
struct Listed {
    stamp: Option<Stamp>,
    /// Which names these are: others have another version.
    version: u64,
    stems: HashSet<Arc<str>>,
    removed: HashSet<Arc<str>>,
}

impl Default for Listed {
    fn default() -> Self {
        Self { stamp: None, version: next_version(), stems: HashSet::new(), removed: HashSet::new() }
    }
}

fn next_version() -> u64 {
    VERSIONS.fetch_add(1, Ordering::Relaxed)
}

/// The names in a store.
#[derive(Debug, Default)]
pub(super) struct Index {
    folders: BTreeMap<Arc<str>, Listed>,
    /// By name, the folders that have a file of it; more than one is damage.
    places: HashMap<Arc<str>, Vec<Arc<str>>>,
    /// Names that are never to be used again, and the folders that say so.
    removed: HashMap<Arc<str>, Arc<str>>,
    /// Files of removed sessions that are still there, since whoever removed them was killed.
    leftovers: Vec<Place>,
}

impl Index {
    /// Lists what may have changed.
    pub(super) fn refresh(&mut self, dir: &Path) -> io::Result<()> {
        let mut there = HashSet::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| *name == ROOTS || !name.starts_with('_')) else { continue };
            if entry.file_type()?.is_dir() {
                there.insert(Arc::<str>::from(name));
            }
        }
        let gone: Vec<Arc<str>> = self.folders.keys().filter(|folder| !there.contains(*folder)).cloned().collect();
        for folder in gone {
            self.forget(&folder);
        }
        for folder in there {
            self.refresh_folder(dir, &folder)?;
        }
        Ok(())
    }

    /// Lists one folder if it may have changed.
    pub(super) fn refresh_folder(&mut self, dir: &Path, folder: &str) -> io::Result<()> {
        let path = dir.join(folder);
        let before = match fs::metadata(&path) {
            Ok(found) => Stamp::of(&found),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.forget(folder);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if self.folders.get(folder).is_some_and(|listed| listed.stamp == Some(before)) {
            return Ok(());
        }
        let mut listed = Listed { stamp: before.is_settled().then_some(before), ..Listed::default() };
        for entry in fs::read_dir(&path).map_err(at(&path))? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('_')) else { continue };
            let (names, stem) = if let Some(stem) = name.strip_suffix(EXTENSION) {
                (&mut listed.stems, stem)
            } else if let Some(stem) = name.strip_suffix(REMOVED) {
                (&mut listed.removed, stem)
            } else {
                continue;
            };
            // The writer makes no links and no folders here: what is none of its files says nothing.
            if entry.file_type()?.is_file() {
                names.insert(stem.into());
            }
        }
        self.forget(folder);
        let folder: Arc<str> = folder.into();
        let left = listed.stems.extract_if(|stem| listed.removed.contains(stem));
        self.leftovers.extend(left.map(|stem| Place { folder: folder.clone(), stem }));
        for stem in &listed.stems {
            self.places.entry(stem.clone()).or_default().push(folder.clone());
        }
        self.removed.extend(listed.removed.iter().map(|stem| (stem.clone(), folder.clone())));
        self.folders.insert(folder, listed);
        Ok(())
    }

    fn forget(&mut self, folder: &str) {
        let Some(listed) = self.folders.remove(folder) else { return };
        for stem in listed.stems {
            self.leave(&stem, folder);
        }
        for stem in listed.removed {
            self.removed.remove(&stem);
        }
    }

    fn leave(&mut self, stem: &str, folder: &str) {
        if let Some(folders) = self.places.get_mut(stem) {
            folders.retain(|other| **other != *folder);
            if folders.is_empty() {
                self.places.remove(stem);
            }
        }
    }

    /// Adds a file that has come.
    pub(super) fn add(&mut self, place: &Place) {
        let listed = self.folders.entry(place.folder.clone()).or_default();
        listed.version = next_version();
        if listed.stems.insert(place.stem.clone()) {
            self.places.entry(place.stem.clone()).or_default().push(place.folder.clone());
        }
    }

    /// Takes the file of a session away that was removed.
    pub(super) fn remove(&mut self, place: &Place) {
        if let Some(listed) = self.folders.get_mut(&place.folder) {
            listed.version = next_version();
            listed.stems.remove(&place.stem);
            listed.removed.insert(place.stem.clone());
        }
        self.leave(&place.stem, &place.folder);
        self.removed.insert(place.stem.clone(), place.folder.clone());
    }

    /// Returns the files of removed sessions that are still there.
    pub(super) fn take_leftovers(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.leftovers)
    }

    /// Makes sure that a folder is listed again, whatever its stamp says.
    pub(super) fn doubt(&mut self, folder: &str) {
        if let Some(listed) = self.folders.get_mut(folder) {
            listed.stamp = None;
        }
    }

    /// Returns where files of a name lie.
    pub(super) fn places(&self, stem: &str) -> Vec<Place> {
        let folders = self.places.get(stem).map(Vec::as_slice).unwrap_or_default();
        folders.iter().map(|folder| Place { folder: folder.clone(), stem: stem.into() }).collect()
    }

    /// Tells whether there is a file of a name.
    pub(super) fn has(&self, stem: &str) -> bool {
        self.places.contains_key(stem)
    }

    /// Tells whether a name was removed.
    pub(super) fn is_removed(&self, stem: &str) -> bool {
        self.removed.contains_key(stem)
    }

    /// Returns where the file of a removed session was.
    pub(super) fn removed(&self, stem: &str) -> Option<Place> {
        self.removed.get_key_value(stem).map(|(stem, folder)| Place { folder: folder.clone(), stem: stem.clone() })
    }

    /// Returns the files in a folder.
    pub(super) fn folder(&self, folder: &str) -> Vec<Place> {
        let Some((folder, listed)) = self.folders.get_key_value(folder) else { return Vec::new() };
        listed.stems.iter().map(|stem| Place { folder: folder.clone(), stem: stem.clone() }).collect()
    }

    /// Returns which names there are in a folder, as a number that is another one when they are others.
    pub(super) fn version(&self, folder: &str) -> Option<u64> {
        self.folders.get(folder).map(|listed| listed.version)
    }

    /// Returns the files of roots, and those of orphans: in folders whose parent has no file.
    pub(super) fn topmost(&self) -> Vec<Place> {
        let folders = self.folders.keys().filter(|folder| ***folder == *ROOTS || !self.has(folder));
        folders.flat_map(|folder| self.folder(folder)).collect()
    }

    /// Returns every file.
    pub(super) fn all(&self) -> Vec<Place> {
        self.folders.keys().flat_map(|folder| self.folder(folder)).collect()
    }

    /// Tells whether the session of a name lies in the tree of another. Follows folders, and reads no file.
    pub(super) fn in_tree(&self, stem: &str, root: &str) -> bool {
        let mut at = stem;
        // Nothing keeps two sessions from naming each other as parents.
        let mut seen = HashSet::new();
        loop {
            if at == root {
                return true;
            }
            match self.places.get(at).and_then(|folders| folders.first()) {
                Some(folder) if **folder != *ROOTS && seen.insert(at) => at = folder,
                _ => return false,
            }
        }
    }
}
