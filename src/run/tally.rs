//! Counting a tree, so that a run can say what it added to it.

use std::collections::HashMap;

use greenroom_session::{
    head::Head,
    id::SessionId,
    store::{Reader, StoreError, Traced},
};

/// What is known of every session of a tree, by the derived rows of the store.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Tally(HashMap<SessionId, Option<Head>>);

/// What a run added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Added {
    pub(super) turns: u64,
    pub(super) messages: u64,
    pub(super) children: u64,
    pub(super) failed: u64,
}

impl Tally {
    /// Counts the tree of `root`, which exists. Reads one row per session.
    pub(super) fn of(reader: &mut dyn Reader, root: &SessionId) -> Result<Self, StoreError> {
        let mut tally = HashMap::new();
        let header = reader.header(root).ok().flatten();
        let mut level: Vec<Traced> = header.into_iter().map(|header| Traced { id: root.clone(), created_at: header.created_at, header: Ok(header) }).collect();
        while !level.is_empty() {
            let described = reader.describe(&level, false)?;
            let mut next = Vec::new();
            for (session, described) in level.into_iter().zip(described) {
                let described = described.ok();
                // Whether a session that cannot be described has children is not known.
                if described.as_ref().is_none_or(|described| described.has_children) {
                    next.extend(reader.children(Some(&session.id), None, usize::MAX)?.into_iter().filter(|child| !tally.contains_key(&child.id)));
                }
                tally.insert(session.id, described.map(|described| described.head));
            }
            level = next;
        }
        Ok(Self(tally))
    }

    /// Returns the number of sessions below the root.
    pub(super) fn children(&self) -> u64 {
        (self.0.len() as u64).saturating_sub(1)
    }

    /// Tells whether a message was ever accepted for a session.
    pub(super) fn has_had_message(&self, session: &SessionId) -> bool {
        self.0.get(session).and_then(Option::as_ref).is_some_and(|head| head.next_order > 0)
    }

    /// Tells whether a session was imported and waits to be activated by hand.
    pub(super) fn is_held(&self, session: &SessionId) -> bool {
        self.0.get(session).and_then(Option::as_ref).is_some_and(|head| head.held > 0)
    }

    /// Returns the number of events in a session's log.
    pub(super) fn log_length(&self, session: &SessionId) -> u64 {
        self.0.get(session).and_then(Option::as_ref).map_or(0, |head| head.next_seq)
    }

    /// Returns what is here and was not there before.
    pub(super) fn since(&self, before: &Self, root: &SessionId) -> Added {
        let mut added = Added { children: self.0.keys().filter(|id| *id != root && !before.0.contains_key(*id)).count() as u64, ..Added::default() };
        for (id, head) in &self.0 {
            let Some(head) = head else { continue };
            let was = before.0.get(id).and_then(Option::as_ref);
            let turns = head.turns.saturating_sub(was.map_or(0, |head| head.turns));
            added.turns += turns;
            added.messages += head.next_order.saturating_sub(was.map_or(0, |head| head.next_order));
            added.failed += u64::from(turns > 0 && head.last.as_ref().is_some_and(|last| matches!(&*last.kind, "error" | "aborted")));
        }
        added
    }
}
