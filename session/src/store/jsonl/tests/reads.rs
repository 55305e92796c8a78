//! How many files are opened, and how many logs are read, by a process that has read none before.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use super::{JsonlStore, Place, child, done, root, sid};
use crate::{
    header::NewSession,
    listing::Cursor,
    store::{
        Create, Op, Reader, Remove, Store, Traced,
        jsonl::{read::JsonlReader, stamp::Stamp, view::View},
    },
};

/// A root with four children, the last of them a fork; each has two children.
fn forest(dir: &Path) -> Vec<Place> {
    let store = JsonlStore::open(dir).unwrap();
    let fork = |id: &str, parent: &str| Op::Create(Create { session: NewSession::fork(sid(id), sid(parent)), ..creation(&child(id, parent)) });
    let mut ops = vec![root("r"), child("a", "r"), child("b", "r"), child("c", "r"), fork("x", "r")];
    let mut places = vec![Place::of(None, &sid("r"))];
    for parent in ["a", "b", "c", "x"] {
        places.push(Place::of(Some(&sid("r")), &sid(parent)));
        // A fork stands before the child, so that it takes two headers to tell.
        ops.extend([fork(&format!("{parent}0"), parent), child(&format!("{parent}1"), parent)]);
        places.extend(["0", "1"].map(|n| Place::of(Some(&sid(parent)), &sid(&format!("{parent}{n}")))));
    }
    for op in ops {
        done(&store, op);
    }
    // What has just been written may be written again within the same tick, so that it would not be remembered.
    settle(places.iter().map(|place| place.path(dir)));
    places
}

fn creation(op: &Op) -> Create {
    match op {
        Op::Create(create) => create.clone(),
        other => panic!("{other:?}"),
    }
}

/// A reader that knows nothing yet, and how many files it has opened and logs it has read since it was last asked.
struct Fresh {
    view: Arc<View>,
    reader: JsonlReader,
}

impl Fresh {
    fn new(dir: &Path) -> Self {
        let view = Arc::new(View::new(dir.to_owned(), None));
        Self { reader: JsonlReader::new(view.clone()), view }
    }

    fn cost(&self) -> (u64, u64) {
        (self.view.reads.swap(0, Ordering::SeqCst), self.view.logs.swap(0, Ordering::SeqCst))
    }
}

#[test]
fn a_first_list_reads_each_childs_file_once_and_the_headers_of_grandchildren() {
    let folder = tempfile::tempdir().unwrap();
    forest(folder.path());
    let parent = sid("r");
    let mut fresh = Fresh::new(folder.path());
    let members = fresh.reader.family(Some(&parent), None, 9, false).unwrap();
    assert!(members.iter().all(|(_, described)| described.as_ref().is_ok_and(|described| described.has_children)));
    let (opened, logs) = fresh.cost();
    // The files of a folder come in no order: a fork may stand before the child or not.
    assert!((8..=12).contains(&opened), "{opened}");
    assert_eq!(logs, 4);
    assert_eq!(format!("{:?}", fresh.reader.family(Some(&parent), None, 9, false).unwrap()), format!("{members:?}"));
    let rows = fresh.reader.family_rows(Some(&parent), None, 9).unwrap();
    assert!(rows.iter().all(|(_, row)| row.as_ref().is_ok_and(|row| row.row.is_some())));
    assert_eq!(fresh.cost(), (0, 0), "what was read is remembered");
}

#[test]
fn headers_and_rows_cost_no_log_and_a_page_those_of_its_children() {
    let folder = tempfile::tempdir().unwrap();
    forest(folder.path());
    let parent = sid("r");
    let mut fresh = Fresh::new(folder.path());
    let children = fresh.reader.children(Some(&parent), None, 9).unwrap();
    assert_eq!((children.len(), fresh.cost()), (4, (4, 0)));
    let rows = fresh.reader.rows(&children).unwrap();
    assert!(rows.iter().all(|row| row.as_ref().is_ok_and(|row| row.row.is_none() && row.has_children && row.holder.is_none())));
    assert_eq!(fresh.cost().1, 0);
    let after = Cursor { created_at: children[0].created_at, id: children[0].id.clone() };
    let page = fresh.reader.family(Some(&parent), Some(&after), 2, false).unwrap();
    assert_eq!((page.len(), fresh.cost()), (2, (2, 2)));
    // What the log of one was read for, its row says from then on.
    let fold = fresh.reader.folded(&children[0].id).unwrap();
    assert_eq!(fresh.cost(), (1, 1));
    let row = fresh.reader.rows(&children[..1]).unwrap().remove(0).unwrap().row.unwrap();
    assert_eq!((&row.head, fresh.cost()), (fold.head(), (0, 0)));
    // Whoever stops has not read it.
    assert_eq!(fresh.reader.fold(&children[3].id, &mut |_| ControlFlow::Break(())).unwrap(), None);
    assert!(fresh.reader.rows(&children[3..]).unwrap()[0].as_ref().is_ok_and(|row| row.row.is_none()));
}

fn ids(children: &[Traced]) -> Vec<String> {
    children.iter().map(|child| child.id.to_string()).collect()
}

/// Waits until a change of these would show.
fn settle(paths: impl IntoIterator<Item = PathBuf>) {
    for path in paths {
        while !Stamp::of(&fs::metadata(&path).unwrap()).is_settled() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_page_costs_its_rows_and_not_the_family() {
    let folder = tempfile::tempdir().unwrap();
    let store = JsonlStore::open(folder.path()).unwrap();
    let parent = sid("r");
    let ops: Vec<Op> = [root("r")].into_iter().chain((0..40).map(|n| child(&format!("c{n:02}"), "r"))).collect();
    assert!(store.commit(&ops).unwrap().iter().all(Result::is_ok));
    drop(store);
    let files = fs::read_dir(folder.path().join("r")).unwrap().map(|entry| entry.unwrap().path());
    settle(files.chain([folder.path().join("r")]));
    let fresh = Fresh::new(folder.path());
    let mut reader = fresh.reader;
    let looks = || fresh.view.looks.swap(0, Ordering::SeqCst);
    let whole = reader.children(Some(&parent), None, 99).unwrap();
    looks();
    let mut seen: Vec<Traced> = Vec::new();
    for _ in 0..14 {
        let after = seen.last().map(|last| Cursor { created_at: last.created_at, id: last.id.clone() });
        let page = reader.children(Some(&parent), after.as_ref(), 3).unwrap();
        assert_eq!(looks(), page.len() as u64);
        seen.extend(page);
    }
    assert_eq!(seen, whole);
}

#[test]
fn whoever_comes_goes_or_changes_is_seen_in_the_place_of_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let store = JsonlStore::open(dir).unwrap();
    let parent = sid("r");
    let at = |id: &str, time: u64| Op::Create(Create { time, ..creation(&child(id, "r")) });
    for op in [root("r"), at("b", 10), at("d", 20), at("a", 30)] {
        done(&store, op);
    }
    let path = |id: &str| Place::of(Some(&parent), &sid(id)).path(dir);
    let mut reader = Fresh::new(dir).reader;
    let mut expect = |expected: &[&str]| {
        settle([dir.join("r")]);
        // Once to learn the order and once by it.
        for _ in 0..2 {
            assert_eq!(ids(&reader.children(Some(&parent), None, 9).unwrap()), expected);
            let before_all = Cursor { created_at: 0, id: sid("zzz") };
            assert_eq!(ids(&reader.children(Some(&parent), Some(&before_all), 9).unwrap()), expected);
        }
    };
    expect(&["b", "d", "a"]);
    done(&store, at("c", 25));
    expect(&["b", "d", "a", "c"]);
    done(&store, Op::Remove(Remove { session: sid("d"), discard: true }));
    expect(&["b", "a", "c"]);
    // Somebody else's doing, within the same names: another time, damage, and its repair.
    let whole = fs::read(path("c")).unwrap();
    let header = NewSession::child(sid("c"), parent.clone(), 0).at(15);
    let mut line = crate::line::write_batch_line(&sid("c"), &crate::line::Line::Header(header), true).unwrap();
    line.push(b'\n');
    let rest = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    fs::write(path("c"), [&line, &whole[rest..]].concat()).unwrap();
    expect(&["b", "c", "a"]);
    fs::write(path("c"), &whole).unwrap();
    expect(&["b", "a", "c"]);
}

#[test]
fn an_alias_is_looked_for_in_children_alone_and_no_further_than_to_it() {
    let folder = tempfile::tempdir().unwrap();
    forest(folder.path());
    let parent = sid("r");
    let mut fresh = Fresh::new(folder.path());
    assert_eq!(fresh.reader.alias(&parent, "alias of b").unwrap(), Some(sid("b")));
    assert_eq!(fresh.cost().1, 2);
    assert_eq!(fresh.reader.alias(&parent, "alias of x").unwrap(), None, "a fork has none");
    assert_eq!(fresh.cost().1, 1);
}

#[test]
fn events_are_read_no_further_than_they_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let places = forest(folder.path());
    let path = places[1].path(folder.path());
    // The first message of a child stands behind its events.
    let mut lines: Vec<Vec<u8>> = fs::read(&path).unwrap().split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let last = lines.last().unwrap().clone();
    lines[2][20] ^= 1;
    fs::write(&path, lines.concat()).unwrap();
    let mut reader = Fresh::new(folder.path()).reader;
    let id = sid("a");
    assert_eq!(reader.events(&id, 0, 1).unwrap().len(), 1);
    for (from, limit) in [(0, 2), (1, 1), (2, 1)] {
        assert_eq!(reader.events(&id, from, limit).unwrap_err().code(), "SESSION_CORRUPT", "from {from}, at most {limit}");
    }
    // A seq that is not its own is told, too, by whomever it is read.
    lines[2][20] ^= 1;
    lines.insert(2, last);
    fs::write(&path, lines.concat()).unwrap();
    assert_eq!(reader.events(&id, 0, 9).unwrap().len(), 2);
    lines.swap(1, 3);
    fs::write(&path, lines.concat()).unwrap();
    for from in [0, 1, 2, 9] {
        assert_eq!(reader.events(&id, from, 1).unwrap_err().code(), "SESSION_CORRUPT", "from {from}");
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_is_read_again_and_no_event_is_handed_on_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (place, states) = super::history(folder.path());
    let path = place.path(folder.path());
    let whole = fs::read(&path).unwrap();
    let id = sid("r");
    let log = Fresh::new(folder.path()).reader.load(&id).unwrap();
    for (length, _) in &states {
        fs::write(&path, &whole).unwrap();
        let mut fresh = Fresh::new(folder.path());
        let mut seen = Vec::new();
        let result = fresh.reader.fold(&id, &mut |event| {
            if seen.is_empty() {
                // As a writer does that takes a batch back.
                fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(*length as u64).unwrap();
            }
            seen.push(event.clone());
            ControlFlow::Continue(())
        });
        let fold = result.unwrap().unwrap();
        let left = usize::try_from(fold.head().next_seq).unwrap();
        assert_eq!((&*seen, fold), (&log.events[..left], Fresh::new(folder.path()).reader.folded(&id).unwrap()), "cut at {length}");
    }
}
