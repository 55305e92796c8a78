//! Three levels, settled child-first.
//!
//! An editor delegates to two reporters, each of which delegates to two sources. A parent that owns a live child stays live.
//!
//! ```text
//! cargo run --example tree
//! ```
//!
//! prints each settlement as it happens, and then the forest.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;

use greenroom::{Delegate, Occurrence, Runtime, SessionId, Turn, TurnEnd};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder()
        .closure("editor", |turn: Turn| async move {
            if turn.message().is_some() {
                for name in ["north", "south"] {
                    turn.delegate(Delegate::new("reporter", name, format!("Report on the {name}."))).await?;
                }
            }
            Ok(TurnEnd::Completed)
        })
        .closure("reporter", |turn: Turn| async move {
            // The turns that its sources' notices open delegate nothing more.
            if turn.message().is_some() {
                let label = turn.label().unwrap_or_default();
                for n in 1..=2 {
                    turn.delegate(Delegate::new("source", format!("{label} source {n}"), "What do you know?")).await?;
                }
            }
            Ok(TurnEnd::Completed)
        })
        .closure("source", |turn: Turn| async move {
            turn.say("nothing new")?;
            Ok(TurnEnd::Completed)
        })
        .open("memory:")
        .await?;

    let mut occurrences = runtime.subscribe();
    let root = runtime.root("editor", "front page").await?;
    let id = root.id().clone();
    root.send("Go.").await?;
    root.quiescent().await?;
    drop(root);

    let mut labels: HashMap<SessionId, String> = HashMap::from([(id.clone(), "front page".into())]);
    loop {
        match occurrences.recv().await? {
            Occurrence::Created { session, label, .. } => drop(labels.insert(session, label.unwrap_or_default().to_string())),
            Occurrence::Ended { session, epoch, reason, .. } => {
                println!("{:<16} epoch {epoch} ended: {reason:?}", labels.get(&session).map_or("?", String::as_str));
                if session == id {
                    break;
                }
            }
            _ => {}
        }
    }
    println!();
    print_forest(&runtime, &id, "front page").await?;
    runtime.shutdown().await;
    Ok(())
}

fn turns(count: u64) -> String {
    if count == 1 { "1 turn".to_owned() } else { format!("{count} turns") }
}

/// Prints a session and everything below it. Iterative, since a lineage may be as long as it likes.
async fn print_forest(runtime: &Runtime, root: &SessionId, label: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut stack = vec![(0, root.clone(), format!("{label} [complete]"))];
    while let Some((depth, id, line)) = stack.pop() {
        println!("{}{line}", "    ".repeat(depth));
        for entry in runtime.list(Some(&id)).await?.entries.iter().rev() {
            if let Some(listed) = entry.listed() {
                stack.push((
                    depth + 1,
                    listed.id.clone(),
                    format!("{} [{}] {}", listed.label.as_deref().unwrap_or_default(), listed.status.as_str(), turns(listed.turns)),
                ));
            }
        }
    }
    Ok(())
}
