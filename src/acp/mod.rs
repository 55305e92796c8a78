//! Playing a program for an editor: an agent of the [Agent Client Protocol](https://agentclientprotocol.com) over a pair of streams.
//!
//! A session of the protocol is a root. What a client is told of it is what its log says, read on as fast as the client reads, and in between what is heard of
//! answers under way. A prompt is accepted into the root's inbox before anything runs, so nothing of it is lost with the client or with the process.
//! `docs/acp.md` says what is sent when.
//!
//! - `connection`: the requests and notifications, and the only place that knows the SDK beside `outlet` and `update`.
//! - `house`: what one client has open. `seat`: one session that it has open. `follower`: from the session's log to updates and answers.
//! - `prompts`: who waits for an answer. `streamed`: what of an answer was sent while it was said. `family`: who is below. `update`: what a client is told.
//! - `list`: the sessions of the store. `recovery`: what was left to do. `prompt`: what a client says. `fault`: why something was not done.

mod connection;
mod family;
mod fault;
mod follower;
mod house;
mod list;
mod options;
mod outlet;
mod play;
mod prompt;
mod prompts;
mod recovery;
mod seat;
mod streamed;
mod update;

use std::sync::Arc;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

pub use options::Options;
pub use play::play;

use crate::{
    runtime::Runtime,
    wire::{self, Limits, Protocol},
};

/// Why serving a client came to an end that the client did not bring about.
///
/// ```
/// use greenroom::acp::AcpError;
/// let error = AcpError::Protocol("the library has ended".into());
/// assert_eq!(error.code(), "ACP_FAILED");
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AcpError {
    /// The library that speaks the protocol gave up.
    #[error("the connection failed: {0}")]
    Protocol(String),
    /// The program cannot be played, or a signal ended it.
    #[error(transparent)]
    Program(#[from] crate::run::RunError),
}

impl AcpError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Protocol(_) => "ACP_FAILED",
            Self::Program(error) => error.code(),
        }
    }
}

/// Serves a client until it closes its end, and lets go of every session that it had open; [`Runtime::shutdown`] is the caller's.
///
/// The runtime needs its query service. What was accepted stays accepted and goes on with the next start.
///
/// ```
/// use greenroom::{Runtime, Turn, TurnEnd, acp};
/// use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
/// # tokio_test::block_on(async {
/// let runtime = Runtime::builder()
///     .closure("echo", |turn: Turn| async move {
///         turn.say(turn.text())?;
///         Ok(TurnEnd::Completed)
///     })
///     .open("memory:").await?;
/// let (client, agent) = tokio::io::duplex(4096);
/// let (reader, writer) = tokio::io::split(agent);
/// let talk = async {
///     let (answers, mut requests) = tokio::io::split(client);
///     let mut answers = BufReader::new(answers).lines();
///     requests.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}\n").await?;
///     let answer = answers.next_line().await?;
///     requests.shutdown().await?;
///     Ok::<_, std::io::Error>(answer)
/// };
/// let (served, answer) = tokio::join!(acp::serve(&runtime, acp::Options::new("echo"), reader, writer), talk);
/// served?;
/// assert!(answer?.unwrap_or_default().contains(r#""name":"greenroom""#));
/// runtime.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// # Errors
/// [`AcpError::Protocol`] if the library that speaks the protocol gave up. A client that vanishes is no error.
///
/// # Cancel safety
/// Sessions that the client had open may stay live until the runtime is shut down. What was accepted stays accepted.
pub async fn serve<R, W>(runtime: &Runtime, options: Options, reader: R, writer: W) -> Result<(), AcpError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let house = Arc::new(house::House::new(runtime.host(), options));
    let (recovering, over) = (house.clone(), house.over.clone());
    house.tasks.spawn(async move {
        tokio::select! {
            () = over.cancelled() => {}
            () = recovery::recover(recovering) => {}
        }
    });
    let library = |ends| async {
        let served = connection::serve(house.clone(), ends).await;
        house.end().await;
        served
    };
    let (served, written) = wire::serve(reader, writer, Protocol::Acp, Limits::default(), library).await;
    match (served, written) {
        // A client that does not listen any more has gone.
        (_, Err(error)) => tracing::info!(%error, "the client is gone"),
        (Err(error), Ok(())) => return Err(AcpError::Protocol(error.to_string())),
        (Ok(()), Ok(())) => {}
    }
    Ok(())
}
