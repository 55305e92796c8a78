//! Stub.

#[cfg(feature = "program")]
pub mod command;
