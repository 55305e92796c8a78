//! Frames as the four interfaces send them.

#![expect(clippy::needless_pass_by_value, reason = "what is given is written where it is needed")]

use serde_json::{Value, json};

/// A frame of OpenAI's chat completions.
pub(super) fn openai(delta: Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    format!("data: {}\n\n", json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}))
}

/// A part of a tool call.
pub(super) fn openai_call(index: u64, start: Option<(&str, &str)>, arguments: &str) -> String {
    let mut call = json!({"index": index, "function": {"arguments": arguments}});
    if let Some((id, name)) = start {
        call["id"] = json!(id);
        call["type"] = json!("function");
        call["function"]["name"] = json!(name);
    }
    openai(json!({"tool_calls": [call]}), None)
}

pub(super) fn openai_end(finish: &str) -> Vec<String> {
    let usage = json!({
        "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 5}, "completion_tokens_details": {"reasoning_tokens": 3},
    });
    let usage = format!("data: {}\n\n", json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}));
    vec![openai(json!({}), Some(finish)), usage, "data: [DONE]\n\n".into()]
}

/// A frame of Anthropic's messages.
pub(super) fn anthropic(kind: &str, mut fields: Value) -> String {
    fields["type"] = json!(kind);
    format!("event: {kind}\ndata: {fields}\n\n")
}

pub(super) fn anthropic_start() -> String {
    let usage = json!({"input_tokens": 11, "output_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2});
    let message = json!({"id": "m1", "type": "message", "role": "assistant", "model": "c", "content": [], "stop_reason": null, "usage": usage});
    anthropic("message_start", json!({"message": message}))
}

/// A block of content with what comes of it.
pub(super) fn anthropic_block(index: u64, block: &Value, deltas: &[Value]) -> Vec<String> {
    let mut frames = vec![anthropic("content_block_start", json!({"index": index, "content_block": block}))];
    frames.extend(deltas.iter().map(|delta| anthropic("content_block_delta", json!({"index": index, "delta": delta}))));
    frames.push(anthropic("content_block_stop", json!({"index": index})));
    frames
}

pub(super) fn anthropic_text(index: u64, parts: &[&str]) -> Vec<String> {
    let deltas: Vec<Value> = parts.iter().map(|part| json!({"type": "text_delta", "text": part})).collect();
    anthropic_block(index, &json!({"type": "text", "text": ""}), &deltas)
}

pub(super) fn anthropic_call(index: u64, id: &str, name: &str, parts: &[&str]) -> Vec<String> {
    let deltas: Vec<Value> = parts.iter().map(|part| json!({"type": "input_json_delta", "partial_json": part})).collect();
    anthropic_block(index, &json!({"type": "tool_use", "id": id, "name": name, "input": {}}), &deltas)
}

pub(super) fn anthropic_end(stop: &str) -> Vec<String> {
    let delta = json!({"delta": {"stop_reason": stop, "stop_sequence": null}, "usage": {"output_tokens": 42}});
    vec![anthropic("message_delta", delta), anthropic("message_stop", json!({}))]
}

/// A frame of Gemini's generated content.
pub(super) fn gemini(parts: Value, finish: Option<&str>) -> String {
    let mut frame = json!({"candidates": [{"content": {"parts": parts, "role": "model"}}]});
    if let Some(finish) = finish {
        frame["candidates"][0]["finishReason"] = json!(finish);
        frame["usageMetadata"] = json!({"promptTokenCount": 11, "candidatesTokenCount": 7, "thoughtsTokenCount": 3, "totalTokenCount": 21});
    }
    format!("data: {frame}\n\n")
}

/// A line of Ollama's chat.
pub(super) fn ollama(message: Value, done: Option<&str>) -> String {
    let mut line = json!({"model": "m", "message": message, "done": done.is_some()});
    if let Some(done) = done {
        line["done_reason"] = json!(done);
        line["prompt_eval_count"] = json!(11);
        line["eval_count"] = json!(7);
    }
    format!("{line}\n")
}
