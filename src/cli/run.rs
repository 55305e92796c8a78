//! `greenroom run`: plays a program file.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use greenroom::{
    program::{Program, parse_duration},
    run::{Prompt, RunError, RunOptions, RunReport},
    session::{event::TurnEnd, text::Escaped},
    store_url::StoreUrl,
};

use super::{
    codes::Exit,
    failure::Failure,
    progress::{Progress, summary},
    session::resolve,
    store,
    terminal::Terminal,
};

/// Run a program file: open its root, give it the prompt, and go on until nobody in the tree has anything to do.
///
/// stdout gets the root's last answer and nothing else. What a run that was cut off has left is taken up again with --root.
///
/// Exit 1 if the turn of the root's last message failed or was aborted, or if a session has work and cannot run. Later turns that only take notes, of what
/// children have done, do not make a failure good.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  greenroom run examples/review.toml --set dir=src\n  greenroom run examples/review.toml --root 7f3a")]
pub(crate) struct RunArgs {
    /// The program file.
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Go on with this root instead of a new one, by its id or a unique beginning of it.
    #[arg(long, value_name = "ID")]
    root: Option<String>,
    /// What to ask the root, in place of the program's own prompt.
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Give one of the program's variables another value.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_set)]
    set: Vec<(String, String)>,
    /// Run deterministically: the same program and seed on an empty store leave the same logs. For programs whose agents are all scripts; their sleeps take no
    /// time.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Stop after this time, such as `5m`. What is pending stays pending.
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

pub(crate) fn parse_set(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

impl RunArgs {
    /// Runs.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        let program = Program::load(&self.file)?;
        let mut options = RunOptions::new(url.clone(), current_folder()?);
        if let Some(root) = &self.root {
            options.root = Some(resolve(&mut *store::reader(url)?, root)?);
        }
        if let Some(prompt) = &self.prompt {
            options.prompt = Prompt::Text(prompt.clone());
        }
        options.sets.clone_from(&self.set);
        options.seed = self.seed;
        options.timeout = self.timeout;
        let report = play(&program, options, terminal)?;
        if let (false, Some(answer)) = (terminal.is_json(), &report.answer) {
            terminal.said(answer)?;
            terminal.flush()?;
        }
        if report.exit_code() != 0 {
            return Err(unfinished(&report).answered(&report));
        }
        if terminal.is_json() { terminal.json(&report) } else { Ok(()) }
    }
}

/// Plays a program, showing on stderr how it goes and what it came to.
pub(crate) fn play(program: &Program, mut options: RunOptions, terminal: &Terminal) -> Result<RunReport, Failure> {
    options.heed_signals = true;
    let progress = Progress::new(terminal);
    let made = match options.seed {
        Some(_) => greenroom::seeded::runtime(),
        None => tokio::runtime::Builder::new_multi_thread().enable_all().build(),
    };
    let runtime = made.map_err(|error| Failure::new("STORE_FAILED", format!("the system gives no threads: {error}")))?;
    let done = runtime.block_on(greenroom::run::run(program, &options, &progress));
    progress.end();
    // A thread that a command or a disk holds up must not hold up the end.
    runtime.shutdown_background();
    let report = done.map_err(|error| failed(error, program, &progress))?;
    for stuck in &report.stuck {
        terminal.remark(format_args!("{} has work and cannot run [{}]: {}", Escaped(stuck.session.as_str()), stuck.code, Escaped(&stuck.reason)));
    }
    terminal.remark(summary(&report));
    Ok(report)
}

fn failed(error: RunError, program: &Program, progress: &Progress) -> Failure {
    let exit = match &error {
        RunError::Signalled(1) => Some(Exit::HungUp),
        RunError::Signalled(15) => Some(Exit::Terminated),
        RunError::Signalled(_) => Some(Exit::Interrupted),
        _ => None,
    };
    let goes_on = matches!(error, RunError::Signalled(_) | RunError::TimedOut(_));
    let mut failure = Failure::from(error);
    if let Some(exit) = exit {
        failure = failure.exit(exit);
    }
    if let Some(root) = progress.root() {
        failure = failure.fact("root", root.as_str());
        if goes_on {
            failure = failure.help(format!("`greenroom run {} --root {root}` goes on", program.file_name));
        }
    }
    failure
}

/// Says why a run that has a report is a failure nevertheless.
pub(crate) fn unfinished(report: &RunReport) -> Failure {
    let root = &report.root;
    let failure = match &report.outcome {
        Some(TurnEnd::Error { code, message }) => Failure::new(code.clone(), format!("the turn of the root's last message failed: {message}")),
        Some(TurnEnd::Completed) => match report.stuck.first() {
            Some(stuck) => Failure::new(stuck.code, stuck_line(report.stuck.len())),
            None => Failure::new("TURN_FAILED", "the run did not come to its end"),
        },
        Some(TurnEnd::Aborted { .. }) => Failure::new("TURN_FAILED", "the turn of the root's last message was aborted"),
        Some(other) => Failure::new("TURN_FAILED", format!("the turn of the root's last message ended as {}", other.as_str())),
        None => match report.stuck.first() {
            Some(stuck) => Failure::new(stuck.code, format!("the root cannot run: {}", stuck.reason)),
            None => Failure::new("TURN_FAILED", "the root has had no turn"),
        },
    };
    failure.exit(Exit::Failed).help(format!("`greenroom log {root}` shows what led to it"))
}

fn stuck_line(count: usize) -> String {
    if count == 1 { "1 session has work and cannot run".to_owned() } else { format!("{count} sessions have work and cannot run") }
}

pub(crate) fn current_folder() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| Failure::new("USAGE", format!("the current folder is not known: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stuck_session_is_told_of_as_one() {
        assert_eq!(stuck_line(1), "1 session has work and cannot run");
        assert_eq!(stuck_line(2), "2 sessions have work and cannot run");
    }
}
