//! What the Registry knows: one entry per session that is starting, live or closing, who is owned by whom, and who waits for what.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use greenroom_session::{event::EpochEnd, id::SessionId, store::Reader};
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::message::{Incarnation, RegistryMessage};
use crate::{
    activation::{StartRequest, start},
    error::{ActivateError, PublishError, WriteError},
    live::LiveView,
    occurrence::Occurrence,
    pins::Pins,
    published::{self, PLAYED_BY_HOST, Publishing},
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
    host: Host,
}

/// What a host has to do with a session.
#[derive(Debug)]
enum Host {
    /// Nothing.
    None,
    /// It would publish it if its start should find nothing to do.
    Waits(Box<Publishing>),
    /// It plays it, or is about to.
    Plays,
}

impl Entry {
    fn is_published(&self) -> bool {
        matches!(self.host, Host::Plays)
    }

    /// Returns the host that waits, which then does no longer.
    fn take_host(&mut self) -> Option<Box<Publishing>> {
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
            // Its epoch has lost the host that played it; it is ended, and until then it is nobody's.
            None if services.played.knock(&session) => {}
            None => self.start(myself, services, session, parent, Vec::new()),
        }
    }

    pub(super) fn ensure(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, session: SessionId, reply: Waiting) {
        match self.entries.get_mut(&session) {
            Some(entry) if entry.is_published() => {
                let played = ActivateError::NotResumable { session, reason: PLAYED_BY_HOST.into(), code: "NOT_RESUMABLE" };
                drop(reply.send(Err(played)));
            }
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
            && let Some(Entry { state: State::Live(view), host: Host::None | Host::Waits(_), .. }) = self.entries.get(session)
        {
            view.wake();
        }
    }

    fn start(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, session: SessionId, parent: Option<SessionId>, waiting: Vec<Waiting>) {
        if services.is_draining() {
            refuse(waiting, &ActivateError::Draining);
            return;
        }
        let (keep, is_owned) = (self.pins.has(&session), parent.is_some());
        let incarnation = self.enter(services, &session, parent, waiting);
        let request = StartRequest { session, incarnation, keep, is_owned };
        tokio::spawn(start(services.clone(), myself.clone(), request));
    }

    /// Notes whose child a session is that is starting, unless that was known.
    pub(super) fn owned_by(&mut self, session: &SessionId, incarnation: Incarnation, parent: SessionId) {
        let Some(entry) = self.entry(session, incarnation) else { return };
        if entry.parent.is_none() {
            entry.parent = Some(parent.clone());
            self.owned.entry(parent).or_default().insert(session.clone());
        }
    }

    fn enter(&mut self, services: &Services, session: &SessionId, parent: Option<SessionId>, waiting: Vec<Waiting>) -> Incarnation {
        self.next += 1;
        let incarnation = self.next;
        if let Some(parent) = &parent {
            self.owned.entry(parent.clone()).or_default().insert(session.clone());
        }
        let state = State::Starting { asked: false };
        let entry = Entry { incarnation, parent, state, rewake: false, waiting, wants_settle: false, idle: false, host: Host::None };
        self.entries.insert(session.clone(), entry);
        services.live.begin(session);
        incarnation
    }

    /// Has a session live for its host, unless somebody has it live already.
    pub(super) fn publish(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, publishing: Box<Publishing>) {
        let session = publishing.session().clone();
        match self.entries.get_mut(&session) {
            // A look that finds nothing to do takes a moment and is nobody's residency.
            Some(Entry { state: State::Starting { .. }, host: host @ Host::None, .. }) => *host = Host::Waits(publishing),
            Some(_) => publishing.refuse(PublishError::Live(session)),
            None if services.is_draining() => publishing.refuse(PublishError::Draining),
            None => self.begin_publication(myself, services, publishing, false),
        }
    }

    fn begin_publication(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, publishing: Box<Publishing>, rewake: bool) {
        let incarnation = self.enter(services, publishing.session(), None, Vec::new());
        if let Some(entry) = self.entries.get_mut(publishing.session()) {
            (entry.host, entry.rewake) = (Host::Plays, rewake);
        }
        tokio::spawn(published::start(services.clone(), myself.clone(), *publishing, incarnation));
    }

    pub(super) fn started(
        &mut self,
        myself: &ActorRef<RegistryMessage>,
        services: &Arc<Services>,
        session: SessionId,
        incarnation: Incarnation,
        result: Result<Option<Arc<LiveView>>, ActivateError>,
    ) {
        let is_pinned = self.pins.has(&session);
        let Some(entry) = self.entry(&session, incarnation) else {
            // Nobody waits for this start any more; what it opened must not stay open.
            if let Ok(Some(view)) = result {
                view.shut_down();
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
                let publish = entry.take_host();
                entry.parent.clone_from(&parent);
                entry.state = State::Live(view.clone());
                if let Some(parent) = parent {
                    self.owned.entry(parent).or_default().insert(session);
                }
                services.live.insert(view.clone());
                // Only now may it act: whatever it says of itself meets an entry that knows it.
                view.go();
                if asked {
                    view.look_for_requests();
                }
                if rewake {
                    view.wake();
                }
                for reply in waiting {
                    drop(reply.send(Ok(view.clone())));
                }
                if let Some(publishing) = publish {
                    publishing.refuse(PublishError::Live(view.id().clone()));
                }
                // Its children first, if they were live before it.
                if services.is_draining() && !self.owned.contains_key(view.id()) {
                    view.shut_down();
                }
            }
            Ok(None) => {
                // Whoever waits has a pin. Without one it has given up, and no start would bring the session up for it: that would go on for ever.
                let again = entry.rewake || is_pinned;
                self.leave(myself, services, &session, again);
            }
            Err(error) => {
                refuse(std::mem::take(&mut entry.waiting), &error);
                let parent = entry.parent.clone();
                self.not_activated(services, &session, &error);
                self.leave(myself, services, &session, false);
                let again = match error {
                    // Its epoch may have begun all the same, and nobody else looks after what this process holds.
                    ActivateError::Write(_) | ActivateError::Deadline(_) | ActivateError::Read(_)
                    // It will be set up without the contribution that was removed.
                    | ActivateError::SetupRevoked(_) => true,
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
        let Some(mut entry) = self.entries.remove(session) else { return };
        services.live.remove(session);
        if self.gone.contains_key(session) {
            self.changed.insert(session.clone());
        }
        if let Some(parent) = &entry.parent
            && let Some(children) = self.owned.get_mut(parent)
        {
            children.remove(session);
            let was_last = children.is_empty();
            if was_last {
                self.owned.remove(parent);
            }
            let is_free = !is_kept(&self.owned, &self.entries, parent);
            if is_free && self.childless.contains_key(parent) {
                self.changed.insert(parent.clone());
            }
            if let Some(Entry { state: State::Live(view), wants_settle, .. }) = self.entries.get_mut(parent) {
                if is_free && std::mem::take(wants_settle) {
                    view.wake();
                }
                if was_last && services.is_draining() {
                    view.shut_down();
                }
            }
        }
        match entry.take_host() {
            // A host that asked while somebody looked for work comes before what that look would be repeated for.
            Some(publishing) if entry.waiting.is_empty() && !services.is_draining() => self.begin_publication(myself, services, publishing, again),
            publish => {
                if again {
                    self.start(myself, services, session.clone(), entry.parent, entry.waiting);
                } else {
                    refuse(entry.waiting, &ActivateError::Write(WriteError::Ended));
                }
                if let Some(publishing) = publish {
                    self.publish(myself, services, publishing);
                }
            }
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
                    State::Live(view) | State::Closing(view) => view.look_for_requests(),
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
                        for session in reader.runnable(Some(root), usize::MAX)? {
                            let parent = parent_of(reader, &session);
                            found.push((session, parent));
                        }
                    }
                    Ok::<_, greenroom_session::store::StoreError>(found)
                })
                .await;
            match found {
                Ok(found) => {
                    for (session, parent) in found.into_iter().filter(|(session, _)| !refused.contains(session) && !services.live.is_resident(session)) {
                        drop(registry.send_message(RegistryMessage::Wake { session, parent }));
                    }
                }
                Err(error) => tracing::warn!(%error, "the store could not be asked for sessions with work"),
            }
        });
    }

    pub(super) fn may_settle(&mut self, session: &SessionId, incarnation: Incarnation) -> bool {
        let (owns, pinned) = (is_kept(&self.owned, &self.entries, session), self.pins.has(session));
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
                view.shut_down();
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
            // Its guard looks after what it has left.
            EpochEnd::Failed | EpochEnd::Fenced if entry.is_published() => {
                let parent = entry.parent.clone();
                let knocked = knocked || entry.rewake;
                self.leave(myself, services, session, false);
                if knocked {
                    self.wake(myself, services, session.clone(), parent);
                }
            }
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
            view.shut_down();
        }
    }

    /// Tells whether nothing is live but kept sessions without work.
    fn is_quiet(&mut self) -> bool {
        let is_kept_idle = |session: &SessionId, entry: &Entry| entry.idle && matches!(entry.state, State::Live(_)) && self.pins.has(session);
        // What its host does with a session that it plays is not waited for.
        let is_restless = |session: &SessionId, entry: &Entry| !(entry.is_published() || is_kept_idle(session, entry));
        let still = self.restless.as_ref().and_then(|session| self.entries.get_key_value(session)).filter(|(session, entry)| is_restless(session, entry));
        if still.is_none() {
            self.restless = self.entries.iter().find(|(session, entry)| is_restless(session, entry)).map(|(session, _)| session.clone());
        }
        self.restless.is_none()
    }

    pub(super) fn answer_waiters(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        tell(&mut self.childless, &changed, |parent| !is_kept(&self.owned, &self.entries, parent));
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

/// Tells whether a session owns a live one that keeps it from settling.
fn is_kept(owned: &HashMap<SessionId, HashSet<SessionId>>, entries: &HashMap<SessionId, Entry>, session: &SessionId) -> bool {
    let counts = |child: &SessionId| entries.get(child).is_none_or(|entry| !entry.is_published());
    owned.get(session).is_some_and(|children| children.iter().any(counts))
}

/// Returns whose child a session is, if its header can be read.
fn parent_of(reader: &mut dyn Reader, session: &SessionId) -> Option<SessionId> {
    reader.header(session).ok().flatten().and_then(|header| header.parent.clone())
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
