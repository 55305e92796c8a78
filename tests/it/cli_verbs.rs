//! What holds of every verb: the flags, the one document, the beginnings of ids, the exits of the page.

use std::{collections::BTreeMap, fs};

use greenroom::session::{
    recover::begin_epoch,
    store::{Op, Open, Store, jsonl::JsonlStore},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cli::{self, Desk, Kind, Said, commit, continuable, id};

const PROGRAM: &str = r#"
run = { root = "editor", prompt = "Go." }
[agents.editor]
behavior = "script"
turns = [[{ say = "one" }], [{ say = "two" }], [{ say = "three" }]]
[agents.reporter]
behavior = "script"
turns = []
"#;

/// A root with a child that has a waiting message, a root that may go, a program and an export.
fn desk() -> Desk {
    let desk = Desk::new();
    let store = desk.store();
    cli::root(&store, "root-one", "launch story", 100);
    cli::child(&store, "child-1", "root-one", &continuable("collect facts"), 200);
    cli::accept(&store, "child-1", "message-1", "hello");
    cli::root(&store, "gone-one", "not needed", 300);
    cli::root(&store, "cut-off", "cut off in its turn", 400);
    cli::accept(&store, "cut-off", "m0", "Begin.");
    let log = store.reader().unwrap().load(&id("cut-off")).unwrap();
    let (epoch, events) = begin_epoch(&log.fold, 2_000, 3);
    commit(&store, Op::Open(Open { session: id("cut-off"), epoch, events: events.into(), claim: Some(2_000) }));
    store.close().unwrap();
    drop(store);
    desk.write("go.toml", PROGRAM);
    assert_eq!(desk.run(&["export", "--all", "--to", "folder"]).exit, 0);
    desk
}

/// Every verb with what it needs to succeed at such a desk. A verb that is new must be added: the help is the measure.
fn examples() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("run", &["go.toml"][..]),
        ("list", &[]),
        ("tree", &[]),
        ("show", &["child-1"]),
        ("log", &["child-1"]),
        ("send", &["child-1", "More."]),
        ("interrupt", &["cut-off"]),
        ("withdraw", &["child-1", "message-1"]),
        ("export", &["--all", "--to", "out"]),
        ("import", &["folder"]),
        ("check", &[]),
        ("rm", &["gone-one", "--yes"]),
        ("stress", &["--agents", "2", "--senders", "2", "--messages", "2"]),
        ("completions", &["bash"]),
        ("man", &["pages"]),
    ])
}

/// Verbs that serve a client, with what each needs to begin: their stdout is its protocol, and their other tests are those of the servers.
const SERVERS: [(&str, &[&str]); 2] = [("acp", &["--program", "go.toml"]), ("mcp", &["--root", "somebody"])];

#[test]
fn every_verb_of_the_help_is_among_the_examples() {
    let mut verbs = Desk::new().verbs();
    verbs.sort();
    verbs.retain(|verb| !SERVERS.iter().any(|(server, _)| server == verb));
    assert_eq!(verbs, examples().into_keys().collect::<Vec<_>>());
}

#[test]
fn a_verb_whose_stdout_belongs_to_a_protocol_says_nothing_else_there_whatever_the_flags_and_the_failure() {
    let verbs = Desk::new().verbs();
    for (verb, words) in SERVERS.into_iter().filter(|(server, _)| verbs.iter().any(|verb| verb == server)) {
        let desk = desk();
        let url = desk.url();
        let good = ["--store", &url, "--json", "-vv", "--color", "always"];
        let bad = [&["--json", "--no-such-flag"][..], &["--json", "--color", "mauve"], &["--json", "--log-level", "a=b=c"], &["--json", "--store", "nonsense"]];
        for (flags, exit) in [(&good[..], 0)].into_iter().chain(bad.map(|flags| (flags, 2))) {
            for line in [[flags, &[verb], words].concat(), [&[verb], words, flags].concat()] {
                let said = desk.run_with_stdin(&line, b"");
                assert_eq!((said.exit, said.out.as_str()), (exit, ""), "{line:?}: {said:?}");
                assert_eq!(said.err.contains("error["), exit != 0, "{line:?}: {said:?}");
            }
        }
        let said = desk.run(&[verb, "--json"]);
        assert_eq!((said.exit, said.out.as_str()), (2, ""), "{said:?}");
        // Whoever asks for help is a person.
        assert!(desk.run(&[verb, "--help"]).out.contains("Example"));
    }
}

/// Puts away what is another one each time: ids, times and measures.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), shape(value))).collect(),
        Value::Array(items) => items.iter().map(shape).collect(),
        other => json!(match other {
            Value::Null | Value::Number(_) => "number or null",
            Value::Bool(_) => "bool",
            _ => "text",
        }),
    }
}

/// Every verb takes the flags before it and after it, and with `--json` stdout has one document (`log`: one a line) and nothing else.
#[test]
fn every_verb_takes_every_flag_before_and_after_it() {
    for (verb, words) in examples() {
        let mut shapes = Vec::new();
        for place in ["before", "after", "around"] {
            let desk = desk();
            let url = desk.url();
            // The flag goes before the environment, which names something that is no store.
            let flags = ["--store", &url, "--json", "-v", "--log-level", "error", "--color", "always"];
            let line: Vec<&str> = match place {
                "before" => [&flags[..], &[verb], words].concat(),
                "after" => [&[verb], words, &flags[..]].concat(),
                _ => [&flags[..3], &[verb], words, &flags[3..]].concat(),
            };
            let mut command = desk.command(&line);
            command.env("GREENROOM_STORE", "nonsense");
            let said = Said::of(&command.output().unwrap());
            assert_eq!(said.exit, 0, "{line:?}: {said:?}");
            assert!(!said.out.contains('\u{1b}') && said.out.ends_with('\n'), "{line:?}: {said:?}");
            let documents: Vec<Value> = if verb == "log" {
                said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
            } else {
                assert_eq!(said.out.lines().count(), 1, "{line:?}: {said:?}");
                vec![said.json()]
            };
            assert!(documents.iter().all(Value::is_object), "{line:?}: {said:?}");
            shapes.push(documents.iter().map(shape).collect::<Vec<_>>());
        }
        assert!(shapes.iter().all(|shape| *shape == shapes[0]), "{verb}: {shapes:#?}");
    }
}

/// Neither a bar nor a colour goes where nobody looks, and what is said on stderr is whole lines.
#[test]
fn no_verb_writes_for_a_terminal_into_a_pipe() {
    let remarks = BTreeMap::from([("run", 2), ("check", 1), ("import", 0), ("send", 0)]);
    for (verb, words) in examples() {
        let desk = desk();
        let said = desk.run(&[&[verb], words].concat());
        assert_eq!(said.exit, 0, "{verb}: {said:?}");
        assert_eq!(said.err.lines().count(), remarks.get(verb).copied().unwrap_or(0), "{verb}: {said:?}");
        assert!(said.err.is_empty() || said.err.ends_with('\n'), "{verb}: {said:?}");
        // The script of a shell may have what it likes in its strings.
        let shown = if verb == "completions" { &said.err } else { &format!("{}{}", said.out, said.err) };
        assert!(!shown.contains(['\u{1b}', '\r', '━', '╸']), "{verb}: {said:?}");
    }
}

#[test]
fn a_failure_is_one_document_in_every_verb() {
    let desk = Desk::new();
    for (verb, words) in examples() {
        for flags in [&["--no-such-flag"][..], &["--color", "mauve"], &["--log-level", "a=b=c"], &["--store"]] {
            let said = desk.run(&[&[verb], words, &["--json"], flags].concat());
            assert_eq!((said.exit, &said.json()["error"]["code"]), (2, &json!("USAGE")), "{verb} {flags:?}: {said:?}");
            assert_eq!(said.out.lines().count(), 1);
            assert!(said.err.contains("error[USAGE]: ") && said.err.contains("\nhelp: "), "{said:?}");
        }
        let said = desk.run(&[&["--json", "--store", "nonsense", verb], words].concat());
        if ["completions", "man"].contains(&verb) {
            assert_eq!(said.exit, 0, "{verb} looks at no store: {said:?}");
        } else {
            assert_eq!((said.exit, &said.json()["error"]["code"], said.out.lines().count()), (2, &json!("STORE_URL"), 1), "{verb}: {said:?}");
        }
    }
    assert!(!desk.path("desk.db").exists());
}

#[test]
fn the_environment_names_the_store_and_an_empty_name_is_none() {
    let desk = desk();
    let over = |url: &str, words: &[&str]| Said::of(&desk.command(words).env("GREENROOM_STORE", url).output().unwrap());
    assert_eq!(over(&desk.url(), &["show", "child-1"]).exit, 0);
    assert!(over("sqlite:nowhere.db", &["show", "child-1"]).err.starts_with("error[STORE_NOT_FOUND]: "));
    let default = over("", &["show", "child-1", "--json"]);
    assert_eq!((default.exit, &default.json()["error"]["code"]), (4, &json!("STORE_NOT_FOUND")));
    assert!(default.err.contains(".local/share/greenroom/greenroom.db"), "{default:?}");
    // A run makes it there.
    assert_eq!(over("", &["run", "go.toml"]).exit, 0);
    assert!(desk.path("home/.local/share/greenroom/greenroom.db").is_file());
}

/// Every verb that takes an id takes four characters of it and more, if they begin one only, over every kind of store.
#[test]
fn a_unique_beginning_of_an_id_will_do_in_every_verb_that_takes_one() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        let store = desk.any_store();
        for name in ["same-1", "same-2"] {
            cli::root(&*store, name, "one of two", 100);
        }
        cli::root(&*store, "other-root", "the other", 200);
        for message in ["word-1", "word-2", "sole-1"] {
            cli::accept(&*store, "other-root", message, "hello");
        }
        store.close().unwrap();
        drop(store);
        desk.write("go.toml", PROGRAM);
        let verbs: [(&[&str], &[&str], i32); 12] = [
            (&["list"], &[], 0),
            (&["tree"], &[], 0),
            (&["show"], &[], 0),
            (&["log"], &[], 0),
            (&["check"], &[], 0),
            (&["export"], &["--to", "out"], 0),
            (&["send"], &["hello"], 0),
            (&["interrupt"], &[], 1),
            (&["withdraw"], &["sole"], 0),
            (&["run", "go.toml", "--root"], &[], 0),
            (&["export", "--tree"], &["--to", "out"], 0),
            (&["rm"], &["--yes"], 0),
        ];
        for (before, after, exit) in verbs {
            let with = |id: &str| desk.run(&[before, &[id], after, &["--json"]].concat());
            let said = with("same");
            let json = said.json();
            assert_eq!((said.exit, &json["error"]["code"]), (2, &json!("AMBIGUOUS_ID")), "{before:?}: {said:?}");
            assert_eq!(json["candidates"], json!(["same-1", "same-2"]));
            assert!(said.err.contains("\n  same-1\n  same-2\n"), "{said:?}");
            for (short, why) in [("oth", "three characters are too few"), ("nobody", "there is none")] {
                let said = with(short);
                assert_eq!((said.exit, &said.json()["error"]["code"]), (4, &json!("SESSION_NOT_FOUND")), "{why}: {before:?}: {said:?}");
            }
            let said = with("othe");
            assert_eq!(said.exit, exit, "{before:?}: {said:?}");
        }
        let tree = desk.run(&["tree", "--json"]).json();
        assert_eq!(
            tree["entries"].as_array().unwrap().iter().map(|entry| &entry["id"]).collect::<Vec<_>>(),
            ["same-1", "same-2"],
            "the one that was meant is gone"
        );
    }
}

#[test]
fn a_unique_beginning_of_a_messages_id_will_do_where_one_is_taken() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        let store = desk.any_store();
        cli::root(&*store, "desk", "a desk", 100);
        for message in ["word-1", "word-2", "sole-1"] {
            cli::accept(&*store, "desk", message, "hello");
        }
        store.close().unwrap();
        drop(store);
        let withdraw = |message: &str| desk.run(&["withdraw", "desk", message, "--json"]);
        let said = withdraw("word");
        assert_eq!(
            (said.exit, said.json()["error"]["code"].clone(), said.json()["candidates"].clone()),
            (2, json!("AMBIGUOUS_ID"), json!(["word-1", "word-2"]))
        );
        assert_eq!((withdraw("sol").exit, withdraw("none").exit), (4, 4));
        assert_eq!(withdraw("sole").json()["message_id"], json!("sole-1"));
        assert_eq!(desk.run(&["show", "desk", "--json"]).json()["pending"], json!(2));
    }
}

/// Brings each exit of docs/cli.md about, and none that is not there.
#[test]
fn every_exit_of_the_page_is_met() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md")).unwrap();
    let table = page.split_once("## Exit codes").unwrap().1;
    let listed: Vec<i32> =
        table.lines().filter_map(|line| line.split('|').nth(1)).flat_map(|cell| cell.split(',')).filter_map(|number| number.trim().parse().ok()).collect();
    assert_eq!(listed, [0, 1, 2, 3, 4, 5, 6, 7, 129, 130, 143]);
    let desk = desk();
    desk.write("fail.toml", "run = { root = 'a', prompt = 'go' }\nagents.a = { behavior = 'script', turns = [[{ fail = 'no' }]] }\n");
    desk.write("wait.toml", "run = { root = 'a', prompt = 'go' }\nagents.a = { behavior = 'command', command = ['cat', 'pipe'] }\n");
    rustix::fs::mknodat(rustix::fs::CWD, desk.path("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let lines = JsonlStore::open(desk.path("lines")).unwrap();
    cli::root(&lines, "held", "held by this test", 100);
    let lines_url = format!("jsonl:{}", desk.path("lines").display());
    let damaged = format!("jsonl:{}", desk.path("damaged").display());
    assert_eq!(desk.run(&["import", "folder", "--store", &damaged]).exit, 0);
    let file = desk.path("damaged/_root/root-one.jsonl");
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("launch", "lunch!")).unwrap();
    for exit in listed {
        let said = match exit {
            0 => desk.run(&["list"]),
            1 => desk.run(&["run", "fail.toml"]),
            2 => desk.run(&["run", "missing.toml"]),
            3 => desk.run(&["send", "child-1", "hello", "--wait", "--timeout", "0s"]),
            4 => desk.run(&["show", "nobody"]),
            5 => desk.run(&["rm", "root-one", "--yes"]),
            6 => desk.run(&["send", "held", "hello", "--store", &lines_url]),
            7 => desk.run(&["check", "--store", &damaged]),
            signalled => {
                let child = desk.command(&["run", "wait.toml"]).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
                let pipe = fs::OpenOptions::new().write(true).open(desk.path("pipe")).unwrap();
                kill_process(Pid::from_child(&child), Signal::from_named_raw(signalled - 128).unwrap()).unwrap();
                let said = Said::of(&child.wait_with_output().unwrap());
                drop(pipe);
                said
            }
        };
        assert_eq!(said.exit, exit, "{said:?}");
        assert_eq!(said.err.contains("error["), exit != 0, "{said:?}");
    }
    drop(lines);
}
