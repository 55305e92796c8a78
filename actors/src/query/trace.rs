//! Where a session comes from and what comes from it.

use std::{collections::HashSet, sync::Arc};

use greenroom_session::{
    header::Header,
    id::SessionId,
    store::{Reader, Traced},
};

use super::corpus::Corpus;
use crate::error::QueryError;

/// Where a session comes from, and everything that comes from it. No log was read for it.
///
/// ```
/// use greenroom_actors::{Delegate, host::NewRoot, query::Trace};
/// use tokio_util::sync::CancellationToken;
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let root = host.root(NewRoot::new("echo", "a desk")).await?;
/// let child = root.agent().start_continuable(Delegate::new("echo", "an echo", "one")).await?.child;
/// let trace: Trace = host.trace(&child, CancellationToken::new()).await?;
/// assert_eq!(trace.target.id, child);
/// assert_eq!(trace.ancestors[0].id, *root.id());
/// assert_eq!(trace.root().map(|header| &header.id), Some(root.id()));
/// assert!(trace.descendants.is_empty());
/// # root.quiescent().await?;
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The session's header.
    pub target: Arc<Header>,
    /// Its ancestors, the parent first.
    pub ancestors: Vec<Arc<Header>>,
    /// The ancestor that is not in the store, if the chain ends at one.
    pub unresolved_parent: Option<SessionId>,
    /// Everything below it, each session before its own children; siblings by creation time, then id in byte order.
    pub descendants: Vec<Descent>,
}

impl Trace {
    /// Returns the root that the chain of parents leads to, the session itself if it has none; `None` if the chain ends at a session that is not there.
    pub fn root(&self) -> Option<&Arc<Header>> {
        self.unresolved_parent.is_none().then(|| self.ancestors.last().unwrap_or(&self.target))
    }

    /// Returns the direct children.
    pub fn children(&self) -> impl Iterator<Item = &Traced> {
        self.descendants.iter().filter(|descent| descent.depth == 1).map(|descent| &descent.session)
    }
}

/// A session below the one that was traced.
///
/// ```
/// use greenroom_actors::{Delegate, host::NewRoot, query::Descent};
/// use tokio_util::sync::CancellationToken;
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let root = host.root(NewRoot::new("echo", "a desk")).await?;
/// let child = root.agent().start_continuable(Delegate::new("echo", "an echo", "one")).await?.child;
/// let mut trace = host.trace(root.id(), CancellationToken::new()).await?;
/// let Descent { parent, depth, session } = trace.descendants.remove(0);
/// assert_eq!((&parent, depth, session.id), (root.id(), 1, child));
/// # root.quiescent().await?;
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Descent {
    /// The session below which it was found.
    pub parent: SessionId,
    /// How far it is below the session that was traced: 1 for a direct child.
    pub depth: usize,
    /// The session, or what is wrong with its header. What is below a damaged one is there all the same.
    pub session: Traced,
}

/// Where a session comes from.
///
/// ```
/// use greenroom_actors::query::{Lineage, read_lineage};
/// use greenroom_session::{header::NewSession, id::SessionId, store::{Create, Op, Store, memory::MemoryStore}};
/// let store = MemoryStore::new();
/// let root = SessionId::new("root")?;
/// store.commit(&[Op::Create(Create::root(NewSession::root(root.clone()), "editor", "story"))])?;
/// let Lineage { target, ancestors, unresolved_parent } = read_lineage(&mut *store.reader()?, &root)?;
/// assert_eq!((&target.id, ancestors.len(), unresolved_parent), (&root, 0, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Lineage {
    /// The session's header.
    pub target: Arc<Header>,
    /// Its ancestors, the parent first.
    pub ancestors: Vec<Arc<Header>>,
    /// The ancestor that is not in the store, if the chain ends at one.
    pub unresolved_parent: Option<SessionId>,
}

/// Follows a session to its root from a reader alone: for a process that runs nothing. Blocks for the disk.
///
/// # Errors
/// [`QueryError::SessionNotFound`], [`QueryError::InvalidLineage`] if its parents run in a circle, or that the store or a header cannot be read.
pub fn read_lineage(reader: &mut dyn Reader, session: &SessionId) -> Result<Lineage, QueryError> {
    Corpus::stored(reader).lineage(session)
}

impl Corpus<'_> {
    /// Follows a session to its root and to everything below it, without a look into any log.
    pub(super) fn trace(&mut self, session: &SessionId) -> Result<Trace, QueryError> {
        let Lineage { target, ancestors, unresolved_parent } = self.lineage(session)?;
        Ok(Trace { target, ancestors, unresolved_parent, descendants: self.descendants(session)? })
    }

    /// Follows a session to its root.
    pub(crate) fn lineage(&mut self, session: &SessionId) -> Result<Lineage, QueryError> {
        let target = self.header(session)?.ok_or_else(|| QueryError::SessionNotFound(session.clone()))?;
        let mut ancestors = Vec::new();
        let mut seen = HashSet::from([session.clone()]);
        let mut unresolved_parent = None;
        let mut next = target.parent.clone();
        while let Some(id) = next.take() {
            if !seen.insert(id.clone()) {
                return Err(QueryError::InvalidLineage(session.clone()));
            }
            if let Some(ancestor) = self.header(&id)? {
                next.clone_from(&ancestor.parent);
                ancestors.push(ancestor);
            } else {
                unresolved_parent = Some(id);
                break;
            }
        }
        Ok(Lineage { target, ancestors, unresolved_parent })
    }

    /// Finds everything below a session. What is damaged may be found in two places; it is told where it is found first, so that no circle has an end to look for.
    pub(super) fn descendants(&mut self, top: &SessionId) -> Result<Vec<Descent>, QueryError> {
        let mut seen = HashSet::from([top.clone()]);
        let mut open = self.below(top, 1)?;
        let mut found = Vec::new();
        while let Some(descent) = open.pop() {
            let id = &descent.session.id;
            if seen.insert(id.clone()) {
                open.extend(self.below(id, descent.depth + 1)?);
                found.push(descent);
            }
        }
        Ok(found)
    }

    /// Returns the children of a session, the last one first.
    fn below(&mut self, parent: &SessionId, depth: usize) -> Result<Vec<Descent>, QueryError> {
        self.go_on()?;
        let children = self.reader.children(Some(parent), None, usize::MAX)?;
        self.all_agree(&children)?;
        Ok(children.into_iter().rev().map(|session| Descent { parent: parent.clone(), depth, session }).collect())
    }

    /// Compares the headers of sessions that were found, as far as they can be read, with those of live ones.
    pub(super) fn all_agree<'t>(&self, found: impl IntoIterator<Item = &'t Traced>) -> Result<(), QueryError> {
        found.into_iter().filter_map(|traced| traced.header.as_ref().ok()).try_for_each(|stored| self.agree(stored))
    }
}
