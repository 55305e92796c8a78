//! The program over a folder of JSON Lines.

use std::{fs, process::Command};

use greenroom::session::store::{Store, jsonl::JsonlStore};
use serde_json::json;

use crate::cli::{self, Desk, Said, continuable, id};

/// The program over the folder `store` of a desk.
fn command(desk: &Desk, words: &[&str]) -> Command {
    let mut command = desk.command(words);
    command.env("GREENROOM_STORE", format!("jsonl:{}", desk.path("store").display()));
    command
}

fn run(desk: &Desk, words: &[&str]) -> Said {
    Said::of(&command(desk, words).output().unwrap())
}

const PROGRAM: &str = r#"
[run]
root = "editor"
prompt = "Begin."

[agents.editor]
behavior = "script"
turns = [ [ { delegate = { agent = "reporter", as = "r", description = "collect facts", prompt = "one" } }, { await = "children" }, { say = "done" } ] ]

[agents.reporter]
behavior = "script"
turns = [ [ { say = "first" } ], [ { say = "second" } ] ]
"#;

#[test]
fn a_run_its_listing_and_what_is_sent_afterwards() {
    let desk = Desk::new();
    desk.write("program.toml", PROGRAM);
    let said = run(&desk, &["run", "program.toml"]);
    assert_eq!((said.exit, said.out.as_str()), (0, "done\n"), "{said:?}");
    let roots = run(&desk, &["list", "--json"]).json();
    let root = roots["entries"][0]["id"].as_str().unwrap().to_owned();
    let children = run(&desk, &["list", &root, "--json"]).json();
    let child = children["entries"][0]["id"].as_str().unwrap().to_owned();
    assert!(desk.path("store").join(&root).join(format!("{child}.jsonl")).is_file());
    for _ in 0..3 {
        // One after the other, each is the one writer.
        assert_eq!(run(&desk, &["send", &child[..6], "More.", "--message-id", "m1"]).exit, 0);
    }
    assert_eq!(run(&desk, &["show", &child, "--json"]).exit, 0);
    let store = JsonlStore::open_existing(desk.path("store")).unwrap();
    assert_eq!(store.reader().unwrap().load(&id(&child)).unwrap().fold.head().pending_turns, 1);
}

#[test]
fn a_second_writer_is_told_who_has_the_folder_and_readers_are_not_disturbed() {
    let desk = Desk::new();
    let store = JsonlStore::open(desk.path("store")).unwrap();
    cli::root(&store, "root-one", "launch story", 100);
    cli::child(&store, "child-1", "root-one", &continuable("collect facts"), 200);
    let said = run(&desk, &["send", "child-1", "hello"]);
    assert_eq!((said.exit, said.out.as_str()), (6, ""));
    let line = format!(
        "error[STORE_LOCKED]: process {} writes to {}, and a JSON Lines store takes one writer at a time",
        std::process::id(),
        desk.path("store").canonicalize().unwrap().display()
    );
    assert_eq!(said.err.lines().next(), Some(line.as_str()));
    assert!(said.err.contains("`sqlite:` store"), "{}", said.err);
    let list = run(&desk, &["list", "root-one", "--json"]);
    assert_eq!((list.exit, &list.json()["entries"][0]["id"]), (0, &json!("child-1")));
}

#[test]
fn what_is_no_store_is_refused_and_left_as_it_was() {
    let desk = Desk::new();
    fs::create_dir(desk.path("store")).unwrap();
    desk.write("store/letter.txt", "Dear");
    desk.write("program.toml", PROGRAM);
    for words in [&["run", "program.toml"][..], &["list"], &["send", "x", "hello"]] {
        let said = run(&desk, words);
        assert!(said.err.starts_with("error[STORE_FOREIGN]"), "{said:?}");
    }
    assert_eq!(fs::read_dir(desk.path("store")).unwrap().count(), 1);
}
