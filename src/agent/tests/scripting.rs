//! What the steps of a script do.

use greenroom_actors::Occurrence;
use greenroom_session::event::Body;

use super::World;

const ECHO: &str = r#"
[agents.echo]
behavior = "command"
answer = "text"
command = ["sh", "-c", 'echo "heard $GREENROOM_MESSAGE"']
"#;

#[tokio::test]
async fn the_rank_of_a_message_chooses_the_list() {
    let play = World::new().play("[agents.root]\nbehavior = 'script'\nturns = [[{ say = 'one' }], [{ say = 'two' }, { memo = 'm' }]]").await;
    let root = play.tell(&["a", "b", "c"]).await;
    assert_eq!(play.said(&root).await, ["one", "two", "done"]);
    assert_eq!(play.memos(&root).await, ["m"]);
}

#[tokio::test]
async fn notes_alone_run_no_list_and_say_nothing() {
    let agents = format!(
        "{ECHO}[agents.root]\nbehavior = 'script'\nturns = [[{{ delegate = {{ agent = 'echo', description = 'd', prompt = 'p' }} }}], [{{ say = 'two' }}]]"
    );
    let play = World::new().play(&agents).await;
    let root = play.tell(&["a", "b"]).await;
    assert_eq!(play.said(&root).await, ["two"]);
    assert!(play.ends(&root).await.len() >= 3, "the notes opened a turn");
}

#[tokio::test]
async fn every_step_is_a_step_and_a_for_each_is_one() {
    let world = World::new();
    world.write("a.txt", "");
    world.write("b.txt", "");
    let agents = "[agents.root]\nbehavior = 'script'\nturns = [[{ memo = 'x' }, { repeat = { times = 2, steps = [{ memo = 'y' }] } }, { for_each = { files = '*.txt', steps = [{ say = '{file}' }, { memo = 'z' }] } }]]";
    let play = world.play(agents).await;
    let root = play.tell(&["go"]).await;
    let events = play.events(&root).await;
    let steps: Vec<&str> = events
        .iter()
        .filter_map(|event| match &event.body {
            Body::StepStart { .. } => Some("start"),
            Body::StepEnd { cut: None, .. } => Some("end"),
            Body::Memo { key: Some(_), .. } => Some("record"),
            Body::Memo { text, .. } => Some(text),
            Body::AssistantMessage { .. } => Some("say"),
            _ => None,
        })
        .collect();
    assert_eq!(steps.join(" "), "start x end start y end start y end start record say z say z end");
    assert_eq!(play.said(&root).await, ["a.txt", "b.txt"]);
}

#[tokio::test]
async fn a_script_delegates_sends_awaits_and_reads_reports() {
    let agents = format!(
        r#"{ECHO}
[vars]
city = "Lyon"
[agents.root]
behavior = "script"
turns = [[
  {{ delegate = {{ agent = "echo", as = "r1", description = "second {{city}}", prompt = "to {{city}}" }} }},
  {{ delegate = {{ agent = "echo", description = "first", prompt = "x", params = {{ n = 7, deep = {{ name = "é" }} }} }} }},
  {{ await = "children" }},
  {{ list = true }},
  {{ send = {{ to = "r1", message = "more" }} }},
  {{ for_each = {{ children = "all", steps = [{{ memo = "{{label}} {{params.n}} {{params.deep.name}}" }}, {{ send = {{ to = "{{child}}", message = "again" }} }}] }} }},
  {{ await = "children" }},
  {{ say = "all:\n{{reports}}" }},
]]"#
    );
    let play = World::new().play(&agents).await;
    let root = play.tell(&["go"]).await;
    let table = "all:\nfirst         heard x         heard again\nsecond Lyon   heard to Lyon   heard more    heard again";
    assert_eq!(play.said(&root).await, [table]);
    let (first, second) = (play.child(&root, "first").await, play.child(&root, "second Lyon").await);
    let mut memos = play.memos(&root).await;
    let listing = memos.remove(0);
    assert!(listing.contains(&format!("{second} [complete] — second Lyon")) && listing.contains(&format!("{first} [complete] — first")), "{listing}");
    memos.sort();
    assert_eq!(memos, ["first 7 é", "second Lyon {params.n} {params.deep.name}"]);
}

#[tokio::test]
async fn a_delegate_that_waits_leaves_its_answer_as_a_memo() {
    let agents = format!(
        "{ECHO}[agents.root]\nbehavior = 'script'\nturns = [[{{ delegate = {{ agent = 'echo', description = 'd', prompt = 'p', background = false }} }}, {{ say = '{{reports}}' }}]]"
    );
    let play = World::new().play(&agents).await;
    let root = play.tell(&["go"]).await;
    assert_eq!(play.memos(&root).await, ["d: heard p"]);
    assert_eq!(play.said(&root).await, ["d   heard p"]);
}

#[tokio::test]
async fn a_refused_delegate_costs_a_round_within_a_for_each_and_the_turn_outside() {
    let world = World::new();
    world.write("a.txt", "");
    world.write("b.txt", "");
    let step = "{ delegate = { agent = 'root', description = 'child {file}', prompt = 'p' } }";
    let outside = step.replace("{file}", "x");
    let agents = format!(
        "[run]\nroot = 'root'\nmax_depth = 0\n[agents.root]\nbehavior = 'script'\nturns = [[{{ for_each = {{ files = '*.txt', steps = [{step}] }} }}, {{ say = '{{reports}}' }}], [{outside}]]"
    );
    let play = world.play(&agents).await;
    let root = play.tell(&["one", "two"]).await;
    assert_eq!(play.said(&root).await, ["child a.txt   failed: DEPTH_EXCEEDED\nchild b.txt   failed: DEPTH_EXCEEDED"]);
    assert_eq!(play.ends(&root).await, ["completed", "DEPTH_EXCEEDED: subagent depth 1 exceeds maxDepth 0"]);
}

#[tokio::test]
async fn a_failure_and_a_panic_end_their_turn_alone() {
    let agents = "[agents.root]\nbehavior = 'script'\nturns = [[{ fail = 'no' }], [{ fail = { code = 'NO_SOURCE', message = 'm' } }, { say = 'never' }], [{ panic = 'ouch' }], [{ say = 'well' }]]";
    let play = World::new().play(agents).await;
    let root = play.tell(&["a", "b", "c", "d"]).await;
    assert_eq!(play.ends(&root).await, ["SCRIPT_FAILED: no", "NO_SOURCE: m", "PANIC: ouch", "completed"]);
    assert_eq!(play.said(&root).await, ["well"]);
}

#[tokio::test]
async fn rows_of_failed_children_name_the_code() {
    let agents = "
[agents.bad]
behavior = 'command'
command = ['sh', '-c', 'exit 3']
[agents.root]
behavior = 'script'
turns = [[{ delegate = { agent = 'bad', description = 'd', prompt = 'p' } }, { await = 'children' }, { say = '{reports}' }]]";
    let play = World::new().play(agents).await;
    let root = play.tell(&["go"]).await;
    assert_eq!(play.said(&root).await, ["d   failed: COMMAND_FAILED"]);
}

#[tokio::test]
async fn an_interrupt_ends_a_sleep() {
    let play = World::new().play("[agents.root]\nbehavior = 'script'\nturns = [[{ sleep = '2h' }, { say = 'never' }], [{ say = 'next' }]]").await;
    let mut occurrences = play.runtime.subscribe();
    let root = play.runtime.root("root", "root").await.unwrap();
    root.send("a").await.unwrap();
    root.send("b").await.unwrap();
    while !matches!(occurrences.recv().await.unwrap(), Occurrence::TurnStarted { .. }) {}
    assert_eq!(play.runtime.interrupt(root.id(), std::time::Duration::from_secs(60)).await.unwrap(), 1);
    root.quiescent().await.unwrap();
    assert_eq!(play.ends(root.id()).await, ["aborted", "completed"]);
    assert_eq!(play.said(root.id()).await, ["next"]);
}

#[tokio::test]
async fn globs_of_a_folder_with_brackets_in_its_name_are_taken_by_the_name() {
    let world = World::new();
    std::fs::create_dir(world.dir.path().join("[x]*")).unwrap();
    world.write("[x]*/it's a.txt", "");
    let agents = "[vars]\ndir = { path = '[x]*' }\nkind = '*.txt'\n[agents.root]\nbehavior = 'script'\nturns = [[{ for_each = { dir = '{dir}', files = '{kind}', steps = [{ say = '{file}' }] } }, { for_each = { files = ['{dir}/*'], steps = [{ say = '{file}' }] } }]]";
    let play = world.play(agents).await;
    let root = play.tell(&["go"]).await;
    let absolute = world.dir.path().join("[x]*/it's a.txt");
    assert_eq!(play.said(&root).await, ["it's a.txt", absolute.to_str().unwrap()]);
}

#[tokio::test]
async fn a_folder_that_is_not_there_fails_the_turn() {
    let play = World::new().play("[agents.root]\nbehavior = 'script'\nturns = [[{ for_each = { files = 'nowhere/*', steps = [{ say = '{file}' }] } }]]").await;
    let root = play.tell(&["go"]).await;
    assert!(play.ends(&root).await[0].starts_with("FILES_UNREADABLE: "));
}
