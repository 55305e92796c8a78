//! The values of a program's variables for one run.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use thiserror::Error;

use super::file::{Program, Var};
use super::files::escape_glob;

/// Every variable of a program with its value.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::{Bindings, Program};
/// let text = r#"
/// run = { root = "editor" }
/// vars = { who = "Ann", inbox = { path = "in" } }
/// agents.editor = { behavior = "script", turns = [] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let bindings: Bindings = program.bind(&[("inbox".into(), "new[1]".into())], Path::new("/home/ann"))?;
/// assert_eq!(bindings.get("who"), Some("Ann"));
/// assert_eq!(bindings.get("inbox"), Some("/home/ann/new[1]"));
/// assert_ne!(bindings.glob_value("inbox").as_deref(), bindings.get("inbox")); // its brackets are escaped
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    /// The values by name.
    pub values: BTreeMap<String, String>,
    /// The names whose values are absolute paths.
    pub paths: BTreeSet<String>,
}

/// Why the values of the variables are refused.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::{BindError, Program};
/// let text = r#"
/// run = { root = "editor" }
/// agents.editor = { behavior = "script", turns = [] }
/// "#;
/// let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let error = program.bind(&[("who".into(), "Ben".into())], Path::new("/")).unwrap_err();
/// assert!(matches!(&error, BindError::UnknownName { name, .. } if name == "who"));
/// assert_eq!(error.code(), "PROGRAM_INVALID");
/// # Ok::<(), greenroom::program::ProgramErrors>(())
/// ```
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindError {
    /// The program has no such variable.
    #[error("unknown variable `{name}`; {}", known_names(known))]
    UnknownName {
        /// The name that was set.
        name: String,
        /// The names of the program, in order.
        known: Vec<String>,
    },
    /// The path of a variable is empty.
    #[error("the variable `{name}` is a path and cannot be empty")]
    EmptyPath {
        /// The variable.
        name: String,
    },
    /// The path of a variable is not UTF-8, so that no template could hold it.
    #[error("the path of the variable `{name}` is not UTF-8: {}", path.display())]
    NotUtf8 {
        /// The variable.
        name: String,
        /// Its path.
        path: PathBuf,
    },
    /// With the values filled in, a glob of a `for_each` is none.
    #[error("the variables make no glob of {template:?}: {reason}")]
    BadGlob {
        /// The glob as the program has it.
        template: String,
        /// What is wrong with it.
        reason: String,
    },
    /// With the values filled in, a text leads a `for_each` out of the program's folder.
    #[error("the variables make {filled:?} of {template:?}: a text must not lead out of the folder; use a variable {{ path = \"..\" }} for that")]
    LeadsOut {
        /// The glob or the folder as the program has it.
        template: String,
        /// What the values make of it.
        filled: String,
    },
}

impl BindError {
    /// Returns the stable code for adapters and the command line.
    pub fn code(&self) -> &'static str {
        "PROGRAM_INVALID"
    }
}

impl Program {
    /// Gives every variable its value: the last `--set` of its name, else the program's. A path
    /// that is set is relative to `cwd`, which must be absolute.
    ///
    /// # Errors
    /// [`BindError::UnknownName`] or [`BindError::EmptyPath`] for a value that is set wrongly, [`BindError::NotUtf8`] for a path that no template
    /// could hold.
    pub fn bind(&self, sets: &[(String, String)], cwd: &Path) -> Result<Bindings, BindError> {
        let mut vars: BTreeMap<&str, Cow<'_, Var>> = self.vars.iter().map(|(name, var)| (name.as_str(), Cow::Borrowed(var))).collect();
        for (name, value) in sets {
            let Some(var) = vars.get_mut(name.as_str()) else {
                return Err(BindError::UnknownName { name: name.clone(), known: self.vars.keys().cloned().collect() });
            };
            let set = match var.as_ref() {
                Var::Text(_) => Var::Text(value.clone()),
                Var::Path(_) if value.is_empty() => {
                    return Err(BindError::EmptyPath { name: name.clone() });
                }
                Var::Path(_) => Var::Path(absolute_path(cwd, Path::new(value))),
            };
            *var = Cow::Owned(set);
        }
        let mut bindings = Bindings::default();
        for (name, var) in vars {
            let text = match var.as_ref() {
                Var::Text(text) => text.clone(),
                Var::Path(path) => {
                    let Some(text) = path.to_str() else {
                        return Err(BindError::NotUtf8 { name: name.to_owned(), path: path.clone() });
                    };
                    bindings.paths.insert(name.to_owned());
                    text.to_owned()
                }
            };
            bindings.values.insert(name.to_owned(), text);
        }
        Ok(bindings)
    }
}

impl Bindings {
    /// Returns a variable's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Returns a variable's value for use inside a glob: a path stands for itself there, so its
    /// `*`, `?`, brackets and braces are escaped; a text may be a glob of its own.
    pub fn glob_value(&self, name: &str) -> Option<Cow<'_, str>> {
        let value = self.get(name)?;
        Some(if self.paths.contains(name) { Cow::Owned(escape_glob(value)) } else { Cow::Borrowed(value) })
    }
}

/// Joins a path to an absolute folder and takes out `.` and `..` by the names alone. Globs
/// refuse `..`, so that only a path variable can lead out of a folder; that needs the dots gone
/// here. The file system is not asked: the path need not exist yet.
pub(super) fn absolute_path(base: &Path, path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in base.join(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    clean
}

fn known_names(known: &[String]) -> String {
    if known.is_empty() {
        return "the program has no [vars]".to_owned();
    }
    format!("the program's variables are `{}`", known.join("`, `"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Program {
        let text = r#"
            run = { root = "a" }
            vars = { city = "Lyon", n = 3, on = true, dir = { path = "../in/./x" } }
            agents = { a = { behavior = "script", turns = [] } }
        "#;
        Program::parse(text, "p.toml", Path::new("/base/here")).expect("valid")
    }

    fn bind(sets: &[(&str, &str)]) -> Result<Bindings, BindError> {
        let sets: Vec<_> = sets.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        program().bind(&sets, Path::new("/cwd/deep"))
    }

    #[test]
    fn the_programs_own_values_are_texts_and_absolute_paths() {
        let bindings = bind(&[]).expect("bound");
        assert_eq!(bindings.get("city"), Some("Lyon"));
        assert_eq!(bindings.get("n"), Some("3"));
        assert_eq!(bindings.get("on"), Some("true"));
        assert_eq!(bindings.get("dir"), Some("/base/in/x"));
        assert_eq!(bindings.paths, BTreeSet::from(["dir".to_owned()]));
    }

    #[test]
    fn a_set_path_is_relative_to_the_current_folder_and_the_last_set_wins() {
        let bindings = bind(&[("city", "Nice"), ("dir", "../y"), ("city", "Brest")]);
        let bindings = bindings.expect("bound");
        assert_eq!(bindings.get("city"), Some("Brest"));
        assert_eq!(bindings.get("dir"), Some("/cwd/y"));
        assert_eq!(bind(&[("dir", "/abs")]).expect("bound").get("dir"), Some("/abs"));
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        let error = bind(&[("town", "x")]).expect_err("unknown");
        assert_eq!(error.to_string(), "unknown variable `town`; the program's variables are `city`, `dir`, `n`, `on`");
        assert_eq!(error.code(), "PROGRAM_INVALID");
        let error = bind(&[("dir", "")]).expect_err("empty");
        assert_eq!(error, BindError::EmptyPath { name: "dir".into() });
    }

    #[test]
    fn only_a_path_is_escaped_in_a_glob() {
        let bindings = bind(&[("dir", "/a[1]*"), ("city", "*.txt")]).expect("bound");
        assert_eq!(bindings.glob_value("dir").as_deref(), Some("/a\\[1\\]\\*"));
        assert_eq!(bindings.glob_value("city").as_deref(), Some("*.txt"));
        assert_eq!(bindings.glob_value("nobody"), None);
    }
}
