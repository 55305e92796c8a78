//! Where updates go.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use agent_client_protocol::{
    Client,
    v1::{ConnectionTo, schema as s},
};
use greenroom_session::id::SessionId;

use super::update::Update;
use crate::wire::Room;

/// Nobody reads any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// The way to the client.
#[derive(Clone)]
pub(super) struct Outlet {
    to: ConnectionTo<Client>,
    room: Room,
    with_subagents: Arc<AtomicBool>,
}

impl Outlet {
    pub(super) fn new(to: ConnectionTo<Client>, room: Room, with_subagents: Arc<AtomicBool>) -> Self {
        Self { to, room, with_subagents }
    }

    /// Tells the client something of a session, when it has room for it. What is told is sent in this order.
    pub(super) async fn tell(&self, session: &SessionId, update: Update) -> Result<(), Gone> {
        for update in update.said(self.with_subagents.load(Ordering::Relaxed)) {
            if !self.room.take().await {
                return Err(Gone);
            }
            let id = s::SessionId::new(session.as_str().to_owned());
            self.to.send_notification(s::SessionNotification::new(id, update)).map_err(|_| Gone)?;
        }
        Ok(())
    }
}
