//! What a session's file says: its lines, checked one by one, and what follows from them.
//!
//! The last batch may be torn: bytes after the last line feed, a last line whose checksum is wrong, or a last batch whose end is missing are what a write
//! leaves that was cut off, and are passed over. So is a last line that was changed after it was written, lest the session be lost with it; but that is
//! damage ([`is_damaged`](super::batches::is_damaged)). Anything else that is wrong is damage, told with its line and its byte.

use std::{collections::BTreeMap, io, ops::ControlFlow, sync::Arc};

use sha2::{Digest, Sha256};

use super::{
    place::Place,
    text::{Lines, Text},
};
use crate::{
    codec::DecodeError,
    departed::leaving,
    event::{Body, Event},
    fold::Fold,
    head::FoldError,
    header::Header,
    id::{MessageId, Order, Seq, SessionId},
    line::{Line, LineError, is_event, is_whole, read_batch_line},
    message::{InboxRecord, Tombstone},
    place::{folder_of, name_of},
    store::{
        LoadError,
        entry::{First, Orders, Remains},
    },
};

/// A whole session.
#[derive(Debug)]
pub(super) struct Scanned {
    /// What follows from the events and the waiting messages.
    pub(super) fold: Fold,
    /// The messages that wait.
    pub(super) inbox: BTreeMap<Order, InboxRecord>,
    /// Where each message that was ever accepted stands or stood.
    pub(super) orders: Orders,
    /// By order, what remains of each message that has left the inbox.
    pub(super) taken: Vec<Option<Remains>>,
    /// Messages that have left the inbox and are held.
    pub(super) held_taken: Vec<Order>,
    /// What it was created with.
    pub(super) creation: Creation,
    /// How many bytes the whole batches take. What the file has beyond them is torn.
    pub(super) length: u64,
}

/// What a session was created with: enough to tell the same creation from another one.
///
/// It is the first batch, unless that is a header alone: then the session was imported, and what it was created with goes up to its `session/end-seed`.
#[derive(Debug)]
pub(super) struct Creation {
    pub(super) events: usize,
    pub(super) first: First,
    pub(super) hash: [u8; 32],
}

/// Why a file cannot be read as a session.
#[derive(Debug, Clone)]
pub(super) enum Flaw {
    /// A line is damaged.
    Line { place: String, source: DecodeError },
    /// A line does not follow from those before it.
    Fold(FoldError),
}

/// Why a file was not read to its end.
#[derive(Debug)]
pub(super) enum Unread {
    /// What it says is wrong.
    Flaw(Flaw),
    /// It could not be read.
    Io(io::Error),
}

impl From<Flaw> for Unread {
    fn from(flaw: Flaw) -> Self {
        Self::Flaw(flaw)
    }
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Flaw {
    pub(super) fn load_error(&self, session: &SessionId) -> LoadError {
        let session = session.clone();
        match self {
            Self::Line { place, source } => LoadError::Corrupt { session, place: place.clone(), source: source.clone() },
            Self::Fold(source) => LoadError::Fold { session, source: source.clone() },
        }
    }
}

pub(super) fn decode_error(error: LineError) -> DecodeError {
    match error {
        LineError::Record(error) => error,
        other => DecodeError::Malformed(other.to_string()),
    }
}

/// Where a line stands, as it is told.
pub(super) fn place_of(number: u64, at: u64) -> String {
    format!("line {number} (byte {at})")
}

/// Reads the header at the beginning of a file. The id is the one by which the file is listed, whatever is wrong with it.
pub(super) fn header(place: &Place, bytes: &[u8]) -> (SessionId, Result<Arc<Header>, DecodeError>) {
    let line = bytes.iter().position(|&byte| byte == b'\n').and_then(|end| bytes.get(..end));
    let read = |id: &SessionId| match line.map(|line| read_batch_line(id, 0, line)) {
        Some(Ok((Line::Header(header), _))) if *folder_of(header.parent.as_ref()) == *place.folder => Ok(Arc::new(header)),
        Some(Ok((Line::Header(_), _))) => Err(DecodeError::Misplaced("the header names another parent than its folder".into())),
        Some(Ok(_)) => Err(DecodeError::Malformed("the file does not begin with a header".into())),
        Some(Err(error)) => Err(decode_error(error)),
        None => Err(DecodeError::Malformed("the header is cut off".into())),
    };
    if let Some(id) = place.id() {
        let header = read(&id);
        return (id, header);
    }
    // The name of a long id does not say it.
    if let Some(id) = line.and_then(said_id).filter(|id| name_of(id) == *place.stem) {
        let header = read(&id);
        return (id, header);
    }
    let error = Err(DecodeError::Misplaced("the file has a name that no session's file gets".into()));
    (SessionId::new(&place.stem).unwrap_or_else(|_| SessionId::from_uuid(uuid::Uuid::nil())), error)
}

pub(super) fn said_id(line: &[u8]) -> Option<SessionId> {
    #[derive(serde::Deserialize)]
    struct Said {
        id: SessionId,
    }
    serde_json::from_slice::<Said>(line).ok().map(|said| said.id)
}

/// What takes the events of a file, and may stop the reading.
pub(super) type See<'a> = dyn FnMut(Event) -> ControlFlow<()> + 'a;

/// Reads the whole batches of a file whose header has been read, line by line, and hands each event on; `None` if that was stopped.
pub(super) fn scan<T: Text + ?Sized>(header: &Arc<Header>, text: &T, end: u64, see: &mut See<'_>) -> Result<Option<Scanned>, Unread> {
    require_batch(end)?;
    let mut replay = Replay::new(header);
    let mut lines = Lines::of(text, end);
    while let Some(line) = lines.read()? {
        let flaw = |source| Flaw::Line { place: place_of(line.number, line.at), source };
        let (record, more) = read_batch_line(&header.id, replay.scanned.fold.head().next_seq, line.text).map_err(|error| flaw(decode_error(error)))?;
        let event = replay.take(record, line.number, more).map_err(|wrong| match wrong {
            Wrong::Line(source) => flaw(source),
            Wrong::Fold(error) => Flaw::Fold(FoldError::new(error.seq, format!("{} ({})", error.reason, place_of(line.number, line.at)))),
        })?;
        if event.is_some_and(|event| see(event).is_break()) {
            return Ok(None);
        }
    }
    Ok(Some(replay.finish(end)))
}

/// Reads the events from `from`, at most `limit`, of a file whose header has been read. What stands before them is checked by its checksum alone, and what
/// stands behind them is not read.
pub(super) fn events<T: Text + ?Sized>(header: &Arc<Header>, text: &T, end: u64, from: Seq, limit: usize) -> Result<Vec<Event>, Unread> {
    require_batch(end)?;
    let mut events = Vec::new();
    let mut next = 0;
    let mut lines = Lines::of(text, end);
    while events.len() < limit
        && let Some(line) = lines.read()?
    {
        let passed_over = match said_seq(line.text) {
            Some(seq) => seq == next && seq < from,
            None => !is_event(line.text),
        };
        if passed_over && is_whole(&header.id, line.text) {
            next += u64::from(is_event(line.text));
            continue;
        }
        let read = read_batch_line(&header.id, next, line.text);
        let (record, _) = read.map_err(|error| Flaw::Line { place: place_of(line.number, line.at), source: decode_error(error) })?;
        if let Line::Event(event) = record {
            next += 1;
            events.push(event);
        }
    }
    Ok(events)
}

/// A file gets its name when its first batch is on the disk, so no write leaves one without.
fn require_batch(end: u64) -> Result<(), Flaw> {
    if end == 0 { Err(Flaw::Line { place: place_of(1, 0), source: DecodeError::Malformed("the first batch is cut off".into()) }) } else { Ok(()) }
}

/// Returns the seq that the line of an event begins with.
fn said_seq(line: &[u8]) -> Option<Seq> {
    let rest = line.strip_prefix(b"{\"seq\":")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(rest.get(..digits)?).ok()?.parse().ok()
}

/// What is wrong with a line in its place.
enum Wrong {
    Line(DecodeError),
    Fold(FoldError),
}

/// The lines so far.
struct Replay {
    scanned: Scanned,
    hasher: Sha256,
    /// Whether what comes next is of the creation.
    creating: bool,
}

impl Replay {
    fn new(header: &Arc<Header>) -> Self {
        let scanned = Scanned {
            fold: Fold::new(header.clone()),
            inbox: BTreeMap::new(),
            orders: Orders::default(),
            taken: Vec::new(),
            held_taken: Vec::new(),
            creation: Creation { events: 0, first: First::Message(None), hash: [0; 32] },
            length: 0,
        };
        Self { scanned, hasher: Sha256::new(), creating: true }
    }

    /// Takes a line, and gives the event back that it was.
    fn take(&mut self, record: Line, number: u64, more: bool) -> Result<Option<Event>, Wrong> {
        let misplaced = |reason: &str| Wrong::Line(DecodeError::Misplaced(reason.into()));
        let mut taken = None;
        match record {
            Line::Header(_) if number == 1 => {
                if !more {
                    self.scanned.creation.first = First::Unknown;
                }
            }
            Line::Header(_) => return Err(misplaced("a second header")),
            Line::Event(event) => {
                self.event(&event)?;
                taken = Some(event);
            }
            Line::Message(record) => self.message(record).map_err(misplaced)?,
            Line::Taken(tombstone) => self.tombstone(&tombstone).map_err(misplaced)?,
        }
        if !more && self.scanned.creation.first != First::Unknown {
            self.creating = false;
        }
        Ok(taken)
    }

    fn event(&mut self, event: &Event) -> Result<(), Wrong> {
        let scanned = &mut self.scanned;
        scanned.fold.apply_event(event).map_err(Wrong::Fold)?;
        let seed_length = scanned.fold.header().seed_length;
        let (ids, kind) = leaving(event, seed_length);
        for order in ids.iter().filter_map(|id| scanned.orders.get(id)) {
            if let Some(record) = scanned.inbox.get(order)
                && kind.is_none_or(|kind| record.message.kind == kind)
            {
                let message = &record.message;
                let remains = Remains::Hash { hash: message.hash(), kind: message.kind, wake: message.wake };
                scanned.inbox.remove(order);
                if let Some(place) = usize::try_from(*order).ok().and_then(|at| scanned.taken.get_mut(at)) {
                    *place = Some(remains);
                }
            }
        }
        if self.creating {
            scanned.creation.events += 1;
            hash_event(&mut self.hasher, event);
            // Of an import, the seed.
            if scanned.creation.first == First::Unknown && event.seq >= seed_length && matches!(event.body, Body::EndSeed {}) {
                self.creating = false;
            }
        }
        Ok(())
    }

    /// Gives a message its place in the inbox; false if it has it already.
    fn enter(&mut self, id: &MessageId, order: Order, remains: Option<Remains>) -> Result<bool, &'static str> {
        let scanned = &mut self.scanned;
        let next = scanned.taken.len() as u64;
        if order > next {
            return Err("messages before it are missing");
        }
        if order < next {
            return if scanned.orders.get(id) == Some(&order) { Ok(false) } else { Err("another message of this order was there before") };
        }
        if scanned.orders.insert(id.clone(), order).is_some() {
            return Err("a message of this id was there before");
        }
        scanned.taken.push(remains);
        Ok(true)
    }

    fn message(&mut self, record: InboxRecord) -> Result<(), &'static str> {
        if !self.enter(&record.message.id, record.order, None)? {
            // It was held and is released.
            return match self.scanned.inbox.get_mut(&record.order) {
                Some(waiting) if waiting.held && !record.held && waiting.message == record.message => {
                    waiting.held = false;
                    Ok(())
                }
                _ => Err("the message was there before"),
            };
        }
        if self.creating && self.scanned.creation.first != First::Unknown {
            self.scanned.creation.first = First::Message(Some(record.message.id.clone()));
        }
        self.scanned.inbox.insert(record.order, record);
        Ok(())
    }

    fn tombstone(&mut self, tombstone: &Tombstone) -> Result<(), &'static str> {
        let Tombstone { order, ref id, kind, wake, hash, held } = *tombstone;
        if self.enter(id, order, Some(Remains::Hash { hash, kind, wake }))? {
            self.scanned.held_taken.extend(held.then_some(order));
            return Ok(());
        }
        let same = match usize::try_from(order).ok().and_then(|at| self.scanned.taken.get(at)?.as_ref()) {
            Some(Remains::Hash { hash: known, kind: as_kind, wake: as_wake }) => (*known, *as_kind, *as_wake) == (hash, kind, wake),
            _ => false,
        };
        let before = self.scanned.held_taken.len();
        self.scanned.held_taken.retain(|other| *other != order);
        if same && !held && self.scanned.held_taken.len() < before { Ok(()) } else { Err("what remains of the message was there before") }
    }

    fn finish(self, length: u64) -> Scanned {
        let Self { mut scanned, hasher, .. } = self;
        for record in scanned.inbox.values() {
            scanned.fold.apply_message(record.clone());
        }
        for tombstone in held_tombstones(&scanned.orders, &scanned.taken, &scanned.held_taken) {
            scanned.fold.apply_taken(&tombstone);
        }
        scanned.fold.set_next_order(scanned.taken.len() as u64);
        scanned.creation.hash = hasher.finalize().into();
        scanned.length = length;
        scanned
    }
}

/// Returns what remains of the messages that have left the inbox and are held.
fn held_tombstones(orders: &Orders, taken: &[Option<Remains>], held: &[Order]) -> Vec<Tombstone> {
    if held.is_empty() {
        return Vec::new();
    }
    let of = |(id, order): (&MessageId, &Order)| tombstone(id, *order, taken, true);
    orders.iter().filter(|(_, order)| held.contains(order)).filter_map(of).collect()
}

/// Returns what remains of a message.
pub(super) fn tombstone(id: &MessageId, order: Order, taken: &[Option<Remains>], held: bool) -> Option<Tombstone> {
    match taken.get(usize::try_from(order).ok()?)?.as_ref()? {
        Remains::Hash { hash, kind, wake } => Some(Tombstone { order, id: id.clone(), kind: *kind, wake: *wake, hash: *hash, held }),
        Remains::Event { .. } => None,
    }
}

/// Hashes what events say, times aside.
pub(super) fn creation_hash(events: &[Event]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for event in events {
        hash_event(&mut hasher, event);
    }
    hasher.finalize().into()
}

fn hash_event(hasher: &mut Sha256, event: &Event) {
    let data = match &event.body {
        Body::Opaque(opaque) => serde_json::to_vec(&crate::json::Ordered(&opaque.data)),
        body => serde_json::to_vec(body),
    };
    for part in [event.body.type_name().as_bytes(), b"\0", &data.unwrap_or_default(), b"\0"] {
        hasher.update(part);
    }
}
