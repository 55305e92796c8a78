//! Worlds in which sessions start, settle and wait for each other.

use std::sync::Arc;

use futures::future::join_all;

use super::cast::{config, dawdle, family, look_for_leaks, send, senders};
use crate::{
    host::NewRoot,
    race::plan::roll,
    tests::support::{Ledger, Witness, id, on_paused_time, quiet},
};

pub(super) fn deliver_against_settle(store: &Witness, ledger: &Arc<Ledger>) {
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        senders(&host, &["x", "y", "z"], &receivers, 3, ledger, false).await;
        quiet(&host).await;
        look_for_leaks(&host, ledger);
    });
}

pub(super) fn resume_against_resume(store: &Witness, ledger: &Arc<Ledger>) {
    on_paused_time(async {
        let receivers = family(store);
        let peer = store.peer();
        let (one, two) = tokio::join!(store.system(config(ledger)), peer.system(config(ledger)));
        let (one, two) = (one.host(), two.host());
        let cold = &receivers[..1];
        if roll(16) == 0 {
            let many: Vec<String> = (0..64).map(|number| format!("sender {number}")).collect();
            join_all(many.iter().enumerate().map(|(number, name)| send(if number % 2 == 0 { &one } else { &two }, name, cold, 1, ledger, false))).await;
        } else {
            tokio::join!(senders(&one, &["x", "y"], &receivers, 2, ledger, false), senders(&two, &["u", "v"], &receivers, 2, ledger, false));
        }
        for _ in 0..3 {
            quiet(&one).await;
            quiet(&two).await;
        }
    });
}

pub(super) fn tree(store: &Witness, ledger: &Arc<Ledger>) {
    on_paused_time(async {
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let handle = host.root(NewRoot { id: Some(id("top")), ..NewRoot::new("boss", "top") }).await.unwrap();
        let message = handle.send(format!("{} {}", 1 + roll(2), 1 + roll(3))).await.unwrap();
        ledger.accepted("user", handle.id(), message);
        dawdle().await;
        if roll(2) == 0 {
            drop(handle);
            quiet(&host).await;
        } else {
            let stuck = handle.quiescent().await.unwrap();
            if !stuck.is_empty() {
                ledger.complain(format!("{stuck:?} cannot get on"));
            }
            drop(handle);
            quiet(&host).await;
        }
        look_for_leaks(&host, ledger);
    });
}

pub(super) fn awaiting(store: &Witness, ledger: &Arc<Ledger>) {
    on_paused_time(async {
        let mut config = config(ledger);
        config.max_live = 1;
        let system = store.system(config).await;
        let host = system.host();
        let handle = host.root(NewRoot { id: Some(id("top")), ..NewRoot::new("boss", "top") }).await.unwrap();
        let message = handle.send(format!("{} 1", 1 + roll(3))).await.unwrap();
        ledger.accepted("user", handle.id(), message);
        // Meanwhile somebody talks to the children, and to the one who waits.
        let talk = async {
            for _ in 0..roll(40) {
                tokio::task::yield_now().await;
            }
            let children = greenroom_session::store::Store::reader(store).unwrap().children(Some(&id("top")), None, 9).unwrap();
            let mut receivers: Vec<_> = children.into_iter().map(|child| child.id).collect();
            receivers.push(id("top"));
            send(&host, "talker", &receivers, 2, ledger, false).await;
        };
        let (stuck, ()) = tokio::join!(handle.quiescent(), talk);
        for stuck in [stuck, handle.quiescent().await] {
            let stuck = stuck.unwrap();
            if !stuck.is_empty() {
                ledger.complain(format!("{stuck:?} cannot get on"));
            }
        }
        drop(handle);
        quiet(&host).await;
        look_for_leaks(&host, ledger);
    });
}
