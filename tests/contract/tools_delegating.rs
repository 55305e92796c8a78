//! The delegation tool: what it waits for, what it has run in the background, what it is there for, and what becomes of its child when its turn is over.

use std::time::Duration;

use greenroom::{
    Runtime, Turn, TurnEnd as Ended,
    actors::host::Cancel,
    provider::{Capabilities, FORK},
    tool::{ListAgentsTool, SubagentConfig, SubagentTool, ToolLoadError},
};
use greenroom_session::{
    descriptor::{Descriptor, Mode, ModelRoute, ToolFilter},
    event::Body,
    id::SessionId,
    message::Source,
    text::label_from,
};
use serde_json::json;

use crate::{
    mechanics::story,
    providers::Copier,
    publish::{events, sound},
    tools::{Stage, ask, call, continuable, heard, subagent},
    watched::{Call, Fault},
    world::{World, sid},
};

crate::on_every_store!(async
    a_child_that_is_waited_for_gives_its_last_words_as_the_result,
    each_way_in_which_a_child_can_end_otherwise_is_an_error_of_its_own,
    where_there_is_no_background_the_flag_is_not_there_and_a_forced_one_fails,
    delegation_tools_stand_beside_each_other_and_each_comes_and_goes_with_its_provider,
    what_cannot_be_keeps_the_tool_out,
    what_the_tool_is_set_up_with_reaches_the_child_and_nothing_else_does,
    no_child_is_deeper_than_the_tool_allows,
    a_one_shot_child_in_the_background_tells_its_parent_when_it_is_done,
    a_continuable_child_in_the_background_is_listed_by_its_label,
    siblings_of_one_step_overlap,
    a_turn_that_is_over_starts_nobody_and_ends_the_child_that_it_waits_for,
    a_turn_that_is_cut_off_finds_the_child_again_that_it_waited_for,
    a_child_that_cannot_run_is_an_error_and_is_ended,
    a_store_that_fails_a_call_and_what_comes_after_it_is_told_with_both_failures,
);

fn children(world: &World, parent: &str) -> Vec<SessionId> {
    world.reader().children(Some(&sid(parent)), None, 99).unwrap().into_iter().map(|child| child.id).collect()
}

fn described(world: &World, id: &SessionId) -> Descriptor {
    let found = events(world, id.as_str()).into_iter().find_map(|event| if let Body::Descriptor(data) = event.body { Some(data) } else { None });
    Descriptor::parse(&found.unwrap()).unwrap()
}

async fn a_child_that_is_waited_for_gives_its_last_words_as_the_result(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder().max_live(1)).await;
    stage.load(&runtime);
    let odd = format!("  look\n{}", "far ".repeat(60));
    let lines = [
        call("plain", "subagent", &json!({"description": odd, "prompt": "say first\nsay last"})),
        call("silent", "subagent", &json!({"description": "a silent one", "prompt": "nothing", "run_in_background": false})),
        call("blank", "subagent", &json!({"description": " \n", "prompt": "say never"})),
    ];
    ask(&runtime, "r", &lines).await;
    assert_eq!((stage.text("plain").as_str(), stage.text("silent").as_str()), ("last", ""));
    assert_eq!(stage.text("blank"), "Error: invalid arguments: `/description` must not be empty");
    let below = children(world, "r");
    let value = stage.result("plain").unwrap().value.unwrap();
    assert_eq!(value, json!({"kind": "foreground", "runId": below[0], "output": [{"type": "text", "text": "last"}]}));
    let child = described(world, &below[0]);
    assert_eq!((child.mode, child.label, child.notice), (Mode::OneShot, Some(label_from(odd.trim())), false));
    assert_eq!(runtime.host().live_count(), 0, "nobody stays");
    assert_eq!((below.len(), heard(world, "r").len()), (2, 1), "and nobody is told of it again");
    runtime.shutdown().await;
    sound(world);
}

async fn each_way_in_which_a_child_can_end_otherwise_is_an_error_of_its_own(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    stage.load(&runtime);
    let ends = ["max", "fail NO_PAPER", "fail MODEL_REFUSED"];
    let mut lines: Vec<_> = ends.iter().zip(["max", "failed", "declined"]).map(|(prompt, id)| subagent(id, "a child", prompt, false)).collect();
    lines.push(subagent("cancelled", "a child", "say so far\nhold", false));
    runtime.host().send(&sid("r"), lines.join("\n"), None).await.unwrap();
    stage.gate.reached().await;
    let child = children(world, "r").pop().unwrap();
    runtime.host().cancel(&child, Cancel::default()).await.unwrap();
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    let told = ["max", "failed", "declined", "cancelled"].map(|id| (stage.code(id), stage.text(id)));
    for ((code, text), (expected, says)) in told.into_iter().zip([
        ("SUBAGENT_TOKEN_LIMIT", "ran out of output tokens"),
        ("SUBAGENT_FAILED", "failed with NO_PAPER: as asked"),
        ("SUBAGENT_DECLINED", "declined: as asked"),
        ("SUBAGENT_CANCELLED", "was cancelled; it had said: so far"),
    ]) {
        assert_eq!(code, expected);
        assert!(text.starts_with("Error: subagent ") && text.contains(says), "{text}");
    }
    assert_eq!(runtime.host().live_count(), 0);
    runtime.shutdown().await;
    sound(world);
}

async fn where_there_is_no_background_the_flag_is_not_there_and_a_forced_one_fails(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    stage.tools.add(&runtime.host(), SubagentTool::new(SubagentConfig { background: false, ..continuable() })).unwrap();
    ask(&runtime, "r", &[subagent("forced", "a child", "say x", true), subagent("false", "a child", "say x", false)]).await;
    for id in ["forced", "false"] {
        assert_eq!(stage.text(id), "Error: invalid arguments: `/run_in_background` is not known");
    }
    ask(&runtime, "r", &[call("plain", "subagent", &json!({"description": "a child", "prompt": "say x"}))]).await;
    assert_eq!(stage.text("plain"), "x");
    runtime.shutdown().await;
    assert_eq!(children(world, "r").len(), 1);
}

async fn delegation_tools_stand_beside_each_other_and_each_comes_and_goes_with_its_provider(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    let host = runtime.host();
    let named = |name: &str, provider: &str| SubagentTool::new(SubagentConfig { name: name.into(), provider: provider.into(), ..SubagentConfig::default() });
    for (name, provider) in [("subagent", "spawn"), ("copy", "copier"), ("split", FORK)] {
        stage.tools.add(&host, named(name, provider)).unwrap();
    }
    assert!(matches!(stage.tools.add(&host, named("copy", FORK)), Err(ToolLoadError::Duplicate(name)) if name == "copy"));
    let wording = |name: &str| stage.tools.get(name).unwrap().spec().description;
    assert!(wording("subagent").contains("It knows nothing of what was said here") && wording("split").contains("It begins with what was said here"));
    let offered = async |id: &str| {
        ask(&runtime, "r", &[format!("offered {id}"), call(&format!("call-{id}"), "copy", &json!({"description": "a copy", "prompt": "say copied"}))]).await;
        stage.text(id)
    };
    assert_eq!((offered("without").await.as_str(), stage.code("call-without").as_str()), ("subagent split", "UNKNOWN_TOOL"));
    let other = host.register_provider("another", Copier::blank()).unwrap();
    assert_eq!(offered("other").await, "subagent split", "whoever else comes is of no interest");
    let blank = host.register_provider("copier", Copier::blank().able(Capabilities { inherits: false, ..Capabilities::all() })).unwrap();
    assert_eq!((offered("with").await.as_str(), stage.text("call-with").as_str()), ("subagent copy split", "copied"));
    assert!(wording("copy").contains("It knows nothing of what was said here"));
    drop(other);
    assert_eq!(offered("still").await, "subagent copy split");
    drop(blank);
    assert_eq!((offered("gone").await.as_str(), stage.code("call-gone").as_str()), ("subagent split", "UNKNOWN_TOOL"));
    let inherits = host.register_provider("copier", Copier::blank()).unwrap();
    assert!(wording("copy").contains("It begins with what was said here"));
    assert!(stage.tools.remove("copy"));
    assert_eq!(offered("removed").await, "subagent split", "what was removed does not come back");
    drop(inherits);
    // One that comes later and cannot do what the tool asks for is none for it.
    stage.tools.add(&host, named("later", "limited")).unwrap();
    let _limited = host.register_provider("limited", Copier::blank().able(Capabilities { depth_limit: false, ..Capabilities::all() })).unwrap();
    assert_eq!(offered("limited").await, "subagent split");
    runtime.shutdown().await;
}

async fn what_cannot_be_keeps_the_tool_out(world: &World) {
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    let host = runtime.host();
    let able = |capabilities: Capabilities| host.register_provider("copier", Copier::blank().able(capabilities)).unwrap();
    let plain = || SubagentConfig { provider: "copier".into(), ..SubagentConfig::default() };
    let filter = |allow: Option<Vec<String>>| Some(ToolFilter { allow, deny: None });
    let all = Capabilities::all();
    for (can, config, lacks) in [
        (Capabilities { continuable: false, ..all }, SubagentConfig { mode: Mode::Continuable, ..plain() }, "continuable children"),
        (Capabilities { one_shot: false, ..all }, plain(), "one-shot children"),
        (Capabilities { depth_limit: false, ..all }, plain(), "a depth limit"),
        (Capabilities { persona: false, ..all }, SubagentConfig { persona: Some("x".into()), ..plain() }, "a persona"),
        (Capabilities { tool_filter: false, ..all }, SubagentConfig { tool_filter: filter(Some(Vec::new())), ..plain() }, "a tool filter"),
        (Capabilities { model: false, ..all }, SubagentConfig { model: Some("small".into()), ..plain() }, "a model route"),
    ] {
        let registered = able(can);
        let error = stage.tools.add(&host, SubagentTool::new(config.clone())).unwrap_err();
        assert_eq!((error.code(), error.to_string().contains(lacks)), ("TOOL_LOAD", true), "{error}");
        drop(registered);
        let _all = able(all);
        stage.tools.add(&host, SubagentTool::new(config)).unwrap();
        assert!(stage.tools.remove("subagent"));
    }
    // Neither is asked for where it is not wanted.
    let _limited = able(Capabilities { continuable: false, depth_limit: false, ..all });
    let without = SubagentConfig { mode: Mode::Continuable, background: false, max_depth: None, ..plain() };
    stage.tools.add(&host, SubagentTool::new(without)).unwrap();
    for config in [
        SubagentConfig { tool_filter: filter(None), ..plain() },
        SubagentConfig { persona: Some(String::new()), ..plain() },
        SubagentConfig { model: Some(ModelRoute { provider: None, name: String::new() }), ..plain() },
        SubagentConfig { name: "two words".into(), ..SubagentConfig::default() },
    ] {
        assert_eq!(stage.tools.add(&host, SubagentTool::new(config)).unwrap_err().code(), "TOOL_LOAD");
    }
    assert_eq!(stage.tools.names(), ["subagent"]);
    runtime.shutdown().await;
}

async fn what_the_tool_is_set_up_with_reaches_the_child_and_nothing_else_does(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let clerk = |turn: Turn| async move {
        turn.say(turn.params().map(|params| params.to_string()).unwrap_or_default())?;
        Ok(Ended::Completed)
    };
    let runtime = world.start(stage.builder().closure("clerk", clerk)).await;
    let full = SubagentConfig {
        name: "full".into(),
        provider: FORK.into(),
        agent: Some("clerk".into()),
        params: Some(json!({"desk": 3})),
        persona: Some("You doubt everything.".into()),
        tool_filter: Some(ToolFilter { allow: None, deny: Some(vec!["subagent".into()]) }),
        model: Some("small".into()),
        ..continuable()
    };
    stage.tools.add(&runtime.host(), SubagentTool::new(full)).unwrap();
    stage.tools.add(&runtime.host(), SubagentTool::new(continuable())).unwrap();
    ask(
        &runtime,
        "r",
        &[call("full", "full", &json!({"description": "a clerk", "prompt": "go", "run_in_background": true})), subagent("plain", "a worker", "say x", true)],
    )
    .await;
    let below = children(world, "r");
    let id = |call: &str| SessionId::new(stage.result(call).unwrap().value.unwrap()["subagentId"].as_str().unwrap()).unwrap();
    assert_eq!(below.len(), 2);
    let (full, plain) = (described(world, &id("full")), described(world, &id("plain")));
    assert_eq!((full.agent.as_str(), full.provider.as_str(), full.persona.as_deref()), ("clerk", FORK, Some("You doubt everything.")));
    assert_eq!(full.tool_filter, Some(ToolFilter { allow: None, deny: Some(vec!["subagent".into()]) }), "a list that was not given is not there");
    assert_eq!((full.model, full.params), (Some("small".into()), Some(json!({"desk": 3}))));
    assert_eq!(plain, Descriptor::continuable("spawn", "a worker", "worker"), "whoever delegates is played by whom its children are");
    runtime.shutdown().await;
}

async fn no_child_is_deeper_than_the_tool_allows(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder().max_depth(8)).await;
    let add = |name: &str, max_depth: Option<u32>| {
        let config = SubagentConfig { name: name.into(), max_depth, ..SubagentConfig::default() };
        stage.tools.add(&runtime.host(), SubagentTool::new(config)).unwrap();
    };
    stage.tools.add(&runtime.host(), SubagentTool::default()).unwrap();
    add("none", Some(0));
    add("open", None);
    // Each level delegates the rest.
    let below = |tool: &str, levels: usize| {
        (0..levels)
            .rev()
            .fold("say bottom".to_owned(), |prompt, level| call(&format!("{tool}-{level}"), tool, &json!({"description": "a level", "prompt": prompt})))
    };
    ask(&runtime, "r", &[below("subagent", 4), below("none", 1), below("open", 5)]).await;
    assert_eq!([stage.code("subagent-3"), stage.code("none-0")], ["DEPTH_EXCEEDED", "DEPTH_EXCEEDED"]);
    assert_eq!(stage.text("subagent-3"), "Error: subagent depth 4 exceeds maxDepth 3");
    assert!((0..3).all(|level| stage.result(&format!("subagent-{level}")).is_ok()));
    assert_eq!(stage.text("open-4"), "bottom");
    runtime.shutdown().await;
}

async fn a_one_shot_child_in_the_background_tells_its_parent_when_it_is_done(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    stage.tools.add(&runtime.host(), SubagentTool::default()).unwrap();
    stage.tools.add(&runtime.host(), ListAgentsTool::new()).unwrap();
    let lines = [subagent("task", "a look", "hold\nsay seen", true), subagent("bad", "a bad look", "fail NO_LAMP", true), "call list list_agents".into()];
    let root = runtime.resume(&sid("r")).await.unwrap();
    root.send(lines.join("\n")).await.unwrap();
    stage.gate.reached().await;
    runtime.host().when_idle(&sid("r")).await.unwrap();
    let task = children(world, "r").into_iter().find(|id| stage.text("task").ends_with(id.as_str())).unwrap();
    assert_eq!(stage.text("task"), format!("started background subagent task {task}"));
    assert_eq!(stage.result("task").unwrap().value, Some(json!({"kind": "background", "taskId": task})));
    assert_eq!(stage.text("list"), "(no subagents)");
    stage.gate.open(1);
    root.quiescent().await.unwrap();
    let told = heard(world, "r");
    let notes: Vec<_> = told.iter().filter_map(|(text, source)| matches!(source, Source::SubagentSettled { .. }).then_some(text.as_str())).collect();
    assert_eq!(notes.len(), 2, "{told:?}");
    assert!(notes.iter().any(|note| note.contains("(a bad look) has settled: its last turn failed with NO_LAMP.")), "{notes:?}");
    let seen = format!("Subagent {task} (a look) has settled: its last turn completed. Its last message:\nseen");
    assert!(notes.contains(&seen.as_str()), "{notes:?}");
    let turns = story(&events(world, "r"));
    assert!(turns.len() > 3 && turns.last().unwrap() == "completed", "the note woke its parent: {turns:?}");
    runtime.shutdown().await;
    sound(world);
}

async fn a_continuable_child_in_the_background_is_listed_by_its_label(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    stage.load(&runtime);
    runtime.host().send(&sid("r"), [subagent("kept", "collect facts", "hold", true), "call list list_agents".into()].join("\n"), None).await.unwrap();
    stage.gate.reached().await;
    stage.gate.open(1);
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    let id = children(world, "r").pop().unwrap();
    assert_eq!(stage.text("kept"), format!("started subagent {id}"));
    assert_eq!(stage.result("kept").unwrap().value, Some(json!({"kind": "continuable", "subagentId": id})));
    assert_eq!(stage.text("list"), format!("{id} [running] — collect facts"));
    ask(&runtime, "r", &["call later list_agents".into()]).await;
    assert_eq!(stage.text("later"), format!("{id} [complete] — collect facts"));
    runtime.shutdown().await;
}

async fn siblings_of_one_step_overlap(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder().max_live(2)).await;
    stage.load(&runtime);
    let one = subagent("one", "a child", "hold\nsay one", false);
    let two = subagent("two", "a child", "hold\nsay two", false);
    let both = format!("both {} && {}", one.strip_prefix("call ").unwrap(), two.strip_prefix("call ").unwrap());
    runtime.host().send(&sid("r"), both, None).await.unwrap();
    stage.gate.reached().await;
    stage.gate.reached().await;
    stage.gate.open(2);
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    assert_eq!([stage.text("one"), stage.text("two")], ["one", "two"]);
    runtime.shutdown().await;
}

async fn interrupted(runtime: &Runtime) {
    runtime.host().interrupt(&sid("r"), Duration::from_secs(60)).await.unwrap();
}

async fn a_turn_that_is_over_starts_nobody_and_ends_the_child_that_it_waits_for(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder().interrupt_grace(Duration::from_secs(60))).await;
    stage.load(&runtime);
    // The child has one of its own, which goes with it.
    let below = subagent("below", "below", "hold\nsay never", false);
    runtime
        .host()
        .send(&sid("r"), [subagent("waits", "a child", &below, false), subagent("late", "a late one", "say never", true)].join("\n"), None)
        .await
        .unwrap();
    stage.gate.reached().await;
    interrupted(&runtime).await;
    assert_eq!([stage.code("waits"), stage.code("late")], ["ABORTED", "ABORTED"]);
    assert_eq!(stage.text("waits"), "Error: the turn was cancelled");
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    let child = children(world, "r");
    assert_eq!(child.len(), 1, "the late one was not started");
    let grandchild = children(world, child[0].as_str());
    for ended in [&child[0], &grandchild[0]] {
        assert!(story(&events(world, ended.as_str())).last().unwrap().starts_with("aborted by"), "{ended}");
    }
    runtime.shutdown().await;
    sound(world);
}

async fn a_turn_that_is_cut_off_finds_the_child_again_that_it_waited_for(world: &World) {
    world.root("r");
    let line = subagent("waits", "a child", "hold\nsay found", false);
    for round in 0..2 {
        let stage = Stage::new();
        let runtime = world.start(stage.builder()).await;
        stage.load(&runtime);
        if round == 0 {
            runtime.host().send(&sid("r"), line.as_str(), None).await.unwrap();
            stage.gate.reached().await;
        } else {
            runtime.host().recover(None).await.unwrap();
            stage.gate.open(1);
            assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
            assert_eq!((stage.text("waits").as_str(), stage.times("waits")), ("found", 1));
        }
        world.close_after(runtime).await;
    }
    let child = children(world, "r");
    assert_eq!(child.len(), 1);
    assert_eq!(story(&events(world, child[0].as_str())).last().unwrap(), "completed");
    sound(world);
}

async fn a_child_that_cannot_run_is_an_error_and_is_ended(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let gate = stage.gate.clone();
    let clerk = move |turn: Turn| {
        let gate = gate.clone();
        async move {
            gate.pass(&turn).await?;
            Ok(Ended::Completed)
        }
    };
    let of_clerk = || SubagentTool::new(SubagentConfig { agent: Some("clerk".into()), ..SubagentConfig::default() });
    let runtime = world.start(stage.builder().closure("clerk", clerk)).await;
    stage.tools.add(&runtime.host(), of_clerk()).unwrap();
    runtime.host().send(&sid("r"), subagent("clerk", "a clerk", "work", false), None).await.unwrap();
    stage.gate.reached().await;
    world.close_after(runtime).await;
    // Nobody plays clerks any more.
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    stage.tools.add(&runtime.host(), of_clerk()).unwrap();
    runtime.host().recover(None).await.unwrap();
    runtime.host().when_idle(&sid("r")).await.unwrap();
    let (code, text) = (stage.code("clerk"), stage.text("clerk"));
    assert!(code == "NOT_RESUMABLE" || code == "AGENT_UNKNOWN", "{code}: {text}");
    let child = children(world, "r").pop().unwrap();
    assert!(text.contains(child.as_str()), "{text}");
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), [], "nothing of it is left to do");
    runtime.shutdown().await;
    sound(world);
}

async fn a_store_that_fails_a_call_and_what_comes_after_it_is_told_with_both_failures(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    stage.load(&runtime);
    runtime.host().send(&sid("r"), subagent("waits", "a child", "hold\nsay never heard", false), None).await.unwrap();
    stage.gate.reached().await;
    let child = children(world, "r").pop().unwrap();
    for call in [Call::Header, Call::Rows, Call::Load, Call::Events] {
        world.watch.fail(child.as_str(), call, None, Fault::Outage);
    }
    stage.gate.open(1);
    runtime.host().when_idle(&sid("r")).await.unwrap();
    let text = stage.text("waits");
    let (result, left) = text.split_once(&format!("; subagent {child} was not stopped: ")).unwrap_or_else(|| panic!("{text}"));
    assert!([result, left].iter().all(|failure| failure.contains("the store cannot be read")), "{text}");
    assert_eq!(story(&events(world, "r")).last().unwrap(), "completed", "the turn goes on");
    world.watch.clear();
    runtime.shutdown().await;
    sound(world);
}
