//! Whom a message may reach: what is known of a receiver, live or on disk.

use std::sync::Arc;

use greenroom_session::{
    event::Body,
    header::Header,
    id::SessionId,
    listing::{Description, Verdict},
    store::{CommitError, LoadError, Reader, StoreError, Traced},
};
use serde_json::Value;

use crate::{
    error::{DeliverError, WriteError},
    live::LiveView,
    published::PLAYED_BY_HOST,
    services::Services,
};

pub(crate) fn not_continuable(id: &SessionId) -> DeliverError {
    DeliverError::NotResumable { child: id.to_string(), reason: "it has no supported continuation state; do not try again".into() }
}

pub(crate) fn played_by_host(id: &SessionId) -> DeliverError {
    DeliverError::NotResumable { child: id.to_string(), reason: PLAYED_BY_HOST.into() }
}

/// Returns the header of a child that takes messages and is not live.
pub(crate) async fn addressee(services: &Services, id: &SessionId) -> Result<Arc<Header>, DeliverError> {
    match stored(services, id).await {
        Ok((header, verdict @ Verdict::Child { .. })) if verdict.refuses().is_none() => Ok(header),
        Ok(_) => Err(not_continuable(id)),
        Err(error) => Err(unreadable(id, &error)),
    }
}

/// Asks whether a session takes messages of the host: what would never be served is not accepted.
pub(crate) async fn takes_messages(services: &Services, id: &SessionId, live: Option<&LiveView>) -> Result<(), DeliverError> {
    match live {
        Some(view) if view.is_published() => Err(played_by_host(id)),
        // What is live and has a parent is a child; whether it is continuable was told when it came up.
        Some(view) if view.continuable || view.header.parent.is_none() => Ok(()),
        Some(_) | None => match stored(services, id).await {
            Ok((_, verdict)) => match verdict.refuses() {
                None => Ok(()),
                Some(reason) => Err(DeliverError::NotResumable { child: id.to_string(), reason: reason.into() }),
            },
            Err(LoadError::Store(error)) => Err(DeliverError::Write(WriteError::NotCommitted(Arc::new(CommitError::NotCommitted(error))))),
            Err(error) => Err(unreadable(id, &error)),
        },
    }
}

pub(crate) fn unreadable(id: &SessionId, error: &LoadError) -> DeliverError {
    let reason = match error {
        LoadError::NotFound(_) => "there is no such session".into(),
        error => error.to_string(),
    };
    DeliverError::NotResumable { child: id.to_string(), reason }
}

/// Reads what a session is.
async fn stored(services: &Services, id: &SessionId) -> Result<(Arc<Header>, Verdict), LoadError> {
    let wanted = id.clone();
    let read = move |reader: &mut dyn Reader| {
        let header = required(reader, &wanted)?;
        let traced = Traced { id: wanted.clone(), created_at: header.created_at, header: Ok(header.clone()) };
        match reader.describe(std::slice::from_ref(&traced), false)?.pop() {
            Some(described) => Ok((header, described?.verdict)),
            None => Err(LoadError::NotFound(wanted)),
        }
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
