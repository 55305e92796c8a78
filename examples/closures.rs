//! A hundred agents from closures: a root asks a hundred children for a guess, and gathers what they report.
//!
//! Each sees the jar with an error of its own. Few are close; their mean is closer than almost anybody. Chance and time come from a seed, so the output is
//! the same every time.
//!
//! ```text
//! cargo run --example closures
//! ```
//!
//! prints
//!
//! ```text
//! 100 guesses from 722 to 2891; their mean is 1825, there are 1807; 4 of them were closer
//! live sessions now: 1 (the root); children on record: 100
//! ```
#![allow(clippy::print_stdout)]

use std::time::Duration;

use greenroom::{Delegate, Runtime, Turn, TurnEnd, TurnError, rand::RngExt, seeded, session::message::text_of};

/// What is in the jar.
const BEANS: u32 = 1_807;
const GUESSERS: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    seeded::block_on(gather())?
}

async fn gather() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().closure("host", ask_around).closure("guesser", guess).seed(1).open("memory:").await?;
    let root = runtime.root("host", "how many beans?").await?;
    root.send("How many beans are in the jar?").await?;
    root.quiescent().await?;

    println!("{}", runtime.last_answer(root.id()).await?.unwrap_or_default());
    println!("live sessions now: {} (the root); children on record: {}", runtime.host().live_count(), runtime.list(Some(root.id())).await?.entries.len());
    runtime.shutdown().await;
    Ok(())
}

/// Serves one message: asks everybody, goes on when all have settled, and says what they reported.
async fn ask_around(turn: Turn) -> Result<TurnEnd, TurnError> {
    for number in 1..=GUESSERS {
        turn.delegate(Delegate::new("guesser", format!("guesser {number}"), turn.text())).await?;
    }
    turn.await_children().await?;

    let notes = turn.notes();
    let reports = notes.iter().filter(|note| note.source.kind() == "subagent-report");
    let mut guesses: Vec<u32> = reports.filter_map(|report| text_of(&report.content).parse().ok()).collect();
    guesses.sort_unstable();
    let mean = guesses.iter().sum::<u32>() / u32::try_from(guesses.len()).unwrap_or(u32::MAX).max(1);
    let closer = guesses.iter().filter(|guess| guess.abs_diff(BEANS) < mean.abs_diff(BEANS)).count();
    turn.say(format!(
        "{} guesses from {} to {}; their mean is {mean}, there are {BEANS}; {closer} of them were closer",
        guesses.len(),
        guesses.first().copied().unwrap_or_default(),
        guesses.last().copied().unwrap_or_default(),
    ))?;
    Ok(TurnEnd::Completed)
}

/// Serves one message: thinks for a while, which takes no time here, and reports a guess.
async fn guess(turn: Turn) -> Result<TurnEnd, TurnError> {
    let mut rng = turn.rng();
    tokio::time::sleep(Duration::from_secs(rng.random_range(1..=60))).await;
    let guess = BEANS * rng.random_range(40..=160) / 100;
    turn.report(guess.to_string(), true).await?; // quiet: the root waits for all and need not be woken for one
    Ok(TurnEnd::Completed)
}
