//! A session's file: an export, or a file of a JSON Lines store.
//!
//! In an export every record stands where the format says. In a store's file a message stands where it was accepted, for ever, and an event that comes later takes
//! it; a line of the inbox that comes again without `held` has been released; and what a write has left that was cut off is passed over, as the store does.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;
use thiserror::Error;

use super::lines::Lines;
use crate::{
    codec::Encoded,
    departed::leaving,
    event::Event,
    header::Header,
    id::{MessageId, SessionId},
    line::{Line, LineError, hides_a_record, is_whole, read_batch_verbatim},
    message::Tombstone,
    place::path_of,
    store::{Import, InboxLine, Misfit, RecordPlace, Verbatim},
};

/// Why a file is not imported.
///
/// ```
/// use std::{fs, path::Path};
/// use greenroom_session::{store::memory::MemoryStore, transfer::{FileError, FileFlaw, ImportTrouble, import_folder}};
/// let folder = tempfile::tempdir()?;
/// fs::create_dir(folder.path().join("_root"))?;
/// fs::write(folder.path().join("_root/a.jsonl"), "a diary\n")?;
/// let report = import_folder(&MemoryStore::new(), folder.path(), false, &mut |_| ())?;
/// let ImportTrouble::File(error @ FileError { place: Some((1, 0)), flaw: FileFlaw::NoHeader, .. }) = &report.troubles[0] else { panic!("{report:?}") };
/// assert_eq!(error.code(), "SESSION_CORRUPT");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error)]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1, and the byte of the file that it begins with, if it is a line that is wrong.
    pub place: Option<(u64, u64)>,
    /// What is wrong.
    #[source]
    pub flaw: FileFlaw,
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, flaw) = (self.path.display(), &self.flaw);
        match self.place {
            Some((line, byte)) => write!(f, "{path}:{line} (byte {byte}): {flaw}"),
            None => write!(f, "{path}: {flaw}"),
        }
    }
}

impl FileError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        self.flaw.code()
    }
}

/// What is wrong with a file or a line.
///
/// ```
/// use greenroom_session::transfer::FileFlaw;
/// assert_eq!(FileFlaw::Cut.code(), "SESSION_CORRUPT");
/// assert_eq!(FileFlaw::NoFile.code(), "FILE_FOREIGN");
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileFlaw {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[source] io::Error),
    /// It is a link, a folder, a pipe or a device.
    #[error("it is no regular file, and links are not followed")]
    NoFile,
    /// The session that it holds has another place.
    #[error("it holds session {session}, whose place is {}", place.display())]
    Misplaced {
        /// The session.
        session: SessionId,
        /// Where its file would lie.
        place: PathBuf,
    },
    /// It does not begin with a header.
    #[error("it does not begin with a session's header")]
    NoHeader,
    /// The line is longer than any record.
    #[error("the line is longer than any record")]
    TooLong,
    /// The file ends within a line or a batch.
    #[error("the file is cut off here")]
    Cut,
    /// The line is damaged.
    #[error("{0}")]
    Line(#[source] LineError),
    /// The record stands where it cannot.
    #[error("{0}")]
    Order(&'static str),
    /// The records do not follow from one another.
    #[error("{0}")]
    Misfit(#[source] Misfit),
}

impl FileFlaw {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Read(_) => "FILE_UNREADABLE",
            Self::NoFile => "FILE_FOREIGN",
            Self::Misplaced { .. } => "FILE_MISPLACED",
            Self::NoHeader | Self::TooLong | Self::Cut | Self::Order(_) => "SESSION_CORRUPT",
            Self::Line(error) => error.code(),
            Self::Misfit(error) => error.code(),
        }
    }
}

/// Reads the header of a file and checks that the file lies where its session belongs. Tells whether its batch goes on.
pub(super) fn read_header(lines: &mut Lines, text: &mut Vec<u8>, relative: &Path) -> Result<(Header, Encoded, bool), FileError> {
    #[derive(Deserialize)]
    struct Said {
        id: SessionId,
    }
    let ended = lines.next(text)?;
    let said: Said = match serde_json::from_slice(text) {
        Ok(said) if ended.is_some() => said,
        _ => return Err(lines.flaw(FileFlaw::NoHeader)),
    };
    let (header, encoded, more) = match read_batch_verbatim(&said.id, 0, text) {
        Ok((Line::Header(header), encoded, more)) => (header, encoded, more),
        Ok(_) => return Err(lines.flaw(FileFlaw::NoHeader)),
        Err(error) => return Err(lines.flaw(FileFlaw::Line(error))),
    };
    if ended == Some(false) {
        return Err(lines.flaw(FileFlaw::Cut));
    }
    let place = path_of(header.parent.as_ref(), &header.id);
    if place != relative {
        return Err(lines.whole(FileFlaw::Misplaced { session: header.id, place }));
    }
    Ok((header, encoded, more))
}

/// Reads a whole file, telling `watch` how many bytes it has read now and then.
pub(super) fn read(path: &Path, relative: &Path, of_store: bool, watch: &mut dyn FnMut(u64)) -> Result<Import, FileError> {
    const WATCH_EVERY: u64 = 1 << 20;
    let mut lines = Lines::open(path)?;
    let mut text = Vec::new();
    let (header, encoded, mut goes_on) = read_header(&mut lines, &mut text, relative)?;
    let mut session = Session::new(header, encoded);
    // What is read of a batch that has not come to its end.
    let mut batch = Vec::new();
    let mut batch_events = 0;
    let mut told = 0;
    while let Some(ended) = lines.next(&mut text)? {
        let next_seq = session.events.len() as u64 + batch_events;
        match read_batch_verbatim(&session.header.id, next_seq, &text) {
            Ok((line, encoded, more)) if ended => {
                batch_events += u64::from(matches!(line, Line::Event(_)));
                batch.push((line, encoded, lines.place()));
                goes_on = more;
            }
            // What a write has left that was cut off was never acknowledged. A whole line of which nothing can be made is none of it.
            Ok(_) | Err(_)
                if of_store && (!ended || (lines.is_at_end()? && !is_whole(&session.header.id, &text))) && !hides_a_record(&session.header.id, &text) =>
            {
                break;
            }
            Ok(_) => return Err(lines.flaw(FileFlaw::Cut)),
            Err(_) if !ended => return Err(lines.flaw(FileFlaw::Cut)),
            Err(error) => return Err(lines.flaw(FileFlaw::Line(error))),
        }
        if !goes_on {
            batch_events = 0;
            for (line, encoded, place) in batch.drain(..) {
                session.take(line, encoded, place).map_err(|reason| lines.flaw_at(place, FileFlaw::Order(reason)))?;
            }
        }
        if lines.bytes() - told >= WATCH_EVERY {
            told = lines.bytes();
            watch(told);
        }
    }
    // The first batch makes the session; a file has its name only with all of it.
    if goes_on && (!of_store || session.events.is_empty()) {
        return Err(lines.flaw(FileFlaw::Cut));
    }
    watch(lines.bytes());
    session.finish(&lines)
}

/// A session as far as its file was read.
struct Session {
    header: Arc<Header>,
    events: Vec<Event>,
    inbox: Vec<InboxLine>,
    bytes: Verbatim,
    /// Where each message that waits stands.
    waiting: HashMap<MessageId, usize>,
    event_places: Vec<(u64, u64)>,
    message_places: Vec<(u64, u64)>,
}

impl Session {
    fn new(header: Header, encoded: Encoded) -> Self {
        Self {
            header: Arc::new(header),
            events: Vec::new(),
            inbox: Vec::new(),
            bytes: Verbatim { header: encoded, events: Vec::new(), messages: Vec::new() },
            waiting: HashMap::new(),
            event_places: Vec::new(),
            message_places: Vec::new(),
        }
    }

    fn take(&mut self, line: Line, encoded: Encoded, place: (u64, u64)) -> Result<(), &'static str> {
        match line {
            Line::Header(_) => return Err("a second header"),
            Line::Event(event) => {
                self.depart(&event);
                self.events.push(event);
                self.bytes.events.push(encoded);
                self.event_places.push(place);
            }
            Line::Message(record) => self.enter(InboxLine::Waiting(record), encoded.body, place)?,
            Line::Taken(tombstone) => self.enter(InboxLine::Taken(tombstone), Vec::new(), place)?,
        }
        Ok(())
    }

    /// Takes the messages that an event names out of those that have been accepted before it.
    fn depart(&mut self, event: &Event) {
        let (ids, kind) = leaving(event, self.header.seed_length);
        for id in ids {
            let Some(&at) = self.waiting.get(id) else { continue };
            let Some(InboxLine::Waiting(record)) = self.inbox.get(at) else { continue };
            if kind.is_some_and(|kind| kind != record.message.kind) {
                continue;
            }
            let remains = InboxLine::Taken(Tombstone::of(record));
            self.waiting.remove(id);
            if let (Some(line), Some(body)) = (self.inbox.get_mut(at), self.bytes.messages.get_mut(at)) {
                *line = remains;
                *body = Vec::new();
            }
        }
    }

    fn enter(&mut self, line: InboxLine, body: Vec<u8>, place: (u64, u64)) -> Result<(), &'static str> {
        let at = usize::try_from(line.order()).unwrap_or(usize::MAX);
        if at > self.inbox.len() {
            return Err("messages before it are missing");
        }
        if let (Some(known), Some(known_body)) = (self.inbox.get_mut(at), self.bytes.messages.get(at)) {
            return if *known == line.with_held(true) && *known_body == body {
                *known = line;
                Ok(())
            } else {
                Err("a message of this order was there before")
            };
        }
        if let InboxLine::Waiting(record) = &line {
            self.waiting.insert(record.message.id.clone(), at);
        }
        self.inbox.push(line);
        self.bytes.messages.push(body);
        self.message_places.push(place);
        Ok(())
    }

    fn finish(self, lines: &Lines) -> Result<Import, FileError> {
        let Self { header, events, inbox, bytes, event_places, message_places, .. } = self;
        let import = Import::verbatim(header, events.into(), inbox.into(), bytes);
        match import.verify() {
            Ok(()) => Ok(import),
            Err(misfit) => {
                let at = |places: &[(u64, u64)], n: u64| usize::try_from(n).ok().and_then(|n| places.get(n).copied());
                let place = match misfit.place {
                    Some(RecordPlace::Event(seq)) => at(&event_places, seq),
                    Some(RecordPlace::Message(order)) => at(&message_places, order),
                    None => None,
                };
                let flaw = FileFlaw::Misfit(misfit);
                Err(match place {
                    Some(place) => lines.flaw_at(place, flaw),
                    None => lines.whole(flaw),
                })
            }
        }
    }
}
