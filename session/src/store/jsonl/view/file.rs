//! Reading one file: as it was at one moment, and once more if it was wrong and is being written to.

use std::{
    fs::File,
    io::{self, ErrorKind},
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
};

use super::{Kept, View, lock};
use crate::{
    codec::DecodeError,
    event::Event,
    header::Header,
    id::{Seq, SessionId},
    limits::MAX_EVENT_BYTES,
    listing::Summary,
    store::{
        LoadError,
        jsonl::{
            batches::whole_batches,
            disk::{is_of_one_file, open_regular, unreadable},
            mend,
            place::Place,
            scan::{self, Flaw, Scanned, Unread},
            stamp::Stamp,
            text::{Front, Text, first_line},
        },
    },
};

/// Most bytes that the line of a header takes: an id and its parent's, a path, and what stands around them.
pub(in crate::store::jsonl) const MAX_HEADER: u64 = MAX_EVENT_BYTES as u64;
/// Where a header stands.
pub(super) const HEADER: &str = "line 1 (byte 0)";
/// How often a file that changes while it is read is read again.
pub(in crate::store::jsonl) const TRIES: usize = 8;

/// A whole file.
#[derive(Debug)]
pub(in crate::store::jsonl) struct Whole {
    pub(in crate::store::jsonl) header: Arc<Header>,
    pub(in crate::store::jsonl) scanned: Scanned,
    /// The file: its whole batches stay as they were read.
    pub(in crate::store::jsonl) file: File,
    /// How long the file is.
    pub(in crate::store::jsonl) size: u64,
}

/// What folding a file has come to.
#[derive(Debug)]
pub(in crate::store::jsonl) enum Scan {
    /// Whoever took the events wanted no more.
    Stopped,
    /// Its end.
    Whole(Box<Whole>),
}

/// A file that was opened, as it was at that moment.
struct Opened {
    file: File,
    stamp: Stamp,
    /// How far it is committed, if it is being written to.
    committed: Option<u64>,
    undone: u64,
}

impl Opened {
    fn text(&self) -> Front<'_> {
        Front::of(&self.file, self.committed.unwrap_or(u64::MAX).min(self.stamp.size()))
    }
}

/// Reads a log, given its header and where its last whole batch ends.
pub(super) type ReadLog<'a, T> = dyn FnMut(&Arc<Header>, &Front<'_>, u64) -> Result<T, Unread> + 'a;

/// What reading a file has shown.
pub(super) struct Reading<T> {
    file: File,
    pub(super) stamp: Stamp,
    /// Whether it has stayed as it was.
    pub(super) still: bool,
    /// The id by which it is listed.
    pub(super) id: SessionId,
    pub(super) header: Result<Arc<Header>, DecodeError>,
    /// None where only the header was read.
    pub(super) said: Option<Result<T, Flaw>>,
}

/// Says of a file that cannot be read whose it is, as far as its name tells, and why.
pub(super) fn unread(place: &Place, error: &io::Error) -> (SessionId, DecodeError) {
    let (id, _) = scan::header(place, &[]);
    (id, DecodeError::Malformed(unreadable(error)))
}

/// Lets a failure of one file be a session's.
fn settle<T>(place: &Place, read: io::Result<Option<Reading<T>>>) -> io::Result<Option<Result<Reading<T>, LoadError>>> {
    match read {
        Ok(read) => Ok(read.map(Ok)),
        Err(error) if is_of_one_file(&error) => {
            let (session, source) = unread(place, &error);
            Ok(Some(Err(LoadError::Corrupt { session, place: "file".into(), source })))
        }
        Err(error) => Err(error),
    }
}

fn changing() -> io::Error {
    io::Error::other("the file changes faster than it can be read")
}

impl View {
    /// Opens a file as it is at this moment; `None` if it is not there.
    fn open(&self, place: &Place) -> io::Result<Option<Opened>> {
        #[cfg(test)]
        self.reads.fetch_add(1, Ordering::SeqCst);
        let undone = self.undone.load(Ordering::SeqCst);
        let file = match open_regular(&place.path(&self.dir)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let stamp = Stamp::of(&file.metadata()?);
        // Asked after the length: what is not being written by now has been.
        let committed = self.committed(place);
        Ok(Some(Opened { file, stamp, committed, undone }))
    }

    /// Returns how far a file is committed that is being written to.
    fn committed(&self, place: &Place) -> Option<u64> {
        lock(&self.writing).get(place).copied()
    }

    /// Tells what a file is now and whether it has stayed as it was; `None` if something was taken back meanwhile.
    fn look_again(&self, place: &Place, opened: &Opened) -> io::Result<Option<(Stamp, bool)>> {
        let stamp = Stamp::of(&opened.file.metadata()?);
        let still = stamp == opened.stamp && opened.committed.is_none() && self.committed(place).is_none();
        Ok((self.undone.load(Ordering::SeqCst) == opened.undone).then_some((stamp, still)))
    }

    /// Lets somebody look at a file as far as it is committed, and tells whether it has stayed as it was; `None` if it is not there.
    pub(in crate::store::jsonl) fn examine<T>(&self, place: &Place, mut look: impl FnMut(&Front<'_>) -> io::Result<T>) -> io::Result<Option<(T, bool)>> {
        for _ in 0..TRIES {
            let Some(opened) = self.open(place)? else { return Ok(None) };
            let seen = match look(&opened.text()) {
                // It was cut while it was looked at.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => continue,
                seen => seen?,
            };
            if let Some((_, still)) = self.look_again(place, &opened)? {
                return Ok(Some((seen, still)));
            }
        }
        Err(changing())
    }

    /// Reads some bytes of a file.
    pub(in crate::store::jsonl) fn range(&self, place: &Place, from: u64, to: u64) -> io::Result<Vec<u8>> {
        Front::of(&open_regular(&place.path(&self.dir))?, to).range(from, to)
    }

    /// Reads a file: its header, and what `log` reads of the rest, given where its last whole batch ends. Reads it again if it is wrong and was written to.
    pub(super) fn read<T>(&self, place: &Place, mut log: Option<&mut ReadLog<'_, T>>) -> io::Result<Option<Reading<T>>> {
        for last in (0..TRIES).rev() {
            let Some(opened) = self.open(place)? else { return Ok(None) };
            let text = opened.text();
            #[cfg(test)]
            self.logs.fetch_add(u64::from(log.is_some()), Ordering::SeqCst);
            let (id, header) = scan::header(place, &first_line(&text, MAX_HEADER)?);
            let said = match (&header, &mut log) {
                (Ok(header), Some(log)) => Some(self.whole_batches(place, &header.id, &text).and_then(|end| log(header, &text, end))),
                _ => None,
            };
            let Some((stamp, still)) = self.look_again(place, &opened)? else { continue };
            let wrong = header.is_err() || matches!(said, Some(Err(_)));
            if wrong && !still && last > 0 {
                continue;
            }
            let said = match said {
                None => None,
                Some(Ok(said)) => Some(Ok(said)),
                Some(Err(Unread::Flaw(flaw))) => Some(Err(flaw)),
                Some(Err(Unread::Io(error))) => return Err(error),
            };
            return Ok(Some(Reading { file: opened.file, stamp, still, id, header, said }));
        }
        Err(changing())
    }

    /// Returns where the last whole batch ends that is committed.
    fn whole_batches(&self, place: &Place, id: &SessionId, text: &Front<'_>) -> Result<u64, Unread> {
        let end = whole_batches(id, text)?;
        match self.committed(place) {
            // What a cut-off write had left has just been written over.
            Some(committed) if committed < end => whole_batches(id, &text.until(committed)),
            _ => Ok(end),
        }
    }

    /// Folds a whole session and hands each event on.
    pub(in crate::store::jsonl) fn scan(&self, place: &Place, see: &mut scan::See<'_>) -> io::Result<Option<Result<Scan, LoadError>>> {
        if let Some(quarantine) = mend::quarantine(&self.dir, place)? {
            let (session, _) = scan::header(place, &[]);
            return Ok(Some(Err(LoadError::Corrupt { session, place: "log".into(), source: mend::disowned(&quarantine) })));
        }
        // What is committed does not change, so that a second reading goes on where the first was cut off.
        let mut next = 0;
        let mut hand = |event: Event| {
            if event.seq < next {
                return ControlFlow::Continue(());
            }
            next = event.seq + 1;
            see(event)
        };
        let read = self.read(place, Some(&mut |header, text, end| scan::scan(header, text, end, &mut hand)));
        let Some(reading) = settle(place, read)? else { return Ok(None) };
        Ok(Some(reading.and_then(|mut reading| {
            let said = reading.said.take();
            let kept = match &said {
                Some(Ok(Some(scanned))) => Some(Ok(Summary::of(&scanned.fold))),
                Some(Err(flaw)) => Some(Err(flaw.clone())),
                Some(Ok(None)) | None => None,
            };
            let header = reading.header.clone();
            let (id, size) = (reading.id.clone(), reading.stamp.size());
            if kept.is_some() {
                self.remember(place, reading.still, Kept { stamp: Some(reading.stamp), id: id.clone(), header: reading.header, said: kept });
            }
            match (header, said) {
                (Err(source), _) => Err(LoadError::Corrupt { session: id, place: HEADER.into(), source }),
                (Ok(_), Some(Err(flaw))) => Err(flaw.load_error(&id)),
                (Ok(header), Some(Ok(Some(scanned)))) => Ok(Scan::Whole(Box::new(Whole { header, scanned, file: reading.file, size }))),
                (Ok(_), Some(Ok(None)) | None) => Ok(Scan::Stopped),
            }
        })))
    }

    /// Reads events of a session, and folds none of them.
    pub(in crate::store::jsonl) fn events(&self, place: &Place, from: Seq, limit: usize) -> io::Result<Option<Result<Vec<Event>, LoadError>>> {
        let read = self.read(place, Some(&mut |header, text, end| scan::events(header, text, end, from, limit)));
        let Some(reading) = settle(place, read)? else { return Ok(None) };
        Ok(Some(reading.and_then(|reading| match (reading.header, reading.said) {
            (Err(source), _) => Err(LoadError::Corrupt { session: reading.id, place: HEADER.into(), source }),
            (Ok(_), Some(Err(flaw))) => Err(flaw.load_error(&reading.id)),
            (Ok(_), Some(Ok(events))) => Ok(events),
            (Ok(_), None) => Ok(Vec::new()),
        })))
    }
}
