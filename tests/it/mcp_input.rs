//! `greenroom mcp` under input that no client should give it: what is no message, what is huge, and what never ends.

use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use greenroom::session::limits::MAX_MESSAGE_BYTES;
use serde_json::json;

use crate::mcp_client::{Client, MCP, desk, start, wait};

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
fn what_comes_before_the_greeting_keeps_nobody_from_greeting() {
    let desk = desk();
    let mut client = Client::start(&desk, &MCP);
    for line in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"no/such"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#,
        r#"{"jsonrpc":"2.0","id":9,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":9,"error":{"code":1,"message":"no"}}"#,
    ] {
        client.write(format!("{line}\n").as_bytes());
        assert_eq!(client.request("ping", &json!({}))["result"], json!({}), "{line}");
    }
    for (method, params) in [("initialize", json!({"protocolVersion": 5})), ("tools/list", json!({})), ("tools/call", json!({"name": "list_agents"}))] {
        assert_eq!(client.request(method, &params)["error"]["code"], json!(-32602), "{method}");
    }
    client.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    assert_eq!(client.greet()["serverInfo"]["name"], "greenroom");
    assert_eq!(client.tool("list_agents", &json!({})).text(), "(no subagents)");
    // Nor does a version that nobody has, or greeting twice.
    let params = json!({"protocolVersion": "1999-01-01", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}});
    let again = client.request("initialize", &params);
    assert!(again["result"]["protocolVersion"].is_string(), "{again}");
    assert_eq!(client.tool("list_agents", &json!({})).text(), "(no subagents)");
    assert_eq!(client.end().0, 0);
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
    let written = Arc::new(AtomicUsize::new(0));
    let counts = written.clone();
    let writing = thread::spawn(move || {
        for id in 1_000..21_000 {
            // Every hundredth changes something.
            let (method, params) = match id % 100 {
                0 => ("tools/call", json!({"name": "send_message", "arguments": {"subagent_id": child, "message": format!("message {id}")}})),
                _ => ("ping", json!({"pad": "x".repeat(300)})),
            };
            writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).unwrap();
            counts.fetch_add(1, SeqCst);
        }
        (stdin, child)
    });
    // The pipe is full long before the last of them, so the writer stands still.
    let (mut before, mut still) = (0, 0);
    while still < 50 && !writing.is_finished() {
        thread::park_timeout(Duration::from_millis(10));
        let now = written.load(SeqCst);
        still = if now > 0 && now == before { still + 1 } else { 0 };
        before = now;
    }
    let peak = client.peak();
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
    let (pending, turns) = (shown["pending"].as_u64().unwrap(), shown["turns"].as_u64().unwrap());
    // One that the end has cut off waits, too.
    let twice = u64::from(!shown["cut_off"].is_null());
    assert!(pending + turns - twice >= 201, "{pending} wait, {turns} turns");
}
