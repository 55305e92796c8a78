//! A tool of one's own: a language model asks for it, gets its arguments wrong, is told where, and gets them right.
//!
//! The model is a script here, so that nothing needs a key or a network; `GenaiModel` takes its place for a real one. The tool is a Rust function: the fields of its
//! argument, with their comments, are what the model is told. What was asked for and what came of it stands in the session's log.
//!
//! ```text
//! cargo run --example own_tool
//! ```
//!
//! prints
//!
//! ```text
//! the model is told of: tide (Tells when the water is highest.)
//! asked: When may we cross to the island tomorrow?
//! calls tide {"place":"Neuwerk"}
//! is told: Error: invalid arguments: `/day` is missing; `/place` must be one of "neuwerk", "mandø"
//! calls tide {"day":2,"place":"neuwerk"}
//! is told: high water at 06:40 and 19:05
//! says: Around one o'clock: the water is highest at 06:40 and 19:05.
//! ```
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use greenroom::{
    Runtime,
    model::{ModelAgent, ModelOptions, ScriptedAnswer, ScriptedModel},
    session::message::{Block, text_of},
    tool::{ToolError, Tools, function},
};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Place {
    Neuwerk,
    #[serde(rename = "mandø")]
    Mando,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Which island.
    place: Place,
    /// Today is 1.
    #[schemars(range(min = 1, max = 7))]
    day: u32,
}

fn tide(wanted: Wanted) -> Result<String, ToolError> {
    match (wanted.place, wanted.day) {
        (Place::Neuwerk, 2) => Ok("high water at 06:40 and 19:05".into()),
        (_, day) => Err(ToolError::new("NO_TABLE", format!("there is no table for day {day}"))),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = ScriptedModel::new([
        ScriptedAnswer::new().call("tide", json!({"place": "Neuwerk"})),
        ScriptedAnswer::new().call("tide", json!({"day": 2, "place": "neuwerk"})),
        ScriptedAnswer::new().text("Around one o'clock: the water is highest at 06:40 and 19:05."),
    ]);
    let tools = Tools::default();
    let agent = ModelAgent::new(Arc::new(model.clone()), tools.clone(), ModelOptions::new("scripted"));
    let runtime = Runtime::builder().behavior("guide", move || agent.clone()).open("memory:").await?;
    // It only looks something up: should a crash cut it off, it may run again.
    tools.add(&runtime.host(), function("tide", "Tells when the water is highest.", |wanted: Wanted, _| async { tide(wanted) }).repeatable())?;

    let desk = runtime.root("guide", "the guide's desk").await?;
    desk.send("When may we cross to the island tomorrow?").await?;
    desk.quiescent().await?;

    for tool in model.requests().first().map(|request| request.tools.clone()).unwrap_or_default() {
        println!("the model is told of: {} ({})", tool.name, tool.description);
    }
    let asked = model.requests().pop().ok_or("nobody asked the model")?;
    for message in &asked.messages {
        for block in &message.content {
            match block {
                Block::ToolCall { name, arguments, .. } => println!("calls {name} {arguments}"),
                Block::ToolResult { text, .. } => println!("is told: {text}"),
                _ => println!("asked: {}", text_of(&message.content)),
            }
        }
    }
    println!("says: {}", runtime.last_answer(desk.id()).await?.unwrap_or_default());
    runtime.shutdown().await;
    Ok(())
}
