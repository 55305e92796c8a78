//! Draining: what is below a root, or named children, is ended children first and closed; what was accepted stays; what does not end is given up.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use greenroom::{
    Agent, Delegate, Occurrence, Runtime, RuntimeBuilder, Turn, TurnEnd as Ended, TurnError,
    actors::error::{DeliverError, DrainError, StartError},
    setup::{Installation, Setup, SetupError},
};
use greenroom_session::{
    event::{Body, EpochEnd},
    header::NewSession,
    id::SessionId,
    store::{Accept, Create, Op},
};
use tokio::sync::{Semaphore, broadcast::Receiver};

use crate::{
    author::one_shot,
    mechanics::{Gate, story},
    publish::{child, events, published, sound, until},
    watched::{Call, Fault},
    world::{World, one, sid},
};

crate::on_every_store!(async
    one_forest_is_cancelled_from_above_released_from_below_and_closed_and_the_other_goes_on,
    a_shutdown_cancels_from_above_releases_from_below_and_leaves_everything_loadable,
    a_child_that_is_drained_below_stays_live_and_starts_nobody,
    what_is_below_a_one_shot_child_that_is_gone_is_found,
    a_root_whose_epoch_has_ended_is_ignored_and_the_next_is_open,
    what_was_accepted_before_is_waited_for_and_stays_and_nobody_is_started_for_it,
    a_start_that_is_on_its_way_is_waited_for,
    whoever_fails_to_end_is_named_when_everybody_has_ended,
    a_parent_whose_end_is_under_way_starts_nobody,
    named_children_are_released_by_their_parent_alone_and_opened_by_its_next_message,
    a_child_that_is_drained_twice_at_once_stays_closed_until_both_are_over,
    a_child_that_is_drained_stays_closed_until_what_was_let_in_before_has_arrived,
    whoever_waits_for_somebody_who_is_drained_is_told,
    what_a_host_plays_is_left_alone,
);

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `worker` does in these tests, and what is known of it.
#[derive(Clone)]
struct Cast {
    gate: Gate,
    /// Lets those end who do not hear that they are cancelled.
    deaf: Gate,
    diary: Arc<Mutex<Vec<String>>>,
    agents: Arc<Mutex<HashMap<SessionId, Agent>>>,
}

impl Cast {
    fn new() -> Self {
        Self { gate: Gate::new(), deaf: Gate::new(), diary: Arc::default(), agents: Arc::default() }
    }

    /// `worker` holds, delegates, or awaits as it is told, and says what it was told else.
    fn builder(&self) -> RuntimeBuilder {
        let cast = self.clone();
        Runtime::builder().closure("worker", move |turn: Turn| {
            let cast = cast.clone();
            async move { cast.act(turn).await }
        })
    }

    async fn act(&self, turn: Turn) -> Result<Ended, TurnError> {
        lock(&self.agents).insert(turn.session().clone(), turn.agent());
        let said = match turn.text().as_str() {
            "hold" => {
                let passed = self.gate.pass(&turn).await;
                if passed.is_err() {
                    lock(&self.diary).push(format!("cancelled {}", turn.session()));
                }
                passed.map(|()| "held".to_owned())
            }
            "deaf" => {
                self.deaf.hold().await;
                Ok("heard".to_owned())
            }
            "delegate" => turn.delegate_and_wait(Delegate::new("worker", "one-shot", "hold")).await,
            "await" => turn.await_children().await.map(|()| "awaited".to_owned()),
            text => Ok(text.to_owned()),
        };
        turn.say(match said {
            Ok(said) => said,
            Err(error) if error.code == "CANCELLED" => return Err(error),
            Err(error) => error.code,
        })?;
        Ok(Ended::Completed)
    }

    /// Has these hold, one after the other.
    async fn hold(&self, runtime: &Runtime, sessions: &[&str]) {
        for session in sessions {
            runtime.host().send(&sid(session), "hold", None).await.unwrap();
            self.gate.reached().await;
        }
    }

    fn agent(&self, session: &str) -> Agent {
        lock(&self.agents)[&sid(session)].clone()
    }
}

/// Makes sessions, each as `id` or `id of parent`.
fn tree(world: &World, sessions: &[(&str, &str)]) {
    for (id, parent) in sessions {
        if parent.is_empty() {
            world.root(id);
        } else {
            world.child(id, parent);
        }
    }
}

/// Returns who is held by a live process, in order.
fn held(world: &World) -> Vec<String> {
    let mut held: Vec<_> = world.reader().leases(None).unwrap().into_iter().map(|lease| lease.session.to_string()).collect();
    held.sort();
    held
}

/// Takes the ends of epochs out of what was told, in order.
fn ends(told: &mut Receiver<Occurrence>) -> Vec<String> {
    let mut ends = Vec::new();
    while let Ok(occurrence) = told.try_recv() {
        if let Occurrence::Ended { session, .. } = occurrence {
            ends.push(session.to_string());
        }
    }
    ends
}

fn waits(world: &World, session: &str) -> Vec<String> {
    let inbox = world.reader().inbox(&sid(session), 9).unwrap();
    inbox.iter().map(|record| record.message.text()).collect()
}

fn refused<T: std::fmt::Debug>(result: Result<T, DeliverError>) {
    let error = result.expect_err("it was accepted");
    assert!(matches!(error, DeliverError::Draining), "{error:?}");
}

fn delegate() -> Delegate {
    Delegate::new("worker", "a child", "begin")
}

async fn one_forest_is_cancelled_from_above_released_from_below_and_closed_and_the_other_goes_on(world: &World) {
    tree(world, &[("r", ""), ("c", "r"), ("g", "c"), ("s", ""), ("d", "s")]);
    let cast = Cast::new();
    let runtime = world.start(cast.builder()).await;
    let (host, r, s) = (runtime.host(), runtime.resume(&sid("r")).await.unwrap(), runtime.resume(&sid("s")).await.unwrap());
    cast.hold(&runtime, &["g", "c", "d"]).await;
    let mut told = runtime.subscribe();
    // Drains that meet share the work, and no roots are no work.
    let (once, twice) = ([r.agent()], [r.agent(), r.agent()]);
    let (first, second) = tokio::join!(runtime.drain(&once), host.drain(&twice));
    first.unwrap();
    second.unwrap();
    runtime.drain(&[]).await.unwrap();
    assert_eq!(*lock(&cast.diary), ["cancelled c", "cancelled g"], "parents first, and nobody else");
    assert_eq!(ends(&mut told), ["g", "c"], "children first");
    assert_eq!(held(world), ["d", "r", "s"]);
    for session in ["c", "g"] {
        assert_eq!(story(&events(world, session)), ["turn 1", "hold", "disposed"], "{session} is served again");
    }
    // Closed it stays.
    let started = r.agent().start_continuable(delegate()).await;
    assert!(matches!(started, Err(StartError::Draining)), "{started:?}");
    refused(r.agent().followup(&sid("c"), "more").await);
    for session in ["c", "g"] {
        refused(host.send(&sid(session), "more", None).await);
        refused(host.steer(&sid(session), "more", None).await);
        refused(host.inject(&sid(session), "more", None).await);
        assert_eq!(waits(world, session), [""; 0]);
    }
    assert_eq!(world.reader().children(Some(&sid("r")), None, 9).unwrap().len(), 1);
    runtime.drain(&[r.agent()]).await.unwrap();
    // The root itself is open, and so is all beside it.
    r.send("hello").await.unwrap();
    runtime.when_idle(&sid("r")).await.unwrap();
    s.agent().followup(&sid("d"), "more").await.unwrap();
    cast.gate.open(1);
    runtime.when_idle(&sid("d")).await.unwrap();
    assert_eq!(story(&events(world, "d")), ["turn 1", "hold", "completed", "turn 2", "more", "completed"]);
    runtime.shutdown().await;
    sound(world);
}

async fn a_shutdown_cancels_from_above_releases_from_below_and_leaves_everything_loadable(world: &World) {
    tree(world, &[("r", ""), ("c", "r"), ("g", "c")]);
    let cast = Cast::new();
    let runtime = world.start(cast.builder()).await;
    let (host, root) = (runtime.host(), runtime.resume(&sid("r")).await.unwrap());
    cast.hold(&runtime, &["g", "c", "r"]).await;
    let (mut told, agent) = (runtime.subscribe(), root.agent());
    runtime.shutdown().await;
    assert_eq!(*lock(&cast.diary), ["cancelled r", "cancelled c", "cancelled g"]);
    assert_eq!(ends(&mut told), ["g", "c", "r"]);
    assert_eq!(held(world), [""; 0]);
    // Its capability has ended with it; what the host asks is refused for the shutdown.
    assert_eq!(agent.start_continuable(delegate()).await.unwrap_err().code(), "UNAUTHORIZED");
    refused(host.send(&sid("c"), "more", None).await);
    runtime.drain(&[agent]).await.unwrap();
    for session in ["r", "c", "g"] {
        let log = world.reader().load(&sid(session)).unwrap();
        assert!(log.fold.head().is_unfinished() && !log.fold.head().live, "{session} is served again");
        // The turn is over before the epoch is.
        assert!(matches!(log.events[log.events.len() - 2].body, Body::TurnEnd { .. }), "{session}");
    }
    sound(world);
}

async fn a_child_that_is_drained_below_stays_live_and_starts_nobody(world: &World) {
    tree(world, &[("r", ""), ("c", "r"), ("g", "c"), ("h", "g")]);
    let cast = Cast::new();
    let runtime = world.start(cast.builder()).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    cast.hold(&runtime, &["h", "g", "c"]).await;
    let (mut told, agent) = (runtime.subscribe(), cast.agent("c"));
    runtime.drain(std::slice::from_ref(&agent)).await.unwrap();
    assert_eq!(ends(&mut told), ["h", "g"]);
    assert_eq!(held(world), ["c", "r"]);
    assert!(matches!(agent.start_continuable(delegate()).await, Err(StartError::Draining)));
    refused(agent.followup(&sid("g"), "more").await);
    // Upwards and from above it is as open as before.
    agent.report("so far", true).await.unwrap();
    root.agent().followup(&sid("c"), "more").await.unwrap();
    root.agent().start_continuable(delegate()).await.unwrap();
    cast.gate.open(1);
    runtime.when_idle(&sid("c")).await.unwrap();
    runtime.shutdown().await;
    sound(world);
}

async fn what_is_below_a_one_shot_child_that_is_gone_is_found(world: &World) {
    tree(world, &[("r", "")]);
    let create = Create::child(NewSession::child(sid("o"), sid("r"), 0), Vec::new(), &one_shot(None), None, 1_000).unwrap();
    world.one(Op::Create(create)).unwrap();
    tree(world, &[("c", "o")]);
    let cast = Cast::new();
    let runtime = world.start(cast.builder()).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    cast.hold(&runtime, &["c"]).await;
    assert_eq!(held(world), ["c", "r"]);
    runtime.drain(&[root.agent()]).await.unwrap();
    assert_eq!(held(world), ["r"]);
    refused(runtime.host().send(&sid("c"), "more", None).await);
    runtime.shutdown().await;
    sound(world);
}

async fn a_root_whose_epoch_has_ended_is_ignored_and_the_next_is_open(world: &World) {
    tree(world, &[("r", ""), ("c", "r")]);
    let cast = Cast::new();
    let runtime = world.start(cast.builder()).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let (mut told, stale) = (runtime.subscribe(), root.agent());
    cast.hold(&runtime, &["c"]).await;
    runtime.drain(std::slice::from_ref(&stale)).await.unwrap();
    drop(root);
    until(&mut told, |occurrence| matches!(occurrence, Occurrence::Ended { session, .. } if *session == sid("r"))).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    // What the drain had left is found as what any runtime leaves.
    assert_eq!(held(world), ["r"], "nobody starts it unasked");
    assert_eq!(runtime.recover(None).await.unwrap(), [sid("c")]);
    cast.gate.reached().await;
    runtime.drain(std::slice::from_ref(&stale)).await.unwrap();
    assert_eq!(held(world), ["c", "r"], "a later epoch is not meant");
    root.agent().followup(&sid("c"), "more").await.unwrap();
    let started = root.agent().start_continuable(delegate()).await.unwrap();
    assert_eq!(stale.start_continuable(delegate()).await.unwrap_err().code(), "UNAUTHORIZED");
    cast.gate.open(1);
    root.quiescent().await.unwrap();
    assert_eq!(world.reader().folded(&started.child).unwrap().head().turns, 1);
    assert_eq!(story(&events(world, "c")), ["turn 1", "hold", "disposed", "turn 2", "completed", "turn 3", "more", "completed"]);
    runtime.shutdown().await;
    sound(world);
}

async fn what_was_accepted_before_is_waited_for_and_stays_and_nobody_is_started_for_it(world: &World) {
    tree(world, &[("r", ""), ("c", "r"), ("x", "")]);
    let cast = Cast::new();
    let runtime = world.start(cast.builder()).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let agent = root.agent();
    // A message, and a child, on their way to the disk.
    world.watch.clear();
    let write = world.watch.pause("c", Call::Commit, 1);
    let follow = tokio::spawn({
        let agent = agent.clone();
        async move { agent.followup(&sid("c"), "before").await }
    });
    write.reached().await;
    let mut start = Box::pin(agent.start_continuable(delegate()));
    for _ in 0..100 {
        assert!(futures::poll!(&mut start).is_pending(), "the disk is busy");
        tokio::task::yield_now().await;
    }
    let mut drain = Box::pin(runtime.drain(std::slice::from_ref(&agent)));
    for _ in 0..100 {
        assert!(futures::poll!(&mut drain).is_pending(), "what was let in is on its way");
        tokio::task::yield_now().await;
    }
    refused(agent.followup(&sid("c"), "after").await);
    write.open();
    let (drained, started) = tokio::join!(drain, start);
    drained.unwrap();
    follow.await.unwrap().unwrap();
    let started = started.unwrap();
    // What another process accepts waits as well.
    let note = greenroom_session::message::Message::turn("m", "from elsewhere", greenroom_session::message::Source::User, 1_000).unwrap();
    one(&*world.peer().unwrap_or_else(|| world.plain()), Op::Accept(Accept::new(sid("c"), note))).unwrap();
    runtime.recover(None).await.unwrap();
    let stuck = runtime.host().quiescent(&sid("r")).await.unwrap();
    let mut expected = [sid("c"), started.child.clone()];
    expected.sort();
    let mut told = stuck.clone();
    told.sort();
    assert_eq!(told, expected, "they have work and cannot run");
    assert_eq!(held(world), ["r"]);
    assert_eq!((waits(world, "c"), waits(world, started.child.as_str())), (vec!["before".into(), "from elsewhere".into()], vec!["begin".into()]));
    // The next runtime serves it all.
    drop((root, agent));
    world.close_after(runtime).await;
    let runtime = world.start(cast.builder()).await;
    runtime.recover(None).await.unwrap();
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    assert_eq!(story(&events(world, "c")), ["turn 1", "before", "completed", "turn 2", "from elsewhere", "completed"]);
    runtime.shutdown().await;
    sound(world);
}

struct Part(Option<Arc<Semaphore>>, bool);

impl Installation for Part {
    fn release(&mut self) -> Result<(), SetupError> {
        if let Some(released) = &self.0 {
            released.add_permits(1);
        }
        if self.1 { Err(SetupError::new("STUCK", "it sticks")) } else { Ok(()) }
    }
}

/// Never comes to an end of the set-up of `c`.
struct Slow(Arc<Semaphore>, Arc<Semaphore>);
impl greenroom::setup::SetupContribution for Slow {
    fn apply<'a>(&'a self, setup: &'a Setup) -> futures::future::BoxFuture<'a, Result<Box<dyn Installation>, SetupError>> {
        Box::pin(async move {
            if setup.session == sid("c") {
                let part = Part(Some(self.1.clone()), false);
                self.0.add_permits(1);
                std::future::pending::<()>().await;
                drop(part);
            }
            Ok(Box::new(Part(Some(self.1.clone()), false)) as Box<dyn Installation>)
        })
    }
}

async fn a_start_that_is_on_its_way_is_waited_for(world: &World) {
    tree(world, &[("r", ""), ("c", "r"), ("d", "r")]);
    let cast = Cast::new();
    let runtime = world.start(cast.builder()).await;
    let host = runtime.host();
    let root = runtime.resume(&sid("r")).await.unwrap();
    // One is being set up: it is given up and what was set up is released.
    let (within, released) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let registered = [
        host.register_setup({
            let released = released.clone();
            move |_: &Setup| Ok(Box::new(Part(Some(released.clone()), false)) as Box<dyn Installation>)
        }),
        host.register_setup(Slow(within.clone(), released.clone())),
    ];
    host.send(&sid("c"), "hello", None).await.unwrap();
    within.acquire().await.unwrap().forget();
    // The other has begun its epoch and is not live yet.
    world.watch.clear();
    let opened = world.watch.pause("d", Call::Commit, 2);
    host.send(&sid("d"), "hello", None).await.unwrap();
    opened.reached().await;
    let agent = root.agent();
    let mut drain = Box::pin(runtime.drain(std::slice::from_ref(&agent)));
    for _ in 0..100 {
        assert!(futures::poll!(&mut drain).is_pending(), "one is about to be live");
        tokio::task::yield_now().await;
    }
    let mut told = runtime.subscribe();
    opened.open();
    drain.await.unwrap();
    assert_eq!(ends(&mut told), ["d"], "it was live, and was ended");
    assert_eq!(held(world), ["r"]);
    assert_eq!(released.available_permits(), 3, "nothing that was set up is left");
    assert_eq!(story(&events(world, "c")), [""; 0]);
    // It was to be served; its behaviour saw nothing of it.
    assert_eq!(story(&events(world, "d")), ["turn 1", "hello", "disposed"]);
    assert!(lock(&cast.agents).is_empty());
    drop(registered);
    runtime.shutdown().await;
    sound(world);
}

async fn whoever_fails_to_end_is_named_when_everybody_has_ended(world: &World) {
    tree(world, &[("r", ""), ("a", "r"), ("b", "r"), ("g", "b"), ("c", "r")]);
    let cast = Cast::new();
    let runtime = world.start(cast.builder()).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let stuck = runtime.host().register_setup(|setup: &Setup| Ok(Box::new(Part(None, setup.session == sid("g"))) as Box<dyn Installation>));
    cast.hold(&runtime, &["a", "g", "b", "c"]).await;
    // One cannot release what was set up, another cannot write its end.
    world.watch.clear();
    world.watch.fail("c", Call::Commit, None, Fault::Outage);
    let mut told = runtime.subscribe();
    let error = runtime.drain(&[root.agent()]).await.unwrap_err();
    world.watch.clear();
    let DrainError::TeardownFailed { failures } = &error else { panic!("{error:?}") };
    let mut named: Vec<_> = failures.iter().map(|failure| (failure.session.to_string(), failure.code)).collect();
    named.sort();
    assert_eq!(error.code(), "ACTIVATION_TEARDOWN_FAILED");
    // What is committed together fails together.
    named.retain(|(session, code)| session == "g" && *code == "ACTIVATION_SETUP_RELEASE_FAILED" || session == "c");
    assert_eq!(named, [("c".to_owned(), "NOT_DELIVERED"), ("g".to_owned(), "ACTIVATION_SETUP_RELEASE_FAILED")]);
    assert!(error.to_string().contains("g: STUCK: it sticks") && error.to_string().contains("c: not written"), "{error}");
    let mut gone = ends(&mut told);
    gone.sort();
    assert_eq!(gone, ["a", "b", "c", "g"], "all of them have ended");
    assert_eq!(runtime.host().live_count(), 1);
    drop(stuck);
    runtime.shutdown().await;
}

async fn a_parent_whose_end_is_under_way_starts_nobody(world: &World) {
    tree(world, &[("r", ""), ("c", "r")]);
    let runtime = world.runtime().await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let agent = root.agent();
    assert_eq!(root.quiescent().await.unwrap(), []);
    // It looks for work once more, and ends.
    world.watch.clear();
    let close = world.watch.pause("r", Call::Commit, 2);
    drop(root);
    close.reached().await;
    let started = agent.start_continuable(delegate()).await;
    assert!(matches!(started, Err(StartError::Closing)), "{started:?}");
    assert_eq!(agent.followup(&sid("c"), "more").await.unwrap_err().code(), "ACTIVATION_CLOSING");
    // A drain is the reason that counts.
    assert!(futures::poll!(Box::pin(runtime.drain(std::slice::from_ref(&agent)))).is_pending());
    assert!(matches!(agent.start_continuable(delegate()).await, Err(StartError::Draining)));
    close.open();
    runtime.host().quiescent(&sid("r")).await.unwrap();
    assert_eq!(agent.start_continuable(delegate()).await.unwrap_err().code(), "UNAUTHORIZED", "now it has ended");
    assert_eq!(world.reader().children(Some(&sid("r")), None, 9).unwrap().len(), 1);
    // Its next epoch is open.
    let root = runtime.resume(&sid("r")).await.unwrap();
    root.agent().start_continuable(delegate()).await.unwrap();
    runtime.shutdown().await;
    sound(world);
}

async fn named_children_are_released_by_their_parent_alone_and_opened_by_its_next_message(world: &World) {
    tree(world, &[("r", ""), ("a", "r"), ("x", "a"), ("b", "r"), ("s", "")]);
    let cast = Cast::new();
    let runtime = world.start(cast.builder()).await;
    let (host, root, other) = (runtime.host(), runtime.resume(&sid("r")).await.unwrap(), runtime.resume(&sid("s")).await.unwrap());
    cast.hold(&runtime, &["x", "a", "b"]).await;
    let unauthorized = |drained: Result<(), DrainError>| assert_eq!(drained.unwrap_err().code(), "UNAUTHORIZED");
    unauthorized(other.agent().drain_children(&[sid("a")]).await);
    // A grandchild, itself, nobody, a fork of it; and none is drained if one of them is no child.
    world.fork("f", "r");
    for wrong in ["x", "r", "nobody", "f"] {
        unauthorized(root.agent().drain_children(&[sid("a"), sid(wrong)]).await);
    }
    assert_eq!(held(world), ["a", "b", "r", "s", "x"]);
    let mut told = runtime.subscribe();
    root.agent().drain_children(&[sid("a"), sid("a")]).await.unwrap();
    assert_eq!(ends(&mut told), ["x", "a"]);
    assert_eq!(held(world), ["b", "r", "s"]);
    for session in ["a", "x"] {
        refused(host.send(&sid(session), "more", None).await);
    }
    root.agent().followup(&sid("b"), "more").await.unwrap();
    runtime.recover(None).await.unwrap();
    assert_eq!(held(world), ["b", "r", "s"], "whatever waits there");
    // Its parent talks to it, and it goes on where it was.
    root.agent().followup(&sid("a"), "again").await.unwrap();
    cast.gate.reached().await;
    host.send(&sid("x"), "again", None).await.unwrap();
    cast.gate.reached().await;
    cast.gate.open(9);
    root.quiescent().await.unwrap();
    assert_eq!(story(&events(world, "a"))[..7], ["turn 1", "hold", "disposed", "turn 2", "completed", "turn 3", "again"]);
    let (mut told, stale) = (runtime.subscribe(), root.agent());
    drop(root);
    until(&mut told, |occurrence| matches!(occurrence, Occurrence::Ended { session, .. } if *session == sid("r"))).await;
    unauthorized(stale.drain_children(&[sid("a")]).await);
    runtime.shutdown().await;
    sound(world);
}

async fn a_child_that_is_drained_twice_at_once_stays_closed_until_both_are_over(world: &World) {
    tree(world, &[("r", ""), ("a", "r"), ("b", "r")]);
    let cast = Cast::new();
    let runtime = world.start(cast.builder()).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let agent = root.agent();
    cast.hold(&runtime, &["a"]).await;
    runtime.host().send(&sid("b"), "deaf", None).await.unwrap();
    cast.deaf.reached().await;
    // The longer one first, and both before anybody has ended.
    let (a, both) = ([sid("a")], [sid("a"), sid("b")]);
    let mut long = Box::pin(agent.drain_children(&both));
    assert!(futures::poll!(&mut long).is_pending());
    agent.drain_children(&a).await.unwrap();
    assert!(futures::poll!(&mut long).is_pending(), "one of them is deaf");
    assert_eq!(held(world), ["b", "r"]);
    refused(agent.followup(&sid("a"), "too early").await);
    assert_eq!(waits(world, "a"), Vec::<String>::new(), "nothing is there that nobody would serve");
    cast.deaf.open(9);
    long.await.unwrap();
    agent.followup(&sid("a"), "again").await.unwrap();
    cast.gate.open(9);
    root.quiescent().await.unwrap();
    assert_eq!(story(&events(world, "a")).last().map(String::as_str), Some("completed"));
    drop((root, agent));
    runtime.shutdown().await;
    sound(world);
}

async fn a_child_that_is_drained_stays_closed_until_what_was_let_in_before_has_arrived(world: &World) {
    tree(world, &[("r", ""), ("c", "r")]);
    let cast = Cast::new();
    let runtime = world.start(cast.builder()).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let agent = root.agent();
    world.watch.clear();
    let write = world.watch.pause("c", Call::Commit, 1);
    let follow = tokio::spawn({
        let agent = agent.clone();
        async move { agent.followup(&sid("c"), "before").await }
    });
    write.reached().await;
    // Nobody is live there, so that nobody has to end.
    let children = [sid("c")];
    let mut drain = Box::pin(agent.drain_children(&children));
    for _ in 0..20 {
        assert!(futures::poll!(&mut drain).is_pending(), "what was let in is on its way");
        // What it reads itself is read by then.
        runtime.list(Some(&sid("r"))).await.unwrap();
    }
    let mut early = Box::pin(agent.followup(&children[0], "too early"));
    let mut told = None;
    for _ in 0..20 {
        if let std::task::Poll::Ready(answer) = futures::poll!(&mut early) {
            told = Some(answer);
            break;
        }
        runtime.list(Some(&sid("r"))).await.unwrap();
    }
    drop(early);
    refused(told.expect("a message is refused at once while a drain of its receiver goes on"));
    write.open();
    drain.await.unwrap();
    follow.await.unwrap().unwrap();
    assert_eq!(held(world), ["r"]);
    assert_eq!(waits(world, "c"), ["before"]);
    agent.followup(&sid("c"), "after").await.unwrap();
    cast.gate.open(9);
    root.quiescent().await.unwrap();
    assert_eq!(story(&events(world, "c")), ["turn 1", "before", "completed", "turn 2", "after", "completed"]);
    drop((root, agent));
    runtime.shutdown().await;
    sound(world);
}

async fn whoever_waits_for_somebody_who_is_drained_is_told(world: &World) {
    tree(world, &[("r", ""), ("c", "r"), ("g", "c"), ("s", "")]);
    let cast = Cast::new();
    let runtime = world.start(cast.builder()).await;
    let (r, s) = (runtime.resume(&sid("r")).await.unwrap(), runtime.resume(&sid("s")).await.unwrap());
    cast.hold(&runtime, &["g"]).await;
    // At the root, below it, and for an answer.
    runtime.host().send(&sid("c"), "await", None).await.unwrap();
    r.send("await").await.unwrap();
    s.send("delegate").await.unwrap();
    cast.gate.reached().await;
    let waited_for = sid("c");
    let idle = runtime.when_idle(&waited_for);
    let drain = async {
        tokio::task::yield_now().await;
        runtime.drain(&[r.agent(), s.agent()]).await.unwrap();
    };
    let (idle, ()) = tokio::join!(idle, drain);
    assert_eq!(idle.unwrap_err().code(), "DRAINING");
    for session in ["r", "s"] {
        runtime.when_idle(&sid(session)).await.unwrap();
    }
    assert_eq!(runtime.last_answer(&sid("r")).await.unwrap().as_deref(), Some("awaited"), "nobody is left who could run");
    assert_eq!(runtime.last_answer(&sid("s")).await.unwrap().as_deref(), Some("DRAINING"));
    assert_eq!(runtime.when_idle(&sid("g")).await.unwrap_err().code(), "DRAINING");
    let mut stuck = r.quiescent().await.unwrap();
    stuck.sort();
    assert_eq!(stuck, [sid("c"), sid("g")]);
    // And so is whoever begins to wait only now.
    r.send("await").await.unwrap();
    runtime.when_idle(&sid("r")).await.unwrap();
    assert_eq!(held(world), ["r", "s"]);
    runtime.shutdown().await;
    sound(world);
}

async fn what_a_host_plays_is_left_alone(world: &World) {
    tree(world, &[("r", ""), ("c", "r")]);
    let cast = Cast::new();
    let runtime = world.start(cast.builder()).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let played = published(&runtime, child("p", "r")).await;
    cast.hold(&runtime, &["c"]).await;
    runtime.drain(&[root.agent()]).await.unwrap();
    assert_eq!(held(world), ["p", "r"]);
    played.begin_turn("hello", None).await.unwrap();
    // It may even begin there: it is the host's own.
    let another = published(&runtime, child("q", "r")).await;
    another.end().await.unwrap();
    played.end().await.unwrap();
    let ends: Vec<_> =
        events(world, "p").into_iter().filter_map(|event| if let Body::ActivationEnd { reason, .. } = event.body { Some(reason) } else { None }).collect();
    assert_eq!(ends, [EpochEnd::Disposed]);
    runtime.shutdown().await;
    sound(world);
}
