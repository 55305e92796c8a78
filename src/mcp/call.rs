//! One call of a client.

use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
};
use tokio_util::sync::CancellationToken;

use crate::{tool::ToolError, wire::Room};

/// One call of a client: how it is told of progress, and how it gives up.
pub(super) struct Call {
    pub(super) peer: Peer<RoleServer>,
    pub(super) token: Option<ProgressToken>,
    pub(super) room: Room,
    /// The client has given the call up, or has gone.
    pub(super) cancelled: CancellationToken,
    /// The client has gone.
    pub(super) ended: CancellationToken,
}

impl Call {
    /// Tells of progress, if the client wants to know and reads what it is told.
    pub(super) async fn tell(&self, progress: f64, total: Option<f64>, message: String) {
        let Some(token) = &self.token else { return };
        if !self.room.try_take() {
            return;
        }
        let mut told = ProgressNotificationParam::new(token.clone(), progress).with_message(message);
        told.total = total;
        if let Err(error) = self.peer.notify_progress(told).await {
            tracing::debug!(%error, "progress was not told");
        }
    }

    /// Tells whether the client itself has given the call up, while it goes on.
    pub(super) fn is_given_up(&self) -> bool {
        self.cancelled.is_cancelled() && !self.ended.is_cancelled()
    }

    pub(super) fn aborted() -> ToolError {
        ToolError::new("ABORTED", "the call was cancelled")
    }
}
