//! `greenroom mcp`, spoken to by a client that knows nothing but lines of JSON.

use std::{io::Write as _, thread, time::Duration};

use greenroom::session::{descriptor::Descriptor, limits::MAX_MESSAGE_BYTES};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    cli::{self, Desk, Kind},
    mcp_client::{Client, Given},
};

/// A clerk that answers with what it was told, and one whose turn lasts until there is a file named `go`.
const PROGRAM: &str = r#"
[run]
root = "editor"

[agents.editor]
behavior = "script"
turns = []

[agents.clerk]
behavior = "command"
answer = "text"
command = ["sh", "-c", 'case "$GREENROOM_MESSAGE" in fail*) echo no >&2; exit 3;; esac; echo "you said: $GREENROOM_MESSAGE" | cut -c -40']

[agents.slow]
behavior = "command"
answer = "text"
command = ["sh", "-c", 'touch begun; while [ ! -e go ]; do sleep 0.02; done; echo "attempt $GREENROOM_ATTEMPT"']
"#;

const MCP: [&str; 5] = ["mcp", "--root", "desk", "--program", "story.toml"];

fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("story.toml", PROGRAM);
    desk
}

fn begun(desk: &Desk) {
    while !desk.path("begun").exists() {
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// Starts a subagent in the background and returns its id.
fn start(client: &mut Client, agent: &str, prompt: &str) -> String {
    let given = client.tool("subagent", &json!({"description": "collect facts", "prompt": prompt, "run_in_background": true, "agent": agent}));
    given.text().strip_prefix("started subagent ").unwrap().to_owned()
}

fn wait(client: &mut Client, child: &str) -> Given {
    client.tool("wait", &json!({"subagent_id": child, "timeout": 60}))
}

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
fn what_is_no_message_is_answered_and_the_server_goes_on() {
    let desk = desk();
    let mut client = Client::greeted(&desk, &MCP);
    let deep = format!(r#"{{"jsonrpc":"2.0","id":90,"method":"x","params":{{"a":{}{}}}}}"#, "[".repeat(200), "]".repeat(200));
    let garbage = "x".repeat(16 << 20);
    let long = format!(r#"{{"method":"tools/call","params":{{"name":"{}"}},"jsonrpc":"2.0","id":91}}"#, "x".repeat(33 << 20));
    for (line, id, code) in [
        (&b"hello"[..], json!(null), -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,", json!(null), -32700),
        (b"\0", json!(null), -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":92,\"method\":\"a\xff\"}", json!(null), -32700),
        (br#"{"jsonrpc":"2.0","id":93,"method":"tools/call","params":{"name":"\ud800"}}"#, json!(null), -32700),
        (deep.as_bytes(), json!(null), -32700),
        (garbage.as_bytes(), json!(null), -32700),
        (long.as_bytes(), json!(91), -32600),
        (br#"[{"jsonrpc":"2.0","id":5,"method":"ping"}]"#, json!(null), -32600),
        (b"5", json!(null), -32600),
        (br#"{"jsonrpc":"2.0","id":94}"#, json!(94), -32600),
        (br#"{"jsonrpc":"1.0","id":95,"method":"ping"}"#, json!(95), -32600),
        (br#"{"jsonrpc":"2.0","id":96,"method":"tools/call","params":"x"}"#, json!(96), -32600),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, json!(null), -32600),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, json!(null), -32600),
        (br#"{"jsonrpc":"2.0","id":97,"id":98,"method":"ping"}"#, json!(null), -32600),
        // The library's own.
        (br#"{"jsonrpc":"2.0","id":99,"method":"no/such"}"#, json!(99), -32601),
        (br#"{"jsonrpc":"2.0","id":100,"method":"tools/call"}"#, json!(100), -32601),
        (br#"{"jsonrpc":"2.0","id":101,"method":"tools/call","params":{"name":5}}"#, json!(101), -32601),
        (br#"{"jsonrpc":"2.0","id":102,"method":"tools/call","params":{"name":"wait","name":"wait"}}"#, json!(102), -32601),
        (br#"{"jsonrpc":"2.0","id":103,"method":"tools/call","params":[]}"#, json!(103), -32600),
        (br#"{"jsonrpc":"2.0","id":104,"method":"tools/call","params":{"name":"wait","arguments":"x"}}"#, json!(104), -32601),
        (br#"{"jsonrpc":"2.0","id":105,"method":"tools/call","params":{"name":"wait","arguments":[]}}"#, json!(105), -32601),
        (br#"{"jsonrpc":"2.0","id":106,"method":"tools/call","params":{"_meta":5,"name":"wait"}}"#, json!(106), -32600),
        (br#"{"jsonrpc":"2.0","id":107,"method":"tools/call","params":{"_meta":{"progressToken":[]},"name":"fly"}}"#, json!(107), -32600),
        (br#"{"jsonrpc":"2.0","id":108,"method":"","params":{}}"#, json!(108), -32601),
        (br#"{"jsonrpc":"2.0","id":109,"method":"ping","params":{"_meta":null}}"#, json!(109), -32600),
        (br#"{"jsonrpc":"2.0","id":110,"method":"completion/complete","params":{"ref":{"type":"x"}}}"#, json!(110), -32601),
    ] {
        let shown = String::from_utf8_lossy(line).chars().take(80).collect::<String>();
        client.write(line);
        client.write(b"\n");
        let refused = client.next_line().unwrap();
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&id, &json!(code)), "{shown}: {refused}");
        assert!(refused.to_string().len() < 250, "{shown}: {refused}");
        assert_eq!(client.request("ping", &json!({}))["result"], json!({}), "{shown}");
    }
    // What is not to be answered is not.
    for line in [r#"{"jsonrpc":"2.0","method":"no/such"}"#, r#"{"jsonrpc":"2.0","id":99,"result":{}}"#, "", "  \r"] {
        client.write(format!("{line}\n").as_bytes());
        assert_eq!(client.request("ping", &json!({}))["result"], json!({}), "{line}");
    }
    assert!(client.peak() < 150 << 20, "{} bytes", client.peak());
    // What was cut off at the end is not done.
    client.write(br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#);
    let (exit, rest, errors) = client.end();
    assert_eq!((exit, rest.len()), (0, 0), "{errors}");
}

#[test]
fn a_prompt_of_sixteen_mebibytes_arrives_whole() {
    let desk = desk();
    let mut client = Client::greeted(&desk, &MCP);
    let prompt = "é".repeat((MAX_MESSAGE_BYTES - 64) / 2);
    let child = start(&mut client, "clerk", &prompt);
    wait(&mut client, &child);
    let log = desk.run(&["log", &child, "--raw"]).out;
    assert!(log.contains(&prompt), "{} bytes", log.len());
    // It is read by parts.
    let page = client.tool("read_log", &json!({"subagent_id": child}));
    assert!(page.text().len() < 128 << 10 && page.text().contains("more bytes)"), "{} bytes", page.text().len());
}

#[test]
fn a_client_that_floods_and_does_not_read_is_answered_to_the_last_once_it_does() {
    let desk = desk();
    let mut client = Client::greeted(&desk, &MCP);
    let child = start(&mut client, "clerk", "one");
    client.end();
    // Nobody reads from now on.
    let mut client = Client::start(&desk, &MCP);
    let greeting = client.ask_to_greet();
    let mut stdin = client.take_stdin();
    let writing = thread::spawn(move || {
        for id in 1_000..21_000 {
            // Every hundredth changes something.
            let pad = "x".repeat(300);
            let (method, params) = match id % 100 {
                0 => ("tools/call", json!({"name": "send_message", "arguments": {"subagent_id": child, "message": format!("message {id}")}})),
                _ => ("ping", json!({"pad": pad})),
            };
            writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).unwrap();
        }
        (stdin, child)
    });
    // The pipe is full long before the last of them, so the writer stands still.
    let peak = (0..200).map(|_| {
        thread::park_timeout(Duration::from_millis(10));
        client.peak()
    });
    let peak = peak.last().unwrap();
    assert!(!writing.is_finished(), "20,000 requests were taken in without an answer read");
    assert!(peak < 80 << 20, "{peak} bytes");
    client.answer(greeting);
    let mut answered = vec![0; 20_000];
    let mut delivered = 0;
    for _ in 0..20_000 {
        let answer = client.find("an answer", |message| message.get("id").is_some());
        let id = usize::try_from(answer["id"].as_i64().unwrap()).unwrap();
        answered[id - 1_000] += 1;
        delivered += usize::from(id.is_multiple_of(100) && answer["result"]["isError"] == false);
    }
    assert!(answered.iter().all(|times| *times == 1));
    assert_eq!(delivered, 200);
    let (stdin, child) = writing.join().unwrap();
    drop(stdin);
    assert_eq!(client.ended().0, 0);
    // What was accepted is there, served or not.
    let shown = desk.run(&["show", &child, "--json"]).json();
    let log = desk.run(&["log", &child, "--raw"]).out;
    let pending = shown["pending"].as_array().map_or(0, Vec::len);
    assert!(pending + log.matches("\"turn/start\"").count() >= 201, "{shown}");
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
fn a_child_whose_client_ends_vanishes_or_is_killed_with_the_server_goes_on_with_the_next_one() {
    for how in ["end", "vanish", "kill", "signal"] {
        let desk = desk();
        let mut client = Client::greeted(&desk, &MCP);
        let child = start(&mut client, "slow", "one");
        begun(&desk);
        client.tool("send_message", &json!({"subagent_id": child, "message": "two"}));
        // Somebody waits, too, for both: in the foreground, and for the end.
        client.ask_tool("subagent", &json!({"description": "one question", "prompt": "x", "agent": "slow"}));
        client.ask_tool("wait", &json!({"timeout": 600}));
        client.find("progress", |message| message["params"]["progressToken"] == "of subagent");
        match how {
            "end" => assert_eq!(client.end().0, 0, "{how}"),
            "vanish" => assert_eq!(client.vanish().0, 0, "{how}"),
            "kill" => client.kill(),
            _ => {
                kill_process(Pid::from_child(&client.process), Signal::TERM).unwrap();
                let (exit, _, errors) = client.ended();
                assert_eq!(exit, 143, "{errors}");
                assert!(errors.contains("error[SIGNALLED]") && errors.contains("`greenroom mcp --root desk` goes on"), "{errors}");
            }
        }
        // The next one lists it, runs it without being told to, and delivers to it.
        let mut client = Client::greeted(&desk, &MCP);
        let listed = client.tool("list_agents", &json!({}));
        assert_eq!(listed.text(), format!("{child} [running] — collect facts"), "{how}");
        client.tool("send_message", &json!({"subagent_id": child, "message": "three"}));
        desk.write("go", "");
        let done = wait(&mut client, &child);
        assert_eq!((done.text().contains(" is done, "), done.texts[1].as_str()), (true, "attempt 1"), "{how}: {done:?}");
        client.tool("wait", &json!({"timeout": 60}));
        client.end();
        let log = desk.run(&["log", &child, "--raw"]).out;
        let served: Vec<&str> = ["one", "two", "three"].into_iter().filter(|text| log.contains(&format!("\"text\":\"{text}\""))).collect();
        assert_eq!(served.len(), 3, "{how}: {log}");
        // The one in the foreground was not taken back: its answer is in its log.
        let tree = desk.run(&["tree", "--json"]).json();
        let once = tree["entries"].as_array().unwrap().iter().find(|session| session["mode"] == "one-shot").unwrap_or_else(|| panic!("{how}: {tree}"));
        let log = desk.run(&["log", once["id"].as_str().unwrap(), "--raw"]).out;
        assert!(log.contains("\"assistant/message\"") && log.contains("\"text\":\"attempt "), "{how}: {log}");
    }
}

#[test]
fn several_servers_over_one_store_have_each_their_own_subagents() {
    let desk = desk();
    let words = |root| ["mcp", "--root", root, "--program", "story.toml"];
    let (mut one, mut two) = (Client::greeted(&desk, &words("one")), Client::greeted(&desk, &words("two")));
    let (first, second) = (start(&mut one, "clerk", "1"), start(&mut two, "clerk", "2"));
    wait(&mut one, &first);
    wait(&mut two, &second);
    assert_eq!(one.tool("list_agents", &json!({})).text(), format!("{first} [complete] — collect facts"));
    assert_eq!(two.tool("list_agents", &json!({})).text(), format!("{second} [complete] — collect facts"));
    assert_eq!(two.tool("send_message", &json!({"subagent_id": first, "message": "x"})).failed().0, "UNAUTHORIZED");
    // What another process sends is served by the one that owns the tree.
    assert_eq!(desk.run(&["send", &first, "from outside", "--wait", "--timeout", "60s"]).exit, 0);
    assert_eq!(wait(&mut one, &first).texts[1], "you said: from outside");
    // One root has one server.
    let held = desk.run(&words("one"));
    assert_eq!((held.exit, held.out.as_str()), (6, ""), "{held:?}");
    assert!(held.err.contains("error[SESSION_HELD]"), "{held:?}");
}

#[test]
fn a_root_that_cannot_be_one_is_refused_on_stderr_only() {
    let desk = desk();
    let store = desk.store();
    cli::root(&store, "desk", "a desk", 1);
    cli::child(&store, "child", "desk", &Descriptor::continuable("spawn", "a child", "clerk"), 2);
    cli::root(&store, "stranger", "a stranger", 3);
    cli::root(&store, "broken", "a broken one", 4);
    drop(store);
    let database = rusqlite::Connection::open(desk.path("desk.db")).unwrap();
    let changed = database.execute("UPDATE event SET body = replace(body, 'a broken one', 'a mended one') WHERE body LIKE '%a broken one%'", []).unwrap();
    assert!(changed > 0);
    drop(database);
    desk.write("other.toml", "run = { root = \"boss\" }\nagents.boss = { behavior = \"script\", turns = [] }\n");
    for (words, exit, code) in [
        (vec!["mcp", "--root", "child", "--program", "story.toml"], 5, "NOT_A_ROOT"),
        (vec!["mcp", "--root", "broken", "--program", "story.toml"], 7, "SESSION_CORRUPT"),
        (vec!["mcp", "--root", "stranger", "--program", "other.toml"], 2, "AGENT_UNKNOWN"),
        (vec!["mcp", "--root", "", "--program", "story.toml"], 2, "INVALID_ID"),
        (vec!["mcp", "--root", "desk", "--program", "none.toml"], 2, "PROGRAM_INVALID"),
        (vec!["--json", "mcp", "--root", "child"], 5, "NOT_A_ROOT"),
    ] {
        let said = desk.run(&words);
        assert_eq!((said.exit, said.out.as_str()), (exit, ""), "{words:?}: {said:?}");
        assert!(said.err.contains(&format!("error[{code}]")), "{words:?}: {said:?}");
    }
    // Somebody who is no client.
    let said = desk.run_with_stdin(&MCP, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n");
    assert!(said.out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{said:?}");
}

#[test]
fn without_a_program_what_is_there_is_listed_and_nothing_is_started() {
    let desk = desk();
    let mut client = Client::greeted(&desk, &MCP);
    let child = start(&mut client, "clerk", "one");
    wait(&mut client, &child);
    client.end();
    let mut client = Client::greeted(&desk, &["mcp", "--root", "desk"]);
    assert_eq!(client.tool("list_agents", &json!({})).text(), format!("{child} [complete] — collect facts"));
    let given = client.tool("subagent", &json!({"description": "a b c", "prompt": "x"}));
    assert_eq!(given.failed().0, "AGENT_UNKNOWN");
    // A message waits for a server that has its agent, and whoever waits for it is told.
    client.tool("send_message", &json!({"subagent_id": child, "message": "two"}));
    let given = wait(&mut client, &child);
    assert!(given.text().starts_with(&format!("subagent {child} has work and cannot run, position ")), "{given:?}");
    client.end();
    let mut client = Client::greeted(&desk, &MCP);
    assert_eq!(wait(&mut client, &child).texts[1], "you said: two");
}
