//! A stress run: many senders and agents at once over a real runtime and a real store, and an audit of what they have left.
//!
//! A plan, made from a seed, says who sends what to whom, what the receiver does with it, and what the sender takes back or interrupts. The run plays it, if asked to in a process that is killed again and
//! again. What came of it is judged afterwards, from the logs and from what the senders were told, by code that uses neither the fold nor a derived row.
//! `docs/stress.md` says what the audit promises and what the numbers mean.
//!
//! - `plan`: who sends what to whom. `cast`: the agents that play it. `work`: one process's share, senders and runtime.
//! - `run`: a run in this process. `supervisor`: a run in processes that are killed; `pipe`: what a worker and its supervisor say to each other.
//! - `records`: what the senders were told. `trail`: what a log says of each message. `audit`: the one against the other.
//!
//! ```
//! use greenroom::stress::{Progress, StressOptions, stress};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut options = StressOptions::new("memory:".parse()?);
//! (options.agents, options.senders, options.messages, options.seed) = (8, 4, 25, 7);
//! let report = stress(&options, &|_: Progress| {}).await?;
//! assert_eq!((report.accepted, report.served + report.failed + report.withdrawn), (100, 100));
//! assert!(report.is_clean(), "{:?}", report.findings);
//! # Ok(())
//! # }
//! ```

mod audit;
mod cast;
mod error;
mod options;
mod peak;
mod pipe;
mod plan;
mod records;
mod report;
mod run;
mod supervisor;
#[cfg(test)]
mod tests;
mod trail;
mod work;

pub use error::StressError;
pub use options::{Kills, StressOptions};
pub use pipe::worker;
pub use records::Progress;
pub use report::{Fault, Finding, Latency, StressReport};
pub use run::{stress, stress_over};
