//! Promises of the actors, and a sweep of their races, on the memory store.

mod fifo;
mod retry;
mod support;
mod sweep;
