//! The command line: one file per verb, and what the verbs share.
//!
//! - [`main`]: from arguments to an exit code. [`args`]: the flags that every verb takes.
//! - [`run`], [`list`], [`tree`], [`show`], [`log`], [`send`], [`control`] (`interrupt`, `withdraw`), [`export`], [`import`], [`rm`], [`check`], [`stress`], `mcp`: the verbs. [`progress`], [`transcript`] and [`wait`] do what they show.
//! - [`completions`], [`man`]: what a shell and a manual say of the verbs. [`manual`]: what they are made of, and `docs/cli.md`, which the tests of `reference` write.
//! - [`codes`]: every error code with its exit and its help. [`failure`]: how an error is shown.
//! - [`bar`]: how far a long command has come.
//! - [`terminal`]: the only writer of stdout. [`paint`]: colours. [`layout`]: where lines break.
//! - [`store`]: which store is meant, and how it is opened. [`session`]: which session is meant.
//! - [`entry`], [`cursor`], [`span`], [`names`]: how a listing's line, its place, a time and a session's name are written.
//!
//! `list`, `tree`, `show`, `log` and `check` hold a reader only: they start no actor, take no lease and write nothing. `check --rebuild-index` writes derived rows.

pub(crate) mod args;
pub(crate) mod bar;
pub(crate) mod check;
pub(crate) mod codes;
pub(crate) mod completions;
pub(crate) mod control;
pub(crate) mod cursor;
pub(crate) mod entry;
pub(crate) mod export;
pub(crate) mod failure;
pub(crate) mod import;
pub(crate) mod layout;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod main;
pub(crate) mod man;
pub(crate) mod manual;
#[cfg(feature = "mcp")]
pub(crate) mod mcp;
pub(crate) mod names;
pub(crate) mod paint;
pub(crate) mod progress;
#[cfg(test)]
mod reference;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod session;
pub(crate) mod show;
pub(crate) mod span;
pub(crate) mod store;
pub(crate) mod stress;
pub(crate) mod terminal;
pub(crate) mod transcript;
pub(crate) mod tree;
pub(crate) mod wait;
