//! Promises of the actors, and a sweep of their races, on the memory store.

mod effects;
mod fifo;
mod retry;
mod settle;
mod support;
mod sweep;
