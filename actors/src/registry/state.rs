//! What the Registry knows: one entry per session that is starting, live or closing, who is owned by whom, and who waits for what.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use greenroom_session::{event::EpochEnd, id::SessionId};
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::message::{Incarnation, RegistryMessage};
use crate::{
    activation::{ActivationMessage, StartRequest, start},
    error::{ActivateError, WriteError},
    live::LiveView,
    occurrence::Occurrence,
    pins::Pins,
    services::Services,
};

#[derive(Debug)]
pub(super) struct Entry {
    incarnation: Incarnation,
    parent: Option<SessionId>,
    state: State,
    /// Somebody knocked and nobody has looked since.
    rewake: bool,
    waiting: Vec<Waiting>,
    /// It asked to settle and was refused for its children.
    wants_settle: bool,
    idle: bool,
}

/// Somebody who waits for a session to be live.
type Waiting = oneshot::Sender<Result<Arc<LiveView>, ActivateError>>;

#[derive(Debug)]
enum State {
    Starting {
        /// Another process has written to it meanwhile: it may have been asked something.
        asked: bool,
    },
    Live(Arc<LiveView>),
    Closing(Arc<LiveView>),
}

#[derive(Debug)]
pub(crate) struct RegistryState {
    pub(super) services: Arc<OnceLock<Weak<Services>>>,
    pub(super) entries: HashMap<SessionId, Entry>,
    pub(super) owned: HashMap<SessionId, HashSet<SessionId>>,
    /// Sessions that could not be activated, and why: what looks for work by itself leaves them alone.
    pub(super) refused: HashMap<SessionId, &'static str>,
    /// Sessions that another process held when they were to be started, and that are looked at once more.
    pub(super) held: HashSet<SessionId>,
    pub(super) next: Incarnation,
    // In order, so that whoever is told at the same time is told in the same order by every run of one seed.
    pub(super) childless: BTreeMap<SessionId, Vec<oneshot::Sender<()>>>,
    pub(super) gone: BTreeMap<SessionId, Vec<oneshot::Sender<()>>>,
    /// Sessions whose waiters may be due; no others are looked at when a message has been handled, or each would cost as much as there are who wait.
    pub(super) changed: BTreeSet<SessionId>,
    pub(super) quiet: Vec<oneshot::Sender<()>>,
    /// A session that was not quiet when it was last looked at: while it is not, no other needs to be looked at.
    pub(super) restless: Option<SessionId>,
    pub(super) drained: Vec<oneshot::Sender<()>>,
    pub(super) pins: Pins,
}

/// Pause before a session whose epoch failed is started again.
const FAILED_PAUSE: Duration = Duration::from_millis(250);

impl RegistryState {
    fn entry(&mut self, session: &SessionId, incarnation: Incarnation) -> Option<&mut Entry> {
        self.entries.get_mut(session).filter(|entry| entry.incarnation == incarnation)
    }

    pub(super) fn wake(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, session: SessionId, parent: Option<SessionId>) {
        match self.entries.get_mut(&session) {
            Some(entry) => {
                entry.idle = false;
                // A start by somebody who did not know the parent: whoever waits for the parent's children must find it owned.
                if let (None, Some(parent)) = (&entry.parent, &parent) {
                    entry.parent = Some(parent.clone());
                    self.owned.entry(parent.clone()).or_default().insert(session.clone());
                }
                match &entry.state {
                    State::Starting { .. } => entry.rewake = true,
                    State::Live(view) | State::Closing(view) => {
                        if !view.wake() {
                            entry.rewake = true;
                        }
                    }
                }
            }
            None => self.start(myself, services, session, parent, Vec::new()),
        }
    }

    pub(super) fn ensure(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, session: SessionId, reply: Waiting) {
        match self.entries.get_mut(&session) {
            Some(entry) => match &entry.state {
                State::Live(view) if view.is_open() => drop(reply.send(Ok(view.clone()))),
                _ => {
                    entry.rewake = true;
                    entry.waiting.push(reply);
                }
            },
            None => self.start(myself, services, session, None, vec![reply]),
        }
    }

    pub(super) fn release(&mut self, session: &SessionId) {
        if !self.pins.has(session)
            && let Some(Entry { state: State::Live(view), .. }) = self.entries.get(session)
        {
            view.wake();
        }
    }

    fn start(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, session: SessionId, parent: Option<SessionId>, waiting: Vec<Waiting>) {
        if services.is_draining() {
            refuse(waiting, &ActivateError::Draining);
            return;
        }
        self.next += 1;
        let incarnation = self.next;
        let keep = self.pins.has(&session);
        if let Some(parent) = &parent {
            self.owned.entry(parent.clone()).or_default().insert(session.clone());
        }
        self.entries.insert(
            session.clone(),
            Entry { incarnation, parent, state: State::Starting { asked: false }, rewake: false, waiting, wants_settle: false, idle: false },
        );
        services.live.begin(&session);
        let request = StartRequest { session, incarnation, keep };
        tokio::spawn(start(services.clone(), myself.clone(), request));
    }

    pub(super) fn started(
        &mut self,
        myself: &ActorRef<RegistryMessage>,
        services: &Arc<Services>,
        session: SessionId,
        incarnation: Incarnation,
        result: Result<Option<Arc<LiveView>>, ActivateError>,
    ) {
        let Some(entry) = self.entry(&session, incarnation) else {
            // Nobody waits for this start any more; what it opened must not stay open.
            if let Ok(Some(view)) = result {
                shut_down(&view);
            }
            return;
        };
        match result {
            Ok(Some(view)) => {
                self.refused.remove(&session);
                let Some(entry) = self.entries.get_mut(&session) else { return };
                let parent = view.header().parent.clone();
                let rewake = std::mem::take(&mut entry.rewake);
                let asked = matches!(entry.state, State::Starting { asked: true });
                let waiting = std::mem::take(&mut entry.waiting);
                entry.parent.clone_from(&parent);
                entry.state = State::Live(view.clone());
                if let Some(parent) = parent {
                    self.owned.entry(parent).or_default().insert(session);
                }
                services.live.insert(view.clone());
                // Only now may it act: whatever it says of itself meets an entry that knows it.
                drop(view.actor.send_message(ActivationMessage::Go));
                if asked {
                    drop(view.actor.send_message(ActivationMessage::Requests));
                }
                if rewake {
                    view.wake();
                }
                for reply in waiting {
                    drop(reply.send(Ok(view.clone())));
                }
                if services.is_draining() {
                    shut_down(&view);
                }
            }
            Ok(None) => {
                let again = entry.rewake || !entry.waiting.is_empty() || self.pins.has(&session);
                self.leave(myself, services, &session, again);
            }
            Err(error) => {
                refuse(std::mem::take(&mut entry.waiting), &error);
                let parent = entry.parent.clone();
                self.not_activated(services, &session, &error);
                self.leave(myself, services, &session, false);
                let again = match error {
                    // Its epoch may have begun all the same, and nobody else looks after what this process holds.
                    ActivateError::Write(_) | ActivateError::Deadline(_) | ActivateError::Read(_) => true,
                    // Whoever holds it serves what it has, unless it is there for a visit only: that is over by the next look.
                    ActivateError::Held { .. } => self.held.insert(session.clone()) || !self.held.remove(&session),
                    _ => false,
                };
                if again {
                    look_again(myself, session, parent);
                }
            }
        }
    }

    /// Says why a session with work does not run: once, until it runs or the reason changes.
    fn not_activated(&mut self, services: &Services, session: &SessionId, error: &ActivateError) {
        if matches!(error, ActivateError::Held { .. } | ActivateError::Draining) {
            return;
        }
        services.tell(|| Occurrence::NotActivated { session: session.clone(), code: error.code(), reason: error.to_string() });
        if self.refused.insert(session.clone(), error.code()) != Some(error.code()) {
            tracing::warn!(%session, code = error.code(), %error, "a session could not be activated");
        }
    }

    /// Removes an entry, and starts the session again if somebody waits for it.
    fn leave(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, session: &SessionId, again: bool) {
        let Some(entry) = self.entries.remove(session) else { return };
        services.live.remove(session);
        if self.gone.contains_key(session) {
            self.changed.insert(session.clone());
        }
        if let Some(parent) = &entry.parent
            && let Some(children) = self.owned.get_mut(parent)
        {
            children.remove(session);
            if children.is_empty() {
                self.owned.remove(parent);
                if self.childless.contains_key(parent) {
                    self.changed.insert(parent.clone());
                }
                if let Some(Entry { state: State::Live(view), wants_settle, .. }) = self.entries.get_mut(parent) {
                    if std::mem::take(wants_settle) {
                        view.wake();
                    }
                    if services.is_draining() {
                        shut_down(view);
                    }
                }
            }
        }
        if again {
            self.start(myself, services, session.clone(), entry.parent, entry.waiting);
        } else {
            refuse(entry.waiting, &ActivateError::Write(WriteError::Ended));
        }
    }

    /// Wakes what other processes wrote to, and what they left behind, in the trees of the roots that are kept here.
    pub(super) fn foreign(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, sessions: Vec<SessionId>) {
        let mut strangers = sessions.is_empty();
        for session in sessions {
            if let Some(entry) = self.entries.get_mut(&session) {
                // A wake is answered by a claim, which leaves requests alone.
                match &mut entry.state {
                    State::Starting { asked } => *asked = true,
                    State::Live(view) | State::Closing(view) => drop(view.actor.send_message(ActivationMessage::Requests)),
                }
                self.wake(myself, services, session, None);
            } else {
                strangers = true;
                // Something new may have come for it: worth another try.
                self.refused.remove(&session);
            }
        }
        let roots = self.pins.all();
        if roots.is_empty() || !strangers {
            return;
        }
        let refused: HashSet<SessionId> = self.refused.keys().cloned().collect();
        let (registry, services) = (myself.clone(), services.clone());
        tokio::spawn(async move {
            let found = services
                .readers
                .read(move |reader| {
                    let mut found = Vec::new();
                    for root in &roots {
                        found.extend(reader.runnable(Some(root), usize::MAX)?);
                    }
                    Ok::<_, greenroom_session::store::StoreError>(found)
                })
                .await;
            match found {
                Ok(found) => {
                    for session in found.into_iter().filter(|session| !refused.contains(session) && !services.live.is_resident(session)) {
                        drop(registry.send_message(RegistryMessage::Wake { session, parent: None }));
                    }
                }
                Err(error) => tracing::warn!(%error, "the store could not be asked for sessions with work"),
            }
        });
    }

    pub(super) fn may_settle(&mut self, session: &SessionId, incarnation: Incarnation) -> bool {
        let (owns, pinned) = (self.owned.contains_key(session), self.pins.has(session));
        let Some(entry) = self.entry(session, incarnation) else { return false };
        let State::Live(view) = &entry.state else { return false };
        if pinned {
            entry.idle = true;
            return false;
        }
        if owns {
            entry.wants_settle = true;
            return false;
        }
        entry.state = State::Closing(view.clone());
        true
    }

    pub(super) fn stays(&mut self, services: &Services, session: &SessionId, incarnation: Incarnation) {
        let is_due = services.is_draining() && !self.owned.contains_key(session);
        if let Some(entry) = self.entry(session, incarnation)
            && let State::Closing(view) = &entry.state
        {
            if is_due {
                shut_down(view);
            }
            entry.state = State::Live(view.clone());
        }
    }

    pub(super) fn ended(
        &mut self,
        myself: &ActorRef<RegistryMessage>,
        services: &Arc<Services>,
        session: &SessionId,
        incarnation: Incarnation,
        reason: EpochEnd,
        knocked: bool,
    ) {
        let pinned = self.pins.has(session);
        let Some(entry) = self.entry(session, incarnation) else { return };
        let awaited = !entry.waiting.is_empty();
        let wanted = entry.rewake || knocked || pinned || awaited;
        match reason {
            EpochEnd::Failed | EpochEnd::Fenced if !awaited => {
                // What made it fail may still be there: look again, but not at once. Whoever fenced it may be gone by then; if not, looking costs little.
                let parent = entry.parent.clone();
                self.leave(myself, services, session, false);
                look_again(myself, session.clone(), parent);
            }
            _ => self.leave(myself, services, session, wanted),
        }
    }

    /// Ends every live session that owns no other. The end of the last that a parent owns ends the parent.
    pub(super) fn drain(&mut self) {
        let mut free: Vec<_> = self
            .entries
            .iter()
            .filter_map(|(session, entry)| match &entry.state {
                State::Live(view) if !self.owned.contains_key(session) => Some(view),
                _ => None,
            })
            .collect();
        // In an order that a seed repeats.
        free.sort_by(|a, b| a.id().cmp(b.id()));
        for view in free {
            shut_down(view);
        }
    }

    /// Tells whether nothing is live but kept sessions without work.
    fn is_quiet(&mut self) -> bool {
        let is_restless = |session: &SessionId, entry: &Entry| !(entry.idle && matches!(entry.state, State::Live(_)) && self.pins.has(session));
        let still = self.restless.as_ref().and_then(|session| self.entries.get_key_value(session)).filter(|(session, entry)| is_restless(session, entry));
        if still.is_none() {
            self.restless = self.entries.iter().find(|(session, entry)| is_restless(session, entry)).map(|(session, _)| session.clone());
        }
        self.restless.is_none()
    }

    pub(super) fn answer_waiters(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        tell(&mut self.childless, &changed, |parent| !self.owned.contains_key(parent));
        tell(&mut self.gone, &changed, |session| !self.entries.contains_key(session));
        if !self.quiet.is_empty() && self.is_quiet() {
            for reply in self.quiet.drain(..) {
                reply.send(()).ok();
            }
        }
        if self.entries.is_empty() {
            for reply in self.drained.drain(..) {
                reply.send(()).ok();
            }
        }
    }
}

/// Has an Activation end without settling.
fn shut_down(view: &LiveView) {
    drop(view.actor.send_message(ActivationMessage::Shutdown { reason: EpochEnd::Disposed }));
}

/// Answers those who wait for a session that does not come up.
fn refuse(waiting: Vec<Waiting>, error: &ActivateError) {
    for reply in waiting {
        drop(reply.send(Err(error.clone())));
    }
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

/// Has a session looked at again after a pause: what made its epoch fail may still be there.
fn look_again(registry: &ActorRef<RegistryMessage>, session: SessionId, parent: Option<SessionId>) {
    let registry = registry.clone();
    tokio::spawn(async move {
        tokio::time::sleep(FAILED_PAUSE).await;
        drop(registry.send_message(RegistryMessage::Wake { session, parent }));
    });
}
