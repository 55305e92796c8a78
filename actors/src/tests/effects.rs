//! What a turn does to others happens once, however often the turn begins.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use futures::future::BoxFuture;
use greenroom_session::{
    event::Body,
    store::{Done, Op, Remove, Store as _},
};

use super::audit::audit;
use super::support::{Barrier, Fault, Ledger, Witness, cut_off, ends, id, lock, on_paused_time, play, quiet, simple};
use crate::{
    Config, Delegate, Delegated, TurnEnd, TurnError,
    provider::{Capabilities, Prepare, PrepareError, Prepared, Provider},
};

/// Returns how many effects a session's log tells of.
fn effects(store: &Witness, session: &str) -> usize {
    store.events(&id(session)).iter().filter(|event| matches!(event.body, Body::EffectAccepted { .. })).count()
}

#[test]
fn a_turn_that_is_cut_off_after_its_effects_repeats_none_of_them() {
    let mut store = Witness::new();
    let boss = store.root("boss", "boss");
    let middle = store.child(&boss, "middle", "middle");
    let gate = Barrier::new();
    let config = || {
        let mut config = simple("boss");
        play(&mut config, "worker", |_| async { Ok(TurnEnd::Completed) });
        let at = gate.clone();
        play(&mut config, "middle", move |turn| {
            let at = at.clone();
            async move {
                if turn.message().is_none() {
                    return Ok(TurnEnd::Completed);
                }
                let child = turn.delegate(Delegate::new("worker", "w", "start")).await?;
                // The same words twice are two messages.
                for _ in 0..2 {
                    turn.send_message(&child.child, "more").await?;
                }
                turn.report("half way", false).await?;
                at.pass().await;
                Ok(TurnEnd::Completed)
            }
        });
        config
    };
    for round in 0..3 {
        cut_off(&mut store, config(), |host| {
            let (gate, middle) = (gate.clone(), middle.clone());
            async move {
                if round == 0 {
                    host.send(&middle, "go", None).await.unwrap();
                } else {
                    host.recover(None).await.unwrap();
                }
                gate.reached().await;
            }
        });
    }
    gate.open(1);
    on_paused_time(async {
        let system = store.system(config()).await;
        system.host().recover(None).await.unwrap();
        quiet(&system.host()).await;
    });
    let children = store.reader().unwrap().children(Some(&middle), None, 9).unwrap();
    assert_eq!(children.len(), 1);
    let served: Vec<_> = ends(&store, &children[0].id).into_iter().filter(|(_, _, how)| how == "completed").map(|(text, ..)| text).collect();
    assert_eq!(served, ["start", "more", "more"]);
    let reports = super::support::heard(&store, &boss).into_iter().filter(|text| text == "half way").count();
    assert_eq!((reports, effects(&store, "middle")), (1, 4));
    assert_eq!(audit(&store, &Ledger::default(), true), Vec::<String>::new());
}

#[test]
fn a_send_that_was_refused_at_first_is_the_same_effect_on_the_next_attempt() {
    let mut store = Witness::new();
    let boss = store.root("boss", "boss");
    let child = store.child(&boss, "child", "busy");
    let (gate, served) = (Barrier::new(), Barrier::new());
    let config = || {
        let mut config = Config { inbox_limit: 1, send_patience: std::time::Duration::ZERO, ..Config::default() };
        let (at, free) = (gate.clone(), served.clone());
        let to = child.clone();
        play(&mut config, "boss", move |turn| {
            let (at, free, to) = (at.clone(), free.clone(), to.clone());
            async move {
                if turn.message().is_none() {
                    return Ok(TurnEnd::Completed);
                }
                while let Err(error) = turn.send_message(&to, "work").await {
                    assert_eq!(error.code(), "BUSY");
                    free.open(1);
                    tokio::task::yield_now().await;
                }
                at.pass().await;
                Ok(TurnEnd::Completed)
            }
        });
        let at = served.clone();
        play(&mut config, "busy", move |_| {
            let at = at.clone();
            async move {
                at.pass().await;
                Ok(TurnEnd::Completed)
            }
        });
        config
    };
    cut_off(&mut store, config(), |host| {
        let (gate, served, boss, child) = (gate.clone(), served.clone(), boss.clone(), child.clone());
        async move {
            host.send(&child, "first", None).await.unwrap();
            served.reached().await;
            host.send(&child, "second", None).await.unwrap();
            host.send(&boss, "go", None).await.unwrap();
            gate.reached().await;
        }
    });
    gate.open(9);
    served.open(9);
    on_paused_time(async {
        let system = store.system(config()).await;
        system.host().recover(None).await.unwrap();
        quiet(&system.host()).await;
    });
    let completed: Vec<_> = ends(&store, &child).into_iter().filter(|(_, _, how)| how == "completed").map(|(text, ..)| text).collect();
    assert_eq!(completed, ["first", "second", "work"]);
}

#[test]
fn two_delegations_of_one_key_are_one_child() {
    let store = Witness::new();
    let boss = store.root("boss", "boss");
    let mut config = simple("worker");
    let made: Arc<Mutex<Vec<Delegated>>> = Arc::default();
    let note = made.clone();
    play(&mut config, "boss", move |turn| {
        let note = note.clone();
        async move {
            if turn.message().is_some() {
                for prompt in ["one", "another"] {
                    let delegated = turn.delegate(Delegate::new("worker", "w", prompt).key("the worker")).await?;
                    lock(&note).push(delegated);
                }
            }
            Ok(TurnEnd::Completed)
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        system.host().send(&boss, "go", None).await.unwrap();
        quiet(&system.host()).await;
    });
    let made = lock(&made);
    assert_eq!((made.len(), made[0].existing, made[1].existing), (2, false, true));
    assert_eq!(made[0].child, made[1].child);
    assert_eq!(effects(&store, "boss"), 1);
}

#[test]
fn an_alias_is_unique_among_siblings_and_finds_the_child() {
    let store = Witness::new();
    let boss = store.root("boss", "boss");
    let mut config = simple("worker");
    play(&mut config, "boss", |turn| async move {
        if turn.message().is_none() {
            return Ok(TurnEnd::Completed);
        }
        let first = turn.delegate(Delegate::new("worker", "w", "one").alias("r1")).await?;
        assert_eq!(turn.child_by_alias("r1").await?, Some(first.child));
        match turn.delegate(Delegate::new("worker", "w", "two").alias("r1")).await {
            Err(error) => Err(TurnError::new(error.code(), "as it should")),
            Ok(_) => Ok(TurnEnd::Completed),
        }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        system.host().send(&boss, "go", None).await.unwrap();
        quiet(&system.host()).await;
    });
    assert_eq!(ends(&store, &boss)[0], ("go".to_owned(), 1, "ALIAS_TAKEN".to_owned()));
    assert_eq!(store.reader().unwrap().children(Some(&boss), None, 9).unwrap().len(), 1);
}

#[test]
fn a_recorded_input_and_a_recorded_answer_are_there_on_the_next_attempt() {
    let mut store = Witness::new();
    let boss = store.root("boss", "boss");
    let gate = Barrier::new();
    let config = || {
        let mut config = Config::default();
        let at = gate.clone();
        play(&mut config, "boss", move |turn| {
            let at = at.clone();
            async move {
                match (turn.attempt(), turn.recorded("files"), turn.answer()) {
                    (1, None, None) => {
                        turn.record("files", "a b c").await?;
                        turn.record_answer("42").await?;
                        at.pass().await;
                    }
                    (2, Some(files), Some(answer)) => turn.say(format!("{files} {answer}"))?,
                    other => return Err(TurnError::new("LOST", format!("{other:?}"))),
                }
                Ok(TurnEnd::Completed)
            }
        });
        config
    };
    cut_off(&mut store, config(), |host| {
        let (gate, boss) = (gate.clone(), boss.clone());
        async move {
            host.send(&boss, "go", None).await.unwrap();
            gate.reached().await;
        }
    });
    on_paused_time(async {
        let system = store.system(config()).await;
        system.host().recover(None).await.unwrap();
        quiet(&system.host()).await;
    });
    assert_eq!(ends(&store, &boss).last().unwrap(), &("go".to_owned(), 2, "completed".to_owned()));
}

#[test]
fn a_body_begins_only_after_its_start_is_in_the_log() {
    let store = Witness::new();
    let boss = store.root("boss", "boss");
    let mut config = Config::default();
    let (looks, seen) = (store.clone(), Arc::new(AtomicBool::new(false)));
    let flag = seen.clone();
    play(&mut config, "boss", move |turn| {
        let logged = looks.events(turn.session()).iter().any(|event| matches!(event.body, Body::TurnStart { turn: number, .. } if number == turn.number()));
        flag.store(logged, Ordering::SeqCst);
        async { Ok(TurnEnd::Completed) }
    });
    on_paused_time(async {
        let system = store.system(config).await;
        system.host().send(&boss, "go", None).await.unwrap();
        quiet(&system.host()).await;
    });
    assert!(seen.load(Ordering::SeqCst));
}

#[test]
fn a_retry_does_not_make_a_child_anew_that_was_removed_in_between() {
    let mut store = Witness::new();
    let boss = store.root("boss", "boss");
    let gate = Barrier::new();
    let codes = Arc::new(Mutex::new(Vec::new()));
    let config = || {
        let mut config = Config::default();
        play(&mut config, "worker", |_| async { Ok(TurnEnd::Completed) });
        let (at, codes) = (gate.clone(), codes.clone());
        play(&mut config, "boss", move |turn| {
            let (at, codes) = (at.clone(), codes.clone());
            async move {
                if turn.message().is_none() {
                    return Ok(TurnEnd::Completed);
                }
                match turn.delegate(Delegate::new("worker", "w", "start")).await {
                    Ok(_) => at.pass().await,
                    Err(error) => lock(&codes).push(error.code()),
                }
                Ok(TurnEnd::Completed)
            }
        });
        config
    };
    cut_off(&mut store, config(), |host| {
        let (gate, boss) = (gate.clone(), boss.clone());
        async move {
            host.send(&boss, "go", None).await.unwrap();
            gate.reached().await;
        }
    });
    let children = || store.reader().unwrap().children(Some(&boss), None, 9).unwrap();
    let child = children().remove(0).id;
    let remove = Op::Remove(Remove { session: child, discard: true });
    assert_eq!(store.commit(&[remove]).unwrap(), [Ok(Done::Removed)]);
    gate.open(1);
    on_paused_time(async {
        let system = store.system(config()).await;
        system.host().recover(None).await.unwrap();
        quiet(&system.host()).await;
    });
    assert_eq!(*lock(&codes), ["SESSION_REMOVED"]);
    assert!(children().is_empty());
    assert_eq!(ends(&store, &boss), [("go".to_owned(), 1, "interrupted".to_owned()), ("go".to_owned(), 2, "completed".to_owned())]);
}

#[test]
fn what_a_turn_has_done_is_in_its_log_before_whoever_it_did_it_to_is_woken() {
    let store = Witness::new();
    let root = store.root("root", "simple");
    on_paused_time(async {
        let system = store.system(simple("simple")).await;
        let host = system.host();
        let _kept = host.resume(&root).await.unwrap();
        quiet(&host).await;
        let services = host.services();
        let view = services.live.get(&root).unwrap();
        let message = greenroom_session::message::Message::turn("m", "text", greenroom_session::message::Source::User, 0).unwrap();
        let mut done = None;
        let recorded = || done = Some((store.store.reader().unwrap().inbox(&root, 9).unwrap().len(), view.gate.is_knocked()));
        services.accept_and(&root, Some(&view), None, Arc::new(message), recorded).await.unwrap();
        assert_eq!(done, Some((1, false)), "accepted, and nobody has knocked");
        assert!(view.gate.is_knocked());
        quiet(&host).await;
    });
    assert_eq!(ends(&store, &root).len(), 1);
}

/// Has a boss delegate, cuts it off before the log of its turn says so, and returns what the delegation comes to when it is repeated as `changed` has it.
fn repeated(changed: impl FnOnce(&mut Config), reserved: bool) -> Result<bool, &'static str> {
    let mut store = Witness::new();
    let boss = store.root("boss", "boss");
    let gate = Barrier::new();
    let said = Arc::new(Mutex::new(Vec::new()));
    let config = || {
        let mut config = Config::default();
        play(&mut config, "worker", |_| async { Ok(TurnEnd::Completed) });
        let (at, said) = (gate.clone(), said.clone());
        play(&mut config, "boss", move |turn| {
            let (at, said) = (at.clone(), said.clone());
            async move {
                if turn.message().is_none() {
                    return Ok(TurnEnd::Completed);
                }
                let mut delegate = Delegate::new("worker", "w", "start").provider("once");
                delegate.child = reserved.then(|| id("reserved"));
                let delegated = turn.delegate(delegate).await;
                lock(&said).push(delegated.map(|delegated| (delegated.child, delegated.existing)).map_err(|error| error.code()));
                at.pass().await;
                Ok(TurnEnd::Completed)
            }
        });
        config
    };
    let lost = Fault {
        hits: |op| matches!(op, Op::Append(append) if append.events.iter().any(|event| matches!(event.body, Body::EffectAccepted { .. }))),
        written: false,
        indeterminate: false,
    };
    store.fail(lost);
    cut_off(&mut store, config(), |host| {
        let (gate, boss) = (gate.clone(), boss.clone());
        async move {
            let _once = host.register_provider("once", Blank).unwrap();
            host.send(&boss, "go", None).await.unwrap();
            gate.reached().await;
        }
    });
    assert_eq!(effects(&store, "boss"), 0, "nothing tells of it");
    gate.open(1);
    let mut next = config();
    changed(&mut next);
    on_paused_time(async {
        let system = store.system(next).await;
        system.host().recover(None).await.unwrap();
        quiet(&system.host()).await;
    });
    let said = lock(&said).clone();
    let child = said[0].clone().unwrap().0;
    assert_eq!(store.reader().unwrap().children(Some(&boss), None, 9).unwrap().len(), 1);
    assert_eq!(effects(&store, "boss"), usize::from(said[1].is_ok()));
    said[1].clone().map(|(again, existing)| again == child && existing)
}

/// Gives nothing along.
struct Blank;

impl Provider for Blank {
    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    fn prepare(&self, _: Prepare) -> BoxFuture<'_, Result<Prepared, PrepareError>> {
        Box::pin(async { Ok(Prepared::default()) })
    }
}

#[test]
fn a_delegation_that_was_accepted_and_not_recorded_is_the_same_whatever_has_changed_since() {
    for reserved in [false, true] {
        assert_eq!(repeated(|_| {}, reserved), Ok(true), "its provider is gone, reserved: {reserved}");
        assert_eq!(repeated(|config| config.max_depth = 0, reserved), Ok(true), "it would be too deep, reserved: {reserved}");
        assert_eq!(repeated(|config| drop(config.behaviors.remove("worker")), reserved), Ok(true), "nobody would play it, reserved: {reserved}");
    }
}
