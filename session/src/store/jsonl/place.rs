//! Where a session's file lies: the folder of its parent, and its name.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    id::SessionId,
    place::{EXTENSION, folder_of, id_of, name_of},
};

/// What follows a file's name, before an offset, in that of the copy of a torn end.
pub(super) const TORN: &str = ".torn-";
/// The same of the copy of an end that is damaged.
pub(super) const DAMAGED: &str = ".damaged-";

/// What follows a file's name in that of the mark of its quarantine.
pub(super) const QUARANTINE: &str = ".quarantine";

/// The place of a session's file within the store's folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// The name of the folder.
    pub(super) folder: Arc<str>,
    /// The name of the file without its ending.
    pub(super) stem: Arc<str>,
}

impl Place {
    pub(super) fn of(parent: Option<&SessionId>, id: &SessionId) -> Self {
        Self { folder: folder_of(parent).into(), stem: name_of(id).into() }
    }

    pub(super) fn path(&self, dir: &Path) -> PathBuf {
        let mut name = String::with_capacity(self.stem.len() + EXTENSION.len());
        name.push_str(&self.stem);
        name.push_str(EXTENSION);
        dir.join(&*self.folder).join(name)
    }

    /// Returns the id that the name says; `None` if it says none, as the name of a long id.
    pub(super) fn id(&self) -> Option<SessionId> {
        id_of(&self.stem)
    }
}
