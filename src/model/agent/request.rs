//! What a model is asked: who it is, what it may use, and all that was said.
//!
//! A request begins with the bytes of the one before it, also after a restart, until a compaction: providers keep what they have read of such a beginning. So nothing here
//! depends on the time, on the process, or on what is live.

use std::sync::Arc;

use greenroom_actors::Turn;
use greenroom_session::{
    descriptor::ModelRoute,
    event::SurfaceMessage,
    message::{Block, Source},
};

use super::ModelOptions;
use crate::{model::ModelRequest, tool::Tools};

/// Puts together what the model is asked in this step.
pub(super) fn assemble(turn: &Turn, tools: &Tools, options: &ModelOptions, route: &ModelRoute) -> ModelRequest {
    ModelRequest {
        model: route.clone(),
        system: turn.persona().or_else(|| options.persona.clone()),
        tools: tools.specs(turn),
        messages: turn.history().iter().map(framed).collect(),
        max_tokens: options.max_tokens,
    }
}

/// Returns a message as a model sees it: what a child reports is told with the child's id, to which it can be sent more work.
pub(super) fn framed(message: &Arc<SurfaceMessage>) -> Arc<SurfaceMessage> {
    let Source::SubagentReport { session } = &message.source else { return message.clone() };
    let mut content = vec![Block::text(format!("Background subagent {session} reported:"))];
    content.extend(message.content.iter().cloned());
    Arc::new(SurfaceMessage { content, ..SurfaceMessage::clone(message) })
}

/// Returns how large a request is, in bytes of text.
pub(super) fn bytes(request: &ModelRequest) -> u64 {
    let tools = request.tools.iter().map(|tool| tool.name.len() + tool.description.len() + tool.schema.to_string().len());
    let messages = request.messages.iter().flat_map(|message| message.content.iter().map(Block::len));
    let sum: usize = request.system.iter().map(String::len).chain(tools).chain(messages).sum();
    sum as u64
}
