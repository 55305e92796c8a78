//! Verifying a store: for every class of fault one that is planted by plain SQL and found where it is, and nothing found where nothing is.

mod derived;
mod faults;
mod plant;
mod records;
mod relations;
mod world;
