//! A running set of actors over one store.

use std::{fmt, sync::Arc};

use greenroom_session::store::{Store, StoreError};
use ractor::{Actor, ActorRef};
use tokio::sync::{broadcast, oneshot, watch};

use crate::{
    config::Config,
    error::SystemError,
    host::Host,
    pins::{Pins, Played},
    provider::Providers,
    services::Services,
    setup::Setups,
    supervisor::{SHUTDOWN_SLACK, Supervisor, SupervisorArgs, SupervisorMessage, launch},
};

/// Occurrences that a slow subscriber may lag behind before it loses the oldest.
const OCCURRENCES: usize = 4096;

/// A running system. Dropping it stops the actors without order; [`System::shutdown`] ends it well.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_actors::{Config, System, Turn, TurnEnd, host::NewRoot};
/// use greenroom_session::store::memory::MemoryStore;
/// # tokio_test::block_on(async {
/// let mut config = Config::default();
/// config.behavior("idler", || |_turn: Turn| async { Ok(TurnEnd::Completed) });
/// let system = System::start(config, Arc::new(MemoryStore::new()), true).await?;
/// let root = system.host().root(NewRoot::new("idler", "a desk")).await?;
/// assert_eq!(system.host().live_count(), 1);
/// system.shutdown().await;
/// assert_eq!(system.host().live_count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct System {
    supervisor: ActorRef<SupervisorMessage>,
    current: watch::Receiver<Arc<Services>>,
    config: Arc<Config>,
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System").field("config", &self.config).finish_non_exhaustive()
    }
}

impl System {
    /// Starts the actors over a store. `with_query: false` leaves out the query service: starting and sending work, listing does not.
    ///
    /// # Errors
    /// [`SystemError::Config`] if a bound of the configuration makes no sense, [`SystemError::Store`] if the store cannot be read or an actor cannot start.
    ///
    /// # Cancel safety
    /// Actors may be left running until their runtime ends.
    pub async fn start(config: Config, store: Arc<dyn Store>, with_query: bool) -> Result<Self, SystemError> {
        config.check_queries().map_err(SystemError::Config)?;
        let config = Arc::new(config);
        let (occurrences, _) = broadcast::channel(OCCURRENCES);
        let io = |error: ractor::ActorProcessingErr| StoreError::Unsupported(format!("the runtime's actors cannot start: {error}"));
        let (services, cells) = launch(&config, &store, &occurrences, with_query, <(Pins, Played, Setups, Providers)>::default()).await.map_err(io)?;
        let (sender, current) = watch::channel(services.clone());
        let args = SupervisorArgs { config: config.clone(), store, occurrences, current: sender, first: services, cells, with_query };
        let (supervisor, _) = Actor::spawn(None, Supervisor, args).await.map_err(|error| io(error.into()))?;
        Ok(Self { supervisor, current, config })
    }

    /// Returns the authority over everything in the store.
    pub fn host(&self) -> Host {
        Host::new(self.current.clone())
    }

    /// Ends every turn as `disposed`, every Activation child-first, and gives up the lease. What is pending stays pending.
    ///
    /// Bounded: turns that do not end in time are left to the next process, which serves them again.
    ///
    /// # Cancel safety
    /// The shutdown goes on.
    pub async fn shutdown(&self) {
        let (reply, done) = oneshot::channel();
        if self.supervisor.send_message(SupervisorMessage::Shutdown { reply }).is_ok() {
            let bound = self.config.shutdown_grace * 4 + self.config.interrupt_grace * 2 + SHUTDOWN_SLACK;
            drop(tokio::time::timeout(bound, done).await);
        }
    }
}

impl Drop for System {
    fn drop(&mut self) {
        self.supervisor.stop(None);
    }
}
