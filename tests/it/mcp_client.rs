//! A client of the MCP server that knows nothing but lines of JSON.

use std::{
    collections::VecDeque,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::{Value, json};

use crate::cli::Desk;

/// A clerk that answers with what it was told, and one whose turn lasts until there is a file named `go`.
pub(crate) const PROGRAM: &str = r#"
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

pub(crate) const MCP: [&str; 5] = ["mcp", "--root", "desk", "--program", "story.toml"];

pub(crate) fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("story.toml", PROGRAM);
    desk
}

pub(crate) fn begun(desk: &Desk) {
    while !desk.path("begun").exists() {
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// Starts a subagent in the background and returns its id.
pub(crate) fn start(client: &mut Client, agent: &str, prompt: &str) -> String {
    let given = client.tool("subagent", &json!({"description": "collect facts", "prompt": prompt, "run_in_background": true, "agent": agent}));
    given.text().strip_prefix("started subagent ").unwrap().to_owned()
}

pub(crate) fn wait(client: &mut Client, child: &str) -> Given {
    client.tool("wait", &json!({"subagent_id": child, "timeout": 60}))
}

const BOUND: Duration = Duration::from_secs(120);

/// The program, spoken to line by line. Each line of its stdout must be a message of JSON-RPC.
pub(crate) struct Client {
    pub(crate) process: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    lines: Option<Receiver<String>>,
    errors: Option<JoinHandle<String>>,
    unasked: VecDeque<Value>,
    next: i64,
}

/// What a tool gave.
#[derive(Debug, PartialEq)]
pub(crate) struct Given {
    pub(crate) is_error: bool,
    pub(crate) texts: Vec<String>,
    pub(crate) code: Option<String>,
}

impl Given {
    pub(crate) fn text(&self) -> &str {
        assert!(!self.is_error, "{self:?}");
        &self.texts[0]
    }

    pub(crate) fn failed(&self) -> (&str, &str) {
        assert!(self.is_error, "{self:?}");
        (self.code.as_deref().unwrap(), &self.texts[0])
    }
}

impl Client {
    /// Starts the program and says nothing.
    pub(crate) fn start(desk: &Desk, words: &[&str]) -> Self {
        let mut process = desk.command(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout, mut stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take().unwrap());
        let errors = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        Self { process, stdin, stdout, lines: None, errors: Some(errors), unasked: VecDeque::new(), next: 1 }
    }

    /// Starts the program and introduces itself.
    pub(crate) fn greeted(desk: &Desk, words: &[&str]) -> Self {
        let mut client = Self::start(desk, words);
        client.greet();
        client
    }

    pub(crate) fn greet(&mut self) -> Value {
        let id = self.ask_to_greet();
        self.answer(id)["result"].clone()
    }

    /// Introduces itself without reading the answer.
    pub(crate) fn ask_to_greet(&mut self) -> i64 {
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}});
        let id = self.ask("initialize", &params);
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        id
    }

    /// Writes a line.
    pub(crate) fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).unwrap();
        stdin.flush().unwrap();
    }

    /// Takes the writing end, for a thread of its own.
    pub(crate) fn take_stdin(&mut self) -> ChildStdin {
        self.stdin.take().unwrap()
    }

    /// Says a request and does not wait for its answer.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> i64 {
        let id = self.next;
        self.next += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub(crate) fn ask_tool(&mut self, name: &str, arguments: &Value) -> i64 {
        self.ask("tools/call", &json!({"name": name, "arguments": arguments, "_meta": {"progressToken": format!("of {name}")}}))
    }

    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    /// Calls a tool.
    pub(crate) fn tool(&mut self, name: &str, arguments: &Value) -> Given {
        let id = self.ask_tool(name, arguments);
        self.given(id)
    }

    /// Waits for what a tool gives.
    pub(crate) fn given(&mut self, id: i64) -> Given {
        let answer = self.answer(id);
        let result = &answer["result"];
        let texts = result["content"].as_array().unwrap_or_else(|| panic!("{answer}")).iter().map(|block| block["text"].as_str().unwrap().to_owned());
        Given { is_error: result["isError"] == true, texts: texts.collect(), code: result["structuredContent"]["error"]["code"].as_str().map(str::to_owned) }
    }

    pub(crate) fn answer(&mut self, id: i64) -> Value {
        self.find(&format!("the answer to {id}"), |message| message["id"] == id && message.get("method").is_none())
    }

    /// Waits for a message; others stay for later.
    pub(crate) fn find(&mut self, what: &str, is_meant: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.unasked.iter().position(&is_meant) {
            return self.unasked.remove(at).unwrap();
        }
        loop {
            let message = self.next_line().unwrap_or_else(|| panic!("the output ended before {what}; it had {:?}", self.unasked));
            if is_meant(&message) {
                return message;
            }
            self.unasked.push_back(message);
        }
    }

    /// The next message; none at the end of the output.
    pub(crate) fn next_line(&mut self) -> Option<Value> {
        if let Some(stdout) = self.stdout.take() {
            // Nobody reads before somebody asks.
            let (send, lines) = channel();
            thread::spawn(move || {
                let mut reader = BufReader::new(stdout);
                let mut line = Vec::new();
                while reader.read_until(b'\n', &mut line).is_ok_and(|size| size > 0) {
                    let text = String::from_utf8(std::mem::take(&mut line)).unwrap_or_else(|error| format!("not UTF-8: {error}"));
                    if send.send(text).is_err() {
                        return;
                    }
                }
            });
            self.lines = Some(lines);
        }
        match self.lines.as_ref().unwrap().recv_timeout(BOUND) {
            Ok(line) => {
                let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?} is no protocol"));
                assert!(line.ends_with('\n') && message["jsonrpc"] == "2.0", "{line:?}");
                Some(message)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the program says nothing; before it said {:?}", self.unasked),
        }
    }

    /// Ends the input, and returns the exit, what was still said, and stderr.
    pub(crate) fn end(&mut self) -> (i32, Vec<Value>, String) {
        self.stdin = None;
        self.ended()
    }

    /// Waits for the end.
    pub(crate) fn ended(&mut self) -> (i32, Vec<Value>, String) {
        let mut said: Vec<Value> = self.unasked.drain(..).collect();
        while let Some(message) = self.next_line() {
            said.push(message);
        }
        self.gone(said)
    }

    /// Closes both pipes at once, as a client that dies does.
    pub(crate) fn vanish(&mut self) -> (i32, String) {
        self.stdin = None;
        (self.stdout, self.lines) = (None, None);
        let (exit, _, errors) = self.gone(Vec::new());
        (exit, errors)
    }

    fn gone(&mut self, said: Vec<Value>) -> (i32, Vec<Value>, String) {
        let exit = self.process.wait().unwrap().code().unwrap_or(-1);
        (exit, said, self.errors.take().unwrap().join().unwrap())
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// The most memory that the program has taken, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
