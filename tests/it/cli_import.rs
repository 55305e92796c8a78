//! `greenroom import`: all of a session or nothing, every damage told, and what was killed is finished by the same command.

use std::{fs, os::unix::fs::symlink, process::Stdio};

use greenroom::session::{
    event::{Body, TurnEnd},
    header::NewSession,
    store::{Create, Op, Remove, sqlite::SqliteStore},
};
use serde_json::{Value, json};

use crate::{
    cli::{self, Desk, commit, continuable, id},
    transfer_world::{PROGRAM, append, close, files, open, other, rich},
};

#[test]
fn of_what_waits_an_import_speaks_only_where_something_does() {
    let desk = Desk::new();
    cli::root(&desk.store(), "idle", "nothing to do", 1_000);
    assert_eq!(desk.run(&["export", "idle", "--to", "idle"]).exit, 0);
    insta::assert_snapshot!(other(&desk, &["import", "idle"]).all(), @r#"
    exit 0
    1 imported, 0 skipped, 0 refused, 0 damaged
    ---
    "#);
}

#[test]
fn what_was_imported_waits_and_is_served_once_when_it_is_activated() {
    let desk = Desk::new();
    let store = desk.store();
    cli::root(&store, "root", "a root", 1_000);
    cli::accept(&store, "root", "m0", "First.");
    let fence = open(&store, "root");
    cli::accept(&store, "root", "m1", "Second.");
    drop((store, fence));
    desk.write("desk.toml", PROGRAM);
    assert_eq!(desk.run(&["export", "--all", "--to", "out"]).exit, 0);
    assert_eq!(other(&desk, &["import", "out"]).exit, 0);

    // Its turn was cut off, and it waits all the same.
    let said = other(&desk, &["run", "desk.toml", "--root", "root"]);
    insta::assert_snapshot!(said.all(), @r#"
    exit 5
    ---
    error[NOT_ACTIVATED]: session root was imported and waits to be activated
    help: `greenroom import DIR --activate` lets it run, DIR being the folder that it was imported from
    "#);
    let said = other(&desk, &["list", "--json"]);
    assert_eq!((&said.json()["entries"][0]["held"], &said.json()["entries"][0]["turn"]), (&json!(true), &json!("interrupted")));
    assert_eq!(other(&desk, &["show", "root", "--json"]).json()["held"], json!(true));
    let said = other(&desk, &["show", "root"]);
    assert!(said.out.contains("held        2 records wait to be activated: `greenroom import DIR --activate`"), "{said:?}");
    let said = other(&desk, &["send", "root", "Third.", "--message-id", "m2"]);
    insta::assert_snapshot!(said.all(), @r#"
    exit 0
    message queued as the next turn for subagent root
    ---
    session root was imported and is held: the message waits behind what came with it, until `greenroom import DIR --activate`
    "#);

    // What is there has moved on by that message, and is activated all the same.
    let said = other(&desk, &["import", "out", "--activate"]);
    insta::assert_snapshot!(said.all(), @r#"
    exit 5
    0 imported, 0 skipped, 1 refused, 0 damaged, 1 activated
    ---
    out/_root/root.jsonl: session root is in the store and is another one
    error[IMPORT_REFUSED]: 1 session refused, 0 damaged
    help: what was refused is named above and was left as it is; the others were imported
    "#);
    let said = other(&desk, &["run", "desk.toml", "--root", "root"]);
    assert_eq!((said.exit, said.out.as_str()), (0, "three\n"), "{said:?}");
    let log = other(&desk, &["log", "root", "--json"]);
    let events: Vec<Value> = log.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let started: Vec<_> =
        events.iter().filter(|event| event["type"] == "turn/start").map(|event| (event["data"]["message"].clone(), event["data"]["attempt"].clone())).collect();
    let expected: Vec<_> = [("m0", 1), ("m0", 2), ("m1", 1), ("m2", 1)].map(|(message, attempt)| (json!(message), json!(attempt))).into();
    assert_eq!(started, expected);
    assert_eq!(other(&desk, &["run", "desk.toml", "--root", "root"]).exit, 0);
    assert_eq!(other(&desk, &["list", "--json"]).json()["entries"][0]["held"], json!(false));
}

#[test]
fn a_session_that_differs_is_refused_and_the_others_go_on() {
    let desk = Desk::new();
    rich(&desk.store());
    assert_eq!(desk.run(&["export", "--all", "--to", "out"]).exit, 0);
    let store = SqliteStore::open(desk.path("other.db")).unwrap();
    cli::root(&store, "root", "another root", 1_000);
    cli::child(&store, "orphan", "nowhere", &continuable("lost"), 1_000);
    let mut alias = continuable("the alias is taken");
    alias.alias = Some("r1".into());
    cli::child(&store, "taken", "root", &alias, 1_000);
    commit(&store, Op::Create(Create::root(NewSession::root(id("gone")), "editor", "gone")));
    commit(&store, Op::Remove(Remove { session: id("gone"), discard: false }));
    drop(store);
    // One whose id was removed there.
    cli::root(&desk.store(), "gone", "gone", 1_000);
    assert_eq!(desk.run(&["export", "gone", "--to", "out"]).exit, 0);
    let said = other(&desk, &["import", "out", "--json"]);
    let json = said.json();
    assert_eq!((said.exit, &json["imported"], &json["skipped"], &json["refused"], &json["damaged"]), (5, &json!(6), &json!(1), &json!(3), &json!(0)));
    let codes: Vec<_> = json["troubles"].as_array().unwrap().iter().map(|trouble| (trouble["session"].clone(), trouble["code"].clone())).collect();
    let expected = [("gone", "SESSION_REMOVED"), ("root", "SESSION_EXISTS"), ("Ümlaut/../x", "ALIAS_TAKEN")];
    assert_eq!(codes, expected.map(|(session, code)| (json!(session), json!(code))));
    let said = other(&desk, &["import", "out"]);
    assert_eq!(said.exit, 5);
    insta::assert_snapshot!(said.all().replace(&desk.folder().display().to_string(), "<desk>"), @r#"
    exit 5
    0 imported, 7 skipped, 3 refused, 0 damaged
    ---
    out/_root/gone.jsonl: session gone was removed
    out/_root/root.jsonl: session root is in the store and is another one
    out/root/~c3~9cmlaut~2f..~2fx.jsonl: alias "r1" is taken
    error[IMPORT_REFUSED]: 3 sessions refused, 0 damaged
    help: what was refused is named above and was left as it is; the others were imported
    "#);
}

/// A session of one message and one turn, as an export.
fn small(desk: &Desk) -> Vec<String> {
    let store = SqliteStore::open(desk.path("small.db")).unwrap();
    cli::root(&store, "small", "a small one", 1_000);
    cli::accept(&store, "small", "m0", "Begin.");
    let fence = open(&store, "small");
    append(&store, &fence, vec![Body::TurnEnd { turn: 1, reason: TurnEnd::Completed }], vec![]);
    close(&store, &fence);
    cli::accept(&store, "small", "m1", "Go on.");
    let url = format!("sqlite:{}", desk.path("small.db").display());
    assert_eq!(desk.run(&["export", "small", "--to", "small", "--store", &url]).exit, 0);
    let lines = fs::read_to_string(desk.path("small/_root/small.jsonl")).unwrap();
    lines.lines().map(str::to_owned).collect()
}

#[test]
fn every_damage_is_told_with_its_file_its_line_and_its_byte() {
    let desk = Desk::new();
    let whole = small(&desk);
    assert_eq!(whole.len(), 1 + 7 + 2);
    fs::create_dir_all(desk.path("in/_root")).unwrap();
    cli::root(&desk.store(), "healthy", "a healthy one", 1_000);
    assert_eq!(desk.run(&["export", "healthy", "--to", "in"]).exit, 0);
    let path = desk.path("in/_root/small.jsonl");
    let byte_of = |lines: &[String], line: usize| lines[..line - 1].iter().map(|line| line.len() + 1).sum::<usize>();
    let mut cases: Vec<(String, Vec<String>, usize, &str)> = Vec::new();
    for line in 1..=whole.len() {
        // One changed digit of each line, in its middle or in its checksum.
        let mut lines = whole.clone();
        let at = lines[line - 1].len() - 4;
        let digit = if lines[line - 1].as_bytes()[at] == b'0' { "1" } else { "0" };
        lines[line - 1].replace_range(at..=at, digit);
        cases.push((format!("a changed checksum of line {line}"), lines, line, "checksum mismatch"));
        if line > 1 {
            let mut lines = whole.clone();
            lines[line - 1] = "{}".into();
            cases.push((format!("no record in line {line}"), lines, line, "does not end with a checksum"));
        }
    }
    let changed = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = whole.clone();
        change(&mut lines);
        lines
    };
    cases.extend([
        ("a missing event".to_owned(), changed(&|lines| drop(lines.remove(3))), 4, "misplaced record"),
        ("a second header".into(), changed(&|lines| lines.insert(2, lines[0].clone())), 3, "a second header"),
        ("a missing message".into(), changed(&|lines| drop(lines.remove(8))), 9, "messages before it are missing"),
        ("a message twice".into(), changed(&|lines| lines.insert(9, lines[8].clone())), 10, "was there before"),
        ("a line too much".into(), changed(&|lines| lines.push(lines[1].clone())), 11, "misplaced record"),
        ("a foreign line".into(), changed(&|lines| lines.insert(1, "dear diary".into())), 2, "does not end with a checksum"),
        ("an event that does not follow".into(), changed(&|lines| drop(lines.drain(4..8))), 5, "it has left, but the log does not say so"),
        ("no header".into(), changed(&|lines| drop(lines.remove(0))), 1, "does not begin with a session's header"),
        ("nothing".into(), Vec::new(), 1, "does not begin with a session's header"),
    ]);
    for (n, (what, lines, line, says)) in cases.iter().enumerate() {
        fs::write(&path, lines.join("\n") + if lines.is_empty() { "" } else { "\n" }).unwrap();
        let said = other(&desk, &["import", "in", "--json"]);
        let json = said.json();
        assert_eq!((said.exit, &json["damaged"], json["troubles"].as_array().unwrap().len()), (7, &json!(1), 1), "{what}: {said:?}");
        assert_eq!(json["imported"], json!(u64::from(n == 0)), "{what}: the healthy one is imported");
        let trouble = &json["troubles"][0];
        assert_eq!((&trouble["line"], &trouble["byte"]), (&json!(line), &json!(byte_of(lines, (*line).min(lines.len() + 1)))), "{what}: {trouble}");
        let message = trouble["message"].as_str().unwrap();
        assert!(message.contains(says) && message.contains("in/_root/small.jsonl:"), "{what}: {message}");
        assert!(said.err.contains(&format!("in/_root/small.jsonl:{line} (byte ")), "{what}: {said:?}");
    }
    // A file that is cut off anywhere but at the end of a line.
    let text = whole.join("\n") + "\n";
    for cut in (1..text.len()).filter(|cut| !text[..*cut].ends_with('\n')).step_by(37) {
        fs::write(&path, &text[..cut]).unwrap();
        let said = other(&desk, &["import", "in", "--json"]);
        assert_eq!((said.exit, &said.json()["damaged"]), (7, &json!(1)), "cut at {cut}: {said:?}");
    }
    assert_eq!(other(&desk, &["show", "small"]).exit, 4, "nothing of it was imported");
    fs::write(&path, text).unwrap();
    let said = other(&desk, &["import", "in", "--json"]);
    assert_eq!((said.exit, &said.json()["imported"]), (0, &json!(1)));
}

#[test]
fn what_is_no_file_of_a_session_is_refused_or_left_out() {
    let desk = Desk::new();
    small(&desk);
    let file = desk.path("small/_root/small.jsonl");
    let inside = |name: &str| desk.path("small").join(name);
    // Left out: what another program, or this one, keeps beside sessions.
    fs::write(inside("README"), "hello").unwrap();
    fs::write(inside("_root/notes.txt"), "hello").unwrap();
    fs::write(inside("_root/.small.0123.part"), "half").unwrap();
    fs::write(inside("stray.jsonl"), "hello").unwrap();
    assert_eq!(other(&desk, &["import", "small"]).exit, 0);
    // Refused: a link, whatever it leads to, a folder, another place.
    let elsewhere = desk.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::copy(&file, elsewhere.join("linked.jsonl")).unwrap();
    symlink(&elsewhere, inside("parent")).unwrap();
    symlink(&file, inside("_root/other.jsonl")).unwrap();
    symlink(desk.path("nothing"), inside("_root/dangling.jsonl")).unwrap();
    fs::create_dir(inside("_root/folder.jsonl")).unwrap();
    fs::copy(&file, inside("_root/smal.jsonl")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, inside("_root/pipe.jsonl"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let said = other(&desk, &["import", "small", "--json"]);
    let json = said.json();
    assert_eq!((said.exit, &json["refused"], &json["damaged"], &json["skipped"]), (5, &json!(6), &json!(0), &json!(1)), "{said:?}");
    let mut codes: Vec<_> = json["troubles"].as_array().unwrap().iter().map(|trouble| trouble["code"].as_str().unwrap().to_owned()).collect();
    codes.sort();
    assert_eq!(codes, ["FILE_FOREIGN", "FILE_FOREIGN", "FILE_FOREIGN", "FILE_FOREIGN", "FILE_FOREIGN", "FILE_MISPLACED"]);

    let said = other(&desk, &["import", "nowhere"]);
    assert!(said.exit == 4 && said.err.starts_with("error[FOLDER_NOT_FOUND]: "), "{said:?}");
    let fresh = format!("sqlite:{}", desk.path("fresh.db").display());
    assert_eq!(desk.run(&["import", "nowhere", "--store", &fresh]).exit, 4);
    assert!(!desk.path("fresh.db").exists(), "a folder that is not there makes no store");
    assert_eq!(desk.run(&["import", "small", "--store", "memory:"]).exit, 4);
}

#[test]
fn an_import_that_was_killed_is_finished_by_the_same_command() {
    const SESSIONS: usize = 8;
    let desk = Desk::new();
    let store = desk.store();
    for n in 0..SESSIONS {
        let name = format!("session-{n}");
        cli::root(&store, &name, "a large one", 1_000);
        for message in 0..3 {
            cli::accept(&store, &name, &format!("m{message}"), &"x".repeat(1 << 20));
        }
    }
    drop(store);
    assert_eq!(desk.run(&["export", "--all", "--to", "out"]).exit, 0);
    let url = format!("sqlite:{}", desk.path("other.db").display());
    let mut child = desk.command(&["import", "out", "--activate", "--store", &url]).stdout(Stdio::null()).spawn().unwrap();
    // Killed as soon as anything of it can be seen.
    loop {
        let seen = desk.path("other.db").exists() && other(&desk, &["list", "--json"]).json()["entries"].as_array().is_some_and(|entries| !entries.is_empty());
        if seen || child.try_wait().unwrap().is_some() {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let said = other(&desk, &["import", "out", "--activate", "--json"]);
    let json = said.json();
    let count = |key: &str| usize::try_from(json[key].as_u64().unwrap()).unwrap();
    assert_eq!((said.exit, count("imported") + count("skipped")), (0, SESSIONS), "{said:?}");
    assert!(count("skipped") > 0);
    assert_eq!(other(&desk, &["export", "--all", "--to", "again"]).exit, 0);
    assert_eq!(files(&desk.path("again")), files(&desk.path("out")));
}
