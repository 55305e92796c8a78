//! Compaction of a published session: a message of the host takes the place of a run of messages.

use greenroom_session::{
    compact::{CompactError, Plan, Summary, give_up},
    event::Event,
    id::Seq,
};

use super::PublishedSession;
use crate::error::PublishedError;

impl PublishedSession {
    /// Begins a compaction of the current messages from the event `start` to the event `end`, both inclusive. Until it is brought to its end no other begins, and no
    /// turn begins or ends; what is not on the surface may be put meanwhile.
    ///
    /// # Errors
    /// [`PublishedError::Compact`] if one is under way, `start` and `end` name no run of current messages, or the run holds the message of an unfinished turn or one of a
    /// tool call and its result. Otherwise that the publication has ended or failed.
    pub fn plan_compaction(&self, start: Seq, end: Seq) -> Result<Plan, PublishedError> {
        let mut planned = None;
        self.put(|fold, now| {
            let plan = planned.insert(Plan::new(fold, start, end)?);
            Ok(plan.start(fold, now)?)
        })?;
        planned.ok_or_else(|| PublishedError::refused("nothing was planned".into()))
    }

    /// Puts a summary into the place of the messages that a compaction is about, and returns its event.
    ///
    /// # Errors
    /// [`PublishedError::Compact`] if none is under way, what the agent sees has changed since, or the summary is not shorter: then it is still under way. Otherwise that the
    /// publication has ended or failed.
    pub fn compact(&self, plan: &Plan, summary: Summary) -> Result<Event, PublishedError> {
        let (events, pending) = self.view.log.put(|fold, now| Ok(plan.commit(fold, summary, now)?), Vec::new()).map_err(|error| self.error(error))?;
        let replaced = events.iter().find(|event| event.body.is_surface()).cloned();
        self.follow(pending, None)?;
        replaced.ok_or_else(|| PublishedError::refused("a compaction puts a message".into()))
    }

    /// Ends the compaction that is under way without a change, for a reason that its end names by a code.
    ///
    /// # Errors
    /// [`PublishedError::Compact`] if none is under way. Otherwise that the publication has ended or failed.
    pub fn give_up_compaction(&self, code: impl Into<String>) -> Result<Event, PublishedError> {
        self.put(|fold, now| Ok(give_up(fold, code, now).ok_or(CompactError::NotBegun)?))
    }
}
