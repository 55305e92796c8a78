//! The header of a session: who it is and where it comes from. Written once, never changed.

use serde::{Deserialize, Serialize};

use crate::{
    codec::present,
    id::{Seq, SessionId},
};

/// The header version that this program writes, and the newest that it reads.
pub const HEADER_VERSION: u64 = 1;

/// The immutable header of a session.
///
/// ```
/// use greenroom_session::{header::{HEADER_VERSION, Header, NewSession}, id::SessionId};
/// let header: Header = NewSession::root(SessionId::new("root")?).at(1_000);
/// assert_eq!((header.version, header.created_at), (HEADER_VERSION, 1_000));
/// assert!(!header.is_subagent() && !header.is_fork());
/// assert_eq!((header.parent, header.depth), (None, 0));
/// # Ok::<(), greenroom_session::id::IdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Format version, [`HEADER_VERSION`].
    pub version: u64,
    /// The session's id.
    pub id: SessionId,
    /// The direct parent. Lineage only: neither proof of being a subagent nor authority.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "present")]
    pub parent: Option<SessionId>,
    /// Milliseconds since the Unix epoch; never before the parent's or an older sibling's.
    pub created_at: u64,
    /// How many leading events were inherited from another session.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub seed_length: Seq,
    /// 0 in a root and in a fork, the parent's + 1 in a child.
    pub depth: u32,
    /// Absolute working folder.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "present")]
    pub cwd: Option<String>,
}

impl Header {
    /// Tells whether it is the header of a child: of a session that a subagent lives in, whatever its log says.
    pub fn is_subagent(&self) -> bool {
        self.parent.is_some() && self.depth > 0
    }

    /// Tells whether it is the header of a fork: of a copy that goes its own way and is nobody's child.
    pub fn is_fork(&self) -> bool {
        self.parent.is_some() && self.depth == 0
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What a caller says of a session to be created; the store adds the time.
///
/// ```
/// use greenroom_session::{header::NewSession, id::SessionId};
/// let root = NewSession::root(SessionId::new("r")?);
/// let child = NewSession::child(SessionId::new("c")?, root.id.clone(), root.depth);
/// let fork = NewSession::fork(SessionId::new("f")?, child.id.clone());
/// assert_eq!((child.depth, fork.depth), (1, 0));
/// assert_eq!((child.parent, fork.parent), (Some(root.id), Some(child.id)));
/// # Ok::<(), greenroom_session::id::IdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// The session's id.
    pub id: SessionId,
    /// The direct parent.
    pub parent: Option<SessionId>,
    /// How many leading events are inherited.
    pub seed_length: Seq,
    /// Depth below the root; 0 in a fork.
    pub depth: u32,
    /// Absolute working folder.
    pub cwd: Option<String>,
}

impl NewSession {
    /// Describes a root.
    pub fn root(id: SessionId) -> Self {
        Self { id, parent: None, seed_length: 0, depth: 0, cwd: None }
    }

    /// Describes a child of a parent at `parent_depth`.
    pub fn child(id: SessionId, parent: SessionId, parent_depth: u32) -> Self {
        Self { id, parent: Some(parent), seed_length: 0, depth: parent_depth.saturating_add(1), cwd: None }
    }

    /// Describes a fork of a session: a copy that is nobody's child.
    pub fn fork(id: SessionId, source: SessionId) -> Self {
        Self { id, parent: Some(source), seed_length: 0, depth: 0, cwd: None }
    }

    /// Returns the header with its time.
    pub fn at(&self, created_at: u64) -> Header {
        Header {
            version: HEADER_VERSION,
            id: self.id.clone(),
            parent: self.parent.clone(),
            created_at,
            seed_length: self.seed_length,
            depth: self.depth,
            cwd: self.cwd.clone(),
        }
    }

    /// Tells whether a stored header is the one that this would have created, its time aside.
    pub fn matches(&self, header: &Header) -> bool {
        self.at(header.created_at) == *header
    }
}
