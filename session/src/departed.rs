//! Which messages a log says have left the inbox.
//!
//! A message leaves in the transaction that appends the events that name it, so the log alone tells who waits. Stores that keep a mark of their own are checked
//! against it; an inherited prefix speaks of another session's messages and says nothing.

use std::collections::HashSet;

use crate::{
    event::{Body, Event},
    id::{MessageId, Seq},
    message::MessageKind,
};

/// The messages that have left.
#[derive(Debug, Default)]
pub(crate) struct Departed<'a> {
    /// Served as turns.
    turns: HashSet<&'a MessageId>,
    /// Joined as notes.
    notes: HashSet<&'a MessageId>,
    /// Taken back, or answered.
    others: HashSet<&'a MessageId>,
}

impl<'a> Departed<'a> {
    /// Gathers them from a log, in any order.
    pub(crate) fn of(events: impl IntoIterator<Item = &'a Event>, seed_length: Seq) -> Self {
        let mut departed = Self::default();
        for event in events.into_iter().filter(|event| event.seq >= seed_length) {
            match &event.body {
                Body::TurnStart { message, .. } => drop(departed.turns.insert(message)),
                Body::NoteJoined { notes, .. } => departed.notes.extend(notes),
                Body::MessageWithdrawn { message, .. } | Body::ControlAnswered { control: message, .. } => drop(departed.others.insert(message)),
                _ => {}
            }
        }
        departed
    }

    /// Tells whether a message of this kind and id is among them.
    pub(crate) fn contains(&self, kind: MessageKind, id: &MessageId) -> bool {
        let by_kind = match kind {
            MessageKind::Turn => self.turns.contains(id),
            MessageKind::Note => self.notes.contains(id),
            MessageKind::Control => false,
        };
        by_kind || self.others.contains(id)
    }
}
