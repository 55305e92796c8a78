//! Settle, restart, list, send: a child that costs nothing while it has nothing to do.
//!
//! Two runtimes, one after the other, over one SQLite file, as two runs of a program would be.
//!
//! ```text
//! cargo run --example cold_resume
//! ```
//!
//! prints (with other ids):
//!
//! ```text
//! first run:  the child said "1 message so far"; live sessions after settling: 1 (the root)
//! second run: 5f3a… [complete] — keeps count
//! second run: the child said "2 messages so far"
//! ```
#![allow(clippy::print_stdout)]

use std::path::Path;

use greenroom::{Delegate, OpenError, Runtime, SessionId, Turn, TurnEnd};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("greenroom-cold-resume-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("desk.db");
    let (root, child) = first_run(&file).await?;
    second_run(&file, &root, &child).await?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

async fn open(file: &Path) -> Result<Runtime, OpenError> {
    Runtime::builder()
        .closure("desk", |_turn: Turn| async { Ok(TurnEnd::Completed) })
        .closure("counter", |turn: Turn| async move {
            // Nothing is kept in memory between turns: the history is the log's.
            let heard = turn.history().iter().filter(|message| message.source.kind() == "coordinator").count();
            turn.say(format!("{heard} message{} so far", if heard == 1 { "" } else { "s" }))?;
            Ok(TurnEnd::Completed)
        })
        .open(&format!("sqlite:{}", file.display()))
        .await
}

async fn first_run(file: &Path) -> Result<(SessionId, SessionId), Box<dyn std::error::Error>> {
    let runtime = open(file).await?;
    let root = runtime.root("desk", "a desk").await?;
    let child = root.agent().start_continuable(Delegate::new("counter", "keeps count", "one")).await?.child;
    root.quiescent().await?;
    let said = runtime.last_answer(&child).await?.unwrap_or_default();
    println!("first run:  the child said {said:?}; live sessions after settling: {} (the root)", runtime.host().live_count());
    let id = root.id().clone();
    runtime.shutdown().await;
    Ok((id, child))
}

async fn second_run(file: &Path, root: &SessionId, child: &SessionId) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = open(file).await?;
    for entry in runtime.list(Some(root)).await?.entries {
        if let Some(listed) = entry.listed() {
            println!("second run: {} [{}] — {}", listed.id, listed.status.as_str(), listed.label.as_deref().unwrap_or_default());
        }
    }
    let root = runtime.resume(root).await?;
    root.agent().followup(child, "two").await?;
    root.quiescent().await?;
    println!("second run: the child said {:?}", runtime.last_answer(child).await?.unwrap_or_default());
    runtime.shutdown().await;
    Ok(())
}
