//! Which messages a log says have left the inbox.
//!
//! A message leaves in the transaction that appends the events that name it, so the log alone tells who waits. Stores that keep a mark of their own are checked
//! against it; an inherited prefix speaks of another session's messages and says nothing.

use std::{collections::HashSet, slice};

use crate::{
    event::{Body, Event},
    id::{MessageId, Seq},
    message::MessageKind,
};

/// Returns the messages that an event takes out of the inbox, and of which kind they must be, if it takes one kind only.
pub(crate) fn leaving(event: &Event, seed_length: Seq) -> (&[MessageId], Option<MessageKind>) {
    if event.seq < seed_length {
        return (&[], None);
    }
    match &event.body {
        Body::TurnStart { message, .. } => (slice::from_ref(message), Some(MessageKind::Turn)),
        Body::NoteJoined { notes, .. } => (notes, Some(MessageKind::Note)),
        Body::MessageWithdrawn { message, .. } | Body::ControlAnswered { control: message, .. } => (slice::from_ref(message), None),
        _ => (&[], None),
    }
}

/// The messages that have left.
#[derive(Debug, Default)]
pub(crate) struct Departed<'a>(HashSet<(Option<MessageKind>, &'a MessageId)>);

impl<'a> Departed<'a> {
    /// Gathers them from a log, in any order.
    pub(crate) fn of(events: impl IntoIterator<Item = &'a Event>, seed_length: Seq) -> Self {
        let mut departed = HashSet::new();
        for event in events {
            let (ids, kind) = leaving(event, seed_length);
            departed.extend(ids.iter().map(|id| (kind, id)));
        }
        Self(departed)
    }

    /// Tells whether a message of this kind and id is among them.
    pub(crate) fn contains(&self, kind: MessageKind, id: &MessageId) -> bool {
        self.0.contains(&(Some(kind), id)) || self.0.contains(&(None, id))
    }
}
