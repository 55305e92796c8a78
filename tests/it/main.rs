//! The integration tests, in one binary. Modules are named for behaviour.

mod log_format;
