//! A world in which everybody does anything: agents that start, ask, tell, wait, cut off and give up as chance has it, whatever becomes of their runtime meanwhile.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use futures::future::{BoxFuture, join_all};
use greenroom_session::{
    event::{Body, TurnEnd as Ended},
    id::{MessageId, SessionId},
    message::{Message, Source},
};
use tokio_util::sync::CancellationToken;

use super::cast::{cancel, config, dawdle, look_for_leaks, say, send, settle_after_failures};
use crate::{
    Agent, Config, Delegate, Host, Turn, TurnEnd, TurnError,
    host::NewRoot,
    provider::{Capabilities, Prepare, PrepareError, Prepared, Provider},
    race::plan::{self, roll},
    tests::{
        audit::audit,
        support::{Ledger, PATIENCE, Witness, id, lock, on_paused_time, play},
    },
};

/// How deep children go.
const DEEPEST: u32 = 3;

/// Answers as it likes: not at all, with nothing, or with something said.
struct Moody;

impl Provider for Moody {
    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    fn prepare(&self, prepare: Prepare) -> BoxFuture<'_, Result<Prepared, PrepareError>> {
        Box::pin(async move {
            dawdle().await;
            match roll(4) {
                0 => Err(PrepareError::new("MOODY", "not today")),
                1 => Ok(Prepared::default()),
                _ => {
                    let rules = Message::turn("rules", format!("rule {}", roll(3)), Source::Plugin { name: "moody".into() }, prepare.parent.created_at);
                    let turn = [
                        Body::TurnStart { turn: 1, message: MessageId::new("rules").unwrap(), attempt: 1 },
                        Body::user_message(&rules.unwrap()),
                        Body::TurnEnd { turn: 1, reason: Ended::Completed },
                    ];
                    Ok(Prepared { inherited: turn.into_iter().zip(0..).map(|(body, seq)| body.at(seq, 1)).collect() })
                }
            }
        })
    }
}

/// What the agents of a world may still do to others, so that it comes to an end.
type Budget = Arc<AtomicU32>;

fn spend(budget: &Budget) -> bool {
    budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

fn with_anybody(ledger: &Arc<Ledger>, budget: &Budget) -> Config {
    let mut config = config(ledger);
    if roll(3) == 0 {
        (config.inbox_limit, config.note_limit) = (1 + u64::from(roll(2)), 1 + u64::from(roll(2)));
    }
    let (book, budget) = (ledger.clone(), budget.clone());
    play(&mut config, "anybody", move |turn: Turn| act(turn, book.clone(), budget.clone()));
    config
}

async fn act(turn: Turn, book: Arc<Ledger>, budget: Budget) -> Result<TurnEnd, TurnError> {
    book.ran(&turn);
    dawdle().await;
    let most = if turn.message().is_some() { 4 } else { 2 };
    let mut team = Vec::new();
    for _ in 0..roll(most + 1) {
        if !spend(&budget) {
            break;
        }
        one_of_many(&turn, &mut team, &book).await;
        dawdle().await;
    }
    match roll(24) {
        0 => std::panic::resume_unwind(Box::new("a behaviour that panics")),
        1 => Err(TurnError::new("UNLUCKY", "it failed")),
        2 => Ok(TurnEnd::MaxTokens),
        _ => Ok(TurnEnd::Completed),
    }
}

/// Notes an acceptance. In which order a retry hears of what was accepted before says nothing.
fn accepted(turn: &Turn, receiver: &SessionId, message: MessageId, book: &Ledger) {
    book.accepted(&format!("{} for {message}", turn.session()), receiver, message);
}

fn delegate(turn: &Turn) -> Delegate {
    let mut delegate = Delegate::new("anybody", "anybody", format!("do {}", roll(3)));
    delegate.provider = ["spawn", "fork", "moody"][usize::try_from(roll(3)).unwrap()].into();
    match roll(6) {
        0 => delegate.key = Some(format!("key {}", roll(2))),
        1 => delegate.child = Some(id(&format!("reserved-{}", roll(4)))),
        2 => delegate.alias = Some(format!("alias {} of {}", roll(2), turn.session())),
        _ => {}
    }
    delegate.max_depth(DEEPEST)
}

/// Returns the agent, perhaps as one who gives up soon.
fn agent(turn: &Turn) -> Agent {
    if roll(4) > 0 {
        return turn.agent();
    }
    let cancel = CancellationToken::new();
    let agent = turn.agent().cancellable(cancel.clone());
    tokio::spawn(async move {
        dawdle().await;
        cancel.cancel();
    });
    agent
}

/// Does something, perhaps not to its end.
async fn perhaps<T>(work: impl Future<Output = T>) -> Option<T> {
    if roll(4) > 0 {
        return Some(work.await);
    }
    tokio::select! {
        biased;
        done = work => Some(done),
        () = dawdle() => None,
    }
}

async fn one_of_many(turn: &Turn, team: &mut Vec<SessionId>, book: &Arc<Ledger>) {
    let any = |team: &[SessionId]| team.get(usize::try_from(roll(u32::try_from(team.len().max(1)).unwrap())).unwrap()).cloned();
    match roll(16) {
        0..=2 => {
            if let Some(Ok(delegated)) = perhaps(agent(turn).start_continuable(delegate(turn))).await {
                accepted(turn, &delegated.child, delegated.message.clone(), book);
                team.push(delegated.child);
            }
        }
        3 => drop(perhaps(turn.delegate_and_wait(delegate(turn))).await),
        4..=6 => {
            let Some(Ok(run)) = perhaps(agent(turn).start(delegate(turn))).await else { return };
            accepted(turn, run.id(), run.message().clone(), book);
            let (again, found) = (run.clone(), turn.agent().run_of(run.id()).await);
            match roll(5) {
                0 => drop(perhaps(async { tokio::join!(run.result(), run.dispose(), again.result()) }).await),
                1 => drop(perhaps(run.dispose()).await),
                2 => drop(run),
                3 => drop(join_all([run, again].iter().map(|run| perhaps(run.result()))).await),
                _ => {
                    if let Ok(found) = found {
                        drop(perhaps(found.result()).await);
                    }
                }
            }
        }
        7 | 8 => {
            if let (Some(parent), Some(Ok(report))) = (turn.parent(), perhaps(agent(turn).report(format!("report {}", roll(3)), roll(3) == 0)).await) {
                lock(&book.notes).push(report.clone());
                accepted(turn, parent, report, book);
            }
        }
        9 | 10 => {
            if roll(2) == 0
                && let Ok(children) = turn.list_agents().await
            {
                team.extend(children.iter().map(|child| child.id().clone()));
            }
            let Some(child) = any(team) else { return };
            if let Some(Ok(message)) = perhaps(agent(turn).followup(&child, format!("more {}", roll(3)))).await {
                accepted(turn, &child, message, book);
            }
        }
        11 => drop(turn.await_children().await),
        12 => drop(turn.step().await),
        13 => drop(turn.say(format!("word {}", roll(9)))),
        14 => {
            if let Some(child) = any(team) {
                drop(perhaps(turn.agent().drain_children(&[child])).await);
            }
        }
        _ => {
            if let Some(child) = any(team) {
                drop(perhaps(turn.agent().interrupt(&child, PATIENCE)).await);
            }
        }
    }
}

/// One life of a system, which may end in any way.
async fn live(host: &Host, book: &Arc<Ledger>, round: u32) {
    let tops = [id("one"), id("two")];
    let names = [format!("x {round}"), format!("y {round}")];
    let speak = async { tokio::join!(say(host, &names[0], &tops, 3, book, true), send(host, &names[1], &tops, 2, book, true)) };
    let meddle = async {
        for _ in 0..roll(3) {
            dawdle().await;
            dawdle().await;
            let live: Vec<_> = host.services().live.all().iter().map(|view| view.id().clone()).collect();
            if live.is_empty() {
                continue;
            }
            let some = &live[usize::try_from(roll(u32::try_from(live.len()).unwrap())).unwrap()];
            match roll(5) {
                0 => drop(host.interrupt(some, PATIENCE).await),
                1 => cancel(host, std::slice::from_ref(some), 1, book, true).await,
                2 => {
                    if let Ok(run) = host.run_of(some).await {
                        drop(run.dispose().await);
                    }
                }
                3 => {
                    if let Some(view) = host.services().live.get(some) {
                        view.cell().kill();
                    }
                }
                _ => {
                    let services = host.services();
                    match roll(4) {
                        0 => services.journal.actor().kill(),
                        1 => services.registry.kill(),
                        _ => {}
                    }
                }
            }
        }
    };
    let keep = async {
        if roll(2) == 0
            && let Ok(handle) = host.root(NewRoot { id: Some(id("one")), ..NewRoot::new("anybody", "one") }).await
        {
            for _ in 0..roll(3) {
                dawdle().await;
                if let Ok(run) = handle.agent().start(Delegate::new("anybody", "a run", format!("run {round}"))).await {
                    book.accepted(&format!("handle {}", run.id()), run.id(), run.message().clone());
                    drop(perhaps(run.result()).await);
                }
            }
            dawdle().await;
        }
    };
    tokio::join!(speak, meddle, keep);
    settle_after_failures(host).await;
}

pub(super) fn anything_against_anything(store: &Witness, ledger: &Arc<Ledger>) {
    ledger.lossy.store(true, Ordering::Relaxed);
    for name in ["one", "two"] {
        store.root(name, "anybody");
    }
    let budget = Budget::new(AtomicU32::new(10 + roll(40)));
    let mut store = store.clone();
    for round in 0..=roll(3) {
        let way = roll(3);
        on_paused_time(async {
            let ends = plan::crash_after((way == 0).then(|| u64::from(roll(600))));
            let life = async {
                let system = store.system(with_anybody(ledger, &budget)).await;
                let host = system.host();
                let _moody = host.register_provider("moody", Moody);
                host.recover(None).await.unwrap();
                let shutdown = async {
                    if way == 1 {
                        for _ in 0..roll(300) {
                            tokio::task::yield_now().await;
                        }
                        system.shutdown().await;
                    }
                };
                tokio::join!(live(&host, ledger, round), shutdown);
                system.shutdown().await;
            };
            tokio::select! {
                biased;
                () = ends.notified() => {}
                () = life => {}
            }
        });
        plan::crash_after(None);
        for complaint in audit(&store, ledger, false) {
            ledger.complain(format!("after life {round}: {complaint}"));
        }
        store = store.reopen();
    }
    on_paused_time(async {
        let system = store.system(with_anybody(ledger, &Budget::default())).await;
        let host = system.host();
        host.recover(None).await.unwrap();
        settle_after_failures(&host).await;
        send(&host, "last", &[id("one"), id("two")], 1, ledger, false).await;
        settle_after_failures(&host).await;
        look_for_leaks(&host, ledger);
        system.shutdown().await;
    });
}
