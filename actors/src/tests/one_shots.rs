//! Disposals of one-shot runs that take longer than anybody should wait.

use std::time::Duration;

use greenroom_session::event::TurnEnd as Ended;

use super::support::{Barrier, Witness, on_paused_time, play, quiet};
use crate::{Config, Delegate, Turn, TurnEnd, error::DisposeError, host::NewRoot};

/// `deaf` waits at a gate, whatever becomes of its turn.
fn deaf(config: &mut Config, gate: &Barrier) {
    let at = gate.clone();
    play(config, "deaf", move |_: Turn| {
        let at = at.clone();
        async move {
            at.pass().await;
            Ok(TurnEnd::Completed)
        }
    });
}

#[test]
fn a_run_that_waits_for_a_slot_is_disposed_of_when_it_gets_one_however_late() {
    let store = Witness::new();
    let gate = Barrier::new();
    let mut config = Config { max_live: 1, ask_deadline: Duration::from_secs(1), interrupt_grace: Duration::from_millis(1), ..Config::default() };
    deaf(&mut config, &gate);
    on_paused_time(async {
        let system = store.system(config).await;
        let root = system.host().root(NewRoot::new("deaf", "desk")).await.unwrap();
        root.send("work").await.unwrap();
        gate.reached().await;
        let run = root.agent().start(Delegate::new("deaf", "a child", "work")).await.unwrap();
        let clone = run.clone();
        let waiting = tokio::spawn(async move { clone.dispose().await });
        // Many times the deadline.
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!waiting.is_finished());
        gate.open(1);
        waiting.await.unwrap().unwrap();
        assert!(matches!(run.result().await.unwrap().outcome, Ended::Aborted { .. }));
        quiet(&system.host()).await;
    });
}

#[test]
fn a_run_that_does_not_end_is_told_of_in_time_and_may_be_disposed_of_again() {
    let store = Witness::new();
    let gate = Barrier::new();
    let mut config = Config { ask_deadline: Duration::from_secs(1), interrupt_grace: Duration::from_secs(600), ..Config::default() };
    deaf(&mut config, &gate);
    on_paused_time(async {
        let system = store.system(config).await;
        let root = system.host().root(NewRoot::new("deaf", "desk")).await.unwrap();
        let run = root.agent().start(Delegate::new("deaf", "a child", "work")).await.unwrap();
        gate.reached().await;
        let began = tokio::time::Instant::now();
        for _ in 0..2 {
            let error = run.dispose().await.unwrap_err();
            assert!(matches!(&error, DisposeError::Cancel { session, .. } if session == run.id()), "{error}");
            assert_eq!(error.code(), "TIMED_OUT");
        }
        assert!(began.elapsed() < Duration::from_secs(10));
        gate.open(1);
        run.dispose().await.unwrap();
        assert!(matches!(run.result().await.unwrap().outcome, Ended::Aborted { .. }), "the first cause counts");
        quiet(&system.host()).await;
    });
}
