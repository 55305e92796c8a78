//! Bounds: full inboxes, turn slots, depth.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::support::{Barrier, PATIENCE, Witness, ends, lock, on_paused_time, play, quiet, simple, until};
use crate::{Config, Delegate, Host, Occurrence, TurnEnd, activation::ActivationMessage, live::Player, registry::RegistryMessage};

/// Registers `gated`, whose every turn waits at the gate.
fn gated(config: &mut Config, gate: &Barrier) {
    let at = gate.clone();
    play(config, "gated", move |_| {
        let at = at.clone();
        async move {
            at.pass().await;
            Ok(TurnEnd::Completed)
        }
    });
}

fn all_slots_are_free(host: &Host) {
    let services = host.services();
    assert_eq!(services.slots.available_permits(), services.config.max_live, "turn slots");
    assert_eq!(services.starting.available_permits(), services.config.max_starting, "start permits");
}

#[test]
fn an_outside_sender_to_a_full_inbox_hears_busy_with_the_count_at_once() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "gated");
    let gate = Barrier::new();
    let mut config = Config { inbox_limit: 3, ..simple("root") };
    gated(&mut config, &gate);
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        host.send(&child, "under way", None).await.unwrap();
        gate.reached().await;
        for number in 0..3 {
            host.send(&child, number.to_string(), None).await.unwrap();
        }
        let asked = tokio::time::Instant::now();
        let error = host.send(&child, "one too many", None).await.unwrap_err();
        assert_eq!(error.to_string(), "not delivered: the inbox is full, 3 of 3 messages are pending");
        assert_eq!((error.code(), asked.elapsed()), ("BUSY", Duration::ZERO));
        gate.open(9);
        quiet(&host).await;
        host.send(&child, "now", None).await.unwrap();
        quiet(&host).await;
    });
    assert_eq!(ends(&store, &child).len(), 5);
}

#[test]
fn a_send_within_a_turn_waits_for_room_and_gives_its_slot_back_meanwhile() {
    let store = Witness::new();
    let boss = store.root("boss", "boss");
    let child = store.child(&boss, "child", "worker");
    // With one slot the child can make room only if the sender gives its own up.
    let mut config = Config { inbox_limit: 1, max_live: 1, ..simple("worker") };
    let to = child.clone();
    play(&mut config, "boss", move |turn| {
        let to = to.clone();
        async move {
            if turn.message().is_some() {
                for number in 0..5 {
                    turn.send_message(&to, number.to_string()).await?;
                }
            }
            Ok(TurnEnd::Completed)
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        system.host().send(&boss, "go", None).await.unwrap();
        quiet(&system.host()).await;
        all_slots_are_free(&system.host());
    });
    assert_eq!(ends(&store, &boss)[0].2, "completed");
    assert_eq!(ends(&store, &child).len(), 5);
}

#[test]
fn a_circle_of_full_inboxes_ends_busy() {
    let store = Witness::new();
    let boss = store.root("boss", "boss");
    let child = store.child(&boss, "child", "gated");
    let gate = Barrier::new();
    let mut config = Config { inbox_limit: 1, send_patience: Duration::from_secs(3), ..Config::default() };
    gated(&mut config, &gate);
    let to = child.clone();
    play(&mut config, "boss", move |turn| {
        let to = to.clone();
        async move {
            if turn.message().is_some() {
                turn.send_message(&to, "work").await?;
            }
            Ok(TurnEnd::Completed)
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        host.send(&child, "hangs", None).await.unwrap();
        gate.reached().await;
        host.send(&child, "fills the inbox", None).await.unwrap();
        let mut occurrences = host.subscribe();
        let asked = tokio::time::Instant::now();
        host.send(&boss, "go", None).await.unwrap();
        until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::TurnEnded { session, .. } if *session == boss)).await;
        let waited = asked.elapsed();
        assert!((Duration::from_secs(3)..Duration::from_secs(4)).contains(&waited), "{waited:?}");
        gate.open(2);
        quiet(&host).await;
    });
    assert_eq!(ends(&store, &boss)[0], ("go".to_owned(), 1, "BUSY".to_owned()));
}

/// Registers `chain`, which delegates as deep as its message says and awaits.
fn chain(config: &mut Config) {
    play(config, "chain", |turn| async move {
        let depth: u32 = turn.text().parse().unwrap_or(0);
        if depth > 0 {
            turn.delegate(Delegate::new("chain", format!("below {depth}"), (depth - 1).to_string())).await?;
            turn.await_children().await?;
        }
        Ok(TurnEnd::Completed)
    });
}

#[test]
fn a_chain_deeper_than_the_turn_slots_does_not_lock_itself() {
    for max_live in [1, 2] {
        let store = Witness::new();
        let boss = store.root("boss", "chain");
        let mut config = Config { max_live, ..Config::default() };
        chain(&mut config);
        on_paused_time(async {
            let system = store.system(config).await;
            system.host().send(&boss, "7", None).await.unwrap();
            quiet(&system.host()).await;
            all_slots_are_free(&system.host());
        });
        assert_eq!(ends(&store, &boss)[0].2, "completed");
    }
}

#[test]
fn a_child_that_would_be_too_deep_is_refused() {
    let store = Witness::new();
    let boss = store.root("boss", "chain");
    let mut config = Config { max_depth: 2, ..Config::default() };
    chain(&mut config);
    on_paused_time(async {
        let system = store.system(config).await;
        system.host().send(&boss, "3", None).await.unwrap();
        quiet(&system.host()).await;
    });
    let reader = greenroom_session::store::Store::reader(&store).unwrap().find("", 9).unwrap();
    let refused = reader.iter().filter(|session| ends(&store, session).iter().any(|(_, _, how)| how == "DEPTH_EXCEEDED")).count();
    assert_eq!((reader.len(), refused), (3, 1));
}

#[test]
fn two_waits_in_one_turn_need_no_slot_of_their_own() {
    let store = Witness::new();
    let boss = store.root("boss", "boss");
    // One slot: `deep` gives it up for its own child, which must get it although the other wait is over.
    let mut config = Config { max_live: 1, ..Config::default() };
    chain(&mut config);
    play(&mut config, "boss", |turn| async move {
        if turn.message().is_some() {
            let shallow = turn.delegate_and_wait(Delegate::new("chain", "shallow", "0"));
            let deep = turn.delegate_and_wait(Delegate::new("chain", "deep", "3"));
            let (shallow, deep) = tokio::join!(shallow, deep);
            shallow?;
            deep?;
        }
        Ok(TurnEnd::Completed)
    });
    on_paused_time(async {
        let system = store.system(config).await;
        system.host().send(&boss, "go", None).await.unwrap();
        quiet(&system.host()).await;
        all_slots_are_free(&system.host());
    });
    assert_eq!(ends(&store, &boss)[0].2, "completed");
}

#[test]
fn fifty_rounds_with_starts_that_fail_leave_no_slot_behind() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    let children: Vec<_> = (0..3).map(|number| store.child(&root, &format!("child {number}"), "unsteady")).collect();
    let tries = Arc::new(AtomicUsize::new(0));
    let mut config = Config { max_live: 2, max_starting: 1, ..simple("worker") };
    let count = tries.clone();
    config.behavior("unsteady", move || {
        if count.fetch_add(1, Ordering::SeqCst).is_multiple_of(3) {
            std::panic::resume_unwind(Box::new("not this time"));
        }
        |_turn: crate::Turn| async { Ok(TurnEnd::Completed) }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        for round in 0..50 {
            for child in &children {
                host.send(child, format!("round {round}"), None).await.unwrap();
            }
            quiet(&host).await;
            all_slots_are_free(&host);
        }
        for child in &children {
            assert_eq!(host.quiescent(child).await.unwrap(), []);
        }
        all_slots_are_free(&host);
    });
    for child in &children {
        assert_eq!(ends(&store, child).len(), 50);
    }
}

#[test]
fn an_interrupted_wait_does_not_let_the_next_turn_run_without_a_slot() {
    let store = Witness::new();
    let boss = store.root("boss", "boss");
    let child = store.child(&boss, "child", "gated");
    let gate = Barrier::new();
    let mut config = Config { max_live: 1, ..Config::default() };
    gated(&mut config, &gate);
    let free: Arc<Mutex<Vec<usize>>> = Arc::default();
    let (seen, to) = (free.clone(), child.clone());
    let host_slot: Arc<Mutex<Option<Host>>> = Arc::default();
    let the_host = host_slot.clone();
    play(&mut config, "boss", move |turn| {
        let (seen, to, the_host) = (seen.clone(), to.clone(), the_host.clone());
        async move {
            if turn.text() == "wait" {
                turn.send_message(&to, "work").await?;
                turn.await_children().await?;
                // Deaf to its cancellation from here on.
                std::future::pending::<()>().await;
            } else if let Some(host) = lock(&the_host).as_ref() {
                lock(&seen).push(host.services().slots.available_permits());
            }
            Ok(TurnEnd::Completed)
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        *lock(&host_slot) = Some(host.clone());
        host.send(&boss, "wait", None).await.unwrap();
        gate.reached().await;
        let mut occurrences = host.subscribe();
        host.send(&boss, "next", None).await.unwrap();
        host.interrupt(&boss, PATIENCE).await.unwrap();
        let ended = |occurrence: &Occurrence| matches!(occurrence, Occurrence::TurnEnded { session, .. } if *session == boss);
        until(&mut occurrences, ended).await;
        // The child still holds the one slot: nothing of the parent may run.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(*lock(&free), [] as [usize; 0], "a turn ran without a slot");
        gate.open(9);
        quiet(&host).await;
        all_slots_are_free(&host);
        *lock(&host_slot) = None;
    });
    assert!(lock(&free).iter().all(|free| *free == 0));
}

#[test]
fn a_handle_kept_after_the_turns_end_keeps_no_slot() {
    let store = Witness::new();
    let boss = store.root("boss", "boss");
    let child = store.child(&boss, "child", "gated");
    let gate = Barrier::new();
    let kept: Arc<Mutex<Vec<crate::Turn>>> = Arc::default();
    let mut config = Config { max_live: 2, ..Config::default() };
    gated(&mut config, &gate);
    let keep = kept.clone();
    play(&mut config, "boss", move |turn| {
        lock(&keep).push(turn.clone());
        async move {
            // A task that outlives its turn and waits for children on its behalf.
            let mut wait = Box::pin(async move { turn.await_children().await });
            if futures::poll!(wait.as_mut()).is_pending() {
                tokio::spawn(wait);
            }
            Ok(TurnEnd::Completed)
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        host.send(&child, "work", None).await.unwrap();
        gate.reached().await;
        let mut occurrences = host.subscribe();
        host.send(&boss, "go", None).await.unwrap();
        until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::TurnEnded { session, .. } if *session == boss)).await;
        gate.open(1);
        quiet(&host).await;
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        all_slots_are_free(&host);
        assert_eq!(lock(&kept)[0].say("late").unwrap_err().code, "TURN_ENDED");
        lock(&kept).clear();
    });
    assert_eq!(ends(&store, &boss)[0].2, "completed");
}

#[test]
fn a_slot_in_the_mailbox_of_an_activation_that_is_killed_comes_back() {
    let store = Witness::new();
    let root = store.root("root", "gated");
    let gate = Barrier::new();
    let mut config = Config { max_live: 1, ..Config::default() };
    gated(&mut config, &gate);
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        for round in 0..20_usize {
            let handle = host.resume(&root).await.unwrap();
            let slot = host.services().slots.clone().acquire_owned().await.unwrap();
            let view = host.services().live.get(&root).unwrap();
            // It has to ask for a slot to look at this.
            host.send(&root, "work", None).await.unwrap();
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            let Player::Agent(actor) = &view.player else { panic!("an agent plays it") };
            drop(actor.send_message(ActivationMessage::Slot(slot)));
            view.cell().kill();
            drop(handle);
            gate.open(1);
            for _ in 0..3 {
                quiet(&host).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            all_slots_are_free(&host);
        }
    });
}

#[test]
fn whoever_stops_waiting_leaves_nothing_in_the_registry() {
    let store = Witness::new();
    let root = store.root("root", "gated");
    let gate = Barrier::new();
    let mut config = Config::default();
    gated(&mut config, &gate);
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        host.send(&root, "work", None).await.unwrap();
        gate.reached().await;
        for _ in 0..100 {
            assert!(tokio::time::timeout(Duration::from_millis(1), host.quiescent(&root)).await.is_err());
        }
        let (reply, answer) = tokio::sync::oneshot::channel();
        host.services().registry.send_message(RegistryMessage::Waiting { reply }).unwrap();
        assert!(answer.await.unwrap() <= 1);
        gate.open(1);
        quiet(&host).await;
    });
}
