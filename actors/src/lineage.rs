//! Where a session comes from: the ids of those above it, which are kept while it lives.
//!
//! A chain that is shared with the session's live ancestors, so that a tree of any depth keeps each id once.

use std::{collections::HashSet, fmt, sync::Arc};

use greenroom_session::{
    header::Header,
    id::SessionId,
    store::{LoadError, Reader, StoreError},
};

use crate::live::LiveTable;

/// The sessions above one, the nearest first. A fork has nobody above it: it is nobody's child.
#[derive(Clone, Default)]
pub(crate) struct Lineage(Option<Arc<Above>>);

struct Above {
    id: SessionId,
    rest: Lineage,
}

impl Drop for Above {
    fn drop(&mut self) {
        // One after the other: a chain may be too long for a call within a call for each.
        let mut rest = std::mem::take(&mut self.rest);
        while let Some(mut above) = rest.0.take().and_then(Arc::into_inner) {
            rest = std::mem::take(&mut above.rest);
        }
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

impl Lineage {
    /// Returns the lineage of a child of `parent`, which has this one.
    pub(crate) fn of_child(&self, parent: &SessionId) -> Self {
        Self(Some(Arc::new(Above { id: parent.clone(), rest: self.clone() })))
    }

    /// Returns the ids, the nearest first.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &SessionId> {
        std::iter::successors(self.0.as_deref(), |above| above.rest.0.as_deref()).map(|above| &above.id)
    }

    /// Finds the lineage of the session of a header: by what is live, else by the headers above it. It ends where one cannot be read, and where it comes round in
    /// a circle.
    pub(crate) fn find(reader: &mut dyn Reader, live: &LiveTable, header: &Header) -> Result<Self, StoreError> {
        let mut above = Vec::new();
        let mut seen = HashSet::from([header.id.clone()]);
        let mut next = header.parent.clone().filter(|_| header.is_subagent());
        let mut lineage = Self::default();
        while let Some(id) = next {
            if !seen.insert(id.clone()) {
                break;
            }
            if let Some(view) = live.get(&id) {
                lineage = view.below.clone();
                break;
            }
            next = match reader.header(&id) {
                Ok(Some(header)) if header.is_subagent() => header.parent.clone(),
                Err(LoadError::Store(error)) => return Err(error),
                Ok(_) | Err(_) => None,
            };
            above.push(id);
        }
        Ok(above.iter().rev().fold(lineage, |lineage, id| lineage.of_child(id)))
    }
}

#[cfg(test)]
mod tests {
    use greenroom_session::{
        header::NewSession,
        store::{Create, Op, Store, memory::MemoryStore},
    };

    use super::*;

    fn id(text: impl Into<String>) -> SessionId {
        SessionId::new(text.into()).unwrap()
    }

    fn ids(lineage: &Lineage) -> Vec<&str> {
        lineage.ids().map(SessionId::as_str).collect()
    }

    #[test]
    fn a_lineage_goes_up_through_children_and_ends_at_a_root_or_a_fork() {
        let store = MemoryStore::new();
        let create = |session: NewSession| {
            let events = [].into();
            store.commit(&[Op::Create(Create { session, time: 0, events, message: None })]).unwrap().remove(0).unwrap();
        };
        create(NewSession::root(id("root")));
        create(NewSession::child(id("child"), id("root"), 0));
        create(NewSession::child(id("grandchild"), id("child"), 1));
        create(NewSession::fork(id("fork"), id("child")));
        create(NewSession::child(id("of the fork"), id("fork"), 0));
        let mut reader = store.reader().unwrap();
        for (session, expected) in
            [("root", vec![]), ("child", vec!["root"]), ("grandchild", vec!["child", "root"]), ("fork", vec![]), ("of the fork", vec!["fork"])]
        {
            let header = reader.header(&id(session)).unwrap().unwrap();
            let found = Lineage::find(&mut *reader, &LiveTable::default(), &header).unwrap();
            assert_eq!(ids(&found), expected, "of {session}");
        }
    }

    #[test]
    fn a_long_lineage_is_walked_and_dropped_without_recursion() {
        let mut lineage = Lineage::default();
        for number in 0..200_000 {
            lineage = lineage.of_child(&id(format!("session {number}")));
        }
        let shared = lineage.clone();
        drop(lineage);
        assert_eq!(shared.ids().count(), 200_000);
        drop(shared);
    }
}
