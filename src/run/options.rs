//! What a run is asked for.

use std::{path::PathBuf, time::Duration};

use greenroom_session::id::SessionId;

use crate::store_url::StoreUrl;

/// What a run is asked for.
///
/// ```
/// use greenroom::run::{Prompt, RunOptions};
/// let mut options = RunOptions::new("sqlite:/srv/desk.db".parse()?, "/home/ann");
/// options.prompt = Prompt::Text("Cover the launch.".into());
/// options.sets.push(("who".into(), "Ann".into()));
/// assert!(options.root.is_none() && !options.heed_signals);
/// # Ok::<(), greenroom::store_url::StoreUrlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Where the sessions are kept.
    pub store: StoreUrl,
    /// The root to go on with; a new one if `None`.
    pub root: Option<SessionId>,
    /// What the root is given.
    pub prompt: Prompt,
    /// Values for the program's variables; the last of a name counts.
    pub sets: Vec<(String, String)>,
    /// The absolute folder that paths in `sets` are relative to.
    pub cwd: PathBuf,
    /// The seed of a deterministic run.
    pub seed: Option<u64>,
    /// How long the run may take.
    pub timeout: Option<Duration>,
    /// Whether SIGINT and SIGTERM end the run in good order. They are then taken from the whole process until it ends.
    pub heed_signals: bool,
}

/// What a root is given.
///
/// ```
/// use greenroom::run::Prompt;
/// assert_eq!(Prompt::default(), Prompt::FromProgram);
/// assert_ne!(Prompt::Text(String::new()), Prompt::Nothing); // an empty message is a message
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Prompt {
    /// The program's prompt, unless the root has had a message before.
    #[default]
    FromProgram,
    /// This text, as it is.
    Text(String),
    /// Nothing: the run only does what is pending.
    Nothing,
}

impl RunOptions {
    /// Asks for a new root with the program's own prompt and variables, without a seed, a timeout or signals.
    pub fn new(store: StoreUrl, cwd: impl Into<PathBuf>) -> Self {
        Self { store, root: None, prompt: Prompt::default(), sets: Vec::new(), cwd: cwd.into(), seed: None, timeout: None, heed_signals: false }
    }
}
