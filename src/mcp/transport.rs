//! What the library reads and writes.

use std::future::Future;

use rmcp::{
    RoleServer,
    model::{JsonRpcMessage, ServerResult},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{Transport, async_rw::AsyncRwTransport},
};
use tokio::io::DuplexStream;

/// A transport that leaves out what means nothing before the greeting: the library would end over a notification or an answer that comes before any request it can begin with.
pub(super) struct Patient {
    inner: AsyncRwTransport<RoleServer, DuplexStream, DuplexStream>,
    phase: Phase,
}

#[derive(PartialEq, Eq)]
enum Phase {
    Greeting,
    /// The library has a request. It refuses it, or has begun with it.
    Asked,
    Begun,
}

impl Patient {
    pub(super) fn new(reader: DuplexStream, writer: DuplexStream) -> Self {
        // The wire has looked at the length of each line.
        Self { inner: AsyncRwTransport::new_server(reader, writer).with_max_line_length(usize::MAX), phase: Phase::Greeting }
    }
}

impl Transport<RoleServer> for Patient {
    type Error = std::io::Error;

    fn send(&mut self, item: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if self.phase != Phase::Begun {
            let greets = matches!(&item, JsonRpcMessage::Response(response) if matches!(response.result, ServerResult::InitializeResult(_)));
            self.phase = if greets { Phase::Begun } else { Phase::Greeting };
        }
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        if self.phase == Phase::Asked {
            self.phase = Phase::Begun;
        }
        loop {
            let message = self.inner.receive().await?;
            match (&self.phase, &message) {
                (Phase::Begun, _) => return Some(message),
                (_, JsonRpcMessage::Request(_)) => {
                    self.phase = Phase::Asked;
                    return Some(message);
                }
                _ => tracing::debug!("what came before the greeting and is no request was left out"),
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}
