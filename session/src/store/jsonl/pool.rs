//! A few threads that wait for the disk side by side, since it does several syncs in little more than the time of one.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
};

/// Most syncs under way at once, that of the caller among them.
const MOST: usize = 16;

type Task = Box<dyn FnOnce() + Send>;

/// Runs tasks side by side. Its threads are started when there is work for them and end with it.
#[derive(Debug, Default)]
pub(super) struct Pool {
    queue: Arc<Queue>,
    threads: usize,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    news: Condvar,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    ended: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Task> {
        self.state().tasks.pop_front()
    }

    fn work(&self) {
        loop {
            let mut state = self.state();
            let task = loop {
                if let Some(task) = state.tasks.pop_front() {
                    break task;
                }
                if state.ended {
                    return;
                }
                state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            task();
        }
    }
}

impl Pool {
    /// Runs tasks and returns what each gave, in order; `None` for one that panicked.
    pub(super) fn run<T: Send + 'static>(&mut self, tasks: Vec<Box<dyn FnOnce() -> T + Send>>) -> Vec<Option<T>> {
        if tasks.len() <= 1 {
            return tasks.into_iter().map(|task| Some(task())).collect();
        }
        self.grow(tasks.len().min(MOST) - 1);
        let mut results: Vec<Option<T>> = tasks.iter().map(|_| None).collect();
        let (sender, receiver) = mpsc::channel();
        {
            let mut state = self.queue.state();
            for (number, task) in tasks.into_iter().enumerate() {
                let sender = sender.clone();
                state.tasks.push_back(Box::new(move || drop(sender.send((number, task())))));
            }
        }
        drop(sender);
        self.queue.news.notify_all();
        // The caller works too: whatever threads there are, the work is done.
        while let Some(task) = self.queue.next() {
            task();
        }
        for (number, result) in receiver {
            if let Some(slot) = results.get_mut(number) {
                *slot = Some(result);
            }
        }
        results
    }

    fn grow(&mut self, wanted: usize) {
        while self.threads < wanted {
            let queue = self.queue.clone();
            let started: io::Result<_> = thread::Builder::new().name("greenroom-sync".into()).spawn(move || queue.work());
            if let Err(error) = started {
                tracing::debug!(%error, "a thread that waits for the disk could not be started");
                return;
            }
            self.threads += 1;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue.state().ended = true;
        self.queue.news.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn tasks_run_side_by_side_and_answer_in_order() {
        let mut pool = Pool::default();
        for count in [0, 1, 2, MOST, 3] {
            // Each waits until all are under way.
            let barrier = Arc::new(Barrier::new(count));
            let tasks = (0..count).map(|n| {
                let barrier = barrier.clone();
                Box::new(move || {
                    barrier.wait();
                    n
                }) as Box<dyn FnOnce() -> usize + Send>
            });
            assert_eq!(pool.run(tasks.collect()), (0..count).map(Some).collect::<Vec<_>>());
        }
        let many: Vec<Box<dyn FnOnce() -> usize + Send>> = (0..100_usize).map(|n| Box::new(move || n) as _).collect();
        assert_eq!(pool.run(many).len(), 100);
        assert_eq!(pool.threads, MOST - 1);
    }
}
