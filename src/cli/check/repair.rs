//! `greenroom check --repair`: what would be done, and with `--apply` the doing, after a backup.

use std::path::{Path, PathBuf};

use greenroom::{
    SessionId,
    session::{
        clock::{Clock, SystemClock},
        repair::{Action, Repair, plan},
        store::Reader,
        text::Escaped,
    },
    store_url::StoreUrl,
};
use serde_json::{Value, json};

use super::super::{failure::Failure, paint::Role, store, terminal::Terminal};

/// Plans a repair and, if asked to, makes it. Tells of each action.
pub(super) fn repair(url: &StoreUrl, reader: &mut dyn Reader, only: Option<&SessionId>, apply: bool, terminal: &mut Terminal) -> Result<Value, Failure> {
    let repairs = plan(reader, only)?;
    let wanted = apply && repairs.iter().any(|repair| repair.action != Action::Leave);
    let mut backup = None;
    let mut actions = Vec::new();
    if wanted {
        let store = store::writer(url)?;
        // Planned once more: in the meantime anybody may have written.
        let repairs = plan(&mut *store.reader()?, only)?;
        let to = backup_path(url)?;
        let mut sessions: Vec<SessionId> = repairs.iter().filter(|repair| repair.action != Action::Leave).filter_map(|repair| repair.session.clone()).collect();
        sessions.dedup();
        let mut done = Vec::new();
        let repaired =
            store.backup(&to, &sessions).map_err(|error| Failure::from(error).help("no backup could be made, and nothing was changed")).and_then(|()| {
                if !terminal.is_json() {
                    terminal.remark(format_args!("backup: {}", Escaped(&to.display().to_string())));
                }
                for repair in &repairs {
                    done.push(repair.apply(&*store, SystemClock.now_ms())?);
                }
                Ok(())
            });
        // The lease of this process goes either way.
        let closed = store.close();
        repaired?;
        closed?;
        for (repair, done) in repairs.iter().zip(done) {
            tell(repair, Some(done), terminal)?;
            actions.push(document(repair, done));
        }
        backup = Some(to.display().to_string());
    } else {
        for repair in &repairs {
            tell(repair, None, terminal)?;
            actions.push(document(repair, false));
        }
    }
    if !terminal.is_json() && repairs.is_empty() {
        terminal.remark("nothing to repair");
    }
    Ok(json!({"applied": wanted, "backup": backup, "actions": actions}))
}

/// Names the backup: beside the store, by the time in UTC.
fn backup_path(url: &StoreUrl) -> Result<PathBuf, Failure> {
    let time =
        jiff::Timestamp::from_millisecond(i64::try_from(SystemClock.now_ms()).unwrap_or(i64::MAX)).map(|time| time.strftime("%Y%m%dT%H%M%S%3fZ").to_string());
    let time = time.map_err(|error| Failure::new("STORE_FAILED", format!("the clock tells no time: {error}")))?;
    let beside = |path: &Path| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".backup-{time}"));
        PathBuf::from(name)
    };
    match url {
        StoreUrl::Memory => Err(Failure::new("STORE_NOT_FOUND", "a `memory:` store ends with the process that made it")),
        StoreUrl::Sqlite(path) => Ok(beside(path)),
        // A folder may be named with a slash at its end.
        StoreUrl::Jsonl(path) => Ok(beside(&path.components().collect::<PathBuf>())),
    }
}

/// Tells of an action: what would be done, or what was.
fn tell(repair: &Repair, done: Option<bool>, terminal: &mut Terminal) -> Result<(), Failure> {
    if terminal.is_json() {
        return Ok(());
    }
    let session = repair.session.as_ref().map_or_else(|| "the store".to_owned(), |id| Escaped(id.as_str()).to_string());
    let (would, did) = match repair.action {
        Action::CutTail => ("would cut the torn end off", "cut the torn end off"),
        Action::EndEpoch => ("would end the epoch of a holder that is gone", "ended the epoch of a holder that is gone"),
        Action::DeriveIndex => ("would derive the index again", "derived the index again"),
        Action::Quarantine => ("would quarantine it", "quarantined it"),
        _ => ("left as it is", "left as it is"),
    };
    let said = match done {
        None => would,
        Some(true) => did,
        Some(false) => "left as it is",
    };
    let role = if done == Some(true) { Role::Good } else { Role::Odd };
    let line = format!("repair: {session}: {} ({})", terminal.paint().show(role, said), Escaped(&repair.what));
    terminal.line(line)
}

fn document(repair: &Repair, done: bool) -> Value {
    let found: Vec<&str> = repair.found.iter().map(|class| class.as_str()).collect();
    json!({"session": repair.session, "action": repair.action.as_str(), "found": found, "what": repair.what, "done": done})
}
