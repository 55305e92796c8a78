//! `greenroom stress`: the stress run and its audit.

use std::{ffi::OsString, future::Future, ops::RangeInclusive, time::Duration};

use clap::Args;
use greenroom::{
    program::parse_duration,
    session::clock::{IdSource, RandomIds},
    store_url::StoreUrl,
    stress::{Kills, Progress, StressError, StressOptions, StressReport, stress, worker},
};
use tempfile::TempDir;

use super::{
    bar::{Bar, Unit},
    codes::Exit,
    failure::Failure,
    paint::{Paint, Role},
    span,
    terminal::Terminal,
};

/// Most findings that the failure itself names.
const NAMED: usize = 3;

/// Send to many agents at once, kill the process if asked to, and audit the logs afterwards.
///
/// Every acknowledged message must have ended in exactly one turn or been taken back, each sender's in its order; else the exit is 1. Without --store the
/// sessions are kept in an SQLite file in the system's temporary folder, which is removed afterwards; `GREENROOM_STORE` does not count. A store that is named
/// keeps the run's sessions, under a root of their own, beside whatever it has.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  greenroom stress\n  greenroom stress --kill-every 50..200 --seed 7\n  greenroom stress --store memory: --agents 1000 --messages 5000"
)]
pub(crate) struct StressArgs {
    /// How many agents are sent to.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    agents: u32,
    /// How many messages each sender sends.
    #[arg(long, value_name = "M", default_value_t = 500)]
    messages: u32,
    /// How many senders send at once.
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    senders: u32,
    /// How many bytes a message has: one number, or a range.
    #[arg(long, value_name = "BYTES|MIN..MAX", default_value = "64..512", value_parser = parse_range)]
    size: Range,
    /// Run the sessions in another process and kill it with SIGKILL after so many milliseconds, again and again.
    #[arg(long, value_name = "MIN..MAX", value_parser = parse_range)]
    kill_every: Option<Range>,
    /// Go on until there were so many kills, however many messages that takes; then come to the end.
    #[arg(long, value_name = "N", requires = "kill_every", conflicts_with = "messages", value_parser = clap::value_parser!(u64).range(1..))]
    kills: Option<u64>,
    /// Decides who sends what to whom, and the sizes, but not in which order things happen. A random one if left out; the report names it.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Stop after this time, such as `90s`, and audit what is there by then.
    #[arg(long, value_name = "DUR", default_value = "5m", value_parser = parse_duration)]
    timeout: Duration,
    /// Be the process that is killed, whatever else is asked for.
    #[arg(long, hide = true)]
    worker: bool,
}

/// A range that includes both its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    least: u32,
    most: u32,
}

fn parse_range(text: &str) -> Result<Range, String> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    match (least.parse(), most.parse()) {
        (Ok(least), Ok(most)) if least <= most => Ok(Range { least, most }),
        (Ok(least), Ok(most)) => Err(format!("{least} is more than {most}")),
        _ => Err("expected a number, or MIN..MAX".to_owned()),
    }
}

impl StressArgs {
    /// Runs, over the store that was typed or a temporary one.
    pub(crate) fn execute(&self, typed: Option<&StoreUrl>, terminal: &mut Terminal) -> Result<(), Failure> {
        if self.worker {
            let output = terminal.pipe();
            return on_runtime(worker(tokio::io::stdin(), output))?.map_err(Failure::from);
        }
        if self.kill_every.is_some() && typed == Some(&StoreUrl::Memory) {
            let failure = Failure::new("USAGE", "--kill-every needs a store that outlives its process, and `memory:` does not");
            return Err(failure.help("name a store in a file with --store, or leave --store out"));
        }
        // Removed when this function is left, whatever the run came to.
        let temporary = if typed.is_none() { Some(temporary_folder()?) } else { None };
        let store = match (typed, &temporary) {
            (Some(url), _) => url.clone(),
            (None, Some(folder)) => StoreUrl::Sqlite(folder.path().join("stress.db")),
            (None, None) => StoreUrl::Memory,
        };
        let options = self.options(store, terminal)?;
        let bar = match self.kills {
            Some(kills) => Bar::new(terminal, Unit::Of("kills"), kills),
            None => Bar::new(terminal, Unit::Of("messages"), u64::from(self.senders) * u64::from(self.messages)),
        };
        let observe = |progress: Progress| {
            bar.stand(if self.kills.is_some() { progress.kills } else { progress.accepted });
            let kills = if self.kill_every.is_some() { format!(", {}", span::count(progress.kills, "kill")) } else { String::new() };
            bar.say(format_args!("{}{kills}", span::count(progress.turns, "turn")));
        };
        let report = on_runtime(stress(&options, &observe))?;
        drop(bar);
        let report = report.map_err(failed)?;
        if !terminal.is_json() {
            let paint = terminal.paint();
            for line in table(&report, paint) {
                terminal.line(line)?;
            }
        }
        terminal.flush()?;
        drop(temporary);
        if !report.is_clean() {
            return Err(unclean(&report).answered(&report));
        }
        if terminal.is_json() { terminal.json(&report) } else { Ok(()) }
    }

    fn options(&self, store: StoreUrl, terminal: &Terminal) -> Result<StressOptions, Failure> {
        let mut options = StressOptions::new(store);
        (options.agents, options.senders, options.messages) = (self.agents, self.senders, self.messages);
        options.size = self.size.least..=self.size.most;
        options.seed = self.seed.unwrap_or_else(random_seed);
        options.timeout = Some(self.timeout);
        options.heed_signals = true;
        if let Some(every) = self.kill_every {
            let ms = |ms| Duration::from_millis(u64::from(ms));
            options.kills =
                Some(Kills { every: RangeInclusive::new(ms(every.least), ms(every.most)), until: self.kills, worker: worker_command(terminal.verbose())? });
        }
        Ok(options)
    }
}

/// Returns a seed that is easily typed.
fn random_seed() -> u64 {
    RandomIds.uuid().as_u64_pair().0 >> 32
}

fn worker_command(verbose: u8) -> Result<Vec<OsString>, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::new("STRESS_FAILED", format!("this program's own file is not known: {error}")))?;
    let mut command = vec![program.into_os_string()];
    command.extend((0..verbose).map(|_| OsString::from("-v")));
    command.extend(["stress", "--worker"].map(OsString::from));
    Ok(command)
}

fn temporary_folder() -> Result<TempDir, Failure> {
    let folder = tempfile::Builder::new().prefix("greenroom-stress-").tempdir();
    folder.map_err(|error| Failure::new("STORE_FAILED", format!("there is no room for a temporary store: {error}")))
}

fn on_runtime<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let made = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = made.map_err(|error| Failure::new("STORE_FAILED", format!("the system gives no threads: {error}")))?;
    let done = runtime.block_on(work);
    // Neither a read of stdin nor a disk may hold up the end.
    runtime.shutdown_background();
    Ok(done)
}

fn failed(error: StressError) -> Failure {
    let exit = match &error {
        StressError::Signalled(1) => Some(Exit::HungUp),
        StressError::Signalled(15) => Some(Exit::Terminated),
        StressError::Signalled(_) => Some(Exit::Interrupted),
        _ => None,
    };
    let failure = Failure::from(error);
    match exit {
        Some(exit) => failure.exit(exit).help("nothing was audited; a run that is to be shorter takes --messages or --timeout"),
        None => failure,
    }
}

/// Says why a run that has a report is a failure nevertheless.
fn unclean(report: &StressReport) -> Failure {
    let StressReport { lost, duplicated, order_violations, pending, findings, .. } = report;
    let mut message = format!("{lost} lost, {duplicated} duplicated, {order_violations} out of order, {pending} pending");
    if report.timed_out {
        message.push_str("; the run was cut off by its timeout");
    }
    for finding in findings.iter().take(NAMED) {
        message.push_str("\n  ");
        message.push_str(&finding.to_string());
    }
    if findings.len() > NAMED {
        message.push_str("\n  and more");
    }
    let failure = Failure::new("AUDIT_FAILED", message);
    if report.timed_out && findings.is_empty() { failure.help("give it more time with --timeout, or less to do with --messages") } else { failure }
}

/// Writes a report for a person.
fn table(report: &StressReport, paint: Paint) -> Vec<String> {
    let bad = |count: u64| if count == 0 { paint.show(Role::Aside, "0".to_owned()).to_string() } else { paint.show(Role::Bad, count.to_string()).to_string() };
    let mut rows = vec![
        ("accepted", format!("{}  ({} per s)", report.accepted, report.accepted_per_s)),
        ("served", format!("{}  ({} per s, failed ones included)", report.served, report.turns_per_s)),
        ("failed", format!("{}  ({} interrupted)", report.failed, report.interrupted)),
        ("withdrawn", report.withdrawn.to_string()),
        ("pending", bad(report.pending)),
        ("lost", bad(report.lost)),
        ("duplicated", bad(report.duplicated)),
        ("out of order", bad(report.order_violations)),
    ];
    let latency = report.latency_us;
    rows.push(("latency", format!("p50 {}, p99 {}, p99.9 {}", micros(latency.p50), micros(latency.p99), micros(latency.p999))));
    rows.push(("time", span::span(report.wall_ms)));
    if let Some(peak) = report.peak_rss_bytes {
        rows.push(("peak memory", span::bytes(peak)));
    }
    let audited = if report.audits > 0 { format!("  ({}, one after each)", span::count(report.audits, "audit")) } else { String::new() };
    rows.push(("kills", format!("{}{audited}", report.kills)));
    let (sessions, epochs) = (span::count(report.sessions, "session"), span::count(report.epochs, "epoch"));
    rows.push(("in all", format!("{sessions}, {epochs}, {}, {}", span::count(report.turns, "turn"), retries(report.retries))));
    rows.push(("full inboxes", report.busy.to_string()));
    rows.push(("seed", report.seed.to_string()));
    let verdict = if report.is_clean() {
        paint.show(Role::Good, "clean: every acknowledged message ended in exactly one turn or was taken back, in order").to_string()
    } else {
        paint.show(Role::Bad, "not clean").to_string()
    };
    rows.push(("audit", verdict));
    rows.into_iter().map(|(name, value)| format!("{name:<14}{value}")).collect()
}

fn retries(count: u64) -> String {
    if count == 1 { "1 retry".to_owned() } else { format!("{count} retries") }
}

/// Writes microseconds with about three digits: `870 us`, `4.31 ms`, `1.20 s`.
fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{}.{:02} ms", us / 1_000, us % 1_000 / 10),
        _ => format!("{}.{:02} s", us / 1_000_000, us % 1_000_000 / 10_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_number_or_two_in_order() {
        assert_eq!(parse_range("64"), Ok(Range { least: 64, most: 64 }));
        assert_eq!(parse_range("0..512"), Ok(Range { least: 0, most: 512 }));
        for text in ["", "..", "5..", "..5", "9..5", "a..b", "-1..5", "1...5", "1..=5"] {
            assert!(parse_range(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn latencies_keep_three_digits() {
        assert_eq!([0, 870, 4_315, 1_203_000].map(micros), ["0 us", "870 us", "4.31 ms", "1.20 s"]);
        assert_eq!([0, 1, 2].map(retries), ["0 retries", "1 retry", "2 retries"]);
    }
}
