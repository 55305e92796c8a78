//! What one session's log and inbox say of each message. Read event by event: no fold and no derived row is asked.

use std::collections::{HashMap, HashSet};

use greenroom_session::{
    event::{Body, Event, TurnEnd},
    id::{EffectKind, MessageId, Seq, SessionId},
    message::{MessageKind, Source},
    store::{LoadError, Reader},
};
use serde_json::Value;

use super::cast::AGENT;

/// Events that are read at once.
const PAGE: usize = 2_048;

/// What a log and an inbox say of one message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Trail {
    pub(super) origin: Origin,
    /// How often its content was shown to the receiver.
    pub(super) shown: u32,
    /// How often it joined a turn as a note.
    pub(super) joined: u32,
    /// Where its first turn began.
    pub(super) first_turn: Option<Seq>,
    /// Turns of it that came to a final end.
    pub(super) ends: u32,
    /// The last of these ends.
    pub(super) end: Option<End>,
    pub(super) withdrawn: u32,
    /// Whether it is in the inbox.
    pub(super) waits: bool,
    /// Whether it would open a turn from there.
    pub(super) wakes: bool,
}

/// How a turn came to a final end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// By itself, and well.
    Completed,
    /// Somebody interrupted it.
    Aborted,
    /// In any other way.
    Failed,
}

/// Who sent a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Origin {
    /// Nothing has shown it yet.
    #[default]
    Unknown,
    /// Somebody outside.
    Sender,
    /// The parent, or a child by a report.
    Agent,
    /// The runtime, by the notice that a child has settled.
    Notice,
}

/// What a turn did to another session, by its own log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) kind: EffectKind,
    pub(super) target: String,
    pub(super) id: String,
}

/// What a session says.
#[derive(Debug, Default)]
pub(super) struct Trails {
    /// Which agent of the plan it is.
    pub(super) agent: Option<u32>,
    pub(super) messages: HashMap<MessageId, Trail>,
    /// By turn, the message that it was of.
    pub(super) served: HashMap<u64, MessageId>,
    pub(super) effects: Vec<Effect>,
    pub(super) epochs: u64,
    pub(super) turns: u64,
    pub(super) retries: u64,
}

impl Trail {
    /// Tells whether it was taken out of the inbox for a turn that has no final end.
    pub(super) fn is_open(&self) -> bool {
        self.first_turn.is_some() && self.ends == 0
    }

    /// Tells whether it ended, waits, or is being served: whether it is accounted for.
    pub(super) fn is_kept(&self) -> bool {
        // What ended without having been shown was not served.
        self.waits || self.withdrawn > 0 || (self.shown > 0 && (self.ends > 0 || self.joined > 0 || self.is_open()))
    }

    /// Tells whether anything happened to it more than once, or will.
    pub(super) fn is_double(&self) -> bool {
        let gone = self.ends + self.withdrawn;
        self.shown > 1 || self.joined > 1 || gone > 1 || (self.waits && (gone > 0 || self.shown > 0))
    }
}

impl End {
    fn of(reason: &TurnEnd) -> Self {
        match reason {
            TurnEnd::Completed => Self::Completed,
            TurnEnd::Aborted { .. } => Self::Aborted,
            _ => Self::Failed,
        }
    }
}

impl Origin {
    fn of(source: &Source) -> Self {
        match source {
            Source::Coordinator { .. } | Source::SubagentReport { .. } => Self::Agent,
            Source::SubagentSettled { .. } => Self::Notice,
            _ => Self::Sender,
        }
    }
}

impl Trails {
    /// Reads a session from what it has lived itself.
    pub(super) fn read(reader: &mut dyn Reader, session: &SessionId) -> Result<Self, LoadError> {
        let mut trails = Self::default();
        let mut open = HashSet::new();
        let mut next = reader.header(session)?.map_or(0, |header| header.seed_length);
        loop {
            let page = reader.events(session, next, PAGE)?;
            for event in &page {
                trails.follow(event, &mut open);
                next = event.seq + 1;
            }
            if page.len() < PAGE {
                break;
            }
        }
        // A request of another process is no message that anybody is shown.
        for record in reader.inbox(session, usize::MAX)?.into_iter().filter(|record| record.message.kind != MessageKind::Control) {
            let trail = trails.messages.entry(record.message.id.clone()).or_default();
            trail.origin = Origin::of(&record.message.source);
            (trail.waits, trail.wakes) = (true, record.message.wake);
        }
        Ok(trails)
    }

    fn follow(&mut self, event: &Event, open: &mut HashSet<u64>) {
        match &event.body {
            Body::Descriptor(descriptor) => self.agent = agent(descriptor),
            Body::ActivationStart { .. } => self.epochs += 1,
            Body::TurnStart { turn, message, attempt } => {
                self.turns += 1;
                self.retries += u64::from(*attempt > 1);
                open.insert(*turn);
                self.served.insert(*turn, message.clone());
                self.message(message).first_turn.get_or_insert(event.seq);
            }
            Body::TurnEnd { turn, reason } if reason.is_final() => {
                if let Some(message) = self.served.get(turn).filter(|_| open.remove(turn)) {
                    let trail = self.messages.entry(message.clone()).or_default();
                    trail.ends += 1;
                    trail.end = Some(End::of(reason));
                }
            }
            Body::NoteJoined { notes, .. } => {
                for note in notes {
                    self.message(note).joined += 1;
                }
            }
            Body::UserMessage(message) => {
                let origin = Origin::of(&message.source);
                let trail = self.message(&message.id);
                (trail.origin, trail.shown) = (origin, trail.shown + 1);
            }
            Body::MessageWithdrawn { message, .. } => self.message(message).withdrawn += 1,
            Body::EffectAccepted { kind, target, id, .. } => self.effects.push(Effect { kind: *kind, target: target.clone(), id: id.clone() }),
            _ => {}
        }
    }

    fn message(&mut self, id: &MessageId) -> &mut Trail {
        self.messages.entry(id.clone()).or_default()
    }
}

/// Reads which agent of the plan a descriptor makes.
fn agent(descriptor: &Value) -> Option<u32> {
    let text = |key| descriptor.get(key).and_then(Value::as_str);
    if text("agent") == Some(AGENT) { text("as")?.strip_prefix('a')?.parse().ok() } else { None }
}
