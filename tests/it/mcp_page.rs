//! The page of the MCP server says what the server says, and its configuration works to the letter.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::{Value, json};

use crate::{cli::Desk, mcp_client::Client};

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/mcp.md")).unwrap()
}

/// A block of the page, by the name that stands beside its language.
fn block(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!(" {name}\n")).unwrap_or_else(|| panic!("{name}"));
    rest.split_once("```").unwrap().0.to_owned()
}

/// The example of the page, and the words that each of its forms starts the server with, without the program's own name.
fn example(page: &str) -> (Desk, Vec<String>) {
    let desk = Desk::new();
    desk.write("agents.toml", &block(page, "agents.toml"));
    let json: Value = serde_json::from_str(&block(page, ".mcp.json")).unwrap();
    let toml: toml::Table = block(page, "config.toml").parse().unwrap();
    let json = &json["mcpServers"]["greenroom"];
    let toml: Value = serde_json::to_value(&toml["mcp_servers"]["greenroom"]).unwrap();
    assert_eq!((&json["command"], &json["args"]), (&toml["command"], &toml["args"]));
    let words: Vec<String> = serde_json::from_value(json["args"].clone()).unwrap();
    // The commands that write these say the same.
    let said = format!("greenroom -- greenroom {}", words.join(" "));
    assert_eq!(page.matches(&said).count(), 2, "{said}");
    let words = words.into_iter().map(|word| word.replace("/home/me", desk.path("").to_str().unwrap())).collect();
    (desk, words)
}

/// Keys in order, whatever the features of the build.
fn pretty(value: &Value) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect::<std::collections::BTreeMap<_, _>>().into_iter().collect()
            }
            Value::Array(items) => items.iter().map(sorted).collect(),
            other => other.clone(),
        }
    }
    serde_json::to_string_pretty(&sorted(value)).unwrap()
}

fn section(tools: &[Value]) -> String {
    let mut text = String::from("| tool | tokens |\n|---|---|\n");
    for tool in tools {
        let costs = json!({"name": tool["name"], "description": tool["description"], "schema": tool["inputSchema"]});
        writeln!(text, "| `{}` | {} |", tool["name"].as_str().unwrap(), costs.to_string().len().div_ceil(4)).unwrap();
    }
    for tool in tools {
        let (name, description) = (tool["name"].as_str().unwrap(), tool["description"].as_str().unwrap());
        writeln!(text, "\n### `{name}`\n\n> {description}\n\n```json\n{}\n```", pretty(&tool["inputSchema"])).unwrap();
    }
    text
}

/// Set `GREENROOM_WRITE_DOCS` to write the page.
#[test]
fn the_page_shows_what_the_server_of_its_example_says() {
    let page = page();
    let (desk, words) = example(&page);
    let mut client = Client::greeted(&desk, &words.iter().map(String::as_str).collect::<Vec<_>>());
    let tools = client.request("tools/list", &json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap();
    let (begin, end) = ("<!-- tools: made by tests/it/mcp_page.rs -->\n", "<!-- end of tools -->");
    let (before, rest) = page.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let made = format!("{before}{begin}\n{}\n{end}{after}", section(tools));
    if std::env::var_os("GREENROOM_WRITE_DOCS").is_some() {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/mcp.md"), &made).unwrap();
    }
    assert_eq!(self::page(), made, "run with GREENROOM_WRITE_DOCS=1 to write it");
    // A client may show these without asking its user first.
    let looks: Vec<_> = tools.iter().filter(|tool| tool["annotations"]["readOnlyHint"] == true).map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(looks, ["list_agents", "wait", "read_log"]);
}

#[test]
fn the_example_of_the_page_does_what_it_is_for() {
    let (desk, words) = example(&page());
    let mut client = Client::greeted(&desk, &words.iter().map(String::as_str).collect::<Vec<_>>());
    let call = json!({"description": "count the lines", "prompt": "echo one; echo two >&2; exit 3"});
    assert_eq!(client.tool("subagent", &call).text(), "one\ntwo");
}
