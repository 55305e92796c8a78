//! What kind of failure an error is.

use std::{error::Error, string::FromUtf8Error, time::Duration};

use genai::webc::StreamTimeout;
use reqwest::{StatusCode, header::HeaderMap};
use serde_json::Value;

use super::endpoint::Key;
use crate::model::{ModelError, ModelErrorCode};

/// What providers say of a request that is too long, in small letters.
const CONTEXT_FULL: [&str; 9] = [
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context window",
    "context size",
    "prompt is too long",
    "input is too long",
    "exceeds the maximum number of tokens",
    "input token count",
];

/// Tells failures apart, and keeps the key out of what is said of them.
#[derive(Debug)]
pub(super) struct Failures {
    pub(super) key: Key,
}

impl Failures {
    /// Makes a model's error of `genai`'s.
    pub(super) fn of(&self, error: &genai::Error) -> ModelError {
        match error {
            // What an HTTP response has said is inside of what the stream has failed with.
            genai::Error::WebStream { error, .. } => match error.downcast_ref::<genai::Error>() {
                Some(inner) => self.plain(inner),
                None => self.transport(error.as_ref()),
            },
            other => self.plain(other),
        }
    }

    fn plain(&self, error: &genai::Error) -> ModelError {
        use genai::Error as E;
        if let Some(status) = error.status() {
            let body = match error {
                E::HttpError { body, .. } => body.clone(),
                other => other.to_string(),
            };
            return self.http(status, error.headers(), &body);
        }
        match error {
            E::ChatResponse { body, .. } => self.event(body),
            E::WebModelCall { webc_error: genai::webc::Error::Reqwest(error), .. }
            | E::WebAdapterCall { webc_error: genai::webc::Error::Reqwest(error), .. } => self.transport(error),
            // Half a frame is what is left of an answer that was cut off.
            E::StreamParse { serde_error, .. } if serde_error.is_eof() => {
                self.error(ModelErrorCode::Transport, "the answer broke off in the middle of a frame")
            }
            E::StreamParse { serde_error, .. } => self.error(ModelErrorCode::Content, &format!("the answer cannot be read: {serde_error}")),
            E::InvalidJsonResponseElement { .. } | E::NoChatResponse { .. } | E::JsonValueExt(_) | E::SerdeJson(_) => {
                self.error(ModelErrorCode::Content, &format!("the answer cannot be read: {error}"))
            }
            E::RequiresApiKey { .. } | E::NoAuthResolver { .. } | E::NoAuthData { .. } => self.error(ModelErrorCode::Auth, &error.to_string()),
            // Its text would hold the whole request.
            E::ChatResponseGeneration { cause, .. } => self.error(ModelErrorCode::Content, &format!("the answer cannot be read: {cause}")),
            other => self.error(ModelErrorCode::BadRequest, &other.to_string()),
        }
    }

    /// An answer that is an error.
    fn http(&self, status: StatusCode, headers: Option<&HeaderMap>, body: &str) -> ModelError {
        let read = serde_json::from_str::<Value>(body).ok();
        let code = match status.as_u16() {
            401 | 403 => ModelErrorCode::Auth,
            413 => ModelErrorCode::ContextFull,
            408 => ModelErrorCode::Timeout,
            // 529 is Anthropic's for "overloaded".
            429 | 529 => ModelErrorCode::RateLimit,
            500..=599 => ModelErrorCode::Server,
            _ if is_context_full(body) => ModelErrorCode::ContextFull,
            _ => ModelErrorCode::BadRequest,
        };
        let said = read.as_ref().and_then(words).unwrap_or(body.trim());
        let after = headers.and_then(retry_after).or_else(|| read.as_ref().and_then(retry_delay));
        self.error(code, &format!("{status}: {said}")).retry_after(after)
    }

    /// An error in the middle of an answer.
    fn event(&self, body: &Value) -> ModelError {
        let error = body.get("error").unwrap_or(body);
        let word = |field: &str| match error.get(field) {
            Some(Value::String(word)) => word.to_lowercase(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let words_of_kind = [word("type"), word("code"), word("status")];
        let has = |parts: &[&str]| words_of_kind.iter().any(|word| parts.iter().any(|part| word.contains(part)));
        let all = error.to_string();
        let code = if has(&["overloaded", "rate_limit", "resource_exhausted", "too_many", "429", "529"]) {
            ModelErrorCode::RateLimit
        } else if is_context_full(&all) {
            ModelErrorCode::ContextFull
        } else if has(&["authentication", "permission", "unauthenticated", "api_key", "401", "403"]) {
            ModelErrorCode::Auth
        } else if has(&["invalid_request", "invalid_argument", "not_found", "400", "404", "422"]) {
            ModelErrorCode::BadRequest
        } else if has(&["timeout", "deadline", "408"]) {
            ModelErrorCode::Timeout
        } else {
            ModelErrorCode::Server
        };
        let said = words(body).or_else(|| body.as_str()).unwrap_or(&all).to_owned();
        self.error(code, &said).retry_after(retry_delay(body))
    }

    /// What a provider has said of its failure, and no more.
    pub(super) fn told(&self, reason: &str) -> ModelError {
        self.error(if is_context_full(reason) { ModelErrorCode::ContextFull } else { ModelErrorCode::Server }, reason)
    }

    fn transport(&self, error: &(dyn Error + 'static)) -> ModelError {
        let mut code = ModelErrorCode::Transport;
        let mut next = Some(error);
        while let Some(cause) = next {
            if let Some(error) = cause.downcast_ref::<reqwest::Error>() {
                if error.is_timeout() {
                    code = ModelErrorCode::Timeout;
                } else if error.is_builder() {
                    code = ModelErrorCode::BadRequest;
                }
            }
            if cause.is::<StreamTimeout>() {
                code = ModelErrorCode::Timeout;
            }
            // Half a character at the end is what is left of an answer that was cut off; others are none.
            if cause.downcast_ref::<FromUtf8Error>().is_some_and(|error| error.utf8_error().error_len().is_some()) {
                code = ModelErrorCode::Content;
            }
            next = cause.source();
        }
        self.error(code, &chain(error))
    }

    fn error(&self, code: ModelErrorCode, message: &str) -> ModelError {
        ModelError::new(code, self.key.hidden_in(message))
    }
}

/// Tells an error with all that led to it: the outermost says only that a request was not sent.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

fn is_context_full(text: &str) -> bool {
    let text = text.to_lowercase();
    CONTEXT_FULL.iter().any(|words| text.contains(words))
}

/// Returns what the body of an error says to a person.
fn words(body: &Value) -> Option<&str> {
    ["/error/message", "/message", "/error", "/0/error/message", "/detail"].iter().find_map(|pointer| body.pointer(pointer)?.as_str())
}

/// Returns how long a provider asks to be left alone, by the headers that give a time; a date says nothing without knowing whose clock it is.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|ms| ms / 1_000.0).or_else(|| number("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The same, where Gemini says it: in the details of the error.
fn retry_delay(body: &Value) -> Option<Duration> {
    let details = body.pointer("/error/details").or_else(|| body.pointer("/0/error/details"))?.as_array()?;
    let seconds = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str()?.strip_suffix('s')?.parse::<f64>().ok())?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failures() -> Failures {
        Failures { key: Key("sk-secret".into()) }
    }

    #[test]
    fn the_status_says_what_kind_of_failure_it_is() {
        for (status, body, code) in [
            (400, "bad tool", "MODEL_BAD_REQUEST"),
            (400, r#"{"error":{"code":"context_length_exceeded","message":"too much"}}"#, "MODEL_CONTEXT_FULL"),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#,
                "MODEL_CONTEXT_FULL",
            ),
            (400, r#"{"error":{"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}}"#, "MODEL_CONTEXT_FULL"),
            (401, "", "MODEL_AUTH"),
            (403, "", "MODEL_AUTH"),
            (404, "no such model", "MODEL_BAD_REQUEST"),
            (307, "", "MODEL_BAD_REQUEST"),
            (408, "", "MODEL_TIMEOUT"),
            (413, "", "MODEL_CONTEXT_FULL"),
            (422, "", "MODEL_BAD_REQUEST"),
            (429, "maximum context length", "MODEL_RATE_LIMIT"),
            (500, "", "MODEL_SERVER"),
            (503, "", "MODEL_SERVER"),
            (529, "", "MODEL_RATE_LIMIT"),
        ] {
            let error = failures().http(StatusCode::from_u16(status).unwrap(), None, body);
            assert_eq!(error.code(), code, "{status} {body}");
        }
    }

    #[test]
    fn an_error_in_the_middle_of_an_answer_is_told_by_its_words() {
        for (body, code) in [
            (json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), "MODEL_RATE_LIMIT"),
            (json!({"type": "error", "error": {"type": "rate_limit_error"}}), "MODEL_RATE_LIMIT"),
            (json!({"type": "error", "error": {"type": "api_error"}}), "MODEL_SERVER"),
            (json!({"type": "error", "error": {"type": "timeout_error"}}), "MODEL_TIMEOUT"),
            (json!({"message": "overloaded", "code": 503}), "MODEL_SERVER"),
            (json!({"message": "slow down", "code": 429}), "MODEL_RATE_LIMIT"),
            (json!({"message": "no", "type": "authentication_error"}), "MODEL_AUTH"),
            (json!({"message": "no", "type": "invalid_request_error"}), "MODEL_BAD_REQUEST"),
            (json!({"message": "no", "type": "invalid_request_error", "code": "context_length_exceeded"}), "MODEL_CONTEXT_FULL"),
            (json!({"error": {"status": "RESOURCE_EXHAUSTED", "code": 429}}), "MODEL_RATE_LIMIT"),
            (json!("it broke"), "MODEL_SERVER"),
            (json!({}), "MODEL_SERVER"),
        ] {
            assert_eq!(failures().event(&body).code(), code, "{body}");
        }
        assert_eq!(failures().event(&json!("it broke")).message, "it broke");
    }

    #[test]
    fn the_longest_body_is_cut_and_holds_no_key() {
        let body = format!("no such key: sk-secret {}", "é".repeat(5_000));
        let error = failures().http(StatusCode::UNAUTHORIZED, None, &body);
        assert!(error.message.len() <= ModelError::MOST_BYTES && error.message.starts_with("401 Unauthorized: no such key: … é"), "{error}");
    }

    #[test]
    fn how_long_to_wait_is_read_from_wherever_it_is_said() {
        let headers =
            |fields: &[(&'static str, &str)]| -> HeaderMap { fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect() };
        for (fields, expected) in [
            (&[("retry-after", "7")][..], Some(7_000)),
            (&[("retry-after", "7"), ("retry-after-ms", "6500")], Some(6_500)),
            (&[("retry-after", "0.5")], Some(500)),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "NaN")], None),
            (&[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")], None),
            (&[], None),
        ] {
            assert_eq!(retry_after(&headers(fields)), expected.map(Duration::from_millis), "{fields:?}");
        }
        let body = r#"{"error":{"code":429,"message":"slow down","details":[{"@type":"Help"},{"@type":"RetryInfo","retryDelay":"3.5s"}]}}"#;
        let error = failures().http(StatusCode::TOO_MANY_REQUESTS, None, body);
        assert_eq!((error.message.as_str(), error.retry_after), ("429 Too Many Requests: slow down", Some(Duration::from_millis(3_500))));
    }
}
