//! `greenroom check --repair`: what would be done, and with `--apply` the doing, after a backup.

use std::path::{Component, Path, PathBuf};

use greenroom::{
    SessionId,
    session::{
        clock::{Clock, SystemClock},
        repair::{Action, Repair, RepairError, plan},
        store::{Reader, Store, StoreError},
        text::Escaped,
    },
    store_url::StoreUrl,
};
use serde_json::{Value, json};

use super::super::{failure::Failure, paint::Role, store, terminal::Terminal};

/// Plans a repair and, if asked to, makes it. Tells of each action, and returns the first failure of one with what was done all the same: each action is one by itself.
pub(super) fn repair(
    url: &StoreUrl,
    reader: &mut dyn Reader,
    only: Option<&SessionId>,
    apply: bool,
    terminal: &mut Terminal,
) -> Result<(Value, Option<Failure>), Failure> {
    let repairs = plan(reader, only)?;
    let wanted = apply && repairs.iter().any(|repair| repair.action != Action::Leave);
    let mut backup = None;
    let mut failed = None;
    let mut actions = Vec::new();
    if wanted {
        let store = store::writer(url)?;
        // The lease of this process goes either way.
        let repaired = make(&*store, url, only, terminal);
        let closed = store.close();
        let Made { to, repairs } = repaired?;
        for (repair, done) in repairs {
            tell(&repair, Some(&done), terminal)?;
            actions.push(document(&repair, &done));
            if let (Err(error), None) = (done, &failed) {
                failed = Some(
                    Failure::from(error).help(format!("the backup is {}; the same command again does what was not done", Escaped(&to.display().to_string()))),
                );
            }
        }
        if let (Err(error), None) = (closed, &failed) {
            failed = Some(error.into());
        }
        backup = Some(to.display().to_string());
    } else {
        for repair in &repairs {
            tell(repair, None, terminal)?;
            actions.push(document(repair, &Ok(false)));
        }
    }
    if !terminal.is_json() && repairs.is_empty() {
        terminal.remark("nothing to repair");
    }
    Ok((json!({"applied": wanted, "backup": backup, "actions": actions}), failed))
}

/// What was done, and where the store is as it was.
struct Made {
    to: PathBuf,
    repairs: Vec<(Repair, Result<bool, RepairError>)>,
}

/// Makes a repair, after a backup. What one session cannot have done keeps no other from its own.
fn make(store: &dyn Store, url: &StoreUrl, only: Option<&SessionId>, terminal: &Terminal) -> Result<Made, Failure> {
    // Planned once more: in the meantime anybody may have written.
    let repairs = plan(&mut *store.reader()?, only)?;
    let to = backup_path(url)?;
    let mut sessions: Vec<SessionId> = repairs.iter().filter(|repair| repair.action != Action::Leave).filter_map(|repair| repair.session.clone()).collect();
    sessions.dedup();
    store.backup(&to, &sessions).map_err(|error| Failure::from(error).help("no backup could be made, and nothing was changed"))?;
    if !terminal.is_json() {
        terminal.remark(format_args!("backup: {}", Escaped(&to.display().to_string())));
    }
    let apply = |repair: Repair| {
        let done = repair.apply(store, SystemClock.now_ms());
        (repair, done)
    };
    Ok(Made { to, repairs: repairs.into_iter().map(apply).collect() })
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
        // A folder may be named with a slash at its end, and one that is named from within, such as by a dot, has its name elsewhere.
        StoreUrl::Jsonl(path) => match path.components().next_back() {
            Some(Component::Normal(_)) => Ok(beside(&path.components().collect::<PathBuf>())),
            _ => path.canonicalize().map(|path| beside(&path)).map_err(|error| StoreError::from(error).into()),
        },
    }
}

/// Tells of an action: what would be done, or what was.
fn tell(repair: &Repair, done: Option<&Result<bool, RepairError>>, terminal: &mut Terminal) -> Result<(), Failure> {
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
    let (said, role) = match done {
        None => (would, Role::Odd),
        Some(Ok(true)) => (did, Role::Good),
        Some(Ok(false)) => ("left as it is", Role::Odd),
        Some(Err(_)) => ("could not be repaired", Role::Bad),
    };
    let line = format!("repair: {session}: {} ({})", terminal.paint().show(role, said), Escaped(&repair.what));
    terminal.line(line)
}

fn document(repair: &Repair, done: &Result<bool, RepairError>) -> Value {
    let found: Vec<&str> = repair.found.iter().map(|class| class.as_str()).collect();
    let mut document =
        json!({"session": repair.session, "action": repair.action.as_str(), "found": found, "what": repair.what, "done": matches!(done, Ok(true))});
    if let (Err(error), Value::Object(document)) = (done, &mut document) {
        document.insert("error".to_owned(), json!(error.code()));
    }
    document
}
