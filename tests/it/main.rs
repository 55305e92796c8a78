//! The integration tests, in one binary. Modules are named for behaviour.

mod audit;
mod log_format;
mod senders;
