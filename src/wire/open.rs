//! Requests that are read and not answered.

use std::{
    collections::HashSet,
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
    ids: HashSet<RequestId>,
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
        state.count += usize::from(state.ids.insert(id.clone()));
        true
    }

    /// Tells whether a request of this id is open.
    pub(super) fn has(&self, id: &RequestId) -> bool {
        self.state().ids.contains(id)
    }

    /// A request is answered, or will not be: its id is free, and its place is by [`Open::leave`]. `false`: there is no such request.
    pub(super) fn forget(&self, id: &RequestId) -> bool {
        self.state().ids.remove(id)
    }

    /// The place of a request is free. Which one it was is not asked: an answer may have no id.
    pub(super) fn leave(&self) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_frees_one_place() {
        let open = Open::new(2);
        let [one, two] = [1, 2].map(RequestId::Number);
        assert!(open.enter(&one) && open.enter(&two) && !open.enter(&RequestId::Number(3)));
        assert!(open.forget(&one) && !open.forget(&one) && !open.has(&one) && open.has(&two));
        assert_eq!(open.count(), 2);
        open.leave();
        assert_eq!(open.count(), 1);
        // One without an id was somebody's.
        open.leave();
        open.leave();
        assert_eq!(open.count(), 0);
    }
}
