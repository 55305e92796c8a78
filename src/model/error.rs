//! Why a model gave no answer.

use std::time::Duration;

use greenroom_actors::TurnError;
use thiserror::Error;

/// Why a model gave no answer.
///
/// The message is for a person. It never holds a key, and is no longer than [`ModelError::MOST_BYTES`].
///
/// ```
/// use greenroom::model::{ModelError, ModelErrorCode};
/// let error = ModelError::new(ModelErrorCode::RateLimit, "slow down");
/// assert_eq!((error.code(), error.is_passing(), error.to_string().as_str()), ("MODEL_RATE_LIMIT", true, "slow down"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ModelError {
    /// What kind of failure.
    pub code: ModelErrorCode,
    /// What happened.
    pub message: String,
    /// How long the provider asks to be left alone.
    pub retry_after: Option<Duration>,
}

/// What kind of failure.
///
/// ```
/// use greenroom::model::{ModelError, ModelErrorCode};
/// let error = ModelError::new(ModelErrorCode::RateLimit, "slow down");
/// assert_eq!((error.code(), error.is_passing()), ("MODEL_RATE_LIMIT", true));
/// assert!(!ModelError::new(ModelErrorCode::Auth, "no such key").is_passing());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelErrorCode {
    /// It said nothing, and asked for nothing.
    EmptyResponse,
    /// Too many requests, or the provider is overloaded.
    RateLimit,
    /// The provider failed.
    Server,
    /// It took too long.
    Timeout,
    /// The connection failed, or the answer broke off.
    Transport,
    /// The request is longer than the model can take in.
    ContextFull,
    /// The key is missing or refused.
    Auth,
    /// The provider takes no such request.
    BadRequest,
    /// The answer is none: it cannot be read.
    Content,
    /// A recording has another request in this place.
    ReplayDiffers,
}

impl ModelError {
    /// The most bytes of a message.
    pub const MOST_BYTES: usize = 2 * 1024;

    /// Makes an error; a message that is too long is cut.
    pub fn new(code: ModelErrorCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > Self::MOST_BYTES {
            let mut end = Self::MOST_BYTES - '…'.len_utf8();
            while !message.is_char_boundary(end) {
                end -= 1;
            }
            message.truncate(end);
            message.push('…');
        }
        Self { code, message, retry_after: None }
    }

    /// Says how long the provider asks to be left alone.
    #[must_use]
    pub fn retry_after(mut self, time: Option<Duration>) -> Self {
        self.retry_after = time;
        self
    }

    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self.code {
            ModelErrorCode::EmptyResponse => "MODEL_EMPTY_RESPONSE",
            ModelErrorCode::RateLimit => "MODEL_RATE_LIMIT",
            ModelErrorCode::Server => "MODEL_SERVER",
            ModelErrorCode::Timeout => "MODEL_TIMEOUT",
            ModelErrorCode::Transport => "MODEL_TRANSPORT",
            ModelErrorCode::ContextFull => "MODEL_CONTEXT_FULL",
            ModelErrorCode::Auth => "MODEL_AUTH",
            ModelErrorCode::BadRequest => "MODEL_BAD_REQUEST",
            ModelErrorCode::Content => "MODEL_CONTENT",
            ModelErrorCode::ReplayDiffers => "MODEL_REPLAY_DIFFERS",
        }
    }

    /// Tells whether the same request may do better a little later.
    pub fn is_passing(&self) -> bool {
        use ModelErrorCode::{EmptyResponse, RateLimit, Server, Timeout, Transport};
        matches!(self.code, EmptyResponse | RateLimit | Server | Timeout | Transport)
    }
}

impl From<ModelError> for TurnError {
    fn from(error: ModelError) -> Self {
        Self::new(error.code(), error.message)
    }
}
