//! The sessions that the writer knows: those that are live, and as many others as room is given to.

use std::{collections::HashMap, fs::File, sync::Arc};

use super::{
    place::Place,
    scan::{self, Scanned, creation_hash},
};
use crate::{
    event::Event,
    header::Header,
    id::{Seq, SessionId},
    listing::verdict,
    message::Block,
    store::entry::{Creation, Entry, Trail},
};

/// Most bytes that sessions take which are not live.
const MOST_IDLE: usize = 64 * 1024 * 1024;
/// Most files of live sessions that stay open.
const MOST_OPEN: usize = 128;

/// What is kept of a log that lies in a file: what the session was created with.
#[derive(Debug)]
pub(super) struct Beginning {
    events: usize,
    hash: [u8; 32],
}

impl Trail for Beginning {
    fn push(&mut self, _: &Arc<[Event]>) {}

    fn begins_with(&self, events: &[Event]) -> bool {
        self.events == events.len() && self.hash == creation_hash(events)
    }

    fn at(&self, _: Seq) -> Option<&Event> {
        None
    }
}

impl Beginning {
    pub(super) fn of(events: &[Event]) -> Self {
        Self { events: events.len(), hash: creation_hash(events) }
    }
}

/// A session that the writer knows.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) entry: Entry<Beginning>,
    pub(super) place: Place,
    /// How far the file is good. What is written next goes there.
    pub(super) length: u64,
    /// How long the file is.
    pub(super) size: u64,
    /// What lies beyond the length and must be written again, since nobody knows whether the disk has it.
    pub(super) again: Vec<u8>,
    /// Whether this opening has waited until the file was on the disk.
    pub(super) synced: bool,
    pub(super) file: Option<Arc<File>>,
    used: u64,
    cost: usize,
}

impl Slot {
    /// Makes a slot of a session that is being created.
    pub(super) fn new(entry: Entry<Beginning>, place: Place) -> Self {
        Self { entry, place, length: 0, size: 0, again: Vec::new(), synced: false, file: None, used: 0, cost: 0 }
    }

    /// Makes a slot of what a file says.
    pub(super) fn of(header: Arc<Header>, place: Place, scanned: Scanned, size: u64) -> Self {
        let scan::Creation { events, first, hash } = scanned.creation;
        let (head, said) = (scanned.fold.head().clone(), verdict(&scanned.fold));
        let mut entry = Entry::new(header, Creation { events, first }, Beginning { events, hash }, head, said);
        entry.inbox = scanned.inbox;
        entry.orders = scanned.orders;
        entry.taken = scanned.taken;
        entry.held_taken = scanned.held_taken;
        Self { length: scanned.length, size, ..Self::new(entry, place) }
    }

    fn is_live(&self) -> bool {
        self.entry.owner.is_some()
    }

    fn weigh(&self) -> usize {
        let waiting: usize = self.entry.inbox.values().map(|record| 256 + record.message.content.iter().map(Block::len).sum::<usize>()).sum();
        1024 + 128 * self.entry.orders.len() + waiting
    }
}

/// The sessions that the writer knows.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    slots: HashMap<SessionId, Slot>,
    clock: u64,
}

impl Shelf {
    pub(super) fn has(&self, id: &SessionId) -> bool {
        self.slots.contains_key(id)
    }

    pub(super) fn get(&mut self, id: &SessionId) -> Option<&mut Slot> {
        self.clock += 1;
        let slot = self.slots.get_mut(id)?;
        slot.used = self.clock;
        Some(slot)
    }

    pub(super) fn put(&mut self, id: SessionId, slot: Slot) {
        self.slots.insert(id, slot);
    }

    pub(super) fn drop(&mut self, id: &SessionId) {
        self.slots.remove(id);
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    /// Forgets what there is no room for, after a batch that has moved these sessions.
    pub(super) fn tidy<'a>(&mut self, moved: impl Iterator<Item = &'a SessionId>) {
        for id in moved {
            if let Some(slot) = self.slots.get_mut(id) {
                slot.cost = if slot.is_live() { 0 } else { slot.weigh() };
                if !slot.is_live() {
                    slot.file = None;
                }
            }
        }
        let idle: usize = self.slots.values().map(|slot| slot.cost).sum();
        if idle > MOST_IDLE {
            let mut by_use: Vec<(u64, SessionId, usize)> =
                self.slots.iter().filter(|(_, slot)| !slot.is_live()).map(|(id, slot)| (slot.used, id.clone(), slot.cost)).collect();
            by_use.sort_unstable();
            let mut left = idle;
            for (_, id, cost) in by_use {
                if left <= MOST_IDLE / 2 {
                    break;
                }
                left -= cost;
                self.slots.remove(&id);
            }
        }
        let mut open: Vec<(u64, &mut Slot)> = self.slots.values_mut().filter(|slot| slot.file.is_some()).map(|slot| (slot.used, slot)).collect();
        if open.len() > MOST_OPEN {
            open.sort_unstable_by_key(|(used, _)| *used);
            let surplus = open.len() - MOST_OPEN / 2;
            for (_, slot) in open.into_iter().take(surplus) {
                slot.file = None;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn open_files(&self) -> usize {
        self.slots.values().filter(|slot| slot.file.is_some()).count()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}
