//! Starting children: every check, then one transaction that is the acceptance.

use std::{borrow::Cow, sync::Arc};

use greenroom_session::{
    codec::check_event,
    descriptor::{Descriptor, DescriptorError, Mode},
    event::{Body, Event},
    header::NewSession,
    id::{EffectKind, MessageId, SessionId, prompt_id},
    message::{Message, Source},
    store::{Create, Done, LoadError, Op, Reader, Refused},
};
use tokio_util::sync::CancellationToken;

use super::{Agent, admission::Begins};
use crate::{
    delegate::{Delegate, Delegated},
    error::{StartError, WriteError},
    occurrence::Occurrence,
    provider::{Prepare, PrepareError, Registered, invalid_prefix},
    race::race_point,
    turn_core::Effect,
    waking::Waking,
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
        self.start_child(delegate, Mode::Continuable).await
    }

    pub(crate) async fn start_one_shot(&self, delegate: Delegate) -> Result<Delegated, StartError> {
        self.start_child(delegate, Mode::OneShot).await
    }

    async fn start_child(&self, delegate: Delegate, mode: Mode) -> Result<Delegated, StartError> {
        let planned = self.plan(&delegate, mode)?;
        let checked = self.check(&delegate, &planned.descriptor);
        let in_hand = self.in_hand(planned.effect);
        let (delegated, wake) = if self.was_accepted(planned.effect) {
            (self.accepted_before(planned).await?, None)
        } else if self.unless_given_up(self.is_there(&delegate, &planned)).await?? {
            // Its creation was accepted and not recorded; whatever has changed since, nobody is asked for it again.
            (self.accepted_before(planned).await?, Some(None))
        } else {
            checked?;
            let (delegated, wake) = self.create(&delegate, planned).await?;
            (delegated, Some(wake))
        };
        // Handed over before the child is woken, so that it is durable before the child's turn: a child that kills the process does not take its
        // parent's progress along.
        if let Some(in_hand) = in_hand {
            in_hand.accepted(EffectKind::Delegate, &delegate.agent, delegated.child.as_str());
        }
        match wake {
            // It may have been cut off before its wake.
            Some(None) => self.services.wake(&delegated.child, Some(self.view.id())),
            wake => drop(wake),
        }
        Ok(delegated)
    }

    /// Checks everything that can be told of a delegation by itself.
    fn check(&self, delegate: &Delegate, descriptor: &Descriptor) -> Result<(), StartError> {
        let services = &self.services;
        if !services.config.behaviors.contains_key(&delegate.agent) {
            return Err(StartError::AgentUnknown(delegate.agent.clone()));
        }
        let depth = self.view.header.depth.saturating_add(1);
        let max_depth = delegate.max_depth.map_or(services.config.max_depth, |lower| lower.min(services.config.max_depth));
        if depth > max_depth {
            return Err(StartError::Depth { depth, max_depth });
        }
        descriptor.check_new()?;
        check_event(&Body::Descriptor(serde_json::to_value(descriptor).map_err(|error| malformed(&error))?).at(0, 0))
            .map_err(|error| WriteError::Refused(error.into()))?;
        Ok(())
    }

    /// Says who the child of a delegation is.
    fn plan(&self, delegate: &Delegate, mode: Mode) -> Result<Planned, StartError> {
        let services = &self.services;
        let descriptor = delegate.descriptor(mode, None);
        let effect = self.turn.as_ref().map(|turn| {
            let content = delegate.content(mode);
            match (&delegate.key, &delegate.child) {
                (Some(name), None) => turn.named_effect(EffectKind::Delegate, &delegate.agent, name.as_bytes()),
                // A reserved id names the effect by itself: there is no second child of it.
                (None | Some(_), Some(_)) => turn.named_effect(EffectKind::Delegate, &delegate.agent, &content),
                (None, None) => turn.effect(EffectKind::Delegate, &delegate.agent, &content),
            }
        });
        let (child, message) = match (&delegate.child, effect) {
            (Some(child), _) => (child.clone(), prompt_id(child, &delegate.prompt)),
            (None, Some(Effect { key, .. })) => (key.session_id(), key.message_id()),
            (None, None) => (SessionId::from_uuid(services.config.ids.uuid()), services.message_id()),
        };
        let source = Source::Coordinator { session: self.view.id().clone() };
        let message = Message::turn(&message, delegate.prompt.clone(), source, services.now())?;
        Ok(Planned { child, message, descriptor, effect })
    }

    /// Tells whether the child is there although no log says that it was accepted: an earlier attempt was cut off in between, or its id was reserved.
    async fn is_there(&self, delegate: &Delegate, planned: &Planned) -> Result<bool, StartError> {
        let parent = &self.view.header;
        if delegate.child.is_some() {
            let mut session = NewSession::child(planned.child.clone(), parent.id.clone(), parent.depth);
            session.cwd.clone_from(&parent.cwd);
            let mut routed = planned.descriptor.clone();
            // Its provider, who would know, need not be there any more.
            routed.model = routed.model.or_else(|| self.view.log.look(|fold| fold.model().cloned()));
            return self.is_child(&session, &[&planned.descriptor, &routed], &planned.message.id).await;
        }
        if self.turn.as_ref().is_none_or(|turn| turn.attempt == 1) {
            return Ok(false);
        }
        // Its id follows from everything that was asked for.
        let child = planned.child.clone();
        match self.services.readers.read(move |reader| reader.header(&child)).await {
            Err(LoadError::NotFound(_) | LoadError::Removed(_)) => Ok(false),
            found => found.map(|header| header.is_some()).map_err(|error| StartError::Read(Arc::new(error))),
        }
    }

    /// Tells of a child that an earlier attempt created, or this one. Nobody is asked for it again.
    async fn accepted_before(&self, planned: Planned) -> Result<Delegated, StartError> {
        let id = planned.child.clone();
        let removed = self.services.readers.read(move |reader| reader.is_removed(&id)).await.map_err(|error| StartError::Read(Arc::new(error.into())))?;
        // Its work, if it has any, is found as that of any session is.
        match self.over() {
            Some(over) => Err(StartError::Unauthorized(over)),
            None if removed => Err(WriteError::Refused(Refused::Removed(planned.child)).into()),
            None => Ok(Delegated { child: planned.child, message: planned.message.id, existing: true }),
        }
    }

    async fn create(&self, delegate: &Delegate, planned: Planned) -> Result<(Delegated, Option<Waking<'_>>), StartError> {
        let services = &self.services;
        let parent = &self.view.header;
        let Planned { child, message, mut descriptor, effect } = planned;
        // Whoever may not begin anything has nobody asked for it.
        drop(self.admit(Begins::Child)?);
        let provider = services.providers.get(&delegate.provider).ok_or_else(|| StartError::NoProvider(delegate.provider.clone()))?;
        provider.check(delegate, descriptor.mode)?;
        if descriptor.model.is_none() && provider.capabilities.model {
            descriptor.model = self.view.log.look(|fold| fold.model().cloned());
        }
        let descriptor = Arc::new(descriptor);
        let inherited = self.inherited(&provider, &child, &descriptor).await?;
        race_point!("prepared");
        let inherits = !inherited.is_empty();
        let message_id = message.id.clone();
        let mut session = NewSession::child(child.clone(), parent.id.clone(), parent.depth);
        session.cwd.clone_from(&parent.cwd);
        let create = Create::child(session.clone(), inherited, &descriptor, Some(Arc::new(message)), services.now()).map_err(|error| malformed(&error))?;
        race_point!("before-create");
        // The last synchronous step: nothing that has ended may still create, and nothing is created of what a provider that is gone has prepared.
        let pass = self.admit(Begins::Child)?;
        if provider.removed.is_cancelled() {
            return Err(StartError::NoProvider(delegate.provider.clone()));
        }
        let [pending] = services.journal.submit([Op::Create(create)]);
        let mut wake = Waking::new(services, Cow::Owned(child.clone()), Some(&parent.id), pending);
        let done = wake.done_within(services.config.ask_deadline).await;
        drop(pass);
        race_point!("created-before-wake");
        let existing = match done {
            Ok(Done::Created { existing, .. }) => existing,
            Ok(_) => false,
            // What differs can be what was inherited since, and that alone. A derived id follows from everything that was asked for.
            Err(WriteError::Refused(Refused::Exists(_))) if delegate.child.is_none() && effect.is_some() => true,
            Err(WriteError::Refused(Refused::Exists(_))) if self.is_child(&session, &[&descriptor], &message_id).await? => true,
            Err(error @ WriteError::Refused(Refused::Exists(_))) => {
                wake.forget();
                return Err(error.into());
            }
            // Everything else of it has been looked at.
            Err(WriteError::Refused(Refused::Invalid { message, .. })) if inherits => return Err(failed(&provider, &invalid_prefix(message))),
            Err(error) => {
                if let Some(turn) = &self.turn {
                    turn.not_written(&error);
                }
                return Err(error.into());
            }
        };
        if !existing {
            services.tell(|| Occurrence::Created { session: child.clone(), parent: parent.id.clone(), label: delegate.label.as_deref().map(Into::into) });
        }
        Ok((Delegated { child, message: message_id, existing }, Some(wake)))
    }

    /// Has a provider say what the child inherits, for as long as somebody wants to know.
    async fn inherited(&self, provider: &Registered, child: &SessionId, descriptor: &Arc<Descriptor>) -> Result<Vec<Event>, StartError> {
        let services = &self.services;
        let cancel = CancellationToken::new();
        // What the provider has begun elsewhere hears of it, however this ends.
        let _over = cancel.clone().drop_guard();
        let readers = Arc::new(services.readers.clone());
        let prepare =
            Prepare { child: child.clone(), parent: self.view.header.clone(), descriptor: descriptor.clone(), cancel, readers: Arc::downgrade(&readers) };
        let deadline = services.config.start_deadline;
        let prepared = self.unless_given_up(tokio::time::timeout(deadline, provider.prepare(prepare)));
        tokio::select! {
            biased;
            prepared = prepared => match prepared? {
                Ok(prepared) => prepared.map_err(|error| failed(provider, &error)),
                Err(_) => Err(failed(provider, &PrepareError::new("START_DEADLINE", format!("it gave no answer within {deadline:?}")))),
            },
            () = provider.removed.cancelled() => Err(StartError::NoProvider(provider.name.to_string())),
            () = services.closing.cancelled() => Err(StartError::Draining),
        }
    }

    /// Tells whether a session that is there is the child of this delegation, whatever it has inherited.
    async fn is_child(&self, session: &NewSession, descriptors: &[&Descriptor], message: &MessageId) -> Result<bool, StartError> {
        let descriptors: Vec<_> = descriptors.iter().map(serde_json::to_value).collect::<Result<_, _>>().map_err(|error| malformed(&error))?;
        let (mut session, message) = (session.clone(), message.clone());
        let look = move |reader: &mut dyn Reader| {
            let Some(header) = reader.header(&session.id)? else { return Ok(false) };
            session.seed_length = header.seed_length;
            // The id of the message says what the message is.
            if !session.matches(&header) || reader.message(&session.id, &message)?.is_none() {
                return Ok(false);
            }
            let own = reader.events(&session.id, header.seed_length, 1)?;
            Ok(own.first().is_some_and(|event| matches!(&event.body, Body::Descriptor(data) if descriptors.contains(data))))
        };
        match self.services.readers.read(look).await {
            Err(LoadError::NotFound(_) | LoadError::Removed(_)) => Ok(false),
            found => found.map_err(|error| StartError::Read(Arc::new(error))),
        }
    }
}

/// A child as it would be, but for what its provider and its parent give along.
struct Planned {
    child: SessionId,
    message: Message,
    descriptor: Descriptor,
    effect: Option<Effect>,
}

fn failed(provider: &Registered, error: &PrepareError) -> StartError {
    StartError::Provider { provider: provider.name.to_string(), code: error.code(), reason: error.to_string() }
}

fn malformed(error: &serde_json::Error) -> StartError {
    StartError::Descriptor(DescriptorError::Malformed(error.to_string()))
}
