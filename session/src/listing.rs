//! What a listing says of a session: pure functions over the fold.
//!
//! A store may keep a [`Verdict`] beside a log, derived and checksummed; this is the one place that says what it must be.

use serde::{Deserialize, Serialize};

use crate::{
    descriptor::{DescriptorError, Mode},
    fold::{DescriptorState, Fold},
    head::Head,
    id::{OwnerId, Seq, SessionId},
};

/// Why a child cannot be described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// What is stored is damaged.
    Corrupt,
    /// It was written by a newer program.
    Unsupported,
    /// It could not be read now.
    Unavailable,
}

impl Reason {
    /// Returns the name that listings show.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::Unsupported => "unsupported",
            Self::Unavailable => "unavailable",
        }
    }
}

/// What a log says its session is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A root.
    Root {
        /// Its label.
        label: String,
        /// Its behaviour.
        agent: String,
    },
    /// A child that a descriptor describes.
    Child {
        /// How it lives.
        mode: Mode,
        /// Its label; always there for a continuable child.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        label: Option<String>,
        /// Its behaviour.
        agent: String,
        /// Its alias.
        #[serde(rename = "as", skip_serializing_if = "Option::is_none", default)]
        alias: Option<String>,
        /// Where its descriptor stands.
        descriptor: Seq,
    },
    /// Neither: a plain fork, listed nowhere.
    Plain,
    /// A session whose descriptor cannot be used.
    Broken {
        /// Why.
        reason: Reason,
    },
}

/// Says what a log says its session is.
pub fn verdict(fold: &Fold) -> Verdict {
    if let Some(root) = fold.root() {
        return Verdict::Root { label: root.label.clone(), agent: root.agent.clone() };
    }
    match fold.descriptor() {
        DescriptorState::None => Verdict::Plain,
        DescriptorState::One { parsed: Err(DescriptorError::Unsupported(_)), .. } => Verdict::Broken { reason: Reason::Unsupported },
        DescriptorState::One { parsed: Err(_), .. } | DescriptorState::Many => Verdict::Broken { reason: Reason::Corrupt },
        DescriptorState::One { seq, parsed: Ok(descriptor) } => Verdict::Child {
            mode: descriptor.mode,
            label: descriptor.label.clone(),
            agent: descriptor.agent.clone(),
            alias: descriptor.alias.clone(),
            descriptor: *seq,
        },
    }
}

/// What a listing shows of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// What it is.
    pub verdict: Verdict,
    /// What it is doing.
    pub head: Head,
    /// Whether any session names it as its parent and is a subagent.
    pub has_children: bool,
    /// The live process that holds it.
    pub holder: Option<OwnerId>,
}

/// A place in the order of siblings: after this time and id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cursor {
    /// Creation time of the last child seen.
    pub created_at: u64,
    /// Its id.
    pub id: SessionId,
}

impl Description {
    /// Tells whether the session is worth activating: nobody holds it, and it has work or its last epoch was lost before it could settle.
    pub fn is_runnable(&self) -> bool {
        self.holder.is_none() && self.head.wants_holder()
    }
}
