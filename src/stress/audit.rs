//! The audit: what the senders were told against what the logs say.
//!
//! It is told the plan, what was acknowledged and answered to each sender, and a reader. It never asks the runtime, and what it reads are headers, events and
//! inboxes: a mistake in the fold or in a derived row cannot hide from it.

use std::collections::{HashMap, HashSet};

use greenroom_session::{
    id::{EffectKind, MessageId, Seq, SessionId},
    store::{LoadError, Reader, StoreError},
};

use super::{
    Fault, Finding, StressReport,
    plan::{Deed, Name, Plan, Request},
    records::{Answer, Heard},
    trail::{Effect, End, Origin, Trail, Trails},
};

/// The one message that the root is sent.
const LAYOUT: &str = "layout";

/// What the audit came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Audit {
    pub(super) accepted: u64,
    pub(super) served: u64,
    pub(super) failed: u64,
    pub(super) interrupted: u64,
    pub(super) withdrawn: u64,
    pub(super) pending: u64,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) order_violations: u64,
    pub(super) sessions: u64,
    pub(super) epochs: u64,
    pub(super) turns: u64,
    pub(super) retries: u64,
    pub(super) findings: Vec<Finding>,
}

/// Audits the tree of `root` against what was heard. `cut_off` tells that the run did not come to its
/// end, so that what waits is no fault. Reads every session once.
pub(super) fn audit(reader: &mut dyn Reader, root: &SessionId, plan: &Plan, heard: &Heard, cut_off: bool) -> Result<Audit, StoreError> {
    let mut auditor = Auditor {
        plan,
        heard,
        cut_off,
        to: sent_to(plan, &heard.acknowledged),
        interrupts: interrupts(plan, heard),
        agents: HashSet::new(),
        kept: HashSet::new(),
        begun: HashSet::new(),
        effects: Vec::new(),
        audit: Audit::default(),
    };
    auditor.audit.accepted = heard.acknowledged.iter().map(|count| u64::from(*count)).sum();
    let mut open = vec![root.clone()];
    while let Some(session) = open.pop() {
        open.extend(reader.children(Some(&session), None, usize::MAX)?.into_iter().map(|child| child.id));
        match Trails::read(reader, &session) {
            Ok(trails) => auditor.session(&session, &session == root, trails),
            // Cut off before there was anything; what was acknowledged nevertheless is lost.
            Err(LoadError::NotFound(_)) if cut_off && &session == root => {}
            Err(_) => auditor.find(Fault::Unreadable, &session, None),
        }
    }
    auditor.agents_that_are_missing(root);
    auditor.effects();
    Ok(auditor.audit)
}

/// Returns by agent the messages to it that were acknowledged, each sender's in its order.
fn sent_to(plan: &Plan, acknowledged: &[u32]) -> Vec<Vec<Name>> {
    let mut to: Vec<Vec<Name>> = (0..plan.agents).map(|_| Vec::new()).collect();
    for (sender, count) in (0..).zip(acknowledged) {
        for number in 0..*count {
            let name = Name { sender, number };
            if let Some(agent) = usize::try_from(plan.post(name).to).ok().and_then(|agent| to.get_mut(agent)) {
                agent.push(name);
            }
        }
    }
    to
}

/// What may have interrupted the turns of one agent.
#[derive(Debug, Default)]
struct Interrupts {
    /// What senders were told: the message after which each asked, and the turn that was ended.
    told: Vec<(Name, u64)>,
    /// How many others may have ended a turn each.
    untold: usize,
}

/// Returns by agent what may have interrupted its turns.
fn interrupts(plan: &Plan, heard: &Heard) -> HashMap<u32, Interrupts> {
    let mut by_agent: HashMap<u32, Interrupts> = HashMap::new();
    for name in &heard.interrupting {
        let interrupts = by_agent.entry(plan.post(*name).to).or_default();
        match heard.answers.get(name) {
            Some(Answer::Interrupted { turn }) => interrupts.told.push((*name, *turn)),
            Some(_) => {}
            None => interrupts.untold += 1,
        }
    }
    by_agent
}

struct Auditor<'a> {
    plan: &'a Plan,
    heard: &'a Heard,
    cut_off: bool,
    to: Vec<Vec<Name>>,
    /// By agent.
    interrupts: HashMap<u32, Interrupts>,
    /// The agents that were found.
    agents: HashSet<u32>,
    /// Messages of agents to each other that are accounted for.
    kept: HashSet<(String, String)>,
    /// Sessions that have had a message of their parent.
    begun: HashSet<String>,
    effects: Vec<(SessionId, Effect)>,
    audit: Audit,
}

impl Auditor<'_> {
    fn find(&mut self, fault: Fault, session: &SessionId, message: Option<String>) {
        match fault {
            Fault::Lost => self.audit.lost += 1,
            Fault::Duplicated => self.audit.duplicated += 1,
            Fault::Overtook => self.audit.order_violations += 1,
            _ => {}
        }
        if self.audit.findings.len() < StressReport::MAX_FINDINGS {
            self.audit.findings.push(Finding { fault, session: session.clone(), message });
        }
    }

    fn session(&mut self, session: &SessionId, is_root: bool, trails: Trails) {
        self.audit.sessions += u64::from(!is_root);
        self.audit.epochs += trails.epochs;
        self.audit.turns += trails.turns;
        self.audit.retries += trails.retries;
        self.aborts(session, &trails);
        self.effects.extend(trails.effects.into_iter().map(|effect| (session.clone(), effect)));
        if let Some(agent) = trails.agent {
            if self.agents.insert(agent) {
                self.sent(session, agent, &trails.messages);
            } else {
                self.find(Fault::Miscast, session, None);
            }
        }
        // In the order of their ids, so that a report of the same logs is the same.
        let mut messages: Vec<_> = trails.messages.into_iter().collect();
        messages.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (id, trail) in messages {
            self.message(session, is_root, trails.agent, &id, &trail);
        }
    }

    /// Checks what holds for every message of a session, whoever sent it.
    fn message(&mut self, session: &SessionId, is_root: bool, agent: Option<u32>, id: &MessageId, trail: &Trail) {
        let named = || Some(id.to_string());
        if trail.is_double() {
            self.find(Fault::Duplicated, session, named());
        }
        // A quiet note may wait for ever.
        if !self.cut_off && ((trail.waits && trail.wakes) || trail.is_open()) {
            self.find(Fault::LeftOver, session, named());
        }
        match trail.origin {
            Origin::Agent => {
                if trail.is_kept() {
                    self.kept.insert((session.to_string(), id.to_string()));
                    self.begun.insert(session.to_string());
                }
            }
            Origin::Notice => {}
            Origin::Sender | Origin::Unknown => {
                let planned = Name::read(id.as_str()).filter(|name| self.plan.has(*name));
                let meant = planned.is_some_and(|name| agent == Some(self.plan.post(name).to)) || (is_root && id.as_str() == LAYOUT);
                let given_back = planned.is_some_and(|name| self.plan.post(name).next == Some(Request::Withdraw));
                if !meant {
                    self.find(Fault::Stranger, session, named());
                } else if trail.withdrawn > 0 && !given_back {
                    self.find(Fault::Unplanned, session, named());
                }
            }
        }
    }

    /// Checks that the turns that were interrupted are those of which senders were told, and of others no more than were asked for.
    fn aborts(&mut self, session: &SessionId, trails: &Trails) {
        let Interrupts { mut told, mut untold } = trails.agent.and_then(|agent| self.interrupts.remove(&agent)).unwrap_or_default();
        // In order, so that a report of the same logs is the same.
        told.sort_unstable();
        let mut explained = HashSet::new();
        for (name, turn) in told {
            // A turn that a crash cut off is ended by another one of the same message.
            let message = trails.served.get(&turn);
            let is_aborted = message.and_then(|message| trails.messages.get(message)).is_some_and(|trail| trail.end == Some(End::Aborted));
            match message {
                Some(message) if is_aborted => drop(explained.insert(message)),
                _ => self.find(Fault::Contradicted, session, Some(name.id())),
            }
        }
        let aborted = trails.messages.iter().filter(|(id, trail)| trail.end == Some(End::Aborted) && !explained.contains(id));
        let mut others: Vec<&MessageId> = aborted.map(|(id, _)| id).collect();
        others.sort_unstable();
        for id in others {
            match untold.checked_sub(1) {
                Some(left) => untold = left,
                None => self.find(Fault::Unplanned, session, Some(id.to_string())),
            }
        }
    }

    /// Checks the messages of senders to one agent: each has its end, and each sender's had their first turns in its order.
    fn sent(&mut self, session: &SessionId, agent: u32, messages: &HashMap<MessageId, Trail>) {
        let names = usize::try_from(agent).ok().and_then(|agent| self.to.get_mut(agent)).map(std::mem::take).unwrap_or_default();
        let mut order = Order::default();
        for name in names {
            let trail = MessageId::new(name.id()).ok().and_then(|id| messages.get(&id)).cloned().unwrap_or_default();
            self.outcome(session, name, &trail);
            if order.is_broken_by(name, &trail) {
                self.find(Fault::Overtook, session, Some(name.id()));
            }
        }
        // What was accepted without its sender having been told was sent after everything that the sender was told of.
        let mut unacknowledged: Vec<_> = messages.iter().filter_map(|(id, trail)| Some((self.unacknowledged(id)?, trail))).collect();
        unacknowledged.sort_by_key(|(name, _)| *name);
        let mut last = HashMap::new();
        for (name, trail) in unacknowledged {
            let Some(first) = trail.first_turn else { continue };
            let before = last.insert(name.sender, first);
            if before.is_some_and(|before| before > first) || order.latest(name.sender).is_some_and(|latest| latest > first) {
                self.find(Fault::Overtook, session, Some(name.id()));
            }
        }
    }

    fn unacknowledged(&self, id: &MessageId) -> Option<Name> {
        let name = Name::read(id.as_str()).filter(|name| self.plan.has(*name))?;
        let told = self.heard.acknowledged.get(usize::try_from(name.sender).ok()?)?;
        (name.number >= *told).then_some(name)
    }

    /// Counts an acknowledged message as exactly one of lost, withdrawn, served, failed and pending.
    fn outcome(&mut self, session: &SessionId, name: Name, trail: &Trail) {
        if !trail.is_kept() {
            self.find(Fault::Lost, session, Some(name.id()));
            return;
        }
        let is_contradicted = match self.heard.answers.get(&name) {
            Some(Answer::Withdrawn) => trail.withdrawn == 0,
            Some(Answer::AlreadyStarted) => trail.first_turn.is_none(),
            // It was acknowledged before.
            Some(Answer::NotPending) => true,
            Some(Answer::Interrupted { .. } | Answer::NotRunning) | None => false,
        };
        if is_contradicted {
            self.find(Fault::Contradicted, session, Some(name.id()));
        }
        let to_fail = self.plan.post(name).deed == Deed::Fail;
        match trail.end {
            _ if trail.withdrawn > 0 => self.audit.withdrawn += 1,
            _ if trail.ends == 0 => self.audit.pending += 1,
            // Whether it was to be interrupted is judged with all others of the session.
            Some(End::Aborted) => self.audit.interrupted += 1,
            Some(End::Completed) if to_fail => self.find(Fault::Unplanned, session, Some(name.id())),
            Some(End::Failed) if !to_fail => self.find(Fault::Unplanned, session, Some(name.id())),
            _ => {}
        }
        if trail.withdrawn == 0 && trail.ends > 0 {
            if trail.end == Some(End::Completed) { self.audit.served += 1 } else { self.audit.failed += 1 }
        }
    }

    /// What was acknowledged for an agent that is not there is lost.
    fn agents_that_are_missing(&mut self, root: &SessionId) {
        for agent in 0..self.plan.agents {
            if self.agents.contains(&agent) {
                continue;
            }
            if !self.cut_off {
                self.find(Fault::Miscast, root, None);
            }
            let names = usize::try_from(agent).ok().and_then(|agent| self.to.get_mut(agent)).map(std::mem::take).unwrap_or_default();
            for name in names {
                self.find(Fault::Lost, root, Some(name.id()));
            }
        }
    }

    /// What an agent's log calls accepted is in the receiver's.
    fn effects(&mut self) {
        for (by, effect) in std::mem::take(&mut self.effects) {
            let Effect { kind, target, id } = effect;
            let kept = match kind {
                EffectKind::Delegate => self.begun.contains(&id),
                EffectKind::Send | EffectKind::Report => self.kept.contains(&(target.clone(), id.clone())),
            };
            if !kept {
                self.find(Fault::Lost, &SessionId::new(&target).unwrap_or(by), Some(id));
            }
        }
    }
}

/// Where each sender's messages to one agent had their first turns.
#[derive(Debug, Default)]
struct Order {
    /// By sender, the latest so far; the greatest seq stands for a message that still waits.
    latest: HashMap<u32, Seq>,
}

impl Order {
    /// Takes the next message of a sender and tells whether it came before an earlier one.
    fn is_broken_by(&mut self, name: Name, trail: &Trail) -> bool {
        let first = match trail.first_turn {
            Some(first) => first,
            None if trail.waits => Seq::MAX,
            // Lost or taken back: it has no place.
            None => return false,
        };
        let latest = self.latest.entry(name.sender).or_default();
        let broken = first < *latest;
        *latest = first.max(*latest);
        broken
    }

    fn latest(&self, sender: u32) -> Option<Seq> {
        self.latest.get(&sender).copied()
    }
}
