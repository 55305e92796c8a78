//! Messages: what is said to a session, by whom, and how it waits in the inbox.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{
    codec::present,
    id::{Epoch, IdError, MessageId, Order, SessionId, control_id},
    limits::{MAX_MESSAGE_BYTES, MAX_MESSAGE_JSON_BYTES},
};

/// One block of a message's content.
///
/// ```
/// use greenroom_session::message::{Block, text_of};
/// let content = [Block::text("one"), Block::reasoning("hm"), Block::text("two")];
/// assert_eq!(text_of(&content), "one\ntwo");
/// assert_eq!(content.iter().map(Block::len).sum::<usize>(), 8);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A model's reasoning, not part of its answer.
    Reasoning {
        /// The text; empty where the model's provider gives none away.
        text: String,
        /// What the provider wants to see again beside it, unchanged.
        #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "present")]
        signature: Option<String>,
    },
    /// A model's wish to call a tool.
    ToolCall {
        /// The call's id, chosen by the model.
        id: String,
        /// The tool's name.
        name: String,
        /// Raw JSON text of the arguments.
        arguments: String,
    },
    /// What a tool call gave.
    ToolResult {
        /// The call that it answers.
        call_id: String,
        /// Text that the model sees.
        text: String,
        /// Whether the call failed.
        #[serde(default)]
        is_error: bool,
    },
}

impl Block {
    /// Makes a text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Makes a block of reasoning.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::Reasoning { text: text.into(), signature: None }
    }

    /// Returns the bytes of its text.
    #[expect(clippy::len_without_is_empty, reason = "a size, not a collection")]
    pub fn len(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            Self::Reasoning { text, signature } => text.len() + signature.as_ref().map_or(0, String::len),
            Self::ToolCall { id, name, arguments } => id.len() + name.len() + arguments.len(),
            Self::ToolResult { call_id, text, .. } => call_id.len() + text.len(),
        }
    }
}

/// Who a message comes from. Kept for the reader; never an authority.
///
/// ```
/// use greenroom_session::{id::SessionId, message::Source};
/// let source = Source::SubagentReport { session: SessionId::new("reporter-1")? };
/// assert_eq!(source.kind(), "subagent-report");
/// assert_eq!(source.session().map(SessionId::as_str), Some("reporter-1"));
/// assert_eq!(Source::User.session(), None);
/// # Ok::<(), greenroom_session::id::IdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Source {
    /// The owner of the store.
    User,
    /// The program that embeds the runtime.
    Host,
    /// The parent of the session.
    Coordinator {
        /// The parent.
        session: SessionId,
    },
    /// A child's report.
    SubagentReport {
        /// The child.
        session: SessionId,
    },
    /// The notice that a child has settled.
    SubagentSettled {
        /// The child.
        session: SessionId,
        /// The epoch that ended.
        epoch: Epoch,
        /// How the child's last turn ended: a name of [`TurnEnd`](crate::event::TurnEnd).
        outcome: String,
        /// The error code of a failed turn.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        code: Option<String>,
    },
    /// The session's own behaviour.
    Agent {
        /// The behaviour's registered name.
        name: String,
    },
    /// A language model.
    Model {
        /// The model's provider.
        provider: String,
        /// The model's name.
        name: String,
    },
    /// A tool.
    Tool {
        /// The call that it answers.
        call_id: String,
    },
    /// A part of the runtime that adds context.
    Plugin {
        /// Its name.
        name: String,
    },
    /// A kind that this program does not know, kept as it came.
    #[serde(untagged, serialize_with = "crate::json::map_in_order")]
    Other(serde_json::Map<String, serde_json::Value>),
}

impl Source {
    /// Returns the name of the kind.
    pub fn kind(&self) -> &str {
        match self {
            Self::User => "user",
            Self::Host => "host",
            Self::Coordinator { .. } => "coordinator",
            Self::SubagentReport { .. } => "subagent-report",
            Self::SubagentSettled { .. } => "subagent-settled",
            Self::Agent { .. } => "agent",
            Self::Model { .. } => "model",
            Self::Tool { .. } => "tool",
            Self::Plugin { .. } => "plugin",
            Self::Other(map) => map.get("kind").and_then(serde_json::Value::as_str).unwrap_or("unknown"),
        }
    }

    /// Returns the session that the message comes from, for the kinds that name one.
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Coordinator { session } | Self::SubagentReport { session } | Self::SubagentSettled { session, .. } => Some(session),
            _ => None,
        }
    }
}

/// What becomes of a message.
///
/// ```
/// use greenroom_session::{id::MessageId, message::{Message, MessageKind, Source}};
/// let turn = Message::turn("m0", "Begin.", Source::User, 1_000)?;
/// let note = Message::note(MessageId::new("n0")?, "The printer is back.", Source::Host, 1_000, true)?;
/// assert_eq!((turn.kind, note.kind), (MessageKind::Turn, MessageKind::Note));
/// assert!(turn.wake && !note.wake);
/// # Ok::<(), greenroom_session::message::MessageError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// It becomes one turn of its own.
    Turn,
    /// It joins the next step or turn.
    Note,
    /// It is a request to the holder of the session's lease.
    Control,
}

/// A durable request of another process.
///
/// ```
/// use greenroom_session::{id::MessageId, message::{Control, Message, MessageKind}};
/// let stop = Message::control(MessageId::new("c0")?, Control::Interrupt { turn: Some(3) }, 1_000);
/// assert_eq!(stop.kind, MessageKind::Control);
/// assert_eq!(serde_json::to_string(&stop.control)?, r#"{"op":"interrupt","turn":3}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Control {
    /// End the turn that is under way; without `turn`, whichever it is.
    Interrupt {
        /// The turn that was seen running.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        turn: Option<u64>,
    },
    /// Take back a message that has no turn yet.
    Withdraw {
        /// The message.
        target: MessageId,
    },
}

impl Control {
    /// Returns the name of what is asked.
    pub fn op(&self) -> &'static str {
        match self {
            Self::Interrupt { .. } => "interrupt",
            Self::Withdraw { .. } => "withdraw",
        }
    }

    /// Returns the id that a request of this kind has in an inbox: whoever asks the same again makes the same request, which is answered once.
    pub fn id(&self) -> MessageId {
        match self {
            Self::Interrupt { turn } => control_id(self.op(), &turn.map_or_else(Vec::new, |turn| turn.to_be_bytes().to_vec())),
            Self::Withdraw { target } => control_id(self.op(), target.as_str().as_bytes()),
        }
    }
}

/// A message as its sender wrote it.
///
/// ```
/// use greenroom_session::message::{Message, Source};
/// let message = Message::turn("m0", "Cover the launch.", Source::User, 1_000)?;
/// assert_eq!(message.text(), "Cover the launch.");
/// // Sent again later it is still the same message.
/// let again = Message { sent_at: 2_000, ..message.clone() };
/// assert_eq!(message.hash(), again.hash());
/// # Ok::<(), greenroom_session::message::MessageError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Unique in the receiver for ever.
    pub id: MessageId,
    /// What becomes of it.
    pub kind: MessageKind,
    /// What it says.
    pub content: Vec<Block>,
    /// Who says it.
    pub source: Source,
    /// Milliseconds since the Unix epoch, by the sender's clock.
    pub sent_at: u64,
    /// Whether it opens a turn when nothing else does.
    pub wake: bool,
    /// The request, for kind `control`.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "present")]
    pub control: Option<Control>,
}

/// Why a message cannot be made.
///
/// ```
/// use greenroom_session::{limits::MAX_MESSAGE_BYTES, message::{Message, MessageError, Source}};
/// let error = Message::turn("m0", "x".repeat(MAX_MESSAGE_BYTES + 1), Source::User, 1_000).unwrap_err();
/// assert_eq!(error, MessageError::TooLarge(MAX_MESSAGE_BYTES + 1));
/// assert_eq!(error.code(), "MESSAGE_TOO_LARGE");
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageError {
    /// The id is no id.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The content is larger than [`MAX_MESSAGE_BYTES`].
    #[error("a message has at most {MAX_MESSAGE_BYTES} bytes, this one has {0}")]
    TooLarge(usize),
    /// Its JSON is larger than the event can be that will contain it: a control character takes six bytes there.
    #[error("a message takes at most {MAX_MESSAGE_JSON_BYTES} bytes as JSON, this one takes {0}")]
    TooLargeAsJson(usize),
}

impl MessageError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Id(error) => error.code(),
            Self::TooLarge(_) | Self::TooLargeAsJson(_) => "MESSAGE_TOO_LARGE",
        }
    }
}

impl Message {
    /// Makes the message of a turn of its own.
    ///
    /// # Errors
    /// [`MessageError`] if the id is no id or the text is too large.
    pub fn turn(id: impl AsRef<str>, text: impl Into<String>, source: Source, sent_at: u64) -> Result<Self, MessageError> {
        Self::with(MessageId::new(id)?, MessageKind::Turn, vec![Block::text(text)], source, sent_at, true)
    }

    /// Makes a note; `quiet` notes wait for another reason to run.
    ///
    /// # Errors
    /// [`MessageError`] if the text is too large.
    pub fn note(id: MessageId, text: impl Into<String>, source: Source, sent_at: u64, quiet: bool) -> Result<Self, MessageError> {
        Self::with(id, MessageKind::Note, vec![Block::text(text)], source, sent_at, !quiet)
    }

    /// Makes a request to the holder of the session.
    pub fn control(id: MessageId, control: Control, sent_at: u64) -> Self {
        Self { id, kind: MessageKind::Control, content: Vec::new(), source: Source::User, sent_at, wake: true, control: Some(control) }
    }

    /// Makes a message of all its parts.
    ///
    /// # Errors
    /// [`MessageError::TooLarge`] if the content is too large.
    pub fn with(id: MessageId, kind: MessageKind, content: Vec<Block>, source: Source, sent_at: u64, wake: bool) -> Result<Self, MessageError> {
        let message = Self { id, kind, content, source, sent_at, wake, control: None };
        message.check()?;
        Ok(message)
    }

    /// Checks the size of the content.
    ///
    /// # Errors
    /// [`MessageError::TooLarge`].
    pub fn check(&self) -> Result<(), MessageError> {
        let bytes = self.content.iter().map(Block::len).sum();
        if bytes > MAX_MESSAGE_BYTES { Err(MessageError::TooLarge(bytes)) } else { Ok(()) }
    }

    /// Returns the text blocks, one line feed between two.
    pub fn text(&self) -> String {
        text_of(&self.content)
    }

    /// Returns the hash that tells the same message sent again from another one under its id.
    pub fn hash(&self) -> BodyHash {
        let mut hasher = Sha256::new();
        let parts = (self.kind, &self.content, &self.source, self.wake, &self.control);
        // Writing to a hasher cannot fail, and every part is plain data.
        if serde_json::to_writer(HashWriter(&mut hasher), &parts).is_err() {
            hasher.update(self.id.as_str());
        }
        let digest = hasher.finalize();
        let mut hash = [0u8; 16];
        for (to, from) in hash.iter_mut().zip(digest.iter()) {
            *to = *from;
        }
        BodyHash(hash)
    }
}

/// Returns the text blocks of a content, one line feed between two.
pub fn text_of(content: &[Block]) -> String {
    let mut texts = content.iter().filter_map(|block| match block {
        Block::Text { text } => Some(text.as_str()),
        _ => None,
    });
    let Some(first) = texts.next() else { return String::new() };
    texts.fold(first.to_owned(), |mut all, text| {
        all.push('\n');
        all.push_str(text);
        all
    })
}

struct HashWriter<'a>(&'a mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What remains of a message's body after it left the inbox.
///
/// ```
/// use greenroom_session::message::{BodyHash, Message, MessageError, Source};
/// fn hash(text: &str) -> Result<BodyHash, MessageError> {
///     Ok(Message::turn("m0", text, Source::User, 1_000)?.hash())
/// }
/// assert_eq!(hash("hello")?, hash("hello")?);
/// assert_ne!(hash("hello")?, hash("hello ")?);
/// assert_eq!(hash("hello")?.to_string().parse(), Ok(hash("hello")?));
/// # Ok::<(), MessageError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BodyHash(pub [u8; 16]);

impl fmt::Display for BodyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for BodyHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let hex = text.len() == 32 && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        let number = u128::from_str_radix(text, 16).ok().filter(|_| hex).ok_or(NotAHash)?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// The text is not 32 lower-case hex digits.
///
/// ```
/// use greenroom_session::message::{BodyHash, NotAHash};
/// assert_eq!("abc".parse::<BodyHash>(), Err(NotAHash));
/// assert_eq!(NotAHash.to_string(), "a hash has 32 lower-case hex digits");
/// ```
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("a hash has 32 lower-case hex digits")]
pub struct NotAHash;

/// A message in its place in the inbox.
///
/// ```
/// use greenroom_session::{message::InboxRecord, store::Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let accept = gs::store::Accept::new(root.clone(), gs::message::Message::turn("m0", "Begin.", gs::message::Source::User, 1_000)?);
/// # gs::store::Store::commit(&store, &[gs::store::Op::Accept(accept)])?;
/// let waiting: Vec<InboxRecord> = store.reader()?.inbox(&root, 10)?;
/// assert_eq!((waiting[0].order, waiting[0].held), (0, false));
/// assert_eq!(waiting[0].message.text(), "Begin.");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRecord {
    /// Its place.
    pub order: Order,
    /// Whether it, and everything behind it, waits for an activation by hand.
    pub held: bool,
    /// The message.
    pub message: Arc<Message>,
}

/// What remains of a message that has left the inbox: enough to tell the same message sent again from another one under its id.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::message::{InboxRecord, Message, Source, Tombstone};
/// let message = Arc::new(Message::turn("m0", "Begin.", Source::User, 1_000)?);
/// let remains = Tombstone::of(&InboxRecord { order: 3, held: true, message: message.clone() });
/// assert_eq!((remains.order, remains.id.as_str(), remains.hash), (3, "m0", message.hash()));
/// assert!(!remains.held); // what has left waits for nothing
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The message's place.
    pub order: Order,
    /// Its id.
    pub id: MessageId,
    /// What became of it.
    pub kind: MessageKind,
    /// Whether it opened a turn when nothing else did.
    pub wake: bool,
    /// What its body was.
    pub hash: BodyHash,
    /// Whether the session was imported while something of this message was still to be done, and waits for an activation by hand.
    pub held: bool,
}

impl Tombstone {
    /// Returns what remains of a message when it leaves.
    pub fn of(record: &InboxRecord) -> Self {
        let InboxRecord { order, message, .. } = record;
        Self { order: *order, id: message.id.clone(), kind: message.kind, wake: message.wake, hash: message.hash(), held: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_source_is_kept_as_it_came() {
        let json = r#"{"kind":"oracle","voice":"low"}"#;
        let source: Source = serde_json::from_str(json).unwrap();
        assert_eq!(source.kind(), "oracle");
        assert_eq!(serde_json::to_string(&source).unwrap(), json);
        assert_eq!(serde_json::to_string(&Source::User).unwrap(), r#"{"kind":"user"}"#);
    }

    #[test]
    fn the_hash_ignores_the_time_and_nothing_else() {
        let a = Message::turn("m", "hello", Source::User, 1).unwrap();
        let b = Message { sent_at: 2, ..a.clone() };
        assert_eq!(a.hash(), b.hash());
        for other in [
            Message { kind: MessageKind::Note, ..a.clone() },
            Message { content: vec![Block::text("hello ")], ..a.clone() },
            Message { source: Source::Host, ..a.clone() },
            Message { wake: false, ..a.clone() },
        ] {
            assert_ne!(a.hash(), other.hash());
        }
    }

    #[test]
    fn a_message_over_the_limit_is_refused() {
        let text = "x".repeat(MAX_MESSAGE_BYTES);
        assert!(Message::turn("m", text.clone(), Source::User, 0).is_ok());
        assert_eq!(Message::turn("m", text + "x", Source::User, 0), Err(MessageError::TooLarge(MAX_MESSAGE_BYTES + 1)));
    }
}
