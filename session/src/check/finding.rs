//! What a check finds: a class of fault, and where it is.

use std::{borrow::Cow, fmt, path::PathBuf};

use crate::id::{Order, Seq, SessionId};

/// How much a finding matters.
///
/// ```
/// use greenroom_session::check::{Class, Severity};
/// assert_eq!(Class::Checksum.severity(), Severity::Damage);
/// // A derived row that lies changes no answer; yet something has changed what was written.
/// assert!(Class::IndexDamaged.severity().is_fault());
/// // What a kill leaves behind is no fault.
/// assert!(!Class::LeaseOfNobody.severity().is_fault());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Ground truth is not what was written, or breaks a rule of the format.
    Damage,
    /// A derived row is not what it must be. No answer changes; it can be derived again.
    Index,
    /// Worth knowing, and no fault of the store.
    Notice,
}

impl Severity {
    /// Returns the name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Damage => "damage",
            Self::Index => "index",
            Self::Notice => "notice",
        }
    }

    /// Tells whether a store with such a finding is not what it must be. Index rows count: they were written whole, so whatever changed them may have
    /// changed more.
    pub fn is_fault(self) -> bool {
        !matches!(self, Self::Notice)
    }
}

macro_rules! classes {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $name:literal, $severity:ident, $help:literal; )*) => {
        /// A kind of fault. Names are stable; `docs/check.md` lists them.
        ///
        /// ```
        /// use greenroom_session::check::Class;
        /// assert_eq!(Class::SeqGap.as_str(), "seq_gap");
        /// assert!(Class::ALL.contains(&Class::SeqGap));
        /// assert!(!Class::SeqGap.about().is_empty() && !Class::SeqGap.help().is_empty());
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Class {
            $( $(#[doc = $doc])+ $variant, )*
        }

        impl Class {
            /// Every class, in the order of the documentation.
            pub const ALL: &'static [Self] = &[ $( Self::$variant, )* ];

            /// Returns the stable name.
            pub fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $name, )* }
            }

            /// Returns how much findings of this class matter.
            pub fn severity(self) -> Severity {
                match self { $( Self::$variant => Severity::$severity, )* }
            }

            /// Says what is wrong, in general.
            pub fn about(self) -> &'static str {
                match self { $( Self::$variant => concat!($( $doc ),+).trim_ascii_start(), )* }
            }

            /// Says what to do.
            pub fn help(self) -> &'static str {
                match self { $( Self::$variant => $help, )* }
            }
        }
    };
}

classes! {
    /// A record's bytes do not fit its checksum.
    Checksum = "checksum", Damage, "a bit has changed on the disk or somebody edited the record; bring the session back from a backup or an export";
    /// A record's text is not that of such a record: no JSON, an unknown key, a hole of NUL bytes, another line ending.
    MalformedRecord = "malformed_record", Damage, "another program wrote it; bring the session back from a backup or an export";
    /// A record says that it belongs somewhere else: to another seq, order or message than its row.
    MisplacedRecord = "misplaced_record", Damage, "records were moved or their columns changed; bring the session back from a backup or an export";
    /// The header disagrees with its row, with its parent's header, or with its own log.
    HeaderConflict = "header_conflict", Damage, "a header was changed or comes from another store; bring the session and its parent back from the same backup or export";
    /// Events are missing between two others, or two stand in one place.
    SeqGap = "seq_gap", Damage, "bring the session back from a backup or an export";
    /// Messages are missing from the inbox between two others, or two stand in one place.
    OrderGap = "order_gap", Damage, "bring the session back from a backup or an export";
    /// The log or the inbox ends before something that is known to have been there.
    Truncated = "truncated", Damage, "restore a backup before you rebuild the index, which is what still knows of the end";
    /// An event cannot follow those before it: a turn that does not nest, an epoch that does not count, a breach of a surface rule.
    FoldBreach = "fold_breach", Damage, "the session cannot be resumed; `greenroom log ID` shows the events around it";
    /// A child's descriptor cannot be read.
    BadDescriptor = "bad_descriptor", Damage, "the child is listed as corrupt and cannot be resumed; its log can be read";
    /// A child has more than one descriptor.
    TwoDescriptors = "two_descriptors", Damage, "the child is listed as corrupt and cannot be resumed; its log can be read";
    /// A message still waits although the log says that it has left the inbox.
    TakenButWaiting = "taken_but_waiting", Damage, "it would be served twice; bring the session back from a backup or an export";
    /// A message has left the inbox and no event says so.
    GoneWithoutEvent = "gone_without_event", Damage, "nobody will serve it; send it again under another id if it is needed";
    /// The log says that a message left the inbox which was never in it.
    NeverAccepted = "never_accepted", Damage, "the inbox has lost a message; bring the session back from a backup or an export";
    /// The log says twice that the same message left the inbox.
    TakenTwice = "taken_twice", Damage, "it was served twice; please report this with the log";
    /// What is kept to tell later copies of a message is not that message's: its hash, its kind, or whether it has left.
    TombstoneConflict = "tombstone_conflict", Damage, "the same message sent again would be taken for another; bring the session back from a backup or an export";
    /// A session is its own ancestor.
    LineageCycle = "lineage_cycle", Damage, "no root leads to it, so nothing runs it; bring one of the sessions back from a backup or an export";
    /// The same session has files in several folders of a store of files.
    DuplicateSession = "duplicate_session", Damage, "no file is read as the session's until one alone is left; each is checked by itself";
    /// Two messages of one session have the same id.
    DuplicateMessage = "duplicate_message", Damage, "the second one was never accepted by greenroom; bring the session back from a backup or an export";
    /// A record at the end of a session's file that had been written whole and did not fit its checksum. The session went on without it, and it was set aside.
    DamagedTail = "damaged_tail", Damage, "NAME.damaged-OFFSET is what stood in NAME at that byte, and may have been acknowledged: look at it, send again what is missed or bring the session back from a backup or an export, then remove the file";
    /// A file has a name that is not its session's.
    MisnamedFile = "misnamed_file", Damage, "give the file its name back; it is read as what its name says and fits nothing";
    /// A file of a session is there and cannot be read: its permissions, or its disk.
    UnreadableFile = "unreadable_file", Damage, "look at the file's permissions and at the disk; the session is listed as corrupt until it can be read";
    /// Two children of one parent have the same alias.
    DuplicateAlias = "duplicate_alias", Damage, "a send to the alias reaches the older one; use the id of the other";
    /// Records belong to a session whose header is not in the store.
    UnownedRecord = "unowned_record", Damage, "a header was lost; bring the session back from a backup or an export";
    /// The database file itself is damaged: a page, or one of SQLite's own indexes.
    DamagedFile = "damaged_file", Damage, "copy the file, then `sqlite3 FILE .recover` saves what can be read; mind the disk";
    /// A table, index or trigger of the store is missing or was changed.
    SchemaConflict = "schema_conflict", Damage, "another program changed the database; undo it or restore a backup";
    /// A derived row is missing.
    IndexMissing = "index_missing", Index, "`greenroom check --rebuild-index` derives it again";
    /// A derived row does not fit its checksum.
    IndexDamaged = "index_damaged", Index, "`greenroom check --rebuild-index` derives it again";
    /// A derived row is whole and says something else than the records.
    IndexStale = "index_stale", Index, "`greenroom check --rebuild-index` derives it again";
    /// A derived row belongs to no session.
    IndexForeign = "index_foreign", Index, "`greenroom check --rebuild-index` removes it";
    /// The header is of a newer format; nothing of the session was verified beyond checksums.
    UnknownVersion = "unknown_version", Notice, "a newer greenroom wrote it; check it with that one";
    /// A repair has found the session damaged and quarantined it: it is listed as corrupt, takes no message and is run by nobody. What is whole of it can be read.
    Quarantined = "quarantined", Notice, "`greenroom log ID` reads what is whole; `greenroom import DIR` puts a good copy in its place; `greenroom rm ID --discard-pending` removes it. The backup that the repair made has it as it was";
    /// The child's descriptor is of a newer version.
    UnsupportedDescriptor = "unsupported_descriptor", Notice, "a newer greenroom wrote it; the child is listed as unsupported";
    /// An event is of a type that this program does not know and must not ignore.
    UnknownEventType = "unknown_event_type", Notice, "a newer greenroom wrote it; the session can be read, and resumed by that one only";
    /// Nothing says what the session is: a child without a descriptor, or a root that was never opened.
    NoDescriptor = "no_descriptor", Notice, "it is listed nowhere, as a plain fork is not; `greenroom log ID` reads it";
    /// The session's parent is not in the store.
    Orphan = "orphan", Notice, "it is listed beside the roots; import the parent if it should have one";
    /// A lease of a holder that is gone, or of a session or an epoch that is not there.
    LeaseOfNobody = "lease_of_nobody", Notice, "a process was killed; the next `run` takes the session over";
    /// Bytes after the last whole batch of a file: what a write leaves that was cut off. They are passed over, and set aside by the next write.
    TornTail = "torn_tail", Notice, "it was never acknowledged; it stays beside the file as NAME.torn-OFFSET when the session is next written to";
    /// A table, view or file that is not the store's.
    ForeignObject = "foreign_object", Notice, "greenroom does not look at it; remove it if nobody needs it";
    /// A file that something left which was killed, or that was set aside: a birth's, a writer's, a torn tail, a session that is being removed.
    Leftover = "leftover", Notice, "it can be removed while nobody uses the store";
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where in a session, or in the store, a finding is. Places are in the order in which findings are told.
///
/// ```
/// use greenroom_session::check::Place;
/// assert_eq!(Place::Event(3).to_string(), "event 3");
/// assert_eq!(Place::Index("summary.head").to_string(), "index summary.head");
/// assert!(Place::Header < Place::Event(0) && Place::Event(9) < Place::Message(0));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The header.
    Header,
    /// The event at this seq, or the place where it would be.
    Event(Seq),
    /// A line that is no record, from 1.
    Line(u64),
    /// The log as a whole.
    Log,
    /// The message of this order, or the place where it would be.
    Message(Order),
    /// The inbox as a whole.
    Inbox,
    /// A derived row, by its table and column.
    Index(&'static str),
    /// The lease.
    Lease,
    /// Something of the store that belongs to no session, by its name.
    Part(String),
    /// The store as a whole.
    Store,
}

impl Place {
    /// Returns the seq of an event.
    pub fn seq(&self) -> Option<Seq> {
        match self {
            Self::Event(seq) => Some(*seq),
            _ => None,
        }
    }

    /// Returns the order of a message.
    pub fn order(&self) -> Option<Order> {
        match self {
            Self::Message(order) => Some(*order),
            _ => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("header"),
            Self::Event(seq) => write!(f, "event {seq}"),
            Self::Line(line) => write!(f, "line {line}"),
            Self::Log => f.write_str("log"),
            Self::Message(order) => write!(f, "message {order}"),
            Self::Inbox => f.write_str("inbox"),
            Self::Index(row) => write!(f, "index {row}"),
            Self::Lease => f.write_str("lease"),
            Self::Part(name) => f.write_str(name),
            Self::Store => f.write_str("store"),
        }
    }
}

/// Where the bytes of a finding lie, in a store of files.
///
/// ```
/// use greenroom_session::check::Spot;
/// let spot = Spot { path: "_root/r.jsonl".into(), line: 3, offset: 412 };
/// assert_eq!(spot.to_string(), "_root/r.jsonl:3 (byte 412)");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    /// The file, within the store's folder.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: u64,
    /// The offset of the line's first byte in the file, from 0.
    pub offset: u64,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} (byte {})", self.path.display(), self.line, self.offset)
    }
}

/// One fault.
///
/// ```
/// use greenroom_session::{check::{Class, Finding, Place}, id::SessionId};
/// let finding = Finding::of(&SessionId::new("r")?, Place::Event(3), Class::Checksum, "the checksum does not fit");
/// assert_eq!(finding.to_string(), "r event 3: checksum: the checksum does not fit");
/// # Ok::<(), greenroom_session::id::IdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind.
    pub class: Class,
    /// The session; absent for what belongs to none.
    pub session: Option<SessionId>,
    /// Where.
    pub place: Place,
    /// Where its bytes lie, in a store of files.
    pub spot: Option<Spot>,
    /// What is wrong. Not escaped: it may hold text of the store.
    pub what: Cow<'static, str>,
}

impl Finding {
    /// Makes a finding about a session.
    pub fn of(session: &SessionId, place: Place, class: Class, what: impl Into<Cow<'static, str>>) -> Self {
        Self { class, session: Some(session.clone()), place, spot: None, what: what.into() }
    }

    /// Makes a finding about the store.
    pub fn of_store(place: Place, class: Class, what: impl Into<Cow<'static, str>>) -> Self {
        Self { class, session: None, place, spot: None, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(session) = &self.session {
            write!(f, "{session} ")?;
        }
        write!(f, "{}", self.place)?;
        if let Some(spot) = &self.spot {
            write!(f, " at {spot}")?;
        }
        write!(f, ": {}: {}", self.class, self.what)
    }
}
