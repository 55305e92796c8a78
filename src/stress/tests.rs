//! The audit against logs that were damaged after a run, fault by fault, and against a store that loses what it has accepted.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use greenroom_session::{
    event::{Body, Event, TurnEnd},
    header::Header,
    id::{MessageId, OwnerId, Seq, SessionId},
    listing::{Cursor, Description},
    message::{Control, InboxRecord, Message, MessageKind, Source},
    store::{CommitError, Done, ExportError, Lease, LoadError, Log, MessageState, Op, Reader, Refused, Store, StoreError, Traced, memory::MemoryStore},
};
use tokio::sync::mpsc;

use super::{
    Fault, Finding, Progress, StressOptions,
    audit::{Audit, audit},
    plan::{Deed, Name, Plan, Post, Request},
    records::{Answer, Heard, Records as Ledger},
    run::stress_over,
    work::{Assignment, work},
};

/// What stands in one log and one inbox.
type Records<'a> = (&'a mut Vec<Event>, &'a mut Vec<InboxRecord>);

/// A reader of a store whose logs and inboxes somebody has changed.
struct Damaged<F> {
    reader: Box<dyn Reader>,
    damage: F,
}

impl<F> std::fmt::Debug for Damaged<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Damaged")
    }
}

impl<F: FnMut(&SessionId, Records<'_>) + Send> Damaged<F> {
    fn records(&mut self, id: &SessionId) -> Result<(Vec<Event>, Vec<InboxRecord>), LoadError> {
        let (mut events, mut inbox) = (self.reader.events(id, 0, usize::MAX)?, self.reader.inbox(id, usize::MAX)?);
        (self.damage)(id, (&mut events, &mut inbox));
        // A log has no gaps, whatever was done to it.
        for (seq, event) in (0..).zip(&mut events) {
            event.seq = seq;
        }
        Ok((events, inbox))
    }
}

impl<F: FnMut(&SessionId, Records<'_>) + Send> Reader for Damaged<F> {
    fn header(&mut self, id: &SessionId) -> Result<Option<Arc<Header>>, LoadError> {
        self.reader.header(id)
    }
    fn is_removed(&mut self, _: &SessionId) -> Result<bool, StoreError> {
        unimplemented!("the audit asks no tombstone")
    }
    fn export(&mut self, _: &SessionId, _: &mut dyn FnMut(&[u8]) -> std::io::Result<()>) -> Result<(), ExportError> {
        unimplemented!("the audit reads records")
    }
    fn load(&mut self, _: &SessionId) -> Result<Log, LoadError> {
        unimplemented!("the audit asks no fold")
    }
    fn events(&mut self, id: &SessionId, from: Seq, limit: usize) -> Result<Vec<Event>, LoadError> {
        Ok(self.records(id)?.0.into_iter().skip(usize::try_from(from).unwrap()).take(limit).collect())
    }
    fn inbox(&mut self, id: &SessionId, limit: usize) -> Result<Vec<InboxRecord>, LoadError> {
        Ok(self.records(id)?.1.into_iter().take(limit).collect())
    }
    fn message(&mut self, _: &SessionId, _: &MessageId) -> Result<Option<MessageState>, LoadError> {
        unimplemented!("the audit asks no index")
    }
    fn children(&mut self, parent: Option<&SessionId>, after: Option<&Cursor>, limit: usize) -> Result<Vec<Traced>, StoreError> {
        self.reader.children(parent, after, limit)
    }
    fn describe(&mut self, _: &[Traced], _: bool) -> Result<Vec<Result<Description, LoadError>>, StoreError> {
        unimplemented!("the audit asks no derived row")
    }
    fn find(&mut self, _: &str, _: usize) -> Result<Vec<SessionId>, StoreError> {
        unimplemented!("the audit asks no index")
    }
    fn alias(&mut self, _: &SessionId, _: &str) -> Result<Option<SessionId>, StoreError> {
        unimplemented!("the audit asks no index")
    }
    fn runnable(&mut self, _: Option<&SessionId>, _: usize) -> Result<Vec<SessionId>, StoreError> {
        unimplemented!("the audit asks no derived row")
    }
    fn leases(&mut self, _: Option<&SessionId>) -> Result<Vec<Lease>, StoreError> {
        unimplemented!("the audit asks no lease")
    }
}

/// A run that has come to its end.
struct Finished {
    store: MemoryStore,
    root: SessionId,
    plan: Plan,
    /// By agent, its session.
    agents: BTreeMap<u32, SessionId>,
    heard: Heard,
}

const TOTAL: u64 = 240;

impl Finished {
    async fn run() -> Self {
        let plan = Plan { seed: 5, agents: 12, senders: 4, messages: 60, min_size: 8, max_size: 64 };
        let (store, root) = (MemoryStore::new(), SessionId::new("root").unwrap());
        let assignment =
            Assignment { store: "memory:".into(), plan: plan.clone(), root: root.clone(), inbox_limit: 16, senders: Heard::new(&plan).places(&plan) };
        let (tell, mut news) = mpsc::unbounded_channel();
        let mut records = Ledger::new(&plan).unwrap();
        let worked = async {
            assert!(work(Arc::new(store.clone()), &assignment, &tell, std::future::pending::<()>()).await.unwrap().is_none());
            drop(tell);
        };
        tokio::join!(worked, records.take_all(&mut news, &|_: Progress| {}));
        let (mut agents, mut open) = (BTreeMap::new(), vec![root.clone()]);
        let mut reader = store.reader().unwrap();
        while let Some(session) = open.pop() {
            for agent in 0..plan.agents {
                agents.extend(reader.alias(&session, &super::cast::alias(agent)).unwrap().map(|found| (agent, found)));
            }
            open.extend(reader.children(Some(&session), None, usize::MAX).unwrap().into_iter().map(|child| child.id));
        }
        Self { store, root, plan, agents, heard: records.heard }
    }

    /// Audits the logs after some damage was done to each.
    fn audit_with(&self, acknowledged: u32, damage: impl FnMut(&SessionId, Records<'_>) + Send) -> Audit {
        self.audit_as(&self.heard_of(acknowledged), damage)
    }

    /// Audits the logs after some damage, against what was or was not heard.
    fn audit_as(&self, heard: &Heard, damage: impl FnMut(&SessionId, Records<'_>) + Send) -> Audit {
        let mut reader = Damaged { reader: self.store.reader().unwrap(), damage };
        audit(&mut reader, &self.root, &self.plan, heard, false).unwrap()
    }

    /// Returns what was heard if each sender's messages were acknowledged so far only. What became of interrupts is known.
    fn heard_of(&self, acknowledged: u32) -> Heard {
        let mut heard = self.heard.clone();
        heard.acknowledged = vec![acknowledged; 4];
        heard
    }

    /// Audits the logs after damage to the log of one agent.
    fn audit_one(&self, post: &Post, mut damage: impl FnMut(Records<'_>) + Send) -> Audit {
        let of = self.agents[&post.to].clone();
        self.audit_with(self.plan.messages, move |session, records| {
            if *session == of {
                damage(records);
            }
        })
    }

    fn posts(&self) -> impl Iterator<Item = Post> {
        (0..self.plan.senders).flat_map(|sender| (0..self.plan.messages).map(move |number| Name { sender, number })).map(|name| self.plan.post(name))
    }

    /// Returns the messages that have a turn, and how it ended.
    fn served(&self) -> impl Iterator<Item = (Post, TurnEnd)> {
        self.posts().filter_map(|post| {
            let events = self.store.reader().unwrap().events(&self.agents[&post.to], 0, usize::MAX).unwrap();
            let turns = turns_of(&events, &post.name.id());
            let end = events.into_iter().find_map(|event| match event.body {
                Body::TurnEnd { turn, reason } if turns.contains(&turn) => Some(reason),
                _ => None,
            });
            end.map(|end| (post, end))
        })
    }

    fn finding(&self, fault: Fault, post: &Post) -> Finding {
        Finding { fault, session: self.agents[&post.to].clone(), message: Some(post.name.id()) }
    }
}

/// Tells whether an event is of a message: begins or ends its turn, or shows it.
fn is_of(event: &Event, id: &str, turns: &[u64]) -> bool {
    match &event.body {
        Body::TurnStart { message, .. } => message.as_str() == id,
        Body::UserMessage(message) => message.id.as_str() == id,
        Body::TurnEnd { turn, .. } => turns.contains(turn),
        _ => false,
    }
}

fn turns_of(events: &[Event], id: &str) -> Vec<u64> {
    events
        .iter()
        .filter_map(|event| match &event.body {
            Body::TurnStart { turn, message, .. } if message.as_str() == id => Some(*turn),
            _ => None,
        })
        .collect()
}

/// Takes a message's turn out of a log and returns its events.
fn cut_turn(events: &mut Vec<Event>, id: &str) -> Vec<Event> {
    let turns = turns_of(events, id);
    let (of, others) = std::mem::take(events).into_iter().partition(|event| is_of(event, id, &turns));
    *events = others;
    of
}

fn withdrawal(id: &str) -> Event {
    Body::MessageWithdrawn { message: MessageId::new(id).unwrap(), by: "user".into() }.at(0, 0)
}

/// Ends the turns of a message otherwise.
fn end_as(events: &mut [Event], id: &str, end: &TurnEnd) {
    let turns = turns_of(events, id);
    for event in events {
        if let Body::TurnEnd { turn, reason } = &mut event.body
            && turns.contains(turn)
        {
            *reason = end.clone();
        }
    }
}

fn aborted() -> TurnEnd {
    TurnEnd::Aborted { cause: "user".into() }
}

fn counts(audit: &Audit) -> (u64, u64, u64, u64) {
    (audit.lost, audit.duplicated, audit.order_violations, audit.pending)
}

#[tokio::test]
async fn every_planted_fault_is_counted_and_named() {
    let run = Finished::run().await;
    let clean = run.audit_with(run.plan.messages, |_, _| {});
    assert_eq!((clean.accepted, clean.served + clean.failed + clean.withdrawn, counts(&clean)), (TOTAL, TOTAL, (0, 0, 0, 0)));
    assert_eq!(clean.findings, []);
    let ended = |holds: &dyn Fn(&Post, &TurnEnd) -> bool| run.served().filter(|(post, end)| holds(post, end)).count() as u64;
    let interrupted = ended(&|_, end| *end == aborted());
    let to_fail = ended(&|post, end| *end != aborted() && post.deed == Deed::Fail);
    assert_eq!((clean.failed, clean.interrupted), (to_fail + interrupted, interrupted));

    // Every ninth message, so that faults are planted at the beginning, in the middle and at the end of logs, in turns of every kind.
    for (post, end) in run.served().filter(|(post, end)| post.next.is_none() && *end != aborted()).step_by(9) {
        let id = post.name.id();
        let id = id.as_str();

        let lost = run.audit_one(&post, |(events, _)| drop(cut_turn(events, id)));
        assert_eq!(counts(&lost), (1, 0, 0, 0), "a turn is not there: {id}");
        assert_eq!(lost.findings, [run.finding(Fault::Lost, &post)]);
        assert_eq!(lost.served + lost.failed + lost.withdrawn + lost.lost, TOTAL);

        let unseen = run.audit_one(&post, |(events, _)| events.retain(|event| !matches!(&event.body, Body::UserMessage(message) if message.id.as_str() == id)));
        assert_eq!(counts(&unseen), (1, 0, 0, 0), "a turn without its message: {id}");

        let twice = run.audit_one(&post, |(events, _)| {
            let mut again = cut_turn(&mut events.clone(), id);
            for event in &mut again {
                if let Body::TurnStart { turn, .. } | Body::TurnEnd { turn, .. } = &mut event.body {
                    *turn += 1_000_000;
                }
            }
            events.extend(again);
        });
        assert_eq!(counts(&twice), (0, 1, 0, 0), "a turn is there twice: {id}");
        assert_eq!(twice.findings, [run.finding(Fault::Duplicated, &post)]);

        let shown_twice = run.audit_one(&post, |(events, _)| {
            let shown = events.iter().find(|event| matches!(&event.body, Body::UserMessage(message) if message.id.as_str() == id)).cloned();
            events.extend(shown);
        });
        assert_eq!(counts(&shown_twice), (0, 1, 0, 0), "a message is shown twice: {id}");

        let ended_twice = run.audit_one(&post, |(events, _)| {
            let again = Body::TurnStart { turn: 1_000_000, message: MessageId::new(id).unwrap(), attempt: 2 };
            events.extend([again.at(0, 0), Body::TurnEnd { turn: 1_000_000, reason: TurnEnd::Completed }.at(0, 0)]);
        });
        assert_eq!(ended_twice.duplicated, 1, "a second attempt after a final end: {id}");

        let withdrawn = run.audit_one(&post, |(events, _)| {
            drop(cut_turn(events, id));
            events.push(withdrawal(id));
        });
        assert_eq!((withdrawn.withdrawn, counts(&withdrawn)), (clean.withdrawn + 1, (0, 0, 0, 0)));
        assert!(withdrawn.findings.contains(&run.finding(Fault::Unplanned, &post)), "taken back, and nobody had asked for that: {id}");
        let served_too = run.audit_one(&post, |(events, _)| events.push(withdrawal(id)));
        assert_eq!(counts(&served_too), (0, 1, 0, 0), "served and taken back: {id}");

        let waits_too = run.audit_one(&post, |(_, inbox)| inbox.push(record(id)));
        assert_eq!(counts(&waits_too), (0, 1, 0, 0), "served, and waits to be served again: {id}");

        let pending = run.audit_one(&post, |(events, inbox)| {
            drop(cut_turn(events, id));
            inbox.push(record(id));
        });
        assert_eq!((pending.lost, pending.duplicated, pending.pending), (0, 0, 1), "it waits: {id}");
        assert!(pending.findings.contains(&run.finding(Fault::LeftOver, &post)));

        let endless = run.audit_one(&post, |(events, _)| {
            let turns = turns_of(events, id);
            events.retain(|event| !matches!(&event.body, Body::TurnEnd { turn, .. } if turns.contains(turn)));
        });
        assert_eq!(counts(&endless), (0, 0, 0, 1), "a turn without an end: {id}");

        for other in [TurnEnd::error("X", "x"), TurnEnd::Completed, aborted(), TurnEnd::MaxTokens] {
            if matches!((&end, &other), (TurnEnd::Completed, TurnEnd::Completed) | (TurnEnd::Error { .. }, TurnEnd::Error { .. } | TurnEnd::MaxTokens)) {
                continue;
            }
            let otherwise = run.audit_one(&post, |(events, _)| end_as(events, id, &other));
            assert_eq!((counts(&otherwise), otherwise.findings), ((0, 0, 0, 0), vec![run.finding(Fault::Unplanned, &post)]), "{id} ends {other:?}");
        }

        let retried = run.audit_one(&post, |(events, _)| {
            let at = events.iter().position(|event| matches!(&event.body, Body::TurnStart { message, .. } if message.as_str() == id)).unwrap();
            let first = Body::TurnStart { turn: 1_000_000, message: MessageId::new(id).unwrap(), attempt: 1 };
            let cut = Body::TurnEnd { turn: 1_000_000, reason: TurnEnd::Interrupted };
            events.splice(at..at, [first.at(0, 0), cut.at(0, 0)]);
        });
        assert_eq!(retried.findings, [], "a retry is no duplicate: {id}");
    }
}

#[tokio::test]
async fn an_overtaken_message_is_counted_for_its_sender_only() {
    let run = Finished::run().await;
    let mut swapped = 0;
    let served: Vec<Post> = run.served().map(|(post, _)| post).collect();
    for first in served.iter().cloned().step_by(6) {
        let same_sender =
            served.iter().find(|post| post.to == first.to && post.name.sender == first.name.sender && post.name.number > first.name.number).cloned();
        let Some(second) = same_sender else { continue };
        let between = |events: &mut Vec<Event>, earlier: &str, later: &str| {
            // The earlier one's turn is moved to just behind the later one's.
            let turn = cut_turn(events, earlier);
            let turns = turns_of(events, later);
            let at = events.iter().rposition(|event| is_of(event, later, &turns)).unwrap() + 1;
            events.splice(at..at, turn);
        };
        let (a, b) = (first.name.id(), second.name.id());
        let audit = run.audit_one(&first, |(events, _)| between(events, &a, &b));
        assert_eq!(counts(&audit), (0, 0, 1, 0), "{a} behind {b}");
        assert_eq!(audit.findings, [run.finding(Fault::Overtook, &second)]);

        // One that still waits was overtaken by all that were served and sent after it.
        let audit = run.audit_one(&first, |(events, inbox)| {
            drop(cut_turn(events, &a));
            inbox.push(record(&a));
        });
        assert!(audit.order_violations >= 1, "{a} waits, {b} does not");
        swapped += 1;
    }
    assert!(swapped > 15);
    // Among messages of different senders there is no order.
    let (a, b) = served
        .iter()
        .cloned()
        .find_map(|a| Some((a.clone(), served.iter().find(|b| b.to == a.to && b.name.sender > a.name.sender && b.name.number == a.name.number).cloned()?)))
        .unwrap();
    let audit = run.audit_one(&a, |(events, _)| {
        for event in events.iter_mut() {
            if let Body::TurnStart { message, .. } | Body::UserMessage(greenroom_session::event::SurfaceMessage { id: message, .. }) = &mut event.body {
                let swapped = if message.as_str() == a.name.id() {
                    b.name.id()
                } else if message.as_str() == b.name.id() {
                    a.name.id()
                } else {
                    continue;
                };
                *message = MessageId::new(swapped).unwrap();
            }
        }
    });
    let of_others = audit.findings.iter().filter(|finding| finding.fault == Fault::Duplicated || finding.fault == Fault::Lost).count();
    assert_eq!(of_others, 0);
}

#[tokio::test]
async fn what_no_sender_was_told_may_be_there_once_and_what_nobody_sent_never() {
    let run = Finished::run().await;
    // The senders were told of the first half only; the rest is there nevertheless.
    let audit = run.audit_with(run.plan.messages / 2, |_, _| {});
    assert_eq!((audit.accepted, audit.served + audit.failed + audit.withdrawn, audit.findings), (TOTAL / 2, TOTAL / 2, vec![]));
    let served: Vec<Post> = run.served().filter(|(post, end)| post.next.is_none() && *end != aborted()).map(|(post, _)| post).collect();
    let post = served.iter().rfind(|post| post.name.number >= run.plan.messages / 2).cloned().unwrap();
    let id = post.name.id();
    let of = run.agents[&post.to].clone();
    let audit = run.audit_with(run.plan.messages / 2, |session, (_, inbox)| {
        if *session == of {
            inbox.push(record(&id));
        }
    });
    assert_eq!((audit.duplicated, &audit.findings[0]), (1, &run.finding(Fault::Duplicated, &post)), "not told of, and there twice");
    let audit = run.audit_with(run.plan.messages / 2, |session, (events, _)| {
        if *session == of {
            drop(cut_turn(events, &id));
        }
    });
    assert_eq!(audit.findings, [], "not told of, and not there");

    // What was accepted unknown to its sender came after everything that the sender was told of, and in its order.
    let half = run.plan.messages / 2;
    let first = run.posts().find(|post| post.name.number + 1 == half).unwrap();
    let later = served.iter().filter(|post| post.name.sender == first.name.sender && post.name.number >= half);
    let same: Vec<&Post> =
        later.filter(|post| served.iter().any(|other| other.to == post.to && other.name.sender == post.name.sender && other.name < post.name)).collect();
    assert!(!same.is_empty());
    for overtaking in same {
        let (id, of) = (overtaking.name.id(), run.agents[&overtaking.to].clone());
        let audit = run.audit_with(half, |session, (events, _)| {
            if *session == of {
                // Its turn is moved to the beginning of all.
                let turn = cut_turn(events, &id);
                events.splice(0..0, turn);
            }
        });
        assert!(audit.order_violations >= 1 && audit.lost + audit.duplicated == 0, "{id}: {:?}", audit.findings);
    }

    for stranger in ["s4-0", "s0-60", "hello", "layout"] {
        let audit = run.audit_one(&post, |(events, _)| {
            let mut turn = cut_turn(&mut events.clone(), &id);
            for event in &mut turn {
                match &mut event.body {
                    Body::TurnStart { message, turn, .. } => (*message, *turn) = (MessageId::new(stranger).unwrap(), 1_000_000),
                    Body::UserMessage(message) => message.id = MessageId::new(stranger).unwrap(),
                    Body::TurnEnd { turn, .. } => *turn = 1_000_000,
                    _ => {}
                }
            }
            events.extend(turn);
        });
        let expected = Finding { fault: Fault::Stranger, session: of.clone(), message: Some(stranger.into()) };
        assert_eq!((counts(&audit), audit.findings), ((0, 0, 0, 0), vec![expected]));
    }
    // Delivered to another agent than it was sent to: lost here, sent by nobody there.
    let other = run.agents.iter().find(|(agent, _)| **agent != post.to).map(|(_, session)| session.clone()).unwrap();
    let moved = run.store.reader().unwrap().events(&of, 0, usize::MAX).map(|mut events| cut_turn(&mut events, &id)).unwrap();
    let audit = run.audit_with(run.plan.messages, |session, (events, _)| {
        if *session == of {
            drop(cut_turn(events, &id));
        } else if *session == other {
            events.extend(moved.iter().cloned().map(|mut event| {
                if let Body::TurnStart { turn, .. } | Body::TurnEnd { turn, .. } = &mut event.body {
                    *turn += 1_000_000;
                }
                event
            }));
        }
    });
    let mut faults: Vec<Fault> = audit.findings.iter().map(|finding| finding.fault).collect();
    faults.sort();
    assert_eq!(faults, [Fault::Lost, Fault::Stranger]);
}

#[tokio::test]
async fn what_agents_did_to_each_other_is_audited_too() {
    let run = Finished::run().await;
    let (mut planted, mut seen) = (0, 0);
    let mut reader = run.store.reader().unwrap();
    for session in run.agents.values().chain([&run.root]) {
        for event in reader.events(session, 0, usize::MAX).unwrap() {
            let Body::EffectAccepted { target, id, kind, .. } = &event.body else { continue };
            let kind = kind.as_str();
            seen += 1;
            if kind == "report" && seen % 3 > 0 {
                continue;
            }
            let audit = run.audit_with(run.plan.messages, |session, (events, inbox)| {
                if session.as_str() == target && kind != "delegate" {
                    drop(cut_turn(events, id));
                    events.retain(|event| !matches!(&event.body, Body::UserMessage(message) if message.id.as_str() == id));
                    inbox.retain(|record| record.message.id.as_str() != id);
                } else if session.as_str() == id {
                    // A child whose first message is gone.
                    events.retain(|event| !matches!(event.body, Body::UserMessage(_)));
                    inbox.clear();
                }
            });
            assert!(audit.lost >= 1 && !audit.findings.is_empty(), "{kind} {id} to {target}");
            planted += 1;
        }
    }
    assert!(planted > 20, "{planted}");
}

#[tokio::test]
async fn an_agent_that_is_not_there_loses_its_messages_and_a_note_that_nobody_took_is_left_over() {
    let run = Finished::run().await;
    for (agent, session) in &run.agents {
        let audit = run.audit_with(run.plan.messages, |of, (events, _)| {
            if of == session {
                events.retain(|event| !matches!(event.body, Body::Descriptor(_)));
            }
        });
        let to_it = run.posts().filter(|post| post.to == *agent).count() as u64;
        assert_eq!((audit.accepted, audit.lost, audit.served + audit.failed + audit.withdrawn), (TOTAL, to_it, TOTAL - to_it), "agent {agent}");
        assert!(to_it == 0 || audit.findings.iter().any(|finding| finding.fault == Fault::Stranger), "what is there belongs to nobody");
        let miscast = Finding { fault: Fault::Miscast, session: run.root.clone(), message: None };
        assert!(audit.findings.len() == super::StressReport::MAX_FINDINGS || audit.findings.contains(&miscast), "agent {agent}");
    }
    for quiet in [false, true] {
        let id = MessageId::new("note").unwrap();
        let note = Message::note(id, "news", Source::SubagentReport { session: run.root.clone() }, 0, quiet).unwrap();
        let audit = run.audit_with(run.plan.messages, |session, (_, inbox)| {
            if *session == run.root {
                inbox.push(InboxRecord { order: 0, held: false, message: Arc::new(note.clone()) });
            }
        });
        let left_over = Finding { fault: Fault::LeftOver, session: run.root.clone(), message: Some("note".into()) };
        assert_eq!(audit.findings, if quiet { vec![] } else { vec![left_over] });
    }
    // Of a run that was cut off, neither is a fault.
    let mut reader = Damaged { reader: run.store.reader().unwrap(), damage: |_: &SessionId, (events, _): Records<'_>| events.clear() };
    let audit = audit(&mut reader, &run.root, &run.plan, &Heard::new(&run.plan), true).unwrap();
    assert_eq!((audit.accepted, audit.findings), (0, vec![]));
}

#[tokio::test]
async fn a_withdrawal_is_what_its_sender_was_told() {
    let run = Finished::run().await;
    let mut seen = 0;
    for post in run.posts().filter(|post| post.next == Some(Request::Withdraw)) {
        let (id, messages) = (post.name.id(), run.plan.messages);
        // Whatever came of it in the run: either is planted, and held against every answer.
        let withdrawn = |(events, _): Records<'_>| {
            drop(cut_turn(events, &id));
            events.retain(|event| !matches!(&event.body, Body::MessageWithdrawn { message, .. } if message.as_str() == id));
            events.push(withdrawal(&id));
        };
        let served = |(events, inbox): Records<'_>| {
            withdrawn((events, inbox));
            events.pop();
            let message = MessageId::new(&id).unwrap();
            let end = if post.deed == Deed::Fail { TurnEnd::error("PLANNED", "") } else { TurnEnd::Completed };
            let shown = Body::user_message(&Message::turn(&id, "", Source::User, 0).unwrap());
            let turn = [Body::TurnStart { turn: 1_000_000, message, attempt: 1 }, shown, Body::TurnEnd { turn: 1_000_000, reason: end }];
            // Behind all others of its agent it is behind the ones after it, too: told of first, so that no order is broken.
            let at = events.iter().position(|event| followers(&run, &post, event)).unwrap_or(events.len());
            events.splice(at..at, turn.map(|body| body.at(0, 0)));
        };
        let (yes, no) = ((0, 0, 0, 0), vec![run.finding(Fault::Contradicted, &post)]);
        for (answer, may_be_withdrawn, may_be_served) in
            [(None, true, true), (Some(Answer::Withdrawn), true, false), (Some(Answer::AlreadyStarted), false, true), (Some(Answer::NotPending), false, false)]
        {
            let mut heard = run.heard_of(messages);
            heard.answers.remove(&post.name);
            heard.answers.extend(answer.map(|answer| (post.name, answer)));
            let of = &run.agents[&post.to];
            let expected = |may| if may { vec![] } else { no.clone() };
            let audit = run.audit_as(&heard, |session, records| {
                if session == of {
                    withdrawn(records);
                }
            });
            assert_eq!((counts(&audit), audit.findings), (yes, expected(may_be_withdrawn)), "{id} is withdrawn, and its sender was told {answer:?}");
            let audit = run.audit_as(&heard, |session, records| {
                if session == of {
                    served(records);
                }
            });
            assert_eq!((counts(&audit), audit.findings), (yes, expected(may_be_served)), "{id} is served, and its sender was told {answer:?}");
        }
        let twice = run.audit_one(&post, |(events, inbox)| {
            withdrawn((events, inbox));
            events.push(withdrawal(&id));
        });
        assert_eq!(twice.duplicated, 1, "taken back twice: {id}");
        seen += 1;
    }
    assert!(seen > 5, "{seen}");
    // Nobody takes back what agents send to each other.
    let mut reader = run.store.reader().unwrap();
    let from_agent = run.agents.values().find_map(|session| {
        let events = reader.events(session, 0, usize::MAX).unwrap();
        events.into_iter().find_map(|event| match event.body {
            Body::UserMessage(message) if matches!(message.source, Source::Coordinator { .. }) && message.id.as_str().len() > 9 => Some((session, message.id)),
            _ => None,
        })
    });
    let (of, id) = from_agent.unwrap();
    let audit = run.audit_with(run.plan.messages, |session, (events, _)| {
        if session == of {
            drop(cut_turn(events, id.as_str()));
            events.push(withdrawal(id.as_str()));
        }
    });
    let stranger = Finding { fault: Fault::Stranger, session: of.clone(), message: Some(id.to_string()) };
    assert!(audit.findings.contains(&stranger), "{:?}", audit.findings);
}

/// Tells whether an event begins the turn of a later message of the same sender.
fn followers(run: &Finished, post: &Post, event: &Event) -> bool {
    let Body::TurnStart { message, .. } = &event.body else { return false };
    Name::read(message.as_str()).is_some_and(|name| run.plan.has(name) && name.sender == post.name.sender && name.number > post.name.number)
}

/// Undoes every interrupt in a log: as if each turn had ended by itself.
fn undo_interrupts(run: &Finished, events: &mut [Event]) {
    let mut served = BTreeMap::new();
    for event in events {
        match &mut event.body {
            Body::TurnStart { turn, message, .. } => drop(served.insert(*turn, message.clone())),
            Body::TurnEnd { turn, reason } if *reason == aborted() => {
                let name = served.get(turn).and_then(|message| Name::read(message.as_str()));
                let fails = name.is_some_and(|name| run.plan.post(name).deed == Deed::Fail);
                *reason = if fails { TurnEnd::error("PLANNED", "") } else { TurnEnd::Completed };
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_turn_is_interrupted_if_a_sender_was_told_so_or_was_never_told() {
    let run = Finished::run().await;
    // Which turns the run has hit is a race: every interrupt is undone, and those that are looked at are planted.
    let mut nothing_hit = run.heard_of(run.plan.messages);
    for post in run.posts().filter(|post| post.next == Some(Request::Interrupt)) {
        nothing_hit.interrupting.insert(post.name);
        nothing_hit.answers.insert(post.name, Answer::NotRunning);
    }
    let all: Vec<Post> = run.served().map(|(post, _)| post).filter(|post| post.deed != Deed::Fail).collect();
    let mut seen = 0;
    for post in all.iter().filter(|post| post.next == Some(Request::Interrupt)) {
        let (id, of, name) = (post.name.id(), &run.agents[&post.to], post.name);
        let turn = turns_of(&run.store.reader().unwrap().events(of, 0, usize::MAX).unwrap(), &id)[0];
        // A turn of the same agent for which nobody asks anything.
        let Some(other) = all.iter().find(|other| other.to == post.to && other.next.is_none()) else { continue };
        let with = |answer: Option<Answer>| {
            let mut heard = nothing_hit.clone();
            heard.answers.remove(&name);
            heard.answers.extend(answer.map(|answer| (name, answer)));
            heard
        };
        let audit = |heard: &Heard, aborts: &[&Post]| {
            run.audit_as(heard, |session, (events, _)| {
                undo_interrupts(&run, events);
                for post in aborts.iter().filter(|_| session == of) {
                    end_as(events, &post.name.id(), &aborted());
                }
            })
        };
        let found = |audit: &Audit| audit.findings.clone();
        let (unplanned, contradicted) = (|post| run.finding(Fault::Unplanned, post), run.finding(Fault::Contradicted, post));
        let told = with(Some(Answer::Interrupted { turn }));
        let clean = audit(&told, &[post]);
        assert_eq!((found(&clean), counts(&clean)), (vec![], (0, 0, 0, 0)), "{id}");
        assert!(clean.interrupted == 1 && clean.served + clean.failed + clean.withdrawn == TOTAL);
        assert_eq!(found(&audit(&told, &[])), std::slice::from_ref(&contradicted), "told so, and it was not: {id}");
        assert_eq!(found(&audit(&told, &[post, other])), [unplanned(other)], "another one, too: {id}");
        assert_eq!(found(&audit(&told, &[other])), [contradicted.clone(), unplanned(other)], "another one instead: {id}");
        assert_eq!(found(&audit(&with(Some(Answer::Interrupted { turn: 2_000_000 })), &[])), [contradicted], "no such turn: {id}");
        assert_eq!(found(&audit(&with(Some(Answer::NotRunning)), &[post])), [unplanned(post)], "told that none was: {id}");
        // An answer that a kill has cut off may have been any, once.
        let untold = with(None);
        for aborts in [&[][..], &[post], &[other]] {
            assert_eq!(found(&audit(&untold, aborts)), [], "not told: {id}");
        }
        assert_eq!(audit(&untold, &[post, other]).findings.len(), 1, "not told, and two turns: {id}");
        let mut not_asked = untold.clone();
        not_asked.interrupting.remove(&name);
        assert_eq!(found(&audit(&not_asked, &[post])), [unplanned(post)], "not asked: {id}");

        // One that a crash had cut off is named by the turn that was seen, and ended by the next.
        let retried = run.audit_as(&told, |session, (events, _)| {
            undo_interrupts(&run, events);
            if session == of {
                end_as(events, &id, &TurnEnd::Disposed);
                let again = Body::TurnStart { turn: 1_000_000, message: MessageId::new(&id).unwrap(), attempt: 2 };
                events.extend([again, Body::TurnEnd { turn: 1_000_000, reason: aborted() }].map(|body| body.at(0, 0)));
            }
        });
        assert_eq!(found(&retried), [], "cut off before: {id}");
        seen += 1;
    }
    assert!(seen > 5, "{seen}");
    let root = run.audit_with(run.plan.messages, |session, (events, _)| {
        if *session == run.root {
            end_as(events, "layout", &aborted());
        }
    });
    assert_eq!(root.findings, [Finding { fault: Fault::Unplanned, session: run.root.clone(), message: Some("layout".into()) }], "nobody asks the root");
}

#[tokio::test]
async fn a_request_of_another_process_is_no_message() {
    let run = Finished::run().await;
    for control in [Control::Interrupt { turn: Some(1) }, Control::Withdraw { target: MessageId::new("s0-0").unwrap() }] {
        let audit = run.audit_with(run.plan.messages, |_, (_, inbox)| {
            let message = Message::control(control.id(), control.clone(), 0);
            inbox.push(InboxRecord { order: 0, held: false, message: Arc::new(message) });
        });
        assert_eq!((counts(&audit), audit.findings), ((0, 0, 0, 0), vec![]));
    }
}

fn record(id: &str) -> InboxRecord {
    InboxRecord { order: 0, held: false, message: Arc::new(Message::turn(id, "again", Source::User, 0).unwrap()) }
}

/// A store that now and then says that it has accepted a message of a sender, and has not.
#[derive(Debug)]
struct Forgetful {
    store: MemoryStore,
    accepts: AtomicU64,
}

impl Forgetful {
    /// Passes an operation on, or breaks with what to answer in its place.
    fn swallow(&self, op: &Op) -> ControlFlow<Done> {
        match op {
            Op::Accept(accept)
                if accept.message.kind == MessageKind::Turn && accept.message.source == Source::User && accept.message.id.as_str() != "layout" =>
            {
                let count = self.accepts.fetch_add(1, Ordering::Relaxed);
                if count == 77 { ControlFlow::Break(Done::Accepted { order: 0, duplicate: false }) } else { ControlFlow::Continue(()) }
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Store for Forgetful {
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError> {
        let mut done = Vec::new();
        for op in ops {
            match self.swallow(op) {
                ControlFlow::Break(answer) => done.push(Ok(answer)),
                ControlFlow::Continue(()) => done.extend(self.store.commit(std::slice::from_ref(op))?),
            }
        }
        Ok(done)
    }
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.store.reader()
    }
    fn is_inline(&self) -> bool {
        true
    }
    fn owner(&self) -> &OwnerId {
        self.store.owner()
    }
}

#[tokio::test]
async fn a_store_that_swallows_one_acceptance_is_found_out() {
    let store = Arc::new(Forgetful { store: MemoryStore::new(), accepts: AtomicU64::new(0) });
    let mut options = StressOptions::new("memory:".parse().unwrap());
    (options.agents, options.senders, options.messages) = (12, 4, 60);
    let report = stress_over(&options, store, &|_: Progress| {}).await.unwrap();
    assert!(!report.is_clean());
    assert_eq!((report.accepted, report.lost, report.duplicated, report.order_violations, report.pending), (TOTAL, 1, 0, 0, 0));
    assert!(matches!(report.findings.as_slice(), [Finding { fault: Fault::Lost, message: Some(_), .. }]), "{:?}", report.findings);
}
