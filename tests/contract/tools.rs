//! The tools of the runtime, called as a model calls them: what each gives, who has it, and what becomes of it when it is removed or called again.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use greenroom::{
    Runtime, RuntimeBuilder, Turn, TurnEnd as Ended, TurnError,
    tool::{ListAgentsTool, ReportTool, SendMessageTool, SubagentConfig, SubagentTool, ToolError, ToolOutput, Tools, run_call},
};
use greenroom_session::{
    descriptor::{Mode, ToolFilter},
    event::Body,
    message::{Source, text_of},
};
use serde_json::{Value, json};

use crate::{
    author::{Author, descriptor, one_shot},
    mechanics::{Gate, story},
    publish::{events, sound},
    watched::Call,
    world::{World, sid},
};

crate::on_every_store!(async
    a_parent_is_told_of_children_that_take_messages_and_of_those_that_cannot_be_read,
    a_list_is_given_up_with_the_turn_that_asked_for_it,
    without_a_calling_agent_every_tool_fails_and_report_is_unknown,
    without_the_query_service_the_list_is_not_loaded_and_all_else_is,
    each_tool_of_the_runtime_works_where_it_is_the_only_one_and_is_gone_when_it_is_removed,
    a_tool_that_is_removed_is_gone_at_once_and_report_comes_back_with_the_next_activation,
    a_message_is_the_next_turn_of_a_child_that_has_settled_and_of_one_that_works,
    what_cannot_be_sent_says_that_it_was_not_delivered,
    continuable_children_alone_report_whatever_else_they_are_allowed,
    a_report_names_its_message_waits_or_wakes_and_ends_no_turn,
    a_call_that_is_made_again_after_a_restart_is_the_same_acceptance,
);

/// A call by its id, and what came of it.
type Told = (String, Result<ToolOutput, ToolError>);

/// Tools, somebody who calls them, and what came of it.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) tools: Tools,
    pub(crate) gate: Gate,
    told: Arc<Mutex<Vec<Told>>>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { tools: Tools::default(), gate: Gate::new(), told: Arc::default() }
    }

    /// Begins a runtime: `worker` does what its message says, line by line.
    pub(crate) fn builder(&self) -> RuntimeBuilder {
        let stage = self.clone();
        Runtime::builder().closure("worker", move |turn: Turn| {
            let stage = stage.clone();
            async move { stage.play(turn).await }
        })
    }

    /// Adds the four tools of the runtime; the children of `subagent` are continuable in the background.
    pub(crate) fn load(&self, runtime: &Runtime) {
        let host = runtime.host();
        self.tools.add(&host, SubagentTool::new(continuable())).unwrap();
        self.tools.add(&host, SendMessageTool::new()).unwrap();
        self.tools.add(&host, ListAgentsTool::new()).unwrap();
        self.tools.add(&host, ReportTool::new()).unwrap();
    }

    async fn play(&self, turn: Turn) -> Result<Ended, TurnError> {
        for line in turn.text().lines() {
            let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
            match verb {
                "call" => self.call(&turn, rest).await,
                "both" => {
                    let (one, other) = rest.split_once(" && ").unwrap();
                    tokio::join!(self.call(&turn, one), self.call(&turn, other));
                }
                "offered" => {
                    let names: Vec<_> = self.tools.specs(&turn).into_iter().map(|spec| spec.name).collect();
                    self.note(rest, Ok(ToolOutput::text(names.join(" "))));
                }
                "hold" => self.gate.pass(&turn).await?,
                "cancelled" => turn.cancelled().cancelled().await,
                "rest" => turn.await_children().await?,
                "say" => turn.say(rest)?,
                "fail" => return Err(TurnError::new(rest, "as asked")),
                "max" => return Ok(Ended::MaxTokens),
                _ => {}
            }
        }
        Ok(Ended::Completed)
    }

    async fn call(&self, turn: &Turn, words: &str) {
        let mut words = words.splitn(3, ' ');
        let (id, name, arguments) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap_or_default());
        let result = run_call(&self.tools, Some(turn), id, name, arguments).await;
        self.note(id, result);
    }

    fn note(&self, id: &str, result: Result<ToolOutput, ToolError>) {
        self.told.lock().unwrap().push((id.to_owned(), result));
    }

    /// Returns what came of a call, the last time.
    pub(crate) fn result(&self, id: &str) -> Result<ToolOutput, ToolError> {
        let told = self.told.lock().unwrap();
        told.iter().rev().find(|(of, _)| of == id).unwrap_or_else(|| panic!("nothing came of {id}: {told:?}")).1.clone()
    }

    /// Returns what a model was told.
    pub(crate) fn text(&self, id: &str) -> String {
        self.result(id).map_or_else(|error| error.text(), |output| output.text)
    }

    /// Returns the code of a call that failed.
    pub(crate) fn code(&self, id: &str) -> String {
        self.result(id).expect_err("it failed").code().to_owned()
    }

    /// Returns how often a call was made.
    pub(crate) fn times(&self, id: &str) -> usize {
        self.told.lock().unwrap().iter().filter(|(of, _)| of == id).count()
    }
}

pub(crate) fn continuable() -> SubagentConfig {
    SubagentConfig { mode: Mode::Continuable, ..SubagentConfig::default() }
}

/// Returns the line that calls a tool.
pub(crate) fn call(id: &str, name: &str, arguments: &Value) -> String {
    format!("call {id} {name} {arguments}")
}

/// Returns the line that delegates.
pub(crate) fn subagent(id: &str, label: &str, prompt: &str, in_background: bool) -> String {
    call(id, "subagent", &json!({"description": label, "prompt": prompt, "run_in_background": in_background}))
}

fn send(id: &str, child: &str, message: &str) -> String {
    call(id, "send_message", &json!({"subagent_id": child, "message": message}))
}

fn report(id: &str, output: &str) -> String {
    call(id, "report", &json!({"output": output}))
}

/// Sends a session a message and waits until nothing of its tree has anything left to do.
pub(crate) async fn ask(runtime: &Runtime, session: &str, lines: &[String]) {
    runtime.host().send(&sid(session), lines.join("\n"), None).await.unwrap();
    assert_eq!(runtime.host().quiescent(&sid(session)).await.unwrap(), []);
}

/// Returns what a session was told, with who said it.
pub(crate) fn heard(world: &World, id: &str) -> Vec<(String, Source)> {
    let messages = events(world, id).into_iter().filter_map(|event| if let Body::UserMessage(message) = event.body { Some(message) } else { None });
    messages.map(|message| (text_of(&message.content), message.source)).collect()
}

async fn a_parent_is_told_of_children_that_take_messages_and_of_those_that_cannot_be_read(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    stage.load(&runtime);
    ask(&runtime, "r", &["call none list_agents".into()]).await;
    assert_eq!((stage.text("none").as_str(), stage.result("none").unwrap().value), ("(no subagents)", Some(json!([]))));

    ask(&runtime, "r", &[subagent("once", "a quick look", "say seen", false), subagent("kept", "collect facts", "say ready", true), "rest".into()]).await;
    let kept = stage.result("kept").unwrap().value.unwrap()["subagentId"].as_str().unwrap().to_owned();
    ask(&runtime, "r", &["call real list_agents {}".into()]).await;
    assert_eq!(stage.text("real"), format!("{kept} [complete] — collect facts"));
    assert_eq!(stage.result("real").unwrap().value, Some(json!([{"kind": "child", "id": kept, "label": "collect facts", "status": "complete"}])));

    world.close_after(runtime).await;
    let unsupported = Author::child("z1", "r").at(u64::MAX / 4096).described_as(&json!({"version": 9})).sealed();
    let once = Author::child("z2", "r").at(u64::MAX / 4096).described(&one_shot(Some("once"))).sealed();
    assert!(world.plant_all(&[unsupported, once]));
    let again = Stage::new();
    let runtime = world.start(again.builder()).await;
    again.load(&runtime);
    ask(&runtime, "r", &["call all list_agents {}".into()]).await;
    assert_eq!(again.text("all"), format!("{kept} [complete] — collect facts\nz1 [diagnostic: unsupported]"));
    assert_eq!(again.result("all").unwrap().value.unwrap()[1], json!({"kind": "diagnostic", "id": "z1", "reason": "unsupported"}));
    ask(&runtime, "r", &["call extra list_agents {\"scope\":\"descendants\"}".into()]).await;
    assert_eq!(again.code("extra"), "INVALID_ARGS");
    runtime.shutdown().await;
}

async fn a_list_is_given_up_with_the_turn_that_asked_for_it(world: &World) {
    world.root("r");
    world.child("c", "r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    stage.load(&runtime);
    let pause = world.watch.pause("r", Call::Children, 1);
    runtime.host().send(&sid("r"), "call list list_agents", None).await.unwrap();
    pause.reached().await;
    assert_eq!(runtime.host().interrupt(&sid("r"), Duration::from_secs(60)).await.unwrap(), 1);
    assert_eq!(stage.code("list"), "CANCELLED");
    pause.open();
    runtime.shutdown().await;
    assert_eq!(story(&events(world, "r"))[2..], ["aborted by user"]);
}

async fn without_a_calling_agent_every_tool_fails_and_report_is_unknown(world: &World) {
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    stage.load(&runtime);
    for (name, arguments) in [
        ("subagent", json!({"description": "a look", "prompt": "look"})),
        ("send_message", json!({"subagent_id": "c", "message": "look"})),
        ("list_agents", json!({})),
    ] {
        let error = run_call(&stage.tools, None, "c1", name, &arguments.to_string()).await.unwrap_err();
        assert_eq!((error.code(), error.text()), ("UNAUTHORIZED", format!("Error: `{name}` requires a calling agent")));
    }
    let error = run_call(&stage.tools, None, "c1", "report", r#"{"output": "x"}"#).await.unwrap_err();
    assert_eq!(error.text(), "Error: there is no tool named \"report\"; there are: subagent, send_message, list_agents");
    assert_eq!(error.code(), "UNKNOWN_TOOL");
    runtime.shutdown().await;
    assert_eq!(world.reader().find("", 9).unwrap(), []);
}

async fn without_the_query_service_the_list_is_not_loaded_and_all_else_is(world: &World) {
    world.root("r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder().without_query()).await;
    let error = stage.tools.add(&runtime.host(), ListAgentsTool::new()).unwrap_err();
    assert_eq!(error.code(), "TOOL_LOAD");
    assert!(error.to_string().contains("SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE"), "{error}");
    stage.tools.add(&runtime.host(), SubagentTool::new(continuable())).unwrap();
    stage.tools.add(&runtime.host(), SendMessageTool::new()).unwrap();
    stage.tools.add(&runtime.host(), ReportTool::new()).unwrap();
    let below = report("told", "all is well");
    ask(&runtime, "r", &[subagent("kept", "collect facts", &below, true), "call list list_agents".into(), "offered names".into()]).await;
    assert_eq!((stage.text("names").as_str(), stage.code("list").as_str()), ("subagent send_message", "UNKNOWN_TOOL"));
    let kept = stage.result("kept").unwrap().value.unwrap()["subagentId"].as_str().unwrap().to_owned();
    ask(&runtime, "r", &[send("sent", &kept, "say again")]).await;
    assert!(stage.result("told").is_ok() && stage.result("sent").is_ok());
    assert_eq!(story(&events(world, &kept)).iter().filter(|line| *line == "completed").count(), 2);
    runtime.shutdown().await;
}

async fn each_tool_of_the_runtime_works_where_it_is_the_only_one_and_is_gone_when_it_is_removed(world: &World) {
    world.root("r");
    world.child("c", "r");
    for (name, caller, arguments, told) in [
        ("subagent", "r", json!({"description": "a look", "prompt": "say seen"}), "seen"),
        ("send_message", "r", json!({"subagent_id": "c", "message": "say heard"}), "message queued as the next turn for subagent c"),
        ("list_agents", "r", json!({}), "c [complete] — child c"),
        ("report", "c", json!({"output": "done"}), "report delivered as message "),
    ] {
        let stage = Stage::new();
        let runtime = world.start(stage.builder()).await;
        let (tools, host) = (stage.tools.clone(), runtime.host());
        let loaded = match name {
            "subagent" => tools.add(&host, SubagentTool::default()),
            "send_message" => tools.add(&host, SendMessageTool::new()),
            "list_agents" => tools.add(&host, ListAgentsTool::new()),
            _ => tools.add(&host, ReportTool::new()),
        };
        loaded.unwrap();
        // Whoever has a host has the runtime.
        drop(host);
        let lines = |id: &str| [format!("offered {id}"), call(&format!("call-{id}"), name, &arguments)];
        ask(&runtime, caller, &lines("there")).await;
        assert_eq!(stage.text("there"), name);
        assert!(stage.text("call-there").starts_with(told) && stage.result("call-there").is_ok(), "{name}: {}", stage.text("call-there"));
        assert!(stage.tools.remove(name));
        ask(&runtime, caller, &lines("gone")).await;
        assert_eq!((stage.text("gone").as_str(), stage.code("call-gone").as_str()), ("", "UNKNOWN_TOOL"));
        // Without the tool everything else is as it was.
        ask(&runtime, "r", &["say still here".into()]).await;
        world.close_after(runtime).await;
    }
    sound(world);
}

async fn a_tool_that_is_removed_is_gone_at_once_and_report_comes_back_with_the_next_activation(world: &World) {
    world.root("r");
    world.child("c", "r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    stage.load(&runtime);
    let lines = ["offered before", "hold", "offered removed", &report("late", "x"), "call list list_agents", "hold", "offered again"].join("\n");
    runtime.host().send(&sid("c"), lines, None).await.unwrap();
    stage.gate.reached().await;
    assert_eq!(stage.text("before"), "subagent send_message list_agents report");
    for name in ["report", "list_agents"] {
        assert!(stage.tools.remove(name) && !stage.tools.remove(name));
    }
    stage.gate.open(1);
    stage.gate.reached().await;
    assert_eq!(stage.text("removed"), "subagent send_message");
    assert_eq!([stage.code("late"), stage.code("list")], ["UNKNOWN_TOOL", "UNKNOWN_TOOL"]);
    stage.tools.add(&runtime.host(), ListAgentsTool::new()).unwrap();
    stage.tools.add(&runtime.host(), ReportTool::new()).unwrap();
    stage.gate.open(1);
    assert_eq!(runtime.host().quiescent(&sid("c")).await.unwrap(), []);
    assert_eq!(stage.text("again"), "subagent send_message list_agents", "what is added again reaches those that begin to live afterwards");
    ask(&runtime, "c", &["offered later".into()]).await;
    assert_eq!(stage.text("later"), "subagent send_message list_agents report");
    runtime.shutdown().await;
    assert!(heard(world, "r").iter().all(|(_, source)| !matches!(source, Source::SubagentReport { .. })));
    sound(world);
}

async fn a_message_is_the_next_turn_of_a_child_that_has_settled_and_of_one_that_works(world: &World) {
    world.root("r");
    world.child("settled", "r");
    world.child("busy", "r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    stage.load(&runtime);
    runtime.host().send(&sid("busy"), "hold\nsay first", None).await.unwrap();
    stage.gate.reached().await;
    runtime.host().send(&sid("r"), [send("one", "settled", "say one"), send("two", "busy", "say two"), "hold".into()].join("\n"), None).await.unwrap();
    stage.gate.reached().await;
    stage.gate.open(2);
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    for (id, child, expected) in [
        ("one", "settled", &["turn 1", "say one", "completed"][..]),
        ("two", "busy", &["turn 1", "hold\nsay first", "completed", "turn 2", "say two", "completed"]),
    ] {
        assert_eq!(stage.text(id), format!("message queued as the next turn for subagent {child}"));
        let log = events(world, child);
        assert_eq!(story(&log), expected);
        let (text, source) = heard(world, child).pop().unwrap();
        assert_eq!((text, source), (format!("say {id}"), Source::Coordinator { session: sid("r") }));
        assert!(log.iter().all(|event| event.body.type_name() != "note/joined"), "nothing was steered");
        let served = log.iter().rev().find_map(|event| if let Body::UserMessage(message) = &event.body { Some(message.id.to_string()) } else { None });
        assert_eq!(stage.result(id).unwrap().value, Some(json!({"messageId": served})));
    }
    runtime.shutdown().await;
    sound(world);
}

async fn what_cannot_be_sent_says_that_it_was_not_delivered(world: &World) {
    for root in ["r", "other"] {
        world.root(root);
    }
    world.child("strange", "other");
    world.create(&Author::child("once", "r").described(&one_shot(None)).sealed());
    world.child("full", "r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder().inbox_limit(1).send_patience(Duration::ZERO)).await;
    stage.load(&runtime);
    runtime.host().send(&sid("full"), "hold", None).await.unwrap();
    stage.gate.reached().await;
    runtime.host().send(&sid("full"), "say later", None).await.unwrap();
    let lines = [
        send("full", "full", "x"),
        send("missing", "nobody", "x"),
        send("odd", "", "x"),
        send("strange", "strange", "x"),
        send("once", "once", "x"),
        "call typed send_message {\"subagent_id\":7}".into(),
        "call text send_message hello".into(),
        "hold".into(),
    ];
    runtime.host().send(&sid("r"), lines.join("\n"), None).await.unwrap();
    stage.gate.reached().await;
    stage.gate.open(2);
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    for (id, code, says) in [
        ("full", "BUSY", "Error: the inbox of subagent \"full\" is full, 1 of 1 messages are pending"),
        ("missing", "NOT_RESUMABLE", "Error: subagent \"nobody\" is unavailable"),
        ("odd", "NOT_RESUMABLE", "Error: subagent \"\" is unavailable"),
        ("strange", "UNAUTHORIZED", "another parent session"),
        ("once", "NOT_RESUMABLE", "Error: subagent \"once\" is unavailable"),
    ] {
        let text = stage.text(id);
        assert!(text.contains(says) && text.ends_with("; the message was not delivered"), "{text}");
        assert_eq!(stage.code(id), code, "{text}");
    }
    assert_eq!(stage.text("typed"), "Error: invalid arguments: `/message` is missing; `/subagent_id` must be string, not number");
    assert_eq!(stage.text("text"), "Error: invalid arguments: the whole must be object, not string");
    runtime.shutdown().await;
    for child in ["strange", "once"] {
        assert!(world.reader().inbox(&sid(child), 9).unwrap().is_empty());
    }
}

async fn continuable_children_alone_report_whatever_else_they_are_allowed(world: &World) {
    world.root("r");
    let filter = |allow: Option<&[&str]>, deny: Option<&[&str]>| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ToolFilter { allow: allow.map(owned), deny: deny.map(owned) }
    };
    for (child, allowed) in [
        ("nothing", filter(Some(&[]), None)),
        ("one", filter(Some(&["list_agents"]), None)),
        ("most", filter(None, Some(&["subagent"]))),
        ("mute", filter(None, Some(&["report"]))),
    ] {
        let mut described = descriptor(child);
        described.tool_filter = Some(allowed);
        world.create(&Author::child(child, "r").described(&described).sealed());
    }
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    stage.load(&runtime);
    for (child, offered) in
        [("nothing", "report"), ("one", "list_agents report"), ("most", "send_message list_agents report"), ("mute", "subagent send_message list_agents")]
    {
        ask(&runtime, child, &[format!("offered {child}"), report(&format!("{child}-says"), "x")]).await;
        assert_eq!(stage.text(child), offered);
        assert_eq!(stage.result(&format!("{child}-says")).is_ok(), child != "mute");
    }
    ask(
        &runtime,
        "r",
        &["offered root".into(), report("root-says", "x"), subagent("waited", "a look", &format!("offered once\n{}", report("once-says", "x")), false)],
    )
    .await;
    assert_eq!([stage.text("root"), stage.text("once")], ["subagent send_message list_agents", "subagent send_message list_agents"]);
    assert_eq!([stage.code("root-says"), stage.code("once-says")], ["UNKNOWN_TOOL", "UNKNOWN_TOOL"]);
    // What is not offered cannot be called.
    ask(&runtime, "nothing", &["call list list_agents".into(), send("send", "x", "y")]).await;
    assert_eq!([stage.code("list"), stage.code("send")], ["UNKNOWN_TOOL", "UNKNOWN_TOOL"]);
    runtime.shutdown().await;
}

async fn a_report_names_its_message_waits_or_wakes_and_ends_no_turn(world: &World) {
    world.root("r");
    world.child("c", "r");
    let stage = Stage::new();
    let runtime = world.start(stage.builder()).await;
    stage.tools.add(&runtime.host(), ReportTool::new().quiet()).unwrap();
    let root = runtime.resume(&sid("r")).await.unwrap();
    let lines = [report("q1", "psst"), report("q2", "psst"), report("q1", "psst"), "say still here".into(), "hold".into()].join("\n");
    runtime.host().send(&sid("c"), lines, None).await.unwrap();
    stage.gate.reached().await;
    runtime.host().when_idle(&sid("r")).await.unwrap();
    assert!(story(&events(world, "r")).is_empty(), "a quiet report wakes nobody");
    let waits: Vec<_> = world
        .reader()
        .inbox(&sid("r"), 9)
        .unwrap()
        .iter()
        .map(|record| (record.message.id.to_string(), record.message.text(), record.message.source.clone()))
        .collect();
    let named = |id: &str| {
        let message = stage.result(id).unwrap().value.unwrap()["messageId"].as_str().unwrap().to_owned();
        assert_eq!(stage.text(id), format!("report delivered as message {message}"));
        message
    };
    let from = || Source::SubagentReport { session: sid("c") };
    assert_eq!(waits, [(named("q1"), "psst".into(), from()), (named("q2"), "psst".into(), from())]);
    stage.tools.remove("report");
    stage.tools.add(&runtime.host(), ReportTool::new()).unwrap();
    stage.gate.open(1);
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    runtime.host().send(&sid("c"), [report("loud", "hello"), "hold".into()].join("\n"), None).await.unwrap();
    stage.gate.reached().await;
    runtime.host().when_idle(&sid("r")).await.unwrap();
    assert_eq!(story(&events(world, "r")).iter().filter(|line| *line == "hello").count(), 1, "a waking report opens a turn");
    stage.gate.open(1);
    root.quiescent().await.unwrap();
    runtime.shutdown().await;
    sound(world);
}

async fn a_call_that_is_made_again_after_a_restart_is_the_same_acceptance(world: &World) {
    world.root("r");
    world.child("c", "r");
    world.child("d", "c");
    let once = subagent("once", "a look", "say seen", false);
    let kept = subagent("kept", "collect facts", "say ready", true);
    let lines = [once, kept, send("sent", "d", "say heard"), report("told", "half done"), "hold".into(), "say done".into()].join("\n");
    let mut before = Vec::new();
    for round in 0..3 {
        let stage = Stage::new();
        let runtime = world.start(stage.builder()).await;
        stage.load(&runtime);
        if round == 0 {
            runtime.host().send(&sid("c"), lines.as_str(), None).await.unwrap();
        } else {
            runtime.host().recover(None).await.unwrap();
        }
        stage.gate.reached().await;
        let told: Vec<_> = ["once", "kept", "sent", "told"].map(|id| stage.result(id).unwrap()).into();
        if round == 0 {
            before = told;
        } else {
            assert_eq!(told, before);
        }
        if round == 2 {
            stage.gate.open(1);
            for session in ["c", "r"] {
                assert_eq!(runtime.host().quiescent(&sid(session)).await.unwrap(), []);
            }
        }
        world.close_after(runtime).await;
    }
    assert_eq!(world.reader().children(Some(&sid("c")), None, 9).unwrap().len(), 3, "d and one child for each call");
    assert_eq!(heard(world, "d").len(), 1);
    assert_eq!(story(&events(world, "d")).last().unwrap(), "completed");
    let reports = heard(world, "r").into_iter().filter(|(_, source)| matches!(source, Source::SubagentReport { .. }));
    assert_eq!(reports.count(), 1);
    assert_eq!(story(&events(world, "c")).iter().filter(|line| *line == "disposed").count(), 2);
    sound(world);
}
