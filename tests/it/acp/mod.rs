//! `greenroom acp`, talked to by a client that knows lines of JSON and nothing else.

mod client;
mod conversation;
mod hostile;
mod restart;
mod served;

use crate::cli::Desk;

/// A root that answers, delegates, asks again and lists, and one child that reports.
const STORY: &str = r#"
[run]
root = "editor"
[agents.editor]
behavior = "script"
turns = [
  [ { delegate = { agent = "reporter", as = "r1", description = "collect facts", prompt = "Three facts." } }, { say = "started" } ],
  [ { list = true }, { say = "listed" } ],
  [ { send = { to = "r1", message = "One more." } }, { say = "sent" } ],
]
[agents.reporter]
behavior = "script"
turns = [[ { report = "a fact" }, { say = "three facts" } ], [ { say = "one more fact" } ]]
"#;

fn desk(program: &str) -> Desk {
    let desk = Desk::new();
    desk.write("p.toml", program);
    desk
}
