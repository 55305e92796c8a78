//! Whole sessions: in exactly as they were, held until they are released, out as the same lines from every store, and away for ever.

use std::sync::Arc;

use greenroom_session::{
    codec::encode_header,
    event::{Body, EpochEnd, Event, TurnEnd},
    header::NewSession,
    id::SessionId,
    line::{Line, read_line, read_verbatim, write_line},
    listing::Verdict,
    message::{Control, InboxRecord, Message, Tombstone},
    store::{ClaimKind, Create, Done, ExportError, Import, InboxLine, LoadError, Op, Reader, Refused, Release, Remove, Store, Verbatim, memory::MemoryStore},
};

use crate::support::{Fixture, accept, append, child, describe, fence, fork, heard, mid, note, one, open, root, sid, turn};

crate::on_every_store!(
    an_export_is_the_header_the_events_and_the_inbox_in_their_order,
    an_import_is_the_identity,
    an_import_keeps_what_this_program_does_not_know,
    an_import_waits_until_it_is_released,
    an_unfinished_turn_waits_until_it_is_released,
    an_epoch_without_an_end_waits_until_it_is_released,
    what_comes_after_an_import_waits_behind_it,
    a_held_message_that_is_withdrawn_holds_nothing_more,
    a_release_is_repeated_safely_and_needs_a_session,
    the_same_import_again_changes_nothing,
    another_session_of_the_same_id_is_refused,
    an_import_that_does_not_follow_is_refused_and_leaves_nothing,
    an_alias_is_not_imported_twice,
    a_creation_that_was_imported_is_the_same_acceptance,
    a_message_that_was_imported_is_the_same_acceptance,
    children_may_come_before_their_parents,
    a_removed_session_is_gone_for_ever,
    a_late_writer_is_fenced_by_a_removal,
    a_session_with_children_is_not_removed,
    a_session_with_work_is_removed_only_when_it_is_discarded,
    a_live_session_is_not_removed,
    what_is_removed_leaves_its_neighbours_as_they_were,
    the_last_child_of_a_missing_parent_takes_the_orphans_with_it,
);

/// Writes a session out.
pub(crate) fn lines(reader: &mut dyn Reader, id: &str) -> Vec<String> {
    let mut lines = Vec::new();
    reader
        .export(&sid(id), &mut |line| {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
            Ok(())
        })
        .unwrap();
    lines
}

/// Reads an export back.
pub(crate) fn import(lines: &[String]) -> Import {
    let id = SessionId::new(serde_json::from_str::<serde_json::Value>(&lines[0]).unwrap()["id"].as_str().unwrap()).unwrap();
    let (mut header, mut events, mut inbox) = (None, Vec::new(), Vec::new());
    let mut bytes = Verbatim { header: encode_header(&NewSession::root(id.clone()).at(0)).unwrap(), events: vec![], messages: vec![] };
    for line in lines {
        let (line, encoded) = read_verbatim(&id, events.len() as u64, line.as_bytes()).unwrap();
        match line {
            Line::Header(found) => (header, bytes.header) = (Some(found), encoded),
            Line::Event(event) => {
                events.push(event);
                bytes.events.push(encoded);
            }
            Line::Message(record) => {
                inbox.push(InboxLine::Waiting(record));
                bytes.messages.push(encoded.body);
            }
            Line::Taken(tombstone) => {
                inbox.push(InboxLine::Taken(tombstone));
                bytes.messages.push(vec![]);
            }
        }
    }
    Import::verbatim(Arc::new(header.unwrap()), events.into(), inbox.into(), bytes)
}

fn unheld(lines: &[String]) -> Vec<String> {
    // Who is held changes the checksum, too.
    let cut = |line: &String| line.rfind(",\"crc\"").map(|at| line[..at].replace("\"held\":true,", "")).unwrap();
    lines.iter().map(cut).collect()
}

/// A session in a store of its own, as lines.
fn lived(make: impl FnOnce(&Fixture)) -> Vec<String> {
    let elsewhere = Fixture::memory();
    make(&elsewhere);
    lines(&mut *elsewhere.reader(), "r")
}

fn with_messages(f: &Fixture) {
    f.create(Create { message: Some(Arc::new(turn("m0"))), ..root("r", 1_000) });
    let (fence, _) = f.open("r", Some(3));
    f.accept("r", note("n1", true)).unwrap();
    f.accept("r", note("n2", false)).unwrap();
    f.claim(&fence, ClaimKind::Notes);
    f.end_turn(&fence, 1, TurnEnd::Completed);
    f.accept("r", turn("m3")).unwrap();
    f.accept("r", Message::control(mid("c4"), Control::Interrupt { turn: Some(1) }, 9)).unwrap();
    f.accept("r", Message::control(mid("c5"), Control::Withdraw { target: mid("m3") }, 9)).unwrap();
    let seq = f.next_seq("r");
    let answered = Body::ControlAnswered { control: mid("c5"), op: "withdraw".into(), outcome: "done".into() }.at(seq, 4);
    let withdrawn = Body::MessageWithdrawn { message: mid("m3"), by: "user".into() }.at(seq + 1, 4);
    f.one(append(&fence, vec![answered, withdrawn], vec![5, 3])).unwrap();
    f.accept("r", note("n6", true)).unwrap();
    f.accept("r", turn("m7")).unwrap();
    f.close(&fence, false).unwrap();
}

fn an_export_is_the_header_the_events_and_the_inbox_in_their_order(f: &Fixture) {
    with_messages(f);
    let found = lines(&mut *f.reader(), "r");
    let log = f.load("r");
    let mut expected = vec![Line::Header((**log.fold.header()).clone())];
    expected.extend(log.events.iter().cloned().map(Line::Event));
    let record = |order, message: Message| InboxRecord { order, held: false, message: Arc::new(message) };
    let taken = |order, message: Message| Line::Taken(Tombstone::of(&record(order, message)));
    expected.extend([
        taken(0, turn("m0")),
        taken(1, note("n1", true)),
        taken(2, note("n2", false)),
        taken(3, turn("m3")),
        Line::Message(record(4, Message::control(mid("c4"), Control::Interrupt { turn: Some(1) }, 9))),
        taken(5, Message::control(mid("c5"), Control::Withdraw { target: mid("m3") }, 9)),
        Line::Message(record(6, note("n6", true))),
        Line::Message(record(7, turn("m7"))),
    ]);
    let expected: Vec<_> = expected.iter().map(|line| String::from_utf8(write_line(&sid("r"), line).unwrap()).unwrap()).collect();
    assert_eq!(found, expected);
    // And it is what the other store says.
    assert_eq!(found, lived(with_messages));

    let error = f.reader().export(&sid("nobody"), &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, ExportError::Load(LoadError::NotFound(_))), "{error:?}");
    let error = f.reader().export(&sid("r"), &mut |_| Err(std::io::ErrorKind::StorageFull.into())).unwrap_err();
    assert_eq!(error.code(), "EXPORT_FAILED");
}

fn an_import_is_the_identity(f: &Fixture) {
    let before = lived(with_messages);
    assert_eq!(f.one(Op::Import(import(&before))), Ok(Done::Imported { existing: false }));
    let held = lines(&mut *f.reader(), "r");
    assert_eq!(unheld(&held), unheld(&before));
    assert_eq!(held.iter().filter(|line| line.contains("\"held\":true")).count(), 3);
    assert_eq!(f.one(Op::Release(Release { session: sid("r") })), Ok(Done::Released { records: 3 }));
    assert_eq!(lines(&mut *f.reader(), "r"), before);
    // Everything else that a reader says is the same, too.
    let elsewhere = Fixture::memory();
    with_messages(&elsewhere);
    let (here, there) = (f.load("r"), elsewhere.load("r"));
    assert_eq!((here.events, here.fold), (there.events, there.fold));
    for verify in [false, true] {
        assert_eq!(describe(&mut *f.reader(), "r", verify).unwrap().head, elsewhere.describe("r").unwrap().head);
    }
    for message in ["m0", "n1", "c4", "c5", "m7"] {
        assert_eq!(f.reader().message(&sid("r"), &mid(message)).unwrap(), elsewhere.reader().message(&sid("r"), &mid(message)).unwrap());
    }
}

fn an_import_keeps_what_this_program_does_not_know(f: &Fixture) {
    let id = sid("r");
    let seal = |body: &str| {
        let crc = greenroom_session::codec::event_crc(&id, body.as_bytes());
        format!("{},\"crc\":\"{crc:08x}\"}}", body.strip_suffix('}').unwrap())
    };
    let text = |line| String::from_utf8(write_line(&id, &line).unwrap()).unwrap();
    let before = vec![
        text(Line::Header(NewSession::root(id.clone()).at(5))),
        seal(r#"{"seq":0,"time":1,"type":"session/end-seed","data":{"weather":[1.50,"fair"]}}"#),
        seal(r#"{"seq":1,"time":1,"data":{"b":1,"a":2},"type":"weather/changed","ignorable":true}"#),
    ];
    f.one(Op::Import(import(&before))).unwrap();
    assert_eq!(lines(&mut *f.reader(), "r"), before);
    assert_eq!(f.one(Op::Import(import(&before))), Ok(Done::Imported { existing: true }));
    // The unknown key is a part of the session.
    let log = f.load("r");
    let known_only = Import::new(log.fold.header().clone(), log.events.into(), Arc::new([])).unwrap();
    assert_eq!(f.one(Op::Import(known_only)), Err(Refused::Exists(id)));
}

fn an_import_waits_until_it_is_released(f: &Fixture) {
    f.one(Op::Import(import(&lived(with_messages)))).unwrap();
    let head = f.load("r").fold.head().clone();
    assert_eq!((head.pending_turns, head.pending_quiet, head.pending_controls, head.held), (1, 1, 1, 3));
    for verify in [false, true] {
        assert_eq!(describe(&mut *f.reader(), "r", verify).unwrap().head, head);
    }
    assert!(f.reader().runnable(None, 9).unwrap().is_empty());
    assert!(f.reader().inbox(&sid("r"), 9).unwrap().iter().all(|record| record.held));
    // Whoever begins an epoch all the same gets nothing.
    let (fence, claimed) = f.open("r", Some(7));
    assert_eq!(claimed, None);
    assert_eq!(f.claim(&fence, ClaimKind::Turn), None);
    f.one(Op::Release(Release { session: sid("r") })).unwrap();
    assert_eq!(heard(&f.claim(&fence, ClaimKind::Turn).unwrap()), ["n6", "m7"]);
}

fn an_unfinished_turn_waits_until_it_is_released(f: &Fixture) {
    type Life = fn(&Fixture, &greenroom_session::store::Fence);
    let cut_off: Life = |_, _| {};
    let interrupted: Life = |f, fence| f.end_turn(fence, 1, TurnEnd::Interrupted);
    for life in [cut_off, interrupted] {
        let id = if life as usize == cut_off as usize { "open" } else { "retry" };
        let before = {
            let elsewhere = Fixture::memory();
            elsewhere.create(Create { message: Some(Arc::new(turn("m0"))), ..root(id, 1_000) });
            let (fence, _) = elsewhere.open(id, Some(3));
            elsewhere.accept(id, turn("m1")).unwrap();
            life(&elsewhere, &fence);
            lines(&mut *elsewhere.reader(), id)
        };
        f.one(Op::Import(import(&before))).unwrap();
        let head = f.load(id).fold.head().clone();
        assert!(head.is_unfinished() && head.held == 2 && !head.has_work() && !head.wants_holder(), "{head:?}");
        assert_eq!(f.describe(id).unwrap().head, head);
        assert!(f.reader().runnable(None, 9).unwrap().is_empty());
        let (fence, claimed) = f.open(id, Some(7));
        assert_eq!((claimed, f.claim(&fence, ClaimKind::Turn)), (None, None));
        assert_eq!(f.one(Op::Release(Release { session: sid(id) })), Ok(Done::Released { records: 2 }));
        let claimed = f.claim(&fence, ClaimKind::Turn).unwrap();
        assert!(matches!(&claimed.events[0].body, Body::TurnStart { message, attempt: 2, .. } if *message == mid("m0")), "{claimed:?}");
        f.end_turn(&fence, 2, TurnEnd::Completed);
        assert_eq!(heard(&f.claim(&fence, ClaimKind::Turn).unwrap()), ["m1"]);
        f.end_turn(&fence, 3, TurnEnd::Completed);
        f.close(&fence, true).unwrap();
    }
}

fn an_epoch_without_an_end_waits_until_it_is_released(f: &Fixture) {
    let before = lived(|f| {
        f.create(Create { message: Some(Arc::new(turn("m0"))), ..root("r", 1_000) });
        let (fence, _) = f.open("r", Some(3));
        f.end_turn(&fence, 1, TurnEnd::Completed);
    });
    f.one(Op::Import(import(&before))).unwrap();
    assert!(f.reader().runnable(None, 9).unwrap().is_empty());
    assert_eq!(f.one(Op::Release(Release { session: sid("r") })), Ok(Done::Released { records: 1 }));
    assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("r")]);
    assert_eq!(lines(&mut *f.reader(), "r"), before);
}

fn what_comes_after_an_import_waits_behind_it(f: &Fixture) {
    f.one(Op::Import(import(&lived(with_messages)))).unwrap();
    assert_eq!(f.accept("r", turn("m8")), Ok(Done::Accepted { order: 8, duplicate: false }));
    assert!(!f.reader().inbox(&sid("r"), 9).unwrap().last().unwrap().held);
    assert!(f.reader().runnable(None, 9).unwrap().is_empty());
    let (fence, claimed) = f.open("r", Some(7));
    assert_eq!(claimed, None);
    f.one(Op::Release(Release { session: sid("r") })).unwrap();
    assert_eq!(heard(&f.claim(&fence, ClaimKind::Turn).unwrap()), ["n6", "m7"]);
    f.end_turn(&fence, 2, TurnEnd::Completed);
    assert_eq!(heard(&f.claim(&fence, ClaimKind::Turn).unwrap()), ["m8"]);
}

fn a_held_message_that_is_withdrawn_holds_nothing_more(f: &Fixture) {
    f.one(Op::Import(import(&lived(|f| {
        f.root("r");
        f.accept("r", turn("m0")).unwrap();
    }))))
    .unwrap();
    f.accept("r", turn("m1")).unwrap();
    let (fence, _) = f.open("r", None);
    let seq = f.next_seq("r");
    f.one(append(&fence, vec![Body::MessageWithdrawn { message: mid("m0"), by: "user".into() }.at(seq, 4)], vec![0])).unwrap();
    assert_eq!(f.load("r").fold.head().held, 0);
    assert_eq!(f.describe("r").unwrap().head, *f.load("r").fold.head());
    assert_eq!(heard(&f.claim(&fence, ClaimKind::Turn).unwrap()), ["m1"]);
    assert!(!lines(&mut *f.reader(), "r").iter().any(|line| line.contains("held")));
}

fn a_release_is_repeated_safely_and_needs_a_session(f: &Fixture) {
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    let release = |id: &str| Op::Release(Release { session: sid(id) });
    assert_eq!(f.one(release("r")), Ok(Done::Released { records: 0 }));
    assert_eq!(f.one(release("q")), Err(Refused::NotFound(sid("q"))));
    assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("r")]);
}

fn the_same_import_again_changes_nothing(f: &Fixture) {
    let before = lived(with_messages);
    f.one(Op::Import(import(&before))).unwrap();
    let held = lines(&mut *f.reader(), "r");
    // Both as it was exported first, and as it is exported while it is held.
    for same in [&before, &held] {
        assert_eq!(f.one(Op::Import(import(same))), Ok(Done::Imported { existing: true }));
        assert_eq!(lines(&mut *f.reader(), "r"), held);
    }
    f.one(Op::Release(Release { session: sid("r") })).unwrap();
    for same in [&before, &held] {
        assert_eq!(f.one(Op::Import(import(same))), Ok(Done::Imported { existing: true }));
        assert_eq!(lines(&mut *f.reader(), "r"), before);
    }
}

fn another_session_of_the_same_id_is_refused(f: &Fixture) {
    let before = lived(with_messages);
    f.one(Op::Import(import(&before))).unwrap();
    let held = lines(&mut *f.reader(), "r");
    let others: [fn(&Fixture); 5] = [
        |f| drop(f.create(root("r", 1_001))),
        |f| drop(f.root("r")),
        |f| {
            with_messages(f);
            f.accept("r", turn("m8")).unwrap();
        },
        |f| {
            with_messages(f);
            f.open("r", None);
        },
        |f| {
            f.create(Create { message: Some(Arc::new(Message { sent_at: 77, ..turn("m0") })), ..root("r", 1_000) });
        },
    ];
    for other in others {
        assert_eq!(f.one(Op::Import(import(&lived(other)))), Err(Refused::Exists(sid("r"))));
        assert_eq!(lines(&mut *f.reader(), "r"), held);
    }
    // What is here has moved on.
    f.one(Op::Release(Release { session: sid("r") })).unwrap();
    f.open("r", None);
    assert_eq!(f.one(Op::Import(import(&before))), Err(Refused::Exists(sid("r"))));
}

fn an_import_that_does_not_follow_is_refused_and_leaves_nothing(f: &Fixture) {
    type Change = fn(&mut Vec<Event>, &mut Vec<InboxLine>);
    let before = import(&lived(with_messages));
    let (header, events, inbox) = (before.header().clone(), before.events().to_vec(), before.inbox().to_vec());
    let cut_off = import(&lived(|f| {
        f.create(Create { message: Some(Arc::new(turn("m0"))), ..root("r", 1_000) });
        f.open("r", Some(3));
    }));
    let changes: [(&str, Change); 8] = [
        ("a gap in the events", |events, _| drop(events.remove(2))),
        ("no events at all", |events, _| events.clear()),
        ("a gap in the inbox", |_, inbox| drop(inbox.remove(1))),
        ("the inbox in another order", |_, inbox| inbox.swap(0, 1)),
        ("an id twice", |_, inbox| {
            if let InboxLine::Waiting(record) = &mut inbox[7] {
                record.message = Arc::new(turn("m0"));
            }
        }),
        ("a message that waits and was served", |_, inbox| inbox[0] = InboxLine::Waiting(InboxRecord { order: 0, held: false, message: Arc::new(turn("m0")) })),
        ("a message that has left without a word", |_, inbox| {
            inbox[7] = InboxLine::Taken(Tombstone::of(&InboxRecord { order: 7, held: false, message: Arc::new(turn("m7")) }));
        }),
        ("a note that was served as a turn", |_, inbox| {
            if let InboxLine::Taken(tombstone) = &mut inbox[0] {
                tombstone.kind = greenroom_session::message::MessageKind::Note;
            }
        }),
    ];
    for (what, change) in changes {
        let (mut events, mut inbox) = (events.clone(), inbox.clone());
        change(&mut events, &mut inbox);
        let import = Import::new(header.clone(), events.into(), inbox.into()).unwrap();
        let refused = f.one(Op::Import(import)).unwrap_err();
        assert!(matches!(refused, Refused::Invalid { .. }), "{what}: {refused:?}");
    }
    let nothing_to_hold = Import::new(header.clone(), cut_off.events().clone(), Arc::new([])).unwrap();
    assert!(matches!(f.one(Op::Import(nothing_to_hold)), Err(Refused::Invalid { .. })));
    // Bytes that are not those of the events.
    let mut bytes = (**before.bytes()).clone();
    bytes.events[1].body[3] ^= 1;
    let flipped = Import::verbatim(header.clone(), events.clone().into(), inbox.clone().into(), bytes);
    assert!(matches!(f.one(Op::Import(flipped)), Err(Refused::Invalid { .. })));
    let mut bytes = (**before.bytes()).clone();
    bytes.events.pop();
    let short = Import::verbatim(header, events.into(), inbox.into(), bytes);
    assert!(matches!(f.one(Op::Import(short)), Err(Refused::Invalid { .. })));
    assert_eq!(f.reader().header(&sid("r")).unwrap(), None);
    assert!(f.reader().find("", 9).unwrap().is_empty());
}

fn an_alias_is_not_imported_twice(f: &Fixture) {
    f.root("r");
    f.create(child("a", "r", Some("anna"), 1));
    let elsewhere = Fixture::memory();
    elsewhere.root("r");
    elsewhere.create(child("b", "r", Some("anna"), 1));
    elsewhere.create(child("c", "r", Some("carl"), 1));
    let mut reader = elsewhere.reader();
    assert_eq!(f.one(Op::Import(import(&lines(&mut *reader, "b")))), Err(Refused::AliasTaken("anna".into())));
    f.one(Op::Import(import(&lines(&mut *reader, "c")))).unwrap();
    assert_eq!(f.one(Op::Create(child("d", "r", Some("carl"), 1))), Err(Refused::AliasTaken("carl".into())));
    assert_eq!(f.reader().alias(&sid("r"), "carl").unwrap(), Some(sid("c")));
    assert_eq!(f.reader().header(&sid("b")).unwrap(), None);
}

fn a_creation_that_was_imported_is_the_same_acceptance(f: &Fixture) {
    f.root("r");
    let mut create = child("a", "r", None, 1_000);
    create.message = Some(Arc::new(turn("m0")));
    let elsewhere = Fixture::memory();
    elsewhere.root("r");
    elsewhere.create(create.clone());
    elsewhere.accept("a", turn("m1")).unwrap();
    let (fence, _) = elsewhere.open("a", Some(3));
    elsewhere.end_turn(&fence, 1, TurnEnd::Completed);
    f.one(Op::Import(import(&lines(&mut *elsewhere.reader(), "a")))).unwrap();
    assert!(matches!(f.one(Op::Create(create.clone())), Ok(Done::Created { existing: true, .. })));
    for other in [turn("m1"), Message { wake: false, ..turn("m0") }, turn("m2")] {
        let other = Create { message: Some(Arc::new(other)), ..create.clone() };
        assert_eq!(f.one(Op::Create(other)), Err(Refused::Exists(sid("a"))));
    }
    let other = Create { message: create.message.clone(), ..child("a", "r", Some("anna"), 1_000) };
    assert_eq!(f.one(Op::Create(other)), Err(Refused::Exists(sid("a"))));
}

fn a_message_that_was_imported_is_the_same_acceptance(f: &Fixture) {
    f.one(Op::Import(import(&lived(with_messages)))).unwrap();
    for _ in 0..2 {
        assert_eq!(f.accept("r", turn("m0")), Ok(Done::Accepted { order: 0, duplicate: true }));
        assert_eq!(f.accept("r", turn("m7")), Ok(Done::Accepted { order: 7, duplicate: true }));
        assert_eq!(f.accept("r", note("m0", true)), Err(Refused::MessageIdConflict(mid("m0"))));
        f.one(Op::Release(Release { session: sid("r") })).unwrap();
    }
}

fn children_may_come_before_their_parents(f: &Fixture) {
    let elsewhere = Fixture::memory();
    elsewhere.root("r");
    elsewhere.create(child("a", "r", Some("anna"), 1));
    elsewhere.create(fork("b", "a", 1));
    let mut reader = elsewhere.reader();
    for id in ["b", "a"] {
        f.one(Op::Import(import(&lines(&mut *reader, id)))).unwrap();
    }
    let orphans: Vec<_> = f.reader().children(None, None, 9).unwrap().into_iter().map(|child| child.id).collect();
    assert_eq!(orphans, [sid("a")]);
    f.one(Op::Import(import(&lines(&mut *reader, "r")))).unwrap();
    let roots: Vec<_> = f.reader().children(None, None, 9).unwrap().into_iter().map(|child| child.id).collect();
    assert_eq!(roots, [sid("r")]);
    assert!(f.describe("r").unwrap().has_children);
    assert!(matches!(f.describe("a").unwrap().verdict, Verdict::Child { alias: Some(alias), .. } if alias == "anna"));
    assert_eq!(f.reader().children(Some(&sid("a")), None, 9).unwrap().len(), 1);
}

fn remove(id: &str, discard: bool) -> Op {
    Op::Remove(Remove { session: sid(id), discard })
}

fn a_removed_session_is_gone_for_ever(f: &Fixture) {
    f.root("q");
    with_messages(f);
    let before = lines(&mut *f.reader(), "r");
    assert_eq!(f.one(remove("nobody", true)), Err(Refused::NotFound(sid("nobody"))));
    let mut reader = f.reader();
    assert!(!reader.is_removed(&sid("r")).unwrap());
    assert_eq!(f.one(remove("r", true)), Ok(Done::Removed));
    assert_eq!(f.one(remove("r", false)), Ok(Done::Removed));
    assert!(reader.is_removed(&sid("r")).unwrap() && !reader.is_removed(&sid("q")).unwrap() && !reader.is_removed(&sid("nobody")).unwrap());
    let gone = Refused::Removed(sid("r"));
    assert_eq!(gone.code(), "SESSION_REMOVED");
    assert_eq!(f.one(Op::Create(root("r", 1_000))), Err(gone.clone()));
    assert_eq!(f.one(Op::Import(import(&before))), Err(gone.clone()));
    assert_eq!(f.accept("r", turn("m0")), Err(gone.clone()));
    assert_eq!(f.one(Op::Release(Release { session: sid("r") })), Err(gone.clone()));
    assert_eq!(f.one(append(&fence("r", 1), vec![], vec![])), Err(gone));
    assert_eq!(reader.header(&sid("r")).unwrap(), None);
    for error in [
        reader.load(&sid("r")).unwrap_err(),
        reader.events(&sid("r"), 0, 9).unwrap_err(),
        reader.inbox(&sid("r"), 9).unwrap_err(),
        reader.message(&sid("r"), &mid("m0")).unwrap_err(),
    ] {
        assert!(matches!(&error, LoadError::Removed(id) if *id == sid("r")), "{error:?}");
        assert_eq!(error.code(), "SESSION_REMOVED");
    }
    assert_eq!(reader.export(&sid("r"), &mut |_| Ok(())).unwrap_err().code(), "SESSION_REMOVED");
    assert_eq!(reader.find("", 9).unwrap(), [sid("q")]);
    assert_eq!(reader.children(None, None, 9).unwrap().len(), 1);
    assert!(reader.runnable(None, 9).unwrap().is_empty() && reader.leases(None).unwrap().is_empty());
}

fn a_late_writer_is_fenced_by_a_removal(f: &Fixture) {
    f.root("r");
    f.child("a", "r");
    let (fence, _) = f.open("a", None);
    f.close(&fence, true).unwrap();
    f.one(remove("a", false)).unwrap();
    let gone = Err(Refused::Removed(sid("a")));
    let late = append(&fence, vec![Body::ActivationStart { epoch: 2 }.at(3, 1)], vec![]);
    assert_eq!(f.one(late), gone);
    let end = Body::ActivationEnd { epoch: 1, reason: EpochEnd::Settled }.at(3, 1);
    assert_eq!(f.one(Op::Close(greenroom_session::store::Close { fence: fence.clone(), events: Arc::new([end]), unless_pending: true })), gone);
    let claim = greenroom_session::store::Claim { fence, first_seq: 4, kind: ClaimKind::Turn, time: 1 };
    assert_eq!(f.one(Op::Claim(claim)), gone);
    let epoch = greenroom_session::store::Open { session: sid("a"), epoch: 2, events: Arc::new([Body::ActivationStart { epoch: 2 }.at(4, 1)]), claim: None };
    assert_eq!(f.one(Op::Open(epoch)), gone);
    // The retry of the turn that made it does not make it anew.
    assert_eq!(f.one(Op::Create(child("a", "r", None, 1_000))), gone);
    assert!(f.reader().children(Some(&sid("r")), None, 9).unwrap().is_empty());
}

fn a_session_with_children_is_not_removed(f: &Fixture) {
    f.root("r");
    f.child("a", "r");
    f.create(fork("b", "a", 1));
    for parent in ["r", "a"] {
        let refused = f.one(remove(parent, true)).unwrap_err();
        assert_eq!((refused.code(), &refused), ("HAS_CHILDREN", &Refused::HasChildren(sid(parent))));
    }
    for leaf_first in ["b", "a", "r"] {
        assert_eq!(f.one(remove(leaf_first, false)), Ok(Done::Removed));
    }
    // A session that names itself is nobody's parent.
    f.create(fork("self", "self", 1));
    assert_eq!(f.one(remove("self", false)), Ok(Done::Removed));
}

fn a_session_with_work_is_removed_only_when_it_is_discarded(f: &Fixture) {
    type Life = fn(&Fixture);
    let lives: [(&str, Life, u64); 4] = [
        ("a turn", |f| drop(f.accept("r", turn("m0")).unwrap()), 1),
        ("a waking note", |f| drop(f.accept("r", note("n0", false)).unwrap()), 1),
        (
            "an open turn and one that waits",
            |f| {
                f.accept("r", turn("m0")).unwrap();
                let (fence, _) = f.open("r", Some(1));
                f.end_turn(&fence, 1, TurnEnd::Interrupted);
                f.accept("r", turn("m1")).unwrap();
                f.close(&fence, false).unwrap();
            },
            2,
        ),
        ("a quiet note", |f| drop(f.accept("r", note("n0", true)).unwrap()), 0),
    ];
    for (n, (what, life, pending)) in lives.into_iter().enumerate() {
        let before = import(&lived(|f| {
            f.root("r");
            life(f);
        }));
        // Under another id each time, since the last is used up; held the first time, released the second.
        for released in [false, true] {
            let id = format!("r{n}{released}");
            let header = NewSession::root(sid(&id)).at(1_000);
            f.one(Op::Import(Import::new(Arc::new(header), before.events().clone(), before.inbox().into()).unwrap())).unwrap();
            if released {
                f.one(Op::Release(Release { session: sid(&id) })).unwrap();
            }
            if pending > 0 {
                assert_eq!(f.one(remove(&id, false)), Err(Refused::Pending(pending)), "{what}");
            }
            assert_eq!(f.one(remove(&id, pending > 0)), Ok(Done::Removed), "{what}");
        }
    }
    assert!(f.reader().runnable(None, 9).unwrap().is_empty());
}

fn a_live_session_is_not_removed(f: &Fixture) {
    f.root("r");
    let (fence, _) = f.open("r", None);
    for discard in [false, true] {
        assert_eq!(f.one(remove("r", discard)), Err(Refused::Held(f.store.owner().clone())));
    }
    f.close(&fence, true).unwrap();
    assert_eq!(f.one(remove("r", false)), Ok(Done::Removed));
}

fn what_is_removed_leaves_its_neighbours_as_they_were(f: &Fixture) {
    f.root("r");
    for (id, alias) in [("a", "anna"), ("b", "bert"), ("c", "carl")] {
        f.create(child(id, "r", Some(alias), 1));
        f.accept(id, turn("m0")).unwrap();
    }
    let before: Vec<_> = ["r", "a", "c"].map(|id| lines(&mut *f.reader(), id)).into();
    f.one(remove("b", true)).unwrap();
    let after: Vec<_> = ["r", "a", "c"].map(|id| lines(&mut *f.reader(), id)).into();
    assert_eq!(after, before);
    assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("a"), sid("c")]);
    assert_eq!(f.reader().runnable(Some(&sid("r")), 9).unwrap(), [sid("a"), sid("c")]);
    assert_eq!(f.reader().alias(&sid("r"), "bert").unwrap(), None);
    // Its alias is free for another child.
    f.create(child("d", "r", Some("bert"), 1));
    f.accept("d", turn("m0")).unwrap();
    assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("a"), sid("c"), sid("d")]);
    let names: Vec<_> = f.reader().children(Some(&sid("r")), None, 9).unwrap().into_iter().map(|child| child.id.to_string()).collect();
    assert_eq!(names, ["a", "c", "d"]);
    for id in ["a", "c", "d"] {
        f.one(remove(id, true)).unwrap();
    }
    assert!(!f.describe("r").unwrap().has_children);
    // A batch that removes and goes on.
    let results = f
        .store
        .commit(&[Op::Create(child("e", "r", None, 1)), accept("e", turn("m0")), remove("e", true), accept("e", turn("m1")), accept("r", turn("m"))])
        .unwrap();
    assert_eq!(results[2..4], [Ok(Done::Removed), Err(Refused::Removed(sid("e")))]);
    assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("r")]);
}

fn the_last_child_of_a_missing_parent_takes_the_orphans_with_it(f: &Fixture) {
    f.root("r");
    for id in ["a", "b"] {
        f.create(child(id, "nobody", None, 1));
    }
    let roots = |f: &Fixture| f.reader().children(None, None, 9).unwrap().into_iter().map(|child| child.id.to_string()).collect::<Vec<_>>();
    assert_eq!(roots(f), ["a", "b", "r"]);
    f.one(remove("a", false)).unwrap();
    assert_eq!(roots(f), ["b", "r"]);
    f.one(remove("b", false)).unwrap();
    assert_eq!(roots(f), ["r"]);
    // A parent that is removed leaves nobody behind, so nobody becomes an orphan; a child that names it later is one.
    f.one(remove("r", false)).unwrap();
    f.create(child("c", "r", None, 1));
    assert_eq!(roots(f), ["c"]);
}

/// A removal is seen by whoever else has the file open, also by one who held the session before.
#[test]
fn a_second_opening_is_fenced_by_a_removal() {
    let f = Fixture::sqlite();
    f.root("r");
    let second = greenroom_session::store::sqlite::SqliteStore::open(f.path()).unwrap();
    let (fence, _) = open(&second, "r", None).unwrap();
    one(&second, crate::support::close(&fence, 3, true)).unwrap();
    f.one(remove("r", false)).unwrap();
    assert_eq!(one(&second, append(&fence, vec![], vec![])), Err(Refused::Removed(sid("r"))));
    assert_eq!(one(&second, Op::Create(root("r", 1_000))), Err(Refused::Removed(sid("r"))));
}

/// The numbers of inbox rows go on after a removal, so that nobody who has seen the newest misses the next.
#[test]
fn a_message_after_a_removal_is_noticed_by_other_openings() {
    let f = Fixture::sqlite();
    f.root("q");
    f.root("r");
    f.accept("r", turn("m0")).unwrap();
    let second = greenroom_session::store::sqlite::SqliteStore::open(f.path()).unwrap();
    for n in 0..3 {
        let id = format!("r{n}");
        f.root(&id);
        f.accept(&id, turn("m0")).unwrap();
        assert_eq!(second.poll().unwrap(), [sid(&id)]);
        f.one(remove(&id, true)).unwrap();
        assert!(second.poll().unwrap().is_empty());
        f.accept("q", turn(&format!("m{n}"))).unwrap();
        assert_eq!(second.poll().unwrap(), [sid("q")]);
    }
}

/// What cannot be read may hold work, so it goes only when that is said.
#[test]
fn a_damaged_session_is_removed_only_when_it_is_discarded() {
    for damage in ["UPDATE event SET body = replace(body, 'root r', 'toor r')", "UPDATE session SET header = '{}'", "DELETE FROM event WHERE seq = 0"] {
        for summary_too in [false, true] {
            let f = Fixture::sqlite();
            f.root("q");
            f.root("r");
            f.accept("r", turn("m0")).unwrap();
            f.accept("q", turn("m0")).unwrap();
            let raw = rusqlite::Connection::open(f.path()).unwrap();
            let target = if damage.contains("WHERE") { " AND " } else { " WHERE " };
            raw.execute_batch(&format!("{damage}{target} sid = (SELECT sid FROM session WHERE id = 'r')")).unwrap();
            if summary_too {
                raw.execute_batch("DELETE FROM summary WHERE sid = (SELECT sid FROM session WHERE id = 'r')").unwrap();
            }
            assert_eq!(f.one(remove("r", false)), Err(Refused::Pending(0)), "{damage}");
            assert!(f.reader().export(&sid("r"), &mut |_| Ok(())).is_err(), "{damage}");
            assert_eq!(f.one(remove("r", true)), Ok(Done::Removed), "{damage}");
            assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("q")], "{damage}");
            let left: i64 = raw
                .query_row("SELECT (SELECT count(*) FROM event) + (SELECT count(*) FROM summary) + (SELECT count(*) FROM session)", [], |row| row.get(0))
                .unwrap();
            assert_eq!(left, 2 + 1 + 1, "{damage}");
        }
    }
}

/// A flipped byte of any row of a session is noticed by its export.
#[test]
fn no_damage_of_a_row_is_exported() {
    for damage in [
        "UPDATE session SET header = replace(header, '1000', '1001')",
        "UPDATE event SET body = replace(body, 'editor', 'edit0r')",
        "UPDATE event SET seq = seq + 100 WHERE seq = (SELECT max(seq) FROM event) - 1",
        "UPDATE inbox SET body = replace(body, 'text', 'test')",
        "UPDATE inbox SET held = 1 WHERE ord = 0",
        "UPDATE inbox SET held = 1 WHERE ord = 7",
        "UPDATE inbox SET wake = 1 - wake WHERE ord = 1",
        "UPDATE inbox SET kind = 1 WHERE ord = 0",
        "UPDATE inbox SET hash = zeroblob(16) WHERE ord = 0",
        "UPDATE inbox SET message_id = 'x' WHERE ord = 0",
        "DELETE FROM inbox WHERE ord = 1",
        "UPDATE event SET sid = 0 WHERE seq = 1",
    ] {
        let f = Fixture::sqlite();
        with_messages(&f);
        assert!(f.reader().export(&sid("r"), &mut |_| Ok(())).is_ok());
        let raw = rusqlite::Connection::open(f.path()).unwrap();
        raw.execute_batch(damage).unwrap();
        assert!(raw.changes() > 0, "{damage}");
        let error = f.reader().export(&sid("r"), &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.code(), "SESSION_CORRUPT", "{damage}");
    }
}

/// A line survives its way through every store.
#[test]
fn an_export_of_a_memory_store_reads_back() {
    let store = MemoryStore::new();
    one(&store, Op::Create(root("r", 1))).unwrap();
    for (line, seq) in lines(&mut *store.reader().unwrap(), "r").iter().skip(1).zip(0..) {
        assert!(matches!(read_line(&sid("r"), seq, line.as_bytes()), Ok(Line::Event(_))));
    }
}
