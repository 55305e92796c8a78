//! Models: what is asked of one, what it answers, which there are, and the agent that works with one.
//!
//! - [`Model`]: one answer to one [`ModelRequest`], as a stream of [`ModelEvent`]s.
//! - `GenaiModel` (feature `models`): the models of real providers. [`ScriptedModel`]: one that says what it was told to say. [`Recorder`] and [`ReplayModel`]: what a model
//!   has said, written down and said again.
//! - [`ModelAgent`]: a behaviour that asks a model and does what it asks for.

mod agent;
mod error;
mod event;
#[cfg(feature = "models")]
mod genai;
mod recorder;
mod recording;
mod replay;
mod request;
mod retry;
mod scripted;

pub use agent::{ABORTED_BEFORE_DISPATCH, MAX_STEPS, MODEL_MISSING, MODEL_REFUSED, ModelAgent, ModelOptions, Price};
pub use error::{ModelError, ModelErrorCode};
pub use event::{ModelEvent, Stop, Usage};
#[cfg(feature = "models")]
pub use genai::{Api, Endpoint, EndpointError, GenaiModel, Timeouts};
pub use recorder::Recorder;
pub use recording::RecordingError;
pub use replay::ReplayModel;
pub use request::{ModelRequest, ToolSpec};
pub use retry::RetryPolicy;
pub use scripted::{ScriptedAnswer, ScriptedModel};

use std::pin::Pin;

use futures::{Stream, future::BoxFuture};

/// One answer as it comes. It ends with [`ModelEvent::End`] or with its first error; one that ends with neither was cut off.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// A language model: one request in, one answer out.
///
/// It keeps nothing between two requests, repeats none by itself, and knows nothing of sessions. Dropping the stream gives the answer up.
///
/// ```
/// use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
/// use greenroom::model::{Model, ModelError, ModelEvent, ModelRequest, ModelStream, Stop, Usage};
/// struct Parrot;
/// impl Model for Parrot {
///     fn answer(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
///         let heard = request.messages.last().map(|message| greenroom::session::message::text_of(&message.content)).unwrap_or_default();
///         let events = [Ok(ModelEvent::Text(heard)), Ok(ModelEvent::End { stop: Stop::End, usage: Usage::default() })];
///         async move { Ok(stream::iter(events).boxed()) }.boxed()
///     }
/// }
/// # let _ = Parrot;
/// ```
pub trait Model: Send + Sync + 'static {
    /// Opens an answer.
    ///
    /// # Errors
    /// [`ModelError`], here or as the last item of the stream.
    ///
    /// # Cancel safety
    /// Dropping the future or the stream gives the answer up; the provider may count its tokens all the same.
    fn answer(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>>;
}
