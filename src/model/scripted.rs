//! A model that says what it was told to say.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use greenroom_session::event::Role;
use serde_json::Value;
use tokio::sync::Notify;

use super::{Model, ModelError, ModelErrorCode, ModelEvent, ModelRequest, ModelStream, Stop, Usage};

type Script = dyn Fn(&ModelRequest) -> Result<ScriptedAnswer, ModelError> + Send + Sync;

/// A model that says what it was told to say, without a network.
///
/// A list of answers is gone through by how many answers the request has in it already, so that it goes on in the right place after a restart, and several
/// sessions may use one list at once. Whoever compacts, or asks for anything besides, needs [`ScriptedModel::with`], which looks at the request itself.
///
/// Clones are one model.
///
/// ```
/// use futures::StreamExt as _;
/// use greenroom::model::{Model as _, ModelEvent, ModelRequest, ScriptedAnswer, ScriptedModel, Stop, Usage};
/// # tokio_test::block_on(async {
/// let model = ScriptedModel::new([ScriptedAnswer::new().text("Good ").text("morning.")]);
/// let request = ModelRequest { model: "small".into(), system: None, tools: Vec::new(), messages: Vec::new(), max_tokens: None };
/// let events: Vec<ModelEvent> = model.answer(request).await?.map(|event| event.expect("it is told to fail at nothing")).collect().await;
/// let end = ModelEvent::End { stop: Stop::End, usage: Usage::default() };
/// assert_eq!(events, [ModelEvent::Text("Good ".into()), ModelEvent::Text("morning.".into()), end]);
/// assert_eq!(model.requests().len(), 1);
/// # Ok::<(), greenroom::model::ModelError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct ScriptedModel {
    script: Arc<Script>,
    requests: Arc<Mutex<Vec<ModelRequest>>>,
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel").field("requests", &self.requests().len()).finish_non_exhaustive()
    }
}

impl ScriptedModel {
    /// Makes a model that gives these answers, one after the other. Who asks for more is refused with `MODEL_BAD_REQUEST`.
    pub fn new(answers: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        let answers: Vec<ScriptedAnswer> = answers.into_iter().collect();
        Self::made(move |request| {
            let given = request.messages.iter().filter(|message| message.role == Role::Assistant).count();
            let missing =
                || ModelError::new(ModelErrorCode::BadRequest, format!("the script has {} answers, and this request has {given} in it already", answers.len()));
            answers.get(given).cloned().ok_or_else(missing)
        })
    }

    /// Makes a model that looks at each request and says what is to be answered.
    pub fn with(script: impl Fn(&ModelRequest) -> ScriptedAnswer + Send + Sync + 'static) -> Self {
        Self::made(move |request| Ok(script(request)))
    }

    fn made(script: impl Fn(&ModelRequest) -> Result<ScriptedAnswer, ModelError> + Send + Sync + 'static) -> Self {
        Self { script: Arc::new(script), requests: Arc::default() }
    }

    /// Returns what it was asked so far, in order, failed requests among them.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Model for ScriptedModel {
    fn answer(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        let answer = (self.script)(&request);
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        async move { answer?.open() }.boxed()
    }
}

/// One answer of a [`ScriptedModel`], piece by piece.
///
/// ```
/// use greenroom::model::{ModelError, ModelErrorCode, ScriptedAnswer, ScriptedModel};
/// let busy = ModelError::new(ModelErrorCode::RateLimit, "slow down");
/// let model = ScriptedModel::new([
///     ScriptedAnswer::new().fails(2, busy).call("list_agents", serde_json::json!({})),
///     ScriptedAnswer::new().text("Nobody is there."),
/// ]);
/// assert!(model.requests().is_empty());
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ScriptedAnswer {
    pieces: Vec<Piece>,
    /// Absent for an answer that is cut off; inside, absent where it follows from the pieces.
    end: Option<(Option<Stop>, Usage)>,
    /// How many requests are still to fail. Clones count together, so that a list can be gone through.
    failing: Arc<AtomicU32>,
    failure: Option<ModelError>,
}

#[derive(Debug, Clone)]
enum Piece {
    Event(ModelEvent),
    Wait(Arc<Notify>),
    Fail(ModelError),
}

impl Default for ScriptedAnswer {
    fn default() -> Self {
        Self { pieces: Vec::new(), end: Some((None, Usage::default())), failing: Arc::default(), failure: None }
    }
}

impl ScriptedAnswer {
    /// Begins an answer.
    pub fn new() -> Self {
        Self::default()
    }

    fn piece(mut self, piece: Piece) -> Self {
        self.pieces.push(piece);
        self
    }

    /// Says a little more.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.piece(Piece::Event(ModelEvent::Text(text.into())))
    }

    /// Thinks a little more.
    pub fn reasoning(self, text: impl Into<String>, signature: Option<&str>) -> Self {
        self.piece(Piece::Event(ModelEvent::Reasoning { text: text.into(), signature: signature.map(str::to_owned) }))
    }

    /// Asks for a tool. The ids of the calls of one answer are `call_0`, `call_1` and so on.
    pub fn call(self, name: impl Into<String>, arguments: impl Into<Value>) -> Self {
        self.raw_call(name, arguments.into().to_string())
    }

    /// Asks for a tool with arguments that may be no JSON.
    pub fn raw_call(self, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let calls = self.calls();
        self.piece(Piece::Event(ModelEvent::ToolCall { id: format!("call_{calls}"), name: name.into(), arguments: arguments.into() }))
    }

    fn calls(&self) -> usize {
        self.pieces.iter().filter(|piece| matches!(piece, Piece::Event(ModelEvent::ToolCall { .. }))).count()
    }

    /// Waits until it is told to go on, by [`Notify::notify_one`]: also if that came first.
    pub fn wait(self, until: Arc<Notify>) -> Self {
        self.piece(Piece::Wait(until))
    }

    /// Says why it ends, where that does not follow from whether it asks for a tool.
    pub fn stop(mut self, stop: Stop) -> Self {
        let (_, usage) = self.end.unwrap_or_default();
        self.end = Some((Some(stop), usage));
        self
    }

    /// Says what it costs.
    pub fn usage(mut self, usage: Usage) -> Self {
        let (stop, _) = self.end.unwrap_or_default();
        self.end = Some((stop, usage));
        self
    }

    /// Breaks off after the pieces so far, without an end.
    pub fn cut(mut self) -> Self {
        self.end = None;
        self
    }

    /// Fails after the pieces so far.
    pub fn breaks(self, error: ModelError) -> Self {
        self.piece(Piece::Fail(error)).cut()
    }

    /// Fails so many requests before it is given. Clones of an answer count together.
    pub fn fails(mut self, requests: u32, error: ModelError) -> Self {
        self.failing = Arc::new(AtomicU32::new(requests));
        self.failure = Some(error);
        self
    }

    fn open(self) -> Result<ModelStream, ModelError> {
        let fails = self.failing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if let Some(error) = self.failure.clone().filter(|_| fails) {
            return Err(error);
        }
        let asks = self.calls() > 0;
        let end = self.end.map(|(stop, usage)| {
            let stop = stop.unwrap_or(if asks { Stop::ToolUse } else { Stop::End });
            Piece::Event(ModelEvent::End { stop, usage })
        });
        let pieces = stream::iter(self.pieces.into_iter().chain(end));
        let events = pieces.filter_map(|piece| async move {
            match piece {
                Piece::Event(event) => Some(Ok(event)),
                Piece::Fail(error) => Some(Err(error)),
                Piece::Wait(until) => {
                    until.notified().await;
                    None
                }
            }
        });
        Ok(events.boxed())
    }
}

#[cfg(test)]
mod tests {
    use greenroom_session::{
        event::SurfaceMessage,
        id::MessageId,
        message::{Block, Source},
    };

    use super::*;

    fn request(answers: usize) -> ModelRequest {
        let said = |role, n: usize| {
            Arc::new(SurfaceMessage { id: MessageId::new(format!("m{n}")).unwrap(), role, content: vec![Block::text("x")], source: Source::User })
        };
        let messages = (0..answers).flat_map(|n| [said(Role::User, 2 * n), said(Role::Assistant, 2 * n + 1)]).collect();
        ModelRequest { model: "small".into(), system: None, tools: Vec::new(), messages, max_tokens: None }
    }

    async fn heard(model: &ScriptedModel, answers: usize) -> Result<Vec<Result<ModelEvent, ModelError>>, ModelError> {
        Ok(model.answer(request(answers)).await?.collect().await)
    }

    #[expect(clippy::unnecessary_wraps, reason = "an item of a stream")]
    fn end(stop: Stop) -> Result<ModelEvent, ModelError> {
        Ok(ModelEvent::End { stop, usage: Usage::default() })
    }

    #[tokio::test]
    async fn an_answer_follows_from_how_many_the_request_has_already() {
        let answers = || [ScriptedAnswer::new().call("noon", serde_json::json!({})), ScriptedAnswer::new().text("Twelve.")];
        let call = Ok(ModelEvent::ToolCall { id: "call_0".into(), name: "noon".into(), arguments: "{}".into() });
        let model = ScriptedModel::new(answers());
        assert_eq!(heard(&model, 0).await.unwrap(), [call.clone(), end(Stop::ToolUse)]);
        // Asked again it says the same, and one that has just been made goes on where another was.
        assert_eq!(heard(&model, 0).await.unwrap(), [call, end(Stop::ToolUse)]);
        assert_eq!(heard(&ScriptedModel::new(answers()), 1).await.unwrap(), [Ok(ModelEvent::Text("Twelve.".into())), end(Stop::End)]);
        assert_eq!(heard(&model, 2).await.unwrap_err().code(), "MODEL_BAD_REQUEST");
        assert_eq!(model.requests().len(), 3);
    }

    #[tokio::test]
    async fn an_answer_fails_as_often_as_it_is_told_to() {
        let busy = ModelError::new(ModelErrorCode::RateLimit, "slow down");
        let model = ScriptedModel::new([ScriptedAnswer::new().fails(2, busy.clone()).text("Here."), ScriptedAnswer::new().text("There.")]);
        for _ in 0..2 {
            assert_eq!(heard(&model, 0).await.unwrap_err(), busy);
        }
        assert_eq!(heard(&model, 0).await.unwrap().len(), 2);
        assert_eq!(heard(&model, 1).await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn an_answer_can_break_off_with_an_error_and_without() {
        let broken = ModelError::new(ModelErrorCode::Server, "gone");
        let model = ScriptedModel::new([ScriptedAnswer::new().text("He").cut(), ScriptedAnswer::new().text("He").breaks(broken.clone())]);
        assert_eq!(heard(&model, 0).await.unwrap(), [Ok(ModelEvent::Text("He".into()))]);
        assert_eq!(heard(&model, 1).await.unwrap(), [Ok(ModelEvent::Text("He".into())), Err(broken)]);
    }

    #[tokio::test]
    async fn an_answer_waits_in_its_middle_until_it_is_told_to_go_on() {
        let until = Arc::new(Notify::new());
        let model = ScriptedModel::with({
            let until = until.clone();
            move |_| ScriptedAnswer::new().text("a").wait(until.clone()).text("b").stop(Stop::MaxTokens)
        });
        let mut events = model.answer(request(0)).await.unwrap();
        assert_eq!(events.next().await, Some(Ok(ModelEvent::Text("a".into()))));
        assert_eq!(events.next().now_or_never(), None);
        until.notify_one();
        assert_eq!(events.next().await, Some(Ok(ModelEvent::Text("b".into()))));
        assert_eq!(events.next().await, Some(end(Stop::MaxTokens)));
    }
}
