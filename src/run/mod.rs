//! Running a program: the engine behind `greenroom run`.
//!
//! [`run`] opens a root, new or known, gives it its prompt, and plays until nothing in the tree has anything to do. It prints nothing: an
//! [`Observer`] is told what happens, and a [`RunReport`] says how it ended.
//!
//! ```
//! use std::path::Path;
//! use greenroom::{program::Program, run::{News, RunOptions, run}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = r#"
//! run = { root = "editor", prompt = "Begin." }
//! agents.editor = { behavior = "script", turns = [[{ say = "hello" }]] }
//! "#;
//! let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
//! let report = run(&program, &RunOptions::new("memory:".parse()?, "/"), &|_: News<'_>| {}).await?;
//! assert_eq!(report.answer.as_deref(), Some("hello"));
//! assert_eq!((report.turns, report.exit_code()), (1, 0));
//! # Ok(())
//! # }
//! ```

mod engine;
mod error;
mod news;
mod options;
mod report;
mod tally;
#[cfg(test)]
mod tests;

pub use engine::{run, run_over};
pub use error::RunError;
pub use news::{News, Observer, Progress};
pub use options::{Prompt, RunOptions};
pub use report::{RunReport, Stuck};
