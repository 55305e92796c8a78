//! The operations of a batch: checked by the rules of their session, changed in memory, and turned into lines.

use std::{io, ops::ControlFlow, sync::Arc};

use super::{
    mend,
    place::Place,
    shelf::{Beginning, Slot},
    view::{Scan, Whole},
    writer::{Batch, Family, Writer},
};
use crate::{
    codec::{check_event, check_message, encode_header},
    event::Event,
    header::Header,
    id::SessionId,
    limits::MAX_INTEGER,
    line::{Line, write_batch_line},
    listing::{Summary, Verdict, verdict},
    message::InboxRecord,
    place::name_of,
    store::{
        Accept, Append, Claim, Close, Create, Done, LoadError, Op, Open, Refused, StoreError, born,
        entry::{Creation, Entry, First},
    },
};

/// An operation's lines.
type Lines = Vec<Line>;

impl Writer {
    /// Does one operation in memory and leaves its lines to the batch, or refuses it.
    pub(super) fn apply(&mut self, number: usize, op: &Op, batch: &mut Batch) -> Result<Done, Refused> {
        match op {
            Op::Create(op) => self.create(number, op, batch),
            Op::Accept(op) => self.accept(number, op, batch),
            Op::Open(op) => self.open(number, op, batch),
            Op::Append(op) => self.append(number, op, batch),
            Op::Claim(op) => self.claim(number, op, batch),
            Op::Close(op) => self.close_epoch(number, op, batch),
            Op::Import(op) => self.import(number, op, batch),
            Op::Release(op) => self.release(number, op, batch),
            Op::Remove(op) => self.remove(op),
        }
    }

    /// Returns a session, read from its file if it is not known.
    pub(super) fn slot(&mut self, id: &SessionId) -> Result<&mut Slot, Refused> {
        if !self.shelf.has(id) {
            let slot = self.read(id)?;
            self.shelf.put(id.clone(), slot);
        }
        self.shelf.get(id).ok_or_else(|| Refused::NotFound(id.clone()))
    }

    fn read(&self, id: &SessionId) -> Result<Slot, Refused> {
        let Some(place) = self.view.locate(id).map_err(|error| refused(id, error))? else {
            self.refuse_removed(id)?;
            return Err(Refused::NotFound(id.clone()));
        };
        if let Some(quarantine) = mend::quarantine(&self.view.dir, &place).map_err(unread)? {
            return Err(Refused::Corrupt { session: id.clone(), reason: mend::disowned(&quarantine).to_string() });
        }
        let Whole { header, scanned, size, .. } = self.whole(id, &place)?;
        let mut slot = Slot::of(header, place, scanned, size);
        if let Some(at) = self.doubt(id)
            && at < slot.length
        {
            slot.again = self.view.range(&slot.place, at, slot.length).map_err(unread)?;
            slot.length = at;
        }
        Ok(slot)
    }

    /// Reads the file of a session.
    pub(super) fn whole(&self, id: &SessionId, place: &Place) -> Result<Whole, Refused> {
        match self.view.scan(place, &mut |_| ControlFlow::Continue(())).map_err(unread)? {
            Some(Ok(Scan::Whole(whole))) => Ok(*whole),
            // Nothing stops it.
            None | Some(Ok(Scan::Stopped)) => Err(Refused::NotFound(id.clone())),
            Some(Err(error)) => Err(refused(id, error)),
        }
    }

    /// Does something to a session that is there.
    fn change(
        &mut self,
        number: usize,
        id: &SessionId,
        batch: &mut Batch,
        change: impl FnOnce(&mut Entry<Beginning>) -> Result<(Done, Lines), Refused>,
    ) -> Result<Done, Refused> {
        let slot = self.slot(id)?;
        let (done, lines) = change(&mut slot.entry)?;
        batch.add(number, id, slot, written(id, &lines), false);
        Ok(done)
    }

    fn accept(&mut self, number: usize, op: &Accept, batch: &mut Batch) -> Result<Done, Refused> {
        self.change(number, &op.session, batch, |entry| {
            let done = entry.accept(op)?;
            let lines = match done {
                Done::Accepted { order, duplicate: false } => vec![Line::Message(InboxRecord { order, held: false, message: op.message.clone() })],
                _ => Vec::new(),
            };
            Ok((done, lines))
        })
    }

    fn open(&mut self, number: usize, op: &Open, batch: &mut Batch) -> Result<Done, Refused> {
        let (owner, held) = (self.owner.clone(), self.held.clone());
        self.change(number, &op.session, batch, |entry| {
            // Before the log can say so, and for no epoch that anybody else has begun.
            if entry.head.epoch + 1 == op.epoch {
                held.announce(&op.session, op.epoch).map_err(unread)?;
            }
            let done = entry.open(op, &owner, |_| true)?;
            let claimed = match &done {
                Done::Opened { claimed: Some(claimed) } => &*claimed.events,
                _ => &[],
            };
            let lines = events(&op.events).chain(events(claimed)).collect();
            Ok((done, lines))
        })
    }

    fn append(&mut self, number: usize, op: &Append, batch: &mut Batch) -> Result<Done, Refused> {
        self.change(number, &op.fence.session, batch, |entry| Ok((entry.append(op)?, events(&op.events).collect())))
    }

    fn claim(&mut self, number: usize, op: &Claim, batch: &mut Batch) -> Result<Done, Refused> {
        self.change(number, &op.fence.session, batch, |entry| {
            let done = entry.claim(op)?;
            let lines = match &done {
                Done::Claimed(Some(claimed)) => events(&claimed.events).collect(),
                _ => Vec::new(),
            };
            Ok((done, lines))
        })
    }

    fn close_epoch(&mut self, number: usize, op: &Close, batch: &mut Batch) -> Result<Done, Refused> {
        self.change(number, &op.fence.session, batch, |entry| Ok((entry.close(op)?, events(&op.events).collect())))
    }

    fn create(&mut self, number: usize, op: &Create, batch: &mut Batch) -> Result<Done, Refused> {
        let id = &op.session.id;
        for event in &*op.events {
            check_event(event)?;
        }
        if self.is_here(id)? {
            return self.change(number, id, batch, |entry| Ok((entry.same_creation(op)?, Vec::new())));
        }
        self.refuse_removed(id)?;
        if let Some(message) = &op.message {
            check_message(message)?;
        }
        let place = Place::of(op.session.parent.as_ref(), id);
        let header = Arc::new(op.session.at(self.earliest(op, &place)?.min(MAX_INTEGER)));
        encode_header(&header)?;
        let fold = born(&header, &op.events)?;
        let verdict = verdict(&fold);
        self.join_family(&header, &place, &verdict)?;
        let mut lines = vec![Line::Header((*header).clone())];
        lines.extend(events(&op.events));
        let creation = Creation { events: op.events.len(), first: First::Message(op.message.as_ref().map(|message| message.id.clone())) };
        let mut entry = Entry::new(header.clone(), creation, Beginning::of(&op.events), fold.head().clone(), verdict);
        if let Some(message) = &op.message {
            entry.enter(message);
            lines.push(Line::Message(InboxRecord { order: 0, held: false, message: message.clone() }));
        }
        let slot = Slot::new(entry, place);
        batch.add(number, id, &slot, written(id, &lines), true);
        self.shelf.put(id.clone(), slot);
        Ok(Done::Created { header, existing: false })
    }

    /// Tells whether there is such a session.
    pub(super) fn is_here(&mut self, id: &SessionId) -> Result<bool, Refused> {
        Ok(self.shelf.has(id) || self.names(|index| index.has(&name_of(id))).map_err(unread)?)
    }

    pub(super) fn refuse_removed(&self, id: &SessionId) -> Result<(), Refused> {
        if self.view.is_removed(id).map_err(unread)? { Err(Refused::Removed(id.clone())) } else { Ok(()) }
    }

    /// Returns the time that a new session gets at the earliest: never before its parent's or its youngest sibling's.
    fn earliest(&mut self, op: &Create, place: &Place) -> Result<u64, Refused> {
        let Some(parent) = &op.session.parent else { return Ok(op.time) };
        let parent_time = match self.shelf.get(parent) {
            Some(slot) => Some(slot.entry.header.created_at),
            None => match self.view.locate(parent) {
                Ok(Some(place)) => self.view.kept(&place, false).map_err(unread)?.map(|kept| kept.created_at()),
                Ok(None) | Err(LoadError::Corrupt { .. }) => None,
                Err(error) => return Err(refused(parent, error)),
            },
        };
        let youngest = self.family(place)?.youngest;
        Ok(op.time.max(parent_time.unwrap_or(0)).max(youngest))
    }

    /// Returns what the children of one parent have taken.
    fn family(&mut self, place: &Place) -> Result<&mut Family, Refused> {
        if self.families.get(&place.folder).is_none() {
            let mut family = Family::default();
            for sibling in self.names(|index| index.folder(&place.folder)).map_err(unread)? {
                let Some(kept) = self.view.kept(&sibling, false).map_err(unread)? else { continue };
                family.youngest = family.youngest.max(kept.created_at());
                if kept.header.as_ref().map_or(true, |header| header.is_fork()) {
                    continue;
                }
                let Some(kept) = self.view.kept(&sibling, true).map_err(unread)? else { continue };
                if let Ok(Summary { verdict: Verdict::Child { alias: Some(alias), .. }, .. }) = kept.summary() {
                    family.aliases.insert(alias.clone(), kept.id.clone());
                }
            }
            self.families.put(place.folder.clone(), family);
        }
        self.families.get(&place.folder).ok_or_else(|| unread(io::Error::other("a family was forgotten")))
    }

    /// Notes a new session among its siblings, unless one of them has its alias.
    pub(super) fn join_family(&mut self, header: &Arc<Header>, place: &Place, verdict: &Verdict) -> Result<(), Refused> {
        if header.parent.is_none() {
            return Ok(());
        }
        let family = self.family(place)?;
        if let Verdict::Child { alias: Some(alias), .. } = verdict {
            if family.aliases.get(alias).is_some_and(|other| *other != header.id) {
                return Err(Refused::AliasTaken(alias.clone()));
            }
            family.aliases.insert(alias.clone(), header.id.clone());
        }
        family.youngest = family.youngest.max(header.created_at);
        Ok(())
    }
}

fn events(events: &[Event]) -> impl Iterator<Item = Line> {
    events.iter().cloned().map(Line::Event)
}

/// Writes the lines of one operation: one batch of the file.
fn written(id: &SessionId, lines: &[Line]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        bytes.extend(write_batch_line(id, line, number + 1 < lines.len()).map_err(|error| error.to_string())?);
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// Says of a session that cannot be read what that means for an operation on it: it is refused alone.
pub(super) fn refused(id: &SessionId, error: LoadError) -> Refused {
    match error {
        LoadError::NotFound(session) => Refused::NotFound(session),
        LoadError::Removed(session) => Refused::Removed(session),
        LoadError::Corrupt { session, place, source } => Refused::Corrupt { session, reason: format!("{place}: {source}") },
        LoadError::Fold { session, source } => Refused::Corrupt { session, reason: source.to_string() },
        LoadError::Store(error) => Refused::NotWritten { full: false, reason: format!("session {id} cannot be read: {error}") },
    }
}

/// Says of a failure of the disk before anything was written what that means for an operation.
#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err asks for")]
pub(super) fn unread(error: io::Error) -> Refused {
    let full = matches!(StoreError::from(io::Error::from(error.kind())), StoreError::Full(_));
    Refused::NotWritten { full, reason: error.to_string() }
}
