//! `greenroom export`: sessions into a folder of files.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use greenroom::{
    SessionId,
    session::{
        store::{LoadError, Reader},
        text::Escaped,
        transfer::{ExportReport, ExportTrouble, below, everything, export_folder},
    },
    store_url::StoreUrl,
};
use serde_json::json;

use super::{
    bar::{Bar, Unit},
    failure::Failure,
    session::resolve,
    span, store,
    terminal::Terminal,
};

/// Write sessions into a folder, one file of JSON Lines each, with everything that belongs to them.
///
/// A file that is there and the same stays; one that holds an earlier state of its session is replaced, so that the same command again is a backup; any other file
/// is left alone, and the exit is 5. Wakes nobody and writes nothing to the store.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").args(["ids", "all"]).required(true))]
#[command(after_help = "Example:\n  greenroom export --all --to backup\n  greenroom export 7f3a --tree --to /tmp/desk")]
pub(crate) struct ExportArgs {
    /// The sessions, each by its id or a unique beginning of it.
    #[arg(value_name = "ID", conflicts_with = "all")]
    ids: Vec<String>,
    /// Export every session of the store.
    #[arg(long)]
    all: bool,
    /// With each session, export everything below it.
    #[arg(long, conflicts_with = "all")]
    tree: bool,
    /// The folder, made if it is not there.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

impl ExportArgs {
    /// Exports.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        let mut reader = store::reader(url)?;
        let ids = self.sessions(&mut *reader)?;
        let bar = Bar::new(terminal, Unit::Of("sessions"), ids.len() as u64);
        let report = export_folder(&mut *reader, &ids, &self.to, &mut |progress| {
            bar.stand(progress.sessions);
            bar.say(span::bytes(progress.bytes));
        })?;
        drop(bar);
        self.tell(&report, terminal)
    }

    /// Returns the sessions that are meant, each once.
    fn sessions(&self, reader: &mut dyn Reader) -> Result<Vec<SessionId>, Failure> {
        if self.all {
            return Ok(everything(reader)?);
        }
        let mut ids: Vec<SessionId> = Vec::new();
        for text in &self.ids {
            let id = resolve(reader, text)?;
            let more = if self.tree { below(reader, &id)? } else { vec![id] };
            ids.extend(more);
        }
        let mut seen = std::collections::HashSet::new();
        ids.retain(|id| seen.insert(id.clone()));
        Ok(ids)
    }

    fn tell(&self, report: &ExportReport, terminal: &mut Terminal) -> Result<(), Failure> {
        let ExportReport { written, replaced, unchanged, troubles } = report;
        if !terminal.is_json() {
            let sessions = span::count(written + replaced + unchanged, "session");
            let to = self.to.display().to_string();
            terminal.line(format_args!("{sessions} in {}: {written} written, {replaced} replaced, {unchanged} unchanged", Escaped(&to)))?;
        }
        terminal.flush()?;
        let told: Vec<_> =
            troubles.iter().map(|trouble| json!({"session": trouble.session(), "code": trouble.code(), "message": trouble.to_string()})).collect();
        let document = json!({"to": self.to, "written": written, "replaced": replaced, "unchanged": unchanged, "troubles": told});
        match failed(troubles) {
            Some(failure) => Err(failure.answered(&document)),
            None if terminal.is_json() => terminal.json(&document),
            None => Ok(()),
        }
    }
}

fn failed(troubles: &[ExportTrouble]) -> Option<Failure> {
    let is_damage =
        |trouble: &&ExportTrouble| matches!(trouble, ExportTrouble::Session { error, .. } if !matches!(error, LoadError::NotFound(_) | LoadError::Removed(_)));
    let damaged = troubles.iter().filter(is_damage).count() as u64;
    let all = troubles.len() as u64;
    let code = match (damaged, all) {
        (_, 0) => return None,
        (0, _) => "EXPORT_REFUSED",
        _ => "EXPORT_DAMAGED",
    };
    let failure = Failure::new(code, format!("{} not exported, {damaged} damaged", span::count(all, "session")));
    Some(failure.findings(troubles.iter().map(ToString::to_string)))
}
