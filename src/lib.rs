//! Stub.

#[cfg(feature = "program")]
pub mod command;
#[cfg(feature = "program")]
pub mod program;
