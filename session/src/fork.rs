//! Where a session may be cut, so that a fork goes on from there.
//!
//! A fork inherits a prefix of another session's log and goes its own way. Pure functions over the log: nothing is read or written here.

use thiserror::Error;

use crate::{
    event::{Body, Event},
    id::Seq,
};

/// A prefix of a log that a fork may inherit.
///
/// ```
/// use greenroom_session::{event::{Body, TurnEnd}, fork::{Cut, ForkError, cut}, id::MessageId};
/// let log: Vec<_> = [
///     Body::EndSeed {},
///     Body::TurnStart { turn: 1, message: MessageId::new("m0")?, attempt: 1 },
///     Body::TurnEnd { turn: 1, reason: TurnEnd::Completed },
/// ]
/// .into_iter()
/// .zip(0..)
/// .map(|(body, seq)| body.at(seq, 1_000))
/// .collect();
/// let whole: Cut = cut(&log, None)?;
/// assert_eq!(whole.seed_length(), 3);
/// // The fork's log: what it inherits, and the mark that this was given.
/// let types: Vec<_> = whole.seed(2_000).iter().map(|event| event.body.type_name().to_owned()).collect();
/// assert_eq!(types, ["session/end-seed", "turn/start", "turn/end", "session/end-seed"]);
/// assert_eq!(cut(&log, Some(1)), Err(ForkError::OpenTurn { turn: 1 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cut<'a> {
    inherited: &'a [Event],
    /// The mark with which the prefix ends, if it does.
    mark: Option<&'a Event>,
}

impl Cut<'_> {
    /// Returns the `seed_length` of the fork's header: how many events it inherits. A `session/end-seed` at the very end of the prefix is not counted: it
    /// becomes the fork's own, so that every log has one in its own suffix and no log has two in a row.
    pub fn seed_length(&self) -> Seq {
        self.inherited.len() as u64
    }

    /// Returns the log with which the fork is created. `time` is that of its mark, unless the prefix brings one.
    pub fn seed(&self, time: u64) -> Vec<Event> {
        let mut seed = Vec::with_capacity(self.inherited.len() + 1);
        seed.extend_from_slice(self.inherited);
        seed.push(self.mark.cloned().unwrap_or_else(|| Body::EndSeed {}.at(self.seed_length(), time)));
        seed
    }
}

/// Why a log cannot be cut there.
///
/// ```
/// use greenroom_session::fork::{ForkError, cut};
/// let error = cut(&[], Some(0)).unwrap_err();
/// assert_eq!(error, ForkError::InvalidBoundary { boundary: Some(0), events: 0 });
/// assert_eq!(error.code(), "INVALID_BOUNDARY");
/// assert_eq!(cut(&[], None).map(|cut| cut.seed_length()), Ok(0)); // nothing to inherit is no mistake
/// ```
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForkError {
    /// No event stands there, or the events before it do not follow from one another.
    #[error("a fork cannot be cut at {}: the log has {events} events in a row", boundary.map_or("its end".to_owned(), |boundary| format!("event {boundary}")))]
    InvalidBoundary {
        /// The last event that was to be inherited; none: the log's last.
        boundary: Option<Seq>,
        /// How many events follow from one another.
        events: Seq,
    },
    /// The turn that was last begun has no end before the cut.
    #[error("a fork cannot be cut within turn {turn}")]
    OpenTurn {
        /// The turn.
        turn: u64,
    },
}

impl ForkError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidBoundary { .. } => "INVALID_BOUNDARY",
            Self::OpenTurn { .. } => "OPEN_TURN",
        }
    }
}

/// Cuts a log after the event at `boundary`, or after its last. `log` begins with event 0.
///
/// The cut must leave no turn open. Whatever else it leaves open (an epoch, a compaction) does not matter, for a fork inherits only what a model sees and
/// the count of turns.
///
/// # Errors
/// [`ForkError::InvalidBoundary`] if there is no such event or one is missing before it, then [`ForkError::OpenTurn`].
pub fn cut(log: &[Event], boundary: Option<Seq>) -> Result<Cut<'_>, ForkError> {
    let invalid = |events: usize| ForkError::InvalidBoundary { boundary, events: events as u64 };
    let end = match boundary {
        None => log.len(),
        Some(boundary) => usize::try_from(boundary).ok().and_then(|at| at.checked_add(1)).ok_or(invalid(log.len()))?,
    };
    let prefix = log.get(..end).ok_or(invalid(log.len()))?;
    if let Some(gap) = prefix.iter().zip(0..).position(|(event, seq)| event.seq != seq) {
        return Err(invalid(gap));
    }
    let last = prefix.iter().rev().find_map(|event| match event.body {
        Body::TurnStart { turn, .. } => Some(Err(ForkError::OpenTurn { turn })),
        Body::TurnEnd { .. } => Some(Ok(())),
        _ => None,
    });
    last.unwrap_or(Ok(()))?;
    Ok(match prefix.split_last() {
        Some((mark, inherited)) if mark.body == (Body::EndSeed {}) => Cut { inherited, mark: Some(mark) },
        _ => Cut { inherited: prefix, mark: None },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        event::TurnEnd,
        fold::Fold,
        header::NewSession,
        id::{MessageId, SessionId},
        message::{Message, Source},
    };

    fn start(turn: u64) -> Body {
        Body::TurnStart { turn, message: MessageId::new(format!("m{turn}")).unwrap(), attempt: 1 }
    }

    fn end(turn: u64, reason: TurnEnd) -> Body {
        Body::TurnEnd { turn, reason }
    }

    fn placed(bodies: impl IntoIterator<Item = Body>) -> Vec<Event> {
        bodies.into_iter().zip(0..).map(|(body, seq)| body.at(seq, seq)).collect()
    }

    #[test]
    fn a_log_is_cut_where_no_turn_is_open() {
        let said = Body::user_message(&Message::turn("m1", "x", Source::User, 0).unwrap());
        let log = placed([
            Body::EndSeed {},
            Body::ActivationStart { epoch: 1 },
            start(1),
            said,
            end(1, TurnEnd::Completed),
            Body::CompactStart { turn: None },
            Body::CompactEnd { turn: None, error: Some("X".into()) },
            start(2),
        ]);
        let open = |turn| Err(ForkError::OpenTurn { turn });
        let invalid = |boundary| Err(ForkError::InvalidBoundary { boundary: Some(boundary), events: 8 });
        for (what, boundary, expected) in [
            ("its own mark alone", Some(0), Ok(0)),
            ("an open epoch", Some(1), Ok(2)),
            ("a turn's start", Some(2), open(1)),
            ("within a turn", Some(3), open(1)),
            ("a turn's end", Some(4), Ok(5)),
            ("log-only events after it, a compaction that is under way among them", Some(5), Ok(6)),
            ("up to the next turn", Some(6), Ok(7)),
            ("the next turn's start", Some(7), open(2)),
            ("the default is the last event", None, open(2)),
            ("behind the end", Some(8), invalid(8)),
            ("no number of an event", Some(u64::MAX), invalid(u64::MAX)),
        ] {
            let found = cut(&log, boundary).map(|cut| cut.seed_length());
            assert_eq!(found, expected, "{what}");
            let code = match expected {
                Ok(_) => continue,
                Err(ForkError::OpenTurn { .. }) => "OPEN_TURN",
                Err(ForkError::InvalidBoundary { .. }) => "INVALID_BOUNDARY",
            };
            assert_eq!(found.map_err(|error| error.code()), Err(code), "{what}");
        }
    }

    #[test]
    fn a_turn_is_over_however_it_ended() {
        let reasons = [
            TurnEnd::Completed,
            TurnEnd::MaxTokens,
            TurnEnd::Aborted { cause: "user".into() },
            TurnEnd::error("X", "x"),
            TurnEnd::Disposed,
            TurnEnd::Interrupted,
        ];
        for reason in reasons {
            let log = placed([Body::EndSeed {}, start(1), end(1, reason.clone())]);
            assert_eq!(cut(&log, None).map(|cut| cut.seed_length()), Ok(3), "{reason:?}");
        }
    }

    #[test]
    fn a_log_with_a_gap_is_not_cut_behind_it() {
        let mut log = placed([Body::EndSeed {}, start(1), end(1, TurnEnd::Completed)]);
        log[2].seq = 3;
        assert_eq!(cut(&log, None), Err(ForkError::InvalidBoundary { boundary: None, events: 2 }));
        // Two things are wrong: that one is told which is looked at first.
        assert_eq!(cut(&log, Some(7)).unwrap_err().code(), "INVALID_BOUNDARY");
        assert_eq!(cut(&log, Some(0)).map(|cut| cut.seed_length()), Ok(0));
    }

    #[test]
    fn what_a_fork_inherits_is_marked_once() {
        let mark = |seq, time| Body::EndSeed {}.at(seq, time);
        let opened = Body::Opaque(crate::event::Opaque { name: "odd/one".into(), data: 1.into() });
        for (what, bodies, seed_length, expected) in [
            ("nothing", vec![], 0, mark(0, 9)),
            ("no mark", vec![opened.clone()], 1, mark(1, 9)),
            ("a mark at its end", vec![opened.clone(), Body::EndSeed {}], 1, mark(1, 1)),
            ("a mark alone", vec![Body::EndSeed {}], 0, mark(0, 0)),
            ("a mark within", vec![Body::EndSeed {}, opened], 2, mark(2, 9)),
        ] {
            let log = placed(bodies);
            let cut = cut(&log, None).unwrap();
            let seed = cut.seed(9);
            assert_eq!((cut.seed_length(), seed.last()), (seed_length, Some(&expected)), "{what}");
            assert_eq!(seed.len() as u64, seed_length + 1, "{what}");
            assert!(seed.starts_with(&log[..usize::try_from(seed_length).unwrap()]), "{what}");
        }
    }

    #[test]
    fn a_fork_sees_what_its_source_saw_and_brings_nothing_else_along() {
        let said = |id: &str| Body::user_message(&Message::turn(id, id, Source::User, 0).unwrap());
        let log = placed([
            Body::Descriptor(serde_json::json!({"version": 1})),
            Body::EndSeed {},
            Body::ActivationStart { epoch: 1 },
            start(1),
            said("m1"),
            end(1, TurnEnd::Interrupted),
            Body::CompactStart { turn: None },
        ]);
        let fold = |header, events: &[Event]| {
            let mut fold = Fold::new(Arc::new(header));
            for event in events {
                fold.apply_event(event).unwrap();
            }
            fold
        };
        let id = |text: &str| SessionId::new(text).unwrap();
        let source = fold(NewSession::root(id("source")).at(0), &log);
        let cut = cut(&log, None).unwrap();
        let mut fork = fold(NewSession { seed_length: cut.seed_length(), ..NewSession::root(id("fork")) }.at(0), &cut.seed(9));
        assert_eq!(fork.surface(), source.surface());
        assert_eq!(fork.head().turns, 1);
        assert_eq!((fork.head().live, &fork.head().retry, fork.head().compacting), (false, &None, None));
        assert_eq!(*fork.descriptor(), crate::fold::DescriptorState::None);
        // It goes on where the source stood.
        let next = fork.head().next_seq;
        for (body, seq) in [Body::ActivationStart { epoch: 1 }, Body::CompactStart { turn: None }].into_iter().zip(next..) {
            fork.apply_event(&body.at(seq, 10)).unwrap();
        }
    }
}
