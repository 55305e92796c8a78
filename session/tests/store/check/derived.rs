//! Faults of derived rows: found, never believed, and derived again.

use std::{fmt::Write as _, fs, path::Path};

use greenroom_session::{
    check::Rebuilt,
    codec::encode_header,
    event::TurnEnd,
    header::NewSession,
    store::{
        Create, Op, Reader, Remove, Traced,
        sqlite::{SqliteStore, open_reader},
    },
};
use rusqlite::{Connection, params, types::Value as Column};

use super::{
    plant::{Fault, Plant, sql},
    world::{HEALTHY, busy, found},
};
use crate::support::{Fixture, accept, child, note, one, root, sid, turn};

/// Faults of derived rows, each with all that is to be found of it. Sids are those of [`records`](super::records::faults).
pub(super) fn faults() -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut plant = |what, plant: Plant, expected: &[&'static str]| faults.push((what, plant, expected.to_vec()));

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

/// The derived rows of one moment beside the logs of another: an older index, a newer one, one that was cut short, and none.
#[test]
fn an_index_of_another_day_than_the_logs_changes_no_answer() {
    let f = busy();
    let folder = tempfile::tempdir().unwrap();
    let raw = Connection::open(f.path()).unwrap();
    let keep = |name: &str| {
        raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        let path = folder.path().join(name);
        fs::copy(f.path(), &path).unwrap();
        path
    };
    let mut days = vec![keep("first")];
    // What changes a head, a verdict, a set of work, a set of missing parents, and nothing but what is held.
    f.accept("c1", turn("m1")).unwrap();
    f.accept("c2", note("n0", false)).unwrap();
    f.create(child("c3", "r", Some("c"), 1_000));
    f.create(child("o2", "nowhere", None, 1_000));
    days.push(keep("second"));
    let (fence, _) = f.open("c1", Some(1));
    f.end_turn(&fence, 1, TurnEnd::Completed);
    f.close(&fence, false).unwrap();
    f.create(child("g", "c1", None, 1_000));
    f.create(root("nowhere", 1_000));
    f.one(Op::Remove(Remove { session: sid("c3"), discard: false })).unwrap();
    days.push(keep("third"));
    let mut tried = 0;
    for logs in &days {
        let expected = answers(logs, true);
        assert_eq!(answers(logs, false), expected);
        for rows in days.iter().map(Some).chain([None]) {
            for part in ["1", "rowid % 2 = 0", "rowid % 2 = 1", "0"] {
                tried += 1;
                let path = folder.path().join(format!("mixed-{tried}"));
                fs::copy(logs, &path).unwrap();
                let mixed = Connection::open(&path).unwrap();
                mixed.execute_batch("DELETE FROM summary; DELETE FROM orphan; DELETE FROM tally").unwrap();
                if let Some(rows) = rows {
                    mixed.execute("ATTACH ?1 AS other", [rows.to_str().unwrap()]).unwrap();
                    for table in ["summary", "orphan", "tally"] {
                        let key = if table == "orphan" { part.replace("rowid", "length(parent_id)") } else { part.to_owned() };
                        mixed.execute_batch(&format!("INSERT INTO {table} SELECT * FROM other.{table} WHERE {key}")).unwrap();
                    }
                }
                drop(mixed);
                assert_eq!(answers(&path, false), expected, "{logs:?} with {part} of {rows:?}");
                // Nor what the next writer makes of it.
                let store = SqliteStore::open(&path).unwrap();
                one(&store, accept("r", turn("after"))).unwrap();
                assert_eq!(answers(&path, false), answers(&path, true), "{logs:?} with {part} of {rows:?}");
            }
        }
    }
}

#[test]
fn a_row_of_no_session_yields_nothing() {
    let f = busy();
    let raw = Connection::open(f.path()).unwrap();
    let before = answers(&f.path(), false);
    raw.execute_batch(
        "INSERT INTO summary SELECT 99, head, head_crc, 1, verdict, verdict_crc, header_crc, 'r', 'ghost' FROM summary WHERE sid = 2;
         INSERT INTO lease VALUES(99, 'somebody', 1)",
    )
    .unwrap();
    assert_eq!(answers(&f.path(), false), before);
    assert_eq!(f.reader().alias(&sid("r"), "ghost").unwrap(), None);
    assert_eq!(f.reader().family_rows(Some(&sid("r")), None, 9).unwrap().len(), 2);
    let nobody = Traced { id: sid("ghost"), created_at: 1, header: Ok(NewSession::child(sid("ghost"), sid("r"), 0).at(1).into()) };
    assert_eq!(f.reader().rows(&[nobody]).unwrap()[0].as_ref().unwrap_err().code(), "SESSION_NOT_FOUND");
}

#[test]
fn a_row_is_bound_to_its_header() {
    let f = busy();
    let raw = Connection::open(f.path()).unwrap();
    let known = |f: &Fixture| -> Vec<Option<bool>> {
        let rows = f.reader().family_rows(Some(&sid("r")), None, 9).unwrap();
        rows.iter().map(|(_, row)| row.as_ref().ok().map(|row| row.row.is_some())).collect()
    };
    assert_eq!(known(&f), [Some(true), Some(true)]);
    // Another header that is whole, for which the row was not made: headers do not change, so one of the two is not what was written.
    let mut header = (*f.reader().header(&sid("c1")).unwrap().unwrap()).clone();
    header.cwd = Some("/elsewhere".into());
    let encoded = encode_header(&header).unwrap();
    let text = std::str::from_utf8(&encoded.body).unwrap();
    raw.execute("UPDATE session SET header = ?1, crc = ?2 WHERE id = 'c1'", params![text, encoded.crc]).unwrap();
    let told = |verify| f.reader().family(Some(&sid("r")), None, 9, verify).unwrap()[0].1.as_ref().unwrap_err().to_string();
    assert_eq!(known(&f), [None, Some(true)]);
    assert!(told(false).contains("derived row was made for"), "{}", told(false));
    assert_eq!((told(true), answers(&f.path(), false)), (told(false), answers(&f.path(), true)));
    assert_eq!(f.accept("c1", turn("after")).unwrap_err().code(), "SESSION_CORRUPT");
    // What derives rows again leaves the one that tells it.
    f.store.rebuild_index(None, &mut |_| ()).unwrap();
    assert!(told(false).contains("derived row was made for"), "{}", told(false));
    assert!(found(&f.path()).iter().any(|finding| finding.starts_with("c1 header: header_conflict")), "{:?}", found(&f.path()));
    // A row that is no good tells nothing of a header.
    raw.execute("UPDATE summary SET header_crc = header_crc + 1 WHERE sid = (SELECT sid FROM session WHERE id = 'c1')", []).unwrap();
    assert_eq!(known(&f), [Some(false), Some(true)]);
    assert_eq!(answers(&f.path(), false), answers(&f.path(), true));
    // A checksum that is not the header's: the header is damaged, whatever its row says.
    raw.execute("UPDATE session SET crc = crc + 1 WHERE id = 'c1'", []).unwrap();
    assert_eq!(known(&f), [None, Some(true)]);
    let family = f.reader().family(Some(&sid("r")), None, 9, false).unwrap();
    assert_eq!(family[0].1.as_ref().unwrap_err().code(), "SESSION_CORRUPT");
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
