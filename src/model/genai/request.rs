//! What is sent.
//!
//! What a request says of earlier messages follows from those alone, so that a later request of the same session begins with the same bytes: that is what providers' caches
//! go by.

use std::collections::HashMap;

use genai::chat::{CacheControl, ChatMessage, ChatOptions, ChatRequest, ContentPart, CustomPart, MessageContent, Tool, ToolCall, ToolResponse};
use greenroom_session::{
    event::{Role, SurfaceMessage},
    message::{Block, Source, text_of},
};
use serde_json::{Map, Value, json};

use super::{Api, Timeouts};
use crate::model::{ModelError, ModelErrorCode, ModelRequest};

/// What marks a signature that is Anthropic's reasoning itself, encrypted.
pub(super) const REDACTED: &str = "redacted_thinking:";

/// The last parts of model names that `genai` takes for a wish of how hard to think, and takes away.
const EFFORTS: [&str; 8] = ["zero", "none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Returns what is asked beside the conversation.
pub(super) fn options(api: Api, request: &ModelRequest, timeouts: &Timeouts) -> Result<ChatOptions, ModelError> {
    let mut options = ChatOptions::default()
        .with_capture_usage(true)
        .with_capture_content(false)
        .with_capture_tool_calls(false)
        // Without it Anthropic's reasoning is complained about in the log.
        .with_capture_reasoning_content(api == Api::Anthropic)
        .with_stream_header_timeout(timeouts.first)
        .with_stream_read_timeout(timeouts.next);
    if let Some(tokens) = request.max_tokens {
        options = options.with_max_tokens(u32::try_from(tokens).unwrap_or(u32::MAX));
    }
    let name = &request.model.name;
    let is_effort = api != Api::Ollama && name.rsplit_once('-').is_some_and(|(_, last)| EFFORTS.contains(&last));
    if !is_effort && !name.contains("::") {
        return Ok(options);
    }
    // `genai` would change the name, so that it is put back.
    let mut body = json!({"model": name});
    let unasked: &[&str] = match api {
        Api::OpenAi => &["reasoning_effort"],
        Api::Anthropic => &["thinking", "output_config"],
        Api::Gemini | Api::Ollama => {
            return Err(ModelError::new(ModelErrorCode::BadRequest, format!("a model of {api} cannot be named `{name}` here")));
        }
    };
    if let (true, Some(fields)) = (is_effort, body.as_object_mut()) {
        fields.extend(unasked.iter().map(|field| ((*field).to_owned(), Value::Null)));
    }
    Ok(options.with_extra_body(body))
}

/// Returns the conversation.
pub(super) fn chat(api: Api, request: &ModelRequest) -> ChatRequest {
    let provider = request.model.provider.as_deref().unwrap_or_default();
    let mut said = Said { api, provider, messages: Vec::new(), ids: HashMap::new() };
    for message in &request.messages {
        said.take(message);
    }
    let mut messages = said.messages;
    let tools = request.tools.iter().map(|tool| Tool::new(tool.name.as_str()).with_description(&tool.description).with_schema(tool.schema.clone()));
    let mut chat = ChatRequest::default().with_tools(tools.collect::<Vec<_>>());
    if chat.tools.as_ref().is_some_and(Vec::is_empty) {
        chat.tools = None;
    }
    match (&request.system, api) {
        (Some(system), Api::Anthropic) => messages.insert(0, ChatMessage::system(system.as_str()).with_options(CacheControl::Ephemeral)),
        (Some(system), _) => chat = chat.with_system(system.as_str()),
        (None, _) => {}
    }
    if api == Api::Anthropic {
        mark(&mut messages);
    }
    chat.messages = messages;
    chat
}

/// Marks up to where Anthropic is to keep what it has read: the end of this request, and that of the one before, which it has kept.
fn mark(messages: &mut [ChatMessage]) {
    let is_answer = |message: &ChatMessage| message.role == genai::chat::ChatRole::Assistant;
    let before = messages.iter().rposition(is_answer).and_then(|answer| answer.checked_sub(1));
    let ends = [before, messages.len().checked_sub(1)];
    for end in ends.into_iter().flatten() {
        if let Some(message) = messages.get_mut(end).filter(|message| !is_answer(message)) {
            message.options = Some(CacheControl::Ephemeral.into());
        }
    }
}

/// What was said, as it is sent.
struct Said<'a> {
    api: Api,
    /// Whose reasoning goes back: to another provider it means nothing.
    provider: &'a str,
    messages: Vec<ChatMessage>,
    /// What the calls are named on the wire, by their ids.
    ids: HashMap<&'a str, String>,
}

impl<'a> Said<'a> {
    fn take(&mut self, message: &'a SurfaceMessage) {
        match message.role {
            Role::User => self.messages.push(ChatMessage::user(text_of(&message.content))),
            Role::Assistant => self.answer(message),
            Role::Tool => {
                let results: Vec<ContentPart> = message.content.iter().filter_map(|block| self.result(block)).map(ContentPart::ToolResponse).collect();
                match self.messages.last_mut() {
                    // Anthropic wants the results of one answer's calls in one message; Ollama would lose all but one.
                    Some(last) if self.api == Api::Anthropic && last.role == genai::chat::ChatRole::Tool => {
                        last.content.extend(results);
                    }
                    _ => self.messages.push(ChatMessage::tool(MessageContent::from_parts(results))),
                }
            }
        }
    }

    fn answer(&mut self, message: &'a SurfaceMessage) {
        let is_own = matches!(&message.source, Source::Model { provider, .. } if provider == self.provider);
        let mut parts = Vec::new();
        // What has been thought right before a call.
        let mut signature = None;
        for block in &message.content {
            match block {
                Block::Text { text } if text.is_empty() => {}
                Block::Text { text } => parts.push(ContentPart::Text(text.clone())),
                Block::Reasoning { text, signature } if is_own => self.reasoning(text, signature.as_deref(), &mut parts),
                Block::ToolCall { id, name, arguments } => {
                    let call_id = self.name(id, name);
                    let thought_signatures = signature.take().filter(|_| self.api == Api::Gemini).map(|signature: String| vec![signature]);
                    parts.push(ContentPart::ToolCall(ToolCall { call_id, fn_name: name.clone(), fn_arguments: object(arguments), thought_signatures }));
                }
                Block::Reasoning { .. } | Block::ToolResult { .. } => {}
            }
            signature = if let Block::Reasoning { signature, .. } = block { signature.clone().filter(|_| is_own) } else { None };
        }
        // A message that says nothing is refused.
        if !parts.is_empty() {
            self.messages.push(ChatMessage::assistant(MessageContent::from_parts(parts)));
        }
    }

    fn reasoning(&self, text: &str, signature: Option<&str>, parts: &mut Vec<ContentPart>) {
        match (self.api, signature) {
            (Api::OpenAi, _) if !text.is_empty() => parts.push(ContentPart::ReasoningContent(text.to_owned())),
            (Api::Anthropic, Some(signature)) => match signature.strip_prefix(REDACTED) {
                Some(data) => parts.push(ContentPart::Custom(CustomPart { model_iden: None, data: json!({"type": "redacted_thinking", "data": data}) })),
                // Each signature belongs to one text, also to an empty one.
                None => parts.extend([ContentPart::ThoughtSignature(signature.to_owned()), ContentPart::ReasoningContent(text.to_owned())]),
            },
            (Api::Gemini, Some(signature)) => parts.push(ContentPart::ThoughtSignature(signature.to_owned())),
            _ => {}
        }
    }

    /// Returns what a call is named on the wire: what its model has named it, if this provider takes that.
    fn name(&mut self, id: &'a str, tool: &str) -> String {
        let number = self.ids.len();
        let is_taken = match self.api {
            Api::OpenAi => !id.is_empty() && id.len() <= 40,
            Api::Anthropic => !id.is_empty() && id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')),
            // `genai` makes these up where Gemini names no call, and leaves them out again.
            Api::Gemini => !id.is_empty() && !id.starts_with("call#"),
            Api::Ollama => true,
        };
        let name = match self.api {
            _ if is_taken => id.to_owned(),
            Api::Gemini => format!("call#{tool}#{number}"),
            _ => format!("renamed_{number}"),
        };
        self.ids.insert(id, name.clone());
        name
    }

    fn result(&self, block: &Block) -> Option<ToolResponse> {
        let Block::ToolResult { call_id, text, is_error } = block else { return None };
        // Not every provider can be told otherwise that a call failed.
        let text = if *is_error && !text.starts_with("Error") { format!("Error: {text}") } else { text.clone() };
        Some(ToolResponse::new(self.ids.get(call_id.as_str()).map_or(call_id.as_str(), String::as_str), text))
    }
}

/// Reads the arguments of a call. Providers take an object alone.
fn object(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(fields)) => Value::Object(fields),
        _ if arguments.trim().is_empty() => Value::Object(Map::new()),
        // So Anthropic's documentation of tool use names what is no JSON.
        _ => json!({"INVALID_JSON": arguments}),
    }
}
