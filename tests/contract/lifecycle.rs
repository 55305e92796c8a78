//! The pair of occurrences that tells of an epoch: one start, one end, and what the end says of the epoch's own work.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use greenroom::{Delegate, Occurrence, RuntimeBuilder, Turn, TurnEnd as Ended, TurnError};
use greenroom_session::{
    descriptor::Mode,
    event::{Body, EpochEnd, TurnEnd},
    id::SessionId,
    message::{Message, Source},
    store::{Accept, Op},
};
use tokio::sync::{Semaphore, broadcast::Receiver};

use crate::{
    pairs::Pairs,
    publish::{child, completed, events, listed, play, published, root, said, until},
    watched::{Call, Fault},
    world::{World, sid},
};

crate::on_every_store!(async
    two_epochs_are_two_pairs_and_each_end_tells_of_its_own_work,
    an_end_in_order_tells_how_the_work_ended_and_what_was_said_last,
    an_epoch_without_a_turn_is_completed_and_says_nothing,
    an_end_without_order_is_told_once_as_an_error_without_an_answer,
    an_epoch_that_another_has_followed_is_told_once_as_fenced,
    a_shutdown_ends_every_pair,
    what_a_host_plays_is_told_of_as_well,
    a_session_that_does_not_start_is_told_of_by_no_pair,
    whoever_does_not_listen_keeps_nobody_from_working,
);

/// Plays what the message says.
fn cast() -> RuntimeBuilder {
    World::builder().closure("actor", |turn: Turn| async move {
        let text = turn.text();
        for word in text.split(' ') {
            match word.split_once(':') {
                Some(("say", what)) => turn.say(what)?,
                _ if word == "max" => return Ok(Ended::MaxTokens),
                _ if word == "fail" => return Err(TurnError::new("NO_PAPER", "none")),
                _ if word == "panic" => std::panic::resume_unwind(Box::new("torn")),
                _ if word == "step" => turn.step().await?,
                _ if word == "hang" => turn.cancelled().cancelled().await,
                _ => {}
            }
        }
        Ok(Ended::Completed)
    })
}

/// Judges what was told against the logs, and returns it.
fn judged(world: &World, occurrences: &mut Receiver<Occurrence>) -> Pairs {
    let mut pairs = Pairs::default();
    assert!(pairs.hear(occurrences), "too much was told");
    assert_eq!(pairs.wrong(), Vec::<String>::new());
    for session in pairs.sessions() {
        assert_eq!(pairs.against(&session, &events(world, session.as_str())), Vec::<String>::new());
    }
    pairs
}

async fn settled(occurrences: &mut Receiver<Occurrence>, session: &SessionId) {
    until(occurrences, |occurrence| matches!(occurrence, Occurrence::Ended { session: ended, .. } if ended == session)).await;
}

async fn two_epochs_are_two_pairs_and_each_end_tells_of_its_own_work(world: &World) {
    let runtime = world.start(cast()).await;
    let (mut told, mut ends) = (runtime.subscribe(), runtime.subscribe());
    let desk = runtime.root("actor", "a desk").await.unwrap();
    let child = desk.agent().start_continuable(Delegate::new("actor", "a child", "say:one")).await.unwrap().child;
    settled(&mut ends, &child).await;
    let mut second = runtime.subscribe();
    desk.agent().followup(&child, "max say:unsaid").await.unwrap();
    settled(&mut ends, &child).await;
    let begun = loop {
        match second.recv().await.unwrap() {
            Occurrence::Activated { session, epoch, parent, provider, mode, resumed } if session == child => break (epoch, parent, provider, mode, resumed),
            _ => {}
        }
    };
    assert_eq!(begun, (2, Some(desk.id().clone()), Some("spawn".into()), Some(Mode::Continuable), true));
    let desk_id = desk.id().clone();
    drop(desk);
    settled(&mut ends, &desk_id).await;
    let pairs = judged(world, &mut told);
    let settled = EpochEnd::Settled;
    assert_eq!(pairs.ends(&child), [(1, settled, TurnEnd::Completed, Some("one")), (2, settled, TurnEnd::MaxTokens, None)]);
    runtime.shutdown().await;
}

async fn an_end_in_order_tells_how_the_work_ended_and_what_was_said_last(world: &World) {
    let runtime = world.start(cast()).await;
    let (mut told, mut ends) = (runtime.subscribe(), runtime.subscribe());
    let no_paper = || TurnEnd::error("NO_PAPER", "none");
    for (number, (messages, outcome, answer)) in [
        // The ceiling is told although the epoch settled well.
        (vec!["say:much max"], TurnEnd::MaxTokens, Some("much")),
        (vec!["say:this", "say:that"], TurnEnd::Completed, Some("that")),
        // A last message that says nothing leaves the one before.
        (vec!["say:this", "say:"], TurnEnd::Completed, Some("this")),
        (vec!["say:"], TurnEnd::Completed, None),
        (vec!["say:this fail"], no_paper(), Some("this")),
        (vec!["fail", "say:that"], TurnEnd::Completed, Some("that")),
        (vec!["say:torn panic"], TurnEnd::error("PANIC", "torn"), Some("torn")),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("r{number}");
        world.root_of(&id, "actor");
        // In the inbox before anybody looks, so that one epoch serves them all.
        for (which, text) in messages.iter().enumerate() {
            let message = Message::turn(format!("{id} {which}"), *text, Source::User, 1_000).unwrap();
            world.one(Op::Accept(Accept::new(sid(&id), message))).unwrap();
        }
        runtime.recover(Some(&sid(&id))).await.unwrap();
        settled(&mut ends, &sid(&id)).await;
        let mut heard = Pairs::default();
        assert!(heard.hear(&mut told));
        assert_eq!(heard.ends(&sid(&id)), [(1, EpochEnd::Settled, outcome, answer)], "{messages:?}");
        assert_eq!((heard.wrong(), heard.against(&sid(&id), &events(world, &id))), (vec![], vec![]), "{messages:?}");
    }
    runtime.shutdown().await;
}

async fn an_epoch_without_a_turn_is_completed_and_says_nothing(world: &World) {
    let runtime = world.start(cast()).await;
    let (mut told, mut ends) = (runtime.subscribe(), runtime.subscribe());
    let desk = runtime.root("actor", "a desk").await.unwrap();
    desk.send("say:earlier fail").await.unwrap();
    desk.quiescent().await.unwrap();
    let id = desk.id().clone();
    drop(desk);
    settled(&mut ends, &id).await;
    let again = runtime.resume(&id).await.unwrap();
    drop(again);
    settled(&mut ends, &id).await;
    let pairs = judged(world, &mut told);
    let first = (1, EpochEnd::Settled, TurnEnd::error("NO_PAPER", "none"), Some("earlier"));
    assert_eq!(pairs.ends(&id), [first, (2, EpochEnd::Settled, TurnEnd::Completed, None)]);
    runtime.shutdown().await;
}

async fn an_end_without_order_is_told_once_as_an_error_without_an_answer(world: &World) {
    let runtime = world.start(cast()).await;
    let (mut told, mut ends) = (runtime.subscribe(), runtime.subscribe());
    world.root_of("r", "actor");
    world.root_of("s", "actor");
    // The commit that opens the epoch goes well, the next does not: the turn's end, or the epoch's.
    let desk = runtime.resume(&sid("s")).await.unwrap();
    world.watch.fail("s", Call::Commit, 1, Fault::Outage);
    drop(desk);
    settled(&mut ends, &sid("s")).await;
    world.watch.fail("r", Call::Commit, 3, Fault::Outage);
    runtime.host().send(&sid("r"), "say:lost", None).await.unwrap();
    settled(&mut ends, &sid("r")).await;
    let host = runtime.host();
    for id in ["r", "s"] {
        host.quiescent(&sid(id)).await.unwrap();
    }
    runtime.shutdown().await;
    let pairs = judged(world, &mut told);
    for id in ["r", "s"] {
        let (_, reason, outcome, answer) = pairs.ends(&sid(id)).remove(0);
        assert_eq!((reason, outcome.error_code(), answer), (EpochEnd::Failed, Some("NOT_DELIVERED"), None), "{id}");
    }
    let (_, reason, outcome, answer) = pairs.ends(&sid("r")).pop().unwrap();
    assert_eq!((reason, outcome, answer), (EpochEnd::Settled, TurnEnd::Completed, Some("lost")), "the next epoch serves it");
}

async fn an_epoch_that_another_has_followed_is_told_once_as_fenced(world: &World) {
    let runtime = world.start(cast()).await;
    let (mut told, mut ends) = (runtime.subscribe(), runtime.subscribe());
    world.root_of("r", "actor");
    let desk = runtime.resume(&sid("r")).await.unwrap();
    World::activate(&*world.plain(), "r", false);
    drop(desk);
    settled(&mut ends, &sid("r")).await;
    let pairs = judged(world, &mut told);
    let ended = pairs.ends(&sid("r"));
    assert!(matches!(&*ended, [(1, EpochEnd::Fenced, outcome, None)] if outcome.error_code() == Some("FENCED")), "{ended:?}");
    runtime.shutdown().await;
}

async fn a_shutdown_ends_every_pair(world: &World) {
    let runtime = world.start(cast()).await;
    let mut told = runtime.subscribe();
    let mut turns = runtime.subscribe();
    let desk = runtime.root("actor", "a desk").await.unwrap();
    let below = desk.agent().start_continuable(Delegate::new("actor", "a child", "say:begun step hang")).await.unwrap().child;
    until(&mut turns, |occurrence| matches!(occurrence, Occurrence::TurnStarted { session, .. } if *session == below)).await;
    runtime.shutdown().await;
    let pairs = judged(world, &mut told);
    assert_eq!(pairs.ends(&below), [(1, EpochEnd::Disposed, TurnEnd::Disposed, Some("begun"))]);
    assert_eq!(pairs.ends(desk.id()), [(1, EpochEnd::Disposed, TurnEnd::Completed, None)]);
}

async fn what_a_host_plays_is_told_of_as_well(world: &World) {
    world.root("r");
    let runtime = world.runtime().await;
    let (mut told, mut begun) = (runtime.subscribe(), runtime.subscribe());
    let session = published(&runtime, child("c", "r")).await;
    until(&mut begun, |occurrence| {
        let Occurrence::Activated { session, epoch: 1, parent: Some(parent), provider: Some(provider), mode: Some(Mode::Continuable), resumed: false } =
            occurrence
        else {
            return false;
        };
        (session.as_str(), parent.as_str(), &**provider) == ("c", "r", "spawn")
    })
    .await;
    play(&session, "one").await;
    session.end().await.unwrap();
    // Cut off by its host, by a shutdown, by a failed write.
    let session = published(&runtime, child("c", "r")).await;
    play(&session, "two").await;
    session.begin_turn("three", None).await.unwrap();
    session.end().await.unwrap();
    let session = published(&runtime, child("c", "r")).await;
    session.flush().await.unwrap();
    world.watch.fail("c", Call::Commit, 1, Fault::Outage);
    drop(session.append(said(4, 0, "never")));
    assert!(session.flush().await.is_err() || session.end().await.is_err());
    drop(session);
    let desk = published(&runtime, root("desk")).await;
    play(&desk, "four").await;
    desk.begin_turn("five", None).await.unwrap();
    runtime.shutdown().await;
    let pairs = judged(world, &mut told);
    let aborted = TurnEnd::Aborted { cause: "host".into() };
    let ends = pairs.ends(&sid("c"));
    assert_eq!(ends[..2], [(1, EpochEnd::Disposed, TurnEnd::Completed, Some("re: one")), (2, EpochEnd::Disposed, aborted, Some("re: two"))]);
    assert_eq!(pairs.ends(&sid("desk")), [(1, EpochEnd::Disposed, TurnEnd::Disposed, Some("re: four"))]);
}

async fn a_session_that_does_not_start_is_told_of_by_no_pair(world: &World) {
    let runtime = world.start(cast()).await;
    let mut told = runtime.subscribe();
    world.root_of("unknown", "nobody");
    world.root_of("failing", "actor");
    world.root_of("published", "actor");
    for id in ["failing", "published"] {
        world.watch.fail(id, Call::Commit, 1, Fault::Outage);
    }
    assert_eq!(runtime.resume(&sid("unknown")).await.unwrap_err().code(), "AGENT_UNKNOWN");
    assert!(runtime.resume(&sid("failing")).await.is_err());
    let stored = greenroom::Publication::stored(sid("published"));
    assert!(runtime.publish_session(stored).await.is_err());
    let first = std::iter::from_fn(|| told.try_recv().ok());
    let first: Vec<_> = first.filter(|told| matches!(told, Occurrence::Activated { .. } | Occurrence::Ended { .. })).collect();
    // What failed for the disk's sake may have been looked at once more by now, and then it has lived.
    assert!(
        first.iter().all(|told| matches!(told, Occurrence::Activated { session, .. } | Occurrence::Ended { session, .. } if *session == sid("failing"))),
        "{first:?}"
    );
    assert!(listed(&runtime, "unknown").await.is_empty());
    runtime.shutdown().await;
}

async fn whoever_does_not_listen_keeps_nobody_from_working(world: &World) {
    let heard = Arc::new(AtomicUsize::new(0));
    let runtime = world.start(cast()).await;
    let deaf = runtime.subscribe();
    let mut fleeting = runtime.subscribe();
    // Whoever listens may fall over what it hears.
    let (falls, count, fallen) = (runtime.subscribe(), heard.clone(), Arc::new(Semaphore::new(0)));
    let (mut falls, gone) = (falls, fallen.clone());
    tokio::spawn(async move {
        drop(falls.recv().await);
        count.fetch_add(1, Ordering::SeqCst);
        gone.add_permits(1);
        std::panic::resume_unwind(Box::new("a listener that falls"));
    });
    let desk = runtime.root("actor", "a desk").await.unwrap();
    drop(fallen.acquire().await.unwrap());
    fleeting.recv().await.unwrap();
    drop(fleeting);
    for number in 0..20 {
        desk.send(format!("say:{number}")).await.unwrap();
    }
    desk.quiescent().await.unwrap();
    assert_eq!(runtime.last_answer(desk.id()).await.unwrap().as_deref(), Some("19"));
    assert_eq!(heard.load(Ordering::SeqCst), 1);
    assert!(deaf.len() > 40, "what nobody took lies where it is");
    runtime.shutdown().await;
    let stored = events(world, desk.id().as_str());
    assert_eq!(stored.iter().filter(|event| event.body == completed(7)).count(), 1);
    assert!(stored.iter().any(|event| matches!(event.body, Body::ActivationEnd { reason: EpochEnd::Disposed, .. })));
}
