//! Whole sessions: how one comes in, is let go, is written out, and goes.
//!
//! An import is one file, each of whose records is a batch of its own, so that it stands there as an export would. A removal leaves a tombstone `ID.removed`
//! beside the file before the file goes; who finds both takes the session for removed, and the next writer finishes it.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind},
    path::Path,
};

use super::{
    birth::new_name,
    index::REMOVED,
    job::is_named,
    place::{DAMAGED, Place, QUARANTINE, TORN},
    scan::tombstone,
    shelf::{Beginning, Slot},
    text::{Front, Lines},
    view::Whole,
    write::{refused, unread},
    writer::{Batch, Writer},
};
use crate::{
    codec::{EncodeError, encode_tombstone, message_crc},
    id::{MessageId, Order, SessionId},
    line::{Line, LineError, is_event, seal, seal_message, seal_message_more, waiting_body, without_more, write_batch_line},
    message::Tombstone,
    place::{EXTENSION, folder_of, name_of},
    store::{Done, ExportError, Import, InboxLine, Refused, Release, Remove, StoreError, entry::Entry},
};

/// Where the lines go.
type Sink<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

/// Reads the lines of a file's whole batches once more, hands them on with their numbers, and returns the bodies of the messages that wait, as they were
/// accepted.
fn each_line<E: From<StoreError>>(whole: &Whole, mut see: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<BTreeMap<Order, Vec<u8>>, E> {
    let mut waiting = BTreeMap::new();
    let front = Front::of(&whole.file, whole.scanned.length);
    let mut lines = Lines::of(&front, whole.scanned.length);
    while let Some(line) = lines.read().map_err(StoreError::from)? {
        see(line.number, line.text)?;
        waiting.extend(waiting_body(line.text).filter(|(order, _)| whole.scanned.inbox.contains_key(order)));
    }
    Ok(waiting)
}

/// Writes the canonical lines, as if nothing were held if `released`.
pub(super) fn export(whole: &Whole, released: bool, line: &mut Sink<'_>) -> Result<(), ExportError> {
    let id = &whole.header.id;
    // All of it has been read before.
    let odd = |error: LineError| ExportError::Sink(io::Error::other(error));
    let encoding = |error: EncodeError| ExportError::Sink(io::Error::other(error));
    let mut bodies = each_line::<ExportError>(whole, |number, text| {
        if number == 1 || is_event(text) {
            line(&without_more(id, text).map_err(odd)?).map_err(ExportError::Sink)?;
        }
        Ok(())
    })?;
    let ids: BTreeMap<Order, &MessageId> = whole.scanned.orders.iter().map(|(id, order)| (*order, id)).collect();
    let mut text = Vec::new();
    for (order, message) in ids {
        text.clear();
        if let (Some(record), Some(body)) = (whole.scanned.inbox.get(&order), bodies.remove(&order)) {
            let held = record.held && !released;
            seal_message(&mut text, order, held, &body, message_crc(id, order, held, &body));
        } else if let Some(remains) = tombstone(message, order, &whole.scanned.taken, !released && whole.scanned.held_taken.contains(&order)) {
            seal(&mut text, &encode_tombstone(id, &remains).map_err(encoding)?);
        }
        line(&text).map_err(ExportError::Sink)?;
    }
    Ok(())
}

/// Writes the lines that an import brings, with an inbox as given.
fn imported(op: &Import, inbox: &[InboxLine]) -> Result<Vec<Vec<u8>>, EncodeError> {
    let (id, bytes) = (&op.header().id, op.bytes());
    let mut lines = Vec::with_capacity(1 + bytes.events.len() + inbox.len());
    for encoded in std::iter::once(&bytes.header).chain(&bytes.events) {
        let mut text = Vec::new();
        seal(&mut text, encoded);
        lines.push(text);
    }
    for (line, body) in inbox.iter().zip(&bytes.messages) {
        let mut text = Vec::new();
        match line {
            InboxLine::Waiting(record) => seal_message(&mut text, record.order, record.held, body, message_crc(id, record.order, record.held, body)),
            InboxLine::Taken(tombstone) => seal(&mut text, &encode_tombstone(id, tombstone)?),
        }
        lines.push(text);
    }
    Ok(lines)
}

impl Writer {
    pub(super) fn import(&mut self, number: usize, op: &Import, batch: &mut Batch) -> Result<Done, Refused> {
        let checked = op.check()?;
        let header = op.header();
        let id = &header.id;
        let quarantined = self.is_here(id)? && self.is_quarantined(id).map_err(unread)?;
        if self.is_here(id)? && !quarantined {
            return if self.is_import(op)? { self.existing(number, id, batch) } else { Err(Refused::Exists(id.clone())) };
        }
        self.refuse_removed(id)?;
        let place = Place::of(header.parent.as_ref(), id);
        if quarantined && *self.view.places(&place.stem).map_err(unread)? != [place.clone()] {
            return Err(Refused::Exists(id.clone()));
        }
        self.join_family(header, &place, &checked.verdict)?;
        let mut bytes = imported(op, &checked.inbox)?.join(&b'\n');
        bytes.push(b'\n');
        if quarantined {
            self.replace(id, &place, &bytes).map_err(unread)?;
            return Ok(Done::Imported { existing: false });
        }
        let beginning = Beginning::of(op.events().get(..checked.seed).unwrap_or_default());
        let slot = Slot::new(Entry::imported(header.clone(), checked, beginning), place);
        batch.add(number, id, &slot, Ok(bytes), true);
        self.shelf.put(id.clone(), slot);
        Ok(Done::Imported { existing: false })
    }

    /// Answers that a session is there, once it is safe.
    fn existing(&mut self, number: usize, id: &SessionId, batch: &mut Batch) -> Result<Done, Refused> {
        let slot = self.slot(id)?;
        batch.add(number, id, slot, Ok(Vec::new()), false);
        Ok(Done::Imported { existing: true })
    }

    /// Reads a session whose file is finished.
    fn finished(&self, id: &SessionId) -> Result<Whole, Refused> {
        let place = self.view.locate(id).map_err(|error| refused(id, error))?.ok_or_else(|| Refused::NotFound(id.clone()))?;
        self.whole(id, &place)
    }

    /// Tells whether a session is, `held` aside, what an import would bring.
    fn is_import(&self, op: &Import) -> Result<bool, Refused> {
        let whole = self.finished(&op.header().id)?;
        if whole.header != *op.header() {
            return Ok(false);
        }
        let inbox: Vec<InboxLine> = op.inbox().iter().map(|line| line.with_held(false)).collect();
        let theirs = imported(op, &inbox)?;
        let mut ours = Vec::with_capacity(theirs.len());
        let collected = export(&whole, true, &mut |line| {
            ours.push(line.to_vec());
            Ok(())
        });
        collected.map_err(|error| Refused::Corrupt { session: op.header().id.clone(), reason: error.to_string() })?;
        // The header was compared as what it says.
        Ok(ours.get(1..) == theirs.get(1..))
    }

    pub(super) fn release(&mut self, number: usize, op: &Release, batch: &mut Batch) -> Result<Done, Refused> {
        let id = &op.session;
        if self.slot(id)?.entry.head.held == 0 {
            batch.add(number, id, self.slot(id)?, Ok(Vec::new()), false);
            return Ok(Done::Released { records: 0 });
        }
        let mut bodies = each_line(&self.finished(id)?, |_, _| Ok(())).map_err(|error: StoreError| refused(id, error.into()))?;
        let slot = self.slot(id)?;
        let waiting: Vec<Order> = slot.entry.inbox.values().filter(|record| record.held).map(|record| record.order).collect();
        let taken: Vec<Tombstone> = slot.entry.held_tombstones().map(|tombstone| Tombstone { held: false, ..tombstone }).collect();
        let mut left = waiting.len() + taken.len();
        let mut bytes = Vec::new();
        for order in waiting {
            let Some(body) = bodies.remove(&order) else { return Err(Refused::NotPending(order)) };
            left -= 1;
            seal_message_more(&mut bytes, id, order, false, body, left > 0);
            bytes.push(b'\n');
        }
        for tombstone in taken {
            left -= 1;
            bytes.extend(write_batch_line(id, &Line::Taken(tombstone), left > 0)?);
            bytes.push(b'\n');
        }
        let done = slot.entry.release();
        batch.add(number, id, slot, Ok(bytes), false);
        Ok(done)
    }

    /// Removes a session at once; nothing of the batch may still be to be written.
    pub(super) fn remove(&mut self, op: &Remove) -> Result<Done, Refused> {
        let id = &op.session;
        let place = match self.view.locate(id) {
            Ok(Some(place)) => place,
            Ok(None) => return self.remove_again(id),
            Err(error) => return Err(refused(id, error)),
        };
        let outstanding = match self.slot(id) {
            Ok(slot) if slot.entry.owner.is_some() => return Err(Refused::Held(self.owner.clone())),
            Ok(slot) => Some(slot.entry.head.outstanding()),
            // What it would still have to do cannot be told.
            Err(Refused::Corrupt { .. }) => None,
            Err(other) => return Err(other),
        };
        let folder = folder_of(Some(id));
        if self.names(|index| index.folder(&folder)).map_err(unread)?.iter().any(|child| *child != place) {
            return Err(Refused::HasChildren(id.clone()));
        }
        if outstanding != Some(0) && !op.discard {
            return Err(Refused::Pending(outstanding.unwrap_or(0)));
        }
        self.bury(&place, id)?;
        self.shelf.drop(id);
        self.families.remove(&place.folder);
        self.held.end(id);
        self.view.removed(&place, id.clone());
        self.clear_away(&place);
        Ok(Done::Removed)
    }

    /// Answers that a session was removed, once that is safe.
    fn remove_again(&mut self, id: &SessionId) -> Result<Done, Refused> {
        let stem = name_of(id);
        let Some(place) = self.names(|index| index.removed(&stem)).map_err(unread)? else { return Err(Refused::NotFound(id.clone())) };
        if !self.folders.safe.contains(&place.folder) {
            if let Err(error) = self.disk.sync_folder(&self.view.dir.join(&*place.folder)) {
                self.lose(io::Error::new(error.kind(), error.to_string()));
                return Err(unread(error));
            }
            self.folders.safe.insert(place.folder.clone());
        }
        self.clear_away(&place);
        Ok(Done::Removed)
    }

    /// Puts a tombstone beside a session's file.
    fn bury(&mut self, place: &Place, id: &SessionId) -> Result<(), Refused> {
        let (disk, folder) = (self.disk.clone(), self.view.dir.join(&*place.folder));
        let (temporary, tombstone) = (new_name(&self.view.dir), folder.join(format!("{}{REMOVED}", place.stem)));
        let mut text = serde_json::to_vec(&serde_json::json!({ "removed": id })).map_err(|error| unread(io::Error::other(error)))?;
        text.push(b'\n');
        let written = disk.create(&temporary).and_then(|file| disk.write(&file, 0, &text).and_then(|()| disk.sync(&file)).map(|()| file));
        let safe = match written {
            Err(error) => Err((error, false)),
            Ok(file) => disk.link(&temporary, &tombstone).and_then(|()| disk.sync_folder(&folder)).map_err(|error| {
                // Whatever failed may have happened.
                let taken_back = match is_named(&file, &tombstone) {
                    Ok(true) => disk.unlink(&tombstone).and_then(|()| disk.sync_folder(&folder)),
                    other => other.map(drop),
                };
                (error, taken_back.is_err())
            }),
        };
        if let Err(error) = disk.unlink(&temporary) {
            tracing::debug!(%error, "a second name of a file stays; the next opening removes it");
        }
        safe.map_err(|(error, unknown)| {
            if unknown {
                // What is there is looked at anew, and is not safe before the folder is.
                self.shelf.drop(id);
                self.folders.safe.remove(&place.folder);
                self.view.taken_back(place, id);
                if let Err(error) = self.view.relist(&place.folder) {
                    tracing::error!(%error, "a folder could not be listed");
                }
                self.lose(io::Error::new(error.kind(), error.to_string()));
            }
            unread(error)
        })
    }

    /// Takes the files of a removed session away. What stays is taken away by the next opening.
    pub(super) fn clear_away(&self, place: &Place) {
        let cleared = self.disk.unlink(&place.path(&self.view.dir)).and_then(|()| clear_copies(&self.view.dir, place));
        match cleared {
            Err(error) if error.kind() != ErrorKind::NotFound => tracing::warn!(%error, "the file of a removed session could not be taken away"),
            _ => {}
        }
    }
}

/// Takes the copies away of what was cut off a session's file.
fn clear_copies(dir: &Path, place: &Place) -> io::Result<()> {
    let beginnings = [TORN, DAMAGED, QUARANTINE].map(|mark| format!("{}{EXTENSION}{mark}", place.stem));
    for entry in fs::read_dir(dir.join(&*place.folder))? {
        let entry = entry?;
        let name = entry.file_name();
        if beginnings.iter().any(|beginning| name.as_encoded_bytes().starts_with(beginning.as_bytes()))
            && !name.as_encoded_bytes().ends_with(EXTENSION.as_bytes())
        {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
