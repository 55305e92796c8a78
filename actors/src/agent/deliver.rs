//! Messages to children and reports to the parent.

use std::{sync::Arc, time::Duration};

use greenroom_session::{
    id::{EffectKind, MessageId, SessionId},
    message::{Block, Message, MessageKind, Source},
    store::Refused,
};

use super::{Agent, admission::Begins};
use crate::{
    error::{DeliverError, WriteError},
    live::LiveView,
    reach::{addressee, not_continuable, played_by_host},
    turn_core::Effect,
};

impl Agent {
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
                stored = self.unless_given_up(addressee(services, child)).await.map_err(|barred| barred.delivering(child))??;
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
            let pass = self.admit(parent.map_or(Begins::Report, |_| Begins::Message(to))).map_err(|barred| barred.delivering(to))?;
            let accepted = services.accept(to, live, parent, message.clone()).await;
            drop(pass);
            match accepted {
                Ok(_) => return Ok(()),
                Err(WriteError::Refused(Refused::Busy { .. })) if self.turn.is_some() && waited < services.config.send_patience => {
                    let Some(turn) = &self.turn else { continue };
                    let aside = turn.step_aside();
                    let slept = self.unless_given_up(tokio::time::sleep(pause)).await;
                    aside.end().await;
                    slept.map_err(|barred| barred.delivering(to))?;
                    waited += pause;
                    pause = (pause * 2).min(Duration::from_millis(200));
                }
                Err(error) => return Err(DeliverError::from_write(to, error)),
            }
        }
    }
}
