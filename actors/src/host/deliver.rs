//! The three deliveries of the host: the message of a turn, a note that steers, a note that waits.

use std::sync::Arc;

use greenroom_session::{
    id::{MessageId, SessionId},
    message::{Message, MessageError, Source},
};

use super::Host;
use crate::{
    closed::{Pass, Shut, lineage_of},
    error::{DeliverError, WriteError},
    race::race_point,
    reach::{takes_followups, takes_messages, unreadable},
    services::Services,
};

impl Host {
    /// Steers any session, as the user: a note that joins the turn under way at its next step boundary, or, where none comes, opens a turn. Durable on return.
    ///
    /// It does not wait behind the messages of [`Host::send`], and it cannot be taken back. Under an id of the caller's choice the same call again is the same
    /// acceptance.
    ///
    /// # Errors
    /// As [`Host::send`]; [`DeliverError::Busy`] counts notes.
    ///
    /// # Cancel safety
    /// The note may have been accepted.
    pub async fn steer(&self, session: &SessionId, text: impl Into<String>, id: Option<MessageId>) -> Result<MessageId, DeliverError> {
        self.deliver(session, id, |id, now| Message::note(id, text, Source::User, now, false)).await
    }

    /// Adds to what any session knows, as the user: a note that joins the next step or turn, whenever that comes. Durable on return; it wakes nobody.
    ///
    /// Under an id of the caller's choice the same call again is the same acceptance.
    ///
    /// # Errors
    /// As [`Host::steer`].
    ///
    /// # Cancel safety
    /// The note may have been accepted.
    pub async fn inject(&self, session: &SessionId, text: impl Into<String>, id: Option<MessageId>) -> Result<MessageId, DeliverError> {
        self.deliver(session, id, |id, now| Message::note(id, text, Source::User, now, true)).await
    }

    /// Has a message accepted. A generation that ends meanwhile is survived.
    pub(super) async fn deliver(
        &self,
        session: &SessionId,
        id: Option<MessageId>,
        make: impl FnOnce(MessageId, u64) -> Result<Message, MessageError>,
    ) -> Result<MessageId, DeliverError> {
        let mut current = self.current.clone();
        // Marks this generation as seen, so that a change is one to the next.
        let mut services = current.borrow_and_update().clone();
        let id = id.unwrap_or_else(|| services.message_id());
        let message = Arc::new(make(id.clone(), services.now())?);
        for again in [true, false] {
            if services.is_ending() || (services.is_draining() && !again) {
                return Err(DeliverError::Draining);
            }
            let live = services.live.get(session);
            takes_messages(&services, session, live.as_deref()).await?;
            race_point!("before-delivery");
            let pass = self.enter(&services, session).await?;
            // Meanwhile a host may have begun to play it.
            let live = services.live.get(session);
            if let Some(view) = live.as_deref().filter(|view| view.is_published()) {
                takes_followups(session, view)?;
            }
            let accepted = services.accept(session, live.as_deref(), None, message.clone()).await;
            drop(pass);
            match accepted {
                Ok(_) => return Ok(id),
                Err(WriteError::Ended) if again => {
                    // The same id is safe: ask the next generation.
                    drop(tokio::time::timeout(services.config.start_deadline, current.changed()).await);
                    services = self.services();
                }
                Err(error) => return Err(DeliverError::from_write(session, error)),
            }
        }
        Err(DeliverError::Write(WriteError::Ended))
    }

    /// Lets a message in, unless it is for a session that is closed. Nothing is read for it where nothing is closed.
    async fn enter<'a>(&self, services: &'a Services, session: &SessionId) -> Result<Pass<'a>, DeliverError> {
        let mut lineage = None;
        loop {
            match services.closed.enter(session, lineage.as_ref()) {
                Ok(pass) => return Ok(pass),
                Err(Shut::Closed) => return Err(DeliverError::Draining),
                Err(Shut::Unknown) => {
                    let found = lineage_of(services, session).await.map_err(|error| unreadable(session, error))?;
                    // One that does not exist is refused by the store.
                    lineage = Some(found.unwrap_or_default());
                }
            }
        }
    }
}
