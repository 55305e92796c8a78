//! Everything below a session, and what each of it is, in one walk.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
    ops::ControlFlow,
};

use greenroom_session::{
    id::SessionId,
    listing::{Cursor, Description},
    store::{Reader, Traced},
};
use tokio_util::sync::CancellationToken;

use super::{Family, Page, agree, header, lineage, members};
use crate::{error::QueryError, live::LiveTable};

/// How many children are read at once, at most.
const AT_ONCE: usize = 64;

/// A session that a walk comes to.
#[derive(Debug)]
pub(crate) struct Step {
    /// The session below which it was found.
    pub(crate) parent: SessionId,
    /// How far it is below the top: 1 for a direct child.
    pub(crate) depth: usize,
    /// The session.
    pub(crate) child: Traced,
    /// What it is.
    pub(crate) described: Result<Description, QueryError>,
}

/// Whoever goes on a walk, on the thread that reads.
pub(crate) trait Walker: fmt::Debug + Send {
    /// Sees one session after the other and may have seen enough.
    fn see(&mut self, step: Step) -> ControlFlow<()>;

    /// Is told how the walk ended.
    fn end(self: Box<Self>, end: Result<(), QueryError>);
}

/// Where a walk is among the children of one session.
#[derive(Debug)]
struct Level {
    parent: SessionId,
    /// After which of them it goes on reading.
    after: Option<Cursor>,
    /// Those that were read and not yet seen.
    read: VecDeque<(Traced, Result<Description, QueryError>)>,
    /// Whether there may be more to read.
    more: bool,
}

impl Level {
    fn below(parent: SessionId, after: Option<Cursor>) -> Self {
        Self { parent, after, read: VecDeque::new(), more: true }
    }
}

/// Walks through everything below `top` in pre-order, siblings by creation time then id, after the session `after` if one is named. Each session is seen once.
///
/// What cannot be described is seen all the same, and what is below it too. `enough` is how many sessions are wanted at the least; no more are described at
/// once than that.
pub(crate) fn walk(
    reader: &mut dyn Reader,
    live: &LiveTable,
    top: &SessionId,
    after: Option<&SessionId>,
    enough: usize,
    cancel: &CancellationToken,
    walker: &mut dyn Walker,
) -> Result<(), QueryError> {
    lineage(reader, live, top)?;
    let mut levels = match after {
        None => vec![Level::below(top.clone(), None)],
        Some(after) => place(reader, live, top, after, cancel)?,
    };
    // A session has one parent, unless its files are damaged: then it may be found below itself.
    let mut seen: HashSet<SessionId> = levels.iter().map(|level| level.parent.clone()).collect();
    let at_once = enough.clamp(1, AT_ONCE);
    while let Some(level) = levels.last_mut() {
        let Some((child, described)) = level.read.pop_front() else {
            if !level.more {
                levels.pop();
                continue;
            }
            if cancel.is_cancelled() {
                return Err(QueryError::Cancelled);
            }
            let page = Page { after: level.after.take(), limit: Some(at_once) };
            let family: Family = members(reader, Some(&level.parent), &page, false)?;
            for stored in family.iter().filter_map(|(child, _)| child.header.as_ref().ok()) {
                agree(live, stored)?;
            }
            level.more = family.len() == at_once;
            level.after = family.last().map(|(last, _)| Cursor { created_at: last.created_at, id: last.id.clone() });
            level.read = family.into();
            continue;
        };
        if !seen.insert(child.id.clone()) {
            continue;
        }
        let step = Step { parent: level.parent.clone(), depth: levels.len(), described, child };
        levels.push(Level::below(step.child.id.clone(), None));
        if walker.see(step).is_break() {
            break;
        }
    }
    Ok(())
}

/// Finds the place behind a session again: one level for each of its ancestors up to the top, and one for itself.
fn place(reader: &mut dyn Reader, live: &LiveTable, top: &SessionId, after: &SessionId, cancel: &CancellationToken) -> Result<Vec<Level>, QueryError> {
    let mut levels = vec![Level::below(after.clone(), None)];
    let mut seen = HashSet::from([after.clone()]);
    let mut at = after.clone();
    loop {
        if cancel.is_cancelled() {
            return Err(QueryError::Cancelled);
        }
        let stored = match header(reader, live, &at) {
            Ok(Some(stored)) => stored,
            Ok(None) if at == *after => return Err(QueryError::StaleCursor(after.clone())),
            // What has no header that can be read has a place all the same.
            Ok(None) | Err(QueryError::Corrupt { .. }) => break,
            Err(error) => return Err(error),
        };
        let Some(parent) = stored.parent.clone() else { break };
        levels.push(Level::below(parent.clone(), Some(Cursor { created_at: stored.created_at, id: at })));
        if parent == *top {
            levels.reverse();
            return Ok(levels);
        }
        if !seen.insert(parent.clone()) {
            break;
        }
        at = parent;
    }
    search(reader, top, after, cancel)
}

/// Finds the place behind a session by looking at everything before it: for one whose place its header does not tell.
fn search(reader: &mut dyn Reader, top: &SessionId, after: &SessionId, cancel: &CancellationToken) -> Result<Vec<Level>, QueryError> {
    let mut seen = HashSet::from([top.clone()]);
    let mut open: Vec<(SessionId, VecDeque<Traced>, Option<Cursor>)> = vec![(top.clone(), reader.children(Some(top), None, usize::MAX)?.into(), None)];
    while let Some((_, children, at)) = open.last_mut() {
        let Some(child) = children.pop_front() else {
            open.pop();
            continue;
        };
        *at = Some(Cursor { created_at: child.created_at, id: child.id.clone() });
        if child.id == *after {
            let mut levels: Vec<Level> = open.into_iter().map(|(parent, _, at)| Level::below(parent, at)).collect();
            levels.push(Level::below(child.id, None));
            return Ok(levels);
        }
        if !seen.insert(child.id.clone()) {
            continue;
        }
        if cancel.is_cancelled() {
            return Err(QueryError::Cancelled);
        }
        let below = reader.children(Some(&child.id), None, usize::MAX)?;
        open.push((child.id, below.into(), None));
    }
    Err(QueryError::InvalidCursor(after.clone()))
}
