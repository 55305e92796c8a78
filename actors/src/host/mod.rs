//! The host: the authority of whoever owns the store, and the handles that keep roots.

mod cancel;
mod deliver;
mod drain;
mod idle;
mod one_shot;
mod provider;
mod publish;
mod root;
mod setup;

use std::{fmt, sync::Arc, time::Duration};

use greenroom_session::{
    digest::{DigestError, StoreDigest},
    event::Event,
    fold::Fold,
    header::NewSession,
    id::{MessageId, Seq, SessionId},
    listing::Description,
    message::{Message, Source},
    store::{Create, Lease, LoadError, Log, MessageState, Op, Refused, StoreError, Traced},
};
use tokio::sync::{broadcast, oneshot, watch};
use tokio_util::sync::CancellationToken;

use root::Pin;

use crate::{
    catalog::{self, CatalogMessage, Descendants, Listing},
    control,
    error::{ActivateError, ControlError, DeliverError, ListError, QueryError, StartError, WriteError},
    live::LiveView,
    occurrence::Occurrence,
    query::{self, EventLine, EventWindow, Page, QueryMessage, SessionPage, Trace, Window},
    registry::RegistryMessage,
    services::Services,
};

pub(crate) use cancel::cancel;
pub use cancel::{Cancel, Cancelled, Cause};
pub(crate) use drain::drain;
pub use root::{NewRoot, RootError, RootHandle};

/// The authority of whoever owns the store.
///
/// A behaviour gets no way to it from its turn; whoever hands it one has made that behaviour the host.
///
/// ```
/// use greenroom_actors::{Host, host::NewRoot};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let owner: Host = system.host();
/// let root = owner.root(NewRoot::new("echo", "a desk")).await?;
/// // Durable on return, whether the session is live or not.
/// owner.send(root.id(), "hello", None).await?;
/// assert!(owner.quiescent(root.id()).await?.is_empty()); // nothing is stuck
/// assert_eq!(owner.load(root.id()).await?.fold.head().turns, 1);
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Host {
    current: watch::Receiver<Arc<Services>>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl Host {
    pub(crate) fn new(current: watch::Receiver<Arc<Services>>) -> Self {
        Self { current }
    }

    pub(crate) fn services(&self) -> Arc<Services> {
        self.current.borrow().clone()
    }

    /// Creates a root if it does not exist, and keeps it live until the handle is dropped. The root is durable on return.
    ///
    /// # Errors
    /// [`RootError::Start`] if its behaviour is not registered, its label breaks the rule for labels, its model route names nothing, a session of its id was created differently, or the
    /// store failed; [`RootError::Activate`] if it exists and could not be brought up.
    ///
    /// # Cancel safety
    /// The root may exist.
    pub async fn root(&self, new: NewRoot) -> Result<RootHandle, RootError> {
        let services = self.services();
        if !services.config.behaviors.contains_key(&new.opened.agent) {
            return Err(RootError::Start(StartError::AgentUnknown(new.opened.agent)));
        }
        greenroom_session::text::check_label(&new.opened.label).map_err(|error| StartError::Descriptor(error.into()))?;
        if let Some(model) = &new.opened.model {
            model.check().map_err(StartError::Descriptor)?;
        }
        let id = new.id.unwrap_or_else(|| SessionId::from_uuid(services.config.ids.uuid()));
        let mut session = NewSession::root(id.clone());
        session.cwd = new.cwd;
        let create = Create::opened(session, new.opened, services.now());
        let [pending] = services.journal.submit([Op::Create(create)]);
        match pending.done_within(services.config.ask_deadline).await {
            Ok(_) => self.keep(&id).await,
            Err(WriteError::Refused(Refused::Exists(id))) => Err(RootError::Exists(id)),
            Err(error) => Err(StartError::from(error).into()),
        }
    }

    /// Brings a root up and keeps it live until the handle is dropped.
    ///
    /// # Errors
    /// [`RootError::NotARoot`] if it has a parent, [`RootError::Activate`] if there is no such session, its behaviour is not registered, another live process holds it, or its log cannot be
    /// continued.
    ///
    /// # Cancel safety
    /// The root may have been brought up; nothing keeps it then.
    pub async fn resume(&self, id: &SessionId) -> Result<RootHandle, RootError> {
        let wanted = id.clone();
        let header = self.services().readers.read(move |reader| reader.header(&wanted)).await.map_err(|error| ActivateError::from_load(id, error))?;
        if header.is_some_and(|header| header.parent.is_some()) {
            return Err(RootError::NotARoot(id.clone()));
        }
        self.keep(id).await
    }

    pub(crate) async fn keep(&self, id: &SessionId) -> Result<RootHandle, RootError> {
        let pin = Pin::new(self, id);
        let view = ensure(&self.services(), id).await?;
        Ok(RootHandle { pin, view: std::sync::Mutex::new(view) })
    }

    /// Sends any session the message of its next turn, as the user. Durable on return; served by whoever runs the session, now or later.
    ///
    /// With an id of the caller's choice the same call again is the same acceptance. A runtime actor that dies meanwhile is survived.
    ///
    /// # Errors
    /// [`DeliverError::NotResumable`] if there is no such session, it takes no messages (a one-shot child, a fork, what cannot be read or continued), or its host has
    /// published it here, [`DeliverError::Busy`] if its inbox is full, [`DeliverError::Message`] for a text over
    /// the limit, [`DeliverError::Conflict`] if the id was used with another text, [`DeliverError::Draining`] during a shutdown, and
    /// [`DeliverError::Write`] if the store failed: only with the code `INDETERMINATE` may the message have been accepted all the same.
    ///
    /// # Cancel safety
    /// The message may have been accepted.
    pub async fn send(&self, session: &SessionId, text: impl Into<String>, id: Option<MessageId>) -> Result<MessageId, DeliverError> {
        self.deliver(session, id, |id, now| Message::turn(id, text, Source::User, now)).await
    }

    /// Ends the turn that is under way in a session, as `aborted`, which is final; its queue goes on. Returns the number of the turn.
    ///
    /// A session that another live process holds is asked by a durable request, and its answer awaited for as long as `patience`. One that nobody holds, whose
    /// turn a crash or a shutdown cut off, is answered here: the message of that turn is not served again. Only the turn that was under way is
    /// ended, never a later one. Durable on return.
    ///
    /// # Errors
    /// [`ControlError::NotFound`] if there is no such session, [`ControlError::NotRunning`] if no turn is under way or it came to its end by
    /// itself, [`ControlError::TimedOut`] if there was no answer in time (what was asked of another process stays asked; the same call again waits for the answer),
    /// [`ControlError::NotResumable`] if its log is damaged or of a later version, [`ControlError::Draining`] during a shutdown, and [`ControlError::Write`] or
    /// [`ControlError::Read`] if the store failed.
    ///
    /// # Cancel safety
    /// What was asked may be done all the same.
    pub async fn interrupt(&self, session: &SessionId, patience: Duration) -> Result<u64, ControlError> {
        control::interrupt(&self.services(), session, "user", patience).await
    }

    /// Takes a message back that has no turn yet: it leaves the inbox with an event that says so. What was taken back before stays so. Durable on return.
    ///
    /// Whoever holds the session answers, as for [`Host::interrupt`]. Only messages that become a turn of their own can be taken back, notes cannot.
    ///
    /// # Errors
    /// [`ControlError::AlreadyStarted`] if the message has a turn, whatever became of it, [`ControlError::NotPending`] if no such message
    /// waits for a turn of its own, and as [`Host::interrupt`].
    ///
    /// # Cancel safety
    /// What was asked may be done all the same.
    pub async fn withdraw(&self, session: &SessionId, message: &MessageId, patience: Duration) -> Result<(), ControlError> {
        control::withdraw(&self.services(), session, message, "user", patience).await
    }

    /// Lists the children of a session, or the roots and orphans if `None`, without waking any and without writing anything.
    ///
    /// With `verify` the logs are read instead of the rows that are derived from them, at the cost of their length. `cancel` gives the listing up.
    ///
    /// # Errors
    /// [`ListError::Query`] if there is no such parent or the store cannot be read, [`ListError::Cancelled`], and [`ListError::QueryUnavailable`] in a system
    /// without a query service. A child that cannot be described is an entry.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list(&self, parent: Option<&SessionId>, page: Page, verify: bool, cancel: CancellationToken) -> Result<Listing, ListError> {
        let services = self.services();
        let page = Some(page);
        let listing = catalog::ask(&services, &cancel, |token, reply| match parent {
            Some(parent) => CatalogMessage::Children { parent: parent.clone(), page, verify, cancel: token, reply },
            None => CatalogMessage::Roots { page, verify, cancel: token, reply },
        });
        listing.await
    }

    /// Lists everything below a session, each session before its own children, without waking any and without writing anything.
    ///
    /// Sessions that a list of children leaves out are left out here too, and what is below them is not. Costs the number of sessions up to the end of the
    /// page that the limit leaves. A page begins behind the session that its cursor names, wherever that is then.
    ///
    /// # Errors
    /// As [`Host::list`], and [`ListError::Query`] with [`QueryError::StaleCursor`] if the session that the cursor names is gone, or with
    /// [`QueryError::InvalidCursor`] if it is not below `top`. A session that cannot be described is an entry, and what is below it follows.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_descendants(&self, top: &SessionId, page: Page, cancel: CancellationToken) -> Result<Descendants, ListError> {
        let top = top.clone();
        catalog::ask(&self.services(), &cancel, |token, reply| CatalogMessage::Descendants { top, page, cancel: token, reply }).await
    }

    /// Returns where a session comes from and everything that comes from it. Reads the header of each, and no log.
    ///
    /// # Errors
    /// [`QueryError::SessionNotFound`], [`QueryError::InvalidLineage`] if its parents run in a circle, [`QueryError::SourceConflict`] if one of the sessions is live
    /// and stored with another header, [`QueryError::Cancelled`], [`QueryError::Unavailable`] in a system without a query service, and that the store, or a header
    /// of the session or its ancestors, cannot be read. A descendant whose header cannot be read says so in its place.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn trace(&self, session: &SessionId, cancel: CancellationToken) -> Result<Trace, QueryError> {
        let session = session.clone();
        query::ask(&self.services(), &cancel, |cancel, reply| QueryMessage::Trace { session, cancel, reply }).await
    }

    /// Lists every session that is stored or live, the newest first, those of one time by id in byte order. Reads the header of each, for every page.
    ///
    /// # Errors
    /// [`QueryError::InvalidLimit`] for a page of nothing, [`QueryError::SourceConflict`] if a session is live and stored with another header,
    /// [`QueryError::Cancelled`], [`QueryError::Unavailable`] in a system without a query service, and that the store cannot be read. A session whose header
    /// cannot be read says so in its place, the last one.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_sessions(&self, page: Page, cancel: CancellationToken) -> Result<SessionPage, QueryError> {
        query::ask(&self.services(), &cancel, |cancel, reply| QueryMessage::Sessions { page, cancel, reply }).await
    }

    /// Lists the events of a session in order, and says of each whether a model sees it. Costs the length of the log.
    ///
    /// # Errors
    /// [`QueryError::InvalidSurface`] if an event cannot follow what came before, [`QueryError::SessionNotFound`], [`QueryError::SourceConflict`] if the header is
    /// not the live one or changes meanwhile, [`QueryError::Cancelled`], [`QueryError::Unavailable`] in a system without a query service, and what is damaged in
    /// the log or the store.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list_events(&self, session: &SessionId, cancel: CancellationToken) -> Result<Vec<EventLine>, QueryError> {
        let session = session.clone();
        query::ask(&self.services(), &cancel, |cancel, reply| QueryMessage::Lines { session, cancel, reply }).await
    }

    /// Returns events of a session from `from` (inclusive), at most `limit`, in order. Whether they follow from what came before is not looked at.
    ///
    /// # Errors
    /// [`QueryError::InvalidLimit`] for a limit of 0, and as [`Host::list_events`], except that no surface is invalid.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn read_events(&self, session: &SessionId, from: Seq, limit: usize, cancel: CancellationToken) -> Result<Vec<Event>, QueryError> {
        let session = session.clone();
        query::ask(&self.services(), &cancel, |cancel, reply| QueryMessage::Events { session, from, limit, cancel, reply }).await
    }

    /// Returns one event with up to `before` and `after` neighbours, at most [`Config::read_window_max`](crate::Config::read_window_max) on either side. Whether
    /// they follow from what came before is not looked at.
    ///
    /// # Errors
    /// [`QueryError::InvalidWindow`] for more than that, before anything is read; [`QueryError::EventNotFound`], and as [`Host::list_events`], except that no
    /// surface is invalid.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn read_event(&self, session: &SessionId, seq: Seq, before: u64, after: u64, cancel: CancellationToken) -> Result<EventWindow, QueryError> {
        let services = self.services();
        let (session, window) = (session.clone(), Window { seq, before, after });
        window.check(services.config.read_window_max)?;
        query::ask(&services, &cancel, |cancel, reply| QueryMessage::Window { session, window, cancel, reply }).await
    }

    /// Returns a whole session. Costs the length of its log.
    ///
    /// # Errors
    /// As [`Host::list_events`].
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn load(&self, session: &SessionId) -> Result<Log, QueryError> {
        let session = session.clone();
        query::ask(&self.services(), &CancellationToken::new(), |cancel, reply| QueryMessage::Load { session, cancel, reply }).await
    }

    /// Returns what follows from all that a session has done. Costs the length of its log in time, and in memory what a model sees of it and what waits.
    ///
    /// # Errors
    /// As [`Host::list_events`].
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn fold(&self, session: &SessionId) -> Result<Fold, QueryError> {
        let session = session.clone();
        query::ask(&self.services(), &CancellationToken::new(), |cancel, reply| QueryMessage::Fold { session, cancel, reply }).await
    }

    /// Returns the ids that begin with `prefix`, in byte order, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn find(&self, prefix: &str, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let prefix = prefix.to_owned();
        self.services().readers.read(move |reader| reader.find(&prefix, limit)).await
    }

    /// Hashes everything that is true in the store: see [`StoreDigest`]. Costs the size of the store, and is the state of one moment only while nobody works.
    ///
    /// # Errors
    /// [`DigestError`] if a session is damaged or the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn digest(&self) -> Result<StoreDigest, DigestError> {
        self.services().readers.read(StoreDigest::of).await
    }

    /// Tells where a message stands; `None` if it was never accepted.
    ///
    /// # Errors
    /// [`LoadError::NotFound`] if there is no such session, or that the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn message(&self, session: &SessionId, message: &MessageId) -> Result<Option<MessageState>, LoadError> {
        let (session, message) = (session.clone(), message.clone());
        self.services().readers.read(move |reader| reader.message(&session, &message)).await
    }

    /// Wakes the sessions of a tree (of all trees if `None`) that have work and that no live process holds, and those of this process whose epoch broke off and could not
    /// be followed by another. Returns them in the order in which they
    /// are woken: those whose turn was cut off first, so that what keeps cutting turns off does not catch the same ones again.
    ///
    /// Starts are bounded by the configuration; what cannot run is reported by [`Occurrence::NotActivated`].
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    ///
    /// # Cancel safety
    /// Some may have been woken.
    pub async fn recover(&self, root: Option<&SessionId>) -> Result<Vec<SessionId>, StoreError> {
        let services = self.services();
        let root = root.cloned();
        let (live, played, own) = (services.live.clone(), services.played.clone(), services.store.owner().clone());
        let found = services
            .readers
            .read(move |reader| {
                let (mut found, mut unread) = (Vec::new(), Vec::new());
                let mut wanted = reader.runnable(root.as_ref(), usize::MAX)?;
                // Held by this process, with nobody behind it: no other looks after it.
                let broken_off = |lease: &Lease| lease.owner == own && !live.is_resident(&lease.session) && played.of(&lease.session).is_none();
                wanted.extend(reader.leases(root.as_ref())?.into_iter().filter(broken_off).map(|lease| lease.session));
                for id in wanted {
                    match reader.header(&id) {
                        // Nobody but a host plays a fork.
                        Ok(Some(header)) if header.is_fork() => {}
                        Ok(Some(header)) => found.push(Traced { id, created_at: header.created_at, header: Ok(header) }),
                        // Its start says what is wrong with it.
                        _ => unread.push(id),
                    }
                }
                let described = reader.describe(&found, false)?;
                let cut_off = |description: &Description| description.head.is_unfinished();
                let (first, then): (Vec<_>, Vec<_>) = found.into_iter().zip(described).partition(|(_, description)| description.as_ref().is_ok_and(cut_off));
                // With its parent, which does not settle before every child that was found has had its start.
                let with_parent = first.into_iter().chain(then).map(|(traced, _)| (traced.id, traced.header.ok().and_then(|header| header.parent.clone())));
                Ok::<_, StoreError>(with_parent.chain(unread.into_iter().map(|id| (id, None))).collect::<Vec<_>>())
            })
            .await?;
        for (session, parent) in &found {
            services.wake(session, parent.as_ref());
        }
        Ok(found.into_iter().map(|(session, _)| session).collect())
    }

    /// Returns the leases in a tree, in all trees if `None`: those of this process and of others, live or dead.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn leases(&self, root: Option<&SessionId>) -> Result<Vec<Lease>, StoreError> {
        let root = root.cloned();
        self.services().readers.read(move |reader| reader.leases(root.as_ref())).await
    }

    /// Waits until no session of the tree is in a turn, runnable, or held by another live process, and returns the sessions that have work and cannot run.
    /// A session that cannot be read may have work and counts as one of them.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing that a later call would not change.
    pub async fn quiescent(&self, root: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        let mut patience = crate::wait::Patience::default();
        loop {
            let services = self.services();
            let (reply, quiet) = oneshot::channel();
            if services.registry.send_message(RegistryMessage::WhenQuiet { reply }).is_ok() {
                drop(quiet.await);
            }
            let own = services.store.owner().clone();
            let tree = root.clone();
            let (runnable, unread, elsewhere) = services
                .readers
                .read(move |reader| {
                    let mut runnable = reader.runnable(Some(&tree), usize::MAX)?;
                    let leases = reader.leases(Some(&tree))?;
                    let elsewhere = leases.iter().any(|lease| lease.alive && lease.owner != own);
                    // A kept root is held by this process, so it is not among the runnable ones.
                    runnable.extend(leases.into_iter().filter(|lease| lease.owner == own).map(|lease| lease.session));
                    let (mut with_heads, mut unread) = (Vec::new(), Vec::new());
                    for id in runnable {
                        match reader.header(&id) {
                            // Nobody but a host plays a fork, so nobody waits for what it has to do: notices of what is below it, or a turn that was cut off.
                            Ok(Some(header)) if header.is_fork() => {}
                            Ok(Some(header)) => with_heads.push(Traced { id, created_at: header.created_at, header: Ok(header) }),
                            Ok(None) | Err(LoadError::NotFound(_) | LoadError::Removed(_)) => {}
                            Err(LoadError::Store(error)) => return Err(error),
                            Err(_) => unread.push(id),
                        }
                    }
                    let described = reader.describe(&with_heads, false)?;
                    let mut working = Vec::new();
                    for (traced, description) in with_heads.into_iter().zip(described) {
                        match description {
                            Ok(description) if description.head.has_work() || description.is_runnable() => {
                                let parent = traced.header.ok().and_then(|header| header.parent.clone());
                                working.push((traced.id, parent, description.head));
                            }
                            Ok(_) | Err(LoadError::NotFound(_) | LoadError::Removed(_)) => {}
                            // No other try reads it.
                            Err(_) => unread.push(traced.id),
                        }
                    }
                    Ok::<_, StoreError>((working, unread, elsewhere))
                })
                .await?;
            let mut stuck = unread;
            let mut woken = false;
            for (id, parent, head) in runnable {
                if services.played.of(&id).is_some() {
                    // Its turns are its host's affair; what waits in its inbox cannot run.
                    stuck.extend((head.pending_turns + head.pending_wakes > 0).then_some(id));
                } else if patience.tries(&id, &head) {
                    drop(services.registry.send_message(RegistryMessage::Wake { session: id, parent }));
                    woken = true;
                } else {
                    stuck.push(id);
                }
            }
            if elsewhere {
                tokio::time::sleep(services.config.poll_interval).await;
            } else if !woken {
                return Ok(stuck);
            }
        }
    }

    /// Subscribes to what happens in live sessions. A slow subscriber loses the oldest.
    pub fn subscribe(&self) -> broadcast::Receiver<Occurrence> {
        self.services().occurrences.subscribe()
    }

    /// Returns how many sessions are live here.
    pub fn live_count(&self) -> usize {
        self.services().live.len()
    }
}

async fn ensure(services: &Services, id: &SessionId) -> Result<Arc<LiveView>, ActivateError> {
    let (reply, view) = oneshot::channel();
    let ended = || ActivateError::Write(WriteError::Ended);
    services.registry.send_message(RegistryMessage::Ensure { session: id.clone(), reply }).map_err(|_| ended())?;
    // Longer than the start that it waits for.
    let time = services.config.start_deadline + services.config.ask_deadline;
    match tokio::time::timeout(time, view).await {
        Ok(view) => view.unwrap_or_else(|_| Err(ended())),
        Err(_) => Err(ActivateError::Deadline(id.clone())),
    }
}
