//! From a publication to a live session: created or continued, durable, its epoch begun, and only then handed out.

use std::sync::Arc;

use greenroom_session::{
    event::Event,
    fold::Fold,
    id::{Epoch, SessionId},
    recover::begin_epoch,
    store::{Create, Done, Fence, LoadError, Op, Open, Reader, Refused},
};
use ractor::{Actor, ActorRef};
use tokio::sync::oneshot;

use super::{
    Publication, PublishedSession,
    actor::{Published, PublishedArgs},
    let_go,
    publication::Seed,
};
use crate::{
    error::{PublishError, WriteError},
    lifecycle::Beginning,
    lineage::Lineage,
    live::{LiveView, NewView},
    log::SessionLog,
    occurrence::Occurrence,
    race::race_point,
    registry::{Incarnation, RegistryMessage},
    services::Services,
    setup::Installed,
};

/// Gets the handle.
pub(crate) type Started = oneshot::Sender<Result<PublishedSession, PublishError>>;

/// A publication on its way through the Registry.
#[derive(Debug)]
pub(crate) struct Publishing {
    publication: Publication,
    started: Started,
}

impl Publishing {
    pub(crate) fn new(publication: Publication, started: Started) -> Self {
        Self { publication, started }
    }

    pub(crate) fn session(&self) -> &SessionId {
        &self.publication.session.id
    }

    pub(crate) fn refuse(self, error: PublishError) {
        drop(self.started.send(Err(error)));
    }
}

/// How often a publication looks again when its session changed between a look and a write.
const LOOKS: usize = 4;

/// Publishes a session and tells the Registry how that went, whatever happens; then the host.
pub(crate) async fn start(services: Arc<Services>, registry: ActorRef<RegistryMessage>, publishing: Publishing, incarnation: Incarnation) {
    let Publishing { publication, started } = publishing;
    let session = publication.session.id.clone();
    let mut report = Report { registry: &registry, session: Some((session.clone(), incarnation)) };
    race_point!("before-publication");
    if started.is_closed() {
        // Nobody would hold it.
        return;
    }
    let permit = services.starting.clone().acquire_owned().await;
    let opened = tokio::time::timeout(services.config.start_deadline, open(&services, &publication)).await;
    drop(permit);
    race_point!("before-published");
    let error = match opened.unwrap_or(Err(PublishError::Deadline(session.clone()))) {
        Ok((found, began, mut lease)) => match hand_over(&services, &registry, incarnation, found, began, started).await {
            Ok(view) => {
                // Its actor looks after it now.
                lease.kept = true;
                report.session = None;
                // The host hears of it from the actor, after the table has it.
                let actor = view.cell();
                if registry.send_message(RegistryMessage::Started { session, incarnation, result: Ok(Some(view)), pass: None }).is_err() {
                    actor.stop(Some("its generation has ended".into()));
                }
                return;
            }
            Err(error) => {
                tracing::error!(%session, %error, "the actor of a publication did not start");
                return;
            }
        },
        Err(error) => error,
    };
    // The Registry first, so that whoever hears of the failure may try again.
    drop(report);
    drop(started.send(Err(error)));
}

/// Takes the entry of a publication that came to nothing out of the Registry, also if its task is dropped.
struct Report<'a> {
    registry: &'a ActorRef<RegistryMessage>,
    session: Option<(SessionId, Incarnation)>,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if let Some((session, incarnation)) = self.session.take() {
            drop(self.registry.send_message(RegistryMessage::Started { session, incarnation, result: Ok(None), pass: None }));
        }
    }
}

/// An epoch that may have begun for a host; ended by somebody else unless it is kept.
struct Lease {
    services: Arc<Services>,
    session: SessionId,
    epoch: Epoch,
    kept: bool,
}

impl Lease {
    fn new(services: &Arc<Services>, session: &SessionId, epoch: Epoch) -> Self {
        services.played.begin(session, epoch);
        Self { services: services.clone(), session: session.clone(), epoch, kept: false }
    }

    /// Nothing has begun.
    fn forget(mut self) {
        self.kept = true;
        if self.services.played.end(&self.session, self.epoch) {
            self.services.wake(&self.session, None);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.kept {
            let_go(&self.services, &self.session, self.epoch);
        }
    }
}

/// Creates or finds the session and begins its next epoch.
async fn open(services: &Arc<Services>, publication: &Publication) -> Result<((Fold, Lineage), (Epoch, Beginning), Lease), PublishError> {
    let session = &publication.session.id;
    publication.check()?;
    for _ in 0..LOOKS {
        if !ensure(services, publication).await? {
            continue;
        }
        race_point!("publication-created");
        let id = session.clone();
        let live = services.live.clone();
        let read = move |reader: &mut dyn Reader| {
            let fold = reader.folded(&id)?;
            let lineage = Lineage::find(reader, &live, fold.header())?;
            Ok::<_, LoadError>((fold, lineage))
        };
        let (mut fold, lineage) = services.readers.read(read).await.map_err(|error| PublishError::from_load(session, error))?;
        if let Some((seq, name)) = fold.unknown() {
            let reason = format!("event {seq} is of the unknown type {name:?}");
            return Err(PublishError::NotResumable { session: session.clone(), reason, code: "EVENT_UNKNOWN" });
        }
        let (epoch, begin) = begin_epoch(&fold, services.now(), services.config.max_attempts);
        let beginning = Beginning::of(&fold, &begin);
        let open = Open { session: session.clone(), epoch, events: begin.clone().into(), claim: None };
        race_point!("publication-loaded");
        if services.is_draining() {
            return Err(PublishError::Draining);
        }
        let lease = Lease::new(services, session, epoch);
        match services.journal.commit(Op::Open(open)).await {
            Ok(_) => {}
            Err(WriteError::Refused(refused)) => {
                lease.forget();
                match refused {
                    // A visit, or another host of this process that came first.
                    Refused::Moved { .. } | Refused::Fenced { .. } => continue,
                    Refused::Held(owner) => return Err(PublishError::Held { session: session.clone(), owner: owner.to_string() }),
                    other => return Err(PublishError::Write(other.into())),
                }
            }
            Err(error) => return Err(error.into()),
        }
        race_point!("publication-opened");
        for event in &begin {
            fold.apply_event(event).map_err(|error| PublishError::NotResumable { session: session.clone(), reason: error.to_string(), code: error.code() })?;
        }
        // What waits stays the store's affair; nobody serves it here.
        fold.forget_inbox();
        return Ok(((fold, lineage), (epoch, beginning), lease));
    }
    Err(PublishError::NotResumable { session: session.clone(), reason: "its log kept moving".into(), code: "SEQ_CONFLICT" })
}

/// Makes sure that the session of a publication is stored and begins as it says. Returns false if somebody else created it meanwhile.
async fn ensure(services: &Arc<Services>, publication: &Publication) -> Result<bool, PublishError> {
    let (session, seed) = (publication.session.clone(), publication.events(services.now())?);
    let exists = || PublishError::Exists(session.id.clone());
    let (id, count) = (session.id.clone(), seed.as_ref().map_or(0, Vec::len));
    let found = services.readers.read(move |reader| Ok(reader.header(&id)?.map(|header| (header, reader.events(&id, 0, count)))));
    let found = found.await.map_err(|error| PublishError::from_load(&session.id, error))?;
    match (found, seed) {
        (Some(_), None) => Ok(true),
        (None, None) => Err(PublishError::NotFound(session.id.clone())),
        (Some((header, beginning)), Some(seed)) => {
            let beginning = beginning.map_err(|error| PublishError::from_load(&session.id, error))?;
            if session.matches(&header) && is_same(&beginning, &seed) { Ok(true) } else { Err(exists()) }
        }
        (None, Some(seed)) => {
            let create = Create { session: session.clone(), time: services.now(), events: seed.into(), message: None };
            match services.journal.commit(Op::Create(create)).await {
                Ok(Done::Created { existing, .. }) => {
                    if !existing {
                        tell(services, publication);
                    }
                    Ok(true)
                }
                // It was not there a moment ago: what it is now is looked at again.
                Ok(_) | Err(WriteError::Refused(Refused::Exists(_))) => Ok(false),
                Err(WriteError::Refused(Refused::Invalid { code, message })) => Err(PublishError::Invalid { code, message }),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// Tells whether two beginnings are the same, times aside.
fn is_same(stored: &[Event], seed: &[Event]) -> bool {
    let alike = |(stored, seed): (&Event, &Event)| Event { time: 0, ..stored.clone() } == Event { time: 0, ..seed.clone() };
    stored.len() == seed.len() && stored.iter().zip(seed).all(alike)
}

fn tell(services: &Services, publication: &Publication) {
    if let (Some(parent), Seed::Child(descriptor)) = (&publication.session.parent, &publication.seed) {
        let label = descriptor.label.as_deref().map(Into::into);
        services.tell(|| Occurrence::Created { session: publication.session.id.clone(), parent: parent.clone(), label });
    }
}

/// Makes the actor and the view of it.
async fn hand_over(
    services: &Arc<Services>,
    registry: &ActorRef<RegistryMessage>,
    incarnation: Incarnation,
    (fold, lineage): (Fold, Lineage),
    (epoch, beginning): (Epoch, Beginning),
    started: Started,
) -> Result<Arc<LiveView>, String> {
    let header = fold.header().clone();
    let fence = Fence { session: header.id.clone(), epoch };
    let log = Arc::new(SessionLog::new(fold, fence, services.journal.clone(), services.config.clock.clone()));
    let new = NewView { header, epoch, beginning, lineage, continuable: false, log, installed: Installed::default() };
    let make = move |player| LiveView::new(new, player);
    let (give, view) = oneshot::channel();
    let args = PublishedArgs { services: services.clone(), registry: registry.clone(), incarnation, view: Box::new(make), give, started };
    Published::spawn_linked(None, Published, args, registry.get_cell()).await.map_err(|error| error.to_string())?;
    view.await.map_err(|error| error.to_string())
}
