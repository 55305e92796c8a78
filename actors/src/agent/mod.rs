//! The capability of a live agent: what it may do to its children and its parent.

mod admission;
mod control;
mod deliver;
mod drain;
mod one_shot;
mod start;

use std::{sync::Arc, time::Duration};

use greenroom_session::id::SessionId;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    catalog::{self, CatalogMessage, Entry},
    error::{ListError, QueryError},
    live::LiveView,
    services::Services,
    turn_core::{Effect, InHand, TurnCore},
};

/// The capability of one live agent, in one epoch.
///
/// It comes from a [`Turn`](crate::Turn) or a [`RootHandle`](crate::RootHandle) and from nowhere else: a session id, a `source` or a later epoch of the same session
/// grants nothing. It ends with its epoch; one that came from a turn ends with the turn.
///
/// ```
/// use greenroom_actors::{Agent, Delegate, host::NewRoot};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let root = host.root(NewRoot::new("echo", "a desk")).await?;
/// let desk: Agent = root.agent();
/// let child = desk.start_continuable(Delegate::new("echo", "an echo", "one")).await?.child;
/// desk.followup(&child, "two").await?; // the child's next turn, whether it is live or has settled
/// root.quiescent().await?;
/// assert_eq!(host.load(&child).await?.fold.head().turns, 2);
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Agent {
    services: Arc<Services>,
    view: Arc<LiveView>,
    turn: Option<Arc<TurnCore>>,
    /// Gives up what is asked for and not accepted.
    cancel: Option<CancellationToken>,
}

impl Agent {
    pub(crate) fn of_turn(core: Arc<TurnCore>) -> Self {
        Self { services: core.services.clone(), view: core.view.clone(), turn: Some(core), cancel: None }
    }

    pub(crate) fn of_root(services: Arc<Services>, view: Arc<LiveView>) -> Self {
        Self { services, view, turn: None, cancel: None }
    }

    /// Returns the session that this is the agent of.
    pub fn session(&self) -> &SessionId {
        self.view.id()
    }

    /// Tells whether an effect of this turn's message needs no doing again.
    fn was_accepted(&self, effect: Option<Effect>) -> bool {
        effect.is_some_and(|effect| self.turn.as_ref().is_some_and(|turn| turn.was_accepted(effect.key)))
    }

    /// Tells why this capability grants nothing any more.
    fn over(&self) -> Option<&'static str> {
        if self.turn.as_ref().is_some_and(|turn| turn.has_ended()) {
            Some("the turn has ended")
        } else if !self.view.is_open() {
            Some("its epoch has ended")
        } else {
            None
        }
    }

    fn in_hand(&self, effect: Option<Effect>) -> Option<InHand<'_>> {
        self.turn.as_deref().zip(effect).map(|(turn, effect)| InHand::new(turn, effect))
    }

    /// Lists the direct children, oldest first, without waking any and without writing anything. Broken ones are entries.
    ///
    /// Costs the number of direct children.
    ///
    /// # Errors
    /// [`ListError`] if the trace failed or `cancel` was cancelled.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_children(&self, cancel: CancellationToken) -> Result<Vec<Entry>, ListError> {
        if let Some(over) = self.over() {
            return Err(ListError::Unauthorized(over));
        }
        list_children(&self.services, self.view.id().clone(), cancel).await
    }
}

/// Asks the catalog for all children of a session.
pub(crate) async fn list_children(services: &Services, parent: SessionId, cancel: CancellationToken) -> Result<Vec<Entry>, ListError> {
    let listing = catalog::ask(services, &cancel, |token, reply| CatalogMessage::Children { parent, page: None, verify: false, cancel: token, reply });
    listing.await.map(|page| page.entries)
}

/// Waits for an answer of the catalog or the query actor, not longer than this.
pub(crate) async fn answered<T, E: From<QueryError>>(answer: oneshot::Receiver<Result<T, E>>, time: Duration) -> Result<T, E> {
    match tokio::time::timeout(time, answer).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(QueryError::Ended.into()),
        Err(_) => Err(QueryError::TimedOut.into()),
    }
}
