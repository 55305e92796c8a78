//! A listing wakes nobody, writes nothing, and waits for no Activation.

use greenroom_session::{
    event::Body,
    header::NewSession,
    listing::Reason,
    message::{Message, Source},
    store::{Accept, Create, Op, Store as _},
};
use tokio_util::sync::CancellationToken;

use super::support::{Barrier, Witness, descriptor, id, on_paused_time, play, quiet, simple};
use crate::{
    Config, System, TurnEnd,
    catalog::{Entry, Status},
    query::Page,
};

#[test]
fn a_list_wakes_nobody_and_writes_nothing() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    for name in ["a", "b", "c"] {
        let child = store.child(&root, name, "worker");
        // Something to do is no reason to do it.
        store.commit(&[Op::Accept(Accept::new(child, Message::turn("m", "work", Source::User, 0).unwrap()))]).unwrap();
    }
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let host = system.host();
        let before = store.commits();
        for verify in [false, true] {
            let listing = host.list(Some(&root), Page::default(), verify, CancellationToken::new()).await.unwrap();
            let shown: Vec<_> =
                listing.entries.iter().map(|entry| (entry.id().as_str(), entry.listed().unwrap().status, entry.listed().unwrap().pending)).collect();
            assert_eq!(shown, [("a", Status::Complete, 1), ("b", Status::Complete, 1), ("c", Status::Complete, 1)]);
        }
        host.trace(&root).await.unwrap();
        quiet(&host).await;
        assert_eq!((host.live_count(), store.commits()), (0, before));
        assert_eq!(store.opened(&id("a")), 0);
    });
}

#[test]
fn pages_follow_one_another_without_a_gap() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    let names: Vec<String> = (0..7).map(|number| format!("child {number}")).collect();
    for name in &names {
        store.child(&root, name, "worker");
    }
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let host = system.host();
        let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = Page { after: after.take(), limit: Some(3) };
            let listing = host.list(Some(&root), page, false, CancellationToken::new()).await.unwrap();
            seen.extend(listing.entries.iter().map(|entry| entry.id().to_string()));
            pages += 1;
            match listing.next_cursor {
                Some(cursor) => after = Some(cursor),
                None => break,
            }
        }
        assert_eq!((seen, pages), (names, 3));
    });
}

#[test]
fn a_hung_activation_does_not_stall_a_list() {
    let store = Witness::new();
    let root = store.root("root", "hung");
    store.child(&root, "child", "hung");
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
        for session in ["root", "child"] {
            host.send(&id(session), "hang", None).await.unwrap();
            gate.reached().await;
        }
        let asked = tokio::time::Instant::now();
        let listing = host.list(Some(&root), Page::default(), false, CancellationToken::new()).await.unwrap();
        assert_eq!(listing.entries[0].listed().unwrap().status, Status::Running);
        assert_eq!(asked.elapsed().as_millis(), 0);
        gate.open(9);
    });
}

#[test]
fn a_broken_child_is_a_diagnostic_beside_healthy_ones_and_a_plain_fork_is_none() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    store.child(&root, "a", "worker");
    let create = |name: &str, body: Option<serde_json::Value>| {
        let session = if body.is_some() { NewSession::child(id(name), root.clone(), 0) } else { NewSession::fork(id(name), root.clone()) };
        let bodies = body.map(Body::Descriptor).into_iter().chain([Body::EndSeed {}]);
        let events: Vec<_> = bodies.zip(0..).map(|(body, seq)| body.at(seq, 0)).collect();
        store.commit(&[Op::Create(Create { session, time: 0, events: events.into(), message: None })]).unwrap().remove(0).unwrap();
    };
    create("b", Some(serde_json::json!({"version": 99})));
    create("c", Some(serde_json::json!({"mode": "continuable"})));
    create("d", None);
    store.child(&root, "e", "worker");
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let host = system.host();
        for verify in [false, true] {
            let entries = host.list(Some(&root), Page::default(), verify, CancellationToken::new()).await.unwrap().entries;
            let shown: Vec<_> = entries
                .iter()
                .map(|entry| match entry {
                    Entry::Diagnostic { id, reason } => (id.as_str(), Some(*reason)),
                    other => (other.id().as_str(), None),
                })
                .collect();
            assert_eq!(shown, [("a", None), ("b", Some(Reason::Unsupported)), ("c", Some(Reason::Corrupt)), ("e", None)]);
        }
        // What is broken cannot be talked to, and says so; the healthy ones can.
        assert!(host.send(&id("a"), "hello", None).await.is_ok());
        assert_eq!(descriptor("a", "worker").label.as_deref(), Some("a"));
        quiet(&host).await;
    });
}

#[test]
fn a_cancelled_list_says_cancelled_and_one_without_a_query_service_says_which_is_missing() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let cancel = CancellationToken::new();
        cancel.cancel();
        let error = system.host().list(Some(&root), Page::default(), false, cancel).await.unwrap_err();
        assert_eq!(error.code(), "CANCELLED");
        let bare = System::start(simple("worker"), std::sync::Arc::new(store.peer()), false).await.unwrap();
        let host = bare.host();
        let error = host.list(Some(&root), Page::default(), false, CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.code(), "SUBAGENT_CONTROL_SESSION_QUERY_UNAVAILABLE");
        // Everything else works without it.
        host.send(&root, "hello", None).await.unwrap();
        quiet(&host).await;
    });
    assert_eq!(super::support::ends(&store, &root).len(), 1);
}

#[test]
fn a_list_of_nobodys_children_fails_as_a_whole() {
    let store = Witness::new();
    on_paused_time(async {
        let system = store.system(simple("worker")).await;
        let error = system.host().list(Some(&id("nobody")), Page::default(), false, CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.code(), "SESSION_QUERY_SESSION_NOT_FOUND");
    });
}
