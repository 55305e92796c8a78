//! The order of rows, which is trusted only as far as it is seen.
//!
//! A damaged index gives its rows in another order than the one that was asked for, and finds another place than the one behind which they were. Whoever pages
//! through them by the last one would then begin again and again. So rows are looked at as they come.

use rusqlite::ffi;

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
    /// `SQLITE_CORRUPT_INDEX` if it is not behind the one before.
    pub(super) fn next(&mut self, place: T) -> rusqlite::Result<()> {
        if self.last.as_ref().is_some_and(|last| *last >= place) {
            let what = format!("the index of {} is out of order", self.what);
            return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT_INDEX), Some(what)));
        }
        self.last = Some(place);
        Ok(())
    }
}
