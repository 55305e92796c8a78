//! Whether the values of the variables make globs and folders of a `for_each` that can be used: asked before anything runs.

use std::borrow::Cow;
use std::path::{Component, Path};

use super::agent::AgentSpec;
use super::bindings::{BindError, Bindings};
use super::file::Program;
use super::files::{FileSet, FilesError};
use super::step::Step;
use super::template::{Segment, Template};

impl Program {
    /// Checks every glob and folder of every `for_each` as these values make it. The file system is not asked.
    ///
    /// Only a path leads out of the program's folder: a text that is filled in may neither begin an absolute path nor bring a `..`.
    ///
    /// # Errors
    /// [`BindError::BadGlob`] for a glob that is none, [`BindError::LeadsOut`] for a text that leads out of the folder.
    pub fn check_globs(&self, bindings: &Bindings) -> Result<(), BindError> {
        for agent in self.agents.values() {
            if let AgentSpec::Script(script) = agent {
                script.turns.iter().try_for_each(|steps| check_steps(steps, bindings))?;
            }
        }
        Ok(())
    }
}

fn check_steps(steps: &[Step], bindings: &Bindings) -> Result<(), BindError> {
    for step in steps {
        match step {
            // No other step has steps that may hold a `for_each`.
            Step::Repeat { steps, .. } => check_steps(steps, bindings)?,
            Step::ForEachFile { dir, files, .. } => {
                dir.iter().try_for_each(|dir| check_folder(dir, bindings))?;
                files.iter().try_for_each(|glob| check_glob(glob, bindings))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_folder(dir: &Template, bindings: &Bindings) -> Result<(), BindError> {
    let value = |name: &str| bindings.get(name).map(Cow::Borrowed);
    let path = dir.render(&value);
    if Path::new(&path).components().any(|part| part == Component::ParentDir) { Err(leads_out(dir, path)) } else { check_absolute(dir, path, bindings, &value) }
}

fn check_glob(glob: &Template, bindings: &Bindings) -> Result<(), BindError> {
    let value = |name: &str| bindings.glob_value(name);
    let filled = glob.render(&value);
    match FileSet::new(Path::new("/"), &filled) {
        Ok(_) => check_absolute(glob, filled, bindings, &value),
        Err(FilesError::ParentFolder { .. }) => Err(leads_out(glob, filled)),
        Err(error) => Err(BindError::BadGlob { template: glob.source().to_owned(), reason: error.to_string() }),
    }
}

/// Refuses an absolute path that begins with a text; what the program itself writes, or a variable that is a path, may begin one.
fn check_absolute<'v>(template: &Template, filled: String, bindings: &Bindings, value: &dyn Fn(&str) -> Option<Cow<'v, str>>) -> Result<(), BindError> {
    let first = template.segments().iter().find_map(|segment| match segment {
        Segment::Text(_) => Some(None),
        Segment::Name { name, .. } => value(name).is_some_and(|value| !value.is_empty()).then_some(Some(name)),
    });
    match first {
        Some(Some(name)) if filled.starts_with('/') && !bindings.paths.contains(name) => Err(leads_out(template, filled)),
        _ => Ok(()),
    }
}

fn leads_out(template: &Template, filled: String) -> BindError {
    BindError::LeadsOut { template: template.source().to_owned(), filled }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with one `for_each`, and what its check says of the value of the text `t`.
    fn check(for_each: &str, t: &str) -> Result<(), BindError> {
        let text = format!(
            "run = {{ root = 'a' }}\nvars = {{ t = '*.md', empty = '', dir = {{ path = '[in]' }} }}\n[agents.a]\nbehavior = 'script'\nturns = [[{{ repeat = {{ times = 2, steps = [{{ for_each = {{ {for_each}, steps = [] }} }}] }} }}]]\n"
        );
        let program = Program::parse(&text, "p.toml", Path::new("/base")).unwrap();
        let bindings = program.bind(&[("t".to_owned(), t.to_owned())], Path::new("/cwd")).unwrap();
        program.check_globs(&bindings)
    }

    fn bad(for_each: &str, t: &str) -> bool {
        matches!(check(for_each, t), Err(BindError::BadGlob { .. }))
    }

    fn leads_out(for_each: &str, t: &str) -> bool {
        matches!(check(for_each, t), Err(BindError::LeadsOut { .. }))
    }

    #[test]
    fn a_value_that_makes_no_glob_is_refused() {
        for value in ["[", "{a", "x\\", ""] {
            assert!(bad("files = '{t}'", value), "{value:?}");
            assert!(bad("files = ['*', '{t}']", value), "{value:?}");
        }
        assert_eq!(check("files = 'a/{t}x'", ""), Ok(()));
        assert_eq!(check("dir = '{t}', files = '*'", "["), Ok(()), "a folder is no glob");
        assert_eq!(check("files = '{dir}/*'", ""), Ok(()), "the brackets of a path are its name's");
    }

    #[test]
    fn only_what_the_program_writes_or_a_path_leads_out_of_the_folder() {
        for value in ["/etc/*", "//x", "../x", "a/../x"] {
            assert!(leads_out("files = '{t}'", value), "{value:?}");
            assert!(leads_out("files = '{empty}{t}'", value), "{value:?}");
            assert!(leads_out("dir = '{t}', files = '*'", value), "{value:?}");
        }
        assert!(leads_out("files = '{dir}/{t}'", "../x"));
        assert!(leads_out("dir = '/var/{t}', files = '*'", "../x"));
        for inside in ["files = '{dir}/{t}'", "files = '/var/{t}'", "dir = '{dir}', files = '{t}'", "dir = '{dir}{t}', files = '*'", "files = 'x{t}'"] {
            assert_eq!(check(inside, "a/*"), Ok(()), "{inside}");
            assert_eq!(check(inside, "a..b"), Ok(()), "{inside}");
        }
        assert_eq!(check("files = 'x{t}'", "/a"), Ok(()));
    }
}
