//! What the tests of the command line share: a folder with a store in it, and the program run there.

use std::{
    fs,
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
        store::{Accept, Create, Op, Store, sqlite::SqliteStore},
    },
};
use serde_json::Value;
use tempfile::TempDir;

/// A folder of its own, with room for a store and program files.
pub(crate) struct Desk {
    folder: TempDir,
}

/// What the program said, and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) exit: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self:?}"))
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
        Self { folder: tempfile::tempdir().unwrap() }
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
        command.env("GREENROOM_STORE", format!("sqlite:{}", self.path("desk.db").display()));
        command.env("HOME", self.path("home")).env_remove("XDG_DATA_HOME").env_remove("NO_COLOR").env_remove("RUST_LOG");
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Said {
        Said::of(self.command(words).assert().get_output())
    }

    pub(crate) fn run_with_stdin(&self, words: &[&str], stdin: &[u8]) -> Said {
        Said::of(assert_cmd::Command::from_std(self.command(words)).write_stdin(stdin).assert().get_output())
    }

    /// The database and its write-ahead log; a log that is not there is an empty one.
    pub(crate) fn bytes(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let names = ["desk.db", "desk.db-wal"].map(|name| self.path(name));
        names.into_iter().map(|path| (path.clone(), fs::read(path).unwrap_or_default())).collect()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
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

/// A child whose descriptor is this data, whatever it is.
pub(crate) fn odd_child(store: &dyn Store, name: &str, parent: &str, descriptor: Option<Value>, time: u64) {
    let bodies = descriptor.map(Body::Descriptor).into_iter().chain([Body::EndSeed {}]);
    let events = bodies.zip(0..).map(|(body, seq)| body.at(seq, time)).collect();
    commit(store, Op::Create(Create { session: NewSession::child(id(name), id(parent), 0), time, events, message: None }));
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
