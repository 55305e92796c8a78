//! `greenroom show`: everything about one session but its transcript.

use clap::Args;
use greenroom::{
    Entry, SessionId, Status,
    actors::catalog::read_entry,
    session::{
        clock::{Clock, SystemClock},
        codec::encode_event,
        event::Body,
        message::InboxRecord,
        store::{Log, Reader},
        text::{Escaped, label_from},
    },
    store_url::StoreUrl,
};
use serde_json::{Value, json};

use super::{
    entry::{self, SCHEMA_VERSION},
    failure::Failure,
    paint::Role,
    session::resolve,
    span, store,
    terminal::Terminal,
    transcript::name_of,
};

/// Most forks that are named one by one.
const MOST_FORKS: usize = 10;

/// Show one session: its header, what it is, what it does, which forks it has, and which messages wait.
///
/// Wakes nobody and writes nothing. Reads the whole log.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  greenroom show 7f3a\n  greenroom show 7f3a --json")]
pub(crate) struct ShowArgs {
    /// The session, by its id or a unique beginning of it.
    #[arg(value_name = "ID")]
    id: String,
}

impl ShowArgs {
    /// Shows.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        let mut reader = store::reader(url)?;
        let id = resolve(&mut *reader, &self.id)?;
        let shown = Shown::read(&mut *reader, &id, SystemClock.now_ms())?;
        if terminal.is_json() {
            return terminal.json(&shown.json());
        }
        for (name, value) in shown.rows() {
            let name = terminal.paint().show(Role::Aside, format_args!("{name:<12}")).to_string();
            terminal.line(format_args!("{name}{value}"))?;
        }
        Ok(())
    }
}

/// What is shown.
struct Shown {
    entry: Option<Entry>,
    log: Log,
    /// Whether a living process holds it.
    running: bool,
    /// Its forks, which are listed nowhere else.
    forks: Vec<SessionId>,
    /// Bytes of the events as they are stored.
    bytes: u64,
    now: u64,
}

impl Shown {
    fn read(reader: &mut dyn Reader, id: &SessionId, now: u64) -> Result<Self, Failure> {
        let log = reader.load(id)?;
        let entry = read_entry(reader, id)?;
        let running = reader.holder(id, log.fold.head())?.is_some();
        let below = reader.children(Some(id), None, usize::MAX)?;
        let forks = below.into_iter().filter(|child| child.header.as_ref().is_ok_and(|header| header.is_fork())).map(|child| child.id).collect();
        let bytes = log.events.iter().filter_map(|event| encode_event(id, event).ok()).map(|encoded| encoded.body.len() as u64).sum();
        Ok(Self { entry, log, running, forks, bytes, now })
    }

    fn status(&self) -> Status {
        if self.running { Status::Running } else { Status::Complete }
    }

    fn age(&self, record: &InboxRecord) -> u64 {
        self.now.saturating_sub(record.message.sent_at)
    }

    /// What the session was born as: the data of a root's opening or of a child's descriptor, as it stands in the log.
    fn birth(&self) -> (&'static str, Value) {
        let own = self.log.events.iter().filter(|event| event.seq >= self.log.fold.header().seed_length);
        for event in own {
            match &event.body {
                Body::RootOpened(root) => return ("root", json!(root)),
                Body::Descriptor(data) => return ("descriptor", data.clone()),
                _ => {}
            }
        }
        ("descriptor", Value::Null)
    }

    fn json(&self) -> Value {
        let fold = &self.log.fold;
        let head = fold.head();
        let mut json = serde_json::Map::new();
        json.insert("schema_version".to_owned(), json!(SCHEMA_VERSION));
        json.insert("header".to_owned(), json!(&**fold.header()));
        match &self.entry {
            Some(entry) => json.extend(entry::json(entry)),
            None => json.extend([
                ("kind".to_owned(), json!(if fold.header().is_fork() { "fork" } else { "plain" })),
                ("id".to_owned(), json!(fold.header().id)),
                ("status".to_owned(), json!(self.status().as_str())),
                ("turn".to_owned(), json!(head.turn_state(self.running).as_str())),
                ("pending".to_owned(), json!(head.waiting(self.running))),
                ("last_outcome".to_owned(), json!(head.last.as_ref().map(|outcome| &outcome.kind))),
            ]),
        }
        json.insert("held".to_owned(), json!(head.held > 0));
        json.insert("agent".to_owned(), json!(fold.agent()));
        let (birth, data) = self.birth();
        json.insert(birth.to_owned(), data);
        json.insert("turns".to_owned(), json!(head.turns));
        json.insert("epoch".to_owned(), json!(head.epoch));
        json.insert("last_error".to_owned(), json!(head.last.as_ref().and_then(|outcome| outcome.code.as_ref())));
        let messages = fold.pending().map(|record| {
            let message = &record.message;
            json!({
                "id": message.id, "order": record.order, "kind": message.kind, "source": message.source,
                "sent_at": message.sent_at, "age_ms": self.age(record), "held": record.held,
            })
        });
        json.insert("messages".to_owned(), messages.collect());
        json.insert("cut_off".to_owned(), json!(head.cut_off(self.running).map(|(message, turn)| json!({"id": message, "turn": turn}))));
        json.insert("forks".to_owned(), json!(self.forks));
        json.insert("sizes".to_owned(), json!({"events": self.log.events.len(), "bytes": self.bytes}));
        Value::Object(json)
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let fold = &self.log.fold;
        let (header, head) = (fold.header(), fold.head());
        let mut rows = vec![("id", Escaped(header.id.as_str()).to_string())];
        if let Some(parent) = &header.parent {
            rows.push(("parent", Escaped(parent.as_str()).to_string()));
        }
        rows.push(("created", format!("{}, {} ago", span::time(header.created_at), span::span(self.now.saturating_sub(header.created_at)))));
        rows.push(("depth", header.depth.to_string()));
        if let Some(cwd) = &header.cwd {
            rows.push(("folder", Escaped(cwd).to_string()));
        }
        if header.seed_length > 0 {
            rows.push(("inherited", span::count(header.seed_length, "event")));
        }
        match &self.entry {
            Some(Entry::Root(listed) | Entry::Child(listed)) => {
                let kind = if header.parent.is_none() { "root" } else { listed.mode.as_str() };
                rows.push(("kind", format!("{kind}, played by {}", Escaped(&listed.agent))));
                rows.extend(listed.label.iter().map(|label| ("label", Escaped(label).to_string())));
                rows.extend(listed.alias.iter().map(|alias| ("as", Escaped(alias).to_string())));
                rows.push(("status", listed.status.as_str().to_owned()));
                rows.push(("turn", listed.turn.as_str().to_owned()));
            }
            Some(Entry::Diagnostic { reason, .. }) => rows.push(("kind", format!("[diagnostic: {}]", reason.as_str()))),
            None => {
                rows.push(("kind", if header.is_fork() { "fork, listed nowhere" } else { "plain, listed nowhere" }.to_owned()));
                rows.push(("status", self.status().as_str().to_owned()));
                rows.push(("turn", head.turn_state(self.running).as_str().to_owned()));
            }
        }
        if let Some(root) = fold.root() {
            rows.extend(root.vars.iter().map(|(name, value)| ("var", format!("{} = {}", Escaped(name), Escaped(value)))));
        }
        rows.push(("turns", head.turns.to_string()));
        if let Some(outcome) = &head.last {
            let code = outcome.code.as_deref().map_or_else(String::new, |code| format!(" [{}]", Escaped(code)));
            rows.push(("last", format!("turn {} {}{code}", outcome.turn, Escaped(&outcome.kind))));
        }
        rows.push(("epochs", head.epoch.to_string()));
        rows.push(("log", format!("{}, {}", span::count(self.log.events.len() as u64, "event"), span::bytes(self.bytes))));
        if head.held > 0 {
            let records = if head.held == 1 { "1 record waits".to_owned() } else { format!("{} records wait", head.held) };
            rows.push(("held", format!("{records} to be activated: `greenroom import DIR --activate`, DIR being what it was imported from")));
        }
        rows.extend(self.forks.iter().take(MOST_FORKS).map(|fork| ("fork", Escaped(fork.as_str()).to_string())));
        if let Some(more) = self.forks.len().checked_sub(MOST_FORKS).filter(|more| *more > 0) {
            rows.push(("", format!("and {} more: --json names them", span::count(more as u64, "fork"))));
        }
        rows.push(("pending", head.waiting(self.running).to_string()));
        if let Some((message, turn)) = head.cut_off(self.running) {
            rows.push(("", format!("{} of turn {turn}, which was cut off: it is served again", Escaped(message.as_str()))));
        }
        for record in fold.pending() {
            let message = &record.message;
            let source = message.source.session().map_or_else(String::new, |session| format!(" {}", Escaped(session.as_str())));
            let waits = if record.held { ", held" } else { "" };
            let text = label_from(&message.text().trim().chars().take(60).collect::<String>());
            rows.push((
                "",
                format!(
                    "{} {} from {}{source}, {} ago{waits}: {text}",
                    Escaped(message.id.as_str()),
                    name_of(&message.kind),
                    Escaped(message.source.kind()),
                    span::span(self.age(record))
                ),
            ));
        }
        rows
    }
}
