//! What is acknowledged is on the disk: whatever was written for it has been synced before anybody is told, file and name alike. A kill cannot show that, since the
//! system keeps what a killed process has written; so each thing that is done to the disk is looked at, in its order.

use std::{
    collections::BTreeSet,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use greenroom::session::{
    event::{Body, TurnEnd},
    header::NewSession,
    store::{Create, Op, Release, Remove, Store, jsonl::JsonlStore, sqlite::SqliteStore},
    transfer::{export_folder, import_folder},
};

use super::shim::{Deed, Disaster, How, deeds, done, operations, under};
use crate::{
    cli::{self, Desk, Kind, Said, commit, continuable, id},
    transfer_world::{append, close, open},
};

const FOLDER: &str = "GREENROOM_TEST_SYNCED";

/// The process that is watched: does one thing after the other and says each time that it is done. Does nothing by itself.
#[test]
fn whoever_is_watched() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let store: Box<dyn Store> = match std::env::var("GREENROOM_TEST_KIND").unwrap().as_str() {
        "Sqlite" => Box::new(SqliteStore::open(folder.join("desk.db")).unwrap()),
        _ => Box::new(JsonlStore::open(folder.join("desk")).unwrap()),
    };
    let store = &*store;
    // Past what captures the output of tests, which is no write.
    let said = |what: &str| std::io::stdout().write_all(format!("{what}\n").as_bytes()).and_then(|()| std::io::stdout().flush()).unwrap();
    said("born");
    cli::root(store, "r", "a root", 1_000);
    said("created");
    cli::child(store, "c", "r", &continuable("a child"), 1_000);
    said("created a child");
    for n in 0..3 {
        cli::accept(store, "c", &format!("m{n}"), "Begin.");
        said("accepted");
    }
    let fence = open(store, "c");
    said("opened, with a turn");
    append(store, &fence, vec![Body::TurnEnd { turn: 1, reason: TurnEnd::Completed }], vec![]);
    said("ended a turn");
    append(store, &fence, vec![Body::MessageWithdrawn { message: "m1".parse().unwrap(), by: "user".into() }], vec![1]);
    said("withdrawn");
    close(store, &fence);
    said("closed");
    // Several sessions in one commit, which may be several files.
    let others = ["a", "b"].map(|name| Op::Create(Create::root(NewSession::root(id(name)), "editor", name)));
    store.commit(&others).unwrap();
    said("created two");
    let out = folder.join("out");
    export_folder(&mut *store.reader().unwrap(), &["r", "c"].map(id), &out, &mut |_| ()).unwrap();
    said("exported");
    for name in ["c", "r", "a"] {
        commit(store, Op::Remove(Remove { session: id(name), discard: true }));
        said("removed");
    }
    // Under ids that were never used.
    let (from, other) = (folder.join("from"), folder.join("other"));
    let new: Box<dyn Store> = match std::env::var("GREENROOM_TEST_KIND").unwrap().as_str() {
        "Sqlite" => Box::new(SqliteStore::open(other).unwrap()),
        _ => Box::new(JsonlStore::open(other).unwrap()),
    };
    import_folder(&*new, &from, false, &mut |_| ()).unwrap();
    said("imported");
    for name in ["r", "c"] {
        commit(&*new, Op::Release(Release { session: id(name) }));
        said("released");
    }
    new.close().unwrap();
    store.close().unwrap();
}

/// Tells whether a file is to get another name: what it says counts, and that it has this one does not.
fn is_new(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("_new-") || name.starts_with('.')
}

fn is_log(path: &Path) -> bool {
    path.to_string_lossy().ends_with("-wal")
}

/// Tells whether a file is derived from others, or means something only for as long as its process lives.
fn is_passing(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let above = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let of_locks = above.ends_with("-nodes") || name.ends_with("-nodes") || name.ends_with("-lock") || name == "_lock" || name.starts_with("_held-");
    of_locks || name.ends_with("-shm")
}

/// What was not on the disk at each moment at which something was said.
fn left_out(deeds: &[Deed]) -> Vec<(usize, BTreeSet<PathBuf>)> {
    let (mut missing, mut logs): (BTreeSet<PathBuf>, BTreeSet<PathBuf>) = Default::default();
    let mut all = Vec::new();
    let mut said = 0;
    for deed in deeds {
        match deed {
            Deed::Written(path) if is_log(path) => {
                missing.insert(path.clone());
                // So does its name, once there is something in it.
                if logs.insert(path.clone()) {
                    missing.insert(path.parent().unwrap().to_owned());
                }
            }
            Deed::Written(path) => drop(missing.insert(path.clone())),
            // What has lost its only name is not missed: the tombstone beside it counts. What was new has another name by now.
            Deed::Synced(path) => drop(missing.remove(path)),
            Deed::Gone(path) => {
                if !is_new(path) {
                    missing.remove(path);
                }
            }
            // A log that nothing has been written to yet is none.
            Deed::Named(path) => {
                if !(is_passing(path) || is_new(path) || is_log(path)) {
                    missing.insert(path.parent().unwrap().to_owned());
                }
            }
            // What is cut off is not missed: a log is emptied when all of it has gone into its database.
            Deed::Cut(_) => {}
            Deed::Said => {
                said += 1;
                let now: BTreeSet<PathBuf> = missing.iter().filter(|path| !is_passing(path)).cloned().collect();
                if !now.is_empty() {
                    all.push((said, now));
                }
            }
        }
    }
    assert!(said > 10, "the watched process has said next to nothing: {said}");
    all
}

#[test]
fn whatever_is_acknowledged_has_been_synced_before() {
    for kind in Kind::ALL {
        let desk = Desk::over(kind);
        // What is to be imported.
        let store = desk.any_store();
        cli::root(&*store, "r", "a root", 1_000);
        cli::child(&*store, "c", "r", &continuable("a child"), 1_000);
        cli::accept(&*store, "c", "m0", "Begin.");
        store.close().unwrap();
        drop(store);
        let watched = tempfile::tempdir().unwrap();
        let from = watched.path().join("from");
        assert_eq!(desk.run(&["export", "--all", "--to", from.to_str().unwrap()]).exit, 0);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "faults::syncing::whoever_is_watched", "--nocapture", "--test-threads=1"]);
        command.env(FOLDER, watched.path()).env("GREENROOM_TEST_KIND", format!("{kind:?}"));
        let deeds = deeds(command, watched.path());
        let left_out = left_out(&deeds);
        assert!(left_out.is_empty(), "{kind:?}: {left_out:#?}\n{deeds:#?}");
    }
}

const SEND: [&str; 5] = ["send", "r", "hello", "--message-id", "m1"];

#[test]
fn what_is_said_not_to_be_delivered_has_been_taken_back_on_the_disk_too() {
    let desk = || {
        let desk = Desk::over(Kind::Jsonl);
        let store = desk.any_store();
        cli::root(&*store, "r", "a root", 1_000);
        cli::accept(&*store, "r", "m0", "before");
        store.close().unwrap();
        desk
    };
    let undisturbed = desk();
    let operations = operations(undisturbed.command(&SEND), undisturbed.folder());
    let mut taken_back = 0;
    for at in 0..operations {
        for how in [How::Eio, How::Enospc, How::Short] {
            let desk = desk();
            let disaster = Disaster { at, how };
            let (output, deeds) = done(under(desk.command(&SEND), desk.folder(), disaster), desk.folder());
            let said = Said::of(&output);
            // What is not known, and what is there, need not be gone.
            if said.exit == 0 || said.err.contains("error[INDETERMINATE]") {
                continue;
            }
            let file = desk.path("desk").canonicalize().unwrap().join("_root/r.jsonl");
            let last = deeds.iter().rposition(|deed| *deed == Deed::Written(file.clone()) || *deed == Deed::Cut(file.clone()));
            let Some(last) = last else { continue };
            taken_back += 1;
            assert!(deeds[last..].contains(&Deed::Synced(file)), "{disaster}: a power cut may bring it back: {said:?} {deeds:#?}");
        }
    }
    assert!(taken_back > 0, "no disaster came between a write and its sync");
}
