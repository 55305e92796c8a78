//! What a query reads: the store, and the live sessions beside it.

use std::sync::Arc;

use greenroom_session::{
    header::Header,
    id::SessionId,
    store::{LoadError, Reader},
};
use tokio_util::sync::CancellationToken;

use crate::{error::QueryError, live::LiveTable};

/// A reader of the store, with what is live and whether anybody still waits for the answer.
///
/// Every rule of reading is one of its methods, so that a listing of a process that runs nothing obeys the same ones.
pub(crate) struct Corpus<'a> {
    pub(super) reader: &'a mut dyn Reader,
    live: LiveTable,
    cancel: CancellationToken,
}

impl<'a> Corpus<'a> {
    pub(crate) fn new(reader: &'a mut dyn Reader, live: LiveTable, cancel: CancellationToken) -> Self {
        Self { reader, live, cancel }
    }

    /// The store alone: nothing is live here, and nobody gives up.
    pub(crate) fn stored(reader: &'a mut dyn Reader) -> Self {
        Self::new(reader, LiveTable::default(), CancellationToken::new())
    }

    /// Asked before every call of the reader.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`] if nobody waits any more.
    pub(super) fn go_on(&self) -> Result<(), QueryError> {
        if self.cancel.is_cancelled() { Err(QueryError::Cancelled) } else { Ok(()) }
    }

    /// Tells within a read whether nobody waits any more.
    pub(super) fn gives_up(&self) -> impl Fn() -> bool + use<> {
        let cancel = self.cancel.clone();
        move || cancel.is_cancelled()
    }

    pub(super) fn live(&self) -> &LiveTable {
        &self.live
    }

    /// Returns the header of a session that is stored or live; `None` if it is neither.
    pub(super) fn header(&mut self, id: &SessionId) -> Result<Option<Arc<Header>>, QueryError> {
        self.go_on()?;
        match self.reader.header(id) {
            Ok(Some(stored)) => {
                self.agree(&stored)?;
                Ok(Some(stored))
            }
            // What is live is known even where nothing of it is stored.
            Ok(None) | Err(LoadError::NotFound(_) | LoadError::Removed(_)) => Ok(self.live.get(id).map(|view| view.header.clone())),
            Err(error) => Err(QueryError::from_load(error)),
        }
    }

    /// Compares a stored header with the one that the live session of its id was published with.
    ///
    /// # Errors
    /// [`QueryError::SourceConflict`] if they differ: then nobody can say which of them is true.
    pub(super) fn agree(&self, stored: &Header) -> Result<(), QueryError> {
        match self.live.get(&stored.id) {
            Some(view) if *view.header != *stored => Err(QueryError::SourceConflict(stored.id.clone())),
            _ => Ok(()),
        }
    }

    /// Reads one session between two looks at its header, so that what is read belongs to the header that is told: also if the session becomes live meanwhile.
    pub(super) fn under_header<T>(&mut self, id: &SessionId, read: impl FnOnce(&mut Self, &Arc<Header>) -> Result<T, QueryError>) -> Result<T, QueryError> {
        let missing = || QueryError::SessionNotFound(id.clone());
        let before = self.header(id)?.ok_or_else(missing)?;
        let found = read(self, &before)?;
        let after = self.header(id)?.ok_or_else(missing)?;
        if after == before { Ok(found) } else { Err(QueryError::SourceConflict(id.clone())) }
    }
}
