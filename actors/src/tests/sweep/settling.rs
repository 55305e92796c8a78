//! Worlds in which parents and children come and go in any order: whoever owns a live child stays, and what a child did last its parent is told.

use std::sync::{Arc, atomic::Ordering};

use futures::future::join_all;
use greenroom_session::{
    event::{Body, EpochEnd},
    id::{MessageId, SessionId},
    message::{Message, Source},
    store::{Accept, Op, Store},
};

use super::cast::{ask, cancel, config, dawdle, family, look_for_leaks, send, senders};
use crate::{
    Host,
    race::plan::{self, roll},
    registry::RegistryMessage,
    tests::support::{Ledger, Witness, epochs, on_paused_time, quiet},
};

/// Leaves a message in the inbox of a session that nobody runs.
fn leave(store: &Witness, ledger: &Ledger, session: &SessionId, name: &str) {
    let id = MessageId::new(format!("{name} for {session}")).unwrap();
    let message = Message::turn(&id, name, Source::User, 1).unwrap();
    store.commit(&[Op::Accept(Accept::new(session.clone(), message))]).unwrap().pop().unwrap().unwrap();
    ledger.accepted(name, session, id);
}

/// A root, its child and a child of that.
fn line(store: &Witness) -> [SessionId; 3] {
    let top = store.root("top", "worker");
    let middle = store.child(&top, "middle", "worker");
    let bottom = store.child(&middle, "bottom", "worker");
    [top, middle, bottom]
}

/// Has a session resumed in one of the ways in which that can come about.
async fn resume(host: &Host, session: &SessionId, name: &str, ledger: &Ledger) {
    for _ in 0..roll(80) {
        tokio::task::yield_now().await;
    }
    let registry = &host.services().registry;
    match roll(4) {
        0 => send(host, name, std::slice::from_ref(session), 1, ledger, false).await,
        1 => drop(host.recover(Some(session)).await),
        // For somebody who keeps it for a moment, or gives up before it is there.
        2 if roll(2) == 0 => drop(host.keep(session).await),
        2 => {
            let patience = async {
                for _ in 0..roll(60) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                kept = host.keep(session) => drop(kept),
                () = patience => {}
            }
        }
        _ => drop(registry.send_message(RegistryMessage::Foreign { sessions: Vec::new() })),
    }
}

pub(super) fn resume_in_any_order(store: &Witness, ledger: &Arc<Ledger>) {
    store.watch_families();
    on_paused_time(async {
        let sessions = line(store);
        for session in &sessions {
            leave(store, ledger, session, "left");
        }
        let system = store.system(config(ledger)).await;
        let host = system.host();
        // Whoever looks for work by itself does so in the trees of kept roots.
        let kept = if roll(2) == 0 { host.resume(&sessions[0]).await.ok() } else { None };
        let names = ["u", "v", "w", "k", "l", "m"];
        let resumes = names.iter().zip(sessions.iter().cycle()).map(|(name, session)| resume(&host, session, name, ledger));
        tokio::join!(join_all(resumes), senders(&host, &["x"], &sessions, 2, ledger, false));
        drop(kept);
        host.recover(None).await.unwrap();
        quiet(&host).await;
        look_for_leaks(&host, ledger);
    });
}

/// All children are there from the first moment on, so their parent, who hears of each, comes and goes once.
pub(super) fn restart_of_a_family(store: &Witness, ledger: &Arc<Ledger>) {
    store.watch_families();
    on_paused_time(async {
        let top = store.root("top", "worker");
        let children: Vec<_> = (0..2 + roll(5)).map(|n| store.child(&top, &format!("child {n}"), "worker")).collect();
        for child in &children {
            leave(store, ledger, child, "left");
        }
        let system = store.system(config(ledger)).await;
        let host = system.host();
        host.recover(None).await.unwrap();
        quiet(&host).await;
        for session in children.iter().chain([&top]) {
            let ends = epochs(store, session);
            if ends != [EpochEnd::Settled] || store.opened(session) != 1 {
                ledger.complain(format!("{session} had epochs that ended {ends:?} and should have had one"));
            }
        }
        look_for_leaks(&host, ledger);
    });
}

/// A shutdown comes when children have done what they had to do and have not yet settled. Whoever comes next sends nothing and only looks.
pub(super) fn settle_against_shutdown(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let mut receivers = family(store);
        receivers.push(store.child(&receivers[0], "below", "worker"));
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let due = plan::tell_after(u64::from(roll(150)));
        let shutdown = async {
            due.notified().await;
            system.shutdown().await;
        };
        let life = async {
            // Not the first: what its child reports is no message that a cancel takes back.
            let asks = async {
                if roll(2) == 0 {
                    cancel(&host, &receivers[1..], 1, ledger, true).await;
                }
            };
            tokio::join!(senders(&host, &["x", "y"], &receivers, 2, ledger, true), asks);
            quiet(&host).await;
            // The point was not reached; then it comes now.
            due.notify_one();
        };
        tokio::join!(life, shutdown);
        let next = store.reopen().system(config(ledger)).await;
        let host = next.host();
        dawdle().await;
        host.recover(None).await.unwrap();
        quiet(&host).await;
        look_for_leaks(&host, ledger);
    });
}

/// What waits is taken back while it is about to be served; in the end nobody has been left without a word.
pub(super) fn settle_against_withdrawal(store: &Witness, ledger: &Arc<Ledger>) {
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        for round in 0..3 {
            let names = [format!("x {round}"), format!("y {round}")];
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            tokio::join!(senders(&host, &names, &receivers, 1, ledger, false), cancel(&host, &receivers, 1, ledger, false), ask(&host, &receivers, 1, ledger));
        }
        quiet(&host).await;
        look_for_leaks(&host, ledger);
        let silent =
            |session: &&SessionId| store.events(session).iter().any(|event| matches!(event.body, Body::ActivationEnd { reason: EpochEnd::Failed, .. }));
        for session in receivers.iter().filter(silent) {
            ledger.complain(format!("an epoch of {session} failed"));
        }
    });
}
