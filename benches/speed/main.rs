//! Speed: every figure beside a floor that is measured in the same run.
//!
//! `cargo bench --bench speed` prints one table; `-- NAME...` runs only these parts: `idle`, `memory`, `turns`, `accept`, `single`,
//! `listing`, `transfer`, `check`, `jsonl`, `review`. `GREENROOM_BENCH_SCALE` (default 1) makes every part longer or shorter. The exit code says nothing about the
//! figures.
//! What they mean stands in `docs/performance.md`.

#![expect(clippy::print_stdout, reason = "the table is the result")]

mod accept;
mod check;
mod floor;
mod idle;
mod jsonl;
mod listing;
mod measure;
mod review;
mod table;
mod transfer;
mod turns;

use measure::Outcome;
use table::{Row, Table};

type Part = fn(f64) -> Outcome<Vec<Row>>;

/// The parts in their order. Idle sessions come first: what a later part frees would hide what they take.
const PARTS: [(&str, Part); 10] = [
    ("idle", idle::idle),
    ("memory", accept::memory),
    ("turns", turns::turns),
    ("accept", accept::many_senders),
    ("single", accept::one_sender),
    ("listing", listing::listing),
    ("transfer", transfer::transfer),
    ("jsonl", jsonl::jsonl),
    ("check", check::check),
    ("review", review::review),
];

fn main() -> Outcome {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if let Some(unknown) = wanted.iter().find(|name| PARTS.iter().all(|(part, _)| part != name)) {
        return Err(format!("there is no part {unknown:?}").into());
    }
    let scale = match std::env::var("GREENROOM_BENCH_SCALE") {
        Ok(text) => text.parse()?,
        Err(_) => 1.0,
    };
    let mut rows = Vec::new();
    for (name, part) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            rows.extend(part(scale)?);
        }
    }
    println!("{}", Table(rows));
    Ok(())
}
