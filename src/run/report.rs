//! How a run ended.

use greenroom_session::{event::TurnEnd, id::SessionId};
use serde::Serialize;

/// How a run ended. The numbers are read from the store and count this run alone, also where it went on with an earlier one.
///
/// ```
/// use std::path::Path;
/// use greenroom::{program::Program, run::{News, RunOptions, RunReport, run}};
/// # tokio_test::block_on(async {
/// let text = r#"
/// run = { root = "editor", prompt = "Begin." }
/// agents.editor = { behavior = "script", turns = [[{ fail = { code = "NO_PAPER", message = "out of paper" } }]] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let report: RunReport = run(&program, &RunOptions::new("memory:".parse()?, "/"), &|_: News<'_>| {}).await?;
/// assert_eq!((report.turns, report.failed, report.exit_code()), (1, 1, 1));
/// assert_eq!(report.outcome.as_ref().and_then(|end| end.error_code()), Some("NO_PAPER"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunReport {
    /// The root.
    pub root: SessionId,
    /// What the root said last, if it has ever said anything.
    pub answer: Option<String>,
    /// Turns begun, repeated ones included.
    pub turns: u64,
    /// Messages accepted: prompts, follow-ups, reports and notices.
    pub messages: u64,
    /// Sessions created below the root.
    pub children: u64,
    /// Sessions whose last turn was one of these and failed.
    pub failed: u64,
    /// How long the run took, in milliseconds.
    pub wall_ms: u64,
    /// The URL of the store.
    pub store: String,
    /// How the turn of the root's last message ended; a failure is not made good by later turns that only took notes. `None` if it has had no turn.
    #[serde(skip)]
    pub outcome: Option<TurnEnd>,
    /// Sessions that have work and cannot run.
    #[serde(skip)]
    pub stuck: Vec<Stuck>,
}

/// A session that has work and cannot run.
///
/// ```
/// use greenroom::{SessionId, run::Stuck};
/// let stuck = Stuck { session: SessionId::new("r1")?, code: "AGENT_UNKNOWN", reason: "played by \"oracle\"".into() };
/// assert_eq!(format!("{}: {} ({})", stuck.session, stuck.reason, stuck.code), "r1: played by \"oracle\" (AGENT_UNKNOWN)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// The session.
    pub session: SessionId,
    /// Stable code of what keeps it.
    pub code: &'static str,
    /// What keeps it.
    pub reason: String,
}

impl RunReport {
    /// Returns the exit code of the command line: 0 if that turn completed and nothing is stuck, else 1.
    pub fn exit_code(&self) -> u8 {
        u8::from(self.outcome != Some(TurnEnd::Completed) || !self.stuck.is_empty())
    }
}
