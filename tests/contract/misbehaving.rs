//! Behaviours that misbehave, all at once in one runtime: it stays responsive, their siblings are unhurt, and each failure has a name.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use greenroom::{Delegate, Host, Runtime, RuntimeBuilder, Turn, TurnEnd, TurnError};
use greenroom_session::{
    event::{Body, TurnEnd as Ended},
    limits::{MAX_EVENT_BYTES, MAX_MESSAGE_BYTES},
};

use crate::{
    mechanics::Gate,
    publish::{events, sound},
    world::{World, mid, sid},
};

crate::on_every_store!(async
    whoever_misbehaves_fails_by_name_and_hurts_nobody,
    a_child_that_hangs_under_eight_senders_takes_no_more_memory_and_hurts_nobody,
    a_turn_that_ignores_its_interrupt_for_a_while_does_not_touch_the_next,
);

const PATIENCE: Duration = Duration::from_secs(60);

/// Panics when it is dropped, unless that is during a panic.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("dropped"));
        }
    }
}

fn boom() -> ! {
    std::panic::resume_unwind(Box::new("as planned"))
}

/// `worker` misbehaves in the way that its message names.
fn rogues(codes: &Arc<Mutex<Vec<String>>>) -> RuntimeBuilder {
    let codes = codes.clone();
    Runtime::builder().closure("worker", move |turn: Turn| {
        let codes = codes.clone();
        // Before there is anything that could be polled.
        if turn.text() == "panic at once" {
            boom();
        }
        async move {
            let told = |code: &str| codes.lock().unwrap().push(format!("{}: {code}", turn.text()));
            match turn.text().as_str() {
                "panic" => boom(),
                "panic later" => {
                    tokio::task::yield_now().await;
                    boom()
                }
                "panic in a drop" => drop(Grenade),
                "panic elsewhere" => {
                    let lost = tokio::spawn(async { boom() }).await;
                    told(if lost.is_err() { "lost" } else { "there" });
                }
                "hang" => std::future::pending().await,
                "flood" => {
                    for n in 0.. {
                        if let Err(error) = turn.report(format!("report {n}"), true).await {
                            told(error.code());
                            break;
                        }
                    }
                }
                "spawn" => {
                    for n in 0..100 {
                        turn.delegate(Delegate::new("worker", format!("spawned {n}"), "work")).await?;
                    }
                }
                "recurse" => {
                    if let Err(error) = turn.delegate(Delegate::new("worker", "one more", "recurse")).await {
                        told(error.code());
                    }
                }
                "shout" => {
                    let text = "x".repeat(MAX_MESSAGE_BYTES + 1);
                    told(turn.report(&*text, true).await.err().map_or("taken", |error| error.code()));
                    let text = "x".repeat(MAX_EVENT_BYTES + 1);
                    told(&turn.say(text).err().map_or("taken".to_owned(), |error| error.code));
                    return Err(TurnError::new("HOARSE", "x".repeat(10_000)));
                }
                "lie" => return Err(TurnError::new("", "")),
                _ => turn.say("done")?,
            }
            Ok(TurnEnd::Completed)
        }
    })
}

/// How a session's turns have ended.
fn ends(world: &World, id: &str) -> Vec<String> {
    let ended = |body: Body| match body {
        Body::TurnEnd { reason: Ended::Error { code, .. }, .. } => Some(code),
        Body::TurnEnd { reason, .. } => Some(reason.as_str().to_owned()),
        _ => None,
    };
    events(world, id).into_iter().filter_map(|event| ended(event.body)).collect()
}

/// The siblings that behave answer at once, and so does a list.
async fn is_responsive(world: &World, host: &Host, runtime: &Runtime, round: usize) {
    for sibling in ["good", "kind"] {
        host.send(&sid(sibling), "work", None).await.unwrap();
        host.when_idle(&sid(sibling)).await.unwrap();
        assert_eq!(ends(world, sibling), vec!["completed"; round], "{sibling}");
    }
    let listed = runtime.list(Some(&sid("r"))).await.unwrap().entries;
    assert!(listed.iter().all(|entry| entry.listed().is_some()), "{listed:?}");
}

/// The first hangs while all others come and go.
const ROGUES: [(&str, &str); 12] = [
    ("hang", "disposed"),
    ("panic at once", "PANIC"),
    ("panic", "PANIC"),
    ("panic later", "PANIC"),
    ("panic in a drop", "PANIC"),
    ("panic elsewhere", "completed"),
    ("flood", "completed"),
    ("spawn", "completed"),
    ("recurse", "completed"),
    ("shout", "HOARSE"),
    ("lie", ""),
    ("work", "completed"),
];

async fn whoever_misbehaves_fails_by_name_and_hurts_nobody(world: &World) {
    world.root("r");
    for sibling in ["good", "kind"] {
        world.child(sibling, "r");
    }
    let codes = Arc::new(Mutex::new(Vec::new()));
    let builder = rogues(&codes)
        .max_live(4)
        .max_depth(5)
        .note_limit(50)
        .send_patience(Duration::from_millis(20))
        .interrupt_grace(Duration::from_millis(5))
        .shutdown_grace(Duration::from_millis(50));
    let runtime = world.start(builder).await;
    let host = runtime.host();
    for (n, (deed, _)) in ROGUES.iter().enumerate() {
        let id = format!("rogue-{n}");
        world.child(&id, "r");
        host.send(&sid(&id), *deed, None).await.unwrap();
        // Whatever it has broken, it serves the next message as if nothing had been.
        if *deed != "hang" {
            host.send(&sid(&id), "work", None).await.unwrap();
            host.when_idle(&sid(&id)).await.unwrap();
        }
        is_responsive(world, &host, &runtime, n + 1).await;
    }
    for (n, (deed, end)) in ROGUES.iter().enumerate().filter(|(_, (deed, _))| *deed != "hang") {
        let ended = ends(world, &format!("rogue-{n}"));
        assert!(ended[0] == *end && ended.len() >= 2 && ended[1..].iter().all(|end| end == "completed"), "{deed}: {ended:?}");
    }
    // A hung one holds a slot, and its end is bounded.
    runtime.shutdown().await;
    assert_eq!(ends(world, "rogue-0"), ["disposed"]);
    let codes = codes.lock().unwrap().clone();
    for told in ["panic elsewhere: lost", "flood: BUSY", "recurse: DEPTH_EXCEEDED", "shout: MESSAGE_TOO_LARGE"] {
        assert!(codes.contains(&told.to_owned()), "{told}: {codes:?}");
    }
    assert!(!codes.iter().any(|code| code.ends_with(": taken")), "{codes:?}");
    sound(world);
}

/// What this process has in memory, in bytes.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

async fn a_child_that_hangs_under_eight_senders_takes_no_more_memory_and_hurts_nobody(world: &World) {
    const SENDERS: usize = 8;
    const LIMIT: u64 = 64;
    world.root("r");
    for child in ["hung", "good", "kind"] {
        world.child(child, "r");
    }
    let codes = Arc::default();
    let runtime = world.start(rogues(&codes).max_live(2).inbox_limit(LIMIT).interrupt_grace(Duration::from_millis(5))).await;
    let host = runtime.host();
    host.send(&sid("hung"), "hang", None).await.unwrap();
    let flood = |attempts: usize| {
        let host = &host;
        async move {
            let outcomes = join_all((0..SENDERS).map(|_| async {
                let mut refused = 0;
                for _ in 0..attempts {
                    match host.send(&sid("hung"), "x".repeat(16_000), None).await {
                        Ok(_) => {}
                        Err(error) => {
                            assert_eq!(error.code(), "BUSY");
                            refused += 1;
                        }
                    }
                }
                refused
            }));
            outcomes.await.into_iter().sum::<usize>()
        }
    };
    let refused = flood(100).await;
    let pending = world.reader().inbox(&sid("hung"), usize::MAX).unwrap().len();
    assert_eq!(pending, usize::try_from(LIMIT).unwrap(), "the inbox is full, and no fuller");
    assert_eq!(refused, SENDERS * 100 - pending);
    let before = resident();
    assert_eq!(flood(1_000).await, SENDERS * 1_000, "everything more is refused");
    let grown = resident().saturating_sub(before);
    // 128 megabytes of text were offered; other tests of this process go on beside.
    assert!(grown < 48 << 20, "{grown} bytes more");
    assert_eq!(world.reader().inbox(&sid("hung"), usize::MAX).unwrap().len(), pending);
    is_responsive(world, &host, &runtime, 1).await;
    // It is let go, and what was accepted is served.
    host.interrupt(&sid("hung"), PATIENCE).await.unwrap();
    host.when_idle(&sid("hung")).await.unwrap();
    let ended = ends(world, "hung");
    assert_eq!((ended[0].as_str(), ended.len(), ended[1..].iter().all(|end| end == "completed")), ("aborted", pending + 1, true));
    runtime.shutdown().await;
    sound(world);
}

async fn a_turn_that_ignores_its_interrupt_for_a_while_does_not_touch_the_next(world: &World) {
    world.root("r");
    world.child("c", "r");
    let gate = Gate::new();
    let at = gate.clone();
    let late = Arc::new(Mutex::new(Vec::new()));
    let told = late.clone();
    let builder = Runtime::builder().closure("worker", move |turn: Turn| {
        let (at, told) = (at.clone(), told.clone());
        async move {
            if turn.text() == "deaf" {
                let (kept, told) = (turn.clone(), told.clone());
                let heard = turn.cancelled();
                // A part of it that is not dropped with it, and does late what it was about to do.
                tokio::spawn(async move {
                    heard.cancelled().await;
                    at.hold().await;
                    let mut done = vec![kept.say("too late").err().map_or("done".to_owned(), |error| error.code.clone())];
                    done.push(kept.report("too late", true).await.err().map_or("done".to_owned(), |error| error.code().to_owned()));
                    done.push(kept.delegate(Delegate::new("worker", "late", "work")).await.err().map_or("done".to_owned(), |error| error.code().to_owned()));
                    told.lock().unwrap().extend(done);
                });
                std::future::pending::<()>().await;
            }
            turn.say("done")?;
            Ok(TurnEnd::Completed)
        }
    });
    let runtime = world.start(builder.interrupt_grace(Duration::from_millis(20))).await;
    let host = runtime.host();
    host.send(&sid("c"), "deaf", Some(mid("deaf"))).await.unwrap();
    while !events(world, "c").iter().any(|event| matches!(event.body, Body::TurnStart { .. })) {
        tokio::task::yield_now().await;
    }
    let child = sid("c");
    let (interrupted, sent) = tokio::join!(host.interrupt(&child, PATIENCE), host.send(&child, "next", Some(mid("next"))));
    interrupted.unwrap();
    sent.unwrap();
    host.when_idle(&sid("c")).await.unwrap();
    assert_eq!(ends(world, "c"), ["aborted", "completed"]);
    // It may settle meanwhile.
    let kept = || events(world, "c").into_iter().filter(|event| !matches!(event.body, Body::ActivationEnd { .. })).collect::<Vec<_>>();
    let before = kept();
    gate.open(1);
    while late.lock().unwrap().len() < 3 {
        tokio::task::yield_now().await;
    }
    assert!(late.lock().unwrap().iter().all(|code| code != "done"), "{late:?}");
    assert_eq!(kept(), before, "nothing of it came late");
    assert!(world.reader().children(Some(&sid("c")), None, 9).unwrap().is_empty());
    runtime.shutdown().await;
    sound(world);
}
