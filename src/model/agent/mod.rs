//! Model agents: a language model with tools, as a behaviour.
//!
//! - `options`: what is said of one. `request`: what a model is asked. `answer`: one answer, as it comes. `pool`: the calls that it asks for. `cut`: calls that a crash cut off.
//!   `compaction`: what is done when the context window is full.
//!
//! # What is durable when
//!
//! A turn goes through steps: ask, write the answer down, do the calls that it asks for, in the order in which it asks. Before a model is asked, all that led to it is
//! durable; before a tool's body runs, the answer and the call are. So whoever takes a turn up after a crash goes on from there: an answer that is written down
//! is not asked for again, a result that is written down stands, and a call that was cut off is made again where that does no harm.

mod answer;
mod compaction;
mod cut;
mod options;
mod pool;
mod request;

pub use options::{ModelOptions, Price};
pub use pool::ABORTED_BEFORE_DISPATCH;

use std::sync::Arc;

use futures::future::BoxFuture;
use greenroom_actors::{Behavior, Turn, TurnEnd, TurnError};
use greenroom_session::{
    descriptor::ModelRoute,
    event::Role,
    message::{Block, Source},
};

use self::{
    answer::{Answer, Broken, Heard},
    pool::Pooled,
};
use super::{Model, ModelErrorCode, Stop};
use crate::tool::Tools;

/// The code of a turn whose agent has no model.
pub const MODEL_MISSING: &str = "MODEL_MISSING";

/// The code of a turn that made as many requests as it may.
pub const MAX_STEPS: &str = "MAX_STEPS";

/// The code of a turn whose model declined to answer.
pub const MODEL_REFUSED: &str = "MODEL_REFUSED";

/// A language model that works with tools: each turn asks the model, does what it asks for, and asks again until it asks for nothing more.
///
/// ```
/// use std::sync::Arc;
/// use greenroom::{Runtime, model::{ModelAgent, ModelOptions}, tool::Tools};
/// # use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
/// # use greenroom::model::{Model, ModelError, ModelEvent, ModelRequest, ModelStream, Stop, Usage};
/// # struct Greeter;
/// # impl Model for Greeter {
/// #     fn answer(&self, _: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
/// #         let events = [Ok(ModelEvent::Text("Good morning.".into())), Ok(ModelEvent::End { stop: Stop::End, usage: Usage::default() })];
/// #         async move { Ok(stream::iter(events).boxed()) }.boxed()
/// #     }
/// # }
/// # tokio_test::block_on(async {
/// let agent = ModelAgent::new(Arc::new(Greeter), Tools::default(), ModelOptions::new("small")); // `Greeter` is a `Model`
/// let runtime = Runtime::builder().behavior("greeter", move || agent.clone()).open("memory:").await?;
/// let root = runtime.root("greeter", "a desk").await?;
/// root.send("Hello.").await?;
/// root.quiescent().await?;
/// assert_eq!(runtime.last_answer(root.id()).await?.as_deref(), Some("Good morning."));
/// # runtime.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct ModelAgent {
    model: Arc<dyn Model>,
    tools: Tools,
    options: Arc<ModelOptions>,
    /// What the newest request came to in tokens, and how large it was by our own count.
    measured: Option<Measured>,
}

/// How many tokens a model's provider counted where we counted bytes.
#[derive(Debug, Clone, Copy)]
struct Measured {
    tokens: u64,
    bytes: u64,
}

impl std::fmt::Debug for ModelAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelAgent").field("options", &self.options).finish_non_exhaustive()
    }
}

impl ModelAgent {
    /// Makes an agent of a model and what it may use.
    pub fn new(model: Arc<dyn Model>, tools: Tools, options: ModelOptions) -> Self {
        Self { model, tools, options: Arc::new(options), measured: None }
    }

    /// Returns the route to the model that speaks in this turn.
    fn route(&self, turn: &Turn) -> Result<ModelRoute, TurnError> {
        let missing = || TurnError::new(MODEL_MISSING, "neither the session nor its agent names a model");
        turn.model().or_else(|| self.options.route.clone()).ok_or_else(missing)
    }

    async fn serve(&mut self, turn: &Turn) -> Result<TurnEnd, TurnError> {
        cut::mend(turn, &self.tools).await?;
        if !is_answered(turn) {
            self.converse(turn).await?;
        }
        Ok(if turn.ran_out() { TurnEnd::MaxTokens } else { TurnEnd::Completed })
    }

    async fn converse(&mut self, turn: &Turn) -> Result<(), TurnError> {
        let route = self.route(turn)?;
        for _ in 0..self.options.max_steps {
            turn.step().await?;
            let answer = self.ask(turn, &route).await?;
            let (calls, stop) = (answer.calls(), answer.stop.clone());
            turn.answered(answer.spoken(&route, self.options.price)).await?;
            if calls.is_empty() {
                if stop == Some(Stop::Refusal) {
                    return Err(TurnError::new(MODEL_REFUSED, "the model declined to answer"));
                }
                // What was said to the agent meanwhile is heard before the turn ends.
                if turn.join_notes().await? == 0 {
                    return Ok(());
                }
                continue;
            }
            match pool::run_all(turn, &self.tools, &calls, self.options.parallel).await? {
                Pooled::Goes => {}
                Pooled::Concluded => return Ok(()),
            }
        }
        Err(TurnError::new(MAX_STEPS, format!("the turn made {} model requests, the most that it may", self.options.max_steps)))
    }

    /// Asks until there is an answer, a failure that no repetition mends, or the turn is cancelled.
    async fn ask(&mut self, turn: &Turn, route: &ModelRoute) -> Result<Answer, TurnError> {
        let mut compacted = self.compact_if_full(turn, route).await?;
        let (mut failed, mut rng) = (0, turn.rng());
        loop {
            let request = request::assemble(turn, &self.tools, &self.options, route);
            let bytes = request::bytes(&request);
            match answer::stream(self.model.as_ref(), turn, request, Heard::ByAll).await {
                Ok(answer) => {
                    let tokens = answer.usage.input + answer.usage.output;
                    self.measured = (tokens > 0).then_some(Measured { tokens, bytes: bytes + answer.bytes() });
                    return Ok(answer);
                }
                Err(Broken::Cancelled(partial)) => {
                    // Who is cut off by a shutdown serves the message again, and the answer then begins anew.
                    if !partial.is_empty() && !turn.is_cut_off() {
                        turn.answered(partial.spoken(route, None)).await?;
                    }
                    return Err(cancelled());
                }
                Err(Broken::Failed(error)) if error.code == ModelErrorCode::ContextFull && !compacted => {
                    compacted = true;
                    if !self.compact(turn, route).await? {
                        return Err(error.into());
                    }
                }
                Err(Broken::Failed(error)) => {
                    let Some(pause) = self.options.retry.delay(failed, &error, &mut rng) else { return Err(error.into()) };
                    failed += 1;
                    tracing::warn!(session = %turn.session(), code = error.code(), %error, ?pause, "the model is asked again");
                    tokio::select! {
                        biased;
                        () = turn.cancelled().cancelled_owned() => return Err(cancelled()),
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
    }
}

impl Behavior for ModelAgent {
    fn turn(&mut self, turn: Turn) -> BoxFuture<'_, Result<TurnEnd, TurnError>> {
        Box::pin(async move { self.serve(&turn).await })
    }
}

fn cancelled() -> TurnError {
    TurnError::new("CANCELLED", "the turn was cancelled")
}

/// Tells whether an earlier attempt has written down the last answer to this message, and only the turn's end is missing.
fn is_answered(turn: &Turn) -> bool {
    let surface = turn.surface();
    let Some(last) = surface.last().map(|(_, message)| message) else { return false };
    let asks = last.content.iter().any(|block| matches!(block, Block::ToolCall { .. }));
    turn.stop().is_some_and(|stop| stop != answer::CUT) && last.role == Role::Assistant && matches!(last.source, Source::Model { .. }) && !asks
}
