//! `greenroom check`: what is found, how it is told, and that the index is derived again.

use std::{fs, process::Stdio};

use greenroom::session::store::{Store, jsonl::JsonlStore, sqlite::SqliteStore};
use rusqlite::Connection;
use serde_json::json;

use crate::cli::{self, Desk, continuable};

/// A root with a child and a waiting message, whose processes have ended.
fn desk() -> Desk {
    let desk = Desk::new();
    let store = desk.store();
    cli::root(&store, "root-one", "launch story", 100);
    cli::child(&store, "child-1", "root-one", &continuable("collect facts"), 400);
    cli::accept(&store, "child-1", "m1", "hello");
    store.close().unwrap();
    desk
}

fn raw(desk: &Desk, sql: &str) {
    Connection::open(desk.path("desk.db")).unwrap().execute_batch(sql).unwrap();
}

/// Puts the time out of the summary.
fn timeless(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(" in ") {
        Some((before, rest)) if line.starts_with("checked ") => format!("{before} in <time>:{}", rest.split_once(':').unwrap().1),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_healthy_store_is_told_to_be_one() {
    let desk = desk();
    let before = desk.bytes();
    insta::assert_snapshot!(timeless(&desk.run(&["check"]).all()), @r#"
    exit 0
    ---
    checked 2 sessions, 4 events, 1 message in <time>: no findings
    "#);
    insta::assert_snapshot!(timeless(&desk.run(&["check", "child"]).all()), @r#"
    exit 0
    ---
    checked 1 session, 2 events, 1 message in <time>: no findings
    "#);
    let said = desk.run(&["check", "--json"]);
    assert_eq!((said.exit, said.json()), (0, json!({"schema_version": 1, "sessions": 2, "events": 4, "messages": 1, "findings": [], "ok": true})));
    assert!(desk.bytes() == before, "a check wrote");
    assert_eq!(desk.run(&["check", "nobody"]).exit, 4);
}

#[test]
fn every_fault_has_a_line_and_the_exit_says_so() {
    let desk = desk();
    raw(
        &desk,
        "UPDATE event SET crc = 0 WHERE sid = 2 AND seq = 0; DELETE FROM event WHERE sid = 1 AND seq = 0; CREATE TABLE \"a\u{1b}[31mb\"(x); DELETE FROM tally;",
    );
    insta::assert_snapshot!(timeless(&desk.run(&["check"]).all()), @r#"
    exit 7
    child-1 event 0: checksum: checksum mismatch
    root-one event 0: seq_gap: event 0 is missing
    table a\u{1b}[31mb: foreign_object: it is not the store's
    index tally: index_missing: the store has no tally
    ---
    checked 2 sessions, 3 events, 1 message in <time>: 1 checksum, 1 seq_gap, 1 index_missing, 1 foreign_object
    error[FAULTS_FOUND]: 3 faults: 1 checksum, 1 seq_gap, 1 index_missing
    help: checksum: a bit has changed on the disk or somebody edited the record; bring the session back from a backup or an export
          seq_gap: bring the session back from a backup or an export
          index_missing: `greenroom check --rebuild-index` derives it again
    "#);
    insta::assert_snapshot!(timeless(&desk.run(&["check", "root-one"]).all()), @r#"
    exit 7
    root-one event 0: seq_gap: event 0 is missing
    ---
    checked 1 session, 1 event, 0 messages in <time>: 1 seq_gap
    error[FAULTS_FOUND]: 1 fault: 1 seq_gap
    help: seq_gap: bring the session back from a backup or an export
    "#);
    let said = desk.run(&["check", "--json", "child"]);
    assert_eq!(said.exit, 7);
    assert_eq!(
        said.json(),
        json!({
            "schema_version": 1, "sessions": 1, "events": 2, "messages": 1, "ok": false,
            "error": {
                "code": "FAULTS_FOUND", "message": "1 fault: 1 checksum",
                "help": "checksum: a bit has changed on the disk or somebody edited the record; bring the session back from a backup or an export",
            },
            "findings": [{
                "class": "checksum", "severity": "damage", "session": "child-1", "place": "event 0", "seq": 0, "what": "checksum mismatch",
                "help": "a bit has changed on the disk or somebody edited the record; bring the session back from a backup or an export",
            }],
        })
    );
}

#[test]
fn what_is_only_worth_knowing_is_no_failure() {
    let desk = desk();
    cli::child(&desk.store(), "orphan", "nobody", &continuable("lost its parent"), 500);
    insta::assert_snapshot!(timeless(&desk.run(&["check"]).all()), @r#"
    exit 0
    orphan header: orphan: its parent nobody is not in the store
    ---
    checked 3 sessions, 6 events, 1 message in <time>: 1 orphan
    "#);
}

#[test]
fn the_index_is_derived_again() {
    let desk = desk();
    let healthy = desk.run(&["list", "root-one", "--json"]);
    raw(
        &desk,
        "UPDATE summary SET head = '{}', work = 7; DELETE FROM tally; INSERT INTO orphan VALUES('nobody'); INSERT INTO summary SELECT 99, head, 1, 1, '', 1, 1, NULL, NULL FROM summary WHERE sid = 1",
    );
    assert_eq!(desk.run(&["check"]).exit, 7);
    assert_eq!(desk.run(&["list", "root-one", "--json"]), healthy);
    insta::assert_snapshot!(timeless(&desk.run(&["check", "--rebuild-index"]).all()), @r#"
    exit 0
    ---
    rebuilt: child-1: derived again
    rebuilt: root-one: derived again
    rebuilt: one row of no session was removed
    rebuilt: missing parents: derived again
    rebuilt: tally: derived again
    checked 2 sessions, 4 events, 1 message in <time>: no findings
    "#);
    assert_eq!(desk.run(&["check"]).exit, 0);
    assert_eq!(desk.run(&["list", "root-one", "--json"]), healthy);
    let said = desk.run(&["check", "--rebuild-index", "--json"]);
    assert_eq!(said.json()["rebuilt"], json!({"sessions": [], "left": [], "removed": 0, "orphans": false, "tally": false}));
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
}

#[test]
fn the_index_is_derived_again_beside_a_process_that_has_the_store_open() {
    let desk = desk();
    let store: SqliteStore = desk.store();
    cli::accept(&store, "child-1", "m2", "before");
    raw(&desk, "UPDATE summary SET head = '{}'");
    assert_eq!(desk.run(&["check", "--rebuild-index"]).exit, 0);
    cli::accept(&store, "child-1", "m3", "after");
    assert_eq!(desk.run(&["check"]).exit, 0);
}

#[test]
fn a_fault_in_a_file_is_told_with_its_line_and_its_byte() {
    let desk = Desk::new();
    let store = JsonlStore::open(desk.path("sessions")).unwrap();
    cli::root(&store, "root-one", "launch story", 100);
    store.close().unwrap();
    drop(store);
    let url = format!("jsonl:{}", desk.path("sessions").display());
    assert_eq!(desk.run(&["check", "--store", &url]).exit, 0);
    let path = desk.path("sessions/_root/root-one.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("launch", "lunch!")).unwrap();
    let offset = text.find('\n').unwrap() + 1;
    let said = desk.run(&["check", "--store", &url]);
    assert_eq!((said.exit, said.out), (7, format!("root-one event 0 at _root/root-one.jsonl:2 (byte {offset}): checksum: checksum mismatch\n")));
    let finding = &desk.run(&["check", "--store", &url, "root-one", "--json"]).json()["findings"][0];
    assert_eq!((&finding["path"], &finding["line"], &finding["offset"]), (&json!("_root/root-one.jsonl"), &json!(2), &json!(offset)));
}

const PROGRAM: &str = r#"
[run]
root = "editor"
prompt = "Go."

[agents.editor]
behavior = "script"
turns = [[
  { repeat = { times = 40, steps = [ { delegate = { agent = "reporter", description = "one more", prompt = "Go." } } ] } },
  { await = "children" },
  { say = "done" },
]]

[agents.reporter]
behavior = "script"
turns = [[ { memo = "looking" }, { report = "found" }, { say = "done" } ]]
"#;

#[test]
fn a_check_beside_a_run_finds_nothing_and_the_store_of_a_run_is_healthy() {
    let desk = Desk::new();
    desk.write("go.toml", PROGRAM);
    drop(desk.store());
    let mut run = desk.command(&["run", "go.toml"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut checks = 0;
    while run.try_wait().unwrap().is_none() {
        let said = desk.run(&["check"]);
        assert_eq!((said.exit, said.out.as_str()), (0, ""), "{said:?}");
        checks += 1;
    }
    assert!(run.wait().unwrap().success() && checks > 0);
    let said = desk.run(&["check", "--json"]).json();
    assert_eq!((&said["findings"], &said["sessions"]), (&json!([]), &json!(41)));
}

#[test]
fn a_lease_that_a_kill_left_is_a_notice() {
    let desk = Desk::new();
    desk.write("go.toml", &PROGRAM.replace("times = 40", "times = 4000"));
    drop(desk.store());
    let mut run = desk.command(&["run", "go.toml"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while desk.run(&["list"]).out.is_empty() || !desk.run(&["list"]).out.contains("[running]") {
        assert!(run.try_wait().unwrap().is_none(), "the run ended before it was killed");
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let said = desk.run(&["check"]);
    assert_eq!(said.exit, 0, "{said:?}");
    assert!(said.out.starts_with("lease: lease_of_nobody: ") && said.out.lines().count() == 1, "{said:?}");
    fs::remove_dir_all(desk.path("home")).unwrap_or_default();
}
