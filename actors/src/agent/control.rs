//! Ending the turns of sessions below, and taking messages back.

use std::time::Duration;

use greenroom_session::{
    id::{MessageId, SessionId},
    message::Source,
};

use super::Agent;
use crate::{control, error::ControlError};

impl Agent {
    /// Ends the turn that is under way in a child, or in a child of a child and so on, as `aborted`; its queue goes on, and so does whatever is below it.
    /// Returns the number of the turn. See [`Host::interrupt`](crate::Host::interrupt).
    ///
    /// # Errors
    /// [`ControlError::Unauthorized`] if it is not below this agent, and as [`Host::interrupt`](crate::Host::interrupt).
    ///
    /// # Cancel safety
    /// What was asked may be done all the same.
    pub async fn interrupt(&self, child: &SessionId, patience: Duration) -> Result<u64, ControlError> {
        self.may_interrupt(child).await?;
        control::interrupt(&self.services, child, "parent", patience).await
    }

    /// Takes a message back that this agent sent to a direct child and that has no turn yet. See [`Host::withdraw`](crate::Host::withdraw).
    ///
    /// # Errors
    /// [`ControlError::Unauthorized`] if this is not its parent or the message is of somebody else, and as [`Host::withdraw`](crate::Host::withdraw).
    ///
    /// # Cancel safety
    /// What was asked may be done all the same.
    pub async fn withdraw(&self, child: &SessionId, message: &MessageId, patience: Duration) -> Result<(), ControlError> {
        self.may_control(child).await?;
        // What a message says of its sender never changes, so it may be looked at before.
        if let Some(source) = control::sender_of(&self.services, child, message).await?
            && !matches!(&source, Source::Coordinator { session } if session == self.view.id())
        {
            return Err(ControlError::Unauthorized { child: child.clone(), reason: "the message is of somebody else" });
        }
        control::withdraw(&self.services, child, message, "parent", patience).await
    }

    async fn may_interrupt(&self, target: &SessionId) -> Result<(), ControlError> {
        let unauthorized = |reason| Err(ControlError::Unauthorized { child: target.clone(), reason });
        if !control::is_below(&self.services, target, self.view.id()).await? {
            return unauthorized("it is not below this agent");
        }
        self.over().map_or(Ok(()), unauthorized)
    }

    async fn may_control(&self, child: &SessionId) -> Result<(), ControlError> {
        let unauthorized = |reason| Err(ControlError::Unauthorized { child: child.clone(), reason });
        let header = if let Some(view) = self.services.live.get(child) {
            view.header.clone()
        } else {
            let wanted = child.clone();
            let found = self.services.readers.read(move |reader| reader.header(&wanted)).await;
            found.map_err(|error| ControlError::from_load(child, error))?.ok_or_else(|| ControlError::NotFound(child.clone()))?
        };
        if header.parent.as_ref() != Some(self.view.id()) {
            return unauthorized("it belongs to another parent session");
        }
        self.over().map_or(Ok(()), unauthorized)
    }
}
