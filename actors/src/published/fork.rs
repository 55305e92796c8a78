//! Forks: a session that begins with what another one has on disk, and goes its own way.

use std::sync::Arc;

use greenroom_session::{
    fork::{ForkError as CutError, cut},
    header::{Header, NewSession},
    id::{Seq, SessionId},
    store::{Create, Done, LoadError, Op, Refused},
};

use super::PublishedSession;
use crate::{
    error::{ForkError, WriteError},
    race::race_point,
    services::Services,
};

impl PublishedSession {
    /// Forks this session after everything that was put before, as [`Host::fork`](crate::Host::fork) does.
    ///
    /// # Errors
    /// [`ForkError`], as [`Host::fork`](crate::Host::fork); [`ForkError::NotLive`] if the publication has ended, and the failure of a write.
    ///
    /// # Cancel safety
    /// The fork may exist.
    pub async fn fork(&self, boundary: Option<Seq>, child: Option<SessionId>) -> Result<Arc<Header>, ForkError> {
        fork(&self.services, self.id(), boundary, child, Some(self)).await
    }
}

/// Creates a fork of what is durable of a session.
pub(crate) async fn fork(
    services: &Arc<Services>,
    source: &SessionId,
    boundary: Option<Seq>,
    child: Option<SessionId>,
    handle: Option<&PublishedSession>,
) -> Result<Arc<Header>, ForkError> {
    if services.is_draining() {
        return Err(ForkError::Draining);
    }
    let child = child.unwrap_or_else(|| SessionId::from_uuid(services.config.ids.uuid()));
    refuse_taken(services, &child).await?;
    if let Some(handle) = handle {
        handle.flush().await?;
    }
    let (id, limit) = (source.clone(), boundary.map_or(usize::MAX, |boundary| usize::try_from(boundary).unwrap_or(usize::MAX).saturating_add(1)));
    let read = services.readers.read(move |reader| {
        let header = reader.header(&id)?.ok_or_else(|| LoadError::NotFound(id.clone()))?;
        Ok((header, reader.events(&id, 0, limit)?))
    });
    let (header, events) = read.await.map_err(|error| ForkError::from_load(source, error))?;
    race_point!("fork-read");
    let cut = cut(&events, boundary).map_err(|error: CutError| ForkError::Cut(error))?;
    let now = services.now();
    let session = NewSession { seed_length: cut.seed_length(), cwd: header.cwd.clone(), ..NewSession::fork(child.clone(), source.clone()) };
    let create = Create { session, time: now, events: cut.seed(now).into(), message: None };
    drop(events);
    if services.is_draining() {
        return Err(ForkError::Draining);
    }
    let [pending] = services.journal.submit([Op::Create(create)]);
    match pending.done_within(services.config.ask_deadline).await {
        Ok(Done::Created { header, existing: false }) => Ok(header),
        // Somebody else was faster, be it with the very same fork.
        Ok(_) | Err(WriteError::Refused(Refused::Exists(_))) => Err(ForkError::AlreadyExists(child)),
        Err(error) => Err(error.into()),
    }
}

async fn refuse_taken(services: &Services, child: &SessionId) -> Result<(), ForkError> {
    let id = child.clone();
    let taken = services.readers.read(move |reader| match reader.header(&id) {
        Ok(header) => Ok(header.is_some()),
        Err(LoadError::Store(error)) => Err(error),
        // Whatever it is, it is there.
        Err(_) => Ok(true),
    });
    let taken = taken.await.map_err(|error| ForkError::Read(Arc::new(error)))?;
    if taken || services.live.is_resident(child) { Err(ForkError::AlreadyExists(child.clone())) } else { Ok(()) }
}
