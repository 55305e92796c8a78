//! The arguments of the tools.

use greenroom_session::id::SessionId;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::tool::{ToolError, no_id};

/// The longest wait, in seconds.
pub(super) const MOST_SECONDS: u64 = 600;
/// The most events of one page.
pub(super) const MOST_EVENTS: u64 = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Subagent {
    /// What the subagent is for, in 3 to 5 words. It becomes the durable label of the subagent.
    pub(super) description: String,
    /// The whole task. It is the first message of the subagent.
    pub(super) prompt: String,
    /// Whether to go on at once instead of waiting until the subagent is done.
    #[serde(default)]
    #[schemars(with = "bool")]
    pub(super) run_in_background: Option<bool>,
    /// Which agent the subagent is.
    #[serde(default)]
    #[schemars(with = "String")]
    pub(super) agent: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SendMessage {
    /// What the subagent is to do next.
    pub(super) message: String,
    /// The id of the subagent, as it was given when it was started or by a list.
    pub(super) subagent_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListAgents {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wait {
    /// The id of the subagent; all of them if it is left out.
    #[serde(default)]
    #[schemars(with = "String")]
    pub(super) subagent_id: Option<String>,
    /// How long to wait at most, in seconds.
    #[schemars(range(min = 0, max = MOST_SECONDS))]
    pub(super) timeout: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadLog {
    /// The id of the subagent, or of one that it has started.
    pub(super) subagent_id: String,
    /// The position to begin at; 0, the beginning, if it is left out.
    #[serde(default)]
    #[schemars(with = "u64")]
    pub(super) from: Option<u64>,
    /// How many events to read at most; 50 if it is left out. The fewer, the more is shown of long texts.
    #[serde(default)]
    #[schemars(with = "u64", range(min = 1, max = MOST_EVENTS))]
    pub(super) limit: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Interrupt {
    /// The id of the subagent, or of one that it has started.
    pub(super) subagent_id: String,
}

/// Reads an id that a client gives.
///
/// # Errors
/// That no subagent has it. `then` says what that means for what was asked.
pub(super) fn subagent(id: &str, then: &str) -> Result<SessionId, ToolError> {
    SessionId::new(id).map_err(|error| no_id(id, &error, then))
}
