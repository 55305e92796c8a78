//! `greenroom rm`: a session that is settled, or a whole tree, for ever.

use std::io::{self, BufRead, IsTerminal};

use clap::Args;
use greenroom::{
    SessionId,
    session::{
        store::{Done, LoadError, Op, Reader, Refused, Remove, Store, Traced},
        text::Escaped,
        transfer::below,
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

/// How many sessions are removed in one transaction.
const BATCH: usize = 256;

/// Remove a session that is settled. Its id is used up: nothing will ever be created or imported under it.
///
/// Refused while a living process holds the session, while it has children (but for --tree), and while messages wait or a turn is not finished (but for
/// --discard-pending). With --tree children go before their parents, so that the same command finishes one that was cut off.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  greenroom rm 7f3a\n  greenroom rm 7f3a --tree --yes")]
pub(crate) struct RmArgs {
    /// The session, by its id or a unique beginning of it.
    #[arg(value_name = "ID")]
    id: String,
    /// Remove everything below it, too.
    #[arg(long)]
    tree: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Remove it although messages wait, a turn is not finished, or its log is damaged.
    #[arg(long)]
    discard_pending: bool,
}

impl RmArgs {
    /// Removes.
    pub(crate) fn execute(&self, url: &StoreUrl, terminal: &mut Terminal) -> Result<(), Failure> {
        let somebody = io::stdin().is_terminal() && terminal.watched();
        if !self.yes && !somebody {
            return Err(Failure::new("USAGE", "nobody is here to be asked").help("give --yes if it is meant so"));
        }
        let mut reader = store::reader(url)?;
        let id = resolve(&mut *reader, &self.id)?;
        // Children before their parents.
        let mut ids = below(&mut *reader, &id)?;
        ids.reverse();
        self.look(&mut *reader, &id, &ids)?;
        drop(reader);
        if !self.yes {
            confirm(&id, ids.len() - 1, terminal)?;
        }
        // Only now: whoever thinks about the answer keeps nobody from writing.
        let store = store::writer(url)?;
        let removed = self.remove(&*store, &ids, terminal);
        if let Err(error) = store.close() {
            tracing::debug!(%error, "the store could not be closed");
        }
        let (removed, failure) = removed;
        if terminal.is_json() {
            match failure {
                // The failure's document says what is gone.
                Some(failure) => return Err(failure.fact("removed", json!(removed))),
                None => terminal.json(&json!({"removed": removed}))?,
            }
        } else {
            for id in removed {
                terminal.line(format_args!("removed {}", Escaped(id.as_str())))?;
            }
            terminal.flush()?;
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Refuses before anything is removed what would be refused in the middle.
    fn look(&self, reader: &mut dyn Reader, id: &SessionId, ids: &[SessionId]) -> Result<(), Failure> {
        if ids.len() > 1 && !self.tree {
            return Err(Failure::new("HAS_CHILDREN", format!("session {id} has {} below it", span::count(ids.len() as u64 - 1, "session"))));
        }
        if let Some(lease) = reader.leases(Some(id))?.into_iter().find(|lease| lease.alive) {
            return Err(Failure::new("SESSION_HELD", format!("session {} is held by another process ({})", lease.session, lease.owner)));
        }
        if self.discard_pending {
            return Ok(());
        }
        let (mut findings, mut busy, mut damaged) = (Vec::new(), 0, 0);
        for id in ids {
            match work(reader, id)? {
                Work::Nothing => {}
                Work::Waits(what) => {
                    busy += 1;
                    findings.push(format!("{id}: {what}"));
                }
                Work::Unknown(error) => {
                    damaged += 1;
                    findings.push(error);
                }
            }
        }
        match unsettled(busy, damaged) {
            None => Ok(()),
            Some(failure) => Err(failure.findings(findings)),
        }
    }

    /// Removes in order, and stops at the first refusal.
    fn remove(&self, store: &dyn Store, ids: &[SessionId], terminal: &Terminal) -> (Vec<SessionId>, Option<Failure>) {
        let bar = Bar::new(terminal, Unit::Of("sessions"), ids.len() as u64);
        let mut removed = Vec::new();
        for chunk in ids.chunks(BATCH) {
            let ops: Vec<Op> = chunk.iter().map(|id| Op::Remove(Remove { session: id.clone(), discard: self.discard_pending })).collect();
            let results = match store.commit(&ops) {
                Ok(results) => results,
                Err(error) => return (removed, Some(error.into())),
            };
            let mut failure: Option<Failure> = None;
            for (id, result) in chunk.iter().zip(results) {
                match result {
                    // Somebody else was faster.
                    Ok(Done::Removed) | Err(Refused::NotFound(_)) => removed.push(id.clone()),
                    Ok(other) => failure = failure.or(Some(Failure::new("INDETERMINATE", format!("the store answered {other:?}")))),
                    Err(refused) => failure = failure.or(Some(refused.into())),
                }
            }
            bar.advance(chunk.len() as u64);
            if failure.is_some() {
                return (removed, failure);
            }
        }
        (removed, None)
    }
}

/// What a session still has to do.
enum Work {
    Nothing,
    Waits(String),
    /// It is damaged, as this says.
    Unknown(String),
}

/// Says why sessions cannot go, of which some have work and some are damaged.
fn unsettled(busy: u64, damaged: u64) -> Option<Failure> {
    let work = if busy == 1 { "1 session has work still to do".to_owned() } else { format!("{busy} sessions have work still to do") };
    let unknown = if damaged == 1 { "1 session is damaged".to_owned() } else { format!("{damaged} sessions are damaged") };
    let unknown = format!("{unknown}, so that nobody knows what waits");
    match (busy, damaged) {
        (0, 0) => None,
        (_, 0) => Some(Failure::new("PENDING", work)),
        (0, _) => {
            Some(Failure::new("PENDING", unknown).help("bring it back from a backup or an export, or remove it as it is: `greenroom rm --discard-pending`"))
        }
        _ => Some(Failure::new("PENDING", format!("{work}; {unknown}"))),
    }
}

/// Looks at what a session still has to do.
fn work(reader: &mut dyn Reader, id: &SessionId) -> Result<Work, Failure> {
    let damaged = |error: &dyn std::fmt::Display| Ok(Work::Unknown(error.to_string()));
    let header = match reader.header(id) {
        Ok(Some(header)) => header,
        Ok(None) => return Ok(Work::Nothing),
        Err(LoadError::Store(error)) => return Err(error.into()),
        Err(error) => return damaged(&error),
    };
    let traced = Traced { id: id.clone(), created_at: header.created_at, header: Ok(header) };
    let head = match reader.describe(&[traced], true)?.pop() {
        Some(Ok(description)) => description.head,
        Some(Err(LoadError::NotFound(_) | LoadError::Removed(_))) | None => return Ok(Work::Nothing),
        Some(Err(error)) => return damaged(&error),
    };
    let mut words = Vec::new();
    let waiting = head.pending_turns + head.pending_wakes;
    if waiting > 0 {
        words.push(format!("{} pending", span::count(waiting, "message")));
    }
    if head.is_unfinished() {
        words.push("a turn that is not finished".to_owned());
    }
    Ok(if words.is_empty() { Work::Nothing } else { Work::Waits(words.join(", ")) })
}

fn confirm(id: &SessionId, below: usize, terminal: &Terminal) -> Result<(), Failure> {
    let rest = if below == 0 { String::new() } else { format!(" and {} below it", span::count(below as u64, "session")) };
    terminal.remark(format_args!("Remove session {}{rest} for ever? [y/N]", Escaped(id.as_str())));
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    match read {
        Ok(_) if matches!(answer.trim(), "y" | "Y" | "yes") => Ok(()),
        _ => Err(Failure::new("NOT_CONFIRMED", "the answer was not `y`")),
    }
}
