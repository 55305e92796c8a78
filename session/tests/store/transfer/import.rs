//! An import: the same session as before, once, and refused as a whole when it does not follow.

use std::sync::Arc;

use greenroom_session::{
    event::{Event, TurnEnd},
    header::NewSession,
    line::{Line, write_line},
    listing::Verdict,
    message::{InboxRecord, Message, Tombstone},
    repair::Quarantine,
    store::{Create, Done, Import, InboxLine, Op, Refused, Release, Remove},
};

use super::whole::{import, lines, lived, unheld, with_messages};
use crate::support::{Fixture, child, describe, fork, mid, note, root, sid, turn};

crate::on_every_store!(
    an_import_is_the_identity,
    an_import_keeps_what_this_program_does_not_know,
    the_same_import_again_changes_nothing,
    another_session_of_the_same_id_is_refused,
    an_import_that_does_not_follow_is_refused_and_leaves_nothing,
    an_alias_is_not_imported_twice,
    a_creation_that_was_imported_is_the_same_acceptance,
    a_message_that_was_imported_is_the_same_acceptance,
    children_may_come_before_their_parents,
);

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

/// A root with a child that has an alias and is quarantined, and what that child was.
fn quarantined(f: &Fixture) -> Vec<String> {
    f.root("r");
    f.create(child("c1", "r", Some("a"), 1_000));
    f.accept("c1", turn("m0")).unwrap();
    let before = lines(&mut *f.reader(), "c1");
    assert!(f.store.quarantine(&sid("c1"), &Quarantine { at: 7, found: vec!["checksum".into()] }).unwrap());
    before
}

#[test]
fn an_import_that_is_refused_leaves_the_quarantined_session_whose_place_it_was_to_take() {
    for f in [Fixture::sqlite(), Fixture::jsonl()] {
        let before = quarantined(&f);
        // The alias of a session that cannot be resumed is free.
        f.create(child("c2", "r", Some("a"), 2_000));
        for _ in 0..2 {
            assert_eq!(f.one(Op::Import(import(&before))), Err(Refused::AliasTaken("a".into())));
            assert!(f.reader().quarantine(&sid("c1")).unwrap().is_some());
            assert_eq!(f.reader().events(&sid("c1"), 0, 9).unwrap().len(), 2, "it is there still");
        }
        assert_eq!(f.reader().alias(&sid("r"), "a").unwrap(), Some(sid("c2")));
        f.one(Op::Remove(Remove { session: sid("c2"), discard: true })).unwrap();
        assert_eq!(f.one(Op::Import(import(&before))), Ok(Done::Imported { existing: false }));
        assert_eq!((f.reader().alias(&sid("r"), "a").unwrap(), unheld(&lines(&mut *f.reader(), "c1"))), (Some(sid("c1")), unheld(&before)));
    }
}

#[test]
fn a_session_whose_row_names_another_parent_than_its_header_can_be_brought_back() {
    for parent in ["NULL", "'c1'", "'ghost'", "x'ff'"] {
        let f = Fixture::sqlite();
        let before = quarantined(&f);
        let raw = rusqlite::Connection::open(f.path()).unwrap();
        raw.execute_batch(&format!("UPDATE session SET parent_id = CAST({parent} AS TEXT) WHERE id = 'c1'")).unwrap();
        f.store.rebuild_index(None, &mut |_| {}).unwrap();
        assert_eq!(f.one(Op::Import(import(&before))), Ok(Done::Imported { existing: false }), "{parent}");
        let mut found = Vec::new();
        greenroom_session::check::check(&mut *f.reader(), None, &mut |seen| {
            found.extend(matches!(seen, greenroom_session::check::Seen::Finding(_)).then_some(seen));
        })
        .unwrap();
        assert_eq!((found, unheld(&lines(&mut *f.reader(), "c1"))), (vec![], unheld(&before)), "{parent}");
    }
}
