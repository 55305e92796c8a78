//! The same seed leaves the same logs, byte for byte; another seed leaves others.

use std::{path::Path, process::Command};

const PROGRAM: &str = r#"
[run]
root = "editor"
prompt = "Cover {city}."
max_live = 2

[vars]
city = "Lyon"

[agents.editor]
behavior = "script"
turns = [[
  { repeat = { times = 5, steps = [ { delegate = { agent = "reporter", description = "facts", prompt = "go" } } ] } },
  { await = "children" },
  { for_each = { children = "all", steps = [ { send = { to = "{child}", message = "more of {label}" } } ] } },
  { await = "children" },
  { say = "{reports}" },
]]

[agents.reporter]
behavior = "script"
turns = [
  [ { delegate = { agent = "source", description = "a source", prompt = "tell" } }, { sleep = "30s" }, { report = "slept" } ],
  [ { report = "more" }, { say = "done" } ],
]

[agents.source]
behavior = "script"
turns = [[ { sleep = "10s" }, { report = "heard" } ]]
"#;

fn greenroom(folder: &Path, store: &str, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_greenroom")).args(["--store", store]).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the program and returns every log of its store, in the order of the tree.
fn logs(folder: &Path, name: &str, seed: &str, again: bool) -> Vec<String> {
    let store = format!("sqlite:{}", folder.join(name).display());
    greenroom(folder, &store, &["run", "story.toml", "--seed", seed]);
    let ids = |verb: &[&str]| -> Vec<String> {
        let listed: serde_json::Value = serde_json::from_str(&greenroom(folder, &store, verb)).unwrap();
        listed["entries"].as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
    };
    let tree = ids(&["tree", "--json"]);
    if again {
        greenroom(folder, &store, &["run", "story.toml", "--seed", seed, "--root", &tree[0], "--prompt", "And now?"]);
    }
    tree.iter().map(|id| greenroom(folder, &store, &["log", id, "--raw"])).collect()
}

#[test]
fn the_same_seed_leaves_the_same_logs_and_another_seed_others() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("story.toml"), PROGRAM).unwrap();
    let first = logs(folder.path(), "a.db", "7", true);
    assert_eq!(first.len(), 11, "an editor, five reporters, five sources");
    for name in ["b.db", "c.db", "d.db"] {
        assert_eq!(logs(folder.path(), name, "7", true), first, "{name}");
    }
    let other = logs(folder.path(), "e.db", "8", false);
    assert_eq!(other.len(), first.len());
    assert_ne!(other, first);
}

#[test]
fn a_root_keeps_the_seed_that_it_was_opened_with() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("story.toml"), PROGRAM).unwrap();
    let store = format!("sqlite:{}", folder.path().join("a.db").display());
    greenroom(folder.path(), &store, &["run", "story.toml", "--seed", "7"]);
    let root = greenroom(folder.path(), &store, &["list"]).split(' ').next().unwrap().to_owned();
    let output = Command::new(env!("CARGO_BIN_EXE_greenroom"))
        .args(["--store", &store, "run", "story.toml", "--root", &root, "--seed", "8"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("error[VARIABLE_FIXED]"), "{output:?}");
}
