//! How much may be said: the largest message and one byte more, by every way into a store.

use std::{
    io::Write as _,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use greenroom::{
    Delegate, Runtime, Turn, TurnEnd,
    actors::error::{DeliverError, StartError},
};
use greenroom_session::{
    header::NewSession,
    limits::MAX_MESSAGE_BYTES,
    message::{Block, InboxRecord, Message, Source},
    store::{Accept, Create, Import, InboxLine, Op},
    transfer::import_folder,
};

use crate::world::{Kind, World, sid};

crate::on_every_store!(no_store_takes_a_message_over_the_limit_however_it_was_made);

/// What came of each way, by its name: nothing, or the code and the text of the error.
type Ends = Arc<Mutex<Vec<(&'static str, Option<(&'static str, String)>)>>>;

fn note<T, E: std::fmt::Display>(ends: &Ends, way: &'static str, end: Result<T, E>, code: fn(&E) -> &'static str) -> Option<T> {
    let told = end.as_ref().err().map(|error| (code(error), error.to_string()));
    ends.lock().unwrap().push((way, told));
    end.ok()
}

/// A root that passes on as much as it is told to in its turn, and a child that reports as much.
async fn everywhere(bytes: usize) -> Vec<(&'static str, Option<(&'static str, String)>)> {
    let ends = Ends::default();
    let (in_turn, in_child) = (ends.clone(), ends.clone());
    let much = move || "x".repeat(bytes);
    let runtime = Runtime::builder()
        .closure("desk", move |turn: Turn| {
            let ends = in_turn.clone();
            async move {
                if turn.text() == "go" {
                    note(&ends, "turn.delegate", turn.delegate(Delegate::new("mute", "is told much", much())).await, StartError::code);
                    let child = turn.delegate(Delegate::new("clerk", "reports much", "report")).await?.child;
                    note(&ends, "turn.send_message", turn.send_message(&child, much()).await, DeliverError::code);
                    turn.await_children().await?;
                }
                Ok(TurnEnd::Completed)
            }
        })
        .closure("clerk", move |turn: Turn| {
            let ends = in_child.clone();
            async move {
                if turn.text() == "report" {
                    note(&ends, "turn.report", turn.report(much(), true).await, DeliverError::code);
                }
                Ok(TurnEnd::Completed)
            }
        })
        .closure("mute", |_: Turn| async { Ok(TurnEnd::Completed) })
        .open("memory:")
        .await
        .unwrap();
    let root = runtime.root("desk", "a desk").await.unwrap();
    root.send("go").await.unwrap();
    root.quiescent().await.unwrap();
    note(&ends, "root.send", root.send(much()).await, DeliverError::code);
    note(&ends, "host.send", runtime.host().send(root.id(), much(), None).await, DeliverError::code);
    let agent = root.agent();
    note(&ends, "agent.start_continuable", agent.start_continuable(Delegate::new("mute", "is told much", much())).await, StartError::code);
    let child = agent.start_continuable(Delegate::new("mute", "is told later", "begin")).await.unwrap().child;
    note(&ends, "agent.followup", agent.followup(&child, much()).await, DeliverError::code);
    assert_eq!(root.quiescent().await.unwrap(), []);
    runtime.shutdown().await;
    let mut ends = ends.lock().unwrap().clone();
    ends.sort();
    ends
}

const WAYS: [&str; 7] = ["agent.followup", "agent.start_continuable", "host.send", "root.send", "turn.delegate", "turn.report", "turn.send_message"];

#[tokio::test]
async fn the_largest_message_is_taken_by_every_way() {
    assert_eq!(everywhere(MAX_MESSAGE_BYTES).await, WAYS.map(|way| (way, None)));
}

#[tokio::test]
async fn one_byte_more_is_refused_by_every_way_with_the_limit() {
    let ends = everywhere(MAX_MESSAGE_BYTES + 1).await;
    assert_eq!(ends.iter().map(|(way, _)| *way).collect::<Vec<_>>(), WAYS);
    for (way, end) in ends {
        let (code, text) = end.unwrap_or_else(|| panic!("{way} takes it"));
        assert_eq!(code, "MESSAGE_TOO_LARGE", "{way}: {text}");
        assert!(text.contains("16777216") && text.contains("16777217"), "{way}: {text}");
    }
}

/// A message that no constructor makes.
fn over_the_limit(id: &str) -> Message {
    let small = Message::turn(id, "small", Source::User, 1_000).unwrap();
    Message { content: vec![Block::text("x".repeat(MAX_MESSAGE_BYTES)), Block::text("y")], ..small }
}

fn no_store_takes_a_message_over_the_limit_however_it_was_made(world: &World) {
    world.root("r");
    let accepted = world.one(Op::Accept(Accept::new(sid("r"), over_the_limit("m"))));
    assert_eq!(accepted.unwrap_err().code(), "MESSAGE_TOO_LARGE");
    let mut create = Create::root(NewSession::root(sid("q")), "worker", "a root");
    create.message = Some(Arc::new(over_the_limit("m")));
    assert_eq!(world.one(Op::Create(create)).unwrap_err().code(), "MESSAGE_TOO_LARGE");
    let log = world.reader().load(&sid("r")).unwrap();
    let header = Arc::new(NewSession::root(sid("p")).at(1_000));
    let record = InboxRecord { order: 0, held: true, message: Arc::new(over_the_limit("m")) };
    let import = Import::new(header, log.events.into(), [InboxLine::Waiting(record)].into());
    let refused = import.map_err(|error| error.code()).and_then(|import| world.one(Op::Import(import)).map_err(|error| error.code()));
    assert!(matches!(refused, Err("MESSAGE_TOO_LARGE" | "SESSION_INVALID")), "{refused:?}");
    for id in ["q", "p"] {
        assert_eq!(world.reader().header(&sid(id)).unwrap(), None);
    }
    assert_eq!(world.reader().inbox(&sid("r"), 9).unwrap(), []);
}

#[tokio::test]
async fn a_text_that_takes_more_room_as_json_is_refused_with_the_room_that_there_is() {
    let runtime = Runtime::builder().closure("desk", |_: Turn| async { Ok(TurnEnd::Completed) }).open("memory:").await.unwrap();
    let root = runtime.root("desk", "a desk").await.unwrap();
    let error = root.send("\u{1}".repeat(MAX_MESSAGE_BYTES / 4)).await.unwrap_err();
    assert_eq!(error.code(), "MESSAGE_TOO_LARGE");
    assert!(error.to_string().contains("takes at most 17821696 bytes as JSON, this one takes 25165"), "{error}");
    runtime.shutdown().await;
}

/// Runs the program with this on its stdin; its exit and what it complains of.
#[cfg(feature = "cli")]
fn send(url: &str, words: &[&str], stdin: &str) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_greenroom"));
    command.args(["send", "r"]).args(words).args(["--store", url]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Whoever refuses it need not read it to its end.
    drop(child.stdin.take().unwrap().write_all(stdin.as_bytes()));
    let said = child.wait_with_output().unwrap();
    (said.status.code().unwrap(), String::from_utf8(said.stderr).unwrap())
}

#[cfg(feature = "cli")]
#[test]
fn the_program_takes_as_much_from_its_stdin_and_from_an_import() {
    for world in [World::sqlite(), World::jsonl()] {
        world.root("r");
        world.close();
        let url = format!("{}:{}", if world.kind == Kind::Sqlite { "sqlite" } else { "jsonl" }, world.path().display());
        let much = "x".repeat(MAX_MESSAGE_BYTES + 1);
        assert_eq!(send(&url, &["-", "--message-id", "m0"], &much[1..]), (0, String::new()));
        let (exit, said) = send(&url, &["-"], &much);
        assert!(exit != 0 && said.contains("error[MESSAGE_TOO_LARGE]") && said.contains("16777216") && said.contains("16777217"), "{exit}: {said}");
        // As long as Linux lets an argument be.
        let argument = "x".repeat(128 * 1024 - 1);
        assert_eq!(send(&url, &[&argument, "--message-id", "m1"], ""), (0, String::new()));
        let folder = tempfile::tempdir().unwrap();
        let mut reader = world.reader();
        let sizes: Vec<usize> = reader.inbox(&sid("r"), 9).unwrap().iter().map(|record| record.message.text().len()).collect();
        assert_eq!(sizes, [MAX_MESSAGE_BYTES, argument.len()]);
        greenroom_session::transfer::export_folder(&mut *reader, &[sid("r")], &folder.path().join("out"), &mut |_| {}).unwrap();
        let other = World::memory();
        let report = import_folder(&*other.plain(), &folder.path().join("out"), false, &mut |_| {}).unwrap();
        assert_eq!((report.imported, report.troubles.len()), (1, 0));
        assert_eq!(other.reader().inbox(&sid("r"), 9).unwrap()[0].message.text().len(), MAX_MESSAGE_BYTES);
    }
}
