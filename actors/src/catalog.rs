//! The Catalog actor: the list of a parent's children.
//!
//! **Messages.** `ListChildren` and `ListRoots`, from agents and the host.
//! **State.** None. It asks the Query actor for a trace and for the descriptions of the direct children, and never talks to an Activation.
//! **Order.** It waits for no listing: each is made where its read ends.
//! **End.** A listing that is under way is answered.
//!
//! Two phases, two kinds of failure: if the trace fails there is no set of children to trust and the call fails; once it succeeded, a child
//! that cannot be described is an entry that says so, and its siblings stay visible.

use greenroom_session::{
    codec::DecodeError,
    descriptor::Mode,
    head::{Outcome, TurnState},
    id::SessionId,
    listing::{Cursor, Description, Reason, Verdict},
    store::{LoadError, Reader, Traced},
};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    agent::answered,
    error::{ListError, QueryError},
    live::LiveTable,
    query::{Corpus, Family, Page, QueryMessage, Then},
    services::Services,
};

/// One line of a listing.
///
/// ```
/// use greenroom_actors::{catalog::Entry, host::NewRoot, query::Page};
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
/// let entries = host.list(None, Page::default(), false, CancellationToken::new()).await?.entries;
/// assert!(matches!(&entries[0], Entry::Root(listed) if listed.label.as_deref() == Some("a desk")));
/// assert_eq!(entries[0].id(), root.id());
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A root.
    Root(Listed),
    /// A child that its descriptor describes.
    Child(Listed),
    /// A session that could not be described.
    Diagnostic {
        /// Its id.
        id: SessionId,
        /// Why.
        reason: Reason,
    },
}

impl Entry {
    /// Returns the session's id.
    pub fn id(&self) -> &SessionId {
        match self {
            Self::Root(listed) | Self::Child(listed) => &listed.id,
            Self::Diagnostic { id, .. } => id,
        }
    }

    /// Returns what is known of a healthy session.
    pub fn listed(&self) -> Option<&Listed> {
        match self {
            Self::Root(listed) | Self::Child(listed) => Some(listed),
            Self::Diagnostic { .. } => None,
        }
    }
}

/// What a listing says of a healthy session.
///
/// ```
/// use greenroom_actors::{Delegate, catalog::Listed, host::NewRoot};
/// use greenroom_session::descriptor::Mode;
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
/// root.agent().start_continuable(Delegate::new("echo", "an echo", "one").alias("e1")).await?;
/// root.quiescent().await?;
/// let children = root.agent().list_children(CancellationToken::new()).await?;
/// let child: &Listed = children[0].listed().expect("it is healthy");
/// assert_eq!((child.mode, child.alias.as_deref(), child.turns), (Mode::Continuable, Some("e1"), 1));
/// assert_eq!(child.last_outcome.as_ref().map(|outcome| &*outcome.kind), Some("completed"));
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: SessionId,
    /// How it lives.
    pub mode: Mode,
    /// Its label; always there for a continuable child and a root.
    pub label: Option<String>,
    /// The registered behaviour that plays it.
    pub agent: String,
    /// Its alias.
    pub alias: Option<String>,
    /// Whether a live process holds it.
    pub status: Status,
    /// What it is doing, by its log.
    pub turn: TurnState,
    /// Messages that wait.
    pub pending: u64,
    /// Whether it was imported and waits to be activated by hand.
    pub held: bool,
    /// Turns that it has begun.
    pub turns: u64,
    /// How its newest ended turn ended.
    pub last_outcome: Option<Outcome>,
    /// Whether it has children that are subagents.
    pub has_children: bool,
    /// Milliseconds since the Unix epoch; with the id the order of the list.
    pub created_at: u64,
}

/// Whether a session is live.
///
/// ```
/// use greenroom_actors::{Delegate, catalog::Status, host::NewRoot};
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
/// root.agent().start_continuable(Delegate::new("echo", "an echo", "one")).await?;
/// root.quiescent().await?; // the child has served its message and settled
/// let children = root.agent().list_children(CancellationToken::new()).await?;
/// assert_eq!(children[0].listed().map(|child| child.status), Some(Status::Complete));
/// assert_eq!(Status::Complete.as_str(), "complete");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// A process holds it.
    Running,
    /// It is on disk only; a message brings it back. Says nothing of success.
    Complete,
}

impl Status {
    /// Returns the name that listings show.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Complete => "complete",
        }
    }
}

/// A part of a list.
///
/// ```
/// use greenroom_actors::{catalog::Listing, host::NewRoot, query::Page};
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
/// for label in ["one", "two"] {
///     host.root(NewRoot::new("echo", label)).await?;
/// }
/// let page = Page { after: None, limit: Some(1) };
/// let Listing { entries, next_cursor } = host.list(None, page, false, CancellationToken::new()).await?;
/// assert_eq!(entries.len(), 1);
/// let rest = host.list(None, Page { after: next_cursor, limit: None }, false, CancellationToken::new()).await?;
/// assert_eq!(rest.entries.len(), 1);
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The entries, by creation time then id in byte order.
    pub entries: Vec<Entry>,
    /// Where the next page begins, if a limit was given and reached.
    pub next_cursor: Option<Cursor>,
}

pub(crate) type Reply = oneshot::Sender<Result<Listing, ListError>>;

/// What the catalog is asked.
#[derive(Debug)]
pub(crate) enum CatalogMessage {
    /// The children of a session.
    ListChildren {
        /// The parent.
        parent: SessionId,
        /// Which of them; all if `None`.
        page: Option<Page>,
        /// Read the logs instead of the derived rows.
        verify: bool,
        /// Cancels the listing.
        cancel: CancellationToken,
        /// Gets the answer.
        reply: Reply,
    },
    /// The roots, and sessions whose parent is not in the store.
    ListRoots {
        /// Which of them; all if `None`.
        page: Option<Page>,
        /// Read the logs instead of the derived rows.
        verify: bool,
        /// Cancels the listing.
        cancel: CancellationToken,
        /// Gets the answer.
        reply: Reply,
    },
}

/// The actor.
#[derive(Debug)]
pub(crate) struct Catalog;

#[derive(Debug)]
pub(crate) struct CatalogState {
    pub(crate) query: ActorRef<QueryMessage>,
    pub(crate) live: LiveTable,
}

impl Actor for Catalog {
    type Msg = CatalogMessage;
    type State = CatalogState;
    type Arguments = CatalogState;

    async fn pre_start(&self, _myself: ActorRef<CatalogMessage>, state: CatalogState) -> Result<CatalogState, ActorProcessingErr> {
        Ok(state)
    }

    async fn handle(&self, _myself: ActorRef<CatalogMessage>, message: CatalogMessage, state: &mut CatalogState) -> Result<(), ActorProcessingErr> {
        let (parent, page, verify, cancel, reply) = match message {
            CatalogMessage::ListChildren { parent, page, verify, cancel, reply } => (Some(parent), page, verify, cancel, reply),
            CatalogMessage::ListRoots { page, verify, cancel, reply } => (None, page, verify, cancel, reply),
        };
        let page = page.unwrap_or_default();
        let asked = match page.one_more() {
            Ok(asked) => asked,
            Err(error) => {
                drop(reply.send(Err(error.into())));
                return Ok(());
            }
        };
        let (live, family) = (state.live.clone(), parent.clone());
        let then = Then::new(move |family| {
            let listing = family.map_err(ListError::from).and_then(|family| listing(parent.as_ref(), family, page.limit, |id| live.is_resident(id)));
            // Whoever asked may be gone.
            drop(reply.send(listing));
        });
        // If the Query actor is gone the reply is dropped with the message, which says so.
        drop(state.query.send_message(QueryMessage::Family { parent: family, page: asked, verify, cancel, then }));
        Ok(())
    }
}

/// Asks the Catalog and waits. A cancellation that is seen at any point is the answer, whatever else there is.
pub(crate) async fn ask(services: &Services, cancel: &CancellationToken, message: impl FnOnce(Reply) -> CatalogMessage) -> Result<Listing, ListError> {
    let Some(catalog) = &services.catalog else { return Err(ListError::QueryUnavailable) };
    if cancel.is_cancelled() {
        return Err(ListError::Cancelled);
    }
    let (reply, listing) = oneshot::channel();
    if catalog.send_message(message(reply)).is_err() {
        return Err(QueryError::Ended.into());
    }
    let listing = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(ListError::Cancelled),
        listing = answered(listing, services.config.ask_deadline) => listing,
    };
    if cancel.is_cancelled() { Err(ListError::Cancelled) } else { listing }
}

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

/// Makes a list of a family of which one more was read than is wanted.
fn listing(parent: Option<&SessionId>, mut family: Family, limit: Option<usize>, resident: impl Fn(&SessionId) -> bool) -> Result<Listing, ListError> {
    let more = limit.is_some_and(|limit| family.len() > limit);
    family.truncate(limit.unwrap_or(usize::MAX));
    let next_cursor = family.last().filter(|_| more).map(|(last, _)| Cursor { created_at: last.created_at, id: last.id.clone() });
    Ok(Listing { entries: entries(parent, family, resident)?, next_cursor })
}

fn entries(parent: Option<&SessionId>, family: Family, resident: impl Fn(&SessionId) -> bool) -> Result<Vec<Entry>, ListError> {
    let mut entries = Vec::with_capacity(family.len());
    for (child, described) in family {
        let resident = resident(&child.id);
        entries.extend(entry(parent, child, described, resident)?);
    }
    Ok(entries)
}

/// Says what a listing shows of one session; `None` if nothing. `resident` tells whether it is live in this process.
fn entry(parent: Option<&SessionId>, child: Traced, described: Result<Description, QueryError>, resident: bool) -> Result<Option<Entry>, ListError> {
    let Traced { id, created_at, header } = child;
    let header = match header {
        Ok(header) => header,
        Err(DecodeError::Version(_)) => return Ok(Some(Entry::Diagnostic { id, reason: Reason::Unsupported })),
        Err(_) => return Ok(Some(Entry::Diagnostic { id, reason: Reason::Corrupt })),
    };
    if parent.is_some() && header.parent.as_ref() != parent {
        return Ok(Some(Entry::Diagnostic { id, reason: Reason::Corrupt }));
    }
    let description = match described {
        Ok(description) => description,
        Err(error) => {
            return match reason_of(&error) {
                Some(reason) => Ok(Some(Entry::Diagnostic { id, reason })),
                None => Err(error.into()),
            };
        }
    };
    let live = description.holder.is_some() || resident;
    let status = if live { Status::Running } else { Status::Complete };
    let head = description.head;
    let mut listed = Listed {
        id,
        mode: Mode::Continuable,
        label: None,
        agent: String::new(),
        alias: None,
        status,
        turn: head.turn_state(live),
        pending: head.pending(),
        held: head.held > 0,
        turns: head.turns,
        last_outcome: head.last,
        has_children: description.has_children,
        created_at,
    };
    Ok(match description.verdict {
        Verdict::Plain => None,
        Verdict::Broken { reason } => Some(Entry::Diagnostic { id: listed.id, reason }),
        Verdict::Root { label, agent } => {
            (listed.label, listed.agent) = (Some(label), agent);
            Some(Entry::Root(listed))
        }
        Verdict::Child { mode, label, agent, alias, .. } => {
            (listed.mode, listed.label, listed.agent, listed.alias) = (mode, label, agent, alias);
            Some(Entry::Child(listed))
        }
    })
}

/// Says what a failed description means for the child's entry; `None` if it says nothing about the child.
fn reason_of(error: &QueryError) -> Option<Reason> {
    match error {
        QueryError::SessionNotFound(_) | QueryError::EventNotFound { .. } | QueryError::PersistenceFailed(_) => Some(Reason::Unavailable),
        QueryError::InvalidSurface { .. } | QueryError::SourceConflict(_) | QueryError::Corrupt { .. } => Some(Reason::Corrupt),
        QueryError::InvalidLineage(_)
        | QueryError::InvalidLimit
        | QueryError::InvalidCursor(_)
        | QueryError::StaleCursor(_)
        | QueryError::InvalidConfig { .. }
        | QueryError::InvalidWindow { .. }
        | QueryError::Cancelled
        | QueryError::TimedOut
        | QueryError::Ended
        | QueryError::Unavailable => None,
    }
}
