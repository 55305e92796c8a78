//! Starting children: every check, then one transaction that is the acceptance.

use std::sync::Arc;

use greenroom_session::{
    descriptor::{Descriptor, Mode},
    event::{Body, Event},
    header::NewSession,
    id::{EffectKind, SessionId},
    message::{Message, Source},
    store::{Create, Done, LoadError, Op, Refused},
};

use super::{Agent, admission::Begins};
use crate::{
    delegate::{Delegate, Delegated},
    error::{StartError, WriteError},
    occurrence::Occurrence,
    race::race_point,
    services::Services,
    turn_core::Effect,
};

impl Agent {
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
        let inherited = self.unless_given_up(self.inherited(&delegate.provider)).await??;
        let mut session = NewSession::child(child.clone(), parent.id.clone(), parent.depth);
        session.cwd.clone_from(&parent.cwd);
        let create = Create::child(session, inherited, descriptor, Some(Arc::new(message)), services.now())
            .map_err(|error| StartError::Descriptor(greenroom_session::descriptor::DescriptorError::Malformed(error.to_string())))?;
        // The last synchronous step: nothing that has ended may still create.
        let pass = self.admit(Begins::Child)?;
        let [pending] = services.journal.submit([Op::Create(create)]);
        let wake = WakeOnDrop { services, child: child.clone(), parent: &parent.id };
        let done = pending.done_within(services.config.ask_deadline).await;
        drop(pass);
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
