//! Why a request was not done, in the words of the client's side.

use greenroom_actors::{
    error::{ActivateError, DeliverError, ListError, QueryError},
    host::RootError,
};
use greenroom_session::{event::TurnEnd, id::SessionId};
use serde_json::{Map, Value};

/// Which number of JSON-RPC says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What was asked makes no sense, or is not allowed.
    Params,
    /// There is no such session.
    NotFound,
    /// It could not be done.
    Failed,
}

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) message: String,
    /// The stable code, and what else is known.
    pub(super) data: Map<String, Value>,
}

impl Fault {
    pub(super) fn new(kind: Kind, code: &str, message: impl Into<String>) -> Self {
        let mut data = Map::new();
        data.insert("code".into(), code.into());
        Self { kind, message: message.into(), data }
    }

    pub(super) fn params(code: &str, message: impl Into<String>) -> Self {
        Self::new(Kind::Params, code, message)
    }

    pub(super) fn fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.into(), value.into());
        self
    }

    /// A session that this connection has not opened.
    pub(super) fn not_open(session: &str) -> Self {
        let message = format!("session {session} is not open here: load or resume it first");
        Self::new(Kind::NotFound, "SESSION_NOT_FOUND", message).fact("sessionId", session)
    }

    pub(super) fn ending() -> Self {
        Self::new(Kind::Failed, "DRAINING", "the server is about to end; what was accepted stays accepted")
    }

    /// A turn that came to no good end; `None` if it did.
    pub(super) fn of_turn(turn: u64, reason: &TurnEnd) -> Option<Self> {
        match reason {
            TurnEnd::Error { code, message } => Some(Self::new(Kind::Failed, code, message.clone()).fact("turn", turn)),
            _ => None,
        }
    }

    pub(super) fn of_list(error: &ListError) -> Self {
        let kind = if matches!(error.code(), "INVALID_LIMIT" | "INVALID_CURSOR") { Kind::Params } else { Kind::Failed };
        Self::new(kind, error.code(), error.to_string())
    }

    pub(super) fn of_delivery(error: &DeliverError) -> Self {
        let kind = if matches!(error, DeliverError::Message(_) | DeliverError::Conflict(_)) { Kind::Params } else { Kind::Failed };
        Self::new(kind, error.code(), error.to_string())
    }

    pub(super) fn of_root(session: Option<&SessionId>, error: &RootError) -> Self {
        let kind = match error {
            RootError::Activate(ActivateError::NotFound(_)) => Kind::NotFound,
            RootError::NotARoot(_) => Kind::Params,
            _ => Kind::Failed,
        };
        let fault = Self::new(kind, error.code(), error.to_string());
        match session {
            Some(session) => fault.fact("sessionId", session.as_str()),
            None => fault,
        }
    }

    pub(super) fn of_query(session: &SessionId, error: &QueryError) -> Self {
        let fault = match error {
            // As whoever resumes or prompts what does not exist is told.
            QueryError::SessionNotFound(_) => Self::new(Kind::NotFound, "SESSION_NOT_FOUND", error.to_string()),
            _ => Self::new(Kind::Failed, error.code(), error.to_string()),
        };
        fault.fact("sessionId", session.as_str())
    }
}
