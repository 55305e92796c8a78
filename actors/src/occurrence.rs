//! Occurrences: what subscribers are told. Information only; a slow subscriber loses the oldest.

use std::sync::Arc;

use greenroom_session::{
    event::{EpochEnd, TurnEnd},
    id::{Epoch, MessageId, SessionId},
};

/// Something that happened to a live session. Told after it became durable.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Occurrence {
    /// A child was created.
    Created {
        /// The child.
        session: SessionId,
        /// Its parent.
        parent: SessionId,
        /// Its label.
        label: Option<Arc<str>>,
    },
    /// An epoch began.
    Activated {
        /// The session.
        session: SessionId,
        /// The epoch.
        epoch: Epoch,
    },
    /// A turn began.
    TurnStarted {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: u64,
        /// The message that it serves.
        message: MessageId,
        /// Which attempt.
        attempt: u32,
    },
    /// A turn ended.
    TurnEnded {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: u64,
        /// How.
        reason: TurnEnd,
    },
    /// An epoch ended.
    Ended {
        /// The session.
        session: SessionId,
        /// The epoch.
        epoch: Epoch,
        /// Why.
        reason: EpochEnd,
    },
    /// A session with work could not be activated; the work stays pending.
    NotActivated {
        /// The session.
        session: SessionId,
        /// Stable code.
        code: &'static str,
        /// What is wrong.
        reason: String,
    },
}
