//! The Supervisor: starts the other actors, restarts them together, shuts them down in order.
//!
//! **Messages.** `Shutdown` from the system's owner; ends of its children from ractor.
//! **State.** The generation under way. The journal, the registry, the query and the catalog actor of one generation live and die together: what one
//! of them had under way when it died is unknown to the others, and only the store can tell.
//! **Order.** A new generation starts when every Activation of the old one has ended, so that no session has two.
//! **End.** Ordered: no new work, then turns, then Activations child-first, then the journal, then the lease.

use std::{
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use greenroom_session::{
    id::SessionId,
    store::{Store, StoreError},
};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{Semaphore, broadcast, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    catalog::{Catalog, CatalogState},
    closed::Closed,
    config::Config,
    journal::{Journal, JournalArgs, JournalHandle},
    live::LiveTable,
    nudge::Nudge,
    occurrence::Occurrence,
    pins::{Pins, Played},
    provider::Providers,
    query::{Query, QueryState},
    readers::Readers,
    registry::{Registry, RegistryArgs, RegistryMessage},
    services::Services,
    setup::Setups,
};

/// What the supervisor is told.
#[derive(Debug)]
pub(crate) enum SupervisorMessage {
    /// End everything in order.
    Shutdown {
        /// Gets told when all have ended.
        reply: oneshot::Sender<()>,
    },
}

pub(crate) struct SupervisorArgs {
    pub(crate) config: Arc<Config>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) occurrences: broadcast::Sender<Occurrence>,
    pub(crate) current: watch::Sender<Arc<Services>>,
    pub(crate) first: Arc<Services>,
    pub(crate) cells: Vec<ActorCell>,
    pub(crate) with_query: bool,
}

/// The actor.
#[derive(Debug)]
pub(crate) struct Supervisor;

pub(crate) struct SupervisorState {
    config: Arc<Config>,
    store: Arc<dyn Store>,
    occurrences: broadcast::Sender<Occurrence>,
    current: watch::Sender<Arc<Services>>,
    services: Arc<Services>,
    cells: Vec<ActorCell>,
    with_query: bool,
    ending: bool,
}

impl Actor for Supervisor {
    type Msg = SupervisorMessage;
    type State = SupervisorState;
    type Arguments = SupervisorArgs;

    async fn pre_start(&self, myself: ActorRef<SupervisorMessage>, args: SupervisorArgs) -> Result<SupervisorState, ActorProcessingErr> {
        for cell in &args.cells {
            cell.link(myself.get_cell());
        }
        let SupervisorArgs { config, store, occurrences, current, first, cells, with_query } = args;
        Ok(SupervisorState { config, store, occurrences, current, services: first, cells, with_query, ending: false })
    }

    async fn handle(&self, myself: ActorRef<SupervisorMessage>, message: SupervisorMessage, state: &mut SupervisorState) -> Result<(), ActorProcessingErr> {
        let SupervisorMessage::Shutdown { reply } = message;
        state.ending = true;
        state.shut_down().await;
        reply.send(()).ok();
        myself.stop(None);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMessage>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, reason) = match event {
            SupervisionEvent::ActorTerminated(cell, _, reason) => (cell, reason.unwrap_or_default()),
            SupervisionEvent::ActorFailed(cell, error) => (cell, error.to_string()),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => return Ok(()),
        };
        // Ends of an older generation come late.
        if state.ending || !state.cells.iter().any(|known| known.get_id() == cell.get_id()) {
            return Ok(());
        }
        tracing::error!(%reason, "an actor of the runtime has died; a new generation begins");
        state.end_generation().await;
        let kept = (state.services.pins.clone(), state.services.played.clone(), state.services.setups.clone(), state.services.providers.clone());
        let (services, cells) = launch(&state.config, &state.store, &state.occurrences, state.with_query, kept).await?;
        for cell in &cells {
            cell.link(myself.get_cell());
        }
        let last = std::mem::replace(&mut state.services, services.clone());
        state.cells = cells;
        drop(last.successor.set(services.clone()));
        state.current.send_replace(services.clone());
        last.pass_on();
        take_up(&services).await;
        Ok(())
    }
}

impl SupervisorState {
    /// Ends what is left of a generation whose parts no longer fit together.
    async fn end_generation(&mut self) {
        self.services.begin_draining();
        let live = self.services.live.all();
        for cell in &self.cells {
            cell.stop(Some("its generation has ended".into()));
        }
        for view in &live {
            view.cell().stop(Some("its generation has ended".into()));
        }
        for view in &live {
            // A turn that blocks its thread cannot be waited for; its appends are fenced by the next epoch.
            drop(view.cell().wait(Some(self.config.shutdown_grace)).await);
        }
        for cell in &self.cells {
            drop(cell.wait(Some(self.config.shutdown_grace)).await);
        }
        for view in live {
            // Whoever holds on to it must find out that nobody is behind it any more.
            view.gate.close();
        }
    }

    async fn shut_down(&mut self) {
        let _until_the_end = Nudge::begin();
        self.services.ending.store(true, Ordering::Release);
        self.services.begin_draining();
        let (reply, drained) = oneshot::channel();
        if self.services.registry.send_message(RegistryMessage::DrainAll { reply }).is_ok() {
            // A second time, for whoever waited for an end that was given up.
            let bound = (self.config.shutdown_grace + self.config.interrupt_grace) * 2;
            if tokio::time::timeout(bound, drained).await.is_err() {
                tracing::warn!("some turns did not end in time; they are served again by the next process");
            }
        }
        self.end_generation().await;
        let store = self.store.clone();
        let closed = if store.is_inline() { store.close() } else { tokio::task::spawn_blocking(move || store.close()).await.unwrap_or(Ok(())) };
        if let Err(error) = closed {
            tracing::warn!(%error, "the store was not closed in order");
        }
    }
}

/// Wakes what the last generation left behind: what was live in it, what handles keep, and what has work below those.
async fn take_up(services: &Arc<Services>) {
    let own = services.store.owner().clone();
    let left = services
        .readers
        .read(move |reader| {
            Ok::<_, StoreError>(reader.leases(None)?.into_iter().filter(|lease| lease.owner == own).map(|lease| lease.session).collect::<Vec<_>>())
        })
        .await
        .unwrap_or_else(|error| {
            tracing::warn!(%error, "the store could not be asked for what was live");
            Vec::new()
        });
    // What a host played is ended by whoever has that to do, and woken by nobody.
    let left = left.into_iter().filter(|session| services.played.of(session).is_none());
    for session in services.pins.all().into_iter().chain(left) {
        services.wake(&session, None);
    }
    drop(services.registry.send_message(RegistryMessage::Foreign { sessions: Vec::new() }));
}

/// Starts the actors of one generation.
pub(crate) async fn launch(
    config: &Arc<Config>,
    store: &Arc<dyn Store>,
    occurrences: &broadcast::Sender<Occurrence>,
    with_query: bool,
    (pins, played, setups, providers): (Pins, Played, Setups, Providers),
) -> Result<(Arc<Services>, Vec<ActorCell>), ActorProcessingErr> {
    let readers = Readers::new(store.clone());
    let live = LiveTable::default();
    let slot: Arc<OnceLock<Weak<Services>>> = Arc::default();
    let (registry, _) = Actor::spawn(None, Registry, RegistryArgs { services: slot.clone(), pins: pins.clone() }).await?;
    let news = registry.clone();
    let foreign = Box::new(move |sessions: Vec<SessionId>| drop(news.send_message(RegistryMessage::Foreign { sessions })));
    let wakes = slot.clone();
    let forsaken = Box::new(move |session: &SessionId, parent: Option<&SessionId>| {
        if let Some(services) = wakes.get().and_then(Weak::upgrade) {
            services.wake(session, parent);
        }
    });
    let (journal, _) = Actor::spawn(None, Journal, JournalArgs { store: store.clone(), poll: config.poll_interval, foreign, forsaken }).await?;
    let mut cells = vec![registry.get_cell(), journal.get_cell()];
    let (mut query, mut catalog) = (None, None);
    if with_query {
        let (actor, _) = Actor::spawn(None, Query, QueryState::new(config, readers.clone(), live.clone())).await?;
        let (lists, _) = Actor::spawn(None, Catalog, CatalogState { query: actor.clone(), live: live.clone() }).await?;
        cells.extend([actor.get_cell(), lists.get_cell()]);
        (query, catalog) = (Some(actor), Some(lists));
    }
    let services = Arc::new(Services {
        config: config.clone(),
        store: store.clone(),
        journal: JournalHandle::new(store.clone(), journal),
        registry,
        query,
        catalog,
        readers,
        live,
        slots: Arc::new(Semaphore::new(config.max_live.clamp(1, Semaphore::MAX_PERMITS))),
        starting: Arc::new(Semaphore::new(config.max_starting.clamp(1, Semaphore::MAX_PERMITS))),
        occurrences: occurrences.clone(),
        draining: AtomicBool::new(false),
        ending: AtomicBool::new(false),
        pins,
        played,
        setups,
        providers,
        closed: Closed::default(),
        closing: CancellationToken::new(),
        successor: OnceLock::new(),
        missed: Mutex::default(),
    });
    drop(slot.set(Arc::downgrade(&services)));
    Ok((services, cells))
}

/// How long the last answers of a shutdown may take beyond its grace.
pub(crate) const SHUTDOWN_SLACK: Duration = Duration::from_secs(5);
