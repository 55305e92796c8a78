//! Waiting until a session has nothing to do.

use std::{sync::Arc, time::Duration};

use greenroom_session::{
    head::Head,
    id::{OwnerId, SessionId},
    store::{LoadError, Reader, Traced},
};
use tokio::sync::{broadcast, oneshot};

use super::Host;
use crate::{
    closed::is_closed, error::ControlError, live::LiveView, occurrence::Occurrence, published::PLAYED_BY_HOST, race::race_point, registry::RegistryMessage,
    services::Services, wait::Patience,
};

impl Host {
    /// Waits until a session has nothing to do: no turn of it is open or to be repeated, and nothing waits that opens one. Its children may have work, and so
    /// may quiet notes and whatever is held wait.
    ///
    /// Told by the store alone, so that what it returns on is durable. A session that has work and that nobody runs is started, and one that another process
    /// runs is waited for.
    ///
    /// # Errors
    /// [`ControlError::NotFound`] if there is no such session, [`ControlError::NotResumable`] if it has work and cannot run here, or its log is damaged,
    /// [`ControlError::Draining`] if a shutdown or a drain has left it with work, and [`ControlError::Read`] if the store failed.
    ///
    /// # Cancel safety
    /// Changes nothing that a later call would not change.
    pub async fn when_idle(&self, session: &SessionId) -> Result<(), ControlError> {
        // Heard from before the first look on, so that nothing falls in between.
        let mut news = self.subscribe();
        let mut patience = Patience::default();
        loop {
            race_point!("before-idle-look");
            let services = self.services();
            let (head, holder) = look(&services, session).await?;
            if !head.has_work() {
                return Ok(());
            }
            race_point!("idle-looked");
            let unable = |reason: &str| Err(ControlError::NotResumable { session: session.clone(), reason: reason.into(), code: "NOT_RESUMABLE" });
            if services.played.of(session).is_some() || services.live.get(session).as_deref().is_some_and(LiveView::is_published) {
                return unable(PLAYED_BY_HOST);
            }
            let elsewhere = holder.is_some_and(|holder| holder != *services.store.owner());
            if !elsewhere && !services.live.is_resident(session) {
                if services.is_ending() || is_closed(&services, session).await {
                    return Err(ControlError::Draining);
                }
                if !services.is_draining() {
                    if !patience.tries(session, &head) {
                        return unable("it has work and does not get on");
                    }
                    start(&services, session).await;
                }
            }
            heard_of(&mut news, session, services.config.poll_interval).await;
        }
    }
}

/// Has a session started; on return its start has begun, if it can.
async fn start(services: &Arc<Services>, session: &SessionId) {
    services.wake(session, None);
    let (reply, heard) = oneshot::channel();
    if services.registry.send_message(RegistryMessage::Heard { reply }).is_ok() {
        drop(heard.await);
    }
}

async fn look(services: &Services, session: &SessionId) -> Result<(Head, Option<OwnerId>), ControlError> {
    let id = session.clone();
    let described = services.readers.read(move |reader: &mut dyn Reader| {
        let header = reader.header(&id)?.ok_or_else(|| LoadError::NotFound(id.clone()))?;
        let traced = Traced { id: id.clone(), created_at: header.created_at, header: Ok(header) };
        reader.describe(std::slice::from_ref(&traced), false)?.pop().unwrap_or(Err(LoadError::NotFound(id)))
    });
    described.await.map(|description| (description.head, description.holder)).map_err(|error| ControlError::from_load(session, error))
}

/// Waits until something has come to its end in a session, not longer than this.
async fn heard_of(news: &mut broadcast::Receiver<Occurrence>, session: &SessionId, time: Duration) {
    let heard = async {
        loop {
            match news.recv().await {
                Ok(Occurrence::TurnEnded { session: of, .. } | Occurrence::Ended { session: of, .. } | Occurrence::NotActivated { session: of, .. })
                    if of == *session =>
                {
                    return;
                }
                Ok(_) => {}
                // It may have been among what was missed.
                Err(broadcast::error::RecvError::Lagged(_)) => return,
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    };
    // Of another process nothing is heard, and of this one not every change: then the look is what tells.
    drop(tokio::time::timeout(time, heard).await);
}
