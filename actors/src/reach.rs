//! Whom a message may reach: what is known of a receiver, live or on disk.

use std::sync::Arc;

use greenroom_session::{
    descriptor::Mode,
    event::Body,
    header::Header,
    id::SessionId,
    listing::{Description, Reason, Verdict},
    store::{CommitError, LoadError, Reader, StoreError, Traced},
};
use serde_json::Value;

use crate::{
    error::{DeliverError, WriteError},
    live::LiveView,
    published::PLAYED_BY_HOST,
    services::Services,
};

fn not_resumable(id: &SessionId, reason: impl Into<String>) -> DeliverError {
    DeliverError::NotResumable { child: id.to_string(), reason: reason.into() }
}

/// Asks whether a live session takes messages of its parent.
pub(crate) fn takes_followups(id: &SessionId, view: &LiveView) -> Result<(), DeliverError> {
    match view.is_published() {
        true => Err(not_resumable(id, PLAYED_BY_HOST)),
        false if view.continuable => Ok(()),
        false => Err(not_resumable(id, NOT_CONTINUABLE)),
    }
}

/// Asks whether a session on disk takes messages of its parent.
pub(crate) fn is_continuable(id: &SessionId, verdict: Result<Verdict, LoadError>) -> Result<(), DeliverError> {
    match verdict.map_err(|error| unreadable(id, error))? {
        Verdict::Child { mode: Mode::Continuable, .. } => Ok(()),
        // It may be mended.
        broken @ Verdict::Broken { reason: Reason::Corrupt | Reason::Unavailable } => Err(not_resumable(id, broken.refuses().unwrap_or_default())),
        _ => Err(not_resumable(id, NOT_CONTINUABLE)),
    }
}

const NOT_CONTINUABLE: &str = "it has no supported continuation state; do not try again";

/// Asks whether a session takes messages of the host: what would never be served is not accepted.
pub(crate) async fn takes_messages(services: &Services, id: &SessionId, live: Option<&LiveView>) -> Result<(), DeliverError> {
    match live {
        Some(view) if view.is_published() => Err(not_resumable(id, PLAYED_BY_HOST)),
        // What is live and has a parent is a child; whether it is continuable was told when it came up.
        Some(view) if view.continuable || view.header.parent.is_none() => Ok(()),
        Some(_) | None => {
            let (_, verdict) = stored(services, id).await.map_err(|error| unreadable(id, error))?;
            match verdict.map_err(|error| unreadable(id, error))?.refuses() {
                None => Ok(()),
                Some(reason) => Err(not_resumable(id, reason)),
            }
        }
    }
}

/// Says of a session that could not be read what it means for whoever would send to it. That a store fails says nothing of the session.
pub(crate) fn unreadable(id: &SessionId, error: LoadError) -> DeliverError {
    match error {
        LoadError::Store(error) => DeliverError::Write(WriteError::NotCommitted(Arc::new(CommitError::NotCommitted(error)))),
        LoadError::NotFound(_) => not_resumable(id, NO_SUCH_SESSION),
        error => not_resumable(id, error.to_string()),
    }
}

/// What is said of a session that is not there.
pub(crate) const NO_SUCH_SESSION: &str = "there is no such session";

/// Reads what a session is: its header, and what its log says.
pub(crate) async fn stored(services: &Services, id: &SessionId) -> Result<(Arc<Header>, Result<Verdict, LoadError>), LoadError> {
    let wanted = id.clone();
    let read = move |reader: &mut dyn Reader| {
        let header = required(reader, &wanted)?;
        let traced = Traced { id: wanted.clone(), created_at: header.created_at, header: Ok(header.clone()) };
        let described = reader.describe(std::slice::from_ref(&traced), false)?.pop();
        let verdict = described.unwrap_or_else(|| Err(LoadError::NotFound(wanted))).map(|description| description.verdict);
        Ok((header, verdict))
    };
    services.readers.read(read).await
}

/// Reads a header that must be there.
fn required(reader: &mut dyn Reader, id: &SessionId) -> Result<Arc<Header>, LoadError> {
    match reader.header(id)? {
        Some(header) => Ok(header),
        None if reader.is_removed(id)? => Err(LoadError::Removed(id.clone())),
        None => Err(LoadError::NotFound(id.clone())),
    }
}

/// Reads what a child's behaviour was given.
pub(crate) fn params_of(reader: &mut dyn Reader, child: SessionId) -> Result<Option<Value>, StoreError> {
    let header = match reader.header(&child) {
        Ok(Some(header)) => header,
        Err(LoadError::Store(error)) => return Err(error),
        Ok(None) | Err(_) => return Ok(None),
    };
    let traced = Traced { id: child, created_at: header.created_at, header: Ok(header) };
    let described = reader.describe(std::slice::from_ref(&traced), false)?.pop();
    let Some(Ok(Description { verdict: Verdict::Child { descriptor, .. }, .. })) = described else { return Ok(None) };
    match reader.events(&traced.id, descriptor, 1) {
        Ok(events) => Ok(events.first().and_then(|event| match &event.body {
            Body::Descriptor(data) => data.get("params").cloned(),
            _ => None,
        })),
        Err(LoadError::Store(error)) => Err(error),
        Err(_) => Ok(None),
    }
}
