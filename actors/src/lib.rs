//! What is alive: the actors that run durable sessions.
//!
//! Nothing here is an authority. What a session has done and what it has to do stands in its store; an actor that ends loses
//! nothing but warmth.
//!
//! Most programs use these types through the `greenroom` crate, whose runtime puts a [`System`] and a store together.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use greenroom_actors::{Config, System, Turn, TurnEnd, host::NewRoot};
//! use greenroom_session::store::memory::MemoryStore;
//!
//! # tokio_test::block_on(async {
//! let mut config = Config::default();
//! config.behavior("echo", || |turn: Turn| async move {
//!     turn.say(turn.text())?;
//!     Ok(TurnEnd::Completed)
//! });
//! let system = System::start(config, Arc::new(MemoryStore::new()), true).await?;
//! let host = system.host();
//!
//! let root = host.root(NewRoot::new("echo", "an echo")).await?;
//! root.send("hello").await?; // accepted: durable in the inbox
//! root.quiescent().await?; // served, and nothing is left to do
//! assert_eq!(host.load(root.id()).await?.fold.head().turns, 1);
//! system.shutdown().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Layout: one actor per file
//!
//! What a user of this crate meets:
//!
//! - [`system`]: a running set of actors over one store. [`config`]: its bounds, and what is injected.
//! - [`behavior`]: what an agent does with a message. [`turn`]: what it may use while doing so.
//! - [`agent`]: the capability of a live session. [`delegate`]: what a child is to be. [`one_shot`]: a child that has one message to serve. [`host`]: the authority of whoever owns the store.
//! - [`catalog`]: the list of a parent's children. [`query`]: where a session comes from, and its events. Neither wakes anybody.
//! - [`setup`]: what a host installs for every Activation. [`registration`]: how long.
//! - [`occurrence`]: what subscribers hear. [`error`]: one enum per operation.
//!
//! The actors behind it, which nobody else talks to:
//!
//! - `supervisor`: starts the others, restarts them together, shuts them down in order.
//! - `registry`: which sessions are live; decides who is started and who may settle.
//! - `activation`: one live session; one turn at a time.
//! - `published`: one live session that its host plays itself.
//! - `journal`: the store's write side; one commit serves everybody who waits.
//! - `query` and `catalog` are actors, too.

mod activation;
pub mod agent;
pub mod behavior;
mod behind;
pub mod catalog;
#[cfg(feature = "chaos")]
pub mod chaos;
mod closed;
pub mod config;
mod control;
pub mod delegate;
pub mod error;
pub mod host;
mod journal;
mod lifecycle;
mod lineage;
mod live;
mod log;
mod nudge;
pub mod occurrence;
pub mod one_shot;
mod pins;
pub mod provider;
pub mod published;
pub mod query;
mod race;
mod reach;
mod readers;
pub mod registration;
mod registry;
mod services;
pub mod setup;
mod supervisor;
pub mod system;
pub mod turn;
mod turn_core;
mod visit;
mod wait;
mod waking;

#[cfg(test)]
mod tests;

pub use agent::Agent;
pub use behavior::{Behavior, TurnEnd, TurnError};
pub use config::Config;
pub use delegate::{Delegate, Delegated};
pub use host::{Host, RootHandle};
pub use occurrence::Occurrence;
pub use one_shot::{OneShotResult, OneShotRun};
pub use provider::Provider;
pub use published::{Publication, PublishedSession};
pub use registration::Registration;
pub use system::System;
pub use turn::Turn;

/// The crate of [`Turn::rng`](turn::Turn::rng): its traits draw from the generator.
pub use rand;
