//! `greenroom send`: the message of a session's next turn.

use std::{io::Read, path::PathBuf, time::Duration};

use clap::{ArgGroup, Args};
use greenroom::{
    MessageId, SessionId,
    actors::query::read_lineage,
    program::{Program, parse_duration},
    run::{Prompt, RunOptions},
    session::{
        clock::{Clock, IdSource, RandomIds, SystemClock},
        event::TurnEnd,
        limits::MAX_MESSAGE_BYTES,
        listing::{Reason, Verdict},
        message::{Message, MessageError, MessageKind, Source},
        store::{Accept, Done, LoadError, Op, Reader, Store, Traced},
        text::Escaped,
    },
    store_url::StoreUrl,
};
use serde_json::json;

use super::{
    codes::Exit,
    failure::Failure,
    log::LogReader,
    run,
    session::resolve,
    store,
    terminal::Terminal,
    wait::{Served, until_served},
};

/// Send a session the message of its next turn.
///
/// The message is on disk when this returns; whoever runs the session serves it, now or later. Nothing is run here, unless --program says
/// what with.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("goes_on").args(["wait", "program"]).multiple(true))]
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
    #[arg(long, value_name = "DUR", requires = "goes_on", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Run the tree that the receiver stands in with this program, until nobody in it has work.
    #[arg(long, value_name = "FILE.toml")]
    program: Option<PathBuf>,
}

impl SendArgs {
    /// Sends.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        let program = self.program.as_deref().map(Program::load).transpose()?;
        let text = self.text()?;
        let sent = self.send(url, text, program.is_some(), terminal)?;
        if let Some(program) = program {
            sent.play(&program, url, self.timeout, terminal)?;
        }
        if self.wait {
            // A program has had its time; what it has not served by now it will not serve.
            let timeout = if self.program.is_some() { Some(Duration::ZERO) } else { self.timeout };
            sent.wait(url, timeout, terminal)
        } else if terminal.is_json() {
            terminal.json(&json!({"message_id": sent.id}))
        } else {
            Ok(())
        }
    }

    /// Accepts the message, and lets go of the store: a wait needs a reader only.
    fn send(&self, url: &StoreUrl, text: String, with_program: bool, terminal: &mut Terminal) -> Result<Sent, Failure> {
        let store = store::writer(url)?;
        let mut reader = store.reader()?;
        let receiver = resolve(&mut *reader, &self.id)?;
        let held = check_receiver(&mut *reader, &receiver)?;
        let root = if with_program { Some(root_of(&mut *reader, &receiver)?) } else { None };
        let id = match &self.message_id {
            Some(id) => MessageId::new(id)?,
            None => MessageId::from_uuid(RandomIds.uuid()),
        };
        accept(&*store, &receiver, Message::turn(&id, text, Source::User, SystemClock.now_ms())?)?;
        drop(reader);
        if let Err(error) = store.close() {
            tracing::debug!(%error, "the store could not be closed");
        }
        if !terminal.is_json() {
            terminal.line(format_args!("message queued as the next turn for subagent {}", Escaped(receiver.as_str())))?;
            terminal.flush()?;
        }
        if held {
            terminal.remark(format_args!(
                "session {} was imported and is held: the message waits behind what came with it, until `greenroom import DIR --activate`",
                Escaped(receiver.as_str())
            ));
        }
        Ok(Sent { receiver, root, id })
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

/// Refuses what takes no messages, and tells whether what takes them is held. A session whose agent nobody knows now is no such thing: its messages wait.
fn check_receiver(reader: &mut dyn Reader, id: &SessionId) -> Result<bool, Failure> {
    let missing = || LoadError::NotFound(id.clone());
    let header = reader.header(id)?.ok_or_else(missing)?;
    let traced = Traced { id: id.clone(), created_at: header.created_at, header: Ok(header) };
    let description = reader.describe(&[traced], false)?.pop().ok_or_else(missing)??;
    match description.verdict.refuses() {
        None => Ok(description.head.held > 0),
        Some(_) if description.verdict == (Verdict::Broken { reason: Reason::Corrupt }) => {
            Err(Failure::new("SESSION_CORRUPT", format!("session {id} is damaged")))
        }
        Some(why) => Err(Failure::new("NOT_RESUMABLE", format!("session {id} takes no messages: {why}"))),
    }
}

fn accept(store: &dyn Store, receiver: &SessionId, message: Message) -> Result<(), Failure> {
    let accept = Op::Accept(Accept::new(receiver.clone(), message));
    match store.commit(&[accept])?.pop() {
        Some(Ok(Done::Accepted { .. })) => Ok(()),
        Some(Err(refused)) => Err(refused.into()),
        other => Err(Failure::new("INDETERMINATE", format!("the store answered {other:?}"))),
    }
}

/// A message that is accepted.
#[derive(Debug)]
struct Sent {
    receiver: SessionId,
    /// The root of the receiver's tree, where a program is to run it.
    root: Option<SessionId>,
    id: MessageId,
}

impl Sent {
    /// Runs the tree. Whether the root's own last turn went well is not asked: the message may be another session's.
    fn play(&self, program: &Program, url: &StoreUrl, timeout: Option<Duration>, terminal: &Terminal) -> Result<(), Failure> {
        let mut options = RunOptions::new(url.clone(), run::current_folder()?);
        options.root.clone_from(&self.root);
        options.prompt = Prompt::Nothing;
        options.timeout = timeout;
        let report = run::play(program, options, terminal).map_err(|failure| failure.fact("message_id", json!(self.id)))?;
        if report.stuck.is_empty() { Ok(()) } else { Err(run::unfinished(&report).fact("message_id", json!(self.id))) }
    }

    /// Follows the log until the message's turn has ended. From the beginning: a message that had been accepted before may have had its
    /// turn.
    fn wait(&self, url: &StoreUrl, timeout: Option<Duration>, terminal: &mut Terminal) -> Result<(), Failure> {
        let mut reader = store::reader(url)?;
        let unserved = || {
            terminal.remark(format_args!(
                "message {} is accepted and still waits for its turn; if nobody runs the session, `greenroom run FILE.toml --root ROOT` does",
                Escaped(self.id.as_str())
            ));
        };
        let served = until_served(&mut LogReader::new(&mut *reader, self.receiver.clone(), 0), &self.id, timeout, unserved)?;
        let fail = |code: &str, what: String| Failure::new(code.to_owned(), what).fact("message_id", json!(self.id));
        match served {
            Served::Ended { turn, reason, answer } => {
                let document = json!({
                    "message_id": self.id, "turn": turn, "outcome": reason.as_str(), "code": reason.error_code(), "answer": answer,
                });
                if let (false, Some(answer)) = (terminal.is_json(), &answer) {
                    terminal.said(answer)?;
                }
                let failure = match &reason {
                    TurnEnd::Completed if terminal.is_json() => return terminal.json(&document),
                    TurnEnd::Completed => return Ok(()),
                    TurnEnd::Error { code, message } => fail(code, format!("turn {turn} failed: {message}")),
                    TurnEnd::Aborted { cause } => fail("TURN_FAILED", format!("turn {turn} was aborted: {cause}")),
                    other => fail("TURN_FAILED", format!("turn {turn} ended as {}", other.as_str())),
                };
                Err(failure.exit(Exit::Failed).answered(&document))
            }
            Served::Withdrawn => Err(fail("MESSAGE_WITHDRAWN", format!("message {} was taken back", self.id))),
            Served::NotYet { turn } => {
                let held = reader.leases(None)?.iter().any(|lease| lease.alive && lease.session == self.receiver);
                let (state, place) = if let Some(turn) = turn {
                    (format!("turn {turn}, which is its own, has not ended in time"), ("turn", json!(turn)))
                } else {
                    let position = position(&mut *reader, &self.receiver, &self.id)?;
                    (format!("it is number {position} of those that wait"), ("position", json!(position)))
                };
                let failure = fail("TIMED_OUT", format!("message {} is accepted, and {state}", self.id)).fact(place.0, place.1);
                let nobody = "nobody runs the session now: `greenroom run FILE.toml --root ROOT` serves it, and the message waits until then";
                Err(if held { failure } else { failure.help(nobody) })
            }
        }
    }
}

/// Tells how many messages come before a message gets its turn, itself included.
fn position(reader: &mut dyn Reader, receiver: &SessionId, id: &MessageId) -> Result<usize, Failure> {
    let waiting = reader.inbox(receiver, usize::MAX)?;
    let turns = waiting.iter().filter(|record| record.message.kind == MessageKind::Turn);
    Ok(1 + turns.take_while(|record| record.message.id != *id).count())
}

/// Goes up to the root of the tree that a session stands in.
fn root_of(reader: &mut dyn Reader, id: &SessionId) -> Result<SessionId, Failure> {
    let lineage = read_lineage(reader, id)?;
    match lineage.unresolved_parent {
        None => Ok(lineage.ancestors.last().unwrap_or(&lineage.target).id.clone()),
        Some(missing) => Err(Failure::new("NOT_A_ROOT", format!("the tree of session {id} has lost its root: {missing} is not in the store"))),
    }
}
