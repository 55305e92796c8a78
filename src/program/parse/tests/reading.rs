//! What a right program reads as.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::{STORY, parse};
use crate::program::{AgentSpec, AnswerFormat, CommandAgent, Delegate, ModelAgent, Program, Provider, Run, ScriptAgent, Step, Template, Tool, Var};

#[test]
fn a_loaded_program_knows_its_folder_and_its_hash() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("p.toml");
    let text = "run = {root = \"a\"}\nagents = {a = {behavior = \"script\", turns = []}}\n";
    std::fs::write(&path, text).expect("written");
    let program = Program::load(&path).expect("valid");
    assert_eq!(program.base_dir, dir.path());
    assert_eq!(program.file_name, path.display().to_string());
    let parsed = Program::parse(text, &program.file_name, dir.path()).expect("valid");
    assert_eq!(parsed, program);
    assert_eq!(program.sha256.len(), 64);
}

fn t(text: &str) -> Template {
    Template::parse(text)
}

#[test]
fn a_right_program_reads_as_plain_data() {
    let program = parse(STORY).expect("valid");
    assert_eq!(
        program.run,
        Run {
            root: "editor".into(),
            label: Some(t("{city} story")),
            prompt: Some(t("Cover the launch in {city}.")),
            max_live: 8,
            max_depth: 0,
            inbox_limit: Some(10),
        }
    );
    assert_eq!(
        program.vars,
        BTreeMap::from([("city".into(), Var::Text("Lyon".into())), ("n".into(), Var::Text("-3".into())), ("dir".into(), Var::Path("/corpus".into())),])
    );
    assert_eq!(
        program.agents["reporter"],
        AgentSpec::Command(CommandAgent {
            command: vec![t("awk"), t("{print $1}"), t("{city}")],
            timeout: Duration::from_secs(30),
            env: BTreeMap::from([("LC_ALL".into(), t("C"))]),
            env_pass: vec!["TERM".into()],
            answer: AnswerFormat::Text,
        })
    );
    assert_eq!(
        program.agents["plain"],
        AgentSpec::Command(CommandAgent {
            command: vec![t("true")],
            timeout: Duration::from_secs(600),
            env: BTreeMap::new(),
            env_pass: Vec::new(),
            answer: AnswerFormat::Json,
        })
    );
    assert_eq!(
        program.agents["critic"],
        AgentSpec::Model(ModelAgent {
            model: "small".into(),
            base_url: Some("http://127.0.0.1:11434/v1".into()),
            api_key_env: Some("KEY".into()),
            persona: Some(t("You check {city}.")),
            tools: vec![Tool::Report, Tool::ListAgents],
            max_steps: Some(5),
        })
    );
}

#[test]
fn every_step_reads_as_plain_data() {
    let program = parse(STORY).expect("valid");
    let AgentSpec::Script(ScriptAgent { turns }) = &program.agents["editor"] else {
        panic!("a script");
    };
    let Step::Delegate(delegate) = &turns[0][0] else {
        panic!("a delegate");
    };
    let params = delegate.params.as_ref().expect("params");
    assert_eq!(params.render(&|_| Some("Nice".into())), json!({"n": 3, "deep": [{"at": "2020-01-01", "x": 1.5, "y": true, "s": "Nice"}]}));
    assert_eq!(
        *delegate,
        Delegate {
            agent: "reporter".into(),
            alias: Some(t("r1")),
            description: t("collect {city}"),
            prompt: t("Go."),
            background: false,
            provider: Provider::Fork,
            params: Some(params.clone()),
        }
    );
    assert_eq!(turns[0][1..], [Step::List, Step::Say(t("started {reports}"))]);
    assert_eq!(
        turns[1],
        [Step::Send { to: t("r1"), message: t("One more fact.") }, Step::Memo(t("m")), Step::Sleep(Duration::from_millis(1500)), Step::AwaitChildren,]
    );
    assert_eq!(
        turns[2],
        [
            Step::Report { text: t("done"), quiet: false },
            Step::Report { text: t("t"), quiet: true },
            Step::Fail { code: None, message: t("f") },
            Step::Fail { code: Some("NO_X1".into()), message: t("f") },
            Step::Panic(t("p")),
        ]
    );
    assert_eq!(
        turns[3],
        [
            Step::ForEachFile { dir: None, files: vec![t("{dir}/**/*.{txt,md}")], steps: vec![Step::Repeat { times: 0, steps: vec![Step::Say(t("{file}"))] }] },
            Step::ForEachFile { dir: Some(t("{dir}")), files: vec![t("a"), t("b")], steps: Vec::new() },
            Step::ForEachChild { steps: vec![Step::Send { to: t("{child}"), message: t("{label} {params.a.b}") }] },
        ]
    );
    assert_eq!(turns[4], []);
}

#[test]
fn steps_may_stand_in_steps_as_deep_as_toml_goes() {
    let deep = |levels| {
        let open = "{repeat = {times = 1, steps = [".repeat(levels);
        let close = "]}}".repeat(levels);
        format!("run = {{root = \"a\"}}\n[agents.a]\nbehavior = \"script\"\nturns = [[{open}{close}]]")
    };
    assert!(parse(&deep(25)).is_ok());
    assert!(parse(&deep(65)).is_err());
}
