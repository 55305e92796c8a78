//! Lists made from a reader alone, for a process that runs nothing.

use greenroom_session::{
    id::SessionId,
    store::{LoadError, Reader, Traced},
};

use super::{
    describe::{entries, entry, listing},
    entry::{Entry, Listing},
};
use crate::{
    error::{ListError, QueryError},
    query::{Corpus, Page},
};

/// Lists the children of a session, or the roots and orphans if `None`, from a reader alone: for a process that runs nothing.
///
/// The same rules as those of the actor, except that `running` is known by the leases only. Blocks for the disk.
///
/// # Errors
/// [`ListError::Query`].
pub fn read_listing(reader: &mut dyn Reader, parent: Option<&SessionId>, page: &Page, verify: bool) -> Result<Listing, ListError> {
    let family = Corpus::stored(reader).family(parent, &page.one_more()?, verify)?;
    listing(parent, family, page.limit, |_| false)
}

/// Lists as [`read_listing`] does for a parent that is known to exist, without looking at its ancestors again: for a walk from above.
///
/// # Errors
/// [`ListError::Query`].
pub fn read_children(reader: &mut dyn Reader, parent: Option<&SessionId>, page: &Page, verify: bool) -> Result<Listing, ListError> {
    let family = Corpus::stored(reader).members(parent, &page.one_more()?, verify)?;
    listing(parent, family, page.limit, |_| false)
}

/// Lists as [`read_children`] does, and names in their places those that are listed nowhere, forks among them: what is below them may be listed.
///
/// # Errors
/// [`ListError::Query`].
pub fn read_members(reader: &mut dyn Reader, parent: Option<&SessionId>) -> Result<Vec<(SessionId, Option<Entry>)>, ListError> {
    let family = Corpus::stored(reader).members(parent, &Page::default(), false)?;
    let member = |(child, described): (Traced, _)| Ok((child.id.clone(), entry(parent, child, described, false)?));
    family.into_iter().map(member).collect()
}

/// Describes one session from a reader alone, as its parent's listing would; `None` for a plain fork.
///
/// # Errors
/// [`ListError::Query`] if there is no such session or the store failed.
pub fn read_entry(reader: &mut dyn Reader, id: &SessionId) -> Result<Option<Entry>, ListError> {
    let header = match reader.header(id) {
        Ok(Some(header)) => Ok(header),
        Ok(None) => return Err(QueryError::SessionNotFound(id.clone()).into()),
        Err(LoadError::Corrupt { source, .. }) => Err(source),
        Err(error) => return Err(QueryError::from_load(error).into()),
    };
    let parent = header.as_ref().ok().and_then(|header| header.parent.clone());
    let traced = Traced { id: id.clone(), created_at: header.as_ref().map_or(0, |header| header.created_at), header };
    let described = Corpus::stored(reader).describe(traced)?;
    Ok(entries(parent.as_ref(), described, |_| false)?.into_iter().next())
}
