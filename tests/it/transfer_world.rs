//! A desk whose sessions are in every state that a session can be in, and what goes from it to another.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use greenroom::session::{
    descriptor::{Descriptor, Mode},
    event::{Body, EpochEnd, Event, TurnEnd},
    header::NewSession,
    id::MessageId,
    message::{Control, Message, Source},
    recover::begin_epoch,
    store::{Accept, Append, Close, Create, Fence, Op, Open, Store},
};
use serde_json::json;

use crate::cli::{self, Desk, Said, commit, continuable, id};

/// Begins an epoch and claims what waits first.
pub(crate) fn open(store: &dyn Store, name: &str) -> Fence {
    let log = store.reader().unwrap().load(&id(name)).unwrap();
    let (epoch, events) = begin_epoch(&log.fold, 2_000, 3);
    commit(store, Op::Open(Open { session: id(name), epoch, events: events.into(), claim: Some(2_000) }));
    Fence { session: id(name), epoch }
}

pub(crate) fn append(store: &dyn Store, fence: &Fence, bodies: Vec<Body>, take: Vec<u64>) {
    let seq = store.reader().unwrap().load(&fence.session).unwrap().fold.head().next_seq;
    let events: Vec<Event> =
        bodies.into_iter().zip(seq..).map(|(body, seq)| Event { ignorable: matches!(body, Body::Opaque(_)), ..body.at(seq, 2_001) }).collect();
    commit(store, Op::Append(Append { fence: fence.clone(), events: events.into(), take }));
}

pub(crate) fn close(store: &dyn Store, fence: &Fence) {
    let seq = store.reader().unwrap().load(&fence.session).unwrap().fold.head().next_seq;
    let end = Body::ActivationEnd { epoch: fence.epoch, reason: EpochEnd::Disposed }.at(seq, 2_002);
    commit(store, Op::Close(Close { fence: fence.clone(), events: [end].into(), unless_pending: false }));
}

/// A store in which everything happens that a session can be in: pending messages of every kind, notes, an interrupted turn, an open one, forks with a prefix, a
/// one-shot child, a broken one, a plain fork, an orphan, events that nobody knows, ids that no file may be named after.
pub(crate) fn rich(store: &dyn Store) {
    cli::root(store, "root", "a root", 1_000);
    cli::accept(store, "root", "m0", "Begin.");
    let note = |id: &str, quiet| Message::note(MessageId::new(id).unwrap(), "a note", Source::Host, 7, quiet).unwrap();
    commit(store, Op::Accept(Accept::new(id("root"), note("n1", false))));
    let fence = open(store, "root");
    let stranger = Body::decode("weather/changed", r#"{"wind":"north","deep":[1,2.5,{"a":null}]}"#).unwrap();
    append(store, &fence, vec![Body::StepStart { turn: 1, step: 1 }, stranger, Body::StepEnd { turn: 1, step: 1, cut: None }], vec![]);
    append(store, &fence, vec![Body::TurnEnd { turn: 1, reason: TurnEnd::Completed }], vec![]);
    commit(store, Op::Accept(Accept::new(id("root"), note("n2", true))));
    cli::accept(store, "root", "m3", "grüße \u{1f600} \"quoted\"\n\u{1b}[31m");
    let control = Message::control(MessageId::new("c4").unwrap(), Control::Interrupt { turn: None }, 9);
    commit(store, Op::Accept(Accept::new(id("root"), control)));
    close(store, &fence);

    cli::child(store, "interrupted", "root", &continuable("cut off"), 1_000);
    cli::accept(store, "interrupted", "m0", "Work.");
    cli::accept(store, "interrupted", "m1", "More work.");
    let fence = open(store, "interrupted");
    append(store, &fence, vec![Body::TurnEnd { turn: 1, reason: TurnEnd::Interrupted }], vec![]);
    close(store, &fence);

    let mut alias = continuable("with an alias");
    alias.alias = Some("r1".into());
    cli::child(store, "Ümlaut/../x", "root", &alias, 1_000);
    cli::accept(store, "Ümlaut/../x", "m0", "Wait.");

    let inherited = store.reader().unwrap().events(&id("root"), 0, 6).unwrap();
    let fork = Create::child(NewSession::child(id("fork"), id("root"), 0), inherited, &continuable("a fork"), None, 1_000).unwrap();
    commit(store, Op::Create(fork));
    cli::child(store, "once", "root", &Descriptor { mode: Mode::OneShot, ..continuable("once") }, 1_000);
    cli::odd_child(store, "broken", "root", Some(json!({"version": 1, "mode": "odd"})), 1_000);
    cli::odd_child(store, "plain", "fork", None, 1_000);
    cli::child(store, "orphan", "nowhere", &continuable("lost"), 1_000);
    cli::root(store, &"long".repeat(100), "a long name", 1_000);
}

/// Every file of a folder, by its path.
pub(crate) fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for parent in fs::read_dir(folder).unwrap() {
        let parent = parent.unwrap();
        for file in fs::read_dir(parent.path()).unwrap() {
            let path = file.unwrap().path();
            found.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read_to_string(&path).unwrap());
        }
    }
    found
}

/// A second desk that a first one's sessions go to.
pub(crate) fn other(desk: &Desk, words: &[&str]) -> Said {
    let url = format!("sqlite:{}", desk.path("other.db").display());
    desk.run(&[words, &["--store", &url]].concat())
}

/// Plays the roots of these tests.
pub(crate) const PROGRAM: &str = r#"
[run]
root = "editor"

[agents.editor]
behavior = "script"
turns = [[{ say = "one" }], [{ say = "two" }], [{ say = "three" }]]

[agents.reporter]
behavior = "script"
turns = []
"#;
