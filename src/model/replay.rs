//! A model that says again what a recording holds.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};

use super::{
    Model, ModelError, ModelErrorCode, ModelRequest, ModelStream,
    recording::{self, Difference, Exchange, RecordingError},
};

/// A model that says again what a recording holds, byte for byte, and nothing else.
///
/// A request gets the answer of the first line that holds the same request and has not been used; so sessions that work at once, and requests that
/// failed and were made again, find their own. A request that no unused line holds fails with `MODEL_REPLAY_DIFFERS`, and names the line that comes nearest and the first place
/// in which they differ.
///
/// ```
/// use futures::StreamExt as _;
/// use greenroom::model::{Model as _, ModelEvent, ModelRequest, ReplayModel};
/// # tokio_test::block_on(async {
/// let recording = r#"{"greenroom_recording":1}
/// {"request":{"model":{"name":"small"},"tools":[],"messages":[]},"events":[{"text":"Hello."},{"end":{"stop":"end","usage":{"input":7,"output":2}}}]}
/// "#;
/// let model = ReplayModel::parse(recording)?;
/// let request = ModelRequest { model: "small".into(), system: None, tools: Vec::new(), messages: Vec::new(), max_tokens: None };
/// let mut events = model.answer(request.clone()).await?;
/// assert_eq!(events.next().await, Some(Ok(ModelEvent::Text("Hello.".into()))));
/// assert!(model.unused().is_empty());
///
/// let other = ModelRequest { system: Some("You are brief.".into()), ..request };
/// let error = model.answer(other).await.err().expect("nothing like it was recorded");
/// assert_eq!(error.code(), "MODEL_REPLAY_DIFFERS");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct ReplayModel {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    exchanges: Vec<(Exchange, bool)>,
    asked: usize,
}

impl ReplayModel {
    /// Reads a recording. Its format stands in `docs/recordings.md`.
    ///
    /// # Errors
    /// [`RecordingError`] if the file cannot be read or is no recording.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, RecordingError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|source| RecordingError::Io { path: path.display().to_string(), source })?;
        Self::parse(&text)
    }

    /// Reads a recording from its text.
    ///
    /// # Errors
    /// [`RecordingError`] if it is no recording.
    pub fn parse(text: &str) -> Result<Self, RecordingError> {
        let exchanges = recording::parse(text)?.into_iter().map(|exchange| (exchange, false)).collect();
        Ok(Self { state: Mutex::new(State { exchanges, asked: 0 }) })
    }

    /// Returns the lines of the recording, counted from 1, whose requests were not made.
    pub fn unused(&self) -> Vec<usize> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).unused().map(|(line, _)| line).collect()
    }
}

impl State {
    fn unused(&self) -> impl Iterator<Item = (usize, &Exchange)> {
        // The first line says what the file is.
        self.exchanges.iter().enumerate().filter(|(_, (_, is_used))| !is_used).map(|(at, (exchange, _))| (at + 2, exchange))
    }

    fn take(&mut self, asked: &str) -> Result<Exchange, ModelError> {
        self.asked += 1;
        if let Some((exchange, is_used)) = self.exchanges.iter_mut().find(|(exchange, is_used)| !*is_used && exchange.request == asked) {
            *is_used = true;
            return Ok(exchange.clone());
        }
        Err(ModelError::new(ModelErrorCode::ReplayDiffers, self.difference(asked)))
    }

    /// Says in what a request differs from those of the recording.
    fn difference(&self, asked: &str) -> String {
        let differences = self.unused().filter_map(|(line, exchange)| Difference::between(&exchange.request, asked).map(|difference| (line, difference)));
        // Of several that come equally near, the first.
        let nearest = differences.reduce(|best, other| if other.1.same > best.1.same { other } else { best });
        let number = self.asked;
        match nearest {
            Some((line, Difference { same, place, recorded, asked })) => format!(
                "request {number} is not in the recording: line {line} comes nearest, and differs from byte {same} on, in `{place}`: recorded `{recorded}`, asked `{asked}`"
            ),
            None => format!("request {number} is not in the recording: all of its {} answers were given", self.exchanges.len()),
        }
    }
}

impl Model for ReplayModel {
    fn answer(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        let found = self.state.lock().unwrap_or_else(PoisonError::into_inner).take(&request.canonical());
        let opened = found.and_then(|exchange| match exchange.error {
            Some(error) if exchange.events.is_empty() => Err(error),
            error => Ok(stream::iter(exchange.events.into_iter().map(Ok).chain(error.map(Err))).boxed()),
        });
        async move { opened }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{ModelEvent, Recorder, ScriptedAnswer, ScriptedModel, ToolSpec};

    fn request(system: &str) -> ModelRequest {
        let tools =
            vec![ToolSpec { name: "noon".into(), description: "Tells the hour.".into(), schema: serde_json::json!({"type": "object", "b": 1, "a": 2}) }];
        ModelRequest { model: "small".into(), system: Some(system.into()), tools, messages: Vec::new(), max_tokens: Some(100) }
    }

    async fn heard(model: &dyn Model, system: &str) -> Result<Vec<Result<ModelEvent, ModelError>>, ModelError> {
        Ok(model.answer(request(system)).await?.collect().await)
    }

    fn script() -> ScriptedModel {
        let gone = || ModelError::new(ModelErrorCode::Server, "gone");
        ScriptedModel::with(move |request| match request.system.as_deref().unwrap_or_default() {
            "cut" => ScriptedAnswer::new().text("He").cut(),
            "breaks" => ScriptedAnswer::new().text("He").breaks(gone()),
            "fails" => ScriptedAnswer::new().fails(1, gone()),
            system => ScriptedAnswer::new().reasoning("hm", Some("sig")).text(system).call("noon", serde_json::json!({"z": 1})),
        })
    }

    #[tokio::test]
    async fn what_was_recorded_is_said_again_to_the_byte_whatever_the_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("talk.jsonl");
        let recorder = Recorder::create(Arc::new(script()), &path).unwrap();
        let systems = ["one", "two", "cut", "breaks", "fails", "one"];
        let mut said = Vec::new();
        for system in systems {
            said.push(heard(&recorder, system).await);
        }
        drop(recorder);
        let replay = ReplayModel::open(&path).unwrap();
        assert_eq!(replay.unused(), [2, 3, 4, 5, 6, 7]);
        for (system, said) in systems.iter().zip(&said).rev() {
            assert_eq!(&heard(&replay, system).await, said, "{system}");
        }
        assert!(replay.unused().is_empty());
        assert!(heard(&replay, "one").await.unwrap_err().message.contains("request 7 is not in the recording: all of its 6 answers were given"));
    }

    #[tokio::test]
    async fn a_request_that_differs_fails_with_its_number_and_the_first_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("talk.jsonl");
        let recorder = Recorder::create(Arc::new(script()), &path).unwrap();
        for system in ["You are long.", "You are brief."] {
            heard(&recorder, system).await.unwrap();
        }
        let replay = ReplayModel::open(&path).unwrap();
        heard(&replay, "You are long.").await.unwrap();
        let error = heard(&replay, "You are brisk.").await.unwrap_err();
        assert_eq!(error.code(), "MODEL_REPLAY_DIFFERS");
        assert!(!error.is_passing());
        assert!(error.message.contains("request 2 is not in the recording: line 3 comes nearest"), "{error}");
        assert!(error.message.contains("in `system`: recorded `ou are brief."), "{error}");
        // It has used nothing up.
        assert_eq!(replay.unused(), [3]);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = ReplayModel::open("/nowhere/talk.jsonl").unwrap_err();
        assert_eq!(error.code(), "RECORDING_UNAVAILABLE");
        assert!(error.to_string().contains("/nowhere/talk.jsonl"));
    }
}
