//! Models of real providers, over HTTP, against a server of our own that answers, fails, dawdles and breaks off as it is told to.

mod answers;
mod failures;
mod logged;
mod requests;
mod server;
mod turns;
mod wire;

use std::sync::Arc;

use futures::StreamExt as _;
use greenroom::{
    MessageId,
    model::{Api, Endpoint, GenaiModel, Model as _, ModelError, ModelEvent, ModelRequest},
    session::{
        descriptor::ModelRoute,
        event::{Role, SurfaceMessage},
        message::{Block, Source},
    },
};

use server::Server;

const KEY: &str = "sk-a-key-that-nobody-may-see";

/// Where an interface begins below the server.
fn base(api: Api, server: &Server) -> String {
    // None ends with a slash, so that one has to be added.
    match api {
        Api::Gemini => format!("{}/v1beta", server.url()),
        Api::Ollama => server.url(),
        _ => format!("{}/v1", server.url()),
    }
}

fn endpoint(api: Api, server: &Server) -> Endpoint {
    Endpoint::new(api).base_url(base(api, server)).key(KEY)
}

fn model(api: Api, server: &Server) -> GenaiModel {
    GenaiModel::new(endpoint(api, server)).unwrap()
}

fn request(messages: Vec<SurfaceMessage>) -> ModelRequest {
    let model = ModelRoute { provider: Some("desk".into()), name: "small".into() };
    ModelRequest { model, system: None, tools: Vec::new(), messages: messages.into_iter().map(Arc::new).collect(), max_tokens: None }
}

fn hello() -> ModelRequest {
    request(vec![said(Role::User, vec![Block::text("Hello.")])])
}

fn said(role: Role, content: Vec<Block>) -> SurfaceMessage {
    let source = match (role, content.first()) {
        (Role::Assistant, _) => Source::Model { provider: "desk".into(), name: "small".into() },
        (Role::Tool, Some(Block::ToolResult { call_id, .. })) => Source::Tool { call_id: call_id.clone() },
        _ => Source::User,
    };
    SurfaceMessage { id: MessageId::new("m").unwrap(), role, content, source }
}

/// Asks, and returns what was said, pieces of text and of reasoning put together, and what it failed with.
async fn heard(model: &GenaiModel, request: ModelRequest) -> (Vec<ModelEvent>, Option<ModelError>) {
    let mut events = match model.answer(request).await {
        Ok(events) => events,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut said: Vec<ModelEvent> = Vec::new();
    let mut failure = None;
    while let Some(event) = events.next().await {
        match (said.last_mut(), event) {
            (Some(ModelEvent::Text(text)), Ok(ModelEvent::Text(more))) => text.push_str(&more),
            (Some(ModelEvent::Reasoning { text, signature: known @ None }), Ok(ModelEvent::Reasoning { text: more, signature })) => {
                text.push_str(&more);
                *known = signature;
            }
            (_, Ok(event)) => said.push(event),
            (_, Err(error)) => failure = Some(error),
        }
    }
    // What has ended says nothing more.
    assert!(events.next().await.is_none());
    (said, failure)
}
