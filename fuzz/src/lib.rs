//! The bodies of the fuzz targets.
mod bodies;
pub use bodies::*;
