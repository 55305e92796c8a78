//! Published sessions: live without an Activation, played by the host itself.
//!
//! Such a session is durable from its birth, holds its lease and counts as running, here and for other processes. Nobody serves its inbox: what comes from
//! elsewhere stays pending, and what this process would send it or ask of it is refused. It ends when its host says so, lets go of it, or shuts down.

mod actor;
mod compaction;
mod fork;
mod publication;
mod start;

use std::{fmt, sync::Arc, time::Duration};

use greenroom_session::{
    event::{Body, Event, SurfaceMessage, SurfaceOp},
    fold::Fold,
    head::Head,
    header::Header,
    id::{Epoch, MessageId, Seq, SessionId},
    message::{Message, Source},
};
use ractor::ActorRef;
use tokio::sync::{Semaphore, oneshot};

use crate::{
    error::{ControlError, PublishedError, WriteError},
    journal::Pending,
    live::LiveView,
    log::{EVENT_REFUSED, NotPut},
    occurrence::Occurrence,
    race::race_point,
    registry::RegistryMessage,
    services::Services,
    visit::visit,
};

pub use publication::Publication;

pub(crate) use actor::PublishedMessage;
pub(crate) use fork::fork;
pub(crate) use start::{Publishing, Started, start};

/// Why nobody but its host does anything with a published session.
pub(crate) const PLAYED_BY_HOST: &str = "its host has published it and plays it itself";

/// A live session that its host plays itself, outside of any Activation.
///
/// Events get their places at once and reach the disk in the background, in order; [`PublishedSession::flush`] waits for that. Dropped, the handle ends the
/// session in the background as [`PublishedSession::end`] does. From its end on everything but [`PublishedSession::header`] is
/// [`PublishedError::NotLive`]; after a failed write everything fails with that failure. What is on disk then can be published again.
///
/// ```
/// use greenroom_actors::{Publication, PublishedSession, host::NewRoot};
/// use greenroom_session::{event::{Body, TurnEnd}, id::SessionId};
/// # tokio_test::block_on(async {
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(greenroom_actors::Config::default(), store, true).await?;
/// # let host = system.host();
/// let desk = Publication::root(SessionId::new("desk")?, NewRoot::new("host", "a desk").opened);
/// let session: PublishedSession = host.publish_session(desk).await?;
/// session.begin_turn("What is the weather?", None).await?;
/// session.append(Body::TurnEnd { turn: 1, reason: TurnEnd::Completed })?;
/// session.flush().await?; // everything is on disk
/// assert_eq!(session.messages()?.len(), 1);
/// session.end().await?;
/// assert_eq!(session.messages().unwrap_err().code(), "SESSION_NOT_LIVE");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct PublishedSession {
    services: Arc<Services>,
    view: Arc<LiveView>,
    actor: ActorRef<PublishedMessage>,
    /// Closed when the Registry has been told of the end.
    over: Arc<Semaphore>,
}

impl fmt::Debug for PublishedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishedSession").field("id", self.view.id()).field("epoch", &self.view.epoch).finish_non_exhaustive()
    }
}

impl Drop for PublishedSession {
    fn drop(&mut self) {
        // An actor that has ended needs no telling.
        drop(self.actor.send_message(PublishedMessage::End { reply: None }));
    }
}

impl PublishedSession {
    pub(crate) fn new(services: Arc<Services>, view: Arc<LiveView>, actor: ActorRef<PublishedMessage>, over: Arc<Semaphore>) -> Self {
        Self { services, view, actor, over }
    }

    /// Returns the session's id.
    pub fn id(&self) -> &SessionId {
        self.view.id()
    }

    /// Returns the header.
    pub fn header(&self) -> &Arc<Header> {
        self.view.header()
    }

    /// Returns the epoch of this publication.
    pub fn epoch(&self) -> Epoch {
        self.view.epoch
    }

    /// Returns what a model sees: the current messages, in order.
    ///
    /// # Errors
    /// [`PublishedError`] if the publication has ended or failed.
    pub fn messages(&self) -> Result<Vec<Arc<SurfaceMessage>>, PublishedError> {
        self.look(|fold| fold.surface().messages().cloned().collect())
    }

    /// Returns where the log stands: the next seq, the newest turn, and whether it is open. Messages that wait are not counted.
    ///
    /// # Errors
    /// [`PublishedError`] if the publication has ended or failed.
    pub fn head(&self) -> Result<Head, PublishedError> {
        self.look(|fold| fold.head().clone())
    }

    fn look<T>(&self, look: impl FnOnce(&Fold) -> T) -> Result<T, PublishedError> {
        self.view.log.writable().map_err(|error| self.error(error))?;
        Ok(self.view.log.look(look))
    }

    /// Puts an event into its place and returns it, appended to the surface if it is of a surface type. Never waits; it is durable after a [`PublishedSession::flush`].
    ///
    /// A type that this program does not know is written as one that readers may ignore. What begins a turn is [`PublishedSession::begin_turn`]'s affair, a compaction
    /// [`PublishedSession::plan_compaction`]'s; the birth of the session, its epochs and its inbox are not the host's to write of.
    ///
    /// # Errors
    /// [`PublishedError::Refused`] if the event cannot be written or cannot follow what the log holds: then nothing has changed. Otherwise that the publication
    /// has ended or failed.
    pub fn append(&self, body: Body) -> Result<Event, PublishedError> {
        may_append(&body).map_err(|error| self.error(error))?;
        self.put(|fold, now| Ok(placed(body, fold, now)))
    }

    /// Puts a surface event into the place of the current messages from the event `start` to the event `end`, both inclusive, and returns it.
    ///
    /// # Errors
    /// As [`PublishedSession::append`]; [`PublishedError::Refused`] also if `start` or `end` is not on the surface, or `end` comes before `start` there.
    pub fn replace(&self, body: Body, start: Seq, end: Seq) -> Result<Event, PublishedError> {
        may_append(&body).map_err(|error| self.error(error))?;
        self.put(|fold, now| {
            let mut event = placed(body, fold, now);
            event.surface_op = Some(SurfaceOp::Replace { start, end });
            event.source_event_seqs = Some(shadowed(fold, start, end)?);
            Ok(event)
        })
    }

    fn put(&self, make: impl FnOnce(&Fold, u64) -> Result<Event, NotPut>) -> Result<Event, PublishedError> {
        let (events, pending) = self.view.log.put(|fold, now| make(fold, now).map(|event| vec![event]), Vec::new()).map_err(|error| self.error(error))?;
        let event = events.first().cloned().ok_or_else(|| PublishedError::refused("nothing to put".into()))?;
        let told = match &event.body {
            Body::TurnEnd { turn, reason } => Some(Occurrence::TurnEnded { session: self.id().clone(), turn: *turn, reason: reason.clone() }),
            _ => None,
        };
        self.follow(pending, told)?;
        Ok(event)
    }

    /// Has the actor wait for the disk, unless there is nothing to wait for.
    fn follow(&self, pending: Pending, told: Option<Occurrence>) -> Result<(), PublishedError> {
        if !pending.is_ready() {
            drop(self.actor.send_message(PublishedMessage::Appended { pending, told }));
            return Ok(());
        }
        match self.view.log.settled(pending.now()) {
            Ok(_) => {
                if let Some(told) = told {
                    self.services.tell(|| told);
                }
                Ok(())
            }
            Err(error) => {
                let pending = Pending::ready(Err(error.clone()));
                drop(self.actor.send_message(PublishedMessage::Appended { pending, told: None }));
                Err(PublishedError::Write(error))
            }
        }
    }

    /// Begins a turn with a message of the host, and returns its `turn/start`. Durable on return, as is all that was put before.
    ///
    /// The message goes through the inbox as any other, so that no id serves twice. A message whose turn was cut off (by a crash, or by a shutdown) comes before
    /// any other: [`PublishedSession::head`] names it, and with its id it is served again, whatever the text.
    ///
    /// # Errors
    /// [`PublishedError::Refused`] if a turn is open, the message has had its turn, or another one is to be served first; [`PublishedError::Message`] if the
    /// message cannot be. Otherwise that the publication has ended or failed.
    ///
    /// # Cancel safety
    /// The turn may have begun.
    pub async fn begin_turn(&self, text: impl Into<String>, id: Option<MessageId>) -> Result<Event, PublishedError> {
        let id = id.unwrap_or_else(|| self.services.message_id());
        let message = Arc::new(Message::turn(&id, text, Source::Host, self.services.now())?);
        self.ask(|reply| PublishedMessage::Begin { message, reply }).await?
    }

    /// Waits until everything that was put before is durable.
    ///
    /// # Errors
    /// The first write that failed; or that the publication has ended, or that the disk did not answer in time.
    ///
    /// # Cancel safety
    /// Changes nothing: what was put goes on.
    pub async fn flush(&self) -> Result<(), PublishedError> {
        self.view.log.writable().map_err(|error| self.error(error))?;
        self.ask(|reply| PublishedMessage::Flush { reply }).await
    }

    /// Ends the session after everything that was put: it is complete, and may be published or run by anybody. An open turn is ended as `aborted`, which is final. Nobody is told, since nothing
    /// has settled. Durable on return; messages that wait stay pending.
    ///
    /// # Errors
    /// The write that failed, or that the publication has ended before.
    ///
    /// # Cancel safety
    /// The end goes on.
    pub async fn end(&self) -> Result<(), PublishedError> {
        self.view.log.writable().map_err(|error| self.error(error))?;
        let done = self.ask(|reply| PublishedMessage::End { reply: Some(reply) }).await?;
        self.gone().await;
        done.map_err(PublishedError::Write)
    }

    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> PublishedMessage) -> Result<T, PublishedError> {
        let (reply, answer) = oneshot::channel();
        if self.actor.send_message(message(reply)).is_ok() {
            match tokio::time::timeout(self.services.config.ask_deadline, answer).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(_)) => {}
                Err(_) => return Err(PublishedError::Write(WriteError::TimedOut)),
            }
        }
        // The actor has ended: it failed, or somebody else has ended it.
        self.gone().await;
        Err(self.view.log.broken().map_or_else(|| PublishedError::NotLive(self.id().clone()), PublishedError::Write))
    }

    /// Waits until the end is known here: then no listing shows the session as running for it, and the next publication is not refused.
    async fn gone(&self) {
        // Nothing is ever to be had from it.
        drop(self.over.acquire().await);
        let (reply, heard) = oneshot::channel();
        if self.services.registry.send_message(RegistryMessage::Heard { reply }).is_ok() {
            drop(heard.await);
        }
    }

    fn error(&self, error: NotPut) -> PublishedError {
        PublishedError::of(self.id(), error)
    }
}

/// Refuses what a host does not write itself.
fn may_append(body: &Body) -> Result<(), NotPut> {
    let is_foreign = match body {
        Body::RootOpened(_)
        | Body::Descriptor(_)
        | Body::EndSeed {}
        | Body::ActivationStart { .. }
        | Body::ActivationEnd { .. }
        | Body::CompactStart { .. }
        | Body::CompactSummary { .. }
        | Body::CompactEnd { .. }
        | Body::TurnStart { .. }
        | Body::NoteJoined { .. }
        | Body::MessageWithdrawn { .. }
        | Body::ControlAnswered { .. } => true,
        // Lest it be read as something that no fold has seen.
        Body::Opaque(opaque) => !matches!(Body::decode(&opaque.name, "null"), Ok(Body::Opaque(_))),
        _ => false,
    };
    if is_foreign { Err(NotPut::Refused { code: EVENT_REFUSED, message: format!("`{}` is not written by a host", body.type_name()) }) } else { Ok(()) }
}

fn placed(body: Body, fold: &Fold, now: u64) -> Event {
    let ignorable = matches!(body, Body::Opaque(_));
    Event { ignorable, ..body.at(fold.head().next_seq, now) }
}

/// Returns the events whose place a replacement takes, in ascending order.
fn shadowed(fold: &Fold, start: Seq, end: Seq) -> Result<Vec<Seq>, NotPut> {
    let nodes = fold.surface().nodes();
    let at = |seq: Seq| nodes.iter().position(|node| node.seq == seq);
    let range = at(start).zip(at(end)).and_then(|(from, to)| nodes.get(from..=to)).filter(|nodes| !nodes.is_empty());
    let Some(range) = range else {
        return Err(NotPut::Refused { code: EVENT_REFUSED, message: format!("events {start} to {end} are no run of current messages") });
    };
    let mut seqs: Vec<Seq> = range.iter().map(|node| node.seq).collect();
    seqs.sort_unstable();
    Ok(seqs)
}

/// Pause before an epoch that has lost its host is ended: what made it fail may still be there.
const PAUSE: Duration = Duration::from_millis(250);

/// How many pauses to wait for a generation to follow one that has ended.
const PATIENCE: usize = 240;

/// Ends the epoch of a publication that failed, in the background, so that it is not shown as running for ever. Nobody plays it meanwhile, and its host may publish it
/// again at any time.
pub(crate) fn let_go(services: &Arc<Services>, session: &SessionId, epoch: Epoch) {
    // Without a runtime there is nobody to whom it could matter.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(end_lost(services.clone(), session.clone(), epoch));
    }
}

async fn end_lost(mut services: Arc<Services>, session: SessionId, epoch: Epoch) {
    let mut patience = PATIENCE;
    while patience > 0 {
        tokio::time::sleep(PAUSE).await;
        while let Some(next) = services.successor.get().cloned() {
            services = next;
        }
        if services.is_ending() || services.played.of(&session) != Some(epoch) {
            return;
        }
        race_point!("before-letting-go");
        let ended = if services.is_draining() { Err(ControlError::Draining) } else { visit(&services, &session, None).await };
        match ended {
            Err(ControlError::Draining | ControlError::Write(WriteError::Ended)) => patience -= 1,
            Err(ControlError::Write(_) | ControlError::Read(_)) => {}
            // In the middle of it the generation may have ended.
            Ok(None) if services.is_draining() => {}
            // Ended; or somebody else came first, or its log cannot be gone on with.
            Ok(_) | Err(_) => {
                if services.played.end(&session, epoch) {
                    services.wake(&session, None);
                }
                return;
            }
        }
    }
}
