//! What is wrong with a program file, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A place in a text. Both numbers count from 1; columns count Unicode scalars, and a byte order
/// mark is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// One mistake in a program file. It displays as `file:line:column: message`.
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
