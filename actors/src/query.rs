//! The Query actor: reads of the logical corpus, live sessions preferred.
//!
//! **Messages.** `Family` from the Catalog; `Trace`, `Events`, `Event` and `Load` from the host.
//! **State.** None: the store and the published live sessions are the corpus.
//! **Order.** Every read runs beside the others, so that a slow one delays nobody.
//! **End.** A query that is under way is answered; later ones fail as `SESSION_QUERY_PERSISTENCE_FAILED`.
//!
//! It never sends anything to an Activation, so a hung one cannot stall it, and it writes nothing.

use std::{collections::HashSet, fmt, sync::Arc};

use greenroom_session::{
    event::Event,
    header::Header,
    id::{Seq, SessionId},
    listing::{Cursor, Description},
    store::{LoadError, Log, Reader, Traced},
};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{error::QueryError, live::LiveTable, readers::Readers};

mod walk;

use walk::walk;
pub(crate) use walk::{Step, Walker};

/// Most events on either side of the one that `Event` asks for.
pub const READ_WINDOW_MAX: u64 = 50;

/// Where a session comes from, and its direct children. No log was read for it.
///
/// ```
/// use greenroom_actors::{Delegate, host::NewRoot, query::Trace};
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
/// let trace: Trace = host.trace(&child).await?;
/// assert_eq!(trace.target.id, child);
/// assert_eq!(trace.ancestors[0].id, *root.id());
/// assert!(trace.children.is_empty());
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
    /// Direct children, by creation time then id, within the page that was asked for.
    pub children: Vec<Traced>,
}

/// One event and its neighbours.
///
/// ```
/// use greenroom_actors::{host::NewRoot, query::EventWindow};
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
/// let window: EventWindow = host.read_event(root.id(), 1, 50, 0).await?;
/// let seqs: Vec<_> = window.events.iter().map(|event| event.seq).collect();
/// assert_eq!(seqs, [0, 1]); // clamped: nothing comes before 0
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct EventWindow {
    /// The session's header.
    pub header: Arc<Header>,
    /// The seq that was asked for.
    pub seq: Seq,
    /// The window, in order, clamped at the ends of the log.
    pub events: Vec<Event>,
}

/// What of a list is wanted.
///
/// ```
/// use greenroom_actors::query::Page;
/// let all = Page::default();
/// let first_ten = Page { after: None, limit: Some(10) };
/// assert_eq!((all.limit, first_ten.limit), (None, Some(10)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Only what comes after this place.
    pub after: Option<Cursor>,
    /// At most this many; all if `None`.
    pub limit: Option<usize>,
}

type Reply<T> = oneshot::Sender<Result<T, QueryError>>;

/// The children of a parent, and what each of them is.
pub(crate) type Family = Vec<(Traced, Result<Description, QueryError>)>;

/// What is done with a family, on the thread that has read it.
pub(crate) struct Then(Box<dyn FnOnce(Result<Family, QueryError>) + Send>);

impl Then {
    pub(crate) fn new(then: impl FnOnce(Result<Family, QueryError>) + Send + 'static) -> Self {
        Self(Box::new(then))
    }
}

impl fmt::Debug for Then {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Then")
    }
}

/// What the query actor is asked.
#[derive(Debug)]
pub(crate) enum QueryMessage {
    /// Where a session comes from and who its direct children are.
    Trace {
        /// The session.
        session: SessionId,
        /// Which children.
        page: Page,
        /// Cancels the query.
        cancel: CancellationToken,
        /// Gets the answer.
        reply: Reply<Trace>,
    },
    /// A trace, then what each of the children is, in one read. Fails as a trace does; trouble with one child is a value.
    Family {
        /// The parent; the roots and the sessions whose parent is not in the store if `None`.
        parent: Option<SessionId>,
        /// Which of the children.
        page: Page,
        /// Read the logs instead of the derived rows.
        verify: bool,
        /// Cancels the query.
        cancel: CancellationToken,
        /// Gets the answer.
        then: Then,
    },
    /// A trace, then everything below the session, each with what it is, in one read. Trouble with one session is a value.
    Walk {
        /// The session.
        top: SessionId,
        /// After which session it begins.
        after: Option<SessionId>,
        /// How many are wanted at the least.
        enough: usize,
        /// Cancels the walk.
        cancel: CancellationToken,
        /// Who walks.
        walker: Box<dyn Walker>,
    },
    /// Events of a session, in order.
    Events {
        /// The session.
        session: SessionId,
        /// The first seq.
        from: Seq,
        /// At most this many.
        limit: usize,
        /// Gets the answer.
        reply: Reply<Vec<Event>>,
    },
    /// One event with a window around it.
    Event {
        /// The session.
        session: SessionId,
        /// The event.
        seq: Seq,
        /// Events before it.
        before: u64,
        /// Events after it.
        after: u64,
        /// Gets the answer.
        reply: Reply<EventWindow>,
    },
    /// A whole session.
    Load {
        /// The session.
        session: SessionId,
        /// Gets the answer.
        reply: Reply<Log>,
    },
}

/// The actor.
#[derive(Debug)]
pub(crate) struct Query;

#[derive(Debug)]
pub(crate) struct QueryState {
    pub(crate) readers: Readers,
    pub(crate) live: LiveTable,
}

impl Actor for Query {
    type Msg = QueryMessage;
    type State = QueryState;
    type Arguments = QueryState;

    async fn pre_start(&self, _myself: ActorRef<QueryMessage>, state: QueryState) -> Result<QueryState, ActorProcessingErr> {
        Ok(state)
    }

    async fn handle(&self, _myself: ActorRef<QueryMessage>, message: QueryMessage, state: &mut QueryState) -> Result<(), ActorProcessingErr> {
        let (readers, live) = (state.readers.clone(), state.live.clone());
        match message {
            QueryMessage::Trace { session, page, cancel, reply } => {
                answer(reply, cancel, async move { readers.read(move |reader| trace(reader, &live, &session, &page)).await });
            }
            QueryMessage::Family { parent, page, verify, cancel, then } => {
                // Handed on from where it was read: a listing waits for one other thread and for no task in between.
                readers.run(move |reader| {
                    then.0(match reader {
                        Ok(reader) => family(reader, &live, parent.as_ref(), &page, verify, &cancel),
                        Err(error) => Err(error.into()),
                    });
                });
            }
            QueryMessage::Walk { top, after, enough, cancel, mut walker } => {
                readers.run(move |reader| {
                    let end = match reader {
                        Ok(reader) => walk(reader, &live, &top, after.as_ref(), enough, &cancel, &mut *walker),
                        Err(error) => Err(error.into()),
                    };
                    walker.end(end);
                });
            }
            QueryMessage::Events { session, from, limit, reply } => {
                answer(reply, CancellationToken::new(), async move {
                    readers.read(move |reader| reader.events(&session, from, limit).map_err(QueryError::from_load)).await
                });
            }
            QueryMessage::Event { session, seq, before, after, reply } => {
                answer(reply, CancellationToken::new(), async move { readers.read(move |reader| read_event(reader, &session, seq, before, after)).await });
            }
            QueryMessage::Load { session, reply } => {
                answer(reply, CancellationToken::new(), async move { readers.read(move |reader| reader.load(&session).map_err(QueryError::from_load)).await });
            }
        }
        Ok(())
    }
}

/// Runs a query in a task of its own; a cancellation that is seen at any point is the answer.
fn answer<T: Send + 'static>(reply: Reply<T>, cancel: CancellationToken, query: impl Future<Output = Result<T, QueryError>> + Send + 'static) {
    tokio::spawn(async move {
        let result = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(QueryError::Cancelled),
            result = query => if cancel.is_cancelled() { Err(QueryError::Cancelled) } else { result },
        };
        // Whoever asked may be gone.
        drop(reply.send(result));
    });
}

fn children(reader: &mut dyn Reader, parent: Option<&SessionId>, page: &Page) -> Result<Vec<Traced>, QueryError> {
    Ok(reader.children(parent, page.after.as_ref(), page.limit.unwrap_or(usize::MAX))?)
}

pub(crate) fn describe(reader: &mut dyn Reader, child: Traced) -> Result<Family, QueryError> {
    let children = vec![child];
    let described = reader.describe(&children, false)?;
    Ok(children.into_iter().zip(described.into_iter().map(|described| described.map_err(QueryError::from_load))).collect())
}

/// Reads and describes children, without a look at where their parent comes from.
pub(crate) fn members(reader: &mut dyn Reader, parent: Option<&SessionId>, page: &Page, verify: bool) -> Result<Family, QueryError> {
    let members = reader.family(parent, page.after.as_ref(), page.limit.unwrap_or(usize::MAX), verify)?;
    Ok(members.into_iter().map(|(child, described)| (child, described.map_err(QueryError::from_load))).collect())
}

fn family(
    reader: &mut dyn Reader,
    live: &LiveTable,
    parent: Option<&SessionId>,
    page: &Page,
    verify: bool,
    cancel: &CancellationToken,
) -> Result<Family, QueryError> {
    if let Some(parent) = parent {
        lineage(reader, live, parent)?;
    }
    if cancel.is_cancelled() {
        return Err(QueryError::Cancelled);
    }
    let family = members(reader, parent, page, verify)?;
    if parent.is_some() {
        for stored in family.iter().filter_map(|(child, _)| child.header.as_ref().ok()) {
            agree(live, stored)?;
        }
    }
    Ok(family)
}

fn trace(reader: &mut dyn Reader, live: &LiveTable, session: &SessionId, page: &Page) -> Result<Trace, QueryError> {
    let Lineage { target, ancestors, unresolved_parent } = lineage(reader, live, session)?;
    let children = children(reader, Some(session), page)?;
    for child in &children {
        if let Ok(stored) = &child.header {
            agree(live, stored)?;
        }
    }
    Ok(Trace { target, ancestors, unresolved_parent, children })
}

/// Where a session comes from.
pub(crate) struct Lineage {
    target: Arc<Header>,
    ancestors: Vec<Arc<Header>>,
    unresolved_parent: Option<SessionId>,
}

pub(crate) fn lineage(reader: &mut dyn Reader, live: &LiveTable, session: &SessionId) -> Result<Lineage, QueryError> {
    let target = header(reader, live, session)?.ok_or_else(|| QueryError::SessionNotFound(session.clone()))?;
    let mut ancestors = Vec::new();
    let mut seen = HashSet::from([session.clone()]);
    let mut unresolved_parent = None;
    let mut next = target.parent.clone();
    while let Some(id) = next.take() {
        if !seen.insert(id.clone()) {
            return Err(QueryError::InvalidLineage(session.clone()));
        }
        if let Some(ancestor) = header(reader, live, &id)? {
            next.clone_from(&ancestor.parent);
            ancestors.push(ancestor);
        } else {
            unresolved_parent = Some(id);
            break;
        }
    }
    Ok(Lineage { target, ancestors, unresolved_parent })
}

fn header(reader: &mut dyn Reader, live: &LiveTable, id: &SessionId) -> Result<Option<Arc<Header>>, QueryError> {
    match reader.header(id) {
        Ok(Some(stored)) => {
            agree(live, &stored)?;
            Ok(Some(stored))
        }
        // What is live is known even where nothing of it is stored.
        Ok(None) => Ok(live.get(id).map(|view| view.header.clone())),
        Err(LoadError::NotFound(_) | LoadError::Removed(_)) => Ok(None),
        Err(error) => Err(QueryError::from_load(error)),
    }
}

fn agree(live: &LiveTable, stored: &Header) -> Result<(), QueryError> {
    match live.get(&stored.id) {
        Some(view) if *view.header != *stored => Err(QueryError::SourceConflict(stored.id.clone())),
        _ => Ok(()),
    }
}

fn read_event(reader: &mut dyn Reader, session: &SessionId, seq: Seq, before: u64, after: u64) -> Result<EventWindow, QueryError> {
    if let Some(&asked) = [before, after].iter().find(|&&asked| asked > READ_WINDOW_MAX) {
        return Err(QueryError::InvalidWindow { asked, max: READ_WINDOW_MAX });
    }
    let header = reader.header(session).map_err(QueryError::from_load)?.ok_or_else(|| QueryError::SessionNotFound(session.clone()))?;
    let first = seq.saturating_sub(before);
    let count = usize::try_from(seq - first + 1 + after).unwrap_or(usize::MAX);
    let events = reader.events(session, first, count).map_err(QueryError::from_load)?;
    if !events.iter().any(|event| event.seq == seq) {
        return Err(QueryError::EventNotFound { session: session.clone(), seq });
    }
    Ok(EventWindow { header, seq, events })
}
