//! Worlds in which one-shot runs are waited for and disposed of.

use std::sync::{Arc, atomic::Ordering};

use futures::future::join_all;

use super::cast::{config, dawdle, has_end, interrupt, look_for_leaks, send, settle_after_failures};
use crate::{
    Agent, Config, Delegate, Host, OneShotResult, OneShotRun, Turn, TurnEnd, TurnError,
    error::RunError,
    host::NewRoot,
    race::plan::roll,
    tests::{
        audit::audit,
        support::{Ledger, Witness, id, on_paused_time, play, quiet},
    },
};

/// `chief` has another chief do the same one level less deep, and waits for it in one of the ways or has enough of it.
fn with_chiefs(ledger: &Arc<Ledger>) -> Config {
    let mut config = config(ledger);
    let book = ledger.clone();
    play(&mut config, "chief", move |turn: Turn| command(turn, book.clone()));
    config
}

async fn command(turn: Turn, book: Arc<Ledger>) -> Result<TurnEnd, TurnError> {
    book.ran(&turn);
    dawdle().await;
    let depth: u32 = turn.text().parse().unwrap_or(0);
    if depth > 0 {
        let delegate = Delegate::new("chief", "below", (depth - 1).to_string());
        match roll(4) {
            0 => drop(turn.delegate_and_wait(delegate).await),
            way => {
                let run = turn.agent().start(delegate).await?;
                book.accepted_from(&turn, run.id(), run.message().clone());
                dawdle().await;
                match way {
                    1 => drop(run.dispose().await),
                    // The run goes on.
                    2 => drop(run),
                    _ => drop(run.result().await),
                }
            }
        }
    }
    turn.say(format!("{depth}"))?;
    Ok(TurnEnd::Completed)
}

/// Starts a run or two of every kind; what fails must be allowed to.
async fn start(agent: &Agent, name: &str, book: &Ledger, may_fail: bool) -> Vec<OneShotRun> {
    let mut runs = Vec::new();
    for number in 0..=roll(2) {
        dawdle().await;
        let delegate = match roll(3) {
            0 => Delegate::new("worker", "a worker", format!("{name} {number}")),
            1 => Delegate::new("boss", "a boss", format!("{} 1", 1 + roll(2))),
            _ => Delegate::new("chief", "a chief", (1 + roll(3)).to_string()),
        };
        match agent.start(delegate).await {
            Ok(run) => {
                book.accepted(&format!("{name} {number}"), run.id(), run.message().clone());
                runs.push(run);
            }
            Err(_) if may_fail => {}
            Err(error) => book.complain(format!("{name} could not start a run: {error}")),
        }
    }
    runs
}

async fn result(run: &OneShotRun) -> Result<OneShotResult, RunError> {
    for _ in 0..roll(60) {
        tokio::task::yield_now().await;
    }
    run.result().await
}

async fn dispose(host: &Host, store: &Witness, run: &OneShotRun, book: &Ledger, may_fail: bool) {
    for _ in 0..roll(80) {
        tokio::task::yield_now().await;
    }
    match run.dispose().await {
        Ok(()) => {
            let live = host.services().live.all().iter().map(|view| view.id().clone()).collect::<Vec<_>>();
            if live.contains(run.id()) || !has_end(&store.events(run.id()), run.message()) {
                book.complain(format!("{} was disposed of and goes on; live are {live:?}", run.id()));
            }
        }
        Err(_) if may_fail => {}
        Err(error) => book.complain(format!("{} could not be disposed of: {error}", run.id())),
    }
}

/// Everybody who asks for the result gets the same, whatever is done to the run meanwhile.
async fn follow(host: &Host, store: &Witness, run: OneShotRun, book: &Ledger, may_fail: bool) {
    let again = run.clone();
    let found = async {
        dawdle().await;
        result(&host.run_of(run.id()).await?).await
    };
    let ends = async {
        match roll(4) {
            0 => dispose(host, store, &run, book, may_fail).await,
            1 => drop(tokio::join!(dispose(host, store, &run, book, may_fail), dispose(host, store, &again, book, may_fail))),
            2 if !may_fail => interrupt(host, run.id(), book).await,
            _ => {}
        }
    };
    let (one, two, three, ()) = tokio::join!(result(&run), result(&again), found, ends);
    let told = [one, two, three, run.result().await].map(|told| told.map_err(|error| error.to_string()));
    if told.iter().any(|one| one.is_err() || *one != told[0]) {
        book.complain(format!("what is said of run {} differs: {told:?}", run.id()));
    }
    if !has_end(&store.events(run.id()), run.message()) {
        book.complain(format!("{} has a result and no end", run.id()));
    }
}

pub(super) fn dispose_against_turns(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let system = store.system(with_chiefs(ledger)).await;
        let host = system.host();
        let handle = host.root(NewRoot { id: Some(id("top")), ..NewRoot::new("worker", "top") }).await.unwrap();
        let runs = start(&handle.agent(), "run", ledger, false).await;
        join_all(runs.into_iter().map(|run| follow(&host, store, run, ledger, false))).await;
        quiet(&host).await;
        // What was reported without waking joins this turn.
        send(&host, "last", &[id("top")], 1, ledger, false).await;
        drop(handle);
        quiet(&host).await;
        look_for_leaks(&host, ledger);
    });
}

pub(super) fn runs_against_the_end_of_a_generation(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let system = store.system(with_chiefs(ledger)).await;
        let host = system.host();
        let handle = host.root(NewRoot { id: Some(id("top")), ..NewRoot::new("worker", "top") }).await.unwrap();
        let runs = start(&handle.agent(), "run", ledger, false).await;
        let death = async {
            for _ in 0..roll(150) {
                tokio::task::yield_now().await;
            }
            let services = host.services();
            if roll(2) == 0 { services.journal.actor().kill() } else { services.registry.kill() }
        };
        tokio::join!(join_all(runs.into_iter().map(|run| follow(&host, store, run, ledger, true))), death);
        settle_after_failures(&host).await;
        send(&host, "last", &[id("top")], 1, ledger, false).await;
        drop(handle);
        settle_after_failures(&host).await;
        host.recover(None).await.unwrap();
        settle_after_failures(&host).await;
        look_for_leaks(&host, ledger);
    });
}

pub(super) fn runs_against_shutdown(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    on_paused_time(async {
        let system = store.system(with_chiefs(ledger)).await;
        let host = system.host();
        let handle = host.root(NewRoot { id: Some(id("top")), ..NewRoot::new("worker", "top") }).await.unwrap();
        let runs = start(&handle.agent(), "run", ledger, false).await;
        let shutdown = async {
            for _ in 0..roll(150) {
                tokio::task::yield_now().await;
            }
            system.shutdown().await;
        };
        let ask = async |run: &OneShotRun| {
            if roll(3) == 0 {
                drop(run.dispose().await);
            }
            match result(run).await {
                Err(RunError::Draining) => None,
                told => Some(told.map_err(|error| error.to_string())),
            }
        };
        let (told, ()) = tokio::join!(join_all(runs.iter().map(ask)), shutdown);
        for complaint in audit(store, ledger, false) {
            ledger.complain(format!("after the shutdown: {complaint}"));
        }
        let next = store.reopen().system(with_chiefs(ledger)).await;
        let host = next.host();
        for (run, told) in runs.iter().zip(told) {
            let found = host.run_of(run.id()).await.unwrap();
            let now = found.result().await.map_err(|error| error.to_string());
            // What was told is what is so ever after; who was told nothing is told now.
            if now.is_err() || found.message() != run.message() || told.as_ref().is_some_and(|told| *told != now) {
                ledger.complain(format!("{} was {told:?} and is {now:?}", run.id()));
            }
        }
        host.recover(None).await.unwrap();
        send(&host, "last", &[id("top")], 1, ledger, false).await;
        quiet(&host).await;
        look_for_leaks(&host, ledger);
    });
}
