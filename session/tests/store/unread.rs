//! What need not be read: a log for a row, and a grandchild's for anything.

use std::{fs, ops::ControlFlow};

use greenroom_session::{
    place::path_of,
    store::{Reader, Traced, jsonl, sqlite},
};
use rusqlite::Connection;

use crate::support::{Fixture, fork, sid};

macro_rules! on_every_disk {
    ($($name:ident),* $(,)?) => {
        mod in_sqlite {
            $( #[test] fn $name() { super::$name(&crate::support::Fixture::sqlite()); } )*
        }
        mod in_jsonl {
            $( #[test] fn $name() { super::$name(&crate::support::Fixture::jsonl()); } )*
        }
    };
}

on_every_disk!(
    a_grandchilds_log_is_not_read_to_tell_that_it_is_there,
    what_is_known_without_a_log_needs_none,
    damage_within_the_log_of_a_child_without_a_row_is_told,
    a_header_that_is_not_what_was_written_is_corrupt,
);

/// Another process's reader: one that knows nothing yet.
fn beside(f: &Fixture) -> Box<dyn Reader> {
    if f.path().is_dir() { Box::new(jsonl::open_reader(f.path()).unwrap()) } else { Box::new(sqlite::open_reader(f.path()).unwrap()) }
}

/// Which part of a session is damaged.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Header,
    Log,
    /// What is derived of it.
    Row,
}

fn damage(f: &Fixture, parent: &str, id: &str, part: Part) {
    if !f.path().is_dir() {
        let of = format!("sid = (SELECT sid FROM session WHERE id = '{id}')");
        let sql = match part {
            Part::Header => format!("UPDATE session SET header = replace(header, '\"depth\"', '\"width\"') WHERE {of}"),
            Part::Log => format!("UPDATE event SET body = replace(body, 'seq', 'qes') WHERE {of}"),
            Part::Row => format!("UPDATE summary SET head = 'x', verdict = 'y' WHERE {of}"),
        };
        assert!(Connection::open(f.path()).unwrap().execute(&sql, []).unwrap() > 0);
        return;
    }
    let path = f.path().join(path_of(Some(&sid(parent)), &sid(id)));
    let mut lines: Vec<Vec<u8>> = fs::read(&path).unwrap().split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    match part {
        Part::Header => lines[0][20] ^= 1,
        // Not the last one, which might be torn.
        Part::Log => lines[1][20] ^= 1,
        Part::Row => return,
    }
    fs::write(path, lines.concat()).unwrap();
}

fn has_children(f: &Fixture, id: &str) -> bool {
    let mut reader = beside(f);
    let header = reader.header(&sid(id)).unwrap().unwrap();
    let parent = header.parent.clone();
    let child = Traced { id: sid(id), created_at: header.created_at, header: Ok(header) };
    let said = reader.rows(std::slice::from_ref(&child)).unwrap().remove(0).unwrap().has_children;
    assert_eq!(reader.describe(std::slice::from_ref(&child), false).unwrap().remove(0).unwrap().has_children, said);
    assert_eq!(reader.describe(&[child], true).unwrap().remove(0).unwrap().has_children, said);
    for members in [reader.family(parent.as_ref(), None, 9, false).unwrap(), reader.family(parent.as_ref(), None, 9, true).unwrap()] {
        let (_, described) = members.into_iter().find(|(child, _)| child.id == sid(id)).unwrap();
        assert_eq!(described.unwrap().has_children, said);
    }
    said
}

fn a_grandchilds_log_is_not_read_to_tell_that_it_is_there(f: &Fixture) {
    f.root("r");
    for id in ["of child", "of fork", "of none", "of unread", "of unread fork"] {
        f.child(id, "r");
    }
    f.child("gc", "of child");
    f.create(fork("gf", "of fork", 1));
    f.child("gu", "of unread");
    f.create(fork("guf", "of unread fork", 1));
    for (parent, id) in [("of child", "gc"), ("of fork", "gf")] {
        damage(f, parent, id, Part::Log);
        damage(f, parent, id, Part::Row);
        assert!(beside(f).load(&sid(id)).is_err());
    }
    // Nobody knows what they are.
    damage(f, "of unread", "gu", Part::Header);
    damage(f, "of unread fork", "guf", Part::Header);
    let found = ["of child", "of fork", "of none", "of unread", "of unread fork"].map(|id| (id, has_children(f, id)));
    assert_eq!(found, [("of child", true), ("of fork", false), ("of none", false), ("of unread", true), ("of unread fork", true)]);
}

fn what_is_known_without_a_log_needs_none(f: &Fixture) {
    f.root("r");
    f.child("good", "r");
    f.child("rotten", "r");
    f.child("bare", "r");
    let before = beside(f).family(Some(&sid("r")), None, 9, false).unwrap();
    damage(f, "r", "rotten", Part::Log);
    damage(f, "r", "bare", Part::Row);
    let mut reader = beside(f);
    let rows = reader.family_rows(Some(&sid("r")), None, 9).unwrap();
    let known: Vec<(&str, bool)> = rows.iter().map(|(child, row)| (child.id.as_str(), row.as_ref().unwrap().row.is_some())).collect();
    if f.path().is_dir() {
        // Nothing is kept beside a file, and this reader has read none.
        assert_eq!(known, [("bare", false), ("good", false), ("rotten", false)]);
        return;
    }
    assert_eq!(known, [("bare", false), ("good", true), ("rotten", true)]);
    let after = reader.family(Some(&sid("r")), None, 9, false).unwrap();
    assert_eq!(format!("{after:?}"), format!("{before:?}"));
    let verified = reader.family(Some(&sid("r")), None, 9, true).unwrap();
    assert_eq!(verified.iter().map(|(_, described)| described.is_ok()).collect::<Vec<_>>(), [true, true, false]);
}

fn damage_within_the_log_of_a_child_without_a_row_is_told(f: &Fixture) {
    f.root("r");
    f.child("a", "r");
    f.child("b", "r");
    for part in [Part::Log, Part::Row] {
        damage(f, "r", "a", part);
    }
    let mut reader = beside(f);
    let members = reader.family(Some(&sid("r")), None, 9, false).unwrap();
    assert_eq!(members[0].1.as_ref().unwrap_err().code(), "SESSION_CORRUPT");
    assert!(members[1].1.is_ok());
    // The events before it can be read, and no other.
    assert_eq!(reader.events(&sid("a"), 0, 0).unwrap(), []);
    assert_eq!(reader.events(&sid("a"), 0, 1).unwrap_err().code(), "SESSION_CORRUPT");
    let mut seen = 0;
    let folded = reader.fold(&sid("a"), &mut |_| {
        seen += 1;
        ControlFlow::Continue(())
    });
    assert_eq!((folded.unwrap_err().code(), seen), ("SESSION_CORRUPT", 0));
}

fn a_header_that_is_not_what_was_written_is_corrupt(f: &Fixture) {
    f.root("r");
    f.child("a", "r");
    f.child("b", "r");
    damage(f, "r", "a", Part::Header);
    let mut reader = beside(f);
    let children = reader.children(Some(&sid("r")), None, 9).unwrap();
    let a = children.iter().position(|child| child.id == sid("a")).unwrap();
    assert!(children[a].header.is_err());
    assert_eq!(reader.rows(&children).unwrap()[a].as_ref().unwrap_err().code(), "SESSION_CORRUPT");
    for verify in [false, true] {
        let described = reader.describe(&children, verify).unwrap();
        assert_eq!(described[a].as_ref().unwrap_err().code(), "SESSION_CORRUPT", "{verify}");
        assert!(described[1 - a].is_ok());
    }
    assert_eq!(reader.header(&sid("a")).unwrap_err().code(), "SESSION_CORRUPT");
}
