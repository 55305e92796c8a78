//! The bounds of what a session takes, each with an error of its own.

/// Largest text of one message, in bytes: 16 MiB.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Largest encoded event, in bytes: 17 MiB.
pub const MAX_EVENT_BYTES: usize = 17 * 1024 * 1024;
/// Largest message as JSON, in bytes: what an event has room for beside its envelope.
pub const MAX_MESSAGE_JSON_BYTES: usize = MAX_EVENT_BYTES - 4096;
/// Deepest nesting of JSON within a record.
pub const MAX_JSON_DEPTH: usize = 128;
/// Most Unicode scalar values in a label.
pub const MAX_LABEL_CHARS: usize = 200;
/// Most pending `turn` messages of one session, unless configured.
pub const DEFAULT_INBOX_LIMIT: u64 = 1_024;
/// Most pending notes of one session, unless configured.
pub const DEFAULT_NOTE_LIMIT: u64 = 65_536;
/// Attempts without durable progress that a message gets, unless configured.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 3;
/// Largest integer that a record may hold: 2^53 − 1, so that every JSON reader keeps it exact.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;
