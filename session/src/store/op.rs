//! The operations that change a session, and what each of them did.

use std::sync::Arc;

use super::{Import, Release, Remove};
use crate::{
    descriptor::Descriptor,
    event::{Body, Event, RootOpened},
    header::{Header, NewSession},
    id::{Epoch, Order, Seq, SessionId},
    json::Ordered,
    limits::{DEFAULT_INBOX_LIMIT, DEFAULT_NOTE_LIMIT},
    message::Message,
    turns::Claimed,
};

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
    /// Creates a session as it was elsewhere. Done as [`Done::Imported`].
    Import(Import),
    /// Lets an imported session run. Done as [`Done::Released`].
    Release(Release),
    /// Deletes a session for ever. Done as [`Done::Removed`].
    Remove(Remove),
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
            Self::Import(op) => &op.header().id,
            Self::Release(op) => &op.session,
            Self::Remove(op) => &op.session,
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
        let opened = RootOpened {
            label: label.into(),
            agent: agent.into(),
            program_sha256: None,
            vars: std::collections::BTreeMap::new(),
            seed: None,
            params: None,
            model: None,
        };
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
        // As it will be read.
        let data = serde_json::to_value(Ordered(&serde_json::to_value(descriptor)?))?;
        events.push(Body::Descriptor(data).at(seed_length, time));
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
    /// Most pending `turn` records; one more is [`Refused::Busy`](super::Refused::Busy).
    pub inbox_limit: u64,
    /// Most pending notes; one more is [`Refused::Busy`](super::Refused::Busy).
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
    /// Refuses with [`Refused::Pending`](super::Refused::Pending) if there is work: the guard of settling.
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
    /// The session is there.
    Imported {
        /// Whether it was there before, the same.
        existing: bool,
    },
    /// Nothing of the session is held.
    Released {
        /// How many records were.
        records: u64,
    },
    /// The session is not there, and its id is used up.
    Removed,
}
