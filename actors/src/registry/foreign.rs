//! What other processes have written, and what they have left behind.

use std::{collections::HashSet, sync::Arc};

use greenroom_session::{id::SessionId, store::Reader};
use ractor::ActorRef;

use super::{entry::State, message::RegistryMessage, state::RegistryState};
use crate::services::Services;

impl RegistryState {
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
        let mut roots = self.pins.all();
        // Nobody would be started there.
        roots.retain(|root| !services.closed.is_below(root));
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
}

/// Returns whose child a session is, if its header can be read.
fn parent_of(reader: &mut dyn Reader, session: &SessionId) -> Option<SessionId> {
    reader.header(session).ok().flatten().and_then(|header| header.parent.clone())
}
