//! `greenroom check --repair`: what is left alone, what is said, and where the backup is.

use std::fs;

use greenroom::session::{
    codec::header_crc,
    event::{Body, TurnEnd},
    recover::begin_epoch,
    store::{Append, Fence, Op, Open, Store, jsonl::JsonlStore},
};
use serde_json::{Value, json};

use crate::cli::{self, Desk, Kind, commit, continuable, id};

/// A root with two children, one of which is damaged.
fn desk(kind: Kind) -> Desk {
    let desk = Desk::over(kind);
    let store = desk.any_store();
    cli::root(&*store, "desk", "a desk", 100);
    for (name, time) in [("good", 200), ("hit", 300)] {
        cli::child(&*store, name, "desk", &continuable(name), time);
        cli::accept(&*store, name, "m0", "Begin.");
    }
    store.close().unwrap();
    drop(store);
    match kind {
        Kind::Sqlite => {
            let conn = rusqlite::Connection::open(desk.path("desk.db")).unwrap();
            conn.execute("UPDATE event SET crc = crc + 1 WHERE seq = 1 AND sid = (SELECT sid FROM session WHERE id = 'hit')", []).unwrap();
        }
        Kind::Jsonl => {
            let path = desk.path("desk/desk/hit.jsonl");
            fs::write(&path, fs::read_to_string(&path).unwrap().replacen("spawn", "spoon", 1)).unwrap();
        }
    }
    desk
}

/// A text with `N` for each number, and `DESK` for where the desk is.
fn numberless(desk: &Desk, text: &str) -> String {
    let mut shown = String::new();
    for c in text.replace(&desk.folder().display().to_string(), "DESK").chars() {
        match c {
            '0'..='9' if shown.ends_with('N') => {}
            '0'..='9' => shown.push('N'),
            c => shown.push(c),
        }
    }
    shown
}

fn open(store: &dyn Store, name: &str) {
    let fold = store.reader().unwrap().folded(&id(name)).unwrap();
    let (epoch, events) = begin_epoch(&fold, 2_000, 3);
    commit(store, Op::Open(Open { session: id(name), epoch, events: events.into(), claim: Some(2_000) }));
}

#[test]
fn a_person_is_told_what_would_be_done_and_what_was() {
    let desk = desk(Kind::Jsonl);
    let planned = desk.run(&["check", "--repair"]);
    insta::assert_snapshot!(numberless(&desk, &planned.all()), @"
    exit N
    repair: hit: would quarantine it (hit event N at desk/hit.jsonl:N (byte N): checksum: checksum mismatch)
    hit event N at desk/hit.jsonl:N (byte N): checksum: checksum mismatch
    ---
    checked N sessions, N events, N messages in N ms: N checksum
    error[FAULTS_FOUND]: N fault: N checksum
    help: checksum: a bit has changed on the disk or somebody edited the record; bring the session back from a backup or an export
    ");
    let done = desk.run(&["check", "--repair", "--apply"]);
    insta::assert_snapshot!(numberless(&desk, &done.all()), @"
    exit N
    repair: hit: quarantined it (hit event N at desk/hit.jsonl:N (byte N): checksum: checksum mismatch)
    hit log: quarantined: a repair has found checksum
    ---
    backup: DESK/desk.backup-NTNZ
    checked N sessions, N events, N message in N ms: N quarantined
    ");
    assert_eq!((planned.exit, done.exit), (7, 0));
    let refused = desk.run(&["send", "hit", "hello"]);
    assert!(refused.exit == 7 && refused.err.contains("quarantined: a repair has found checksum"), "{refused:?}");
    assert_eq!(desk.run(&["list", "desk"]).out, "good [complete] — good\nhit [diagnostic: corrupt]\n");
    assert_eq!(desk.run(&["check", "--apply"]).exit, 2, "what is to be applied has to be asked for");
}

#[test]
fn a_good_copy_takes_the_place_of_a_quarantined_session_and_of_no_other() {
    for kind in Kind::ALL {
        let whole = Desk::over(kind);
        let store = whole.any_store();
        cli::root(&*store, "desk", "a desk", 100);
        for (name, time) in [("good", 200), ("hit", 300)] {
            cli::child(&*store, name, "desk", &continuable(name), time);
            cli::accept(&*store, name, "m0", "Begin.");
        }
        store.close().unwrap();
        drop(store);
        assert_eq!(whole.run(&["export", "--all", "--to", "copy"]).exit, 0);
        let desk = desk(kind);
        let copy = whole.path("copy");
        let copy = copy.to_str().unwrap();
        // Damage alone lets nobody be replaced: it may be that the copy is older.
        assert_ne!(desk.run(&["import", copy]).exit, 0);
        assert_eq!(desk.run(&["check", "--repair", "--apply"]).exit, 0);
        let imported = desk.run(&["import", copy, "--activate", "--json"]);
        assert_eq!((imported.exit, &imported.json()["imported"], &imported.json()["skipped"]), (0, &json!(1), &json!(2)), "{imported:?}");
        let checked = desk.run(&["check", "--json"]);
        assert_eq!(checked.json()["findings"], json!([]), "{checked:?}");
        assert_eq!(desk.run(&["list", "desk"]).out, "good [complete] — good\nhit [complete] — hit\n");
        assert_eq!(desk.run(&["export", "--all", "--to", "again"]).exit, 0);
        assert_eq!(crate::transfer_world::files(&desk.path("again")), crate::transfer_world::files(&whole.path("copy")));
        assert_eq!(desk.run(&["send", "hit", "more"]).exit, 0);
        // And whoever is whole is not replaced.
        assert_eq!(desk.run(&["import", copy, "--json"]).json()["refused"], 1);
    }
}

#[test]
fn whoever_is_live_is_left_alone() {
    let desk = desk(Kind::Sqlite);
    let store = desk.store();
    open(&store, "good");
    let conn = rusqlite::Connection::open(desk.path("desk.db")).unwrap();
    // It was whole when it was opened.
    conn.execute("UPDATE event SET crc = crc + 1 WHERE seq = 1 AND sid = (SELECT sid FROM session WHERE id = 'good')", []).unwrap();
    drop(conn);
    let said = desk.run(&["check", "--repair", "--apply", "--json"]);
    let action = |session: &str| {
        let actions = said.json()["repair"]["actions"].as_array().unwrap().clone();
        actions.into_iter().find(|action| action["session"] == session).map(|action| (action["action"].clone(), action["done"].clone())).unwrap()
    };
    assert_eq!(action("good"), (json!("leave"), json!(false)), "{said:?}");
    assert_eq!(action("hit"), (json!("quarantine"), json!(true)), "{said:?}");
    assert_eq!(said.exit, 7, "what is left is a fault still");
    // Whoever had begun to hold it between the plan and the doing is left as well.
    let quarantine = greenroom::session::repair::Quarantine { at: 1, found: vec!["checksum".into()] };
    assert!(!desk.store().quarantine(&id("good"), &quarantine).unwrap());
}

#[test]
fn a_folder_that_somebody_writes_to_is_not_repaired() {
    let desk = desk(Kind::Jsonl);
    let holder = JsonlStore::open(desk.path("desk")).unwrap();
    let before = desk.bytes();
    assert_eq!(desk.run(&["check", "--repair"]).exit, 7, "looking is free");
    let said = desk.run(&["check", "--repair", "--apply"]);
    assert!(said.exit == 6 && said.err.contains("error[STORE_LOCKED]"), "{said:?}");
    assert_eq!(desk.bytes(), before);
    drop(holder);
}

#[test]
fn the_backup_lies_beside_the_store_and_without_one_nothing_is_done() {
    for kind in Kind::ALL {
        let desk = desk(kind);
        // As a person names it who is in its folder.
        let url = if kind == Kind::Sqlite { "sqlite:desk.db" } else { "jsonl:desk/" };
        let said = desk.run(&["check", "--repair", "--apply", "--json", "--store", url]);
        assert_eq!(said.exit, 0, "{said:?}");
        let backup = said.json()["repair"]["backup"].as_str().unwrap().to_owned();
        assert!(backup.starts_with(&url[6..10]) || backup.starts_with("desk"), "{backup}");
        assert!(fs::metadata(desk.path(&backup)).is_ok(), "{backup}");
        // It is what was there, damage included.
        if kind == Kind::Sqlite {
            let found = desk.run(&["check", "--json", "--store", &format!("sqlite:{backup}")]);
            assert_eq!((found.exit, &found.json()["findings"][0]["class"]), (7, &json!("checksum")), "{found:?}");
        }
        let store = desk.any_store();
        let to = desk.path("in-the-way");
        fs::create_dir(&to).unwrap();
        assert!(store.backup(&to, &[id("hit")]).is_err(), "what lies there is no backup");
        assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
    }
}

/// A desk with these children, nothing wrong with any.
fn whole(kind: Kind, children: &[&str]) -> Desk {
    let desk = Desk::over(kind);
    let store = desk.any_store();
    cli::root(&*store, "desk", "a desk", 100);
    for (name, time) in children.iter().zip(200..) {
        cli::child(&*store, name, "desk", &continuable(name), time);
        cli::accept(&*store, name, "m0", "Begin.");
    }
    store.close().unwrap();
    drop(store);
    desk
}

/// Changes the header of a session's file, and its checksum with it, as no disk does.
fn forge(desk: &Desk, file: &str, from: &str, to: &str) {
    let path = desk.path(file);
    let text = fs::read_to_string(&path).unwrap();
    let (header, rest) = text.split_once('\n').unwrap();
    let body = format!("{}}}", &header[..header.rfind(",\"crc\"").unwrap()]);
    assert!(body.contains(from), "{body}");
    let body = body.replacen(from, to, 1);
    fs::write(&path, format!("{},\"crc\":\"{:08x}\"}}\n{rest}", &body[..body.len() - 1], header_crc(body.as_bytes()))).unwrap();
}

fn tear(desk: &Desk, file: &str) {
    let path = desk.path(file);
    fs::write(&path, format!("{}{{\"seq\":3,", fs::read_to_string(&path).unwrap())).unwrap();
}

/// The actions as `session action done`.
fn actions(document: &Value) -> Vec<String> {
    let word = |value: &Value| value.as_str().unwrap_or("the store").to_owned();
    let actions = document["repair"]["actions"].as_array().unwrap_or_else(|| panic!("{document}")).iter();
    actions.map(|action| format!("{} {} {}", word(&action["session"]), word(&action["action"]), action["done"])).collect()
}

#[test]
fn the_backup_of_a_folder_is_never_laid_into_it_however_it_is_named() {
    for (url, from) in [("jsonl:.", "desk"), ("jsonl:./", "desk"), ("jsonl:..", "desk/desk"), ("jsonl:desk/..", "desk")] {
        let desk = whole(Kind::Jsonl, &["torn"]);
        tear(&desk, "desk/desk/torn.jsonl");
        let output = desk.command(&["check", "--repair", "--apply", "--json", "--store", url]).current_dir(desk.path(from)).output().unwrap();
        let said = cli::Said::of(&output);
        assert_eq!(said.exit, 0, "{url}: {said:?}");
        let backup = desk.path(from).join(said.json()["repair"]["backup"].as_str().unwrap()).canonicalize().unwrap();
        assert_eq!(backup.parent(), desk.folder().canonicalize().ok().as_deref(), "{url}: {said:?}");
    }
}

#[test]
fn what_a_newer_program_wrote_is_left_and_keeps_no_other_from_being_repaired() {
    let desk = whole(Kind::Jsonl, &["hit", "newer", "torn"]);
    forge(&desk, "desk/desk/newer.jsonl", "\"version\":1", "\"version\":2");
    tear(&desk, "desk/desk/newer.jsonl");
    tear(&desk, "desk/desk/torn.jsonl");
    let path = desk.path("desk/desk/hit.jsonl");
    fs::write(&path, fs::read_to_string(&path).unwrap().replacen("spawn", "spoon", 1)).unwrap();
    let newer = fs::read(desk.path("desk/desk/newer.jsonl")).unwrap();
    let said = desk.run(&["check", "--repair", "--apply", "--json"]);
    assert_eq!(
        (said.exit, actions(&said.json())),
        (0, ["hit quarantine true", "newer leave false", "torn cut_tail true"].map(str::to_owned).to_vec()),
        "{said:?}"
    );
    assert_eq!(fs::read(desk.path("desk/desk/newer.jsonl")).unwrap(), newer);
}

#[test]
fn a_child_is_not_quarantined_for_its_parent_s_header() {
    // Found at fault by itself, and by that it fits none of its children.
    for (children, from, to, root) in [
        (vec!["one"], "\"depth\":0", "\"depth\":3", vec!["desk quarantine true"]),
        (vec!["one", "two"], "\"depth\":0", "\"depth\":3", vec!["desk quarantine true"]),
        (vec!["one", "two"], "\"created_at\":100", "\"created_at\":900000", vec![]),
    ] {
        let desk = whole(Kind::Jsonl, &children);
        forge(&desk, "desk/_root/desk.jsonl", from, to);
        let left: Vec<String> = children.iter().map(|child| format!("{child} leave false")).collect();
        let first = desk.run(&["check", "--repair", "--apply", "--json"]);
        assert_eq!(actions(&first.json()), root.iter().map(|&action| action.to_owned()).chain(left.clone()).collect::<Vec<_>>(), "{to}: {first:?}");
        assert_eq!(first.exit, 7, "what is left is a fault still");
        assert_eq!(actions(&desk.run(&["check", "--repair", "--apply", "--json"]).json()), left, "{to}: a second repair is no other");
        assert_eq!(actions(&desk.run(&["check", "one", "--repair", "--apply", "--json"]).json()), ["one leave false"], "{to}");
        assert_eq!(desk.run(&["send", "one", "hello"]).exit, 0, "{to}");
    }
    // Where another child fits the parent, it is the child that does not.
    let desk = whole(Kind::Jsonl, &["one", "two"]);
    forge(&desk, "desk/desk/one.jsonl", "\"depth\":1", "\"depth\":3");
    assert_eq!(actions(&desk.run(&["check", "--repair", "--apply", "--json"]).json()), ["one quarantine true"]);
}

#[test]
fn an_epoch_whose_end_is_still_to_be_told_is_left_to_whoever_tells_it() {
    for kind in Kind::ALL {
        let desk = whole(kind, &["done", "open"]);
        let store = desk.any_store();
        open(&*store, "done");
        open(&*store, "open");
        let end = |name: &str| {
            let fold = store.reader().unwrap().folded(&id(name)).unwrap();
            let events = [Body::TurnEnd { turn: 1, reason: TurnEnd::Completed }.at(fold.head().next_seq, 3_000)];
            commit(&*store, Op::Append(Append { fence: Fence { session: id(name), epoch: fold.head().epoch }, events: events.into(), take: [].into() }));
        };
        end("done");
        store.close().unwrap();
        drop(store);
        let said = desk.run(&["check", "--repair", "--apply", "--json"]);
        assert_eq!(actions(&said.json()), ["open end_epoch true"], "{said:?}");
        // The next run has both to see to: one has its turn to do again, the other its parent to tell.
        let store = desk.any_store();
        assert_eq!(store.reader().unwrap().runnable(None, 9).unwrap(), ["done", "open"].map(id));
        assert!(store.reader().unwrap().folded(&id("done")).unwrap().head().live);
    }
}

#[test]
fn no_trigger_of_another_program_has_a_hand_in_a_repair() {
    let desk = desk(Kind::Sqlite);
    let conn = rusqlite::Connection::open(desk.path("desk.db")).unwrap();
    conn.execute_batch("CREATE TRIGGER t AFTER UPDATE ON summary BEGIN UPDATE event SET crc = 0; END").unwrap();
    drop(conn);
    let said = desk.run(&["check", "--repair", "--apply", "--json"]);
    assert_eq!(actions(&said.json()), ["hit quarantine true", "the store leave false"], "{said:?}");
    let classes: Vec<Value> = said.json()["findings"].as_array().unwrap().iter().map(|finding| finding["class"].clone()).collect();
    assert_eq!(classes, ["quarantined", "schema_conflict"], "{said:?}");
}

#[test]
fn a_session_whose_file_may_not_be_read_is_left_as_it_is() {
    let desk = desk(Kind::Jsonl);
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: nobody but root gives a file away");
        return;
    }
    std::os::unix::fs::chown(desk.path("desk/desk/hit.jsonl"), Some(65_534), None).unwrap();
    let Some(said) = desk.unprivileged(&["check", "--repair", "--apply", "--json"]) else { return };
    assert_eq!((said.exit, actions(&said.json())), (7, vec!["hit leave false".to_owned()]), "{said:?}");
}
