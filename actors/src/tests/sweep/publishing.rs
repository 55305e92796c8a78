//! Worlds in which hosts play sessions that others would have run.

use std::sync::{Arc, atomic::Ordering};

use futures::future::join_all;
use greenroom_session::{
    event::{Body, TurnEnd},
    id::{MessageId, SessionId},
};

use super::cast::{config, dawdle, family, look_for_leaks, send, senders, settle_after_failures};
use crate::{
    Host, Publication, PublishedSession,
    race::plan::roll,
    tests::{
        audit::audit,
        support::{Ledger, Witness, lock, on_paused_time, quiet},
    },
};

/// Publishes random sessions, one after the other, plays them, and lets go of them in one way or another.
async fn host_plays(host: &Host, name: &str, sessions: &[SessionId], times: u32, book: &Ledger, may_fail: bool) {
    for number in 0..times {
        for _ in 0..roll(30) {
            tokio::task::yield_now().await;
        }
        let session = &sessions[usize::try_from(roll(u32::try_from(sessions.len()).unwrap())).unwrap()];
        match host.publish_session(Publication::stored(session.clone())).await {
            Ok(published) => {
                let stale = play(host, published, &format!("{name} {number}"), book, may_fail).await;
                // Let go of at any later time, it ends nothing of what came after it.
                dawdle().await;
                drop(stale);
            }
            Err(error) if error.code() == "SESSION_LIVE" || may_fail => {}
            Err(error) => book.complain(format!("{name} could not publish {session}: {error}")),
        }
    }
}

/// Plays a turn or two; returns the handle of what has ended, or drops it in the middle.
async fn play(host: &Host, published: PublishedSession, name: &str, book: &Ledger, may_fail: bool) -> Option<PublishedSession> {
    let fail = |what: &str, error: String| {
        if !may_fail {
            book.complain(format!("{name} could not {what} {}: {error}", published.id()));
        }
    };
    if !may_fail && host.services().live.get(published.id()).is_none_or(|view| !view.is_published() || view.epoch != published.epoch()) {
        book.complain(format!("{} is published and the table says otherwise", published.id()));
    }
    for turn in 0..=roll(2) {
        dawdle().await;
        let message = MessageId::new(format!("{name} {turn}")).unwrap();
        // What an earlier epoch was cut off in comes first.
        let cut_off = published.head().ok().and_then(|head| head.retry).map(|retry| retry.message);
        let message = cut_off.unwrap_or(message);
        let begun = match published.begin_turn("played", Some(message.clone())).await {
            Ok(begun) => begun,
            Err(error) => {
                fail("begin a turn in", error.to_string());
                return None;
            }
        };
        let Body::TurnStart { turn, attempt, .. } = begun.body else { return None };
        if attempt == 1 {
            book.accepted(name, published.id(), message.clone());
        }
        lock(&book.runs).push((published.id().clone(), turn, message, attempt));
        for body in [Body::StepStart { turn, step: 1 }, Body::StepEnd { turn, step: 1, cut: None }, Body::TurnEnd { turn, reason: TurnEnd::Completed }] {
            if roll(8) == 0 {
                // Dropped in the middle of a turn.
                return None;
            }
            if let Err(error) = published.append(body) {
                fail("append to", error.to_string());
                return None;
            }
            if roll(4) == 0
                && let Err(error) = published.flush().await
            {
                fail("flush", error.to_string());
            }
        }
    }
    match published.end().await {
        Ok(()) => {
            let services = host.services();
            // The table of a generation that has died is nobody's: its lists have died with it.
            let is_kept = services.registry.get_status() == ractor::ActorStatus::Running;
            if is_kept && services.live.get(published.id()).is_some_and(|view| view.epoch == published.epoch()) {
                book.complain(format!("{} has ended and stands in the table", published.id()));
            }
        }
        Err(error) => fail("end", error.to_string()),
    }
    for error in [published.append(Body::StepStart { turn: 1, step: 1 }).err(), published.flush().await.err()] {
        match error.map(|error| error.code()) {
            Some("SESSION_NOT_LIVE") => {}
            Some(_) if may_fail => {}
            other => book.complain(format!("{} has ended and takes what comes late: {other:?}", published.id())),
        }
    }
    Some(published)
}

/// Forks random sessions as they stand, whoever plays them.
async fn forks(host: &Host, store: &Witness, sessions: &[SessionId], times: u32, book: &Ledger) {
    for _ in 0..times {
        for _ in 0..roll(40) {
            tokio::task::yield_now().await;
        }
        let session = &sessions[usize::try_from(roll(u32::try_from(sessions.len()).unwrap())).unwrap()];
        match host.fork(session, None, None).await {
            Ok(fork) => {
                let (source, copy) = (store.events(session), store.events(&fork.id));
                let inherited = usize::try_from(fork.seed_length).unwrap();
                if copy[..inherited] != source[..inherited] || copy.len() != inherited + 1 || copy[inherited].body != (Body::EndSeed {}) {
                    book.complain(format!("{} is no fork of {session}", fork.id));
                }
            }
            Err(error) if error.code() == "OPEN_TURN" => {}
            Err(error) => book.complain(format!("{session} could not be forked: {error}")),
        }
    }
}

async fn players(host: &Host, names: &[&str], sessions: &[SessionId], book: &Ledger, may_fail: bool) {
    join_all(names.iter().map(|name| host_plays(host, name, sessions, 3, book, may_fail))).await;
}

pub(super) fn publish_against_delivery(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.played.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        // A session that its host plays refuses what this process sends it.
        tokio::join!(
            senders(&host, &["x", "y"], &receivers, 3, ledger, true),
            players(&host, &["one", "two"], &receivers, ledger, false),
            forks(&host, store, &receivers, 3, ledger)
        );
        quiet(&host).await;
        send(&host, "last", &receivers, 1, ledger, true).await;
        settle_after_failures(&host).await;
        look_for_leaks(&host, ledger);
    });
}

pub(super) fn publish_against_shutdown(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.played.store(true, Ordering::Relaxed);
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let shutdown = async {
            for _ in 0..roll(120) {
                tokio::task::yield_now().await;
            }
            system.shutdown().await;
        };
        tokio::join!(senders(&host, &["x"], &receivers, 2, ledger, true), players(&host, &["one", "two"], &receivers, ledger, true), shutdown);
        for complaint in audit(store, ledger, false) {
            ledger.complain(format!("after the shutdown: {complaint}"));
        }
        let mut reader = greenroom_session::store::Store::reader(store).unwrap();
        for lease in reader.leases(None).unwrap() {
            ledger.complain(format!("{} is held after a shutdown", lease.session));
        }
        let next = store.reopen().system(config(ledger)).await;
        let host = next.host();
        host.recover(None).await.unwrap();
        send(&host, "last", &receivers, 1, ledger, false).await;
        quiet(&host).await;
    });
}

pub(super) fn publish_against_the_end_of_a_generation(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.played.store(true, Ordering::Relaxed);
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let receivers = family(store);
        let system = store.system(config(ledger)).await;
        let host = system.host();
        let death = async {
            for _ in 0..roll(120) {
                tokio::task::yield_now().await;
            }
            let services = host.services();
            if roll(2) == 0 { services.journal.actor().kill() } else { services.registry.kill() }
        };
        tokio::join!(senders(&host, &["x"], &receivers, 2, ledger, true), players(&host, &["one", "two"], &receivers, ledger, true), death);
        settle_after_failures(&host).await;
        // Whoever looks finds what was cut off; nobody holds anything.
        for view in host.services().live.all() {
            ledger.complain(format!("{} is live and nobody plays it", view.id()));
        }
        let mut reader = greenroom_session::store::Store::reader(store).unwrap();
        for lease in reader.leases(None).unwrap() {
            ledger.complain(format!("{} is held and nobody plays it", lease.session));
        }
        if !host.services().played.is_empty() {
            ledger.complain("what nobody plays counts as published");
        }
        host_plays(&host, "again", &receivers, 3, ledger, false).await;
        // What was dropped ends in the background.
        settle_after_failures(&host).await;
        host.recover(None).await.unwrap();
        send(&host, "last", &receivers, 1, ledger, false).await;
        settle_after_failures(&host).await;
        host.recover(None).await.unwrap();
        settle_after_failures(&host).await;
        look_for_leaks(&host, ledger);
    });
}
