//! What is made of answers.

use greenroom::model::{Api, ModelEvent, Stop, Usage};
use serde_json::{Value, json};

use super::{
    heard, hello, model,
    server::{Reply, Server},
    wire::{anthropic, anthropic_block, anthropic_call, anthropic_end, anthropic_start, anthropic_text, gemini, ollama, openai, openai_call, openai_end},
};

fn text(text: &str) -> ModelEvent {
    ModelEvent::Text(text.into())
}

fn thought(text: &str, signature: Option<&str>) -> ModelEvent {
    ModelEvent::Reasoning { text: text.into(), signature: signature.map(str::to_owned) }
}

fn call(id: &str, name: &str, arguments: &str) -> ModelEvent {
    ModelEvent::ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
}

fn end(stop: Stop, usage: Usage) -> ModelEvent {
    ModelEvent::End { stop, usage }
}

const OPENAI: Usage = Usage { input: 11, output: 7, cached_input: 5, cache_write: 0, reasoning: 3 };
// What was read from the cache and written to it is input too.
const ANTHROPIC: Usage = Usage { input: 18, output: 42, cached_input: 5, cache_write: 2, reasoning: 0 };
const GEMINI: Usage = Usage { input: 11, output: 10, cached_input: 0, cache_write: 0, reasoning: 3 };
const OLLAMA: Usage = Usage { input: 11, output: 7, cached_input: 0, cache_write: 0, reasoning: 0 };

/// Joins the frames of an answer.
fn frames(parts: impl IntoIterator<Item = Vec<String>>) -> Vec<String> {
    parts.into_iter().flatten().collect()
}

/// An answer of each interface that says, and asks for tools twice.
fn two_calls(api: Api) -> (Vec<String>, Vec<ModelEvent>) {
    let said = text("Let me look: é😀.");
    let calls = |ids: [&str; 2]| vec![said.clone(), call(ids[0], "subagent", r#"{"label":"ü"}"#), call(ids[1], "list_agents", "{}")];
    let (frames, mut events, usage) = match api {
        Api::OpenAi => (
            frames([
                vec![
                    openai(json!({"role": "assistant", "content": ""}), None),
                    openai(json!({"content": "Let me "}), None),
                    openai(json!({"content": "look: é😀."}), None),
                    openai_call(0, Some(("call_a", "subagent")), "{\"lab"),
                    openai_call(1, Some(("call_b", "list_agents")), ""),
                    openai_call(0, None, "el\":\"ü\"}"),
                    openai_call(1, None, "{}"),
                ],
                openai_end("tool_calls"),
            ]),
            calls(["call_a", "call_b"]),
            OPENAI,
        ),
        Api::Anthropic => (
            frames([
                vec![anthropic_start(), anthropic("ping", json!({}))],
                anthropic_text(0, &["Let me ", "look: é😀."]),
                anthropic_call(1, "toolu_1", "subagent", &["{\"lab", "el\":\"ü\"}"]),
                anthropic_call(2, "toolu_2", "list_agents", &["", "{}"]),
                anthropic_end("tool_use"),
            ]),
            calls(["toolu_1", "toolu_2"]),
            ANTHROPIC,
        ),
        Api::Gemini => (
            vec![
                gemini(json!([{"text": "Let me "}]), None),
                gemini(json!([{"text": "look: é😀."}, {"functionCall": {"name": "subagent", "args": {"label": "ü"}}}]), None),
                gemini(json!([{"functionCall": {"name": "list_agents", "args": {}}}]), Some("STOP")),
            ],
            calls(["call#subagent#0", "call#list_agents#0"]),
            GEMINI,
        ),
        _ => (
            vec![
                ollama(json!({"role": "assistant", "content": "Let me "}), None),
                ollama(json!({"content": "look: é😀."}), None),
                ollama(
                    json!({"content": "", "tool_calls": [
                        {"id": "call_x", "function": {"name": "subagent", "arguments": {"label": "ü"}}},
                        {"id": "call_y", "function": {"name": "list_agents", "arguments": {}}},
                    ]}),
                    None,
                ),
                ollama(json!({"content": ""}), Some("stop")),
            ],
            calls(["call_x", "call_y"]),
            OLLAMA,
        ),
    };
    events.push(end(Stop::ToolUse, usage));
    (frames, events)
}

#[tokio::test]
async fn text_and_tool_calls_come_whole_however_the_bytes_are_split() {
    for api in Api::ALL {
        let (frames, expected) = two_calls(api);
        for size in [None, Some(1), Some(7), Some(1_000_000)] {
            let reply = Reply::frames(frames.clone());
            let server = Server::start([size.map_or(reply.clone(), |size| reply.split(size))]).await;
            let (events, failure) = heard(&model(api, &server), hello()).await;
            assert_eq!((events, failure), (expected.clone(), None), "{api}, chunks of {size:?}");
        }
    }
}

#[tokio::test]
async fn two_calls_of_one_id_are_two_calls() {
    let frames = [
        gemini(json!([{"functionCall": {"name": "noon", "args": {"city": "Rome"}}}]), None),
        gemini(json!([{"functionCall": {"name": "noon", "args": {"city": "Oslo"}}}]), Some("STOP")),
    ];
    let server = Server::start([Reply::frames(frames)]).await;
    let (events, _) = heard(&model(Api::Gemini, &server), hello()).await;
    let expected = [call("call#noon#0", "noon", r#"{"city":"Rome"}"#), call("call#noon#0", "noon", r#"{"city":"Oslo"}"#), end(Stop::ToolUse, GEMINI)];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn a_call_without_an_index_with_a_huge_one_or_with_that_of_another_is_one_call() {
    let part = |mut call: Value, id: &str, name: &str, arguments: &str| {
        call["function"] = json!({"arguments": arguments});
        if !id.is_empty() {
            call["id"] = json!(id);
            call["function"]["name"] = json!(name);
        }
        openai(json!({"tool_calls": [call]}), None)
    };
    let two = |first: Value, second: Value| {
        let (noon, dusk) = (part(first.clone(), "a", "noon", "{\"x"), part(second.clone(), "b", "dusk", "{"));
        frames([vec![noon, part(first, "", "", "\":1}"), dusk, part(second, "", "", "}")], openai_end("tool_calls")])
    };
    for (how, frames) in [
        ("none", two(json!({}), json!({}))),
        ("null", two(json!({"index": null}), json!({"index": null}))),
        ("huge", two(json!({"index": 4_000_000_000_u64}), json!({"index": u64::MAX}))),
        ("below zero", two(json!({"index": -1}), json!({"index": -2}))),
        ("all the same", two(json!({"index": 0}), json!({"index": 0}))),
    ] {
        let server = Server::start([Reply::frames(frames)]).await;
        let (events, failure) = heard(&model(Api::OpenAi, &server), hello()).await;
        let expected = vec![call("a", "noon", "{\"x\":1}"), call("b", "dusk", "{}"), end(Stop::ToolUse, OPENAI)];
        assert_eq!((events, failure), (expected, None), "{how}");
    }
    // Two calls of one id are told apart by their indices; whoever asks for them gives them names of their own.
    let same = frames([vec![part(json!({"index": 0}), "a", "noon", "{}"), part(json!({"index": 1}), "a", "noon", "{}")], openai_end("tool_calls")]);
    let server = Server::start([Reply::frames(same)]).await;
    let (events, _) = heard(&model(Api::OpenAi, &server), hello()).await;
    assert_eq!(events, [call("a", "noon", "{}"), call("a", "noon", "{}"), end(Stop::ToolUse, OPENAI)]);
}

#[tokio::test]
async fn why_an_answer_ended_is_told_in_one_set_of_words() {
    let openai_with = |part: String, finish: &str| frames([vec![part], openai_end(finish)]);
    let openai_text = || openai(json!({"content": "Hm."}), None);
    let cut_call = || openai_call(0, Some(("call_a", "subagent")), "{\"desc");
    let whole_call = || openai_call(0, Some(("call_a", "noon")), "{}");
    let anthropic_with = |parts: Vec<String>, stop: &str| frames([vec![anthropic_start()], parts, anthropic_end(stop)]);
    let mut cut_block = anthropic_call(0, "toolu_1", "subagent", &["{\"desc"]);
    cut_block.pop();
    let hm = || text("Hm.");
    for (api, frames, said, stop, usage) in [
        (Api::OpenAi, openai_with(openai_text(), "stop"), vec![hm()], Stop::End, OPENAI),
        (Api::OpenAi, openai_with(openai_text(), "length"), vec![hm()], Stop::MaxTokens, OPENAI),
        (Api::OpenAi, openai_with(openai_text(), "content_filter"), vec![hm()], Stop::Refusal, OPENAI),
        (Api::OpenAi, openai_with(openai_text(), "weather"), vec![hm()], Stop::Other("weather".into()), OPENAI),
        // A call that was cut short is none.
        (Api::OpenAi, openai_with(cut_call(), "length"), vec![], Stop::MaxTokens, OPENAI),
        // One that is there counts, whatever the word.
        (Api::OpenAi, openai_with(whole_call(), "stop"), vec![call("call_a", "noon", "{}")], Stop::ToolUse, OPENAI),
        // What is no JSON is passed on as it came: whoever checks it tells the model.
        (Api::OpenAi, openai_with(cut_call(), "tool_calls"), vec![call("call_a", "subagent", "{\"desc")], Stop::ToolUse, OPENAI),
        (Api::OpenAi, openai_with(openai_call(0, Some(("call_a", "noon")), ""), "tool_calls"), vec![call("call_a", "noon", "")], Stop::ToolUse, OPENAI),
        (Api::Anthropic, anthropic_with(anthropic_text(0, &["Hm."]), "end_turn"), vec![hm()], Stop::End, ANTHROPIC),
        (Api::Anthropic, anthropic_with(anthropic_text(0, &["Hm."]), "stop_sequence"), vec![hm()], Stop::End, ANTHROPIC),
        (Api::Anthropic, anthropic_with(anthropic_text(0, &["Hm."]), "refusal"), vec![hm()], Stop::Refusal, ANTHROPIC),
        (Api::Anthropic, anthropic_with(anthropic_text(0, &["Hm."]), "pause_turn"), vec![hm()], Stop::Other("pause_turn".into()), ANTHROPIC),
        (Api::Anthropic, anthropic_with(cut_block, "max_tokens"), vec![], Stop::MaxTokens, ANTHROPIC),
        (Api::Anthropic, anthropic_with(anthropic_call(0, "toolu_1", "noon", &[]), "tool_use"), vec![call("toolu_1", "noon", "")], Stop::ToolUse, ANTHROPIC),
        (Api::Gemini, vec![gemini(json!([{"text": "Hm."}]), Some("MAX_TOKENS"))], vec![hm()], Stop::MaxTokens, GEMINI),
        (Api::Gemini, vec![gemini(json!([{"text": "Hm."}]), Some("SAFETY"))], vec![hm()], Stop::Refusal, GEMINI),
        (Api::Gemini, vec!["data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n".into()], vec![], Stop::Refusal, Usage::default()),
        (Api::Ollama, vec![ollama(json!({"content": "Hm."}), Some("length"))], vec![hm()], Stop::MaxTokens, OLLAMA),
        (Api::Ollama, vec![ollama(json!({"content": "Hm."}), Some("stop"))], vec![hm()], Stop::End, OLLAMA),
    ] {
        let server = Server::start([Reply::frames(frames)]).await;
        let (events, failure) = heard(&model(api, &server), hello()).await;
        let mut expected = said;
        expected.push(end(stop, usage));
        assert_eq!((events, failure), (expected, None), "{api}");
    }
}

#[tokio::test]
async fn what_a_model_has_thought_comes_with_its_signature() {
    let signature = |signature: &str| json!({"type": "signature_delta", "signature": signature});
    let thinking = |index, parts: &[&str], signatures: &[&str]| {
        let deltas = parts.iter().map(|part| json!({"type": "thinking_delta", "thinking": part})).chain(signatures.iter().map(|part| signature(part)));
        anthropic_block(index, &json!({"type": "thinking", "thinking": "", "signature": ""}), &deltas.collect::<Vec<_>>())
    };
    let anthropic_frames = frames([
        vec![anthropic_start()],
        thinking(0, &["Hm, ", "well."], &["si", "g1"]),
        anthropic_block(1, &json!({"type": "redacted_thinking", "data": "xyz"}), &[]),
        thinking(2, &[], &["sig2"]),
        anthropic_text(3, &["Yes."]),
        anthropic_end("end_turn"),
    ]);
    let gemini_frames = vec![
        gemini(json!([{"text": "Hm.", "thought": true}]), None),
        gemini(
            json!([{"text": "Yes."}, {"functionCall": {"name": "noon", "args": {}}, "thoughtSignature": "sig"}, {"functionCall": {"name": "dusk", "args": {}}}]),
            Some("STOP"),
        ),
    ];
    let openai_frames = frames([
        vec![openai(json!({"reasoning_content": "Hm, "}), None), openai(json!({"reasoning_content": "well.", "content": "Yes."}), None)],
        openai_end("stop"),
    ]);
    let ollama_frames = vec![ollama(json!({"thinking": "Hm.", "content": ""}), None), ollama(json!({"content": "Yes."}), Some("stop"))];
    let yes = || text("Yes.");
    for (api, frames, expected) in [
        (
            Api::Anthropic,
            anthropic_frames,
            vec![thought("Hm, well.", Some("sig1")), thought("", Some("redacted_thinking:xyz")), thought("", Some("sig2")), yes(), end(Stop::End, ANTHROPIC)],
        ),
        (
            Api::Gemini,
            gemini_frames,
            vec![
                thought("Hm.", Some("sig")),
                yes(),
                thought("", Some("sig")),
                call("call#noon#0", "noon", "{}"),
                call("call#dusk#1", "dusk", "{}"),
                end(Stop::ToolUse, GEMINI),
            ],
        ),
        (Api::OpenAi, openai_frames, vec![thought("Hm, well.", None), yes(), end(Stop::End, OPENAI)]),
        (Api::Ollama, ollama_frames, vec![thought("Hm.", None), yes(), end(Stop::End, OLLAMA)]),
    ] {
        let server = Server::start([Reply::frames(frames)]).await;
        assert_eq!(heard(&model(api, &server), hello()).await, (expected, None), "{api}");
    }
}
