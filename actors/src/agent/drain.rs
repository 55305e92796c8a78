//! Draining named children.

use greenroom_session::{header::Header, id::SessionId};

use super::Agent;
use crate::{
    closed::{Scope, Scopes},
    error::DrainError,
    host::drain,
    race::race_point,
};

impl Agent {
    /// Ends these direct children with everything below them, children first, and returns when all have ended. What goes on is cut off as
    /// by a shutdown; what waits stays, durable, and nothing is taken back.
    ///
    /// They and what is below them stay closed until this agent sends one of them a message, which opens that one, or until its epoch ends: until then nobody
    /// else can send them anything (`DRAINING`) and nobody is started, whatever waits there. Siblings go on. A child that is not live is closed all the same.
    ///
    /// # Errors
    /// [`DrainError::Unauthorized`] if one of them is no child of this agent, or this agent has ended; nothing is drained then. As [`Host::drain`](crate::Host::drain)
    /// else.
    ///
    /// # Cancel safety
    /// The drain goes on.
    pub async fn drain_children(&self, children: &[SessionId]) -> Result<(), DrainError> {
        let unauthorized = |child: &SessionId, reason| Err(DrainError::Unauthorized { child: child.clone(), reason });
        for child in children {
            if !self.is_parent_of(child).await? {
                return unauthorized(child, "it is no child of this agent");
            }
        }
        race_point!("before-drain");
        let scopes: Vec<_> = children.iter().map(|child| Scope { session: child.clone(), whole: true }).collect();
        let (services, epoch) = (&self.services, self.view.epoch);
        // The last synchronous step.
        if let (Some(reason), Some(child)) = (self.over(), children.first()) {
            return unauthorized(child, reason);
        }
        let underway = services.closed.close(&scopes, self.view.id(), epoch);
        if let (false, Some(child)) = (self.view.is_open(), children.first()) {
            services.closed.open(self.view.id(), epoch);
            return unauthorized(child, "its epoch has ended");
        }
        let aside = self.turn.as_ref().map(|turn| turn.step_aside());
        let drained = drain(services, scopes.into_iter().collect::<Scopes>(), vec![underway]).await;
        if let Some(aside) = aside {
            aside.end().await;
        }
        drained
    }

    async fn is_parent_of(&self, child: &SessionId) -> Result<bool, DrainError> {
        let is_child = |header: &Header| header.is_subagent() && header.parent.as_ref() == Some(self.view.id());
        if let Some(view) = self.services.live.get(child) {
            return Ok(is_child(&view.header));
        }
        let id = child.clone();
        let header = self.services.readers.read(move |reader| reader.header(&id)).await?;
        Ok(header.is_some_and(|header| is_child(&header)))
    }

    /// Tells whether this is the agent of a session that is live in this generation, in this epoch.
    pub(crate) fn is_current(&self, services: &crate::services::Services) -> bool {
        self.view.is_open() && services.live.get(self.view.id()).is_some_and(|live| std::sync::Arc::ptr_eq(&live, &self.view))
    }

    pub(crate) fn epoch(&self) -> greenroom_session::id::Epoch {
        self.view.epoch
    }

    pub(crate) fn is_open(&self) -> bool {
        self.view.is_open()
    }
}
