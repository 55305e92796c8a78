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
mod label;
mod reports;
mod request;
mod script;
#[cfg(test)]
mod tests;
mod voice;

pub use cast::{CastError, cast};
pub use command::CommandAgent;
pub use guards::Guards;
pub use label::label_of;
pub use script::ScriptAgent;

use std::path::PathBuf;

use crate::program::Bindings;

/// What the agents of one program share while it runs.
#[derive(Debug)]
pub struct Stage {
    /// The program's variables.
    pub bindings: Bindings,
    /// The program file's folder, absolute: commands run there and globs start there.
    pub base_dir: PathBuf,
    /// Where the locks of commands are.
    pub guards: Guards,
}
