//! The behaviours that program files name.
//!
//! - [`ScriptAgent`]: plays a list of steps per message.
//! - [`CommandAgent`]: runs a program per turn.
//!
//! Both are made from what a program file says and a [`Stage`], which they share. Both are safe to repeat: what decides their effects is in the log
//! before the effects are, so that a turn which runs again after a crash does nothing twice.

mod cast;
mod command;
mod guards;
mod reports;
mod request;
mod script;
#[cfg(test)]
mod tests;
mod voice;

pub use cast::{CastError, cast};
pub use command::CommandAgent;
pub use guards::Guards;
pub use script::ScriptAgent;

use std::path::PathBuf;

use crate::program::Bindings;

/// What the agents of one program share while it runs.
///
/// ```
/// use std::path::Path;
/// use greenroom::{agent::{Guards, Stage}, program::Program};
/// let text = r#"
/// run = { root = "editor" }
/// vars = { who = "Ann" }
/// agents.editor = { behavior = "script", turns = [[{ say = "hello {who}" }]] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let bindings = program.bind(&[("who".into(), "Ben".into())], Path::new("/"))?;
/// let stage = Stage { bindings, base_dir: program.base_dir.clone(), guards: Guards::temporary() };
/// assert_eq!(stage.bindings.get("who"), Some("Ben"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Stage {
    /// The program's variables.
    pub bindings: Bindings,
    /// The program file's folder, absolute: commands run there and globs start there.
    pub base_dir: PathBuf,
    /// Where the locks of commands are.
    pub guards: Guards,
}
