//! What the Registry is told.

use std::sync::Arc;

use greenroom_session::{event::EpochEnd, id::SessionId};
use tokio::sync::oneshot;

use crate::{
    activation::Failure,
    closed::{Pass, Scopes, Underway},
    error::{ActivateError, TeardownFailure},
    live::LiveView,
    published::Publishing,
};

/// Counts starts, so that a late message of one is never taken for another's.
pub(crate) type Incarnation = u64;

/// What the Registry is told.
#[derive(Debug)]
pub(crate) enum RegistryMessage {
    /// A session may have work.
    Wake {
        /// The session.
        session: SessionId,
        /// Its parent, where the sender knows it.
        parent: Option<SessionId>,
    },
    /// Start a session if need be; whoever asks has pinned it.
    Ensure {
        /// The session.
        session: SessionId,
        /// Gets the live session.
        reply: oneshot::Sender<Result<Arc<LiveView>, ActivateError>>,
    },
    /// Have a session live that its host plays itself, if nobody else has.
    Publish(Box<Publishing>),
    /// A handle that kept a session is gone.
    Release {
        /// The session.
        session: SessionId,
    },
    /// A session that is starting is the child of this one.
    Owned {
        /// The session.
        session: SessionId,
        /// Which start.
        incarnation: Incarnation,
        /// Its parent.
        parent: SessionId,
    },
    /// A start has come to its end.
    Started {
        /// The session.
        session: SessionId,
        /// Which start.
        incarnation: Incarnation,
        /// The live session; `None` if there was nothing to do.
        result: Result<Option<Arc<LiveView>>, ActivateError>,
        /// Dropped when this has been heard.
        pass: Option<Pass<'static>>,
    },
    /// An idle Activation asks whether it may settle.
    Settle {
        /// The session.
        session: SessionId,
        /// Which start.
        incarnation: Incarnation,
        /// Gets the answer.
        reply: oneshot::Sender<bool>,
    },
    /// An Activation that was allowed to settle goes on.
    Stays {
        /// The session.
        session: SessionId,
        /// Which start.
        incarnation: Incarnation,
    },
    /// An Activation has ended.
    Ended {
        /// The session.
        session: SessionId,
        /// Which start.
        incarnation: Incarnation,
        /// Why.
        reason: EpochEnd,
        /// Whether somebody knocked while it ended.
        knocked: bool,
        /// What went wrong.
        failures: Vec<Failure>,
    },
    /// Answer when everything that was said before has been heard.
    Heard {
        /// Gets told.
        reply: oneshot::Sender<()>,
    },
    /// Answer when no live session is owned by this one.
    WhenChildless {
        /// The parent.
        parent: SessionId,
        /// Gets told.
        reply: oneshot::Sender<()>,
    },
    /// Answer when this session is neither starting nor live nor closing.
    WhenGone {
        /// The session.
        session: SessionId,
        /// Gets told.
        reply: oneshot::Sender<()>,
    },
    /// Answer when nothing is live but kept sessions without work.
    WhenQuiet {
        /// Gets told.
        reply: oneshot::Sender<()>,
    },
    /// Answer how many wait for any of these.
    #[cfg(test)]
    Waiting {
        /// Gets the number.
        reply: oneshot::Sender<usize>,
    },
    /// Other processes accepted messages for these sessions; empty if it is only time to look.
    Foreign {
        /// The sessions.
        sessions: Vec<SessionId>,
    },
    /// End every Activation in these scopes, children first, and answer when all have ended. They are closed already.
    Drain {
        /// What is drained.
        scopes: Scopes,
        /// Kept until all have ended.
        underway: Vec<Underway>,
        /// Gets what went wrong.
        reply: oneshot::Sender<Vec<TeardownFailure>>,
    },
    /// It is time to give up on an end that has not come.
    Overdue {
        /// The session.
        session: SessionId,
        /// Which start.
        incarnation: Incarnation,
    },
    /// Another epoch of a session that was given up has begun and ended.
    Fenced {
        /// The session.
        session: SessionId,
    },
    /// End every Activation, children first, and answer when all have ended.
    DrainAll {
        /// Gets told.
        reply: oneshot::Sender<()>,
    },
}
