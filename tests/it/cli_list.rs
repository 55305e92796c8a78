//! `greenroom list` and `greenroom tree`.

use greenroom::Runtime;
use greenroom::actors::{catalog::read_listing, query::Page};
use greenroom::session::{
    descriptor::{Descriptor, Mode},
    event::{Body, EpochEnd, TurnEnd},
    header::NewSession,
    recover::begin_epoch,
    store::{Append, Close, Create, Fence, Op, Open, Store},
};
use serde_json::{Value, json};

use crate::cli::{self, Desk, Kind, commit, continuable, id};

/// A root with a child of every kind, over each kind of store.
fn desks() -> [(Desk, Box<dyn Store>); 2] {
    Kind::ALL.map(desk)
}

fn desk(kind: Kind) -> (Desk, Box<dyn Store>) {
    let desk = Desk::over(kind);
    let store = desk.any_store();
    cli::root(&*store, "root-one", "launch story", 100);
    cli::root(&*store, "root-two", "a second root", 200);
    cli::child(&*store, "orphan", "nobody", &continuable("lost its parent"), 300);
    cli::child(&*store, "child-1", "root-one", &continuable("collect facts"), 400);
    let one_shot = Descriptor { mode: Mode::OneShot, label: None, ..continuable("x") };
    cli::child(&*store, "child-2", "root-one", &one_shot, 500);
    cli::odd_child(&*store, "child-3", "root-one", None, 600);
    cli::odd_child(&*store, "child-4", "root-one", Some(json!({"version": 9})), 700);
    cli::odd_child(&*store, "child-5", "root-one", Some(json!("nonsense")), 800);
    let loud = json!({"version": 1, "mode": "continuable", "provider": "spawn", "label": "a\u{1b}[2J\u{202e}b", "agent": "reporter"});
    cli::odd_child(&*store, "child-6", "root-one", Some(loud), 900);
    (desk, store)
}

#[test]
fn without_a_parent_the_roots_and_orphans_are_listed() {
    insta::allow_duplicates! {
        for (desk, _store) in desks() {
            insta::assert_snapshot!(desk.run(&["list"]).all(), @r#"
            exit 0
            root-one [complete] — launch story
            root-two [complete] — a second root
            orphan [complete] — lost its parent
            ---
            "#);
        }
    }
}

#[test]
fn a_parents_children_are_the_lines_of_the_tool() {
    insta::allow_duplicates! {
        for (desk, _store) in desks() {
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
    }
}

#[test]
fn json_entries_have_the_documented_keys() {
    for (desk, store) in desks() {
        cli::accept(&*store, "child-1", "m1", "hello");
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
}

#[test]
fn pages_put_together_are_the_whole() {
    for (desk, _store) in desks() {
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
}

#[test]
fn running_is_known_from_another_process() {
    for (desk, store) in desks() {
        let events = [Body::ActivationStart { epoch: 1 }.at(2, 1_000)];
        commit(&*store, Op::Open(Open { session: id("child-1"), epoch: 1, events: events.into(), claim: None }));
        assert!(desk.run(&["list", "root-one"]).out.starts_with("child-1 [running] — collect facts\n"));
        store.close().unwrap();
        assert!(desk.run(&["list", "root-one"]).out.starts_with("child-1 [complete] — collect facts\n"), "the holder has gone");
    }
}

#[test]
fn reading_writes_nothing() {
    for (desk, store) in desks() {
        cli::accept(&*store, "child-1", "m1", "hello");
        let before = desk.bytes();
        for words in
            [&["list"][..], &["list", "root-one", "--all", "--verify"], &["tree"], &["show", "child-1"], &["log", "child-1"], &["log", "child-1", "--raw"]]
        {
            assert_eq!(desk.run(words).exit, 0, "{words:?}");
            assert!(desk.bytes() == before, "{words:?}");
        }
        drop(store);
        let before = desk.bytes();
        assert_eq!(desk.run(&["list", "root-one"]).exit, 0);
        assert!(desk.bytes() == before, "also where no writer is left");
    }
}

#[tokio::test]
async fn a_reader_alone_lists_what_a_runtime_lists() {
    for kind in Kind::ALL {
        let (_desk, store) = desk(kind);
        let mut reader = store.reader().unwrap();
        let runtime = Runtime::builder().start(store.into()).await.unwrap();
        for parent in [None, Some(id("root-one")), Some(id("root-two"))] {
            let alone = read_listing(&mut *reader, parent.as_ref(), &Page::default(), false).unwrap();
            assert_eq!(alone, runtime.list(parent.as_ref()).await.unwrap(), "{parent:?}");
        }
        let nobody = read_listing(&mut *reader, Some(&id("nobody")), &Page::default(), false).unwrap_err();
        assert_eq!(nobody.code(), runtime.list(Some(&id("nobody"))).await.unwrap_err().code());
        runtime.shutdown().await;
    }
}

#[test]
fn a_tree_shows_everybody_below_a_root() {
    insta::allow_duplicates! {
        for (desk, store) in desks() {
            cli::child(&*store, "grandchild", "child-1", &continuable("below"), 1_000);
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
    }
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

/// Everything that a session can be, in one listing of each kind of parent: the lines, and the entries with all of their keys.
#[test]
fn a_listing_says_of_everybody_what_the_contract_says() {
    for (desk, store) in desks() {
        cli::accept(&*store, "child-1", "m1", "hello");
        cli::accept(&*store, "root-two", "m1", "hello");
        cli::child(&*store, "below", "orphan", &continuable("of an orphan"), 1_000);
        // One turn that failed and one that was cut off.
        for (name, reason) in [
            ("failed", TurnEnd::Error { code: "NO_LUCK".into(), message: "no luck".into() }),
            ("completed", TurnEnd::Completed),
            ("cut-off", TurnEnd::Interrupted),
        ] {
            cli::child(&*store, name, "root-two", &continuable(name), 2_000);
            cli::accept(&*store, name, "m0", "Begin.");
            let log = store.reader().unwrap().load(&id(name)).unwrap();
            let (epoch, events) = begin_epoch(&log.fold, 3_000, 3);
            commit(&*store, Op::Open(Open { session: id(name), epoch, events: events.into(), claim: Some(3_000) }));
            let fence = Fence { session: id(name), epoch };
            let seq = || store.reader().unwrap().load(&id(name)).unwrap().fold.head().next_seq;
            let end = Body::TurnEnd { turn: 1, reason }.at(seq(), 3_001);
            commit(&*store, Op::Append(Append { fence: fence.clone(), events: [end].into(), take: Vec::new() }));
            let left = Body::ActivationEnd { epoch, reason: EpochEnd::Disposed }.at(seq(), 3_002);
            commit(&*store, Op::Close(Close { fence, events: [left].into(), unless_pending: false }));
        }
        store.close().unwrap();
        drop(store);
        let entry = |kind: &str, id: &str, label: &str, changed: &[(&str, Value)]| {
            let mut entry = json!({
                "kind": kind, "id": id, "mode": "continuable", "label": label, "status": "complete", "turn": "idle",
                "pending": 0, "held": false, "last_outcome": null, "has_children": false,
            });
            entry.as_object_mut().unwrap().extend(changed.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
            entry
        };
        let diagnostic = |id: &str, reason: &str| json!({"kind": "diagnostic", "id": id, "reason": reason});
        let listings = [
            (
                &["list"][..],
                "root-one [complete] — launch story\nroot-two [complete] — a second root\norphan [complete] — lost its parent\n",
                vec![
                    entry("root", "root-one", "launch story", &[("has_children", json!(true))]),
                    entry("root", "root-two", "a second root", &[("has_children", json!(true)), ("pending", json!(1))]),
                    entry("child", "orphan", "lost its parent", &[("has_children", json!(true))]),
                ],
            ),
            (
                &["list", "root-one", "--all"],
                "child-1 [complete] — collect facts\nchild-2 [complete] — (no label)\nchild-4 [diagnostic: unsupported]\nchild-5 [diagnostic: corrupt]\nchild-6 [complete] — a\\u{1b}[2J\\u{202e}b\n",
                vec![
                    entry("child", "child-1", "collect facts", &[("pending", json!(1))]),
                    entry("child", "child-2", "", &[("label", Value::Null), ("mode", json!("one-shot"))]),
                    diagnostic("child-4", "unsupported"),
                    diagnostic("child-5", "corrupt"),
                    entry("child", "child-6", "a\u{1b}[2J\u{202e}b", &[]),
                ],
            ),
            (
                &["list", "root-two"],
                "completed [complete] — completed\ncut-off [complete] — cut-off\nfailed [complete] — failed\n",
                vec![
                    entry("child", "completed", "completed", &[("last_outcome", json!("completed"))]),
                    entry("child", "cut-off", "cut-off", &[("last_outcome", json!("interrupted")), ("turn", json!("interrupted")), ("pending", json!(1))]),
                    entry("child", "failed", "failed", &[("last_outcome", json!("error"))]),
                ],
            ),
            (&["list", "orphan"], "below [complete] — of an orphan\n", vec![entry("child", "below", "of an orphan", &[])]),
            (&["list", "child-1"], "(no subagents)\n", vec![]),
        ];
        for (words, lines, entries) in &listings {
            for more in [&[][..], &["--verify"]] {
                let words = [words, more].concat();
                assert_eq!(desk.run(&words).out, *lines, "{words:?}");
                let listing = desk.run(&[&words[..], &["--json"]].concat()).json();
                assert_eq!(listing, json!({"schema_version": 1, "entries": entries, "next_cursor": null}), "{words:?}");
                // Page by page it is the same.
                let (mut pages, mut cursor) = (Vec::new(), None::<String>);
                loop {
                    let mut words = [&words[..], &["--json", "--limit", "1"]].concat();
                    words.extend(cursor.iter().flat_map(|cursor| ["--cursor", cursor]));
                    let page = desk.run(&words).json();
                    assert!(page["entries"].as_array().unwrap().len() <= 1, "{page}");
                    pages.extend(page["entries"].as_array().unwrap().clone());
                    match page["next_cursor"].as_str() {
                        Some(next) => cursor = Some(next.to_owned()),
                        None => break,
                    }
                }
                assert_eq!(pages, *entries, "{words:?}");
            }
        }
    }
}

/// What was imported and not activated is held, in a store of either kind, and `--activate` ends that.
#[test]
fn what_is_held_is_listed_as_held() {
    let (source, store) = desk(Kind::Sqlite);
    cli::accept(&*store, "child-1", "m1", "hello");
    drop(store);
    let folder = source.path("folder");
    assert_eq!(source.run(&["export", "--all", "--to", "folder"]).exit, 0);
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        let held = || {
            let listing = desk.run(&["list", "root-one", "--json"]).json();
            let entries = listing["entries"].as_array().unwrap().clone();
            entries.iter().map(|entry| json!([entry["id"], entry["held"], entry["pending"]])).collect::<Vec<_>>()
        };
        let expected =
            |held: bool| vec![json!(["child-1", held, 1]), json!(["child-4", null, null]), json!(["child-5", null, null]), json!(["child-6", false, 0])];
        assert_eq!(desk.run(&["import", folder.to_str().unwrap()]).exit, 0);
        assert_eq!(held(), expected(true));
        assert!(desk.run(&["list", "root-one"]).out.starts_with("child-1 [complete] — collect facts\n"), "a line says nothing of it");
        assert_eq!(desk.run(&["import", folder.to_str().unwrap(), "--activate"]).exit, 0);
        assert_eq!(held(), expected(false));
    }
}
