//! What every store checks of events before it takes them, beyond what the fold refuses.

use std::{collections::HashSet, sync::Arc};

use super::Refused;
use crate::{
    event::{Body, Event},
    fold::Fold,
    head::Head,
    header::Header,
    id::{Epoch, Order},
};

/// Folds what a session is created with, and refuses a header that claims more inherited events than there are: everything that the session lives through would
/// count as inherited until there are so many.
pub(super) fn born(header: &Arc<Header>, events: &[Event]) -> Result<Fold, Refused> {
    let mut fold = Fold::new(header.clone());
    for event in events {
        fold.apply_event(event)?;
    }
    match fold.missing_prefix() {
        Some(missing) => Err(Refused::Invalid { code: "EVENT_INVALID", message: missing }),
        None => Ok(fold),
    }
}

/// Refuses events that are written at creation only. What a session is never changes after its creation, so that what an index says of it cannot grow old.
pub(super) fn check_lived(event: &Event) -> Result<(), Refused> {
    match event.body {
        Body::RootOpened(_) | Body::Descriptor(_) => {
            Err(Refused::Invalid { code: "EVENT_INVALID", message: format!("`{}` is written at creation only", event.body.type_name()) })
        }
        _ => Ok(()),
    }
}

/// Refuses an opening whose events leave the epoch unbegun: its lease would be held by nobody who may write.
pub(super) fn check_begun(head: &Head, epoch: Epoch) -> Result<(), Refused> {
    let begun = head.live && head.epoch == epoch;
    if begun { Ok(()) } else { Err(Refused::Invalid { code: "EVENT_INVALID", message: format!("the events do not begin epoch {epoch}") }) }
}

/// Refuses a closing whose events leave the epoch going on without a lease.
pub(super) fn check_ended(head: &Head) -> Result<(), Refused> {
    if head.live { Err(Refused::Invalid { code: "EVENT_INVALID", message: format!("the events do not end epoch {}", head.epoch) }) } else { Ok(()) }
}

/// Refuses events that name other waiting messages than those that are to leave the inbox with them: what a log says has left is what has left.
pub(super) fn check_taken(named: &HashSet<Order>, take: &[Order]) -> Result<(), Refused> {
    if named.len() == take.iter().collect::<HashSet<_>>().len() && take.iter().all(|order| named.contains(order)) {
        Ok(())
    } else {
        Err(Refused::Invalid { code: "EVENT_INVALID", message: "the events name other messages than those that leave the inbox".into() })
    }
}
