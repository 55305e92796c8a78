//! Notes, notices and the order in which sessions settle.

use std::sync::{Arc, Mutex};

use greenroom_session::{descriptor::Mode, event::EpochEnd, id::SessionId, message::text_of, store::Store as _};

use super::support::{Barrier, Witness, cut_off, ends, epochs, heard, id, lock, on_paused_time, play, quiet, simple, until};
use crate::{Config, Delegate, Occurrence, Turn, TurnEnd, host::NewRoot};

fn notes(turn: &Turn) -> Vec<String> {
    turn.notes().iter().map(|note| text_of(&note.content)).filter(|text| !text.contains("has settled")).collect()
}

/// The text of each turn, and the notes that it saw.
type Seen = Vec<(String, Vec<String>)>;

/// A reporter reports the text of each message; `quiet ...` quietly.
fn reporter(config: &mut Config) {
    play(config, "reporter", |turn| async move {
        let text = turn.text();
        turn.report(text.clone(), text.starts_with("quiet")).await?;
        Ok(TurnEnd::Completed)
    });
}

/// A listener that writes down what notes each of its turns sees, and waits at a gate when it is sent "wait".
fn listener(config: &mut Config, gate: &Barrier, saw: &Arc<Mutex<Seen>>) {
    let (at, saw) = (gate.clone(), saw.clone());
    play(config, "listener", move |turn| {
        let (at, saw) = (at.clone(), saw.clone());
        async move {
            if turn.text() == "wait" {
                at.pass().await;
                turn.join_notes().await?;
            }
            lock(&saw).push((turn.text(), notes(&turn)));
            Ok(TurnEnd::Completed)
        }
    });
}

#[test]
fn a_report_reaches_a_settled_an_idle_and_a_busy_parent_in_the_order_it_was_sent() {
    let store = Witness::new();
    let boss = store.root("boss", "listener");
    let child = store.child(&boss, "child", "reporter");
    let (gate, saw) = (Barrier::new(), Arc::default());
    let mut config = Config::default();
    reporter(&mut config);
    listener(&mut config, &gate, &saw);
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        // Settled: the report wakes it.
        host.send(&child, "to a settled parent", None).await.unwrap();
        quiet(&host).await;
        // Idle: kept by a handle.
        let handle = host.resume(&boss).await.unwrap();
        host.send(&child, "to an idle parent", None).await.unwrap();
        quiet(&host).await;
        // Mid-turn.
        handle.send("wait").await.unwrap();
        gate.reached().await;
        let mut occurrences = host.subscribe();
        host.send(&child, "to a busy parent", None).await.unwrap();
        host.send(&child, "and again", None).await.unwrap();
        until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::Ended { session, .. } if *session == child)).await;
        gate.open(1);
        quiet(&host).await;
    });
    let seen: Vec<_> = lock(&saw).iter().filter(|(text, notes)| !text.is_empty() || !notes.is_empty()).cloned().collect();
    let note = |text: &str| (String::new(), vec![text.to_owned()]);
    assert_eq!(
        seen,
        [note("to a settled parent"), note("to an idle parent"), ("wait".to_owned(), vec!["to a busy parent".to_owned(), "and again".to_owned()])]
    );
    let heard = heard(&store, &boss);
    let reports: Vec<_> =
        heard.iter().position(|text| text == "and again").into_iter().chain(heard.iter().rposition(|text| text.contains("has settled"))).collect();
    assert!(reports[0] < reports[1], "the notice overtook a report: {heard:?}");
}

#[test]
fn a_quiet_note_wakes_nobody_and_joins_the_next_turn_in_its_place() {
    let store = Witness::new();
    let boss = store.root("boss", "listener");
    let saw = Arc::default();
    let mut config = Config::default();
    listener(&mut config, &Barrier::new(), &saw);
    let child = store.child(&boss, "child", "hushed");
    play(&mut config, "hushed", |turn| async move {
        turn.report("psst", true).await?;
        Ok(TurnEnd::Completed)
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        let mut occurrences = host.subscribe();
        host.send(&child, "go", None).await.unwrap();
        let mut woken_before_the_end = false;
        until(&mut occurrences, |occurrence| match occurrence {
            Occurrence::Activated { session, .. } if *session == boss => {
                woken_before_the_end = true;
                false
            }
            Occurrence::TurnEnded { session, .. } => *session == child,
            _ => false,
        })
        .await;
        assert!(!woken_before_the_end);
        // The settlement notice wakes it, and the quiet note joins first.
        quiet(&host).await;
    });
    assert_eq!(*lock(&saw), [(String::new(), vec!["psst".to_owned()])]);
    assert_eq!(heard(&store, &boss)[0], "psst");
}

#[test]
fn notes_join_before_the_message_and_are_there_again_on_the_next_attempt() {
    let mut store = Witness::new();
    let boss = store.root("boss", "listener");
    let child = store.child(&boss, "child", "reporter");
    let (gate, at_start) = (Barrier::new(), Arc::new(Mutex::new(Vec::new())));
    let config = |listens: bool| {
        let mut config = Config::default();
        reporter(&mut config);
        if listens {
            let (at, saw) = (gate.clone(), at_start.clone());
            play(&mut config, "listener", move |turn| {
                let (at, saw) = (at.clone(), saw.clone());
                async move {
                    lock(&saw).push((turn.attempt(), notes(&turn)));
                    if turn.attempt() == 1 {
                        at.pass().await;
                    }
                    Ok(TurnEnd::Completed)
                }
            });
        }
        config
    };
    // Without its agent the parent only collects.
    cut_off(&mut store, config(false), |host| {
        let child = child.clone();
        async move {
            host.send(&child, "quiet one", None).await.unwrap();
            host.send(&child, "two", None).await.unwrap();
            quiet(&host).await;
        }
    });
    cut_off(&mut store, config(true), |host| {
        let (boss, gate) = (boss.clone(), gate.clone());
        async move {
            host.send(&boss, "question", None).await.unwrap();
            gate.reached().await;
        }
    });
    // More come before the next attempt.
    cut_off(&mut store, config(false), |host| {
        let child = child.clone();
        async move {
            host.send(&child, "three", None).await.unwrap();
            quiet(&host).await;
        }
    });
    on_paused_time(async {
        let system = store.system(config(true)).await;
        system.host().recover(None).await.unwrap();
        quiet(&system.host()).await;
    });
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(*lock(&at_start), [(1, texts(&["quiet one", "two"])), (2, texts(&["quiet one", "two", "three"]))]);
    let heard: Vec<_> = heard(&store, &boss).into_iter().filter(|text| !text.contains("has settled")).collect();
    assert_eq!(heard, ["quiet one", "two", "question", "three"]);
}

/// Registers `chain`, which delegates to itself as deep as its message says and awaits.
fn chain(config: &mut Config) {
    play(config, "chain", |turn| async move {
        let depth: u32 = turn.text().parse().unwrap_or(0);
        if depth > 0 {
            turn.delegate(Delegate::new("chain", format!("below {depth}"), (depth - 1).to_string())).await?;
        }
        Ok(TurnEnd::Completed)
    });
}

#[test]
fn a_tree_settles_child_first() {
    let store = Witness::new();
    let mut config = Config::default();
    chain(&mut config);
    // Every level's turn ends at once; only ownership keeps the upper ones.
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        let mut occurrences = host.subscribe();
        let root = store.root("root", "chain");
        host.send(&root, "3", None).await.unwrap();
        quiet(&host).await;
        let mut order = Vec::new();
        while let Ok(occurrence) = occurrences.try_recv() {
            match occurrence {
                Occurrence::Ended { session, reason, .. } => {
                    assert_eq!(reason, EpochEnd::Settled);
                    order.push(session);
                }
                Occurrence::Created { .. } => assert!(order.is_empty(), "somebody settled above a child that is yet to come"),
                _ => {}
            }
        }
        let depth = |session: &SessionId| greenroom_session::store::Store::reader(&store).unwrap().header(session).unwrap().unwrap().depth;
        let depths: Vec<_> = order.iter().map(depth).collect();
        assert_eq!(depths, [3, 2, 1, 0]);
    });
}

#[test]
fn a_child_that_was_live_before_its_parent_is_owned_by_it() {
    let store = Witness::new();
    let boss = store.root("boss", "boss");
    let child = store.child(&boss, "child", "slow");
    let gate = Barrier::new();
    let mut config = simple("boss");
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
        host.send(&child, "go", None).await.unwrap();
        gate.reached().await;
        let mut occurrences = host.subscribe();
        host.send(&boss, "hello", None).await.unwrap();
        until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::TurnEnded { session, .. } if *session == boss)).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(epochs(&store, &boss), [], "the parent settled before its child");
        gate.open(1);
        quiet(&host).await;
    });
    assert_eq!(epochs(&store, &boss), [EpochEnd::Settled]);
    assert_eq!(epochs(&store, &child), [EpochEnd::Settled]);
}

#[test]
fn a_handle_keeps_a_root_and_its_end_lets_it_settle() {
    let store = Witness::new();
    on_paused_time(async {
        let system = store.system(simple("boss")).await;
        let host = system.host();
        let one = host.root(NewRoot { id: Some(id("boss")), ..NewRoot::new("boss", "boss") }).await.unwrap();
        let two = host.resume(&id("boss")).await.unwrap();
        one.send("hello").await.unwrap();
        quiet(&host).await;
        drop(one);
        quiet(&host).await;
        assert_eq!((host.live_count(), epochs(&store, &id("boss"))), (1, vec![]));
        drop(two);
        quiet(&host).await;
        assert_eq!((host.live_count(), epochs(&store, &id("boss"))), (0, vec![EpochEnd::Settled]));
    });
}

#[test]
fn a_handle_that_could_not_be_had_keeps_nothing() {
    let store = Witness::new();
    let boss = store.root("boss", "boss");
    let mut config = Config::default();
    let absent = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let factory = absent.clone();
    config.behavior("boss", move || {
        if factory.swap(false, std::sync::atomic::Ordering::SeqCst) {
            std::panic::resume_unwind(Box::new("not yet"));
        }
        |_turn: Turn| async { Ok(TurnEnd::Completed) }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        assert_eq!(host.resume(&boss).await.unwrap_err().code(), "START_FAILED");
        host.send(&boss, "hello", None).await.unwrap();
        quiet(&host).await;
        assert_eq!(host.live_count(), 0, "a handle that nobody has keeps the root live");
    });
    assert_eq!(ends(&store, &boss).len(), 1);
}

#[test]
fn an_epoch_without_a_turn_sends_no_notice() {
    let store = Witness::new();
    let boss = store.root("boss", "boss");
    let child = store.child(&boss, "child", "boss");
    on_paused_time(async {
        let system = store.system(simple("boss")).await;
        let host = system.host();
        drop(host.keep(&child).await.unwrap());
        quiet(&host).await;
    });
    assert_eq!(epochs(&store, &child), [EpochEnd::Settled]);
    assert_eq!(heard(&store, &boss), Vec::<String>::new());
}

#[test]
fn a_parent_is_told_once_of_a_child_that_a_shutdown_found_waiting_for_a_child_of_its_own() {
    for mode in [Mode::OneShot, Mode::Continuable] {
        let mut store = Witness::new();
        let top = store.root("top", "top");
        let middle = store.child(&top, "middle", "middle");
        let gate = Barrier::new();
        let config = || {
            let mut config = simple("top");
            play(&mut config, "middle", move |turn: Turn| async move {
                let slow = Delegate::new("slow", "slow", "work");
                match mode {
                    _ if turn.message().is_none() => {}
                    Mode::OneShot => drop(turn.agent().start(slow).await?),
                    Mode::Continuable => drop(turn.delegate(slow).await?),
                }
                Ok(TurnEnd::Completed)
            });
            let at = gate.clone();
            play(&mut config, "slow", move |_| {
                let at = at.clone();
                async move {
                    at.pass().await;
                    Ok(TurnEnd::Completed)
                }
            });
            config
        };
        on_paused_time(async {
            let system = store.system(config()).await;
            let host = system.host();
            host.send(&middle, "go", None).await.unwrap();
            gate.reached().await;
            host.when_idle(&middle).await.unwrap();
            system.shutdown().await;
        });
        // What is told of it if it comes back only after what is below has come to its end.
        let early = store.reader().unwrap().inbox(&top, 9).unwrap().len();
        assert_eq!(early, usize::from(mode == Mode::OneShot), "{mode:?}: nobody will be told of a one-shot child, and nothing bring this one back");
        store = store.reopen();
        gate.open(1);
        on_paused_time(async {
            let system = store.system(config()).await;
            let host = system.host();
            host.recover(None).await.unwrap();
            quiet(&host).await;
        });
        let told = heard(&store, &top).iter().filter(|text| text.contains("middle")).count();
        assert_eq!(told, 1, "{mode:?}");
    }
}

#[test]
fn a_notice_finds_room_in_a_parent_that_takes_no_more_notes() {
    let store = Witness::new();
    let boss = store.root("boss", "listener");
    let children: Vec<_> = (0..4).map(|n| store.child(&boss, &format!("child {n}"), "reporter")).collect();
    let (gate, saw) = (Barrier::new(), Arc::default());
    let mut config = Config { note_limit: 1, ..Config::default() };
    play(&mut config, "reporter", |turn| async move {
        // Most of these find no room; that is told to whoever reports.
        drop(turn.report("full", false).await);
        Ok(TurnEnd::Completed)
    });
    listener(&mut config, &gate, &saw);
    on_paused_time(async {
        let system = store.system(config).await;
        let host = system.host();
        host.send(&boss, "wait", None).await.unwrap();
        gate.reached().await;
        for child in &children {
            host.send(child, "go", None).await.unwrap();
            host.when_idle(child).await.unwrap();
        }
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        assert_eq!(host.live_count(), 1, "nobody is kept by a parent that is full");
        gate.open(1);
        quiet(&host).await;
    });
    let heard = heard(&store, &boss);
    let count = |what: &str| heard.iter().filter(|text| text.contains(what)).count();
    assert_eq!((count("full"), count("has settled")), (1, 4), "{heard:?}");
}
