//! Cancelling a session: what ends, what is taken back, what stays, and whose word counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use greenroom::{
    Host, Occurrence, Runtime, Turn, TurnEnd as Ended,
    actors::host::{Cancel, Cancelled, Cause},
    rand::RngExt,
};
use greenroom_session::{
    event::{Body, EpochEnd, Event, TurnEnd},
    id::MessageId,
};

use crate::{
    mechanics::{Gate, stepper, story},
    publish::{events, sound, types},
    world::{World, mid, sid},
};

crate::on_every_store!(async
    a_cancel_of_nothing_writes_nothing,
    a_cancel_ends_the_turn_and_takes_back_what_waits_but_no_note,
    a_cancel_that_keeps_the_queue_ends_the_turn_alone,
    the_first_cause_of_an_end_is_the_one_that_counts,
    what_is_cancelled_before_its_first_turn_leaves_a_session_that_settles,
    what_a_crash_left_is_cancelled_without_a_turn,
    an_ancestor_ends_a_turn_and_what_is_below_goes_on,
    every_message_has_one_end_whatever_is_sent_taken_back_and_cancelled,
);

const KEEP: Cancel = Cancel { keep_inbox: true, cause: Cause::User, patience: PATIENCE };
const PATIENCE: Duration = Duration::from_secs(60);

fn pending(world: &World, id: &str) -> Vec<String> {
    world.reader().inbox(&sid(id), usize::MAX).unwrap().iter().map(|record| record.message.id.to_string()).collect()
}

async fn a_cancel_of_nothing_writes_nothing(world: &World) {
    world.root("r");
    world.root("kept");
    let runtime = world.runtime().await;
    let kept = runtime.resume(&sid("kept")).await.unwrap();
    runtime.inject(&sid("r"), "quiet", Some(mid("q"))).await.unwrap();
    runtime.inject(kept.id(), "quiet", Some(mid("q"))).await.unwrap();
    let before = (events(world, "r"), events(world, "kept"));
    for how in [Cancel::default(), KEEP] {
        for id in ["r", "kept"] {
            assert_eq!(runtime.cancel(&sid(id), how).await.unwrap(), Cancelled::default());
        }
        assert_eq!(runtime.cancel(&sid("nobody"), how).await.unwrap_err().code(), "SESSION_NOT_FOUND");
    }
    assert_eq!((events(world, "r"), events(world, "kept")), before);
    assert_eq!(pending(world, "r"), ["q"], "and nobody was woken");
    // Nor is anything that comes later hurt.
    runtime.host().send(&sid("r"), "on", None).await.unwrap();
    runtime.when_idle(&sid("r")).await.unwrap();
    assert_eq!(story(&events(world, "r")), ["turn 1", "quiet", "on", "completed"]);
    runtime.shutdown().await;
    assert_eq!(runtime.cancel(&sid("r"), KEEP).await.unwrap_err().code(), "DRAINING");
}

/// A turn is under way, two messages, a steer and an inject wait.
async fn busy(world: &World, gate: &Gate) -> (Runtime, Host) {
    world.root("r");
    let runtime = world.start(stepper(gate)).await;
    let host = runtime.host();
    host.send(&sid("r"), "one", Some(mid("one"))).await.unwrap();
    gate.reached().await;
    for text in ["two", "three"] {
        host.send(&sid("r"), text, Some(mid(text))).await.unwrap();
    }
    host.inject(&sid("r"), "quiet", Some(mid("quiet"))).await.unwrap();
    (runtime, host)
}

async fn a_cancel_ends_the_turn_and_takes_back_what_waits_but_no_note(world: &World) {
    let gate = Gate::new();
    let (runtime, host) = busy(world, &gate).await;
    let cancelled = host.cancel(&sid("r"), Cancel::default()).await.unwrap();
    assert_eq!((cancelled.turn, cancelled.withdrawn), (Some(1), vec![mid("two"), mid("three")]));
    host.when_idle(&sid("r")).await.unwrap();
    let first = ["turn 1", "one", "step 1", "two taken back by user", "three taken back by user", "aborted by user"];
    assert_eq!(story(&events(world, "r")), first);
    assert_eq!(pending(world, "r"), ["quiet"]);
    // Withdrawn is withdrawn, and what is sent now is served.
    host.send(&sid("r"), "two", Some(mid("two"))).await.unwrap();
    gate.open(1);
    host.send(&sid("r"), "four", None).await.unwrap();
    host.when_idle(&sid("r")).await.unwrap();
    assert_eq!(story(&events(world, "r"))[first.len()..], ["turn 2", "quiet", "four", "step 1", "step 2", "completed"]);
    runtime.shutdown().await;
    sound(world);
}

async fn a_cancel_that_keeps_the_queue_ends_the_turn_alone(world: &World) {
    let gate = Gate::new();
    let (runtime, host) = busy(world, &gate).await;
    let cancelled = host.cancel(&sid("r"), Cancel { cause: Cause::Host, ..KEEP }).await.unwrap();
    assert_eq!((cancelled.turn, cancelled.withdrawn), (Some(1), vec![]));
    gate.open(2);
    host.when_idle(&sid("r")).await.unwrap();
    let told = story(&events(world, "r"));
    assert_eq!(told[..4], ["turn 1", "one", "step 1", "aborted by host"]);
    let rest: Vec<_> = told[4..].iter().filter(|line| !line.starts_with("step")).collect();
    assert_eq!(rest, ["turn 2", "quiet", "two", "completed", "turn 3", "three", "completed"], "the queue goes on at once");
    runtime.shutdown().await;
    sound(world);
}

async fn the_first_cause_of_an_end_is_the_one_that_counts(world: &World) {
    for (id, asks) in [("then a cancel", 2), ("then a shutdown", 1)] {
        world.root(id);
        let (gate, last) = (Gate::new(), Gate::new());
        let gates = (gate.clone(), last.clone());
        // It heeds its cancellation, and takes its time.
        let cast = Runtime::builder().interrupt_grace(PATIENCE).closure("worker", move |turn: Turn| {
            let (gate, last) = gates.clone();
            async move {
                let cancelled = gate.pass(&turn).await;
                last.hold().await;
                cancelled?;
                Ok(Ended::Completed)
            }
        });
        let runtime = world.start(cast).await;
        let host = runtime.host();
        let session = sid(id);
        host.send(&session, "one", None).await.unwrap();
        gate.reached().await;
        let first = host.cancel(&session, Cancel::default());
        let then = async {
            // The first one has been heard.
            last.reached().await;
            if asks == 2 {
                let second = host.cancel(&session, Cancel { cause: Cause::Host, ..KEEP });
                let (told, ()) = tokio::join!(second, async { last.open(1) });
                assert!(matches!(told.unwrap().turn, Some(1) | None));
            } else {
                tokio::join!(runtime.shutdown(), async { last.open(1) });
            }
        };
        let (first, ()) = tokio::join!(first, then);
        assert_eq!(first.unwrap().turn, Some(1));
        assert_eq!(story(&events(world, id)), ["turn 1", "one", "aborted by user"]);
        host.when_idle(&session).await.unwrap();
        drop(host);
        world.close_after(runtime).await;
    }
}

async fn what_is_cancelled_before_its_first_turn_leaves_a_session_that_settles(world: &World) {
    world.root("r");
    world.child("c", "r");
    let runtime = world.start(World::builder().max_live(1)).await;
    let host = runtime.host();
    let child = sid("c");
    for round in 0..20_u64 {
        let mut occurrences = host.subscribe();
        host.send(&sid("c"), "older", None).await.unwrap();
        let (later, cancelled) = tokio::join!(host.send(&child, "later", None), host.cancel(&child, Cancel::default()));
        later.unwrap();
        cancelled.unwrap();
        host.when_idle(&sid("c")).await.unwrap();
        // Nothing holds it: its epoch, if there was one, comes to its end by itself.
        assert_eq!(host.quiescent(&sid("r")).await.unwrap(), []);
        assert_eq!(host.live_count(), 0, "round {round}");
        while let Ok(occurrence) = occurrences.try_recv() {
            assert!(!matches!(occurrence, Occurrence::NotActivated { .. }), "{occurrence:?}");
        }
        assert_eq!(pending(world, "c"), Vec::<String>::new());
    }
    // An epoch in which somebody was only answered may be cut short by one that serves.
    let ends = events(world, "c").into_iter().filter_map(|event| if let Body::ActivationEnd { reason, .. } = event.body { Some(reason) } else { None });
    let ends: Vec<_> = ends.collect();
    assert!(ends.iter().all(|end| !matches!(end, EpochEnd::Failed | EpochEnd::Fenced)), "{ends:?}");
    assert!(ends.last().is_none_or(|last| *last == EpochEnd::Settled), "{ends:?}");
    runtime.shutdown().await;
    sound(world);
}

async fn what_a_crash_left_is_cancelled_without_a_turn(world: &World) {
    world.root("r");
    for message in ["one", "two", "three"] {
        world.accept("r", message);
    }
    World::activate(&*world.plain(), "r", true);
    world.crash();
    let before = events(world, "r").len();
    // Nobody here plays it.
    let runtime = world.start(Runtime::builder()).await;
    let cancelled = runtime.cancel(&sid("r"), Cancel::default()).await.unwrap();
    assert_eq!((cancelled.turn, cancelled.withdrawn), (Some(1), vec![mid("two"), mid("three")]));
    runtime.when_idle(&sid("r")).await.unwrap();
    let log = events(world, "r");
    let aborted = log.iter().rfind(|event| matches!(event.body, Body::TurnEnd { .. })).unwrap();
    assert!(matches!(&aborted.body, Body::TurnEnd { reason: TurnEnd::Aborted { cause }, .. } if cause == "user"), "{aborted:?}");
    assert!(!types(&log[before..]).iter().any(|name| name == "user/message" || name == "step/start"), "no behaviour has seen it");
    assert_eq!(runtime.recover(None).await.unwrap(), []);
    assert_eq!(runtime.cancel(&sid("r"), Cancel::default()).await.unwrap(), Cancelled::default());
    runtime.shutdown().await;
    sound(world);
}

async fn an_ancestor_ends_a_turn_and_what_is_below_goes_on(world: &World) {
    world.root("r");
    world.root("stranger");
    world.child("c", "r");
    world.child("sibling", "r");
    world.child("g", "c");
    world.child("gg", "g");
    world.fork("fork", "r");
    let gate = Gate::new();
    let runtime = world.start(stepper(&gate)).await;
    let host = runtime.host();
    let (root, stranger) = (runtime.resume(&sid("r")).await.unwrap(), runtime.resume(&sid("stranger")).await.unwrap());
    for id in ["g", "gg", "sibling"] {
        host.send(&sid(id), id, None).await.unwrap();
        gate.reached().await;
    }
    host.send(&sid("g"), "next", None).await.unwrap();
    let before = ["r", "g", "gg", "fork"].map(|id| events(world, id));
    for (agent, target) in [(&stranger, "g"), (&root, "r"), (&root, "stranger"), (&root, "fork")] {
        assert_eq!(agent.agent().interrupt(&sid(target), PATIENCE).await.unwrap_err().code(), "UNAUTHORIZED", "{target}");
    }
    assert_eq!(root.agent().interrupt(&sid("nobody"), PATIENCE).await.unwrap_err().code(), "SESSION_NOT_FOUND");
    // What is there and does nothing is left alone, and is not started.
    assert_eq!(root.agent().interrupt(&sid("c"), PATIENCE).await.unwrap_err().code(), "NOT_RUNNING");
    assert_eq!(["r", "g", "gg", "fork"].map(|id| events(world, id)), before);
    assert_eq!(types(&events(world, "c")).iter().filter(|name| *name == "activation/start").count(), 0);
    // A descendant far below; its queue goes on at once, and so does its own child.
    assert_eq!(root.agent().interrupt(&sid("g"), PATIENCE).await.unwrap(), 1);
    gate.reached().await;
    assert_eq!(story(&events(world, "g")), ["turn 1", "g", "step 1", "aborted by parent", "turn 2", "next", "step 1"]);
    assert_eq!(events(world, "gg"), before[2], "its turn is still open");
    gate.open(99);
    for id in ["g", "gg", "sibling"] {
        host.when_idle(&sid(id)).await.unwrap();
    }
    assert_eq!(story(&events(world, "gg")).last().map(String::as_str), Some("completed"));
    let stale = root.agent();
    drop(root);
    assert_eq!(host.quiescent(&sid("r")).await.unwrap(), []);
    assert_eq!(stale.interrupt(&sid("g"), PATIENCE).await.unwrap_err().code(), "UNAUTHORIZED", "its epoch is over");
    runtime.shutdown().await;
}

/// What became of a message, by its log alone.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
enum End {
    Turn,
    Withdrawn,
    Joined,
}

/// Returns every end of every message, in the order of the log. A turn that is served again ends later.
fn message_ends(events: &[Event]) -> Vec<(MessageId, End)> {
    let (mut ends, mut open, mut joined) = (Vec::new(), None, BTreeSet::new());
    for event in events {
        match &event.body {
            Body::TurnStart { message, .. } => {
                assert_eq!(open.replace(message.clone()), None, "a turn begins in a turn, at {}", event.seq);
            }
            Body::TurnEnd { reason, .. } => {
                let message = open.take().expect("a turn ends that has begun");
                if !matches!(reason, TurnEnd::Disposed | TurnEnd::Interrupted) && !joined.contains(&message) {
                    ends.push((message, End::Turn));
                }
            }
            Body::NoteJoined { notes, .. } => {
                joined.extend(notes.iter().cloned());
                ends.extend(notes.iter().map(|note| (note.clone(), End::Joined)));
            }
            Body::MessageWithdrawn { message, .. } => ends.push((message.clone(), End::Withdrawn)),
            _ => {}
        }
    }
    assert_eq!(open, None, "no turn is left open");
    ends
}

/// The same throws for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        for by in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(by);
        }
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).unwrap()
    }
}

async fn every_message_has_one_end_whatever_is_sent_taken_back_and_cancelled(world: &World) {
    let ids = ["r", "c"];
    world.root("r");
    world.child("c", "r");
    let mut notes: BTreeMap<MessageId, bool> = BTreeMap::new();
    let cast = || {
        World::builder().max_live(2).closure("worker", |turn: Turn| async move {
            for _ in 0..turn.rng().random_range(0..4) {
                turn.step().await?;
                tokio::task::yield_now().await;
            }
            Ok(Ended::Completed)
        })
    };
    for seed in 0..6_u64 {
        let mut dice = Dice(seed);
        let runtime = world.start(cast()).await;
        runtime.recover(None).await.unwrap();
        let host = runtime.host();
        let mut turns: Vec<(usize, MessageId)> = Vec::new();
        for step in 0..60 {
            let which = dice.roll(ids.len());
            let id = sid(ids[which]);
            let message = mid(&format!("{seed}-{step}"));
            match dice.roll(10) {
                0..=3 => {
                    host.send(&id, format!("send {step}"), Some(message.clone())).await.unwrap();
                    notes.insert(message.clone(), false);
                    turns.push((which, message));
                }
                4 => {
                    host.steer(&id, format!("steer {step}"), Some(message.clone())).await.unwrap();
                    notes.insert(message, true);
                }
                5 => {
                    host.inject(&id, format!("inject {step}"), Some(message.clone())).await.unwrap();
                    notes.insert(message, true);
                }
                6 => drop(host.cancel(&id, Cancel::default()).await.unwrap()),
                7 => drop(host.cancel(&id, KEEP).await.unwrap()),
                8 => {
                    if let Some((which, message)) = turns.get(dice.roll(turns.len().max(1))) {
                        drop(host.withdraw(&sid(ids[*which]), message, PATIENCE).await);
                    }
                }
                _ => {
                    for _ in 0..dice.roll(50) {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
        // Sometimes in the middle of it all.
        if seed % 2 == 0 {
            host.quiescent(&sid("r")).await.unwrap();
        }
        drop(host);
        world.close_after(runtime).await;
    }
    let runtime = world.start(cast()).await;
    runtime.recover(None).await.unwrap();
    for id in ids {
        runtime.host().send(&sid(id), "last", Some(mid(&format!("last-{id}")))).await.unwrap();
        notes.insert(mid(&format!("last-{id}")), false);
    }
    runtime.host().quiescent(&sid("r")).await.unwrap();
    world.close_after(runtime).await;

    let mut found: BTreeMap<MessageId, Vec<End>> = BTreeMap::new();
    for id in ids {
        assert_eq!(pending(world, id), Vec::<String>::new());
        let mut last = [None, None];
        for (message, end) in message_ends(&events(world, id)) {
            // Notices of the child are in it, too.
            let order = match world.reader().message(&sid(id), &message).unwrap() {
                Some(greenroom_session::store::MessageState::Taken(order)) => order,
                other => panic!("{message} has left the inbox: {other:?}"),
            };
            if end != End::Withdrawn {
                let last = &mut last[usize::from(end == End::Joined)];
                assert!(last.is_none_or(|last| last < order), "{id}: {message} of order {order} comes after {last:?}");
                *last = Some(order);
            }
            found.entry(message).or_default().push(end);
        }
    }
    let kinds: BTreeSet<End> = found.values().flatten().copied().collect();
    assert_eq!(kinds.len(), 3, "every kind of end has come up: {kinds:?}");
    for (message, is_note) in &notes {
        let ends = found.get(message).map(Vec::as_slice);
        let right = if *is_note { matches!(ends, Some([End::Joined])) } else { matches!(ends, Some([End::Turn | End::Withdrawn])) };
        assert!(right, "{message} has these ends: {ends:?}");
    }
    sound(world);
}
