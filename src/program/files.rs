//! The files that a `for_each` goes through.
//!
//! A glob is split into the folder that it names literally and the pattern below it; that folder
//! is walked. Regular files only: a symbolic link is neither listed nor followed. Hidden and
//! gitignored files are skipped, inside a git repository and outside. A folder that the glob
//! names literally is entered even when it is hidden or ignored, as a person means it who types
//! its name; what lies below it is not excepted.
//!
//! Inside a repository every `.gitignore` from its top down counts, and its `.git/info/exclude`.
//! Outside, only those in the walked folder and below count: a stray one in a home folder decides
//! nothing. Neither do other kinds of ignore files or the user's own git configuration, so that
//! the same tree gives the same list for everybody.
//!
//! A file is named as its glob was written: below the folder that the globs are relative to, or
//! absolute when the glob is. The order is that of the names' bytes, whatever the file system
//! says.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use ignore::WalkBuilder;
use thiserror::Error;

/// What a list of globs matches.
///
/// ```
/// use greenroom::program::{Listing, list_files};
/// # let folder = tempfile::tempdir()?;
/// # let base = folder.path();
/// std::fs::write(base.join("b.txt"), "two")?;
/// std::fs::write(base.join("a.txt"), "one")?;
/// let Listing { files, not_utf8, unreadable } = list_files(base, &["*.txt".to_owned()])?;
/// assert_eq!((files, not_utf8, unreadable.len()), (vec!["a.txt".to_owned(), "b.txt".to_owned()], 0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The files, with forward slashes, in byte order, each once.
    pub files: Vec<String>,
    /// How many more files matched but have names that are not UTF-8, which no log could hold.
    pub not_utf8: usize,
    /// The folders below the globs' own that cannot be read, named as the files are, in byte order. What lies in them is not in `files`.
    pub unreadable: Vec<String>,
}

/// Why files cannot be listed.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::{FileSet, FilesError, list_files};
/// let error = FileSet::new(Path::new("/stories"), "../*.txt").unwrap_err();
/// assert!(matches!(error, FilesError::ParentFolder { .. }));
/// assert_eq!(error.code(), "PROGRAM_INVALID");
/// let error = list_files(Path::new("/nowhere"), &["in/*.txt".to_owned()]).unwrap_err();
/// assert_eq!(error.code(), "FILES_UNREADABLE");
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FilesError {
    /// The glob names no file: it is empty or only a folder.
    #[error("the glob {glob:?} names no file")]
    NoPattern {
        /// The glob.
        glob: String,
    },
    /// The glob has a part `..`.
    #[error("the glob {glob:?} leads through `..`; use a variable {{ path = \"..\" }} instead")]
    ParentFolder {
        /// The glob.
        glob: String,
    },
    /// The glob's brackets, braces or stars make no sense.
    #[error("the glob {glob:?} is not valid: {reason}")]
    BadGlob {
        /// The glob.
        glob: String,
        /// What is wrong in it.
        reason: String,
    },
    /// The folder that the glob names is missing or cannot be looked at.
    #[error("the folder {} cannot be read: {source}", path.display())]
    NoFolder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What the glob names as a folder is something else.
    #[error("{} is not a folder", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// A relative glob leads through a symbolic link.
    #[error("{} is a symbolic link, which is not followed", path.display())]
    SymbolicLink {
        /// The link.
        path: PathBuf,
    },
    /// The folder itself cannot be read. One below it is left out instead, and [`Listing`] says so.
    #[error("the files below {} cannot be listed: {source}", path.display())]
    Unreadable {
        /// The folder that was walked.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl FilesError {
    /// Returns the stable code for adapters and the command line.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoPattern { .. } | Self::ParentFolder { .. } | Self::BadGlob { .. } => "PROGRAM_INVALID",
            Self::NoFolder { .. } | Self::NotAFolder { .. } | Self::SymbolicLink { .. } | Self::Unreadable { .. } => "FILES_UNREADABLE",
        }
    }
}

/// A folder and the pattern that files below it must match: one glob, taken apart.
///
/// ```
/// use std::path::Path;
/// use greenroom::program::FileSet;
/// let set = FileSet::new(Path::new("/stories"), "in/**/*.txt")?;
/// assert_eq!(set.root, Path::new("/stories/in")); // the folder that the glob names literally
/// # Ok::<(), greenroom::program::FilesError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileSet {
    /// The folder that is walked.
    pub root: PathBuf,
    /// What stands before each file's path below `root`: empty, or with a slash at its end.
    prefix: String,
    /// The components of a relative glob's own folder, none of which may be a link.
    below_base: Vec<String>,
    /// How deep a match can lie; `None` is any depth.
    depth: Option<usize>,
    pattern: GlobMatcher,
}

impl FileSet {
    /// Takes a glob apart without looking at the file system. `*` and `?` never match a slash,
    /// `**` matches any number of folders, `\` takes away a special meaning.
    ///
    /// # Errors
    /// [`FilesError::ParentFolder`] for a part `..`, [`FilesError::NoPattern`] if no file is named, [`FilesError::BadGlob`] for what is no glob.
    pub fn new(base: &Path, glob: &str) -> Result<Self, FilesError> {
        let parts: Vec<&str> = glob.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") {
            return Err(FilesError::ParentFolder { glob: glob.to_owned() });
        }
        let Some((last, folders)) = parts.split_last() else {
            return Err(FilesError::NoPattern { glob: glob.to_owned() });
        };
        let literal: Vec<String> = folders.iter().map_while(|folder| literal_name(folder)).collect();
        let pattern_parts: Vec<&str> = folders.iter().skip(literal.len()).chain([last]).copied().collect();
        let pattern = pattern_parts.join("/");
        let matcher = GlobBuilder::new(&pattern)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| FilesError::BadGlob { glob: glob.to_owned(), reason: error.kind().to_string() })?
            .compile_matcher();
        let absolute = glob.starts_with('/');
        let mut root = if absolute { PathBuf::from("/") } else { base.to_owned() };
        root.extend(&literal);
        let mut prefix = literal.iter().fold(String::new(), |mut prefix, folder| {
            prefix.push_str(folder);
            prefix.push('/');
            prefix
        });
        if absolute {
            prefix.insert(0, '/');
        }
        Ok(Self {
            root,
            prefix,
            below_base: if absolute { Vec::new() } else { literal },
            depth: (!pattern.contains("**")).then(|| pattern.matches('/').count() + 1),
            pattern: matcher,
        })
    }

    /// Adds what matches to `found`.
    fn walk(&self, base: &Path, found: &mut Found) -> Result<(), FilesError> {
        self.check_root(base)?;
        let in_repository = self.root.ancestors().any(|folder| folder.join(".git").exists());
        let walk = WalkBuilder::new(&self.root)
            .standard_filters(false)
            .hidden(true)
            .git_ignore(true)
            .git_exclude(true)
            .parents(in_repository)
            // Without this the walker would not stop at the repository's top on its way up.
            .require_git(in_repository)
            .follow_links(false)
            .max_depth(self.depth)
            .build();
        for entry in walk {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    found.unreadable.extend(self.left_out(error)?);
                    continue;
                }
            };
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            let Ok(below) = entry.path().strip_prefix(&self.root) else {
                continue;
            };
            if !is_file || !self.pattern.is_match(below) {
                continue;
            }
            match slashed(below) {
                Some(name) => {
                    found.files.insert(format!("{}{name}", self.prefix));
                }
                None => {
                    found.not_utf8.insert(entry.into_path());
                }
            }
        }
        Ok(())
    }

    fn check_root(&self, base: &Path) -> Result<(), FilesError> {
        let no_folder = |path: &Path, source| FilesError::NoFolder { path: path.to_owned(), source };
        let mut path = base.to_owned();
        for folder in &self.below_base {
            path.push(folder);
            let found = fs::symlink_metadata(&path).map_err(|source| no_folder(&path, source))?;
            if found.is_symlink() {
                return Err(FilesError::SymbolicLink { path });
            }
        }
        let found = fs::metadata(&self.root).map_err(|source| no_folder(&self.root, source))?;
        if !found.is_dir() {
            return Err(FilesError::NotAFolder { path: self.root.clone() });
        }
        Ok(())
    }

    /// Names the folder that cannot be read; none if it has gone meanwhile. The walked folder itself is no such thing: without it there is no list.
    fn left_out(&self, error: ignore::Error) -> Result<Option<String>, FilesError> {
        let below = path_of(&error).and_then(|path| path.strip_prefix(&self.root).ok()).map(Path::to_owned);
        match below {
            Some(below) if !below.as_os_str().is_empty() => {
                let has_gone = error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::NotFound);
                Ok((!has_gone).then(|| format!("{}{}", self.prefix, below.to_string_lossy())))
            }
            _ => {
                let text = error.to_string();
                Err(FilesError::Unreadable { path: self.root.clone(), source: error.into_io_error().unwrap_or_else(|| io::Error::other(text)) })
            }
        }
    }
}

/// What the walks have found, each once.
#[derive(Default)]
struct Found {
    files: BTreeSet<String>,
    not_utf8: BTreeSet<PathBuf>,
    unreadable: BTreeSet<String>,
}

/// Returns the path that an error of a walk is about.
fn path_of(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => path_of(err),
        _ => None,
    }
}

/// Lists the files that match any of the globs, which are relative to `base` unless absolute.
///
/// `base` is an absolute folder; it may be reached through a symbolic link.
/// Blocks, and reads every folder below the globs' own that is not hidden or ignored. One of them that cannot be read is left out: the rest of a large tree is
/// worth having, and the list says what it lacks.
///
/// # Errors
/// [`FilesError`] of the first glob that cannot be used or whose folder cannot be read. A glob that matches nothing is no error.
pub fn list_files(base: &Path, globs: &[String]) -> Result<Listing, FilesError> {
    let mut found = Found::default();
    for glob in globs {
        FileSet::new(base, glob)?.walk(base, &mut found)?;
    }
    let Found { files, not_utf8, unreadable } = found;
    Ok(Listing { files: files.into_iter().collect(), not_utf8: not_utf8.len(), unreadable: unreadable.into_iter().collect() })
}

/// Escapes a text so that it stands for itself inside a glob.
pub(super) fn escape_glob(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | ',' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Returns the name that a part of a glob stands for, if it can match only one.
fn literal_name(part: &str) -> Option<String> {
    let mut name = String::with_capacity(part.len());
    let mut chars = part.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?),
            '*' | '?' | '[' | ']' | '{' | '}' => return None,
            c => name.push(c),
        }
    }
    Some(name)
}

/// Returns a relative path with forward slashes, if it is UTF-8.
fn slashed(path: &Path) -> Option<String> {
    let mut name = String::new();
    for component in path {
        if !name.is_empty() {
            name.push('/');
        }
        name.push_str(component.to_str()?);
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn tree(files: &[&str]) -> TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            fs::write(path, "x").expect("a file");
        }
        dir
    }

    fn list(dir: &TempDir, globs: &[&str]) -> Vec<String> {
        let globs: Vec<_> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        list_files(dir.path(), &globs).expect("listed").files
    }

    fn refusal(dir: &Path, glob: &str) -> FilesError {
        list_files(dir, &[glob.to_owned()]).expect_err("refused")
    }

    #[test]
    fn files_come_in_byte_order_each_once() {
        let dir = tree(&["b.txt", "a/z.txt", "a.txt", "Z.txt", "é.txt", "a/b/c.md"]);
        assert_eq!(list(&dir, &["**/*.txt", "*.txt", "**/*"]), ["Z.txt", "a.txt", "a/b/c.md", "a/z.txt", "b.txt", "é.txt"]);
        assert_eq!(list(&dir, &["*"]), ["Z.txt", "a.txt", "b.txt", "é.txt"], "a star stays in its folder");
        assert_eq!(list(&dir, &["./a//*.{txt,md}"]), ["a/z.txt"]);
        assert_eq!(list(&dir, &["a/{z.txt,b/c.md}"]), ["a/b/c.md", "a/z.txt"]);
        assert_eq!(list(&dir, &["a/z.txt"]), ["a/z.txt"]);
        assert_eq!(list(&dir, &["none.txt"]), [""; 0]);
    }

    #[test]
    fn an_absolute_glob_names_files_absolutely() {
        let dir = tree(&["in[1]/a.txt", "in1/b.txt"]);
        let root = dir.path().to_str().expect("UTF-8");
        let glob = format!("{}/**/*", escape_glob(&format!("{root}/in[1]")));
        assert_eq!(list(&dir, &[&glob]), [format!("{root}/in[1]/a.txt")]);
    }

    #[test]
    fn links_are_neither_listed_nor_followed() {
        let dir = tree(&["real/a.txt", "b.txt"]);
        symlink(dir.path().join("b.txt"), dir.path().join("c.txt")).expect("a link");
        symlink(dir.path().join("real"), dir.path().join("link")).expect("a link");
        symlink(dir.path().join("nowhere"), dir.path().join("dead")).expect("a link");
        assert_eq!(list(&dir, &["**/*"]), ["b.txt", "real/a.txt"]);
        assert_eq!(list(&dir, &["l*/*.txt"]), [""; 0]);
        assert!(matches!(
            refusal(dir.path(), "link/*.txt"),
            FilesError::SymbolicLink { path } if path == dir.path().join("link")
        ));
        let linked_base = dir.path().join("link");
        let listing = list_files(&linked_base, &["*".to_owned()]).expect("the user's own folder");
        assert_eq!(listing.files, ["a.txt"]);
    }

    #[test]
    fn hidden_and_ignored_files_are_skipped_outside_a_repository_too() {
        let dir = tree(&[".hidden.txt", ".git-like/a.txt", "out/a.txt", "sub/keep.txt", "sub/skip.txt", "sub/deep/skip.txt", "x.log"]);
        fs::write(dir.path().join(".gitignore"), "/out\n*.log\n").expect("a file");
        fs::write(dir.path().join("sub/.gitignore"), "skip.txt\n").expect("a file");
        assert_eq!(list(&dir, &["**/*"]), ["sub/keep.txt"]);
        assert_eq!(list(&dir, &["*.log", ".h*"]), [""; 0]);
        assert_eq!(list(&dir, &["out/*"]), ["out/a.txt"], "named literally");
        assert_eq!(list(&dir, &[".git-like/*"]), [".git-like/a.txt"]);
    }

    #[test]
    fn ignore_files_above_count_up_to_the_top_of_the_repository() {
        let dir = tree(&["home/repo/sub/a.txt", "home/repo/sub/b.txt"]);
        let ignore = |folder: &str, lines: &str| {
            fs::write(dir.path().join(folder).join(".gitignore"), lines).expect("a file");
        };
        ignore("home", "*\n");
        ignore("home/repo", "b.*\n");
        let base = dir.path().join("home/repo");
        let list = |glob: &str| {
            let listing = list_files(&base, &[glob.to_owned()]).expect("listed");
            listing.files
        };
        assert_eq!(list("**/*"), ["sub/a.txt"], "outside a repository");
        assert_eq!(list("sub/*"), ["sub/a.txt", "sub/b.txt"]);
        fs::create_dir(base.join(".git")).expect("a repository");
        assert_eq!(list("**/*"), ["sub/a.txt"], "inside");
        assert_eq!(list("sub/*"), ["sub/a.txt"]);
    }

    #[test]
    fn names_that_are_not_utf8_are_counted() {
        let dir = tree(&["a.txt"]);
        fs::write(dir.path().join(OsStr::from_bytes(b"b\xff.txt")), "x").expect("a file");
        fs::write(dir.path().join(OsStr::from_bytes(b"b\xff.md")), "x").expect("a file");
        let globs = ["*.txt".to_owned(), "?*.txt".to_owned()];
        let listing = list_files(dir.path(), &globs).expect("listed");
        assert_eq!(listing.files, ["a.txt"]);
        assert_eq!(listing.not_utf8, 1);
    }

    #[test]
    fn what_cannot_be_listed_is_an_error_with_its_path() {
        let dir = tree(&["a.txt"]);
        let missing = refusal(dir.path(), "nowhere/**/*");
        let path = dir.path().join("nowhere");
        assert!(missing.to_string().contains(&path.display().to_string()));
        assert_eq!(missing.code(), "FILES_UNREADABLE");
        assert!(matches!(
            refusal(dir.path(), "a.txt/*"),
            FilesError::NotAFolder { path } if path == dir.path().join("a.txt")
        ));
        for glob in ["", "/", "./"] {
            assert!(matches!(refusal(dir.path(), glob), FilesError::NoPattern { .. }));
        }
        for glob in ["../*", "a/../*", "*/.."] {
            assert!(matches!(refusal(dir.path(), glob), FilesError::ParentFolder { .. }));
        }
        for glob in ["[", "{a", "a}", "x\\"] {
            assert!(matches!(refusal(dir.path(), glob), FilesError::BadGlob { .. }), "{glob}");
        }
    }
}
