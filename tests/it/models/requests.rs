//! What is sent.

use greenroom::{
    model::{Api, ModelRequest, ToolSpec},
    session::{
        event::{Role, SurfaceMessage},
        message::{Block, Source},
    },
};
use serde_json::{Value, json};

use super::{
    KEY, heard, hello, model, request, said,
    server::{Received, Reply, Server},
};

/// Sends requests, and returns what has come of them on the other side.
async fn sent(api: Api, requests: impl IntoIterator<Item = ModelRequest>) -> Vec<Received> {
    let requests: Vec<ModelRequest> = requests.into_iter().collect();
    let server = Server::start(requests.iter().map(|_| Reply::error(500, ""))).await;
    let model = model(api, &server);
    for request in requests {
        heard(&model, request).await;
    }
    server.received()
}

fn call(id: &str, name: &str, arguments: &str) -> Block {
    Block::ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
}

fn result(id: &str, text: &str, is_error: bool) -> SurfaceMessage {
    said(Role::Tool, vec![Block::ToolResult { call_id: id.into(), text: text.into(), is_error }])
}

fn thought(text: &str, signature: Option<&str>) -> Block {
    Block::Reasoning { text: text.into(), signature: signature.map(str::to_owned) }
}

/// Somebody asks, the model calls two tools, one of which fails, and answers; then somebody asks again.
fn talk() -> Vec<SurfaceMessage> {
    vec![
        said(Role::User, vec![Block::text("Who is"), Block::text("there?")]),
        said(
            Role::Assistant,
            vec![thought("Hm.", Some("sig")), Block::text("Let me look."), call("call_a", "list_agents", ""), call("call_b", "noon", r#"{"z": 1, "a": 2.50}"#)],
        ),
        result("call_a", "(no subagents)", false),
        result("call_b", "no such city", true),
        said(Role::Assistant, vec![Block::text("Nobody.")]),
        said(Role::User, vec![Block::text("And now?")]),
    ]
}

fn tools() -> Vec<ToolSpec> {
    let schema = json!({"type": "object", "properties": {"z": {"type": "integer"}, "a": {"type": "number"}}, "required": ["z"]});
    vec![
        ToolSpec { name: "list_agents".into(), description: "Lists.".into(), schema: json!({"type": "object", "properties": {}}) },
        ToolSpec { name: "noon".into(), description: "Tells the hour.".into(), schema },
    ]
}

fn whole() -> ModelRequest {
    ModelRequest { system: Some("You are brief.".into()), tools: tools(), max_tokens: Some(100), ..request(talk()) }
}

#[tokio::test]
async fn what_was_said_is_sent_in_the_words_of_each_interface() {
    let [openai, anthropic, gemini, ollama] = [
        sent(Api::OpenAi, [whole()]).await.remove(0),
        sent(Api::Anthropic, [whole()]).await.remove(0),
        sent(Api::Gemini, [whole()]).await.remove(0),
        sent(Api::Ollama, [whole()]).await.remove(0),
    ];
    for (received, path, header, value) in [
        (&openai, "/v1/chat/completions", "authorization", format!("Bearer {KEY}")),
        (&anthropic, "/v1/messages", "x-api-key", KEY.to_owned()),
        (&ollama, "/api/chat", "authorization", format!("Bearer {KEY}")),
        (&gemini, "/v1beta/models/small:streamGenerateContent?alt=sse", "x-goog-api-key", KEY.to_owned()),
    ] {
        assert_eq!((received.path.as_str(), received.header(header)), (path, Some(value.as_str())));
        assert!(!received.text.contains(KEY));
    }

    let body = openai.body();
    assert_eq!(
        (&body["model"], &body["stream"], &body["max_tokens"], &body["stream_options"]),
        (&json!("small"), &json!(true), &json!(100), &json!({"include_usage": true}))
    );
    assert_eq!(body["tools"][1]["function"]["parameters"], tools()[1].schema);
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "You are brief."},
            {"role": "user", "content": "Who is\nthere?"},
            {"role": "assistant", "content": "Let me look.", "reasoning_content": "Hm.", "tool_calls": [
                {"type": "function", "id": "call_a", "function": {"name": "list_agents", "arguments": "{}"}},
                {"type": "function", "id": "call_b", "function": {"name": "noon", "arguments": "{\"z\":1,\"a\":2.5}"}},
            ]},
            {"role": "tool", "tool_call_id": "call_a", "content": "(no subagents)"},
            {"role": "tool", "tool_call_id": "call_b", "content": "Error: no such city"},
            {"role": "assistant", "content": "Nobody."},
            {"role": "user", "content": "And now?"},
        ])
    );

    let body = anthropic.body();
    let kept = json!({"type": "ephemeral"});
    assert_eq!((&body["model"], &body["stream"], &body["max_tokens"]), (&json!("small"), &json!(true), &json!(100)));
    assert_eq!(body["system"], json!([{"type": "text", "text": "You are brief.", "cache_control": kept}]));
    assert_eq!(body["tools"][1], json!({"name": "noon", "input_schema": tools()[1].schema, "description": "Tells the hour."}));
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": "Who is\nthere?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "call_a", "name": "list_agents", "input": {}},
                {"type": "tool_use", "id": "call_b", "name": "noon", "input": {"z": 1, "a": 2.5}},
            ]},
            // The end of the request before: the results of one answer's calls are one message.
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "call_a", "content": "(no subagents)"},
                {"type": "tool_result", "tool_use_id": "call_b", "content": "Error: no such city", "cache_control": kept},
            ]},
            {"role": "assistant", "content": "Nobody."},
            {"role": "user", "content": [{"type": "text", "text": "And now?", "cache_control": kept}]},
        ])
    );

    let body = gemini.body();
    assert_eq!(body["contents"].as_array().unwrap().len(), 5);
    assert_eq!(body["contents"][1]["parts"][0], json!({"text": "Let me look.", "thoughtSignature": "sig"}));
    assert_eq!(body["contents"][1]["parts"][1]["functionCall"]["name"], "list_agents");
    assert_eq!(body["contents"][2]["parts"].as_array().unwrap().len(), 2);

    let body = ollama.body();
    let texts: Vec<&Value> = body["messages"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(texts, ["You are brief.", "Who is\nthere?", "Let me look.", "(no subagents)", "Error: no such city", "Nobody.", "And now?"]);
}

/// Takes away what only says how far a cache goes, and writes a text as the block that it stands for.
fn without_marks(message: &Value) -> Value {
    let mut message = message.clone();
    if let Some(text) = message["content"].as_str() {
        message["content"] = json!([{"type": "text", "text": text}]);
    }
    for block in message["content"].as_array_mut().into_iter().flatten() {
        block.as_object_mut().unwrap().remove("cache_control");
    }
    message
}

#[tokio::test]
async fn a_later_request_begins_with_the_bytes_of_an_earlier_one() {
    let first = ModelRequest { messages: whole().messages[..4].to_vec(), ..whole() };
    for api in Api::ALL {
        let sent = sent(api, [first.clone(), whole()]).await;
        let field = if api == Api::Gemini { "contents" } else { "messages" };
        if api == Api::Anthropic {
            let bodies = sent.iter().map(Received::body).collect::<Vec<_>>();
            let [earlier, later] = [0, 1].map(|at: usize| bodies[at]["messages"].as_array().unwrap().iter().map(without_marks).collect::<Vec<_>>());
            assert!(later.len() > earlier.len() && later.starts_with(&earlier));
            for field in ["system", "tools", "model"] {
                assert_eq!(bodies[0][field], bodies[1][field]);
            }
            continue;
        }
        // All but what closes the list, and what comes behind it.
        let up_to_end = |text: &str| -> String {
            let (before, list) = text.split_once(&format!("\"{field}\":")).unwrap();
            let mut values = serde_json::Deserializer::from_str(list).into_iter::<Value>();
            values.next().unwrap().unwrap();
            format!("{before}{}", list.get(..values.byte_offset() - 1).unwrap())
        };
        let [earlier, later] = [0, 1].map(|at: usize| up_to_end(&sent[at].text));
        assert!(later.len() > earlier.len() && later.starts_with(&earlier), "{api}\n{earlier}\n{later}");
    }
}

#[tokio::test]
async fn the_model_is_called_by_its_whole_name() {
    let named = |name: &str| {
        let mut request = hello();
        request.model.name = name.into();
        request
    };
    for name in ["qwen-max", "my-model-high", "gpt-5-mini", "o3", "groq::x", "Qwen/Qwen3:free", "llama3:8b", "claude-sonnet-4-5"] {
        for api in [Api::OpenAi, Api::Anthropic] {
            let body = sent(api, [named(name)]).await.remove(0).body();
            assert_eq!(body["model"], name, "{api}");
            // Nobody has said how hard it is to think.
            for field in ["reasoning_effort", "thinking", "output_config"] {
                assert!(body.get(field).is_none_or(Value::is_null), "{api} {name} {field}");
            }
        }
    }
    // Where the name cannot be put back, nothing is sent.
    for (api, name) in [(Api::Gemini, "gemini-high"), (Api::Gemini, "a::b"), (Api::Ollama, "a::b")] {
        let server = Server::start([]).await;
        let (_, error) = heard(&model(api, &server), named(name)).await;
        assert_eq!(error.unwrap().code(), "MODEL_BAD_REQUEST");
        assert!(server.received().is_empty());
    }
    let body = sent(Api::Ollama, [named("my-model-high")]).await.remove(0).body();
    assert_eq!(body["model"], "my-model-high");
}

#[tokio::test]
async fn what_another_provider_thought_is_not_sent() {
    let by_another = || {
        let mut message = said(Role::Assistant, vec![thought("Hm.", Some("sig")), Block::text("Yes.")]);
        message.source = Source::Model { provider: "elsewhere".into(), name: "small".into() };
        message
    };
    let only_thought = said(Role::Assistant, vec![thought("Hm.", None)]);
    for api in Api::ALL {
        let request = request(vec![said(Role::User, vec![Block::text("Well?")]), by_another(), said(Role::User, vec![Block::text("Sure?")])]);
        let text = &sent(api, [request]).await[0].text;
        assert!(text.contains("Yes.") && !text.contains("Hm.") && !text.contains("sig\""), "{api} {text}");
    }
    // Of what was thought without a signature Anthropic takes nothing back, and a message that says nothing neither.
    let request = request(vec![said(Role::User, vec![Block::text("Well?")]), only_thought, said(Role::User, vec![Block::text("Sure?")])]);
    let body = sent(Api::Anthropic, [request]).await.remove(0).body();
    assert_eq!(body["messages"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn what_anthropic_thought_goes_back_as_it_came() {
    let thinks =
        said(Role::Assistant, vec![thought("", Some("sig1")), thought("", Some("redacted_thinking:xyz")), thought("Hm.", Some("sig2")), Block::text("Yes.")]);
    let request = request(vec![said(Role::User, vec![Block::text("Well?")]), thinks, said(Role::User, vec![Block::text("Sure?")])]);
    let body = sent(Api::Anthropic, [request]).await.remove(0).body();
    let expected = json!([
        {"type": "thinking", "thinking": "", "signature": "sig1"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "Hm.", "signature": "sig2"},
        {"type": "text", "text": "Yes."},
    ]);
    assert_eq!(body["messages"][1]["content"], expected);
}

#[tokio::test]
async fn gemini_gets_a_signature_back_on_the_call_that_it_signed() {
    let calls =
        vec![thought("", Some("sig")), Block::text("Yes."), thought("", Some("sig")), call("call#noon#0", "noon", "{}"), call("call#noon#0-1.1", "noon", "{}")];
    let results = [result("call#noon#0", "12", false), result("call#noon#0-1.1", "13", false)];
    let mut messages = vec![said(Role::User, vec![Block::text("Well?")]), said(Role::Assistant, calls)];
    messages.extend(results);
    let body = sent(Api::Gemini, [request(messages)]).await.remove(0).body();
    let expected = json!([
        {"text": "Yes."},
        {"functionCall": {"name": "noon", "args": {}}, "thoughtSignature": "sig"},
        {"functionCall": {"name": "noon", "args": {}}},
    ]);
    assert_eq!(body["contents"][1]["parts"], expected);
    let answers: Vec<&Value> = body["contents"][2]["parts"].as_array().unwrap().iter().map(|part| &part["functionResponse"]["name"]).collect();
    assert_eq!(answers, ["noon", "noon"]);
}

#[tokio::test]
async fn arguments_and_ids_that_a_provider_would_refuse_are_put_in_words_that_it_takes() {
    let long = "x".repeat(41);
    let calls = vec![call("a.b", "noon", "{\"cut"), call("a_b", "noon", "[1]"), call(&long, "noon", " "), call("", "noon", "{}")];
    let results = ["a.b", "a_b", long.as_str(), ""].map(|id| result(id, id, false));
    let mut messages = vec![said(Role::User, vec![Block::text("Well?")]), said(Role::Assistant, calls)];
    messages.extend(results);
    let body = sent(Api::Anthropic, [request(messages.clone())]).await.remove(0).body();
    let calls = body["messages"][1]["content"].as_array().unwrap();
    let results = body["messages"][2]["content"].as_array().unwrap();
    let found: Vec<(&str, &Value, &str)> =
        calls.iter().zip(results).map(|(call, result)| (call["id"].as_str().unwrap(), &call["input"], result["tool_use_id"].as_str().unwrap())).collect();
    let (cut, list, none) = (json!({"INVALID_JSON": "{\"cut"}), json!({"INVALID_JSON": "[1]"}), json!({}));
    assert_eq!(found, [("renamed_0", &cut, "renamed_0"), ("a_b", &list, "a_b"), (long.as_str(), &none, long.as_str()), ("renamed_3", &none, "renamed_3")]);
    let body = sent(Api::OpenAi, [request(messages)]).await.remove(0).body();
    let ids: Vec<&Value> = body["messages"][1]["tool_calls"].as_array().unwrap().iter().map(|call| &call["id"]).collect();
    assert_eq!(ids, ["a.b", "a_b", "renamed_2", "renamed_3"]);
}
