//! `greenroom rm`: a session goes with what is below it, only when that is said, and for ever.

use std::fs;

use greenroom::session::{
    header::NewSession,
    store::{Create, Done, Op, Remove, Store, jsonl::JsonlStore},
};
use serde_json::json;

use crate::{
    cli::{self, Desk, commit, continuable, id},
    transfer_world::{PROGRAM, close, open, other, rich},
};

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
