//! Verifying a store: for every class of fault one that is planted by plain SQL and found where it is, and nothing found where nothing is.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use greenroom_session::{
    check::{Class, Rebuilt, Seen, Severity, check},
    codec::{encode_event, encode_header, event_crc, message_crc},
    descriptor::Descriptor,
    event::{Body, Event, TurnEnd},
    header::{Header, NewSession},
    id::SessionId,
    message::{Control, Message},
    store::{ClaimKind, Create, Op, Reader, Remove, sqlite::open_reader},
};
use rusqlite::{Connection, params, types::Value as Column};
use serde_json::{Value, json};

use crate::support::{Fixture, accept, append, child, close, fork, mid, note, one, open, root, sid, turn};

/// A store with every kind of row: a root that has turns behind it, messages of all kinds waiting and gone, children with aliases, an orphan.
fn busy() -> Fixture {
    let f = Fixture::sqlite();
    f.root("r");
    f.create(child("c1", "r", Some("a"), 1_000));
    f.create(child("c2", "r", Some("b"), 1_000));
    f.create(child("o", "nobody", None, 1_000));
    f.accept("r", turn("m0")).unwrap();
    let (fence, _) = f.open("r", Some(1));
    f.accept("r", note("n0", false)).unwrap();
    f.claim(&fence, ClaimKind::Notes).unwrap();
    f.end_turn(&fence, 1, TurnEnd::Completed);
    for message in [turn("m1"), note("n1", true), Message::control(mid("k0"), Control::Interrupt { turn: None }, 1), turn("m2")] {
        f.accept("r", message).unwrap();
    }
    let answered = Body::ControlAnswered { control: mid("k0"), op: "interrupt".into(), outcome: "done".into() };
    let withdrawn = Body::MessageWithdrawn { message: mid("m2"), by: "user".into() };
    let seq = f.next_seq("r");
    f.one(append(&fence, vec![answered.at(seq, 5), withdrawn.at(seq + 1, 5)], vec![4, 5])).unwrap();
    f.accept("c1", turn("m0")).unwrap();
    f
}

/// What a check of the whole store finds, as `session place: class`.
fn found(path: &Path) -> Vec<String> {
    found_in(path, None)
}

fn found_in(path: &Path, only: Option<&SessionId>) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = open_reader(path).unwrap();
    check(&mut reader, only, &mut |seen| {
        if let Seen::Finding(finding) = seen {
            let session = finding.session.map_or_else(String::new, |id| format!("{id} "));
            found.push(format!("{session}{}: {}", finding.place, finding.class));
        }
    })
    .unwrap();
    found
}

/// The one notice of [`busy`].
const HEALTHY: &str = "o header: orphan";

fn sid_of(raw: &Connection, id: &str) -> i64 {
    raw.query_row("SELECT sid FROM session WHERE id = ?1", [id], |row| row.get(0)).unwrap()
}

/// Changes an event and gives it the checksum of what it has become.
fn rewrite(raw: &Connection, id: &str, seq: u64, change: impl Fn(&mut Value)) {
    let number = sid_of(raw, id);
    let body: String = raw.query_row("SELECT body FROM event WHERE sid = ?1 AND seq = ?2", params![number, seq.cast_signed()], |row| row.get(0)).unwrap();
    let mut event: Value = serde_json::from_str(&body).unwrap();
    change(&mut event);
    put_event(raw, id, seq, &event.to_string());
}

fn put_event(raw: &Connection, id: &str, seq: u64, body: &str) {
    let crc = event_crc(&sid(id), body.as_bytes());
    let (number, seq) = (sid_of(raw, id), seq.cast_signed());
    // A row that is there keeps its place.
    if raw.execute("UPDATE event SET body = ?3, crc = ?4 WHERE sid = ?1 AND seq = ?2", params![number, seq, body, crc]).unwrap() == 0 {
        raw.execute("INSERT INTO event(sid, seq, body, crc) VALUES(?1, ?2, ?3, ?4)", params![number, seq, body, crc]).unwrap();
    }
}

fn add_event(raw: &Connection, id: &str, event: &Event) {
    let encoded = encode_event(&sid(id), event).unwrap();
    put_event(raw, id, event.seq, std::str::from_utf8(&encoded.body).unwrap());
}

/// Changes a header, its columns and its checksum; its derived row follows, since it is bound to the header.
fn rewrite_header(f: &Fixture, raw: &Connection, id: &str, change: impl Fn(&mut Header)) {
    let mut header = (*f.reader().header(&sid(id)).unwrap().unwrap()).clone();
    change(&mut header);
    let encoded = encode_header(&header).unwrap();
    let text = std::str::from_utf8(&encoded.body).unwrap();
    raw.execute(
        "UPDATE session SET header = ?2, crc = ?3, created_at = ?4, parent_id = ?5 WHERE id = ?1",
        params![id, text, encoded.crc, header.created_at.cast_signed(), header.parent.as_ref().map(SessionId::as_str)],
    )
    .unwrap();
    f.store.rebuild_index(Some(&sid(id)), &mut |_| {}).unwrap();
}

/// Puts a message that has left back into the inbox, as it was.
fn put_back(raw: &Connection, id: &str, order: u64, message: &Message) {
    let body = serde_json::to_string(message).unwrap();
    let crc = message_crc(&sid(id), order, false, body.as_bytes());
    raw.execute("UPDATE inbox SET state = 0, body = ?3, crc = ?4 WHERE sid = ?1 AND ord = ?2", params![sid_of(raw, id), order.cast_signed(), body, crc])
        .unwrap();
}

fn sql(text: &'static str) -> impl Fn(&Fixture, &Connection) {
    move |_, raw| raw.execute_batch(text).unwrap()
}

type Plant = Box<dyn Fn(&Fixture, &Connection)>;

/// A child whose creation seed is these events.
fn seeded(id: &str, bodies: Vec<Body>) -> Op {
    let events = bodies.into_iter().zip(0..).map(|(body, seq)| body.at(seq, 1_000)).collect();
    Op::Create(Create { session: NewSession::child(sid(id), sid("r"), 0), time: 1_000, events, message: None })
}

fn descriptor() -> Body {
    Body::Descriptor(serde_json::to_value(Descriptor::continuable("spawn", "a label", "reporter")).unwrap())
}

/// Faults, each with all that is to be found of it. The first child has sid 2, the root's messages are 0 turn gone, 1 note gone, 2 turn, 3 note, 4 and 5 gone.
#[expect(clippy::too_many_lines, reason = "a table")]
fn faults() -> Vec<(&'static str, Plant, Vec<&'static str>)> {
    let mut faults: Vec<(&'static str, Plant, Vec<&'static str>)> = Vec::new();
    let mut plant = |what, plant: Plant, expected: &[&'static str]| faults.push((what, plant, expected.to_vec()));

    // Records that are not what was written.
    plant("an event's text", Box::new(sql("UPDATE event SET body = replace(body, 'editor', 'victor') WHERE seq = 0")), &["r event 0: checksum"]);
    plant("an event's checksum", Box::new(sql("UPDATE event SET crc = crc + 1 WHERE sid = 1 AND seq = 4")), &["r event 4: checksum"]);
    plant("a checksum that is none", Box::new(sql("UPDATE event SET crc = -1 WHERE sid = 1 AND seq = 4")), &["r event 4: checksum"]);
    plant("a header's text", Box::new(sql("UPDATE session SET header = replace(header, '1000', '1001') WHERE id = 'r'")), &["r header: checksum"]);
    plant("a header's checksum", Box::new(sql("UPDATE session SET crc = crc + 1 WHERE id = 'c2'")), &["c2 header: checksum"]);
    plant("a message's text", Box::new(sql("UPDATE inbox SET body = replace(body, 'text', 'lies') WHERE sid = 1 AND ord = 2")), &["r message 2: checksum"]);
    plant("a message made held", Box::new(sql("UPDATE inbox SET held = 1 WHERE sid = 1 AND ord = 2")), &["r message 2: checksum"]);
    plant("what remains of a message", Box::new(sql("UPDATE inbox SET hash = zeroblob(16) WHERE sid = 1 AND ord = 0")), &["r message 0: checksum"]);
    plant("the name of one that has left", Box::new(sql("UPDATE inbox SET message_id = 'x' WHERE sid = 1 AND ord = 0")), &["r message 0: checksum"]);
    plant(
        "two damaged sessions",
        Box::new(sql("UPDATE event SET crc = 0 WHERE seq = 0")),
        &["c1 event 0: checksum", "c2 event 0: checksum", "o event 0: checksum", "r event 0: checksum"],
    );
    plant(
        "two damaged events of one session",
        Box::new(sql("UPDATE event SET crc = 0 WHERE sid = 1 AND seq IN (1, 5)")),
        &["r event 1: checksum", "r event 5: checksum"],
    );
    plant("no JSON", Box::new(|_, raw| put_event(raw, "r", 3, "{")), &["r event 3: malformed_record"]);
    plant(
        "no UTF-8",
        Box::new(|_, raw| {
            let body = b"{\"seq\":3,\"time\":1,\"type\":\"memo\xff\",\"data\":{}}";
            let crc = event_crc(&sid("r"), body);
            raw.execute("UPDATE event SET body = CAST(?1 AS TEXT), crc = ?2 WHERE sid = 1 AND seq = 3", params![&body[..], crc]).unwrap();
        }),
        &["r event 3: malformed_record"],
    );
    plant(
        "a lone surrogate",
        Box::new(|_, raw| put_event(raw, "r", 3, r#"{"seq":3,"time":1,"type":"memo","data":{"turn":1,"message":"m0","text":"\ud800"}}"#)),
        &["r event 3: malformed_record"],
    );
    plant("an unknown key", Box::new(|_, raw| rewrite(raw, "r", 3, |event| event["colour"] = json!("red"))), &["r event 3: malformed_record"]);
    plant("a creation that is none", Box::new(sql("UPDATE session SET creation = x'00' WHERE id = 'c1'")), &["c1 header: malformed_record"]);
    plant("a state that is none", Box::new(sql("UPDATE inbox SET state = 7 WHERE sid = 1 AND ord = 1")), &["r message 1: malformed_record"]);
    plant("an id that is none", Box::new(sql("UPDATE session SET id = '' WHERE id = 'c2'")), &["session row 3: malformed_record"]);

    // Records in other places.
    plant("an event that says another seq", Box::new(|_, raw| rewrite(raw, "r", 3, |event| event["seq"] = json!(4))), &["r event 3: misplaced_record"]);
    plant("a message's kind", Box::new(sql("UPDATE inbox SET kind = 1 WHERE sid = 1 AND ord = 2")), &["r message 2: misplaced_record"]);
    plant("a message's name", Box::new(sql("UPDATE inbox SET message_id = 'x' WHERE sid = 1 AND ord = 2")), &["r message 2: misplaced_record"]);
    plant("whether a message wakes", Box::new(sql("UPDATE inbox SET wake = 1 WHERE sid = 1 AND ord = 3")), &["r message 3: misplaced_record"]);
    plant("a negative seq", Box::new(sql("UPDATE event SET seq = -8 WHERE sid = 1 AND seq = 9")), &["r log: misplaced_record"]);
    plant("a negative order", Box::new(sql("UPDATE inbox SET ord = -5 WHERE sid = 1 AND ord = 5")), &["r inbox: misplaced_record"]);
    plant("a lost event", Box::new(sql("DELETE FROM event WHERE sid = 1 AND seq = 4")), &["r event 4: seq_gap"]);
    plant("lost events", Box::new(sql("DELETE FROM event WHERE sid = 1 AND seq IN (0, 1, 5, 6)")), &["r event 0: seq_gap", "r event 5: seq_gap"]);
    plant("a lost message", Box::new(sql("DELETE FROM inbox WHERE sid = 1 AND ord = 0")), &["r message 0: order_gap"]);
    plant(
        "two messages in one place",
        Box::new(sql("UPDATE inbox SET ord = 3 WHERE sid = 1 AND ord = 4")),
        &["r message 3: checksum", "r message 3: order_gap", "r message 4: order_gap"],
    );

    // Ends that are lost.
    plant(
        "the last event",
        Box::new(sql("DELETE FROM event WHERE sid = 1 AND seq = (SELECT max(seq) FROM event WHERE sid = 1)")),
        &["r log: truncated", "r message 5: gone_without_event", "index tally: index_stale"],
    );
    plant("the last message", Box::new(sql("DELETE FROM inbox WHERE sid = 2")), &["c1 inbox: truncated", "index tally: index_stale"]);
    plant("a whole log with its derived row", Box::new(sql("DELETE FROM event WHERE sid = 3; DELETE FROM summary WHERE sid = 3")), &["c2 log: truncated"]);
    plant(
        "the last session",
        Box::new(sql("DELETE FROM session WHERE sid = 4; DELETE FROM event WHERE sid = 4; DELETE FROM summary WHERE sid = 4")),
        &["index orphan: index_stale", "store: truncated"],
    );
    plant(
        "the last message that has left",
        Box::new(sql("DELETE FROM inbox WHERE sid = 1 AND ord = 5; DELETE FROM summary WHERE sid = 1")),
        &["r event 9: never_accepted", "index tally: index_stale"],
    );

    // Logs that do not fold.
    plant("a turn that does not nest", Box::new(|_, raw| rewrite(raw, "r", 3, |event| event["data"]["turn"] = json!(2))), &["r event 3: fold_breach"]);
    plant("an epoch that does not count", Box::new(|_, raw| rewrite(raw, "r", 2, |event| event["data"]["epoch"] = json!(2))), &["r event 2: fold_breach"]);
    plant(
        "a surface event off the surface",
        Box::new(|_, raw| {
            rewrite(raw, "r", 4, |event| {
                event.as_object_mut().unwrap().remove("surface_op");
            });
        }),
        &["r event 4: fold_breach"],
    );
    plant(
        "a type of tomorrow",
        Box::new(|f, raw| {
            add_event(raw, "c2", &Body::decode("weather/changed", r#"{"to":"rain"}"#).unwrap().at(2, 1));
            f.store.rebuild_index(None, &mut |_| {}).unwrap();
        }),
        &["c2 event 2: unknown_event_type"],
    );
    plant(
        "a type of tomorrow that may be ignored",
        Box::new(|f, raw| {
            let mut event = Body::decode("weather/changed", r#"{"to":"rain"}"#).unwrap().at(2, 1);
            event.ignorable = true;
            add_event(raw, "c2", &event);
            f.store.rebuild_index(None, &mut |_| {}).unwrap();
        }),
        &[],
    );

    // Descriptors.
    plant("no descriptor", Box::new(|f, _| drop(f.create(fork("f", "r", 1_000)))), &["f log: no_descriptor"]);
    plant(
        "a root that was never opened",
        Box::new(|f, _| {
            let events = [Body::EndSeed {}.at(0, 1)].into();
            f.create(Create { session: NewSession::root(sid("f")), time: 1, events, message: None });
        }),
        &["f log: no_descriptor"],
    );
    plant(
        "two descriptors",
        Box::new(|f, _| drop(f.one(seeded("f", vec![descriptor(), descriptor(), Body::EndSeed {}])).unwrap())),
        &["f log: two_descriptors"],
    );
    plant(
        "a bad descriptor",
        Box::new(|f, _| drop(f.one(seeded("f", vec![Body::Descriptor(json!({"version": 1})), Body::EndSeed {}])).unwrap())),
        &["f event 0: bad_descriptor"],
    );
    plant(
        "a newer descriptor",
        Box::new(|f, _| drop(f.one(seeded("f", vec![Body::Descriptor(json!({"version": 2})), Body::EndSeed {}])).unwrap())),
        &["f event 0: unsupported_descriptor"],
    );

    // The inbox against the log.
    plant("a message that has left and waits", Box::new(|_, raw| put_back(raw, "r", 0, &turn("m0"))), &["r message 0: taken_but_waiting"]);
    plant("a note that has left and waits", Box::new(|_, raw| put_back(raw, "r", 1, &note("n0", false))), &["r message 1: taken_but_waiting"]);
    plant(
        "a message that no event names",
        Box::new(|_, raw| {
            rewrite(raw, "r", 9, |event| {
                *event = json!({"seq": 9, "time": 5, "type": "memo/other", "data": {}, "ignorable": true});
            });
        }),
        &["r message 5: gone_without_event"],
    );
    plant(
        "a message that was never there",
        Box::new(|f, raw| {
            add_event(raw, "r", &Body::MessageWithdrawn { message: mid("ghost"), by: "user".into() }.at(10, 1));
            f.store.rebuild_index(None, &mut |_| {}).unwrap();
        }),
        &["r event 10: never_accepted"],
    );
    plant(
        "a message that left twice",
        Box::new(|f, raw| {
            add_event(raw, "r", &Body::MessageWithdrawn { message: mid("m2"), by: "user".into() }.at(10, 1));
            f.store.rebuild_index(None, &mut |_| {}).unwrap();
        }),
        &["r event 10: taken_twice"],
    );
    plant("a waiting message's hash", Box::new(sql("UPDATE inbox SET hash = zeroblob(16) WHERE sid = 1 AND ord = 2")), &["r message 2: tombstone_conflict"]);
    plant("the kind of one that has left", Box::new(sql("UPDATE inbox SET kind = 2 WHERE sid = 1 AND ord = 0")), &["r message 0: checksum"]);
    plant("a text that should be gone", Box::new(sql("UPDATE inbox SET body = 'x' WHERE sid = 1 AND ord = 0")), &["r message 0: tombstone_conflict"]);

    plant(
        "a session that was removed and is there",
        Box::new(|f, raw| {
            raw.execute_batch("INSERT INTO removed VALUES(1, 'c2')").unwrap();
            f.store.rebuild_index(None, &mut |_| {}).unwrap();
        }),
        &["removed: tombstone_conflict"],
    );
    plant(
        "a removal that is lost",
        Box::new(|f, raw| {
            f.one(Op::Remove(Remove { session: sid("o"), discard: true })).unwrap();
            raw.execute_batch("DELETE FROM removed").unwrap();
        }),
        &["store: truncated"],
    );

    // Headers and lineage.
    plant("a header's column", Box::new(sql("UPDATE session SET created_at = 7 WHERE id = 'c1'")), &["c1 header: header_conflict"]);
    plant("a parent's column", Box::new(sql("UPDATE session SET parent_id = NULL WHERE id = 'c1'")), &["c1 header: header_conflict"]);
    plant("a depth", Box::new(|f, raw| rewrite_header(f, raw, "c1", |header| header.depth = 3)), &["c1 header: header_conflict"]);
    plant(
        "a root's depth",
        Box::new(|f, raw| {
            f.root("q");
            rewrite_header(f, raw, "q", |header| header.depth = 3);
        }),
        &["q header: header_conflict"],
    );
    plant("a child before its parent", Box::new(|f, raw| rewrite_header(f, raw, "c1", |header| header.created_at = 3)), &["c1 header: header_conflict"]);
    plant("more inherited than there is", Box::new(|f, raw| rewrite_header(f, raw, "c2", |header| header.seed_length = 3)), &["c2 header: header_conflict"]);
    plant(
        "a newer header",
        Box::new(|_, raw| {
            let body = br#"{"version":2,"id":"c2","shape":"another"}"#;
            let crc = header_crc(body);
            raw.execute("UPDATE session SET header = CAST(?1 AS TEXT), crc = ?2 WHERE id = 'c2'", params![&body[..], crc]).unwrap();
            put_event(raw, "c2", 1, r#"{"seq":1,"when":1}"#);
        }),
        &["c2 header: unknown_version"],
    );
    plant("its own parent", Box::new(|f, _| drop(f.one(Op::Create(child("self", "self", None, 1))).unwrap())), &["self header: lineage_cycle"]);
    plant(
        "each other's parents",
        Box::new(|f, _| {
            f.create(child("x", "y", None, 1_000));
            let mut y = child("y", "x", None, 1_000);
            y.session.depth = 2;
            f.create(y);
            // Below a cycle, and no part of it.
            let mut z = child("a", "x", None, 1_000);
            z.session.depth = 9;
            f.create(z);
        }),
        &["a header: header_conflict", "x header: lineage_cycle"],
    );
    plant(
        "an alias of two",
        Box::new(|f, raw| {
            rewrite(raw, "c2", 0, |event| event["data"]["as"] = json!("a"));
            f.store.rebuild_index(None, &mut |_| {}).unwrap();
        }),
        &["c2 header: duplicate_alias"],
    );

    // Rows of nobody, and the file.
    plant("a lost header", Box::new(sql("DELETE FROM session WHERE sid = 2")), &["session row 2: unowned_record", "index summary: index_foreign"]);
    plant("a lease of no session", Box::new(sql("INSERT INTO lease VALUES(99, 'x', 1)")), &["lease: lease_of_nobody"]);
    plant("a lease whose holder is gone", Box::new(sql("UPDATE lease SET owner = 'f4b1c0de-0000-4000-8000-000000000000'")), &["lease: lease_of_nobody"]);
    plant("a lease of another epoch", Box::new(sql("UPDATE lease SET epoch = 7")), &["r lease: lease_of_nobody"]);
    plant("a missing index", Box::new(sql("DROP INDEX session_family")), &["index session_family: schema_conflict"]);
    plant("a trigger", Box::new(sql("CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM inbox; END")), &["trigger t: schema_conflict"]);
    plant("a table of somebody else", Box::new(sql("CREATE TABLE shopping(list TEXT)")), &["table shopping: foreign_object"]);
    plant("what a birth left", Box::new(|f, _| std::fs::write(f.path().with_file_name(".store.db.birth.1"), "x").unwrap()), &[".store.db.birth.1: leftover"]);

    // The index.
    plant("a missing row", Box::new(sql("DELETE FROM summary WHERE sid = 3")), &["c2 index summary: index_missing"]);
    plant("a head of another text", Box::new(sql("UPDATE summary SET head = '{}' WHERE sid = 3")), &["c2 index summary.head: index_damaged"]);
    plant(
        "a head of an earlier day",
        Box::new(|f, raw| {
            let old: (String, i64) = raw.query_row("SELECT head, head_crc FROM summary WHERE sid = 3", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            f.accept("c2", note("later", true)).unwrap();
            raw.execute("UPDATE summary SET head = ?1, head_crc = ?2 WHERE sid = 3", params![old.0, old.1]).unwrap();
        }),
        &["c2 index summary.head: index_stale"],
    );
    plant(
        "a tally of an earlier day",
        Box::new(|f, raw| {
            raw.execute_batch("CREATE TEMP TABLE old AS SELECT * FROM tally").unwrap();
            f.accept("c2", note("later", true)).unwrap();
            raw.execute_batch("DELETE FROM tally; INSERT INTO tally SELECT * FROM old").unwrap();
        }),
        &["index tally: index_stale"],
    );
    faults
}

/// The checksum of a header, by its definition.
fn header_crc(body: &[u8]) -> u32 {
    crc32c::crc32c(&[b"h\0", body].concat())
}

#[test]
fn a_healthy_store_has_no_fault() {
    let f = busy();
    assert_eq!(found(&f.path()), [HEALTHY]);
    assert_eq!(found_in(&f.path(), Some(&sid("r"))), Vec::<String>::new());
}

#[test]
fn every_fault_is_found_where_it_is_and_once() {
    let mut wrong = Vec::new();
    for (what, plant, expected) in faults() {
        let f = busy();
        let raw = Connection::open(f.path()).unwrap();
        plant(&f, &raw);
        let mut found = found(&f.path());
        found.retain(|line| line != HEALTHY);
        if found != expected {
            wrong.push(format!("{what}: {found:?} where {expected:?} is to be found"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Planted among the files of a JSON Lines store, where no permission keeps a privileged user out.
const UNREADABLE: &str = "unreadable_file";

#[test]
fn every_class_is_one_that_is_planted() {
    let rows = faults().into_iter().flat_map(|(_, _, found)| found).filter_map(|line| line.rsplit(' ').next());
    let planted: BTreeSet<String> = rows.map(str::to_owned).chain(crate::check_files::planted()).chain([UNREADABLE.to_owned()]).collect();
    let elsewhere = [Class::Orphan, Class::DamagedFile].map(|class| class.to_string());
    let missing: Vec<_> = Class::ALL.iter().map(ToString::to_string).filter(|name| !planted.contains(name) && !elsewhere.contains(name)).collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn every_flipped_bit_of_a_record_is_found_in_its_place() {
    let f = busy();
    let raw = Connection::open(f.path()).unwrap();
    raw.execute_batch("PRAGMA synchronous = OFF").unwrap();
    let mut reader = open_reader(f.path()).unwrap();
    let rows = [
        ("session", "header", "id = 'c1'", "c1 header"),
        ("event", "body", "sid = 1 AND seq = 0", "r event 0"),
        ("event", "body", "sid = 1 AND seq = 4", "r event 4"),
        ("event", "body", "sid = 2 AND seq = 0", "c1 event 0"),
        ("inbox", "body", "sid = 1 AND ord = 2", "r message 2"),
        ("inbox", "body", "sid = 1 AND ord = 3", "r message 3"),
        ("inbox", "hash", "sid = 1 AND ord = 0", "r message 0"),
        ("inbox", "message_id", "sid = 1 AND ord = 4", "r message 4"),
    ];
    for (table, column, row, place) in rows {
        let bytes: Vec<u8> = raw.query_row(&format!("SELECT CAST({column} AS BLOB) FROM {table} WHERE {row}"), [], |row| row.get(0)).unwrap();
        let kind = if column == "hash" { "BLOB" } else { "TEXT" };
        let mut put = raw.prepare(&format!("UPDATE {table} SET {column} = CAST(?1 AS {kind}) WHERE {row}")).unwrap();
        let session = sid(place.split(' ').next().unwrap());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            put.execute([&flipped]).unwrap();
            f.store.heartbeat().unwrap();
            let mut found = Vec::new();
            reader.check(&session, &mut |finding| found.push(format!("{session} {}: {}", finding.place, finding.class))).unwrap();
            assert_eq!(found, [format!("{place}: checksum")], "bit {bit} of {column} in {table}");
        }
        put.execute([&bytes]).unwrap();
    }
    drop(reader);
    assert_eq!(found(&f.path()), [HEALTHY]);
}

/// Everything that a listing says, by the derived rows or by the logs.
fn answers(path: &Path, verify: bool) -> String {
    let mut reader = open_reader(path).unwrap();
    let mut said = String::new();
    for parent in [None, Some(sid("r")), Some(sid("nobody")), Some(sid("c1"))] {
        writeln!(said, "{:?}", reader.family(parent.as_ref(), None, 99, verify).unwrap()).unwrap();
    }
    for alias in ["a", "b", "c"] {
        writeln!(said, "{:?}", reader.alias(&sid("r"), alias).unwrap()).unwrap();
    }
    said + &format!("{:?}\n", reader.runnable(None, 99).unwrap())
}

/// Every value that damage may put into the place of another.
fn damaged(value: &Column) -> Vec<Column> {
    match value {
        Column::Integer(n) => vec![Column::Integer(n ^ 1), Column::Integer(n ^ (1 << 40)), Column::Integer(-1 - n)],
        Column::Text(text) => {
            let cut = text.char_indices().last().map_or(0, |(at, _)| at);
            vec![Column::Text(format!("{text}x")), Column::Text(text[..cut].to_owned()), Column::Text(text.to_uppercase()), Column::Text(String::new())]
        }
        Column::Null => vec![Column::Text("a".into())],
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_damaged_column_of_a_derived_row_is_found_changes_no_answer_and_is_derived_again() {
    let f = busy();
    let raw = Connection::open(f.path()).unwrap();
    raw.execute_batch("PRAGMA synchronous = OFF").unwrap();
    let before = answers(&f.path(), false);
    assert_eq!(before, answers(&f.path(), true));
    let mut tried = 0;
    for table in ["summary", "orphan", "tally"] {
        let columns: Vec<String> = raw
            .prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let key = &columns[0];
        let keys: Vec<Column> =
            raw.prepare(&format!("SELECT {key} FROM {table}")).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        for (row, column) in keys.iter().flat_map(|row| columns.iter().map(move |column| (row, column))) {
            let value: Column = raw.query_row(&format!("SELECT {column} FROM {table} WHERE {key} = ?1"), [row], |row| row.get(0)).unwrap();
            for (n, bad) in damaged(&value).into_iter().map(Some).chain([None]).enumerate() {
                // Some values cannot stand in their column, or are those of another row.
                let changed = match &bad {
                    Some(bad) if *bad == value => continue,
                    Some(bad) => raw.execute(&format!("UPDATE {table} SET {column} = ?2 WHERE {key} = ?1"), params![row, bad]),
                    None => raw.execute(&format!("DELETE FROM {table} WHERE {key} = ?1"), [row]),
                };
                if changed.is_err() {
                    continue;
                }
                tried += 1;
                // Or its leases would run out.
                f.store.heartbeat().unwrap();
                let what = format!("{table}.{column} of {row:?}: {value:?} became {bad:?} ({n})");
                let found = found(&f.path());
                assert!(found.iter().any(|line| line.contains("index")), "{what} is not found");
                assert!(found.iter().all(|line| line == HEALTHY || line.contains("index")), "{what}: {found:?}");
                assert_eq!(answers(&f.path(), false), before, "{what}");
                let mut rebuilt = 0;
                f.store.rebuild_index(None, &mut |_| rebuilt += 1).unwrap();
                assert!(rebuilt > 0, "{what}");
                assert_eq!(self::found(&f.path()), [HEALTHY], "{what}");
                assert_eq!(answers(&f.path(), false), before, "{what}");
            }
        }
    }
    assert!(tried > 100, "{tried} columns were damaged");
}

#[test]
fn what_is_good_is_not_derived_again() {
    let f = busy();
    f.store.rebuild_index(None, &mut |change| panic!("{change}")).unwrap();
    let raw = Connection::open(f.path()).unwrap();
    raw.execute_batch("UPDATE summary SET work = 5 WHERE sid = 2; UPDATE event SET crc = 0 WHERE sid = 3; UPDATE summary SET head = '' WHERE sid = 3").unwrap();
    let before: Vec<String> = ground_truth(&raw);
    let mut changes = Vec::new();
    f.store.rebuild_index(None, &mut |change| changes.push(change)).unwrap();
    assert_eq!(changes, [Rebuilt::Session(sid("c1")), Rebuilt::Left(sid("c2"))]);
    assert_eq!(ground_truth(&raw), before);
    assert_eq!(found(&f.path()), ["c2 event 0: checksum", "c2 event 1: checksum", "c2 index summary.head: index_damaged", HEALTHY]);
    // One session alone.
    raw.execute_batch("UPDATE summary SET head = ''").unwrap();
    changes.clear();
    f.store.rebuild_index(Some(&sid("o")), &mut |change| changes.push(change)).unwrap();
    assert_eq!(changes, [Rebuilt::Session(sid("o"))]);
}

#[test]
fn a_damaged_session_that_can_be_read_keeps_its_place_in_the_index() {
    let f = Fixture::sqlite();
    f.create(Create { session: NewSession::root(sid("r")), time: 1, events: [].into(), message: Some(turn("m0").into()) });
    assert_eq!(found(&f.path()), ["r log: truncated"]);
    Connection::open(f.path()).unwrap().execute_batch("DELETE FROM summary; DELETE FROM tally").unwrap();
    f.store.rebuild_index(None, &mut |_| {}).unwrap();
    assert_eq!(f.reader().runnable(None, 9).unwrap(), [sid("r")]);
    assert_eq!(found(&f.path()), ["r log: truncated"]);
}

fn ground_truth(raw: &Connection) -> Vec<String> {
    [
        "SELECT quote(sid) || id || header || crc FROM session",
        "SELECT sid || ' ' || seq || body || crc FROM event",
        "SELECT sid || quote(body) || crc FROM inbox",
    ]
    .iter()
    .flat_map(|query| raw.prepare(query).unwrap().query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap).collect::<Vec<_>>())
    .collect()
}

#[test]
fn a_damaged_page_hides_no_other_session() {
    let f = Fixture::sqlite();
    for n in 0..20 {
        f.root(&format!("r{n:02}"));
        for m in 0..20 {
            f.accept(&format!("r{n:02}"), turn(&format!("m{m}"))).unwrap();
        }
    }
    f.store.close().unwrap();
    let (pages, size) = {
        let raw = Connection::open(f.path()).unwrap();
        raw.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        let number = |pragma: &str| raw.query_row(pragma, [], |row| row.get::<_, u32>(0)).unwrap() as usize;
        (number("PRAGMA page_count"), number("PRAGMA page_size"))
    };
    let bytes = std::fs::read(f.path()).unwrap();
    let mut unread = 0;
    // Every page but the first, which says what the file is.
    for n in 1..pages {
        let mut damaged = bytes.clone();
        damaged[n * size..(n + 1) * size].fill(0x5a);
        let copy = f.path().with_file_name(format!("copy-{n}.db"));
        std::fs::write(&copy, damaged).unwrap();
        let mut findings = Vec::new();
        let checked = open_reader(&copy).map_err(Into::into).and_then(|mut reader| {
            check(&mut reader, None, &mut |seen| {
                if let Seen::Finding(finding) = seen {
                    findings.push(finding);
                }
            })
        });
        // Without the list of sessions there is nothing to check.
        match checked {
            Ok(()) => assert!(findings.iter().any(|finding| finding.class.severity() == Severity::Damage), "page {n}: {findings:?}"),
            Err(error) => {
                unread += 1;
                assert!(error.code() == "STORE_DAMAGED", "page {n}: {error}");
            }
        }
    }
    assert!(unread < pages / 4, "{unread} of {pages} damaged pages kept the store from being checked");
}

#[test]
fn a_store_that_is_written_meanwhile_has_no_fault() {
    let f = busy();
    let done = AtomicBool::new(false);
    let checks = thread::scope(|scope| {
        let checker = scope.spawn(|| {
            let mut checks = 0;
            while !done.load(Ordering::Relaxed) || checks == 0 {
                assert_eq!(found(&f.path()), [HEALTHY], "check {checks}");
                checks += 1;
            }
            checks
        });
        for n in 0..40 {
            let id = format!("s{n}");
            f.create(child(&id, "r", Some(&id), 1_000));
            f.accept(&id, turn("m0")).unwrap();
            let (fence, _) = open(&*f.store, &id, Some(1)).unwrap();
            one(&*f.store, accept(&id, note("n0", false))).unwrap();
            f.claim(&fence, ClaimKind::Notes).unwrap();
            f.end_turn(&fence, 1, TurnEnd::Completed);
            f.one(close(&fence, f.next_seq(&id), true)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        checker.join().unwrap()
    });
    assert!(checks > 0);
    f.one(Op::Create(root("last", 1))).unwrap();
}

/// The newest row of all inboxes keeps its number when its session goes.
#[test]
fn a_store_from_which_sessions_were_removed_has_no_fault() {
    let f = Fixture::sqlite();
    f.root("q");
    for n in 0..3 {
        let id = format!("r{n}");
        f.root(&id);
        f.accept(&id, turn("m0")).unwrap();
        f.one(Op::Remove(Remove { session: sid(&id), discard: true })).unwrap();
        assert_eq!(found(&f.path()), Vec::<String>::new());
        f.accept("q", turn(&format!("m{n}"))).unwrap();
        assert_eq!(found(&f.path()), Vec::<String>::new());
    }
    // Any other row under no session is a stranger.
    Connection::open(f.path()).unwrap().execute("UPDATE inbox SET sid = 0 WHERE message_id = 'm1'", []).unwrap();
    assert!(found(&f.path()).contains(&"session row 0: unowned_record".to_owned()));
}
