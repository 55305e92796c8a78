//! A turn: what a behaviour may use while it serves one message.

mod calls;
mod children;
mod compaction;

pub use calls::{CallResult, CutCall, Spoken};

use std::{any::Any, sync::Arc};

use greenroom_session::{
    descriptor::{Descriptor, ModelRoute, ToolFilter},
    event::{Body, Role, SurfaceMessage},
    fold::Fold,
    id::{Epoch, MessageId, SessionId, chance},
    message::{Block, Source, text_of},
    store::ClaimKind,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{agent::Agent, behavior::TurnError, turn_core::TurnCore};

/// One turn, handed to a [`Behavior`](crate::Behavior).
///
/// What it does to other sessions ([`Turn::delegate`], [`Turn::send_message`], [`Turn::report`]) is an effect with a key: doing the same again on a
/// later attempt at the same message is the same acceptance. A handle used after the turn's end answers with `TURN_ENDED`, or with nothing where it only reads.
///
/// ```
/// use greenroom_actors::{Config, Turn, TurnEnd};
/// let mut config = Config::default();
/// config.behavior("clerk", || |turn: Turn| async move {
///     // What comes from outside is recorded, so that an attempt after a crash decides as this one did.
///     let weather = match turn.recorded("weather") {
///         Some(weather) => weather,
///         None => {
///             turn.record("weather", "rain").await?;
///             "rain".to_owned()
///         }
///     };
///     turn.say(format!("{}: {weather}", turn.text()))?;
///     Ok(TurnEnd::Completed)
/// });
/// # tokio_test::block_on(async {
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let root = system.host().root(greenroom_actors::host::NewRoot::new("clerk", "a desk")).await?;
/// # root.send("What is it like outside?").await?;
/// # root.quiescent().await?;
/// # let log = system.host().load(root.id()).await?;
/// # let said = log.fold.surface().messages().last().map(|message| greenroom_session::message::text_of(&message.content));
/// # assert_eq!(said.as_deref(), Some("What is it like outside?: rain"));
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Turn {
    core: Arc<TurnCore>,
}

impl Turn {
    pub(crate) fn new(core: Arc<TurnCore>) -> Self {
        Self { core }
    }

    fn check(&self) -> Result<(), TurnError> {
        if self.core.has_ended() { Err(TurnError::new("TURN_ENDED", "the turn has ended")) } else { Ok(()) }
    }

    /// Looks at the fold while the turn is open in it: after its end, what is there is of a later turn.
    fn look<T>(&self, look: impl FnOnce(&Fold) -> T) -> Option<T> {
        let turn = self.core.turn;
        self.core.view.log.look(|fold| fold.head().open.as_ref().is_some_and(|open| open.turn == turn).then(|| look(fold)))
    }

    /// Returns the session.
    pub fn session(&self) -> &SessionId {
        self.core.view.id()
    }

    /// Returns the parent.
    pub fn parent(&self) -> Option<&SessionId> {
        self.core.view.header.parent.as_ref()
    }

    /// Returns the depth below the root.
    pub fn depth(&self) -> u32 {
        self.core.view.header.depth
    }

    /// Returns the epoch of the session that this turn is in, from 1: it grows whenever somebody takes the session up.
    pub fn epoch(&self) -> Epoch {
        self.core.view.epoch
    }

    /// Returns the turn's number, from 1 over the life of the session.
    pub fn number(&self) -> u64 {
        self.core.turn
    }

    /// Returns which attempt at this message this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.core.attempt
    }

    /// Returns the id of the message that the turn serves.
    pub fn message_id(&self) -> &MessageId {
        &self.core.message
    }

    /// Returns the message that the turn serves; `None` for a turn that reports and notices opened.
    pub fn message(&self) -> Option<Arc<SurfaceMessage>> {
        self.look(|fold| fold.serving().message.clone())?
    }

    /// Returns the message's text; empty for a turn that reports and notices opened.
    pub fn text(&self) -> String {
        self.message().map(|message| text_of(&message.content)).unwrap_or_default()
    }

    /// Returns the notes that have joined, in order, over all attempts at this message.
    pub fn notes(&self) -> Vec<Arc<SurfaceMessage>> {
        self.look(|fold| fold.serving().notes.clone()).unwrap_or_default()
    }

    /// Returns everything that was said in this session and not compacted, in order.
    pub fn history(&self) -> Vec<Arc<SurfaceMessage>> {
        self.look(|fold| fold.surface().messages().cloned().collect()).unwrap_or_default()
    }

    /// Returns the rank of this message among those that the session has begun to serve, from 0; `None` for a turn that reports and notices opened.
    pub fn rank(&self) -> Option<usize> {
        self.message()?;
        self.look(|fold| usize::try_from(fold.begun()).ok()?.checked_sub(1))?
    }

    /// Returns what the behaviour was given when the session was created.
    pub fn params(&self) -> Option<Value> {
        self.core.view.log.look(|fold| match fold.root() {
            Some(root) => root.params.clone(),
            None => fold.described()?.params.clone(),
        })
    }

    /// Returns the route to the model that speaks for this session: what its delegation or its opening says, else that of its parent when it was created; `None` if neither
    /// had one.
    pub fn model(&self) -> Option<ModelRoute> {
        self.core.view.log.look(|fold| fold.model().cloned())
    }

    /// Returns who this child is to be, as its delegation says.
    pub fn persona(&self) -> Option<String> {
        self.described(|descriptor| descriptor.persona.clone())
    }

    /// Returns which tools this child may use, as its delegation says; `None` if nothing was said.
    pub fn tool_filter(&self) -> Option<ToolFilter> {
        self.described(|descriptor| descriptor.tool_filter.clone())
    }

    fn described<T>(&self, look: impl FnOnce(&Descriptor) -> Option<T>) -> Option<T> {
        self.core.view.log.look(|fold| fold.described().and_then(|descriptor| look(descriptor)))
    }

    /// Returns the session's label.
    pub fn label(&self) -> Option<String> {
        self.core.view.log.look(|fold| match fold.root() {
            Some(root) => Some(root.label.clone()),
            None => fold.described()?.label.clone(),
        })
    }

    /// Returns the name under which the behaviour is registered.
    pub fn agent_name(&self) -> String {
        self.core.view.log.look(|fold| fold.agent().unwrap_or_default().to_owned())
    }

    /// Returns the variables of the program, in a root.
    pub fn vars(&self) -> std::collections::BTreeMap<String, String> {
        self.core.view.log.look(|fold| fold.root().map(|root| root.vars.clone()).unwrap_or_default())
    }

    /// Returns the time in milliseconds since the Unix epoch, by the runtime's clock.
    pub fn now_ms(&self) -> u64 {
        self.core.services.now()
    }

    /// Returns a number by chance that is the same on every attempt at this message, in whichever process: it follows from the runtime's seed, the session's
    /// id and the message's. Whoever knows those knows the number.
    pub fn random_seed(&self) -> u64 {
        chance(self.core.services.config.seed, self.session(), &self.core.message)
    }

    /// Returns a generator that begins with [`Turn::random_seed`]. Every call returns one at its beginning: what a turn draws a second time, it draws the same.
    ///
    /// What it draws does not change between platforms, nor between releases of one major version of `rand_chacha`.
    pub fn rng(&self) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.random_seed())
    }

    /// Returns a token that is cancelled when the turn is interrupted or the runtime shuts down.
    pub fn cancelled(&self) -> CancellationToken {
        self.core.token().clone()
    }

    /// Returns the first thing of this type that set-up contributions have installed for this epoch, in the order of their registration; `None` when the contribution
    /// that gave it has been removed.
    pub fn installed<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.core.view.installed.find()
    }

    /// Returns this agent's capability; its effects are effects of this turn.
    pub fn agent(&self) -> Agent {
        Agent::of_turn(self.core.clone())
    }

    /// Says something: appends an `assistant/message`. Durable with the next durable step, at the latest with the turn's end.
    ///
    /// # Errors
    /// `TURN_ENDED`, or what was wrong with an earlier write.
    pub fn say(&self, text: impl Into<String>) -> Result<(), TurnError> {
        self.check()?;
        let turn = self.core.turn;
        let id = MessageId::from_uuid(self.core.services.config.ids.uuid());
        let message = SurfaceMessage { id, role: Role::Assistant, content: vec![Block::text(text)], source: Source::Agent { name: self.agent_name() } };
        // The step is the one that is open where it gets its place.
        self.core.append(vec![Body::AssistantMessage { turn, step: 0, message, usage: None, stop: None }])?;
        self.broken()
    }

    /// Notes something in the log that no model sees. Durable with the next durable step, at the latest with the turn's end.
    ///
    /// # Errors
    /// `TURN_ENDED`, or what was wrong with an earlier write.
    pub fn memo(&self, text: impl Into<String>) -> Result<(), TurnError> {
        self.check()?;
        self.core.append(vec![Body::Memo { turn: self.core.turn, message: self.core.message.clone(), key: None, text: text.into() }])?;
        self.broken()
    }

    fn broken(&self) -> Result<(), TurnError> {
        self.core.view.log.broken().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Returns once everything that this turn has appended is durable, and nobody has taken the session over before that.
    ///
    /// For what must not be done by a holder that was stopped, overtaken, and goes on, or before what was said so far is kept. Costs one commit, also where nothing is
    /// new.
    ///
    /// # Errors
    /// `TURN_ENDED`, or the write error; `FENCED` if the session has been taken over.
    ///
    /// # Cancel safety
    /// What was appended becomes durable all the same.
    pub async fn flush(&self) -> Result<(), TurnError> {
        self.check()?;
        Ok(self.core.append_durably(Vec::new()).await?)
    }

    /// Returns an input that an attempt at this message has recorded.
    pub fn recorded(&self, key: &str) -> Option<String> {
        self.look(|fold| fold.serving().recorded.get(key).cloned())?
    }

    /// Records an input from outside that decides effects, durably, so that a later attempt reads it instead of looking again.
    ///
    /// # Errors
    /// `TURN_ENDED`, or the write error.
    ///
    /// # Cancel safety
    /// Recorded or not; ask [`Turn::recorded`].
    pub async fn record(&self, key: impl Into<String>, text: impl Into<String>) -> Result<(), TurnError> {
        self.check()?;
        let body = Body::Memo { turn: self.core.turn, message: self.core.message.clone(), key: Some(key.into()), text: text.into() };
        Ok(self.core.append_durably(vec![body]).await?)
    }

    /// Returns the answer that an attempt at this message has recorded.
    pub fn answer(&self) -> Option<String> {
        self.look(|fold| fold.serving().answer.clone())?
    }

    /// Records an answer durably, before its effects, so that a later attempt replays it.
    ///
    /// # Errors
    /// `TURN_ENDED`, or the write error.
    ///
    /// # Cancel safety
    /// Recorded or not; ask [`Turn::answer`].
    pub async fn record_answer(&self, text: impl Into<String>) -> Result<(), TurnError> {
        self.check()?;
        let body = Body::AnswerRecorded { message: self.core.message.clone(), attempt: self.core.attempt, text: text.into() };
        Ok(self.core.append_durably(vec![body]).await?)
    }

    /// Begins the next step, ending the one before: a step boundary, at which pending notes join.
    ///
    /// # Errors
    /// `TURN_ENDED`, or the write error.
    ///
    /// # Cancel safety
    /// Not cancel safe within a turn that goes on: do not race it against another use of the turn.
    pub async fn step(&self) -> Result<(), TurnError> {
        self.check()?;
        let turn = self.core.turn;
        let (open, steps) = self.core.view.log.look(|fold| fold.head().open.as_ref().map_or((None, 0), |open| (open.step, open.steps)));
        let start = Body::StepStart { turn, step: steps + 1 };
        match open {
            // The turn's start was a boundary itself.
            None if steps == 0 => {
                self.core.append(vec![start])?;
                self.broken()
            }
            None => Ok(self.core.view.log.append_and_claim(vec![start], Vec::new(), ClaimKind::Notes).await.map(|_| ())?),
            Some(step) => {
                let end = Body::StepEnd { turn, step, cut: None };
                Ok(self.core.view.log.append_and_claim(vec![end, start], Vec::new(), ClaimKind::Notes).await.map(|_| ())?)
            }
        }
    }

    /// Joins the notes that have come since the last boundary and returns how many there were.
    ///
    /// # Errors
    /// `TURN_ENDED`, or the write error.
    ///
    /// # Cancel safety
    /// Not cancel safe within a turn that goes on.
    pub async fn join_notes(&self) -> Result<usize, TurnError> {
        self.check()?;
        Ok(self.core.view.log.claim(ClaimKind::Notes).await?.map_or(0, |claimed| claimed.taken.len()))
    }
}
