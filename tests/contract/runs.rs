//! What becomes of one-shot runs when those who wait for them, hold them, prepared them or play them are gone, and what a wait costs.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use greenroom::{
    Delegate, Occurrence, OneShotRun, Runtime, RuntimeBuilder, Turn, TurnEnd as Ended, TurnError,
    actors::{
        Provider,
        provider::{Capabilities, Prepare, PrepareError, Prepared},
    },
};
use greenroom_session::{
    descriptor::Descriptor,
    event::{Body, TurnEnd},
    id::{MessageId, SessionId},
    message::{Message, Source, text_of},
    store::{Accept, Op},
};
use tokio::sync::mpsc;

use crate::{
    author::{Author, one_shot},
    mechanics::{Gate, story},
    one_shot::{actor, cast, result, said},
    publish::{events, sound, until},
    world::{World, mid, sid},
};

crate::on_every_store!(async
    a_run_outlives_whoever_started_it_and_whoever_held_it,
    a_run_outlives_the_provider_that_prepared_it,
    a_run_goes_on_with_the_next_runtime_and_is_the_same,
    a_turn_that_waits_at_a_shutdown_is_served_again,
    a_turn_that_is_cancelled_waits_no_longer_and_its_run_goes_on,
    a_run_that_nobody_can_go_on_with_says_so,
    whoever_waits_for_a_run_gives_its_slot_back,
);

async fn a_run_outlives_whoever_started_it_and_whoever_held_it(world: &World) {
    let gate = Gate::new();
    let (give, mut runs) = mpsc::unbounded_channel::<OneShotRun>();
    let cast = cast(&gate).closure("starter", move |turn: Turn| {
        let give = give.clone();
        async move {
            let run = turn.agent().start(actor("gate say:kept")).await?;
            drop(turn.agent().start(actor("gate say:dropped")).await?);
            give.send(run).ok();
            Ok(Ended::Completed)
        }
    });
    let runtime = world.start(cast).await;
    let desk = runtime.root("starter", "a desk").await.unwrap();
    desk.send("go").await.unwrap();
    let run = runs.recv().await.unwrap();
    runtime.when_idle(desk.id()).await.unwrap();
    let top = desk.id().clone();
    // Neither the turn nor the handle is there any more.
    drop(desk);
    gate.open(2);
    assert_eq!(run.result().await.unwrap(), result(TurnEnd::Completed, "kept"));
    let host = runtime.host();
    assert_eq!(host.quiescent(&top).await.unwrap(), []);
    assert_eq!(host.live_count(), 0);
    assert_eq!(run.result().await.unwrap().text, "kept", "nor is its parent");
    let said: Vec<_> = world.reader().children(Some(&top), None, 9).unwrap().iter().map(|child| said(world, &child.id)).collect();
    assert_eq!((said.len(), said.contains(&"dropped".to_owned())), (2, true), "{said:?}");
    runtime.shutdown().await;
    sound(world);
}

/// Has nothing to hand over.
struct Plain;

impl Provider for Plain {
    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    fn prepare(&self, _: Prepare) -> BoxFuture<'_, Result<Prepared, PrepareError>> {
        Box::pin(async { Ok(Prepared::default()) })
    }
}

async fn a_run_outlives_the_provider_that_prepared_it(world: &World) {
    let gate = Gate::new();
    let runtime = world.start(cast(&gate)).await;
    let desk = runtime.root("actor", "a desk").await.unwrap();
    let plain = runtime.host().register_provider("plain", Plain).unwrap();
    let (agent, prepared) = (desk.agent(), || actor("gate say:done").provider("plain"));
    let (kept, disposed) = (agent.start(prepared()).await.unwrap(), agent.start(prepared()).await.unwrap());
    for _ in 0..2 {
        gate.reached().await;
    }
    drop(plain);
    assert_eq!(desk.agent().start(actor("say:never").provider("plain")).await.unwrap_err().code(), "NO_PROVIDER");
    disposed.dispose().await.unwrap();
    gate.open(1);
    assert_eq!(kept.result().await.unwrap(), result(TurnEnd::Completed, "done"));
    assert!(matches!(disposed.result().await.unwrap().outcome, TurnEnd::Aborted { .. }));
    let child = kept.id().clone();
    drop((kept, disposed, agent, desk));
    world.close_after(runtime).await;
    // Nor is it missed by a process that never had it.
    let runtime = world.start(cast(&gate)).await;
    assert_eq!(runtime.run_of(&child).await.unwrap().result().await.unwrap().text, "done");
    runtime.shutdown().await;
    sound(world);
}

async fn a_run_goes_on_with_the_next_runtime_and_is_the_same(world: &World) {
    let gate = Gate::new();
    let starts: Arc<Mutex<Vec<(SessionId, MessageId)>>> = Arc::default();
    let builder = || {
        let (starts, at) = (starts.clone(), gate.clone());
        cast(&gate).closure("starter", move |turn: Turn| {
            let (starts, at) = (starts.clone(), at.clone());
            async move {
                // The same on every attempt: an effect of its message.
                let run = turn.agent().start(actor("gate say:done")).await?;
                starts.lock().unwrap().push((run.id().clone(), run.message().clone()));
                at.pass(&turn).await?;
                turn.say(run.result().await.map_err(TurnError::from)?.text)?;
                Ok(Ended::Completed)
            }
        })
    };
    let runtime = world.start(builder()).await;
    let desk = runtime.root("starter", "a desk").await.unwrap();
    let own = desk.agent().start(actor("gate say:own")).await.unwrap();
    desk.send("go").await.unwrap();
    for _ in 0..3 {
        gate.reached().await;
    }
    let waiting = own.result();
    let (told, ()) = tokio::join!(waiting, runtime.shutdown());
    assert_eq!(told.unwrap_err().code(), "DRAINING", "it has work left");
    assert_eq!(own.result().await.unwrap_err().code(), "DRAINING");
    let (top, child) = (desk.id().clone(), own.id().clone());
    drop((desk, own));
    world.close_after(runtime).await;
    let runtime = world.start(builder()).await;
    let desk = runtime.resume(&top).await.unwrap();
    gate.open(9);
    // Nobody had woken it: whoever asks has.
    assert_eq!(runtime.host().run_of(&child).await.unwrap().result().await.unwrap(), result(TurnEnd::Completed, "own"));
    assert_eq!(desk.agent().run_of(&child).await.unwrap().result().await.unwrap().text, "own");
    desk.quiescent().await.unwrap();
    assert_eq!(said(world, &top), "done");
    let starts = starts.lock().unwrap().clone();
    assert_eq!((starts.len(), &starts[0]), (2, &starts[1]), "the second attempt has the same run");
    assert_eq!(world.reader().children(Some(&top), None, 9).unwrap().len(), 2);
    runtime.shutdown().await;
    sound(world);
}

/// `waiter` has another wait at the gate, and waits for it as its message says.
fn waiters(gate: &Gate) -> RuntimeBuilder {
    cast(gate).closure("waiter", |turn: Turn| async move {
        if turn.message().is_none() {
            return Ok(Ended::Completed);
        }
        let delegate = actor("gate say:done");
        let answer = match &*turn.text() {
            "in one" => turn.delegate_and_wait(delegate).await?,
            _ => turn.agent().start(delegate).await?.result().await.map_err(TurnError::from)?.text,
        };
        turn.say(answer)?;
        Ok(Ended::Completed)
    })
}

async fn a_turn_that_waits_at_a_shutdown_is_served_again(world: &World) {
    for text in ["in one", "in two"] {
        let (gate, last) = (Gate::new(), Gate::new());
        let builder = || {
            let at = last.clone();
            let deaf = move |_: Turn| {
                let at = at.clone();
                async move {
                    at.hold().await;
                    Ok(Ended::Completed)
                }
            };
            waiters(&gate).closure("deaf", deaf).interrupt_grace(Duration::from_millis(50))
        };
        let runtime = world.start(builder()).await;
        let desk = runtime.root("waiter", "a desk").await.unwrap();
        // It ends after the run for which the turn waits, so that the turn hears of that one first.
        desk.agent().start_continuable(Delegate::new("deaf", "another", "work")).await.unwrap();
        last.reached().await;
        desk.send(text).await.unwrap();
        gate.reached().await;
        let top = desk.id().clone();
        drop(desk);
        world.close_after(runtime).await;
        assert_eq!(story(&events(world, top.as_str())), ["turn 1", text, "disposed"]);
        let runtime = world.start(builder()).await;
        let desk = runtime.resume(&top).await.unwrap();
        gate.open(1);
        last.open(1);
        runtime.when_idle(&top).await.unwrap();
        desk.quiescent().await.unwrap();
        let told = story(&events(world, top.as_str()));
        assert!(told[3..].contains(&"turn 2".to_owned()) && !told.contains(&"error".to_owned()), "{told:?}");
        let answers = events(world, top.as_str())
            .into_iter()
            .filter(|event| matches!(&event.body, Body::AssistantMessage { message, .. } if text_of(&message.content) == "done"));
        assert_eq!(answers.count(), 1, "{told:?}");
        assert_eq!(world.reader().children(Some(&top), None, 9).unwrap().len(), 2, "the same run");
        drop(desk);
        world.close_after(runtime).await;
    }
    sound(world);
}

async fn a_turn_that_is_cancelled_waits_no_longer_and_its_run_goes_on(world: &World) {
    for text in ["in one", "in two"] {
        let gate = Gate::new();
        // Nobody is dropped for being deaf: whoever waits hears of it, and needs no slot to end, which the run has.
        let runtime = world.start(waiters(&gate).max_live(1).interrupt_grace(Duration::from_secs(600))).await;
        let desk = runtime.root("waiter", "a desk").await.unwrap();
        desk.send(text).await.unwrap();
        gate.reached().await;
        runtime.interrupt(desk.id(), Duration::from_secs(60)).await.unwrap();
        assert_eq!(story(&events(world, desk.id().as_str())), ["turn 1", text, "aborted by user"]);
        let child = world.reader().children(Some(desk.id()), None, 9).unwrap().remove(0).id;
        gate.open(1);
        assert_eq!(runtime.run_of(&child).await.unwrap().result().await.unwrap(), result(TurnEnd::Completed, "done"));
        runtime.shutdown().await;
        drop(desk);
        world.close_after(runtime).await;
    }
    sound(world);
}

async fn a_run_that_nobody_can_go_on_with_says_so(world: &World) {
    world.root_of("r", "actor");
    world.root_of("stranger", "actor");
    world.child("continuable", "r");
    world.create(&Author::child("asked nothing", "r").described(&one_shot(None)).sealed());
    world.create(&Author::child("of nobody", "r").described(&Descriptor { agent: "nobody".into(), ..one_shot(None) }).sealed());
    let message = Message::turn("m", "work", Source::Coordinator { session: sid("r") }, 1_000).unwrap();
    world.one(Op::Accept(Accept::new(sid("of nobody"), message))).unwrap();
    let runtime = world.start(cast(&Gate::new())).await;
    let (desk, stranger) = (runtime.resume(&sid("r")).await.unwrap(), runtime.resume(&sid("stranger")).await.unwrap());
    let run = desk.agent().start(actor("say:done")).await.unwrap();
    run.result().await.unwrap();
    let host = runtime.host();
    for (child, by_host, by_parent) in [
        ("missing", "SESSION_NOT_FOUND", "SESSION_NOT_FOUND"),
        ("r", "NOT_RESUMABLE", "UNAUTHORIZED"),
        ("continuable", "NOT_RESUMABLE", "NOT_RESUMABLE"),
        ("asked nothing", "NOT_STARTED", "NOT_STARTED"),
    ] {
        assert_eq!(host.run_of(&sid(child)).await.unwrap_err().code(), by_host, "{child}");
        assert_eq!(desk.agent().run_of(&sid(child)).await.unwrap_err().code(), by_parent, "{child}");
    }
    let of_nobody = host.run_of(&sid("of nobody")).await.unwrap();
    assert_eq!((of_nobody.message(), of_nobody.result().await.unwrap_err().code()), (&mid("m"), "NOT_RESUMABLE"));
    assert_eq!(stranger.agent().run_of(run.id()).await.unwrap_err().code(), "UNAUTHORIZED");
    let stale = stranger.agent();
    drop(stranger);
    let mut ends = host.subscribe();
    if host.live_count() > 1 {
        until(&mut ends, |told| matches!(told, Occurrence::Ended { session, .. } if *session == sid("stranger"))).await;
    }
    assert_eq!(stale.start(actor("say:never")).await.unwrap_err().code(), "UNAUTHORIZED");
    runtime.shutdown().await;
    assert_eq!(world.reader().children(Some(&sid("stranger")), None, 9).unwrap(), []);
}

/// `chief N` has others do it N levels down, each waiting in another way, the deepest failing now and then.
fn chiefs(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.closure("chief", |turn: Turn| async move {
        let depth: u32 = turn.text().parse().unwrap_or(0);
        if depth == 0 {
            return Err(TurnError::new("TOO_DEEP", "nobody is left"));
        }
        let below = |label: &str| Delegate::new("chief", label, (depth - 1).to_string());
        let agent = turn.agent();
        match depth % 3 {
            0 => drop(turn.delegate_and_wait(below("a")).await),
            1 => {
                let run = agent.start(below("b")).await?;
                // Both of these wait, as one turn.
                let (one, two) = tokio::join!(run.result(), turn.delegate_and_wait(below("c")));
                turn.say(format!("{} and {}", one.is_ok(), two.is_ok()))?;
            }
            _ => {
                let (kept, dropped) = (agent.start(below("d")).await?, agent.start(below("e")).await?);
                dropped.dispose().await.map_err(TurnError::from)?;
                kept.result().await.map_err(TurnError::from)?;
            }
        }
        turn.say("back")?;
        Ok(Ended::Completed)
    })
}

async fn whoever_waits_for_a_run_gives_its_slot_back(world: &World) {
    for max_live in [1, 2] {
        let runtime = world.start(chiefs(Runtime::builder()).max_live(max_live)).await;
        let desk = runtime.root("chief", "a desk").await.unwrap();
        for round in 0..8_u64 {
            let message = desk.send("4").await.unwrap();
            runtime.when_idle(desk.id()).await.unwrap();
            let log = events(world, desk.id().as_str());
            let turn = log.iter().find_map(|event| match &event.body {
                Body::TurnStart { turn, message: served, .. } if *served == message => Some(*turn),
                _ => None,
            });
            let end = log.iter().rfind(|event| matches!(&event.body, Body::TurnEnd { turn: of, .. } if Some(*of) == turn)).unwrap();
            assert!(matches!(&end.body, Body::TurnEnd { reason: TurnEnd::Completed, .. }), "round {round}: {end:?}");
        }
        assert_eq!(desk.quiescent().await.unwrap(), []);
        runtime.shutdown().await;
    }
    sound(world);
}
