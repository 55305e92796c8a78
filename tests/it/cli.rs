//! What the tests of the command line share: a folder with a store in it, and the program run there.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use assert_cmd::assert::OutputAssertExt;
use greenroom::{
    SessionId,
    session::{
        descriptor::Descriptor,
        event::Body,
        header::NewSession,
        message::{Message, Source},
        store::{Accept, Create, Op, Store, jsonl::JsonlStore, sqlite::SqliteStore},
    },
};
use serde_json::Value;
use tempfile::TempDir;

/// A folder of its own, with room for a store and program files.
pub(crate) struct Desk {
    folder: TempDir,
    kind: Kind,
}

/// Which kind of store a desk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Jsonl,
}

impl Kind {
    /// Every kind that keeps something.
    pub(crate) const ALL: [Self; 2] = [Self::Sqlite, Self::Jsonl];
}

/// What the program said, and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) exit: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Reads the document of stdout. Whatever fails says so in it, too: the same code as on stderr.
    pub(crate) fn json(&self) -> Value {
        let document: Value = serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self:?}"));
        let error = &document["error"];
        match error["code"].as_str() {
            Some(code) => assert!(self.exit != 0 && self.err.contains(&format!("error[{code}]: ")), "{self:?}"),
            None => assert_eq!(self.exit, 0, "no code in {self:?}"),
        }
        assert!(self.exit == 0 || (error["message"].is_string() && error["help"].is_string()), "{self:?}");
        document
    }

    /// Shows all of it in one text, for snapshots.
    pub(crate) fn all(&self) -> String {
        format!("exit {}\n{}---\n{}", self.exit, self.out, self.err)
    }

    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self { exit: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

pub(crate) fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self::over(Kind::Sqlite)
    }

    /// A desk with a store of this kind.
    pub(crate) fn over(kind: Kind) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), kind }
    }

    /// The store of this desk as the program is told of it.
    pub(crate) fn url(&self) -> String {
        match self.kind {
            Kind::Sqlite => format!("sqlite:{}", self.path("desk.db").display()),
            Kind::Jsonl => format!("jsonl:{}", self.path("desk").display()),
        }
    }

    /// The store of this desk, of whatever kind it is, made if absent.
    pub(crate) fn any_store(&self) -> Box<dyn Store> {
        match self.kind {
            Kind::Sqlite => Box::new(self.store()),
            Kind::Jsonl => Box::new(JsonlStore::open(self.path("desk")).unwrap()),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The store of this desk, made if absent.
    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::open(self.path("desk.db")).unwrap()
    }

    /// The program, over this desk's store and away from everything else of the user.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_greenroom"));
        command.args(words).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("GREENROOM_STORE", self.url());
        command.env("HOME", self.path("home")).env_remove("XDG_DATA_HOME").env_remove("NO_COLOR").env_remove("RUST_LOG");
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Said {
        Said::of(self.command(words).assert().get_output())
    }

    pub(crate) fn run_with_stdin(&self, words: &[&str], stdin: &[u8]) -> Said {
        Said::of(assert_cmd::Command::from_std(self.command(words)).write_stdin(stdin).assert().get_output())
    }

    /// The database and its write-ahead log, or every file of the folder; a write-ahead log that is not there is an empty one.
    pub(crate) fn bytes(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let paths: Vec<PathBuf> = match self.kind {
            Kind::Sqlite => ["desk.db", "desk.db-wal"].map(|name| self.path(name)).into(),
            Kind::Jsonl => files_below(&self.path("desk")),
        };
        paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap_or_default())).collect()
    }

    /// A line of a shell on a terminal of its own, a hundred columns wide, with this as what is typed there; `$G` is the program. Its stdout is what the terminal
    /// shows. None, with a word about it, where this machine has no `script`.
    pub(crate) fn on_terminal(&self, line: &str, typed: &str) -> Option<Said> {
        let mut command = Command::new("script");
        command.args(["-qec", &format!("stty cols 100 -echo && {line}"), "/dev/null"]).env("G", env!("CARGO_BIN_EXE_greenroom"));
        let settings: Vec<_> = self.command(&[]).get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        for (name, value) in settings {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.folder.path()).env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                eprintln!("skipped: this machine has no `script`: {error}");
                return None;
            }
        };
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(typed.as_bytes()).unwrap();
        drop(stdin);
        Some(Said::of(&child.wait_with_output().unwrap()))
    }

    /// The program as a user who may not read everything. None, with a word about it, where the tests run as one who may and cannot let go of that.
    pub(crate) fn unprivileged(&self, words: &[&str]) -> Option<Said> {
        let plain = self.command(words);
        if !rustix::process::geteuid().is_root() {
            return Some(self.run(words));
        }
        let mut command = Command::new("setpriv");
        command.args(["--inh-caps=-all", "--bounding-set=-all", "--"]).arg(plain.get_program()).args(plain.get_args());
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        match command.output() {
            Ok(output) => Some(Said::of(&output)),
            Err(error) => {
                eprintln!("skipped: the tests run as root, and this machine has no `setpriv`: {error}");
                None
            }
        }
    }

    /// The verbs, as the help lists them.
    pub(crate) fn verbs(&self) -> Vec<String> {
        let help = self.run(&["--help"]).out;
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        // Descriptions that are longer than a line go on further in.
        let verbs: Vec<String> = listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect();
        assert!(verbs.contains(&"run".to_owned()), "{help}");
        verbs
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Every file below a folder, in order.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

/// A root with this id, made at this time.
pub(crate) fn root(store: &dyn Store, name: &str, label: &str, time: u64) {
    let mut create = Create::root(NewSession::root(id(name)), "editor", label);
    create.time = time;
    commit(store, Op::Create(create));
}

/// A child with this id that a descriptor describes.
pub(crate) fn child(store: &dyn Store, name: &str, parent: &str, descriptor: &Descriptor, time: u64) {
    commit(store, Op::Create(Create::child(NewSession::child(id(name), id(parent), 0), Vec::new(), descriptor, None, time).unwrap()));
}

/// A child whose descriptor is this data, whatever it is; without any, a fork.
pub(crate) fn odd_child(store: &dyn Store, name: &str, parent: &str, descriptor: Option<Value>, time: u64) {
    let session = if descriptor.is_some() { NewSession::child(id(name), id(parent), 0) } else { NewSession::fork(id(name), id(parent)) };
    let bodies = descriptor.map(Body::Descriptor).into_iter().chain([Body::EndSeed {}]);
    let events = bodies.zip(0..).map(|(body, seq)| body.at(seq, time)).collect();
    commit(store, Op::Create(Create { session, time, events, message: None }));
}

pub(crate) fn accept(store: &dyn Store, name: &str, message: &str, text: &str) {
    commit(store, Op::Accept(Accept::new(id(name), Message::turn(message, text, Source::User, 1_000).unwrap())));
}

pub(crate) fn commit(store: &dyn Store, op: Op) {
    for result in store.commit(&[op]).unwrap() {
        result.unwrap();
    }
}

pub(crate) fn continuable(label: &str) -> Descriptor {
    Descriptor::continuable("spawn", label, "reporter")
}

/// Puts a name in the place of everything that looks like a UUID, the same name for the same one, and of spans of time and memory.
pub(crate) fn redact(text: &str) -> String {
    let mut names: Vec<String> = Vec::new();
    let mut redacted = String::new();
    let mut rest = text;
    while let Some((at, uuid)) = find_uuid(rest) {
        redacted.push_str(&rest[..at]);
        let index = names.iter().position(|name| *name == uuid).unwrap_or_else(|| {
            names.push(uuid.clone());
            names.len() - 1
        });
        redacted = format!("{redacted}<id {index}>");
        rest = &rest[at + uuid.len()..];
    }
    redacted.push_str(rest);
    redacted
}

fn find_uuid(text: &str) -> Option<(usize, String)> {
    (0..text.len()).find_map(|at| {
        let candidate = text.get(at..at + 36)?;
        let shape = candidate.bytes().enumerate().all(|(i, byte)| if [8, 13, 18, 23].contains(&i) { byte == b'-' } else { byte.is_ascii_hexdigit() });
        shape.then(|| (at, candidate.to_owned()))
    })
}
