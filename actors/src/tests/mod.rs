//! Promises of the actors, and a sweep of their races, on the memory store.

mod audit;
mod authority;
mod cancel;
mod catalog;
mod codes;
mod effects;
mod fifo;
mod journal;
mod lifecycle;
mod limits;
mod listing;
mod one_shots;
mod pairs;
mod providers;
mod publish;
mod requests;
mod retry;
mod settle;
mod supervision;
mod support;
mod sweep;
