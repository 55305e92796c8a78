//! The parent of the subagents, and what it can do.

use std::time::Duration;

use greenroom_actors::{Agent, Host, RootHandle, catalog::Entry};
use greenroom_session::id::SessionId;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    answer::Answer,
    arguments::{self, subagent},
    call::Call,
    reports::Reports,
    specs::{Agents, specs},
};
use crate::{
    model::ToolSpec,
    tool::{NOT_DELIVERED, ToolError, check, not_delivered, queued, render},
};

/// How long an interrupt waits for another process that holds the subagent.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(10);

/// The root of a server: it starts subagents, sends to them, and asks for them. None of its tools takes another parent.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) host: Host,
    root: RootHandle,
    pub(super) agents: Agents,
    specs: Vec<ToolSpec>,
    pub(super) reports: Mutex<Reports>,
    closing: CancellationToken,
}

impl Desk {
    pub(super) fn new(host: Host, root: RootHandle, agents: Agents) -> Self {
        let specs = specs(&agents);
        Self { host, root, agents, specs, reports: Mutex::default(), closing: CancellationToken::new() }
    }

    /// The server is on its way to its end: whoever waits does so no longer, and leaves everything to the next one.
    pub(super) fn close(&self) {
        self.closing.cancel();
    }

    pub(super) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    pub(super) fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    pub(super) fn id(&self) -> &SessionId {
        self.root.id()
    }

    /// The capability of the root, which whoever gives the call up gives up, too, until something is accepted.
    pub(super) fn agent(&self, call: &Call) -> Agent {
        self.root.agent().cancellable(call.cancelled.clone())
    }

    /// Runs one tool; `None` if there is none of this name.
    pub(super) async fn call(&self, name: &str, arguments: Value, call: &Call) -> Option<Result<Answer, ToolError>> {
        let spec = self.specs.iter().find(|spec| spec.name == name)?;
        if let Err(misfit) = check(&spec.schema, &arguments) {
            return Some(Err(ToolError::invalid_args(misfit)));
        }
        Some(match name {
            "subagent" => self.subagent(parsed(arguments), call).await,
            "send_message" => self.send_message(parsed(arguments), call).await,
            "list_agents" => self.list_agents(parsed(arguments), call).await,
            "wait" => self.wait(parsed(arguments), call).await,
            "read_log" => self.read_log(parsed(arguments), call).await,
            "interrupt" => self.interrupt(parsed(arguments)).await,
            _ => return None,
        })
    }

    async fn send_message(&self, arguments: Result<arguments::SendMessage, ToolError>, call: &Call) -> Result<Answer, ToolError> {
        let arguments::SendMessage { message, subagent_id } = arguments?;
        let child = subagent(&subagent_id, NOT_DELIVERED)?;
        self.agent(call).followup(&child, message).await.map_err(|error| not_delivered(&error, &child))?;
        Ok(Answer::text(queued(&child)))
    }

    async fn list_agents(&self, arguments: Result<arguments::ListAgents, ToolError>, call: &Call) -> Result<Answer, ToolError> {
        let arguments::ListAgents {} = arguments?;
        Ok(Answer::text(render(&self.children(call).await?).0))
    }

    pub(super) async fn children(&self, call: &Call) -> Result<Vec<Entry>, ToolError> {
        Ok(self.root.agent().list_children(call.cancelled.clone()).await?)
    }

    async fn interrupt(&self, arguments: Result<arguments::Interrupt, ToolError>) -> Result<Answer, ToolError> {
        let child = subagent(&arguments?.subagent_id, "; nothing was interrupted")?;
        let turn = self.root.agent().interrupt(&child, INTERRUPT_PATIENCE).await;
        let turn = turn.map_err(|error| ToolError::new(error.code(), format!("subagent \"{child}\" was not interrupted: {error}")))?;
        Ok(Answer::text(format!("interrupted turn {turn} of subagent {child}")))
    }

    /// Refuses whatever is not below the root: a client sees its own subagents and nobody else's.
    pub(super) async fn below(&self, id: &str, call: &Call) -> Result<SessionId, ToolError> {
        let child = subagent(id, "")?;
        let trace = self.host.trace(&child, call.cancelled.clone()).await.map_err(|error| match error.code() {
            "SESSION_QUERY_SESSION_NOT_FOUND" => ToolError::new("NOT_RESUMABLE", format!("subagent \"{child}\" is unavailable: there is no such subagent")),
            code => ToolError::new(code, format!("subagent \"{child}\" is unavailable: {error}")),
        })?;
        if trace.target.is_subagent() && trace.ancestors.iter().any(|ancestor| ancestor.id == *self.id()) {
            return Ok(child);
        }
        Err(ToolError::new("UNAUTHORIZED", format!("subagent \"{child}\" is unavailable: it is the subagent of another session")))
    }
}

fn parsed<T: serde::de::DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    serde_json::from_value(arguments).map_err(ToolError::invalid_args)
}
