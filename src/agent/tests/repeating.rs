//! What a turn does not do twice when it runs again after a crash.

use std::sync::Arc;

use greenroom_actors::{Occurrence, Turn, TurnEnd};
use greenroom_session::{id::SessionId, store::Store as _};

use super::World;
use crate::runtime::Runtime;

const REVIEW: &str = r#"
[agents.measure]
behavior = "command"
answer = "text"
env = { FILE = "{params.file}" }
command = ["sh", "-c", '''
echo "$FILE $GREENROOM_ATTEMPT" >> calls
[ "$GREENROOM_ATTEMPT" = 1 ] && [ -e hang ] && exec sleep 600
echo "$FILE: $GREENROOM_MESSAGE"
''']
[agents.root]
behavior = "script"
turns = [[
  { say = "begin" },
  { for_each = { files = "*.txt", steps = [{ delegate = { agent = "measure", description = "{file}", prompt = "size", params = { file = "{file}" } } }] } },
  { await = "children" },
  { for_each = { children = "all", steps = [{ send = { to = "{child}", message = "line" } }] } },
  { await = "children" },
  { say = "{reports}" },
]]"#;

#[test]
fn a_review_that_is_cut_off_starts_no_child_twice_and_keeps_its_files() {
    let world = World::new();
    for name in ["a.txt", "b.txt", "hang"] {
        world.write(name, "");
    }
    let calls = world.dir.path().join("calls");
    let root = world.crash(REVIEW, None, |_| calls.exists() && world.read("calls").lines().count() == 2);
    std::fs::remove_file(world.dir.path().join("hang")).unwrap();
    world.write("c.txt", "came later");

    let tokio = tokio::runtime::Runtime::new().unwrap();
    tokio.block_on(async {
        let play = world.play(REVIEW).await;
        play.go_on(&root).await;
        assert_eq!(play.said(&root).await, ["begin", "a.txt   a.txt: size   a.txt: line\nb.txt   b.txt: size   b.txt: line"]);
        assert_eq!(play.children(&root).await.len(), 2);
        let child = play.child(&root, "a.txt").await;
        assert_eq!(play.ends(&child).await, ["interrupted", "completed", "completed"]);
        play.runtime.shutdown().await;
    });
    let mut calls: Vec<_> = world.read("calls").lines().map(str::to_owned).collect();
    calls.sort();
    assert_eq!(calls, ["a.txt 1", "a.txt 1", "a.txt 2", "b.txt 1", "b.txt 1", "b.txt 2"]);
}

#[tokio::test]
async fn a_shutdown_in_good_order_is_no_end_for_a_turn_that_waits() {
    let world = World::new();
    for name in ["a.txt", "hang"] {
        world.write(name, "");
    }
    let play = world.play(REVIEW).await;
    let root = play.runtime.root("root", "root").await.unwrap();
    root.send("go").await.unwrap();
    while !world.dir.path().join("calls").exists() {
        tokio::task::yield_now().await;
    }
    play.runtime.shutdown().await;
    std::fs::remove_file(world.dir.path().join("hang")).unwrap();
    let root = root.id().clone();
    drop(play);

    let play = world.play(REVIEW).await;
    assert_eq!(play.ends(&root).await, ["disposed"]);
    play.go_on(&root).await;
    assert_eq!(play.said(&root).await, ["begin", "a.txt   a.txt: size   a.txt: line"]);
    assert_eq!(play.ends(&root).await[..2], ["disposed", "completed"]);
}

#[test]
fn a_recorded_answer_is_replayed_and_the_command_not_run() {
    let world = World::new();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let root = tokio.block_on(async {
        let (recorded, wait) = tokio::sync::oneshot::channel();
        let recorded = Arc::new(std::sync::Mutex::new(Some(recorded)));
        let first = Runtime::builder()
            .closure("root", move |turn: Turn| {
                let recorded = recorded.clone();
                async move {
                    turn.step().await?;
                    turn.record_answer("from before\n").await?;
                    recorded.lock().unwrap().take().unwrap().send(()).unwrap();
                    std::future::pending::<()>().await;
                    Ok(TurnEnd::Completed)
                }
            })
            .start(Arc::new(world.store.clone()))
            .await
            .unwrap();
        let root = first.root("root", "root").await.unwrap();
        root.send("go").await.unwrap();
        wait.await.unwrap();
        let id = root.id().clone();
        std::mem::forget((root, first));
        id
    });
    tokio.shutdown_background();

    let tokio = tokio::runtime::Runtime::new().unwrap();
    tokio.block_on(async {
        let play = world.play("[agents.root]\nbehavior = 'command'\nanswer = 'text'\ncommand = ['false']").await;
        play.go_on(&root).await;
        assert_eq!(play.said(&root).await, ["from before"]);
        assert_eq!(play.ends(&root).await, ["interrupted", "completed"]);
    });
}

#[test]
fn a_poison_message_stops_after_three_attempts_and_the_queue_goes_on() {
    let world = World::new();
    let poison = "[agents.root]\nbehavior = 'command'\nanswer = 'text'\ncommand = ['sh', '-c', '[ $GREENROOM_MESSAGE = go ] && exec sleep 600; echo fine']";
    let started = |occurrence: Option<&Occurrence>| matches!(occurrence, Some(Occurrence::TurnStarted { .. }));
    let root = world.crash(poison, None, started);
    world.crash(poison, Some(&root), started);
    world.crash(poison, Some(&root), started);

    let tokio = tokio::runtime::Runtime::new().unwrap();
    tokio.block_on(async {
        let play = world.play(poison).await;
        let handle = play.runtime.resume(&root).await.unwrap();
        handle.send("next").await.unwrap();
        handle.quiescent().await.unwrap();
        let ends = play.ends(&root).await;
        assert_eq!(ends.len(), 4, "{ends:?}");
        assert_eq!(ends[..2], ["interrupted", "interrupted"]);
        assert!(ends[2].starts_with("ATTEMPTS_EXHAUSTED") && ends[3] == "completed", "{ends:?}");
        assert_eq!(play.said(&root).await, ["fine"]);
    });
}

#[test]
fn what_an_attempt_has_said_is_not_said_again() {
    let world = World::new();
    let agents = "[agents.root]\nbehavior = 'script'\nturns = [[{ say = 'one' }, { say = 'two' }, { await = 'children' }, { delegate = { agent = 'slow', description = 'd', prompt = 'p', background = false } }, { say = 'three' }]]
[agents.slow]
behavior = 'command'
answer = 'text'
command = ['sh', '-c', '[ $GREENROOM_ATTEMPT = 1 ] && exec sleep 600; echo fine']";
    let root = world.crash(agents, None, |occurrence| matches!(occurrence, Some(Occurrence::TurnStarted { session, .. }) if is_child(&world, session)));
    let tokio = tokio::runtime::Runtime::new().unwrap();
    tokio.block_on(async {
        let play = world.play(agents).await;
        play.go_on(&root).await;
        assert_eq!(play.said(&root).await, ["one", "two", "three"]);
        assert_eq!(play.memos(&root).await, ["d: fine"]);
    });
}

fn is_child(world: &World, session: &SessionId) -> bool {
    world.store.reader().unwrap().header(session).unwrap().unwrap().parent.is_some()
}
