//! A program file, read and checked.

use std::collections::BTreeMap;
use std::fs;
use std::path::{self, Path, PathBuf};

use super::agent::AgentSpec;
use super::error::ProgramErrors;
use super::parse;
use super::template::Template;

/// A program without mistakes.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::Program;
/// let text = r#"
/// run = { root = "editor" }
/// agents.editor = { behavior = "script", turns = [[{ say = "hello" }]] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// assert_eq!(program.base_dir, Path::new("/stories"));
/// assert!(program.agents.contains_key(&program.run.root));
/// # Ok::<(), greenroom::program::ProgramErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The file as the user named it, for messages.
    pub file_name: String,
    /// The file's folder: commands run there, and relative globs start there.
    pub base_dir: PathBuf,
    /// The SHA-256 of the file's bytes in lower-case hexadecimal.
    pub sha256: String,
    /// How the root is opened.
    pub run: Run,
    /// What `--set` may change.
    pub vars: BTreeMap<String, Var>,
    /// The agents by name; holds the root's.
    pub agents: BTreeMap<String, AgentSpec>,
}

/// The `[run]` table.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::{Program, Run};
/// let text = r#"
/// run = { root = "editor", prompt = "Begin.", max_live = 4 }
/// agents.editor = { behavior = "script", turns = [] }
/// "#;
/// let run: Run = Program::parse(text, "story.toml", Path::new("/stories"))?.run;
/// assert_eq!((run.root.as_str(), run.max_live, run.max_depth), ("editor", 4, 3));
/// assert_eq!(run.prompt.expect("there is one").source(), "Begin.");
/// # Ok::<(), greenroom::program::ProgramErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Which agent plays the root.
    pub root: String,
    /// The root's label; `None` leaves it to be made from the prompt.
    pub label: Option<Template>,
    /// The root's first message.
    pub prompt: Option<Template>,
    /// How many turns may run at once; 1 to 1,000,000, 64 unless given.
    pub max_live: usize,
    /// How deep delegation may go below the root; 0 to 1,000 (0 forbids it), 3 unless given.
    pub max_depth: u32,
    /// How many messages may wait for a session, when not the store's own limit; 1 to 1,000,000.
    pub inbox_limit: Option<usize>,
}

/// One entry of `[vars]`.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::{Program, Var};
/// let text = r#"
/// run = { root = "editor" }
/// vars = { copies = 3, inbox = { path = "in" } }
/// agents.editor = { behavior = "script", turns = [] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// assert_eq!(program.vars["copies"], Var::Text("3".into()));
/// assert_eq!(program.vars["inbox"], Var::Path("/stories/in".into()));
/// # Ok::<(), greenroom::program::ProgramErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Var {
    /// A text; integers and booleans become their text.
    Text(String),
    /// A path, absolute and without `.` and `..`.
    Path(PathBuf),
}

impl Program {
    /// Reads and checks a program file. It blocks on the file system, and asks for the current
    /// folder only to make a relative path absolute.
    ///
    /// # Errors
    /// [`ProgramErrors::Unreadable`] if the file cannot be read, else [`ProgramErrors::Invalid`] with every mistake in it.
    pub fn load(path: &Path) -> Result<Self, ProgramErrors> {
        let unreadable = |source| ProgramErrors::Unreadable { path: path.to_owned(), source };
        let bytes = fs::read(path).map_err(unreadable)?;
        let absolute = path::absolute(path).map_err(unreadable)?;
        let base_dir = absolute.parent().unwrap_or(&absolute);
        parse::program(&bytes, &path.display().to_string(), base_dir)
    }

    /// Checks the text of a program. `file_name` only stands in messages; `base_dir` is the
    /// absolute folder that the program's paths are relative to.
    ///
    /// # Errors
    /// [`ProgramErrors::Invalid`] with every mistake in the text.
    pub fn parse(text: &str, file_name: &str, base_dir: &Path) -> Result<Self, ProgramErrors> {
        parse::program(text.as_bytes(), file_name, base_dir)
    }
}
