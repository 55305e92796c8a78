//! The tools of `greenroom mcp`, called by a client that knows nothing but lines of JSON.

use greenroom::session::{descriptor::Descriptor, limits::MAX_MESSAGE_BYTES};
use serde_json::{Value, json};

use crate::{
    cli::{self, Desk, Kind},
    mcp_client::{Client, MCP, PROGRAM, begun, desk, start, wait},
};

#[test]
fn a_client_delegates_lists_sends_waits_and_reads_and_stdout_is_protocol_only_however_much_is_said() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        desk.write("story.toml", PROGRAM);
        let mut client = Client::start(&desk, &["mcp", "-vv", "--root", "desk", "--program", "story.toml", "--json"]);
        let greeting = client.greet();
        assert_eq!((&greeting["serverInfo"]["name"], &greeting["protocolVersion"]), (&json!("greenroom"), &json!("2025-06-18")));
        assert!(greeting["instructions"].as_str().unwrap().contains("send_message"));
        let tools = client.request("tools/list", &json!({}));
        let names: Vec<_> = tools["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["subagent", "send_message", "list_agents", "wait", "read_log", "interrupt"]);

        assert_eq!(client.tool("list_agents", &json!({})).text(), "(no subagents)");
        let foreground = client.tool("subagent", &json!({"description": "one question", "prompt": "hello", "agent": "clerk"}));
        assert_eq!(foreground.text(), "you said: hello");
        let child = start(&mut client, "clerk", "one");
        let done = wait(&mut client, &child);
        assert!(done.text().starts_with(&format!("subagent {child} is done, position ")), "{done:?}");
        assert_eq!(done.texts[1], "you said: one");
        assert_eq!(client.tool("list_agents", &json!({})).text(), format!("{child} [complete] — collect facts"));
        let sent = client.tool("send_message", &json!({"subagent_id": child, "message": "two"}));
        assert_eq!(sent.text(), format!("message queued as the next turn for subagent {child}"));
        assert_eq!(wait(&mut client, &child).texts[1], "you said: two");
        let all = client.tool("wait", &json!({"timeout": 60}));
        assert!(all.text().starts_with("nothing is left to do, position "), "{all:?}");
        assert!(all.text().ends_with(&format!("\n{child} [last turn completed] — collect facts")), "{all:?}");

        // The log by pages is the log.
        let (mut from, mut lines) = (0, Vec::new());
        loop {
            let page = client.tool("read_log", &json!({"subagent_id": child, "from": from, "limit": 5}));
            let place = page.texts.last().unwrap().clone();
            if page.texts.len() == 2 {
                lines.extend(page.texts[0].lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
            }
            if place.contains("the log ends here") {
                break;
            }
            from = place.rsplit(' ').next().unwrap().parse().unwrap();
        }
        let raw = desk.run(&["log", &child, "--raw"]).out;
        let raw: Vec<Value> = raw.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines, raw);
        for from in [raw.len() as u64, u64::MAX] {
            let page = client.tool("read_log", &json!({"subagent_id": child, "from": from, "limit": 200}));
            assert_eq!(page.texts, [format!("0 events from {from}; the log ends here, position {}", raw.len())]);
        }

        let (exit, rest, errors) = client.end();
        assert_eq!((exit, rest.iter().filter(|message| message.get("id").is_some()).count()), (0, 0), "{errors}");
        assert!(errors.contains("DEBUG"), "it said a lot");
    }
}

#[test]
fn every_failure_is_a_result_with_its_code_and_says_that_nothing_was_delivered() {
    let desk = desk();
    // Another parent's child, in the same store.
    cli::root(&desk.store(), "other", "another", 1);
    cli::child(&desk.store(), "strange", "other", &Descriptor::continuable("spawn", "a stranger", "clerk"), 2);
    let mut client = Client::greeted(&desk, &MCP);
    let child = start(&mut client, "clerk", "one");
    wait(&mut client, &child);
    let table = [
        (
            "send_message",
            json!({"subagent_id": "nobody", "message": "x"}),
            "NOT_RESUMABLE",
            "Error: subagent \"nobody\" is unavailable: there is no such session; the message was not delivered",
        ),
        ("send_message", json!({"subagent_id": "", "message": "x"}), "NOT_RESUMABLE", "the message was not delivered"),
        ("send_message", json!({"subagent_id": "strange", "message": "x"}), "UNAUTHORIZED", "the message was not delivered"),
        ("send_message", json!({"subagent_id": "desk", "message": "x"}), "UNAUTHORIZED", "the message was not delivered"),
        ("send_message", json!({"subagent_id": child, "message": "x".repeat(MAX_MESSAGE_BYTES + 1)}), "MESSAGE_TOO_LARGE", "the message was not delivered"),
        ("send_message", json!({"subagent_id": child}), "INVALID_ARGS", "Error: invalid arguments: `/message` is missing"),
        ("send_message", json!({"subagent_id": 5, "message": "x"}), "INVALID_ARGS", "`/subagent_id` must be string, not number"),
        ("send_message", json!({"subagent_id": child, "message": "x", "parent": "other"}), "INVALID_ARGS", "`/parent` is not known"),
        ("subagent", json!({"description": "a b c", "prompt": "x"}), "INVALID_ARGS", "`/agent` is missing"),
        (
            "subagent",
            json!({"description": "a b c", "prompt": "x", "agent": "ghost"}),
            "INVALID_ARGS",
            "`/agent` must be one of \"clerk\", \"editor\", \"slow\"",
        ),
        ("subagent", json!({"description": " ", "prompt": "x", "agent": "clerk"}), "INVALID_ARGS", "`/description` must not be empty"),
        ("subagent", json!({"description": "a b c", "prompt": "fail", "agent": "clerk"}), "SUBAGENT_FAILED", "failed with COMMAND_FAILED"),
        ("list_agents", json!({"scope": "all"}), "INVALID_ARGS", "unknown field"),
        ("wait", json!({"timeout": 601}), "INVALID_ARGS", "`/timeout` must be at most 600"),
        ("wait", json!({"timeout": 1, "subagent_id": "strange"}), "UNAUTHORIZED", "it is the subagent of another session"),
        ("wait", json!({"timeout": 1, "subagent_id": "nobody"}), "NOT_RESUMABLE", "Error: subagent \"nobody\" is unavailable: there is no such subagent"),
        ("read_log", json!({"subagent_id": "strange"}), "UNAUTHORIZED", "it is the subagent of another session"),
        ("read_log", json!({"subagent_id": "desk"}), "UNAUTHORIZED", "it is the subagent of another session"),
        ("read_log", json!({"subagent_id": child, "limit": 0}), "INVALID_ARGS", "`/limit` must be at least 1"),
        ("read_log", json!({"subagent_id": child, "limit": 201}), "INVALID_ARGS", "`/limit` must be at most 200"),
        ("interrupt", json!({"subagent_id": child}), "NOT_RUNNING", "was not interrupted"),
        ("interrupt", json!({"subagent_id": "strange"}), "UNAUTHORIZED", "was not interrupted"),
    ];
    for (tool, arguments, code, text) in table {
        let shown = arguments.to_string().chars().take(100).collect::<String>();
        let given = client.tool(tool, &arguments);
        let (found, said) = given.failed();
        assert_eq!(found, code, "{tool} {shown}: {said}");
        assert!(said.starts_with("Error: ") && said.contains(text), "{tool} {shown}: {said}");
        assert!(said.len() < 600, "{tool} {shown}: {said}");
    }
    let unknown = client.request("tools/call", &json!({"name": "fly"}));
    assert_eq!((&unknown["error"]["code"], &unknown["error"]["data"]["code"]), (&json!(-32602), &json!("UNKNOWN_TOOL")));
    // Nothing of that has changed anything: one turn of the child, none of the stranger.
    assert_eq!(client.tool("list_agents", &json!({})).text(), format!("{child} [complete] — collect facts"));
    assert_eq!(client.end().0, 0);
    let turns = |name: &str| desk.run(&["log", name, "--raw"]).out.matches("turn/start").count();
    assert_eq!((turns(&child), turns("strange")), (1, 0));
}

#[test]
fn a_wait_that_is_over_first_is_a_normal_answer_with_progress_and_an_interrupt_ends_the_turn() {
    let desk = desk();
    let mut client = Client::greeted(&desk, &MCP);
    let child = start(&mut client, "slow", "one");
    begun(&desk);
    let given = client.tool("wait", &json!({"subagent_id": child, "timeout": 1}));
    let position: usize = given.text().strip_prefix("still running, position ").unwrap().parse().unwrap();
    assert_eq!(position, desk.run(&["log", &child, "--raw"]).out.lines().count());
    let progress = client.find("progress", |message| message["method"] == "notifications/progress");
    assert_eq!((&progress["params"]["progressToken"], &progress["params"]["total"]), (&json!("of wait"), &json!(1.0)));
    let all = client.tool("wait", &json!({"timeout": 0}));
    assert!(all.text().starts_with("still running, position ") && all.text().ends_with(&format!("\n{child} [has work] — collect facts")), "{all:?}");
    assert_eq!(client.tool("list_agents", &json!({})).text(), format!("{child} [running] — collect facts"));
    assert_eq!(client.tool("interrupt", &json!({"subagent_id": child})).text(), format!("interrupted turn 1 of subagent {child}"));
    let done = wait(&mut client, &child);
    assert!(done.text().starts_with(&format!("subagent {child} ended as aborted, position ")), "{done:?}");
}

#[test]
fn a_call_that_its_client_cancels_ends_the_child_that_nobody_waits_for_any_more() {
    let desk = desk();
    let mut client = Client::greeted(&desk, &MCP);
    let call = client.ask_tool("subagent", &json!({"description": "one question", "prompt": "x", "agent": "slow"}));
    begun(&desk);
    let progress = client.find("progress", |message| message["method"] == "notifications/progress");
    let text = progress["params"]["message"].as_str().unwrap().to_owned();
    let child = text.strip_prefix("subagent ").unwrap().strip_suffix(" is working").unwrap().to_owned();
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}}));
    let done = wait(&mut client, &child);
    assert!(done.text().contains(" ended as aborted, "), "{done:?}");
    let (_, rest, _) = client.end();
    assert!(rest.iter().all(|message| message["id"] != call), "what was cancelled is not answered");
}

#[test]
fn what_a_subagent_has_started_is_waited_for_read_and_interrupted_and_what_it_reports_is_told_once() {
    let desk = desk();
    desk.write(
        "story.toml",
        &format!("{PROGRAM}\n[agents.boss]\nbehavior = \"script\"\nturns = [[{{ delegate = {{ agent = \"slow\", description = \"deep down\", prompt = \"x\" }} }}, {{ report = \"half way\" }}, {{ say = \"begun\" }}]]\n"),
    );
    let mut client = Client::greeted(&desk, &MCP);
    let boss = start(&mut client, "boss", "Go.");
    begun(&desk);
    let given = client.tool("wait", &json!({"subagent_id": boss, "timeout": 0}));
    assert!(given.text().starts_with("still running, position "), "its own work is done, and that below it is not: {given:?}");
    let tree = desk.run(&["tree", "--json"]).json();
    let below = tree["entries"].as_array().unwrap().iter().find(|session| session["label"] == "deep down").unwrap();
    let deep = below["id"].as_str().unwrap().to_owned();
    assert_eq!(client.tool("send_message", &json!({"subagent_id": deep, "message": "x"})).failed().0, "UNAUTHORIZED");
    assert!(client.tool("read_log", &json!({"subagent_id": deep})).text().contains("deep down"));
    assert!(client.tool("wait", &json!({"subagent_id": deep, "timeout": 0})).text().starts_with("still running, position "));
    assert_eq!(client.tool("interrupt", &json!({"subagent_id": deep})).text(), format!("interrupted turn 1 of subagent {deep}"));
    let done = wait(&mut client, &boss);
    assert!(done.text().starts_with(&format!("subagent {boss} is done, ")), "{done:?}");
    assert_eq!(done.texts[1..], ["begun", "half way"]);
    assert_eq!(wait(&mut client, &boss).texts[1..], ["begun"]);
}

#[test]
fn a_subagent_that_cannot_be_read_is_listed_with_the_reason_and_disturbs_no_other() {
    let desk = desk();
    cli::root(&desk.store(), "desk", "a desk", 1);
    cli::odd_child(&desk.store(), "odd", "desk", Some(json!({"version": 99})), 2);
    let mut client = Client::greeted(&desk, &MCP);
    let child = start(&mut client, "clerk", "one");
    wait(&mut client, &child);
    assert_eq!(client.tool("list_agents", &json!({})).text(), format!("odd [diagnostic: unsupported]\n{child} [complete] — collect facts"));
    assert_eq!(client.tool("send_message", &json!({"subagent_id": "odd", "message": "x"})).failed().0, "NOT_RESUMABLE");
    assert!(client.tool("read_log", &json!({"subagent_id": "odd"})).text().contains("\"version\":99"));
    let all = client.tool("wait", &json!({"timeout": 60}));
    assert!(all.text().starts_with("nothing is left to do, "), "{all:?}");
}
