//! What of a list is wanted.

use greenroom_session::listing::Cursor;

use crate::error::QueryError;

/// What of a list is wanted.
///
/// ```
/// use greenroom_actors::query::Page;
/// let all = Page::default();
/// let first_ten = Page { after: None, limit: Some(10) };
/// assert_eq!((all.limit, first_ten.limit), (None, Some(10)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Only what comes after this place.
    pub after: Option<Cursor>,
    /// At most this many, at least one; all if `None`.
    pub limit: Option<usize>,
}

impl Page {
    /// A page of nothing would end at no place, so that whoever goes from page to page would never come to an end.
    ///
    /// # Errors
    /// [`QueryError::InvalidLimit`] if nothing is asked for.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        if self.limit == Some(0) { Err(QueryError::InvalidLimit) } else { Ok(()) }
    }

    /// One more than asked for tells whether there is a next page.
    ///
    /// # Errors
    /// As [`Page::check`].
    pub(crate) fn one_more(&self) -> Result<Self, QueryError> {
        self.check()?;
        Ok(Self { after: self.after.clone(), limit: self.limit.map(|limit| limit.saturating_add(1)) })
    }
}
