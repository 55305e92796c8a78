//! A checker of the pairs of occurrences that tell of epochs. It knows nothing of the actors: it judges what it hears, and the log.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use greenroom_session::{
    descriptor::Mode,
    event::{Body, EpochEnd, Event, TurnEnd},
    id::{Epoch, SessionId},
    message::text_of,
};
use tokio::sync::broadcast::{Receiver, error::TryRecvError};

use crate::Occurrence;

/// What has been heard of epochs, from one subscription or several that watch the same sessions.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// Who a session is must not change between its epochs.
    known: BTreeMap<SessionId, Identity>,
    begun: BTreeSet<(SessionId, Epoch)>,
    ended: BTreeMap<(SessionId, Epoch), End>,
    wrong: Vec<String>,
}

type End = (EpochEnd, TurnEnd, Option<Arc<str>>);

type Identity = (Option<SessionId>, Option<Arc<str>>, Option<Option<Mode>>);

impl Pairs {
    /// Hears everything that a subscription has. Returns false if some of it was lost.
    pub(crate) fn hear(&mut self, occurrences: &mut Receiver<Occurrence>) -> bool {
        loop {
            match occurrences.try_recv() {
                Ok(occurrence) => self.see(&occurrence),
                Err(TryRecvError::Lagged(_)) => return false,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return true,
            }
        }
    }

    /// Hears one occurrence.
    pub(crate) fn see(&mut self, occurrence: &Occurrence) {
        match occurrence {
            Occurrence::Activated { session, epoch, parent, provider, mode, resumed } => {
                let key = (session.clone(), *epoch);
                if !self.begun.insert(key) {
                    self.wrong.push(format!("{session} is said twice to have begun epoch {epoch}"));
                }
                if *resumed != (*epoch > 1) {
                    self.wrong.push(format!("{session} in epoch {epoch}: resumed is {resumed}"));
                }
                self.identify(session, &(parent.clone(), provider.clone(), Some(*mode)));
            }
            Occurrence::Ended { session, epoch, parent, provider, reason, outcome, answer } => {
                let key = (session.clone(), *epoch);
                if !self.begun.contains(&key) {
                    self.wrong.push(format!("{session} has ended epoch {epoch}, which nobody heard begin"));
                }
                if self.ended.insert(key, (*reason, outcome.clone(), answer.clone())).is_some() {
                    self.wrong.push(format!("{session} is said twice to have ended epoch {epoch}"));
                }
                if answer.as_deref() == Some("") {
                    self.wrong.push(format!("{session} in epoch {epoch}: an empty answer"));
                }
                let mode = self.known.get(session).and_then(|(.., mode)| *mode);
                self.identify(session, &(parent.clone(), provider.clone(), mode));
            }
            _ => {}
        }
    }

    fn identify(&mut self, session: &SessionId, identity: &Identity) {
        if identity.1.as_deref() == Some("") {
            self.wrong.push(format!("{session} has an empty provider"));
        }
        let known = self.known.entry(session.clone()).or_insert_with(|| identity.clone());
        if *known != *identity {
            self.wrong.push(format!("{session} is {identity:?} and was {known:?}"));
        }
    }

    /// Returns what is wrong with what was heard, when nothing more can come.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let open = self.begun.iter().filter(|key| !self.ended.contains_key(key));
        self.wrong.iter().cloned().chain(open.map(|(session, epoch)| format!("nobody heard the end of epoch {epoch} of {session}"))).collect()
    }

    /// Returns every session that was heard of.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        self.known.keys().cloned().collect()
    }

    /// Returns the ends of a session's epochs, in order.
    pub(crate) fn ends(&self, session: &SessionId) -> Vec<(Epoch, EpochEnd, TurnEnd, Option<&str>)> {
        let of_session = self.ended.iter().filter(|((of, _), _)| of == session);
        of_session.map(|((_, epoch), (reason, outcome, answer))| (*epoch, *reason, outcome.clone(), answer.as_deref())).collect()
    }

    /// Returns where the ends that were in order differ from what a session's own events say, which need not be folded for that.
    pub(crate) fn against(&self, session: &SessionId, events: &[Event]) -> Vec<String> {
        let mut wrong = Vec::new();
        let facts = facts(events);
        for (epoch, reason, outcome, answer) in self.ends(session) {
            let Some(stored) = facts.get(&epoch) else {
                wrong.push(format!("{session} has no epoch {epoch}"));
                continue;
            };
            let in_order = matches!(reason, EpochEnd::Settled | EpochEnd::Disposed);
            if in_order && (Some(reason), &outcome, answer) != (stored.reason, &stored.outcome, stored.answer.as_deref()) {
                wrong.push(format!("{session} is said to have ended epoch {epoch} as {reason:?}, {outcome:?}, {answer:?}, and its log has {stored:?}"));
            }
            if !in_order && (outcome.error_code().is_none() || answer.is_some()) {
                wrong.push(format!("{session} ended epoch {epoch} without order and is said to have {outcome:?}, {answer:?}"));
            }
        }
        wrong
    }
}

/// What one epoch's own events say.
#[derive(Debug)]
struct Facts {
    reason: Option<EpochEnd>,
    outcome: TurnEnd,
    answer: Option<String>,
}

fn facts(events: &[Event]) -> BTreeMap<Epoch, Facts> {
    let mut all = BTreeMap::new();
    let (mut live, mut serves) = (0, None);
    // Messages that were asked for, unlike notes.
    let mut asked = HashSet::new();
    for event in events {
        if let Body::ActivationStart { epoch } = event.body {
            live = epoch;
            all.insert(epoch, Facts { reason: None, outcome: TurnEnd::Completed, answer: None });
        }
        let Some(facts) = all.get_mut(&live) else { continue };
        match &event.body {
            Body::ActivationEnd { reason, .. } => facts.reason = Some(*reason),
            Body::TurnStart { message, .. } => serves = Some(message.clone()),
            Body::UserMessage(message) if serves.as_ref() == Some(&message.id) && !message.source.kind().starts_with("subagent-") => {
                asked.insert(message.id.clone());
            }
            Body::TurnEnd { reason, .. } if *reason != TurnEnd::Completed || serves.as_ref().is_some_and(|message| asked.contains(message)) => {
                facts.outcome = reason.clone();
            }
            Body::AssistantMessage { message, .. } => facts.answer = Some(text_of(&message.content)).filter(|text| !text.is_empty()).or(facts.answer.take()),
            _ => {}
        }
    }
    all
}

#[test]
fn what_no_runtime_should_tell_is_found() {
    let id = |name: &str| SessionId::new(name).unwrap();
    let begun = |epoch, provider: Option<&str>, resumed| Occurrence::Activated {
        session: id("s"),
        epoch,
        parent: Some(id("p")),
        provider: provider.map(Arc::from),
        mode: Some(Mode::Continuable),
        resumed,
    };
    let ended = |epoch, parent: &str| Occurrence::Ended {
        session: id("s"),
        epoch,
        parent: Some(id(parent)),
        provider: Some("spawn".into()),
        reason: EpochEnd::Settled,
        outcome: TurnEnd::Completed,
        answer: None,
    };
    let first = || begun(1, Some("spawn"), false);
    for (told, expected) in [
        (vec![first(), ended(1, "p"), begun(2, Some("spawn"), true), ended(2, "p")], ""),
        (vec![ended(1, "p")], "which nobody heard begin"),
        (vec![first()], "nobody heard the end"),
        (vec![first(), first(), ended(1, "p")], "twice to have begun"),
        (vec![first(), ended(1, "p"), ended(1, "p")], "twice to have ended"),
        (vec![first(), ended(1, "q")], "and was"),
        (vec![first(), ended(1, "p"), begun(2, Some("fork"), true), ended(2, "p")], "and was"),
        (vec![begun(1, Some(""), false), ended(1, "p")], "an empty provider"),
        (vec![begun(1, Some("spawn"), true), ended(1, "p")], "resumed is true"),
    ] {
        let mut pairs = Pairs::default();
        for occurrence in &told {
            pairs.see(occurrence);
        }
        let wrong = pairs.wrong();
        assert_eq!(wrong.is_empty(), expected.is_empty(), "{wrong:?}");
        assert!(wrong.first().is_none_or(|wrong| wrong.contains(expected)), "{wrong:?} and not {expected}");
    }
}
