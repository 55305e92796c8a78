//! Clients that write nonsense, too much, or do not read.

use std::{fs, process::Stdio};

use serde_json::{Value, json};

use super::{
    client::{Client, prompt, said},
    desk,
};

const TERSE: &str = r#"
run = { root = "editor" }
agents.editor = { behavior = "script", turns = [[{ say = "one" }], [{ say = "two" }], [{ say = "three" }]] }
"#;

/// The most that a process has had in memory, in MiB.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn nonsense_is_answered_shortly_and_the_server_lives() {
    let desk = desk(TERSE);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    let deep = "[".repeat(2_000);
    let (parse, invalid, method, params) = (-32700, -32600, -32601, -32602);
    let with = |rest: &str| format!(r#"{{"jsonrpc":"2.0","id":77,{rest}}}"#).into_bytes();
    let cases: Vec<(Vec<u8>, i64, bool)> = vec![
        (b"hello".to_vec(), parse, false),
        (br#"{"jsonrpc":"2.0","id":77,"method":"session/list""#.to_vec(), parse, false),
        (b"\xff\xfe\x00".to_vec(), parse, false),
        (b"\"\\ud800\"".to_vec(), parse, false),
        (deep.into_bytes(), parse, false),
        (b"[]".to_vec(), invalid, false),
        (b"7".to_vec(), invalid, false),
        (br#"{"jsonrpc":"2.0","id":77}"#.to_vec(), invalid, false),
        (br#"{"jsonrpc":"1.0","id":77,"method":"session/list"}"#.to_vec(), invalid, false),
        (br#"{"jsonrpc":"2.0","id":{},"method":"session/list"}"#.to_vec(), invalid, false),
        (with(r#""method":"session/list","params":"x""#), invalid, false),
        (with(r#""method":"no/such","params":{}"#), method, true),
        (with(r#""method":"session/fork","params":{"sessionId":"x","cwd":"/","mcpServers":[]}"#), method, true),
        (with(r#""method":"session/new","params":{}"#), params, true),
        (with(r#""method":"session/prompt","params":{"sessionId":5,"prompt":[]}"#), params, true),
    ];
    for (mut line, code, has_id) in cases {
        let shown = String::from_utf8_lossy(&line).chars().take(60).collect::<String>();
        line.push(b'\n');
        client.raw(&line);
        let answer = client.line().unwrap();
        assert_eq!(answer["error"]["code"], code, "{shown}: {answer}");
        assert!(!has_id || answer["id"] == 77, "{shown}: {answer}");
        assert!(answer.to_string().len() < 600, "{shown}: {answer}");
    }
    // What is no request is not answered: an empty line, a notification that nobody knows.
    client.raw(b"\n");
    client.notify("no/such", &json!({}));
    assert_eq!(said(&client.prompt(&session, "on").0), ["one"]);
    assert_eq!(client.end(), (Vec::new(), 0));
}

#[test]
fn whoever_asks_before_it_has_introduced_itself_is_refused() {
    let desk = desk(TERSE);
    let mut client = Client::of(desk.command(&["acp", "--program", "p.toml"]));
    assert_eq!(client.ask("session/list", &json!({})).1.unwrap_err()["code"], -32600);
    for version in [0, 1, 2, 99] {
        let answer = client.ask("initialize", &json!({"protocolVersion": version})).1.unwrap();
        assert_eq!(answer["protocolVersion"], 1);
    }
    client.new_session();
    client.end();
}

#[test]
fn a_prompt_of_sixteen_mebibytes_is_served_and_a_longer_one_is_refused() {
    let desk = desk(TERSE);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    let text = "x".repeat(16 << 20);
    assert_eq!(said(&client.prompt(&session, &text).0), ["one"]);
    let error = client.prompt(&session, &format!("{text}x")).1.unwrap_err();
    assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32602), &json!("MESSAGE_TOO_LARGE")));
    // Longer than any line may be: it has no id, since nobody reads it to its end.
    client.send_prompt(&session, &"x".repeat(40 << 20));
    assert_eq!(client.line().unwrap()["error"]["code"], -32600);
    assert_eq!(said(&client.prompt(&session, "on").0), ["two"]);
    let (told, loaded) = client.load(&session);
    loaded.unwrap();
    let heard = told.iter().filter(|update| update["sessionUpdate"] == "user_message_chunk").map(|update| update["content"]["text"].as_str().unwrap().len());
    assert_eq!(heard.sum::<usize>(), (16 << 20) + 2);
    let most = peak(client.pid());
    assert!(most < 700, "{most} MiB");
    client.end();
}

#[test]
fn a_flood_of_a_client_that_does_not_read_takes_no_memory_and_is_answered_when_it_reads() {
    const FLOOD: usize = 20_000;
    let desk = desk(TERSE);
    let mut child = desk.command(&["acp", "--program", "p.toml"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (blocked, unblock) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        use std::io::Write;
        stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":1}}\n").unwrap();
        for id in 1..=FLOOD {
            let line = json!({"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": prompt("nobody", "hello")});
            writeln!(stdin, "{line}").unwrap();
            if id == FLOOD / 4 {
                blocked.send(()).unwrap();
            }
        }
    });
    // A quarter is not even taken; if all of it were, this would come.
    let taken = unblock.recv_timeout(std::time::Duration::from_secs(3));
    let most = peak(child.id());
    assert!(most < 100, "{most} MiB, a quarter taken: {taken:?}");
    let answers = std::io::BufRead::lines(std::io::BufReader::new(stdout)).map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut ids: Vec<u64> = answers.take(FLOOD + 1).map(|answer| answer["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    // What came before the introduction was answered is refused, and answered all the same.
    assert_eq!(ids, (0..=FLOOD as u64).collect::<Vec<_>>());
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn stdout_is_the_protocols_alone_whatever_is_to_be_said() {
    let desk = desk(TERSE);
    let mut client = Client::start(&desk, &["-vv", "--json", "acp", "--program", "p.toml"]);
    let session = client.new_session();
    for text in ["a", "b", "c"] {
        // Whatever is no line of JSON fails in here.
        client.prompt(&session, text).1.unwrap();
    }
    client.raw(b"nonsense\n");
    assert_eq!(client.line().unwrap()["jsonrpc"], "2.0");
    assert_eq!(client.end(), (Vec::new(), 0));
    for words in [&["--json", "acp", "--program", "none.toml"][..], &["--json", "acp", "--program", "p.toml", "--store", "nonsense"]] {
        let refused = desk.run(words);
        assert_eq!((refused.exit, &*refused.out), (2, ""), "{refused:?}");
        assert!(refused.err.contains("error["), "{refused:?}");
    }
}

#[test]
fn a_request_that_is_cut_off_by_the_end_is_not_done() {
    let desk = desk(TERSE);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    let line = json!({"jsonrpc": "2.0", "id": 9, "method": "session/prompt", "params": prompt(&session, "cut")}).to_string();
    client.raw(line.as_bytes());
    assert_eq!(client.end(), (Vec::new(), 0));
    assert!(!desk.run(&["log", &session]).out.contains("cut"));
}
