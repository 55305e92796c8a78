//! Whole sessions: in exactly as they were, held until they are released, out as the same lines from every store, and away for ever.

mod export;
mod import;
mod release;
mod remove;
mod whole;

pub(crate) use whole::{import, lines};
