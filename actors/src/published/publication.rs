//! What is to be published.

use greenroom_session::{
    descriptor::Descriptor,
    event::{Body, Event, RootOpened},
    header::NewSession,
    id::SessionId,
    store::Create,
    text::check_label,
};

use crate::error::PublishError;

/// What is to be published: who the session is, and what it begins with.
///
/// Of a session that is stored already the header and the beginning must be the same, times aside; then it is gone on with.
///
/// ```
/// use greenroom_actors::{Publication, host::NewRoot};
/// use greenroom_session::id::SessionId;
/// # tokio_test::block_on(async {
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(greenroom_actors::Config::default(), store, true).await?;
/// # let host = system.host();
/// let desk = SessionId::new("desk")?;
/// let opened = NewRoot::new("host", "a desk that the host plays").opened; // no behaviour of this name is needed
/// let session = host.publish_session(Publication::root(desk.clone(), opened)).await?;
/// session.end().await?;
/// // Whatever is stored can be gone on with.
/// let again = host.publish_session(Publication::stored(desk)).await?;
/// assert_eq!(again.head()?.epoch, 2);
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Publication {
    pub(super) session: NewSession,
    pub(super) seed: Seed,
}

#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a publication travels in a box of its own")]
pub(super) enum Seed {
    /// Whatever is stored.
    Stored,
    Root(RootOpened),
    Child(Box<Descriptor>),
    Events(Vec<Event>),
}

impl Publication {
    /// Publishes a root.
    pub fn root(id: SessionId, opened: RootOpened) -> Self {
        Self { session: NewSession::root(id), seed: Seed::Root(opened) }
    }

    /// Publishes a child that a descriptor describes.
    pub fn child(session: NewSession, descriptor: Descriptor) -> Self {
        Self { session, seed: Seed::Child(Box::new(descriptor)) }
    }

    /// Publishes a session that begins with these events, the first `seed_length` of them inherited. `session/end-seed` is added unless it is the last of them.
    pub fn seeded(session: NewSession, seed: Vec<Event>) -> Self {
        Self { session, seed: Seed::Events(seed) }
    }

    /// Publishes a session as it is stored.
    pub fn stored(id: SessionId) -> Self {
        Self { session: NewSession::root(id), seed: Seed::Stored }
    }

    /// Sets the absolute working folder of a session that is not stored yet.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<String>) -> Self {
        self.session.cwd = Some(cwd.into());
        self
    }

    /// Returns the id of the session.
    pub fn id(&self) -> &SessionId {
        &self.session.id
    }

    /// Refuses what no store would take, and what only a caller can have got wrong.
    pub(super) fn check(&self) -> Result<(), PublishError> {
        let invalid = |code, message: String| Err(PublishError::Invalid { code, message });
        match &self.seed {
            Seed::Root(opened) => check_label(&opened.label).or_else(|error| invalid("INVALID_LABEL", error.to_string())),
            Seed::Child(descriptor) => descriptor.check_new().or_else(|error| invalid(error.code(), error.to_string())),
            Seed::Events(seed) if (seed.len() as u64) < self.session.seed_length => {
                invalid("EVENT_INVALID", format!("{} events are said to be inherited and {} are given", self.session.seed_length, seed.len()))
            }
            Seed::Events(_) | Seed::Stored => Ok(()),
        }
    }

    /// Returns the whole beginning; `None` if it is whatever is stored.
    pub(super) fn events(&self, now: u64) -> Result<Option<Vec<Event>>, PublishError> {
        let session = self.session.clone();
        Ok(Some(match &self.seed {
            Seed::Stored => return Ok(None),
            Seed::Root(opened) => Create::opened(session, opened.clone(), now).events.to_vec(),
            Seed::Child(descriptor) => Create::child(session, Vec::new(), descriptor, None, now)
                .map_err(|error| PublishError::Invalid { code: "EVENT_INVALID", message: error.to_string() })?
                .events
                .to_vec(),
            Seed::Events(seed) => {
                let mut seed = seed.clone();
                if seed.last().is_none_or(|last| last.body != Body::EndSeed {}) {
                    seed.push(Body::EndSeed {}.at(seed.len() as u64, now));
                }
                seed
            }
        }))
    }
}
