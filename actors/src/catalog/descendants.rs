//! The list of everything below a session.

use std::ops::ControlFlow;

use greenroom_session::{id::SessionId, listing::Cursor};

use super::{Reply, describe::entry, entry::Entry};
use crate::{
    error::{ListError, QueryError},
    live::LiveTable,
    query::{Step, Walker},
};

/// One line of a list of descendants.
///
/// ```
/// use greenroom_actors::{Delegate, catalog::Descendant, host::NewRoot, query::Page};
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
/// root.quiescent().await?;
/// let mut list = host.list_descendants(root.id(), Page::default(), CancellationToken::new()).await?;
/// let Descendant { parent, depth, entry } = list.entries.remove(0);
/// assert_eq!((&parent, depth, entry.id()), (root.id(), 1, &child));
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descendant {
    /// The session below which it was found. It has no line of its own if it is the one that was asked about, or is listed nowhere.
    pub parent: SessionId,
    /// How far it is below the session that was asked about: 1 for a direct child.
    pub depth: usize,
    /// What a listing of its parent's children shows of it.
    pub entry: Entry,
}

/// A part of a list of descendants.
///
/// ```
/// use greenroom_actors::{Delegate, catalog::Descendants, host::NewRoot, query::Page};
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
/// for label in ["one", "two"] {
///     root.agent().start_continuable(Delegate::new("echo", label, "hello")).await?;
/// }
/// let page = Page { after: None, limit: Some(1) };
/// let Descendants { entries, next_cursor } = host.list_descendants(root.id(), page, CancellationToken::new()).await?;
/// assert_eq!(entries.len(), 1);
/// let rest = host.list_descendants(root.id(), Page { after: next_cursor, limit: None }, CancellationToken::new()).await?;
/// assert_eq!((rest.entries.len(), rest.next_cursor), (1, None));
/// # root.quiescent().await?;
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Descendants {
    /// The lines: each session before its own children, siblings by creation time then id in byte order.
    pub entries: Vec<Descendant>,
    /// Where the next page begins, if a limit was given and there is more.
    pub next_cursor: Option<Cursor>,
}

/// Gathers the lines of one page on a walk, and answers at its end.
#[derive(Debug)]
pub(super) struct Gathering {
    live: LiveTable,
    limit: usize,
    list: Descendants,
    /// The place of the last line.
    last: Option<Cursor>,
    failed: Option<ListError>,
    reply: Reply<Descendants>,
}

impl Gathering {
    pub(super) fn new(live: LiveTable, limit: Option<usize>, reply: Reply<Descendants>) -> Self {
        Self { live, limit: limit.unwrap_or(usize::MAX), list: Descendants::default(), last: None, failed: None, reply }
    }
}

impl Walker for Gathering {
    fn see(&mut self, step: Step) -> ControlFlow<()> {
        let Step { parent, depth, child, described } = step;
        let place = Cursor { created_at: child.created_at, id: child.id.clone() };
        let resident = self.live.is_resident(&child.id);
        match entry(Some(&parent), child, described, resident) {
            // Listed nowhere; what is below it is.
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(_)) if self.list.entries.len() == self.limit => {
                self.list.next_cursor = self.last.take();
                ControlFlow::Break(())
            }
            Ok(Some(entry)) => {
                self.list.entries.push(Descendant { parent, depth, entry });
                self.last = Some(place);
                ControlFlow::Continue(())
            }
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn end(self: Box<Self>, end: Result<(), QueryError>) {
        let list = match (end, self.failed) {
            (Err(error), _) => Err(error.into()),
            (Ok(()), Some(error)) => Err(error),
            (Ok(()), None) => Ok(self.list),
        };
        // Whoever asked may be gone.
        drop(self.reply.send(list));
    }
}
