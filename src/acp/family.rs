//! What is known of everybody below one root, so that each start and end is told once.

use std::collections::HashMap;

use greenroom_actors::catalog::{Descendant, Status};
use greenroom_session::id::{EffectKey, EffectKind, MessageId, SessionId};

use super::update::{Child, Update};

/// Everybody below one root.
#[derive(Debug)]
pub(super) struct Family {
    root: SessionId,
    members: HashMap<SessionId, Member>,
}

#[derive(Debug, Default)]
struct Member {
    parent: Option<SessionId>,
    label: Option<String>,
    /// Whether it was told to be running; `None` before anything was told.
    running: Option<bool>,
    /// The call that stands for its delegation, and whether it is a tool's own.
    call: Option<(String, bool)>,
}

impl Family {
    pub(super) fn new(root: SessionId) -> Self {
        Self { root, members: HashMap::new() }
    }

    /// Tells whether a session is the root or below it.
    pub(super) fn has(&self, session: &SessionId) -> bool {
        *session == self.root || self.members.contains_key(session)
    }

    /// Takes note of a child.
    pub(super) fn met(&mut self, child: &SessionId, parent: &SessionId, label: Option<&str>) {
        let member = self.members.entry(child.clone()).or_default();
        member.parent = Some(parent.clone());
        if let Some(label) = label {
            member.label = Some(label.to_owned());
        }
    }

    /// The root has delegated, by one of the tool calls that are under way or without any.
    pub(super) fn delegated(
        &mut self,
        message: &MessageId,
        key: &str,
        target: &str,
        child: &SessionId,
        mut calls: impl Iterator<Item = String>,
    ) -> Option<Update> {
        let root = self.root.clone();
        let member = self.members.entry(child.clone()).or_default();
        member.parent = Some(root.clone());
        if member.call.is_some() {
            return None;
        }
        // A tool names what it does by its call.
        if let Some(call) = calls.find(|call| EffectKey::new(&root, message, EffectKind::Delegate, target, call.as_bytes(), 0).to_string() == key) {
            member.call = Some((call, true));
            return None;
        }
        Some(member.begin(child, target))
    }

    /// A child lives.
    pub(super) fn running(&mut self, child: &SessionId, target: &str) -> Vec<Update> {
        let Some(member) = self.members.get_mut(child) else { return Vec::new() };
        let mut told = Vec::new();
        if member.call.is_none() && member.parent.as_ref() == Some(&self.root) && member.running.is_none() {
            told.push(member.begin(child, target));
        }
        told.extend(member.turned(child, true, None));
        told
    }

    /// A child has come to rest.
    pub(super) fn complete(&mut self, child: &SessionId, outcome: Option<(String, Option<String>)>) -> Option<Update> {
        self.members.get_mut(child)?.turned(child, false, outcome)
    }

    /// Takes a listing; tells what is new in it.
    pub(super) fn listed(&mut self, descendant: &Descendant) -> Vec<Update> {
        let Some(listed) = descendant.entry.listed() else { return Vec::new() };
        self.met(&listed.id, &descendant.parent, listed.label.as_deref());
        match listed.status {
            Status::Running => self.running(&listed.id, &listed.agent),
            Status::Complete => {
                let outcome = listed.last_outcome.as_ref().map(|outcome| (outcome.kind.to_string(), outcome.code.as_ref().map(ToString::to_string)));
                self.complete(&listed.id, outcome).into_iter().collect()
            }
        }
    }

    /// Takes the label of a listing and nothing else.
    pub(super) fn named_only(&mut self, descendant: &Descendant) -> Vec<Update> {
        if let Some(listed) = descendant.entry.listed() {
            self.met(&listed.id, &descendant.parent, listed.label.as_deref());
        }
        Vec::new()
    }
}

impl Member {
    /// Makes a call of its own for a delegation that no tool has made.
    fn begin(&mut self, child: &SessionId, target: &str) -> Update {
        let id = format!("subagent-{child}");
        self.call = Some((id.clone(), false));
        let title = format!("subagent: {}", self.label.as_deref().unwrap_or(target));
        Update::CallStarted { id, name: "subagent".into(), title, arguments: None }
    }

    fn turned(&mut self, child: &SessionId, running: bool, outcome: Option<(String, Option<String>)>) -> Option<Update> {
        if self.running == Some(running) {
            return None;
        }
        self.running = Some(running);
        let parent = self.parent.clone()?;
        Some(Update::Child(Child { id: child.clone(), parent, label: self.label.clone(), running, outcome, call: self.call.clone() }))
    }
}
