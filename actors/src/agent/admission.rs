//! Whether a live agent may still begin something: the last synchronous step before anything is accepted.

use std::{future::Future, pin::pin};

use futures::future::{Either, select};
use greenroom_session::id::SessionId;
use tokio_util::sync::CancellationToken;

use super::Agent;
use crate::{
    closed::Pass,
    error::{DeliverError, StartError},
};

/// What an agent is about to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins<'a> {
    /// A child.
    Child,
    /// A message to this child.
    Message(&'a SessionId),
    /// A report to the parent.
    Report,
}

/// Why an agent may not begin something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Barred {
    /// It grants nothing any more, for this reason.
    Over(&'static str),
    /// Whoever asked has given up.
    Cancelled,
    /// No new work is accepted here.
    Draining,
    /// The end of its epoch is under way.
    Closing,
}

impl Agent {
    /// Returns this capability for requests that `cancel` gives up.
    ///
    /// It owns them until they are accepted, and nothing afterwards: what is on its way to the disk is waited for, and what has been accepted is served. A
    /// request that was given up says so with the code `CANCELLED`, and nothing of it is there then.
    ///
    /// ```
    /// use greenroom_actors::{Delegate, error::StartError, host::NewRoot};
    /// use tokio_util::sync::CancellationToken;
    /// # tokio_test::block_on(async {
    /// # let mut config = greenroom_actors::Config::default();
    /// # config.behavior("echo", || |_: greenroom_actors::Turn| async { Ok(greenroom_actors::TurnEnd::Completed) });
    /// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
    /// # let system = greenroom_actors::System::start(config, store, true).await?;
    /// let root = system.host().root(NewRoot::new("echo", "a desk")).await?;
    /// let cancel = CancellationToken::new();
    /// let desk = root.agent().cancellable(cancel.clone());
    /// cancel.cancel();
    /// assert!(matches!(desk.start_continuable(Delegate::new("echo", "an echo", "one")).await, Err(StartError::Cancelled)));
    /// # system.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn cancellable(&self, cancel: CancellationToken) -> Self {
        Self { cancel: Some(cancel), ..self.clone() }
    }

    /// Lets something begin now, or tells why it may not. Nothing is awaited between this and the hand-over to the journal. Whoever drains what it is for waits until
    /// the pass is dropped.
    pub(super) fn admit(&self, begins: Begins<'_>) -> Result<Pass<'_>, Barred> {
        if let Some(barred) = self.barred(begins == Begins::Child) {
            return Err(barred);
        }
        let (closed, view) = (&self.services.closed, &self.view);
        let entered = match begins {
            Begins::Child => closed.enter(view.id(), Some(&view.below)),
            Begins::Message(child) => {
                // Whoever has drained a child of its own takes that back by talking to it again.
                closed.open_child(view.id(), view.epoch, child);
                closed.enter(child, Some(&view.below))
            }
            Begins::Report => closed.enter(view.id(), Some(&view.lineage)),
        };
        let pass = entered.map_err(|_| Barred::Draining)?;
        // Looked at last: its end is under way from before it is closed by it.
        if view.is_ending() { Err(Barred::Closing) } else { Ok(pass) }
    }

    /// Tells why nothing may begin, whomever it is for.
    pub(super) fn barred(&self, is_child: bool) -> Option<Barred> {
        if let Some(over) = self.over() {
            return Some(Barred::Over(over));
        }
        if self.is_given_up() {
            return Some(Barred::Cancelled);
        }
        // A turn that a shutdown waits for may still say what it has to say, and begins nothing new.
        let is_last_word = !is_child && self.turn.is_some();
        (self.services.is_draining() && !is_last_word).then_some(Barred::Draining)
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    /// Does something before acceptance, unless it is given up first.
    pub(super) async fn unless_given_up<T>(&self, work: impl Future<Output = T>) -> Result<T, Barred> {
        let Some(cancel) = &self.cancel else { return Ok(work.await) };
        match select(pin!(cancel.cancelled()), pin!(work)).await {
            Either::Left(_) => Err(Barred::Cancelled),
            Either::Right((done, _)) => Ok(done),
        }
    }
}

impl From<Barred> for StartError {
    fn from(barred: Barred) -> Self {
        match barred {
            Barred::Over(reason) => Self::Unauthorized(reason),
            Barred::Cancelled => Self::Cancelled,
            Barred::Draining => Self::Draining,
            Barred::Closing => Self::Closing,
        }
    }
}

impl Barred {
    pub(super) fn delivering(self, to: &SessionId) -> DeliverError {
        match self {
            Self::Over(reason) => DeliverError::Unauthorized { child: to.to_string(), reason },
            Self::Cancelled => DeliverError::Cancelled,
            Self::Draining => DeliverError::Draining,
            Self::Closing => DeliverError::Closing,
        }
    }
}
