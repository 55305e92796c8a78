//! Which store is meant, and how a verb opens it: for reading only, or for writing into one that is there.

use std::path::PathBuf;
use std::sync::Arc;

use etcetera::BaseStrategy;
use greenroom::{
    session::store::{Reader, Store, jsonl::JsonlStore},
    store_url::StoreUrl,
};

use super::failure::Failure;

/// Returns the store that the flag or the environment names, else the one in the user's data folder.
pub(crate) fn url(named: Option<&str>) -> Result<StoreUrl, Failure> {
    match named {
        // An empty GREENROOM_STORE is the same as none.
        Some(text) if !text.is_empty() => Ok(text.parse()?),
        _ => default_path().map(StoreUrl::Sqlite),
    }
}

fn default_path() -> Result<PathBuf, Failure> {
    let strategy = etcetera::choose_base_strategy().map_err(|error| Failure::new("STORE_URL", format!("the user's data folder is not known: {error}")))?;
    Ok(strategy.data_dir().join("greenroom").join("greenroom.db"))
}

/// Opens an existing store for reading only. Makes nothing and writes nothing.
pub(crate) fn reader(url: &StoreUrl) -> Result<Box<dyn Reader>, Failure> {
    match url {
        StoreUrl::Memory => Err(nothing_kept()),
        StoreUrl::Sqlite(_) | StoreUrl::Jsonl(_) => Ok(url.reader()?),
    }
}

/// Opens an existing store for writing. Makes none.
pub(crate) fn writer(url: &StoreUrl) -> Result<Arc<dyn Store>, Failure> {
    match url {
        StoreUrl::Memory => Err(nothing_kept()),
        StoreUrl::Jsonl(path) => Ok(Arc::new(JsonlStore::open_existing(path)?)),
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(path) => Ok(Arc::new(greenroom::session::store::sqlite::SqliteStore::open_existing(path)?)),
        #[cfg(not(feature = "sqlite"))]
        StoreUrl::Sqlite(_) => Err(url.open().map_or_else(Failure::from, |_| nothing_kept())),
    }
}

/// Opens a store for writing, making it if there is none.
pub(crate) fn maker(url: &StoreUrl) -> Result<Arc<dyn Store>, Failure> {
    match url {
        StoreUrl::Memory => Err(nothing_kept()),
        StoreUrl::Sqlite(_) | StoreUrl::Jsonl(_) => Ok(url.open()?),
    }
}

fn nothing_kept() -> Failure {
    Failure::new("STORE_NOT_FOUND", "a `memory:` store ends with the process that made it")
        .help("name the store of an earlier run with --store sqlite:PATH or --store jsonl:DIR")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_goes_before_the_data_folder() {
        assert_eq!(url(Some("sqlite:x.db")).unwrap(), StoreUrl::Sqlite("x.db".into()));
        assert_eq!(url(Some("jsonl:x")).unwrap(), StoreUrl::Jsonl("x".into()));
        assert!(matches!(url(None).unwrap(), StoreUrl::Sqlite(path) if path.ends_with("greenroom/greenroom.db")));
        assert_eq!(url(Some("")).unwrap(), url(None).unwrap());
        assert!(url(Some("x.db")).is_err());
        assert!(reader(&StoreUrl::Memory).is_err());
    }
}
