//! What the Registry knows: one entry per session that is starting, live or closing, who is owned by whom, and who waits for what.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock, Weak},
};

use greenroom_session::id::SessionId;
use ractor::ActorRef;

use super::{
    drain::Draining,
    entry::{Entry, Host, State, Waiting, refuse},
    message::{Incarnation, RegistryMessage},
    waits::Waits,
};
use crate::{
    activation::{StartRequest, start},
    error::{ActivateError, PublishError},
    pins::Pins,
    published::{self, PLAYED_BY_HOST, Publishing},
    services::Services,
};

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
    pub(super) waits: Waits,
    pub(super) drains: Vec<Draining>,
    pub(super) pins: Pins,
}

impl RegistryState {
    pub(super) fn entry(&mut self, session: &SessionId, incarnation: Incarnation) -> Option<&mut Entry> {
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

    pub(super) fn start(
        &mut self,
        myself: &ActorRef<RegistryMessage>,
        services: &Arc<Services>,
        session: SessionId,
        parent: Option<SessionId>,
        waiting: Vec<Waiting>,
    ) {
        // Where its parent is live nothing needs to be read to see that it is closed.
        let is_closed = || parent.as_ref().and_then(|parent| services.live.get(parent)).is_some_and(|parent| services.closed.covers(&session, &parent.below));
        if services.is_draining() || is_closed() {
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

    pub(super) fn enter(&mut self, services: &Services, session: &SessionId, parent: Option<SessionId>, waiting: Vec<Waiting>) -> Incarnation {
        self.next += 1;
        let incarnation = self.next;
        if let Some(parent) = &parent {
            self.owned.entry(parent.clone()).or_default().insert(session.clone());
        }
        let state = State::Starting { asked: false };
        let entry = Entry { incarnation, parent, state, rewake: false, waiting, wants_settle: false, idle: false, watch: None, host: Host::None };
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

    pub(super) fn begin_publication(&mut self, myself: &ActorRef<RegistryMessage>, services: &Arc<Services>, publishing: Box<Publishing>, rewake: bool) {
        let incarnation = self.enter(services, publishing.session(), None, Vec::new());
        if let Some(entry) = self.entries.get_mut(publishing.session()) {
            (entry.host, entry.rewake) = (Host::Plays, rewake);
        }
        tokio::spawn(published::start(services.clone(), myself.clone(), *publishing, incarnation));
    }
}

/// Tells whether a session owns a live one that keeps it from settling.
pub(super) fn is_kept(owned: &HashMap<SessionId, HashSet<SessionId>>, entries: &HashMap<SessionId, Entry>, session: &SessionId) -> bool {
    let counts = |child: &SessionId| entries.get(child).is_none_or(|entry| !entry.is_published());
    owned.get(session).is_some_and(|children| children.iter().any(counts))
}
