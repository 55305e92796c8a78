//! Messages to children and reports to the parent.

use std::{sync::Arc, time::Duration};

use greenroom_session::{
    header::Header,
    id::{EffectKind, MessageId, SessionId},
    message::{Block, Message, MessageKind, Source},
    store::Refused,
};

use super::{
    Agent,
    admission::{Barred, Begins},
};
use crate::{
    error::{DeliverError, WriteError},
    live::LiveView,
    race::race_point,
    reach::{is_continuable, stored, takes_followups, unreadable},
    turn_core::Effect,
};

/// What tells one message from others of the same turn.
enum Named<'a> {
    /// What it says, and how often that was said.
    Content,
    /// A key of the caller's choice.
    Key(&'a str),
    /// An id of the caller's choice, within a turn as well as outside of one.
    Own(MessageId),
}

impl Agent {
    /// Sends a direct child the message of its next turn and returns once it is durable in the child's inbox.
    ///
    /// The message never redirects a turn under way. It does not matter whether the child is live: one that has settled is brought up again by what is in its log,
    /// without whatever provider made it. Within a turn this is an effect, and a full inbox is waited for, within bounds and until the turn is cancelled.
    ///
    /// # Errors
    /// [`DeliverError`]; the message was not delivered then, unless the error is `INDETERMINATE`. Whoever is not the parent is told nothing else of a session.
    ///
    /// # Cancel safety
    /// The message may have been accepted. Within a turn the same send again is the same acceptance.
    pub async fn followup(&self, child: &SessionId, text: impl Into<String>) -> Result<MessageId, DeliverError> {
        self.send(child, text.into(), Named::Content).await
    }

    /// Sends as [`Agent::followup`] under an id of the caller's choice: the same id and text again is the same acceptance.
    ///
    /// # Errors
    /// As [`Agent::followup`]; `MESSAGE_ID_CONFLICT` if the id was used with another text.
    ///
    /// # Cancel safety
    /// The message may have been accepted; the same call again is safe.
    pub async fn followup_as(&self, id: MessageId, child: &SessionId, text: impl Into<String>) -> Result<MessageId, DeliverError> {
        self.send(child, text.into(), Named::Own(id)).await
    }

    /// Sends as [`Agent::followup`]; within a turn the effect is named by `key` in place of its content, outside of one it has no name.
    pub(crate) async fn followup_keyed(&self, child: &SessionId, text: String, key: &str) -> Result<MessageId, DeliverError> {
        self.send(child, text, Named::Key(key)).await
    }

    async fn send(&self, child: &SessionId, text: String, named: Named<'_>) -> Result<MessageId, DeliverError> {
        let services = &self.services;
        self.admitted(child)?;
        // Where a message goes is a matter of who is live, and of nothing else.
        let live = services.live.get(child);
        if let Some(view) = &live {
            self.is_own(child, &view.header)?;
            takes_followups(child, view)?;
        } else {
            let stored = self.unless_given_up(stored(services, child)).await.map_err(|barred| barred.delivering(child))?;
            let (header, verdict) = stored.map_err(|error| unreadable(child, error))?;
            self.is_own(child, &header)?;
            is_continuable(child, verdict)?;
        }
        let source = Source::Coordinator { session: self.view.id().clone() };
        let id = if let Named::Own(id) = &named { id.clone() } else { services.message_id() };
        let mut message = Message::with(id, MessageKind::Turn, vec![Block::text(text)], source, services.now(), true)?;
        let effect = match (&self.turn, named) {
            (None, _) | (_, Named::Own(_)) => None,
            (Some(turn), Named::Content) => Some(turn.effect(EffectKind::Send, child.as_str(), message.text().as_bytes())),
            (Some(turn), Named::Key(key)) => Some(turn.named_effect(EffectKind::Send, child.as_str(), key.as_bytes())),
        };
        if let Some(effect) = effect {
            message.id = effect.key.message_id();
        }
        self.deliver((child, live), Some(self.view.id()), message, effect.map(|effect| (effect, EffectKind::Send))).await
    }

    fn is_own(&self, child: &SessionId, header: &Header) -> Result<(), DeliverError> {
        // Before anything else is told of it: what a stranger has is nobody's business.
        match &header.parent {
            Some(parent) if parent == self.view.id() => Ok(()),
            Some(_) => Err(DeliverError::Unauthorized { child: child.to_string(), reason: "it belongs to another parent session" }),
            None => Err(DeliverError::Unauthorized { child: child.to_string(), reason: "it is nobody's child" }),
        }
    }

    fn admitted(&self, to: &SessionId) -> Result<(), DeliverError> {
        self.barred(false).map_or(Ok(()), |barred| Err(barred.delivering(to)))
    }

    /// Reports to the parent: a note in its inbox, in order with all others. A waking note has an idle or settled parent run.
    ///
    /// # Errors
    /// [`DeliverError`]; in a root `UNAUTHORIZED`, since it has nobody to report to; `PARENT_UNAVAILABLE` if the parent is not in the store or is damaged.
    ///
    /// # Cancel safety
    /// The report may have been accepted. Within a turn the same report again is the same acceptance.
    pub async fn report(&self, text: impl Into<String>, quiet: bool) -> Result<MessageId, DeliverError> {
        self.report_named(text.into(), quiet, None).await
    }

    /// Reports as [`Agent::report`]; within a turn the effect is named by `key`, if one is given, in place of its content.
    pub(crate) async fn report_named(&self, text: String, quiet: bool, key: Option<&str>) -> Result<MessageId, DeliverError> {
        let services = &self.services;
        let Some(parent) = self.view.header.parent.clone() else {
            return Err(DeliverError::Unauthorized { child: self.view.id().to_string(), reason: "a root has nobody to report to" });
        };
        let source = Source::SubagentReport { session: self.view.id().clone() };
        let mut message = Message::note(services.message_id(), text, source, services.now(), quiet)?;
        let effect = self.turn.as_ref().map(|turn| match key {
            Some(key) => turn.named_effect(EffectKind::Report, parent.as_str(), key.as_bytes()),
            None => turn.effect(EffectKind::Report, parent.as_str(), &reported(&message)),
        });
        if let Some(effect) = effect {
            message.id = effect.key.message_id();
        }
        self.deliver((&parent, None), None, message, effect.map(|effect| (effect, EffectKind::Report))).await
    }

    /// Has a message accepted, once: what an earlier attempt at this turn's message has done is not done again. `to` is the receiver, as it
    /// was live just now, and `parent` its parent, where that is known.
    async fn deliver(
        &self,
        (to, live): (&SessionId, Option<Arc<LiveView>>),
        parent: Option<&SessionId>,
        message: Message,
        effect: Option<(Effect, EffectKind)>,
    ) -> Result<MessageId, DeliverError> {
        if self.was_accepted(effect.map(|(effect, _)| effect)) {
            return self.admitted(to).map(|()| message.id);
        }
        let message = Arc::new(message);
        let mut in_hand = self.in_hand(effect.map(|(effect, _)| effect));
        // Handed over before the receiver is woken, so that it is durable before the receiver's turn: a child that kills the process does not take its
        // parent's progress along.
        let mut accepted = || {
            if let (Some(in_hand), Some((_, kind))) = (in_hand.take(), effect) {
                in_hand.accepted(kind, to.as_str(), message.id.as_str());
            }
        };
        self.offer((to, live), parent, &message, &mut accepted).await?;
        Ok(message.id.clone())
    }

    /// Offers a message until it is accepted or refused. Within a turn a full inbox is waited for, within bounds and for as long as the turn is not cancelled.
    async fn offer(
        &self,
        (to, mut seen): (&SessionId, Option<Arc<LiveView>>),
        parent: Option<&SessionId>,
        message: &Arc<Message>,
        accepted: &mut (impl FnMut() + Send),
    ) -> Result<(), DeliverError> {
        let services = &self.services;
        let mut waited = Duration::ZERO;
        let mut pause = Duration::from_millis(5);
        loop {
            race_point!("before-offer");
            // The last synchronous step before acceptance. Who the receiver is cannot have changed; who plays it can.
            let pass = self.admit(parent.map_or(Begins::Report, |_| Begins::Message(to))).map_err(|barred| barred.delivering(to))?;
            // One that was live when it was asked for may have ended since, as it may between this and acceptance: then the wake finds out.
            let live = seen.take().or_else(|| services.live.get(to));
            if message.kind == MessageKind::Turn
                && let Some(view) = &live
            {
                takes_followups(to, view)?;
            }
            let offered = services.accept_and(to, live.as_deref(), parent, message.clone(), &mut *accepted).await;
            drop(pass);
            let Err(error) = offered else { return Ok(()) };
            if let Some(turn) = &self.turn {
                turn.not_written(&error);
            }
            let Some(turn) = self.turn.as_ref().filter(|_| is_full(&error) && waited < services.config.send_patience) else {
                return Err(if message.kind == MessageKind::Turn { DeliverError::from_write(to, error) } else { DeliverError::from_report(to, error) });
            };
            let aside = turn.step_aside();
            let slept = tokio::select! {
                biased;
                () = turn.token().cancelled() => Err(Barred::Cancelled),
                slept = self.unless_given_up(tokio::time::sleep(pause)) => slept,
            };
            aside.end().await;
            slept.map_err(|barred| barred.delivering(to))?;
            waited += pause;
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }
}

fn is_full(error: &WriteError) -> bool {
    matches!(error, WriteError::Refused(Refused::Busy { .. }))
}

/// Returns what makes two reports the same effect: the text, and whether it waits, since a note that wakes is another note than one that does not.
fn reported(note: &Message) -> Vec<u8> {
    let mut content = note.text().into_bytes();
    if !note.wake {
        // No text holds this byte.
        content.push(0xff);
    }
    content
}
