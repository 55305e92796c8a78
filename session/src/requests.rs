//! What answers a request to end a turn or to take a message back.
//!
//! Pure rules, called by whoever holds the session: for a caller of its own process, and for the `control` records that other processes left in the
//! inbox. An answer is a list of bodies and the messages that leave with them; it is true only if both are written in one transaction.
//!
//! A turn whose behaviour still runs cannot be ended by a rule: its holder cancels it and gives the same answer with its end.

use crate::{
    compact::COMPACTION_INTERRUPTED,
    event::{Body, TurnEnd},
    head::Head,
    id::{MessageId, Order, SessionId},
    message::{Control, InboxRecord, MessageKind},
    store::{LoadError, Log, MessageState, Reader},
};

/// How a request was answered.
///
/// ```
/// use greenroom_session::requests::Outcome;
/// assert_eq!(Outcome::AlreadyStarted.as_str(), "ALREADY_STARTED");
/// assert_eq!(Outcome::named("done"), Some(Outcome::Done));
/// assert_eq!(Outcome::named("of a later version"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was carried out, by this request or one before it.
    Done,
    /// No turn was under way, or the turn that was meant had come to its end.
    NotRunning,
    /// The message has a turn, whatever became of it, or has joined one.
    AlreadyStarted,
    /// No message of that id waits for a turn of its own.
    NotPending,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Done, Self::NotRunning, Self::AlreadyStarted, Self::NotPending];

    /// Returns the name that `control/answered` carries: `done`, or an error code.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NotRunning => "NOT_RUNNING",
            Self::AlreadyStarted => "ALREADY_STARTED",
            Self::NotPending => "NOT_PENDING",
        }
    }

    /// Finds an outcome by its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == name)
    }
}

/// Where the message that is to be taken back stands.
///
/// ```
/// use greenroom_session::{id::MessageId, requests::Standing, store::Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let accept = gs::store::Accept::new(root.clone(), gs::message::Message::turn("m0", "Begin.", gs::message::Source::User, 1_000)?);
/// # gs::store::Store::commit(&store, &[gs::store::Op::Accept(accept)])?;
/// let mut reader = store.reader()?;
/// assert!(matches!(Standing::read(&mut *reader, &root, &MessageId::new("m0")?)?, Standing::Pending(_)));
/// assert_eq!(Standing::read(&mut *reader, &root, &MessageId::new("m1")?)?, Standing::Unknown);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It waits.
    Pending(InboxRecord),
    /// It has left the inbox for a turn.
    Started,
    /// It was taken back.
    Withdrawn,
    /// It was never accepted.
    Unknown,
}

/// Events read at a time.
const CHUNK: usize = 512;

impl Standing {
    /// Looks a message up. Costs the length of the inbox for one that waits, and that of the log for one that has left.
    ///
    /// # Errors
    /// [`LoadError`] if there is no such session, a record of it is damaged, or the store failed.
    pub fn read(reader: &mut dyn Reader, session: &SessionId, message: &MessageId) -> Result<Self, LoadError> {
        match reader.message(session, message)? {
            None => return Ok(Self::Unknown),
            Some(MessageState::Pending(order)) => {
                let found = reader.inbox(session, usize::MAX)?.into_iter().find(|record| record.order == order);
                if let Some(record) = found {
                    return Ok(Self::Pending(record));
                }
                // It has left since.
            }
            Some(MessageState::Taken(_)) => {}
        }
        // What a fork inherited was said to another session.
        let mut next = reader.header(session)?.map_or(0, |header| header.seed_length);
        loop {
            let events = reader.events(session, next, CHUNK)?;
            let Some(last) = events.last() else { return Ok(Self::Started) };
            next = last.seq + 1;
            if events.iter().any(|event| withdraws(&event.body, message)) {
                return Ok(Self::Withdrawn);
            }
        }
    }

    /// Looks a message up in a log that is loaded.
    pub fn in_log(log: &Log, message: &MessageId) -> Self {
        if let Some(record) = log.fold.pending().find(|record| record.message.id == *message) {
            return Self::Pending(record.clone());
        }
        let mut started = false;
        let inherited = log.fold.header().seed_length;
        for event in log.events.iter().filter(|event| event.seq >= inherited) {
            match &event.body {
                body if withdraws(body, message) => return Self::Withdrawn,
                Body::TurnStart { message: served, .. } => started |= served == message,
                Body::NoteJoined { notes, .. } => started |= notes.contains(message),
                Body::ControlAnswered { control, .. } => started |= control == message,
                _ => {}
            }
        }
        if started { Self::Started } else { Self::Unknown }
    }
}

fn withdraws(body: &Body, message: &MessageId) -> bool {
    matches!(body, Body::MessageWithdrawn { message: withdrawn, .. } if withdrawn == message)
}

/// What is written as the answer to a request.
///
/// ```
/// use greenroom_session::{head::Head, requests::{Answer, Outcome, interrupt}};
/// let answer: Answer = interrupt(&Head::default(), Some(3), "user");
/// assert_eq!(answer.outcome, Outcome::NotRunning);
/// assert!(answer.bodies.is_empty() && answer.taken.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// How the request is answered.
    pub outcome: Outcome,
    /// The events.
    pub bodies: Vec<Body>,
    /// The messages that leave the inbox with them.
    pub taken: Vec<Order>,
}

impl Answer {
    fn refused(outcome: Outcome) -> Self {
        Self { outcome, bodies: Vec::new(), taken: Vec::new() }
    }

    /// Makes it the answer to a request that another process left in the inbox: the record leaves with the events that say what became of it.
    #[must_use]
    pub fn to(mut self, request: &InboxRecord) -> Self {
        self.bodies.extend(answered(request, self.outcome));
        self.taken.push(request.order);
        self
    }
}

/// Returns the event that answers a request; none for what is no request.
pub fn answered(request: &InboxRecord, outcome: Outcome) -> Option<Body> {
    let control = request.message.control.as_ref()?;
    Some(Body::ControlAnswered { control: request.message.id.clone(), op: control.op().to_owned(), outcome: outcome.as_str().to_owned() })
}

/// Returns the turn that an interrupt would end: the one that is open, or the latest one if it was cut off and its message is to be served again.
pub fn under_way(head: &Head) -> Option<u64> {
    match (&head.open, &head.retry) {
        (Some(open), _) => Some(open.turn),
        (None, Some(_)) => Some(head.turns),
        (None, None) => None,
    }
}

/// Ends a turn that nobody runs: one that is open in the log and was not begun, or one that was cut off and whose message is to be served again. That
/// message ends as aborted: a turn of its own says so, since the one that was cut off has its end already.
///
/// `turn` is the turn that was seen under way, whichever it is if `None`; a later one is never hit. `cause` is recorded.
pub fn interrupt(head: &Head, turn: Option<u64>, cause: &str) -> Answer {
    let Some(found) = under_way(head).filter(|found| turn.is_none_or(|turn| turn == *found)) else { return Answer::refused(Outcome::NotRunning) };
    let mut bodies = Vec::with_capacity(2);
    bodies.extend(head.compacting.map(|compacting| Body::CompactEnd { turn: compacting.turn, error: Some(COMPACTION_INTERRUPTED.to_owned()) }));
    let ended = match (&head.open, &head.retry) {
        (Some(open), _) => {
            bodies.extend(open.step.map(|step| Body::StepEnd { turn: found, step, cut: Some(true) }));
            found
        }
        (None, Some(retry)) => {
            bodies.push(Body::TurnStart { turn: found + 1, message: retry.message.clone(), attempt: retry.attempts + 1 });
            found + 1
        }
        (None, None) => return Answer::refused(Outcome::NotRunning),
    };
    bodies.push(Body::TurnEnd { turn: ended, reason: TurnEnd::Aborted { cause: cause.to_owned() } });
    Answer { outcome: Outcome::Done, bodies, taken: Vec::new() }
}

/// Takes a message back that has no turn yet. `by` is recorded. What was taken back before stays so, and that is done, too.
///
/// Only a message that becomes a turn of its own can be taken back: a note belongs to whoever reads it, and a request is answered.
pub fn withdraw(target: &MessageId, standing: &Standing, by: &str) -> Answer {
    match standing {
        Standing::Pending(record) if record.message.kind == MessageKind::Turn => {
            Answer { outcome: Outcome::Done, bodies: vec![Body::MessageWithdrawn { message: target.clone(), by: by.to_owned() }], taken: vec![record.order] }
        }
        Standing::Pending(_) | Standing::Unknown => Answer::refused(Outcome::NotPending),
        Standing::Started => Answer::refused(Outcome::AlreadyStarted),
        Standing::Withdrawn => Answer::refused(Outcome::Done),
    }
}

/// Takes back everything of `waiting` that waits for a turn of its own, in order. `by` is recorded.
pub fn withdraw_all<'a>(waiting: impl IntoIterator<Item = &'a InboxRecord>, by: &str) -> Answer {
    let mut answer = Answer::refused(Outcome::NotPending);
    for record in waiting.into_iter().filter(|record| record.message.kind == MessageKind::Turn) {
        answer.outcome = Outcome::Done;
        answer.bodies.push(Body::MessageWithdrawn { message: record.message.id.clone(), by: by.to_owned() });
        answer.taken.push(record.order);
    }
    answer
}

/// Takes back everything of `waiting` that waits for a turn of its own, and ends the turn that nobody runs as [`interrupt`] does. Where there is nothing of
/// either nothing is written.
pub fn cancel<'a>(head: &Head, turn: Option<u64>, waiting: impl IntoIterator<Item = &'a InboxRecord>, cause: &str) -> Answer {
    let (mut answer, ended) = (withdraw_all(waiting, cause), interrupt(head, turn, cause));
    if answer.bodies.is_empty() {
        return ended;
    }
    answer.bodies.extend(ended.bodies);
    answer
}

/// Answers a request that no running turn answers, on what a loaded log says.
pub fn answer(log: &Log, control: &Control, by: &str) -> Answer {
    match control {
        Control::Interrupt { turn } => interrupt(log.fold.head(), *turn, by),
        Control::Withdraw { target } => withdraw(target, &Standing::in_log(log, target), by),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        fold::Fold,
        header::NewSession,
        message::{Message, Source},
    };

    fn id(text: &str) -> MessageId {
        MessageId::new(text).unwrap()
    }

    fn start(turn: u64, message: &str, attempt: u32) -> Body {
        Body::TurnStart { turn, message: id(message), attempt }
    }

    fn end(turn: u64, reason: TurnEnd) -> Body {
        Body::TurnEnd { turn, reason }
    }

    fn aborted(turn: u64) -> Body {
        end(turn, TurnEnd::Aborted { cause: "user".into() })
    }

    /// A log of an epoch in which this happened, with these messages in the inbox.
    fn log(bodies: Vec<Body>, waiting: Vec<Message>) -> Log {
        let mut fold = Fold::new(Arc::new(NewSession::root(SessionId::new("s").unwrap()).at(0)));
        let bodies = [Body::EndSeed {}, Body::ActivationStart { epoch: 1 }].into_iter().chain(bodies);
        let events: Vec<_> = bodies.zip(0..).map(|(body, seq)| body.at(seq, 0)).collect();
        for event in &events {
            fold.apply_event(event).unwrap();
        }
        for (message, order) in waiting.into_iter().zip(7..) {
            fold.apply_message(InboxRecord { order, held: order == 8, message: Arc::new(message) });
        }
        Log { events, fold }
    }

    #[test]
    fn an_interrupt_ends_the_turn_that_was_seen_and_no_other() {
        let begun = |step: bool| -> Vec<Body> {
            let step = step.then_some(Body::StepStart { turn: 2, step: 1 });
            [start(1, "m", 1), end(1, TurnEnd::Completed), start(2, "n", 1)].into_iter().chain(step).collect()
        };
        let cut_off = |reason| vec![start(1, "m", 1), end(1, reason)];
        let cut = Body::StepEnd { turn: 2, step: 1, cut: Some(true) };
        let compacting = [begun(true), vec![Body::CompactStart { turn: Some(2) }]].concat();
        let given_up = Body::CompactEnd { turn: Some(2), error: Some(COMPACTION_INTERRUPTED.into()) };
        let none = || (Outcome::NotRunning, vec![]);
        for (what, bodies, turn, expected) in [
            ("nothing has run", vec![], None, none()),
            ("nothing has run, and a turn is named", vec![], Some(1), none()),
            ("the turn has ended", cut_off(TurnEnd::Completed), Some(1), none()),
            ("it was ended before", vec![start(1, "m", 1), aborted(1)], None, none()),
            ("it ran out of attempts", cut_off(TurnEnd::error("ATTEMPTS_EXHAUSTED", "")), Some(1), none()),
            ("whichever is open", begun(false), None, (Outcome::Done, vec![aborted(2)])),
            ("the one that is open", begun(false), Some(2), (Outcome::Done, vec![aborted(2)])),
            ("within a step", begun(true), Some(2), (Outcome::Done, vec![cut.clone(), aborted(2)])),
            ("within a compaction", compacting, None, (Outcome::Done, vec![given_up, cut, aborted(2)])),
            ("an earlier one than is open", begun(true), Some(1), none()),
            ("a later one than is open", begun(true), Some(3), none()),
            ("cut off by a crash", cut_off(TurnEnd::Interrupted), Some(1), (Outcome::Done, vec![start(2, "m", 2), aborted(2)])),
            ("cut off by a shutdown", cut_off(TurnEnd::Disposed), None, (Outcome::Done, vec![start(2, "m", 2), aborted(2)])),
            ("cut off, and an earlier one is meant", cut_off(TurnEnd::Interrupted), Some(0), none()),
        ] {
            let log = log(bodies, vec![]);
            let answer = answer(&log, &Control::Interrupt { turn }, "user");
            assert_eq!((answer.outcome, answer.bodies.clone()), expected, "{what}");
            assert_eq!(answer.taken, [0_u64; 0], "{what}");
            // Whatever is written can follow, and leaves nothing that is served again.
            let mut fold = log.fold;
            for body in answer.bodies {
                fold.apply_event(&body.at(fold.head().next_seq, 0)).unwrap();
            }
            assert!(answer.outcome == Outcome::NotRunning || under_way(fold.head()).is_none(), "{what}");
        }
    }

    #[test]
    fn only_a_turn_message_that_waits_can_be_taken_back() {
        let turn = |name: &str| Message::turn(name, "x", Source::User, 0).unwrap();
        let note = Message::note(id("note"), "x", Source::User, 0, false).unwrap();
        let request = Message::control(id("request"), Control::Interrupt { turn: None }, 0);
        let bodies = vec![
            start(1, "served", 1),
            Body::NoteJoined { turn: 1, notes: vec![id("joined")] },
            end(1, TurnEnd::Completed),
            Body::MessageWithdrawn { message: id("gone"), by: "user".into() },
        ];
        let log = log(bodies, vec![turn("waits"), turn("held"), note, request]);
        let withdrawn = |name: &str, order| (Outcome::Done, vec![Body::MessageWithdrawn { message: id(name), by: "user".into() }], vec![order]);
        for (target, expected) in [
            ("waits", withdrawn("waits", 7)),
            // An imported message waits for its activation by hand, not for its withdrawal.
            ("held", withdrawn("held", 8)),
            ("note", (Outcome::NotPending, vec![], vec![])),
            ("request", (Outcome::NotPending, vec![], vec![])),
            ("nobody", (Outcome::NotPending, vec![], vec![])),
            ("served", (Outcome::AlreadyStarted, vec![], vec![])),
            ("joined", (Outcome::AlreadyStarted, vec![], vec![])),
            ("gone", (Outcome::Done, vec![], vec![])),
        ] {
            let answer = answer(&log, &Control::Withdraw { target: id(target) }, "user");
            assert_eq!((answer.outcome, answer.bodies, answer.taken), expected, "{target}");
        }
    }

    #[test]
    fn a_cancel_takes_back_what_waits_for_a_turn_and_ends_the_turn_that_nobody_runs() {
        let turn = |name: &str| Message::turn(name, "x", Source::User, 0).unwrap();
        let note = |name: &str, quiet| Message::note(id(name), "x", Source::User, 0, quiet).unwrap();
        let waiting = || vec![turn("one"), turn("held"), note("steer", false), note("inject", true), turn("two")];
        let back = |name: &str| Body::MessageWithdrawn { message: id(name), by: "user".into() };
        let all = || vec![back("one"), back("held"), back("two")];
        let cut_off = || vec![start(1, "m", 1), end(1, TurnEnd::Interrupted)];
        for (what, bodies, waiting, named, expected) in [
            ("nothing goes on", vec![], vec![], None, (Outcome::NotRunning, vec![], vec![])),
            ("notes alone wait", vec![], vec![note("steer", false), note("inject", true)], None, (Outcome::NotRunning, vec![], vec![])),
            ("messages wait", vec![], waiting(), None, (Outcome::Done, all(), vec![7, 8, 11])),
            ("a turn is open", vec![start(1, "m", 1)], waiting(), None, (Outcome::Done, [all(), vec![aborted(1)]].concat(), vec![7, 8, 11])),
            ("another turn is open", vec![start(1, "m", 1)], vec![turn("one")], Some(2), (Outcome::Done, vec![back("one")], vec![7])),
            ("a turn was cut off", cut_off(), vec![], None, (Outcome::Done, vec![start(2, "m", 2), aborted(2)], vec![])),
            ("and a message waits", cut_off(), vec![turn("one")], None, (Outcome::Done, vec![back("one"), start(2, "m", 2), aborted(2)], vec![7])),
        ] {
            let log = log(bodies, waiting);
            let answer = cancel(log.fold.head(), named, log.fold.pending(), "user");
            assert_eq!((answer.outcome, answer.bodies.clone(), answer.taken), expected, "{what}");
            let mut fold = log.fold;
            for body in answer.bodies {
                fold.apply_event(&body.at(fold.head().next_seq, 0)).unwrap();
            }
            assert_eq!(fold.pending().filter(|record| record.message.kind == MessageKind::Turn).count(), 0, "{what}");
        }
    }

    #[test]
    fn the_answer_to_a_record_takes_the_record_along() {
        let control = Control::Withdraw { target: id("waits") };
        let request = InboxRecord { order: 9, held: false, message: Arc::new(Message::control(control.id(), control.clone(), 0)) };
        let waits = Message::turn("waits", "x", Source::User, 0).unwrap();
        let answered = |outcome: &str| Body::ControlAnswered { control: control.id(), op: "withdraw".into(), outcome: outcome.into() };
        let done = answer(&log(vec![], vec![waits]), &control, "user").to(&request);
        let withdrawn = Body::MessageWithdrawn { message: id("waits"), by: "user".into() };
        assert_eq!(done, Answer { outcome: Outcome::Done, bodies: vec![withdrawn, answered("done")], taken: vec![7, 9] });
        let refused = answer(&log(vec![start(1, "waits", 1)], vec![]), &control, "user").to(&request);
        assert_eq!(refused, Answer { outcome: Outcome::AlreadyStarted, bodies: vec![answered("ALREADY_STARTED")], taken: vec![9] });
    }

    #[test]
    fn the_same_request_has_the_same_id_and_no_other_has_it() {
        let all = [
            Control::Interrupt { turn: None },
            Control::Interrupt { turn: Some(1) },
            Control::Interrupt { turn: Some(2) },
            Control::Withdraw { target: id("a") },
            Control::Withdraw { target: id("b") },
        ];
        let ids: std::collections::BTreeSet<_> = all.iter().map(Control::id).collect();
        assert_eq!(ids.len(), all.len());
        assert_eq!(all[1].id(), Control::Interrupt { turn: Some(1) }.id());
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::named(outcome.as_str()), Some(outcome));
        }
    }
}
