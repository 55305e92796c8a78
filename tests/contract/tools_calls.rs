//! The calls that a model agent makes: what stands in the log of them, and what becomes of the others when one goes wrong, of all when the turn is over, and of each after a restart.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use greenroom::{
    Runtime, RuntimeBuilder, Turn, TurnEnd as Ended,
    actors::host::NewRoot,
    model::{ModelAgent, ModelEvent, ModelOptions, ModelRequest, Stop, Usage},
    tool::{SendMessageTool, SubagentTool, ToolError, ToolOutput, Tools, function},
};
use greenroom_session::{
    event::{Body, Role},
    message::{Block, text_of},
};
use serde_json::{Map, Value, json};

use crate::{
    mechanics::{Gate, story},
    publish::{events, sound},
    talking::{Scripted, call, end, says},
    tools::heard,
    world::{World, sid},
};

crate::on_every_store!(async
    a_call_stands_in_the_log_as_the_model_wrote_it_and_what_went_wrong_by_its_kind,
    a_call_that_panics_leaves_those_beside_it_and_those_behind_it_alone,
    a_tool_that_heeds_no_cancellation_is_dropped_and_the_model_is_told_that_nobody_knows_what_it_did,
    what_has_not_begun_when_the_turn_is_cancelled_does_not_begin,
    a_shutdown_leaves_calls_open_that_are_made_again_or_of_which_nobody_knows,
    an_interrupt_ends_what_is_made_again_and_what_waits_behind_it_does_not_begin,
    a_child_that_is_waited_for_is_found_again_by_a_model_after_a_shutdown,
    a_model_that_counts_its_calls_anew_is_understood_also_after_a_compaction,
);

/// What the bodies of some calls have done, in order: `+` at their beginning and `-` at their end.
#[derive(Clone, Default)]
struct Course(Arc<Mutex<Vec<(char, usize)>>>);

impl Course {
    fn note(&self, what: char, call: usize) {
        self.0.lock().unwrap().push((what, call));
    }

    /// Looks that no more ran at once than may, that those that run alone did, and that all began in their order.
    fn check(&self, alone: &[bool], parallel: usize) {
        let course = self.0.lock().unwrap();
        let (mut running, mut most, mut begun) = (Vec::<usize>::new(), 0, 0);
        for (what, call) in course.iter() {
            if *what == '-' {
                running.retain(|other| other != call);
                continue;
            }
            assert_eq!(*call, begun, "{course:?}");
            assert!(running.is_empty() || !alone[*call] && running.iter().all(|other| !alone[*other]), "{course:?}");
            begun += 1;
            running.push(*call);
            most = most.max(running.len());
        }
        assert!(most <= parallel && running.is_empty() && begun == alone.len(), "{course:?}");
    }
}

#[tokio::test]
async fn calls_of_any_number_length_and_kind_keep_their_order_their_bound_and_their_barriers() {
    let mut state = 7_u64;
    let mut roll = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for _ in 0..40 {
        let (count, parallel) = (1 + roll(11), roll(5));
        let alone: Vec<bool> = (0..count).map(|_| roll(4) == 0).collect();
        let pauses: Vec<usize> = (0..count).map(|_| roll(20)).collect();
        let world = World::memory();
        let (kinds, course) = (alone.clone(), Course::default());
        let model = Scripted::new(move |request, _| {
            if request.messages.last().unwrap().role == Role::Tool {
                return says("done");
            }
            let calls = kinds.iter().enumerate().map(|(n, alone)| call(&format!("c{n}"), if *alone { "alone" } else { "beside" }, &format!("{{\"n\":{n}}}")));
            calls.chain([end(Stop::ToolUse)]).collect()
        });
        let mut options = ModelOptions::new("small");
        options.parallel = parallel;
        let desk = Desk::open(&world, model, options, |builder| builder).await;
        for name in ["alone", "beside"] {
            let (course, pauses) = (course.clone(), pauses.clone());
            let tool = function(name, "Works.", move |arguments: Any, _| {
                let (course, n) = (course.clone(), usize::try_from(arguments["n"].as_u64().unwrap()).unwrap());
                let pauses = pauses[n];
                async move {
                    course.note('+', n);
                    for _ in 0..pauses {
                        tokio::task::yield_now().await;
                    }
                    course.note('-', n);
                    Ok(n.to_string())
                }
            });
            desk.add(if name == "alone" { tool.exclusive() } else { tool });
        }
        desk.ask("go").await;
        desk.rest().await;
        assert_eq!(results(&world), (0..count).map(|n| format!("c{n} {n}")).collect::<Vec<_>>());
        // None at all would be no pool.
        course.check(&alone, parallel.max(1));
        desk.runtime.shutdown().await;
    }
}

/// A model agent at its desk, and what it has to do with.
struct Desk {
    runtime: Runtime,
    tools: Tools,
    model: Scripted,
}

impl Desk {
    async fn open(world: &World, model: Scripted, options: ModelOptions, build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Self {
        let tools = Tools::default();
        let agent = ModelAgent::new(Arc::new(model.clone()), tools.clone(), options);
        let runtime = world.start(build(World::builder()).behavior("talker", move || agent.clone())).await;
        Self { runtime, tools, model }
    }

    async fn plain(world: &World, model: Scripted) -> Self {
        Self::open(world, model, ModelOptions::new("small"), |builder| builder).await
    }

    fn add(&self, tool: impl greenroom::tool::Tool) {
        self.tools.add(&self.runtime.host(), tool).unwrap();
    }

    /// Says something to the agent; what comes of it is not waited for.
    async fn ask(&self, text: &str) {
        let host = self.runtime.host();
        let root = host.root(NewRoot { id: Some(sid("r")), ..NewRoot::new("talker", "a desk") }).await.unwrap();
        host.send(root.id(), text, None).await.unwrap();
    }

    async fn rest(&self) {
        assert_eq!(self.runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    }
}

/// Asks for calls once after each thing that it is told, and is content with what comes of them.
fn once(calls: impl Fn() -> Vec<(&'static str, &'static str, String)> + Send + Sync + 'static) -> Scripted {
    Scripted::new(move |request, _| {
        if request.messages.last().unwrap().role == Role::Tool {
            return says("done");
        }
        calls().into_iter().map(|(id, name, arguments)| call(id, name, &arguments)).chain([end(Stop::ToolUse)]).collect()
    })
}

/// What the agent sees of its calls, in order: id and text, with `!` before a failure.
fn results(world: &World) -> Vec<String> {
    let folded = world.reader().folded(&sid("r")).unwrap();
    seen(folded.surface().messages().flat_map(|message| message.content.clone()))
}

/// What a model was told of its calls.
fn told(request: &ModelRequest) -> Vec<String> {
    seen(request.messages.iter().flat_map(|message| message.content.clone()))
}

fn seen(blocks: impl Iterator<Item = Block>) -> Vec<String> {
    blocks
        .filter_map(|block| match block {
            Block::ToolResult { call_id, text, is_error } => Some(format!("{call_id} {}{text}", if is_error { "!" } else { "" })),
            _ => None,
        })
        .collect()
}

type Any = Map<String, Value>;

/// Writes down which calls it has begun.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, id: &str) {
        self.0.lock().unwrap().push(id.to_owned());
    }

    fn times(&self, id: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|known| *known == id).count()
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wanted {
    what: String,
}

fn does() -> greenroom::tool::FunctionTool {
    function("does", "Does.", |wanted: Wanted, _| async move {
        match wanted.what.as_str() {
            "panic" => panic!("torn"),
            "fail" => Err(ToolError::new("NO_PAPER", "none is left")),
            other => Ok(ToolOutput::text(other)),
        }
    })
}

async fn a_call_stands_in_the_log_as_the_model_wrote_it_and_what_went_wrong_by_its_kind(world: &World) {
    let model = once(|| {
        vec![
            ("toolu_1", "does", r#"{ "what" : "knock" }"#.into()),
            ("text", "does", "knock on the door".into()),
            ("empty", "does", String::new()),
            ("toolu_1", "does", r#"{"what":"again"}"#.into()),
            ("", "does", r#"{"what":"nameless"}"#.into()),
            ("fail", "does", r#"{"what":"fail"}"#.into()),
            ("fly", "fly", "{}".into()),
        ]
    });
    let desk = Desk::plain(world, model).await;
    desk.add(does());
    desk.ask("go").await;
    desk.rest().await;
    let log = events(world, "r");
    let asked: Vec<_> = log
        .iter()
        .filter_map(|event| {
            if let Body::ToolCall { call_id, name, arguments, .. } = &event.body { Some((call_id.clone(), name.clone(), arguments.clone())) } else { None }
        })
        .collect();
    let again = asked.iter().map(|(id, ..)| id.clone()).find(|id| id.starts_with("toolu_1-")).unwrap();
    let nameless = "call";
    let expected = [
        ("toolu_1", "does", r#"{ "what" : "knock" }"#, "knock", None),
        ("text", "does", "knock on the door", "Error: invalid arguments: the whole must be object, not string", Some(("ToolError", "INVALID_ARGS"))),
        ("empty", "does", "", "Error: invalid arguments: `/what` is missing", Some(("ToolError", "INVALID_ARGS"))),
        (again.as_str(), "does", r#"{"what":"again"}"#, "again", None),
        (nameless, "does", r#"{"what":"nameless"}"#, "nameless", None),
        ("fail", "does", r#"{"what":"fail"}"#, "Error: none is left", Some(("ToolError", "NO_PAPER"))),
        ("fly", "fly", "{}", "Error: there is no tool named \"fly\"; there are: does", Some(("ToolError", "UNKNOWN_TOOL"))),
    ];
    assert_eq!(asked, expected.map(|(id, name, arguments, ..)| (id.to_owned(), name.to_owned(), arguments.to_owned())));
    let answered: Vec<_> = log
        .iter()
        .filter_map(|event| if let Body::ToolResult { message, error, .. } = &event.body { Some((message.content.clone(), error.clone())) } else { None })
        .collect();
    let wanted = expected.map(|(id, _, _, text, error)| {
        let block = Block::ToolResult { call_id: id.into(), text: text.into(), is_error: error.is_some() };
        (vec![block], error.map(|(name, code)| json!({"name": name, "code": code})))
    });
    assert_eq!(answered, wanted);
    // The model is told the same, under the same ids.
    assert_eq!(told(&desk.model.asked()[1]), results(world));
    desk.runtime.shutdown().await;
    sound(world);
}

async fn a_call_that_panics_leaves_those_beside_it_and_those_behind_it_alone(world: &World) {
    let model = once(|| {
        let calls = ["a", "panic", "b", "panic", "c"].iter().zip(["c0", "c1", "c2", "c3", "c4"]);
        calls.map(|(what, id)| (id, if *what == "a" { "waits" } else { "does" }, json!({"what": what}).to_string())).collect()
    });
    let mut options = ModelOptions::new("small");
    options.parallel = 2;
    let desk = Desk::open(world, model, options, |builder| builder).await;
    desk.add(does());
    // It has begun before the panics, and ends after them.
    let gate = Gate::new();
    let at = gate.clone();
    desk.add(function("waits", "Waits.", move |wanted: Wanted, _| {
        let at = at.clone();
        async move {
            at.hold().await;
            Ok(wanted.what)
        }
    }));
    let mut occurrences = desk.runtime.subscribe();
    desk.ask("go").await;
    gate.reached().await;
    // The last of them has begun while the first still waits, so that all that panicked have done so.
    crate::publish::until(&mut occurrences, |occurrence| matches!(occurrence, greenroom::Occurrence::ToolStarted { call_id, .. } if &**call_id == "c4")).await;
    gate.open(1);
    desk.rest().await;
    assert_eq!(results(world), ["c0 a", "c1 !Error: the tool panicked: torn", "c2 b", "c3 !Error: the tool panicked: torn", "c4 c"]);
    assert_eq!(story(&events(world, "r")).last().unwrap(), "completed");
    desk.runtime.shutdown().await;
    sound(world);
}

async fn a_tool_that_heeds_no_cancellation_is_dropped_and_the_model_is_told_that_nobody_knows_what_it_did(world: &World) {
    let model = once(|| vec![("quick", "does", r#"{"what":"seen"}"#.into()), ("deaf", "deaf", "{}".into()), ("late", "does", r#"{"what":"never"}"#.into())]);
    let mut options = ModelOptions::new("small");
    options.parallel = 1;
    let desk = Desk::open(world, model, options, |builder| builder.interrupt_grace(Duration::from_millis(1))).await;
    let gate = Gate::new();
    let at = gate.clone();
    desk.add(does());
    desk.add(function("deaf", "Hears nothing.", move |_: Any, _| {
        let at = at.clone();
        async move {
            at.hold().await;
            pending::<Result<ToolOutput, ToolError>>().await
        }
    }));
    desk.ask("go").await;
    gate.reached().await;
    gate.open(1);
    desk.runtime.host().interrupt(&sid("r"), Duration::from_secs(60)).await.unwrap();
    desk.rest().await;
    let unknown = results(world);
    assert_eq!(unknown.len(), 3, "{unknown:?}");
    assert_eq!(unknown[0], "quick seen");
    assert!(unknown[1].starts_with("deaf !") && unknown[1].contains("whether it took effect is unknown"), "{unknown:?}");
    assert!(unknown[2].starts_with("late !") && unknown[2].contains("before it started"), "{unknown:?}");
    assert!(story(&events(world, "r")).last().unwrap().starts_with("aborted by"));
    desk.ask("go on").await;
    gate.reached().await;
    assert_eq!(told(&desk.model.asked()[1]), unknown, "what is asked next begins with it");
    gate.open(1);
    desk.runtime.shutdown().await;
    sound(world);
}

async fn what_has_not_begun_when_the_turn_is_cancelled_does_not_begin(world: &World) {
    let model = once(|| vec![("works", "works", String::new()), ("gives up", "gives_up", String::new()), ("late", "late", String::new())]);
    let mut options = ModelOptions::new("small");
    options.parallel = 2;
    let desk = Desk::open(world, model, options, |builder| builder.interrupt_grace(Duration::from_secs(60))).await;
    let (gate, diary) = (Gate::new(), Diary::default());
    for id in ["works", "gives_up", "late"] {
        let (at, notes) = (gate.clone(), diary.clone());
        desk.add(function(id, "Works.", move |_: Any, caller| {
            let (at, notes) = (at.clone(), notes.clone());
            async move {
                notes.note(id);
                let stopped = at.pass(caller.turn.as_ref().unwrap()).await.is_err();
                if stopped && id == "gives_up" { Err(ToolError::aborted()) } else { Ok("brought to its end") }
            }
        }));
    }
    desk.ask("go").await;
    gate.reached().await;
    gate.reached().await;
    desk.runtime.host().interrupt(&sid("r"), Duration::from_secs(60)).await.unwrap();
    desk.rest().await;
    let stopped = "Error: the turn was cancelled";
    let expected = ["works brought to its end", &format!("gives up !{stopped}"), "late !Error: tool call aborted before dispatch"];
    assert_eq!(results(world), expected);
    assert_eq!(["works", "gives_up", "late"].map(|id| diary.times(id)), [1, 1, 0]);
    assert!(story(&events(world, "r")).last().unwrap().starts_with("aborted by"));
    desk.runtime.shutdown().await;
    sound(world);
}

async fn a_shutdown_leaves_calls_open_that_are_made_again_or_of_which_nobody_knows(world: &World) {
    // Beside each other: one that may be made again, one that may not, one that is done; behind them one that has not begun.
    let all = ["again", "once", "done", "late"];
    let diary = Diary::default();
    for round in 0..3 {
        let model = once(move || all.map(|id| (id, id, String::new())).into());
        let desk = Desk::open(world, model, ModelOptions::new("small"), |builder| builder.interrupt_grace(Duration::from_secs(60))).await;
        let gate = Gate::new();
        for id in all {
            let (at, notes) = (gate.clone(), diary.clone());
            let waits = round < 2 && (id == "again" || id == "once");
            let tool = function(id, "Is.", move |_: Any, caller| {
                let (at, notes) = (at.clone(), notes.clone());
                async move {
                    notes.note(id);
                    if waits {
                        // What may be made again is, whatever it says of its end.
                        let stopped = if id == "again" { ToolError::new("STOPPED", "somebody stopped me") } else { ToolError::aborted() };
                        at.pass(caller.turn.as_ref().unwrap()).await.map_err(|_| stopped)?;
                    }
                    Ok(id)
                }
            });
            desk.add(match id {
                "again" => tool.repeatable(),
                "late" => tool.exclusive(),
                _ => tool,
            });
        }
        match round {
            0 => {
                desk.ask("go").await;
                gate.reached().await;
                gate.reached().await;
            }
            // The first of what is made again waits, and the others behind it.
            1 => {
                desk.runtime.host().recover(None).await.unwrap();
                gate.reached().await;
            }
            _ => {
                desk.runtime.host().recover(None).await.unwrap();
                desk.rest().await;
                assert_eq!(told(&desk.model.asked()[0]), results(world), "it is asked when all stand");
            }
        }
        world.close_after(desk.runtime).await;
        let seen = results(world);
        assert_eq!(seen.len(), 4, "each call has an answer, whoever reads on: {seen:?}");
        assert!(seen[1].starts_with("once !") && seen[1].contains("whether it took effect is unknown"), "{seen:?}");
        assert_eq!(seen[2], "done done");
        if round == 2 {
            assert_eq!([&seen[0], &seen[3]], ["again again", "late late"]);
        }
    }
    assert_eq!(all.map(|id| diary.times(id)), [3, 1, 1, 1]);
    assert_eq!(story(&events(world, "r")).last().unwrap(), "completed");
    sound(world);
}

async fn an_interrupt_ends_what_is_made_again_and_what_waits_behind_it_does_not_begin(world: &World) {
    let diary = Diary::default();
    for round in 0..2 {
        let model = once(|| vec![("again", "again", String::new()), ("late", "late", String::new())]);
        let desk = Desk::open(world, model, ModelOptions::new("small"), |builder| builder.interrupt_grace(Duration::from_secs(60))).await;
        let gate = Gate::new();
        for id in ["again", "late"] {
            let (at, notes) = (gate.clone(), diary.clone());
            let tool = function(id, "Waits.", move |_: Any, caller| {
                let (at, notes) = (at.clone(), notes.clone());
                async move {
                    notes.note(id);
                    at.pass(caller.turn.as_ref().unwrap()).await.map_err(|_| ToolError::aborted())?;
                    Ok(id)
                }
            });
            desk.add(tool.repeatable().exclusive());
        }
        if round == 0 {
            desk.ask("go").await;
        } else {
            desk.runtime.host().recover(None).await.unwrap();
        }
        gate.reached().await;
        if round == 1 {
            desk.runtime.host().interrupt(&sid("r"), Duration::from_secs(60)).await.unwrap();
            desk.rest().await;
            assert_eq!(desk.model.asked().len(), 0);
        }
        world.close_after(desk.runtime).await;
    }
    assert_eq!(["again", "late"].map(|id| diary.times(id)), [2, 0]);
    let seen = results(world);
    assert_eq!(seen[0], "again !Error: the turn was cancelled");
    assert!(seen[1].starts_with("late !") && seen[1].contains("before it started"), "{seen:?}");
    assert!(story(&events(world, "r")).last().unwrap().starts_with("aborted by"));
    sound(world);
}

async fn a_child_that_is_waited_for_is_found_again_by_a_model_after_a_shutdown(world: &World) {
    for round in 0..2 {
        let model = once(|| vec![("d1", "subagent", json!({"description": "a look", "prompt": "look"}).to_string())]);
        let gate = Gate::new();
        let at = gate.clone();
        let looker = move |turn: Turn| {
            let at = at.clone();
            async move {
                at.pass(&turn).await?;
                turn.say("found")?;
                Ok(Ended::Completed)
            }
        };
        let desk = Desk::open(world, model, ModelOptions::new("small"), |builder| builder.closure("looker", looker)).await;
        let config = greenroom::tool::SubagentConfig { agent: Some("looker".into()), ..Default::default() };
        desk.add(SubagentTool::new(config));
        if round == 0 {
            desk.ask("go").await;
            gate.reached().await;
        } else {
            desk.runtime.host().recover(None).await.unwrap();
            gate.open(1);
            desk.rest().await;
        }
        world.close_after(desk.runtime).await;
    }
    assert_eq!(results(world), ["d1 found"]);
    assert_eq!(world.reader().children(Some(&sid("r")), None, 9).unwrap().len(), 1);
    sound(world);
}

async fn a_model_that_counts_its_calls_anew_is_understood_also_after_a_compaction(world: &World) {
    world.root_of("r", "talker");
    world.child("c", "r");
    let wordy = "as they say, ".repeat(60);
    // Sends letters 0 to 5 in as many answers, each time by a call that it names alike.
    let letters = Arc::new(Mutex::new(0));
    let model = Scripted::new(move |request, _| {
        if text_of(&request.messages.last().unwrap().content).starts_with("Summarize") {
            return says("Letters were sent.");
        }
        let mut sent = letters.lock().unwrap();
        if *sent == 6 {
            return says("done");
        }
        *sent += 1;
        let letter = json!({"subagent_id": "c", "message": format!("letter {sent}")}).to_string();
        // Not counted by its provider: the window is measured in bytes.
        let end = Ok(ModelEvent::End { stop: Stop::ToolUse, usage: Usage::default() });
        vec![Ok(ModelEvent::Text(wordy.clone())), call("call_0", "send_message", &letter), end]
    });
    let mut options = ModelOptions::new("small");
    options.window = Some(1_000);
    let desk = Desk::open(world, model, options, |builder| builder).await;
    desk.add(SendMessageTool::new());
    desk.runtime.host().send(&sid("r"), "Send six letters.", None).await.unwrap();
    desk.rest().await;
    let log = events(world, "r");
    assert!(log.iter().any(|event| matches!(&event.body, Body::CompactEnd { error: None, .. })), "the test needs a compaction within the turn");
    let letters: Vec<_> = heard(world, "c").into_iter().map(|(text, _)| text).collect();
    assert_eq!(letters, (1..=6).map(|n| format!("letter {n}")).collect::<Vec<_>>());
    let mut ids: Vec<_> = log.iter().filter_map(|event| if let Body::ToolCall { call_id, .. } = &event.body { Some(call_id.clone()) } else { None }).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6, "{ids:?}");
    desk.runtime.shutdown().await;
    sound(world);
}
