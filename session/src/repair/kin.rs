//! Whose header is at fault where a child's and its parent's disagree.
//!
//! A check tells it of the child, which may be whole: a parent whose header was changed disagrees with all its children.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    check::{Class, Finding, Place, Severity, lineage},
    header::Header,
    id::SessionId,
    listing::Cursor,
    store::{LoadError, Reader, StoreError},
};

/// How many children are read at a time.
const PAGE: usize = 1_000;

/// Whose headers were found to be at fault.
#[derive(Debug, Default)]
pub(super) struct Kin {
    blamed: BTreeMap<SessionId, bool>,
}

impl Kin {
    /// Tells whether all that is wrong with a session is that its header disagrees with its parent's, and it is rather the parent's that is wrong.
    pub(super) fn blames_parent(&mut self, reader: &mut dyn Reader, id: &SessionId, findings: &[Finding]) -> Result<bool, StoreError> {
        let mut wrong = findings.iter().filter(|finding| finding.class.severity() == Severity::Damage).peekable();
        if wrong.peek().is_none() || !wrong.all(|finding| finding.class == Class::HeaderConflict && finding.place == Place::Header) {
            return Ok(false);
        }
        // What cannot be read is itself no witness.
        if !is_readable(reader.folded(id))? {
            return Ok(false);
        }
        let Some(header) = header(reader, id)? else { return Ok(false) };
        let own = lineage(&header, |id| reader.header(id))?;
        match &header.parent {
            Some(parent) if is_of_lineage(findings, &own) && parent != id => self.is_blamed(reader, parent),
            _ => Ok(false),
        }
    }

    fn is_blamed(&mut self, reader: &mut dyn Reader, parent: &SessionId) -> Result<bool, StoreError> {
        if let Some(blamed) = self.blamed.get(parent) {
            return Ok(*blamed);
        }
        let blamed = is_odd_itself(reader, parent)? || disagrees_with_all(reader, parent)?;
        self.blamed.insert(parent.clone(), blamed);
        Ok(blamed)
    }
}

fn is_readable<T>(read: Result<T, LoadError>) -> Result<bool, StoreError> {
    match read {
        Ok(_) => Ok(true),
        Err(LoadError::Store(error)) => Err(error),
        Err(_) => Ok(false),
    }
}

fn header(reader: &mut dyn Reader, id: &SessionId) -> Result<Option<Arc<Header>>, StoreError> {
    match reader.header(id) {
        Ok(header) => Ok(header),
        Err(LoadError::Store(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Tells whether every fault of a header is one that its parent's tells.
fn is_of_lineage(findings: &[Finding], lineage: &[Finding]) -> bool {
    let mut conflicts = findings.iter().filter(|finding| finding.class == Class::HeaderConflict);
    conflicts.all(|finding| lineage.iter().any(|other| (other.class, &other.what) == (finding.class, &finding.what)))
}

/// Tells whether a session's header is at fault whatever its own parent's says. Of one that is quarantined already nobody knows.
fn is_odd_itself(reader: &mut dyn Reader, id: &SessionId) -> Result<bool, StoreError> {
    if reader.quarantine(id)?.is_some() {
        return Ok(true);
    }
    let mut findings = Vec::new();
    reader.check(id, &mut |finding| findings.push(finding))?;
    let Some(header) = header(reader, id)? else { return Ok(true) };
    let own = lineage(&header, |id| reader.header(id))?;
    Ok(!is_of_lineage(&findings, &own))
}

/// Tells whether a session's header disagrees with those of several children, and agrees with none.
fn disagrees_with_all(reader: &mut dyn Reader, parent: &SessionId) -> Result<bool, StoreError> {
    let (mut disagreeing, mut after) = (0, None);
    loop {
        let page = reader.children(Some(parent), after.as_ref(), PAGE)?;
        for child in &page {
            let Ok(header) = &child.header else { continue };
            if header.is_fork() {
                continue;
            }
            if lineage(header, |id| reader.header(id))?.is_empty() {
                return Ok(false);
            }
            disagreeing += 1;
        }
        match page.last() {
            Some(last) => after = Some(Cursor { created_at: last.created_at, id: last.id.clone() }),
            None => return Ok(disagreeing > 1),
        }
    }
}
