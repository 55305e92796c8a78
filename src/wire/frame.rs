//! What a line is.

use std::{
    borrow::Cow,
    fmt::{self, Display},
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::{error::Category, value::RawValue};

use super::{Limits, Protocol, Refusal};

/// Most bytes of a request's id.
const ID_BYTES: usize = 1_024;
/// The part of an error that tells that it was the number of values.
const TOO_MANY: &str = "too many values";

/// The id of a request.
///
/// ```
/// use greenroom::wire::RequestId;
/// assert_eq!(RequestId::Text("a\"b".into()).to_string(), r#""a\"b""#); // as it stands in JSON
/// assert_eq!(RequestId::Number(-1).to_string(), "-1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// An integer.
    Number(i64),
    /// A string.
    Text(String),
}

impl RequestId {
    pub(super) fn parse(json: &str) -> Option<Self> {
        if json.len() > ID_BYTES {
            return None;
        }
        match serde_json::from_str(json).ok()? {
            serde_json::Value::String(text) => Some(Self::Text(text)),
            value => value.as_i64().map(Self::Number),
        }
    }
}

impl Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => serde_json::Value::from(text.as_str()).fmt(f),
        }
    }
}

/// One message of JSON-RPC, as far as the wire looks into it.
///
/// ```
/// use greenroom::wire::{Frame, Limits, RequestId};
/// fn read(line: &str) -> Result<Frame<'_>, greenroom::wire::Refusal> {
///     Frame::read(line.as_bytes(), &Limits::default())
/// }
/// assert_eq!(read(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)?, Frame::Request { id: RequestId::Number(1), params: None });
/// assert_eq!(read(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)?, Frame::Answer { id: Some(RequestId::Number(1)) });
/// assert_eq!(read("[]").unwrap_err().code, -32600);
/// # Ok::<(), greenroom::wire::Refusal>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'a> {
    /// It is to be answered under this id.
    Request {
        /// Its id.
        id: RequestId,
        /// The JSON text of its parameters.
        params: Option<&'a str>,
    },
    /// It is not to be answered.
    Notification {
        /// Its method.
        method: Cow<'a, str>,
        /// The JSON text of its parameters.
        params: Option<&'a str>,
    },
    /// It answers a request.
    Answer {
        /// The id of that request, where the answer has one.
        id: Option<RequestId>,
    },
}

#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// A member that is `null` is there.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Frame<'a> {
    /// Looks at a line, without its line feed.
    ///
    /// # Errors
    /// What is wrong with it, as the answer to its sender. A library that is given whatever passes can answer it.
    pub fn read(line: &'a [u8], limits: &Limits) -> Result<Self, Refusal> {
        let text = std::str::from_utf8(line)
            .map_err(|error| Refusal::parse(format!("the line is not UTF-8: the first bad byte is byte {}", error.valid_up_to() + 1)))?;
        check(text, limits.values)?;
        if !text.trim_start().starts_with('{') {
            return Err(Refusal::invalid(None, "a message must be one object"));
        }
        let members: Members<'a> = serde_json::from_str(text).map_err(|_| Refusal::invalid(None, "a member of the message is there twice"))?;
        members.frame()
    }

    /// Refuses a request that the protocol's library would answer without its id, so that its sender would wait for ever.
    ///
    /// # Errors
    /// What is wrong with it, under its id.
    pub fn check(&self, protocol: Protocol) -> Result<(), Refusal> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, default, rename = "_meta", deserialize_with = "present")]
            meta: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Meta<'a> {
            #[serde(borrow, default, deserialize_with = "present")]
            progress_token: Option<&'a RawValue>,
        }
        let Self::Request { id, params: Some(params) } = self else { return Ok(()) };
        if protocol != Protocol::Mcp {
            return Ok(());
        }
        let invalid = |message| Refusal::invalid(Some(id.clone()), message);
        let params: Params<'_> = serde_json::from_str(params).map_err(|_| invalid("`_meta` is there twice"))?;
        let Some(meta) = params.meta else { return Ok(()) };
        if !meta.get().starts_with('{') {
            return Err(invalid("`_meta` must be an object"));
        }
        let meta: Meta<'_> = serde_json::from_str(meta.get()).map_err(|_| invalid("`progressToken` is there twice"))?;
        match meta.progress_token {
            Some(token) if RequestId::parse(token.get()).is_none() => {
                Err(invalid("`progressToken` must be an integer of 64 bits or a string of at most 1,024 bytes"))
            }
            _ => Ok(()),
        }
    }

    /// Returns which request it cancels.
    pub fn cancels(&self, protocol: Protocol) -> Option<RequestId> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancelled<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        match self {
            Self::Notification { method, params: Some(params) } if method == protocol.cancel_method() => {
                let cancelled: Cancelled<'_> = serde_json::from_str(params).ok()?;
                RequestId::parse(cancelled.request_id.get())
            }
            _ => None,
        }
    }
}

impl<'a> Members<'a> {
    fn frame(self) -> Result<Frame<'a>, Refusal> {
        let id = self.id.map(|id| RequestId::parse(id.get()));
        let known = id.clone().flatten();
        let invalid = |message: &'static str| Refusal::invalid(known.clone(), message);
        if self.jsonrpc.and_then(|version| serde_json::from_str::<Cow<'_, str>>(version.get()).ok()).as_deref() != Some("2.0") {
            return Err(invalid("`jsonrpc` must be \"2.0\""));
        }
        let Some(method) = self.method else {
            return match (self.result, self.error) {
                (Some(_), None) | (None, Some(_)) => Ok(Frame::Answer { id: known }),
                _ => Err(invalid("`method` is missing")),
            };
        };
        let method = serde_json::from_str(method.get()).map(Cow::Owned).map_err(|_| invalid("`method` must be a string"))?;
        if self.params.is_some_and(|params| !params.get().starts_with('{')) {
            // JSON-RPC would take an array, and neither protocol has one.
            return Err(invalid("`params` must be an object"));
        }
        match id {
            None => Ok(Frame::Notification { method, params: self.params.map(RawValue::get) }),
            Some(Some(id)) => Ok(Frame::Request { id, params: self.params.map(RawValue::get) }),
            Some(None) => Err(invalid("`id` must be an integer of 64 bits or a string of at most 1,024 bytes")),
        }
    }
}

/// Reads every value of a text and keeps none. A parser that keeps some stops at the same depth and at the same escapes.
fn check(text: &str, values: usize) -> Result<(), Refusal> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let mut left = values;
    let checked = Check(&mut left).deserialize(&mut deserializer).and_then(|()| deserializer.end());
    checked.map_err(|error| {
        if error.classify() == Category::Data {
            return Refusal::invalid(None, format!("the line has {TOO_MANY}, the most is {values}"));
        }
        // serde_json says where, and repeats nothing of the text.
        let said = error.to_string();
        let what = said.rsplit_once(" at line ").map_or(said.as_str(), |(what, _)| what);
        Refusal::parse(format!("the line is not JSON: {what} at column {}", error.column()))
    })
}

struct Check<'a>(&'a mut usize);

impl Check<'_> {
    fn count<E: serde::de::Error>(&mut self) -> Result<(), E> {
        *self.0 = self.0.checked_sub(1).ok_or_else(|| E::custom(TOO_MANY))?;
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Check<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<(), D::Error> {
        self.count::<D::Error>()?;
        deserializer.deserialize_any(self)
    }
}

macro_rules! leaves {
    ($($visit:ident: $value:ty),*) => { $( fn $visit<E>(self, _: $value) -> Result<(), E> { Ok(()) } )* };
}

/// As deep as the parser goes, which is 128 levels.
impl<'de> Visitor<'de> for Check<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    leaves!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Check(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while members.next_key_seed(Check(self.0))?.is_some() {
            members.next_value_seed(Check(self.0))?;
        }
        Ok(())
    }
}
