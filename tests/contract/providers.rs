//! Providers: how they come and go, what they may be asked for, what becomes of a start whose provider fails or is kept waiting for, and what a child needs them for later.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, pending};
use greenroom::{
    Agent, Delegate, Occurrence, Registration, RootHandle, Runtime, RuntimeBuilder, Turn, TurnEnd as Ended,
    actors::{error::StartError, host::NewRoot},
    provider::{Capabilities, FORK, Prepare, PrepareError, Prepared, Provider, SPAWN},
};
use greenroom_session::{
    descriptor::{Descriptor, Mode, ToolFilter},
    event::{Body, Event, SurfaceOp, TurnEnd},
    id::SessionId,
};
use tokio::sync::{Semaphore, broadcast::Receiver, mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    publish::{events, heard, sound, until},
    world::{World, mid, sid},
};

crate::on_every_store!(async
    providers_come_and_go_and_each_is_told_once,
    what_a_provider_cannot_do_is_refused_before_it_is_asked,
    a_provider_is_told_what_the_child_is_to_be,
    a_provider_that_fails_leaves_nothing_behind,
    what_is_no_beginning_of_a_log_is_refused_and_leaves_nothing_behind,
    a_start_waits_for_its_provider_no_longer_than_somebody_waits_for_it,
    a_parent_that_ends_meanwhile_starts_nobody,
    a_child_outlives_its_provider,
    what_was_accepted_asks_no_provider_again,
);

type Answer = Arc<dyn Fn(Prepare) -> BoxFuture<'static, Result<Prepared, PrepareError>> + Send + Sync>;

/// A provider that does what a test says, and notes what it was asked.
#[derive(Clone)]
pub(crate) struct Copier {
    capabilities: Capabilities,
    asked: Arc<Mutex<Vec<Prepare>>>,
    answer: Answer,
}

impl Copier {
    fn new<F>(answer: impl Fn(Prepare) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Prepared, PrepareError>> + Send + 'static,
    {
        Self { capabilities: Capabilities::all(), asked: Arc::default(), answer: Arc::new(move |prepare| Box::pin(answer(prepare))) }
    }

    /// One that gives nothing along.
    pub(crate) fn blank() -> Self {
        Self::new(|_| async { Ok(Prepared::default()) })
    }

    pub(crate) fn able(self, capabilities: Capabilities) -> Self {
        Self { capabilities, ..self }
    }

    pub(crate) fn asked(&self) -> Vec<Prepare> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Provider for Copier {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn prepare(&self, prepare: Prepare) -> BoxFuture<'_, Result<Prepared, PrepareError>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(prepare.clone());
        (self.answer)(prepare)
    }
}

pub(crate) async fn desk(runtime: &Runtime, id: &str) -> RootHandle {
    let mut new = NewRoot::new("worker", format!("root {id}"));
    new.id = Some(sid(id));
    runtime.host().root(new).await.unwrap()
}

pub(crate) fn delegate(provider: &str) -> Delegate {
    Delegate::new("worker", "a copy", "begin").provider(provider)
}

/// Returns every session of the store but the root.
pub(crate) fn below(world: &World, root: &str) -> Vec<SessionId> {
    world.reader().find("", 1_000).unwrap().into_iter().filter(|id| *id != sid(root)).collect()
}

/// Returns the code of a start that must fail, whose message names the provider if it is its fault.
async fn refused(agent: &Agent, delegate: Delegate) -> &'static str {
    let provider = delegate.provider.clone();
    let error = agent.start_continuable(delegate).await.unwrap_err();
    assert!(!matches!(error, StartError::Provider { .. }) || error.to_string().contains(&format!("provider {provider:?}")), "{error}");
    error.code()
}

/// Starts a runtime whose `boss` does what a test says in its turns.
pub(crate) async fn with_boss<F>(world: &World, builder: RuntimeBuilder, act: impl Fn(Turn) -> F + Clone + Send + Sync + 'static) -> Runtime
where
    F: Future<Output = ()> + Send + 'static,
{
    let boss = move |turn: Turn| {
        let act = act.clone();
        async move {
            // Turns that only take notes of what children have done come when they come.
            if turn.message().is_some() {
                act(turn).await;
            }
            Ok(Ended::Completed)
        }
    };
    world.start(builder.closure("boss", boss)).await
}

pub(crate) async fn boss(runtime: &Runtime, id: &str) -> RootHandle {
    let mut new = NewRoot::new("boss", format!("root {id}"));
    new.id = Some(sid(id));
    runtime.host().root(new).await.unwrap()
}

async fn providers_come_and_go_and_each_is_told_once(world: &World) {
    let runtime = world.runtime().await;
    let host = runtime.host();
    let mut told = host.subscribe();
    assert_eq!(host.providers(), [SPAWN, FORK]);
    let one = host.register_provider("one", Copier::blank()).unwrap();
    let other = host.register_provider("other", Copier::blank().able(Capabilities::none())).unwrap();
    assert_eq!(host.providers(), [SPAWN, FORK, "one", "other"]);
    assert_eq!((host.provider("one"), host.provider("other"), host.provider("nobody")), (Some(Capabilities::all()), Some(Capabilities::none()), None));
    for name in [SPAWN, FORK, "one"] {
        assert_eq!(host.register_provider(name, Copier::blank()).unwrap_err().code(), "DUPLICATE_PROVIDER", "{name}");
    }
    for name in [String::new(), "a\nb".into(), "x".repeat(201)] {
        assert_eq!(host.register_provider(&name, Copier::blank()).unwrap_err().code(), "INVALID_LABEL", "{name:?}");
    }
    assert_eq!(host.providers(), [SPAWN, FORK, "one", "other"], "what is refused changes nothing");
    let root = desk(&runtime, "r").await;
    let agent = root.agent();
    agent.start_continuable(delegate("one")).await.unwrap();
    one.remove();
    one.remove();
    assert_eq!(host.providers(), [SPAWN, FORK, "other"]);
    assert_eq!(refused(&agent, delegate("one")).await, "NO_PROVIDER");
    assert_eq!(refused(&agent, delegate("nobody")).await, "NO_PROVIDER");
    // The name is free; the registration that had it before takes nothing away from its successor.
    let successor = host.register_provider("one", Copier::blank()).unwrap();
    drop(one);
    agent.start_continuable(delegate("one")).await.unwrap();
    drop((other, successor));
    assert_eq!(host.providers(), [SPAWN, FORK]);
    assert_eq!(root.quiescent().await.unwrap(), []);
    runtime.shutdown().await;
    let expected = ["+one", "+other", "-one", "+one", "-other", "-one"];
    assert_eq!(news(&mut told), expected);
}

fn news(told: &mut Receiver<Occurrence>) -> Vec<String> {
    let mut news = Vec::new();
    while let Ok(occurrence) = told.try_recv() {
        match occurrence {
            Occurrence::ProviderAdded { name } => news.push(format!("+{name}")),
            Occurrence::ProviderRemoved { name } => news.push(format!("-{name}")),
            _ => {}
        }
    }
    news
}

async fn what_a_provider_cannot_do_is_refused_before_it_is_asked(world: &World) {
    let all = Capabilities::all;
    let filter = || ToolFilter { allow: Some(vec!["read".into()]), deny: None };
    let cases = [
        ("continuable children", Mode::Continuable, Capabilities { continuable: false, ..all() }, delegate("copier")),
        ("one-shot children", Mode::OneShot, Capabilities { one_shot: false, ..all() }, delegate("copier")),
        ("a depth limit", Mode::Continuable, Capabilities { depth_limit: false, ..all() }, delegate("copier").max_depth(5)),
        ("a tool filter", Mode::Continuable, Capabilities { tool_filter: false, ..all() }, delegate("copier").tool_filter(filter())),
        ("a persona", Mode::OneShot, Capabilities { persona: false, ..all() }, delegate("copier").persona("a clerk")),
        ("a model route", Mode::Continuable, Capabilities { model: false, ..all() }, delegate("copier").model("small")),
    ];
    let (say, mut said) = mpsc::unbounded_channel();
    let wanted: Vec<_> = cases.iter().map(|(_, mode, _, delegate)| (*mode, delegate.clone())).collect();
    let act = move |turn: Turn| {
        let (say, wanted) = (say.clone(), wanted.clone());
        async move {
            let (mode, delegate) = wanted[turn.rank().unwrap() / 2].clone();
            let code = match mode {
                Mode::Continuable => turn.delegate(delegate).await.map(|_| ()).map_err(|error| (error.code().to_owned(), error.to_string())),
                Mode::OneShot => turn.delegate_and_wait(delegate).await.map(|_| ()).map_err(|error| (error.code, error.message)),
            };
            say.send(code).unwrap();
        }
    };
    let runtime = with_boss(world, World::builder(), act).await;
    let host = runtime.host();
    let root = boss(&runtime, "r").await;
    for (count, (what, _, capabilities, _)) in cases.into_iter().enumerate() {
        let unable = Copier::blank().able(capabilities);
        let registration = host.register_provider("copier", unable.clone()).unwrap();
        root.send("try").await.unwrap();
        let (code, text) = said.recv().await.unwrap().unwrap_err();
        assert_eq!((&*code, &*text), ("UNSUPPORTED_CAPABILITY", &*format!("provider \"copier\" does not support {what}")));
        assert!(unable.asked().is_empty() && below(world, "r").len() == count, "{what}");
        drop(registration);
        let able = Copier::blank();
        let _registration = host.register_provider("copier", able.clone()).unwrap();
        root.send("try again").await.unwrap();
        said.recv().await.unwrap().unwrap();
        assert_eq!((able.asked().len(), below(world, "r").len()), (1, count + 1), "{what}");
    }
    assert_eq!(root.quiescent().await.unwrap(), []);
    runtime.shutdown().await;
}

async fn a_provider_is_told_what_the_child_is_to_be(world: &World) {
    let asked = |turn: Turn| async move {
        turn.delegate(delegate("copier").persona("a clerk").model("small").alias("c")).await.unwrap();
        turn.delegate_and_wait(delegate("copier")).await.unwrap();
        turn.delegate_and_wait(Delegate::unlabelled("worker", "no label").provider("copier")).await.unwrap();
    };
    let runtime = with_boss(world, World::builder(), asked).await;
    let copier = Copier::blank();
    let _registration = runtime.host().register_provider("copier", copier.clone()).unwrap();
    let root = boss(&runtime, "r").await;
    root.send("go").await.unwrap();
    assert_eq!(root.quiescent().await.unwrap(), []);
    runtime.shutdown().await;
    let asked = copier.asked();
    let told: Vec<_> = asked.iter().map(|prepare| (prepare.mode(), prepare.descriptor.label.as_deref(), prepare.descriptor.persona.as_deref())).collect();
    let label = Some("a copy");
    assert_eq!(told, [(Mode::Continuable, label, Some("a clerk")), (Mode::OneShot, label, None), (Mode::OneShot, None, None)]);
    for prepare in asked {
        assert_eq!(prepare.parent.id, sid("r"));
        assert!(prepare.cancel.is_cancelled(), "nobody waits for it any more");
        let log = events(world, prepare.child.as_str());
        assert_eq!(log[0].body, Body::Descriptor(serde_json::to_value(&*prepare.descriptor).unwrap()), "what it was told is what is recorded");
    }
}

async fn a_provider_that_fails_leaves_nothing_behind(world: &World) {
    let runtime = world.runtime().await;
    let host = runtime.host();
    let root = desk(&runtime, "r").await;
    let cases = [
        ("NO_PAPER", Copier::new(|_| async { Err(PrepareError::new("NO_PAPER", "the copier is out of paper")) })),
        ("PANIC", Copier::new(|_| async { panic!("a jam") })),
        ("PANIC", Copier { answer: Arc::new(|_| panic!("a jam at once")), ..Copier::blank() }),
    ];
    for (code, copier) in cases {
        let registration = host.register_provider("copier", copier).unwrap();
        assert_eq!(refused(&root.agent(), delegate("copier")).await, code);
        assert_eq!(below(world, "r"), [], "{code}");
        drop(registration);
    }
    // The parent is none the worse for it.
    root.agent().start_continuable(delegate(SPAWN)).await.unwrap();
    assert_eq!(root.quiescent().await.unwrap(), []);
    runtime.shutdown().await;
    sound(world);
}

fn start(turn: u64) -> Body {
    Body::TurnStart { turn, message: mid(&format!("m{turn}")), attempt: 1 }
}

fn end(turn: u64) -> Body {
    Body::TurnEnd { turn, reason: TurnEnd::Completed }
}

fn placed(bodies: Vec<Body>) -> Vec<Event> {
    bodies.into_iter().zip(0..).map(|(body, seq)| body.at(seq, 1_000)).collect()
}

async fn what_is_no_beginning_of_a_log_is_refused_and_leaves_nothing_behind(world: &World) {
    let gap = |mut events: Vec<Event>| {
        events.last_mut().unwrap().seq += 1;
        events
    };
    let replacing = |mut events: Vec<Event>| {
        let last = events.last_mut().unwrap();
        (last.surface_op, last.source_event_seqs) = (Some(SurfaceOp::Replace { start: 7, end: 9 }), Some(vec![7, 8, 9]));
        events
    };
    let cases = [
        ("a gap", gap(placed(vec![heard("one"), heard("two")]))),
        ("one that does not begin", placed(vec![heard("one"), heard("two")]).split_off(1)),
        ("an open turn", placed(vec![start(1), heard("one")])),
        ("turns that do not count", placed(vec![start(2), heard("one"), end(2)])),
        ("a replacement of nothing", replacing(placed(vec![heard("one"), heard("two")]))),
    ];
    let runtime = world.runtime().await;
    let host = runtime.host();
    let root = desk(&runtime, "r").await;
    for (what, inherited) in cases {
        let give = Prepared { inherited };
        let copier = Copier::new(move |_| std::future::ready(Ok(give.clone())));
        let registration = host.register_provider("copier", copier).unwrap();
        assert_eq!(refused(&root.agent(), delegate("copier")).await, "INVALID_PREFIX", "{what}");
        assert_eq!(below(world, "r"), [], "{what}");
        drop(registration);
    }
    let copier = Copier::new(|_| async { Ok(Prepared { inherited: placed(vec![start(1), heard("one"), end(1)]) }) });
    let bound = host.register_provider("copier", copier.clone().able(Capabilities { inherits: false, ..Capabilities::all() })).unwrap();
    assert_eq!(refused(&root.agent(), delegate("copier")).await, "INVALID_PREFIX", "what said that it gives nothing along");
    assert_eq!(below(world, "r"), []);
    drop(bound);
    let _free = host.register_provider("copier", copier).unwrap();
    let child = root.agent().start_continuable(delegate("copier")).await.unwrap().child;
    assert_eq!(root.quiescent().await.unwrap(), []);
    assert_eq!(host.load(&child).await.unwrap().fold.head().turns, 2, "one is inherited");
    runtime.shutdown().await;
    sound(world);
}

/// A provider that tells when it is asked, and whose answer is kept back until it is let go.
fn kept_back() -> (Copier, Arc<Semaphore>, Arc<Semaphore>) {
    let (asked, may_answer) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let gates = (asked.clone(), may_answer.clone());
    let copier = Copier::new(move |_| {
        let (asked, may_answer) = gates.clone();
        async move {
            asked.add_permits(1);
            may_answer.acquire().await.unwrap().forget();
            Ok(Prepared::default())
        }
    });
    (copier, asked, may_answer)
}

async fn a_start_waits_for_its_provider_no_longer_than_somebody_waits_for_it(world: &World) {
    let begin = |registration: Registration, runtime: Arc<Runtime>, cancel: CancellationToken, how: &'static str| async move {
        match how {
            "removed" => drop(registration),
            "given up" => cancel.cancel(),
            "shut down" => runtime.shutdown().await,
            other => panic!("{other}"),
        }
    };
    for (how, code) in [("given up", "CANCELLED"), ("removed", "NO_PROVIDER"), ("shut down", "DRAINING")] {
        let runtime = Arc::new(world.runtime().await);
        let root = desk(&runtime, "r").await;
        let (copier, asked, _) = kept_back();
        let registration = runtime.host().register_provider("copier", copier.clone()).unwrap();
        let cancel = CancellationToken::new();
        let agent = root.agent().cancellable(cancel.clone());
        let start = tokio::spawn(async move { agent.start_continuable(delegate("copier")).await });
        asked.acquire().await.unwrap().forget();
        begin(registration, runtime.clone(), cancel, how).await;
        assert_eq!(start.await.unwrap().unwrap_err().code(), code, "{how}");
        assert!(copier.asked()[0].cancel.is_cancelled(), "{how}: the provider hears of it");
        assert_eq!(below(world, "r"), [], "{how}");
        runtime.shutdown().await;
    }
    let runtime = world.runtime().await;
    let root = desk(&runtime, "r").await;
    // One that goes while it prepares is gone by the time that it is done.
    let itself = Arc::new(Mutex::new(None::<Registration>));
    let own = itself.clone();
    let copier = Copier::new(move |_| {
        drop(own.lock().unwrap().take());
        std::future::ready(Ok(Prepared::default()))
    });
    *itself.lock().unwrap() = Some(runtime.host().register_provider("copier", copier).unwrap());
    assert_eq!(refused(&root.agent(), delegate("copier")).await, "NO_PROVIDER");
    assert_eq!(below(world, "r"), []);
    // Nobody is asked for somebody who has given up already.
    let copier = Copier::new(|_| pending());
    let _registration = runtime.host().register_provider("copier", copier.clone()).unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert_eq!(refused(&root.agent().cancellable(cancel), delegate("copier")).await, "CANCELLED");
    let agent = root.agent();
    runtime.shutdown().await;
    assert_eq!(refused(&agent, delegate("copier")).await, "UNAUTHORIZED");
    assert!(copier.asked().is_empty() && below(world, "r").is_empty());
    sound(world);
}

async fn a_parent_that_ends_meanwhile_starts_nobody(world: &World) {
    // A turn that is interrupted is dropped, and with it what it waits for.
    let act = |turn: Turn| async move { drop(turn.delegate(delegate("copier")).await) };
    let runtime = with_boss(world, World::builder().interrupt_grace(Duration::ZERO), act).await;
    let host = runtime.host();
    let (copier, asked, may_answer) = kept_back();
    let _registration = host.register_provider("copier", copier.clone()).unwrap();
    let root = boss(&runtime, "r").await;
    root.send("go").await.unwrap();
    asked.acquire().await.unwrap().forget();
    host.interrupt(root.id(), Duration::from_secs(30)).await.unwrap();
    copier.asked()[0].cancel.cancelled().await;
    assert_eq!(root.quiescent().await.unwrap(), []);
    assert_eq!(below(world, "r"), []);
    // A root whose epoch ends while its provider is asked grants nothing any more.
    let mut told = host.subscribe();
    let agent = root.agent();
    let start = tokio::spawn(async move { agent.start_continuable(delegate("copier")).await });
    asked.acquire().await.unwrap().forget();
    drop(root);
    until(&mut told, |occurrence| matches!(occurrence, Occurrence::Ended { .. })).await;
    may_answer.add_permits(1);
    assert_eq!(start.await.unwrap().unwrap_err().code(), "UNAUTHORIZED");
    assert_eq!(below(world, "r"), []);
    runtime.shutdown().await;
    sound(world);
}

async fn a_child_outlives_its_provider(world: &World) {
    let runtime = world.start(World::builder().without_query()).await;
    let copier = Copier::new(|prepare| async move { Ok(Prepared { inherited: placed(vec![start(1), heard(prepare.child.as_str()), end(1)]) }) });
    let registration = runtime.host().register_provider("copier", copier.clone()).unwrap();
    let root = desk(&runtime, "r").await;
    let child = root.agent().start_continuable(delegate("copier")).await.unwrap().child;
    registration.remove();
    root.agent().followup(&child, "live or settled").await.unwrap();
    assert_eq!(root.quiescent().await.unwrap(), []);
    root.agent().followup(&child, "settled").await.unwrap();
    assert_eq!(root.quiescent().await.unwrap(), []);
    drop(root);
    drop(registration);
    world.close_after(runtime).await;
    // A process that has never heard of the provider.
    let runtime = world.runtime().await;
    let mut told = runtime.subscribe();
    let root = runtime.resume(&sid("r")).await.unwrap();
    root.agent().followup(&child, "elsewhere").await.unwrap();
    assert_eq!(root.quiescent().await.unwrap(), []);
    let mut provider = None;
    until(&mut told, |occurrence| matches!(occurrence, Occurrence::Ended { session, .. } if *session == child)).await;
    runtime.shutdown().await;
    let log = events(world, child.as_str());
    let asked = copier.asked().len();
    for event in &log {
        if let Body::Descriptor(data) = &event.body {
            assert_eq!(provider.replace(Descriptor::parse(data).unwrap().provider), None, "one descriptor");
        }
    }
    assert_eq!((provider.as_deref(), asked), (Some("copier"), 1));
    assert_eq!(log.iter().filter(|event| matches!(event.body, Body::TurnEnd { .. })).count(), 5, "one is inherited, four were asked for");
    sound(world);
}

async fn what_was_accepted_asks_no_provider_again(world: &World) {
    let (say, mut said) = mpsc::unbounded_channel();
    let act = move |turn: Turn| {
        let say = say.clone();
        async move {
            let first = turn.delegate(delegate("copier")).await.map(|delegated| (delegated.child, delegated.existing)).map_err(|error| error.code());
            let second =
                turn.delegate(delegate("copier").persona("another")).await.map(|delegated| (delegated.child, delegated.existing)).map_err(|error| error.code());
            say.send((turn.attempt(), first, second)).unwrap();
            if turn.attempt() == 1 {
                turn.cancelled().cancelled().await;
            }
        }
    };
    let runtime = with_boss(world, World::builder(), act.clone()).await;
    let registration = runtime.host().register_provider("copier", Copier::blank()).unwrap();
    let root = boss(&runtime, "r").await;
    root.send("go").await.unwrap();
    let (_, first, second) = said.recv().await.unwrap();
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(first.0 != second.0 && !first.1 && !second.1, "what a delegation says is a part of what it is");
    runtime.shutdown().await;
    drop((root, registration));
    world.close_after(runtime).await;
    // The turn is served again where nobody has registered the provider.
    let runtime = with_boss(world, World::builder(), act).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    assert_eq!(said.recv().await.unwrap(), (2, Ok((first.0, true)), Ok((second.0, true))));
    assert_eq!(root.quiescent().await.unwrap(), []);
    runtime.shutdown().await;
    assert_eq!(below(world, "r").len(), 2);
}
