//! What an agent of the protocol plays.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use greenroom_session::clock::{IdSource, RandomIds};

/// What an agent of the protocol plays.
///
/// ```
/// use greenroom::acp::Options;
/// let mut options = Options::new("editor");
/// options.label = Some("launch story".into());
/// assert_eq!(options.agent, "editor");
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// The registered behaviour that plays the root of every new session.
    pub agent: String,
    /// The label of every new session; made of the agent's name and the client's folder if `None`.
    pub label: Option<String>,
    /// Hash of the program file, in hex: what was left to do by roots of this program, this agent and this hash goes on at the start.
    pub program_sha256: Option<String>,
    /// The program's variables. A root that was opened with another value of one of them is refused.
    pub vars: BTreeMap<String, String>,
    /// The folder that sessions are shown in that were not opened by a client. Absolute.
    pub cwd: PathBuf,
    /// Where the ids of prompts come from.
    pub ids: Arc<dyn IdSource>,
}

impl Options {
    /// Plays the roots of new sessions by `agent`, without a program.
    pub fn new(agent: impl Into<String>) -> Self {
        Self { agent: agent.into(), label: None, program_sha256: None, vars: BTreeMap::new(), cwd: PathBuf::from("/"), ids: Arc::new(RandomIds) }
    }
}
