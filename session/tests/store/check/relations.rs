//! Faults of records that do not go together: the inbox with the log, headers with their columns and parents, rows with a session.

use greenroom_session::{
    event::Body,
    store::{Op, Remove},
};
use rusqlite::params;
use serde_json::json;

use super::plant::{Fault, Plant, add_event, header_crc, put_back, put_event, rewrite, rewrite_header, sql};
use crate::support::{child, fork, mid, note, sid, turn};

/// Faults of records that do not go together, each with all that is to be found of it. Sids and orders are those of [`records`](super::records::faults).
#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn faults() -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut plant = |what, plant: Plant, expected: &[&'static str]| faults.push((what, plant, expected.to_vec()));

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
        "each other's parents through a fork",
        Box::new(|f, _| {
            f.create(fork("x", "y", 1_000));
            f.create(child("y", "x", None, 1_000));
            // Below the cycle, and no part of it; a fork of a fork.
            f.create(fork("z", "x", 1_000));
            f.create(fork("a", "z", 1_000));
        }),
        &["x header: lineage_cycle"],
    );
    plant(
        "a child of a fork at the depth of its grandparent's",
        Box::new(|f, _| {
            f.create(fork("x", "c1", 1_000));
            let mut y = child("y", "x", None, 1_000);
            y.session.depth = 2;
            f.create(y);
        }),
        &["y header: header_conflict"],
    );
    plant(
        "an alias of two",
        Box::new(|f, raw| {
            rewrite(raw, "c2", 0, |event| event["data"]["as"] = json!("a"));
            f.store.rebuild_index(None, &mut |_| {}).unwrap();
        }),
        &["c2 header: duplicate_alias"],
    );

    // Names that are no text, which a flipped bit makes.
    plant(
        "a parent's column that is no text",
        Box::new(sql("UPDATE session SET parent_id = CAST(x'ff' AS TEXT) WHERE id = 'c1'")),
        &["c1 header: header_conflict"],
    );
    plant(
        "a missing parent that is no text",
        Box::new(sql("UPDATE orphan SET parent_id = CAST(x'ff' AS TEXT)")),
        &["index orphan: index_stale", "index orphan: index_stale"],
    );
    plant("a holder that is no text", Box::new(sql("UPDATE lease SET owner = CAST(x'ff' AS TEXT)")), &["lease: lease_of_nobody"]);

    // Rows of nobody, and the file.
    plant("a lost header", Box::new(sql("DELETE FROM session WHERE sid = 2")), &["session row 2: unowned_record", "index summary: index_foreign"]);
    plant("a lease of no session", Box::new(sql("INSERT INTO lease VALUES(99, 'x', 1)")), &["lease: lease_of_nobody"]);
    plant("a lease whose holder is gone", Box::new(sql("UPDATE lease SET owner = 'f4b1c0de-0000-4000-8000-000000000000'")), &["lease: lease_of_nobody"]);
    plant("a lease of another epoch", Box::new(sql("UPDATE lease SET epoch = 7")), &["r lease: lease_of_nobody"]);
    plant("a missing index", Box::new(sql("DROP INDEX session_family")), &["index session_family: schema_conflict"]);
    plant("a trigger", Box::new(sql("CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM inbox; END")), &["trigger t: schema_conflict"]);
    plant("a table of somebody else", Box::new(sql("CREATE TABLE shopping(list TEXT)")), &["table shopping: foreign_object"]);
    plant("what a birth left", Box::new(|f, _| std::fs::write(f.path().with_file_name(".store.db.birth.1"), "x").unwrap()), &[".store.db.birth.1: leftover"]);
    faults
}
