//! How a record becomes bytes with a checksum, and back. The one place that knows the encoding.
//!
//! The *body* of a record is its JSON text without the checksum; stores keep the checksum beside it (SQLite) or as the
//! line's last key (JSON Lines). See `docs/log-format.md` section 1.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::{
    event::{Body, Event, SurfaceOp, TurnEnd},
    header::{HEADER_VERSION, Header},
    id::{MessageId, Order, Seq, SessionId},
    json::{Flaw, Ordered, look},
    limits::{MAX_EVENT_BYTES, MAX_INTEGER, MAX_JSON_DEPTH, MAX_MESSAGE_JSON_BYTES},
    message::{Block, Message, MessageError, MessageKind, Source, Tombstone},
};

/// Bytes of a record and their checksum.
///
/// ```
/// use greenroom_session::{codec::{Encoded, decode_header, encode_header}, header::NewSession, id::SessionId};
/// let header = NewSession::root(SessionId::new("root")?).at(1_000);
/// let Encoded { body, crc } = encode_header(&header)?;
/// assert_eq!(body, br#"{"version":1,"id":"root","created_at":1000,"depth":0}"#);
/// assert_eq!(decode_header(&header.id, &body, crc)?, header);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The JSON text.
    pub body: Vec<u8>,
    /// crc32c over the record's prefix and body.
    pub crc: u32,
}

/// Why a record cannot be written.
///
/// ```
/// use greenroom_session::{codec::encode_event, event::Body, id::SessionId};
/// use serde_json::json;
/// let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
/// let error = encode_event(&SessionId::new("root")?, &Body::Descriptor(deep).at(0, 1_000)).unwrap_err();
/// assert_eq!(error.code(), "EVENT_TOO_DEEP");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The record nests deeper than [`MAX_JSON_DEPTH`].
    #[error("a record nests at most {MAX_JSON_DEPTH} levels deep")]
    TooDeep,
    /// The record is larger than [`MAX_EVENT_BYTES`].
    #[error("a record has at most {MAX_EVENT_BYTES} bytes, this one has {0}")]
    TooLarge(usize),
    /// The data is not JSON.
    #[error("the data is not JSON")]
    Json(#[source] serde_json::Error),
    /// A field has a value that no reader takes.
    #[error("{0}")]
    Field(&'static str),
    /// A value would come back as another one.
    #[error("the data holds {0}, which would not come back as it is")]
    Lossy(String),
    /// The message is larger than one may be.
    #[error(transparent)]
    Message(#[from] MessageError),
}

impl EncodeError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooDeep => "EVENT_TOO_DEEP",
            Self::TooLarge(_) => "EVENT_TOO_LARGE",
            Self::Json(_) | Self::Field(_) | Self::Lossy(_) => "EVENT_INVALID",
            Self::Message(error) => error.code(),
        }
    }
}

/// Why stored bytes are not the record that they should be.
///
/// ```
/// use greenroom_session::{codec::{DecodeError, decode_header, encode_header}, header::NewSession, id::SessionId};
/// let header = NewSession::root(SessionId::new("root")?).at(1_000);
/// let mut encoded = encode_header(&header)?;
/// encoded.body[15] ^= 1; // one bit flips on its way to the disk and back
/// let error = decode_header(&header.id, &encoded.body, encoded.crc).unwrap_err();
/// assert_eq!(error, DecodeError::Checksum);
/// assert_eq!(error.code(), "SESSION_CORRUPT");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The checksum does not match.
    #[error("checksum mismatch")]
    Checksum,
    /// The text is not the JSON of such a record.
    #[error("malformed record: {0}")]
    Malformed(String),
    /// The header is of a version that this program does not read.
    #[error("this program does not read format version {0}")]
    Version(u64),
    /// The record says that it belongs somewhere else.
    #[error("misplaced record: {0}")]
    Misplaced(String),
    /// A repair has quarantined the session.
    #[error("quarantined: {0}")]
    Quarantined(String),
}

impl DecodeError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Version(_) => "SESSION_VERSION",
            Self::Checksum | Self::Malformed(_) | Self::Misplaced(_) | Self::Quarantined(_) => "SESSION_CORRUPT",
        }
    }
}

impl From<Flaw> for EncodeError {
    fn from(flaw: Flaw) -> Self {
        match flaw {
            Flaw::TooDeep => Self::TooDeep,
            Flaw::Lossy(loss) => Self::Lossy(loss.to_string()),
        }
    }
}

impl From<Flaw> for DecodeError {
    fn from(flaw: Flaw) -> Self {
        Self::Malformed(match flaw {
            Flaw::TooDeep => format!("nests deeper than {MAX_JSON_DEPTH} levels"),
            Flaw::Lossy(loss) => loss.to_string(),
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err asks for")]
fn malformed(error: serde_json::Error) -> DecodeError {
    DecodeError::Malformed(error.to_string())
}

/// Encodes a header.
///
/// # Errors
/// [`EncodeError::Field`] if [`decode_header`] would refuse it.
pub fn encode_header(header: &Header) -> Result<Encoded, EncodeError> {
    check_header(header).map_err(EncodeError::Field)?;
    let body = serde_json::to_vec(header).map_err(EncodeError::Json)?;
    let crc = header_crc(&body);
    Ok(Encoded { body, crc })
}

/// Decodes a header and checks that it is the one of session `id`.
///
/// # Errors
/// [`DecodeError::Version`] before anything else is looked at, then the other reasons.
pub fn decode_header(id: &SessionId, body: &[u8], crc: u32) -> Result<Header, DecodeError> {
    #[derive(Deserialize)]
    struct Probe {
        version: u64,
    }
    if header_crc(body) != crc {
        return Err(DecodeError::Checksum);
    }
    let header: Header = match serde_json::from_slice(body) {
        Ok(header) => header,
        // What does not fit may be of a version with another shape.
        Err(error) => match serde_json::from_slice::<Probe>(body) {
            Ok(probe) if probe.version != HEADER_VERSION => return Err(DecodeError::Version(probe.version)),
            _ => return Err(malformed(error)),
        },
    };
    if header.version != HEADER_VERSION {
        return Err(DecodeError::Version(header.version));
    }
    if header.id != *id {
        return Err(DecodeError::Misplaced(format!("the header is of session {:?}", header.id)));
    }
    look(body, MAX_JSON_DEPTH, 1)?;
    check_header(&header).map_err(|reason| DecodeError::Malformed(reason.into()))?;
    Ok(header)
}

/// What a header must hold on its way to the disk and back.
fn check_header(header: &Header) -> Result<(), &'static str> {
    if header.version != HEADER_VERSION {
        return Err("`version` is not the one of this format");
    }
    if header.created_at > MAX_INTEGER || header.seed_length > MAX_INTEGER {
        return Err("an integer is out of range");
    }
    if header.cwd.as_ref().is_some_and(|cwd| !cwd.starts_with('/')) {
        return Err("`cwd` must be absolute");
    }
    Ok(())
}

/// What the envelope of an event must hold on its way to the disk and back.
fn check_time(time: u64) -> Result<(), &'static str> {
    if time > MAX_INTEGER { Err("`time` is out of range") } else { Ok(()) }
}

/// Returns the checksum of a header's body.
pub fn header_crc(body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(b"h\0"), body)
}

/// Reads a value that may be absent and, where it stands, is none but its own: no key of a record is `null`.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(reader: D) -> Result<Option<T>, D::Error> {
    T::deserialize(reader).map(Some)
}

/// Encodes an event of session `id`.
///
/// # Errors
/// [`EncodeError`] if the event is too deep, too large or not JSON, or if its time is out of range.
pub fn encode_event(id: &SessionId, event: &Event) -> Result<Encoded, EncodeError> {
    #[derive(Serialize)]
    struct Wire<'a> {
        seq: Seq,
        time: u64,
        r#type: &'a str,
        data: WireData<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        surface_op: Option<WireOp>,
        #[serde(skip_serializing_if = "Option::is_none")]
        source_event_seqs: Option<&'a [Seq]>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        ignorable: bool,
    }
    #[derive(Serialize)]
    #[serde(untagged)]
    enum WireData<'a> {
        Body(&'a Body),
        Opaque(Ordered<'a>),
    }

    check_time(event.time).map_err(EncodeError::Field)?;
    let data = match &event.body {
        Body::Opaque(opaque) if Body::is_known(&opaque.name) => return Err(EncodeError::Field("the data of a known type must have its shape")),
        Body::Opaque(opaque) => WireData::Opaque(Ordered(&opaque.data)),
        body => WireData::Body(body),
    };
    let wire = Wire {
        seq: event.seq,
        time: event.time,
        r#type: event.body.type_name(),
        data,
        surface_op: event.surface_op.map(WireOp::from),
        source_event_seqs: event.source_event_seqs.as_deref(),
        ignorable: event.ignorable,
    };
    let body = serde_json::to_vec(&wire).map_err(EncodeError::Json)?;
    if body.len() > MAX_EVENT_BYTES {
        return Err(EncodeError::TooLarge(body.len()));
    }
    if is_free(&event.body) {
        // What is free throughout stands for itself; elsewhere a reader takes null for absent.
        let fields = if matches!(event.body, Body::Opaque(_) | Body::Descriptor(_)) { 0 } else { 2 };
        look(&body, MAX_JSON_DEPTH, fields).map_err(|flaw| match flaw {
            Flaw::TooDeep => EncodeError::TooDeep,
            Flaw::Lossy(loss) => EncodeError::Lossy(format!("{loss} of an event of type {:?}", event.body.type_name())),
        })?;
    }
    let crc = event_crc(id, &body);
    Ok(Encoded { body, crc })
}

/// Tells whether an event holds data whose shape is its author's. What has a type of ours nests no deeper than the type, and comes back as it was.
fn is_free(body: &Body) -> bool {
    let message = body.surface_message().is_some_and(|message| matches!(message.source, Source::Other(_)));
    match body {
        Body::Descriptor(_) | Body::Opaque(_) => true,
        Body::RootOpened(opened) => opened.params.is_some(),
        Body::AssistantMessage { usage, .. } => message || usage.is_some(),
        Body::ToolResult { error, .. } => message || error.is_some(),
        _ => message,
    }
}

/// Checks what [`encode_event`] would refuse, without encoding the common case of small plain text.
///
/// # Errors
/// [`EncodeError`] as [`encode_event`].
pub fn check_event(event: &Event) -> Result<(), EncodeError> {
    check_time(event.time).map_err(EncodeError::Field)?;
    let seqs = |seqs: &[Seq]| seqs.len() * SEQ_BYTES;
    let bytes = event.source_event_seqs.as_deref().map_or(0, seqs)
        + match &event.body {
            Body::UserMessage(message) | Body::AssistantMessage { message, .. } | Body::ToolResult { message, .. } => {
                message.content.iter().map(Block::len).sum()
            }
            Body::Memo { text, .. } | Body::AnswerRecorded { text, .. } => text.len(),
            Body::ToolCall { call_id, name, arguments, .. } => call_id.len() + name.len() + arguments.len(),
            Body::NoteJoined { notes, .. } => notes.iter().map(|note| note.as_str().len()).sum(),
            Body::CompactSummary { shadowed_seqs, text, .. } => seqs(shadowed_seqs) + text.as_ref().map_or(0, String::len),
            Body::TurnEnd { reason: TurnEnd::Error { message, .. }, .. } => message.len(),
            Body::RootOpened(opened) => {
                let model = opened.model.as_ref().map_or(0, |model| model.name.len() + model.provider.as_ref().map_or(0, String::len));
                opened.vars.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() + model
            }
            _ => 0,
        };
    if bytes < SMALL && !is_free(&event.body) { Ok(()) } else { encode_event(&SessionId::from_uuid(uuid::Uuid::nil()), event).map(|_| ()) }
}

/// Bytes of text that surely fit into a record, whatever has to be escaped in it.
const SMALL: usize = 1024 * 1024;
/// Bytes that a seq takes at most.
const SEQ_BYTES: usize = 17;

/// Decodes the event at `seq` of session `id`.
///
/// # Errors
/// [`DecodeError`] naming what is wrong.
pub fn decode_event(id: &SessionId, seq: Seq, body: &[u8], crc: u32) -> Result<Event, DecodeError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wire<'a> {
        seq: Seq,
        time: u64,
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        #[serde(borrow)]
        data: &'a RawValue,
        #[serde(default, deserialize_with = "present")]
        surface_op: Option<WireOp>,
        #[serde(default, deserialize_with = "present")]
        source_event_seqs: Option<Vec<Seq>>,
        #[serde(default)]
        ignorable: bool,
    }

    if event_crc(id, body) != crc {
        return Err(DecodeError::Checksum);
    }
    look(body, MAX_JSON_DEPTH, 0)?;
    let wire: Wire<'_> = serde_json::from_slice(body).map_err(malformed)?;
    if wire.seq != seq {
        return Err(DecodeError::Misplaced(format!("the event says seq {}", wire.seq)));
    }
    check_time(wire.time).map_err(|reason| DecodeError::Malformed(reason.into()))?;
    let body = Body::decode(&wire.r#type, wire.data.get()).map_err(|error| DecodeError::Malformed(format!("{}: {error}", wire.r#type)))?;
    Ok(Event {
        seq,
        time: wire.time,
        body,
        surface_op: wire.surface_op.map(TryInto::try_into).transpose()?,
        source_event_seqs: wire.source_event_seqs,
        ignorable: wire.ignorable,
    })
}

/// Returns the checksum of an event's body in session `id`.
pub fn event_crc(id: &SessionId, body: &[u8]) -> u32 {
    let prefix = crc32c::crc32c_append(crc32c::crc32c(b"e\0"), id.as_str().as_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(prefix, b"\0"), body)
}

/// Encodes a message's body, whose checksum needs its place: see [`message_crc`].
///
/// # Errors
/// [`EncodeError`] if the message is too large, too deep or not JSON.
pub fn encode_message(message: &Message) -> Result<Vec<u8>, EncodeError> {
    message.check()?;
    let body = serde_json::to_vec(message).map_err(EncodeError::Json)?;
    // What is accepted must fit into the event that will contain it.
    if body.len() > MAX_MESSAGE_JSON_BYTES {
        return Err(MessageError::TooLargeAsJson(body.len()).into());
    }
    if matches!(message.source, Source::Other(_)) {
        look(&body, MAX_JSON_DEPTH - 2, 1)?;
    }
    Ok(body)
}

/// Checks what [`encode_message`] would refuse, without encoding the common case of small plain text.
///
/// # Errors
/// [`EncodeError`] as [`encode_message`].
pub fn check_message(message: &Message) -> Result<(), EncodeError> {
    let small = message.content.iter().map(Block::len).sum::<usize>() < SMALL;
    let plain = small && !matches!(message.source, Source::Other(_));
    if plain { Ok(()) } else { encode_message(message).map(|_| ()) }
}

/// Decodes the message at `order` of session `id`.
///
/// # Errors
/// [`DecodeError`] naming what is wrong.
pub fn decode_message(id: &SessionId, order: Order, held: bool, body: &[u8], crc: u32) -> Result<Message, DecodeError> {
    if message_crc(id, order, held, body) != crc {
        return Err(DecodeError::Checksum);
    }
    look(body, MAX_JSON_DEPTH, 0)?;
    serde_json::from_slice(body).map_err(malformed)
}

/// Returns the checksum of a message's body in its place.
pub fn message_crc(id: &SessionId, order: Order, held: bool, body: &[u8]) -> u32 {
    let mut crc = crc32c::crc32c_append(crc32c::crc32c(b"m\0"), id.as_str().as_bytes());
    crc = crc32c::crc32c_append(crc, b"\0");
    crc = crc32c::crc32c_append(crc, order.to_string().as_bytes());
    crc = crc32c::crc32c_append(crc, if held { b"\x001\0" } else { b"\x000\0" });
    crc32c::crc32c_append(crc, body)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTombstone<'a> {
    taken: Order,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    held: bool,
    #[serde(borrow)]
    id: Cow<'a, str>,
    kind: MessageKind,
    wake: bool,
    #[serde(borrow)]
    hash: Cow<'a, str>,
}

/// Encodes what remains of a message of session `id`.
///
/// # Errors
/// [`EncodeError::Json`] never, as far as is known.
pub fn encode_tombstone(id: &SessionId, tombstone: &Tombstone) -> Result<Encoded, EncodeError> {
    let wire = WireTombstone {
        taken: tombstone.order,
        held: tombstone.held,
        id: tombstone.id.as_str().into(),
        kind: tombstone.kind,
        wake: tombstone.wake,
        hash: tombstone.hash.to_string().into(),
    };
    let body = serde_json::to_vec(&wire).map_err(EncodeError::Json)?;
    let crc = tombstone_crc(id, &body);
    Ok(Encoded { body, crc })
}

/// Decodes what remains of a message of session `id`.
///
/// # Errors
/// [`DecodeError`] naming what is wrong.
pub fn decode_tombstone(id: &SessionId, body: &[u8], crc: u32) -> Result<Tombstone, DecodeError> {
    if tombstone_crc(id, body) != crc {
        return Err(DecodeError::Checksum);
    }
    let wire: WireTombstone<'_> = serde_json::from_slice(body).map_err(malformed)?;
    let no = |what: &str| DecodeError::Malformed(format!("`{what}` is none"));
    Ok(Tombstone {
        order: wire.taken,
        id: MessageId::new(&wire.id).map_err(|_| no("id"))?,
        kind: wire.kind,
        wake: wire.wake,
        hash: wire.hash.parse().map_err(|_| no("hash"))?,
        held: wire.held,
    })
}

/// Returns the checksum of the body of what remains of a message.
pub(crate) fn tombstone_crc(id: &SessionId, body: &[u8]) -> u32 {
    let prefix = crc32c::crc32c_append(crc32c::crc32c(b"t\0"), id.as_str().as_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(prefix, b"\0"), body)
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WireOp {
    Name(String),
    Replace(WireReplace),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireReplace {
    op: String,
    start: Seq,
    end: Seq,
}

impl From<SurfaceOp> for WireOp {
    fn from(op: SurfaceOp) -> Self {
        match op {
            SurfaceOp::Append => Self::Name("append".into()),
            SurfaceOp::Replace { start, end } => Self::Replace(WireReplace { op: "replace".into(), start, end }),
        }
    }
}

impl TryFrom<WireOp> for SurfaceOp {
    type Error = DecodeError;
    fn try_from(op: WireOp) -> Result<Self, DecodeError> {
        match op {
            WireOp::Name(name) if name == "append" => Ok(Self::Append),
            WireOp::Replace(WireReplace { op, start, end }) if op == "replace" => Ok(Self::Replace { start, end }),
            WireOp::Name(other) | WireOp::Replace(WireReplace { op: other, .. }) => Err(DecodeError::Malformed(format!("unknown surface op {other:?}"))),
        }
    }
}

#[cfg(test)]
mod tests;
