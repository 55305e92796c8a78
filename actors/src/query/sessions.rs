//! The list of all sessions.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use greenroom_session::{codec::DecodeError, header::Header, id::SessionId, listing::Cursor, store::LoadError};

use super::{Page, corpus::Corpus};
use crate::error::QueryError;

/// Ids that are read at a time.
const CHUNK: usize = 1_000;

/// A session that is stored, or live, or both.
///
/// ```
/// use greenroom_actors::{host::NewRoot, query::{Page, SessionRecord}};
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
/// let sessions = host.list_sessions(Page::default(), CancellationToken::new()).await?.sessions;
/// let record: &SessionRecord = &sessions[0];
/// assert_eq!((&record.id, record.live, record.stored), (root.id(), true, true));
/// assert_eq!(record.header.as_ref().map(|header| header.created_at), Ok(record.created_at()));
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// Its header, or what is wrong with it.
    pub header: Result<Arc<Header>, DecodeError>,
    /// Whether it is live in this process.
    pub live: bool,
    /// Whether it is in the store.
    pub stored: bool,
}

impl SessionRecord {
    /// Returns when it was created, in milliseconds since the Unix epoch: its place in the list. 0 if its header cannot be read.
    pub fn created_at(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.created_at)
    }
}

/// A part of the list of all sessions.
///
/// ```
/// use greenroom_actors::{host::NewRoot, query::{Page, SessionPage}};
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
/// let SessionPage { sessions, next_cursor } = host.list_sessions(page, CancellationToken::new()).await?;
/// assert_eq!(sessions.len(), 1);
/// let rest = host.list_sessions(Page { after: next_cursor, limit: None }, CancellationToken::new()).await?;
/// assert_eq!(rest.sessions.len(), 1);
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SessionPage {
    /// The sessions, the newest first; those of one time by id in byte order.
    pub sessions: Vec<SessionRecord>,
    /// Where the next page begins, if a limit was given and reached.
    pub next_cursor: Option<Cursor>,
}

/// The place of a session in the list: newest first, then by id.
type Rank = (Reverse<u64>, SessionId);

impl Corpus<'_> {
    /// Lists all sessions. Reads every header, and keeps as many as the page has.
    pub(super) fn sessions(&mut self, page: &Page) -> Result<SessionPage, QueryError> {
        page.check()?;
        // What is live was stored before, so what the walk does not meet of it has been lost since.
        let mut unstored: HashMap<SessionId, Arc<Header>> = self.live().all().iter().map(|view| (view.id().clone(), view.header.clone())).collect();
        let after = page.after.as_ref().map(|cursor| (Reverse(cursor.created_at), cursor.id.clone()));
        let mut first = First { after, most: page.limit.unwrap_or(usize::MAX), found: BTreeMap::new(), more: false };
        let mut last = None;
        loop {
            self.go_on()?;
            let ids = self.reader.sessions(last.as_ref(), CHUNK)?;
            let Some(end) = ids.last() else { break };
            last = Some(end.clone());
            for id in ids {
                first.extend(self.stored_record(&id)?.inspect(|record| drop(unstored.remove(&record.id))));
            }
        }
        first.extend(unstored.into_iter().map(|(id, header)| SessionRecord { id, header: Ok(header), live: true, stored: false }));
        let more = first.more;
        let sessions: Vec<_> = first.found.into_values().collect();
        let next_cursor = sessions.last().filter(|_| more).map(|last| Cursor { created_at: last.created_at(), id: last.id.clone() });
        Ok(SessionPage { sessions, next_cursor })
    }

    /// Returns what is stored of a session; `None` if it was removed since it was found.
    fn stored_record(&mut self, id: &SessionId) -> Result<Option<SessionRecord>, QueryError> {
        self.go_on()?;
        let header = match self.reader.header(id) {
            Ok(None) | Err(LoadError::NotFound(_) | LoadError::Removed(_)) => return Ok(None),
            Ok(Some(header)) => {
                self.agree(&header)?;
                Ok(header)
            }
            Err(LoadError::Corrupt { source, .. }) => Err(source),
            Err(error) => return Err(QueryError::from_load(error)),
        };
        Ok(Some(SessionRecord { id: id.clone(), header, live: self.live().get(id).is_some(), stored: true }))
    }
}

/// The first records of a list whose records come in any order.
struct First {
    after: Option<Rank>,
    most: usize,
    found: BTreeMap<Rank, SessionRecord>,
    more: bool,
}

impl Extend<SessionRecord> for First {
    fn extend<T: IntoIterator<Item = SessionRecord>>(&mut self, records: T) {
        for record in records {
            let rank = (Reverse(record.created_at()), record.id.clone());
            if self.after.as_ref().is_none_or(|after| rank > *after) {
                self.found.insert(rank, record);
            }
            if self.found.len() > self.most {
                self.found.pop_last();
                self.more = true;
            }
        }
    }
}
