//! What a host plays itself.

use std::sync::Arc;

use greenroom_session::{
    header::Header,
    id::{Seq, SessionId},
};
use tokio::sync::oneshot;

use super::Host;
use crate::{
    error::{ForkError, PublishError, WriteError},
    published::{Publication, PublishedSession, Publishing, fork},
    registry::RegistryMessage,
};

impl Host {
    /// Has a session live that this host plays itself, outside of any Activation. Durable on return: created or gone on with, its epoch begun.
    ///
    /// A session of this id that is stored with the same header and the same beginning is gone on with, after what a crash left open is closed. Until the handle is
    /// dropped the session is listed as running; nobody is started for it, and what this process sends it or asks of it is refused.
    ///
    /// # Errors
    /// [`PublishError::Live`] if it is live here, [`PublishError::Held`] if another live process holds it, [`PublishError::Exists`] if it is stored with another header
    /// or beginning, [`PublishError::NotFound`] if nothing is stored and nothing is given to begin with, [`PublishError::Invalid`] if it cannot begin like this,
    /// [`PublishError::NotResumable`] if its log cannot be continued, [`PublishError::Draining`] during a shutdown, and that the store failed.
    ///
    /// # Cancel safety
    /// The session may have been created; it does not stay live.
    pub async fn publish_session(&self, publication: Publication) -> Result<PublishedSession, PublishError> {
        let services = self.services();
        if services.is_draining() {
            return Err(PublishError::Draining);
        }
        let ended = || PublishError::Write(WriteError::Ended);
        let session = publication.id().clone();
        let (reply, started) = oneshot::channel();
        let publishing = Box::new(Publishing::new(publication, reply));
        services.registry.send_message(RegistryMessage::Publish(publishing)).map_err(|_| ended())?;
        // Longer than the start that it may have to wait for, and its own; one that comes later ends at once, since nobody has its handle.
        let time = services.config.start_deadline * 2 + services.config.ask_deadline;
        match tokio::time::timeout(time, started).await {
            Ok(started) => started.unwrap_or_else(|_| Err(ended())),
            Err(_) => Err(PublishError::Deadline(session)),
        }
    }

    /// Creates a session that begins with the events of another one up to `boundary` (inclusive; the whole log if `None`), live or not, as far as they are durable. It
    /// goes its own way: it is listed nowhere, nobody is woken, and it can be published and read. Durable on return.
    ///
    /// `child` is its id, a new one if `None`. The cut must leave no turn open.
    ///
    /// # Errors
    /// In this order: [`ForkError::Draining`], [`ForkError::AlreadyExists`], [`ForkError::NotFound`], [`ForkError::Damaged`] if the source cannot be read up to there, and
    /// [`ForkError::Cut`] with `INVALID_BOUNDARY` or `OPEN_TURN`; or that the store failed.
    ///
    /// # Cancel safety
    /// The fork may exist.
    pub async fn fork(&self, source: &SessionId, boundary: Option<Seq>, child: Option<SessionId>) -> Result<Arc<Header>, ForkError> {
        fork(&self.services(), source, boundary, child, None).await
    }
}
