//! Many senders at once: order per sender, one epoch per cold child, also from two processes.

use std::{collections::HashMap, path::Path, process::Command, sync::Arc};

use greenroom::{Delegate, RootHandle, Runtime, RuntimeBuilder, SessionId, Turn, TurnEnd, session::event::Body};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::audit;

/// A runtime whose children serve in the order of their inbox and whose root only exists.
fn cast() -> RuntimeBuilder {
    Runtime::builder().closure("desk", |_turn: Turn| async { Ok(TurnEnd::Completed) }).closure("clerk", |_turn: Turn| async { Ok(TurnEnd::Completed) })
}

async fn clerks(root: &RootHandle, count: usize) -> Vec<SessionId> {
    let mut children = Vec::new();
    for n in 0..count {
        children.push(root.agent().start_continuable(Delegate::new("clerk", format!("clerk {n}"), "begin")).await.unwrap().child);
    }
    root.quiescent().await.unwrap();
    children
}

const SENDERS: usize = 8;
const PER_SENDER: usize = 63;

/// One sender: a numbered message to each child in turn. A full inbox is asked again, as an outside sender would.
async fn send_numbered(host: greenroom::Host, name: String, children: Vec<SessionId>) {
    for n in 0..PER_SENDER {
        let child = &children[n % children.len()];
        loop {
            match host.send(child, format!("{name} {n}"), None).await {
                Ok(_) => break,
                Err(error) if error.code() == "BUSY" => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

async fn all_senders(host: &greenroom::Host, process: &str, children: &[SessionId]) {
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        senders.spawn(send_numbered(host.clone(), format!("{process}{sender}"), children.to_vec()));
    }
    while let Some(done) = senders.join_next().await {
        done.unwrap();
    }
}

/// The second process of [`a_thousand_follow_ups_from_sixteen_senders_in_two_processes_keep_each_senders_order`]; does nothing by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_process() {
    let Ok(url) = std::env::var("GREENROOM_TEST_SECOND_PROCESS") else { return };
    let children: Vec<SessionId> = std::env::var("GREENROOM_TEST_CHILDREN").unwrap().split(',').map(|id| id.parse().unwrap()).collect();
    let runtime = cast().open(&url).await.unwrap();
    all_senders(&runtime.host(), "b", &children).await;
    runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_follow_ups_from_sixteen_senders_in_two_processes_keep_each_senders_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("desk.db");
    let url = format!("sqlite:{}", store.display());
    let runtime = cast().open(&url).await.unwrap();
    let root = runtime.root("desk", "senders").await.unwrap();
    let children = clerks(&root, 5).await;
    let list = children.iter().map(SessionId::as_str).collect::<Vec<_>>().join(",");
    let mut second = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "senders::second_process"])
        .env("GREENROOM_TEST_SECOND_PROCESS", &url)
        .env("GREENROOM_TEST_CHILDREN", list)
        .spawn()
        .unwrap();
    all_senders(&runtime.host(), "a", &children).await;
    let status = tokio::task::spawn_blocking(move || second.wait()).await.unwrap().unwrap();
    assert!(status.success());
    root.quiescent().await.unwrap();
    runtime.shutdown().await;
    check_order(&store, 2 * SENDERS * PER_SENDER);
}

/// Checks in plain SQL that every numbered message was served, and each sender's in its order.
pub(crate) fn check_order(store: &Path, expected: usize) {
    let sessions = audit::read(store);
    let mut served = 0;
    for session in &sessions {
        session.check();
        let mut last: HashMap<String, usize> = HashMap::new();
        for (_, data) in session.of("user/message") {
            let text = data["content"][0]["text"].as_str().unwrap();
            let Some((sender, number)) = text.split_once(' ').filter(|(sender, _)| sender.len() == 2) else { continue };
            let number: usize = number.parse().unwrap();
            if let Some(before) = last.insert(sender.to_owned(), number) {
                assert!(before < number, "{}: {sender} sent {number} after {before}", session.id);
            }
            served += 1;
        }
        assert!(session.inbox.iter().all(|accepted| !accepted.pending), "{}: something is still pending", session.id);
    }
    assert_eq!(served, expected);
}

/// Sends 64 messages at once to each of many settled children, none of which may end its first turn before all are accepted.
async fn one_epoch_each(url: &str, count: usize) {
    const AT_ONCE: usize = 64;
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let runtime = Runtime::builder()
        .closure("desk", |_turn: Turn| async { Ok(TurnEnd::Completed) })
        .closure("clerk", move |turn: Turn| {
            let held = held.clone();
            async move {
                if turn.text() != "begin" {
                    drop(held.acquire().await);
                }
                Ok(TurnEnd::Completed)
            }
        })
        .max_live(count)
        .open(url)
        .await
        .unwrap();
    let root = runtime.root("desk", "cold children").await.unwrap();
    let children = clerks(&root, count).await;
    let mut sends = JoinSet::new();
    for child in &children {
        for n in 0..AT_ONCE {
            let (agent, child) = (root.agent(), child.clone());
            sends.spawn(async move { agent.followup(&child, n.to_string()).await.unwrap() });
        }
    }
    while let Some(sent) = sends.join_next().await {
        sent.unwrap();
    }
    gate.add_permits(Semaphore::MAX_PERMITS);
    root.quiescent().await.unwrap();
    for child in &children {
        let events = runtime.read_events(child).await.unwrap();
        let count = |wanted: fn(&Body) -> bool| events.iter().filter(|event| wanted(&event.body)).count();
        assert_eq!(count(|body| matches!(body, Body::ActivationStart { .. })), 2, "one epoch for the first message, one for all others");
        assert_eq!(count(|body| matches!(body, Body::TurnEnd { .. })), 1 + AT_ONCE);
    }
    runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_sends_at_once_to_each_of_a_thousand_cold_children_open_one_epoch_each() {
    one_epoch_each("memory:", 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_sends_at_once_to_cold_children_on_disk_open_one_epoch_each() {
    let folder = tempfile::tempdir().unwrap();
    one_epoch_each(&format!("sqlite:{}", folder.path().join("desk.db").display()), 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_sends_at_once_to_cold_children_in_json_lines_open_one_epoch_each() {
    let folder = tempfile::tempdir().unwrap();
    one_epoch_each(&format!("jsonl:{}", folder.path().join("desk").display()), 60).await;
}
