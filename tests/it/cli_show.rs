//! `greenroom show` and `greenroom log`.

use greenroom::session::event::{Body, TurnEnd};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::{
    cli::{self, Desk, Kind, continuable, redact},
    transfer_world,
};

const PROGRAM: &str = r#"
[run]
root = "editor"
label = "launch story"
prompt = "Cover the launch in {city}."

[vars]
city = "Lyon"

[agents.editor]
behavior = "script"
turns = [ [ { memo = "thinking" }, { say = "started\nin {city}" } ] ]
"#;

fn lived(kind: Kind) -> (Desk, String) {
    let desk = Desk::over(kind);
    desk.write("story.toml", PROGRAM);
    let root = desk.run(&["run", "story.toml", "--json"]).json()["root"].as_str().unwrap().to_owned();
    (desk, root)
}

/// Joins words, and takes the spans of time out: a number, and its unit.
fn spanless(words: &[&str]) -> String {
    let is_span = |at: usize| {
        let unit = words.get(at + 1).is_some_and(|unit| matches!(unit.trim_end_matches(','), "ms" | "s"));
        unit && words[at].parse::<f64>().is_ok()
    };
    let shown = (0..words.len()).filter(|&at| at == 0 || !is_span(at - 1)).map(|at| if is_span(at) { "<span>" } else { words[at] });
    shown.collect::<Vec<_>>().join(" ")
}

/// Takes the times out of a text.
fn timeless(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.split(' ').map(|word| if word.len() == 10 && word.starts_with("20") && word.as_bytes()[4] == b'-' { "<day>" } else { word });
        let line = line.map(|word| if word.ends_with('Z') || word.ends_with("Z,") { "<time>" } else { word });
        let mut line = spanless(&line.collect::<Vec<_>>());
        if let Some(at) = line.find(" · <span>") {
            line.truncate(at);
        }
        if let Some(at) = line.find("message ") {
            line.truncate(at + 7);
        }
        if let Some(at) = line.find("<time> <span>") {
            line.truncate(at);
        }
        words.push(line.trim_end().to_owned());
    }
    words.join("\n")
}

#[test]
fn a_log_reads_like_a_conversation() {
    insta::allow_duplicates! {
        for (desk, root) in Kind::ALL.map(lived) {
            insta::assert_snapshot!(timeless(&desk.run(&["log", &root]).out), @r#"
            launch story, played by editor
              city = Lyon
            ── epoch 1 · <day> <time> ──

            turn 1 · from the user · completed
              user: Cover the launch in Lyon.
              memo: thinking
              editor: started
                in Lyon
            ── epoch 1 ended: settled ──
            "#);
        }
    }
}

#[test]
fn raw_events_are_json_lines_from_any_seq() {
    for (desk, root) in Kind::ALL.map(lived) {
        let raw = desk.run(&["log", &root, "--raw"]).out;
        assert_eq!(desk.run(&["log", &root, "--json"]).out, raw);
        let events: Vec<Value> = raw.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(events.iter().zip(0..).all(|(event, seq)| event["seq"] == json!(seq)));
        assert_eq!(events[0]["type"], "root/opened");
        let tail = desk.run(&["log", &root, "--raw", "--from", "3"]).out;
        assert_eq!(tail.lines().collect::<Vec<_>>(), raw.lines().skip(3).collect::<Vec<_>>());
        assert_eq!(desk.run(&["log", &root, "--from", "999"]).out, "");
    }
}

#[test]
fn show_says_what_a_session_is_and_what_waits() {
    insta::allow_duplicates! {
        for (desk, root) in Kind::ALL.map(lived) {
            assert_eq!(desk.run(&["send", &root, "One more\nfact."]).exit, 0);
            let shown = timeless(&redact(&desk.run(&["show", &root]).out));
            let shown = shown.lines().filter(|line| !line.starts_with("log ")).collect::<Vec<_>>().join("\n");
            insta::assert_snapshot!(shown, @r#"
            id          <id 0>
            created     <day>
            depth       0
            kind        root, played by editor
            label       launch story
            status      complete
            turn        idle
            var         city = Lyon
            turns       1
            last        turn 1 completed
            epochs      1
            pending     1
                        <id 1> turn from user, <span> ago: One more\nfact.
            "#);
            let json = desk.run(&["show", &root[..8], "--json"]).json();
            assert_eq!((&json["kind"], &json["agent"], &json["pending"], &json["last_outcome"]), (&json!("root"), &json!("editor"), &json!(1), &json!("completed")));
            assert_eq!(json["messages"][0]["source"], json!({"kind": "user"}));
            assert_eq!(json["root"]["vars"], json!({"city": "Lyon"}));
            assert!(json["sizes"]["events"].as_u64().unwrap() > 5 && json["sizes"]["bytes"].as_u64().unwrap() > 100);
        }
    }
}

#[test]
fn a_message_that_is_served_again_waits() {
    let desk = Desk::new();
    let store = desk.store();
    cli::root(&store, "root-one", "launch story", 100);
    cli::accept(&store, "root-one", "m1", "hello");
    cli::accept(&store, "root-one", "m2", "and now");
    let fence = transfer_world::open(&store, "root-one");
    // While a process is at it, it does not wait.
    let json = desk.run(&["show", "root-one", "--json"]).json();
    assert_eq!((&json["status"], &json["turn"], &json["pending"], &json["cut_off"]), (&json!("running"), &json!("open"), &json!(1), &Value::Null));
    transfer_world::append(&store, &fence, vec![Body::TurnEnd { turn: 1, reason: TurnEnd::Interrupted }], vec![]);
    transfer_world::close(&store, &fence);
    let json = desk.run(&["show", "root-one", "--json"]).json();
    assert_eq!((&json["turn"], &json["pending"], &json["cut_off"]), (&json!("interrupted"), &json!(2), &json!({"id": "m1", "turn": 1})));
    let shown = desk.run(&["show", "root-one"]).out;
    let waits: Vec<_> = shown.lines().skip_while(|line| !line.starts_with("pending")).collect();
    assert_eq!(waits[..2], ["pending     2", "            m1 of turn 1, which was cut off: it is served again"], "{shown}");
    assert!(waits.len() == 3 && waits[2].contains("m2 turn from user"), "{shown}");
}

#[test]
fn a_damaged_log_is_shown_up_to_the_damage() {
    let desk = Desk::new();
    let store = desk.store();
    cli::root(&store, "root-one", "launch story", 100);
    cli::child(&store, "child-1", "root-one", &continuable("collect facts"), 200);
    drop(store);
    let changed = Connection::open(desk.path("desk.db")).unwrap().execute("UPDATE event SET crc = crc + 1 WHERE seq = 1", []).unwrap();
    assert_eq!(changed, 2);
    let said = desk.run(&["log", "child-1"]);
    assert_eq!((said.exit, said.out.as_str()), (7, "collect facts, played by reporter\n"), "{said:?}");
    assert!(said.err.starts_with("error[SESSION_CORRUPT]: "), "{said:?}");
    assert_eq!(desk.run(&["show", "child-1"]).exit, 7);
}

#[test]
fn a_log_calls_children_by_their_labels_and_parents_by_what_they_are() {
    let desk = Desk::new();
    desk.write(
        "story.toml",
        r#"
        run = { root = "editor", prompt = "Begin." }
        [agents.editor]
        behavior = "script"
        turns = [[ { delegate = { agent = "reporter", description = "collect facts", prompt = "Where are we?" } }, { await = "children" } ]]
        [agents.reporter]
        behavior = "script"
        turns = [[ { report = "in Lyon" } ]]
        "#,
    );
    let root = desk.run(&["run", "story.toml", "--json"]).json()["root"].as_str().unwrap().to_owned();
    let child = desk.run(&["list", &root, "--json"]).json()["entries"][0]["id"].as_str().unwrap().to_owned();
    let log = desk.run(&["log", &root]).out;
    for line in [format!("  → delegate collect facts ({}, played by reporter)", &child[..8]), "  report of collect facts: in Lyon".to_owned()] {
        assert!(log.lines().any(|shown| shown == line), "{line:?} is missing in {log}");
    }
    let log = desk.run(&["log", &child]).out;
    assert!(log.contains("turn 1 · from the parent · ") && log.contains("  parent: Where are we?\n  → report to the parent (message "), "{log}");
}

#[test]
fn a_terminal_gets_lines_that_fit_it_and_a_pipe_gets_them_whole() {
    let (desk, root) = lived(Kind::Sqlite);
    let words = "one two three four five six seven eight nine ten ".repeat(20);
    assert_eq!(desk.run(&["send", &root, words.trim(), "--program", "story.toml"]).exit, 0);
    let piped = desk.run(&["log", &root]).out;
    assert!(piped.lines().any(|line| line == format!("  user: {}", words.trim())), "{piped}");

    let program = env!("CARGO_BIN_EXE_greenroom");
    let mut script = desk.command(&[]);
    let settings: Vec<_> = script.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    script = std::process::Command::new("script");
    script.args(["-qec", &format!("stty cols 60 && {program} log {root} && {program} tree"), "/dev/null"]);
    script.current_dir(desk.folder()).envs(settings).stdin(std::process::Stdio::null()).env("TERM", "xterm").env_remove("NO_COLOR");
    let Ok(output) = script.output() else {
        eprintln!("skipped: this machine has no `script`");
        return;
    };
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && shown.contains("\u{1b}[1mturn 1\u{1b}[0m") && shown.contains("[complete]"), "{shown}");
    let plain: Vec<String> = shown.lines().map(|line| uncoloured(line.trim_end_matches('\r'))).collect();
    assert!(plain.iter().all(|line| line.chars().count() <= 60), "{plain:#?}");
    let (shown, piped) = (plain.join(" "), piped.split_whitespace().collect::<Vec<_>>().join(" "));
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(words.trim()) && piped.contains(words.trim()), "nothing is cut");
}

/// Takes the colours out of a line.
fn uncoloured(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| line + part.split_once('m').map_or(part, |(_, rest)| rest))
}
