//! The capability of a live agent: what it may do to its children and its parent.

use std::{sync::Arc, time::Duration};

use greenroom_session::{
    descriptor::{Descriptor, Mode},
    event::{Body, Event},
    header::NewSession,
    id::{EffectKind, MessageId, SessionId},
    message::{Block, Message, MessageKind, Source},
    store::{Create, Done, LoadError, Op, Refused},
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    catalog::{self, CatalogMessage, Entry},
    control,
    delegate::{Delegate, Delegated},
    error::{ControlError, DeliverError, ListError, QueryError, StartError, WriteError},
    live::LiveView,
    occurrence::Occurrence,
    race::race_point,
    reach::{addressee, not_continuable, played_by_host},
    services::Services,
    turn_core::{Effect, InHand, TurnCore},
};

/// The capability of one live agent, in one epoch.
///
/// It comes from a [`Turn`](crate::Turn) or a [`RootHandle`](crate::RootHandle) and from nowhere else: a session id, a `source` or a later epoch of the same session
/// grants nothing. It ends with its epoch; one that came from a turn ends with the turn.
///
/// ```
/// use greenroom_actors::{Agent, Delegate, host::NewRoot};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let root = host.root(NewRoot::new("echo", "a desk")).await?;
/// let desk: Agent = root.agent();
/// let child = desk.start_continuable(Delegate::new("echo", "an echo", "one")).await?.child;
/// desk.followup(&child, "two").await?; // the child's next turn, whether it is live or has settled
/// root.quiescent().await?;
/// assert_eq!(host.load(&child).await?.fold.head().turns, 2);
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Agent {
    services: Arc<Services>,
    view: Arc<LiveView>,
    turn: Option<Arc<TurnCore>>,
}

impl Agent {
    pub(crate) fn of_turn(core: Arc<TurnCore>) -> Self {
        Self { services: core.services.clone(), view: core.view.clone(), turn: Some(core) }
    }

    pub(crate) fn of_root(services: Arc<Services>, view: Arc<LiveView>) -> Self {
        Self { services, view, turn: None }
    }

    /// Returns the session that this is the agent of.
    pub fn session(&self) -> &SessionId {
        self.view.id()
    }

    /// Tells whether an effect of this turn's message needs no doing again.
    fn was_accepted(&self, effect: Option<Effect>) -> bool {
        effect.is_some_and(|effect| self.turn.as_ref().is_some_and(|turn| turn.was_accepted(effect.key)))
    }

    /// Tells why this capability grants nothing any more.
    fn over(&self) -> Option<&'static str> {
        if self.turn.as_ref().is_some_and(|turn| turn.has_ended()) {
            Some("the turn has ended")
        } else if !self.view.is_open() {
            Some("its epoch has ended")
        } else {
            None
        }
    }

    /// Creates a continuable child with its first message and returns once both are durable.
    ///
    /// Within a turn this is an effect: the same delegation on a later attempt is the same child. One transaction creates the child; every check comes before it.
    ///
    /// # Errors
    /// [`StartError`]; nothing of the child exists then, unless the error is `INDETERMINATE`.
    ///
    /// # Cancel safety
    /// The child may exist. Within a turn the same delegation again is the same acceptance.
    pub async fn start_continuable(&self, delegate: Delegate) -> Result<Delegated, StartError> {
        self.start(delegate, Mode::Continuable).await
    }

    pub(crate) async fn start_one_shot(&self, delegate: Delegate) -> Result<Delegated, StartError> {
        self.start(delegate, Mode::OneShot).await
    }

    async fn start(&self, delegate: Delegate, mode: Mode) -> Result<Delegated, StartError> {
        let services = &self.services;
        let parent = &self.view.header;
        if !services.config.behaviors.contains_key(&delegate.agent) {
            return Err(StartError::AgentUnknown(delegate.agent));
        }
        let depth = parent.depth.saturating_add(1);
        if depth > services.config.max_depth {
            return Err(StartError::Depth { depth, max_depth: services.config.max_depth });
        }
        let descriptor = delegate.descriptor(mode);
        descriptor.check_new()?;
        let effect = self.turn.as_ref().map(|turn| match &delegate.key {
            Some(name) => turn.named_effect(EffectKind::Delegate, &delegate.agent, name.as_bytes()),
            None => turn.effect(EffectKind::Delegate, &delegate.agent, &delegate.content()),
        });
        let in_hand = self.in_hand(effect);
        let (delegated, wake) = self.create(&delegate, &descriptor, effect).await?;
        // Handed over before the child is woken, so that it is durable before the child's turn: a child that kills the process does not take its
        // parent's progress along.
        if let Some(in_hand) = in_hand {
            in_hand.accepted(EffectKind::Delegate, &delegate.agent, delegated.child.as_str());
        }
        drop(wake);
        Ok(delegated)
    }

    fn in_hand(&self, effect: Option<Effect>) -> Option<InHand<'_>> {
        self.turn.as_deref().zip(effect).map(|(turn, effect)| InHand::new(turn, effect))
    }

    async fn create(&self, delegate: &Delegate, descriptor: &Descriptor, effect: Option<Effect>) -> Result<(Delegated, Option<WakeOnDrop<'_>>), StartError> {
        let services = &self.services;
        let parent = &self.view.header;
        let (child, message_id) = match effect {
            Some(Effect { key, .. }) => (key.session_id(), key.message_id()),
            None => (SessionId::from_uuid(services.config.ids.uuid()), services.message_id()),
        };
        if self.was_accepted(effect) {
            let id = child.clone();
            let removed = services.readers.read(move |reader| reader.is_removed(&id)).await.map_err(|error| StartError::Read(error.to_string()))?;
            // Its work, if it has any, is found as that of any session is.
            return match self.over() {
                Some(over) => Err(StartError::Unauthorized(over)),
                None if removed => Err(WriteError::Refused(Refused::Removed(child)).into()),
                None => Ok((Delegated { child, message: message_id, existing: true }, None)),
            };
        }
        let source = Source::Coordinator { session: parent.id.clone() };
        let message = Message::turn(&message_id, delegate.prompt.clone(), source, services.now())?;
        let inherited = self.inherited(&delegate.provider).await?;
        let mut session = NewSession::child(child.clone(), parent.id.clone(), parent.depth);
        session.cwd.clone_from(&parent.cwd);
        let create = Create::child(session, inherited, descriptor, Some(Arc::new(message)), services.now())
            .map_err(|error| StartError::Descriptor(greenroom_session::descriptor::DescriptorError::Malformed(error.to_string())))?;
        // The last synchronous step: nothing that has ended may still create.
        if let Some(over) = self.over() {
            return Err(StartError::Unauthorized(over));
        }
        if services.is_draining() {
            return Err(StartError::Draining);
        }
        let [pending] = services.journal.submit([Op::Create(create)]);
        let wake = WakeOnDrop { services, child: child.clone(), parent: &parent.id };
        let done = pending.done_within(services.config.ask_deadline).await;
        race_point!("created-before-wake");
        let existing = match done {
            Ok(Done::Created { existing, .. }) => existing,
            Ok(_) => false,
            // The id is derived from everything that was asked for; what differs is what was inherited since.
            Err(WriteError::Refused(Refused::Exists(_))) if effect.is_some() => true,
            // Waking what does not exist costs a look and does nothing.
            Err(error) => return Err(error.into()),
        };
        if !existing {
            services.tell(|| Occurrence::Created { session: child.clone(), parent: parent.id.clone(), label: Some(delegate.label.as_str().into()) });
        }
        Ok((Delegated { child, message: message_id, existing }, Some(wake)))
    }

    /// Returns what a child of this provider inherits.
    async fn inherited(&self, provider: &str) -> Result<Vec<Event>, StartError> {
        match provider {
            "spawn" => Ok(Vec::new()),
            "fork" => {
                let id = self.view.id().clone();
                let events = self
                    .services
                    .readers
                    .read(move |reader| reader.events(&id, 0, usize::MAX))
                    .await
                    .map_err(|error: LoadError| StartError::Read(error.to_string()))?;
                Ok(completed_prefix(events))
            }
            other => Err(StartError::NoProvider(other.to_owned())),
        }
    }

    /// Sends a direct child the message of its next turn and returns once it is durable in the child's inbox.
    ///
    /// The message never redirects a turn under way. Within a turn this is an effect, and a full inbox is waited for within bounds.
    ///
    /// # Errors
    /// [`DeliverError`]; the message was not delivered then, unless the error is `INDETERMINATE`.
    ///
    /// # Cancel safety
    /// The message may have been accepted. Within a turn the same send again is the same acceptance.
    pub async fn followup(&self, child: &SessionId, text: impl Into<String>) -> Result<MessageId, DeliverError> {
        self.send(child, text.into(), None).await
    }

    /// Sends as [`Agent::followup`] under an id of the caller's choice: the same id and text again is the same acceptance.
    ///
    /// # Errors
    /// As [`Agent::followup`]; `MESSAGE_ID_CONFLICT` if the id was used with another text.
    ///
    /// # Cancel safety
    /// The message may have been accepted; the same call again is safe.
    pub async fn followup_as(&self, id: MessageId, child: &SessionId, text: impl Into<String>) -> Result<MessageId, DeliverError> {
        self.send(child, text.into(), Some(id)).await
    }

    async fn send(&self, child: &SessionId, text: String, id: Option<MessageId>) -> Result<MessageId, DeliverError> {
        let services = &self.services;
        let live = services.live.get(child);
        let stored;
        let header = match &live {
            Some(view) if view.continuable => &view.header,
            Some(view) if view.is_published() => return Err(played_by_host(child)),
            Some(_) => return Err(not_continuable(child)),
            None => {
                stored = addressee(services, child).await?;
                &stored
            }
        };
        if header.parent.as_ref() != Some(self.view.id()) {
            return Err(DeliverError::Unauthorized { child: child.to_string(), reason: "it belongs to another parent session" });
        }
        let source = Source::Coordinator { session: self.view.id().clone() };
        let own_id = id.is_some();
        let mut message = Message::with(id.unwrap_or_else(|| services.message_id()), MessageKind::Turn, vec![Block::text(text)], source, services.now(), true)?;
        let effect = match &self.turn {
            Some(turn) if !own_id => Some(turn.effect(EffectKind::Send, child.as_str(), message.text().as_bytes())),
            _ => None,
        };
        if let Some(effect) = effect {
            message.id = effect.key.message_id();
        }
        if self.was_accepted(effect) {
            return match self.over() {
                Some(reason) => Err(DeliverError::Unauthorized { child: child.to_string(), reason }),
                None => Ok(message.id),
            };
        }
        self.deliver(child, live.as_deref(), self.view.id(), message, effect.map(|effect| (effect, EffectKind::Send))).await
    }

    /// Reports to the parent: a note in its inbox, in order with all others. A waking note has an idle or settled parent run.
    ///
    /// # Errors
    /// [`DeliverError`]; in a root `UNAUTHORIZED`, since it has nobody to report to.
    ///
    /// # Cancel safety
    /// The report may have been accepted. Within a turn the same report again is the same acceptance.
    pub async fn report(&self, text: impl Into<String>, quiet: bool) -> Result<MessageId, DeliverError> {
        let services = &self.services;
        let text = text.into();
        let Some(parent) = self.view.header.parent.clone() else {
            return Err(DeliverError::Unauthorized { child: self.view.id().to_string(), reason: "a root has nobody to report to" });
        };
        let source = Source::SubagentReport { session: self.view.id().clone() };
        let mut message = Message::note(services.message_id(), text.clone(), source, services.now(), quiet)?;
        let effect = self.turn.as_ref().map(|turn| turn.effect(EffectKind::Report, parent.as_str(), text.as_bytes()));
        if let Some(effect) = effect {
            message.id = effect.key.message_id();
        }
        self.deliver(&parent, None, &parent, message, effect.map(|effect| (effect, EffectKind::Report))).await
    }

    async fn deliver(
        &self,
        to: &SessionId,
        live: Option<&LiveView>,
        parent: &SessionId,
        message: Message,
        effect: Option<(Effect, EffectKind)>,
    ) -> Result<MessageId, DeliverError> {
        let message = Arc::new(message);
        let in_hand = self.in_hand(effect.map(|(effect, _)| effect));
        self.offer(to, live, parent, &message).await?;
        if let (Some(in_hand), Some((_, kind))) = (in_hand, effect) {
            in_hand.accepted(kind, to.as_str(), message.id.as_str());
        }
        Ok(message.id.clone())
    }

    /// Has a message accepted. Within a turn a full inbox is waited for, within bounds.
    async fn offer(&self, to: &SessionId, live: Option<&LiveView>, parent: &SessionId, message: &Arc<Message>) -> Result<(), DeliverError> {
        let services = &self.services;
        let parent = (parent != to).then_some(parent);
        let mut waited = Duration::ZERO;
        let mut pause = Duration::from_millis(5);
        loop {
            // The last synchronous step before acceptance.
            if let Some(reason) = self.over() {
                return Err(DeliverError::Unauthorized { child: to.to_string(), reason });
            }
            if services.is_draining() && self.turn.is_none() {
                return Err(DeliverError::Draining);
            }
            match services.accept(to, live, parent, message.clone()).await {
                Ok(_) => return Ok(()),
                Err(WriteError::Refused(Refused::Busy { .. })) if self.turn.is_some() && waited < services.config.send_patience => {
                    let Some(turn) = &self.turn else { continue };
                    let aside = turn.step_aside();
                    tokio::time::sleep(pause).await;
                    aside.end().await;
                    waited += pause;
                    pause = (pause * 2).min(Duration::from_millis(200));
                }
                Err(error) => return Err(DeliverError::from_write(to, error)),
            }
        }
    }

    /// Ends the turn that is under way in a child, or in a child of a child and so on, as `aborted`; its queue goes on, and so does whatever is below it.
    /// Returns the number of the turn. See [`Host::interrupt`](crate::Host::interrupt).
    ///
    /// # Errors
    /// [`ControlError::Unauthorized`] if it is not below this agent, and as [`Host::interrupt`](crate::Host::interrupt).
    ///
    /// # Cancel safety
    /// What was asked may be done all the same.
    pub async fn interrupt(&self, child: &SessionId, patience: Duration) -> Result<u64, ControlError> {
        self.may_interrupt(child).await?;
        control::interrupt(&self.services, child, "parent", patience).await
    }

    /// Takes a message back that this agent sent to a direct child and that has no turn yet. See [`Host::withdraw`](crate::Host::withdraw).
    ///
    /// # Errors
    /// [`ControlError::Unauthorized`] if this is not its parent or the message is of somebody else, and as [`Host::withdraw`](crate::Host::withdraw).
    ///
    /// # Cancel safety
    /// What was asked may be done all the same.
    pub async fn withdraw(&self, child: &SessionId, message: &MessageId, patience: Duration) -> Result<(), ControlError> {
        self.may_control(child).await?;
        // What a message says of its sender never changes, so it may be looked at before.
        if let Some(source) = control::sender_of(&self.services, child, message).await?
            && !matches!(&source, Source::Coordinator { session } if session == self.view.id())
        {
            return Err(ControlError::Unauthorized { child: child.clone(), reason: "the message is of somebody else" });
        }
        control::withdraw(&self.services, child, message, "parent", patience).await
    }

    async fn may_interrupt(&self, target: &SessionId) -> Result<(), ControlError> {
        let unauthorized = |reason| Err(ControlError::Unauthorized { child: target.clone(), reason });
        if !control::is_below(&self.services, target, self.view.id()).await? {
            return unauthorized("it is not below this agent");
        }
        self.over().map_or(Ok(()), unauthorized)
    }

    async fn may_control(&self, child: &SessionId) -> Result<(), ControlError> {
        let unauthorized = |reason| Err(ControlError::Unauthorized { child: child.clone(), reason });
        let header = if let Some(view) = self.services.live.get(child) {
            view.header.clone()
        } else {
            let wanted = child.clone();
            let found = self.services.readers.read(move |reader| reader.header(&wanted)).await;
            found.map_err(|error| ControlError::from_load(child, error))?.ok_or_else(|| ControlError::NotFound(child.clone()))?
        };
        if header.parent.as_ref() != Some(self.view.id()) {
            return unauthorized("it belongs to another parent session");
        }
        self.over().map_or(Ok(()), unauthorized)
    }

    /// Lists the direct children, oldest first, without waking any and without writing anything. Broken ones are entries.
    ///
    /// Costs the number of direct children.
    ///
    /// # Errors
    /// [`ListError`] if the trace failed or `cancel` was cancelled.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_children(&self, cancel: CancellationToken) -> Result<Vec<Entry>, ListError> {
        if let Some(over) = self.over() {
            return Err(ListError::Unauthorized(over));
        }
        list_children(&self.services, self.view.id().clone(), cancel).await
    }
}

/// Asks the catalog for all children of a session.
pub(crate) async fn list_children(services: &Services, parent: SessionId, cancel: CancellationToken) -> Result<Vec<Entry>, ListError> {
    let listing = catalog::ask(services, &cancel, |token, reply| CatalogMessage::Children { parent, page: None, verify: false, cancel: token, reply });
    listing.await.map(|page| page.entries)
}

/// Wakes a created child even if its creator is dropped before it could.
struct WakeOnDrop<'a> {
    services: &'a Arc<Services>,
    child: SessionId,
    parent: &'a SessionId,
}

impl Drop for WakeOnDrop<'_> {
    fn drop(&mut self) {
        self.services.wake(&self.child, Some(self.parent));
    }
}

/// Returns the events through the last ended turn; none if no turn has ended.
fn completed_prefix(mut events: Vec<Event>) -> Vec<Event> {
    let end = events.iter().rposition(|event| matches!(event.body, Body::TurnEnd { .. })).map_or(0, |at| at + 1);
    events.truncate(end);
    events
}

/// Waits for an answer of the catalog or the query actor, not longer than this.
pub(crate) async fn answered<T, E: From<QueryError>>(answer: oneshot::Receiver<Result<T, E>>, time: Duration) -> Result<T, E> {
    match tokio::time::timeout(time, answer).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(QueryError::Ended.into()),
        Err(_) => Err(QueryError::TimedOut.into()),
    }
}
