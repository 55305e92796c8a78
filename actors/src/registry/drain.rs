//! Draining: having sessions end, children first, and giving up on an end that does not come.
//!
//! Everybody who is to end is put aside first, parents before their children, so that nobody begins anything while others end. Then whoever owns nobody
//! any more is ended. An end that takes too long is given up: the entry goes, the next epoch fences what may still be written, and whatever comes of it late
//! finds another incarnation.

use std::{collections::HashSet, sync::Arc};

use greenroom_session::{
    event::{EpochEnd, TurnEnd},
    id::SessionId,
};
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::{
    entry::{Entry, State, refuse},
    message::{Incarnation, RegistryMessage},
    state::{RegistryState, is_kept},
};
use crate::{
    activation::Failure,
    closed::{Scopes, Underway},
    error::{ActivateError, TeardownFailure},
    live::LiveView,
    nudge::Nudge,
    race::race_point,
    services::Services,
    visit::visit,
};

/// Code of an end that did not come in time.
const OVERDUE: &str = "ACTIVATION_OVERDUE";

/// How often a session that was given up is visited, if others write to it meanwhile.
const VISITS: usize = 4;

/// A drain that goes on.
#[derive(Debug)]
pub(super) struct Draining {
    scopes: Scopes,
    /// The last start of anybody before it. Whoever starts there later is refused while it is closed, and belongs to a later epoch of the root when it is not.
    until: Incarnation,
    /// Who is live there and has not ended.
    left: HashSet<SessionId>,
    failures: Vec<TeardownFailure>,
    /// Keeps closed what may not be opened again before this is over.
    underway: Vec<Underway>,
    reply: oneshot::Sender<Vec<TeardownFailure>>,
    _nudge: Nudge,
}

impl Draining {
    fn concerns(&self, view: &LiveView, incarnation: Incarnation) -> bool {
        incarnation <= self.until && self.scopes.cover(view.id(), &view.lineage)
    }
}

impl RegistryState {
    /// Ends everybody.
    pub(super) fn drain_all(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>) {
        let all = self.entries.values().filter_map(|entry| entry.view()).cloned().collect();
        let starting: Vec<_> = self.entries.iter().filter(|(_, entry)| entry.view().is_none()).map(|(session, _)| session.clone()).collect();
        for session in starting {
            self.watch(myself, services, &session);
        }
        self.begin_ends(myself, services, all);
    }

    /// Ends everybody in these scopes, and answers when all have ended. What a host plays is left alone.
    pub(super) fn drain(
        &mut self,
        myself: &ActorRef<RegistryMessage>,
        services: &Arc<Services>,
        drained: (Scopes, Vec<Underway>),
        reply: oneshot::Sender<Vec<TeardownFailure>>,
    ) {
        let (scopes, underway) = drained;
        let covered = |view: &&Arc<LiveView>| !view.is_published() && scopes.cover(view.id(), &view.lineage);
        let all: Vec<_> = self.entries.values().filter_map(|entry| entry.view()).filter(covered).cloned().collect();
        let left = all.iter().map(|view| view.id().clone()).collect();
        // Those that come up are ended when they do; one that never does is not waited for longer than for an end.
        for session in services.closed.starting(&scopes) {
            self.watch(myself, services, &session);
        }
        self.drains.push(Draining { scopes, until: self.next, left, failures: Vec::new(), underway, reply, _nudge: Nudge::begin() });
        self.begin_ends(myself, services, all);
    }

    fn begin_ends(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, mut all: Vec<Arc<LiveView>>) {
        // Parents first, and in an order that a seed repeats.
        all.sort_by(|a, b| (a.header.depth, a.id()).cmp(&(b.header.depth, b.id())));
        for view in &all {
            view.put_aside();
        }
        for view in &all {
            self.end_if_due(myself, services, view);
        }
    }

    /// Notes that a session has come up, and ends it if it is one of those that are to end.
    pub(super) fn end_newcomer(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, view: &Arc<LiveView>) {
        if let (false, Some(incarnation)) = (view.is_published(), self.incarnation(view.id())) {
            for drain in self.drains.iter_mut().filter(|drain| drain.concerns(view, incarnation)) {
                drain.left.insert(view.id().clone());
            }
        }
        if self.is_to_end(services, view) {
            view.put_aside();
            self.end_if_due(myself, services, view);
        }
    }

    fn is_to_end(&self, services: &Services, view: &LiveView) -> bool {
        services.is_draining() || (!view.is_published() && self.is_drained(services, view))
    }

    /// Notes with the parent that a child of it ends before it does and has not settled: it may come back, and the parent with it.
    pub(super) fn note_cut_off(&self, services: &Services, child: &SessionId, parent: Option<&SessionId>) {
        if let Some(view) = parent.and_then(|parent| self.entries.get(parent)).and_then(Entry::view)
            && self.is_to_end(services, view)
        {
            view.note_cut_off(child.clone());
        }
    }

    fn is_drained(&self, services: &Services, view: &LiveView) -> bool {
        let by = |incarnation| self.drains.iter().any(|drain| drain.concerns(view, incarnation));
        services.closed.covers(view.id(), &view.lineage) || self.incarnation(view.id()).is_some_and(by)
    }

    fn incarnation(&self, session: &SessionId) -> Option<Incarnation> {
        self.entries.get(session).map(|entry| entry.incarnation)
    }

    /// Has an epoch end, if it is to end and nobody below it is left who ends before it.
    pub(super) fn end_if_due(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, view: &Arc<LiveView>) {
        let is_due = match (services.is_draining(), view.is_published()) {
            (true, _) => !self.owned.contains_key(view.id()),
            (false, true) => false,
            (false, false) => self.is_drained(services, view) && !is_kept(&self.owned, &self.entries, view.id()),
        };
        if !is_due {
            return;
        }
        // One that settles ends by itself, or stays and is told then.
        if self.entries.get(view.id()).is_some_and(|entry| matches!(entry.state, State::Live(_))) {
            view.shut_down();
        }
        self.watch(myself, services, view.id());
    }

    /// Has somebody tell when it is time to give up on a session.
    fn watch(&mut self, registry: &ActorRef<RegistryMessage>, services: &Services, session: &SessionId) {
        let Some(entry) = self.entries.get_mut(session).filter(|entry| entry.watch.is_none()) else { return };
        let (registry, time) = (registry.clone(), services.config.interrupt_grace + services.config.shutdown_grace);
        let overdue = RegistryMessage::Overdue { session: session.clone(), incarnation: entry.incarnation };
        let watch = tokio::spawn(async move {
            tokio::time::sleep(time).await;
            drop(registry.send_message(overdue));
        });
        entry.watch = Some(watch.abort_handle());
    }

    /// Notes what went wrong at an end.
    pub(super) fn fail(&mut self, session: &SessionId, failures: Vec<Failure>) {
        if failures.is_empty() {
            return;
        }
        let failures: Vec<_> = failures.into_iter().map(|(code, reason)| TeardownFailure { session: session.clone(), code, reason }).collect();
        for drain in self.drains.iter_mut().filter(|drain| drain.left.contains(session)) {
            drain.failures.extend(failures.iter().cloned());
        }
    }

    /// Notes that a start came to nothing that is in the way of a drain. Tells whether one is.
    pub(super) fn fail_start(&mut self, services: &Services, session: &SessionId, error: &ActivateError) -> bool {
        let Some(lineage) = services.closed.forget_start(session) else { return false };
        let mut any = false;
        for drain in self.drains.iter_mut().filter(|drain| drain.scopes.cover(session, &lineage)) {
            drain.failures.push(TeardownFailure { session: session.clone(), code: error.code(), reason: error.to_string() });
            drain.left.insert(session.clone());
            any = true;
        }
        any
    }

    /// Notes that a session has ended, whatever came of it.
    pub(super) fn gone(&mut self, session: &SessionId) {
        for drain in &mut self.drains {
            drain.left.remove(session);
        }
    }

    /// Gives up on an end, or on a start that is in the way of one, if it has not come.
    pub(super) fn overdue(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, session: SessionId, incarnation: Incarnation) {
        let Some(entry) = self.entry(&session, incarnation).filter(|entry| !entry.is_published()) else { return };
        let waiting = std::mem::take(&mut entry.waiting);
        let (view, parent) = (entry.view().cloned(), entry.parent.clone());
        refuse(waiting, &ActivateError::Draining);
        self.note_cut_off(services, &session, parent.as_ref());
        tracing::warn!(%session, code = OVERDUE, "a session did not end in time and is given up");
        let what = if let Some(view) = &view {
            view.give_up();
            view.pair.end(services, view, EpochEnd::Failed, &TurnEnd::Disposed);
            services.closed.open(&session, view.epoch);
            "it did not end in time"
        } else {
            "its start did not end in time"
        };
        let concerned = services.closed.forget_start(&session);
        for drain in &mut self.drains {
            if drain.left.contains(&session) || concerned.as_ref().is_some_and(|lineage| drain.scopes.cover(&session, lineage)) {
                drain.failures.push(TeardownFailure { session: session.clone(), code: OVERDUE, reason: what.to_owned() });
                // Until its next epoch has begun and ended, also if it was a start.
                drain.left.insert(session.clone());
            }
        }
        self.leave(myself, services, &session, false);
        fence(myself, services, session);
    }

    /// Answers the drains that have come to their end.
    pub(super) fn answer_drains(&mut self, services: &Services) {
        if self.drains.is_empty() {
            return;
        }
        let entries = &self.entries;
        let is_over = |drain: &mut Draining| {
            let is_awaited = |session: &SessionId| entries.get(session).is_some_and(|entry| entry.incarnation <= drain.until);
            drain.left.is_empty() && !services.closed.starting(&drain.scopes).iter().any(is_awaited)
        };
        for drain in self.drains.extract_if(.., is_over) {
            // Before the answer: whoever gets it may open at once what it has closed.
            drop(drain.underway);
            // Whoever asked may have given up.
            drop(drain.reply.send(drain.failures));
        }
    }
}

/// Has another epoch of a session begin and end, which is what keeps one that was given up from writing.
pub(super) fn fence(registry: &ActorRef<RegistryMessage>, services: &Arc<Services>, session: SessionId) {
    let (registry, services) = (registry.clone(), services.clone());
    tokio::spawn(async move {
        race_point!("before-fencing");
        let fence = async {
            for _ in 0..VISITS {
                if !matches!(visit(&services, &session, None).await, Ok(None)) || services.is_draining() {
                    break;
                }
            }
        };
        if tokio::time::timeout(services.config.shutdown_grace, fence).await.is_err() {
            tracing::warn!(%session, "the next epoch of a session that was given up could not begin");
        }
        drop(registry.send_message(RegistryMessage::Fenced { session }));
    });
}
