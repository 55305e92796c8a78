//! What a model agent does in a turn: asking, answering, calling tools, and going on after a crash.

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    pin::Pin,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt as _, Stream, future::BoxFuture, stream};
use greenroom::{
    Runtime, RuntimeBuilder,
    actors::{Host, Occurrence, host::NewRoot, occurrence::Chunk},
    model::{Model, ModelAgent, ModelError, ModelErrorCode, ModelEvent, ModelOptions, ModelRequest, RetryPolicy, Stop, Usage},
    tool::{ReportTool, SendMessageTool, SubagentConfig, SubagentTool, Tool, ToolCall, ToolError, ToolMode, ToolOutput, Tools},
};
use greenroom_session::{
    descriptor::Mode,
    event::{Body, Event, Role, TurnEnd},
    id::SessionId,
    message::{Block, text_of},
    store::{Store, jsonl::JsonlStore, sqlite::SqliteStore},
};
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::Notify;

use crate::{
    publish::{events, sound},
    watched::Watch,
    watched_store::WatchedStore,
    world::{World, mid, sid},
};

/// What a model does when it is asked.
type Reply = Vec<Result<ModelEvent, ModelError>>;

type Answers = dyn Fn(&ModelRequest, usize) -> Reply + Send + Sync;

/// A model that answers by what it is asked, and keeps what that was.
#[derive(Clone)]
pub(crate) struct Scripted {
    answers: Arc<Answers>,
    asked: Arc<Mutex<Vec<ModelRequest>>>,
    /// After its events it says nothing more, and does not end.
    hangs: bool,
}

impl Scripted {
    pub(crate) fn new(answers: impl Fn(&ModelRequest, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self { answers: Arc::new(answers), asked: Arc::default(), hangs: false }
    }

    pub(crate) fn asked(&self) -> Vec<ModelRequest> {
        self.asked.lock().unwrap().clone()
    }
}

impl Model for Scripted {
    fn answer(&self, request: ModelRequest) -> BoxFuture<'_, Result<Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>, ModelError>> {
        let number = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(request.clone());
            asked.len()
        };
        let events = stream::iter((self.answers)(&request, number));
        let hangs = self.hangs;
        async move {
            let stream: Pin<Box<dyn Stream<Item = _> + Send>> =
                if hangs { Box::pin(futures::StreamExt::chain(events, stream::pending())) } else { Box::pin(events) };
            Ok(stream)
        }
        .boxed()
    }
}

pub(crate) fn says(text: &str) -> Reply {
    vec![Ok(ModelEvent::Text(text.into())), end(Stop::End)]
}

#[expect(clippy::unnecessary_wraps, reason = "an item of a stream")]
pub(crate) fn end(stop: Stop) -> Result<ModelEvent, ModelError> {
    Ok(ModelEvent::End { stop, usage: Usage { input: 10, output: 2, ..Usage::default() } })
}

#[expect(clippy::unnecessary_wraps, reason = "an item of a stream")]
pub(crate) fn call(id: &str, name: &str, arguments: &str) -> Result<ModelEvent, ModelError> {
    Ok(ModelEvent::ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() })
}

fn fails(code: ModelErrorCode) -> Reply {
    vec![Ok(ModelEvent::Text("half a".into())), Err(ModelError::new(code, "no luck"))]
}

/// How many answers of a model the agent sees since it was spoken to last.
fn steps(request: &ModelRequest) -> usize {
    request.messages.iter().rev().take_while(|message| message.role != Role::User).filter(|message| message.role == Role::Assistant).count()
}

fn options() -> ModelOptions {
    let mut options = ModelOptions::new("small");
    options.retry = RetryPolicy { first: Duration::ZERO, cap: Duration::ZERO, ..RetryPolicy::default() };
    options
}

struct Desk {
    world: World,
    model: Scripted,
    tools: Tools,
    runtime: Runtime,
}

impl Desk {
    async fn open(world: World, model: Scripted, options: ModelOptions, tools: impl FnOnce(&Tools, &Runtime)) -> Self {
        let own = Tools::default();
        let runtime = cast(&model, &own, options).start(world.store()).await.unwrap();
        tools(&own, &runtime);
        Self { world, model, tools: own, runtime }
    }

    /// Says something to the agent and waits for what comes of it.
    async fn say(&self, text: &str) {
        let host = self.runtime.host();
        let root = host.root(NewRoot { id: Some(sid("r")), ..NewRoot::new("talker", "a desk") }).await.unwrap();
        host.send(root.id(), text, None).await.unwrap();
        root.quiescent().await.unwrap();
    }

    fn log(&self) -> Vec<Event> {
        events(&self.world, "r")
    }

    /// The types of a turn's events, each with what tells it from others of its type.
    fn told(&self) -> Vec<String> {
        self.log().iter().filter_map(|event| told(&event.body)).collect()
    }

    fn ends(&self) -> Vec<TurnEnd> {
        self.log().into_iter().filter_map(|event| if let Body::TurnEnd { reason, .. } = event.body { Some(reason) } else { None }).collect()
    }
}

fn cast(model: &Scripted, tools: &Tools, options: ModelOptions) -> RuntimeBuilder {
    let agent = ModelAgent::new(Arc::new(model.clone()), tools.clone(), options);
    World::builder().behavior("talker", move || agent.clone())
}

fn told(body: &Body) -> Option<String> {
    Some(match body {
        Body::StepStart { step, .. } => format!("step {step}"),
        Body::StepEnd { step, cut, .. } => format!("end of {step}{}", if cut.is_some() { ", cut" } else { "" }),
        Body::UserMessage(message) => format!("user: {}", text_of(&message.content)),
        Body::AssistantMessage { message, stop, .. } => {
            let calls = message.content.iter().filter(|block| matches!(block, Block::ToolCall { .. })).count();
            format!("model: {:?}, {calls} calls, {}", text_of(&message.content), stop.as_deref().unwrap_or("no stop"))
        }
        Body::ToolCall { call_id, name, .. } => format!("call {call_id} of {name}"),
        Body::ToolResult { message, error, .. } => match &message.content[0] {
            Block::ToolResult { call_id, text, .. } => {
                format!("result {call_id}: {text}{}", error.as_ref().map(|error| format!(" [{}]", error["code"].as_str().unwrap())).unwrap_or_default())
            }
            other => panic!("{other:?}"),
        },
        Body::TurnEnd { reason, .. } => format!("turn {}", reason.error_code().unwrap_or(reason.as_str())),
        Body::CompactStart { .. } => "compaction".into(),
        Body::CompactEnd { error, .. } => format!("compacted{}", error.as_ref().map(|code| format!(": {code}")).unwrap_or_default()),
        _ => return None,
    })
}

/// A tool that does what a closure says.
pub(crate) struct Does<F> {
    name: &'static str,
    mode: ToolMode,
    repeatable: bool,
    body: F,
}

impl<F, Fut> Tool for Does<F>
where
    F: Fn(String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    fn spec(&self) -> greenroom::model::ToolSpec {
        let schema = serde_json::json!({"type": "object", "properties": {}});
        greenroom::model::ToolSpec { name: self.name.into(), description: format!("Does {}.", self.name), schema }
    }

    fn mode(&self, _: &serde_json::Value) -> ToolMode {
        self.mode
    }

    fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    fn call<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin((self.body)(call.id.to_owned()))
    }
}

pub(crate) fn does<F, Fut>(name: &'static str, body: F) -> Does<F>
where
    F: Fn(String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    Does { name, mode: ToolMode::Parallel, repeatable: false, body }
}

fn add(tools: &Tools, runtime: &Runtime, tool: impl Tool) {
    tools.add(&runtime.host(), tool).unwrap();
}

const WORLDS: [fn() -> World; 3] = [World::memory, World::sqlite, World::jsonl];

#[tokio::test]
async fn a_turn_asks_does_what_it_is_asked_for_and_asks_again_until_nothing_more_is_asked_for() {
    for world in WORLDS {
        let model = Scripted::new(|request, _| match steps(request) {
            0 => vec![
                Ok(ModelEvent::Text("Let me ".into())),
                Ok(ModelEvent::Text("look.".into())),
                call("c1", "look", "{}"),
                call("c2", "fly", ""),
                end(Stop::ToolUse),
            ],
            _ => says("It is sunny."),
        });
        let look = does("look", |_| async { Ok(ToolOutput::text("sun")) });
        let desk = Desk::open(world(), model, options(), |tools, runtime| add(tools, runtime, look)).await;
        let mut occurrences = desk.runtime.subscribe();
        desk.say("How is the weather?").await;
        let told = desk.told();
        let expected = [
            "user: How is the weather?",
            "step 1",
            "model: \"Let me look.\", 2 calls, tool_use",
            "call c1 of look",
            "call c2 of fly",
            "result c1: sun",
            "result c2: Error: there is no tool named \"fly\"; there are: look [UNKNOWN_TOOL]",
            "end of 1",
            "step 2",
            "model: \"It is sunny.\", 0 calls, end",
            "end of 2",
            "turn completed",
        ];
        // The two calls run at once: which of them is written down first is theirs.
        assert_eq!(
            told.iter().filter(|line| !line.starts_with("call ")).collect::<Vec<_>>(),
            expected.iter().filter(|line| !line.starts_with("call ")).collect::<Vec<_>>()
        );
        assert_eq!(told.iter().filter(|line| line.starts_with("call ")).count(), 2);
        let mut heard = String::new();
        let mut tools = Vec::new();
        while let Ok(occurrence) = occurrences.try_recv() {
            match occurrence {
                Occurrence::Chunk { chunk: Chunk::Text(text), .. } => heard.push_str(&text),
                Occurrence::ToolStarted { call_id, .. } => tools.push(format!("start {call_id}")),
                Occurrence::ToolEnded { call_id, is_error, .. } => tools.push(format!("end {call_id} {is_error}")),
                _ => {}
            }
        }
        assert_eq!(heard, "Let me look.It is sunny.");
        tools.sort();
        assert_eq!(tools, ["end c1 false", "end c2 true", "start c1", "start c2"]);
        let usage = desk.log().into_iter().find_map(|event| if let Body::AssistantMessage { usage, .. } = event.body { usage } else { None }).unwrap();
        assert_eq!((&usage["input"], &usage["output"]), (&10.into(), &2.into()));
    }
}

/// Whether a request begins as the one before it.
fn goes_on(before: &ModelRequest, after: &ModelRequest) -> bool {
    before.system == after.system && before.tools == after.tools && after.messages.starts_with(&before.messages)
}

#[tokio::test]
async fn every_request_of_a_session_begins_with_the_one_before_it_also_after_a_restart() {
    for world in WORLDS {
        let model = || Scripted::new(|request, _| if steps(request) == 0 { vec![call("c", "look", "{}"), end(Stop::ToolUse)] } else { says("Sunny.") });
        let look = || does("look", |_| async { Ok(ToolOutput::text("sun")) });
        let first = Desk::open(world(), model(), options().persona("You look."), |tools, runtime| add(tools, runtime, look())).await;
        first.say("one").await;
        first.say("two").await;
        let mut asked = first.model.asked();
        let world = first.world;
        world.close_after(first.runtime).await;
        let second = Desk::open(world, model(), options().persona("You look."), |tools, runtime| add(tools, runtime, look())).await;
        second.say("three").await;
        asked.extend(second.model.asked());
        assert_eq!(asked.len(), 6);
        for pair in asked.windows(2) {
            assert!(goes_on(&pair[0], &pair[1]), "{pair:#?}");
        }
        // Calls that a model names alike are told apart.
        let ids: Vec<String> = asked[5]
            .messages
            .iter()
            .flat_map(|message| &message.content)
            .filter_map(|block| if let Block::ToolCall { id, .. } = block { Some(id.clone()) } else { None })
            .collect();
        assert_eq!((ids.len(), ids.iter().collect::<std::collections::BTreeSet<_>>().len()), (3, 3), "{ids:?}");
        assert!(second.tools.names() == ["look"]);
    }
}

/// Counts how many run at once.
#[derive(Default)]
struct Together {
    now: AtomicUsize,
    most: AtomicUsize,
    order: Mutex<Vec<String>>,
}

impl Together {
    fn enter(&self, id: &str) {
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        self.order.lock().unwrap().push(format!("+{id}"));
    }

    fn leave(&self, id: &str) {
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.order.lock().unwrap().push(format!("-{id}"));
    }
}

#[tokio::test]
async fn calls_run_at_once_up_to_a_bound_exclusive_ones_alone_and_results_stand_in_the_order_of_the_calls() {
    let ids: Vec<String> = (0..8).map(|n| format!("c{n}")).collect();
    let wanted = ids.clone();
    let model = Scripted::new(move |request, _| {
        if steps(request) > 0 {
            return says("done");
        }
        let name = |n: usize| if n == 4 { "stamp" } else { "look" };
        wanted.iter().enumerate().map(|(n, id)| call(id, name(n), "{}")).chain([end(Stop::ToolUse)]).collect()
    });
    let together = Arc::new(Together::default());
    // Those of the first four end in the order 3, 2, 1, 0: each waits for the one behind it.
    let gates: Arc<BTreeMap<String, Notify>> = Arc::new(ids.iter().map(|id| (id.clone(), Notify::new())).collect());
    let mut options = options();
    options.parallel = 4;
    let (counted, opened) = (together.clone(), gates.clone());
    let look = does("look", move |id| {
        let (together, gates) = (counted.clone(), opened.clone());
        async move {
            together.enter(&id);
            let behind = format!("c{}", id[1..].parse::<usize>().unwrap() + 1);
            if ["c0", "c1", "c2"].contains(&id.as_str()) {
                gates[&behind].notified().await;
            }
            together.leave(&id);
            gates[&id].notify_one();
            Ok(ToolOutput::text(id))
        }
    });
    let counted = together.clone();
    let stamp = Does {
        mode: ToolMode::Exclusive,
        ..does("stamp", move |id| {
            let together = counted.clone();
            async move {
                together.enter(&id);
                tokio::task::yield_now().await;
                assert_eq!(together.now.load(Ordering::SeqCst), 1, "it is not alone");
                together.leave(&id);
                Ok(ToolOutput::text(id))
            }
        })
    };
    let desk = Desk::open(World::memory(), model, options, |tools, runtime| {
        add(tools, runtime, look);
        add(tools, runtime, stamp);
    })
    .await;
    desk.say("go").await;
    let results: Vec<String> = desk.told().into_iter().filter(|line| line.starts_with("result")).collect();
    assert_eq!(results, ids.iter().map(|id| format!("result {id}: {id}")).collect::<Vec<_>>());
    assert_eq!(together.most.load(Ordering::SeqCst), 4);
    let order = together.order.lock().unwrap().clone();
    let at = |what: &str| order.iter().position(|one| one == what).unwrap();
    assert!(at("-c3") < at("-c2") && at("-c2") < at("-c1") && at("-c1") < at("-c0"), "{order:?}");
    assert!((0..4).all(|n| at(&format!("-c{n}")) < at("+c4")) && (5..8).all(|n| at("-c4") < at(&format!("+c{n}"))), "{order:?}");
}

#[tokio::test]
async fn when_the_turn_is_cancelled_what_has_begun_ends_and_the_rest_is_answered_as_not_begun() {
    let model =
        Scripted::new(|request, _| if steps(request) == 0 { vec![call("c0", "look", ""), call("c1", "look", ""), end(Stop::ToolUse)] } else { says("done") });
    let (began, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, waits) = (began.clone(), goes_on.clone());
    let look = does("look", move |_| {
        let (began, goes_on) = (told.clone(), waits.clone());
        async move {
            began.notify_one();
            goes_on.notified().await;
            Ok(ToolOutput::text("seen"))
        }
    });
    let mut options = options();
    options.parallel = 1;
    let desk = Desk::open(World::memory(), model, options, |tools, runtime| add(tools, runtime, look)).await;
    let host = desk.runtime.host();
    let root = host.root(NewRoot { id: Some(sid("r")), ..NewRoot::new("talker", "a desk") }).await.unwrap();
    host.send(root.id(), "go", None).await.unwrap();
    began.notified().await;
    let interrupted = tokio::spawn({
        let (host, id) = (host.clone(), root.id().clone());
        async move { host.interrupt(&id, Duration::from_secs(60)).await }
    });
    // The tool ends when it has heard of the interrupt, or before: either way it has begun.
    tokio::task::yield_now().await;
    goes_on.notify_one();
    interrupted.await.unwrap().unwrap();
    root.quiescent().await.unwrap();
    let told: Vec<String> = desk.told();
    assert!(told.contains(&"result c0: seen".to_owned()), "{told:?}");
    assert!(
        told.contains(&"result c1: Error: tool call aborted before dispatch [ABORTED_BEFORE_DISPATCH]".to_owned())
            || told.contains(&"call c1 of look".to_owned()),
        "{told:?}"
    );
    assert_eq!(told.last().unwrap(), "turn aborted");
    assert_eq!(desk.model.asked().len(), 1, "nobody asks again");
}

#[tokio::test]
async fn a_stream_that_is_cut_off_by_a_cancel_keeps_what_had_come_and_one_that_fails_keeps_nothing() {
    let mut model = Scripted::new(|_, _| vec![Ok(ModelEvent::Text("Once upon a".into()))]);
    model.hangs = true;
    let desk = Desk::open(World::memory(), model, options(), |_, _| ()).await;
    let mut occurrences = desk.runtime.subscribe();
    let host = desk.runtime.host();
    let root = host.root(NewRoot { id: Some(sid("r")), ..NewRoot::new("talker", "a desk") }).await.unwrap();
    host.send(root.id(), "Tell me.", None).await.unwrap();
    while !matches!(occurrences.recv().await.unwrap(), Occurrence::Chunk { .. }) {}
    host.interrupt(root.id(), Duration::from_secs(60)).await.unwrap();
    root.quiescent().await.unwrap();
    assert_eq!(desk.told()[1..], ["step 1", "model: \"Once upon a\", 0 calls, cut", "end of 1, cut", "turn aborted"]);

    let desk =
        Desk::open(World::memory(), Scripted::new(|_, number| if number == 1 { fails(ModelErrorCode::Transport) } else { says("all") }), options(), |_, _| ())
            .await;
    desk.say("go").await;
    assert_eq!(desk.told()[1..], ["step 1", "model: \"all\", 0 calls, end", "end of 1", "turn completed"]);
}

#[tokio::test]
async fn an_answer_that_a_shutdown_cuts_off_begins_anew_when_the_message_is_served_again() {
    for world in WORLDS {
        let mut model = Scripted::new(|_, _| vec![Ok(ModelEvent::Text("Once upon a".into()))]);
        model.hangs = true;
        let desk = Desk::open(world(), model, options(), |_, _| ()).await;
        let mut occurrences = desk.runtime.subscribe();
        let host = desk.runtime.host();
        let root = host.root(NewRoot { id: Some(sid("r")), ..NewRoot::new("talker", "a desk") }).await.unwrap();
        host.send(root.id(), "Tell me.", None).await.unwrap();
        while !matches!(occurrences.recv().await.unwrap(), Occurrence::Chunk { .. }) {}
        drop((root, host, occurrences));
        let Desk { world, runtime, .. } = desk;
        world.close_after(runtime).await;
        let desk = Desk::open(world, Scripted::new(|_, _| says("The end.")), options(), |_, _| ()).await;
        let root = desk.runtime.resume(&sid("r")).await.unwrap();
        root.quiescent().await.unwrap();
        let asked = desk.model.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].messages.iter().map(|message| text_of(&message.content)).collect::<Vec<_>>(), ["Tell me."]);
        assert_eq!(desk.ends(), [TurnEnd::Disposed, TurnEnd::Completed]);
    }
}

#[tokio::test]
async fn what_may_pass_is_asked_again_twice_and_what_may_not_is_the_end_of_the_turn_and_not_of_the_agent() {
    for (code, asked) in [
        (ModelErrorCode::EmptyResponse, 3),
        (ModelErrorCode::RateLimit, 3),
        (ModelErrorCode::Server, 3),
        (ModelErrorCode::Timeout, 3),
        (ModelErrorCode::Transport, 3),
        (ModelErrorCode::Auth, 1),
        (ModelErrorCode::BadRequest, 1),
        (ModelErrorCode::Content, 1),
    ] {
        let desk =
            Desk::open(World::memory(), Scripted::new(move |_, number| if number <= asked { fails(code) } else { says("well") }), options(), |_, _| ()).await;
        desk.say("one").await;
        assert_eq!(desk.model.asked().len(), asked, "{code:?}");
        desk.say("two").await;
        let ends: Vec<String> = desk.ends().iter().map(|end| end.error_code().unwrap_or(end.as_str()).to_owned()).collect();
        assert_eq!(ends, [ModelError::new(code, "").code().to_owned(), "completed".into()]);
        assert!(!desk.told().iter().any(|line| line.contains("half")), "what failed is on nobody's surface");
    }
    // Nothing at all is an answer that is asked for again.
    let desk =
        Desk::open(World::memory(), Scripted::new(|_, number| if number == 1 { vec![end(Stop::End)] } else { says("well") }), options(), |_, _| ()).await;
    desk.say("one").await;
    assert_eq!((desk.model.asked().len(), desk.ends()), (2, vec![TurnEnd::Completed]));
}

#[tokio::test]
async fn a_cancel_is_stronger_than_a_wait_before_the_model_is_asked_again() {
    let mut options = options();
    options.retry = RetryPolicy { first: Duration::from_secs(3_600), cap: Duration::from_secs(3_600), ..RetryPolicy::default() };
    let asked = Arc::new(Notify::new());
    let tells = asked.clone();
    let model = Scripted::new(move |_, _| {
        tells.notify_one();
        fails(ModelErrorCode::Server)
    });
    let desk = Desk::open(World::memory(), model, options, |_, _| ()).await;
    let host = desk.runtime.host();
    let root = host.root(NewRoot { id: Some(sid("r")), ..NewRoot::new("talker", "a desk") }).await.unwrap();
    host.send(root.id(), "go", None).await.unwrap();
    asked.notified().await;
    host.interrupt(root.id(), Duration::from_secs(60)).await.unwrap();
    root.quiescent().await.unwrap();
    assert_eq!((desk.ends().len(), desk.ends()[0].as_str(), desk.model.asked().len()), (1, "aborted", 1));
}

#[tokio::test]
async fn who_runs_out_of_tokens_once_has_run_out_for_the_turn_and_not_for_the_next() {
    let model = Scripted::new(|_, number| match number {
        1 => vec![Ok(ModelEvent::Text("I was about to".into())), call("c", "look", "{\"at\": \"the"), end(Stop::MaxTokens)],
        2 => vec![end(Stop::MaxTokens)],
        _ => says("well"),
    });
    let desk =
        Desk::open(World::memory(), model, options(), |tools, runtime| add(tools, runtime, does("look", |_| async { panic!("a truncated call is not run") })))
            .await;
    for text in ["one", "two", "three"] {
        desk.say(text).await;
    }
    assert_eq!(desk.ends(), [TurnEnd::MaxTokens, TurnEnd::MaxTokens, TurnEnd::Completed]);
    let answers: Vec<String> = desk.told().into_iter().filter(|line| line.starts_with("model")).collect();
    assert_eq!(answers, ["model: \"I was about to\", 0 calls, max_tokens", "model: \"\", 0 calls, max_tokens", "model: \"well\", 0 calls, end"]);
}

#[tokio::test]
async fn a_turn_ends_where_a_tool_concludes_it_where_its_steps_are_used_up_where_the_model_declines_and_where_there_is_none() {
    let asks = || Scripted::new(|_, number| vec![call(&format!("c{number}"), "look", "{}"), end(Stop::ToolUse)]);
    let look =
        |concludes: bool| does("look", move |_| async move { Ok(if concludes { ToolOutput::text("seen").concluding() } else { ToolOutput::text("seen") }) });
    let desk = Desk::open(World::memory(), asks(), options(), |tools, runtime| add(tools, runtime, look(true))).await;
    desk.say("go").await;
    assert_eq!((desk.ends(), desk.model.asked().len()), (vec![TurnEnd::Completed], 1));

    let mut few = options();
    few.max_steps = 3;
    let desk = Desk::open(World::memory(), asks(), few, |tools, runtime| add(tools, runtime, look(false))).await;
    desk.say("go").await;
    assert_eq!((desk.ends()[0].error_code(), desk.model.asked().len()), (Some("MAX_STEPS"), 3));

    let desk = Desk::open(World::memory(), Scripted::new(|_, _| vec![Ok(ModelEvent::Text("No.".into())), end(Stop::Refusal)]), options(), |_, _| ()).await;
    desk.say("go").await;
    assert_eq!(desk.ends()[0].error_code(), Some("MODEL_REFUSED"));

    let mut nobody = options();
    nobody.route = None;
    let desk = Desk::open(World::memory(), asks(), nobody, |_, _| ()).await;
    desk.say("go").await;
    assert_eq!((desk.ends()[0].error_code(), desk.model.asked().len()), (Some("MODEL_MISSING"), 0));
}

#[tokio::test]
async fn what_is_said_to_an_agent_that_works_is_heard_in_its_next_step() {
    let model = Scripted::new(|request, _| match steps(request) {
        0 if request.messages.len() == 1 => vec![call("c", "look", "{}"), end(Stop::ToolUse)],
        _ => says("heard"),
    });
    let host_slot: Arc<Mutex<Option<(Host, SessionId)>>> = Arc::default();
    let slot = host_slot.clone();
    let look = does("look", move |_| {
        let slot = slot.clone();
        async move {
            let (host, id) = slot.lock().unwrap().clone().unwrap();
            host.steer(&id, "Hurry.", Some(mid("hurry"))).await.unwrap();
            Ok(ToolOutput::text("seen"))
        }
    });
    let desk = Desk::open(World::memory(), model, options(), |tools, runtime| add(tools, runtime, look)).await;
    *host_slot.lock().unwrap() = Some((desk.runtime.host(), sid("r")));
    desk.say("go").await;
    let told = desk.told();
    let at = |what: &str| told.iter().position(|line| line == what).unwrap_or_else(|| panic!("{what}: {told:?}"));
    assert!(at("result c: seen") < at("user: Hurry.") && at("user: Hurry.") < at("model: \"heard\", 0 calls, end"));
    assert_eq!(desk.ends(), [TurnEnd::Completed], "one turn");
    drop(host_slot.lock().unwrap().take());
}

#[tokio::test]
async fn a_window_that_fills_is_compacted_and_the_agent_goes_on_with_the_summary() {
    let size = |request: &ModelRequest| request.messages.iter().flat_map(|message| &message.content).map(Block::len).sum::<usize>();
    let model = Scripted::new(move |request, _| {
        let last = text_of(&request.messages.last().unwrap().content);
        let text = if last.starts_with("Summarize the conversation") { "They asked for long stories.".to_owned() } else { "a long story ".repeat(40) };
        // Counted as most providers count English: four bytes a token.
        let usage = Usage { input: size(request) as u64 / 4, output: text.len() as u64 / 4, ..Usage::default() };
        vec![Ok(ModelEvent::Text(text)), Ok(ModelEvent::End { stop: Stop::End, usage })]
    });
    let mut options = options();
    options.window = Some(1_000);
    let desk = Desk::open(World::sqlite(), model, options, |_, _| ()).await;
    let mut occurrences = desk.runtime.subscribe();
    for n in 0..12 {
        desk.say(&format!("story {n}, {}", "please ".repeat(20))).await;
    }
    let told = desk.told();
    assert!(told.iter().filter(|line| *line == "compacted").count() >= 1, "{told:?}");
    assert!(desk.ends().iter().all(|end| *end == TurnEnd::Completed));
    let asked = desk.model.asked();
    let last = asked.last().unwrap();
    assert!(text_of(&last.messages[0].content).starts_with("Summary of the conversation so far:\nThey asked"), "{last:?}");
    assert!(size(last) < 8_000, "{}", size(last));
    // A summary is nobody's answer.
    while let Ok(occurrence) = occurrences.try_recv() {
        assert!(!matches!(&occurrence, Occurrence::Chunk { chunk: Chunk::Text(text), .. } if text.contains("They asked")), "{occurrence:?}");
    }
    // Without a window the model says itself when it is full; a summary that is no shorter is none.
    let model = Scripted::new(|request, number| match number {
        1..=4 => says(&"word ".repeat(50)),
        5 => vec![Err(ModelError::new(ModelErrorCode::ContextFull, "too long"))],
        _ if text_of(&request.messages.last().unwrap().content).starts_with("Summarize") => says("words"),
        _ => says("well"),
    });
    let desk = Desk::open(World::memory(), model, self::options(), |_, _| ()).await;
    for n in 0..5 {
        desk.say(&format!("{n}")).await;
    }
    assert!(desk.told().contains(&"compacted".to_owned()), "{:?}", desk.told());
    assert_eq!(desk.ends().last(), Some(&TurnEnd::Completed));
}

const STORE: &str = "GREENROOM_TEST_TALK";
const MOMENT: &str = "GREENROOM_TEST_TALK_MOMENT";

/// A family of model agents: the first looks at something, delegates, sends, looks again and answers; its child reports. What each has done to the world stands in a file.
fn family(side: &Path) -> (Scripted, impl Fn(&Tools, &Runtime) + use<>) {
    let model = Scripted::new(|request, _| {
        if request.system.as_deref() == Some("child") {
            return match steps(request) {
                0 => vec![call("r", "report", "{\"output\": \"found\"}"), end(Stop::ToolUse)],
                _ => says("reported"),
            };
        }
        let blocks = || request.messages.iter().flat_map(|message| &message.content);
        let asked = |id: &str| blocks().any(|block| matches!(block, Block::ToolCall { id: known, .. } if known == id));
        let child = blocks().find_map(|block| match block {
            Block::ToolResult { text, .. } => text.strip_prefix("started subagent ").map(str::to_owned),
            _ => None,
        });
        let delegates = "{\"description\": \"finds things\", \"prompt\": \"find\", \"run_in_background\": true}";
        match child {
            _ if !asked("l1") => vec![call("l1", "look", "{}"), call("p1", "ping", "{}"), end(Stop::ToolUse)],
            _ if !asked("d1") => vec![call("d1", "subagent", delegates), end(Stop::ToolUse)],
            Some(child) if !asked("s1") => {
                vec![call("s1", "send_message", &format!("{{\"subagent_id\": {child:?}, \"message\": \"more\"}}")), end(Stop::ToolUse)]
            }
            _ if !asked("l2") => vec![call("l2", "look", "{}"), end(Stop::ToolUse)],
            _ => says("well done"),
        }
    });
    let side = side.to_owned();
    let note = move |name: &'static str| {
        let side = side.clone();
        move |id: String| {
            let side = side.clone();
            async move {
                use std::io::Write as _;
                let mut file = std::fs::OpenOptions::new().append(true).create(true).open(side).unwrap();
                writeln!(file, "{name} {id}").unwrap();
                Ok(ToolOutput::text(format!("{name} is well")))
            }
        }
    };
    let tools = move |tools: &Tools, runtime: &Runtime| {
        let background = SubagentConfig { agent: Some("child".into()), mode: Mode::Continuable, ..SubagentConfig::default() };
        add(tools, runtime, does("look", note("look")));
        add(tools, runtime, Does { repeatable: true, ..does("ping", note("ping")) });
        add(tools, runtime, SubagentTool::new(background));
        add(tools, runtime, SendMessageTool::new());
        add(tools, runtime, ReportTool::new());
    };
    (model, tools)
}

async fn go_on(store: Arc<dyn Store>, side: &Path) {
    let (model, load) = family(side);
    let tools = Tools::default();
    let agent = |persona: Option<&str>| {
        let mut options = options();
        options.persona = persona.map(str::to_owned);
        ModelAgent::new(Arc::new(model.clone()), tools.clone(), options)
    };
    let (talker, child) = (agent(None), agent(Some("child")));
    let runtime = World::builder().behavior("talker", move || talker.clone()).behavior("child", move || child.clone()).start(store).await.unwrap();
    load(&tools, &runtime);
    let host = runtime.host();
    let root = host.root(NewRoot { id: Some(sid("r")), ..NewRoot::new("talker", "a desk") }).await.unwrap();
    host.send(root.id(), "go", Some(mid("go"))).await.unwrap();
    host.recover(None).await.unwrap();
    assert_eq!(root.quiescent().await.unwrap(), []);
    drop(root);
    runtime.shutdown().await;
}

/// The process that is killed: run by the tests below, and by nobody else.
#[tokio::test]
#[ignore = "the other process of other tests"]
async fn a_process_whose_models_talk_and_that_may_be_killed() {
    let (Ok(path), Ok(moment)) = (std::env::var(STORE), std::env::var(MOMENT)) else { return };
    let path = Path::new(&path);
    let store: Arc<dyn Store> = if path.is_dir() { Arc::new(JsonlStore::open(path).unwrap()) } else { Arc::new(SqliteStore::open_existing(path).unwrap()) };
    let watch = Watch::default();
    let left = AtomicUsize::new(moment.parse().unwrap());
    watch.around_commits(move || {
        if left.fetch_sub(1, Ordering::AcqRel) == 1 {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    });
    go_on(Arc::new(WatchedStore { store, watch }), &path.with_extension("side")).await;
}

fn is_killed_at(world: &World, moment: usize) -> bool {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "talking::a_process_whose_models_talk_and_that_may_be_killed", "--ignored", "--nocapture"]);
    let output = process.env(STORE, world.path()).env(MOMENT, moment.to_string()).output().unwrap();
    assert!(output.status.success() || output.status.signal() == Some(9), "{output:?}");
    output.status.signal().is_some()
}

async fn a_talk_that_is_cut_off_anywhere_goes_on_from_its_last_durable_step(kind: fn() -> World, stride: usize) {
    let (mut killed, mut unknown) = (0, 0);
    for moment in (1..).step_by(stride) {
        let world = kind();
        drop(world.plain());
        world.close();
        let side = world.path().with_extension("side");
        let was_killed = is_killed_at(&world, moment);
        // The process that goes on does not get to the end either.
        let second = 1 + moment * 5 % 19;
        killed += usize::from(was_killed) + usize::from(was_killed && is_killed_at(&world, second));
        go_on(world.store(), &side).await;
        let when = format!("killed at {moment} and {second}");
        let done = std::fs::read_to_string(&side).unwrap();
        let times = |what: &str| done.lines().filter(|line| *line == what).count();
        assert!(times("look l1") <= 1 && times("look l2") <= 1, "{when}: a tool that must not run twice did: {done}");
        assert!(times("ping p1") >= 1, "{when}: a tool that may run twice did not run: {done}");
        let log = events(&world, "r");
        let told: Vec<String> = log.iter().filter_map(|event| told(&event.body)).collect();
        assert_eq!(told.iter().filter(|line| line.starts_with("model") && line.contains(" 1 calls")).count(), 3, "{when}: {told:#?}");
        assert_eq!(told.iter().filter(|line| line.starts_with("model") && line.contains(" 2 calls")).count(), 1, "{when}: {told:#?}");
        // Nobody is asked again who has answered already.
        let spoken: Vec<bool> = told
            .iter()
            .filter(|line| ["model", "user", "result"].iter().any(|kind| line.starts_with(kind)))
            .map(|line| line.starts_with("model") && line.ends_with(" 0 calls, end"))
            .collect();
        assert!(!spoken.windows(2).any(|pair| pair == [true, true]), "{when}: {told:#?}");
        // What stands for each call in the end: a result, or for a tool that must not run twice that nobody knows.
        let folded = world.reader().folded(&sid("r")).unwrap();
        for message in folded.surface().messages() {
            for block in &message.content {
                let Block::ToolResult { call_id, text, is_error } = block else { continue };
                let looked = call_id.starts_with('l');
                unknown += usize::from(looked && *is_error);
                assert!(!is_error || (looked && text.contains("is unknown")), "{when}: {call_id}: {text}");
            }
        }
        assert_eq!(folded.last_said().map(|said| text_of(&said.content)).as_deref(), Some("well done"), "{when}");
        let children = world.reader().children(Some(&sid("r")), None, 9).unwrap();
        let [child] = &*children else { panic!("{when}: {children:?}") };
        let served: Vec<String> =
            events(&world, child.id.as_str()).iter().filter_map(|event| self::told(&event.body)).filter(|line| line.starts_with("user")).collect();
        assert_eq!(served, ["user: find", "user: more"], "{when}");
        let reports = told.iter().filter(|line| *line == "user: found").count();
        assert_eq!(reports, 2, "{when}: {told:#?}");
        sound(&world);
        if !was_killed {
            break;
        }
    }
    assert!(killed > 10 && unknown > 0, "{killed}, {unknown}");
}

#[tokio::test]
async fn a_talk_that_is_cut_off_anywhere_goes_on_from_its_last_durable_step_in_a_database() {
    a_talk_that_is_cut_off_anywhere_goes_on_from_its_last_durable_step(World::sqlite, 5).await;
}

#[tokio::test]
async fn a_talk_that_is_cut_off_anywhere_goes_on_from_its_last_durable_step_in_a_folder() {
    a_talk_that_is_cut_off_anywhere_goes_on_from_its_last_durable_step(World::jsonl, 7).await;
}
