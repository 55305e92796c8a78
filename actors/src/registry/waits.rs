//! Who waits for the Registry: for a session without live children, for one that is gone, for quiet, for the end of everything.

use std::collections::{BTreeMap, BTreeSet};

use greenroom_session::id::SessionId;
use tokio::sync::oneshot;

use super::{
    entry::{Entry, State},
    state::{RegistryState, is_kept},
};

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct Waits {
    // In order, so that whoever is told at the same time is told in the same order by every run of one seed.
    pub(super) childless: BTreeMap<SessionId, Vec<oneshot::Sender<()>>>,
    pub(super) gone: BTreeMap<SessionId, Vec<oneshot::Sender<()>>>,
    /// Sessions whose waiters may be due; no others are looked at when a message has been handled, or each would cost as much as there are who wait.
    pub(super) changed: BTreeSet<SessionId>,
    pub(super) quiet: Vec<oneshot::Sender<()>>,
    /// A session that was not quiet when it was last looked at: while it is not, no other needs to be looked at.
    restless: Option<SessionId>,
    pub(super) drained: Vec<oneshot::Sender<()>>,
}

impl Waits {
    /// Has somebody told when no live session is owned by `parent`.
    pub(super) fn for_childless(&mut self, parent: SessionId, reply: oneshot::Sender<()>) {
        self.changed.insert(parent.clone());
        enlist(self.childless.entry(parent).or_default(), reply);
    }

    /// Has somebody told when a session has no entry.
    pub(super) fn for_gone(&mut self, session: SessionId, reply: oneshot::Sender<()>) {
        self.changed.insert(session.clone());
        enlist(self.gone.entry(session).or_default(), reply);
    }

    /// Has somebody told when nothing is live but kept sessions without work.
    pub(super) fn for_quiet(&mut self, reply: oneshot::Sender<()>) {
        enlist(&mut self.quiet, reply);
    }

    /// Returns how many wait.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let keyed: usize = self.childless.values().chain(self.gone.values()).map(Vec::len).sum();
        keyed + self.quiet.len() + self.drained.len()
    }
}

impl RegistryState {
    /// Tells whether nothing is live but kept sessions without work.
    fn is_quiet(&mut self) -> bool {
        let is_kept_idle = |session: &SessionId, entry: &Entry| entry.idle && matches!(entry.state, State::Live(_)) && self.pins.has(session);
        // What its host does with a session that it plays is not waited for.
        let is_restless = |session: &SessionId, entry: &Entry| !(entry.is_published() || is_kept_idle(session, entry));
        let still = self.waits.restless.as_ref().and_then(|session| self.entries.get_key_value(session)).filter(|(session, entry)| is_restless(session, entry));
        if still.is_none() {
            self.waits.restless = self.entries.iter().find(|(session, entry)| is_restless(session, entry)).map(|(session, _)| session.clone());
        }
        self.waits.restless.is_none()
    }

    pub(super) fn answer_waiters(&mut self) {
        let changed = std::mem::take(&mut self.waits.changed);
        tell(&mut self.waits.childless, &changed, |parent| !is_kept(&self.owned, &self.entries, parent));
        tell(&mut self.waits.gone, &changed, |session| !self.entries.contains_key(session));
        if !self.waits.quiet.is_empty() && self.is_quiet() {
            for reply in self.waits.quiet.drain(..) {
                reply.send(()).ok();
            }
        }
        if self.entries.is_empty() {
            for reply in self.waits.drained.drain(..) {
                reply.send(()).ok();
            }
        }
    }
}

/// Adds somebody who waits, and lets go of those who have given up.
fn enlist(waiting: &mut Vec<oneshot::Sender<()>>, reply: oneshot::Sender<()>) {
    waiting.retain(|reply| !reply.is_closed());
    waiting.push(reply);
}

/// Answers those whose condition holds, among those who wait for what has changed.
fn tell(waiting: &mut BTreeMap<SessionId, Vec<oneshot::Sender<()>>>, changed: &BTreeSet<SessionId>, holds: impl Fn(&SessionId) -> bool) {
    if waiting.is_empty() {
        return;
    }
    for session in changed.iter().filter(|session| holds(session)) {
        for reply in waiting.remove(session).into_iter().flatten() {
            reply.send(()).ok();
        }
    }
}
