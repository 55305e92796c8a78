//! `greenroom export`, `import` and `rm`: nothing of a session is lost or made anew on the way, and nothing goes by halves.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Stdio,
};

use greenroom::session::{
    descriptor::{Descriptor, Mode},
    event::{Body, EpochEnd, Event, TurnEnd},
    header::NewSession,
    id::MessageId,
    message::{Control, Message, Source},
    recover::begin_epoch,
    store::{Accept, Append, Close, Create, Done, Fence, Op, Open, Remove, Store, jsonl::JsonlStore, sqlite::SqliteStore},
};
use serde_json::{Value, json};

use crate::cli::{self, Desk, Said, commit, continuable, id};

/// Begins an epoch and claims what waits first.
fn open(store: &dyn Store, name: &str) -> Fence {
    let log = store.reader().unwrap().load(&id(name)).unwrap();
    let (epoch, events) = begin_epoch(&log.fold, 2_000, 3);
    commit(store, Op::Open(Open { session: id(name), epoch, events: events.into(), claim: Some(2_000) }));
    Fence { session: id(name), epoch }
}

fn append(store: &dyn Store, fence: &Fence, bodies: Vec<Body>, take: Vec<u64>) {
    let seq = store.reader().unwrap().load(&fence.session).unwrap().fold.head().next_seq;
    let events: Vec<Event> =
        bodies.into_iter().zip(seq..).map(|(body, seq)| Event { ignorable: matches!(body, Body::Opaque(_)), ..body.at(seq, 2_001) }).collect();
    commit(store, Op::Append(Append { fence: fence.clone(), events: events.into(), take }));
}

fn close(store: &dyn Store, fence: &Fence) {
    let seq = store.reader().unwrap().load(&fence.session).unwrap().fold.head().next_seq;
    let end = Body::ActivationEnd { epoch: fence.epoch, reason: EpochEnd::Disposed }.at(seq, 2_002);
    commit(store, Op::Close(Close { fence: fence.clone(), events: [end].into(), unless_pending: false }));
}

/// A store in which everything happens that a session can be in: pending messages of every kind, notes, an interrupted turn, an open one, forks with a prefix, a
/// one-shot child, a broken one, a plain fork, an orphan, events that nobody knows, ids that no file may be named after.
fn rich(store: &dyn Store) {
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
fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
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
fn other(desk: &Desk, words: &[&str]) -> Said {
    let url = format!("sqlite:{}", desk.path("other.db").display());
    desk.run(&[words, &["--store", &url]].concat())
}

#[test]
fn sessions_come_back_as_they_went() {
    let desk = Desk::new();
    let store = desk.store();
    rich(&store);
    let said = desk.run(&["export", "--all", "--to", "first"]);
    insta::assert_snapshot!(said.all(), @r#"
    exit 0
    9 sessions in first: 9 written, 0 replaced, 0 unchanged
    ---
    "#);
    let first = files(&desk.path("first"));
    assert_eq!(first.len(), 9);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&desk.path("first")), mode(&desk.path("first/_root")), mode(&desk.path("first/_root/root.jsonl"))), (0o700, 0o700, 0o600));

    let said = other(&desk, &["import", "first"]);
    insta::assert_snapshot!(said.all(), @r#"
    exit 0
    9 imported, 0 skipped, 0 refused, 0 damaged
    ---
    what waits in them is held: `greenroom import first --activate` lets it run
    "#);
    // Held, and but for that the same.
    assert_eq!(other(&desk, &["export", "--all", "--to", "held"]).exit, 0);
    let unheld = |files: &BTreeMap<PathBuf, String>| -> Vec<(PathBuf, Vec<String>)> {
        let cut = |line: &str| line.rsplit_once(",\"crc\"").unwrap().0.replace("\"held\":true,", "");
        files.iter().map(|(path, text)| (path.clone(), text.lines().map(cut).collect())).collect()
    };
    let held = files(&desk.path("held"));
    assert_eq!(unheld(&held), unheld(&first));
    assert_eq!(held.values().flat_map(|text| text.lines()).filter(|line| line.contains("\"held\":true,")).count(), 3 + 2 + 1);

    // The same again is skipped, whichever of the two it is.
    for folder in ["first", "held"] {
        let said = other(&desk, &["import", folder, "--json"]);
        let expected = json!({"imported": 0, "skipped": 9, "refused": 0, "damaged": 0, "activated": 0, "troubles": []});
        assert_eq!((said.exit, said.json()), (0, expected));
    }
    let said = other(&desk, &["import", "first", "--activate", "--json"]);
    assert_eq!((said.exit, &said.json()["activated"]), (0, &json!(3)));
    assert_eq!(other(&desk, &["export", "--all", "--to", "second"]).exit, 0);
    assert_eq!(files(&desk.path("second")), first);
    // What a listing says is the same, too.
    for words in [&["list", "--json"][..], &["list", "root", "--all", "--json"], &["list", "root", "--all", "--json", "--verify"], &["show", "interrupted"]] {
        let strip = |said: Said| said.all().lines().filter(|line| !line.contains("ago")).collect::<Vec<_>>().join("\n");
        assert_eq!(strip(other(&desk, words)), strip(desk.run(words)), "{words:?}");
    }
}

/// Whatever kind of store a session goes through, and be it the folder of a store that is imported, it is the same one.
#[test]
fn sessions_are_the_same_in_every_kind_of_store() {
    let desk = Desk::new();
    rich(&desk.store());
    rich(&JsonlStore::open(desk.path("lines")).unwrap());
    let url = |kind: &str, name: &str| format!("{kind}:{}", desk.path(name).display());
    let over = |url: &str, words: &[&str]| {
        let said = desk.run(&[words, &["--store", url]].concat());
        assert_eq!(said.exit, 0, "{words:?}: {said:?}");
    };
    over(&url("sqlite", "desk.db"), &["export", "--all", "--to", "a"]);
    over(&url("jsonl", "lines"), &["export", "--all", "--to", "b"]);
    let first = files(&desk.path("a"));
    assert_eq!(files(&desk.path("b")), first);
    // Into a store of each kind, from an export and from a store's own folder; what a write has left that was cut off is no part of it.
    let torn = fs::read_to_string(desk.path("lines/_root/root.jsonl")).unwrap();
    fs::write(desk.path("lines/_root/root.jsonl"), torn + "{\"seq\":99,\"time\":1,\"type\":\"me").unwrap();
    for (n, (kind, from)) in [("sqlite", "lines"), ("jsonl", "lines"), ("jsonl", "a"), ("sqlite", "b")].into_iter().enumerate() {
        let (to, out) = (url(kind, &format!("to-{n}")), format!("out-{n}"));
        over(&to, &["import", from]);
        over(&to, &["import", from]);
        over(&to, &["import", from, "--activate"]);
        over(&to, &["export", "--all", "--to", &out]);
        assert_eq!(files(&desk.path(&out)), first, "{from} by {kind}");
    }
    // The folder of a store that was imported into is one to import, too: there are records that were held.
    over(&url("sqlite", "last.db"), &["import", "to-2", "--activate"]);
    over(&url("sqlite", "last.db"), &["export", "--all", "--to", "last"]);
    assert_eq!(files(&desk.path("last")), first);
    let said = desk.run(&["export", "--all", "--to", "lines"]);
    assert!(said.exit == 5 && said.err.starts_with("error[FOLDER_IS_STORE]: "), "{said:?}");
}

/// A tree is removed from a store of JSON Lines as it is from one in SQLite, and what is removed does not come back with the folder.
#[test]
fn what_is_removed_from_a_folder_of_lines_is_not_imported_from_it() {
    let desk = Desk::new();
    rich(&JsonlStore::open(desk.path("lines")).unwrap());
    let lines = format!("jsonl:{}", desk.path("lines").display());
    let said = desk.run(&["rm", "root", "--tree", "--yes", "--discard-pending", "--json", "--store", &lines]);
    assert_eq!((said.exit, said.json()["removed"].as_array().unwrap().len()), (0, 7), "{said:?}");
    // As a removal leaves it that was killed: the tombstone is there, and the file still is.
    rich(&JsonlStore::open(desk.path("whole")).unwrap());
    fs::copy(desk.path("whole/_root/root.jsonl"), desk.path("lines/_root/root.jsonl")).unwrap();
    let said = other(&desk, &["import", "lines", "--json"]);
    assert_eq!((said.exit, &said.json()["imported"], &said.json()["troubles"]), (0, &json!(2), &json!([])), "{said:?}");
    let said = desk.run(&["import", "whole", "--json", "--store", &lines]);
    assert_eq!((said.exit, &said.json()["skipped"], &said.json()["refused"]), (5, &json!(2), &json!(7)), "{said:?}");
}

#[test]
fn an_export_of_some_takes_those_and_with_tree_what_is_below_them() {
    let desk = Desk::new();
    rich(&desk.store());
    let names = |folder: &str| files(&desk.path(folder)).into_keys().map(|path| path.display().to_string()).collect::<Vec<_>>();
    assert_eq!(desk.run(&["export", "fork", "once", "fork", "--to", "some"]).exit, 0);
    assert_eq!(names("some"), ["root/fork.jsonl", "root/once.jsonl"]);
    assert_eq!(desk.run(&["export", "fork", "--tree", "--to", "tree"]).exit, 0);
    assert_eq!(names("tree"), ["fork/plain.jsonl", "root/fork.jsonl"]);
    assert_eq!(desk.run(&["export", "--to", "none"]).exit, 2);
    assert_eq!(desk.run(&["export", "fork", "--all", "--to", "none"]).exit, 2);
    assert_eq!(desk.run(&["export", "nobody", "--to", "none"]).exit, 4);
    assert!(!desk.path("none").exists());
}

#[test]
fn the_same_export_again_is_a_backup_that_grows_and_loses_nothing() {
    let desk = Desk::new();
    let store = desk.store();
    rich(&store);
    let export = || desk.run(&["export", "--all", "--to", "backup", "--json"]);
    let counts = |said: &Said| ["written", "replaced", "unchanged"].map(|key| said.json()[key].as_u64().unwrap());
    assert_eq!(counts(&export()), [9, 0, 0]);
    // What a killed export has left goes; what another one is writing stays.
    fs::write(desk.path("backup/_root/.root.0123.part"), "half").unwrap();
    let busy = fs::File::create(desk.path("backup/_root/.root.4567.part")).unwrap();
    busy.lock().unwrap();
    assert_eq!(counts(&export()), [0, 0, 9]);
    assert!(!desk.path("backup/_root/.root.0123.part").exists() && desk.path("backup/_root/.root.4567.part").exists());
    drop(busy);
    let fence = open(&store, "interrupted");
    append(&store, &fence, vec![Body::TurnEnd { turn: 2, reason: TurnEnd::Completed }], vec![]);
    cli::accept(&store, "orphan", "m9", "One more.");
    assert_eq!(counts(&export()), [0, 2, 7]);
    assert_eq!(counts(&export()), [0, 0, 9]);
    assert!(!desk.path("backup/_root/.root.4567.part").exists());

    // A file that is no earlier state is left alone: of another life, of a later one, or damaged.
    let path = desk.path("backup/_root/root.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    let store_of = |name: &str, make: &dyn Fn(&SqliteStore)| {
        let store = SqliteStore::open(desk.path(name)).unwrap();
        make(&store);
        let url = format!("sqlite:{}", desk.path(name).display());
        assert_eq!(desk.run(&["export", "root", "--to", &format!("{name}-out"), "--store", &url]).exit, 0);
        fs::read_to_string(desk.path(&format!("{name}-out/_root/root.jsonl"))).unwrap()
    };
    let another = store_of("another.db", &|store| cli::root(store, "root", "another root", 1_000));
    let later = store_of("later.db", &|store| {
        rich(store);
        cli::accept(store, "root", "m5", "Later.");
    });
    let diverged = store_of("diverged.db", &|store| {
        rich(store);
        open(store, "root");
    });
    for other in [another, later, diverged, whole[..whole.len() - 9].to_owned(), whole.replace("Begin.", "Began."), String::new()] {
        fs::write(&path, &other).unwrap();
        let said = export();
        assert_eq!((said.exit, counts(&said)), (5, [0, 0, 8]), "{said:?}");
        assert_eq!(said.json()["troubles"][0]["code"], "FILE_DIFFERS");
        assert_eq!(fs::read_to_string(&path).unwrap(), other);
    }
    fs::remove_file(&path).unwrap();
    symlink(desk.path("elsewhere"), &path).unwrap();
    let said = export();
    assert_eq!((said.exit, &said.json()["troubles"][0]["code"]), (5, &json!("FILE_FOREIGN")));
    assert!(!desk.path("elsewhere").exists());
}

#[test]
fn a_damaged_session_is_told_of_and_the_others_are_exported() {
    let desk = Desk::new();
    rich(&desk.store());
    let raw = rusqlite::Connection::open(desk.path("desk.db")).unwrap();
    raw.execute("UPDATE event SET body = replace(body, 'once', '0nce') WHERE sid = (SELECT sid FROM session WHERE id = 'once')", []).unwrap();
    raw.execute("UPDATE event SET crc = crc + 1 WHERE seq = 1 AND sid = (SELECT sid FROM session WHERE id = 'once')", []).unwrap();
    drop(raw);
    let said = desk.run(&["export", "--all", "--to", "out"]);
    assert_eq!(said.exit, 7);
    insta::assert_snapshot!(said.all(), @r#"
    exit 7
    8 sessions in out: 8 written, 0 replaced, 0 unchanged
    ---
    session once is damaged at event 0: checksum mismatch
    error[EXPORT_DAMAGED]: 1 session not exported, 1 damaged
    help: what is damaged is named above; the others were exported
    "#);
    assert_eq!(files(&desk.path("out")).len(), 8);
    assert!(!desk.path("out/root/once.jsonl").exists());
}

const PROGRAM: &str = r#"
[run]
root = "editor"

[agents.editor]
behavior = "script"
turns = [[{ say = "one" }], [{ say = "two" }], [{ say = "three" }]]

[agents.reporter]
behavior = "script"
turns = []
"#;

#[test]
fn of_what_waits_an_import_speaks_only_where_something_does() {
    let desk = Desk::new();
    cli::root(&desk.store(), "idle", "nothing to do", 1_000);
    assert_eq!(desk.run(&["export", "idle", "--to", "idle"]).exit, 0);
    insta::assert_snapshot!(other(&desk, &["import", "idle"]).all(), @r#"
    exit 0
    1 imported, 0 skipped, 0 refused, 0 damaged
    ---
    "#);
}

#[test]
fn what_was_imported_waits_and_is_served_once_when_it_is_activated() {
    let desk = Desk::new();
    let store = desk.store();
    cli::root(&store, "root", "a root", 1_000);
    cli::accept(&store, "root", "m0", "First.");
    let fence = open(&store, "root");
    cli::accept(&store, "root", "m1", "Second.");
    drop((store, fence));
    desk.write("desk.toml", PROGRAM);
    assert_eq!(desk.run(&["export", "--all", "--to", "out"]).exit, 0);
    assert_eq!(other(&desk, &["import", "out"]).exit, 0);

    // Its turn was cut off, and it waits all the same.
    let said = other(&desk, &["run", "desk.toml", "--root", "root"]);
    insta::assert_snapshot!(said.all(), @r#"
    exit 5
    ---
    error[NOT_ACTIVATED]: session root was imported and waits to be activated
    help: `greenroom import DIR --activate` lets it run, DIR being the folder that it was imported from
    "#);
    let said = other(&desk, &["list", "--json"]);
    assert_eq!((&said.json()["entries"][0]["held"], &said.json()["entries"][0]["turn"]), (&json!(true), &json!("interrupted")));
    assert_eq!(other(&desk, &["show", "root", "--json"]).json()["held"], json!(true));
    let said = other(&desk, &["show", "root"]);
    assert!(said.out.contains("held        2 records wait to be activated: `greenroom import DIR --activate`"), "{said:?}");
    let said = other(&desk, &["send", "root", "Third.", "--message-id", "m2"]);
    insta::assert_snapshot!(said.all(), @r#"
    exit 0
    message queued as the next turn for subagent root
    ---
    session root was imported and is held: the message waits behind what came with it, until `greenroom import DIR --activate`
    "#);

    // What is there has moved on by that message, and is activated all the same.
    let said = other(&desk, &["import", "out", "--activate"]);
    insta::assert_snapshot!(said.all(), @r#"
    exit 5
    0 imported, 0 skipped, 1 refused, 0 damaged, 1 activated
    ---
    out/_root/root.jsonl: session root is in the store and is another one
    error[IMPORT_REFUSED]: 1 session refused, 0 damaged
    help: what was refused is named above and was left as it is; the others were imported
    "#);
    let said = other(&desk, &["run", "desk.toml", "--root", "root"]);
    assert_eq!((said.exit, said.out.as_str()), (0, "three\n"), "{said:?}");
    let log = other(&desk, &["log", "root", "--json"]);
    let events: Vec<Value> = log.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let started: Vec<_> =
        events.iter().filter(|event| event["type"] == "turn/start").map(|event| (event["data"]["message"].clone(), event["data"]["attempt"].clone())).collect();
    let expected: Vec<_> = [("m0", 1), ("m0", 2), ("m1", 1), ("m2", 1)].map(|(message, attempt)| (json!(message), json!(attempt))).into();
    assert_eq!(started, expected);
    assert_eq!(other(&desk, &["run", "desk.toml", "--root", "root"]).exit, 0);
    assert_eq!(other(&desk, &["list", "--json"]).json()["entries"][0]["held"], json!(false));
}

#[test]
fn a_session_that_differs_is_refused_and_the_others_go_on() {
    let desk = Desk::new();
    rich(&desk.store());
    assert_eq!(desk.run(&["export", "--all", "--to", "out"]).exit, 0);
    let store = SqliteStore::open(desk.path("other.db")).unwrap();
    cli::root(&store, "root", "another root", 1_000);
    cli::child(&store, "orphan", "nowhere", &continuable("lost"), 1_000);
    let mut alias = continuable("the alias is taken");
    alias.alias = Some("r1".into());
    cli::child(&store, "taken", "root", &alias, 1_000);
    commit(&store, Op::Create(Create::root(NewSession::root(id("gone")), "editor", "gone")));
    commit(&store, Op::Remove(Remove { session: id("gone"), discard: false }));
    drop(store);
    // One whose id was removed there.
    cli::root(&desk.store(), "gone", "gone", 1_000);
    assert_eq!(desk.run(&["export", "gone", "--to", "out"]).exit, 0);
    let said = other(&desk, &["import", "out", "--json"]);
    let json = said.json();
    assert_eq!((said.exit, &json["imported"], &json["skipped"], &json["refused"], &json["damaged"]), (5, &json!(6), &json!(1), &json!(3), &json!(0)));
    let codes: Vec<_> = json["troubles"].as_array().unwrap().iter().map(|trouble| (trouble["session"].clone(), trouble["code"].clone())).collect();
    let expected = [("gone", "SESSION_REMOVED"), ("root", "SESSION_EXISTS"), ("Ümlaut/../x", "ALIAS_TAKEN")];
    assert_eq!(codes, expected.map(|(session, code)| (json!(session), json!(code))));
    let said = other(&desk, &["import", "out"]);
    assert_eq!(said.exit, 5);
    insta::assert_snapshot!(said.all().replace(&desk.folder().display().to_string(), "<desk>"), @r#"
    exit 5
    0 imported, 7 skipped, 3 refused, 0 damaged
    ---
    out/_root/gone.jsonl: session gone was removed
    out/_root/root.jsonl: session root is in the store and is another one
    out/root/~c3~9cmlaut~2f..~2fx.jsonl: alias "r1" is taken
    error[IMPORT_REFUSED]: 3 sessions refused, 0 damaged
    help: what was refused is named above and was left as it is; the others were imported
    "#);
}

/// A session of one message and one turn, as an export.
fn small(desk: &Desk) -> Vec<String> {
    let store = SqliteStore::open(desk.path("small.db")).unwrap();
    cli::root(&store, "small", "a small one", 1_000);
    cli::accept(&store, "small", "m0", "Begin.");
    let fence = open(&store, "small");
    append(&store, &fence, vec![Body::TurnEnd { turn: 1, reason: TurnEnd::Completed }], vec![]);
    close(&store, &fence);
    cli::accept(&store, "small", "m1", "Go on.");
    let url = format!("sqlite:{}", desk.path("small.db").display());
    assert_eq!(desk.run(&["export", "small", "--to", "small", "--store", &url]).exit, 0);
    let lines = fs::read_to_string(desk.path("small/_root/small.jsonl")).unwrap();
    lines.lines().map(str::to_owned).collect()
}

#[test]
fn every_damage_is_told_with_its_file_its_line_and_its_byte() {
    let desk = Desk::new();
    let whole = small(&desk);
    assert_eq!(whole.len(), 1 + 7 + 2);
    fs::create_dir_all(desk.path("in/_root")).unwrap();
    cli::root(&desk.store(), "healthy", "a healthy one", 1_000);
    assert_eq!(desk.run(&["export", "healthy", "--to", "in"]).exit, 0);
    let path = desk.path("in/_root/small.jsonl");
    let byte_of = |lines: &[String], line: usize| lines[..line - 1].iter().map(|line| line.len() + 1).sum::<usize>();
    let mut cases: Vec<(String, Vec<String>, usize, &str)> = Vec::new();
    for line in 1..=whole.len() {
        // One changed digit of each line, in its middle or in its checksum.
        let mut lines = whole.clone();
        let at = lines[line - 1].len() - 4;
        let digit = if lines[line - 1].as_bytes()[at] == b'0' { "1" } else { "0" };
        lines[line - 1].replace_range(at..=at, digit);
        cases.push((format!("a changed checksum of line {line}"), lines, line, "checksum mismatch"));
        if line > 1 {
            let mut lines = whole.clone();
            lines[line - 1] = "{}".into();
            cases.push((format!("no record in line {line}"), lines, line, "does not end with a checksum"));
        }
    }
    let changed = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = whole.clone();
        change(&mut lines);
        lines
    };
    cases.extend([
        ("a missing event".to_owned(), changed(&|lines| drop(lines.remove(3))), 4, "misplaced record"),
        ("a second header".into(), changed(&|lines| lines.insert(2, lines[0].clone())), 3, "a second header"),
        ("a missing message".into(), changed(&|lines| drop(lines.remove(8))), 9, "messages before it are missing"),
        ("a message twice".into(), changed(&|lines| lines.insert(9, lines[8].clone())), 10, "was there before"),
        ("a line too much".into(), changed(&|lines| lines.push(lines[1].clone())), 11, "misplaced record"),
        ("a foreign line".into(), changed(&|lines| lines.insert(1, "dear diary".into())), 2, "does not end with a checksum"),
        ("an event that does not follow".into(), changed(&|lines| drop(lines.drain(4..8))), 5, "it has left, but the log does not say so"),
        ("no header".into(), changed(&|lines| drop(lines.remove(0))), 1, "does not begin with a session's header"),
        ("nothing".into(), Vec::new(), 1, "does not begin with a session's header"),
    ]);
    for (n, (what, lines, line, says)) in cases.iter().enumerate() {
        fs::write(&path, lines.join("\n") + if lines.is_empty() { "" } else { "\n" }).unwrap();
        let said = other(&desk, &["import", "in", "--json"]);
        let json = said.json();
        assert_eq!((said.exit, &json["damaged"], json["troubles"].as_array().unwrap().len()), (7, &json!(1), 1), "{what}: {said:?}");
        assert_eq!(json["imported"], json!(u64::from(n == 0)), "{what}: the healthy one is imported");
        let trouble = &json["troubles"][0];
        assert_eq!((&trouble["line"], &trouble["byte"]), (&json!(line), &json!(byte_of(lines, (*line).min(lines.len() + 1)))), "{what}: {trouble}");
        let message = trouble["message"].as_str().unwrap();
        assert!(message.contains(says) && message.contains("in/_root/small.jsonl:"), "{what}: {message}");
        assert!(said.err.contains(&format!("in/_root/small.jsonl:{line} (byte ")), "{what}: {said:?}");
    }
    // A file that is cut off anywhere but at the end of a line.
    let text = whole.join("\n") + "\n";
    for cut in (1..text.len()).filter(|cut| !text[..*cut].ends_with('\n')).step_by(37) {
        fs::write(&path, &text[..cut]).unwrap();
        let said = other(&desk, &["import", "in", "--json"]);
        assert_eq!((said.exit, &said.json()["damaged"]), (7, &json!(1)), "cut at {cut}: {said:?}");
    }
    assert_eq!(other(&desk, &["show", "small"]).exit, 4, "nothing of it was imported");
    fs::write(&path, text).unwrap();
    let said = other(&desk, &["import", "in", "--json"]);
    assert_eq!((said.exit, &said.json()["imported"]), (0, &json!(1)));
}

#[test]
fn what_is_no_file_of_a_session_is_refused_or_left_out() {
    let desk = Desk::new();
    small(&desk);
    let file = desk.path("small/_root/small.jsonl");
    let inside = |name: &str| desk.path("small").join(name);
    // Left out: what another program, or this one, keeps beside sessions.
    fs::write(inside("README"), "hello").unwrap();
    fs::write(inside("_root/notes.txt"), "hello").unwrap();
    fs::write(inside("_root/.small.0123.part"), "half").unwrap();
    fs::write(inside("stray.jsonl"), "hello").unwrap();
    assert_eq!(other(&desk, &["import", "small"]).exit, 0);
    // Refused: a link, whatever it leads to, a folder, another place.
    let elsewhere = desk.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::copy(&file, elsewhere.join("linked.jsonl")).unwrap();
    symlink(&elsewhere, inside("parent")).unwrap();
    symlink(&file, inside("_root/other.jsonl")).unwrap();
    symlink(desk.path("nothing"), inside("_root/dangling.jsonl")).unwrap();
    fs::create_dir(inside("_root/folder.jsonl")).unwrap();
    fs::copy(&file, inside("_root/smal.jsonl")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, inside("_root/pipe.jsonl"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let said = other(&desk, &["import", "small", "--json"]);
    let json = said.json();
    assert_eq!((said.exit, &json["refused"], &json["damaged"], &json["skipped"]), (5, &json!(6), &json!(0), &json!(1)), "{said:?}");
    let mut codes: Vec<_> = json["troubles"].as_array().unwrap().iter().map(|trouble| trouble["code"].as_str().unwrap().to_owned()).collect();
    codes.sort();
    assert_eq!(codes, ["FILE_FOREIGN", "FILE_FOREIGN", "FILE_FOREIGN", "FILE_FOREIGN", "FILE_FOREIGN", "FILE_MISPLACED"]);

    let said = other(&desk, &["import", "nowhere"]);
    assert!(said.exit == 4 && said.err.starts_with("error[FOLDER_NOT_FOUND]: "), "{said:?}");
    let fresh = format!("sqlite:{}", desk.path("fresh.db").display());
    assert_eq!(desk.run(&["import", "nowhere", "--store", &fresh]).exit, 4);
    assert!(!desk.path("fresh.db").exists(), "a folder that is not there makes no store");
    assert_eq!(desk.run(&["import", "small", "--store", "memory:"]).exit, 4);
}

#[test]
fn an_import_that_was_killed_is_finished_by_the_same_command() {
    const SESSIONS: usize = 8;
    let desk = Desk::new();
    let store = desk.store();
    for n in 0..SESSIONS {
        let name = format!("session-{n}");
        cli::root(&store, &name, "a large one", 1_000);
        for message in 0..3 {
            cli::accept(&store, &name, &format!("m{message}"), &"x".repeat(1 << 20));
        }
    }
    drop(store);
    assert_eq!(desk.run(&["export", "--all", "--to", "out"]).exit, 0);
    let url = format!("sqlite:{}", desk.path("other.db").display());
    let mut child = desk.command(&["import", "out", "--activate", "--store", &url]).stdout(Stdio::null()).spawn().unwrap();
    // Killed as soon as anything of it can be seen.
    loop {
        let seen = desk.path("other.db").exists() && other(&desk, &["list", "--json"]).json()["entries"].as_array().is_some_and(|entries| !entries.is_empty());
        if seen || child.try_wait().unwrap().is_some() {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let said = other(&desk, &["import", "out", "--activate", "--json"]);
    let json = said.json();
    let count = |key: &str| usize::try_from(json[key].as_u64().unwrap()).unwrap();
    assert_eq!((said.exit, count("imported") + count("skipped")), (0, SESSIONS), "{said:?}");
    assert!(count("skipped") > 0);
    assert_eq!(other(&desk, &["export", "--all", "--to", "again"]).exit, 0);
    assert_eq!(files(&desk.path("again")), files(&desk.path("out")));
}

#[test]
fn a_session_is_removed_with_what_it_takes_and_for_ever() {
    let desk = Desk::new();
    let store = desk.store();
    rich(&store);
    desk.write("desk.toml", PROGRAM);
    let exit = |words: &[&str]| desk.run(words).exit;
    // Nobody can be asked here.
    let said = desk.run(&["rm", "plain"]);
    assert!(said.exit == 2 && said.err.contains("error[USAGE]: nobody is here to be asked"), "{said:?}");
    let said = desk.run(&["rm", "root", "--yes"]);
    insta::assert_snapshot!(said.all(), @r#"
    exit 5
    ---
    error[HAS_CHILDREN]: session root has 6 sessions below it
    help: `greenroom rm ID --tree` removes the session with everything below it
    "#);
    let said = desk.run(&["rm", "root", "--tree", "--yes"]);
    insta::assert_snapshot!(said.all(), @r#"
    exit 1
    ---
    Ümlaut/../x: 1 message pending
    interrupted: 1 message pending, a turn that is not finished
    root: 1 message pending
    error[PENDING]: 3 sessions have work still to do
    help: messages wait; run the session first, or discard them: `greenroom rm --discard-pending`
    "#);
    let fence = open(&store, "once");
    let said = desk.run(&["rm", "root", "--tree", "--yes", "--discard-pending"]);
    assert!(said.exit == 6 && said.err.starts_with("error[SESSION_HELD]: session once is held"), "{said:?}");
    close(&store, &fence);
    assert_eq!(desk.run(&["list", "root", "--all", "--json"]).json()["entries"].as_array().unwrap().len(), 5, "nothing is gone yet");

    let said = desk.run(&["rm", "plain", "--yes", "--json"]);
    assert_eq!((said.exit, said.json()), (0, json!({"removed": ["plain"]})));
    let said = desk.run(&["rm", "root", "--tree", "--yes", "--discard-pending"]);
    insta::assert_snapshot!(said.all(), @r#"
    exit 0
    removed Ümlaut/../x
    removed once
    removed interrupted
    removed fork
    removed broken
    removed root
    ---
    "#);
    for words in [
        &["show", "root"][..],
        &["log", "root"],
        &["list", "root"],
        &["send", "root", "hello"],
        &["run", "desk.toml", "--root", "root"],
        &["rm", "root", "--yes"],
        &["export", "root", "--to", "out"],
    ] {
        let said = desk.run(words);
        assert!(said.exit == 4 && said.err.starts_with("error[SESSION_REMOVED]: session root was removed\n"), "{words:?}: {said:?}");
    }
    assert_eq!(exit(&["show", "nobody"]), 4);
    assert_eq!(exit(&["rm", "orphan", "--yes"]), 0);
    assert_eq!(desk.run(&["list", "--json"]).json()["entries"].as_array().unwrap().len(), 1);
}

#[test]
fn a_tree_that_was_removed_by_half_is_finished_by_the_same_command() {
    let desk = Desk::new();
    let store = desk.store();
    cli::root(&store, "root", "a root", 1_000);
    for n in 0..3 {
        cli::child(&store, &format!("child-{n}"), "root", &continuable("a child"), 1_000);
        for leaf in 0..3 {
            let session = NewSession::child(id(&format!("leaf-{n}-{leaf}")), id(&format!("child-{n}")), 1);
            commit(&store, Op::Create(Create::child(session, Vec::new(), &continuable("a leaf"), None, 1_000).unwrap()));
        }
    }
    // As far as a run came that was killed: leaves first.
    for gone in ["leaf-2-2", "leaf-2-1", "leaf-2-0", "leaf-1-2"] {
        commit(&store, Op::Remove(Remove { session: id(gone), discard: false }));
    }
    let said = desk.run(&["rm", "root", "--tree", "--yes", "--json"]);
    let removed: Vec<String> = serde_json::from_value(said.json()["removed"].clone()).unwrap();
    let expected = ["leaf-1-1", "leaf-1-0", "leaf-0-2", "leaf-0-1", "leaf-0-0", "child-2", "child-1", "child-0", "root"];
    assert_eq!((said.exit, removed), (0, expected.map(str::to_owned).to_vec()));
    assert_eq!(desk.run(&["list", "--json"]).json()["entries"], json!([]));
}

#[test]
fn a_damaged_session_is_removed_when_that_is_said() {
    let desk = Desk::new();
    rich(&desk.store());
    let raw = rusqlite::Connection::open(desk.path("desk.db")).unwrap();
    raw.execute("UPDATE event SET crc = crc + 1 WHERE seq = 1 AND sid = (SELECT sid FROM session WHERE id = 'once')", []).unwrap();
    let said = desk.run(&["rm", "once", "--yes"]);
    assert_eq!(said.exit, 1);
    insta::assert_snapshot!(said.all(), @r#"
    exit 1
    ---
    session once is damaged at event 1: checksum mismatch
    error[PENDING]: 1 session is damaged, so that nobody knows what waits
    help: bring it back from a backup or an export, or remove it as it is: `greenroom rm --discard-pending`
    "#);
    assert_eq!(desk.run(&["rm", "once", "--yes", "--discard-pending"]).exit, 0);
    assert!(matches!(desk.store().commit(&[Op::Remove(Remove { session: id("once"), discard: false })]).unwrap()[..], [Ok(Done::Removed)]));
}
