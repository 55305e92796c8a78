//! A run: the birth of a store, creation, acceptance, turns, settlement.

use std::process::Command;

use super::shim::{Disaster, How, disasters, judged, operations, under};
use crate::{
    audit,
    cli::{Desk, Kind, Said},
};

/// A root that delegates twice, sends more, waits, and says what it was told.
pub(super) const PROGRAM: &str = r#"
[run]
root = "editor"
prompt = "Begin."

[agents.editor]
behavior = "script"
turns = [[
  { delegate = { agent = "reporter", as = "r", description = "collects facts", prompt = "one" } },
  { delegate = { agent = "critic", as = "c", description = "finds faults", prompt = "one" } },
  { send = { to = "r", message = "two" } },
  { await = "children" },
  { say = "{reports}" },
]]

[agents.reporter]
behavior = "script"
turns = [ [ { memo = "noted" }, { report = "first" } ], [ { report = "second" } ] ]

[agents.critic]
behavior = "script"
turns = [ [ { report = "dull" } ] ]
"#;

const ANSWER: [[&str; 4]; 2] = [["collects", "facts", "first", "second"], ["finds", "faults", "dull", ""]];

/// Tells whether a run was done, and with this answer.
pub(super) fn is_done(said: &Said) -> bool {
    let rows: Vec<Vec<&str>> = said.out.lines().map(|line| line.split_whitespace().collect()).collect();
    said.exit == 0 && rows.len() == 2 && rows.iter().zip(ANSWER).all(|(row, wanted)| wanted.starts_with(row))
}

fn desk(kind: Kind) -> Desk {
    let desk = Desk::over(kind);
    // What the store does is below a folder of its own, and so is its birth.
    desk.write("story.toml", PROGRAM);
    desk
}

/// Returns the root, if one was created.
fn root(desk: &Desk) -> Option<String> {
    let listed = desk.run(&["list", "--json"]);
    if listed.exit == 4 {
        assert_eq!(listed.json()["error"]["code"], "STORE_NOT_FOUND", "{listed:?}");
        return None;
    }
    let roots = listed.json();
    let roots = roots["entries"].as_array().unwrap();
    assert!(roots.len() <= 1, "{listed:?}");
    Some(roots.first()?["id"].as_str().unwrap().to_owned())
}

fn run(desk: &Desk, root: Option<&str>) -> Command {
    let mut words = vec!["run", "story.toml"];
    words.extend(root.into_iter().flat_map(|root| ["--root", root]));
    desk.command(&words)
}

/// Reads the store by other means than the program's own.
fn audited(desk: &Desk, kind: Kind) -> Vec<audit::Audited> {
    match kind {
        Kind::Sqlite => audit::read(&desk.path("desk.db")),
        Kind::Jsonl => audit::read_jsonl(&desk.path("desk")),
    }
}

fn judge(kind: Kind, disaster: Disaster) {
    let desk = desk(kind);
    let said = under(run(&desk, None), desk.folder(), disaster).output().unwrap();
    if disaster.how.kills() {
        assert!(said.status.code().is_none() || said.status.success(), "{disaster}: {said:?}");
    } else {
        let said = Said::of(&said);
        assert!(matches!(said.exit, 0 | 1), "{disaster}: {said:?}");
        assert!(!said.err.contains("panicked"), "{disaster}: {said:?}");
        if disaster.how == How::Delay {
            assert!(is_done(&said), "{disaster}: {said:?}");
        }
    }
    // The disk works again, and the run goes on in a new process.
    let root = root(&desk);
    if root.is_some() {
        audited(&desk, kind).iter().for_each(audit::Audited::check);
    }
    let said = Said::of(&run(&desk, root.as_deref()).output().unwrap());
    assert!(is_done(&said), "{disaster}: {said:?}");
    let sessions = audited(&desk, kind);
    assert_eq!(sessions.len(), 3, "{disaster}: a child was started twice or not at all");
    for session in &sessions {
        session.check_finished();
        assert!(session.ends().iter().all(|end| end.as_deref() == Some("completed")), "{disaster}: {} ended {:?}", session.id, session.ends());
    }
    let checked = desk.run(&["check"]);
    assert_eq!(checked.exit, 0, "{disaster}: {checked:?}");
}

fn every_operation(kind: Kind, stride: usize) {
    let desk = desk(kind);
    let operations = operations(run(&desk, None), desk.folder());
    let disasters = disasters(operations, stride);
    judged(&disasters, |disaster| judge(kind, disaster));
}

#[test]
fn a_run_over_a_database_survives_whatever_happens_at_any_operation() {
    every_operation(Kind::Sqlite, 29);
}

#[test]
fn a_run_over_a_folder_survives_whatever_happens_at_any_operation() {
    every_operation(Kind::Jsonl, 7);
}
