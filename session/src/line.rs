//! How a record stands on a line of text: its body with the checksum as the last key. Used for export, for fixtures, and for stores of JSON Lines.
//!
//! What kind of record a line is shows in its first key: `version` for the header, `seq` for an event, `order` for an inbox record, `taken` for what remains of
//! one.

use std::{borrow::Cow, sync::Arc};

use thiserror::Error;

use crate::{
    codec::{
        DecodeError, EncodeError, Encoded, decode_event, decode_header, decode_message, decode_tombstone, encode_event, encode_header, encode_message,
        encode_tombstone, event_crc, header_crc, message_crc, tombstone_crc,
    },
    event::Event,
    header::Header,
    id::{Order, Seq, SessionId},
    message::{InboxRecord, Tombstone},
};

/// One record of a session, header included.
///
/// ```
/// use greenroom_session::{event::Body, id::SessionId, line::{Line, read_line, write_line}};
/// let root = SessionId::new("root")?;
/// let line = Line::Event(Body::EndSeed {}.at(0, 1_000));
/// let text = write_line(&root, &line)?;
/// assert!(text.starts_with(br#"{"seq":0,"time":1000,"type":"session/end-seed","data":{},"crc":""#));
/// assert_eq!(read_line(&root, 0, &text)?, line);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a line is read or written and let go of; most are events, the largest")]
pub enum Line {
    /// The header.
    Header(Header),
    /// An event.
    Event(Event),
    /// A message.
    Message(InboxRecord),
    /// What remains of a message that has left the inbox.
    Taken(Tombstone),
}

/// Why a line holds no record.
///
/// ```
/// use greenroom_session::{codec::DecodeError, event::Body, id::SessionId, line::{Line, LineError, read_line, write_line}};
/// let text = write_line(&SessionId::new("a")?, &Line::Event(Body::EndSeed {}.at(0, 1_000)))?;
/// // A record is bound to its session.
/// let error = read_line(&SessionId::new("b")?, 0, &text).unwrap_err();
/// assert_eq!(error, LineError::Record(DecodeError::Checksum));
/// assert_eq!(error.code(), "SESSION_CORRUPT");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineError {
    /// It does not end with a checksum.
    #[error("the line does not end with a checksum")]
    NoChecksum,
    /// It does not begin as a record does.
    #[error("the line begins as no record does")]
    Unknown,
    /// It is not the record that it should be.
    #[error(transparent)]
    Record(#[from] DecodeError),
}

impl LineError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoChecksum | Self::Unknown => "SESSION_CORRUPT",
            Self::Record(error) => error.code(),
        }
    }
}

const TAIL: usize = r#","crc":"00000000"}"#.len();

const MORE: &[u8] = br#","more":true}"#;

/// Writes a record of session `id` as a line, without its line feed.
///
/// # Errors
/// [`EncodeError`] as the record's encoding.
pub fn write_line(id: &SessionId, line: &Line) -> Result<Vec<u8>, EncodeError> {
    write_batch_line(id, line, false)
}

/// Writes a record of session `id` as a line of a batch, without its line feed. `more` says that the batch goes on with the next line.
///
/// ```
/// use greenroom_session::{event::Body, id::SessionId, line::{Line, read_batch_line, write_batch_line}};
/// let root = SessionId::new("root")?;
/// let line = Line::Event(Body::EndSeed {}.at(0, 1_000));
/// let text = write_batch_line(&root, &line, true)?;
/// assert!(text.starts_with(br#"{"seq":0,"time":1000,"type":"session/end-seed","data":{},"more":true,"crc":""#));
/// assert_eq!(read_batch_line(&root, 0, &text)?, (line, true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`EncodeError`] as the record's encoding.
pub fn write_batch_line(id: &SessionId, line: &Line, more: bool) -> Result<Vec<u8>, EncodeError> {
    let mut text = Vec::new();
    match line {
        Line::Header(header) => seal_more(&mut text, encode_header(header)?, more, header_crc),
        Line::Event(event) => seal_more(&mut text, encode_event(id, event)?, more, |body| event_crc(id, body)),
        Line::Message(record) => seal_message_more(&mut text, id, record.order, record.held, encode_message(&record.message)?, more),
        Line::Taken(tombstone) => seal_more(&mut text, encode_tombstone(id, tombstone)?, more, |body| tombstone_crc(id, body)),
    }
    Ok(text)
}

/// Appends a record that stands on its line as it is, with its checksum. All but waiting messages do.
pub(crate) fn seal(text: &mut Vec<u8>, Encoded { body, crc }: &Encoded) {
    seal_body(text, body, *crc);
}

/// Appends a body with its checksum.
pub(crate) fn seal_body(text: &mut Vec<u8>, body: &[u8], crc: u32) {
    text.reserve(body.len() + TAIL);
    // The body is an object; its closing brace moves behind the checksum.
    text.extend_from_slice(body.split_last().map_or(&[][..], |(_, body)| body));
    text.extend_from_slice(br#","crc":""#);
    for shift in (0..8).rev() {
        let nibble = (crc >> (shift * 4)) & 15;
        text.push(char::from_digit(nibble, 16).map_or(b'0', |digit| u8::try_from(digit).unwrap_or(b'0')));
    }
    text.extend_from_slice(br#""}"#);
}

/// Appends a waiting message with its place and its checksum.
pub(crate) fn seal_message(text: &mut Vec<u8>, order: Order, held: bool, body: &[u8], crc: u32) {
    text.extend_from_slice(format!("{{\"order\":{order},{}", if held { "\"held\":true," } else { "" }).as_bytes());
    seal_body(text, body.get(1..).unwrap_or_default(), crc);
}

fn seal_more(text: &mut Vec<u8>, encoded: Encoded, more: bool, crc_of: impl Fn(&[u8]) -> u32) {
    if more {
        let body = with_more(encoded.body);
        let crc = crc_of(&body);
        seal_body(text, &body, crc);
    } else {
        seal(text, &encoded);
    }
}

/// Appends a waiting message of a batch, whatever its body says.
pub(crate) fn seal_message_more(text: &mut Vec<u8>, id: &SessionId, order: Order, held: bool, body: Vec<u8>, more: bool) {
    let body = if more { with_more(body) } else { body };
    let crc = message_crc(id, order, held, &body);
    seal_message(text, order, held, &body, crc);
}

fn with_more(mut body: Vec<u8>) -> Vec<u8> {
    body.pop();
    body.extend_from_slice(MORE);
    body
}

/// Reads a line of session `id`, given without its line feed. `next_seq` is the seq that an event must have.
///
/// # Errors
/// [`LineError`] naming what is wrong.
pub fn read_line(id: &SessionId, next_seq: Seq, line: &[u8]) -> Result<Line, LineError> {
    read_verbatim(id, next_seq, line).map(|(line, _)| line)
}

/// Reads a line as [`read_line`] does, and returns the record's bytes and checksum with it, so that a store can keep it as it came.
///
/// ```
/// use greenroom_session::{codec::encode_event, event::Body, id::SessionId, line::{Line, read_verbatim, write_line}};
/// let root = SessionId::new("root")?;
/// let event = Body::EndSeed {}.at(0, 1_000);
/// let text = write_line(&root, &Line::Event(event.clone()))?;
/// assert_eq!(read_verbatim(&root, 0, &text)?, (Line::Event(event.clone()), encode_event(&root, &event)?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`LineError`] naming what is wrong.
pub fn read_verbatim(id: &SessionId, next_seq: Seq, line: &[u8]) -> Result<(Line, Encoded), LineError> {
    let (body, crc) = split(line).ok_or(LineError::NoChecksum)?;
    read_body(id, next_seq, body, crc)
}

/// Reads a line of a batch of session `id` as [`read_line`] does, and tells whether the batch goes on with the next line.
///
/// # Errors
/// [`LineError`] naming what is wrong.
pub fn read_batch_line(id: &SessionId, next_seq: Seq, line: &[u8]) -> Result<(Line, bool), LineError> {
    read_batch_verbatim(id, next_seq, line).map(|(line, _, more)| (line, more))
}

/// Reads a line of a batch as [`read_verbatim`] does: with the record's bytes and checksum as they are outside of a batch.
///
/// # Errors
/// [`LineError`] naming what is wrong.
pub(crate) fn read_batch_verbatim(id: &SessionId, next_seq: Seq, line: &[u8]) -> Result<(Line, Encoded, bool), LineError> {
    let (mut body, mut crc) = split(line).ok_or(LineError::NoChecksum)?;
    let more = body.ends_with(MORE);
    if more {
        if checksum(id, &body)? != crc {
            return Err(DecodeError::Checksum.into());
        }
        body.truncate(body.len() - MORE.len());
        body.push(b'}');
        crc = checksum(id, &body)?;
    }
    let (line, encoded) = read_body(id, next_seq, body, crc)?;
    Ok((line, encoded, more))
}

/// Tells whether a line is a record of session `id` as it was written, wherever it stands.
pub(crate) fn is_whole(id: &SessionId, line: &[u8]) -> bool {
    split(line).is_some_and(|(body, crc)| checksum(id, &body) == Ok(crc))
}

/// Tells whether a line that is no record begins with a whole one, and goes on as another begins: with another byte in the place of the line feed between
/// them, or with none. No write that is cut off leaves that.
///
/// Nor does one leave a line with many places where a record may end, which would each cost a checksum of all that stands before: that hides records, too.
pub(crate) fn hides_a_record(id: &SessionId, line: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 4] = [HEADER, EVENT, b"{\"order\":", TAKEN];
    const MOST_ENDS: usize = 32;
    let ends_as_a_record =
        |front: &[u8]| front.ends_with(b"\"}") && front.get(front.len().saturating_sub(TAIL)..).is_some_and(|tail| tail.starts_with(b",\"crc\":\""));
    let mut ends = 0;
    (2..line.len()).any(|at| {
        let rest = line.get(at..).unwrap_or_default();
        if rest.first() != Some(&b'{') || !BEGINNINGS.iter().any(|beginning| rest.starts_with(beginning)) {
            return false;
        }
        let fronts = [at - 1, at].map(|end| line.get(..end).unwrap_or_default());
        let Some(front) = fronts.into_iter().find(|front| ends_as_a_record(front)) else { return false };
        ends += 1;
        ends > MOST_ENDS || is_whole(id, front)
    })
}

/// Tells whether a line says that its batch goes on. Its checksum is not looked at.
pub(crate) fn says_more(line: &[u8]) -> bool {
    line.len().checked_sub(TAIL + MORE.len() - 1).and_then(|at| line.get(at..)).is_some_and(|tail| tail.starts_with(br#","more":true,"#))
}

/// Returns a line of a batch as it stands where there are no batches. Its checksum has been looked at before.
pub(crate) fn without_more<'a>(id: &SessionId, line: &'a [u8]) -> Result<Cow<'a, [u8]>, LineError> {
    if !says_more(line) {
        return Ok(Cow::Borrowed(line));
    }
    let (mut body, _) = split(line).ok_or(LineError::NoChecksum)?;
    body.truncate(body.len() - MORE.len());
    body.push(b'}');
    let crc = checksum(id, &body)?;
    let mut text = Vec::with_capacity(line.len());
    seal_body(&mut text, &body, crc);
    Ok(Cow::Owned(text))
}

/// Tells whether a line is one of an event.
pub(crate) fn is_event(line: &[u8]) -> bool {
    line.starts_with(EVENT)
}

/// Returns the order and the body of a waiting message, as it was accepted; `None` for another line. Its checksum has been looked at before.
pub(crate) fn waiting_body(line: &[u8]) -> Option<(Order, Vec<u8>)> {
    let (mut body, _) = split(line).filter(|(body, _)| body.starts_with(b"{\"order\":"))?;
    if body.ends_with(MORE) {
        body.truncate(body.len() - MORE.len());
        body.push(b'}');
    }
    split_place(&body).map(|(order, _, body)| (order, body))
}

const HEADER: &[u8] = b"{\"version\":";
const EVENT: &[u8] = b"{\"seq\":";
const TAKEN: &[u8] = b"{\"taken\":";

fn read_body(id: &SessionId, next_seq: Seq, body: Vec<u8>, crc: u32) -> Result<(Line, Encoded), LineError> {
    let line = if body.starts_with(HEADER) {
        Line::Header(decode_header(id, &body, crc)?)
    } else if body.starts_with(EVENT) {
        Line::Event(decode_event(id, next_seq, &body, crc)?)
    } else if body.starts_with(TAKEN) {
        Line::Taken(decode_tombstone(id, &body, crc)?)
    } else {
        let (order, held, body) = split_place(&body).ok_or(LineError::Unknown)?;
        let message = decode_message(id, order, held, &body, crc)?;
        return Ok((Line::Message(InboxRecord { order, held, message: Arc::new(message) }), Encoded { body, crc }));
    };
    Ok((line, Encoded { body, crc }))
}

/// Computes the checksum of a body by the kind of record that it is.
fn checksum(id: &SessionId, body: &[u8]) -> Result<u32, LineError> {
    if body.starts_with(HEADER) {
        return Ok(header_crc(body));
    }
    if body.starts_with(EVENT) {
        return Ok(event_crc(id, body));
    }
    if body.starts_with(TAKEN) {
        return Ok(tombstone_crc(id, body));
    }
    let (order, held, body) = split_place(body).ok_or(LineError::Unknown)?;
    Ok(message_crc(id, order, held, &body))
}

/// Takes the checksum off.
fn split(line: &[u8]) -> Option<(Vec<u8>, u32)> {
    let (front, tail) = line.split_at_checked(line.len().checked_sub(TAIL)?)?;
    let hex = tail.strip_prefix(b",\"crc\":\"")?.strip_suffix(b"\"}")?;
    if !hex.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let crc = u32::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?;
    let mut body = front.to_vec();
    body.push(b'}');
    Some((body, crc))
}

/// Takes the place of an inbox record off its body.
fn split_place(body: &[u8]) -> Option<(Order, bool, Vec<u8>)> {
    let rest = body.strip_prefix(b"{\"order\":")?;
    let end = rest.iter().position(|&byte| byte == b',')?;
    let (digits, rest) = rest.split_at(end);
    let digits = std::str::from_utf8(digits).ok()?;
    let order: Order = digits.parse().ok().filter(|order: &Order| order.to_string() == digits)?;
    let rest = rest.get(1..)?;
    let (held, rest) = match rest.strip_prefix(b"\"held\":true,") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let mut message = Vec::with_capacity(rest.len() + 1);
    message.push(b'{');
    message.extend_from_slice(rest);
    Some((order, held, message))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_with_more_ends_than_any_write_leaves_hides_records_without_a_look_at_each() {
        let id = SessionId::new("r").unwrap();
        let ends = |many: usize| [&b"{\"seq\":7"[..], &b",\"crc\":\"00000000\"}x{\"seq\":".repeat(many)].concat();
        assert!(!hides_a_record(&id, &ends(32)));
        // Each would cost a checksum of all that stands before it.
        assert!(hides_a_record(&id, &ends(33)) && hides_a_record(&id, &ends(400_000)));
    }

    use super::*;
    use crate::{
        event::Body,
        header::NewSession,
        message::{Message, Source},
    };

    fn lines(id: &SessionId) -> Vec<Line> {
        let message = Arc::new(Message::turn("m0", "grüße \u{1f600} \"quoted\"\n", Source::User, 7).unwrap());
        vec![
            Line::Header(NewSession::root(id.clone()).at(5)),
            Line::Event(Body::EndSeed {}.at(0, 6)),
            Line::Message(InboxRecord { order: 0, held: false, message: message.clone() }),
            Line::Message(InboxRecord { order: 12, held: true, message: message.clone() }),
            Line::Taken(Tombstone::of(&InboxRecord { order: 7, held: false, message: message.clone() })),
            Line::Taken(Tombstone { held: true, ..Tombstone::of(&InboxRecord { order: 0, held: true, message }) }),
        ]
    }

    #[test]
    fn a_record_survives_its_line() {
        let id = SessionId::new("s/1").unwrap();
        for line in lines(&id) {
            let written = write_line(&id, &line).unwrap();
            assert_eq!(read_line(&id, 0, &written), Ok(line));
        }
    }

    #[test]
    fn no_flipped_bit_and_no_cut_goes_unnoticed() {
        let id = SessionId::new("s").unwrap();
        for line in lines(&id) {
            let written = write_line(&id, &line).unwrap();
            for at in 0..written.len() {
                assert!(read_line(&id, 0, &written[..at]).is_err(), "cut at {at}");
                for bit in 0..8 {
                    let mut flipped = written.clone();
                    flipped[at] ^= 1 << bit;
                    assert!(read_line(&id, 0, &flipped).is_err(), "bit {bit} of byte {at}");
                }
            }
        }
    }

    #[test]
    fn a_line_of_a_batch_says_whether_more_follows_and_no_change_of_that_goes_unnoticed() {
        let id = SessionId::new("s").unwrap();
        for line in lines(&id) {
            assert_eq!(write_batch_line(&id, &line, false).unwrap(), write_line(&id, &line).unwrap());
            for more in [false, true] {
                let written = write_batch_line(&id, &line, more).unwrap();
                assert_eq!(read_batch_line(&id, 0, &written), Ok((line.clone(), more)));
                assert_eq!((is_whole(&id, &written), says_more(&written)), (true, more));
                for at in 0..written.len() {
                    let mut flipped = written.clone();
                    flipped[at] ^= 1;
                    assert!(read_batch_line(&id, 0, &flipped).is_err() && !is_whole(&id, &flipped), "byte {at}");
                }
            }
            let written = write_batch_line(&id, &line, true).unwrap();
            assert!(read_line(&id, 0, &written).is_err(), "an export knows no batches");
            let without = String::from_utf8(written).unwrap().replace(r#","more":true"#, "");
            assert!(read_batch_line(&id, 0, without.as_bytes()).is_err());
        }
    }

    #[test]
    fn a_record_in_another_place_is_noticed() {
        let (here, there) = (SessionId::new("here").unwrap(), SessionId::new("there").unwrap());
        for line in lines(&here) {
            let written = write_line(&here, &line).unwrap();
            assert!(matches!(read_line(&there, 0, &written), Err(LineError::Record(_))));
        }
        let event = write_line(&here, &Line::Event(Body::EndSeed {}.at(3, 0))).unwrap();
        assert!(matches!(read_line(&here, 2, &event), Err(LineError::Record(DecodeError::Misplaced(_)))));
    }
}
