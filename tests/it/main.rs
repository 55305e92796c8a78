//! The integration tests, in one binary. Modules are named for behaviour.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking, also in its helpers")]

#[cfg(all(feature = "acp", feature = "cli", feature = "sqlite"))]
mod acp;
#[cfg(feature = "sqlite")]
mod audit;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_check;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_errors;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_export;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_folders;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_import;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_jsonl;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_list;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_manual;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_repair;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_rm;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_run;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_security;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_send;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_show;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_signals;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_terminal;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod cli_verbs;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod codes;
mod contract;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod control;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod crash;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod described;
mod docs;
#[cfg(feature = "sqlite")]
mod facade;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod faults;
#[cfg(feature = "program")]
mod fuzzed;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod guide;
mod log_format;
#[cfg(all(feature = "cli", feature = "mcp", feature = "sqlite"))]
mod mcp;
#[cfg(all(feature = "cli", feature = "mcp", feature = "sqlite"))]
mod mcp_client;
#[cfg(all(feature = "cli", feature = "mcp", feature = "sqlite"))]
mod mcp_input;
#[cfg(all(feature = "cli", feature = "mcp", feature = "sqlite"))]
mod mcp_page;
#[cfg(all(feature = "cli", feature = "mcp", feature = "sqlite"))]
mod mcp_restart;
#[cfg(feature = "models")]
mod models;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod processes;
mod recordings;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod seed;
#[cfg(feature = "sqlite")]
mod seeded;
#[cfg(feature = "sqlite")]
mod senders;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod stress;
mod tools;
#[cfg(all(feature = "cli", feature = "sqlite"))]
mod transfer_world;

/// A file that is no module would never be compiled, and its tests never run.
#[test]
fn every_file_of_this_folder_is_a_module() {
    let this = include_str!("main.rs");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let is_module = name == "main" || this.contains(&format!("\nmod {name};"));
        assert!(is_module, "{} is not listed in tests/it/main.rs", path.display());
    }
}
