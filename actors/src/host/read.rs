//! What a host reads: lists, traces, events, whole sessions. Nothing of it wakes anybody or writes.

use greenroom_session::{
    digest::{DigestError, StoreDigest},
    event::Event,
    fold::Fold,
    id::{MessageId, Seq, SessionId},
    store::{LoadError, Log, MessageState, Reader, StoreError, Traced},
};
use tokio_util::sync::CancellationToken;

use super::Host;
use crate::{
    catalog::{self, CatalogMessage, Descendants, Listing},
    error::{ListError, QueryError},
    query::{self, EventLine, EventWindow, Page, QueryMessage, SessionPage, Trace, Window},
};

impl Host {
    /// Tells whether the runtime has its query service, without which nothing is listed.
    pub fn has_query(&self) -> bool {
        self.services().query.is_some()
    }

    /// Lists the children of a session, or the roots and orphans if `None`, without waking any and without writing anything.
    ///
    /// With `verify` the logs are read instead of the rows that are derived from them, at the cost of their length. `cancel` gives the listing up.
    ///
    /// # Errors
    /// [`ListError::Query`] if there is no such parent or the store cannot be read, [`ListError::Cancelled`], and [`ListError::QueryUnavailable`] in a system
    /// without a query service. A child that cannot be described is an entry.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list(&self, parent: Option<&SessionId>, page: Page, verify: bool, cancel: CancellationToken) -> Result<Listing, ListError> {
        let services = self.services();
        let page = Some(page);
        let listing = catalog::ask(&services, &cancel, |token, reply| match parent {
            Some(parent) => CatalogMessage::Children { parent: parent.clone(), page, verify, cancel: token, reply },
            None => CatalogMessage::Roots { page, verify, cancel: token, reply },
        });
        listing.await
    }

    /// Lists everything below a session, each session before its own children, without waking any and without writing anything.
    ///
    /// Sessions that a list of children leaves out are left out here too, and what is below them is not. Costs the number of sessions up to the end of the
    /// page that the limit leaves. A page begins behind the session that its cursor names, wherever that is then.
    ///
    /// # Errors
    /// As [`Host::list`], and [`ListError::Query`] with [`QueryError::StaleCursor`] if the session that the cursor names is gone, or with
    /// [`QueryError::InvalidCursor`] if it is not below `top`. A session that cannot be described is an entry, and what is below it follows.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_descendants(&self, top: &SessionId, page: Page, cancel: CancellationToken) -> Result<Descendants, ListError> {
        let top = top.clone();
        catalog::ask(&self.services(), &cancel, |token, reply| CatalogMessage::Descendants { top, page, cancel: token, reply }).await
    }

    /// Returns where a session comes from and everything that comes from it. Reads the header of each, and no log.
    ///
    /// # Errors
    /// [`QueryError::SessionNotFound`], [`QueryError::InvalidLineage`] if its parents run in a circle, [`QueryError::SourceConflict`] if one of the sessions is live
    /// and stored with another header, [`QueryError::Cancelled`], [`QueryError::Unavailable`] in a system without a query service, and that the store, or a header
    /// of the session or its ancestors, cannot be read. A descendant whose header cannot be read says so in its place.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn trace(&self, session: &SessionId, cancel: CancellationToken) -> Result<Trace, QueryError> {
        let session = session.clone();
        query::ask(&self.services(), &cancel, |cancel, reply| QueryMessage::Trace { session, cancel, reply }).await
    }

    /// Lists every session that is stored or live, the newest first, those of one time by id in byte order. Reads the header of each, for every page.
    ///
    /// # Errors
    /// [`QueryError::InvalidLimit`] for a page of nothing, [`QueryError::SourceConflict`] if a session is live and stored with another header,
    /// [`QueryError::Cancelled`], [`QueryError::Unavailable`] in a system without a query service, and that the store cannot be read. A session whose header
    /// cannot be read says so in its place, the last one.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_sessions(&self, page: Page, cancel: CancellationToken) -> Result<SessionPage, QueryError> {
        query::ask(&self.services(), &cancel, |cancel, reply| QueryMessage::Sessions { page, cancel, reply }).await
    }

    /// Lists the events of a session in order, and says of each whether a model sees it. Costs the length of the log.
    ///
    /// # Errors
    /// [`QueryError::InvalidSurface`] if an event cannot follow what came before, [`QueryError::SessionNotFound`], [`QueryError::SourceConflict`] if the header is
    /// not the live one or changes meanwhile, [`QueryError::Cancelled`], [`QueryError::Unavailable`] in a system without a query service, and what is damaged in
    /// the log or the store.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_events(&self, session: &SessionId, cancel: CancellationToken) -> Result<Vec<EventLine>, QueryError> {
        let session = session.clone();
        query::ask(&self.services(), &cancel, |cancel, reply| QueryMessage::Lines { session, cancel, reply }).await
    }

    /// Returns events of a session from `from` (inclusive), at most `limit`, in order. Whether they follow from what came before is not looked at.
    ///
    /// # Errors
    /// [`QueryError::InvalidLimit`] for a limit of 0, and as [`Host::list_events`], except that no surface is invalid.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn read_events(&self, session: &SessionId, from: Seq, limit: usize, cancel: CancellationToken) -> Result<Vec<Event>, QueryError> {
        let session = session.clone();
        query::ask(&self.services(), &cancel, |cancel, reply| QueryMessage::Events { session, from, limit, cancel, reply }).await
    }

    /// Returns one event with up to `before` and `after` neighbours, at most [`Config::read_window_max`](crate::Config::read_window_max) on either side. Whether
    /// they follow from what came before is not looked at.
    ///
    /// # Errors
    /// [`QueryError::InvalidWindow`] for more than that, before anything is read; [`QueryError::EventNotFound`], and as [`Host::list_events`], except that no
    /// surface is invalid.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn read_event(&self, session: &SessionId, seq: Seq, before: u64, after: u64, cancel: CancellationToken) -> Result<EventWindow, QueryError> {
        let services = self.services();
        let (session, window) = (session.clone(), Window { seq, before, after });
        window.check(services.config.read_window_max)?;
        query::ask(&services, &cancel, |cancel, reply| QueryMessage::Window { session, window, cancel, reply }).await
    }

    /// Returns a whole session. Costs the length of its log.
    ///
    /// # Errors
    /// As [`Host::list_events`].
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn load(&self, session: &SessionId) -> Result<Log, QueryError> {
        let session = session.clone();
        query::ask(&self.services(), &CancellationToken::new(), |cancel, reply| QueryMessage::Load { session, cancel, reply }).await
    }

    /// Returns what follows from all that a session has done. Costs the length of its log in time, and in memory what a model sees of it and what waits.
    ///
    /// # Errors
    /// As [`Host::list_events`].
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn fold(&self, session: &SessionId) -> Result<Fold, QueryError> {
        let session = session.clone();
        query::ask(&self.services(), &CancellationToken::new(), |cancel, reply| QueryMessage::Fold { session, cancel, reply }).await
    }

    /// Returns the ids that begin with `prefix`, in byte order, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn find(&self, prefix: &str, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let prefix = prefix.to_owned();
        self.services().readers.read(move |reader| reader.find(&prefix, limit)).await
    }

    /// Hashes everything that is true in the store: see [`StoreDigest`]. Costs the size of the store, and is the state of one moment only while nobody works.
    ///
    /// # Errors
    /// [`DigestError`] if a session is damaged or the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn digest(&self) -> Result<StoreDigest, DigestError> {
        self.services().readers.read(StoreDigest::of).await
    }

    /// Returns when the newest event of a session was written, in milliseconds since the Unix epoch. Costs the same whatever the length of its log.
    ///
    /// # Errors
    /// [`LoadError`] if there is no such session, its newest event is damaged, or the store failed.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn last_written(&self, session: &SessionId) -> Result<Option<u64>, LoadError> {
        let id = session.clone();
        let services = self.services();
        let read = services.readers.read(move |reader: &mut dyn Reader| {
            let header = reader.header(&id)?.ok_or_else(|| LoadError::NotFound(id.clone()))?;
            let traced = Traced { id: id.clone(), created_at: header.created_at, header: Ok(header) };
            let described = reader.describe(std::slice::from_ref(&traced), false)?.pop().unwrap_or_else(|| Err(LoadError::NotFound(id.clone())))?;
            let newest = described.head.next_seq.saturating_sub(1);
            Ok::<_, LoadError>(reader.events(&id, newest, 1)?.pop().map(|event| event.time))
        });
        read.await
    }

    /// Tells where a message stands; `None` if it was never accepted.
    ///
    /// # Errors
    /// [`LoadError::NotFound`] if there is no such session, or that the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn message(&self, session: &SessionId, message: &MessageId) -> Result<Option<MessageState>, LoadError> {
        let (session, message) = (session.clone(), message.clone());
        self.services().readers.read(move |reader| reader.message(&session, &message)).await
    }
}
