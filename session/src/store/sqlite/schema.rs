//! The tables, and how a connection is set up.
//!
//! Ground truth is `session`, `event`, `inbox` and `removed`. `summary`, `orphan` and `tally` are derived from them and may be lost at any time;
//! `lease` and `node` serve liveness only.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags, config::DbConfig};

use crate::store::StoreError;

/// What SQLite's header says of a file that is ours: "grnr".
pub(super) const APPLICATION_ID: i64 = 0x6772_6e72;

/// The layout that this program writes, and the newest that it reads.
pub(super) const STORE_VERSION: i64 = 1;

/// The first SQLite in which two connections may write and checkpoint at the same time without losing a WAL reset (sqlite.org, release notes of 3.51.3).
const OLDEST_SQLITE: i32 = 3_051_003;

/// Text columns hold the JSON text of a record, so that `json_extract` reads them in place.
pub(super) const TABLES: &str = "
CREATE TABLE session(
    sid INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    parent_id TEXT,
    created_at INTEGER NOT NULL,
    header TEXT NOT NULL,
    crc INTEGER NOT NULL,
    creation BLOB NOT NULL          -- hash of what it was created with: tells the same creation from another
) STRICT;
CREATE INDEX session_family ON session(parent_id, created_at, id);

-- A rowid table on purpose: appends of many sessions share the last page.
CREATE TABLE event(
    sid INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    body TEXT NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY(sid, seq)
) STRICT;

-- Rows go with their session only, and the newest of all keeps its `id` even then (as session 0), so that neither `id` nor `ord` is ever used twice.
CREATE TABLE inbox(
    id INTEGER PRIMARY KEY,
    sid INTEGER NOT NULL,
    ord INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    hash BLOB NOT NULL,
    kind INTEGER NOT NULL,          -- 0 turn, 1 note, 2 control
    wake INTEGER NOT NULL,
    held INTEGER NOT NULL,
    state INTEGER NOT NULL,         -- 0 pending, 1 taken
    body TEXT,                      -- absent once taken
    crc INTEGER NOT NULL,           -- of the body in its place; once taken, of what remains
    UNIQUE(sid, message_id)
) STRICT;
CREATE INDEX inbox_place ON inbox(sid, state, ord, kind);
CREATE INDEX inbox_held ON inbox(sid, ord) WHERE held != 0;

-- Ids that are used up: of sessions that were removed.
CREATE TABLE removed(number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE summary(
    sid INTEGER PRIMARY KEY,
    head TEXT NOT NULL,
    head_crc INTEGER NOT NULL,
    work INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    verdict_crc INTEGER NOT NULL,
    header_crc INTEGER NOT NULL,    -- of the header that the verdict was made for; under the verdict's checksum
    alias_of TEXT,
    alias TEXT
) STRICT;
CREATE INDEX summary_work ON summary(work) WHERE work = 1;
CREATE INDEX summary_alias ON summary(alias_of, alias) WHERE alias IS NOT NULL;

-- Parents that are named by a session and are not in the store.
CREATE TABLE orphan(parent_id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

-- Proves that `summary_work` and `orphan` are complete: up to which rows they go, how many they are, and the sum of their hashes.
CREATE TABLE tally(
    one INTEGER PRIMARY KEY CHECK (one = 1),
    sessions INTEGER NOT NULL,
    events INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    removals INTEGER NOT NULL,
    held INTEGER NOT NULL,
    work INTEGER NOT NULL,
    work_sum INTEGER NOT NULL,
    orphans INTEGER NOT NULL,
    orphan_sum INTEGER NOT NULL,
    crc INTEGER NOT NULL
) STRICT;

CREATE TABLE lease(sid INTEGER PRIMARY KEY, owner TEXT NOT NULL, epoch INTEGER NOT NULL) STRICT;
CREATE TABLE node(
    owner TEXT PRIMARY KEY,
    boot_id TEXT NOT NULL,
    expires_at INTEGER NOT NULL,    -- milliseconds of the boot-time clock
    batch INTEGER NOT NULL          -- the newest batch that this owner committed
) STRICT, WITHOUT ROWID;
";

/// Creates the tables in an empty database.
pub(super) fn create(conn: &Connection) -> rusqlite::Result<()> {
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.execute_batch("BEGIN IMMEDIATE")?;
    conn.execute_batch(TABLES)?;
    conn.pragma_update(None, "application_id", APPLICATION_ID)?;
    conn.pragma_update(None, "user_version", STORE_VERSION)?;
    conn.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
}

/// How a connection uses the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Reads and writes; the file exists.
    Write,
    /// Reads; takes part in locking, writes neither the file nor its WAL.
    Read,
    /// Reads the file as it lies there, without locks and without a WAL. For a file that nobody writes, or of which only the first page is wanted.
    Still,
}

/// Refuses a SQLite that is too old to be trusted with several connections.
pub(super) fn check_library() -> Result<(), StoreError> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(StoreError::Unsupported(format!(
            "SQLite {} may lose commits under concurrent checkpoints; 3.51.3 or newer is needed",
            rusqlite::version()
        )));
    }
    Ok(())
}

/// Opens a connection and sets it up.
pub(super) fn connect(path: &Path, access: Access) -> rusqlite::Result<Connection> {
    let conn = match access {
        Access::Write => Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?,
        Access::Read => Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?,
        Access::Still => {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
            Connection::open_with_flags(OsStr::from_bytes(&still_uri(path)), flags)?
        }
    };
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.set_prepared_statement_cache_capacity(64);
    // Otherwise a statement is compiled again for every value bound to it, in case the value would change its plan.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    // The store has none, and whatever another program has put there must not change what is written.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.pragma_update(None, "cell_size_check", true)?;
    conn.pragma_update(None, "mmap_size", 0)?;
    match access {
        Access::Write => {
            conn.pragma_update(None, "synchronous", "FULL")?;
            conn.pragma_update(None, "cache_size", -65_536)?;
            conn.pragma_update(None, "wal_autocheckpoint", 1_000)?;
            conn.pragma_update(None, "journal_size_limit", 67_108_864)?;
        }
        Access::Read | Access::Still => {
            conn.pragma_update(None, "query_only", true)?;
            conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        }
    }
    Ok(conn)
}

fn still_uri(path: &Path) -> Vec<u8> {
    let mut uri = b"file:".to_vec();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.') {
            uri.push(byte);
        } else {
            uri.extend_from_slice(format!("%{byte:02x}").as_bytes());
        }
    }
    uri.extend_from_slice(b"?immutable=1");
    uri
}
