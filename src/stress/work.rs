//! One process's share of a run: the runtime, the agents and the senders, from where the records say that they are.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use greenroom_actors::{Host, Occurrence, error::ControlError, host::NewRoot};
use greenroom_session::{
    id::{MessageId, SessionId},
    store::{Store, StoreError},
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{broadcast::error::RecvError, mpsc::UnboundedSender},
    task::JoinSet,
};

use super::{
    StressError,
    cast::{ROOT, alias, cast},
    plan::{Name, Plan, Post, Request},
    records::{Answer, News, Place, Told},
};

/// The pauses of a sender between two tries at a full inbox.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);
/// How often a sender repeats what it was not told the outcome of.
const MAX_UNCERTAIN: u32 = 8;
/// How long a sender waits for the answer to a request: a process that has the session to itself owes one.
const ANSWER_PATIENCE: Duration = Duration::from_secs(120);
/// How often the number of turns is told.
const TURNS_EVERY: Duration = Duration::from_millis(20);
/// How long a root that has nothing to do may take to settle.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// What a process is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Assignment {
    pub(super) store: String,
    pub(super) plan: Plan,
    pub(super) root: SessionId,
    pub(super) inbox_limit: u64,
    /// By sender, where it goes on.
    pub(super) senders: Vec<Place>,
}

/// Plays until everything is sent and served, or until `cut` is done, and shuts the runtime down. Returns what `cut` returned if it came first.
///
/// # Cancel safety
/// What was accepted stays accepted.
pub(super) async fn work<C>(
    store: Arc<dyn Store>,
    assignment: &Assignment,
    tell: &UnboundedSender<News>,
    cut: impl Future<Output = C>,
) -> Result<Option<C>, StressError> {
    let plan = Arc::new(assignment.plan.clone());
    let runtime = cast(&plan).inbox_limit(assignment.inbox_limit).start(store.clone()).await?;
    let work = Work { host: runtime.host(), store, plan, assignment, tell };
    let played = tokio::select! {
        played = Box::pin(work.play()) => played.map(|()| None),
        cut = cut => Ok(Some(cut)),
    };
    runtime.shutdown().await;
    told(tell, Told::Done);
    played
}

/// Nobody listens any more only where nobody waits for the outcome either.
fn told(tell: &UnboundedSender<News>, news: Told) {
    drop(tell.send(news.into()));
}

struct Work<'a> {
    host: Host,
    store: Arc<dyn Store>,
    plan: Arc<Plan>,
    assignment: &'a Assignment,
    tell: &'a UnboundedSender<News>,
}

impl Work<'_> {
    async fn play(&self) -> Result<(), StressError> {
        let mut tasks = JoinSet::new();
        tasks.spawn(count_turns(self.host.clone(), self.tell.clone()));
        let mut new = NewRoot::new(ROOT, format!("stress, seed {}", self.plan.seed));
        new.id = Some(self.assignment.root.clone());
        new.opened.seed = Some(self.plan.seed);
        let root = self.host.root(new).await?;
        self.host.recover(Some(root.id())).await?;
        let agents: Arc<[SessionId]> = self.lay_out(root.id()).await?.into();
        told(self.tell, Told::LaidOut);
        let mut senders = JoinSet::new();
        for (number, place) in (0..).zip(&self.assignment.senders) {
            let sender = Sender { host: self.host.clone(), plan: self.plan.clone(), agents: agents.clone(), tell: self.tell.clone(), number };
            senders.spawn(sender.send_all(*place));
        }
        while let Some(sent) = senders.join_next().await {
            sent.map_err(|error| StoreError::Io(Box::new(error)))??;
        }
        let stuck = self.host.quiescent(root.id()).await?;
        if !stuck.is_empty() {
            tracing::warn!(sessions = stuck.len(), "sessions have work and cannot run");
        }
        told(self.tell, Told::Drained);
        let id = root.id().clone();
        drop(root);
        // Let go of, the root settles; the shutdown should not take that from it.
        drop(tokio::time::timeout(SETTLE_PATIENCE, self.host.quiescent(&id)).await);
        Ok(())
    }

    /// Has the agents started, unless they are there, and returns them in the plan's order.
    async fn lay_out(&self, root: &SessionId) -> Result<Vec<SessionId>, StressError> {
        let found = self.find_agents(root).await?;
        if let Ok(agents) = found {
            return Ok(agents);
        }
        let id = MessageId::new("layout")
            .map_err(|error| StressError::Send { message: "layout".into(), error: greenroom_session::message::MessageError::from(error).into() })?;
        self.host.send(root, "Lay out.", Some(id)).await.map_err(|error| StressError::Send { message: "layout".into(), error })?;
        self.host.quiescent(root).await?;
        self.find_agents(root).await?.map_err(StressError::NotLaidOut)
    }

    /// Finds the agents by their aliases; the number of the first that is not there otherwise.
    async fn find_agents(&self, root: &SessionId) -> Result<Result<Vec<SessionId>, u32>, StoreError> {
        let (store, root, parents) = (self.store.clone(), root.clone(), self.plan.parents());
        let find = move || {
            let mut reader = store.reader()?;
            let mut agents: Vec<SessionId> = Vec::with_capacity(parents.len());
            for (agent, parent) in (0..).zip(parents) {
                let parent = parent.and_then(|parent| agents.get(usize::try_from(parent).ok()?)).unwrap_or(&root).clone();
                match reader.alias(&parent, &alias(agent))? {
                    Some(found) => agents.push(found),
                    None => return Ok(Err(agent)),
                }
            }
            Ok(Ok(agents))
        };
        tokio::task::spawn_blocking(find).await.unwrap_or_else(|error| Err(StoreError::Io(Box::new(error))))
    }
}

/// Tells now and then how many turns have ended. Information only.
async fn count_turns(host: Host, tell: UnboundedSender<News>) {
    let mut occurrences = host.subscribe();
    let (mut ended, mut last) = (0, 0);
    let mut tick = tokio::time::interval(TURNS_EVERY);
    loop {
        tokio::select! {
            occurrence = occurrences.recv() => match occurrence {
                Ok(Occurrence::TurnEnded { .. }) => ended += 1,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
            _ = tick.tick() => if ended != last {
                last = ended;
                told(&tell, Told::Turns { ended });
            },
        }
    }
}

/// One sender: its messages one after the other.
struct Sender {
    host: Host,
    plan: Arc<Plan>,
    agents: Arc<[SessionId]>,
    tell: UnboundedSender<News>,
    number: u32,
}

impl Sender {
    async fn send_all(self, place: Place) -> Result<(), StressError> {
        if let Some(last) = place.next.checked_sub(1).filter(|_| place.withdraws) {
            let last = Letter::of(&self, last)?;
            self.withdraw(&last).await?;
        }
        for number in place.next..self.plan.messages {
            let letter = Letter::of(&self, number)?;
            self.send(&letter).await?;
            match letter.post.next {
                None => {}
                Some(Request::Withdraw) => self.withdraw(&letter).await?,
                Some(Request::Interrupt) => self.interrupt(&letter).await?,
            }
        }
        Ok(())
    }

    /// Sends a message until it is accepted. What is measured is the call that was.
    async fn send(&self, letter: &Letter<'_>) -> Result<(), StressError> {
        let name = letter.post.name;
        let text = letter.post.text();
        let (mut pause, mut busy, mut uncertain) = (FIRST_PAUSE, 0, 0);
        loop {
            let begun = Instant::now();
            match self.host.send(letter.to, text.as_str(), Some(letter.id.clone())).await {
                Ok(_) => {
                    let latency_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                    if busy > 0 {
                        told(&self.tell, Told::Busy { times: busy });
                    }
                    told(&self.tell, Told::Accepted { name, latency_us });
                    return Ok(());
                }
                Err(error) => match error.code() {
                    "BUSY" => busy += 1,
                    "INDETERMINATE" | "NOT_DELIVERED" if uncertain < MAX_UNCERTAIN => uncertain += 1,
                    _ => return Err(StressError::Send { message: name.id(), error }),
                },
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Takes a message back, unless it has a turn. What was taken back before stays so: asking again is safe.
    async fn withdraw(&self, letter: &Letter<'_>) -> Result<(), StressError> {
        let (mut pause, mut uncertain) = (FIRST_PAUSE, 0);
        let answer = loop {
            match self.host.withdraw(letter.to, &letter.id, ANSWER_PATIENCE).await {
                Ok(()) => break Answer::Withdrawn,
                Err(ControlError::AlreadyStarted(_)) => break Answer::AlreadyStarted,
                Err(ControlError::NotPending(_)) => break Answer::NotPending,
                Err(error) if is_uncertain(&error) && uncertain < MAX_UNCERTAIN => uncertain += 1,
                Err(error) => return Err(letter.refused(error)),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        told(&self.tell, Told::Answered { name: letter.post.name, answer });
        Ok(())
    }

    /// Ends the turn that the receiver is in, if it is in one. Never asked twice: the second time would end another turn.
    async fn interrupt(&self, letter: &Letter<'_>) -> Result<(), StressError> {
        let name = letter.post.name;
        let (news, heard) = News::awaited(Told::Interrupting { name });
        drop(self.tell.send(news));
        // An interrupt that a kill cuts off would be nobody's if this had not been heard.
        drop(heard.await);
        let answer = match self.host.interrupt(letter.to, ANSWER_PATIENCE).await {
            Ok(turn) => Answer::Interrupted { turn },
            Err(ControlError::NotRunning(_)) => Answer::NotRunning,
            // It may have been done or not.
            Err(error) if is_uncertain(&error) => return Ok(()),
            Err(error) => return Err(letter.refused(error)),
        };
        told(&self.tell, Told::Answered { name, answer });
        Ok(())
    }
}

/// Tells whether what was asked may be done all the same, or may be asked again.
fn is_uncertain(error: &ControlError) -> bool {
    matches!(error.code(), "INDETERMINATE" | "NOT_DELIVERED")
}

/// A message of a sender and its address.
struct Letter<'a> {
    post: Post,
    id: MessageId,
    to: &'a SessionId,
}

impl<'a> Letter<'a> {
    fn of(sender: &'a Sender, number: u32) -> Result<Self, StressError> {
        let name = Name { sender: sender.number, number };
        let post = sender.plan.post(name);
        let invalid = |error| StressError::Send { message: name.id(), error: greenroom_session::message::MessageError::from(error).into() };
        let id = MessageId::new(name.id()).map_err(invalid)?;
        let to = usize::try_from(post.to).ok().and_then(|to| sender.agents.get(to)).ok_or(StressError::NotLaidOut(post.to))?;
        Ok(Self { post, id, to })
    }

    fn refused(&self, error: ControlError) -> StressError {
        StressError::Ask { message: self.post.name.id(), error }
    }
}
