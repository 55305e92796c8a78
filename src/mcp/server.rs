//! The server, from its store to its end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use greenroom_actors::{
    Host, RootHandle, Turn, TurnEnd,
    error::ActivateError,
    host::{NewRoot, RootError},
};
use greenroom_session::{id::SessionId, store::StoreError, text::label_from};
use rmcp::ServiceExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::{CLIENT, McpError, Options, desk::Desk, handler::Handler, specs::Agents, transport::Patient};
use crate::{
    agent::{Guards, Stage, cast},
    runtime::Runtime,
    signals::Signals,
    wire::{Ends, Limits, Protocol, serve},
};

/// How long a root is waited for that another process holds: its server may be on its way to its end, or dead and not yet found to be.
const HELD_PATIENCE: Duration = Duration::from_secs(15);
/// How often it is asked for meanwhile.
const HELD_PAUSE: Duration = Duration::from_millis(200);

/// An MCP server whose root is up.
///
/// ```
/// use greenroom::{mcp::{Options, Server}, wire::Limits};
/// # tokio_test::block_on(async {
/// let server = Server::open(Options::new("memory:".parse()?, "my-project".parse()?, "/desk")).await?;
/// server.serve(&b""[..], tokio::io::sink(), Limits::default()).await?; // a client that says nothing
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Server {
    runtime: Runtime,
    desk: Arc<Desk>,
    stage: Option<Arc<Stage>>,
    signals: Signals,
}

impl Server {
    /// Opens the store, making it if there is none, brings the root up, creating it if there is none, and takes up what is left to do below it.
    ///
    /// # Errors
    /// [`McpError::Open`] or [`McpError::Store`] for the store, [`McpError::Root`] if the session of that id has a parent, is damaged, or is held by another process for
    /// longer than 15 seconds, [`McpError::AgentUnknown`] if it is played by an agent that the program does not have, and [`McpError::Bind`] or
    /// [`McpError::Cast`] for the program.
    ///
    /// # Cancel safety
    /// The store and the root may have been made.
    pub async fn open(options: Options) -> Result<Self, McpError> {
        let signals = Signals::new(options.heed_signals);
        let mut builder = Runtime::builder().closure(CLIENT, |_: Turn| async { Ok(TurnEnd::Completed) });
        let mut stage = None;
        let mut agents = Agents::default();
        if let Some(program) = &options.program {
            let bindings = program.bind(&options.sets, &options.cwd)?;
            program.check_globs(&bindings)?;
            let own = Arc::new(Stage { bindings, base_dir: program.base_dir.clone(), guards: Guards::of(&options.store) });
            builder = cast(program, &program.run.root, &own, builder)?.max_live(program.run.max_live).max_depth(program.run.max_depth);
            if let Some(limit) = program.run.inbox_limit {
                builder = builder.inbox_limit(limit as u64);
            }
            stage = Some(own);
            agents = Agents::of(program);
        }
        let url = options.store.clone();
        let store = tokio::task::spawn_blocking(move || url.open()).await.map_err(|error| StoreError::Io(Box::new(error)))??;
        let runtime = builder.start(store).await?;
        let host = runtime.host();
        let begun = async {
            let root = open_root(&host, &options).await?;
            host.recover(Some(&options.root)).await?;
            Ok::<_, McpError>(root)
        };
        match Box::pin(begun).await {
            Ok(root) => Ok(Self { desk: Arc::new(Desk::new(host, root, agents)), runtime, stage, signals }),
            Err(error) => {
                runtime.shutdown().await;
                Err(error)
            }
        }
    }

    /// Serves a client until its end, and settles everything in order. Calls that are under way then have five seconds.
    ///
    /// # Errors
    /// [`McpError::Signalled`]. What a client says that is no message, or comes out of turn, is answered or left out.
    ///
    /// # Cancel safety
    /// What was accepted stays accepted.
    pub async fn serve<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(mut self, input: R, output: W, limits: Limits) -> Result<(), McpError> {
        let ending = CancellationToken::new();
        let library = |ends| speak(ends, self.desk.clone(), ending.clone());
        let mut serving = Box::pin(serve(input, output, Protocol::Mcp, limits, library));
        let mut signalled = None;
        let ((), written) = loop {
            tokio::select! {
                ended = &mut serving => break ended,
                signal = self.signals.next(), if signalled.is_none() => {
                    signalled = Some(signal);
                    self.desk.close();
                    ending.cancel();
                }
            }
        };
        if let Err(error) = written {
            tracing::debug!(%error, "the client has closed the output before its end");
        }
        self.desk.close();
        let result = signalled.map_or(Ok(()), |signal| Err(McpError::Signalled(signal)));
        let result = tokio::select! {
            () = self.runtime.shutdown() => result,
            // Asked twice: what is under way is left to the next server.
            signal = self.signals.next() => Err(McpError::Signalled(signal)),
        };
        if let Some(stage) = &self.stage {
            stage.guards.remove();
        }
        result
    }
}

/// Speaks the protocol until one side has ended.
async fn speak(Ends { reader, writer, room, ended }: Ends, desk: Arc<Desk>, ending: CancellationToken) {
    match Handler::new(desk, room, ended).serve_with_ct(Patient::new(reader, writer), ending).await {
        Ok(service) => match service.waiting().await {
            Ok(reason) => tracing::debug!(?reason, "the client has ended"),
            Err(error) => tracing::error!(%error, "the service has ended"),
        },
        Err(error) => tracing::debug!(%error, "the client has ended before its greeting"),
    }
}

/// Brings the root up, or creates it.
async fn open_root(host: &Host, options: &Options) -> Result<RootHandle, McpError> {
    let root = &options.root;
    let until = Instant::now() + HELD_PATIENCE;
    loop {
        let is_there = host.find(root.as_str(), 1).await?.first() == Some(root);
        let opened = if is_there { host.resume(root).await } else { host.root(new_root(options)).await };
        let error = match opened {
            Ok(root) => return Ok(root),
            // Another server has been quicker.
            Err(RootError::Exists(_)) if !is_there => continue,
            Err(error) => error,
        };
        if !matches!(error, RootError::Activate(ActivateError::Held { .. })) {
            return Err(named(error, root));
        }
        // What it says of itself is asked, since each attempt to take the root over would be told of.
        while host.leases(Some(root)).await?.iter().any(|lease| lease.session == *root && lease.alive) {
            if Instant::now() > until {
                return Err(error.into());
            }
            tokio::time::sleep(HELD_PAUSE).await;
        }
        if Instant::now() > until {
            return Err(error.into());
        }
    }
}

fn new_root(options: &Options) -> NewRoot {
    let label = label_from(options.root.as_str());
    let mut new = NewRoot::new(CLIENT, if label.is_empty() { "a client" } else { label.as_str() });
    new.id = Some(options.root.clone());
    new.opened.program_sha256 = options.program.as_ref().map(|program| program.sha256.clone());
    new
}

fn named(error: RootError, root: &SessionId) -> McpError {
    match error {
        RootError::Activate(ActivateError::AgentUnknown { agent, .. }) => McpError::AgentUnknown { root: root.clone(), agent },
        error => error.into(),
    }
}
