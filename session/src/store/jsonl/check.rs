//! The check of one file, line by line, and of what lies in the folder besides.
//!
//! Every fault is told with its line and the offset of the line's first byte. What a write leaves that was cut off is no fault; a file that is written
//! while it is read is read again.

use std::{
    collections::HashMap,
    fs::{self, FileType, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::{
    batches::{has_hole, is_damaged, whole_batches},
    birth::{LOCK, MARKER, NEW},
    disk::{is_irregular, is_of_one_file, open_regular, unreadable},
    held::HELD,
    index::{Index, REMOVED},
    place::{DAMAGED, Place as FilePlace, QUARANTINE, TORN},
    scan::{self, Unread, decode_error},
    text::{Front, Lines, NumberedLine, Text, first_line},
    view::{MAX_HEADER, TRIES, View},
};
use crate::{
    check::{Checked, Class, Finding, Kept, Place, SessionCheck, Spot},
    codec::DecodeError,
    id::SessionId,
    line::{Line, hides_a_record, read_batch_line},
    place::{EXTENSION, ROOTS, id_of},
};

/// Checks the files of a session; `None` if it has none.
pub(super) fn check(view: &View, id: &SessionId) -> io::Result<Option<(Vec<Checked>, Vec<Finding>)>> {
    let stem = crate::place::name_of(id);
    // Where all sessions are was told before they are checked one by one, and folders are many.
    let mut places = view.places(&stem)?;
    places.sort_by(|a, b| a.folder.cmp(&b.folder));
    let mut findings = Vec::new();
    let mut all = Vec::new();
    for place in &places {
        if let Some((checked, found)) = file(view, place)? {
            if !all.is_empty() {
                let mut finding = Finding::of(id, Place::Header, Class::DuplicateSession, "the session has another file in another folder");
                finding.spot = Some(Spot { path: relative(place), line: 1, offset: 0 });
                findings.push(finding);
            }
            all.push(checked);
            findings.extend(found);
        }
    }
    Ok((!all.is_empty()).then_some((all, findings)))
}

fn relative(place: &FilePlace) -> PathBuf {
    place.path(Path::new(""))
}

/// Checks one file; `None` if it is not there any more.
pub(super) fn file(view: &View, place: &FilePlace) -> io::Result<Option<(Checked, Vec<Finding>)>> {
    let mut before = Vec::new();
    for left in (0..TRIES).rev() {
        let ((checked, findings), still) = match view.examine(place, |text| verify(place, text)) {
            Ok(Some(examined)) => examined,
            Ok(None) => return Ok(None),
            Err(error) if is_of_one_file(&error) => return Ok(Some(unread(place, &error))),
            Err(error) => return Err(error),
        };
        // Only what is wrong may have been read while it was written.
        if left == 0 || findings.is_empty() || (still && findings == before) {
            return Ok(Some((checked, findings)));
        }
        before = findings;
    }
    Ok(None)
}

/// Says of a file that it cannot be read.
fn unread(place: &FilePlace, error: &io::Error) -> (Checked, Vec<Finding>) {
    let (id, _) = scan::header(place, &[]);
    let mut finding = Finding::of(&id, Place::Header, Class::UnreadableFile, unreadable(error));
    finding.spot = Some(Spot { path: relative(place), line: 1, offset: 0 });
    (Checked { events: 0, messages: 0, next_seq: 0, next_order: 0, derived: None }, vec![finding])
}

/// What a line begins like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Header,
    Event(u64),
    Message(u64),
    Other,
}

fn kind_of(line: &[u8]) -> Kind {
    let number = |rest: &[u8]| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        rest.get(..digits).and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
    };
    if let Some(rest) = line.strip_prefix(b"{\"seq\":") {
        Kind::Event(number(rest))
    } else if let Some(rest) = line.strip_prefix(b"{\"order\":").or_else(|| line.strip_prefix(b"{\"taken\":")) {
        Kind::Message(number(rest))
    } else if line.starts_with(b"{\"version\":") {
        Kind::Header
    } else {
        Kind::Other
    }
}

/// Returns the seq that a line says, so that it is judged by itself.
fn seq_of(line: &[u8]) -> u64 {
    match kind_of(line) {
        Kind::Event(seq) => seq,
        Kind::Header | Kind::Message(_) | Kind::Other => 0,
    }
}

/// Verifies the lines of a file one by one.
fn verify(place: &FilePlace, text: &Front<'_>) -> io::Result<(Checked, Vec<Finding>)> {
    let first = first_line(text, MAX_HEADER)?;
    let (mut id, mut header) = scan::header(place, &first);
    // What does not begin with a line that may be a header is no session, however long it is.
    let text = &if first.ends_with(b"\n") { text.until(text.length()) } else { text.until(first.len() as u64) };
    let first = first.strip_suffix(b"\n").unwrap_or(&first);
    let mut misnamed = None;
    if matches!(header, Err(DecodeError::Misplaced(_)))
        && let Some(said) = scan::said_id(first).filter(|said| crate::place::name_of(said) != *place.stem)
        && let Ok((Line::Header(found), _)) = read_batch_line(&said, 0, first)
    {
        // Its lines are bound to the id in its header.
        misnamed = Some(format!("it is the file of session {said}"));
        (id, header) = (said, Ok(found.into()));
    }
    if let Err(error @ (DecodeError::Malformed(_) | DecodeError::Checksum)) = &header {
        header = Err(reason(&id, first, error.clone()));
    }
    let mut session = SessionCheck::new(&id, header);
    // Where faults are, as they are told; the others are looked up by their records.
    let mut spots: Vec<(Place, u64, u64)> = Vec::new();
    if let Some(what) = misnamed {
        session.find(Place::Header, Class::MisnamedFile, what);
    }
    let batches = match whole_batches(&id, text) {
        Ok(end) => Some(end),
        Err(Unread::Flaw(_)) => None,
        Err(Unread::Io(error)) => return Err(error),
    };
    // A file gets its name when its first batch is whole, so where none is, its lines say why.
    let end = batches.filter(|end| *end > 0).unwrap_or(text.length());
    let mut next_order = 0;
    let mut count = 0;
    let mut lines = Lines::of(text, end);
    while let Some(NumberedLine { number, at: offset, text: line }) = lines.read()? {
        count = number;
        if number == 1 {
            continue;
        }
        let kind = kind_of(line);
        match read_batch_line(&id, seq_of(line), line) {
            Ok((Line::Event(event), _)) => session.event(event.seq, Ok(event)),
            Ok((Line::Message(record), _)) => {
                next_order = record.order + 1;
                let message = std::sync::Arc::unwrap_or_clone(record.message);
                session.message(record.order, Ok(Kept::Logged { message, held: record.held }));
            }
            Ok((Line::Taken(tombstone), _)) => {
                next_order = tombstone.order + 1;
                session.message(tombstone.order, Ok(Kept::Taken(tombstone)));
            }
            Ok((Line::Header(_), _)) => {
                spots.push((Place::Line(number), number, offset));
                session.find(Place::Line(number), Class::MisplacedRecord, "a second header");
            }
            Err(error) => {
                let spliced = hides_a_record(&id, line);
                let error = reason(&id, line, decode_error(error));
                let place = match kind {
                    // What was lost of the second record is not known.
                    _ if spliced => Place::Line(number),
                    Kind::Event(_) => Place::Event(session.next_seq()),
                    Kind::Message(_) => Place::Message(next_order),
                    Kind::Header | Kind::Other => Place::Line(number),
                };
                spots.push((place.clone(), number, offset));
                match place {
                    Place::Event(seq) => session.event(seq, Err(error)),
                    Place::Message(order) => {
                        session.message(order, Err(error));
                        next_order += 1;
                    }
                    place => {
                        // It may have been any record.
                        session.lose_record();
                        session.find(place, if error == DecodeError::Checksum { Class::Checksum } else { Class::MalformedRecord }, error.to_string());
                    }
                }
                if has_hole(line) {
                    // Line feeds may have gone with it.
                    session.lose_record();
                }
            }
        }
    }
    if batches == Some(0) && spots.is_empty() {
        session.lose_record();
        session.find(Place::Log, Class::Truncated, "its first batch is cut off, which no write leaves");
    }
    tail(&id, &text.range(end, text.length())?, (count + 1, end), &mut session, &mut spots);
    let (checked, mut findings) = session.end();
    place_all(place, Lines::of(text, end), &spots, &mut findings)?;
    Ok((checked, findings))
}

/// Judges what stands after the last whole batch, in the line that begins there.
fn tail(id: &SessionId, rest: &[u8], (line, at): (u64, u64), session: &mut SessionCheck, spots: &mut Vec<(Place, u64, u64)>) {
    if rest.is_empty() {
        return;
    }
    let place = Place::Line(line);
    spots.push((place.clone(), line, at));
    if is_damaged(id, rest) {
        session.find(place, Class::Checksum, format!("the last record does not fit its checksum, and {} bytes are passed over", rest.len()));
    } else {
        session.find(place, Class::TornTail, format!("{} bytes after the last whole batch", rest.len()));
    }
    session.lose_record();
}

/// Says more exactly what is wrong with a line, where its bytes show it.
fn reason(id: &SessionId, line: &[u8], error: DecodeError) -> DecodeError {
    let malformed = |what: String| DecodeError::Malformed(what);
    if has_hole(line) {
        return malformed("NUL bytes stand in the line".into());
    }
    if line.starts_with(b"\xef\xbb\xbf") {
        return malformed("a byte order mark stands before it".into());
    }
    if line.ends_with(b"\r") {
        return malformed("it ends with CR LF".into());
    }
    if hides_a_record(id, line) {
        return malformed("two records stand on one line".into());
    }
    error
}

/// Gives each finding of a file the place of its bytes, and sorts them by it.
fn place_all(place: &FilePlace, mut lines: Lines<'_, Front<'_>>, spots: &[(Place, u64, u64)], findings: &mut [Finding]) -> io::Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    let mut known: Vec<(Place, u64, u64)> = Vec::new();
    while let Some(NumberedLine { number, at, text }) = lines.read()? {
        let place = match kind_of(text) {
            Kind::Event(seq) => Place::Event(seq),
            Kind::Message(order) => Place::Message(order),
            Kind::Header | Kind::Other => Place::Line(number),
        };
        known.push((place, number, at));
    }
    // Stable, so that of two records in one place the second one comes last.
    known.sort_by(|a, b| a.0.cmp(&b.0));
    let mut told_at = HashMap::with_capacity(spots.len());
    for (place, line, offset) in spots {
        told_at.entry(place).or_insert((*line, *offset));
    }
    for finding in findings.iter_mut() {
        let told = told_at.get(&finding.place).copied();
        let spot = match (&finding.place, told) {
            (Place::Header, _) => Some((1, 0)),
            (_, Some(told)) => Some(told),
            // Where something is missing, the next one shows it.
            (Place::Event(_) | Place::Message(_), None) => {
                let after = known.partition_point(|(place, ..)| *place <= finding.place);
                let at = if after > 0 && known.get(after - 1).is_some_and(|(place, ..)| *place == finding.place) { after - 1 } else { after };
                known
                    .get(at)
                    .filter(|(place, ..)| matches!((place, &finding.place), (Place::Event(_), Place::Event(_)) | (Place::Message(_), Place::Message(_))))
                    .map(|(_, line, offset)| (*line, *offset))
            }
            _ => None,
        };
        finding.spot = spot.map(|(line, offset)| Spot { path: relative(place), line, offset });
    }
    let line = |finding: &Finding| finding.spot.as_ref().map_or(u64::MAX, |spot| spot.line);
    findings.sort_by(|a, b| (line(a), &a.place).cmp(&(line(b), &b.place)));
    Ok(())
}

/// Checks what lies in the folder and is no session that can be asked for by its id.
pub(super) fn check_store(view: &View, see: &mut dyn FnMut(Finding)) -> io::Result<()> {
    let mut places = view.names(Index::all)?;
    places.retain(|place| place.id().is_none());
    places.sort_by(|a, b| (&a.folder, &a.stem).cmp(&(&b.folder, &b.stem)));
    for place in &places {
        let Some((_, findings)) = file(view, place)? else { continue };
        // A long id whose header can be read is one of the sessions.
        if view.kept(place, false)?.is_some_and(|kept| kept.header.is_err()) {
            findings.into_iter().for_each(&mut *see);
        }
    }
    let writing = is_locked(&view.dir.join(LOCK))?;
    for (name, kind) in names(&view.dir)? {
        let mut tell = |class, what: &'static str| see(Finding::of_store(Place::Part(name.clone()), class, what));
        let is_ours = name == MARKER || name == LOCK || name.starts_with(NEW) || name.starts_with(HELD);
        if is_ours && !kind.is_file() {
            tell(Class::ForeignObject, "it has the name of a file of the store's and is none");
        } else if name == MARKER || name == LOCK {
        } else if name.starts_with(NEW) {
            // A writer makes such files and gives them their names.
            if !writing {
                tell(Class::Leftover, "a writer that was killed has left it unfinished");
            }
        } else if name.starts_with(HELD) {
            if !is_locked(&view.dir.join(&name))? {
                tell(Class::Leftover, "a writer that was killed has left it; nothing is held by it");
            }
        } else if !kind.is_dir() || name.starts_with('_') && name != ROOTS {
            tell(Class::ForeignObject, "it is not the store's");
        } else {
            inside(view, &name, see)?;
        }
    }
    Ok(())
}

/// Looks at the names in the folder of a family.
fn inside(view: &View, folder: &str, see: &mut dyn FnMut(Finding)) -> io::Result<()> {
    // A name that is cut has two marks in a row, and no id can be read back from it.
    let mut tell = |name: &str, class, what: &'static str| see(Finding::of_store(Place::Part(name.to_owned()), class, what));
    if folder != ROOTS && id_of(folder).is_none() && !folder.contains("~~") {
        tell(folder, Class::MisnamedFile, "no session's children get a folder of this name");
    }
    let found = names(&view.dir.join(folder))?;
    for (name, kind) in &found {
        let path = format!("{folder}/{name}");
        if !kind.is_file() {
            tell(&path, Class::ForeignObject, "it is no regular file, and nothing is read from it");
        } else if let Some(stem) = name.strip_suffix(REMOVED) {
            if found.binary_search_by(|(other, _)| other.as_str().cmp(&format!("{stem}{EXTENSION}"))).is_ok() {
                tell(&path, Class::Leftover, "the session was removed, and its file is still there");
            }
        } else if is_copy(name, DAMAGED) {
            tell(&path, Class::DamagedTail, "a last record that did not fit its checksum, set aside by a later write");
        } else if is_copy(name, TORN) {
            tell(&path, Class::Leftover, "what a write that was cut off had left, set aside");
        } else if let Some(file) = name.strip_suffix(QUARANTINE).filter(|file| file.ends_with(EXTENSION)) {
            if found.binary_search_by(|(other, _)| other.as_str().cmp(file)).is_err() {
                tell(&path, Class::Leftover, "it says that a session is quarantined that is not there");
            }
        } else if !name.ends_with(EXTENSION) || name.starts_with('_') {
            tell(&path, Class::ForeignObject, "it is not the store's");
        }
    }
    Ok(())
}

/// Tells whether a name is that of a copy of some session's end. An id may have such a mark in it.
fn is_copy(name: &str, mark: &str) -> bool {
    !name.ends_with(EXTENSION) && name.contains(&format!("{EXTENSION}{mark}"))
}

/// Returns the names in a folder in order, and what has each.
fn names(folder: &Path) -> io::Result<Vec<(String, FileType)>> {
    let mut names = Vec::new();
    for entry in match fs::read_dir(folder) {
        Ok(entries) => entries,
        // It went while it was looked for.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
        Err(error) => return Err(error),
    } {
        let entry = entry?;
        names.push((entry.file_name().to_string_lossy().into_owned(), entry.file_type()?));
    }
    names.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(names)
}

/// Tells whether somebody holds the lock of a file.
fn is_locked(path: &Path) -> io::Result<bool> {
    match open_regular(path).map(|file| file.try_lock_shared()) {
        Ok(Err(TryLockError::WouldBlock)) => Ok(true),
        Ok(Ok(())) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound || is_irregular(&error) => Ok(false),
        // What cannot be asked may be in use.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(true),
        Ok(Err(TryLockError::Error(error))) | Err(error) => Err(error),
    }
}
