//! One run of a command, from its lock to its last byte.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::guard::Guard;
use super::lock::{self, Patience, RunLock};
use super::tail::Tail;
use super::{CommandError, CommandSpec};

/// How much is read at once.
const PIECE_BYTES: usize = 16 * 1024;

/// The most that a pipe can hold back (`/proc/sys/fs/pipe-max-size`, pipe(7)), and so the most
/// that can still belong to a command which has ended.
const PIPE_BYTES: usize = 1024 * 1024;

/// What a command that ended with status 0 left behind.
///
/// ```
/// use std::time::Duration;
/// use greenroom::command::{CommandOutput, CommandSpec, run};
/// use tokio_util::sync::CancellationToken;
/// # tokio_test::block_on(async {
/// # let folder = tempfile::tempdir()?;
/// # let lock = folder.path().join("lock");
/// let spec = CommandSpec::new(["sh", "-c", "cat; echo done >&2"], "/", Duration::from_secs(30));
/// let CommandOutput { stdout, stderr } = run(&spec, b"hello", &lock, CancellationToken::new()).await?;
/// assert_eq!(stdout, b"hello");
/// assert_eq!(stderr.trim_end(), "done");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// The last 4 KiB of its standard error, escaped for a terminal.
    pub stderr: String,
}

/// Runs a command once and returns what it wrote.
///
/// `input` is its standard input, which it need not read. `lock` is a file that no two runs hold
/// at the same time; it is created, its folder too, and belongs to this module alone. It is removed at the
/// end, unless a process that left the group still holds it. When this
/// returns, the command and all that is left of its process group have been killed, however it
/// ended; so a child that keeps the standard output open holds up nothing.
///
/// Needs a Tokio runtime with I/O and time enabled.
///
/// # Errors
///
/// `Missing` if there is no such program; `StillRunning` if another run holds the lock for longer than the command's
/// own time (10 s at least);
/// `TimedOut` and `TooLarge` if the command exceeded its bounds; `Failed` if it ended by a signal
/// or with a status other than 0; `Cancelled` if `cancel` was; `Io` for the rest.
///
/// # Cancel safety
///
/// Dropping the future kills the command and its group.
pub async fn run(spec: &CommandSpec, input: &[u8], lock: &Path, cancel: CancellationToken) -> Result<CommandOutput, CommandError> {
    // A run that still lives may take as long as its own bound; giving up earlier would make a failure of what is only not over.
    run_waiting(spec, input, lock, cancel, spec.timeout.max(lock::WAIT)).await
}

/// Runs a command with a bound of its own on waiting for the lock.
pub(super) async fn run_waiting(
    spec: &CommandSpec,
    input: &[u8],
    lock: &Path,
    cancel: CancellationToken,
    lock_wait: Duration,
) -> Result<CommandOutput, CommandError> {
    if cancel.is_cancelled() {
        return Err(CommandError::Cancelled);
    }
    let held = RunLock::acquire(lock, &mut Patience::new(lock_wait, &cancel)).await?;
    run_held(spec, input, held, cancel).await
}

/// Runs a command as [`run`] does, under a lock that is taken already.
///
/// # Errors
/// As [`run`], but for `StillRunning`.
///
/// # Cancel safety
///
/// Dropping the future kills the command and its group.
pub(crate) async fn run_held(spec: &CommandSpec, input: &[u8], held: RunLock, cancel: CancellationToken) -> Result<CommandOutput, CommandError> {
    let lock = held.path().to_owned();
    let (owned_spec, request) = (spec.clone(), input.to_vec());
    // Starting a process takes a millisecond in which a thread of the runtime would serve no actor.
    let launched = blocking(move || Guard::launch(&owned_spec, &request, held)).await?;
    if launched.is_err() {
        lock::remove(&lock, None).await;
    }
    let (mut guard, mut child) = launched?;
    let mut capture = Capture::of(&mut child, spec.max_stdout_bytes);
    let ending = capture.watch(&mut guard, &mut child, spec.timeout, &cancel).await;
    match ending {
        Ok(Ending::Exited(_)) => guard.kill(),
        Ok(_) | Err(_) => guard.sweep().await,
    }
    let drained = capture.drain();
    guard.end(child).await;

    drained.map_err(CommandError::io("read the answer"))?;
    let full = capture.is_full();
    let (stdout, stderr) = (capture.stdout, capture.tail.into_text());
    let too_large = CommandError::TooLarge { limit_bytes: spec.max_stdout_bytes };
    match ending? {
        Ending::Cancelled => Err(CommandError::Cancelled),
        Ending::TimedOut => Err(CommandError::TimedOut { timeout: spec.timeout, stderr }),
        Ending::Full => Err(too_large),
        Ending::Exited(_) if full => Err(too_large),
        Ending::Exited(status) if !status.success() => Err(CommandError::Failed { status, stderr }),
        Ending::Exited(_) => Ok(CommandOutput { stdout, stderr }),
    }
}

/// Runs blocking work on a thread made for it.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, CommandError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        if error.is_cancelled() {
            return CommandError::Cancelled;
        }
        CommandError::io("run the blocking part")(io::Error::other(error))
    })
}

/// Why the watching of a command stopped.
enum Ending {
    Exited(ExitStatus),
    Full,
    TimedOut,
    Cancelled,
}

/// What a command has written so far.
struct Capture {
    out: Option<ChildStdout>,
    err: Option<ChildStderr>,
    stdout: Vec<u8>,
    tail: Tail,
    limit: usize,
}

impl Capture {
    fn of(child: &mut Child, limit: usize) -> Self {
        Self { out: child.stdout.take(), err: child.stderr.take(), stdout: Vec::new(), tail: Tail::default(), limit }
    }

    /// Reads until the command ends or has to be ended.
    async fn watch(&mut self, guard: &mut Guard, child: &mut Child, timeout: Duration, cancel: &CancellationToken) -> Result<Ending, CommandError> {
        let deadline = sleep(timeout);
        tokio::pin!(deadline);
        let mut out_piece = vec![0; PIECE_BYTES];
        let mut err_piece = vec![0; PIECE_BYTES];
        let mut guarded = true;
        loop {
            // In this order, so that a flood of output hides neither the end nor the bounds.
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Ok(Ending::Cancelled),
                () = &mut deadline => return Ok(Ending::TimedOut),
                status = child.wait() => {
                    let status = status.map_err(CommandError::io("wait for the command"))?;
                    return Ok(Ending::Exited(status));
                }
                // A command may have killed its own group, guard included. None may run without
                // one, so what is left of it goes too, and how it ended is told as usual.
                () = guard.lost(), if guarded => {
                    guarded = false;
                    guard.kill();
                }
                length = read_some(&mut self.out, &mut out_piece) => {
                    let length = length.map_err(CommandError::io("read the answer"))?;
                    self.keep(out_piece.get(..length).unwrap_or_default());
                    if self.is_full() {
                        return Ok(Ending::Full);
                    }
                }
                length = read_some(&mut self.err, &mut err_piece) => {
                    let length = length.map_err(CommandError::io("read the standard error"))?;
                    self.tail.push(err_piece.get(..length).unwrap_or_default());
                }
            }
        }
    }

    /// Takes what the pipes still hold, without waiting for their end.
    ///
    /// A process that escaped the group may keep them open for ever. All that the command itself
    /// wrote is in them by the time it has ended, and one look after another at an empty pipe is
    /// exact where a pause would be a guess.
    fn drain(&mut self) -> io::Result<()> {
        if let Some(pipe) = self.out.take() {
            drain_pipe(&pipe.into_owned_fd()?, |piece| {
                self.keep(piece);
                !self.is_full()
            })?;
        }
        if let Some(pipe) = self.err.take() {
            drain_pipe(&pipe.into_owned_fd()?, |piece| {
                self.tail.push(piece);
                true
            })?;
        }
        Ok(())
    }

    /// Appends to the answer; one byte beyond the limit is kept as the sign that there was more.
    fn keep(&mut self, piece: &[u8]) {
        let room = self.limit.saturating_add(1).saturating_sub(self.stdout.len());
        let piece = piece.get(..room).unwrap_or(piece);
        self.stdout.extend_from_slice(piece);
    }

    fn is_full(&self) -> bool {
        self.stdout.len() > self.limit
    }
}

/// Reads a piece; never resolves once the stream has ended.
async fn read_some(stream: &mut Option<impl AsyncRead + Unpin>, piece: &mut [u8]) -> io::Result<usize> {
    let Some(open) = stream else {
        return std::future::pending().await;
    };
    let length = open.read(piece).await?;
    if length == 0 {
        *stream = None;
    }
    Ok(length)
}

/// Feeds what a pipe holds to `sink` until that wants no more.
fn drain_pipe(pipe: &OwnedFd, mut sink: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    fcntl_setfl(pipe, OFlags::NONBLOCK)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut read = 0;
    while read < PIPE_BYTES {
        match rustix::io::read(pipe, &mut piece) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(length) if sink(piece.get(..length).unwrap_or_default()) => read += length,
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
