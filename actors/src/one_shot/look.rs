//! What the log of a one-shot child says of its run.

use std::ops::ControlFlow;

use greenroom_session::{
    descriptor::Mode,
    event::{Body, EpochEnd, Event, TurnEnd},
    fold::Fold,
    head::Head,
    id::{MessageId, OwnerId, Seq, SessionId},
    listing::{Verdict, verdict},
    message::{MessageKind, text_of},
    store::{LoadError, Reader},
};

use super::OneShotResult;
use crate::error::RunError;

/// What a one-shot child was asked.
pub(super) struct Asked {
    pub(super) is_one_shot: bool,
    pub(super) message: Option<MessageId>,
}

impl Asked {
    /// Finds the message that a one-shot child serves. It is the first that was accepted, so that the first turn serves it, unless it was taken back.
    pub(super) fn read(reader: &mut dyn Reader, child: &SessionId) -> Result<Self, LoadError> {
        let inherited = reader.header(child)?.map_or(0, |header| header.seed_length);
        let mut served = None;
        let folded = reader.fold(child, &mut |event| {
            if let Body::TurnStart { message, .. } | Body::MessageWithdrawn { message, .. } = &event.body
                && event.seq >= inherited
                && served.is_none()
            {
                served = Some(message.clone());
            }
            ControlFlow::Continue(())
        })?;
        let fold = folded.ok_or_else(|| LoadError::NotFound(child.clone()))?;
        let message = served.or_else(|| fold.pending().find(|record| record.message.kind == MessageKind::Turn).map(|record| record.message.id.clone()));
        Ok(Self { is_one_shot: is_one_shot(&fold), message })
    }
}

fn is_one_shot(fold: &Fold) -> bool {
    matches!(verdict(fold), Verdict::Child { mode: Mode::OneShot, .. })
}

/// What is known of a run, as far as it has come.
pub(super) struct Look {
    pub(super) head: Head,
    pub(super) parent: Option<SessionId>,
    pub(super) holder: Option<OwnerId>,
    outcome: Option<TurnEnd>,
    text: String,
}

impl Look {
    pub(super) fn read(reader: &mut dyn Reader, child: &SessionId, message: &MessageId) -> Result<Self, LoadError> {
        let mut course = Course::default();
        let folded = reader.fold(child, &mut |event| {
            course.see(event, message);
            ControlFlow::Continue(())
        })?;
        let fold = folded.ok_or_else(|| LoadError::NotFound(child.clone()))?;
        let holder = reader.holder(child, fold.head())?;
        let said = match course.settled {
            // What it said when it lived again is no part of the run.
            Some(seq) if seq + 1 < fold.head().next_seq => {
                let mut then = Fold::new(fold.header().clone());
                for event in reader.events(child, 0, usize::try_from(seq).unwrap_or(usize::MAX))? {
                    then.apply_event(&event).map_err(|source| LoadError::Fold { session: child.clone(), source })?;
                }
                then.last_said().cloned()
            }
            _ => fold.last_said().cloned(),
        };
        let text = said.map(|message| text_of(&message.content)).unwrap_or_default();
        Ok(Self { head: fold.head().clone(), parent: fold.header().parent.clone(), holder, outcome: course.outcome, text })
    }

    /// Returns the result; `None` if it is not there yet.
    pub(super) fn result(&self, child: &SessionId) -> Result<Option<OneShotResult>, RunError> {
        if self.head.has_work() {
            return Ok(None);
        }
        match &self.outcome {
            Some(outcome) => Ok(Some(OneShotResult { outcome: outcome.clone(), text: self.text.clone() })),
            None if self.head.held > 0 => {
                Err(RunError::NotResumable { child: child.clone(), reason: "it was imported and not yet activated".into(), code: "NOT_ACTIVATED" })
            }
            None => Err(RunError::NotStarted(child.clone())),
        }
    }
}

/// How the work on one message went.
#[derive(Default)]
struct Course {
    turn: Option<u64>,
    outcome: Option<TurnEnd>,
    /// Where the child settled for the first time after that.
    settled: Option<Seq>,
}

impl Course {
    fn see(&mut self, event: &Event, prompt: &MessageId) {
        match &event.body {
            Body::TurnStart { turn, message, .. } if message == prompt => self.turn = Some(*turn),
            Body::TurnEnd { turn, reason } if self.turn == Some(*turn) && reason.is_final() => self.outcome = Some(reason.clone()),
            Body::MessageWithdrawn { message, by } if message == prompt => self.outcome = Some(TurnEnd::Aborted { cause: by.clone() }),
            Body::ActivationEnd { reason: EpochEnd::Settled, .. } if self.outcome.is_some() && self.settled.is_none() => self.settled = Some(event.seq),
            _ => {}
        }
    }
}
