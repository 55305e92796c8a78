//! Many senders at once, and an audit that trusts nobody.
//!
//! Senders fill the inboxes of agents that report, delegate, fail and settle meanwhile, take messages back and interrupt turns; afterwards every acknowledged message is looked for in the logs.
//! Once in memory, once in an SQLite file. `greenroom stress` does the same from the command line, and kills the process meanwhile if asked to.
//!
//! ```text
//! cargo run --example stress
//! ```
//!
//! prints a line per store, such as
//!
//! ```text
//! store     accepted  per s  served  failed  withdrawn  p50 us  p99 us  audit
//! memory         800   5555     710      58         32       2      42  clean
//! sqlite         800    609     757      38          5    4315   12767  clean
//! ```
#![allow(clippy::print_stdout)]

use greenroom::stress::{Progress, StressOptions, StressReport, stress};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("store     accepted  per s  served  failed  withdrawn  p50 us  p99 us  audit");
    let memory = play("memory:").await?;
    print_line("memory", &memory);

    let file = std::env::temp_dir().join(format!("greenroom-stress-example-{}.db", std::process::id()));
    let sqlite = play(&format!("sqlite:{}", file.display())).await?;
    print_line("sqlite", &sqlite);
    remove(&file)?;

    // The seed decides what is sent and asked for; what comes too late to be taken back or interrupted is a race.
    for report in [&memory, &sqlite] {
        assert_eq!((report.accepted, report.served + report.failed + report.withdrawn), (800, 800));
    }
    let findings: Vec<String> = memory.findings.iter().chain(&sqlite.findings).map(ToString::to_string).collect();
    if memory.is_clean() && sqlite.is_clean() { Ok(()) } else { Err(format!("the audit found: {}", findings.join("; ")).into()) }
}

async fn play(store: &str) -> Result<StressReport, Box<dyn std::error::Error>> {
    let mut options = StressOptions::new(store.parse()?);
    (options.agents, options.senders, options.messages, options.seed) = (24, 8, 100, 7);
    Ok(stress(&options, &|_: Progress| {}).await?)
}

fn print_line(store: &str, report: &StressReport) {
    let StressReport { accepted, accepted_per_s, served, failed, withdrawn, latency_us, .. } = report;
    let audit = if report.is_clean() { "clean" } else { "not clean" };
    println!("{store:<9} {accepted:>8} {accepted_per_s:>6} {served:>7} {failed:>7} {withdrawn:>10} {:>7} {:>7}  {audit}", latency_us.p50, latency_us.p99);
}

/// Removes the store: its file, and what lies beside it under the file's name.
fn remove(file: &std::path::Path) -> std::io::Result<()> {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) else { return Ok(()) };
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().and_then(|other| other.to_str()).is_some_and(|other| other.starts_with(name)) {
            if path.is_dir() { std::fs::remove_dir_all(&path)? } else { std::fs::remove_file(&path)? }
        }
    }
    Ok(())
}
