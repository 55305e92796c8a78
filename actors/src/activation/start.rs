//! Cold start: from what is on disk to a live session.
//!
//! Takes a turn slot first, so that what waits for one costs no memory; then loads, begins the epoch and opens the next turn in one
//! transaction, and only then makes an actor.

use std::{pin::pin, sync::Arc};

use greenroom_session::{
    check::{Class, lineage},
    descriptor::Mode,
    fold::Fold,
    header::Header,
    id::SessionId,
    recover::begin_epoch,
    store::{Done, Fence, LoadError, Op, Open, Reader, Refused, StoreError},
    turns::Claimed,
};
use ractor::{Actor, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Activation, ActivationArgs};
use crate::{
    behind::go_behind,
    closed::{Pass, is_closed},
    error::{ActivateError, WriteError},
    lifecycle::Beginning,
    lineage::Lineage,
    live::{LiveView, NewView},
    log::SessionLog,
    race::race_point,
    registry::{Incarnation, RegistryMessage},
    services::Services,
    setup::{Installed, Setup},
};

/// Which session to start, and whether it is wanted without work.
#[derive(Debug)]
pub(crate) struct StartRequest {
    pub(crate) session: SessionId,
    pub(crate) incarnation: Incarnation,
    pub(crate) keep: bool,
    /// Whether the Registry knows whose child it is.
    pub(crate) is_owned: bool,
}

/// Starts a session and tells the Registry how that went, whatever happens.
pub(crate) async fn start(services: Arc<Services>, registry: ActorRef<RegistryMessage>, request: StartRequest) {
    let (session, incarnation) = (request.session.clone(), request.incarnation);
    let mut report = Report { registry: registry.clone(), session: Some((session.clone(), incarnation)), pass: None };
    let slot = slot_for(&services, &request).await;
    race_point!("before-load");
    let slot = match slot {
        Some(slot) if !services.is_draining() => slot,
        _ => {
            report.tell(Err(ActivateError::Draining));
            return;
        }
    };
    let deadline = services.config.start_deadline;
    let starting = services.starting.clone().acquire_owned().await;
    let result = match tokio::time::timeout(deadline, bring_up(&services, &registry, request, slot, &mut report.pass)).await {
        Ok(result) => result,
        Err(_) => Err(ActivateError::Deadline(session.clone())),
    };
    drop(starting);
    race_point!("before-started");
    report.tell(result);
}

/// Waits for a turn slot; a kept session takes one only if it is free. `None` if the session is closed meanwhile: others may keep the slots for ever.
async fn slot_for(services: &Services, request: &StartRequest) -> Option<Option<OwnedSemaphorePermit>> {
    if request.keep {
        return Some(services.slots.clone().try_acquire_owned().ok());
    }
    let mut news = services.closed.news();
    let mut slot = pin!(services.slots.clone().acquire_owned());
    loop {
        if is_closed(services, &request.session).await {
            return None;
        }
        tokio::select! {
            biased;
            // Its parent ends after it, and may have the slot that it waits for.
            () = services.closing.cancelled() => return None,
            slot = &mut slot => return Some(slot.ok()),
            Ok(()) = news.changed() => {}
        }
    }
}

/// Reports a start that panicked or was dropped, so that nobody waits for it for ever.
struct Report {
    registry: ActorRef<RegistryMessage>,
    session: Option<(SessionId, Incarnation)>,
    /// Kept until the Registry has heard of the end, so that whoever closes something finds the start or what came of it.
    pass: Option<Pass<'static>>,
}

impl Report {
    fn tell(&mut self, result: Result<Option<Arc<LiveView>>, ActivateError>) {
        if let Some((session, incarnation)) = self.session.take() {
            drop(self.registry.send_message(RegistryMessage::Started { session, incarnation, result, pass: self.pass.take() }));
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some((session, _)) = &self.session {
            let error = ActivateError::NotResumable { session: session.clone(), reason: "its start was cut off".into(), code: "START_FAILED" };
            self.tell(Err(error));
        }
    }
}

/// How often a start looks again when the log moved between its load and its first write.
const LOOKS: usize = 4;

async fn bring_up(
    services: &Arc<Services>,
    registry: &ActorRef<RegistryMessage>,
    request: StartRequest,
    slot: Option<OwnedSemaphorePermit>,
    pass: &mut Option<Pass<'static>>,
) -> Result<Option<Arc<LiveView>>, ActivateError> {
    let StartRequest { session, incarnation, keep, is_owned } = request;
    let mut shut = CancellationToken::new();
    for look in 1..=LOOKS {
        let (id, live) = (session.clone(), services.live.clone());
        let read = move |reader: &mut dyn Reader| {
            let fold = reader.folded(&id)?;
            let is_own_ancestor = closes_a_cycle(reader, fold.header())?;
            let lineage = Lineage::find(reader, &live, fold.header())?;
            Ok::<_, LoadError>((fold, is_own_ancestor, lineage))
        };
        let (mut fold, is_own_ancestor, lineage) = services.readers.read(read).await.map_err(|error| ActivateError::from_load(&session, error))?;
        // A lost epoch is brought up again even without work: its parent has yet to be told.
        if !fold.head().wants_holder() && !keep {
            return Ok(None);
        }
        if is_own_ancestor {
            return Err(ActivateError::NotResumable { session, reason: "it is its own ancestor".into(), code: "NOT_RESUMABLE" });
        }
        race_point!("before-entry");
        if pass.is_none() {
            let (entered, token) = services.closed.enter_start(&session, &lineage).map_err(|_| ActivateError::Draining)?;
            *pass = Some(entered);
            shut = token;
        }
        // Made before anything is written, so that a behaviour that cannot be made uses no attempt.
        let behavior = agent_of(services, &session, &fold)?();
        if let (false, Some(parent)) = (is_owned, &fold.header().parent) {
            // From here on the parent does not settle.
            drop(registry.send_message(RegistryMessage::Owned { session: session.clone(), incarnation, parent: parent.clone() }));
        }
        let installed = set_up(services, &fold, &shut).await?;
        race_point!("before-open");
        // The last look before the write: what a generation that is over begins, the next one may not find.
        if services.is_draining() || shut.is_cancelled() {
            return Err(ActivateError::Draining);
        }
        let (epoch, begin) = begin_epoch(&fold, services.now(), services.config.max_attempts);
        let beginning = Beginning::of(&fold, &begin);
        // Without a slot no turn may run; a kept session opens without one and asks for it as any other.
        // Requests come before the first turn: what they are about must not begin meanwhile.
        let asked = fold.head().pending_controls > 0;
        let claim = (slot.is_some() && !asked).then(|| services.now());
        let open = Open { session: session.clone(), epoch, events: begin.clone().into(), claim };
        let claimed = match services.journal.commit(Op::Open(open)).await {
            Ok(Done::Opened { claimed }) => claimed,
            Ok(_) => None,
            Err(WriteError::Refused(Refused::Moved { .. } | Refused::Fenced { .. })) => continue,
            // Whoever waits for it should not be refused for a visit, which takes a moment.
            Err(WriteError::Refused(Refused::Held(_))) if keep && look < LOOKS => {
                tokio::time::sleep(services.config.poll_interval).await;
                continue;
            }
            Err(WriteError::Refused(Refused::Held(owner))) => return Err(ActivateError::Held { session, owner: owner.to_string() }),
            Err(error) => return Err(error.into()),
        };
        race_point!("after-open");
        for event in begin.iter().chain(claimed.iter().flat_map(|claimed: &Claimed| claimed.events.iter())) {
            fold.apply_event(event).map_err(|error| ActivateError::NotResumable { session: session.clone(), reason: error.to_string(), code: error.code() })?;
        }
        // What waits is the store's affair from here on.
        fold.forget_inbox();
        let (header, continuable) = (fold.header().clone(), fold.described().is_some_and(|descriptor| descriptor.mode == Mode::Continuable));
        let fence = Fence { session: session.clone(), epoch };
        let log = Arc::new(SessionLog::new(fold, fence, services.journal.clone(), services.config.clock.clone()));
        let new = NewView { header, epoch, beginning, lineage, continuable, log, installed };
        let (services, registry) = (services.clone(), registry.clone());
        return publish(|give| ActivationArgs { services, new, give, behavior, opened: claimed, asked, slot, incarnation, registry }).await.map(Some);
    }
    Err(ActivateError::NotResumable { session, reason: "its log kept moving".into(), code: "SEQ_CONFLICT" })
}

/// Tells whether this session is the one that a cycle of parents is told of. It must not live: it would own itself and never settle, or its notice of having
/// settled would go round the cycle and wake everybody on its way for ever. The others of the cycle may, since their notices end here.
fn closes_a_cycle(reader: &mut dyn Reader, header: &Header) -> Result<bool, StoreError> {
    Ok(lineage(header, |id| reader.header(id))?.iter().any(|finding| finding.class == Class::LineageCycle))
}

fn agent_of(services: &Services, session: &SessionId, fold: &Fold) -> Result<crate::behavior::Factory, ActivateError> {
    if let Some((seq, name)) = fold.unknown() {
        return Err(ActivateError::NotResumable {
            session: session.clone(),
            reason: format!("event {seq} is of the unknown type {name:?}"),
            code: "EVENT_UNKNOWN",
        });
    }
    let Some(agent) = fold.agent() else {
        return Err(ActivateError::NotResumable { session: session.clone(), reason: "it has no supported continuation state".into(), code: "NOT_RESUMABLE" });
    };
    services.config.behaviors.get(agent).cloned().ok_or_else(|| ActivateError::AgentUnknown { session: session.clone(), agent: agent.to_owned() })
}

/// Has contributions set a session up, before anything of it is written. What they have installed is released if the start comes to nothing.
async fn set_up(services: &Services, fold: &Fold, shut: &CancellationToken) -> Result<Installed, ActivateError> {
    if services.setups.is_empty() {
        return Ok(Installed::default());
    }
    // Whoever was woken last by this thread runs next on it, and on no other: a contribution that blocks must not keep the Registry from what it was just told.
    go_behind().await;
    let setup = Setup::of(fold);
    let installed = tokio::select! {
        biased;
        // Nobody waits for what would not be used.
        () = services.closing.cancelled() => return Err(ActivateError::Draining),
        () = shut.cancelled() => return Err(ActivateError::Draining),
        installed = Installed::apply(&services.setups, &setup, &services.occurrences) => installed?,
    };
    installed.commit(&setup)?;
    Ok(installed)
}

/// Makes the actor and waits for what is to be published of it.
async fn publish(args: impl FnOnce(oneshot::Sender<Arc<LiveView>>) -> ActivationArgs) -> Result<Arc<LiveView>, ActivateError> {
    // What is published holds the actor's reference, so the actor makes it.
    let (give, view) = oneshot::channel();
    let args = args(give);
    let (session, registry) = (args.new.header.id.clone(), args.registry.get_cell());
    let failed = |error: String| ActivateError::NotResumable { session: session.clone(), reason: error, code: "START_FAILED" };
    Activation::spawn_linked(None, Activation, args, registry).await.map_err(|error| failed(error.to_string()))?;
    view.await.map_err(|error| failed(error.to_string()))
}
