//! One suite for every store: what the `Store` and `Reader` traits promise, run against each implementation.

mod creation;
mod inbox;
mod limits;
mod listing;
mod model;
mod processes;
mod sqlite;
mod support;
mod work;
