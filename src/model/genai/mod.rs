//! Models of real providers, by the `genai` crate.
//!
//! - `endpoint`: where a model is. `request`: what is sent. `frames`: what of an answer is read from the wire, past `genai`. `answer`: what comes of it.
//!   `failure`: what kind of failure an error is.

mod answer;
mod endpoint;
mod failure;
mod frames;
mod request;

pub use endpoint::{Api, Endpoint, EndpointError, Timeouts};

use std::{fmt, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use genai::{
    Client, ModelIden, ServiceTarget,
    adapter::AdapterKind,
    resolver::{AuthData, Endpoint as Target},
};

use self::{answer::Answer, failure::Failures};
use super::{Model, ModelError, ModelRequest, ModelStream};

/// A model of a real provider: OpenAI or whoever is compatible with it, Anthropic, Gemini, Ollama.
///
/// Its answers come as they are made, and are made of what is whole: a tool call that the end of the answer has cut short is left out; an answer whose end never came, or
/// that asks for tools and names none, is an error. What a request failed with is told by [`ModelError::code`]; the message never holds the key or the request.
/// Nothing is repeated here, and no redirection is followed.
///
/// Clones are one client with one pool of connections.
///
/// ```
/// use greenroom::model::{Api, Endpoint, GenaiModel};
/// let model = GenaiModel::new(Endpoint::new(Api::OpenAi).base_url("http://127.0.0.1:8080/v1"))?;
/// assert!(format!("{model:?}").contains("127.0.0.1"));
/// # Ok::<(), greenroom::model::EndpointError>(())
/// ```
#[derive(Clone)]
pub struct GenaiModel {
    client: Client,
    endpoint: Arc<Endpoint>,
    /// The base URL as it is used.
    url: Arc<str>,
}

impl fmt::Debug for GenaiModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenaiModel").field("api", &self.endpoint.api).field("url", &self.url).finish_non_exhaustive()
    }
}

impl GenaiModel {
    /// Makes a client. Nothing is sent yet.
    ///
    /// # Errors
    /// [`EndpointError`] if the URL is none, or the system has no certificates to trust.
    pub fn new(endpoint: Endpoint) -> Result<Self, EndpointError> {
        let (url, is_here) = endpoint.checked_url()?;
        // Whichever is there first stays: that another part of the process has installed one is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
        // A redirection would take the key and the conversation elsewhere.
        let mut http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).connect_timeout(endpoint.timeouts.connect).tcp_nodelay(true);
        if is_here {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| EndpointError::Client(failure::chain(&error)))?;
        let client = Client::builder().with_reqwest(http).build().map_err(|error| EndpointError::Client(error.to_string()))?;
        Ok(Self { client, endpoint: Arc::new(endpoint), url: url.into() })
    }

    async fn open(&self, request: ModelRequest) -> Result<ModelStream, ModelError> {
        let Endpoint { api, key, timeouts, .. } = &*self.endpoint;
        let failures = Failures { key: key.clone() };
        let (seen, sink) = frames::watch(*api);
        let mut options = request::options(*api, &request, timeouts)?.with_raw_frame_fn(sink);
        // `genai` keeps Ollama's key to itself; one that stands behind a gate wants to see it.
        if *api == Api::Ollama && !key.0.is_empty() {
            options = options.with_extra_headers([("authorization", format!("Bearer {}", key.0))]);
        }
        let target = ServiceTarget {
            endpoint: Target::from_owned(self.url.clone()),
            auth: AuthData::from_single(key.0.to_string()),
            model: ModelIden::new(kind(*api), request.model.name.clone()),
        };
        let opened = self.client.exec_chat_stream(target, request::chat(*api, &request), Some(&options)).await;
        let chat = opened.map_err(|error| failures.of(&error))?.stream;
        Ok(Answer::new(*api, chat, seen, failures, timeouts.whole).stream())
    }
}

impl Model for GenaiModel {
    fn answer(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        self.open(request).boxed()
    }
}

fn kind(api: Api) -> AdapterKind {
    match api {
        Api::OpenAi => AdapterKind::OpenAI,
        Api::Anthropic => AdapterKind::Anthropic,
        Api::Gemini => AdapterKind::Gemini,
        Api::Ollama => AdapterKind::Ollama,
    }
}
