//! Behaviours: what an agent does with one message.

use std::{future::Future, sync::Arc};

use futures::future::BoxFuture;
use thiserror::Error;

use crate::turn::Turn;

/// How a turn came to its end.
///
/// ```
/// use greenroom_actors::{Config, Turn, TurnEnd};
/// let mut config = Config::default();
/// config.behavior("short-winded", || |turn: Turn| async move {
///     turn.say("What I wanted to say is")?;
///     Ok(TurnEnd::MaxTokens) // the message is done with; its turn ends as `max_tokens`
/// });
/// assert!(config.behaviors.contains_key("short-winded"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnEnd {
    /// The work of the message is done.
    Completed,
    /// A model ran out of output tokens.
    MaxTokens,
}

/// Why a turn failed. The message is done with: it is recorded and not served again.
///
/// ```
/// use greenroom_actors::{TurnError, error::DeliverError};
/// let error = TurnError::new("NO_PAPER", "the printer is out of paper");
/// assert_eq!(error.to_string(), "NO_PAPER: the printer is out of paper");
/// // The errors of a turn's own operations become one by `?`, under their own code.
/// assert_eq!(TurnError::from(DeliverError::Draining).code, "DRAINING");
/// ```
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error("{code}: {message}")]
pub struct TurnError {
    /// Stable code, `UPPER_SNAKE`.
    pub code: String,
    /// What happened.
    pub message: String,
}

impl TurnError {
    /// Makes a failure.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

/// What an agent does with one message.
///
/// A behaviour lives as long as an Activation; what must outlast it belongs into the log ([`Turn::memo`], [`Turn::record`]) or is
/// derived from it ([`Turn::history`]). A turn may run again after a crash: the same effects in the same order are then the same
/// acceptances, so a behaviour that decides by its message, its notes and its records repeats nothing.
///
/// A closure is a behaviour too:
///
/// ```
/// use greenroom_actors::{Behavior, Turn, TurnEnd};
///
/// fn takes(_: impl Behavior) {}
/// takes(|turn: Turn| async move {
///     turn.say(format!("you said {:?}", turn.text()))?;
///     Ok(TurnEnd::Completed)
/// });
/// ```
pub trait Behavior: Send + 'static {
    /// Serves one message. Dropped at an await if the turn is interrupted and does not heed [`Turn::cancelled`] in time.
    ///
    /// # Errors
    /// [`TurnError`] records the turn as failed; the queue goes on.
    fn turn(&mut self, turn: Turn) -> BoxFuture<'_, Result<TurnEnd, TurnError>>;
}

impl<F, Fut> Behavior for F
where
    F: FnMut(Turn) -> Fut + Send + 'static,
    Fut: Future<Output = Result<TurnEnd, TurnError>> + Send + 'static,
{
    fn turn(&mut self, turn: Turn) -> BoxFuture<'_, Result<TurnEnd, TurnError>> {
        Box::pin(self(turn))
    }
}

impl Behavior for Box<dyn Behavior> {
    fn turn(&mut self, turn: Turn) -> BoxFuture<'_, Result<TurnEnd, TurnError>> {
        (**self).turn(turn)
    }
}

/// Makes a behaviour for one Activation.
pub type Factory = Arc<dyn Fn() -> Box<dyn Behavior> + Send + Sync>;
