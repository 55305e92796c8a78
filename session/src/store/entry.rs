//! The rules of one session: what its operations are checked against and what they change, wherever its records are kept.
//!
//! An [`Entry`] changes only after its checks, so a refused operation leaves it as it was. It does no input or output: the memory store is made of
//! entries, and the JSON Lines store writes down what one has accepted.

use std::{
    collections::{BTreeMap, HashSet, hash_map},
    fmt,
    sync::Arc,
};

use super::{
    Accept, Append, Claim, ClaimKind, Close, Create, Done, Fence, InboxLine, Open, Refused, check_begun, check_ended, check_lived, check_taken, import::Checked,
};
use crate::{
    codec::{check_event, check_message},
    departed::leaving,
    event::{Body, Event},
    head::Head,
    header::Header,
    id::{MessageId, Order, OwnerId, Seq},
    listing::Verdict,
    message::{BodyHash, InboxRecord, Message, MessageKind, Tombstone},
    turns::{Claimed, join_notes, open_turn},
};

/// Where each message stands or stood. Every acceptance looks here, so the keys are hashed fast, under a seed of this process.
pub(super) type Orders = foldhash::HashMap<MessageId, Order>;

/// What an entry keeps of its log.
pub(super) trait Trail: fmt::Debug {
    /// Goes on by events that have been checked.
    fn push(&mut self, events: &Arc<[Event]>);

    /// Tells whether the log begins with these events, times aside.
    fn begins_with(&self, events: &[Event]) -> bool;

    /// Returns the event at a place, if events are kept.
    fn at(&self, seq: Seq) -> Option<&Event>;
}

/// A session as whoever writes to it keeps it.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) header: Arc<Header>,
    pub(super) creation: Creation,
    pub(super) log: T,
    pub(super) head: Head,
    pub(super) inbox: BTreeMap<Order, InboxRecord>,
    /// Where each message that was ever accepted stands or stood.
    pub(super) orders: Orders,
    /// By order, what remains of a message that has left the inbox.
    pub(super) taken: Vec<Option<Remains>>,
    /// Messages that have left the inbox and are held.
    pub(super) held_taken: Vec<Order>,
    pub(super) verdict: Verdict,
    pub(super) owner: Option<OwnerId>,
}

/// What remains of a message that has left the inbox: enough to tell it from another one under its id.
#[derive(Debug)]
pub(super) enum Remains {
    /// All of it: its content and its source stand in the log, where its turn or a joined note begins.
    Event { seq: Seq, kind: MessageKind, wake: bool },
    /// A hash.
    Hash { hash: BodyHash, kind: MessageKind, wake: bool },
}

/// What a session was created with.
#[derive(Debug)]
pub(super) struct Creation {
    pub(super) events: usize,
    pub(super) first: First,
}

/// The message that a session was created with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum First {
    Message(Option<MessageId>),
    /// An import does not tell it from the first that was accepted later.
    Unknown,
}

impl<T: Trail> Entry<T> {
    /// Begins with an empty inbox.
    pub(super) fn new(header: Arc<Header>, creation: Creation, log: T, head: Head, verdict: Verdict) -> Self {
        Self { header, creation, log, head, inbox: BTreeMap::new(), orders: Orders::default(), taken: Vec::new(), held_taken: Vec::new(), verdict, owner: None }
    }

    /// Makes what an import brings.
    pub(super) fn imported(header: Arc<Header>, checked: Checked, log: T) -> Self {
        let Checked { head, verdict, inbox, seed } = checked;
        let mut entry = Self::new(header, Creation { events: seed, first: First::Unknown }, log, head, verdict);
        for line in inbox {
            entry.orders.insert(line.message().clone(), line.order());
            entry.taken.push(match line {
                InboxLine::Waiting(record) => {
                    entry.inbox.insert(record.order, record);
                    None
                }
                InboxLine::Taken(Tombstone { order, kind, wake, hash, held, .. }) => {
                    entry.held_taken.extend(held.then_some(order));
                    Some(Remains::Hash { hash, kind, wake })
                }
            });
        }
        entry
    }

    /// Returns what remains of a message that has left the inbox.
    pub(super) fn tombstone(&self, id: &MessageId, order: Order) -> Option<Tombstone> {
        let (hash, kind, wake) = match self.taken.get(usize::try_from(order).ok()?)?.as_ref()? {
            Remains::Hash { hash, kind, wake } => (*hash, *kind, *wake),
            Remains::Event { seq, kind, wake } => {
                let Body::UserMessage(shown) = &self.log.at(*seq)?.body else { return None };
                let (content, source) = (shown.content.clone(), shown.source.clone());
                let message = Message { id: id.clone(), kind: *kind, content, source, sent_at: 0, wake: *wake, control: None };
                (message.hash(), *kind, *wake)
            }
        };
        Some(Tombstone { order, id: id.clone(), kind, wake, hash, held: self.held_taken.contains(&order) })
    }

    /// Returns what remains of the messages that have left and are held.
    pub(super) fn held_tombstones(&self) -> impl Iterator<Item = Tombstone> {
        self.held_taken.iter().filter_map(|order| {
            let (id, _) = self.orders.iter().find(|(_, at)| *at == order)?;
            self.tombstone(id, *order)
        })
    }

    /// Lets go of every record that is held.
    pub(super) fn release(&mut self) -> Done {
        let records = self.head.held;
        for record in self.inbox.values_mut() {
            record.held = false;
        }
        self.held_taken.clear();
        self.head.release();
        Done::Released { records }
    }

    /// Returns the places of the waiting messages that events take.
    pub(super) fn named(&self, events: &[Event]) -> HashSet<Order> {
        let mut named = HashSet::new();
        for (ids, kind) in events.iter().map(|event| leaving(event, self.header.seed_length)) {
            let waiting = ids.iter().filter_map(|id| self.inbox.get(self.orders.get(id)?));
            named.extend(waiting.filter(|record| kind.is_none_or(|kind| record.message.kind == kind)).map(|record| record.order));
        }
        named
    }

    pub(super) fn same_creation(&self, op: &Create) -> Result<Done, Refused> {
        let first = op.message.as_ref().map(|message| &message.id);
        let same = op.session.matches(&self.header)
            && self.creation.events == op.events.len()
            && self.log.begins_with(&op.events)
            && match &self.creation.first {
                First::Message(message) => message.as_ref() == first,
                First::Unknown => first.is_none_or(|first| self.orders.get(first) == Some(&0)),
            }
            && op.message.as_ref().is_none_or(|message| self.is_same(message));
        if same { Ok(Done::Created { header: self.header.clone(), existing: true }) } else { Err(Refused::Exists(self.header.id.clone())) }
    }

    /// Tells whether this very message was accepted before.
    fn is_same(&self, message: &Message) -> bool {
        let Some(order) = self.orders.get(&message.id) else { return false };
        match self.inbox.get(order) {
            Some(waiting) => waiting.message.hash() == message.hash(),
            None => match usize::try_from(*order).ok().and_then(|at| self.taken.get(at)?.as_ref()) {
                Some(Remains::Hash { hash, .. }) => *hash == message.hash(),
                Some(Remains::Event { seq, kind, wake }) => {
                    (*kind, *wake) == (message.kind, message.wake) && message.control.is_none() && self.log.at(*seq).is_some_and(|event| shows(event, message))
                }
                None => false,
            },
        }
    }

    pub(super) fn enter(&mut self, message: &Arc<Message>) {
        self.orders.insert(message.id.clone(), self.head.next_order);
        self.wait(message);
    }

    /// Puts a message whose order is noted into the inbox.
    fn wait(&mut self, message: &Arc<Message>) -> Order {
        let order = self.head.next_order;
        self.head.accept(message, false);
        self.taken.push(None);
        self.inbox.insert(order, InboxRecord { order, held: false, message: message.clone() });
        order
    }

    pub(super) fn accept(&mut self, op: &Accept) -> Result<Done, Refused> {
        let message = &op.message;
        let place = match self.orders.entry(message.id.clone()) {
            hash_map::Entry::Vacant(place) => place,
            hash_map::Entry::Occupied(known) => {
                let order = *known.get();
                return if self.is_same(message) { Ok(Done::Accepted { order, duplicate: true }) } else { Err(Refused::MessageIdConflict(message.id.clone())) };
            }
        };
        let (pending, limit) = match message.kind {
            MessageKind::Turn => (self.head.pending_turns, op.inbox_limit),
            MessageKind::Note => (self.head.pending_wakes + self.head.pending_quiet, op.note_limit),
            MessageKind::Control => (self.head.pending_controls, op.inbox_limit),
        };
        if pending >= limit {
            return Err(Refused::Busy { pending, limit });
        }
        check_message(message)?;
        place.insert(self.head.next_order);
        Ok(Done::Accepted { order: self.wait(message), duplicate: false })
    }

    fn fence(&self, fence: &Fence) -> Result<(), Refused> {
        if self.head.epoch == fence.epoch && self.head.live { Ok(()) } else { Err(Refused::Fenced { stored: self.head.epoch }) }
    }

    /// Folds events into a copy of the head; nothing changes unless all of them follow.
    fn follow(&self, events: &[Event], take: &[Order]) -> Result<Head, Refused> {
        if let Some(first) = events.first()
            && first.seq != self.head.next_seq
        {
            return Err(Refused::Moved { stored: self.head.next_seq });
        }
        let mut head = self.head.clone();
        for event in events {
            check_event(event)?;
            check_lived(event)?;
            head.apply(event, self.header.seed_length)?;
        }
        check_taken(&self.named(events), take)?;
        Ok(head)
    }

    /// Takes messages out of the inbox, after the events that say so.
    fn leave(&mut self, orders: &[Order], events: &[Event]) {
        for order in orders {
            if let Some(record) = self.inbox.remove(order) {
                let message = &record.message;
                let remains = match events.iter().find(|event| message.control.is_none() && shows(event, message)) {
                    Some(event) if self.log.at(event.seq).is_some() => Remains::Event { seq: event.seq, kind: message.kind, wake: message.wake },
                    _ => Remains::Hash { hash: message.hash(), kind: message.kind, wake: message.wake },
                };
                if let Some(place) = usize::try_from(*order).ok().and_then(|at| self.taken.get_mut(at)) {
                    *place = Some(remains);
                }
                self.head.take(message, record.held);
            }
        }
    }

    pub(super) fn open(&mut self, op: &Open, owner: &OwnerId, is_alive: impl Fn(&OwnerId) -> bool) -> Result<Done, Refused> {
        if let Some(holder) = &self.owner
            && holder != owner
            && is_alive(holder)
        {
            return Err(Refused::Held(holder.clone()));
        }
        if self.head.epoch + 1 != op.epoch {
            return Err(Refused::Fenced { stored: self.head.epoch });
        }
        let head = self.follow(&op.events, &[])?;
        check_begun(&head, op.epoch)?;
        self.head = head;
        self.log.push(&op.events);
        self.owner = Some(owner.clone());
        let claimed = op.claim.and_then(|time| self.take_next(ClaimKind::Turn, time));
        Ok(Done::Opened { claimed })
    }

    pub(super) fn append(&mut self, op: &Append) -> Result<Done, Refused> {
        self.fence(&op.fence)?;
        if let Some(order) = op.take.iter().find(|order| !self.inbox.contains_key(order)) {
            return Err(Refused::NotPending(*order));
        }
        if op.events.is_empty() && !op.take.is_empty() {
            return Err(Refused::Invalid { code: "EVENT_INVALID", message: "a message leaves the inbox with the events that name it".into() });
        }
        self.head = self.follow(&op.events, &op.take)?;
        self.log.push(&op.events);
        self.leave(&op.take, &op.events);
        Ok(Done::Appended)
    }

    pub(super) fn claim(&mut self, op: &Claim) -> Result<Done, Refused> {
        self.fence(&op.fence)?;
        if op.first_seq != self.head.next_seq {
            return Err(Refused::Moved { stored: self.head.next_seq });
        }
        Ok(Done::Claimed(self.take_next(op.kind, op.time)))
    }

    fn take_next(&mut self, kind: ClaimKind, time: u64) -> Option<Claimed> {
        // A held record and everything behind it waits, and so does a message whose turn was not finished.
        if kind == ClaimKind::Turn && self.head.held > 0 && self.head.retry.is_some() {
            return None;
        }
        let end = self.held_taken.iter().min().copied().unwrap_or(Order::MAX);
        let ready = || self.inbox.values().take_while(|record| !record.held && record.order < end);
        // Without this, each turn would cost a look at everything that waits.
        let any_note = self.head.pending_wakes + self.head.pending_quiet > 0;
        let notes: Vec<InboxRecord> = if any_note { ready().filter(|record| record.message.kind == MessageKind::Note).cloned().collect() } else { Vec::new() };
        let claimed = match kind {
            ClaimKind::Turn if self.head.open.is_some() => None,
            ClaimKind::Turn => open_turn(&self.head, time, ready().find(|record| record.message.kind == MessageKind::Turn), &notes),
            ClaimKind::Notes => join_notes(&self.head, time, &notes),
        }?;
        self.head = self.follow(&claimed.events, &claimed.taken).ok()?;
        self.log.push(&claimed.events);
        self.leave(&claimed.taken, &claimed.events);
        Some(claimed)
    }

    pub(super) fn close(&mut self, op: &Close) -> Result<Done, Refused> {
        self.fence(&op.fence)?;
        if op.unless_pending && self.head.has_work() {
            return Err(Refused::Pending(self.head.pending()));
        }
        let head = self.follow(&op.events, &[])?;
        check_ended(&head)?;
        self.head = head;
        self.log.push(&op.events);
        self.owner = None;
        Ok(Done::Closed)
    }
}

/// Tells whether an event shows a message with all that it says and whoever says it.
fn shows(event: &Event, message: &Message) -> bool {
    matches!(&event.body, Body::UserMessage(shown) if shown.id == message.id && shown.content == message.content && shown.source == message.source)
}
