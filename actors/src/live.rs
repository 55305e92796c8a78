//! A live session as others see it: what is published of it, and how it is woken.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

use greenroom_session::{
    event::EpochEnd,
    header::Header,
    id::{Epoch, SessionId},
};
use ractor::{ActorCell, ActorRef};
use tokio::sync::Notify;

use crate::{
    activation::ActivationMessage,
    lifecycle::{Beginning, Pair},
    lineage::Lineage,
    log::SessionLog,
    published::PublishedMessage,
    setup::Installed,
    turn_core::TurnCore,
};

/// Who plays a live session.
#[derive(Debug, Clone)]
pub(crate) enum Player {
    /// An agent, by its behaviour.
    Agent(ActorRef<ActivationMessage>),
    /// Its host, who has published it: nobody serves its inbox.
    Host(ActorRef<PublishedMessage>),
}

/// A live session: its header, its log's fold, and the gate to whoever plays it.
pub(crate) struct LiveView {
    pub(crate) header: Arc<Header>,
    pub(crate) epoch: Epoch,
    /// Who is above it.
    pub(crate) lineage: Lineage,
    /// Who is above its children.
    pub(crate) below: Lineage,
    /// Whether its parent may send it messages; beside the log, so that senders do not wait for appends.
    pub(crate) continuable: bool,
    pub(crate) log: Arc<SessionLog>,
    /// What contributions have set up.
    pub(crate) installed: Installed,
    pub(crate) gate: Gate,
    pub(crate) player: Player,
    /// Told at every wake, so that a turn that waits can look for notes.
    pub(crate) news: Notify,
    pub(crate) pair: Pair,
    /// Its end is under way; it may stay after all.
    ending: AtomicBool,
    /// The turn that runs, for whoever ends it from outside.
    turn: Mutex<Weak<TurnCore>>,
    /// Children of it that have ended before it, when it was about to end, and have not settled.
    cut_off: Mutex<Vec<SessionId>>,
}

/// What a live session is made of.
pub(crate) struct NewView {
    pub(crate) header: Arc<Header>,
    pub(crate) epoch: Epoch,
    pub(crate) beginning: Beginning,
    pub(crate) lineage: Lineage,
    pub(crate) continuable: bool,
    pub(crate) log: Arc<SessionLog>,
    pub(crate) installed: Installed,
}

impl fmt::Debug for LiveView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveView").field("id", &self.header.id).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl LiveView {
    pub(crate) fn new(new: NewView, player: Player) -> Self {
        let NewView { header, epoch, beginning, lineage, continuable, log, installed } = new;
        Self {
            below: lineage.of_child(&header.id),
            header,
            epoch,
            lineage,
            continuable,
            log,
            installed,
            gate: Gate::new(),
            player,
            news: Notify::new(),
            pair: Pair::new(beginning),
            ending: AtomicBool::new(false),
            turn: Mutex::default(),
            cut_off: Mutex::default(),
        }
    }

    /// Returns the header.
    pub(crate) fn header(&self) -> &Arc<Header> {
        &self.header
    }

    /// Returns the session's id.
    pub(crate) fn id(&self) -> &SessionId {
        &self.header.id
    }

    /// Tells whether the epoch goes on.
    pub(crate) fn is_open(&self) -> bool {
        self.gate.is_open()
    }

    /// Tells whether its host plays it, outside of any Activation.
    pub(crate) fn is_published(&self) -> bool {
        matches!(self.player, Player::Host(_))
    }

    /// Returns the actor behind it.
    pub(crate) fn cell(&self) -> ActorCell {
        match &self.player {
            Player::Agent(actor) => actor.get_cell(),
            Player::Host(actor) => actor.get_cell(),
        }
    }

    /// Says that it stands in the table, and may act.
    pub(crate) fn go(&self) {
        match &self.player {
            Player::Agent(actor) => drop(actor.send_message(ActivationMessage::Go)),
            Player::Host(actor) => drop(actor.send_message(PublishedMessage::Go)),
        }
    }

    /// Says that another process may have left a request. Those to a published session wait until somebody else holds it.
    pub(crate) fn look_for_requests(&self) {
        if let Player::Agent(actor) = &self.player {
            drop(actor.send_message(ActivationMessage::Requests));
        }
    }

    /// Notes that its end is under way, or is not after all.
    pub(crate) fn set_ending(&self, ending: bool) {
        self.ending.store(ending, Ordering::Release);
    }

    /// Tells whether its end is under way.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Notes the turn that runs.
    pub(crate) fn runs(&self, core: &Arc<TurnCore>) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(core);
    }

    /// Notes a child that has ended before this does, and has not settled.
    pub(crate) fn note_cut_off(&self, child: SessionId) {
        self.cut_off.lock().unwrap_or_else(PoisonError::into_inner).push(child);
    }

    /// Returns the children that have ended before this does, and have not settled.
    pub(crate) fn take_cut_off(&self) -> Vec<SessionId> {
        std::mem::take(&mut *self.cut_off.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has whoever plays it end the turn under way and begin no other, until the epoch is ended.
    pub(crate) fn put_aside(&self) {
        if let Player::Agent(actor) = &self.player {
            drop(actor.send_message(ActivationMessage::PutAside));
        }
    }

    /// Gives up on an end that does not come: the turn that may still run grants nothing any more and holds no slot, and whoever plays it is ended where it can be.
    pub(crate) fn give_up(&self) {
        self.gate.close();
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(core) = turn {
            core.cancel();
            drop(core.end());
        }
        self.cell().kill();
    }

    /// Has the epoch end without settling.
    pub(crate) fn shut_down(&self) {
        match &self.player {
            Player::Agent(actor) => drop(actor.send_message(ActivationMessage::Shutdown { reason: EpochEnd::Disposed })),
            Player::Host(actor) => drop(actor.send_message(PublishedMessage::Shutdown)),
        }
    }

    /// Tells whoever plays it that its inbox has changed. Returns false if the epoch has ended: then the Registry must be told.
    pub(crate) fn wake(&self) -> bool {
        let knock = self.gate.knock();
        // Also when the Activation has not heard the knock before: the turn may have looked in between.
        self.news.notify_one();
        match knock {
            Knock::First => {
                // An actor that ended without closing the gate is reported by its guard, which sees the knock. A host does not serve the inbox: the knock
                // stays up for whoever plays the session next.
                if let Player::Agent(actor) = &self.player {
                    drop(actor.send_message(ActivationMessage::Wake));
                }
                true
            }
            Knock::Again => true,
            Knock::Closed => false,
        }
    }
}

/// One atomic word between senders and an Activation.
///
/// A sender commits its message first and knocks then. The Activation takes the knock down before it looks into the inbox, so a message
/// that is committed after the look has its knock still up. Settling commits "nothing is pending" in the store and closes the gate
/// then; a knock that came in between is handed to whoever closes it, who has the session started again. So no message that is
/// durable is ever left without somebody who will look at it.
#[derive(Debug)]
pub(crate) struct Gate(AtomicU8);

const QUIET: u8 = 0;
const KNOCKED: u8 = 1;
const CLOSED: u8 = 2;

enum Knock {
    First,
    Again,
    Closed,
}

impl Gate {
    /// Makes an open gate at which nobody has knocked.
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(QUIET))
    }

    fn knock(&self) -> Knock {
        match self.0.compare_exchange(QUIET, KNOCKED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Knock::First,
            Err(KNOCKED) => Knock::Again,
            Err(_) => Knock::Closed,
        }
    }

    /// Takes the knock down, before the inbox is looked at.
    pub(crate) fn answer(&self) {
        // Losing against a close is right: there is nothing to answer then.
        let _was = self.0.compare_exchange(KNOCKED, QUIET, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Closes the gate for ever and tells whether somebody had knocked; `None` if it was closed before.
    pub(crate) fn close(&self) -> Option<bool> {
        match self.0.swap(CLOSED, Ordering::AcqRel) {
            CLOSED => None,
            was => Some(was == KNOCKED),
        }
    }

    pub(crate) fn is_knocked(&self) -> bool {
        self.0.load(Ordering::Acquire) == KNOCKED
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) != CLOSED
    }
}

/// The published live sessions. Written by the Registry alone, read by everybody.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveTable(Arc<RwLock<Table>>);

/// Every message looks here, so the keys are hashed fast, under a seed of this process.
#[derive(Debug, Default)]
struct Table {
    live: foldhash::HashMap<SessionId, Arc<LiveView>>,
    starting: foldhash::HashSet<SessionId>,
}

impl LiveTable {
    /// Returns a live session.
    pub(crate) fn get(&self, id: &SessionId) -> Option<Arc<LiveView>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).live.get(id).cloned()
    }

    /// Returns how many sessions are live.
    pub(crate) fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).live.len()
    }

    /// Tells whether a session is live here, or on its way to it.
    pub(crate) fn is_resident(&self, id: &SessionId) -> bool {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.live.contains_key(id) || table.starting.contains(id)
    }

    pub(crate) fn begin(&self, id: &SessionId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).starting.insert(id.clone());
    }

    pub(crate) fn insert(&self, view: Arc<LiveView>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).enter(view);
    }

    pub(crate) fn remove(&self, id: &SessionId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).leave(id);
    }

    /// Returns every live session, in the order of the ids, so that the same seed stops them in the same order.
    pub(crate) fn all(&self) -> Vec<Arc<LiveView>> {
        let mut all: Vec<_> = self.0.read().unwrap_or_else(PoisonError::into_inner).live.values().cloned().collect();
        all.sort_by(|a, b| a.id().cmp(b.id()));
        all
    }
}

impl Table {
    fn enter(&mut self, view: Arc<LiveView>) {
        self.starting.remove(view.id());
        self.live.insert(view.id().clone(), view);
    }

    fn leave(&mut self, id: &SessionId) {
        self.starting.remove(id);
        self.live.remove(id);
    }
}
