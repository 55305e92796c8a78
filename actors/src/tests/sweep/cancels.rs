//! Worlds in which sessions are cancelled while they are told things in every way.

use std::sync::{Arc, atomic::Ordering};

use futures::future::join_all;
use tokio::sync::Notify;

use super::cast::{ask, cancel, cancel_now, config, family, look_for_leaks, polls, say, send, settle_after_failures, wait_idle};
use crate::{
    Config,
    race::plan::{self, roll},
    tests::{
        audit::audit,
        support::{Ledger, Witness, on_paused_time, quiet},
    },
};

/// Everybody is told something at last: what waited without waking joins that turn.
async fn last(host: &crate::Host, receivers: &[greenroom_session::id::SessionId], ledger: &Ledger) {
    for receiver in receivers {
        send(host, "last", std::slice::from_ref(receiver), 1, ledger, false).await;
    }
}

pub(super) fn cancel_against_turns(store: &Witness, ledger: &Arc<Ledger>) {
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let cancels = async { tokio::join!(cancel(&host, &receivers, 3, ledger, false), cancel(&host, &receivers, 3, ledger, false)) };
        let others = ask(&host, &receivers, 2, ledger);
        tokio::join!(say(&host, "x", &receivers, 4, ledger, false), say(&host, "y", &receivers, 4, ledger, false), cancels, others);
        last(&host, &receivers, ledger).await;
        quiet(&host).await;
        look_for_leaks(&host, ledger);
    });
}

pub(super) fn cancel_against_settle(store: &Witness, ledger: &Arc<Ledger>) {
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        for round in 0..3 {
            let waits = receivers.iter().enumerate().map(|(n, receiver)| {
                let name = format!("w {round} {n}");
                let (host, book) = (&host, &**ledger);
                async move { wait_idle(host, store, &name, receiver, book, false).await }
            });
            tokio::join!(join_all(waits), cancel(&host, &receivers, 2, ledger, false));
        }
        quiet(&host).await;
        look_for_leaks(&host, ledger);
    });
}

pub(super) fn cancel_against_shutdown(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let shutdown = async {
            for _ in 0..roll(100) {
                tokio::task::yield_now().await;
            }
            system.shutdown().await;
        };
        let waits = wait_idle(&host, store, "w", &receivers[0], ledger, true);
        let cancels = async { tokio::join!(cancel(&host, &receivers, 3, ledger, true), cancel(&host, &receivers, 3, ledger, true)) };
        tokio::join!(say(&host, "x", &receivers, 4, ledger, true), say(&host, "y", &receivers, 4, ledger, true), waits, cancels, shutdown);
        for complaint in audit(store, ledger, false) {
            ledger.complain(format!("after the shutdown: {complaint}"));
        }
        let next = store.reopen().system(config(ledger)).await;
        let host = next.host();
        host.recover(None).await.unwrap();
        last(&host, &receivers, ledger).await;
        quiet(&host).await;
    });
}

pub(super) fn cancel_from_outside(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let receivers = family(store);
        let peer = store.peer();
        let (one, two) = tokio::join!(store.system(config(ledger)), peer.system(Config::default()));
        let (one, two) = (one.host(), two.host());
        let cancels = async { tokio::join!(cancel(&two, &receivers, 2, ledger, false), cancel(&one, &receivers, 1, ledger, false)) };
        let work = async { tokio::join!(say(&one, "x", &receivers, 4, ledger, false), say(&one, "y", &receivers, 4, ledger, false), cancels) };
        tokio::select! {
            biased;
            _ = work => {}
            () = polls(&one, &receivers) => {}
        }
        last(&one, &receivers, ledger).await;
        settle_after_failures(&one).await;
        quiet(&two).await;
        look_for_leaks(&one, ledger);
    });
}

#[test]
fn a_cancel_at_any_point_leaves_a_balanced_log() {
    // As many points as there are, in each of some schedules.
    for seed in 0..4_u64 {
        let mut reached = 0;
        for point in 0_u64.. {
            let (store, ledger) = (Witness::new(), Arc::new(Ledger::default()));
            plan::begin(seed);
            let missed = on_paused_time(async {
                let receivers = family(&store);
                let system = store.system(config(&ledger)).await;
                let host = system.host();
                let (told, over) = (plan::tell_after(point), Notify::new());
                let cancels = async {
                    tokio::select! {
                        biased;
                        () = told.notified() => {
                            join_all(receivers.iter().map(|receiver| cancel_now(&host, receiver, &ledger))).await;
                            false
                        }
                        () = over.notified() => true,
                    }
                };
                let work = async {
                    say(&host, "x", &receivers, 4, &ledger, false).await;
                    quiet(&host).await;
                    over.notify_one();
                };
                let (missed, ()) = tokio::join!(cancels, work);
                // Whoever sends the last word is not cancelled.
                plan::crash_after(None);
                last(&host, &receivers, &ledger).await;
                quiet(&host).await;
                look_for_leaks(&host, &ledger);
                missed
            });
            plan::end();
            assert_eq!(audit(&store, &ledger, true), Vec::<String>::new(), "seed {seed}, a cancel at point {point}");
            if missed {
                break;
            }
            reached = point;
        }
        assert!(reached > 50, "seed {seed} has {reached} points");
    }
}
