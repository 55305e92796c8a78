//! A run that has come to its end, audited after damage of any kind, and what damages a log.

use std::{collections::BTreeMap, sync::Arc};

use greenroom_session::{
    event::{Body, Event, TurnEnd},
    id::{MessageId, SessionId},
    message::{InboxRecord, Message, Source},
    store::{Store, memory::MemoryStore},
};
use tokio::sync::mpsc;

use super::damaged::{Damaged, Records};
use crate::stress::{
    Fault, Finding, Progress,
    audit::{Audit, audit},
    cast,
    plan::{Name, Plan, Post},
    records::{self, Heard},
    work::{Assignment, work},
};

/// A run that has come to its end.
pub(super) struct Finished {
    pub(super) store: MemoryStore,
    pub(super) root: SessionId,
    pub(super) plan: Plan,
    /// By agent, its session.
    pub(super) agents: BTreeMap<u32, SessionId>,
    pub(super) heard: Heard,
}

pub(super) const TOTAL: u64 = 240;

impl Finished {
    pub(super) async fn run() -> Self {
        let plan = Plan { seed: 5, agents: 12, senders: 4, messages: 60, min_size: 8, max_size: 64 };
        let (store, root) = (MemoryStore::new(), SessionId::new("root").unwrap());
        let assignment =
            Assignment { store: "memory:".into(), plan: plan.clone(), root: root.clone(), inbox_limit: 16, senders: Heard::new(&plan).places(&plan) };
        let (tell, mut news) = mpsc::unbounded_channel();
        let mut records = records::Records::new(&plan).unwrap();
        let worked = async {
            assert!(work(Arc::new(store.clone()), &assignment, &tell, std::future::pending::<()>()).await.unwrap().is_none());
            drop(tell);
        };
        tokio::join!(worked, records.take_all(&mut news, &|_: Progress| {}));
        let (mut agents, mut open) = (BTreeMap::new(), vec![root.clone()]);
        let mut reader = store.reader().unwrap();
        while let Some(session) = open.pop() {
            for agent in 0..plan.agents {
                agents.extend(reader.alias(&session, &cast::alias(agent)).unwrap().map(|found| (agent, found)));
            }
            open.extend(reader.children(Some(&session), None, usize::MAX).unwrap().into_iter().map(|child| child.id));
        }
        Self { store, root, plan, agents, heard: records.heard }
    }

    /// Audits the logs after some damage was done to each.
    pub(super) fn audit_with(&self, acknowledged: u32, damage: impl FnMut(&SessionId, Records<'_>) + Send) -> Audit {
        self.audit_as(&self.heard_of(acknowledged), damage)
    }

    /// Audits the logs after some damage, against what was or was not heard.
    pub(super) fn audit_as(&self, heard: &Heard, damage: impl FnMut(&SessionId, Records<'_>) + Send) -> Audit {
        let mut reader = Damaged { reader: self.store.reader().unwrap(), damage };
        audit(&mut reader, &self.root, &self.plan, heard, false).unwrap()
    }

    /// Returns what was heard if each sender's messages were acknowledged so far only. What became of interrupts is known.
    pub(super) fn heard_of(&self, acknowledged: u32) -> Heard {
        let mut heard = self.heard.clone();
        heard.acknowledged = vec![acknowledged; 4];
        heard
    }

    /// Audits the logs after damage to the log of one agent.
    pub(super) fn audit_one(&self, post: &Post, mut damage: impl FnMut(Records<'_>) + Send) -> Audit {
        let of = self.agents[&post.to].clone();
        self.audit_with(self.plan.messages, move |session, records| {
            if *session == of {
                damage(records);
            }
        })
    }

    pub(super) fn posts(&self) -> impl Iterator<Item = Post> {
        (0..self.plan.senders).flat_map(|sender| (0..self.plan.messages).map(move |number| Name { sender, number })).map(|name| self.plan.post(name))
    }

    /// Returns the messages that have a turn, and how it ended.
    pub(super) fn served(&self) -> impl Iterator<Item = (Post, TurnEnd)> {
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

    pub(super) fn finding(&self, fault: Fault, post: &Post) -> Finding {
        Finding { fault, session: self.agents[&post.to].clone(), message: Some(post.name.id()) }
    }
}

/// Tells whether an event is of a message: begins or ends its turn, or shows it.
pub(super) fn is_of(event: &Event, id: &str, turns: &[u64]) -> bool {
    match &event.body {
        Body::TurnStart { message, .. } => message.as_str() == id,
        Body::UserMessage(message) => message.id.as_str() == id,
        Body::TurnEnd { turn, .. } => turns.contains(turn),
        _ => false,
    }
}

pub(super) fn turns_of(events: &[Event], id: &str) -> Vec<u64> {
    events
        .iter()
        .filter_map(|event| match &event.body {
            Body::TurnStart { turn, message, .. } if message.as_str() == id => Some(*turn),
            _ => None,
        })
        .collect()
}

/// Takes a message's turn out of a log and returns its events.
pub(super) fn cut_turn(events: &mut Vec<Event>, id: &str) -> Vec<Event> {
    let turns = turns_of(events, id);
    let (of, others) = std::mem::take(events).into_iter().partition(|event| is_of(event, id, &turns));
    *events = others;
    of
}

pub(super) fn withdrawal(id: &str) -> Event {
    Body::MessageWithdrawn { message: MessageId::new(id).unwrap(), by: "user".into() }.at(0, 0)
}

/// Ends the turns of a message otherwise.
pub(super) fn end_as(events: &mut [Event], id: &str, end: &TurnEnd) {
    let turns = turns_of(events, id);
    for event in events {
        if let Body::TurnEnd { turn, reason } = &mut event.body
            && turns.contains(turn)
        {
            *reason = end.clone();
        }
    }
}

pub(super) fn aborted() -> TurnEnd {
    TurnEnd::Aborted { cause: "user".into() }
}

pub(super) fn counts(audit: &Audit) -> (u64, u64, u64, u64) {
    (audit.lost, audit.duplicated, audit.order_violations, audit.pending)
}

pub(super) fn record(id: &str) -> InboxRecord {
    InboxRecord { order: 0, held: false, message: Arc::new(Message::turn(id, "again", Source::User, 0).unwrap()) }
}
