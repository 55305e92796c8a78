//! Where one part of the whole meets another: forks of everything, published, compacted, carried to another kind of store, and looked at by whoever can look.

use std::{path::Path, process::Command, time::Duration};

use greenroom::{
    Publication, Runtime,
    actors::{catalog::Entry, host::NewRoot, query::Page},
};
use greenroom_session::{compact::Summary, header::NewSession, message::MessageKind};
use tokio_util::sync::CancellationToken;

use crate::{
    author::{Author, descriptor},
    publish::{play, published, sound},
    watched::Call,
    world::{Kind, World, mid, sid},
};

crate::on_every_store!(
    async forks_of_everything_are_sound_and_go_to_another_kind_of_store,
    a_read_that_stands_still_keeps_nobody_else_from_working,
    a_storm_of_cancelled_lists_leaves_nothing_behind,
    a_session_takes_messages_of_its_host_if_somebody_can_serve_them,
    pages_of_descendants_go_on_while_sessions_come_and_go,
    thousands_of_forks_are_walked_past,
    what_is_deep_and_what_is_large_is_ordinary,
    a_shutdown_comes_while_lists_are_read,
    a_child_of_a_fork_settles_and_nobody_is_stuck,
);

fn greenroom(store: &str, words: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_greenroom")).args(words).args(["--store", store]).output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn url(kind: Kind, path: &Path) -> String {
    match kind {
        Kind::Sqlite => format!("sqlite:{}", path.display()),
        _ => format!("jsonl:{}", path.display()),
    }
}

/// Plays two turns and puts a short message into the place of what was said.
async fn lived(runtime: &Runtime, publication: Publication) {
    let session = published(runtime, publication).await;
    let id = session.id().clone();
    let first = play(&session, &format!("{id}: one, and it is a long story that somebody ought to shorten")).await;
    let second = play(&session, &format!("{id}: two, and it is a longer story that somebody ought to shorten")).await;
    let plan = session.plan_compaction(first[0].seq + 1, second[2].seq).unwrap();
    session.compact(&plan, Summary::new(mid(&format!("{id}: summary")), "short")).unwrap();
    session.end().await.unwrap();
}

async fn forks_of_everything_are_sound_and_go_to_another_kind_of_store(world: &World) {
    let runtime = world.runtime().await;
    lived(&runtime, Publication::root(sid("root"), NewRoot::new("worker", "the root").opened)).await;
    lived(&runtime, Publication::child(NewSession::child(sid("child"), sid("root"), 0), descriptor("a child"))).await;
    // A fork of each, a fork of a fork, and a fork of what has a compaction under way.
    for (fork, source) in [("root-fork", "root"), ("child-fork", "child"), ("fork-fork", "root-fork"), ("deep-fork", "fork-fork")] {
        runtime.fork(&sid(source), None, Some(sid(fork))).await.unwrap();
        lived(&runtime, Publication::stored(sid(fork))).await;
    }
    let open = published(&runtime, Publication::stored(sid("deep-fork"))).await;
    let turn = play(&open, "once more, at some length, so that there is something to shorten").await;
    open.plan_compaction(turn[0].seq + 1, turn[2].seq).unwrap();
    let of_open = open.fork(None, Some(sid("open-fork"))).await.unwrap();
    lived(&runtime, Publication::stored(of_open.id.clone())).await;
    // Children below forks.
    for (child, parent) in [("below-fork", "root-fork"), ("below-deep", "deep-fork")] {
        lived(&runtime, Publication::child(NewSession::child(sid(child), sid(parent), 0), descriptor(child))).await;
    }
    open.end().await.unwrap();
    drop(open);
    let list = runtime.list_descendants(&sid("root")).await.unwrap();
    let mut seen: Vec<_> = list.entries.iter().map(|line| (line.depth, line.entry.id().as_str())).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(1, "child"), (2, "below-fork"), (4, "below-deep")]);
    let trace = runtime.trace(&sid("root")).await.unwrap();
    assert_eq!(trace.descendants.len(), 8);
    world.close_after(runtime).await;
    sound(world);
    if world.kind == Kind::Memory {
        return;
    }
    world.close();
    let here = url(world.kind, &world.path());
    let folder = tempfile::tempdir().unwrap();
    let exported = folder.path().join("out");
    let (there_kind, there) = match world.kind {
        Kind::Sqlite => (Kind::Jsonl, folder.path().join("there")),
        _ => (Kind::Sqlite, folder.path().join("there.db")),
    };
    let there = url(there_kind, &there);
    let (code, out, err) = greenroom(&here, &["export", "--all", "--to", exported.to_str().unwrap()]);
    assert_eq!(code, 0, "{out}{err}");
    let (code, out, err) = greenroom(&there, &["import", exported.to_str().unwrap()]);
    assert_eq!(code, 0, "{out}{err}");
    let ids = ["root", "child", "root-fork", "child-fork", "fork-fork", "deep-fork", "open-fork", "below-fork", "below-deep"];
    let mut looks: Vec<Vec<&str>> = vec![vec!["check"], vec!["list"], vec!["list", "--verify"], vec!["tree"]];
    for id in ids {
        looks.extend([vec!["list", id, "--json"], vec!["list", id, "--verify", "--json"], vec!["log", id, "--raw"], vec!["log", id], vec!["tree", id]]);
    }
    for look in looks {
        let one = greenroom(&here, &look);
        let two = greenroom(&there, &look);
        assert_eq!((one.0, two.0), (0, 0), "{look:?}: {one:?} {two:?}");
        if look[0] != "check" {
            assert_eq!(one.1, two.1, "{look:?}");
            if look.contains(&"--verify") {
                let without: Vec<&str> = look.iter().copied().filter(|word| *word != "--verify").collect();
                assert_eq!(greenroom(&here, &without).1, one.1, "{look:?}");
            }
        }
    }
    let tree = greenroom(&here, &["tree"]).1;
    for id in ["root", "child", "below-fork", "below-deep"] {
        assert!(tree.contains(&format!("{id} [complete]")), "{id} is in no tree:\n{tree}");
    }
    for id in ids {
        let (code, out, err) = greenroom(&here, &["show", id]);
        assert_eq!(code, 0, "{err}");
        assert_eq!(out.contains("fork, listed nowhere"), id.ends_with("-fork") && !id.starts_with("below"), "{out}");
    }
    let shown = greenroom(&here, &["show", "root"]).1;
    assert!(shown.lines().any(|line| line.starts_with("fork ") && line.ends_with("root-fork")), "{shown}");
    // A source that has forks is not removed from above them.
    let (code, _, err) = greenroom(&there, &["rm", "fork-fork", "--yes"]);
    assert_ne!(code, 0, "{err}");
    let (code, _, err) = greenroom(&there, &["rm", "root-fork", "--tree", "--yes"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(greenroom(&there, &["check"]).0, 0);
    assert_eq!(greenroom(&there, &["show", "root"]).1.matches("fork ").count(), 0);
}

async fn a_read_that_stands_still_keeps_nobody_else_from_working(world: &World) {
    let runtime = world.start(World::builder().read_concurrency(1)).await;
    let desk = runtime.root("worker", "desk").await.unwrap();
    world.root("other");
    let pause = world.watch.pause("other", Call::Children, 1);
    let (host, other) = (runtime.host(), sid("other"));
    let listing = tokio::spawn(async move { host.list(Some(&other), Page::default(), false, CancellationToken::new()).await });
    pause.reached().await;
    let work = async {
        desk.send("hello").await.unwrap();
        assert_eq!(desk.quiescent().await.unwrap(), []);
        let second = runtime.root("worker", "another").await.unwrap();
        let session = published(&runtime, Publication::child(NewSession::child(sid("played"), second.id().clone(), 0), descriptor("played"))).await;
        play(&session, "one").await;
        session.fork(None, None).await.unwrap();
        session.end().await.unwrap();
        runtime.host().send(&sid("other"), "hello", None).await.unwrap();
        runtime.recover(None).await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("a read stands still, and with it all work");
    pause.open();
    listing.await.unwrap().unwrap();
    runtime.shutdown().await;
}

async fn a_storm_of_cancelled_lists_leaves_nothing_behind(world: &World) {
    world.root("r");
    for n in 0..40 {
        world.child(&format!("c{n}"), "r");
    }
    let runtime = world.start(World::builder().read_concurrency(2)).await;
    let mut chance = 1_u64;
    let mut asked = Vec::new();
    for n in 0..1_000 {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (host, cancel, steps) = (runtime.host(), CancellationToken::new(), (chance >> 33) % 40);
        let token = cancel.clone();
        asked.push(tokio::spawn(async move {
            let r = sid("r");
            match n % 4 {
                0 => drop(host.list(Some(&r), Page::default(), n % 8 == 0, token).await),
                1 => drop(host.list_descendants(&r, Page::default(), token).await),
                2 => drop(host.trace(&r, token).await),
                // The call itself is given up.
                _ => drop(tokio::time::timeout(Duration::ZERO, host.list(None, Page::default(), true, token)).await),
            }
        }));
        tokio::spawn(async move {
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        });
    }
    for asked in asked {
        asked.await.unwrap();
    }
    let listing = tokio::time::timeout(Duration::from_secs(60), runtime.list(Some(&sid("r")))).await.expect("no list is answered any more");
    assert_eq!(listing.unwrap().entries.len(), 40);
    runtime.shutdown().await;
}

async fn a_session_takes_messages_of_its_host_if_somebody_can_serve_them(world: &World) {
    world.root("r");
    world.child("c", "r");
    world.create(&Author::child("once", "r").described(&crate::author::one_shot(Some("once"))).sealed());
    world.create(&Author::child("plain", "r").sealed());
    world.create(&Author::child("twice", "r").described(&descriptor("a")).described(&descriptor("b")).sealed());
    world.create(&Author::child("newer", "r").described_as(&serde_json::json!({"version": 9})).sealed());
    world.fork("fork", "c");
    world.create(&Author::listed("stranger", "r"));
    let runtime = world.runtime().await;
    for (id, takes) in [("r", true), ("c", true), ("once", false), ("plain", false), ("twice", false), ("newer", false), ("fork", false), ("nobody", false)] {
        let sent = runtime.host().send(&sid(id), "hello", None).await;
        assert_eq!(sent.as_ref().err().map(greenroom::actors::error::DeliverError::code), (!takes).then_some("NOT_RESUMABLE"), "{id}");
        if !takes && id != "nobody" {
            let waits = world.reader().inbox(&sid(id), 10).unwrap();
            assert!(waits.iter().all(|record| record.message.kind != MessageKind::Turn), "{id}: nothing waits for ever");
        }
    }
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    runtime.shutdown().await;
}

async fn pages_of_descendants_go_on_while_sessions_come_and_go(world: &World) {
    world.root("r");
    for n in 0..30 {
        world.child(&format!("c{n:02}"), "r");
        world.child(&format!("c{n:02}-x"), &format!("c{n:02}"));
    }
    let runtime = world.runtime().await;
    let (mut seen, mut after, mut page) = (Vec::new(), None, 0);
    loop {
        let host = runtime.host();
        let list = host.list_descendants(&sid("r"), Page { after: after.take(), limit: Some(7) }, CancellationToken::new()).await.unwrap();
        seen.extend(list.entries.iter().map(|line| line.entry.id().to_string()));
        // Somebody comes behind, and somebody who is still to come goes.
        world.child(&format!("d{page:02}"), "r");
        let gone = format!("c{:02}-x", 29 - page);
        if !seen.contains(&gone) {
            world.one(greenroom_session::store::Op::Remove(greenroom_session::store::Remove { session: sid(&gone), discard: true })).unwrap();
        }
        page += 1;
        after = list.next_cursor;
        if after.is_none() || page > 100 {
            break;
        }
    }
    let unique: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "nobody is told twice: {seen:?}");
    for n in 0..30 {
        assert!(seen.contains(&format!("c{n:02}")), "c{n:02} was there all the time");
    }
    runtime.shutdown().await;
}

async fn thousands_of_forks_are_walked_past(world: &World) {
    world.root("r");
    let forks: Vec<Author> = (0..5_000).map(|n| Author::fork(&format!("f{n}"), "r").sealed()).collect();
    world.create_all(&forks);
    world.create(&Author::listed("last", "r").at(9_000));
    let runtime = world.runtime().await;
    for limit in [Some(1), Some(10), None] {
        world.watch.clear();
        let host = runtime.host();
        let list = host.list_descendants(&sid("r"), Page { after: None, limit }, CancellationToken::new()).await.unwrap();
        assert_eq!(list.entries.iter().map(|line| line.entry.id().as_str()).collect::<Vec<_>>(), ["last"]);
        let calls = world.watch.calls();
        assert!(calls.keys().all(|(_, call)| !matches!(call, Call::Load | Call::Events)), "no log is read");
        assert!(calls.values().sum::<usize>() < 3 * 5_000, "the cost of those that are walked past is their number");
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let list = host.list(Some(&sid("r")), Page { after, limit: Some(limit.unwrap_or(100).max(100)) }, false, CancellationToken::new()).await.unwrap();
            found.extend(list.entries.iter().map(Entry::id).cloned());
            after = list.next_cursor;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, [sid("last")]);
    }
    runtime.shutdown().await;
}

async fn what_is_deep_and_what_is_large_is_ordinary(world: &World) {
    world.root("s0");
    // Every third of them is a fork of the one above.
    let mut authors = Vec::new();
    let mut depth = 0;
    for n in 1..=1_500 {
        let (id, parent) = (format!("s{n}"), format!("s{}", n - 1));
        if n % 3 == 0 {
            depth = 0;
            authors.push(Author::fork(&id, &parent).sealed());
        } else {
            depth += 1;
            authors.push(Author::listed(&id, &parent).depth(depth));
        }
    }
    let mut large = descriptor("large");
    large.params = Some(serde_json::json!("x".repeat(1 << 20)));
    authors.push(Author::child("large", "s0").described(&large).sealed());
    world.create_all(&authors);
    let runtime = world.runtime().await;
    assert_eq!(runtime.list_descendants(&sid("s0")).await.unwrap().entries.len(), 1_001);
    assert_eq!(runtime.trace(&sid("s0")).await.unwrap().descendants.len(), 1_501);
    assert_eq!(runtime.trace(&sid("s1500")).await.unwrap().ancestors.len(), 1_500);
    assert_eq!(runtime.list(Some(&sid("s1499"))).await.unwrap().entries.len(), 0);
    runtime.host().send(&sid("large"), "hello", None).await.unwrap();
    runtime.host().send(&sid("s1499"), "hello", None).await.unwrap();
    assert_eq!(runtime.host().quiescent(&sid("s1499")).await.unwrap(), []);
    let listing = runtime.list(Some(&sid("s0"))).await.unwrap();
    assert!(listing.entries.iter().any(|entry| entry.listed().is_some_and(|listed| listed.id == sid("large"))));
    world.close_after(runtime).await;
    sound(world);
    if world.kind == Kind::Memory {
        return;
    }
    world.close();
    let here = url(world.kind, &world.path());
    let folder = tempfile::tempdir().unwrap();
    for words in [
        vec!["tree"],
        vec!["list", "s0"],
        vec!["list", "s0", "--verify"],
        vec!["check"],
        vec!["export", "--all", "--to", folder.path().to_str().unwrap()],
        vec!["show", "large"],
    ] {
        let (code, out, err) = greenroom(&here, &words);
        assert_eq!(code, 0, "{words:?} {err}");
        if words == ["tree"] {
            assert_eq!(out.lines().count(), 1_002);
        }
    }
}

async fn a_shutdown_comes_while_lists_are_read(world: &World) {
    world.root("r");
    for n in 0..20 {
        world.child(&format!("c{n}"), "r");
    }
    let runtime = world.start(World::builder().read_concurrency(1)).await;
    let session = published(&runtime, Publication::stored(sid("c3"))).await;
    let asked: Vec<_> = (0..50)
        .map(|n| {
            let host = runtime.host();
            tokio::spawn(async move {
                let (r, token) = (sid("r"), CancellationToken::new());
                match n % 2 {
                    0 => host.list(Some(&r), Page::default(), true, token).await.map(|listing| listing.entries.len()),
                    _ => host.list_descendants(&r, Page::default(), token).await.map(|list| list.entries.len()),
                }
            })
        })
        .collect();
    tokio::task::yield_now().await;
    tokio::time::timeout(Duration::from_secs(60), runtime.shutdown()).await.expect("a shutdown waits for a list for ever");
    for asked in asked {
        let answer = tokio::time::timeout(Duration::from_secs(60), asked).await.expect("a list is never answered").unwrap();
        match answer {
            Ok(entries) => assert_eq!(entries, 20),
            Err(error) => assert_eq!(error.code(), "SESSION_QUERY_PERSISTENCE_FAILED", "{error}"),
        }
    }
    drop(session);
    world.close_after(runtime).await;
    sound(world);
}

async fn a_child_of_a_fork_settles_and_nobody_is_stuck(world: &World) {
    world.root("r");
    world.fork("fork", "r");
    world.child("c", "fork");
    let runtime = world.runtime().await;
    for text in ["one", "two"] {
        runtime.host().send(&sid("c"), text, None).await.unwrap();
        assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    }
    assert_eq!(runtime.list(Some(&sid("fork"))).await.unwrap().entries[0].listed().unwrap().turns, 2);
    assert!(runtime.recover(Some(&sid("r"))).await.unwrap().is_empty());
    runtime.shutdown().await;
}
