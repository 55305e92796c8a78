//! The digest of a store: one hash over everything that is true in it, so that two runs can be compared at a glance.
//!
//! Owns the canonical order: sessions by the bytes of their ids, and of each its header, its events, and the messages that wait. Never looks at what is
//! derived or at leases. Fails where a record is damaged, since two damaged stores are not alike.

use std::fmt;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{
    codec::EncodeError,
    line::{Line, write_line},
    store::{LoadError, Reader, StoreError},
};

/// Events that are held in memory at a time.
const CHUNK: usize = 512;

/// A SHA-256 over all sessions of a store.
///
/// ```
/// use greenroom_session::{digest::StoreDigest, store::{Store, memory::MemoryStore}};
/// # use greenroom_session as gs;
/// # fn fill(store: &MemoryStore, name: &str) -> Result<(), Box<dyn std::error::Error>> {
/// #     let create = gs::store::Create::root(gs::header::NewSession::root(gs::id::SessionId::new(name)?), "editor", "story");
/// #     gs::store::Store::commit(store, &[gs::store::Op::Create(create)])?;
/// #     Ok(())
/// # }
/// let (one, same, other) = (MemoryStore::new(), MemoryStore::new(), MemoryStore::new());
/// fill(&one, "root")?; // creates a root of this name
/// fill(&same, "root")?;
/// fill(&other, "another root")?;
/// let digest = StoreDigest::of(&mut *one.reader()?)?;
/// assert_eq!(digest, StoreDigest::of(&mut *same.reader()?)?);
/// assert_ne!(digest, StoreDigest::of(&mut *other.reader()?)?);
/// assert_eq!(digest.to_string().len(), 64); // hex
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreDigest(pub [u8; 32]);

/// Why a store has no digest.
///
/// ```
/// use greenroom_session::{digest::DigestError, id::SessionId, store::LoadError};
/// let error = DigestError::from(LoadError::NotFound(SessionId::new("gone")?));
/// assert_eq!(error.code(), "SESSION_NOT_FOUND");
/// assert_eq!(error.to_string(), "session gone does not exist");
/// # Ok::<(), greenroom_session::id::IdError>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DigestError {
    /// A session cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A record cannot be written as a line.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl From<StoreError> for DigestError {
    fn from(error: StoreError) -> Self {
        Self::Load(error.into())
    }
}

impl DigestError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Load(error) => error.code(),
            Self::Encode(error) => error.code(),
        }
    }
}

impl StoreDigest {
    /// Reads every session and hashes its header, its events and its pending messages, each as the line that [`write_line`] makes of it.
    ///
    /// Costs the size of the store; holds the ids of all sessions, and one session's messages or 512 of its events. The digest is that of one moment only
    /// if nobody writes meanwhile.
    ///
    /// # Errors
    /// [`DigestError::Load`] if a session is damaged or the store cannot be read.
    pub fn of(reader: &mut dyn Reader) -> Result<Self, DigestError> {
        let mut hasher = Sha256::new();
        for id in reader.find("", usize::MAX)? {
            let mut add = |line: Line| -> Result<(), DigestError> {
                hasher.update(write_line(&id, &line)?);
                // No line has a line feed in it, so that no two lists of lines are the same bytes.
                hasher.update(b"\n");
                Ok(())
            };
            let header = reader.header(&id)?.ok_or_else(|| LoadError::NotFound(id.clone()))?;
            add(Line::Header((*header).clone()))?;
            let mut next = 0;
            loop {
                let events = reader.events(&id, next, CHUNK)?;
                let Some(last) = events.last() else { break };
                next = last.seq + 1;
                events.into_iter().try_for_each(|event| add(Line::Event(event)))?;
            }
            reader.inbox(&id, usize::MAX)?.into_iter().try_for_each(|record| add(Line::Message(record)))?;
        }
        let mut digest = [0; 32];
        for (to, from) in digest.iter_mut().zip(hasher.finalize()) {
            *to = from;
        }
        Ok(Self(digest))
    }
}

impl fmt::Display for StoreDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::Body,
        header::NewSession,
        id::SessionId,
        message::{Message, Source},
        store::{Accept, Create, Op, Store, memory::MemoryStore},
    };

    fn id(text: &str) -> SessionId {
        SessionId::new(text).unwrap()
    }

    fn root(name: &str, label: &str, time: u64) -> Op {
        Op::Create(Create { time, ..Create::root(NewSession::root(id(name)), "editor", label) })
    }

    fn accept(name: &str, message: &str, text: &str) -> Op {
        Op::Accept(Accept::new(id(name), Message::turn(message, text, Source::User, 1_000).unwrap()))
    }

    fn digest(ops: &[Op]) -> StoreDigest {
        let store = MemoryStore::new();
        assert!(store.commit(ops).unwrap().iter().all(Result::is_ok));
        StoreDigest::of(&mut *store.reader().unwrap()).unwrap()
    }

    #[test]
    fn whatever_is_true_in_a_store_is_in_its_digest() {
        let base = digest(&[root("a", "one", 5), root("b", "two", 5), accept("a", "m", "hello")]);
        assert_eq!(base, digest(&[root("b", "two", 5), root("a", "one", 5), accept("a", "m", "hello")]), "the order in which they were made counts not");
        for other in [
            vec![],
            vec![root("a", "one", 5), root("b", "two", 5)],
            vec![root("a", "one", 5), root("b", "two", 6), accept("a", "m", "hello")],
            vec![root("a", "one", 5), root("b", "two.", 5), accept("a", "m", "hello")],
            vec![root("a", "one", 5), root("c", "two", 5), accept("a", "m", "hello")],
            vec![root("a", "one", 5), root("b", "two", 5), accept("b", "m", "hello")],
            vec![root("a", "one", 5), root("b", "two", 5), accept("a", "n", "hello")],
            vec![root("a", "one", 5), root("b", "two", 5), accept("a", "m", "hallo")],
        ] {
            assert_ne!(base, digest(&other), "{other:?}");
        }
    }

    #[test]
    fn a_log_of_many_pieces_counts_to_its_end() {
        let log = |events: u64| {
            let mut create = Create::root(NewSession::root(id("a")), "editor", "story");
            let note = |seq| Body::decode("weather/changed", "{}").unwrap().at(seq, 1);
            create.events = create.events.iter().cloned().chain((2..events).map(note).map(|event| crate::event::Event { ignorable: true, ..event })).collect();
            digest(&[Op::Create(create)])
        };
        assert_ne!(log(1_500), log(1_501));
        assert_eq!(log(1_500), log(1_500));
    }
}
