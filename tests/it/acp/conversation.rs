//! Conversations in good order.

use std::fmt::Write;

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{
    STORY,
    client::{Client, heard, prompt, said},
    desk,
};
use crate::cli::redact;

const COUNTING: &str = r#"
run = { root = "editor" }
agents.editor = { behavior = "script", turns = [[{ say = "one" }], [{ say = "two" }], [{ say = "three" }], [{ fail = { code = "NO_PAPER", message = "no paper" } }], [{ say = "five" }]] }
"#;
const SLEEPER: &str = r#"
run = { root = "editor" }
agents.editor = { behavior = "script", turns = [[{ say = "now" }, { sleep = "1h" }], [{ say = "second" }], [{ say = "third" }]] }
"#;

fn lines(updates: &[Value]) -> String {
    updates.iter().fold(String::new(), |mut all, update| {
        writeln!(all, "{update}").unwrap();
        all
    })
}

#[test]
fn a_child_that_settles_between_two_prompts_is_told_of_and_the_second_prompt_lists_it() {
    let desk = desk(STORY);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    let (mut told, first) = client.prompt(&session, "Begin.");
    let settled = client.until_complete();
    told.extend(settled);
    let (listed, second) = client.prompt(&session, "Who is there?");
    assert_eq!((first.unwrap(), second.unwrap()), (json!({"stopReason": "end_turn"}), json!({"stopReason": "end_turn"})));
    // The child and its parent do not wait for one another, so that their order varies; each line does not.
    assert_eq!(said(&listed), ["listed"], "the second prompt comes to its own answer");
    told.extend(listed);
    let mut told: Vec<String> = told.iter().map(|update| redact(&serde_json::to_string(update).unwrap())).collect();
    told.sort();
    assert_snapshot!(told.join("\n"), @r#"
    {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"listed"},"messageId":"<id 0>"}
    {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"started"},"messageId":"<id 0>"}
    {"sessionUpdate":"session_info_update","_meta":{"greenroom/subagent":{"sessionId":"<id 0>","parentId":"<id 1>","label":"collect facts","status":"complete","outcome":"completed","code":null,"toolCallId":"subagent-<id 0>"}}}
    {"sessionUpdate":"session_info_update","_meta":{"greenroom/subagent":{"sessionId":"<id 0>","parentId":"<id 1>","label":"collect facts","status":"running","outcome":null,"code":null,"toolCallId":"subagent-<id 0>"}}}
    {"sessionUpdate":"tool_call","toolCallId":"subagent-<id 0>","title":"subagent: collect facts","name":"subagent","status":"in_progress"}
    {"sessionUpdate":"tool_call_update","toolCallId":"subagent-<id 0>","status":"completed","_meta":{"greenroom/subagent":{"sessionId":"<id 0>","parentId":"<id 1>","label":"collect facts","status":"complete","outcome":"completed","code":null,"toolCallId":"subagent-<id 0>"}}}
    {"sessionUpdate":"tool_call_update","toolCallId":"subagent-<id 0>","status":"in_progress","_meta":{"greenroom/subagent":{"sessionId":"<id 0>","parentId":"<id 1>","label":"collect facts","status":"running","outcome":null,"code":null,"toolCallId":"subagent-<id 0>"}}}
    {"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"Subagent <id 0> (collect facts) has settled: its last turn completed. Its last message:\nthree facts"},"messageId":"<id 1>","_meta":{"greenroom/source":{"kind":"subagent-settled","session":"<id 0>","epoch":1,"outcome":"completed"}}}
    {"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"a fact"},"messageId":"<id 0>","_meta":{"greenroom/source":{"kind":"subagent-report","session":"<id 1>"}}}
    "#);
    assert_eq!(client.end(), (Vec::new(), 0));
    // How many turns it took depends on who was first.
    let tree = redact(&desk.run(&["tree"]).out);
    let tree: Vec<&str> = tree.lines().map(|line| line.split(" · ").next().unwrap()).collect();
    assert_eq!(tree, ["<id 0> [complete] — editor in desk", "└─ <id 1> [complete] — collect facts"]);
}

#[test]
fn prompts_that_are_sent_while_one_runs_are_served_in_their_order() {
    let desk = desk(COUNTING);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    let ids: Vec<u64> = ["a", "b", "c"].iter().map(|text| client.send_prompt(&session, text)).collect();
    for (id, answer) in ids.into_iter().zip(["one", "two", "three"]) {
        let (updates, stopped) = client.answer(id);
        assert_eq!((said(&updates), stopped.unwrap()), (vec![answer], json!({"stopReason": "end_turn"})));
        assert_eq!(heard(&updates), Vec::<&str>::new(), "its own prompts are not told to a client");
    }
    client.end();
}

#[test]
fn a_turn_that_fails_is_an_error_with_its_code_and_the_session_goes_on() {
    let desk = desk(COUNTING);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    for _ in 0..3 {
        client.prompt(&session, "on").1.unwrap();
    }
    let error = client.prompt(&session, "fail").1.unwrap_err();
    assert_eq!(
        (&error["code"], &error["message"], &error["data"]["code"], &error["data"]["turn"]),
        (&json!(-32603), &json!("no paper"), &json!("NO_PAPER"), &json!(4))
    );
    assert_eq!(said(&client.prompt(&session, "on").0), ["five"]);
    client.end();
}

#[test]
fn a_cancel_ends_the_turn_under_way_and_takes_back_what_waits() {
    let desk = desk(SLEEPER);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    let ids = ["a", "b"].map(|text| client.send_prompt(&session, text));
    // Twice: nobody minds.
    client.notify("session/cancel", &json!({"sessionId": session}));
    client.notify("session/cancel", &json!({"sessionId": session}));
    for id in ids {
        assert_eq!(client.answer(id).1.unwrap(), json!({"stopReason": "cancelled"}));
    }
    // The message that was taken back is no turn of its own, so the next one has the second list.
    assert_eq!(said(&client.prompt(&session, "c").0), ["second"]);
    client.end();
}

#[test]
fn a_request_that_is_cancelled_is_taken_back_alone() {
    let desk = desk(SLEEPER);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    let [a, b, c] = ["a", "b", "c"].map(|text| client.send_prompt(&session, text));
    client.notify("$/cancel_request", &json!({"requestId": b}));
    assert_eq!(client.answer(b).1.unwrap(), json!({"stopReason": "cancelled"}));
    client.notify("$/cancel_request", &json!({"requestId": a}));
    assert_eq!(client.answer(a).1.unwrap(), json!({"stopReason": "cancelled"}));
    let (updates, stopped) = client.answer(c);
    assert_eq!((said(&updates), stopped.unwrap()), (vec!["second"], json!({"stopReason": "end_turn"})));
    client.end();
}

#[test]
fn what_is_loaded_is_what_was_told_and_comes_before_the_answer() {
    let desk = desk(STORY);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    let mut told = client.prompt(&session, "Begin.").0;
    told.extend(client.until_complete());
    let second = client.prompt(&session, "Who?");
    told.extend(second.0);
    let (again, loaded) = client.load(&session);
    assert_eq!(loaded.unwrap(), json!({}));
    assert_eq!(said(&again), said(&told));
    assert_eq!(heard(&again).iter().filter(|text| ["Begin.", "Who?"].contains(text)).count(), 2, "{}", lines(&again));
    let calls = |updates: &[Value]| updates.iter().filter(|update| update["sessionUpdate"] == "tool_call").cloned().collect::<Vec<_>>();
    assert_eq!(calls(&again), calls(&told));
    // What is loaded is followed, too.
    assert_eq!(said(&client.prompt(&session, "And more?").0), ["sent"]);
    client.end();
}

#[test]
fn what_others_say_and_what_comes_of_it_reaches_a_client_that_asks_nothing() {
    let desk = desk(COUNTING);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    assert_eq!(desk.run(&["send", &session, "from elsewhere"]).exit, 0);
    let told = client.until(|update| update["sessionUpdate"] == "agent_message_chunk");
    assert_eq!((heard(&told), said(&told)), (vec!["from elsewhere"], vec!["one"]));
    assert_eq!(client.prompt(&session, "mine").1.unwrap()["stopReason"], "end_turn");
    assert_eq!(client.prompt(&session, "mine").1.unwrap()["stopReason"], "end_turn");
    // A turn that nobody here waits for is told of when it fails.
    assert_eq!(desk.run(&["send", &session, "from elsewhere"]).exit, 0);
    let told = client.until(|update| update["sessionUpdate"] == "session_info_update");
    assert_eq!(told.last().unwrap()["_meta"]["greenroom/turnFailed"], json!({"turn": 4, "code": "NO_PAPER", "message": "no paper"}));
    client.end();
}

#[test]
fn sessions_are_listed_by_pages_and_by_folder() {
    let desk = desk(COUNTING);
    let mut client = Client::of_desk(&desk);
    let made: Vec<String> = (0..51).map(|_| client.new_session()).collect();
    let other = client.ask("session/new", &json!({"cwd": "/other", "mcpServers": []})).1.unwrap()["sessionId"].clone();
    let first = client.ask("session/list", &json!({})).1.unwrap();
    let second = client.ask("session/list", &json!({"cursor": first["nextCursor"]})).1.unwrap();
    let ids: Vec<&str> =
        [&first, &second].iter().flat_map(|page| page["sessions"].as_array().unwrap()).map(|info| info["sessionId"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), second.get("nextCursor")), (52, None));
    assert!(made.iter().all(|id| ids.contains(&id.as_str())));
    let info = &second["sessions"][1];
    assert_eq!((&info["sessionId"], &info["cwd"], &info["title"]), (&other, &json!("/other"), &json!("editor in other")));
    assert!(info["updatedAt"].as_str().unwrap().ends_with('Z'), "{info}");
    let there = client.ask("session/list", &json!({"cwd": "/other", "cursor": first["nextCursor"]})).1.unwrap();
    assert_eq!(there["sessions"].as_array().unwrap().len(), 1);
    let error = client.ask("session/list", &json!({"cursor": "nowhere"})).1.unwrap_err();
    assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32602), &json!("INVALID_CURSOR")));
    client.end();
}

#[test]
fn a_session_that_is_closed_settles_and_takes_nothing_before_it_is_resumed() {
    let desk = desk(SLEEPER);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    let [running, waiting] = ["a", "b"].map(|text| client.send_prompt(&session, text));
    let close = client.send("session/close", &json!({"sessionId": session}));
    assert_eq!(client.answer(running).1.unwrap(), json!({"stopReason": "cancelled"}));
    assert_eq!(client.answer(waiting).1.unwrap(), json!({"stopReason": "cancelled"}));
    client.answer(close).1.unwrap();
    let error = client.prompt(&session, "c").1.unwrap_err();
    assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32002), &json!("SESSION_NOT_FOUND")));
    let (updates, resumed) = client.ask("session/resume", &json!({"sessionId": session, "cwd": "/desk"}));
    assert_eq!((resumed.unwrap(), said(&updates).len()), (json!({}), 0), "nothing is told again");
    assert_eq!(said(&client.prompt(&session, "c").0), ["second"]);
    client.end();
    assert!(desk.run(&["list"]).out.contains("[complete]"));
}

#[test]
fn a_child_is_told_in_the_protocols_own_words_to_a_client_that_says_it_knows_them() {
    let desk = desk(STORY);
    let mut client = Client::of(desk.command(&["acp", "--program", "p.toml"]));
    client.ask("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {"subagents": {}}})).1.unwrap();
    let session = client.new_session();
    let mut told = client.prompt(&session, "Begin.").0;
    told.extend(client.until(|update| update["sessionUpdate"] == "subagent_update" && update["state"]["state"] == "idle"));
    let states: Vec<&Value> = told.iter().filter(|update| update["sessionUpdate"] == "subagent_update").map(|update| &update["title"]).collect();
    assert_eq!(states, ["collect facts", "collect facts"]);
    client.end();
}

#[test]
fn what_makes_no_sense_is_refused_with_a_code_and_the_session_lives() {
    let desk = desk(STORY);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    client.prompt(&session, "Begin.").1.unwrap();
    let settled = client.until_complete();
    let child = settled.last().unwrap()["_meta"]["greenroom/subagent"]["sessionId"].as_str().unwrap().to_owned();
    let image = json!({"sessionId": session, "prompt": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]});
    let cases = [
        ("session/new", json!({"cwd": "desk", "mcpServers": []}), -32602, "INVALID_CWD"),
        ("session/load", json!({"sessionId": session, "cwd": "", "mcpServers": []}), -32602, "INVALID_CWD"),
        ("session/load", json!({"sessionId": child, "cwd": "/desk", "mcpServers": []}), -32602, "NOT_A_ROOT"),
        ("session/load", json!({"sessionId": "nobody", "cwd": "/desk", "mcpServers": []}), -32002, "SESSION_NOT_FOUND"),
        ("session/resume", json!({"sessionId": "", "cwd": "/desk"}), -32602, "INVALID_ID"),
        ("session/prompt", prompt("nobody", "hello"), -32002, "SESSION_NOT_FOUND"),
        ("session/prompt", image, -32602, "INVALID_PROMPT"),
        ("session/prompt", json!({"sessionId": session, "prompt": []}), -32602, "INVALID_PROMPT"),
        ("session/close", json!({"sessionId": "nobody"}), -32002, "SESSION_NOT_FOUND"),
    ];
    for (method, params, number, code) in cases {
        let error = client.ask(method, &params).1.unwrap_err();
        assert_eq!((&error["code"], &error["data"]["code"]), (&json!(number), &json!(code)), "{method} {params}: {error}");
        assert!(error["message"].as_str().unwrap().len() > 10, "{error}");
    }
    client.notify("session/cancel", &json!({"sessionId": "nobody"}));
    let servers = json!([{"name": "files", "command": "/bin/files", "args": [], "env": []}]);
    let made = client.ask("session/new", &json!({"cwd": "/desk", "mcpServers": servers})).1.unwrap();
    assert_eq!(made["_meta"], json!({"greenroom/unused": ["mcpServers"]}));
    assert_eq!(client.prompt(&session, "Who?").1.unwrap()["stopReason"], "end_turn");
    client.end();
}
