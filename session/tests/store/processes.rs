//! Several processes on one store. The other processes are this test binary, started again for one test.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use greenroom_session::{
    id::OwnerId,
    store::{
        Op, Reader, Refused, Store, StoreError,
        jsonl::{self, JsonlStore},
        sqlite::{SqliteStore, open_reader},
    },
};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Fixture, accept, append, one, open, root, sid, turn};

const PATH: &str = "GREENROOM_TEST_STORE";
/// Whether that is a folder of JSON Lines.
const JSONL: &str = "GREENROOM_TEST_JSONL";

/// Another process that does what it is told, line by line.
struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(path: &Path) -> Self {
        Self::begin(path, false)
    }

    /// Starts one that uses a folder of JSON Lines.
    fn start_jsonl(path: &Path) -> Self {
        Self::begin(path, true)
    }

    fn begin(path: &Path, jsonl: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        if jsonl {
            command.env(JSONL, "1");
        }
        let mut child = command
            .args(["--exact", "processes::another_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env(PATH, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Waits for the answer to what it was told.
    fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the other process ended");
            if let Some((_, answer)) = line.split_once("answer: ") {
                return answer.trim_end().to_owned();
            }
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The other process: opens the store and obeys.
#[test]
#[ignore = "started by the tests of this module"]
fn another_process() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let mut store: Option<Box<dyn Store>> = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["start"] if std::env::var_os(JSONL).is_some() => match JsonlStore::open(&path) {
                Ok(opened) => store.insert(Box::new(opened)).owner().to_string(),
                Err(error) => error.code().to_owned(),
            },
            ["start"] => store.insert(Box::new(SqliteStore::open(&path).unwrap())).owner().to_string(),
            ["create", id] => one(&**store.as_ref().unwrap(), Op::Create(root(id, 1))).map_or_else(|refused| refused.code().to_owned(), |_| "done".into()),
            ["open", id] => match open(&**store.as_ref().unwrap(), id, None) {
                Ok((fence, _)) => fence.epoch.to_string(),
                Err(refused) => refused.code().to_owned(),
            },
            ["append", id, epoch] => {
                let fence = crate::support::fence(id, epoch.parse().unwrap());
                one(&**store.as_ref().unwrap(), append(&fence, vec![], vec![])).map_or_else(|refused| refused.code().to_owned(), |_| "done".into())
            }
            ["accept", id, message] => {
                one(&**store.as_ref().unwrap(), accept(id, turn(message))).map_or_else(|refused| refused.code().to_owned(), |_| "done".into())
            }
            ["flood", id] => {
                println!("answer: flooding");
                for n in 0.. {
                    one(
                        &**store.as_ref().unwrap(),
                        Op::Accept(greenroom_session::store::Accept {
                            inbox_limit: u64::MAX,
                            ..greenroom_session::store::Accept::new(sid(id), turn(&format!("f{n}")))
                        }),
                    )
                    .unwrap();
                    println!("answer: {n}");
                }
                break;
            }
            // Batches of three messages to each of some sessions, and of a session that is created.
            ["floods", ref ids @ ..] => {
                println!("answer: flooding");
                for n in 0.. {
                    let accepts = ids.iter().flat_map(|id| (0..3).map(move |k| accept(id, turn(&format!("f{n}-{k}")))));
                    let ops: Vec<Op> = accepts.chain([Op::Create(root(&format!("s{n}"), 1))]).collect();
                    let results = store.as_ref().unwrap().commit(&ops).unwrap();
                    assert!(results.iter().all(Result::is_ok));
                    println!("answer: {n}");
                }
                break;
            }
            _ => panic!("{line}"),
        };
        println!("answer: {answer}");
    }
}

#[test]
fn the_lease_of_a_killed_process_is_free_at_once() {
    let f = Fixture::sqlite();
    f.root("r");
    let mut other = Other::start(&f.path());
    let owner: OwnerId = other.ask("start").parse().unwrap();
    assert_eq!(other.ask("open r"), "1");
    assert_eq!(open(&*f.store, "r", None), Err(Refused::Held(owner.clone())));
    let mut reader = open_reader(f.path()).unwrap();
    assert!(reader.leases(None).unwrap()[0].alive);
    other.kill();
    assert!(!reader.leases(None).unwrap()[0].alive);
    let lock = f.path().with_file_name("store.db-nodes").join(format!("{owner}.lock"));
    assert!(lock.exists());
    let (fence, _) = f.open("r", None);
    assert_eq!(fence.epoch, 2);
    assert!(!lock.exists(), "who takes over cleans up");
}

#[test]
fn a_stopped_process_that_was_overtaken_is_fenced() {
    let f = Fixture::sqlite();
    f.root("r");
    let mut other = Other::start(&f.path());
    let owner: OwnerId = other.ask("start").parse().unwrap();
    assert_eq!(other.ask("open r"), "1");
    other.signal(Signal::STOP);
    assert_eq!(open(&*f.store, "r", None), Err(Refused::Held(owner.clone())));
    let raw = rusqlite::Connection::open(f.path()).unwrap();
    raw.execute("UPDATE node SET expires_at = expires_at - 10001 WHERE owner = ?1", [owner.as_str()]).unwrap();
    let (fence, _) = f.open("r", None);
    assert_eq!(fence.epoch, 2);
    other.signal(Signal::CONT);
    assert_eq!(other.ask("append r 1"), "FENCED");
    assert_eq!(other.ask("open r"), "SESSION_HELD");
    other.kill();
}

#[test]
fn of_eight_that_take_over_at_once_one_wins() {
    for round in 0..5 {
        let f = Fixture::sqlite();
        f.root("r");
        let mut holder = Other::start(&f.path());
        holder.ask("start");
        assert_eq!(holder.ask("open r"), "1");
        let mut takers: Vec<Other> = (0..8).map(|_| Other::start(&f.path())).collect();
        for taker in &mut takers {
            taker.ask("start");
        }
        holder.kill();
        for taker in &mut takers {
            taker.tell("open r");
        }
        let answers: Vec<String> = takers.iter_mut().map(Other::answer).collect();
        assert_eq!(answers.iter().filter(|answer| *answer == "2").count(), 1, "round {round}: {answers:?}");
        assert!(answers.iter().all(|answer| ["2", "SESSION_HELD", "FENCED", "SEQ_CONFLICT"].contains(&answer.as_str())), "round {round}: {answers:?}");
        // Whoever comes late with the epoch before is told so, and the log has one new epoch.
        for (taker, answer) in takers.iter_mut().zip(&answers) {
            let wrote = taker.ask(&format!("append r {}", if answer == "2" { 2 } else { 1 }));
            assert_eq!(wrote, if answer == "2" { "done" } else { "FENCED" }, "round {round}");
        }
        assert_eq!(f.load("r").fold.head().epoch, 2);
        takers.into_iter().for_each(Other::kill);
    }
}

#[test]
fn what_a_killed_process_was_told_is_accepted_is_there() {
    let f = Fixture::sqlite();
    f.root("r");
    let mut other = Other::start(&f.path());
    other.ask("start");
    assert_eq!(other.ask("flood r"), "flooding");
    let mut acknowledged = 0;
    while acknowledged < 20 {
        acknowledged = other.answer().parse::<u64>().unwrap();
    }
    other.kill();
    let log = f.load("r");
    assert!(log.fold.head().pending_turns > acknowledged);
    assert!(f.accept("r", turn("after")).is_ok());
}

#[test]
fn closing_one_opening_of_two_does_not_let_others_delete_the_wal() {
    let f = Fixture::sqlite();
    f.root("r");
    // Opened, looked at in every way and closed again within this process, while the first opening lives; once with an empty WAL, when a
    // file is looked at without one.
    let emptied = rusqlite::Connection::open(f.path()).unwrap();
    emptied.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(emptied);
    assert_eq!(std::fs::metadata(f.path().with_file_name("store.db-wal")).unwrap().len(), 0);
    drop(open_reader(f.path()).unwrap());
    drop(SqliteStore::open(f.path()).unwrap());
    drop(SqliteStore::open_existing(f.path()).unwrap());
    drop(open_reader(f.path()).unwrap());
    let mut other = Other::start(&f.path());
    other.ask("start");
    assert_eq!(other.ask("accept r m0"), "done");
    drop(other.input);
    other.child.wait().unwrap();
    assert!(f.path().with_file_name("store.db-wal").exists());
    f.accept("r", turn("m1")).unwrap();
    let mut third = Other::start(&f.path());
    third.ask("start");
    assert_eq!(third.ask("accept r m2"), "done");
    assert_eq!(f.load("r").fold.head().next_order, 3);
    third.kill();
}

#[test]
fn a_folder_of_json_lines_takes_one_writer_and_is_free_when_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut other = Other::start_jsonl(&path);
    let owner: OwnerId = other.ask("start").parse().unwrap();
    assert_eq!(other.ask("create r"), "done");
    assert_eq!(other.ask("open r"), "1");
    let mut beside = jsonl::open_reader(&path).unwrap();
    let leases = beside.leases(None).unwrap();
    assert_eq!((leases.len(), &leases[0].session, &leases[0].owner, leases[0].alive), (1, &sid("r"), &owner, true));
    assert_eq!(crate::support::describe(&mut beside, "r", false).unwrap().holder, Some(owner));
    match JsonlStore::open(&path).unwrap_err() {
        StoreError::OneWriter { holder, .. } => assert_eq!(holder, other.child.id().to_string()),
        error => panic!("{error}"),
    }
    other.kill();
    assert!(beside.leases(None).unwrap().is_empty());
    assert_eq!(beside.runnable(None, 9).unwrap(), [sid("r")]);
    let store = JsonlStore::open(&path).unwrap();
    let (fence, _) = open(&store, "r", None).unwrap();
    assert_eq!(fence.epoch, 2);
}

#[test]
fn what_a_killed_writer_of_json_lines_has_acknowledged_is_there_whole() {
    for round in 0..8 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut other = Other::start_jsonl(&path);
        other.ask("start");
        for id in ["a", "b", "c"] {
            assert_eq!(other.ask(&format!("create {id}")), "done");
        }
        assert_eq!(other.ask("floods a b c"), "flooding");
        let mut acknowledged = 0;
        while acknowledged < 3 + round {
            acknowledged = other.answer().parse::<u64>().unwrap();
        }
        other.kill();
        let mut reader = jsonl::open_reader(&path).unwrap();
        for id in ["a", "b", "c"] {
            assert!(reader.load(&sid(id)).unwrap().fold.head().pending_turns >= 3 * (acknowledged + 1));
        }
        for n in 0..=acknowledged {
            assert_eq!(reader.load(&sid(&format!("s{n}"))).unwrap().events.len(), 2);
        }
        let store = JsonlStore::open(&path).unwrap();
        for id in ["a", "b", "c"] {
            one(&store, accept(id, turn("after"))).unwrap();
        }
        for id in store.reader().unwrap().find("", 999).unwrap() {
            assert!(store.reader().unwrap().load(&id).is_ok(), "{id}");
        }
    }
}

#[test]
fn processes_race_for_a_folder_of_json_lines_and_one_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/store");
    let mut others: Vec<Other> = (0..4).map(|_| Other::start_jsonl(&path)).collect();
    for other in &mut others {
        other.tell("start");
    }
    let answers: Vec<String> = others.iter_mut().map(Other::answer).collect();
    assert_eq!(answers.iter().filter(|answer| *answer == "STORE_LOCKED").count(), 3, "{answers:?}");
    others.into_iter().for_each(Other::kill);
    assert!(jsonl::open_reader(&path).unwrap().find("", 9).unwrap().is_empty());
}

#[test]
fn processes_race_to_be_born_with_and_one_store_comes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/store.db");
    let mut others: Vec<Other> = (0..8).map(|_| Other::start(&path)).collect();
    for other in &mut others {
        other.tell("start");
    }
    let owners: std::collections::HashSet<String> = others.iter_mut().map(Other::answer).collect();
    assert_eq!(owners.len(), 8);
    let store = SqliteStore::open(&path).unwrap();
    one(&store, Op::Create(root("r", 1))).unwrap();
    for (n, other) in others.iter_mut().enumerate() {
        assert_eq!(other.ask(&format!("accept r m{n}")), "done");
    }
    assert_eq!(store.poll().unwrap(), [sid("r")]);
    assert_eq!(store.reader().unwrap().load(&sid("r")).unwrap().fold.head().pending_turns, 8);
    others.into_iter().for_each(Other::kill);
}
