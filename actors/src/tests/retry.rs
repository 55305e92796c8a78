//! Turns that end badly: failures, panics, interrupts, crashes, shutdowns.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use greenroom_session::{event::EpochEnd, store::Store as _};

use super::support::{Barrier, PATIENCE, Witness, cut_off, ends, epochs, on_paused_time, play, quiet, simple, until};
use crate::{Config, Occurrence, Turn, TurnEnd, TurnError};

fn end(text: &str, attempt: u32, how: &str) -> (String, u32, String) {
    (text.to_owned(), attempt, how.to_owned())
}

#[test]
fn a_panic_is_recorded_once_and_the_rest_run_on_a_new_behaviour() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "fragile");
    let made = Arc::new(AtomicUsize::new(0));
    let mut config = simple("root");
    let factory = made.clone();
    config.behavior("fragile", move || {
        factory.fetch_add(1, Ordering::SeqCst);
        let mut turns = 0;
        move |turn: Turn| {
            turns += 1;
            let nth = turns;
            async move {
                if turn.text() == "message 3" {
                    std::panic::resume_unwind(Box::new("no"));
                }
                turn.say(format!("turn {nth} of this behaviour"))?;
                Ok(TurnEnd::Completed)
            }
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        for number in 0..6 {
            host.send(&child, format!("message {number}"), None).await.unwrap();
        }
        quiet(&host).await;
    });
    let expected: Vec<_> = (0..6).map(|number| end(&format!("message {number}"), 1, if number == 3 { "PANIC" } else { "completed" })).collect();
    assert_eq!(ends(&store, &child), expected);
    assert_eq!(store.opened(&child), 1, "a panic of a behaviour ends no epoch");
    assert_eq!(made.load(Ordering::SeqCst), 2);
}

#[test]
fn a_failed_turn_is_done_with() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "failing");
    let mut config = simple("root");
    play(&mut config, "failing", |_| async { Err(TurnError::new("NO_PAPER", "the printer is empty")) });
    on_paused_time(async {
        let system = store.system(config).await;
        system.host().send(&child, "print", None).await.unwrap();
        quiet(&system.host()).await;
    });
    assert_eq!(ends(&store, &child), [end("print", 1, "NO_PAPER")]);
}

/// Registers `poison`, which hangs at its message "poison" after `before`, and completes anything else.
fn poisoned<F, Fut>(gate: &Barrier, before: F) -> Config
where
    F: Fn(Turn) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<(), TurnError>> + Send + 'static,
{
    let mut config = simple("root");
    let at = gate.clone();
    play(&mut config, "poison", move |turn: Turn| {
        let (at, before) = (at.clone(), before.clone());
        async move {
            if turn.text() == "poison" {
                before(turn).await?;
                at.pass().await;
            }
            Ok(TurnEnd::Completed)
        }
    });
    config
}

#[test]
fn a_poison_message_stops_after_three_attempts_and_the_queue_goes_on() {
    let mut store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "poison");
    let gate = Barrier::new();
    let config = || poisoned(&gate, |_| async { Ok(()) });
    for round in 0..3 {
        cut_off(&mut store, config(), |host| {
            let (gate, child) = (gate.clone(), child.clone());
            async move {
                if round == 0 {
                    host.send(&child, "poison", None).await.unwrap();
                    host.send(&child, "water", None).await.unwrap();
                } else {
                    host.recover(None).await.unwrap();
                }
                gate.reached().await;
            }
        });
    }
    on_paused_time(async {
        let system = store.system(config()).await;
        system.host().recover(None).await.unwrap();
        quiet(&system.host()).await;
    });
    let expected = [end("poison", 1, "interrupted"), end("poison", 2, "interrupted"), end("poison", 3, "ATTEMPTS_EXHAUSTED"), end("water", 1, "completed")];
    assert_eq!(ends(&store, &child), expected);
    assert_eq!(epochs(&store, &child), [EpochEnd::Lost, EpochEnd::Lost, EpochEnd::Lost, EpochEnd::Settled]);
}

/// Cuts off as many attempts at one message as its behaviour survives, and returns how they ended.
fn cut_off_in_a_row<F, Fut>(rounds: usize, before: F) -> Vec<(String, u32, String)>
where
    F: Fn(Turn) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<(), TurnError>> + Send + 'static,
{
    let mut store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "poison");
    let gate = Barrier::new();
    let config = || poisoned(&gate, before.clone());
    for round in 0..rounds {
        cut_off(&mut store, config(), |host| {
            let (gate, child) = (gate.clone(), child.clone());
            async move {
                if round == 0 {
                    host.send(&child, "poison", None).await.unwrap();
                } else {
                    host.recover(None).await.unwrap();
                }
                gate.reached().await;
            }
        });
    }
    gate.open(1);
    on_paused_time(async {
        let system = store.system(config()).await;
        system.host().recover(None).await.unwrap();
        quiet(&system.host()).await;
    });
    ends(&store, &child)
}

#[test]
fn an_attempt_that_goes_further_than_any_before_does_not_count() {
    let ends = cut_off_in_a_row(6, |turn| async move {
        // One step more is brought to its end each time.
        for _ in 0..=turn.attempt() {
            turn.step().await?;
        }
        Ok(())
    });
    assert_eq!((ends.len(), ends.last()), (7, Some(&end("poison", 7, "completed"))));
}

#[test]
fn an_attempt_that_only_repeats_the_steps_of_an_earlier_one_counts() {
    let ends = cut_off_in_a_row(4, |turn| async move {
        turn.step().await?;
        turn.step().await
    });
    // The first one went further than none before it.
    assert_eq!((ends.len(), ends.last()), (4, Some(&end("poison", 4, "ATTEMPTS_EXHAUSTED"))));
}

#[test]
fn a_shutdown_in_the_middle_does_not_count_and_the_message_is_served_again() {
    let mut store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "poison");
    let gate = Barrier::new();
    for round in 0..5 {
        on_paused_time(async {
            let system = store.system(poisoned(&gate, |_| async { Ok(()) })).await;
            let host = system.host();
            if round == 0 {
                host.send(&child, "poison", None).await.unwrap();
            } else {
                host.recover(None).await.unwrap();
            }
            gate.reached().await;
            system.shutdown().await;
        });
        store = store.reopen();
    }
    gate.open(1);
    on_paused_time(async {
        let system = store.system(poisoned(&gate, |_| async { Ok(()) })).await;
        system.host().recover(None).await.unwrap();
        quiet(&system.host()).await;
    });
    let mut expected: Vec<_> = (1..6).map(|attempt| end("poison", attempt, "disposed")).collect();
    expected.push(end("poison", 6, "completed"));
    assert_eq!(ends(&store, &child), expected);
}

#[test]
fn an_interrupt_is_final_and_a_turn_that_ignores_it_is_dropped_after_its_grace() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "poison");
    let gate = Barrier::new();
    on_paused_time(async {
        let system = store.system(poisoned(&gate, |_| async { Ok(()) })).await;
        let host = system.host();
        host.send(&child, "poison", None).await.unwrap();
        gate.reached().await;
        let asked = tokio::time::Instant::now();
        let mut occurrences = host.subscribe();
        // Sent at once: the late end of the old turn must not touch the new one.
        let (interrupted, sent) = tokio::join!(host.interrupt(&child, PATIENCE), host.send(&child, "water", None));
        assert_eq!(interrupted.unwrap(), 1);
        sent.unwrap();
        until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::TurnEnded { turn: 1, .. })).await;
        assert_eq!(asked.elapsed(), host.services().config.interrupt_grace);
        quiet(&host).await;
        assert_eq!(host.services().slots.available_permits(), host.services().config.max_live);
    });
    assert_eq!(ends(&store, &child), [end("poison", 1, "aborted"), end("water", 1, "completed")]);
}

#[test]
fn a_turn_that_heeds_its_cancellation_ends_at_once() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "poison");
    let gate = Barrier::new();
    let at = gate.clone();
    let config = poisoned(&Barrier::new(), move |turn| {
        let at = at.clone();
        async move {
            at.open(1);
            at.pass().await;
            turn.cancelled().cancelled().await;
            Err(TurnError::new("CANCELLED", "as asked"))
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        host.send(&child, "poison", None).await.unwrap();
        gate.reached().await;
        let asked = tokio::time::Instant::now();
        host.interrupt(&child, PATIENCE).await.unwrap();
        quiet(&host).await;
        assert_eq!(asked.elapsed().as_millis(), 0);
    });
    assert_eq!(ends(&store, &child), [end("poison", 1, "aborted")]);
}

#[test]
fn a_message_for_an_unknown_agent_waits_and_uses_no_attempt() {
    let mut store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "stranger");
    cut_off(&mut store, simple("root"), |host| {
        let child = child.clone();
        async move {
            let mut occurrences = host.subscribe();
            host.send(&child, "hello", None).await.unwrap();
            let wanted = |occurrence: &Occurrence| matches!(occurrence, Occurrence::NotActivated { code: "AGENT_UNKNOWN", .. });
            until(&mut occurrences, wanted).await;
            quiet(&host).await;
            assert_eq!(host.live_count(), 0);
            assert_eq!(host.quiescent(&child).await.unwrap(), std::slice::from_ref(&child));
        }
    });
    assert_eq!(store.events(&child).len(), 2, "nothing was written to the log");
    assert_eq!(store.reader().unwrap().inbox(&child, 9).unwrap().len(), 1);
    let mut config = simple("root");
    play(&mut config, "stranger", |_| async { Ok(TurnEnd::Completed) });
    on_paused_time(async {
        let system = store.system(config).await;
        system.host().recover(None).await.unwrap();
        quiet(&system.host()).await;
    });
    assert_eq!(ends(&store, &child), [end("hello", 1, "completed")]);
}

#[test]
fn a_factory_that_panics_uses_no_attempt() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "unmade");
    let mut config = simple("root");
    let broken = Arc::new(AtomicUsize::new(1));
    let factory = broken.clone();
    config.behavior("unmade", move || {
        if factory.swap(0, Ordering::SeqCst) == 1 {
            std::panic::resume_unwind(Box::new("no behaviour today"));
        }
        |_turn: Turn| async { Ok(TurnEnd::Completed) }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        let mut occurrences = host.subscribe();
        host.send(&child, "hello", None).await.unwrap();
        until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::NotActivated { code: "START_FAILED", .. })).await;
        quiet(&host).await;
        assert_eq!(store.events(&child).len(), 2, "nothing was written to the log");
        host.recover(None).await.unwrap();
        quiet(&host).await;
    });
    assert_eq!(ends(&store, &child), [end("hello", 1, "completed")]);
}
