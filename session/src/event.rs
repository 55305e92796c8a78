//! Events: what happened in a session, in past tense and in order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    descriptor::ModelRoute,
    id::{EffectKind, Epoch, MessageId, Seq},
    json::{in_order, maybe_in_order},
    message::{Block, Source},
};

/// One event in its place in the log.
///
/// ```
/// use greenroom_session::{event::Event, store::Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let events: Vec<Event> = store.reader()?.events(&root, 0, 10)?;
/// assert_eq!(events[0].seq, 0);
/// assert_eq!(events[0].body.type_name(), "root/opened");
/// assert_eq!(events[1].body.type_name(), "session/end-seed");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its place, from 0.
    pub seq: Seq,
    /// Milliseconds since the Unix epoch; informational.
    pub time: u64,
    /// What happened.
    pub body: Body,
    /// How a surface event changes the surface.
    pub surface_op: Option<SurfaceOp>,
    /// Earlier events that this one stands for.
    pub source_event_seqs: Option<Vec<Seq>>,
    /// Whether a reader that does not know the type may go on without it.
    pub ignorable: bool,
}

/// How a surface event changes the surface.
///
/// ```
/// use greenroom_session::{event::{Body, SurfaceOp}, message::{Message, Source}};
/// let message = Message::turn("m0", "Begin.", Source::User, 1_000)?;
/// let mut event = Body::user_message(&message).at(7, 1_000);
/// assert_eq!(event.surface_op, Some(SurfaceOp::Append));
/// // A summary of the events 2 to 4 takes their place.
/// event.surface_op = Some(SurfaceOp::Replace { start: 2, end: 4 });
/// event.source_event_seqs = Some(vec![2, 3, 4]);
/// # Ok::<(), greenroom_session::message::MessageError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SurfaceOp {
    /// It becomes the last node.
    Append,
    /// It takes the place of a run of current nodes, named by seq, both ends inclusive.
    Replace {
        /// First node of the run.
        start: Seq,
        /// Last node of the run.
        end: Seq,
    },
}

/// A message as a model sees it.
///
/// ```
/// use greenroom_session::{event::{Body, Role, SurfaceMessage}, message::{Message, Source, text_of}};
/// let body = Body::user_message(&Message::turn("m0", "Begin.", Source::User, 1_000)?);
/// let seen: &SurfaceMessage = body.surface_message().expect("a user message is on the surface");
/// assert_eq!((seen.id.as_str(), seen.role), ("m0", Role::User));
/// assert_eq!(text_of(&seen.content), "Begin.");
/// # Ok::<(), greenroom_session::message::MessageError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurfaceMessage {
    /// Stable id.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: Vec<Block>,
    /// Where it comes from.
    pub source: Source,
}

/// Who speaks on the surface.
///
/// ```
/// use greenroom_session::event::Role;
/// assert_eq!(serde_json::to_string(&Role::Assistant)?, r#""assistant""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Whoever talks to the agent.
    User,
    /// The agent.
    Assistant,
    /// A tool.
    Tool,
}

/// How a turn ended.
///
/// ```
/// use greenroom_session::event::TurnEnd;
/// let failed = TurnEnd::error("NO_PAPER", "the printer is out of paper");
/// assert_eq!((failed.as_str(), failed.error_code()), ("error", Some("NO_PAPER")));
/// assert!(failed.is_final());
/// assert!(!TurnEnd::Interrupted.is_final()); // its message is served again
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TurnEnd {
    /// The behaviour came to its end.
    Completed,
    /// The model ran out of output tokens.
    MaxTokens,
    /// Somebody ended it; final.
    Aborted {
        /// Who or what.
        cause: String,
    },
    /// It failed; final.
    Error {
        /// Stable code.
        code: String,
        /// What happened.
        message: String,
    },
    /// The runtime shut down in good order; served again.
    Disposed,
    /// The process ended; served again.
    Interrupted,
}

impl TurnEnd {
    /// Makes a failure.
    pub fn error(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Error { code: code.into(), message: message.into() }
    }

    /// Returns the name of the kind.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::MaxTokens => "max_tokens",
            Self::Aborted { .. } => "aborted",
            Self::Error { .. } => "error",
            Self::Disposed => "disposed",
            Self::Interrupted => "interrupted",
        }
    }

    /// Returns the code of a failure.
    pub fn error_code(&self) -> Option<&str> {
        match self {
            Self::Error { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Tells whether the message is done with; otherwise it is served again.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Disposed | Self::Interrupted)
    }
}

/// Why an epoch ended.
///
/// ```
/// use greenroom_session::event::{Body, EpochEnd};
/// let end = Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled };
/// assert_eq!(serde_json::to_string(&end)?, r#"{"epoch":1,"reason":"settled"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EpochEnd {
    /// It had nothing left to do.
    Settled,
    /// The runtime shut down.
    Disposed,
    /// Another process took over.
    Fenced,
    /// It could not go on.
    Failed,
    /// A crash ended it; written by the next epoch.
    Lost,
}

/// The birth of a root.
///
/// ```
/// use greenroom_session::{event::RootOpened, store::Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let log = store.reader()?.load(&root)?;
/// let opened: &RootOpened = log.fold.root().expect("it is a root");
/// assert_eq!((opened.agent.as_str(), opened.label.as_str()), ("editor", "story"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RootOpened {
    /// Its label.
    pub label: String,
    /// The registered behaviour that plays it.
    pub agent: String,
    /// Hash of the program file, in hex.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program_sha256: Option<String>,
    /// The program's variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub vars: BTreeMap<String, String>,
    /// Seed of a deterministic run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seed: Option<u64>,
    /// What its behaviour is given.
    #[serde(skip_serializing_if = "Option::is_none", default, serialize_with = "maybe_in_order")]
    pub params: Option<Value>,
    /// Its model route, and that of every child below it for which nothing else is said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<ModelRoute>,
}

/// A type that this program does not know, or one whose data it does not look into.
///
/// ```
/// use greenroom_session::event::{Body, Opaque};
/// let body = Body::decode("weather/changed", r#"{"to":"rain"}"#)?;
/// let Body::Opaque(Opaque { name, data }) = body else { panic!("no such type is known") };
/// assert_eq!((name.as_str(), &data["to"]), ("weather/changed", &"rain".into()));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Opaque {
    /// The type.
    pub name: String,
    /// The data.
    pub data: Value,
}

macro_rules! bodies {
    ($( $(#[$doc:meta])* $variant:ident = $name:literal { $( $(#[$fdoc:meta])* $field:ident : $ty:ty ),* $(,)? } )*) => {
        /// What happened. Each variant is documented in `docs/log-format.md` section 3.
        ///
        /// ```
        /// use greenroom_session::event::Body;
        /// let body = Body::decode("step/start", r#"{"turn":1,"step":2}"#)?;
        /// assert_eq!(body, Body::StepStart { turn: 1, step: 2 });
        /// assert_eq!(body.type_name(), "step/start");
        /// assert!(!body.is_surface());
        /// assert!(Body::is_known("step/start") && !Body::is_known("step/skipped"));
        /// # Ok::<(), serde_json::Error>(())
        /// ```
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Body {
            /// A root was created.
            RootOpened(RootOpened),
            /// A child was described. The data is kept as it came; [`Descriptor::parse`](crate::descriptor::Descriptor::parse) judges it.
            Descriptor(#[serde(serialize_with = "in_order")] Value),
            $( $(#[$doc])* $variant { $( $(#[$fdoc])* $field: $ty ),* }, )*
            /// A message to the agent became visible to it.
            UserMessage(SurfaceMessage),
            /// Something that this program does not know.
            #[serde(skip)]
            Opaque(Opaque),
        }

        impl Body {
            /// Returns the type's name on disk.
            pub fn type_name(&self) -> &str {
                match self {
                    Self::RootOpened(_) => "root/opened",
                    Self::Descriptor(_) => "subagent/descriptor",
                    Self::UserMessage(_) => "user/message",
                    $( Self::$variant { .. } => $name, )*
                    Self::Opaque(opaque) => &opaque.name,
                }
            }

            /// Tells whether this program knows a type.
            pub fn is_known(name: &str) -> bool {
                matches!(name, "root/opened" | "subagent/descriptor" | "user/message" $( | $name )*)
            }

            /// Reads the data of a type; a type that this program does not know becomes [`Body::Opaque`].
            ///
            /// # Errors
            /// The JSON error if the data of a known type has not the type's shape.
            pub fn decode(name: &str, data: &str) -> Result<Self, serde_json::Error> {
                Ok(match name {
                    "root/opened" => Self::RootOpened(serde_json::from_str(data)?),
                    "subagent/descriptor" => Self::Descriptor(serde_json::from_str(data)?),
                    "user/message" => Self::UserMessage(serde_json::from_str(data)?),
                    $( $name => {
                        #[derive(Deserialize)]
                        struct Data { $( #[serde(default)] $field: Present<$ty> ),* }
                        let Data { $( $field ),* } = serde_json::from_str(data)?;
                        Self::$variant { $( $field: $field.take(stringify!($field))? ),* }
                    } )*
                    other => Self::Opaque(Opaque { name: other.to_owned(), data: serde_json::from_str(data)? }),
                })
            }
        }
    };
}

/// A field that may be absent from the text; whether it may is the type's affair.
struct Present<T>(Option<T>);

impl<T> Default for Present<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Present<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(|value| Self(Some(value)))
    }
}

impl<T: FieldDefault> Present<T> {
    fn take(self, field: &'static str) -> Result<T, serde_json::Error> {
        self.0.map_or_else(|| T::absent().ok_or_else(|| serde::de::Error::missing_field(field)), Ok)
    }
}

/// What an absent field means: an error, unless the type is an option.
trait FieldDefault: Sized {
    fn absent() -> Option<Self> {
        None
    }
}

impl FieldDefault for u64 {}
impl FieldDefault for u32 {}
impl FieldDefault for String {}
impl FieldDefault for MessageId {}
impl FieldDefault for EpochEnd {}
impl FieldDefault for TurnEnd {}
impl FieldDefault for EffectKind {}
impl FieldDefault for SurfaceMessage {}
impl FieldDefault for Vec<MessageId> {}
impl FieldDefault for Vec<Seq> {}
impl<T> FieldDefault for Option<T> {
    fn absent() -> Option<Self> {
        Some(None)
    }
}

bodies! {
    /// What lies before was given, what comes after was lived.
    EndSeed = "session/end-seed" {}
    /// An epoch began.
    ActivationStart = "activation/start" {
        /// Its number, from 1.
        epoch: Epoch,
    }
    /// An epoch ended.
    ActivationEnd = "activation/end" {
        /// Its number.
        epoch: Epoch,
        /// Why.
        reason: EpochEnd,
    }
    /// A turn began.
    TurnStart = "turn/start" {
        /// Its number, from 1.
        turn: u64,
        /// The message that it serves.
        message: MessageId,
        /// Which attempt at that message, from 1.
        attempt: u32,
    }
    /// A turn ended.
    TurnEnd = "turn/end" {
        /// Its number.
        turn: u64,
        /// How.
        reason: TurnEnd,
    }
    /// Notes joined the turn.
    NoteJoined = "note/joined" {
        /// The turn.
        turn: u64,
        /// The notes, in inbox order.
        notes: Vec<MessageId>,
    }
    /// A step began.
    StepStart = "step/start" {
        /// The turn.
        turn: u64,
        /// The step within it, from 1.
        step: u32,
    }
    /// A step ended.
    StepEnd = "step/end" {
        /// The turn.
        turn: u64,
        /// The step.
        step: u32,
        /// Present and true if the step did not come to its own end: then it is no progress.
        #[serde(skip_serializing_if = "Option::is_none")]
        cut: Option<bool>,
    }
    /// A behaviour noted something, or an input that decides effects was recorded.
    Memo = "memo" {
        /// The turn.
        turn: u64,
        /// The message that the turn serves.
        message: MessageId,
        /// Name of a recorded input.
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// The text.
        text: String,
    }
    /// Something done to another session was accepted there.
    EffectAccepted = "effect/accepted" {
        /// The turn.
        turn: u64,
        /// The message that the turn serves.
        message: MessageId,
        /// The effect's key.
        key: String,
        /// What kind.
        kind: EffectKind,
        /// Whom it was done to.
        target: String,
        /// Id of the child or the message that it made.
        id: String,
    }
    /// A command answered.
    AnswerRecorded = "answer/recorded" {
        /// The message that the turn serves.
        message: MessageId,
        /// The attempt.
        attempt: u32,
        /// Everything it wrote.
        text: String,
    }
    /// The agent spoke.
    AssistantMessage = "assistant/message" {
        /// The turn.
        turn: u64,
        /// The step.
        step: u32,
        /// What it said.
        message: SurfaceMessage,
        /// Token usage of the model's answer.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "maybe_in_order")]
        usage: Option<Value>,
        /// Why the model stopped; absent if no model spoke. `cut` is an answer that was broken off: what had come of it by then.
        #[serde(skip_serializing_if = "Option::is_none")]
        stop: Option<String>,
    }
    /// A tool body is about to run.
    ToolCall = "tool/call" {
        /// The turn.
        turn: u64,
        /// The step.
        step: u32,
        /// The call's id.
        call_id: String,
        /// The tool.
        name: String,
        /// Raw JSON text.
        arguments: String,
    }
    /// A tool call was answered.
    ToolResult = "tool/result" {
        /// The turn.
        turn: u64,
        /// The step.
        step: u32,
        /// The answer.
        message: SurfaceMessage,
        /// Name and code of a failure.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "maybe_in_order")]
        error: Option<Value>,
    }
    /// A compaction began; nothing else may begin one before its end.
    CompactStart = "compact/start" {
        /// The turn within which it began, if one was open.
        #[serde(skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
    }
    /// What a compaction is about to put in the place of a run of current events.
    CompactSummary = "compact/summary" {
        /// First event of the run, in the order of the surface.
        start: Seq,
        /// Last event of the run.
        end: Seq,
        /// Every event of the run, in ascending order.
        shadowed_seqs: Vec<Seq>,
        /// The summary, if it is not the replacement's text as it stands.
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// The provider of the model that wrote it.
        #[serde(skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// The model that wrote it.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// How many tokens the run had for that model.
        #[serde(skip_serializing_if = "Option::is_none")]
        tokens: Option<u64>,
    }
    /// A compaction ended.
    CompactEnd = "compact/end" {
        /// The turn within which it began, if one was open.
        #[serde(skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
        /// Code of what went wrong; absent if the run was replaced.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    }
    /// A message left the inbox without a turn.
    MessageWithdrawn = "message/withdrawn" {
        /// The message.
        message: MessageId,
        /// Who took it back.
        by: String,
    }
    /// A request of another process was answered.
    ControlAnswered = "control/answered" {
        /// The request.
        control: MessageId,
        /// What was asked.
        op: String,
        /// `done`, or an error code.
        outcome: String,
    }
}

impl Body {
    /// Tells whether events of this type change the surface.
    pub fn is_surface(&self) -> bool {
        self.surface_message().is_some()
    }

    /// Returns the message that the surface shows.
    pub fn surface_message(&self) -> Option<&SurfaceMessage> {
        match self {
            Self::UserMessage(message) | Self::AssistantMessage { message, .. } | Self::ToolResult { message, .. } => Some(message),
            _ => None,
        }
    }

    /// Puts the body in its place, appended to the surface if it is of a surface type.
    pub fn at(self, seq: Seq, time: u64) -> Event {
        let surface_op = self.is_surface().then_some(SurfaceOp::Append);
        Event { seq, time, body: self, surface_op, source_event_seqs: None, ignorable: false }
    }

    /// Makes the `user/message` of a message that became visible.
    pub fn user_message(message: &crate::message::Message) -> Self {
        Self::UserMessage(SurfaceMessage { id: message.id.clone(), role: Role::User, content: message.content.clone(), source: message.source.clone() })
    }
}
