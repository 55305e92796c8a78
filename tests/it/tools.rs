//! What a model sees of each tool, and what becomes of a call whatever the model writes and whatever the tool does.

use std::{fmt::Write as _, fs, path::Path};

use greenroom::{
    Runtime,
    model::ToolSpec,
    session::descriptor::Mode,
    tool::{ListAgentsTool, ReportTool, SendMessageTool, SubagentConfig, SubagentTool, Tool, ToolError, ToolMode, ToolOutput, Tools, function, run_call},
};
use serde_json::{Value, json};

/// Returns the tools of the runtime, each with what sets it apart where there is more than one of a name.
fn all() -> Vec<(&'static str, ToolSpec)> {
    let subagent = |config: SubagentConfig| SubagentTool::new(config).spec();
    let plain = SubagentConfig::default;
    vec![
        ("as it is by default: one-shot in the background", subagent(plain())),
        ("`mode`: continuable in the background", subagent(SubagentConfig { mode: Mode::Continuable, ..plain() })),
        ("`background`: never", subagent(SubagentConfig { background: false, ..plain() })),
        ("`provider`: `fork`", subagent(SubagentConfig { provider: "fork".into(), ..plain() })),
        ("", SendMessageTool::new().spec()),
        ("", ListAgentsTool::new().spec()),
        ("", ReportTool::new().spec()),
    ]
}

/// Returns the schema as text whose keys are in order, whatever the features of the build.
fn pretty(value: &Value) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let mut keys: Vec<_> = map.keys().collect();
                keys.sort();
                keys.into_iter().map(|key| (key.clone(), sorted(&map[key]))).collect::<serde_json::Map<_, _>>().into()
            }
            Value::Array(items) => items.iter().map(sorted).collect(),
            other => other.clone(),
        }
    }
    serde_json::to_string_pretty(&sorted(value)).unwrap()
}

/// Estimates the tokens of a tool in a request: a quarter of the bytes of its JSON, rounded up.
fn tokens(spec: &ToolSpec) -> usize {
    serde_json::to_string(spec).unwrap().len().div_ceil(4)
}

#[test]
fn each_tool_has_its_exact_parameters() {
    let mut shown: Vec<(String, Vec<String>)> = Vec::new();
    for (variant, spec) in all() {
        let (schema, name) = (pretty(&spec.schema), format!("{} {variant}", spec.name).trim().to_owned());
        match shown.iter_mut().find(|(known, _)| *known == schema) {
            Some((_, names)) => names.push(name),
            None => shown.push((schema, vec![name])),
        }
    }
    let shown: Vec<_> = shown.into_iter().map(|(schema, names)| format!("{}\n{schema}", names.join("\n"))).collect();
    insta::assert_snapshot!(shown.join("\n\n"), @r#"
    subagent as it is by default: one-shot in the background
    subagent `mode`: continuable in the background
    subagent `provider`: `fork`
    {
      "additionalProperties": false,
      "properties": {
        "description": {
          "description": "What the subagent is for, in 3 to 5 words. It becomes the durable label of the subagent.",
          "type": "string"
        },
        "prompt": {
          "description": "The whole task. It is the first message of the subagent.",
          "type": "string"
        },
        "run_in_background": {
          "description": "Whether to go on at once instead of waiting until the subagent is done.",
          "type": "boolean"
        }
      },
      "required": [
        "description",
        "prompt"
      ],
      "type": "object"
    }

    subagent `background`: never
    {
      "additionalProperties": false,
      "properties": {
        "description": {
          "description": "What the subagent is for, in 3 to 5 words. It becomes the durable label of the subagent.",
          "type": "string"
        },
        "prompt": {
          "description": "The whole task. It is the first message of the subagent.",
          "type": "string"
        }
      },
      "required": [
        "description",
        "prompt"
      ],
      "type": "object"
    }

    send_message
    {
      "additionalProperties": false,
      "properties": {
        "message": {
          "description": "What the subagent is to do next.",
          "type": "string"
        },
        "subagent_id": {
          "description": "The id of the subagent, as it was given when it was started or by a list.",
          "type": "string"
        }
      },
      "required": [
        "message",
        "subagent_id"
      ],
      "type": "object"
    }

    list_agents
    {
      "properties": {},
      "type": "object"
    }

    report
    {
      "additionalProperties": false,
      "properties": {
        "output": {
          "description": "What the agent that started you is to know.",
          "type": "string"
        }
      },
      "required": [
        "output"
      ],
      "type": "object"
    }
    "#);
}

#[test]
fn each_description_says_what_a_model_must_know() {
    for (variant, ToolSpec { name, description, .. }) in all() {
        let (says, never): (&[&str], &[&str]) = match name.as_str() {
            "subagent" => (&["returns its final message"], &["provider"]),
            "send_message" => (&["next turn", "waits for the turn that is under way", "No answer is returned", "was not delivered"], &["task"]),
            "list_agents" => (
                &[
                    "`send_message`",
                    "durable id",
                    "label",
                    "`running`",
                    "`complete`",
                    "another turn of the same conversation",
                    "promises no delivery",
                    "diagnostic",
                ],
                &[],
            ),
            "report" => (&["does not end your turn", "may have arrived"], &[]),
            other => panic!("{other}"),
        };
        assert!(says.iter().all(|fact| description.contains(fact)), "{name}: {description}");
        assert!(never.iter().all(|word| !description.to_lowercase().contains(word)), "{name}: {description}");
        assert_eq!(description.contains("`run_in_background`"), name == "subagent" && !variant.contains("never"), "{description}");
    }
}

/// Makes the part of the page that stands between its two marks.
fn section() -> String {
    let mut text = String::from("| tool | tokens |\n|---|---|\n");
    for (variant, spec) in all() {
        let variant = if variant.is_empty() { String::new() } else { format!(", {variant}") };
        writeln!(text, "| `{}`{variant} | {} |", spec.name, tokens(&spec)).unwrap();
    }
    for (variant, spec) in all() {
        let variant = if variant.is_empty() { String::new() } else { format!(", {variant}") };
        writeln!(text, "\n### `{}`{variant}\n\n> {}\n\n```json\n{}\n```", spec.name, spec.description, pretty(&spec.schema)).unwrap();
    }
    text
}

/// Set `GREENROOM_WRITE_DOCS` to write the page.
#[test]
fn the_page_of_the_documentation_shows_what_the_code_has() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tools.md");
    let page = fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- tools: made by tests/it/tools.rs -->\n", "<!-- end of tools -->");
    let (before, rest) = page.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let made = format!("{before}{begin}\n{}\n{end}{after}", section());
    if std::env::var_os("GREENROOM_WRITE_DOCS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), made, "run with GREENROOM_WRITE_DOCS=1 to write it");
    for code in ["UNKNOWN_TOOL", "INVALID_ARGS", "INVALID_TOOL_OUTPUT", "TOOL_PANICKED", "ABORTED", "TOOL_LOAD"] {
        assert!(made.contains(code), "{code}");
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// What to do.
    what: String,
    at: Option<Place>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Place {
    floor: u8,
}

fn tools(runtime: &Runtime) -> Tools {
    let tools = Tools::default();
    let does = function("does", "Does what is wanted.", |wanted: Wanted, caller| async move {
        match wanted.what.as_str() {
            "panic" => std::panic::resume_unwind(Box::new("torn".to_owned())),
            "flood" => Ok(ToolOutput::text("\u{1}".repeat(4 << 20))),
            "fail" => Err(ToolError::new("NO_PAPER", "none")),
            "nan" => ToolOutput::json(&std::collections::HashMap::from([(vec![1_u8], 1)])),
            "end" => Ok(ToolOutput::text("over").concluding()),
            _ => Ok(ToolOutput::text(format!("{} on {} for {}", wanted.what, wanted.at.map_or(0, |at| at.floor), caller.id))),
        }
    });
    tools.add(&runtime.host(), does).unwrap();
    tools
        .add(&runtime.host(), function("anything", "Takes anything.", |_: serde_json::Map<String, Value>, _| async { Ok("taken") }).exclusive().repeatable())
        .unwrap();
    tools
}

#[tokio::test]
async fn whatever_a_model_writes_and_a_tool_does_the_call_has_a_result() {
    let runtime = Runtime::builder().open("memory:").await.unwrap();
    let tools = tools(&runtime);
    let what = |what: &str| json!({ "what": what }).to_string();
    for (name, arguments, expected) in [
        ("does", r#"{"what": "knock", "at": {"floor": 3}}"#.to_owned(), "knock on 3 for c1"),
        ("does", r#"{"what": "knock", "at": null}"#.to_owned(), "knock on 0 for c1"),
        ("anything", String::new(), "taken"),
        ("anything", " \n".to_owned(), "taken"),
        ("does", String::new(), "INVALID_ARGS Error: invalid arguments: `/what` is missing"),
        ("does", "knock!".to_owned(), "INVALID_ARGS Error: invalid arguments: the whole must be object, not string"),
        ("does", "[]".to_owned(), "INVALID_ARGS Error: invalid arguments: the whole must be object, not array"),
        ("does", r#"{"what": "knock", "at": {"floor": 300}}"#.to_owned(), "INVALID_ARGS Error: invalid arguments: `/at/floor` must be at most 255"),
        ("does", r#"{"what": "knock", "who": 1}"#.to_owned(), "INVALID_ARGS Error: invalid arguments: `/who` is not known"),
        ("does", r#"{"what": "knock", "at": {"floor": 1, "x": 1}}"#.to_owned(), "INVALID_ARGS Error: invalid arguments: `/at/x` is not known"),
        ("does", what("panic"), "TOOL_PANICKED Error: the tool panicked: torn"),
        ("does", what("fail"), "NO_PAPER Error: none"),
        ("does", what("nan"), "INVALID_TOOL_OUTPUT Error: the tool gave no valid result: key must be a string"),
        ("does", what("flood"), "INVALID_TOOL_OUTPUT Error: the tool gave no valid result: it takes 25165826 bytes in the log, the most is 16777216"),
        ("Does", String::new(), "UNKNOWN_TOOL Error: there is no tool named \"Does\"; there are: does, anything"),
    ] {
        let told = match run_call(&tools, None, "c1", name, &arguments).await {
            Ok(output) => output.text,
            Err(error) => format!("{} {}", error.code(), error.text()),
        };
        assert_eq!(told, expected, "{name} {arguments}");
    }
    assert!(run_call(&tools, None, "c1", "does", &what("end")).await.unwrap().concludes_turn);
    // Deeper than JSON is read: it is a text then.
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(run_call(&tools, None, "c1", "does", &deep).await.unwrap_err().code(), "INVALID_ARGS");
    runtime.shutdown().await;
}

#[tokio::test]
async fn a_tool_says_how_it_may_be_called() {
    let runtime = Runtime::builder().open("memory:").await.unwrap();
    let tools = tools(&runtime);
    assert_eq!(["does", "anything", "nothing"].map(|name| tools.mode(None, name, "{}")), [ToolMode::Parallel, ToolMode::Exclusive, ToolMode::Parallel]);
    assert_eq!(["does", "anything"].map(|name| tools.get(name).unwrap().is_repeatable()), [false, true]);
    for name in ["subagent", "send_message", "list_agents", "report"] {
        let tool: &dyn Tool = match name {
            "subagent" => &SubagentTool::default(),
            "send_message" => &SendMessageTool::new(),
            "list_agents" => &ListAgentsTool::new(),
            _ => &ReportTool::new(),
        };
        assert_eq!((tool.spec().name.as_str(), tool.is_repeatable(), tool.mode(&json!({}))), (name, true, ToolMode::Parallel));
    }
    // What is no object of arguments is not loaded.
    let list = function("list", "Takes a list.", |_: Vec<u8>, _| async { Ok("taken") });
    assert_eq!(tools.add(&runtime.host(), list).unwrap_err().code(), "TOOL_LOAD");
    assert_eq!(tools.names(), ["does", "anything"]);
    runtime.shutdown().await;
}
