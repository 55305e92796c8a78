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
///
/// ```
/// use greenroom_session::{header::NewSession, id::SessionId, store::{Create, Op, Store, memory::MemoryStore}};
/// let store: Box<dyn Store> = Box::new(MemoryStore::new());
/// let create = Create::root(NewSession::root(SessionId::new("root")?), "editor", "launch story");
/// let results = store.commit(&[Op::Create(create)])?;
/// assert!(results[0].is_ok());
/// assert_eq!(store.reader()?.find("ro", 10)?, [SessionId::new("root")?]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use greenroom_session::{id::SessionId, message::{Message, Source}, store::{Accept, Op, Store}};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let message = Message::turn("m0", "Begin.", Source::User, 1_000)?;
/// let accept = |to: &SessionId| Op::Accept(Accept::new(to.clone(), message.clone()));
/// // Within a batch every operation stands or falls alone.
/// let results = store.commit(&[accept(&root), accept(&SessionId::new("nobody")?)])?;
/// assert!(results[0].is_ok());
/// assert_eq!(results[1].as_ref().unwrap_err().code(), "SESSION_NOT_FOUND");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use greenroom_session::{descriptor::Descriptor, header::NewSession, id::SessionId, store::{Create, Op, Store}};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let child = NewSession::child(SessionId::new("child")?, root.clone(), 0);
/// let descriptor = Descriptor::continuable("spawn", "collect facts", "reporter");
/// let create = Create::child(child, Vec::new(), &descriptor, None, 2_000)?;
/// store.commit(&[Op::Create(create)])?.remove(0)?;
/// assert_eq!(store.reader()?.children(Some(&root), None, 10)?[0].id.as_str(), "child");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use greenroom_session::{message::{Message, Source}, store::{Accept, Done, Op, Store}};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let accept = Op::Accept(Accept::new(root, Message::turn("m0", "Begin.", Source::User, 1_000)?));
/// // Whoever has not heard the answer asks again, and nothing happens twice.
/// assert_eq!(store.commit(&[accept.clone()])?[0], Ok(Done::Accepted { order: 0, duplicate: false }));
/// assert_eq!(store.commit(&[accept])?[0], Ok(Done::Accepted { order: 0, duplicate: true }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use greenroom_session::store::{Append, Fence, Op, Refused, Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let log = gs::store::Store::reader(&store)?.load(&root)?;
/// # let (epoch, events) = gs::recover::begin_epoch(&log.fold, 2_000, 3);
/// # let open = gs::store::Open { session: root.clone(), epoch, events: events.into(), claim: None };
/// # gs::store::Store::commit(&store, &[gs::store::Op::Open(open)])?[0].clone()?;
/// // Another process believes that it holds epoch 7.
/// let append = Append { fence: Fence { session: root, epoch: 7 }, events: [].into(), take: Vec::new() };
/// assert_eq!(store.commit(&[Op::Append(append)])?[0], Err(Refused::Fenced { stored: 1 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The session.
    pub session: SessionId,
    /// The epoch that the appender holds.
    pub epoch: Epoch,
}

/// Takes a lease and begins an epoch.
///
/// ```
/// use greenroom_session::{recover::begin_epoch, store::{Done, Op, Open, Store}};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let log = store.reader()?.load(&root)?;
/// let (epoch, events) = begin_epoch(&log.fold, 2_000, 3);
/// let open = Open { session: root, epoch, events: events.into(), claim: None };
/// assert_eq!(store.commit(&[Op::Open(open)])?[0], Ok(Done::Opened { claimed: None }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use greenroom_session::{event::Body, id::MessageId, store::{Append, Done, Fence, Op, Store}};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let accept = gs::store::Accept::new(root.clone(), gs::message::Message::turn("m0", "Begin.", gs::message::Source::User, 1_000)?);
/// # gs::store::Store::commit(&store, &[gs::store::Op::Accept(accept)])?;
/// # let log = gs::store::Store::reader(&store)?.load(&root)?;
/// # let (epoch, events) = gs::recover::begin_epoch(&log.fold, 2_000, 3);
/// # let open = gs::store::Open { session: root.clone(), epoch, events: events.into(), claim: None };
/// # gs::store::Store::commit(&store, &[gs::store::Op::Open(open)])?[0].clone()?;
/// // A message is taken back: it leaves the inbox with the event that says so.
/// let withdrawn = Body::MessageWithdrawn { message: MessageId::new("m0")?, by: "user".into() }.at(3, 3_000);
/// let append = Append { fence: Fence { session: root, epoch: 1 }, events: [withdrawn].into(), take: vec![0] };
/// assert_eq!(store.commit(&[Op::Append(append)])?[0], Ok(Done::Appended));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use greenroom_session::store::{Claim, ClaimKind, Done, Fence, Op, Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let log = gs::store::Store::reader(&store)?.load(&root)?;
/// # let (epoch, events) = gs::recover::begin_epoch(&log.fold, 2_000, 3);
/// # let open = gs::store::Open { session: root.clone(), epoch, events: events.into(), claim: None };
/// # gs::store::Store::commit(&store, &[gs::store::Op::Open(open)])?[0].clone()?;
/// // No turn is open, so no note can join one.
/// let claim = Claim { fence: Fence { session: root, epoch: 1 }, first_seq: 3, kind: ClaimKind::Notes, time: 3_000 };
/// assert_eq!(store.commit(&[Op::Claim(claim)])?[0], Ok(Done::Claimed(None)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimKind {
    /// The next turn.
    Turn,
    /// The notes that join the open turn.
    Notes,
}

/// Opens the next turn or joins notes.
///
/// ```
/// use greenroom_session::store::{Claim, ClaimKind, Done, Fence, Op, Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let accept = gs::store::Accept::new(root.clone(), gs::message::Message::turn("m0", "Begin.", gs::message::Source::User, 1_000)?);
/// # gs::store::Store::commit(&store, &[gs::store::Op::Accept(accept)])?;
/// # let log = gs::store::Store::reader(&store)?.load(&root)?;
/// # let (epoch, events) = gs::recover::begin_epoch(&log.fold, 2_000, 3);
/// # let open = gs::store::Open { session: root.clone(), epoch, events: events.into(), claim: None };
/// # gs::store::Store::commit(&store, &[gs::store::Op::Open(open)])?[0].clone()?;
/// let claim = Claim { fence: Fence { session: root, epoch: 1 }, first_seq: 3, kind: ClaimKind::Turn, time: 3_000 };
/// let Done::Claimed(Some(claimed)) = store.commit(&[Op::Claim(claim)])?.remove(0)? else { panic!("a message waits") };
/// assert_eq!(claimed.taken, [0]);
/// assert_eq!(claimed.events[0].body.type_name(), "turn/start");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use greenroom_session::{event::{Body, EpochEnd}, store::{Close, Fence, Op, Refused, Store}};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let accept = gs::store::Accept::new(root.clone(), gs::message::Message::turn("m0", "Begin.", gs::message::Source::User, 1_000)?);
/// # gs::store::Store::commit(&store, &[gs::store::Op::Accept(accept)])?;
/// # let log = gs::store::Store::reader(&store)?.load(&root)?;
/// # let (epoch, events) = gs::recover::begin_epoch(&log.fold, 2_000, 3);
/// # let open = gs::store::Open { session: root.clone(), epoch, events: events.into(), claim: None };
/// # gs::store::Store::commit(&store, &[gs::store::Op::Open(open)])?[0].clone()?;
/// let settled = Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled }.at(3, 3_000);
/// let close = Close { fence: Fence { session: root, epoch: 1 }, events: [settled].into(), unless_pending: true };
/// assert_eq!(store.commit(&[Op::Close(close)])?[0], Err(Refused::Pending(1))); // a message came in between
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use greenroom_session::{header::NewSession, store::{Create, Done, Op, Store}};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let again = Create::root(NewSession::root(root), "editor", "story");
/// let Done::Created { header, existing } = store.commit(&[Op::Create(again)])?.remove(0)? else { panic!("a creation") };
/// assert_eq!((header.id.as_str(), existing), ("root", true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use greenroom_session::{message::{Message, Source}, store::{Accept, Op, Refused, Store}};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let accept = gs::store::Accept::new(root.clone(), gs::message::Message::turn("m0", "Begin.", gs::message::Source::User, 1_000)?);
/// # gs::store::Store::commit(&store, &[gs::store::Op::Accept(accept)])?;
/// let mut accept = Accept::new(root, Message::turn("m1", "More.", Source::User, 2_000)?);
/// accept.inbox_limit = 1; // one message waits already
/// let refused = store.commit(&[Op::Accept(accept)])?.remove(0).unwrap_err();
/// assert_eq!(refused, Refused::Busy { pending: 1, limit: 1 });
/// assert_eq!(refused.code(), "BUSY");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use greenroom_session::store::{CommitError, StoreError};
///
/// /// Whether the same operations must go out under the same ids again, lest they happen twice.
/// fn may_have_happened(error: &CommitError) -> bool {
///     !matches!(error, CommitError::NotCommitted(_))
/// }
/// let error = CommitError::Indeterminate(StoreError::Io("the disk did not answer".into()));
/// assert!(may_have_happened(&error));
/// assert_eq!(error.code(), "INDETERMINATE");
/// ```
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
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// use greenroom_session::store::{StoreError, sqlite::SqliteStore};
/// let folder = tempfile::tempdir()?;
/// let error = SqliteStore::open_existing(folder.path().join("store.db")).unwrap_err();
/// assert!(matches!(error, StoreError::Missing { .. }));
/// assert_eq!(error.code(), "STORE_NOT_FOUND");
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
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
///
/// ```
/// use greenroom_session::{id::SessionId, store::{LoadError, Store, memory::MemoryStore}};
/// let error = MemoryStore::new().reader()?.load(&SessionId::new("nobody")?).unwrap_err();
/// assert!(matches!(error, LoadError::NotFound(_)));
/// assert_eq!(error.code(), "SESSION_NOT_FOUND");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
