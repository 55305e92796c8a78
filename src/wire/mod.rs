//! Stdio between a client and the library that speaks its protocol, with bounds: what the ACP agent and the MCP server read and write.
//!
//! A client is a program that nobody here wrote, and the libraries behind the protocols hold whatever it sends. [`serve`] stands between them: the library sees only whole lines of
//! valid JSON-RPC in UTF-8, none longer than [`Limits::line`], and everything else is answered here, shortly, and never repeated. At most [`Limits::open`] requests are read and not
//! answered, each under an id of its own. Further ones wait here, in [`Limits::held`] bytes, while notifications overtake them, so that a cancellation always arrives; then reading stops, and the client's writes
//! block. What the library writes goes out as whole lines of one writer, and the end waits until it has been written.
//!
//! ```
//! use greenroom::wire::{Ends, Limits, Protocol, serve};
//! use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
//! # tokio_test::block_on(async {
//! let input: &[u8] = b"hello\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n{\"jsonrpc\":\"2.0\",\"id\":2";
//! let (output, mut client) = tokio::io::duplex(4096);
//! let library = |Ends { reader, mut writer, .. }: Ends| async move {
//!     let mut lines = BufReader::new(reader).lines();
//!     let mut seen = 0;
//!     while let Some(_request) = lines.next_line().await.unwrap() {
//!         writer.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n").await.unwrap();
//!         seen += 1;
//!     }
//!     seen
//! };
//! assert_eq!(serve(input, output, Protocol::Mcp, Limits::default(), library).await.0, 1); // neither what is no JSON nor the cut line
//! let mut said = String::new();
//! client.read_to_string(&mut said).await?;
//! assert_eq!(said.lines().count(), 2);
//! assert!(said.contains(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the line is not JSON: expected value at column 1"}}"#));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

mod frame;
mod input;
mod line;
mod open;
mod output;
mod refusal;
mod room;
mod skipped;
#[cfg(test)]
mod tests;

use std::{future::Future, io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, duplex},
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

pub use frame::{Frame, RequestId};
pub use line::{Line, LineReader};
pub use refusal::Refusal;
pub use room::Room;

use self::{input::Input, open::Open, output::Output};

/// Bytes of each pipe between the library and the wire.
const PIPE: usize = 64 << 10;
/// Refusals that wait for the output; whoever refuses one more waits.
const REFUSALS: usize = 16;

/// Whose messages these are: what cancels a request, and whether a cancelled request is answered.
///
/// ```
/// use greenroom::wire::{Frame, Limits, Protocol, RequestId};
/// let line = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
/// assert_eq!(Frame::read(line, &Limits::default())?.cancels(Protocol::Mcp), Some(RequestId::Number(7)));
/// assert_eq!(Frame::read(line, &Limits::default())?.cancels(Protocol::Acp), None);
/// # Ok::<(), greenroom::wire::Refusal>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// The Agent Client Protocol: `$/cancel_request`, and every request is answered.
    Acp,
    /// The Model Context Protocol: `notifications/cancelled`, and what is cancelled is not answered.
    Mcp,
}

impl Protocol {
    const fn cancel_method(self) -> &'static str {
        match self {
            Self::Acp => "$/cancel_request",
            Self::Mcp => "notifications/cancelled",
        }
    }
}

/// The bounds of a wire.
///
/// ```
/// use greenroom::wire::Limits;
/// let limits = Limits { open: 16, ..Limits::default() };
/// assert_eq!((limits.line, limits.open), (32 << 20, 16));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one line without its line feed. 32 MiB, so that a message of 16 MiB passes in most escapings.
    pub line: usize,
    /// Values in one line: each object, array, string, number and so on. 262,144, since a library takes far more memory for many small values than the line has bytes.
    pub values: usize,
    /// Requests that are read and not answered. 256.
    pub open: usize,
    /// Bytes of the requests that wait for one of those to be answered. 1 MiB; a single longer one waits all the same.
    pub held: usize,
    /// Notifications on their way out that [`Room`] has let in. 1,024.
    pub notifications: usize,
    /// How long the end waits for a client that does not read. 5 s.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line: 32 << 20, values: 1 << 18, open: 256, held: 1 << 20, notifications: 1_024, drain: Duration::from_secs(5) }
    }
}

/// What the library gets.
///
/// ```
/// use greenroom::wire::{Ends, Limits, Protocol, serve};
/// # tokio_test::block_on(async {
/// let library = |Ends { ended, .. }: Ends| async move { ended.cancelled().await };
/// // A client that has gone already, and one that would take whatever is said.
/// serve(tokio::io::empty(), tokio::io::sink(), Protocol::Acp, Limits::default(), library).await.1?;
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Ends {
    /// Where it reads lines.
    pub reader: DuplexStream,
    /// Where it writes lines. The wire ends once this is dropped.
    pub writer: DuplexStream,
    /// Room for notifications, to be taken before each.
    pub room: Room,
    /// Cancelled once nothing more comes from the client.
    pub ended: CancellationToken,
}

/// Serves a client until the library has ended, and returns what that has returned and how the output ended.
///
/// The library is told of the client's end by the end of its reader, also when it is the output that the client has closed. What it has written by its own end is written out; a client
/// that does not read gets [`Limits::drain`] for it.
///
/// # Cancel safety
/// Dropped, it may leave a line half written.
pub async fn serve<R, W, F, Fut>(input: R, output: W, protocol: Protocol, limits: Limits, library: F) -> (Fut::Output, io::Result<()>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    F: FnOnce(Ends) -> Fut,
    Fut: Future,
{
    let (reader, feed) = duplex(PIPE);
    let (writer, drain) = duplex(PIPE);
    let (refuse, refusals) = mpsc::channel(REFUSALS);
    let room = Room::new(limits.notifications);
    let open = Open::new(limits.open);
    let ended = CancellationToken::new();

    let mut library = Box::pin(library(Ends { reader, writer, room: room.clone(), ended: ended.clone() }));
    let mut out = Box::pin(Output { to: output, lines: drain, refusals, open: open.clone(), room: room.clone() }.run());
    // Dropped, its end of the library's pipe is the library's end of input.
    let mut reading = Some(Box::pin(Input { from: LineReader::new(input, limits.line), feed, open, refuse, protocol, limits }.run()));
    let mut returned = None;
    let mut written = None;
    let mut until = None;
    loop {
        tokio::select! {
            value = &mut library, if returned.is_none() => {
                returned = Some(value);
                reading = None;
                until = Some(Instant::now() + limits.drain);
            }
            () = async { if let Some(reading) = &mut reading { reading.await } }, if reading.is_some() => {
                reading = None;
                ended.cancel();
            }
            end = &mut out, if written.is_none() => {
                written = Some(end);
                reading = None;
                ended.cancel();
                // Nobody writes any more, and whoever waits for room would wait for ever.
                room.close();
            }
            () = async { if let Some(until) = until { sleep_until(until).await } }, if until.is_some() && written.is_none() => {
                written = Some(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")));
            }
        }
        if written.is_some()
            && let Some(value) = returned.take()
        {
            return (value, written.unwrap_or(Ok(())));
        }
    }
}
