//! Starting a subagent.

use std::time::Duration;

use greenroom_actors::{
    Delegate, OneShotRun,
    error::{RunError, StartError},
};
use greenroom_session::text::label_from;
use tokio::time::{Instant, interval};

use super::{answer::Answer, arguments, call::Call, desk::Desk};
use crate::tool::{ToolError, judge};

/// How often a client is told that a subagent which it waits for is working.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

impl Desk {
    pub(super) async fn subagent(&self, arguments: Result<arguments::Subagent, ToolError>, call: &Call) -> Result<Answer, ToolError> {
        let arguments::Subagent { description, prompt, run_in_background, agent } = arguments?;
        if description.trim().is_empty() {
            return Err(ToolError::invalid_args("`/description` must not be empty"));
        }
        let agent = agent.or_else(|| self.agents.default.clone());
        let agent = agent.ok_or_else(|| ToolError::new("AGENT_UNKNOWN", "there is no agent to start: the server has no program file"))?;
        let delegate = Delegate::new(agent, label_from(description.trim()), prompt);
        if run_in_background.unwrap_or(false) {
            let child = self.agent(call).start_continuable(delegate).await.map_err(not_started)?.child;
            return Ok(Answer::text(format!("started subagent {child}")));
        }
        let run = self.agent(call).start(delegate).await.map_err(not_started)?;
        self.result_of(&run, call).await
    }

    /// Waits for a one-shot child. Given up by its client it is ended, since nobody would ever see its answer; left by a client or a server that has gone, it goes on.
    async fn result_of(&self, run: &OneShotRun, call: &Call) -> Result<Answer, ToolError> {
        let begun = Instant::now();
        let mut ticks = interval(PROGRESS_EVERY);
        let mut result = Box::pin(run.result());
        let error = loop {
            tokio::select! {
                result = &mut result => match result {
                    Ok(result) => return judge(run.id(), result).map(|output| Answer::text(output.text)),
                    Err(RunError::Draining) => return Err(left(run)),
                    Err(error) => break error.into(),
                },
                _ = ticks.tick() => call.tell(begun.elapsed().as_secs_f64(), None, format!("subagent {} is working", run.id())).await,
                () = self.closing().cancelled() => return Err(left(run)),
                () = call.cancelled.cancelled() => {
                    // A server on its way to its end cancels its calls, too.
                    if self.closing().is_cancelled() || !call.is_given_up() {
                        return Err(left(run));
                    }
                    break Call::aborted();
                }
            }
        };
        match run.dispose().await {
            Ok(()) => Err(error),
            Err(left) => Err(ToolError::new(error.code(), format!("{error}; subagent {} was not stopped: {left}", run.id()))),
        }
    }
}

fn left(run: &OneShotRun) -> ToolError {
    ToolError::new("DRAINING", format!("the server is shutting down; subagent {} goes on when it is started again", run.id()))
}

fn not_started(error: StartError) -> ToolError {
    match error {
        StartError::Cancelled => Call::aborted(),
        error => error.into(),
    }
}
