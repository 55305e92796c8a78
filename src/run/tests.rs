//! Tests of the engine over a store in memory.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use greenroom_session::{event::TurnEnd, id::SessionId, store::memory::MemoryStore};
use tempfile::TempDir;

use super::{News, Prompt, RunError, RunOptions, RunReport, run_over};
use crate::program::Program;

const STORY: &str = r#"
[run]
root = "editor"
prompt = "Cover {city}."
[vars]
city = "Lyon"
[agents.editor]
behavior = "script"
turns = [
  [{ delegate = { agent = "reporter", description = "r", prompt = "facts of {city}" } }, { await = "children" }, { say = "{reports}" }],
  [{ send = { to = "nobody", message = "m" } }],
]
[agents.reporter]
behavior = "command"
answer = "text"
command = ["sh", "-c", '[ -e hang ] && exec sleep 600; echo "$GREENROOM_MESSAGE"']
"#;

struct World {
    dir: TempDir,
    store: MemoryStore,
    options: RunOptions,
    news: Mutex<Vec<String>>,
}

impl World {
    fn new() -> Self {
        let options = RunOptions::new("memory:".parse().unwrap(), "/cwd");
        Self { dir: TempDir::new().unwrap(), store: MemoryStore::new(), options, news: Mutex::default() }
    }

    async fn run(&self, text: &str) -> Result<RunReport, RunError> {
        let program = Program::parse(text, "story.toml", self.dir.path()).unwrap_or_else(|error| panic!("{error}"));
        let observer = |news: News<'_>| match news {
            News::Opened { root, resumed } => self.news.lock().unwrap().push(format!("{root} {resumed}")),
            News::ProgramChanged { .. } => self.news.lock().unwrap().push("changed".into()),
            News::Ending { .. } | News::Happened { .. } => {}
        };
        run_over(&program, &self.options, Arc::new(self.store.clone()), &observer).await
    }

    async fn refused(&self, text: &str) -> &'static str {
        self.run(text).await.expect_err("refused").code()
    }

    fn set(&mut self, name: &str, value: &str) {
        self.options.sets = vec![(name.into(), value.into())];
    }
}

#[tokio::test]
async fn the_report_counts_this_run_alone() {
    let mut world = World::new();
    let report = world.run(STORY).await.unwrap();
    // The prompt, the child's question, its report and its notice.
    let expected = RunReport { messages: 4, turns: 2, children: 1, failed: 0, answer: Some("r   facts of Lyon".into()), ..report.clone() };
    assert_eq!((&report, report.exit_code()), (&expected, 0));
    let json = serde_json::to_value(&report).unwrap();
    let mut keys: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
    keys.sort();
    assert_eq!(keys, ["answer", "children", "failed", "messages", "root", "store", "turns", "wall_ms"]);

    world.options.root = Some(report.root.clone());
    let again = world.run(STORY).await.unwrap();
    assert_eq!((again.turns, again.messages, again.children, again.failed, again.exit_code()), (0, 0, 0, 0, 0));
    assert_eq!(again.answer, report.answer);

    world.options.prompt = Prompt::Text("more".into());
    let more = world.run(STORY).await.unwrap();
    assert_eq!((more.turns, more.messages, more.children, more.failed, more.exit_code()), (1, 1, 0, 1, 1));
    assert!(matches!(more.outcome, Some(TurnEnd::Error { code, .. }) if code == "NOT_RESUMABLE"));
    assert_eq!(*world.news.lock().unwrap(), [format!("{} false", report.root), format!("{} true", report.root), format!("{} true", report.root)]);
}

#[tokio::test]
async fn a_run_that_took_too_long_goes_on_later() {
    let mut world = World::new();
    std::fs::write(world.dir.path().join("hang"), "").unwrap();
    world.options.timeout = Some(Duration::from_millis(300));
    assert_eq!(world.refused(STORY).await, "TIMED_OUT");
    std::fs::remove_file(world.dir.path().join("hang")).unwrap();
    world.options.timeout = None;
    let root: SessionId = world.news.lock().unwrap()[0].split(' ').next().unwrap().parse().unwrap();
    world.options.root = Some(root);
    let report = world.run(STORY).await.unwrap();
    assert_eq!((report.answer.as_deref(), report.children, report.exit_code()), (Some("r   facts of Lyon"), 0, 0));
}

#[tokio::test]
async fn variables_stay_as_the_root_was_opened_with() {
    let mut world = World::new();
    world.set("town", "x");
    assert_eq!(world.refused(STORY).await, "PROGRAM_INVALID");
    world.set("city", "Nice");
    let report = world.run(STORY).await.unwrap();
    assert_eq!(report.answer.as_deref(), Some("r   facts of Nice"));
    world.options.root = Some(report.root);
    assert_eq!(world.run(STORY).await.unwrap().exit_code(), 0);
    world.options.sets.clear();
    assert_eq!(world.run(STORY).await.unwrap().exit_code(), 0);
    world.set("city", "Brest");
    assert_eq!(world.refused(STORY).await, "VARIABLE_FIXED");
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_before_anything_exists() {
    let mut world = World::new();
    let model = "run = { root = 'a', prompt = 'p' }\n[agents.a]\nbehavior = 'script'\nturns = [[{ delegate = { agent = 'm', description = 'd', prompt = 'p' } }]]\n[agents.m]\nbehavior = 'model'\nmodel = 'x'";
    assert_eq!(world.refused(model).await, "AGENT_UNAVAILABLE");
    let script = "run = { root = 'a' }\n[agents.a]\nbehavior = 'script'\nturns = [[{ say = 'x' }]]";
    assert_eq!(world.refused(script).await, "PROMPT_MISSING");
    let command = "run = { root = 'a', prompt = 'p' }\n[agents.a]\nbehavior = 'command'\ncommand = ['true']";
    world.options.seed = Some(1);
    assert_eq!(world.refused(command).await, "SEED_UNAVAILABLE");
    world.options.seed = None;
    world.options.root = Some("nobody".parse().unwrap());
    assert_eq!(world.refused(STORY).await, "SESSION_NOT_FOUND");
    assert_eq!(*world.news.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_child_is_no_root() {
    let mut world = World::new();
    let root = world.run(STORY).await.unwrap().root;
    let runtime = crate::Runtime::builder().start(Arc::new(world.store.clone())).await.unwrap();
    let child = runtime.list(Some(&root)).await.unwrap().entries[0].id().clone();
    runtime.shutdown().await;
    world.options.root = Some(child);
    assert_eq!(world.refused(STORY).await, "NOT_A_ROOT");
}

#[tokio::test]
async fn a_program_that_changed_is_used_and_one_without_the_roots_agent_is_not() {
    let mut world = World::new();
    world.options.root = Some(world.run(STORY).await.unwrap().root);
    let report = world.run(&format!("{STORY}# changed")).await.unwrap();
    assert_eq!((report.exit_code(), world.news.lock().unwrap().last().map(String::as_str)), (0, Some("changed")));
    assert_eq!(world.refused(&STORY.replace("editor", "author")).await, "AGENT_UNKNOWN");
}

#[tokio::test]
async fn a_child_whose_agent_is_gone_is_reported_as_stuck() {
    let mut world = World::new();
    std::fs::write(world.dir.path().join("hang"), "").unwrap();
    world.options.timeout = Some(Duration::from_millis(300));
    assert_eq!(world.refused(STORY).await, "TIMED_OUT");
    let root: SessionId = world.news.lock().unwrap()[0].split(' ').next().unwrap().parse().unwrap();
    world.options = RunOptions { root: Some(root), timeout: None, ..world.options };
    let report = world.run("run = { root = 'editor' }\nagents.editor = { behavior = 'script', turns = [[{ say = 'alone' }]] }").await.unwrap();
    assert_eq!((report.answer.as_deref(), report.outcome.clone(), report.exit_code()), (Some("alone"), Some(TurnEnd::Completed), 1));
    assert_eq!(report.stuck.iter().map(|stuck| stuck.code).collect::<Vec<_>>(), ["AGENT_UNKNOWN"]);
}

#[test]
fn the_review_example_has_no_mistakes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/review.toml");
    let program = Program::load(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(program.run.root, "reviewer");
}

#[tokio::test]
async fn the_review_measures_files_of_every_kind() {
    let mut world = World::new();
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/review.toml")).unwrap();
    for (name, bytes) in
        [("-rf", &b"one two two\nlonger line without an end"[..]), ("binary", b"a\0b\n"), ("empty", b""), ("it's $(touch \"x\") é", b"\xff\xfe the\r\nthe\r\n")]
    {
        std::fs::write(world.dir.path().join(name), bytes).unwrap();
    }
    let dir = world.dir.path().to_str().unwrap().to_owned();
    world.set("dir", &dir);
    let report = world.run(&text).await.unwrap();
    let rows = [
        "-rf                        2 lines       8 words   two (2)   longest line     2:   26 bytes",
        "binary                no text                                no text",
        "empty                      0 lines       0 words   no word   no line",
        "it's $(touch \"x\") é        2 lines       3 words   the (2)   longest line     1:    7 bytes",
    ];
    assert_eq!((report.answer, report.failed), (Some(rows.join("\n")), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_seed_is_refused_where_threads_could_break_its_promise() {
    let mut world = World::new();
    world.options.seed = Some(1);
    assert_eq!(world.refused(STORY).await, "SEED_UNAVAILABLE");
}
