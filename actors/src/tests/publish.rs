//! What becomes of published sessions where the actors behind them end, and of publications that meet a start.

use std::{cell::Cell, sync::Arc, time::Duration};

use greenroom_session::{
    event::{Body, EpochEnd, Opaque, TurnEnd},
    id::{MessageId, SessionId},
    message::{Message, Source},
    store::{Accept, Op, Store},
};

use super::support::{Barrier, Fault, Witness, epochs, on_paused_time, play, simple, until};
use crate::{Config, Host, Occurrence, Publication, PublishedSession, TurnEnd as End, race::plan, services::Services};

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

/// Publishes a session as soon as it is nobody's, and has its host serve a message once more if that has had no end. Tells whether it had to.
async fn serve_again(host: &Host, root: &SessionId, message: &MessageId) -> bool {
    let session = loop {
        match host.publish_session(Publication::stored(root.clone())).await {
            Ok(session) => break session,
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    let begun = session.begin_turn("one", Some(message.clone())).await;
    match &begun {
        Ok(begun) => {
            let Body::TurnStart { turn, message: of, .. } = &begun.body else { panic!("a turn begins with its start") };
            assert_eq!(of, message);
            session.append(Body::TurnEnd { turn: *turn, reason: TurnEnd::Completed }).unwrap();
        }
        // Whoever was there meanwhile has served it.
        Err(error) => assert!(error.to_string().contains("has had its turn"), "{error}"),
    }
    session.end().await.unwrap();
    begun.is_ok()
}

/// What dies while a host begins a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dies {
    Publication,
    Journal,
    Registry,
    Process,
}

/// Has a host begin a turn and something die at a point on its way; then the host comes back, at once or later. Returns whether it had to serve the message itself
/// then, and whether that had been accepted without a turn before.
fn a_host_begins_a_turn_and(dies: Dies, at: u64, at_once: bool) -> (bool, bool) {
    let what = format!("{dies:?} at point {at}, at once: {at_once}");
    let mut store = Witness::new();
    let root = store.root("root", "worker");
    let message = MessageId::new("one").unwrap();
    let (between, told_of_it) = (Cell::new(false), Cell::new(false));
    let look = |store: &Witness| {
        let waits = !store.store.reader().unwrap().inbox(&root, 9).unwrap().is_empty();
        between.set(waits && !store.events(&root).iter().any(|event| matches!(event.body, Body::TurnStart { .. })));
    };
    plan::begin(at);
    let again = if dies == Dies::Process {
        let first = store.clone();
        on_paused_time(async {
            let system = first.system(simple("worker")).await;
            let session = publish(&system.host(), &root).await;
            let crash = plan::crash_after(Some(at));
            tokio::select! {
                biased;
                () = crash.notified() => {}
                begun = session.begin_turn("one", Some(message.clone())) => told_of_it.set(begun.is_ok()),
            }
        });
        look(&store);
        plan::crash_after(None);
        store = store.reopen();
        on_paused_time(async {
            let system = store.system(simple("worker")).await;
            if !at_once {
                system.host().recover(None).await.unwrap();
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            serve_again(&system.host(), &root, &message).await
        })
    } else {
        on_paused_time(async {
            let system = store.system(simple("worker")).await;
            let host = system.host();
            let session = publish(&host, &root).await;
            let first = host.services();
            let told = plan::tell_after(at);
            let death = async {
                // Where the turn has begun before that many points it dies then.
                tokio::select! {
                    biased;
                    () = told.notified() => {}
                    () = tokio::time::sleep(Duration::from_millis(1)) => {}
                }
                match dies {
                    Dies::Journal => first.journal.actor().kill(),
                    Dies::Registry => first.registry.kill(),
                    _ => first.live.get(&root).unwrap().cell().kill(),
                }
                look(&store);
            };
            let (begun, ()) = tokio::join!(session.begin_turn("one", Some(message.clone())), death);
            told_of_it.set(begun.is_ok());
            plan::crash_after(None);
            if !at_once {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            let again = serve_again(&host, &root, &message).await;
            drop(session);
            again
        })
    };
    plan::end();
    // Whatever died: one message, one turn.
    let events = store.events(&root);
    let finals = events.iter().filter(|event| matches!(&event.body, Body::TurnEnd { reason, .. } if reason.is_final())).count();
    let shown = events.iter().filter(|event| event.body.type_name() == "user/message").count();
    assert_eq!((finals, shown), (1, 1), "{what}: {events:?}");
    assert_eq!(store.store.reader().unwrap().inbox(&root, 9).unwrap(), [], "{what}");
    let starts = events.iter().filter(|event| matches!(event.body, Body::TurnStart { .. })).count();
    assert!(!told_of_it.get() || starts == 2, "{what}: what the host was told had begun was cut off, and begins again: {events:?}");
    (again, between.get())
}

#[test]
fn a_host_that_dies_at_any_point_of_beginning_a_turn_has_its_message_served_once() {
    for dies in [Dies::Publication, Dies::Journal, Dies::Registry, Dies::Process] {
        let (mut by_host, mut by_agent, mut between) = (0, 0, 0);
        for at in 0..24 {
            for at_once in [true, false] {
                let (again, was_between) = a_host_begins_a_turn_and(dies, at, at_once);
                *(if again { &mut by_host } else { &mut by_agent }) += 1;
                between += usize::from(was_between);
            }
        }
        assert!(between > 0, "{dies:?}: nobody died between the acceptance and the turn; {by_host} served by the host, {by_agent} by the agent");
    }
}

#[test]
fn a_turn_that_cannot_begin_any_more_takes_its_message_back() {
    let mut came_between = 0;
    for at in 0..12 {
        let store = Witness::new();
        let root = store.root("root", "worker");
        let (one, two) = (MessageId::new("one").unwrap(), MessageId::new("two").unwrap());
        plan::begin(at);
        on_paused_time(async {
            let system = store.system(simple("worker")).await;
            let host = system.host();
            let session = publish(&host, &root).await;
            session.begin_turn("one", Some(one)).await.unwrap();
            session.append(Body::TurnEnd { turn: 1, reason: TurnEnd::Completed }).unwrap();
            session.flush().await.unwrap();
            let shown = store.events(&root).into_iter().find(|event| event.body.is_surface()).unwrap().seq;
            let told = plan::tell_after(at);
            let compaction = async {
                tokio::select! {
                    biased;
                    () = told.notified() => {}
                    () = tokio::time::sleep(Duration::from_millis(1)) => {}
                }
                session.plan_compaction(shown, shown).is_ok()
            };
            let (begun, compacting) = tokio::join!(session.begin_turn("two", Some(two.clone())), compaction);
            plan::crash_after(None);
            assert!(compacting, "at point {at}");
            if begun.is_err() {
                came_between += usize::from(store.brought(&two) > 0);
                session.flush().await.unwrap();
                assert_eq!(store.store.reader().unwrap().inbox(&root, 9).unwrap(), [], "at point {at}");
            }
            session.end().await.unwrap();
            // Nor does anybody serve it who comes later.
            let known = host.send(&root, "later", None).await.unwrap();
            host.quiescent(&root).await.unwrap();
            let served: Vec<_> = store
                .events(&root)
                .into_iter()
                .filter_map(|event| if let Body::TurnStart { message, .. } = event.body { Some(message) } else { None })
                .collect();
            assert_eq!(served.contains(&two), begun.is_ok(), "at point {at}: {served:?}");
            assert!(served.contains(&known));
        });
        plan::end();
    }
    assert!(came_between > 0, "no compaction came between an acceptance and its turn");
}
