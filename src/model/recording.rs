//! Recordings of models: what was asked, and what was answered.
//!
//! `docs/recordings.md` has the format.

use std::{fmt::Write as _, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use super::{ModelError, ModelErrorCode, ModelEvent};

/// The version that this program writes and reads.
const VERSION: u64 = 1;

/// Every code that a recording may name.
const CODES: [ModelErrorCode; 10] = [
    ModelErrorCode::EmptyResponse,
    ModelErrorCode::RateLimit,
    ModelErrorCode::Server,
    ModelErrorCode::Timeout,
    ModelErrorCode::Transport,
    ModelErrorCode::ContextFull,
    ModelErrorCode::Auth,
    ModelErrorCode::BadRequest,
    ModelErrorCode::Content,
    ModelErrorCode::ReplayDiffers,
];

/// Why a file is no recording, or none can be written.
///
/// ```
/// use greenroom::model::{RecordingError, ReplayModel};
/// let error = ReplayModel::parse("{\"greenroom_recording\":1}\n{\"request\":").unwrap_err();
/// assert!(matches!(error, RecordingError::Line { line: 2, .. }));
/// assert_eq!(error.code(), "RECORDING_INVALID");
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It does not begin as a recording of this version does.
    #[error("a recording begins with the line {{\"greenroom_recording\":{VERSION}}}")]
    Version,
    /// A line is no answer.
    #[error("line {line}: {reason}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

impl RecordingError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "RECORDING_UNAVAILABLE",
            Self::Version | Self::Line { .. } => "RECORDING_INVALID",
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct First {
    greenroom_recording: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    request: Box<RawValue>,
    events: Vec<ModelEvent>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    error: Option<Failure>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    code: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    retry_after_ms: Option<u64>,
}

/// One request and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Exchange {
    /// The canonical text.
    pub(super) request: String,
    pub(super) events: Vec<ModelEvent>,
    pub(super) error: Option<ModelError>,
}

/// Returns a recording's first line.
pub(super) fn first_line() -> String {
    format!("{{\"greenroom_recording\":{VERSION}}}\n")
}

impl Exchange {
    /// Returns its line; an error if the request is no JSON, which it always is.
    pub(super) fn line(&self) -> Result<String, serde_json::Error> {
        let error = self.error.as_ref().map(|error| Failure {
            code: error.code().to_owned(),
            message: error.message.clone(),
            retry_after_ms: error.retry_after.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        });
        let mut text = serde_json::to_string(&Line { request: RawValue::from_string(self.request.clone())?, events: self.events.clone(), error })?;
        text.push('\n');
        Ok(text)
    }
}

/// Reads a recording.
pub(super) fn parse(text: &str) -> Result<Vec<Exchange>, RecordingError> {
    let mut lines = text.lines().enumerate();
    let first: First = lines.next().and_then(|(_, line)| serde_json::from_str(line).ok()).ok_or(RecordingError::Version)?;
    if first.greenroom_recording != VERSION {
        return Err(RecordingError::Version);
    }
    let exchange = |(at, text): (usize, &str)| {
        let wrong = |reason: String| RecordingError::Line { line: at + 1, reason };
        let line: Line = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let error = line.error.map(|failure| failure.read().map_err(wrong)).transpose()?;
        Ok(Exchange { request: line.request.get().to_owned(), events: line.events, error })
    };
    lines.map(exchange).collect()
}

impl Failure {
    fn read(self) -> Result<ModelError, String> {
        let known = CODES.into_iter().find(|code| ModelError::new(*code, "").code() == self.code);
        let code = known.ok_or_else(|| format!("{} is no code of a model's error", self.code))?;
        Ok(ModelError::new(code, self.message).retry_after(self.retry_after_ms.map(Duration::from_millis)))
    }
}

/// Where two canonical texts begin to differ.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// How many bytes are the same.
    pub(super) same: usize,
    /// Which part of the asked request that is.
    pub(super) place: String,
    pub(super) recorded: String,
    pub(super) asked: String,
}

/// How many characters of a text a difference shows, from a little before its place on.
const SHOWN: usize = 60;

impl Difference {
    /// Compares; absent if they are the same.
    pub(super) fn between(recorded: &str, asked: &str) -> Option<Self> {
        if recorded == asked {
            return None;
        }
        let same: usize = recorded.chars().zip(asked.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
        let shown = |text: &str| {
            let (before, after) = text.split_at(same);
            let from = before.char_indices().rev().nth(9).map_or(0, |(at, _)| at);
            before.get(from..).unwrap_or_default().chars().chain(after.chars()).take(SHOWN).collect()
        };
        Some(Self { same, place: place(asked, same), recorded: shown(recorded), asked: shown(asked) })
    }
}

/// Names the part of a JSON text in which a byte lies, as `messages[2].content[0].text`.
fn place(text: &str, byte: usize) -> String {
    enum Level {
        Array(usize),
        Object(String),
    }
    let mut levels: Vec<Level> = Vec::new();
    // What a string would be: a key stands after `{` or `,` of an object.
    let mut expects_key = false;
    let mut string: Option<String> = None;
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        if at >= byte {
            break;
        }
        if let Some(read) = &mut string {
            match c {
                '"' if !is_escaped => {
                    let read = string.take().unwrap_or_default();
                    if let (true, Some(Level::Object(key))) = (expects_key, levels.last_mut()) {
                        *key = read;
                    }
                    expects_key = false;
                }
                _ => {
                    is_escaped = c == '\\' && !is_escaped;
                    read.push(c);
                }
            }
            continue;
        }
        match c {
            '"' => string = Some(String::new()),
            '{' => levels.push(Level::Object(String::new())),
            '[' => levels.push(Level::Array(0)),
            '}' | ']' => drop(levels.pop()),
            ',' => {
                if let Some(Level::Array(index)) = levels.last_mut() {
                    *index += 1;
                }
            }
            _ => {}
        }
        if matches!(c, '{' | ',') {
            expects_key = matches!(levels.last(), Some(Level::Object(_)));
        }
    }
    let mut path = String::new();
    for level in levels {
        // Writing to a string cannot fail.
        let _: Result<(), std::fmt::Error> = match level {
            Level::Array(index) => write!(path, "[{index}]"),
            Level::Object(key) if path.is_empty() => write!(path, "{key}"),
            Level::Object(key) => write!(path, ".{key}"),
        };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Stop, Usage};

    #[test]
    fn what_is_written_is_read_back() {
        let end = ModelEvent::End { stop: Stop::Other("pause".into()), usage: Usage { input: 3, output: 2, reasoning: 1, ..Usage::default() } };
        let events = vec![
            ModelEvent::Reasoning { text: "hm\n".into(), signature: Some("sig".into()) },
            ModelEvent::Text("a\"b\u{2028}é".into()),
            ModelEvent::ToolCall { id: String::new(), name: "noon".into(), arguments: "{\"cut".into() },
            end,
        ];
        let mut exchanges = vec![Exchange { request: r#"{"a":1.50,"b":"\u00e9"}"#.into(), events, error: None }];
        for code in CODES {
            let error = Some(ModelError::new(code, "why").retry_after(Some(Duration::from_millis(1_500))));
            exchanges.push(Exchange { request: "{}".into(), events: Vec::new(), error });
        }
        let text = first_line() + &exchanges.iter().map(|exchange| exchange.line().unwrap()).collect::<String>();
        assert_eq!(text.lines().count(), 12);
        assert_eq!(parse(&text).unwrap(), exchanges);
    }

    #[test]
    fn what_is_no_recording_is_refused_with_its_line() {
        let second = |line: &str| format!("{}{line}\n", first_line());
        for (text, line) in [
            (String::new(), None),
            ("{\"greenroom_recording\":2}\n".into(), None),
            ("hello\n".into(), None),
            (second("{\"request\":{},\"events\":"), Some(2)),
            (second("{\"request\":{},\"events\":[],\"more\":1}"), Some(2)),
            (second("{\"request\":{},\"events\":[{\"song\":\"la\"}]}"), Some(2)),
            (second("{\"request\":{},\"events\":[]}\n{\"request\":{},\"events\":[],\"error\":{\"code\":\"OTHER\",\"message\":\"x\"}}"), Some(3)),
            (second(""), Some(2)),
        ] {
            let error = parse(&text).unwrap_err();
            assert_eq!(error.code(), "RECORDING_INVALID");
            let found = if let RecordingError::Line { line, .. } = error { Some(line) } else { None };
            assert_eq!(found, line, "{text}");
        }
    }

    #[test]
    fn a_difference_is_named_by_the_part_in_which_it_lies() {
        for (recorded, asked, same, place) in [
            (r#"{"system":"You are brief."}"#, r#"{"system":"You are brisk."}"#, 22, "system"),
            (r#"{"a":[1,{"b":"x,[{\""}],"c":[{"d":[0,1,2]}]}"#, r#"{"a":[1,{"b":"x,[{\""}],"c":[{"d":[0,1,3]}]}"#, 39, "c[0].d[2]"),
            (r#"{"a":1}"#, r#"{"a":1,"b":2}"#, 6, "a"),
            (r#"{"a":[{}]}"#, r#"{"a":[{},{}]}"#, 8, "a[0]"),
            (r#"{"é":"ö"}"#, r#"{"é":"ü"}"#, 7, "é"),
            ("", "{}", 0, ""),
        ] {
            let difference = Difference::between(recorded, asked).unwrap();
            assert_eq!((difference.same, difference.place.as_str()), (same, place), "{asked}");
        }
        assert_eq!(Difference::between("{}", "{}"), None);
    }
}
