//! A model whose answers are written down.

use std::{
    fmt,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};

use super::{
    Model, ModelError, ModelErrorCode, ModelEvent, ModelRequest, ModelStream,
    recording::{self, Exchange, RecordingError},
};

/// A model whose answers are written down, for a [`ReplayModel`](super::ReplayModel) to say again.
///
/// A line is written when an answer has ended: whole, with an error, or cut off. One that nobody wanted to the end is not written. It is a tool for making tests: it writes with a
/// blocking call.
///
/// ```
/// use std::sync::Arc;
/// use futures::StreamExt as _;
/// use greenroom::model::{Model as _, ModelRequest, Recorder, ReplayModel, ScriptedAnswer, ScriptedModel};
/// # tokio_test::block_on(async {
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("talk.jsonl");
/// let recorder = Recorder::create(Arc::new(ScriptedModel::new([ScriptedAnswer::new().text("Hello.")])), &path)?;
/// let request = ModelRequest { model: "small".into(), system: None, tools: Vec::new(), messages: Vec::new(), max_tokens: None };
/// recorder.answer(request).await?.collect::<Vec<_>>().await;
/// assert_eq!(ReplayModel::open(&path)?.unused(), [2]); // the file's second line
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct Recorder {
    model: Arc<dyn Model>,
    to: Arc<To>,
}

struct To {
    path: PathBuf,
    file: Mutex<File>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("path", &self.to.path).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Begins a recording in a new file. One that is there already is not overwritten.
    ///
    /// # Errors
    /// [`RecordingError::Io`].
    pub fn create(model: Arc<dyn Model>, path: impl AsRef<Path>) -> Result<Self, RecordingError> {
        let path = path.as_ref().to_owned();
        let made = File::create_new(&path).and_then(|mut file| file.write_all(recording::first_line().as_bytes()).map(|()| file));
        let file = made.map_err(|source| RecordingError::Io { path: path.display().to_string(), source })?;
        Ok(Self { model, to: Arc::new(To { path, file: Mutex::new(file) }) })
    }
}

impl To {
    /// Writes an answer down.
    fn write(&self, exchange: &Exchange) -> Result<(), ModelError> {
        let line = exchange.line().map_err(std::io::Error::from);
        let written = line.and_then(|line| self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes()));
        // Whoever records wants a whole recording or none.
        written.map_err(|error| ModelError::new(ModelErrorCode::BadRequest, format!("{}: the answer cannot be recorded: {error}", self.path.display())))
    }
}

/// An answer on its way, and what had come of it.
struct Heard {
    events: ModelStream,
    exchange: Exchange,
    to: Arc<To>,
}

impl Heard {
    /// Returns the next piece. What ends the answer is passed on after it is written.
    async fn next(mut self) -> Option<(Result<ModelEvent, ModelError>, Option<Self>)> {
        let event = self.events.next().await;
        let goes_on = matches!(&event, Some(Ok(event)) if !matches!(event, ModelEvent::End { .. }));
        match &event {
            Some(Ok(event)) => self.exchange.events.push(event.clone()),
            Some(Err(error)) => self.exchange.error = Some(error.clone()),
            None => {}
        }
        if goes_on {
            return event.map(|event| (event, Some(self)));
        }
        match self.to.write(&self.exchange) {
            Ok(()) => event.map(|event| (event, None)),
            Err(error) => Some((Err(error), None)),
        }
    }
}

impl Model for Recorder {
    fn answer(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        async move {
            let mut exchange = Exchange { request: request.canonical(), events: Vec::new(), error: None };
            let to = self.to.clone();
            match self.model.answer(request).await {
                Ok(events) => {
                    let heard = Heard { events, exchange, to };
                    Ok(stream::unfold(Some(heard), |heard| async move { heard?.next().await }).fuse().boxed())
                }
                Err(error) => {
                    exchange.error = Some(error.clone());
                    to.write(&exchange)?;
                    Err(error)
                }
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ReplayModel, ScriptedAnswer, ScriptedModel};

    fn request() -> ModelRequest {
        ModelRequest { model: "small".into(), system: None, tools: Vec::new(), messages: Vec::new(), max_tokens: None }
    }

    #[tokio::test]
    async fn an_answer_that_nobody_wanted_to_the_end_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("talk.jsonl");
        let recorder = Recorder::create(Arc::new(ScriptedModel::with(|_| ScriptedAnswer::new().text("a").text("b"))), &path).unwrap();
        let mut events = recorder.answer(request()).await.unwrap();
        events.next().await;
        drop(events);
        assert!(ReplayModel::open(&path).unwrap().unused().is_empty());
        recorder.answer(request()).await.unwrap().collect::<Vec<_>>().await;
        assert_eq!(ReplayModel::open(&path).unwrap().unused(), [2]);
    }

    #[test]
    fn a_recording_that_is_there_already_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("talk.jsonl");
        std::fs::write(&path, "mine").unwrap();
        let error = Recorder::create(Arc::new(ScriptedModel::new([])), &path).unwrap_err();
        assert_eq!(error.code(), "RECORDING_UNAVAILABLE");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
