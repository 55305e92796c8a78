//! Worlds in which somebody dies, is taken for dead, or is told to end.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use greenroom_session::id::MessageId;

use super::cast::{config, family, look_for_leaks, send, senders, settle_after_failures};
use crate::{
    race::plan::{self, roll},
    tests::{
        audit::audit,
        support::{Ledger, Witness, on_paused_time, quiet},
    },
};

pub(super) fn deliver_against_crash(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    let root = store.root("boss", "boss");
    let receivers = family(store);
    let mut store = store.clone();
    for round in 0..=roll(2) {
        on_paused_time(async {
            let crash = plan::crash_after(Some(u64::from(roll(250))));
            let life = async {
                let system = store.system(config(ledger)).await;
                let host = system.host();
                host.recover(None).await.unwrap();
                let name = format!("root {round}");
                let ask = send(&host, &name, std::slice::from_ref(&root), 1, ledger, true);
                let plain = async {
                    let names = [format!("x {round}"), format!("y {round}")];
                    senders(&host, &names.each_ref().map(String::as_str), &receivers, 2, ledger, true).await;
                };
                let big = async {
                    let id = MessageId::new(format!("big {round}")).unwrap();
                    if let Ok(id) = host.send(&root, format!("{} {}", 1 + roll(2), 1 + roll(2)), Some(id)).await {
                        ledger.accepted("big", &root, id);
                    }
                };
                tokio::join!(big, plain, ask);
                quiet(&host).await;
            };
            tokio::select! {
                biased;
                () = crash.notified() => {}
                () = life => {}
            }
        });
        // The runtime is gone, and every task with it.
        plan::crash_after(None);
        store = store.reopen();
    }
    on_paused_time(async {
        let system = store.system(config(ledger)).await;
        let host = system.host();
        host.recover(None).await.unwrap();
        send(&host, "last", &receivers, 1, ledger, false).await;
        quiet(&host).await;
    });
}

pub(super) fn deliver_against_kill(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let kill = async {
            for _ in 0..2 {
                for _ in 0..roll(60) {
                    tokio::task::yield_now().await;
                }
                let live = host.services().live.all();
                if let Some(view) = live.get(usize::try_from(roll(2)).unwrap()) {
                    view.cell().kill();
                }
            }
        };
        tokio::join!(senders(&host, &["x", "y"], &receivers, 3, ledger, false), kill);
        settle_after_failures(&host).await;
        look_for_leaks(&host, ledger);
    });
}

pub(super) fn take_over_from_the_living(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let receivers = family(store);
        let old = store.system(config(ledger)).await;
        let old = (old.host(), old);
        let early = senders(&old.0, &["x", "y"], &receivers, 3, ledger, true);
        let late = async {
            for _ in 0..roll(80) {
                tokio::task::yield_now().await;
            }
            let heir = store.reopen();
            let new = heir.system(config(ledger)).await;
            let host = new.host();
            host.recover(None).await.unwrap();
            senders(&host, &["u", "v"], &receivers, 2, ledger, false).await;
            (host, new)
        };
        let ((), (host, _new)) = tokio::join!(early, late);
        for _ in 0..2 {
            settle_after_failures(&old.0).await;
            settle_after_failures(&host).await;
        }
        // What the old owner lost in the middle may wait for somebody to look.
        host.recover(None).await.unwrap();
        settle_after_failures(&host).await;
    });
}

pub(super) fn shutdown_against_delivery(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let receivers = family(store);
        let boss = store.root("boss", "boss");
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let started = tokio::time::Instant::now();
        let shutdown = async {
            for _ in 0..roll(100) {
                tokio::task::yield_now().await;
            }
            system.shutdown().await;
        };
        let big = async {
            if let Ok(id) = host.send(&boss, format!("{} {}", 1 + roll(2), 1 + roll(2)), None).await {
                ledger.accepted("big", &boss, id);
            }
        };
        tokio::join!(senders(&host, &["x", "y"], &receivers, 3, ledger, true), big, shutdown);
        if started.elapsed() > Duration::from_secs(9) {
            ledger.complain(format!("the shutdown took {:?} with turns that heed it or end by themselves", started.elapsed()));
        }
        for complaint in audit(store, ledger, false) {
            ledger.complain(format!("after the shutdown: {complaint}"));
        }
        let mut reader = greenroom_session::store::Store::reader(store).unwrap();
        for lease in reader.leases(None).unwrap() {
            ledger.complain(format!("{} is held after a shutdown", lease.session));
        }
        let next = store.reopen().system(config(ledger)).await;
        let host = next.host();
        host.recover(None).await.unwrap();
        send(&host, "last", &receivers, 1, ledger, false).await;
        quiet(&host).await;
    });
}
