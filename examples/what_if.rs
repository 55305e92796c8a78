//! A host that plays a session itself, and tries another answer in a fork.
//!
//! Here the program answers, not an agent of the runtime: it publishes the session, begins each turn, and writes what is said. Meanwhile the session is listed as
//! running, and nobody else may talk to it. A fork begins where the original stood after its first turn and goes its own way.
//!
//! ```text
//! cargo run --example what_if
//! ```
//!
//! prints
//!
//! ```text
//! the guide [running], 2 turns
//! somebody else's word to it: NOT_RESUMABLE
//!
//! as it was                                      what if
//! ---------                                      -------
//! You stand at a fork in the road.               You stand at a fork in the road.
//! Left or right?                                 Left or right?
//! I go left.                                     I go right.
//! A bridge. It holds, this time.                 A market. Somebody sells maps.
//!
//! the guide [complete], 2 turns
//! ```
#![allow(clippy::print_stdout)]

use greenroom::{
    Publication, PublishedSession, Runtime, SessionId,
    actors::host::NewRoot,
    session::{
        event::{Body, Role, SurfaceMessage, TurnEnd},
        id::MessageId,
        message::{Block, Source, text_of},
    },
};

type Failure = Box<dyn std::error::Error>;

/// Plays one turn: what is asked, and what this program answers.
async fn turn(session: &PublishedSession, asked: &str, answer: &str) -> Result<u64, Failure> {
    let Body::TurnStart { turn, .. } = session.begin_turn(asked, None).await?.body else { return Err("a turn begins with its start".into()) };
    let source = Source::Agent { name: "guide".into() };
    let message = SurfaceMessage { id: MessageId::new(format!("answer {turn}"))?, role: Role::Assistant, content: vec![Block::text(answer)], source };
    session.append(Body::AssistantMessage { turn, step: 0, message, usage: None, stop: None })?;
    Ok(session.append(Body::TurnEnd { turn, reason: TurnEnd::Completed })?.seq)
}

fn said(session: &PublishedSession) -> Result<Vec<String>, Failure> {
    Ok(session.messages()?.iter().map(|message| text_of(&message.content)).collect())
}

async fn list(runtime: &Runtime) -> Result<(), Failure> {
    for listed in runtime.list(None).await?.entries.iter().filter_map(|entry| entry.listed()) {
        println!("{} [{}], {} turns", listed.label.as_deref().unwrap_or_default(), listed.status.as_str(), listed.turns);
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let runtime = Runtime::builder().open("memory:").await?;
    let road = SessionId::new("road")?;
    let opened = NewRoot::new("guide", "the guide").opened;
    let session = runtime.publish_session(Publication::root(road.clone(), opened)).await?;
    let crossroads = turn(&session, "You stand at a fork in the road.", "Left or right?").await?;
    turn(&session, "I go left.", "A bridge. It holds, this time.").await?;

    let fork = session.fork(Some(crossroads), None).await?;
    let other = runtime.publish_session(Publication::stored(fork.id.clone())).await?;
    turn(&other, "I go right.", "A market. Somebody sells maps.").await?;

    list(&runtime).await?;
    if let Err(error) = runtime.host().send(&road, "Where am I?", None).await {
        println!("somebody else's word to it: {}", error.code());
    }
    println!("\n{:<46} what if\n{:<46} -------", "as it was", "---------");
    for (was, might) in said(&session)?.iter().zip(said(&other)?) {
        println!("{was:<46} {might}");
    }
    println!();
    for session in [other, session] {
        session.end().await?;
    }
    list(&runtime).await?;
    runtime.shutdown().await;
    Ok(())
}
