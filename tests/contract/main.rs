//! The behaviour contract, in one binary: real actors over every store. `docs/contract.md` names the test that holds each promise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking, also in its helpers")]
#![cfg(feature = "sqlite")]

mod author;
mod birth;
mod cancelling;
mod catalog;
mod cycles;
#[cfg(feature = "cli")]
mod damage;
mod delegating;
mod descendants;
mod disposal;
mod drain;
mod files;
mod follow_up;
mod forged;
mod fork;
mod giving_up;
mod in_the_way;
mod killed;
mod last_words;
mod lifecycle;
mod limits;
mod listing;
mod mechanics;
#[cfg(feature = "cli")]
mod meet;
mod misbehaving;
mod one_shot;
mod overdue;
#[path = "../../actors/src/tests/pairs.rs"]
mod pairs;
mod persistence;
mod played;
mod providers;
mod publish;
mod query;
mod reports;
mod residency;
mod runs;
mod settlement;
mod setup;
mod supervision;
mod talking;
mod tools;
mod tools_calls;
#[cfg(feature = "program")]
mod tools_commands;
mod tools_delegating;
mod watched;
mod watched_store;
mod world;

/// Where the checker of pairs, which is shared with the tests of the actors, looks for it.
use greenroom::Occurrence;

/// A file that is no module would never be compiled, and its tests never run.
#[test]
fn every_file_of_this_folder_is_a_module() {
    let this = include_str!("main.rs");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // A folder is a module, too: its files are listed by the file of its name.
        let is_code = path.is_dir() || path.extension().is_some_and(|extension| extension == "rs");
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let is_module = !is_code || name == "main" || this.contains(&format!("\nmod {name};"));
        assert!(is_module, "{} is not listed in tests/contract/main.rs", path.display());
    }
}
