//! The sessions of the store, as a client lists them.

use std::path::{Path, PathBuf};

use greenroom_actors::{Host, catalog::Listed, query::Page};
use greenroom_session::{
    event::{Body, RootOpened},
    id::SessionId,
    listing::Cursor,
};
use tokio_util::sync::CancellationToken;

use super::fault::Fault;

/// Sessions of one answer.
const PAGE: usize = 50;

/// One session of a list.
#[derive(Debug)]
pub(super) struct Info {
    pub(super) id: SessionId,
    pub(super) cwd: PathBuf,
    pub(super) title: Option<String>,
    /// As RFC 3339 has it.
    pub(super) updated_at: Option<String>,
}

/// Reads one page of the roots, oldest first. With a folder only those that were opened in it, so that a page may have fewer, and none.
pub(super) async fn list(host: &Host, fallback: &Path, folder: Option<&Path>, cursor: Option<&str>) -> Result<(Vec<Info>, Option<String>), Fault> {
    let after = cursor.map(|word| read_cursor(word).ok_or_else(|| Fault::params("INVALID_CURSOR", format!("{word:?} is no place in a list")))).transpose()?;
    let listing = host.list(None, Page { after, limit: Some(PAGE) }, false, CancellationToken::new()).await.map_err(|error| Fault::of_list(&error))?;
    let mut found = Vec::new();
    for entry in &listing.entries {
        // An orphan is no root, and what cannot be described cannot be opened either.
        let greenroom_actors::catalog::Entry::Root(listed) = entry else { continue };
        let info = info(host, fallback, listed).await;
        if folder.is_none_or(|folder| folder == info.cwd) {
            found.push(info);
        }
    }
    Ok((found, listing.next_cursor.as_ref().map(write_cursor)))
}

async fn info(host: &Host, fallback: &Path, listed: &Listed) -> Info {
    let cwd = opened(host, &listed.id).await.as_ref().and_then(folder_of);
    // What cannot be read is not said; the session is listed all the same.
    let written = host.last_written(&listed.id).await.ok().flatten();
    let updated_at = written.and_then(|time| jiff::Timestamp::from_millisecond(i64::try_from(time).ok()?).ok()).map(|time| time.to_string());
    Info { id: listed.id.clone(), cwd: cwd.unwrap_or_else(|| fallback.to_owned()), title: listed.label.clone(), updated_at }
}

/// Reads how a root was opened.
pub(super) async fn opened(host: &Host, root: &SessionId) -> Option<RootOpened> {
    let first = host.read_events(root, 0, 1, CancellationToken::new()).await.ok()?.pop()?;
    if let Body::RootOpened(opened) = first.body { Some(opened) } else { None }
}

/// Returns the folder that a client has opened a root in.
pub(super) fn folder_of(opened: &RootOpened) -> Option<PathBuf> {
    let cwd = opened.params.as_ref()?.get("cwd")?.as_str().map(PathBuf::from)?;
    cwd.is_absolute().then_some(cwd)
}

fn write_cursor(cursor: &Cursor) -> String {
    format!("{}:{}", cursor.created_at, cursor.id)
}

fn read_cursor(word: &str) -> Option<Cursor> {
    let (created_at, id) = word.split_once(':')?;
    Some(Cursor { created_at: created_at.parse().ok()?, id: SessionId::new(id).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_and_nothing_else_does() {
        let cursor = Cursor { created_at: 1_764_512_345_678, id: SessionId::new("a:b").unwrap() };
        assert_eq!(read_cursor(&write_cursor(&cursor)), Some(cursor));
        for word in ["", "x", "1", "x:y", "1:"] {
            assert_eq!(read_cursor(word), None, "{word:?}");
        }
    }
}
