//! Follow-ups: whom they reach, and that they reach the one session there is, live or not.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use futures::future::join_all;
use greenroom::{Agent, Delegate, Occurrence, Runtime, Turn, TurnEnd as Ended, actors::error::DeliverError};
use greenroom_session::{
    descriptor::Descriptor,
    event::{Body, Event},
    id::{EffectKey, EffectKind, MessageId},
    message::{Source, text_of},
    store::{Op, Remove},
};
use tokio::sync::broadcast::Receiver;

use crate::{
    author::{Author, descriptor, one_shot},
    mechanics::{Gate, stepper, story},
    publish::{child, events, published, sound, types, until},
    watched::{Call, Fault},
    world::{World, sid},
};

crate::on_every_store!(async
    follow_ups_in_a_turn_become_turns_of_their_own_in_the_same_epoch,
    what_is_heard_says_for_ever_by_whom_it_was_said,
    a_settled_child_is_brought_up_again_by_its_log_alone,
    a_child_that_waits_for_its_own_is_sent_to_where_it_is,
    only_the_exact_live_parent_sends_to_its_continuable_children,
    many_follow_ups_to_a_settled_child_load_it_once,
    an_outage_is_no_word_on_the_child,
    what_could_not_be_written_is_the_same_effect_when_it_is_sent_again,
    a_report_to_a_parent_that_is_not_there_says_so,
    reports_of_one_text_that_wake_and_that_do_not_are_two_on_every_attempt,
);

/// Counts the events of one kind.
fn count(events: &[Event], name: &str) -> usize {
    types(events).iter().filter(|of| *of == name).count()
}

/// Returns the ids of what waits in an inbox.
pub(crate) fn pending(world: &World, id: &str) -> Vec<MessageId> {
    world.reader().inbox(&sid(id), usize::MAX).unwrap().iter().map(|record| record.message.id.clone()).collect()
}

pub(crate) fn code(sent: Result<MessageId, DeliverError>) -> &'static str {
    sent.map_or_else(|error| error.code(), |_| "accepted")
}

async fn follow_ups_in_a_turn_become_turns_of_their_own_in_the_same_epoch(world: &World) {
    world.root("r");
    world.child("c", "r");
    let gate = Gate::new();
    let runtime = world.start(stepper(&gate)).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let agent = root.agent();
    let mut ids = vec![agent.followup(&sid("c"), "prompt").await.unwrap()];
    gate.reached().await;
    for text in ["first", "second"] {
        ids.push(agent.followup(&sid("c"), text).await.unwrap());
    }
    assert_eq!(pending(world, "c"), ids[1..]);
    // Three turns of the child, and one of the parent for the notice.
    gate.open(9);
    root.quiescent().await.unwrap();
    let events = events(world, "c");
    let told: Vec<_> = story(&events).into_iter().filter(|line| !line.starts_with("step")).collect();
    assert_eq!(told, ["turn 1", "prompt", "completed", "turn 2", "first", "completed", "turn 3", "second", "completed"]);
    assert_eq!((count(&events, "activation/start"), ids.iter().collect::<BTreeSet<_>>().len()), (1, 3));
    runtime.shutdown().await;
    sound(world);
}

async fn what_is_heard_says_for_ever_by_whom_it_was_said(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let child = root.agent().start_continuable(Delegate::new("worker", "a child", "by delegation")).await.unwrap().child;
    root.agent().followup(&child, "by its parent").await.unwrap();
    runtime.host().send(&child, "by its host", None).await.unwrap();
    root.quiescent().await.unwrap();
    drop(root);
    world.close_after(runtime).await;
    let heard = |event: Event| if let Body::UserMessage(message) = event.body { Some((text_of(&message.content), message.source)) } else { None };
    let heard: Vec<_> = events(world, child.as_str()).into_iter().filter_map(heard).collect();
    let parent = Source::Coordinator { session: sid("r") };
    let expected = [("by delegation", parent.clone()), ("by its parent", parent), ("by its host", Source::User)];
    assert_eq!(heard, expected.map(|(text, by)| (text.to_owned(), by)));
    sound(world);
}

/// Returns the next epoch of a session, and the provider of which it is told.
async fn next_epoch(occurrences: &mut Receiver<Occurrence>, id: &str) -> (u64, Option<String>, bool) {
    loop {
        if let Occurrence::Activated { session, epoch, provider, resumed, .. } = occurrences.recv().await.unwrap()
            && session == sid(id)
        {
            return (epoch, provider.map(|name| name.to_string()), resumed);
        }
    }
}

async fn a_settled_child_is_brought_up_again_by_its_log_alone(world: &World) {
    world.root("r");
    // Nobody knows this provider any more.
    let described = Descriptor::continuable("long gone", "a child", "worker");
    world.create(&Author::child("c", "r").described(&described).sealed());
    let runtime = world.runtime().await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let mut occurrences = runtime.subscribe();
    for (epoch, text) in [(1, "one"), (2, "two")] {
        root.agent().followup(&sid("c"), text).await.unwrap();
        assert_eq!(next_epoch(&mut occurrences, "c").await, (epoch, Some("long gone".into()), epoch == 2));
        root.quiescent().await.unwrap();
    }
    let events = events(world, "c");
    assert_eq!(story(&events), ["turn 1", "one", "completed", "turn 2", "two", "completed"]);
    assert_eq!((count(&events, "subagent/descriptor"), count(&events, "activation/end")), (1, 2));
    let places: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert_eq!(places, (0..events.len() as u64).collect::<Vec<_>>());
    runtime.shutdown().await;
    sound(world);
}

async fn a_child_that_waits_for_its_own_is_sent_to_where_it_is(world: &World) {
    let gate = Gate::new();
    let at = gate.clone();
    let cast = World::builder()
        .closure("middle", |turn: Turn| async move {
            if turn.text() == "delegate" {
                turn.delegate(Delegate::new("slow", "a grandchild", "work")).await?;
            }
            Ok(Ended::Completed)
        })
        .closure("slow", move |_: Turn| {
            let at = at.clone();
            async move {
                at.hold().await;
                Ok(Ended::Completed)
            }
        });
    world.root("r");
    world.create(&Author::child("c", "r").described(&Descriptor { agent: "middle".into(), ..descriptor("a child") }).sealed());
    let runtime = world.start(cast).await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    let mut occurrences = runtime.subscribe();
    root.agent().followup(&sid("c"), "delegate").await.unwrap();
    gate.reached().await;
    until(&mut occurrences, |told| matches!(told, Occurrence::TurnEnded { session, .. } if *session == sid("c"))).await;
    root.agent().followup(&sid("c"), "more").await.unwrap();
    until(&mut occurrences, |told| matches!(told, Occurrence::TurnEnded { session, turn: 2, .. } if *session == sid("c"))).await;
    assert_eq!(count(&events(world, "c"), "activation/end"), 0);
    gate.open(1);
    root.quiescent().await.unwrap();
    let log = events(world, "c");
    // Its grandchild's notice is the third turn.
    assert_eq!((count(&log, "activation/start"), count(&log, "turn/end"), count(&log, "activation/end")), (1, 3, 1));
    runtime.shutdown().await;
    sound(world);
}

const NO: &str = "UNAUTHORIZED";
const GONE: &str = "NOT_RESUMABLE";

async fn only_the_exact_live_parent_sends_to_its_continuable_children(world: &World) {
    for root in ["r", "stranger"] {
        world.root(root);
    }
    for (id, parent) in [("own", "r"), ("theirs", "stranger"), ("grandchild", "own"), ("removed", "r")] {
        world.child(id, parent);
    }
    world.one(Op::Remove(Remove { session: sid("removed"), discard: false })).unwrap();
    world.fork("fork", "r");
    world.create(&Author::child("one-shot", "r").described(&one_shot(None)).sealed());
    world.create(&Author::child("plain", "r").sealed());
    world.create(&Author::child("newer", "r").described_as(&serde_json::json!({"version": 99})).sealed());
    world.create(&Author::child("twice", "r").described(&descriptor("a")).described(&descriptor("b")).sealed());
    let runtime = world.runtime().await;
    let played = published(&runtime, child("played", "r")).await;
    let (root, stranger) = (runtime.resume(&sid("r")).await.unwrap(), runtime.resume(&sid("stranger")).await.unwrap());
    // The same session in an epoch that is over.
    let stale = root.agent();
    drop(root);
    runtime.host().quiescent(&sid("r")).await.unwrap();
    while world.reader().leases(Some(&sid("r"))).unwrap().iter().any(|lease| lease.session == sid("r")) {
        tokio::task::yield_now().await;
    }
    let root = runtime.resume(&sid("r")).await.unwrap();
    for kept in [&root, &stranger] {
        kept.quiescent().await.unwrap();
    }
    let (mine, theirs, stale): (&Agent, &Agent, &Agent) = (&root.agent(), &stranger.agent(), &stale);
    let before: Vec<_> = ["own", "one-shot", "twice", "played"].map(|id| events(world, id)).into();
    world.watch.clear();
    for (id, by_parent, words) in [
        ("one-shot", GONE, "no supported continuation state"),
        ("plain", GONE, "no supported continuation state"),
        ("newer", GONE, "no supported continuation state"),
        ("twice", GONE, "damaged"),
        ("fork", GONE, "no supported continuation state"),
        ("played", GONE, "host"),
        ("nobody", GONE, "unavailable"),
        ("removed", GONE, "unavailable"),
        ("grandchild", NO, "another parent session"),
        ("theirs", NO, "another parent session"),
        ("r", NO, "nobody's child"),
    ] {
        let error = mine.followup(&sid(id), "x").await.unwrap_err();
        assert_eq!(error.code(), by_parent, "the parent to {id}");
        assert!(error.to_string().contains(words), "{error}");
        // Nobody is told what a stranger's child is; of what is not there is nothing to hide.
        let by_others = if ["nobody", "removed"].contains(&id) { GONE } else { NO };
        if id != "theirs" {
            assert_eq!(code(theirs.followup(&sid(id), "x").await), by_others, "a stranger to {id}");
        }
        assert_eq!(code(stale.followup(&sid(id), "x").await), NO, "whoever was the parent to {id}");
    }
    assert_eq!(code(stale.followup(&sid("own"), "x").await), NO);
    assert_eq!(code(theirs.followup(&sid("own"), "x").await), NO);
    assert_eq!(world.watch.count("", Call::Commit), 0, "{:?}", world.watch.calls());
    assert_eq!(["own", "one-shot", "twice", "played"].map(|id| events(world, id)).to_vec(), before);
    assert!(played.head().is_ok(), "what its host plays is untouched");
    assert_eq!(code(mine.followup(&sid("own"), "x").await), "accepted");
    root.quiescent().await.unwrap();
    played.end().await.unwrap();
    runtime.shutdown().await;
}

async fn many_follow_ups_to_a_settled_child_load_it_once(world: &World) {
    world.root("r");
    world.child("c", "r");
    let runtime = world.runtime().await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    root.quiescent().await.unwrap();
    world.watch.clear();
    // All of them find it asleep.
    let pause = world.watch.pause("c", Call::Load, 1);
    let agent = root.agent();
    let first = agent.followup(&sid("c"), "0").await.unwrap();
    pause.reached().await;
    let cold = sid("c");
    let more = join_all((1..32).map(|n| agent.followup(&cold, n.to_string()))).await;
    pause.open();
    root.quiescent().await.unwrap();
    let log = events(world, "c");
    assert_eq!((world.watch.count("c", Call::Load), count(&log, "activation/start")), (1, 1));
    let served = log.iter().filter_map(|event| if let Body::TurnStart { message, .. } = &event.body { Some(message.clone()) } else { None });
    let sent = more.into_iter().map(Result::unwrap).chain([first]);
    assert_eq!(served.collect::<BTreeSet<_>>(), sent.collect::<BTreeSet<_>>());
    assert_eq!(count(&log, "turn/start"), 32);
    runtime.shutdown().await;
}

async fn an_outage_is_no_word_on_the_child(world: &World) {
    world.root("r");
    world.child("c", "r");
    let runtime = world.runtime().await;
    let root = runtime.resume(&sid("r")).await.unwrap();
    for (call, fault, expected) in [
        (Call::Header, Fault::Outage, "NOT_DELIVERED"),
        (Call::Rows, Fault::Outage, "NOT_DELIVERED"),
        (Call::Header, Fault::Corrupt, "NOT_RESUMABLE"),
        (Call::Rows, Fault::Corrupt, "NOT_RESUMABLE"),
    ] {
        world.watch.clear();
        world.watch.fail("c", call, None, fault);
        let error = root.agent().followup(&sid("c"), "x").await.unwrap_err();
        assert_eq!(error.code(), expected, "{call:?} {fault:?}: {error}");
        assert_eq!(runtime.host().send(&sid("c"), "x", None).await.unwrap_err().code(), expected);
        // Said of a store, not of a child that one should not try again.
        assert_eq!(error.to_string().contains("subagent"), expected == "NOT_RESUMABLE", "{error}");
    }
    world.watch.clear();
    assert_eq!(pending(world, "c"), []);
    assert_eq!(code(root.agent().followup(&sid("c"), "x").await), "accepted");
    runtime.shutdown().await;
}

async fn what_could_not_be_written_is_the_same_effect_when_it_is_sent_again(world: &World) {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let book = told.clone();
    let cast = World::builder().closure("boss", move |turn: Turn| {
        let book = book.clone();
        async move {
            if turn.message().is_none() {
                return Ok(Ended::Completed);
            }
            for _ in 0..3 {
                let sent = turn.send_message(&sid("c"), "the same").await;
                book.lock().unwrap().push(sent.map_or_else(|error| error.code().to_owned(), |id| id.to_string()));
            }
            Ok(Ended::Completed)
        }
    });
    world.root_of("r", "boss");
    world.child("c", "r");
    let runtime = world.start(cast).await;
    world.watch.fail("c", Call::Commit, 1, Fault::Outage);
    runtime.host().send(&sid("r"), "go", None).await.unwrap();
    runtime.host().quiescent(&sid("r")).await.unwrap();
    let told = told.lock().unwrap().clone();
    assert_eq!(told[0], "NOT_DELIVERED");
    assert_ne!(told[1], told[2], "and what is sent once more is another");
    let started: Vec<String> = events(world, "c")
        .iter()
        .filter_map(|event| if let Body::TurnStart { message, .. } = &event.body { Some(message.to_string()) } else { None })
        .collect();
    assert_eq!(started, told[1..]);
    // The refused one was nobody's: the effects are the first and the second of their kind.
    let turn =
        events(world, "r").iter().find_map(|event| if let Body::TurnStart { message, .. } = &event.body { Some(message.clone()) } else { None }).unwrap();
    let key = |k| EffectKey::new(&sid("r"), &turn, EffectKind::Send, "c", b"the same", k).message_id().to_string();
    assert_eq!(told[1..], [key(0), key(1)]);
    runtime.shutdown().await;
    sound(world);
}

async fn reports_of_one_text_that_wake_and_that_do_not_are_two_on_every_attempt(world: &World) {
    let gate = Gate::new();
    let cast = |gate: &Gate| {
        let at = gate.clone();
        Runtime::builder().closure("worker", |_: Turn| async { Ok(Ended::Completed) }).closure("reporter", move |turn: Turn| {
            let at = at.clone();
            async move {
                // The first attempt leaves a word for later; the second one wakes, and then does what the first has done.
                let all: &[bool] = if turn.attempt() == 1 { &[true] } else { &[false, true] };
                for quiet in all {
                    turn.report("half", *quiet).await?;
                }
                turn.record("place", "reported").await?;
                if turn.attempt() == 1 {
                    at.pass(&turn).await?;
                }
                Ok(Ended::Completed)
            }
        })
    };
    world.root("r");
    world.create(&Author::child("c", "r").described(&Descriptor { agent: "reporter".into(), ..descriptor("a child") }).sealed());
    let runtime = world.start(cast(&gate)).await;
    runtime.host().send(&sid("c"), "go", None).await.unwrap();
    gate.reached().await;
    world.close_after(runtime).await;
    let runtime = world.start(cast(&gate)).await;
    runtime.recover(None).await.unwrap();
    runtime.host().quiescent(&sid("r")).await.unwrap();
    let log = events(world, "c");
    assert_eq!(story(&log), ["turn 1", "go", "disposed", "turn 2", "completed"]);
    let told = events(world, "r").into_iter().filter_map(|event| if let Body::UserMessage(message) = event.body { Some(message) } else { None });
    let served = log.iter().find_map(|event| if let Body::TurnStart { message, .. } = &event.body { Some(message.clone()) } else { None }).unwrap();
    let key = |content: &[u8]| EffectKey::new(&sid("c"), &served, EffectKind::Report, "r", content, 0).message_id();
    let reports: BTreeSet<_> = told.filter(|message| message.source.kind() == "subagent-report").map(|message| message.id).collect();
    assert_eq!(reports, [key(b"half"), key(b"half\xff")].into());
    runtime.shutdown().await;
    sound(world);
}

async fn a_report_to_a_parent_that_is_not_there_says_so(world: &World) {
    let told: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let book = told.clone();
    let cast = Runtime::builder().closure("reporter", move |turn: Turn| {
        let book = book.clone();
        async move {
            let reported = turn.report("to nobody", false).await;
            book.lock().unwrap().push(code(reported));
            Ok(Ended::Completed)
        }
    });
    world.create(&Author::child("c", "gone").described(&Descriptor { agent: "reporter".into(), ..descriptor("a child") }).sealed());
    let runtime = world.start(cast).await;
    runtime.host().send(&sid("c"), "go", None).await.unwrap();
    runtime.host().quiescent(&sid("c")).await.unwrap();
    assert_eq!(*told.lock().unwrap(), ["PARENT_UNAVAILABLE"]);
    assert_eq!(count(&events(world, "c"), "effect/accepted"), 0);
    runtime.shutdown().await;
}
