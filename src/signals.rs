//! The signals that end a run.

use std::future::pending;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP, taken from the process for as long as it lives.
#[derive(Debug)]
pub(crate) struct Signals(Option<(Signal, Signal, Signal)>);

impl Signals {
    /// Begins to take them, if wanted. Where that is not possible they keep their usual meaning.
    pub(crate) fn new(wanted: bool) -> Self {
        if !wanted {
            return Self(None);
        }
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup())) {
            (Ok(interrupt), Ok(terminate), Ok(hangup)) => Self(Some((interrupt, terminate, hangup))),
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
                tracing::warn!(%error, "signals cannot be taken");
                Self(None)
            }
        }
    }

    /// Waits for the next one and returns its number.
    ///
    /// # Cancel safety
    /// Loses none.
    pub(crate) async fn next(&mut self) -> u8 {
        let Some((interrupt, terminate, hangup)) = &mut self.0 else { return pending().await };
        tokio::select! {
            // Which of several came first is not known; that they are told in one order is what makes each run alike.
            biased;
            Some(()) = interrupt.recv() => 2,
            Some(()) = terminate.recv() => 15,
            Some(()) = hangup.recv() => 1,
            else => pending().await,
        }
    }
}
