//! Reading committed state.

use std::{fmt, io, ops::ControlFlow, sync::Arc};

use super::{ExportError, LoadError, StoreError};
use crate::{
    check::{Checked, Finding, check_by_reading},
    codec::DecodeError,
    event::Event,
    fold::Fold,
    head::Head,
    header::Header,
    id::{MessageId, Order, OwnerId, Seq, SessionId},
    listing::{Cursor, Described, Description, Summary},
    message::InboxRecord,
    repair::Quarantine,
};

/// A whole session as it is stored.
///
/// ```
/// use greenroom_session::store::{Log, Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let Log { events, fold } = store.reader()?.load(&root)?;
/// assert_eq!(events.len() as u64, fold.head().next_seq);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Log {
    /// Every event, from seq 0.
    pub events: Vec<Event>,
    /// What follows from them and the pending messages.
    pub fold: Fold,
}

/// A child as a trace finds it: its name and its header, no log read.
///
/// ```
/// use greenroom_session::store::{Store, Traced};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let roots: Vec<Traced> = store.reader()?.children(None, None, 10)?;
/// assert_eq!(roots[0].id, root);
/// assert_eq!(roots[0].header.as_ref().map(|header| header.depth), Ok(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Traced {
    /// Its id.
    pub id: SessionId,
    /// Its time, by the row that found it.
    pub created_at: u64,
    /// Its header, or what is wrong with it.
    pub header: Result<Arc<Header>, DecodeError>,
}

/// A child, and what is said of it.
pub type Member<T = Description> = (Traced, Result<T, LoadError>);

/// Where a message stands.
///
/// ```
/// use greenroom_session::{id::MessageId, store::{MessageState, Store}};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let accept = gs::store::Accept::new(root.clone(), gs::message::Message::turn("m0", "Begin.", gs::message::Source::User, 1_000)?);
/// # gs::store::Store::commit(&store, &[gs::store::Op::Accept(accept)])?;
/// let mut reader = store.reader()?;
/// assert_eq!(reader.message(&root, &MessageId::new("m0")?)?, Some(MessageState::Pending(0)));
/// assert_eq!(reader.message(&root, &MessageId::new("m1")?)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageState {
    /// It waits at this place.
    Pending(Order),
    /// It has left the inbox.
    Taken(Order),
}

/// A lease.
///
/// ```
/// use greenroom_session::store::{Lease, Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let log = gs::store::Store::reader(&store)?.load(&root)?;
/// # let (epoch, events) = gs::recover::begin_epoch(&log.fold, 2_000, 3);
/// # let open = gs::store::Open { session: root.clone(), epoch, events: events.into(), claim: None };
/// # gs::store::Store::commit(&store, &[gs::store::Op::Open(open)])?[0].clone()?;
/// let leases: Vec<Lease> = store.reader()?.leases(Some(&root))?;
/// assert_eq!((&leases[0].session, &leases[0].owner), (&root, store.owner()));
/// assert!(leases[0].alive);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// Who holds it.
    pub owner: OwnerId,
    /// Whether the holder is alive.
    pub alive: bool,
}

/// Reads committed state. Never writes, never wakes anybody.
///
/// ```
/// use greenroom_session::store::{Reader, Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let accept = gs::store::Accept::new(root.clone(), gs::message::Message::turn("m0", "Begin.", gs::message::Source::User, 1_000)?);
/// # gs::store::Store::commit(&store, &[gs::store::Op::Accept(accept)])?;
/// let mut reader: Box<dyn Reader> = store.reader()?;
/// assert_eq!(reader.runnable(None, 10)?, [root.clone()]);
/// assert_eq!(reader.inbox(&root, 10)?[0].message.text(), "Begin.");
/// assert!(reader.leases(None)?.is_empty()); // reading has activated nobody
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Reader: Send + fmt::Debug {
    /// Reads a header; `None` if there is no such session, or it was removed.
    ///
    /// # Errors
    /// [`LoadError`] if the header is damaged or the store failed.
    fn header(&mut self, id: &SessionId) -> Result<Option<Arc<Header>>, LoadError>;

    /// Tells whether there was such a session and it was removed.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed.
    fn is_removed(&mut self, id: &SessionId) -> Result<bool, StoreError>;

    /// Writes a whole session as lines, of one moment, each without its line feed: the header, the events, the inbox. The same session gives the same lines in every
    /// store. Each record is checked by its checksum; whether they follow from one another is not.
    ///
    /// # Errors
    /// [`ExportError::Load`] naming the damaged record, after the lines before it; [`ExportError::Sink`] with the error of `line`.
    fn export(&mut self, id: &SessionId, line: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), ExportError>;

    /// Reads a whole session. Costs its length, in memory too.
    ///
    /// # Errors
    /// [`LoadError`] naming the damaged record.
    fn load(&mut self, id: &SessionId) -> Result<Log, LoadError>;

    /// Folds a whole session and keeps none of its events: `see` gets each of them in order, and may stop, so that the answer is `None`. Reads the log
    /// once; memory is what the fold holds (the surface and the inbox), whatever the length of the log.
    ///
    /// # Errors
    /// [`LoadError`] naming the damaged record; what was seen before it stands in the log.
    fn fold(&mut self, id: &SessionId, see: &mut dyn FnMut(&Event) -> ControlFlow<()>) -> Result<Option<Fold>, LoadError>;

    /// Folds a whole session as [`Reader::fold`] does, for whoever wants no events.
    ///
    /// # Errors
    /// [`LoadError`] naming the damaged record.
    fn folded(&mut self, id: &SessionId) -> Result<Fold, LoadError> {
        self.fold(id, &mut |_| ControlFlow::Continue(()))?.ok_or_else(|| LoadError::NotFound(id.clone()))
    }

    /// Reads the events from `from` (inclusive), at most `limit`, in order. They are checked one by one and not folded.
    ///
    /// # Errors
    /// [`LoadError`] naming the damaged record.
    fn events(&mut self, id: &SessionId, from: Seq, limit: usize) -> Result<Vec<Event>, LoadError>;

    /// Reads the pending messages in order, at most `limit`.
    ///
    /// # Errors
    /// [`LoadError`] naming the damaged record.
    fn inbox(&mut self, id: &SessionId, limit: usize) -> Result<Vec<InboxRecord>, LoadError>;

    /// Tells where a message stands; `None` if it was never accepted.
    ///
    /// # Errors
    /// [`LoadError`] if there is no such session or the store failed.
    fn message(&mut self, id: &SessionId, message: &MessageId) -> Result<Option<MessageState>, LoadError>;

    /// Reads the children of `parent` (roots and orphans if `None`), by creation time then id, after `after`, at most `limit`.
    ///
    /// Costs the number of rows returned. An orphan is a session whose parent is not in the store.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed; a damaged header is a value.
    fn children(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Traced>, StoreError>;

    /// Says of each child what is known of it without its log, in the same order: from the derived rows in SQLite, from what this opening remembers of
    /// files in a folder of JSON Lines. Reads no log, neither a child's nor a grandchild's.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed for all; damage or loss of one is a value.
    fn rows(&mut self, children: &[Traced]) -> Result<Vec<Result<Described, LoadError>>, StoreError>;

    /// Reads children as [`Reader::children`] does and says of each what [`Reader::rows`] does, of one moment where the store has moments.
    ///
    /// # Errors
    /// As both.
    fn family_rows(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Member<Described>>, StoreError> {
        let children = self.children(parent, after, limit)?;
        let rows = self.rows(&children)?;
        Ok(children.into_iter().zip(rows).collect())
    }

    /// Returns the live process that holds a session whose log says this head.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed.
    fn holder(&mut self, id: &SessionId, head: &Head) -> Result<Option<OwnerId>, StoreError>;

    /// Says of each child what a listing shows, in the same order. With `verify` the logs are read, else the derived rows where they are good. A log that
    /// is read costs its length in time, and not in memory.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed for all; damage or loss of one is a value.
    fn describe(&mut self, children: &[Traced], verify: bool) -> Result<Vec<Result<Description, LoadError>>, StoreError> {
        let rows = self.rows(children)?;
        children.iter().zip(rows).map(|(child, row)| apart(complete(self, &child.id, row, verify))).collect()
    }

    /// Reads children as [`Reader::children`] does and says of each what [`Reader::describe`] does, of one moment where the store has moments.
    ///
    /// # Errors
    /// As both.
    fn family(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize, verify: bool) -> Result<Vec<Member>, StoreError> {
        let children = self.children(parent, after, limit)?;
        let described = self.describe(&children, verify)?;
        Ok(children.into_iter().zip(described).collect())
    }

    /// Returns the ids that begin with `prefix`, in byte order, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed.
    fn find(&mut self, prefix: &str, limit: usize) -> Result<Vec<SessionId>, StoreError>;

    /// Finds a child by its alias.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed.
    fn alias(&mut self, parent: &SessionId, alias: &str) -> Result<Option<SessionId>, StoreError>;

    /// Returns sessions in the tree of `root` (in all trees if `None`) that no live process holds and that have work, or whose last holder died
    /// before it could settle them; at most `limit`. A session that cannot be read is one of them where nothing else says that it has no work.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed.
    fn runnable(&mut self, root: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError>;

    /// Returns the leases in the tree of `root` (in all trees if `None`).
    ///
    /// # Errors
    /// [`StoreError`] if the store failed.
    fn leases(&mut self, root: Option<&SessionId>) -> Result<Vec<Lease>, StoreError>;

    /// Returns ids of sessions in byte order, those after `after`, at most `limit`; also of such whose header cannot be read.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed.
    fn sessions(&mut self, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let mut ids = self.find("", usize::MAX)?;
        if let Some(after) = after {
            ids.retain(|id| id > after);
        }
        ids.truncate(limit);
        Ok(ids)
    }

    /// Returns how many sessions there are, by the store's own account.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed.
    fn count(&mut self) -> Result<u64, StoreError> {
        Ok(self.find("", usize::MAX)?.len() as u64)
    }

    /// Tells whether a repair has quarantined a session.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed.
    fn quarantine(&mut self, id: &SessionId) -> Result<Option<Quarantine>, StoreError> {
        let _ = id;
        Ok(None)
    }

    /// Verifies a session and what is derived of it, as of one moment, and tells every fault in the order of places; `None` if there is no such session.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed; damage is a finding.
    fn check(&mut self, id: &SessionId, see: &mut dyn FnMut(Finding)) -> Result<Option<Checked>, StoreError> {
        check_by_reading(self, id, see)
    }

    /// Verifies what belongs to no session.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed; damage is a finding.
    fn check_store(&mut self, see: &mut dyn FnMut(Finding)) -> Result<(), StoreError> {
        // A store without rows or files of its own has nothing else.
        let _ = see;
        Ok(())
    }
}

/// Says what a listing shows of a session, from its row or from its log.
fn complete<R: Reader + ?Sized>(reader: &mut R, id: &SessionId, row: Result<Described, LoadError>, verify: bool) -> Result<Description, LoadError> {
    let Described { row, has_children, holder } = row?;
    if let Some(Summary { head, verdict }) = row.filter(|_| !verify) {
        return Ok(Description { verdict, head, has_children, holder });
    }
    let Summary { head, verdict } = Summary::of(&reader.folded(id)?);
    let holder = reader.holder(id, &head)?;
    Ok(Description { verdict, head, has_children, holder })
}

/// Lets trouble with one session be a value, and trouble with the store an error.
pub(super) fn apart<T>(result: Result<T, LoadError>) -> Result<Result<T, LoadError>, StoreError> {
    match result {
        Err(LoadError::Store(error)) => Err(error),
        other => Ok(other),
    }
}
