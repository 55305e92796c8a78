//! Set-up contributions: in which order they come, what becomes of them when one fails or is removed, and that each installation is released once.

use std::{
    any::Any,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use greenroom::{
    Delegate, Occurrence, Registration, Runtime, RuntimeBuilder, Turn, TurnEnd as Ended,
    setup::{Installation, Setup, SetupContribution, SetupError},
};
use greenroom_session::{
    event::{Body, EpochEnd, TurnEnd},
    id::SessionId,
};
use tokio::sync::{Semaphore, broadcast::Receiver};

use crate::{
    pairs::Pairs,
    publish::{events, published, root, until},
    watched::{Call, Fault},
    world::{World, sid},
};

crate::on_every_store!(async
    contributions_are_applied_in_order_and_committed_together_before_anything_is_written,
    an_installation_is_released_once_whoever_comes_first,
    one_that_fails_rolls_the_earlier_ones_back_and_uses_no_attempt,
    one_that_is_removed_while_a_session_is_set_up_refuses_the_start,
    one_that_is_removed_before_its_turn_is_left_out,
    every_release_is_tried_and_what_fails_is_told_together,
    the_end_of_one_session_leaves_the_others_as_they_are,
    another_process_sets_the_session_up_again,
    a_turn_finds_what_was_installed_until_it_is_taken_away,
    a_session_that_is_being_set_up_is_not_live_and_a_shutdown_does_not_wait_for_it,
    what_a_host_plays_is_not_set_up,
    a_failing_release_beside_a_failing_write_leaves_nothing_behind,
);

/// What happened, in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, what: &str, name: &str, session: &SessionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{what} {name} {session}"));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

type Act = Arc<dyn Fn(&Setup) -> Result<(), SetupError> + Send + Sync>;

/// A contribution that notes what is done with it, and does more where a test says so.
#[derive(Clone)]
struct Part {
    name: &'static str,
    diary: Diary,
    apply: Act,
    commit: Act,
    release: Act,
    things: Vec<Arc<dyn Any + Send + Sync>>,
    gate: Option<Arc<Semaphore>>,
}

fn part(name: &'static str, diary: &Diary) -> Part {
    let well: Act = Arc::new(|_| Ok(()));
    Part { name, diary: diary.clone(), apply: well.clone(), commit: well.clone(), release: well, things: Vec::new(), gate: None }
}

impl Part {
    fn apply(mut self, act: impl Fn(&Setup) -> Result<(), SetupError> + Send + Sync + 'static) -> Self {
        self.apply = Arc::new(act);
        self
    }

    fn commit(mut self, act: impl Fn(&Setup) -> Result<(), SetupError> + Send + Sync + 'static) -> Self {
        self.commit = Arc::new(act);
        self
    }

    fn release(mut self, act: impl Fn(&Setup) -> Result<(), SetupError> + Send + Sync + 'static) -> Self {
        self.release = Arc::new(act);
        self
    }

    fn gives(mut self, thing: impl Any + Send + Sync) -> Self {
        self.things.push(Arc::new(thing));
        self
    }
}

struct Installed(Part, Setup);

impl SetupContribution for Part {
    fn apply<'a>(&'a self, setup: &'a Setup) -> BoxFuture<'a, Result<Box<dyn Installation>, SetupError>> {
        Box::pin(async move {
            self.diary.note("apply", self.name, &setup.session);
            if let Some(gate) = &self.gate {
                gate.acquire().await.unwrap().forget();
            }
            (self.apply)(setup)?;
            Ok(Box::new(Installed(self.clone(), setup.clone())) as Box<dyn Installation>)
        })
    }
}

impl Installation for Installed {
    fn commit(&mut self) -> Result<(), SetupError> {
        self.0.diary.note("commit", self.0.name, &self.1.session);
        (self.0.commit)(&self.1)
    }

    fn gives(&self) -> Vec<Arc<dyn Any + Send + Sync>> {
        self.0.things.clone()
    }

    fn release(&mut self) -> Result<(), SetupError> {
        self.0.diary.note("release", self.0.name, &self.1.session);
        (self.0.release)(&self.1)
    }
}

fn no(what: &'static str) -> Result<(), SetupError> {
    Err(SetupError::new(what, "no"))
}

fn panics(_: &Setup) -> Result<(), SetupError> {
    std::panic::resume_unwind(Box::new("torn"))
}

/// A place for a registration that its own contribution can reach.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Option<Registration>>>);

impl Held {
    fn keep(&self, registration: Registration) {
        *self.0.lock().unwrap() = Some(registration);
    }

    fn remove(&self) {
        let registration = self.0.lock().unwrap().take();
        drop(registration);
    }
}

async fn ended(occurrences: &mut Receiver<Occurrence>, session: &SessionId) {
    until(occurrences, |occurrence| matches!(occurrence, Occurrence::Ended { session: ended, .. } if ended == session)).await;
}

/// Takes out of what was told the codes of starts that came to nothing.
fn refusals(told: &mut Receiver<Occurrence>) -> Vec<&'static str> {
    let mut codes = Vec::new();
    while let Ok(occurrence) = told.try_recv() {
        match occurrence {
            Occurrence::NotActivated { code, .. } => codes.push(code),
            Occurrence::Activated { .. } | Occurrence::Ended { .. } => codes.push("LIVE"),
            _ => {}
        }
    }
    codes
}

/// Returns the attempts of the turns of a session.
fn attempts(world: &World, id: &str) -> Vec<u32> {
    let attempt = |event: greenroom_session::event::Event| if let Body::TurnStart { attempt, .. } = event.body { Some(attempt) } else { None };
    events(world, id).into_iter().filter_map(attempt).collect()
}

async fn contributions_are_applied_in_order_and_committed_together_before_anything_is_written(world: &World) {
    world.root("r");
    let born = events(world, "r").len();
    let runtime = world.runtime().await;
    let (host, diary) = (runtime.host(), Diary::default());
    let store = world.plain();
    let unwritten = move |setup: &Setup| {
        let (stored, log) = (store.reader().unwrap().events(&setup.session, 0, usize::MAX).unwrap(), &setup.header.id);
        assert_eq!((stored.len(), log, setup.agent.as_str(), setup.epoch), (born, &setup.session, "worker", 1));
        assert_eq!((setup.resumed(), setup.root.is_some(), setup.descriptor.is_some()), (false, true, false));
        Ok(())
    };
    let _kept = ["a", "b", "c"].map(|name| host.register_setup(part(name, &diary).apply(unwritten.clone()).commit(unwritten.clone())));
    let mut ends = runtime.subscribe();
    let root = runtime.resume(&sid("r")).await.unwrap();
    assert_eq!(diary.take(), ["apply a r", "apply b r", "apply c r", "commit a r", "commit b r", "commit c r"]);
    drop(root);
    ended(&mut ends, &sid("r")).await;
    // When the end is told nothing of it is left.
    assert_eq!(diary.take(), ["release c r", "release b r", "release a r"]);
    runtime.shutdown().await;
}

async fn an_installation_is_released_once_whoever_comes_first(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let (host, diary) = (runtime.host(), Diary::default());
    let mut ends = runtime.subscribe();
    let [a, b] = ["a", "b"].map(|name| host.register_setup(part(name, &diary)));
    let root = runtime.resume(&sid("r")).await.unwrap();
    diary.take();
    // One is removed first, and more than once; the other after the end.
    a.remove();
    a.remove();
    assert_eq!(diary.take(), ["release a r"]);
    root.send("goes on").await.unwrap();
    root.quiescent().await.unwrap();
    assert_eq!(runtime.last_answer(root.id()).await.unwrap().as_deref(), Some("goes on"));
    drop((root, a));
    ended(&mut ends, &sid("r")).await;
    b.remove();
    drop(b);
    assert_eq!(diary.take(), ["release b r"]);
    // And in an epoch that a shutdown ends.
    let _c = host.register_setup(part("c", &diary));
    let _root = runtime.resume(&sid("r")).await.unwrap();
    runtime.shutdown().await;
    assert_eq!(diary.take(), ["apply c r", "commit c r", "release c r"]);
}

async fn one_that_fails_rolls_the_earlier_ones_back_and_uses_no_attempt(world: &World) {
    let runtime = world.runtime().await;
    let (host, diary) = (runtime.host(), Diary::default());
    let (applied, committed) = (["apply a", "apply b", "apply c"], ["commit a", "commit b"]);
    for (id, middle, code, expected) in [
        ("r0", part("b", &diary).apply(|_| no("NO_DESK")), "NO_DESK", [&applied[..2], &["release a"]].concat()),
        ("r1", part("b", &diary).apply(panics), "PANIC", [&applied[..2], &["release a"]].concat()),
        ("r2", part("b", &diary).commit(|_| no("NO_DESK")), "NO_DESK", [&applied[..], &committed, &["release c", "release b", "release a"]].concat()),
        ("r3", part("b", &diary).commit(panics), "PANIC", [&applied[..], &committed, &["release c", "release b", "release a"]].concat()),
    ] {
        world.root(id);
        let born = events(world, id);
        let mut told = runtime.subscribe();
        let first = host.register_setup(part("a", &diary));
        let failing = host.register_setup(middle);
        // Nor does what comes after it matter.
        let last = host.register_setup(part("c", &diary).commit(|_| no("NEVER")));
        let expected: Vec<_> = expected.into_iter().map(|what| format!("{what} {id}")).collect();
        assert_eq!(runtime.resume(&sid(id)).await.unwrap_err().code(), code, "{id}");
        assert_eq!(diary.take(), expected);
        host.send(&sid(id), "hello", None).await.unwrap();
        assert_eq!(host.quiescent(&sid(id)).await.unwrap(), [sid(id)], "it waits");
        assert_eq!(events(world, id), born, "nothing was written");
        assert!(world.reader().leases(None).unwrap().is_empty());
        let codes = refusals(&mut told);
        assert!(codes.len() > 1 && codes.iter().all(|told| *told == code), "{codes:?}");
        drop((first, failing, last));
        diary.take();
        host.recover(None).await.unwrap();
        assert!(host.quiescent(&sid(id)).await.unwrap().is_empty());
        assert_eq!((attempts(world, id), diary.take()), (vec![1], vec![]), "{id}");
    }
    runtime.shutdown().await;
}

async fn one_that_is_removed_while_a_session_is_set_up_refuses_the_start(world: &World) {
    let runtime = world.runtime().await;
    let (host, diary) = (runtime.host(), Diary::default());
    for (id, who, when) in
        [("r0", "another", "apply"), ("r1", "itself", "apply"), ("r2", "another", "commit"), ("r3", "itself", "commit"), ("r4", "an earlier", "commit")]
    {
        world.root(id);
        let born = events(world, id);
        let mut told = runtime.subscribe();
        let held = Held::default();
        let remove = |held: &Held| {
            let held = held.clone();
            move |_: &Setup| {
                held.remove();
                Ok(())
            }
        };
        let does = |part: Part| if when == "apply" { part.apply(remove(&held)) } else { part.commit(remove(&held)) };
        let (mut first, mut second) = (part("a", &diary), part("b", &diary));
        // The later one removes the earlier one, which has been applied, and committed where that comes first; or the earlier one removes itself, or what comes next.
        if who == "another" {
            second = does(second);
        } else {
            first = does(first);
        }
        let (a, b) = (host.register_setup(first), host.register_setup(second));
        let _other = if who == "an earlier" {
            held.keep(b);
            a
        } else {
            held.keep(a);
            b
        };
        assert_eq!(runtime.resume(&sid(id)).await.unwrap_err().code(), "ACTIVATION_SETUP_REVOKED", "{id}");
        assert_eq!(refusals(&mut told), ["ACTIVATION_SETUP_REVOKED"], "{id}");
        let noted = diary.take();
        for name in ["a", "b"] {
            let [applied, released] = ["apply", "release"].map(|what| noted.iter().filter(|line| **line == format!("{what} {name} {id}")).count());
            assert_eq!((applied, released), (1, 1), "{id}: {noted:?}");
        }
        assert_eq!(events(world, id), born, "nothing was written");
        // What was removed is in nobody's way any more.
        host.send(&sid(id), "hello", None).await.unwrap();
        assert!(host.quiescent(&sid(id)).await.unwrap().is_empty());
        assert_eq!(attempts(world, id), [1]);
        diary.take();
    }
    // Nobody has to ask again.
    world.root("late");
    let (held, mut turns) = (Held::default(), runtime.subscribe());
    let remove = held.clone();
    held.keep(host.register_setup(part("a", &diary).apply(move |_| {
        remove.remove();
        Ok(())
    })));
    host.send(&sid("late"), "hello", None).await.unwrap();
    until(&mut turns, |occurrence| matches!(occurrence, Occurrence::TurnEnded { session, .. } if *session == sid("late"))).await;
    assert_eq!(attempts(world, "late"), [1]);
    runtime.shutdown().await;
}

async fn one_that_is_removed_before_its_turn_is_left_out(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let (host, diary, held) = (runtime.host(), Diary::default(), Held::default());
    let remove = held.clone();
    let _a = host.register_setup(part("a", &diary).apply(move |_| {
        remove.remove();
        Ok(())
    }));
    held.keep(host.register_setup(part("b", &diary)));
    let c = host.register_setup(part("c", &diary));
    drop(host.register_setup(part("d", &diary)));
    let _root = runtime.resume(&sid("r")).await.unwrap();
    assert_eq!(diary.take(), ["apply a r", "apply c r", "commit a r", "commit c r"]);
    drop(c);
    runtime.shutdown().await;
    assert_eq!(diary.take(), ["release c r", "release a r"]);
}

async fn every_release_is_tried_and_what_fails_is_told_together(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let (host, diary) = (runtime.host(), Diary::default());
    let mut told = runtime.subscribe();
    let kept = [
        host.register_setup(part("a", &diary).release(|_| no("STUCK"))),
        host.register_setup(part("b", &diary).release(panics)),
        host.register_setup(part("c", &diary)),
        host.register_setup(part("d", &diary).release(|_| no("JAMMED"))),
    ];
    let mut failed = async || loop {
        match told.recv().await.unwrap() {
            Occurrence::ReleaseFailed { session, epoch, code, failures } => {
                assert_eq!((session, code), (sid("r"), "ACTIVATION_SETUP_RELEASE_FAILED"));
                break (epoch, failures.to_vec());
            }
            Occurrence::Ended { .. } => panic!("an end was told before all of it was known"),
            _ => {}
        }
    };
    let root = runtime.resume(&sid("r")).await.unwrap();
    diary.take();
    drop(root);
    assert_eq!(failed().await, (1, ["JAMMED: no", "PANIC: torn", "STUCK: no"].map(str::to_owned).to_vec()));
    assert_eq!(diary.take(), ["release d r", "release c r", "release b r", "release a r"]);
    until(&mut told, |occurrence| matches!(occurrence, Occurrence::Ended { reason: EpochEnd::Settled, outcome: TurnEnd::Completed, .. })).await;
    // A removal, too.
    let _root = runtime.resume(&sid("r")).await.unwrap();
    diary.take();
    let [a, ..] = kept;
    drop(a);
    let mut last = None;
    while let Ok(occurrence) = told.try_recv() {
        last = Some(occurrence);
    }
    let Some(Occurrence::ReleaseFailed { epoch: 2, failures, .. }) = last else { panic!("{last:?}") };
    assert_eq!((&*failures, diary.take()), (&["STUCK: no".to_owned()][..], vec!["release a r".to_owned()]));
    runtime.shutdown().await;
}

async fn the_end_of_one_session_leaves_the_others_as_they_are(world: &World) {
    let runtime = world.runtime().await;
    let (host, diary) = (runtime.host(), Diary::default());
    let mut ends = runtime.subscribe();
    let seen = diary.clone();
    let _a = host.register_setup(part("a", &diary).apply(move |setup| {
        if let Some(descriptor) = &setup.descriptor {
            seen.note("is", descriptor.label.as_deref().unwrap_or_default(), &setup.session);
        }
        Ok(())
    }));
    for id in ["r", "s"] {
        world.root(id);
    }
    let (r, _s) = (runtime.resume(&sid("r")).await.unwrap(), runtime.resume(&sid("s")).await.unwrap());
    diary.take();
    let child = r.agent().start_continuable(Delegate::new("worker", "first", "begin")).await.unwrap().child;
    ended(&mut ends, &child).await;
    assert_eq!(diary.take(), ["apply a", "is first", "commit a", "release a"].map(|line| format!("{line} {child}")));
    drop(r);
    ended(&mut ends, &sid("r")).await;
    assert_eq!(diary.take()[..], ["release a r"]);
    runtime.shutdown().await;
    assert_eq!(diary.take(), ["release a s"]);
}

async fn another_process_sets_the_session_up_again(world: &World) {
    world.root("r");
    for (epoch, names) in [(1, vec!["a"]), (2, vec!["b", "a"]), (3, vec![])] {
        let runtime = world.runtime().await;
        let (host, diary) = (runtime.host(), Diary::default());
        let is_known = move |setup: &Setup| if (setup.epoch, setup.resumed()) == (epoch, epoch > 1) { Ok(()) } else { no("WRONG_EPOCH") };
        let kept: Vec<_> = names.iter().map(|name| host.register_setup(part(name, &diary).apply(is_known))).collect();
        host.send(&sid("r"), "hello", None).await.unwrap();
        assert!(host.quiescent(&sid("r")).await.unwrap().is_empty());
        drop((host, kept));
        world.close_after(runtime).await;
        let each = |what: &str| names.iter().map(|name| format!("{what} {name} r")).collect::<Vec<_>>();
        let released = each("release").into_iter().rev().collect();
        assert_eq!(diary.take(), [each("apply"), each("commit"), released].concat());
    }
    assert_eq!(attempts(world, "r"), [1, 1, 1]);
}

#[derive(Debug)]
struct Paper(&'static str);
#[derive(Debug)]
struct Ink(&'static str);

fn clerk() -> RuntimeBuilder {
    Runtime::builder().closure("worker", |turn: Turn| async move {
        let paper = turn.installed::<Paper>().map_or("no paper", |paper| paper.0);
        let ink = turn.installed::<Ink>().map_or("no ink", |ink| ink.0);
        turn.say(format!("{paper}, {ink}"))?;
        Ok(Ended::Completed)
    })
}

async fn a_turn_finds_what_was_installed_until_it_is_taken_away(world: &World) {
    let runtime = world.start(clerk()).await;
    let (host, diary) = (runtime.host(), Diary::default());
    let white = host.register_setup(part("a", &diary).gives(Paper("white")));
    let more = host.register_setup(part("b", &diary).gives(Paper("grey")).gives(Ink("black")));
    let root = runtime.root("worker", "a desk").await.unwrap();
    let says = async || {
        root.send("What is there?").await.unwrap();
        root.quiescent().await.unwrap();
        runtime.last_answer(root.id()).await.unwrap().unwrap()
    };
    assert_eq!(says().await, "white, black");
    drop(white);
    assert_eq!(says().await, "grey, black");
    // Whoever lives already has nothing of what comes later.
    let _late = host.register_setup(part("c", &diary).gives(Paper("late")));
    drop(more);
    assert_eq!(says().await, "no paper, no ink");
    runtime.shutdown().await;
}

async fn a_session_that_is_being_set_up_is_not_live_and_a_shutdown_does_not_wait_for_it(world: &World) {
    world.root("r");
    world.child("c", "r");
    let runtime = world.runtime().await;
    let (host, diary, gate) = (runtime.host(), Diary::default(), Arc::new(Semaphore::new(0)));
    let mut told = runtime.subscribe();
    let _first = host.register_setup(part("a", &diary));
    let _slow = host.register_setup(Part { gate: Some(gate.clone()), ..part("b", &diary) });
    let born = events(world, "c");
    host.send(&sid("c"), "hello", None).await.unwrap();
    while diary.0.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(host.live_count(), 0);
    assert_eq!((events(world, "c"), world.reader().leases(None).unwrap()), (born.clone(), vec![]));
    let before = std::time::Instant::now();
    runtime.shutdown().await;
    assert!(before.elapsed() < std::time::Duration::from_secs(5), "the shutdown waited for {:?}", before.elapsed());
    assert_eq!(diary.take(), ["apply a c", "apply b c", "release a c"]);
    assert_eq!(refusals(&mut told), [""; 0]);
    assert_eq!((events(world, "c"), world.reader().inbox(&sid("c"), 9).unwrap().len()), (born, 1), "it waits for whoever comes next");
    assert!(world.reader().leases(None).unwrap().is_empty());
}

async fn what_a_host_plays_is_not_set_up(world: &World) {
    let runtime = world.runtime().await;
    let diary = Diary::default();
    let _a = runtime.host().register_setup(part("a", &diary).apply(|_| no("NEVER")));
    published(&runtime, root("r")).await.end().await.unwrap();
    assert!(diary.take().is_empty());
    runtime.shutdown().await;
}

async fn a_failing_release_beside_a_failing_write_leaves_nothing_behind(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let (host, diary) = (runtime.host(), Diary::default());
    let (mut told, mut ends) = (runtime.subscribe(), runtime.subscribe());
    let stuck = host.register_setup(part("a", &diary).release(|_| no("STUCK")));
    let root = runtime.resume(&sid("r")).await.unwrap();
    world.watch.fail("r", Call::Commit, 1, Fault::Outage);
    drop(root);
    ended(&mut ends, &sid("r")).await;
    drop(stuck);
    let (mut pairs, mut failures) = (Pairs::default(), Vec::new());
    while let Ok(occurrence) = told.try_recv() {
        pairs.see(&occurrence);
        if let Occurrence::ReleaseFailed { failures: failed, .. } = &occurrence {
            failures.extend(failed.to_vec());
        }
    }
    let (_, reason, outcome, answer) = pairs.ends(&sid("r")).remove(0);
    assert_eq!((reason, outcome.error_code(), answer), (EpochEnd::Failed, Some("NOT_DELIVERED"), None));
    assert_eq!((failures, diary.take()), (vec!["STUCK: no".to_owned()], ["apply a r", "commit a r", "release a r"].map(str::to_owned).to_vec()));
    assert!(host.quiescent(&sid("r")).await.unwrap().is_empty());
    assert_eq!(host.live_count(), 0);
    runtime.shutdown().await;
}
