//! What an agent says of its own, once.

use greenroom_actors::{Turn, TurnError};
use greenroom_session::{event::Role, message::text_of};

/// Says the texts of one attempt at a message, leaving out those that an earlier attempt has said in the same place.
///
/// Saying is no effect on another session and so has no key; but a transcript should not hold a line twice because a crash came after it.
#[derive(Debug)]
pub(super) struct Voice {
    said: std::vec::IntoIter<String>,
}

impl Voice {
    /// Looks up what earlier attempts at the turn's message have said.
    pub(super) fn new(turn: &Turn) -> Self {
        let mut said = Vec::new();
        if turn.attempt() > 1 {
            let history = turn.history();
            // A turn that notes opened has its first note in the place of the message.
            let begin = history.iter().position(|message| message.id == *turn.message_id()).unwrap_or(history.len());
            said.extend(history.iter().skip(begin).filter(|message| message.role == Role::Assistant).map(|message| text_of(&message.content)));
        }
        Self { said: said.into_iter() }
    }

    /// Says a text, unless an earlier attempt said it here.
    pub(super) fn say(&mut self, turn: &Turn, text: String) -> Result<(), TurnError> {
        match self.said.next() {
            Some(said) if said == text => Ok(()),
            _ => turn.say(text),
        }
    }
}
