//! The names of things: one type per kind of name, so that none is passed for another.
//!
//! Session and message ids are any text a caller likes, within bounds; greenroom's own are UUIDs. An id that an
//! effect makes is derived from the effect's key, so that the same effect on a later attempt makes the same id.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};
use thiserror::Error;
use uuid::Uuid;

/// Position of an event in its session's log. Counts from 0 without a gap.
pub type Seq = u64;

/// Residency number of a session. Counts from 1; every append compares it.
pub type Epoch = u64;

/// Position of a message in its session's inbox. Counts from 0, never reused.
pub type Order = u64;

/// Longest session or message id, in bytes.
pub const MAX_ID_BYTES: usize = 512;

/// Why a text is not an id.
///
/// ```
/// use greenroom_session::id::{IdError, SessionId};
/// let error = SessionId::new("").unwrap_err();
/// assert_eq!(error, IdError::Empty);
/// assert_eq!(error.code(), "INVALID_ID");
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdError {
    /// The text is empty.
    #[error("an id must not be empty")]
    Empty,
    /// The text is longer than [`MAX_ID_BYTES`].
    #[error("an id has at most {MAX_ID_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// The text contains a NUL, which separates fields under a checksum.
    #[error("an id must not contain a NUL character")]
    Nul,
}

impl IdError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        "INVALID_ID"
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes a text as an id.
            ///
            /// # Errors
            /// [`IdError`] if the text is empty, longer than [`MAX_ID_BYTES`] or contains a NUL.
            pub fn new(text: impl AsRef<str>) -> Result<Self, IdError> {
                let text = text.as_ref();
                if text.is_empty() {
                    return Err(IdError::Empty);
                }
                if text.len() > MAX_ID_BYTES {
                    return Err(IdError::TooLong(text.len()));
                }
                if text.contains('\0') {
                    return Err(IdError::Nul);
                }
                Ok(Self(Arc::from(text)))
            }

            /// Returns the id of a UUID, in lower-case hyphenated form.
            pub fn from_uuid(uuid: Uuid) -> Self {
                let mut buffer = Uuid::encode_buffer();
                Self(Arc::from(&*uuid.hyphenated().encode_lower(&mut buffer)))
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        // By hand, since every record has ids and the derived ones copy each twice.
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a text that is an id")
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::new(text).map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

id! {
    /// Names a session, and the agent that it drives.
    ///
    /// ```
    /// use greenroom_session::id::SessionId;
    /// let id: SessionId = "editor".parse()?;
    /// assert_eq!(id.to_string().parse::<SessionId>()?, id);
    /// assert!(SessionId::new("").is_err());
    /// # Ok::<(), greenroom_session::id::IdError>(())
    /// ```
    SessionId
}

id! {
    /// Names a message within the inbox that it was accepted in.
    ///
    /// ```
    /// use greenroom_session::id::MessageId;
    /// let id: MessageId = "order-17".parse()?; // the sender's choice: sent again under this id, it is accepted once
    /// assert_eq!(id.as_str(), "order-17");
    /// # Ok::<(), greenroom_session::id::IdError>(())
    /// ```
    MessageId
}

id! {
    /// Names one opening of a store by one process: the holder of leases.
    ///
    /// ```
    /// use greenroom_session::{id::OwnerId, store::{Store, memory::MemoryStore}};
    /// let store = MemoryStore::new();
    /// let owner: &OwnerId = store.owner();
    /// assert_ne!(owner, MemoryStore::new().owner());
    /// ```
    OwnerId
}

/// The key of an effect: what a turn does to another session, in a form that a later attempt repeats exactly.
///
/// The same behaviour on the same message yields the same keys in the same order, hence the same ids.
///
/// ```
/// use greenroom_session::id::{EffectKey, EffectKind, MessageId, SessionId};
/// let session = SessionId::new("root")?;
/// let message = MessageId::new("m0")?;
/// let first = EffectKey::new(&session, &message, EffectKind::Send, "child", b"hello", 0);
/// let again = EffectKey::new(&session, &message, EffectKind::Send, "child", b"hello", 0);
/// let second = EffectKey::new(&session, &message, EffectKind::Send, "child", b"hello", 1);
/// assert_eq!(first.message_id(), again.message_id());
/// assert_ne!(first.message_id(), second.message_id());
/// # Ok::<(), greenroom_session::id::IdError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EffectKey(Uuid);

/// What kind of thing an effect does.
///
/// ```
/// use greenroom_session::id::EffectKind;
/// assert_eq!(EffectKind::Report.as_str(), "report");
/// assert_eq!(serde_json::to_string(&EffectKind::Send)?, r#""send""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    /// Creates a child.
    Delegate,
    /// Sends a child its next turn's message.
    Send,
    /// Reports to the parent.
    Report,
}

impl EffectKind {
    /// Returns the name used in logs and keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delegate => "delegate",
            Self::Send => "send",
            Self::Report => "report",
        }
    }
}

/// Namespace of every derived UUID, itself derived once from the project's name.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f9c_1e0a_52b7_5d0e_9a3f_1c7e_44d2_b815);

impl EffectKey {
    /// Derives the key of the `k`-th effect (from 0) of this kind, target and content within the turns of `message`.
    pub fn new(session: &SessionId, message: &MessageId, kind: EffectKind, target: &str, content: &[u8], k: u32) -> Self {
        Self(derive(&[session.as_str().as_bytes(), message.as_str().as_bytes(), kind.as_str().as_bytes(), target.as_bytes(), content, &k.to_be_bytes()]))
    }

    /// Returns the id of the child that this effect creates.
    pub fn session_id(self) -> SessionId {
        SessionId::from_uuid(derive(&[self.0.as_bytes(), b"session"]))
    }

    /// Returns the id of the message that this effect delivers.
    pub fn message_id(self) -> MessageId {
        MessageId::from_uuid(derive(&[self.0.as_bytes(), b"message"]))
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Returns the id of the notice that a session sends to its parent when it settles after turn `turn`.
///
/// One turn is told of once, however often and in whichever epoch the session settles after it.
pub fn notice_id(session: &SessionId, turn: u64) -> MessageId {
    MessageId::from_uuid(derive(&[session.as_str().as_bytes(), b"settled", &turn.to_be_bytes()]))
}

/// Returns the id of the first message of a child whose own id was reserved: one prompt to one child is one message, whoever asks for it again.
pub fn prompt_id(child: &SessionId, prompt: &str) -> MessageId {
    MessageId::from_uuid(derive(&[child.as_str().as_bytes(), b"prompt", prompt.as_bytes()]))
}

/// Returns the id of the notice that a session has settled when it was last told of by a message that was taken back, and not by a turn.
pub fn taken_back_notice_id(session: &SessionId, message: &MessageId) -> MessageId {
    MessageId::from_uuid(derive(&[session.as_str().as_bytes(), b"settled, taken back", message.as_str().as_bytes()]))
}

/// Returns the seed of what a session draws by chance while it serves a message. Every attempt at the message draws the same, in whichever process.
pub fn chance(seed: u64, session: &SessionId, message: &MessageId) -> u64 {
    let derived = derive(&[b"chance", &seed.to_be_bytes(), session.as_str().as_bytes(), message.as_str().as_bytes()]);
    // Some bits of a UUID say its version; folded onto the other half they are as good as any.
    let (one, other) = derived.as_u64_pair();
    one ^ other
}

/// Returns the id of a request to the holder of a session: the same request is the same message.
pub(crate) fn control_id(op: &str, target: &[u8]) -> MessageId {
    MessageId::from_uuid(derive(&[b"control", op.as_bytes(), target]))
}

/// Derives a version 5 UUID from parts; lengths are part of the name, so that no two lists of parts collide.
fn derive(parts: &[&[u8]]) -> Uuid {
    let mut name = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
    for part in parts {
        name.extend_from_slice(&(part.len() as u64).to_be_bytes());
        name.extend_from_slice(part);
    }
    Uuid::new_v5(&NAMESPACE, &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_refuse_what_cannot_be_a_name() {
        assert_eq!(SessionId::new(""), Err(IdError::Empty));
        assert_eq!(SessionId::new("a\0b"), Err(IdError::Nul));
        assert_eq!(SessionId::new("x".repeat(513)), Err(IdError::TooLong(513)));
        assert!(serde_json::from_str::<SessionId>("\"\"").is_err());
    }

    #[test]
    fn derived_ids_do_not_move_between_releases() -> Result<(), IdError> {
        let (session, message) = (SessionId::new("s")?, MessageId::new("m")?);
        let key = EffectKey::new(&session, &message, EffectKind::Delegate, "t", b"c", 0);
        let derived = [key.to_string(), key.session_id().to_string(), key.message_id().to_string(), notice_id(&session, 1).to_string()];
        assert_eq!(
            derived,
            [
                "ad40dc82-2a8f-5cfc-a784-9eadf9d3239f",
                "4042f9c7-f3a2-511f-90ef-bf2f5788feec",
                "2be70f98-adea-5bdb-ad52-144bde691f68",
                "d4dc742f-4c24-5d31-b44d-dab8507ae5a4",
            ]
        );
        // Kind, boundary between two parts, and rank are part of the key.
        for other in [
            EffectKey::new(&session, &message, EffectKind::Send, "t", b"c", 0),
            EffectKey::new(&session, &message, EffectKind::Delegate, "tc", b"", 0),
            EffectKey::new(&session, &message, EffectKind::Delegate, "t", b"c", 1),
        ] {
            assert_ne!(key, other);
        }
        assert_ne!(notice_id(&session, 1), notice_id(&session, 2));
        assert_eq!(prompt_id(&session, "p").as_str(), "00ff4945-4c1a-5206-8df2-a42f466c5553");
        for other in [prompt_id(&session, "q"), prompt_id(&SessionId::new("t")?, "p"), prompt_id(&SessionId::new("sp")?, "")] {
            assert_ne!(other, prompt_id(&session, "p"));
        }
        assert_eq!(taken_back_notice_id(&session, &message).to_string(), "67b929ba-d6d6-58ce-91a3-5ad43a41ac2f");
        assert_eq!(chance(7, &session, &message), 7_196_706_363_521_863_724);
        for other in [chance(8, &session, &message), chance(7, &SessionId::new("t")?, &message), chance(7, &session, &MessageId::new("n")?)] {
            assert_ne!(other, chance(7, &session, &message));
        }
        Ok(())
    }
}
