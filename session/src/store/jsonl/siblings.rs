//! The order of the children in one folder, remembered for as long as their names are the same: so that a page costs no more than its rows.
//!
//! A child's time stands in its header, which never changes, so that a new order needs another name.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{bounded::Bounded, place::Place, view::Kept};
use crate::{id::SessionId, listing::Cursor};

/// Most folders whose order is remembered.
const MOST_ORDERS: usize = 64;

/// A child in its place among the others.
#[derive(Debug)]
pub(super) struct Sibling {
    pub(super) created_at: u64,
    pub(super) id: SessionId,
    pub(super) place: Place,
}

impl Sibling {
    pub(super) fn of(place: Place, kept: &Kept) -> Self {
        Self { created_at: kept.created_at(), id: kept.id.clone(), place }
    }
}

/// Tells where those stand that come after a place, at most `limit`.
pub(super) fn span(order: &[Sibling], after: Option<&Cursor>, limit: usize) -> Range<usize> {
    let from = after.map_or(0, |after| order.partition_point(|sibling| (sibling.created_at, &sibling.id) <= (after.created_at, &after.id)));
    from..order.len().min(from.saturating_add(limit))
}

/// An order, and the version of the names that it is of.
#[derive(Debug)]
struct Order {
    version: u64,
    siblings: Arc<Vec<Sibling>>,
}

/// The orders that are remembered, by folder.
#[derive(Debug)]
pub(super) struct Orders(Mutex<Bounded<String, Order>>);

impl Orders {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Bounded::new(MOST_ORDERS)))
    }

    fn lock(&self) -> MutexGuard<'_, Bounded<String, Order>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, folder: &str, version: u64) -> Option<Arc<Vec<Sibling>>> {
        self.lock().get(folder).filter(|order| order.version == version).map(|order| order.siblings.clone())
    }

    pub(super) fn put(&self, folder: String, version: u64, siblings: Vec<Sibling>) {
        self.lock().put(folder, Order { version, siblings: Arc::new(siblings) });
    }
}
