//! The agent in this process, over a pair of streams, where a behaviour can be what a test needs: one that streams, calls tools, or refuses.

use std::sync::Arc;

use greenroom::{
    Delegate, Runtime, Turn, TurnEnd, TurnError,
    acp::{Options, serve},
    actors::{
        occurrence::Chunk,
        turn::{CallResult, Spoken},
    },
    session::message::Block,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex, split},
    sync::Semaphore,
    task::JoinHandle,
};

use super::client::{prompt, said};

/// A client of an agent in this process.
struct Near {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    requests: WriteHalf<DuplexStream>,
    next: u64,
    served: JoinHandle<Runtime>,
}

impl Near {
    async fn start(runtime: Runtime, root: &str) -> Self {
        let (here, there) = duplex(1024);
        let options = Options::new(root);
        let served = tokio::spawn(async move {
            let (reader, writer) = split(there);
            serve(&runtime, options, reader, writer).await.unwrap();
            runtime
        });
        let (lines, requests) = split(here);
        let mut near = Self { lines: BufReader::new(lines).lines(), requests, next: 0, served };
        near.ask("initialize", json!({"protocolVersion": 1})).await.1.unwrap();
        near
    }

    async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let line = format!("{}\n", json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        self.requests.write_all(line.as_bytes()).await.unwrap();
        self.next
    }

    async fn answer(&mut self, id: u64) -> (Vec<Value>, Result<Value, Value>) {
        let mut updates = Vec::new();
        loop {
            let line: Value = serde_json::from_str(&self.lines.next_line().await.unwrap().expect("the end came first")).unwrap();
            if line["id"] == id {
                return (updates, if line["error"].is_null() { Ok(line["result"].clone()) } else { Err(line["error"].clone()) });
            }
            updates.push(line["params"]["update"].clone());
        }
    }

    async fn update(&mut self) -> Value {
        let line: Value = serde_json::from_str(&self.lines.next_line().await.unwrap().expect("the end came first")).unwrap();
        line["params"]["update"].clone()
    }

    async fn ask(&mut self, method: &str, params: Value) -> (Vec<Value>, Result<Value, Value>) {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    async fn new_session(&mut self) -> String {
        self.ask("session/new", json!({"cwd": "/desk", "mcpServers": []})).await.1.unwrap()["sessionId"].as_str().unwrap().to_owned()
    }

    async fn prompt(&mut self, session: &str, text: &str) -> (Vec<Value>, Result<Value, Value>) {
        self.ask("session/prompt", prompt(session, text)).await
    }

    async fn end(self) {
        drop((self.requests, self.lines));
        self.served.await.unwrap().shutdown().await;
    }
}

fn thought(updates: &[Value]) -> String {
    let thoughts = updates.iter().filter(|update| update["sessionUpdate"] == "agent_thought_chunk");
    thoughts.map(|update| update["content"]["text"].as_str().unwrap()).collect()
}

/// Says in parts what it was told, as a model does that streams; thinks first, if there is something before a `|`.
async fn stream(turn: Turn, parts: usize, read: &Semaphore) -> Result<TurnEnd, TurnError> {
    turn.step().await?;
    let text = turn.text();
    let (reasoning, text) = text.split_once('|').unwrap_or(("", &text));
    let mut content = Vec::new();
    if !reasoning.is_empty() {
        turn.chunk(Chunk::Reasoning(reasoning.into()));
        content.push(Block::reasoning(reasoning));
    }
    let mut whole = String::new();
    for number in 0..parts {
        let part = format!("{text} {number}; ");
        turn.chunk(Chunk::Text(part.as_str().into()));
        whole.push_str(&part);
    }
    // Whoever reads at once has all of it before the log has any.
    read.acquire().await.unwrap().forget();
    content.push(Block::text(whole));
    turn.answered(Spoken::new("local", "small", content).stop("end")).await?;
    Ok(TurnEnd::Completed)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_model_says_comes_part_by_part_and_never_twice() {
    let read = Arc::new(Semaphore::new(0));
    let gate = read.clone();
    let runtime = Runtime::builder().closure("editor", move |turn: Turn| {
        let gate = gate.clone();
        async move { stream(turn, 3, &gate).await }
    });
    let mut near = Near::start(runtime.open("memory:").await.unwrap(), "editor").await;
    let session = near.new_session().await;
    for (text, thoughts) in [("hm|a", "hm"), ("b", "")] {
        let id = near.send("session/prompt", prompt(&session, text)).await;
        let mut updates = Vec::new();
        while said(&updates).len() < 3 {
            updates.push(near.update().await);
        }
        read.add_permits(1);
        let (rest, stopped) = near.answer(id).await;
        let name = text.rsplit('|').next().unwrap();
        assert_eq!(said(&updates), [0, 1, 2].map(|number| format!("{name} {number}; ")));
        assert_eq!((thought(&updates), stopped.unwrap()), (thoughts.to_owned(), json!({"stopReason": "end_turn"})));
        assert_eq!(rest, Vec::<Value>::new());
    }
    let (told, _) = near.ask("session/load", json!({"sessionId": session, "cwd": "/", "mcpServers": []})).await;
    assert_eq!(said(&told), ["a 0; a 1; a 2; ", "b 0; b 1; b 2; "], "a transcript has whole answers");
    let id = near.send("session/prompt", prompt(&session, "c")).await;
    assert_eq!(near.update().await["content"]["text"], "c 0; ", "and what follows comes part by part again");
    read.add_permits(1);
    near.answer(id).await.1.unwrap();
    near.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_late_gets_every_byte_once_and_the_agent_does_not_wait_for_it() {
    const PARTS: usize = 50_000;
    let (done, finished) = tokio::sync::mpsc::unbounded_channel();
    let builder = Runtime::builder().closure("editor", move |turn: Turn| {
        let done = done.clone();
        async move {
            let end = stream(turn, PARTS, &Semaphore::new(1)).await;
            done.send(()).unwrap();
            end
        }
    });
    let mut finished = finished;
    let mut near = Near::start(builder.open("memory:").await.unwrap(), "editor").await;
    let session = near.new_session().await;
    let id = near.send("session/prompt", prompt(&session, "a")).await;
    // The turn comes to its end although nobody reads.
    finished.recv().await.unwrap();
    let (updates, stopped) = near.answer(id).await;
    let whole: String = (0..PARTS).map(|number| format!("a {number}; ")).collect::<Vec<_>>().concat();
    assert_eq!((said(&updates).concat() == whole, stopped.unwrap()), (true, json!({"stopReason": "end_turn"})));
    assert_eq!(said(&near.prompt(&session, "b").await.0).concat().len(), (0..PARTS).map(|number| format!("b {number}; ").len()).sum::<usize>());
    near.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_call_is_told_with_its_arguments_and_its_end_once_also_in_a_transcript() {
    let runtime = Runtime::builder().closure("editor", |turn: Turn| async move {
        turn.step().await?;
        let ask = |id: &str| Block::ToolCall { id: id.to_owned(), name: "weather".into(), arguments: r#"{"city":"Lyon"}"#.into() };
        turn.answered(Spoken::new("local", "small", vec![Block::text("Let me see."), ask("c1"), ask("c2"), ask("c3")])).await?;
        for id in ["c1", "c2"] {
            turn.start_call(id, "weather", r#"{"city":"Lyon"}"#).await?;
        }
        turn.end_call("c1", CallResult::done("sunny"))?;
        turn.end_call("c2", CallResult::failed("Error: no such city", "ToolError", "INVALID_ARGS"))?;
        turn.end_call("c3", CallResult::failed("Error: no time", "ToolError", "CANCELLED"))?;
        Ok(TurnEnd::Completed)
    });
    let mut near = Near::start(runtime.open("memory:").await.unwrap(), "editor").await;
    let session = near.new_session().await;
    let (told, _) = near.prompt(&session, "How is it?").await;
    let calls = |updates: &[Value]| {
        let mut calls: Vec<String> = updates
            .iter()
            .filter(|update| update["toolCallId"].is_string())
            .map(|update| {
                [&update["sessionUpdate"], &update["toolCallId"], &update["status"], &update["content"][0]["content"]["text"]]
                    .map(ToString::to_string)
                    .join(" ")
            })
            .collect();
        calls.sort();
        calls
    };
    let expected = [
        r#""tool_call" "c1" "in_progress" null"#,
        r#""tool_call" "c2" "in_progress" null"#,
        r#""tool_call" "c3" "failed" "Error: no time""#,
        r#""tool_call_update" "c1" "completed" "sunny""#,
        r#""tool_call_update" "c2" "failed" "Error: no such city""#,
    ];
    assert_eq!(calls(&told), expected);
    assert_eq!(told.iter().find(|update| update["toolCallId"] == "c1").unwrap()["rawInput"], json!({"city": "Lyon"}));
    let (again, _) = near.ask("session/load", json!({"sessionId": session, "cwd": "/", "mcpServers": []})).await;
    assert_eq!(calls(&again), expected);
    near.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_in_which_a_turn_ends_has_its_stop_reason() {
    let runtime = Runtime::builder().closure("editor", |turn: Turn| async move {
        turn.step().await?;
        let stop = if turn.text() == "refusal" { "refusal" } else { "end" };
        turn.answered(Spoken::new("local", "small", vec![Block::text("well")]).stop(stop)).await?;
        Ok(match &*turn.text() {
            "max_tokens" => TurnEnd::MaxTokens,
            "max_steps" => return Err(TurnError::new("MAX_STEPS", "64 steps are enough")),
            "broken" => return Err(TurnError::new("MODEL_RATE_LIMIT", "too many requests")),
            _ => TurnEnd::Completed,
        })
    });
    let mut near = Near::start(runtime.open("memory:").await.unwrap(), "editor").await;
    let session = near.new_session().await;
    for (text, reason) in
        [("hello", "end_turn"), ("max_tokens", "max_tokens"), ("max_steps", "max_turn_requests"), ("refusal", "refusal"), ("hello", "end_turn")]
    {
        assert_eq!(near.prompt(&session, text).await.1.unwrap(), json!({"stopReason": reason}), "{text}");
    }
    let error = near.prompt(&session, "broken").await.1.unwrap_err();
    assert_eq!((&error["data"]["code"], &error["message"]), (&json!("MODEL_RATE_LIMIT"), &json!("too many requests")));
    near.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_a_tool_has_started_is_told_of_at_that_tools_call() {
    let runtime = Runtime::builder()
        .closure("editor", |turn: Turn| async move {
            turn.step().await?;
            if turn.message().is_none_or(|message| message.source.kind() != "user") {
                return Ok(TurnEnd::Completed);
            }
            let arguments = r#"{"description":"facts"}"#;
            let ask = Block::ToolCall { id: "c1".into(), name: "subagent".into(), arguments: arguments.into() };
            turn.answered(Spoken::new("local", "small", vec![ask])).await?;
            turn.start_call("c1", "subagent", arguments).await?;
            let child = turn.delegate(Delegate::new("reporter", "facts", "Three.").key("c1")).await?;
            turn.end_call("c1", CallResult::done(format!("started subagent {}", child.child)))?;
            Ok(TurnEnd::Completed)
        })
        .closure("reporter", |turn: Turn| async move {
            turn.say("one")?;
            Ok(TurnEnd::Completed)
        });
    let mut near = Near::start(runtime.open("memory:").await.unwrap(), "editor").await;
    let session = near.new_session().await;
    let (mut told, _) = near.prompt(&session, "Begin.").await;
    let complete = |update: &Value| update["sessionUpdate"] == "session_info_update" && update["_meta"]["greenroom/subagent"]["status"] == "complete";
    while !told.iter().any(complete) {
        told.push(near.update().await);
    }
    assert_eq!(told.iter().filter(|update| update["sessionUpdate"] == "tool_call").count(), 1, "{told:?}");
    let child = told.iter().find(|update| complete(update)).unwrap();
    assert_eq!(child["_meta"]["greenroom/subagent"]["toolCallId"], "c1");
    near.end().await;
}
