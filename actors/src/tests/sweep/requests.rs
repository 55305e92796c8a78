//! Worlds in which turns are interrupted and messages taken back.

use std::sync::{Arc, atomic::Ordering};

use futures::future::join_all;

use super::cast::{ask, config, family, interrupt, look_for_leaks, polls, send, senders, settle_after_failures};
use crate::{
    Config,
    race::plan::{self, roll},
    tests::support::{Ledger, Witness, on_paused_time, quiet},
    visit::visit,
};

pub(super) fn interrupt_against_end(store: &Witness, ledger: &Arc<Ledger>) {
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let interrupts = async {
            for _ in 0..4 {
                for _ in 0..roll(40) {
                    tokio::task::yield_now().await;
                }
                join_all(receivers.iter().map(|receiver| interrupt(&host, receiver, ledger))).await;
            }
        };
        tokio::join!(senders(&host, &["x", "y"], &receivers, 3, ledger, false), interrupts);
        quiet(&host).await;
        look_for_leaks(&host, ledger);
    });
}

pub(super) fn withdraw_against_claim(store: &Witness, ledger: &Arc<Ledger>) {
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let asks = async { tokio::join!(ask(&host, &receivers, 4, ledger), ask(&host, &receivers, 4, ledger)) };
        tokio::join!(senders(&host, &["x", "y"], &receivers, 4, ledger, false), asks);
        quiet(&host).await;
        look_for_leaks(&host, ledger);
    });
}

pub(super) fn requests_from_outside(store: &Witness, ledger: &Arc<Ledger>) {
    // Whoever visits may take a session from its holder between two of its epochs, so that it settles somewhere else than where it ran.
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let receivers = family(store);
        let peer = store.peer();
        let (one, two) = tokio::join!(store.system(config(ledger)), peer.system(Config::default()));
        let (one, two) = (one.host(), two.host());
        let asks = async {
            tokio::join!(ask(&two, &receivers, 3, ledger), ask(&two, &receivers, 3, ledger), ask(&one, &receivers, 1, ledger));
        };
        let work = async { tokio::join!(senders(&one, &["x", "y"], &receivers, 3, ledger, false), asks) };
        tokio::select! {
            biased;
            _ = work => {}
            () = polls(&one, &receivers) => {}
        }
        settle_after_failures(&one).await;
        quiet(&two).await;
        look_for_leaks(&one, ledger);
    });
}

pub(super) fn requests_against_crash(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    let receivers = family(store);
    let mut store = store.clone();
    for round in 0..=roll(2) {
        let peer = store.peer();
        on_paused_time(async {
            let crash = plan::crash_after(Some(u64::from(roll(300))));
            let life = async {
                let (one, two) = tokio::join!(store.system(config(ledger)), peer.system(Config::default()));
                let (one, two) = (one.host(), two.host());
                one.recover(None).await.unwrap();
                let names = [format!("x {round}"), format!("y {round}")];
                let names = names.each_ref().map(String::as_str);
                let asks = async { tokio::join!(ask(&two, &receivers, 3, ledger), ask(&two, &receivers, 3, ledger), ask(&one, &receivers, 2, ledger)) };
                let work = async { tokio::join!(senders(&one, &names, &receivers, 3, ledger, true), asks) };
                tokio::select! {
                    biased;
                    _ = work => {}
                    () = polls(&one, &receivers) => {}
                }
            };
            tokio::select! {
                biased;
                () = crash.notified() => {}
                () = life => {}
            }
        });
        plan::crash_after(None);
        // Both processes are gone.
        peer.reopen();
        store = store.reopen();
    }
    on_paused_time(async {
        let system = store.system(config(ledger)).await;
        let host = system.host();
        host.recover(None).await.unwrap();
        send(&host, "last", &receivers, 1, ledger, false).await;
        settle_after_failures(&host).await;
        for session in &receivers {
            // Requests alone are no work, so nobody has looked at them unless there was some.
            if let Err(error) = visit(&host.services(), session, None).await {
                ledger.complain(format!("{session} could not be visited: {error}"));
            }
        }
        settle_after_failures(&host).await;
    });
}
