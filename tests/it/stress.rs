//! The stress run: clean on every store and under kills, and red where a promise is broken.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use greenroom::stress::{Kills, Progress, StressOptions, StressReport, stress};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

use crate::{
    audit,
    cli::{Desk, Kind, Said},
};

fn options(store: &str) -> StressOptions {
    let mut options = StressOptions::new(store.parse().unwrap());
    (options.agents, options.senders, options.messages, options.seed) = (16, 6, 50, 11);
    options
}

fn check(report: &StressReport) {
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.accepted, report.served + report.failed + report.withdrawn), (300, 300));
    assert!(report.failed > 0 && report.sessions >= 16 && report.epochs > report.sessions, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_store_serves_the_same_plan_and_the_audit_is_clean() {
    let desk = Desk::new();
    let most = AtomicU64::new(0);
    let observe = |progress: Progress| {
        most.fetch_max(progress.accepted, Ordering::Relaxed);
    };
    let memory = stress(&options("memory:"), &observe).await.unwrap();
    assert_eq!(most.load(Ordering::Relaxed), 300, "the observer was told of every acceptance");
    let file = desk.path("stress.db");
    let url = format!("sqlite:{}", file.display());
    let sqlite = stress(&options(&url), &|_: Progress| {}).await.unwrap();
    for report in [&memory, &sqlite] {
        check(report);
    }
    assert_eq!((memory.seed, sqlite.seed), (11, 11));

    // A store that has had a run takes another, under a root of its own; what the first has left is none of its business.
    let mut other = options(&url);
    other.seed = 12;
    check(&stress(&other, &|_: Progress| {}).await.unwrap());
    let sessions = audit::read(&file);
    assert_eq!(sessions.iter().filter(|session| session.parent.is_none()).count(), 2);
    for session in &sessions {
        session.check_finished();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn among_many_messages_to_one_agent_some_are_taken_back_and_some_are_interrupted() {
    let mut options = options("memory:");
    (options.agents, options.senders) = (1, 20);
    let report = stress(&options, &|_: Progress| {}).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.accepted, report.served + report.failed + report.withdrawn), (1_000, 1_000));
    // Twenty wait for one agent at nearly any time: that all of sixty withdrawals come too late is no race but a fault.
    assert!(report.withdrawn > 0 && report.interrupted > 0 && report.interrupted < report.failed, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_inboxes_are_met_full_and_lose_nothing() {
    let mut options = options("memory:");
    options.inbox_limit = 1;
    options.size = 0..=0;
    let report = stress(&options, &|_: Progress| {}).await.unwrap();
    check(&report);
    assert!(report.busy > 0, "no sender met a full inbox");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_process_is_killed_again_and_again_loses_nothing() {
    let desk = Desk::new();
    let file = desk.path("stress.db");
    let mut options = options(&format!("sqlite:{}", file.display()));
    let worker = [env!("CARGO_BIN_EXE_greenroom"), "stress", "--worker"].map(Into::into).to_vec();
    options.kills = Some(Kills { every: Duration::from_millis(20)..=Duration::from_millis(120), until: None, worker });
    let report = stress(&options, &|_: Progress| {}).await.unwrap();
    check(&report);
    assert!(report.kills >= 5, "{report:?}");
    // Judged once more, by code that shares nothing with the audit.
    let sessions = audit::read(&file);
    assert_eq!(sessions.len() as u64, report.sessions + 1);
    for session in &sessions {
        session.check_finished();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kill_is_followed_by_an_audit_until_there_were_enough() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        let mut options = options(&desk.url());
        // It would be over at once if that counted.
        options.messages = 1;
        let worker = [env!("CARGO_BIN_EXE_greenroom"), "stress", "--worker"].map(Into::into).to_vec();
        options.kills = Some(Kills { every: Duration::from_millis(60)..=Duration::from_millis(120), until: Some(8), worker });
        let report = stress(&options, &|_: Progress| {}).await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert!(report.kills >= 8 && report.audits == report.kills && report.accepted > u64::from(options.senders), "{report:?}");
    }
}

#[tokio::test]
async fn what_a_kill_has_lost_is_found_by_the_audit_after_it() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        drop(desk.any_store());
        let mut options = options(&desk.url());
        // It says that a message was accepted, and nothing is there.
        let worker = ["sh", "-c", "read line; echo 'laid-out .'; echo 'accepted 0 0 70 .'; read rest"].map(Into::into).to_vec();
        options.kills = Some(Kills { every: Duration::from_millis(200)..=Duration::from_millis(200), until: None, worker });
        let report = stress(&options, &|_: Progress| {}).await.unwrap();
        assert_eq!((report.accepted, report.lost, report.kills, report.audits, report.is_clean()), (1, 1, 1, 1, false), "{report:?}");
    }
}

#[test]
fn the_command_line_kills_copies_of_itself_over_a_store_that_is_gone_afterwards() {
    let desk = Desk::new();
    std::fs::create_dir(desk.path("tmp")).unwrap();
    let mut command = desk.command(&["-v", "stress", "--json", "--kill-every", "20..120", "--messages", "50", "--agents", "8"]);
    let said = Said::of(&command.env("TMPDIR", desk.path("tmp")).output().unwrap());
    assert_eq!(said.exit, 0, "{said:?}");
    let report = said.json();
    assert_eq!((&report["accepted"], &report["lost"], &report["pending"]), (&json!(400), &json!(0), &json!(0)));
    assert!(report["kills"].as_u64().unwrap() >= 3, "{report}");
    assert_eq!(std::fs::read_dir(desk.path("tmp")).unwrap().count(), 0);
    assert!(!desk.path("desk.db").exists());
}

#[test]
fn workers_that_are_given_no_time_get_more_until_they_come_to_something() {
    let desk = Desk::new();
    let report = desk.run(&["stress", "--json", "--kill-every", "0..0", "--messages", "2", "--senders", "2", "--agents", "2"]).json();
    assert_eq!((&report["accepted"], &report["pending"]), (&json!(4), &json!(0)));
    assert!(report["kills"].as_u64().unwrap() > 5, "{report}");
}

#[tokio::test]
async fn a_worker_that_ends_by_itself_is_an_error_and_not_a_kill() {
    let desk = Desk::new();
    let mut options = options(&format!("sqlite:{}", desk.path("stress.db").display()));
    for (command, expected) in [("read line; exit 3", "exit status: 3"), ("exit 4", "exit status: 4"), ("kill -TERM $$", "signal: 15 (SIGTERM)")] {
        let worker = ["sh", "-c", command].map(Into::into).to_vec();
        options.kills = Some(Kills { every: Duration::from_secs(60)..=Duration::from_secs(60), until: None, worker });
        let error = stress(&options, &|_: Progress| {}).await.unwrap_err();
        assert_eq!((error.code(), error.to_string()), ("STRESS_FAILED", format!("the worker ended by itself: {expected}")));
    }
}

#[test]
fn the_report_is_one_json_document_with_the_keys_that_scripts_know() {
    let desk = Desk::new();
    let words = ["stress", "--json", "--agents", "8", "--senders", "4", "--messages", "25", "--seed", "3", "--size", "16"];
    let said = desk.run(&words);
    assert_eq!((said.exit, said.err.as_str()), (0, ""));
    let mut report = said.json();
    for key in ["wall_ms", "accepted_per_s", "turns_per_s", "peak_rss_bytes", "latency_us/p50", "latency_us/p99", "latency_us/p999"] {
        let value = report.pointer_mut(&format!("/{key}")).unwrap_or_else(|| panic!("{key} is missing"));
        assert!(value.as_u64().is_some_and(|value| value > 0), "{key} is {value}");
        *value = json!("[measured]");
    }
    let ended = ["served", "failed", "withdrawn"].map(|key| std::mem::replace(&mut report[key], json!("[raced]")).as_u64().unwrap());
    assert_eq!(ended.iter().sum::<u64>(), 100, "{ended:?}");
    assert_eq!(
        report,
        json!({
            "accepted": 100, "served": "[raced]", "failed": "[raced]", "withdrawn": "[raced]", "pending": 0, "lost": 0, "duplicated": 0, "order_violations": 0, "kills": 0,
            "wall_ms": "[measured]", "accepted_per_s": "[measured]", "turns_per_s": "[measured]",
            "latency_us": {"p50": "[measured]", "p99": "[measured]", "p999": "[measured]"},
            "peak_rss_bytes": "[measured]", "seed": 3,
        })
    );
    assert!(!desk.path("desk.db").exists(), "GREENROOM_STORE names the user's own store, which is no place for a stress run");
}

#[test]
fn a_table_for_a_person_ends_with_the_verdict() {
    let desk = Desk::new();
    let said = desk.run(&["stress", "--store", "memory:", "--agents", "4", "--senders", "2", "--messages", "10", "--seed", "9"]);
    assert_eq!(said.exit, 0, "{said:?}");
    let names: Vec<&str> = said.out.lines().map(|line| line.get(..14).unwrap().trim_end()).collect();
    let expected = "accepted,served,failed,withdrawn,pending,lost,duplicated,out of order,latency,time,peak memory,kills,in all,full inboxes,seed,audit";
    assert_eq!(names.join(","), expected);
    assert!(said.out.ends_with("audit         clean: every acknowledged message ended in exactly one turn or was taken back, in order\n"), "{}", said.out);
}

#[test]
fn a_run_without_a_seed_names_the_one_it_took() {
    let desk = Desk::new();
    let seed = || {
        let report = desk.run(&["stress", "--store", "memory:", "--json", "--agents", "2", "--senders", "1", "--messages", "1"]).json();
        report["seed"].as_u64().unwrap()
    };
    assert_ne!(seed(), seed());
}

#[test]
fn what_is_cut_off_by_its_timeout_is_audited_and_is_a_failure() {
    let desk = Desk::new();
    let file = desk.path("kept.db");
    let url = format!("sqlite:{}", file.display());
    let said = desk.run(&["stress", "--store", &url, "--json", "--agents", "8", "--messages", "1000000", "--timeout", "1s"]);
    assert_eq!(said.exit, 1, "{said:?}");
    assert!(said.err.starts_with("error[AUDIT_FAILED]: 0 lost, 0 duplicated, 0 out of order, ") && said.err.contains("cut off by its timeout"), "{}", said.err);
    let report = said.json();
    let count = |key: &str| report[key].as_u64().unwrap();
    assert_eq!(count("accepted"), count("served") + count("failed") + count("withdrawn") + count("pending"));
    assert!(file.exists(), "a store that was named stays");
    // What was cut off is a crash like any other to whoever comes next.
    for session in audit::read(&file) {
        session.check();
    }
}

#[test]
fn asked_for_what_makes_no_sense_the_exit_is_2() {
    let desk = Desk::new();
    for (words, expected) in [
        (&["--store", "memory:", "stress", "--kill-every", "50..200"][..], "--kill-every needs a store that outlives its process"),
        (&["stress", "--agents", "0"], "'0' for '--agents <N>'"),
        (&["stress", "--senders", "0"], "'0' for '--senders <S>'"),
        (&["stress", "--kill-every", "200..50"], "200 is more than 50"),
        (&["stress", "--kill-every", "soon"], "expected a number, or MIN..MAX"),
        (&["stress", "--size", "16777217"], "a message has at most 16 MiB"),
        (&["stress", "--seed", "many"], "--seed"),
        (&["stress", "--timeout", "5"], "--timeout"),
        (&["stress", "--store", "nowhere"], "names no store"),
    ] {
        let said = desk.run(words);
        assert_eq!((said.exit, said.out.as_str()), (2, ""), "{words:?}: {said:?}");
        assert!(said.err.contains(expected), "{words:?}: {}", said.err);
    }
}

/// A worker without its supervisor: a process, and the two ends of its pipes.
struct Worker {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(desk: &Desk, messages: u32) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_greenroom"))
            .args(["stress", "--worker"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let plan = json!({"seed": 1, "agents": 4, "senders": 2, "messages": messages, "min_size": 1, "max_size": 9});
        let store = format!("sqlite:{}", desk.path("worker.db").display());
        let assignment = json!({"store": store, "plan": plan, "root": "the-root", "inbox_limit": 16, "senders": [{"next": 0, "withdraws": false}, {"next": 0, "withdraws": false}]});
        let mut input = process.stdin.take().unwrap();
        writeln!(input, "{assignment}").unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, input: Some(input), output }
    }

    fn wait_for(&mut self, beginning: &str) {
        let mut line = String::new();
        while !line.starts_with(beginning) {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the worker ended before {beginning:?}");
        }
    }
}

#[test]
fn a_worker_ends_with_its_supervisor() {
    let desk = Desk::new();
    let mut worker = Worker::start(&desk, 1_000_000);
    worker.wait_for("accepted");
    drop(worker.input.take());
    let said = worker.process.wait_with_output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&said.stderr).contains("the supervisor of this worker is gone"), "{said:?}");

    // One that is done waits to be looked at, and ends well.
    let desk = Desk::new();
    let mut worker = Worker::start(&desk, 2);
    worker.wait_for("done");
    assert!(worker.process.try_wait().unwrap().is_none());
    drop(worker.input.take());
    assert!(worker.process.wait().unwrap().success());
}

/// Returns the processes that a process has started and not waited for.
fn children_of(process: u32) -> Vec<Pid> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of_threads = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok()).collect::<Vec<_>>().join(" ");
    format!("{text} {of_threads}").split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(std::time::Instant::now() < end, "{what}: not within a minute");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

#[test]
fn neither_a_signal_nor_a_kill_of_the_supervisor_leaves_a_worker_behind() {
    for (signal, exit) in [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::KILL, None)] {
        let desk = Desk::new();
        let mut command = desk.command(&["stress", "--messages", "1000000", "--kill-every", "100..400"]);
        std::fs::create_dir(desk.path("tmp")).unwrap();
        let supervisor = command.env("TMPDIR", desk.path("tmp")).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut workers = Vec::new();
        until("a worker", || {
            workers = children_of(supervisor.id());
            !workers.is_empty()
        });
        let pid = Pid::from_raw(i32::try_from(supervisor.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        // Between the look and the signal another worker may have come: whoever is there when the supervisor has gone is waited for.
        let said = supervisor.wait_with_output().unwrap();
        assert_eq!(said.status.code(), exit, "{signal:?}: {said:?}");
        until("no worker is left", || workers.iter().all(|worker| test_kill_process(*worker).is_err() || is_zombie(*worker)));
        if exit.is_some() {
            assert_eq!(std::fs::read_dir(desk.path("tmp")).unwrap().count(), 0, "the temporary store is removed");
        }
    }
}

/// Tells whether a process has ended and only its parent has not noticed yet.
fn is_zombie(process: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && line.contains('Z'))
}

#[test]
fn the_help_shows_an_example_and_nothing_of_the_worker() {
    let said = Desk::new().run(&["stress", "--help"]);
    assert_eq!(said.exit, 0);
    assert!(said.out.contains("greenroom stress --kill-every 50..200") && !said.out.contains("--worker"), "{}", said.out);
}
