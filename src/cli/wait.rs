//! Waiting for the end of a message's turn, by its log alone: whoever runs the session writes there.

use std::time::{Duration, Instant};

use greenroom::{
    MessageId,
    session::{
        event::{Body, Event, TurnEnd},
        message::text_of,
    },
};

use super::{failure::Failure, log::LogReader};

/// How often the log is looked at.
const POLL: Duration = Duration::from_millis(50);

/// How long a message may wait for its turn before whoever waits for it is told that nobody may be there to serve it.
const QUIET: Duration = Duration::from_secs(2);

/// Lets time pass between two looks.
#[derive(Debug)]
pub(crate) struct Pause(tokio::runtime::Runtime);

impl Pause {
    /// Makes a pause of any length.
    pub(crate) fn new() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.map(Self).map_err(|error| Failure::new("STORE_FAILED", format!("the system gives no timer: {error}")))
    }

    /// Waits.
    pub(crate) fn wait(&mut self, time: Duration) {
        // A timer needs its runtime when it is made, hence the block.
        self.0.block_on(async { tokio::time::sleep(time).await });
    }
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Served {
    /// Its last turn has ended.
    Ended {
        /// The turn.
        turn: u64,
        /// How.
        reason: TurnEnd,
        /// What the session said last in it.
        answer: Option<String>,
    },
    /// It was taken back before it had a turn.
    Withdrawn,
    /// The time is over and it is neither.
    NotYet {
        /// The turn that has begun for it.
        turn: Option<u64>,
    },
}

/// Follows a log until a message has been served, or the time is over. `unserved` is called once if no turn has begun for a while.
pub(crate) fn until_served(log: &mut LogReader<'_>, message: &MessageId, timeout: Option<Duration>, unserved: impl FnOnce()) -> Result<Served, Failure> {
    let began = Instant::now();
    let mut pause = Pause::new()?;
    let mut watch = Watch { message, turn: None, answer: None };
    let mut unserved = Some(unserved);
    loop {
        let events = log.more()?;
        if let Some(served) = events.iter().find_map(|event| watch.see(event)) {
            return Ok(served);
        }
        if events.is_empty() {
            if watch.turn.is_none() && began.elapsed() >= QUIET {
                unserved.take().into_iter().for_each(|unserved| unserved());
            }
            let left = timeout.map_or(POLL, |timeout| timeout.saturating_sub(began.elapsed()));
            if left.is_zero() {
                return Ok(Served::NotYet { turn: watch.turn });
            }
            pause.wait(left.min(POLL));
        }
    }
}

/// Looks for one message in the events of a log.
#[derive(Debug)]
struct Watch<'a> {
    message: &'a MessageId,
    turn: Option<u64>,
    answer: Option<String>,
}

impl Watch<'_> {
    fn see(&mut self, event: &Event) -> Option<Served> {
        match &event.body {
            Body::TurnStart { turn, message, .. } => {
                // A turn that is served again says everything again.
                (self.turn, self.answer) = ((message == self.message).then_some(*turn), None);
            }
            Body::AssistantMessage { turn, message, .. } if Some(*turn) == self.turn => {
                let text = text_of(&message.content);
                // A last message without text, such as one that only carries the usage, is no answer.
                if !text.is_empty() {
                    self.answer = Some(text);
                }
            }
            Body::TurnEnd { turn, reason } if Some(*turn) == self.turn && reason.is_final() => {
                return Some(Served::Ended { turn: *turn, reason: reason.clone(), answer: self.answer.take() });
            }
            Body::MessageWithdrawn { message, .. } if message == self.message => return Some(Served::Withdrawn),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use greenroom::session::{
        event::{Role, SurfaceMessage},
        message::{Block, Source},
    };

    use super::*;

    fn served(bodies: Vec<Body>) -> Option<Served> {
        let message = MessageId::new("m").unwrap();
        let mut watch = Watch { message: &message, turn: None, answer: None };
        bodies.into_iter().zip(0..).find_map(|(body, seq)| watch.see(&body.at(seq, 0)))
    }

    fn start(turn: u64, message: &str, attempt: u32) -> Body {
        Body::TurnStart { turn, message: MessageId::new(message).unwrap(), attempt }
    }

    fn end(turn: u64, reason: TurnEnd) -> Body {
        Body::TurnEnd { turn, reason }
    }

    fn say(turn: u64, text: &str) -> Body {
        let source = Source::Agent { name: "a".into() };
        let message = SurfaceMessage { id: MessageId::new("s").unwrap(), role: Role::Assistant, content: vec![Block::text(text)], source };
        Body::AssistantMessage { turn, step: 1, message, usage: None, stop: None }
    }

    #[test]
    fn only_the_final_end_of_the_messages_own_turn_counts() {
        let other = vec![start(1, "other", 1), say(1, "no"), end(1, TurnEnd::Completed)];
        assert_eq!(served(other.clone()), None);
        let mut events = other;
        events.extend([start(2, "m", 1), say(2, "half"), end(2, TurnEnd::Interrupted)]);
        assert_eq!(served(events.clone()), None);
        events.extend([start(3, "m", 2), say(3, "whole"), say(3, ""), end(3, TurnEnd::Completed)]);
        assert_eq!(served(events), Some(Served::Ended { turn: 3, reason: TurnEnd::Completed, answer: Some("whole".into()) }));
        let withdrawn = Body::MessageWithdrawn { message: MessageId::new("m").unwrap(), by: "user".into() };
        assert_eq!(served(vec![withdrawn]), Some(Served::Withdrawn));
    }
}
