//! What is alive: the actors that run durable sessions.
//!
//! Nothing here is an authority. What a session has done and what it has to do stands in its store; an actor that ends loses
//! nothing but warmth.
//!
//! # Layout: one actor per file
//!
//! - `supervisor`: starts the others, restarts them together, shuts them down in order.
//! - `registry`: which sessions are live; decides who is started and who may settle.
//! - `activation`: one live session; one turn at a time.
//! - `journal`: the store's write side; one commit serves everybody who waits.
//! - [`query`]: reads; never wakes anybody.
//! - [`catalog`]: the list of a parent's children, asked of the query actor.
//!
//! And what they share:
//!
//! - [`behavior`]: what an agent does with a message. [`turn`]: what it may use while doing so.
//! - [`agent`]: the capability of a live session. [`host`]: the authority of whoever owns the store.
//! - [`system`]: a running set of these actors over one store.

mod activation;
pub mod agent;
pub mod behavior;
pub mod catalog;
pub mod config;
pub mod error;
pub mod host;
mod journal;
mod live;
mod log;
pub mod occurrence;
pub mod query;
mod race;
mod readers;
mod registry;
mod services;
mod supervisor;
pub mod system;
pub mod turn;

pub use agent::{Agent, Delegate, Delegated};
pub use behavior::{Behavior, TurnEnd, TurnError};
pub use config::Config;
pub use host::{Host, RootHandle};
pub use occurrence::Occurrence;
pub use system::System;
pub use turn::Turn;
