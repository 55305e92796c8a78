//! `greenroom run`.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::cli::{self, Desk, Said, continuable, redact};

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

/// A root that answers when its child has read a pipe to its end; each turn has a pipe of its own.
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
command = ["sh", "-c", "cat pipe-$GREENROOM_TURN"]
"#;

/// Three children that each run a command.
const COMMANDS: &str = r#"
[run]
root = "editor"
prompt = "Begin."

[agents.editor]
behavior = "script"
turns = [
  [ { delegate = { agent = "one", description = "first", prompt = "go" } },
    { delegate = { agent = "one", description = "second", prompt = "go" } },
    { delegate = { agent = "one", description = "third", prompt = "go" } },
    { await = "children" },
    { say = "{reports}" } ],
]

[agents.one]
behavior = "command"
answer = "text"
command = ["sh", "-c", "COMMAND"]
"#;

fn pipes(desk: &Desk) {
    let paths = ["pipe-1", "pipe-2"].map(|name| desk.path(name));
    assert!(Command::new("mkfifo").args(paths).status().unwrap().success());
    desk.write("pipe.toml", PIPE);
}

/// Opens a pipe, which waits for the one who reads it: the child is in that turn then.
fn writer(desk: &Desk, turn: u64) -> File {
    OpenOptions::new().write(true).open(desk.path(&format!("pipe-{turn}"))).unwrap()
}

fn start(desk: &Desk, words: &[&str]) -> Child {
    desk.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(child: Child) -> Said {
    Said::of(&child.wait_with_output().unwrap())
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
    let help = format!("`greenroom log {root}` shows what led to it");
    assert_eq!(failed.json()["error"], json!({"code": "SCRIPT_FAILED", "message": "the turn of the root's last message failed: no more", "help": help}));
    let with_error: Vec<_> = failed.json().as_object().unwrap().keys().cloned().collect();
    assert_eq!(with_error.len(), keys.len() + 1, "the report is whole: {with_error:?}");
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
fn a_second_terminal_lists_sends_and_follows_while_a_run_is_live() {
    let desk = Desk::new();
    pipes(&desk);
    let running = start(&desk, &["run", "pipe.toml"]);
    let mut pipe = writer(&desk, 1);
    let root = desk.run(&["list"]).out;
    assert!(redact(&root).starts_with("<id 0> [running] — "), "{root}");
    let root = root.split(' ').next().unwrap();
    let child = desk.run(&["list", root]).out;
    assert_eq!(redact(&child), "<id 0> [running] — read the pipe\n");
    let child = child.split(' ').next().unwrap();
    let held = desk.run(&["run", "pipe.toml", "--root", root, "--json"]);
    assert_eq!((held.exit, &held.json()["error"]["code"]), (6, &json!("SESSION_HELD")), "{held:?}");

    let mut following = start(&desk, &["log", child, "--follow", "--raw"]);
    let waiting = start(&desk, &["send", child, "second", "--message-id", "m-2", "--wait"]);
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut until = |wanted: &str| lines.by_ref().find(|line| line.contains(wanted)).expect("the log goes on");
    until("\"turn/start\"");
    // With no second message the run would be over after the first.
    let mut pending = std::iter::repeat_with(|| desk.run(&["list", root, "--json"]).json()["entries"][0]["pending"].clone()).take(2_000);
    assert!(pending.any(|pending| pending == 1), "the second message was not accepted");
    pipe.write_all(b"one\n").unwrap();
    drop(pipe);
    assert!(until("\"turn/end\"").contains("completed"));
    let mut pipe = writer(&desk, 2);
    pipe.write_all(b"two\n").unwrap();
    drop(pipe);
    assert!(until("\"turn/start\"").contains("\"message\":\"m-2\""));
    until("\"turn/end\"");
    following.kill().unwrap();
    following.wait().unwrap();

    let said = end(running);
    assert_eq!(said.exit, 0, "{said:?}");
    let waited = end(waiting);
    assert_eq!((waited.exit, waited.out.lines().last()), (0, Some("two")), "{waited:?}");
}

#[test]
fn a_signal_ends_a_run_in_good_order_and_the_next_goes_on() {
    let desk = Desk::new();
    pipes(&desk);
    let running = start(&desk, &["run", "pipe.toml"]);
    let pipe = writer(&desk, 1);
    kill_process(Pid::from_child(&running), Signal::TERM).unwrap();
    let said = end(running);
    assert_eq!((said.exit, said.out.as_str()), (143, ""), "{said:?}");
    assert!(said.err.contains("error[SIGNALLED]: "), "{said:?}");
    drop(pipe);
    let root = desk.run(&["list"]).out.split(' ').next().unwrap().to_owned();
    assert!(said.err.contains(&format!("--root {root}` goes on")), "{said:?}");
    let again = start(&desk, &["run", "pipe.toml", "--root", &root]);
    writer(&desk, 2).write_all(b"one\n").unwrap();
    let said = end(again);
    assert_eq!(said.exit, 0, "{said:?}");
    assert!(said.out.contains("one"), "{said:?}");
}

#[test]
fn a_run_that_takes_too_long_is_exit_3_and_leaves_the_work() {
    let desk = Desk::new();
    pipes(&desk);
    let said = desk.run(&["run", "pipe.toml", "--timeout", "300ms", "--json"]);
    assert_eq!((said.exit, &said.json()["error"]["code"]), (3, &json!("TIMED_OUT")), "{said:?}");
    // How far it came in that time is not known; that nobody holds it any more is.
    assert!(!desk.run(&["tree"]).out.contains("[running]"));
}

#[test]
fn a_folder_that_cannot_be_read_is_left_out_of_a_list_and_named_in_the_log() {
    let desk = Desk::new();
    let program = "run = { root = 'a', prompt = 'go' }\n[agents.a]\nbehavior = 'script'\nturns = [[{ for_each = { files = 'in/**/*.txt', steps = [{ memo = 'seen {file}' }] } }]]\n";
    desk.write("files.toml", program);
    for folder in ["open", "shut", "shut-too"] {
        fs::create_dir_all(desk.path("in").join(folder)).unwrap();
        desk.write(&format!("in/{folder}/a.txt"), "x");
    }
    desk.write("in/b.txt", "x");
    let set = |folder: &str, mode| fs::set_permissions(desk.path(folder), fs::Permissions::from_mode(mode)).unwrap();
    for folder in ["in/shut", "in/shut-too"] {
        set(folder, 0o0);
    }
    let Some(said) = desk.unprivileged(&["run", "files.toml", "--json"]) else { return };
    assert_eq!(said.exit, 0, "{said:?}");
    let root = said.json()["root"].as_str().unwrap().to_owned();
    let events = desk.run(&["log", &root, "--raw"]).out;
    let events = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let memos: Vec<_> = events.filter(|event| event["type"] == "memo" && event["data"]["key"].is_null()).map(|event| event["data"]["text"].clone()).collect();
    assert_eq!(memos, [json!("left out, because they cannot be read: in/shut, in/shut-too"), json!("seen in/b.txt"), json!("seen in/open/a.txt")]);
    // The folder itself is another matter: there is no list without it.
    set("in", 0o0);
    let said = desk.unprivileged(&["run", "files.toml", "--json"]).unwrap();
    assert_eq!(said.exit, 1, "{said:?}");
    assert!(said.err.contains("error[FILES_UNREADABLE]: "), "{said:?}");
    for folder in ["in", "in/shut", "in/shut-too"] {
        set(folder, 0o700);
    }
}

#[test]
fn a_run_over_a_memory_store_leaves_nothing_behind() {
    let desk = Desk::new();
    desk.write("story.toml", STORY);
    let said = desk.run(&["--store", "memory:", "run", "story.toml"]);
    assert_eq!((said.exit, said.out.as_str()), (0, "started in Lyon\n"));
    assert!(!desk.path("desk.db").exists());
    assert_eq!(desk.run(&["run", "story.toml", "--store", "memory:", "--root", "abcd"]).exit, 4);
}

#[test]
fn commands_of_a_run_over_a_memory_store_leave_no_temporary_files() {
    let desk = Desk::new();
    fs::create_dir(desk.path("tmp")).unwrap();
    // Whether the last actor or the process ends first is a race, so once shows nothing.
    for (name, command, timeout, exit) in [("well", "echo well", "1m", 0), ("hangs", "sleep 600", "0s", 3)] {
        desk.write("commands.toml", &COMMANDS.replace("COMMAND", command));
        for _ in 0..8 {
            let mut run = desk.command(&["--store", "memory:", "run", "commands.toml", "--timeout", timeout]);
            let said = Said::of(&run.env("TMPDIR", desk.path("tmp")).output().unwrap());
            assert_eq!(said.exit, exit, "{name}: {said:?}");
            let left: Vec<_> = fs::read_dir(desk.path("tmp")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert!(left.is_empty(), "{name}: {left:?}");
        }
    }
}

#[test]
fn work_that_cannot_run_is_told_and_is_exit_1() {
    let desk = Desk::new();
    desk.write("story.toml", STORY);
    let root = desk.run(&["run", "story.toml", "--json"]).json()["root"].as_str().unwrap().to_owned();
    let store = desk.store();
    cli::child(&store, "stranger", &root, &continuable("played by nobody"), 100);
    drop(store);
    assert_eq!(desk.run(&["send", "stranger", "hello"]).exit, 0);
    let said = desk.run(&["run", "story.toml", "--root", &root]);
    assert_eq!(said.exit, 1, "{said:?}");
    assert!(said.err.contains("stranger has work and cannot run [AGENT_UNKNOWN]: "), "{said:?}");
    assert!(desk.run(&["list", &root, "--json"]).json()["entries"][0]["pending"] == 1, "the message waits");
}
