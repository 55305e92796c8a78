//! The children of one session, and what each of them is.

use std::fmt;

use greenroom_session::{id::SessionId, listing::Description, store::Traced};

use super::{Page, corpus::Corpus};
use crate::error::QueryError;

/// The children of a parent, and what each of them is.
pub(crate) type Family = Vec<(Traced, Result<Description, QueryError>)>;

/// What is done with a family, on the thread that has read it.
pub(crate) struct Then(Box<dyn FnOnce(Result<Family, QueryError>) + Send>);

impl Then {
    pub(crate) fn new(then: impl FnOnce(Result<Family, QueryError>) + Send + 'static) -> Self {
        Self(Box::new(then))
    }

    pub(crate) fn take(self, family: Result<Family, QueryError>) {
        (self.0)(family);
    }
}

impl fmt::Debug for Then {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Then")
    }
}

impl Corpus<'_> {
    /// Traces a session, then reads and describes its children; the roots and orphans if `None`.
    pub(crate) fn family(&mut self, parent: Option<&SessionId>, page: &Page, verify: bool) -> Result<Family, QueryError> {
        if let Some(parent) = parent {
            self.lineage(parent)?;
        }
        let family = self.members(parent, page, verify)?;
        if parent.is_some() {
            self.all_agree(family.iter().map(|(child, _)| child))?;
        }
        Ok(family)
    }

    /// Reads and describes children, without a look at where their parent comes from.
    pub(crate) fn members(&mut self, parent: Option<&SessionId>, page: &Page, verify: bool) -> Result<Family, QueryError> {
        self.go_on()?;
        let members = self.reader.family(parent, page.after.as_ref(), page.limit.unwrap_or(usize::MAX), verify)?;
        Ok(members.into_iter().map(|(child, described)| (child, described.map_err(QueryError::from_load))).collect())
    }

    /// Describes one session that was found.
    pub(crate) fn describe(&mut self, child: Traced) -> Result<Family, QueryError> {
        let children = vec![child];
        let described = self.reader.describe(&children, false)?;
        Ok(children.into_iter().zip(described.into_iter().map(|described| described.map_err(QueryError::from_load))).collect())
    }
}
