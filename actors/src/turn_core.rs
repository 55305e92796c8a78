//! The inside of a turn, shared by the handles to it and by its Activation: its slot, its end, its effects.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use greenroom_session::{
    event::Body,
    id::{EffectKey, EffectKind, MessageId},
    store::Refused,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::{error::WriteError, live::LiveView, race::race_point, services::Services};

/// The inside of a turn, shared by the handles to it and by its Activation.
#[derive(Debug)]
pub(crate) struct TurnCore {
    pub(crate) services: Arc<Services>,
    pub(crate) view: Arc<LiveView>,
    pub(crate) turn: u64,
    pub(crate) message: MessageId,
    pub(crate) attempt: u32,
    /// Made when somebody asks: most turns are over before anybody does.
    cancel: OnceLock<CancellationToken>,
    ended: AtomicBool,
    slot: Mutex<TurnSlot>,
    effects: Mutex<HashMap<EffectKey, Counted>>,
    /// The newest effect that the disk did not take.
    outage: Mutex<Option<WriteError>>,
}

/// The slot of a turn. While any part of the turn waits for others the turn holds none: whom it waits for may need it.
#[derive(Debug, Default)]
struct TurnSlot {
    permit: Option<OwnedSemaphorePermit>,
    waits: usize,
    ended: bool,
}

/// A part of a turn that waits without a slot.
#[derive(Debug)]
pub(crate) struct Aside<'a> {
    core: &'a TurnCore,
    over: bool,
}

impl Aside<'_> {
    /// Ends the wait; gets a slot again unless another part of the turn still waits, or the turn is cancelled.
    pub(crate) async fn end(mut self) {
        self.over = true;
        if !self.core.slot().end_wait() {
            return;
        }
        race_point!("before-regain");
        let permit = tokio::select! {
            biased;
            permit = self.core.services.slots.clone().acquire_owned() => permit,
            // Whoever is to come to its end does not wait for those who have the slots: they may be waiting for that end.
            () = self.core.token().cancelled() => return,
        };
        // Only a closed semaphore refuses, and then nothing runs any more.
        if let Ok(permit) = permit {
            let mut slot = self.core.slot();
            // Too late, or another part waits again: whoever is next in line gets it.
            if !slot.ended && slot.waits == 0 && slot.permit.is_none() {
                slot.permit = Some(permit);
            }
        }
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        if !self.over {
            // Given up: the turn goes on without a slot rather than wait for one where it cannot.
            self.core.slot().end_wait();
        }
    }
}

impl TurnSlot {
    /// Counts a wait down and tells whether a slot is wanted now.
    fn end_wait(&mut self) -> bool {
        self.waits = self.waits.saturating_sub(1);
        self.waits == 0 && !self.ended && self.permit.is_none()
    }
}

/// Takes an effect back when it is dropped: what was refused, or given up before its answer came, is the same effect when it is asked for again, on this
/// attempt or the next.
#[derive(Debug)]
pub(crate) struct InHand<'a> {
    core: &'a TurnCore,
    effect: Option<Effect>,
}

impl<'a> InHand<'a> {
    pub(crate) fn new(core: &'a TurnCore, effect: Effect) -> Self {
        Self { core, effect: Some(effect) }
    }

    /// Records that the effect was accepted.
    pub(crate) fn accepted(mut self, kind: EffectKind, target: &str, id: &str) {
        if let Some(effect) = self.effect.take() {
            self.core.record_effect(effect.key, kind, target, id);
        }
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        let Some(effect) = self.effect else { return };
        let mut effects = self.core.effects.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counted) = effects.get_mut(&effect.first) {
            counted.free.insert(effect.number);
        }
    }
}

/// How often an effect came, and which of its numbers were given back.
#[derive(Debug, Default)]
struct Counted {
    next: u32,
    free: BTreeSet<u32>,
}

/// An effect that is about to be asked for: its key, and the number that it has among its equals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effect {
    pub(crate) key: EffectKey,
    first: EffectKey,
    number: u32,
}

impl TurnCore {
    pub(crate) fn new(
        services: Arc<Services>,
        view: Arc<LiveView>,
        turn: u64,
        message: MessageId,
        attempt: u32,
        slot: Option<OwnedSemaphorePermit>,
    ) -> Arc<Self> {
        Arc::new(Self {
            services,
            view,
            turn,
            message,
            attempt,
            cancel: OnceLock::new(),
            ended: AtomicBool::new(false),
            slot: Mutex::new(TurnSlot { permit: slot, waits: 0, ended: false }),
            effects: Mutex::default(),
            outage: Mutex::default(),
        })
    }

    /// Returns the token that is cancelled with the turn.
    pub(crate) fn token(&self) -> &CancellationToken {
        self.cancel.get_or_init(CancellationToken::new)
    }

    pub(crate) fn cancel(&self) {
        self.token().cancel();
    }

    /// Ends the turn: every handle to it is an error from here on. Returns its slot, if it holds one.
    pub(crate) fn end(&self) -> Option<OwnedSemaphorePermit> {
        self.ended.store(true, Ordering::Release);
        let mut slot = self.slot();
        slot.ended = true;
        slot.permit.take()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn slot(&self) -> MutexGuard<'_, TurnSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the slot back for as long as a part of the turn waits for others.
    pub(crate) fn step_aside(&self) -> Aside<'_> {
        let mut slot = self.slot();
        slot.waits += 1;
        drop(slot.permit.take());
        Aside { core: self, over: false }
    }

    /// Returns the next effect of this kind, target and content.
    pub(crate) fn effect(&self, kind: EffectKind, target: &str, content: &[u8]) -> Effect {
        let session = self.view.id();
        let first = EffectKey::new(session, &self.message, kind, target, content, 0);
        let mut effects = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = effects.entry(first).or_default();
        let number = counted.free.pop_first().unwrap_or_else(|| {
            counted.next += 1;
            counted.next - 1
        });
        let key = if number == 0 { first } else { EffectKey::new(session, &self.message, kind, target, content, number) };
        Effect { key, first, number }
    }

    /// Returns the effect that a key of the caller's choice names, which is the same one however often it is asked for.
    pub(crate) fn named_effect(&self, kind: EffectKind, target: &str, name: &[u8]) -> Effect {
        let key = EffectKey::new(self.view.id(), &self.message, kind, target, name, 0);
        Effect { key, first: key, number: 0 }
    }

    /// Notes that an effect was not written, if it is the disk that did not take it.
    pub(crate) fn not_written(&self, error: &WriteError) {
        if error.is_outage() {
            *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        }
    }

    /// Returns the outage that a turn has failed of, which gave its error this code.
    pub(crate) fn outage(&self, code: &str) -> Option<WriteError> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner).take_if(|outage| outage.code() == code)
    }

    /// Tells whether the log says that an effect was accepted, by an earlier attempt or this one. Then nothing needs to be done again.
    pub(crate) fn was_accepted(&self, key: EffectKey) -> bool {
        let key = key.to_string();
        self.view.log.look(|fold| fold.serving().effects.contains(&key))
    }

    /// Records that an effect was accepted, once. It rides along with the next commit: should it be lost, the next attempt records it.
    pub(crate) fn record_effect(&self, key: EffectKey, kind: EffectKind, target: &str, id: &str) {
        if self.has_ended() || self.was_accepted(key) {
            return;
        }
        let key = key.to_string();
        let recorded =
            self.append(vec![Body::EffectAccepted { turn: self.turn, message: self.message.clone(), key, kind, target: target.to_owned(), id: id.to_owned() }]);
        if let Err(error) = recorded {
            // The turn has ended, or its log has failed: either is told where it matters.
            tracing::debug!(session = %self.view.id(), %error, "an accepted effect was not recorded");
        }
    }

    /// Hands events over without waiting; a failure ends the Activation at its next write.
    ///
    /// # Errors
    /// What is known at once: an event that no log takes, the turn's end, an earlier failure.
    pub(crate) fn append(&self, bodies: Vec<Body>) -> Result<(), WriteError> {
        let pending = self.view.log.append(bodies, Vec::new());
        if pending.is_ready() {
            return match pending.now() {
                // The event was refused, not the log: the turn goes on, or ends with this.
                Err(error @ WriteError::Refused(Refused::Invalid { .. })) => Err(error),
                done => self.view.log.settled(done).map(|_| ()),
            };
        }
        let view = self.view.clone();
        tokio::spawn(async move { drop(view.log.settled(pending.done().await)) });
        Ok(())
    }

    pub(crate) async fn append_durably(&self, bodies: Vec<Body>) -> Result<(), WriteError> {
        let done = self.view.log.append(bodies, Vec::new()).done().await;
        self.view.log.settled(done).map(|_| ())
    }
}
