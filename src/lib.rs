//! Stub.

#[cfg(feature = "program")]
pub mod program;
