//! What a session's file says: its lines, checked one by one, and what follows from them.
//!
//! The last batch may be torn: bytes after the last line feed, a last line whose checksum is wrong, or a last batch whose end is missing are what a write
//! leaves that was cut off, and are passed over. So is a last line that was changed after it was written, lest the session be lost with it; but that is
//! damage ([`is_damaged`]). Anything else that is wrong is damage, told with its line and its byte.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use sha2::{Digest, Sha256};

use super::place::Place;
use crate::{
    codec::DecodeError,
    departed::leaving,
    event::{Body, Event},
    fold::Fold,
    head::FoldError,
    header::Header,
    id::{MessageId, Order, SessionId},
    line::{Line, LineError, hides_a_record, is_whole, read_batch_line, says_more},
    message::{InboxRecord, Tombstone},
    place::{folder_of, name_of},
    store::{
        LoadError,
        entry::{First, Remains},
    },
};

/// A whole session.
#[derive(Debug)]
pub(super) struct Scanned {
    /// Every event if they were asked for.
    pub(super) events: Vec<Event>,
    /// What follows from the events and the waiting messages.
    pub(super) fold: Fold,
    /// The messages that wait.
    pub(super) inbox: BTreeMap<Order, InboxRecord>,
    /// Where each message that was ever accepted stands or stood.
    pub(super) orders: HashMap<MessageId, Order>,
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
fn place_of(number: usize, at: usize) -> String {
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

/// Reads a whole file whose header has been read.
pub(super) fn scan(header: &Arc<Header>, bytes: &[u8], keep_events: bool) -> Result<Scanned, Flaw> {
    let id = &header.id;
    let end = whole_batches(id, bytes)?;
    if end == 0 {
        // A file gets its name when its first batch is on the disk, so no write leaves this.
        return Err(Flaw::Line { place: place_of(1, 0), source: DecodeError::Malformed("the first batch is cut off".into()) });
    }
    let mut replay = Replay::new(header, keep_events);
    let (mut at, mut number) = (0, 0);
    for line in bytes.get(..end).unwrap_or_default().split_inclusive(|&byte| byte == b'\n') {
        number += 1;
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let flaw = |source| Flaw::Line { place: place_of(number, at), source };
        let (record, more) = read_batch_line(id, replay.scanned.fold.head().next_seq, text).map_err(|error| flaw(decode_error(error)))?;
        replay.take(record, number, more).map_err(|wrong| match wrong {
            Wrong::Line(source) => flaw(source),
            Wrong::Fold(error) => Flaw::Fold(FoldError::new(error.seq, format!("{} ({})", error.reason, place_of(number, at)))),
        })?;
        at += line.len();
    }
    Ok(replay.finish(end as u64))
}

/// Returns where the last whole batch ends.
pub(super) fn whole_batches(id: &SessionId, bytes: &[u8]) -> Result<usize, Flaw> {
    let mut end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let tail = bytes.get(end..).unwrap_or_default();
    refuse_hidden(id, bytes, end, tail)?;
    let start_of_last = |end: usize| bytes.get(..end.saturating_sub(1)).unwrap_or_default().iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let line = |start: usize, end: usize| bytes.get(start..end.saturating_sub(1)).unwrap_or_default();
    if end > 0 && tail.is_empty() {
        let start = start_of_last(end);
        let last = line(start, end);
        if !is_whole(id, last) {
            refuse_hidden(id, bytes, start, last)?;
            end = start;
        }
    }
    // What a batch has before its torn end goes with it.
    while end > 0 {
        let start = start_of_last(end);
        if !says_more(line(start, end)) {
            break;
        }
        end = start;
    }
    Ok(end)
}

/// Tells whether an end that is passed over had been written whole and was changed afterwards. A write that is cut off ends where the file ends or leaves
/// a hole, so that a whole line is as it was written.
pub(super) fn is_damaged(id: &SessionId, rest: &[u8]) -> bool {
    let mut lines = rest.split_inclusive(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line));
    match rest.last() {
        Some(b'\n') => !has_hole(rest) && lines.any(|line| !is_whole(id, line)),
        // Where a line feed stood that was changed, another byte follows a whole record; of a hole it would be a NUL.
        Some(1..) => lines.next_back().and_then(|line| line.split_last()).is_some_and(|(_, line)| is_whole(id, line)),
        _ => false,
    }
}

/// Tells whether bytes were never written: a run of NUL bytes that no flipped bit makes.
pub(super) fn has_hole(bytes: &[u8]) -> bool {
    const HOLE: usize = 4;
    bytes.windows(HOLE).any(|window| window.iter().all(|&byte| byte == 0))
}

/// Tells damage from what a write leaves that was cut off: no cut joins a whole record with the beginning of another.
pub(super) fn refuse_hidden(id: &SessionId, bytes: &[u8], start: usize, torn: &[u8]) -> Result<(), Flaw> {
    if !hides_a_record(id, torn) {
        return Ok(());
    }
    let number = bytes.get(..start).unwrap_or_default().split_inclusive(|&byte| byte == b'\n').count() + 1;
    Err(Flaw::Line { place: place_of(number, start), source: DecodeError::Malformed("two records stand on one line".into()) })
}

/// What is wrong with a line in its place.
enum Wrong {
    Line(DecodeError),
    Fold(FoldError),
}

/// The lines so far.
struct Replay {
    keep_events: bool,
    scanned: Scanned,
    hasher: Sha256,
    /// Whether what comes next is of the creation.
    creating: bool,
}

impl Replay {
    fn new(header: &Arc<Header>, keep_events: bool) -> Self {
        let scanned = Scanned {
            events: Vec::new(),
            fold: Fold::new(header.clone()),
            inbox: BTreeMap::new(),
            orders: HashMap::new(),
            taken: Vec::new(),
            held_taken: Vec::new(),
            creation: Creation { events: 0, first: First::Message(None), hash: [0; 32] },
            length: 0,
        };
        Self { keep_events, scanned, hasher: Sha256::new(), creating: true }
    }

    fn take(&mut self, record: Line, number: usize, more: bool) -> Result<(), Wrong> {
        let misplaced = |reason: &str| Wrong::Line(DecodeError::Misplaced(reason.into()));
        match record {
            Line::Header(_) if number == 1 => {
                if !more {
                    self.scanned.creation.first = First::Unknown;
                }
            }
            Line::Header(_) => return Err(misplaced("a second header")),
            Line::Event(event) => self.event(event)?,
            Line::Message(record) => self.message(record).map_err(misplaced)?,
            Line::Taken(tombstone) => self.tombstone(&tombstone).map_err(misplaced)?,
        }
        if !more && self.scanned.creation.first != First::Unknown {
            self.creating = false;
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> Result<(), Wrong> {
        let scanned = &mut self.scanned;
        scanned.fold.apply_event(&event).map_err(Wrong::Fold)?;
        let seed_length = scanned.fold.header().seed_length;
        let (ids, kind) = leaving(&event, seed_length);
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
            hash_event(&mut self.hasher, &event);
            // Of an import, the seed.
            if scanned.creation.first == First::Unknown && event.seq >= seed_length && matches!(event.body, Body::EndSeed {}) {
                self.creating = false;
            }
        }
        if self.keep_events {
            scanned.events.push(event);
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
fn held_tombstones(orders: &HashMap<MessageId, Order>, taken: &[Option<Remains>], held: &[Order]) -> Vec<Tombstone> {
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
        Body::Opaque(opaque) => serde_json::to_vec(&opaque.data),
        body => serde_json::to_vec(body),
    };
    for part in [event.body.type_name().as_bytes(), b"\0", &data.unwrap_or_default(), b"\0"] {
        hasher.update(part);
    }
}
