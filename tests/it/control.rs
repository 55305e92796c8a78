//! `greenroom interrupt` and `greenroom withdraw`, beside a process that runs the session, after one that was killed, and where nobody runs it.

use std::{
    fs,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use greenroom::session::{
    descriptor::{Descriptor, Mode},
    event::Body,
    id::MessageId,
    message::{Message, Source},
    recover::begin_epoch,
    store::{Accept, Op, Open, Store, sqlite::SqliteStore},
};
use serde_json::json;

use crate::{
    audit,
    cli::{self, Desk, Said, continuable, id},
};

/// A root that hangs when it is told to, in a shell with a child of its own, and writes down each of its runs and processes.
const PROGRAM: &str = r#"
[run]
root = "desk"
label = "a desk"
prompt = "hang"

[agents.desk]
behavior = "command"
answer = "text"
timeout = "10m"
command = ["sh", "-c", '''
printf '%s %s %s\n' "$GREENROOM_SESSION" "$GREENROOM_TURN" "$GREENROOM_ATTEMPT" >>side
case $GREENROOM_MESSAGE in
hang)
  sleep 600 &
  echo "$$ $!" >pids.new
  mv pids.new pids
  wait ;;
*) echo "heard $GREENROOM_MESSAGE" ;;
esac
''']
"#;

/// Waits for something outside of this process, and fails if it does not come.
fn until(what: &str, mut there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

fn runs(pid: &str) -> bool {
    // A dead process that nobody has looked after yet runs no more.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}

/// A run whose root hangs in its first turn, and the root.
struct Hanging {
    desk: Desk,
    run: Option<Child>,
    root: String,
    pids: Vec<String>,
}

impl Hanging {
    fn new() -> Self {
        let desk = Desk::new();
        desk.write("desk.toml", PROGRAM);
        let run = desk.command(&["run", "desk.toml"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the command has begun", || desk.path("pids").exists());
        let pids = fs::read_to_string(desk.path("pids")).unwrap().split_whitespace().map(str::to_owned).collect();
        let root = desk.run(&["list", "--json"]).json()["entries"][0]["id"].as_str().unwrap().to_owned();
        Self { desk, run: Some(run), root, pids }
    }

    fn send(&self, text: &str) {
        let said = self.desk.run(&["send", &self.root, text, "--message-id", text]);
        assert_eq!(said.exit, 0, "{said:?}");
    }

    fn control(&self, words: &[&str]) -> Said {
        let (verb, rest) = words.split_first().unwrap();
        self.desk.run(&[&[*verb, self.root.get(..6).unwrap()], rest].concat())
    }

    fn finish(&mut self) -> Said {
        Said::of(&self.run.take().unwrap().wait_with_output().unwrap())
    }

    fn kill(&mut self) {
        let mut run = self.run.take().unwrap();
        run.kill().unwrap();
        run.wait().unwrap();
        self.is_gone();
    }

    /// Nothing of the command is left.
    fn is_gone(&self) {
        until("every process of the command is gone", || !self.pids.iter().any(|pid| runs(pid)));
    }

    /// Checks the store and returns how the turns of each message ended, in order; `None` for one that has had no turn.
    fn audit(&self) -> Vec<(String, Vec<String>)> {
        let sessions = audit::read(&self.desk.path("desk.db"));
        audit::check_invocations(&sessions, &audit::invocations(&self.desk.path("side")));
        sessions[0].check_finished();
        let turns = sessions[0].turns();
        let messages = sessions[0].inbox.iter().filter(|accepted| accepted.is_turn);
        messages.map(|message| (message.id.clone(), turns.get(&message.id).into_iter().flatten().map(|start| start.3.clone().unwrap()).collect())).collect()
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        if let Some(mut run) = self.run.take() {
            drop(run.kill());
            drop(run.wait());
        }
    }
}

fn ends<const N: usize>(ends: [&str; N]) -> Vec<String> {
    ends.map(str::to_owned).into()
}

#[test]
fn a_run_whose_last_turn_was_interrupted_has_failed() {
    let mut hanging = Hanging::new();
    assert_eq!(hanging.control(&["interrupt"]).exit, 0);
    let said = hanging.finish();
    assert_eq!((said.exit, said.out.as_str()), (1, ""), "{said:?}");
    assert!(said.err.contains("error[TURN_FAILED]: the turn of the root's last message was aborted\n"), "{said:?}");
    hanging.is_gone();
}

#[test]
fn a_process_that_runs_the_session_is_asked_from_outside() {
    let mut hanging = Hanging::new();
    for text in ["unwanted", "wanted", "waited-for"] {
        hanging.send(text);
    }
    let mut waiter = hanging.desk.command(&["send", &hanging.root, "waited-for", "--message-id", "waited-for", "--wait"]);
    let waiter = waiter.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();

    let first = hanging.desk.run(&["show", &hanging.root, "--json"]);
    assert_eq!(first.json()["turn"], "open", "{first:?}");
    let said = hanging.control(&["withdraw", "unwa"]);
    assert_eq!(said, Said { exit: 0, out: format!("message unwanted of {} was taken back\n", hanging.root), err: String::new() });
    let said = hanging.control(&["withdraw", "waited-for", "--json"]);
    assert_eq!((said.exit, said.json()), (0, json!({"session": hanging.root, "message_id": "waited-for", "outcome": "withdrawn"})));
    let again = hanging.control(&["withdraw", "waited-for"]);
    assert_eq!(again.exit, 0, "what is taken back stays so: {again:?}");
    let heard = Said::of(&waiter.wait_with_output().unwrap());
    assert_eq!((heard.exit, heard.err.lines().next()), (1, Some("error[MESSAGE_WITHDRAWN]: message waited-for was taken back")));
    assert!(hanging.pids.iter().all(|pid| runs(pid)), "the turn under way was not touched");

    let said = hanging.control(&["interrupt"]);
    assert_eq!(said, Said { exit: 0, out: format!("turn 1 of {} has ended as aborted\n", hanging.root), err: String::new() });
    hanging.is_gone();
    let ran = hanging.finish();
    assert_eq!((ran.exit, ran.out.as_str()), (0, "heard wanted\n"), "{ran:?}");
    let audited = hanging.audit();
    let names: Vec<_> = audited[1..].iter().map(|(name, ends)| (name.as_str(), ends.clone())).collect();
    assert_eq!(audited[0].1, ends(["aborted"]));
    assert_eq!(names, [("unwanted", vec![]), ("wanted", ends(["completed"])), ("waited-for", vec![])]);
    let sessions = audit::read(&hanging.desk.path("desk.db"));
    let answered: Vec<_> = sessions[0].of("control/answered").map(|(_, data)| (data["op"].clone(), data["outcome"].clone())).collect();
    assert_eq!(answered, [(json!("withdraw"), json!("done")), (json!("withdraw"), json!("done")), (json!("interrupt"), json!("done"))]);
}

#[test]
fn after_a_kill_of_the_run_whoever_asks_answers() {
    let mut hanging = Hanging::new();
    for text in ["unwanted", "wanted"] {
        hanging.send(text);
    }
    hanging.kill();
    let said = hanging.control(&["withdraw", "unwanted"]);
    assert_eq!((said.exit, said.err.as_str()), (0, ""), "{said:?}");
    let said = hanging.control(&["interrupt", "--json"]);
    assert_eq!((said.exit, said.json()), (0, json!({"session": hanging.root, "turn": 1, "outcome": "aborted"})));
    let said = hanging.control(&["interrupt", "--json"]);
    assert_eq!((said.exit, &said.json()["error"]["code"]), (1, &json!("NOT_RUNNING")), "{said:?}");
    let said = hanging.control(&["withdraw", "unwanted"]);
    assert_eq!(said.exit, 0, "{said:?}");

    let ran = hanging.desk.run(&["run", "desk.toml", "--root", &hanging.root]);
    assert_eq!((ran.exit, ran.out.as_str()), (0, "heard wanted\n"), "{ran:?}");
    let audited = hanging.audit();
    assert_eq!(audited[0].1, ends(["interrupted", "aborted"]), "it is not served again");
    assert_eq!((audited[1].1.clone(), audited[2].1.clone()), (vec![], ends(["completed"])));
    assert_eq!(audit::invocations(&hanging.desk.path("side")).len(), 2, "the command of the message that was ended did not run again");
    let said = hanging.control(&["withdraw", "wanted"]);
    assert_eq!((said.exit, said.err.lines().next()), (1, Some("error[ALREADY_STARTED]: message wanted has a turn already")));
}

fn desk() -> (Desk, SqliteStore) {
    let desk = Desk::new();
    let store = desk.store();
    cli::root(&store, "root-one", "launch story", 100);
    cli::child(&store, "child-1", "root-one", &continuable("collect facts"), 200);
    let one_shot = Descriptor { mode: Mode::OneShot, label: None, ..continuable("x") };
    cli::child(&store, "one-shot", "root-one", &one_shot, 300);
    for session in ["root-one", "child-1", "one-shot"] {
        for message in ["message-1", "message-2"] {
            cli::accept(&store, session, message, "work");
        }
    }
    let note = Message::note(MessageId::new("note-1").unwrap(), "a report", Source::Host, 0, true).unwrap();
    cli::commit(&store, Op::Accept(Accept::new(id("child-1"), note)));
    (desk, store)
}

fn waiting(store: &SqliteStore, session: &str) -> Vec<String> {
    store.reader().unwrap().inbox(&id(session), 99).unwrap().iter().map(|record| record.message.id.to_string()).collect()
}

fn types(store: &SqliteStore, session: &str) -> Vec<String> {
    let events = store.reader().unwrap().events(&id(session), 2, 99).unwrap();
    events.iter().map(|event| event.body.type_name().to_owned()).collect()
}

#[test]
fn a_message_of_any_session_that_nobody_runs_is_taken_back() {
    let (desk, store) = desk();
    for session in ["root-one", "child-1", "one-shot"] {
        let said = desk.run(&["withdraw", session, "message-1"]);
        assert_eq!(said, Said { exit: 0, out: format!("message message-1 of {session} was taken back\n"), err: String::new() });
        assert_eq!(types(&store, session), ["activation/start", "message/withdrawn", "activation/end"]);
        assert!(!waiting(&store, session).contains(&"message-1".to_owned()));
    }
    assert_eq!(waiting(&store, "root-one"), ["message-2"], "nobody was told of children that have had no turn");
    assert!(store.reader().unwrap().leases(None).unwrap().is_empty());
}

#[test]
fn what_cannot_be_asked_is_said_and_writes_nothing() {
    let (desk, store) = desk();
    let before = ["root-one", "child-1", "one-shot"].map(|session| (types(&store, session), waiting(&store, session)));
    for (words, exit, code) in [
        (&["interrupt", "nobody"][..], 4, "SESSION_NOT_FOUND"),
        (&["interrupt", "root-one"], 1, "NOT_RUNNING"),
        (&["interrupt", "child-1"], 1, "NOT_RUNNING"),
        (&["interrupt", "one-shot"], 1, "NOT_RUNNING"),
        (&["interrupt", "child-1", "--timeout", "soon"], 2, "USAGE"),
        (&["withdraw", "nobody", "message-1"], 4, "SESSION_NOT_FOUND"),
        (&["withdraw", "child-1"], 2, "USAGE"),
        (&["withdraw", "child-1", "message-9"], 4, "NOT_PENDING"),
        (&["withdraw", "child-1", "mes"], 4, "NOT_PENDING"),
        (&["withdraw", "child-1", "note-1"], 4, "NOT_PENDING"),
        (&["withdraw", "child-1", "mess"], 2, "AMBIGUOUS_ID"),
        (&["withdraw", "child-1", ""], 2, "INVALID_ID"),
    ] {
        let said = desk.run(words);
        assert_eq!((said.exit, said.out.as_str()), (exit, ""), "{words:?} {said:?}");
        assert!(said.err.starts_with(&format!("error[{code}]: ")), "{words:?} {said:?}");
    }
    let after = ["root-one", "child-1", "one-shot"].map(|session| (types(&store, session), waiting(&store, session)));
    assert_eq!(after, before);
    insta::assert_snapshot!(desk.run(&["withdraw", "child-1", "mess"]).all(), @r#"
    exit 2
    ---
    error[AMBIGUOUS_ID]: "mess" begins the ids of several messages:
      message-1
      message-2
    help: give more characters of the id
    "#);
    insta::assert_snapshot!(desk.run(&["interrupt", "child-1"]).all(), @r#"
    exit 1
    ---
    error[NOT_RUNNING]: session child-1 is in no turn
    help: nothing was under way; `greenroom show ID` says what the session is doing
    "#);
    insta::assert_snapshot!(desk.run(&["withdraw", "child-1", "note"]).all(), @r#"
    exit 4
    ---
    error[NOT_PENDING]: no message note-1 waits for a turn of its own
    help: `greenroom show ID` lists the messages that wait
    "#);
}

/// Takes a session's lease, as a process does that is alive and does not get round to anything.
fn hold(store: &SqliteStore, session: &str) {
    let fold = store.reader().unwrap().load(&id(session)).unwrap().fold;
    let (epoch, events) = begin_epoch(&fold, 0, 3);
    cli::commit(store, Op::Open(Open { session: id(session), epoch, events: events.into(), claim: Some(0) }));
}

#[test]
fn a_request_to_a_process_that_does_not_answer_stays_and_is_one() {
    let (desk, store) = desk();
    hold(&store, "child-1");
    insta::assert_snapshot!(desk.run(&["interrupt", "child-1", "--timeout", "0s"]).all(), @r#"
    exit 3
    ---
    error[TIMED_OUT]: session child-1 has not answered in time
    help: the request stays: whoever runs the session answers it, and the same command again waits for that answer
    "#);
    for _ in 0..2 {
        let said = desk.run(&["withdraw", "child-1", "message-2", "--timeout", "0s", "--json"]);
        assert_eq!((said.exit, &said.json()["error"]["code"]), (3, &json!("TIMED_OUT")), "{said:?}");
    }
    assert_eq!(waiting(&store, "child-1").len(), 3, "message-2 and two requests");
    // Its holder is gone, and the next one who asks answers all that was asked.
    drop(store);
    let said = desk.run(&["withdraw", "child-1", "message-2"]);
    assert_eq!((said.exit, said.err.as_str()), (0, ""), "{said:?}");
    let store = desk.store();
    assert_eq!(waiting(&store, "child-1"), [""; 0]);
    let events = store.reader().unwrap().events(&id("child-1"), 0, 99).unwrap();
    let answers: Vec<_> = events
        .into_iter()
        .filter_map(|event| match event.body {
            Body::ControlAnswered { op, outcome, .. } => Some((op, outcome)),
            _ => None,
        })
        .collect();
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(answers.iter().all(|(_, outcome)| outcome == "done"), "{answers:?}");
    // It has nothing left to do, so its parent was told before its end.
    assert!(waiting(&store, "root-one").len() == 3, "{:?}", waiting(&store, "root-one"));
}
