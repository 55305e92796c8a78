//! Worlds in which parents are replaced, and callers give up, while children are started and sent to.

use std::sync::{Arc, Mutex};

use futures::future::join_all;
use greenroom_session::{
    fold::DescriptorState,
    id::{MessageId, SessionId},
    store::{MessageState, Reader, Store},
};
use tokio_util::sync::CancellationToken;

use super::cast::{config, dawdle, look_for_leaks};
use crate::{
    Agent, Delegate, RootHandle,
    error::StartError,
    race::plan::{self, roll},
    tests::{
        audit::audit,
        support::{Ledger, Witness, id, lock, on_paused_time, quiet},
    },
};

/// What was refused for one of these reasons, and must be nowhere.
#[derive(Debug, Default)]
struct Refused(Mutex<Vec<(SessionId, MessageId)>>);

impl Refused {
    fn judge(&self, store: &Witness, ledger: &Ledger) {
        let mut reader = store.reader().unwrap();
        for (session, message) in lock(&self.0).iter() {
            match reader.message(session, message) {
                Ok(None) => {}
                found => ledger.complain(format!("{message} to {session} was refused and is there: {found:?}")),
            }
        }
    }
}

/// Sends `count` follow-ups to random children; every other one may be given up.
async fn follow_up(agent: &Agent, name: &str, children: &[SessionId], count: u32, allowed: &[&str], ledger: &Ledger, refused: &Refused) {
    for number in 0..count {
        dawdle().await;
        let child = &children[usize::try_from(roll(u32::try_from(children.len()).unwrap())).unwrap()];
        let message = MessageId::new(format!("{name} {number}")).unwrap();
        match agent.followup_as(message.clone(), child, format!("{name} {number}")).await {
            Ok(message) => ledger.accepted(name, child, message),
            Err(error) if allowed.contains(&error.code()) => lock(&refused.0).push((child.clone(), message)),
            Err(error) => ledger.complain(format!("{name} could not follow up: {error}")),
        }
    }
}

/// What these senders were told is accepted came with no later commit than this one.
fn came_before(store: &Witness, ledger: &Ledger, senders: impl Fn(&str) -> bool, last: u64) {
    for (sender, child, message) in lock(&ledger.accepted).iter().filter(|(sender, ..)| senders(sender)) {
        let came = store.brought(message);
        if came > last {
            lock(&ledger.complaints).push(format!("{message} of {sender} to {child} came with commit {came}, and nothing of it may after {last}"));
        }
    }
}

pub(super) fn parent_replaced_while_a_child_resumes(store: &Witness, ledger: &Arc<Ledger>) {
    let refused = Refused::default();
    on_paused_time(async {
        let root = store.root("root", "worker");
        let children = ["a", "b"].map(|name| store.child(&root, name, "worker"));
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let first = host.resume(&root).await.unwrap();
        let old = first.agent();
        let replaced = async {
            dawdle().await;
            drop(first);
            dawdle().await;
            let second: RootHandle = host.resume(&root).await.unwrap();
            // Another epoch means that the old one grants nothing, for good.
            let last = (second.agent().epoch() != old.epoch()).then(|| store.commits());
            follow_up(&second.agent(), "new", &children, 3, &[], ledger, &refused).await;
            last
        };
        let sends = ["x", "y"].map(|name| follow_up(&old, name, &children, 3, &["UNAUTHORIZED", "ACTIVATION_CLOSING"], ledger, &refused));
        let (last, _) = tokio::join!(replaced, join_all(sends));
        came_before(store, ledger, |sender| ["x", "y"].contains(&sender), last.unwrap_or(u64::MAX));
        quiet(&host).await;
        look_for_leaks(&host, ledger);
    });
    refused.judge(store, ledger);
}

pub(super) fn cancel_against_acceptance(store: &Witness, ledger: &Arc<Ledger>) {
    let refused = Refused::default();
    on_paused_time(async {
        let root = store.root("root", "worker");
        let children = ["a", "b"].map(|name| store.child(&root, name, "worker"));
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let handle = host.resume(&root).await.unwrap();
        let tokens = [CancellationToken::new(), CancellationToken::new()];
        let gives_up = async {
            let mut last = [0, 0];
            for (token, last) in tokens.iter().zip(&mut last) {
                for _ in 0..roll(8) {
                    dawdle().await;
                }
                token.cancel();
                *last = store.commits();
            }
            last
        };
        let one = async { follow_up(&handle.agent().cancellable(tokens[0].clone()), "x", &children, 4, &["CANCELLED"], ledger, &refused).await };
        let starts = async {
            let agent = handle.agent().cancellable(tokens[1].clone());
            for number in 0..3 {
                dawdle().await;
                match agent.start_continuable(Delegate::new("worker", format!("started {number}"), "begin")).await {
                    Ok(delegated) => ledger.accepted(&format!("start {number}"), &delegated.child, delegated.message),
                    Err(StartError::Cancelled) => {}
                    Err(error) => ledger.complain(format!("a child could not be started: {error}")),
                }
            }
        };
        let ([sent, started], ..) = tokio::join!(gives_up, one, starts);
        came_before(store, ledger, |sender| sender == "x", sent);
        came_before(store, ledger, |sender| sender.starts_with("start "), started);
        // Whoever has not given up is heard; this also keeps the world from promising nothing.
        follow_up(&handle.agent(), "last", &children, 1, &[], ledger, &refused).await;
        drop(handle);
        quiet(&host).await;
        look_for_leaks(&host, ledger);
        let started = lock(&ledger.accepted).iter().filter(|(sender, ..)| sender.starts_with("start ")).count();
        let there = store.reader().unwrap().children(Some(&root), None, 99).unwrap().len();
        if there != children.len() + started {
            ledger.complain(format!("{started} children were started, and {there} are there with the first two"));
        }
    });
    refused.judge(store, ledger);
}

/// What a caller was about to do when it was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Start,
    FollowUp,
    Send,
}

/// A call that is dropped at any point has done all of what it was to do, which then is served, or nothing of it.
#[test]
fn a_call_that_is_dropped_at_any_point_has_been_accepted_whole_or_not_at_all() {
    for call in [Call::Start, Call::FollowUp, Call::Send] {
        for seed in 0..3_u64 {
            let (mut accepted, mut absent) = (0, 0);
            for point in 0_u64.. {
                let (store, ledger) = (Witness::new(), Arc::new(Ledger::default()));
                let root = store.root("root", "worker");
                let child = store.child(&root, "a", "worker");
                let sent = MessageId::new("sent").unwrap();
                plan::begin(seed);
                let is_over = on_paused_time(async {
                    let system = store.system(config(&ledger)).await;
                    let host = system.host();
                    let handle = host.resume(&root).await.unwrap();
                    quiet(&host).await;
                    let told = plan::tell_after(point);
                    let agent = handle.agent();
                    let call = async {
                        match call {
                            Call::Start => drop(agent.start_continuable(Delegate::new("worker", "new", "begin")).await.unwrap()),
                            Call::FollowUp => drop(agent.followup_as(sent.clone(), &child, "more").await.unwrap()),
                            Call::Send => drop(host.send(&child, "more", Some(sent.clone())).await.unwrap()),
                        }
                        plan::roll(2)
                    };
                    let is_over = tokio::select! {
                        biased;
                        () = told.notified() => false,
                        _ = call => true,
                    };
                    plan::crash_after(None);
                    drop(handle);
                    quiet(&host).await;
                    look_for_leaks(&host, &ledger);
                    is_over
                });
                plan::end();
                let mut reader = store.reader().unwrap();
                let children: Vec<_> = reader.children(Some(&root), None, 9).unwrap().into_iter().map(|found| found.id).collect();
                for born in &children {
                    let fold = reader.folded(born).unwrap();
                    assert!(matches!(fold.descriptor(), DescriptorState::One { parsed: Ok(_), .. }), "{call:?}, seed {seed}, point {point}: half a child");
                }
                let done = match call {
                    Call::Start => children.len() == 2,
                    _ => is_served(&mut *reader, &child, &sent),
                };
                assert!(done || !is_over, "{call:?}, seed {seed}, point {point}: what was answered is there");
                *(if done { &mut accepted } else { &mut absent }) += 1;
                // Nothing that is there is left lying about.
                assert_eq!(audit(&store, &ledger, true), Vec::<String>::new(), "{call:?}, seed {seed}, dropped at point {point}");
                if is_over {
                    break;
                }
            }
            assert!(accepted > 0, "{call:?}, seed {seed}");
            assert!(absent > 0 || call == Call::Send, "{call:?}, seed {seed}: no drop came before the acceptance");
        }
    }
}

fn is_served(reader: &mut dyn Reader, session: &SessionId, message: &MessageId) -> bool {
    match reader.message(session, message).unwrap() {
        None => false,
        Some(MessageState::Taken(_)) => true,
        Some(_) => panic!("{message} waits and nobody comes"),
    }
}

#[test]
fn what_nobody_waits_for_any_more_is_not_looked_for_for_ever() {
    let store = Witness::new();
    let root = store.root("root", "worker");
    on_paused_time(async {
        let system = store.system(config(&Arc::default())).await;
        let host = system.host();
        {
            let mut resuming = Box::pin(host.resume(&root));
            assert!(futures::poll!(&mut resuming).is_pending());
        }
        let rests = tokio::select! {
            biased;
            () = quiet(&host) => true,
            () = async { for _ in 0..5_000 { tokio::task::yield_now().await } } => false,
        };
        assert!(rests, "a root that has nothing to do is looked at again and again");
        assert_eq!(store.opened(&id("root")), 0);
    });
}
