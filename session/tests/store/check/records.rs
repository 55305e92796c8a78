//! Faults of records by themselves: changed, lost, in other places, or such as do not fold.

use greenroom_session::{
    codec::event_crc,
    event::Body,
    header::NewSession,
    repair::Quarantine,
    store::{Create, Reader, sqlite::open_reader},
};
use rusqlite::{Connection, params};
use serde_json::json;

use super::{
    plant::{Fault, Plant, add_event, descriptor, put_event, rewrite, seeded, sql},
    world::{HEALTHY, busy, found},
};
use crate::support::sid;

/// Faults of records by themselves, each with all that is to be found of it. The first child has sid 2, the root's messages are 0 turn gone,
/// 1 note gone, 2 turn, 3 note, 4 and 5 gone.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn faults() -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut plant = |what, plant: Plant, expected: &[&'static str]| faults.push((what, plant, expected.to_vec()));

    // Records that are not what was written.
    plant("an event's text", Box::new(sql("UPDATE event SET body = replace(body, 'editor', 'victor') WHERE seq = 0")), &["r event 0: checksum"]);
    plant("an event's checksum", Box::new(sql("UPDATE event SET crc = crc + 1 WHERE sid = 1 AND seq = 4")), &["r event 4: checksum"]);
    plant("a checksum that is none", Box::new(sql("UPDATE event SET crc = -1 WHERE sid = 1 AND seq = 4")), &["r event 4: checksum"]);
    plant("a header's text", Box::new(sql("UPDATE session SET header = replace(header, '1000', '1001') WHERE id = 'r'")), &["r header: checksum"]);
    plant("a header's checksum", Box::new(sql("UPDATE session SET crc = crc + 1 WHERE id = 'c2'")), &["c2 header: checksum"]);
    plant("a message's text", Box::new(sql("UPDATE inbox SET body = replace(body, 'text', 'lies') WHERE sid = 1 AND ord = 2")), &["r message 2: checksum"]);
    plant("a message made held", Box::new(sql("UPDATE inbox SET held = 1 WHERE sid = 1 AND ord = 2")), &["r message 2: checksum", "index tally: index_stale"]);
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
    plant(
        "a damaged session that a repair has quarantined",
        Box::new(|f, raw| {
            raw.execute("UPDATE event SET crc = 0 WHERE seq = 0 AND sid = (SELECT sid FROM session WHERE id = 'c2')", []).unwrap();
            let quarantine = Quarantine { at: 1, found: vec!["checksum".into()] };
            assert!(f.store.quarantine(&sid("c2"), &quarantine).unwrap());
        }),
        &["c2 log: quarantined"],
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
    plant("no descriptor", Box::new(|f, _| drop(f.one(seeded("f", vec![Body::EndSeed {}])).unwrap())), &["f log: no_descriptor"]);
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
    faults
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
