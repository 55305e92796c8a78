//! Which store a URL names: `memory:`, `sqlite:PATH`, `jsonl:DIR`.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

use greenroom_session::store::{
    Reader, Store, StoreError,
    jsonl::{self, JsonlStore},
    memory::MemoryStore,
};
use thiserror::Error;

/// A store by its kind and place.
///
/// ```
/// use greenroom::store_url::StoreUrl;
/// let url: StoreUrl = "sqlite:/srv/desk.db".parse()?;
/// assert_eq!(url.to_string(), "sqlite:/srv/desk.db");
/// assert_eq!("jsonl:/srv/desk".parse::<StoreUrl>()?, StoreUrl::Jsonl("/srv/desk".into()));
/// assert!("desk.db".parse::<StoreUrl>().is_err());
/// # Ok::<(), greenroom::store_url::StoreUrlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// In memory; ends with the process.
    Memory,
    /// In an SQLite file.
    Sqlite(PathBuf),
    /// In a folder of JSON Lines, a file per session; one process writes to it at a time.
    Jsonl(PathBuf),
}

/// Why a text names no store.
///
/// ```
/// use greenroom::store_url::{StoreUrl, StoreUrlError};
/// assert!(matches!("desk.db".parse::<StoreUrl>(), Err(StoreUrlError::Scheme(_))));
/// assert!(matches!("sqlite:".parse::<StoreUrl>(), Err(StoreUrlError::NoPath(_))));
/// assert_eq!(StoreUrlError::NoPath("sqlite:".into()).code(), "STORE_URL");
/// ```
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrlError {
    /// The scheme is none of ours.
    #[error("{0:?} names no store: expected `sqlite:PATH`, `jsonl:DIR` or `memory:`")]
    Scheme(String),
    /// The path is missing.
    #[error("{0:?} has no path: expected `sqlite:PATH` or `jsonl:DIR`")]
    NoPath(String),
}

impl StoreUrlError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        "STORE_URL"
    }
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;
    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sqlite" | "jsonl", "")) => Err(StoreUrlError::NoPath(text.to_owned())),
            Some(("sqlite", path)) => Ok(Self::Sqlite(PathBuf::from(path))),
            Some(("jsonl", path)) => Ok(Self::Jsonl(PathBuf::from(path))),
            _ => Err(StoreUrlError::Scheme(text.to_owned())),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Jsonl(path) => write!(f, "jsonl:{}", path.display()),
        }
    }
}

impl StoreUrl {
    /// Opens the store, making it if there is none.
    ///
    /// Blocks for the disk.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be made or used, is no greenroom store, is of a newer version, or has its one writer; [`StoreError::Unsupported`] for a store that this
    /// build leaves out.
    pub fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        match self {
            Self::Memory => Ok(Arc::new(MemoryStore::new())),
            Self::Jsonl(path) => Ok(Arc::new(JsonlStore::open(path)?)),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => Ok(Arc::new(greenroom_session::store::sqlite::SqliteStore::open(path)?)),
            #[cfg(not(feature = "sqlite"))]
            Self::Sqlite(_) => Err(StoreError::Unsupported("this greenroom was built without the SQLite store".into())),
        }
    }

    /// Opens the store for reading only: nothing is made, and nothing is written.
    ///
    /// Blocks for the disk.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is no such store, as there never is in memory; else as [`StoreUrl::open`].
    pub fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        match self {
            Self::Memory => Err(StoreError::Missing { path: "memory:".into() }),
            Self::Jsonl(path) => Ok(Box::new(jsonl::open_reader(path)?)),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => Ok(Box::new(greenroom_session::store::sqlite::open_reader(path)?)),
            #[cfg(not(feature = "sqlite"))]
            Self::Sqlite(_) => Err(StoreError::Unsupported("this greenroom was built without the SQLite store".into())),
        }
    }
}
