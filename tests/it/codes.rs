//! Damage and refusals that need a store to be harmed: which code each of them has.

use std::{os::unix::process::CommandExt, process::Stdio};

use greenroom::{
    Occurrence, Runtime, Turn, TurnEnd,
    session::{
        codec::{Encoded, encode_event, header_crc},
        event::{Body, TurnEnd as Reason},
        header::{Header, NewSession},
        store::{Create, Op, Refused, Store, StoreError},
    },
};
use rusqlite::Connection;
use serde_json::json;

use crate::cli::{self, Desk, Said, child, continuable, id, root};

fn sql(desk: &Desk) -> Connection {
    Connection::open(desk.path("desk.db")).unwrap()
}

/// A store with one root, open for plain SQL.
fn one_root() -> (Desk, Connection) {
    let desk = Desk::new();
    root(&desk.store(), "desk", "a desk", 100);
    let conn = sql(&desk);
    (desk, conn)
}

fn put_header(conn: &Connection, header: &Header) {
    // As whoever knows that version would write it.
    let body = serde_json::to_string(header).unwrap();
    let crc = header_crc(body.as_bytes());
    conn.execute("UPDATE session SET header = ?2, crc = ?3, created_at = ?4 WHERE id = ?1", (header.id.as_str(), body, crc, header.created_at.cast_signed()))
        .unwrap();
}

fn put_event(conn: &Connection, session: &str, body: Body, seq: u64) {
    let Encoded { body, crc } = encode_event(&id(session), &body.at(seq, 200)).unwrap();
    let body = String::from_utf8(body).unwrap();
    conn.execute("INSERT INTO event(sid, seq, body, crc) SELECT sid, ?2, ?3, ?4 FROM session WHERE id = ?1", (session, seq.cast_signed(), body, crc)).unwrap();
}

async fn runtime(desk: &Desk) -> Runtime {
    let cast = Runtime::builder().closure("editor", |_turn: Turn| async { Ok(TurnEnd::Completed) });
    cast.open(&format!("sqlite:{}", desk.path("desk.db").display())).await.unwrap()
}

#[tokio::test]
async fn a_query_says_what_is_wrong_with_what_it_reads() {
    let (desk, conn) = one_root();
    let runtime = runtime(&desk).await;
    let desk_id = id("desk");
    let window = runtime.read_event(&desk_id, 0, 51, 0).await;
    assert_eq!(window.unwrap_err().code(), "SESSION_QUERY_INVALID_WINDOW");
    assert_eq!(runtime.read_event(&desk_id, 0, 0, 51).await.unwrap_err().code(), "SESSION_QUERY_INVALID_WINDOW");
    assert_eq!(runtime.read_event(&desk_id, 9, 50, 50).await.unwrap_err().code(), "SESSION_QUERY_EVENT_NOT_FOUND");
    assert_eq!(runtime.trace(&id("nobody")).await.unwrap_err().code(), "SESSION_QUERY_SESSION_NOT_FOUND");
    // The end of a turn that never began: each record is whole, and they do not follow from one another.
    put_event(&conn, "desk", Body::TurnEnd { turn: 1, reason: Reason::Completed }, 2);
    assert_eq!(runtime.last_answer(&desk_id).await.unwrap_err().code(), "SESSION_QUERY_INVALID_SURFACE");
    conn.execute("UPDATE event SET body = replace(body, 'completed', 'completef') WHERE seq = 2", []).unwrap();
    assert_eq!(runtime.read_events(&desk_id).await.unwrap_err().code(), "SESSION_QUERY_CORRUPT_SESSION");
    conn.execute_batch("ALTER TABLE event RENAME TO elsewhere").unwrap();
    assert_eq!(runtime.read_events(&desk_id).await.unwrap_err().code(), "SESSION_QUERY_PERSISTENCE_FAILED");
    runtime.shutdown().await;
}

#[tokio::test]
async fn a_lineage_that_runs_in_a_circle_is_told_and_not_followed() {
    let desk = Desk::new();
    let store = desk.store();
    // A parent need not be there when its child is created.
    child(&store, "a", "b", &continuable("one"), 100);
    child(&store, "b", "a", &continuable("other"), 100);
    drop(store);
    let runtime = runtime(&desk).await;
    assert_eq!(runtime.trace(&id("a")).await.unwrap_err().code(), "SESSION_QUERY_INVALID_LINEAGE");
    runtime.shutdown().await;
    let said = desk.run(&["list", "a", "--json"]);
    assert_eq!((said.exit, &said.json()["error"]["code"]), (7, &json!("SESSION_QUERY_INVALID_LINEAGE")), "{said:?}");
}

#[tokio::test]
async fn a_stored_header_that_is_not_the_live_one_fails_the_call() {
    let (desk, conn) = one_root();
    // In a turn it writes nothing, so that its epoch does not end of what is done to its header.
    let stay = |turn: Turn| async move {
        turn.cancelled().cancelled().await;
        Ok(TurnEnd::Completed)
    };
    let runtime = Runtime::builder().closure("editor", stay).open(&format!("sqlite:{}", desk.path("desk.db").display())).await.unwrap();
    let mut occurrences = runtime.subscribe();
    let kept = runtime.resume(&id("desk")).await.unwrap();
    kept.send("stay").await.unwrap();
    while !matches!(occurrences.recv().await.unwrap(), Occurrence::TurnStarted { .. }) {}
    assert!(runtime.trace(kept.id()).await.is_ok());
    put_header(&conn, &NewSession::root(id("desk")).at(101));
    assert_eq!(runtime.trace(kept.id()).await.unwrap_err().code(), "SESSION_QUERY_SOURCE_CONFLICT");
    assert_eq!(runtime.list(Some(kept.id())).await.unwrap_err().code(), "SESSION_QUERY_SOURCE_CONFLICT");
    drop(kept);
    runtime.shutdown().await;
}

#[test]
fn what_a_newer_greenroom_wrote_is_refused_by_its_version() {
    let (desk, conn) = one_root();
    let mut header = NewSession::root(id("desk")).at(100);
    header.version = 2;
    put_header(&conn, &header);
    let said = desk.run(&["log", "desk", "--json"]);
    assert_eq!((said.exit, &said.json()["error"]["code"]), (1, &json!("SESSION_VERSION")), "{said:?}");
    conn.execute_batch("PRAGMA user_version = 2").unwrap();
    let said = desk.run(&["list", "--json"]);
    assert_eq!((said.exit, &said.json()["error"]["code"]), (1, &json!("STORE_VERSION")), "{said:?}");
}

#[test]
fn a_store_whose_own_pages_are_damaged_is_told_as_such() {
    let desk = Desk::new();
    let store = desk.store();
    for n in 0..50 {
        root(&store, &format!("desk-{n}"), &"x".repeat(200), 100);
    }
    drop(store);
    sql(&desk).execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let mut bytes = std::fs::read(desk.path("desk.db")).unwrap();
    // The first page is the mark by which the store is known; everything after it is lost.
    bytes[4096..].fill(0x5a);
    std::fs::write(desk.path("desk.db"), bytes).unwrap();
    let said = desk.run(&["list", "--json"]);
    assert_eq!((said.exit, &said.json()["error"]["code"]), (7, &json!("STORE_DAMAGED")), "{said:?}");
}

#[test]
fn a_disk_that_takes_no_more_fails_the_send_and_loses_nothing() {
    let (desk, conn) = one_root();
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(conn);
    // A limit on the size of files stands for a failing disk: the shell ignores the signal that would end the program.
    let mut limited = desk.command(&["send", "desk", "hello", "--json"]);
    let words: Vec<_> = limited.get_args().map(ToOwned::to_owned).collect();
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg("trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\"").arg(limited.get_program()).args(words);
    shell.current_dir(desk.folder()).stdin(Stdio::null()).arg0("sh");
    for (name, value) in limited.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    let said = Said::of(&shell.output().unwrap());
    limited.env_clear();
    let code = said.json()["error"]["code"].as_str().unwrap().to_owned();
    assert!(said.exit == 1 && ["NOT_DELIVERED", "INDETERMINATE", "STORE_FAILED", "STORE_FULL"].contains(&code.as_str()), "{said:?}");
    assert_eq!(desk.run(&["show", "desk", "--json"]).json()["pending"], json!(0), "what was not accepted is not there");
    assert_eq!(desk.run(&["send", "desk", "hello"]).exit, 0);
}

#[test]
fn a_store_whose_folder_is_a_file_cannot_be_had() {
    let desk = Desk::new();
    desk.write("file", "no folder");
    let said = desk.run(&["list", "--store", "sqlite:file/desk.db", "--json"]);
    assert_eq!((said.exit, &said.json()["error"]["code"]), (1, &json!("STORE_FAILED")), "{said:?}");
    assert_eq!(std::fs::read(desk.path("file")).unwrap(), b"no folder");
}

#[test]
fn what_the_disk_says_has_a_code_that_does_not_change() {
    let full: StoreError = std::io::Error::from(std::io::ErrorKind::StorageFull).into();
    assert_eq!(full.code(), "STORE_FULL");
    assert_eq!(StoreError::Unsupported("not here".into()).code(), "STORE_UNSUPPORTED");
    assert_eq!((Refused::Pending(1).code(), Refused::NotPending(0).code()), ("PENDING", "NOT_PENDING"));
}

#[test]
fn a_list_of_files_that_cannot_be_read_back_fails_the_turn_with_its_own_code() {
    let desk = Desk::new();
    desk.write("files.toml", "run = { root = 'a', prompt = 'go' }\n[agents.a]\nbehavior = 'script'\nturns = [[{ for_each = { files = '*.toml', steps = [{ memo = '{file}' }] } }, { say = 'done' }]]\n");
    // An attempt that recorded something else under the list's name, and was cut off.
    let named = desk.run(&["run", "files.toml", "--json"]).json()["root"].as_str().unwrap().to_owned();
    let store = desk.store();
    let log = store.reader().unwrap().load(&id(&named)).unwrap();
    let key = log.events.iter().find_map(|event| match &event.body {
        Body::Memo { key: Some(key), .. } => Some(key.clone()),
        _ => None,
    });
    let message = log.events.iter().find_map(|event| match &event.body {
        Body::TurnStart { message, .. } => Some(message.clone()),
        _ => None,
    });
    let (key, message) = (key.unwrap(), message.unwrap());
    let until = log.events.iter().position(|event| matches!(event.body, Body::Memo { .. })).unwrap();
    let mut events: Vec<_> = log.events[..until].to_vec();
    events.push(Body::Memo { turn: 1, message, key: Some(key), text: "no list".into() }.at(until as u64, 200));
    let create = Create { session: NewSession::root(id("again")), time: 200, events: events.into(), message: None };
    cli::commit(&store, Op::Create(create));
    drop(store);
    desk.run(&["run", "files.toml", "--root", "again"]);
    let said = desk.run(&["log", "again"]);
    assert!(said.out.contains("RECORD_INVALID"), "{} {:?}", said.out, log.events);
}
