//! Which message becomes the next turn, and the events that open it.
//!
//! A store calls this inside the transaction that takes the messages, so that what is decided here is decided on the
//! inbox as it is at that instant: the smallest order number goes first, and all notes that are there join.

use std::sync::Arc;

use crate::{
    event::{Body, Event},
    head::Head,
    id::{MessageId, Order},
    message::InboxRecord,
};

/// What a store took from an inbox, and the events that say so.
///
/// ```
/// use std::sync::Arc;
/// use greenroom_session::{head::Head, message::{InboxRecord, Message, Source}, turns::open_turn};
/// let message = Arc::new(Message::turn("m0", "Begin.", Source::User, 1_000)?);
/// let waiting = InboxRecord { order: 0, held: false, message };
/// let claimed = open_turn(&Head::default(), 2_000, Some(&waiting), &[]).expect("a message waits");
/// let types: Vec<_> = claimed.events.iter().map(|event| event.body.type_name()).collect();
/// assert_eq!(types, ["turn/start", "user/message"]);
/// assert_eq!(claimed.taken, [0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// The events, in their places.
    pub events: Arc<[Event]>,
    /// The messages that left the inbox.
    pub taken: Vec<Order>,
}

/// Opens the next turn: the message that is served again, else the first `turn` record, else the first waking note.
/// Every pending note joins before the turn's own message. Returns `None` if there is nothing to serve.
///
/// `first_turn` is the pending `turn` record of the smallest order, `notes` all pending notes in order; held records and those
/// behind them are left out of both.
pub fn open_turn(head: &Head, time: u64, first_turn: Option<&InboxRecord>, notes: &[InboxRecord]) -> Option<Claimed> {
    let turn = head.turns + 1;
    if let (None, Some(record), []) = (&head.retry, first_turn, notes) {
        // Nearly every turn, in one allocation.
        let start = Body::TurnStart { turn, message: record.message.id.clone(), attempt: 1 };
        let events = Arc::new([start.at(head.next_seq, time), Body::user_message(&record.message).at(head.next_seq + 1, time)]);
        return Some(Claimed { events, taken: vec![record.order] });
    }
    let (mut events, mut taken) = (Vec::new(), Vec::new());
    let mut push = |body: Body| events.push(body.at(head.next_seq + events.len() as u64, time));
    let start = |message: &MessageId, attempt: u32| Body::TurnStart { turn, message: message.clone(), attempt };
    if let Some(retry) = &head.retry {
        push(start(&retry.message, retry.attempts + 1));
        join(turn, notes, &mut push);
    } else if let Some(record) = first_turn {
        push(start(&record.message.id, 1));
        join(turn, notes, &mut push);
        push(Body::user_message(&record.message));
        taken.push(record.order);
    } else {
        let first = notes.iter().find(|record| record.message.wake)?;
        push(start(&first.message.id, 1));
        join(turn, notes, &mut push);
    }
    taken.extend(notes.iter().map(|record| record.order));
    Some(Claimed { events: events.into(), taken })
}

/// Joins all pending notes to the open turn at a step boundary. Returns `None` if no turn is open or no note is there.
pub fn join_notes(head: &Head, time: u64, notes: &[InboxRecord]) -> Option<Claimed> {
    let turn = head.open.as_ref()?.turn;
    if notes.is_empty() {
        return None;
    }
    let mut events = Vec::with_capacity(notes.len() + 1);
    join(turn, notes, &mut |body| events.push(body.at(head.next_seq + events.len() as u64, time)));
    Some(Claimed { events: events.into(), taken: notes.iter().map(|record| record.order).collect() })
}

fn join(turn: u64, notes: &[InboxRecord], push: &mut impl FnMut(Body)) {
    if notes.is_empty() {
        return;
    }
    push(Body::NoteJoined { turn, notes: notes.iter().map(|record| record.message.id.clone()).collect() });
    for record in notes {
        push(Body::user_message(&record.message));
    }
}
