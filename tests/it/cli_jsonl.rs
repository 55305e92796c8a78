//! The program over a folder of JSON Lines.

use std::{fs, process::Command};

use greenroom::session::store::{Store, jsonl::JsonlStore};
use rusqlite::Connection;
use serde_json::json;

use crate::cli::{self, Desk, Kind, Said, continuable, id};

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

/// The ids of the root and of its child, after a run of the program.
fn ran(desk: &Desk) -> (String, String) {
    desk.write("program.toml", PROGRAM);
    assert_eq!(desk.run(&["run", "program.toml"]).exit, 0);
    let first = |said: Said| said.json()["entries"][0]["id"].as_str().unwrap().to_owned();
    let root = first(desk.run(&["list", "--json"]));
    let child = first(desk.run(&["list", &root, "--json"]));
    (root, child)
}

#[test]
fn a_run_tells_of_a_session_that_cannot_be_read_and_may_have_work() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        let (root, child) = ran(&desk);
        assert_eq!(desk.run(&["send", &child, "More."]).exit, 0);
        match kind {
            Kind::Sqlite => {
                let changed = "UPDATE event SET crc = crc + 1 WHERE seq = 2 AND sid = (SELECT sid FROM session WHERE id = ?1)";
                assert_eq!(Connection::open(desk.path("desk.db")).unwrap().execute(changed, [&child]).unwrap(), 1);
            }
            Kind::Jsonl => {
                let file = desk.path("desk").join(&root).join(format!("{child}.jsonl"));
                let mut lines: Vec<Vec<u8>> = fs::read(&file).unwrap().split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
                lines[3][20] ^= 1;
                fs::write(&file, lines.concat()).unwrap();
            }
        }
        let said = desk.run(&["run", "program.toml", "--root", &root]);
        assert_eq!(said.exit, 1, "{kind:?}: {said:?}");
        assert!(said.err.contains(&format!("{child} has work and cannot run [SESSION_CORRUPT]: ")), "{kind:?}: {said:?}");
        assert!(said.err.contains("1 session has work and cannot run"), "{kind:?}: {said:?}");
    }
}

#[test]
fn a_last_record_that_has_rotted_is_told_until_somebody_has_looked_at_it() {
    let desk = Desk::over(Kind::Jsonl);
    let (root, child) = ran(&desk);
    let file = desk.path("desk").join(&root).join(format!("{child}.jsonl"));
    assert_eq!(desk.run(&["send", &child, "One more."]).exit, 0);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.lines().next_back().unwrap().contains("One more."), "{text}");
    fs::write(&file, text.replace("One more.", "One mare.")).unwrap();
    let said = desk.run(&["check"]);
    assert!(said.exit == 7 && said.out.contains("checksum"), "{said:?}");
    let said = desk.run(&["send", &child, "And more."]);
    assert!(said.exit == 0 && said.err.contains("does not fit its checksum and is cut off"), "{said:?}");
    let said = desk.run(&["check"]);
    assert!(said.exit == 7 && said.out.contains("damaged_tail") && said.out.contains(".jsonl.damaged-"), "{said:?}");
    let offset = text.trim_end().rfind('\n').unwrap() + 1;
    let copy = file.with_extension(format!("jsonl.damaged-{offset}"));
    assert_eq!(fs::read_to_string(&copy).unwrap(), text[offset..].replace("One more.", "One mare."));
    fs::remove_file(copy).unwrap();
    assert_eq!(desk.run(&["check"]).exit, 0);
}

#[test]
fn what_a_cut_off_write_has_left_is_no_fault() {
    let desk = Desk::over(Kind::Jsonl);
    let (root, child) = ran(&desk);
    let file = desk.path("desk").join(&root).join(format!("{child}.jsonl"));
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text + "{\"order\":2,\"held\":fa").unwrap();
    let said = desk.run(&["check"]);
    assert!(said.exit == 0 && said.out.contains("torn_tail"), "{said:?}");
    let said = desk.run(&["send", &child, "And more."]);
    assert_eq!((said.exit, said.err.contains("checksum")), (0, false), "{said:?}");
    let said = desk.run(&["check"]);
    assert!(said.exit == 0 && said.out.contains("leftover"), "{said:?}");
}
