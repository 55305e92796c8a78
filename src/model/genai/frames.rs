//! What of an answer is read from the wire, because `genai` does not pass it on as it came.
//!
//! - OpenAI's tool calls: `genai` puts them together by an index that some servers leave out, begin at 1, or give twice.
//! - Anthropic's reasoning that is encrypted, which is to be sent back.
//! - Gemini's word for a request that it refuses to answer.
//! - Ollama's errors in the middle of an answer.

use std::sync::{Arc, Mutex, PoisonError};

use genai::chat::{FrameCtx, RawFrameRef};
use serde_json::Value;

use super::Api;

/// The most tool calls of one answer.
const MOST_CALLS: usize = 1_000;

/// What has been seen since it was last asked for.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// OpenAI's tool calls so far.
    pub(super) calls: Vec<Call>,
    /// Anthropic's encrypted reasoning.
    pub(super) redacted: Vec<String>,
    /// Why Gemini refuses to answer.
    pub(super) blocked: Option<String>,
    /// What Ollama failed with.
    pub(super) failed: Option<String>,
    /// Whether there was anything at all.
    pub(super) heard: bool,
    /// How large the calls are.
    pub(super) bytes: usize,
    /// Whether there were more calls than any model means.
    pub(super) too_many: bool,
}

/// A tool call, as far as it has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Call {
    index: Option<u64>,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

pub(super) type Shared = Arc<Mutex<Seen>>;

/// Returns what is seen, and who is to be shown every frame.
pub(super) fn watch(api: Api) -> (Shared, impl Fn(&FrameCtx, RawFrameRef<'_>) + Send + Sync + 'static) {
    let seen = Shared::default();
    let shown = seen.clone();
    (seen, move |_: &FrameCtx, frame: RawFrameRef<'_>| shown.lock().unwrap_or_else(PoisonError::into_inner).take(api, frame.data))
}

impl Seen {
    fn take(&mut self, api: Api, data: &str) {
        self.heard |= !data.is_empty();
        let word = match api {
            Api::OpenAi => "\"tool_calls\"",
            Api::Anthropic => "\"redacted_thinking\"",
            Api::Gemini => "\"blockReason\"",
            Api::Ollama => "\"error\"",
        };
        // Most frames are a word of text, and are not read twice.
        let Some(frame) = data.contains(word).then(|| serde_json::from_str::<Value>(data).ok()).flatten() else { return };
        match api {
            Api::OpenAi => {
                for delta in frame.pointer("/choices/0/delta/tool_calls").and_then(Value::as_array).into_iter().flatten() {
                    self.call(delta);
                }
            }
            Api::Anthropic => {
                let block = frame.get("content_block").filter(|block| text(block, "/type") == "redacted_thinking");
                self.redacted.extend(block.map(|block| text(block, "/data").to_owned()));
            }
            Api::Gemini => self.blocked = frame.pointer("/promptFeedback/blockReason").and_then(Value::as_str).map(str::to_owned),
            Api::Ollama => {
                if let Some(error) = frame.get("error") {
                    self.failed = Some(error.as_str().map_or_else(|| error.to_string(), str::to_owned));
                }
            }
        }
    }

    /// Takes a part of a call in.
    fn call(&mut self, delta: &Value) {
        let index = delta.get("index").and_then(Value::as_u64);
        let (id, name) = (text(delta, "/id"), text(delta, "/function/name"));
        let arguments = match delta.pointer("/function/arguments") {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(whole) => whole.to_string(),
        };
        self.bytes += id.len() + name.len() + arguments.len();
        let known = match index {
            // Some servers give every call the same index.
            Some(_) => self
                .calls
                .iter()
                .rposition(|call| call.index == index)
                .filter(|at| id.is_empty() || name.is_empty() || self.calls.get(*at).is_some_and(|call| call.id == id)),
            None if !id.is_empty() => self.calls.iter().rposition(|call| call.id == id),
            None if name.is_empty() => self.calls.len().checked_sub(1),
            None => None,
        };
        if let Some(call) = known.and_then(|at| self.calls.get_mut(at)) {
            call.arguments.push_str(&arguments);
            if call.name.is_empty() {
                name.clone_into(&mut call.name);
            }
            if call.id.is_empty() {
                id.clone_into(&mut call.id);
            }
        } else if self.calls.len() < MOST_CALLS {
            self.calls.push(Call { index, id: id.to_owned(), name: name.to_owned(), arguments });
        } else {
            self.too_many = true;
        }
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn calls(deltas: &[Value]) -> Vec<(String, String, String)> {
        let mut seen = Seen::default();
        for delta in deltas {
            seen.take(Api::OpenAi, &json!({"choices": [{"delta": {"tool_calls": [delta]}}]}).to_string());
        }
        seen.calls.into_iter().map(|call| (call.id, call.name, call.arguments)).collect()
    }

    #[test]
    fn a_call_is_put_together_however_its_parts_are_named() {
        let expected = [("a".to_owned(), "noon".to_owned(), "{\"x\":1}".to_owned()), ("b".to_owned(), "dusk".to_owned(), "{}".to_owned())];
        let part = |index: Value, id: &str, name: &str, arguments: &str| {
            let mut part = json!({"function": {"arguments": arguments}});
            if !index.is_null() {
                part["index"] = index;
            }
            if !id.is_empty() {
                part["id"] = json!(id);
            }
            if !name.is_empty() {
                part["function"]["name"] = json!(name);
            }
            part
        };
        let none = Value::Null;
        for (how, deltas) in [
            (
                "by index",
                vec![part(json!(0), "a", "noon", "{\"x"), part(json!(0), "", "", "\":1}"), part(json!(1), "b", "dusk", ""), part(json!(1), "", "", "{}")],
            ),
            (
                "in turns",
                vec![part(json!(0), "a", "noon", "{\"x"), part(json!(1), "b", "dusk", "{"), part(json!(0), "", "", "\":1}"), part(json!(1), "", "", "}")],
            ),
            ("counted from 1", vec![part(json!(1), "a", "noon", "{\"x\":1}"), part(json!(2), "b", "dusk", "{}")]),
            ("with a gap", vec![part(json!(0), "a", "noon", "{\"x\":1}"), part(json!(4_000_000_000_u64), "b", "dusk", "{}")]),
            ("one index for all", vec![part(json!(0), "a", "noon", "{\"x\":1}"), part(json!(0), "b", "dusk", "{"), part(json!(0), "", "", "}")]),
            ("the name again", vec![part(json!(0), "a", "noon", "{\"x"), part(json!(0), "a", "noon", "\":1}"), part(json!(1), "b", "dusk", "{}")]),
            ("the id late", vec![part(json!(0), "", "noon", "{\"x\":1}"), part(json!(0), "a", "", ""), part(json!(1), "b", "dusk", "{}")]),
            ("no index", vec![part(none.clone(), "a", "noon", "{\"x"), part(none.clone(), "", "", "\":1}"), part(none.clone(), "b", "dusk", "{}")]),
            (
                "no index, in turns",
                vec![
                    part(none.clone(), "a", "noon", "{\"x"),
                    part(none.clone(), "b", "dusk", "{"),
                    part(none.clone(), "a", "", "\":1}"),
                    part(none, "b", "", "}"),
                ],
            ),
            ("an object", vec![json!({"index": 0, "id": "a", "function": {"name": "noon", "arguments": {"x": 1}}}), part(json!(1), "b", "dusk", "{}")]),
        ] {
            assert_eq!(calls(&deltas), expected, "{how}");
        }
    }

    #[test]
    fn more_calls_than_any_model_means_are_not_kept() {
        let mut seen = Seen::default();
        for index in 0..=MOST_CALLS {
            assert!(!seen.too_many);
            seen.call(&json!({"index": index, "id": format!("c{index}"), "function": {"name": "noon"}}));
        }
        assert!(seen.too_many);
        assert_eq!(seen.calls.len(), MOST_CALLS);
    }

    #[test]
    fn what_is_said_beside_the_answer_is_seen() {
        let mut seen = Seen::default();
        seen.take(Api::Anthropic, r#"{"type":"content_block_start","content_block":{"type":"redacted_thinking","data":"xyz"}}"#);
        seen.take(Api::Anthropic, r#"{"type":"content_block_delta","delta":{"text":"\"redacted_thinking\""}}"#);
        seen.take(Api::Gemini, r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#);
        seen.take(Api::Ollama, r#"{"error":"out of memory"}"#);
        seen.take(Api::Ollama, r#"{"message":{"content":"\"error\""}}"#);
        seen.take(Api::OpenAi, r#"{"choices":[{"delta":{"content":"\"tool_calls\""}}]}"#);
        seen.take(Api::OpenAi, "no \"tool_calls\"");
        assert_eq!(seen.redacted, ["xyz"]);
        assert_eq!((seen.blocked.as_deref(), seen.failed.as_deref(), seen.calls.len()), (Some("SAFETY"), Some("out of memory"), 0));
    }
}
