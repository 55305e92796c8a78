//! Commands as tools: what goes in, what comes out, within which bounds, and that none outlives its turn.

use std::{fs, path::Path, sync::Arc, time::Duration};

use greenroom::{
    actors::host::NewRoot,
    agent::Guards,
    command::CommandSpec,
    model::{ModelAgent, ModelOptions, ScriptedAnswer, ScriptedModel},
    tool::{CommandTool, Tools, run_call},
};
use greenroom_session::message::Block;
use serde_json::{Value, json};

use crate::{
    tools::{Stage, ask, call},
    world::{World, sid},
};

crate::on_every_store!(async
    a_command_gets_its_arguments_and_gives_text_or_json_within_its_bounds,
    no_argument_reaches_a_shell_and_none_is_lost,
    a_command_that_goes_wrong_is_an_error_that_says_how_and_leaves_nobody_behind,
    a_command_that_must_not_run_twice_does_not_whatever_cut_it_off,
    calls_of_one_step_run_beside_each_other,
    a_command_ends_with_its_turn_and_a_call_that_is_made_again_runs_it_again,
);

fn schema() -> Value {
    json!({"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": false})
}

fn sh(script: &str) -> CommandSpec {
    CommandSpec::new(["sh", "-c", script], "/", Duration::from_secs(60))
}

async fn a_command_gets_its_arguments_and_gives_text_or_json_within_its_bounds(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    let guards = Arc::new(Guards::temporary());
    let add = |name: &str, spec: CommandSpec| CommandTool::new(name, "Runs.", schema(), spec, guards.clone());
    let host = runtime.host();
    let mut environment = sh("env | cut -d= -f1 | sort | tr '\\n' ' '; echo \"$GREENROOM_SESSION $GREENROOM_CALL $COLOUR\"");
    environment.env.insert("COLOUR".into(), "red".into());
    let small = CommandSpec { max_stdout_bytes: 10, ..sh("echo far more than that") };
    let slow = CommandSpec { timeout: Duration::from_millis(20), ..sh("exec sleep 60") };
    for tool in [
        add("echo", sh("cat")),
        add("pick", sh("echo '{\"b\": [1, 2]}'")).json(),
        add("word", sh("echo '\"sunny\"'")).json(),
        add("prose", sh("echo sunny")).json(),
        add("named", environment),
        add("odd", sh("printf 'a\\377'")),
        add("fails", sh("echo no paper >&2; exit 3")),
        add("small", small),
        add("slow", slow),
        add("missing", CommandSpec::new(["no-such-program"], "/", Duration::from_secs(60))),
    ] {
        stage.tools.add(&host, tool).unwrap();
    }
    let all = ["echo", "pick", "word", "prose", "named", "odd", "fails", "small", "slow", "missing"];
    let mut lines: Vec<_> = all.iter().map(|name| call(name, name, &json!({"text": "a\nb"}))).collect();
    lines.push(call("refused", "echo", &json!({"text": 1})));
    ask(&runtime, "r", &lines).await;
    for (id, text) in [("echo", r#"{"text":"a\nb"}"#), ("pick", r#"{"b":[1,2]}"#), ("word", "sunny")] {
        assert_eq!(stage.text(id), text);
    }
    assert_eq!(stage.result("pick").unwrap().value, Some(json!({"b": [1, 2]})));
    let environment = stage.text("named");
    let (names, values) = environment.split_at(environment.find(" r named red").unwrap());
    assert_eq!(values, " r named red");
    for name in names.split_whitespace() {
        let known = ["COLOUR", "GREENROOM_CALL", "GREENROOM_SESSION", "HOME", "LANG", "PATH"];
        // What a shell sets by itself.
        assert!(known.contains(&name) || ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name), "{name}");
    }
    for (id, code, says) in [
        ("prose", "INVALID_TOOL_OUTPUT", "Error: the tool gave no valid result: it is not JSON"),
        ("odd", "INVALID_TOOL_OUTPUT", "Error: the tool gave no valid result: it is not UTF-8: the first bad byte is at offset 1"),
        ("small", "INVALID_TOOL_OUTPUT", "Error: the tool gave no valid result: the command wrote more than 10 bytes"),
        ("fails", "COMMAND_FAILED", "no paper"),
        ("slow", "COMMAND_TIMEOUT", "still running after 20ms"),
        ("missing", "COMMAND_MISSING", "no-such-program"),
        ("refused", "INVALID_ARGS", "`/text` must be string, not number"),
    ] {
        assert_eq!(stage.code(id), code);
        assert!(stage.text(id).contains(says), "{}", stage.text(id));
    }
    // Nobody's turn: it runs all the same, and knows of no session.
    let alone = run_call(&stage.tools, None, "c1", "named", "{}").await.unwrap().text;
    assert!(alone.contains(" c1 red") && !alone.contains("GREENROOM_SESSION"), "{alone}");
    assert!(fs::read_dir(guards.folder()).unwrap().next().is_none(), "no lock is left");
    runtime.shutdown().await;
}

async fn no_argument_reaches_a_shell_and_none_is_lost(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    let (guards, folder) = (Arc::new(Guards::temporary()), tempfile::tempdir().unwrap());
    let command = CommandSpec::new(["cat"], folder.path(), Duration::from_secs(60));
    stage.tools.add(&runtime.host(), CommandTool::new("echo", "Repeats.", schema(), command, guards.clone()).json()).unwrap();
    let odd = ["$(touch here)", "`touch here`", "; touch here #", "-n --help", "'\"\\", "a\u{0}b", "*?~ $HOME ${PATH}", "\u{1f600}\u{202e}", ""];
    for (n, text) in odd.into_iter().chain([&*"x".repeat(1 << 20)]).enumerate() {
        let id = format!("c{n}");
        let arguments = json!({ "text": text });
        let result = run_call(&stage.tools, None, &id, "echo", &arguments.to_string()).await.unwrap();
        assert_eq!(result.value.unwrap(), arguments);
    }
    // Nor does the id of the call, which a model may choose.
    ask(&runtime, "r", &[call("$(touch\u{a0}here);../../x", "echo", &json!({"text": "x"}))]).await;
    assert_eq!(stage.result("$(touch\u{a0}here);../../x").unwrap().value, Some(json!({"text": "x"})));
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    runtime.shutdown().await;
}

async fn a_command_that_goes_wrong_is_an_error_that_says_how_and_leaves_nobody_behind(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    let (guards, folder) = (Arc::new(Guards::temporary()), tempfile::tempdir().unwrap());
    let diary = folder.path().join("pids");
    // Each leaves a process behind that writes down who it is, and then does what the row says.
    let left = format!("sh -c 'echo $$ >> {0}; exec sleep 600' & while ! test -s {0}; do :; done; echo $$ >> {0};", diary.display());
    let short = Duration::from_millis(500);
    for (id, script, timeout, code, says) in [
        ("ends", "echo done", short * 120, "", "done"),
        ("fails", "echo no paper >&2; exit 3", short * 120, "COMMAND_FAILED", "no paper"),
        ("killed", "kill -9 $$", short * 120, "COMMAND_FAILED", "signal"),
        ("floods", "yes", short * 120, "INVALID_TOOL_OUTPUT", "more than 1000 bytes"),
        ("hangs", "trap '' TERM INT HUP; while :; do sleep 1; done", short, "COMMAND_TIMEOUT", "still running after 500ms"),
    ] {
        drop(fs::remove_file(&diary));
        let spec = CommandSpec { max_stdout_bytes: 1_000, timeout, ..sh(&format!("{left} {script}")) };
        stage.tools.add(&runtime.host(), CommandTool::new(id, "Goes wrong.", schema(), spec, guards.clone())).unwrap();
        ask(&runtime, "r", &[call(id, id, &json!({}))]).await;
        assert!(stage.text(id).contains(says), "{id}: {}", stage.text(id));
        assert_eq!(stage.result(id).map_err(|error| error.code().to_owned()).err().unwrap_or_default(), code);
        let pids = lines(&diary);
        // Its time may be up before it has come so far.
        assert!(pids.len() == 2 || id == "hangs", "{id}: {pids:?}");
        for pid in pids {
            // Killed it is; whoever inherits its children may need a moment to bury it.
            while lives(&pid) {
                tokio::task::yield_now().await;
            }
        }
    }
    assert!(fs::read_dir(guards.folder()).unwrap().next().is_none());
    runtime.shutdown().await;
}

/// Tells whether a process runs: one that is dead and not yet buried does not.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z" && state != "X")
}

async fn a_command_that_must_not_run_twice_does_not_whatever_cut_it_off(world: &World) {
    let (guards, folder) = (Arc::new(Guards::temporary()), tempfile::tempdir().unwrap());
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    for round in 0..2 {
        let model = ScriptedModel::new([
            ScriptedAnswer::new().call("pays", json!({})).call("looks", json!({})),
            ScriptedAnswer::new().text("I shall look whether it was paid."),
        ]);
        let tools = Tools::default();
        let agent = ModelAgent::new(Arc::new(model.clone()), tools.clone(), ModelOptions::new("small"));
        let runtime = world.start(World::builder().interrupt_grace(Duration::from_secs(60)).behavior("talker", move || agent.clone())).await;
        let tool = |name: &str| {
            let script = format!("echo $GREENROOM_CALL >> {}; test {round} = 1 || cat {}", folder.path().join(name).display(), pipe.display());
            CommandTool::new(name, "Works.", schema(), sh(&script), guards.clone())
        };
        tools.add(&runtime.host(), tool("pays")).unwrap();
        tools.add(&runtime.host(), tool("looks").repeatable()).unwrap();
        if round == 0 {
            let root = runtime.host().root(NewRoot { id: Some(sid("r")), ..NewRoot::new("talker", "a desk") }).await.unwrap();
            root.send("Pay.").await.unwrap();
            while ["pays", "looks"].iter().any(|name| lines(&folder.path().join(name)).is_empty()) {
                tokio::task::yield_now().await;
            }
        } else {
            runtime.host().recover(None).await.unwrap();
            assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
            let asked = model.requests().pop().unwrap();
            let results: Vec<_> =
                asked.messages.iter().flat_map(|message| &message.content).filter(|block| matches!(block, Block::ToolResult { .. })).collect();
            let [Block::ToolResult { text: paid, is_error: true, .. }, Block::ToolResult { is_error: false, .. }] = results[..] else { panic!("{results:?}") };
            assert!(paid.contains("whether it took effect is unknown"), "{paid}");
        }
        world.close_after(runtime).await;
    }
    assert_eq!(["pays", "looks"].map(|name| lines(&folder.path().join(name)).len()), [1, 2]);
}

async fn calls_of_one_step_run_beside_each_other(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    let (guards, folder) = (Arc::new(Guards::temporary()), tempfile::tempdir().unwrap());
    let pipes = ["one", "other"].map(|name| folder.path().join(name));
    for pipe in &pipes {
        rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    }
    // Each waits for a word of the other.
    let [one, other] = pipes.map(|pipe| pipe.to_str().unwrap().to_owned());
    for (name, script) in [("says", format!("echo hello > {one}; cat {other}")), ("hears", format!("cat {one}; echo bye > {other}"))] {
        stage.tools.add(&runtime.host(), CommandTool::new(name, "Talks.", schema(), sh(&script), guards.clone())).unwrap();
    }
    ask(&runtime, "r", &["both a says {} && b hears {}".into()]).await;
    assert_eq!([stage.text("a"), stage.text("b")], ["bye", "hello"]);
    runtime.shutdown().await;
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

async fn a_command_ends_with_its_turn_and_a_call_that_is_made_again_runs_it_again(world: &World) {
    world.root("r");
    let (guards, folder) = (Arc::new(Guards::temporary()), tempfile::tempdir().unwrap());
    let (diary, pipe) = (folder.path().join("diary"), folder.path().join("pipe"));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let script = format!("echo $$ $GREENROOM_CALL >> {}; cat {}; echo done >> {}", diary.display(), pipe.display(), diary.display());
    let tool = || CommandTool::new("waits", "Waits.", schema(), sh(&script), guards.clone()).repeatable();
    for round in 0..2 {
        let stage = Stage::new();
        let runtime = world.start(stage.builder().interrupt_grace(Duration::from_secs(60))).await;
        stage.tools.add(&runtime.host(), tool()).unwrap();
        if round == 0 {
            runtime.host().send(&sid("r"), "call c1 waits", None).await.unwrap();
        } else {
            runtime.host().recover(None).await.unwrap();
        }
        // Opened for writing once somebody reads: then the command stands there.
        let opened = pipe.clone();
        let writer = tokio::task::spawn_blocking(move || fs::OpenOptions::new().write(true).open(opened).unwrap()).await.unwrap();
        if round == 1 {
            runtime.host().interrupt(&sid("r"), Duration::from_secs(60)).await.unwrap();
        }
        world.close_after(runtime).await;
        assert_eq!(stage.code("c1"), "ABORTED");
        drop(writer);
        let diary = lines(&diary);
        assert_eq!(diary.len(), round + 1, "{diary:?}");
        for line in &diary {
            let pid = line.strip_suffix(" c1").unwrap();
            assert!(!Path::new("/proc").join(pid).exists(), "it has ended");
        }
    }
    assert!(fs::read_dir(guards.folder()).unwrap().next().is_none());
}
