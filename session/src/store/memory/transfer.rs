//! Whole sessions: how one comes in, is let go, is written out, and goes.

use std::{
    borrow::Cow,
    io,
    sync::{Arc, PoisonError},
};

use super::{EventLog, MemoryEntry, MemoryStore, lock};
use crate::{
    codec::{EncodeError, Encoded, encode_event, encode_header, encode_message, encode_tombstone, message_crc},
    event::Event,
    header::Header,
    line::{seal, seal_message},
    listing::Verdict,
    message::InboxRecord,
    store::{
        Done, ExportError, Import, InboxLine, Refused, Remove,
        entry::{Entry, Trail},
    },
};

impl MemoryStore {
    pub(super) fn import(&self, op: &Import) -> Result<Done, Refused> {
        let checked = op.check()?;
        let header = op.header();
        let mut families = lock(&self.shared.families);
        self.shared.refuse_removed(&header.id)?;
        if let Some(existing) = self.shared.entry(&header.id) {
            return if lock(&existing).is_import(op)? { Ok(Done::Imported { existing: true }) } else { Err(Refused::Exists(header.id.clone())) };
        }
        let family = families.entry(header.parent.clone()).or_default();
        if let Verdict::Child { alias: Some(alias), .. } = &checked.verdict {
            if family.aliases.contains_key(alias) {
                return Err(Refused::AliasTaken(alias.clone()));
            }
            family.aliases.insert(alias.clone(), header.id.clone());
        }
        family.subagents += u64::from(header.is_subagent());
        family.children.insert((header.created_at, header.id.clone()));
        let mut log = EventLog { read_from: Some(op.bytes().clone()), ..EventLog::default() };
        log.push(op.events());
        self.shared.insert(Entry::imported(op.header().clone(), checked, log));
        Ok(Done::Imported { existing: false })
    }

    pub(super) fn remove(&self, op: &Remove) -> Result<Done, Refused> {
        let id = &op.session;
        let mut families = lock(&self.shared.families);
        let mut sessions = self.shared.sessions.write().unwrap_or_else(PoisonError::into_inner);
        if sessions.removed.contains(id) {
            return Ok(Done::Removed);
        }
        let entry = sessions.entries.get(id).ok_or_else(|| Refused::NotFound(id.clone()))?.clone();
        let entry = lock(&entry);
        if let Some(holder) = self.shared.holder(&entry) {
            return Err(Refused::Held(holder));
        }
        // A session that is its own parent has no other children for it.
        if families.get(&Some(id.clone())).is_some_and(|family| family.children.iter().any(|(_, child)| child != id)) {
            return Err(Refused::HasChildren(id.clone()));
        }
        let outstanding = entry.head.outstanding();
        if outstanding > 0 && !op.discard {
            return Err(Refused::Pending(outstanding));
        }
        if let Some(family) = families.get_mut(&entry.header.parent) {
            family.children.remove(&(entry.header.created_at, id.clone()));
            family.aliases.retain(|_, child| child != id);
            family.subagents -= u64::from(entry.header.is_subagent());
        }
        sessions.entries.remove(id);
        sessions.names.remove(id);
        sessions.removed.insert(id.clone());
        Ok(Done::Removed)
    }
}

impl MemoryEntry {
    /// Tells whether an import would bring what is here, `held` aside.
    fn is_import(&self, op: &Import) -> Result<bool, Refused> {
        let whole = self.whole();
        let same_size = (self.head.next_seq, self.head.next_order) == (op.events().len() as u64, op.inbox().len() as u64);
        if !same_size || self.header != *op.header() {
            return Ok(false);
        }
        for (event, theirs) in whole.log.iter().zip(&op.bytes().events) {
            if *whole.event(event)? != *theirs {
                return Ok(false);
            }
        }
        for ((ours, theirs), body) in whole.lines.iter().zip(op.inbox()).zip(&op.bytes().messages) {
            let same = match (ours, theirs) {
                (InboxLine::Waiting(ours), InboxLine::Waiting(theirs)) => ours.order == theirs.order && *whole.message(ours)? == *body,
                (InboxLine::Taken(_), InboxLine::Taken(_)) => ours.with_held(false) == theirs.with_held(false),
                (InboxLine::Waiting(_), InboxLine::Taken(_)) | (InboxLine::Taken(_), InboxLine::Waiting(_)) => false,
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the session as it is at this moment.
    pub(super) fn whole(&self) -> Whole {
        let mut lines: Vec<InboxLine> = self
            .orders
            .iter()
            .filter_map(|(id, order)| match self.inbox.get(order) {
                Some(record) => Some(InboxLine::Waiting(record.clone())),
                None => self.tombstone(id, *order).map(InboxLine::Taken),
            })
            .collect();
        lines.sort_by_key(InboxLine::order);
        Whole { header: self.header.clone(), log: self.log.clone(), lines }
    }
}

/// A session at one moment; it shares what the store keeps of it.
pub(super) struct Whole {
    header: Arc<Header>,
    log: EventLog,
    lines: Vec<InboxLine>,
}

impl Whole {
    /// Returns an event's bytes: those that it was read from, where it was imported.
    fn event(&self, event: &Event) -> Result<Cow<'_, Encoded>, EncodeError> {
        match self.log.read_from.as_ref().and_then(|bytes| bytes.events.get(usize::try_from(event.seq).ok()?)) {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => encode_event(&self.header.id, event).map(Cow::Owned),
        }
    }

    /// Returns the bytes of a waiting message.
    fn message(&self, record: &InboxRecord) -> Result<Cow<'_, [u8]>, EncodeError> {
        match self.log.read_from.as_ref().and_then(|bytes| bytes.messages.get(usize::try_from(record.order).ok()?)) {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => encode_message(&record.message).map(Cow::Owned),
        }
    }

    /// Writes the canonical lines.
    pub(super) fn export(&self, line: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), ExportError> {
        let id = &self.header.id;
        // What is here has been encoded before, or checked as if it had been.
        let encoding = |error: EncodeError| ExportError::Sink(io::Error::other(error));
        let mut text = Vec::new();
        let mut put = |text: &mut Vec<u8>| {
            let put = line(text).map_err(ExportError::Sink);
            text.clear();
            put
        };
        match &self.log.read_from {
            Some(bytes) => seal(&mut text, &bytes.header),
            None => seal(&mut text, &encode_header(&self.header).map_err(encoding)?),
        }
        put(&mut text)?;
        for event in self.log.iter() {
            seal(&mut text, &*self.event(event).map_err(encoding)?);
            put(&mut text)?;
        }
        for entry in &self.lines {
            match entry {
                InboxLine::Waiting(record) => {
                    let (order, held, body) = (record.order, record.held, self.message(record).map_err(encoding)?);
                    seal_message(&mut text, order, held, &body, message_crc(id, order, held, &body));
                }
                InboxLine::Taken(tombstone) => seal(&mut text, &encode_tombstone(id, tombstone).map_err(encoding)?),
            }
            put(&mut text)?;
        }
        Ok(())
    }
}
