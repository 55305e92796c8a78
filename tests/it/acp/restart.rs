//! Ends without order: nothing that was accepted is lost, and a second process is told who has what.

use serde_json::{Value, json};

use super::{
    STORY,
    client::{Client, heard, said},
    desk,
};

/// The first attempt at its first message does not come to its end.
const STUCK_ONCE: &str = r#"
run = { root = "editor" }
[agents.editor]
behavior = "command"
command = ["sh", "-c", "if test $GREENROOM_ATTEMPT = 1; then sleep 3600; fi; echo \"answered $GREENROOM_MESSAGE\""]
answer = "text"
"#;

fn attempts(desk: &crate::cli::Desk, session: &str) -> usize {
    desk.run(&["log", session, "--raw"]).out.matches("\"turn/start\"").count()
}

#[test]
fn who_is_killed_goes_on_lists_loads_and_delivers_to_its_children() {
    let desk = desk(STORY);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    client.prompt(&session, "Begin.").1.unwrap();
    client.until_complete();
    client.kill();

    let mut client = Client::of_desk(&desk);
    let listed = client.ask("session/list", &json!({"cwd": "/desk"})).1.unwrap();
    assert_eq!(listed["sessions"][0]["sessionId"], session.as_str());
    let (told, loaded) = client.load(&session);
    loaded.unwrap();
    assert_eq!((said(&told), heard(&told)[0]), (vec!["started"], "Begin."));
    let child = |updates: &[Value]| updates.iter().find_map(|update| update["_meta"]["greenroom/subagent"]["sessionId"].as_str().map(str::to_owned));
    assert!(told.iter().any(|update| update["_meta"]["greenroom/subagent"]["status"] == "complete"), "{told:?}");
    client.prompt(&session, "Who?").1.unwrap();
    client.prompt(&session, "Ask.").1.unwrap();
    let answered = client.until_complete();
    assert_eq!(child(&answered), child(&told), "the same child lives again");
    client.end();
    let log = desk.run(&["log", &child(&told).unwrap()]).out;
    assert!(log.contains("One more.") && log.contains("one more fact"), "{log}");
}

#[test]
fn a_prompt_whose_turn_a_kill_cuts_off_is_served_by_the_next_start_although_nobody_asks() {
    let desk = desk(STUCK_ONCE);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    client.send_prompt(&session, "first");
    client.send_prompt(&session, "second");
    // Both are accepted before what comes next is looked at, and the first has its turn.
    while attempts(&desk, &session) == 0 || !desk.run(&["show", &session]).out.contains("second") {
        std::thread::yield_now();
    }
    client.kill();

    let client = Client::of_desk(&desk);
    while !desk.run(&["log", &session]).out.contains("answered first") {
        std::thread::yield_now();
    }
    client.kill();
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_a_turn_leaves_it_to_the_next_start() {
    let desk = desk(STUCK_ONCE);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    client.send_prompt(&session, "first");
    while attempts(&desk, &session) == 0 {
        std::thread::yield_now();
    }
    let (rest, exit) = client.end();
    assert_eq!((rest, exit), (Vec::new(), 0), "what nobody waits for is not answered");

    let mut client = Client::of_desk(&desk);
    let (mut told, loaded) = client.load(&session);
    loaded.unwrap();
    if said(&told).is_empty() {
        told.extend(client.until(|update| update["sessionUpdate"] == "agent_message_chunk"));
    }
    assert_eq!((heard(&told), said(&told).concat()), (vec!["first"], "answered first".to_owned()));
    client.end();
}

#[test]
fn a_session_that_another_process_has_is_refused_by_name() {
    let desk = desk(STORY);
    let mut first = Client::of_desk(&desk);
    let session = first.new_session();
    first.prompt(&session, "Begin.").1.unwrap();
    let mut second = Client::of_desk(&desk);
    let error = second.load(&session).1.unwrap_err();
    assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32603), &json!("SESSION_HELD")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("held by another process"), "{error}");
    first.until_complete();
    first.end();
    second.load(&session).1.unwrap();
    assert_eq!(said(&second.prompt(&session, "Who?").0), ["listed"]);
    second.end();
}

#[test]
fn a_signal_ends_it_in_order_and_says_so_by_its_exit() {
    let desk = desk(STUCK_ONCE);
    let mut client = Client::of_desk(&desk);
    let session = client.new_session();
    client.send_prompt(&session, "first");
    while attempts(&desk, &session) == 0 {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(client.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    while client.line().is_some() {}
    assert_eq!(client.end().1, 143);
    let log = desk.run(&["log", &session, "--raw"]).out;
    assert!(log.contains("disposed"), "{log}");
}
