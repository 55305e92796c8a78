//! Who acts in a world: the behaviours of its sessions, and those who send and ask from outside.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::future::join_all;
use greenroom_session::{
    clock::{ManualClock, SeededIds},
    event::{Body, Event, TurnEnd as Ended},
    id::{MessageId, SessionId},
};

use crate::{
    Config, Delegate, Host, Turn, TurnEnd, TurnError,
    error::ControlError,
    host::{Cancel, Cause},
    race::plan::roll,
    registry::RegistryMessage,
    tests::support::{Ledger, PATIENCE, Told, Witness, lock, quiet},
};

/// Yields a few times, sometimes often.
pub(super) async fn dawdle() {
    let times = if roll(6) == 0 { roll(60) } else { roll(5) };
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

pub(super) fn config(ledger: &Arc<Ledger>) -> Config {
    let mut config = Config {
        max_live: 1 + usize::try_from(roll(4)).unwrap(),
        max_starting: 1 + usize::try_from(roll(3)).unwrap(),
        clock: Arc::new(ManualClock::at(1)),
        ids: Arc::new(SeededIds::new(u64::from(roll(u32::MAX)))),
        ..Config::default()
    };
    let book = ledger.clone();
    config.behavior("worker", move || {
        let book = book.clone();
        move |turn: Turn| work(turn, book.clone())
    });
    let book = ledger.clone();
    config.behavior("boss", move || {
        let book = book.clone();
        move |turn: Turn| lead(turn, book.clone())
    });
    config
}

/// Serves a message in one of many ways; now and then it fails.
async fn work(turn: Turn, book: Arc<Ledger>) -> Result<TurnEnd, TurnError> {
    book.ran(&turn);
    dawdle().await;
    if roll(2) == 0 {
        turn.step().await?;
        turn.say("begun")?;
        dawdle().await;
    }
    if roll(3) == 0 {
        turn.record("input", "seen").await?;
    }
    if let Some(parent) = turn.parent()
        && roll(2) == 0
    {
        let id = turn.report(format!("report of turn {}", turn.message_id()), roll(4) == 0).await?;
        book.accepted_from(&turn, parent, id);
        dawdle().await;
    }
    if roll(3) == 0 {
        turn.join_notes().await?;
        turn.step().await?;
    }
    match roll(24) {
        0 => std::panic::resume_unwind(Box::new("a behaviour that panics")),
        1 => Err(TurnError::new("UNLUCKY", "it failed")),
        _ => Ok(TurnEnd::Completed),
    }
}

/// Delegates as the message says (`children depth`), awaits, sends each child one more, and awaits again.
async fn lead(turn: Turn, book: Arc<Ledger>) -> Result<TurnEnd, TurnError> {
    book.ran(&turn);
    let words: Vec<u32> = turn.text().split(' ').filter_map(|word| word.parse().ok()).collect();
    let [children, depth] = words[..] else {
        // Notes opened this turn, or a plain message did.
        dawdle().await;
        if let Some(parent) = turn.parent() {
            let id = turn.report(format!("heard {}", turn.message_id()), false).await?;
            book.accepted_from(&turn, parent, id);
        }
        return Ok(TurnEnd::Completed);
    };
    let mut team = Vec::new();
    for child in 0..children {
        let (agent, prompt) = if depth > 1 { ("boss", format!("{children} {}", depth - 1)) } else { ("worker", "work".into()) };
        let delegated = turn.delegate(Delegate::new(agent, format!("child {child}"), prompt)).await?;
        book.accepted_from(&turn, &delegated.child, delegated.message.clone());
        team.push(delegated.child);
        dawdle().await;
    }
    wait(&turn, &team, &book).await?;
    for child in &team {
        let id = turn.send_message(child, "once more").await?;
        book.accepted_from(&turn, child, id);
        dawdle().await;
    }
    if roll(2) == 0 {
        wait(&turn, &team, &book).await?;
    }
    if let Some(parent) = turn.parent() {
        let id = turn.report("the team is done", false).await?;
        book.accepted_from(&turn, parent, id);
    }
    turn.say("done")?;
    Ok(TurnEnd::Completed)
}

/// Awaits, and looks whether every child was heard of.
async fn wait(turn: &Turn, team: &[SessionId], book: &Ledger) -> Result<(), TurnError> {
    turn.await_children().await?;
    let notes = turn.notes();
    for child in team {
        if !book.lossy.load(Ordering::Relaxed) && !notes.iter().any(|note| note.source.kind() == "subagent-settled" && note.source.session() == Some(child)) {
            book.complain(format!("{} awaited and did not hear that {child} has settled", turn.session()));
        }
    }
    Ok(())
}

/// Sends `count` messages to random receivers. What fails must be allowed to.
pub(super) async fn send(host: &Host, name: &str, receivers: &[SessionId], count: u32, book: &Ledger, may_fail: bool) {
    for number in 0..count {
        dawdle().await;
        let receiver = &receivers[usize::try_from(roll(u32::try_from(receivers.len()).unwrap())).unwrap()];
        match host.send(receiver, format!("{name} {number}"), None).await {
            Ok(id) => book.accepted(name, receiver, id),
            Err(_) if may_fail => {}
            Err(error) => book.complain(format!("{name} could not send: {error}")),
        }
    }
}

pub(super) async fn senders(host: &Host, names: &[&str], receivers: &[SessionId], count: u32, book: &Ledger, may_fail: bool) {
    join_all(names.iter().map(|name| send(host, name, receivers, count, book, may_fail))).await;
}

/// Interrupts a session. That no turn is under way is no failure, that nobody says so is.
pub(super) async fn interrupt(host: &Host, session: &SessionId, book: &Ledger) {
    match host.interrupt(session, PATIENCE).await {
        Ok(turn) => book.told(session, Told::Ended(turn)),
        Err(ControlError::NotRunning(_)) => {}
        Err(error) => book.complain(format!("{session} could not be interrupted: {error}")),
    }
}

/// Says `count` things to random receivers in one of the three ways.
pub(super) async fn say(host: &Host, name: &str, receivers: &[SessionId], count: u32, book: &Ledger, may_fail: bool) {
    for number in 0..count {
        dawdle().await;
        let receiver = &receivers[usize::try_from(roll(u32::try_from(receivers.len()).unwrap())).unwrap()];
        let text = format!("{name} {number}");
        let way = roll(4);
        let said = match way {
            0 => host.steer(receiver, text, None).await,
            1 => host.inject(receiver, text, None).await,
            _ => host.send(receiver, text, None).await,
        };
        match said {
            Ok(id) => {
                if way < 2 {
                    lock(&book.notes).push(id.clone());
                }
                book.accepted(name, receiver, id);
            }
            Err(_) if may_fail => {}
            Err(error) => book.complain(format!("{name} could not say {number}: {error}")),
        }
    }
}

/// Cancels random sessions in random ways.
pub(super) async fn cancel(host: &Host, sessions: &[SessionId], times: u32, book: &Ledger, may_fail: bool) {
    for _ in 0..times {
        for _ in 0..roll(40) {
            tokio::task::yield_now().await;
        }
        let session = &sessions[usize::try_from(roll(u32::try_from(sessions.len()).unwrap())).unwrap()];
        if let Err(error) = try_cancel(host, session, book).await
            && !may_fail
        {
            book.complain(format!("{session} could not be cancelled: {error}"));
        }
    }
}

/// Cancels a session in a random way.
pub(super) async fn cancel_now(host: &Host, session: &SessionId, book: &Ledger) {
    if let Err(error) = try_cancel(host, session, book).await {
        book.complain(format!("{session} could not be cancelled: {error}"));
    }
}

async fn try_cancel(host: &Host, session: &SessionId, book: &Ledger) -> Result<(), ControlError> {
    let how = Cancel { keep_inbox: roll(2) == 0, cause: if roll(2) == 0 { Cause::User } else { Cause::Host }, patience: PATIENCE };
    let before = book.messages_of(session);
    let cancelled = host.cancel(session, how).await?;
    if !how.keep_inbox {
        let events = host.services().store.reader().unwrap().events(session, 0, usize::MAX).unwrap();
        for message in before.iter().filter(|message| !has_end(&events, message)) {
            book.complain(format!("{message} of {session} goes on after {cancelled:?}"));
        }
    }
    if how.keep_inbox && !cancelled.withdrawn.is_empty() {
        book.complain(format!("{session} was to keep its queue: {cancelled:?}"));
    }
    if let Some(turn) = cancelled.turn {
        book.told(session, Told::Ended(turn));
    }
    for message in cancelled.withdrawn {
        book.told(session, Told::Withdrawn(message));
    }
    Ok(())
}

/// Sends one message and waits until its receiver is idle: by then the message has come to its end.
pub(super) async fn wait_idle(host: &Host, store: &Witness, name: &str, session: &SessionId, book: &Ledger, may_fail: bool) {
    dawdle().await;
    let Ok(message) = host.send(session, name, None).await else {
        if !may_fail {
            book.complain(format!("{name} could not send"));
        }
        return;
    };
    book.accepted(name, session, message.clone());
    match host.when_idle(session).await {
        Ok(()) => {
            if !has_end(&store.events(session), &message) {
                book.complain(format!("{session} was said to be idle before {message} had its end"));
            }
        }
        Err(_) if may_fail => {}
        Err(error) => book.complain(format!("{session} does not come to rest: {error}")),
    }
}

pub(super) fn has_end(events: &[Event], message: &MessageId) -> bool {
    let mut serves = false;
    events.iter().any(|event| match &event.body {
        Body::MessageWithdrawn { message: of, .. } => of == message,
        Body::TurnStart { message: of, .. } => {
            serves = of == message;
            false
        }
        Body::TurnEnd { reason, .. } => serves && !matches!(reason, Ended::Interrupted | Ended::Disposed),
        _ => false,
    })
}

/// Takes back one of the messages that a session was sent.
pub(super) async fn withdraw(host: &Host, session: &SessionId, book: &Ledger) {
    let messages = book.messages_of(session);
    let Some(message) = messages.get(usize::try_from(roll(u32::try_from(messages.len()).unwrap())).unwrap()) else { return };
    match host.withdraw(session, message, PATIENCE).await {
        Ok(()) => book.told(session, Told::Withdrawn(message.clone())),
        Err(ControlError::AlreadyStarted(_)) => book.told(session, Told::Started(message.clone())),
        Err(error) => book.complain(format!("{message} of {session} could not be taken back: {error}")),
    }
}

/// Asks random things of random sessions, one after the other.
pub(super) async fn ask(host: &Host, sessions: &[SessionId], times: u32, book: &Ledger) {
    for _ in 0..times {
        for _ in 0..roll(40) {
            tokio::task::yield_now().await;
        }
        let session = &sessions[usize::try_from(roll(u32::try_from(sessions.len()).unwrap())).unwrap()];
        if roll(3) == 0 { interrupt(host, session, book).await } else { withdraw(host, session, book).await }
    }
}

/// Tells a system what another process wrote to, as the poll of its store would; a memory store has none.
pub(super) async fn polls(host: &Host, sessions: &[SessionId]) {
    for number in 0_u32.. {
        // Time passes when nobody can go on; at first the polls come in between.
        if number < 20 {
            dawdle().await;
        } else {
            tokio::time::sleep(host.services().config.poll_interval).await;
        }
        drop(host.services().registry.send_message(RegistryMessage::Foreign { sessions: sessions.to_vec() }));
    }
}

/// When all is quiet and no handle keeps anybody, nothing is live and every permit is back.
pub(super) fn look_for_leaks(host: &Host, ledger: &Ledger) {
    let services = host.services();
    let found = (services.live.len(), services.slots.available_permits(), services.starting.available_permits());
    let expected = (0, services.config.max_live, services.config.max_starting);
    if found != expected {
        ledger.complain(format!("live sessions, free turn slots and free start permits are {found:?} and should be {expected:?}"));
    }
}

pub(super) fn family(store: &Witness) -> Vec<SessionId> {
    let root = store.root("root", "worker");
    ["a", "b"].map(|name| store.child(&root, name, "worker")).into()
}

/// A session whose epoch failed comes back after a pause, during which all seems quiet.
pub(super) async fn settle_after_failures(host: &Host) {
    for _ in 0..4 {
        quiet(host).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    quiet(host).await;
}
