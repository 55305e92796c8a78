//! One-shot runs: what a start promises, what a run comes to, who is told, and who may say what to the child.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use greenroom::{
    Delegate, Delegated, Occurrence, OneShotResult, RuntimeBuilder, Turn, TurnEnd as Ended, TurnError,
    actors::{
        Provider,
        error::DeliverError,
        provider::{Capabilities, Prepare, PrepareError, Prepared},
    },
    session::message::text_of,
};
use greenroom_session::{
    descriptor::{Descriptor, Mode},
    event::{Body, TurnEnd},
    id::SessionId,
    store::MessageState,
};
use tokio_util::sync::CancellationToken;

use crate::{
    mechanics::Gate,
    publish::{events, listed, sound, types},
    watched::Call,
    world::{World, mid},
};

crate::on_every_store!(async
    a_start_is_a_message_in_an_inbox_before_anything_runs,
    a_result_says_how_the_work_on_the_message_ended_and_what_was_said_last,
    a_result_is_never_what_was_inherited,
    what_a_child_does_after_its_message_changes_no_result,
    nobody_can_tell_a_one_shot_child_more,
    a_start_that_is_given_up_leaves_nothing,
    a_descriptor_says_how_the_child_lives_and_its_label_only_if_it_was_given_one,
);

/// `actor` does what its message says, word by word; `gate` in it is where it waits to be let on, `wait` where it waits to be cancelled, `below` has another do what follows.
pub(crate) fn cast(gate: &Gate) -> RuntimeBuilder {
    let at = gate.clone();
    World::builder().closure("actor", move |turn: Turn| {
        let at = at.clone();
        async move { act(turn, at).await }
    })
}

async fn act(turn: Turn, at: Gate) -> Result<Ended, TurnError> {
    let text = turn.text();
    let (own, below) = text.split_once(" below ").map_or((&*text, None), |(own, below)| (own, Some(below)));
    for word in own.split(' ') {
        match word.split_once(':') {
            Some(("say", what)) => turn.say(what)?,
            _ if word == "max" => return Ok(Ended::MaxTokens),
            _ if word == "fail" => return Err(TurnError::new("NO_PAPER", "none")),
            _ if word == "panic" => std::panic::resume_unwind(Box::new("torn")),
            _ if word == "step" => turn.step().await?,
            _ if word == "gate" => at.pass(&turn).await?,
            _ if word == "wait" => turn.cancelled().cancelled().await,
            _ => {}
        }
    }
    if let Some(below) = below {
        let said = turn.delegate_and_wait(Delegate::new("actor", "below", below)).await?;
        turn.say(format!("{} heard {said}", turn.depth()))?;
    }
    Ok(Ended::Completed)
}

pub(crate) fn actor(text: &str) -> Delegate {
    Delegate::new("actor", "an actor", text)
}

pub(crate) fn result(outcome: TurnEnd, text: &str) -> OneShotResult {
    OneShotResult { outcome, text: text.to_owned() }
}

fn no_paper() -> TurnEnd {
    TurnEnd::error("NO_PAPER", "none")
}

/// Returns what a session's log says of it.
fn described(world: &World, id: &str) -> Descriptor {
    let found = events(world, id).into_iter().find_map(|event| if let Body::Descriptor(data) = event.body { Some(data) } else { None });
    Descriptor::parse(&found.expect("a child has a descriptor")).unwrap()
}

async fn a_start_is_a_message_in_an_inbox_before_anything_runs(world: &World) {
    let gate = Gate::new();
    let runtime = world.start(cast(&gate).max_live(1)).await;
    let mut new = greenroom::actors::host::NewRoot::new("actor", "a desk");
    new.cwd = Some("/srv/desk".into());
    let desk = runtime.host().root(new).await.unwrap();
    // It has the one slot: nobody else runs.
    desk.send("gate").await.unwrap();
    gate.reached().await;
    for mode in [Mode::OneShot, Mode::Continuable] {
        let (child, message) = match mode {
            Mode::OneShot => {
                let run = desk.agent().start(actor("say:done")).await.unwrap();
                (run.id().clone(), run.message().clone())
            }
            Mode::Continuable => {
                let Delegated { child, message, existing } = desk.agent().start_continuable(actor("say:done")).await.unwrap();
                assert!(!existing);
                (child, message)
            }
        };
        assert!(uuid::Uuid::parse_str(child.as_str()).is_ok(), "{child}");
        let inbox = world.reader().inbox(&child, 9).unwrap();
        assert_eq!(inbox.iter().map(|record| &record.message.id).collect::<Vec<_>>(), [&message]);
        assert_eq!(types(&events(world, child.as_str())), ["subagent/descriptor", "session/end-seed"], "nothing of it has run");
        let written = described(world, child.as_str());
        assert_eq!((written.mode, written.label.as_deref(), &*written.agent, &*written.provider), (mode, Some("an actor"), "actor", "spawn"));
        let header = world.reader().header(&child).unwrap().unwrap();
        assert_eq!((header.parent.as_ref(), header.depth, header.cwd.as_deref(), header.seed_length), (Some(desk.id()), 1, Some("/srv/desk"), 0));
        assert!(listed(&runtime, desk.id().as_str()).await.iter().any(|entry| entry.starts_with(child.as_str())));
    }
    gate.open(1);
    desk.quiescent().await.unwrap();
    for child in world.reader().children(Some(desk.id()), None, 9).unwrap() {
        let log = events(world, child.id.as_str());
        let served = log.iter().find_map(|event| if let Body::TurnStart { message, .. } = &event.body { Some(message.clone()) } else { None }).unwrap();
        assert!(matches!(world.reader().message(&child.id, &served).unwrap(), Some(MessageState::Taken(0))));
        assert_eq!(log.iter().filter(|event| matches!(event.body, Body::Descriptor(_))).count(), 1);
    }
    runtime.shutdown().await;
    sound(world);
}

async fn a_result_says_how_the_work_on_the_message_ended_and_what_was_said_last(world: &World) {
    let runtime = world.start(cast(&Gate::new())).await;
    let desk = runtime.root("actor", "a desk").await.unwrap();
    for (text, outcome, said) in [
        ("say:this say:that", TurnEnd::Completed, "that"),
        ("say:this say:", TurnEnd::Completed, "this"),
        ("nothing", TurnEnd::Completed, ""),
        ("say:much max", TurnEnd::MaxTokens, "much"),
        ("fail", no_paper(), ""),
        ("say:this step fail", no_paper(), "this"),
        ("panic", TurnEnd::error("PANIC", "torn"), ""),
        ("say:first below say:second", TurnEnd::Completed, "1 heard second"),
        ("below fail", TurnEnd::Completed, ""),
    ] {
        let mut occurrences = runtime.subscribe();
        let run = desk.agent().start(actor(text)).await.unwrap();
        let told = run.result().await.unwrap();
        if text == "below fail" {
            // What failed below is whatever the child makes of it: here its own failure, of the same code.
            assert!(matches!(&told.outcome, TurnEnd::Error { code, .. } if code == "NO_PAPER"), "{told:?}");
        } else {
            assert_eq!(told, result(outcome, said), "{text}");
        }
        // It is durable, and asking changes nothing.
        let (before, clone) = (events(world, run.id().as_str()), run.clone());
        for again in [run.result().await, clone.result().await, runtime.host().run_of(run.id()).await.unwrap().result().await] {
            assert_eq!(again.unwrap(), told, "{text}");
        }
        let found = desk.agent().run_of(run.id()).await.unwrap();
        assert_eq!((found.id(), found.message()), (run.id(), run.message()));
        assert_eq!(found.result().await.unwrap(), told);
        assert_eq!(events(world, run.id().as_str()), before, "{text}");
        // Whoever listens is told the same.
        let Some(Occurrence::Ended { outcome, answer, .. }) = ended(&mut occurrences, run.id()) else { panic!("nobody was told of the end: {text}") };
        assert_eq!((outcome, answer.as_deref().unwrap_or_default()), (told.outcome, &*told.text), "{text}");
    }
    assert_eq!(desk.quiescent().await.unwrap(), []);
    let noticed = events(world, desk.id().as_str()).into_iter().filter(|event| matches!(event.body, Body::UserMessage(_))).count();
    assert_eq!(noticed, 0, "whoever started a run asks it, and is told nothing unasked");
    runtime.shutdown().await;
    sound(world);
}

/// Returns the end of a session that was told of by now.
fn ended(occurrences: &mut tokio::sync::broadcast::Receiver<Occurrence>, of: &SessionId) -> Option<Occurrence> {
    std::iter::from_fn(|| occurrences.try_recv().ok()).find(|told| matches!(told, Occurrence::Ended { session, .. } if session == of))
}

async fn a_result_is_never_what_was_inherited(world: &World) {
    let runtime = world.start(cast(&Gate::new())).await;
    let desk = runtime.root("actor", "a desk").await.unwrap();
    desk.send("say:the-parents-own").await.unwrap();
    desk.quiescent().await.unwrap();
    for (text, said) in [("nothing", ""), ("fail", ""), ("say:mine", "mine")] {
        let run = desk.agent().start(actor(text).provider("fork")).await.unwrap();
        assert_eq!(run.result().await.unwrap().text, said, "{text}");
        let log = runtime.host().load(run.id()).await.unwrap();
        let seen: Vec<_> = log.fold.surface().messages().map(|message| text_of(&message.content)).collect();
        assert!(seen.contains(&"the-parents-own".to_owned()), "it was inherited: {seen:?}");
        assert!(log.fold.header().seed_length > 0);
        // The run is found by its own first message, not by an inherited one.
        assert_eq!(runtime.host().run_of(run.id()).await.unwrap().message(), run.message());
    }
    runtime.shutdown().await;
    sound(world);
}

/// `boss` starts a worker in the background and is done; on what the worker says it says something itself, and falls.
fn bosses(gate: &Gate) -> RuntimeBuilder {
    cast(gate)
        .closure("boss", |turn: Turn| async move {
            if turn.message().is_some() {
                turn.delegate(Delegate::new("reporter", "a reporter", turn.text())).await?;
                turn.say("begun")?;
                return Ok(Ended::Completed);
            }
            let notes = turn.notes().iter().map(|note| note.source.kind().to_owned()).collect::<Vec<_>>();
            turn.say(format!("turn {} was told of {}", turn.number(), notes.join(" and ")))?;
            Err(TurnError::new("NO_PAPER", "none"))
        })
        .closure("reporter", |turn: Turn| async move {
            if turn.text() != "quiet" {
                turn.report(turn.text(), false).await?;
            }
            Ok(Ended::Completed)
        })
}

async fn what_a_child_does_after_its_message_changes_no_result(world: &World) {
    let runtime = world.start(bosses(&Gate::new())).await;
    let desk = runtime.root("actor", "a desk").await.unwrap();
    let run = desk.agent().start(Delegate::new("boss", "a boss", "quiet")).await.unwrap();
    let told = run.result().await.unwrap();
    // The last word counts, and the failure of a turn that nobody asked for does not.
    assert_eq!(told, result(TurnEnd::Completed, "turn 2 was told of subagent-settled"));
    let reporter = world.reader().children(Some(run.id()), None, 9).unwrap().remove(0).id;
    let host = runtime.host();
    // The child lives again on what its own child reports, long after the run.
    let turns = host.load(run.id()).await.unwrap().fold.head().turns;
    host.send(&reporter, "once more", None).await.unwrap();
    host.quiescent(desk.id()).await.unwrap();
    let log = host.load(run.id()).await.unwrap();
    assert!(log.fold.head().turns > turns);
    assert_ne!(said(world, run.id()), told.text, "it has said more");
    assert_eq!(run.result().await.unwrap(), told);
    drop(host);
    let child = run.id().clone();
    drop((run, desk));
    world.close_after(runtime).await;
    let runtime = world.start(bosses(&Gate::new())).await;
    assert_eq!(runtime.host().run_of(&child).await.unwrap().result().await.unwrap(), told);
    runtime.shutdown().await;
    sound(world);
}

async fn nobody_can_tell_a_one_shot_child_more(world: &World) {
    let gate = Gate::new();
    let runtime = world.start(cast(&gate)).await;
    let desk = runtime.root("actor", "a desk").await.unwrap();
    let run = desk.agent().start(actor("gate say:done")).await.unwrap();
    gate.reached().await;
    let (child, host) = (run.id().clone(), runtime.host());
    let mut before = None;
    for live in [true, false] {
        if !live {
            gate.open(1);
            assert_eq!(run.result().await.unwrap(), result(TurnEnd::Completed, "done"));
            before = Some(events(world, child.as_str()));
        }
        let refused = desk.agent().followup(&child, "more").await.unwrap_err();
        assert!(matches!(&refused, DeliverError::NotResumable { reason, .. } if reason.contains("no supported continuation state")), "{refused}");
        let id = || Some(mid("more"));
        let told = [
            desk.agent().followup(&child, "more").await,
            host.send(&child, "more", id()).await,
            host.steer(&child, "more", id()).await,
            host.inject(&child, "more", id()).await,
        ];
        for refused in told {
            assert_eq!(refused.unwrap_err().code(), "NOT_RESUMABLE", "live: {live}");
        }
        assert_eq!(world.reader().inbox(&child, 9).unwrap(), []);
        assert_eq!(world.reader().message(&child, &mid("more")).unwrap(), None);
    }
    assert_eq!(Some(events(world, child.as_str())), before);
    runtime.shutdown().await;
}

async fn a_start_that_is_given_up_leaves_nothing(world: &World) {
    let runtime = world.start(cast(&Gate::new())).await;
    let desk = runtime.root("actor", "a desk").await.unwrap();
    let mut occurrences = runtime.subscribe();
    let cancel = CancellationToken::new();
    let agent = desk.agent().cancellable(cancel.clone());
    // Before it is asked, and while its creation is prepared: here what it would inherit is read.
    let paused = world.watch.pause(desk.id().as_str(), Call::Events, 1);
    let (given_up, ()) = tokio::join!(agent.start(actor("say:never").provider("fork")), async {
        paused.reached().await;
        cancel.cancel();
    });
    assert_eq!(given_up.unwrap_err().code(), "CANCELLED");
    drop(paused);
    assert_eq!(agent.start(actor("say:never")).await.unwrap_err().code(), "CANCELLED");
    assert_eq!(world.reader().children(Some(desk.id()), None, 9).unwrap(), []);
    // The desk itself may be told of late.
    let is_child = |told: &Occurrence| matches!(told, Occurrence::Created { session, .. } | Occurrence::Activated { session, .. } if session != desk.id());
    let heard = std::iter::from_fn(|| occurrences.try_recv().ok()).filter(is_child);
    assert_eq!(heard.count(), 0);
    // Once it is accepted the token ends nothing.
    let cancel = CancellationToken::new();
    let run = desk.agent().cancellable(cancel.clone()).start(actor("say:done")).await.unwrap();
    cancel.cancel();
    assert_eq!(run.result().await.unwrap(), result(TurnEnd::Completed, "done"));
    runtime.shutdown().await;
}

/// Returns what a session has said last, by its whole log.
pub(crate) fn said(world: &World, id: &SessionId) -> String {
    world.reader().folded(id).unwrap().last_said().map(|message| text_of(&message.content)).unwrap_or_default()
}

/// Notes what it is asked for.
struct Notary(Arc<Mutex<Vec<Prepare>>>);

impl Provider for Notary {
    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    fn prepare(&self, prepare: Prepare) -> BoxFuture<'_, Result<Prepared, PrepareError>> {
        self.0.lock().unwrap().push(prepare);
        Box::pin(async { Ok(Prepared::default()) })
    }
}

async fn a_descriptor_says_how_the_child_lives_and_its_label_only_if_it_was_given_one(world: &World) {
    let runtime = world.start(cast(&Gate::new())).await;
    let host = runtime.host();
    let noted = Arc::default();
    let notary = host.register_provider("notary", Notary(Arc::clone(&noted))).unwrap();
    let desk = runtime.root("actor", "a desk").await.unwrap();
    for delegate in [actor("say:done"), Delegate::unlabelled("actor", "say:done")] {
        let label = delegate.label.clone();
        let run = desk.agent().start(delegate.provider("notary")).await.unwrap();
        let written = described(world, run.id().as_str());
        assert_eq!((written.mode, &written.label, &*written.provider), (Mode::OneShot, &label, "notary"));
        let asked = noted.lock().unwrap().pop().unwrap();
        assert_eq!((&asked.child, &*asked.descriptor, asked.mode()), (run.id(), &written, Mode::OneShot), "it was asked for exactly that");
        assert_eq!(run.result().await.unwrap(), result(TurnEnd::Completed, "done"));
    }
    assert!(noted.lock().unwrap().is_empty(), "and once for each");
    let refused = desk.agent().start_continuable(Delegate::unlabelled("actor", "say:done")).await.unwrap_err();
    assert_eq!(refused.code(), "DESCRIPTOR_MALFORMED", "only a one-shot child may be without");
    drop(notary);
    runtime.shutdown().await;
    sound(world);
}
