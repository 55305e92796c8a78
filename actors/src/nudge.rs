//! A nudge for the runtime while ends are waited for.
//!
//! A worker of a runtime of several threads looks at the clock before it sleeps. One that is blocked instead leaves the others asleep, and no timer fires: also not the one
//! that tells when to give up on whoever blocks. A thread of its own wakes one of them now and then.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use tokio::runtime::{Handle, RuntimeFlavor};

/// How often a worker is woken.
const PERIOD: Duration = Duration::from_millis(20);

/// Wakes a worker of the runtime now and then until it is dropped. Where there is only one thread there is nobody to be woken, and it does nothing.
#[derive(Debug)]
pub(crate) struct Nudge {
    _until_dropped: Option<mpsc::Sender<()>>,
}

impl Nudge {
    pub(crate) fn begin() -> Self {
        let runtime = Handle::try_current().ok().filter(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        let begin = |runtime: Handle| {
            let (sender, dropped) = mpsc::channel::<()>();
            let nudge = move || {
                while dropped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                    runtime.spawn(async {});
                }
            };
            // Without it only what blocks its thread may be waited for longer.
            thread::Builder::new().name("greenroom-nudge".into()).spawn(nudge).ok().map(|_| sender)
        };
        Self { _until_dropped: runtime.and_then(begin) }
    }
}
