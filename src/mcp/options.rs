//! What a server is to serve.

use std::path::PathBuf;

use greenroom_session::id::SessionId;

use crate::{program::Program, store_url::StoreUrl};

/// What a server is to serve.
///
/// ```
/// use greenroom::mcp::Options;
/// let options = Options::new("memory:".parse()?, "my-project".parse()?, "/desk");
/// assert!(options.program.is_none()); // it has no agents then, and serves what is there
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// The store.
    pub store: StoreUrl,
    /// The id of the root whose subagents they are. Created on first use.
    pub root: SessionId,
    /// Whose agents play the subagents.
    pub program: Option<Program>,
    /// Other values for the program's variables.
    pub sets: Vec<(String, String)>,
    /// The absolute folder that paths among those are relative to.
    pub cwd: PathBuf,
    /// Whether SIGINT, SIGTERM and SIGHUP end it in order.
    pub heed_signals: bool,
}

impl Options {
    /// Serves a root, without a program.
    pub fn new(store: StoreUrl, root: SessionId, cwd: impl Into<PathBuf>) -> Self {
        Self { store, root, program: None, sets: Vec::new(), cwd: cwd.into(), heed_signals: false }
    }

    /// Has the agents of a program play the subagents.
    #[must_use]
    pub fn program(mut self, program: Program) -> Self {
        self.program = Some(program);
        self
    }
}
