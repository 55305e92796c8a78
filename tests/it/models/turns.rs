//! Whole turns of a model agent whose model is at the other end of a wire.

use std::{sync::Arc, time::Duration};

use greenroom::{
    RootHandle, Runtime,
    actors::{Occurrence, occurrence::Chunk},
    model::{Api, ModelAgent, ModelOptions, RetryPolicy},
    session::{
        descriptor::ModelRoute,
        event::{Body, Role, SurfaceMessage, TurnEnd},
        message::{Block, text_of},
    },
    tool::{ListAgentsTool, Tools, function},
};
use serde_json::{Value, json};

use super::{
    model,
    server::{Reply, Server},
    wire::{anthropic_block, anthropic_call, anthropic_end, anthropic_start, anthropic_text, gemini, ollama, openai, openai_call, openai_end},
};

/// An answer that thinks, says something and asks for two tools, of which the second fails.
fn asks(api: Api, number: u64) -> Vec<String> {
    let ids = [format!("a{number}"), format!("b{number}")];
    match api {
        Api::OpenAi => {
            let mut frames = vec![openai(json!({"reasoning_content": "Hm."}), None), openai(json!({"content": "Let me look."}), None)];
            frames.extend([openai_call(0, Some((&ids[0], "list_agents")), "{}"), openai_call(1, Some((&ids[1], "noon")), "{\"city\":7}")]);
            frames.into_iter().chain(openai_end("tool_calls")).collect()
        }
        Api::Anthropic => {
            let thinks = [json!({"type": "thinking_delta", "thinking": "Hm."}), json!({"type": "signature_delta", "signature": "sig"})];
            let thinks = anthropic_block(0, &json!({"type": "thinking", "thinking": "", "signature": ""}), &thinks);
            let calls = [anthropic_call(2, &ids[0], "list_agents", &[]), anthropic_call(3, &ids[1], "noon", &["{\"city\"", ":7}"])].concat();
            [vec![anthropic_start()], thinks, anthropic_text(1, &["Let me ", "look."]), calls, anthropic_end("tool_use")].concat()
        }
        // Each answer of Gemini's counts its calls anew.
        Api::Gemini => {
            let calls = json!([{"functionCall": {"name": "list_agents", "args": {}}, "thoughtSignature": "sig"}, {"functionCall": {"name": "noon", "args": {"city": 7}}}]);
            vec![gemini(json!([{"text": "Hm.", "thought": true}]), None), gemini(json!([{"text": "Let me look."}]), None), gemini(calls, Some("STOP"))]
        }
        _ => {
            let calls = json!([
                {"id": "a", "function": {"name": "list_agents", "arguments": {}}},
                {"id": "b", "function": {"name": "noon", "arguments": {"city": 7}}},
            ]);
            vec![
                ollama(json!({"thinking": "Hm.", "content": ""}), None),
                ollama(json!({"content": "Let me look.", "tool_calls": calls}), None),
                ollama(json!({"content": ""}), Some("stop")),
            ]
        }
    }
}

fn says(api: Api, text: &str) -> Vec<String> {
    match api {
        Api::OpenAi => [openai(json!({"content": text}), None)].into_iter().chain(openai_end("stop")).collect(),
        Api::Anthropic => [vec![anthropic_start()], anthropic_text(0, &[text]), anthropic_end("end_turn")].concat(),
        Api::Gemini => vec![gemini(json!([{"text": text}]), Some("STOP"))],
        _ => vec![ollama(json!({"content": text}), None), ollama(json!({"content": ""}), Some("stop"))],
    }
}

struct Desk {
    runtime: Runtime,
    root: RootHandle,
    server: Server,
}

impl Desk {
    async fn open(api: Api, retry: RetryPolicy, replies: impl IntoIterator<Item = Reply>) -> Self {
        let server = Server::start(replies).await;
        let mut options = ModelOptions::new("small").persona("You are brief.");
        options.route = Some(ModelRoute { provider: Some("desk".into()), name: "small".into() });
        options.retry = retry;
        let tools = Tools::default();
        let agent = ModelAgent::new(Arc::new(model(api, &server)), tools.clone(), options);
        let runtime = Runtime::builder().behavior("desk", move || agent.clone()).open("memory:").await.unwrap();
        tools.add(&runtime.host(), ListAgentsTool::new()).unwrap();
        tools.add(&runtime.host(), function("noon", "Tells the hour.", |noon: Noon, _| async move { Ok(format!("12 in {}", noon.city)) })).unwrap();
        let root = runtime.root("desk", "a desk").await.unwrap();
        Self { runtime, root, server }
    }

    async fn say(&self, text: &str) {
        self.root.send(text).await.unwrap();
        self.root.quiescent().await.unwrap();
    }

    async fn log(&self) -> Vec<Body> {
        self.runtime.read_events(self.root.id()).await.unwrap().into_iter().map(|event| event.body).collect()
    }

    async fn ends(&self) -> Vec<TurnEnd> {
        self.log().await.into_iter().filter_map(|body| if let Body::TurnEnd { reason, .. } = body { Some(reason) } else { None }).collect()
    }

    /// The model's messages, each with why it ended.
    async fn answers(&self) -> Vec<(SurfaceMessage, Option<String>)> {
        self.log()
            .await
            .into_iter()
            .filter_map(|body| if let Body::AssistantMessage { message, stop, .. } = body { Some((message, stop)) } else { None })
            .collect()
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Noon {
    city: String,
}

fn at_once() -> RetryPolicy {
    RetryPolicy { first: Duration::ZERO, cap: Duration::ZERO, ..RetryPolicy::default() }
}

#[tokio::test]
async fn a_turn_over_the_wire_asks_does_what_it_is_asked_for_and_answers() {
    for api in Api::ALL {
        let desk = Desk::open(api, at_once(), [asks(api, 1), asks(api, 2), says(api, "Nobody.")].map(Reply::frames)).await;
        let mut occurrences = desk.runtime.subscribe();
        desk.say("Who is there?").await;
        assert_eq!(desk.ends().await, [TurnEnd::Completed], "{api}");
        assert_eq!(desk.runtime.last_answer(desk.root.id()).await.unwrap().as_deref(), Some("Nobody."));

        // What is heard as it comes is what is written down.
        let (mut text, mut thoughts) = (String::new(), String::new());
        while let Ok(occurrence) = occurrences.try_recv() {
            match occurrence {
                Occurrence::Chunk { chunk: Chunk::Text(more), .. } => text.push_str(&more),
                Occurrence::Chunk { chunk: Chunk::Reasoning(more), .. } => thoughts.push_str(&more),
                _ => {}
            }
        }
        assert_eq!((text.as_str(), thoughts.as_str()), ("Let me look.Let me look.Nobody.", "Hm.Hm."), "{api}");

        // Each call has an id of its own, also where the provider counts anew, and its result stands under it.
        let answers = desk.answers().await;
        let calls: Vec<(String, String)> = answers
            .iter()
            .flat_map(|(message, _)| &message.content)
            .filter_map(|block| if let Block::ToolCall { id, name, .. } = block { Some((id.clone(), name.clone())) } else { None })
            .collect();
        let ids: std::collections::BTreeSet<&str> = calls.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!((calls.len(), ids.len()), (4, 4), "{api} {calls:?}");
        let results: Vec<(String, bool, String)> = desk
            .log()
            .await
            .iter()
            .filter_map(|body| match body {
                Body::ToolResult { message, .. } => message.content.first(),
                _ => None,
            })
            .map(|block| match block {
                Block::ToolResult { call_id, text, is_error } => (call_id.clone(), *is_error, text.clone()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(results.iter().map(|(id, ..)| id).collect::<Vec<_>>(), calls.iter().map(|(id, _)| id).collect::<Vec<_>>(), "{api}");
        assert!(results.iter().step_by(2).all(|(_, is_error, text)| !is_error && text == "(no subagents)"), "{api} {results:?}");
        assert!(results.iter().skip(1).step_by(2).all(|(_, is_error, text)| *is_error && text.starts_with("Error: ")), "{api} {results:?}");

        // What was thought, asked for and found out goes back.
        let received = desk.server.received();
        assert_eq!(received.len(), 3, "{api}");
        let last = &received[2].text;
        assert_eq!(last.matches("(no subagents)").count(), 2, "{api} {last}");
        assert_eq!(last.matches("Error: ").count(), 2, "{api} {last}");
        let signed = if matches!(api, Api::Anthropic | Api::Gemini) { 2 } else { 0 };
        assert_eq!(last.matches("\"sig\"").count(), signed, "{api} {last}");
        let field = if api == Api::Gemini { "contents" } else { "messages" };
        let messages: Vec<Value> = received.iter().map(|received| received.body()[field].clone()).collect();
        let counts: Vec<usize> = messages.iter().map(|messages| messages.as_array().unwrap().len()).collect();
        let begin = counts[0];
        let (results, system) = if matches!(api, Api::OpenAi | Api::Ollama) { (2, 2) } else { (1, 1) };
        assert_eq!((begin, counts[1] - begin, counts[2] - counts[1]), (system, 1 + results, 1 + results), "{api}");
        desk.runtime.shutdown().await;
    }
}

#[tokio::test]
async fn what_anthropic_thought_goes_back_with_its_signature_before_the_calls() {
    let api = Api::Anthropic;
    let desk = Desk::open(api, at_once(), [asks(api, 1), says(api, "Nobody.")].map(Reply::frames)).await;
    desk.say("Who is there?").await;
    let content = &desk.server.received()[1].body()["messages"][1]["content"];
    let expected = json!([
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "a1", "name": "list_agents", "input": {}},
        {"type": "tool_use", "id": "b1", "name": "noon", "input": {"city": 7}},
    ]);
    assert_eq!(*content, expected);
}

#[tokio::test]
async fn a_provider_that_asks_to_be_left_alone_is_asked_again_after_that_time() {
    for api in Api::ALL {
        // Whoever does not look at the header waits for an hour.
        let hour = Duration::from_secs(3_600);
        let retry = RetryPolicy { first: hour, cap: hour, ..RetryPolicy::default() };
        let busy = || Reply::error(429, "slow down").header("retry-after-ms", "1");
        let desk = Desk::open(api, retry, [busy(), busy(), Reply::frames(says(api, "Nobody."))]).await;
        desk.say("Who is there?").await;
        assert_eq!(desk.ends().await, [TurnEnd::Completed], "{api}");
        let received = desk.server.received();
        assert!(received.len() == 3 && received.iter().all(|one| one.text == received[0].text), "{api}: the same request each time");
        assert_eq!(desk.answers().await.len(), 1, "{api}");
    }
}

#[tokio::test]
async fn of_an_answer_that_breaks_off_nothing_is_kept_and_it_is_asked_for_again() {
    for api in Api::ALL {
        let half = |frames: Vec<String>| frames[..frames.len() - 1].to_vec();
        let mut begun = says(api, "Nobo").concat();
        begun.truncate(begun.len() / 2);
        let replies = [
            Reply::frames(half(asks(api, 1))).then_drops(),
            Reply::frames(half(asks(api, 1))),
            Reply::frames(asks(api, 1)),
            Reply::frames([begun]).split(7).then_drops(),
            Reply::frames(says(api, "Nobody.")),
        ];
        let desk = Desk::open(api, at_once(), replies).await;
        desk.say("Who is there?").await;
        assert_eq!(desk.ends().await, [TurnEnd::Completed], "{api}");
        let answers = desk.answers().await;
        let said: Vec<(String, usize)> = answers
            .iter()
            .map(|(message, _)| (text_of(&message.content), message.content.iter().filter(|block| matches!(block, Block::ToolCall { .. })).count()))
            .collect();
        assert_eq!(said, [("Let me look.".into(), 2), ("Nobody.".into(), 0)], "{api}");
        assert_eq!(desk.server.received().len(), 5, "{api}");
        assert!(answers.iter().all(|(message, _)| message.role == Role::Assistant));
    }
}

#[tokio::test]
async fn what_no_repetition_mends_ends_the_turn_and_the_next_message_is_served() {
    for api in Api::ALL {
        let desk = Desk::open(api, at_once(), [Reply::error(401, "wrong key"), Reply::frames(says(api, "Here."))]).await;
        desk.say("one").await;
        desk.say("two").await;
        let ends: Vec<String> = desk.ends().await.iter().map(|end| end.error_code().unwrap_or(end.as_str()).to_owned()).collect();
        assert_eq!(ends, ["MODEL_AUTH", "completed"], "{api}");
    }
}

#[tokio::test]
async fn a_turn_that_is_interrupted_closes_the_connection_and_keeps_what_had_come() {
    let begun = || Reply::frames([openai(json!({"content": "Once upon a"}), None)]).then_hangs();
    let desk = Desk::open(Api::OpenAi, at_once(), [begun()]).await;
    let mut occurrences = desk.runtime.subscribe();
    desk.root.send("Tell me.").await.unwrap();
    while !matches!(occurrences.recv().await.unwrap(), Occurrence::Chunk { .. }) {}
    desk.runtime.interrupt(desk.root.id(), Duration::from_secs(60)).await.unwrap();
    desk.server.closed(1).await;
    desk.root.quiescent().await.unwrap();
    let answers = desk.answers().await;
    assert_eq!((text_of(&answers[0].0.content).as_str(), answers[0].1.as_deref(), answers.len()), ("Once upon a", Some("cut"), 1));
    assert_eq!(desk.ends().await.len(), 1);
}
