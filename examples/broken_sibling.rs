//! Damaged children among healthy ones: a listing shows them as diagnostics, and their siblings work on.
//!
//! Three of five reporters are damaged behind the runtime's back, each in another place, by plain SQL. A listing looks at headers and at rows that are derived
//! from the logs, so it sees one of the three; one that verifies reads the logs and sees the others. Nobody is woken for either.
//!
//! ```text
//! cargo run --example broken_sibling
//! ```
//!
//! prints
//!
//! ```text
//! damaged: the header of Oslo, what was said in Porto; an event of Riga is gone
//!
//! listed:
//!   Lyon   [complete]
//!   Oslo   [diagnostic: corrupt]
//!   Porto  [complete]
//!   Riga   [complete]
//!   Turin  [complete]
//! verified:
//!   Lyon   [complete]
//!   Oslo   [diagnostic: corrupt]
//!   Porto  [diagnostic: corrupt]
//!   Riga   [diagnostic: corrupt]
//!   Turin  [complete]
//! told everybody of the rain:
//!   Lyon   It is raining in Lyon.
//!   Oslo   not accepted [NOT_RESUMABLE]: subagent "…" is unavailable: session … is damaged at header: checksum mismatch
//!   Porto  accepted, waits [SESSION_QUERY_CORRUPT_SESSION]: session … is damaged: event 4: checksum mismatch
//!   Riga   accepted, waits [SESSION_QUERY_CORRUPT_SESSION]: session … is damaged: event 3: misplaced record: the event is missing
//!   Turin  It is raining in Turin.
//! ```
#![allow(clippy::print_stdout)]

use std::path::Path;

use greenroom::{Delegate, Entry, OpenError, Runtime, SessionId, Turn, TurnEnd, actors::query::Page};
use tokio_util::sync::CancellationToken;

const CITIES: [&str; 5] = ["Lyon", "Oslo", "Porto", "Riga", "Turin"];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("greenroom-broken-sibling-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("desk.db");
    let (desk, reporters) = hire(&file).await?;
    damage(&file, &reporters)?;
    work_on(&file, &desk, &reporters).await?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

async fn open(file: &Path) -> Result<Runtime, OpenError> {
    let builder = Runtime::builder().closure("desk", |_turn: Turn| async { Ok(TurnEnd::Completed) });
    let builder = builder.closure("reporter", |turn: Turn| async move {
        turn.say(format!("It is {} in {}.", turn.text(), turn.label().unwrap_or_default()))?;
        Ok(TurnEnd::Completed)
    });
    builder.open(&format!("sqlite:{}", file.display())).await
}

/// A desk and its reporters, who serve a first message and settle.
async fn hire(file: &Path) -> Result<(SessionId, Vec<SessionId>), Box<dyn std::error::Error>> {
    let runtime = open(file).await?;
    let root = runtime.root("desk", "a desk").await?;
    let mut reporters = Vec::new();
    for city in CITIES {
        reporters.push(root.agent().start_continuable(Delegate::new("reporter", city, "sunny")).await?.child);
    }
    root.quiescent().await?;
    let desk = root.id().clone();
    runtime.shutdown().await;
    Ok((desk, reporters))
}

/// Does what a failing disk or a careless hand could do.
fn damage(file: &Path, reporters: &[SessionId]) -> Result<(), rusqlite::Error> {
    let db = rusqlite::Connection::open(file)?;
    let [_, oslo, porto, riga, _] = reporters else { return Ok(()) };
    db.execute("UPDATE session SET header = replace(header, '\"depth\":1', '\"depth\":7') WHERE id = ?1", [oslo.as_str()])?;
    db.execute("UPDATE event SET body = replace(body, 'sunny', 'foggy') WHERE sid = (SELECT sid FROM session WHERE id = ?1)", [porto.as_str()])?;
    db.execute("DELETE FROM event WHERE seq = 3 AND sid = (SELECT sid FROM session WHERE id = ?1)", [riga.as_str()])?;
    println!("damaged: the header of Oslo, what was said in Porto; an event of Riga is gone\n");
    Ok(())
}

async fn work_on(file: &Path, desk: &SessionId, reporters: &[SessionId]) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = open(file).await?;
    for verify in [false, true] {
        println!("{}:", if verify { "verified" } else { "listed" });
        let mut entries = runtime.host().list(Some(desk), Page::default(), verify, CancellationToken::new()).await?.entries;
        entries.sort_by_key(|entry| city_of(entry.id(), reporters));
        for entry in entries {
            let city = city_of(entry.id(), reporters);
            match entry {
                Entry::Root(listed) | Entry::Child(listed) => println!("  {city:<6} [{}]", listed.status.as_str()),
                Entry::Diagnostic { reason, .. } => println!("  {city:<6} [diagnostic: {}]", reason.as_str()),
            }
        }
    }

    let root = runtime.resume(desk).await?;
    println!("told everybody of the rain:");
    for reporter in reporters {
        let accepted = root.agent().followup(reporter, "raining").await;
        root.quiescent().await?;
        let answer = match (&accepted, runtime.last_answer(reporter).await) {
            (Err(refused), _) => format!("not accepted [{}]: {refused}", refused.code()),
            (Ok(_), Err(damaged)) => format!("accepted, waits [{}]: {damaged}", damaged.code()),
            (Ok(_), Ok(said)) => said.unwrap_or_default(),
        };
        println!("  {:<6} {}", city_of(reporter, reporters), answer.replace(reporter.as_str(), "…"));
    }
    runtime.shutdown().await;
    Ok(())
}

fn city_of<'a>(id: &SessionId, reporters: &[SessionId]) -> &'a str {
    reporters.iter().zip(CITIES).find(|(reporter, _)| *reporter == id).map_or("?", |(_, city)| city)
}
