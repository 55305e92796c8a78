//! `greenroom mcp` from one process to the next, and beside others.

use greenroom::session::descriptor::Descriptor;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    cli,
    mcp_client::{Client, MCP, begun, desk, start, wait},
};

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

#[test]
fn what_was_accepted_before_a_kill_is_served_once_however_often_servers_are_killed() {
    let desk = desk();
    let mut client = Client::greeted(&desk, &MCP);
    let child = start(&mut client, "clerk", "begin");
    let (mut accepted, mut asked) = (Vec::new(), Vec::new());
    for round in 0..6 {
        // Several at once, and the kill comes after one more of them each time.
        let calls: Vec<_> = (0..8)
            .map(|n| {
                let text = format!("message {round}.{n}");
                let id = client.ask_tool("send_message", &json!({"subagent_id": child, "message": text}));
                asked.push(text.clone());
                (id, text)
            })
            .collect();
        for (id, text) in calls.into_iter().take(round) {
            client.given(id).text();
            accepted.push(text);
        }
        client.kill();
        client = Client::greeted(&desk, &MCP);
        // A turn that dies with three servers in a row is given up.
        wait(&mut client, &child);
    }
    assert_eq!(client.end().0, 0);
    let log = desk.run(&["log", &child, "--raw"]).out;
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts_of = |kind: &str, place: &str| -> Vec<String> {
        let found = events.iter().filter(|event| event["type"] == kind);
        found.map(|event| event.pointer(place).unwrap().as_str().unwrap().to_owned()).collect()
    };
    let (served, said) = (texts_of("user/message", "/data/content/0/text"), texts_of("assistant/message", "/data/message/content/0/text"));
    for text in &accepted {
        assert!(served.contains(text), "{text} was accepted and is lost: {served:?}");
    }
    for text in &asked {
        let times = served.iter().filter(|served| *served == text).count();
        assert!(times <= 1, "{text} was served {times} times");
        // Each that was served is answered once, also where a kill cut the first attempt off.
        assert_eq!(said.iter().filter(|said| **said == format!("you said: {text}")).count(), times, "{text}: {said:?}");
    }
}
