//! What becomes of published sessions where the actors behind them end, and of publications that meet a start.

use std::{sync::Arc, time::Duration};

use greenroom_session::{
    event::{Body, EpochEnd, Opaque, TurnEnd},
    id::{MessageId, SessionId},
    message::{Message, Source},
    store::{Accept, Op, Store},
};

use super::support::{Barrier, Fault, Witness, epochs, on_paused_time, play, simple, until};
use crate::{Config, Host, Occurrence, Publication, PublishedSession, TurnEnd as End, services::Services};

async fn publish(host: &Host, session: &SessionId) -> PublishedSession {
    host.publish_session(Publication::stored(session.clone())).await.unwrap()
}

async fn next_generation(host: &Host, last: &Arc<Services>) {
    while Arc::ptr_eq(&host.services(), last) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_generation_that_dies_takes_its_handles_along_and_leaves_logs_that_can_be_published_again() {
    type Kill = fn(&Services);
    let victims: [(&str, Kill); 2] = [("journal", |services| services.journal.actor().kill()), ("registry", |services| services.registry.kill())];
    for (name, kill) in victims {
        for at_once in [true, false] {
            let store = Witness::new();
            let root = store.root("root", "worker");
            on_paused_time(async {
                let system = store.system(simple("worker")).await;
                let host = system.host();
                let session = publish(&host, &root).await;
                session.begin_turn("one", Some(MessageId::new("one").unwrap())).await.unwrap();
                session.flush().await.unwrap();
                let first = host.services();
                kill(&first);
                next_generation(&host, &first).await;
                let code = session.append(Body::StepStart { turn: 1, step: 1 }).unwrap_err().code();
                assert_eq!(code, "SESSION_NOT_LIVE", "{name}");
                assert_eq!((session.flush().await.unwrap_err().code(), session.end().await.unwrap_err().code()), (code, code));
                if !at_once {
                    // Nobody plays it: it does not count as running, and it is not run although its agent is known and its turn was cut off.
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    assert_eq!(store.store.reader().unwrap().leases(None).unwrap(), [], "{name}");
                    assert_eq!(host.live_count(), 0, "{name}");
                }
                let again = publish(&host, &root).await;
                drop(session);
                let retry = again.head().unwrap().retry.unwrap();
                assert_eq!((retry.message.as_str(), retry.attempts), ("one", 1), "{name}");
                again.begin_turn("one", Some(retry.message)).await.unwrap();
                again.append(Body::TurnEnd { turn: 2, reason: TurnEnd::Completed }).unwrap();
                again.end().await.unwrap();
                assert!(host.services().played.is_empty());
            });
            let expected: &[EpochEnd] = if at_once { &[EpochEnd::Lost, EpochEnd::Disposed] } else { &[EpochEnd::Lost, EpochEnd::Disposed, EpochEnd::Disposed] };
            assert_eq!(epochs(&store, &root), expected, "{name}");
        }
    }
}

#[test]
fn a_session_whose_actor_is_killed_is_let_go_of() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let host = system.host();
        let session = publish(&host, &root).await;
        host.services().live.get(&root).unwrap().cell().kill();
        assert_eq!(session.flush().await.unwrap_err().code(), "SESSION_NOT_LIVE");
        assert_eq!(session.append(Body::StepStart { turn: 1, step: 1 }).unwrap_err().code(), "SESSION_NOT_LIVE");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(store.store.reader().unwrap().leases(None).unwrap(), []);
        assert!(host.services().played.is_empty());
    });
    assert_eq!(epochs(&store, &root), [EpochEnd::Lost, EpochEnd::Settled]);
}

#[test]
fn a_publication_waits_for_a_look_that_finds_nothing_and_is_refused_by_one_that_finds_work() {
    for work in [false, true] {
        for moment in 0..12 {
            let store = Witness::new();
            let root = store.root("root", "slow");
            let gate = Barrier::new();
            let mut config = Config::default();
            let at = gate.clone();
            play(&mut config, "slow", move |_| {
                let at = at.clone();
                async move {
                    at.pass().await;
                    Ok(End::Completed)
                }
            });
            on_paused_time(async {
                let system = store.system(config).await;
                let host = system.host();
                if work {
                    let accept = Accept::new(root.clone(), Message::turn("m", "work", Source::User, 0).unwrap());
                    store.commit(&[Op::Accept(accept)]).unwrap().remove(0).unwrap();
                }
                host.services().wake(&root, None);
                for _ in 0..moment {
                    tokio::task::yield_now().await;
                }
                let published = host.publish_session(Publication::stored(root.clone())).await;
                if work {
                    assert_eq!(published.unwrap_err().code(), "SESSION_LIVE", "at moment {moment}");
                    gate.open(1);
                } else {
                    let published = published.unwrap();
                    published.end().await.unwrap();
                }
            });
        }
    }
}

#[test]
fn a_message_that_came_in_time_is_served_when_its_session_is_anybodys_again() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    let child = store.child(&root, "child", "worker");
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let host = system.host();
        let session = publish(&host, &root).await;
        let mut occurrences = host.subscribe();
        // The child settles, and tells its parent.
        host.send(&child, "hello", None).await.unwrap();
        until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::Ended { session, .. } if *session == child)).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(store.store.reader().unwrap().inbox(&root, 9).unwrap().len(), 1, "the notice waits");
        assert_eq!(store.opened(&root), 1);
        session.end().await.unwrap();
        until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::TurnEnded { session, .. } if *session == root)).await;
    });
    assert_eq!(store.store.reader().unwrap().inbox(&root, 9).unwrap().len(), 0);
}

#[test]
fn a_publication_whose_opening_is_not_known_to_be_written_is_let_go_of() {
    for written in [false, true] {
        let store = Witness::new();
        let root = store.root("root", "worker");
        store.fail(Fault { hits: |op| matches!(op, Op::Open(_)), written, indeterminate: true });
        on_paused_time(async {
            let system = store.system(simple("worker")).await;
            let host = system.host();
            let error = host.publish_session(Publication::stored(root.clone())).await.unwrap_err();
            assert_eq!(error.code(), "INDETERMINATE");
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(store.store.reader().unwrap().leases(None).unwrap(), []);
            publish(&host, &root).await.end().await.unwrap();
            assert!(host.services().played.is_empty());
        });
    }
}

#[test]
fn a_turn_of_a_host_leaves_no_message_behind_that_another_would_serve() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let host = system.host();
        let session = publish(&host, &root).await;
        // Whoever asks twice at once gets one turn.
        let (one, two) = tokio::join!(session.begin_turn("a", None), session.begin_turn("b", None));
        assert!(one.is_ok() != two.is_ok());
        session.end().await.unwrap();
    });
    assert_eq!(store.store.reader().unwrap().inbox(&root, 9).unwrap().len(), 0);
    assert_eq!(epochs(&store, &root), [EpochEnd::Disposed]);
}

#[test]
fn a_host_that_was_taken_for_dead_is_told_that_it_is_fenced_and_ends_nothing() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let host = system.host();
        let session = publish(&host, &root).await;
        let next = store.reopen();
        let heir = next.system(simple("worker")).await;
        let later = publish(&heir.host(), &root).await;
        let error = session.append(Body::Opaque(Opaque { name: "desk/tidied".into(), data: serde_json::json!({}) })).unwrap_err();
        assert_eq!(error.code(), "FENCED");
        assert_eq!(session.end().await.unwrap_err().code(), "FENCED");
        drop(session);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(host.services().played.is_empty());
        assert_eq!(host.live_count(), 0);
        later.end().await.unwrap();
    });
    assert_eq!(epochs(&store, &root), [EpochEnd::Lost, EpochEnd::Disposed]);
}

#[test]
fn a_message_for_what_a_host_has_lost_is_served_when_that_is_ended() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let host = system.host();
        let session = publish(&host, &root).await;
        let mut occurrences = host.subscribe();
        host.services().live.get(&root).unwrap().cell().kill();
        until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::Ended { .. })).await;
        // It is nobody's for a moment: what comes then is not refused.
        let id = loop {
            match host.send(&root, "hello", None).await {
                Ok(id) => break id,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::TurnEnded { .. })).await;
        assert!(store.events(&root).iter().any(|event| matches!(&event.body, Body::TurnStart { message, .. } if *message == id)));
        drop(session);
    });
}
