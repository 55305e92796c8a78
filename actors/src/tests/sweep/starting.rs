//! Worlds in which children are started while their providers come and go, callers give up, and the runtime may end.

use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use greenroom_session::{
    event::Body,
    id::{MessageId, SessionId},
    store::Store as _,
};
use tokio_util::sync::CancellationToken;

use super::cast::{config, dawdle, look_for_leaks, settle_after_failures};
use crate::{
    Agent, Delegate, Registration,
    error::StartError,
    host::NewRoot,
    provider::{Capabilities, Prepare, PrepareError, Prepared, Provider},
    race::plan::roll,
    tests::support::{Ledger, Witness, id, on_paused_time},
};

/// Takes its time, and fails or makes a mistake now and then.
struct Fickle;

impl Provider for Fickle {
    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    fn prepare(&self, _: Prepare) -> BoxFuture<'_, Result<Prepared, PrepareError>> {
        Box::pin(async {
            dawdle().await;
            match roll(6) {
                0 => Err(PrepareError::new("FICKLE", "not today")),
                // A turn that nobody has ended.
                1 => Ok(Prepared { inherited: vec![Body::TurnStart { turn: 1, message: MessageId::new("m").unwrap(), attempt: 1 }.at(0, 1)] }),
                _ => Ok(Prepared::default()),
            }
        })
    }
}

pub(super) fn start_against_removal(store: &Witness, ledger: &Arc<Ledger>) {
    starts(store, ledger, false);
}

pub(super) fn start_against_shutdown(store: &Witness, ledger: &Arc<Ledger>) {
    starts(store, ledger, true);
}

fn starts(store: &Witness, ledger: &Arc<Ledger>, ends: bool) {
    let refused = on_paused_time(async {
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let root = host.root(NewRoot { id: Some(id("root")), ..NewRoot::new("worker", "root") }).await.unwrap();
        let said = root.send("stay in sight").await.unwrap();
        ledger.accepted("host", root.id(), said);
        let agent = root.agent();
        let mut registered: Vec<Registration> = Vec::new();
        let meddle = async {
            for _ in 0..=roll(5) {
                match host.register_provider("fickle", Fickle) {
                    Ok(registration) => registered.push(registration),
                    Err(_) => registered.clear(),
                }
                for _ in 0..roll(4) {
                    dawdle().await;
                }
            }
            if ends {
                ledger.lossy.store(true, std::sync::atomic::Ordering::Relaxed);
                system.shutdown().await;
            }
        };
        let (refused, ()) = tokio::join!(join_all(["x", "y", "z"].map(|name| starter(&agent, name, ledger))), meddle);
        drop((root, agent, registered));
        settle_after_failures(&host).await;
        if !ends {
            look_for_leaks(&host, ledger);
        }
        refused.concat()
    });
    if ends {
        // What was accepted is served by whoever comes next.
        on_paused_time(async {
            let system = store.system(config(ledger)).await;
            system.host().recover(None).await.unwrap();
            settle_after_failures(&system.host()).await;
            look_for_leaks(&system.host(), ledger);
        });
    }
    for child in refused {
        if store.store.reader().unwrap().header(&child).unwrap().is_some() {
            ledger.complain(format!("{child} is there, and its start was refused"));
        }
    }
}

/// Starts children one after another, and returns those that were refused.
async fn starter(agent: &Agent, name: &str, ledger: &Ledger) -> Vec<SessionId> {
    let mut refused = Vec::new();
    for number in 0..=roll(3) {
        dawdle().await;
        let child = id(&format!("{name}{number}"));
        let provider = if roll(4) == 0 { "spawn" } else { "fickle" };
        let delegate = Delegate::new("worker", child.as_str(), "work").provider(provider).child(child.clone());
        let cancel = CancellationToken::new();
        let caller = agent.cancellable(cancel.clone());
        let give_up = async {
            if roll(4) == 0 {
                dawdle().await;
                cancel.cancel();
            }
        };
        let (started, ()) = tokio::join!(caller.start_continuable(delegate), give_up);
        match started {
            Ok(delegated) if delegated.child == child && !delegated.existing => ledger.accepted(name, &child, delegated.message),
            Ok(other) => ledger.complain(format!("{child} was started as {other:?}")),
            // Handed over, and the runtime was gone before its answer.
            Err(StartError::Write(error)) if error.code() == "INDETERMINATE" => {}
            Err(StartError::NoProvider(_) | StartError::Cancelled | StartError::Draining | StartError::Unauthorized(_) | StartError::Provider { .. }) => {
                refused.push(child);
            }
            Err(error) => ledger.complain(format!("{child} was not started: {error}")),
        }
    }
    refused
}
