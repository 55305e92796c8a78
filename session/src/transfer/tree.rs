//! Who stands below whom: which sessions a transfer or a removal is about.

use std::collections::HashSet;

use crate::{
    id::SessionId,
    listing::Cursor,
    store::{Reader, StoreError},
};

/// How many children are read at a time.
const PAGE: usize = 1_000;

/// Returns a session and everything below it, parents before children. Plain forks and damaged sessions are among them.
///
/// ```
/// use greenroom_session::transfer::below;
/// # use greenroom_session::{self as gs, store::Store};
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # store.commit(&[gs::store::Op::Create(create)])?;
/// # let child = gs::header::NewSession::child(gs::id::SessionId::new("child")?, root.clone(), 0);
/// # let descriptor = gs::descriptor::Descriptor::continuable("spawn", "collect facts", "reporter");
/// # store.commit(&[gs::store::Op::Create(gs::store::Create::child(child.clone(), Vec::new(), &descriptor, None, 2_000)?)])?;
/// assert_eq!(below(&mut *store.reader()?, &root)?, [root, child.id]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`StoreError`] if the store cannot be read.
pub fn below(reader: &mut dyn Reader, id: &SessionId) -> Result<Vec<SessionId>, StoreError> {
    let mut found = vec![id.clone()];
    // Nothing keeps two sessions from naming each other as parents.
    let mut seen: HashSet<SessionId> = found.iter().cloned().collect();
    let mut at = 0;
    while let Some(parent) = found.get(at).cloned() {
        let mut after = None;
        loop {
            let children = reader.children(Some(&parent), after.as_ref(), PAGE)?;
            after = children.last().map(|last| Cursor { created_at: last.created_at, id: last.id.clone() });
            let more = children.len() == PAGE;
            found.extend(children.into_iter().map(|child| child.id).filter(|child| seen.insert(child.clone())));
            if !more {
                break;
            }
        }
        at += 1;
    }
    Ok(found)
}

/// Returns every session of a store, in byte order.
///
/// ```
/// use greenroom_session::{store::{Store, memory::MemoryStore}, transfer::everything};
/// assert!(everything(&mut *MemoryStore::new().reader()?)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`StoreError`] if the store cannot be read.
pub fn everything(reader: &mut dyn Reader) -> Result<Vec<SessionId>, StoreError> {
    reader.find("", usize::MAX)
}
