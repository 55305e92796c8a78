//! Where the lock files of commands are: one per epoch of a session.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use greenroom_session::id::{Epoch, SessionId};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::store_url::StoreUrl;

/// The folder of the lock files. It belongs to one store: two runtimes over one store must meet at the same file.
///
/// A lock file must not be deleted while a command may hold it: a run removes its own at its end, and those of a crash stay until the next run of the same session.
/// Each epoch has its own, so that whoever was overtaken can neither end nor keep out the command of whoever has overtaken it. The folder of a store in memory, which no other process can share, goes at the end of its run, or when this is dropped.
///
/// ```
/// use std::path::Path;
/// use greenroom::{SessionId, agent::Guards};
/// let guards = Guards::of(&"sqlite:/srv/desk.db".parse()?);
/// assert_eq!(guards.folder(), Path::new("/srv/desk.db-guards"));
/// assert_eq!(guards.lock_of(&SessionId::new("A/b")?, 3), Path::new("/srv/desk.db-guards/%41%2fb.3.lock"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Guards {
    folder: PathBuf,
    temporary: bool,
}

/// Longer names are replaced by a digest; most file systems take 255 bytes.
const LONGEST_NAME: usize = 200;

impl Guards {
    /// Returns the folder for a store. Creates nothing.
    pub fn of(store: &StoreUrl) -> Self {
        match store {
            StoreUrl::Memory => Self::temporary(),
            StoreUrl::Sqlite(path) | StoreUrl::Jsonl(path) => {
                // As the store itself does: the same store by another name has the same locks.
                let path = path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.clone());
                // Without a slash at its end: beside a folder, not in it.
                let mut folder = path.components().collect::<PathBuf>().into_os_string();
                folder.push("-guards");
                Self { folder: folder.into(), temporary: false }
            }
        }
    }

    /// Returns a new folder among the temporary files.
    pub fn temporary() -> Self {
        Self { folder: std::env::temp_dir().join(format!("greenroom-{}", Uuid::new_v4())), temporary: true }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the lock file of a session in one epoch of it. Different sessions have different files, also where file names have no case. No name has a dot before that
    /// of its epoch.
    pub fn lock_of(&self, session: &SessionId, epoch: Epoch) -> PathBuf {
        let mut name = String::new();
        for byte in session.as_str().bytes() {
            // Writing to a string cannot fail.
            let _ = match byte {
                b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => write!(name, "{}", char::from(byte)),
                _ => write!(name, "%{byte:02x}"),
            };
        }
        if name.len() > LONGEST_NAME {
            // No encoded name begins like this.
            "~".clone_into(&mut name);
            for byte in Sha256::digest(session.as_str().as_bytes()) {
                let _ = write!(name, "{byte:02x}");
            }
        }
        let _ = write!(name, ".{epoch}.lock");
        self.folder.join(name)
    }

    /// Returns the lock file of one tool call of a session in one epoch of it. It is nobody else's: no session's file begins like this.
    pub fn lock_of_call(&self, session: &SessionId, epoch: Epoch, call: &str) -> PathBuf {
        let mut digest = Sha256::new();
        digest.update(session.as_str());
        // No text holds this byte.
        digest.update([0xff]);
        digest.update(call);
        let mut name = String::from("+");
        for byte in digest.finalize() {
            // Writing to a string cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        let _ = write!(name, ".{epoch}.lock");
        self.folder.join(name)
    }

    /// Removes the folder if it is a temporary one. A run does so itself: its last actor holds these guards, and the process may end before that is dropped.
    pub(crate) fn remove(&self) {
        if self.temporary {
            // What cannot be deleted is left to whoever cleans the temporary files.
            drop(std::fs::remove_dir_all(&self.folder));
        }
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(id: &str) -> String {
        let guards = Guards { folder: "/g".into(), temporary: false };
        let path = guards.lock_of(&SessionId::new(id).unwrap(), 7);
        assert_eq!(path.parent(), Some(Path::new("/g")));
        path.file_name().unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn names_are_safe() {
        assert_eq!(name("ab-1_2"), "ab-1_2.7.lock");
        assert_eq!(name("../x"), "%2e%2e%2fx.7.lock");
        assert_eq!(name("A"), "%41.7.lock");
        assert_eq!(name("é"), "%c3%a9.7.lock");
        assert_eq!(name(&"/".repeat(500)).len(), 1 + 64 + ".7.lock".len());
    }

    #[test]
    fn the_folder_stands_beside_the_store() {
        let guards = Guards::of(&StoreUrl::Sqlite("/srv/desk.db".into()));
        assert_eq!(guards.folder(), Path::new("/srv/desk.db-guards"));
        let guards = Guards::of(&StoreUrl::Jsonl("/srv/desk/".into()));
        assert_eq!(guards.folder(), Path::new("/srv/desk-guards"));
    }

    #[test]
    fn each_call_has_a_lock_of_its_own_in_each_epoch() {
        let guards = Guards { folder: "/g".into(), temporary: false };
        let session = |id: &str| SessionId::new(id).unwrap();
        let lock = |id: &str, epoch, call: &str| guards.lock_of_call(&session(id), epoch, call);
        let all = [lock("a", 1, "b"), lock("a", 2, "b"), lock("ab", 1, ""), lock("a", 1, "c"), lock("a", 1, "../b"), guards.lock_of(&session("a"), 1)];
        for (one, a) in all.iter().enumerate() {
            assert_eq!(a.parent(), Some(Path::new("/g")));
            assert!(all.iter().skip(one + 1).all(|b| a != b));
        }
    }

    proptest! {
        #[test]
        fn different_sessions_have_different_locks(a in "[aA./%é~]{1,6}|[/a]{200,210}", b in "[aA./%é~]{1,6}|[/a]{200,210}") {
            prop_assert_eq!(a == b, name(&a).to_lowercase() == name(&b).to_lowercase());
        }
    }
}
