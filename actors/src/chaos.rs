//! For tests only: killing a runtime's own actors, and looking whether anything is left over. Behind the feature `chaos`, which no program needs.

use std::sync::Arc;

use greenroom_session::id::SessionId;
use ractor::{ActorRef, ActorStatus};

use crate::{Host, live::Player, services::Services};

/// One of a runtime's own actors.
///
/// ```
/// use greenroom_actors::chaos::Victim;
/// assert_eq!(format!("{:?}", Victim::Registry), "Registry");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Victim {
    /// The one that knows who is live.
    Registry,
    /// The one that commits.
    Journal,
    /// The one that reads.
    Query,
    /// The one that lists.
    Catalog,
    /// That of a live session.
    Activation(SessionId),
}

/// Kills an actor as a bug in it would: in the middle of whatever it does. Tells whether there was one that ran.
///
/// ```
/// use greenroom_actors::{System, chaos::{Victim, kill}};
/// # use greenroom_actors::Config;
/// # use greenroom_session::store::memory::MemoryStore;
/// # tokio_test::block_on(async {
/// # let system = System::start(Config::default(), std::sync::Arc::new(MemoryStore::new()), true).await?;
/// assert!(kill(&system.host(), &Victim::Registry)); // the next generation takes over
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub fn kill(host: &Host, victim: &Victim) -> bool {
    let services = host.services();
    let cell = match victim {
        Victim::Registry => Some(services.registry.get_cell()),
        Victim::Journal => Some(services.journal.actor().get_cell()),
        Victim::Query => services.query.as_ref().map(ActorRef::get_cell),
        Victim::Catalog => services.catalog.as_ref().map(ActorRef::get_cell),
        Victim::Activation(id) => services.live.get(id).map(|view| match &view.player {
            Player::Agent(actor) => actor.get_cell(),
            Player::Host(actor) => actor.get_cell(),
        }),
    };
    let running =
        cell.filter(|cell| matches!(cell.get_status(), ActorStatus::Unstarted | ActorStatus::Starting | ActorStatus::Running | ActorStatus::Upgrading));
    if let Some(cell) = &running {
        cell.kill();
    }
    running.is_some()
}

/// One generation of a runtime's actors: from their start to the death of one of them.
///
/// ```
/// use greenroom_actors::{Config, System, chaos::Generation};
/// # use greenroom_session::store::memory::MemoryStore;
/// # tokio_test::block_on(async {
/// let config = Config { max_live: 4, ..Config::default() };
/// # let system = System::start(config, std::sync::Arc::new(MemoryStore::new()), true).await?;
/// let first = Generation::of(&system.host());
/// assert!(first.is(&Generation::of(&system.host())));
/// assert_eq!(first.residency().turn_slots, 4);
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Generation(Arc<Services>);

impl Generation {
    /// Returns the newest generation of a runtime.
    pub fn of(host: &Host) -> Self {
        Self(host.services())
    }

    /// Tells whether both are the same.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Looks what is left over in it.
    pub fn residency(&self) -> Residency {
        Residency { live: self.0.live.len(), turn_slots: self.0.slots.available_permits(), start_permits: self.0.starting.available_permits() }
    }
}

/// What a runtime at rest must have none of, and all of.
///
/// ```
/// use greenroom_actors::chaos::Residency;
/// let rest = Residency { live: 0, turn_slots: 4, start_permits: 2 };
/// assert_eq!(rest.live, 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residency {
    /// Sessions that are live.
    pub live: usize,
    /// Turn slots that are free.
    pub turn_slots: usize,
    /// Starts that may begin.
    pub start_permits: usize,
}
