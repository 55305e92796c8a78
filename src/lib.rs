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
//!     .behavior("editor", || |turn: Turn| async move {
//!         turn.delegate(Delegate::new("reporter", "collect facts", "Where are we?")).await?;
//!         turn.await_children().await?;
//!         turn.say(format!("{} notes came in", turn.notes().len()))?;
//!         Ok(TurnEnd::Completed)
//!     })
//!     .behavior("reporter", || |turn: Turn| async move {
//!         turn.report(format!("You asked: {}", turn.text()), false).await?;
//!         Ok(TurnEnd::Completed)
//!     })
//!     .open("memory:")
//!     .await?;
//!
//! let root = runtime.root("editor", "launch story").await?;
//! root.send("Cover the launch.").await?;
//! root.quiescent().await?;
//! assert_eq!(runtime.last_answer(root.id()).await?.as_deref(), Some("2 notes came in")); // the report, then the notice that the reporter settled
//! runtime.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! - [`session`]: what is true on disk. Synchronous; knows no actor.
//! - [`actors`]: what is alive. One actor per file.
//! - [`runtime`]: the facade: [`Runtime`] and its builder.
//! - [`agent`]: behaviours that come with greenroom: scripted agents and command agents.
//! - [`program`]: program files. [`command`]: running one program safely. [`store_url`]: which store a URL names.
//! - `cli`: the `greenroom` program.

#[cfg(feature = "program")]
pub mod agent;
#[cfg(feature = "program")]
pub mod command;
#[cfg(feature = "program")]
pub mod program;
#[cfg(feature = "program")]
pub mod run;
pub mod runtime;
pub mod store_url;

pub use greenroom_actors as actors;
pub use greenroom_actors::{
    Agent, Behavior, Delegate, Delegated, Host, Occurrence, RootHandle, Turn, TurnEnd, TurnError,
    catalog::{Entry, Listed, Listing, Status},
};
pub use greenroom_session as session;
pub use greenroom_session::id::{MessageId, SessionId};
pub use runtime::{OpenError, Runtime, RuntimeBuilder};
