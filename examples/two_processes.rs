//! Two processes on one SQLite file: one works, the other looks on, sends a message, and takes over when the first is killed.
//!
//! The example starts itself a second time. That process opens the file, makes a desk with a reporter, and is killed in the middle of the reporter's turn.
//!
//! ```text
//! cargo run --example two_processes
//! ```
//!
//! prints
//!
//! ```text
//! the other process is at work
//!   a reporter [running], 0 pending
//! sent it a message
//!   a reporter [running], 1 pending
//! taking over now is refused: SESSION_HELD
//! killed the other process
//!   a reporter [complete], 2 pending
//!   a reporter [complete], 0 pending
//!   turn 1, attempt 1
//!     interrupted
//!   turn 2, attempt 2
//!     "Cover the launch." done, attempt 2
//!     completed
//!   turn 3, attempt 1
//!     "And the aftermath." done, attempt 1
//!     completed
//! ```
#![allow(clippy::print_stdout)]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use greenroom::{
    Delegate, OpenError, Runtime, SessionId, Turn, TurnEnd, TurnError,
    actors::host::NewRoot,
    session::{event::Body, message::text_of},
};

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    match std::env::args_os().nth(1) {
        Some(file) => work(Path::new(&file)).await,
        None => look_on().await,
    }
}

/// Opens the file; `reporter` is what this process has a reporter do.
async fn open<F: Future<Output = Result<TurnEnd, TurnError>> + Send + 'static>(file: &Path, reporter: fn(Turn) -> F) -> Result<Runtime, OpenError> {
    let desk = |_turn: Turn| async { Ok(TurnEnd::Completed) };
    Runtime::builder().closure("desk", desk).closure("reporter", reporter).open(&format!("sqlite:{}", file.display())).await
}

/// The process that is going to be killed: its reporter begins and never comes to an end.
async fn work(file: &Path) -> Result<(), Failure> {
    let runtime = open(file, |_turn: Turn| async {
        println!("at work");
        std::future::pending().await
    })
    .await?;
    let root = runtime.host().root(NewRoot { id: Some(SessionId::new("desk")?), ..NewRoot::new("desk", "a desk") }).await?;
    root.agent().start_continuable(Delegate::new("reporter", "a reporter", "Cover the launch.")).await?;
    root.quiescent().await?;
    Ok(())
}

async fn look_on() -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("greenroom-two-processes-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("desk.db");
    let mut other = Command::new(std::env::current_exe()?).arg(&file).stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    BufReader::new(other.stdout.take().ok_or("no pipe")?).read_line(&mut said)?;
    println!("the other process is {}", said.trim());

    let runtime = open(&file, |turn: Turn| async move {
        turn.say(format!("{:?} done, attempt {}", turn.text(), turn.attempt()))?;
        Ok(TurnEnd::Completed)
    })
    .await?;
    let desk = SessionId::new("desk")?;
    let reporter = show(&runtime, &desk).await?.ok_or("no reporter")?;

    // Whoever owns the file may send. The message is durable at once; the turn is the holder's.
    runtime.host().send(&reporter, "And the aftermath.", None).await?;
    println!("sent it a message");
    show(&runtime, &desk).await?;
    if let Err(refused) = runtime.resume(&desk).await {
        println!("taking over now is refused: {}", refused.code());
    }

    other.kill()?;
    other.wait()?;
    println!("killed the other process");
    show(&runtime, &desk).await?;
    let root = runtime.resume(&desk).await?;
    runtime.recover(Some(&desk)).await?;
    root.quiescent().await?;
    show(&runtime, &desk).await?;
    for event in runtime.read_events(&reporter).await? {
        match event.body {
            Body::TurnStart { turn, attempt, .. } => println!("  turn {turn}, attempt {attempt}"),
            Body::AssistantMessage { message, .. } => println!("    {}", text_of(&message.content)),
            Body::TurnEnd { reason, .. } => println!("    {}", reason.as_str()),
            _ => {}
        }
    }
    runtime.shutdown().await;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Prints the children as this process sees them, and returns the last one.
async fn show(runtime: &Runtime, parent: &SessionId) -> Result<Option<SessionId>, Failure> {
    let mut last = None;
    for entry in runtime.list(Some(parent)).await?.entries {
        if let Some(child) = entry.listed() {
            println!("  {} [{}], {} pending", child.label.as_deref().unwrap_or_default(), child.status.as_str(), child.pending);
        }
        last = Some(entry.id().clone());
    }
    Ok(last)
}
