//! `greenroom import`: sessions from a folder of files.

use std::path::PathBuf;

use clap::Args;
use greenroom::{
    session::{
        text::Escaped,
        transfer::{ImportReport, ImportTrouble, TransferError, import_folder},
    },
    store_url::StoreUrl,
};
use serde_json::{Value, json};

use super::{
    bar::{Bar, Unit},
    failure::Failure,
    span, store,
    terminal::Terminal,
};

/// Bring sessions into the store from a folder that `greenroom export` wrote, or from a store of JSON Lines.
///
/// A session comes in whole, as it was, or not at all. One that is there and the same is skipped; one that is there and another one is refused, and the others go
/// on. What waits in an imported session is held until --activate. A store that is not there is made. An import that was cut off is finished by the same command.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  greenroom import backup\n  greenroom import backup --activate")]
pub(crate) struct ImportArgs {
    /// The folder.
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// Let run what the folder names, also what was imported from it before.
    #[arg(long)]
    activate: bool,
}

impl ImportArgs {
    /// Imports.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        // A folder that is not there makes no store.
        if !self.from.is_dir() {
            return Err(TransferError::Missing(self.from.clone()).into());
        }
        let store = store::maker(url)?;
        let bar = Bar::new(terminal, Unit::Bytes, 0);
        let report = import_folder(&*store, &self.from, self.activate, &mut |progress| {
            bar.length(progress.of_bytes);
            bar.stand(progress.bytes);
            bar.say(format_args!("{}/{} sessions", progress.sessions, progress.of_sessions));
        });
        drop(bar);
        if let Err(error) = store.close() {
            tracing::debug!(%error, "the store could not be closed");
        }
        self.tell(&report?, terminal)
    }

    fn tell(&self, report: &ImportReport, terminal: &mut Terminal) -> Result<(), Failure> {
        let ImportReport { imported, held, existing, released, troubles } = report;
        let damaged = troubles.iter().filter(|trouble| trouble.is_damage()).count() as u64;
        let refused = troubles.len() as u64 - damaged;
        if !terminal.is_json() {
            let activated = if self.activate { format!(", {released} activated") } else { String::new() };
            terminal.line(format_args!("{imported} imported, {existing} skipped, {refused} refused, {damaged} damaged{activated}"))?;
        }
        terminal.flush()?;
        if *held > 0 && !self.activate {
            let from = self.from.display().to_string();
            terminal.remark(format_args!("what waits in them is held: `greenroom import {} --activate` lets it run", Escaped(&from)));
        }
        let told: Vec<_> = troubles.iter().map(trouble).collect();
        let document = json!({
            "imported": imported, "skipped": existing, "refused": refused, "damaged": damaged, "activated": released, "troubles": told,
        });
        let code = match (damaged, refused) {
            (0, 0) if terminal.is_json() => return terminal.json(&document),
            (0, 0) => return Ok(()),
            (0, _) => "IMPORT_REFUSED",
            _ => "IMPORT_DAMAGED",
        };
        let message = format!("{} refused, {damaged} damaged", span::count(refused, "session"));
        Err(Failure::new(code, message).findings(troubles.iter().map(ToString::to_string)).answered(&document))
    }
}

fn trouble(trouble: &ImportTrouble) -> Value {
    let mut value = json!({"file": trouble.path(), "code": trouble.code(), "message": trouble.to_string()});
    let Some(map) = value.as_object_mut() else { return value };
    match trouble {
        ImportTrouble::File(error) => {
            if let Some((line, byte)) = error.place {
                map.extend([("line".to_owned(), json!(line)), ("byte".to_owned(), json!(byte))]);
            }
        }
        ImportTrouble::Refused { session, .. } => drop(map.insert("session".to_owned(), json!(session))),
        _ => {}
    }
    value
}
