//! The pair of occurrences that tells of an epoch: it is live, it has ended.
//!
//! Kept by whoever guards the end of a live session. The first is told when the session stands in the table of live ones, the second when everything
//! that the end could still change is known; an epoch that was never live is told of by neither.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use greenroom_session::{
    event::{EpochEnd, Event, TurnEnd},
    fold::Fold,
    id::Seq,
    message::text_of,
};

use crate::{live::LiveView, occurrence::Occurrence, services::Services};

/// Code of an end without order that no failed write explains: its actor was ended from outside, or panicked.
pub(crate) const ACTIVATION_FAILED: &str = "ACTIVATION_FAILED";

/// Where an epoch begins in its log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning {
    seq: Seq,
    /// The newest turn of the epochs before it.
    turns: u64,
}

impl Beginning {
    /// Notes where an epoch begins, by the fold before it and the events that begin it. What those close is of the epoch before.
    pub(crate) fn of(before: &Fold, begin: &[Event]) -> Self {
        let head = before.head();
        Self { seq: begin.last().map_or(head.next_seq, |start| start.seq), turns: head.turns }
    }
}

/// The pair of occurrences of one epoch. Each is told once, whoever comes first.
#[derive(Debug)]
pub(crate) struct Pair {
    beginning: Beginning,
    told: AtomicU8,
}

const NOTHING: u8 = 0;
const BEGUN: u8 = 1;
const ENDED: u8 = 2;

impl Pair {
    pub(crate) fn new(beginning: Beginning) -> Self {
        Self { beginning, told: AtomicU8::new(NOTHING) }
    }

    /// Tells that the session is live.
    pub(crate) fn begin(&self, services: &Services, view: &LiveView) {
        if self.told.compare_exchange(NOTHING, BEGUN, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        services.tell(|| {
            let (provider, mode) = view.log.look(|fold| fold.described().map(|known| (Arc::from(&*known.provider), known.mode))).unzip();
            let parent = view.header.parent.clone();
            Occurrence::Activated { session: view.id().clone(), epoch: view.epoch, parent, provider, mode, resumed: view.epoch > 1 }
        });
    }

    /// Tells that the epoch has ended. A turn that its last transaction has ended, and that its fold therefore still shows open, ended as `cut` says.
    pub(crate) fn end(&self, services: &Services, view: &LiveView, reason: EpochEnd, cut: &TurnEnd) {
        if self.told.swap(ENDED, Ordering::AcqRel) != BEGUN {
            return;
        }
        services.tell(|| {
            let (outcome, answer) = self.facts(view, reason, cut);
            let provider = view.log.look(|fold| fold.described().map(|known| Arc::from(&*known.provider)));
            let parent = view.header.parent.clone();
            Occurrence::Ended { session: view.id().clone(), epoch: view.epoch, parent, provider, reason, outcome, answer }
        });
    }

    fn facts(&self, view: &LiveView, reason: EpochEnd, cut: &TurnEnd) -> (TurnEnd, Option<Arc<str>>) {
        // The fold may be ahead of what is on disk then, and nobody may rely on what is not there.
        if let Some(error) = view.log.broken() {
            return (TurnEnd::error(error.code(), error.to_string()), None);
        }
        if !matches!(reason, EpochEnd::Settled | EpochEnd::Disposed) {
            return (TurnEnd::error(ACTIVATION_FAILED, "its actor ended without order"), None);
        }
        view.log.look(|fold| {
            let outcome = match (&fold.head().open, fold.outcome_after(self.beginning.turns)) {
                (Some(_), _) => cut.clone(),
                (None, outcome) => outcome.cloned().unwrap_or(TurnEnd::Completed),
            };
            (outcome, fold.last_said_since(self.beginning.seq).map(|said| text_of(&said.content).into()))
        })
    }
}
