//! What comes of an answer on the wire.

use std::{
    collections::VecDeque,
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, future, stream};
use genai::chat::{ChatStream, ChatStreamEvent, StopReason, StreamEnd, ToolCall};
use greenroom_session::limits::MAX_MESSAGE_BYTES;
use serde_json::Value;
use tokio::time::Instant;
use tracing::dispatcher::{self, Dispatch};

use super::{
    Api,
    failure::Failures,
    frames::{Seen, Shared},
    request::REDACTED,
};
use crate::model::{ModelError, ModelErrorCode, ModelEvent, ModelStream, Stop, Usage};

/// An answer on its way.
pub(super) struct Answer {
    api: Api,
    chat: ChatStream,
    seen: Shared,
    failures: Failures,
    until: Instant,
    whole: Duration,
    /// How much has come, in bytes.
    bytes: usize,
    /// The signature of what was thought last, as far as it has come.
    signature: String,
    /// The calls so far, each behind what was thought right before it. They are passed on when the answer is whole.
    calls: Vec<ModelEvent>,
    ready: VecDeque<ModelEvent>,
}

impl Answer {
    pub(super) fn new(api: Api, chat: ChatStream, seen: Shared, failures: Failures, whole: Duration) -> Self {
        let until = Instant::now() + whole;
        Self { api, chat, seen, failures, until, whole, bytes: 0, signature: String::new(), calls: Vec::new(), ready: VecDeque::new() }
    }

    /// Returns its pieces. After the first error nothing is to be trusted, though `genai` goes on.
    pub(super) fn stream(self) -> ModelStream {
        let next = |answer: Option<Self>| async move {
            let mut answer = answer?;
            match answer.next().await {
                Ok(end @ ModelEvent::End { .. }) => Some((Ok(end), None)),
                Ok(event) => Some((Ok(event), Some(answer))),
                Err(error) => Some((Err(error), None)),
            }
        };
        stream::unfold(Some(self), next).fuse().boxed()
    }

    async fn next(&mut self) -> Result<ModelEvent, ModelError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            match tokio::time::timeout_at(self.until, quietly(self.chat.next())).await {
                Ok(Some(Ok(event))) => self.take(event)?,
                Ok(Some(Err(error))) => {
                    if self.seen().blocked.is_some() {
                        return Ok(ModelEvent::End { stop: Stop::Refusal, usage: Usage::default() });
                    }
                    return Err(self.failures.of(&error));
                }
                Ok(None) => return Err(self.cut()),
                Err(_) => return Err(ModelError::new(ModelErrorCode::Timeout, format!("the answer was not whole after {:?}", self.whole))),
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says why an answer has no end.
    fn cut(&self) -> ModelError {
        let (failed, is_heard) = {
            let mut seen = self.seen();
            (seen.failed.take(), seen.heard)
        };
        match failed {
            Some(reason) => self.failures.told(&reason),
            None if is_heard => ModelError::new(ModelErrorCode::Transport, "the answer broke off before its end"),
            // A page for people looks like this, too: nothing of it is a frame.
            None => ModelError::new(ModelErrorCode::Transport, format!("nothing in the answer is what {} says: is that what the base URL leads to?", self.api)),
        }
    }

    fn take(&mut self, event: ChatStreamEvent) -> Result<(), ModelError> {
        let redacted = std::mem::take(&mut self.seen().redacted);
        for data in redacted {
            self.end_signature();
            self.grow(data.len())?;
            self.ready.push_back(ModelEvent::Reasoning { text: String::new(), signature: Some(format!("{REDACTED}{data}")) });
        }
        match event {
            ChatStreamEvent::Start | ChatStreamEvent::Heartbeat => {}
            ChatStreamEvent::Chunk(chunk) => {
                self.grow(chunk.content.len())?;
                self.end_signature();
                self.ready.push_back(ModelEvent::Text(chunk.content));
            }
            ChatStreamEvent::ReasoningChunk(chunk) => {
                self.grow(chunk.content.len())?;
                self.end_signature();
                self.ready.push_back(ModelEvent::Reasoning { text: chunk.content, signature: None });
            }
            ChatStreamEvent::ThoughtSignatureChunk(chunk) => {
                self.grow(chunk.content.len())?;
                // Anthropic's come in parts, Gemini's whole.
                if self.api == Api::Gemini {
                    self.end_signature();
                }
                self.signature.push_str(&chunk.content);
            }
            ChatStreamEvent::ToolCallChunk(chunk) => self.call(chunk.tool_call)?,
            ChatStreamEvent::End(end) => self.end(end)?,
        }
        Ok(())
    }

    /// Counts what has come. No log takes more than a message may hold.
    fn grow(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes += bytes;
        let seen = self.seen();
        let (all, too_many) = (self.bytes + seen.bytes, seen.too_many);
        if too_many || all > MAX_MESSAGE_BYTES {
            return Err(ModelError::new(
                ModelErrorCode::Content,
                format!("the answer is longer than {MAX_MESSAGE_BYTES} bytes, or asks for more tools than any model means"),
            ));
        }
        Ok(())
    }

    /// Passes a signature on that is whole.
    fn end_signature(&mut self) {
        if !self.signature.is_empty() {
            let signature = Some(std::mem::take(&mut self.signature));
            self.ready.push_back(ModelEvent::Reasoning { text: String::new(), signature });
        }
    }

    /// Takes in a call, or a part of one.
    fn call(&mut self, call: ToolCall) -> Result<(), ModelError> {
        let ToolCall { call_id: id, fn_name: name, fn_arguments, thought_signatures } = call;
        let arguments = match fn_arguments {
            Value::String(text) => text,
            Value::Null => String::new(),
            whole => whole.to_string(),
        };
        match self.api {
            // Read from the wire.
            Api::OpenAi => self.grow(0),
            Api::Anthropic => {
                self.end_signature();
                // Each part has the arguments so far.
                if let Some(ModelEvent::ToolCall { id: last, arguments: known, .. }) = self.calls.last_mut()
                    && *last == id
                {
                    let more = arguments.len().saturating_sub(known.len());
                    *known = arguments;
                    return self.grow(more);
                }
                let bytes = id.len() + name.len() + arguments.len();
                self.calls.push(ModelEvent::ToolCall { id, name, arguments });
                self.grow(bytes)
            }
            Api::Gemini | Api::Ollama => {
                // Gemini signs a call by what was thought right before it.
                if let Some(signature) = thought_signatures.and_then(|signatures| signatures.into_iter().next()) {
                    if signature == self.signature {
                        self.signature.clear();
                    }
                    self.calls.push(ModelEvent::Reasoning { text: String::new(), signature: Some(signature) });
                }
                self.end_signature();
                let bytes = id.len() + name.len() + arguments.len();
                self.calls.push(ModelEvent::ToolCall { id, name, arguments });
                self.grow(bytes)
            }
        }
    }

    fn end(&mut self, end: StreamEnd) -> Result<(), ModelError> {
        self.end_signature();
        let StreamEnd { captured_usage: usage, captured_stop_reason: reason, .. } = end;
        // `genai` makes up an end where Gemini's and Ollama's answers break off.
        let is_made_up = match self.api {
            Api::Gemini => reason.is_none(),
            Api::Ollama => reason.is_none() && usage.is_none(),
            Api::OpenAi | Api::Anthropic => false,
        };
        if is_made_up {
            return Err(self.cut());
        }
        let seen = std::mem::take(&mut self.seen().calls);
        self.calls.extend(seen.into_iter().map(|call| ModelEvent::ToolCall { id: call.id, name: call.name, arguments: call.arguments }));
        let asks = self.calls.iter().any(|event| matches!(event, ModelEvent::ToolCall { .. }));
        if self.calls.iter().any(|event| matches!(event, ModelEvent::ToolCall { name, .. } if name.is_empty())) {
            return Err(ModelError::new(ModelErrorCode::Content, "the answer asks for a tool without a name"));
        }
        let stop = match reason {
            Some(StopReason::MaxTokens(_)) => Stop::MaxTokens,
            Some(StopReason::ContentFilter(_)) => Stop::Refusal,
            // Gemini's words for a call that it could not put into words.
            Some(StopReason::Other(word)) if matches!(word.as_str(), "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL") => {
                return Err(ModelError::new(ModelErrorCode::EmptyResponse, format!("the model made no answer: {word}")));
            }
            _ if asks => Stop::ToolUse,
            Some(StopReason::ToolCall(_)) => {
                return Err(ModelError::new(ModelErrorCode::Content, "the answer asks for tools and names none"));
            }
            Some(StopReason::Other(word)) => Stop::Other(word),
            Some(StopReason::Completed(_) | StopReason::StopSequence(_)) | None => Stop::End,
        };
        if matches!(stop, Stop::ToolUse) {
            self.ready.extend(self.calls.drain(..));
        }
        self.ready.push_back(ModelEvent::End { stop, usage: usage.as_ref().map(counted).unwrap_or_default() });
        Ok(())
    }
}

/// Lets `genai` work without a word in the log: of an answer that fails it writes down all that the provider says, which may be the key. Whoever asked hears of it all the same.
async fn quietly<T>(mut work: impl Future<Output = T> + Unpin) -> T {
    future::poll_fn(|context| dispatcher::with_default(&Dispatch::none(), || work.poll_unpin(context))).await
}

/// Reads what an answer cost. `genai` has made the numbers of all providers mean the same: the cache's are part of the input.
fn counted(usage: &genai::chat::Usage) -> Usage {
    let number = |number: Option<i32>| number.and_then(|number| u64::try_from(number).ok()).unwrap_or_default();
    let input = usage.prompt_tokens_details.as_ref();
    Usage {
        input: number(usage.prompt_tokens),
        output: number(usage.completion_tokens),
        cached_input: number(input.and_then(|details| details.cached_tokens)),
        cache_write: number(input.and_then(|details| details.cache_creation_tokens)),
        reasoning: number(usage.completion_tokens_details.as_ref().and_then(|details| details.reasoning_tokens)),
    }
}
