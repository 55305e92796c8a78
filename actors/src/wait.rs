//! Waiting for children: until none is live or can be.

use std::{collections::HashMap, sync::Arc};

use greenroom_session::{head::Head, id::SessionId, listing::Verdict, store::StoreError};
use tokio::sync::oneshot;

use crate::{behavior::TurnError, registry::RegistryMessage, services::Services};

/// Waits until no live session is owned by `parent`.
pub(crate) async fn when_childless(services: &Services, parent: &SessionId) {
    let (reply, done) = oneshot::channel();
    if services.registry.send_message(RegistryMessage::WhenChildless { parent: parent.clone(), reply }).is_ok() {
        // A registry that ended has no live children left.
        drop(done.await);
    }
}

/// What was tried for children that have work and do not run.
#[derive(Debug, Default)]
pub(crate) struct Patience(HashMap<SessionId, (Head, u32)>);

/// How often a child that does not get on is started again by whoever waits for it.
const TRIES: u32 = 3;

impl Patience {
    /// Tells whether it is worth another try, and counts it.
    pub(crate) fn tries(&mut self, id: &SessionId, head: &Head) -> bool {
        let entry = self.0.entry(id.clone()).or_insert_with(|| (head.clone(), 0));
        if entry.0 != *head {
            *entry = (head.clone(), 0);
        }
        entry.1 += 1;
        entry.1 <= TRIES
    }
}

/// Wakes direct children that have work and are not live; tells whether any is worth waiting for.
pub(crate) async fn wake_runnable_children(services: &Arc<Services>, parent: &SessionId, patience: &mut Patience) -> Result<bool, TurnError> {
    let id = parent.clone();
    let own = services.store.owner().clone();
    let mut children = services
        .readers
        .read(move |reader| reader.family(Some(&id), None, usize::MAX, false))
        .await
        .map_err(|error: StoreError| TurnError::new(error.code(), error.to_string()))?;
    // Whose turn was cut off goes first: what cuts turns off must not catch the same ones again and again.
    children.sort_by_key(|(_, described)| !described.as_ref().is_ok_and(|description| description.head.is_unfinished()));
    let parent_view = services.live.get(parent);
    let mut worth = false;
    let mut elsewhere = false;
    for (child, described) in children {
        let Ok(description) = described else { continue };
        let Verdict::Child { agent, .. } = &description.verdict else { continue };
        if description.holder.as_ref().is_some_and(|holder| *holder != own) {
            elsewhere |= description.head.has_work();
        } else if (description.is_runnable() || description.head.has_work())
            && services.config.behaviors.contains_key(agent)
            && !services.closed.is_any_of(parent_view.as_deref(), &child.id)
            && patience.tries(&child.id, &description.head)
        {
            services.wake(&child.id, Some(parent));
            worth = true;
        }
    }
    if elsewhere && !worth {
        // Another process serves it; nothing here is told when it is done.
        tokio::time::sleep(services.config.poll_interval).await;
    }
    Ok(worth || elsewhere)
}
