//! How a start comes to its end: the session is live, or is not, and whether it is looked at again.

use std::{sync::Arc, time::Duration};

use greenroom_session::id::SessionId;
use ractor::ActorRef;
use tokio::task::AbortHandle;

use super::{
    drain::fence,
    entry::{State, refuse},
    message::{Incarnation, RegistryMessage},
    state::RegistryState,
};
use crate::{
    error::{ActivateError, PublishError},
    live::LiveView,
    occurrence::Occurrence,
    services::Services,
};

/// Pause before a session whose epoch failed is started again.
const FAILED_PAUSE: Duration = Duration::from_millis(250);

impl RegistryState {
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
                // Whoever woke it may have been wrong about whose child it is.
                let mistaken = std::mem::replace(&mut entry.parent, parent.clone()).filter(|mistaken| Some(mistaken) != parent.as_ref());
                entry.state = State::Live(view.clone());
                // From here on it is its end that may be late, not its start.
                entry.watch.take().inspect(AbortHandle::abort);
                if let Some(mistaken) = mistaken {
                    self.disown(myself, services, &session, &mistaken);
                }
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
                self.end_newcomer(myself, services, &view);
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
                self.note_cut_off(services, &session, parent.as_ref());
                self.leave(myself, services, &session, false);
                let again = match &error {
                    // Its epoch may have begun all the same, and nobody else looks after what this process holds.
                    ActivateError::Write(_) | ActivateError::Deadline(_) | ActivateError::Read(_)
                    // It will be set up without the contribution that was removed.
                    | ActivateError::SetupRevoked(_) => true,
                    // Whoever holds it serves what it has, unless it is there for a visit only: that is over by the next look.
                    ActivateError::Held { .. } => self.held.insert(session.clone()) || !self.held.remove(&session),
                    _ => false,
                };
                // Its epoch may have begun for all that, and what looks again would not get as far as to see it.
                if again && self.fail_start(services, &session, &error) {
                    fence(myself, services, session);
                } else if again {
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
}

/// Has a session looked at again after a pause: what made its epoch fail may still be there.
pub(super) fn look_again(registry: &ActorRef<RegistryMessage>, session: SessionId, parent: Option<SessionId>) {
    let registry = registry.clone();
    tokio::spawn(async move {
        tokio::time::sleep(FAILED_PAUSE).await;
        drop(registry.send_message(RegistryMessage::Wake { session, parent }));
    });
}
