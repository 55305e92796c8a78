//! A process is killed at every write of a family of runs, nested and with one slot for all, and the one that goes on is killed again: in the end everything was done once.

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use greenroom::{Delegate, RuntimeBuilder, Turn, TurnEnd as Ended, TurnError, actors::host::NewRoot};
use greenroom_session::{
    event::{Body, TurnEnd},
    id::SessionId,
    message::text_of,
    store::{Store, jsonl::JsonlStore, sqlite::SqliteStore},
};
use rustix::process::{Signal, getpid, kill_process};

use crate::{
    publish::{events, sound},
    watched::Watch,
    watched_store::WatchedStore,
    world::{World, mid, sid},
};

const STORE: &str = "GREENROOM_TEST_RUNS";
const MOMENT: &str = "GREENROOM_TEST_RUNS_MOMENT";

/// `chief` starts one run to hear of, one to have enough of, a reporter in the background, and another chief, until it goes no deeper.
fn cast() -> RuntimeBuilder {
    let reporter = |turn: Turn| async move {
        let said = turn.delegate_and_wait(Delegate::unlabelled("leaf", "say")).await?;
        turn.report(format!("heard {said}"), false).await?;
        Ok(Ended::Completed)
    };
    let leaf = |turn: Turn| async move {
        if turn.text() == "wait" {
            turn.cancelled().cancelled().await;
        }
        turn.say("leaf")?;
        Ok(Ended::Completed)
    };
    World::builder().max_live(1).closure("chief", lead).closure("reporter", reporter).closure("leaf", leaf)
}

async fn lead(turn: Turn) -> Result<Ended, TurnError> {
    let Ok(depth) = turn.text().parse::<u32>() else { return Ok(Ended::Completed) };
    let failed = |code: &'static str, what: String| TurnError::new(code, what);
    let agent = turn.agent();
    let heard = agent.start(Delegate::unlabelled("leaf", "say")).await?;
    let enough = agent.start(Delegate::unlabelled("leaf", "wait")).await?;
    turn.delegate(Delegate::new("reporter", "a reporter", "report")).await?;
    enough.dispose().await.map_err(|error| failed(error.code(), error.to_string()))?;
    let below = if depth > 0 { turn.delegate_and_wait(Delegate::unlabelled("chief", (depth - 1).to_string())).await? } else { "nobody".into() };
    let told = heard.result().await.map_err(|error| failed(error.code(), error.to_string()))?;
    turn.await_children().await?;
    turn.say(format!("{} and {below}", told.text))?;
    Ok(Ended::Completed)
}

/// The process that is killed: run by the tests below, and by nobody else.
#[tokio::test]
#[ignore = "the other process of other tests"]
async fn a_process_that_leads_runs_and_may_be_killed() {
    let (Ok(path), Ok(moment)) = (std::env::var(STORE), std::env::var(MOMENT)) else { return };
    let path = Path::new(&path);
    let store: Arc<dyn Store> = if path.is_dir() { Arc::new(JsonlStore::open(path).unwrap()) } else { Arc::new(SqliteStore::open_existing(path).unwrap()) };
    let watch = Watch::default();
    let left = AtomicUsize::new(moment.parse().unwrap());
    watch.around_commits(move || {
        if left.fetch_sub(1, Ordering::AcqRel) == 1 {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    });
    go_on(cast(), Arc::new(WatchedStore { store, watch })).await;
}

/// Goes on with whatever was left, until nothing is.
async fn go_on(cast: RuntimeBuilder, store: Arc<dyn Store>) {
    let runtime = cast.start(store).await.unwrap();
    let host = runtime.host();
    let root = host.root(NewRoot { id: Some(sid("r")), ..NewRoot::new("chief", "a desk") }).await.unwrap();
    host.send(root.id(), "1", Some(mid("go"))).await.unwrap();
    host.recover(None).await.unwrap();
    assert_eq!(root.quiescent().await.unwrap(), []);
    drop(root);
    runtime.shutdown().await;
}

fn is_killed_at(world: &World, moment: usize) -> bool {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "killed::a_process_that_leads_runs_and_may_be_killed", "--ignored", "--nocapture"]);
    let output = process.env(STORE, world.path()).env(MOMENT, moment.to_string()).output().unwrap();
    assert!(output.status.success() || output.status.signal() == Some(9), "{output:?}");
    output.status.signal().is_some()
}

/// What a session did: who plays it, how each message that it served ended, and what it heard from its children.
type Done = (String, Vec<String>, Vec<String>);

fn done(world: &World, id: &SessionId) -> Done {
    let (mut agent, mut ends, mut notes) = (String::new(), Vec::new(), Vec::new());
    let mut by_message = BTreeMap::new();
    let mut open = None;
    for event in events(world, id.as_str()) {
        match event.body {
            Body::RootOpened(root) => agent.clone_from(&root.agent),
            Body::Descriptor(data) => data["agent"].as_str().unwrap().clone_into(&mut agent),
            Body::TurnStart { message, .. } => open = Some(message),
            Body::UserMessage(message) if message.source.kind() == "subagent-report" => notes.push(text_of(&message.content)),
            Body::UserMessage(message) if message.source.kind() == "subagent-settled" => notes.push("settled".into()),
            Body::UserMessage(message) => drop(by_message.insert(message.id.clone(), text_of(&message.content))),
            Body::TurnEnd { reason, .. } if !matches!(reason, TurnEnd::Interrupted | TurnEnd::Disposed) => {
                let message = open.take().unwrap();
                ends.extend(by_message.get(&message).map(|text| format!("{text}: {}", reason.error_code().unwrap_or(reason.as_str()))));
            }
            _ => {}
        }
    }
    (agent, ends, notes)
}

/// Looks whether everything was done, and once.
fn everything_was_done_once(world: &World, when: &str) {
    let mut all = Vec::new();
    for id in world.reader().find("", 99).unwrap() {
        assert_eq!(world.reader().inbox(&id, 9).unwrap(), [], "{when}: {id} has something left");
        all.push(done(world, &id));
    }
    all.sort();
    let one =
        |agent: &str, end: &str, notes: &[&str]| (agent.to_owned(), vec![end.to_owned()], notes.iter().map(|note| (*note).to_owned()).collect::<Vec<_>>());
    let notes = ["heard leaf", "settled"];
    let mut expected = vec![one("chief", "1: completed", &notes), one("chief", "0: completed", &notes)];
    for _ in 0..2 {
        expected.extend([one("leaf", "say: completed", &[]), one("leaf", "say: completed", &[]), one("reporter", "report: completed", &[])]);
    }
    expected.sort();
    // What was disposed of may have been taken back before it had a turn.
    let enough: Vec<_> = all.extract_if(.., |(agent, ends, _)| agent == "leaf" && (ends.is_empty() || *ends == ["wait: aborted"])).collect();
    assert_eq!((all, enough.len()), (expected, 2), "{when}");
    assert_eq!(world.reader().folded(&sid("r")).unwrap().last_said().map(|said| text_of(&said.content)).as_deref(), Some("leaf and leaf and nobody"), "{when}");
}

async fn runs_that_are_cut_off_anywhere_are_done_once(kind: fn() -> World, stride: usize) {
    let mut killed = 0;
    for moment in (1..).step_by(stride) {
        let world = kind();
        drop(world.plain());
        world.close();
        let was_killed = is_killed_at(&world, moment);
        // The process that goes on does not get to the end either.
        let second = 1 + moment * 7 % 23;
        killed += usize::from(was_killed) + usize::from(was_killed && is_killed_at(&world, second));
        go_on(cast(), world.store()).await;
        everything_was_done_once(&world, &format!("killed at {moment} and {second}"));
        sound(&world);
        if !was_killed {
            break;
        }
    }
    assert!(killed > 10, "{killed}");
}

#[tokio::test]
async fn runs_that_are_cut_off_anywhere_are_done_once_in_a_database() {
    runs_that_are_cut_off_anywhere_are_done_once(World::sqlite, 5).await;
}

#[tokio::test]
async fn runs_that_are_cut_off_anywhere_are_done_once_in_a_folder() {
    runs_that_are_cut_off_anywhere_are_done_once(World::jsonl, 7).await;
}
