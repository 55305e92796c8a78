//! The audit against logs that were damaged after a run, fault by fault, and against a store that loses what it has accepted.

mod agents;
mod damaged;
mod forgetful;
mod lost;
mod requests;
mod world;
