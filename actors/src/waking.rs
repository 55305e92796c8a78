//! Waking whoever is to serve what was handed to the journal, once it is there.

use std::{borrow::Cow, time::Duration};

use greenroom_session::{
    id::SessionId,
    store::{Done, Refused},
};

use crate::{error::WriteError, journal::Pending, live::LiveView, services::Services};

/// Wakes a session when it is dropped: not before what it is to serve is there, and not if that was refused.
///
/// Whoever waits for the answer may give up, or be dropped, while the write is still under way. A wake would come too early then: the session would look, find
/// nothing, and be asleep when the message comes. So the answer is given up in such a way that the journal wakes in the place of this.
pub(crate) struct Waking<'a> {
    services: &'a Services,
    session: Cow<'a, SessionId>,
    /// The session as the sender has just seen it.
    live: Option<&'a LiveView>,
    parent: Option<&'a SessionId>,
    /// Taken when its result is known.
    pending: Option<Pending>,
    /// Whether the session is to be woken at all.
    wakes: bool,
    due: bool,
}

impl<'a> Waking<'a> {
    pub(crate) fn new(services: &'a Services, session: Cow<'a, SessionId>, parent: Option<&'a SessionId>, pending: Pending) -> Self {
        Self { services, session, live: None, parent, pending: Some(pending), wakes: true, due: false }
    }

    /// Knows the session as it was live just now.
    pub(crate) fn live(mut self, live: Option<&'a LiveView>) -> Self {
        self.live = live;
        self
    }

    /// Wakes only if `wakes`.
    pub(crate) fn only_if(mut self, wakes: bool) -> Self {
        self.wakes = wakes;
        self
    }

    /// Waits for the answer of the journal, not longer than this.
    ///
    /// # Errors
    /// [`WriteError::TimedOut`] if there is none by then; the operation goes on, and wakes.
    ///
    /// # Cancel safety
    /// The operation goes on, and wakes.
    pub(crate) async fn done_within(&mut self, time: Duration) -> Result<Done, WriteError> {
        if let Some(pending) = &mut self.pending
            && !pending.known_within(time).await
        {
            return Err(WriteError::TimedOut);
        }
        let done = self.pending.take().map_or(Err(WriteError::Ended), Pending::now);
        self.due = is_there(&done);
        done
    }

    /// Wakes nobody: what is there is a stranger's.
    pub(crate) fn forget(&mut self) {
        self.due = false;
    }
}

impl Drop for Waking<'_> {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.due = pending.forsake().is_some_and(|done| is_there(&done));
        }
        // What was live may have ended since; then the table or the Registry knows better.
        if self.wakes && self.due && !self.live.is_some_and(LiveView::wake) {
            self.services.wake(&self.session, self.parent);
        }
    }
}

/// Tells whether what was to be written may be there. An earlier acceptance of the same may have been cut off before its wake, and one wake too many costs a look.
fn is_there(done: &Result<Done, WriteError>) -> bool {
    match done {
        Err(WriteError::Refused(refused)) => matches!(refused, Refused::Exists(_)),
        Err(WriteError::NotCommitted(_)) => false,
        Ok(_) | Err(_) => true,
    }
}
