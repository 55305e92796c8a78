//! From the client to the library.

use std::collections::{HashSet, VecDeque};

use tokio::{
    io::{AsyncRead, AsyncWriteExt, DuplexStream},
    sync::mpsc,
};

use super::{Frame, Limits, Line, LineReader, Protocol, Refusal, RequestId, open::Open};

/// The half of the wire that reads.
pub(super) struct Input<R> {
    pub(super) from: LineReader<R>,
    pub(super) feed: DuplexStream,
    pub(super) open: Open,
    pub(super) refuse: mpsc::Sender<Refusal>,
    pub(super) protocol: Protocol,
    pub(super) limits: Limits,
}

/// The library or the client has gone.
struct Gone;

/// A request that waits for a place.
struct Held {
    id: RequestId,
    line: Vec<u8>,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Held>,
    ids: HashSet<RequestId>,
    bytes: usize,
}

impl Queue {
    fn push(&mut self, held: Held) {
        self.bytes += held.line.len();
        self.ids.insert(held.id.clone());
        self.requests.push_back(held);
    }

    fn pop(&mut self) -> Option<Held> {
        let held = self.requests.pop_front()?;
        self.bytes -= held.line.len();
        self.ids.remove(&held.id);
        Some(held)
    }

    fn has(&self, id: &RequestId) -> bool {
        self.ids.contains(id)
    }

    /// Takes out the request of an id.
    fn remove(&mut self, id: &RequestId) -> bool {
        if !self.ids.remove(id) {
            return false;
        }
        let Some(at) = self.requests.iter().position(|held| held.id == *id) else { return false };
        self.bytes -= self.requests.remove(at).map_or(0, |held| held.line.len());
        true
    }
}

impl<R: AsyncRead + Unpin> Input<R> {
    /// Reads until the client's end, or the library's. Requests that still wait for a place then are given to the library first.
    pub(super) async fn run(mut self) {
        let mut queue = Queue::default();
        let mut is_open = true;
        while is_open || !queue.requests.is_empty() {
            let passed = tokio::select! {
                biased;
                () = self.open.place(), if !queue.requests.is_empty() => self.next_of(&mut queue).await,
                line = self.from.next(), if is_open && queue.bytes < self.limits.held => match line {
                    Ok(Some(line)) => self.take(line, &mut queue).await,
                    Ok(None) => {
                        is_open = false;
                        Ok(())
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the client's requests cannot be read any more");
                        is_open = false;
                        Ok(())
                    }
                },
            };
            if passed.is_err() {
                return;
            }
        }
    }

    async fn next_of(&mut self, queue: &mut Queue) -> Result<(), Gone> {
        let Some(held) = queue.pop() else { return Ok(()) };
        self.open.enter(&held.id);
        self.pass(&held.line).await
    }

    async fn take(&mut self, line: Line, queue: &mut Queue) -> Result<(), Gone> {
        let line = match line {
            Line::Whole(line) => line,
            Line::TooLong { id } => {
                let id = id.and_then(|id| RequestId::parse(&id));
                return self.refuse(Refusal::invalid(id, format!("the line is longer than the limit of {} bytes", self.limits.line))).await;
            }
        };
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let frame = Frame::read(&line, &self.limits).and_then(|frame| frame.check(self.protocol).map(|()| frame));
        match frame {
            Err(refusal) => self.refuse(refusal).await,
            Ok(Frame::Request { id, .. }) if self.open.has(&id) || queue.has(&id) => {
                // A library forgets one of the two. Under its id this would pass for the answer to the other.
                self.refuse(Refusal::invalid(None, "the id is that of a request that is not answered yet")).await
            }
            Ok(Frame::Request { id, .. }) => {
                if queue.requests.is_empty() && self.open.enter(&id) {
                    return self.pass(&line).await;
                }
                queue.push(Held { id, line });
                Ok(())
            }
            Ok(frame) => {
                if let Some(id) = frame.cancels(self.protocol) {
                    if queue.remove(&id) {
                        // The library has never heard of it.
                        return match self.protocol {
                            Protocol::Acp => self.refuse(Refusal::cancelled(id)).await,
                            Protocol::Mcp => Ok(()),
                        };
                    }
                    if self.protocol == Protocol::Mcp && self.open.forget(&id) {
                        self.open.leave();
                    }
                }
                self.pass(&line).await
            }
        }
    }

    async fn pass(&mut self, line: &[u8]) -> Result<(), Gone> {
        self.feed.write_all(line).await.map_err(|_| Gone)?;
        self.feed.write_all(b"\n").await.map_err(|_| Gone)
    }

    async fn refuse(&mut self, refusal: Refusal) -> Result<(), Gone> {
        self.refuse.send(refusal).await.map_err(|_| Gone)
    }
}
