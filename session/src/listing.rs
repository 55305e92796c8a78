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
///
/// ```
/// use greenroom_session::listing::Reason;
/// assert_eq!(Reason::Unsupported.as_str(), "unsupported");
/// ```
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
///
/// ```
/// use greenroom_session::{listing::{Verdict, verdict}, store::Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let log = store.reader()?.load(&root)?;
/// assert_eq!(verdict(&log.fold), Verdict::Root { label: "story".into(), agent: "editor".into() });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    /// Neither: a fork, or a child that no descriptor describes; listed nowhere.
    Plain,
    /// A session whose descriptor cannot be used.
    Broken {
        /// Why.
        reason: Reason,
    },
}

impl Verdict {
    /// Says why a session takes no messages; `None` if it takes them. What one takes for which nobody would ever begin a turn would wait for ever.
    ///
    /// ```
    /// use greenroom_session::listing::{Reason, Verdict};
    /// assert_eq!(Verdict::Root { label: "story".into(), agent: "editor".into() }.refuses(), None);
    /// assert_eq!(Verdict::Plain.refuses(), Some("it is no subagent"));
    /// assert!(Verdict::Broken { reason: Reason::Unsupported }.refuses().is_some());
    /// ```
    pub fn refuses(&self) -> Option<&'static str> {
        match self {
            Self::Root { .. } | Self::Child { mode: Mode::Continuable, .. } => None,
            Self::Child { mode: Mode::OneShot, .. } => Some("it is a one-shot child"),
            Self::Plain => Some("it is no subagent"),
            Self::Broken { reason: Reason::Corrupt } => Some("it is damaged"),
            Self::Broken { reason: Reason::Unsupported } => Some("a newer greenroom wrote it"),
            Self::Broken { reason: Reason::Unavailable } => Some("it cannot be read now"),
        }
    }
}

/// Says what a log says its session is. A fork is told by its header, whatever its log holds.
pub fn verdict(fold: &Fold) -> Verdict {
    if fold.header().is_fork() {
        return Verdict::Plain;
    }
    if let Some(root) = fold.root() {
        return Verdict::Root { label: root.label.clone(), agent: root.agent.clone() };
    }
    if fold.missing_prefix().is_some() {
        return Verdict::Broken { reason: Reason::Corrupt };
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

/// What follows from a log, in short: what a store may keep beside it.
///
/// ```
/// use greenroom_session::{listing::{Summary, Verdict}, store::Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let summary = Summary::of(&store.reader()?.load(&root)?.fold);
/// assert_eq!(summary.head.next_seq, 2);
/// assert!(matches!(summary.verdict, Verdict::Root { .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// What the session is doing.
    pub head: Head,
    /// What it is.
    pub verdict: Verdict,
}

impl Summary {
    /// Takes from a fold what a listing needs.
    pub fn of(fold: &Fold) -> Self {
        Self { head: fold.head().clone(), verdict: verdict(fold) }
    }
}

/// A session as what is kept beside its log describes it, no log read.
///
/// ```
/// use greenroom_session::{listing::Described, store::Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let mut reader = store.reader()?;
/// let roots = reader.children(None, None, 10)?;
/// let described: Described = reader.rows(&roots)?.remove(0)?;
/// assert_eq!(described.row.map(|row| row.head.next_seq), Some(2));
/// assert!(!described.has_children);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The derived row; absent where it is missing, damaged or stale, so that only the log can tell.
    pub row: Option<Summary>,
    /// Whether any session names it as its parent and is a subagent by its header, or has a header that cannot be read.
    pub has_children: bool,
    /// The live process that holds it, as far as this can be told without the log: where there is no row, ask
    /// [`Reader::holder`](crate::store::Reader::holder) once the head is known.
    pub holder: Option<OwnerId>,
}

/// What a listing shows of one session.
///
/// ```
/// use greenroom_session::{listing::Description, store::Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// # let accept = gs::store::Accept::new(root.clone(), gs::message::Message::turn("m0", "Begin.", gs::message::Source::User, 1_000)?);
/// # gs::store::Store::commit(&store, &[gs::store::Op::Accept(accept)])?;
/// let mut reader = store.reader()?;
/// let roots = reader.children(None, None, 10)?;
/// let description: Description = reader.describe(&roots, false)?.remove(0)?;
/// assert_eq!(description.head.pending_turns, 1);
/// assert!(description.is_runnable() && !description.has_children);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// What it is.
    pub verdict: Verdict,
    /// What it is doing.
    pub head: Head,
    /// Whether any session names it as its parent and is a subagent by its header, or has a header that cannot be read.
    pub has_children: bool,
    /// The live process that holds it.
    pub holder: Option<OwnerId>,
}

/// A place in the order of siblings: after this time and id.
///
/// ```
/// use greenroom_session::{listing::Cursor, store::Store};
/// # use greenroom_session as gs;
/// # let store = gs::store::memory::MemoryStore::new();
/// # let root = gs::id::SessionId::new("root")?;
/// # let create = gs::store::Create::root(gs::header::NewSession::root(root.clone()), "editor", "story");
/// # gs::store::Store::commit(&store, &[gs::store::Op::Create(create)])?;
/// let mut reader = store.reader()?;
/// let first = reader.children(None, None, 1)?.remove(0);
/// let rest = reader.children(None, Some(&Cursor { created_at: first.created_at, id: first.id }), 10)?;
/// assert!(rest.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
