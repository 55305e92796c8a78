//! The order of rows, which is trusted only as far as it is seen.
//!
//! A damaged index gives its rows in another order than the one that was asked for, and finds another place than the one behind which they were. Whoever pages
//! through them by the last one would then begin again and again. So rows are looked at as they come.

use crate::store::StoreError;

/// Rows that come one behind the other, each behind a place where one is given.
pub(super) struct Ascending<T> {
    what: &'static str,
    last: Option<T>,
}

impl<T: Ord> Ascending<T> {
    pub(super) fn new(what: &'static str, after: Option<T>) -> Self {
        Self { what, last: after }
    }

    /// Takes the place of the next row.
    ///
    /// # Errors
    /// `Damaged` if it is not behind the one before.
    pub(super) fn next(&mut self, place: T) -> Result<(), StoreError> {
        if self.last.as_ref().is_some_and(|last| *last >= place) {
            return Err(StoreError::Damaged(format!("the index of {} is out of order", self.what)));
        }
        self.last = Some(place);
        Ok(())
    }
}
