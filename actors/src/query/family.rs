//! The children of one session, and what each of them is.

use std::{fmt, sync::Arc};

use greenroom_session::{
    event::Body,
    head::Head,
    header::Header,
    id::SessionId,
    listing::{Cursor, Described, Description, Summary, Verdict},
    store::{LoadError, Traced},
};

use super::{Page, Window, corpus::Corpus};
use crate::error::QueryError;

/// Children that are read in one call of the store; of most families all.
const AT_ONCE: usize = 256;

/// Children whose rows are read before anybody looks whether the answer is still wanted.
const CHUNK: usize = 64;

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

/// What a row says of a child, or why it says nothing.
type Row = Result<Described, QueryError>;

impl Corpus<'_> {
    /// Traces a session, then reads and describes its children; the roots and orphans if `None`.
    pub(crate) fn family(&mut self, parent: Option<&SessionId>, page: &Page, verify: bool) -> Result<Family, QueryError> {
        if let Some(parent) = parent {
            self.lineage(parent)?;
        }
        self.members(parent, page, verify)
    }

    /// Reads and describes children, without a look at where their parent comes from.
    pub(crate) fn members(&mut self, parent: Option<&SessionId>, page: &Page, verify: bool) -> Result<Family, QueryError> {
        let rows = self.rows(parent, page)?;
        // Roots are found by no trace.
        if parent.is_some() {
            self.all_agree(rows.iter().map(|(child, _)| child))?;
        }
        let mut family = Vec::with_capacity(rows.len());
        for (child, row) in rows {
            let described = self.described(&child, row, verify);
            // What a cancelled read says of a child says nothing about the child.
            self.go_on()?;
            family.push((child, described));
        }
        Ok(family)
    }

    /// Describes one session that was found.
    pub(crate) fn describe(&mut self, child: Traced) -> Result<Family, QueryError> {
        let row = self.reader.rows(std::slice::from_ref(&child))?.pop();
        let row = row.unwrap_or_else(|| Err(LoadError::NotFound(child.id.clone()))).map_err(QueryError::from_load);
        let described = self.described(&child, row, false);
        Ok(vec![(child, described)])
    }

    /// Finds children and reads their rows. If the store fails here nobody knows who the children are, so that all fails.
    fn rows(&mut self, parent: Option<&SessionId>, page: &Page) -> Result<Vec<(Traced, Row)>, QueryError> {
        self.go_on()?;
        let limit = page.limit.unwrap_or(usize::MAX);
        let found = self.reader.family_rows(parent, page.after.as_ref(), limit.min(AT_ONCE))?;
        let mut rows: Vec<(Traced, Row)> = found.into_iter().map(|(child, row)| (child, row.map_err(QueryError::from_load))).collect();
        let Some((last, _)) = rows.last().filter(|_| rows.len() == AT_ONCE && limit > AT_ONCE) else { return Ok(rows) };
        let after = Cursor { created_at: last.created_at, id: last.id.clone() };
        self.go_on()?;
        let mut rest = self.reader.children(parent, Some(&after), limit - AT_ONCE)?.into_iter();
        loop {
            let chunk: Vec<Traced> = rest.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                return Ok(rows);
            }
            self.go_on()?;
            match self.reader.rows(&chunk) {
                Ok(said) => rows.extend(chunk.into_iter().zip(said.into_iter().map(|row| row.map_err(QueryError::from_load)))),
                // Who they are is known by now.
                Err(error) => {
                    let error = QueryError::from(error);
                    rows.extend(chunk.into_iter().map(|child| (child, Err(error.clone()))));
                }
            }
        }
    }

    /// Says what a child is: by its row if it has a good one, else by its log, and a fork by its header alone.
    fn described(&mut self, child: &Traced, row: Row, verify: bool) -> Result<Description, QueryError> {
        let header = child.header.as_ref().map_err(|source| QueryError::corrupt(&child.id, "header", source))?;
        if header.is_fork() {
            let (has_children, holder) = row.map_or((false, None), |row| (row.has_children, row.holder));
            return Ok(Description { verdict: Verdict::Plain, head: Head::default(), has_children, holder });
        }
        let Described { row, has_children, holder } = row?;
        if let Some(Summary { head, verdict }) = row.filter(|_| !verify) {
            return Ok(Description { verdict, head, has_children, holder });
        }
        let Summary { head, verdict } = self.by_log(header)?;
        let holder = self.reader.holder(&child.id, &head)?;
        Ok(Description { verdict, head, has_children, holder })
    }

    /// Says what a session is by its log: one read to see what there is, and one of the descriptor itself if there is exactly one of its own.
    fn by_log(&mut self, traced: &Arc<Header>) -> Result<Summary, QueryError> {
        self.under_header(&traced.id, |corpus, header| {
            if header != traced {
                return Err(QueryError::SourceConflict(traced.id.clone()));
            }
            let mut own = Vec::new();
            let fold = corpus.fold_of(header, |event| {
                if event.seq >= header.seed_length && matches!(event.body, Body::Descriptor(_)) {
                    own.push(event.seq);
                }
            })?;
            if let [seq] = *own {
                let window = corpus.window_of(header, Window { seq, before: 0, after: 0 })?;
                if !window.event().is_some_and(|event| matches!(event.body, Body::Descriptor(_))) {
                    return Err(QueryError::Corrupt { session: traced.id.clone(), reason: format!("event {seq} is no descriptor any more") });
                }
            }
            Ok(Summary::of(&fold))
        })
    }
}
