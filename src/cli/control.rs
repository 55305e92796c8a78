//! `greenroom interrupt` and `greenroom withdraw`: what can be asked of a session from outside.

use std::time::Duration;

use clap::Args;
use greenroom::{Runtime, actors::error::ControlError, program::parse_duration, session::text::Escaped, store_url::StoreUrl};
use serde_json::json;

use super::{
    failure::Failure,
    session::{resolve, resolve_message},
    store,
    terminal::Terminal,
};

/// How long another process may take to answer if no time is given.
const PATIENCE: &str = "10s";

/// End the turn that a session is in.
///
/// The turn ends as `aborted`, which is final, its command is killed, and the session goes on with what waits. A session that another
/// process runs is asked by a request that stays until it is answered; one whose turn was cut off by a crash or a shutdown is answered here, and the message of that
/// turn is not served again.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  greenroom interrupt 7f3a\n  greenroom interrupt 7f3a --timeout 30s --json")]
pub(crate) struct InterruptArgs {
    /// The session, by its id or a unique beginning of it.
    #[arg(value_name = "ID")]
    id: String,
    /// How long to wait for the answer of a process that runs the session.
    #[arg(long, value_name = "DUR", value_parser = parse_duration, default_value = PATIENCE)]
    timeout: Duration,
}

/// Take a message back that has had no turn yet.
///
/// Whoever waits for the message's turn hears of it. A message that has a turn, whatever became of it, cannot be taken back any more.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  greenroom withdraw 7f3a 0d1c\n  greenroom withdraw 7f3a 0d1c --timeout 30s --json")]
pub(crate) struct WithdrawArgs {
    /// The session, by its id or a unique beginning of it.
    #[arg(value_name = "ID")]
    id: String,
    /// The message, by its id or a unique beginning of it; `greenroom show ID` lists those that wait.
    #[arg(value_name = "MESSAGE_ID")]
    message: String,
    /// How long to wait for the answer of a process that runs the session.
    #[arg(long, value_name = "DUR", value_parser = parse_duration, default_value = PATIENCE)]
    timeout: Duration,
}

impl InterruptArgs {
    /// Interrupts.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        let session = resolve(&mut *store::reader(url)?, &self.id)?;
        let turn = asking(url, async |runtime| runtime.interrupt(&session, self.timeout).await)?;
        if terminal.is_json() {
            terminal.json(&json!({"session": session, "turn": turn, "outcome": "aborted"}))
        } else {
            terminal.line(format_args!("turn {turn} of {} has ended as aborted", Escaped(session.as_str())))
        }
    }
}

impl WithdrawArgs {
    /// Withdraws.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        let mut reader = store::reader(url)?;
        let session = resolve(&mut *reader, &self.id)?;
        let message = resolve_message(&mut *reader, &session, &self.message)?;
        drop(reader);
        asking(url, async |runtime| runtime.withdraw(&session, &message, self.timeout).await)?;
        if terminal.is_json() {
            terminal.json(&json!({"session": session, "message_id": message, "outcome": "withdrawn"}))
        } else {
            terminal.line(format_args!("message {} of {} was taken back", Escaped(message.as_str()), Escaped(session.as_str())))
        }
    }
}

/// Asks by a runtime that plays nobody: it can answer for a session that nobody holds, and no turn begins in it.
fn asking<T>(url: &StoreUrl, ask: impl AsyncFnOnce(&Runtime) -> Result<T, ControlError>) -> Result<T, Failure> {
    let made = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let threads = made.map_err(|error| Failure::new("STORE_FAILED", format!("the system gives no threads: {error}")))?;
    let store = store::writer(url)?;
    let answered = threads.block_on(async {
        let runtime = Runtime::builder().without_query().start(store).await?;
        let answered = ask(&runtime).await;
        runtime.shutdown().await;
        Ok::<_, Failure>(answered)
    });
    threads.shutdown_background();
    answered?.map_err(|error| match error {
        ControlError::TimedOut(_) => {
            Failure::from(error).help("the request stays: whoever runs the session answers it, and the same command again waits for that answer")
        }
        error => error.into(),
    })
}
