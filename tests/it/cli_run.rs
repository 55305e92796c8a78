//! `greenroom run`.

use std::{fs::OpenOptions, io::Write, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::cli::{Desk, Said, redact};

const STORY: &str = r#"
[run]
root = "editor"
prompt = "Cover the launch in {city}."

[vars]
city = "Lyon"

[agents.editor]
behavior = "script"
turns = [ [ { say = "started in {city}" } ], [ { fail = "no more" } ] ]
"#;

/// A root that answers when its child has read a line from a pipe.
const PIPE: &str = r#"
[run]
root = "editor"
prompt = "Begin."

[agents.editor]
behavior = "script"
turns = [
  [ { delegate = { agent = "reader", as = "r", description = "read the pipe", prompt = "first" } },
    { await = "children" },
    { say = "{reports}" } ],
]

[agents.reader]
behavior = "command"
answer = "text"
command = ["sh", "-c", "cat pipe"]
"#;

fn pipe(desk: &Desk) {
    assert!(std::process::Command::new("mkfifo").arg(desk.path("pipe")).status().unwrap().success());
    desk.write("pipe.toml", PIPE);
}

#[test]
fn stdout_has_the_answer_and_nothing_else() {
    let desk = Desk::new();
    desk.write("story.toml", STORY);
    let said = desk.run(&["run", "story.toml", "--set", "city=Nice"]);
    assert_eq!((said.exit, said.out.as_str()), (0, "started in Nice\n"));
    let lines: Vec<_> = said.err.lines().collect();
    assert_eq!((redact(lines[0]).as_str(), lines.len()), ("root <id 0>", 2), "{said:?}");
    assert!(lines[1].starts_with("1 turn, 1 message, 0 children, 0 failed, "), "{said:?}");
    let loud = desk.run(&["run", "-v", "story.toml"]);
    assert!(redact(&loud.err).contains("<id 0> turn 1 completed\n"), "{loud:?}");
}

#[test]
fn json_has_the_documented_keys_and_a_failed_turn_is_exit_1() {
    let desk = Desk::new();
    desk.write("story.toml", STORY);
    let first = desk.run(&["run", "story.toml", "--json"]).json();
    let keys: Vec<_> = first.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys.len(), 8);
    for key in ["root", "answer", "turns", "messages", "children", "failed", "wall_ms", "store"] {
        assert!(keys.contains(&key), "{keys:?}");
    }
    let root = first["root"].as_str().unwrap();
    let nothing = desk.run(&["run", "story.toml", "--root", root]);
    assert_eq!((nothing.exit, nothing.out.as_str()), (0, "started in Lyon\n"), "the prompt is given once");
    let failed = desk.run(&["run", "story.toml", "--root", &root[..8], "--prompt", "And now?", "--json"]);
    assert_eq!((failed.exit, &failed.json()["failed"]), (1, &json!(1)), "{failed:?}");
    assert!(failed.err.contains("the root's last turn failed: no more"), "{failed:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let desk = Desk::new();
    desk.write("story.toml", STORY);
    for (words, exit) in [
        (&["run", "story.toml", "--set", "town=Nice"][..], 2),
        (&["run", "story.toml", "--set", "nonsense"], 2),
        (&["run", "story.toml", "--timeout", "soon"], 2),
    ] {
        let said = desk.run(words);
        assert_eq!((said.exit, said.out.as_str()), (exit, ""), "{said:?}");
    }
    let root = desk.run(&["run", "story.toml", "--json"]).json()["root"].as_str().unwrap().to_owned();
    let said = desk.run(&["run", "story.toml", "--root", &root, "--set", "city=Nice"]);
    assert_eq!(said.exit, 2, "{said:?}");
    assert_eq!(desk.run(&["run", "story.toml", "--root", "no-such-root"]).exit, 4);
}

#[test]
fn a_second_terminal_lists_and_sends_while_a_run_is_live() {
    let desk = Desk::new();
    pipe(&desk);
    let running = desk.command(&["run", "pipe.toml"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Opening a pipe waits for the one who reads it: the child is in its turn then.
    let mut writer = OpenOptions::new().write(true).open(desk.path("pipe")).unwrap();
    let root = desk.run(&["list"]).out;
    assert!(redact(&root).starts_with("<id 0> [running] — "), "{root}");
    let child = desk.run(&["list", root.split(' ').next().unwrap()]).out;
    assert_eq!(redact(&child), "<id 0> [running] — read the pipe\n");
    let child = child.split(' ').next().unwrap();
    assert_eq!(desk.run(&["send", child, "second", "--message-id", "m-2"]).exit, 0);
    writer.write_all(b"one\n").unwrap();
    drop(writer);
    // The first reader may still have the pipe; whoever comes last reads it to its end.
    let waiting = desk.command(&["send", child, "second", "--message-id", "m-2", "--wait"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut writer = OpenOptions::new().write(true).open(desk.path("pipe")).unwrap();
    writer.write_all(b"two\n").unwrap();
    drop(writer);
    let said = Said::of(&running.wait_with_output().unwrap());
    assert_eq!(said.exit, 0, "{said:?}");
    let waited = Said::of(&waiting.wait_with_output().unwrap());
    assert_eq!((waited.exit, waited.out.lines().last()), (0, Some("two")), "{waited:?}");
}

#[test]
fn a_signal_ends_a_run_in_good_order_and_the_next_goes_on() {
    let desk = Desk::new();
    pipe(&desk);
    let running = desk.command(&["run", "pipe.toml"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let writer = OpenOptions::new().write(true).open(desk.path("pipe")).unwrap();
    kill_process(Pid::from_child(&running), Signal::TERM).unwrap();
    let said = Said::of(&running.wait_with_output().unwrap());
    assert_eq!((said.exit, said.out.as_str()), (143, ""), "{said:?}");
    assert!(said.err.contains("error[SIGNALLED]: "), "{said:?}");
    drop(writer);
    let root = desk.run(&["list"]).out.split(' ').next().unwrap().to_owned();
    assert!(said.err.contains(&format!("--root {root}` goes on")), "{said:?}");
    let again = desk.command(&["run", "pipe.toml", "--root", &root]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut writer = OpenOptions::new().write(true).open(desk.path("pipe")).unwrap();
    writer.write_all(b"one\n").unwrap();
    drop(writer);
    let said = Said::of(&again.wait_with_output().unwrap());
    assert_eq!(said.exit, 0, "{said:?}");
    assert!(said.out.contains("one"), "{said:?}");
}
