//! A message that is sent, and one that is taken back: what is said of it is so, now and later.

use greenroom::session::event::Body;

use super::shim::{Disaster, disasters, judged, operations, under};
use crate::cli::{self, Desk, Kind, Said, continuable, id};

/// A child with one message that waits.
fn desk(kind: Kind) -> Desk {
    let desk = Desk::over(kind);
    let store = desk.any_store();
    cli::root(&*store, "root-one", "a root", 100);
    cli::child(&*store, "child-1", "root-one", &continuable("a child"), 200);
    cli::accept(&*store, "child-1", "m0", "before");
    store.close().unwrap();
    desk
}

const SEND: [&str; 5] = ["send", "child-1", "hello", "--message-id", "m1"];
const WITHDRAW: [&str; 3] = ["withdraw", "child-1", "m0"];

/// The ids that wait, in order.
fn waiting(desk: &Desk) -> Vec<String> {
    let inbox = desk.any_store().reader().unwrap().inbox(&id("child-1"), 10).unwrap();
    inbox.iter().map(|record| record.message.id.to_string()).collect()
}

/// Returns what a verb said that came to its end.
fn said(desk: &Desk, words: &[&str], disaster: Disaster) -> Option<Said> {
    let output = under(desk.command(words), desk.folder(), disaster).output().unwrap();
    output.status.code()?;
    let said = Said::of(&output);
    assert!(matches!(said.exit, 0 | 1) && !said.err.contains("panicked"), "{disaster}: {said:?}");
    Some(said)
}

fn is_unknown(said: &Said) -> bool {
    said.err.contains("error[INDETERMINATE]")
}

fn sent(kind: Kind, disaster: Disaster) {
    let desk = desk(kind);
    let said = said(&desk, &SEND, disaster);
    let there = waiting(&desk);
    match &said {
        None => assert!(there == ["m0"] || there == ["m0", "m1"], "{disaster}: {there:?}"),
        Some(said) if said.exit == 0 => assert_eq!(there, ["m0", "m1"], "{disaster}: accepted, and gone: {said:?}"),
        Some(said) if is_unknown(said) => {}
        // It has been opened for writing since: what had been left behind would have come.
        Some(said) => assert_eq!(there, ["m0"], "{disaster}: not delivered, and there: {said:?}"),
    }
    // Whoever has not heard sends it again; whoever comes later stands behind it.
    for words in [&SEND[..], &["send", "child-1", "later", "--message-id", "m2"]] {
        let again = desk.run(words);
        assert_eq!(again.exit, 0, "{disaster}: {again:?}");
    }
    assert_eq!(waiting(&desk), ["m0", "m1", "m2"], "{disaster}");
    let checked = desk.run(&["check"]);
    assert_eq!(checked.exit, 0, "{disaster}: {checked:?}");
}

fn taken_back(kind: Kind, disaster: Disaster) {
    let desk = desk(kind);
    let said = said(&desk, &WITHDRAW, disaster);
    let there = waiting(&desk).contains(&"m0".to_owned());
    match &said {
        Some(said) if said.exit == 0 => assert!(!there, "{disaster}: taken back, and there: {said:?}"),
        // The request may be there, and be answered by whoever comes next.
        _ => {}
    }
    let again = desk.run(&WITHDRAW);
    assert!(again.exit == 0 || again.err.contains("error[NOT_PENDING]"), "{disaster}: {again:?}");
    assert_eq!(waiting(&desk), <[&str; 0]>::default(), "{disaster}");
    let events = desk.any_store().reader().unwrap().load(&id("child-1")).unwrap().events;
    let times = events.iter().filter(|event| matches!(&event.body, Body::MessageWithdrawn { .. })).count();
    assert_eq!(times, 1, "{disaster}: {events:?}");
    let checked = desk.run(&["check"]);
    assert_eq!(checked.exit, 0, "{disaster}: {checked:?}");
}

fn every_operation(kind: Kind, words: &[&str], stride: usize, judge: fn(Kind, Disaster)) {
    let desk = desk(kind);
    let disasters = disasters(operations(desk.command(words), desk.folder()), stride);
    judged(&disasters, |disaster| judge(kind, disaster));
}

#[test]
fn what_is_said_of_a_message_to_a_database_is_so_whatever_happens_at_any_operation() {
    every_operation(Kind::Sqlite, &SEND, 5, sent);
}

#[test]
fn what_is_said_of_a_message_to_a_folder_is_so_whatever_happens_at_any_operation() {
    every_operation(Kind::Jsonl, &SEND, 1, sent);
}

#[test]
fn a_message_is_taken_back_from_a_database_once_whatever_happens_at_any_operation() {
    every_operation(Kind::Sqlite, &WITHDRAW, 9, taken_back);
}

#[test]
fn a_message_is_taken_back_from_a_folder_once_whatever_happens_at_any_operation() {
    every_operation(Kind::Jsonl, &WITHDRAW, 3, taken_back);
}
