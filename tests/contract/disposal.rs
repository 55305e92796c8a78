//! Disposing of one-shot runs: what ends, in which order, what is written, and what a failure says.

use std::{sync::Arc, time::Duration};

use greenroom::{Delegate, Occurrence, OneShotRun, Runtime, RuntimeBuilder, Turn, TurnEnd as Ended, TurnError};
use greenroom_session::{
    event::{Body, TurnEnd},
    header::NewSession,
    id::SessionId,
    message::{Message, Source},
    store::{Create, Op},
};
use tokio::sync::broadcast::Receiver;

use crate::{
    author::one_shot,
    mechanics::{Gate, still_waits, story},
    one_shot::{actor, cast, result},
    publish::{PATIENCE, events, sound},
    watched::{Call, Fault},
    world::{Kind, World, sid},
};

crate::on_every_store!(async
    a_run_is_ended_wherever_it_stands,
    a_run_that_nobody_has_begun_is_taken_back,
    a_run_that_has_ended_is_left_as_it_is,
    what_a_run_has_started_ends_with_it_from_above,
    disposals_at_the_same_time_are_one,
    a_child_that_does_not_heed_it_is_dropped,
    a_failed_disposal_and_a_failed_result_are_told_apart,
    a_run_of_another_process_is_waited_for_and_ended_from_here,
);

fn aborted(by: &str) -> TurnEnd {
    TurnEnd::Aborted { cause: by.into() }
}

async fn a_run_is_ended_wherever_it_stands(world: &World) {
    let gate = Gate::new();
    let builder = || cast(&gate).max_live(1);
    let runtime = world.start(builder()).await;
    let desk = runtime.root("actor", "a desk").await.unwrap();
    // In its turn, and just accepted.
    let mut run = desk.agent().start(actor("say:begun gate")).await.unwrap();
    gate.reached().await;
    run.dispose().await.unwrap();
    gone(world, &run);
    assert_eq!(run.result().await.unwrap(), result(aborted("parent"), "begun"));
    run = desk.agent().start(actor("wait")).await.unwrap();
    run.dispose().await.unwrap();
    gone(world, &run);
    assert_eq!(run.result().await.unwrap(), result(aborted("parent"), ""));
    assert_eq!(runtime.host().live_count(), 1, "the desk");
    // Before its first turn: it waits for the slot that somebody else has.
    desk.send("gate").await.unwrap();
    gate.reached().await;
    run = desk.agent().start(actor("say:never")).await.unwrap();
    let (done, ()) = tokio::join!(run.dispose(), async {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        gate.open(1);
    });
    done.unwrap();
    gone(world, &run);
    assert!(matches!(run.result().await.unwrap().outcome, TurnEnd::Aborted { .. } | TurnEnd::Completed));
    desk.quiescent().await.unwrap();
    // Cut off by a shutdown, and nobody has it live.
    run = desk.agent().start(actor("gate say:never")).await.unwrap();
    gate.reached().await;
    let (top, child) = (desk.id().clone(), run.id().clone());
    drop((desk, run));
    world.close_after(runtime).await;
    let runtime = world.start(builder()).await;
    let desk = runtime.resume(&top).await.unwrap();
    let run = desk.agent().run_of(&child).await.unwrap();
    run.dispose().await.unwrap();
    gone(world, &run);
    assert_eq!(run.result().await.unwrap(), result(aborted("parent"), ""));
    assert_eq!(desk.quiescent().await.unwrap(), []);
    // In a wait for its own child, which is in a turn.
    let run = desk.agent().start(actor("say:first below gate")).await.unwrap();
    gate.reached().await;
    run.dispose().await.unwrap();
    gone(world, &run);
    assert_eq!(run.result().await.unwrap(), result(aborted("parent"), "first"));
    assert_eq!(desk.quiescent().await.unwrap(), []);
    runtime.shutdown().await;
    sound(world);
}

async fn a_run_that_nobody_has_begun_is_taken_back(world: &World) {
    world.root_of("r", "actor");
    let prompt = |id: &str| Message::turn(format!("to {id}"), "say:never", Source::Coordinator { session: sid("r") }, 1_000).unwrap();
    for id in ["disposed", "withdrawn"] {
        let session = NewSession::child(sid(id), sid("r"), 0);
        let create = Create::child(session, Vec::new(), &one_shot(None), Some(Arc::new(prompt(id))), 1_000).unwrap();
        world.one(Op::Create(create)).unwrap();
    }
    let runtime = world.start(cast(&Gate::new())).await;
    let (disposed, withdrawn) = (runtime.run_of(&sid("disposed")).await.unwrap(), runtime.run_of(&sid("withdrawn")).await.unwrap());
    for _ in 0..2 {
        disposed.dispose().await.unwrap();
    }
    runtime.withdraw(withdrawn.id(), withdrawn.message(), PATIENCE).await.unwrap();
    withdrawn.dispose().await.unwrap();
    for (run, by) in [(disposed, "host"), (withdrawn, "user")] {
        gone(world, &run);
        assert_eq!(run.result().await.unwrap(), result(aborted(by), ""));
        assert_eq!(story(&events(world, run.id().as_str())), [format!("{} taken back by {by}", run.message())], "no turn of it");
        assert_eq!(runtime.run_of(run.id()).await.unwrap().message(), run.message());
    }
    runtime.shutdown().await;
    sound(world);
}

/// Nothing of a run is under way, and nobody holds it.
fn gone(world: &World, run: &OneShotRun) {
    let head = world.reader().folded(run.id()).unwrap().head().clone();
    assert!(!head.is_unfinished() && !head.live && head.pending() == 0, "{head:?}");
}

async fn a_run_that_has_ended_is_left_as_it_is(world: &World) {
    let runtime = world.start(cast(&Gate::new())).await;
    let desk = runtime.root("actor", "a desk").await.unwrap();
    for text in ["say:done", "say:done max", "fail", "say:first below say:second"] {
        let run = desk.agent().start(actor(text)).await.unwrap();
        let told = run.result().await.unwrap();
        let before = events(world, run.id().as_str());
        for again in [run.dispose().await, run.clone().dispose().await, runtime.host().run_of(run.id()).await.unwrap().dispose().await] {
            again.unwrap();
        }
        assert_eq!(events(world, run.id().as_str()), before, "{text}");
        assert_eq!(run.result().await.unwrap(), told, "{text}");
    }
    runtime.shutdown().await;
    sound(world);
}

/// `lead` starts one of each kind below, and waits for the one or says nothing more.
fn leads(gate: &Gate) -> RuntimeBuilder {
    cast(gate).closure("lead", |turn: Turn| async move {
        if turn.message().is_none() {
            return Err(TurnError::new("WOKEN", "by what is below"));
        }
        let kept = turn.delegate(Delegate::new("actor", "in the background", "gate")).await?.child;
        turn.send_message(&kept, "say:later").await?;
        turn.say("begun")?;
        if turn.text() == "wait" {
            turn.delegate_and_wait(Delegate::new("lead", "in the foreground", "leave")).await?;
        }
        Ok(Ended::Completed)
    })
}

async fn what_a_run_has_started_ends_with_it_from_above(world: &World) {
    for (text, outcome, below) in [("wait", aborted("parent"), 3), ("leave", TurnEnd::Completed, 1)] {
        let gate = Gate::new();
        let runtime = world.start(leads(&gate)).await;
        let desk = runtime.root("actor", "a desk").await.unwrap();
        let sibling = desk.agent().start_continuable(actor("gate say:mine")).await.unwrap().child;
        let other = desk.agent().start(actor("gate say:mine")).await.unwrap();
        for _ in 0..2 {
            gate.reached().await;
        }
        let run = desk.agent().start(Delegate::new("lead", "a lead", text)).await.unwrap();
        for _ in 0..below.min(2) {
            gate.reached().await;
        }
        if text == "leave" {
            runtime.when_idle(run.id()).await.unwrap();
        }
        let mut occurrences = runtime.subscribe();
        run.dispose().await.unwrap();
        assert_eq!(run.result().await.unwrap(), result(outcome, "begun"), "{text}");
        // Nobody below is left, and who stood above went first.
        let family = descendants(world, run.id());
        assert_eq!(family.len(), below, "{text}");
        for id in &family {
            let head = world.reader().folded(id).unwrap().head().clone();
            assert!(!head.live && !head.is_unfinished() && head.pending_turns == 0, "{text}: {id} {head:?}");
            let told = story(&events(world, id.as_str()));
            assert!(told.iter().any(|line| line == "aborted by parent") || told.contains(&"completed".to_owned()), "{text}: {told:?}");
            assert!(!told.contains(&"say:later".to_owned()), "what waited was taken back: {told:?}");
        }
        let cut_off = turns_cut_off(&mut occurrences);
        let depths: Vec<_> = cut_off.iter().map(|id| world.reader().header(id).unwrap().unwrap().depth).collect();
        assert_eq!(depths, if text == "wait" { vec![1, 2, 3] } else { vec![2] }, "{text}");
        // Whoever stands beside it goes on.
        gate.open(2);
        assert_eq!(other.result().await.unwrap(), result(TurnEnd::Completed, "mine"));
        assert_eq!(desk.quiescent().await.unwrap(), []);
        assert!(story(&events(world, sibling.as_str())).contains(&"completed".to_owned()));
        runtime.shutdown().await;
        let host = runtime.host();
        drop((desk, run, other, host));
        world.close_after(runtime).await;
    }
    sound(world);
}

fn descendants(world: &World, top: &SessionId) -> Vec<SessionId> {
    let (mut found, mut open) = (Vec::new(), vec![top.clone()]);
    while let Some(id) = open.pop() {
        let below: Vec<_> = world.reader().children(Some(&id), None, usize::MAX).unwrap().into_iter().map(|child| child.id).collect();
        found.extend(below.iter().cloned());
        open.extend(below);
    }
    found
}

/// Returns whose first turn was aborted, in order. What the last notices open is cut off later.
fn turns_cut_off(occurrences: &mut Receiver<Occurrence>) -> Vec<SessionId> {
    let told = std::iter::from_fn(|| occurrences.try_recv().ok());
    let cut_off = |told| match told {
        Occurrence::TurnEnded { session, turn: 1, reason: TurnEnd::Aborted { .. } } => Some(session),
        _ => None,
    };
    told.filter_map(cut_off).collect()
}

async fn disposals_at_the_same_time_are_one(world: &World) {
    let gate = Gate::new();
    let runtime = world.start(cast(&gate)).await;
    let desk = runtime.root("actor", "a desk").await.unwrap();
    for _ in 0..10 {
        let run = desk.agent().start(actor("gate")).await.unwrap();
        gate.reached().await;
        let (clone, found) = (run.clone(), runtime.host().run_of(run.id()).await.unwrap());
        let (told, one, two, three) = tokio::join!(run.result(), clone.dispose(), found.dispose(), run.dispose());
        for done in [one, two, three] {
            done.unwrap();
        }
        let told = told.unwrap();
        assert!(matches!(&told.outcome, TurnEnd::Aborted { cause } if cause == "parent" || cause == "host"), "{told:?}");
        let ends = events(world, run.id().as_str()).into_iter().filter(|event| matches!(event.body, Body::TurnEnd { .. })).count();
        assert_eq!(ends, 1);
    }
    runtime.shutdown().await;
    sound(world);
}

async fn a_child_that_does_not_heed_it_is_dropped(world: &World) {
    let gate = Gate::new();
    let at = gate.clone();
    let cast = Runtime::builder().interrupt_grace(Duration::from_millis(1)).closure("deaf", move |turn: Turn| {
        let at = at.clone();
        async move {
            turn.say("begun")?;
            at.hold().await;
            turn.say("unheard")?;
            Ok(Ended::Completed)
        }
    });
    let runtime = world.start(cast).await;
    let desk = runtime.root("deaf", "a desk").await.unwrap();
    let run = desk.agent().start(Delegate::new("deaf", "a child", "go")).await.unwrap();
    gate.reached().await;
    run.dispose().await.unwrap();
    assert_eq!(run.result().await.unwrap(), result(aborted("parent"), "begun"));
    runtime.shutdown().await;
    sound(world);
}

async fn a_failed_disposal_and_a_failed_result_are_told_apart(world: &World) {
    let gate = Gate::new();
    let runtime = world.start(cast(&gate)).await;
    let desk = runtime.root("actor", "a desk").await.unwrap();
    // The end of the turn cannot be written: what is on disk goes on, and the run with it.
    let run = desk.agent().start(actor("step gate say:done")).await.unwrap();
    gate.reached().await;
    world.watch.fail(run.id().as_str(), Call::Load, 1, Fault::Outage);
    let failed = run.dispose();
    let (failed, ()) = tokio::join!(failed, async {});
    let told = run.result().await;
    // The one fault hits one of them, and the other has its answer all the same.
    match (failed, told) {
        (Err(failed), Ok(told)) => assert_eq!((failed.code(), told.outcome), ("STORE_FAILED", aborted("parent"))),
        (Ok(()), Err(failed)) => assert_eq!(failed.code(), "STORE_FAILED"),
        other => panic!("one of them meets the fault: {other:?}"),
    }
    run.dispose().await.unwrap();
    assert_eq!(run.result().await.unwrap(), result(aborted("parent"), ""));
    // The result cannot be read, and the disposal is none the worse.
    world.watch.fail(run.id().as_str(), Call::Load, None, Fault::Corrupt);
    let damaged = run.result().await.unwrap_err();
    world.watch.clear();
    run.dispose().await.unwrap();
    assert_eq!(damaged.code(), "SESSION_CORRUPT");
    // The commit of the cancel fails: it is told, the epoch ends, and the message is served again unless somebody asks again.
    let run = desk.agent().start(actor("step gate say:done")).await.unwrap();
    gate.reached().await;
    world.watch.fail(run.id().as_str(), Call::Commit, 1, Fault::Outage);
    let first = run.dispose().await;
    gate.open(1);
    let told = run.result().await.unwrap();
    match first {
        // Its cancel met an epoch that had failed, and looked again at what was left.
        Ok(()) => assert_eq!(told.outcome, aborted("parent")),
        Err(error) => assert!(matches!(told.outcome, TurnEnd::Completed | TurnEnd::Aborted { .. }), "{error}: {told:?}"),
    }
    world.watch.clear();
    run.dispose().await.unwrap();
    assert_eq!(run.result().await.unwrap(), told);
    desk.quiescent().await.unwrap();
    runtime.shutdown().await;
    sound(world);
}

async fn a_run_of_another_process_is_waited_for_and_ended_from_here(world: &World) {
    // A store in memory tells nobody that another process has written to it.
    let Some(peer) = world.peer().filter(|_| world.kind == Kind::Sqlite) else { return };
    let gate = Gate::new();
    let there = leads(&gate).start(peer).await.unwrap();
    let here = world.runtime().await;
    let desk = there.root("actor", "a desk").await.unwrap();
    for waits in [true, false] {
        let run = desk.agent().start(actor("gate say:done")).await.unwrap();
        gate.reached().await;
        let found = here.host().run_of(run.id()).await.unwrap();
        if waits {
            let (told, ()) = tokio::join!(found.result(), async { gate.open(1) });
            assert_eq!(told.unwrap(), result(TurnEnd::Completed, "done"));
        } else {
            found.dispose().await.unwrap();
            assert_eq!(found.result().await.unwrap(), result(aborted("user"), ""), "a request of another process is the user's");
        }
        assert_eq!(run.result().await.unwrap(), found.result().await.unwrap());
        gone(world, &run);
    }
    // It has completed its message and waits for its own child: until that is done there, it has not ended.
    let run = desk.agent().start(Delegate::new("lead", "a lead", "leave")).await.unwrap();
    gate.reached().await;
    there.when_idle(run.id()).await.unwrap();
    let found = here.host().run_of(run.id()).await.unwrap();
    let mut ending = Box::pin(found.dispose());
    assert!(still_waits(&mut ending).await);
    gate.open(1);
    ending.await.unwrap();
    gone(world, &run);
    assert_eq!(here.host().run_of(&sid("nobody")).await.unwrap_err().code(), "SESSION_NOT_FOUND");
    here.shutdown().await;
    there.shutdown().await;
    sound(world);
}
