//! A recording of a model agent's talk, said again through the whole runtime.
//!
//! `GREENROOM_WRITE_DATA=1 cargo test --test it recordings` writes it anew.

use std::{path::PathBuf, sync::Arc};

use greenroom::{
    Runtime,
    actors::host::NewRoot,
    model::{Model, ModelAgent, ModelOptions, ModelRequest, Recorder, ReplayModel, ScriptedAnswer, ScriptedModel, Usage},
    seeded,
    session::{
        descriptor::Mode,
        digest::StoreDigest,
        event::{Body, Role},
        message::text_of,
    },
    tool::{ListAgentsTool, ReportTool, SubagentConfig, SubagentTool, Tools, function},
};
use serde_json::{Value, json};

fn path() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "data", "recordings", "newsroom.jsonl"].iter().collect()
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Noon {
    city: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoonOfDay {
    city: String,
    day: u8,
}

/// What may differ between two talks.
#[derive(Clone, Copy)]
struct Talk {
    persona: &'static str,
    /// How a tool is described.
    noon: &'static str,
    message: &'static str,
    /// Whether that tool wants to know the day, too.
    by_day: bool,
}

const TALK: Talk = Talk { persona: "You edit.", noon: "Tells the hour.", message: "Who knows the hour?", by_day: false };

/// An editor who looks about, has a reporter find something out, hears of it and answers twice.
fn script() -> ScriptedModel {
    ScriptedModel::with(|request| {
        let steps = request.messages.iter().filter(|message| message.role == Role::Assistant).count();
        let usage = Usage { input: 100 * (steps as u64 + 1), output: 7, cached_input: 100 * steps as u64, reasoning: 2, ..Usage::default() };
        let answer = ScriptedAnswer::new().usage(usage);
        match (request.system.as_deref(), steps) {
            (Some("You report."), 0) => answer.call("noon", json!({"city": "Oslo"})),
            (Some("You report."), 1) => answer.call("report", json!({"output": "It is 12 in Oslo."})),
            (Some("You report."), _) => answer.text("Done."),
            (_, 0) => answer
                .reasoning("Who is ", None)
                .reasoning("there?", Some("c2ln"))
                .text("Let me look: ")
                .text("é😀.")
                .call("list_agents", json!({}))
                .raw_call("noon", "{\"cit"),
            (_, 1) => answer.call("subagent", json!({"description": "finds the hour", "prompt": "What time is it?", "run_in_background": true})),
            _ => answer.text(format!("Answer {steps}.")),
        }
    })
}

/// Plays a talk, and returns how each turn ended and what the logs hold.
fn play(talk: Talk, model: Arc<dyn Model>) -> (Vec<String>, StoreDigest) {
    seeded::block_on(async move {
        let tools = Tools::default();
        let agent = |persona: &str| ModelAgent::new(model.clone(), tools.clone(), ModelOptions::new("small").persona(persona));
        let (editor, reporter) = (agent(talk.persona), agent("You report."));
        let runtime =
            Runtime::builder().behavior("editor", move || editor.clone()).behavior("reporter", move || reporter.clone()).seed(7).open("memory:").await.unwrap();
        let host = runtime.host();
        tools.add(&host, ListAgentsTool::new()).unwrap();
        tools.add(&host, SubagentTool::new(SubagentConfig { agent: Some("reporter".into()), mode: Mode::Continuable, ..SubagentConfig::default() })).unwrap();
        tools.add(&host, ReportTool::new()).unwrap();
        if talk.by_day {
            let noon = |noon: NoonOfDay, _| async move { Ok(format!("12 in {} on the {}th", noon.city, noon.day)) };
            tools.add(&host, function("noon", talk.noon, noon)).unwrap();
        } else {
            tools.add(&host, function("noon", talk.noon, |noon: Noon, _| async move { Ok(format!("12 in {}", noon.city)) })).unwrap();
        }
        let root = host.root(NewRoot { id: Some("desk".parse().unwrap()), ..NewRoot::new("editor", "a desk") }).await.unwrap();
        for message in [talk.message, "Thank you."] {
            root.send(message).await.unwrap();
            root.quiescent().await.unwrap();
        }
        let events = runtime.read_events(root.id()).await.unwrap();
        let end = |body: Body| match body {
            Body::TurnEnd { reason, .. } => Some(match reason.error_code() {
                Some(code) => format!("{code} {}", json!(reason)),
                None => reason.as_str().to_owned(),
            }),
            _ => None,
        };
        let ends = events.into_iter().filter_map(|event| end(event.body)).collect();
        let digest = runtime.digest().await.unwrap();
        runtime.shutdown().await;
        (ends, digest)
    })
    .unwrap()
}

#[test]
fn a_talk_is_recorded_to_the_byte_and_replayed_to_the_same_logs() {
    let folder = tempfile::tempdir().unwrap();
    let written = folder.path().join("talk.jsonl");
    let (ends, logs) = play(TALK, Arc::new(Recorder::create(Arc::new(script()), &written).unwrap()));
    assert!(ends.len() >= 2 && ends.iter().all(|end| end == "completed"), "{ends:?}");
    if std::env::var_os("GREENROOM_WRITE_DATA").is_some() {
        std::fs::create_dir_all(path().parent().unwrap()).unwrap();
        std::fs::copy(&written, path()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&written).unwrap(), std::fs::read_to_string(path()).unwrap(), "run with GREENROOM_WRITE_DATA=1 to write it");
    let replay = Arc::new(ReplayModel::open(path()).unwrap());
    assert_eq!(play(TALK, replay.clone()), (ends, logs));
    assert!(replay.unused().is_empty());
}

#[test]
fn a_talk_that_is_another_ends_with_the_first_difference() {
    for (talk, place, words) in [
        (Talk { persona: "You edit!", ..TALK }, "in `system`", "`You edit!`"),
        (Talk { noon: "Tells the day.", ..TALK }, "in `tools[2].description`", "Tells the day."),
        (Talk { by_day: true, ..TALK }, "in `tools[2].schema.properties", "uint8"),
        (Talk { message: "Who knows the day?", ..TALK }, "in `messages[0].content[0].text`", "knows the day?"),
    ] {
        let (ends, _) = play(talk, Arc::new(ReplayModel::open(path()).unwrap()));
        assert!(ends[0].starts_with("MODEL_REPLAY_DIFFERS"), "{ends:?}");
        for part in ["request 1 is not in the recording", place, words.trim_matches('`')] {
            assert!(ends[0].contains(part), "{part}: {}", ends[0]);
        }
    }
}

#[test]
fn in_a_recording_each_request_of_a_session_goes_on_where_the_one_before_it_ended() {
    let text = std::fs::read_to_string(path()).unwrap();
    for persona in ["You edit.", "You report."] {
        let requests: Vec<String> = text
            .lines()
            .skip(1)
            .map(|line| {
                let (_, request) = line.split_once("{\"request\":").unwrap();
                request.split_once(",\"events\":").unwrap().0.to_owned()
            })
            .filter(|request| serde_json::from_str::<Value>(request).unwrap()["system"] == persona)
            .collect();
        assert!(requests.len() >= 3, "{persona}");
        for pair in requests.windows(2) {
            // All but what closes the list of messages.
            let before = pair[0].strip_suffix("]}").unwrap();
            assert!(pair[1].len() > pair[0].len() && pair[1].starts_with(before), "{}\n{}", pair[0], pair[1]);
        }
    }
}

#[test]
fn a_request_is_the_same_text_whatever_is_not_said() {
    let model = script();
    play(TALK, Arc::new(model.clone()));
    let texts: Vec<String> = model.requests().iter().map(ModelRequest::canonical).collect();
    let heard = text_of(&model.requests()[0].messages[0].content);
    assert!(heard == TALK.message && texts.iter().all(|text| !text.contains("\"id\":\"m") && !text.contains("\"time\"")), "{texts:?}");
}
