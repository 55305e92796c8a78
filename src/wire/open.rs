//! Requests that are read and not answered.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::RequestId;

/// The requests that the library has and has not answered.
#[derive(Debug, Clone)]
pub(super) struct Open(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    state: Mutex<State>,
    answered: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// How often each id is open: a client that uses one twice is owed two answers.
    ids: HashMap<RequestId, usize>,
    count: usize,
}

impl Open {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Shared { most, state: Mutex::default(), answered: Notify::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a request, if there is one.
    pub(super) fn enter(&self, id: &RequestId) -> bool {
        let mut state = self.state();
        if state.count >= self.0.most {
            return false;
        }
        state.count += 1;
        *state.ids.entry(id.clone()).or_default() += 1;
        true
    }

    /// A request was answered, or will not be. One that is not open changes nothing.
    pub(super) fn leave(&self, id: &RequestId) {
        let mut state = self.state();
        let Some(times) = state.ids.get_mut(id) else { return };
        *times -= 1;
        if *times == 0 {
            state.ids.remove(id);
        }
        state.count = state.count.saturating_sub(1);
        drop(state);
        self.0.answered.notify_one();
    }

    /// A request was answered without its id: whose place it had is not known, and it is free.
    pub(super) fn forfeit(&self) {
        let mut state = self.state();
        state.count = state.count.saturating_sub(1);
        drop(state);
        self.0.answered.notify_one();
    }

    /// Waits until there may be a place.
    pub(super) async fn place(&self) {
        loop {
            let answered = self.0.answered.notified();
            if self.state().count < self.0.most {
                return;
            }
            answered.await;
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.state().count
    }
}
