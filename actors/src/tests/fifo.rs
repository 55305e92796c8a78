//! One message, one turn, in order.

use std::sync::Arc;

use futures::future::join_all;
use greenroom_session::id::MessageId;

use super::audit::audit;
use super::support::{Barrier, Ledger, Witness, ends, id, on_paused_time, play, quiet, simple};
use crate::{Config, TurnEnd};

#[test]
fn five_messages_to_a_busy_child_become_five_turns_in_order() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "slow");
    let gate = Barrier::new();
    let mut config = simple("root");
    let at = gate.clone();
    play(&mut config, "slow", move |_| {
        let at = at.clone();
        async move {
            at.pass().await;
            Ok(TurnEnd::Completed)
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        for number in 0..5 {
            host.send(&child, format!("message {number}"), None).await.unwrap();
        }
        for _ in 0..5 {
            gate.reached().await;
            gate.open(1);
        }
        quiet(&host).await;
    });
    let expected: Vec<_> = (0..5).map(|number| (format!("message {number}"), 1, "completed".to_owned())).collect();
    assert_eq!(ends(&store, &child), expected);
}

#[test]
fn a_thousand_messages_of_sixteen_senders_keep_each_senders_order() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "root");
    let ledger = Arc::new(Ledger::default());
    on_paused_time(async {
        let system = store.system(Config { inbox_limit: 2_000, ..simple("root") }).await;
        let host = system.host();
        join_all((0..16).map(|sender| {
            let (host, child, ledger) = (&host, &child, &ledger);
            async move {
                for number in 0..63 {
                    let id = host.send(child, format!("{sender}/{number}"), None).await.unwrap();
                    ledger.accepted(&sender.to_string(), child, id);
                    tokio::task::yield_now().await;
                }
            }
        }))
        .await;
        quiet(&host).await;
    });
    assert_eq!(audit(&store, &ledger, true), Vec::<String>::new());
    assert_eq!(ends(&store, &child).len(), 16 * 63);
}

#[test]
fn sixty_four_sends_to_a_cold_child_begin_one_epoch() {
    for _ in 0..20 {
        let store = Witness::new();
        let child = store.child(&store.root("root", "root"), "child", "held");
        let gate = Barrier::new();
        let mut config = simple("root");
        let at = gate.clone();
        play(&mut config, "held", move |_| {
            let at = at.clone();
            async move {
                at.pass().await;
                Ok(TurnEnd::Completed)
            }
        });
        on_paused_time(async {
            let system = store.system(config).await;
            let host = system.host();
            let sent = join_all((0..64).map(|number| host.send(&child, number.to_string(), None))).await;
            assert!(sent.iter().all(Result::is_ok));
            gate.open(64);
            quiet(&host).await;
        });
        assert_eq!(store.opened(&child), 1);
        assert_eq!(ends(&store, &child).len(), 64);
    }
}

#[test]
fn the_same_id_is_the_same_message_and_another_text_is_a_conflict() {
    let store = Witness::new();
    let child = store.child(&store.root("root", "root"), "child", "root");
    on_paused_time(async {
        let system = store.system(simple("root")).await;
        let host = system.host();
        let once = Some(MessageId::new("m1").unwrap());
        host.send(&child, "hello", once.clone()).await.unwrap();
        quiet(&host).await;
        // The message has had its turn; its name is kept.
        assert_eq!(host.send(&child, "hello", once.clone()).await.unwrap(), MessageId::new("m1").unwrap());
        assert_eq!(host.send(&child, "other", once).await.unwrap_err().code(), "MESSAGE_ID_CONFLICT");
        quiet(&host).await;
    });
    assert_eq!(ends(&store, &child), [("hello".to_owned(), 1, "completed".to_owned())]);
}

#[test]
fn a_message_to_nobody_is_refused_and_says_why() {
    let store = Witness::new();
    on_paused_time(async {
        let system = store.system(simple("root")).await;
        let error = system.host().send(&id("nobody"), "hello", None).await.unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), ("NOT_RESUMABLE", "subagent \"nobody\" is unavailable: there is no such session"));
    });
}
