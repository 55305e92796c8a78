//! Waiting for subagents.

use std::time::Duration;

use greenroom_actors::catalog::Entry;
use greenroom_session::{descriptor::Mode, event::TurnEnd, head::TurnState, id::SessionId, message::text_of, text::Escaped};
use tokio::time::{Instant, interval, sleep_until, timeout};

use super::{answer::Answer, arguments, call::Call, desk::Desk, read_log::cut};
use crate::tool::ToolError;

/// How often a client is told how long it has been waiting.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// How long the root may take to have what a subagent has reported in its log.
const NOTES_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of what a subagent said last.
const SAID_BYTES: usize = 64 << 10;
/// Subagents that are told of one by one.
const MOST_LINES: usize = 100;

impl Desk {
    pub(super) async fn wait(&self, arguments: Result<arguments::Wait, ToolError>, call: &Call) -> Result<Answer, ToolError> {
        let arguments::Wait { subagent_id, timeout } = arguments?;
        let child = match &subagent_id {
            Some(id) => Some(self.below(id, call).await?),
            None => None,
        };
        let stuck = self.quiet(child.as_ref().unwrap_or(self.id()), Duration::from_secs(timeout), call).await?;
        match (&child, &stuck) {
            (Some(child), None) => Ok(Answer::text(format!("still running, position {}", self.position(child).await?))),
            (Some(child), Some(stuck)) => self.done(child, stuck.contains(child), call).await,
            (None, stuck) => self.all(stuck.as_deref(), call).await,
        }
    }

    /// Waits until nobody below has anything to do, and returns who has and cannot; `None` if the time was over first.
    async fn quiet(&self, top: &SessionId, time: Duration, call: &Call) -> Result<Option<Vec<SessionId>>, ToolError> {
        let begun = Instant::now();
        let mut ticks = interval(PROGRESS_EVERY);
        let mut quiet = Box::pin(self.host.quiescent(top));
        loop {
            tokio::select! {
                biased;
                stuck = &mut quiet => return stuck.map(Some).map_err(|error| ToolError::new(error.code(), error.to_string())),
                () = call.cancelled.cancelled() => return Err(Call::aborted()),
                () = self.closing().cancelled() => return Ok(None),
                () = sleep_until(begun + time) => return Ok(None),
                _ = ticks.tick() => call.tell(begun.elapsed().as_secs_f64(), Some(time.as_secs_f64()), "still running".to_owned()).await,
            }
        }
    }

    pub(super) async fn position(&self, child: &SessionId) -> Result<u64, ToolError> {
        let fold = self.host.fold(child).await.map_err(|error| unreadable(child, &error))?;
        Ok(fold.head().next_seq)
    }

    /// Tells of one that has nothing left to do.
    async fn done(&self, child: &SessionId, is_stuck: bool, call: &Call) -> Result<Answer, ToolError> {
        let fold = self.host.fold(child).await.map_err(|error| unreadable(child, &error))?;
        let position = fold.head().next_seq;
        let outcome = match fold.outcome() {
            _ if is_stuck => "has work and cannot run".to_owned(),
            None => "has had no turn".to_owned(),
            Some(TurnEnd::Completed) => "is done".to_owned(),
            Some(TurnEnd::Error { code, message }) => {
                let mut message = message.clone();
                cut(&mut message, 2_000);
                format!("failed with {code}: {}", Escaped(&message))
            }
            Some(other) => format!("ended as {}", other.as_str()),
        };
        let mut texts = vec![format!("subagent {child} {outcome}, position {position}")];
        if let Some(said) = fold.last_said() {
            let mut said = text_of(&said.content);
            cut(&mut said, SAID_BYTES);
            texts.push(said);
        }
        let reports = self.reports(child, call).await?;
        texts.extend(reports.into_iter().filter(|report| texts.get(1) != Some(report)).collect::<Vec<_>>());
        Ok(Answer(texts))
    }

    async fn reports(&self, child: &SessionId, call: &Call) -> Result<Vec<String>, ToolError> {
        let mut reports = self.reports.lock().await;
        self.read_notes(&mut reports, call).await?;
        Ok(reports.take(child).into())
    }

    async fn read_notes(&self, reports: &mut super::reports::Reports, call: &Call) -> Result<(), ToolError> {
        // A report is in the log once the root has taken it, which it does by itself. One that it cannot take stays untold.
        drop(timeout(NOTES_PATIENCE, self.host.when_idle(self.id())).await);
        reports.read(&self.host, self.id(), &call.cancelled).await.map_err(|error| unreadable(self.id(), &error))
    }

    /// Tells of all that the client has started in the background.
    async fn all(&self, stuck: Option<&[SessionId]>, call: &Call) -> Result<Answer, ToolError> {
        let position = {
            let mut reports = self.reports.lock().await;
            self.read_notes(&mut reports, call).await?;
            reports.position()
        };
        let children = self.children(call).await?;
        let mut lines = vec![match stuck {
            Some(_) => format!("nothing is left to do, position {position}"),
            None => format!("still running, position {position}"),
        }];
        let listed: Vec<_> = children
            .iter()
            .filter_map(|entry| match entry {
                Entry::Child(child) if child.mode == Mode::Continuable => Some(child),
                _ => None,
            })
            .collect();
        for child in listed.iter().take(MOST_LINES) {
            let is_stuck = stuck.is_some_and(|stuck| stuck.contains(&child.id));
            let doing = match &child.last_outcome {
                _ if is_stuck => "has work and cannot run".to_owned(),
                _ if child.turn != TurnState::Idle || child.pending > 0 => "has work".to_owned(),
                Some(outcome) => format!("last turn {}", outcome.kind),
                None => "has had no turn".to_owned(),
            };
            lines.push(format!("{} [{doing}] — {}", child.id, Escaped(child.label.as_deref().unwrap_or_default())));
        }
        if let Some(more) = listed.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
            lines.push(format!("and {more} more"));
        }
        Ok(Answer::text(lines.join("\n")))
    }
}

fn unreadable(session: &SessionId, error: &greenroom_actors::error::QueryError) -> ToolError {
    ToolError::new(error.code(), format!("subagent \"{session}\" is unavailable: {error}"))
}
