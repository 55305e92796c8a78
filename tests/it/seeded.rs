//! A seed given to the library: the same seed over the same logs leaves the same logs, on every store.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use greenroom::{Delegate, OpenError, Runtime, RuntimeBuilder, SessionId, Turn, TurnEnd, rand::RngExt, seeded, session::digest::StoreDigest};

/// A desk with clerks that sleep, draw, report, and delegate once more: everything whose order could differ.
fn cast() -> RuntimeBuilder {
    let desk = |turn: Turn| async move {
        if turn.message().is_some() {
            for number in 0..20 {
                turn.delegate(Delegate::new("clerk", format!("clerk {number}"), turn.text())).await?;
            }
            turn.await_children().await?;
            for entry in turn.list_agents().await? {
                turn.send_message(entry.id(), "once more").await?;
            }
        }
        turn.say(turn.notes().iter().map(|note| greenroom::session::message::text_of(&note.content)).collect::<Vec<_>>().join("; "))?;
        Ok(TurnEnd::Completed)
    };
    let clerk = |turn: Turn| async move {
        if turn.message().is_none() {
            return Ok(TurnEnd::Completed);
        }
        let mut rng = turn.rng();
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..1_000))).await;
        if turn.depth() < 2 && rng.random() {
            turn.delegate(Delegate::new("clerk", "an assistant", "assist")).await?;
        }
        turn.report(format!("{} drew {}", turn.label().unwrap_or_default(), rng.random::<u16>()), rng.random()).await?;
        turn.memo(turn.now_ms().to_string())?;
        Ok(TurnEnd::Completed)
    };
    Runtime::builder().closure("desk", desk).closure("clerk", clerk).max_live(3)
}

/// Plays the desk once over a store and returns the root and what the store then holds.
fn play(url: &str, seed: u64, root: Option<&SessionId>, text: &str) -> (SessionId, StoreDigest) {
    seeded::block_on(async {
        let runtime = cast().seed(seed).open(url).await.unwrap();
        let root = match root {
            Some(root) => runtime.resume(root).await.unwrap(),
            None => runtime.root("desk", "a desk").await.unwrap(),
        };
        root.send(text).await.unwrap();
        assert!(root.quiescent().await.unwrap().is_empty());
        let (id, digest) = (root.id().clone(), runtime.digest().await.unwrap());
        runtime.shutdown().await;
        (id, digest)
    })
    .unwrap()
}

#[test]
fn the_same_seed_leaves_the_same_logs_on_every_store_and_another_seed_others() {
    let folder = tempfile::tempdir().unwrap();
    let expected = play("memory:", 7, None, "begin");
    assert_eq!(play("memory:", 7, None, "begin"), expected);
    for name in ["a.db", "b.db"] {
        assert_eq!(play(&format!("sqlite:{}", folder.path().join(name).display()), 7, None, "begin"), expected, "{name}");
    }
    assert_ne!(play("memory:", 8, None, "begin").1, expected.1);
    assert_ne!(play("memory:", 7, None, "start").1, expected.1);
}

#[test]
fn a_store_that_goes_on_with_its_seed_goes_on_the_same_way() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.db", "b.db"].map(|name| {
        let url = format!("sqlite:{}", folder.path().join(name).display());
        let (root, first) = play(&url, 7, None, "begin");
        let (_, second) = play(&url, 7, Some(&root), "begin");
        // A second root beside the first: no id comes again.
        let (other, third) = play(&url, 7, None, "begin");
        assert_ne!(root, other);
        [first, second, third]
    });
    assert_eq!(a, b);
}

#[test]
fn a_message_that_waits_is_not_sent_again_under_its_id() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("a.db").display());
    let (root, _) = play(&url, 7, None, "begin");
    // Nobody plays the desk, so that the messages wait and no log changes.
    let [first, second] = [(), ()].map(|()| {
        seeded::block_on(async {
            let runtime = Runtime::builder().seed(7).open(&url).await.unwrap();
            let message = runtime.host().send(&root, "the same words", None).await.unwrap();
            runtime.shutdown().await;
            message
        })
        .unwrap()
    });
    assert_ne!(first, second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_seed_is_refused_where_it_could_not_keep_its_promise() {
    let refused = cast().seed(7).open("memory:").await.unwrap_err();
    assert!(matches!(refused, OpenError::SeedUnavailable));
    assert_eq!(refused.code(), "SEED_UNAVAILABLE");
}

#[tokio::test]
async fn a_seed_is_refused_where_time_runs() {
    assert_eq!(cast().seed(7).open("memory:").await.unwrap_err().code(), "SEED_UNAVAILABLE");
}

#[test]
fn a_seed_is_refused_over_logs_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.db");
    let url = format!("sqlite:{}", file.display());
    play(&url, 7, None, "begin");
    assert_eq!(rusqlite::Connection::open(&file).unwrap().execute("UPDATE event SET crc = crc + 1 WHERE sid = 3 AND seq = 2", []).unwrap(), 1);
    let refused = seeded::block_on(cast().seed(7).open(&url)).unwrap().unwrap_err();
    assert!(matches!(refused, OpenError::Seed(_)), "{refused}");
    assert_eq!(refused.code(), "SESSION_CORRUPT");
}

#[test]
fn every_attempt_at_a_message_draws_the_same_also_in_another_process_and_another_message_draws_other() {
    let drawn: Arc<Mutex<Vec<(u32, String, u64)>>> = Arc::default();
    let cast = || {
        let drawn = drawn.clone();
        Runtime::builder().closure("dice", move |turn: Turn| {
            let drawn = drawn.clone();
            async move {
                drawn.lock().unwrap().push((turn.attempt(), turn.text(), turn.rng().random()));
                if turn.attempt() == 1 && turn.text() == "one" {
                    std::future::pending::<()>().await;
                }
                assert_eq!(turn.random_seed(), turn.random_seed());
                Ok(TurnEnd::Completed)
            }
        })
    };
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("a.db").display());
    // Without a seed of one's own as with one.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let first = cast().open(&url).await.unwrap();
        let root = first.root("dice", "a game").await.unwrap();
        root.send("one").await.unwrap();
        root.send("two").await.unwrap();
        while drawn.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let id = root.id().clone();
        drop(root);
        first.shutdown().await;
        let second = cast().open(&url).await.unwrap();
        second.resume(&id).await.unwrap().quiescent().await.unwrap();
        second.shutdown().await;
    });
    let drawn = drawn.lock().unwrap();
    let (seen, numbers): (Vec<_>, Vec<_>) = drawn.iter().map(|(attempt, text, number)| ((*attempt, text.as_str()), *number)).unzip();
    assert_eq!(seen, [(1, "one"), (2, "one"), (1, "two")]);
    assert_eq!(numbers[0], numbers[1]);
    assert_ne!(numbers[1], numbers[2]);
}
