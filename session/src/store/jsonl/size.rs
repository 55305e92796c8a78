//! What a listing costs does not depend on how many files there are elsewhere: counted in files that are read, of which the others could not be.

use std::{
    fs,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::SystemTime,
};

use super::{JsonlReader, JsonlStore, view::View};
use crate::{
    descriptor::Descriptor,
    header::NewSession,
    id::SessionId,
    store::{Create, Op, Reader, Store},
};

fn sid(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

fn child(id: &str, parent: &str) -> Op {
    let descriptor = Descriptor::continuable("spawn", format!("child {id}"), "reporter");
    Op::Create(Create::child(NewSession::child(sid(id), sid(parent), 0), vec![], &descriptor, None, 1_000).unwrap())
}

/// A parent of ten children, one of which has one, among as many files as are wanted that no reader makes anything of.
fn corpus(dir: &Path, files: usize) {
    let store = JsonlStore::open(dir).unwrap();
    let mut ops = vec![Op::Create(Create::root(NewSession::root(sid("desk")), "editor", "a desk"))];
    ops.extend((0..10).map(|n| child(&format!("child-{n}"), "desk")));
    ops.push(child("grandchild", "child-3"));
    assert!(store.commit(&ops).unwrap().iter().all(Result::is_ok));
    store.close().unwrap();
    // One file under many names is as good as many, and made sooner.
    let other = dir.join("_root/other.jsonl");
    fs::write(&other, "no session\n").unwrap();
    for folder in 0..10 {
        let folder = if folder == 0 { dir.join("_root") } else { dir.join(format!("other-{folder}")) };
        fs::create_dir_all(&folder).unwrap();
        for n in 0..files / 10 {
            fs::hard_link(&other, folder.join(format!("other-{n}.jsonl"))).unwrap();
        }
    }
}

/// When each file of a folder was last written, and how long it is.
fn stamps(dir: &Path) -> Vec<(std::path::PathBuf, u64, SystemTime)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let about = entry.metadata().unwrap();
            if about.is_dir() {
                folders.push(entry.path());
            }
            found.push((entry.path(), about.len(), about.modified().unwrap()));
        }
    }
    found.sort();
    found
}

/// How many files are read by each of some ways to look, each by a reader that has seen nothing before.
fn reads(dir: &Path) -> Vec<(&'static str, u64)> {
    type Look = (&'static str, fn(&mut JsonlReader));
    let looks: [Look; 4] = [
        ("children", |reader| assert_eq!(reader.children(Some(&sid("desk")), None, 100).unwrap().len(), 10)),
        ("family", |reader| {
            let family = reader.family(Some(&sid("desk")), None, 100, false).unwrap();
            let described: Vec<bool> = family.iter().map(|(_, described)| described.as_ref().unwrap().has_children).collect();
            assert_eq!(described, (0..10).map(|n| n == 3).collect::<Vec<_>>());
        }),
        ("header", |reader| assert!(reader.header(&sid("child-7")).unwrap().is_some())),
        ("load", |reader| assert_eq!(reader.load(&sid("child-7")).unwrap().events.len(), 2)),
    ];
    let mut found = Vec::new();
    for (name, look) in looks {
        let view = Arc::new(View::new(fs::canonicalize(dir).unwrap(), None));
        look(&mut JsonlReader::new(view.clone()));
        found.push((name, view.reads.load(Ordering::SeqCst)));
    }
    found
}

#[test]
fn a_family_of_ten_costs_the_same_among_fifty_thousand_files_as_among_fifty() {
    let folder = tempfile::tempdir().unwrap();
    let told: Vec<_> = [50, 50_000]
        .into_iter()
        .map(|files| {
            let dir = folder.path().join(files.to_string());
            corpus(&dir, files);
            let before = stamps(&dir);
            let told = reads(&dir);
            assert_eq!(stamps(&dir), before, "looking has written");
            told
        })
        .collect();
    // A header each; a log each and the header of the one grandchild.
    let expected = [("children", 10), ("family", 11), ("header", 1), ("load", 1)];
    assert_eq!(told, [expected, expected]);
}
