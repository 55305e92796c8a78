//! The check of one session: its records in, findings out.
//!
//! It owns no store and reads nothing: whoever has a session's records hands them over, each decoded once, in the order in which they come. It never
//! stops: every record is looked at by itself, and as far as the records before it can be trusted, by the one fold, too. What follows from a fault that
//! was told is not told again, so that one fault is one finding.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::finding::{Class, Finding, Place, Severity};
use crate::{
    codec::DecodeError,
    departed::leaving,
    descriptor::DescriptorError,
    event::{Body, Event},
    fold::{DescriptorState, Fold},
    head::Head,
    header::Header,
    id::{MessageId, Order, Seq, SessionId},
    listing::{Verdict, verdict},
    message::{Block, InboxRecord, Message, MessageKind, Tombstone},
};

/// A message as a store keeps it.
///
/// ```
/// use greenroom_session::{check::Kept, message::{Message, Source}};
/// let message = Message::turn("m0", "Begin.", Source::User, 1_000)?;
/// assert!(matches!(Kept::Waiting { message, held: false }, Kept::Waiting { message, .. } if message.text() == "Begin."));
/// # Ok::<(), greenroom_session::message::MessageError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Kept {
    /// It waits.
    Waiting {
        /// The message.
        message: Message,
        /// Whether it is held.
        held: bool,
    },
    /// It was accepted, and the log says whether it still waits: what a store keeps that only appends.
    Logged {
        /// The message.
        message: Message,
        /// Whether it is held.
        held: bool,
    },
    /// It has left the inbox, and this remains.
    Taken(Tombstone),
}

/// What a session's records say, once all of them were seen.
///
/// ```
/// use greenroom_session::{check::Checked, store::Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let checked: Checked = store.reader()?.check(&root, &mut |finding| panic!("{finding}"))?.expect("it is there");
/// assert_eq!((checked.events, checked.messages), (2, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// Events that were looked at.
    pub events: u64,
    /// Messages that were looked at, waiting or not.
    pub messages: u64,
    /// The seq that the next event gets, by the records that are there.
    pub next_seq: Seq,
    /// The order that the next message gets, by the records that are there.
    pub next_order: Order,
    /// What follows from the records, if none of them is damaged.
    pub derived: Option<(Head, Verdict)>,
}

/// What is known of a message.
#[derive(Debug)]
struct Known {
    order: Order,
    kind: MessageKind,
    /// Whether the store says that it waits; if not even that is known, the log says it.
    waits: Option<bool>,
    held: bool,
    /// The event that took it.
    taken_at: Option<Seq>,
}

/// Checks the records of one session as they come.
///
/// Memory grows with the number of messages and with what a model would see, not with their texts.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{check::{Class, Place, SessionCheck}, codec::DecodeError, event::Body, header::NewSession, id::SessionId};
/// let header = Arc::new(NewSession::child(SessionId::new("c")?, SessionId::new("r")?, 0).at(1_000));
/// let mut check = SessionCheck::new(&header.id, Ok(header.clone()));
/// check.event(0, Ok(Body::EndSeed {}.at(0, 1_000)));
/// check.event(1, Err(DecodeError::Checksum));
/// check.event(3, Ok(Body::ActivationStart { epoch: 1 }.at(3, 1_000)));
/// let (checked, findings) = check.end();
/// let found: Vec<_> = findings.iter().map(|finding| (finding.place.clone(), finding.class)).collect();
/// assert_eq!(found, [(Place::Event(1), Class::Checksum), (Place::Event(2), Class::SeqGap)]);
/// assert_eq!((checked.next_seq, checked.derived), (4, None));
/// # Ok::<(), greenroom_session::id::IdError>(())
/// ```
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct SessionCheck {
    id: SessionId,
    header: Option<Arc<Header>>,
    /// Absent once a record before the next was lost or refused.
    fold: Option<Fold>,
    findings: Vec<Finding>,
    events: u64,
    next_seq: Seq,
    ended_seed: bool,
    unknown_type: bool,
    /// Whether a newer program wrote the session, so that only checksums can be judged.
    newer: bool,
    /// Whether a record was lost that may have been any.
    doubtful: bool,
    /// Whether every event could be read.
    log_whole: bool,
    /// Whether every message could be read.
    inbox_whole: bool,
    orders: Vec<Order>,
    known: HashMap<MessageId, Known>,
    waiting: BTreeMap<Order, InboxRecord>,
    held_taken: BTreeMap<Order, Tombstone>,
    /// Names in the log of messages that have not come yet.
    unknown: Vec<(MessageId, Seq)>,
}

impl SessionCheck {
    /// Begins with the header, or with what is wrong with it.
    pub fn new(id: &SessionId, header: Result<Arc<Header>, DecodeError>) -> Self {
        let mut check = Self {
            id: id.clone(),
            header: None,
            fold: None,
            findings: Vec::new(),
            events: 0,
            next_seq: 0,
            ended_seed: false,
            unknown_type: false,
            newer: matches!(header, Err(DecodeError::Version(_))),
            doubtful: false,
            log_whole: true,
            inbox_whole: true,
            orders: Vec::new(),
            known: HashMap::new(),
            waiting: BTreeMap::new(),
            held_taken: BTreeMap::new(),
            unknown: Vec::new(),
        };
        match header {
            Ok(header) => {
                check.fold = Some(Fold::new(header.clone()));
                check.header = Some(header);
            }
            Err(error @ DecodeError::Misplaced(_)) => check.find(Place::Header, Class::HeaderConflict, error.to_string()),
            Err(error) => check.find(Place::Header, class_of(&error), error.to_string()),
        }
        check
    }

    /// Adds a finding about this session.
    pub fn find(&mut self, place: Place, class: Class, what: impl Into<std::borrow::Cow<'static, str>>) {
        self.findings.push(Finding::of(&self.id, place, class, what));
    }

    /// Says that events cannot be read from here on, which has been told.
    pub fn lose_events(&mut self) {
        self.log_whole = false;
        self.fold = None;
    }

    /// Says that messages cannot be read from here on, which has been told.
    pub fn lose_messages(&mut self) {
        self.inbox_whole = false;
    }

    /// Returns the seq that the next event must have.
    pub fn next_seq(&self) -> Seq {
        self.next_seq
    }

    /// Takes the record at `order`, or what is wrong with it. The orders may come in any order.
    pub fn message(&mut self, order: Order, record: Result<Kept, DecodeError>) {
        let (id, kind, waits, held) = match record {
            Ok(Kept::Waiting { message, held }) => self.wait(order, message, held, Some(true)),
            Ok(Kept::Logged { message, held }) => self.wait(order, message, held, None),
            Ok(Kept::Taken(tombstone)) => {
                let known = (tombstone.id.clone(), tombstone.kind, Some(false), tombstone.held);
                if tombstone.held {
                    self.held_taken.insert(order, tombstone);
                } else {
                    self.held_taken.remove(&order);
                }
                known
            }
            Err(error) => {
                self.orders.push(order);
                self.inbox_whole = false;
                self.unreadable(Place::Message(order), &error);
                return;
            }
        };
        match self.known.get_mut(&id) {
            // Released: the same record again, and no longer held.
            Some(known) if known.order == order && known.waits == waits && known.held && !held => {
                known.held = false;
                return;
            }
            Some(known) => {
                let what = format!("message {} has the same id", known.order);
                self.find(Place::Message(order), Class::DuplicateMessage, what);
            }
            None => {
                self.known.insert(id, Known { order, kind, waits, held, taken_at: None });
            }
        }
        self.orders.push(order);
    }

    /// Keeps a message that may be pending at the end.
    fn wait(&mut self, order: Order, mut message: Message, held: bool, waits: Option<bool>) -> (MessageId, MessageKind, Option<bool>, bool) {
        message.content = Vec::new();
        let known = (message.id.clone(), message.kind, waits, held);
        self.waiting.insert(order, InboxRecord { order, held, message: Arc::new(message) });
        known
    }

    /// Says that a record was lost of which not even the kind is known, which has been told: what is missing after it is not told again.
    pub fn lose_record(&mut self) {
        self.lose_events();
        self.lose_messages();
        self.doubtful = true;
    }

    /// Takes the event at `seq`, or what is wrong with it.
    pub fn event(&mut self, seq: Seq, event: Result<Event, DecodeError>) {
        self.events += 1;
        if seq < self.next_seq {
            // It may be the one before, or one that was written in its place: neither goes on from here.
            self.find(Place::Event(seq), Class::SeqGap, format!("it stands behind event {}", self.next_seq - 1));
            self.lose_events();
            return;
        }
        if seq > self.next_seq && !self.doubtful {
            let next = self.next_seq;
            let what = if seq == next + 1 { format!("event {next} is missing") } else { format!("events {next} to {} are missing", seq - 1) };
            self.find(Place::Event(next), Class::SeqGap, what);
            self.lose_events();
        }
        self.next_seq = seq.saturating_add(1);
        let mut event = match event {
            Ok(event) => event,
            Err(error) => {
                self.unreadable(Place::Event(seq), &error);
                self.lose_events();
                return;
            }
        };
        if let Some(seed_length) = self.header.as_ref().map(|header| header.seed_length) {
            self.own(&event, seed_length);
        }
        if let Body::Opaque(opaque) = &event.body
            && !event.ignorable
            && !self.unknown_type
        {
            self.unknown_type = true;
            self.find(Place::Event(seq), Class::UnknownEventType, format!("the type {:?} is not known", opaque.name));
        }
        if let Some(fold) = &mut self.fold {
            lighten(&mut event.body);
            if let Err(error) = fold.apply_event(&event) {
                self.fold = None;
                self.find(Place::Event(seq), Class::FoldBreach, error.reason);
            }
        }
    }

    fn unreadable(&mut self, place: Place, error: &DecodeError) {
        if !self.newer || *error == DecodeError::Checksum {
            self.find(place, class_of(error), error.to_string());
        }
    }

    /// Looks at what an event says of messages.
    fn own(&mut self, event: &Event, seed_length: Seq) {
        if event.body == (Body::EndSeed {}) && event.seq >= seed_length {
            self.ended_seed = true;
        }
        // A message is taken by the first attempt at it.
        let again = matches!(event.body, Body::TurnStart { attempt, .. } if attempt > 1);
        if again {
            return;
        }
        let (ids, kind) = leaving(event, seed_length);
        for id in ids {
            self.take(id, event.seq, kind);
        }
    }

    fn take(&mut self, id: &MessageId, seq: Seq, kind: Option<MessageKind>) {
        let Some(known) = self.known.get_mut(id) else {
            self.unknown.push((id.clone(), seq));
            return;
        };
        if kind == Some(MessageKind::Turn) && known.kind == MessageKind::Note {
            // A turn that notes opened is named for one of them, which joins it with the others.
            return;
        }
        let order = known.order;
        if let Some(before) = known.taken_at.replace(seq) {
            self.find(Place::Event(seq), Class::TakenTwice, format!("message {order} has left the inbox at event {before} already"));
        } else if kind.is_some_and(|kind| kind != known.kind) {
            let what = format!("it is kept as a {}, which event {seq} does not take", name_of(known.kind));
            self.find(Place::Message(order), Class::TombstoneConflict, what);
        }
    }

    /// Ends, and returns what the records say, and the findings in the order of their places.
    pub fn end(mut self) -> (Checked, Vec<Finding>) {
        let next_order = self.end_inbox();
        self.end_log();
        // What follows from damage need not fit anything.
        let whole = self.log_whole && self.inbox_whole && !self.findings.iter().any(|finding| finding.class.severity() == Severity::Damage);
        let derived = self.fold.take().filter(|_| whole).map(|mut fold| {
            for record in std::mem::take(&mut self.waiting).into_values() {
                fold.apply_message(record);
            }
            for tombstone in self.held_taken.values() {
                fold.apply_taken(tombstone);
            }
            fold.set_next_order(next_order);
            (fold.head().clone(), verdict(&fold))
        });
        let checked = Checked { events: self.events, messages: self.orders.len() as u64, next_seq: self.next_seq, next_order, derived };
        // What is found of one place stays in the order in which it was found.
        self.findings.sort_by(|a, b| a.place.cmp(&b.place));
        (checked, self.findings)
    }

    fn end_inbox(&mut self) -> Order {
        self.orders.sort_unstable();
        let mut next: Order = 0;
        for at in 0..self.orders.len() {
            let Some(&order) = self.orders.get(at) else { break };
            if order != next && !(self.doubtful && order > next) {
                let what = match order.checked_sub(next) {
                    Some(1) => format!("message {next} is missing"),
                    Some(_) => format!("messages {next} to {} are missing", order - 1),
                    None => format!("two messages stand at {order}"),
                };
                self.find(Place::Message(next.min(order)), Class::OrderGap, what);
                self.inbox_whole = false;
            }
            next = order.saturating_add(1);
        }
        for (id, seq) in std::mem::take(&mut self.unknown) {
            match self.known.get_mut(&id) {
                // It came later than its event, as in an export.
                Some(known) => known.taken_at = Some(seq),
                // A message that was lost or cannot be read may be this one.
                None if self.inbox_whole => self.find(Place::Event(seq), Class::NeverAccepted, format!("message {id} was never in the inbox")),
                None => {}
            }
        }
        let mut known: Vec<Known> = std::mem::take(&mut self.known).into_values().collect();
        known.sort_by_key(|known| known.order);
        for known in known {
            match known.taken_at {
                Some(_) if known.waits.is_none() => drop(self.waiting.remove(&known.order)),
                Some(seq) if known.waits == Some(true) => {
                    self.find(Place::Message(known.order), Class::TakenButWaiting, format!("event {seq} says that it has left"));
                }
                // An event that was lost or cannot be read may be the one.
                None if known.waits == Some(false) && self.log_whole && self.header.is_some() => {
                    self.find(Place::Message(known.order), Class::GoneWithoutEvent, "no event names it");
                }
                _ => {}
            }
        }
        next
    }

    fn end_log(&mut self) {
        let Some(header) = self.header.clone() else { return };
        if self.log_whole && header.seed_length > self.next_seq {
            let what = format!("it says that {} events were inherited, and the log has {}", header.seed_length, self.next_seq);
            self.find(Place::Header, Class::HeaderConflict, what);
        } else if self.log_whole && !self.ended_seed {
            self.find(Place::Log, Class::Truncated, "it ends before `session/end-seed`, with which every creation ends");
        }
        if header.parent.is_none() && header.depth != 0 {
            self.find(Place::Header, Class::HeaderConflict, format!("a root at depth {}", header.depth));
        }
        if header.is_fork() {
            // It needs no descriptor, and nobody looks at one.
            return;
        }
        let Some(fold) = self.fold.as_ref().filter(|_| self.log_whole && self.ended_seed) else { return };
        let (place, class, what) = match fold.descriptor() {
            _ if fold.root().is_some() => return,
            DescriptorState::None if header.parent.is_none() => (Place::Log, Class::NoDescriptor, "the root was never opened".to_owned()),
            DescriptorState::None => (Place::Log, Class::NoDescriptor, "a child without a descriptor".to_owned()),
            DescriptorState::Many => (Place::Log, Class::TwoDescriptors, "more than one descriptor".to_owned()),
            DescriptorState::One { seq, parsed: Err(error @ DescriptorError::Unsupported(_)) } => {
                (Place::Event(*seq), Class::UnsupportedDescriptor, error.to_string())
            }
            DescriptorState::One { seq, parsed: Err(error) } => (Place::Event(*seq), Class::BadDescriptor, error.to_string()),
            DescriptorState::One { parsed: Ok(_), .. } => return,
        };
        self.find(place, class, what);
    }
}

/// Returns the class of a record that cannot be read.
fn class_of(error: &DecodeError) -> Class {
    match error {
        DecodeError::Checksum => Class::Checksum,
        DecodeError::Malformed(_) => Class::MalformedRecord,
        DecodeError::Version(_) => Class::UnknownVersion,
        DecodeError::Misplaced(_) => Class::MisplacedRecord,
        DecodeError::Quarantined(_) => Class::Quarantined,
    }
}

fn name_of(kind: MessageKind) -> &'static str {
    match kind {
        MessageKind::Turn => "turn",
        MessageKind::Note => "note",
        MessageKind::Control => "control",
    }
}

/// Takes out the texts that the fold keeps and no rule asks for, so that a long log is not copied.
fn lighten(body: &mut Body) {
    let content = match body {
        Body::UserMessage(message) | Body::AssistantMessage { message, .. } | Body::ToolResult { message, .. } => &mut message.content,
        Body::Memo { text, .. } | Body::AnswerRecorded { text, .. } => {
            *text = String::new();
            return;
        }
        _ => return,
    };
    content.retain(|block| !matches!(block, Block::Text { .. } | Block::Reasoning { .. }));
    for block in content {
        if let Block::ToolResult { text, .. } = block {
            *text = String::new();
        }
    }
}
