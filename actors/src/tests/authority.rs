//! Who may do what to whom.

use std::sync::{Arc, Mutex};

use greenroom_session::{
    message::{Message, Source},
    store::{Accept, Op, Store as _},
};
use tokio_util::sync::CancellationToken;

use super::support::{Barrier, PATIENCE, Witness, ends, id, lock, on_paused_time, play, quiet, simple, until};
use crate::{Agent, Config, Delegate, Occurrence, Turn, TurnEnd};

/// Registers `keeper`, which gives its turn away.
fn keeper(config: &mut Config) -> Arc<Mutex<Vec<Turn>>> {
    let kept: Arc<Mutex<Vec<Turn>>> = Arc::default();
    let keep = kept.clone();
    play(config, "keeper", move |turn| {
        lock(&keep).push(turn);
        async { Ok(TurnEnd::Completed) }
    });
    kept
}

async fn grants_nothing(agent: &Agent, child: &str) {
    let child = id(child);
    assert_eq!(agent.followup(&child, "x").await.unwrap_err().code(), "UNAUTHORIZED");
    assert_eq!(agent.report("x", false).await.unwrap_err().code(), "UNAUTHORIZED");
    assert_eq!(agent.interrupt(&child, PATIENCE).await.unwrap_err().code(), "UNAUTHORIZED");
    assert_eq!(agent.start_continuable(Delegate::new("keeper", "l", "p")).await.unwrap_err().code(), "UNAUTHORIZED");
    assert_eq!(agent.list_children(CancellationToken::new()).await.unwrap_err().code(), "UNAUTHORIZED");
}

#[test]
fn a_turn_used_after_its_end_grants_nothing_and_writes_nothing() {
    let store = Witness::new();
    let root = store.root("root", "keeper");
    let middle = store.child(&root, "middle", "keeper");
    store.child(&middle, "child", "keeper");
    let mut config = Config::default();
    let kept = keeper(&mut config);
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        // Kept live, so that it is the turn that has ended and not the epoch.
        let _handle = host.keep(&middle).await.unwrap();
        host.send(&middle, "go", None).await.unwrap();
        quiet(&host).await;
        let turn = lock(&kept)[0].clone();
        let before = store.commits();
        grants_nothing(&turn.agent(), "child").await;
        for error in [
            turn.say("x").unwrap_err(),
            turn.memo("x").unwrap_err(),
            turn.record("k", "x").await.unwrap_err(),
            turn.record_answer("x").await.unwrap_err(),
            turn.step().await.unwrap_err(),
            turn.join_notes().await.unwrap_err(),
            turn.await_children().await.unwrap_err(),
            turn.delegate_and_wait(Delegate::new("keeper", "l", "p")).await.unwrap_err(),
        ] {
            assert_eq!(error.code, "TURN_ENDED");
        }
        assert_eq!(store.commits(), before);
        host.send(&middle, "the next turn is unhurt", None).await.unwrap();
        quiet(&host).await;
        // What the next turn left is not for it to read either.
        let read = (turn.message(), turn.text(), turn.notes(), turn.history(), turn.rank(), turn.recorded("k"), turn.answer());
        assert_eq!(read, (None, String::new(), Vec::new(), Vec::new(), None, None, None));
    });
    assert_eq!(super::support::ends(&store, &middle).len(), 2);
}

#[test]
fn the_agent_of_an_epoch_that_is_over_grants_nothing() {
    let store = Witness::new();
    let root = store.root("root", "keeper");
    store.child(&root, "child", "keeper");
    let mut config = Config::default();
    keeper(&mut config);
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        let handle = host.resume(&root).await.unwrap();
        let old = handle.agent();
        old.followup(&id("child"), "while it is live").await.unwrap();
        drop(handle);
        quiet(&host).await;
        grants_nothing(&old, "child").await;
        // The same session, live again, in another epoch.
        let handle = host.resume(&root).await.unwrap();
        grants_nothing(&old, "child").await;
        handle.agent().followup(&id("child"), "by the new one").await.unwrap();
        quiet(&host).await;
    });
    assert_eq!(super::support::ends(&store, &id("child")).len(), 2);
}

#[test]
fn a_stranger_may_not_send_to_anothers_child_nor_anybody_to_himself_or_above() {
    let store = Witness::new();
    let root = store.root("root", "keeper");
    let stranger = store.root("stranger", "keeper");
    let child = store.child(&root, "child", "keeper");
    store.child(&child, "grandchild", "keeper");
    let mut config = Config::default();
    keeper(&mut config);
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        let (root, stranger) = (host.resume(&root).await.unwrap(), host.resume(&stranger).await.unwrap());
        let code = |error: crate::error::DeliverError| error.code();
        assert_eq!(stranger.agent().followup(&id("child"), "x").await.map_err(code), Err("UNAUTHORIZED"));
        assert_eq!(stranger.agent().interrupt(&id("child"), PATIENCE).await.map_err(|error| error.code()), Err("UNAUTHORIZED"));
        // A grandparent is not the parent.
        assert_eq!(root.agent().followup(&id("grandchild"), "x").await.map_err(code), Err("UNAUTHORIZED"));
        // A root is nobody's child, its own neither.
        assert_eq!(root.agent().followup(&id("root"), "x").await.map_err(code), Err("UNAUTHORIZED"));
        assert_eq!(root.agent().followup(&id("nobody"), "x").await.map_err(code), Err("NOT_RESUMABLE"));
        assert_eq!(root.agent().report("x", false).await.map_err(code), Err("UNAUTHORIZED"));
        quiet(&host).await;
    });
    assert_eq!(super::support::ends(&store, &id("child")), []);
}

#[test]
fn an_interrupt_by_the_parent_ends_the_childs_turn_and_its_queue_goes_on() {
    let store = Witness::new();
    let root = store.root("root", "root");
    let child = store.child(&root, "child", "slow");
    let gate = Barrier::new();
    let mut config = simple("root");
    let at = gate.clone();
    play(&mut config, "slow", move |turn: Turn| {
        let at = at.clone();
        async move {
            let cancelled = turn.cancelled();
            tokio::select! {
                () = cancelled.cancelled() => {}
                () = at.pass() => {}
            }
            Ok(TurnEnd::Completed)
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        let handle = host.resume(&root).await.unwrap();
        for text in ["one", "two"] {
            handle.agent().followup(&child, text).await.unwrap();
        }
        gate.reached().await;
        assert_eq!(handle.agent().interrupt(&child, PATIENCE).await.unwrap(), 1);
        gate.reached().await;
        gate.open(1);
        quiet(&host).await;
    });
    let how: Vec<_> = super::support::ends(&store, &child).into_iter().map(|(text, _, how)| (text, how)).collect();
    assert_eq!(how, [("one".to_owned(), "aborted".to_owned()), ("two".to_owned(), "completed".to_owned())]);
}

#[test]
fn an_id_that_is_taken_makes_nobody_a_parent_and_wakes_nobody() {
    let store = Witness::new();
    let other = store.root("other", "worker");
    let taken = store.child(&other, "taken", "worker");
    let work = Message::turn("work", "work", Source::User, 0).unwrap();
    store.commit(&[Op::Accept(Accept::new(taken.clone(), work))]).unwrap().remove(0).unwrap();
    let gate = Barrier::new();
    let boss = store.root("boss", "boss");
    let mut config = Config::default();
    let at = gate.clone();
    play(&mut config, "worker", move |_| {
        let at = at.clone();
        async move {
            at.pass().await;
            Ok(TurnEnd::Completed)
        }
    });
    play(&mut config, "boss", |turn: Turn| async move {
        for name in ["taken", "other"] {
            let error = turn.delegate(Delegate::new("worker", "l", "p").child(id(name))).await.unwrap_err();
            assert_eq!(error.code(), "DUPLICATE_CHILD", "{name}");
        }
        turn.await_children().await?;
        Ok(TurnEnd::Completed)
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        host.send(&other, "work", None).await.unwrap();
        gate.reached().await;
        let mut occurrences = host.subscribe();
        host.send(&boss, "go", None).await.unwrap();
        until(&mut occurrences, |told| matches!(told, Occurrence::Ended { session, .. } if *session == boss)).await;
        assert_eq!((ends(&store, &boss), store.opened(&taken)), (vec![("go".to_owned(), 1, "completed".to_owned())], 0));
        // Whoever is wrong about whose child it is has nobody stay for it.
        host.send(&boss, "go", None).await.unwrap();
        host.services().wake(&taken, Some(&boss));
        gate.reached().await;
        until(&mut occurrences, |told| matches!(told, Occurrence::Ended { session, .. } if *session == boss)).await;
        assert_eq!(store.opened(&taken), 1);
        gate.open(9);
        quiet(&host).await;
        assert_eq!(host.live_count(), 0);
    });
}
