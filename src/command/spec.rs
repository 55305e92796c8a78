//! What to run, where, and within which bounds.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access};

use super::CommandError;

/// How much a command may write to its standard output when nothing else is said: 4 MiB.
pub const DEFAULT_MAX_STDOUT_BYTES: usize = 4 * 1024 * 1024;

/// What every command inherits; all else is named in `env_pass` or set in `env`.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

/// One command: a program with its arguments, its surroundings and its bounds.
///
/// ```
/// use std::time::Duration;
/// use greenroom::command::CommandSpec;
/// let mut spec = CommandSpec::new(["sh", "report.sh"], "/srv/reports", Duration::from_secs(30));
/// spec.env_pass.push("LC_ALL".into()); // besides PATH, HOME and LANG
/// spec.max_stdout_bytes = 64 * 1024;
/// assert_eq!(spec.argv, ["sh", "report.sh"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// The program and its arguments. A program with a slash is relative to `dir`; any other is
    /// looked for in the `PATH` that the command gets.
    pub argv: Vec<String>,
    /// The folder it runs in.
    pub dir: PathBuf,
    /// Variables set for the command. They win over inherited ones.
    pub env: BTreeMap<String, String>,
    /// Names of our variables that the command gets besides `PATH`, `HOME` and `LANG`. Those that
    /// are not set are left out.
    pub env_pass: Vec<String>,
    /// How long it may run. Waiting for the lock does not count.
    pub timeout: Duration,
    /// How much it may write to its standard output.
    pub max_stdout_bytes: usize,
}

impl CommandSpec {
    /// Makes a spec with an empty `env`, an empty `env_pass` and the default bound on output.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenroom::command::CommandSpec;
    /// use std::time::Duration;
    ///
    /// let spec = CommandSpec::new(["sh", "report.sh"], "/srv/reports", Duration::from_secs(30));
    /// assert_eq!(spec.max_stdout_bytes, 4 * 1024 * 1024);
    /// ```
    pub fn new<A: Into<String>>(argv: impl IntoIterator<Item = A>, dir: impl Into<PathBuf>, timeout: Duration) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            dir: dir.into(),
            env: BTreeMap::new(),
            env_pass: Vec::new(),
            timeout,
            max_stdout_bytes: DEFAULT_MAX_STDOUT_BYTES,
        }
    }

    /// Returns the whole environment of the command.
    pub(super) fn environment(&self) -> BTreeMap<OsString, OsString> {
        let inherited = INHERITED.into_iter().chain(self.env_pass.iter().map(String::as_str)).filter_map(|name| Some((name.into(), env::var_os(name)?)));
        let set = self.env.iter().map(|(name, value)| (name.into(), value.into()));
        inherited.chain(set).collect()
    }

    /// Finds the program file that `program` names, as an absolute path.
    ///
    /// The search is done here and not left to the system: it has to use the command's own `PATH`
    /// and folder, and its failure has to say which program is missing.
    pub(super) fn resolve(&self, program: &str, path: Option<&OsString>) -> Result<PathBuf, CommandError> {
        let missing = |reason: String| CommandError::Missing { program: program.to_owned(), reason };
        if program.is_empty() {
            return Err(missing("no program is named".to_owned()));
        }
        let dir = std::path::absolute(&self.dir).map_err(CommandError::io(format!("use the folder {}", self.dir.display())))?;
        if program.contains('/') {
            let file = dir.join(program);
            return match fault(&file) {
                None => Ok(file),
                Some(fault) => Err(missing(format!("{} {fault}", file.display()))),
            };
        }
        let mut near_miss = None;
        for folder in path.iter().flat_map(env::split_paths) {
            // An empty entry in PATH is the current folder: POSIX.1-2017, 8.3.
            let file = dir.join(folder).join(program);
            match fault(&file) {
                None => return Ok(file),
                Some(Fault::Absent) => {}
                Some(fault) => {
                    near_miss.get_or_insert_with(|| format!("{} {fault}", file.display()));
                }
            }
        }
        Err(missing(near_miss.unwrap_or_else(|| "it is not in PATH".to_owned())))
    }
}

/// Why a file cannot be executed.
#[derive(Clone, Copy)]
enum Fault {
    Absent,
    NotAFile,
    NotExecutable,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Absent => "does not exist",
            Self::NotAFile => "is not a file",
            Self::NotExecutable => "is not executable",
        })
    }
}

fn fault(file: &Path) -> Option<Fault> {
    match file.metadata() {
        Err(_) => Some(Fault::Absent),
        Ok(found) if !found.is_file() => Some(Fault::NotAFile),
        Ok(_) if access(file, Access::EXEC_OK).is_err() => Some(Fault::NotExecutable),
        Ok(_) => None,
    }
}
