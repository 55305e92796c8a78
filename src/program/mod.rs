//! Program files: what `run` plays, as plain data.
//!
//! A program file is TOML. It names a root, variables and agents; an agent is a script, a
//! command or a model. This part reads the text, finds *every* mistake in it with its line and
//! column, and gives back a [`Program`] that knows nothing of TOML any more. It runs nothing,
//! prints nothing and never reads the environment.
//!
//! ```
//! use std::path::Path;
//! use greenroom::program::{AgentSpec, Program, Step};
//!
//! let text = r#"
//! [run]
//! root = "editor"
//!
//! [agents.editor]
//! behavior = "script"
//! turns = [[{ say = "hello" }]]
//! "#;
//! let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
//! let Some(AgentSpec::Script(editor)) = program.agents.get("editor") else { panic!("a script") };
//! assert!(matches!(&editor.turns[0][0], Step::Say(text) if text.source() == "hello"));
//! # Ok::<(), greenroom::program::ProgramErrors>(())
//! ```

mod agent;
mod bindings;
mod duration;
mod error;
mod file;
mod files;
mod globs;
mod parse;
mod step;
mod template;
mod value;

pub use agent::{AgentSpec, AnswerFormat, CommandAgent, ModelAgent, ScriptAgent, Tool};
pub use bindings::{BindError, Bindings};
pub use duration::{DurationError, parse_duration};
pub use error::{Mistake, Position, ProgramErrors};
pub use file::{Program, Run, Var};
pub use files::{FileSet, FilesError, Listing, list_files};
pub use step::{Delegate, Provider, Step};
pub use template::{Segment, Template};
pub use value::ValueTemplate;
