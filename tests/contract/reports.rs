//! What a parent hears of its children without asking: reports and the notice of a settlement, in one order, whatever the parent is doing.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use greenroom::{Delegate, Host, Occurrence, Runtime, RuntimeBuilder, Turn, TurnEnd as Ended, TurnError, actors::host::Cancel};
use greenroom_session::{
    event::{Body, Event},
    header::NewSession,
    message::{Source, text_of},
    store::{Create, Op},
};
use tokio_util::sync::CancellationToken;

use crate::{
    author::descriptor,
    mechanics::{Gate, story},
    publish::{events, sound, until},
    watched::{Call, Fault},
    world::{World, mid, sid},
};

crate::on_every_store!(async
    a_quiet_report_waits_a_waking_one_opens_a_turn_and_the_notice_comes_last,
    a_report_reaches_the_direct_parent_alone_whatever_that_is_doing,
    a_report_that_cannot_be_is_refused_with_a_reason_and_is_nowhere,
    a_parent_is_told_once_how_its_child_ended_and_what_it_said_last,
    a_child_that_rests_twice_is_told_of_twice_and_each_time_of_what_is_new,
    many_notices_share_a_step_of_a_busy_parent_and_one_turn_of_an_idle_one,
    nobody_is_told_of_a_fork_nor_of_a_child_whose_answer_was_waited_for,
);

const PATIENCE: Duration = Duration::from_secs(60);

/// `worker` does what its message says: lines of a verb and what comes with it.
pub(crate) fn doer(gate: &Gate) -> RuntimeBuilder {
    let at = gate.clone();
    Runtime::builder().closure("worker", move |turn: Turn| {
        let at = at.clone();
        async move {
            for line in turn.text().lines() {
                let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
                match verb {
                    "report" => drop(turn.report(rest, false).await?),
                    "hush" => drop(turn.report(rest, true).await?),
                    "say" => turn.say(rest)?,
                    "step" => turn.step().await?,
                    "hold" => at.pass(&turn).await?,
                    "delegate" => drop(turn.delegate(Delegate::new("worker", "below", rest)).await?),
                    "ask" => drop(turn.delegate_and_wait(Delegate::new("worker", "asked", rest)).await?),
                    "await" => turn.await_children().await?,
                    "fail" => return Err(TurnError::new("UNLUCKY", "it failed")),
                    "panic" => std::panic::resume_unwind(Box::new("as planned")),
                    _ => {}
                }
            }
            Ok(Ended::Completed)
        }
    })
}

/// Returns what a session has heard of its children, and what of it waits, in order.
fn notes(world: &World, id: &str) -> Vec<(String, Source)> {
    let joined = events(world, id).into_iter().filter_map(|event| if let Body::UserMessage(message) = event.body { Some(message) } else { None });
    let joined = joined.map(|message| (text_of(&message.content), message.source));
    let waits = world.reader().inbox(&sid(id), usize::MAX).unwrap();
    let waits = waits.iter().map(|record| (record.message.text(), record.message.source.clone()));
    joined.chain(waits).filter(|(_, source)| matches!(source, Source::SubagentReport { .. } | Source::SubagentSettled { .. })).collect()
}

/// Returns the notices among them that are of one child.
fn notices(world: &World, of: &str, id: &str) -> Vec<(String, Source)> {
    let mut notices = notes(world, id);
    notices.retain(|(_, source)| matches!(source, Source::SubagentSettled { session, .. } if session.as_str() == of));
    notices
}

async fn rests(host: &Host, id: &str) {
    assert_eq!(host.quiescent(&sid(id)).await.unwrap(), []);
}

async fn a_quiet_report_waits_a_waking_one_opens_a_turn_and_the_notice_comes_last(world: &World) {
    world.root("r");
    world.child("c", "r");
    let gate = Gate::new();
    let runtime = world.start(doer(&gate)).await;
    let host = runtime.host();
    let root = runtime.resume(&sid("r")).await.unwrap();
    let before = events(world, "r");
    host.send(&sid("c"), "hush psst\nhold\nreport one\nreport two\nhold", None).await.unwrap();
    gate.reached().await;
    let from = Source::SubagentReport { session: sid("c") };
    assert_eq!(notes(world, "r"), [("psst".to_owned(), from.clone())]);
    host.when_idle(&sid("r")).await.unwrap();
    assert_eq!(events(world, "r"), before, "it is durable, and its parent was not woken for it");
    gate.open(1);
    gate.reached().await;
    host.when_idle(&sid("r")).await.unwrap();
    assert_eq!(notes(world, "r"), ["psst", "one", "two"].map(|text| (text.to_owned(), from.clone())));
    assert_eq!(story(&events(world, "r"))[..2], ["turn 1", "psst"], "what waited joins the first turn, in its place");
    gate.open(1);
    root.quiescent().await.unwrap();
    let told = notes(world, "r");
    assert_eq!(told.len(), 4, "the reports stay: {told:?}");
    assert!(matches!(told[3].1, Source::SubagentSettled { .. }), "{told:?}");
    runtime.shutdown().await;
    sound(world);
}

async fn a_report_reaches_the_direct_parent_alone_whatever_that_is_doing(world: &World) {
    world.root("r");
    world.child("c", "r");
    world.child("g", "c");
    let gate = Gate::new();
    let runtime = world.start(doer(&gate)).await;
    let host = runtime.host();
    // Settled.
    host.send(&sid("g"), "report to the settled", None).await.unwrap();
    rests(&host, "r").await;
    // In a turn: it joins at the next step, and so does the notice, behind it.
    host.send(&sid("c"), "step\nhold\nstep\nsay heard", None).await.unwrap();
    gate.reached().await;
    let mut occurrences = host.subscribe();
    let heard = events(world, "c").len();
    host.send(&sid("g"), "report to the busy", None).await.unwrap();
    until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::Ended { session, .. } if session.as_str() == "g")).await;
    let joins = |events: &[Event]| events.iter().filter(|event| matches!(event.body, Body::NoteJoined { .. })).count();
    assert_eq!(joins(&events(world, "c")[heard..]), 0, "nothing joins in the middle of a step");
    gate.open(1);
    rests(&host, "r").await;
    let busy = story(&events(world, "c")[heard..]);
    assert!(busy.contains(&"to the busy".to_owned()) && busy.iter().filter(|line| line.starts_with("turn")).count() == 0, "{busy:?}");
    // Idle, and kept by the very child that reports: it does not settle before it has read the report.
    let before = events(world, "c").len();
    host.send(&sid("g"), "hold\nreport to the waiting\nhold", None).await.unwrap();
    gate.reached().await;
    let mut occurrences = host.subscribe();
    host.send(&sid("c"), "say resting", None).await.unwrap();
    until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::TurnEnded { session, .. } if session.as_str() == "c")).await;
    gate.open(1);
    gate.reached().await;
    host.when_idle(&sid("c")).await.unwrap();
    gate.open(1);
    rests(&host, "r").await;
    let waiting = &events(world, "c")[before..];
    let starts = waiting.iter().filter(|event| matches!(event.body, Body::ActivationStart { .. })).count();
    assert_eq!(starts, 1, "one epoch: {:?}", story(waiting));
    let texts = |id: &str| notes(world, id).into_iter().map(|(text, _)| text).collect::<Vec<_>>();
    let reports: Vec<_> = texts("c").into_iter().filter(|text| text.starts_with("to the")).collect();
    assert_eq!(reports, ["to the settled", "to the busy", "to the waiting"]);
    // Each notice stands behind the report of its epoch.
    let order: Vec<_> = texts("c").iter().map(|text| text.starts_with("Subagent g")).collect();
    assert_eq!(order, [false, true, false, true, false, true]);
    assert!(texts("r").iter().all(|text| text.starts_with("Subagent c")), "{:?}", texts("r"));
    runtime.shutdown().await;
    sound(world);
}

async fn a_report_that_cannot_be_is_refused_with_a_reason_and_is_nowhere(world: &World) {
    world.root("r");
    world.child("c", "r");
    let orphan = Create::child(NewSession::child(sid("orphan"), sid("nowhere"), 0), Vec::new(), &descriptor("an orphan"), None, 1_000).unwrap();
    world.one(Op::Create(orphan)).unwrap();
    let codes: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let kept: Arc<Mutex<Option<Turn>>> = Arc::default();
    let (said, left) = (codes.clone(), kept.clone());
    let runtime = world.start(Runtime::builder().send_patience(Duration::ZERO).closure("worker", move |turn: Turn| {
        let (said, left) = (said.clone(), left.clone());
        async move {
            let agent = match turn.text().as_str() {
                "given up" => {
                    let token = CancellationToken::new();
                    token.cancel();
                    turn.agent().cancellable(token)
                }
                "" => return Ok(Ended::Completed),
                _ => turn.agent(),
            };
            let told = agent.report(format!("of {}", turn.text()), false).await;
            said.lock().unwrap().push((turn.text(), told.map_or_else(|error| error.code().to_owned(), |_| "accepted".to_owned())));
            *left.lock().unwrap() = Some(turn);
            Ok(Ended::Completed)
        }
    }));
    let runtime = runtime.await;
    let host = runtime.host();
    let expected = [
        ("c", "given up", "CANCELLED"),
        ("orphan", "no parent", "PARENT_UNAVAILABLE"),
        ("c", "an outage", "NOT_DELIVERED"),
        ("c", "as it should be", "accepted"),
    ];
    for (session, text, _) in expected {
        if text == "an outage" {
            world.watch.clear();
            world.watch.fail("r", Call::Commit, 1, Fault::Outage);
        }
        host.send(&sid(session), text, None).await.unwrap();
        host.when_idle(&sid(session)).await.unwrap();
        rests(&host, "r").await;
    }
    assert_eq!(*codes.lock().unwrap(), expected.map(|(_, text, code)| (text.to_owned(), code.to_owned())));
    let reports = |world: &World| notes(world, "r").into_iter().map(|(text, _)| text).filter(|text| text.starts_with("of ")).collect::<Vec<_>>();
    assert_eq!(reports(world), ["of as it should be"]);
    // After its end a turn reports no more, and a root has nobody to report to.
    let over = kept.lock().unwrap().take().unwrap();
    assert_eq!(over.report("late", false).await.unwrap_err().code(), "UNAUTHORIZED");
    let root = runtime.resume(&sid("r")).await.unwrap();
    assert_eq!(root.agent().report("up", false).await.unwrap_err().code(), "UNAUTHORIZED");
    assert_eq!(reports(world), ["of as it should be"]);
    runtime.shutdown().await;
}

async fn a_parent_is_told_once_how_its_child_ended_and_what_it_said_last(world: &World) {
    let none = " It left no message.";
    let said = |text: &str| format!(" Its last message:\n{text}");
    let cases = [
        ("completed", "say done", ": its last turn completed.", said("done"), "completed", None),
        ("silent", "step", ": its last turn completed.", none.into(), "completed", None),
        ("reporting", "report so far\nsay done", ": its last turn completed.", said("done"), "completed", None),
        ("failing", "fail", ": its last turn failed with UNLUCKY.", none.into(), "error", Some("UNLUCKY")),
        ("failing late", "step\nsay begun\nfail", ": its last turn failed with UNLUCKY.", said("begun"), "error", Some("UNLUCKY")),
        ("panicking", "panic", ": its last turn failed with PANIC.", none.into(), "error", Some("PANIC")),
        ("interrupted", "hold", ": its last turn was stopped.", none.into(), "aborted", None),
        ("interrupted above", "hold", ": its last turn was stopped.", none.into(), "aborted", None),
        ("cancelled", "hold", ": its last turn was stopped. 2 messages were taken back before their turns.", none.into(), "aborted", None),
        ("taken back", "say never", " without a turn. One message was taken back before its turn.", none.into(), "aborted", None),
        ("failing above another", "delegate hold\nfail", ": its last turn failed with UNLUCKY.", none.into(), "error", Some("UNLUCKY")),
    ];
    for (name, text, words, last, outcome, code) in cases {
        let root = format!("root of {name}");
        world.root(&root);
        world.child(name, &root);
        if name == "taken back" {
            world.accept(name, "m");
        }
        let gate = Gate::new();
        let runtime = world.start(doer(&gate)).await;
        let host = runtime.host();
        let (child, top) = (sid(name), runtime.resume(&sid(&root)).await.unwrap());
        if name == "taken back" {
            host.withdraw(&child, &mid("m"), PATIENCE).await.unwrap();
        } else {
            host.send(&child, text, None).await.unwrap();
        }
        if text.contains("hold") {
            gate.reached().await;
        }
        match name {
            "interrupted" => drop(host.interrupt(&child, PATIENCE).await.unwrap()),
            "interrupted above" => drop(top.agent().interrupt(&child, PATIENCE).await.unwrap()),
            "cancelled" => {
                for _ in 0..2 {
                    host.send(&child, "say never", None).await.unwrap();
                }
                assert_eq!(host.cancel(&child, Cancel::default()).await.unwrap().withdrawn.len(), 2);
            }
            // A turn that only takes a notice makes the failure before it not good.
            "failing above another" => {
                host.when_idle(&child).await.unwrap();
                gate.open(1);
            }
            _ => {}
        }
        assert_eq!(top.quiescent().await.unwrap(), []);
        let told = notices(world, name, &root);
        let source = Source::SubagentSettled { session: child.clone(), epoch: 1, outcome: outcome.into(), code: code.map(Into::into) };
        assert_eq!(told, [(format!("Subagent {name} (child {name}) has settled{words}{last}"), source)]);
        let reports = notes(world, &root).len() - told.len();
        assert_eq!(reports, usize::from(name == "reporting"), "{name}: nobody reports for it");
        drop((host, top));
        world.close_after(runtime).await;
    }
    sound(world);
}

async fn a_child_that_rests_twice_is_told_of_twice_and_each_time_of_what_is_new(world: &World) {
    world.root("r");
    world.child("c", "r");
    let runtime = world.start(doer(&Gate::new())).await;
    let host = runtime.host();
    for text in ["say done", "fail", "step"] {
        host.send(&sid("c"), text, None).await.unwrap();
        rests(&host, "r").await;
    }
    let told: Vec<_> = notices(world, "c", "r").into_iter().map(|(text, _)| text).collect();
    let begin = "Subagent c (child c) has settled: its last turn";
    let expected = ["completed. Its last message:\ndone", "failed with UNLUCKY. It left no message.", "completed. It left no message."];
    assert_eq!(told, expected.map(|rest| format!("{begin} {rest}")));
    runtime.shutdown().await;
    sound(world);
}

async fn many_notices_share_a_step_of_a_busy_parent_and_one_turn_of_an_idle_one(world: &World) {
    let joined = |id: &str| {
        let joins = events(world, id).into_iter().filter_map(|event| if let Body::NoteJoined { notes, .. } = event.body { Some(notes.len()) } else { None });
        joins.collect::<Vec<_>>()
    };
    let children = |root: &str| (0..5).map(|n| format!("{root} {n}")).collect::<Vec<_>>();
    for (root, agent) in [("busy", "worker"), ("idle", "boss")] {
        world.root_of(root, agent);
        for child in children(root) {
            world.child(&child, root);
        }
    }
    let gate = Gate::new();
    // Nobody here plays the second parent.
    let runtime = world.start(doer(&gate)).await;
    let host = runtime.host();
    host.send(&sid("busy"), "step\nhold\nstep", None).await.unwrap();
    gate.reached().await;
    for root in ["busy", "idle"] {
        let mut occurrences = host.subscribe();
        for child in children(root) {
            host.send(&sid(&child), "say done", None).await.unwrap();
        }
        for _ in children(root) {
            until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::Ended { session, .. } if session.as_str() != root)).await;
        }
    }
    gate.open(1);
    rests(&host, "busy").await;
    let busy = story(&events(world, "busy"));
    assert_eq!((joined("busy"), busy.iter().filter(|line| line.starts_with("turn")).count()), (vec![5], 1), "{busy:?}");
    assert_eq!(joined("idle"), Vec::<usize>::new());
    drop(host);
    world.close_after(runtime).await;
    let runtime = world.start(Runtime::builder().closure("boss", |_: Turn| async { Ok(Ended::Completed) })).await;
    assert_eq!(runtime.recover(None).await.unwrap(), [sid("idle")]);
    rests(&runtime.host(), "idle").await;
    assert_eq!((joined("idle"), story(&events(world, "idle")).last().map(String::as_str)), (vec![5], Some("completed")));
    runtime.shutdown().await;
    sound(world);
}

async fn nobody_is_told_of_a_fork_nor_of_a_child_whose_answer_was_waited_for(world: &World) {
    world.root("r");
    world.fork("f", "r");
    world.accept("f", "m");
    // Its host has died in the middle of a turn.
    World::activate(&*world.plain(), "f", true);
    world.crash();
    let runtime = world.start(doer(&Gate::new())).await;
    let host = runtime.host();
    assert_eq!(host.cancel(&sid("f"), Cancel::default()).await.unwrap().turn, Some(1));
    host.send(&sid("r"), "ask say 42", None).await.unwrap();
    rests(&host, "r").await;
    assert_eq!(notes(world, "r"), []);
    assert_eq!(story(&events(world, "r")), ["turn 1", "ask say 42", "completed"]);
    runtime.shutdown().await;
    sound(world);
}
