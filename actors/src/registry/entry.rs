//! What the Registry keeps of one session that is starting, live or closing.

use std::sync::Arc;

use greenroom_session::id::SessionId;
use tokio::{sync::oneshot, task::AbortHandle};

use super::message::Incarnation;
use crate::{error::ActivateError, live::LiveView, published::Publishing};

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) incarnation: Incarnation,
    pub(super) parent: Option<SessionId>,
    pub(super) state: State,
    /// Somebody knocked and nobody has looked since.
    pub(super) rewake: bool,
    pub(super) waiting: Vec<Waiting>,
    /// It asked to settle and was refused for its children.
    pub(super) wants_settle: bool,
    pub(super) idle: bool,
    /// Tells when to give up on its end.
    pub(super) watch: Option<AbortHandle>,
    pub(super) host: Host,
}

/// What a host has to do with a session.
#[derive(Debug)]
pub(super) enum Host {
    /// Nothing.
    None,
    /// It would publish it if its start should find nothing to do.
    Waits(Box<Publishing>),
    /// It plays it, or is about to.
    Plays,
}

impl Entry {
    pub(super) fn view(&self) -> Option<&Arc<LiveView>> {
        match &self.state {
            State::Live(view) | State::Closing(view) => Some(view),
            State::Starting { .. } => None,
        }
    }

    pub(super) fn is_published(&self) -> bool {
        matches!(self.host, Host::Plays)
    }

    /// Returns the host that waits, which then does no longer.
    pub(super) fn take_host(&mut self) -> Option<Box<Publishing>> {
        match std::mem::replace(&mut self.host, Host::None) {
            Host::Waits(publishing) => Some(publishing),
            host => {
                self.host = host;
                None
            }
        }
    }
}

/// Somebody who waits for a session to be live.
pub(super) type Waiting = oneshot::Sender<Result<Arc<LiveView>, ActivateError>>;

#[derive(Debug)]
pub(super) enum State {
    Starting {
        /// Another process has written to it meanwhile: it may have been asked something.
        asked: bool,
    },
    Live(Arc<LiveView>),
    Closing(Arc<LiveView>),
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.abort();
        }
    }
}

/// Answers those who wait for a session that does not come up.
pub(super) fn refuse(waiting: Vec<Waiting>, error: &ActivateError) {
    for reply in waiting {
        drop(reply.send(Err(error.clone())));
    }
}
