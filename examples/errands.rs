//! What a desk does with its children: a run that it waits for, a child that it talks to again, one that has gone astray, and closing time.
//!
//! The desk is a root that the program itself speaks for. A one-shot child is asked one thing and answers it. A continuable child settles and is brought back by the
//! next message. A request can be given up as long as it is not accepted. A run that does not come to its end is disposed of. At closing time everything
//! below the desk is drained: nothing new begins there, and what was accepted waits on disk for the next day.
//!
//! ```text
//! cargo run --example errands
//! ```
//!
//! prints
//!
//! ```text
//! the clerk (brief): "How long is the street?" -> completed: 600 steps
//! the porter: fetched the letters, fetched the papers
//! a letter that was given up: CANCELLED
//! the wanderer: aborted
//! after closing time: DRAINING, and 1 live session
//! the next morning: fetched the milk
//! ```
#![allow(clippy::print_stdout)]

use std::{future::pending, sync::Arc};

use greenroom::{
    Delegate, Runtime, Turn, TurnEnd,
    actors::host::NewRoot,
    session::store::{Store, memory::MemoryStore},
};
use tokio_util::sync::CancellationToken;

type Failure = Box<dyn std::error::Error>;

async fn open(store: &Arc<MemoryStore>) -> Result<Runtime, Failure> {
    let store: Arc<dyn Store> = store.clone();
    let runtime = Runtime::builder()
        // Notices of children come to the desk as turns of their own; there is nothing to do about them.
        .closure("desk", |_: Turn| async { Ok(TurnEnd::Completed) })
        .closure("clerk", |turn: Turn| async move {
            turn.say(format!("{} steps", turn.text().len() * 26 + 2))?;
            Ok(TurnEnd::Completed)
        })
        .closure("porter", |turn: Turn| async move {
            turn.say(format!("fetched {}", turn.text()))?;
            Ok(TurnEnd::Completed)
        })
        // It heeds its end, and nothing else ends it.
        .closure("wanderer", |turn: Turn| async move {
            tokio::select! {
                () = turn.cancelled().cancelled_owned() => Ok(TurnEnd::Completed),
                () = pending() => Ok(TurnEnd::Completed),
            }
        })
        .start(store)
        .await?;
    Ok(runtime)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = Arc::new(MemoryStore::new());
    let runtime = open(&store).await?;
    let desk = runtime.host().root(NewRoot::new("desk", "the front desk")).await?;

    // Waited for, and answered once.
    let question = "How long is the street?";
    let run = desk.agent().start(Delegate::new("clerk", "the clerk", question).persona("brief")).await?;
    let result = run.result().await?;
    println!("the clerk (brief): {question:?} -> {}: {}", result.outcome.as_str(), result.text);

    // Not waited for, and talked to again when it has settled.
    let porter = desk.agent().start_continuable(Delegate::new("porter", "the porter", "the letters")).await?.child;
    desk.quiescent().await?;
    let first = runtime.last_answer(&porter).await?.unwrap_or_default();
    desk.agent().followup(&porter, "the papers").await?;
    desk.quiescent().await?;
    println!("the porter: {first}, {}", runtime.last_answer(&porter).await?.unwrap_or_default());

    // Given up before it was accepted: nothing of it is anywhere.
    let cancel = CancellationToken::new();
    cancel.cancel();
    let given_up = desk.agent().cancellable(cancel).followup(&porter, "the bill").await;
    println!("a letter that was given up: {}", given_up.map_or_else(|error| error.code(), |_| "accepted"));

    // Ended before its time.
    let run = desk.agent().start(Delegate::new("wanderer", "the wanderer", "see the world")).await?;
    run.dispose().await?;
    println!("the wanderer: {}", run.result().await?.outcome.as_str());

    // Nothing new begins below the desk, which stays.
    runtime.drain(&[desk.agent()]).await?;
    let refused = desk.agent().followup(&porter, "the lamps").await;
    let live = runtime.host().live_count();
    println!("after closing time: {}, and {live} live session", refused.map_or_else(|error| error.code(), |_| "accepted"));
    let id = desk.id().clone();
    drop(desk);
    runtime.shutdown().await;

    // Another runtime is another epoch: what was closed is open.
    let runtime = open(&store).await?;
    let desk = runtime.resume(&id).await?;
    desk.agent().followup(&porter, "the milk").await?;
    desk.quiescent().await?;
    println!("the next morning: {}", runtime.last_answer(&porter).await?.unwrap_or_default());
    runtime.shutdown().await;
    Ok(())
}
