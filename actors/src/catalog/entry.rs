//! What a listing shows.

use greenroom_session::{
    descriptor::Mode,
    head::{Outcome, TurnState},
    id::SessionId,
    listing::{Cursor, Reason},
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
    /// Messages that wait: in its inbox, and one more if its newest turn was cut off, whose message is served again.
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
