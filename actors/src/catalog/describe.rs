//! How a child that was read becomes an entry, and which trouble with it is one.

use greenroom_session::{
    codec::DecodeError,
    descriptor::Mode,
    id::SessionId,
    listing::{Cursor, Description, Reason, Verdict},
    store::Traced,
};

use super::entry::{Entry, Listed, Listing, Status};
use crate::{
    error::{ListError, QueryError},
    query::Family,
};

/// Makes a list of a family of which one more was read than is wanted.
pub(super) fn listing(
    parent: Option<&SessionId>,
    mut family: Family,
    limit: Option<usize>,
    resident: impl Fn(&SessionId) -> bool,
) -> Result<Listing, ListError> {
    let more = limit.is_some_and(|limit| family.len() > limit);
    family.truncate(limit.unwrap_or(usize::MAX));
    let next_cursor = family.last().filter(|_| more).map(|(last, _)| Cursor { created_at: last.created_at, id: last.id.clone() });
    Ok(Listing { entries: entries(parent, family, resident)?, next_cursor })
}

pub(super) fn entries(parent: Option<&SessionId>, family: Family, resident: impl Fn(&SessionId) -> bool) -> Result<Vec<Entry>, ListError> {
    let mut entries = Vec::with_capacity(family.len());
    for (child, described) in family {
        let resident = resident(&child.id);
        entries.extend(entry(parent, child, described, resident)?);
    }
    Ok(entries)
}

/// Says what a listing shows of one session; `None` if nothing. `resident` tells whether it is live in this process.
pub(super) fn entry(parent: Option<&SessionId>, child: Traced, described: Result<Description, QueryError>, resident: bool) -> Result<Option<Entry>, ListError> {
    let Traced { id, created_at, header } = child;
    let header = match header {
        Ok(header) => header,
        Err(DecodeError::Version(_)) => return Ok(Some(Entry::Diagnostic { id, reason: Reason::Unsupported })),
        Err(_) => return Ok(Some(Entry::Diagnostic { id, reason: Reason::Corrupt })),
    };
    if parent.is_some() && header.parent.as_ref() != parent {
        return Ok(Some(Entry::Diagnostic { id, reason: Reason::Corrupt }));
    }
    let description = match described {
        Ok(description) => description,
        Err(error) => {
            return match reason_of(&error) {
                Some(reason) => Ok(Some(Entry::Diagnostic { id, reason })),
                None => Err(error.into()),
            };
        }
    };
    let live = description.holder.is_some() || resident;
    let status = if live { Status::Running } else { Status::Complete };
    let head = description.head;
    let mut listed = Listed {
        id,
        mode: Mode::Continuable,
        label: None,
        agent: String::new(),
        alias: None,
        status,
        turn: head.turn_state(live),
        pending: head.waiting(live),
        held: head.held > 0,
        turns: head.turns,
        last_outcome: head.last,
        has_children: description.has_children,
        created_at,
    };
    Ok(match description.verdict {
        Verdict::Plain => None,
        Verdict::Broken { reason } => Some(Entry::Diagnostic { id: listed.id, reason }),
        Verdict::Root { label, agent } => {
            (listed.label, listed.agent) = (Some(label), agent);
            Some(Entry::Root(listed))
        }
        Verdict::Child { mode, label, agent, alias, .. } => {
            (listed.mode, listed.label, listed.agent, listed.alias) = (mode, label, agent, alias);
            Some(Entry::Child(listed))
        }
    })
}

/// Says what a failed description means for the child's entry; `None` if it says nothing about the child.
fn reason_of(error: &QueryError) -> Option<Reason> {
    match error {
        QueryError::SessionNotFound(_) | QueryError::EventNotFound { .. } | QueryError::PersistenceFailed(_) => Some(Reason::Unavailable),
        QueryError::InvalidSurface { .. } | QueryError::SourceConflict(_) | QueryError::Corrupt { .. } => Some(Reason::Corrupt),
        QueryError::InvalidLineage(_)
        | QueryError::InvalidLimit
        | QueryError::InvalidConfig { .. }
        | QueryError::InvalidWindow { .. }
        | QueryError::InvalidCursor(_)
        | QueryError::StaleCursor(_)
        | QueryError::Cancelled
        | QueryError::TimedOut
        | QueryError::Ended
        | QueryError::Unavailable => None,
    }
}
