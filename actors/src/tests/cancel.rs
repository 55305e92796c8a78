//! Cancelling and waiting for idle where somebody else holds the session: another process, a host, nobody.

use std::time::Duration;

use greenroom_session::{
    event::{Body, EpochEnd},
    id::{MessageId, SessionId},
    store::Store,
};

use super::{
    audit::audit,
    support::{Barrier, Ledger, PATIENCE, Witness, ends, epochs, id, on_paused_time, play, quiet, simple},
};
use crate::{
    Config, Host, Publication, Turn, TurnEnd, TurnError,
    host::{Cancel, Cancelled, NewRoot},
    registry::RegistryMessage,
};

/// Registers `slow`, whose every turn waits at the gate until it is cancelled.
fn slow(gate: &Barrier) -> Config {
    let mut config = simple("root");
    let at = gate.clone();
    play(&mut config, "slow", move |turn: Turn| {
        let at = at.clone();
        async move {
            let cancelled = turn.cancelled();
            tokio::select! {
                () = cancelled.cancelled() => Err(TurnError::new("CANCELLED", "as asked")),
                () = at.pass() => Ok(TurnEnd::Completed),
            }
        }
    });
    config
}

fn message(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

async fn send(host: &Host, to: &SessionId, texts: &[&str]) {
    for text in texts {
        host.send(to, *text, Some(message(text))).await.unwrap();
    }
}

fn how(store: &Witness, session: &SessionId) -> Vec<(String, String)> {
    ends(store, session).into_iter().map(|(text, _, how)| (text, how)).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(text, how)| ((*text).to_owned(), (*how).to_owned())).collect()
}

/// Says what the poll of a store would say.
async fn poll(host: &Host, session: &SessionId) {
    for _ in 0..20 {
        tokio::time::sleep(host.services().config.poll_interval).await;
        drop(host.services().registry.send_message(RegistryMessage::Foreign { sessions: vec![session.clone()] }));
    }
}

#[test]
fn another_process_is_asked_for_each_message_and_for_the_turn() {
    for keep_inbox in [false, true] {
        let store = Witness::new();
        let child = store.child(&store.root("root", "root"), "child", "slow");
        let gate = Barrier::new();
        on_paused_time(async {
            let system = store.system(slow(&gate)).await;
            let host = system.host();
            let outside = store.peer().system(Config::default()).await.host();
            send(&host, &child, &["one", "two", "three"]).await;
            gate.reached().await;
            let cancel = async {
                let cancelled = outside.cancel(&child, Cancel { keep_inbox, ..Cancel::default() }).await.unwrap();
                gate.open(2);
                cancelled
            };
            let (cancelled, idle, ()) = tokio::join!(cancel, outside.when_idle(&child), poll(&host, &child));
            idle.unwrap();
            let (withdrawn, served) = if keep_inbox {
                (vec![], pairs(&[("one", "aborted"), ("two", "completed"), ("three", "completed")]))
            } else {
                (vec![message("two"), message("three")], pairs(&[("one", "aborted")]))
            };
            assert_eq!((cancelled.turn, cancelled.withdrawn), (Some(1), withdrawn));
            assert_eq!(how(&store, &child), served);
            assert_eq!(outside.cancel(&child, Cancel { keep_inbox, ..Cancel::default() }).await.unwrap(), Cancelled::default());
            quiet(&host).await;
        });
        assert_eq!(audit(&store, &Ledger::default(), true), Vec::<String>::new());
    }
}

#[test]
fn a_request_that_another_process_does_not_hear_in_time_is_told() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "slow");
    let gate = Barrier::new();
    on_paused_time(async {
        let system = store.system(slow(&gate)).await;
        let host = system.host();
        let outside = store.peer().system(Config::default()).await.host();
        send(&host, &child, &["one", "two"]).await;
        gate.reached().await;
        let soon = Cancel { patience: Duration::from_secs(1), ..Cancel::default() };
        assert_eq!(outside.cancel(&child, soon).await.unwrap_err().code(), "TIMED_OUT");
        let again = async { outside.cancel(&child, Cancel::default()).await.unwrap() };
        let (cancelled, ()) = tokio::join!(again, poll(&host, &child));
        assert_eq!((cancelled.turn, cancelled.withdrawn), (Some(1), vec![message("two")]));
        quiet(&host).await;
    });
    assert_eq!(how(&store, &child), pairs(&[("one", "aborted")]));
}

#[test]
fn what_a_host_plays_is_its_own_to_cancel() {
    let store = Witness::new();
    on_paused_time(async {
        let system = store.system(simple("root")).await;
        let host = system.host();
        let session = host.publish_session(Publication::root(id("played"), NewRoot::new("root", "played").opened)).await.unwrap();
        host.when_idle(&id("played")).await.unwrap();
        let turn = session.begin_turn("one", None).await.unwrap();
        session.flush().await.unwrap();
        for how in [Cancel::default(), Cancel { keep_inbox: true, ..Cancel::default() }] {
            assert_eq!(host.cancel(&id("played"), how).await.unwrap_err().code(), "NOT_RESUMABLE");
        }
        assert_eq!(host.when_idle(&id("played")).await.unwrap_err().code(), "NOT_RESUMABLE");
        for said in [host.steer(&id("played"), "x", None).await, host.inject(&id("played"), "x", None).await] {
            assert_eq!(said.unwrap_err().code(), "NOT_RESUMABLE");
        }
        let Body::TurnStart { turn, .. } = turn.body else { panic!("a turn begins with its start") };
        session.append(Body::TurnEnd { turn, reason: greenroom_session::event::TurnEnd::Completed }).unwrap();
        session.flush().await.unwrap();
        host.when_idle(&id("played")).await.unwrap();
        session.end().await.unwrap();
    });
}

#[test]
fn a_turn_that_ignores_its_cancellation_is_dropped_and_the_cancel_answered() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "deaf");
    let gate = Barrier::new();
    let mut config = simple("root");
    let at = gate.clone();
    play(&mut config, "deaf", move |_: Turn| {
        let at = at.clone();
        async move {
            at.pass().await;
            Ok(TurnEnd::Completed)
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        send(&host, &child, &["one", "two"]).await;
        gate.reached().await;
        // Both wait for the same end; who was first is what is recorded.
        let (first, second) = tokio::join!(host.cancel(&child, Cancel::default()), host.cancel(&child, Cancel::default()));
        assert_eq!((first.unwrap().turn, second.unwrap().turn), (Some(1), Some(1)));
        host.when_idle(&child).await.unwrap();
        quiet(&host).await;
    });
    assert_eq!(how(&store, &child), pairs(&[("one", "aborted")]));
    assert_eq!(epochs(&store, &child), [EpochEnd::Settled]);
    assert!(store.reader().unwrap().inbox(&child, 9).unwrap().is_empty());
}

#[test]
fn a_cancel_during_a_shutdown_takes_nothing_back() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "deaf");
    let gate = Barrier::new();
    let mut config = simple("root");
    let at = gate.clone();
    play(&mut config, "deaf", move |turn: Turn| {
        let at = at.clone();
        async move {
            turn.cancelled().cancelled().await;
            at.pass().await;
            Ok(TurnEnd::Completed)
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        send(&host, &child, &["one", "two"]).await;
        let view = loop {
            match host.services().live.get(&child) {
                Some(view) if view.log.look(|fold| fold.head().open.is_some()) => break view,
                _ => tokio::task::yield_now().await,
            }
        };
        let late = async {
            gate.reached().await;
            // Past the door, as one that was on its way when the shutdown began.
            let crate::live::Player::Agent(actor) = &view.player else { panic!("an agent plays it") };
            let (reply, answer) = tokio::sync::oneshot::channel();
            let call = crate::activation::Call { turn: None, keep_inbox: false, by: "user", reply };
            actor.send_message(crate::activation::ActivationMessage::Cancel(call)).unwrap();
            assert!(answer.await.is_err(), "it is not answered");
            assert_eq!(host.cancel(&child, Cancel { patience: PATIENCE, ..Cancel::default() }).await.unwrap_err().code(), "DRAINING");
            gate.open(1);
        };
        tokio::join!(system.shutdown(), late);
    });
    assert_eq!(how(&store, &child), pairs(&[("one", "disposed")]));
    let waits: Vec<_> = store.reader().unwrap().inbox(&child, 9).unwrap().iter().map(|record| record.message.id.clone()).collect();
    assert_eq!(waits, [message("two")]);
}
