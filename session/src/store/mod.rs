//! Stores: where sessions are kept, and the operations that change them.
//!
//! A [`Store`] commits batches of operations. A batch is one transaction and one sync; within it every operation stands or
//! falls alone, so that one conflict never fails its neighbours. On `Ok` everything that was not refused is durable, as far as the
//! store is: `memory:` lasts as long as the process, `sqlite:` and `jsonl:` survive SIGKILL and power loss.
//!
//! A [`Reader`] sees committed state only and never writes.

use std::{fmt, path::Path};

use crate::{
    check::Rebuilt,
    id::{OwnerId, SessionId},
    repair::Quarantine,
};

mod entry;
mod error;
mod gate;
mod ground;
mod guard;
mod import;
pub mod jsonl;
pub mod memory;
mod op;
mod partial;
mod plain;
mod reader;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use ground::check_filesystem;
use guard::{born, check_begun, check_ended, check_lived, check_taken};

pub use error::{CommitError, ExportError, LoadError, Refused, StoreError};
pub use import::{Import, InboxLine, Misfit, RecordPlace, Release, Remove, Verbatim};
pub use op::{Accept, Append, Claim, ClaimKind, Close, Create, Done, Fence, Op, Open};
pub use reader::{Lease, Log, Member, MessageState, Reader, Traced};

/// Keeps sessions. Shared by every thread of a process.
///
/// ```
/// use greenroom_session::{header::NewSession, id::SessionId, store::{Create, Op, Store, memory::MemoryStore}};
/// let store: Box<dyn Store> = Box::new(MemoryStore::new());
/// let create = Create::root(NewSession::root(SessionId::new("root")?), "editor", "launch story");
/// let results = store.commit(&[Op::Create(create)])?;
/// assert!(results[0].is_ok());
/// assert_eq!(store.reader()?.find("ro", 10)?, [SessionId::new("root")?]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Commits a batch in one transaction and returns one result per operation, in order.
    ///
    /// Blocks for a sync where the store has a disk.
    ///
    /// # Errors
    /// [`CommitError`]: nothing of the batch, or nothing that is known.
    fn commit(&self, ops: &[Op]) -> Result<Vec<Result<Done, Refused>>, CommitError>;

    /// Opens a reader of committed state. A reader belongs to this opening of the store.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError>;

    /// Tells whether [`Store::commit`] returns without waiting for a disk, so that it may be called where blocking may not.
    fn is_inline(&self) -> bool;

    /// Returns the name under which this opening of the store holds leases.
    fn owner(&self) -> &OwnerId;

    /// Renews the liveness of this opening; to be called every [`HEARTBEAT_MS`] while sessions are held.
    ///
    /// # Errors
    /// [`StoreError`] if the renewal could not be written.
    fn heartbeat(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns sessions for which other processes have accepted messages since the last call.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    fn poll(&self) -> Result<Vec<SessionId>, StoreError> {
        Ok(Vec::new())
    }

    /// Derives again what is derived and no good, of one session or of all, and tells what it has changed. Never changes ground truth. Other processes may go
    /// on: every write is a short transaction, and ended anywhere the rest stays as it was.
    ///
    /// # Errors
    /// [`StoreError`] if the store could not be read or written.
    fn rebuild_index(&self, only: Option<&SessionId>, see: &mut dyn FnMut(Rebuilt)) -> Result<(), StoreError> {
        // A store that keeps nothing derived has nothing to derive.
        let _ = (only, see);
        Ok(())
    }

    /// Copies what a repair of these sessions may change to `to`, which must not be there: a database whole, of a folder the files of these sessions. Other
    /// processes may go on meanwhile.
    ///
    /// # Errors
    /// [`StoreError`] if something lies there, or it could not be copied. What was copied by then stays.
    fn backup(&self, to: &Path, sessions: &[SessionId]) -> Result<(), StoreError> {
        let _ = (to, sessions);
        Err(StoreError::Unsupported("this store is kept nowhere that could be copied".into()))
    }

    /// Cuts off what lies behind the last whole batch of a session, and keeps it beside the session's file. Tells whether anything did.
    ///
    /// # Errors
    /// [`StoreError`] if that could not be done; nothing but the tail is touched.
    fn cut_tail(&self, id: &SessionId) -> Result<bool, StoreError> {
        // A store that commits whole transactions has no such tails.
        let _ = id;
        Ok(false)
    }

    /// Quarantines a session that nobody holds: from now on it is corrupt to everybody, though what is whole of it can be read. Tells whether it was done;
    /// else somebody holds it, or it is not there.
    ///
    /// # Errors
    /// [`StoreError`] if that could not be written.
    fn quarantine(&self, id: &SessionId, quarantine: &Quarantine) -> Result<bool, StoreError> {
        let _ = (id, quarantine);
        Err(StoreError::Unsupported("this store has no quarantine".into()))
    }

    /// Gives up this opening's liveness; its leases may be taken at once.
    ///
    /// # Errors
    /// [`StoreError`] if that could not be written; the leases then end with their time.
    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// How often [`Store::heartbeat`] is due, in milliseconds.
pub const HEARTBEAT_MS: u64 = 3_000;
