//! A client of the protocol that knows nothing but lines of JSON.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use serde_json::{Value, json};

use crate::cli::Desk;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that is talked to.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    next: u64,
    /// What has come and was not asked for yet.
    kept: Vec<Value>,
}

impl Client {
    pub(crate) fn start(desk: &Desk, words: &[&str]) -> Self {
        let mut client = Self::of(desk.command(words));
        client.ask("initialize", &json!({"protocolVersion": 1})).1.unwrap();
        client
    }

    /// The usual program of a desk: `p.toml`.
    pub(crate) fn of_desk(desk: &Desk) -> Self {
        Self::start(desk, &["acp", "--program", "p.toml"])
    }

    pub(crate) fn of(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                if line.is_err() || send.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { stdin: child.stdin.take(), child, lines, next: 0, kept: Vec::new() }
    }

    /// Sends bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub(crate) fn notify(&mut self, method: &str, params: &Value) {
        let line = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        self.raw(format!("{line}\n").as_bytes());
    }

    /// Sends a request and does not wait.
    pub(crate) fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let line = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}).to_string();
        self.raw(format!("{line}\n").as_bytes());
        self.next
    }

    /// The next line that comes; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<Value> {
        if !self.kept.is_empty() {
            return Some(self.kept.remove(0));
        }
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing comes"),
        }
    }

    /// Waits for the answer of a request; what else comes before it are the updates. Other answers are kept.
    pub(crate) fn answer(&mut self, id: u64) -> (Vec<Value>, Result<Value, Value>) {
        let (mut updates, mut others) = (Vec::new(), Vec::new());
        loop {
            let line = self.line().unwrap_or_else(|| panic!("the end came before the answer of {id}"));
            if line["method"] == "session/update" {
                updates.push(line["params"]["update"].clone());
            } else if line["id"] == id {
                others.append(&mut self.kept);
                self.kept = others;
                let result = if line["error"].is_null() { Ok(line["result"].clone()) } else { Err(line["error"].clone()) };
                return (updates, result);
            } else {
                others.push(line);
            }
        }
    }

    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> (Vec<Value>, Result<Value, Value>) {
        let id = self.send(method, params);
        self.answer(id)
    }

    pub(crate) fn new_session(&mut self) -> String {
        let made = self.ask("session/new", &json!({"cwd": "/desk", "mcpServers": []})).1.unwrap();
        made["sessionId"].as_str().unwrap().to_owned()
    }

    pub(crate) fn load(&mut self, session: &str) -> (Vec<Value>, Result<Value, Value>) {
        self.ask("session/load", &json!({"sessionId": session, "cwd": "/desk", "mcpServers": []}))
    }

    pub(crate) fn send_prompt(&mut self, session: &str, text: &str) -> u64 {
        self.send("session/prompt", &prompt(session, text))
    }

    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> (Vec<Value>, Result<Value, Value>) {
        let id = self.send_prompt(session, text);
        self.answer(id)
    }

    /// Waits for an update that is wanted, and returns it with everything before it.
    pub(crate) fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut updates = Vec::new();
        loop {
            let line = self.line().expect("the end came before the update");
            assert_eq!(line["method"], "session/update", "{line}");
            updates.push(line["params"]["update"].clone());
            if wanted(updates.last().unwrap()) {
                return updates;
            }
        }
    }

    /// Waits until a child has come to rest.
    pub(crate) fn until_complete(&mut self) -> Vec<Value> {
        self.until(|update| update["sessionUpdate"] == "session_info_update" && update["_meta"]["greenroom/subagent"]["status"] == "complete")
    }

    /// Ends what the program reads, reads what it still says, and returns its exit.
    pub(crate) fn end(mut self) -> (Vec<Value>, i32) {
        drop(self.stdin.take());
        let rest: Vec<Value> = std::iter::from_fn(|| self.line()).collect();
        (rest, self.child.wait().unwrap().code().unwrap_or(-1))
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

pub(crate) fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

/// What the agent said in updates, part by part.
pub(crate) fn said(updates: &[Value]) -> Vec<&str> {
    of_kind(updates, "agent_message_chunk")
}

/// What was said to the agent.
pub(crate) fn heard(updates: &[Value]) -> Vec<&str> {
    of_kind(updates, "user_message_chunk")
}

fn of_kind<'a>(updates: &'a [Value], kind: &str) -> Vec<&'a str> {
    updates.iter().filter(|update| update["sessionUpdate"] == kind).map(|update| update["content"]["text"].as_str().unwrap()).collect()
}
