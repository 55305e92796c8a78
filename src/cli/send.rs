//! `greenroom send`: the message of a session's next turn.

use std::{io::Read, time::Duration};

use clap::Args;
use greenroom::{
    Entry, MessageId, SessionId,
    actors::catalog::read_entry,
    program::parse_duration,
    session::{
        clock::{Clock, IdSource, RandomIds, SystemClock},
        descriptor::Mode,
        event::TurnEnd,
        limits::MAX_MESSAGE_BYTES,
        listing::Reason,
        message::{Message, MessageError, Source},
        store::{Accept, Done, Op, Reader, Refused, Store},
        text::Escaped,
    },
    store_url::StoreUrl,
};
use serde_json::json;

use super::{
    codes::Exit,
    failure::Failure,
    log::LogReader,
    session::resolve,
    store,
    terminal::Terminal,
    wait::{Served, until_served},
};

/// Send a session the message of its next turn.
///
/// The message is on disk when this returns; whoever runs the session serves it, now or later. Nothing is run here.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  greenroom send 7f3a 'One more fact.'\n  date | greenroom send 7f3a - --wait --timeout 30s")]
pub(crate) struct SendArgs {
    /// The receiver, by its id or a unique beginning of it.
    #[arg(value_name = "ID")]
    id: String,
    /// What to say; `-` reads it from stdin, without one line feed at its end.
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: String,
    /// The message's id: the same id with the same text again is the same message.
    #[arg(long, value_name = "M")]
    message_id: Option<String>,
    /// Wait until the message's turn has ended, and print the answer. Exit 1 if the turn failed.
    #[arg(long)]
    wait: bool,
    /// How long to wait, such as `30s`; for ever without it.
    #[arg(long, value_name = "DUR", requires = "wait", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

impl SendArgs {
    /// Sends.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        let text = self.text()?;
        let store = store::writer(url)?;
        let sent = self.send(&*store, text, terminal);
        if let Err(error) = store.close() {
            tracing::debug!(%error, "the store could not be closed");
        }
        sent
    }

    fn send(&self, store: &dyn Store, text: String, terminal: &mut Terminal) -> Result<(), Failure> {
        let mut reader = store.reader()?;
        let receiver = resolve(&mut *reader, &self.id)?;
        check_receiver(&mut *reader, &receiver)?;
        let id = match &self.message_id {
            Some(id) => MessageId::new(id)?,
            None => MessageId::from_uuid(RandomIds.uuid()),
        };
        let message = Message::turn(&id, text, Source::User, SystemClock.now_ms())?;
        accept(store, &receiver, message)?;
        if !terminal.is_json() {
            terminal.line(format_args!("message queued as the next turn for subagent {}", Escaped(receiver.as_str())))?;
            terminal.flush()?;
        } else if !self.wait {
            return terminal.json(&json!({"message_id": id}));
        }
        if !self.wait {
            return Ok(());
        }
        // From the beginning: a message that had been accepted before may have had its turn.
        let served = until_served(&mut LogReader::new(&mut *reader, receiver.clone(), 0), &id, self.timeout)?;
        finish(served, &receiver, &id, &mut *reader, terminal)
    }

    fn text(&self) -> Result<String, Failure> {
        let mut text = if self.text == "-" { read_stdin()? } else { self.text.clone() };
        if self.text == "-" && text.ends_with('\n') {
            text.pop();
        }
        if text.is_empty() { Err(Failure::new("MESSAGE_EMPTY", "the message is empty")) } else { Ok(text) }
    }
}

/// Reads no more than a message may hold, and one byte.
fn read_stdin() -> Result<String, Failure> {
    let most = MAX_MESSAGE_BYTES + 1;
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(most as u64 + 1).read_to_end(&mut bytes).map_err(|error| Failure::new("USAGE", format!("stdin cannot be read: {error}")))?;
    if bytes.len() > most {
        return Err(MessageError::TooLarge(bytes.len()).into());
    }
    String::from_utf8(bytes)
        .map_err(|error| Failure::new("USAGE", format!("stdin is not UTF-8: the first bad byte is at offset {}", error.utf8_error().valid_up_to())))
}

/// Refuses what takes no messages. A session whose agent nobody knows now is no such thing: its messages wait.
fn check_receiver(reader: &mut dyn Reader, id: &SessionId) -> Result<(), Failure> {
    let refuse = |why: &str| Err(Failure::new("NOT_RESUMABLE", format!("session {id} takes no messages: {why}")));
    match read_entry(reader, id)? {
        Some(Entry::Child(listed)) if listed.mode == Mode::OneShot => refuse("it is a one-shot child"),
        Some(Entry::Root(_) | Entry::Child(_)) => Ok(()),
        Some(Entry::Diagnostic { reason: Reason::Corrupt, .. }) => Err(Failure::new("SESSION_CORRUPT", format!("session {id} is damaged"))),
        Some(Entry::Diagnostic { reason: Reason::Unsupported, .. }) => refuse("a newer greenroom wrote it"),
        Some(Entry::Diagnostic { reason: Reason::Unavailable, .. }) => Err(Failure::new("STORE_FAILED", format!("session {id} cannot be read now"))),
        None => refuse("it is no subagent"),
    }
}

fn accept(store: &dyn Store, receiver: &SessionId, message: Message) -> Result<(), Failure> {
    let accept = Op::Accept(Accept::new(receiver.clone(), message));
    match store.commit(&[accept])?.pop() {
        Some(Ok(Done::Accepted { .. })) => Ok(()),
        Some(Err(refused @ Refused::Invalid { code: "EVENT_TOO_LARGE", .. })) => Err(Failure::new("MESSAGE_TOO_LARGE", refused.to_string())),
        Some(Err(refused)) => Err(refused.into()),
        other => Err(Failure::new("INDETERMINATE", format!("the store answered {other:?}"))),
    }
}

/// Says what became of the message, once it is known.
fn finish(served: Option<Served>, receiver: &SessionId, id: &MessageId, reader: &mut dyn Reader, terminal: &mut Terminal) -> Result<(), Failure> {
    let failed = |code: String, message: String| Failure::new(code, message).exit(Exit::Failed).fact("message_id", json!(id));
    match served {
        Some(Served::Ended { turn, reason, answer }) => {
            let code = reason.error_code();
            if terminal.is_json() {
                let outcome = reason.as_str();
                terminal.json(&json!({"message_id": id, "turn": turn, "outcome": outcome, "code": code, "answer": answer}))?;
            } else if let Some(answer) = answer {
                terminal.said(&answer)?;
            }
            terminal.flush()?;
            match &reason {
                TurnEnd::Completed => Ok(()),
                TurnEnd::Error { code, message } => Err(failed(code.clone(), format!("turn {turn} failed: {message}")).answered()),
                TurnEnd::Aborted { cause } => Err(failed("TURN_FAILED".to_owned(), format!("turn {turn} was aborted: {cause}")).answered()),
                other => Err(failed("TURN_FAILED".to_owned(), format!("turn {turn} ended as {}", other.as_str())).answered()),
            }
        }
        Some(Served::Withdrawn) => Err(failed("MESSAGE_WITHDRAWN".to_owned(), format!("message {id} was taken back"))),
        None => {
            let held = reader.leases(None)?.iter().any(|lease| lease.alive && lease.session == *receiver);
            let failure = Failure::new("TIMED_OUT", format!("message {id} is accepted, but its turn has not ended in time")).fact("message_id", json!(id));
            Err(if held {
                failure
            } else {
                failure.help("nobody runs the session now: `greenroom run FILE.toml --root ROOT` serves it, and the message waits until then")
            })
        }
    }
}
