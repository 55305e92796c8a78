//! What a header says of its parent, against what the parent's says of itself.

use std::sync::Arc;

use super::finding::{Class, Finding, Place};
use crate::{
    header::Header,
    id::SessionId,
    store::{LoadError, StoreError},
};

/// Checks a header against its parent's, and the way up from it where something is wrong there.
///
/// Depths that count rule a cycle out, so that only a depth that does not count makes it walk: a wrong one, or that of a fork, which counts from nothing.
/// A cycle is told once: by the session of the smallest id whose depth does not count. `find` returns a header, or `None` where there is no such session; a
/// header that is damaged is told by its own session.
///
/// # Errors
/// [`StoreError`] if the store failed.
pub fn lineage(header: &Header, mut find: impl FnMut(&SessionId) -> Result<Option<Arc<Header>>, LoadError>) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Vec::new();
    let Some(parent) = &header.parent else { return Ok(findings) };
    let mut tell = |class, what: String| findings.push(Finding::of(&header.id, Place::Header, class, what));
    let above = match readable(find(parent))? {
        Above::Missing => {
            tell(Class::Orphan, format!("its parent {parent} is not in the store"));
            return Ok(findings);
        }
        Above::Damaged => return Ok(findings),
        Above::Here(above) => above,
    };
    if !counts(header, &above) {
        match cycle(header, above.clone(), find)? {
            Some(length) => tell(Class::LineageCycle, format!("it is its own ancestor, {length} up")),
            None if header.is_fork() => {}
            None => tell(Class::HeaderConflict, format!("depth {} below a parent of depth {}", header.depth, above.depth)),
        }
    }
    if header.created_at < above.created_at {
        tell(Class::HeaderConflict, format!("created at {}, before its parent at {}", header.created_at, above.created_at));
    }
    Ok(findings)
}

enum Above {
    Missing,
    Damaged,
    Here(Arc<Header>),
}

fn readable(found: Result<Option<Arc<Header>>, LoadError>) -> Result<Above, StoreError> {
    match found {
        Ok(Some(header)) => Ok(Above::Here(header)),
        Ok(None) | Err(LoadError::NotFound(_) | LoadError::Removed(_)) => Ok(Above::Missing),
        Err(LoadError::Store(error)) => Err(error),
        Err(LoadError::Corrupt { .. } | LoadError::Fold { .. }) => Ok(Above::Damaged),
    }
}

fn counts(header: &Header, parent: &Header) -> bool {
    parent.depth.checked_add(1) == Some(header.depth)
}

/// Returns how many steps up from `header` it comes to itself again, if it does and is the one to tell.
fn cycle(header: &Header, parent: Arc<Header>, mut find: impl FnMut(&SessionId) -> Result<Option<Arc<Header>>, LoadError>) -> Result<Option<u64>, StoreError> {
    let mut at = parent;
    let mut steps: u64 = 1;
    // The way may lead into a cycle that it does not begin in; then a mark that is set further and further apart is met again (R. P. Brent, 1980).
    let (mut mark, mut next_mark) = (at.id.clone(), 2);
    loop {
        if at.id == header.id {
            return Ok(Some(steps));
        }
        let Some(parent) = &at.parent else { return Ok(None) };
        let Above::Here(above) = readable(find(parent))? else { return Ok(None) };
        // Whatever cycle leads through here, that one tells it.
        if !counts(&at, &above) && at.id < header.id {
            return Ok(None);
        }
        at = above;
        steps += 1;
        if at.id == mark && at.id != header.id {
            return Ok(None);
        }
        if steps == next_mark {
            mark = at.id.clone();
            next_mark *= 2;
        }
    }
}
