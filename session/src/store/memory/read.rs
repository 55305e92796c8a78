//! The reader: what the store keeps, and nothing derived anew.

use std::{
    io,
    ops::{Bound, ControlFlow},
    sync::{Arc, Mutex},
};

use super::{EventLog, MemoryEntry, Shared, lock};
use crate::{
    event::Event,
    fold::Fold,
    head::Head,
    header::Header,
    id::{MessageId, Order, OwnerId, Seq, SessionId},
    listing::{Cursor, Described, Summary},
    message::{InboxRecord, Tombstone},
    store::{ExportError, Lease, LoadError, Log, MessageState, Reader, Refused, StoreError, Traced},
};

/// Reads a store in memory.
#[derive(Debug)]
pub(super) struct MemoryReader {
    pub(super) shared: Arc<Shared>,
}

impl MemoryReader {
    fn entry(&self, id: &SessionId) -> Result<Arc<Mutex<MemoryEntry>>, LoadError> {
        let sessions = self.shared.sessions();
        sessions.entries.get(id).cloned().ok_or_else(|| match sessions.missing(id) {
            Refused::Removed(id) => LoadError::Removed(id),
            _ => LoadError::NotFound(id.clone()),
        })
    }
}

/// A session at one moment; it shares its events with the store.
struct Now {
    header: Arc<Header>,
    log: EventLog,
    inbox: Vec<InboxRecord>,
    held_taken: Vec<Tombstone>,
    next_order: Order,
}

impl Now {
    fn fold(self, see: &mut dyn FnMut(&Event) -> ControlFlow<()>) -> Result<Option<Fold>, LoadError> {
        let mut fold = Fold::new(self.header);
        for event in self.log.iter() {
            fold.apply_event(event).map_err(|source| LoadError::Fold { session: fold.header().id.clone(), source })?;
            if see(event).is_break() {
                return Ok(None);
            }
        }
        for record in self.inbox {
            fold.apply_message(record);
        }
        for tombstone in &self.held_taken {
            fold.apply_taken(tombstone);
        }
        fold.set_next_order(self.next_order);
        Ok(Some(fold))
    }
}

impl MemoryReader {
    /// Takes a session as it is, so that nobody waits for what is done with it.
    fn now(&self, id: &SessionId) -> Result<Now, LoadError> {
        let entry = self.entry(id)?;
        let entry = lock(&entry);
        Ok(Now {
            header: entry.header.clone(),
            log: entry.log.clone(),
            inbox: entry.inbox.values().cloned().collect(),
            held_taken: entry.held_tombstones().collect(),
            next_order: entry.head.next_order,
        })
    }
}

impl Reader for MemoryReader {
    fn header(&mut self, id: &SessionId) -> Result<Option<Arc<Header>>, LoadError> {
        Ok(self.shared.entry(id).map(|entry| lock(&entry).header.clone()))
    }

    fn is_removed(&mut self, id: &SessionId) -> Result<bool, StoreError> {
        Ok(self.shared.sessions().removed.contains(id))
    }

    fn export(&mut self, id: &SessionId, line: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), ExportError> {
        let whole = lock(&*self.entry(id)?).whole();
        whole.export(line)
    }

    fn load(&mut self, id: &SessionId) -> Result<Log, LoadError> {
        let now = self.now(id)?;
        let events: Vec<Event> = now.log.iter().cloned().collect();
        // Nothing stops it.
        let fold = now.fold(&mut |_| ControlFlow::Continue(()))?.ok_or_else(|| LoadError::NotFound(id.clone()))?;
        Ok(Log { events, fold })
    }

    fn fold(&mut self, id: &SessionId, see: &mut dyn FnMut(&Event) -> ControlFlow<()>) -> Result<Option<Fold>, LoadError> {
        self.now(id)?.fold(see)
    }

    fn events(&mut self, id: &SessionId, from: Seq, limit: usize) -> Result<Vec<Event>, LoadError> {
        let entry = self.entry(id)?;
        let entry = lock(&entry);
        Ok(entry.log.from(from).take(limit).cloned().collect())
    }

    fn inbox(&mut self, id: &SessionId, limit: usize) -> Result<Vec<InboxRecord>, LoadError> {
        let entry = self.entry(id)?;
        let entry = lock(&entry);
        Ok(entry.inbox.values().take(limit).cloned().collect())
    }

    fn message(&mut self, id: &SessionId, message: &MessageId) -> Result<Option<MessageState>, LoadError> {
        let entry = self.entry(id)?;
        let entry = lock(&entry);
        Ok(entry.orders.get(message).map(|order| if entry.inbox.contains_key(order) { MessageState::Pending(*order) } else { MessageState::Taken(*order) }))
    }

    fn children(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Traced>, StoreError> {
        let mut found: Vec<(u64, SessionId)> = {
            let families = lock(&self.shared.families);
            let later = |key: &&(u64, SessionId)| after.is_none_or(|cursor| (key.0, &key.1) > (cursor.created_at, &cursor.id));
            let of = |parent: Option<&SessionId>| families.get(&parent.cloned()).into_iter().flat_map(|family| family.children.iter().filter(later).cloned());
            match parent {
                Some(parent) => of(Some(parent)).take(limit).collect(),
                // Roots, and the children of parents that are not here.
                None => families
                    .keys()
                    .filter(|parent| parent.as_ref().is_none_or(|id| self.shared.entry(id).is_none()))
                    .flat_map(|parent| of(parent.as_ref()))
                    .collect(),
            }
        };
        found.sort();
        found.truncate(limit);
        Ok(found
            .into_iter()
            .filter_map(|(created_at, id)| self.shared.entry(&id).map(|entry| Traced { id, created_at, header: Ok(lock(&entry).header.clone()) }))
            .collect())
    }

    fn rows(&mut self, children: &[Traced]) -> Result<Vec<Result<Described, LoadError>>, StoreError> {
        let row = |child: &Traced| {
            let entry = self.entry(&child.id)?;
            let (row, holder) = {
                let entry = lock(&entry);
                (Summary { head: entry.head.clone(), verdict: entry.verdict.clone() }, self.shared.holder(&entry))
            };
            let has_children = lock(&self.shared.families).get(&Some(child.id.clone())).is_some_and(|family| family.subagents > 0);
            Ok(Described { row: Some(row), has_children, holder })
        };
        Ok(children.iter().map(row).collect())
    }

    fn holder(&mut self, id: &SessionId, _: &Head) -> Result<Option<OwnerId>, StoreError> {
        Ok(self.shared.entry(id).and_then(|entry| self.shared.holder(&lock(&entry))))
    }

    fn find(&mut self, prefix: &str, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let sessions = self.shared.sessions();
        Ok(sessions
            .names
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|id| id.as_str().starts_with(prefix))
            .take(limit)
            .cloned()
            .collect())
    }

    fn alias(&mut self, parent: &SessionId, alias: &str) -> Result<Option<SessionId>, StoreError> {
        Ok(lock(&self.shared.families).get(&Some(parent.clone())).and_then(|family| family.aliases.get(alias).cloned()))
    }

    fn runnable(&mut self, root: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let mut found = Vec::new();
        for (id, entry) in self.shared.all() {
            let wanted = {
                let entry = lock(&entry);
                entry.head.wants_holder() && self.shared.holder(&entry).is_none()
            };
            if wanted && self.shared.in_tree(&id, root) {
                found.push(id);
                if found.len() == limit {
                    break;
                }
            }
        }
        Ok(found)
    }

    fn leases(&mut self, root: Option<&SessionId>) -> Result<Vec<Lease>, StoreError> {
        let all = self.shared.all();
        Ok(all
            .into_iter()
            .filter_map(|(id, entry)| lock(&entry).owner.clone().map(|owner| Lease { session: id, alive: self.shared.is_alive(&owner), owner }))
            .filter(|lease| self.shared.in_tree(&lease.session, root))
            .collect())
    }
}
