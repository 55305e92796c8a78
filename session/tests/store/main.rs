//! One suite for every store: what the `Store` and `Reader` traits promise, run against each implementation.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking, in its helpers too")]

mod bits;
mod bounded;
mod check;
mod check_files;
mod creation;
mod inbox;
mod jsonl;
mod limits;
mod listing;
mod model;
mod processes;
mod properties;
mod reading;
mod seeds;
mod sqlite;
mod support;
mod transfer;
mod unread;
mod work;
