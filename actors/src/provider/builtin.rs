//! The providers that are always there.

use futures::future::{BoxFuture, ready};
use greenroom_session::event::{Body, Event};

use super::{Capabilities, Prepare, PrepareError, Prepared, Provider};

/// The provider whose children begin with an empty history.
pub const SPAWN: &str = "spawn";

/// The provider whose children begin with their parent's history up to its last ended turn.
pub const FORK: &str = "fork";

/// Gives nothing along.
pub(super) struct Spawn;

impl Provider for Spawn {
    fn capabilities(&self) -> Capabilities {
        Capabilities { inherits: false, ..Capabilities::all() }
    }

    fn prepare(&self, _: Prepare) -> BoxFuture<'_, Result<Prepared, PrepareError>> {
        Box::pin(ready(Ok(Prepared::default())))
    }
}

/// Gives along what the parent has come to the end of.
pub(super) struct Fork;

impl Provider for Fork {
    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    fn prepare(&self, prepare: Prepare) -> BoxFuture<'_, Result<Prepared, PrepareError>> {
        Box::pin(async move { Ok(Prepared { inherited: completed_prefix(prepare.parent_log().await?) }) })
    }
}

/// Returns the events through the last ended turn; none if no turn has ended.
fn completed_prefix(mut events: Vec<Event>) -> Vec<Event> {
    let end = events.iter().rposition(|event| matches!(event.body, Body::TurnEnd { .. })).map_or(0, |at| at + 1);
    events.truncate(end);
    events
}
