//! Stores: where sessions are kept, and the operations that change them.
//!
//! A [`Store`] commits batches of operations. A batch is one transaction and one sync; within it every operation stands or
//! falls alone, so that one conflict never fails its neighbours. On `Ok` everything that was not refused is durable, as far as the
//! store is: `memory:` lasts as long as the process, `sqlite:` survives SIGKILL and power loss.
//!
//! A [`Reader`] sees committed state only and never writes.

use std::{fmt, sync::Arc};

use thiserror::Error;

use crate::{
    codec::DecodeError,
    descriptor::Descriptor,
    event::{Body, Event, RootOpened},
    fold::Fold,
    head::{FoldError, Head},
    header::{Header, NewSession},
    id::{Epoch, MessageId, Order, OwnerId, Seq, SessionId},
    limits::{DEFAULT_INBOX_LIMIT, DEFAULT_NOTE_LIMIT},
    listing::{Cursor, Description},
    message::{InboxRecord, Message},
    turns::Claimed,
};

pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// Keeps sessions. Shared by every thread of a process.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Commits a batch in one transaction and returns one result per operation, in order.
    ///
    /// Blocks for a sync where the store has a disk.
    ///
    /// # Errors
    /// [`CommitError`]: nothing of the batch, or nothing that is known.
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError>;

    /// Opens a reader of committed state. A reader belongs to this opening of the store.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError>;

    /// Tells whether [`Store::commit`] returns without waiting for a disk, so that it may be called where blocking may not.
    fn is_inline(&self) -> bool;

    /// Returns the name under which this opening of the store holds leases.
    fn owner(&self) -> &OwnerId;

    /// Renews the liveness of this opening; to be called every [`HEARTBEAT_MS`] while sessions are held.
    ///
    /// # Errors
    /// [`StoreError`] if the renewal could not be written.
    fn heartbeat(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns sessions for which other processes have accepted messages since the last call.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    fn poll(&self) -> Result<Vec<SessionId>, StoreError> {
        Ok(Vec::new())
    }

    /// Gives up this opening's liveness; its leases may be taken at once.
    ///
    /// # Errors
    /// [`StoreError`] if that could not be written; the leases then end with their time.
    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// How often [`Store::heartbeat`] is due, in milliseconds.
pub const HEARTBEAT_MS: u64 = 3_000;

/// One operation on one session.
#[derive(Debug, Clone)]
pub enum Op {
    /// Creates a session with its first events and its first message. Done as [`Done::Created`].
    Create(Create),
    /// Accepts a message into an inbox. Done as [`Done::Accepted`].
    Accept(Accept),
    /// Takes the session's lease and begins an epoch. Done as [`Done::Opened`].
    Open(Open),
    /// Appends events, taking messages out of the inbox. Done as [`Done::Appended`].
    Append(Append),
    /// Opens the next turn, or joins notes to the open one. Done as [`Done::Claimed`].
    Claim(Claim),
    /// Ends the epoch and releases the lease. Done as [`Done::Closed`].
    Close(Close),
}

impl Op {
    /// Returns the session that the operation is about.
    pub fn session(&self) -> &SessionId {
        match self {
            Self::Create(op) => &op.session.id,
            Self::Accept(op) => &op.session,
            Self::Open(op) => &op.session,
            Self::Append(op) => &op.fence.session,
            Self::Claim(op) => &op.fence.session,
            Self::Close(op) => &op.fence.session,
        }
    }
}

/// Creates a session.
///
/// The same creation again (same header but for its time, same first message) is the same acceptance, whatever the session has
/// become since.
#[derive(Debug, Clone)]
pub struct Create {
    /// Who it is. Its time becomes the latest of `time`, the parent's and the youngest sibling's.
    pub session: NewSession,
    /// Milliseconds since the Unix epoch.
    pub time: u64,
    /// The whole creation seed, from seq 0.
    pub events: Arc<[Event]>,
    /// The first message.
    pub message: Option<Arc<Message>>,
}

impl Create {
    /// Creates a root with its opening events and no message, at time 0.
    pub fn root(session: NewSession, agent: impl Into<String>, label: impl Into<String>) -> Self {
        let opened =
            RootOpened { label: label.into(), agent: agent.into(), program_sha256: None, vars: std::collections::BTreeMap::new(), seed: None, params: None };
        Self::opened(session, opened, 0)
    }

    /// Creates a root from its opening.
    pub fn opened(session: NewSession, opened: RootOpened, time: u64) -> Self {
        let events = [Body::RootOpened(opened).at(0, time), Body::EndSeed {}.at(1, time)];
        Self { session, time, events: Arc::new(events), message: None }
    }

    /// Creates a child from its descriptor, after the events that it inherits.
    ///
    /// # Errors
    /// The JSON error if the descriptor's free fields are not JSON.
    pub fn child(
        mut session: NewSession,
        inherited: Vec<Event>,
        descriptor: &Descriptor,
        message: Option<Arc<Message>>,
        time: u64,
    ) -> Result<Self, serde_json::Error> {
        let seed_length = inherited.len() as u64;
        session.seed_length = seed_length;
        let mut events = inherited;
        events.push(Body::Descriptor(serde_json::to_value(descriptor)?).at(seed_length, time));
        events.push(Body::EndSeed {}.at(seed_length + 1, time));
        Ok(Self { session, time, events: events.into(), message })
    }
}

/// Accepts a message.
#[derive(Debug, Clone)]
pub struct Accept {
    /// The receiver.
    pub session: SessionId,
    /// The message.
    pub message: Arc<Message>,
    /// Most pending `turn` records; one more is [`Refused::Busy`].
    pub inbox_limit: u64,
    /// Most pending notes; one more is [`Refused::Busy`].
    pub note_limit: u64,
}

impl Accept {
    /// Accepts under the default limits.
    pub fn new(session: SessionId, message: Message) -> Self {
        Self { session, message: Arc::new(message), inbox_limit: DEFAULT_INBOX_LIMIT, note_limit: DEFAULT_NOTE_LIMIT }
    }
}

/// The right to append: whose log, and in which epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The session.
    pub session: SessionId,
    /// The epoch that the appender holds.
    pub epoch: Epoch,
}

/// Takes a lease and begins an epoch.
#[derive(Debug, Clone)]
pub struct Open {
    /// The session.
    pub session: SessionId,
    /// The epoch that begins; the stored one must be its predecessor.
    pub epoch: Epoch,
    /// Closers, the end of a lost epoch, the start of the new one: [`begin_epoch`](crate::recover::begin_epoch).
    pub events: Arc<[Event]>,
    /// Opens the next turn in the same transaction, with this time on its events.
    pub claim: Option<u64>,
}

/// Appends events.
#[derive(Debug, Clone)]
pub struct Append {
    /// The right to.
    pub fence: Fence,
    /// The events; the first one's seq must be the next.
    pub events: Arc<[Event]>,
    /// Messages that leave the inbox with them; each must be pending.
    pub take: Vec<Order>,
}

/// What a claim is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimKind {
    /// The next turn.
    Turn,
    /// The notes that join the open turn.
    Notes,
}

/// Opens the next turn or joins notes.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The right to.
    pub fence: Fence,
    /// The seq that the first event must get.
    pub first_seq: Seq,
    /// What for.
    pub kind: ClaimKind,
    /// Milliseconds since the Unix epoch, for the events.
    pub time: u64,
}

/// Ends an epoch.
#[derive(Debug, Clone)]
pub struct Close {
    /// The right to.
    pub fence: Fence,
    /// The last events, `activation/end` among them.
    pub events: Arc<[Event]>,
    /// Refuses with [`Refused::Pending`] if there is work: the guard of settling.
    pub unless_pending: bool,
}

/// What an operation did.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// The session exists.
    Created {
        /// Its header, with its time.
        header: Arc<Header>,
        /// Whether it existed before.
        existing: bool,
    },
    /// The message is in the inbox, or has been.
    Accepted {
        /// Its place.
        order: Order,
        /// Whether it was there before.
        duplicate: bool,
    },
    /// The epoch has begun.
    Opened {
        /// The turn that was opened with it.
        claimed: Option<Claimed>,
    },
    /// The events are in the log.
    Appended,
    /// What was taken, if anything was there.
    Claimed(Option<Claimed>),
    /// The epoch has ended and the lease is free.
    Closed,
}

/// Why an operation was refused. Nothing of it was done; its neighbours are unhurt.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// There is no such session.
    #[error("session {0} does not exist")]
    NotFound(SessionId),
    /// A session of this id exists and was created differently.
    #[error("session {0} already exists")]
    Exists(SessionId),
    /// A sibling has this alias.
    #[error("alias {0:?} is taken")]
    AliasTaken(String),
    /// A message of this id was accepted before, with another body.
    #[error("message {0} was accepted before with another body")]
    MessageIdConflict(MessageId),
    /// The inbox is full.
    #[error("the inbox is full: {pending} of {limit} messages are pending")]
    Busy {
        /// Messages pending.
        pending: u64,
        /// The limit.
        limit: u64,
    },
    /// Another epoch has begun.
    #[error("fenced: epoch {stored} has begun")]
    Fenced {
        /// The newest epoch.
        stored: Epoch,
    },
    /// The log has moved on.
    #[error("the log has moved on to seq {stored}")]
    Moved {
        /// The seq that the next event gets.
        stored: Seq,
    },
    /// A live process holds the lease.
    #[error("held by another process ({0})")]
    Held(OwnerId),
    /// There is work: the epoch cannot settle.
    #[error("{0} messages are pending")]
    Pending(u64),
    /// A message to be taken is not pending.
    #[error("message {0} is not pending")]
    NotPending(Order),
    /// The record cannot be written.
    #[error("{message}")]
    Invalid {
        /// Stable code.
        code: &'static str,
        /// What is wrong.
        message: String,
    },
    /// What is stored of the session is damaged.
    #[error("session {session} is damaged: {reason}")]
    Corrupt {
        /// The session.
        session: SessionId,
        /// What is wrong.
        reason: String,
    },
}

impl Refused {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "SESSION_NOT_FOUND",
            Self::Exists(_) => "SESSION_EXISTS",
            Self::AliasTaken(_) => "ALIAS_TAKEN",
            Self::MessageIdConflict(_) => "MESSAGE_ID_CONFLICT",
            Self::Busy { .. } => "BUSY",
            Self::Fenced { .. } => "FENCED",
            Self::Moved { .. } => "SEQ_CONFLICT",
            Self::Held(_) => "SESSION_HELD",
            Self::Pending(_) => "PENDING",
            Self::NotPending(_) => "NOT_PENDING",
            Self::Invalid { code, .. } => code,
            Self::Corrupt { .. } => "SESSION_CORRUPT",
        }
    }
}

impl From<FoldError> for Refused {
    fn from(error: FoldError) -> Self {
        Self::Invalid { code: "EVENT_INVALID", message: error.to_string() }
    }
}

impl From<crate::codec::EncodeError> for Refused {
    fn from(error: crate::codec::EncodeError) -> Self {
        Self::Invalid { code: error.code(), message: error.to_string() }
    }
}

/// Refuses events that are written at creation only. What a session is never changes after its creation, so that what an index says of it cannot grow old.
fn check_lived(event: &Event) -> Result<(), Refused> {
    match event.body {
        Body::RootOpened(_) | Body::Descriptor(_) => {
            Err(Refused::Invalid { code: "EVENT_INVALID", message: format!("`{}` is written at creation only", event.body.type_name()) })
        }
        _ => Ok(()),
    }
}

/// Refuses an opening whose events leave the epoch unbegun: its lease would be held by nobody who may write.
fn check_begun(head: &Head, epoch: Epoch) -> Result<(), Refused> {
    let begun = head.live && head.epoch == epoch;
    if begun { Ok(()) } else { Err(Refused::Invalid { code: "EVENT_INVALID", message: format!("the events do not begin epoch {epoch}") }) }
}

/// Refuses a closing whose events leave the epoch going on without a lease.
fn check_ended(head: &Head) -> Result<(), Refused> {
    if head.live { Err(Refused::Invalid { code: "EVENT_INVALID", message: format!("the events do not end epoch {}", head.epoch) }) } else { Ok(()) }
}

/// Why a whole batch failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Nothing of it is in the store, and nothing of it will appear later.
    #[error("not committed")]
    NotCommitted(#[source] StoreError),
    /// It may or may not be in the store. A retry with the same ids is safe.
    #[error("the outcome of the commit is unknown")]
    Indeterminate(#[source] StoreError),
}

impl CommitError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotCommitted(_) => "NOT_DELIVERED",
            Self::Indeterminate(_) => "INDETERMINATE",
        }
    }
}

/// Why a store cannot be opened, read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file is not a greenroom store. It was not touched.
    #[error("{path} is not a greenroom store: {reason}")]
    Foreign {
        /// The file.
        path: String,
        /// What was found.
        reason: String,
    },
    /// There is no store of this name.
    #[error("there is no store at {path}")]
    Missing {
        /// The file.
        path: String,
    },
    /// The store was written by a newer greenroom.
    #[error("{path} has store version {found}; this program reads up to {known}")]
    Version {
        /// The file.
        path: String,
        /// Its version.
        found: i64,
        /// The newest known version.
        known: i64,
    },
    /// The disk is full.
    #[error("the disk is full")]
    Full(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store's own structure is damaged.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The storage failed.
    #[error("the store failed")]
    Io(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store cannot do this here.
    #[error("{0}")]
    Unsupported(String),
}

impl StoreError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Foreign { .. } => "STORE_FOREIGN",
            Self::Missing { .. } => "STORE_NOT_FOUND",
            Self::Version { .. } => "STORE_VERSION",
            Self::Full(_) => "STORE_FULL",
            Self::Damaged(_) => "STORE_DAMAGED",
            Self::Io(_) => "STORE_FAILED",
            Self::Unsupported(_) => "STORE_UNSUPPORTED",
        }
    }
}

/// Why one session cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no such session.
    #[error("session {0} does not exist")]
    NotFound(SessionId),
    /// A record is damaged.
    #[error("session {session} is damaged at {place}: {source}")]
    Corrupt {
        /// The session.
        session: SessionId,
        /// Which record: `header`, `event N` or `message N`.
        place: String,
        /// What is wrong.
        source: DecodeError,
    },
    /// Its records do not follow from one another.
    #[error("session {session} is damaged: {source}")]
    Fold {
        /// The session.
        session: SessionId,
        /// What is wrong, and where.
        source: FoldError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LoadError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "SESSION_NOT_FOUND",
            Self::Corrupt { source, .. } => source.code(),
            Self::Fold { source, .. } => source.code(),
            Self::Store(error) => error.code(),
        }
    }
}

/// A whole session as it is stored.
#[derive(Debug, Clone)]
pub struct Log {
    /// Every event, from seq 0.
    pub events: Vec<Event>,
    /// What follows from them and the pending messages.
    pub fold: Fold,
}

/// A child as a trace finds it: its name and its header, no log read.
#[derive(Debug, Clone, PartialEq)]
pub struct Traced {
    /// Its id.
    pub id: SessionId,
    /// Its time, by the row that found it.
    pub created_at: u64,
    /// Its header, or what is wrong with it.
    pub header: Result<Arc<Header>, DecodeError>,
}

/// Where a message stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageState {
    /// It waits at this place.
    Pending(Order),
    /// It has left the inbox.
    Taken(Order),
}

/// A lease.
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
pub trait Reader: Send + fmt::Debug {
    /// Reads a header; `None` if there is no such session.
    ///
    /// # Errors
    /// [`LoadError`] if the header is damaged or the store failed.
    fn header(&mut self, id: &SessionId) -> Result<Option<Arc<Header>>, LoadError>;

    /// Reads a whole session. Costs its length.
    ///
    /// # Errors
    /// [`LoadError`] naming the damaged record.
    fn load(&mut self, id: &SessionId) -> Result<Log, LoadError>;

    /// Reads the events from `from` (inclusive), at most `limit`, in order.
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

    /// Says of each child what a listing shows, in the same order. With `verify` the logs are read, else the derived rows where they are good.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed for all; damage or loss of one is a value.
    fn describe(&mut self, children: &[Traced], verify: bool) -> Result<Vec<Result<Description, LoadError>>, StoreError>;

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
    /// before it could settle them; at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed.
    fn runnable(&mut self, root: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError>;

    /// Returns the leases in the tree of `root` (in all trees if `None`).
    ///
    /// # Errors
    /// [`StoreError`] if the store failed.
    fn leases(&mut self, root: Option<&SessionId>) -> Result<Vec<Lease>, StoreError>;
}
