//! The prompts of one session that wait for their answer.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use greenroom_session::id::MessageId;
use tokio::sync::Notify;
use tokio_util::sync::DropGuard;

use super::fault::Fault;

/// What answers a request. Dropped, the request is answered with an error.
pub(super) type Reply<T> = Box<dyn FnOnce(Result<T, Fault>) + Send>;

/// How a prompt's turn ended, if it was no failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    EndTurn,
    MaxTokens,
    MaxSteps,
    Refusal,
    Cancelled,
}

/// A prompt that waits.
pub(super) struct Waiting {
    pub(super) reply: Reply<Stopped>,
    /// Ends whoever listens for the cancelling of this request.
    pub(super) listening: DropGuard,
}

/// The prompts of one session that wait, by their messages.
#[derive(Default)]
pub(super) struct Prompts {
    waiting: Mutex<HashMap<MessageId, Waiting>>,
    changed: Notify,
    answered: Notify,
}

impl Prompts {
    fn lock(&self) -> MutexGuard<'_, HashMap<MessageId, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one, before it is accepted.
    pub(super) fn add(&self, message: MessageId, waiting: Waiting) {
        self.lock().insert(message, waiting);
        self.changed.notify_one();
    }

    pub(super) fn has(&self, message: &MessageId) -> bool {
        self.lock().contains_key(message)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Answers one, if it waits. Returns whether it did.
    pub(super) fn answer(&self, message: &MessageId, outcome: Result<Stopped, Fault>) -> bool {
        let Some(Waiting { reply, listening }) = self.lock().remove(message) else { return false };
        drop(listening);
        reply(outcome);
        self.answered.notify_waiters();
        true
    }

    /// Answers all.
    pub(super) fn fail(&self, fault: &Fault) {
        let waiting: Vec<_> = self.lock().drain().collect();
        for (message, Waiting { reply, .. }) in waiting {
            reply(Err(fault.clone().fact("messageId", message.as_str())));
        }
        self.answered.notify_waiters();
    }

    /// Waits until all are answered.
    pub(super) async fn none_left(&self) {
        loop {
            let answered = self.answered.notified();
            if self.is_empty() {
                return;
            }
            answered.await;
        }
    }

    /// Has whoever follows the session look at its log again.
    pub(super) fn nudge(&self) {
        self.changed.notify_one();
    }

    /// Waits until something has changed since the last time.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
