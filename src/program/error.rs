//! What is wrong with a program file, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A place in a text. Both numbers count from 1; columns count Unicode scalars, and a byte order
/// mark is not one.
///
/// ```
/// use greenroom::program::Position;
/// let (early, late) = (Position { line: 2, column: 9 }, Position { line: 3, column: 1 });
/// assert!(early < late);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// One mistake in a program file. It displays as `file:line:column: message`.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::{Mistake, Position, Program};
/// let text = r#"run = { root = "editr" }
/// agents.editor = { behavior = "script", turns = [] }
/// "#;
/// let error = Program::parse(text, "story.toml", Path::new("/stories")).unwrap_err();
/// let mistake: &Mistake = &error.mistakes()[0];
/// assert_eq!(mistake.position, Position { line: 1, column: 16 });
/// assert!(mistake.to_string().starts_with("story.toml:1:16: expected "));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file as the user named it.
    pub file: String,
    /// Where the mistake begins.
    pub position: Position,
    /// What was expected and what was found.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.position;
        write!(f, "{}:{line}:{column}: {}", self.file, self.message)
    }
}

/// Why a program file cannot be run.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::Program;
/// let error = Program::load(Path::new("/nowhere/story.toml")).unwrap_err();
/// assert_eq!(error.code(), "PROGRAM_INVALID");
/// assert!(error.mistakes().is_empty()); // the file cannot be read at all
///
/// let error = Program::parse("run = 1\nagents = 2", "story.toml", Path::new("/stories")).unwrap_err();
/// assert_eq!(error.mistakes().len(), 2); // all of them, in order
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProgramErrors {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        /// The file as the user named it.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file has mistakes: at least one, in the order of their positions. A file that is not
    /// TOML at all has only its syntax mistakes here, because nothing else in it can be trusted.
    #[error("{}", Lines(mistakes))]
    Invalid {
        /// Every mistake.
        mistakes: Vec<Mistake>,
    },
}

impl ProgramErrors {
    /// Returns the stable code for adapters and the command line.
    pub fn code(&self) -> &'static str {
        "PROGRAM_INVALID"
    }

    /// Returns the mistakes with a position; none for a file that cannot be read.
    pub fn mistakes(&self) -> &[Mistake] {
        match self {
            Self::Unreadable { .. } => &[],
            Self::Invalid { mistakes } => mistakes,
        }
    }
}

/// Writes one mistake per line.
struct Lines<'a>(&'a [Mistake]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{mistake}")?;
        }
        Ok(())
    }
}
