//! Following one session: what its log says, and what is heard meanwhile, becomes updates and answers.
//!
//! The log is what is told; occurrences say that there is something to read, and give what is not in the log yet: parts of answers, results of tools, the
//! lives of children. It is read on only as fast as the client reads.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use greenroom_actors::{Host, Occurrence, occurrence::Chunk, query::Page};
use greenroom_session::{
    event::{Body, Event, SurfaceMessage, SurfaceOp, TurnEnd},
    id::{EffectKind, MessageId, Seq, SessionId},
    message::{Block, Source},
};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio_util::sync::CancellationToken;

use super::{
    family::Family,
    fault::{Fault, Kind},
    outlet::{Gone, Outlet},
    prompts::{Prompts, Stopped},
    streamed::Streamed,
    update::Update,
};

/// Events that are read at once; each may have 17 MiB.
const PAGE: usize = 16;
/// Children that are listed at once.
const CHILDREN: usize = 256;
/// How long a look at the log may be off while a prompt waits: what other processes take back is told by the log alone.
const LOOK: Duration = Duration::from_secs(1);

/// Follows one session for one client.
pub(super) struct Follower {
    host: Host,
    session: SessionId,
    outlet: Outlet,
    prompts: Arc<Prompts>,
    /// The next event to read.
    next: Seq,
    /// Whether what is read is told for the client's memory of it, and not because it happens.
    replaying: bool,
    /// The turn under way and its message.
    turn: Option<(u64, MessageId)>,
    /// Why the turn's newest answer ended.
    stop: Option<String>,
    streamed: Streamed,
    /// Calls of tools that the client knows to be under way.
    calls: HashSet<String>,
    /// Calls whose end was told before the log had it.
    ended: HashSet<String>,
    /// Calls that were asked for in this turn: name and arguments.
    asked: HashMap<String, (String, String)>,
    family: Family,
}

impl Follower {
    /// Begins before the event `next`; nothing is read yet.
    pub(super) fn new(host: Host, session: SessionId, outlet: Outlet, prompts: Arc<Prompts>, next: Seq) -> Self {
        Self {
            host,
            family: Family::new(session.clone()),
            session,
            outlet,
            prompts,
            next,
            replaying: false,
            turn: None,
            stop: None,
            streamed: Streamed::default(),
            calls: HashSet::new(),
            ended: HashSet::new(),
            asked: HashMap::new(),
        }
    }

    /// Tells everything before the event `end`.
    pub(super) async fn replay(&mut self, end: Seq) -> Result<(), Stop> {
        self.meet(Family::named_only).await?;
        self.replaying = true;
        let read = self.read_to(Some(end)).await;
        self.replaying = false;
        read
    }

    /// Tells how everybody below is. `in_turn` says whether a turn is under way, of whose answer the beginning is missed.
    pub(super) async fn catch_up(&mut self, in_turn: bool) -> Result<(), Stop> {
        if in_turn {
            self.streamed.missed();
        }
        self.meet(Family::listed).await
    }

    /// Follows until the client is gone or the runtime has ended.
    pub(super) async fn follow(mut self, mut news: Receiver<Occurrence>) {
        let over = loop {
            if let Err(stop) = self.read_to(None).await {
                break stop;
            }
            if let Err(stop) = self.hear(&mut news).await {
                break stop;
            }
        };
        match over {
            Stop::Fault(fault) => {
                tracing::warn!(session = %self.session, "a session is not followed any more: {}", fault.message);
                self.prompts.fail(&fault);
            }
            Stop::Gone => self.prompts.fail(&Fault::ending()),
        }
    }

    /// Listens until there may be something to read.
    async fn hear(&mut self, news: &mut Receiver<Occurrence>) -> Result<(), Stop> {
        loop {
            let heard = tokio::select! {
                heard = news.recv() => heard,
                () = self.prompts.changed() => return Ok(()),
                () = tokio::time::sleep(LOOK), if !self.prompts.is_empty() => return Ok(()),
            };
            match heard {
                Ok(occurrence) => {
                    if self.heard(occurrence).await? {
                        return Ok(());
                    }
                }
                Err(RecvError::Lagged(_)) => {
                    // What the log has is read there; the rest is looked at.
                    self.catch_up(true).await?;
                    return Ok(());
                }
                Err(RecvError::Closed) => return Err(Stop::Fault(Fault::ending())),
            }
        }
    }

    /// Takes an occurrence. Returns whether the log may have something new.
    async fn heard(&mut self, occurrence: Occurrence) -> Result<bool, Stop> {
        match occurrence {
            Occurrence::Chunk { session, turn, step, chunk } if session == self.session => {
                if self.streamed.chunk((turn, step), &chunk) {
                    let id = place_id(turn, step);
                    self.tell(match chunk {
                        Chunk::Text(text) => Update::Agent { id, text: text.to_string() },
                        Chunk::Reasoning(text) => Update::Thought { id, text: text.to_string() },
                    })
                    .await?;
                }
                Ok(false)
            }
            Occurrence::ToolEnded { session, call_id, text, is_error, .. } if session == self.session => {
                // Its beginning is in the log before its end is told.
                self.read_to(None).await?;
                if self.calls.remove(&*call_id) {
                    self.ended.insert(call_id.to_string());
                    self.tell(Update::CallEnded { id: call_id.to_string(), text: Some(text.to_string()), failed: is_error, asked: None }).await?;
                }
                Ok(false)
            }
            Occurrence::Created { session, parent, label } if self.family.has(&parent) => {
                self.family.met(&session, &parent, label.as_deref());
                Ok(parent == self.session)
            }
            Occurrence::Activated { session, parent: Some(parent), .. } if self.family.has(&parent) => {
                self.read_to(None).await?;
                self.family.met(&session, &parent, None);
                let told = self.family.running(&session, "child");
                self.tell_all(told).await?;
                Ok(false)
            }
            Occurrence::Ended { session, parent: Some(_), outcome, .. } => {
                let told = self.family.complete(&session, Some((outcome.as_str().to_owned(), outcome.error_code().map(str::to_owned))));
                self.tell_all(told).await?;
                Ok(false)
            }
            Occurrence::NotActivated { session, code, reason } if session == self.session => {
                let message = format!("the session cannot run: {reason}; what was accepted waits until it can");
                self.prompts.fail(&Fault::new(Kind::Failed, code, message));
                Ok(false)
            }
            Occurrence::TurnStarted { session, .. }
            | Occurrence::ToolStarted { session, .. }
            | Occurrence::TurnEnded { session, .. }
            | Occurrence::Activated { session, .. } => Ok(session == self.session),
            _ => Ok(false),
        }
    }

    /// Reads the log, as far as it is, or before `end`, and tells what it says.
    async fn read_to(&mut self, end: Option<Seq>) -> Result<(), Stop> {
        loop {
            let limit = end.map_or(PAGE, |end| usize::try_from(end.saturating_sub(self.next)).unwrap_or(PAGE).min(PAGE));
            if limit == 0 {
                return Ok(());
            }
            let read = self.host.read_events(&self.session, self.next, limit, CancellationToken::new()).await;
            let events = read.map_err(|error| Stop::Fault(Fault::of_query(&self.session, &error)))?;
            if events.is_empty() {
                return Ok(());
            }
            for event in events {
                self.next = event.seq + 1;
                self.event(event).await?;
            }
        }
    }

    async fn event(&mut self, event: Event) -> Result<(), Stop> {
        // What a compaction puts in the place of other messages was said by nobody.
        let replaces = matches!(event.surface_op, Some(SurfaceOp::Replace { .. }));
        match event.body {
            Body::TurnStart { turn, message, .. } => {
                self.turn = Some((turn, message));
                self.stop = None;
                Ok(())
            }
            Body::UserMessage(message) if !replaces => self.said_to_it(message).await,
            Body::AssistantMessage { turn, step, message, stop, .. } if !replaces => {
                self.stop = stop;
                self.said_by_it(turn, step, message).await
            }
            Body::ToolCall { call_id, name, arguments, .. } => {
                self.calls.insert(call_id.clone());
                let title = name.clone();
                self.tell(Update::CallStarted { id: call_id, name, title, arguments: Some(arguments) }).await
            }
            Body::ToolResult { message, .. } => self.answered(message).await,
            Body::EffectAccepted { message, key, kind: EffectKind::Delegate, target, id, .. } => {
                let Ok(child) = SessionId::new(id) else { return Ok(()) };
                let calls = self.asked.keys().cloned();
                let told = self.family.delegated(&message, &key, &target, &child, calls);
                self.tell_all(told).await
            }
            Body::TurnEnd { turn, reason } => self.turn_ended(turn, &reason).await,
            Body::MessageWithdrawn { message, .. } => {
                self.prompts.answer(&message, Ok(Stopped::Cancelled));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn said_to_it(&mut self, message: SurfaceMessage) -> Result<(), Stop> {
        if let (true, Source::SubagentSettled { session, outcome, code, .. }) = (self.replaying, &message.source) {
            let told = self.family.complete(session, Some((outcome.clone(), code.clone())));
            self.tell_all(told).await?;
        }
        // A client shows its own prompts by itself.
        if !self.replaying && self.prompts.has(&message.id) {
            return Ok(());
        }
        let source = serde_json::to_value(&message.source).unwrap_or_default();
        let text = greenroom_session::message::text_of(&message.content);
        self.tell(Update::User { id: message.id.to_string(), text, source }).await
    }

    async fn said_by_it(&mut self, turn: u64, step: u32, message: SurfaceMessage) -> Result<(), Stop> {
        let (mut thought, mut text) = (String::new(), String::new());
        for block in message.content {
            match block {
                Block::Text { text: part } => text.push_str(&part),
                Block::Reasoning { text: part, .. } => thought.push_str(&part),
                Block::ToolCall { id, name, arguments } => drop(self.asked.insert(id, (name, arguments))),
                Block::ToolResult { .. } => {}
            }
        }
        let mut id = message.id.to_string();
        if matches!(message.source, Source::Model { .. }) {
            let rest = self.streamed.answered((turn, step), thought, text);
            (thought, text, id) = (rest.thought, rest.text, place_id(turn, step));
        }
        if !thought.is_empty() {
            self.tell(Update::Thought { id: id.clone(), text: thought }).await?;
        }
        if text.is_empty() { Ok(()) } else { self.tell(Update::Agent { id, text }).await }
    }

    async fn answered(&mut self, message: SurfaceMessage) -> Result<(), Stop> {
        for block in message.content {
            let Block::ToolResult { call_id, text, is_error } = block else { continue };
            if self.ended.remove(&call_id) {
                continue;
            }
            let asked = if self.calls.remove(&call_id) { None } else { self.asked.get(&call_id).cloned() };
            self.tell(Update::CallEnded { id: call_id, text: Some(text), failed: is_error, asked }).await?;
        }
        Ok(())
    }

    async fn turn_ended(&mut self, turn: u64, reason: &TurnEnd) -> Result<(), Stop> {
        let message = self.turn.take().filter(|(open, _)| *open == turn).map(|(_, message)| message);
        if !reason.is_final() {
            return Ok(());
        }
        self.asked.clear();
        self.calls.clear();
        self.ended.clear();
        let stop = self.stop.take();
        let fault = Fault::of_turn(turn, reason);
        let outcome = match &fault {
            // As many steps as a turn may have are no failure to a client: it says so with a reason of its own.
            Some(fault) if fault.data.get("code").is_some_and(|code| code == "MAX_STEPS") => Ok(Stopped::MaxSteps),
            Some(fault) => Err(fault.clone()),
            None => Ok(match reason {
                TurnEnd::MaxTokens => Stopped::MaxTokens,
                TurnEnd::Aborted { .. } => Stopped::Cancelled,
                _ if stop.as_deref() == Some("refusal") => Stopped::Refusal,
                _ => Stopped::EndTurn,
            }),
        };
        let answered = message.is_some_and(|message| {
            let outcome = outcome.map_err(|fault| fault.fact("messageId", message.as_str()));
            self.prompts.answer(&message, outcome)
        });
        match reason {
            TurnEnd::Error { code, message } if !answered && !self.replaying => {
                self.tell(Update::TurnFailed { turn, code: code.clone(), message: message.clone() }).await
            }
            _ => Ok(()),
        }
    }

    /// Looks at everybody below.
    async fn meet(&mut self, take: fn(&mut Family, &greenroom_actors::catalog::Descendant) -> Vec<Update>) -> Result<(), Stop> {
        let mut page = Page { after: None, limit: Some(CHILDREN) };
        loop {
            let listing = match self.host.list_descendants(&self.session, page, CancellationToken::new()).await {
                Ok(listing) => listing,
                Err(error) => {
                    // Children that cannot be listed keep nobody from talking to their parent.
                    tracing::warn!(session = %self.session, code = error.code(), "children are not told of: {error}");
                    return Ok(());
                }
            };
            for descendant in &listing.entries {
                let told = take(&mut self.family, descendant);
                self.tell_all(told).await?;
            }
            match listing.next_cursor {
                Some(after) => page = Page { after: Some(after), limit: Some(CHILDREN) },
                None => return Ok(()),
            }
        }
    }

    async fn tell(&mut self, update: Update) -> Result<(), Stop> {
        self.outlet.tell(&self.session, update).await.map_err(|Gone| Stop::Gone)
    }

    async fn tell_all(&mut self, updates: impl IntoIterator<Item = Update>) -> Result<(), Stop> {
        for update in updates {
            self.tell(update).await?;
        }
        Ok(())
    }
}

/// Why a session is not followed any more.
#[derive(Debug)]
pub(super) enum Stop {
    /// Nobody reads.
    Gone,
    /// It cannot be read.
    Fault(Fault),
}

/// What parts of an answer have in common: it has no other name before it is whole.
fn place_id(turn: u64, step: u32) -> String {
    format!("turn-{turn}-step-{step}")
}
