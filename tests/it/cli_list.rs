//! `greenroom list` and `greenroom tree`.

use std::sync::Arc;

use greenroom::Runtime;
use greenroom::actors::{catalog::read_listing, query::Page};
use greenroom::session::{
    descriptor::{Descriptor, Mode},
    event::Body,
    header::NewSession,
    store::{Create, Op, Open, Store, sqlite::SqliteStore},
};
use serde_json::json;

use crate::cli::{self, Desk, commit, continuable, id};

/// A root with a child of every kind.
fn desk() -> (Desk, SqliteStore) {
    let desk = Desk::new();
    let store = desk.store();
    cli::root(&store, "root-one", "launch story", 100);
    cli::root(&store, "root-two", "a second root", 200);
    cli::child(&store, "orphan", "nobody", &continuable("lost its parent"), 300);
    cli::child(&store, "child-1", "root-one", &continuable("collect facts"), 400);
    let one_shot = Descriptor { mode: Mode::OneShot, label: None, ..continuable("x") };
    cli::child(&store, "child-2", "root-one", &one_shot, 500);
    cli::odd_child(&store, "child-3", "root-one", None, 600);
    cli::odd_child(&store, "child-4", "root-one", Some(json!({"version": 9})), 700);
    cli::odd_child(&store, "child-5", "root-one", Some(json!("nonsense")), 800);
    let loud = json!({"version": 1, "mode": "continuable", "provider": "spawn", "label": "a\u{1b}[2J\u{202e}b", "agent": "reporter"});
    cli::odd_child(&store, "child-6", "root-one", Some(loud), 900);
    (desk, store)
}

#[test]
fn without_a_parent_the_roots_and_orphans_are_listed() {
    let (desk, _store) = desk();
    insta::assert_snapshot!(desk.run(&["list"]).all(), @r#"
    exit 0
    root-one [complete] — launch story
    root-two [complete] — a second root
    orphan [complete] — lost its parent
    ---
    "#);
}

#[test]
fn a_parents_children_are_the_lines_of_the_tool() {
    let (desk, _store) = desk();
    insta::assert_snapshot!(desk.run(&["list", "root-one"]).all(), @r#"
    exit 0
    child-1 [complete] — collect facts
    child-4 [diagnostic: unsupported]
    child-5 [diagnostic: corrupt]
    child-6 [complete] — a\u{1b}[2J\u{202e}b
    ---
    "#);
    insta::assert_snapshot!(desk.run(&["list", "root-one", "--all", "--verify"]).out, @r#"
    child-1 [complete] — collect facts
    child-2 [complete] — (no label)
    child-4 [diagnostic: unsupported]
    child-5 [diagnostic: corrupt]
    child-6 [complete] — a\u{1b}[2J\u{202e}b
    "#);
    assert_eq!(desk.run(&["list", "root-two"]).out, "(no subagents)\n");
    assert_eq!(desk.run(&["list", "child-1"]).out, "(no subagents)\n");
}

#[test]
fn json_entries_have_the_documented_keys() {
    let (desk, store) = desk();
    cli::accept(&store, "child-1", "m1", "hello");
    let listing = desk.run(&["--json", "list", "root-one", "--limit", "2"]).json();
    assert_eq!(
        listing["entries"],
        json!([
            {"kind": "child", "id": "child-1", "mode": "continuable", "label": "collect facts", "status": "complete", "turn": "idle",
             "pending": 1, "held": false, "last_outcome": null, "has_children": false},
            {"kind": "diagnostic", "id": "child-4", "reason": "unsupported"},
        ])
    );
    assert_eq!(listing["schema_version"], 1);
    let cursor = listing["next_cursor"].as_str().unwrap();
    let rest = desk.run(&["list", "root-one", "--json", "--cursor", cursor]).json();
    let ids: Vec<_> = rest["entries"].as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["child-5", "child-6"]);
    assert_eq!(rest["next_cursor"], json!(null));
    assert_eq!(desk.run(&["list", "--json"]).json()["entries"][0]["kind"], "root");
}

#[test]
fn pages_put_together_are_the_whole() {
    let (desk, _store) = desk();
    let whole = desk.run(&["list", "root-one"]).out;
    let mut pages = String::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut words = vec!["list", "root-one", "--limit", "1"];
        words.extend(cursor.iter().flat_map(|cursor| ["--cursor", cursor.as_str()]));
        let page = desk.run(&words);
        pages.push_str(&page.out);
        match page.err.trim().strip_prefix("more: --cursor ") {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(pages, whole);
}

#[test]
fn running_is_known_from_another_process() {
    let (desk, store) = desk();
    let events = [Body::ActivationStart { epoch: 1 }.at(2, 1_000)];
    commit(&store, Op::Open(Open { session: id("child-1"), epoch: 1, events: events.into(), claim: None }));
    assert!(desk.run(&["list", "root-one"]).out.starts_with("child-1 [running] — collect facts\n"));
    store.close().unwrap();
    assert!(desk.run(&["list", "root-one"]).out.starts_with("child-1 [complete] — collect facts\n"), "the holder has gone");
}

#[test]
fn reading_writes_nothing() {
    let (desk, store) = desk();
    cli::accept(&store, "child-1", "m1", "hello");
    let before = desk.bytes();
    for words in [&["list"][..], &["list", "root-one", "--all", "--verify"], &["tree"], &["show", "child-1"], &["log", "child-1"], &["log", "child-1", "--raw"]]
    {
        assert_eq!(desk.run(words).exit, 0, "{words:?}");
        assert!(desk.bytes() == before, "{words:?}");
    }
    drop(store);
    let before = desk.bytes();
    assert_eq!(desk.run(&["list", "root-one"]).exit, 0);
    assert!(desk.bytes() == before, "also where no writer is left");
}

#[tokio::test]
async fn a_reader_alone_lists_what_a_runtime_lists() {
    let (_desk, store) = desk();
    let mut reader = store.reader().unwrap();
    let runtime = Runtime::builder().start(Arc::new(store)).await.unwrap();
    for parent in [None, Some(id("root-one")), Some(id("root-two"))] {
        let alone = read_listing(&mut *reader, parent.as_ref(), &Page::default(), false).unwrap();
        assert_eq!(alone, runtime.list(parent.as_ref()).await.unwrap(), "{parent:?}");
    }
    let nobody = read_listing(&mut *reader, Some(&id("nobody")), &Page::default(), false).unwrap_err();
    assert_eq!(nobody.code(), runtime.list(Some(&id("nobody"))).await.unwrap_err().code());
    runtime.shutdown().await;
}

#[test]
fn a_tree_shows_everybody_below_a_root() {
    let (desk, store) = desk();
    cli::child(&store, "grandchild", "child-1", &continuable("below"), 1_000);
    insta::assert_snapshot!(desk.run(&["tree", "root-one"]).out, @r#"
    root-one [complete] — launch story · 0 turns
    ├─ child-1 [complete] — collect facts · 0 turns
    │  └─ grandchild [complete] — below · 0 turns
    ├─ child-2 [complete] — (no label) · 0 turns · one-shot
    ├─ child-4 [diagnostic: unsupported]
    ├─ child-5 [diagnostic: corrupt]
    └─ child-6 [complete] — a\u{1b}[2J\u{202e}b · 0 turns
    "#);
    let entries = desk.run(&["tree", "--json", "--depth", "1"]).json();
    let places: Vec<_> = entries["entries"].as_array().unwrap().iter().map(|entry| json!([entry["id"], entry["parent"], entry["depth"]])).collect();
    assert_eq!(places[0], json!(["root-one", null, 0]));
    assert_eq!(places[1], json!(["child-1", "root-one", 1]));
    assert!(!places.iter().any(|place| place[0] == "grandchild"));
    assert!(places.contains(&json!(["orphan", "nobody", 0])));
    let below = desk.run(&["tree", "child-1", "--json"]).json();
    assert_eq!((&below["entries"][0]["parent"], &below["entries"][1]["id"]), (&json!("root-one"), &json!("grandchild")));
    assert_eq!(desk.run(&["tree", "child-3"]).out, "(no subagents)\n", "a plain fork without children");
}

#[test]
fn a_lineage_of_three_thousand_levels_is_listed_and_drawn() {
    let desk = Desk::new();
    let store = desk.store();
    cli::root(&store, "level-0", "the root", 100);
    let create = |depth: u32| {
        let session = NewSession::child(id(&format!("level-{}", depth + 1)), id(&format!("level-{depth}")), depth);
        Op::Create(Create::child(session, Vec::new(), &continuable("one more"), None, 100).unwrap())
    };
    let ops: Vec<Op> = (0..3_000).map(create).collect();
    assert!(store.commit(&ops).unwrap().iter().all(Result::is_ok));
    let tree = desk.run(&["tree", "level-0"]);
    assert_eq!((tree.exit, tree.out.lines().count()), (0, 3_001));
    assert_eq!(desk.run(&["list", "level-2999"]).out, "level-3000 [complete] — one more\n");
}
