//! What one client has open.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use greenroom_actors::{Host, RootHandle, host::NewRoot};
use greenroom_session::{event::RootOpened, id::SessionId, text::label_from};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    fault::{Fault, Kind},
    options::Options,
    outlet::Outlet,
    prompts::Reply,
    seat::{Ask, Seat},
};

/// Sessions that one client may have open at once.
const SEATS: usize = 1_024;

/// What one client has open.
pub(super) struct House {
    pub(super) host: Host,
    pub(super) options: Options,
    /// Everything that was begun for the client.
    pub(super) tasks: TaskTracker,
    /// Cancelled when the client is gone.
    pub(super) over: CancellationToken,
    seats: Mutex<Option<HashMap<SessionId, Place>>>,
}

struct Place {
    asks: UnboundedSender<Ask>,
    /// Whether the last thing that was asked is a cancel that nobody has taken yet: another one would do nothing more.
    cancelling: bool,
}

impl House {
    pub(super) fn new(host: Host, options: Options) -> Self {
        Self { host, options, tasks: TaskTracker::new(), over: CancellationToken::new(), seats: Mutex::new(Some(HashMap::new())) }
    }

    fn seats(&self) -> MutexGuard<'_, Option<HashMap<SessionId, Place>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a root and opens it.
    pub(super) async fn make(self: &Arc<Self>, cwd: String, outlet: Outlet, reply: Reply<SessionId>) {
        if self.seats().as_ref().is_none_or(|seats| seats.len() >= SEATS) {
            return reply(Err(too_many()));
        }
        let opened = RootOpened {
            label: self.options.label_in(&cwd),
            agent: self.options.agent.clone(),
            program_sha256: self.options.program_sha256.clone(),
            vars: self.options.vars.clone(),
            seed: None,
            params: Some(json!({ "cwd": cwd })),
            model: None,
        };
        match self.host.root(NewRoot { id: None, opened, cwd: Some(cwd) }).await {
            Ok(root) => {
                let session = root.id().clone();
                match self.seat(&session, outlet, Some(root)) {
                    Ok(_) => reply(Ok(session)),
                    Err(fault) => reply(Err(fault)),
                }
            }
            Err(error) => reply(Err(Fault::of_root(None, &error))),
        }
    }

    /// Has a session opened, or opened again.
    pub(super) fn open(self: &Arc<Self>, session: &SessionId, outlet: Outlet, ask: Ask) {
        let asks = match self.seat(session, outlet, None) {
            Ok(asks) => asks,
            Err(fault) => return ask.refuse(fault),
        };
        if let Err(refused) = asks.send(ask) {
            refused.0.refuse(Fault::not_open(session.as_str()));
        }
    }

    /// Asks a session that is open; otherwise it is refused.
    pub(super) fn ask(&self, session: &SessionId, ask: Ask) {
        let mut seats = self.seats();
        let refused = match seats.as_mut().and_then(|seats| seats.get_mut(session)) {
            Some(place) => {
                place.cancelling = false;
                place.asks.send(ask).err().map(|refused| refused.0)
            }
            None => Some(ask),
        };
        drop(seats);
        if let Some(refused) = refused {
            refused.refuse(Fault::not_open(session.as_str()));
        }
    }

    /// Asks a session to cancel, unless that is the last thing that it was asked.
    pub(super) fn cancel(&self, session: &SessionId) {
        if let Some(place) = self.seats().as_mut().and_then(|seats| seats.get_mut(session))
            && !std::mem::replace(&mut place.cancelling, true)
        {
            // A seat that has ended has nothing to cancel.
            drop(place.asks.send(Ask::Cancel));
        }
    }

    /// A cancel is about to be done: the next one is another one.
    pub(super) fn takes_cancel(&self, session: &SessionId) {
        if let Some(place) = self.seats().as_mut().and_then(|seats| seats.get_mut(session)) {
            place.cancelling = false;
        }
    }

    /// A session is not open any more.
    pub(super) fn leave(&self, session: &SessionId) {
        if let Some(seats) = self.seats().as_mut() {
            seats.remove(session);
        }
    }

    /// Ends everything: what was asked is taken, nobody is told any more.
    pub(super) async fn end(&self) {
        self.seats().take();
        self.over.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn seat(self: &Arc<Self>, session: &SessionId, outlet: Outlet, made: Option<RootHandle>) -> Result<UnboundedSender<Ask>, Fault> {
        let mut seats = self.seats();
        let seats = seats.as_mut().ok_or_else(Fault::ending)?;
        if let Some(place) = seats.get_mut(session) {
            place.cancelling = false;
            return Ok(place.asks.clone());
        }
        if seats.len() >= SEATS {
            return Err(too_many());
        }
        let (asks, asked) = unbounded_channel();
        let seat = Seat::new(self.clone(), session.clone(), outlet);
        let seat = match made {
            Some(root) => seat.made(root),
            None => seat,
        };
        self.tasks.spawn(seat.serve(asked, asks.downgrade()));
        seats.insert(session.clone(), Place { asks: asks.clone(), cancelling: false });
        Ok(asks)
    }
}

fn too_many() -> Fault {
    Fault::new(Kind::Failed, "BUSY", format!("{SEATS} sessions are open: close one first"))
}

impl Options {
    /// Names a root that is opened for a folder.
    fn label_in(&self, cwd: &str) -> String {
        if let Some(label) = self.label.as_ref().filter(|label| !label.is_empty()) {
            return label_from(label);
        }
        match std::path::Path::new(cwd).file_name() {
            Some(folder) => label_from(&format!("{} in {}", self.agent, folder.to_string_lossy())),
            None => label_from(&self.agent),
        }
    }
}
