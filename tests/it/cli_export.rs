//! `greenroom export`: a folder that grows with its store and loses nothing, and sessions that come back from it as they went.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use greenroom::session::{
    event::{Body, TurnEnd},
    store::{jsonl::JsonlStore, sqlite::SqliteStore},
};
use serde_json::json;

use crate::{
    cli::{self, Desk, Said},
    transfer_world::{append, files, open, other, rich},
};

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
