//! Three messages to a busy child become three turns, in order.
//!
//! The child is held in its first turn until the two follow-ups are accepted, so that they have to wait in its inbox.
//!
//! ```text
//! cargo run --example fifo_turns
//! ```
//!
//! prints the child's log:
//!
//! ```text
//! turn 1 started for "first"
//!   child says: served "first"
//! turn 1 completed
//! turn 2 started for "second"
//! ...
//! ```
#![allow(clippy::print_stdout)]

use std::{collections::HashMap, sync::Arc};

use greenroom::{
    Delegate, Runtime, Turn, TurnEnd,
    session::{
        event::{Body, Event},
        message::text_of,
    },
};
use tokio::sync::Notify;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let go = Arc::new(Notify::new());
    let held = go.clone();
    let runtime = Runtime::builder()
        .closure("desk", |_turn: Turn| async { Ok(TurnEnd::Completed) })
        .closure("worker", move |turn: Turn| {
            let held = held.clone();
            async move {
                if turn.text() == "first" {
                    held.notified().await;
                }
                turn.say(format!("served {:?}", turn.text()))?;
                Ok(TurnEnd::Completed)
            }
        })
        .open("memory:")
        .await?;

    let root = runtime.root("desk", "three messages").await?;
    let desk = root.agent();
    let child = desk.start_continuable(Delegate::new("worker", "a busy child", "first")).await?.child;
    desk.followup(&child, "second").await?;
    desk.followup(&child, "third").await?;
    go.notify_one();
    root.quiescent().await?;

    print_turns(&runtime.read_events(&child).await?);
    runtime.shutdown().await;
    Ok(())
}

/// Prints what a person wants to see of a log: turns, what opened them, and what was said.
fn print_turns(events: &[Event]) {
    let heard: HashMap<_, _> = events
        .iter()
        .filter_map(|event| match &event.body {
            Body::UserMessage(message) => Some((&message.id, text_of(&message.content))),
            _ => None,
        })
        .collect();
    for event in events {
        match &event.body {
            Body::TurnStart { turn, message, .. } => println!("turn {turn} started for {:?}", heard.get(message).map_or("a note", String::as_str)),
            Body::AssistantMessage { message, .. } => println!("  child says: {}", text_of(&message.content)),
            Body::TurnEnd { turn, reason } => println!("turn {turn} {}", reason.as_str()),
            _ => {}
        }
    }
}
