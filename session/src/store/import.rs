//! The operations that bring a whole session into a store, let it run, and take it away.
//!
//! What every store checks of an import is checked here; what depends on the neighbours (the same id, a sibling's alias) each store checks itself.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, OnceLock},
};

use super::Refused;
use crate::{
    codec::{EncodeError, Encoded, check_message, encode_event, encode_header, encode_message, event_crc},
    departed::Departed,
    event::{Body, Event},
    fold::Fold,
    head::Head,
    header::Header,
    id::{MessageId, Order, Seq, SessionId},
    limits::MAX_EVENT_BYTES,
    listing::{Verdict, verdict},
    message::{InboxRecord, Tombstone},
};

/// One place of an inbox: a message that waits, or what remains of one that has left.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{message::{InboxRecord, Message, Source, Tombstone}, store::InboxLine};
/// let message = Arc::new(Message::turn("m0", "Begin.", Source::User, 1_000)?);
/// let waiting = InboxRecord { order: 4, held: false, message };
/// assert_eq!(InboxLine::Taken(Tombstone::of(&waiting)).order(), InboxLine::Waiting(waiting).order());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboxLine {
    /// It waits.
    Waiting(InboxRecord),
    /// It has left.
    Taken(Tombstone),
}

impl InboxLine {
    /// Returns the place.
    pub fn order(&self) -> Order {
        match self {
            Self::Waiting(record) => record.order,
            Self::Taken(tombstone) => tombstone.order,
        }
    }

    /// Returns the message's id.
    pub fn message(&self) -> &MessageId {
        match self {
            Self::Waiting(record) => &record.message.id,
            Self::Taken(tombstone) => &tombstone.id,
        }
    }

    /// Returns the same line with `held` as given.
    #[must_use]
    pub fn with_held(&self, held: bool) -> Self {
        match self {
            Self::Waiting(record) => Self::Waiting(InboxRecord { held, ..record.clone() }),
            Self::Taken(tombstone) => Self::Taken(Tombstone { held, ..tombstone.clone() }),
        }
    }
}

/// The bytes that the records of an [`Import`] were read from.
///
/// ```
/// use greenroom_session::{codec::encode_header, header::NewSession, id::SessionId, store::Verbatim};
/// let header = NewSession::root(SessionId::new("root")?).at(1_000);
/// let bytes = Verbatim { header: encode_header(&header)?, events: Vec::new(), messages: Vec::new() };
/// assert!(bytes.header.body.starts_with(b"{\"version\":1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verbatim {
    /// Of the header.
    pub header: Encoded,
    /// Of each event.
    pub events: Vec<Encoded>,
    /// The body of each line of the inbox; not looked at where a message has left.
    pub messages: Vec<Vec<u8>>,
}

/// Creates a session exactly as it was, with its whole log and its whole inbox.
///
/// Whatever waits becomes held, and so does a message whose turn is not finished, so that nothing of the session runs until it is released. The same session
/// again, `held` aside, is the same import.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{event::{Body, Event}, header::NewSession, id::SessionId, store::{Done, Import, Op, Store, memory::MemoryStore}};
/// let header = Arc::new(NewSession::root(SessionId::new("root")?).at(1_000));
/// let events: Arc<[Event]> = [Body::EndSeed {}.at(0, 1_000)].into();
/// let import = Op::Import(Import::new(header, events, [].into())?);
/// let store = MemoryStore::new();
/// assert_eq!(store.commit(&[import.clone()])?[0], Ok(Done::Imported { existing: false }));
/// assert_eq!(store.commit(&[import])?[0], Ok(Done::Imported { existing: true }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Import {
    header: Arc<Header>,
    events: Arc<[Event]>,
    inbox: Arc<[InboxLine]>,
    bytes: Arc<Verbatim>,
    /// Looked at once, however often it is asked for.
    checked: Arc<OnceLock<Result<Checked, Misfit>>>,
}

impl Import {
    /// Imports these records, encoding them.
    ///
    /// # Errors
    /// [`EncodeError`] as the first record that cannot be written.
    pub fn new(header: Arc<Header>, events: Arc<[Event]>, inbox: Arc<[InboxLine]>) -> Result<Self, EncodeError> {
        let bytes = Verbatim {
            header: encode_header(&header)?,
            events: events.iter().map(|event| encode_event(&header.id, event)).collect::<Result<_, _>>()?,
            messages: inbox
                .iter()
                .map(|line| match line {
                    InboxLine::Waiting(record) => encode_message(&record.message),
                    InboxLine::Taken(_) => Ok(Vec::new()),
                })
                .collect::<Result<_, _>>()?,
        };
        Ok(Self::verbatim(header, events, inbox, bytes))
    }

    /// Imports these records as they were read: `bytes` says what each was decoded from, place by place, and is what a store keeps. So a key that this program does
    /// not know stays where it was.
    pub fn verbatim(header: Arc<Header>, events: Arc<[Event]>, inbox: Arc<[InboxLine]>, bytes: Verbatim) -> Self {
        Self { header, events, inbox, bytes: Arc::new(bytes), checked: Arc::default() }
    }

    /// Returns the header.
    pub fn header(&self) -> &Arc<Header> {
        &self.header
    }

    /// Returns the events.
    pub fn events(&self) -> &Arc<[Event]> {
        &self.events
    }

    /// Returns the inbox as it was given.
    pub fn inbox(&self) -> &[InboxLine] {
        &self.inbox
    }

    /// Returns the bytes of all of them.
    pub fn bytes(&self) -> &Arc<Verbatim> {
        &self.bytes
    }

    /// Checks everything that can be told from the import alone: that the records follow from one another. Costs the session's length the first time.
    ///
    /// # Errors
    /// [`Misfit`] as the first record that does not follow.
    pub fn verify(&self) -> Result<(), Misfit> {
        self.checked.get_or_init(|| self.look()).as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Tells whether something of the session will wait until it is released. An import that is not to be written holds nothing. Costs what
    /// [`verify`](Self::verify) costs.
    pub fn holds(&self) -> bool {
        self.checked.get_or_init(|| self.look()).as_ref().is_ok_and(|checked| checked.head.held > 0)
    }

    /// Returns what a store may write.
    pub(super) fn check(&self) -> Result<Checked, Refused> {
        self.checked.get_or_init(|| self.look()).clone().map_err(Into::into)
    }

    fn look(&self) -> Result<Checked, Misfit> {
        let id = &self.header.id;
        let bytes = &*self.bytes;
        if (bytes.events.len(), bytes.messages.len()) != (self.events.len(), self.inbox.len()) {
            return Err(Misfit::whole("there is not one text for each record"));
        }
        let mut fold = Fold::new(self.header.clone());
        for (event, encoded) in self.events.iter().zip(&bytes.events) {
            let misfit = |reason: String| Misfit { place: Some(RecordPlace::Event(event.seq)), reason };
            if event_crc(id, &encoded.body) != encoded.crc || std::str::from_utf8(&encoded.body).is_err() {
                return Err(misfit("checksum mismatch".into()));
            }
            if encoded.body.len() > MAX_EVENT_BYTES {
                return Err(misfit(EncodeError::TooLarge(encoded.body.len()).to_string()));
            }
            fold.apply_event(event).map_err(|error| misfit(error.reason))?;
        }
        if let Some(missing) = fold.missing_prefix() {
            return Err(Misfit::whole(missing));
        }
        self.check_inbox()?;
        let inbox = self.hold(fold.head())?;
        for line in &inbox {
            match line {
                InboxLine::Waiting(record) => fold.apply_message(record.clone()),
                InboxLine::Taken(tombstone) => fold.apply_taken(tombstone),
            }
        }
        Ok(Checked { head: fold.head().clone(), verdict: verdict(&fold), inbox, seed: self.seed() })
    }

    fn check_inbox(&self) -> Result<(), Misfit> {
        let departed = Departed::of(&*self.events, self.header.seed_length);
        let mut ids = HashSet::new();
        for (line, expected) in self.inbox.iter().zip(0..) {
            let order = line.order();
            let misfit = |reason: String| Err(Misfit { place: Some(RecordPlace::Message(order)), reason });
            if order != expected {
                return misfit(format!("order {order} where {expected} is next"));
            }
            let message = line.message();
            if !ids.insert(message) {
                return misfit(format!("its id {message} was there before"));
            }
            match line {
                InboxLine::Waiting(record) => {
                    if let Err(error) = record.message.check() {
                        return misfit(error.to_string());
                    }
                    if let Err(error) = check_message(&record.message) {
                        return misfit(error.to_string());
                    }
                    if departed.contains(record.message.kind, message) {
                        return misfit("it waits, but the log says that it has left".into());
                    }
                }
                InboxLine::Taken(tombstone) => {
                    if !departed.contains(tombstone.kind, message) {
                        return misfit("it has left, but the log does not say so".into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the inbox with everything held that could make the session run.
    fn hold(&self, head: &Head) -> Result<Vec<InboxLine>, Misfit> {
        let serving = head.open.as_ref().map(|open| &open.message).or(head.retry.as_ref().map(|retry| &retry.message));
        let mut any = false;
        let mut inbox: Vec<InboxLine> = self
            .inbox
            .iter()
            .map(|line| {
                let hold = match line {
                    InboxLine::Waiting(_) => true,
                    InboxLine::Taken(tombstone) => Some(&tombstone.id) == serving,
                };
                any |= hold;
                line.with_held(hold)
            })
            .collect();
        if let Some(serving) = serving
            && !inbox.iter().any(|line| matches!(line, InboxLine::Taken(tombstone) if tombstone.id == *serving))
        {
            return Err(Misfit::whole(format!("the turn of message {serving} is not finished, and the inbox knows no such message")));
        }
        // An epoch that has no end would be settled by whoever runs the tree. Its last message stands for it.
        if head.live
            && !any
            && let Some(last) = inbox.last_mut()
        {
            *last = last.with_held(true);
        }
        Ok(inbox)
    }

    /// Returns how many events the session was created with.
    fn seed(&self) -> usize {
        let end = self.events.iter().position(|event| event.seq >= self.header.seed_length && matches!(event.body, Body::EndSeed {}));
        end.map_or(self.events.len(), |end| end + 1)
    }
}

/// An import that a store may write.
#[derive(Debug, Clone)]
pub(super) struct Checked {
    /// The head, with the inbox.
    pub(super) head: Head,
    /// What the log says.
    pub(super) verdict: Verdict,
    /// The inbox as it is to be kept.
    pub(super) inbox: Vec<InboxLine>,
    /// How many events it was created with.
    pub(super) seed: usize,
}

/// Which record of a session.
///
/// ```
/// use greenroom_session::store::RecordPlace;
/// assert_eq!(RecordPlace::Event(3).to_string(), "event 3");
/// assert_eq!(RecordPlace::Message(0).to_string(), "message 0");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordPlace {
    /// The event of this seq.
    Event(Seq),
    /// The inbox line of this order.
    Message(Order),
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(seq) => write!(f, "event {seq}"),
            Self::Message(order) => write!(f, "message {order}"),
        }
    }
}

/// Why records do not make a session.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{event::{Body, Event}, header::NewSession, id::SessionId, store::{Import, RecordPlace}};
/// let header = Arc::new(NewSession::root(SessionId::new("root")?).at(1_000));
/// let events: Arc<[Event]> = [Body::StepStart { turn: 1, step: 1 }.at(0, 1_000)].into();
/// let misfit = Import::new(header, events, [].into())?.verify().unwrap_err();
/// assert_eq!(misfit.place, Some(RecordPlace::Event(0)));
/// assert_eq!((misfit.code(), misfit.to_string().as_str()), ("SESSION_INVALID", "event 0: turn 1 is not open"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Which of them, if it is one.
    pub place: Option<RecordPlace>,
    /// What is wrong.
    pub reason: String,
}

impl Misfit {
    fn whole(reason: impl Into<String>) -> Self {
        Self { place: None, reason: reason.into() }
    }

    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        "SESSION_INVALID"
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(place) => write!(f, "{place}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for Misfit {}

impl From<Misfit> for Refused {
    fn from(misfit: Misfit) -> Self {
        Self::Invalid { code: misfit.code(), message: misfit.to_string() }
    }
}

/// Lets go of everything that is held of a session, so that it may run. Again is the same.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{
///     event::{Body, Event}, header::NewSession, id::SessionId, message::{InboxRecord, Message, Source},
///     store::{Done, Import, InboxLine, Op, Release, Store, memory::MemoryStore},
/// };
/// let root = SessionId::new("root")?;
/// let header = Arc::new(NewSession::root(root.clone()).at(1_000));
/// let events: Arc<[Event]> = [Body::EndSeed {}.at(0, 1_000)].into();
/// let waiting = InboxRecord { order: 0, held: false, message: Arc::new(Message::turn("m0", "Begin.", Source::User, 1_000)?) };
/// let store = MemoryStore::new();
/// store.commit(&[Op::Import(Import::new(header, events, [InboxLine::Waiting(waiting)].into())?)])?.remove(0)?;
/// assert!(store.reader()?.runnable(None, 10)?.is_empty());
/// let release = Op::Release(Release { session: root.clone() });
/// assert_eq!(store.commit(&[release])?[0], Ok(Done::Released { records: 1 }));
/// assert_eq!(store.reader()?.runnable(None, 10)?, [root]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The session.
    pub session: SessionId,
}

/// Deletes a session and remembers that its id is used up: it can never be created, imported, opened or written again. Again is the same.
///
/// ```
/// use greenroom_session::store::{Create, Done, Op, Refused, Remove, Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create.clone())])?;
/// let remove = Op::Remove(Remove { session: root.clone(), discard: false });
/// assert_eq!(store.commit(&[remove.clone()])?[0], Ok(Done::Removed));
/// assert_eq!(store.commit(&[remove])?[0], Ok(Done::Removed));
/// assert_eq!(store.reader()?.header(&root)?, None);
/// assert_eq!(store.commit(&[Op::Create(create)])?[0], Err(Refused::Removed(root)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remove {
    /// The session.
    pub session: SessionId,
    /// Removes it although messages are pending, a turn is not finished, or its log cannot be read.
    pub discard: bool,
}
