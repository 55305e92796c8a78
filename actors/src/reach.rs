//! Whom a message may reach: what is known of a receiver, live or on disk.

use std::sync::Arc;

use greenroom_session::{
    descriptor::Mode,
    event::Body,
    header::Header,
    id::SessionId,
    listing::{Description, Verdict},
    store::{LoadError, Reader, StoreError, Traced},
};
use serde_json::Value;

use crate::{error::DeliverError, published::PLAYED_BY_HOST, services::Services};

pub(crate) fn not_continuable(id: &SessionId) -> DeliverError {
    DeliverError::NotResumable { child: id.to_string(), reason: "it has no supported continuation state; do not try again".into() }
}

pub(crate) fn played_by_host(id: &SessionId) -> DeliverError {
    DeliverError::NotResumable { child: id.to_string(), reason: PLAYED_BY_HOST.into() }
}

/// Returns the header of a child that takes messages and is not live.
pub(crate) async fn addressee(services: &Services, id: &SessionId) -> Result<Arc<Header>, DeliverError> {
    let wanted = id.clone();
    let unavailable = |reason: String| DeliverError::NotResumable { child: id.to_string(), reason };
    let found = services
        .readers
        .read(move |reader| -> Result<_, LoadError> {
            let header = required(reader, &wanted)?;
            let traced = greenroom_session::store::Traced { id: wanted.clone(), created_at: header.created_at, header: Ok(header.clone()) };
            let described = reader.describe(std::slice::from_ref(&traced), false)?.pop();
            Ok((header, described))
        })
        .await;
    match found {
        Ok((header, Some(Ok(description)))) => match description.verdict {
            Verdict::Child { mode: Mode::Continuable, .. } => Ok(header),
            _ => Err(not_continuable(id)),
        },
        Err(LoadError::NotFound(_)) | Ok((_, None)) => Err(unavailable("there is no such session".into())),
        Ok((_, Some(Err(error)))) | Err(error) => Err(unavailable(error.to_string())),
    }
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
