//! The bodies of the fuzz targets.
mod bodies;
mod wire;
pub use bodies::*;
pub use wire::*;
