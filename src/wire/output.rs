//! From the library to the client.

use std::io;

use tokio::{
    io::{AsyncWrite, AsyncWriteExt, DuplexStream},
    sync::mpsc,
};

use super::{Frame, Limits, Line, LineReader, Refusal, Room, open::Open};

/// The half of the wire that writes, and the only one that does: lines go out whole.
pub(super) struct Output<W> {
    pub(super) to: W,
    pub(super) lines: DuplexStream,
    pub(super) refusals: mpsc::Receiver<Refusal>,
    pub(super) open: Open,
    pub(super) room: Room,
}

/// What a line is that goes out.
enum Out {
    /// The answer to a request that is open.
    Answer,
    Notification,
    Other,
}

impl<W: AsyncWrite + Unpin> Output<W> {
    /// Writes until nobody says anything any more.
    pub(super) async fn run(self) -> io::Result<()> {
        let Self { to: mut output, lines, mut refusals, open, room } = self;
        let anything = Limits { values: usize::MAX, ..Limits::default() };
        let mut lines = LineReader::new(lines, usize::MAX);
        let (mut says, mut refuses) = (true, true);
        while says || refuses {
            let mut line = tokio::select! {
                line = lines.next(), if says => match line? {
                    Some(Line::Whole(line)) => line,
                    Some(Line::TooLong { .. }) => continue,
                    None => {
                        says = false;
                        continue;
                    }
                },
                refusal = refusals.recv(), if refuses => {
                    if let Some(refusal) = refusal {
                        write(&mut output, refusal.line().as_bytes()).await?;
                    } else {
                        refuses = false;
                    }
                    continue;
                }
            };
            let out = match Frame::read(&line, &anything) {
                // Whoever reads the answer may use the id again at once. The place is free only when the answer has been written.
                Ok(Frame::Answer { id }) if id.as_ref().is_none_or(|id| open.forget(id)) => Out::Answer,
                Ok(Frame::Notification { .. }) => Out::Notification,
                Ok(_) => Out::Other,
                Err(refusal) => {
                    tracing::error!(%refusal, "what is no message was not sent");
                    continue;
                }
            };
            line.push(b'\n');
            output.write_all(&line).await?;
            output.flush().await?;
            match out {
                Out::Answer => open.leave(),
                Out::Other => {}
                Out::Notification => room.give_back(),
            }
        }
        Ok(())
    }
}

async fn write<W: AsyncWrite + Unpin>(output: &mut W, line: &[u8]) -> io::Result<()> {
    output.write_all(line).await?;
    output.write_all(b"\n").await?;
    output.flush().await
}
