//! `greenroom send`.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use greenroom::session::{
    descriptor::{Descriptor, Mode},
    message::{MessageKind, Source},
    store::{Store, sqlite::SqliteStore},
};
use serde_json::json;

use crate::cli::{self, Desk, Said, continuable, id, redact};

const PROGRAM: &str = r#"
[run]
root = "editor"
prompt = "Begin."

[agents.editor]
behavior = "script"
turns = [
  [ { delegate = { agent = "reporter", as = "r", description = "collect facts", prompt = "one" } } ],
]

[agents.reporter]
behavior = "script"
turns = [ [ { say = "first" } ], [ { say = "second" } ], [ { fail = "no more" } ] ]
"#;

fn desk() -> (Desk, SqliteStore) {
    let desk = Desk::new();
    let store = desk.store();
    cli::root(&store, "root-one", "launch story", 100);
    cli::child(&store, "child-1", "root-one", &continuable("collect facts"), 200);
    let one_shot = Descriptor { mode: Mode::OneShot, label: None, ..continuable("x") };
    cli::child(&store, "one-shot", "root-one", &one_shot, 300);
    cli::odd_child(&store, "a-fork", "root-one", None, 400);
    (desk, store)
}

#[test]
fn a_message_is_accepted_and_nothing_runs() {
    let (desk, store) = desk();
    let said = desk.run(&["send", "child-1", "One more fact."]);
    assert_eq!(said, Said { exit: 0, out: "message queued as the next turn for subagent child-1\n".into(), err: String::new() });
    let inbox = store.reader().unwrap().inbox(&id("child-1"), 10).unwrap();
    let message = &inbox[0].message;
    assert_eq!((message.kind, message.text(), &message.source, message.wake), (MessageKind::Turn, "One more fact.".into(), &Source::User, true));
    assert_eq!(store.reader().unwrap().events(&id("child-1"), 0, 10).unwrap().len(), 2, "the log is as it was");
    assert!(store.reader().unwrap().leases(None).unwrap().is_empty());
}

#[test]
fn the_same_message_again_is_the_same_message() {
    let (desk, store) = desk();
    let send = |text: &str| desk.run(&["send", "chil", text, "--message-id", "m-1", "--json"]);
    assert_eq!(send("hello").json(), json!({"message_id": "m-1"}));
    assert_eq!(send("hello").json(), json!({"message_id": "m-1"}));
    assert_eq!(store.reader().unwrap().inbox(&id("child-1"), 10).unwrap().len(), 1);
    let other = send("other");
    assert_eq!((other.exit, &other.json()["error"]["code"]), (5, &json!("MESSAGE_ID_CONFLICT")));
}

#[test]
fn stdin_is_the_text_without_its_last_line_feed() {
    let (desk, store) = desk();
    assert_eq!(desk.run_with_stdin(&["send", "child-1", "-"], b"two\nlines\n").exit, 0);
    assert_eq!(desk.run(&["send", "child-1", "-v is a text here"]).exit, 0);
    let inbox = store.reader().unwrap().inbox(&id("child-1"), 10).unwrap();
    assert_eq!(inbox.iter().map(|record| record.message.text()).collect::<Vec<_>>(), ["two\nlines", "-v is a text here"]);
    let bad = desk.run_with_stdin(&["send", "child-1", "-"], b"ab\xff");
    assert_eq!((bad.exit, bad.err.lines().next()), (2, Some("error[USAGE]: stdin is not UTF-8: the first bad byte is at offset 2")));
}

#[test]
fn what_takes_no_messages_is_said() {
    let (desk, store) = desk();
    for (words, exit, code) in [
        (["send", "child-1", ""], 2, "MESSAGE_EMPTY"),
        (["send", "nobody", "hello"], 4, "SESSION_NOT_FOUND"),
        (["send", "one-shot", "hello"], 5, "NOT_RESUMABLE"),
        (["send", "a-fork", "hello"], 5, "NOT_RESUMABLE"),
    ] {
        let said = desk.run(&words);
        assert_eq!((said.exit, said.out.as_str()), (exit, ""), "{words:?}");
        assert!(said.err.starts_with(&format!("error[{code}]: ")), "{said:?}");
    }
    assert!(store.reader().unwrap().inbox(&id("one-shot"), 10).unwrap().is_empty());
}

#[test]
fn a_wait_for_nobody_times_out_with_its_place_and_a_hint() {
    let (desk, _store) = desk();
    assert_eq!(desk.run(&["send", "child-1", "before", "--message-id", "m-0"]).exit, 0);
    let said = desk.run(&["send", "child-1", "hello", "--message-id", "m-1", "--wait", "--timeout", "0s"]);
    insta::assert_snapshot!(said.all(), @r#"
    exit 3
    message queued as the next turn for subagent child-1
    ---
    error[TIMED_OUT]: message m-1 is accepted, and it is number 2 of those that wait
    help: nobody runs the session now: `greenroom run FILE.toml --root ROOT` serves it, and the message waits until then
    "#);
    let again = desk.run(&["send", "child-1", "hello", "--message-id", "m-1", "--wait", "--timeout", "0s", "--json"]);
    assert_eq!((again.exit, &again.json()["message_id"], &again.json()["error"]["code"]), (3, &json!("m-1"), &json!("TIMED_OUT")));
    assert_eq!(again.json()["position"], 2, "the same message has kept its place");
    assert_eq!(desk.run(&["send", "child-1", "hello", "--timeout", "1s"]).exit, 2, "a timeout of nothing");
}

#[test]
fn whoever_waits_where_nobody_runs_the_session_is_told_so_and_gets_the_answer_when_somebody_does() {
    let desk = Desk::new();
    desk.write("story.toml", PROGRAM);
    let ran = desk.run(&["run", "story.toml", "--json"]);
    let root = ran.json()["root"].as_str().unwrap().to_owned();
    let child = desk.run(&["list", &root]).out.split(' ').next().unwrap().to_owned();
    let mut waits = desk.command(&["send", &child, "two", "--wait"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(waits.stderr.take().unwrap()).lines();
    let remark = stderr.next().unwrap().unwrap();
    assert!(remark.contains("still waits for its turn; if nobody runs the session, `greenroom run FILE.toml --root ROOT` does"), "{remark}");
    assert_eq!(desk.run(&["run", "story.toml", "--root", &root]).exit, 0);
    let said = Said::of(&waits.wait_with_output().unwrap());
    assert_eq!((said.exit, redact(&said.out).as_str()), (0, "message queued as the next turn for subagent <id 0>\nsecond\n"), "{said:?}");
    assert_eq!(stderr.count(), 0, "it is said once");
}

#[test]
fn with_a_program_the_tree_is_run_and_the_answer_is_printed() {
    let desk = Desk::new();
    desk.write("story.toml", PROGRAM);
    let ran = desk.run(&["run", "story.toml", "--json"]);
    assert_eq!(ran.exit, 0, "{ran:?}");
    let root = ran.json()["root"].as_str().unwrap().to_owned();
    let child = desk.run(&["list", &root]).out.split(' ').next().unwrap().to_owned();
    let said = desk.run(&["send", &child, "two", "--program", "story.toml", "--wait"]);
    assert_eq!((said.exit, redact(&said.out).as_str()), (0, "message queued as the next turn for subagent <id 0>\nsecond\n"), "{said:?}");
    let failed = desk.run(&["send", &child, "three", "--program", "story.toml", "--wait", "--json", "--message-id", "m-3"]);
    let json = failed.json();
    assert_eq!((failed.exit, &json["outcome"], &json["message_id"]), (1, &json!("error"), &json!("m-3")), "{failed:?}");
    assert!(failed.err.contains("failed: no more"), "{failed:?}");
    let served = desk.run(&["send", &child, "two again", "--message-id", "m-4", "--program", "story.toml"]);
    assert_eq!(served.exit, 0, "without --wait the turn's end is not asked: {served:?}");
}
