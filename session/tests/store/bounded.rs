//! What a long log takes of memory: what follows from it, and not its length.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use greenroom_session::{
    event::{Body, Event},
    recover::begin_epoch,
    store::{Append, Op, Open, Store, jsonl::JsonlStore, sqlite::SqliteStore},
};

use crate::support::{Fixture, mid, one, sid, turn};

const PATH: &str = "GREENROOM_TEST_STORE";
/// How long the log is to be, in MiB, where somebody wants it longer.
const LENGTH: &str = "GREENROOM_TEST_LOG_MIB";

fn long() -> u64 {
    std::env::var(LENGTH).ok().map_or(50, |length| length.parse().unwrap())
}

/// Writes a log whose bulk no model sees: a session cut off in the middle of its turn.
fn write(f: &Fixture) {
    const MEMO: usize = 128 * 1024;
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    let (fence, _) = f.open("r", Some(1));
    let mut seq = f.next_seq("r");
    let text = "x".repeat(MEMO);
    let each = (1 << 20) / MEMO as u64;
    for _ in 0..long() {
        let memo = |seq| Body::Memo { turn: 1, message: mid("m0"), key: None, text: text.clone() }.at(seq, 1);
        let events: Arc<[Event]> = (seq..seq + each).map(memo).collect();
        seq += each;
        f.one(Op::Append(Append { fence: fence.clone(), events, take: vec![] })).unwrap();
    }
    f.store.close().unwrap();
}

/// The most memory that this process has had resident, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1_024
}

/// The other process: resumes the session, and reads of it what can be asked for.
#[test]
#[ignore = "started by the tests of this module"]
fn another_process() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let path = Path::new(&path);
    let store: Box<dyn Store> = if path.is_dir() { Box::new(JsonlStore::open(path).unwrap()) } else { Box::new(SqliteStore::open(path).unwrap()) };
    let before = peak();
    let mut reader = store.reader().unwrap();
    let fold = reader.folded(&sid("r")).unwrap();
    let (epoch, events) = begin_epoch(&fold, 9, 3);
    one(&*store, Op::Open(Open { session: sid("r"), epoch, events: events.into(), claim: None })).unwrap();
    let roots = reader.children(None, None, 9).unwrap();
    assert!(reader.describe(&roots, true).unwrap()[0].as_ref().is_ok_and(|described| described.head.live));
    assert_eq!(reader.events(&sid("r"), fold.head().next_seq - 1, 9).unwrap().len(), 4);
    let checked = reader.check(&sid("r"), &mut |finding| panic!("{finding}")).unwrap().unwrap();
    assert_eq!(checked.next_seq, fold.head().next_seq + 3);
    let mut lines = 0;
    reader
        .export(&sid("r"), &mut |_| {
            lines += 1;
            Ok(())
        })
        .unwrap();
    assert!(lines > fold.head().next_seq);
    println!("\npeak: {} after {before}", peak());
}

fn resume(f: &Fixture) {
    // Else the bound would say nothing.
    const BOUND: u64 = 24 << 20;
    assert!(long() << 20 > 2 * BOUND);
    write(f);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bounded::another_process", "--ignored", "--nocapture", "--test-threads=1"])
        .env(PATH, f.path())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let peak = said.lines().find_map(|line| line.strip_prefix("peak: ")).unwrap_or_else(|| panic!("it failed: {said}"));
    let peak: u64 = peak.split(' ').next().unwrap().parse().unwrap();
    assert!(peak < BOUND, "{} MiB of memory for {} MiB of log", peak >> 20, long());
}

#[test]
fn a_long_log_in_sqlite_is_resumed_in_little_memory() {
    resume(&Fixture::sqlite());
}

#[test]
fn a_long_log_in_json_lines_is_resumed_in_little_memory() {
    resume(&Fixture::jsonl());
}
