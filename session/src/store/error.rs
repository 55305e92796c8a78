//! Why something was not done: one operation, a whole batch, a store, or one session.

use thiserror::Error;

use crate::{
    codec::DecodeError,
    head::FoldError,
    id::{Epoch, MessageId, Order, OwnerId, Seq, SessionId},
};

/// Why an operation was refused. Nothing of it was done; its neighbours are unhurt.
///
/// ```
/// use greenroom_session::{message::{Message, Source}, store::{Accept, Op, Refused, Store}};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let accept = gs::store::Accept::new(root.clone(), gs::message::Message::turn("m0", "Begin.", gs::message::Source::User, 1_000)?);
/// # gs::store::Store::commit(&store, &[gs::store::Op::Accept(accept)])?;
/// let mut accept = Accept::new(root, Message::turn("m1", "More.", Source::User, 2_000)?);
/// accept.inbox_limit = 1; // one message waits already
/// let refused = store.commit(&[Op::Accept(accept)])?.remove(0).unwrap_err();
/// assert_eq!(refused, Refused::Busy { pending: 1, limit: 1 });
/// assert_eq!(refused.code(), "BUSY");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// There is no such session.
    #[error("session {0} does not exist")]
    NotFound(SessionId),
    /// A session of this id exists and was created differently.
    #[error("session {0} already exists")]
    Exists(SessionId),
    /// A sibling has this alias.
    #[error("alias {0:?} is taken")]
    AliasTaken(String),
    /// A message of this id was accepted before, with another body.
    #[error("message {0} was accepted before with another body")]
    MessageIdConflict(MessageId),
    /// The inbox is full.
    #[error("the inbox is full: {pending} of {limit} messages are pending")]
    Busy {
        /// Messages pending.
        pending: u64,
        /// The limit.
        limit: u64,
    },
    /// Another epoch has begun.
    #[error("fenced: epoch {stored} has begun")]
    Fenced {
        /// The newest epoch.
        stored: Epoch,
    },
    /// The log has moved on.
    #[error("the log has moved on to seq {stored}")]
    Moved {
        /// The seq that the next event gets.
        stored: Seq,
    },
    /// A live process holds the lease.
    #[error("held by another process ({0})")]
    Held(OwnerId),
    /// There is work: the epoch cannot settle, the session cannot be removed. How much is 0 where a damaged log does not tell.
    #[error("{0} messages are pending")]
    Pending(u64),
    /// A message to be taken is not pending.
    #[error("message {0} is not pending")]
    NotPending(Order),
    /// The record cannot be written.
    #[error("{message}")]
    Invalid {
        /// Stable code.
        code: &'static str,
        /// What is wrong.
        message: String,
    },
    /// The disk failed under this session alone. Nothing of the operation is in the store; the same ids again are safe.
    #[error("nothing was written: {reason}")]
    NotWritten {
        /// Whether the disk is full.
        full: bool,
        /// What failed.
        reason: String,
    },
    /// The session was removed; its id is used up.
    #[error("session {0} was removed")]
    Removed(SessionId),
    /// Sessions that name it as their parent are in the store.
    #[error("session {0} has children")]
    HasChildren(SessionId),
    /// What is stored of the session is damaged.
    #[error("session {session} is damaged: {reason}")]
    Corrupt {
        /// The session.
        session: SessionId,
        /// What is wrong.
        reason: String,
    },
}

impl Refused {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "SESSION_NOT_FOUND",
            Self::Exists(_) => "SESSION_EXISTS",
            Self::AliasTaken(_) => "ALIAS_TAKEN",
            Self::MessageIdConflict(_) => "MESSAGE_ID_CONFLICT",
            Self::Busy { .. } => "BUSY",
            Self::Fenced { .. } => "FENCED",
            Self::Moved { .. } => "SEQ_CONFLICT",
            Self::Held(_) => "SESSION_HELD",
            Self::Pending(_) => "PENDING",
            Self::NotPending(_) => "NOT_PENDING",
            Self::Invalid { code, .. } => code,
            Self::NotWritten { full: true, .. } => "STORE_FULL",
            Self::NotWritten { full: false, .. } => "NOT_DELIVERED",
            Self::Removed(_) => "SESSION_REMOVED",
            Self::HasChildren(_) => "HAS_CHILDREN",
            Self::Corrupt { .. } => "SESSION_CORRUPT",
        }
    }
}

impl From<FoldError> for Refused {
    fn from(error: FoldError) -> Self {
        Self::Invalid { code: "EVENT_INVALID", message: error.to_string() }
    }
}

impl From<crate::codec::EncodeError> for Refused {
    fn from(error: crate::codec::EncodeError) -> Self {
        Self::Invalid { code: error.code(), message: error.to_string() }
    }
}

/// Why a whole batch failed.
///
/// ```
/// use greenroom_session::store::{CommitError, StoreError};
///
/// /// Whether the same operations must go out under the same ids again, lest they happen twice.
/// fn may_have_happened(error: &CommitError) -> bool {
///     !matches!(error, CommitError::NotCommitted(_))
/// }
/// let error = CommitError::Indeterminate(StoreError::Io("the disk did not answer".into()));
/// assert!(may_have_happened(&error));
/// assert_eq!(error.code(), "INDETERMINATE");
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Nothing of it is in the store, and nothing of it will appear later.
    #[error("not committed")]
    NotCommitted(#[source] StoreError),
    /// It may or may not be in the store. A retry with the same ids is safe.
    #[error("the outcome of the commit is unknown")]
    Indeterminate(#[source] StoreError),
}

impl CommitError {
    /// Returns what the store had to say.
    pub fn cause(&self) -> &StoreError {
        match self {
            Self::NotCommitted(cause) | Self::Indeterminate(cause) => cause,
        }
    }

    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            // Nothing was written for a reason that has a remedy of its own.
            Self::NotCommitted(error @ (StoreError::Full(_) | StoreError::Locked { .. } | StoreError::OneWriter { .. } | StoreError::Damaged(_))) => {
                error.code()
            }
            Self::NotCommitted(_) => "NOT_DELIVERED",
            Self::Indeterminate(_) => "INDETERMINATE",
        }
    }
}

/// Why a store cannot be opened, read or written.
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// use greenroom_session::store::{StoreError, sqlite::SqliteStore};
/// let folder = tempfile::tempdir()?;
/// let error = SqliteStore::open_existing(folder.path().join("store.db")).unwrap_err();
/// assert!(matches!(error, StoreError::Missing { .. }));
/// assert_eq!(error.code(), "STORE_NOT_FOUND");
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file is not a greenroom store. It was not touched.
    #[error("{path} is not a greenroom store: {reason}")]
    Foreign {
        /// The file.
        path: String,
        /// What was found.
        reason: String,
    },
    /// There is no store of this name.
    #[error("there is no store at {path}")]
    Missing {
        /// The file.
        path: String,
    },
    /// The store was written by a newer greenroom.
    #[error("{path} has store version {found}; this program reads up to {known}")]
    Version {
        /// The file.
        path: String,
        /// Its version.
        found: i64,
        /// The newest known version.
        known: i64,
    },
    /// Another process holds a lock of the store and does not let go. Nothing was written.
    #[error("another process holds the write lock of {path}")]
    Locked {
        /// The file.
        path: String,
    },
    /// The store takes one writer process, and another one has it. Nothing was written.
    #[error("process {holder} writes to {path}, and a JSON Lines store takes one writer at a time")]
    OneWriter {
        /// The folder.
        path: String,
        /// The process that has it, as far as it could be told.
        holder: String,
    },
    /// The disk is full.
    #[error("the disk is full")]
    Full(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store's own structure is damaged.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The storage failed.
    #[error("the store failed")]
    Io(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store cannot do this here.
    #[error("{0}")]
    Unsupported(String),
}

impl StoreError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Foreign { .. } => "STORE_FOREIGN",
            Self::Missing { .. } => "STORE_NOT_FOUND",
            Self::Version { .. } => "STORE_VERSION",
            Self::Locked { .. } | Self::OneWriter { .. } => "STORE_LOCKED",
            Self::Full(_) => "STORE_FULL",
            Self::Damaged(_) => "STORE_DAMAGED",
            Self::Io(_) => "STORE_FAILED",
            Self::Unsupported(_) => "STORE_UNSUPPORTED",
        }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        if matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) {
            Self::Full(Box::new(error))
        } else {
            Self::Io(Box::new(error))
        }
    }
}

/// Why one session cannot be read.
///
/// ```
/// use greenroom_session::{id::SessionId, store::{LoadError, Store, memory::MemoryStore}};
/// let error = MemoryStore::new().reader()?.load(&SessionId::new("nobody")?).unwrap_err();
/// assert!(matches!(error, LoadError::NotFound(_)));
/// assert_eq!(error.code(), "SESSION_NOT_FOUND");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no such session.
    #[error("session {0} does not exist")]
    NotFound(SessionId),
    /// There was one; it was removed.
    #[error("session {0} was removed")]
    Removed(SessionId),
    /// A record is damaged.
    #[error("session {session} is damaged at {place}: {source}")]
    Corrupt {
        /// The session.
        session: SessionId,
        /// Which record: `header`, `event N` or `message N`; in a file of JSON Lines `line N (byte B)`, lines counting from 1.
        place: String,
        /// What is wrong.
        source: DecodeError,
    },
    /// Its records do not follow from one another.
    #[error("session {session} is damaged: {source}")]
    Fold {
        /// The session.
        session: SessionId,
        /// What is wrong, and where.
        source: FoldError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LoadError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "SESSION_NOT_FOUND",
            Self::Removed(_) => "SESSION_REMOVED",
            Self::Corrupt { source, .. } => source.code(),
            Self::Fold { source, .. } => source.code(),
            Self::Store(error) => error.code(),
        }
    }
}

/// Why a session cannot be exported.
///
/// ```
/// use std::io;
/// use greenroom_session::store::{ExportError, Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let full = |_: &[u8]| Err(io::ErrorKind::StorageFull.into());
/// let error = store.reader()?.export(&root, &mut { full }).unwrap_err();
/// assert!(matches!(error, ExportError::Sink(_)));
/// assert_eq!(error.code(), "EXPORT_FAILED");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The session cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The lines could not be written where they were to go.
    #[error("the lines cannot be written")]
    Sink(#[source] std::io::Error),
}

impl ExportError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Load(error) => error.code(),
            Self::Sink(_) => "EXPORT_FAILED",
        }
    }
}

impl From<StoreError> for ExportError {
    fn from(error: StoreError) -> Self {
        Self::Load(error.into())
    }
}
