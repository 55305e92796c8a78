//! For tests only: killing a runtime's own actors, and looking whether anything is left over. Behind the feature `chaos`, which no program needs.

use greenroom_session::id::SessionId;

use crate::{Host, live::Player};

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

/// Kills an actor as a bug in it would: in the middle of whatever it does. Tells whether there was one.
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
    match victim {
        Victim::Registry => services.registry.get_cell().kill(),
        Victim::Journal => services.journal.actor().kill(),
        Victim::Query => return services.query.as_ref().map(|query| query.get_cell().kill()).is_some(),
        Victim::Catalog => return services.catalog.as_ref().map(|catalog| catalog.get_cell().kill()).is_some(),
        Victim::Activation(id) => match services.live.get(id).as_deref().map(|view| &view.player) {
            Some(Player::Agent(actor)) => actor.kill(),
            Some(Player::Host(actor)) => actor.kill(),
            None => return false,
        },
    }
    true
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

impl Residency {
    /// Looks at the newest generation of a runtime.
    ///
    /// ```
    /// use greenroom_actors::{Config, System, chaos::Residency};
    /// # use greenroom_session::store::memory::MemoryStore;
    /// # tokio_test::block_on(async {
    /// let config = Config { max_live: 4, ..Config::default() };
    /// # let system = System::start(config, std::sync::Arc::new(MemoryStore::new()), true).await?;
    /// assert_eq!(Residency::of(&system.host()).turn_slots, 4);
    /// # system.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn of(host: &Host) -> Self {
        let services = host.services();
        Self { live: services.live.len(), turn_slots: services.slots.available_permits(), start_permits: services.starting.available_permits() }
    }
}
