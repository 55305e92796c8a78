//! Asking a session to end its turn or to give a message back, wherever it is.
//!
//! Live here: its Activation is asked. Held by another live process: a request is left in its inbox, durable, and the answer awaited. Held by nobody: it is
//! visited. A session may go from one to another of these while it is asked, so the question goes round until there is an answer or the time is
//! over. What is left in an inbox has an id that follows from what is asked, so that it is asked and answered once, however often somebody asks.

use std::{collections::HashSet, sync::Arc, time::Duration};

use greenroom_session::{
    event::Body,
    head::Head,
    id::{MessageId, OwnerId, Seq, SessionId},
    message::{Control, Message, Source},
    requests::{Outcome, Standing, answer as rules, under_way, withdraw as rule},
    store::{Done, LoadError, Log, MessageState, Reader, Traced},
};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    activation::ActivationMessage,
    error::ControlError,
    live::{LiveView, Player},
    published,
    race::race_point,
    services::Services,
    visit::{Asked, visit},
};

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    /// End the turn that is under way, as aborted.
    Interrupt,
    /// Take a message back.
    Withdraw(MessageId),
}

/// What an Activation answers.
pub(crate) type Answered = Result<Outcome, ControlError>;

/// Ends the turn that is under way as aborted, and returns its number.
///
/// # Cancel safety
/// What was asked may be done all the same.
pub(crate) async fn interrupt(services: &Arc<Services>, session: &SessionId, by: &'static str, patience: Duration) -> Result<u64, ControlError> {
    match Asking::new(services, session, Wish::Interrupt, by, patience).ask().await? {
        (Outcome::Done, turn) => Ok(turn),
        _ => Err(ControlError::NotRunning(session.clone())),
    }
}

/// Takes a message back that has no turn yet.
///
/// # Cancel safety
/// What was asked may be done all the same.
pub(crate) async fn withdraw(
    services: &Arc<Services>,
    session: &SessionId,
    message: &MessageId,
    by: &'static str,
    patience: Duration,
) -> Result<(), ControlError> {
    match Asking::new(services, session, Wish::Withdraw(message.clone()), by, patience).ask().await?.0 {
        Outcome::Done => Ok(()),
        Outcome::AlreadyStarted => Err(ControlError::AlreadyStarted(message.clone())),
        Outcome::NotPending | Outcome::NotRunning => Err(ControlError::NotPending(message.clone())),
    }
}

/// Returns who sent a message that waits; `None` if it does not wait.
pub(crate) async fn sender_of(services: &Services, session: &SessionId, message: &MessageId) -> Result<Option<Source>, ControlError> {
    let (id, message) = (session.clone(), message.clone());
    match services.readers.read(move |reader| Standing::read(reader, &id, &message)).await {
        Ok(Standing::Pending(record)) => Ok(Some(record.message.source.clone())),
        Ok(_) => Ok(None),
        Err(error) => Err(ControlError::from_load(session, error)),
    }
}

/// Tells whether a session is a subagent somewhere below another one. Reads the headers up to there.
pub(crate) async fn is_below(services: &Services, session: &SessionId, top: &SessionId) -> Result<bool, ControlError> {
    let (id, wanted) = (session.clone(), top.clone());
    let found = services.readers.read(move |reader| {
        let (mut id, mut seen) = (id, HashSet::new());
        loop {
            let header = reader.header(&id)?.ok_or_else(|| LoadError::NotFound(id.clone()))?;
            // A fork is nobody's child, and whoever comes round in a circle is below nobody.
            if !header.is_subagent() || !seen.insert(id) {
                return Ok(false);
            }
            match &header.parent {
                Some(parent) if *parent == wanted => return Ok(true),
                Some(parent) => id = parent.clone(),
                None => return Ok(false),
            }
        }
    });
    found.await.map_err(|error| ControlError::from_load(session, error))
}

/// One question on its way.
struct Asking<'a> {
    services: &'a Arc<Services>,
    session: &'a SessionId,
    wish: Wish,
    by: &'static str,
    until: Instant,
    left: Option<Left>,
}

/// A request that lies in the inbox.
#[derive(Clone)]
struct Left {
    id: MessageId,
    /// The turn that it names.
    turn: u64,
    /// No earlier event answers it.
    from: Seq,
}

impl<'a> Asking<'a> {
    fn new(services: &'a Arc<Services>, session: &'a SessionId, wish: Wish, by: &'static str, patience: Duration) -> Self {
        Self { services, session, wish, by, until: Instant::now() + patience, left: None }
    }

    /// Asks until there is an answer. Returns it and the turn that was meant.
    async fn ask(mut self) -> Result<(Outcome, u64), ControlError> {
        loop {
            race_point!("before-ask");
            if self.services.is_draining() {
                return Err(ControlError::Draining);
            }
            if let Some(left) = self.left.clone()
                && let Some(outcome) = self.answer_to(&left).await?
            {
                return Ok((outcome, left.turn));
            }
            let mut wait = true;
            if let Some(view) = self.services.live.get(self.session) {
                if self.left.is_some() {
                    // A request of this process is none that its poll would find.
                    view.look_for_requests();
                } else if let Some(answered) = self.ask_live(&view).await? {
                    return Ok(answered);
                }
            } else if !self.services.live.is_resident(self.session) {
                match self.ask_stored().await? {
                    Round::Answered(outcome, turn) => return Ok((outcome, turn)),
                    Round::Again => wait = false,
                    Round::Later => {}
                }
            }
            let now = Instant::now();
            if now >= self.until {
                return Err(ControlError::TimedOut(self.session.clone()));
            }
            if wait {
                tokio::time::sleep(self.services.config.poll_interval.min(self.until - now)).await;
            }
        }
    }

    /// Asks the Activation. Returns `None` if it ended before it could answer.
    async fn ask_live(&self, view: &LiveView) -> Result<Option<(Outcome, u64)>, ControlError> {
        let Player::Agent(actor) = &view.player else {
            let reason = published::PLAYED_BY_HOST.into();
            return Err(ControlError::NotResumable { session: self.session.clone(), reason, code: "NOT_RESUMABLE" });
        };
        let (control, turn) = match &self.wish {
            Wish::Interrupt => {
                // Named here and now: by the time that it is heard another turn may run.
                let Some(turn) = view.log.look(|fold| under_way(fold.head())) else { return Ok(Some((Outcome::NotRunning, 0))) };
                (Control::Interrupt { turn: Some(turn) }, turn)
            }
            Wish::Withdraw(target) => (Control::Withdraw { target: target.clone() }, 0),
        };
        race_point!("ask-live");
        let (reply, answer) = oneshot::channel();
        if actor.send_message(ActivationMessage::Ask { control, by: self.by, reply }).is_err() {
            return Ok(None);
        }
        match tokio::time::timeout_at(self.until, answer).await {
            Ok(Ok(answer)) => answer.map(|outcome| Some((outcome, turn))),
            Ok(Err(_)) => Ok(None),
            Err(_) => Err(ControlError::TimedOut(self.session.clone())),
        }
    }

    async fn ask_stored(&mut self) -> Result<Round, ControlError> {
        // What has been left is answered by its event alone, wherever the message stands.
        let (session, wish) = (self.session.clone(), if self.left.is_some() { Wish::Interrupt } else { self.wish.clone() });
        let look = self.services.readers.read(move |reader| Look::read(reader, &session, &wish)).await;
        let look = look.map_err(|error| ControlError::from_load(self.session, error))?;
        let (control, turn) = match look.control(&self.wish) {
            Ok(found) => found,
            Err(_) if self.left.is_some() => (None, 0),
            Err(outcome) => return Ok(Round::Answered(outcome, 0)),
        };
        race_point!("asked-store");
        match (&look.holder, control) {
            (None, control) => {
                let by = self.by;
                let mut wish = control.filter(|_| self.left.is_none()).map(|control| move |log: &Log| rules(log, &control, by));
                let asked = wish.is_some();
                let wish = wish.as_mut().map(|wish| wish as Asked<'_>);
                match visit(self.services, self.session, wish).await? {
                    Some(outcomes) if asked => Ok(outcomes.first().map_or(Round::Later, |outcome| Round::Answered(*outcome, turn))),
                    Some(_) => Ok(Round::Again),
                    // Whoever came first is on its way.
                    None => Ok(Round::Later),
                }
            }
            // A visit by somebody else here, or an epoch that failed and is looked at again.
            (Some(holder), _) if holder == self.services.store.owner() => Ok(Round::Later),
            (Some(_), Some(control)) if self.left.is_none() => {
                let id = control.id();
                let request = Message::control(id.clone(), control, self.services.now());
                let done = self.services.leave_message(self.session, Arc::new(request)).await?;
                let from = if matches!(done, Done::Accepted { duplicate: false, .. }) { look.head.next_seq } else { 0 };
                self.left = Some(Left { id, turn, from });
                race_point!("request-left");
                Ok(Round::Later)
            }
            (Some(_), _) => Ok(Round::Later),
        }
    }

    /// Looks whether a request has been answered.
    async fn answer_to(&self, left: &Left) -> Result<Option<Outcome>, ControlError> {
        let (session, left) = (self.session.clone(), left.clone());
        let answer = self.services.readers.read(move |reader| {
            if !matches!(reader.message(&session, &left.id)?, Some(MessageState::Taken(_))) {
                return Ok(None);
            }
            let events = reader.events(&session, left.from, usize::MAX)?;
            Ok::<_, LoadError>(events.into_iter().find_map(|event| match event.body {
                Body::ControlAnswered { control, outcome, .. } if control == left.id => Outcome::named(&outcome),
                _ => None,
            }))
        });
        answer.await.map_err(|error| ControlError::from_load(self.session, error))
    }
}

/// What a round of asking gave.
enum Round {
    Answered(Outcome, u64),
    /// Ask again at once.
    Again,
    /// Ask again after a pause.
    Later,
}

/// A look at a session that is not live here.
struct Look {
    head: Head,
    holder: Option<OwnerId>,
    /// Where the message stands that is to be taken back.
    standing: Option<Standing>,
}

impl Look {
    fn read(reader: &mut dyn Reader, session: &SessionId, wish: &Wish) -> Result<Self, LoadError> {
        let header = reader.header(session)?.ok_or_else(|| LoadError::NotFound(session.clone()))?;
        let traced = Traced { id: session.clone(), created_at: header.created_at, header: Ok(header) };
        let described = reader.describe(std::slice::from_ref(&traced), false)?.pop();
        let description = described.unwrap_or_else(|| Err(LoadError::NotFound(session.clone())))?;
        let standing = match wish {
            Wish::Interrupt => None,
            Wish::Withdraw(message) => Some(Standing::read(reader, session, message)?),
        };
        Ok(Self { head: description.head, holder: description.holder, standing })
    }

    /// Returns what is to be asked and the turn that it names, or the answer where nothing needs to be asked.
    fn control(&self, wish: &Wish) -> Result<(Option<Control>, u64), Outcome> {
        match wish {
            Wish::Interrupt => {
                let turn = under_way(&self.head).ok_or(Outcome::NotRunning)?;
                Ok((Some(Control::Interrupt { turn: Some(turn) }), turn))
            }
            Wish::Withdraw(target) => {
                let answer = rule(target, self.standing.as_ref().unwrap_or(&Standing::Unknown), "");
                if answer.taken.is_empty() { Err(answer.outcome) } else { Ok((Some(Control::Withdraw { target: target.clone() }), 0)) }
            }
        }
    }
}
