//! Draining what is below some roots.

use greenroom_session::id::SessionId;
use tokio::sync::oneshot;

use super::Host;
use crate::{
    agent::Agent,
    closed::{Scope, Scopes, Underway},
    error::{DrainError, TeardownFailure},
    race::race_point,
    registry::RegistryMessage,
    services::Services,
};

impl Host {
    /// Ends everything below these agents, children first, and returns when all have ended. The agents themselves stay live, and so does what is beside them.
    ///
    /// First it is closed: from the call on, until the epoch of the agent has ended, nothing new is accepted below it (`DRAINING`): no start, no message of an
    /// agent or of the host, no report of what is below. A later epoch is not affected. Then everybody there is cancelled, parents first; a turn that is
    /// cut off ends as `disposed`. Then everybody is released, children first. What was accepted before stays pending, durable, and nobody is
    /// started for it while it is closed, be it woken by another process; when the epoch has ended it is found as what any runtime has left: by
    /// [`Host::recover`], by the next message, by whoever waits for children.
    ///
    /// An agent whose epoch has ended is ignored; without one nothing is done. What a host plays itself is left alone. The same drain again, at any time, waits for what
    /// is left of it. Whoever waits for somebody who was drained is answered: a turn of the agent that waits for children goes on.
    ///
    /// Bounded: an end that does not come within [`Config::interrupt_grace`](crate::Config::interrupt_grace) and [`Config::shutdown_grace`](crate::Config::shutdown_grace)
    /// is given up; its session is free then, in a new epoch, and what may still go on in the old one can write nothing. A set-up or a behaviour that blocks
    /// its thread cannot be given up on a runtime that has only that thread.
    ///
    /// # Errors
    /// [`DrainError::TeardownFailed`] if somebody did not end in order: when everybody has ended all the same. [`DrainError::Ended`] if an actor of the runtime died.
    ///
    /// # Cancel safety
    /// The drain goes on.
    ///
    /// ```
    /// use greenroom_actors::{Delegate, error::StartError, host::NewRoot};
    /// # tokio_test::block_on(async {
    /// # let mut config = greenroom_actors::Config::default();
    /// # config.behavior("echo", || |_: greenroom_actors::Turn| async { Ok(greenroom_actors::TurnEnd::Completed) });
    /// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
    /// # let system = greenroom_actors::System::start(config, store, true).await?;
    /// # let host = system.host();
    /// let root = host.root(NewRoot::new("echo", "a desk")).await?;
    /// root.agent().start_continuable(Delegate::new("echo", "an echo", "one")).await?;
    /// host.drain(&[root.agent()]).await?;
    /// assert_eq!(host.live_count(), 1); // the desk itself
    /// let refused = root.agent().start_continuable(Delegate::new("echo", "another", "two")).await;
    /// assert!(matches!(refused, Err(StartError::Draining)));
    /// # system.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn drain(&self, roots: &[Agent]) -> Result<(), DrainError> {
        let services = self.services();
        let (mut scopes, mut underway) = (Vec::new(), Vec::new());
        for root in roots.iter().filter(|root| root.is_current(&services)) {
            let scope = Scope { session: root.session().clone(), whole: false };
            let closed = services.closed.close(std::slice::from_ref(&scope), root.session(), root.epoch());
            if root.is_open() {
                scopes.push(scope);
                underway.push(closed);
            } else {
                // Its end may have come just before, and opened nothing.
                services.closed.open(root.session(), root.epoch());
            }
        }
        if scopes.is_empty() { Ok(()) } else { drain(&services, scopes.into_iter().collect(), underway).await }
    }
}

/// Ends everybody in scopes that are closed, and returns when all have ended.
pub(crate) async fn drain(services: &Services, scopes: Scopes, underway: Vec<Underway>) -> Result<(), DrainError> {
    let arrivals = services.closed.arrivals(&scopes);
    // The Registry is done when everybody has ended, which may be before all that was let in has arrived.
    let until_arrived = underway.clone();
    let (reply, ended) = oneshot::channel();
    // When everything ends in order there is nobody left to ask.
    let over = || if services.is_ending() { Ok(()) } else { Err(DrainError::Ended) };
    if services.registry.send_message(RegistryMessage::Drain { scopes, underway, reply }).is_err() {
        return over();
    }
    race_point!("draining");
    let time = services.config.interrupt_grace + services.config.shutdown_grace;
    let late: Vec<SessionId> = match tokio::time::timeout(time, arrivals.ended()).await {
        Ok(()) => Vec::new(),
        Err(_) => arrivals.left(),
    };
    drop(until_arrived);
    let Ok(mut failures) = ended.await else { return over() };
    failures.extend(late.into_iter().map(|session| TeardownFailure {
        session,
        code: "INDETERMINATE",
        reason: "what was accepted for it before is still on its way to the disk".into(),
    }));
    if failures.is_empty() { Ok(()) } else { Err(DrainError::TeardownFailed { failures: failures.into() }) }
}
