//! Compaction within a turn: a summary takes the place of a run of what the agent sees.

use std::sync::Arc;

use greenroom_session::{
    compact::{CompactError, Plan, Summary, give_up},
    event::SurfaceMessage,
    id::{MessageId, Seq},
};

use super::{Turn, calls::not_put};
use crate::behavior::TurnError;

impl Turn {
    /// Returns what the agent sees, each with the place of its event, in order: what a compaction is planned by.
    pub fn surface(&self) -> Vec<(Seq, Arc<SurfaceMessage>)> {
        self.look(|fold| fold.surface().nodes().iter().map(|node| (node.seq, node.message.clone())).collect()).unwrap_or_default()
    }

    /// Begins a compaction of what the agent sees from the event `start` to the event `end`, both inclusive. Nothing else may be compacted, and the turn must not end,
    /// before it is brought to its end by [`Turn::compact`] or [`Turn::give_up_compaction`]; an end of the turn before that gives it up.
    ///
    /// # Errors
    /// `TURN_ENDED`; `COMPACTION_BUSY`, `COMPACTION_RANGE`, `COMPACTION_UNFINISHED_TURN` if the run holds the message that this turn serves, `COMPACTION_SPLITS_CALL`; or the
    /// write error.
    ///
    /// # Cancel safety
    /// It may have begun.
    pub async fn plan_compaction(&self, start: Seq, end: Seq) -> Result<Plan, TurnError> {
        self.check()?;
        let mut planned = None;
        let put = self.core.view.log.put(
            |fold, time| {
                let plan = planned.insert(Plan::new(fold, start, end)?);
                Ok(vec![plan.start(fold, time)?])
            },
            Vec::new(),
        );
        let (_, pending) = put.map_err(not_put)?;
        self.core.view.log.settled(pending.done().await)?;
        planned.ok_or(CompactError::NotBegun).map_err(|error| TurnError::new(error.code(), error.to_string()))
    }

    /// Puts a summary into the place of what a compaction is about, durably.
    ///
    /// # Errors
    /// `TURN_ENDED`; `COMPACTION_NOT_BEGUN`, `COMPACTION_SURFACE_CHANGED`, `COMPACTION_NOT_SMALLER`: then it is still under way; or the write error.
    ///
    /// # Cancel safety
    /// Done or not.
    pub async fn compact(&self, plan: &Plan, summary: Summary) -> Result<(), TurnError> {
        self.check()?;
        let (_, pending) = self.core.view.log.put(|fold, time| Ok(plan.commit(fold, summary, time)?), Vec::new()).map_err(not_put)?;
        self.core.view.log.settled(pending.done().await)?;
        Ok(())
    }

    /// Ends the compaction that is under way without a change, for a reason that its end names by a code.
    ///
    /// # Errors
    /// `TURN_ENDED`, `COMPACTION_NOT_BEGUN`, or the write error.
    ///
    /// # Cancel safety
    /// Done or not.
    pub async fn give_up_compaction(&self, code: &str) -> Result<(), TurnError> {
        self.check()?;
        let put = self.core.view.log.put(|fold, time| Ok(vec![give_up(fold, code, time).ok_or(CompactError::NotBegun)?]), Vec::new());
        let (_, pending) = put.map_err(not_put)?;
        self.core.view.log.settled(pending.done().await)?;
        Ok(())
    }

    /// Returns a new id for a message of this runtime.
    pub fn new_message_id(&self) -> MessageId {
        self.core.services.message_id()
    }
}
