//! What a call gives its client.

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::json;

use crate::tool::ToolError;

/// The texts of a result. What an agent has said is a text of its own, so that it cannot pass for what the server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer(pub(super) Vec<String>);

impl Answer {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self(vec![text.into()])
    }
}

/// Makes the result of a call. A failure is a result, too: clients show an error of the protocol to nobody who could read it.
pub(super) fn result(answer: Result<Answer, ToolError>) -> CallToolResult {
    match answer {
        Ok(Answer(texts)) => CallToolResult::success(texts.into_iter().map(ContentBlock::text).collect()),
        Err(error) => {
            let mut result = CallToolResult::error(vec![ContentBlock::text(error.text())]);
            result.structured_content = Some(json!({"error": {"code": error.code(), "message": error.to_string()}}));
            result
        }
    }
}
