//! What a model answers, piece by piece.

use serde::{Deserialize, Serialize};

/// A piece of an answer.
///
/// ```
/// use greenroom::model::{ModelEvent, Stop, Usage};
/// let events = [ModelEvent::Text("Good ".into()), ModelEvent::Text("morning.".into()), ModelEvent::End { stop: Stop::End, usage: Usage::default() }];
/// assert!(matches!(events.last(), Some(ModelEvent::End { .. })));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelEvent {
    /// A little more text.
    Text(String),
    /// A little more reasoning.
    Reasoning {
        /// The text; may be empty.
        text: String,
        /// What the provider wants to see again with what it has reasoned since the last signature. Comes with its last piece.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        signature: Option<String>,
    },
    /// A whole tool call.
    ToolCall {
        /// The model's own id of it; may be empty, and may be that of another call in another answer.
        id: String,
        /// The tool.
        name: String,
        /// Raw JSON text of the arguments, as the model wrote it; may be empty, and may be no JSON.
        arguments: String,
    },
    /// The answer is whole.
    End {
        /// Why it ended.
        stop: Stop,
        /// What it cost.
        usage: Usage,
    },
}

/// Why an answer ended.
///
/// ```
/// use greenroom::model::Stop;
/// assert_eq!((Stop::MaxTokens.as_str(), Stop::Other("pause_turn".into()).as_str()), ("max_tokens", "pause_turn"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model had nothing more to say.
    End,
    /// It asks for tools.
    ToolUse,
    /// It ran out of output tokens.
    MaxTokens,
    /// It, or its provider, declined to answer.
    Refusal,
    /// Something else, in the provider's own word.
    Other(String),
}

impl Stop {
    /// Returns the word that stands in the log.
    pub fn as_str(&self) -> &str {
        match self {
            Self::End => "end",
            Self::ToolUse => "tool_use",
            Self::MaxTokens => greenroom_session::fold::MAX_TOKENS,
            Self::Refusal => "refusal",
            Self::Other(word) => word,
        }
    }
}

/// What an answer cost, in tokens as the model's provider counts them; 0 where it does not say.
///
/// ```
/// use greenroom::model::Usage;
/// let mut usage = Usage { input: 1_000, output: 20, cached_input: 800, ..Usage::default() };
/// usage.add(&Usage { input: 30, output: 5, ..Usage::default() });
/// assert_eq!((usage.input, usage.output, usage.cached_input), (1_030, 25, 800));
/// assert_eq!(serde_json::to_string(&Usage { input: 7, ..Usage::default() })?, r#"{"input":7,"output":0}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Taken in, all of it.
    pub input: u64,
    /// Said, thought and asked for, all of it.
    pub output: u64,
    /// Of `input`: read from the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cached_input: u64,
    /// Of `input`: written to the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    /// Of `output`: thought.
    #[serde(skip_serializing_if = "is_zero")]
    pub reasoning: u64,
}

impl Usage {
    /// Adds what another answer cost.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.input, other.input),
            (&mut self.output, other.output),
            (&mut self.cached_input, other.cached_input),
            (&mut self.cache_write, other.cache_write),
            (&mut self.reasoning, other.reasoning),
        ] {
            *mine = mine.saturating_add(theirs);
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "made for serde")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
