//! The Registry: which sessions are live.
//!
//! **Messages.** `Wake` from senders whose receiver is not live, `Ensure` from root handles, `Publish` from hosts, `Started` from its own start tasks, `Settle` and
//! `Ended` from Activations, `WhenChildless` from turns that wait, `WhenQuiet` and `Drain` from the host, `DrainAll` from the Supervisor,
//! `Overdue` and `Fenced` from its own watches.
//! **State.** One entry per session that is starting, live or closing; nothing of a settled one. The published table of live sessions is
//! written here alone. Ownership is derived: a child is owned while both it and its header's parent have an entry. A session that its host plays keeps no
//! parent from settling and counts as quiet; only a shutdown ends it before its parent.
//! **Order.** Its mailbox is the one order in which sessions start, settle and end. A wake that meets a session on its way out
//! waits in the entry and starts the next epoch.
//! **End.** Its Activations are linked to it and end with it; a new generation starts from what is on disk.

mod arrival;
mod departure;
mod drain;
mod entry;
mod foreign;
mod message;
mod state;
mod waits;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock, Weak},
};

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use state::RegistryState;
use waits::Waits;

use crate::{pins::Pins, race::race_point, services::Services};

pub(crate) use message::{Incarnation, RegistryMessage};

/// The actor.
#[derive(Debug)]
pub(crate) struct Registry;

/// What a Registry is made of.
#[derive(Debug)]
pub(crate) struct RegistryArgs {
    pub(crate) services: Arc<OnceLock<Weak<Services>>>,
    pub(crate) pins: Pins,
}

impl Actor for Registry {
    type Msg = RegistryMessage;
    type State = RegistryState;
    type Arguments = RegistryArgs;

    async fn pre_start(&self, _myself: ActorRef<RegistryMessage>, args: RegistryArgs) -> Result<RegistryState, ActorProcessingErr> {
        Ok(RegistryState {
            services: args.services,
            entries: HashMap::new(),
            owned: HashMap::new(),
            refused: HashMap::new(),
            held: HashSet::new(),
            next: 0,
            waits: Waits::default(),
            drains: Vec::new(),
            pins: args.pins,
        })
    }

    async fn handle(&self, myself: ActorRef<RegistryMessage>, message: RegistryMessage, state: &mut RegistryState) -> Result<(), ActorProcessingErr> {
        race_point!("registry-message");
        let Some(services) = state.services.get().and_then(Weak::upgrade) else { return Ok(()) };
        match message {
            RegistryMessage::Wake { session, parent } => state.wake(&myself, &services, session, parent),
            RegistryMessage::Ensure { session, reply } => state.ensure(&myself, &services, session, reply),
            RegistryMessage::Publish(publishing) => state.publish(&myself, &services, publishing),
            RegistryMessage::Release { session } => state.release(&session),
            RegistryMessage::Owned { session, incarnation, parent } => state.owned_by(&session, incarnation, parent),
            RegistryMessage::Started { session, incarnation, result, pass } => {
                state.started(&myself, &services, session, incarnation, result);
                drop(pass);
            }
            RegistryMessage::Settle { session, incarnation, reply } => {
                let granted = state.may_settle(&session, incarnation);
                if reply.send(granted).is_err() && granted {
                    state.stays(&myself, &services, &session, incarnation);
                }
            }
            RegistryMessage::Stays { session, incarnation } => state.stays(&myself, &services, &session, incarnation),
            RegistryMessage::Ended { session, incarnation, reason, knocked, failures } => {
                state.ended(&myself, &services, &session, incarnation, (reason, failures), knocked);
            }
            RegistryMessage::Heard { reply } => drop(reply.send(())),
            RegistryMessage::WhenChildless { parent, reply } => state.waits.for_childless(parent, reply),
            RegistryMessage::WhenGone { session, reply } => state.waits.for_gone(session, reply),
            RegistryMessage::WhenQuiet { reply } => state.waits.for_quiet(reply),
            #[cfg(test)]
            RegistryMessage::Waiting { reply } => drop(reply.send(state.waits.count())),
            RegistryMessage::Foreign { sessions } => state.foreign(&myself, &services, sessions),
            RegistryMessage::Drain { scopes, underway, reply } => state.drain(&myself, &services, (scopes, underway), reply),
            RegistryMessage::Overdue { session, incarnation } => state.overdue(&myself, &services, session, incarnation),
            RegistryMessage::Fenced { session } => state.gone(&session),
            RegistryMessage::DrainAll { reply } => {
                state.waits.drained.push(reply);
                state.drain_all(&myself, &services);
            }
        }
        state.answer_waiters();
        state.answer_drains(&services);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<RegistryMessage>,
        event: SupervisionEvent,
        _state: &mut RegistryState,
    ) -> Result<(), ActorProcessingErr> {
        // Ends are reported by the guard in each Activation's state, which also runs on panic and kill.
        if let SupervisionEvent::ActorFailed(_, error) = event {
            tracing::error!(%error, "an activation failed");
        }
        Ok(())
    }
}
