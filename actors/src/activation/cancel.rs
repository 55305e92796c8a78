//! Cancelling: ending what goes on, and taking back what waits for a turn of its own, in one handler, so that nothing begins in between.

use greenroom_session::{
    event::{Body, TurnEnd as TurnReason},
    id::MessageId,
    message::{InboxRecord, MessageKind},
    requests::{self, under_way},
    store::LoadError,
};
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::{ActivationMessage, ActivationState, Next, Outcome, requests::Asker};
use crate::{control::Answered, error::ControlError, race::race_point};

/// The wish to cancel.
#[derive(Debug)]
pub(crate) struct Call {
    /// The turn that is meant; whichever it is if `None`.
    pub(crate) turn: Option<u64>,
    /// Leaves what waits where it is.
    pub(crate) keep_inbox: bool,
    /// Recorded with what is done.
    pub(crate) by: &'static str,
    /// Told what was done, once it is durable but for the end of a turn that runs. Dropped where nothing was done since the epoch ends.
    pub(crate) reply: oneshot::Sender<Result<Struck, ControlError>>,
}

/// What a cancel hit.
#[derive(Debug, Default)]
pub(crate) struct Struck {
    /// Taken back, in the order of the inbox.
    pub(crate) withdrawn: Vec<MessageId>,
    /// The turn, and what tells that its end is durable; `None` if it is already.
    pub(crate) turn: Option<(u64, Option<oneshot::Receiver<Answered>>)>,
}

impl ActivationState {
    /// Ends the turn that runs, takes back what waits, and goes on with what is left. Where there is nothing of either nothing is written.
    pub(super) async fn cancel(&mut self, myself: &ActorRef<ActivationMessage>, call: Call) -> Outcome {
        race_point!("before-cancel");
        if self.is_aside() {
            // The turn under way is served again and what waits stays: nothing is taken back from a session that is put aside.
            return Ok(Next::Stay);
        }
        let Call { turn, keep_inbox, by, reply } = call;
        let waiting = match self.waiting(keep_inbox).await {
            Ok(waiting) => waiting,
            Err(error) => {
                drop(reply.send(Err(ControlError::from_load(self.view.id(), error))));
                return Ok(Next::Stay);
            }
        };
        let runs = self.runs(turn).map(|running| running.turn);
        // While a turn runs that is not meant there is none to be ended.
        let (answer, ended) = if self.running.is_some() {
            (requests::withdraw_all(&waiting, by), None)
        } else {
            self.view.log.look(|fold| {
                let head = fold.head();
                (requests::cancel(head, turn, &waiting, by), under_way(head).filter(|found| turn.is_none_or(|turn| turn == *found)))
            })
        };
        let wrote = !answer.bodies.is_empty();
        let withdrawn = answer.bodies.iter().filter_map(|body| if let Body::MessageWithdrawn { message, .. } = body { Some(message.clone()) } else { None });
        let mut struck = Struck { withdrawn: withdrawn.collect(), turn: ended.map(|turn| (turn, None)) };
        self.give(answer).await?;
        race_point!("cancel-given");
        if let Some(turn) = runs {
            let (tell, end) = oneshot::channel();
            if self.runs(Some(turn)).is_some_and(|running| running.note(Asker::Caller(tell))) {
                self.cut(myself, TurnReason::Aborted { cause: by.to_owned() });
            }
            struck.turn = Some((turn, Some(end)));
        }
        // Whoever asked may have given up.
        drop(reply.send(Ok(struck)));
        if wrote { self.go_on(myself).await } else { Ok(Next::Stay) }
    }

    /// Reads what waits for a turn of its own.
    async fn waiting(&mut self, keep_inbox: bool) -> Result<Vec<InboxRecord>, LoadError> {
        if keep_inbox {
            return Ok(Vec::new());
        }
        let session = self.view.id().clone();
        let mut waiting = self.services.readers.read(move |reader| reader.inbox(&session, usize::MAX)).await?;
        waiting.retain(|record| record.message.kind == MessageKind::Turn);
        Ok(waiting)
    }
}
