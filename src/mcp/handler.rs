//! The server's half of the protocol.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt as _;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
        ToolAnnotations,
    },
    service::RequestContext,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{answer::result, call::Call, desk::Desk, specs::INSTRUCTIONS};
use crate::{tool::ToolError, wire::Room};

/// Answers what clients ask.
#[derive(Debug)]
pub(super) struct Handler {
    desk: Arc<Desk>,
    room: Room,
    ended: CancellationToken,
}

impl Handler {
    pub(super) fn new(desk: Arc<Desk>, room: Room, ended: CancellationToken) -> Self {
        Self { desk, room, ended }
    }

    fn tools(&self) -> Vec<Tool> {
        let tools = self.desk.specs().iter().map(|spec| {
            let schema = spec.schema.as_object().cloned().unwrap_or_default();
            let looks_on = matches!(spec.name.as_str(), "list_agents" | "wait" | "read_log");
            let hints = ToolAnnotations::new().read_only(looks_on);
            let hints = if looks_on { hints } else { hints.destructive(spec.name == "interrupt").idempotent(false) };
            Tool::new(spec.name.clone(), spec.description.clone(), schema).annotate(hints)
        });
        tools.collect()
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("greenroom", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(&self, _: Option<PaginatedRequestParams>, _: RequestContext<RoleServer>) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        let call =
            Call { token: context.meta.get_progress_token(), peer: context.peer, room: self.room.clone(), cancelled: context.ct, ended: self.ended.clone() };
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        // A request whose body panics would never be answered.
        let done = AssertUnwindSafe(self.desk.call(&request.name, arguments, &call)).catch_unwind().await;
        let answer = match done {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err(ErrorData::invalid_params("there is no tool of this name", Some(json!({"code": "UNKNOWN_TOOL"})))),
            Err(_) => {
                tracing::error!(tool = %request.name, "a tool panicked");
                Err(ToolError::new("TOOL_PANICKED", "the tool panicked; it is not known what it has done"))
            }
        };
        Ok(result(answer).into())
    }
}
