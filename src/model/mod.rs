//! Models: what is asked of one, and what it answers.

mod request;

pub use request::ToolSpec;
