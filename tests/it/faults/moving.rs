//! Sessions that leave a store, come into another, and go for good: half of it is never taken for all of it, and the same command again finishes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::shim::{Disaster, disasters, judged, operations, under};
use crate::{
    cli::{Desk, Kind, Said},
    transfer_world::{files, rich},
};

/// A store in which there is everything, and its export.
fn desk(kind: Kind) -> Desk {
    let desk = Desk::over(kind);
    let store = desk.any_store();
    rich(&*store);
    store.close().unwrap();
    drop(store);
    assert_eq!(desk.run(&["export", "--all", "--to", "whole"]).exit, 0);
    desk
}

/// The other store of a desk, of the same kind.
fn other(kind: Kind) -> &'static str {
    match kind {
        Kind::Sqlite => "sqlite:other.db",
        Kind::Jsonl => "jsonl:other",
    }
}

const EXPORT: [&str; 4] = ["export", "--all", "--to", "copy"];
const REMOVE: [&str; 5] = ["rm", "root", "--tree", "--yes", "--discard-pending"];

fn import(kind: Kind) -> [&'static str; 4] {
    ["import", "whole", "--store", other(kind)]
}

fn hit(desk: &Desk, words: &[&str], disaster: Disaster) {
    let output = under(desk.command(words), desk.folder(), disaster).output().unwrap();
    assert!(disaster.how.kills() || output.status.code().is_some(), "{disaster}: {output:?}");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{disaster}: {output:?}");
}

/// What a check finds, without what a kill may leave.
fn findings(said: &Said) -> Vec<String> {
    let document: Value = serde_json::from_str(&said.out).unwrap();
    let findings = document["findings"].as_array().unwrap();
    findings.iter().filter(|finding| finding["severity"] != "notice").map(|finding| format!("{} {}", finding["session"], finding["class"])).collect()
}

fn exported(kind: Kind, disaster: Disaster) {
    let desk = desk(kind);
    let before = desk.bytes();
    hit(&desk, &EXPORT, disaster);
    // Whatever has its name is whole.
    if desk.path("copy").exists() {
        let whole = files(&desk.path("whole"));
        for (path, text) in files(&desk.path("copy")) {
            let is_session = path.extension().is_some_and(|extension| extension == "jsonl");
            assert!(!is_session || whole.get(&path) == Some(&text), "{disaster}: {} is not whole", path.display());
        }
    }
    let again = desk.run(&EXPORT);
    assert_eq!(again.exit, 0, "{disaster}: {again:?}");
    assert_eq!(files(&desk.path("copy")), files(&desk.path("whole")), "{disaster}");
    if kind == Kind::Jsonl {
        assert_eq!(desk.bytes(), before, "{disaster}: an export has written into its store");
    }
}

/// Exports the other store.
fn content(desk: &Desk, kind: Kind) -> BTreeMap<std::path::PathBuf, String> {
    assert_eq!(desk.run(&["export", "--all", "--to", "content", "--store", other(kind)]).exit, 0);
    files(&desk.path("content"))
}

fn imported(kind: Kind, disaster: Disaster, expected: &BTreeMap<std::path::PathBuf, String>) {
    let desk = desk(kind);
    hit(&desk, &import(kind), disaster);
    let again = desk.run(&import(kind));
    assert_eq!(again.exit, 0, "{disaster}: {again:?}");
    assert_eq!(&content(&desk, kind), expected, "{disaster}");
    let checked = desk.run(&["check", "--json", "--store", other(kind)]);
    assert_eq!(findings(&checked), findings(&desk.run(&["check", "--json"])), "{disaster}: {checked:?}");
}

fn removed(kind: Kind, disaster: Disaster) {
    let desk = desk(kind);
    hit(&desk, &REMOVE, disaster);
    let again = desk.run(&REMOVE);
    assert!(again.exit == 0 || again.err.contains("error[SESSION_REMOVED]"), "{disaster}: {again:?}");
    assert_eq!(desk.run(&["export", "--all", "--to", "left"]).exit, 0, "{disaster}");
    let mut left = files(&desk.path("whole"));
    left.retain(|path, _| {
        let path = path.to_string_lossy();
        path.contains("long") || path.contains("orphan")
    });
    assert_eq!(files(&desk.path("left")), left, "{disaster}: the others are as they were");
    // What is gone does not come back.
    let back = desk.run(&["import", "whole", "--json"]);
    assert!(back.json()["refused"] == 7, "{disaster}: {back:?}");
    let checked = desk.run(&["check", "--json"]);
    assert_eq!(findings(&checked), Vec::<String>::new(), "{disaster}: {checked:?}");
}

fn cases(kind: Kind, words: &[&str], stride: usize) -> Vec<Disaster> {
    let desk = desk(kind);
    disasters(operations(desk.command(words), desk.folder()), stride)
}

fn every_import(kind: Kind, stride: usize) {
    let undisturbed = desk(kind);
    assert_eq!(undisturbed.run(&import(kind)).exit, 0);
    let expected = content(&undisturbed, kind);
    judged(&cases(kind, &import(kind), stride), |disaster| imported(kind, disaster, &expected));
}

#[test]
fn an_export_of_a_database_is_finished_whatever_happens_at_any_operation() {
    judged(&cases(Kind::Sqlite, &EXPORT, 15), |disaster| exported(Kind::Sqlite, disaster));
}

#[test]
fn an_export_of_a_folder_is_finished_whatever_happens_at_any_operation() {
    judged(&cases(Kind::Jsonl, &EXPORT, 15), |disaster| exported(Kind::Jsonl, disaster));
}

#[test]
fn an_import_into_a_database_is_finished_whatever_happens_at_any_operation() {
    every_import(Kind::Sqlite, 31);
}

#[test]
fn an_import_into_a_folder_is_finished_whatever_happens_at_any_operation() {
    every_import(Kind::Jsonl, 21);
}

#[test]
fn a_removal_from_a_database_is_finished_whatever_happens_at_any_operation() {
    judged(&cases(Kind::Sqlite, &REMOVE, 21), |disaster| removed(Kind::Sqlite, disaster));
}

#[test]
fn a_removal_from_a_folder_is_finished_whatever_happens_at_any_operation() {
    judged(&cases(Kind::Jsonl, &REMOVE, 15), |disaster| removed(Kind::Jsonl, disaster));
}
