//! An actor-model runtime for durable, continuable agents.
//!
//! An agent delegates to background children and goes on working. Each child is a durable *session*: an immutable header, an append-only
//! log, and an inbox. While it works it is *live*: an actor that serves one message after the other, each as a turn of its own. When it has nothing to do
//! it *settles* and costs nothing; it can be listed without being woken, and a message brings it back, in this process, after a restart, or after a crash.
//!
//! **Accepted means durable**: when a message's id is returned, the message is on disk in the receiver's inbox, and it ends in exactly one turn.
//!
//! # Example
//!
//! ```
//! use greenroom::{Delegate, Runtime, Turn, TurnEnd};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder()
//!     .closure("editor", |turn: Turn| async move {
//!         turn.delegate(Delegate::new("reporter", "collect facts", "Where are we?")).await?;
//!         turn.await_children().await?;
//!         turn.say(format!("{} notes came in", turn.notes().len()))?;
//!         Ok(TurnEnd::Completed)
//!     })
//!     .closure("reporter", |turn: Turn| async move {
//!         turn.report(format!("You asked: {}", turn.text()), false).await?; // not quiet: it wakes the parent
//!         Ok(TurnEnd::Completed)
//!     })
//!     .open("memory:") // "sqlite:desk.db" outlives the process
//!     .await?;
//!
//! let root = runtime.root("editor", "launch story").await?;
//! root.send("Cover the launch.").await?;
//! root.quiescent().await?; // nothing of the tree has anything left to do
//! assert_eq!(runtime.last_answer(root.id()).await?.as_deref(), Some("2 notes came in")); // the report, then the notice that the reporter settled
//! runtime.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Words
//!
//! - A **behaviour** ([`Behavior`]) says what an agent does with one message. It is registered under a name, which the logs of its sessions keep.
//! - A **turn** ([`Turn`]) is the work on one message. After a crash the message is served again, as another attempt; what a turn did to other sessions is
//!   named by what it did, so that doing it again is the same acceptance and happens once.
//! - A **note** is a report of a child, or the notice that it has settled. It joins the next step or turn, and opens a turn
//!   if nothing else does and it is not quiet.
//! - A **root** has no parent. Its handle ([`RootHandle`]) keeps it live; dropped, it lets the root settle.
//! - Who may do what: [`Agent`] is the right of one live session to act on its own children and its parent; [`Host`] is the authority of whoever owns the store.
//!
//! `ARCHITECTURE.md` has the whole glossary, `docs/log-format.md` what is on disk.
//!
//! # What is durable when
//!
//! | returned | on disk |
//! |---|---|
//! | the id of a message ([`RootHandle::send`], [`Turn::send_message`], [`Turn::report`]) | the message, in the receiver's inbox |
//! | a child ([`Turn::delegate`]) | its session and its first message |
//! | [`Turn::record`], [`Turn::record_answer`] | the record |
//! | [`Turn::say`], [`Turn::memo`] | nothing yet: with the next of the above, at the latest with the turn's end |
//!
//! A store in memory (`memory:`) keeps these promises for as long as the process lives, one on disk (`sqlite:PATH`, `jsonl:DIR`) also through SIGKILL and power loss.
//!
//! # Layout
//!
//! - [`runtime`]: the facade: [`Runtime`] and its builder. [`store_url`]: which store a URL names. [`seeded`]: runs that a seed repeats.
//! - [`program`]: program files. [`run`]: plays one until nothing is left to do. [`agent`]: the behaviours that program files name: scripted agents and
//!   command agents. [`command`]: running one program safely.
//! - [`tool`]: what a model may call: the tools of the runtime, functions and commands.
//! - [`stress`]: a stress run and the audit of what it has left.
//! - `mcp`: the MCP server. `wire`: bounded stdio between a client and the library that speaks its protocol.
//! - [`actors`]: what is alive. One actor per file.
//! - [`session`]: what is true on disk. Synchronous; knows no actor.
//! - `cli`: the `greenroom` program.
//!
//! # Features
//!
//! - `sqlite` (default): the store in a file. It compiles SQLite's C source.
//! - `program`: program files and what plays them.
//! - `stress`: the stress run.
//! - `acp` (default), `mcp` (default): serving an editor or a coding agent on stdio; need `program`.
//! - `cli` (default): the `greenroom` program; needs `program` and `stress`.

#[cfg(feature = "program")]
pub mod agent;
#[cfg(feature = "program")]
pub mod command;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod model;
#[cfg(feature = "program")]
pub mod program;
#[cfg(feature = "program")]
pub mod run;
pub mod runtime;
pub mod seeded;
#[cfg(any(feature = "program", feature = "stress"))]
mod signals;
pub mod store_url;
#[cfg(feature = "stress")]
pub mod stress;
pub mod tool;
#[cfg(any(feature = "acp", feature = "mcp"))]
pub mod wire;

pub use greenroom_actors as actors;
pub use greenroom_actors::{
    Agent, Behavior, Delegate, Delegated, Host, Occurrence, OneShotResult, OneShotRun, Publication, PublishedSession, Registration, RootHandle, Turn, TurnEnd,
    TurnError,
    catalog::{Descendant, Descendants, Entry, Listed, Listing, Status},
    provider, rand, setup,
};
pub use greenroom_session as session;
pub use greenroom_session::id::{MessageId, SessionId};
pub use runtime::{OpenError, Runtime, RuntimeBuilder};

/// Compiles the README's example with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles and runs the guide's programs with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide.md")]
struct Guide;
