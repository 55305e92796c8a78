//! Worlds in which what is below somebody is drained while it is told things, starts, is set up, or is drained already.

use std::sync::{Arc, Mutex, atomic::Ordering};

use greenroom_session::id::SessionId;
use tokio::sync::Notify;

use super::{
    cast::{config, dawdle, family, look_for_leaks, say, send, senders, settle_after_failures},
    setting_up::{Book, Fickle, judge},
};
use crate::{
    Agent, Host, Publication,
    error::{DeliverError, DrainError},
    host::NewRoot,
    race::plan::{self, roll},
    tests::{
        audit::audit,
        support::{Ledger, Witness, descriptor, id, on_paused_time},
    },
};

/// Drains below one of these sessions, if it is live, and looks whether it was done.
async fn drain(host: &Host, roots: &[SessionId], ledger: &Ledger) {
    for _ in 0..roll(60) {
        tokio::task::yield_now().await;
    }
    let root = &roots[usize::try_from(roll(u32::try_from(roots.len()).unwrap())).unwrap()];
    let services = host.services();
    let Some(view) = services.live.get(root).filter(|view| !view.is_published()) else { return };
    let agent = Agent::of_root(services.clone(), view.clone());
    let below = || services.live.all().into_iter().filter(|live| !live.is_published() && live.lineage.ids().any(|above| above == root));
    let drained = if roll(3) == 0 {
        let children: Vec<_> = below().filter(|live| live.header.parent.as_ref() == Some(root)).map(|live| live.id().clone()).collect();
        agent.drain_children(&children).await
    } else {
        let drained = host.drain(&[agent]).await;
        // Everybody who might still be on the way has had time to come.
        let left: Vec<_> = below().map(|live| live.id().clone()).collect();
        if view.is_open() && !left.is_empty() {
            ledger.complain(format!("{left:?} are live below {root}, which is drained"));
        }
        if root.as_str() == "root" {
            let receiver = id("a");
            let sent = host.send(&receiver, "into what is closed", None).await;
            let is_closed = view.is_open() && !services.is_draining();
            match sent {
                Ok(message) => {
                    if is_closed {
                        ledger.complain(format!("{message} was accepted for {receiver}, which is closed"));
                    }
                    ledger.accepted(&format!("after the drain, {message}"), &receiver, message);
                }
                Err(DeliverError::Draining) => {}
                Err(error) if is_closed => ledger.complain(format!("{receiver} is closed, and its sender was told {error}")),
                Err(_) => {}
            }
        }
        drained
    };
    match drained {
        Ok(()) | Err(DrainError::Unauthorized { .. }) => {}
        // What sticks in a world of set-up is told, and holds nobody.
        Err(DrainError::TeardownFailed { failures }) if failures.iter().all(|failure| failure.code == "ACTIVATION_SETUP_RELEASE_FAILED") => {}
        Err(error) if ledger.lossy.load(Ordering::Relaxed) && services.is_ending() => drop(error),
        Err(error) => ledger.complain(format!("{root} could not be drained: {error}")),
    }
}

/// When nothing is closed any more, what was left is served.
async fn go_on(host: &Host, receivers: &[SessionId], ledger: &Ledger) {
    settle_after_failures(host).await;
    host.recover(None).await.unwrap();
    settle_after_failures(host).await;
    for receiver in receivers {
        send(host, "last", std::slice::from_ref(receiver), 1, ledger, false).await;
    }
    settle_after_failures(host).await;
    host.recover(None).await.unwrap();
    settle_after_failures(host).await;
    look_for_leaks(host, ledger);
    if host.services().closed.is_any() {
        ledger.complain("something is closed, and nobody is left who has closed it");
    }
}

pub(super) fn deliver_against_drain(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let root = host.resume(&id("root")).await.unwrap();
        let agent = root.agent();
        let follow = async {
            for number in 0..3 {
                dawdle().await;
                if let Ok(message) = agent.followup(&receivers[0], format!("follow-up {number}")).await {
                    ledger.accepted("the root", &receivers[0], message);
                }
            }
        };
        let roots = [id("root")];
        let drains = async { tokio::join!(drain(&host, &roots, ledger), drain(&host, &roots, ledger)) };
        tokio::join!(senders(&host, &["x"], &receivers, 3, ledger, true), say(&host, "y", &receivers, 3, ledger, true), follow, drains);
        drop((root, agent));
        go_on(&host, &receivers, ledger).await;
    });
}

pub(super) fn start_against_drain(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let handle = host.root(NewRoot { id: Some(id("top")), ..NewRoot::new("boss", "top") }).await.unwrap();
        let message = handle.send(format!("{} {}", 1 + roll(2), 1 + roll(3))).await.unwrap();
        ledger.accepted("user", handle.id(), message);
        let rest = async {
            for _ in 0..roll(200) {
                tokio::task::yield_now().await;
            }
            drain(&host, &[id("top")], ledger).await;
            // Whoever waits for whom was drained is told.
            drop(handle.quiescent().await.unwrap());
        };
        rest.await;
        drop(handle);
        go_on(&host, &[id("top")], ledger).await;
    });
}

pub(super) fn nested_drains(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let handle = host.root(NewRoot { id: Some(id("top")), ..NewRoot::new("boss", "top") }).await.unwrap();
        let message = handle.send("2 3").await.unwrap();
        ledger.accepted("user", handle.id(), message);
        let within = async {
            for _ in 0..4 {
                for _ in 0..roll(60) {
                    tokio::task::yield_now().await;
                }
                let live: Vec<_> = host.services().live.all().iter().map(|view| view.id().clone()).collect();
                drain(&host, &live, ledger).await;
            }
        };
        tokio::join!(within, async {
            for _ in 0..roll(200) {
                tokio::task::yield_now().await;
            }
            drain(&host, &[id("top")], ledger).await;
        });
        drop(handle);
        go_on(&host, &[id("top")], ledger).await;
    });
}

pub(super) fn set_up_and_publish_against_drain(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    let book = Book::default();
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let registered = [(); 2].map(|()| host.register_setup(Fickle { book: book.clone(), fails: false }));
        let root = host.resume(&id("root")).await.unwrap();
        let publish = async {
            dawdle().await;
            let session = greenroom_session::header::NewSession::child(id("played"), id("root"), 0);
            let played = host.publish_session(Publication::child(session, descriptor("played", "worker"))).await.unwrap();
            for _ in 0..roll(100) {
                tokio::task::yield_now().await;
            }
            // It is its host's, whatever is drained.
            if let Err(error) = played.end().await {
                ledger.complain(format!("what the host plays could not be ended: {error}"));
            }
        };
        let roots = [id("root")];
        let drains = async { tokio::join!(drain(&host, &roots, ledger), drain(&host, &roots, ledger)) };
        tokio::join!(senders(&host, &["x", "y"], &receivers, 3, ledger, true), publish, drains);
        drop(root);
        go_on(&host, &receivers, ledger).await;
        drop(registered);
    });
    judge(&book, ledger);
}

pub(super) fn shutdown_in_a_drain(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let root = host.resume(&id("root")).await.unwrap();
        let (drained, over) = (Arc::new(Mutex::new(false)), Notify::new());
        let drains = async {
            drain(&host, &[id("root")], ledger).await;
            *drained.lock().unwrap() = true;
            over.notify_one();
        };
        let shutdown = async {
            for _ in 0..roll(100) {
                tokio::task::yield_now().await;
            }
            system.shutdown().await;
            over.notified().await;
        };
        tokio::join!(senders(&host, &["x", "y"], &receivers, 3, ledger, true), drains, shutdown);
        for complaint in audit(store, ledger, false) {
            ledger.complain(format!("after the shutdown: {complaint}"));
        }
        drop(root);
        let next = store.reopen().system(config(ledger)).await;
        let host = next.host();
        host.recover(None).await.unwrap();
        go_on(&host, &receivers, ledger).await;
    });
}

pub(super) fn an_end_that_does_not_come_against_drain(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let root = host.resume(&id("root")).await.unwrap();
        plan::stick(2);
        let drains = async {
            for _ in 0..roll(60) {
                tokio::task::yield_now().await;
            }
            let asked = tokio::time::Instant::now();
            let drained = host.drain(&[root.agent()]).await;
            let config = host.services().config.clone();
            if asked.elapsed() > config.interrupt_grace * 2 + config.shutdown_grace * 2 {
                ledger.complain(format!("the drain took {:?}", asked.elapsed()));
            }
            match drained {
                Ok(()) => {}
                Err(DrainError::TeardownFailed { failures }) if failures.iter().all(|failure| failure.code == "ACTIVATION_OVERDUE") => {}
                Err(error) => ledger.complain(format!("drained, and told {error}")),
            }
            let leases = greenroom_session::store::Store::reader(store).unwrap().leases(None).unwrap();
            if leases.iter().any(|lease| lease.session != *root.id()) {
                ledger.complain(format!("who was drained still holds {leases:?}"));
            }
        };
        tokio::join!(senders(&host, &["x", "y"], &receivers, 3, ledger, true), drains);
        plan::stick(0);
        drop(root);
        go_on(&host, &receivers, ledger).await;
    });
}
