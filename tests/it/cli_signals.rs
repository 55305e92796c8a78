//! Signals: a command ends at once or in good order, and the same command again finishes what was begun.

use std::{
    fs::{self, OpenOptions},
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use greenroom::session::{
    header::NewSession,
    store::{Create, Op},
};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::cli::{self, Desk, Kind, Said, continuable, files_below, id};

fn start(desk: &Desk, words: &[&str]) -> Child {
    desk.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn tell(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn end(child: Child) -> Said {
    Said::of(&child.wait_with_output().unwrap())
}

/// The signals that end a command, and their exits.
const SIGNALS: [(Signal, i32); 3] = [(Signal::HUP, 129), (Signal::INT, 130), (Signal::TERM, 143)];

/// A root whose command reads a pipe, one for each turn: it is under way until somebody has written there.
const PIPE: &str = r#"
[run]
root = "reader"
prompt = "Read."

[agents.reader]
behavior = "command"
answer = "text"
command = ["sh", "-c", "cat pipe-$GREENROOM_TURN"]
"#;

/// A desk with that program and its pipes.
fn pipes(turns: usize) -> Desk {
    let desk = Desk::new();
    for turn in 1..=turns {
        assert!(Command::new("mkfifo").arg(desk.path(&format!("pipe-{turn}"))).status().unwrap().success());
    }
    desk.write("pipe.toml", PIPE);
    desk
}

#[test]
fn each_signal_ends_a_run_with_its_own_exit_and_leaves_the_message() {
    let desk = pipes(4);
    let mut root: Option<String> = None;
    for (turn, (signal, exit)) in (1..).zip(SIGNALS) {
        let resumed = root.as_deref().map_or_else(Vec::new, |root| vec!["--root", root]);
        let running = start(&desk, &[&["run", "pipe.toml", "--json"], &resumed[..]].concat());
        // Opened by the command that reads it: the turn is under way.
        let pipe = OpenOptions::new().write(true).open(desk.path(&format!("pipe-{turn}"))).unwrap();
        tell(&running, signal);
        let said = end(running);
        let json = said.json();
        assert_eq!((said.exit, &json["error"]["code"]), (exit, &json!("SIGNALLED")), "{said:?}");
        assert!(said.err.contains("\nending in good order; a second signal ends at once\nerror[SIGNALLED]: "), "{said:?}");
        root = Some(json["root"].as_str().unwrap().to_owned());
        drop(pipe);
        let entry = &desk.run(&["list", "--json"]).json()["entries"][0];
        assert_eq!((&entry["status"], &entry["turn"]), (&json!("complete"), &json!("interrupted")), "{entry}");
    }
    assert_eq!(desk.run(&["check"]).exit, 0);
}

#[test]
fn each_signal_ends_a_stress_run_with_its_own_exit() {
    let desk = Desk::new();
    for (signal, exit) in SIGNALS {
        for more in [&[][..], &["--kill-every", "40..80"]] {
            let url = format!("sqlite:{}", desk.path(&format!("stress-{exit}-{}.db", more.len())).display());
            let words = ["stress", "--json", "--messages", "1000000", "--store", &url];
            let running = start(&desk, &[&words, more].concat());
            // Sessions that somebody holds are there when it has taken the signals for itself.
            until("a session", || {
                let said = desk.run(&["list", "--json", "--store", &url]);
                said.exit == 0 && said.json()["entries"].as_array().unwrap().iter().any(|entry| entry["status"] == "running")
            });
            tell(&running, signal);
            let said = end(running);
            assert_eq!((said.exit, &said.json()["error"]["code"]), (exit, &json!("SIGNALLED")), "{said:?}");
            assert_eq!(desk.run(&["check", "--store", &url]).exit, 0);
        }
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if holds() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("never: {what}");
}

/// Holds the store, so that nothing can be ended in good order, and asks twice. The second exit tells that it was the second who ended it.
fn asked_twice(desk: &Desk, words: &[&str], said: &str) {
    let mut running = start(desk, words);
    let mut stderr = BufReader::new(running.stderr.take().unwrap()).lines().map(Result::unwrap);
    until("a session that runs", || desk.run(&["list"]).out.contains("[running]"));
    let lock = Connection::open(desk.path("desk.db")).unwrap();
    lock.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    tell(&running, Signal::INT);
    assert!(stderr.any(|line| line.contains(said)), "the first is told of");
    tell(&running, Signal::TERM);
    assert_eq!(running.wait().unwrap().code(), Some(143), "the second ended it");
    drop(lock);
    assert_eq!(desk.run(&["check"]).exit, 0);
}

#[test]
fn a_second_signal_ends_a_run_at_once() {
    let desk = pipes(1);
    asked_twice(&desk, &["run", "pipe.toml"], "ending in good order; a second signal ends at once");
}

#[test]
fn a_second_signal_ends_a_stress_run_at_once() {
    let desk = Desk::new();
    let url = desk.url();
    asked_twice(&desk, &["-v", "stress", "--messages", "1000000", "--store", &url], "ending in good order; a second signal ends at once");
}

/// Sessions that take their time, in the desk's store.
fn large(desk: &Desk, sessions: usize) {
    let store = desk.any_store();
    for n in 0..sessions {
        let name = format!("session-{n}");
        cli::root(&*store, &name, "a large one", 1_000);
        for message in 0..3 {
            cli::accept(&*store, &name, &format!("m{message}"), &"x".repeat(1 << 18));
        }
    }
    store.close().unwrap();
}

/// Interrupts a command as soon as something can be seen of it. Tells whether that was before its end.
fn interrupted(mut child: Child, mut seen: impl FnMut() -> bool) -> bool {
    while !seen() && child.try_wait().unwrap().is_none() {}
    tell(&child, Signal::INT);
    let status = child.wait().unwrap();
    assert!(status.signal() == Some(2) || matches!(status.code(), Some(0 | 130)), "{status:?}");
    status.code() != Some(0)
}

fn count(folder: &Path, ending: &str) -> usize {
    if folder.is_dir() { files_below(folder).iter().filter(|path| path.to_str().unwrap().ends_with(ending)).count() } else { 0 }
}

#[test]
fn an_export_that_is_interrupted_has_whole_files_and_the_same_again_finishes() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        large(&desk, 8);
        let words = ["export", "--all", "--to", "out"];
        // A machine may be too busy to be in time.
        let caught = (0..20).any(|_| {
            drop(fs::remove_dir_all(desk.path("out")));
            interrupted(start(&desk, &words), || count(&desk.path("out"), ".jsonl") > 0)
        });
        assert!(caught, "never in the middle");
        // What is there is whole: it can be imported, and nothing is damaged.
        let half = count(&desk.path("out"), ".jsonl");
        let url = format!("sqlite:{}", desk.path("half.db").display());
        let said = desk.run(&["import", "out", "--json", "--store", &url]);
        assert_eq!((said.exit, &said.json()["imported"]), (0, &json!(half)), "{said:?}");
        let said = desk.run(&[&words[..], &["--json"]].concat());
        assert_eq!((said.exit, &said.json()["unchanged"], &said.json()["written"]), (0, &json!(half), &json!(8 - half)), "{said:?}");
        assert_eq!((count(&desk.path("out"), ".jsonl"), count(&desk.path("out"), ".part")), (8, 0));
    }
}

#[test]
fn an_import_that_is_interrupted_is_healthy_and_the_same_again_finishes() {
    let desk = Desk::new();
    large(&desk, 8);
    assert_eq!(desk.run(&["export", "--all", "--to", "folder"]).exit, 0);
    for url in [format!("sqlite:{}", desk.path("other.db").display()), format!("jsonl:{}", desk.path("other").display())] {
        let words = ["import", "folder", "--activate", "--json", "--store", &url];
        let seen = || desk.run(&["list", "--json", "--store", &url]).out.contains("session-");
        let caught = (0..20).any(|_| {
            drop(fs::remove_dir_all(desk.path("other")));
            for name in ["other.db", "other.db-wal", "other.db-shm"] {
                drop(fs::remove_file(desk.path(name)));
            }
            interrupted(start(&desk, &words), seen)
        });
        assert!(caught, "never in the middle");
        let said = desk.run(&["check", "--json", "--store", &url]);
        assert_eq!(said.exit, 0, "{said:?}");
        let half = said.json()["sessions"].as_u64().unwrap();
        assert_eq!(said.json()["messages"], json!(3 * half), "sessions are there with all that is theirs");
        let said = desk.run(&words);
        assert_eq!((said.exit, &said.json()["skipped"], &said.json()["imported"]), (0, &json!(half), &json!(8 - half)), "{said:?}");
        assert_eq!(desk.run(&["export", "--all", "--to", "again", "--store", &url]).exit, 0);
        for path in files_below(&desk.path("folder")) {
            let name = path.strip_prefix(desk.path("folder")).unwrap();
            assert!(fs::read(&path).unwrap() == fs::read(desk.path("again").join(name)).unwrap(), "{}", name.display());
        }
        fs::remove_dir_all(desk.path("again")).unwrap();
    }
}

/// As many findings as no pipe takes.
const ORPHANS: u32 = 1_500;

#[test]
fn a_check_that_is_interrupted_ends_and_has_written_nothing() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        let store = desk.any_store();
        let create = |n: u32| {
            let session = NewSession::child(id(&format!("orphan-{n:05}-{}", "x".repeat(40))), id("nobody"), 0);
            Op::Create(Create::child(session, Vec::new(), &continuable("lost"), None, 100).unwrap())
        };
        let ops: Vec<Op> = (0..ORPHANS).map(create).collect();
        assert!(store.commit(&ops).unwrap().iter().all(Result::is_ok));
        store.close().unwrap();
        drop(store);
        let whole = desk.run(&["check"]);
        assert!(whole.exit == 0 && whole.out.len() > 1 << 17, "more than a pipe takes");
        let before = desk.bytes();
        for (words, signal) in [(&["check"][..], Signal::INT), (&["check"], Signal::TERM), (&["check", "--rebuild-index"], Signal::INT)] {
            // Nobody reads on, so it cannot end by itself.
            let mut child = start(&desk, words);
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            tell(&child, signal);
            assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()), "{words:?}");
            // Deriving the index again is writing, of nothing that `check` shows.
            assert!(words.len() > 1 || desk.bytes() == before, "{words:?} wrote");
        }
        assert_eq!(desk.run(&["check"]).out, whole.out);
    }
}
