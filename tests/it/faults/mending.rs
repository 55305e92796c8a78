//! A repair: cut off anywhere it has done some of its work, and the same command again does the rest.

use std::fs;

use greenroom::session::{
    recover::begin_epoch,
    store::{Op, Open, Store},
};
use serde_json::Value;

use super::shim::{Disaster, disasters, judged, operations, under};
use crate::{
    cli::{Desk, Kind, commit, continuable, id},
    transfer_world::rich,
};

const REPAIR: [&str; 4] = ["check", "--repair", "--apply", "--json"];

/// A store in which there is everything, and of every fault one: a torn end, an epoch without a holder, an index that is no good, damage.
fn desk(kind: Kind) -> Desk {
    let desk = Desk::over(kind);
    let store = desk.any_store();
    rich(&*store);
    for name in ["torn", "left", "hit"] {
        crate::cli::child(&*store, name, "root", &continuable(name), 2_000);
        crate::cli::accept(&*store, name, "m0", "Begin.");
    }
    begin(&*store, "left");
    store.close().unwrap();
    drop(store);
    match kind {
        Kind::Sqlite => {
            let conn = rusqlite::Connection::open(desk.path("desk.db")).unwrap();
            conn.execute("DELETE FROM summary WHERE sid = (SELECT sid FROM session WHERE id = 'torn')", []).unwrap();
            conn.execute("UPDATE event SET crc = crc + 1 WHERE seq = 1 AND sid = (SELECT sid FROM session WHERE id = 'hit')", []).unwrap();
        }
        Kind::Jsonl => {
            let change = |name: &str, change: fn(&str) -> String| {
                let path = desk.path(&format!("desk/root/{name}.jsonl"));
                fs::write(&path, change(&fs::read_to_string(&path).unwrap())).unwrap();
            };
            change("torn", |text| format!("{text}{{\"seq\":3,"));
            change("hit", |text| text.replacen("spawn", "spoon", 1));
        }
    }
    desk
}

/// Begins an epoch with the first turn, as a process does that is killed then.
fn begin(store: &dyn Store, name: &str) {
    let fold = store.reader().unwrap().folded(&id(name)).unwrap();
    let (epoch, events) = begin_epoch(&fold, 2_000, 3);
    commit(store, Op::Open(Open { session: id(name), epoch, events: events.into(), claim: Some(2_000) }));
}

/// The sessions that nothing is wrong with, as they would be exported.
fn healthy(desk: &Desk) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for name in ["root", "interrupted", "fork", "once", "orphan"] {
        let mut keep = |line: &[u8]| {
            lines.push(line.to_vec());
            Ok(())
        };
        desk.any_store().reader().unwrap().export(&id(name), &mut keep).unwrap();
    }
    lines
}

/// What a check finds, with what each session was quarantined for.
fn found(desk: &Desk) -> Vec<String> {
    let document: Value = serde_json::from_str(&desk.run(&["check", "--json"]).out).unwrap();
    let findings = document["findings"].as_array().unwrap().iter();
    let text = |finding: &Value| {
        format!("{} {} {}", finding["session"], finding["class"], if finding["class"] == "quarantined" { &finding["what"] } else { &Value::Null })
    };
    let mut found: Vec<String> = findings.map(text).collect();
    // What a cut-off repair or a cut-off opening leaves behind.
    found.retain(|finding| !finding.contains("leftover") && !finding.contains("foreign_object"));
    found.sort();
    found
}

fn expected(kind: Kind) -> Vec<String> {
    let desk = desk(kind);
    let (before, dry) = (healthy(&desk), desk.bytes());
    let planned = desk.run(&["check", "--repair", "--json"]);
    assert_eq!((planned.exit, desk.bytes() == dry), (7, true), "{planned:?}");
    let done = desk.run(&REPAIR);
    assert_eq!(done.exit, 0, "{done:?}");
    let actions = |said: &crate::cli::Said| -> Vec<String> {
        said.json()["repair"]["actions"].as_array().unwrap().iter().map(|action| format!("{} {}", action["session"], action["action"])).collect()
    };
    assert!(done.json()["repair"]["actions"].as_array().unwrap().iter().all(|action| action["done"] == true || action["session"].is_null()), "{done:?}");
    let second = if kind == Kind::Sqlite { "derive_index" } else { "cut_tail" };
    for action in
        ["\"broken\" \"quarantine\"".to_owned(), "\"hit\" \"quarantine\"".to_owned(), "\"left\" \"end_epoch\"".to_owned(), format!("\"torn\" \"{second}\"")]
    {
        assert!(actions(&done).contains(&action), "{action}: {done:?}");
    }
    assert_eq!(healthy(&desk), before);
    assert_eq!(actions(&desk.run(&REPAIR)), Vec::<String>::new(), "what is done is done");
    found(&desk)
}

/// Whatever has the name of a backup is all of one.
fn whole_backups(desk: &Desk, disaster: Disaster) {
    for entry in fs::read_dir(desk.folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.contains(".backup-") || name.contains(".partial") || name.ends_with("-shm") || name.ends_with("-wal") {
            continue;
        }
        if path.is_dir() {
            let kept: Vec<_> = crate::cli::files_below(&path).into_iter().map(|file| file.file_name().unwrap().to_owned()).collect();
            assert!(["hit.jsonl", "left.jsonl", "torn.jsonl"].iter().all(|file| kept.contains(&(*file).into())), "{disaster}: {kept:?}");
        } else {
            let conn = rusqlite::Connection::open(&path).unwrap();
            let whole: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap_or_else(|error| panic!("{disaster}: {error}"));
            let sessions: i64 = conn.query_row("SELECT count(*) FROM session", [], |row| row.get(0)).unwrap_or_else(|error| panic!("{disaster}: {error}"));
            assert!(whole == "ok" && sessions >= 9, "{disaster}: {whole}, {sessions} sessions");
        }
    }
}

fn mended(kind: Kind, disaster: Disaster, expected: &[String]) {
    let desk = desk(kind);
    let before = healthy(&desk);
    let output = under(desk.command(&REPAIR), desk.folder(), disaster).output().unwrap();
    assert!(disaster.how.kills() || output.status.code().is_some(), "{disaster}: {output:?}");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{disaster}: {output:?}");
    assert_eq!(healthy(&desk), before, "{disaster}: a healthy session was touched");
    whole_backups(&desk, disaster);
    let again = desk.run(&REPAIR);
    assert_eq!(again.exit, 0, "{disaster}: {again:?}");
    assert_eq!(healthy(&desk), before, "{disaster}");
    assert_eq!(found(&desk), expected, "{disaster}");
    // Whoever was cut off by the holder's end is served, and was not served for nothing.
    let fold = desk.any_store().reader().unwrap().folded(&id("left")).unwrap();
    assert!(!fold.head().live && fold.head().retry.as_ref().is_some_and(|retry| retry.attempts == 1), "{disaster}: {:?}", fold.head());
}

fn every_operation(kind: Kind, stride: usize) {
    let expected = expected(kind);
    let undisturbed = desk(kind);
    let operations = operations(undisturbed.command(&REPAIR), undisturbed.folder());
    judged(&disasters(operations, stride), |disaster| mended(kind, disaster, &expected));
}

#[test]
fn a_repair_of_a_database_is_finished_whatever_happens_at_any_operation() {
    every_operation(Kind::Sqlite, 21);
}

#[test]
fn a_repair_of_a_folder_is_finished_whatever_happens_at_any_operation() {
    every_operation(Kind::Jsonl, 11);
}
