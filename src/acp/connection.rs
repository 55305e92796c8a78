//! The protocol's requests and notifications. Each handler reads what it is given and hands it over: it runs where the next message is dispatched, and a panic
//! in it would end the connection.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use agent_client_protocol::{
    Agent, ByteStreams, Client, Error, JsonRpcResponse, on_receive_notification, on_receive_request,
    schema::ProtocolVersion,
    v1::{ConnectionTo, Responder, schema as s},
};
use greenroom_session::id::SessionId;
use serde_json::{Map, Value, json};
use tokio::io::DuplexStream;
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

use super::{
    fault::{Fault, Kind},
    house::House,
    list,
    outlet::Outlet,
    prompt,
    prompts::{Reply, Stopped},
    seat::Ask,
};
use crate::wire::{Ends, Room};

/// What the handlers share.
#[derive(Clone)]
struct Desk {
    house: Arc<House>,
    room: Room,
    with_subagents: Arc<AtomicBool>,
}

/// Serves the client until it is gone.
pub(super) async fn serve(house: Arc<House>, ends: Ends) -> Result<(), Error> {
    let Ends { reader, writer, room, .. } = ends;
    let desk = Desk { house, room, with_subagents: Arc::default() };
    connect(&desk, writer, reader).await
}

#[expect(clippy::unit_arg, reason = "a handler that hands over what it was given has nothing to fail with")]
async fn connect(desk: &Desk, writer: DuplexStream, reader: DuplexStream) -> Result<(), Error> {
    let [initialize, new, list, load, resume, close, prompt, cancel] = std::array::from_fn(|_| desk.clone());
    Agent
        .v1()
        .name("greenroom")
        .on_receive_request(async move |request: s::InitializeRequest, responder, _| initialize.initialize(&request, responder), on_receive_request!())
        .on_receive_request(async move |request: s::NewSessionRequest, responder, to| Ok(new.new_session(&request, responder, to)), on_receive_request!())
        .on_receive_request(async move |request: s::ListSessionsRequest, responder, _| Ok(list.list(request, responder)), on_receive_request!())
        .on_receive_request(
            async move |request: s::LoadSessionRequest, responder, to| {
                let unused = unused(!request.mcp_servers.is_empty());
                let reply = reply(responder, move |()| s::LoadSessionResponse::new().meta(unused));
                Ok(load.open(&request.session_id, &request.cwd, true, reply, to))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: s::ResumeSessionRequest, responder, to| {
                let unused = unused(!request.mcp_servers.is_empty());
                let reply = reply(responder, move |()| s::ResumeSessionResponse::new().meta(unused));
                Ok(resume.open(&request.session_id, &request.cwd, false, reply, to))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: s::CloseSessionRequest, responder, _| {
                Ok(close.ask(&request.session_id, Ask::Close { reply: reply(responder, |()| s::CloseSessionResponse::new()) }))
            },
            on_receive_request!(),
        )
        .on_receive_request(async move |request: s::PromptRequest, responder, _| Ok(prompt.prompt(request, responder)), on_receive_request!())
        .on_receive_notification(async move |request: s::CancelNotification, _| Ok(cancel.cancel(&request.session_id)), on_receive_notification!())
        .connect_to(ByteStreams::new(writer.compat_write(), reader.compat()))
        .await
}

impl Desk {
    fn initialize(&self, request: &s::InitializeRequest, responder: Responder<s::InitializeResponse>) -> Result<(), Error> {
        self.with_subagents.store(request.client_capabilities.subagents.is_some(), Ordering::Relaxed);
        let sessions = s::SessionCapabilities::new()
            .list(s::SessionListCapabilities::new())
            .resume(s::SessionResumeCapabilities::new())
            .close(s::SessionCloseCapabilities::new());
        let capabilities = s::AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(s::PromptCapabilities::new().embedded_context(true))
            .session_capabilities(sessions);
        // The version that is spoken here, whichever the client has asked for.
        responder.respond(
            s::InitializeResponse::new(ProtocolVersion::V1)
                .agent_info(s::Implementation::new("greenroom", env!("CARGO_PKG_VERSION")))
                .agent_capabilities(capabilities),
        )
    }

    fn outlet(&self, to: ConnectionTo<Client>) -> Outlet {
        Outlet::new(to, self.room.clone(), self.with_subagents.clone())
    }

    fn new_session(&self, request: &s::NewSessionRequest, responder: Responder<s::NewSessionResponse>, to: ConnectionTo<Client>) {
        let unused = unused(!request.mcp_servers.is_empty());
        let reply = reply(responder, move |id: SessionId| s::NewSessionResponse::new(id.as_str().to_owned()).meta(unused));
        match folder(&request.cwd) {
            Ok(cwd) => {
                let (house, outlet) = (self.house.clone(), self.outlet(to));
                self.house.tasks.spawn(async move { house.make(cwd, outlet, reply).await });
            }
            Err(fault) => reply(Err(fault)),
        }
    }

    fn list(&self, request: s::ListSessionsRequest, responder: Responder<s::ListSessionsResponse>) {
        let house = self.house.clone();
        let reply = reply(responder, |answer| answer);
        self.house.tasks.spawn(async move {
            let listed = list::list(&house.host, &house.options.cwd, request.cwd.as_deref(), request.cursor.as_deref()).await;
            reply(listed.map(|(infos, next)| {
                let infos =
                    infos.into_iter().map(|info| s::SessionInfo::new(info.id.as_str().to_owned(), info.cwd).title(info.title).updated_at(info.updated_at));
                s::ListSessionsResponse::new(infos.collect::<Vec<_>>()).next_cursor(next)
            }));
        });
    }

    fn open(&self, session: &s::SessionId, cwd: &Path, retold: bool, reply: Reply<()>, to: ConnectionTo<Client>) {
        match (known(session), folder(cwd)) {
            (Ok(session), Ok(_)) => self.house.open(&session, self.outlet(to), Ask::Open { replay: retold, reply }),
            (Err(fault), _) | (_, Err(fault)) => reply(Err(fault)),
        }
    }

    fn ask(&self, session: &s::SessionId, ask: Ask) {
        match known(session) {
            Ok(session) => self.house.ask(&session, ask),
            Err(fault) => ask.refuse(fault),
        }
    }

    fn prompt(&self, request: s::PromptRequest, responder: Responder<s::PromptResponse>) {
        let cancellation = responder.cancellation();
        let reply = reply(responder, |stopped| s::PromptResponse::new(reason(stopped)));
        match prompt::text_of(request.prompt) {
            Ok(text) => {
                let cancelled = Box::pin(async move { cancellation.cancelled().await });
                self.ask(&request.session_id, Ask::Prompt { text, reply, cancelled });
            }
            Err(fault) => reply(Err(fault)),
        }
    }

    fn cancel(&self, session: &s::SessionId) {
        if let Ok(session) = known(session) {
            self.house.cancel(&session);
        }
    }
}

fn reply<A, T>(responder: Responder<T>, answer: impl FnOnce(A) -> T + Send + 'static) -> Reply<A>
where
    T: JsonRpcResponse + Send + 'static,
{
    // A client that is gone hears nothing.
    Box::new(move |result: Result<A, Fault>| drop(responder.respond_with_result(result.map(answer).map_err(error))))
}

fn reason(stopped: Stopped) -> s::StopReason {
    match stopped {
        Stopped::EndTurn => s::StopReason::EndTurn,
        Stopped::MaxTokens => s::StopReason::MaxTokens,
        Stopped::MaxSteps => s::StopReason::MaxTurnRequests,
        Stopped::Refusal => s::StopReason::Refusal,
        Stopped::Cancelled => s::StopReason::Cancelled,
    }
}

fn error(fault: Fault) -> Error {
    let number = match fault.kind {
        Kind::Params => s::ErrorCode::InvalidParams,
        Kind::NotFound => s::ErrorCode::ResourceNotFound,
        Kind::Failed => s::ErrorCode::InternalError,
    };
    s::Error::new(number.into(), fault.message).data(Value::Object(fault.data)).into()
}

fn known(session: &s::SessionId) -> Result<SessionId, Fault> {
    SessionId::new(&*session.0).map_err(|error| Fault::params(error.code(), error.to_string()).fact("sessionId", &*session.0))
}

fn folder(cwd: &Path) -> Result<String, Fault> {
    match cwd.to_str() {
        Some(text) if cwd.is_absolute() => Ok(text.to_owned()),
        _ => Err(Fault::params("INVALID_CWD", format!("the folder {:?} is not absolute", cwd.to_string_lossy()))),
    }
}

/// What of a request is accepted and not used: agents of a program have the tools that the program gives them.
fn unused(mcp_servers: bool) -> Option<s::Meta> {
    mcp_servers.then(|| {
        tracing::warn!("the client's MCP servers are not used: agents have the tools that their program gives them");
        Map::from_iter([("greenroom/unused".to_owned(), json!(["mcpServers"]))])
    })
}
