//! Deaths of the runtime's own actors, failed writes, and shutdowns.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use greenroom_session::{event::EpochEnd, store::Op, store::Store as _};
use ractor::ActorCell;

use super::audit::audit;
use super::support::{Barrier, Fault, Ledger, Witness, ends, epochs, id, on_paused_time, play, quiet, simple, until};
use crate::{Config, Host, Occurrence, TurnEnd, host::NewRoot, services::Services};

/// Kills one of the actors of a generation.
type Victim = fn(&Services) -> ActorCell;

const VICTIMS: [(&str, Victim); 3] = [
    ("registry", |services| services.registry.get_cell()),
    ("query", |services| services.query.as_ref().unwrap().get_cell()),
    ("catalog", |services| services.catalog.as_ref().unwrap().get_cell()),
];

/// Waits until another generation than this one serves.
async fn next_generation(host: &Host, last: &Arc<Services>) {
    while Arc::ptr_eq(&host.services(), last) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn calm(host: &Host) {
    for _ in 0..4 {
        quiet(host).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[test]
fn whichever_actor_dies_every_acceptance_lasts_and_is_served_by_the_next_generation() {
    for (name, victim) in VICTIMS {
        for moment in 0..12 {
            let (store, ledger) = (Witness::new(), Arc::new(Ledger::default()));
            let root = store.root("root", "worker");
            let children: Vec<_> = ["a", "b"].iter().map(|name| store.child(&root, name, "worker")).collect();
            let mut config = Config { max_live: 2, ..Config::default() };
            let book = ledger.clone();
            play(&mut config, "worker", move |turn| {
                book.ran(&turn);
                async move {
                    turn.step().await?;
                    tokio::task::yield_now().await;
                    Ok(TurnEnd::Completed)
                }
            });
            on_paused_time(async {
                let system = store.system(config).await;
                let host = system.host();
                let first = host.services();
                let senders = join_all((0..4).map(|sender| {
                    let (host, children, ledger) = (&host, &children, &ledger);
                    async move {
                        for number in 0..5 {
                            let child = &children[number % 2];
                            if let Ok(id) = host.send(child, format!("{sender} {number}"), None).await {
                                ledger.accepted(&sender.to_string(), child, id);
                            }
                            tokio::task::yield_now().await;
                        }
                    }
                }));
                let death = async {
                    for _ in 0..moment {
                        tokio::task::yield_now().await;
                    }
                    victim(&first).kill();
                    next_generation(&host, &first).await;
                };
                tokio::join!(senders, death);
                calm(&host).await;
                // What was only in the mailbox of the dead is found by whoever looks.
                host.recover(None).await.unwrap();
                calm(&host).await;
                let id = host.send(&children[0], "afterwards", None).await.unwrap();
                ledger.accepted("afterwards", &children[0], id);
                calm(&host).await;
                assert_eq!(audit(&store, &ledger, true), Vec::<String>::new(), "{name} killed at moment {moment}");
                assert_eq!(host.services().slots.available_permits(), 2, "{name} killed at moment {moment}");
                assert_eq!(first.slots.available_permits(), 2, "{name} killed at moment {moment}");
                assert_eq!(host.live_count(), 0);
            });
        }
    }
}

#[test]
fn a_generation_takes_up_what_the_last_one_had_live_and_what_handles_keep() {
    for (name, victim) in VICTIMS {
        let store = Witness::new();
        let gate = Barrier::new();
        let mut config = Config::default();
        let at = gate.clone();
        play(&mut config, "slow", move |turn| {
            let at = at.clone();
            async move {
                if turn.attempt() == 1 && turn.text() == "slow" {
                    at.pass().await;
                }
                Ok(TurnEnd::Completed)
            }
        });
        on_paused_time(async {
            let system = store.system(config).await;
            let host = system.host();
            let handle = host.root(NewRoot { id: Some(id("root")), ..NewRoot::new("slow", "root") }).await.unwrap();
            let child = store.child(&id("root"), "child", "slow");
            host.send(&child, "slow", None).await.unwrap();
            gate.reached().await;
            let first = host.services();
            victim(&first).kill();
            next_generation(&host, &first).await;
            calm(&host).await;
            // Nobody had to ask.
            assert_eq!(ends(&store, &child).last().unwrap(), &("slow".to_owned(), 2, "completed".to_owned()), "{name}");
            assert!(host.services().live.get(&id("root")).is_some(), "{name}: the kept root is not live");
            handle.agent().followup(&child, "again").await.unwrap();
            calm(&host).await;
            drop(handle);
            calm(&host).await;
            assert_eq!(host.live_count(), 0, "{name}");
        });
        assert_eq!(epochs(&store, &id("root")).last(), Some(&EpochEnd::Settled));
    }
}

/// Counts when it is dropped.
struct Count(Arc<AtomicUsize>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_turn_does_not_outlive_its_activation() {
    let store = Witness::new();
    let root = store.root("root", "hung");
    let dropped = Arc::new(AtomicUsize::new(0));
    let gate = Barrier::new();
    let mut config = Config::default();
    let (at, count) = (gate.clone(), dropped.clone());
    play(&mut config, "hung", move |turn| {
        let (at, count) = (at.clone(), Count(count.clone()));
        async move {
            let _count = count;
            if turn.attempt() == 1 {
                at.pass().await;
            }
            Ok(TurnEnd::Completed)
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        host.send(&root, "hang", None).await.unwrap();
        gate.reached().await;
        // The first run of the closure's copy is the one that hangs.
        let before = dropped.load(Ordering::SeqCst);
        host.services().live.get(&root).unwrap().cell().kill();
        calm(&host).await;
        assert!(dropped.load(Ordering::SeqCst) > before, "the hung turn of a killed activation goes on");
    });
    let how: Vec<_> = ends(&store, &root).into_iter().map(|(_, attempt, how)| (attempt, how)).collect();
    assert_eq!(how, [(1, "interrupted".to_owned()), (2, "completed".to_owned())]);
}

#[test]
fn a_shutdown_is_bounded_also_with_a_turn_that_hangs() {
    let store = Witness::new();
    let root = store.root("root", "hung");
    let child = store.child(&root, "child", "hung");
    let gate = Barrier::new();
    let mut config = Config::default();
    let at = gate.clone();
    play(&mut config, "hung", move |_| {
        let at = at.clone();
        async move {
            at.pass().await;
            Ok(TurnEnd::Completed)
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        for session in [&root, &child] {
            host.send(session, "hang", None).await.unwrap();
            gate.reached().await;
        }
        let asked = tokio::time::Instant::now();
        system.shutdown().await;
        // Cancelled together, and released child first.
        assert_eq!(asked.elapsed(), host.services().config.interrupt_grace);
    });
    for session in [&root, &child] {
        assert_eq!(ends(&store, session), [("hang".to_owned(), 1, "disposed".to_owned())]);
        assert_eq!(epochs(&store, session), [EpochEnd::Disposed]);
    }
    assert_eq!(store.reader().unwrap().leases(None).unwrap(), []);
}

#[test]
fn a_shutdown_during_cold_starts_waits_for_nobody_who_does_not_come() {
    for max_live in [1, 64] {
        for moment in 0..20 {
            let store = Witness::new();
            let root = store.root("root", "worker");
            let children: Vec<_> = (0..4).map(|number| store.child(&root, &format!("child {number}"), "stranger")).collect();
            on_paused_time(async {
                let system = store.system(Config { max_live, ..simple("worker") }).await;
                let host = system.host();
                let handle = host.resume(&root).await.unwrap();
                for child in &children {
                    handle.agent().followup(child, "hello").await.unwrap();
                }
                for _ in 0..moment {
                    tokio::task::yield_now().await;
                }
                let asked = tokio::time::Instant::now();
                system.shutdown().await;
                assert_eq!(asked.elapsed(), Duration::ZERO, "at moment {moment}");
            });
            assert_eq!(epochs(&store, &root), [EpochEnd::Disposed]);
        }
    }
}

#[test]
fn a_send_after_a_shutdown_is_an_error_or_lasts() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let host = system.host();
        system.shutdown().await;
        let sent = host.send(&root, "late", None).await;
        let waits = store.reader().unwrap().inbox(&root, 9).unwrap().len();
        assert_eq!(sent.is_ok(), waits == 1, "{sent:?} and {waits} wait");
    });
}

#[test]
fn a_failed_commit_is_not_delivered_and_the_epoch_after_it_loads_what_is_on_disk() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let host = system.host();
        store.fail(Fault { hits: |op| matches!(op, Op::Accept(_)), written: false, indeterminate: false });
        assert_eq!(host.send(&root, "lost", None).await.unwrap_err().code(), "NOT_DELIVERED");
        // The end of a turn that fails, and one that nobody knows of.
        for (text, written, indeterminate) in [("one", false, false), ("two", true, true), ("three", false, true)] {
            let hits = |op: &Op| matches!(op, Op::Append(_));
            store.fail(Fault { hits, written, indeterminate });
            host.send(&root, text, None).await.unwrap();
            calm(&host).await;
        }
    });
    let completed: Vec<_> = ends(&store, &root).into_iter().filter(|(_, _, how)| how == "completed").map(|(text, ..)| text).collect();
    assert_eq!(completed, ["one", "two", "three"]);
    assert_eq!(audit(&store, &Ledger::default(), true), Vec::<String>::new());
}

#[test]
fn a_message_whose_acceptance_is_unknown_is_served_if_it_is_there() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let host = system.host();
        store.fail(Fault { hits: |op| matches!(op, Op::Accept(_)), written: true, indeterminate: true });
        assert_eq!(host.send(&root, "unknown", None).await.unwrap_err().code(), "INDETERMINATE");
        calm(&host).await;
    });
    assert_eq!(ends(&store, &root), [("unknown".to_owned(), 1, "completed".to_owned())]);
}

#[test]
fn a_start_that_cannot_write_is_tried_again_by_whoever_waits_for_quiet() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let host = system.host();
        store.fail(Fault { hits: |op| matches!(op, Op::Open(_)), written: true, indeterminate: true });
        let mut occurrences = host.subscribe();
        host.send(&root, "hello", None).await.unwrap();
        until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::NotActivated { code: "INDETERMINATE", .. })).await;
        assert_eq!(host.quiescent(&root).await.unwrap(), []);
    });
    // The epoch that nobody knew of had begun the turn.
    let how: Vec<_> = ends(&store, &root).into_iter().map(|(_, attempt, how)| (attempt, how)).collect();
    assert_eq!(how, [(1, "interrupted".to_owned()), (2, "completed".to_owned())]);
}
