//! Everything below a session, and what each of it is, in one walk.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
    ops::ControlFlow,
};

use greenroom_session::{
    id::SessionId,
    listing::{Cursor, Description},
    store::Traced,
};

use super::{Page, corpus::Corpus};
use crate::error::QueryError;

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

impl Corpus<'_> {
    /// Walks through everything below `top` in pre-order, siblings by creation time then id, after the session `after` if one is named. Each session is seen once.
    ///
    /// What cannot be described is seen all the same, and what is below it too. `enough` is how many are wanted at the least; no more of one family are read at once.
    pub(super) fn walk(&mut self, top: &SessionId, after: Option<&SessionId>, enough: Option<usize>, walker: &mut dyn Walker) -> Result<(), QueryError> {
        self.lineage(top)?;
        let mut levels = match after {
            None => vec![Level::below(top.clone(), None)],
            Some(after) => self.place(top, after)?,
        };
        // A session has one parent, unless its files are damaged: then it may be found below itself.
        let mut seen: HashSet<SessionId> = levels.iter().map(|level| level.parent.clone()).collect();
        let at_once = enough.unwrap_or(usize::MAX).max(1);
        while let Some(level) = levels.last_mut() {
            let Some((child, described)) = level.read.pop_front() else {
                if level.more {
                    self.read_on(level, at_once)?;
                } else {
                    levels.pop();
                }
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

    fn read_on(&mut self, level: &mut Level, at_once: usize) -> Result<(), QueryError> {
        let page = Page { after: level.after.take(), limit: Some(at_once) };
        let family = self.members(Some(&level.parent), &page, false)?;
        level.more = family.len() == at_once;
        level.after = family.last().map(|(last, _)| place_of(last));
        level.read = family.into();
        Ok(())
    }

    /// Finds the place behind a session again: one level for each of its ancestors from the top on, and one for itself.
    fn place(&mut self, top: &SessionId, after: &SessionId) -> Result<Vec<Level>, QueryError> {
        let mut levels = vec![Level::below(after.clone(), None)];
        let mut seen = HashSet::from([after.clone()]);
        let mut at = after.clone();
        loop {
            let header = match self.header(&at) {
                Ok(Some(header)) => header,
                Ok(None) if at == *after => return Err(QueryError::StaleCursor(at)),
                // What has no header that can be read has a place all the same.
                Ok(None) | Err(QueryError::Corrupt { .. }) => break,
                Err(error) => return Err(error),
            };
            let Some(parent) = header.parent.clone() else { break };
            levels.push(Level::below(parent.clone(), Some(Cursor { created_at: header.created_at, id: at })));
            if parent == *top {
                levels.reverse();
                return Ok(levels);
            }
            if !seen.insert(parent.clone()) {
                break;
            }
            at = parent;
        }
        self.search(top, after)
    }

    /// Finds the place behind a session by looking at everything before it: for one whose place its header does not tell.
    fn search(&mut self, top: &SessionId, after: &SessionId) -> Result<Vec<Level>, QueryError> {
        let mut path: Vec<Level> = Vec::new();
        for descent in self.descendants(top)? {
            path.truncate(descent.depth - 1);
            path.push(Level::below(descent.parent, Some(place_of(&descent.session))));
            if descent.session.id == *after {
                path.push(Level::below(descent.session.id, None));
                return Ok(path);
            }
        }
        Err(QueryError::InvalidCursor(after.clone()))
    }
}

fn place_of(child: &Traced) -> Cursor {
    Cursor { created_at: child.created_at, id: child.id.clone() }
}
