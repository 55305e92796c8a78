//! Answers that the wire gives itself.

use std::borrow::Cow;

use super::RequestId;

/// What is wrong with a line: the error that its sender is answered with.
///
/// ```
/// use greenroom::wire::{Frame, Limits};
/// let refusal = Frame::read(br#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#, &Limits::default()).unwrap_err();
/// assert_eq!(refusal.line(), r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32600,"message":"`jsonrpc` must be \"2.0\""}}"#);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The request's id, where it has one that can be answered.
    pub id: Option<RequestId>,
    /// The code of JSON-RPC: -32700 for what is no JSON, -32600 for what is no message, -32800 for what was cancelled.
    pub code: i32,
    /// What is wrong, in a few words, none of them the sender's.
    pub message: Cow<'static, str>,
}

impl Refusal {
    pub(super) fn parse(message: impl Into<Cow<'static, str>>) -> Self {
        Self { id: None, code: -32700, message: message.into() }
    }

    pub(super) fn invalid(id: Option<RequestId>, message: impl Into<Cow<'static, str>>) -> Self {
        Self { id, code: -32600, message: message.into() }
    }

    pub(super) fn cancelled(id: RequestId) -> Self {
        Self { id: Some(id), code: -32800, message: "the request was cancelled".into() }
    }

    /// Returns the line that answers, without a line feed.
    pub fn line(&self) -> String {
        let id = self.id.as_ref().map_or_else(|| "null".to_owned(), ToString::to_string);
        let message = serde_json::Value::from(self.message.as_ref());
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{},"message":{message}}}}}"#, self.code)
    }
}
