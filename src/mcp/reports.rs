//! What subagents have reported and the client has not been told.

use std::collections::{HashMap, VecDeque};

use greenroom_actors::{Host, error::QueryError};
use greenroom_session::{
    event::Body,
    id::{Seq, SessionId},
    message::{Source, text_of},
};
use tokio_util::sync::CancellationToken;

use super::read_log::cut;

/// Events that are read at once.
const PAGE: usize = 16;
/// Reports of one subagent that are kept, the newest.
const KEPT: usize = 20;
/// Bytes that are kept of each.
const KEPT_BYTES: usize = 16 << 10;

/// The reports that have joined the root's log and were in no answer yet.
#[derive(Debug, Default)]
pub(super) struct Reports {
    next: Seq,
    untold: HashMap<SessionId, VecDeque<String>>,
}

impl Reports {
    /// Reads on in the root's log.
    pub(super) async fn read(&mut self, host: &Host, root: &SessionId, cancel: &CancellationToken) -> Result<(), QueryError> {
        loop {
            let events = host.read_events(root, self.next, PAGE, cancel.clone()).await?;
            let Some(last) = events.last() else { return Ok(()) };
            self.next = last.seq + 1;
            for event in &events {
                if let Body::UserMessage(message) = &event.body
                    && let Source::SubagentReport { session } = &message.source
                {
                    let mut text = text_of(&message.content);
                    cut(&mut text, KEPT_BYTES);
                    let untold = self.untold.entry(session.clone()).or_default();
                    if untold.len() == KEPT {
                        untold.pop_front();
                    }
                    untold.push_back(text);
                }
            }
        }
    }

    /// Where the root's log ended when it was last read.
    pub(super) fn position(&self) -> Seq {
        self.next
    }

    /// Takes what one of them has reported.
    pub(super) fn take(&mut self, subagent: &SessionId) -> VecDeque<String> {
        self.untold.remove(subagent).unwrap_or_default()
    }
}
