//! An audit of the logs that knows nothing of the fold: what each says by itself, and whether what was promised became true.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::atomic::Ordering,
};

use greenroom_session::{
    event::{Body, EpochEnd, Event, TurnEnd as Reason},
    id::{EffectKind, MessageId, Order, SessionId, notice_id, taken_back_notice_id},
    message::{InboxRecord, MessageKind},
    store::{MessageState, Store},
};

use super::support::{Ledger, Told, Witness, lock};

/// Reads every log by rules of its own and returns what is wrong. With `served` nothing that can run may still wait.
pub(super) fn audit(store: &Witness, ledger: &Ledger, served: bool) -> Vec<String> {
    let mut wrong = store.complaints();
    wrong.extend(lock(&ledger.complaints).iter().cloned());
    let mut reader = store.store.reader().unwrap();
    let mut logs = HashMap::new();
    for session in reader.find("", usize::MAX).unwrap() {
        // A fork's log is another's, up to where it goes its own way.
        if reader.header(&session).unwrap().is_some_and(|header| header.parent.is_some() && header.depth == 0) {
            continue;
        }
        let mut events = reader.events(&session, 0, usize::MAX).unwrap();
        // What it inherited is another's; its turns are counted on from there.
        let own = events.split_off(usize::try_from(reader.header(&session).unwrap().map_or(0, |header| header.seed_length)).unwrap());
        let turns = events.iter().filter(|event| matches!(event.body, Body::TurnStart { .. })).count();
        let (events, turns) = (u64::try_from(events.len()).unwrap(), u64::try_from(turns).unwrap());
        let mut log = AuditedLog { played: ledger.played.load(Ordering::Relaxed), events, turns, ..AuditedLog::default() };
        for event in own {
            log.read(&event, &mut |id| match reader.message(&session, id).unwrap() {
                Some(MessageState::Taken(order)) => Some(order),
                _ => None,
            });
        }
        let inbox = reader.inbox(&session, usize::MAX).unwrap();
        let is_quiet = |record: &&InboxRecord| record.message.kind == MessageKind::Note && !record.message.wake;
        log.quiet = inbox.iter().filter(is_quiet).map(|record| record.message.id.clone()).collect();
        log.pending = inbox.iter().map(|record| record.message.id.clone()).collect();
        log.requests = inbox.iter().filter(|record| record.message.control.is_some()).map(|record| record.message.id.clone()).collect();
        log.parent = reader.header(&session).unwrap().and_then(|header| header.parent.clone());
        log.finish(served);
        wrong.extend(log.wrong.drain(..).map(|complaint| format!("{session}: {complaint}")));
        logs.insert(session, log);
    }
    judge_promises(&logs, ledger, served, &mut wrong);
    judge_runs(&logs, ledger, &mut wrong);
    judge_notices(&logs, &mut wrong);
    judge_effects(&logs, &mut |session, message| reader.message(session, message).unwrap().is_some(), &mut wrong);
    if served && !ledger.played.load(Ordering::Relaxed) {
        judge_told(&logs, &mut wrong);
    }
    judge_answers(&logs, ledger, &mut wrong);
    wrong
}

/// What those who asked were told is what the logs say.
fn judge_answers(logs: &HashMap<SessionId, AuditedLog>, ledger: &Ledger, wrong: &mut Vec<String>) {
    for (session, told) in lock(&ledger.told).iter() {
        let Some(log) = logs.get(session) else { continue };
        let right = match told {
            Told::Withdrawn(message) => log.withdrawn.contains(message),
            Told::Started(message) => log.attempts.contains_key(message),
            // A turn that was cut off before it could be ended is made good by a last one of the same message.
            Told::Ended(turn) => log.starts.get(turn).is_some_and(|(message, _)| {
                let last = log.starts.iter().rev().find(|(_, (served, _))| served == message);
                last.is_some_and(|(last, _)| log.aborted.contains(last))
            }),
        };
        if !right {
            wrong.push(format!("{session}: somebody was told {told:?}, which the log does not bear out"));
        }
    }
}

/// What a turn says it has done to others is there, and of a child that has settled its parent was told.
fn judge_effects(logs: &HashMap<SessionId, AuditedLog>, is_there: &mut dyn FnMut(&SessionId, &MessageId) -> bool, wrong: &mut Vec<String>) {
    for (session, log) in logs {
        for (kind, target, id) in &log.done {
            let done = match kind {
                EffectKind::Delegate => logs.get(&SessionId::new(id).unwrap()).is_some_and(|child| child.parent.as_ref() == Some(session)),
                _ => is_there(&SessionId::new(target).unwrap(), &MessageId::new(id).unwrap()),
            };
            if !done {
                wrong.push(format!("{session}: it says that it did {kind:?} to {target}, which is not there: {id}"));
            }
        }
        let Some(parent) = log.parent.as_ref().filter(|parent| !log.is_one_shot && logs.contains_key(*parent)) else { continue };
        for turn in &log.settled_after {
            if !is_there(parent, &notice_id(session, *turn)) && log.withdrawn.is_empty() {
                wrong.push(format!("{session}: it has settled after turn {turn}, and its parent was not told"));
            }
        }
    }
}

/// A notice that a child has settled after a turn comes after everything that the child reported up to that turn.
fn judge_notices(logs: &HashMap<SessionId, AuditedLog>, wrong: &mut Vec<String>) {
    for (child, log) in logs {
        let Some(parent) = log.parent.as_ref().and_then(|parent| logs.get(parent)) else { continue };
        for &turn in log.epoch_of_turn.keys() {
            let Some(notice) = parent.places.get(&notice_id(child, turn)) else { continue };
            for (reported_in, report) in &log.reports {
                if *reported_in <= turn && parent.places.get(report).is_some_and(|place| place > notice) {
                    wrong.push(format!("{child}: the notice of turn {turn} overtook report {report} of turn {reported_in}"));
                }
            }
        }
    }
}

/// Whatever came over a child: when nothing is left to do, its parent was told of what it did last.
fn judge_told(logs: &HashMap<SessionId, AuditedLog>, wrong: &mut Vec<String>) {
    for (child, log) in logs.iter().filter(|(_, log)| !log.is_one_shot) {
        let Some(parent) = log.parent.as_ref().and_then(|parent| logs.get(parent)) else { continue };
        let notice = match &log.newest_taken_back {
            Some(message) => taken_back_notice_id(child, message),
            None if log.turns > 0 => notice_id(child, log.turns),
            None => continue,
        };
        if !parent.joined.contains(&notice) && !parent.pending.contains(&notice) {
            wrong.push(format!("{child}: its parent was never told of turn {}, or of {:?} taken back", log.turns, log.newest_taken_back));
        }
    }
}

fn judge_promises(logs: &HashMap<SessionId, AuditedLog>, ledger: &Ledger, served: bool, wrong: &mut Vec<String>) {
    let mut latest: HashMap<_, (Place, MessageId)> = HashMap::new();
    for (sender, receiver, message) in lock(&ledger.accepted).iter() {
        let Some(log) = logs.get(receiver) else {
            wrong.push(format!("{message} was accepted for {receiver}, which does not exist"));
            continue;
        };
        let place = log.places.get(message).copied();
        let taken_back = log.withdrawn.contains(message);
        let ends = log.finals.get(message).copied().unwrap_or(0) + u32::from(log.joined.contains(message)) + u32::from(taken_back);
        // A note that opened a turn has joined it, however often that turn is begun again.
        let unfinished = log.unfinished.as_ref() == Some(message) && !log.joined.contains(message);
        let waits = log.pending.contains(message) || unfinished;
        match (ends, waits) {
            (1, false) => {}
            (0, true) if !served || log.quiet.contains(message) => {}
            (0, true) => wrong.push(format!("{receiver}: {message} of {sender} still waits")),
            _ => wrong.push(format!("{receiver}: {message} of {sender} has {ends} ends, waits: {waits}")),
        }
        if taken_back {
            continue;
        }
        // A message that waits comes after everything that does not.
        let place = place.unwrap_or((u64::MAX, 0));
        let key = (sender.clone(), receiver.clone(), log.joined.contains(message));
        if let Some((before, other)) = latest.insert(key, (place, message.clone()))
            && before > place
        {
            wrong.push(format!("{receiver}: {message} of {sender} was served before the earlier {other}"));
        }
    }
}

fn judge_runs(logs: &HashMap<SessionId, AuditedLog>, ledger: &Ledger, wrong: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (session, turn, message, attempt) in lock(&ledger.runs).iter() {
        if !seen.insert((session.clone(), *turn)) {
            wrong.push(format!("{session}: the body of turn {turn} ran twice"));
        }
        let logged = logs.get(session).and_then(|log| log.starts.get(turn));
        if logged != Some(&(message.clone(), *attempt)) {
            wrong.push(format!("{session}: the body of turn {turn} ran for {message} as attempt {attempt}, the log says {logged:?}"));
        }
    }
    for (session, log) in logs {
        for turn in &log.completed {
            if !lock(&ledger.runs).is_empty() && !seen.contains(&(session.clone(), *turn)) {
                wrong.push(format!("{session}: turn {turn} is completed and its body never ran"));
            }
        }
    }
}

/// A seq, and where in the list of that event.
type Place = (u64, usize);

/// A second reading of a log, written without a look at the first.
#[derive(Debug, Default)]
struct AuditedLog {
    events: u64,
    epoch: u64,
    live: bool,
    turn: Option<(u64, MessageId)>,
    step: Option<u32>,
    turns: u64,
    attempts: BTreeMap<MessageId, u32>,
    finals: BTreeMap<MessageId, u32>,
    completed: BTreeSet<u64>,
    starts: BTreeMap<u64, (MessageId, u32)>,
    /// Where in the log a message was first served, or joined.
    places: BTreeMap<MessageId, Place>,
    unfinished: Option<MessageId>,
    joined: BTreeSet<MessageId>,
    heard: BTreeSet<MessageId>,
    expected: VecDeque<MessageId>,
    last_turn_order: Option<Order>,
    last_note_order: Option<Order>,
    epoch_of_turn: BTreeMap<u64, u64>,
    /// Reports by the turn in which they were recorded.
    reports: Vec<(u64, MessageId)>,
    parent: Option<SessionId>,
    /// Whoever started it waits for its result and is not told that it has settled.
    is_one_shot: bool,
    effects: BTreeSet<String>,
    /// What was done to whom.
    done: Vec<(EffectKind, String, String)>,
    /// The newest turn whenever it has settled after one.
    settled_after: BTreeSet<u64>,
    pending: BTreeSet<MessageId>,
    /// What waits and wakes nobody.
    quiet: BTreeSet<MessageId>,
    /// Requests among what waits.
    requests: BTreeSet<MessageId>,
    withdrawn: BTreeSet<MessageId>,
    /// The newest message that was taken back, if no turn has ended since.
    newest_taken_back: Option<MessageId>,
    answered: BTreeSet<MessageId>,
    aborted: BTreeSet<u64>,
    wrong: Vec<String>,
    /// Its host may have played it.
    played: bool,
}

impl AuditedLog {
    fn say(&mut self, seq: u64, what: impl std::fmt::Display) {
        self.wrong.push(format!("event {seq}: {what}"));
    }

    fn read(&mut self, event: &Event, order_of: &mut dyn FnMut(&MessageId) -> Option<Order>) {
        let seq = event.seq;
        if seq != self.events {
            self.say(seq, format!("stands at place {}", self.events));
        }
        self.events += 1;
        if !self.expected.is_empty() && !matches!(event.body, Body::UserMessage(_)) {
            let expected = std::mem::take(&mut self.expected);
            self.say(seq, format!("{expected:?} should have been heard first"));
        }
        match &event.body {
            Body::ActivationStart { epoch } => {
                if self.live || *epoch != self.epoch + 1 || self.turn.is_some() {
                    self.say(seq, format!("epoch {epoch} starts after {} (live: {}, turn: {:?})", self.epoch, self.live, self.turn));
                }
                (self.epoch, self.live) = (*epoch, true);
            }
            Body::ActivationEnd { epoch, reason } => {
                if *reason == EpochEnd::Settled && self.turns > 0 {
                    self.settled_after.insert(self.turns);
                }
                if !self.live || *epoch != self.epoch || self.turn.is_some() {
                    self.say(seq, format!("epoch {epoch} ends (live: {}, turn: {:?})", self.live, self.turn));
                }
                self.live = false;
            }
            Body::Descriptor(descriptor) => self.is_one_shot = descriptor["mode"] == "one-shot",
            Body::TurnStart { turn, message, attempt } => self.start(seq, *turn, message, *attempt, order_of),
            Body::TurnEnd { turn, reason } => self.end(seq, *turn, reason),
            Body::NoteJoined { turn, notes } => {
                self.within(seq, *turn);
                for (at, note) in notes.iter().enumerate() {
                    if !self.joined.insert(note.clone()) {
                        self.say(seq, format!("note {note} joins twice"));
                    }
                    let order = order_of(note);
                    if order.is_none() || order <= self.last_note_order {
                        self.say(seq, format!("note {note} of order {order:?} after {:?}", self.last_note_order));
                    }
                    self.last_note_order = order;
                    self.places.insert(note.clone(), (seq, at));
                }
                // The turn's own message comes after the notes that join at its start.
                self.expected = notes.iter().cloned().collect();
            }
            Body::UserMessage(message) => {
                if !self.heard.insert(message.id.clone()) {
                    self.say(seq, format!("{} is heard twice", message.id));
                }
                if let Some(expected) = self.expected.pop_front()
                    && expected != message.id
                {
                    self.say(seq, format!("{} is heard where {expected} should be", message.id));
                }
            }
            Body::StepStart { turn, step } => {
                self.within(seq, *turn);
                if self.step.is_some() {
                    self.say(seq, "a step within a step");
                }
                self.step = Some(*step);
            }
            Body::StepEnd { turn, step, .. } => {
                self.within(seq, *turn);
                if self.step.take() != Some(*step) {
                    self.say(seq, format!("step {step} ends and was not open"));
                }
            }
            Body::EffectAccepted { turn, key, kind, target, id, .. } => {
                self.within(seq, *turn);
                self.done.push((*kind, target.clone(), id.clone()));
                if *kind == EffectKind::Report {
                    self.reports.push((*turn, MessageId::new(id).unwrap()));
                }
                if !self.effects.insert(key.clone()) {
                    self.say(seq, format!("effect {key} twice"));
                }
            }
            Body::Memo { turn, .. } | Body::AssistantMessage { turn, .. } => self.within(seq, *turn),
            Body::MessageWithdrawn { message, .. } => self.take_back(seq, message, order_of(message)),
            Body::ControlAnswered { control, .. } => self.answer(seq, control, order_of(control)),
            Body::AnswerRecorded { message, .. } if self.turn.as_ref().is_none_or(|(_, open)| open != message) => {
                self.say(seq, "an answer to another message");
            }
            _ => {}
        }
    }

    fn within(&mut self, seq: u64, turn: u64) {
        if self.turn.as_ref().is_none_or(|(open, _)| *open != turn) || !self.live {
            self.say(seq, format!("is of turn {turn} while {:?} is open (live: {})", self.turn, self.live));
        }
    }

    fn take_back(&mut self, seq: u64, message: &MessageId, order: Option<Order>) {
        if order.is_none() || self.attempts.contains_key(message) || !self.withdrawn.insert(message.clone()) {
            self.say(seq, format!("{message} is taken back and waits still, has a turn, or was taken back before"));
        }
        self.newest_taken_back = Some(message.clone());
    }

    fn answer(&mut self, seq: u64, control: &MessageId, order: Option<Order>) {
        if order.is_none() || !self.answered.insert(control.clone()) {
            self.say(seq, format!("request {control} is answered and waits still, or was answered before"));
        }
    }

    fn start(&mut self, seq: u64, turn: u64, message: &MessageId, attempt: u32, order_of: &mut dyn FnMut(&MessageId) -> Option<Order>) {
        if !self.live || self.turn.is_some() || turn != self.turns + 1 {
            self.say(seq, format!("turn {turn} starts after {} (live: {}, open: {:?})", self.turns, self.live, self.turn));
        }
        if let Some(unfinished) = self.unfinished.take()
            && unfinished != *message
        {
            self.say(seq, format!("{message} is served before the unfinished {unfinished}"));
        }
        let attempts = self.attempts.entry(message.clone()).or_default();
        *attempts += 1;
        let expected = *attempts;
        if attempt != expected {
            self.say(seq, format!("attempt {attempt} at {message} is the {expected}th"));
        }
        if self.withdrawn.contains(message) {
            self.say(seq, format!("{message} is served after it was taken back"));
        }
        if self.finals.contains_key(message) {
            self.say(seq, format!("{message} is served again after its end"));
        }
        if attempt == 1 && !self.joined.contains(message) {
            let order = order_of(message);
            if order.is_none() {
                self.say(seq, format!("{message} was never accepted or still waits"));
            }
            if order <= self.last_turn_order && !self.played {
                self.say(seq, format!("{message} of order {order:?} is served after {:?}", self.last_turn_order));
            }
            self.last_turn_order = order.max(self.last_turn_order);
        }
        self.turns = turn;
        self.epoch_of_turn.insert(turn, self.epoch);
        self.turn = Some((turn, message.clone()));
        self.starts.insert(turn, (message.clone(), attempt));
        self.places.entry(message.clone()).or_insert((seq, 0));
    }

    fn end(&mut self, seq: u64, turn: u64, reason: &Reason) {
        self.newest_taken_back = None;
        let Some((open, message)) = self.turn.take() else { return self.say(seq, format!("turn {turn} ends and none is open")) };
        if open != turn || self.step.is_some() {
            self.say(seq, format!("turn {turn} ends while {open} is open, step {:?}", self.step));
        }
        self.step = None;
        if matches!(reason, Reason::Disposed | Reason::Interrupted) {
            self.unfinished = Some(message);
            return;
        }
        if *reason == Reason::Completed {
            self.completed.insert(turn);
        }
        if matches!(reason, Reason::Aborted { .. }) {
            self.aborted.insert(turn);
        }
        // A note that opened a turn has joined it, and that is its end.
        if self.joined.contains(&message) {
            return;
        }
        let finals = self.finals.entry(message.clone()).or_default();
        *finals += 1;
        if *finals > 1 {
            self.say(seq, format!("{message} ends a second time"));
        }
    }

    fn finish(&mut self, served: bool) {
        if let Some((_, message)) = &self.turn {
            self.unfinished = Some(message.clone());
        }
        let heard: Vec<_> = self.pending.intersection(&self.heard).cloned().collect();
        if !heard.is_empty() {
            self.wrong.push(format!("{heard:?} were heard and wait still"));
        }
        if served && !self.requests.is_empty() {
            self.wrong.push(format!("requests {:?} were never answered", self.requests));
        }
        if served && (self.turn.is_some() || self.unfinished.is_some()) {
            self.wrong.push(format!("turn {:?} is open or {:?} unfinished at the end", self.turn, self.unfinished));
        }
    }
}
