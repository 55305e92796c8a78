//! What a command says back.
//!
//! An answer is text or one JSON object. Reading it is strict: a misspelt key is an error and not
//! a silently ignored wish. Whether an agent or a recipient exists is not known here.

use greenroom_session::text::{Escaped, EscapedLines};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::CommandError;

/// How the standard output of a command is read.
///
/// ```
/// use greenroom::command::{Answer, AnswerMode};
/// let said = |mode| Answer::parse(br#"{"say": "hello"}"#, mode).map(|answer| answer.say);
/// assert_eq!(said(AnswerMode::Json)?.as_deref(), Some("hello"));
/// assert_eq!(said(AnswerMode::Text)?.as_deref(), Some(r#"{"say": "hello"}"#));
/// # Ok::<(), greenroom::command::CommandError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnswerMode {
    /// All of it is what the agent says and reports.
    Text,
    /// It is one JSON object.
    #[default]
    Json,
}

/// What a command wants done with its turn.
///
/// ```
/// use greenroom::command::{Answer, AnswerMode};
/// let answer = Answer::parse(br#"{"memo": "3 files read", "report": "all is well"}"#, AnswerMode::Json)?;
/// assert_eq!(answer.memo.as_deref(), Some("3 files read"));
/// assert_eq!(answer.report.as_deref(), Some("all is well"));
/// assert!(answer.say.is_none() && answer.delegate.is_empty());
/// # Ok::<(), greenroom::command::CommandError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Answer {
    /// What the agent says.
    pub say: Option<String>,
    /// A note for the log only.
    pub memo: Option<String>,
    /// What a child reports to its parent.
    pub report: Option<String>,
    /// The children to start, in this order.
    #[serde(default)]
    pub delegate: Vec<Delegate>,
    /// The messages to send, in this order.
    #[serde(default)]
    pub send: Vec<Outgoing>,
    /// Whether the turn completed; it did when nothing is said.
    pub end: Option<End>,
}

/// A child to start.
///
/// ```
/// use greenroom::command::{Answer, AnswerMode, Delegate};
/// let text = br#"{"delegate": [{"agent": "reporter", "as": "r1", "description": "collect facts", "prompt": "Where are we?"}]}"#;
/// let delegates: Vec<Delegate> = Answer::parse(text, AnswerMode::Json)?.delegate;
/// assert_eq!((delegates[0].agent.as_str(), delegates[0].alias.as_deref()), ("reporter", Some("r1")));
/// # Ok::<(), greenroom::command::CommandError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Delegate {
    /// Which agent of the program.
    pub agent: String,
    /// The name by which the parent will call this child.
    #[serde(rename = "as")]
    pub alias: Option<String>,
    /// What the child is for, in a few words.
    pub description: String,
    /// Its first message.
    pub prompt: String,
    /// How its history begins.
    pub provider: Option<String>,
    /// Values for the child.
    #[serde(default)]
    pub params: Map<String, Value>,
}

/// A message to send.
///
/// ```
/// use greenroom::command::{Answer, AnswerMode, Outgoing};
/// let sent: Vec<Outgoing> = Answer::parse(br#"{"send": [{"to": "r1", "message": "And then?"}]}"#, AnswerMode::Json)?.send;
/// assert_eq!((sent[0].to.as_str(), sent[0].message.as_str()), ("r1", "And then?"));
/// # Ok::<(), greenroom::command::CommandError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Outgoing {
    /// An alias or an id.
    pub to: String,
    /// The text.
    pub message: String,
}

/// How a command says its turn ended.
///
/// ```
/// use greenroom::command::{Answer, AnswerMode, End};
/// let answer = Answer::parse(br#"{"say": "no paper", "end": "failed"}"#, AnswerMode::Json)?;
/// assert_eq!(answer.end, Some(End::Failed));
/// # Ok::<(), greenroom::command::CommandError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The turn did what it was for.
    Completed,
    /// It did not, though the command itself ran well.
    Failed,
}

impl Answer {
    /// Reads an answer.
    ///
    /// # Errors
    ///
    /// `NotUtf8` with the offset of the first bad byte; `BadAnswer` with line and column if the
    /// JSON is malformed, is not one object, or has a key that is not known.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenroom::command::{Answer, AnswerMode};
    ///
    /// let answer = Answer::parse(b"{\"say\": \"hello\"}\n", AnswerMode::Json)?;
    /// assert_eq!(answer.say.as_deref(), Some("hello"));
    ///
    /// let answer = Answer::parse(b"hello\n", AnswerMode::Text)?;
    /// assert_eq!(answer.report.as_deref(), Some("hello"));
    /// # Ok::<(), greenroom::command::CommandError>(())
    /// ```
    pub fn parse(stdout: &[u8], mode: AnswerMode) -> Result<Self, CommandError> {
        let text = std::str::from_utf8(stdout).map_err(|error| CommandError::NotUtf8 { offset: error.valid_up_to() })?;
        match mode {
            AnswerMode::Text => {
                let text = text.trim_end_matches(['\n', '\r']).to_owned();
                Ok(Self { say: Some(text.clone()), report: Some(text), ..Self::default() })
            }
            AnswerMode::Json => parse_object(text),
        }
    }
}

fn parse_object(text: &str) -> Result<Answer, CommandError> {
    let bad = |reason: String| CommandError::BadAnswer { reason };
    // Looked at here, because a derived struct may also be read from an array.
    match text.trim_start().chars().next() {
        Some('{') => {}
        None => return Err(bad("expected a JSON object, found nothing".to_owned())),
        Some(other) => {
            let before = text.len() - text.trim_start().len();
            let before = text.get(..before).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            let found = Escaped(other.encode_utf8(&mut [0; 4])).to_string();
            return Err(bad(format!("expected a JSON object, found `{found}` at line {line} column {column}")));
        }
    }
    // The message may quote the text.
    serde_json::from_str(text).map_err(|error| bad(EscapedLines(&error.to_string()).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(text: &str) -> String {
        let error = Answer::parse(text.as_bytes(), AnswerMode::Json).unwrap_err();
        assert_eq!(error.code(), "COMMAND_OUTPUT");
        error.to_string()
    }

    #[test]
    fn every_key_is_read() {
        let text = r#"{
            "say": "s", "memo": "m", "report": "r", "end": "failed",
            "delegate": [
                {"agent": "a", "as": "x", "description": "d", "prompt": "p",
                 "provider": "fork", "params": {"n": 1}},
                {"agent": "b", "description": "d", "prompt": "p"}
            ],
            "send": [{"to": "x", "message": "hi"}]
        }"#;
        let delegate = |agent: &str| Delegate {
            agent: agent.to_owned(),
            alias: None,
            description: "d".to_owned(),
            prompt: "p".to_owned(),
            provider: None,
            params: Map::new(),
        };
        let expected = Answer {
            say: Some("s".to_owned()),
            memo: Some("m".to_owned()),
            report: Some("r".to_owned()),
            delegate: vec![
                Delegate {
                    alias: Some("x".to_owned()),
                    provider: Some("fork".to_owned()),
                    params: Map::from_iter([("n".to_owned(), Value::from(1))]),
                    ..delegate("a")
                },
                delegate("b"),
            ],
            send: vec![Outgoing { to: "x".to_owned(), message: "hi".to_owned() }],
            end: Some(End::Failed),
        };
        assert_eq!(Answer::parse(text.as_bytes(), AnswerMode::Json).unwrap(), expected);
        assert_eq!(Answer::parse(b" {} \n", AnswerMode::Json).unwrap(), Answer::default());
    }

    #[test]
    fn text_loses_only_its_trailing_newlines() {
        let answer = Answer::parse(b"\n one\n two \r\n\n", AnswerMode::Text).unwrap();
        let text = Some("\n one\n two ".to_owned());
        assert_eq!((answer.say, answer.report), (text.clone(), text));
        let empty = Answer::parse(b"", AnswerMode::Text).unwrap();
        assert_eq!(empty.say.as_deref(), Some(""));
    }

    #[test]
    fn bytes_that_are_no_text_are_placed() {
        for mode in [AnswerMode::Text, AnswerMode::Json] {
            let error = Answer::parse(b"{\"say\": \"\xff\"}", mode).unwrap_err();
            assert_eq!(error.code(), "COMMAND_OUTPUT");
            assert!(matches!(error, CommandError::NotUtf8 { offset: 9 }), "{error}");
        }
    }

    #[test]
    fn a_bad_answer_says_what_and_where() {
        let cases = [
            ("", "expected a JSON object, found nothing"),
            (" \n", "expected a JSON object, found nothing"),
            ("\n  hello", "expected a JSON object, found `h` at line 2 column 3"),
            ("[\"say\"]", "expected a JSON object, found `[` at line 1 column 1"),
            ("\u{1b}[0m{}", "expected a JSON object, found `\\u{1b}` at line 1 column 1"),
            ("{\"say\": 1}", "invalid type: integer `1`, expected a string at line 1 column 9"),
            ("{} {}", "trailing characters at line 1 column 4"),
            ("{\n\"say\"", "EOF while parsing an object at line 2 column 5"),
        ];
        for (text, expected) in cases {
            assert_eq!(reason(text), format!("the answer is not valid: {expected}"));
        }
        assert!(reason("{\"delegates\": []}").contains("unknown field `delegates`"));
        assert!(reason("{\"end\": \"done\"}").contains("unknown variant `done`"));
        assert!(reason("{\"send\": [{\"to\": \"x\"}]}").contains("missing field `message`"));
        assert!(!reason("{\"\\u001b[2J\": 1}").contains('\u{1b}'));
    }
}
