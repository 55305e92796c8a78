//! What sessions are called in a transcript: by their labels where those are known, else by the beginnings of their ids.

use std::collections::HashMap;

use greenroom::{
    actors::catalog::read_entry,
    session::{id::SessionId, store::Reader, text::Escaped},
};

/// Characters of an id that stand for it: a beginning that every verb takes.
const SHORT_ID: usize = 8;

/// Looks labels up, each once. Without a reader nobody has a label.
#[derive(Debug, Default)]
pub(crate) struct Names<'a> {
    reader: Option<&'a mut dyn Reader>,
    known: HashMap<SessionId, Option<String>>,
}

impl<'a> Names<'a> {
    /// Looks labels up in a store.
    pub(crate) fn of(reader: &'a mut dyn Reader) -> Self {
        Self { reader: Some(reader), known: HashMap::new() }
    }

    /// Returns a session's label, escaped; none if it has none or cannot be read.
    pub(crate) fn label(&mut self, session: &SessionId) -> Option<&str> {
        if !self.known.contains_key(session) {
            let entry = self.reader.as_mut().and_then(|reader| read_entry(&mut **reader, session).ok().flatten());
            let label = entry.as_ref().and_then(|entry| entry.listed()?.label.as_deref()).map(|label| Escaped(label).to_string());
            self.known.insert(session.clone(), label);
        }
        self.known.get(session)?.as_deref()
    }

    /// Returns what a session is called.
    pub(crate) fn name(&mut self, session: &SessionId) -> String {
        self.label(session).map_or_else(|| short(session.as_str()), str::to_owned)
    }
}

/// Returns the beginning of an id, escaped.
pub(crate) fn short(id: &str) -> String {
    let end = id.char_indices().nth(SHORT_ID).map_or(id.len(), |(at, _)| at);
    Escaped(id.get(..end).unwrap_or(id)).to_string()
}

#[cfg(test)]
mod tests {
    use greenroom::session::{
        header::NewSession,
        store::{Create, Op, Store, memory::MemoryStore},
    };

    use super::*;

    #[test]
    fn a_session_is_called_by_its_label_or_by_the_beginning_of_its_id() {
        let store = MemoryStore::new();
        let id = SessionId::new("0123456789").unwrap();
        store.commit(&[Op::Create(Create::root(NewSession::root(id.clone()), "a", "the desk"))]).unwrap();
        let mut reader = store.reader().unwrap();
        let mut names = Names::of(&mut *reader);
        assert_eq!(names.name(&id), "the desk");
        assert_eq!(names.name(&SessionId::new("stranger-17").unwrap()), "stranger");
        assert_eq!(Names::default().name(&id), "01234567");
    }
}
