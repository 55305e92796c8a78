//! Going behind whoever is ready to run.
//!
//! Tokio's own yield leaves a task with the thread that it was on until that thread looks up. If what runs there next blocks it, which a behaviour may do, the task is
//! stuck with it, and so is everybody who waits for the task. A task that wakes itself stands in a queue from which the other threads may take it.

use std::{future::poll_fn, task::Poll};

/// Lets those run first who are ready.
pub(crate) async fn go_behind() {
    let mut behind = false;
    poll_fn(|context| {
        if std::mem::replace(&mut behind, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
