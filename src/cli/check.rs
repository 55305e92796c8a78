//! `greenroom check`: verifies the store, derives its index again, and repairs it.

mod repair;

use std::{collections::BTreeMap, time::Instant};

use clap::Args;
use greenroom::{
    SessionId,
    session::{
        check::{Class, Finding, Rebuilt, Seen, Severity, check},
        text::Escaped,
    },
    store_url::StoreUrl,
};
use serde_json::{Map, Value, json};

use super::{
    bar::{Bar, Unit},
    entry::SCHEMA_VERSION,
    failure::Failure,
    paint::Role,
    session::resolve,
    span, store,
    terminal::Terminal,
};

/// Verify every record, and the index against the records.
///
/// Wakes nobody and writes nothing. Other processes may go on meanwhile. Exit 7 if anything is not what it must be; what is only worth knowing is shown and
/// is no failure. --repair says what a repair would do, and with --apply does it, after a backup: what has one right answer is put right, the rest is
/// quarantined. docs/check.md explains every class.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  greenroom check\n  greenroom check 7f3a --json\n  greenroom check --rebuild-index\n  greenroom check --repair\n  greenroom check --repair --apply"
)]
pub(crate) struct CheckArgs {
    /// Only this session and what is derived of it, by its id or a unique beginning of it.
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Derive again what is derived and no good, then check. Changes no record.
    #[arg(long)]
    rebuild_index: bool,
    /// Say what a repair would do. Nothing is written without --apply.
    #[arg(long, conflicts_with = "rebuild_index")]
    repair: bool,
    /// Do what --repair says, after a backup whose name is told, then check.
    #[arg(long, requires = "repair")]
    apply: bool,
}

/// What was looked at and found.
#[derive(Debug, Default)]
struct Tally {
    sessions: u64,
    events: u64,
    messages: u64,
    classes: BTreeMap<Class, u64>,
    /// For the one document of JSON.
    findings: Vec<Value>,
}

impl CheckArgs {
    /// Checks.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut reader = store::reader(url)?;
        let only = self.id.as_deref().map(|text| resolve(&mut *reader, text)).transpose()?;
        let rebuilt = if self.rebuild_index { Some(rebuild(url, only.as_ref(), terminal)?) } else { None };
        let (repaired, unrepaired) = if self.repair { Some(repair::repair(url, &mut *reader, only.as_ref(), self.apply, terminal)?) } else { None }.unzip();
        let bar = Bar::new(terminal, Unit::Of("sessions"), 0);
        let mut tally = Tally::default();
        let mut written = Ok(());
        check(&mut *reader, only.as_ref(), &mut |seen| match seen {
            Seen::Sessions(sessions) => bar.length(sessions),
            Seen::Session { events, messages } => {
                tally.sessions += 1;
                tally.events += events;
                tally.messages += messages;
                bar.advance(1);
                bar.say(span::count(tally.events, "event"));
            }
            Seen::Store => bar.say("the store itself"),
            Seen::Finding(finding) => {
                *tally.classes.entry(finding.class).or_default() += 1;
                if terminal.is_json() {
                    tally.findings.push(document(&finding));
                } else if written.is_ok() {
                    written = bar.line(terminal, line(&finding, terminal));
                }
            }
        })?;
        drop(bar);
        written?;
        let faults = tally.faults();
        terminal.flush()?;
        terminal.remark(tally.summary(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)));
        let document = tally.json(rebuilt, repaired, faults == 0);
        if let Some(failure) = unrepaired.flatten() {
            return Err(failure.answered(&document));
        }
        if faults > 0 {
            return Err(tally.failure(faults).answered(&document));
        }
        if terminal.is_json() { terminal.json(&document) } else { Ok(()) }
    }
}

/// Derives the index again and tells what has changed.
fn rebuild(url: &StoreUrl, only: Option<&SessionId>, terminal: &Terminal) -> Result<Value, Failure> {
    let store = store::writer(url)?;
    let (mut sessions, mut left, mut removed, mut orphans, mut whole) = (Vec::new(), Vec::new(), 0, false, false);
    let done = store.rebuild_index(only, &mut |change| {
        if !terminal.is_json() {
            terminal.remark(format_args!("rebuilt: {}", Escaped(&change.to_string())));
        }
        match change {
            Rebuilt::Session(id) => sessions.push(id),
            Rebuilt::Left(id) => left.push(id),
            Rebuilt::Foreign(rows) => removed += rows,
            Rebuilt::Orphans => orphans = true,
            Rebuilt::Tally => whole = true,
        }
    });
    // The lease of this process goes either way.
    let closed = store.close();
    done?;
    closed?;
    Ok(json!({"sessions": sessions, "left": left, "removed": removed, "orphans": orphans, "tally": whole}))
}

/// Writes a finding for a person.
fn line(finding: &Finding, terminal: &Terminal) -> String {
    let role = match finding.class.severity() {
        Severity::Damage => Role::Bad,
        Severity::Index => Role::Odd,
        Severity::Notice => Role::Aside,
    };
    let session = finding.session.as_ref().map_or_else(String::new, |id| format!("{} ", Escaped(id.as_str())));
    let place = finding.place.to_string();
    let spot = finding.spot.as_ref().map_or_else(String::new, |spot| format!(" at {}", Escaped(&spot.to_string())));
    format!("{session}{}{spot}: {}: {}", Escaped(&place), terminal.paint().show(role, finding.class), Escaped(&finding.what))
}

/// Writes a finding as JSON.
fn document(finding: &Finding) -> Value {
    let mut document = Map::new();
    let mut set = |key: &str, value: Value| document.insert(key.to_owned(), value);
    set("class", json!(finding.class.as_str()));
    set("severity", json!(finding.class.severity().as_str()));
    set("session", json!(finding.session));
    set("place", json!(finding.place.to_string()));
    if let Some(seq) = finding.place.seq() {
        set("seq", json!(seq));
    }
    if let Some(order) = finding.place.order() {
        set("order", json!(order));
    }
    if let Some(spot) = &finding.spot {
        set("path", json!(spot.path.to_string_lossy()));
        set("line", json!(spot.line));
        set("offset", json!(spot.offset));
    }
    set("what", json!(finding.what));
    set("help", json!(finding.class.help()));
    Value::Object(document)
}

impl Tally {
    fn faults(&self) -> u64 {
        self.classes.iter().filter(|(class, _)| class.severity().is_fault()).map(|(_, number)| number).sum()
    }

    fn json(&self, rebuilt: Option<Value>, repaired: Option<Value>, ok: bool) -> Value {
        let mut document = json!({
            "schema_version": SCHEMA_VERSION,
            "sessions": self.sessions,
            "events": self.events,
            "messages": self.messages,
            "findings": self.findings,
            "ok": ok,
        });
        if let Value::Object(document) = &mut document {
            document.extend(rebuilt.map(|rebuilt| ("rebuilt".to_owned(), rebuilt)));
            document.extend(repaired.map(|repaired| ("repair".to_owned(), repaired)));
        }
        document
    }

    fn summary(&self, ms: u64) -> String {
        let found = self.list(|_| true);
        let found = if found.is_empty() { "no findings" } else { &found };
        let looked_at = [(self.sessions, "session"), (self.events, "event"), (self.messages, "message")].map(|(number, noun)| span::count(number, noun));
        format!("checked {} in {}: {found}", looked_at.join(", "), span::span(ms))
    }

    /// Lists how many findings there are of each class.
    fn list(&self, which: impl Fn(Class) -> bool) -> String {
        self.classes.iter().filter(|(class, _)| which(**class)).map(|(class, number)| format!("{number} {class}")).collect::<Vec<_>>().join(", ")
    }

    fn failure(&self, faults: u64) -> Failure {
        let message = format!("{}: {}", span::count(faults, "fault"), self.list(|class| class.severity().is_fault()));
        let help = self.classes.keys().filter(|class| class.severity().is_fault()).map(|class| format!("{class}: {}", class.help()));
        Failure::new("FAULTS_FOUND", message).help(help.collect::<Vec<_>>().join("\n      "))
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, fs, path::Path};

    use super::*;

    /// Returns the page of the documentation.
    fn page() -> String {
        let mut text = String::from(
            "<!-- Written by `GREENROOM_WRITE_DOCS=1 cargo test --bin greenroom classes`; the text is in session/src/check/finding.rs. -->\n\n# What a check finds\n\n",
        );
        text.push_str(
            "`greenroom check` reads every record of a store and says of each fault what it is and where: the session, the seq of the event or the order of the message, and in a store of\n\
             files the line and the offset of its first byte. It goes on after each. What follows from a fault that was told is not told again: after a record that is lost or refused, the\n\
             events behind it are checked one by one and no longer as a story.\n\n\
             Sessions come in the order of their ids, findings in the order of their places, and what belongs to no session last. Each session is read in one moment, so a check beside a run\n\
             never tells of what is being written. Nothing is written, unless `--rebuild-index` is given: that derives again what is derived and no good, in short transactions beside whoever\n\
             else uses the store, and changes no record. So is `--repair --apply`, of which more below.\n\n",
        );
        for (severity, heading, means) in [
            (Severity::Damage, "Damage", "A record is not what was written, or breaks a rule of the format. Exit 7."),
            (
                Severity::Index,
                "Index",
                "A derived row is not what it must be. It changes no answer, since whatever is no good is derived from the records when it is needed. It is a fault nevertheless (exit 7): the\n\
                 row was written whole, and what changed it may have changed more.",
            ),
            (
                Severity::Notice,
                "Notice",
                "Worth knowing, and no fault: what a kill leaves behind, what a newer program wrote, what is not there by choice. Exit 0.",
            ),
        ] {
            write!(text, "## {heading}\n\n{means}\n\n| class | what it is | what to do |\n|---|---|---|\n").unwrap();
            for class in Class::ALL.iter().filter(|class| class.severity() == severity) {
                writeln!(text, "| `{class}` | {} | {} |", class.about(), class.help()).unwrap();
            }
            text.push('\n');
        }
        text.push_str(
            "## Repair\n\n`greenroom check --repair` says what a repair would do, and `--apply` does it:\n\n| action | what is done |\n|---|---|\n\
             | `cut_tail` | what lies behind the last whole batch of a file is cut off. It was never acknowledged, and stays beside the file as `NAME.torn-OFFSET` |\n\
             | `end_epoch` | a turn and an epoch whose holder is gone are ended, as the next run would do it. The message of the turn is served again then; a repair is no attempt at it. Where nothing is \
             left to do but to tell the parent how it went, it is left to the next run, which does |\n\
             | `derive_index` | what is derived is derived again from the records |\n\
             | `quarantine` | a damaged session has no right answer. It stays as it is, is listed as corrupt beside its healthy siblings, takes no message and is run by nobody; `greenroom log` reads what is whole. \
             A later check tells of it as `quarantined`, so that new damage stands out |\n\
             | `leave` | nothing: only a person can tell what is right, a newer greenroom has to do it, or a process holds the session. A child that is whole is left where it is its parent's header that \
             fits neither the parent nor its children |\n\n\
             Before anything is changed a backup is made and its name told: of a database all of it, as `FILE.backup-TIME`, of a folder the files that will be touched, in the folder `DIR.backup-TIME`. If it cannot be\n\
             written, nothing is done; while it is written its name ends in `.partial`. A healthy session keeps every byte, and one that a process holds is left alone; in a folder, which takes one writer, that is exit 6. A repair that is cut off anywhere has done some of\n\
             its actions, and the same command again does the rest; what cannot be done keeps nothing else from being done. Afterwards the store is checked, and the exit is that of the check, unless an\n\
             action has failed: then it is that of the first failure.\n\n\
             To bring a quarantined session back, import a good copy of it: an import takes the place of a session that is quarantined, and of no other. Or remove it (`greenroom rm ID --discard-pending`).\n\n\
             ## As JSON\n\n`--json` writes one document: `{schema_version, sessions, events, messages, findings, ok}`, with `rebuilt` after `--rebuild-index`, `repair` after `--repair` and `error` where\n\
             the exit is not 0. A repair is `{applied, backup, actions}`, `backup` a path or `null`, and an action `{session, action, found, what, done, error?}`, `error` the code\n\
             of why it could not be done. A finding is\n\
             `{class, severity, session, place, seq?, order?, path?, line?, offset?, what, help}`; `session` is `null` for what belongs to none. `ok` is false exactly when the check finds a fault.\n",
        );
        text
    }

    /// Set `GREENROOM_WRITE_DOCS` to write the page.
    #[test]
    fn the_page_of_the_documentation_lists_the_classes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/check.md");
        if std::env::var_os("GREENROOM_WRITE_DOCS").is_some() {
            fs::write(&path, page()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), page(), "run with GREENROOM_WRITE_DOCS=1 to write it");
    }

    #[test]
    fn the_names_of_classes_are_stable_words() {
        let mut names: Vec<&str> = Class::ALL.iter().map(|class| class.as_str()).collect();
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())), "{names:?}");
        let number = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), number);
    }
}
