//! How sessions come to rest: who stays for whom, what a failure keeps, and that nothing is left behind, however many there are.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use greenroom::{
    Delegate, Host, Occurrence, Registration, Runtime, Turn, TurnEnd as Ended,
    setup::{Installation, Setup, SetupContribution, SetupError},
};
use greenroom_session::{
    descriptor::Descriptor,
    event::{Body, EpochEnd, TurnEnd},
    header::NewSession,
    id::SessionId,
    message::{Message, Source},
    store::{Create, Op},
};
use tokio::sync::broadcast::Receiver;
use tokio_util::sync::CancellationToken;

use crate::{
    author::{Author, descriptor},
    mechanics::{Gate, story},
    publish::{events, sound, types, until},
    reports::doer,
    watched::{Call, Fault},
    world::{World, mid, sid},
};

crate::on_every_store!(async
    a_parent_stays_for_its_live_children_whoever_came_first,
    a_root_without_a_handle_stays_for_its_children_and_settles_after_them,
    children_that_wait_to_be_started_keep_their_parent,
    what_fails_at_a_settlement_keeps_nobody_and_is_made_good,
    a_release_that_fails_at_a_settlement_keeps_nobody,
    a_parent_that_cannot_be_told_keeps_no_child,
    a_child_that_waits_for_a_slot_holds_no_shutdown_up,
    a_parent_that_comes_up_in_a_shutdown_ends_after_the_child_that_was_live_before_it,
    a_start_that_is_given_up_comes_to_rest,
    fifty_rounds_of_failing_starts_leave_no_slot_behind,
);

/// Returns how the epochs of a session ended.
fn epochs(world: &World, id: &str) -> Vec<EpochEnd> {
    events(world, id).into_iter().filter_map(|event| if let Body::ActivationEnd { reason, .. } = event.body { Some(reason) } else { None }).collect()
}

fn turn_ended(occurrence: &Occurrence, id: &str) -> bool {
    matches!(occurrence, Occurrence::TurnEnded { session, .. } if session.as_str() == id)
}

/// Returns the sessions whose epochs have ended, in order.
fn order(occurrences: &mut Receiver<Occurrence>) -> Vec<String> {
    let mut order = Vec::new();
    while let Ok(occurrence) = occurrences.try_recv() {
        if let Occurrence::Ended { session, .. } = occurrence {
            order.push(session.to_string());
        }
    }
    order
}

/// Has everybody else have many turns: whoever could settle has done so.
async fn others_first() {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
}

async fn a_parent_stays_for_its_live_children_whoever_came_first(world: &World) {
    // Which of the three is live before which.
    for (n, first) in [["r", "c", "g"], ["g", "c", "r"], ["g", "r", "c"], ["c", "g", "r"]].into_iter().enumerate() {
        let name = |id: &str| format!("{id}{n}");
        world.root(&name("r"));
        world.child(&name("c"), &name("r"));
        world.child(&name("g"), &name("c"));
        let gate = Gate::new();
        let runtime = world.start(doer(&gate)).await;
        let host = runtime.host();
        let mut occurrences = host.subscribe();
        let mut root = None;
        for id in first {
            match id {
                "r" => root = Some(runtime.resume(&sid(&name("r"))).await.unwrap()),
                "c" => {
                    host.send(&sid(&name("c")), "say rested", None).await.unwrap();
                    if first == ["r", "c", "g"] || first == ["c", "g", "r"] {
                        // It has come to rest before its child comes, and is woken by what that reports.
                        assert_eq!(host.quiescent(&sid(&name("r"))).await.unwrap(), []);
                    } else {
                        until(&mut occurrences, |occurrence| turn_ended(occurrence, &name("c"))).await;
                    }
                    // What has ended so far had nobody below.
                    drop(order(&mut occurrences));
                }
                _ => {
                    host.send(&sid(&name("g")), "report up\nhold", None).await.unwrap();
                    gate.reached().await;
                }
            }
        }
        host.when_idle(&sid(&name("c"))).await.unwrap();
        others_first().await;
        assert_eq!(order(&mut occurrences), Vec::<String>::new(), "{first:?}: somebody settled above a live child");
        assert_eq!(host.live_count(), 3, "{first:?}");
        gate.open(1);
        let root = root.unwrap();
        root.quiescent().await.unwrap();
        // The root, which a handle keeps, waits for nobody.
        assert_eq!((order(&mut occurrences), host.live_count()), (vec![name("g"), name("c")], 1), "{first:?}");
        drop((host, root));
        world.close_after(runtime).await;
    }
    sound(world);
}

async fn a_root_without_a_handle_stays_for_its_children_and_settles_after_them(world: &World) {
    world.root("r");
    let gate = Gate::new();
    let runtime = world.start(doer(&gate)).await;
    let host = runtime.host();
    let mut occurrences = host.subscribe();
    host.send(&sid("r"), "delegate delegate hold", None).await.unwrap();
    gate.reached().await;
    others_first().await;
    assert_eq!(order(&mut occurrences), Vec::<String>::new());
    gate.open(1);
    assert_eq!(host.quiescent(&sid("r")).await.unwrap(), []);
    let order = order(&mut occurrences);
    let depths: Vec<_> = order.iter().map(|id| world.reader().header(&sid(id)).unwrap().unwrap().depth).collect();
    assert_eq!(depths, [2, 1, 0], "child first");
    for id in &order {
        assert_eq!(epochs(world, id), [EpochEnd::Settled]);
    }
    runtime.shutdown().await;
    sound(world);
}

async fn children_that_wait_to_be_started_keep_their_parent(world: &World) {
    for root in ["r", "s"] {
        world.root(root);
    }
    for child in ["one", "two", "three"] {
        world.child(child, "r");
        world.accept(child, "m");
    }
    let gate = Gate::new();
    let runtime = world.start(doer(&gate).max_live(2)).await;
    let host = runtime.host();
    let mut occurrences = host.subscribe();
    // The root and a stranger have both slots when the children are found.
    for root in ["r", "s"] {
        host.send(&sid(root), "hold", None).await.unwrap();
        gate.reached().await;
    }
    assert_eq!(runtime.recover(Some(&sid("r"))).await.unwrap().len(), 3);
    // The stranger keeps its own until the children are done.
    gate.open(1);
    for child in ["one", "two", "three", "r"] {
        host.when_idle(&sid(child)).await.unwrap();
    }
    gate.open(1);
    assert_eq!(host.quiescent(&sid("r")).await.unwrap(), []);
    let order: Vec<_> = order(&mut occurrences).into_iter().filter(|id| id != "s").collect();
    assert_eq!((order.len(), order.last().map(String::as_str)), (4, Some("r")), "{order:?}");
    runtime.shutdown().await;
    sound(world);
}

async fn what_fails_at_a_settlement_keeps_nobody_and_is_made_good(world: &World) {
    // The acceptance of the notice, or any write of the child from its start to its end.
    for (n, (writes_of_child, nth)) in [(false, 1), (false, 2), (true, 2), (true, 3), (true, 4), (true, 5)].into_iter().enumerate() {
        let (root, child) = (format!("r{n}"), format!("c{n}"));
        world.root(&root);
        world.child(&child, &root);
        let runtime = world.start(doer(&Gate::new())).await;
        let host = runtime.host();
        world.watch.clear();
        world.watch.fail(if writes_of_child { &child } else { &root }, Call::Commit, nth, Fault::Outage);
        host.send(&sid(&child), "say done", None).await.unwrap();
        let at_rest = || {
            let told = events(world, &root).iter().filter(|event| matches!(event.body, Body::NoteJoined { .. })).count();
            told == 1 && [&root, &child].iter().all(|id| epochs(world, id).last() == Some(&EpochEnd::Settled))
        };
        // What failed is looked at again after a pause, during which all may seem at rest.
        let mut occurrences = host.subscribe();
        loop {
            assert_eq!(host.quiescent(&sid(&root)).await.unwrap(), []);
            if at_rest() && host.live_count() == 0 {
                break;
            }
            until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::Ended { .. })).await;
        }
        let completed = events(world, &child).iter().filter(|event| matches!(event.body, Body::TurnEnd { reason: TurnEnd::Completed, .. })).count();
        assert_eq!(completed, 1, "write {nth} of the {} fails", if writes_of_child { "child" } else { "parent" });
        drop(host);
        world.close_after(runtime).await;
    }
    world.watch.clear();
    sound(world);
}

/// Sets up what a session's id asks for: a refusal, or a release that fails.
struct Moody;

struct Mood(bool);

impl SetupContribution for Moody {
    fn apply<'a>(&'a self, setup: &'a Setup) -> BoxFuture<'a, Result<Box<dyn Installation>, SetupError>> {
        let session = setup.session.to_string();
        async move {
            if session == "refused" {
                return Err(SetupError::new("REFUSED", "as its id says"));
            }
            Ok(Box::new(Mood(session == "sticky")) as Box<dyn Installation>)
        }
        .boxed()
    }
}

impl Installation for Mood {
    fn release(&mut self) -> Result<(), SetupError> {
        if self.0 { Err(SetupError::new("STICKY", "it does not come off")) } else { Ok(()) }
    }
}

fn moody(host: &Host) -> Registration {
    host.register_setup(Moody)
}

async fn a_release_that_fails_at_a_settlement_keeps_nobody(world: &World) {
    world.root("r");
    world.child("sticky", "r");
    let runtime = world.runtime().await;
    let host = runtime.host();
    let mut occurrences = host.subscribe();
    let _registered = moody(&host);
    host.send(&sid("sticky"), "go", None).await.unwrap();
    assert_eq!(host.quiescent(&sid("r")).await.unwrap(), []);
    assert_eq!(host.live_count(), 0);
    assert_eq!((epochs(world, "sticky"), epochs(world, "r")), (vec![EpochEnd::Settled], vec![EpochEnd::Settled]));
    let (mut failed, mut outcomes) = (0, Vec::new());
    while let Ok(occurrence) = occurrences.try_recv() {
        match occurrence {
            Occurrence::Ended { session, outcome, .. } if session.as_str() == "sticky" => outcomes.push(outcome),
            Occurrence::ReleaseFailed { .. } => failed += 1,
            _ => {}
        }
    }
    assert_eq!((failed, outcomes), (1, vec![TurnEnd::Completed]), "it is told, and what the work came to is told as it was");
    runtime.shutdown().await;
}

async fn a_parent_that_cannot_be_told_keeps_no_child(world: &World) {
    world.plant(&Author::root("damaged").spoilt());
    for (child, parent) in [("of nobody", "nowhere"), ("of the damaged", "damaged")] {
        let child = Create::child(NewSession::child(sid(child), sid(parent), 0), Vec::new(), &descriptor(child), None, 1_000).unwrap();
        world.one(Op::Create(child)).unwrap();
    }
    let runtime = world.start(doer(&Gate::new())).await;
    let host = runtime.host();
    for child in ["of nobody", "of the damaged"] {
        host.send(&sid(child), "say done", None).await.unwrap();
        host.when_idle(&sid(child)).await.unwrap();
        assert_eq!(host.quiescent(&sid(child)).await.unwrap(), []);
        assert_eq!((epochs(world, child), story(&events(world, child)).last().map(String::as_str)), (vec![EpochEnd::Settled], Some("completed")));
    }
    assert_eq!(host.live_count(), 0);
    runtime.shutdown().await;
}

async fn a_child_that_waits_for_a_slot_holds_no_shutdown_up(world: &World) {
    world.root("r");
    let gate = Gate::new();
    let runtime = world.start(doer(&gate).max_live(1)).await;
    // Its turn has the only slot, and the shutdown waits for its children first.
    runtime.host().send(&sid("r"), "delegate say never\nstep\nhold", None).await.unwrap();
    gate.reached().await;
    world.close_after(runtime).await;
    assert_eq!(story(&events(world, "r")).last().map(String::as_str), Some("disposed"), "{:?}", types(&events(world, "r")));
    assert_eq!(epochs(world, "r"), [EpochEnd::Disposed]);
    // And nothing is lost of either.
    let runtime = world.start(doer(&gate)).await;
    gate.open(1);
    runtime.recover(None).await.unwrap();
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    let child = world.reader().children(Some(&sid("r")), None, 9).unwrap().remove(0).id;
    assert_eq!(story(&events(world, child.as_str())), ["turn 1", "say never", "completed"]);
    runtime.shutdown().await;
    sound(world);
}

async fn a_parent_that_comes_up_in_a_shutdown_ends_after_the_child_that_was_live_before_it(world: &World) {
    world.root("r");
    world.child("c", "r");
    let (gate, last) = (Gate::new(), Gate::new());
    let gates = (gate.clone(), last.clone());
    let runtime = world.start(Runtime::builder().interrupt_grace(Duration::from_secs(60)).closure("worker", move |turn: Turn| {
        let (gate, last) = gates.clone();
        async move {
            if turn.session().as_str() == "c" {
                // It heeds its cancellation, and takes its time.
                let cancelled = gate.pass(&turn).await;
                last.hold().await;
                cancelled?;
            }
            Ok(Ended::Completed)
        }
    }));
    let runtime = runtime.await;
    let host = runtime.host();
    host.send(&sid("c"), "go", None).await.unwrap();
    gate.reached().await;
    world.watch.clear();
    // The second write of the root begins its epoch.
    let open = world.watch.pause("r", Call::Commit, 2);
    host.send(&sid("r"), "go", None).await.unwrap();
    open.reached().await;
    let mut occurrences = host.subscribe();
    let meanwhile = async {
        last.reached().await;
        open.open();
        until(&mut occurrences, |occurrence| matches!(occurrence, Occurrence::Activated { session, .. } if session.as_str() == "r")).await;
        others_first().await;
        assert_eq!(order(&mut occurrences), Vec::<String>::new(), "its child is live");
        last.open(1);
    };
    tokio::join!(runtime.shutdown(), meanwhile);
    assert_eq!(order(&mut occurrences), ["c", "r"]);
}

async fn a_start_that_is_given_up_comes_to_rest(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let host = runtime.host();
    host.send(&sid("r"), "once", Some(mid("m"))).await.unwrap();
    assert_eq!(host.quiescent(&sid("r")).await.unwrap(), []);
    world.watch.clear();
    let load = world.watch.pause("r", Call::Load, 1);
    // The same message again: somebody looks whether there is anything to do, and there is not.
    host.send(&sid("r"), "once", Some(mid("m"))).await.unwrap();
    load.reached().await;
    let session = sid("r");
    {
        let mut resume = Box::pin(runtime.resume(&session));
        for _ in 0..50 {
            assert!(resume.as_mut().now_or_never().is_none(), "it waits for that look");
            tokio::task::yield_now().await;
        }
    }
    load.open();
    assert_eq!(host.quiescent(&session).await.unwrap(), []);
    assert_eq!((host.live_count(), epochs(world, "r").len()), (0, 1));
    // Who comes later is served.
    drop(runtime.resume(&session).await.unwrap());
    assert_eq!(host.quiescent(&session).await.unwrap(), []);
    assert!(world.watch.count("r", Call::Load) < 10, "{}", world.watch.count("r", Call::Load));
    runtime.shutdown().await;
}

/// Sends a message again until it is accepted: what is written together fails together.
async fn send(host: &Host, child: &str, id: &str, text: &str) {
    while host.send(&sid(child), text, Some(mid(id))).await.is_err() {}
}

async fn fifty_rounds_of_failing_starts_leave_no_slot_behind(world: &World) {
    world.root("r");
    for child in ["one", "two", "refused", "unreadable", "unwritable", "panicking"] {
        world.child(child, "r");
    }
    let stranger = Descriptor { agent: "nobody".into(), ..descriptor("a stranger") };
    world.one(Op::Create(Create::child(NewSession::child(sid("stranger"), sid("r"), 0), Vec::new(), &stranger, None, 1_000).unwrap())).unwrap();
    let gate = Gate::new();
    let runtime = world.start(doer(&gate).max_live(2).max_starting(2).max_depth(1)).await;
    let host = runtime.host();
    let _registered = moody(&host);
    let root = runtime.resume(&sid("r")).await.unwrap();
    for round in 0..50 {
        let id = format!("m{round}");
        // Starts that are refused before anything is there.
        let given_up = CancellationToken::new();
        given_up.cancel();
        let agent = root.agent();
        let refused = [
            (agent.clone(), Delegate::new("unheard of", "a child", "go"), "AGENT_UNKNOWN"),
            (agent.clone(), Delegate::new("worker", "", "go"), "INVALID_LABEL"),
            (agent.clone(), Delegate::new("worker", "a child", "go").provider("unheard of"), "NO_PROVIDER"),
            (agent.cancellable(given_up), Delegate::new("worker", "a child", "go"), "CANCELLED"),
        ];
        for (agent, delegate, code) in refused {
            assert_eq!(agent.start_continuable(delegate).await.unwrap_err().code(), code);
        }
        // Starts that fail at the load and at the first write, and are made good after a pause.
        if round % 10 == 0 {
            host.when_idle(&sid("r")).await.unwrap();
            world.watch.clear();
            world.watch.fail("unreadable", Call::Load, 1, Fault::Outage);
            world.watch.fail("unwritable", Call::Commit, 2, Fault::Outage);
            for child in ["unreadable", "unwritable"] {
                send(&host, child, &id, "go").await;
                host.when_idle(&sid(child)).await.unwrap();
            }
        }
        // In the set-up, for want of a behaviour, in the turn itself; and two that are well.
        for (child, text) in [("refused", "go"), ("stranger", "go"), ("panicking", "panic"), ("one", "hold"), ("two", "hold")] {
            send(&host, child, &id, text).await;
        }
        // Both slots are there at the same time.
        gate.reached().await;
        gate.reached().await;
        gate.open(2);
        for child in ["one", "two", "panicking"] {
            host.when_idle(&sid(child)).await.unwrap();
        }
    }
    let mut stuck = root.quiescent().await.unwrap();
    stuck.sort();
    assert_eq!(stuck, [sid("refused"), sid("stranger")], "what cannot start says so, and all else is done");
    assert_eq!(host.live_count(), 1);
    for (child, turns) in [("one", 50), ("two", 50), ("unreadable", 5), ("unwritable", 5), ("panicking", 50)] {
        assert_eq!(host.fold(&sid(child)).await.unwrap().head().turns, turns, "{child}");
    }
    runtime.shutdown().await;
}

/// Leaves this many children with a message each, as a runtime does that is killed at once.
fn orphaned(world: &World, children: usize) -> Vec<SessionId> {
    world.root("r");
    let ids: Vec<_> = (0..children).map(|n| sid(&format!("c{n:05}"))).collect();
    for ids in ids.chunks(500) {
        let create = |id: &SessionId| {
            let message = Message::turn(mid("m"), "go", Source::User, 1_000).unwrap();
            let session = NewSession::child(id.clone(), sid("r"), 0);
            Op::Create(Create::child(session, Vec::new(), &descriptor(id.as_str()), Some(Arc::new(message)), 1_000).unwrap())
        };
        for done in world.plain().commit(&ids.iter().map(create).collect::<Vec<_>>()).unwrap() {
            done.unwrap();
        }
    }
    ids
}

async fn a_crowd_at_restart_is_taken_up_a_few_at_a_time(world: World, crowd: usize) {
    let children = orphaned(&world, crowd);
    let (running, most, live) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = (running, most.clone(), live.clone());
    let host: Arc<std::sync::OnceLock<Host>> = Arc::default();
    let looks = host.clone();
    let runtime = Runtime::builder().max_live(8).max_starting(4).closure("worker", move |_: Turn| {
        let ((running, most, live), host) = (seen.clone(), looks.clone());
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            live.fetch_max(host.get().map_or(0, Host::live_count), Ordering::SeqCst);
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(Ended::Completed)
        }
    });
    let runtime = world.start(runtime).await;
    assert!(host.set(runtime.host()).is_ok());
    assert_eq!(runtime.recover(None).await.unwrap().len(), crowd);
    assert_eq!(runtime.host().quiescent(&sid("r")).await.unwrap(), []);
    let calls = world.watch.calls();
    for id in children.iter().map(SessionId::as_str).chain(["r"]) {
        assert_eq!(calls.get(&(id.to_owned(), Call::Load)), Some(&1), "{id} is loaded once");
    }
    assert!((2..=8).contains(&most.load(Ordering::SeqCst)), "{} turns ran at a time", most.load(Ordering::SeqCst));
    assert!(world.watch.most_loads_at_once() <= 4, "{} logs were loaded at a time", world.watch.most_loads_at_once());
    // Those that have a slot, and their parent.
    assert!(live.load(Ordering::SeqCst) <= 9, "{} were live at a time", live.load(Ordering::SeqCst));
    // Their parent has come once, and has heard of each.
    assert_eq!(epochs(&world, "r"), [EpochEnd::Settled]);
    let heard: usize = events(&world, "r").iter().map(|event| if let Body::NoteJoined { notes, .. } = &event.body { notes.len() } else { 0 }).sum();
    assert_eq!(heard, crowd);
    for id in children.iter().step_by(997) {
        assert_eq!(story(&events(&world, id.as_str())), ["turn 1", "go", "completed"]);
    }
    runtime.shutdown().await;
}

#[tokio::test]
async fn ten_thousand_children_at_restart_are_taken_up_a_few_at_a_time() {
    let time = Duration::from_secs(600);
    tokio::time::timeout(time, a_crowd_at_restart_is_taken_up_a_few_at_a_time(World::memory(), 10_000)).await.unwrap();
}

#[tokio::test]
async fn ten_thousand_children_on_disk_at_restart_are_taken_up_a_few_at_a_time() {
    let time = Duration::from_secs(600);
    tokio::time::timeout(time, a_crowd_at_restart_is_taken_up_a_few_at_a_time(World::sqlite(), 10_000)).await.unwrap();
}
